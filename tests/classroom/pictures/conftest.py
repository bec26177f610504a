"""What a picture displayed: the figure and its facts."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tinylm_classroom.display import figures


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Modules of pictures in, a list out: of each figure that they display, with its facts."""

    def of(*modules: ModuleType) -> list[Any]:
        found: list[Any] = []

        def display(figure: Any, **facts: Any) -> None:
            figures.display(figure, **facts)
            found.append((figure, facts))

        for module in modules:
            monkeypatch.setattr(module, "display", display)
        return found

    return of
