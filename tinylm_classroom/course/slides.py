"""Makes offline slides of the built lessons with reveal.js: one file each, whose views work without
a kernel.

python -m tinylm_lib slides [NN ...] [--to FOLDER] [--instructor] [--pdf]

Students' slides have no solutions and no notes; with `--instructor` NN_topic_instructor.html has
both, and the key S opens the speaker view.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import nbformat

from tinylm_lib.files import print_anything

from ..folders import NOTEBOOKS, WORK
from .cells import built_lessons, page_of, write_page
from .deck import Deck
from .handout import handout


def write_slides(
    notebooks: Path, folder: Path, numbers: Sequence[str] = (), instructor: bool = False
) -> list[Path]:
    """Writes the slides of each built lesson, or of the lessons named; returns the paths written.

    notebooks: the folder of the solution notebooks.
    Raises: ValueError for a lesson that is not built, or if slides would need the network.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ending = "_instructor" if instructor else ""
    written = []
    for number, path in built_lessons(notebooks, numbers).items():
        if not numbers or number in numbers:
            notebook = nbformat.read(path, as_version=4)
            deck = Deck(notebook, page_of(path, notebook), instructor)
            written.append(write_page(folder / f"{path.stem}{ending}.html", deck.html()))
    return written


def main(argv: Sequence[str] | None = None, notebooks: Path = NOTEBOOKS) -> int:
    """The command line; returns the exit status."""
    print_anything()
    about = __doc__.split("\n\n")[0]
    parser = ArgumentParser(prog="python -m tinylm_lib slides", description=about)
    parser.add_argument("numbers", nargs="*", metavar="NN", help="two digits: only these lessons")
    parser.add_argument(
        "--to", type=Path, default=WORK / "slides", metavar="FOLDER", help="default: work/slides"
    )
    parser.add_argument(
        "--instructor", action="store_true", help="with solutions, notes and a speaker view"
    )
    parser.add_argument(
        "--pdf", action="store_true", help="also a handout to print, through Chromium"
    )
    options = parser.parse_args(argv)
    try:
        for path in write_slides(
            notebooks / "solutions", options.to, options.numbers, options.instructor
        ):
            print(path, flush=True)
            if options.pdf:
                print(handout(path), flush=True)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
