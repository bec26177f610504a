"""The code of a lesson, run outside of Jupyter with other values in its first lines."""

import linecache
import os
import re
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
from matplotlib import pyplot

from tinylm_classroom.course.lesson.read import read_lesson, solved
from tinylm_classroom.folders import NOTEBOOKS


def cells_up_to(lesson: str, section: str) -> list[str]:
    """The code of a lesson, solved and without its checks, from its beginning to the end of a section."""
    (source,) = NOTEBOOKS.glob(f"source/{lesson}_*.py")
    found, begun = [], False
    for cell in read_lesson(source).cells:
        heading = re.match(r"## (.*)", cell.text) if cell.kind == "markdown" else None
        if begun and heading:
            return found
        begun = begun or bool(heading and heading[1] == section)
        if cell.kind == "code" and "check" not in cell.tags:
            found.append(solved(cell.text))
    raise ValueError(f"lesson {lesson} has no section {section!r} before its last one")


def run_lesson(lesson: str, section: str, **values: Any) -> dict[str, Any]:
    """The names that its cells have defined, where lines such as `MODEL = None` say another value.

    What it has put into temporary folders is gone then. Raises ValueError for a name that no line of this form has.
    """
    matplotlib.use("agg")
    os.environ["TINYLM_WORKSHOP"] = "off"
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = cells_up_to(lesson, section)
    for name, value in values.items():
        if not any(re.search(rf"^{name} = None", text, re.M) for text in cells):
            raise ValueError(f"no line of lesson {lesson} says {name} = None")
        cells = [re.sub(rf"^{name} = None", f"{name} = {value!r}", text, flags=re.M) for text in cells]
    for i, text in enumerate(cells):
        linecache.cache[f"<cell {i}>"] = (len(text), None, text.splitlines(True), f"<cell {i}>")
        exec(compile(text, f"<cell {i}>", "exec"), names)
    pyplot.close("all")
    for value in names.values():
        if isinstance(value, TemporaryDirectory):
            value.cleanup()
    return names
