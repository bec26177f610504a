"""Builds and executes the notebooks of the course, and reports which are stale.

    python -m tinylm_classroom.course.build [NN ...] [--check]

Without a number it builds what is stale; `--check` executes nothing and fails if something is stale.
"""

import hashlib
import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbformat import NotebookNode

from tinylm_lib.files import print_anything, write_whole

from ..display.picture import WIDGET
from ..folders import NOTEBOOKS
from .contents import PAGES, with_tables
from .cut import cut
from .source import read_lesson, to_notebook

MAKERS = {
    "course": "build claims cut grammar notes plans source",
    "display": "cards control figures numbers",
    "views": "base predict",
}
BUILDER = [Path(__file__).parents[1] / room / f"{name}.py" for room, names in MAKERS.items() for name in names.split()]
CELL_SECONDS, STUDENT_SECONDS = 120, 60
# Spinning threads stall on a busy machine; parts that somebody kept must not change what is built.
SETTINGS = {"GOMP_SPINCOUNT": "1000", "TINYLM_WORKSHOP": "off"}
OF_A_READER = "TINYLM_WORK"  # its folder is named in what a check prints
LANGUAGE = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3"}
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": LANGUAGE,
}


def build_notebooks(source: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Builds and executes both notebooks of one source; returns one report line for each.

    Raises: ValueError if the source is outside the grammar, a cell fails or the student's copy takes far too long.
    """
    lesson, report = read_lesson(source), []
    for role, path in _places(source, notebooks).items():
        notebook = to_notebook(lesson, role)
        seconds = execute(notebook, path.stem)
        report.append(f"{_shown(path, notebooks)}: {seconds:.1f} s")
        if role == "student" and seconds > STUDENT_SECONDS:
            report[-1] += f"  WARNING: over {STUDENT_SECONDS} s; make it shorter"
            if seconds > 2 * STUDENT_SECONDS:
                raise ValueError(report[-1])
        _tidy(notebook, path.stem)
        cut(notebook)
        notebook.metadata = {**KERNEL, "tinylm": {"lesson": lesson.name, "role": role, **_seals(source, notebook)}}
        write_whole(path, (nbformat.writes(notebook) + "\n").encode())
    return report


def execute(notebook: NotebookNode, name: str) -> float:
    """Runs the notebook in a fresh kernel and an empty folder; returns the seconds it took.

    Raises: ValueError if a cell raises or does not end, or if the lesson leaves files behind.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            coalesce_streams=True,
            extra_arguments=["--log-level=ERROR"],  # a kernel warns of its own transport at each start
            resources={"metadata": {"path": folder}},
        )
        start = perf_counter()
        try:
            client.execute(env={**SETTINGS, **{k: v for k, v in os.environ.items() if k != OF_A_READER}})
        except (CellControlSignal, DeadKernelError, TimeoutError) as error:
            raise ValueError(f"{name}: {error}") from error
        seconds, left = perf_counter() - start, os.listdir(folder)
    if left:
        raise ValueError(f"{name}: leaves {left} in its folder; lessons write into a temporary folder or work/ only")
    return seconds


def why_stale(source: Path, built: Path) -> str | None:
    """Why a built notebook must be built again, without executing anything; None if it is fresh."""
    if not built.exists():
        return "is missing"
    try:
        notebook = nbformat.read(built, as_version=4)
        found = notebook.metadata["tinylm"]
        wanted = _seals(source, notebook)
        changed = [what for what in wanted if found[what] != wanted[what]]
    except (nbformat.reader.NotJSONError, KeyError, AttributeError):
        return "was not made by the build"
    reasons = {"source_sha256": "is older than its source", "builder_sha256": "is older than the code of the build"}
    return reasons.get(changed[0], "was edited by hand") if changed else None


