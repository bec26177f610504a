"""Sliders and menus for the arguments of a function: what it prints and draws is shown again for
each choice.
"""

from collections.abc import Callable
from html import escape
from typing import Any

from IPython.utils.capture import RichOutput, capture_output
from ipywidgets import HTML, interactive
from ipywidgets.widgets.interaction import show_inline_matplotlib_plots

from .cards import WRAPPED, paragraph
from .frames import MIME, MOST_FRAMES, Chance, are_wanted, choice_of, stored
from .picture import WithPicture


class Control(WithPicture, interactive):
    """What a function prints and draws, below a widget for each argument; without a kernel, what it
    last showed.

    It differs from its parent in ipywidgets in that the notebook keeps the picture, and in that a
    slider waits until it is released. In a build of the course it also has the frames that a page
    without a kernel steps through.
    """

    def __init__(
        self, function: Callable[..., Any], choices: dict[str, Any], frames: int = MOST_FRAMES
    ):
        self.shown = HTML()
        self.text = ""
        self.frames: dict[str, Any] | None = None
        before = Chance()
        super().__init__(function, **choices)
        for widget in self.kwargs_widgets:
            if widget.has_trait("continuous_update"):
                widget.continuous_update = False
        self.out.close()
        self.children = [*self.kwargs_widgets, self.shown]
        if are_wanted():
            known = [choice_of(widget) for widget in self.kwargs_widgets]
            self.frames = stored(known, self._frame, self.shown.value, before, frames)

    def update(self, *changes: Any) -> None:
        """Runs the function with the widgets' values and shows what it printed and displayed."""
        self.kwargs = {widget._kwarg: widget.get_interact_value() for widget in self.kwargs_widgets}
        self.text, self.shown.value = self._run(self.kwargs, may_fail=not changes)
        self.renew_picture()

    def _run(self, arguments: dict[str, Any], may_fail: bool) -> tuple[str, str]:
        """What the function prints and displays, as text and as HTML; if it may not fail, its error
        is printed.
        """
        with capture_output() as caught:
            try:
                self.result = self.f(**arguments)
                show_inline_matplotlib_plots()
            except Exception as error:
                if may_fail:
                    raise
                print(f"{type(error).__name__}: {error}")
        printed = caught.stdout.rstrip()
        text = [_text(output) for output in caught.outputs]
        html = [_html(output) for output in caught.outputs]
        if printed:
            text.insert(0, printed)
            html.insert(0, _preformatted(printed))
        return "\n".join(text), "".join(html)

    def _frame(self, arguments: dict[str, Any]) -> str:
        result = self.result
        html = self._run(arguments, may_fail=False)[1]
        self.result = result
        return html

    def __repr__(self) -> str:
        return f"{self._settings()}\n{self.text}"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        note = paragraph(f"{self._settings()} To change this here, run this cell in a notebook.")
        bundle = super()._repr_mimebundle_(**kwargs)
        ours = {"text/html": f"{note}{self.shown.value}", "text/plain": repr(self)}
        frames = {} if self.frames is None else {MIME: self.frames}
        return {**bundle, **ours, **frames}, {}

    def _settings(self) -> str:
        return f"Shown for {', '.join(f'{name} = {value}' for name, value in self.kwargs.items())}."


def control(function: Callable[..., Any], *, frames: int = MOST_FRAMES, **choices: Any) -> Control:
    """Runs the function, and again whenever a choice is changed; to be the last line of a cell.

    function: prints, displays a figure or draws one with matplotlib. Its defaults are the first
    choices.
    choices: for each argument a slider (least, most) or (least, most, step), a menu [...], or a
    widget of ipywidgets.
    frames: how many settings the build of the course stores at most, for pages without a kernel;
    fewer where the function is slow.
    Raises ValueError for an argument without a choice, and what the function raises with its
    defaults.
    """
    return Control(function, choices, frames)


def _html(output: RichOutput) -> str:
    if "text/html" in output.data:
        return output.data["text/html"]
    if "image/png" in output.data:
        picture = f"data:image/png;base64,{output.data['image/png'].strip()}"
        return f'<img alt="What the function drew" style="max-width:100%" src="{picture}">'
    return _preformatted(_text(output))


def _text(output: RichOutput) -> str:
    return output.data.get("text/plain", "")


def _preformatted(text: str) -> str:
    return f'<pre style="margin:6px 0;{WRAPPED}">{escape(text)}</pre>'
