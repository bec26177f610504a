"""Measuring side by side, and the rows that come of it."""

import math
import operator
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from tinylm_lib.training.loop import multiplies_bf16

OPERATORS = {"≤": operator.le, "≥": operator.ge, "=": operator.eq}
# What a peer needs that is not installed with the tests.
REMEDIES = {
    "nanoGPT": "give --nanogpt PATH, a checkout of karpathy/nanoGPT",
    "minbpe": "give --minbpe PATH, a checkout of karpathy/minbpe",
    "Tiny Shakespeare": "give --shakespeare, with or without a FILE",
}


@dataclass(frozen=True)
class Settings:
    """What the user of the bench chose."""

    nanogpt: str | None = None
    minbpe: str | None = None
    shakespeare: str | None = None
    quick: bool = False
    seeds: int = 3

    def rounds(self, n: int) -> int:
        """How often to repeat what a full run repeats n times."""
        return max(3, n // 4) if self.quick else n


class Bar(NamedTuple):
    """What a row should reach: an operator of OPERATORS, a number, and whether it is about the
    ratio or our value.

    holds: where a miss counts, in words; a ratio of two things measured in one run holds on every
    processor.
    here: whether that is here. Elsewhere a row that misses its bar is not judged.
    """

    sign: str
    limit: float
    on: str = "ratio"
    holds: str = "any processor"
    here: bool = True

    def __str__(self) -> str:
        return f"{self.on} {self.sign} {self.limit:.3g}, {self.holds}"


class Spread(NamedTuple):
    """A number with the lowest and highest of its repetitions."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    `theirs` is None where there is nobody to compare with, or who it is was not given.
    """

    what: str
    ours: float
    unit: str = "s"
    peer: str = ""
    theirs: float | None = None
    ratio: Spread | None = None
    bar: Bar | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is none, it cannot be judged here, or its value
        was not measured.
        """
        value = getattr(self, self.bar.on) if self.bar else None
        if value is None:
            return None
        met = OPERATORS[self.bar.sign](
            value.middle if isinstance(value, Spread) else value, self.bar.limit
        )
        return met or (False if self.bar.here else None)

    def cells(self) -> list[str]:
        """The row as the table shows it."""
        theirs = (
            f"{self.peer} {show(self.theirs, self.unit)}" if self.theirs is not None else self.peer
        )
        unjudged = "not judged" if self.bar and not math.isnan(self.ours) else ""
        verdict = {True: "met", False: "NOT met", None: unjudged}[self.met]
        spread = str(self.ratio) if self.ratio else ""
        return [
            self.what,
            show(self.ours, self.unit),
            theirs,
            spread,
            str(self.bar or ""),
            verdict,
            self.note,
        ]

    def record(self) -> dict[str, Any]:
        """The row as plain values for JSON."""
        values = {**asdict(self), "bar": self.bar and str(self.bar), "met": self.met}
        values["ratio"] = self.ratio and self.ratio._asdict()
        return finite(values)


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """The same with None for NaN and infinities, which JSON does not know."""
    found = dict(values)
    for key, value in values.items():
        if isinstance(value, dict):
            found[key] = finite(value)
        elif isinstance(value, float) and not math.isfinite(value):
            found[key] = None
    return found


def show(value: float, unit: str) -> str:
    """A value with a unit that suits its size; nothing for NaN."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else "never"
    if unit == "s":
        factor, unit = next(
            (f, u) for f, u in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if value * f >= 1 or u == "µs"
        )
        return f"{value * factor:.3g} {unit}"
    number = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def alternate(
    works: dict[str, Callable[[], object]], rounds: int, warm_up: int = 1, times: int = 1
) -> dict[str, list[float]]:
    """Run every work once a round, in turn: A B A B. Returns the seconds of each, one per round
    after the warm-up.

    times: how often a short work is repeated in its turn; the seconds are those of one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for i in range(-warm_up, rounds):
        for name, work in works.items():
            start = time.perf_counter()
            for _ in range(times):
                work()
            if i >= 0:
                seconds[name].append((time.perf_counter() - start) / times)
    return seconds


@contextmanager
def threads(n: int) -> Iterator[str]:
    """Let torch compute with n threads. Yields that in words, for a note."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield f"{n} threads" if n > 1 else f"{n} thread"
    finally:
        torch.set_num_threads(before)


def ratio(ours: list[float], theirs: list[float]) -> Spread:
    """Ratio of the medians, with the lowest and highest ratio of values measured next to each
    other.
    """
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Spread(median(ours) / median(theirs), min(pairs), max(pairs))


def compare(
    what: str,
    values: dict[str, list[float]],
    peer: str,
    bar: Bar | None = None,
    note: str = "",
    unit: str = "s",
) -> Row:
    """A row from the repeated values of "ours" and of a peer; one that was not measured says how to
    get it.
    """
    ours = values["ours"]
    if peer not in values:
        fix = "; ".join(filter(None, (note, REMEDIES.get(peer, f"{peer} was not measured"))))
        return Row(what, median(ours), unit, f"{peer} not given", bar=bar, note=fix)
    theirs = values[peer]
    return Row(what, median(ours), unit, peer, median(theirs), ratio(ours, theirs), bar, note)


def table(rows: Iterable[Row]) -> Iterable[str]:
    """The lines of a Markdown table, each as soon as its row is there."""
    heads = ["what", "ours", "peer", "ratio (spread)", "bar", "", "note"]
    widths = [56, 10, 24, 25, 32, 10, 0]
    yield _line(heads, widths)
    yield "|" + "|".join("-" * max(w + 2, 3) for w in widths) + "|"
    for row in rows:
        yield _line(row.cells(), widths)


def _line(cells: list[str], widths: list[int]) -> str:
    padded = [c.replace("|", "/").ljust(w) for c, w in zip(cells, widths, strict=True)]
    return f"| {' | '.join(padded)} |"


def matmul_rate(
    m: int, k: int, n: int, dtype: torch.dtype, device: str = "cpu", rounds: int = 30
) -> float:
    """Floating-point operations per second of a product (m, k) @ (k, n), the best mean of ten."""
    a = torch.randn(m, k, device=device, dtype=dtype)
    b = torch.randn(k, n, device=device, dtype=dtype)

    def work() -> None:
        a @ b
        if device != "cpu":
            torch.cuda.synchronize()

    return 2 * m * k * n / min(alternate({"matmul": work}, rounds, times=10)["matmul"])


def small_and_large_rates(dtype: torch.dtype, quick: bool = False) -> tuple[float, float]:
    """Matmul rates at the sizes of a small training step (768 tokens, 128 to 512) and of 2048 x
    2048.
    """
    small = matmul_rate(768, 128, 512, dtype)
    return small, matmul_rate(2048, 2048, 2048, dtype, rounds=1 if quick else 5)


REFERENCE = "cores as fast as an EPYC of 2.6 GHz"  # where bars in seconds hold
PYTHON_SECONDS = 0.03  # a yardstick: what our bit of Python takes there


def seconds_bar(limit: float) -> Bar:
    """A bar on our own seconds; a miss counts if this processor runs Python as fast as the
    reference did.
    """
    best = min(alternate({"python": lambda: sum(i * i for i in range(300_000))}, 5)["python"])
    return Bar("≤", limit, "ours", REFERENCE, best <= PYTHON_SECONDS)


def bf16_bar(limit: float) -> Bar:
    """A bar on the ratio to fp32 work, for processors with instructions for products in bf16."""
    return Bar("≤", limit, holds="bf16 instructions", here=multiplies_bf16("cpu"))


def processor() -> str:
    """The name of the processor, with its bf16 instructions where the system lists them."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.is_file() else ""
    name = re.search(r"model name\s*: (.+)", text)
    known = [
        flag
        for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
        if re.search(rf"\b{flag}\b", text)
    ]
    return " ".join([name[1] if name else platform.processor() or platform.machine(), *known])


def machine(quick: bool = False) -> list[str]:
    """Lines that say where the figures come from."""
    lines = [
        f"{processor()}; {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()}",
    ]
    if torch.cuda.is_available():
        lines.append(torch.cuda.get_device_name())
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        small, large = small_and_large_rates(dtype, quick)
        lines.append(
            f"matmul {name}: {small / 1e9:.0f} GFLOP/s small (768, 128, 512), "
            f"{large / 1e9:.0f} at 2048^3"
        )
    if hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > 1:
        lines.append(
            f"NOT QUIET: the load was {load:.1f} when the run began; ratios hold better than times"
        )
    return lines
