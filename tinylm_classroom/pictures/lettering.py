"""Type that is read from the last row, axes that are not seen, lines to compare with, and dots
beside one another.
"""

from typing import Any

from matplotlib.axes import Axes

from ..display.theme import QUIET

LEVEL: dict[str, Any] = {"color": QUIET, "linewidth": 1.8, "linestyle": (0, (1, 1.5))}


def set_type(ax: Axes, points: float) -> None:
    """The numbers at both axes and the two labels in this size."""
    ax.tick_params(labelsize=points)
    ax.xaxis.label.set_size(points)
    ax.yaxis.label.set_size(points)


def hide_axes(ax: Axes) -> None:
    """No axes and no labels: those a figure has are for its readers, and not drawn."""
    ax.axis("off")
    ax.set(xticks=[], yticks=[])
    ax.xaxis.label.set_visible(False)
    ax.yaxis.label.set_visible(False)


def side_by_side(at: float, n: int, apart: float) -> list[float]:
    """Where n dots are that belong to one place of an axis, so that none covers another."""
    return [at + apart * (i - (n - 1) / 2) for i in range(n)]
