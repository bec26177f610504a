"""A training run, watched: the loss on its way down between known levels, with buttons to pause and
to stop it.
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from tinylm_lib.model import TransformerLM
from tinylm_lib.sampling import generate
from tinylm_lib.storyworld.stories import Entropies
from tinylm_lib.training.loop import Step

from ..display.cards import number_table
from ..display.figures import drawing, framed, spread
from ..display.numbers import fixed, marked, rounded
from ..display.theme import INK, QUIET, SERIES
from .base import few_digits
from .run import Watched, drawable, watch

_MOST_CHARACTERS = 160
# a sample is written before the first update and after 1/64, 1/16 and 1/4 of them and all
_QUARTERINGS = 4
_KNOWING = {
    "unigram": "how frequent tokens are",
    "bigram": "the token before",
    "floor": "all there is to know",
}


class Run(Watched):
    """A training run: its losses, the learning rate's fraction of its peak, gradient norms, and
    what the model writes.

    write: returns a text of the model. expected: the range of the smoothed loss at some updates.
    """

    name = "A training run"
    columns = ("loss", "share", "norm")
    too_few = (
        "{came} updates came, the last of them update {last}; steps can be watched once: make "
        "model, batches and steps again"
    )

    def __init__(
        self,
        total_steps: int,
        levels: Mapping[str, float],
        expected: Mapping[int, tuple[float, float]] | None = None,
        write: Callable[[], str] = str,
    ):
        super().__init__(
            total_steps, (math.ceil(total_steps / 4**n) for n in range(_QUARTERINGS)), expected
        )
        self.levels = dict(levels)
        self.write = write

    def note(self, step: Step) -> None:
        """Add an update.

        Raises: ValueError for a loss or a gradient norm that is not finite; the curves keep what
        was before it.
        """
        loss = float(step.loss)
        norm = float(step.grad_norm)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ValueError(
                f"update {step.step} has loss {loss} and gradient norm {norm}: lower matrix_lr and "
                "embedding_lr, or raise warmup_steps, and begin again with a new model"
            )
        self.add(step.step, (loss, step.lr_share, norm))

    def sample(self, step: Step | None) -> None:
        """Let the model write, after the updates so far."""
        self.samples.append((self.step, self.write()))

    def data(self) -> dict[str, Any]:
        """What the view draws, in five digits."""
        return {
            **super().data(),
            "levels": [[name, few_digits(value)] for name, value in self.levels.items()],
        }

    def says(self) -> str:
        """How far the run came, in plain words."""
        if not self.points:
            return f"No update of {self.total} was made."
        passed = [name for name, level in self.levels.items() if self.smooth(self.step) < level]
        than = (
            f"lower than knowing {min(passed, key=self.levels.get)}"
            if passed
            else "no lower than knowing nothing"
        )
        return f"After {self.step} of {self.total} updates the smoothed loss is {than}."

    def html(self) -> str:
        """The curves between the levels, and their numbers."""
        return _figure_html(self)


async def training_view(
    steps: Iterator[Step],
    model: TransformerLM,
    tokenizer: Any,
    *,
    total_steps: int,
    levels: Entropies | None = None,
    expected: Mapping[int, tuple[float, float]] | None = None,
    prompt: str = "\n",
    sample_tokens: int = 24,
) -> None:
    """Run the updates and show the loss, the learning rate, the gradient norm and texts that the
    model writes; with a constant rate only the loss and the texts.

    In a notebook: `await training_view(train(...), model, tokenizer, total_steps=...)`. The cell
    runs to the end of the training. Where somebody can watch, in JupyterLab, the view is there from
    the beginning, with buttons to pause, resume and stop (heard between updates, with ipykernel 7);
    elsewhere it is displayed once, finished.

    steps: what `train` returned; it is not changed by being watched. levels: what predictors of
    this language lose at best, from `storyworld.entropies`; they are drawn next to ln V. expected:
    at some updates, the lowest and highest smoothed loss that this recipe reaches on any machine.
    prompt: how samples begin.
    Raises: ValueError for less than 1 step, an empty prompt, a loss that is not finite and one that
    was not expected, and where an update that is expected did not come; the view keeps the curves.
    """
    if not (ids := tokenizer.encode(prompt)):
        raise ValueError("prompt is empty; a model continues at least one token")
    known = {_KNOWING[name]: value for name, value in (levels._asdict() if levels else {}).items()}
    levels_of = {"nothing": math.log(model.config.vocab_size), **known}
    run = Run(
        total_steps, levels_of, expected, lambda: _sample(model, tokenizer, ids, sample_tokens)
    )
    await watch(run, steps, "training")


def _sample(model: TransformerLM, tokenizer: Any, ids: Sequence[int], n_tokens: int) -> str:
    """What the model writes after a prompt: always with the same draws, and without touching those
    of the training.
    """
    device = next(model.parameters()).device
    prompt = torch.tensor([list(ids)], device=device)
    new = generate(
        model, prompt, n_tokens, temperature=0.8, generator=torch.Generator(device).manual_seed(1)
    )
    return drawable(tokenizer.decode(new[0].tolist()).strip()[:_MOST_CHARACTERS])


def _figure_html(run: Run) -> str:
    share = {int(step): share for step, _, share, _ in run.points}
    picked = [s for s in run.expected if s in share] or [list(share)[i] for i in spread(len(share))]
    rows = [[str(step), _loss(run, step), fixed(share[step], 2)] for step in picked]
    rows += [[f"knowing {name}", rounded(value, 2), ""] for name, value in run.levels.items()]
    heads = ["update", "smoothed loss, nats per token", "learning rate, fraction of its peak"]
    if len(set(share.values())) == 1:
        heads = heads[:2]
        rows = [row[:2] for row in rows]
    table = number_table(heads, rows)
    alt = (
        "Line chart of the loss in nats per token over the updates, with horizontal lines to "
        f"compare. {run.says()}"
    )
    lines = (
        "Light: the loss; bold: smoothed; dotted: the loss of a predictor that knows only so much."
    )
    return framed(_draw(run), alt, f"{lines} {run.says()} {run.trouble}".strip(), table, flat=True)


def _loss(run: Run, step: int) -> str:
    """A smoothed loss in two digits, or in three next to the range that it should lie in; both are
    marked, because processors round differently.
    """
    if step not in run.expected:
        return marked(rounded(run.smooth(step), 2))
    return marked(rounded(run.smooth(step), 3)) + run.range_at(step)


def _draw(run: Run) -> Figure:
    curves = run.curves()
    steps = curves["steps"]
    falls = len(set(curves["share"])) > 1
    with drawing(8.8, 5.6 if falls else 4.6) as figure:
        grid = figure.add_gridspec(3, 2, height_ratios=[4.4, 1.6 if falls else 0.01, 0.5])
        top = figure.add_subplot(grid[0, :])
        top.plot(steps, curves["loss"], color=SERIES[0], alpha=0.35, linewidth=1.2, linestyle="-")
        top.plot(steps, curves["smooth"], color=SERIES[0], linestyle="-")
        for name, value in run.levels.items():
            top.axhline(value, color=QUIET, linewidth=1.6, linestyle=(0, (1, 1.5)))
            beside = {"va": "center", "size": 12, "transform": top.get_yaxis_transform()}
            top.text(1.01, value, f"{name} {rounded(value, 2)}", color=QUIET, **beside)
        top.set(title="Loss while training", ylabel="nats per token", xlim=(0, run.total))
        if not falls:
            top.set_xlabel("update")
        small = (("share", "learning rate, fraction"), ("norm", "gradient norm"))
        for i, (name, title) in enumerate(small if falls else ()):
            ax = figure.add_subplot(grid[1, i])
            ax.plot(steps, curves[name], color=SERIES[i + 1], linestyle="-")
            ax.set_title(title, size=14, weight="normal", pad=6)
            ax.set(xlim=(0, run.total), ylim=(0, None), xlabel="update")
            ax.tick_params(labelsize=12)
        told = figure.add_subplot(grid[2, :])
        told.axis("off")
        last = textwrap.shorten(run.samples[-1][1], 70, placeholder=" ...") if run.samples else ""
        told.text(0, 0.5, f"It writes: {last}".replace("$", r"\$"), size=13, color=INK, va="center")
    return figure
