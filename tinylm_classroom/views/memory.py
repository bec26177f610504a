"""Where the parameters of a model are, and how many bytes training and inference take, as areas and
bars.
"""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from tinylm_lib.config import ModelConfig
from tinylm_lib.cost import kv_cache_bytes, training_bytes
from tinylm_lib.presets import preset

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.theme import PART_COLORS
from ..shapes.model_steps import model_steps
from .base import View, pictured

# Of each group its hatching, and its parts: the step of the walk and what the view calls it.
GROUPS = {
    "embedding": ("", {"embed": "token table", "position": "positions"}),
    "attention": ("//", {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"}),
    "feed-forward": ("", {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}),
    "norms": ("..", {
        "attn_norm": "before attention", "ffn_norm": "before the feed-forward",
        "q_norm": "of q", "k_norm": "of k", "final_norm": "final",
    }),
    "head": ("\\\\", {"head": "head"}),
}  # fmt: skip
PUBLISHED = (("gpt2", "small"), ("gpt2", "xl"), ("llama", "3.2-1b"), ("llama", "3-8b"))
MOST_MODELS = 8
# Bytes of memory. Source: NVIDIA Ada GPU Architecture whitepaper (2022), NVIDIA H100 Tensor Core
# GPU datasheet (2023).
_DEVICES = [{"name": "RTX 4090", "bytes": 24 * 10**9}, {"name": "H100", "bytes": 80 * 10**9}]
_SOURCE = (
    "Dashed, where the bars reach so far: an RTX 4090 (24 GB) and an H100 (80 GB). Source: "
    "NVIDIA's Ada GPU Architecture whitepaper (2022) and H100 datasheet (2023)."
)


def memory_view(configs: Mapping[str, ModelConfig] | None = None) -> View:
    """The parameters of models as areas, and their bytes: weights, gradients, moments; weights and
    the KV cache.

    configs: by the name to show, at most 4; they come before four published models.
    Raises: ValueError for more than 4, TypeError for anything that is not a ModelConfig.
    """
    chosen = dict(configs or {"modern": preset("modern")})
    if len(chosen) + len(PUBLISHED) > MOST_MODELS:
        raise ValueError(
            f"the view holds {MOST_MODELS - len(PUBLISHED)} models of your own, not {len(chosen)}"
        )
    for name, config in chosen.items():
        if not isinstance(config, ModelConfig):
            raise TypeError(
                f"{name!r} is a {type(config).__name__}: give its ModelConfig, such as model.config"
            )
    chosen |= {f"{family} {size}": preset(family, size) for family, size in PUBLISHED}
    models = [_entry(name, config) for name, config in chosen.items()]
    largest = models[-1]
    config = list(chosen.values())[-1]
    parts = [
        (
            f"{model['name']}: {model['total']:,} parameters, "
            f"{_percent(model, 'feed-forward'):.0f} % of them in the feed-forward, "
            f"{_percent(model, 'attention'):.0f} % in attention"
        )
        for model in (models[0], largest)
    ]
    cache = kv_cache_bytes(config, 1, config.max_seq_len, 2)
    says = (
        f"Where the parameters are. {'; '.join(parts)}. Training {largest['name']} takes "
        f"{training_bytes(config) / 1e9:.0f} GB before the first text; the KV cache of one text of "
        f"{config.max_seq_len:,} tokens takes {cache / 1e9:.2f} GB in bf16."
    )
    rows = [
        [
            model["name"],
            *(f"{n:,}" for n in (model["total"], *map(_count(model).get, GROUPS))),
            f"{16 * model['total'] / 1e9:,.3f}",
        ]
        for model in models
    ]
    return pictured(
        "memory",
        {"models": models, "devices": _DEVICES, "source": _SOURCE},
        _draw(models),
        text=says,
        alt=(
            f"Stacked bars: how the parameters of {len(models)} models are divided among their "
            f"parts. {says}"
        ),
        caption=(
            f"{says} A bar is one model's parameters; a head that is the embedding itself has none "
            "of its own."
        ),
        numbers=number_table(["model", "parameters", *GROUPS, "GB to train"], rows),
    )


def parameter_parts(config: ModelConfig) -> dict[str, dict[str, int]]:
    """The parameters of all layers together, by group and part; what a model does not have is left
    out.
    """
    found = {step.name: step.parameters * step.times for step in model_steps(config, 1)}
    groups = {
        group: {part: found[part] for part in parts if found.get(part)}
        for group, (_, parts) in GROUPS.items()
    }
    return {group: parts for group, parts in groups.items() if parts}


def _entry(name: str, config: ModelConfig) -> dict[str, Any]:
    found = parameter_parts(config)
    groups = [
        {
            "name": group,
            "parts": [
                {"name": part, "title": GROUPS[group][1][part], "n": n} for part, n in parts.items()
            ],
        }
        for group, parts in found.items()
    ]
    total = sum(sum(parts.values()) for parts in found.values())
    sizes = {"layers": config.n_layers, "kv_heads": config.n_kv_heads, "d_head": config.d_head}
    return {"name": name, "groups": groups, "total": total, "longest": config.max_seq_len, **sizes}


def _count(model: dict[str, Any]) -> dict[str, int]:
    """The parameters of each group, 0 where the model has none."""
    counts = {group["name"]: sum(part["n"] for part in group["parts"]) for group in model["groups"]}
    return dict.fromkeys(GROUPS, 0) | counts


def _percent(model: dict[str, Any], group: str) -> float:
    return 100 * _count(model)[group] / model["total"]


def _draw(models: list[dict[str, Any]]) -> Figure:
    sizes = {"font_size": 12, "axes_titlesize": 16, "axes_labelsize": 13}
    with drawing(7.0, 1.5 + 0.42 * len(models), axes_grid=False, **sizes) as figure:
        ax = figure.subplots()
        ax.set(title="Where the parameters are", xlabel="% of all parameters", xlim=(0, 100))
        left = [0.0] * len(models)
        places = range(len(models))
        for group, (hatch, _) in GROUPS.items():
            shares = [_percent(model, group) for model in models]
            ax.barh(
                places,
                shares,
                left=left,
                color=PART_COLORS[group].light,
                hatch=hatch,
                edgecolor="white",
                label=group,
            )
            left = [a + b for a, b in zip(left, shares, strict=True)]
        ax.set_yticks(places, [model["name"] for model in models])
        ax.invert_yaxis()
        figure.legend(loc="outside lower center", ncols=len(GROUPS), frameon=False, fontsize=11)
    return figure
