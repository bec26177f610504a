"""What a training run works with: its text, cut and encoded, its model, and where it goes on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..config import Record, TrainConfig, check_record, choice, option
from ..data.corpora import LINES, load_corpus
from ..data.windows import RandomWindows, every_document, every_window, split
from ..files import work_folder
from ..model import TransformerLM
from ..presets import preset
from ..storyworld.stories import Entropies, entropies
from ..text.base import line_end
from ..text.tokenizers import TOKENIZERS
from ..training import checkpoint
from ..training.checkpoint import Checkpoint
from ..training.distributed import ALONE, STRATEGIES, Alone, own_random_stream
from ..training.optim import build_optimizer
from .machine import check_memory, machine, warn_of_changes

FLOORS = {"storyworld": entropies}  # the languages of which it is known


@dataclass(frozen=True)
class RunConfig(Record):
    """What a training run reads, writes and shows, beside the model and the recipe."""

    corpus: str = option("storyworld", "a built-in corpus, or the path of a UTF-8 text file")
    tokenizer: str | None = choice(None, *TOKENIZERS, help="what a token is; words for storyworld, else bytes")
    lines: bool | None = option(None, "each line is a text of its own: windows start at a line, whole lines are scored")
    validation_share: float = option(0.05, "share of the text kept for validation, from its end", low=0.0, high=0.9)
    out: str = option((work_folder() / "runs/last").as_posix(), "folder for the checkpoints")
    device: str = option("auto", "auto takes the first of cuda, mps and cpu")
    strategy: str = choice("none", *STRATEGIES, help="how many processes train one model; torchrun starts them")
    eval_every: int = option(400, "updates between two evaluations, samples and checkpoints", low=1)
    prompt: str = option("\n", "how the samples begin")
    sample_tokens: int = option(200, "length of a sample, in tokens", low=0)

    def __post_init__(self) -> None:
        check_record(self)
        if self.lines is None:
            object.__setattr__(self, "lines", self.corpus in LINES)
        if self.tokenizer is None:
            object.__setattr__(self, "tokenizer", "words" if self.corpus in LINES else "bytes")
        for name in ("corpus", "out", "prompt"):
            if (value := getattr(self, name)) != value.encode("utf-8", "ignore").decode("utf-8"):
                raise ValueError(f"{name} must be text that UTF-8 can hold, got {value!r}")
        if not self.out:
            raise ValueError("out is empty; name a folder, such as . for this one")
        if not self.prompt:
            raise ValueError("prompt is empty; a model continues at least one token")


@dataclass
class Job:
    """Everything that a training run works with; `first_step` is the update it begins with.

    wrapped: what is trained in the model's place, and with whom: `team`.
    """

    run: RunConfig
    recipe: TrainConfig
    model: TransformerLM
    wrapped: nn.Module
    team: Alone
    tokenizer: Any
    optimizer: torch.optim.Optimizer
    batches: RandomWindows
    windows: Callable[[], Iterator]
    n_bytes: int
    floor: Entropies | None  # where it is known
    first_step: int = 1


def begin(run: RunConfig, recipe: TrainConfig, family: str, choices: dict[str, Any], team: Alone = ALONE) -> Job:
    """Set up a new run of a preset with some fields of its ModelConfig chosen.

    Raises ValueError for settings that contradict one another.
    """
    text = load_corpus(run.corpus)
    tokenizer = TOKENIZERS[run.tokenizer].from_text(text)
    choices = {"max_seq_len": recipe.seq_len, "vocab_size": tokenizer.vocab_size, **choices}
    for name, least, why in (
        ("max_seq_len", recipe.seq_len, "seq_len"),
        ("vocab_size", tokenizer.vocab_size, f"what {run.tokenizer} need"),
    ):
        if choices[name] < least:
            raise ValueError(f"{name} {choices[name]} is below {why}, {least}; raise it or leave it out")
    config = preset(family, **choices)
    check_memory(config, recipe, team.device)
    torch.manual_seed(recipe.seed)
    model = TransformerLM(config)
    own_random_stream(team, recipe.seed)
    return _job(run, recipe, model, tokenizer, text, team)


def find_run(flags: dict[str, Any]) -> tuple[Checkpoint, RunConfig]:
    """Find the last checkpoint in the folder `out`, and how its run goes on.

    flags: the fields of the three configs that the user set.
    Raises ValueError for one that contradicts the run.
    """
    found = checkpoint.load(checkpoint.latest(flags.get("out", RunConfig.out)))
    if not {"run", "train"} <= set(found.extra):
        raise ValueError("this checkpoint was not made by train, so there is no run to go on with")
    free = ("out", "device", "strategy", "eval_every", "prompt", "sample_tokens")
    stored = {**found.model.config.to_dict(), **found.extra["train"], **found.extra["run"]}
    if differing := [name for name in flags if name not in free and flags[name] != stored[name]]:
        kept = ", ".join(f"--{name.replace('_', '-')} (it is {stored[name]})" for name in differing)
        raise ValueError(f"a resumed run keeps its settings; leave out {kept}")
    return found, RunConfig.from_dict({**found.extra["run"], **{n: flags[n] for n in free if n in flags}})


def go_on(found: Checkpoint, run: RunConfig, team: Alone = ALONE) -> Job:
    """Set up the continuation of a run from its checkpoint."""
    recipe = TrainConfig.from_dict(found.extra["train"])
    own_random_stream(team, recipe.seed + found.step)
    job = _job(run, recipe, found.model, found.tokenizer, load_corpus(run.corpus), team)
    found.restore(job.model, job.optimizer, job.batches, team)
    if team.first:
        warn_of_changes(found.extra.get("machine", {}), machine(team.device, recipe.precision, team.size))
    job.first_step = found.step + 1
    return job


def _job(run: RunConfig, recipe: TrainConfig, model: TransformerLM, tokenizer: Any, text: str, team: Alone) -> Job:
    tokenizer.encode(run.prompt)
    model = model.to(team.device)
    model.recompute = recipe.recompute
    wrapped = team.wrap(model)
    training, validation = split_text(text, run)
    ids = torch.tensor(tokenizer.encode(training), dtype=torch.int32)
    starts = (ids == line_end(tokenizer)).nonzero()[:, 0] if run.lines else None
    batches = RandomWindows(
        ids, recipe.batch_size, recipe.seq_len, recipe.seed, team.device, starts, team.rank, team.size
    )
    windows, n_bytes = validation_windows(validation, tokenizer, model.config.max_seq_len, run.lines)
    floor = FLOORS[run.corpus](tokenizer) if run.corpus in FLOORS else None
    optimizer = build_optimizer(model, recipe)
    return Job(run, recipe, model, wrapped, team, tokenizer, optimizer, batches, windows, n_bytes, floor)


def split_text(text: str, run: RunConfig) -> tuple[str, str]:
    """Cut off the end of a text for validation, at the end of a line where lines are texts of their own.

    Raises ValueError for too few lines.
    """
    if not run.lines:
        return split(text, run.validation_share)
    training, validation = split(text.splitlines(keepends=True), run.validation_share)
    if not validation:
        raise ValueError(f"{len(training)} lines leave none for validation; give more lines, or choose --no-lines")
    return "\n" + "".join(training), "".join(validation)


def validation_windows(text: str, tokenizer: Any, max_seq_len: int, lines: bool) -> tuple[Callable[[], Iterator], int]:
    """Return a function that cuts the windows (B, T) of a text anew, and the bytes that their targets stand for.

    Raises ValueError for a text too short, and for a line of more than max_seq_len tokens.
    """
    ids = torch.tensor(tokenizer.encode(text))
    if len(ids) < 2:
        raise ValueError(f"the validation text has {len(ids)} tokens; give more text or a larger validation_share")
    if lines:
        end, n_bytes = line_end(tokenizer), len(text[: text.rindex("\n") + 1].encode("utf-8"))
        longest = max(x.shape[1] for x, _ in every_document(ids, end, 32))
        if longest > max_seq_len:
            raise ValueError(f"a line has {longest} tokens, more than max_seq_len {max_seq_len}; raise it")
        return lambda: every_document(ids, end, 32), n_bytes
    first = tokenizer.decode(ids[:1].tolist())
    seq_len = min(max_seq_len, len(ids) - 1)
    return lambda: every_window(ids, 32, seq_len), len(text.encode("utf-8")) - len(first.encode("utf-8"))
