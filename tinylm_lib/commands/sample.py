"""sample: a model continues a prompt."""

import argparse
import sys
from itertools import chain
from typing import Any

import torch

from ..pretrained import load_model
from ..quantization import QUANTIZED
from ..runs.job import RunConfig
from ..training.loop import choose_device
from ..writing import stream_text

FLAGS = {
    "--prompt": (str, RunConfig.prompt, f"how the text begins (default {RunConfig.prompt!r})"),
    "--max-new-tokens": (int, 500, "length of the continuation, at most (default 500)"),
    "--temperature": (float, 0.8, "0 is greedy, 1 the model's own (default 0.8)"),
    "--top-k": (int, None, "keep the k most probable tokens"),
    "--top-p": (float, None, "keep the most probable tokens up to this total probability"),
    "--min-p": (float, None, "keep tokens with at least this fraction of the best probability"),
    "--seed": (int, None, "the same seed gives the same text; default: another text each time"),
    "--device": (str, "auto", "auto takes the first of cuda, mps and cpu"),
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
    says = "weights in 8 bits: less memory, faster on a CPU"
    p.add_argument("--quantize", choices=QUANTIZED, help=says)


def run_sample(arguments: argparse.Namespace) -> None:
    """Stream the continuation of a prompt."""
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
    if (n := len(tokenizer.encode(arguments.prompt))) > (limit := model.config.max_seq_len):
        print(
            f"tinylm: the model sees only the last {limit} of the prompt's {n} tokens",
            file=sys.stderr,
        )
    pieces = stream_text(
        model.to(device), tokenizer, arguments.prompt, arguments.max_new_tokens, **options
    )
    for piece in chain([arguments.prompt], pieces, ["\n"]):
        print(piece, end="", flush=True)
