"""Every number in a lesson's prose occurs in the code or the output of its section, or is next to its source."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tinylm_classroom.course.lesson.notes import introduces

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BUILT = sorted([*NOTEBOOKS.glob("*.ipynb"), *NOTEBOOKS.glob("solutions/*.ipynb"), *NOTEBOOKS.glob("more/*.ipynb")])
# What is not a claim: other lessons and sections, years, how long something takes, code, and names with digits.
NO_CLAIM = (
    r"`[^`]*`",
    r"\]\(#[^)]*\)",  # the link of a claim to the section of its evidence
    r"(?i)\b(lessons?|sections?|notebooks?|exercises?|hints?)\s+[\d, ]+(?:(?:and|to|or)\s+\d+)?",
    r"(?m)^#+ .*$",
    r"(?m)^\|? ?\d\d \w+.*$",
    r"\(?\b(?:19|20)\d\d\b\)?",
    r"\*(?:Needs|Builds|Runs|Teaches)\*[^.]*\.",
    r"(?:fp|bf|GPT-|int|UTF-|Llama )\d+",
    r"https?://\S+",
    r"(?m)^\d+\. ",
)
TRIED = re.compile(r"(?m)^\*\*Tried\.\*\*.*$")  # of a note: what was measured outside the lesson
NUMBERED = re.compile(r"(?m)^## (\d+)\. ")
LINKED = re.compile(r"\]\(#(\d+)\.-")
NUMBER = re.compile(r"(?<![\w.\-])\d[\d,]*(?:\.\d+)?(?![\w])")


def sections(notebook) -> list[tuple[str, str]]:
    """(prose, code and outputs) of each section: from its heading of the second rank, or the note before it, on."""
    found, noted = [["", ""]], False
    cells = [cell for cell in notebook.cells if not cell.id.endswith("-plan")]  # whose numbers the build computes
    for cell, following in zip(cells, [*cells[1:], v4.new_raw_cell()], strict=True):
        is_note = introduces(cell.source, following.source)
        if is_note or (cell.cell_type == "markdown" and cell.source.startswith("## ") and not noted):
            found.append(["", ""])
        noted = is_note
        if cell.cell_type == "markdown":
            found[-1][0] += "\n\n" + cell.source
        else:
            found[-1][1] += "\n" + cell.source + nbformat.writes(v4.new_notebook(cells=[cell]))
    return [tuple(section) for section in found]


def ungrounded(notebook) -> list[str]:
    """The numbers above 2 that occur neither in their section nor in one that it links, each with its sentence."""
    bad = []
    found = sections(notebook)
    grounds = {heading[1]: ground for prose, ground in found if (heading := NUMBERED.search(prose))}
    for prose, own in found:
        if prose.lstrip().startswith("## Sources"):
            continue
        prose = TRIED.sub("", prose)
        ground = "\n".join([own, *(grounds.get(number, "") for number in LINKED.findall(prose))])
        ground = re.sub(r"[A-Za-z0-9+/=]{200,}", " ", ground)  # the bytes of pictures hold every number
        known = {number.replace(",", "") for number in re.findall(r"\d[\d,]*(?:\.\d+)?", ground)}
        for sentence in re.split(r"(?<=[.!?])(?<!al\.)\s+|\n\n|\|", prose):
            if re.search(r"\(\[?(?:Source|[A-Z]\w+ (?:et al\.|and [A-Z]\w+)?,? ?(?:19|20)\d\d)", sentence):
                continue
            text = sentence
            for pattern in NO_CLAIM:
                text = re.sub(pattern, " ", text)
            for number in NUMBER.findall(text):
                plain = number.replace(",", "").rstrip(".")
                if plain not in known and float(plain) > 2:
                    bad.append(f"{number} in: {' '.join(sentence.split())[:120]}")
    return bad


@pytest.mark.parametrize("path", BUILT, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_number_in_prose_has_its_ground(path):
    assert ungrounded(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize(("prose", "n"), [
    ("It costs 5.55 nats.", 0), ("It costs 5.54 nats.", 1),
    ("Lesson 03 and lessons 11 to 15 say more, in section 4.", 0), ("It has 10,000 words.", 0),
    ("It has 10,001 words.", 1), ("Published in 2017 (Vaswani et al. 2017): 512 wide.", 0), ("So 512 wide.", 1),
    ("It was 512 wide ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)).", 0),
    ("`x[:17]` is code, fp16 a name.", 0),
])  # fmt: skip
def test_the_search_finds_what_nothing_shows(prose, n):
    shown = v4.new_code_cell("print(5.55, 10_000)", outputs=[v4.new_output("stream", text="5.55 10000\n")])
    cells = [v4.new_markdown_cell("## 1. A section\n" + prose), shown]
    assert len(ungrounded(v4.new_notebook(cells=cells))) == n
    summary = v4.new_markdown_cell(f"## What you have now\n- {prose} ([section 1](#1.-A-section))")
    assert len(ungrounded(v4.new_notebook(cells=[cells[0], shown, summary]))) == 2 * n
