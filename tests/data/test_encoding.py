"""Files become a token file: the same ids as encoding the whole, in constant memory."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hub import trained
from support.toys import examples
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tinylm_lib.data.encoding import encode_files
from tinylm_lib.data.token_file import open_tokens
from tinylm_lib.text.bpe import train_bpe
from tinylm_lib.text.hugging_face import HubTokenizer
from tinylm_lib.text.reading import read_blocks
from tinylm_lib.text.tokenizers import TOKENIZERS, ByteTokenizer, CharTokenizer, WordTokenizer

ALPHABET = "ab'.1_ \n\t\x1c<e>é漢"
SEED = "a b ab aab 'b it's <e> <a b>\n\n1 11 ..' 漢é漢 \n" + ALPHABET


def marking() -> HubTokenizer:
    """A tokenizer that marks the beginning of a text, as SentencePiece does."""
    words = {"▁": 0, "a": 1, "b": 2, "▁a": 3, "ab": 4, "\n": 5, "<unk>": 6}
    inner = Tokenizer(models.BPE(words, [("▁", "a"), ("a", "b")], unk_token="<unk>"))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return HubTokenizer(inner.to_str())


def pieces() -> HubTokenizer:
    """A tokenizer of words, which drops the space between them."""
    inner = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2, "b": 3, "'": 4}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return HubTokenizer(inner.to_str())


def several() -> dict:
    ours = {kind: TOKENIZERS[kind].from_text(SEED * 3 + "\n漢é漢 b\nab ab") for kind in TOKENIZERS}
    specials = {"special": train_bpe(SEED, 300, ["<e>"]), "spaced": train_bpe(SEED, 300, ["<a b>", "b\na"])}
    return {**ours, **specials, "hub": HubTokenizer(trained().to_str()), "marking": marking(), "pieces": pieces()}


TOKENIZER = several()


@pytest.mark.parametrize("name", TOKENIZER)
@examples(300)
@given(text=st.text(ALPHABET, min_size=1), size=st.integers(1, 9), cut=st.integers(1, 6))
def test_streams_have_the_ids_of_the_whole(name: str, text: str, size: int, cut: int) -> None:
    tokenizer = WordTokenizer(text) if name == "words" else TOKENIZER[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinylm_lib.text.cutting.CHARACTERS_PER_CUT", cut)
        texts = [text[i : i + size] for i in range(0, len(text), size)]
        assert list(tokenizer.encode_iterable(texts)) == tokenizer.encode(text)


def test_ids_come_before_all_of_the_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinylm_lib.text.cutting.CHARACTERS_PER_CUT", 4)
    monkeypatch.setattr("tinylm_lib.text.hugging_face.OVERLAP", 8)
    for name, tokenizer in TOKENIZER.items():
        texts = iter(["ab ab\nab ab\n"] * 9)
        next(iter(tokenizer.encode_iterable(texts)))
        assert len(list(texts)) >= 6, name


def files(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"{i}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    return paths


@pytest.mark.parametrize("name", TOKENIZER)
def test_each_file_is_a_text_with_its_ending(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinylm_lib.text.reading.BYTES_PER_READ", 7)
    monkeypatch.setattr("tinylm_lib.text.cutting.CHARACTERS_PER_CUT", 5)
    tokenizer, done, texts = several()[name], [], [SEED * 3, "漢é漢 b", "\ufeffab ab"]
    for ending in ((), (1, 2)):
        tokenizer.ending = ending
        n = encode_files(files(tmp_path, *texts), tmp_path / f"out{len(ending)}", tokenizer, done.append)
        expected = [i for text in texts for i in (*tokenizer.encode(text.lstrip("\ufeff")), *ending[:1])]
        assert open_tokens(tmp_path / f"out{len(ending)}").ids.tolist() == expected and n == len(expected)
    assert len(done) > 10 and sum(done) == 2 * len("".join(texts).encode()), "the progress is that of the files' bytes"


@pytest.mark.parametrize("name", TOKENIZER)
@pytest.mark.usefixtures("one_thread")
def test_memory_does_not_grow_with_the_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vocabulary and the ids of 230 kB need no more than those of a tenth of it."""
    monkeypatch.setattr("tinylm_lib.text.reading.BYTES_PER_READ", 4000)
    monkeypatch.setattr("tinylm_lib.text.cutting.CHARACTERS_PER_CUT", 2000)
    monkeypatch.setattr("tinylm_lib.data.token_file.IDS_PER_WRITE", 1000)
    kind, line = TOKENIZERS.get(name), "ab ab 'b it's 11 ..' ab\n"
    peaks = []
    for n in (1_000, 10_000):
        path = files(tmp_path, line * n)[0]
        tracemalloc.start()
        tokenizer = TOKENIZER[name] if kind is None else kind.from_texts(read_blocks(path))
        encode_files([path], tmp_path / "out", tokenizer, int)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 50_000, f"{peaks}, and the file has {len(line) * 10_000} bytes"


def test_a_file_that_cannot_be_encoded_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinylm_lib.text.reading.BYTES_PER_READ", 10)
    for second, tokenizer, says in (
        (b"b" * 12 + b"\0", ByteTokenizer(), r"1\.txt is binary \(a zero byte at offset 12\)"),
        (b"b" * 12 + b"\xff", ByteTokenizer(), r"1\.txt is not UTF-8 \(byte 0xff at offset 12\)"),
        (b"b" * 9 + "é".encode()[:1], ByteTokenizer(), r"1\.txt is not UTF-8 \(byte 0xc3 at offset 9\)"),
        (b"b" * 9 + "é".encode() + b"\xff", ByteTokenizer(), r"1\.txt is not UTF-8 \(byte 0xff at offset 11\)"),
        ("b".encode("utf-16"), ByteTokenizer(), r"1\.txt is UTF-16"),
        (b"b" * 12 + b"c", CharTokenizer("ab"), r"1\.txt: character 'c' at position 12"),
        (b"b " * 12 + b"c", WordTokenizer("b b"), r"1\.txt: word ' c' at position 23"),
    ):
        paths = files(tmp_path, "b", "")
        paths[1].write_bytes(second)
        with pytest.raises(ValueError, match=says) as said:
            encode_files(paths, tmp_path / "out", tokenizer, int)
        assert str(said.value).count("1.txt") == 1
        assert not list(tmp_path.glob("*out*"))
