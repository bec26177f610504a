"""What `import tinylm_lib` brings, and what it leaves alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tinylm_lib


def python(program: str, *flags: str, **how: Any) -> str:
    command = [sys.executable, *flags, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, **how).stdout


def test_importing_loads_no_command_no_run_and_no_lesson() -> None:
    loaded = python("import sys, tinylm_lib; print(*sys.modules)").split()
    assert "tinylm_lib.training.evaluation" in loaded
    heavy = {"tokenizers", "huggingface_hub", "transformers", "matplotlib", "IPython", "tinylm_classroom"}
    rooms = {f"tinylm_lib.{room}" for room in ("runs", "commands", "classroom")}
    assert not (rooms | heavy) & {*loaded}


def test_the_version_is_known_where_nothing_is_installed() -> None:
    root = Path(tinylm_lib.__file__).parents[1]
    program = """
from importlib import metadata

def none(name, version=metadata.version):
    if name.startswith("tinylm"):
        raise metadata.PackageNotFoundError(name)
    return version(name)

metadata.version = none
import tinylm_lib
print(tinylm_lib.__version__)
"""
    assert python(program, cwd=root).strip() == tinylm_lib.__version__
    assert all(part.isdecimal() for part in tinylm_lib.__version__.split("."))


def test_every_public_name_is_there_and_sorted() -> None:
    assert [name for name in tinylm_lib.__all__ if not hasattr(tinylm_lib, name)] == []
    assert len({*tinylm_lib.__all__}) == len(tinylm_lib.__all__)


@pytest.mark.skipif(torch.__version__ < "2.12", reason="trunc_normal_ of torch 2.11 imports it for meta tensors")
def test_loading_a_model_and_writing_with_it_do_not_import_the_compiler() -> None:
    program = """
import sys, torch
before = "torch._dynamo" in sys.modules
from tinylm_lib import generate
from tinylm_lib.pretrained import load_pretrained
generate(load_pretrained("storyworld").model, torch.zeros(1, 1, dtype=torch.long), 2)
print(before or "torch._dynamo" not in sys.modules)
"""
    assert python(program).strip() == "True"
