"""train --dialogues: a chat model learns answers from a file of dialogues, resumes, and is measured on them."""

import json
import os
import re
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
from support.chats import save_chat_model
from support.shell import Shell, assert_refused

from tinylm_lib import ModelConfig, TransformerLM
from tinylm_lib.config import IGNORED
from tinylm_lib.data.dialogues import encode_dialogue
from tinylm_lib.pretrained import load_model, open_model
from tinylm_lib.runs.dataset import cut_dialogues
from tinylm_lib.text.tokenizers import ByteTokenizer
from tinylm_lib.training import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")
FEW = "--batch-size 2 --total-steps 4 --eval-every 2 --sample-tokens 4 --out tuned"
STILL = "--matrix-lr 0 --embedding-lr 0"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A folder with 24 dialogues of different length, and a chat model in "source"."""
    monkeypatch.chdir(tmp_path)
    save_chat_model("source", "chatml", monkeypatch)
    write(24)
    return Shell(capsys)


def turns(i: int) -> list[tuple[str, str]]:
    first = [("system", "Be kind.")] if i % 3 == 0 else []
    more = [("user", "and the dog ?"), ("assistant", "the dog too " * (i % 4))] if i % 5 == 0 else []
    return [*first, ("user", f"where is the cat {i} ?"), ("assistant", f"on the mat {i}"), *more]


def write(n: int) -> None:
    lines = [{"messages": [{"role": role, "content": text} for role, text in turns(i)]} for i in range(n)]
    Path("d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def losses() -> dict[int, float]:
    entries = [json.loads(line) for line in Path("tuned/log.jsonl").read_text().splitlines()]
    return {entry["update"]: entry["validation_loss"] for entry in entries if "validation_loss" in entry}


def by_hand(model: TransformerLM, indices: range) -> float:
    """The mean loss of the answers' tokens, dialogue by dialogue."""
    tokenizer = load_model("source")[1]
    nats = []
    for i in indices:
        ids, counts = encode_dialogue(tokenizer, turns(i))
        with torch.no_grad():
            log_probs = model(torch.tensor([ids]))[0].log_softmax(-1)
        nats += [-log_probs[t - 1, ids[t]].item() for t, counted in enumerate(counts) if counted]
    return sum(nats) / len(nats)


def test_only_answers_of_the_last_dialogues_are_measured(shell: Shell) -> None:
    shown = shell(f"train --from source --dialogues d.jsonl --validation-share 0.25 {FEW} {STILL}")
    expected = by_hand(load_model("source")[0].float(), range(18, 24))
    assert losses() == pytest.approx(dict.fromkeys((0, 2, 4), expected), rel=1e-6)
    assert re.search(r"d\.jsonl, 18 dialogues of [\d,]+ tokens \(hugging_face\), \d+ of answers, to learn from,", shown)
    assert f"{expected:.4f} nats per token" in shell("eval tuned")
    few = shell("eval tuned --eval-tokens 2")
    assert f"{by_hand(load_model('source')[0].float(), range(18, 19)):.4f} nats" in few and "on 1 dialogues at" in few


def test_eval_measures_the_answers_of_any_model_and_file(shell: Shell) -> None:
    expected = by_hand(load_model("source")[0].float(), range(24))
    shown = shell("eval source --dialogues d.jsonl")
    assert f"{expected:.4f} nats per token" in shown and "24 of 24 dialogues of d.jsonl" in shown
    assert "2 of 24 dialogues of d.jsonl" in shell("eval source --dialogues d.jsonl --eval-tokens 150")


def test_a_loss_of_training_is_that_of_answers_and_what_is_said_to_the_model_is_not_learnt(shell: Shell) -> None:
    """Windows as long as the longest dialogue begin with one; the mean is over the answers in them."""
    shell(
        "train --from source --dialogues d.jsonl --validation-share 0 --batch-size 1 --total-steps 1 "
        f"--precision fp32 {STILL} --out tuned"
    )
    job = open_model("tuned")
    seq_len = job.extra["train"]["seq_len"]
    tokenizer = job.tokenizer
    lengths = [len(tokenizer.chat(turns(i), False)) for i in range(24)]
    assert seq_len == max(lengths) - 1
    ids, counts = [], []
    for i in [*range(24), *range(24)]:
        own = encode_dialogue(tokenizer, turns(i))
        ids += own[0]
        counts += own[1]
    found = json.loads(Path("tuned/log.jsonl").read_text().splitlines()[0])["loss"]
    possible = []
    for start in [sum(lengths[:i]) for i in range(24)]:
        x = torch.tensor([ids[start : start + seq_len]])
        y = torch.tensor(
            [i if c else IGNORED for i, c in zip(ids, counts, strict=True)][start + 1 : start + seq_len + 1]
        )
        with torch.no_grad():
            logits = job.model(x)[0]
        possible.append(torch.nn.functional.cross_entropy(logits, y, ignore_index=IGNORED).item())
    assert min(abs(found - loss) for loss in possible) < 1e-5
    assert max(possible) - min(possible) > 1e-2  # so that another loss would be seen


