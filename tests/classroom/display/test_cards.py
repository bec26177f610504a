"""What a message marks, and what it leaves as it is: in HTML, as plain text, and in every message of the course."""

import ast
import re
from collections.abc import Callable, Iterator
from html import unescape

import pytest

from tinylm_classroom.checks.check import READY_MADE
from tinylm_classroom.checks.wording import ADVICE
from tinylm_classroom.clinic.causes import CAUSES
from tinylm_classroom.clinic.patients import PATIENTS
from tinylm_classroom.display import cards
from tinylm_classroom.display.cards import COLUMNS, inline, message, show_text, unmarked
from tinylm_classroom.exercises import EXERCISES
from tinylm_classroom.folders import ROOT

MARKED = {
    "it grows like the *root* of `d_k`": "it grows like the <em>root</em> of <code>d_k</code>",
    "*its own* top, **not** this": "<em>its own</em> top, <strong>not</strong> this",
    "(*adds*), “*says*”.": "(<em>adds</em>), “<em>says</em>”.",
    "*the `mask`*": "<em>the <code>mask</code></em>",
    "`a * b` and `*args, **more`": "<code>a * b</code> and <code>*args, **more</code>",
    "1 < 2 & `a < b`": "1 &lt; 2 &amp; <code>a &lt; b</code>",
}
UNMARKED = [
    *("a * b", "2 * 3 * 4", "2*3*4", "d_k ** -0.5", "x**2 + y**2", "f(*args, *more)", "f(*args, **more)"),
    *("*.py and *.js", "a*b*c", "* one\n* two", "**", "* *", "***", "2 ** 3 ** 4", "snake_case_name", "_so_"),
    *("a ` alone", "half of *it"),
]  # fmt: skip


def spoken(call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call in a lesson that are shown as messages."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name == "predict":
        yield from call.args
    wanted = {"because", "choices", "feedback", "ranking"} if name == "predict" else {"caption"}
    yield from (word.value for word in call.keywords if word.arg in wanted)


def texts_in(part: ast.expr) -> Iterator[str]:
    """The texts of an expression; what an f-string fills in is 0."""
    if isinstance(part, ast.JoinedStr):
        yield "".join(piece.value if isinstance(piece, ast.Constant) else "0" for piece in part.values)
    elif isinstance(part, ast.Constant):
        yield from [part.value] * isinstance(part.value, str)
    else:
        for child in ast.iter_child_nodes(part):
            yield from texts_in(child)


def messages() -> Iterator[tuple[str, str]]:
    """Every message of exercises, checks, the clinic, and of the lessons' questions and captions."""
    for name, exercise in EXERCISES.items():
        yield from ((name, text) for fault in exercise.faults.values() for text in fault)
        yield from ((name, text) for text in [*exercise.hints, *(probe.holds for probe in exercise.probes)])
    for case in PATIENTS:
        yield from ((case.name, text) for text in (case.complaint, *case.hints))
    yield from (("causes", cause.text) for cause in CAUSES.values())
    yield from (("advice", text) for text in [*ADVICE.values(), READY_MADE])
    for path in sorted((ROOT / "notebooks" / "source").glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield from ((path.stem, text) for part in spoken(node) for text in texts_in(part))


def words_of(html: str) -> str:
    return unescape(re.sub("<[^>]+>", "", html))


@pytest.mark.parametrize("text", MARKED)
def test_what_is_marked_is_set(text):
    html = re.sub(' style="[^"]*"', "", inline(text))
    assert html == MARKED[text] and unmarked(text) == words_of(html)


@pytest.mark.parametrize("text", UNMARKED)
def test_what_is_not_marked_stays(text):
    assert inline(text) == unmarked(text) == text


def test_no_message_of_the_course_shows_its_marks():
    found, places = 0, set()
    for place, text in messages():
        html = inline(text)
        outside = words_of(re.sub("<code.*?</code>", "0", html))
        assert not re.search(r"`|(?<!\w)\*+\w|\w\*+(?!\w)", outside), (place, text)
        assert unmarked(text) == words_of(html), (place, text)
        found += html != text
        places.add(place)
    assert found > 150 and {*EXERCISES} < places and len(places) > len(EXERCISES) + len(PATIENTS) + 20


def test_a_message_has_no_marks_in_a_terminal():
    shown = message("attention: by d_k", ["It is the *root* of `d_k`."])
    assert str(shown) == "attention: by d_k\nIt is the root of d_k." and "<em>root</em>" in shown.html


@pytest.fixture
def shown(monkeypatch) -> Callable[..., tuple[str, str]]:
    """A function that shows texts and returns the HTML and the plain text that a cell would get."""
    found = []
    monkeypatch.setattr(cards, "display", found.append)

    def shown(texts) -> tuple[str, str]:
        show_text(texts)
        card = found.pop()
        return card._repr_html_(), str(card)

    return shown


STORY = "One day, calm Mia had a *red* kite & a `pin`. " * 9 + "\n\n    Then <she> ran home."


def test_a_text_is_wrapped_at_words_and_keeps_its_lines_and_signs(shown):
    html, text = shown(f"\n{STORY}\n")
    assert "white-space:pre-wrap" in html and words_of(html) == STORY
    lines = text.split("\n")
    assert max(map(len, lines)) <= COLUMNS and text.split() == STORY.split()
    assert lines[-2:] == ["", "    Then <she> ran home."] and len(lines) == 8


def test_several_texts_are_labelled(shown):
    html, text = shown({"temperature `0.3`": "Mia ran.", "temperature `3`": "kite the"})
    assert words_of(html) == "temperature 0.3Mia ran.temperature 3kite the"
    assert text == "temperature 0.3:\nMia ran.\n\ntemperature 3:\nkite the"
    assert shown(["Mia ran.", "kite the"])[1] == "Mia ran.\n\nkite the"


def test_a_text_without_words_to_wrap_at_is_shown_whole(shown):
    assert shown("x" * 200)[1] == "x" * 200
    assert words_of(shown("")[0]) == shown("")[1] == ""


def test_a_text_is_read_in_an_untrusted_notebook_and_in_both_themes(shown):
    html, _ = shown("Mia ran.")
    assert not re.search(r"class=|<style|<script|[;\"](color|background):", html)
