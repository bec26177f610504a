"""The view of activation patching: equal to a loop over the blocks with the exchanged vector, and refused by name."""

import pytest
import torch
from support.models import MODELS, scrambled, some_ids, tiny
from support.views import ask, shipped, table_rows

from tinylm_classroom.shapes.capture import capture
from tinylm_classroom.views.patch import PATCHED, patch_view, patched_logits
from tinylm_lib import TransformerLM
from tinylm_lib.positions import Positions
from tinylm_lib.text.tokenizers import ByteTokenizer

MIA, CARLOS = (f"\nOne sunny day, brave {name} had a red kite." for name in ("Mia", "Carlos"))
PINK_FAN = "\n Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
GRAY_FAN = "\n Carlos had a gray fan. Jamal had a pink book. Jamal took the pink"
PAIRS = {"a name": (MIA, CARLOS, ("She", "He")), "two colours": (PINK_FAN, GRAY_FAN, ("fan", "book"))}


@pytest.fixture(scope="module", params=PAIRS)
def case(request):
    """A view of the shipped model, its two texts as ids, and the ids of its words."""
    ready, (text, other, words) = shipped(), PAIRS[request.param]
    view = patch_view(ready.model, ready.tokenizer, text, other, words)
    ids = [torch.tensor([ready.tokenizer.encode(each)]) for each in (text, other)]
    return view, *ids, [ready.tokenizer.encode(f" {word}")[0] for word in words]


@torch.no_grad()
def by_hand(model: TransformerLM, ids, swap=None, donor=None):
    """The model step by step, without hooks: its logits (B, T, V), and each vector on the way by part and layer.

    swap: the part, layer and position of the one vector that is taken from `donor`, the vectors of another run.
    """
    kept, C = {}, model.config

    def step(part, layer, x):
        if swap is not None and swap[:2] == (part, layer):
            x = torch.cat([x[:, : swap[2]], donor[part, layer][:, swap[2] : swap[2] + 1], x[:, swap[2] + 1 :]], dim=1)
        kept[part, layer] = x
        return x

    at = torch.arange(ids.shape[1])
    where = Positions(at, model.blocks[0].attention.rotation.rows(at), None)
    x = model.position(model.embed(ids) * model.embed_scale, at)
    for layer, block in enumerate(model.blocks):
        x = step("stream", layer, x)
        if C.block == "pre_norm":
            x = x + step("attention", layer, block.attention(block.attn_norm(x), where))
            x = x + step("ffn", layer, block.ffn(block.ffn_norm(x)))
        else:
            x = block.attn_norm(x + step("attention", layer, block.attention(x, where)))
            x = block.ffn_norm(x + step("ffn", layer, block.ffn(x)))
    return model.unembed(model.final_norm(step("stream", C.n_layers, x))), kept


def places(model: TransformerLM):
    """Every part and layer."""
    L = model.config.n_layers
    return [(part, layer) for part in PATCHED for layer in range(L + (part == "stream"))]


@pytest.mark.parametrize("name", MODELS)
def test_one_vector_is_exchanged_in_any_architecture_and_the_model_is_left_as_it_was(name):
    model, ids, other = scrambled(tiny(name)), some_ids(1, 7), some_ids(1, 7, seed=5)
    logits, _ = by_hand(model, ids)
    torch.testing.assert_close(logits, model(ids))
    donor, caught = by_hand(model, other)[1], capture(model, other)
    for part, layer in places(model):
        found = patched_logits(model, ids[0], caught, part, layer)
        for t in range(7):
            torch.testing.assert_close(found[t], by_hand(model, ids, (part, layer, t), donor)[0][0, -1])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_data_are_those_of_a_loop_over_the_blocks_and_what_is_hatched_truly_changes_nothing(case):
    view, ids, other, pair = case
    model, data = shipped().model, view.data
    donor = by_hand(model, other)[1]

    def read(logits):
        last = logits[0, -1].double()
        return last.softmax(-1)[pair].tolist(), (last[pair[0]] - last[pair[1]]).item()

    (before, d_text), (after, d_other) = (read(by_hand(model, each)[0]) for each in (ids, other))
    assert data["runs"] == [pytest.approx(before, rel=1e-3), pytest.approx(after, rel=1e-3)]
    assert data["differences"] == pytest.approx([d_text, d_other], rel=1e-4)
    for part, layer in places(model):
        for t in range(ids.shape[1]):
            probs, d = read(by_hand(model, ids, (part, layer, t), donor)[0])
            effect, why = data["effect"][part][layer][t], data["zero"][part][layer][t]
            assert effect == pytest.approx((d - d_text) / (d_other - d_text), abs=2e-4)
            assert data["probs"][part][layer][t] == pytest.approx(probs, abs=2e-5)
            assert data["difference"][part][layer][t] == pytest.approx(d, abs=1e-3)
            if why:
                assert effect == 0 and str(effect) == "0.0" and data["probs"][part][layer][t] == data["runs"][0]


def test_a_cell_is_hatched_where_the_vectors_are_equal_or_cannot_reach_the_end_and_nowhere_else(case):
    view, ids, other, _ = case
    model, zero = shipped().model, view.data["zero"]
    (_, kept), (_, donor) = by_hand(model, ids), by_hand(model, other)
    mixes = {"stream": 3, "attention": 2, "ffn": 2}  # the layers of three behind which no attention mixes positions
    for part, layer in places(model):
        for t in range(ids.shape[1]):
            if (kept[part, layer][0, t] - donor[part, layer][0, t]).abs().max() < 1e-5:
                expected = "same"
            else:
                expected = "late" if layer == mixes[part] and t < ids.shape[1] - 1 else ""
            assert zero[part][layer][t] == expected, (part, layer, t)


