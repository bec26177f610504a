"""The view of sampling: its logits and its text are the library's own, and what cannot be shown is refused."""

import base64

import numpy as np
import pytest
import torch
from support.models import scrambled, tiny
from support.views import ask

from tinylm_classroom.views.sampling import Writer, sampling_view
from tinylm_lib import generate
from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.text.tokenizers import ByteTokenizer

PROMPT = "\nOne sunny day, brave Mia"
OPTIONS = {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.02}


@pytest.fixture(scope="module")
def view(ready):
    return sampling_view(ready.model, ready.tokenizer, PROMPT, **OPTIONS, seed=3)


def rows(data: dict) -> torch.Tensor:
    """The logits that the browser unpacks, (steps + 1, V)."""
    return torch.tensor(np.stack([np.frombuffer(base64.b64decode(row), "<f4") for row in data["logits"]]))


def test_the_stored_text_is_what_generate_writes_with_that_seed(view, ready):
    ids = torch.tensor([ready.tokenizer.encode(PROMPT)])
    written = generate(ready.model, ids, 12, **OPTIONS, generator=torch.Generator().manual_seed(3))[0]
    assert [token for token, _ in view.data["path"]] == written[ids.shape[1] :].tolist()
    logits = ready.model(written[None])[0, ids.shape[1] - 1 :]
    torch.testing.assert_close(rows(view.data), logits, atol=1e-4, rtol=1e-4)
    shares = next_token_probs(rows(view.data), **OPTIONS)
    for place, (token, share) in enumerate(view.data["path"]):
        assert share == pytest.approx(shares[place, token].item(), rel=1e-4)


def test_a_kernel_writes_on_with_the_options_of_the_moment_and_begins_again(ready):
    asked = sampling_view(ready.model, ready.tokenizer, PROMPT)
    plain = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": None}
    ask(asked, n=1, begin=True, seed=7, **OPTIONS)
    ask(asked, n=3, begin=False, seed=7, **plain | {"temperature": 0})
    writer = Writer(ready.model, torch.tensor(ready.tokenizer.encode(PROMPT)), 7)
    writer.write(1, **OPTIONS)
    writer.write(3, **plain | {"temperature": 0})
    assert asked.data["path"] == writer.data()["path"] and len(asked.data["logits"]) == 5
    assert [share for _, share in asked.data["path"][1:]] == [1, 1, 1]
    ask(asked, n=1, begin=True, seed=7, **OPTIONS)
    assert asked.data["path"] == writer.data()["path"][:1] and asked.data["turn"] == 3
    refused = "n must be from 1 to 59, since 1 of 60 tokens are written: begin again, got 60"
    assert refused in ask(asked, n=60, begin=False, seed=7, **OPTIONS)["error"]
    assert len(asked.data["path"]) == 1


def test_the_same_answer_twice_is_still_a_change(ready):
    asked, heard = sampling_view(ready.model, ready.tokenizer, PROMPT), []
    asked.observe(lambda change: heard.append(change["new"]["turn"]), "data")
    for _ in range(2):
        ask(asked, n=1, begin=True, seed=0, **OPTIONS)
    assert heard == [1, 2]


def test_the_words_and_the_table_show_the_probabilities(view):
    logits = rows(view.data)[:1]
    drawn, own = next_token_probs(logits, **OPTIONS)[0], logits.softmax(-1)[0]
    best = int(own.argmax())
    kept = int((drawn > 0).sum())
    assert f"With temperature 1.3, top_k 30, top_p 0.9, min_p 0.02, {kept} of 345 words may be drawn" in repr(view)
    assert f"{view.data['words'][best]} goes from probability {own[best]:.2f} to {drawn[best]:.2f}." in repr(view)
    assert f">{own[best]:.2f}</td>" in view.html and f">{drawn[best]:.2f}</td>" in view.html
    assert view.html.count("<tr>") == 1 + 8 + 1 and ">cut</td>" in view.html and ">&lt;0.01</td>" in view.html


@pytest.mark.parametrize(("changed", "message"), [
    ({"temperature": 3.1}, "temperature 3.1 is beyond the slider, which ends at 3"),
    ({"top_p": 0}, "top_p must be above 0"),
    ({"top_k": 257}, r"top_k must be an integer from 1 to 256 \(vocab_size\), got 257"),
    ({"seed": -1}, "seed must be a whole number from 0, got -1"), ({"prompt": ""}, "the prompt holds no token"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_with_a_fix(changed, message):
    model = scrambled(tiny("modern", vocab_size=256))
    with pytest.raises(ValueError, match=message):
        sampling_view(model, ByteTokenizer(), **{"prompt": "ab", **changed})
    with pytest.raises(ValueError, match="every logit, at most 600, not 601"):
        sampling_view(scrambled(tiny("modern", vocab_size=601)), ByteTokenizer(), "ab")
