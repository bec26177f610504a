"""train: a new model on a text, or the continuation of a run."""

import argparse
from typing import Any

from ..config import ModelConfig, Record, TrainConfig
from ..presets import FAMILIES
from ..pretrained import FINE_TUNING, open_model
from ..runs.job import RunConfig, begin, find_run, fine_tune, go_on
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
        add_flags(p.add_argument_group(title), record, FINE_TUNING)


def run_train(arguments: argparse.Namespace) -> None:
    """Train a new model, fine-tune one, or go on with a run."""
    flags = {record: given(arguments, record) for record in RECORDS}
    if arguments.resume:
        for name, value in (("preset", arguments.preset), ("from", flags[RunConfig].get("source"))):
            if value is not None:
                raise ValueError(f"a resumed run keeps its settings; leave out --{name}")
        found, config = find_run({name: value for some in flags.values() for name, value in some.items()})
        with join(config.strategy, choose_device(config.device)) as team:
            work(go_on(found, config, team))
        return
    config = RunConfig.from_dict(flags[RunConfig])
    if config.source is not None:
        return run_fine_tuning(config, flags, arguments.preset)
    recipe = TrainConfig.from_dict(flags[TrainConfig])
    with join(config.strategy, choose_device(config.device)) as team:
        work(begin(config, recipe, arguments.preset or "modern", flags[ModelConfig], team))


def run_fine_tuning(config: RunConfig, flags: dict[type[Record], dict[str, Any]], preset: str | None) -> None:
    """Train a model that others, or an earlier run, have trained."""
    if preset is not None:
        raise ValueError("a fine-tuned model keeps its sizes and choices; leave out --preset")
    if not {"corpus", "tokens"} & flags[RunConfig].keys():
        raise ValueError("--from needs the text to learn from; give --corpus FILE or --tokens FILE")
    found = open_model(config.source)
    defaults = {**FINE_TUNING, "seq_len": min(TrainConfig.seq_len, found.model.config.max_seq_len)}
    recipe = TrainConfig.from_dict({**defaults, **flags[TrainConfig]})
    with join(config.strategy, choose_device(config.device)) as team:
        work(fine_tune(config, recipe, found, flags[ModelConfig], team))
