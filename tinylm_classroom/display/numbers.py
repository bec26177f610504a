"""Numbers as a lesson prints them: rounded, and marked where they depend on the machine so that
nbval blanks them.
"""

import math


def rounded(value: float, digits: int) -> str:
    """The value to so many significant digits, thousands separated: 0.0120, 2.30, 12,300."""
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value + 0.0:.{digits}g}"  # adding 0.0 makes -0.0 a 0
    kept = float(f"{value:.{digits - 1}e}")
    return f"{kept:,.{max(0, digits - 1 - math.floor(math.log10(abs(kept))))}f}"


def fixed(value: float, digits: int) -> str:
    """The value with so many digits after the point, and never a negative zero."""
    return f"{round(float(value), digits) + 0.0:.{digits}f}"  # adding 0.0 makes -0.0 a 0


def marked(text: str) -> str:
    """The text between the marks that say: yours will differ. nbval compares only what follows its
    first blank.
    """
    return f"⟨{text}⟩"


def measured(value: float, unit: str, low: float, high: float) -> str:
    """A measurement such as `⟨12.3 s⟩`, three digits; the marks say: yours will differ.

    low, high: the range in `unit` that every machine should fall into, at least a factor of ten
    wide.
    Raises: ValueError for a value outside the range, for a range too narrow and for a missing unit.
    """
    if not unit.strip():
        raise ValueError("a measurement needs a unit, such as 's' or 'tokens/s'")
    if not high >= 10 * low:
        raise ValueError(
            f"the range {low:g} to {high:g} {unit} is too narrow for other machines: make it 10 "
            "times wider"
        )
    if not low <= value <= high:
        raise ValueError(
            f"measured {value:.3g} {unit}, expected {low:g} to {high:g} {unit}. "
            "On a much slower or faster machine widen the range in this cell and continue"
        )
    return marked(f"{rounded(value, 3)} {unit}")


def learned(value: float, low: float, high: float) -> str:
    """Two digits of a result of training, with the same marks: processors round differently, and it
    adds up.

    low, high: the range that every machine should reach with the same recipe and seeds.
    Raises: ValueError for a value outside the range.
    """
    if not low <= value <= high:
        raise ValueError(
            f"training led to {value:.4g}, expected {low:g} to {high:g}. If you changed the model "
            "or its training, change the range in this cell, too"
        )
    return marked(rounded(value, 2))
