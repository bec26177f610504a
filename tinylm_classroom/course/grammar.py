"""The grammar of a lesson's source: which tags and keys a cell may carry, and what its text must keep to.

    # %% [markdown] plan=80                         a section that a class of 50 minutes leaves out; 110: also one of 80
    # %% tags=["exercise"] name="softmax" minutes=10 difficulty=2 plan=80
    # %% [markdown] slide="say"                     said, not shown: on a slide it is in the speaker's notes
    # %% evidence="heads-removed"                   what each sentence marked [[heads-removed]] rests on
    # %% rows=["S0-13"]                             a claim of the documents this course grew from, covered by this cell
    # %% tags=["check"]                             comes after its exercise
    # %% [markdown] tags=["solution"]               in the solution notebook only: the explanation
    # %% [markdown] tags=["note"]                   for the presenter: in the solution notebook only, slide type notes
    # %% tags=["signature"]                         its figure is the lesson's picture on the site, not the first one
    # %% tags=["source-hidden"]                     the code is folded, its output is not
    # %% tags=["raises-exception"]                  must raise, in the build and under nbval
    # %% tags=["nbval-ignore-output"]               at most one output cell in ten

No `show(...)` of a thing comes before the exercise of its name. An exercise holds its solution between the lines
`# SOLUTION` and `# END`; a student gets `raise NotImplementedError`. In other cells of more than 12 lines a slide shows
the lines between `# ESSENTIAL` and `# END`. `notes` says how a note is written, `plans` how minutes are computed.
"""

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

KEYS = {
    **dict.fromkeys(("tags", "rows"), list),
    **dict.fromkeys(("evidence", "name", "slide"), str),
    **dict.fromkeys(("minutes", "difficulty", "plan"), int),
}
TAGS = {
    "code": ("exercise", "check", "solution", "signature", "source-hidden", "raises-exception", "nbval-ignore-output"),
    "markdown": ("solution", "note"),
}
SLIDES = ("slide", "subslide", "fragment", "skip", "say")
PLANS = (50, 80, 110)
BANNED = {
    r"\bclear_output\b": "nbval cannot compare clear_output: print the final state once",
    r"\bdisplay_id\b|\bupdate_display\b": "nbval cannot compare display updates: display the final state once",
    r"\bimport tqdm\b|\bfrom tqdm import\b": "a bare tqdm prints its speed: use `from tqdm.auto import tqdm`",
    r"\bset_matplotlib_formats\b|['\"]svg['\"]": "an untrusted notebook shows no SVG: use figures.display",
}
MAX_LINES, MEDIAN_LINES, SLIDE_LINES = 25, 6, 12
SOLUTION, ESSENTIAL, END = "# SOLUTION", "# ESSENTIAL", "# END"
SOLUTION_BLOCK = re.compile(rf"^( *){SOLUTION}\n(.*?)^ *{END}$", re.MULTILINE | re.DOTALL)
RUNS = re.compile(r"Runs\*? in about \d+ s\b")

Problem = tuple[int, str]


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


def stub(text: str) -> str:
    """The code of an exercise as a student gets it: `raise NotImplementedError` for each solution block."""
    return SOLUTION_BLOCK.sub(r"\1raise NotImplementedError", text)


def solved(text: str) -> str:
    """The code of a cell, an exercise with its solution, without the marker lines."""
    return "\n".join(line for line in text.split("\n") if line.strip() not in (SOLUTION, ESSENTIAL, END))


def essential(text: str) -> list[list[int]]:
    """The first and the last of each group of essential lines, counted from 1 without the marker lines."""
    found, n_lines = [], 0
    for line in map(str.strip, text.split("\n")):
        if line == ESSENTIAL:
            found.append([n_lines + 1, n_lines])
        elif line == END and found and found[-1][1] < found[-1][0]:
            found[-1][1] = n_lines
        n_lines += line not in (SOLUTION, ESSENTIAL, END)
    return found


def grammar_problems(cells: Sequence[Cell], number: str, topic: str) -> list[Problem]:
    """All that is outside the grammar, as (line, what and how to fix it), in the order of the lines."""
    found = [problem for cell in cells for problem in _header_problems(cell)]
    if not found:  # the rules below rely on well-formed headers
        rules = (_block_problems, _banned_problems, _code_problems)
        found = [problem for cell in cells for rule in rules for problem in rule(cell)]
        found += [*_title_problems(cells, number, topic), *_order_problems(cells), *_length_problems(cells)]
        found = found or [*_spoiler_problems(cells)]
    return sorted(found)


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
            yield cell.line, f"unknown tag {tag!r} for a {cell.kind} cell; known tags: {', '.join(known)}"
    if cell.kind not in TAGS:
        yield cell.line, f"make it a code or a markdown cell, not {cell.kind}"
    if cell.meta.get("slide", SLIDES[0]) not in SLIDES:
        yield cell.line, f"slide must be one of {', '.join(SLIDES)}, not {cell.meta['slide']!r}"
    yield from ((cell.line, text) for text in _fact_problems(cell))


