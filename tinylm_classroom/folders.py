"""Where the course lies on this disk, and the only list of its lessons: their file names."""

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from tinylm_lib.files import work_folder

ROOT = Path(__file__).parents[1]
PACKAGES = ("tinylm_lib", Path(__file__).parent.name)
NOTEBOOKS = ROOT / "notebooks"
# In a checkout; where only the library is installed, in the folder where one works, as for a
# training run.
WORK = work_folder(ROOT / "work" if NOTEBOOKS.is_dir() else Path("work")).absolute()


def usable_work(folder: Path = WORK) -> Path:
    """A work folder, made where it is missing so that nobody but its owner can open it.

    Raises ValueError for one that is part of the course, OSError for one that cannot be written.
    """
    if folder.is_relative_to(ROOT) and not folder.is_relative_to(ROOT / "work"):
        raise ValueError(
            f"the work folder {folder} is part of the course; choose one outside {ROOT}, or leave "
            "it out"
        )
    choose = "choose another one with TINYLM_WORK"
    if NOTEBOOKS.is_dir():
        choose += " or lab --work, for example lab --work ~/tinylm"
    return private_folder(folder, f"the work folder {folder}", choose)


def private_folder(folder: Path, name: str, choose: str) -> Path:
    """A folder, made where it is missing so that nobody but its owner can open it.

    name: what a refusal calls it. choose: what a refusal recommends.
    Raises OSError for one that cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise OSError(f"{name} cannot be written ({error.strerror}); {choose}") from None


def lessons(notebooks: Path = NOTEBOOKS) -> dict[str, str]:
    """The topic of each lesson by its number, `{"00": "start", ...}`; empty where only the library
    is installed.
    """
    return dict(
        path.stem.split("_", 1) for path in sorted(notebooks.glob("source/[0-9][0-9]_*.py"))
    )


def more(notebooks: Path = NOTEBOOKS) -> list[str]:
    """The names of the notebooks that go further than a lesson, such as `13_serving` after
    `13_cache`.
    """
    return sorted(path.stem for path in notebooks.glob("source/more/[0-9][0-9]_*.py"))


def has_lessons() -> bool:
    """Whether lessons can be opened here: there are notebooks, and some of what runs them.

    Otherwise the library alone is installed, from a checkout or without one.
    """
    return NOTEBOOKS.is_dir() and any(map(find_spec, ("jupyterlab", "ipywidgets", "anywidget")))


def own(name: str) -> str:
    """The text of a file of the classroom, such as course/page.html."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
