"""A training run, watched: the loss on its way down between known levels, with buttons to pause and to stop it."""

import asyncio
import math
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from IPython.display import display
from matplotlib.figure import Figure

from ...model import TransformerLM
from ...sampling import generate
from ...storyworld.stories import Entropies
from ...training.loop import Step
from ..display.cards import number_table
from ..display.figures import drawing, framed, spread
from ..display.numbers import fixed, learned, rounded
from ..display.theme import INK, QUIET, SERIES
from .base import View, few_digits

_MOST_POINTS, _MOST_CHARACTERS = 300, 160
_QUARTERINGS = 4  # a sample is written before the first update and after 1/64, 1/16 and 1/4 of them and all
_AROUND = 10  # the smooth line is the mean loss from i - i / _AROUND to i + i / _AROUND, and one update on each side
_PUSHES = 60  # how often a run is drawn while it lasts
_TURNS = 8  # a click passes through several turns of the kernel's event loop before it is heard
_PAUSE_SECONDS = 0.05
_KNOWING = {"unigram": "how frequent tokens are", "bigram": "the token before", "floor": "all there is to know"}
RUNNING, PAUSED, STOPPED, FINISHED, FAILED = "running", "paused", "stopped", "finished", "failed"


class Run:
    """What is known of a run so far: curves of at most 300 points, samples, and what the reader wants of it."""

    def __init__(
        self, total_steps: int, levels: Mapping[str, float], expected: Mapping[int, tuple[float, float]] | None = None
    ):
        self.total, self.levels, self.state, self.trouble = total_steps, dict(levels), RUNNING, ""
        self.expected = dict(expected or {})  # the range of the smoothed loss at some updates
        self.width = math.ceil(total_steps / _MOST_POINTS)
        self.points: list[list[float]] = []  # each: last update, loss, share, gradient norm
        self.samples: list[tuple[int, str]] = []
        self.pending: list[list[float]] = []
        self.sums, self.step = [0.0], 0  # of the losses so far

    def note(self, step: Step) -> None:
        """Add an update; a point is the mean of `width` updates.

        Raises: ValueError for a loss or a gradient norm that is not finite; the curves keep what was before it.
        """
        loss, norm = float(step.loss), float(step.grad_norm)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ValueError(
                f"update {step.step} has loss {loss} and gradient norm {norm}: lower matrix_lr and embedding_lr, or "
                f"raise warmup_steps, and begin again with a new model"
            )
        self.sums.append(self.sums[-1] + loss)
        self.step = step.step
        self.pending.append([loss, step.lr_share, norm])
        if step.step % self.width == 0 or step.step == self.total:
            self.close_point()

    def close_point(self) -> None:
        """Make a point of the updates that are in none yet."""
        if self.pending:
            means = (sum(column) / len(column) for column in zip(*self.pending, strict=True))
            self.points.append([self.step, *means])
            self.pending = []

    def smooth(self, step: int) -> float:
        """The mean loss around an update that was made, as far as there are updates on either side."""
        i, last = len(self.sums) - 1 - (self.step - step), len(self.sums) - 1
        reach = max(1, i // _AROUND)
        low, high = max(0, i - 1 - reach), min(last, i + reach)
        return (self.sums[high] - self.sums[low]) / (high - low)

    def compare_expected(self) -> None:
        """Raise ValueError where the smoothed loss is not in its range, or the update did not come."""
        n_updates = len(self.sums) - 1
        for step, limits in self.expected.items():
            if not self.step - n_updates < step <= self.step:
                raise ValueError(
                    f"expected names update {step}, but {n_updates} updates came, the last of them update {self.step}; "
                    f"steps can be watched once: make model, batches and steps again, and check total_steps"
                )
            learned(self.smooth(step), *limits)

    def curves(self) -> dict[str, list[float]]:
        """The points by what they are points of."""
        names = ("steps", "loss", "share", "norm")
        found = {name: [point[i] for point in self.points] for i, name in enumerate(names)}
        return {**found, "smooth": [self.smooth(step) for step in found["steps"]]}

    def hear(self, request: dict[str, Any]) -> dict[str, Any]:
        """Follow a button: pause, resume or stop. Raises ValueError for anything else."""
        wish = {"pause": PAUSED, "resume": RUNNING, "stop": STOPPED}.get(request.get("do"))
        if wish is None:
            raise ValueError(f"{request} is not something that a run can do: pause, resume or stop")
        if self.state in (RUNNING, PAUSED):
            self.state = wish
        return {"state": self.state, "step": self.step}

    def data(self) -> dict[str, Any]:
        """What the view draws, in five digits."""
        curves = self.curves()
        return {
            **{name: few_digits(column) for name, column in curves.items()}, "steps": curves["steps"],
            "total": self.total, "step": self.step, "state": self.state, "error": self.trouble,
            "levels": [[name, few_digits(value)] for name, value in self.levels.items()],
            "samples": [list(sample) for sample in self.samples],
        }  # fmt: skip

    def says(self) -> str:
        """How far the run came, in plain words."""
        if not self.points:
            return f"No update of {self.total} was made."
        passed = [name for name, level in self.levels.items() if self.smooth(self.step) < level]
        than = f"lower than knowing {min(passed, key=self.levels.get)}" if passed else "no lower than knowing nothing"
        return f"After {self.step} of {self.total} updates the smoothed loss is {than}."


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
    """Run the updates and show the loss, the learning rate, the gradient norm and texts that the model writes.

    In a notebook: `await training_view(train(...), model, tokenizer, total_steps=...)`. The cell runs to the end of the
    training. Where somebody can watch, in JupyterLab, the view is there from the beginning, with buttons to pause,
    resume and stop (heard between updates, with ipykernel 7); elsewhere it is displayed once, finished.

    steps: what `train` returned; it is not changed by being watched. levels: what predictors of this language lose at
    best, from `storyworld.entropies`; they are drawn next to ln V. expected: at some updates, the lowest and highest
    smoothed loss that this recipe reaches on any machine. prompt: how samples begin.
    Raises: ValueError for less than 1 step, an empty prompt, a loss that is not finite and one that was not expected,
    and where an update that is expected did not come; the view keeps the curves.
    """
    if total_steps < 1:
        raise ValueError(f"total_steps must be at least 1, got {total_steps}")
    if not (ids := tokenizer.encode(prompt)):
        raise ValueError("prompt is empty; a model continues at least one token")
    known = {_KNOWING[name]: value for name, value in (levels._asdict() if levels else {}).items()}
    run = Run(total_steps, {"nothing": math.log(model.config.vocab_size), **known}, expected)
    under_way = f"<p>A training run of {total_steps} updates is under way.</p>"
    view = View("training", run.data(), html=under_way, text="A training run.", answer=run.hear)
    # Jupyter's server sets this for the kernels of its notebooks; nbclient and nbval display the finished view once.
    handle = display(view, display_id=True) if "JPY_SESSION_NAME" in os.environ else None

    def write() -> None:
        run.samples.append((run.step, _sample(model, tokenizer, ids, sample_tokens)))

    try:
        write()
        await _follow(run, steps, write, view if handle else None)
    except ValueError as e:
        run.state, run.trouble = FAILED, str(e)
        raise
    finally:
        run.state = STOPPED if run.state in (RUNNING, PAUSED) else run.state  # the kernel was interrupted
        run.close_point()
        view.live, view.data = False, run.data()
        view.html, view.text = _figure_html(run), f"A training run. {run.says()}"
        handle.update(view) if handle else display(view)
    if run.state == FINISHED:
        run.compare_expected()


async def _follow(run: Run, steps: Iterator[Step], write: Callable[[], None], view: View | None) -> None:
    """Take update after update; with a view, show it as it goes and do what its buttons want."""
    sampled = {math.ceil(run.total / 4**n) for n in range(_QUARTERINGS)}
    shown = max(1, run.total // _PUSHES)
    for step in steps:
        run.note(step)
        if step.step in sampled:
            write()
        if view and (step.step % shown == 0 or step.step == 1):
            view.data = run.data()
        for _ in range(_TURNS if view else 0):
            await asyncio.sleep(0)
        if run.state == PAUSED:
            view.data = run.data()
        while run.state == PAUSED:
            await asyncio.sleep(_PAUSE_SECONDS)
        if run.state == STOPPED:
            break
    else:
        run.state = FINISHED
    if run.samples[-1][0] != run.step:
        write()


def _sample(model: TransformerLM, tokenizer: Any, ids: Sequence[int], n_tokens: int) -> str:
    """What the model writes after a prompt: always with the same draws, and without touching those of the training."""
    device = next(model.parameters()).device
    prompt = torch.tensor([list(ids)], device=device)
    new = generate(model, prompt, n_tokens, temperature=0.8, generator=torch.Generator(device).manual_seed(1))
    text = tokenizer.decode(new[0].tolist()).strip()[:_MOST_CHARACTERS]
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)  # no font has a control character


def _figure_html(run: Run) -> str:
    share = {int(step): share for step, _, share, _ in run.points}
    picked = [s for s in run.expected if s in share] or [list(share)[i] for i in spread(len(share))]
    rows = [[str(step), _loss(run, step), fixed(share[step], 2)] for step in picked]
    rows += [[f"knowing {name}", rounded(value, 2), ""] for name, value in run.levels.items()]
    table = number_table(["update", "smoothed loss, nats per token", "learning rate, fraction of its peak"], rows)
    alt = f"Line chart of the loss in nats per token over the updates, with horizontal lines to compare. {run.says()}"
    lines = "Light: the loss; bold: smoothed; dotted: the loss of a predictor that knows only so much."
    return framed(_draw(run), alt, f"{lines} {run.says()} {run.trouble}".strip(), table, flat=True)


def _loss(run: Run, step: int) -> str:
    """A smoothed loss in two digits, or in three next to the range that it should lie in."""
    if step not in run.expected:
        return rounded(run.smooth(step), 2)
    low, high = run.expected[step]
    return f"⟨{rounded(run.smooth(step), 3)}⟩ (expected {low:g} to {high:g})"


def _draw(run: Run) -> Figure:
    curves = run.curves()
    steps = curves["steps"]
    with drawing(8.8, 5.6) as figure:
        grid = figure.add_gridspec(3, 2, height_ratios=[4.4, 1.6, 0.5])
        top = figure.add_subplot(grid[0, :])
        top.plot(steps, curves["loss"], color=SERIES[0], alpha=0.35, linewidth=1.2, linestyle="-")
        top.plot(steps, curves["smooth"], color=SERIES[0], linestyle="-")
        for name, value in run.levels.items():
            top.axhline(value, color=QUIET, linewidth=1.6, linestyle=(0, (1, 1.5)))
            beside = {"va": "center", "size": 12, "transform": top.get_yaxis_transform()}
            top.text(1.01, value, f"{name} {rounded(value, 2)}", color=QUIET, **beside)
        top.set(title="Loss while training", ylabel="nats per token", xlim=(0, run.total))
        for i, (name, title) in enumerate((("share", "learning rate, fraction"), ("norm", "gradient norm"))):
            ax = figure.add_subplot(grid[1, i])
            ax.plot(steps, curves[name], color=SERIES[i + 1], linestyle="-")
            ax.set_title(title, size=14, weight="normal", pad=6)
            ax.set(xlim=(0, run.total), ylim=(0, None), xlabel="update")
            ax.tick_params(labelsize=12)
        told = figure.add_subplot(grid[2, :])
        told.axis("off")
        last = textwrap.shorten(run.samples[-1][1], 84, placeholder=" ...") if run.samples else ""
        told.text(0, 0.5, f"It writes: {last}".replace("$", r"\$"), size=13, color=INK, va="center")
    return figure
