"""Train stacks of blocks with and without plus signs, for long and at many learning rates, and
write their losses into tinylm_classroom/experiments/stacks.toml: lesson 09.

    python tools/stacks.py     fifteen minutes on one core
"""

import argparse
from pathlib import Path

import torch

from tinylm_classroom.experiments import stacks
from tinylm_lib.pretrained import load_pretrained

SEEDS = range(3)
MANY_SEEDS = range(5)
RUNS = [("replace", 2), ("replace", 4), ("replace", 8), ("add", 8), ("add", 24)]
UPDATES = 1000
MEAN_OF = 20
RATES = [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1]
JOINS = {"replace": stacks.replace, "add": stacks.add}
DATA = Path(stacks.__file__).with_suffix(".toml")


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=DATA)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = load_pretrained("storyworld").tokenizer
    tokens = stacks.stories(tokenizer)
    text = f"# Made by tools/stacks.py; nats per token, means of {MEAN_OF} updates.\n"
    for join, n_blocks in RUNS:
        for seed in SEEDS:
            losses = run(tokens, tokenizer.vocab_size, join, n_blocks, seed)
            head = f"join = {join!r}\nblocks = {n_blocks}\nrate = 0.001\nseed = {seed}\n"
            text += _entry("runs", head, losses)
    for join in JOINS:
        for rate in RATES:
            losses = [rated(tokens, tokenizer.vocab_size, join, rate, seed) for seed in MANY_SEEDS]
            text += _entry("rates", f"join = {join!r}\nrate = {rate}\n", losses)
    options.to.write_text(text.replace("'", '"'), encoding="utf-8")


def run(
    tokens: torch.Tensor,
    vocab_size: int,
    join: str,
    n_blocks: int,
    seed: int,
    updates: int = UPDATES,
) -> list[float]:
    """A long run on whole texts at the rate 0.001: the means of each 20 updates."""
    lm = stacks.untrained(vocab_size, n_blocks, seed)
    losses = stacks.train(lm, stacks.reading(lm, JOINS[join]), tokens, 0.001, updates)
    return torch.tensor(losses).view(-1, MEAN_OF).mean(1).tolist()


def rated(tokens: torch.Tensor, vocab_size: int, join: str, rate: float, seed: int) -> float:
    """The loss of 8 blocks that read each word alone, after 60 updates at this rate."""
    lm = stacks.untrained(vocab_size, 8, seed)
    read = stacks.reading(lm, JOINS[join], alone=True)
    return stacks.last_ten(stacks.train(lm, read, tokens, rate, 60))


def _entry(table: str, head: str, losses: list[float]) -> str:
    numbers = ", ".join(f"{loss:.3f}" for loss in losses)
    entry = f"\n[[{table}]]\n{head}losses = [{numbers}]\n"
    print(entry, flush=True)
    return entry


if __name__ == "__main__":
    main()
