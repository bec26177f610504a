"""The package as others get it: what its archives hold, and that it works where there is no checkout."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import tinylm_lib
from tinylm_classroom import course
from tinylm_lib import __main__ as command_line

ROOT = Path(__file__).parents[2]
PAGES = ("CHANGELOG.md", "CITATION.cff", "ENGINEERS.md", "LICENSE", "README.md")
PARTS = ("tinylm_lib", "tinylm_classroom", "tests", "pyproject.toml", "MANIFEST.in", *PAGES)
PACKAGES = ("tinylm_lib", "tinylm_classroom")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(what: str, folder: Path, out: Path) -> Path:
    """Build an archive of the package in a folder, without a network; a warning that something is deprecated fails."""
    command = [sys.executable, "-c", BUILD, what, str(out)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    assert "Deprecat" not in done.stderr, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, built from a copy of the checkout."""
    folder, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("out")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder)
    return build("build_sdist", folder, out)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return build("build_wheel", next(folder.iterdir()), sdist.parent)


def test_the_source_archive_builds_the_library_and_holds_no_part_of_the_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        parts = {tuple(Path(name).parts[1:3]) for name in archive.getnames()}
    assert parts >= {("tinylm_lib", "model.py"), ("tinylm_classroom", "folders.py"), *((page,) for page in PAGES)}
    assert not [part for part in parts if part[:1] == ("tests",)]


def test_the_wheel_holds_every_file_of_both_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    ours = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert held == ours - {"tinylm_lib/ruff.toml"}, "how the code is formatted is the repository's matter"
    assert held >= {f"{package}/py.typed" for package in PACKAGES}


def test_the_wheel_says_what_is_true(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = wheel.name.rpartition("-py3")[0] + ".dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        assert (
            archive.read(f"{info}/entry_points.txt").split()
            == b"[console_scripts] tinylm = tinylm_lib.__main__:main "
            b"[tinylm.commands] classroom = tinylm_classroom.commands:add_commands".split()
        )
    assert metadata["Version"] == tinylm_lib.__version__
    assert metadata["License-Expression"] == "MIT" and metadata["License-File"] == "LICENSE"
    described = metadata.get_payload()
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|srcset|href)=\"([^\"]+)", described)
    assert described.startswith("# TinyLM for engineers") and not [one for one in targets if "://" not in "".join(one)]


def test_every_page_has_the_same_version() -> None:
    pages = {"CITATION.cff": r"^version: (.+)$", "CHANGELOG.md": r"^## (.+)$"}
    found = {re.search(pattern, (ROOT / page).read_text("utf-8"), re.M)[1] for page, pattern in pages.items()}
    assert found == {tinylm_lib.__version__}


@pytest.mark.slow
def test_the_wheel_works_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    folder = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", str(wheel)], check=True, timeout=300)
    installed = next((tmp_path / "venv").rglob("tinylm_lib/__init__.py")).parent
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (installed.parent / "others.pth").write_text("\n".join(others))  # torch and the like
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def tinylm(*arguments: str) -> subprocess.CompletedProcess:
        command, how = [str(folder / "tinylm"), *arguments], {"capture_output": True, "text": True, "timeout": 300}
        return subprocess.run(command, cwd=tmp_path, env=environment, **how)

    small = "--d-model 16 --n-layers 1 --n-heads 2 --total-steps 2 --sample-tokens 3"
    assert tinylm("--version").stdout == f"tinylm {tinylm_lib.__version__}\n"
    trained = tinylm("train", *small.split())
    assert trained.returncode == 0 and list(tmp_path.glob("work/runs/last/step_000002")), trained.stderr
    for source in (["--checkpoint", "work/runs/last"], ["--from", "storyworld"]):
        written = tinylm("sample", *source, "--prompt", "One", "--max-new-tokens", "4")
        assert written.returncode == 0 and written.stdout.startswith("One"), written.stderr
    lab = tinylm("lab")
    assert lab.returncode == 2 and "checkout" in lab.stderr and len(lab.stderr.splitlines()) == 1
    assert "torch" in tinylm("doctor").stdout
    assert not (installed.parent / "work").exists()


def test_usage_says_the_name_that_was_typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    for typed, name in (("/x/bin/tinylm", "tinylm"), ("tinylm.exe", "tinylm"), ("__main__.py", "python -m tinylm_lib")):
        monkeypatch.setattr(sys, "argv", [typed])
        with pytest.raises(SystemExit):
            command_line.main(["train", "--help"])
        assert capsys.readouterr().out.startswith(f"usage: {name} train ")


def test_lab_without_jupyterlab_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "jupyter_server.serverapp", None)
    for name in [name for name in sys.modules if name.startswith("tinylm_classroom.course")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(course, "lab", raising=False)
    assert command_line.main(["lab"]) == 2
    said = capsys.readouterr().err
    assert "jupyter_server" in said and "make lab" in said and 'pip install -e ".[lab]"' in said


def test_without_lessons_the_help_names_none_of_their_programs_which_say_where_lessons_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    def listed() -> list[str]:
        with pytest.raises(SystemExit):
            command_line.main(["--help"])
        return re.findall(r"^    (\w+) ", capsys.readouterr().out, re.M)

    own = ["train", "sample", "eval", "tokens", "doctor", "page"]
    assert set(listed()) == {*own, "lab", "grade", "site", "slides"}
    monkeypatch.setattr("tinylm_classroom.folders.NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr("tinylm_classroom.commands.NOTEBOOKS", tmp_path / "notebooks")
    assert listed() == own
    for name in ("lab", "grade", "site", "slides"):
        assert command_line.main([name]) == 2
        assert f"tinylm: {name} needs the lessons" in (said := capsys.readouterr().err) and "checkout" in said
