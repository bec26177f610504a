"""The command line, run as a user runs it: train, stop, resume, sample, measure, and every mistake in one line."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tinylm_lib import ModelConfig, TrainConfig, storyworld
from tinylm_lib.__main__ import main, parser
from tinylm_lib.data import corpora
from tinylm_lib.runs.job import RunConfig, begin
from tinylm_lib.text.tokenizers import WordTokenizer
from tinylm_lib.training.checkpoint import MANIFEST, latest, load

TEXT = "the cat sat on the mat and the dog sat on the log . " * 40
SIZES = "--d-model 16 --n-layers 1 --n-heads 2 --batch-size 4"
SMALL = f"{SIZES} --seq-len 16 --sample-tokens 8 --warmup-steps 2 --prompt the"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A small text file."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path / "text.txt"


def train(corpus: Path, out: Path, *more: str) -> int:
    """Run the train command in this process."""
    return main(["train", "--corpus", str(corpus), "--out", str(out), *SMALL.split(), *more])


def test_every_field_is_a_flag() -> None:
    command = ["train", "--help"]
    shown = subprocess.run([sys.executable, "-m", "tinylm_lib", *command], capture_output=True, text=True).stdout
    for record in (RunConfig, TrainConfig, ModelConfig):
        for f in dataclasses.fields(record):
            if f.name != "rope_scaling":
                assert f"--{f.name.replace('_', '-')}" in shown
                assert f.metadata["help"].split()[0] in shown


def test_a_run_trains_samples_and_is_measured(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train(corpus, out, "--total-steps", "60", "--eval-every", "20", "--matrix-lr", "0.02") == 0
    shown = capsys.readouterr().out
    first, second, last = [float(x) for x in re.findall(r"validation (\d+\.\d+) nats", shown)]
    assert first > second > last
    assert "ln 256 = 5.55" in shown
    names = [p.name for p in sorted(out.iterdir())]
    assert names == ["log.jsonl", "step_000040", "step_000060"], "the last two checkpoints are kept"
    assert main(["eval", str(out)]) == 0
    measured = capsys.readouterr().out
    assert float(re.search(r"(\d+\.\d+) nats per token", measured)[1]) == pytest.approx(last, abs=6e-4)
    bits = float(re.search(r"(\d+\.\d+) bits per byte", measured)[1])
    assert bits == pytest.approx(last / 0.693147, abs=2e-3), "one token is one byte here"
    options = ["sample", "--checkpoint", str(out), "--prompt", "the cat", "--max-new-tokens", "20"]
    assert main([*options, "--seed", "3"]) == main([*options, "--seed", "3"]) == main([*options, "--seed", "4"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()[:3]
    assert first == second != third
    assert first.startswith("the cat") and len(first.encode()) >= len("the cat") + 20


def test_storyworld_is_read_line_by_line_and_its_floor_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = storyworld.corpus(400, seed=0)
    monkeypatch.setitem(corpora.CORPORA, "storyworld", lambda: text)
    small = f"{SIZES} --total-steps 4 --eval-every 4 --sample-tokens 200".split()
    assert main(["train", "--out", str(tmp_path), *small]) == 0
    shown = capsys.readouterr().out
    floor = storyworld.entropies(WordTokenizer(text)).floor
    assert f"{floor:.3f}" in shown
    above = float(re.search(r"([\d.]+) nats per token above the floor", shown)[1])
    loss = float(re.search(r"validation ([\d.]+) nats", shown)[1])
    assert above == pytest.approx(loss - floor, abs=0.05)  # on other stories
    found = load(latest(tmp_path))
    assert type(found.tokenizer) is WordTokenizer
    job = begin(RunConfig(), TrainConfig(batch_size=4), "modern", {})
    x, _ = next(job.batches)
    end = job.tokenizer.encode("\n")[0]
    assert (x[:, 0] == end).all()
    scored = torch.cat([y[y >= 0] for _, y in job.windows()])
    held_out = job.tokenizer.decode(scored.tolist())
    assert held_out == "".join(text.splitlines(keepends=True)[-20:])
    assert job.n_bytes == len(held_out.encode())
    assert main(["eval", str(tmp_path)]) == 0
    again = float(re.search(r"([\d.]+) nats per token", capsys.readouterr().out)[1])
    assert again == pytest.approx(loss, abs=6e-4)


def test_lines_need_a_token_for_their_end_and_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("a b c\n" * 30, encoding="utf-8")
    small = [*SMALL.split()[:-1], "a", "--lines", "--total-steps", "2"]
    options = ["train", "--corpus", str(path), "--out", str(tmp_path / "run"), *small]
    assert main(options) == 0
    assert main([*options, "--seq-len", "4", "--max-seq-len", "4"]) == 2
    assert "a line has 6 tokens, more than max_seq_len 4; raise it" in capsys.readouterr().err
    path.write_text("a b c " * 30, encoding="utf-8")
    assert main(options) == 2
    assert "1 lines leave none for validation; give more lines, or choose --no-lines" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_settings(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(corpus, tmp_path, "--total-steps", "4") == 0
    assert main(["train", "--resume", "--out", str(tmp_path), "--d-model", "32", "--matrix-lr", "1"]) == 2
    said = capsys.readouterr().err
    assert "--d-model (it is 16)" in said and "--matrix-lr (it is 0.004)" in said
    assert main(["train", "--resume", "--out", str(tmp_path), "--d-model", "16", "--sample-tokens", "0"]) == 0
    assert "Nothing left to do" in capsys.readouterr().out


def test_a_new_run_never_overwrites_an_earlier_one(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(corpus, out, "--total-steps", "4") == 0
    before = (latest(out) / MANIFEST).read_bytes()
    assert train(corpus, out, "--total-steps", "2", "--seed", "7") == 0
    assert latest(out).name == "step_000002"
    assert (tmp_path / "run.1" / "step_000004" / MANIFEST).read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_saves_and_says_how_to_go_on(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = f"-m tinylm_lib train --out {out} {SMALL} --total-steps 1000000 --eval-every 20".split()
    command = [sys.executable, *command, "--corpus", str(corpus)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("*/" + MANIFEST)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[0].decode()
    step = int(re.search(r"Stopped after update (\d+)", said)[1])
    assert f"train --resume --out {out}" in said
    assert load(latest(out)).step == step


MISTAKES = [
    ("train --corpus nowhere.txt", "neither a file nor a corpus"),
    ("train --corpus EMPTY", "is empty"),
    ("train --corpus BINARY", "is binary"),
    ("train --corpus LATIN", "not UTF-8"),
    ("train --corpus SHORT", "a window of seq_len 128 needs 129"),
    ("train --d-model 30", "d_model 30 is not divisible by n_heads 4"),
    ("train --n-kv-heads 3", "n_kv_heads 3 does not divide n_heads 4"),
    ("train --d-head 7", "d_head 7 is odd"),
    ("train --max-seq-len 8", "max_seq_len 8 is below seq_len, 128"),
    ("train --vocab-size 100", "vocab_size 100 is below what words need, 345"),
    ("train --warmup-steps 5000", "warmup_steps 5000 exceeds total_steps"),
    ("train --total-steps 0", "total_steps must be at least 1"),
    ("train --prompt=", "prompt is empty"),
    ("train --device quantum", "device 'quantum' is not here"),
    ("train --resume --out NOWHERE", "no sound checkpoint"),
    ("train --resume --preset gpt", "leave out --preset"),
    ("sample --checkpoint NOWHERE", "no sound checkpoint"),
    ("eval NOWHERE", "no sound checkpoint"),
    ("sample --checkpoint RUN --prompt=", "prompt is empty"),
    ("sample --checkpoint RUN --temperature -1", "temperature must be 0 (greedy)"),
    ("sample --checkpoint RUN --temperature nan", "temperature must be 0 (greedy)"),
    ("sample --checkpoint RUN --top-k 0", "top_k must be an integer from 1 to 256"),
    ("sample --checkpoint RUN --top-k 257", "top_k must be an integer from 1 to 256"),
    ("sample --checkpoint RUN --top-p 1.5", "top_p must be above 0 and at most 1"),
]


def test_every_mistake_is_one_line_with_the_remedy(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = storyworld.corpus(1000, seed=0)
    monkeypatch.setitem(corpora.CORPORA, "storyworld", lambda: text)
    assert train(corpus, tmp_path / "RUN", "--total-steps", "2") == 0
    Path("EMPTY").write_text("", encoding="utf-8")
    Path("BINARY").write_bytes(b"\x7fELF\0\0")
    Path("LATIN").write_bytes("caf\u00e9 ".encode("latin-1") * 400)
    Path("SHORT").write_text("short", encoding="utf-8")
    capsys.readouterr()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for command, says in MISTAKES:
        assert main(command.split()) == 2, command
        said = capsys.readouterr().err.strip()
        assert said.startswith("tinylm: ") and says in said, f"{command}: {said}"
        assert len(said.splitlines()) == 1, said
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before, "a mistake changed a file"


@pytest.mark.parametrize("command", [["train", "--d-model", "many"], ["train", "--unknown"], ["fly"], []])
def test_flags_that_are_none_exit_with_2(command: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2


def test_a_run_can_be_described_in_json() -> None:
    arguments = vars(parser().parse_args(["train", "--tie-embeddings", "--no-qk-norm"]))
    assert arguments["tie_embeddings"] is True and arguments["qk_norm"] is False
    assert RunConfig.from_dict(json.loads(json.dumps(RunConfig().to_dict()))) == RunConfig()
