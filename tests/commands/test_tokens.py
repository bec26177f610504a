"""The command tokens, run as a user runs it: every tokenizer, several files, every mistake in one line."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.hub import trained

from tinylm_lib.__main__ import main
from tinylm_lib.commands import tokens
from tinylm_lib.data.token_file import open_tokens, write_tokens
from tinylm_lib.text.bpe import train_bpe
from tinylm_lib.text.tokenizers import TOKENIZERS, CharTokenizer

FIRST, SECOND = "the cat sat on the mat and the dog sat on the log .\n" * 40, "É 漢字!\n"
TINY = "--d-model 16 --n-layers 1 --n-heads 2 --batch-size 2 --seq-len 8 --total-steps 2 --sample-tokens 4"


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self.capsys = capsys
        Path("a.txt").write_bytes(FIRST.encode())
        Path("b.txt").write_bytes(SECOND.encode())

    def __call__(self, command: str, status: int = 0) -> str:
        assert main(shlex.split(command)) == status, "".join(self.capsys.readouterr())
        return "".join(self.capsys.readouterr())


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_files_become_tokens_that_train(kind: str, shell: Shell) -> None:
    said = shell(f"tokens a.txt b.txt --out new/text.tokens --tokenizer {kind}")
    found = open_tokens("new/text.tokens")
    assert found.tokenizer.to_dict() == TOKENIZERS[kind].from_text(FIRST + SECOND).to_dict()
    assert found.ids.tolist() == [*found.tokenizer.encode(FIRST), *found.tokenizer.encode(SECOND)]
    assert (
        f"{len(found.ids):,} tokens ({kind}, {found.tokenizer.vocab_size:,} ids) of {len(FIRST) + 11:,} bytes" in said
    )
    said = shell(f"train --tokens new/text.tokens --out run {TINY}")
    assert f"text.tokens, {len(found.ids) - int(len(found.ids) * 0.05):,} tokens ({kind}) to learn from" in said
    assert "nats per token" in shell("eval run")


def test_the_size_of_bpe_and_the_text_it_learns_from(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("tokens a.txt b.txt --out two --tokenizer bpe --vocab-size 270")
    assert open_tokens("two").tokenizer.vocab_size == 270
    monkeypatch.setattr(tokens, "LEARNT_FROM", len(FIRST) + 2)
    shell("tokens a.txt b.txt b.txt --out three --tokenizer bpe")
    assert open_tokens("three").tokenizer.to_dict() == train_bpe(FIRST, 1000).to_dict()


def test_a_tokenizer_comes_from_any_file_that_holds_one(shell: Shell) -> None:
    mine = CharTokenizer.from_text(FIRST + SECOND)
    mine.save("mine.json")
    write_tokens("mine.tokens", [0], mine)
    shell(f"train --corpus a.txt --tokenizer bpe --out run {TINY}")
    Path("theirs").mkdir()
    trained().save("theirs/tokenizer.json")
    for i, (source, expected) in enumerate((
        ("mine.json", mine), ("mine.tokens", mine), ("run", train_bpe(FIRST, 1000)),
        ("theirs", trained()),
    )):  # fmt: skip
        shell(f"tokens a.txt --out {i} --tokenizer {source}")
        ids = expected.encode(FIRST)
        assert open_tokens(str(i)).ids.tolist() == getattr(ids, "ids", ids)


MISTAKES = {
    "tokens NO --out o --tokenizer bytes": "NO is not a file; give UTF-8 text files",
    "tokens a.txt FOLDER --out o --tokenizer bytes": "FOLDER is not a file; give its files, such as FOLDER/*.txt",
    "tokens EMPTY --out o --tokenizer bytes": "EMPTY is empty; give files with text",
    "tokens BLANK --out o --tokenizer words": "words must be at least one",
    "tokens a.txt UTF16 --out o --tokenizer words": "UTF16 is UTF-16; convert it with: iconv -f utf-16 -t utf-8",
    "tokens a.txt LATIN --out o --tokenizer bytes": "LATIN is not UTF-8 (byte 0xe9 at offset 3)",
    "tokens a.txt --out b.txt --tokenizer bytes": "b.txt exists; delete it, or choose another name for --out",
    "tokens a.txt --out FOLDER --tokenizer bytes": "FOLDER exists; delete it, or choose another name for --out",
    "tokens a.txt --out b.txt/o --tokenizer bytes": "cannot write the token file b.txt",
    "tokens a.txt --out o --tokenizer bpe --vocab-size 255": "vocab_size must be at least 256",
    "tokens a.txt --out o --tokenizer words --vocab-size 300": "vocab_size 300 is for --tokenizer bpe; words has",
    "tokens a.txt --out o --tokenizer mine.json --vocab-size 300": "mine.json has its own size, so leave it out",
    "tokens a.txt --out o --tokenizer mine.json": "a.txt: character 't' at position 0",
    "tokens a.txt --out o --tokenizer b.txt": "b.txt is not a token file",
    "tokens a.txt --out o --tokenizer wordz": "wordz is neither a folder nor a hub id (owner/name)",
    "tokens a.txt --out o --tokenizer FOLDER": "no sound checkpoint in FOLDER",
    "train --tokens NO": "there is no token file",
    "train --tokens a.txt": "a.txt is not a token file",
    "train --tokens FOLDER": "there is no token file",
    "train --tokens few --corpus a.txt": "leave out --corpus and --tokenizer, or --tokens",
    "train --tokens few --tokenizer bytes": "leave out --corpus and --tokenizer, or --tokens",
    "train --tokens few": "the corpus has 2 tokens, a window of seq_len 128 needs 129",
    "train --tokens few --vocab-size 1": "vocab_size 1 is below what chars need, 2",
}


def test_every_mistake_is_one_line_and_leaves_nothing(shell: Shell) -> None:
    Path("FOLDER").mkdir()
    for name, content in (("EMPTY", b""), ("BLANK", b"\xef\xbb\xbf"), ("UTF16", "hello".encode("utf-16"))):
        Path(name).write_bytes(content)
    Path("LATIN").write_bytes(b"caf\xe9")
    CharTokenizer("ab").save("mine.json")
    write_tokens("few", [0, 1], CharTokenizer("ab"))
    before = sorted(Path().rglob("*"))
    for command, says in MISTAKES.items():
        said = [line for line in shell(command, 2).splitlines() if line.startswith("tinylm: ")]
        assert len(said) == 1 and says in said[0], f"{command}: {said}"
        assert sorted(Path().rglob("*")) == before, command


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="root writes anywhere, and Windows has no such mode"
)
def test_a_folder_that_cannot_be_written_to_is_named_at_once(shell: Shell) -> None:
    Path("locked").mkdir(mode=0o500)
    assert "cannot write the token file locked/o: Permission denied" in shell(
        "tokens a.txt --out locked/o --tokenizer bytes", 2
    )


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT and SIGTERM")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_interrupted_leaves_nothing(number: int, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path.cwd()
    monkeypatch.undo()
    text = folder / "large.txt"
    text.write_text(FIRST * 20_000, encoding="utf-8")  # enough for a minute
    command = f"-m tinylm_lib tokens {text} --out {folder / 'o'} --tokenizer bpe"
    process = subprocess.Popen([sys.executable, *command.split()], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(folder.glob("*.o.partial")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(folder.glob("*.o.partial")), "it has not begun"
    process.send_signal(number)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and "Traceback" not in said, said
    assert not list(folder.glob("*o.partial")) and not (folder / "o").exists()
