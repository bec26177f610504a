"""Interactive views: alive with a kernel and in an exported page, elsewhere a picture and its
numbers.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import anywidget
import torch
from matplotlib.figure import Figure
from torch import Tensor
from traitlets import Bool, Dict

from tinylm_lib.model import TransformerLM
from tinylm_lib.pretrained import load_pretrained

from ..display.figures import SHARPNESS, framed
from ..display.picture import WithPicture
from ..display.theme import css
from ..live.record import live_record
from ..live.scripts import engine_script
from ..live.stories import stories_record
from ..shapes.capture import Captured, capture
from .typed import for_readers

SCRIPTS = Path(__file__).parent
MIME = "application/vnd.tinylm.view+json"
SHARED = "shared"
LIVE = SCRIPTS.parent / "live"
# a script that a module begins with, because others do, too
SHARED_WITH = {"training": "run", "rewards": "run", "watch": "record"}
# what a module takes from the script of the same name there
FROM_LIVE = {"sampling": "nextTokenProbs"}
# modules that compute with the model itself, in the browser; without it their picture stays
WITH_ENGINE = [module for module, part in SHARED_WITH.items() if part == "record"]
WANTS_RECORD = {"wants": "record"}  # the message by which `recordOf` of record.js asks a kernel
# whole lines; a notebook stores the other ones
COMMENTS = re.compile(r"^ *(?://|/\*\*|\*(?=[ /\n])).*\n", re.MULTILINE)
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class View(WithPicture, anywidget.AnyWidget):
    """A module of the browser, the data that it draws, and what is shown without scripts: HTML and
    text.

    module: the name of a script next to this file, which exports `render({model, el})` and reads
    `model.get("data")`.
    data: what JSON can hold, numbers rounded; with it alone an exported page draws the same.
    answer: where a kernel adds something, what it answers to a request of the module: the entries
    of data that change.
    record: for a module that computes with the model itself, what `recordOf` gives it where no page
    has the model; see `computable`. It is sent when the module asks, and never stored.
    """

    data = Dict().tag(sync=True)
    live = Bool(False).tag(sync=True)

    def __init__(
        self,
        module: str,
        data: dict[str, Any],
        *,
        html: str,
        text: str,
        answer: Answer | None = None,
        record: Callable[[], dict[str, Any]] | None = None,
    ):
        self.module = module
        self.html = html
        self.text = text
        self.answer = answer
        self.record = record
        super().__init__(
            _esm=f"{source(SHARED)}\n{source(module)}", data=data, live=answer is not None
        )
        if answer is not None or record is not None:
            self.on_msg(View._hear)

    def _hear(self, request: dict[str, Any], buffers: Any) -> None:
        if request == WANTS_RECORD and self.record is not None:
            self.send({**self.record(), "engine": engine_script()})
            return
        if self.answer is None:
            return
        try:
            self.data = {**self.data, **self.answer(request), "error": ""}
        except (ValueError, TypeError) as e:
            self.data = {**self.data, "error": for_readers(e)}
        self.send("heard")  # an answer that changes nothing would look like silence

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle, metadata = super()._repr_mimebundle_(**kwargs)
        ours = {
            MIME: {"module": self.module, "data": self.data},
            "text/html": self.html,
            "text/plain": self.text,
        }
        return {**bundle, **ours}, metadata


def pictured(
    module: str,
    data: dict[str, Any],
    figure: Figure,
    *,
    text: str,
    alt: str,
    caption: str,
    numbers: str,
    answer: Answer | None = None,
    record: Callable[[], dict[str, Any]] | None = None,
    sharpness: float = SHARPNESS,
) -> View:
    """A view with a figure to show without scripts. numbers: the tables of the figure, as HTML."""
    html = framed(figure, alt, caption, numbers, flat=True, sharpness=sharpness)
    return View(module, data, html=html, text=text, answer=answer, record=record)


def source(module: str) -> str:
    """The JavaScript of a module without its comments; what all share begins with the look.

    Raises: ValueError, listing what there is, for an unknown one.
    """
    path = SCRIPTS / f"{module}.js"
    if not path.exists():
        known = sorted(
            each.stem
            for each in SCRIPTS.glob("*.js")
            if each.stem not in (SHARED, *SHARED_WITH.values())
        )
        raise ValueError(f"no view module {module!r}; there are {', '.join(known)}")
    before = f"const PALETTE = {json.dumps(css())};\n" if module == SHARED else ""
    if part := SHARED_WITH.get(module):
        before = source(part) + "\n"
    if taken := FROM_LIVE.get(module):
        body = indent((LIVE / path.name).read_text(encoding="utf-8"), "  ")
        before = f"const {taken} = (() => {{\n{body}  return {taken};\n}})();\n"
    return before + COMMENTS.sub("", path.read_text(encoding="utf-8"))


def json_in_html(data: Any) -> str:
    """Data that a script element may contain."""
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def page_model(model: TransformerLM, tokenizer: Any) -> dict[str, str]:
    """The entry of data by which a page that has this very model answers as a kernel; none if no
    page can have it.
    """
    try:
        return {"model": live_record(model, tokenizer)["fingerprint"]}
    except (TypeError, ValueError):
        return {}


def computable(model: TransformerLM, tokenizer: Any) -> dict[str, Any]:
    """What a browser computes with: the `record` of live_record and, where the tokens are
    StoryWorld's words, its exact probabilities as `stories`, otherwise None.

    Raises: as `live_record`, for a model or a tokenizer that a page cannot compute with.
    """
    record = live_record(model, tokenizer)
    is_story = tokenizer.to_dict() == load_pretrained("storyworld").tokenizer.to_dict()
    return {"record": record, "stories": stories_record() if is_story else None}


def few_digits(values: Any) -> Any:
    """A number, or all numbers of a tensor or of lists in lists, to 5 significant digits: what a
    view stores.
    """
    if isinstance(values, Tensor):
        values = values.tolist()
    return (
        [few_digits(each) for each in values]
        if isinstance(values, list)
        else float(f"{values:.5g}")
    )


def packed(values: Tensor, places: int) -> dict[str, Any]:
    """The numbers of each part along a tensor's first axis as text, `places` digits of base 64
    each, and their unit.

    One digit has 31 steps from 0 to the part's largest number, two have 2047; in the browser
    `unpacked` reads them.
    """
    half = len(DIGITS) ** places // 2
    powers = [len(DIGITS) ** place for place in reversed(range(places))]
    units = []
    digits = []
    for part in values.double():
        unit = float(f"{part.abs().max().clamp_min(1e-9).item() / (half - 1):.6g}")
        # 1 to 2 half - 1
        whole = (part / unit).round().clamp(1 - half, half - 1).long().flatten() + half
        units.append(unit)
        text = ""
        for n in whole.tolist():
            text += "".join(DIGITS[n // power % len(DIGITS)] for power in powers)
        digits.append(text)
    return {"places": places, "units": units, "digits": digits}


# a text, as the model and as a reader sees it


def ids_of(
    tokenizer: Any, text_or_ids: str | Sequence[int] | Tensor, least: int, most: int
) -> Tensor:
    """The ids (T) of a text, or of a batch of one.

    Raises: ValueError for fewer or more tokens than can be shown.
    """
    encoded = tokenizer.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
    ids = torch.as_tensor(encoded, dtype=torch.long).flatten()  # (T)
    if not least <= len(ids) <= most:
        fix = "take a shorter piece of the text" if len(ids) > most else "take a longer one"
        raise ValueError(f"the view shows {least} to {most} tokens, not {len(ids)}: {fix}")
    return ids


def capture_ids(model: TransformerLM, ids: Tensor) -> Captured:
    """Every value inside the model while it reads ids (T), as a batch of one."""
    return capture(model, ids[None].to(next(model.parameters()).device))


def check_index(name: str, value: int, size: int) -> None:
    """Raises ValueError for a layer or head that the model does not have."""
    if not 0 <= value < size:
        raise ValueError(
            f"{name} {value} is not one of the model's {size}, which count from 0 to {size - 1}"
        )


def leading_blanks(text: str) -> str:
    """The blanks and line ends that a text begins with."""
    return text[: len(text) - len(text.lstrip())]


def readable(token: str) -> str:
    """A token as a cell shows it: without the blanks around it, and with a sign for invisible
    characters.
    """
    return token.strip(" ").replace("\n", "↵").replace("\t", "⇥") or "␣"


def readable_tokens(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """Each token by itself, readable."""
    return [readable(tokenizer.decode([token])) for token in ids]


def named(token: str) -> str:
    """A readable token as a sentence shows it: signs in quotes."""
    return token if any(map(str.isalnum, token)) else f"“{token}”"
