"""A training run as the command line offers it: what it reads, shows, checks and keeps."""

import math
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from . import checkpoint
from .config import Record, TrainConfig, check_record, choice, option
from .cost import count_parameters
from .data import RandomWindows, every_window, load_corpus, split
from .evaluation import evaluate
from .model import TransformerLM
from .optim import build_optimizer
from .presets import preset
from .sampling import generate
from .tokenizer import TOKENIZERS
from .training import Step, choose_device, train

STEPS_PER_LOOK = 10  # updates between two looks at the loss; each look makes a GPU wait
REMEDY = "Try a lower --peak-lr, more --warmup-steps or --precision fp32"


@dataclass(frozen=True)
class RunConfig(Record):
    """What a training run reads, writes and shows, beside the model and the recipe."""

    corpus: str = option("pydoc", "a built-in corpus, or the path of a UTF-8 text file")
    tokenizer: str = choice("bytes", "bytes", "chars", help="what a token is")
    validation_share: float = option(0.1, "share of the text kept for validation, from its end", low=0.0, high=0.9)
    out: str = option("work/runs/last", "folder for the checkpoints")
    device: str = option("auto", "auto takes the first of cuda, mps and cpu")
    eval_every: int = option(200, "updates between two evaluations, samples and checkpoints", low=1)
    prompt: str = option("The ", "how the samples begin")
    sample_tokens: int = option(200, "length of a sample, in tokens", low=0)

    def __post_init__(self) -> None:
        check_record(self)
        if not self.prompt:
            raise ValueError("prompt is empty; a model continues at least one token")


@dataclass
class Job:
    """Everything that a training run works with; `first_step` is the update it begins with."""

    run: RunConfig
    recipe: TrainConfig
    model: TransformerLM
    tokenizer: Any
    optimizer: torch.optim.Optimizer
    batches: RandomWindows
    windows: Callable[[], Iterator]
    n_bytes: int
    first_step: int = 1


def begin(run: RunConfig, recipe: TrainConfig, family: str, choices: dict[str, Any]) -> Job:
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
    torch.manual_seed(recipe.seed)
    return _job(run, recipe, TransformerLM(preset(family, **choices)), tokenizer, text)


def go_on(flags: dict[str, Any]) -> Job:
    """Set up the continuation of the last checkpoint in the folder `out`.

    flags: the fields of the three configs that the user set.
    Raises ValueError for one that contradicts the run.
    """
    found = checkpoint.load(checkpoint.latest(flags.get("out", RunConfig.out)))
    if not {"run", "train"} <= set(found.extra):
        raise ValueError("this checkpoint was not made by train, so there is no run to go on with")
    free = ("out", "device", "eval_every", "prompt", "sample_tokens")
    stored = {**found.model.config.to_dict(), **found.extra["train"], **found.extra["run"]}
    if differing := [name for name in flags if name not in free and flags[name] != stored[name]]:
        kept = ", ".join(f"--{name.replace('_', '-')} (it is {stored[name]})" for name in differing)
        raise ValueError(f"a resumed run keeps its settings; leave out {kept}")
    run = RunConfig.from_dict({**found.extra["run"], **{name: flags[name] for name in free if name in flags}})
    recipe = TrainConfig.from_dict(found.extra["train"])
    job = _job(run, recipe, found.model, found.tokenizer, load_corpus(run.corpus))
    found.restore(job.model, job.optimizer, job.batches)
    job.first_step = found.step + 1
    return job


def _job(run: RunConfig, recipe: TrainConfig, model: TransformerLM, tokenizer: Any, text: str) -> Job:
    tokenizer.encode(run.prompt)
    device = choose_device(run.device)
    model = model.to(device)
    training, validation = split(text, run.validation_share)
    ids = torch.tensor(tokenizer.encode(training), dtype=torch.int32)
    batches = RandomWindows(ids, recipe.batch_size, recipe.seq_len, recipe.seed, device)
    windows, n_bytes = validation_windows(validation, tokenizer, recipe.seq_len)
    return Job(run, recipe, model, tokenizer, build_optimizer(model, recipe), batches, windows, n_bytes)


def validation_windows(text: str, tokenizer: Any, seq_len: int) -> tuple[Callable[[], Iterator], int]:
    """Return a function that cuts the windows (B, T) of a text anew, and the bytes that their targets stand for."""
    ids = torch.tensor(tokenizer.encode(text))
    if len(ids) < 2:
        raise ValueError(f"the validation text has {len(ids)} tokens; give more text or a larger validation_share")
    first = tokenizer.decode(ids[:1].tolist())
    return lambda: every_window(ids, 32, seq_len), len(text.encode("utf-8")) - len(first.encode("utf-8"))


