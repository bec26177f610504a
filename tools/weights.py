"""Train the model that ships with the library, measure it and write it to tinylm_lib/weights: make
weights.

The same machine and the same versions give the same weights. The log next to them says how the
training went.
"""

import sys
import time
from pathlib import Path

import torch

from tinylm_classroom.experiments.heads import heads_that_find
from tinylm_lib import TrainConfig, TransformerLM, preset, storyworld, train
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.storyworld.gaps import gaps
from tinylm_lib.text import line_end
from tinylm_lib.text.tokenizers import WordTokenizer
from tinylm_lib.training import checkpoint
from tinylm_lib.training.optim import build_optimizer

FOLDER = Path(__file__).parents[1] / "tinylm_lib" / "weights" / "storyworld"
SIZES = {"d_model": 128, "n_layers": 3, "n_heads": 4, "max_seq_len": 128}
RECIPE = TrainConfig(total_steps=3400, batch_size=32, seq_len=128, matrix_lr=5e-3, precision="bf16")
N_STORIES = 100_000
N_HELD_OUT = 1000
STEPS_PER_LINE = 200


def main() -> None:
    """Train, measure and write what ships."""
    make(FOLDER, RECIPE, N_STORIES)


def make(folder: Path, recipe: TrainConfig, n_stories: int) -> None:
    """Train a model on so many stories, measure it and write it to a folder."""
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    tell(f"{n_stories:,} stories of seed 0; {recipe}")
    text = "\n" + storyworld.corpus(n_stories, seed=0)
    tokenizer = WordTokenizer(text)
    ids = torch.tensor(tokenizer.encode(text), dtype=torch.int32)
    starts = (ids == line_end(tokenizer)).nonzero()[:, 0]
    torch.manual_seed(recipe.seed)
    model = TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, **SIZES))
    tell(f"{model.config}")
    generator = torch.Generator().manual_seed(recipe.seed)
    held_out = [storyworld.story(generator) for _ in range(N_HELD_OUT)]
    batches = RandomWindows(ids, recipe.batch_size, recipe.seq_len, recipe.seed, starts=starts)
    started = time.perf_counter()
    for step in train(model, build_optimizer(model, recipe), batches, recipe):
        if step.step % STEPS_PER_LINE == 0 or step.step == recipe.total_steps:
            above = gaps(model, tokenizer, held_out[:100])["all"].nats
            tell(
                f"update {step.step:>6}  loss {step.loss:.4f}  {above:.4f} nats per token above "
                "the floor"
            )
    print(f"{time.perf_counter() - started:.0f} s")
    measure(model, tokenizer, held_out, tell)
    extra = {"train": recipe.to_dict(), "n_stories": n_stories}
    checkpoint.save(folder, model, step=recipe.total_steps, tokenizer=tokenizer, extra=extra)
    (folder / "log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(model: TransformerLM, tokenizer: WordTokenizer, stories: list, tell) -> None:
    """Say how far the floor is for each kind of look-back, and what its best head finds."""
    found = heads_that_find(model, tokenizer, stories[:200])
    tell(f"\non {len(stories)} stories that were not trained on:")
    tell(f"{'kind':<12}{'nats above':>12}{'right':>9}{'words':>8}   best head")
    for kind, gap in gaps(model, tokenizer, stories).items():
        head = ""
        if kind in found:
            best = int(found[kind].argmax())
            layer, number = divmod(best, model.config.n_heads)
            head = f"layer {layer}, head {number} looks there in {found[kind].max():.1%}"
        tell(f"{kind:<12}{gap.nats:>12.5f}{gap.right:>9.2%}{gap.n_words:>8}   {head}")


if __name__ == "__main__":
    sys.exit(main())
