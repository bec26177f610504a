"""One page on a model of one's own: whose its parts are, what its training reached, and what it
writes.
"""

import atexit
import math
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from itertools import count
from pathlib import Path
from string import Template
from urllib.parse import quote

from tinylm_lib.cost import count_parameters
from tinylm_lib.files import explained, whole_file
from tinylm_lib.model import TransformerLM

from ..display import figures
from ..display.cards import number_table
from ..display.numbers import rounded
from ..display.theme import page_head
from ..exercises import find_exercise
from ..folders import WORK, own
from .build import Use
from .own_text import Look, OwnText
from .parity import Parity
from .parts import is_off, read_parts

# What lesson 20 takes from the library, whatever is kept.
ALWAYS = (
    "the model around them, its first weights, the tokenizer, the training loop, the optimizer, "
    "the sampling and the export"
)


def model_folder(name: str) -> Path:
    """Make a new folder for a model: work/yours/NAME, with a number behind it where there is one
    already.

    name: of the text, such as `notes.txt`. Where the workshop is off it is temporary, removed when
    Python ends.
    """
    stem = re.sub(r"[^\w-]+", "-", Path(name).stem).strip("-") or "text"
    if is_off():
        place = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, place, ignore_errors=True)
    else:
        place = WORK / "yours"
    folder = next(
        each for n in count(1) if not (each := place / (stem if n == 1 else f"{stem}-{n}")).exists()
    )
    folder.mkdir(parents=True)
    return folder


