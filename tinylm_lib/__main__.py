"""The command line: python -m tinylm_lib train | sample | eval | doctor | lab. Flags come from the config records."""

import argparse
import re
import sys
from dataclasses import fields
from typing import Any

import torch

from .config import ModelConfig, Record, TrainConfig, field_types
from .data.corpora import load_corpus
from .model import TransformerLM
from .presets import FAMILIES
from .pretrained import load_hf, load_hf_tokenizer
from .runs.job import RunConfig, begin, find_run, go_on, split_text, validation_windows
from .runs.run import work
from .sampling import stream
from .text.base import Tokenizer
from .training import checkpoint
from .training.distributed import join
from .training.evaluation import evaluate
from .training.loop import choose_device

RECORDS = {RunConfig: "the run", TrainConfig: "the recipe", ModelConfig: "the model"}
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # a character whose bytes have not all come yet


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        prog="python -m tinylm_lib", description="Train, sample and measure a language model."
    )
    commands = top.add_subparsers(dest="command", required=True)
    p = commands.add_parser("train", help="train a model on text")
    p.set_defaults(do=run_train)
    p.add_argument("--preset", choices=list(FAMILIES), help="architecture (default modern)")
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    for record, title in RECORDS.items():
        add_flags(p.add_argument_group(title), record)
    p = commands.add_parser("sample", help="continue a prompt")
    p.set_defaults(do=run_sample)
    where = p.add_mutually_exclusive_group()
    where.add_argument("--checkpoint", default=RunConfig.out, help=f"folder of a checkpoint (default {RunConfig.out})")
    where.add_argument("--from", dest="hugging_face", metavar="PATH_OR_ID", help="a Hugging Face model: folder or id")
    p.add_argument("--prompt", default=RunConfig.prompt, help=f"how the text begins (default {RunConfig.prompt!r})")
    p.add_argument("--max-new-tokens", type=int, default=500, help="length of the continuation (default 500)")
    p.add_argument("--temperature", type=float, default=0.8, help="0 is greedy, 1 the model's own (default 0.8)")
    p.add_argument("--top-k", type=int, help="keep the k most probable tokens")
    p.add_argument("--top-p", type=float, help="keep the most probable tokens up to this share")
    p.add_argument("--min-p", type=float, help="keep tokens with at least this share of the best one's probability")
    p.add_argument("--seed", type=int, help="the same seed gives the same text; default: another text each time")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")
    p = commands.add_parser("eval", help="measure a checkpoint")
    p.set_defaults(do=run_eval)
    p.add_argument("checkpoint", nargs="?", default=RunConfig.out, help=f"its folder (default {RunConfig.out})")
    p.add_argument("--corpus", help="another text, taken whole; default: the validation text of the training run")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")
    commands.add_parser("doctor", help="check this machine and say what to fix").set_defaults(do=run_doctor)
    p = commands.add_parser("lab", help="open the lessons in JupyterLab: lab [NN] [--solutions] [its own options]")
    p.set_defaults(do=run_lab)
    return top


def add_flags(group: Any, record: type[Record]) -> None:
    """Add one flag per field. A flag that is not used leaves no trace: defaults stay in the record."""
    for f in fields(record):
        kind = field_types(f)[0]
        if issubclass(kind, Record):
            continue
        how: dict[str, Any] = {"type": kind, "metavar": kind.__name__.upper()}
        if kind is bool:
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


def run_train(arguments: argparse.Namespace) -> None:
    """Train a new model, or go on with one."""
    flags = {record: given(arguments, record) for record in RECORDS}
    if arguments.resume:
        if arguments.preset:
            raise ValueError("a resumed run keeps its settings; leave out --preset")
        found, run = find_run({name: value for some in flags.values() for name, value in some.items()})
        with join(run.strategy, choose_device(run.device)) as team:
            work(go_on(found, run, team))
        return
    run, recipe = RunConfig.from_dict(flags[RunConfig]), TrainConfig.from_dict(flags[TrainConfig])
    with join(run.strategy, choose_device(run.device)) as team:
        work(begin(run, recipe, arguments.preset or "modern", flags[ModelConfig], team))


def opened(arguments: argparse.Namespace) -> tuple[TransformerLM, Tokenizer]:
    """The model and the tokenizer that the user names.

    Raises ValueError for a checkpoint without a tokenizer.
    """
    if arguments.hugging_face is not None:
        return load_hf(arguments.hugging_face), load_hf_tokenizer(arguments.hugging_face)
    found = checkpoint.load(checkpoint.latest(arguments.checkpoint))
    if found.tokenizer is None:
        raise ValueError(f"the checkpoint in {arguments.checkpoint} was saved without a tokenizer")
    return found.model, found.tokenizer


