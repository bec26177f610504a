"""What tests of views share: the shipped model, a tokenizer of numbers, and what a notebook stores of a view."""

import re
from functools import cache

import torch

from tinylm_classroom.views.base import DIGITS, View
from tinylm_lib.pretrained import load_pretrained

WIDGET = "application/vnd.jupyter.widget-view+json"
shipped = cache(lambda: load_pretrained("storyworld"))


class Numbers:
    """A tokenizer that names each id."""

    def decode(self, tokens: list[int]) -> str:
        return " ".join(f"w{token}" for token in tokens)


def stored(view: View) -> dict:
    """The output of a cell, but for the id of the live widget."""
    return {name: data for name, data in view._repr_mimebundle_()[0].items() if name != WIDGET}


def table_rows(html: str) -> list[list[str]]:
    """The cells of all tables, row by row."""
    return [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def ask(view: View, **request: object) -> dict:
    """What a view shows after its kernel has answered a request."""
    view._handle_custom_msg(request, [])
    return view.data


def unpacked(kept: dict, rows: int) -> torch.Tensor:
    """What `packed` wrote, read by its definition."""
    parts, places = [], kept["places"]
    for unit, text in zip(kept["units"], kept["digits"], strict=True):
        pieces = [text[at : at + places] for at in range(0, len(text), places)]
        whole = [sum(DIGITS.index(d) * 64**n for n, d in enumerate(reversed(piece))) for piece in pieces]
        parts.append((torch.tensor(whole).double() - 64**places // 2) * unit)
    return torch.stack(parts).unflatten(1, (rows, -1))