def _fact_problems(cell: Cell) -> Iterator[str]:
    facts, exercise = cell.meta, "exercise" in cell.tags
    if exercise and not {"name", "minutes", "difficulty"} <= facts.keys():
        yield 'an exercise needs all three: name="softmax" minutes=10 difficulty=2'
    if not exercise and {"name", "difficulty"} & facts.keys():
        yield 'only an exercise has a name and a difficulty: remove them or add tags=["exercise"]'
    if not exercise and "minutes" in facts:
        yield "minutes belong to an exercise; those of a section are computed"
    if "plan" in facts and (facts["plan"] not in PLANS[1:] or not (exercise or re.search("^## ", cell.text, re.M))):
        yield f"plan is {PLANS[1]} or {PLANS[2]}, of an exercise or of the cell with the heading of a section"
    if not 1 <= facts.get("difficulty", 1) <= 5 or facts.get("minutes", 1) < 1:
        yield "difficulty goes from 1 to 5, minutes from 1 up"


def _block_problems(cell: Cell) -> Iterator[Problem]:
    exercise = "exercise" in cell.tags
    marks = [line for line in map(str.strip, cell.text.split("\n")) if line in (SOLUTION, ESSENTIAL, END)]
    blocks = [block[2].strip() for block in SOLUTION_BLOCK.finditer(cell.text)]
    if ESSENTIAL in marks:
        n_lines = sum(last - first + 1 for first, last in essential(cell.text))
        if exercise or marks != [ESSENTIAL, END] * (len(marks) // 2) or not 1 <= n_lines <= SLIDE_LINES:
            allowed = f"1 to {SLIDE_LINES} lines of a cell that is not an exercise"
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
            yield cell.line, f"split the cell: it has {_length(cell)} lines, and at most {MAX_LINES} are read in one go"
    middle = median(map(_length, code)) if code else 0
    if middle > MEDIAN_LINES:
        yield 1, f"split the code cells: the median is {middle:g} lines, and small cells have at most {MEDIAN_LINES}"


def _banned_problems(cell: Cell) -> Iterator[Problem]:
    for pattern, fix in BANNED.items() if cell.kind == "code" else ():
        for hit in re.finditer(pattern, cell.text):
            yield cell.line + 1 + cell.text.count("\n", 0, hit.start()), fix


def _code_problems(cell: Cell) -> Iterator[Problem]:
    if cell.kind != "code":
        return
    try:
        tree, _ = ast.parse(cell.text), ast.parse(stub(cell.text))
    except SyntaxError as error:
        yield cell.line + (error.lineno or 1), f"write plain Python, without magics and shell lines ({error.msg})"
        return
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(cell.text).readline) if t.type != tokenize.COMMENT]
    for token, following in itertools.pairwise(tokens):
        if token.string == ";" and not following.string.strip():
            yield cell.line + token.start[0], "remove the `;` at the end: nbval shows the value; hide it with `_ = ...`"
    if "name" in cell.meta and cell.meta["name"] not in [getattr(node, "name", None) for node in tree.body]:
        yield cell.line, f"define {cell.meta['name']} in the exercise of that name"


def _title_problems(cells: Sequence[Cell], number: str, topic: str) -> Iterator[Problem]:
    title, heading = " ".join(cells[0].text.split()), f"# {number} {topic.capitalize()}"
    if cells[0].kind != "markdown" or cells[0].text.split("\n")[0].strip() != heading:
        yield 1, f"begin with a markdown cell whose first line is `{heading}`"
    if not RUNS.search(title):
        yield 1, "say in the title cell how long the lesson runs: `*Runs* in about 20 s on two cores.`"


def _order_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    names, waiting = set(), None
    for cell in cells:
        if "exercise" in cell.tags:
            if waiting:
                break
            if cell.meta["name"] in names:
                yield cell.line, f"give the exercise a name of its own: {cell.meta['name']!r} is taken"
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
                    yield cell.line, f"show({', '.join(early)}) gives an exercise away: move it behind the check"


def _spelled(name: str) -> str:
    return name.replace("_", "").lower()
