"""Set-up: one list of versions, a .venv that repairs itself, and failures that say why in one sentence."""

import ast
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tinylm_classroom.commands import PROGRAMS
from tinylm_classroom.course import lab

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "tools" / "setup.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
INSTALLED = [
    [line for line in EXTRAS[name] if line != "tinylm-lib[colab]"] for name in ("colab", "lab", "course", "test")
]
PINS = {
    canonicalize_name(pin.name): pin
    for pin in map(Requirement, re.findall(r"^[^#\n].*", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
}


# One list of versions


@pytest.mark.parametrize("line", [*PROJECT["dependencies"], *chain(*INSTALLED)])
def test_every_dependency_is_pinned_inside_its_range(line):
    wanted = Requirement(line)
    if wanted.marker and not wanted.marker.evaluate({"python_version": "3.11"}):
        pytest.skip("only for Pythons whose versions are not pinned")
    pin = PINS[canonicalize_name(wanted.name)]
    (version,) = re.findall(r"^==([\d.]+)$", str(pin.specifier))
    assert wanted.specifier.contains(version), f"{pin} is outside of {line}"
    assert wanted.specifier, f"{line} has no range"


@pytest.mark.parametrize("name", PINS)
def test_a_pin_holds_only_on_pythons_that_it_supports(name):
    pin = PINS[name]
    if name == "torch":
        assert pin.marker is None, "torch has the same pin on every Python"
        return
    installed = next(distributions(name=name), None)
    if installed is None or installed.version != str(pin.specifier).removeprefix("=="):
        pytest.skip(f"{pin} is not installed here")
    supported = Requirement(f"python {installed.metadata['Requires-Python'] or ''}").specifier
    for version in ("3.10.0", "3.10.13", "3.11.0", "3.11.2", "3.11.7", "3.12.0", "3.13.0", "3.13.9"):
        python = {"python_full_version": version, "python_version": version.rpartition(".")[0]}
        if pin.marker.evaluate(python):
            assert supported.contains(version), f"{pin} would be asked for on Python {version}"


def test_setup_knows_the_pythons_of_pyproject():
    wanted = Requirement(f"python {PROJECT['requires-python']}").specifier
    assert {(3, minor) for minor in range(30) if wanted.contains(f"3.{minor}")} == set(load(SETUP).SUPPORTED)


def test_conda_takes_its_versions_from_the_constraints():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, packages = environment["dependencies"]
    assert Requirement(f"python {PROJECT['requires-python']}").specifier.contains(python.removeprefix("python="))
    assert pip == "pip"
    assert packages["pip"][0] == "-c constraints.txt" and packages["pip"][-1] == "-e .[lab,course,test]"
    wanted = {Requirement(one).name for one in (*PROJECT["dependencies"], *chain(*INSTALLED))}
    named = packages["pip"][1:-1]
    assert named == ["torch", "jupyterlab", "ipywidgets", "matplotlib", "nbval"] and set(named) <= wanted


# What an old Python must be able to read and say


def load(path):
    spec = importlib.util.spec_from_file_location("course_setup", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sentence(stopped):
    """The one sentence of a failed process, or of SystemExit, and nothing like a traceback."""
    text = stopped.value.code if isinstance(stopped, pytest.ExceptionInfo) else stopped.stderr
    assert "Traceback" not in text and getattr(stopped, "returncode", 1) in (1, 2)
    (found,) = re.findall(r"^Set-up stopped: .+\.$", text, re.MULTILINE)
    return found


def test_setup_reads_as_python_3_6():
    tree = ast.parse(SETUP.read_text(), feature_version=(3, 6))
    imports = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imports <= sys.stdlib_module_names


BESIDE = Path(sys._base_executable).resolve().parents[2].glob("3.[6-9].*/bin/python3")
NAMED = filter(None, (shutil.which(f"python3.{minor}") for minor in range(6, 10)))
IS_OLD = "import sys; sys.exit(not (3, 6) <= sys.version_info < (3, 10))"
OLD_PYTHONS = sorted(str(p) for p in [*BESIDE, *NAMED] if not subprocess.run([p, "-c", IS_OLD]).returncode)


@pytest.mark.skipif(not OLD_PYTHONS, reason="no Python from 3.6 to 3.9 on this machine")
@pytest.mark.parametrize("python", OLD_PYTHONS, ids=lambda path: re.findall(r"3\.\d+", path)[0])
def test_an_old_python_says_that_it_is_too_old(python, course):
    done = course.run(python=python, PATH=str(course.root))
    assert "is too old" in sentence(done) and "make lab PYTHON=" in done.stderr
    assert not (course.root / ".venv").exists()


@pytest.mark.parametrize(("version", "word"), [((3, 9), "too old"), ((3, 14), "too new")])
def test_another_python_on_the_path_is_taken(version, word, course, monkeypatch, capsys):
    setup = load(course.setup)
    monkeypatch.setattr(setup.sys, "version_info", version)
    monkeypatch.setattr(setup.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=word):
        setup.find_python()
    monkeypatch.setattr(setup.shutil, "which", {"python3.13": "wrong", "python3.10": "right"}.get)
    monkeypatch.setattr(setup, "version_of", {"wrong": None, "right": (3, 10)}.get)
    assert setup.find_python() == "right"
    assert "taking right" in capsys.readouterr().out


# A course that installs in seconds: its torch and its JupyterLab are empty wheels


def write_wheel(folder, name, version, files, metadata=""):
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


BACKEND = """
import pathlib, shutil, time

def build_editable(folder, config_settings=None, metadata_directory=None):
    if pathlib.Path("hang").exists():
        pathlib.Path("hangs").touch()
        time.sleep(60)
    return shutil.copy("course-1.0-py3-none-any.whl", folder).rpartition("/")[2]
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "course"
version = "1.0"
"""


@pytest.fixture
def course(tmp_path):
    root, wheels, home = (tmp_path / name for name in ("my course", "wheels", "home"))
    for folder in (root / "tools", wheels, home):
        folder.mkdir(parents=True)
    (root / "constraints.txt").write_text("torch==2.13.0\n")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    extras = "".join(f"Provides-Extra: {name}\n" for name in ("lab", "course", "test"))
    write_wheel(root, "course", "1.0", {}, f"{extras}Requires-Dist: jupyterlab ; extra == 'lab'\n")
    write_wheel(wheels, "torch", "2.13.0", {"torch.py": ""})
    write_wheel(wheels, "jupyterlab", "4.0", {"jupyterlab/labextensions.py": "import sys; print(sys.argv)"})
    setup = shutil.copy(SETUP, root / "tools")

    def environment(**changes):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        local = {"HOME": str(home), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}
        return kept | local | changes

    def run(extras="lab", python=sys.executable, **changes):
        command, env = [python, setup, extras], environment(**changes)
        return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    return SimpleNamespace(root=root, setup=setup, home=home, run=run, environment=environment)


def break_pip(root):
    for pip in (root / ".venv").glob("[Ll]ib/**/site-packages/pip/__main__.py"):
        pip.write_text("raise SystemExit('pip was called')")


def installed(root, name):
    (path,) = (root / ".venv").glob(f"[Ll]ib/**/site-packages/{name}")
    return path


def set_up(done):
    """What a set-up that went well says."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_the_second_run_calls_no_pip_and_an_edit_does(course):
    set_up(course.run("lab,course,test"))
    log = (course.root / ".venv" / "setup.log").read_text(encoding="utf-8")
    assert "disable', '--level=sys_prefix', '@jupyterlab/apputils-extension:announcements" in log
    assert not list(course.home.iterdir())
    break_pip(course.root)
    for extras in ("lab,course,test", "lab"):
        assert set_up(course.run(extras)) == ""
    with (course.root / "constraints.txt").open("a") as constraints:
        constraints.write("# edited\n")
    assert "it has no working pip" in set_up(course.run("lab"))
    break_pip(course.root)
    assert "it has no working pip" in course.run("lab,course,test").stdout, "lab alone must not pass for all"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills a process group")
def test_an_interrupted_set_up_continues_where_it_stopped(course):
    (course.root / "hang").touch()
    command, quiet = [sys.executable, course.setup], {"stdout": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(command, env=course.environment(), **quiet)
    while not (course.root / "hangs").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (course.root / "hang").unlink()
    torch = installed(course.root, "torch.py").stat()
    assert "Making .venv" not in set_up(course.run())
    assert installed(course.root, "torch.py").stat() == torch
    break_pip(course.root)
    set_up(course.run())


@pytest.mark.slow
def test_damage_is_repaired(course):
    set_up(course.run())
    (course.root / ".venv" / "setup.stamp").unlink()
    installed(course.root, "torch-*.dist-info/RECORD").unlink()
    installed(course.root, "torch.py").unlink()
    assert "Making .venv" not in set_up(course.run())
    assert installed(course.root, "torch.py").exists(), "a package that was cut short must be installed again"

    moved = course.root.rename(course.root.with_name("moved course"))
    setup = moved / "tools" / "setup.py"
    done = subprocess.run([sys.executable, setup], env=course.environment(), capture_output=True, text=True)
    assert "comes from another folder" in set_up(done)
    assert str(course.root) not in load(setup).VENV_PYTHON.with_name("activate").read_text()


def test_what_is_wrong_with_a_venv(course, monkeypatch):
    setup = load(course.setup)
    assert setup.fault_of_venv(None) == "there is none yet"
    activate = setup.VENV_PYTHON.with_name("activate")
    activate.parent.mkdir(parents=True)
    assert setup.fault_of_venv(None) == setup.fault_of_venv((3, 9)) == "its Python does not run or is not supported"
    assert "half-made" in setup.fault_of_venv((3, 11))
    activate.write_text(f"VIRTUAL_ENV='{setup.VENV}'")
    monkeypatch.setattr(setup, "answer", lambda *command: None)
    assert setup.fault_of_venv((3, 11)) == "it has no working pip"
    monkeypatch.setattr(setup, "answer", lambda *command: "pip 23")
    assert setup.fault_of_venv((3, 11)) is None


# Failures


@pytest.mark.slow
def test_no_network(course):
    closed = dict.fromkeys(("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"), "http://127.0.0.1:9/simple")
    done = course.run(**closed, PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_RETRIES="1")
    assert "no network" in sentence(done)
    assert (course.root / ".venv" / "setup.log").exists() and ".venv/setup.log" in done.stderr.replace("\\", "/")
    set_up(course.run())


@pytest.mark.slow
def test_an_index_that_never_answers_is_given_up_before_anything_is_installed(course):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        patience = {"PIP_DEFAULT_TIMEOUT": "1", "PIP_RETRIES": "99"}
        done = course.run(**patience, PIP_INDEX_URL=index, PIP_NO_INDEX="0", PIP_FIND_LINKS="")
    assert "no network" in sentence(done) and "HTTPS_PROXY" in done.stderr
    assert "Asking the package index" in done.stdout and "Installing" not in done.stdout


@pytest.mark.slow
def test_an_index_is_reached_through_the_proxy(course):
    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_): ...

    asked = []
    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{proxy.server_port}"
        index = {"PIP_INDEX_URL": "http://index.invalid/simple", "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": ""}
        index["PIP_TRUSTED_HOST"] = "index.invalid"
        done = course.run(**index, http_proxy=address, HTTP_PROXY=address, no_proxy="", NO_PROXY="")
        proxy.shutdown()
    assert asked[0] == "http://index.invalid/simple/torch/"
    assert "does not exist for" in sentence(done)


@pytest.mark.slow
def test_no_torch_for_this_machine(course):
    (course.root / "constraints.txt").write_text("torch==2.99.0\n")
    done = course.run()
    assert "does not exist for" in sentence(done)


def test_too_little_disk_space_is_said_before_anything_is_written(course, monkeypatch):
    setup = load(course.setup)
    before = sorted(course.root.rglob("*"))
    monkeypatch.setattr(setup.sys, "argv", ["setup.py"])
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**31))
    with pytest.raises(SystemExit) as stopped:
        setup.main()
    assert "the disk is full" in sentence(stopped)
    assert sorted(course.root.rglob("*")) == before


INSTALL = "ERROR: Could not install packages"
NO_TORCH = "ERROR: No matching distribution found for torch==2.13.0"


@pytest.mark.parametrize(("phrase", "output"), [
    ("the disk is full", f"{INSTALL} due to an OSError: [Errno 28] No space left on device"),
    ("cannot be written", f"{INSTALL} due to an OSError: [Errno 13] Permission denied: '/x'"),
    ("cannot be written", "OSError: [Errno 30] Read-only file system: '/x/.venv'"),
    ("no network", f"WARNING: Retry after connection broken by 'NameResolutionError(...)': /torch/\n{NO_TORCH}"),
    ("without the module ssl", f"SSLError(\"the SSL module is not available.\")\n{NO_TORCH}"),
    ("does not exist for", NO_TORCH),
    ("requires a different Python'", "Collecting x\nERROR: Package 'x' requires a different Python.\nnote: see below"),
    ("failed with 'no message'", ""),
])  # fmt: skip
def test_a_failed_step_is_explained(phrase, output, course):
    with pytest.raises(SystemExit) as stopped:
        load(course.setup).explain("installing torch", output)
    assert phrase in sentence(stopped)


@pytest.mark.skipif(os.name == "nt", reason="uses POSIX permissions")
def test_a_read_only_folder(course):
    # Root may write everywhere, so the child gives its rights away once it has read everything.
    become_nobody = "import os; os.getuid() or os.setuid(65534)"
    with tempfile.TemporaryDirectory() as folder:
        root = shutil.copytree(course.root, Path(folder) / "course")
        read = f"import runpy; setup = runpy.run_path({str(root / 'tools' / 'setup.py')!r})"
        Path(folder).chmod(0o755)
        root.chmod(0o555)
        child = [sys.executable, "-c", f"{read}; {become_nobody}; setup['main']()"]
        done = subprocess.run(child, capture_output=True, text=True)
        root.chmod(0o755)
    assert "cannot be written" in sentence(done)


@pytest.mark.skipif(os.name == "nt", reason="its stand-in for a Python is a shell script")
def test_a_python_without_venv(course, monkeypatch):
    python = course.root / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    setup = load(course.setup)
    monkeypatch.setattr(setup, "find_python", lambda: python)
    with pytest.raises(SystemExit) as stopped:
        setup.set_up("lab")
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"`apt install python{version}-venv`" in sentence(stopped)


# make


needs_make = pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
MAKEFILE = (ROOT / "Makefile").read_text()


def make(*arguments, **environment):
    command, env = ["make", "--no-print-directory", *arguments], os.environ | environment
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


@needs_make
def test_make_alone_lists_the_targets():
    done = make()
    assert re.findall(r"^  make ([a-z-]+)  ", done.stdout, re.MULTILINE) == [
        *(
            "help",
            "lab",
            "doctor",
            "grade",
            "train",
            "test",
            "test-all",
            "bench",
            "weights",
            "notebooks",
            "slides",
            "site",
            "portable",
            "colab",
            "seeds",
            "clean",
        )
    ]


@needs_make
def test_make_without_a_python_says_so():
    done = make("lab", "PYTHON=no-such-python")
    assert "no-such-python" in sentence(done)


@needs_make
def test_make_passes_arguments_with_spaces_to_the_lab_and_caches_follow_the_work_folder(tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "show").write_text('#!/bin/sh\nprintf "%s|" "$@" "$MPLCONFIGDIR"\n')
    (tmp_path / "show").chmod(0o755)
    line = [
        *["make", "--no-print-directory", "-o", "set-up-lab", "lab", "PY=./show"],
        "ARGS=05 --work ~/x --work '~/a b'",
    ]
    for given, cache in (({}, tmp_path / "work"), ({"TINYLM_WORK": "~/my work"}, "/h/my work")):
        env = {name: value for name, value in os.environ.items() if name != "TINYLM_WORK"} | {"HOME": "/h", **given}
        done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        assert done.stdout == f"-m|tinylm_lib|lab|05|--work|/h/x|--work|~/a b|{cache}/cache/matplotlib|"


@needs_make
def test_make_clean_deletes_no_work(tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    mine = ["work/00_start.ipynb", "work/parts/relu.py", "work/runs/last/log.jsonl", "work/site/index.html", "mine/x"]
    for name in (*mine, "mine/cache/corpora/x", "work/cache/pip/x", ".venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(
        ["make", "clean"], cwd=tmp_path, env=os.environ | {"TINYLM_WORK": str(tmp_path / "mine")}, check=True
    )
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"Makefile", *mine, "mine/cache/corpora/x"}


@pytest.mark.parametrize(("variable", "folder"), lab.CACHES.items())
def test_make_and_the_lab_keep_their_caches_in_the_same_place(variable, folder):
    place = f"$(CACHE)/{folder}".rstrip("/")
    assert f"\nexport {variable} := {place}\n" in MAKEFILE


USER = """
import shutil, subprocess, sys
import IPython, jupyter_client, matplotlib.pyplot, torch, transformers

IPython.start_ipython(["-c", "1"])
with jupyter_client.run_kernel(kernel_name="python3") as client:
    client.execute_interactive("import matplotlib.pyplot as plt, torch; plt.figure()", timeout=60)
    client.complete("torch.nn.fu")
    client.get_shell_msg(timeout=60)
lab = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
with subprocess.Popen(lab, stderr=subprocess.PIPE, text=True) as server:
    for line in server.stderr:
        if "Skipped non-installed" in line or "Use Control-C" in line:
            server.terminate()
if shutil.which("g++"):
    torch.compile(lambda x: x.sin() + 1)(torch.ones(3))
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_starts_with_what_the_lab_installs(name):
    others = {"jupytext", "pytest", "hypothesis", "transformers", "playwright"}  # of the extras `course` and `test`
    module = f"tinylm_classroom.{PROGRAMS[name][0]}"
    code = f"import sys; sys.modules |= dict.fromkeys({others}); import {module}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@needs_make
@pytest.mark.slow
def test_an_empty_home_stays_empty(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "user.mk").write_text(f'user:\n\t"{sys.executable}" "{tmp_path}/user.py"\n')
    done = make("-f", "Makefile", "-f", str(tmp_path / "user.mk"), "user", HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert not list(home.rglob("*"))
