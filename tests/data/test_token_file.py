"""Token files: what is written comes back, mapped; damage is named; nothing half-written stays."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support.toys import examples

from tinylm_lib.data.token_file import open_tokens, write_tokens
from tinylm_lib.data.windows import every_document, every_window, random_windows
from tinylm_lib.text.tokenizers import TOKENIZERS, CharTokenizer, WordTokenizer

TEXT = 'Mia\'s kite flew. "É 漢字!" said Bob.\n' * 30


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokens_and_tokenizer_come_back(kind: str, tmp_path: Path) -> None:
    tokenizer, path = TOKENIZERS[kind].from_text(TEXT), tmp_path / "text.tokens"
    ids = tokenizer.encode(TEXT)
    assert write_tokens(path, tokenizer.encode_iterable(TEXT.splitlines(keepends=True)), tokenizer) == len(ids)
    found = open_tokens(str(path))
    assert (found.ids.dtype, found.ids.tolist()) == (torch.uint16, ids)
    assert found.tokenizer.to_dict() == tokenizer.to_dict()
    assert found.tokenizer.decode(found.ids) == TEXT
    assert torch.equal(load_file(path)["ids"], found.ids), "it is not an ordinary safetensors file"
    assert list(tmp_path.iterdir()) == [path]


@examples(40)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_any_number_of_ids_fits(tmp_path_factory: pytest.TempPathFactory, ids: list[int]) -> None:
    path = tmp_path_factory.mktemp("ids") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinylm_lib.data.token_file.IDS_PER_WRITE", 4)
        write_tokens(path, iter(ids), CharTokenizer("abc"))
    assert open_tokens(path).ids.tolist() == ids


@pytest.mark.parametrize(("size", "dtype"), [(65_536, torch.uint16), (65_537, torch.int32), (70_000, torch.int32)])
def test_ids_take_two_bytes_where_the_vocabulary_allows(size: int, dtype: torch.dtype, tmp_path: Path) -> None:
    tokenizer, ids = WordTokenizer(" ".join(map(str, range(size)))), [0, size - 1, 5]
    assert tokenizer.vocab_size == size
    write_tokens(tmp_path / "file", ids, tokenizer)
    found = open_tokens(tmp_path / "file").ids
    assert (found.dtype, found.tolist()) == (dtype, ids)


def test_windows_and_documents_are_cut_from_mapped_tokens(tmp_path: Path) -> None:
    tokenizer = CharTokenizer.from_text(TEXT)
    write_tokens(tmp_path / "file", tokenizer.encode(TEXT), tokenizer)
    mapped, ids = open_tokens(tmp_path / "file").ids, torch.tensor(tokenizer.encode(TEXT))
    for cut in (
        lambda t: [random_windows(t, 8, 12, torch.Generator().manual_seed(0))],
        lambda t: [random_windows(t, 8, 12, torch.Generator().manual_seed(0), torch.tensor([0, 5, 9]))],
        lambda t: every_window(t, 4, 9),
        lambda t: every_document(t, tokenizer.ids["\n"], 1),
    ):
        for ours, theirs in zip(cut(ids), cut(mapped), strict=True):
            assert all(torch.equal(a, b) and b.dtype == torch.long for a, b in zip(ours, theirs, strict=True))


def test_opening_and_cutting_reads_only_what_is_looked_at(tmp_path: Path) -> None:
    """A sparse file of 8 GB: reading it would show in the memory of the process."""
    path, n = tmp_path / "file", 4 * 10**9
    write_tokens(path, [1], CharTokenizer("ab"))
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    header["ids"].update(shape=[n], data_offsets=[0, 2 * n])
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(json.dumps(header).encode().ljust(size))
        file.truncate(8 + size + 2 * n)
    code = (
        "import resource, sys\n"
        "from tinylm_lib.data.windows import random_windows\n"
        "from tinylm_lib.data.token_file import open_tokens\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "ids = open_tokens(sys.argv[1]).ids; random_windows(ids, 8, 16)\n"
        "print(len(ids), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=120)
    found, grown = map(int, done.stdout.split())
    assert found == n
    assert grown < 200_000, f"{grown} KB more"


def test_a_stream_is_written_as_it_comes(tmp_path: Path) -> None:
    """Never more ids are held than one block."""
    written: list[int] = []

    def stream() -> Iterator[int]:
        for i in range(100):
            written.append(max((p.stat().st_size for p in tmp_path.iterdir()), default=0))
            yield i % 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinylm_lib.data.token_file.IDS_PER_WRITE", 10)
        patch.setattr("tinylm_lib.data.token_file.np.array", lambda block, dtype: np.asarray(block * 2000, dtype))
        write_tokens(tmp_path / "file", stream(), CharTokenizer("ab"))
    assert written[99] > written[50] > written[10]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def broken() -> Iterator[int]:
        yield 0
        raise ZeroDivisionError

    for ids, error, says in (
        ([0, 2], ValueError, r"token id 2 is outside 0\.\.1"),
        ([-1], ValueError, "token id -1"),
        ([], ValueError, "no ids to write"),
        ([0.5], TypeError, "float"),
        (broken(), ZeroDivisionError, None),
    ):
        with pytest.raises(error, match=says):
            write_tokens(path, ids, CharTokenizer("ab"))
        assert list(tmp_path.iterdir()) == []


def test_foreign_and_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for missing in (path, tmp_path):
        with pytest.raises(FileNotFoundError, match="no token file"):
            open_tokens(missing)
    write_tokens(path, [0, 1] * 50, CharTokenizer("ab"))
    whole = path.read_bytes()
    cut = [whole[:4], whole[:60], whole[:-1], whole[:-50]]
    for damaged in (b"", *cut, whole + b"x", b"plain text, no tokens", b"\xff" * 99):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="file is not a token file, or damaged"):
            open_tokens(path)
    ours, ids = {"format": "tinylm tokens"}, torch.zeros(3, dtype=torch.int32)
    good = {**ours, "tokenizer": json.dumps(CharTokenizer("abc").to_dict())}
    for content, metadata in (
        *((ids, None), (ids, {**good, "format": "pt"}), (ids, ours), (ids, {**ours, "tokenizer": "{"})),
        *((ids, {**ours, "tokenizer": "[" * 100_000}), (ids.float(), good), (ids.bool(), good), (ids[None], good)),
    ):
        save_file({"ids": content}, path, metadata)
        with pytest.raises(ValueError, match="file is not a token file, or damaged"):
            open_tokens(path)
