"""The command line: python -m tinylm_lib train | sample | eval | doctor | lab. Flags come from the config records."""

import argparse
import math
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from .config import FAMILIES, ModelConfig, Record, TrainConfig, check_record, choice, field_types, option, preset


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


def add_flags(parser: argparse.ArgumentParser, record: type[Record], title: str) -> None:
    """Give the parser one flag per field. A flag that is not used leaves no trace: defaults stay in the record."""
    group = parser.add_argument_group(title)
    for f in fields(record):
        kinds = [k for k in field_types(f) if k is not type(None)]
        if issubclass(kinds[0], Record):
            continue
        how: dict[str, Any] = {"type": kinds[0], "metavar": kinds[0].__name__.upper()}
        if kinds == [bool]:
            how = {"action": argparse.BooleanOptionalAction}
        elif "choices" in f.metadata:
            how = {"choices": f.metadata["choices"]}
        default = "derived" if f.default is None else f.default
        help_text = f"{f.metadata['help']} (default {default})".replace("%", "%%")
        group.add_argument(f"--{f.name.replace('_', '-')}", default=argparse.SUPPRESS, help=help_text, **how)


def given(arguments: argparse.Namespace, record: type[Record]) -> dict[str, Any]:
    """The fields of a record that the user set."""
    names = {f.name for f in fields(record)}
    return {name: value for name, value in vars(arguments).items() if name in names}


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        prog="python -m tinylm_lib", description="Train, sample and measure a language model."
    )
    commands = top.add_subparsers(dest="command", required=True)

    p = commands.add_parser("train", help="train a model on text", formatter_class=argparse.HelpFormatter)
    p.add_argument("--preset", choices=list(FAMILIES), default="modern", help="architecture (default modern)")
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    for record, title in ((RunConfig, "the run"), (TrainConfig, "the recipe"), (ModelConfig, "the model")):
        add_flags(p, record, title)
    p.set_defaults(run=run_train)

    p = commands.add_parser("sample", help="continue a prompt")
    p.add_argument("--checkpoint", default=RunConfig.out, help=f"folder of a checkpoint (default {RunConfig.out})")
    p.add_argument("--prompt", default=RunConfig.prompt, help=f"how the text begins (default {RunConfig.prompt!r})")
    p.add_argument("--max-new-tokens", type=int, default=500, help="length of the continuation (default 500)")
    p.add_argument("--temperature", type=float, default=0.8, help="0 is greedy, 1 the model's own (default 0.8)")
    p.add_argument("--top-k", type=int, help="keep the k most probable tokens")
    p.add_argument("--top-p", type=float, help="keep the most probable tokens up to this share")
    p.add_argument("--min-p", type=float, help="keep tokens with at least this share of the best one's probability")
    p.add_argument("--seed", type=int, help="the same seed gives the same text; default: another text each time")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")
    p.set_defaults(run=run_sample)

    p = commands.add_parser("eval", help="measure a checkpoint on the validation text")
    p.add_argument("checkpoint", nargs="?", default=RunConfig.out, help=f"its folder (default {RunConfig.out})")
    p.add_argument("--corpus", help="another text, taken whole; default: the validation text of the training run")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")
    p.set_defaults(run=run_eval)

    p = commands.add_parser("doctor", help="check this machine and say what to mend")
    p.set_defaults(run=run_doctor)

    p = commands.add_parser("lab", help="open the lessons in JupyterLab")
    p.set_defaults(run=run_lab)
    return top


def validation_windows(text: str, tokenizer: Any, seq_len: int) -> tuple[Callable[[], Iterator], int]:
    """Return a function that cuts the windows of a text anew, and the bytes that their targets stand for."""
    import torch

    from .data import every_window

    ids = tokenizer.encode(text)
    if len(ids) < 2:
        raise ValueError(f"the validation text has {len(ids)} tokens; give more text or a larger validation_share")
    n_bytes = len(text.encode("utf-8")) - len(tokenizer.decode(ids[:1]).encode("utf-8"))
    return lambda: every_window(torch.tensor(ids), 32, seq_len), n_bytes


