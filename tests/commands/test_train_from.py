"""train --from: a model of any source learns another text, and what it becomes needs nothing but its run folder."""

import json
import os
import re
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
import transformers
from support.hub import trained
from support.models import rounding, scramble
from support.shell import Shell, assert_refused, save_refused_sources

from tinylm_lib import ModelConfig, TrainConfig, TransformerLM, pretrained
from tinylm_lib.__main__ import main
from tinylm_lib.data.token_file import write_tokens
from tinylm_lib.pretrained import FINE_TUNING, load_hf, load_model, open_model, save_hf
from tinylm_lib.runs.job import fine_tune
from tinylm_lib.runs.settings import RunConfig
from tinylm_lib.text.tokenizers import ByteTokenizer, WordTokenizer
from tinylm_lib.training import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
FEW = "--batch-size 2 --total-steps 4 --sample-tokens 4 --out tuned"
CONFIG = ModelConfig(max_seq_len=200, d_model=16, n_layers=1, n_heads=2, init="normal")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A folder with a text, and a checkpoint of a model of bytes in "source"."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat and the dog sat on the log . " * 200, encoding="utf-8")
    torch.manual_seed(5)
    checkpoint.save("source", TransformerLM(CONFIG), step=7, tokenizer=ByteTokenizer())
    return Shell(capsys)


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_run_begins_with_the_weights_of_its_source(shell: Shell) -> None:
    shown = shell(f"train --from source --corpus text.txt {FEW} --matrix-lr 0 --embedding-lr 0")
    assert "Model of source, to fine-tune: " in shown
    assert_same(open_model("tuned").model.state_dict(), open_model("source").model.state_dict())
    shell(f"train --from source --corpus text.txt {FEW}")
    for name, weight in open_model("tuned").model.state_dict().items():
        assert not torch.equal(weight, open_model("source").model.state_dict()[name]), name


def test_what_was_tuned_needs_its_own_folder_alone(shell: Shell) -> None:
    shell(f"train --from source --corpus text.txt {FEW} --eval-every 2")
    losses = [float(x) for x in re.findall(r"validation_loss\": (\d+\.\d+)", Path("tuned/log.jsonl").read_text())]
    expected = open_model("tuned").model.state_dict()
    shutil.rmtree("source")
    shutil.rmtree("tuned/step_000004")
    shell("train --resume --out tuned")
    assert_same(open_model("tuned").model.state_dict(), expected)
    assert open_model("tuned").extra["run"]["source"] == "source"
    assert f"{losses[-1]:.4f} nats per token" in shell("eval tuned")
    assert shell("sample --checkpoint tuned --prompt 'the cat' --max-new-tokens 4").startswith("the cat")
    shell(f"train --from tuned --corpus text.txt {FEW.replace('tuned', 'again')}")


def test_a_fine_tuned_run_says_how_good_the_model_was_before(shell: Shell) -> None:
    said = shell(f"train --from source --corpus text.txt {FEW} --matrix-lr 0 --embedding-lr 0")
    entries = [json.loads(line) for line in Path("tuned/log.jsonl").read_text().splitlines()]
    losses = {e["update"]: e["validation_loss"] for e in entries if "validation_loss" in e}
    assert losses[0] == losses[4] and f"Before the first update: validation {losses[0]:.3f} nats" in said
    assert "Before the first update" not in shell(f"train --corpus text.txt {FEW} --d-model 16 --n-heads 2 --out new")


def test_rates_and_lengths_have_their_own_defaults_and_flags_win(shell: Shell) -> None:
    for more, expected in {
        "": {**TrainConfig().to_dict(), **FINE_TUNING},
        "--matrix-lr 0.25 --seq-len 19": {**TrainConfig().to_dict(), **FINE_TUNING, "matrix_lr": 0.25, "seq_len": 19},
    }.items():
        shell(f"train --from source --corpus text.txt {FEW} {more}")
        stored = open_model("tuned").extra["train"]
        assert stored == {**expected, "batch_size": 2, "total_steps": 4}
    shell(f"train --corpus text.txt {FEW} --d-model 16 --n-heads 2 --out new")
    assert open_model("new").extra["train"]["matrix_lr"] == TrainConfig.matrix_lr
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = " ".join(shell.capsys.readouterr().out.split())
    for name, value in FINE_TUNING.items():
        assert f"(default {getattr(TrainConfig, name)}; with --from {value}; with --from" in said
    assert "(default muon; with --from adamw above 10,000,000 parameters)" in said


