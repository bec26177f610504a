"""The report: what it says is what was measured, it loads nothing, and it names what is the library's."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tinylm_classroom import export_page
from tinylm_classroom.exercises import find_exercise
from tinylm_classroom.workshop import build as building
from tinylm_classroom.workshop import report as rooms
from tinylm_classroom.workshop.build import build
from tinylm_classroom.workshop.own_text import Look, own_config, own_text, read_stories
from tinylm_classroom.workshop.parity import parity
from tinylm_classroom.workshop.parts import PartState
from tinylm_classroom.workshop.report import ALWAYS, best_look, model_folder, model_report
from tinylm_lib import TransformerLM, load_hf, save_hf, storyworld

pytestmark = pytest.mark.usefixtures("one_thread")
LOOKS = [Look(10, 4.0, 4.1), Look(20, 2.0, 3.25), Look(30, 1.0, 3.5)]
HOSTILE = "</title><script>alert(1)</script>&\"'"


@pytest.fixture(scope="module")
def stories():
    return read_stories(storyworld.corpus(60, seed=3))


def model_of(text, monkeypatch, *mine: str) -> TransformerLM:
    """A model in which some parts are a student's."""
    states = [
        PartState(name, "done", "", find_exercise(name).reference) if name in mine else PartState(name, "open")
        for name in dict.fromkeys(("softmax", "rms_norm", "silu", "layer_norm", *mine))
    ]
    monkeypatch.setattr(building, "read_parts", lambda: states)
    monkeypatch.setattr(rooms, "read_parts", lambda: states)
    return build(own_config(text))


def test_it_says_what_was_measured_and_whose_the_parts_are(stories, tmp_path: Path, monkeypatch) -> None:
    model = model_of(stories, monkeypatch, "rms_norm")
    tested = parity(model.config, {"rms_norm": find_exercise("rms_norm").reference})
    path = tmp_path / "report.html"
    links = {"Its page": tmp_path / "my model.html"}
    written = model_report(path, model, stories, LOOKS, sample="One day", tested=tested, links=links)
    page = written.read_text("utf-8")
    assert "3.25 nats per token" in page and f"{stories.bits_per_byte(3.25):.2f} bits per byte" in page
    assert f"the model is {3.25 - stories.floor:.2f} above it" in page and "after 20 of 30 updates" in page
    assert "Its author&#x27;s own parts: rms_norm." in page
    assert f"From the library: softmax, silu, {ALWAYS}." in page and "1 of 4 parts of the course" in page
    assert "<td>rms_norm</td><td>04</td><td>its author&#x27;s</td><td>9</td>" in page
    assert 'href="my%20model.html">my model.html</a>' in page
    assert page.count("<img") == 1 and page.count("One day") == 1
    assert not re.search(r'(?:src|href)="(?!data:|my%20model)', page) and "<script" not in page


def test_what_is_unknown_is_said_and_what_others_wrote_is_escaped(tmp_path: Path, monkeypatch) -> None:
    source = tmp_path / "x & y.txt"
    source.write_text("A line of a text of mine.\n" * 900, encoding="utf-8")
    text = own_text(source)
    page = model_report(
        tmp_path / "r.html", model_of(text, monkeypatch), text, LOOKS, sample=HOSTILE, title=HOSTILE
    ).read_text("utf-8")
    assert "not known: nobody has the exact probabilities" in page and "x &amp; y.txt" in page
    assert (
        "Its author&#x27;s own parts: none." in page and "<script" not in page and "100% of the held-out text" in page
    )
    assert page.count("<img") == 1


def test_it_leads_with_what_is_good_and_says_it_only_where_it_is_so(stories, tmp_path: Path, monkeypatch) -> None:
    model = model_of(stories, monkeypatch)
    bits = stories.bits_per_byte(3.25)
    for compressor, is_better in ((bits + 1, True), (bits / 2, False), (None, False)):
        page = model_report(
            tmp_path / "r.html", model, stories, LOOKS, sample="One day", compressor=compressor
        ).read_text("utf-8")
        assert ("the compressor lzma needs" in page) == is_better
        says = f"lzma needs {compressor or 0:.2f} bits per byte, {'more' if is_better else 'not more'} than the model"
        assert (says in page) == (compressor is not None) == ("<dt>Compressor</dt>" in page)
        assert "among 25.8 equally likely ones" in page
        assert page.index("What is good") < page.index("One day") < page.index("What was measured")
    assert page.index("<details>") < page.index("<td>softmax</td>")


def test_a_part_inside_of_a_larger_one_is_not_said_to_be_the_library_s(stories, tmp_path: Path, monkeypatch) -> None:
    model = model_of(stories, monkeypatch, "softmax", "silu", "attention", "swiglu")
    page = model_report(tmp_path / "r.html", model, stories, LOOKS, sample="").read_text("utf-8")
    assert "Its author&#x27;s own parts: attention, swiglu." in page
    assert f"From the library: rms_norm, {ALWAYS}." in page
    assert "<td>softmax</td><td>03</td><td>not called</td><td></td><td></td><td>your larger part brings its own" in page


def test_a_model_of_one_s_own_parts_is_exported_like_any_other(stories, tmp_path: Path, monkeypatch) -> None:
    model = model_of(stories, monkeypatch, "rms_norm", "rotate", "attention", "swiglu", "linear").eval()
    assert sum(use.places > 0 for use in model.uses) == 5
    opened = load_hf(save_hf(model, tmp_path / "weights")).eval()
    ids = stories.held_out[None, :20]
    with torch.no_grad():
        torch.testing.assert_close(opened(ids), model(ids), rtol=1e-4, atol=1e-4)
    assert export_page(model, stories.tokenizer, tmp_path / "my_model.html").stat().st_size > 1e5


def test_what_cannot_be_reported_is_refused_and_nothing_is_written(stories, tmp_path: Path, monkeypatch) -> None:
    model, path = model_of(stories, monkeypatch), tmp_path / "report.html"
    with pytest.raises(ValueError, match="pass the looks of learn"):
        model_report(path, model, stories, [], sample="")
    with pytest.raises(ValueError, match="must come from build"):
        model_report(path, TransformerLM(replace(model.config)), stories, LOOKS, sample="")
    assert not path.exists()


def test_the_best_look_is_the_one_with_the_lowest_held_out_loss() -> None:
    assert best_look(LOOKS).step == 20


def test_each_model_has_a_folder_of_its_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(rooms, "is_off", lambda: False)
    monkeypatch.setattr(rooms, "WORK", tmp_path)
    found = [model_folder(name).relative_to(tmp_path).as_posix() for name in ("my notes.txt", "my notes.txt", "../..")]
    assert found == ["yours/my-notes", "yours/my-notes-2", "yours/text"]
    monkeypatch.setattr(rooms, "is_off", lambda: True)
    assert not model_folder("my notes.txt").is_relative_to(tmp_path)
