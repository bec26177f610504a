"""An environment as Colab's, without the library: what the image has, and what the extra `colab`
adds to it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from jupyter_client.kernelspec import KernelSpecManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tinylm_classroom.folders import PACKAGES

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FOLDER = ROOT / "work" / "cache" / "colab"
VENV = FOLDER / "venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PIP = [str(PYTHON), "-I", "-m", "pip", "--disable-pip-version-check"]
STAMP = VENV / "colab.stamp"
PINS = HERE / "requirements.txt"
STAND_INS = HERE / "stand_ins"
LIBRARY = "tinylm-lib"
EXTRA = "colab"
NOT_OURS = shutil.ignore_patterns("__pycache__")
PROJECT_FILES = ("pyproject.toml", "MANIFEST.in", "LICENSE", "*.md")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
# a kernel of Colab's knows its package before the first cell runs
KERNEL = (
    "import google.colab.output; from ipykernel.kernelapp import launch_new_instance; "
    "launch_new_instance()"
)


def wanted() -> list[str]:
    """What the library and its extra `colab` need, as pip's requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"][EXTRA]]


def prepare() -> None:
    """Make the environment, or leave it if nothing has changed.

    Raises CalledProcessError where pip cannot install, as for an extra that does not accept a
    version of Colab's.
    """
    torch = f"torch=={version('torch').partition('+')[0]}"
    asked = [torch, *wanted()]
    text = "\n".join([sys.version, PINS.read_text("utf-8"), *asked])
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    if STAMP.exists() and STAMP.read_text("utf-8") == fingerprint:
        return
    print("Installing an environment as Colab's, which takes minutes ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    cached = {
        **os.environ,
        "PIP_CACHE_DIR": str(ROOT / "work" / "cache" / "pip"),
    }  # as set-up has it
    subprocess.run([*PIP, "install", "--quiet", "-r", str(PINS), *asked], check=True, env=cached)
    STAMP.write_text(fingerprint, "utf-8")


def build_wheel() -> Path:
    """The wheel of this checkout, built from a copy: what an earlier build left would be in it."""
    wheels = FOLDER / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for old in wheels.iterdir():
        old.unlink()
    command = [sys.executable, "-c", BUILD, str(wheels)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with TemporaryDirectory() as copy:
        for package in PACKAGES:
            shutil.copytree(ROOT / package, Path(copy, package), ignore=NOT_OURS)
        for path in chain.from_iterable(map(ROOT.glob, PROJECT_FILES)):
            shutil.copy(path, copy)
        subprocess.run(command, cwd=copy, check=True, **quiet)
    (wheel,) = wheels.glob("*.whl")
    return wheel


def remove_library() -> None:
    """As on a new machine of Colab's, the library is not there."""
    subprocess.run(
        [*PIP, "uninstall", "--quiet", "--yes", LIBRARY], check=True, stderr=subprocess.DEVNULL
    )


def changed() -> list[str]:
    """What pip changed of Colab's image, as `name version`."""
    listed = subprocess.run(
        [*PIP, "list", "--format=json"], check=True, stdout=subprocess.PIPE, text=True
    )
    versions = {
        canonicalize_name(each["name"]): each["version"] for each in json.loads(listed.stdout)
    }
    lines = [line for line in PINS.read_text("utf-8").splitlines() if "==" in line]
    pins = [Requirement(line) for line in lines]
    return [
        f"{pin.name} {versions.get(pin.name)}"
        for pin in pins
        if versions.get(pin.name) not in pin.specifier
    ]


def kernel_specs() -> KernelSpecManager:
    """Where the kernel of this environment, `colab`, is found."""
    folder = FOLDER / "kernels" / EXTRA
    folder.mkdir(parents=True, exist_ok=True)
    spec = {
        "argv": [str(PYTHON), "-c", KERNEL, "-f", "{connection_file}", "--log-level=ERROR"],
        "display_name": "Colab",
        "language": "python",
    }
    (folder / "kernel.json").write_text(json.dumps(spec), "utf-8")
    return KernelSpecManager(kernel_dirs=[str(folder.parent)], ensure_native_kernel=False)


def variables(notebook: Path, wheel: Path) -> dict[str, str]:
    """The variables of the kernel: nothing comes from the network, and the library from a wheel."""
    own = {name: value for name, value in os.environ.items() if name != "TINYLM_WORK"}
    return {
        **own,
        "JPY_SESSION_NAME": str(notebook),  # as the server of Colab does
        "PIP_NO_INDEX": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # what a kernel says of its debugger at each start
        "PYTHONPATH": str(STAND_INS),
        "TINYLM_WHEEL": wheel.as_uri(),
    }
