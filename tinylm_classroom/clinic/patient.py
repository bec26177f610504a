"""A patient as a student meets it: a complaint, instruments, a diagnosis and a fix, each answered
with a number.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from typing import Any

import torch

from ..checks.calling import within
from ..checks.check import Result, hints_card
from ..checks.verdict import NOT_YET
from ..display import figures
from ..display.cards import Card, card, number_table, paragraph, text_block, unmarked, wrapped
from ..display.numbers import marked
from .causes import CAUSES, TRAINED
from .measurements import (
    ANSWERS,
    MEASUREMENTS,
    attention_weights,
    floor,
    long_losses,
    losses,
    matrices,
    new_texts,
    number,
    shown,
    take,
    through_cache,
    written,
)
from .parts import HEALTHY, with_parts
from .patients import PATIENTS
from .records import CaseFile, Sign
from .run import PatientRun, read, shipped

NO_EVIDENCE = "no evidence"
NOT_LEARNED = Sign("loss at the end", low=3.5)  # the complaint of a patient with two faults
HIDDEN_SEED = 19
HIDDEN_SECONDS = 60.0  # for the hidden test of a fix, which takes about one
ROWS = 8  # of a table below a curve
N_SEEN = 8  # tokens whose attention is shown


class Patient:
    """One ill model. Its run takes place when something is measured for the first time.

    also: a patient whose fault it has in addition. tries: the causes that were named so far.
    proved: whether the right one was named with its evidence.
    """

    def __init__(self, case: CaseFile, seed: int = 0, also: CaseFile | None = None):
        self.case = case
        self.seed = seed
        self.also = also
        self.tries: list[str] = []
        self.proved = False
        self._runs: dict[frozenset[str], PatientRun] = {}

    @property
    def name(self) -> str:
        """The word for it."""
        return self.case.name

    @property
    def title(self) -> str:
        """Its number and its name."""
        if self.also:
            return f"patient {self.case.name} + {self.also.name}"
        return f"patient {PATIENTS.index(self.case) + 1}: {self.case.name}"

    @cached_property
    def _faults(self) -> dict[str, Any]:
        """The ill parts."""
        return {each.part: each.ill for each in (self.case, self.also) if each}

    @property
    def _run(self) -> PatientRun:
        return self._with(())

    @property
    def _healthy(self) -> PatientRun:
        return self._with([*self._faults])

    def _card(self, tone: str = "plain") -> Card:
        rows = [(name, shown(take(self._run, name))) for name in self.case.sees]
        lines = [self.case.story, self.case.complaint, f"Needs lesson {self.case.lesson}."]
        head = ("measured by its owner", "here")
        return _table_card(self.title, head, rows, lines, tone=tone)

    def __repr__(self) -> str:
        return self._card().text

    def _repr_html_(self) -> str:
        return self._card().html

    @staticmethod
    def _signs(signs: Iterable[Sign], run: PatientRun) -> list[tuple[str, str]]:
        return [
            (name, shown(take(run, name))) for name in dict.fromkeys(sign.measure for sign in signs)
        ]

    # The instruments.

    def measure(self, *names: str) -> None:
        """Shows these measurements; `measurements()` lists their names.

        Raises ValueError for a name that is not in the list, or that this patient does not have.
        """
        rows = []
        for name in names:
            if name not in MEASUREMENTS:
                raise ValueError(f"there is no measurement {name!r}; measurements() lists them")
            rows.append((name, shown(self.number(name))))
        _table_card(self.title, ("measured", "here"), rows).show()

    def number(self, name: str) -> float:
        """One measurement.

        Raises ValueError where there is nothing to measure, such as a gradient where nothing is
        trained.
        """
        try:
            return take(self._run, name)
        except (IndexError, AttributeError, ValueError, ZeroDivisionError):
            raise ValueError(
                f"{self.title}: its run has no {name!r}; choose another measurement"
            ) from None

    def has(self, name: str) -> bool:
        """Whether its run has this measurement."""
        try:
            self.number(name)
        except ValueError:
            return False
        return True

    def healthy_number(self, name: str) -> float:
        """One measurement of the run with healthy parts only.

        Raises KeyError for an unknown name.
        """
        return take(self._healthy, name)

    def losses(self) -> list[float]:
        """The loss at each update of its training."""
        return losses(self._run)

    def looks(self) -> tuple[list[str], torch.Tensor]:
        """The first words (8) of a text, and how much each attends to each other (8, 8): the mean
        of the heads of the first block.
        """
        weights = attention_weights(self._run).mean(0)[:N_SEEN, :N_SEEN]
        ids = new_texts(self._run)[0, :N_SEEN].tolist()
        return [shipped().tokenizer.decode([i]).strip() or "(line end)" for i in ids], weights

    def apart(self) -> list[float]:
        """How far the logits of each token, read one at a time, are from those of one pass."""
        whole, steps, _ = through_cache(self._run)
        return (whole - steps).abs().amax(-1).tolist()

    def healthy_model(self) -> Any:
        """The model of a run with healthy parts only."""
        return self._healthy.model

    def curve(self) -> None:
        """Shows the loss at each update; the rewards, or where nothing is trained, the loss along a
        long text.
        """
        run = self._run
        levels = {}
        if run.record.losses:
            title = "Loss while training"
            x = "update"
            y = "loss (nats per token)"
            points = dict(enumerate(losses(run), 1))
            levels = {"ln V": math.log(run.model.config.vocab_size), "floor of new texts": floor()}
        elif run.rewards:
            title = "Reward while training"
            x = "update"
            y = "letters per token"
            points = dict(enumerate(run.rewards, 1))
        else:
            title = "Loss along a text"
            x = "tokens before"
            y = "loss (nats)"
            points = long_losses(run)
        with figures.axes(f"{title}, {self.title}", x, y) as (figure, ax):
            ax.plot(list(points), list(points.values()))
            for (name, value), line in zip(levels.items(), ("--", ":"), strict=False):
                ax.axhline(
                    value, color=figures.QUIET, linestyle=line, label=f"{name} = {number(value)}"
                )
            if levels:
                ax.legend()
        picked = [list(points)[i] for i in figures.spread(len(points), ROWS)]
        table = {x: picked, y: [shown(points[at]) for at in picked]}
        caption = f"{title} of {self.title}, with {len(points)} points."
        figures.display(figure, alt=f"A line: {y} by {x}.", caption=caption, table=table)

    def gradients(self) -> None:
        """Shows the gradient norm of each matrix at the first update, the largest one, and whether
        it has changed.
        """
        if not self._run.record.losses:
            return _table_card(
                self.title, ("gradients", "here"), [("updates of training", "0")]
            ).show()
        first = self._run.record.gradients[0]
        rows = [
            (
                name.removesuffix(".weight"),
                shown(first[name]),
                shown(largest),
                "yes" if changed else "no",
            )
            for name, largest, changed in matrices(self._run)
        ]
        _table_card(self.title, ("matrix", "gradient, first", "largest", "changed"), rows).show()

    def activations(self) -> None:
        """Shows the root mean square of what each part puts out for a new text."""
        model = self._run.model
        caught = {}
        parts = {
            "embedding": model.embed,
            **{f"block {i}": block for i, block in enumerate(model.blocks, 1)},
        }
        parts["final norm"] = model.final_norm

        def note(name: str) -> Any:
            return lambda _, __, output: caught.update({name: output.detach()})

        hooks = [part.register_forward_hook(note(name)) for name, part in parts.items()]
        try:
            with torch.no_grad():
                caught["logits"] = read(model, new_texts(self._run)[:1, :-1], self._run.parts)
        finally:
            for hook in hooks:
                hook.remove()
        rows = [
            (name, shown(output.square().mean().sqrt().item())) for name, output in caught.items()
        ]
        _table_card(self.title, ("output of", "root mean square"), rows).show()

    def attention(self) -> None:
        """Shows how much each of the first tokens of a text attends to each other, the mean of the
        first block.
        """
        words, weights = self.looks()
        cells = [[_weight(w) for w in row] for row in weights.tolist()]
        rows = [(f"query {word}", *row) for word, row in zip(words, cells, strict=True)]
        _table_card(self.title, ("key", *words), rows).show()

    def cache_against_full(self) -> None:
        """Shows how far the logits of a text that is read token by token are from those of one
        pass.
        """
        apart = self.apart()
        rows = [(f"{i + 1}", shown(apart[i])) for i in (0, 1, 2, 4, 9, 19, 39)]
        _table_card(self.title, ("token", "largest difference of its logits"), rows).show()

    def writes(self) -> None:
        """Shows a new text that it has continued, or two of the texts that were rewarded."""
        texts = written(self._run)
        text = "\n".join([self.title, *map(wrapped, texts)])
        card(f"{self.title} writes", [text_block(each) for each in texts], text).show()

    def exchange(self, *names: str) -> None:
        """Puts healthy parts in for these ones, runs again, and shows what has become of the
        complaint.

        Raises ValueError for an unknown part; `parts()` lists them.
        """
        run = self._with(names)
        before = self._signs(self.case.symptoms, self._run)
        after = self._signs(self.case.symptoms, run)
        rows = [(*was, now) for was, (_, now) in zip(before, after, strict=True)]
        _table_card(
            f"{self.title}, with a healthy {', '.join(names)}", ("measured", "before", "now"), rows
        ).show()

    def is_ill(self, *names: str) -> bool:
        """Whether the complaint is still there with healthy parts put in for these ones.

        Errors as in `exchange`.
        """
        symptoms = (NOT_LEARNED,) if self.also else self.case.symptoms
        return all(sign.holds(self._with(names)) for sign in symptoms)

    def refusal(self, **part: Any) -> str:
        """Why a fix is refused, as `fix` says it; empty if it is a cure."""
        ((name, own),) = part.items()
        found = self._tested(name, own)
        return "" if found.passed else found.message

    def _with(self, names: Sequence[str]) -> PatientRun:
        """The run with these parts healthy: nearly all are anyway, and the same parts and seed
        give the same run.
        """
        for name in names:
            if name not in HEALTHY:
                raise ValueError(f"there is no part {name!r}; choose from {', '.join(HEALTHY)}")
        left = {name: ill for name, ill in self._faults.items() if name not in names}
        key = frozenset(left)
        if key not in self._runs:
            self._runs[key] = PatientRun(self.case.plan, with_parts(**left), self.seed)
        return self._runs[key]

    # What there is to choose from, the same for all patients.

    @staticmethod
    def parts() -> Card:
        """The parts of a run, and what a healthy one does: each can be exchanged, and replaced by
        one of yours.
        """
        rows = [(_call(name, part), _says(part)) for name, part in HEALTHY.items()]
        return _table_card(
            "The parts of a run", ("part", "what a healthy one does"), rows, of_words=True
        )

    @staticmethod
    def measurements() -> Card:
        """The names of all measurements, under the question of the tree that they answer."""
        rows = []
        for question, names in ANSWERS.items():
            rows += [(name, question) for name in names]
        head = ("name", "the question that it answers")
        return _table_card("What can be measured", head, rows, of_words=True)

    @staticmethod
    def causes() -> Card:
        """The causes that a diagnosis chooses from."""
        rows = [(name, cause.text) for name, cause in CAUSES.items()]
        return _table_card("What may be wrong", ("diagnosis", "in words"), rows, of_words=True)

    def hint(self) -> Card:
        """A card of folded hints, from a nudge to a plan."""
        return hints_card(self.title, self.case.hints)

    # Diagnosis and fix.

    def treat(self, treatment: Callable[[], tuple[str, str, dict[str, Any]]]) -> Result:
        """Answers a diagnosis, its evidence and a fix that a function returns:
        `return "softmax twice", "loss of certain, right predictions", {"loss": my_loss}`.

        The result is that of the diagnosis where this is wrong, and otherwise that of the fix.
        """
        try:
            found = treatment()
        except NotImplementedError:
            return self._answer(False, None, f"{self.title}: {NOT_YET}", "treatment")
        if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[2], dict)):
            said = "Return three values: cause, measurement, {part: function}."
            return self._answer(False, "not three values", said, "treatment")
        cause, because, part = found
        diagnosis = self.diagnose(cause, because)
        fixed = self.fix(**part)
        return fixed if diagnosis.passed else diagnosis

    def diagnose(self, cause: str, because: str = "") -> Result:
        """Says whether this is the cause, if a measurement is named that shows it, and counts the
        causes that were named. A wrong one is contradicted by a measurement.

        Raises ValueError for a cause or a measurement that is not in the list; `causes()` and
        `measurements()` show them.
        """
        if not cause and not because:
            self._card("open").show()
            return Result(False, None, f"{self.title}: {NOT_YET}")
        if cause not in CAUSES:
            raise ValueError(
                f"there is no cause {cause!r}; causes() lists them{_near(cause, CAUSES)}"
            )
        text = CAUSES[cause].text
        if not because:
            said = (
                f"It may be so: {text}. But how do you know? Name the measurement that shows it: "
                f"`diagnose({cause!r}, because=...)`."
            )
            return self._answer(False, NO_EVIDENCE, said, "diagnosis")
        if because not in MEASUREMENTS:
            near = _near(because, MEASUREMENTS)
            raise ValueError(
                f"there is no measurement {because!r}; measurements() lists them{near}"
            )
        if cause not in self.tries:
            self.tries.append(cause)
        if cause != self.case.cause:
            sign = self.contradiction(cause)
            said = (
                f"Not this: {text}. Then the {sign.measure} would be {sign.range}. "
                f"Measured: {shown(take(self._run, sign.measure))}."
            )
            if self._run.rewards and sign == TRAINED:
                said += " It is trained by rewards, not by a loss on texts."
            return self._answer(False, cause, said, "diagnosis")
        if because not in CAUSES[cause].evidence:
            here = shown(self.number(because)) if self.has(because) else "not measured here"
            said = (
                f"It may be so: {text}. But the {because}, {here}, is not evidence for it, because "
                f"{self._who_else(because)}. Which number would only this one explain?"
            )
            return self._answer(False, NO_EVIDENCE, said, "diagnosis")
        value = shown(self.number(because))
        self.proved = True
        found = "at the first try" if self.place == 1 else f"at try {self.place}"
        said = f"Yes: {text}. The {because}: {value}. Found {found}."
        return self._answer(True, None, said, "diagnosis")

    @property
    def place(self) -> int:
        """Which of the causes that were named is the right one, from 1."""
        return self.tries.index(self.case.cause) + 1

    def _who_else(self, name: str) -> str:
        """Who shows this measurement, too."""
        try:
            same = shown(take(self._healthy, name)) == shown(take(self._run, name))
        except (IndexError, AttributeError, ValueError, ZeroDivisionError):
            same = False
        return (
            "a run without the fault has this number, too"
            if same
            else "other faults would show it as well"
        )

    def fitting_causes(self) -> int:
        """How many of all causes no measurement contradicts."""
        return sum(all(sign.holds(self._run) for sign in cause.signs) for cause in CAUSES.values())

    def contradiction(self, cause: str) -> Sign:
        """The first sign of a cause that this patient does not have.

        Raises StopIteration if it has all.
        """
        return next(sign for sign in CAUSES[cause].signs if not sign.holds(self._run))

    def fix(self, **part: Any) -> Result:
        """Runs the patient with a part of yours, `fix(loss=my_loss)`, under another seed, and says
        whether it is well.

        Raises TypeError for anything but one part.
        """
        if len(part) != 1 or not part.keys() <= HEALTHY.keys():
            raise TypeError(
                f"give one part, such as fix(loss=my_loss); the parts are {', '.join(HEALTHY)}"
            )
        ((name, own),) = part.items()
        if isinstance(HEALTHY[name], Real) != (isinstance(own, Real) and not isinstance(own, bool)):
            raise TypeError(
                f"{name} must be a {'number' if isinstance(HEALTHY[name], Real) else 'function'}"
            )
        found: list[Result] = []
        if not within(HIDDEN_SECONDS, [lambda: found.append(self._tested(name, own))]):
            return self._answer(
                False,
                "does not end",
                f"The run did not end within {HIDDEN_SECONDS:.0f} seconds.",
                "fix",
            )
        return self._answer(*found[0], "fix")

    def _tested(self, name: str, own: Any) -> Result:
        """What the hidden test finds; whatever the student's function does ends here."""
        try:
            run = PatientRun(
                self.case.plan,
                with_parts(**{**self._faults, name: own}),
                HIDDEN_SEED,
            )
            for sign in self.case.healthy:
                if not sign.holds(run):
                    value = shown(take(run, sign.measure))
                    said = (
                        f"Not well yet. The {sign.measure} should be {sign.range}. Measured: "
                        f"{value}. {sign.why}"
                    ).strip()
                    return Result(False, sign.measure, said)
        except NotImplementedError:
            return Result(False, None, f"{self.title}: {NOT_YET}")
        except Exception as error:
            return Result(
                False,
                "raises an error",
                f"The run raises {type(error).__name__}: {str(error)[:300]}",
            )
        held = "; ".join(f"{name} {value}" for name, value in self._signs(self.case.healthy, run))
        return Result(True, None, f"It is well. In a new run with another seed: {held}.")

    def _answer(self, passed: bool, mistake: str | None, said: str, what: str) -> Result:
        tone = "good" if passed else "bad"
        if said.endswith(NOT_YET):
            tone = "open"
        title = f"{self.title}: {what}"
        card(title, [paragraph(said)], f"{title}\n{unmarked(said)}", tone).show()
        return Result(passed, mistake, said)


