"""The fixtures of support/browser, for the tests of this folder."""

from support.browser import (  # noqa: F401
    chromium,
    exported,
    jupyterlab,
    open_exported,
    open_lesson,
    open_page,
    run_sample,
    sample,
)
