"""The view of attention: its data hold every stage of every head, and its picture and words show the weights."""

import re

import pytest
import torch
from support.models import scrambled, some_ids, tiny
from support.views import Numbers, ask, shipped, table_rows, unpacked

from tinylm_classroom.shapes.capture import capture
from tinylm_classroom.views.attention import attention_view
from tinylm_classroom.views.typed import for_readers, typed_text
from tinylm_lib.attention import causal_mask
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer, WordTokenizer

TEXT = "her kite <b>"


@pytest.fixture(scope="module")
def model():
    return scrambled(tiny("modern", vocab_size=256))


@pytest.fixture(scope="module")
def view(model):
    return attention_view(model, ByteTokenizer(), TEXT, layer=1, head=2)


@pytest.mark.parametrize("name", ["modern", "gpt2", "tiny_transformer"])
def test_the_stored_q_k_and_v_hold_every_stage_of_every_head(name):
    model, ids = scrambled(tiny(name)), some_ids(1, 9)
    data = attention_view(model, Numbers(), ids, layer=1).data
    assert list(data["layers"]) == ["0", "1"]
    for layer in (0, 1):
        q, k, v = (unpacked(data["layers"][str(layer)][name], 9) for name in ("q", "k", "v"))
        k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
        stages = capture(model, ids).attention(layer)
        scaled = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~causal_mask(9), float("-inf"))
        torch.testing.assert_close(scaled.softmax(-1), stages.weights[0].double(), atol=4e-3, rtol=0)
        step = v.abs().max().item() / 31
        torch.testing.assert_close(scaled.softmax(-1) @ v, stages.mixed[0].double(), atol=0.55 * step, rtol=0)
    assert data["tokens"] == [f"w{token}" for token in ids[0].tolist()]


def test_a_model_whose_layers_are_too_large_stores_one_and_its_kernel_answers_for_the_others():
    model = scrambled(tiny("modern", vocab_size=256, n_layers=2, d_model=384, n_heads=6, n_kv_heads=6, d_head=64))
    view = attention_view(model, ByteTokenizer(), "sixteen letters!", layer=1)
    assert list(view.data["layers"]) == ["1"] and view.data["n_layers"] == 2 and view.live
    first = view.data["layers"]["1"]
    layers = ask(view, layers=[0, 1])["layers"]
    assert list(layers) == ["0", "1"] and layers["1"] == first


def test_a_typed_text_begins_after_the_same_blanks_and_may_have_32_tokens(model):
    view = attention_view(model, ByteTokenizer(), "\n abc ", layer=1)
    assert view.data["text"] == "\n abc " and view.data["tokens"] == ["↵", "␣", "a", "b", "c", "␣"]
    before = ask(view, text=" de ")
    assert before["tokens"] == ["↵", "␣", "d", "e"] and list(before["layers"]) == ["0", "1"]
    refused = "the view shows 2 to 32 tokens, not 33: take a shorter piece of the text"
    assert ask(view, text="x" * 31) == {**before, "error": refused}
    assert ask(view, text=" \n ") == {**before, "error": "the text is empty: type a text"}
    assert len(ask(view, text="x" * 30)["tokens"]) == 32
    assert ask(view, text="One foggy day")["tokens"] == ["↵", *"One", "␣", *"foggy", "␣", *"day"]
    assert "text" not in attention_view(model, ByteTokenizer(), [97, 98, 99]).data


@pytest.mark.parametrize(
    ("text", "lead", "begins"),
    [
        ("One stormy evening, shy Elsa", "\n ", "\n"), ("One stormy evening, shy Elsa", "", "\n"),
        ("One the", "\n ", "\n"), ("One the", "", ""), ("the pink fan", "\n", "\n "), ("the pink fan", " ", " "),
        ("zeppelin", "\n ", "\n "),
    ],
)  # fmt: skip
def test_a_typed_text_begins_so_that_the_tokenizer_knows_its_first_word(text, lead, begins):
    assert typed_text(shipped().tokenizer, f" {text}\n", lead) == begins + text


LIST = WordTokenizer("One quiet day, Mia quietly gave him a pink kite.\n")


