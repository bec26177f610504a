"""What the tables of the clinic are made of: a sign, and the file of a patient."""

import math
from typing import Any, NamedTuple

from .measurements import number, take
from .run import PatientRun, Plan


class Sign(NamedTuple):
    """A measurement and the range in which it has to be.

    why: what is wrong with a fix that is outside of it.
    """

    measure: str
    low: float = -math.inf
    high: float = math.inf
    why: str = ""

    def holds(self, run: PatientRun) -> bool:
        """Whether the run's number is in the range; NaN is in no range."""
        return self.low <= take(run, self.measure) <= self.high

    @property
    def range(self) -> str:
        """The range in words."""
        if self.low == self.high:
            return f"exactly {number(self.low)}"
        if math.isinf(self.high):
            return f"at least {number(self.low)}"
        if math.isinf(self.low):
            return f"at most {number(self.high)}"
        return f"between {number(self.low)} and {number(self.high)}"


class CaseFile(NamedTuple):
    """One patient.

    name: a word for it. story: who brings it, and what was tried. complaint: what its owner says.
    sees: what its owner has measured. lesson: the one that it needs. part: the one that is ill, and
    `ill` what it does. cause: a key of CAUSES. symptoms: what is measured while it is ill. healthy:
    what the hidden test measures, in a run with another seed. hints: from a nudge to a plan.
    """

    name: str
    story: str
    complaint: str
    sees: tuple[str, ...]
    lesson: str
    plan: Plan
    part: str
    ill: Any
    cause: str
    symptoms: tuple[Sign, ...]
    healthy: tuple[Sign, ...]
    hints: tuple[str, ...]
