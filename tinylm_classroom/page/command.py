"""Writes a trained model as one HTML file, in which it writes: keep it, publish it, or send it to a
friend.

    python -m tinylm_lib page SOURCE [--to my_model.html] [--title TITLE] [--beginning TEXT]
                              [--trained-on TEXT]

The page needs no network and no Python. It takes models of up to 5 million parameters with the
choices of the preset "modern" (see tinylm_classroom/live/record.py for what it refuses).
"""

import argparse
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

from tinylm_lib.pretrained import load_model

from .export import export_page


def main(argv: Sequence[str] = ()) -> int:
    """Writes the page and prints its path and size; returns the exit status.

    Raises what `load_model` and `export_page` raise.
    """
    options = _parser().parse_args(list(argv))
    model, tokenizer = load_model(options.source)
    path = export_page(
        model,
        tokenizer,
        options.to,
        title=options.title,
        beginning=options.beginning,
        trained_on=options.trained_on,
    )
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser")
    return 0


def _parser() -> argparse.ArgumentParser:
    default = {name: each.default for name, each in signature(export_page).parameters.items()}
    parser = argparse.ArgumentParser(
        prog="python -m tinylm_lib page", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    says = "folder, GGUF file or id of a model, or the name of a shipped one (storyworld)"
    parser.add_argument("source", metavar="SOURCE", help=says)
    says = f"the file to write (default {default['path']})"
    parser.add_argument("--to", type=Path, metavar="FILE", default=default["path"], help=says)
    says = f"what the page is called (default {default['title']!r})"
    parser.add_argument("--title", default=default["title"], help=says)
    says = f"how the first text begins (default {default['beginning']!r}, a line end)"
    parser.add_argument("--beginning", metavar="TEXT", default=default["beginning"], help=says)
    says = (
        "what the model was trained on, in a few words for the page (default: nothing is said, "
        "unless it is shipped)"
    )
    parser.add_argument("--trained-on", metavar="TEXT", default=default["trained_on"], help=says)
    return parser
