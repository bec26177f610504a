"""The command line, run as a user runs it: train, stop, resume, sample, measure, and every mistake in one line."""

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.hub import trained

from tinylm_lib import ModelConfig, TrainConfig, TransformerLM, generate, storyworld
from tinylm_lib.__main__ import main, parser
from tinylm_lib.commands.flags import SPELLED
from tinylm_lib.data import corpora
from tinylm_lib.pretrained import save_hf
from tinylm_lib.runs import job, run
from tinylm_lib.runs.job import begin
from tinylm_lib.runs.log import read_log
from tinylm_lib.runs.settings import RunConfig
from tinylm_lib.text.hugging_face import HubTokenizer
from tinylm_lib.text.tokenizers import WordTokenizer
from tinylm_lib.training.checkpoint import MANIFEST, latest, load
from tinylm_lib.training.evaluation import Evaluation
from tinylm_lib.training.loop import Step

SHAPE = "--d-model 16 --n-layers 1 --n-heads 2 --batch-size 4"
SMALL = f"{SHAPE} --seq-len 16 --sample-tokens 8 --warmup-steps 2 --prompt the"


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self.capsys = capsys
        Path("text.txt").write_text("the cat sat on the mat and the dog sat on the log . " * 40, encoding="utf-8")

    def __call__(self, command: str, status: int = 0) -> str:
        assert main(shlex.split(command)) == status, command
        return "".join(self.capsys.readouterr())

    def train(self, more: str, out: str = "run", status: int = 0) -> str:
        return self(f"train --corpus text.txt --out {out} {SMALL} {more}", status)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


def weights(folder: str) -> dict[str, torch.Tensor]:
    return load(latest(Path(folder))).model.state_dict()


def number(before: str, text: str, after: str = "") -> float:
    return float(re.search(rf"{before}(\d+\.\d+){after}", text)[1])


def test_every_field_is_a_flag() -> None:
    command = ["train", "--help"]
    shown = subprocess.run([sys.executable, "-m", "tinylm_lib", *command], capture_output=True, text=True).stdout
    for record in (RunConfig, TrainConfig, ModelConfig):
        for f in dataclasses.fields(record):
            if f.name != "rope_scaling":
                assert f"--{SPELLED.get(f.name, f.name).replace('_', '-')}" in shown
                assert f.metadata["help"].split()[0] in shown


def test_a_run_trains_samples_and_is_measured(shell: Shell) -> None:
    shown = shell.train("--total-steps 60 --eval-every 20 --matrix-lr 0.02")
    losses = [float(x) for x in re.findall(r"validation (\d+\.\d+) nats", shown)]
    assert len(losses) == 3 and losses[0] > losses[1] > losses[2]
    assert "ln 256 = 5.55" in shown
    names = [p.name for p in sorted(Path("run").iterdir())]
    assert names == ["log.jsonl", "step_000040", "step_000060"], "the last two checkpoints are kept"
    measured = shell("eval run")
    assert number("", measured, " nats per token") == pytest.approx(losses[2], abs=6e-4)
    bits = number("", measured, " bits per byte")
    assert bits == pytest.approx(losses[2] / 0.693147, abs=2e-3), "one token is one byte here"
    options = "sample --checkpoint run --prompt 'the cat' --max-new-tokens 20 --temperature 2 --seed"
    first, second, third = (shell(f"{options} {seed}").splitlines()[0] for seed in (3, 3, 5))
    assert first == second != third
    assert first.startswith("the cat") and len(first.encode()) >= len("the cat") + 20


def test_a_prompt_longer_than_the_model_sees_is_said(shell: Shell) -> None:
    shell.train("--total-steps 2")
    for n, said in ((16, False), (17, True)):
        shown = shell(f"sample --checkpoint run --max-new-tokens 1 --prompt {'a' * n}")
        assert (f"the model sees only the last 16 of the prompt's {n} tokens" in shown) == said


