"""Builds and executes the notebooks of the course, and reports which are stale.

    python -m tinylm_classroom.course.build [NN ...] [--check]

Without a number it builds what is stale; `--check` executes nothing and fails if something is
stale. Where only the address of the repository is another, nothing is executed either.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tinylm_lib.files import print_anything, write_whole

from ..folders import NOTEBOOKS, more
from .contents import PAGES, with_tables
from .lesson.counts import table_of
from .lesson.cover import cover
from .lesson.execute import execute
from .lesson.links import add_links
from .lesson.more import FOLDER, check_more, is_more
from .lesson.read import read_lesson
from .lesson.rules import check_rules
from .lesson.slides import mark
from .lesson.transform import to_notebook
from .lesson.tries import with_other_values
from .lesson.write import name_of, why_stale, write

STUDENT_SECONDS = 60
ELSEWHERE = "names another repository"


def build_notebooks(source: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Builds and executes both notebooks of one source, or the one of what goes further than a
    lesson; returns one report line for each.

    Raises: ValueError if the source is outside the grammar, a cell fails or the student's copy
    takes far too long.
    """
    report = []
    lesson = read_lesson(source)
    (check_more if is_more(source) else check_rules)(lesson)
    for role, path in _places(source, notebooks).items():
        notebook = to_notebook(lesson, role)
        add_links(notebook, name_of(source), has_deck=not is_more(source))
        if role == "solution" and (tried := with_other_values(notebook)):
            _ = execute(tried, f"{path.stem}, with the other values that its lines name")
        seconds = execute(notebook, path.stem)
        report.append(f"{_shown(path, notebooks)}: {seconds:.1f} s")
        if role == "student" and seconds > STUDENT_SECONDS:
            report[-1] += f"  WARNING: over {STUDENT_SECONDS} s; make it shorter"
            if seconds > 2 * STUDENT_SECONDS:
                raise ValueError(report[-1])
        if not is_more(source):
            mark(notebook)
        cover(notebook)
        write(notebook, path, source, role)
    return report


def stale(notebooks: Path = NOTEBOOKS) -> list[str]:
    """One line for each built notebook that is missing, stale, edited or left over: file, why, and
    what to do.
    """
    places: dict[Path, Path] = {}
    for source in [*_sources(notebooks), *_more(notebooks)]:
        places |= dict.fromkeys(_places(source, notebooks).values(), source)
    found = {
        path: f"{why}; run make notebooks"
        for path, source in places.items()
        if (why := why_stale(source, path) or (_moved(source, path) and ELSEWHERE))
    }
    built = set(notebooks.glob("*.ipynb"))
    built |= {*notebooks.glob("solutions/*.ipynb"), *notebooks.glob("more/*.ipynb")}
    found |= dict.fromkeys(built - places.keys(), "has no source; delete it")
    found |= dict.fromkeys(
        _new_pages(notebooks), "has another table of lessons; run make notebooks"
    )
    return [f"{_shown(path, notebooks)} {text}" for path, text in sorted(found.items())]


def main(argv: Sequence[str] | None = None, notebooks: Path = NOTEBOOKS) -> int:
    """The command line; returns the exit status."""
    print_anything()
    parser = ArgumentParser(
        prog="python -m tinylm_classroom.course.build", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "numbers", nargs="*", metavar="NN", help="two digits: build these lessons, stale or not"
    )
    parser.add_argument(
        "--check", action="store_true", help="execute nothing, fail if a notebook is stale"
    )
    options = parser.parse_args(argv)
    try:
        sources = _sources(notebooks, options.numbers)
        sources += _more(notebooks, options.numbers)
        if lines := stale(notebooks) if options.check else []:
            raise ValueError("\n".join(lines))
        for source in () if options.check else sources:
            if options.numbers or any(
                why_stale(source, path) for path in _places(source, notebooks).values()
            ):
                print(*build_notebooks(source, notebooks), sep="\n", flush=True)
            for role, path in _places(source, notebooks).items():
                if moved := _moved(source, path):
                    write(moved, path, source, role)
        pages = {} if options.check else _new_pages(notebooks)
        for page, text in pages.items():
            write_whole(page, text.encode())
            print(f"{page.name}: the table of lessons")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if not options.check and (lines := table_of(notebooks)):
        print(lines)
    print(
        "all notebooks are fresh"
        if options.check
        else f"up to date: {', '.join(each.stem for each in sources)}"
    )
    return 0


def _moved(source: Path, path: Path) -> NotebookNode | None:
    """A built notebook with the links of now; None if it has them, or is not there."""
    if not path.exists():
        return None
    notebook = nbformat.read(path, as_version=4)
    before = [*map(str, notebook.cells[:2])]
    add_links(notebook, name_of(source), has_deck=not is_more(source))
    return None if [*map(str, notebook.cells[:2])] == before else notebook


def _sources(notebooks: Path, numbers: Sequence[str] = ()) -> list[Path]:
    sources = sorted((notebooks / "source").glob("*.py"))
    known = [source.name[:2] for source in sources]
    if unknown := set(numbers) - set(known):
        raise ValueError(f"no lesson {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [source for source in sources if not numbers or source.name[:2] in numbers]


def _more(notebooks: Path, numbers: Sequence[str] = ()) -> list[Path]:
    """The sources of what goes further than the lessons, or than those with these numbers."""
    sources = [notebooks / "source" / FOLDER / f"{name}.py" for name in more(notebooks)]
    return [source for source in sources if not numbers or source.name[:2] in numbers]


def _new_pages(notebooks: Path) -> dict[Path, str]:
    """The pages whose table of lessons is not that of the sources, with the text that they should
    have.
    """
    sources = _sources(notebooks)
    pages = [path for name in PAGES if (path := notebooks.parent / name).exists()]
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    return {path: new for path, old in texts.items() if (new := with_tables(old, sources)) != old}


def _places(source: Path, notebooks: Path) -> dict[str, Path]:
    name = f"{source.stem}.ipynb"
    if is_more(source):
        return {"student": notebooks / FOLDER / name}
    return {"student": notebooks / name, "solution": notebooks / "solutions" / name}


def _shown(path: Path, notebooks: Path) -> str:
    return path.relative_to(notebooks.parent).as_posix()


if __name__ == "__main__":
    raise SystemExit(main())
