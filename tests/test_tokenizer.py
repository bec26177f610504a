"""Text to ids and back: round trips, unknown characters, files."""

import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import examples

from tinylm_lib.tokenizer import (
    TOKENIZERS,
    ByteTokenizer,
    CharTokenizer,
    load_tokenizer,
    save_tokenizer,
    tokenizer_from_dict,
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


def test_an_empty_text_is_no_token() -> None:
    for tokenizer in (ByteTokenizer(), CharTokenizer("ab")):
        assert tokenizer.encode("") == []
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


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), CharTokenizer("abc")])
def test_a_fraction_is_no_token(tokenizer: ByteTokenizer | CharTokenizer) -> None:
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


def test_no_text_has_no_characters() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CharTokenizer.from_text("")


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokenizers_survive_a_file(kind: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind].from_text(TEXT)
    save_tokenizer(tokenizer, tmp_path / "t.json")
    again = load_tokenizer(str(tmp_path / "t.json"))
    assert type(again) is type(tokenizer)
    assert again.vocab_size == tokenizer.vocab_size
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    assert again.decode(again.encode(TEXT)) == TEXT
    assert tokenizer_from_dict(tokenizer.to_dict()).to_dict() == tokenizer.to_dict()
    assert tokenizer.to_dict()["kind"] == kind


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
    with pytest.raises(ValueError, match=r"is unknown; choose one of bytes, chars"):
        tokenizer_from_dict(json.loads(json.dumps(values)))
