"""Text to ids and back: round trips, unknown characters, files."""

import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.toys import examples

from tinylm_lib.text.tokenizers import (
    TOKENIZERS,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    WordTokenizer,
    load_tokenizer,
    tokenizer_from_dict,
    words,
)

TEXT = "Ünïcödé, 漢字 and 🙂\r\n\ttabs \x7f \ufeff \u2028"


@examples(200)
@given(st.text())
def test_bytes_come_back(text: str) -> None:
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)
    assert tokens == list(text.encode())
    assert tokenizer.decode(tokens) == text
    assert tokenizer.decode(torch.tensor([*tokens, *tokens], dtype=torch.long)) == text + text


@examples(200)
@given(st.text(min_size=1), st.data())
def test_characters_come_back(text: str, data: st.DataObject) -> None:
    tokenizer = CharTokenizer.from_text(text)
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert tokenizer.decode(torch.tensor(tokens)) == text
    assert set(tokens) == set(range(tokenizer.vocab_size))
    other = data.draw(st.text(st.sampled_from(text)))
    assert tokenizer.decode(tokenizer.encode(other)) == other


def test_characters_are_numbered_by_code_point_whatever_the_text() -> None:
    assert CharTokenizer.from_text("banana").characters == CharTokenizer.from_text("nba").characters == "abn"
    assert CharTokenizer.from_text("banana").encode("nab") == [2, 0, 1]
    assert CharTokenizer("ba").encode("ab") == [1, 0]


@examples(50)
@given(st.binary())
def test_any_bytes_decode_to_some_text(tokens: bytes) -> None:
    assert ByteTokenizer().decode(tokens) == tokens.decode("utf-8", errors="replace")


def test_a_cut_character_decodes_to_a_replacement() -> None:
    assert ByteTokenizer().decode("é".encode()[:1]) == "\ufffd"


STORY = """One day, Mia's kite flew  away.\n\n"No," said Bob, 'it isn't!'\tNaïve dogs' tails_2 🙂."""


def test_words_are_what_a_reader_calls_words() -> None:
    assert words(STORY) == [
        *("One", " day", ",", " Mia's", " kite", " flew", " ", " away", ".", "\n", "\n", '"', "No", ",", '"', " said"),
        *(" Bob", ",", " '", "it", " isn't", "!", "'", "\t", "Naïve", " dogs", "'", " tails_2", " 🙂", "."),
    ]


@examples(300)
@given(st.text() | st.text(st.sampled_from("a1 '\n.’_é")))
def test_words_lose_nothing(text: str) -> None:
    pieces = words(text)
    assert "".join(pieces) == text
    assert all(re.fullmatch(r" ?(?:\w[\w'’]*|[^\w\s])|\s", piece) for piece in pieces)


@examples(200)
@given(st.text(st.sampled_from("ab '\n.’é"), min_size=1), st.lists(st.integers(0, 5)))
def test_words_come_back(text: str, cuts: list[int]) -> None:
    tokenizer = WordTokenizer(text)
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == tokenizer.decode(torch.tensor(tokens)) == text
    assert set(tokens) == set(range(tokenizer.vocab_size))
    assert tokenizer.words == sorted(set(words(text)))
    assert [tokenizer.words[t] for t in tokens] == words(text)


@pytest.mark.parametrize(
    ("text", "word", "at"), [("a b  c", " c", 4), ("x", "x", 0), ("a b\n", "\\n", 3), ("a ba", " ba", 1)]
)
def test_an_unknown_word_is_named_with_its_place(text: str, word: str, at: int) -> None:
    tokenizer = WordTokenizer("a b ")
    for encode in (tokenizer.encode, lambda t: list(tokenizer.encode_iterable(t))):
        with pytest.raises(ValueError, match=re.escape(f"word '{word}' at position {at} is none of the 3 known ones")):
            encode(text)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_stream_has_the_ids_of_its_text(kind: str) -> None:
    tokenizer = TOKENIZERS[kind].from_text(STORY)
    ids = tokenizer.encode(STORY * 50)
    for parts in (STORY * 50, (STORY * 50).splitlines(keepends=True), [STORY * 50], ["", STORY * 49, "", STORY, ""]):
        assert list(tokenizer.encode_iterable(iter(parts))) == ids


def test_an_empty_text_is_no_token() -> None:
    for tokenizer in (ByteTokenizer(), CharTokenizer("ab"), WordTokenizer("ab"), BPETokenizer.from_text("ab")):
        assert tokenizer.encode("") == list(tokenizer.encode_iterable([])) == []
        assert tokenizer.decode([]) == ""


@pytest.mark.parametrize(("text", "c", "at"), [("abxaxb", "x", 2), ("ü", "ü", 0), ("ab\n", "\\n", 2), ("zyx", "z", 0)])
def test_an_unknown_character_is_named_with_its_place(text: str, c: str, at: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"character '{c}' at position {at} is none of the 2 known")):
        CharTokenizer("ab").encode(text)


def test_half_a_surrogate_pair_has_no_bytes() -> None:
    with pytest.raises(ValueError, match="position 2"):
        ByteTokenizer().encode("ab\ud800c")


@pytest.mark.parametrize(("tokens", "wrong"), [([0, 3], 3), ([-1], -1), ([1, 99, 0], 99)])
def test_ids_outside_the_characters_are_named(tokens: list[int], wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"token id {wrong} is outside 0\.\.2"):
        CharTokenizer("abc").decode(tokens)


