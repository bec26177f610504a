"""Execute lessons with other seeds, and list each conclusion that falls: python tools/seeds.py

    python tools/seeds.py                     every lesson that has seeds, shifted by 1, 2 and 3
    python tools/seeds.py 05 13 --shifts 7    two lessons, their seeds higher by 7
    python tools/seeds.py --to work/seeds.md  also into a file, again after each lesson

The seeds are the global lines `SEED = 5`, `SEEDS = range(3)` and `SEEDS = (1, 2, 3)`, and nothing
else is shifted. The exercises are solved. The exit status is 1 if something fell.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from tempfile import TemporaryDirectory

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode, v4

from tinylm_classroom.course.lesson.execute import client, environment
from tinylm_classroom.course.lesson.read import Lesson, last_heading, read_lesson
from tinylm_classroom.course.lesson.transform import to_notebook
from tinylm_classroom.display import frames
from tinylm_classroom.folders import NOTEBOOKS
from tinylm_lib.files import print_anything

SHIFTS = (1, 2, 3)
CELL_SECONDS = 900  # at night other work may run beside it
COLOUR = re.compile(r"\x1b\[[\d;]*m")
ARROW = re.compile(r"^-+> *\d+ +(.*)$", re.MULTILINE)
MISSING = re.compile(r"name '(\w+)' is not defined")
# how it ends where a cell above has not filled what it makes
MISSES = ("KeyError", "IndexError")
WIDTH = 110
HEAD = "| lesson | section | where | what falls | shifts |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Fall:
    """A conclusion that falls: its lesson, section, evidence or line, and statement."""

    lesson: str
    section: str
    where: str
    statement: str


@dataclass
class Falls:
    """How each conclusion fell, as `shift: error` in the order of the runs."""

    errors: dict[Fall, dict[int, str]] = field(default_factory=dict)

    def add(self, fall: Fall, shift: int, error: str) -> None:
        """Keeps the first error of a shift."""
        self.errors.setdefault(fall, {}).setdefault(shift, error)

    def table(self) -> str:
        """In the order of the lessons; the error is that of the first shift."""
        rows = [HEAD]
        for fall, by_shift in sorted(self.errors.items(), key=lambda each: each[0].lesson):
            error = next(iter(by_shift.values()))
            said = f"{error}: `{fall.statement}`" if fall.statement else error
            fields = (fall.lesson, fall.section, fall.where, said, " ".join(map(str, by_shift)))
            rows.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in fields)} |")
        return "\n".join(rows)


def parsed(source: str) -> list[ast.stmt]:
    """The statements of a cell; none where it is not Python."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compile(source, "cell", "exec", flags).body
    except SyntaxError:
        return []


def shifted(source: str, shift: int) -> str:
    """The cell with its seeds higher by `shift`."""
    lines = source.encode().splitlines(keepends=True)  # columns are counted in bytes
    starts = [0, *accumulate(map(len, lines))]
    text = b"".join(lines)
    changes = []
    for node, new in _global_seeds(parsed(source), shift):
        start = starts[node.lineno - 1] + node.col_offset
        changes.append((start, starts[node.end_lineno - 1] + node.end_col_offset, new))
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text.decode()


def _global_seeds(body: list[ast.stmt], shift: int) -> Iterator[tuple[ast.expr, str]]:
    """The value of each global line that states seeds, and the value to write."""
    for line in body:
        match line:
            case ast.Assign([ast.Name("SEED")], ast.Constant(int(seed)) as value):
                yield value, str(seed + shift)
            case ast.Assign(
                [ast.Name("SEEDS")], ast.Call(ast.Name("range"), [ast.Constant(int(end))]) as value
            ):
                yield value, f"range({shift}, {end + shift})"
            case ast.Assign(
                [ast.Name("SEEDS")],
                ast.Call(ast.Name("range"), [ast.Constant(int(a)), ast.Constant(int(b))]) as value,
            ):
                yield value, f"range({a + shift}, {b + shift})"
            case ast.Assign([ast.Name("SEEDS")], ast.Tuple(seeds) as value):
                for seed in seeds:
                    match seed:
                        case ast.Constant(int(number)):
                            yield seed, str(number + shift)


def apart(source: str) -> list[str]:
    """The cell in pieces: each assertion alone, so that one that falls hides no other."""
    lines = source.split("\n")
    pieces = [[]]
    rest = 0
    for line in parsed(source):
        if isinstance(line, ast.Assert):
            # nothing else may stand on its lines
            pieces[-1] += lines[rest : line.lineno - 1]
            pieces += [lines[line.lineno - 1 : line.end_lineno], []]
            rest = line.end_lineno
    pieces[-1] += lines[rest:]
    return [text for piece in pieces if (text := "\n".join(piece)).strip()]