def stale(notebooks: Path = NOTEBOOKS) -> list[str]:
    """One line for each built notebook that is missing, stale, edited or left over: file, why, and what to do."""
    places = {path: source for source in _sources(notebooks) for path in _places(source, notebooks).values()}
    found = {path: f"{why}; run make notebooks" for path, source in places.items() if (why := why_stale(source, path))}
    built = {*notebooks.glob("*.ipynb"), *notebooks.glob("solutions/*.ipynb")}
    found |= dict.fromkeys(built - places.keys(), "has no source; delete it")
    found |= dict.fromkeys(_new_pages(notebooks), "has another table of lessons; run make notebooks")
    return [f"{_shown(path, notebooks)} {text}" for path, text in sorted(found.items())]


def main(argv: Sequence[str] | None = None, notebooks: Path = NOTEBOOKS) -> int:
    """The command line; returns the exit status."""
    print_anything()
    parser = ArgumentParser(prog="python -m tinylm_classroom.course.build", description=__doc__.split("\n")[0])
    parser.add_argument("numbers", nargs="*", metavar="NN", help="two digits: build these lessons, stale or not")
    parser.add_argument("--check", action="store_true", help="execute nothing, fail if a notebook is stale")
    options = parser.parse_args(argv)
    try:
        sources = _sources(notebooks, options.numbers)
        if lines := stale(notebooks) if options.check else []:
            raise ValueError("\n".join(lines))
        for source in () if options.check else sources:
            if options.numbers or any(why_stale(source, path) for path in _places(source, notebooks).values()):
                print(*build_notebooks(source, notebooks), sep="\n", flush=True)
        pages = {} if options.check else _new_pages(notebooks)
        for page, text in pages.items():
            write_whole(page, text.encode())
            print(f"{page.name}: the table of lessons")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("all notebooks are fresh" if options.check else f"up to date: {', '.join(each.stem for each in sources)}")
    return 0


def _sources(notebooks: Path, numbers: Sequence[str] = ()) -> list[Path]:
    sources = sorted((notebooks / "source").glob("*.py"))
    known = [source.name[:2] for source in sources]
    if unknown := set(numbers) - set(known):
        raise ValueError(f"no lesson {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [source for source in sources if not numbers or source.name[:2] in numbers]


def _new_pages(notebooks: Path) -> dict[Path, str]:
    """The pages whose table of lessons is not that of the sources, with the text that they should have."""
    sources = _sources(notebooks)
    pages = [path for name in PAGES if (path := notebooks.parent / name).exists()]
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    return {path: new for path, old in texts.items() if (new := with_tables(old, sources)) != old}


def _places(source: Path, notebooks: Path) -> dict[str, Path]:
    name = f"{source.stem}.ipynb"
    return {"student": notebooks / name, "solution": notebooks / "solutions" / name}


def _shown(path: Path, notebooks: Path) -> str:
    return path.relative_to(notebooks.parent).as_posix()


def _seals(source: Path, notebook: NotebookNode) -> dict[str, str]:
    def digest(*texts: str) -> str:
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    return {
        "source_sha256": digest(source.read_text(encoding="utf-8")),
        "builder_sha256": digest(*(path.read_text(encoding="utf-8") for path in BUILDER)),
        "content_sha256": digest(json.dumps(notebook.cells, sort_keys=True)),
    }


def _tidy(notebook: NotebookNode, name: str) -> None:
    """Takes from the outputs what differs from run to run and refuses what nbval could not compare."""
    for cell in notebook.cells:
        outputs = cell.get("outputs", ())
        raised = any(output.output_type == "error" for output in outputs)
        if "raises-exception" in cell.metadata.get("tags", ()) and not raised:
            raise ValueError(f"{name}: a cell tagged raises-exception does not raise any more\n{cell.source}")
        for output in outputs:
            data = output.get("data", {})
            data.pop(WIDGET, None)
            if any(kind.startswith("image/") for kind in data):
                raise ValueError(f"{name}: nothing compares a bare picture: use figures.display\n{cell.source}")
            if output.get("name") == "stderr":
                raise ValueError(f"{name}: a cell writes to stderr: {output.text.strip()}\n{cell.source}")
            if output.output_type == "error":  # its frames name the files of this machine
                output.traceback = [f"{output.ename}: {output.evalue}"]


if __name__ == "__main__":
    raise SystemExit(main())
