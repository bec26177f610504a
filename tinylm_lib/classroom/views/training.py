"""A training run, watched: the loss on its way down between known levels, with buttons to pause and to stop it."""

import asyncio
import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from IPython.display import display
from matplotlib import style
from matplotlib.figure import Figure

from ...model import TransformerLM
from ...sampling import generate
from ...storyworld.stories import Entropies
from ...training.loop import Step
from ..display.cards import number_table
from ..display.figures import framed
from ..display.numbers import fixed, learned, rounded
from ..display.theme import INK, QUIET, SERIES, STYLE
from .base import View

MOST_POINTS, MOST_CHARACTERS = 300, 160
QUARTERINGS = 4  # a sample is written before the first update and after 1/64, 1/16 and 1/4 of them and all
AROUND = 10  # the smooth line is the mean loss from i - i / AROUND to i + i / AROUND, and of one update on each side
ROWS = 8
PUSHES = 60  # how often a run is drawn while it goes on
TURNS = 8  # a click passes through several turns of the kernel's event loop before it is heard
PAUSE_SECONDS = 0.05
KNOWING = {"unigram": "how frequent tokens are", "bigram": "the token before", "floor": "all there is to know"}
RUNNING, PAUSED, STOPPED, FINISHED, FAILED = "running", "paused", "stopped", "finished", "failed"


