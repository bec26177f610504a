"""The whole model as a walk from ids to logits: what flows through each step, and what becomes of
one token there.
"""

import math
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from tinylm_lib.config import ModelConfig
from tinylm_lib.layers import softmax
from tinylm_lib.model import TransformerLM

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.numbers import fixed
from ..display.theme import AXIS_COLORS, LINE, QUIET
from ..shapes.letters import legend, spelled
from ..shapes.model_steps import ModelStep, model_steps, sized, sizes_of, values
from .base import View, check_index, ids_of, leading_blanks, page_model, pictured, readable_tokens
from .typed import typed_text

_MOST_TOKENS = 12
_LONGEST = 1024
MOST_COLUMNS = 24
_MOST_HEADS = 4
_COLUMNS_OF_A_HEAD = 6
LEVELS = 8  # shades of each sign
_FEW = 3  # numbers of one token that are written out
_COUNTED = ("parameters", "flops")


def shape_flow(
    model_or_config: TransformerLM | ModelConfig,
    tokenizer: Any = None,
    text: str | None = None,
    layer: int = 0,
) -> View:
    """A model as a list of steps that opens: shapes, parameters and FLOPs, and with a text what
    really flows there.

    layer: whose inside is shown, counted from 0. Without a text the steps are those of one text of
    at most 1024 tokens.
    Raises: TypeError for neither a model nor a config; ValueError for a text without a model and
    its tokenizer, of fewer than 2 or more than 12 tokens, and for a layer that the model does not
    have.
    """
    if not isinstance(model_or_config, TransformerLM | ModelConfig):
        raise TypeError(
            "shape_flow takes a TransformerLM or a ModelConfig, not "
            f"{type(model_or_config).__name__}"
        )
    config = model_or_config if isinstance(model_or_config, ModelConfig) else model_or_config.config
    check_index("layer", layer, config.n_layers)
    if text is None:
        return _view(_data(config, min(config.max_seq_len, _LONGEST), layer))
    if model_or_config is config or tokenizer is None:
        raise ValueError(
            "values of a text need the model and its tokenizer: shape_flow(model, tokenizer, text)"
        )

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked = (
            typed_text(tokenizer, request["typed"], lead)
            if "typed" in request
            else str(request["text"])
        )
        return _data_of(model_or_config, tokenizer, asked, int(request["layer"]))

    lead = leading_blanks(text)
    data = answer({"text": text, "layer": layer})
    return _view({**data, **page_model(model_or_config, tokenizer)}, answer)


def _data_of(model: TransformerLM, tokenizer: Any, text: str, layer: int) -> dict[str, Any]:
    ids = ids_of(tokenizer, text, 2, min(_MOST_TOKENS, model.config.max_seq_len))
    found = values(model, ids[None].to(next(model.parameters()).device), layer)
    flows = {name: x[0].float().cpu() for name, x in found.items()}
    names = readable_tokens(tokenizer, ids.tolist())
    guesses = softmax(flows["head"], dim=-1).max(dim=-1)
    best = readable_tokens(tokenizer, guesses.indices.tolist())
    facts = _facts(ids.tolist(), names, flows["weights"][0])
    facts["head"] = [
        f"Best guess for the next: “{word}”, {100 * share:.0f} %."
        for word, share in zip(best, guesses.values.tolist(), strict=True)
    ]
    data = _data(model.config, len(ids), layer)
    for step in data["steps"]:
        step |= {"facts": facts[step["name"]]} if step["name"] in facts else {}
        step |= _seen(flows[step["name"]]) if flows[step["name"]].ndim > 1 else {}
    return {**data, "tokens": names, "text": text}


def _data(config: ModelConfig, seq_len: int, layer: int) -> dict[str, Any]:
    steps = model_steps(config, seq_len)
    sizes = sizes_of(config, seq_len)
    found = legend([step.axes for step in steps], sizes)
    sums = {
        name: sum(getattr(step, name) * step.times for step in steps if step.depth == 0)
        for name in _COUNTED
    }
    entries = [_entry(step, sizes) for step in steps]
    data = {"steps": entries, "layers": config.n_layers, "layer": layer, "legend": found}
    return {**data, "tokens": [], "seq_len": seq_len, **sums}


def _entry(step: ModelStep, sizes: dict[str, int]) -> dict[str, Any]:
    entry = {
        name: getattr(step, name)
        for name in ("name", "title", "depth", "axes", "parameters", "flops", "times")
    }
    entry |= {
        "shape": step.shape(sizes),
        "says": step.says.replace("{t}", "{{t}}").replace("{fact}", "{{fact}}"),
    }
    entry["says"] = entry["says"].format_map(
        {letter: f"{size:,}" for letter, size in sizes.items()}
    )
    entry |= {"stream": True} if step.on_stream else {}
    entry |= {"unread": step.unread} if step.unread else {}
    if step.weight and step.parameters:
        matrix = sized(step.weight, sizes)
        entry |= {
            "weight": step.weight,
            "matrix": matrix,
            "biases": step.parameters - math.prod(matrix),
        }
    return entry


