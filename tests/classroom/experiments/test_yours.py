"""The experiments of lesson 20: the same text twice, the compressor, the record, and the ten questions."""

import pytest

from tinylm_classroom.experiments import yours
from tinylm_classroom.workshop import yours as runs
from tinylm_classroom.workshop.own_text import own_text
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def few():
    return own_text("storyworld", n_bytes=20_000)


def test_the_text_is_twice_in_its_file_and_most_of_what_is_held_out_is_repeated(few):
    double = runs.twice_in_a_file(few)
    assert double.n_bytes - 1 == 2 * (few.n_bytes - 1) and double.repeated > 0.8 > 0.1 > few.repeated


def test_a_compressor_that_has_read_the_text_needs_less(few):
    double = runs.twice_in_a_file(few)
    assert 0 < yours.compressed_bits(double) < 0.5 * yours.compressed_bits(few) < 4


def test_each_size_was_trained_three_times():
    for rows in yours.recorded_sizes().values():
        assert [*rows] == [20_000, 50_000, 100_000, 200_000, 400_000]
        assert all(row.least <= row.bits <= row.most and row.lowest <= row.at_end for row in rows.values())


def test_what_a_model_chose_is_counted_as_it_chose_it(few):
    model = load_pretrained("storyworld").model
    ids = yours.written_ids(model, few, "\n", 20, 0.7, 1)
    assert len(ids) == 21 and few.tokenizer.decode(ids) == yours.written(model, few, "\n", 20, 0.7, 1)


def test_the_commands_name_the_text(tmp_path):
    (tmp_path / "my notes.txt").write_text("word")
    assert f"--corpus '{tmp_path.resolve() / 'my notes.txt'}' " in yours.commands(str(tmp_path / "my notes.txt"))
    said = yours.commands("notes.txt")
    assert "--corpus notes.txt" in said and "TEXT" not in said and "--from" in said


def test_the_ten_questions_are_asked_of_the_model(few, monkeypatch):
    asked = []
    monkeypatch.setattr(runs, "display", lambda *views: asked.extend(views))
    model = load_pretrained("storyworld").model.eval()
    runs.ask_first_five(model, few)
    runs.ask_last_five(model, few)
    assert [str(view.data["question"]).split(".")[0] for view in asked] == [str(n) for n in range(1, 11)]
    assert yours.changed_positions(model, few.held_out[None, :16].long(), 9) == [*range(9, 16)]
    assert yours.score(12, 4) == pytest.approx(yours.score(32, 24), abs=1e-4)
    config = model.config
    assert yours.cached_numbers(model) == 2 * config.n_layers * config.n_kv_heads * config.d_head
