"""Models that call the parts that a student has kept."""

from typing import NamedTuple

from tinylm_lib.config import ModelConfig
from tinylm_lib.model import TransformerLM

from ..display.cards import message
from ..exercises import find_exercise
from .parts import PartState, read_parts
from .student_modules import Fitting, callable_parts


class Use(NamedTuple):
    """A part that a model could call: in how many places it calls the student's, and why not where
    that is 0.
    """

    name: str
    places: int
    why: str = ""


def build(config: ModelConfig) -> TransformerLM:
    """A model of the config that calls the student's parts where they are kept and right, and the
    library's elsewhere.

    Its weights have the library's names. `using(model)` shows which parts are whose; a part that is
    broken or stale is left out, and a card says so.
    """
    model = TransformerLM(config)
    parts = read_parts()
    possible = callable_parts(model)
    fitting = Fitting({part.name: part.function for part in parts if part.status == "done"})
    fitting.fit(model)
    model.uses = [
        _use(part, fitting) for part in parts if part.name in possible | fitting.unused.keys()
    ]
    if skipped := [part for part in parts if part.why and part.name in possible]:
        title = f"Left out of this model: {', '.join(part.name for part in skipped)}"
        message(
            title,
            [*(part.complaint for part in skipped), "The library's own parts replace them."],
            "bad",
        ).show()
    return model


def _use(part: PartState, fitting: Fitting) -> Use:
    if part.name in fitting.used:
        return Use(part.name, fitting.used[part.name])
    lesson = find_exercise(part.name).lesson
    missing = (
        f"not kept yet, lesson {lesson}" if part.status == "open" else f"yours is {part.status}"
    )
    return Use(part.name, 0, fitting.unused.get(part.name, missing))
