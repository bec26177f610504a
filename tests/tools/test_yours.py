"""tools/yours.py: the pieces of a corpus that it trains on, and the table that lesson 20 shows."""

from pathlib import Path

import yours

from tinylm_classroom.experiments.yours import recorded_sizes
from tinylm_lib import load_corpus


def test_the_recorded_table_has_the_lines_of_the_tool() -> None:
    assert {name: [*sizes] for name, sizes in recorded_sizes().items()} == {
        key: [*yours.SIZES] for key in yours.CORPORA
    }


def test_the_pieces_of_a_corpus_are_of_one_size_and_different(tmp_path: Path) -> None:
    whole = load_corpus("pydoc")
    for name in yours.CORPORA:
        found = [yours.piece(name, 20_000, seed, tmp_path) for seed in yours.SEEDS]
        texts = {"".join(text.tokenizer.decode(ids.tolist()) for ids in text[2:4]) for text in found}
        assert len(texts) == 3 and all(19_000 <= text.n_bytes <= 20_000 for text in found)
        assert name != "pydoc" or all(text[:200] in whole for text in texts)


def test_a_training_is_summed_up_by_its_best_look(monkeypatch) -> None:
    looks = [yours.own_text.Look(10, 3.0, 3.5), yours.own_text.Look(20, 2.0, 3.0), yours.own_text.Look(30, 1.0, 4.0)]
    monkeypatch.setattr(yours.own_text, "learn", lambda model, text: iter(looks))
    training, end, lowest, at, bits = yours.trained("storyworld", 20_000, 0)
    assert (training, end, lowest, at) == (1.0, 4.0, 3.0, 20) and 0.5 < bits < 2
