"""Opens the course in JupyterLab, on the student's own copies of the notebooks.

    python -m tinylm_lib lab [NN] [--work FOLDER] [--solutions] [options of JupyterLab]

The copies lie in the work folder: FOLDER, or the one that the environment variable TINYLM_WORK
names, or work/ of the course. Kept parts, caches and JupyterLab's settings are there, too. A copy
is made once and never overwritten after an edit: a newer lesson is put next to it. Started by a
JupyterHub, this becomes the server that the hub waits for.
"""

import argparse
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jupyter_server.serverapp import list_running_servers

from tinylm_lib.files import write_whole

from ..folders import NOTEBOOKS, WORK, more, usable_work
from .answers import homes, what_becomes_of
from .lesson.links import SETUP, without_links

CACHES = {
    "HF_HOME": "huggingface",
    "IPYTHONDIR": "ipython",
    "JUPYTER_CONFIG_DIR": "jupyter/config",
    "JUPYTER_DATA_DIR": "jupyter/data",
    "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
    "MPLCONFIGDIR": "matplotlib",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
    "XDG_CACHE_HOME": "",
}
_OFFLINE = (
    "--LabApp.extension_manager=readonly",  # the other one asks the package index
    # it would call npm, which writes into the home folder
    "--LanguageServerManager.autodetect=False",
    "--KernelManager.transport_encryption=auto",  # without it each kernel prints a warning
    # a browser in a snap or flatpak cannot read a file in a hidden folder
    "--ServerApp.use_redirect_file=False",
    "--ContentsManager.hide_globs=cache",
    "--ContentsManager.hide_globs=__pycache__",
    "--ServerApp.answer_yes=True",
    "--ServerApp.log_level=ERROR",
    "--LabApp.log_level=ERROR",
)
NO_ANNOUNCEMENTS = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
# With its state a view lives in a notebook that is opened again; without it only its picture is
# there. What is written about an exercise stays inside its cell.
SETTINGS = {
    "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
    "@jupyterlab/notebook-extension:tracker": {"codeCellConfig": {"lineWrap": True}},
}
# The first time JupyterLab shows the contents of the lesson in the place of the list of files.
CONTENTS = {"collapsed": False, "visible": True, "current": "@jupyterlab/toc:plugin"}
FIRST_LAYOUT = {
    "data": {"layout-restorer:data": {"left": CONTENTS, "relativeSizes": [0.2, 0.8, 0]}},
    "metadata": {"id": "default"},
}
LAYOUT_FILE = "default-37a8.jupyterlab-workspace"  # JupyterLab's name for the workspace `default`
HUB = "JUPYTERHUB_SERVICE_URL"  # set by a JupyterHub, which starts servers itself
START_SECONDS = 300
STOP_SECONDS = 10
ATTEMPTS = 3


