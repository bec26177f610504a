"""The command line: python -m tinylm_lib train | sample | eval | tokens, and what an entry point
adds to it.
"""

import argparse
import os
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path

import torch

from . import __version__
from .commands import COMMANDS
from .files import print_anything


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    name = "tinylm" if Path(sys.argv[0]).stem == "tinylm" else "python -m tinylm_lib"
    top = argparse.ArgumentParser(
        prog=name, description="Train, sample and measure a language model."
    )
    top.add_argument("--version", action="version", version=f"tinylm {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    added = [entry.load() for entry in entry_points(group="tinylm.commands")]
    for add in (*COMMANDS, *added):
        add(commands)
    # a checkout that is not installed, or was before the course had a package of its own
    if not added:
        top.usage = (
            f"{name} command [options]; lab and others come with: python -m pip install -e ."
        )
    return top


def in_one_line(text: str) -> str:
    """A text whose line breaks and other characters that do not print are written as \\n and the
    like.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def failure(e: Exception) -> str:
    """What to say of a mistake of the user's and of a machine that lacks something; "" for other
    errors.

    On a CPU only the text of an error shows that memory ran out.
    """
    if isinstance(e, ValueError | TypeError | OSError | ModuleNotFoundError):
        return str(e) or type(e).__name__
    if isinstance(e, RuntimeError) and isinstance(e, torch._dynamo.exc.TorchDynamoException):
        return (
            f"--compile does not work here ({str(e).strip().splitlines()[0]}). It needs a C++ "
            "compiler (on Linux g++, on macOS that of xcode-select --install, on Windows Visual "
            "Studio's), on a GPU Triton; or leave it out"
        )
    signs = "can't allocate memory|not enough memory|Storage size calculation overflowed"
    if not isinstance(e, MemoryError | torch.OutOfMemoryError) and not re.search(signs, str(e)):
        return ""
    size = re.search(r"allocate (\d[\d.]* ?\w+)", str(e))
    fix = "lower --batch-size, --seq-len, --max-seq-len, --d-model or --n-layers"
    return f"there is not enough memory{f' for another {size[1]}' if size else ''}; {fix}"


def main(argv: list[str] | None = None) -> int:
    """Run one command; a mistake of the user's is one line on stderr and exit code 2."""
    print_anything()
    top = parser()
    arguments, others = top.parse_known_args(argv)
    if [] in vars(arguments).values():
        top.error("-- cannot be the value of a flag")  # what argparse makes of --prompt=--
    if hasattr(arguments, "others"):  # a command that reads its flags itself
        arguments.others = others
    elif others:
        top.error(f"unrecognized arguments: {in_one_line(' '.join(others))}")
    try:
        arguments.do(arguments)
    except BrokenPipeError:  # nobody reads on, as with `| head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as e:
        if not (message := failure(e)):
            raise
        print(f"tinylm: {in_one_line(message)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ntinylm: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
