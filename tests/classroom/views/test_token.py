"""The view of tokens: its cuts are the tokenizers' own, and what it stores is enough to replay every merge."""

from itertools import pairwise

import pytest
from support.views import ask, table_rows

from tinylm_classroom.views.token import TOKENIZER_KINDS, joins, token_view
from tinylm_lib import storyworld
from tinylm_lib.text.bpe import BPETokenizer, apply_merges, learn_merges, train_bpe
from tinylm_lib.text.tokenizers import TOKENIZERS, ByteTokenizer, CharTokenizer

CORPUS = storyworld.corpus(200, seed=0)
TEXTS = {"a story": CORPUS[: CORPUS.index(".") + 1], "other signs": "Noé met Mia in a café. 🙂\nThe end.<|end|>"}


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(CORPUS, 600, special_tokens=["<|end|>"])


@pytest.fixture(scope="module")
def tokenizers(bpe):
    return [*(TOKENIZERS[kind].from_text(CORPUS) for kind in ("bytes", "chars", "words")), bpe]


@pytest.fixture(scope="module")
def view(tokenizers):
    return token_view(TEXTS, tokenizers)


def stored_tokens(text: dict, cut: dict) -> list[bytes]:
    data, tokens = text["text"].encode(), []
    for size in cut["sizes"]:
        tokens.append(data[:size])
        data = data[size:]
    assert data == b""
    return tokens


def test_the_stored_ids_and_sizes_are_those_of_each_tokenizer(view, tokenizers):
    assert [text["name"] for text in view.data["texts"]] == list(TEXTS)
    for text in view.data["texts"]:
        for tokenizer, cut in zip(tokenizers, text["cuts"], strict=True):
            if "refused" in cut:
                with pytest.raises(ValueError, match="is not one of the"):
                    tokenizer.encode(text["text"])
                continue
            assert cut["ids"] == tokenizer.encode(text["text"])
            for token, i in zip(stored_tokens(text, cut), cut["ids"], strict=True):
                assert token.decode(errors="replace") == tokenizer.decode([i])


def test_a_word_list_and_an_alphabet_refuse_what_bytes_take(view):
    first, second = ([("refused" in cut) for cut in text["cuts"]] for text in view.data["texts"])
    assert first == [False] * 4 and second == [False, True, True, False]
    assert "not “é”. Leave it out." in view.data["texts"][1]["cuts"][1]["refused"]
    sizes = view.data["texts"][1]["cuts"][0]["sizes"]
    assert len(sizes) == len(TEXTS["other signs"]) + 2 * 1 + 3  # é twice in two bytes, 🙂 in four


def replayed(rules: dict, pieces: list[str], limit: int) -> list[int]:
    """What the browser does, from the stored rules alone: the lowest rank first, in ids."""
    ranks, cut = {(a, b): rank for rank, (a, b, _) in enumerate(rules["merges"][:limit])}, []
    for piece in pieces:
        ids = [rules["special"][piece]] if piece in rules["special"] else [rules["bytes"][b] for b in piece.encode()]
        while found := [pair for pair in pairwise(ids) if pair in ranks]:
            pair, grown = min(found, key=ranks.get), []
            while ids:
                taken = 2 if tuple(ids[:2]) == pair else 1
                grown.append(rules["merges"][ranks[pair]][2] if taken == 2 else ids[0])
                ids = ids[taken:]
            ids = grown
        cut += ids
    return cut


@pytest.mark.parametrize("limit", [0, 1, 7, 60, 200, 343])
def test_the_stored_merges_replay_to_what_apply_merges_gives(view, bpe, limit):
    ranks = {pair: rank for rank, pair in enumerate(bpe.merges[:limit])}
    for text in view.data["texts"]:
        expected = [
            bpe.ids[token]
            for piece in text["pieces"]
            for token in ([piece.encode()] if piece in bpe.special_ids else apply_merges(piece.encode(), ranks))
        ]
        assert replayed(view.data["bpe"], text["pieces"], limit) == expected
        if limit == len(bpe.merges):
            assert expected == text["cuts"][-1]["ids"]


