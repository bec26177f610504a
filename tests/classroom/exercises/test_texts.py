"""What a check demands is said in the lesson, and what it says is plain English."""

import re

import pytest

from tinylm_classroom import exercises
from tinylm_classroom.course.lesson.read import read_lesson
from tinylm_classroom.exercises.base import written_texts
from tinylm_classroom.folders import NOTEBOOKS

MANNERED = re.compile(
    r"\b(whoever|anew|mend(ed|s)?|ever so|is asked for|are asked for|what is no|stands? (in|at|beside|for|behind)"
    r"|beside|behind the|hears? of|never hears|are dear|put away|told)\b"
)


def words(text: str) -> str:
    """Text without its line breaks and comment signs."""
    return " ".join(re.sub(r"^\s*#+ ", "", text, flags=re.M).split())


def text_of(name: str) -> str:
    """What a student reads before and in an exercise: its section up to it, and its stub."""
    lesson = exercises.find_exercise(name).lesson
    cells = read_lesson(next((NOTEBOOKS / "source").glob(f"{lesson}_*.py"))).cells
    places = [i for i, cell in enumerate(cells) if "exercise" in cell.tags and cell.meta["name"] == name]
    assert places, f"lesson {lesson} has no exercise cell named {name}"
    at = places[0]
    start = max((i for i in range(at) if re.search("^## ", cells[i].text, re.M)), default=0)
    stub = cells[at].text.partition("# SOLUTION")[0]
    return words("\n".join([*(cell.text for cell in cells[start:at] if "note" not in cell.tags), stub]))


@pytest.mark.parametrize("name", exercises.names())
def test_each_demand_of_a_check_rests_on_words_of_the_lesson(name):
    demands = dict.fromkeys(probe.holds for probe in exercises.find_exercise(name).probes)
    rests_on = written_texts()[name].get("rests_on", {})
    assert [*rests_on] == [*demands], "in rests_on, quote the words behind each different `holds`, in their order"
    text = text_of(name)
    missing = {demand: quote for demand, quote in rests_on.items() if words(quote) not in text}
    assert not missing, f"not in the text of {name}: {missing}"


def test_the_messages_are_plain_english():
    for name in exercises.names():
        exercise = exercises.find_exercise(name)
        said = [*exercise.hints, *(text for fault in exercise.faults.values() for text in fault)]
        said += [probe.holds for probe in exercise.probes]
        assert not [text for text in said if MANNERED.search(text)], name
