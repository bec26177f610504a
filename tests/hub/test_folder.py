"""Models by their id of the hub, played here by a server on this machine, and the command that samples from them."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing in this process may need a network

import pytest
import torch
from support.hub import BEGIN, served, trained

from tinylm_lib import ModelConfig, TransformerLM, generate
from tinylm_lib.__main__ import main
from tinylm_lib.hub.folder import find_folder
from tinylm_lib.pretrained import load_hf, save_hf
from tinylm_lib.text.hugging_face import HubTokenizer
from tinylm_lib.text.tokenizers import ByteTokenizer
from tinylm_lib.training import checkpoint

OPTIONS = ["--prompt", "One day", "--temperature", "0", "--max-new-tokens", "12"]
CONFIG = ModelConfig(vocab_size=300, max_seq_len=64, d_model=24, n_layers=2, n_heads=3, d_ff=32, init="normal")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of Hugging Face's form whose tokenizer wants a token before every text."""
    torch.manual_seed(3)
    where = tmp_path_factory.mktemp("hub") / "model"
    tokenizer = HubTokenizer(trained(begins=True).to_str())
    return save_hf(TransformerLM(CONFIG), where, max_shard_bytes=20_000, tokenizer=tokenizer)


@pytest.fixture
def hub(folder: Path) -> Iterator[ThreadingHTTPServer]:
    with served(folder) as server:
        yield server


def sample(home: Path, port: int, name: str, **more: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(home), **more}
    if "HF_HUB_OFFLINE" not in more:
        del environment["HF_HUB_OFFLINE"]
    command = [sys.executable, "-W", "error::UserWarning", "-m", "tinylm_lib", "sample", "--from", name, *OPTIONS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, encoding="utf-8")


def expected_text(folder: Path) -> str:
    tokens = trained(begins=True).encode("One day").ids
    written = generate(load_hf(folder), torch.tensor([tokens]), 12, temperature=0)[0].tolist()
    return trained().decode(written, skip_special_tokens=False).removeprefix(BEGIN)


@pytest.mark.slow
def test_a_model_comes_from_the_hub_once_and_then_from_the_cache(
    hub: ThreadingHTTPServer, folder: Path, tmp_path: Path
) -> None:
    port = hub.server_address[1]
    done = sample(tmp_path, port, "owner/name")
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected_text(folder) + "\n"
    brought = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert brought == {path.name for path in folder.iterdir()}, "no pickle, nothing else"
    offline = sample(tmp_path, port, "owner/name", HF_HUB_OFFLINE="1")
    assert offline.stdout == done.stdout, offline.stderr


@pytest.mark.slow
def test_an_unknown_id_and_a_hub_out_of_reach_are_one_line(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    port = hub.server_address[1]
    for done in (sample(tmp_path, port, "owner/nobody"), sample(tmp_path, 9, "owner/name"),
                 sample(tmp_path, port, "owner/name", HF_HUB_OFFLINE="1")):  # fmt: skip
        assert done.returncode == 2 and done.stdout == ""
        said = done.stderr.strip()
        assert len(said.splitlines()) == 1, said
        assert said.startswith("tinylm: there is no folder owner/n") and "--local-dir FOLDER" in said, said


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["sample", "--from", "owner/name"]) == 2
    said = "tinylm: the package huggingface_hub is not installed; pip install 'tinylm-lib[hf]'\n"
    assert capsys.readouterr().err == said


class Stripping(HubTokenizer):
    """A decoder that takes off spaces at the start of a text."""

    def decode(self, tokens: Iterable[int]) -> str:
        return super().decode(tokens).removeprefix(BEGIN).removeprefix(" ")


@pytest.mark.parametrize("kind", [HubTokenizer, Stripping])
def test_sample_writes_what_the_model_says(
    kind: type[HubTokenizer], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinylm_lib.hub.load.HubTokenizer", kind)
    assert main(["sample", "--from", str(folder), *OPTIONS]) == 0
    assert capsys.readouterr().out == expected_text(folder) + "\n"
    assert main(["sample", "--from", str(folder), "--prompt", "", *OPTIONS[2:]]) == 0, "the beginning alone is a prompt"


def test_each_kind_of_folder_is_sampled_from_and_a_wrong_function_names_the_right_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    checkpoint.save(run / "step_000001", TransformerLM(CONFIG), tokenizer=ByteTokenizer())
    for place in (run / "step_000001", run, folder):
        texts = set()
        for flag in ("--from", "--checkpoint"):
            assert main(["sample", flag, str(place), *OPTIONS]) == 0
            texts.add(capsys.readouterr().out)
        assert len(texts) == 1 and texts.pop().startswith("One day")
    for place in (run / "step_000001", run):
        with pytest.raises(FileNotFoundError, match="holds a checkpoint of this library; open it with load_model"):
            load_hf(place)
    with pytest.raises(FileNotFoundError, match="holds a Hugging Face model; open it with load_model"):
        checkpoint.latest(folder)


@pytest.mark.parametrize("name", ["", " ", "gpt2", "a/b/c", "../nowhere/at/all", "a b/c", "https://x.org/a", "a/\0"])
def test_what_is_neither_a_folder_nor_an_id_never_reaches_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises((FileNotFoundError, ValueError), match="is neither a folder nor a hub id"):
        find_folder(name or "nothing")
