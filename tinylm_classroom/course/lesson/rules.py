"""Second step: what a source must keep to, as problems that each name a line and the way to fix it.

Headers have known tags and keys. No `show(...)` of a thing comes before the exercise of its name.
Each sentence on what a part is for names the cell whose experiment could refute it:

    # %% evidence="heads-removed"          a code cell that can fail: an assert, a check,
                                           or what `measured` prints
    # - Without this head most quotations are wrong. [[heads-removed]]
"""

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator, Sequence
from statistics import median

from .claims import DECK_LINES, source_problems
from .plans import Part, parts, taught_minutes
from .read import (
    END,
    ESSENTIAL,
    EVIDENCE_MARK,
    SOLUTION,
    SOLUTION_BLOCK,
    Cell,
    Lesson,
    essential,
    solved,
    stub,
)

KEYS = {
    **dict.fromkeys(("tags", "rows"), list),
    **dict.fromkeys(("evidence", "tried", "deck", "name", "slide"), str),
    **dict.fromkeys(("minutes", "difficulty"), int),
}
TAGS = {
    "code": (
        "exercise",
        "check",
        "solution",
        "signature",
        "source-hidden",
        "raises-exception",
        "nbval-ignore-output",
    ),
    "markdown": ("solution", "note"),
}
SLIDES = ("subslide", "skip")
TRIED = ("seeds", "held-out", "exact")
BANNED = {
    r"\bclear_output\b": "nbval cannot compare clear_output: print the final state once",
    r"\bdisplay_id\b|\bupdate_display\b": (
        "nbval cannot compare display updates: display the final state once"
    ),
    r"\bimport tqdm\b|\bfrom tqdm import\b": (
        "a bare tqdm prints its speed: use `from tqdm.auto import tqdm`"
    ),
    r"\bset_matplotlib_formats\b|['\"]svg['\"]": (
        "an untrusted notebook shows no SVG: use figures.display"
    ),
}
MAX_LINES = 25
MEDIAN_LINES = 6
RUNS = re.compile(r"Runs\*? in about \d+ s\b")
TEACHES = re.compile(r"Teaches\*? in about (\d+) minutes?(?:, plus (\d+) of exercises)?\.")
# What a part of a model is for, what can be left out, what holds in general.
CLAIM = re.compile(
    r"\b(?:is|are|was|were) (?:there )?for\b(?! (?:lessons?|sections?|checking)\b)"
    r"|\bleft out\b|\bresponsible for\b|\bserves?\b|\bgenerali[sz]e"
    r"|\b(?:is|are) (?:not |never |no longer )?(?:needed|necessary)\b"
)

Problem = tuple[int, str]


def check_rules(lesson: Lesson) -> None:
    """Raises ValueError with one line per problem: file, line, what is wrong and how to fix it."""
    found = grammar_problems(lesson)
    if not found:
        found = sorted(
            [
                *title_problems(lesson.cells[0].text, parts(lesson.cells)),
                *claim_problems(lesson.cells),
                *source_problems(lesson.cells),
            ]
        )
    if found:
        raise ValueError("\n".join(f"{lesson.name}.py:{line}: {text}" for line, text in found))


def grammar_problems(lesson: Lesson) -> list[Problem]:
    """All that is outside the grammar, as (line, what and how to fix it), in the order of the
    lines.
    """
    cells = lesson.cells
    found: list[Problem] = []
    for cell in cells:
        found += _header_problems(cell)
    if not found:  # the rules below rely on well-formed headers
        for cell in cells:
            found += [*_block_problems(cell), *_banned_problems(cell), *_code_problems(cell)]
        found += [*_title_problems(lesson), *_order_problems(cells), *_length_problems(cells)]
        found = found or [*_spoiler_problems(cells)]
    return sorted(found)


def claim_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    """The marks without a cell, the cells without a mark and those that could refute nothing."""
    marks: list[tuple[Cell, str]] = []
    for cell in cells:
        if cell.kind == "markdown":
            marks += [(cell, name) for name in EVIDENCE_MARK.findall(cell.text)]
    named = [cell for cell in cells if "evidence" in cell.meta]
    names = [cell.meta["evidence"] for cell in named]
    for cell, name in marks:
        if name not in names:
            yield cell.line, f"[[{name}]] names no evidence; there is {', '.join(names) or 'none'}"
    for cell, name in zip(named, names, strict=True):
        if names.count(name) > 1:
            yield cell.line, f"give the evidence a name of its own: {name!r} is taken"
        if name not in {mark for _, mark in marks}:
            yield (
                cell.line,
                (
                    f"no claim names the evidence {name!r}: add [[{name}]] to the sentence, or "
                    "remove the key"
                ),
            )
        if not refutes(cell):
            yield (
                cell.line,
                f"the evidence {name!r} must be able to fail: add an assert of what is claimed",
            )


