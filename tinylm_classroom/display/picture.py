"""A widget and its picture: in Jupyter each has an output of its own, and exactly one of the two is
seen.
"""

import os
import sys
from typing import Any

from IPython import get_ipython
from IPython.display import DisplayHandle, publish_display_data

WIDGET = "application/vnd.jupyter.widget-view+json"
_OUTPUT = ".jp-OutputArea-child"
_PICTURE = "tinylm-picture"
_SHOWN_WIDGET = ".lm-Panel.jp-OutputArea-output"
_LIVE = ":is(.tinylm-view, .widget-interact:not(.jupyter-widgets-disconnected))"
# A widget that lives hides the picture before it. One that does not is hidden, since JupyterLab
# shows an error there. An untrusted notebook strips this style and shows no widget.
_ONE_IS_SEEN = f"""<style>
{_OUTPUT}:has(.{_PICTURE}):has(+ {_OUTPUT} {_LIVE}),
{_OUTPUT}:has(.{_PICTURE}) + {_OUTPUT}:has(> {_SHOWN_WIDGET}):not(:has({_LIVE})) {{ display: none }}
</style>"""


_OF_A_SERVER = "JPY_SESSION_NAME"
_OF_KAGGLE = "KAGGLE_KERNEL_RUN_TYPE"
_OF_VS_CODE = "__vsc_ipynb_file__"  # among the names of a notebook


def is_in_jupyter() -> bool:
    """Whether this kernel was started for a notebook that is open, so that somebody may be
    watching.
    """
    return _OF_A_SERVER in os.environ or _is_in_colab() or _is_in_vs_code()


def _is_in_colab() -> bool:
    return "google.colab" in sys.modules


def _is_in_vs_code() -> bool:
    shell = get_ipython()
    return shell is not None and _OF_VS_CODE in shell.user_ns


def _is_in_jupyterlab() -> bool:
    """Whether the style shows one of two outputs in a row: in other places, of which some have a
    server, too, outputs are named differently.
    """
    is_elsewhere = _OF_KAGGLE in os.environ or _is_in_colab() or _is_in_vs_code()
    return _OF_A_SERVER in os.environ and not is_elsewhere


class WithPicture:
    """A widget that is gone together with its kernel or its state, while its picture stays in the
    notebook.

    Its mime bundle has both. Outside of JupyterLab this is one output, of which a reader takes what
    it can show.
    """

    _handle: DisplayHandle | None = None

    def _ipython_display_(self) -> None:
        if not _is_in_jupyterlab():
            raise NotImplementedError  # IPython then displays the mime bundle
        bundle, metadata = self._repr_mimebundle_()
        self._handle = self._handle or DisplayHandle()
        self._handle.display(_lasting(bundle), raw=True)
        publish_display_data({WIDGET: bundle[WIDGET]}, metadata)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget by its id; a widget of ipywidgets 7 has only a method that displays it."""
        above = getattr(super(), "_repr_mimebundle_", None)
        if above is not None:
            return above(**kwargs)
        return {WIDGET: {"version_major": 2, "version_minor": 0, "model_id": self.model_id}}

    def renew_picture(self) -> None:
        """Replaces the picture in the notebook by the present one; nothing if there is none."""
        if self._handle:
            bundle, _ = self._repr_mimebundle_()
            self._handle.update(_lasting(bundle), raw=True)


def _lasting(bundle: dict[str, object]) -> dict[str, object]:
    html = f'{_ONE_IS_SEEN}<div class="{_PICTURE}">{bundle["text/html"]}</div>'
    return {**{kind: data for kind, data in bundle.items() if kind != WIDGET}, "text/html": html}