def test_a_large_model_is_tuned_with_the_cheaper_optimizer_unless_a_flag_says_otherwise(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = sum(p.numel() for p in open_model("source").model.parameters())
    for limit, more, expected in (
        (n, "", ("adamw", 1e-4, 1e-4)),
        (n, "--optimizer muon --matrix-lr 0.5", ("muon", 0.5, 1e-4)),
        (n + 1, "", ("muon", 1e-3, 1e-3)),
    ):
        monkeypatch.setattr(pretrained, "LARGE", limit)
        shell(f"train --from source --corpus text.txt {FEW} {more}")
        stored = open_model("tuned").extra["train"]
        assert (stored["optimizer"], stored["matrix_lr"], stored["embedding_lr"]) == expected


def test_short_models_get_short_windows_and_long_ones_no_longer_validation_than_training(shell: Shell) -> None:
    short = TransformerLM(ModelConfig(max_seq_len=24, d_model=16, n_layers=1, n_heads=2))
    checkpoint.save("short", short, tokenizer=ByteTokenizer())
    shell(f"train --from short --corpus text.txt {FEW}")
    assert open_model("tuned").extra["train"]["seq_len"] == 24
    far = TransformerLM(ModelConfig(max_seq_len=131_072, d_model=16, n_layers=1, n_heads=2))
    found = checkpoint.Checkpoint(far, 0, ByteTokenizer(), None, None, {}, {})
    job = fine_tune(RunConfig(corpus="text.txt", source="far"), TrainConfig(seq_len=32), found, {})
    assert next(job.windows())[0].shape[1] == 32


def test_dropout_may_change(shell: Shell) -> None:
    shell(f"train --from source --corpus text.txt {FEW} --residual-dropout 0.25")
    config = open_model("tuned").model.config
    assert config == ModelConfig.from_dict({**CONFIG.to_dict(), "residual_dropout": 0.25})


def test_a_token_file_of_the_same_tokenizer_is_a_text_too(shell: Shell) -> None:
    write_tokens("text.tokens", Path("text.txt").read_bytes(), ByteTokenizer())
    shell(f"train --from source --tokens text.tokens {FEW}")
    tuned = open_model("tuned").model.state_dict()
    shell(f"train --from source --corpus text.txt {FEW}")
    assert_same(open_model("tuned").model.state_dict(), tuned)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_model_of_hugging_face_goes_there_and_back(shell: Shell, kind: str) -> None:
    """Made by transformers in bf16, trained here in fp32, written for transformers: the same logits in both."""
    sizes = {
        "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64},
        "llama": {
            "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
            "intermediate_size": 40, "max_position_embeddings": 64,
        },
    }[kind]  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, vocab_size=300, **sizes)
    theirs = scramble(transformers.AutoModelForCausalLM.from_config(config), 0.2, seed=5)
    theirs.bfloat16().save_pretrained("hub")
    trained().save("hub/tokenizer.json")
    shell(f"train --from hub --corpus text.txt {FEW}")
    model, tokenizer = load_model("tuned")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config == load_hf("hub").config
    save_hf(model, "back", tokenizer=tokenizer)
    back = transformers.AutoModelForCausalLM.from_pretrained("back").eval()
    ids = torch.tensor([trained().encode("the cat sat on the mat").ids])
    with torch.no_grad():
        expected, found = back(ids).logits, model(ids)
    torch.testing.assert_close(found, expected, rtol=0, atol=rounding(expected, 13))
    assert transformers.AutoTokenizer.from_pretrained("back").encode("the cat") == tokenizer.encode("the cat")


MISTAKES = {
    "--from nowhere --corpus text.txt": "'nowhere' is not a model; train one, or give a folder",
    "--from owner/name --corpus text.txt": "there is no folder owner/name, and the hub did not give it",
    "--from untold --corpus text.txt": "the checkpoint in untold has no tokenizer",
    "--from words --corpus text.txt": "text.txt: word ' the' at position 14 is not one of the 4",
    "--from broken --corpus text.txt": "broken: embed.weight holds values that are not finite; take another checkpoint",
    "--from source": "--from needs the text to learn from; give --corpus FILE, --tokens FILE or",
    "--from source --tokens words.tokens": "was made with another tokenizer",
    "--from source --corpus text.txt --tokenizer words": "a fine-tuned model keeps its tokenizer; leave out",
    "--from source --corpus text.txt --preset llama": "keeps its sizes and choices; leave out --preset",
    "--from source --corpus text.txt --d-model 32": "keeps its sizes and choices; leave out --d-model",
    "--from source --corpus text.txt --vocab-size 256": "keeps its sizes and choices; leave out --vocab-size",
    "--from source --corpus text.txt --max-seq-len 99": "keeps its sizes and choices; leave out --max-seq-len",
    "--from source --corpus text.txt --seq-len 201": "seq_len 201 exceeds the model's max_seq_len 200; lower it",
    "--from source --corpus text.txt --seq-len 0": "seq_len must be at least 1, got 0",
    "--from source --corpus text.txt --prompt ''": "prompt is empty",
    "--from source --resume": "a resumed run keeps its settings; leave out --from",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_written(shell: Shell, command: str) -> None:
    model = TransformerLM(CONFIG)
    save_refused_sources(model, WordTokenizer("the cat sat on"))
    with torch.no_grad():
        model.embed.weight[65] = torch.nan
    checkpoint.save("broken", model, tokenizer=ByteTokenizer())
    assert_refused(shell, f"train {command} {FEW}", MISTAKES[command])
