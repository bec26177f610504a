"""sample --chat: a dialogue with a chat model, on a terminal, through a pipe, or one answer."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
from support.chats import JINJA, save_chat_model
from support.shell import Shell

import tinylm_lib
from tinylm_lib import ModelConfig, TransformerLM, generate
from tinylm_lib.__main__ import main
from tinylm_lib.commands import sample
from tinylm_lib.pretrained import load_model
from tinylm_lib.text.chat import Turn
from tinylm_lib.text.published import digest
from tinylm_lib.text.tokenizers import ByteTokenizer
from tinylm_lib.training import checkpoint

ROOT = Path(tinylm_lib.__file__).parents[1]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A folder with a chat model in "model", and one without a template in "bytes"."""
    monkeypatch.chdir(tmp_path)
    save_chat_model("model", "chatml", monkeypatch)
    checkpoint.save("bytes", TransformerLM(ModelConfig(d_model=16, n_layers=1, n_heads=2)), tokenizer=ByteTokenizer())
    return Shell(capsys)


class Echo:
    """Stands in for the model's answers: each says what was said, and remembers the dialogue that it saw."""

    def __init__(self) -> None:
        self.seen: list[list[Turn]] = []

    def __call__(self, model: Any, tokenizer: Any, dialogue: Sequence[Turn], **options: Any) -> Iterator[str]:
        self.seen.append(list(dialogue))
        yield from ("you said ", dialogue[-1][1])


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    echo = Echo()
    monkeypatch.setattr(sample, "stream_answer", echo)
    return echo


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_prompt_is_answered_as_the_model_continues_the_ids_of_its_chat(shell: Shell) -> None:
    model, tokenizer = load_model("model")
    ids = tokenizer.chat([("system", "Be kind."), ("user", "the cat")])
    ends = tokenizer.encode("<|im_end|>")
    written = generate(model, torch.tensor([ids]), 20, temperature=0, stop_ids=ends, vocab_size=tokenizer.vocab_size)
    expected = tokenizer.decode(written[0, len(ids) :].tolist()).removesuffix("<|im_end|>")
    options = "--temperature 0 --max-new-tokens 20 --prompt 'the cat'"
    assert shell(f"sample --from model --chat --system 'Be kind.' {options}") == f"{expected}\n"


def test_each_line_of_a_pipe_is_a_turn(shell: Shell, echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n\n  \ntwo"))
    assert shell("sample --from model --chat --system S") == "you said one\nyou said two\n"
    begun = [("system", "S"), ("user", "one")]
    assert echo.seen == [begun, [*begun, ("assistant", "you said one"), ("user", "two")]]


def test_a_terminal_shows_where_to_type(shell: Shell, echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("one\n"))
    assert shell("sample --from model --chat") == "> you said one\n> \n"


def test_an_empty_pipe_is_no_dialogue(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert shell("sample --from model --chat") == ""


def test_ctrl_c_leaves_with_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Iterator[str]:
        yield "I "
        raise KeyboardInterrupt

    monkeypatch.setattr(sample, "stream_answer", interrupted)
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n"))
    assert main(["sample", "--from", "model", "--chat"]) == 130
    captured = shell.capsys.readouterr()
    assert (captured.out, captured.err) == ("I ", "\ntinylm: interrupted\n")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_real_ctrl_c_while_it_waits_for_a_line(shell: Shell) -> None:
    start = "import sys; from tinylm_lib.text import published; published.PUBLISHED[sys.argv[1]] = 'chatml'; " \
        "from tinylm_lib.__main__ import main; sys.exit(main(sys.argv[2:]))"  # fmt: skip
    arguments = [digest(JINJA["chatml"]), "sample", "--from", "model", "--chat", "--max-new-tokens", "3"]
    command = [sys.executable, "-c", start, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert process.stdout.readline()  # the answer
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and said.endswith("tinylm: interrupted\n") and "Traceback" not in said


def test_a_dialogue_longer_than_the_model_sees_is_said(shell: Shell, echo: Echo) -> None:
    assert main(["sample", "--from", "model", "--chat", "--prompt", "a b " * 200]) == 0
    assert "the model sees only the last 256 of the dialogue's" in shell.capsys.readouterr().err


def test_mistakes_are_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("nothing should be read"))
    refused = shell("sample --from bytes --chat", status=2)
    assert (
        refused.startswith("tinylm: a dialogue cannot be written: it has no chat template") and refused.count("\n") == 1
    )
    assert "--system is for a dialogue; give --chat, too" in shell("sample --from model --system a", status=2)
