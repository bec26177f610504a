"""Byte-level BPE against its definition, a slow one written here (for the tokenizers library see hugging_face)."""

import operator
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.toys import examples

from tinylm_lib.text import bpe
from tinylm_lib.text.bpe import BYTES, BPETokenizer, train_bpe
from tinylm_lib.text.cutting import CHARACTERS_PER_CUT, cut_stream, pre_tokens, stream_pre_tokens, words

TEXT = (
    "First the wind, then the rain. The kite's string broke; they'll mend it, won't they?\n\n"
    "  Das Haus über 漢字 hat 1234 Türen 🙂🙂.\t\tEnd\n" * 3
)
# Texts in which spaces, apostrophes and the parts of special tokens meet often.
CROWDED = st.text(st.sampled_from("'slv er<|>a1.\n\t é🙂"), max_size=40)
SPECIAL = ("<|>", "<|><|>", "<|", " a", "e 1")


def slow_bpe(pieces: list[str], n_merges: int) -> list[tuple[bytes, bytes]]:
    """The definition: count all pairs again, merge the most frequent, the greater of two."""
    tokens = [[bytes([b]) for b in piece.encode()] for piece in pieces]
    merges = []
    for _ in range(n_merges):
        counts = Counter(pair for piece in tokens for pair in pairwise(piece))
        if not counts:
            break
        merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
        tokens = [slow_merge(piece, merges[-1]) for piece in tokens]
    return merges


def slow_merge(tokens: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    for i, neighbours in enumerate(pairwise(tokens)):
        if neighbours == pair:
            return [*tokens[:i], b"".join(pair), *slow_merge(tokens[i + 2 :], pair)]
    return tokens


def chunks(text: str, seed: int, longest: int) -> Iterator[str]:
    """Cut a text at random places, now and then twice at one."""
    draw, i = random.Random(seed), 0
    while i < len(text):
        step = draw.randint(0, longest)
        yield text[i : i + step]
        i += step


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello world", ["Hello", " world"]),
        ("I'll say it's 2nd", ["I", "'ll", " say", " it", "'s", " 2", "nd"]),
        ("a  b\n\nc \n", ["a", " ", " b", "\n", "\n", "c", " \n"]),
        ("'S '' x", ["'", "S", " ''", " x"]),
        ("né 漢字!?", ["né", " 漢字", "!?"]),
        ("", []),
    ],
)
def test_pre_tokens_are_those_of_gpt2(text: str, pieces: list[str]) -> None:
    assert pre_tokens(text) == pieces


def test_the_longest_special_token_comes_first() -> None:
    assert pre_tokens("a<|><|>b<|>.<| ", ("<|", "<|>", "<|><|>")) == ["a", "<|><|>", "b", "<|>", ".", "<|", " "]
    assert pre_tokens("x(.)y", ("(.)",)) == ["x", "(.)", "y"], "a special token is not a pattern"
    assert pre_tokens("a  <|>", ("<|>",)) == ["a", "  ", "<|>"], "spaces before a special token are the end of a text"


@examples(300)
@given(CROWDED | st.text(), st.lists(st.sampled_from(SPECIAL), unique=True), st.integers(0, 99))
def test_a_stream_has_the_pieces_of_its_text(text: str, special: list[str], seed: int) -> None:
    whole = pre_tokens(text, special)
    assert "".join(whole) == text
    for cut, joined, reach in (
        (lambda t: pre_tokens(t, special), whole, max(map(len, special), default=1) - 1),
        (words, words(text), 0),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tinylm_lib.text.cutting.CHARACTERS_PER_CUT", 1)  # as if every text of the stream were long
            assert [p for part in cut_stream(chunks(text, seed, 5), cut, reach) for p in part] == joined
    assert [p for part in stream_pre_tokens(chunks(text, seed, 5), special) for p in part] == whole


def test_a_stream_of_single_characters_has_the_pieces_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came so far may look finished: a mark that turns into 'll or Mia's, or a special token's first half."""
    monkeypatch.setattr("tinylm_lib.text.cutting.CHARACTERS_PER_CUT", 1)
    for text in ("x 'll!", "Mia's  'kite'd", "a  <|end  of|> b<|>c", "1.<|end  of|"):
        assert [p for part in cut_stream(text, words) for p in part] == words(text)
        for special in ((), ("<|end  of|>", "<|>")):
            assert [p for part in stream_pre_tokens(text, special) for p in part] == pre_tokens(text, special)


def test_a_stream_is_held_in_blocks() -> None:
    """After every 64 Ki characters the pieces come out, so that memory does not grow with the stream."""
    remaining, given = iter(["no-space.but;marks" * 1000 + "\n"] * 40), 0
    for pieces in stream_pre_tokens(remaining, ("<|>",)):
        given += sum(map(len, pieces))
        taken = 40 - operator.length_hint(remaining)
        assert taken * 18_001 - given < CHARACTERS_PER_CUT + 18_001
    assert given == 40 * 18_001


@examples(150)
@given(st.text(st.sampled_from("ab é"), max_size=60) | st.text(max_size=40), st.integers(0, 30))
def test_merges_are_those_of_the_definition(text: str, n_merges: int) -> None:
    learnt = train_bpe(text, 256 + n_merges)
    assert learnt.merges == slow_bpe(pre_tokens(text), n_merges)
    assert learnt.vocab_size <= 256 + n_merges
    pieces = [[bytes([b]) for b in piece.encode()] for piece in pre_tokens(text)]
    for pair in learnt.merges:
        pieces = [slow_merge(piece, pair) for piece in pieces]
    assert learnt.encode(text) == [learnt.ids[token] for piece in pieces for token in piece]


def test_the_greater_of_two_equally_frequent_pairs_is_merged() -> None:
    assert train_bpe("ab cd", 257).merges == [(b"c", b"d")]
    assert train_bpe("ab ad", 257).merges == [(b"a", b"d")]
    assert train_bpe("xa ab", 257).merges == [(b"x", b"a")], "the first of the pair counts before the second"


def test_ids_are_the_bytes_then_the_merges_then_the_special_tokens() -> None:
    learnt = train_bpe("aaaa aaaa<|>", 260, ["<|>", "none"])
    assert [learnt.vocab[i] for i in range(256)] == BYTES
    assert [learnt.vocab[i] for i in range(256, 260)] == [b"aa", b"aaaa", b"<|>", b"none"]
    assert learnt.encode("aaaaa<|>") == [257, 97, 258]
    assert learnt.special_ids == {"<|>": 258, "none": 259}
    learnt = train_bpe("<|end|>" * 50 + "xy", 300, ["<|end|>"])  # from which nothing is learnt
    assert learnt.merges == [(b"x", b"y")]
    assert learnt.vocab_size == 258, "a text too small for so many merges gives fewer"


def test_a_file_gives_what_its_text_gives_but_its_path_as_a_text_is_refused(tmp_path: Path) -> None:
    path, text = tmp_path / "text.txt", TEXT
    path.write_bytes(text.encode())
    assert train_bpe(path, 300).merges == train_bpe(text, 300).merges
    with pytest.raises(ValueError, match=r"text\.txt' is a file; to read it give Path"):
        train_bpe(str(path), 300)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        train_bpe(tmp_path / "nowhere", 300)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"text\.txt is not UTF-8"):
        train_bpe(path, 300)
    assert train_bpe("a\0b" + "x" * 5000, 256).vocab_size == 256