def configure(arguments: argparse.Namespace) -> tuple[RunConfig, TrainConfig, dict[str, Any]]:
    """The run and the recipe that the flags ask for, and the model's fields among the flags."""
    model = given(arguments, ModelConfig)
    recipe = TrainConfig.from_dict(given(arguments, TrainConfig))
    model.setdefault("max_seq_len", recipe.seq_len)
    if recipe.seq_len > model["max_seq_len"]:
        raise ValueError(f"seq_len {recipe.seq_len} exceeds max_seq_len {model['max_seq_len']}; lower the first")
    return RunConfig.from_dict(given(arguments, RunConfig)), recipe, model


def resumed(arguments: argparse.Namespace) -> tuple[Any, RunConfig, TrainConfig]:
    """The last checkpoint in --out with its run and recipe.

    Raises ValueError for a flag that contradicts them.
    """
    from . import checkpoint

    found = checkpoint.load(checkpoint.latest(given(arguments, RunConfig).get("out", RunConfig.out)))
    if "train" not in found.extra:
        raise ValueError("this checkpoint was not made by train, so it cannot be resumed here")
    stored = {**found.model.config.to_dict(), **found.extra["train"], "corpus": found.extra["run"]["corpus"]}
    flags = {**given(arguments, ModelConfig), **given(arguments, TrainConfig), **given(arguments, RunConfig)}
    if differing := [name for name in flags if name in stored and flags[name] != stored[name]]:
        raise ValueError(
            "a resumed run keeps its settings; leave out "
            + ", ".join(f"--{n.replace('_', '-')} (it is {stored[n]})" for n in differing)
        )
    run = RunConfig.from_dict({**found.extra["run"], **given(arguments, RunConfig)})
    return found, run, TrainConfig.from_dict(found.extra["train"])


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


class Job(NamedTuple):
    """Everything that a training run works with."""

    run: RunConfig
    recipe: TrainConfig
    model: Any
    tokenizer: Any
    optimizer: Any
    batches: Any
    windows: Callable[[], Iterator]
    n_bytes: int
    first_step: int


def prepare(arguments: argparse.Namespace) -> Job:
    """Build the run from the flags, or from the last checkpoint."""
    import torch

    from .data import RandomWindows, load_corpus, split
    from .model import TransformerLM
    from .optim import build_optimizer
    from .tokenizer import TOKENIZERS
    from .training import choose_device

    found = None
    if arguments.resume:
        found, run, recipe = resumed(arguments)
    else:
        run, recipe, choices = configure(arguments)
    device = choose_device(run.device)
    training, validation = split(load_corpus(run.corpus), run.validation_share)
    torch.manual_seed(recipe.seed)
    if found is None:
        tokenizer = TOKENIZERS[run.tokenizer].from_text(training + validation)
        if choices.setdefault("vocab_size", tokenizer.vocab_size) < tokenizer.vocab_size:
            raise ValueError(f"vocab_size {choices['vocab_size']} is below the tokenizer's {tokenizer.vocab_size}")
        model = TransformerLM(preset(arguments.preset, **choices)).to(device)
    else:
        tokenizer, model = found.tokenizer, found.model.to(device)
    tokenizer.encode(run.prompt)
    windows, n_bytes = validation_windows(validation, tokenizer, recipe.seq_len)
    ids = torch.tensor(tokenizer.encode(training), dtype=torch.int32)
    batches = RandomWindows(ids, recipe.batch_size, recipe.seq_len, recipe.seed, device)
    optimizer = build_optimizer(model, recipe)
    if found is not None:
        found.restore(model, optimizer, batches)
    first_step = 1 if found is None else found.step + 1
    return Job(run, recipe, model, tokenizer, optimizer, batches, windows, n_bytes, first_step)


def keep(job: Job, step: int) -> Path:
    """Write the checkpoint of an update and delete those before the last two. Returns its folder."""
    from . import checkpoint

    out = Path(job.run.out)
    extra = {"run": job.run.to_dict(), "train": job.recipe.to_dict()}
    folder = out / f"step_{step:06d}"
    checkpoint.save(folder, job.model, job.optimizer, job.batches, step, tokenizer=job.tokenizer, extra=extra)
    for old in sorted(out.glob("step_*/" + checkpoint.MANIFEST))[:-2]:
        shutil.rmtree(old.parent, ignore_errors=True)
    return folder


