"""Write stories at several temperatures, and with other rules, and write how many are impossible
and how much they vary into tinylm_classroom/experiments/decoding.toml: lesson 12.

    python tools/decoding.py     five minutes on one core
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from tinylm_classroom.experiments import decoding
from tinylm_lib.pretrained import load_pretrained

BATCH = 64
SEEDS = range(20, 26)
N_EVENTS = 768
EVENTS_SEED = 7
RULES = {
    "temperature": (0.1, 0.3, 0.5, 0.7, 1.0, 2.0),
    "top_p": (0.9,),
    "min_p": (0.1,),
}
DATA = Path(decoding.__file__).with_suffix(".toml")


def main() -> None:
    """Write, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=DATA)
    options = parser.parse_args()
    shipped = load_pretrained("storyworld")
    both = (shipped.model, shipped.tokenizer)
    text = (
        f"# Made by tools/decoding.py: batches of {BATCH} stories, seeds {SEEDS[0]} to {SEEDS[-1]}."
        "\n# error: the standard error of the variety, over groups of eight stories.\n"
    )
    for rule, values in RULES.items():
        for value in values:
            written = []
            for seed in SEEDS:
                written += decoding.finished(*both, [""] * BATCH, seed, **{rule: value})
            text += run("all", rule, value, written)
    for name, write in (("constrained", allowed), ("true", true)):
        text += run("all", name, 1.0, write(both))
    for what in ("a trade", "a gift"):
        beginnings = decoding.with_events(what, N_EVENTS, EVENTS_SEED)
        for value in RULES["temperature"][:-1]:
            written = decoding.in_batches(*both, beginnings, EVENTS_SEED, temperature=value)
            text += run(what, "temperature", value, written)
    options.to.write_text(text, encoding="utf-8")


def allowed(both: tuple) -> list[str]:
    """The constrained stories."""
    found = []
    for seed in SEEDS:
        found += decoding.allowed_stories(*both, BATCH, seed)
    return found


def true(both: tuple) -> list[str]:
    """As many stories of StoryWorld itself."""
    return decoding.true_stories(BATCH * len(SEEDS), SEEDS[0])


def run(what: str, rule: str, value: float, texts: Sequence[str]) -> str:
    """One run as an entry of the file."""
    groups = decoding.in_eights(texts)
    facts = {
        "what": f'"{what}"',
        "rule": f'"{rule}"',
        "value": value,
        "n": len(texts),
        "impossible": decoding.n_impossible(texts),
        "trades": sum(map(decoding.is_trade, texts)),
        "variety": f"{groups.mean():.4f}",
        "error": f"{groups.std() / len(groups) ** 0.5:.4f}",
    }
    print(*facts.values(), flush=True)
    return "\n[[runs]]\n" + "".join(f"{name} = {fact}\n" for name, fact in facts.items())


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
