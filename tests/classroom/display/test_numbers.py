"""Numbers as lessons print them: rounded, and marked where they depend on the machine."""

import math

import pytest

from tinylm_classroom.display.numbers import fixed, learned, measured, rounded

ROUNDED = [
    (0.0, 3, "0"), (-0.0, 3, "0"), (2, 3, "2.00"), (0.012, 3, "0.0120"), (12345, 3, "12,300"), (99.96, 3, "100"),
    (-1.56, 2, "-1.6"), (1e-7, 2, "1e-07"), (math.inf, 2, "inf"), (math.nan, 2, "nan"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "digits", "text"), ROUNDED)
def test_rounded_keeps_significant_digits(value, digits, text):
    assert rounded(value, digits) == text


def test_fixed_has_no_negative_zero():
    assert [fixed(value, 2) for value in (-0.001, 0.125, 2)] == ["0.00", "0.12", "2.00"]


def test_what_depends_on_the_machine_is_printed_between_marks():
    assert measured(12.345, "s", 1, 60) == "⟨12.3 s⟩"
    assert learned(0.8765, 0.8, 0.9) == "⟨0.88⟩"


@pytest.mark.parametrize(("call", "arguments", "message"), [
    (measured, (130.0, "s", 0.1, 60), r"measured 130 s, expected 0\.1 to 60 s\..*widen the range"),
    (measured, (0.01, "s", 0.1, 60), "measured 0.01 s"), (measured, (math.nan, "s", 0.1, 60), "measured nan s"),
    (measured, (3.0, "s", 2, 10), "too narrow for other machines"), (measured, (3.0, " ", 1, 10), "needs a unit"),
    (learned, (0.8765, 0.7, 0.8), r"training led to 0.8765, expected 0.7 to 0.8. If you changed the model"),
])  # fmt: skip
def test_what_is_out_of_order_is_refused(call, arguments, message):
    with pytest.raises(ValueError, match=message):
        call(*arguments)