@pytest.mark.parametrize(("size", "special", "least"), [(255, (), 256), (0, (), 256), (257, ("<a>", "<b>"), 258)])
def test_a_vocabulary_holds_all_bytes(size: int, special: tuple[str, ...], least: int) -> None:
    with pytest.raises(ValueError, match=rf"at least {least} \(256 bytes and the special tokens\), got {size}"):
        train_bpe(TEXT, size, special)
    assert train_bpe(TEXT, least, special).merges == []


LEARNT = train_bpe(TEXT, 400, SPECIAL)
PLAIN = train_bpe(TEXT, 400)


@examples(300)
@given(CROWDED | st.text(), st.integers(0, 99))
def test_texts_come_back_and_streams_are_the_same(text: str, seed: int) -> None:
    for tokenizer in (LEARNT, PLAIN):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert list(tokenizer.encode_iterable(chunks(text, seed, 4))) == ids


@examples(100)
@given(st.lists(st.integers(0, LEARNT.vocab_size - 1)))
def test_any_ids_decode(ids: list[int]) -> None:
    assert LEARNT.decode(ids) == b"".join(LEARNT.vocab[i] for i in ids).decode("utf-8", errors="replace")


def test_an_unknown_special_token_gets_the_next_id_and_bytes_may_come_in_any_order() -> None:
    tokenizer = BPETokenizer(dict(enumerate([*BYTES, b"<a>"])), [], ["<a>", "<b>"])
    assert tokenizer.encode("<b><a>!") == [257, 256, 33]
    assert tokenizer.vocab_size == 258
    vocab = dict(enumerate([b"ab", *reversed(BYTES)]))
    assert BPETokenizer(vocab, [(b"a", b"b")]).encode("abc") == [0, 256 - ord("c")]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "REMEMBERED", 5)
    tokenizer = train_bpe("ab", 257, ["<|>"])
    text = " ".join(str(n) for n in range(40)) + "x" * 1000 + "<|>"
    assert tokenizer.encode(text) == tokenizer.encode(text)
    assert len(tokenizer._known) <= 5
    assert max(map(len, tokenizer._known)) <= 32


BYTE_VOCAB = dict(enumerate(BYTES))


@pytest.mark.parametrize(
    ("vocab", "merges", "special", "says"),
    [
        ({1: b"a"}, [], (), r"vocab must map the ids 0\.\.0 to bytes"),
        ({"a": 0}, [], (), "vocab must map the ids"),
        ({0: "a"}, [], (), "vocab must map the ids"),
        ({0: b"a"}, [], (), r"vocab lacks the byte b'\\x00'"),
        ({**BYTE_VOCAB, 256: b"a"}, [], (), "vocab has b'a' twice"),
        (BYTE_VOCAB, [(b"a", b"b")], (), r"merge \(b'a', b'b'\) needs b'ab', and vocab lacks it"),
        ({**BYTE_VOCAB, 256: b"abc"}, [(b"ab", b"c")], (), "needs b'ab', and"),
        (BYTE_VOCAB, [], ("",), "at least one character"),
        (BYTE_VOCAB, [], ("<a>", "<a>"), "all different"),
        (BYTE_VOCAB, [], (5,), "must be texts"),
    ],
)
def test_parts_that_do_not_fit_are_named(vocab: dict, merges: list, special: tuple, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BPETokenizer(vocab, merges, special)


def test_one_special_token_is_no_list() -> None:
    for build in (lambda s: train_bpe(TEXT, 300, s), lambda s: BPETokenizer(BYTE_VOCAB, [], s)):
        with pytest.raises(TypeError, match="must be a list of texts, got the text '<a>'"):
            build("<a>")
