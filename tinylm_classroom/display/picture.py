"""A widget and its picture: in Jupyter each has an output of its own, and exactly one of the two is
seen.
"""

import os

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


def is_in_jupyter() -> bool:
    """Whether a Jupyter server has started this kernel for a notebook, so that somebody may be
    watching.
    """
    return "JPY_SESSION_NAME" in os.environ


class WithPicture:
    """A widget that is gone together with its kernel or its state, while its picture stays in the
    notebook.

    Its mime bundle has both. Outside of Jupyter this is one output, of which a reader takes what it
    can show.
    """

    _handle: DisplayHandle | None = None

    def _ipython_display_(self) -> None:
        if not is_in_jupyter():
            raise NotImplementedError  # IPython then displays the mime bundle
        bundle, metadata = self._repr_mimebundle_()
        self._handle = self._handle or DisplayHandle()
        self._handle.display(_lasting(bundle), raw=True)
        publish_display_data({WIDGET: bundle[WIDGET]}, metadata)

    def renew_picture(self) -> None:
        """Replaces the picture in the notebook by the present one; nothing if there is none."""
        if self._handle:
            bundle, _ = self._repr_mimebundle_()
            self._handle.update(_lasting(bundle), raw=True)


def _lasting(bundle: dict[str, object]) -> dict[str, object]:
    html = f'{_ONE_IS_SEEN}<div class="{_PICTURE}">{bundle["text/html"]}</div>'
    return {**{kind: data for kind, data in bundle.items() if kind != WIDGET}, "text/html": html}
