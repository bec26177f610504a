"""The notes before sections: their form, what they are about, and the answers that they expect."""

import re

import pytest

from tinylm_classroom.course.lesson.notes import NOTE, board_work, introduces, note_problems, usual_answers
from tinylm_classroom.course.lesson.read import Cell

FORM = "\n\n".join(f"**{part}** x" for part in NOTE)
ANSWERS = """**Say.** - *no answer* (`no`): It is not.

**Usual answers.**
- *The minus is `-`* (`No minus`, or `two minus`): Write `minus`.
- *22* (prediction): Where does the arrow point?
- *Why?*: Because (`it` is so).

**Cut if short.** All of it."""


def text(words: str, **meta: object) -> Cell:
    return Cell(1, "markdown", words, meta)


def test_a_usual_answer_goes_by_the_names_in_its_brackets():
    assert [sorted(answer.names) for answer in usual_answers(ANSWERS)] == [["no minus", "two minus"], []]
    assert usual_answers(ANSWERS)[1].text == "- *22* (prediction): Where does the arrow point?"
    assert usual_answers("A note of the old form: *no* (`no`): answers.") == []


def test_only_a_note_in_the_one_form_introduces_the_section_below_it():
    assert introduces(FORM, "## 1. One")
    assert not introduces(FORM, "### More") and not introduces("Ask who knows.", "## 1. One")


def test_the_work_at_the_board_is_what_to_draw_and_what_to_ask():
    assert board_work(FORM) == 2 and board_work("**Say.** Draw. **Ask.** in a line") == 0


@pytest.mark.parametrize("heading", ["## 1. Halving", "## What you have now"])
def test_a_section_needs_its_note_directly_before_it(heading):
    title, note, section = text("# 05 Halves"), text(FORM, tags=["note"]), text(f"{heading}\nWords.")
    assert not list(note_problems([title, note, section, text("## Sources\n- A paper.")]))
    short = re.sub(r"\*\*(?:Draw|Usual answers)\.\*\* x\n\n", "", FORM)
    assert not list(note_problems([title, text(short, tags=["note"]), section]))
    untried = FORM.rpartition("\n\n")[0]
    nothing = FORM.replace("**Draw.** x", "**Draw.** None.")
    for before in (
        title,
        text(FORM),
        *(text(other, tags=["note"]) for other in (untried, nothing, FORM.replace("Say.", "Ask.", 1))),
    ):
        assert len(list(note_problems([note, before, section]))) == 1
