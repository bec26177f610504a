"""What a control shows at a few of its settings, stored for pages that have no kernel.

Only the build of the course asks for these frames: a run of a reader never computes one.
"""

import base64
import io
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from ipywidgets import (
    Checkbox,
    Dropdown,
    FloatSlider,
    IntSlider,
    RadioButtons,
    Select,
    SelectionSlider,
    ToggleButtons,
    Widget,
)
from PIL import Image

from .figures import spread

MIME = "application/vnd.tinylm.control+json"
SWITCH = "TINYLM_FRAMES"  # the build sets it to "on"
MOST_FRAMES = 20
MOST_BYTES = 150_000
SLIDERS = (IntSlider, FloatSlider, SelectionSlider)
LISTS = (Dropdown, RadioButtons, Select, SelectionSlider, ToggleButtons)
PICTURE = re.compile(r'src="data:image/png;base64,([A-Za-z0-9+/=]+)"')
MUCH = 0.12  # of the pixels
UNSEEN = 8  # of 255 levels: a difference that nobody sees between two pixels
COLORS = (256, 32)  # of a picture: what is tried until all frames are small enough


class Choice(NamedTuple):
    """An argument of the function: the values that it may have, and which of them is the first."""

    name: str
    values: Sequence[Any]
    labels: Sequence[str]
    at: int
    slides: bool

    def thinned(self, size: int) -> "Choice":
        """So many of the values, evenly spread, and always the first one among them."""
        places = spread(len(self.values), size) if size > 1 else [self.at]
        if self.at not in places:
            others = spread(len(self.values), size - 1) if size > 2 else [0]
            places = sorted({*others, self.at})
        values = [self.values[place] for place in places]
        labels = [self.labels[place] for place in places]
        return Choice(self.name, values, labels, places.index(self.at), self.slides)

    def stored(self) -> dict[str, Any]:
        """What a page knows of it."""
        labels = list(self.labels)
        return {"name": self.name, "labels": labels, "at": self.at, "slides": self.slides}


Setting = tuple[int, ...]  # the place of each argument's value in its choice


def are_wanted() -> bool:
    """Whether this run is a build of the course."""
    return os.environ.get(SWITCH) == "on"


def choice_of(widget: Widget) -> Choice:
    """What can be chosen with a widget; text that is typed has only the value that it has now."""
    value = widget.get_interact_value()
    slides = isinstance(widget, SLIDERS)
    if isinstance(widget, LISTS):
        labels, values = zip(*widget._options_full, strict=True)
        return Choice(widget._kwarg, values, labels, widget.index, slides)
    values = [value]
    if isinstance(widget, Checkbox):
        values = [False, True]
    elif slides:
        values = _steps(widget.min, widget.max, widget.step, value)
    labels = [f"{each:.6g}" if isinstance(each, float) else str(each) for each in values]
    return Choice(widget._kwarg, values, labels, values.index(value), slides)


def _steps(least: float, most: float, step: float, value: float) -> list[float]:
    """The values of a slider, and the one that it has, which may lie between two of them."""
    n_steps = int((most - least) / step + 1e-9)
    kind = type(value)
    return sorted({*(kind(f"{least + i * step:.10g}") for i in range(n_steps + 1)), value})


def plan(choices: Sequence[Choice], most: int) -> tuple[list[Choice], list[Setting]]:
    """The settings to store, and the choices that they are places of.

    These are all combinations if there are at most so many. Otherwise one argument at a time
    leaves its first value, and the longest slider, then the longest list, loses values.
    """
    sizes = [len(choice.values) for choice in choices]
    if prod(sizes) <= most:
        return list(choices), list(product(*map(range, sizes)))
    while 1 + sum(sizes) - len(sizes) > most:
        longest = max(
            range(len(sizes)), key=lambda i: (choices[i].slides and sizes[i] > 2, sizes[i])
        )
        sizes[longest] -= 1
    kept = [choice.thinned(size) for choice, size in zip(choices, sizes, strict=True)]
    first = tuple(choice.at for choice in kept)
    settings = [first]
    for i, choice in enumerate(kept):
        others = (place for place in range(len(choice.values)) if place != choice.at)
        settings += [(*first[:i], place, *first[i + 1 :]) for place in others]
    return kept, sorted(settings)


class Chance:
    """The state of all random numbers, to be set again."""

    def __init__(self) -> None:
        self.states = (random.getstate(), np.random.get_state(), torch.get_rng_state())

    def again(self) -> None:
        """From here the same random numbers come as from where this was made."""
        of_python, of_numpy, of_torch = self.states
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)


