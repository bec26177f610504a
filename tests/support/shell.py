"""The command line called in this process, and what its refusals have in common."""

import shlex
from pathlib import Path

import pytest

from tinylm_lib import TransformerLM
from tinylm_lib.__main__ import main
from tinylm_lib.data.token_file import write_tokens
from tinylm_lib.text.tokenizers import WordTokenizer
from tinylm_lib.training import checkpoint


class Shell:
    """Runs commands, and returns what they print: of a command that fails, what it says of the failure."""

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self.capsys = capsys

    def __call__(self, command: str, status: int = 0) -> str:
        assert main(shlex.split(command)) == status, command
        captured = self.capsys.readouterr()
        return captured.err if status else captured.out


def save_refused_sources(model: TransformerLM, tokenizer: WordTokenizer) -> None:
    """Saves here what most commands refuse: a token file and a model with this tokenizer, and a model without one."""
    write_tokens("words.tokens", tokenizer.encode(" cat"), tokenizer)
    checkpoint.save("words", model, tokenizer=tokenizer)
    checkpoint.save("untold", model)


def assert_refused(shell: Shell, command: str, reason: str) -> None:
    """A command fails with one line that has the reason, and writes nothing."""
    before = sorted(Path().rglob("*"))
    said = shell(command, status=2)
    assert said.startswith("tinylm: ") and said.count("\n") == 1
    assert reason in said
    assert sorted(Path().rglob("*")) == before
