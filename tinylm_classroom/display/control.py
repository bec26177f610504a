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
from .picture import WithPicture


class Control(WithPicture, interactive):
    """What a function prints and draws, below a widget for each argument; without a kernel, what it
    last showed.

    It differs from its parent in ipywidgets in that the notebook keeps the picture, and in that a
    slider waits until it is released.
    """

    def __init__(self, function: Callable[..., Any], choices: dict[str, Any]):
        self.shown = HTML()
        self.text = ""
        super().__init__(function, **choices)
        for widget in self.kwargs_widgets:
            if widget.has_trait("continuous_update"):
                widget.continuous_update = False
        self.out.close()
        self.children = [*self.kwargs_widgets, self.shown]

    def update(self, *changes: Any) -> None:
        """Runs the function with the widgets' values and shows what it printed and displayed."""
        self.kwargs = {widget._kwarg: widget.get_interact_value() for widget in self.kwargs_widgets}
        with capture_output() as caught:
            try:
                self.result = self.f(**self.kwargs)
                show_inline_matplotlib_plots()
            except Exception as error:
                if not changes:  # the cell itself fails
                    raise
                print(f"{type(error).__name__}: {error}")
        printed = caught.stdout.rstrip()
        text = [_text(output) for output in caught.outputs]
        html = [_html(output) for output in caught.outputs]
        if printed:
            text.insert(0, printed)
            html.insert(0, _preformatted(printed))
        self.text = "\n".join(text)
        self.shown.value = "".join(html)
        self.renew_picture()

    def __repr__(self) -> str:
        return f"{self._settings()}\n{self.text}"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        note = paragraph(f"{self._settings()} To change this here, run this cell in a notebook.")
        bundle = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/html": f"{note}{self.shown.value}", "text/plain": repr(self)}, {}

    def _settings(self) -> str:
        return f"Shown for {', '.join(f'{name} = {value}' for name, value in self.kwargs.items())}."


def control(function: Callable[..., Any], **choices: Any) -> Control:
    """Runs the function, and again whenever a choice is changed; to be the last line of a cell.

    function: prints, displays a figure or draws one with matplotlib. Its defaults are the first
    choices.
    choices: for each argument a slider (least, most) or (least, most, step), a menu [...], or a
    widget of ipywidgets.
    Raises ValueError for an argument without a choice, and what the function raises with its
    defaults.
    """
    return Control(function, choices)


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
