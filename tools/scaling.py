"""Train small models on StoryWorld at several sizes, lengths and seeds, and print their losses as a
table: lesson 15.

    python tools/scaling.py
        all of it: 90 trainings
    python tools/scaling.py --widths 8 16 32 64 --updates 50 100 200 400
    python tools/scaling.py --widths 8 16 32 64 --compute 1e10 4e10
        as many updates as each budget allows
    python tools/scaling.py --widths 32 --updates 400 --kinds
        which kinds of words the models know

Every run has a schedule of its own length, and every loss is one of the same held-out stories,
whose floor is printed.
"""

import argparse
import math
import sys
from pathlib import Path

import torch

from tinylm_lib import TrainConfig, TransformerLM, evaluate, preset, storyworld, train
from tinylm_lib.cost import count_parameters
from tinylm_lib.data.windows import RandomWindows, every_document
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import gaps
from tinylm_lib.text import line_end
from tinylm_lib.training.optim import build_optimizer

N_STORIES = 20_000
N_HELD_OUT = 300
HELD_OUT_SEED = 1_000_000
WIDTHS = (8, 16, 32, 64, 128)
UPDATES = (50, 100, 200, 400, 800, 1600)
SEEDS = (0, 1, 2)
BATCH_SIZE = 16
SEQ_LEN = 128
KINDS = ("pronoun", "name", "object", "place", "quotation", "trait")
N_COMPARED = 100


def config(width: int, vocab_size: int):
    """Two layers of this width, the feed-forward not rounded up to 64."""
    sizes = {
        "d_model": width,
        "n_layers": 2,
        "n_heads": max(2, width // 16),
        "max_seq_len": SEQ_LEN,
    }
    return preset("modern", vocab_size=vocab_size, d_ff_multiple_of=8, **sizes)


def main() -> None:
    """Train the grid, and print a line for each size and length once its seeds are through."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("widths", WIDTHS), ("updates", UPDATES), ("seeds", SEEDS)):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=default)
    parser.add_argument(
        "--compute", type=float, nargs="+", help="budgets 6 N D in FLOPs, instead of updates"
    )
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help="texts of an update")
    parser.add_argument(
        "--kinds", action="store_true", help="print a line for each kind of word, too"
    )
    flags = parser.parse_args()
    tokenizer = load_pretrained("storyworld").tokenizer
    ids = torch.tensor(
        tokenizer.encode("\n" + storyworld.corpus(N_STORIES, seed=0)), dtype=torch.int32
    )
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    held_out = [storyworld.story(generator) for _ in range(N_HELD_OUT)]
    told = torch.tensor(tokenizer.encode("\n" + "".join(story.text + "\n" for story in held_out)))
    floor = -math.fsum(story.log_prob for story in held_out) / (len(told) - 1)
    print(f"# python {Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}")
    print(f"# seeds {flags.seeds}; the held-out stories' floor is {floor:.4f} nats per token")
    print("# parameters  tokens  loss of each seed, nats per token")
    per_update = flags.batch_size * SEQ_LEN  # tokens
    for width in flags.widths:
        n = count_parameters(config(width, tokenizer.vocab_size)).total
        affordable = [max(1, round(flops / (6 * n * per_update))) for flops in flags.compute or ()]
        for updates in affordable or flags.updates:
            models = [
                trained(width, updates, seed, ids, tokenizer, flags.batch_size)
                for seed in flags.seeds
            ]
            losses = [
                evaluate(model, every_document(told, line_end(tokenizer), 50)).nats_per_token
                for model in models
            ]
            print(n, updates * per_update, *(f"{x:.4f}" for x in losses), flush=True)
            found = (
                [gaps(model, tokenizer, held_out[:N_COMPARED]) for model in models]
                if flags.kinds
                else []
            )
            for kind in KINDS if found else ():
                right, nats = (
                    sum(getattr(gap[kind], name) for gap in found) / len(found)
                    for name in ("right", "nats")
                )
                print(
                    f"#   {kind:<9} {right:4.0%} right, {nats:.2f} nats above the exact "
                    "distribution",
                    flush=True,
                )


def trained(width: int, updates: int, seed: int, ids, tokenizer, batch_size: int) -> TransformerLM:
    """A model after its training."""
    recipe = TrainConfig(
        total_steps=updates, batch_size=batch_size, seq_len=SEQ_LEN, seed=seed, precision="fp32"
    )
    torch.manual_seed(seed)
    model = TransformerLM(config(width, tokenizer.vocab_size))
    starts = (ids == line_end(tokenizer)).nonzero()[:, 0]
    batches = RandomWindows(ids, batch_size, SEQ_LEN, seed, starts=starts)
    for _ in train(model, build_optimizer(model, recipe), batches, recipe):
        pass
    return model


if __name__ == "__main__":
    main()
