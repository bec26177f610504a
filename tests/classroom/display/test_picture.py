"""A widget and its picture: two outputs in Jupyter, one everywhere else, and nothing in the notebook twice."""

import sys
from types import ModuleType

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import RichOutput, capture_output

from tinylm_classroom.display.control import control
from tinylm_classroom.display.picture import WIDGET, WithPicture, is_in_jupyter
from tinylm_classroom.views.predict import predict

WIDGETS = {
    "control": lambda: control(lambda n=13: print(f"n is {n}"), n=(1, 20)),
    "view": lambda: predict("How many?", key=lambda: 2, number="a", within=0, because="It is."),
}


@pytest.fixture(params=WIDGETS)
def widget(request):
    InteractiveShell.instance()
    yield WIDGETS[request.param]()
    InteractiveShell.clear_instance()


def outputs(widget: object) -> list[RichOutput]:
    with capture_output() as caught:
        display(widget)
    return caught.outputs


def test_in_jupyter_a_picture_has_an_output_of_its_own_and_the_widget_is_in_the_next(widget, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
    picture, live = outputs(widget)
    bundle, _ = widget._repr_mimebundle_()
    assert live.data == {WIDGET: bundle.pop(WIDGET)}
    assert set(picture.data) == set(bundle)
    assert picture.data["text/html"].count(bundle["text/html"]) == 1
    assert len(picture.data["text/html"]) < len(bundle["text/html"]) + 500


def test_elsewhere_there_is_one_output_with_both(widget, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    (output,) = outputs(widget)
    assert output.data == widget._repr_mimebundle_()[0]


def test_a_control_keeps_the_picture_of_the_last_choice(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
    InteractiveShell.instance()
    widget = WIDGETS["control"]()
    first, _ = outputs(widget)
    with capture_output() as caught:
        widget.kwargs_widgets[0].value = 7
    InteractiveShell.clear_instance()
    (renewed,) = caught.outputs
    assert renewed.update and renewed.transient == first.transient
    assert "n = 7" in renewed.data["text/html"] and "n is 7" in renewed.data["text/html"]


PLACES = {
    "VS Code": lambda patch: patch.setitem(InteractiveShell.instance().user_ns, "__vsc_ipynb_file__", "lesson.ipynb"),
    "Kaggle": lambda patch: patch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive"),
    "Colab": lambda patch: patch.setitem(sys.modules, "google.colab", ModuleType("google.colab")),
}


@pytest.mark.parametrize("place", PLACES)
def test_where_a_server_runs_but_outputs_have_other_names_there_is_one_output(widget, monkeypatch, place):
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
    PLACES[place](monkeypatch)
    (output,) = outputs(widget)
    assert {WIDGET, "text/html", "text/plain"} <= set(output.data)


def test_on_colab_somebody_may_be_watching(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert not is_in_jupyter()
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    assert is_in_jupyter()


def test_a_widget_of_ipywidgets_7_has_a_bundle():
    class Seven:
        model_id = "13"

    class Widget(WithPicture, Seven):
        pass

    assert Widget()._repr_mimebundle_() == {WIDGET: {"version_major": 2, "version_minor": 0, "model_id": "13"}}