def main(argv: Sequence[str] = ()) -> int:
    """Brings the working copies up to date and runs JupyterLab until it is stopped; returns the
    exit status.

    Raises FileNotFoundError without built notebooks, ValueError for an unknown lesson, OSError if
    Lab does not start.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tinylm_lib lab", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    says = "the lesson to open, two digits; default: the first"
    parser.add_argument("lesson", nargs="?", default="", metavar="NN", help=says)
    parser.add_argument(
        "--solutions",
        action="store_true",
        help="copy the solutions with the presenter's notes, too",
    )
    says = (
        "where your copies, kept parts and caches are; default: TINYLM_WORK, or work/ of the course"
    )
    parser.add_argument("--work", default="", metavar="FOLDER", help=says)
    parser.add_argument("--prepare", action="store_true", help="make the copies and start nothing")
    options, for_jupyter = parser.parse_known_args(list(argv))
    work = Path(os.path.expanduser(options.work or WORK)).absolute()
    folders = ["", *(["more/"] if more(NOTEBOOKS) else [])]
    folders += ["solutions/"] if options.solutions else []
    for folder in folders:
        for line in refresh(NOTEBOOKS / folder, usable_work(work) / folder):
            print(f"{folder}{line}")
    name = find_lesson(NOTEBOOKS, options.lesson)
    if options.prepare:
        return 0
    if HUB in os.environ:
        os.execve(sys.executable, command(work, name, for_jupyter), _environment(work))
    for asked in {"SIGTERM", "SIGHUP"} & vars(signal).keys():
        # nohup ignores SIGHUP, so it stays ignored
        if signal.getsignal(getattr(signal, asked)) is signal.SIG_DFL:
            signal.signal(getattr(signal, asked), _leave)
    process, url = start(work, name, for_jupyter)
    try:
        print(
            f"The course is open at\n\n    {url}\n\nCtrl-C stops it. Your notebooks are in {work}",
            flush=True,
        )
        return process.wait()
    except KeyboardInterrupt:  # the terminal has sent it to JupyterLab, too
        end(process)
        return 0
    except SystemExit:
        process.terminate()
        end(process)
        raise


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def find_lesson(notebooks: Path, number: str) -> str:
    """The file name of the lesson with this number, of the first one for an empty number.

    Raises ValueError if there is none.
    """
    names = sorted(path.name for path in notebooks.glob("*.ipynb"))
    found = [name for name in names if name.startswith(f"{number}_" if number else "")]
    if not found:
        raise ValueError(
            f"there is no lesson {number!r}; there are {', '.join(name[:2] for name in names)}"
        )
    return found[0]


def refresh(notebooks: Path, work: Path) -> list[str]:
    """Makes a working copy of each notebook that has none, or only an older one; returns one line
    for each change.

    Raises FileNotFoundError if there is no notebook to copy, ValueError for a damaged one.
    """
    paths = sorted(notebooks.glob("*.ipynb"))
    if not paths:
        raise FileNotFoundError(
            f"there is no notebook in {notebooks}; run make notebooks, or get a whole checkout"
        )
    work.mkdir(parents=True, exist_ok=True)
    for path in paths:
        if how := _damage(path):
            raise ValueError(
                f"{path} is damaged ({how}): run make notebooks, or get it back with "
                f"git checkout {path}"
            )
    built = {path.stem: _loaded(path) for path in paths}
    home = homes(built)
    return [*chain.from_iterable(_offer(new, name, work, home) for name, new in built.items())]


def start(work: Path, name: str, options: Sequence[str] = ()) -> tuple[subprocess.Popen, str]:
    """Starts JupyterLab on a folder of working copies; returns its process and the address that
    opens one of them.

    Raises OSError if it does not come up.
    """
    environment = _environment(work)
    runtime = environment["JUPYTER_RUNTIME_DIR"]
    before = {server["pid"] for server in list_running_servers(runtime)}
    deadline = time.monotonic() + START_SECONDS
    for _ in range(ATTEMPTS):
        process = subprocess.Popen(command(work, name, options), env=environment)
        listed = False
        try:
            while time.monotonic() < deadline and process.poll() is None:
                for server in list_running_servers(runtime):
                    if server["pid"] not in before and Path(server["root_dir"]) == work.resolve():
                        if _answers(server):
                            return (
                                process,
                                f"{server['url']}lab/tree/{quote(name)}?token={server['token']}",
                            )
                        listed = True
                time.sleep(0.1)
        except BaseException:
            process.terminate()
            end(process)
            raise
        if not listed:
            break
    process.terminate()
    raise OSError(
        f"JupyterLab did not start, its status is {process.wait()}: see its message above"
    )


def _answers(server: dict[str, Any]) -> bool:
    """Whether a browser would get through: Jupyter lists a server before it binds the port.

    Where many open the course at once, somebody else's server may get the port first and refuse
    this one's token.
    """
    host = "localhost" if server["hostname"] in ("*", "0.0.0.0", "::") else server["hostname"]
    try:
        with closing(HTTPConnection(host, server["port"], timeout=10)) as connection:
            connection.connect()
            if server["secure"] or server["password"]:
                return True
            connection.request("GET", f"{server['base_url']}api/status?token={server['token']}")
            return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return bool(server.get("sock"))  # a Unix socket has no port


def end(process: subprocess.Popen) -> None:
    """Waits until a JupyterLab that has to stop is gone, and kills it where it hangs on a thread of
    its own.
    """
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def command(work: Path, name: str, options: Sequence[str] = ()) -> list[str]:
    """The command line of JupyterLab: this Python's, offline and without questions, the user's
    options last.
    """
    line = [
        sys.executable,
        "-m",
        "jupyterhub.singleuser" if HUB in os.environ else "jupyterlab",
        *_OFFLINE,
        f"--ServerApp.root_dir={work.resolve()}",
    ]
    line.append(f"--LabApp.default_url=/lab/tree/{quote(name)}")
    if not _has_browser():
        line.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        line.append("--allow-root")  # in a container one is root, and Jupyter would refuse
    return [*line, *options]


def _environment(work: Path) -> dict[str, str]:
    """The caller's variables, caches in the work folder where unset, and settings: no pop-up, views
    are saved, long lines wrapped, unknown names explained.
    """
    cache = work / "cache"
    environment = {variable: str(cache / folder) for variable, folder in CACHES.items()}
    # spinning threads made training 10 times slower while other work ran
    environment["GOMP_SPINCOUNT"] = "1000"
    # Jupyter logs the address only with a token of its own
    environment["JUPYTER_TOKEN"] = secrets.token_hex(16)
    ours = {
        variable
        for variable in CACHES
        if Path(os.environ.get(variable, "")).absolute().is_relative_to(WORK)
    }
    # make sets ours
    environment |= {
        variable: value for variable, value in os.environ.items() if variable not in ours
    }
    environment["TINYLM_WORK"] = str(work)
    settings = cache / "jupyter" / "course" / "labconfig"
    settings.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("page_config", NO_ANNOUNCEMENTS),
        ("default_setting_overrides", SETTINGS),
    ):
        write_whole(settings / f"{name}.json", json.dumps(content).encode())
    layout = cache / CACHES["JUPYTER_CONFIG_DIR"] / "lab" / "workspaces" / LAYOUT_FILE
    if not layout.exists():  # later it is as the student left it
        layout.parent.mkdir(parents=True, exist_ok=True)
        write_whole(layout, json.dumps(FIRST_LAYOUT).encode())
    startup = cache / CACHES["IPYTHONDIR"] / "profile_default" / "startup" / "tinylm.py"
    startup.parent.mkdir(parents=True, exist_ok=True)
    write_whole(startup, Path(__file__).with_name("kernel_startup.py").read_bytes())
    paths = [str(settings.parent), environment.get("JUPYTER_CONFIG_PATH", "")]
    return environment | {"JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


def _has_browser() -> bool:
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _offer(built: dict[str, Any], name: str, work: Path, home: dict[str, str]) -> Iterator[str]:
    """Writes the copy where there is none or an unedited older one, next to all that the student
    has edited.

    home: the lesson of each exercise.
    """
    edited: list[Path] = []
    for suffix in chain(("", " (new)"), (f" (new {number})" for number in count(2))):
        path = work / f"{name}{suffix}.ipynb"
        old = _read(path)
        if path.exists() and old.get("version") == _version(built):
            return
        if not path.exists() or old.get("unedited"):
            write_whole(
                path, (json.dumps(_copy(built, name), indent=1, ensure_ascii=False) + "\n").encode()
            )
            if edited:
                yield from _told(name, path, edited)
                for mine in edited:
                    if not _damage(mine):
                        yield from what_becomes_of(_loaded(mine), mine.name, built, home)
            elif old:
                yield f"{name} has changed; you had not edited yours, it is now the new one"
            return
        edited.append(path)


def _told(name: str, new: Path, edited: Sequence[Path]) -> Iterator[str]:
    """Why a new copy was put next to those of the student."""
    damaged = {path: how for path in edited if (how := _damage(path))}
    for path, how in damaged.items():
        yield f"{path.stem} is damaged ({how}): a new one is {new.name}, yours stays as it is"
    if len(damaged) < len(edited):
        yield (
            f"{name} has changed, and you have edited yours: the new one is {new.name}, yours "
            "stays as it is"
        )


def _damage(path: Path) -> str:
    """How a file is damaged that should be a notebook; empty for a notebook."""
    try:
        notebook = _loaded(path)
    except UnicodeDecodeError:
        return "it is not text in UTF-8"
    except json.JSONDecodeError as error:
        return _not_json(error)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return "it has no list of cells"
    whole = all(isinstance(cell, dict) and {"cell_type", "source"} <= cell.keys() for cell in cells)
    return "" if whole else "a cell has no type or no source"


def _not_json(error: json.JSONDecodeError) -> str:
    """What happened to a text that is not JSON."""
    text = error.doc.strip("\0 \t\r\n")  # a disk that lost its power leaves zeros
    if not text:
        return "it is empty"
    if any(line.startswith(("<<<<<<< ", ">>>>>>> ")) for line in text.splitlines()):
        return "it has conflict markers of git"
    if text.startswith("<"):
        return "it is a web page"
    if text.startswith("{") and (not text.endswith("}") or error.pos >= len(error.doc.rstrip())):
        return "its end is missing"
    return f"it is not JSON in line {error.lineno}"


def _version(notebook: dict[str, Any]) -> str:
    """A digest of the text of all cells: running them, folding them or adding empty ones does not
    change it.
    """
    texts = [
        (cell["cell_type"], without_links("".join(cell["source"])))
        for cell in notebook["cells"]
        if cell.get("id") != SETUP
    ]
    return hashlib.sha256(
        json.dumps([text for text in texts if text[1].strip()]).encode()
    ).hexdigest()


def _copy(built: dict[str, Any], name: str) -> dict[str, Any]:
    blank = {"outputs": [], "execution_count": None}
    title, *rest = built["cells"]
    # here views move, and nothing has to be installed
    cells = [title | {"source": without_links("".join(title["source"]))}]
    cells += [
        cell | blank if cell["cell_type"] == "code" else cell
        for cell in rest
        if cell.get("id") != SETUP
    ]
    for cell in cells:  # an output that is not there covers nothing
        seen = {**cell.get("metadata", {}).get("jupyter", {})}
        if seen.pop("outputs_hidden", None):
            cell["metadata"] = cell["metadata"] | {"jupyter": seen}
    known = built["metadata"].get("tinylm", {}).get("lesson", name)
    metadata = built["metadata"] | {"tinylm": {"lesson": known, "version": _version(built)}}
    return built | {"cells": cells, "metadata": metadata}


def _loaded(path: Path) -> Any:
    """The JSON of a file; a mark of the byte order before it, which some editors write, does not
    matter.
    """
    return json.loads(path.read_text(encoding="utf-8-sig"))


def _read(path: Path) -> dict[str, Any]:
    """Which version a copy came from and whether it is unedited; nothing is known of other
    notebooks.
    """
    try:
        notebook = _loaded(path)
        version = notebook["metadata"]["tinylm"]["version"]
        return {"version": version, "unedited": version == _version(notebook)}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}
