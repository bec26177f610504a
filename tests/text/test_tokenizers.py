"""Text to ids and back: round trips, unknown characters, files."""

import errno
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from support.toys import examples, raising_from

from tinylm_lib.text import TOKENIZERS, BPETokenizer, ByteTokenizer, CharTokenizer, WordTokenizer, line_end, words
from tinylm_lib.text.bpe import BYTES
from tinylm_lib.text.tokenizers import load_tokenizer, tokenizer_from_dict

TEXT = "Ünïcödé, 漢字 and 🙂\r\n\ttabs \x7f \ufeff \u2028"


@examples(300)
@given(st.text(min_size=1) | st.text(st.sampled_from("ab '\n.’é"), min_size=1))
def test_texts_come_back_and_every_known_token_is_used(text: str) -> None:
    for kind, parts in (("bytes", list(text.encode())), ("chars", list(text)), ("words", words(text))):
        tokenizer = TOKENIZERS[kind].from_text(text)
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == tokenizer.decode(torch.tensor(tokens)) == text
        known = range(256) if kind == "bytes" else sorted(set(parts))
        assert tokenizer.vocab_size == len(known)
        assert [known[t] for t in tokens] == parts
    assert TOKENIZERS["words"].from_text(text).words == sorted(set(words(text)))


def test_characters_are_numbered_by_code_point_whatever_the_text() -> None:
    assert CharTokenizer.from_text("banana").characters == CharTokenizer.from_text("nba").characters == "abn"
    assert CharTokenizer.from_text("banana").encode("nab") == [2, 0, 1]
    assert CharTokenizer("ba").encode("ab") == [1, 0]


@examples(50)
@given(st.binary())
@example("é".encode()[:1])
def test_any_bytes_decode_to_some_text(tokens: bytes) -> None:
    for tokenizer in (ByteTokenizer(), BPETokenizer(dict(enumerate(BYTES)), [])):
        assert tokenizer.decode(tokens) == tokens.decode("utf-8", errors="replace")


STORY = """One day, Mia's kite flew  away.\n\n"No," said Bob, 'it isn't!'\tNaïve dogs' rock'n'roll_2 🙂."""


def test_words_are_what_a_reader_calls_words() -> None:
    assert words(STORY) == [
        *("One", " day", ",", " Mia's", " kite", " flew", " ", " away", ".", "\n", "\n", '"', "No", ",", '"', " said"),
        *(" Bob", ",", " '", "it", " isn't", "!", "'", "\t", "Naïve", " dogs", "'", " rock'n'roll_2", " 🙂", "."),
    ]


@examples(300)
@given(st.text() | st.text(st.sampled_from("a1 '\n.’_é")))
def test_words_lose_nothing(text: str) -> None:
    pieces = words(text)
    assert "".join(pieces) == text
    assert all(re.fullmatch(r" ?(?:\w[\w'’]*|[^\w\s])|\s", piece) for piece in pieces)


@pytest.mark.parametrize(
    ("kind", "text", "part", "at"),
    [("words", *row) for row in [("a b  c", " c", 4), ("x", "x", 0), ("a b\n", "\n", 3), ("a ba", " ba", 1)]]
    + [("chars", *row) for row in [("abxaxb", "x", 2), ("ü", "ü", 0), ("ab\n", "\n", 2), ("zyx", "z", 0)]],
)
def test_an_unknown_part_is_named_with_its_position(kind: str, text: str, part: str, at: int) -> None:
    tokenizer = TOKENIZERS[kind].from_text("a b ")
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_iterable(text))):
        with pytest.raises(
            ValueError, match=re.escape(f"{part!r} at position {at} is not one of the 3 known ones")
        ) as said:
            encode(text)
        assert str(said.value).split()[0] == {"words": "word", "chars": "character"}[kind]


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


def test_a_line_end_is_one_token_or_refused() -> None:
    for tokenizer in (ByteTokenizer(), WordTokenizer("a\nb")):
        assert tokenizer.decode([line_end(tokenizer)]) == "\n"
    with pytest.raises(ValueError, match="a line end takes 2 tokens here"):
        line_end(SimpleNamespace(encode=lambda text: [13, 10]))


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_half_a_surrogate_pair_is_a_clear_error(kind: str) -> None:
    with pytest.raises(ValueError, match="position 2: surrogates" if kind == "bytes" else "surrogates|known ones"):
        TOKENIZERS[kind].from_text("abc").encode("ab\ud800c")


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_ids_outside_of_the_vocabulary_and_fractions_are_refused(kind: str) -> None:
    tokenizer = TOKENIZERS[kind].from_text(STORY)
    for wrong in (-1, tokenizer.vocab_size, 9999):
        for tokens in ([0, wrong], [wrong], [1, wrong, 0]):
            with pytest.raises(ValueError, match=rf"token id {wrong} is outside 0\.\.{tokenizer.vocab_size - 1}"):
                tokenizer.decode(tokens)
    for tokens in ([0, 0.5], torch.tensor([0.0, 1.5])):
        with pytest.raises((TypeError, ValueError)):
            tokenizer.decode(tokens)