def test_sample_ends_at_a_stop_and_takes_any_source(shell: Shell) -> None:
    options = "--prompt 'One rainy day, calm' --temperature 0 --max-new-tokens"
    whole = shell(f"sample --from storyworld {options} 60")
    assert whole.count(".") > 2 and whole.endswith("\n")
    first = shell(f"sample --checkpoint storyworld {options} 60 --stop . --stop nothing")
    assert first == whole[: whole.index(".")] + "\n"
    assert whole.startswith(shell(f"sample --from storyworld {options} 5")[:-1])


def test_weights_in_8_bits_write_and_are_measured(shell: Shell) -> None:
    options = "--from storyworld --prompt 'One rainy day, calm' --temperature 0 --max-new-tokens 12"
    assert shell(f"sample {options} --quantize int8").startswith("One rainy day, calm")
    Path("stories.txt").write_text(storyworld.corpus(40, seed=99), encoding="utf-8")
    measure = "eval storyworld --corpus stories.txt --lines"
    full, small = (shell(f"{measure} {more}") for more in ("", "--quantize int8"))
    assert ", float32)" in full and ", int8)" in small
    values = [number("", text, " nats per token") for text in (full, small)]
    assert values[0] != values[1] == pytest.approx(values[0], abs=0.01)
    with pytest.raises(SystemExit):
        main(["sample", "--quantize", "int4"])


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_sample_ends_where_a_model_of_hugging_face_ends_a_text(file: str, shell: Shell) -> None:
    torch.manual_seed(0)
    tokenizer = HubTokenizer(trained().to_str())
    config = ModelConfig(vocab_size=300, d_model=16, n_layers=1, n_heads=2, max_seq_len=64, init="xavier")
    model = TransformerLM(config)
    save_hf(model, "model", tokenizer=tokenizer)
    command = "sample --from model --prompt 'One day' --temperature 0 --max-new-tokens 40"
    tokens = tokenizer.encode("One day")
    written = generate(model, torch.tensor([tokens]), 40, temperature=0)[0].tolist()
    end = next(i for i in range(len(tokens) + 3, len(written)) if written[i] not in written[len(tokens) : i])
    assert shell(command) == tokenizer.decode(written) + "\n"
    values = json.loads(Path("model/config.json").read_text("utf-8"))
    (Path("model") / file).write_text(json.dumps({**values, "eos_token_id": [1, written[end]]}), encoding="utf-8")
    assert shell(command) == tokenizer.decode(written[:end]) + "\n"


def test_storyworld_is_read_line_by_line_and_its_floor_is_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    text = storyworld.corpus(400, seed=0)
    monkeypatch.setitem(corpora.CORPORA, "storyworld", lambda: text)
    shown = shell(f"train --out run {SHAPE} --total-steps 4 --eval-every 4 --sample-tokens 200")
    floor, loss = storyworld.entropies(WordTokenizer(text)).floor, number("validation ", shown, " nats")
    assert f"{floor:.3f}" in shown
    above = number("", shown, " nats per token above the floor")
    assert above == pytest.approx(loss - floor, abs=0.05)  # on other stories
    assert number("", shell("eval run"), " nats per token") == pytest.approx(loss, abs=6e-4)
    assert type(load(latest(Path("run"))).tokenizer) is WordTokenizer
    job = begin(RunConfig(), TrainConfig(batch_size=4), "modern", {})
    assert (next(job.batches)[0][:, 0] == job.data.tokenizer.encode("\n")[0]).all()
    held_out = job.data.tokenizer.decode(torch.cat([y[y >= 0] for _, y in job.windows()]).tolist())
    assert held_out == "".join(text.splitlines(keepends=True)[-20:])
    assert job.n_bytes == len(held_out.encode())


def test_lines_need_a_token_for_their_end_and_room(shell: Shell) -> None:
    Path("text.txt").write_text("a b c\n" * 30, encoding="utf-8")
    lines = "--prompt a --lines --total-steps 2"
    shell.train(lines)
    said = shell.train(f"{lines} --seq-len 4 --max-seq-len 4", status=2)
    assert "a line has 6 tokens, more than max_seq_len 4; raise it" in said
    Path("text.txt").write_text("a b c " * 30, encoding="utf-8")
    said = shell.train(lines, status=2)
    assert "1 lines leave none for validation; give more lines, or choose --no-lines" in said