@pytest.mark.parametrize(
    ("tokenizer", "text", "says"),
    [
        (LIST, "One quick day", "The model knows only 13 words, and not “quick”. Try “quiet” or “quietly”."),
        (LIST, "one day", "The model knows only 13 words, and not “one”. Try “One”."),
        (LIST, "One 🙂", "The model knows only 13 words, and not “🙂”. Try “kite”, “pink” or “quiet”."),
        (LIST, "One day,Mia", "The model knows “Mia” only after a blank."),
        (LIST, "One day, One", "The model knows “One” only without a blank before it: at the beginning of a text or "
         "after a quotation mark."),
        (LIST, "One day .", "The model knows “.” only without a blank before it."),
        (LIST, "One" + "x" * 30, "The model knows only 13 words, and not “Onexxxxxxxxxxxxxxxxx…”. Try “One”."),
        (LIST, "One\t", "The model knows only 13 words, and not “⇥”. Try “kite”, “pink” or “quiet”."),
        (CharTokenizer("abc"), "abé", "The model knows only 3 characters, and not “é”. Leave it out."),
    ],
)  # fmt: skip
def test_an_unknown_word_is_answered_with_words_that_the_model_knows(tokenizer, text, says):
    with pytest.raises(ValueError, match="is not one of the") as caught:
        tokenizer.encode(text)
    assert for_readers(caught.value) == says
    assert for_readers(ValueError("the text is empty")) == "the text is empty"


def test_no_view_tells_a_reader_to_build_a_tokenizer():
    words = shipped().tokenizer
    view = attention_view(shipped().model, words, "\nOne day")
    for word, others in (("quit", "“quiet” or “quietly”"), ("quick", "“Quick”")):
        says = f"The model knows only 345 words, and not “{word}”. Try {others}."
        assert ask(view, text=f"One {word} day")["error"] == says


def test_a_story_carries_what_determines_its_next_words():
    model, words = shipped().model, shipped().tokenizer
    story = "\nOne foggy afternoon, careful Carlos came to Hillcrest. He had a pink"
    view = attention_view(model, words, story, layer=2, head=2)
    assert view.data["told"] == [[]] * 10 + [[6]] + [[]] * 4 and view.data["tokens"][6] == "Carlos"
    rings = r"ring marks the words that determine .* gives them 9\d % .* equal attention would give 9 %"
    assert re.search(rings, view.html)
    text = "\n Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
    plain = attention_view(model, words, text, layer=2)
    assert plain.data["told"] == [] and "ring" not in plain.html.partition("<figcaption")[2].partition("<details")[0]
    assert len(plain.data["tokens"]) == 17 and len(plain.data["layers"]) == 3


def test_the_words_and_the_table_tell_the_weights(view, model):
    ids = torch.tensor([ByteTokenizer().encode(TEXT)])
    weights = capture(model, ids).attention(1).weights[0, 2]
    cells, T = table_rows(view.html), len(TEXT)
    assert cells[0][1:] == ["h", "e", "r", "␣", "k", "i", "t", "e", "␣", "&lt;", "b", "&gt;"]
    assert [row[1:] for row in cells[1 : T + 1]] == [[f"{weights[i, j]:.2f}" for j in range(i + 1)] for i in range(T)]
    assert [row[3] for row in cells[T + 2 :]] == cells[T][1:]
    most, share = view.data["tokens"][weights[-1].argmax()], f"{100 * weights[-1].max():.0f} %"
    assert re.search(rf"“>” gives {share} of its attention to “?{most}”?\.$", repr(view))
    alt, caption = re.search(r'<img alt="([^"]+)"', view.html)[1], re.search(r"<figcaption[^>]*>([^<]+)<", view.html)[1]
    assert alt.startswith(
        "Heat map of the attention weights, query by row and key by column, from 0 to 1. “&gt;” gives"
    )
    assert "hatched is masked" in caption


@pytest.mark.parametrize(("text", "changed", "message"), [
    ("abc", {"layer": 2}, "layer 2 is not one of the model's 2, which count from 0 to 1"),
    ("abc", {"layer": -1}, "layer -1 is not one"), ("abc", {"head": 6}, "head 6 is not one of the model's 6"),
    ("a", {}, "shows 2 to 17 tokens, not 1"), ("a" * 18, {}, "not 18: take a shorter piece"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_with_a_fix(model, text, changed, message):
    with pytest.raises(ValueError, match=message):
        attention_view(model, ByteTokenizer(), text, **changed)