def test_joins_are_counted_where_they_happen(bpe):
    text = TEXTS["a story"]
    counts, before = joins(text, bpe), len(text.encode())
    for rank in range(len(bpe.merges)):
        partial = BPETokenizer(bpe.vocab, bpe.merges[: rank + 1], bpe.special_tokens)
        after = len(partial.encode(text))
        assert before - after == counts[rank], bpe.merges[rank]
        before = after


def test_a_kernel_answers_with_another_text_and_says_what_it_cannot_cut(view, bpe):
    own = ask(view, text="a🙂b")["own"]
    assert own["cuts"][0]["ids"] == list("a🙂b".encode()) and own["cuts"][3]["ids"] == bpe.encode("a🙂b")
    assert view.data["error"] == "" and len(view.data["texts"]) == 2
    for text, message in (("", "empty: write at least one"), ("x" * 201, "has 201 characters, and the view shows 200")):
        assert message in ask(view, text=text)["error"] and view.data["own"] == own
    assert "half a character, U+D83D" in ask(view, text="a\ud83d")["error"]
    assert "must be a str, got NoneType" in ask(view)["error"]


def test_the_picture_and_the_words_tell_the_counts(tokenizers):
    view = token_view(TEXTS, tokenizers)
    counts = [len(tokenizer.encode(TEXTS["a story"])) for tokenizer in tokenizers]
    told = ", ".join(f"{TOKENIZER_KINDS[t.kind][0]} {n}" for t, n in zip(tokenizers, counts, strict=True))
    n = len(TEXTS["a story"])
    assert repr(view) == f"A text cut into tokens: {n} characters, {n} bytes; tokens: {told}."
    rows, others = table_rows(view.html), TEXTS["other signs"]
    counts += [len(others.encode()), "refused", "refused", len(tokenizers[3].encode(others))]
    assert [row[3] for row in rows[1:9]] == [str(count) for count in counts]
    assert [row[4] for row in rows[1:5]] == [f"{n / count:.1f}" for count in counts[:4]]
    assert rows[10][0] == "1" and int(rows[10][4]) == joins(TEXTS["a story"], tokenizers[3])[0]


def test_a_picture_of_signs_that_the_font_lacks_warns_of_nothing():
    view = token_view({"signs": "$x$ 🙂風\n\u200d_^ e\u0301"}, [ByteTokenizer()])
    assert "data:image/png" in view.html and view.data["bpe"]["merges"] == []


@pytest.mark.parametrize(("texts", "kinds", "message"), [
    ({}, ["bytes"], "at least one text and one tokenizer"), ({"a": "b"}, [], "at least one text and one tokenizer"),
    ({"a": "b"}, ["bytes", "bytes"], r"one tokenizer of each kind: 1 texts, kinds \['bytes', 'bytes'\]"),
    ({"a": ""}, ["bytes"], "the text is empty"), ({"a": "b" * 201}, ["bytes"], "shorten it"),
    ({"a": "\udc80"}, ["bytes"], r"half a character, U\+DC80"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_with_a_fix(texts, kinds, message):
    with pytest.raises(ValueError, match=message):
        token_view(texts, [TOKENIZERS[kind]() for kind in kinds])


def test_a_text_that_is_no_text_an_unknown_kind_and_too_many_merges_are_refused():
    with pytest.raises(TypeError, match="must be a str, got int"):
        token_view({"a": 3}, [ByteTokenizer()])
    other = CharTokenizer("ab")
    other.kind = "syllables"
    with pytest.raises(ValueError, match="kind of tokenizer 'syllables' is unknown; choose one of bytes, chars"):
        token_view({"a": "b"}, [other])
    words = {f"{a}{b}{c}{d}": 1 for a in "abcdefg" for b in "hijklmn" for c in "opqrstu" for d in "vwxyz"}
    merges = learn_merges(words, 601)
    vocab = [bytes([b]) for b in range(256)] + list(dict.fromkeys(a + b for a, b in merges))
    with pytest.raises(ValueError, match="has 601 merges, and the view replays 600: train a smaller one"):
        token_view({"a": "b"}, [BPETokenizer(dict(enumerate(vocab)), merges)])