def test_a_resumed_run_keeps_its_settings(shell: Shell) -> None:
    shell.train("--total-steps 4")
    said = shell("train --resume --out run --d-model 32 --matrix-lr 1", status=2)
    assert "--d-model (it is 16)" in said and "--matrix-lr (it is 0.004)" in said
    assert "Nothing left to do" in shell("train --resume --out run --d-model 16 --sample-tokens 0")


def test_a_new_run_never_overwrites_an_earlier_one(shell: Shell) -> None:
    shell.train("--total-steps 4")
    before = weights("run")
    shell.train("--total-steps 2 --seed 7")
    assert latest(Path("run")).name == "step_000002"
    torch.testing.assert_close(weights("run.1"), before, rtol=0, atol=0)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    out, text = tmp_path / "run", tmp_path / "text.txt"
    command = f"-m tinylm_lib train --corpus {text} --out {out} {SMALL} --total-steps 1000000 --eval-every 20"
    process = subprocess.Popen(
        [sys.executable, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("*/" + MANIFEST)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[0]
    step = int(re.search(r"Stopped after update (\d+)", said)[1])
    assert f"train --resume --out={out}" in said
    assert load(latest(out)).step == step
    assert process.returncode == 0, "it did what it was asked to"


def test_a_page_without_its_packages_asks_for_them(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tinylm_classroom")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = shell("page storyworld --out p.html", status=2)
    assert "which tinylm page needs; python -m pip install 'tinylm-lib[lab]'" in said and "checkout" not in said


def test_without_the_entry_point_an_unknown_command_is_told_what_to_install(monkeypatch, capsys) -> None:
    monkeypatch.setattr("tinylm_lib.__main__.entry_points", lambda group: [])
    with pytest.raises(SystemExit):
        main(["lab"])
    said = capsys.readouterr().err
    assert "invalid choice: 'lab'" in said and "lab and others come with: python -m pip install -e ." in said


def test_a_second_ctrl_c_interrupts(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(run, "log_entries", interrupted)
    assert "tinylm: interrupted" in shell.train("--total-steps 4", status=130)


@pytest.mark.skipif(os.name != "posix", reason="quoted for cmd")
@pytest.mark.parametrize("prompt", ["the cat's $HOME", "the\ncat", "-the", "the\tcat"])
@pytest.mark.parametrize("out", ["a run", "-run", "run;ls", "it's"])
def test_what_a_run_prints_can_be_pasted_into_a_shell(prompt: str, out: str, shell: Shell) -> None:
    flags = [f"--out={out}", "--corpus=text.txt", f"--prompt={prompt}", *SHAPE.split(), "--sample-tokens=0"]
    assert main(["train", *flags, "--total-steps=1", "--seq-len=16"]) == 0
    said = shell.capsys.readouterr().out
    typed = said[said.index("python -m tinylm_lib ") : said.index("\nThis took")]
    command = shlex.split(typed)[3:]
    pasted = subprocess.run(
        ["sh", "-c", f"python() {{ printf '%s\\0' \"$@\"; }}; {typed}"], capture_output=True, text=True
    )
    assert pasted.stdout.split("\0")[2:-1] == command
    assert main([*command, "--max-new-tokens=2"]) == 0
    shown = shell.capsys.readouterr().out
    assert shown.startswith(prompt if "\t" not in prompt else "\n"), "what cannot be typed is left out"


def test_on_windows_commands_are_quoted_for_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.os, "name", "nt")
    assert run.typed("sample", "--checkpoint=a run") == 'sample "--checkpoint=a run"'


def test_a_run_can_be_made_longer(shell: Shell) -> None:
    shell.train("--total-steps 8 --eval-every 4")
    assert "total_steps 7 is below the 8 updates" in shell("train --resume --out run --total-steps 7", status=2)
    assert "Nothing left to do" in shell("train --resume --out run --total-steps 8")
    said = shell("train --resume --out run --total-steps 20")
    share = 1 - (9 - 2) / (20 - 2)  # warm-up of 2 updates, then linear
    assert f"Continuing after update 8 with {share:.0%} of the peak learning rates,\n" in said
    assert "because the schedule ends at update 20.\n" in said
    entries = [entry for entry in read_log(Path("run/log.jsonl")) if "loss" in entry]
    assert [entry["update"] for entry in entries] == list(range(1, 21))
    assert entries[8]["lr_share"] == pytest.approx(share) and entries[-1]["lr_share"] == 0
    assert load(latest(Path("run"))).extra["train"]["total_steps"] == 20


def test_a_run_that_was_planned_longer_or_made_longer_before_its_end_is_the_same(shell: Shell) -> None:
    """With a constant rate the schedule does not see the end."""
    shell.train("--total-steps 12 --floor 1", out="whole")
    shell.train("--total-steps 5 --floor 1")
    shell("train --resume --out run --total-steps 12")
    whole, run = weights("whole"), weights("run")
    assert all(torch.equal(whole[name], run[name]) for name in whole)


def test_the_best_checkpoint_is_named_with_the_command_that_samples_from_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 1.5, 2.0, 2.5])

    def evaluated(*arguments: object) -> Evaluation:
        return Evaluation(next(losses), 1.0, 1.0, 1)

    monkeypatch.setattr(run, "evaluate", evaluated)
    said = shell.train("--total-steps 8 --eval-every 2")
    assert folders_of("run") == ["step_000004", "step_000006", "step_000008"]
    assert latest(Path("run")).name == "step_000008", "latest is the highest step"
    command = re.search(
        r"The lowest validation loss, 1.500, is that of .*step_000004:\n +python -m tinylm_lib (.*)", said
    )[1]
    assert shell(f"{command} --max-new-tokens 3").startswith("the")
    losses = iter([1.0])
    said = shell("train --resume --out run --total-steps 9")
    assert "lowest validation loss" not in said, "it is the last one"
    assert folders_of("run") == ["step_000008", "step_000009"]


def folders_of(out: str) -> list[str]:
    return sorted(p.name for p in Path(out).glob("step_*"))


def test_an_optional_number_can_be_none(shell: Shell) -> None:
    shell.train("--total-steps 2 --clip-norm none --d-ff none")
    found = load(latest(Path("run")))
    assert found.extra["train"]["clip_norm"] is None and found.model.config.d_ff == 64
    with pytest.raises(SystemExit):
        main(["train", "--clip-norm", "never"])
    assert "invalid float or none value: 'never'" in shell.capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "--batch-size", "none"])
    assert "invalid int value: 'none'" in shell.capsys.readouterr().err


