"""train: a new model on a text, or the continuation of a run."""

import argparse
from typing import Any

from ..config import ModelConfig, TrainConfig
from ..presets import FAMILIES
from ..runs.job import RunConfig, begin, find_run, go_on
from ..runs.run import work
from ..training.distributed import join
from ..training.loop import choose_device
from .flags import add_flags, given

RECORDS = {RunConfig: "the run", TrainConfig: "the recipe", ModelConfig: "the model"}


def add_train(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("train", help="train a model on text")
    p.set_defaults(do=run_train)
    p.add_argument("--preset", choices=list(FAMILIES), help="architecture (default modern)")
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    for record, title in RECORDS.items():
        add_flags(p.add_argument_group(title), record)


def run_train(arguments: argparse.Namespace) -> None:
    """Train a new model, or go on with one."""
    flags = {record: given(arguments, record) for record in RECORDS}
    if arguments.resume:
        if arguments.preset:
            raise ValueError("a resumed run keeps its settings; leave out --preset")
        found, config = find_run({name: value for some in flags.values() for name, value in some.items()})
        with join(config.strategy, choose_device(config.device)) as team:
            work(go_on(found, config, team))
        return
    config, recipe = RunConfig.from_dict(flags[RunConfig]), TrainConfig.from_dict(flags[TrainConfig])
    with join(config.strategy, choose_device(config.device)) as team:
        work(begin(config, recipe, arguments.preset or "modern", flags[ModelConfig], team))
