"""The view of rotary positions: its numbers are the model's own, its picture shows the scores, bad input is refused."""

import re

import pytest
import torch
from support.models import scrambled, some_ids, tiny
from support.views import Numbers, shipped, table_rows

from tinylm_classroom import rope_view
from tinylm_classroom.shapes.capture import capture
from tinylm_classroom.views.rope import REACH, STARTS, QueryKey
from tinylm_lib.config import RopeScaling
from tinylm_lib.positions import LAYOUTS

MODEL = "post-norm, rms, interleaved"
IDS = some_ids(1, 9)


@pytest.fixture(scope="module")
def model():
    return scrambled(tiny(MODEL))


def turned(x, position: int, base: float, layout: str):
    """x as complex numbers, each multiplied by e^(i angle): another way to the same rotation."""
    x, n = x.double(), len(x) // 2
    pairs = x.view(n, 2).T if layout == "interleaved" else x.view(2, n)
    speeds = base ** (-torch.arange(n).double() / n)
    return torch.complex(*pairs) * torch.polar(torch.ones(n).double(), position * speeds)


def score(q, k, query: int, key: int, base: float, layout: str) -> float:
    return (turned(q, query, base, layout) * turned(k, key, base, layout).conj()).real.sum().item()


@pytest.mark.parametrize("name", ["modern", MODEL, "one key for all heads"])
def test_the_stored_vectors_turn_into_the_scores_of_the_model(name):
    model = scrambled(tiny(name))
    for layer, head, query, key in ((0, 0, -1, 0), (1, 5, 6, 2), (1, 2, 4, 4)):
        data = rope_view(model, Numbers(), IDS, layer, head, query, key).data
        q, k, at = torch.tensor(data["q"]), torch.tensor(data["k"]), range(9)[query]
        expected = capture(model, IDS).attention(layer).scores[0, head, at, key].item()
        assert score(q, k, at, key, data["base"], data["layout"]) == pytest.approx(expected, abs=1e-3, rel=1e-3)
        assert data["offset"] == at - key and data["layout"] == model.config.rope_layout
        assert [data["query_word"], data["key_word"]] == [f"w{IDS[0, place].item()}" for place in (at, key)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("base", [100.0, 500_000.0])
def test_scores_of_the_picture_are_those_of_complex_numbers_and_stay_when_both_move(base, layout):
    q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(3))
    away = torch.arange(REACH + 1)
    pair = QueryKey(q, k, base, layout, 5)
    for start in STARTS:
        found = pair.scores(torch.full_like(away, start), away)
        expected = [score(q, k, start + distance, start, base, layout) for distance in away.tolist()]
        torch.testing.assert_close(found.double(), torch.tensor(expected).double(), atol=1e-4, rtol=0)
        torch.testing.assert_close(found, pair.scores(torch.zeros_like(away), away), atol=1e-4, rtol=0)


def test_added_waves_and_mixed_layouts_break_what_turning_keeps():
    q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(3))
    pair, starts = QueryKey(q, k, 10_000.0, "halves", 5), torch.tensor(STARTS)
    assert pair.scores(starts, torch.tensor(5)).diff().abs().max() < 1e-4
    assert pair.added(starts, torch.tensor(5)).diff().abs().min() > 0.1
    assert pair.mixed_up(starts).diff().abs().min() > 0.1


def test_the_words_and_the_table_tell_the_scores(model):
    view = rope_view(model, Numbers(), IDS, 1, 4, query=5, key=2)
    q, k = torch.tensor(view.data["q"]), torch.tensor(view.data["k"])
    asks, offers, base = view.data["query_word"], view.data["key_word"], model.config.rope_base
    right = f"{score(q, k, 3, 0, base, 'interleaved'):.2f}"
    assert repr(view) == (
        f"Rotary positions. Layer 1, head 4: {asks} and {offers}, 3 apart: the score is {right}, "
        f"and both moved on by 1,000 it is {right}."
    )
    rows = {name: cells for name, *cells in table_rows(view.html)}
    assert rows["score"] == ["key at 0", "key at 40", "key at 400"] and rows["interleaved"] == [right] * 3
    assert rows["halves"] == [f"{score(q, k, 3, 0, base, 'halves'):.2f}"] * 3
    assert len(set(rows["mixed up"])) == len(set(rows["waves added"])) == 3
    assert rows["1"] == ["0.100", "62.8"]  # of D = 8: a speed of 10000^(-2/8)
    assert right in re.search(r'<img alt="([^"]+)"', view.html)[1]


def test_the_view_of_the_lesson_begins_with_the_part_that_is_asked_for():
    view = rope_view(shipped().model, shipped().tokenizer, " Carlos thanked Jamal.", 2, 2, part="score")
    assert view.data["part"] == "score" and len(view.data["q"]) == 32
    assert "“.” and Carlos, 3 apart" in repr(view)


@pytest.mark.parametrize(("changed", "message"), [
    ({"layer": 2}, "layer 2 is not one of the model's 2, which count from 0 to 1"),
    ({"head": -1}, "head -1 is not one of the model's 6"),
    ({"part": "dial"}, "part 'dial' is not one of bank, score"),
    ({"query": 9}, "query 9 is not a position in a text of 9 tokens: take 0 to 8"),
    ({"key": -10}, "key -10 is not a position"),
    ({"query": 2, "key": 5}, "the key at 5 must be 0 to 64 positions before the query at 2"),
    ({"text_or_ids": []}, "1 to 37 tokens, not 0: take a longer"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_with_a_fix(model, changed, message):
    with pytest.raises(ValueError, match=message):
        rope_view(**{"model": model, "tokenizer": Numbers(), "text_or_ids": IDS} | changed)


@pytest.mark.parametrize(("name", "changes", "message"), [
    ("gpt2", {}, "position = 'learned'.*take a model of the preset 'modern'"),
    ("modern", {"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 16)}, "rope_scaling = RopeScaling"),
    ("modern", {"d_head": 130}, "at most 128 numbers, not d_head = 130"),
])  # fmt: skip
def test_a_model_without_plain_rotary_positions_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        rope_view(scrambled(tiny(name, **changes)), Numbers(), IDS)