def test_a_resumed_run_is_the_same_to_the_bit_even_where_the_file_has_moved(shell: Shell) -> None:
    shell(f"train --from source --dialogues d.jsonl {FEW} --total-steps 4")
    expected = open_model("tuned").model.state_dict()
    shutil.rmtree("tuned/step_000004")
    shutil.rmtree("source")
    Path("d.jsonl").rename("moved.jsonl")
    assert "give its path with --dialogues" in shell("train --resume --out tuned", status=2)
    shell("train --resume --out tuned --dialogues moved.jsonl")
    found = open_model("tuned").model.state_dict()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    shutil.rmtree("tuned/step_000004")
    Path("moved.jsonl").write_text(Path("moved.jsonl").read_text().replace("mat", "hat"))
    assert "has changed since this run began" in shell("train --resume --out tuned --dialogues moved.jsonl", status=2)


def test_a_model_learns_to_answer_and_to_stop(shell: Shell) -> None:
    answer = "on the mat"
    Path("d.jsonl").write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]}) + "\n"
        for said in ("where ?", "where is it ?", "tell me")
    ))  # fmt: skip
    rates = "--matrix-lr 0.02 --embedding-lr 0.02"
    shown = shell(
        "train --from source --dialogues d.jsonl --validation-share 0 --batch-size 3 --total-steps 200 "
        f"--eval-every 200 {rates} --out tuned --prompt where"
    )
    sample = shown.partition("training loss")[2].partition("Saved in")[0]
    assert "    <|im_start|>user\n    where<|im_end|>\n    <|im_start|>assistant\n    " in sample
    assert sample.count("<|im_end|>") == 1  # the answer is shown up to its end
    assert "sample --from=tuned --chat --prompt=where" in shown
    said = shell("sample --from tuned --chat --prompt 'where is it ?' --temperature 0")
    assert said == f"{answer}\n"


def test_a_sample_begins_with_a_held_out_dialogue(shell: Shell) -> None:
    shown = shell(f"train --from source --dialogues d.jsonl {FEW}")
    assert "<|im_start|>user\n    where is the cat 23 ?<|im_end|>" in shown and "sample --from=tuned --chat\n" in shown


def test_dialogues_may_be_all_of_the_text(shell: Shell) -> None:
    shown = shell(f"train --from source --dialogues d.jsonl --validation-share 0 {FEW}")
    assert "no text held out" in shown and "24 dialogues" in shown
    assert "keeps no text to measure it on" in shell("eval tuned", status=2)


@pytest.mark.parametrize("n", [2, 3, 7, 9, 19])
def test_the_advised_share_leaves_a_dialogue_for_validation(n: int, shell: Shell) -> None:
    write(n)
    said = shell(f"train --from source --dialogues d.jsonl {FEW}", status=2)
    data = cut_dialogues("d.jsonl", load_model("source")[1], float(re.search(r"share of (0\.\d+)", said)[1]), 99)
    assert len(data.dialogues.validation.starts) == 1


MISTAKES = {
    "train --dialogues d.jsonl": "dialogues need a chat model, whose template writes them; give it with --from",
    "train --from source --dialogues d.jsonl --corpus d.jsonl": "leave out --corpus, --tokens and --lines, or",
    "train --from source --dialogues d.jsonl --lines": "leave out --corpus, --tokens and --lines, or",
    "train --from source": "--from needs the text to learn from; give --corpus FILE, --tokens FILE or --dialogues FILE",
    "train --from source --dialogues none.jsonl": "none.jsonl is not a file; give one whose lines are such as",
    "train --from source --dialogues bad.jsonl": "bad.jsonl, line 2: it is not JSON",
    "train --from source --dialogues few.jsonl": "0.05 of 3 dialogues is none for validation; give more, a --val",
    "train --from source --dialogues one.jsonl": "0.05 of 1 dialogues is none for validation; give more, or 0",
    "train --from bytes --dialogues d.jsonl": "a dialogue cannot be written: it has no chat template",
    "train --from source --dialogues d.jsonl --seq-len 30": "d.jsonl, line 1: the dialogue has",
    "train --from source --dialogues d.jsonl --d-model 99": "keeps its sizes and choices; leave out --d-model",
    "train --from short --dialogues d.jsonl": "tokens, and the windows 30; shorten it, delete the line, or raise",
    "eval source --dialogues d.jsonl --stride 3": "whole dialogues are scored here; leave out --seq-len, --stride",
    "eval short --dialogues d.jsonl": "d.jsonl, line 1: the dialogue has",
    "eval bytes --dialogues d.jsonl": "a dialogue cannot be written: it has no chat template",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_written(
    shell: Shell, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_chat_model("short", "chatml", monkeypatch, max_seq_len=30)
    checkpoint.save("bytes", TransformerLM(ModelConfig(d_model=16, n_layers=1, n_heads=2)), tokenizer=ByteTokenizer())
    good = Path("d.jsonl").read_text().splitlines()
    Path("bad.jsonl").write_text(f"{good[0]}\n{good[1][:-1]}\n")
    Path("few.jsonl").write_text("\n".join(good[:3]))
    Path("one.jsonl").write_text(good[0])
    assert_refused(shell, f"{command} {FEW if command.startswith('train') else ''}", MISTAKES[command])
