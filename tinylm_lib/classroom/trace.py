"""The shape trace of a whole model: every part with the shape that really came out of it, in letters and in numbers."""

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from torch import Tensor, nn

from ..model import TransformerLM
from .capture import capture
from .figures import AXIS_COLORS, LINE
from .shapes import config_sizes

LEGEND = {
    "B": "texts in the batch",
    "T": "positions",
    "C": "width of the stream",
    "H": "query heads",
    "G": "key-value heads",
    "D": "width of a head",
    "F": "inner width of the feed-forward",
    "V": "vocabulary",
}


class Row(NamedTuple):
    """One part of the model: how deep it is nested, its name, its class, its output's shape and its own parameters."""

    depth: int
    name: str
    kind: str
    shape: tuple[int, ...]
    parameters: int


class Trace:
    """What a model did with one batch: a card in a notebook, a table as text."""

    def __init__(self, rows: list[Row], sizes: Mapping[str, int], note: str):
        self.rows, self.sizes, self.note = rows, sizes, note

    def letters(self, shape: tuple[int, ...]) -> list[tuple[str, int]]:
        """Name each size by its letter; where two letters have one size, the first of the legend that is free."""
        named: list[tuple[str, int]] = []
        for size in shape:
            free = {a: n for a, n in self.sizes.items() if a not in dict(named)}
            named.append((next((a for a, n in free.items() if n == size), "?"), size))
        return named

    def legend(self) -> list[tuple[str, str]]:
        """The letters that occur, with their meaning."""
        used = "*".join(axis for row in self.rows for axis, _ in self.letters(row.shape)).split("*")
        return [(letter, text) for letter, text in LEGEND.items() if letter in used]

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            named = self.letters(row.shape)
            label = "  " * row.depth + f"{row.name} ({row.kind})"
            letters, sizes = ", ".join(a for a, _ in named), ", ".join(str(n) for _, n in named)
            lines.append(f"{label:<40} ({letters}) = ({sizes})".ljust(78) + f"{row.parameters:>9,}")
        legend = ", ".join(
            f"{a} {LEGEND[a]}" for a in LEGEND if any(a in dict(self.letters(r.shape)) for r in self.rows)
        )
        return "\n".join([*lines, legend, self.note])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cell = (
            "padding:3px 16px;text-align:left;white-space:pre;font:14px/1.55 ui-monospace,'DejaVu Sans Mono',monospace"
        )
        head = "padding:6px 16px;text-align:left;font-size:13px;opacity:0.75"
        body = ""
        for row in self.rows:
            shape = ", ".join(_axis(a, n) for a, n in self.letters(row.shape))
            label = f"{'    ' * row.depth}{escape(row.name)} <span style='opacity:0.65'>{escape(row.kind)}</span>"
            count = f"{row.parameters:,}" if row.parameters else ""
            body += f'<tr><td style="{cell}">{label}</td><td style="{cell}">({shape})</td>'
            body += f'<td style="{cell};text-align:right">{count}</td></tr>'
        legend = " &nbsp; ".join(f"{_axis(letter)} {text}" for letter, text in self.legend())
        columns = ("part", "shape of what it returns", "parameters")
        titles = "".join(f'<th style="{head}">{title}</th>' for title in columns)
        return (
            f'<div style="border:1px solid {LINE};border-radius:10px;overflow-x:auto;max-width:1000px;margin:4px 0">'
            f'<table style="border-collapse:collapse;width:100%;color:inherit"><tr>{titles}</tr>{body}</table>'
            f'<p style="margin:8px 16px;font-size:14px;line-height:1.9">{legend}</p>'
            f'<p style="margin:8px 16px 12px;font-size:14px">{escape(self.note)}</p></div>'
        )


def _axis(axis: str, size: int | None = None) -> str:
    """A letter as a coloured label, readable on light and dark paper."""
    label = "color:#fff;border-radius:4px;padding:0 4px;background:"
    letters = (
        f'<b style="{label}{AXIS_COLORS.get(letter, AXIS_COLORS["B"]).light}">{letter}</b>'
        for letter in axis.split("*")
    )
    return "*".join(letters) + ("" if size is None else f"={size}")


def trace_model(model: TransformerLM, ids: Tensor, blocks: int = 1) -> Trace:
    """Run the model on ids (B, T) and list its parts with the shapes that really came out of them.

    blocks: how many blocks to open; the others are one row each.
    """
    caught = capture(model, ids)
    sizes = {"B": ids.shape[0], "T": ids.shape[1], **config_sizes(model.config)}
    sizes = {
        **{letter: sizes[letter] for letter in LEGEND},
        "G*D": sizes["G"] * sizes["D"],
        "H*D": sizes["H"] * sizes["D"],
    }
    opened = {f"blocks.{i}" for i in range(blocks)}
    results = {name.removesuffix(".q"): value for name, value in caught.outputs.items()}
    order = [name for name, module in model.named_modules() if name in results and _speaks(module)]
    rows = [Row(0, "ids", "token ids", tuple(ids.shape), 0)]
    for name in order:
        parts = name.split(".")
        if parts[0] == "blocks" and len(parts) > 2 and ".".join(parts[:2]) not in opened:
            continue
        module, depth = model.get_submodule(name), 0 if parts[0] != "blocks" else len(parts) - 2
        own = sum(p.numel() for p in module.parameters())
        label = name if depth == 0 else parts[-1]
        rows.append(Row(depth, label, type(module).__name__, tuple(results[name].shape), own))
    head = 0 if model.lm_head is None else model.lm_head.weight.numel()
    rows.append(Row(0, "logits", "scores for the next token", tuple(caught.logits.shape), head))
    total = sum(p.numel() for p in model.parameters())
    return Trace(rows, sizes, f"{total:,} parameters in all; a part's number includes the parts inside it.")


def _speaks(module: nn.Module) -> bool:
    """Dropout, identities and missing positions change nothing here."""
    return type(module).__name__ not in ("Dropout", "Identity", "Unchanged")