def test_the_whole_stream_before_the_first_block_or_after_the_last_carries_everything(case):
    data, effect = case[0].data, case[0].data["effect"]
    assert [len(effect[part]) for part in PATCHED] == [4, 3, 3]
    assert effect["stream"][3][-1] == pytest.approx(1, abs=1e-4)
    changed = [t for t, pair in enumerate(zip(data["tokens"], data["others"], strict=True)) if len(set(pair)) == 2]
    assert changed == ([6] if data["words"] == ["She", "He"] else [4, 10])
    if len(changed) == 1:
        assert effect["stream"][0] == [pytest.approx(float(t in changed), abs=1e-4) for t in range(len(data["tokens"]))]


def test_it_begins_before_the_last_block_where_the_effect_is_largest():
    ready = shipped()
    view = patch_view(ready.model, ready.tokenizer, MIA, CARLOS, [" She", "He"])
    assert [view.data[name] for name in ("part", "layer", "position")] == ["stream", 2, 6]
    assert view.data["words"] == ["She", "He"]
    assert repr(view) == (
        "One vector exchanged for that of another text, 3 blocks, 12 tokens. At position 6, Mia, the stream before "
        "block 2 is taken from the other text, which has Carlos there. "
        "P(She) falls from 1.00 to 0.00, P(He) rises from 0.00 to 1.00: effect 0.99."
    )
    rows = table_rows(view.html)
    assert rows[0] == ["", "↵", "One", "sunny", "day", ",", "brave", "Mia / Carlos", "had", "a", "red", "kite", "."]
    stream, added = ["after block 2", *(f"before block {n}" for n in (2, 1, 0))], ["block 2", "block 1", "block 0"]
    assert [row[0] for row in rows] == ["", *stream, "", *added, "", *added]
    assert rows[1] == ["after block 2", *["–"] * 11, "1.00"]
    assert rows[4] == ["before block 0", *["–"] * 6, "1.00", *["–"] * 5]


def test_a_kernel_answers_for_other_texts_and_words_or_says_what_is_wrong():
    ready = shipped()
    asked = patch_view(ready.model, ready.tokenizer, MIA, CARLOS, ("She", "He"))
    typed = {"text": PINK_FAN.strip(), "other": GRAY_FAN.strip(), "words": ["fan", " book"]}
    data = ask(asked, **typed)
    assert data == patch_view(ready.model, ready.tokenizer, PINK_FAN, GRAY_FAN, ("fan", "book")).data | {"error": ""}
    twice = {"text": MIA + MIA, "other": MIA + CARLOS, "words": ["She", "He"]}
    assert len(ask(asked, **twice)["tokens"]) == 24 and asked.data["error"] == ""
    ask(asked, **typed)
    for change, message in (
        ({"text": "One xylophone"}, "xylophone"),
        ({"words": ["fan", ""]}, "a next word is empty"),
        ({"text": MIA * 3, "other": MIA * 2 + CARLOS}, "1 to 32 tokens, not 36"),
    ):
        assert message in ask(asked, **typed | change)["error"] and asked.data["tokens"] == data["tokens"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"other": "\nOne sunny day, Mia had a red kite."}, "and 11; they first differ at position 5, ' brave' and"),
        ({"other": MIA + " She"}, "not 12 and 13; they first differ at position 12, the end and ' She'"),
        ({"other": MIA}, "the two texts are the same"),
        ({"other": MIA.replace("Mia", "Xylo")}, "' Xylo'"),
        ({"words": ("She", "Xylo")}, "word 'Xylo' at position 0 is not one of the 345"),
        ({"words": ("She had", "He")}, "the next word 'She had' is 2 tokens, not one"),
        ({"words": ("She", " She")}, "the two next words are the same, 'She'"),
        ({"words": ("He", "She")}, "the logit of 'He' minus that of 'She' must be larger after the first text"),
        ({"words": "She"}, "words must be two words"),
        ({"words": ("She", "He", "Mia")}, "words must be two words"),
        ({"words": ("She", " ")}, "a next word is empty"),
        ({"text": MIA + MIA, "other": MIA + CARLOS}, "shows 1 to 17 tokens, not 24: take a shorter piece"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_by_name(change, message):
    ready, given = shipped(), {"text": MIA, "other": CARLOS, "words": ("She", "He")} | change
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        patch_view(ready.model, ready.tokenizer, **given)


def test_a_word_is_taken_as_it_is_where_it_is_more_than_one_token_with_a_blank():
    model, words = scrambled(tiny("modern", vocab_size=256)), ByteTokenizer()
    logits = [model(torch.tensor([words.encode(text)]))[0, -1] for text in ("kite", "bite")]
    pair = sorted("ab", key=lambda letter: (logits[1] - logits[0])[ord(letter)].item())
    view = patch_view(model, words, "kite", "bite", pair)
    assert view.data["words"] == pair and view.data["effect"]["stream"][0] == [pytest.approx(1, abs=1e-4), 0, 0, 0]
