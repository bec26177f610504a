"""Scripts that use the library as an engineer would: they run, and a type checker has nothing to say about them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tinylm_lib
from tinylm_lib import storyworld

SCRIPTS = Path(__file__).parents[1] / "support" / "scripts"
ROOT = Path(tinylm_lib.__file__).parents[1]
# The library is read for its signatures only; its own findings are not about the script.
STRICT = ["mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]


def check(path: Path, cache: Path) -> str:
    command = [sys.executable, "-m", *STRICT, "--cache-dir", str(cache), str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600).stdout


@pytest.mark.parametrize("name", ["from_scratch", "fine_tuning"])
def test_a_script_runs(name: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(storyworld.corpus(60, seed=3), encoding="utf-8")
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), str(text), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0 and "nats" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_type_checker_has_nothing_to_say_about_a_script_and_finds_a_mistake(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for path in sorted(SCRIPTS.glob("*.py")):
        assert check(path, cache).startswith("Success"), check(path, cache)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from tinylm_lib import ModelConfig, load_model, stream\n"
        "model, tokenizer = load_model('storyworld')\n"
        "tokenizer.encode(1)\n"
        "stream(model, 'text', 5)\n"
        "stream(model, model.embed.weight, 5, temperatur=1.0)\n"
        "ModelConfig(d_head='8')\n",
        encoding="utf-8",
    )
    assert [line.split(":")[1] for line in check(wrong, cache).splitlines() if ": error:" in line] == [
        "3",
        "4",
        "5",
        "6",
    ]
