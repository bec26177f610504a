"""Train lesson 20's model on texts of several sizes, three of each, and print what its training
reaches as a table.

    python tools/yours.py                                   all of it: 30 trainings
    python tools/yours.py --corpora pydoc --sizes 20000     one line

The three texts of a size are three pieces of the corpus, or other stories, each with other first
weights.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tinylm_classroom.workshop import own_text
from tinylm_lib import TransformerLM, load_corpus
from tinylm_lib.storyworld import corpus

SIZES = (20_000, 50_000, 100_000, 200_000, 400_000)
SEEDS = (0, 1, 2)
CORPORA = ("storyworld", "pydoc")
SPARE = 100  # bytes, since a piece begins and ends with whole characters


def main() -> None:
    """Print a line for each corpus and size as soon as its trainings are through."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=CORPORA)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    flags = parser.parse_args()
    print(f"# python tools/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".rstrip())
    print(
        f"# {own_text.OWN_RECIPE.total_steps} updates; means of {len(SEEDS)} texts, with the "
        "lowest and the highest"
    )
    print(
        "# lowest held-out loss, in bits per byte. Losses in nats per token, which only compare "
        "texts of one corpus."
    )
    print("# corpus bytes training held-out-end held-out-lowest at-update bits-per-byte from to")
    for name in flags.corpora:
        for n_bytes in flags.sizes:
            found = torch.tensor(
                [trained(name, n_bytes, seed) for seed in SEEDS], dtype=torch.float64
            )
            training, end, lowest, at, bits = found.mean(0).tolist()
            least, most = found[:, 4].aminmax()
            row = (
                f"{training:.2f} {end:.2f} {lowest:.2f} {at:.0f} {bits:.2f} {least:.2f} {most:.2f}"
            )
            print(name, n_bytes, row, flush=True)


def trained(name: str, n_bytes: int, seed: int) -> tuple[float, float, float, int, float]:
    """Training loss, held-out loss at the end, the lowest one, its update, its bits per byte."""
    with TemporaryDirectory() as folder:
        text = piece(name, n_bytes, seed, Path(folder))
    torch.manual_seed(seed)
    looks = [*own_text.learn(TransformerLM(own_text.own_config(text)), text)]
    best = min(looks, key=lambda look: look.held_out)
    end = looks[-1]
    return end.training, end.held_out, best.held_out, best.step, text.bits_per_byte(best.held_out)


def piece(name: str, n_bytes: int, seed: int, folder: Path) -> own_text.OwnText:
    """So many bytes of a corpus: for each seed others, where the corpus is long enough for three
    pieces.
    """
    if name == own_text.STORIES:
        stories = corpus(n_bytes // 300, seed=seed)[:n_bytes]  # ASCII
        return own_text.read_stories(stories[: stories.rindex("\n") + 1])
    whole = load_corpus(name).encode()
    room = n_bytes + SPARE
    start = (len(whole) - room) * seed // (len(SEEDS) - 1)
    path = folder / "piece.txt"
    path.write_bytes(whole[start : start + room].decode(errors="ignore").encode())
    return own_text.own_text(path, n_bytes)


if __name__ == "__main__":
    main()
