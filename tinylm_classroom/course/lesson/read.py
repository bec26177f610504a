"""First step: a source in the percent format becomes the cells of a lesson.

    # %% tags=["exercise"] name="softmax" minutes=10 difficulty=2
    # %% deck="Pink finds pink"          this cell is a slide with this title
    # %% deck="..." slide="subslide"     a step of the slide before it
    # %% slide="skip"                    takes none of the minutes of a class
    # %% evidence="heads-removed" tried="seeds"
                                         what each sentence marked [[heads-removed]] rests on, and
                                         how somebody tried to refute it: seeds, held-out or exact
    # %% rows=["S0-13"]                  a claim of the documents this course grew from,
                                         covered by this cell
    # %% tags=["check"]                  comes after its exercise
    # %% [markdown] tags=["solution"]    in the solution notebook only: the explanation
    # %% [markdown] tags=["note"]        for the presenter: in the solution notebook only,
                                         slide type notes
    # %% tags=["signature"]              its figure is the lesson's picture on the site,
                                         not the first one
    # %% tags=["source-hidden"]          the code is folded, its output is not
    # %% tags=["raises-exception"]       must raise, in the build and under nbval
    # %% tags=["nbval-ignore-output"]    at most one output cell in ten

An exercise holds its solution between the lines `# SOLUTION` and `# END`; a student gets
`raise NotImplementedError`. Of a longer cell a slide shows the lines between `# ESSENTIAL` and
`# END`. `rules` says what else a source must keep to.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_NAME = re.compile(r"(\d\d)_([a-z]+)\.py")
HEADER = re.compile(r"# %%(?= |$)")
HEADING = re.compile(r"^## (.+?) *$", re.MULTILINE)
# The sections that every lesson ends with.
SUMMARY = "What you have now"
UNTAUGHT = "Sources"
EVIDENCE_MARK = re.compile(r" ?\[\[([a-z][a-z0-9-]*)\]\]")
SOLUTION = "# SOLUTION"
ESSENTIAL = "# ESSENTIAL"
END = "# END"
SOLUTION_BLOCK = re.compile(rf"^( *){SOLUTION}\n(.*?)^ *{END}$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Cell:
    """One cell of a source and the line of its header."""

    line: int
    kind: str
    text: str
    meta: dict[str, Any]

    @property
    def tags(self) -> list[str]:
        """The tags of its header."""
        return self.meta.get("tags", [])


@dataclass(frozen=True)
class Lesson:
    """A lesson as its source says it: its name `NN_topic`, its number `NN`, its topic and its cells
    in order.
    """

    name: str
    number: str
    topic: str
    cells: tuple[Cell, ...]


def read_lesson(path: Path) -> Lesson:
    """Reads one source; nothing but its form is checked.

    Raises: ValueError for a file with another name, or one that is not in the percent format.
    """
    named = FILE_NAME.fullmatch(path.name)
    if not named:
        says = "rename it to NN_topic.py, two digits and one lower-case word: 05_attention.py"
        raise ValueError(f"{path.name}:1: {says}")
    text = path.read_text(encoding="utf-8")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if HEADER.match(line)]
    import jupytext  # of the extra `course`; decks and grading need only what stands below

    nodes = jupytext.reads(text, fmt="py:percent").cells
    if not nodes or len(lines) != len(nodes):
        says = "begin with a `# %%` header, and let no string hold a line that looks like one"
        raise ValueError(f"{path.name}:1: {says}")
    for node in nodes:
        node.metadata.pop("lines_to_next_cell", None)  # jupytext's own note
    both = zip(lines, nodes, strict=True)
    cells = tuple(
        Cell(line, node.cell_type, node.source, dict(node.metadata)) for line, node in both
    )
    return Lesson(path.stem, named[1], named[2], cells)


def stub(text: str) -> str:
    """The code of an exercise as a student gets it: `raise NotImplementedError` for each solution
    block.
    """
    return SOLUTION_BLOCK.sub(r"\1raise NotImplementedError", text)


def solved(text: str) -> str:
    """The code of a cell, an exercise with its solution, without the marker lines."""
    return "\n".join(
        line for line in text.split("\n") if line.strip() not in (SOLUTION, ESSENTIAL, END)
    )


def essential(text: str) -> list[list[int]]:
    """The first and the last of each group of essential lines, counted from 1 without the marker
    lines.
    """
    found = []
    n_lines = 0
    for line in map(str.strip, text.split("\n")):
        if line == ESSENTIAL:
            found.append([n_lines + 1, n_lines])
        elif line == END and found and found[-1][1] < found[-1][0]:
            found[-1][1] = n_lines
        n_lines += line not in (SOLUTION, ESSENTIAL, END)
    return found


def last_heading(text: str, section: str) -> str:
    """The last heading of the second rank in a Markdown text, or the section that it continues."""
    return [section, *HEADING.findall(text)][-1]