def test_one_token_of_a_stream_decodes() -> None:
    """`bytes` takes a tensor of one element for a length: 65 zero bytes instead of an A."""
    assert ByteTokenizer().decode(torch.tensor([65])) == "A"
    assert CharTokenizer("ab").decode(torch.tensor([1])) == "b"
    with pytest.raises(TypeError):
        ByteTokenizer().decode(65)


def test_characters_must_differ_and_no_text_has_no_characters_and_no_words() -> None:
    for characters in ("", "aa", "abca"):
        with pytest.raises(ValueError, match=f"all different, got '{characters}'"):
            CharTokenizer(characters)
    for build in (CharTokenizer.from_text, WordTokenizer):
        with pytest.raises(ValueError, match="at least one"):
            build("")


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokenizers_survive_a_file(kind: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind].from_text(TEXT)
    tokenizer.save(tmp_path / "t.json")
    again = load_tokenizer(str(tmp_path / "t.json"))
    assert type(again) is type(tokenizer)
    assert again.vocab_size == tokenizer.vocab_size
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    assert again.decode(again.encode(TEXT)) == TEXT
    assert tokenizer_from_dict(tokenizer.to_dict()).to_dict() == tokenizer.to_dict()
    assert tokenizer.to_dict()["kind"] == kind


def test_bytes_are_readable_in_the_file(tmp_path: Path) -> None:
    tokenizer, path = BPETokenizer.from_text("the thé the"), tmp_path / "t.json"
    tokenizer.save(path)
    content = path.read_text(encoding="utf-8")
    assert '["t", "h"]' in content and '" the"' in content
    assert load_tokenizer(path).to_dict() == tokenizer.to_dict()


def dict_of(kind: str, **values: object) -> str:
    """A file of a tokenizer with these values; a BPE tokenizer keeps the others."""
    known = BPETokenizer.from_text("aab").to_dict() if kind == "bpe" else {"kind": kind}
    return json.dumps({**known, **values})


DAMAGED = [
    *("", "{", '{"kind": "chars", "characters": "ab', "[]", "5", "null", '"chars"', "{}", '{"kind": null}'),
    *('{"kind": ["chars"]}', '{"kind": "bpe", "vocab": []}', "[" * 100_000, b"\xff\xfe\x00"),
    *(dict_of("chars"), dict_of("words")),
    *(dict_of("chars", characters=value) for value in (5, None, "", "aba", ["ab", "c"], {"a": 1})),
    *(dict_of("words", words=value) for value in ([], "ab", ["a", 5], ["a", "a"])),
    *(dict_of("bpe", vocab=value) for value in (["a"], "abc", ["漢"])),
    *(dict_of("bpe", merges=value) for value in (5, ["ab"], [["a"]], [["a", "b", "c"]], [["a", 5]], [["x", "y"]])),
    *(dict_of("bpe", special_tokens=value) for value in ("abc", [""], [["a"]])),
]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:40])
def test_a_damaged_file_is_named(content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"t\.json holds no tokenizer"):
        load_tokenizer(path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        load_tokenizer(tmp_path / "nowhere.json")


@pytest.mark.parametrize("values", [{"kind": "wordpiece"}, {}, {"characters": "ab"}])
def test_an_unknown_kind_lists_the_known_ones(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"is not one of {', '.join(TOKENIZERS)}"):
        tokenizer_from_dict(json.loads(json.dumps(values)))


@pytest.mark.parametrize("failure", ["half an emoji", "a full disk"])
def test_a_tokenizer_that_cannot_be_written_leaves_the_file_before(
    failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, good = tmp_path / "tokenizer.json", CharTokenizer.from_text("the sea")
    good.save(path)
    if failure == "a full disk":
        monkeypatch.setattr("os.fsync", raising_from(OSError(errno.ENOSPC, "full"), 0, None))
        with pytest.raises(OSError, match=r"cannot write the tokenizer .*tokenizer\.json: No space left"):
            ByteTokenizer().save(path)
    else:
        with pytest.raises(ValueError, match="surrogates not allowed"):
            CharTokenizer.from_text("sea \ud83d").save(path)
    assert load_tokenizer(path).to_dict() == good.to_dict()
    assert list(tmp_path.iterdir()) == [path]
