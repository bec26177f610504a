"""A training run as the command line offers it: what it shows, checks and keeps."""

import io
import math
import os
import shlex
import subprocess
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..cost import count_parameters
from ..sampling import generate
from ..storyworld.gaps import gaps
from ..storyworld.stories import entropy_per_story, story
from ..text.tokenizers import WordTokenizer
from ..training import checkpoint
from ..training.evaluation import Evaluation, evaluate
from ..training.loop import Step, share_of_peak, train
from .job import Job, RunConfig
from .log import LOG_NAME, append_log, cut_log
from .machine import machine
from .pace import Pace
from .run_folder import best_checkpoint, checkpoint_loss, forget, kept, set_aside
from .signals import stop_on_signals

STEPS_PER_LOG = 10  # updates between two looks at the loss; each look makes a GPU wait
STORIES_PER_LOOK = 200  # to compare with the exact distribution of every word
WHAT_TO_TRY = (
    "Look at the learning rates (--matrix-lr, --embedding-lr: try a third), the warm-up (--warmup-steps), the clipping "
    "(--clip-norm), the precision (--precision fp32) and the text, and start again"
)


def work(job: Job) -> None:
    """Train, show how it goes, and keep the last two checkpoints; Ctrl-C and SIGTERM save and stop.

    Where many processes train together, all do this, and the first one shows it.
    """
    with nullcontext() if job.team.first else redirect_stdout(io.StringIO()):
        _work(job)


def _work(job: Job) -> None:
    run, total, team = job.run, job.recipe.total_steps, job.team
    if job.first_step == 1 and team.first:
        set_aside(Path(run.out))
    announce(job)
    if job.first_step > total:
        print(f"Nothing left to do: the run in {run.out} has had its {total} updates.")
        return
    if job.first_step == 1 and run.source and (e := measure(job, 0)):
        add_to_log(job, [{"update": 0, "validation_loss": e.nats_per_token}])
        print(f"Before the first update: validation {e.nats_per_token:.3f} nats per token.")
    pace, unread = Pace(job), []
    if job.first_step > 1 and team.first:
        cut_log(Path(run.out) / LOG_NAME, job.first_step - 1)
    done = {"total": total, "initial": job.first_step - 1, "unit": "step", "disable": not team.first}
    with tqdm(**done, dynamic_ncols=True, mininterval=0.5) as bar, stop_on_signals(team) as signals:
        for step in train(job.wrapped, job.optimizer, job.batches, job.recipe, job.first_step, team):
            bar.update()
            unread.append(step)
            look = step.step % STEPS_PER_LOG == 0 or step.step == job.first_step
            milestone = step.step % run.eval_every == 0 or step.step == total
            stop = (look or team.size == 1) and team.any(bool(signals))  # together, or one would wait for ever
            if look or milestone or stop:
                noted = [*log_entries(unread, run.out), pace.look(step.step, len(unread))]  # waits, then looks
                add_to_log(job, noted)
                loss, speed = noted[-2]["loss"], noted[-1]["tokens_per_second"]
                bar.set_postfix_str(f"loss {loss:.3f}, {speed:,.0f} tokens/s", refresh=False)
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


def farewell(job: Job, folder: Path, step: int, pace: Pace) -> None:
    """Say what is saved where, what to type next, and how long it took."""
    run = job.run
    can_be_typed = run.prompt.replace("\n", "\n" if os.name == "nt" else " ").isprintable()
    prompt = [f"--prompt={run.prompt}"] if run.prompt != RunConfig.prompt and can_be_typed else []
    if step < job.recipe.total_steps:
        start = "python" if job.team.size == 1 else "torchrun ..."
        print(f"Stopped after update {step}, saved in {folder}.")
        print(f"Continue with: {start} -m tinylm_lib {typed('train', '--resume', f'--out={run.out}')}")
    else:
        sample = typed("sample", f"--from={run.out}", *prompt)
        print(f"Saved in {folder}. Let it write: python -m tinylm_lib {sample}")
    best = best_checkpoint(folder) if job.team.first else None
    if best is not None and best != folder:
        print(f"The lowest validation loss, {checkpoint_loss(best):.3f}, is that of {best}:")
        print(f"      python -m tinylm_lib {typed('sample', f'--from={best}', *prompt)}")
    print(f"This took {pace.summary()}")


def typed(*words: str) -> str:
    """Words as they are typed into the shell of this system."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def announce(job: Job) -> None:
    """Say what is about to happen, before it does."""
    run, config, device = job.run, job.model.config, job.model.embed.weight.device
    sizes = f"{config.n_layers} layers, d_model {config.d_model}, {config.n_heads} heads"
    together = "" if job.team.size == 1 else f", {job.team.size} processes ({run.strategy})"
    n = count_parameters(config).total
    chosen = job.recipe.precision
    precision = " = ".join(dict.fromkeys((chosen, machine(job.team.device, chosen)["precision"])))
    source = f" of {run.source}, to fine-tune" if run.source else ""
    print(f"Model{source}: {n:,} parameters ({sizes}) on {device}, precision {precision}{together}.")
    held_out = f"the last {run.validation_share:.0%} kept apart" if job.windows else "no text held out"
    print(f"Text: {job.data.name}, {len(job.data.training):,} tokens ({job.data.tokenizer.kind}) to learn from,")
    print(f"      {held_out} for validation.")
    print(f"Knowing nothing, a model loses ln {config.vocab_size} = {math.log(config.vocab_size):.2f} nats per token.")
    if f := job.floor:
        print(f"If it knows how frequent each token is, {f.unigram:.2f}; if it knows the token before, {f.bigram:.2f};")
        print(f"      if it knows everything about this language, {f.floor:.3f}: no model can lose less.")
    if 1 < job.first_step <= job.recipe.total_steps:
        rate = share_of_peak(job.recipe, job.first_step)
        print(f"Continuing after update {job.first_step - 1} with {rate:.0%} of the peak learning rates,")
        print(f"      because the schedule ends at update {job.recipe.total_steps}.")


def add_to_log(job: Job, entries: list[dict[str, Any]]) -> None:
    """Add entries to the run's log."""
    if job.team.first:
        append_log(Path(job.run.out) / LOG_NAME, entries)


