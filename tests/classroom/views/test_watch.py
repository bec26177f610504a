"""The view of a model that writes: what it stores, what its picture shows, and what is refused."""

import json
import re

import pytest
import torch
from support.models import scrambled, tiny
from support.toys import toy_model
from support.views import stored, table_rows

from tinylm_classroom.live.record import live_record
from tinylm_classroom.views.base import MIME
from tinylm_classroom.views.watch import watch
from tinylm_lib import storyworld
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer

CHARACTERS = CharTokenizer("\n abcde<>!/'\"&;-")  # 16, the toy has 17 ids


@pytest.fixture(scope="module")
def view(ready):
    return watch(ready.model, ready.tokenizer)


def test_it_stores_no_weights_and_its_kernel_sends_them(view, ready):
    kept, record = stored(view), live_record(ready.model, ready.tokenizer)
    assert kept[MIME]["data"].keys() == {"model", "beginnings"} and kept[MIME]["data"]["model"] == record["fingerprint"]
    assert len(json.dumps(kept)) < 60_000 and len(json.dumps(view.get_state(["data", "live"]))) < 2000
    sent = view.record()
    assert sent["record"] == record and sent["stories"]["sentences"]


def test_the_kernel_sends_the_model_as_it_was_at_the_call():
    model = scrambled(tiny("modern", vocab_size=256))
    asked = watch(model, ByteTokenizer(), "ab")
    with torch.no_grad():
        model.embed.weight[7] += 1
    assert asked.record()["record"]["fingerprint"] == asked.data["model"]
    assert asked.data["model"] != live_record(model, ByteTokenizer())["fingerprint"]


def test_its_picture_has_the_bars_of_the_next_word_and_the_exact_probabilities(view, ready):
    text = re.search(r"writes\. (.*) \.\.\. The likeliest", repr(view))[1]
    probs = ready.model(torch.tensor([ready.tokenizer.encode(f"\n{text}")]))[0, -1].softmax(-1)
    reader = storyworld.Reader()
    for word in storyworld.words(text):
        assert reader.read(word) > 0
    exact = reader.next_word_probs()
    head, *rows = table_rows(view.html)
    assert head == ["word", "model", "exact"] and len(rows) == 6
    for name, p, true in rows[:2]:
        assert float(p.removesuffix(" %")) == pytest.approx(
            100 * probs[ready.tokenizer.ids[f" {name}"]].item(), abs=0.1
        )
        assert float(true.removesuffix(" %")) == pytest.approx(100 * exact[f" {name}"], abs=0.06)


def test_another_vocabulary_has_no_exact_probabilities():
    asked = watch(scrambled(tiny("modern", vocab_size=256)), ByteTokenizer(), "ab")
    assert table_rows(asked.html)[0] == ["byte", "model"] and asked.record()["stories"] is None
    assert asked.data["beginnings"] == ["ab"] and "xact" not in asked.html


def test_after_an_impossible_word_no_exact_probabilities_are_shown(ready):
    asked = watch(ready.model, ready.tokenizer, "\nOne sunny day, brave kite")
    assert table_rows(asked.html)[0] == ["word", "model"]


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"beginning": ""}, ValueError, "beginning must have at least one token, got ''"),
    ({"beginning": "aé"}, ValueError, "beginning 'aé' cannot be read; choose another one: character 'é' at position 1"),
    ({"beginning": 3}, TypeError, "beginning must be a text, got 3"),
    ({"model": toy_model(norm="layer")}, ValueError, "norm 'layer' cannot run in a page"),
    ({"model": "storyworld"}, TypeError, "must be a TransformerLM, got str"),
    ({"tokenizer": ByteTokenizer()}, ValueError, "the tokenizer has 256 ids, and the model only 17"),
])  # fmt: skip
def test_what_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        watch(**{"model": toy_model(seed=2), "tokenizer": CHARACTERS, "beginning": "a", **change})
