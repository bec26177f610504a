"""A training run as the command line offers it: what it shows, checks and keeps."""

import io
import math
import os
import shlex
import subprocess
from contextlib import nullcontext, redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..config import IGNORED
from ..cost import count_parameters
from ..storyworld.gaps import gaps
from ..storyworld.stories import Entropies, entropy_per_story, story
from ..text.tokenizers import WordTokenizer
from ..training import checkpoint
from ..training.evaluation import Evaluation, evaluate
from ..training.loop import Step, fraction_of_peak, train
from .job import Job
from .log import LOG_NAME, append_log, cut_log
from .machine import machine
from .pace import Pace
from .run_folder import best_checkpoint, checkpoint_loss, forget, kept, set_aside
from .samples import sample_text
from .settings import RunConfig
from .signals import stop_on_signals

STEPS_PER_LOG = 10  # updates between two looks at the loss; each look makes a GPU wait
STORIES_PER_LOOK = 200  # to compare with the exact distribution of every word
WHAT_TO_TRY = (
    "Look at the learning rates (--matrix-lr, --embedding-lr: try a third), the warm-up "
    "(--warmup-steps), the clipping (--clip-norm), the precision (--precision fp32) and the text, "
    "and start again"
)


def work(job: Job) -> None:
    """Train, show how it goes, and keep the last two checkpoints; Ctrl-C and SIGTERM save and stop.

    Where many processes train together, all do this, and the first one shows it.
    """
    with nullcontext() if job.team.first else redirect_stdout(io.StringIO()):
        _work(job)


def _begin(job: Job) -> bool:
    """Say what is about to happen. Returns whether anything is left to do."""
    if job.first_step == 1 and job.team.first:
        set_aside(Path(job.run.out))
    announce(job)
    total = job.recipe.total_steps
    if job.first_step > total:
        print(f"Nothing left to do: the run in {job.run.out} has had its {total} updates.")
        return False
    if job.first_step == 1 and job.run.source and (e := measure(job, 0)):
        add_to_log(job, [{"update": 0, "validation_loss": e.nats_per_token}])
        print(f"Before the first update: validation {e.nats_per_token:.3f} nats per token.")
    return True


def _work(job: Job) -> None:
    run = job.run
    team = job.team
    if not _begin(job):
        return
    pace = Pace(job)
    unread = []
    if job.first_step > 1 and team.first:
        cut_log(Path(run.out) / LOG_NAME, job.first_step - 1)
    with _progress(job) as bar, stop_on_signals(team) as signals:
        what = (job.wrapped, job.optimizer, job.batches, job.recipe)
        for step in train(*what, job.first_step, team):
            bar.update()
            unread.append(step)
            look = step.step % STEPS_PER_LOG == 0 or step.step == job.first_step
            milestone = step.step % run.eval_every == 0 or step.step == job.recipe.total_steps
            # together, or one would wait for ever
            stop = (look or team.size == 1) and team.any(bool(signals))
            if look or milestone or stop:
                noted = [*log_entries(unread, run.out), pace.look(step.step, len(unread))]
                add_to_log(job, noted)
                bar.set_postfix_str(_speed(*noted[-2:]), refresh=False)
                unread.clear()
            e = measure(job, step.step) if milestone else None
            if e is not None:  # before the checkpoint: a run that continues there has noted it
                add_to_log(job, [{"update": step.step, "validation_loss": e.nats_per_token}])
            if milestone or stop:
                folder = save_checkpoint(job, step.step, e)
            if milestone:
                bar.write(progress_text(job, step, e, noted[-1]["seconds"]))
                pace.skip()
            if stop:
                break
    farewell(job, folder, step.step, pace)


def _speed(update: dict[str, Any], look: dict[str, Any]) -> str:
    return f"loss {update['loss']:.3f}, {look['tokens_per_second']:,.0f} tokens/s"


def _progress(job: Job) -> tqdm:
    """The progress bar of a run, which only the first process shows."""
    before = job.first_step - 1
    hidden = not job.team.first
    looks: dict[str, Any] = {"unit": "step", "dynamic_ncols": True, "mininterval": 0.5}
    return tqdm(total=job.recipe.total_steps, initial=before, disable=hidden, **looks)