def set_aside(out: Path) -> None:
    """Rename the folder of an earlier run, so that a new one never overwrites or mixes with it."""
    if any(out.glob("step_*")):
        number = next(n for n in range(1, 10_000) if not Path(f"{out}.{n}").exists())
        out.rename(f"{out}.{number}")
        print(f"The earlier run in {out} is now {out}.{number}.")


def run_train(arguments: argparse.Namespace) -> None:
    """Train, show how it goes, and keep the last two checkpoints."""
    from .training import train

    job = prepare(arguments)
    run, recipe = job.run, job.recipe
    show_start(job)
    if job.first_step > recipe.total_steps:
        print(f"Nothing left to do: the run in {run.out} has had its {recipe.total_steps} updates.")
        return
    if not arguments.resume:
        set_aside(Path(run.out))
    progress = Progress(job)
    with stop_on_ctrl_c() as stopped, progress.bar:
        for step in train(job.model, job.optimizer, job.batches, recipe, job.first_step):
            last = step.step == recipe.total_steps or bool(stopped)
            progress.show(step, last)
            if last or step.step % run.eval_every == 0:
                folder = keep(job, step.step)
            if last:
                break
    if stopped:
        print(f"Stopped after update {step.step}, saved in {folder}. Go on with: {resume_line(run)}")
    else:
        print(f"Saved in {folder}. Write with it: python -m tinylm_lib sample{where(run)} --prompt {run.prompt!r}")


def where(run: RunConfig, flag: str = "--checkpoint") -> str:
    """The flag that names the run's folder, where it is not the default."""
    return "" if run.out == RunConfig.out else f" {flag} {run.out}"


def resume_line(run: RunConfig) -> str:
    """The command that goes on with a run."""
    return f"python -m tinylm_lib train --resume{where(run, '--out')}"


def show_start(job: Job) -> None:
    """Say what is about to happen, before it does."""
    from .cost import count_parameters

    run, recipe, model, n_tokens, first = job.run, job.recipe, job.model, len(job.batches.tokens), job.first_step
    config, device = model.config, model.embed.weight.device
    sizes = f"{config.n_layers} layers, d_model {config.d_model}, {config.n_heads} heads"
    print(f"Model: {count_parameters(config).total:,} parameters ({sizes}) on {device}, {recipe.precision}.")
    print(
        f"Text: {run.corpus}, {n_tokens:,} {run.tokenizer} to learn from; last {run.validation_share:.0%} kept apart."
    )
    print(f"Knowing nothing costs ln {config.vocab_size} = {math.log(config.vocab_size):.2f} nats per token.")
    if first > 1:
        print(f"Going on after update {first - 1} of {recipe.total_steps}.")


class Progress:
    """The progress bar, the evaluation lines and the samples of a training run."""

    def __init__(self, job: Job):
        from tqdm import tqdm

        self.job, self.started = job, time.perf_counter()
        steps = {"total": job.recipe.total_steps, "initial": job.first_step - 1}
        self.bar = tqdm(**steps, unit="step", dynamic_ncols=True, mininterval=0.5)

    def show(self, step: Any, last: bool) -> None:
        """Move the bar; look at the loss every 10 updates and evaluate when it is time.

        Raises ValueError for a loss that is not finite: what was saved before is kept.
        """
        self.bar.update()
        evaluate_now = last or step.step % self.job.run.eval_every == 0
        if not evaluate_now and step.step % 10:
            return
        loss, norm = step.loss.item(), step.grad_norm.item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ValueError(
                f"update {step.step} has loss {loss} and gradient norm {norm}; the last checkpoint in "
                f"{self.job.run.out} is kept. Try a lower --peak-lr, more --warmup-steps or --precision fp32"
            )
        self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        if evaluate_now:
            self.evaluate(step.step, loss)

    def evaluate(self, step: int, loss: float) -> None:
        """Print the losses on both parts of the text, and a sample."""
        import torch

        from .evaluation import evaluate
        from .sampling import generate

        model, tokenizer = self.job.model, self.job.tokenizer
        e = evaluate(model, self.job.windows(), self.job.n_bytes)
        seconds = time.perf_counter() - self.started
        self.bar.write(
            f"\nupdate {step}, {seconds:.0f} s: training loss {loss:.3f}, validation {e.nats_per_token:.3f} nats "
            f"per token, {e.bits_per_byte:.3f} bits per byte"
        )
        if self.job.run.sample_tokens:
            device = model.embed.weight.device
            prompt = torch.tensor([tokenizer.encode(self.job.run.prompt)], device=device)
            generator = torch.Generator(device).manual_seed(step)
            ids = generate(model, prompt, self.job.run.sample_tokens, temperature=0.8, generator=generator)
            self.bar.write("    " + tokenizer.decode(ids[0].tolist()).replace("\n", "\n    "))


