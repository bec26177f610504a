"""Train small models on StoryWorld within budgets of compute, and write their losses and what they
know into tinylm_classroom/experiments/scale.toml: lesson 15.

    python tools/scaling.py                      all of it: 20 minutes on one core
    python tools/scaling.py --budgets 1e10 --widths 8 16 --seeds 0 --to here.toml

Each run has a schedule of its own length, and reads 4 texts for each update; the smaller budgets
are spent a second time, with 16. One size is trained with more seeds.
"""

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch

from tinylm_classroom.experiments import scale
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import gaps

N_STORIES = 20_000
N_COMPARED = 100
PLAN = {  # the widths that each budget in FLOPs is spent on
    1e10: (4, 8, 12, 16, 24, 32),
    4e10: (8, 12, 16, 24, 32, 48, 64),
    1.6e11: (12, 16, 24, 32, 48, 64, 96),
    6.4e11: (16, 24, 32, 48, 64, 96, 128),
}
OTHER = {1e10: PLAN[1e10], 4e10: PLAN[4e10]}  # again, with more texts for each update
OTHER_TEXTS = 16
MORE_SEEDS = {(1.6e11, 32): (2, 3, 4, 5, 6, 7, 8)}  # of one budget and width
DATA = Path(scale.__file__).with_suffix(".toml")


def main() -> None:
    """Train, print and record, each run as soon as it is through."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budgets", type=float, nargs="+", default=list(PLAN))
    parser.add_argument("--widths", type=int, nargs="+", help="instead of each budget's own")
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of those of the record")
    parser.add_argument("--texts", type=int, nargs="+", default=(scale.TEXTS, OTHER_TEXTS))
    parser.add_argument("--to", type=Path, default=DATA)
    options = parser.parse_args()
    tokenizer = load_pretrained("storyworld").tokenizer
    world = scale.stories(tokenizer, N_STORIES)
    with options.to.open("w", encoding="utf-8") as file:
        _ = file.write(
            f"# Made by tools/scaling.py, with {N_STORIES} stories; texts: of each update.\n"
            f"# nats: above the exact distribution; right: a fraction; {', '.join(scale.KINDS)},\n"
            f"# on {N_COMPARED} of the {len(world.held_out)} stories of the loss.\n"
        )
        for budget, width, seed, texts in jobs(options):
            text = run(tokenizer, world, budget, width, seed, texts)
            print(" ".join(text.split()), flush=True)
            _ = file.write(text)
            file.flush()


def jobs(options: argparse.Namespace) -> Iterator[tuple[float, int, int, int]]:
    """Budget, width, seed and texts of each run."""
    for texts, budget, seed in product(
        options.texts, options.budgets, options.seeds or scale.SEEDS
    ):
        plan = PLAN if texts == scale.TEXTS else OTHER
        for width in options.widths or plan.get(budget, ()):
            yield budget, width, seed, texts
    if not options.seeds and scale.TEXTS in options.texts:
        for (budget, width), seeds in MORE_SEEDS.items():
            if budget in options.budgets and width in (options.widths or [width]):
                for seed in seeds:
                    yield budget, width, seed, scale.TEXTS


def run(tokenizer, world: scale.Stories, budget: float, width: int, seed: int, texts: int) -> str:
    """One run as an entry of the file."""
    model = scale.small(tokenizer, width, seed)
    size = scale.size_of(tokenizer, width)
    _ = scale.trained(model, world, budget / (6 * size), seed, texts)
    found = gaps(model, tokenizer, world.held_out[:N_COMPARED])
    facts = {
        "budget": f"{budget:.1e}",
        "size": size,
        "seed": seed,
        "texts": texts,
        "loss": f"{scale.loss_of(model, tokenizer, world):.4f}",
        "nats": f"[{', '.join(f'{found[kind].nats:.3f}' for kind in scale.KINDS)}]",
        "right": f"[{', '.join(f'{found[kind].right:.3f}' for kind in scale.KINDS)}]",
    }
    return "\n[[runs]]\n" + "".join(f"{name} = {fact}\n" for name, fact in facts.items())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
