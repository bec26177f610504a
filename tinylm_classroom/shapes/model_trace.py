"""The shape trace of a whole model: every part with the shape that really came out of it, its
weights and its work.
"""

from html import escape
from itertools import chain
from typing import NamedTuple

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tinylm_lib.model import TransformerLM

from ..display.cards import CODE, Card, card, paragraph, unmarked
from .capture import capture
from .comments import Shape, config_sizes
from .letters import axis_names, chips, legend, legend_html, spelled

_CELL = (
    f"{CODE};padding:2px 14px 2px "
    "0;border:none;text-align:left;white-space:pre;max-width:none;line-height:1.7"
)
_HEAD = "padding:4px 14px 4px 0;text-align:left;font-size:13px;white-space:nowrap;border:none"
_COLUMNS = ("part", "shape of what it returns", "parameters", "FLOPs")
UNCHANGING = ("Dropout", "Identity", "Unchanged")


class Row(NamedTuple):
    """One part of a model: how deep it is nested, its name and class, its output's shape, its
    weights and its work.
    """

    depth: int
    name: str
    kind: str
    shape: tuple[int, ...]
    names: Shape
    parameters: int
    flops: int


class ModelTrace(Card):
    """What a model did with one batch, part by part."""

    def __init__(self, rows: list[Row], card: Card):
        super().__init__(card.html, card.text)
        self.rows = rows


def trace_model(model: TransformerLM, ids: Tensor, blocks: int = 1) -> ModelTrace:
    """Runs the model on ids (B, T) and lists its parts: real shapes, parameters, FLOPs of matrix
    products.

    blocks: how many blocks to open; the others are one row each.
    """
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        caught = capture(model, ids)
    flops = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    letters = {"B": ids.shape[0], "T": ids.shape[1], **config_sizes(model.config)}
    results = {name.removesuffix(".q"): value for name, value in caught.outputs.items()}
    opened = {f"blocks.{i}" for i in range(blocks)}

    def row(name: str, kind: str, value: Tensor, depth: int, parameters: int, work: int) -> Row:
        return Row(
            depth,
            name,
            kind,
            tuple(value.shape),
            axis_names(tuple(value.shape), letters),
            parameters,
            work,
        )

    rows = [row("ids", "token ids", ids, 0, 0, 0)]
    for name, module in model.named_modules():
        inside = name.split(".")
        kind = type(module).__name__
        folded = inside[0] == "blocks" and len(inside) > 2 and ".".join(inside[:2]) not in opened
        if name in results and not folded and kind not in UNCHANGING:
            depth = max(0, len(inside) - 2) if inside[0] == "blocks" else 0
            own = sum(p.numel() for p in module.parameters())
            work = flops.get(f"{type(model).__name__}.{name}", 0)
            rows.append(row(inside[-1] if depth else name, kind, results[name], depth, own, work))
    head = 0 if model.lm_head is None else model.lm_head.weight.numel()
    work = flops["Global"] - sum(each.flops for each in rows if each.depth == 0)
    rows.append(row("logits", "scores for the next token", caught.logits, 0, head, work))
    total = sum(p.numel() for p in model.parameters())
    note = (
        f"{total:,} parameters and {flops['Global']:,} FLOPs in all; a part's number includes the "
        "parts inside it. One FLOP is one addition or multiplication in a matrix product; "
        "everything else is too little to count."
    )
    return ModelTrace(rows, _card(type(model).__name__, rows, letters, note))


def _card(title: str, rows: list[Row], letters: dict[str, int], note: str) -> Card:
    meanings = legend(chain.from_iterable(row.names for row in rows), letters)
    titles = "".join(
        f'<th style="{_HEAD}{_right(i)}">{name}</th>' for i, name in enumerate(_COLUMNS)
    )
    lines = []
    body = f'<tr style="background:none">{titles}</tr>'
    for row in rows:
        counts = [f"{n:,}" if n else "" for n in (row.parameters, row.flops)]
        label = f"{'  ' * row.depth}{row.name} ({row.kind})"
        shape = spelled(row.shape, row.names)
        lines.append(f"{label:<40} {shape:<38}{counts[0]:>12}{counts[1]:>16}".rstrip())
        kind = f"<span style='opacity:0.75'>{escape(row.kind)}</span>"
        name = f"{'    ' * row.depth}{escape(row.name)} {kind}"
        cells = (name, chips(shape), *counts)
        columns = "".join(
            f'<td style="{_CELL}{_right(i)}">{cell}</td>' for i, cell in enumerate(cells)
        )
        body += f'<tr style="background:none">{columns}</tr>'
    head = f"{_COLUMNS[0]:<40} {_COLUMNS[1]:<38}{_COLUMNS[2]:>12}{_COLUMNS[3]:>16}"
    words = "  ".join(f"{letter} {meaning}" for letter, meaning in meanings)
    style = "border-collapse:collapse;table-layout:auto;width:100%;margin:6px 0"
    table = f'<table style="{style}">{body}</table>'
    parts = [table, legend_html(meanings), paragraph(note)]
    return card(
        f"{title}, part by part",
        parts,
        "\n".join([title, "", head, *lines, "", words, unmarked(note)]),
    )


def _right(column: int) -> str:
    return ";text-align:right" if column > 1 else ""
