"""Last step: a notebook is written with seals, which say later whether it is still that of its
source.
"""

import hashlib
import json
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tinylm_lib.files import write_whole

from .more import is_more

MAKERS = {
    "course": "build",
    "course/lesson": (
        "claims cover execute more notes plans read rules slides transform tries write"
    ),
    "display": "cards control figures frames numbers",
    "views": "base predict",
}
CLASSROOM = Path(__file__).parents[2]
BUILDER: list[Path] = []
for room, names in MAKERS.items():
    BUILDER += [CLASSROOM / room / f"{name}.py" for name in names.split()]
LANGUAGE = {
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "pygments_lexer": "ipython3",
}
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": LANGUAGE,
}


def write(notebook: NotebookNode, path: Path, source: Path, role: str) -> None:
    """Writes an executed notebook of a source for the role `student` or `solution`."""
    notebook.metadata = {
        **KERNEL,
        "tinylm": {"lesson": name_of(source), "role": role, **seals(source, notebook)},
    }
    write_whole(path, (nbformat.writes(notebook) + "\n").encode())


def name_of(source: Path) -> str:
    """The name of a lesson, or of what goes further than one: `13_cache`, `more/13_serving`."""
    return f"more/{source.stem}" if is_more(source) else source.stem


def why_stale(source: Path, built: Path) -> str | None:
    """Why a built notebook must be built again, without executing anything; None if it is fresh."""
    if not built.exists():
        return "is missing"
    try:
        notebook = nbformat.read(built, as_version=4)
        found = notebook.metadata["tinylm"]
        wanted = seals(source, notebook)
        changed = [what for what in wanted if found[what] != wanted[what]]
    except (nbformat.reader.NotJSONError, KeyError, AttributeError):
        return "was not made by the build"
    reasons = {
        "source_sha256": "is older than its source",
        "builder_sha256": "is older than the code of the build",
    }
    return reasons.get(changed[0], "was edited by hand") if changed else None


def seals(source: Path, notebook: NotebookNode) -> dict[str, str]:
    """Digests of the source, of the code that made the notebook, and of what is in it."""

    def digest(*texts: str) -> str:
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    return {
        "source_sha256": digest(source.read_text(encoding="utf-8")),
        "builder_sha256": digest(*(path.read_text(encoding="utf-8") for path in BUILDER)),
        "content_sha256": digest(json.dumps(notebook.cells, sort_keys=True)),
    }
