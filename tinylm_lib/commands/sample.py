"""sample: a model continues a prompt, or answers in a dialogue."""

import argparse
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch

from ..model import TransformerLM
from ..pretrained import load_model
from ..quantization import QUANTIZED
from ..runs.settings import RunConfig
from ..text.base import Tokenizer
from ..training.loop import choose_device
from ..writing import stream_answer, stream_text

FLAGS = {
    "--prompt": (str, None, f"how the text begins (default {RunConfig.prompt!r})"),
    "--max-new-tokens": (int, 500, "length of the continuation, at most (default 500)"),
    "--temperature": (float, 0.8, "0 is greedy, 1 the model's own (default 0.8)"),
    "--top-k": (int, None, "keep the k most probable tokens"),
    "--top-p": (float, None, "keep the most probable tokens up to this total probability"),
    "--min-p": (float, None, "keep tokens with at least this fraction of the best probability"),
    "--seed": (int, None, "the same seed gives the same text; default: another text each time"),
    "--device": (str, "auto", "auto takes an accelerator, or else the cpu"),
}


def add_sample(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("sample", help="continue a prompt")
    p.set_defaults(do=run_sample)
    where = f"folder, GGUF file or id of a model, or a shipped name (default {RunConfig.out})"
    where = {"dest": "source", "metavar": "SOURCE", "default": RunConfig.out, "help": where}
    p.add_argument("--from", "--checkpoint", **where)
    for name, (kind, default, says) in FLAGS.items():
        p.add_argument(name, type=kind, default=default, help=says)
    says = "end before this text; can be repeated"
    p.add_argument("--stop", metavar="TEXT", action="append", help=says)
    says = (
        "a dialogue with a chat model: each line that you type is a turn, and Ctrl-D ends it; with "
        "--prompt one answer"
    )
    p.add_argument("--chat", action="store_true", help=says)
    says = "what the system says at the beginning of a dialogue; default: what the template says"
    p.add_argument("--system", metavar="TEXT", help=says)
    says = "weights in 8 bits: less memory, faster on a CPU"
    p.add_argument("--quantize", choices=QUANTIZED, help=says)


def run_sample(arguments: argparse.Namespace) -> None:
    """Stream the continuation of a prompt, or a dialogue."""
    if arguments.system is not None and not arguments.chat:
        raise ValueError("--system is for a dialogue; give --chat, too, or leave it out")
    device = choose_device(arguments.device)
    model, tokenizer = load_model(arguments.source, arguments.quantize)
    if arguments.seed is not None and arguments.seed.bit_length() > 63:
        raise ValueError(f"seed must fit into 64 bits, got {arguments.seed}")
    generator = torch.Generator(device)
    generator.seed() if arguments.seed is None else generator.manual_seed(arguments.seed)
    options = {
        name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p", "min_p")
    }
    options |= {"stop": arguments.stop or (), "generator": generator}
    options["max_new_tokens"] = arguments.max_new_tokens
    (_talk if arguments.chat else _continue)(model.to(device), tokenizer, arguments, options)


def _continue(
    model: TransformerLM, tokenizer: Tokenizer, arguments: argparse.Namespace, options: dict
) -> None:
    """Show a prompt and its continuation."""
    prompt = RunConfig.prompt if arguments.prompt is None else arguments.prompt
    _warn(len(tokenizer.encode(prompt)), model, "prompt")
    _show(chain([prompt], stream_text(model, tokenizer, prompt, **options)))


def _talk(
    model: TransformerLM, tokenizer: Tokenizer, arguments: argparse.Namespace, options: dict
) -> None:
    """Show the answers to the prompt, or to each line that is typed or piped in."""
    dialogue = [] if arguments.system is None else [("system", arguments.system)]
    tokenizer.turn_end()  # a model without a chat template is refused before anything is typed
    for said in _lines() if arguments.prompt is None else [arguments.prompt]:
        dialogue.append(("user", said))
        _warn(len(tokenizer.chat(dialogue)), model, "dialogue")
        dialogue.append(("assistant", _show(stream_answer(model, tokenizer, dialogue, **options))))


def _lines() -> Iterator[str]:
    """The lines that are typed or piped in, without empty ones."""
    is_terminal = sys.stdin.isatty()
    while True:
        try:
            line = input("> " if is_terminal else "")
        except EOFError:  # Ctrl-D, or the end of a pipe
            if is_terminal:
                print()
            return
        if line.strip():
            yield line


def _warn(n: int, model: TransformerLM, what: str) -> None:
    """Say that the model does not see the beginning of a text of n tokens, where that is so."""
    if n > (limit := model.config.max_seq_len):
        print(
            f"tinylm: the model sees only the last {limit} of the {what}'s {n} tokens",
            file=sys.stderr,
        )


def _show(pieces: Iterator[str]) -> str:
    """Print a text as it grows, and a line end. Returns the text."""
    shown = []
    for piece in pieces:
        print(piece, end="", flush=True)
        shown.append(piece)
    print()
    return "".join(shown)
