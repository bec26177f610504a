"""Interactive views: alive beside a kernel and in an exported page, elsewhere a picture and its numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
from torch import Tensor
from traitlets import Bool, Dict

from ..display.theme import css

SCRIPTS = Path(__file__).parent
MIME = "application/vnd.tinylm.view+json"
SHARED = "shared"
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class View(anywidget.AnyWidget):
    """A module of the browser, the data that it draws, and what stands in its place without scripts: HTML and text.

    module: the name of a script beside this file, which exports `render({model, el})` and reads `model.get("data")`.
    data: what JSON can hold, numbers rounded; with it alone an exported page draws the same.
    answer: where a kernel adds something, what it answers to a request of the module: the entries of data that change.
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
        answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ):
        self.module, self.html, self.text, self.answer = module, html, text, answer
        super().__init__(_esm=f"{source(SHARED)}\n{source(module)}", data=data, live=answer is not None)
        if answer is not None:
            self.on_msg(View._hear)

    def _hear(self, request: dict[str, Any], buffers: Any) -> None:
        try:
            self.data = {**self.data, **self.answer(request), "error": ""}
        except (ValueError, TypeError) as e:
            self.data = {**self.data, "error": str(e)}

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle, metadata = super()._repr_mimebundle_(**kwargs)
        ours = {MIME: {"module": self.module, "data": self.data}, "text/html": self.html, "text/plain": self.text}
        return {**bundle, **ours}, metadata


def source(module: str) -> str:
    """The JavaScript of a module; what all share begins with the look.

    Raises: ValueError, listing what there is, for an unknown one.
    """
    path = SCRIPTS / f"{module}.js"
    if not path.exists():
        known = sorted(each.stem for each in SCRIPTS.glob("*.js") if each.stem != SHARED)
        raise ValueError(f"no view module {module!r}; there are {', '.join(known)}")
    look = f"const PALETTE = {json.dumps(css())};\n" if module == SHARED else ""
    return look + path.read_text(encoding="utf-8")


def few_digits(values: Tensor) -> list[Any]:
    """The numbers of a tensor, elementwise to 5 significant digits: what a view stores."""

    def short(value: Any) -> Any:
        return [short(each) for each in value] if isinstance(value, list) else float(f"{value:.5g}")

    return short(values.tolist())


def packed(values: Tensor, places: int) -> dict[str, Any]:
    """The numbers of each part along a tensor's first axis as text, `places` digits of base 64 each, and their unit.

    One place tells 31 steps from 0 to the part's largest number, two tell 2047; in the browser `unpacked` reads them.
    """
    half = len(DIGITS) ** places // 2
    powers = [len(DIGITS) ** place for place in reversed(range(places))]
    units, digits = [], []
    for part in values.double():
        unit = float(f"{part.abs().max().clamp_min(1e-9).item() / (half - 1):.6g}")
        whole = (part / unit).round().clamp(1 - half, half - 1).long().flatten() + half  # 1 to 2 half - 1
        units.append(unit)
        digits.append("".join(DIGITS[n // power % len(DIGITS)] for n in whole.tolist() for power in powers))
    return {"places": places, "units": units, "digits": digits}


def readable(token: str) -> str:
    """A token as it stands in a cell: without the blanks around it, and with a sign for what cannot be seen."""
    return token.strip(" ").replace("\n", "↵").replace("\t", "⇥") or "␣"


def named(token: str) -> str:
    """A readable token as it stands in a sentence: signs in quotes."""
    return token if any(map(str.isalnum, token)) else f"“{token}”"
