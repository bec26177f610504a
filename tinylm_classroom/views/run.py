"""A run that is watched while it lasts: its curves, and buttons to pause, resume and stop it."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from IPython.display import display

from ..display.numbers import learned
from ..display.picture import is_in_jupyter
from .base import View, few_digits

_MOST_POINTS = 300
# the smooth line is the mean from i - i / _AROUND to i + i / _AROUND, and one update on each side
_AROUND = 10
_PUSHES = 60  # how often a run is drawn while it lasts
_TURNS = 8  # a click passes through several turns of the kernel's event loop before it is heard
_PAUSE_SECONDS = 0.05
RUNNING = "running"
PAUSED = "paused"
STOPPED = "stopped"
FINISHED = "finished"
FAILED = "failed"


class Watched:
    """What is known of a run so far: curves of at most 300 points, samples, and what the reader
    wants of it.

    A kind of run says what its curves are, takes an update (`note`), tells how far it came (`says`)
    and draws (`html`).
    """

    name = "A run"
    columns: tuple[str, ...] = ()  # the first is smoothed
    # what an error says of an expected update that did not come; {came} updates, the last update
    # {last}
    too_few = ""

    def __init__(
        self,
        total_steps: int,
        samples_at: Iterable[int],
        expected: Mapping[int, tuple[float, float]] | None = None,
    ):
        if total_steps < 1:
            raise ValueError(f"total_steps must be at least 1, got {total_steps}")
        self.total = total_steps
        self.samples_at = set(samples_at)
        self.state = RUNNING
        self.trouble = ""
        # at some updates, the range of the smoothed column on any machine
        self.expected = dict(expected or {})
        self.width = math.ceil(total_steps / _MOST_POINTS)
        self.points: list[list[float]] = []  # each: last update, and a mean of each column
        self.samples: list[tuple[int, Any]] = []
        self.pending: list[list[float]] = []
        self.sums = [0.0]  # of the first column so far
        self.step = 0

    def note(self, step: Any) -> None:
        """Take an update.

        Raises: ValueError for one that is not finite; the curves keep what was before it.
        """
        raise NotImplementedError

    def sample(self, step: Any) -> None:
        """Keep a text of this update, or of the model before the first, where step is None."""
        raise NotImplementedError

    def says(self) -> str:
        """How far the run came, in plain words."""
        raise NotImplementedError

    def html(self) -> str:
        """The picture of the run and its numbers."""
        raise NotImplementedError

    def add(self, step: int, values: Sequence[float]) -> None:
        """Add an update's values, one for each column; a point is the mean of `width` updates."""
        self.sums.append(self.sums[-1] + values[0])
        self.step = step
        self.pending.append(list(values))
        if step % self.width == 0 or step == self.total:
            self.close_point()

    def close_point(self) -> None:
        """Make a point of the updates that are in none yet."""
        if self.pending:
            means = (sum(column) / len(column) for column in zip(*self.pending, strict=True))
            self.points.append([self.step, *means])
            self.pending = []

    def smooth(self, step: int) -> float:
        """The mean of the first column around an update, as far as there are updates on either
        side.
        """
        i = len(self.sums) - 1 - (self.step - step)
        last = len(self.sums) - 1
        reach = max(1, i // _AROUND)
        low = max(0, i - 1 - reach)
        high = min(last, i + reach)
        return (self.sums[high] - self.sums[low]) / (high - low)

    def compare_expected(self) -> None:
        """Raise ValueError where the smoothed column is not in its range, or the update did not
        come.
        """
        came = len(self.sums) - 1
        for step, limits in self.expected.items():
            if not self.step - came < step <= self.step:
                said = self.too_few.format(came=came, last=self.step)
                raise ValueError(f"expected names update {step}, but {said}, and check total_steps")
            learned(self.smooth(step), *limits)

    def range_at(self, step: int) -> str:
        """What is said of the range behind a smoothed value; nothing where none is expected."""
        low, high = self.expected.get(step, (None, None))
        return "" if low is None else f" (expected {low:g} to {high:g})"

    def curves(self) -> dict[str, list[float]]:
        """The points by what they are points of."""
        found = {
            name: [point[i] for point in self.points]
            for i, name in enumerate(("steps", *self.columns))
        }
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
        """What every view of a run draws, in five digits."""
        curves = self.curves()
        return {
            **{name: few_digits(column) for name, column in curves.items()},
            "steps": curves["steps"],
            "total": self.total, "step": self.step, "state": self.state, "error": self.trouble,
            "samples": [list(sample) for sample in self.samples],
        }  # fmt: skip


async def watch(run: Watched, steps: Iterable[Any], module: str) -> None:
    """Take every update and show the run: from the beginning where somebody can watch, otherwise
    once, at its end.

    Raises ValueError for what the run refuses, and after its end for a value that is not in its
    expected range.
    """
    under_way = f"<p>{run.name} of {run.total} updates. Its picture appears here when it ends.</p>"
    view = View(module, run.data(), html=under_way, text=f"{run.name}.", answer=run.hear)
    is_watched = is_in_jupyter()  # nbclient and nbval display the finished view once
    if is_watched:
        display(view)
    try:
        run.sample(None)
        await _follow(run, steps, view if is_watched else None)
    except ValueError as e:
        run.state = FAILED
        run.trouble = str(e)
        raise
    finally:
        # the kernel was interrupted
        run.state = STOPPED if run.state in (RUNNING, PAUSED) else run.state
        run.close_point()
        view.live = False
        view.data = run.data()
        view.html = run.html()
        view.text = f"{run.name}. {run.says()}"
        view.renew_picture() if is_watched else display(view)
    if run.state == FINISHED:
        run.compare_expected()


async def _follow(run: Watched, steps: Iterable[Any], view: View | None) -> None:
    """Take update after update; with a view, show it as it goes and do what its buttons want."""
    shown = max(1, run.total // _PUSHES)
    step = None
    for step in steps:
        run.note(step)
        if step.step in run.samples_at:
            run.sample(step)
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
    if step is not None and run.samples[-1][0] != run.step:
        run.sample(step)


def drawable(text: str) -> str:
    """A text without the control characters that no font has."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
