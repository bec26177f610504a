"""The whole model as a walk from ids to logits: what flows through each step, and what becomes of one token there."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...config import ModelConfig
from ...layers import softmax
from ...model import TransformerLM
from ..display.cards import number_table
from ..display.figures import framed
from ..display.numbers import fixed
from ..display.theme import AXIS_COLORS, LINE, QUIET, STYLE
from ..shapes.letters import legend, spelled
from ..shapes.model_steps import ModelStep, model_steps, sized, sizes_of, values
from .base import View

MOST_TOKENS, LONGEST = 12, 1024
MOST_COLUMNS, MOST_HEADS, COLUMNS_OF_A_HEAD = 24, 4, 6
LEVELS = 8  # shades of each sign
FEW = 3  # numbers of one token that are written out
ROW_INCHES = 0.27


def shape_flow(
    model_or_config: TransformerLM | ModelConfig, tokenizer: Any = None, text: str | None = None, layer: int = 0
) -> View:
    """A model as a list of steps that opens: shapes, parameters and FLOPs, and with a text what really flows there.

    layer: whose inside is shown, counted from 0. Without a text the steps are those of one text of at most 1024 tokens.
    Raises: TypeError for neither a model nor a config; ValueError for a text without a model and its tokenizer, of
    fewer than 2 or more than 12 tokens, and for a layer that the model does not have.
    """
    if not isinstance(model_or_config, TransformerLM | ModelConfig):
        raise TypeError(f"shape_flow takes a TransformerLM or a ModelConfig, not {type(model_or_config).__name__}")
    config = model_or_config if isinstance(model_or_config, ModelConfig) else model_or_config.config
    if not 0 <= layer < config.n_layers:
        raise ValueError(f"layer {layer} is none of the model's {config.n_layers}, which count from 0")
    if text is None:
        return _view(_data(config, min(config.max_seq_len, LONGEST), layer))
    if model_or_config is config or tokenizer is None:
        raise ValueError("values of a text need the model and its tokenizer: shape_flow(model, tokenizer, text)")

    def read(request: dict[str, Any]) -> dict[str, Any]:
        return _data_of(model_or_config, tokenizer, str(request["text"]), int(request["layer"]))

    return _view(read({"text": text, "layer": layer}), read)


def _data_of(model: TransformerLM, tokenizer: Any, text: str, layer: int) -> dict[str, Any]:
    encoded = tokenizer.encode(text)
    if not 2 <= len(encoded) <= min(MOST_TOKENS, model.config.max_seq_len):
        raise ValueError(f"the walk shows 2 to {MOST_TOKENS} tokens, not {len(encoded)}: take another piece of text")
    ids = torch.tensor([encoded], device=next(model.parameters()).device)
    flows = {name: x[0].float().cpu() for name, x in values(model, ids, layer).items()}
    names = [tokenizer.decode([token]).strip(" ").replace("\n", "↵") or "␣" for token in encoded]
    data = _data(model.config, len(encoded), layer)
    guesses = softmax(flows["head"], dim=-1).max(dim=-1)
    best = [tokenizer.decode([token]).strip(" ").replace("\n", "↵") for token in guesses.indices.tolist()]
    facts = _facts(encoded, names, flows["weights"][0])
    facts["head"] = [
        f"Best guess for the next: “{word}”, {100 * share:.0f} %."
        for word, share in zip(best, guesses.values.tolist(), strict=True)
    ]
    for step in data["steps"]:
        step |= {"facts": facts[step["name"]]} if step["name"] in facts else {}
        step |= _seen(flows[step["name"]]) if flows[step["name"]].ndim > 1 else {}
    return {**data, "tokens": names, "text": text}


def _data(config: ModelConfig, seq_len: int, layer: int) -> dict[str, Any]:
    steps, sizes = model_steps(config, seq_len), sizes_of(config, seq_len)
    top = [step for step in steps if step.depth == 0]
    entries = [_entry(step, sizes) for step in steps]
    return {
        "steps": entries,
        "layers": config.n_layers,
        "layer": layer,
        "legend": legend([step.axes for step in steps], sizes),
        "tokens": [],
        "seq_len": seq_len,
        "parameters": sum(step.parameters * step.times for step in top),
        "flops": sum(step.flops * step.times for step in top),
    }


def _entry(step: ModelStep, sizes: dict[str, int]) -> dict[str, Any]:
    entry = {name: getattr(step, name) for name in ("name", "title", "depth", "axes", "parameters", "flops", "times")}
    entry |= {"shape": step.shape(sizes), "says": step.says.replace("{t}", "{{t}}").replace("{fact}", "{{fact}}")}
    entry["says"] = entry["says"].format_map({letter: f"{size:,}" for letter, size in sizes.items()})
    entry |= {"stream": True} if step.on_stream else {}
    entry |= {"unread": step.unread} if step.unread else {}
    if step.weight and step.parameters:
        matrix = sized(step.weight, sizes)
        entry |= {"weight": step.weight, "matrix": matrix, "biases": step.parameters - math.prod(matrix)}
    return entry


def _facts(ids: Sequence[int], names: Sequence[str], weights: Tensor) -> dict[str, list[Any]]:
    """What can be said of each token, by step. weights (T, S): of head 0."""
    later = [len(ids) - 1 - place for place in range(len(ids))]
    unseen = [f"the {n} that come later" if n > 1 else "the one that comes later" for n in later[:-1]]
    most = weights.max(dim=-1)
    shares = [
        f"Head 0 gives {100 * share:.0f} % to {names[place]}."
        for share, place in zip(most.values.tolist(), most.indices.tolist(), strict=True)
    ]
    places = list(range(len(ids)))
    return {
        "ids": list(ids), "embed": [f"row {token}" for token in ids], "rotation.q": places, "rotation.k": places,
        "weights": shares, "masked": [*unseen, "what comes later, but nothing does"],
    }  # fmt: skip


def _seen(flow: Tensor) -> dict[str, Any]:
    """A picture of a flow (T, C) or (H, T, D), one row for each token, and each token's first numbers."""
    heads = flow[None, :, :MOST_COLUMNS] if flow.ndim == 2 else flow[:MOST_HEADS]
    if flow.ndim == 3 and flow.shape[1] != flow.shape[2]:
        heads = heads[..., :COLUMNS_OF_A_HEAD]
    top = heads.masked_fill(heads.isinf(), 0).abs().max().clamp_min(1e-9)

    def letter(x: float) -> str:
        return "." if math.isinf(x) else chr(ord("a") + LEVELS + round(LEVELS * x / top.item()))

    cells = "".join(map(letter, heads.transpose(0, 1).flatten().tolist()))
    first = [["−∞" if math.isinf(x) else fixed(x, 2) for x in row] for row in heads[0, :, :FEW].tolist()]
    return {"cells": cells, "heads": len(heads), "columns": heads.shape[-1], "first": [" ".join(row) for row in first]}