class Run:
    """What is known of a run so far: curves of at most 300 points, samples, and what the reader wants of it."""

    def __init__(
        self, total_steps: int, levels: Mapping[str, float], expected: Mapping[int, tuple[float, float]] | None = None
    ):
        self.total, self.levels, self.state, self.trouble = total_steps, dict(levels), RUNNING, ""
        self.expected = dict(expected or {})  # the range of the smoothed loss at some updates
        self.width = math.ceil(total_steps / MOST_POINTS)
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
            loss, share, norm = (sum(column) / len(column) for column in zip(*self.pending, strict=True))
            self.points.append([self.step, loss, share, norm])
            self.pending = []

    def smooth(self, step: int) -> float:
        """The mean loss around an update that was made, as far as there are updates on either side."""
        i, last = len(self.sums) - 1 - (self.step - step), len(self.sums) - 1
        reach = max(1, i // AROUND)
        low, high = max(0, i - 1 - reach), min(last, i + reach)
        return (self.sums[high] - self.sums[low]) / (high - low)

    def hear(self, request: dict[str, Any]) -> dict[str, Any]:
        """Follow a button: pause, resume or stop. Raises ValueError for anything else."""
        wish = {"pause": PAUSED, "resume": RUNNING, "stop": STOPPED}.get(request.get("do"))
        if wish is None:
            raise ValueError(f"{request} asks for nothing that a run can do: pause, resume or stop")
        if self.state in (RUNNING, PAUSED):
            self.state = wish
        return {"state": self.state, "step": self.step}

    def data(self) -> dict[str, Any]:
        """What the view draws, in five digits."""
        names = ("steps", "loss", "share", "norm")
        columns = zip(*self.points, strict=True) if self.points else [[]] * len(names)
        short = {name: [float(f"{x:.5g}") for x in column] for name, column in zip(names, columns, strict=True)}
        short["steps"] = [int(point[0]) for point in self.points]
        short["smooth"] = [float(f"{self.smooth(step):.5g}") for step in short["steps"]]
        levels = [[name, float(f"{value:.5g}")] for name, value in self.levels.items()]
        facts = {"total": self.total, "step": self.step, "state": self.state, "error": self.trouble}
        return {**short, **facts, "levels": levels, "samples": [list(sample) for sample in self.samples]}


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
    best, from `storyworld.entropies`; they are drawn beside ln V. expected: at some updates, the lowest and highest
    smoothed loss that this recipe reaches on any machine. prompt: how samples begin.
    Raises: ValueError for less than 1 step, an empty prompt, a loss that is not finite and one that was not expected;
    the view keeps the curves.
    """
    if total_steps < 1:
        raise ValueError(f"total_steps must be at least 1, got {total_steps}")
    if not (ids := tokenizer.encode(prompt)):
        raise ValueError("prompt is empty; a model continues at least one token")
    known = {KNOWING[name]: value for name, value in (levels._asdict() if levels else {}).items()}
    run = Run(total_steps, {"nothing": math.log(model.config.vocab_size), **known}, expected or {})
    view = View("training", run.data(), html="", text="A training run.", answer=run.hear)
    view.html = f"<p>A training run of {total_steps} updates is under way.</p>"
    # Jupyter's server sets this for the kernels of its notebooks; nbclient and nbval display the finished view once.
    handle = display(view, display_id=True) if "JPY_SESSION_NAME" in os.environ else None

    def write() -> None:
        run.samples.append((run.step, written(model, tokenizer, ids, sample_tokens)))

    try:
        write()
        await follow(run, steps, write, view if handle else None)
    except ValueError as e:
        run.state, run.trouble = FAILED, str(e)
        raise
    finally:
        run.state = STOPPED if run.state in (RUNNING, PAUSED) else run.state  # the kernel was interrupted
        run.close_point()
        finish(view, run)
        handle.update(view) if handle else display(view)
    if run.state == FINISHED:
        for step, limits in run.expected.items():
            learned(run.smooth(step), *limits)


async def follow(run: Run, steps: Iterator[Step], write: Any, view: View | None) -> None:
    """Take update after update; with a view, show it as it goes and do what its buttons want."""
    sampled = {math.ceil(run.total / 4**n) for n in range(QUARTERINGS)}
    shown = max(1, run.total // PUSHES)
    for step in steps:
        run.note(step)
        if step.step in sampled:
            write()
        if view and (step.step % shown == 0 or step.step == 1):
            view.data = run.data()
        for _ in range(TURNS if view else 0):
            await asyncio.sleep(0)
        if run.state == PAUSED:
            view.data = run.data()
        while run.state == PAUSED:
            await asyncio.sleep(PAUSE_SECONDS)
        if run.state == STOPPED:
            break
    else:
        run.state = FINISHED
    if run.samples[-1][0] != run.step:
        write()


def finish(view: View, run: Run) -> None:
    """Give a view the last data, its picture, its words and no buttons."""
    view.live = False
    view.data = run.data()
    view.html, view.text = _figure_html(run), f"A training run. {says(run)}"


def written(model: TransformerLM, tokenizer: Any, ids: Sequence[int], n_tokens: int) -> str:
    """What the model writes after a prompt: always with the same draws, and without touching those of the training."""
    device = next(model.parameters()).device
    prompt = torch.tensor([list(ids)], device=device)
    new = generate(model, prompt, n_tokens, temperature=0.8, generator=torch.Generator(device).manual_seed(1))
    return tokenizer.decode(new[0].tolist()).strip()[:MOST_CHARACTERS]


def says(run: Run) -> str:
    """How far the run came, in plain words."""
    if not run.points:
        return f"No update of {run.total} was made."
    passed = [name for name, level in run.levels.items() if run.smooth(run.step) < level]
    than = f"lower than knowing {min(passed, key=run.levels.get)}" if passed else "no lower than knowing nothing"
    return f"After {run.step} of {run.total} updates the smoothed loss is {than}."


def _figure_html(run: Run) -> str:
    at = [round(i * (len(run.points) - 1) / (ROWS - 1)) for i in range(ROWS)] if run.points else []
    share = {int(step): share for step, _, share, _ in run.points}
    picked = [s for s in run.expected if s in share] or [int(run.points[i][0]) for i in dict.fromkeys(at)]
    rows = [[str(step), _loss(run, step), fixed(share[step], 2)] for step in picked]
    rows += [[f"knowing {name}", rounded(value, 2), ""] for name, value in run.levels.items()]
    table = number_table(["update", "smoothed loss, nats per token", "learning rate, share of its peak"], rows)
    alt = f"Line chart of the loss in nats per token over the updates, with horizontal lines to compare. {says(run)}"
    lines = "Light: the loss; bold: smoothed; dotted: what one loses who knows only so much."
    return framed(_draw(run), alt, f"{lines} {says(run)} {run.trouble}".strip(), table, flat=True)


def _loss(run: Run, step: int) -> str:
    """A smoothed loss in two digits, or in three beside the range that it should lie in."""
    if step not in run.expected:
        return rounded(run.smooth(step), 2)
    low, high = run.expected[step]
    return f"⟨{rounded(run.smooth(step), 3)}⟩ (expected {low:g} to {high:g})"


def _draw(run: Run) -> Figure:
    steps, loss, share, norm = zip(*run.points, strict=True) if run.points else [()] * 4
    smooth = [run.smooth(int(step)) for step in steps]
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(8.8, 5.6), layout="constrained")
        grid = figure.add_gridspec(3, 2, height_ratios=[4.4, 1.6, 0.5])
        places = (grid[0, :], grid[1, 0], grid[1, 1], grid[2, :])
        top, rate, push, told = (figure.add_subplot(place) for place in places)
        top.plot(steps, loss, color=SERIES[0], alpha=0.35, linewidth=1.2, linestyle="-")
        top.plot(steps, smooth, color=SERIES[0], linestyle="-")
        for name, value in run.levels.items():
            top.axhline(value, color=QUIET, linewidth=1.6, linestyle=(0, (1, 1.5)))
            top.text(1.01, value, f"{name} {rounded(value, 2)}", color=QUIET, va="center", size=12,
                     transform=top.get_yaxis_transform())  # fmt: skip
        top.set(title="Loss while training", ylabel="nats per token", xlim=(0, run.total))
        rate.plot(steps, share, color=SERIES[1], linestyle="-")
        push.plot(steps, norm, color=SERIES[2], linestyle="-")
        for ax, name in ((rate, "learning rate, share"), (push, "gradient norm")):
            ax.set_title(name, size=14, weight="normal", pad=6)
            ax.set(xlim=(0, run.total), ylim=(0, None), xlabel="update")
            ax.tick_params(labelsize=12)
        told.axis("off")
        last = textwrap.shorten(run.samples[-1][1], 84, placeholder=" ...") if run.samples else ""
        told.text(0, 0.5, f"It writes: {last}".replace("$", r"\$"), size=13, color=INK, va="center")
    return figure
