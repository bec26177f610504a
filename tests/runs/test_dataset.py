"""What a run reads: cut between tokens, bytes counted exactly, a text and its token file the same."""

import re
from itertools import islice
from pathlib import Path

import pytest
import tokenizers
import torch
from support.hub import trained

from tinylm_lib.config import IGNORED
from tinylm_lib.data.corpora import load_corpus
from tinylm_lib.data.token_file import open_tokens, write_tokens
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.runs.dataset import cut_dataset, encode_corpus, map_tokens, validation_windows
from tinylm_lib.text.bpe import train_bpe
from tinylm_lib.text.hugging_face import HubTokenizer
from tinylm_lib.text.tokenizers import TOKENIZERS, ByteTokenizer, CharTokenizer


def test_storyworld_is_cut_as_ever() -> None:
    """The windows are those of the text after a line end, from which the first story is read, too."""
    data = cut_dataset(encode_corpus("storyworld", kind="words"), "storyworld", True, 0.05, 1_000_000)
    stories = load_corpus("storyworld").splitlines(keepends=True)
    assert len(stories) == 20_000
    ids = torch.tensor(data.tokenizer.encode("\n" + "".join(stories[:19_000])))
    ends = (ids == data.tokenizer.encode("\n")[0]).nonzero()[:, 0]
    ours, theirs = (
        RandomWindows(tokens, 8, 128, 1, starts=s) for tokens, s in ((data.training, data.starts), (ids, ends))
    )
    assert len(ours.starts) == len(theirs.starts)
    for (x, y), (a, b) in islice(zip(ours, theirs, strict=True), 50):
        assert torch.equal(x, a) and torch.equal(y, b)
    ours.starts = ours.starts[:1]
    assert data.tokenizer.decode(next(ours)[0][0].tolist()).startswith("\n" + stories[0])
    windows, n_bytes = validation_windows(data.validation, data.tokenizer, 128, True)
    held_out = torch.cat([y[y != IGNORED] for _, y in windows()])
    assert data.tokenizer.decode(held_out.tolist()) == "".join(stories[19_000:])
    assert (len(held_out), n_bytes) == (104_626, 487_058)


@pytest.mark.parametrize("kind", [*TOKENIZERS, "hugging_face"])
@pytest.mark.parametrize("n", range(2, 30))
def test_the_bytes_of_the_targets_are_exact_wherever_the_text_is_cut(kind: str, n: int) -> None:
    text = "naïve 🦊 漢字! " * 6
    tokenizer = HubTokenizer(trained().to_str()) if kind == "hugging_face" else TOKENIZERS[kind].from_text(text)
    ids = tokenizer.encode(text)
    before = len(ids) - min(n, len(ids))
    parts = [bytes([i]) for i in ids] if kind == "bytes" else None
    if kind == "bpe":
        parts = [tokenizer.vocab[i] for i in ids]
    elif kind == "hugging_face":  # its tokens are bytes here, each written as a character
        parts = [tokenizer._inner.id_to_token(i) for i in ids]
    elif kind != "bytes":
        parts = [tokenizer.decode([i]).encode() for i in ids]
    _, n_bytes = validation_windows(torch.tensor(ids[before:]), tokenizer, 4, False)
    assert n_bytes == sum(map(len, parts[before + 1 :]))
    assert sum(map(len, parts)) == len(text.encode()), "the parts are not the text"


def test_a_special_token_counts_as_its_text() -> None:
    tokenizer = train_bpe("abc " * 9, 260, ["<é>"])
    assert tokenizer.count_bytes(tokenizer.encode("a<é>")) == 5
    theirs = tokenizers.Tokenizer.from_str(trained().to_str())
    theirs.add_special_tokens(["<é>"])
    assert HubTokenizer(theirs.to_str()).count_bytes(theirs.encode("a<é>").ids) == 5
    plain = HubTokenizer(re.sub(r'"decoder": ?\{[^}]*\}', '"decoder":null', trained().to_str(pretty=False)))
    assert plain.count_bytes(plain.encode("a")) == 1, "of other tokenizers the decoded text is counted"


def test_a_text_and_its_token_file_are_the_same(tmp_path: Path) -> None:
    path, text = tmp_path / "text.txt", "one\ntwo two\nthree\n" * 40 + "the end"
    path.write_text(text, encoding="utf-8", newline="\n")
    read = encode_corpus(str(path), kind="chars")
    write_tokens(tmp_path / "text.tokens", read.ids.tolist(), read.tokenizer)
    mapped = map_tokens(str(tmp_path / "text.tokens"))
    assert mapped.tokenizer.to_dict() == read.tokenizer.to_dict()
    for lines in (True, False):
        for share in (0.0, 0.05, 0.5):
            ours, theirs = (cut_dataset(found, "it", lines, share, 100) for found in (read, mapped))
            assert ours.training.tolist() == theirs.training.tolist()
            assert ours.validation.tolist() == theirs.validation.tolist()
            assert len(ours.validation) == min(100, len(read.ids) - len(ours.training))
            assert (ours.starts is None) == (theirs.starts is None) == (not lines)
            if lines:
                assert torch.equal(ours.starts, theirs.starts)
                assert share == 0 or ours.training[-1] == read.tokenizer.ids["\n"]
                before = [read.tokenizer.decode([read.ids[:][i]]) for i in ours.starts[ours.starts >= 0]]
                assert set(before) == {"\n"}
                assert (ours.starts[0] == -1) == (share > 0), "a last line without its end is before no first one"
    assert mapped.sha256 != read.sha256 and len(read.sha256) == 64


def test_lines_are_found_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinylm_lib.data.windows.TOKENS_PER_READ", 3)
    tokens = CharTokenizer("\na")
    write_tokens(tmp_path / "f", tokens.encode("aa\naaaa\n\na\na"), tokens)
    data = cut_dataset(map_tokens(str(tmp_path / "f")), "f", True, 0.4, 9)
    assert tokens.decode(data.training.tolist()) == "aa\naaaa\n\n" and tokens.decode(data.validation.tolist()) == "a\na"
    assert data.starts.tolist() == [-1, 2, 7, 8]


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    write_tokens(path, [0, 1], CharTokenizer("ab"))
    assert map_tokens(path, CharTokenizer("ab")).ids.tolist() == [0, 1]
    for other in (CharTokenizer("ba"), ByteTokenizer()):
        with pytest.raises(ValueError, match="f was made with another tokenizer than the model's"):
            map_tokens(path, other)


def test_the_hash_of_a_token_file_follows_its_content(tmp_path: Path) -> None:
    path, hashes = tmp_path / "f", set()
    for ids, tokenizer in (([0, 1], CharTokenizer("ab")), ([1, 0], CharTokenizer("ab")), ([0, 1], CharTokenizer("ac"))):
        write_tokens(path, ids, tokenizer)
        hashes.add(open_tokens(path).sha256)
        write_tokens(path, iter(ids), tokenizer)
        assert open_tokens(path).sha256 in hashes
    assert len(hashes) == 3


def test_a_text_of_one_token_is_refused_in_words_that_fit_every_command() -> None:
    with pytest.raises(
        ValueError, match=r"the text to measure has 1 tokens, and at least 2 are needed.*give more text"
    ):
        validation_windows(torch.tensor([1]), ByteTokenizer(), 8, lines=False)