def _view(data: dict[str, Any], answer: Any = None) -> View:
    each = round(data["flops"] / data["seq_len"])
    text = (
        f"From ids to logits in {len(data['steps'])} steps: {data['parameters']:,} parameters, "
        f"{each:,} FLOPs per token in a text of {data['seq_len']:,}."
    )
    caption = (
        f"{text} The blue line is the stream; what stands on it changes it, what is set in only reads it. The block is "
        f"drawn once, there are {data['layers']}."
    )
    alt = f"Flow chart of the model from top to bottom. {text}"
    drawn = [step for step in data["steps"] if step["depth"] < 2]
    cells = (
        [step["title"], spelled(step["shape"], tuple(step["axes"].split())), *(_count(step, name) for name in COUNTED)]
        for step in drawn
    )
    table = number_table(["step", "shape of what it returns", *COUNTED], cells)
    return View("shape_flow", data, html=framed(_draw(drawn), alt, caption, table, flat=True), text=text, answer=answer)


COUNTED = ("parameters", "flops")


def _count(step: dict[str, Any], name: str) -> str:
    times = f"{step['times']} × " if step["times"] > 1 and step[name] else ""
    return f"{times}{step[name]:,}" if step[name] else ""


def _draw(rows: list[dict[str, Any]]) -> Figure:
    with style.context(["default", STYLE, {"axes.grid": False}]):
        figure = Figure(figsize=(6.4, 0.8 + ROW_INCHES * len(rows)), layout="constrained")
        ax = figure.subplots()
        ax.set(title="From ids to logits", xlim=(0, 10), ylim=(len(rows) - 0.4, -1.1))
        ax.axis("off")
        ax.plot([0.3, 0.3], [1, len(rows) - 1.5], color=AXIS_COLORS["C"].light, linewidth=4, linestyle="-", zorder=1)
        ax.text(5.2, -0.8, "shape", color=QUIET, size=11, va="center")
        ax.text(9.9, -0.8, "parameters", color=QUIET, size=11, va="center", ha="right")
        for y, step in enumerate(rows):
            _draw_row(ax, y, step)
    return figure


def _draw_row(ax: Axes, y: float, step: dict[str, Any]) -> None:
    if step.get("stream"):
        ax.plot(0.3, y, "o", color=AXIS_COLORS["C"].light, markersize=10, zorder=2)
    times = f"  × {step['times']}" if step["depth"] == 0 and step["times"] > 1 else ""
    ax.text(0.75 + 0.55 * step["depth"], y, step["title"] + times, va="center", size=12)
    shape = f"({', '.join(step['axes'].split())})"
    for letter in {*shape}:
        alone = "".join(each if each == letter else " " for each in shape)
        shade = AXIS_COLORS[letter].light if letter in AXIS_COLORS else QUIET
        ax.text(5.2, y, alone, va="center", size=11.5, family="DejaVu Sans Mono", color=shade)
    ax.text(9.9, y, f"{step['parameters']:,}" if step["parameters"] else "", va="center", ha="right", size=11.5)
    ax.plot([0.7, 10], [y + 0.5, y + 0.5], color=LINE, linewidth=0.6, linestyle="-", zorder=0)
