"""Working copies that are never overwritten after an edit, and a JupyterLab that starts without questions."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import nbformat
import pytest
from jupyterlab_server.settings_utils import _get_overrides
from nbformat import v4

from tinylm_lib.classroom.course import lab
from tinylm_lib.classroom.folders import ROOT

NAME, NEW = "05_attention.ipynb", "05_attention (new).ipynb"
CHANGED = f"05_attention has changed, and you have edited yours: the new one is {NEW}, yours stays as it is"
# How lesson 07 began before the library had folders.
OLDER = """from tinylm_lib import ModelConfig, preset, storyworld
from tinylm_lib.attention import Attention, attend, causal_mask
from tinylm_lib.classroom import check, figures, hint, keep, predict, show, trace
from tinylm_lib.classroom.capture import capture
from tinylm_lib.classroom.measured import measured, rounded
from tinylm_lib.optim import build_optimizer"""


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


def test_an_edited_copy_is_not_touched_and_a_newer_lesson_is_put_beside_it_once(folders):
    notebooks, work = folders
    change(work / NAME, rewrite)
    before = (work / NAME).read_bytes()
    assert lab.refresh(notebooks, work) == [] and [path.name for path in work.iterdir()] == [NAME]
    build(notebooks, printed="1.0001")  # built again with the same text, it is no newer lesson
    assert lab.refresh(notebooks, work) == []
    build(notebooks, "x = 2")
    assert lab.refresh(notebooks, work) == [CHANGED]
    assert (work / NAME).read_bytes() == before and code(work / NEW) == "x = 2"
    assert lab.refresh(notebooks, work) == []


def test_the_new_one_may_be_edited_too(folders):
    notebooks, work = folders
    for number in (2, 3):
        for path in work.iterdir():
            change(path, lambda cells: rewrite(cells, "import tinylm_lib.optim"))
        build(notebooks, f"x = {number}")
        said = lab.refresh(notebooks, work)
    assert [line.split()[2:4] for line in said if "To run" in line] == [[NAME, "with"], NEW.split()]
    assert sorted(path.name for path in work.iterdir()) == ["05_attention (new 2).ipynb", NEW, NAME]
    assert code(work / "05_attention (new 2).ipynb") == "x = 3"


def test_a_copy_of_an_older_edition_is_told_where_its_imports_have_moved(folders):
    notebooks, work = folders
    change(work / NAME, lambda cells: rewrite(cells, f"{OLDER}\nmine = 1"))
    build(notebooks, "x = 2")
    assert lab.refresh(notebooks, work) == [
        CHANGED,
        f"    To run {NAME} with this edition of the library, change in it:",
        "        from tinylm_lib.classroom.capture import capture  ->  from tinylm_lib.classroom import capture",
        "        from tinylm_lib.classroom.measured import measured, rounded"
        "  ->  from tinylm_lib.classroom import measured, rounded",
        "        from tinylm_lib.optim import build_optimizer  ->  from tinylm_lib.training import build_optimizer",
    ]


# The last is what Shift-Enter leaves behind after the last cell.
@pytest.mark.parametrize("touch", [len, ran, folded, lambda cells: cells.append(v4.new_code_cell(" "))])
def test_an_old_copy_that_was_only_run_is_replaced(folders, touch):
    notebooks, work = folders
    change(work / NAME, touch)
    build(notebooks, "x = 2")
    assert lab.refresh(notebooks, work) == ["05_attention has changed; you had not edited yours, it is now the new one"]
    assert code(work / NAME) == "x = 2" and [path.name for path in work.iterdir()] == [NAME]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cells": []}', '{"cells": [{}]}'])
def test_what_is_no_copy_of_ours_is_kept(folders, content):
    notebooks, work = folders
    (work / NAME).write_text(content)
    assert lab.refresh(notebooks, work) == [CHANGED]
    assert (work / NAME).read_text() == content


def test_a_lesson_is_found_by_its_number_and_a_remedy_where_there_is_none(folders, tmp_path):
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


def test_what_is_set_stays_and_the_rest_is_kept_in_the_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "WORK", tmp_path)
    for variable in lab.CACHES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MPLCONFIGDIR", "/mine")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/also")
    environment = lab._environment()
    assert environment["MPLCONFIGDIR"] == "/mine"
    assert environment["IPYTHONDIR"] == str(tmp_path / "cache" / "ipython")
    course, also = environment["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert also == "/also"
    assert json.loads((Path(course) / "labconfig" / "page_config.json").read_text()) == lab.NO_ANNOUNCEMENTS
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", course)
    assert _get_overrides(course) == (lab.SAVED_VIEWS, "")  # what JupyterLab reads, without an error


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
def own_caches(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "WORK", tmp_path)


def test_a_lab_that_cannot_start_says_so(folders, own_caches, monkeypatch):
    monkeypatch.setattr(lab, "command", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(OSError, match="did not start, its status is 3"):
        lab.start(folders[1], NAME)


def test_a_lab_that_is_listed_before_it_listens_is_waited_for(folders, own_caches, monkeypatch):
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address, port = door.getsockname()
        server = {"pid": 0, "root_dir": str(folders[1].resolve()), "url": "http://here/", "token": "t", "sock": ""}
        looks = []

        def servers(_):
            looks.append(len(looks))
            if len(looks) == 4:
                door.listen()
            return [server | {"hostname": address, "port": port}] if len(looks) > 1 else []

        monkeypatch.setattr(lab, "list_running_servers", servers)
        monkeypatch.setattr(lab, "command", lambda *_: HANGS)
        process, url = lab.start(folders[1], NAME)
        process.kill()
        process.wait()
    assert len(looks) == 4 and url == f"http://here/lab/tree/{NAME}?token=t"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_the_command_opens_the_lesson_at_the_printed_address_until_ctrl_c(folders, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    opening = f"""
import pathlib, sys
from tinylm_lib.classroom.course import lab
lab.NOTEBOOKS, lab.WORK = map(pathlib.Path, {list(map(str, folders))})
sys.exit(lab.main(["05", "--no-browser"]))"""
    kept = {key: value for key, value in os.environ.items() if key not in lab.CACHES}
    options = {"env": {**kept, "HOME": str(home)}, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", opening], **options) as process:
        try:
            address = next(line.strip() for line in process.stdout if "http" in line)
            with urllib.request.urlopen(address) as answer:
                assert answer.status == 200 and NAME in answer.url
            with urllib.request.urlopen(address.replace(f"lab/tree/{NAME}", "api/contents")) as answer:
                assert [entry["name"] for entry in json.load(answer)["content"]] == [NAME]  # no folder of caches
        finally:
            os.killpg(process.pid, signal.SIGINT)
        assert f"Your notebooks are in {folders[1]}" in process.stdout.read()
        assert process.wait(timeout=30) == 0
    assert list(home.iterdir()) == []
