"""The film of a text: its numbers are those of the model, for every architecture."""

import math

import pytest
import torch
from support.models import MODELS, scrambled, tiny
from support.views import ask, shipped, table_rows, unpacked

from tinylm_classroom.live.film import film
from tinylm_classroom.live.stories import exact_probs
from tinylm_classroom.views.one_word import one_word
from tinylm_lib import TransformerLM, preset
from tinylm_lib.storyworld import words
from tinylm_lib.text.tokenizers import ByteTokenizer, WordTokenizer

STORY = "\nOne dark evening, calm Mia ran to Foxhollow."
LETTERS = WordTokenizer(" ".join(f"w{n}" for n in range(41)))


@pytest.fixture(scope="module")
def data() -> dict:
    return one_word(shipped().model, shipped().tokenizer, STORY).data


def test_the_answer_at_each_depth_is_what_the_head_makes_of_the_stream(data):
    ids = torch.tensor(shipped().tokenizer.encode(STORY))
    found = film(shipped().model, ids)
    assert data["ids"] == ids.tolist() and data["tokens"][6] == "Mia"
    for (word, p), lens in zip(data["best"], found["lens"], strict=True):
        assert shipped().tokenizer.decode([int(lens.argmax())]).strip() == word
        assert p == pytest.approx(lens.max().item(), rel=1e-4)
    assert [word for word, _ in data["best"][-3:]] == ["He", "She", "She"] and data["open"] == [2, 2]


@pytest.mark.parametrize("part", ["stream", "normed", "queries", "keys", "values", "mixed", "gated"])
def test_small_pictures_have_the_numbers_of_the_model_to_half_a_shade(data, part):
    rows = film(shipped().model, torch.tensor(data["ids"]))[part].flatten(0, -2).double()
    seen = unpacked(data["film"][part], 1)[:, 0]
    assert ((seen - rows).abs() / rows.abs().amax(dim=-1, keepdim=True)).max() < 0.51 / 31


def test_the_race_has_the_words_that_were_ahead_or_close(data):
    race, words_ahead = data["race"], [word for word, _ in data["best"]]
    assert set(words_ahead) < set(race["words"]) and race["words"][0] == words_ahead[0]
    lens = film(shipped().model, torch.tensor(data["ids"]))["lens"]
    second = {shipped().tokenizer.decode([int(p.topk(2).indices[1])]).strip(): p.topk(2).values[1] for p in lens}
    assert set(race["words"]) == {*words_ahead, *(word for word, p in second.items() if p > 0.04)}
    for probs, known in zip(race["probs"], lens, strict=True):
        assert max(probs) == pytest.approx(known.max().item(), rel=1e-4)


def test_each_word_is_where_its_number_falls_on_the_probabilities_laid_end_to_end(data):
    model, tokenizer = shipped().model, shipped().tokenizer
    ids = list(data["ids"])
    for draw, number in zip(data["draws"], data["numbers"], strict=True):
        probs = torch.softmax(model(torch.tensor([ids]))[0, -1].double(), dim=-1)
        word, p, exact = draw["top"][draw["at"]]
        before = probs[probs > probs[draw["id"]]].sum()
        assert draw["u"] == number and before <= number < before + probs[draw["id"]]
        assert draw["before"] == pytest.approx(before.item(), abs=1e-5)
        assert word == tokenizer.decode([draw["id"]]).strip() and p == pytest.approx(probs[draw["id"]].item(), rel=1e-4)
        true = exact_probs(words(tokenizer.decode(ids).lstrip("\n")))
        assert exact == pytest.approx(true[tokenizer.decode([draw["id"]])], rel=1e-4) and draw["fits"] == len(true)
        ids.append(draw["id"])


def test_bars_give_the_probabilities_of_the_model_and_always_show_the_largest(data):
    logits = film(shipped().model, torch.tensor(data["ids"]))["logits"]
    bars = data["bars"]
    assert (bars["every"], bars["top"]) == (1, int(logits.argmax()))
    assert math.exp(bars["largest"] - bars["all"]) == pytest.approx(data["best"][-1][1], rel=1e-3)
    wide = scrambled(tiny("modern", vocab_size=901))
    bars = one_word(wide, WordTokenizer(" ".join(f"w{n}" for n in range(901))), "w0 w1 w2").data["bars"]
    seen = unpacked(bars["logits"], 1).flatten()
    assert bars["every"] == 3 and len(seen) in (301, 302) and int(seen.argmax()) == bars["top"]


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_has_a_film(name):
    model = scrambled(tiny(name))
    data = one_word(model, LETTERS, "w0 w1 w2 w3 w4").data
    c = model.config
    assert (data["speeds"] == []) is ("rotation.q" not in data["has"]) and len(data["best"]) == 2 * c.n_layers + 1
    assert all(draw["fits"] is None and draw["top"][0][2] is None for draw in data["draws"])
    answered = ask(one_word(model, LETTERS, "w0 w1 w2 w3 w4"), typed="w0 w3 w1")
    assert answered["tokens"] == ["w0", "w3", "w1"] and answered["error"] == ""


def test_the_table_says_what_would_be_said_at_each_depth(data):
    view = one_word(shipped().model, shipped().tokenizer, STORY)
    head, first, *_, last = table_rows(view.html)
    assert head == ["after", "length of the last column", "next word", "probability"]
    assert first[0] == "embedding" and first[2:] == ["Often", "44 %"]
    assert last[0] == "feed-forward of block 2" and last[2:] == ["She", "100 %"]
    assert "first Often, then He, then She" in view.text


def test_what_a_film_cannot_show_is_refused():
    model = scrambled(tiny("modern"))
    for text in ("a", "abcdefghijklmnopqrs"):
        with pytest.raises(ValueError, match=r"the view shows 2 to 16 tokens, not \d+"):
            one_word(model, ByteTokenizer(), text)
    with torch.device("meta"), pytest.raises(ValueError, match=r"up to 5,000,000 parameters, not 124,439,808"):
        one_word(TransformerLM(preset("gpt2", "small")), ByteTokenizer(), "ab")
