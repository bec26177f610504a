"""What a training run works with: its text, cut and encoded, its model, and where it continues."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ..config import ModelConfig, TrainConfig
from ..data.windows import RandomWindows
from ..model import TransformerLM
from ..presets import preset
from ..storyworld.stories import Entropies, entropies
from ..text.base import Tokenizer
from ..training import checkpoint
from ..training.checkpoint import Checkpoint
from ..training.distributed import ALONE, Alone, own_random_stream
from ..training.optim import build_optimizer
from .dataset import (
    Dataset,
    answer_windows,
    check_lengths,
    cut_dataset,
    cut_dialogues,
    encode_corpus,
    map_tokens,
    validation_windows,
)
from .machine import check_memory, machine, warn_of_changes
from .settings import RunConfig

FLOORS = {"storyworld": entropies}  # the languages of which it is known


@dataclass
class Job:
    """Everything that a training run works with; `first_step` is the update it begins with.

    windows: cuts those of the validation text, whose targets are n_bytes; both are None where no
    text is held out.
    wrapped: what is trained instead of the model, and with whom: `team`.
    """

    run: RunConfig
    recipe: TrainConfig
    model: TransformerLM
    wrapped: nn.Module
    team: Alone
    data: Dataset
    optimizer: torch.optim.Optimizer
    batches: RandomWindows
    windows: Callable[[], Iterator] | None
    n_bytes: int | None
    floor: Entropies | None  # where it is known
    first_step: int = 1


def begin(
    run: RunConfig, recipe: TrainConfig, family: str, choices: dict[str, Any], team: Alone = ALONE
) -> Job:
    """Set up a new run of a preset with some fields of its ModelConfig chosen.

    Raises ValueError for settings that contradict one another.
    """
    data = read_dataset(run, vocab_size=choices.get("vocab_size"))
    choices = {
        "max_seq_len": recipe.seq_len,
        "vocab_size": (least := data.tokenizer.vocab_size),
        **choices,
    }
    if choices["vocab_size"] < least:
        kind = data.tokenizer.kind
        raise ValueError(
            f"vocab_size {choices['vocab_size']} is below what {kind} need, {least}; leave it out"
        )
    return _job(run, recipe, preset(family, **choices), data, team)


def fine_tune(
    run: RunConfig,
    recipe: TrainConfig,
    loaded: Checkpoint,
    choices: dict[str, Any],
    team: Alone = ALONE,
    data: Dataset | None = None,
) -> Job:
    """Set up a new run that begins with the weights of a model, converted to fp32, and keeps its
    tokenizer.

    choices: fields of its ModelConfig to replace; only dropouts can be. data: what the run reads,
    where it has been read already.
    Raises ValueError for other fields, for a seq_len above the model's max_seq_len, for weights
    that are not finite, and for a text that the tokenizer cannot encode.
    """
    if wrong := [name for name in choices if not name.endswith("_dropout")]:
        raise ValueError(
            "a fine-tuned model keeps its sizes and choices; leave out "
            f"--{wrong[0].replace('_', '-')}"
        )
    if wrong := [name for name, p in loaded.model.named_parameters() if not p.isfinite().all()]:
        raise ValueError(
            f"{run.source}: {wrong[0]} holds values that are not finite; take another checkpoint"
        )
    job = _job(
        run,
        recipe,
        replace(loaded.model.config, **choices),
        data or read_dataset(run, loaded.tokenizer),
        team,
    )
    replace(loaded, random_states={}).restore(job.model, team=team)
    return job


def find_run(flags: dict[str, Any]) -> tuple[Checkpoint, RunConfig]:
    """Find the last checkpoint in the folder `out`, and how its run continues.

    flags: the fields of the three configs that the user set; another total_steps changes the
    schedule from here on.
    Raises ValueError for one that contradicts the run.
    """
    loaded = checkpoint.load(checkpoint.latest(flags.get("out", RunConfig.out)))
    if not {"run", "train"} <= set(loaded.extra):
        raise ValueError("this checkpoint was not made by train, so there is no run to continue")
    free: tuple[str, ...] = (
        "corpus",
        "tokens",
        "dialogues",
        "out",
        "device",
        "strategy",
        "compile",
    )
    free += ("eval_every", "eval_tokens", "prompt", "sample_tokens")
    recipe = loaded.extra["train"]
    recipe["total_steps"] = total = flags.get("total_steps", recipe["total_steps"])
    if total < loaded.step:
        raise ValueError(
            f"total_steps {total} is below the {loaded.step} updates that this run has had; raise "
            "it"
        )
    stored = {**loaded.model.config.to_dict(), **recipe, **loaded.extra["run"]}
    if differing := [name for name in flags if name not in free and flags[name] != stored[name]]:
        kept = ", ".join(f"--{name.replace('_', '-')} (it is {stored[name]})" for name in differing)
        raise ValueError(f"a resumed run keeps its settings; leave out {kept}")
    return loaded, RunConfig.from_dict(
        {**loaded.extra["run"], **{n: flags[n] for n in free if n in flags}}
    )


def go_on(loaded: Checkpoint, run: RunConfig, team: Alone = ALONE) -> Job:
    """Set up the continuation of a run from its checkpoint."""
    recipe = TrainConfig.from_dict(loaded.extra["train"])
    job = _job(run, recipe, loaded.model.config, same_dataset(loaded, run), team, loaded.model)
    own_random_stream(team, recipe.seed + loaded.step)
    loaded.restore(job.model, job.optimizer, job.batches, team)
    if team.first:
        warn_of_changes(
            loaded.extra.get("machine", {}), machine(team.device, recipe.precision, team.size)
        )
    job.first_step = loaded.step + 1
    return job


def read_dataset(
    run: RunConfig, tokenizer: Tokenizer | None = None, vocab_size: int | None = None
) -> Dataset:
    """Read what a run trains and validates on, from a corpus, a token file or dialogues.

    tokenizer: the model's, where there is one. vocab_size: how many tokens a new one learns, if its
    kind learns.
    """
    if run.dialogues is not None:
        return cut_dialogues(run.dialogues, tokenizer, run.validation_share, run.eval_tokens)
    if run.tokens is None:
        tokens = encode_corpus(run.corpus, tokenizer, run.tokenizer, vocab_size)
    else:
        tokens = map_tokens(run.tokens, tokenizer)
    return cut_dataset(
        tokens, run.tokens or run.corpus, run.lines, run.validation_share, run.eval_tokens
    )


def same_dataset(loaded: Checkpoint, run: RunConfig) -> Dataset:
    """Read what the run of a checkpoint read before.

    run: the settings in its `extra`, perhaps with another path of the same text.
    Raises FileNotFoundError where the text is not there any more, ValueError where it has changed.
    """
    given = [name for name in ("dialogues", "tokens") if getattr(run, name) is not None]
    flag = f"--{given[0]}" if given else "--corpus"
    try:
        data = read_dataset(run, loaded.tokenizer)
    except FileNotFoundError as e:
        raise FileNotFoundError(
            f"{e}; if the text of this run has moved, give its path with {flag}"
        ) from None
    # earlier versions did not keep it
    if loaded.extra.get("text_sha256", data.sha256) != data.sha256:
        raise ValueError(
            f"{data.name} has changed since this run began; give a copy of the old text with {flag}"
        )
    return data


def _job(
    run: RunConfig,
    recipe: TrainConfig,
    config: ModelConfig,
    data: Dataset,
    team: Alone,
    model: Any = None,
) -> Job:
    """Set up a run, by default of a new model with weights from the seed of the recipe."""
    if recipe.seq_len > config.max_seq_len:
        raise ValueError(
            f"seq_len {recipe.seq_len} exceeds the model's max_seq_len {config.max_seq_len}; lower "
            "it"
        )
    if data.dialogues:
        n_training = len(data.dialogues.training.starts)
        check_lengths(data.dialogues.training, recipe.seq_len, 1, data.name)
        check_lengths(data.dialogues.validation, recipe.seq_len, n_training + 1, data.name)
    else:
        run = replace(run, prompt=_prompt(run, data))
    check_memory(config, recipe, team.device)
    torch.manual_seed(recipe.seed)
    model = (model or TransformerLM(config)).to(team.device)
    own_random_stream(team, recipe.seed)
    model.recompute = recipe.recompute
    wrapped = torch.compile(team.wrap(model)) if run.compile else team.wrap(model)
    sizes = (recipe.batch_size, recipe.seq_len, recipe.seed)
    targets = data.dialogues.training.targets if data.dialogues else None
    batches = RandomWindows(
        data.training, *sizes, team.device, data.starts, team.rank, team.size, targets
    )
    windows = None
    n_bytes = None
    if run.validation_share and data.dialogues:
        windows, n_bytes = answer_windows(data.dialogues.validation, data.tokenizer)
    elif run.validation_share:
        longest = model.config.max_seq_len if run.lines else recipe.seq_len
        windows, n_bytes = validation_windows(data.validation, data.tokenizer, longest, run.lines)
    floor = FLOORS[run.corpus](data.tokenizer) if run.corpus in FLOORS else None
    optimizer = build_optimizer(model, recipe)
    return Job(run, recipe, model, wrapped, team, data, optimizer, batches, windows, n_bytes, floor)


def _prompt(run: RunConfig, data: Dataset) -> str:
    """How samples begin: as the user says; where that is nothing, with a line end or the text's
    first token.

    Raises ValueError for a prompt that has no ids.
    """
    typed = run.prompt != RunConfig.prompt
    with nullcontext() if typed else suppress(ValueError):  # a tokenizer may lack the line end
        if data.tokenizer.encode(run.prompt):
            return run.prompt
    if typed:
        raise ValueError(f"the prompt {run.prompt!r} has no tokens; a model continues at least one")
    return data.tokenizer.decode(data.training[:1].tolist())
