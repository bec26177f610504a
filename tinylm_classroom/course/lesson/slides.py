"""The slide types of a lesson: each cell with a `deck` is a slide with that title, or a step of the
slide before it, and no other cell is on one.
"""

import re
from collections.abc import Iterator

from nbformat import NotebookNode

from ...views.base import MIME

ELSEWHERE = ("predict", "watch_learning")  # learning has a page of its own, to be shown from there
SLIDES = (15, 30)  # of a lesson; steps count as the slide that they begin with


def title_of(cell: NotebookNode) -> str:
    """The title of the slide that a cell is; empty if it is none."""
    return cell.metadata.get("tinylm", {}).get("deck", "")


def is_rich(output: NotebookNode) -> bool:
    """Whether an output is a picture, a view, a trace or a card."""
    return "text/html" in output.get("data", {})


def is_prediction(cell: NotebookNode) -> bool:
    """Whether a cell asks for a prediction."""
    views = [output.get("data", {}).get(MIME) for output in cell.get("outputs", ())]
    return any(view and view["module"] == "predict" for view in views)


def mark(notebook: NotebookNode) -> None:
    """Writes `metadata.slideshow.slide_type` of each cell, as JupyterLab knows it."""
    for place, cell in enumerate(notebook.cells):
        given = cell.metadata.get("slideshow", {}).get("slide_type")
        if given != "notes":
            begins = "subslide" if given == "subslide" else "slide"
            kind = begins if title_of(cell) or place == 0 else "skip"
            cell.metadata["slideshow"] = {"slide_type": kind}


def deck_problems(notebook: NotebookNode) -> Iterator[str]:
    """What a built lesson's deck lacks: its size, views and pictures that are on no slide, asserts
    that are on one.
    """
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in notebook.cells]
    if not SLIDES[0] <= kinds.count("slide") <= SLIDES[1]:
        yield "{} slides, at least {} and at most {}".format(kinds.count("slide"), *SLIDES)
    titles = list(filter(None, map(title_of, notebook.cells)))
    for title in sorted({title for title in titles if titles.count(title) > 1}):
        yield f"give each slide a title of its own: {title!r}"
    for cell in notebook.cells:
        if title_of(cell) and re.search(r"^ *assert\b", _shown(cell), re.M):
            yield f"no assert on a slide: {title_of(cell)!r}"
        found = [output.get("data", {}).get(MIME) for output in cell.get("outputs", ())]
        shown = [view["module"] for view in found if view and view["module"] not in ELSEWHERE]
        shown += ["signature picture"] if "signature" in cell.metadata.get("tags", ()) else []
        if not title_of(cell):
            yield from (f"put the {name} of cell {cell.id} on a slide" for name in shown)


def _shown(cell: NotebookNode) -> str:
    """The code that a slide shows of a cell."""
    own = "exercise" in cell.metadata.get("tags", ())
    folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    if cell.cell_type != "code" or own or folded:
        return ""
    lines = cell.source.split("\n")
    ranges = cell.metadata["tinylm"].get("essential", [[1, len(lines)]])
    return "\n".join("\n".join(lines[first - 1 : last]) for first, last in ranges)
