"""Random input: texts through every tokenizer, mutated files through the readers. Each seed is fixed."""

import json
import pickle
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.checkpoints import contents, trained
from support.traps import Trap, check_trap

from tinylm_lib.__main__ import main
from tinylm_lib.data.corpora import load_corpus
from tinylm_lib.data.token_file import open_tokens, write_tokens
from tinylm_lib.text import TOKENIZERS, BPETokenizer, ByteTokenizer, CharTokenizer, WordTokenizer, load_tokenizer, words
from tinylm_lib.training.checkpoint import MANIFEST, latest, load, save

# --- tokenizers ------------------------------------------------------------------------------------------------------

SPECIAL = ["<|end|>", "<|end|><|end|>", "<", "\r\n", "é"]
ODD = ["<|en", "d|>", "\0", "\ufeff", "\n", "\r", " ", "  ", "\t", "'s", "’", "a", "Z", "9", "漢", "🙂", "🏽", "\u200d"]
ODD += ["e\u0301", "\u2028", "\x85", "\x1c", "\ufffd", "\U0010ffff", "\ud7ff", "\ue000"]
ODD += [*"_ǆßİ٣\u00a0", *SPECIAL]
LEARNT = BPETokenizer.from_text("the cat sat on the mat, the dogs ran. it's 1999 \n\n漢字 🙂 " * 20)
MARKED = BPETokenizer(LEARNT.vocab, LEARNT.merges, SPECIAL)


def any_text(rng: random.Random) -> str:
    """Random bytes, random characters, odd pieces, or a long run of one of them."""
    points = (rng.randrange(rng.choice([0x80, 0x800, 0x10000, 0x110000])) for _ in range(rng.randrange(40)))
    long = rng.choice([1, 100, 2000] if rng.random() < 0.1 else [1, 10, 50])
    return rng.choice([
        rng.randbytes(rng.randrange(60)).decode("utf-8", errors="replace"),
        rng.randbytes(rng.randrange(60)).decode("latin-1"),
        "".join(chr(n) for n in points if not 0xD800 <= n < 0xE000),
        "".join(rng.choices(ODD, k=rng.randrange(30))),
        rng.choice(ODD) * long + rng.choice(ODD),
    ])  # fmt: skip


def cuts(text: str, rng: random.Random) -> Iterator[str]:
    """A text in random pieces, empty ones among them."""
    places = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(8)))
    return (text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True))


@pytest.mark.parametrize(("n", "seed"), [(800, 0), pytest.param(10_000, 1, marks=pytest.mark.slow)])
def test_texts_come_back_from_every_tokenizer(n: int, seed: int) -> None:
    """Texts that any tokenizer can hold come back; from others a tokenizer of a smaller alphabet says so."""
    rng, counts = random.Random(seed), Counter()
    alphabet = CharTokenizer("".join(sorted({c for piece in ODD for c in piece})))
    known = WordTokenizer(" ".join(ODD) + "\n the cat sat on the mat's end. It ran")
    for _ in range(n):
        text = any_text(rng)
        tokenizers = [ByteTokenizer(), LEARNT, MARKED]
        tokenizers += [CharTokenizer.from_text(text), WordTokenizer(text)] if text else []
        for tokenizer in tokenizers:
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == text, (tokenizer.kind, text)
            assert list(tokenizer.encode_iterable(cuts(text, rng))) == ids, (tokenizer.kind, text)
            counts[f"{tokenizer.kind} came back"] += 1
        for tokenizer, parts, ids_of in ((alphabet, list(text), alphabet.ids), (known, words(text), known.ids)):
            if unknown := [part for part in parts if part not in ids_of]:
                for encode in (tokenizer.encode, lambda text, t=tokenizer: list(t.encode_iterable(cuts(text, rng)))):
                    with pytest.raises(ValueError, match=r"is not one of the .* known ones; build the") as said:
                        encode(text)
                    assert repr(unknown[0]) in str(said.value)
                counts[f"{tokenizer.kind} refused"] += 1
            else:
                assert tokenizer.decode(tokenizer.encode(text)) == text
                counts[f"{tokenizer.kind} known"] += 1
        for tokenizer in (*tokenizers, alphabet, known):
            ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(20))]
            assert isinstance(tokenizer.decode(ids), str)
    assert min(counts.values()) > 30, counts


@pytest.mark.parametrize("piece", ["a", " ", "\0", "🙂", "\r\n", "ab ", "e\u0301", "<|end|>", "9"])
def test_very_long_runs_come_back(piece: str) -> None:
    text = piece * 20_000
    for tokenizer in (ByteTokenizer(), MARKED, CharTokenizer.from_text(text), WordTokenizer(text)):
        assert tokenizer.decode(tokenizer.encode(text)) == text


# --- checkpoints -----------------------------------------------------------------------------------------------------


