"""The command eval: runs, shipped models and models of Hugging Face, on texts, lines, token files and windows."""

import math
import os
import re
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
import transformers
from support.hub import trained
from support.models import scramble
from support.shell import Shell, assert_refused, save_refused_sources
from torch import nn

from tinylm_lib import ModelConfig, TransformerLM, evaluate, storyworld, token_log_probs
from tinylm_lib.data.token_file import write_tokens
from tinylm_lib.data.windows import every_document, every_window
from tinylm_lib.pretrained import load_model
from tinylm_lib.text.tokenizers import ByteTokenizer, WordTokenizer
from tinylm_lib.training import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
SHAPE = "--d-model 16 --n-layers 1 --n-heads 2 --batch-size 4 --sample-tokens 0"
ENGLISH = "One day, a fox — très rusé — met a crow. 🙂 The crow had cheese.\n" * 6


class Measure(Shell):
    def measured(self, command: str) -> tuple[float, float, int]:
        """Nats per token, bits per byte and the number of tokens."""
        said = self(command)
        numbers = [float(re.search(rf"(\d+\.\d+) {what}", said)[1]) for what in ("nats per token", "bits per byte")]
        return (*numbers, int(re.search(r"([\d,]+) tokens in ", said)[1].replace(",", "")))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Measure:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(ENGLISH, encoding="utf-8")
    return Measure(capsys)


def hugging(kind: str = "gpt2", dtype: torch.dtype = torch.float32, begins: bool = False) -> nn.Module:
    """A model of `transformers` with random weights in the folder "hub", with its tokenizer."""
    sizes = {
        "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64},
        "llama": {
            "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
            "intermediate_size": 40, "max_position_embeddings": 64,
        },
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, vocab_size=300, **sizes[kind])
    model = scramble(transformers.AutoModelForCausalLM.from_config(config).eval(), 0.2, seed=5).to(dtype)
    model.save_pretrained("hub")
    trained(begins).save("hub/tokenizer.json")
    return model


def perplexity_recipe(model: nn.Module, ids: list[int], max_length: int, stride: int) -> float:
    """Nats per token. Source: the guide of transformers, "Perplexity of fixed-length models", with targets counted."""
    nats, n, previous_end = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + max_length, len(ids))
        x = torch.tensor([ids[begin:end]])
        y = x.clone()
        y[:, : -(end - previous_end)] = -100
        if counted := int((y[:, 1:] != -100).sum()):
            with torch.no_grad():
                nats += model(x, labels=y).loss.item() * counted
            n += counted
        previous_end = end
        if end == len(ids):
            break
    assert n == len(ids) - 1
    return nats / n


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize(("seq_len", "stride"), [(16, 5), (32, 32), (63, 1)])
def test_a_model_of_hugging_face_is_measured_as_their_recipe_does(
    shell: Measure, kind: str, seq_len: int, stride: int
) -> None:
    model, ids = hugging(kind), trained().encode(ENGLISH).ids
    nats, bits, n_tokens = shell.measured(f"eval hub --corpus text.txt --seq-len {seq_len} --stride {stride}")
    expected = perplexity_recipe(model, ids, seq_len + 1, stride)
    assert nats == pytest.approx(expected, abs=1e-4)
    assert n_tokens == len(ids) - 1
    n_bytes = len(ENGLISH.encode()) - len(trained().decode(ids[:1]).encode())
    assert bits == pytest.approx(expected * n_tokens / math.log(2) / n_bytes, abs=1e-4)


def test_a_file_in_bf16_is_measured_in_bf16_and_the_beginning_predicts_the_first_token(shell: Measure) -> None:
    hugging("llama", torch.bfloat16, begins=True)
    assert "hub (bfloat16) on all of text.txt, " in shell("eval hub --corpus text.txt")
    nats, _, n_tokens = shell.measured("eval hub --corpus text.txt --seq-len 64")
    model, tokenizer = load_model("hub")
    tokens = tokenizer.encode(ENGLISH)
    assert n_tokens == len(tokens), "all of them have something before them"
    ids = torch.tensor([*tokenizer.beginning, *tokens])
    assert nats == pytest.approx(evaluate(model, every_window(ids, 64, 64)).nats_per_token, abs=6e-5)


def test_it_says_which_part_of_a_text_was_read(shell: Measure) -> None:
    hugging()
    n = len(trained().encode(ENGLISH).ids)
    limits = {
        "": "all of",
        "--eval-tokens 5": "the first 5 tokens of",
        f"--eval-tokens {n - 1}": f"the first {n - 1} tokens of",
    }
    for flag, says in {**limits, f"--eval-tokens {n}": "all of", f"--eval-tokens {n + 1}": "all of"}.items():
        assert f"on {says} text.txt, " in shell(f"eval hub --corpus text.txt {flag}")
    tokenizer = load_model("hub")[1]
    write_tokens("tokens.bin", tokenizer.encode(ENGLISH), tokenizer)
    assert "on the first 7 tokens of tokens.bin, 6 tokens in" in shell("eval hub --tokens tokens.bin --eval-tokens 7")
    half = "--seq-len 16 --validation-share 0.5 --eval-tokens 20"
    shell(f"train --corpus text.txt --total-steps 1 --out run {SHAPE} {half}")
    assert re.search(r"on the first 20 tokens of the last 50% of \S*text.txt, 19 tokens", shell("eval run"))
    assert re.search(r"on the last 50% of \S*text.txt, ", shell("eval run --eval-tokens 100000"))


