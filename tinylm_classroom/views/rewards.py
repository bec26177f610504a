"""Learning from rewards, watched: reward and distance over the updates, and texts with their first
mistake marked.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sized
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from tinylm_lib.rewards import Update
from tinylm_lib.storyworld.stories import parse
from tinylm_lib.text.cutting import words

from ..display.cards import number_table
from ..display.figures import drawing, framed, spread
from ..display.numbers import marked, rounded
from ..display.theme import INK, QUIET, SERIES
from .base import few_digits
from .run import Watched, drawable, watch

_N_TEXTS = 3  # of each update that is sampled: the first answers to its first prompts
_N_SAMPLED = 6  # updates, evenly spread
_NO_END = " (it ends here)"  # where that is the mistake
_LINE = 72  # characters of a line of text in the picture
_MOST_LINES = 6
FindError = Callable[[str], int | None]


def first_error(text: str) -> int | None:
    """Where a story's first impossible word is, its length where it has no end, None where all is
    possible.
    """
    return parse(text).error_at


class RewardRun(Watched):
    """A run of `reinforce`: mean rewards, the distance from the reference, and marked texts."""

    name = "A run that learns from rewards"
    columns = ("reward", "kl")
    too_few = (
        "update {last} was the last; updates can be watched once: make model and updates again"
    )

    def __init__(
        self,
        total_steps: int,
        tokenizer: Any,
        find_error: FindError = first_error,
        expected: Mapping[int, tuple[float, float]] | None = None,
    ):
        super().__init__(
            total_steps, (1 + i for i in spread(max(total_steps, 0), _N_SAMPLED)), expected
        )
        self.tokenizer = tokenizer
        self.find_error = find_error

    def note(self, step: Update) -> None:
        """Add an update. Raises: ValueError for a loss or a distance that is not finite."""
        values = [float(x) for x in (step.rewards.mean(), step.kl)]
        if not all(map(math.isfinite, [*values, float(step.loss), float(step.grad_norm)])):
            raise ValueError(
                f"update {step.step} has loss {float(step.loss)} and distance {values[1]}: lower "
                "the learning rate, or beta, and begin again with a new model"
            )
        self.add(step.step, values)

    def sample(self, step: Update | None) -> None:
        """Keep the first answers to some prompts of an update; before the first, nothing has been
        written.
        """
        if step is not None:
            n_each = step.rewards.shape[1]
            texts = step.rollouts.texts()
            n_new = step.rollouts.mask.sum(1).tolist()
            rows = range(0, len(texts), n_each)[:_N_TEXTS]
            rewards = step.rewards.flatten().tolist()
            self.samples.append(
                (self.step, [self.marked(rewards[i], texts[i], n_new[i]) for i in rows])
            )

    def marked(self, reward: float, ids: list[int], n_new: int) -> list[Any]:
        """The reward of a text, its beginning, what is possible, the first mistake, and what
        follows.
        """
        given, whole = (self.tokenizer.decode(some).lstrip("\n") for some in (ids[:-n_new], ids))
        at = self.find_error(whole)
        shown = [drawable(part.replace("\n", " ↵")) for part in _cut(whole, len(given), at)]
        return [few_digits(reward), *shown]

    def says(self) -> str:
        """From where to where the reward and the distance went; all numbers are marked as a
        machine's own.
        """
        if not self.points:
            return f"No update of {self.total} was made."
        first, last = (
            marked(rounded(self.smooth(step), 2)) for step in (int(self.points[0][0]), self.step)
        )
        distance = marked(f"{rounded(self.points[-1][2], 2)} nats per token")
        return (
            f"In {self.step} of {self.total} updates the mean reward went from {first} to {last}, "
            f"and the model moved {distance} away from its start."
        )

    def html(self) -> str:
        """The curve, the last text, and their numbers."""
        kl = {int(point[0]): point[2] for point in self.points}
        picked = [s for s in self.expected if s in kl] or [list(kl)[i] for i in spread(len(kl))]
        rows = [[str(s), self.reward(s), marked(rounded(kl[s], 2))] for s in picked]
        head = ["update", "smoothed reward", "distance from the start, nats per token"]
        alt = f"A line chart of the mean reward over the updates. {self.says()}"
        lines = (
            "Light: the mean reward of each update's texts; bold: smoothed. A text's first mistake "
            "is in brackets."
        )
        caption = f"{lines} {self.says()} {self.trouble}".strip()
        return framed(_draw(self), alt, caption, number_table(head, rows), flat=True)

    def reward(self, step: int) -> str:
        """A smoothed reward in two digits, with the range that it should lie in, if any."""
        return marked(rounded(self.smooth(step), 2)) + self.range_at(step)


def _cut(text: str, given: int, at: int | None) -> list[str]:
    """A text in four parts: up to `given`, up to the mistake at `at`, the mistake itself, and the
    rest.
    """
    if at == len(text):
        return [text[:given], text[given:], _NO_END, ""]
    at = len(text) if at is None else at
    wrong = at + len((words(text[at:]) or [""])[0])
    ends = [0, min(given, at), at, wrong, len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


async def rewards_view(
    updates: Iterable[Update],
    tokenizer: Any,
    *,
    total_steps: int | None = None,
    find_error: FindError = first_error,
    expected: Mapping[int, tuple[float, float]] | None = None,
) -> None:
    """Run the updates and show the reward, the distance from the start, and texts with a mistake
    marked.

    In a notebook: `await rewards_view(reinforce(...), tokenizer, total_steps=...)`. As with
    `training_view`, where somebody can watch, the view is there from the beginning, with buttons to
    pause, resume and stop.

    updates: what `reinforce` returned, which is not changed by being watched, or a list of finished
    updates.
    total_steps: how many will come; a list knows it. find_error: where in a text its first mistake
    is, or None; the default reads StoryWorld. expected: at some updates, the lowest and highest
    smoothed reward that is reached on any machine.
    Raises: ValueError for a missing or impossible total_steps, for an update that is not finite,
    for a reward that was not expected, and where an update that is expected did not come; the view
    keeps the curves.
    """
    if total_steps is None:
        if not isinstance(updates, Sized):
            raise ValueError(
                "total_steps is missing: say how many updates will come, such as total_steps=20"
            )
        total_steps = len(updates)
    run = RewardRun(total_steps, tokenizer, find_error, expected)
    await watch(run, updates, "rewards")


def _draw(run: RewardRun) -> Figure:
    curves = run.curves()
    steps = curves["steps"]
    lines = _lines(run)
    with drawing(8.8, 2.7 + 0.3 * len(lines)) as figure:
        grid = figure.add_gridspec(2, height_ratios=[2.6, 0.1 + 0.3 * len(lines)])
        top = figure.add_subplot(grid[0])
        top.plot(steps, curves["reward"], color=SERIES[0], alpha=0.35, linewidth=1.2, linestyle="-")
        top.plot(steps, curves["smooth"], color=SERIES[0], linestyle="-")
        top.set(title="Reward while it learns", ylabel="mean reward", xlabel="update")
        top.set(xlim=(0, run.total), ylim=(min([0.0, *curves["reward"]]), None))
        top.locator_params(axis="x", integer=True)
        told = figure.add_subplot(grid[1])
        told.axis("off")
        told.set(xlim=(0, 1), ylim=(0, 1))
        for row, line in enumerate(lines):
            told.text(
                0,
                0.95 - row / max(1, len(lines)),
                line.replace("$", r"\$"),
                size=14,
                color=INK if row else QUIET,
                va="top",
            )
    return figure


def _lines(run: RewardRun) -> list[str]:
    """The first of the newest texts that has a mistake, in lines, the mistake in brackets; or the
    first of all.
    """
    if not run.samples:
        return []
    step, texts = run.samples[-1]
    worth, given, possible, wrong, after = next((text for text in texts if text[3]), texts[0])
    text = f"{given}{possible}{f' [{wrong.strip()}] ...' if wrong else after}"
    head = f"Written for update {step}, reward {rounded(worth, 2)}:"
    lines = textwrap.wrap(text, _LINE)
    if len(lines) >= _MOST_LINES:  # so that the mistake is in the picture
        lines = ["...", *lines[2 - _MOST_LINES :]]
    return [head, *lines]