def mutate(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """A file with one thing done to it that disks, copies and people do."""
    i, j = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    bit = min(i, len(content) - 1)
    return rng.choice([
        content[:bit] + bytes([content[bit] ^ 1 << rng.randrange(8)]) + content[bit + 1 :],
        content[:i],
        content[:i] + rng.randbytes(rng.randrange(1, 50)) + content[i:],
        content[:i] + content[i : i + 64] + content[i:],
        content[:i] + b"\0" * (j - i) + content[j:],
        content[:i] + other[i:],
        content[:i] + content[j:],
        other,
    ])  # fmt: skip


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two checkpoints of one run, a few updates apart."""
    place = tmp_path_factory.mktemp("two")
    return save(place / "a", **trained(n_steps=2)), save(place / "b", **trained(n_steps=4))


@pytest.mark.parametrize(("n", "seed"), [(300, 0), pytest.param(3000, 1, marks=pytest.mark.slow)])
def test_mutated_checkpoints_are_named_or_right(n: int, seed: int, two: tuple[Path, Path], tmp_path: Path) -> None:
    """Damaged checkpoints load as one of those that were saved, or are named, quickly."""
    rng, counts = random.Random(seed), Counter()
    right = [contents(load(folder)) for folder in two]
    manifests = [json.loads((folder / MANIFEST).read_text(encoding="utf-8")) for folder in two]
    for _ in range(n):
        folder = tmp_path / "copy"
        shutil.copytree(two[0], folder)
        for _ in range(rng.choice([1, 1, 1, 2])):
            role = rng.choice(["manifest", "model", "training"])
            mine, others = (MANIFEST if role == "manifest" else m["files"][role]["name"] for m in manifests)
            changed = mutate((folder / mine).read_bytes(), (two[1] / others).read_bytes(), rng)
            (folder / mine).write_bytes(changed)
        started = time.process_time()
        try:
            found = contents(load(folder))
        except (ValueError, FileNotFoundError) as e:
            assert folder.name in str(e) and "\n" not in str(e)
            with pytest.warns(UserWarning, match="passed over"), pytest.raises(FileNotFoundError):
                latest(folder)
            counts["named"] += 1
        else:
            assert found == right[0], "a state that was never saved"
            counts["right"] += 1
        counts["slow"] += time.process_time() - started > 20
        shutil.rmtree(folder)
    assert counts["named"] > 250 and counts["right"] > 0 and counts["slow"] == 0, counts


# --- no file is ever executed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_a_pickle_is_never_executed_by_any_reader(write, tmp_path, capsys) -> None:
    sprung, payload = tmp_path / "sprung", tmp_path / "payload"
    trap = Trap(sprung)
    with open(payload, "wb") as f:
        write({"ids": trap, "kind": trap, "embed.weight": trap}, f)
    for read in (load_tokenizer, open_tokens, load_corpus):
        with pytest.raises(ValueError, match="payload"):
            read(payload)
    folder = save(tmp_path / "folder", **trained())
    for path in folder.iterdir():
        original = path.read_bytes()
        shutil.copy(payload, path)
        for command in (["sample", "--checkpoint"], ["eval"]):
            with pytest.warns(UserWarning, match="passed over a damaged checkpoint"):
                assert main([*command, str(folder)]) == 2
        path.write_bytes(original)
    assert main(["train", "--corpus", str(payload), "--out", str(tmp_path / "out")]) == 2
    assert main(["eval", str(folder), "--corpus", str(payload)]) == 2
    assert all(line.startswith("tinylm: ") for line in capsys.readouterr().err.splitlines())
    check_trap(sprung)


# --- tokenizer and token files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_mutated_tokenizer_files_are_named_or_work(kind: str, tmp_path: Path) -> None:
    """They carry no hash, so a changed letter may go unseen; what loads must still be a whole tokenizer."""
    rng, path, other = random.Random(0), tmp_path / "t.json", tmp_path / "other.json"
    TOKENIZERS[kind].from_text("the cat sat, 漢字 the cat").save(path)
    TOKENIZERS[kind].from_text("a dog ran").save(other)
    whole, foreign = path.read_bytes(), other.read_bytes()
    for _ in range(150):
        path.write_bytes(mutate(whole, foreign, rng))
        try:
            tokenizer = load_tokenizer(path)
        except ValueError as e:
            assert "t.json" in str(e)
        else:
            assert isinstance(tokenizer.decode(range(tokenizer.vocab_size)), str)


def test_mutated_token_files_are_named_or_hold_ids_that_fit(tmp_path: Path) -> None:
    rng, path, other = random.Random(0), tmp_path / "file", tmp_path / "other"
    write_tokens(path, [0, 1, 2] * 50, CharTokenizer("abc"))
    write_tokens(other, [1, 0] * 80, CharTokenizer("xy"))
    whole, foreign = path.read_bytes(), other.read_bytes()
    counts = Counter()
    for _ in range(600):
        path.write_bytes(mutate(whole, foreign, rng))
        try:
            found = open_tokens(path)
        except ValueError as e:
            assert "file" in str(e)
            counts["named"] += 1
        else:
            assert found.ids.ndim == 1 and found.ids.dtype in (torch.uint16, torch.int32)
            assert found.tokenizer.vocab_size >= 1
            counts["loaded"] += 1
    assert counts["named"] > 100, counts
