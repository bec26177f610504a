"""Count which words follow which in StoryWorld's stories, and write how well that predicts new
stories into tinylm_classroom/experiments/counting.toml: lesson 00.

    python tools/counting.py     five minutes on one core
"""

import argparse
from pathlib import Path

import torch

from tinylm_classroom.experiments import counting
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained

N_NEW = 500
NEW_SEED = 7
RUNS = [(2000, 0), (2000, 1), (2000, 2), (20_000, 0), (20_000, 1), (20_000, 2), (100_000, 0)]
DATA = Path(counting.__file__).with_suffix(".toml")


def main() -> None:
    """Count, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=DATA)
    options = parser.parse_args()
    text = f"# Made by tools/counting.py; {N_NEW} new stories of seed {NEW_SEED}, nats per token.\n"
    for n_stories, seed in RUNS:
        found = run(n_stories, seed)
        print(found, flush=True)
        text += found
    options.to.write_text(text, encoding="utf-8")


def run(n_stories: int, seed: int) -> str:
    """One run as an entry of the file."""
    tokenizer = load_pretrained("storyworld").tokenizer
    read, new = (
        torch.tensor(tokenizer.encode(storyworld.corpus(n, of)))
        for n, of in ((n_stories, seed), (N_NEW, NEW_SEED))
    )
    line_end = tokenizer.ids["\n"]
    losses = counting.counting_losses(read, new, line_end)
    story = (new == line_end).cumsum(0) - (new == line_end).long()
    # of the mean of all tokens, from the sums of the stories
    off = losses - losses.mean(1, keepdim=True)
    sums = torch.stack([torch.bincount(story, row) for row in off])
    errors = sums.square().sum(1).sqrt() / len(new)
    numbers = [", ".join(f"{x:.4f}" for x in row.tolist()) for row in (losses.mean(1), errors)]
    return (
        f"\n[[runs]]\nstories = {n_stories}\nseed = {seed}\n"
        f"losses = [{numbers[0]}]\nerrors = [{numbers[1]}]\n"
    )


if __name__ == "__main__":
    main()
