"""Keeping a part, building with it, and the map: as in a student's notebook, and silent where outputs must be fixed."""

from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat import v4
from support.second_edition import another_course

from tinylm_classroom.display import cards
from tinylm_classroom.exercises import find_exercise, names
from tinylm_classroom.exercises.base import Diagnosis
from tinylm_classroom.folders import lessons
from tinylm_classroom.workshop import build, keep, parts, progress
from tinylm_lib import TransformerLM, preset
from tinylm_lib.layers import Embedding

CONFIG = preset("modern", d_model=16, n_layers=2, n_heads=2, max_seq_len=8)
RIGHT = Diagnosis(True, None, "right")


def softmax(x, dim):
    return torch.softmax(x, dim)


def other_softmax(x, dim):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def unfinished(x, dim):
    raise NotImplementedError


def needy(x, dim):
    return torch.softmax(x * ONE, dim)


ONE = 1.0


@pytest.fixture(autouse=True)
def shown_cards(monkeypatch):
    """Cards are collected, not displayed."""
    shown = []
    monkeypatch.setattr(cards.Card, "show", lambda card: shown.append(card))
    return shown


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The parts of a student who is at work, and a fresh process that finds everything right."""
    monkeypatch.setenv("TINYLM_WORKSHOP", "on")
    monkeypatch.setattr(parts, "PARTS_FOLDER", tmp_path / "parts")
    monkeypatch.setattr(keep, "check_in_fresh_process", lambda *_: RIGHT)
    return tmp_path / "parts"


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_right_function_is_kept_and_used(folder, shown_cards):
    kept = keep.keep("softmax", other_softmax)  # under its own name
    assert kept[:2] == ("softmax", True) and files(folder) == ["softmax.py"]
    assert "work/parts/softmax.py" in kept.message and "Models that you build" in kept.message
    assert [str(card) for card in shown_cards] == [kept.message]
    torch.manual_seed(1)
    model = build.build(CONFIG)
    torch.manual_seed(1)
    library = TransformerLM(CONFIG)
    assert model.blocks[0].attention.parts["softmax"].__code__.co_filename == str(folder / "softmax.py")
    assert build.Use("softmax", 2) in model.uses
    torch.testing.assert_close(model(torch.arange(8)[None]), library(torch.arange(8)[None]))


def test_what_was_kept_before_is_put_aside_and_never_lost(folder):
    for function in (softmax, other_softmax, softmax):
        kept = keep.keep("softmax", function)
    assert files(folder) == ["earlier/softmax_1.py", "earlier/softmax_2.py", "softmax.py"]
    assert "work/parts/earlier/softmax_2.py" in kept.message
    assert (folder / "earlier" / "softmax_1.py").read_text() == (folder / "softmax.py").read_text()
    assert "other_softmax" in (folder / "earlier" / "softmax_2.py").read_text()
    (folder / "softmax.py").write_text("mine = 1\n")
    keep.keep("softmax", softmax)
    assert (folder / "earlier" / "softmax_3.py").read_text() == "mine = 1\n"


def test_keeping_the_same_again_writes_nothing_and_checks_nothing(folder, monkeypatch):
    keep.keep("softmax", softmax)
    monkeypatch.setattr(keep, "check_in_fresh_process", lambda *_: pytest.fail("it was checked"))
    kept = keep.keep("softmax", softmax)
    assert kept.kept and "kept already" in kept.message and files(folder) == ["softmax.py"]


@pytest.mark.parametrize(
    ("function", "title", "words"),
    [
        (unfinished, "softmax: nothing to keep yet", ""),
        (lambda x, dim: x, "softmax: not kept, it does not pass its check", "[0.659, 0.2424"),
        (None, "softmax: not kept, it does not pass its check", "NoneType"),
        (needy, "softmax: right, but it cannot be kept like this", "needy uses ONE, a float"),
        (torch.softmax, "softmax: right, but it cannot be kept like this", "only a function written with def"),
    ],
)
def test_what_is_not_kept_is_said_and_nothing_is_written(folder, shown_cards, function, title, words):
    kept = keep.keep("softmax", function)
    assert not kept.kept and kept.message.startswith(title) and words in kept.message
    assert len(shown_cards) == 1 and not folder.exists()


def test_what_fails_in_a_fresh_process_is_not_kept(folder, monkeypatch):
    keep.keep("softmax", softmax)
    monkeypatch.setattr(keep, "check_in_fresh_process", lambda *_: Diagnosis(False, None, "no name 'x'"))
    kept = keep.keep("softmax", other_softmax)
    assert not kept.kept and "stayed here" in kept.message and "no name 'x'" in kept.message
    assert files(folder) == ["softmax.py"] and "other_softmax" not in (folder / "softmax.py").read_text()


def test_what_the_disk_refuses_is_said_and_an_unknown_exercise_raised(folder):
    folder.write_text("a file where the folder should be")
    kept = keep.keep("softmax", softmax)
    assert not kept.kept and "parts" in kept.message
    with pytest.raises(KeyError, match="no exercise 'sofmax'"):
        keep.keep("sofmax", softmax)


def test_a_broken_part_is_reported_and_left_out(folder, shown_cards):
    folder.mkdir()
    (folder / "softmax.py").write_text("raise OSError('gone')\n")
    model = build.build(CONFIG)
    (card,), words = shown_cards, "work/parts/softmax.py does not work. It cannot be imported: OSError: gone"
    assert str(card).startswith("Left out of this model: softmax\n") and words in str(card)
    assert build.Use("softmax", 0, "yours is broken") in model.uses
    assert not hasattr(model.blocks[0].attention, "parts")
    text = str(progress.progress())
    assert "✗ softmax broken" in text and words in text and "Next: fix softmax in lesson 03 softmax" in text


def test_a_part_of_an_older_exercise_is_stale_only_if_it_fails_now(folder, monkeypatch):
    keep.keep("softmax", softmax)
    path = folder / "softmax.py"
    path.write_text(path.read_text().replace(find_exercise("softmax").digest, "0" * 12))
    assert "✓ softmax kept" in str(progress.progress())
    monkeypatch.setattr(parts, "diagnose", lambda *_: Diagnosis(False, None, "a new demand"))
    text = str(progress.progress())
    assert "! softmax stale" in text and "passed an earlier check, not the one of today. a new demand" in text


def test_using_says_whose_each_part_is(folder):
    keep.keep("softmax", softmax)
    card = progress.using(build.build(CONFIG))
    lines = str(card).splitlines()
    assert lines[0].startswith("1 of the ") and lines[0].endswith(" parts in this model are yours")
    assert [line.split() for line in lines if "softmax" in line] == [["softmax", "yours", "in", "2", "places"]]
    assert any(line.split()[:3] == ["rms_norm", "the", "library's"] and "lesson 04" in line for line in lines)
    assert card.html.count("✓") == 1 and "in 2 places</span>" in card.html and "<script" not in card.html
    with pytest.raises(ValueError, match=r"build\(config\)"):
        progress.using(TransformerLM(CONFIG))


def test_a_model_knows_why_it_calls_no_part_of_yours_and_nothing_of_those_that_it_has_no_place_for(folder, shown_cards):
    keep.keep("softmax", softmax)
    (folder / "layer_norm.py").write_text("raise ValueError\n")
    assert "layer_norm" not in [use.name for use in build.build(CONFIG).uses]  # its norms are of another kind
    assert len(shown_cards) == 1  # of what was kept
    model = build.build(preset("gpt", d_model=16, n_layers=1, n_heads=2, vocab_size=9, max_seq_len=8))
    assert build.Use("softmax", 0, "this model drops attention weights in training") in model.uses


def test_the_map_has_every_lesson_and_every_exercise_and_says_what_comes_next(folder, monkeypatch):
    text = str(progress.progress())
    lines = [line.split() for line in text.splitlines()[1:]]
    assert [tuple(line[:2]) for line in lines[: len(lessons())]] == [*lessons().items()]
    assert text.count("○") == len(names()) and text.startswith(f"Your workshop: 0 of {len(names())} parts kept")
    assert f"Next: write {names()[0]}" in text
    keep.keep("softmax", softmax)
    card = progress.progress()
    assert str(card).startswith("Your workshop: 1 of ") and "✓ softmax kept, ○ cross_entropy open" in str(card)
    assert card.html.count("✓") == 1 and card.html.count("○") == len(names()) - 1
    assert "class=" not in card.html and "<script" not in card.html
    monkeypatch.setattr(progress, "lessons", dict)  # where only the library is installed
    assert f"in lesson {find_exercise(names()[0]).lesson}, then keep it." in str(progress.progress())
    monkeypatch.setattr(parts, "read_part", lambda name, path: parts.PartState(name, "done", "", len))
    assert str(progress.progress()).endswith("Everything is kept. The models that you build are yours.")


def test_a_part_whose_exercise_moved_or_went_is_kept_and_said(folder):
    keep.keep("softmax", softmax)
    text = (folder / "softmax.py").read_bytes()
    (folder / "helpers.py").write_text("def mine(): ...\n")
    assert "\n  03 softmax        ✓ softmax kept, ○ cross_entropy open\n" in str(progress.progress())
    with another_course(softmax=replace(find_exercise("softmax"), lesson="05")):
        moved = next(line for line in str(progress.progress()).splitlines() if "✓ softmax kept" in line)
        assert moved.startswith("  05 ") and build.Use("softmax", 2) in build.build(CONFIG).uses
    with another_course(softmax=None):
        said = str(progress.progress())
        assert "work/parts/softmax.py is of an exercise that no lesson has any more. It stays there, and no" in said
        assert "helpers" not in said and build.build(CONFIG)
        with pytest.raises(KeyError, match="make lab puts today's next to it"):
            keep.keep("softmax", softmax)
    assert (folder / "softmax.py").read_bytes() == text


def test_off_it_writes_and_reads_nothing_and_says_what_it_would_do(folder, monkeypatch):
    keep.keep("softmax", softmax)
    before = (files(folder), str(progress.progress()))
    monkeypatch.setenv("TINYLM_WORKSHOP", "off")
    monkeypatch.setattr(keep, "check_in_fresh_process", lambda *_: pytest.fail("off"))
    monkeypatch.setattr(parts, "read_part", lambda *_: pytest.fail("off"))
    said = [keep.keep("softmax", function) for function in (other_softmax, softmax)]
    assert said[0] == said[1] and not said[0].kept
    assert said[0].message.startswith("softmax: ready to be kept") and "work/parts/softmax.py" in said[0].message
    assert keep.keep("softmax", unfinished).message == "softmax: nothing to keep yet"
    assert "ONE" in keep.keep("softmax", needy).message
    model = build.build(CONFIG)
    assert not any(use.places for use in model.uses) and type(model.embed) is Embedding
    assert str(progress.progress()).startswith("Your workshop: 0 of ")
    assert files(folder) == before[0]


CELLS = """
import torch
from pathlib import Path
from tinylm_lib import preset
from tinylm_classroom import build, keep, progress, using
from tinylm_classroom.workshop import parts
parts.PARTS_FOLDER = Path("parts")
---
def shift(x, dim):
    return x - x.amax(dim, keepdim=True).detach()
---
def softmax(x, dim):
    raise NotImplementedError
---
keep("softmax", softmax)
---
def softmax(x, dim):
    e = torch.exp(shift(x, dim))
    return e / e.sum(dim, keepdim=True)
---
keep("softmax", softmax)
---
using(build(preset("modern")))
"""


def test_in_a_real_notebook_with_a_real_fresh_process(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYLM_WORKSHOP", "on")
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in CELLS.strip().split("\n---\n")])
    options = {"extra_arguments": ["--log-level=ERROR"], "resources": {"metadata": {"path": str(tmp_path)}}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", **options).execute()
    nbformat.validate(notebook)
    said = [[output.data["text/plain"] for output in cell.outputs] for cell in notebook.cells]
    assert said[:4] == [[], [], [], ["softmax: nothing to keep yet"]]
    assert len(said[5]) == 1 and "Taken along: import torch, shift." in said[5][0]
    assert "softmax" in said[6][0] and "yours" in said[6][0]
    assert parts.check_in_fresh_process("softmax", tmp_path / "parts" / "softmax.py").passed