def run_sample(arguments: argparse.Namespace) -> None:
    """Stream the continuation of a prompt."""
    device = choose_device(arguments.device)
    model, tokenizer = opened(arguments)
    tokens = [*tokenizer.beginning, *tokenizer.encode(arguments.prompt)]
    if not tokens:
        raise ValueError("the prompt is empty; a model continues at least one token")
    ids = torch.tensor([tokens], device=device)
    if arguments.seed is not None and arguments.seed.bit_length() > 63:
        raise ValueError(f"seed must fit into 64 bits, got {arguments.seed}")
    generator = torch.Generator(device)
    generator.seed() if arguments.seed is None else generator.manual_seed(arguments.seed)
    options = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    steps = stream(model.to(device), ids, arguments.max_new_tokens, generator=generator, **options)
    print(arguments.prompt, end="", flush=True)
    shown = tokenizer.decode(tokens)
    for step in steps:
        tokens.append(step.item())
        written = tokenizer.decode(tokens)
        if not written.endswith(UNFINISHED):
            print(written[len(shown) :], end="", flush=True)
            shown = written
    print(tokenizer.decode(tokens)[len(shown) :])


def run_eval(arguments: argparse.Namespace) -> None:
    """Measure a checkpoint."""
    device = choose_device(arguments.device)
    folder = checkpoint.latest(arguments.checkpoint)
    found = checkpoint.load(folder)
    if found.tokenizer is None or (arguments.corpus is None and "run" not in found.extra):
        raise ValueError(
            f"{folder} was saved without its tokenizer or corpus; give --corpus, or a folder made by train"
        )
    run = RunConfig.from_dict(found.extra["run"] if arguments.corpus is None else {"corpus": arguments.corpus})
    text, what = load_corpus(run.corpus), f"all of {run.corpus}"
    if arguments.corpus is None:
        text, what = split_text(text, run)[1], f"the last {run.validation_share:.0%} of {run.corpus}"
    windows, n_bytes = validation_windows(text, found.tokenizer, found.model.config.max_seq_len, run.lines)
    e = evaluate(found.model.to(device), windows(), n_bytes)
    print(f"{folder} (update {found.step}) on {what}, {e.n_tokens:,} tokens:")
    print(f"  {e.nats_per_token:.4f} nats per token, perplexity {e.perplexity:.3f}")
    print(f"  {e.bits_per_byte:.4f} bits per byte")


def run_doctor(arguments: argparse.Namespace) -> None:
    """Check the machine; exit with 1 where something must be mended."""
    from .classroom.course.doctor import checkup, report

    findings = checkup()
    print(report(findings))
    if any(finding.fix for finding in findings):
        raise SystemExit(1)


def run_lab(arguments: argparse.Namespace) -> None:
    """Open the lessons."""
    from .classroom.course import lab

    raise SystemExit(lab.main(arguments.others))


def in_one_line(text: str) -> str:
    """A text whose line breaks and other characters that do not print are written as \\n and the like."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def lack_of_memory(e: Exception) -> str:
    """What to tell the user where memory ran out; "" for other errors. On a CPU only its text tells."""
    signs = "can't allocate memory|not enough memory|Storage size calculation overflowed"
    if not isinstance(e, MemoryError | torch.OutOfMemoryError) and not re.search(signs, str(e)):
        return ""
    size = re.search(r"allocate (\d[\d.]* ?\w+)", str(e))
    remedy = "lower --batch-size, --seq-len, --max-seq-len, --d-model or --n-layers"
    return f"there is not enough memory{f' for another {size[1]}' if size else ''}; {remedy}"


def main(argv: list[str] | None = None) -> int:
    """Run one command; a mistake of the user's is one line on stderr and exit code 2."""
    top = parser()
    arguments, others = top.parse_known_args(argv)
    if [] in vars(arguments).values():
        top.error("-- cannot be the value of a flag")  # what argparse makes of --prompt=--
    arguments.others = others
    if others and arguments.do is not run_lab:
        top.error(f"unrecognized arguments: {in_one_line(' '.join(others))}")
    try:
        arguments.do(arguments)
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as e:
        print(f"tinylm: {in_one_line(str(e))}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as e:
        if not (lack := lack_of_memory(e)):
            raise
        print(f"tinylm: {lack}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ntinylm: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