def model_report(
    path: Path,
    model: TransformerLM,
    text: OwnText,
    looks: Sequence[Look],
    *,
    sample: str,
    title: str = "My language model",
    tested: Sequence[Parity] = (),
    links: Mapping[str, Path] | None = None,
    compressor: float | None = None,
) -> Path:
    """Write the report as one HTML file, which loads nothing.

    path: the file; an older one is replaced. model: of `build`. looks: its training; the best is
    that of the model.
    sample: what it writes. tested: the parity of its parts. links: what else was made, by what it
    is called, next to the report or below. compressor: the bits per byte that a compressor needs
    for the held-out text after the training text.
    Returns the path. Raises ValueError for no looks and for a model that `build` did not make,
    OSError where the file cannot be written.
    """
    if not looks:
        raise ValueError("there is no training to report: pass the looks of learn(model, text)")
    if not hasattr(model, "uses"):
        raise ValueError(
            "the report says whose the parts are, so the model must come from build(config)"
        )
    parts = read_parts()
    kept = {part.name for part in parts if part.status == "done"}
    n = count_parameters(model.config).total
    updates = f"{best_look(looks).step} of {looks[-1].step} updates"
    checks = f"{len(kept)} of {len(parts)} parts of the course are kept and pass their checks"
    facts = [
        *_facts(text, looks, compressor),
        ("Checks", checks),
        *_linked(links or {}, path.parent),
    ]
    page = Template(own("workshop/report.html")).substitute(
        head=page_head(title),
        title=escape(title),
        summary=escape(
            f"{n:,} parameters after {updates} on {text.name}, {text.n_bytes / 1000:,.0f} KB."
        ),
        good="".join(f"<li>{escape(line)}</li>" for line in _good(model, text, looks, compressor)),
        honest=escape(_honest(model.uses, kept)),
        facts="".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts),
        sample=escape(sample.strip("\n")),
        figures=_curve(text, looks),
        parts=_parts(model.uses, tested, kept),
    )
    with explained("the report", path), whole_file(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return path


def best_look(looks: Sequence[Look]) -> Look:
    """The look with the lowest held-out loss."""
    return min(looks, key=lambda look: look.held_out)


def _good(
    model: TransformerLM,
    text: OwnText,
    looks: Sequence[Look],
    compressor: float | None,
) -> Iterator[str]:
    """What is good about the model, the best first, as far as it is so."""
    best = best_look(looks)
    bits = text.bits_per_byte(best.held_out)
    if compressor is not None and bits < compressor:
        yield (
            f"For text that it has never read it needs {bits:.2f} bits per byte; the compressor "
            f"lzma needs {compressor:.2f}."
        )
    V = model.config.vocab_size
    if best.held_out < math.log(V):
        yield (
            f"It chooses the next token as if among {math.exp(best.held_out):,.1f} equally likely "
            f"ones; a model that knows nothing chooses among {V:,}."
        )
    yield "Its page runs it in a browser, without a network and without Python."


def _honest(uses: Sequence[Use], kept: Collection[str]) -> str:
    """Whose the model is, in two lines."""
    mine = [use.name for use in uses if use.places]
    others = [use.name for use in uses if use.name not in kept]
    return (
        f"Its author's own parts: {', '.join(mine) or 'none'}. From the library: "
        f"{', '.join([*others, ALWAYS])}."
    )


def _facts(
    text: OwnText, looks: Sequence[Look], compressor: float | None
) -> Iterator[tuple[str, str]]:
    best = best_look(looks)
    floor = text.floor
    bits = text.bits_per_byte(best.held_out)
    yield "Held-out loss", f"{best.held_out:.2f} nats per token, {bits:.2f} bits per byte"
    if compressor is not None:
        compared = "more" if compressor > bits else "not more"
        yield "Compressor", f"lzma needs {compressor:.2f} bits per byte, {compared} than the model"
    yield (
        "Best after",
        f"{best.step} of {looks[-1].step} updates; its training loss was {best.training:.2f}",
    )
    yield (
        "Floor",
        "not known: nobody has the exact probabilities of this text"
        if floor is None
        else f"{floor:.2f} nats per token: the model is {best.held_out - floor:.2f} above it",
    )
    yield "Repeated", f"{text.repeated:.0%} of the held-out text is in the training text as it is"


def _linked(links: Mapping[str, Path], here: Path) -> Iterator[tuple[str, str]]:
    for name, target in links.items():
        shown = target.relative_to(here).as_posix()
        yield escape(name), f'<a href="{escape(quote(shown))}">{escape(shown)}</a>'


def _curve(text: OwnText, looks: Sequence[Look]) -> str:
    steps = [look.step for look in looks]
    series = {
        "training": [look.training for look in looks],
        "held out": [look.held_out for look in looks],
    }
    with figures.axes("Loss while training", "update", "loss (nats per token)") as (figure, ax):
        for name, losses in series.items():
            ax.plot(steps, losses, marker="o", label=name)
        if text.floor is not None:
            ax.axhline(text.floor, color=figures.QUIET, linestyle=":", label="floor")
        ax.legend()
    best = best_look(looks)
    alt = (
        f"The held-out loss goes from {looks[0].held_out:.2f} to {looks[-1].held_out:.2f}, lowest "
        f"at {best.step}."
    )
    rows = [[str(look.step), f"{look.training:.2f}", f"{look.held_out:.2f}"] for look in looks]
    caption = (
        "Where the curves part, the model learns its text by heart. The weights are those of the "
        "lowest point."
    )
    return figures.framed(figure, alt, caption, number_table(["update", *series], rows))


def _parts(uses: Sequence[Use], tested: Sequence[Parity], kept: Collection[str]) -> str:
    found = {part.name: part for part in tested}
    rows = []
    for use in uses:
        if use.places:
            whose = "its author's"
        elif use.name in kept:
            whose = "not called"
        else:
            whose = "the library's"
        part = found.get(use.name)
        apart = ""
        if part and not part.why:
            apart = rounded(max(part.logits, part.cached, part.gradients), 1)
        places = str(use.places or "")
        rows.append([use.name, find_exercise(use.name).lesson, whose, places, apart, use.why])
    head = [
        "part",
        "lesson",
        "whose",
        "places",
        "largest relative difference",
        "why it is not its author's",
    ]
    names = "".join(f"<th scope=col>{name}</th>" for name in head)
    lines = [f"<tr>{names}</tr>"]
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    table = f"<div class=wide><table>{''.join(lines)}</table></div>"
    return f"<details><summary>All {len(uses)} parts, one by one</summary>{table}</details>"