def refutes(cell: Cell) -> bool:
    """Whether the cell is in both copies and fails, or reports, where its claim is false.

    What depends on the reader's machine is not asserted: `measured` prints it, and the reader
    judges.
    """
    if cell.kind != "code" or {"solution", "note"} & set(cell.tags):
        return False
    nodes = list(ast.walk(ast.parse(cell.text)))
    named = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
    fails = any(isinstance(node, ast.Assert | ast.Raise) for node in nodes)
    return (
        "check" in cell.tags
        or fails
        or "measured" in named
        or any(name.startswith("assert_") for name in named)
    )


def without_evidence(cells: Sequence[Cell]) -> list[Problem]:
    """The paragraphs that say what a part is for, without a mark."""
    found = []
    for cell in cells:
        for text in re.split(r"\n\n+|\n(?=- |## )", cell.text) if cell.kind == "markdown" else ():
            if CLAIM.search(_prose(text)) and not EVIDENCE_MARK.search(text):
                found.append((cell.line, " ".join(text.split())[:160]))
    return found


def title_problems(title: str, taught: Sequence[Part]) -> Iterator[Problem]:
    """Other minutes in the title than those of the sections and exercises."""
    exercises = sum(part.minutes for part in taught if part.is_exercise)
    talk = taught_minutes(taught)
    found = TEACHES.search(" ".join(title.split()))
    if not found or (int(found[1]), int(found[2] or 0)) != (talk, exercises):
        minutes = "minutes" if talk > 1 else "minute"
        more = f", plus {exercises} of exercises" if exercises else ""
        says = f"`*Teaches* in about {talk} {minutes}{more}.`"
        yield 1, f"say in the title cell {says}, as computed"


def _header_problems(cell: Cell) -> Iterator[Problem]:
    for key, value in cell.meta.items():
        if key not in KEYS:
            yield cell.line, f"unknown {key!r} in the cell header; known keys: {', '.join(KEYS)}"
        elif type(value) is not KEYS[key]:
            yield cell.line, f"{key} must be of type {KEYS[key].__name__}, not {value!r}"
            return
    known = TAGS.get(cell.kind, ())
    for tag in cell.tags:
        if tag not in known:
            yield (
                cell.line,
                f"unknown tag {tag!r} for a {cell.kind} cell; known tags: {', '.join(known)}",
            )
    if cell.kind not in TAGS:
        yield cell.line, f"make it a code or a markdown cell, not {cell.kind}"
    if cell.meta.get("slide", SLIDES[0]) not in SLIDES:
        yield cell.line, f"slide must be one of {', '.join(SLIDES)}, not {cell.meta['slide']!r}"
    yield from ((cell.line, text) for text in _fact_problems(cell))


def _fact_problems(cell: Cell) -> Iterator[str]:
    facts = cell.meta
    exercise = "exercise" in cell.tags
    if exercise and not {"name", "minutes", "difficulty"} <= facts.keys():
        yield 'an exercise needs all three: name="softmax" minutes=10 difficulty=2'
    if not exercise and {"name", "difficulty"} & facts.keys():
        yield 'only an exercise has a name and a difficulty: remove them or add tags=["exercise"]'
    if not exercise and "minutes" in facts:
        yield "minutes belong to an exercise; those of a section are computed"
    if facts.get("tried", TRIED[0]) not in TRIED or ("tried" in facts and "evidence" not in facts):
        yield f"tried is {', '.join(TRIED)}, of a cell with evidence"
    if not 1 <= facts.get("difficulty", 1) <= 5 or facts.get("minutes", 1) < 1:
        yield "difficulty goes from 1 to 5, minutes from 1 up"


