"""Let the shipped model learn from verdicts, pairs and examples, and write what it learned into
tinylm_classroom/experiments/judging.toml: lesson 17.

    python tools/rewards.py                      all of it, half an hour on one core
    python tools/rewards.py --only pairs         one part; the others stay as they are
"""

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from entries import entry

from tinylm_classroom.experiments import instructions, judging
from tinylm_lib import TransformerLM
from tinylm_lib.pretrained import load_pretrained

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = Path(judging.__file__).with_suffix(".toml")
HEAD = """# Made by tools/rewards.py.
# kinds: stories, and possible ones, without gift and owner sentence, with the owner sentence, with
# a gift, with both. numbers: nats per story from the start, per token from the language, owners
# right, nats of owners, owners. looks: step, new pairs ranked right, pairs, change of the chosen
# and the rejected in nats, kinds. found: as asked, possible, begins with a name. coin: the judge is
# a coin.
"""
# what is added to the rewards, whether there is a baseline, beta, updates, seeds
SETTINGS = (
    (0.0, True, 0.0, 16, range(5)),
    (0.0, False, 0.0, 16, range(5)),
    (1.0, False, 0.0, 16, range(5)),
    (10.0, False, 0.0, 16, range(5)),
    (0.0, True, 0.0, 40, range(3)),
    (0.0, True, 0.03, 40, range(3)),
    (0.0, True, 0.1, 40, range(3)),
    (0.0, True, 0.3, 40, range(3)),
)
COIN = 0.35  # chance of a 1
PAIR_SEEDS = range(3)
ANCHORS = (0.0, 1.0)
N_TRAINED = 176  # beginnings with 16 stories each
N_NEW = 60
LOSS_ON = {"story": True, "everything": False}

Made = Iterator[dict[str, Any]]


def start_of_all() -> Made:
    """The model before."""
    start, tokenizer = shipped()
    yield seen(judging.portrait(start, start, tokenizer, judging.held_out()))


def runs() -> Made:
    """Every setting, with each of its seeds."""
    start, tokenizer = shipped()
    for added, baseline, beta, n_updates, seeds in SETTINGS:
        for seed in seeds:
            model = copy.deepcopy(start)
            options: dict[str, Any] = {"added": added, "baseline": baseline, "beta": beta}
            learning = judging.learning(model, start, tokenizer, seed, n_updates, **options)
            verdicts = list(learning)
            found = judging.portrait(model.eval(), start, tokenizer, judging.held_out())
            yield options | {"seed": seed, "verdicts": verdicts} | seen(found)


def coin() -> Made:
    """A coin as judge, sixteen updates."""
    start, tokenizer = shipped()
    for seed in range(3):
        model = copy.deepcopy(start)
        _ = list(judging.learning(model, start, tokenizer, seed, 16, chance=COIN))
        found = judging.portrait(model.eval(), start, tokenizer, judging.held_out())
        yield {"chance": COIN, "seed": seed} | seen(found)


def pairs() -> Made:
    """DPO on pairs of the start's own stories, alone and with an anchor."""
    start, tokenizer = shipped()
    for seed in PAIR_SEEDS:
        old, new = (
            judging.in_pairs(tokenizer, judging.written(start, tokenizer, at, n, 16))
            for at, n in ((1000 + seed, N_TRAINED), (2000 + seed, N_NEW))
        )
        for anchor in ANCHORS:
            model = copy.deepcopy(start)
            options: dict[str, Any] = {"anchor": anchor}
            n_steps = max(judging.PAIR_LOOKS)
            looks = []
            for step in judging.preferring(model, start, tokenizer, old, seed, n_steps, **options):
                if step in judging.PAIR_LOOKS:
                    look = judging.compared(model, start, tokenizer, new, step)
                    looks.append([*look[:5], counts(look.kinds)])
            yield {"seed": seed, "n_pairs": len(old)} | options | {"looks": looks}


def examples() -> Made:
    """Fine-tuning on instructions and their stories."""
    start, tokenizer = shipped()
    yield {"loss_on": "before", "seed": 0, "found": [*instructions.followed(start, tokenizer)]}
    for name, answer_only in LOSS_ON.items():
        for seed in range(3):
            model = instructions.fine_tuned(start, tokenizer, seed, answer_only=answer_only)
            found = instructions.followed(model, tokenizer, seed=seed)
            yield {"loss_on": name, "seed": seed, "found": [*found]}


def gamed() -> Made:
    """The reward that somebody chose."""
    start, tokenizer = shipped()
    for seed in range(3):
        updates = judging.mystery(start, tokenizer, seed)
        yield {"seed": seed} | judging.gamed(tokenizer, updates)._asdict()


PARTS: dict[str, Callable[[], Made]] = {
    "start": start_of_all,
    "runs": runs,
    "coin": coin,
    "pairs": pairs,
    "examples": examples,
    "gamed": gamed,
}


def shipped() -> tuple[TransformerLM, Any]:
    """The model that all begin with, and its tokenizer."""
    found = load_pretrained("storyworld")
    return found.model.eval(), found.tokenizer


def seen(found: judging.Portrait) -> dict[str, Any]:
    """A portrait as the file has it."""
    return {"kinds": counts(found.kinds), "numbers": [*found[1:]]}


def counts(kinds: judging.Kinds) -> list[list[int]]:
    """The numbers of all kinds."""
    return [[*each] for each in kinds.values()]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--to", type=Path, default=DATA)
    flags = parser.parse_args()
    found = tomllib.loads(flags.to.read_text("utf-8")) if flags.to.exists() else {}
    for name in flags.only:
        found[name] = []
        for facts in PARTS[name]():
            found[name].append(facts)
            print(name, facts, flush=True)
    text = HEAD
    for name in PARTS:
        for facts in found.get(name, ()):
            text += entry(name, facts, _number)
    flags.to.write_text(text, encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:.5g}" if value % 1 else json.dumps(value)


if __name__ == "__main__":
    main()