def farewell(job: Job, folder: Path, step: int, pace: Pace) -> None:
    """Say what is saved where, what to type next, and how long it took."""
    run = job.run
    can_be_typed = run.prompt.replace("\n", "\n" if os.name == "nt" else " ").isprintable()
    chat = ["--chat"] if run.dialogues else []
    prompt = [f"--prompt={run.prompt}"] if run.prompt != RunConfig.prompt and can_be_typed else []
    if step < job.recipe.total_steps:
        start = "python" if job.team.size == 1 else "torchrun ..."
        print(f"Stopped after update {step}, saved in {folder}.")
        print(
            f"Continue with: {start} -m tinylm_lib {typed('train', '--resume', f'--out={run.out}')}"
        )
    else:
        sample = typed("sample", f"--from={run.out}", *chat, *prompt)
        print(f"Saved in {folder}. Let it write: python -m tinylm_lib {sample}")
    best = best_checkpoint(folder) if job.team.first else None
    if best is not None and best != folder:
        print(f"The lowest validation loss, {checkpoint_loss(best):.3f}, is that of {best}:")
        print(f"      python -m tinylm_lib {typed('sample', f'--from={best}', *chat, *prompt)}")
    print(f"This took {pace.summary()}")


def typed(*words: str) -> str:
    """Words as they are typed into the shell of this system."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def announce(job: Job) -> None:
    """Say what is about to happen, before it does."""
    run = job.run
    config = job.model.config
    device = job.model.embed.weight.device
    sizes = f"{config.n_layers} layers, d_model {config.d_model}, {config.n_heads} heads"
    together = "" if job.team.size == 1 else f", {job.team.size} processes ({run.strategy})"
    n = count_parameters(config).total
    chosen = job.recipe.precision
    precision = " = ".join(dict.fromkeys((chosen, machine(job.team.device, chosen)["precision"])))
    source = f" of {run.source}, to fine-tune" if run.source else ""
    where = f"on {device}, precision {precision}{together}"
    print(f"Model{source}: {n:,} parameters ({sizes}) {where}.")
    n_tokens = f"{len(job.data.training):,} tokens ({job.data.tokenizer.kind})"
    if job.data.dialogues:
        learnt = job.data.dialogues.training
        n_answers = int((learnt.targets != IGNORED).sum())
        n_tokens = f"{len(learnt.starts):,} dialogues of {n_tokens}, {n_answers:,} of answers,"
    print(f"Text: {job.data.name}, {n_tokens} to learn from,")
    held_out = "no text held out"
    if job.windows:
        held_out = f"the last {run.validation_share:.0%} kept apart"
    print(f"      {held_out} for validation.")
    V = config.vocab_size
    print(f"Knowing nothing, a model loses ln {V} = {math.log(V):.2f} nats per token.")
    if job.floor:
        print(floor_text(job.floor))
    if 1 < job.first_step <= job.recipe.total_steps:
        rate = fraction_of_peak(job.recipe, job.first_step)
        after = job.first_step - 1
        print(f"Continuing after update {after} with {rate:.0%} of the peak learning rates,")
        print(f"      because the schedule ends at update {job.recipe.total_steps}.")


def floor_text(f: Entropies) -> str:
    """What a model loses that knows a part, or all, of a language."""
    return (
        f"If it knows how frequent each token is, {f.unigram:.2f}; if it knows the token before, "
        f"{f.bigram:.2f};\n      if it knows everything about this language, {f.floor:.3f}: no "
        "model can lose less."
    )


def add_to_log(job: Job, entries: list[dict[str, Any]]) -> None:
    """Add entries to the run's log."""
    if job.team.first:
        append_log(Path(job.run.out) / LOG_NAME, entries)


def log_entries(steps: list[Step], out: str) -> list[dict[str, Any]]:
    """What the log says of some updates, read from the device at once.

    Raises ValueError naming the first whose loss or gradient norm is not finite; what was saved
    before is kept.
    """
    entries = list[dict[str, Any]]()
    read = torch.stack([torch.stack((step.loss, step.grad_norm)) for step in steps]).tolist()
    for step, (loss, norm) in zip(steps, read, strict=True):
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ValueError(
                f"update {step.step} has loss {loss} and gradient norm {norm}; {kept(out)}. "
                f"{WHAT_TO_TRY}"
            )
        entries.append(
            {"update": step.step, "loss": loss, "grad_norm": norm, "lr_share": step.lr_share}
        )
    return entries