@pytest.mark.parametrize(("tokens", "wrong"), [([0, 256], 256), ([-1], -1), ([1, 999, 0], 999)])
def test_ids_outside_the_bytes_are_named(tokens: list[int], wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"token id {wrong} is outside 0\.\.255"):
        ByteTokenizer().decode(tokens)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_kind_refuses_ids_outside_its_own(kind: str) -> None:
    tokenizer = TOKENIZERS[kind].from_text(STORY)
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=rf"token id {wrong} is outside 0\.\.{tokenizer.vocab_size - 1}"):
            tokenizer.decode([0, wrong])


@pytest.mark.parametrize("tokenizer", [t.from_text("abc") for t in TOKENIZERS.values()])
def test_a_fraction_is_no_token(tokenizer: ByteTokenizer) -> None:
    for tokens in ([0, 0.5], torch.tensor([0.0, 1.5])):
        with pytest.raises((TypeError, ValueError)):
            tokenizer.decode(tokens)


def test_one_token_of_a_stream_decodes() -> None:
    """`bytes` takes a tensor of one element for a length: 65 zero bytes instead of an A."""
    assert ByteTokenizer().decode(torch.tensor([65])) == "A"
    assert CharTokenizer("ab").decode(torch.tensor([1])) == "b"
    with pytest.raises(TypeError):
        ByteTokenizer().decode(65)


@pytest.mark.parametrize("characters", ["", "aa", "abca"])
def test_characters_must_differ(characters: str) -> None:
    with pytest.raises(ValueError, match=f"all different, got '{characters}'"):
        CharTokenizer(characters)


def test_no_text_has_no_characters_and_no_words() -> None:
    for build in (CharTokenizer.from_text, WordTokenizer):
        with pytest.raises(ValueError, match="at least one"):
            build("")


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokenizers_survive_a_file(kind: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind].from_text(TEXT)
    tokenizer.save(tmp_path / "t.json")
    for load in (load_tokenizer, TOKENIZERS[kind].load):
        again = load(str(tmp_path / "t.json"))
        assert type(again) is type(tokenizer)
        assert again.vocab_size == tokenizer.vocab_size
        assert again.encode(TEXT) == tokenizer.encode(TEXT)
        assert again.decode(again.encode(TEXT)) == TEXT
    assert tokenizer_from_dict(tokenizer.to_dict()).to_dict() == tokenizer.to_dict()
    assert tokenizer.to_dict()["kind"] == kind


def test_a_class_reads_its_own_kind_only(tmp_path: Path) -> None:
    CharTokenizer("ab").save(tmp_path / "t.json")
    with pytest.raises(ValueError, match=r"t\.json holds no tokenizer: its kind 'chars' is none of bpe"):
        BPETokenizer.load(tmp_path / "t.json")


def test_bytes_stand_readably_in_the_file(tmp_path: Path) -> None:
    tokenizer = BPETokenizer.from_text("the thé the")
    tokenizer.save(tmp_path / "t.json")
    content = (tmp_path / "t.json").read_text(encoding="utf-8")
    assert '["t", "h"]' in content and '" the"' in content
    assert BPETokenizer.load(tmp_path / "t.json").vocab == tokenizer.vocab


def bpe(**changes: object) -> str:
    """A file of a BPE tokenizer with some values changed."""
    return json.dumps({**BPETokenizer.from_text("aab").to_dict(), **changes})


DAMAGED = [
    "",
    "{",
    '{"kind": "chars", "characters": "ab',
    "[]",
    "5",
    "null",
    '"chars"',
    "{}",
    '{"kind": null}',
    '{"kind": ["chars"]}',
    '{"kind": "chars"}',
    '{"kind": "chars", "characters": 5}',
    '{"kind": "chars", "characters": null}',
    '{"kind": "chars", "characters": ""}',
    '{"kind": "chars", "characters": "aba"}',
    '{"kind": "chars", "characters": ["ab", "c"]}',
    '{"kind": "chars", "characters": {"a": 1}}',
    '{"kind": "words"}',
    '{"kind": "words", "words": []}',
    '{"kind": "words", "words": "ab"}',
    '{"kind": "words", "words": ["a", 5]}',
    '{"kind": "words", "words": ["a", "a"]}',
    '{"kind": "bpe", "vocab": []}',
    bpe(vocab=["a"]),
    bpe(vocab="abc"),
    bpe(vocab=["漢"]),
    bpe(merges=5),
    bpe(merges=["ab"]),
    bpe(merges=[["a"]]),
    bpe(merges=[["a", "b", "c"]]),
    bpe(merges=[["a", 5]]),
    bpe(merges=[["x", "y"]]),
    bpe(special_tokens="abc"),
    bpe(special_tokens=[""]),
    bpe(special_tokens=[["a"]]),
    "[" * 100_000,
]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:40])
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"t\.json"):
        load_tokenizer(path)


def test_a_binary_file_is_no_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"t\.json holds no tokenizer"):
        load_tokenizer(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        load_tokenizer(tmp_path / "nowhere.json")


@pytest.mark.parametrize("values", [{"kind": "wordpiece"}, {}, {"characters": "ab"}])
def test_an_unknown_kind_lists_the_known_ones(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"is none of bytes, chars, words, bpe"):
        tokenizer_from_dict(json.loads(json.dumps(values)))
