"""tools/colab: the extra accepts what Colab has, the first cell of a lesson installs it there, and faults are found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from colab import __main__ as command
from colab import environment, frames
from colab.lessons import VIEW, WIDGET, Run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tinylm_classroom.folders import NOTEBOOKS

PINS = [Requirement(line) for line in environment.PINS.read_text("utf-8").splitlines() if "==" in line]
WANTED = {canonicalize_name(each.name): each for each in map(Requirement, environment.wanted())}
IPYWIDGETS_7 = {"data": {WIDGET: {"model_id": "1"}, VIEW: {"module": "predict"}}, "metadata": {}}


def version_of(pin: Requirement) -> str:
    (exactly,) = pin.specifier
    return exactly.version


@pytest.mark.parametrize("pin", PINS, ids=str)
def test_the_extra_accepts_what_colab_has(pin: Requirement) -> None:
    wanted = WANTED.get(canonicalize_name(pin.name))
    assert wanted is None or wanted.specifier.contains(version_of(pin))


def test_the_extra_brings_no_server_and_no_second_kernel() -> None:
    assert not WANTED.keys() & {"jupyterlab", "jupyter-server", "ipykernel", "nbconvert", "pdoc", "tinylm-lib"}
    assert {"ipython", "ipywidgets", "traitlets"} <= {canonicalize_name(pin.name) for pin in PINS} & WANTED.keys()


@pytest.fixture
def pip(tmp_path: Path):
    """A function that runs the first code cell of a lesson on Colab, and returns what it asks of pip."""
    said = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('PIP_NO_INDEX')]))"
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text(said)
    (tmp_path / "pip" / "__init__.py").touch()

    def pip(cell: str, *before: str) -> list:
        program = "\n".join([*before, cell])
        paths = os.pathsep.join([str(environment.STAND_INS), str(tmp_path)])
        settings = {"PYTHONPATH": paths, "TINYLM_WHEEL": "file:///w.whl", "PIP_NO_INDEX": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **settings}, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout) if done.stdout else []

    return pip


def first_cell(name: str) -> str:
    notebook = nbformat.read(next(NOTEBOOKS.glob(f"{name}_*.ipynb")), as_version=4)
    return next(cell.source for cell in notebook.cells if cell.cell_type == "code")


def test_the_first_cell_installs_the_extra_on_colab_from_the_wheel_and_does_nothing_elsewhere(pip) -> None:
    cell = first_cell("00")
    assert pip(cell) == []
    arguments, no_index = pip(cell, "import google.colab.output")
    assert arguments[0] == "install" and arguments[-1] == "tinylm-lib[colab] @ file:///w.whl" and no_index == "1"
    assert pip(cell, "import google.colab.output", "import atexit; atexit.register(lambda: 0)")[0] == arguments


def test_a_widget_manager_that_is_on_names_its_address() -> None:
    program = "import google.colab.output as o; o.enable_custom_widget_manager(); print(o._widgets._installed_url)"
    path = {"PYTHONPATH": str(environment.STAND_INS)}
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **path}, capture_output=True, text=True)
    assert done.stdout.startswith("https://")


def run_of(*outputs: dict) -> Run:
    made = [nbformat.v4.new_output(**output) for output in outputs]
    cell = nbformat.v4.new_code_cell("x", outputs=made)
    return Run(nbformat.v4.new_notebook(cells=[cell]), SimpleNamespace())


def test_what_a_reader_would_miss_is_found() -> None:
    named = {"colab": {"custom_widget_manager": {"url": "x"}}}
    good = {"output_type": "display_data", **IPYWIDGETS_7, "metadata": {WIDGET: named}}
    assert command.faults_of(run_of(good)) == []
    assert "does not name" in command.faults_of(run_of({"output_type": "display_data", **IPYWIDGETS_7}))[0]
    said = {"output_type": "stream", "name": "stderr", "text": "Traceback\n"}
    assert command.faults_of(run_of(good, said)) == ["says Traceback"]
    stopped = run_of(good)
    stopped.error = "ImportError"
    assert command.faults_of(stopped) == ["ImportError"]
    assert command.views_of(run_of(good, good)) == "2 predict"


def test_what_a_frame_asks_of_the_network_is_a_file_of_a_package() -> None:
    inside = frames.PACKAGES / "node_modules"
    files = {
        "anywidget@~0.11.*/dist/index.js": inside / "anywidget" / "dist" / "index.js",
        "requirejs/require.js": inside / "requirejs" / "require.js",
        "@jupyter-widgets/html-manager/dist/embed-amd.js": inside / "@jupyter-widgets/html-manager/dist/embed-amd.js",
        "@a/b@1.0.0/dist/index": inside / "@a" / "b" / "dist" / "index.js",
    }
    assert {address: frames.packaged(frames.CDN + address) for address in files} == files


def test_every_kind_of_view_of_the_framed_lessons_has_its_click() -> None:
    for name in command.IN_FRAMES:
        notebook = nbformat.read(next(NOTEBOOKS.glob(f"{name}_*.ipynb")), as_version=4)
        outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
        assert {data[VIEW]["module"] for data in outputs if VIEW in data} <= frames.ACTIONS.keys()