def measure(job: Job, step: int) -> Evaluation | None:
    """Evaluate the model after an update, with a progress bar where it takes long; None without a
    validation text.

    Raises ValueError for weights and a validation loss that are not finite; what was saved before
    is kept.
    """
    check_state(job, step)
    if job.windows is None:
        return None
    n = sum(1 for _ in job.windows())
    hidden = not job.team.first
    with tqdm(
        job.windows(), "evaluating", n, leave=False, disable=hidden, delay=1, dynamic_ncols=True
    ) as windows:
        e = evaluate(job.model, windows, job.n_bytes, job.team)
    if not math.isfinite(e.nats_per_token):
        raise ValueError(
            f"after update {step} the validation loss is {e.nats_per_token}; {kept(job.run.out)}. "
            f"{WHAT_TO_TRY}"
        )
    return e


def check_state(job: Job, step: int) -> None:
    """Raise ValueError for weights and optimizer states that are not finite; what was saved before
    is kept.
    """
    states = chain.from_iterable(state.values() for state in job.optimizer.state.values())
    parts = {
        "weights": job.model.parameters(),
        "optimizer states": filter(torch.is_tensor, states),
    }
    for what, tensors in parts.items():
        own = (getattr(t, "to_local", t.detach)() for t in tensors)  # of shards, the part here
        if job.team.any(not all(bool(t.isfinite().all()) for t in own)):
            raise ValueError(
                f"update {step} left {what} that are not finite; {kept(job.run.out)}. {WHAT_TO_TRY}"
            )


def save_checkpoint(job: Job, step: int, e: Evaluation | None) -> Path:
    """Write the checkpoint of an update; of those before, the last one and the best are kept.
    Returns its folder.

    Raises ValueError for values that are not finite; what was saved before is kept.
    """
    check_state(job, step)
    extra = {
        "run": job.run.to_dict(),
        "train": job.recipe.to_dict(),
        "text_sha256": job.data.sha256,
    }
    extra["machine"] = machine(job.team.device, job.recipe.precision, job.team.size)
    extra |= {} if e is None else {"validation_loss": e.nats_per_token}
    folder = Path(job.run.out) / f"step_{step:06d}"
    parts = (job.model, job.optimizer, job.batches, step)
    checkpoint.save(folder, *parts, tokenizer=job.data.tokenizer, extra=extra, team=job.team)
    if job.team.first:
        forget(folder)
    return folder


def progress_text(job: Job, step: Step, e: Evaluation | None, seconds: float) -> str:
    """The losses on both parts of the text, how far the floor is if it is known, and a sample."""
    lines = [f"\nupdate {step.step}, {seconds:.0f} s: training loss {step.loss.item():.3f}"]
    if e is not None:
        lines[0] += f", validation {e.nats_per_token:.3f} nats per token"
        lines[0] += f", {e.bits_per_byte:.3f} bits per byte"
        lines += distances(job, e.nats_per_token) if job.floor else []
    if job.run.sample_tokens:
        lines += ["    " + line for line in sample_text(job, step.step).splitlines()]
    return "\n".join(lines)


def distances(job: Job, nats_per_token: float) -> list[str]:
    """How far StoryWorld's floor is: for a story, and of words for each kind of look-back."""
    floor = entropy_per_story()
    per_story = nats_per_token / job.floor.floor * floor
    lines = [f"{per_story:.2f} nats per story, and the floor is {floor:.2f}"]
    if isinstance(job.data.tokenizer, WordTokenizer):
        generator = torch.Generator().manual_seed(job.recipe.seed)
        stories = [story(generator) for _ in range(STORIES_PER_LOOK)]
        gaps_by_kind = gaps(job.model, job.data.tokenizer, stories)
        above = gaps_by_kind.pop("all").nats
        gaps_by_kind.pop("other", None)
        kinds = ", ".join(f"{kind} {gap.right:.1%}" for kind, gap in gaps_by_kind.items())
        lines.append(f"{above:.3f} nats per token above the floor, without the noise of a sample")
        lines.append(f"right: {kinds}")
    return lines