def _block_problems(cell: Cell) -> Iterator[Problem]:
    exercise = "exercise" in cell.tags
    marks = [
        line for line in map(str.strip, cell.text.split("\n")) if line in (SOLUTION, ESSENTIAL, END)
    ]
    blocks = [block[2].strip() for block in SOLUTION_BLOCK.finditer(cell.text)]
    if ESSENTIAL in marks:
        n_lines = sum(last - first + 1 for first, last in essential(cell.text))
        if (
            exercise
            or marks != [ESSENTIAL, END] * (len(marks) // 2)
            or not 1 <= n_lines <= DECK_LINES
        ):
            allowed = f"1 to {DECK_LINES} lines of a cell that is not an exercise"
            yield cell.line, f"between `{ESSENTIAL}` and `{END}` may be {allowed}"
    elif marks != [SOLUTION, END] * len(blocks):
        yield cell.line, f"close each `{SOLUTION}` with an `{END}` before the next one"
    elif blocks and not exercise:
        yield cell.line, f'remove `{SOLUTION}` and `{END}`, or add tags=["exercise"]'
    elif exercise and not (blocks and all(blocks)):
        yield cell.line, f"put the solution of the exercise between `{SOLUTION}` and `{END}`"


def _length(cell: Cell) -> int:
    return solved(cell.text).strip().count("\n") + 1


def _length_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    code = [cell for cell in cells if cell.kind == "code"]
    for cell in code:
        if _length(cell) > MAX_LINES:
            yield (
                cell.line,
                (
                    f"split the cell: it has {_length(cell)} lines, and at most {MAX_LINES} are "
                    "read in one go"
                ),
            )
    middle = median(map(_length, code)) if code else 0
    if middle > MEDIAN_LINES:
        yield (
            1,
            (
                f"split the code cells: the median is {middle:g} lines, and small cells have at "
                f"most {MEDIAN_LINES}"
            ),
        )


def _banned_problems(cell: Cell) -> Iterator[Problem]:
    for pattern, fix in BANNED.items() if cell.kind == "code" else ():
        for hit in re.finditer(pattern, cell.text):
            yield cell.line + 1 + cell.text.count("\n", 0, hit.start()), fix


def _code_problems(cell: Cell) -> Iterator[Problem]:
    if cell.kind != "code":
        return
    try:
        tree = ast.parse(cell.text)
        _ = ast.parse(stub(cell.text))
    except SyntaxError as error:
        yield (
            cell.line + (error.lineno or 1),
            f"write plain Python, without magics and shell lines ({error.msg})",
        )
        return
    tokens = [
        t
        for t in tokenize.generate_tokens(io.StringIO(cell.text).readline)
        if t.type != tokenize.COMMENT
    ]
    for token, following in itertools.pairwise(tokens):
        if token.string == ";" and not following.string.strip():
            yield (
                cell.line + token.start[0],
                "remove the `;` at the end: nbval shows the value; hide it with `_ = ...`",
            )
    defined = [getattr(node, "name", None) for node in tree.body]
    if "name" in cell.meta and cell.meta["name"] not in defined:
        yield cell.line, f"define {cell.meta['name']} in the exercise of that name"


def _title_problems(lesson: Lesson) -> Iterator[Problem]:
    first = lesson.cells[0]
    heading = f"# {lesson.number} {lesson.topic.capitalize()}"
    if first.kind != "markdown" or first.text.split("\n")[0].strip() != heading:
        yield 1, f"begin with a markdown cell whose first line is `{heading}`"
    if not RUNS.search(" ".join(first.text.split())):
        yield (
            1,
            (
                "say in the title cell how long the lesson runs: "
                "`*Runs* in about 20 s on two cores.`"
            ),
        )


def _order_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    names = set()
    waiting = None
    for cell in cells:
        if "exercise" in cell.tags:
            if waiting:
                break
            if cell.meta["name"] in names:
                yield (
                    cell.line,
                    f"give the exercise a name of its own: {cell.meta['name']!r} is taken",
                )
            names.add(cell.meta["name"])
            waiting = cell
        elif "check" in cell.tags:
            if not names:
                yield cell.line, "put the check after its exercise"
            waiting = None
    if waiting:
        yield waiting.line, 'add a cell with tags=["check"] between this exercise and the next one'


def _spoiler_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    to_come = {_spelled(cell.meta["name"]) for cell in cells if "exercise" in cell.tags}
    for cell in cells:
        to_come.discard(_spelled(cell.meta.get("name", "")))
        for call in ast.walk(ast.parse(cell.text)) if cell.kind == "code" else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "show":
                shown = {_spelled(ast.unparse(argument).split(".")[-1]) for argument in call.args}
                if early := shown & to_come:
                    yield (
                        cell.line,
                        f"show({', '.join(early)}) gives an exercise away: "
                        "move it behind the check",
                    )


def _spelled(name: str) -> str:
    return name.replace("_", "").lower()


def _prose(text: str) -> str:
    return re.sub(r"`[^`]*`|^#+ .*$|^\|.*$", " ", text, flags=re.MULTILINE)
