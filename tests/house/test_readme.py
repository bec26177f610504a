"""The commands and Python of README and ENGINEERS.md, run as they are printed where they need no network."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.hub import trained

from tinylm_classroom.folders import lessons
from tinylm_classroom.page.command import main as write_page
from tinylm_lib import ModelConfig, TransformerLM, load_model, save_hf, storyworld
from tinylm_lib.__main__ import parser
from tinylm_lib.cost import count_parameters
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.text.hugging_face import HubTokenizer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
HUB_ID = "Qwen/Qwen3-0.6B"
ENGINEERS = (ROOT / "ENGINEERS.md").read_text("utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```\n", README + ENGINEERS, re.M | re.S)
BLOCKS = [text for kind, text in FENCED if kind == "python"]
RUNNING = [block for block in BLOCKS if "load_dataset" not in block]
SHELL = "".join(text for kind, text in FENCED if not kind).replace("\\\n", " ")
COMMANDS = re.findall(r"^(?:.*-m tinylm_lib|tinylm) (\w.*?)(?: {2,}#.*)?$", SHELL, re.M)


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert README.count("\n") <= 200
    for name, page in (("README.md", README), ("ENGINEERS.md", ENGINEERS)):
        for link in re.findall(r"\]\(([^)#:\s]+)\)", page):
            assert (ROOT / link).exists(), f"{name} links to {link}"
        headings = [
            re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", page, re.M)
        ]
        assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= {*headings}


def test_the_patterns_find_what_they_are_for() -> None:
    assert len(RUNNING) >= 6 and len(BLOCKS) - len(RUNNING) == 1
    assert len(COMMANDS) >= 25
    assert {c.split()[0] for c in COMMANDS} >= {"train", "tokens", "sample", "eval", "lab", "page"}


OTHERS = ("lab", "grade", "page", "site", "slides")  # which read their flags themselves


@pytest.mark.parametrize("command", [c for c in COMMANDS if not c.startswith(OTHERS) and "--help" not in c])
def test_every_flag_of_a_command_exists(command: str) -> None:
    arguments, others = parser().parse_known_args(shlex.split(command))
    assert not others and callable(arguments.do)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with what the blocks open: a text, a run's log, a model of Hugging Face."""
    folder = tmp_path_factory.mktemp("readme")
    (code,) = re.findall(r'^python -c "(.*)"$', SHELL, re.M)
    subprocess.run([sys.executable, "-c", code], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    named = set(re.findall(r"\b(\w+\.txt)\b", SHELL + "".join(BLOCKS))) - {"fineweb.txt", "constraints.txt"}
    assert named <= {path.name for path in folder.iterdir()}
    log = folder / "work/runs/last/log.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text('{"update": 1, "loss": 3.5}\n{"update": 2, "loss": 3.0}\n{"update": 2, "validation_loss": 3.1}\n')
    torch.manual_seed(3)
    model = TransformerLM(ModelConfig(vocab_size=300, d_model=32, n_heads=2, n_layers=1, max_seq_len=64))
    save_hf(model, folder / "hub", tokenizer=HubTokenizer(trained().to_str()))
    return folder


@pytest.mark.parametrize("block", RUNNING, ids=[block.split("\n", 1)[0][:30] for block in RUNNING])
def test_a_block_of_python_runs(block: str, folder: Path) -> None:
    code = block.replace(HUB_ID, "hub")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if losses := re.findall(r": (\d\.\d+) nats", done.stdout):  # the fine-tuning
        assert len(losses) == 3 and min(map(float, losses)) > 0.3
        (command,) = [c for c in COMMANDS if c.startswith("train --from storyworld")]
        line = [sys.executable, "-m", "tinylm_lib", *shlex.split(command)]
        subprocess.run(line, cwd=folder, env=environment, capture_output=True, check=True)
        in_python, by_command = (load_model(folder / name)[0] for name in ("work/tuned", "work/runs/tuned"))
        for weights, others in zip(in_python.parameters(), by_command.parameters(), strict=True):
            torch.testing.assert_close(weights, others)
    if "save_hf" in block:
        assert (folder / "work/my_model/config.json").is_file()


def test_fine_tuning_takes_25_lines() -> None:
    (block,) = [block for block in RUNNING if "FINE_TUNING" in block]
    assert len([line for line in block.splitlines() if line.strip()]) <= 25


def test_the_core_is_as_long_as_it_says() -> None:
    (text,) = re.findall(r"^## How to read it\n(.*?)^## ", ENGINEERS, re.M | re.S)
    files = list(dict.fromkeys(re.findall(r"`([\w/]+\.py)`", text)))
    lines = sum(len((ROOT / "tinylm_lib" / file).read_text("utf-8").splitlines()) for file in files)
    assert len(files) == 11 and "These eleven files are the core, about 2,000 lines" in text
    assert 1_900 <= lines <= 2_100, lines


def test_the_first_numbers_are_those_of_the_model_and_the_course() -> None:
    shipped = load_pretrained("storyworld")
    parameters = count_parameters(shipped.model.config).total
    assert f"\n**{parameters:,} parameters · {len(lessons())} lessons · two CPU cores · offline**\n" in README
    stories = [storyworld.story(torch.Generator().manual_seed(n)) for n in range(60)]
    above = storyworld.gaps(shipped.model.eval(), shipped.tokenizer, stories)["all"].nats
    floor = storyworld.entropies(shipped.tokenizer, n_stories=2000).floor
    said = f"mean loss is {floor + above:.2f} nats per word; no model can have one below {floor:.2f}"
    assert said in " ".join(README.split())


def test_the_command_for_a_page_writes_one_of_the_size_that_is_said(tmp_path, monkeypatch, capsys) -> None:
    (command,) = [c for c in COMMANDS if c.startswith("page")]
    monkeypatch.chdir(tmp_path)
    assert write_page(shlex.split(command)[1:]) == 0
    (page,) = tmp_path.iterdir()
    size = f"{page.stat().st_size / 1e6:.1f} MB"
    assert f"{page.name} ({size})" in capsys.readouterr().out and f"{size} for the model that ships" in ENGINEERS
