"""train: a new model on a text, or the continuation of a run."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..config import ModelConfig, Record, TrainConfig
from ..presets import FAMILIES
from ..pretrained import FINE_TUNING, LARGE, LARGE_FINE_TUNING, fine_tuning, open_model
from ..runs.job import Job, begin, find_run, fine_tune, go_on, read_dataset
from ..runs.run import work
from ..runs.settings import RunConfig
from ..training.distributed import join
from ..training.loop import choose_device
from .flags import add_flags, given

RECORDS = {RunConfig: "the run", TrainConfig: "the recipe", ModelConfig: "the model"}


def add_train(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("train", help="train a model on text")
    p.set_defaults(do=run_train)
    p.add_argument("--preset", choices=list(FAMILIES), help="architecture (default modern)")
    p.add_argument(
        "--resume", action="store_true", help="resume the run in --out from its last checkpoint"
    )
    for record, title in RECORDS.items():
        add_flags(p.add_argument_group(title), record, _tuning())


def _tuning() -> dict[str, str]:
    """What the help says of the defaults that are others with --from."""
    said = {name: f"; with --from {value}" for name, value in FINE_TUNING.items()}
    large = {
        name: f"; with --from {value} above {LARGE:,} parameters"
        for name, value in LARGE_FINE_TUNING.items()
    }
    return {name: said.get(name, "") + large.get(name, "") for name in said | large}


def run_train(arguments: argparse.Namespace) -> None:
    """Train a new model, fine-tune one, or resume a run."""
    flags = {record: given(arguments, record) for record in RECORDS}
    run, set_up = (resumed if arguments.resume else begun)(flags, arguments.preset)
    with join(run.strategy, choose_device(run.device)) as team:
        work(set_up(team=team))


def resumed(
    flags: dict[type[Record], dict[str, Any]], preset: str | None
) -> tuple[RunConfig, Callable[..., Job]]:
    """The settings of the run to resume, and what sets it up."""
    for name, value in (("preset", preset), ("from", flags[RunConfig].get("source"))):
        if value is not None:
            raise ValueError(f"a resumed run keeps its settings; leave out --{name}")
    given = {}
    for of_record in flags.values():
        given |= of_record
    loaded, run = find_run(given)
    return run, partial(go_on, loaded, run)


def begun(
    flags: dict[type[Record], dict[str, Any]], preset: str | None
) -> tuple[RunConfig, Callable[..., Job]]:
    """The settings of a new run, and what sets it up with a new model, or with one that others have
    trained.
    """
    run = RunConfig.from_dict(flags[RunConfig])
    choices = flags[ModelConfig]
    if taken := [
        p for p in (Path(run.out), *Path(run.out).parents) if p.exists() and not p.is_dir()
    ]:
        raise ValueError(
            f"out {run.out} cannot be a folder, because {taken[0]} is a file; choose another name"
        )
    if run.source is None:
        return run, partial(
            begin, run, TrainConfig.from_dict(flags[TrainConfig]), preset or "modern", choices
        )
    if not {"corpus", "tokens", "dialogues"} & flags[RunConfig].keys():
        raise ValueError(
            "--from needs the text to learn from; give --corpus FILE, --tokens FILE or --dialogues "
            "FILE"
        )
    loaded = open_model(run.source)
    data = None
    seq_len = TrainConfig.seq_len
    if run.dialogues is not None:
        data = read_dataset(run, loaded.tokenizer)
        seq_len = data.dialogues.longest()
    defaults = {
        **fine_tuning(loaded.model),
        "seq_len": min(seq_len, loaded.model.config.max_seq_len),
    }
    recipe = TrainConfig.from_dict({**defaults, **flags[TrainConfig]})
    if preset is not None:
        choices = {**choices, "preset": preset}
    return run, partial(fine_tune, run, recipe, loaded, choices, data=data)