def run_sample(arguments: argparse.Namespace) -> None:
    """Stream the continuation of a prompt."""
    import torch

    from . import checkpoint
    from .sampling import stream
    from .training import choose_device

    device = choose_device(arguments.device)
    found = checkpoint.load(checkpoint.latest(arguments.checkpoint))
    if found.tokenizer is None:
        raise ValueError(f"the checkpoint in {arguments.checkpoint} was saved without a tokenizer")
    model = found.model.to(device)
    tokens = found.tokenizer.encode(arguments.prompt)
    ids = torch.tensor([tokens], dtype=torch.long, device=device)
    generator = torch.Generator(device)
    generator.seed() if arguments.seed is None else generator.manual_seed(arguments.seed)
    options = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    steps = stream(model, ids, arguments.max_new_tokens, generator=generator, **options)
    print(arguments.prompt, end="", flush=True)
    shown = len(found.tokenizer.decode(tokens))
    for step in steps:
        tokens.append(step.item())
        text = found.tokenizer.decode(tokens)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            print(text[shown:], end="", flush=True)
            shown = len(text)
    print(found.tokenizer.decode(tokens)[shown:])


def run_eval(arguments: argparse.Namespace) -> None:
    """Measure a checkpoint."""
    from . import checkpoint
    from .data import load_corpus, split
    from .evaluation import evaluate
    from .training import choose_device

    device = choose_device(arguments.device)
    folder = checkpoint.latest(arguments.checkpoint)
    found = checkpoint.load(folder)
    if found.tokenizer is None or (arguments.corpus is None and "run" not in found.extra):
        raise ValueError(
            f"{folder} was saved without its tokenizer or corpus; give --corpus, or a folder made by train"
        )
    if arguments.corpus is None:
        corpus, share = found.extra["run"]["corpus"], found.extra["run"]["validation_share"]
        text, what = split(load_corpus(corpus), share)[1], f"the last {share:.0%} of {corpus}"
    else:
        text, what = load_corpus(arguments.corpus), f"all of {arguments.corpus}"
    windows, n_bytes = validation_windows(text, found.tokenizer, found.model.config.max_seq_len)
    e = evaluate(found.model.to(device), windows(), n_bytes)
    print(f"{folder} (update {found.step}) on {what}, {e.n_tokens:,} tokens:")
    print(f"  {e.nats_per_token:.4f} nats per token, perplexity {e.perplexity:.3f}")
    print(f"  {e.bits_per_byte:.4f} bits per byte")


def run_doctor(arguments: argparse.Namespace) -> None:
    """Check the machine; exit with 1 where something must be mended."""
    from .classroom.doctor import checkup, report

    findings = checkup()
    print(report(findings))
    if any(finding.fix for finding in findings):
        raise SystemExit(1)


def run_lab(arguments: argparse.Namespace) -> None:
    """Open the lessons."""
    from .classroom import lab

    lab.main([])


def main(argv: list[str] | None = None) -> int:
    """Run one command; a mistake of the user's is one line on stderr and exit code 2."""
    arguments = parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (ValueError, TypeError, OSError) as e:
        print(f"tinylm: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ntinylm: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