def _facts(ids: list[int], names: list[str], weights: Tensor) -> dict[str, list[Any]]:
    """What can be said of each token, by step. weights (T, S): of head 0."""
    T = len(ids)
    most = weights.max(dim=-1)
    unseen = [f"the {n} that come later" for n in range(T - 1, 1, -1)]
    shares = [
        f"Head 0 gives {100 * share:.0f} % to {names[place]}."
        for share, place in zip(most.values.tolist(), most.indices.tolist(), strict=True)
    ]
    return {
        "ids": ids,
        "embed": [f"row {token}" for token in ids],
        "rotation.q": [*range(T)],
        "rotation.k": [*range(T)],
        "weights": shares,
        "masked": [*unseen, "the one that comes later", "what comes later, but nothing does"],
    }


def _seen(flow: Tensor) -> dict[str, Any]:
    """A picture of a flow (T, C) or (H, T, D), one row for each token, and each token's first
    numbers.
    """
    heads = flow[None, :, :MOST_COLUMNS] if flow.ndim == 2 else flow[:_MOST_HEADS]
    if flow.ndim == 3 and flow.shape[1] != flow.shape[2]:
        heads = heads[..., :_COLUMNS_OF_A_HEAD]
    top = heads.masked_fill(heads.isinf(), 0).abs().max().clamp_min(1e-9)

    def letter(x: float) -> str:
        return "." if math.isinf(x) else chr(ord("a") + LEVELS + round(LEVELS * x / top.item()))

    cells = "".join(map(letter, heads.transpose(0, 1).flatten().tolist()))
    first = [
        " ".join("−∞" if math.isinf(x) else fixed(x, 2) for x in row)
        for row in heads[0, :, :_FEW].tolist()
    ]
    return {"cells": cells, "heads": len(heads), "columns": heads.shape[-1], "first": first}


def _view(data: dict[str, Any], answer: Any = None) -> View:
    text = (
        f"From ids to logits in {len(data['steps'])} steps: {data['parameters']:,} parameters, "
        f"{round(data['flops'] / data['seq_len']):,} FLOPs per token in a text of "
        f"{data['seq_len']:,}."
    )
    drawn = [step for step in data["steps"] if step["depth"] < 2]
    rows = (
        [
            step["title"],
            spelled(step["shape"], tuple(step["axes"].split())),
            *(_count(step, name) for name in _COUNTED),
        ]
        for step in drawn
    )
    return pictured(
        "shape_flow",
        data,
        _draw(drawn),
        text=text,
        alt=f"Flow chart of the model from top to bottom. {text}",
        caption=(
            f"{text} The blue line is the stream; what is on it changes it, what is set in only "
            f"reads it. The block is drawn once, there are {data['layers']}."
        ),
        numbers=number_table(["step", "shape of what it returns", *_COUNTED], rows),
        answer=answer,
    )


def _count(step: dict[str, Any], name: str) -> str:
    times = f"{step['times']} × " if step["times"] > 1 else ""
    return f"{times}{step[name]:,}" if step[name] else ""


def _draw(steps: list[dict[str, Any]]) -> Figure:
    blue = {"color": AXIS_COLORS["C"].light}
    with drawing(6.4, 0.8 + 0.27 * len(steps), axes_grid=False) as figure:
        ax = figure.subplots()
        ax.set(title="From ids to logits", xlim=(0, 10), ylim=(len(steps) - 0.4, -1.1))
        ax.axis("off")
        ax.plot([0.3, 0.3], [1, len(steps) - 1.5], **blue, linewidth=4, linestyle="-", zorder=1)
        ax.text(5.2, -0.8, "shape", color=QUIET, size=11, va="center")
        ax.text(9.9, -0.8, "parameters", color=QUIET, size=11, va="center", ha="right")
        for y, step in enumerate(steps):
            if step.get("stream"):
                ax.plot(0.3, y, "o", **blue, markersize=10, zorder=2)
            times = f"  × {step['times']}" if step["depth"] == 0 and step["times"] > 1 else ""
            ax.text(0.75 + 0.55 * step["depth"], y, step["title"] + times, va="center", size=12)
            shape = f"({', '.join(step['axes'].split())})"
            for letter in {*shape}:
                alone = "".join(each if each == letter else " " for each in shape)
                shade = AXIS_COLORS[letter].light if letter in AXIS_COLORS else QUIET
                ax.text(
                    5.2, y, alone, va="center", size=11.5, family="DejaVu Sans Mono", color=shade
                )
            count = f"{step['parameters']:,}" if step["parameters"] else ""
            ax.text(9.9, y, count, va="center", ha="right", size=11.5)
            ax.plot(
                [0.7, 10], [y + 0.5, y + 0.5], color=LINE, linewidth=0.6, linestyle="-", zorder=0
            )
    return figure
