"""The library's own source, shown with its place and its lesson, and nothing else."""

import html
import inspect
import re
from typing import Any

import pytest
import torch

import tinylm_lib
from tinylm_classroom.display import cards
from tinylm_classroom.display.source import highlighted, lesson_of, place, show
from tinylm_lib import layers, preset
from tinylm_lib.attention import Attention
from tinylm_lib.feedforward import GatedMLP
from tinylm_lib.layers import RMSNorm, dropout, softmax
from tinylm_lib.model import TransformerLM


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What is displayed, bundle by bundle."""
    found: list[dict[str, str]] = []
    bundle = {"text/plain": str, "text/html": cards.Card._repr_html_}
    monkeypatch.setattr(cards, "display", lambda card: found.append({kind: f(card) for kind, f in bundle.items()}))
    return found


def test_the_source_is_shown_with_its_place_and_its_lesson_of(shown: list) -> None:
    show(softmax, RMSNorm)
    text = shown[0]["text/plain"]
    assert text.startswith(
        "softmax · tinylm_lib/layers.py · notebook 03\n\ndef softmax(x: Tensor, dim: int) -> Tensor:\n"
    )
    assert text.endswith(inspect.getsource(softmax).rstrip())
    assert shown[1]["text/plain"].startswith("RMSNorm · tinylm_lib/layers.py · notebook 04\n\nclass RMSNorm")
    page = shown[0]["text/html"]
    assert "<details>" in page and not re.search(r"<(script|style)|class=|<details open", page)


@pytest.mark.parametrize("item", [Attention.split, TransformerLM.initialise, GatedMLP.forward, RMSNorm(3).forward])
def test_a_method_is_shown_without_its_indentation_and_one_of_an_object_is_that_of_its_class(shown, item: Any) -> None:
    show(item)
    text = shown[0]["text/plain"]
    assert text.startswith(f"{item.__qualname__} · tinylm_lib/") and re.search(r"\n\n(@torch.no_grad\(\)\n)?def ", text)


def test_the_lesson_is_the_nearest_one_that_is_named() -> None:
    assert lesson_of(RMSNorm.forward) == "notebook 04", "of its class"
    assert lesson_of(Attention) == "notebooks 05 and 07", "of its file"
    assert lesson_of(dropout) == "", "its file names none"
    assert place(preset) == "tinylm_lib/presets.py"


@pytest.mark.parametrize(("item", "fix"), [
    (torch.nn.Linear, "Linear is from torch.nn.modules.linear, not from tinylm_lib"),
    (torch.softmax, "not a function, class or method"), (3, "3 is not a function"), (layers.NORMS, "not a function"),
    (RMSNorm(3), r"this is one RMSNorm, an object without a source: show\(RMSNorm\)"),
    (lambda: 0, "not from tinylm_lib"), (tinylm_lib, "not a function"),
])  # fmt: skip
def test_what_is_not_the_librarys_is_refused_with_a_fix(shown: list, item: Any, fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        show(softmax, item)
    assert shown == [], "all or nothing"


def test_highlighting_changes_no_character() -> None:
    source = inspect.getsource(layers)
    lines = highlighted(source)
    assert html.unescape(re.sub(r"<[^>]+>", "", "\n".join(lines))) == source
    assert all(line.count("<span") == line.count("</span>") for line in lines), "a line stands alone in a table"
    assert "></span>" not in "".join(lines), "nothing is set where nothing is seen"
    assert any("font-weight:700" in line for line in lines) and not re.search(r"[;\"]color:", "".join(lines))