def test_lines_of_the_run_are_lines_of_another_text(shell: Measure) -> None:
    """Windows that begin inside a line have another loss than whole lines."""
    for name, seed in (("old", 1), ("fresh", 2)):
        Path(f"{name}.txt").write_text(storyworld.corpus(60, seed=seed), encoding="utf-8")
    words = WordTokenizer(storyworld.corpus(3000, seed=0))
    config = ModelConfig(vocab_size=words.vocab_size, max_seq_len=140, d_model=16, n_layers=1, n_heads=2)
    model = scramble(TransformerLM(config), 0.4, seed=1)
    run = {"corpus": "old.txt", "lines": True}
    checkpoint.save("run", model, tokenizer=words, extra={"run": run, "train": {"seq_len": 32}})
    fresh = torch.tensor(words.encode(Path("fresh.txt").read_text(encoding="utf-8")))
    whole = evaluate(model, every_document(fresh, words.encode("\n")[0], 8))
    cut = evaluate(model, every_window(fresh, 8, 32))
    assert abs(whole.nats_per_token - cut.nats_per_token) > 1e-3, "the test would see no difference"
    assert shell.measured("eval run --corpus fresh.txt")[0] == pytest.approx(whole.nats_per_token, abs=6e-5)
    assert shell.measured("eval run --corpus fresh.txt")[2] == len(fresh)
    assert shell.measured("eval run --corpus fresh.txt --no-lines")[0] == pytest.approx(cut.nats_per_token, abs=6e-5)
    write_tokens("fresh.tokens", fresh.tolist(), words)
    assert shell.measured("eval run --tokens fresh.tokens") == shell.measured("eval run --corpus fresh.txt")


def test_the_shipped_model_reads_lines_where_it_should(shell: Measure) -> None:
    Path("fresh.txt").write_text(storyworld.corpus(30, seed=2), encoding="utf-8")
    lines = shell.measured("eval storyworld --corpus fresh.txt --lines")[0]
    assert 0.6 < lines < 0.75
    assert shell.measured("eval storyworld --corpus fresh.txt")[0] > lines + 0.3
    assert "in windows of 128:" in shell("eval storyworld --corpus fresh.txt")
    assert "in whole lines:" in shell("eval storyworld --corpus fresh.txt --lines")


def bytes_run() -> tuple[TransformerLM, ByteTokenizer]:
    torch.manual_seed(1)
    model = TransformerLM(ModelConfig(max_seq_len=48, d_model=16, n_heads=2, init="normal"))
    checkpoint.save("bytes", model, tokenizer=ByteTokenizer())
    return model, ByteTokenizer()


def test_the_surprise_of_each_token_is_a_recipe_that_adds_up_to_the_loss(shell: Measure) -> None:
    model, tokenizer = bytes_run()
    tokens = tokenizer.encode(ENGLISH)[:40]
    Path("text.txt").write_bytes(bytes(tokens))
    nats = -token_log_probs(model, torch.tensor([tokens]))[0]
    assert shell.measured("eval bytes --corpus text.txt")[0] == pytest.approx(nats.mean().item(), abs=6e-5)


def test_a_limit_measures_the_first_tokens(shell: Measure) -> None:
    model, tokenizer = bytes_run()
    ids = torch.tensor(tokenizer.encode(ENGLISH)[:17])  # 17 bytes end inside —
    nats, bits, n_tokens = shell.measured("eval bytes --corpus text.txt --eval-tokens 17")
    assert n_tokens == 16
    assert nats == pytest.approx(evaluate(model, every_window(ids, 1, 16)).nats_per_token, abs=6e-5)
    assert bits == pytest.approx(nats / math.log(2), abs=1e-3)


def test_a_limit_of_the_command_replaces_that_of_the_run(shell: Measure) -> None:
    options = "--seq-len 16 --total-steps 2 --validation-share 0.2 --eval-tokens 10"
    shell(f"train --corpus text.txt --out run {SHAPE} {options}")
    assert [shell.measured(f"eval run {more}")[2] for more in ("", "--eval-tokens 30")] == [9, 29]


def test_a_run_is_measured_from_another_folder(shell: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell(f"train --corpus text.txt --out run {SHAPE} --seq-len 16 --total-steps 2 --validation-share 0.2")
    here = shell.measured("eval run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert shell.measured("eval ../run") == here


STRIDE = "stride must be from 1 to seq_len 48: a larger one would skip tokens"
MISTAKES = {
    "nowhere": "'nowhere' is not a model",
    "bytes": "bytes keeps no text to measure it on; give --corpus FILE, --tokens FILE or",
    "bytes --corpus nowhere.txt": "neither a file nor a corpus",
    "bytes --corpus text.txt --stride 49": f"{STRIDE}, got 49",
    "bytes --corpus text.txt --stride 0": f"{STRIDE}, got 0",
    "bytes --corpus text.txt --seq-len 49": "seq_len must be from 1 to the model's max_seq_len 48, got 49",
    "bytes --corpus text.txt --seq-len 0": "seq_len must be from 1 to the model's max_seq_len 48, got 0",
    "bytes --corpus text.txt --lines --stride 4": "whole lines are scored here; leave out --seq-len and --stride",
    "bytes --corpus text.txt --lines": "a line has 73 tokens, more than max_seq_len 48",
    "bytes --corpus text.txt --eval-tokens 1": "eval_tokens must be at least 2, got 1",
    "bytes --tokens words.tokens": "was made with another tokenizer",
    "words --corpus text.txt": "the tokenizer cannot encode text.txt: word 'One'",
    "untold --corpus text.txt": "the checkpoint in untold has no tokenizer",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line(shell: Measure, command: str) -> None:
    model, _ = bytes_run()
    save_refused_sources(model, WordTokenizer("the cat sat"))
    assert_refused(shell, f"eval {command}", MISTAKES[command])