def patient(which: int | str, seed: int = 0, also: str | None = None) -> Patient:
    """The patient of this number, 1 to 12, or name, under a seed.

    also: the name of another one whose fault it has in addition; it is then ill as long as its loss
    ends above 3.5 nats.

    Raises ValueError for another one.
    """
    other = patient(also).case if also else None
    for i, case in enumerate(PATIENTS, 1):
        if which in (i, case.name) and not isinstance(which, bool):
            return Patient(case, seed, other)
    names = ", ".join(f"{i} {case.name!r}" for i, case in enumerate(PATIENTS, 1))
    raise ValueError(f"there is no patient {which!r}; there are {names}")


def visits(seen: Iterable[Patient]) -> Card:
    """What was found so far, and after how many causes."""
    rows = []
    found = []
    for who in seen:
        n_tries = len(who.tries)
        if who.proved:
            found.append(who.place)
            result = "found at the first try" if who.place == 1 else f"at try {who.place}"
        else:
            result = f"open, {n_tries} tried" if n_tries else "waiting"
        rows.append((who.title, result))
    title = f"Your clinic: {len(found)} of {len(rows)} found, {found.count(1)} at the first try"
    return _table_card(title, ("patient", "diagnosis"), rows, of_words=True)


def _near(word: str, words: Iterable[str]) -> str:
    found = get_close_matches(word, words, 1)
    return f". Did you mean {found[0]!r}?" if found else ""


def _weight(value: float) -> str:
    """An attention weight in a table."""
    return number(value) if value == 0 or math.isnan(value) else marked(f"{value:.2f}")


def _call(name: str, part: Any) -> str:
    return f"{name}({', '.join(inspect.signature(part).parameters)})" if callable(part) else name


def _says(part: Any) -> str:
    beta = "A number: how strongly learning from rewards is held at the model that it began with."
    return " ".join(inspect.getdoc(part).split()) if callable(part) else beta


def _table_card(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    lines: Sequence[str] = (),
    of_words: bool = False,
    tone: str = "plain",
) -> Card:
    """A card with some lines and a table."""
    table = number_table(head, rows, of_words=of_words)
    text = "\n".join([title, *lines, *("  ".join(row) for row in (head, *rows))])
    return card(title, [*map(paragraph, lines), table], text, tone)