def log_entries(steps: list[Step], out: str) -> list[dict[str, Any]]:
    """What the log says of some updates, read from the device at once.

    Raises ValueError naming the first whose loss or gradient norm is not finite; what was saved before is kept.
    """
    entries = list[dict[str, Any]]()
    read = torch.stack([torch.stack((step.loss, step.grad_norm)) for step in steps]).tolist()
    for step, (loss, norm) in zip(steps, read, strict=True):
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ValueError(f"update {step.step} has loss {loss} and gradient norm {norm}; {kept(out)}. {WHAT_TO_TRY}")
        entries.append({"update": step.step, "loss": loss, "grad_norm": norm, "lr_share": step.lr_share})
    return entries


def measure(job: Job, step: int) -> Evaluation | None:
    """Evaluate the model after an update, with a progress bar where it takes long; None without a validation text.

    Raises ValueError for weights and a validation loss that are not finite; what was saved before is kept.
    """
    check_state(job, step)
    if job.windows is None:
        return None
    n, hidden = sum(1 for _ in job.windows()), not job.team.first
    with tqdm(job.windows(), "evaluating", n, leave=False, disable=hidden, delay=1, dynamic_ncols=True) as windows:
        e = evaluate(job.model, windows, job.n_bytes, job.team)
    if not math.isfinite(e.nats_per_token):
        raise ValueError(
            f"after update {step} the validation loss is {e.nats_per_token}; {kept(job.run.out)}. {WHAT_TO_TRY}"
        )
    return e


def check_state(job: Job, step: int) -> None:
    """Raise ValueError for weights and optimizer states that are not finite; what was saved before is kept."""
    states = [value for state in job.optimizer.state.values() for value in state.values()]
    for what, tensors in (("weights", job.model.parameters()), ("optimizer states", filter(torch.is_tensor, states))):
        own = (getattr(t, "to_local", t.detach)() for t in tensors)  # of what lies in shards, the part that is here
        if job.team.any(not all(bool(t.isfinite().all()) for t in own)):
            raise ValueError(f"update {step} left {what} that are not finite; {kept(job.run.out)}. {WHAT_TO_TRY}")


def save_checkpoint(job: Job, step: int, e: Evaluation | None) -> Path:
    """Write the checkpoint of an update; of those before, the last one and the best are kept. Returns its folder.

    Raises ValueError for values that are not finite; what was saved before is kept.
    """
    check_state(job, step)
    extra = {"run": job.run.to_dict(), "train": job.recipe.to_dict(), "text_sha256": job.data.sha256}
    extra["machine"] = machine(job.team.device, job.recipe.precision, job.team.size)
    extra |= {} if e is None else {"validation_loss": e.nats_per_token}
    folder, parts = Path(job.run.out) / f"step_{step:06d}", (job.model, job.optimizer, job.batches, step)
    checkpoint.save(folder, *parts, tokenizer=job.data.tokenizer, extra=extra, team=job.team)
    if job.team.first:
        forget(folder)
    return folder


def progress_text(job: Job, step: Step, e: Evaluation | None, seconds: float) -> str:
    """The losses on both parts of the text, how far the floor is where it is known, and a sample."""
    lines = [f"\nupdate {step.step}, {seconds:.0f} s: training loss {step.loss.item():.3f}"]
    if e is not None:
        lines[0] += f", validation {e.nats_per_token:.3f} nats per token, {e.bits_per_byte:.3f} bits per byte"
        lines += distances(job, e.nats_per_token) if job.floor else []
    if job.run.sample_tokens:
        lines += ["    " + line for line in sample_text(job, step.step).splitlines()]
    return "\n".join(lines)


def distances(job: Job, nats_per_token: float) -> list[str]:
    """How far StoryWorld's floor is: for a story, and with words as tokens for each kind of look-back."""
    floor = entropy_per_story()
    lines = [f"{nats_per_token / job.floor.floor * floor:.2f} nats per story, and the floor is {floor:.2f}"]
    if isinstance(job.data.tokenizer, WordTokenizer):
        generator = torch.Generator().manual_seed(job.recipe.seed)
        found = gaps(job.model, job.data.tokenizer, [story(generator) for _ in range(STORIES_PER_LOOK)])
        kinds = ", ".join(f"{kind} {gap.right:.1%}" for kind, gap in found.items() if kind not in ("all", "other"))
        lines += [
            f"{found['all'].nats:.3f} nats per token above the floor, without the noise of a sample",
            f"right: {kinds}",
        ]
    return lines


def sample_text(job: Job, seed: int) -> str:
    """A sample, cut at the end of the line where lines are texts of their own: all processes write as many tokens."""
    device, n_ids = job.team.device, min(job.data.tokenizer.vocab_size, job.model.config.vocab_size)
    prompt = torch.tensor([job.data.tokenizer.encode(job.run.prompt)], device=device)
    options = {"temperature": 0.8, "vocab_size": n_ids, "generator": torch.Generator(device).manual_seed(seed)}
    tokens = generate(job.model, prompt, job.run.sample_tokens, **options)[0].tolist()
    text, n = job.data.tokenizer.decode(tokens), len(job.run.prompt)
    return text[:n] + text[n:].partition("\n")[0] if job.run.lines else text