def with_other_seeds(lesson: Lesson, shift: int) -> NotebookNode | None:
    """The solved lesson, whose pieces have the ids of their cells in `metadata.of`; None if it has
    no seeds.
    """
    notebook = to_notebook(lesson, "solution")
    cells = []
    has_seeds = False
    for cell in notebook.cells:
        if cell.cell_type == "code":
            source = shifted(cell.source, shift)
            has_seeds = has_seeds or source != shifted(cell.source, shift + 1)
            raises = "raises-exception" in cell.metadata.get("tags", ())
            for piece in [source] if raises else apart(source):
                meta = {**cell.metadata, "of": cell.id}
                cells.append(v4.new_code_cell(piece, metadata=meta))
    return v4.new_notebook(cells=cells) if has_seeds else None


def fallen(lesson: Lesson, shift: int) -> Iterator[tuple[Fall, str]]:
    """Runs the lesson: what falls, and its error. What only misses what a fallen cell would have
    made is no fall of its own.
    """
    notebook = with_other_seeds(lesson, shift)
    if notebook is None:
        return
    stopped = _run(notebook)
    sections = [*accumulate(lesson.cells, _section, initial="")][1:]
    lost: set[str] = set()
    for cell in notebook.cells:
        error = next((out for out in cell.outputs if out.output_type == "error"), None)
        if error is None or "raises-exception" in cell.metadata.get("tags", ()):
            continue
        made = _made(cell.source)
        misses = error.ename in MISSES and lost & (_read(cell.source) - made)
        unmade = MISSING.search(error.evalue or "")
        follows = misses or (unmade and unmade[1] in lost - made)
        lost |= made
        if follows:
            continue
        place = int(cell.metadata.of.rsplit("-")[-1])
        of = lesson.cells[place]
        where = of.meta.get("evidence") or f"line {of.line}"
        fall = Fall(lesson.name, sections[place], where, _statement(cell, error))
        says = (error.evalue or "").strip().split("\n")[0]
        yield fall, f"{error.ename}: {says}"[:WIDTH] if says else error.ename
    if stopped:
        yield Fall(lesson.name, "", "", ""), stopped


def _run(notebook: NotebookNode) -> str:
    """Executes every cell, whatever falls; returns why it could not go on, mostly nothing."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        runs = client(notebook, folder, timeout=CELL_SECONDS, allow_errors=True)
        try:
            runs.execute(env={**environment(), frames.SWITCH: "off"})
        except (CellTimeoutError, DeadKernelError) as error:
            return str(error).strip().split("\n")[0]
    return ""


def _section(before: str, cell) -> str:
    return last_heading(cell.text, before) if cell.kind == "markdown" else before


def _made(source: str) -> set[str]:
    """The names that a cell gives to something, or to whose things it adds."""
    names = set()
    for node in chain.from_iterable(map(_at_once, parsed(source))):
        match node:
            case ast.Name(name, ast.Store()) | ast.Subscript(ast.Name(name), _, ast.Store()):
                names.add(name)
            case ast.FunctionDef(name) | ast.ClassDef(name):
                names.add(name)
            case ast.alias(name, other):
                names.add(other or name)
    return names


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and its parts, without what functions and comprehensions have inside."""
    yield node
    inside = (
        ast.FunctionDef,
        ast.Lambda,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
    )
    for child in () if isinstance(node, inside) else ast.iter_child_nodes(node):
        yield from _at_once(child)


def _read(source: str) -> set[str]:
    """The names that a cell looks up."""
    nodes = ast.walk(ast.Module(parsed(source), []))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _statement(cell: NotebookNode, error: NotebookNode) -> str:
    """The line of the cell that raised."""
    trace = COLOUR.sub("", "\n".join(error.traceback))
    arrow = ARROW.search(trace)
    line = arrow[1] if arrow else cell.source
    return line.strip().split("\n")[0][:WIDTH]


def lessons_of(numbers: Iterable[str]) -> list[Lesson]:
    """The lessons of these numbers, or all.

    Raises: ValueError for a number that no lesson has.
    """
    sources = sorted((NOTEBOOKS / "source").glob("*.py"))
    known = [source.name[:2] for source in sources]
    if unknown := set(numbers) - set(known):
        raise ValueError(f"no lesson {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [read_lesson(source) for source in sources if not numbers or source.name[:2] in numbers]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    print_anything()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", nargs="*", metavar="NN", help="lessons, of two digits")
    parser.add_argument("--shifts", type=int, nargs="+", default=SHIFTS, metavar="N")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the table here, too")
    options = parser.parse_args(argv)
    try:
        lessons = lessons_of(options.numbers)
    except ValueError as error:
        parser.error(str(error))
    seeded = [lesson for lesson in lessons if with_other_seeds(lesson, 1)]
    falls = Falls()
    for shift in options.shifts:
        for lesson in seeded:
            found = [*fallen(lesson, shift)]
            for fall, error in found:
                falls.add(fall, shift, error)
            said = f"{len(found)} fell" if found else "holds"
            print(f"{lesson.name} shift {shift}: {said}", file=sys.stderr, flush=True)
            if options.to:
                options.to.write_text(falls.table() + "\n", encoding="utf-8")
    print(falls.table() if falls.errors else f"all holds: {', '.join(x.name for x in seeded)}")
    return int(bool(falls.errors))


if __name__ == "__main__":
    raise SystemExit(main())
