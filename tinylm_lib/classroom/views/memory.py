"""Where the parameters of a model are, and how many bytes training and inference take, as areas and bars."""

from collections.abc import Mapping
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

from ...config import ModelConfig
from ...cost import kv_cache_bytes, training_bytes
from ...presets import preset
from ..display.cards import number_table
from ..display.figures import framed
from ..display.theme import QUIET, SERIES, STYLE
from ..shapes.model_steps import model_steps
from .base import View

GROUPS = {
    "embedding": ("embed", "position"),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "feed-forward": ("gate_proj", "up_proj", "down_proj"),
    "norms": ("attn_norm", "ffn_norm", "q_norm", "k_norm", "final_norm"),
    "head": ("head",),
}
TITLES = {
    "embed": "token table", "position": "positions", "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o",
    "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "attn_norm": "before attention",
    "ffn_norm": "before the feed-forward", "q_norm": "of q", "k_norm": "of k", "final_norm": "final", "head": "head",
}  # fmt: skip
LOOKS = {
    "embedding": (SERIES[2], ""), "attention": (SERIES[0], "//"), "feed-forward": (SERIES[1], ""),
    "norms": (QUIET, ".."), "head": (SERIES[3], "\\\\"),
}  # fmt: skip
PUBLISHED = (("gpt2", "small"), ("gpt2", "xl"), ("llama", "3.2-1b"), ("llama", "3-8b"))
MOST_MODELS = 8
# Bytes of memory. Source: NVIDIA Ada GPU Architecture whitepaper (2022), NVIDIA H100 Tensor Core GPU datasheet (2023).
DEVICES = (("RTX 4090", 24 * 10**9), ("H100", 80 * 10**9))
SOURCE = (
    "Dashed, where the bars reach so far: an RTX 4090 (24 GB) and an H100 (80 GB). Source: NVIDIA's Ada GPU "
    "Architecture whitepaper (2022) and H100 datasheet (2023)."
)


def memory_view(configs: Mapping[str, ModelConfig] | None = None) -> View:
    """The parameters of models as areas, and their bytes: weights, gradients, moments; weights and the KV cache.

    configs: by the name to show, at most 4; they stand before four published models.
    Raises: ValueError for more than 4, TypeError for what is no ModelConfig.
    """
    chosen = dict(configs or {"modern": preset("modern")})
    if len(chosen) + len(PUBLISHED) > MOST_MODELS:
        raise ValueError(f"the view holds {MOST_MODELS - len(PUBLISHED)} models of your own, not {len(chosen)}")
    for name, config in chosen.items():
        if not isinstance(config, ModelConfig):
            raise TypeError(f"{name!r} is a {type(config).__name__}: give its ModelConfig, such as model.config")
    chosen |= {f"{family} {size}": preset(family, size) for family, size in PUBLISHED}
    models = [_entry(name, config) for name, config in chosen.items()]
    data = {"models": models, "devices": [{"name": name, "bytes": size} for name, size in DEVICES], "source": SOURCE}
    largest, config = models[-1], list(chosen.values())[-1]
    said = (
        f"{name}: {model['total']:,} parameters, {100 * _share(model, 'feed-forward'):.0f} % of them in the feed-"
        f"forward, {100 * _share(model, 'attention'):.0f} % in attention"
        for name, model in ((model["name"], model) for model in (models[0], largest))
    )
    cache = kv_cache_bytes(config, 1, config.max_seq_len, 2)
    text = (
        f"Where the parameters are. {'; '.join(said)}. Training {largest['name']} takes "
        f"{training_bytes(config) / 1e9:.0f} GB before the first text; the KV cache of one text of "
        f"{config.max_seq_len:,} tokens takes {cache / 1e9:.2f} GB in bf16."
    )
    return View("memory", data, html=_figure_html(models, text), text=text)


def parameter_parts(config: ModelConfig) -> dict[str, dict[str, int]]:
    """The parameters of all layers together, by group and part; what a model does not have is left out."""
    found = {step.name: step.parameters * step.times for step in model_steps(config, 1)}
    groups = {group: {part: found[part] for part in parts if found.get(part)} for group, parts in GROUPS.items()}
    return {group: parts for group, parts in groups.items() if parts}


def _entry(name: str, config: ModelConfig) -> dict[str, Any]:
    groups = [
        {"name": group, "parts": [{"name": part, "title": TITLES[part], "n": n} for part, n in parts.items()]}
        for group, parts in parameter_parts(config).items()
    ]
    total = sum(part["n"] for group in groups for part in group["parts"])
    sizes = {"layers": config.n_layers, "kv_heads": config.n_kv_heads, "d_head": config.d_head}
    return {"name": name, "groups": groups, "total": total, "longest": config.max_seq_len, **sizes}


def _group_counts(model: dict[str, Any]) -> dict[str, int]:
    counts = {group["name"]: sum(part["n"] for part in group["parts"]) for group in model["groups"]}
    return {group: counts.get(group, 0) for group in GROUPS}


def _share(model: dict[str, Any], group: str) -> float:
    return _group_counts(model)[group] / model["total"]


def _figure_html(models: list[dict[str, Any]], text: str) -> str:
    rows = [
        [model["name"], f"{model['total']:,}", *(f"{n:,}" for n in _group_counts(model).values()),
         f"{16 * model['total'] / 1e9:,.3f}"]
        for model in models
    ]  # fmt: skip
    table = number_table(["model", "parameters", *GROUPS, "GB to train"], rows)
    alt = f"Stacked bars: the share of each part in the parameters of {len(models)} models. {text}"
    caption = f"{text} A bar is one model's parameters; a head that is the embedding itself has none of its own."
    return framed(_draw(models), alt, caption, f'<div style="overflow-x:auto">{table}</div>', flat=True)


def _draw(models: list[dict[str, Any]]) -> Figure:
    with style.context(
        ["default", STYLE, {"axes.grid": False, "font.size": 12, "axes.titlesize": 16, "axes.labelsize": 13}]
    ):
        figure = Figure(figsize=(7.0, 1.5 + 0.42 * len(models)), layout="constrained")
        ax = figure.subplots()
        ax.set(title="Where the parameters are", xlabel="share of all parameters (%)", xlim=(0, 100))
        left = [0.0] * len(models)
        for group, (color, hatch) in LOOKS.items():
            shares = [100 * _share(model, group) for model in models]
            ax.barh(range(len(models)), shares, left=left, color=color, hatch=hatch, edgecolor="white", label=group)
            left = [a + b for a, b in zip(left, shares, strict=True)]
        ax.set_yticks(range(len(models)), [model["name"] for model in models])
        ax.invert_yaxis()
        figure.legend(loc="outside lower center", ncols=len(GROUPS), frameon=False, fontsize=11)
    return figure
