"""Lesson 18 with `MODEL` set: its cells run on a model of each family, from a folder and by an id of the hub."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing in this process may need a network

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.hub import served, trained
from support.lessons import cells_up_to, run_lesson

from tinylm_lib import TransformerLM, preset, save_hf
from tinylm_lib.lora import lora_layers
from tinylm_lib.text.hugging_face import HubTokenizer

ROOT = Path(__file__).parents[2]
LAST = "6. A small update"  # the last section that reads the model
SIZES = {"vocab_size": 300, "max_seq_len": 96, "d_model": 24, "n_layers": 2, "n_heads": 3, "d_ff": 40}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"name": "gpt2"},
    "gpt2 as published": {"name": "gpt2"},
    "llama": {"name": "llama", "n_kv_heads": 1},
    "mistral": {"name": "llama", "n_kv_heads": 1, "d_head": 10},
    "qwen2": {"name": "llama", "qkv_bias": True, "tie_embeddings": True},
    "qwen3": {"name": "modern", "n_kv_heads": 1, "tie_embeddings": True},
}
# The tensors of a Mistral are those of a Llama, and `save_hf` writes the first family that has a model.
MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4096}


def as_published(path: Path) -> None:
    """The names of a GPT-2 without their prefix, and each layer's mask, as in the file on the hub."""
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    size = SIZES["max_seq_len"]
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, size, size).tril() for i in range(SIZES["n_layers"])}
    save_file(tensors | masks, path, {"format": "pt"})


def made(folder: Path, family: str) -> TransformerLM:
    """A model with random weights in a folder of Hugging Face; Llama's tokenizer wants a token before every text."""
    torch.manual_seed(3)
    choices = dict(FAMILIES[family])
    model = TransformerLM(preset(choices.pop("name"), **{**SIZES, **choices}))
    save_hf(model, folder, tokenizer=HubTokenizer(trained(begins=family == "llama").to_str()))
    config = folder / "config.json"
    if family == "mistral":
        config.write_text(json.dumps(json.loads(config.read_text()) | MISTRAL))
    if family == "gpt2 as published":
        as_published(folder / "model.safetensors")
    assert f'"model_type": "{family.partition(" ")[0]}"' in config.read_text()
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_cells_run_on_a_folder_of_each_family(family: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TINYLM_WORKSHOP", "off")
    model = made(tmp_path / "theirs", family)
    names = run_lesson("18", LAST, MODEL=str(tmp_path / "theirs"))
    assert torch.equal(names["real"].embed.weight, model.embed.weight) and names["real"] is not names["opened"]
    assert names["bpe"] is names["real_tokenizer"] and names["read"].shape[1] > 20
    assert (names["read"][0, 0] == 0) == (family == "llama"), "the beginning that the tokenizer wants"
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(model(names["read"])[0, :-1], names["read"][0, 1:])
    torch.testing.assert_close(names["surprise"].mean(), expected)
    assert len(lora_layers(names["adapted"])) == 2 * SIZES["n_layers"]
    said = capsys.readouterr().out
    n_parameters = sum(p.numel() for p in model.parameters())
    assert f"{n_parameters:,} parameters" in said and f"loss {expected:.2f}" in said


@pytest.mark.slow
def test_the_cells_run_on_an_id_of_the_hub(tmp_path: Path) -> None:
    made(tmp_path / "theirs", "gpt2 as published")
    code = f"from support.lessons import run_lesson\nrun_lesson('18', {LAST!r}, MODEL='owner/name')"
    with served(tmp_path / "theirs") as hub:
        environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}"}
        environment |= {"HF_HOME": str(tmp_path / "home"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        del environment["HF_HUB_OFFLINE"]
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        brought = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert done.returncode == 0, done.stderr
    assert brought == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert "positions learned" in done.stdout


def test_without_a_model_nothing_asks_the_hub() -> None:
    """The first cell says None, and the hub is reached only through what MODEL names."""
    cells = cells_up_to("18", LAST)
    assert cells[0].startswith("MODEL = None")
    assert [text.count("find_folder(") for text in cells if "find_folder(" in text] == [1]
    assert any("find_folder(MODEL) if MODEL else" in text for text in cells)
