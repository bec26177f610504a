"""Claims and their evidence: each sentence on what a part is for names the cell whose experiment could refute it.

    # %% evidence="heads-removed"          a code cell that can fail: an assert, a check, or what `measured` prints
    # - Without this head most quotations are wrong. [[heads-removed]]

In the notebook `[[heads-removed]]` becomes a link to the section of that cell, and nothing in that section itself.
Marks in a row share one pair of parentheses and name a section once.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from urllib.parse import quote

from .grammar import Cell, Problem

SUMMARY = "What you have now"
EVIDENCE_MARK = re.compile(r" ?\[\[([a-z][a-z0-9-]*)\]\]")
MARKS_IN_A_ROW = re.compile(rf"(?:{EVIDENCE_MARK.pattern})+")
PLAIN = "?,:&!()'"
HEADING = re.compile(r"^## (.+?) *$", re.MULTILINE)
# What a part of a model is for, what can be left out, what holds in general.
CLAIM = re.compile(
    r"\b(?:is|are|was|were) (?:there )?for\b(?! (?:lessons?|sections?|checking)\b)"
    r"|\bleft out\b|\bresponsible for\b|\bserves?\b|\bgenerali[sz]e"
    r"|\b(?:is|are) (?:not |never |no longer )?(?:needed|necessary)\b"
)


def linked(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, their marks replaced by links to the sections that hold the evidence.

    JupyterLab compares a link with a heading as it is written, so few signs are escaped.
    """
    ends = list(accumulate(cells, _heading, initial=""))  # the section before each cell, and that after the last
    places = {cell.meta["evidence"]: end for cell, end in zip(cells, ends, strict=False) if "evidence" in cell.meta}

    def link(section: str) -> str:
        number = re.match(r"(\d+)\. ", section)
        shown = f"section {number[1]}" if number else section
        return f"[{shown}](#{quote(section.replace(' ', '-'), safe=PLAIN)})"

    def links(marks: re.Match[str], before: str) -> str:
        here = _last(marks.string[: marks.start()], before)
        elsewhere = dict.fromkeys(places[name] for name in EVIDENCE_MARK.findall(marks[0]) if places[name] != here)
        return f" ({', '.join(map(link, elsewhere))})" if elsewhere else ""

    def text(cell: Cell, before: str) -> str:
        return MARKS_IN_A_ROW.sub(partial(links, before=before), cell.text) if cell.kind == "markdown" else cell.text

    return [replace(cell, text=text(cell, before)) for cell, before in zip(cells, ends, strict=False)]


def claim_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    """The marks without a cell, the cells without a mark and those that could refute nothing."""
    marks = [(cell, name) for cell in cells if cell.kind == "markdown" for name in EVIDENCE_MARK.findall(cell.text)]
    named = [cell for cell in cells if "evidence" in cell.meta]
    names = [cell.meta["evidence"] for cell in named]
    for cell, name in marks:
        if name not in names:
            yield cell.line, f"[[{name}]] names no evidence; there is {', '.join(names) or 'none'}"
    for cell, name in zip(named, names, strict=True):
        if names.count(name) > 1:
            yield cell.line, f"give the evidence a name of its own: {name!r} is taken"
        if name not in {mark for _, mark in marks}:
            yield cell.line, f"no claim names the evidence {name!r}: add [[{name}]] to the sentence, or remove the key"
        if not refutes(cell):
            yield cell.line, f"the evidence {name!r} must be able to fail: add an assert of what is claimed"


def refutes(cell: Cell) -> bool:
    """Whether the cell is in both copies and fails, or reports, where its claim is false.

    What depends on the reader's machine is not asserted: `measured` prints it, and the reader judges.
    """
    if cell.kind != "code" or {"solution", "note"} & set(cell.tags):
        return False
    nodes = list(ast.walk(ast.parse(cell.text)))
    named = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
    fails = any(isinstance(node, ast.Assert | ast.Raise) for node in nodes)
    return "check" in cell.tags or fails or "measured" in named or any(name.startswith("assert_") for name in named)


def without_evidence(cells: Sequence[Cell]) -> list[Problem]:
    """Each bullet of the summary, and each paragraph that says what a part is for, without a mark."""
    found, section = [], ""
    for cell in cells:
        for text in re.split(r"\n\n+|\n(?=- |## )", cell.text) if cell.kind == "markdown" else ():
            section = _last(text, section)
            claims = text.startswith("- ") if section == SUMMARY else CLAIM.search(_prose(text))
            if claims and not EVIDENCE_MARK.search(text):
                found.append((cell.line, " ".join(text.split())[:160]))
    return found


def _prose(text: str) -> str:
    return re.sub(r"`[^`]*`|^#+ .*$|^\|.*$", " ", text, flags=re.MULTILINE)


def _heading(section: str, cell: Cell) -> str:
    return _last(cell.text, section) if cell.kind == "markdown" else section


def _last(text: str, section: str) -> str:
    """The last heading of the second rank in the text, or the section that it continues."""
    return [section, *HEADING.findall(text)][-1]
