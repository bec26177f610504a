"""A control: what is shown first, what a change shows, and what stays where there is no kernel."""

import pytest
from ipywidgets import IntSlider, SelectionSlider

from tinylm_classroom.display.control import control


def table(base: int = 3, unit: str = "cm") -> None:
    print(f"<{2 * base}> {unit}")


def bundle(shown) -> dict:
    return shown._repr_mimebundle_()[0]


def test_the_defaults_of_the_function_are_shown_first_and_stay_where_no_kernel_is():
    shown = control(table, base=(1, 9), unit=["mm", "cm"])
    assert repr(shown) == bundle(shown)["text/plain"] == "Shown for base = 3, unit = cm.\n<6> cm"
    assert "base = 3, unit = cm" in bundle(shown)["text/html"] and "&lt;6&gt; cm</pre>" in bundle(shown)["text/html"]
    assert any("widget" in kind for kind in bundle(shown))


def test_a_change_runs_the_function_again():
    shown = control(table, base=(1, 9), unit=["mm", "cm"])
    base, unit = shown.kwargs_widgets
    base.value, unit.value = 7, "mm"
    assert "14&gt; mm" in shown.shown.value and "6" not in shown.shown.value.split("pre-wrap")[1]
    assert shown.children == (base, unit, shown.shown)


def test_a_slider_waits_until_it_is_released_and_widgets_of_ipywidgets_are_taken_as_they_are():
    own = SelectionSlider(options=[1, 10, 100])
    shown = control(table, base=own, unit=["mm"])
    assert shown.kwargs_widgets[0] is own and not own.continuous_update
    assert not control(table, base=(1, 9), unit=["mm"]).kwargs_widgets[0].continuous_update
    assert isinstance(control(table, base=(1, 9), unit=["mm"]).kwargs_widgets[0], IntSlider)


def test_an_error_stops_the_cell_at_first_and_is_shown_later():
    def half(n: int = 0) -> None:
        print(1 / n)

    with pytest.raises(ZeroDivisionError):
        control(half, n=(0, 4))

    def other(n: int = 2) -> None:
        print(1 / n)

    shown = control(other, n=(0, 4))
    shown.kwargs_widgets[0].value = 0
    assert "ZeroDivisionError: division by zero" in shown.shown.value and "0.5" not in shown.shown.value


def test_what_has_no_choice_is_refused():
    with pytest.raises(ValueError, match="unit"):
        control(lambda base, unit: None, base=(1, 9))