def work(job: Job) -> None:
    """Train, show how it goes, and keep the last two checkpoints; Ctrl-C saves and stops."""
    run, total = job.run, job.recipe.total_steps
    announce(job)
    if job.first_step > total:
        print(f"Nothing left to do: the run in {run.out} has had its {total} updates.")
        return
    started = time.perf_counter()
    bar = tqdm(total=total, initial=job.first_step - 1, unit="step", dynamic_ncols=True, mininterval=0.5)
    with bar, stop_on_ctrl_c() as stopped:
        for step in train(job.model, job.optimizer, job.batches, job.recipe, job.first_step):
            bar.update()
            milestone = step.step % run.eval_every == 0 or step.step == total or bool(stopped)
            if milestone or step.step % STEPS_PER_LOOK == 0:
                bar.set_postfix_str(f"loss {checked_loss(step, run.out):.3f}", refresh=False)
            if milestone:
                folder = keep(job, step.step)
                bar.write(progress(job, step, time.perf_counter() - started))
            if stopped:
                break
    elsewhere = "" if run.out == RunConfig.out else f" --checkpoint {run.out}"
    if stopped and step.step < total:
        print(f"Stopped after update {step.step}, saved in {folder}.")
        print(f"Go on with: python -m tinylm_lib train --resume{elsewhere.replace('--checkpoint', '--out')}")
    else:
        print(f"Saved in {folder}. Let it write: python -m tinylm_lib sample{elsewhere} --prompt {run.prompt!r}")


def announce(job: Job) -> None:
    """Say what is about to happen, before it does."""
    run, config, device = job.run, job.model.config, job.model.embed.weight.device
    sizes = f"{config.n_layers} layers, d_model {config.d_model}, {config.n_heads} heads"
    print(f"Model: {count_parameters(config).total:,} parameters ({sizes}) on {device}, {job.recipe.precision}.")
    print(f"Text: {run.corpus}, {len(job.batches.tokens):,} tokens ({run.tokenizer}) to learn from,")
    print(f"      the last {run.validation_share:.0%} kept apart for validation.")
    print(f"Knowing nothing costs ln {config.vocab_size} = {math.log(config.vocab_size):.2f} nats per token.")
    if job.first_step > 1:
        print(f"Going on after update {job.first_step - 1} of {job.recipe.total_steps}.")


def checked_loss(step: Step, out: str) -> float:
    """The loss of an update, read from the device.

    Raises ValueError unless loss and gradient norm are finite; what was saved before is kept.
    """
    loss, norm = step.loss.item(), step.grad_norm.item()
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise ValueError(
            f"update {step.step} has loss {loss} and gradient norm {norm}; "
            f"the last checkpoint in {out} is kept. {REMEDY}"
        )
    return loss


def keep(job: Job, step: int) -> Path:
    """Write the checkpoint of an update and delete those before the last two. Returns its folder.

    Raises ValueError for weights that are not finite; what was saved before is kept.
    """
    out = Path(job.run.out)
    if not all(bool(p.isfinite().all()) for p in job.model.parameters()):
        raise ValueError(
            f"update {step} left weights that are not finite; the last checkpoint in {out} is kept. {REMEDY}"
        )
    extra = {"run": job.run.to_dict(), "train": job.recipe.to_dict()}
    folder = out / f"step_{step:06d}"
    checkpoint.save(folder, job.model, job.optimizer, job.batches, step, tokenizer=job.tokenizer, extra=extra)
    for old in sorted(out.glob("step_*/" + checkpoint.MANIFEST))[:-2]:
        shutil.rmtree(old.parent, ignore_errors=True)
    return folder


def progress(job: Job, step: Step, seconds: float) -> str:
    """The losses on both parts of the text, and a sample."""
    e = evaluate(job.model, job.windows(), job.n_bytes)
    lines = [
        f"\nupdate {step.step}, {seconds:.0f} s: training loss {step.loss.item():.3f}, validation "
        f"{e.nats_per_token:.3f} nats per token, {e.bits_per_byte:.3f} bits per byte"
    ]
    if job.run.sample_tokens:
        device = job.model.embed.weight.device
        prompt = torch.tensor([job.tokenizer.encode(job.run.prompt)], device=device)
        generator = torch.Generator(device).manual_seed(step.step)
        ids = generate(job.model, prompt, job.run.sample_tokens, temperature=0.8, generator=generator)
        lines += ["    " + line for line in job.tokenizer.decode(ids[0].tolist()).splitlines()]
    return "\n".join(lines)


def set_aside(out: Path) -> None:
    """Rename the folder of an earlier run, so that a new one never overwrites or mixes with it."""
    if any(out.glob("step_*")):
        number = next(n for n in range(1, 10_000) if not Path(f"{out}.{n}").exists())
        out.rename(f"{out}.{number}")
        print(f"The earlier run in {out} is now {out}.{number}.")


@contextmanager
def stop_on_ctrl_c() -> Iterator[list[int]]:
    """Collect the first Ctrl-C in a list, so that the update under way can finish; the second one interrupts."""
    seen: list[int] = []

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
