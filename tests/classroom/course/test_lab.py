"""Working copies that are never overwritten after an edit, and a JupyterLab that starts without questions."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import nbformat
import pytest
from jupyterlab_server.settings_utils import _get_overrides
from nbformat import v4

from tinylm_classroom.course import lab
from tinylm_classroom.folders import ROOT

NAME, NEW = "05_attention.ipynb", "05_attention (new).ipynb"
CHANGED = f"05_attention has changed, and you have edited yours: the new one is {NEW}, yours stays as it is"


def build(notebooks: Path, text: str = "x = 1", name: str = NAME, printed: str = "1") -> None:
    cells = [
        v4.new_markdown_cell("# 05 Attention", metadata={"slideshow": {"slide_type": "slide"}}),
        v4.new_code_cell(text, execution_count=3, outputs=[v4.new_output("stream", text=printed)]),
    ]
    seals = {"tinylm": {"source_sha256": "1", "content_sha256": "2"}}
    notebooks.mkdir(exist_ok=True)
    nbformat.write(v4.new_notebook(cells=cells, metadata=seals), notebooks / name)


def code(path: Path) -> str:
    return nbformat.read(path, as_version=4).cells[1].source


def change(path: Path, edit) -> None:
    notebook = nbformat.read(path, as_version=4)
    edit(notebook.cells)
    nbformat.write(notebook, path)


def rewrite(cells, text="mine = 1"):
    cells[1].source = text


def ran(cells):
    cells[1].outputs, cells[1].execution_count = [v4.new_output("stream", text="1")], 1


def folded(cells):
    cells[1].metadata["jupyter"] = {"source_hidden": True}


@pytest.fixture
def folders(tmp_path):
    """A folder of built notebooks and one of working copies, both with one lesson."""
    notebooks, work = tmp_path / "notebooks", tmp_path / "work"
    build(notebooks)
    assert lab.refresh(notebooks, work) == []
    return notebooks, work


def test_a_copy_has_no_outputs_and_only_its_version_of_the_build(folders):
    (folders[1] / NAME).unlink()
    lab.refresh(*folders)  # a deleted one comes back
    copy = nbformat.read(folders[1] / NAME, as_version=4)
    nbformat.validate(copy)
    assert copy.cells[1].outputs == [] and copy.cells[1].execution_count is None
    assert copy.cells[0].metadata == {"slideshow": {"slide_type": "slide"}}
    assert list(copy.metadata.tinylm) == ["lesson", "version"]


def test_an_edited_copy_is_not_touched_and_a_newer_lesson_is_put_next_to_it_once(folders):
    notebooks, work = folders
    change(work / NAME, rewrite)
    before = (work / NAME).read_bytes()
    assert lab.refresh(notebooks, work) == [] and [path.name for path in work.iterdir()] == [NAME]
    build(notebooks, printed="1.0001")  # built again with the same text, it is not a newer lesson
    assert lab.refresh(notebooks, work) == []
    build(notebooks, "x = 2")
    assert lab.refresh(notebooks, work) == [CHANGED]
    assert (work / NAME).read_bytes() == before and code(work / NEW) == "x = 2"
    assert lab.refresh(notebooks, work) == []


def test_the_new_one_may_be_edited_too(folders):
    notebooks, work = folders
    for number in (2, 3):
        for path in work.iterdir():
            change(path, rewrite)
        build(notebooks, f"x = {number}")
        lab.refresh(notebooks, work)
    assert sorted(path.name for path in work.iterdir()) == ["05_attention (new 2).ipynb", NEW, NAME]
    assert code(work / "05_attention (new 2).ipynb") == "x = 3"


# The last is what Shift-Enter leaves behind after the last cell.
@pytest.mark.parametrize("touch", [len, ran, folded, lambda cells: cells.append(v4.new_code_cell(" "))])
def test_an_old_copy_that_was_only_run_is_replaced(folders, touch):
    notebooks, work = folders
    change(work / NAME, touch)
    build(notebooks, "x = 2")
    assert lab.refresh(notebooks, work) == ["05_attention has changed; you had not edited yours, it is now the new one"]
    assert code(work / NAME) == "x = 2" and [path.name for path in work.iterdir()] == [NAME]


DAMAGE = {
    "conflict markers of git": lambda good: good.replace(
        b'"cells": [', b'"cells": [\n<<<<<<< HEAD\n=======\n>>>>>>> b\n'
    ),
    "it is empty": lambda good: b"",
    "empty": lambda good: bytes(4096),
    "its end is missing": lambda good: good[: len(good) // 2],
    "end is missing": lambda good: b"{",
    "missing": lambda good: good[: good.index(b"}") + 1],
    "it is a web page": lambda good: b"<!DOCTYPE html>\n<html></html>\n",
    "it is not text in UTF-8": lambda good: good.decode().encode("utf-16"),
    "it is not JSON in line 3": lambda good: b'{\n "cells": [],\n }\n',
    "it has no list of cells": lambda good: b"[]",
    "a cell has no type or no source": lambda good: b'{"cells": [{}]}',
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_copy_is_kept_and_the_line_says_how_it_is_damaged(folders, how):
    notebooks, work = folders
    damaged = DAMAGE[how]((work / NAME).read_bytes())
    (work / NAME).write_bytes(damaged)
    (said,) = lab.refresh(notebooks, work)
    assert said.startswith("05_attention is damaged (") and f"{how}): a new one is {NEW}, yours stays" in said
    assert (work / NAME).read_bytes() == damaged and code(work / NEW) == "x = 1"
    assert lab.refresh(notebooks, work) == []


def test_of_several_copies_each_damaged_one_is_named(folders):
    notebooks, work = folders
    change(work / NAME, rewrite)
    (work / NEW).write_text("")
    build(notebooks, "x = 2")
    newest = "05_attention (new 2).ipynb"
    assert lab.refresh(notebooks, work) == [
        f"{Path(NEW).stem} is damaged (it is empty): a new one is {newest}, yours stays as it is",
        CHANGED.replace(NEW, newest),
    ]


def test_another_notebook_of_the_same_name_is_kept(folders):
    notebooks, work = folders
    (work / NAME).write_text('{"cells": []}')
    assert lab.refresh(notebooks, work) == [CHANGED]
    assert (work / NAME).read_text() == '{"cells": []}'


def test_a_mark_of_the_byte_order_is_no_damage_and_no_edit(folders):
    notebooks, work = folders
    for path in (notebooks / NAME, work / NAME):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert lab.refresh(notebooks, work) == []
    build(notebooks, "x = 2")
    assert lab.refresh(notebooks, work) == ["05_attention has changed; you had not edited yours, it is now the new one"]


def test_a_damaged_lesson_of_the_course_is_named_before_anything_is_copied(folders):
    notebooks, work = folders
    (notebooks / NAME).write_text("<<<<<<< HEAD\n")
    with pytest.raises(ValueError, match=r"05_attention.ipynb is damaged \(it has conflict markers of git\): run make"):
        lab.refresh(notebooks, work)


def test_a_lesson_is_found_by_its_number_and_a_fix_where_there_is_none(folders, tmp_path):
    with pytest.raises(FileNotFoundError, match="run make notebooks"):
        lab.refresh(tmp_path, tmp_path / "work")
    build(folders[0], name="04_normalization.ipynb")
    assert lab.find_lesson(folders[0], "05") == NAME and lab.find_lesson(folders[0], "") == "04_normalization.ipynb"
    with pytest.raises(ValueError, match="there is no lesson '07'; there are 04, 05"):
        lab.find_lesson(folders[0], "07")


def test_without_a_display_the_address_is_only_printed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    assert "--no-browser" in lab.command(tmp_path, NAME)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.get", lambda: None)
    assert "--no-browser" not in lab.command(tmp_path, NAME)


def test_what_is_set_stays_and_the_rest_is_kept_in_the_work_folder(monkeypatch, tmp_path):
    for variable in lab.CACHES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MPLCONFIGDIR", "/mine")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/also")
    monkeypatch.setenv("HF_HOME", str(lab.WORK / "cache" / "huggingface"))  # as make sets it, without knowing of --work
    environment = lab._environment(tmp_path)
    assert environment["MPLCONFIGDIR"] == "/mine" and environment["TINYLM_WORK"] == str(tmp_path)
    assert environment["HF_HOME"] == str(tmp_path / "cache" / "huggingface")
    assert environment["IPYTHONDIR"] == str(tmp_path / "cache" / "ipython")
    course, also = environment["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert also == "/also"
    assert json.loads((Path(course) / "labconfig" / "page_config.json").read_text()) == lab.NO_ANNOUNCEMENTS
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", course)
    assert _get_overrides(course) == (lab.SETTINGS, "")  # what JupyterLab reads, without an error
    said = subprocess.run(
        [sys.executable, "-m", "IPython", "--colors=NoColor", "-c", "look_for(3)"],
        env={**os.environ, "IPYTHONDIR": environment["IPYTHONDIR"]}, capture_output=True, text=True,
    )  # fmt: skip
    assert "NameError: name 'look_for' is not defined" in said.stdout
    assert "If look_for comes from an earlier cell" in said.stdout and "Run All Above" in said.stdout


def test_make_keeps_the_same_caches_in_the_same_place():
    exported = re.findall(r"^export (\w+) := \$\(CACHE\)/?(\S*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert lab.CACHES.items() <= dict(exported).items()


HANGS = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_lab_that_hangs_when_told_to_stop_is_killed(monkeypatch):
    monkeypatch.setattr(lab, "STOP_SECONDS", 0.1)
    with subprocess.Popen(HANGS) as process:
        lab.end(process)
        assert process.returncode != 0


@pytest.fixture
def own_caches(monkeypatch):
    for variable in lab.CACHES:
        monkeypatch.delenv(variable, raising=False)


def test_a_lab_that_cannot_start_says_so(folders, own_caches, monkeypatch):
    monkeypatch.setattr(lab, "command", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(OSError, match="did not start, its status is 3"):
        lab.start(folders[1], NAME)


class Refusing(BaseHTTPRequestHandler):
    """Answers a request with 200 if it has the right token, as JupyterLab does."""

    def do_GET(self):
        self.send_error(200 if self.path == "/api/status?token=t" else 403)

    def log_message(self, *_): ...


def test_a_lab_is_waited_for_until_it_answers_and_started_again_where_another_has_its_port(
    folders, own_caches, monkeypatch
):
    with socket.socket() as door, HTTPServer(("127.0.0.1", 0), Refusing) as jupyter:
        Thread(target=jupyter.serve_forever, daemon=True).start()
        door.bind(("127.0.0.1", 0))  # bound, but it does not listen yet
        server = {"pid": 0, "root_dir": str(folders[1].resolve()), "url": "http://here/", "token": "t", "sock": ""}
        server |= {"hostname": "127.0.0.1", "base_url": "/", "secure": False, "password": False}
        early, own = (server | {"port": port} for port in (door.getsockname()[1], jupyter.server_port))
        looks, started, popen = [[], [early], [own | {"token": "of this one"}], [own]], [], subprocess.Popen

        def servers(_):
            if len(looks) == 2:
                started[0].kill()  # it has lost the port
                started[0].wait()
            return looks.pop(0)

        monkeypatch.setattr(lab, "list_running_servers", servers)
        monkeypatch.setattr(lab, "command", lambda *_: HANGS)
        monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
        process, url = lab.start(folders[1], NAME)
        process.kill()
        process.wait()
        jupyter.shutdown()
    assert len(started) == 2 and process is started[1]
    assert url == f"http://here/lab/tree/{NAME}?token=t"


def opening(notebooks: Path, home: Path, *arguments: str) -> subprocess.Popen:
    """A lab on these notebooks, in a session of its own."""
    home.mkdir()
    line = "from pathlib import Path; from tinylm_classroom.course import lab"
    line += f"; lab.NOTEBOOKS = Path({str(notebooks)!r})"
    kept = {key: value for key, value in os.environ.items() if key not in lab.CACHES} | {"HOME": str(home)}
    command = [sys.executable, "-c", f"{line}; raise SystemExit(lab.main({list(arguments)}))"]
    return subprocess.Popen(command, env=kept, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_the_command_opens_the_lesson_at_the_printed_address_until_ctrl_c(folders, tmp_path):
    home, work = tmp_path / "home", folders[1].rename(tmp_path / "my wörk")
    with opening(folders[0], home, "05", "--no-browser", "--work", str(work)) as process:
        try:
            address = next(line.strip() for line in process.stdout if "http" in line)
            with urllib.request.urlopen(address) as answer:
                assert answer.status == 200 and NAME in answer.url
            with urllib.request.urlopen(address.replace(f"lab/tree/{NAME}", "api/contents")) as answer:
                assert [entry["name"] for entry in json.load(answer)["content"]] == [NAME]  # no folder of caches
        finally:
            os.killpg(process.pid, signal.SIGINT)
        assert f"Your notebooks are in {work}" in process.stdout.read()
        assert process.wait(timeout=30) == 0
    assert list(home.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without a signal that it could handle")
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("sent", ["SIGTERM", "SIGHUP"])
def test_a_lab_that_is_told_to_stop_takes_jupyterlab_with_it(folders, tmp_path, sent, early, request):
    kept = signal.signal(
        getattr(signal, sent), signal.SIG_DFL
    )  # under nohup this process ignores SIGHUP, and so would lab
    request.addfinalizer(lambda: signal.signal(getattr(signal, sent), kept))
    with opening(folders[0], tmp_path / "home", "05", "--no-browser", "--work", str(folders[1])) as process:
        try:
            runtime = folders[1] / "cache" / "jupyter" / "runtime"
            while early and not list(runtime.glob("jpserver-*.json")):
                assert process.poll() is None
                time.sleep(0.01)
            if not early:
                next(line for line in process.stdout if "http" in line)
            (server,) = runtime.glob("jpserver-*.json")
            process.send_signal(getattr(signal, sent))
            assert process.wait(timeout=60) == 128 + getattr(signal, sent)
            process.stdout.read()  # ends when the last process that writes there has ended
            with pytest.raises(ProcessLookupError):
                os.kill(int(server.stem.removeprefix("jpserver-")), 0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a test that fails shall not wait for ever


# The work folder


def test_the_flag_names_the_work_folder_and_prepare_only_makes_private_copies(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lab, "NOTEBOOKS", folders[0])
    monkeypatch.setattr(lab, "start", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for given, work in (("~/tiny lm", "tiny lm"), ("ünder/wörk", "ünder/wörk"), (str(tmp_path / "x"), "x")):
        assert lab.main(["--prepare", "--work", given]) == 0
        assert [path.name for path in (tmp_path / work).iterdir()] == [NAME]
        if os.name == "posix":
            assert (tmp_path / work).stat().st_mode & 0o777 == 0o700
    assert capsys.readouterr().out == ""
    (tmp_path / "x").chmod(0o755)
    assert lab.main(["--prepare", "--work", "x"]) == 0
    assert os.name != "posix" or (tmp_path / "x").stat().st_mode & 0o777 == 0o755  # its owner has shared it


def test_under_a_jupyterhub_the_lab_becomes_the_server_that_the_hub_waits_for(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "NOTEBOOKS", folders[0])
    monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:1/user/ada/")
    became = []
    monkeypatch.setattr(os, "execve", lambda *a: became.append(a) or sys.exit(0))
    with pytest.raises(SystemExit):
        lab.main(["--work", str(folders[1]), "--debug"])
    ((program, line, environment),) = became
    assert [program, *line[:3]] == [sys.executable, sys.executable, "-m", "jupyterhub.singleuser"]
    assert f"--ServerApp.root_dir={folders[1].resolve()}" in line and line[-1] == "--debug"
    assert environment["TINYLM_WORK"] == str(folders[1]) and environment["JUPYTERHUB_SERVICE_URL"]


def test_a_work_folder_that_cannot_be_used_is_named(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "NOTEBOOKS", folders[0])
    (tmp_path / "file").touch()
    for work in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=re.escape(f"the work folder {work} cannot be written")) as failed:
            lab.main(["--prepare", "--work", str(work)])
        assert "--work ~/tinylm" in str(failed.value)
    for work in (ROOT / "notebooks", ROOT):
        with pytest.raises(ValueError, match=re.escape(f"{work} is part of the course; choose one outside")):
            lab.main(["--prepare", "--work", str(work)])


SAYS = """
from tinylm_classroom.course import doctor
from tinylm_classroom.folders import WORK
from tinylm_classroom.workshop.parts import part_file
from tinylm_lib.data.corpora import CACHE
from tinylm_lib.runs.settings import RunConfig
print(WORK, part_file("relu"), CACHE, RunConfig.out, doctor.own_folder().found, sep=chr(10))
"""


@pytest.mark.parametrize("given", ["{}", "~", "", None])
def test_the_variable_names_the_work_folder_for_everything_that_is_kept(given, tmp_path):
    env = {**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env.pop("TINYLM_WORK", None)
    if given is not None:
        env["TINYLM_WORK"] = given.format(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SAYS], env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
    )
    work, library = (tmp_path, tmp_path) if given else (ROOT / "work", Path("work"))
    kept = [work / "parts" / "relu.py", library / "cache" / "corpora", library / "runs" / "last"]
    kept += [work if given else Path("work, in the course")]  # as the doctor says it
    assert list(map(Path, done.stdout.splitlines())) == [work, *kept]


NOBODY = 65534


def course_copy(folder: Path) -> Path:
    """The course without its work and its .venv, readable for everybody and writable for nobody."""
    course = folder / "course"
    for part in ("tinylm_lib", "tinylm_classroom", "notebooks"):
        shutil.copytree(ROOT / part, course / part, ignore=shutil.ignore_patterns("__pycache__", "solutions"))
    for path in [course, *course.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return course


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="becomes two other users, which takes root and POSIX")
def test_two_users_of_one_course_that_is_read_only_write_into_their_own_folders():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        course, users = course_copy(folder), {name: NOBODY - n for n, name in enumerate(("ada", "bob"))}
        before = {path: path.stat().st_mtime_ns for path in course.rglob("*")}
        for name, number in users.items():
            (folder / name).mkdir()
            os.chown(folder / name, number, number)
        # Python reads a rare encoding when it is first used, and another user cannot read root's Python
        read = f"import encodings.utf_8_sig, sys; sys.path.insert(0, {str(course)!r})"
        read += "; from tinylm_classroom.course import lab"

        def as_user(name, line, **variables):
            become = f"import os; os.setgroups([]); os.setgid({users[name]}); os.setuid({users[name]})"
            kept = {key: value for key, value in os.environ.items() if key not in lab.CACHES}
            kept |= {"HOME": str(folder / name), **variables}
            command = [sys.executable, "-c", f"{read}; {become}; {line}"]
            return subprocess.run(command, env=kept, cwd=folder / name, capture_output=True, text=True)

        for name in users:
            for line in ("lab.main(['--prepare', '--work', '~/mine'])", "lab._environment(lab.usable_work(lab.WORK))"):
                done = as_user(name, line, TINYLM_WORK=str(folder / name / "mine"))
                assert done.returncode == 0, done.stderr
            mine = folder / name / "mine"
            assert len([*mine.glob("*.ipynb")]) == len([*lab.NOTEBOOKS.glob("*.ipynb")])
            assert mine.stat().st_mode & 0o77 == 0
            assert {path.stat().st_uid for path in mine.rglob("*")} == {users[name]}
        refused = as_user("bob", f"lab.main(['--prepare', '--work', {str(folder / 'ada' / 'mine')!r}])")
        assert "Permission" in refused.stderr
        refused = as_user("bob", "lab.main(['--prepare'])")
        assert f"{course / 'work'} cannot be written (Permission denied); choose another" in refused.stderr
        assert {path: path.stat().st_mtime_ns for path in course.rglob("*")} == before


def test_a_copy_covers_no_output_since_it_has_none_and_keeps_what_is_folded(tmp_path):
    notebooks = tmp_path / "notebooks"
    build(notebooks)
    change(
        notebooks / NAME,
        lambda cells: cells[1].metadata.update(jupyter={"source_hidden": True, "outputs_hidden": True}),
    )
    lab.refresh(notebooks, tmp_path / "work")
    copy = nbformat.read(tmp_path / "work" / NAME, as_version=4)
    assert copy.cells[1].metadata == {"jupyter": {"source_hidden": True}}
