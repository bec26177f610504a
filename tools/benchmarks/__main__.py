"""Speed, memory and loss compared with the peers, measured on this machine and printed as one
table: make bench.
"""

import argparse
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import torch

from tinylm_lib.data.corpora import load_corpus

from . import ablation, decoding, gpu, grading, learning, live, quantized, recipe, steps, text
from .measure import Row, Settings, machine, table
from .peers import load_minbpe, load_nanogpt

ROWS: dict[str, Callable[[Settings], Iterator[Row]]] = {
    **recipe.ROWS,
    **ablation.ROWS,
    **steps.ROWS,
    **decoding.ROWS,
    **quantized.ROWS,
    **text.ROWS,
    **gpu.ROWS,
    **grading.ROWS,
    **live.ROWS,
    **learning.ROWS,
}
LONG = [
    *recipe.ROWS,
    *ablation.ROWS,
    *learning.ROWS,
    "int8-pydoc",
]  # minutes each: a quick run leaves them out


def parser() -> argparse.ArgumentParser:
    """The options."""
    p = argparse.ArgumentParser(prog='make bench ARGS="..."', description=__doc__)
    p.add_argument(
        "--nanogpt", metavar="PATH", help="a checkout of karpathy/nanoGPT to compare with"
    )
    p.add_argument("--minbpe", metavar="PATH", help="a checkout of karpathy/minbpe to compare with")
    p.add_argument(
        "--shakespeare",
        metavar="FILE",
        nargs="?",
        const="shakespeare",
        help=(
            "Tiny Shakespeare, for the recipe and the tokenizers; "
            "without FILE it is downloaded once and kept"
        ),
    )
    p.add_argument(
        "--only", metavar="NAME[,NAME]", help="measure these rows alone; --list names them"
    )
    p.add_argument(
        "--quick", action="store_true", help="fewer repetitions, and no long rows: about a minute"
    )
    p.add_argument("--seeds", type=int, default=3, help="runs of our recipe (default 3)")
    p.add_argument("--json", metavar="FILE", help="write the figures there too")
    p.add_argument("--list", action="store_true", help="name the rows and stop")
    return p


def chosen(only: str | None, quick: bool) -> list[str]:
    """The names of the rows to measure.

    Raises ValueError for a name that is not a row.
    """
    names = only.split(",") if only else [name for name in ROWS if not (quick and name in LONG)]
    if unknown := [name for name in names if name not in ROWS]:
        raise ValueError(f"there is no row {', '.join(unknown)}; choose from {', '.join(ROWS)}")
    return names


def settings(options: argparse.Namespace) -> Settings:
    """What was chosen, with every path tried.

    Raises FileNotFoundError or ConnectionError for what is not where it should be, ValueError for
    seeds below 1.
    """
    if options.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {options.seeds}")
    if options.nanogpt:
        load_nanogpt(options.nanogpt)
    if options.minbpe:
        load_minbpe(options.minbpe)
    if options.shakespeare:
        load_corpus(options.shakespeare)
    return Settings(
        options.nanogpt, options.minbpe, options.shakespeare, options.quick, options.seeds
    )


def measured(names: list[str], s: Settings, rows: list[Row]) -> Iterator[Row]:
    """Measure row after row, and append each to `rows`; one that fails says so, and the others
    continue.
    """
    for name in names:
        torch.manual_seed(0)
        try:
            for row in ROWS[name](s):
                rows.append(row)
                yield row
        except Exception as error:
            rows.append(Row(name, math.nan, note=f"FAILED: {type(error).__name__}: {error}"))
            yield rows[-1]


def main(arguments: list[str] | None = None) -> int:
    """Print the table. Returns 1 where a row failed."""
    options = parser().parse_args(arguments)
    if options.list:
        for name, measure in ROWS.items():
            print(f"{name:<16} {' '.join(measure.__doc__.split())}")
        return 0
    try:
        names = chosen(options.only, options.quick)
        s = settings(options)
    except (ValueError, FileNotFoundError, ConnectionError) as error:
        parser().error(str(error))
    start = time.perf_counter()
    about = machine(s.quick)
    rows = []
    if not torch.cuda.is_available() and (skipped := [name for name in names if name in gpu.ROWS]):
        about.append(f"no CUDA device: {', '.join(skipped)} not run")
        names = [name for name in names if name not in skipped]
    print(*about, "", sep="\n")
    # torch.compile's remarks on recompiling would cut the table
    logging.getLogger("torch").setLevel(logging.ERROR)
    for line in table(measured(names, s, rows)):
        print(line, flush=True)
    met, missed, unjudged = (
        sum(bool(row.bar) and row.met is verdict for row in rows) for verdict in (True, False, None)
    )
    print(
        f"\n{met} bars met, {missed} not met, {unjudged} not judged here; "
        f"{time.perf_counter() - start:.0f} s."
    )
    if options.json:
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        figures = {"date": date, "machine": about, "rows": [row.record() for row in rows]}
        Path(options.json).write_text(
            json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return int(any(row.note.startswith("FAILED") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
