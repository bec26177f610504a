"""Train the small models of lesson 11 with several seeds, and write what they reach into
tinylm_classroom/experiments/training.toml.

    python tools/training.py     three minutes on one core
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from entries import entry

from tinylm_classroom.experiments import training
from tinylm_lib import storyworld
from tinylm_lib.data import every_document, split
from tinylm_lib.pretrained import load_pretrained

SEEDS = (1, 2, 3)
N_STORIES = 4000
N_TEST = 40
TEST_SEED = 6
DATA = Path(training.__file__).with_suffix(".toml")


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=DATA)
    options = parser.parse_args()
    tokenizer = load_pretrained("storyworld").tokenizer
    stories = storyworld.corpus(N_STORIES, seed=0).splitlines(keepends=True)
    old, new = split(stories, validation_share=0.1)
    ids = torch.tensor(tokenizer.encode("\n" + "".join(old)))
    new_ids = torch.tensor(tokenizer.encode("".join(new)))
    text = "# Made by tools/training.py: losses in nats per token, fractions of words.\n"
    for seed in SEEDS:
        for rate in training.RATES:
            text += _entry("rates", rate_run(tokenizer, ids, rate, seed))
        text += _entry("skills", skill_run(tokenizer, ids, seed))
        for how in training.MISTAKES:
            run = training.broken_run(how, tokenizer, ids, new_ids, seed)
            text += _entry("mistakes", {"how": how, "seed": seed} | run)
        print(text, flush=True)
    options.to.write_text(text, encoding="utf-8")


def rate_run(tokenizer: Any, ids: torch.Tensor, rate: float, seed: int) -> dict[str, Any]:
    """The mean of the last ten losses up to update 60 and up to update 300."""
    model = training.new_model(tokenizer, seed)
    batches = training.windows(ids, 16, seed)
    steps = training.constant_rate(model, batches, 300, rate)
    losses = [step.loss.item() for step in steps]
    ends = {f"after_{n}": sum(losses[n - 10 : n]) / 10 for n in (60, 300)}
    return {"rate": rate, "seed": seed} | ends


def skill_run(tokenizer: Any, ids: torch.Tensor, seed: int) -> dict[str, Any]:
    """The fraction of words of each kind that are right, on the way to update 400."""
    source = torch.Generator().manual_seed(TEST_SEED)
    stories = [storyworld.story(source) for _ in range(N_TEST)]
    model = training.new_model(tokenizer, seed, d_model=128)
    batches = every_document(ids, tokenizer.ids["\n"], batch_size=8)
    steps = training.constant_rate(model, batches, 400, 0.002)
    right: dict[int, dict[str, float]] = {}
    _ = list(training.skills_on_the_way(steps, model, tokenizer, stories, right))
    columns = {kind: [row[kind] for row in right.values()] for kind in training.SKILLS}
    return {"seed": seed} | columns


def _entry(name: str, facts: dict[str, Any]) -> str:
    return entry(name, facts, "{:.4f}".format)


if __name__ == "__main__":
    main()
