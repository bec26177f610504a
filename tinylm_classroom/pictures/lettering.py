"""Type that is read from the last row, and axes that are not seen."""

from matplotlib.axes import Axes


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