def stored(
    choices: Sequence[Choice],
    show: Callable[[dict[str, Any]], str],
    first: str,
    before: Chance,
    most: int = MOST_FRAMES,
) -> dict[str, Any]:
    """The choices of a control and its frames but the first, as HTML by the places of their values,
    such as "0,3".

    show: the HTML of these arguments. first: that of the first values, which is there already.
    before: the random numbers of the first run; each frame begins with the same ones.
    most: how many frames; there are fewer where so many would be too large to be stored.
    """
    start = perf_counter()
    after = Chance()
    known: dict[str, str] = {}  # by the arguments
    size = MOST_BYTES + 1
    while size > MOST_BYTES:
        kept, settings = plan(choices, most)
        first_key = _key(choice.at for choice in kept)
        shown = {}
        for setting in settings:
            places = zip(kept, setting, strict=True)
            arguments = {choice.name: choice.values[place] for choice, place in places}
            if _key(setting) == first_key:
                known[repr(arguments)] = first
            if repr(arguments) not in known:
                before.again()
                known[repr(arguments)] = show(arguments)
            shown[_key(setting)] = known[repr(arguments)]
        small = _small(shown, first_key)
        size = len(json.dumps(small))
        most = min(len(settings) - 1, len(settings) * MOST_BYTES // size)
    after.again()
    return {
        "choices": [choice.stored() for choice in kept],
        "first": first_key,
        "frames": small,
        "seconds": perf_counter() - start,
    }


def _key(setting: Iterable[int]) -> str:
    return ",".join(map(str, setting))


def with_first(data: dict[str, Any], html: str) -> dict[str, Any]:
    """The stored data with the first frame, which a notebook has only in the control's HTML."""
    _, _, first = html.partition("</p>")  # the note on the settings is before it
    return {**data, "frames": {**data["frames"], data["first"]: first}}


class Picture(NamedTuple):
    """A stored picture, and the pixels (height, width, 3) that a page shows of it."""

    stored: str
    pixels: np.ndarray


def _small(frames: dict[str, str], first: str) -> dict[str, str]:
    """The frames but the first, by their settings: in all colours if that is small enough, and
    otherwise in a few.
    """
    packed = {}
    for colors in COLORS:
        packed = _packed(frames, first, colors)
        if len(json.dumps(packed)) <= MOST_BYTES:
            break
    return packed


def _packed(frames: dict[str, str], first: str, colors: int) -> dict[str, str]:
    """The frames but the first. Their pictures are WebP, which is smaller than PNG."""
    known: dict[str, list[np.ndarray]] = {}
    packed = {}
    for setting in sorted(frames, key=lambda setting: setting != first):
        drawn = [_pixels(png) for png in PICTURE.findall(frames[setting])]
        if setting == first:
            known[setting] = drawn
            continue
        pictures = [_stored(pixels, known, i, colors) for i, pixels in enumerate(drawn)]
        known[setting] = [picture.pixels for picture in pictures]
        parts = PICTURE.split(frames[setting])
        parts[1::2] = [picture.stored for picture in pictures]
        packed[setting] = "".join(parts)
    return packed


def _pixels(png: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB"))


def _stored(
    pixels: np.ndarray, known: dict[str, list[np.ndarray]], place: int, colors: int
) -> Picture:
    """A picture as what differs from the most similar one before it, or by itself where that is
    much.
    """
    grounds = {
        setting: pictures[place]
        for setting, pictures in known.items()
        if len(pictures) > place and pictures[place].shape == pixels.shape
    }
    if grounds:
        most_alike = min(grounds, key=lambda at: _differs(pixels, grounds[at], step=2).sum())
        ground = grounds[most_alike]
        differs = _differs(pixels, ground)
        if differs.mean() < MUCH:
            above = np.zeros((*differs.shape, 4), np.uint8)  # transparent
            above[differs, :3] = _reduced(pixels[differs], colors)
            above[differs, 3] = 255
            shown = np.where(differs[..., None], above[..., :3], ground)
            return Picture(f'{_source(above)} data-over="{most_alike}"', shown)
    whole = _reduced(pixels.reshape(-1, 3), colors).reshape(pixels.shape)
    return Picture(_source(whole), whole)


def _differs(one: np.ndarray, other: np.ndarray, step: int = 1) -> np.ndarray:
    """Where (height, width) a reader could see that two pictures differ; of each axis one in
    `step`.
    """
    one = one[::step, ::step]
    other = other[::step, ::step]
    return (np.maximum(one, other) - np.minimum(one, other)).max(-1) > UNSEEN


def _reduced(pixels: np.ndarray, colors: int) -> np.ndarray:
    """Pixels (n, 3) in at most so many colours."""
    if not len(pixels):
        return pixels
    row = Image.fromarray(pixels[None])
    row = row.quantize(colors, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    return np.asarray(row.convert("RGB"))[0]


def _source(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="webp", lossless=True, quality=100, method=4)
    return f'src="data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"'
