"""tools/yours.py: the pieces of a corpus that it trains on, and that lesson 20 shows the recorded table."""

from pathlib import Path

import yours

from tinylm_classroom.folders import NOTEBOOKS
from tinylm_lib import load_corpus

ROOT = Path(__file__).parents[2]


def test_the_table_of_the_lesson_is_the_recorded_one() -> None:
    lines = (ROOT / "tools/yours.txt").read_text("utf-8").splitlines()
    lesson = (NOTEBOOKS / "source/20_yours.py").read_text("utf-8")
    rows = [line for line in lines if not line.startswith("#")]
    assert [row.split()[:2] for row in rows] == [[name, str(n)] for name in yours.CORPORA for n in yours.SIZES]
    assert lines[0] in lesson and "\n".join(rows) in lesson


def test_the_pieces_of_a_corpus_are_of_one_size_and_different(tmp_path: Path) -> None:
    whole = load_corpus("pydoc")
    for name in yours.CORPORA:
        found = [yours.piece(name, 20_000, seed, tmp_path) for seed in yours.SEEDS]
        texts = {"".join(text.tokenizer.decode(ids.tolist()) for ids in text[2:4]) for text in found}
        assert len(texts) == 3 and all(19_000 <= text.n_bytes <= 20_000 for text in found)
        assert name != "pydoc" or all(text.rstrip() in whole for text in texts)


def test_a_training_is_summed_up_by_its_best_look(monkeypatch) -> None:
    looks = [yours.own_text.Look(10, 3.0, 3.5), yours.own_text.Look(20, 2.0, 3.0), yours.own_text.Look(30, 1.0, 4.0)]
    monkeypatch.setattr(yours.own_text, "learn", lambda model, text: iter(looks))
    training, end, lowest, at, bits = yours.trained("storyworld", 20_000, 0)
    assert (training, end, lowest, at) == (1.0, 4.0, 3.0, 20) and 0.5 < bits < 2
