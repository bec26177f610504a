"""A model that learns in the browser: its loss between known levels, what it writes, and switches
that break it.
"""

import json
import math
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tinylm_lib.config import ModelConfig
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import entropies

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.theme import HEAT, INK, QUIET, SERIES
from ..live.record import live_record
from ..live.scripts import learning_script
from ..live.stories import stories_record
from .base import View, few_digits, pictured, readable

# Of the learner: two blocks, whose width it needs for a possible text, and whose speed a page has.
SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "max_seq_len": 136}
ENGINE_CONFIG = {
    **SIZES,
    "norm_eps": 1e-5,
    "rope_layout": "halves",
    "ffn": "swiglu",
    "qk_norm": False,
    "tie_embeddings": False,
}
RECORDED = Path(__file__).with_suffix(".json")
SEED = 1
_LINES = 2
_TEXTS = 4  # of the picture


def watch_learning() -> View:
    """A model that is trained from nothing in the browser, on stories without end: the loss between
    the known levels, what it writes, the attention of one head, and switches that break it.

    It needs a browser with scripts, and no kernel where a page of the site shows it. Elsewhere a
    recorded run is seen: its curve, and what it wrote.
    """
    return learning_view()


def learning_view() -> View:
    """The view, for a cell and for the page of the site."""
    shipped = load_pretrained("storyworld")
    run = recorded_run()
    levels = story_levels()
    data = {
        "model": live_record(shipped.model, shipped.tokenizer)["fingerprint"],
        "seed": SEED,
        "recorded": {name: run[name] for name in ("V", "total", "points")},
        "entropies": levels,
        "config": json.dumps(learner_config().to_dict(), sort_keys=True),
    }
    last = run["points"][-1][1]
    lowest = levels["floor"]
    says = (
        f"After {run['total'] / 1e6:.0f} million words the loss is {last:.2f} nats per word, "
        f"{last - lowest:.2f} above the floor of {lowest:.2f}."
    )
    rows = [[f"{look['tokens']:,}", f"{loss_at(run, look['tokens']):.2f}", look["text"]]
            for look in run["looks"]]  # fmt: skip
    return pictured(
        "watch_learning",
        data,
        _draw(run, levels),
        text=f"A model that learns in the page. In a recorded run: {says}",
        alt=f"A curve of the loss over the words seen, between known levels; below it, texts that "
        f"the model wrote on the way, and the attention of one head. {says}",
        caption=f"A recorded run of the learner, with seed {SEED}. {says}",
        numbers=number_table(["words seen", "loss, nats per word", "what it wrote"], rows),
        record=lambda: {"stories": stories_record(), "learning": learning_script()},
        sharpness=1.25,
    )


def learner_config() -> ModelConfig:
    """The library's config of the learner on StoryWorld."""
    return ModelConfig(vocab_size=recorded_run()["V"], tie_embeddings=False, **SIZES)


@cache
def story_levels() -> dict[str, float]:
    """What predictors of StoryWorld lose at best, in nats per token, in five digits."""
    found = entropies(load_pretrained("storyworld").tokenizer)._asdict()
    return {name: few_digits(value) for name, value in found.items()}


@cache
def recorded_run() -> dict[str, Any]:
    """A run of the learner, as tools/learning.py recorded it in a browser: V, total (tokens),
    points [tokens, loss], and looks { tokens, text, words, attention }.
    """
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def loss_at(run: dict[str, Any], tokens: int) -> float:
    """The loss of the first point of a recorded run at or after some tokens."""
    return next((loss for n, loss in run["points"] if n >= tokens), run["points"][-1][1])


def _draw(run: dict[str, Any], levels: dict[str, float]) -> Figure:
    """The curve and, below it, the texts and the attention map at the end."""
    tokens, losses = zip(*run["points"], strict=True)
    known = {"knowing nothing": math.log(run["V"]), "how frequent words are": levels["unigram"],
             "the word before": levels["bigram"], "the floor": levels["floor"]}  # fmt: skip
    with drawing(8.4, 6.8) as figure:
        grid = figure.add_gridspec(2, 2, height_ratios=[1, 0.95], width_ratios=[1.35, 1])
        ax = figure.add_subplot(grid[0, :])
        ax.axhspan(0, levels["floor"], color="#eef1f4")
        for name, value in known.items():
            ax.axhline(value, color=QUIET, linewidth=1.4, linestyle=(0, (1, 1.5)))
            place = {"ha": "right", "va": "bottom" if value > 1 else "top", "size": 12}
            ax.text(tokens[-1], value, f"{name} {value:.2f}", color=QUIET, **place)
        ax.plot(tokens, losses, color=SERIES[0], linestyle="-")
        ax.set(
            title="A model learns",
            xscale="log",
            ylim=(0, 6.4),
            xlabel="words seen",
            ylabel="nats per word",
        )
        texts = figure.add_subplot(grid[1, 0])
        texts.axis("off")
        texts.set_title("What it wrote", size=15)
        places = run["looks"][-_TEXTS:]
        for place, look in enumerate(places):
            top = 1 - place / len(places)
            texts.text(0, top, f"after {look['tokens']:,} words", size=11.5, color=QUIET, va="top")
            lines = textwrap.wrap(look["text"], 58)[:_LINES]
            texts.text(
                0, top - 0.08, "\n".join(lines), size=10.5, color=INK, va="top", parse_math=False
            )
        look = run["looks"][-1]
        image = figure.add_subplot(grid[1, 1])
        image.imshow(look["attention"], cmap=HEAT, vmin=0, vmax=1)
        names = [readable(word) for word in look["words"]]
        image.set_yticks(range(len(names)), names, size=9.5, parse_math=False)
        image.set_xticks(
            range(len(names)), names, size=9.5, rotation=70, ha="right", parse_math=False
        )
        image.set_title("One head", size=15)
        image.grid(False)
    return figure
