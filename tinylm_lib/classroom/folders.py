"""Where the course lies on this disk, and the only list of its lessons: the names of their files."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTEBOOKS, WORK = ROOT / "notebooks", ROOT / "work"


def lessons(notebooks: Path = NOTEBOOKS) -> dict[str, str]:
    """The topic of each lesson by its number, `{"00": "start", ...}`; empty where only the library is installed."""
    return dict(path.stem.split("_", 1) for path in sorted(notebooks.glob("source/[0-9][0-9]_*.py")))
