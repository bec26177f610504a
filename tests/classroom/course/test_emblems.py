"""The emblems: every lesson has its own, which stays in its frame and has the colours of the page."""

import re
from xml.etree import ElementTree

import pytest

from tinylm_classroom.course.emblems import EMBLEMS, SIZE, emblem
from tinylm_classroom.folders import lessons

# What may be drawn at a point, and how many numbers end with that point.
COMMANDS = {"M": 2, "L": 2, "C": 2, "A": 7}


def parts(topic: str) -> list[ElementTree.Element]:
    return [*ElementTree.fromstring(emblem(f"00_{topic}.html"))]


def box(part: ElementTree.Element) -> list[float]:
    """The ends of a shape: numbers that have to be in the frame."""
    found = {name: float(value) for name, value in part.items() if re.fullmatch(r"[\d.-]+", value)}
    if part.tag == "rect":
        return [found["x"], found["y"], found["x"] + found["width"], found["y"] + found["height"]]
    if part.tag == "circle":
        return [found[middle] + sign * found["r"] for middle in ("cx", "cy") for sign in (-1, 1)]
    numbers = [
        (command, list(map(float, rest.split()))) for command, rest in re.findall("([MLCA])([^A-Z]*)", part.get("d"))
    ]
    return [number for command, each in numbers for number in each[-2 if command == "A" else 0 :]]


def test_every_lesson_has_an_emblem_of_its_own_and_another_page_has_none():
    assert list(EMBLEMS) == list(lessons().values())
    drawn = {emblem(f"{number}_{topic}.html") for number, topic in lessons().items()}
    assert len(drawn) == len(EMBLEMS) and all(drawn)
    assert emblem("10_choices.html") == emblem("index.html") == ""


@pytest.mark.parametrize("topic", EMBLEMS)
def test_it_is_a_few_shapes_in_its_frame_without_a_word_or_a_colour_of_its_own(topic):
    shapes = parts(topic)
    assert 4 < len(shapes) <= 30
    assert {shape.tag for shape in shapes} <= {"rect", "circle", "path"}
    ends = [end for shape in shapes for end in box(shape)]
    assert min(ends) >= 0 and max(ends) <= SIZE
    assert not re.search(r"#|rgb|fill=|stroke=", emblem(f"00_{topic}.html"))
    assert any("orange" in shape.get("class") or "blue" in shape.get("class") for shape in shapes)
