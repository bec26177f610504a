"""What a notebook of an older edition imports, and where it is today."""

import pytest

from tinylm_lib.classroom.course import moved
from tinylm_lib.classroom.course.moved import moved_imports
from tinylm_lib.classroom.folders import NOTEBOOKS

MOVED = {
    "from tinylm_lib.optim import build_optimizer": "from tinylm_lib import build_optimizer",
    "from tinylm_lib.bpe import merge": "from tinylm_lib.text import merge",
    "from tinylm_lib.distributed import ALONE": "from tinylm_lib.training import ALONE",
    "from tinylm_lib.job import line_end": "from tinylm_lib.text import line_end",
    "from tinylm_lib.classroom.capture import capture": "from tinylm_lib.classroom import capture",
    "from tinylm_lib.classroom.ablation import WHOLE": "from tinylm_lib.classroom.experiments.ablation import WHOLE",
    "from tinylm_lib.classroom.parts import Extract": "from tinylm_lib.classroom.workshop.extract import Extract",
    "import tinylm_lib.optim": "import tinylm_lib.training.optim",
    "from tinylm_lib.layers import Gone": "",
    "import tinylm_lib.gone": "",
}


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_import_is_found_where_it_is_now(old, new):
    exec(new, {})  # it works, as it is
    assert moved_imports([old]) == {old: new} and moved_imports([new]) == {}


def test_one_statement_becomes_one_per_place():
    assert moved_imports(["from tinylm_lib.data import (\n    split, load_tokenizer, IGNORED)"]) == {
        "from tinylm_lib.data import load_tokenizer": "from tinylm_lib import load_tokenizer",
        "from tinylm_lib.data import IGNORED": "from tinylm_lib.config import IGNORED",
    }


def test_a_new_name_is_known_once_the_old_one_is_gone(monkeypatch):
    monkeypatch.setattr(moved, "RENAMED", {"bpe.old": "merge", "layers.old": "pick", "layers.Linear": "pick"})
    cell = "from tinylm_lib import layers\nfrom tinylm_lib.bpe import old\nlayers.old(), layers.Linear(), other.old()"
    assert moved_imports([cell]) == {
        "from tinylm_lib.bpe import old": "from tinylm_lib.text import merge",
        "layers.old": "layers.pick",
    }


@pytest.mark.parametrize("cell", ["%matplotlib inline", "from tinylm_lib.gone import", "import torch.gone", "x = 1"])
def test_what_is_no_import_of_the_library_is_left_alone(cell):
    assert moved_imports([cell]) == {}


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("source/*.py")), ids=lambda path: path.stem)
def test_a_lesson_of_today_imports_nothing_that_has_moved(path):
    assert moved_imports([path.read_text(encoding="utf-8")]) == {}