@pytest.mark.parametrize("out", [os.devnull, "text.txt", "text.txt/deeper/run"])
def test_a_file_as_the_folder_of_a_run_is_refused_before_anything_is_read(
    out: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "read_dataset", lambda *arguments: pytest.fail("it was read"))
    taken = out.split("/deeper")[0]
    assert f"out {out} cannot be a folder, because {taken} is a file" in shell.train("", out=out, status=2)


def test_a_run_in_the_working_folder_is_kept(shell: Shell) -> None:
    shell.train("--total-steps 2", out=".")
    assert ". holds a run, and a folder in use cannot be renamed" in shell.train("--total-steps 2", out=".", status=2)
    assert Path("text.txt").exists() and latest(Path()) == Path("step_000002")
    assert "Nothing left to do" in shell("train --resume --out .")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_without_a_compiler_compile_says_what_it_needs(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> Iterator[Step]:
        raise torch._dynamo.exc.TorchDynamoException("No working C++ compiler found in: (None, 'g++')\n\nlong")

    monkeypatch.setattr(run, "train", broken)
    said = shell.train("--total-steps 2 --compile", status=2)
    assert "--compile does not work here (No working C++ compiler found in: (None, 'g++')). It needs" in said
    for fix in ("g++", "xcode-select --install", "Visual Studio", "Triton", "leave it out"):
        assert fix in said.splitlines()[-1]


MISTAKES = {
    "train --corpus nowhere.txt": "neither a file nor a corpus",
    "train --corpus EMPTY": "is empty",
    "train --corpus BINARY": "is binary",
    "train --corpus LATIN": "not UTF-8",
    "train --corpus SHORT": "a window of seq_len 128 needs 129",
    "train --d-model 30": "d_model 30 is not divisible by n_heads 4",
    "train --n-kv-heads 3": "n_kv_heads 3 does not divide n_heads 4",
    "train --d-head 7": "d_head 7 is odd",
    "train --max-seq-len 8": "seq_len 128 exceeds the model's max_seq_len 8; lower it",
    "train --vocab-size 100": "vocab_size 100 is below what words need, 345",
    "train --warmup-steps 5000": "warmup_steps 5000 exceeds total_steps",
    "train --total-steps 0": "total_steps must be at least 1",
    "train --prompt=": "prompt is empty",
    "train --device quantum": "device 'quantum' is not here",
    "train --resume --preset gpt": "leave out --preset",
    "train --resume --out NO": "no sound checkpoint",
    **dict.fromkeys(("eval NO", "sample --checkpoint NO", "sample --from NO"), "'NO' is not a model; train one, or"),
    "sample --checkpoint RUN --stop=": "stop must be texts of at least one character",
    "sample --checkpoint RUN --prompt=": "prompt is empty",
    **{f"sample --checkpoint RUN --temperature {t}": "temperature must be 0 (greedy)" for t in (-1, "nan")},
    **{f"sample --checkpoint RUN --top-k {k}": "top_k must be an integer from 1 to 256" for k in (0, 257)},
    "sample --checkpoint RUN --top-p 1.5": "top_p must be above 0 and at most 1",
}


def test_every_mistake_is_one_line_with_a_fix(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    text = storyworld.corpus(1000, seed=0)
    monkeypatch.setitem(corpora.CORPORA, "storyworld", lambda: text)
    shell.train("--total-steps 2", out="RUN")
    contents = {"EMPTY": b"", "BINARY": b"\x7fELF\0\0", "LATIN": b"caf\xe9 " * 400, "SHORT": b"short"}
    for name, content in contents.items():
        Path(name).write_bytes(content)
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    for command, says in MISTAKES.items():
        said = shell(command, status=2).strip()
        assert said.startswith("tinylm: ") and says in said, f"{command}: {said}"
        assert len(said.splitlines()) == 1, said
    assert {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()} == before, "a mistake changed a file"


@pytest.mark.parametrize("command", [["train", "--d-model", "many"], ["train", "--unknown"], ["fly"], []])
def test_flags_that_are_none_exit_with_2(command: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2


def test_a_run_can_be_described_in_json() -> None:
    arguments = vars(parser().parse_args(["train", "--tie-embeddings", "--no-qk-norm"]))
    assert arguments["tie_embeddings"] is True and arguments["qk_norm"] is False
    assert RunConfig.from_dict(json.loads(json.dumps(RunConfig().to_dict()))) == RunConfig()


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_output_that_cannot_be_encoded_ends_no_command(encoding: str, tmp_path: Path) -> None:
    """As on a pipe of Windows. The sample of a run, the text of a model, the name of a file, and an error."""
    (tmp_path / "中.txt").write_text("Le café — “naïve” 中文 🚢 " * 60, encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    shape = f"{SHAPE} --seq-len 16 --max-seq-len 16 --tokenizer chars --sample-tokens 40 --prompt 中"
    for command, status, shown in (
        (f"train --corpus 中.txt --out 文 --total-steps 2 --eval-every 1 --precision fp32 {shape}", 0, "?.txt"),
        ("sample --from 文 --prompt 中文 --max-new-tokens 5", 0, "??"),
        ("tokens 中.txt --out 中.tokens --tokenizer bytes", 0, "?.tokens: "),
        ("eval 文 --corpus 船", 2, r"is neither a file nor a corpus"),
    ):
        words = [sys.executable, "-m", "tinylm_lib", *shlex.split(command)]
        done = subprocess.run(words, capture_output=True, cwd=tmp_path, env=environment)
        said = (done.stdout + done.stderr).decode(encoding)
        assert done.returncode == status, said
        assert shown in said
    assert read_log(tmp_path / "文" / "log.jsonl")


def test_an_output_that_nobody_reads_on_ends_in_silence():
    command = [sys.executable, "-m", "tinylm_lib", "sample", "--from", "storyworld", "--max-new-tokens", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1
