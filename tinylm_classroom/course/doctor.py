"""Is this machine ready for the course? Each finding comes with what to do about it."""

import importlib.metadata
import importlib.util
import math
import platform
import shutil
import sys
import timeit
from collections.abc import Iterator
from typing import NamedTuple

import torch

from tinylm_lib.model import TransformerLM
from tinylm_lib.presets import preset
from tinylm_lib.runs.machine import main_memory
from tinylm_lib.training.loop import choose_device

from ..display.numbers import marked, rounded
from ..folders import ROOT, WORK, has_lessons, usable_work

OLDEST = (3, 10)
NEWEST = (3, 13)
PACKAGES = ("jupyterlab", "ipywidgets", "anywidget", "matplotlib", "safetensors")
LIBRARY = ("numpy", "regex", "safetensors", "tqdm")
# What the library can do with further packages: one that shows whether they are there, their extra.
MORE = {
    "Hugging Face": ("huggingface_hub", "hf"),
    "GGUF": ("gguf", "gguf"),
    "tinylm page": ("anywidget", "lab"),
}
REINSTALL = "run the set-up again: make lab, or the pip line of the README"


class Observation(NamedTuple):
    """What was looked at, what was found, and how to fix it.

    An empty fix means that all is well.
    """

    what: str
    found: str
    fix: str = ""


def checkup() -> list[Observation]:
    """Look at everything that has gone wrong for somebody before."""
    return [*software(), memory(), own_folder(), disk(), speed(), device_agrees()]


def report(findings: list[Observation]) -> str:
    """One line per finding, how to fix it below it, and a summary."""
    lines = []
    for finding in findings:
        lines.append(f"{'fix ' if finding.fix else 'ok  '}  {finding.what:<16} {finding.found}")
        if finding.fix:
            lines.append(f"      -> {finding.fix}")
    broken = sum(bool(finding.fix) for finding in findings)
    verdict = (
        "This machine is ready."
        if not broken
        else (f"{broken} of {len(findings)} need a fix: see the arrows.")
    )
    return "\n".join([*lines, verdict])


def software() -> Iterator[Observation]:
    """The interpreter, the packages that are needed, and torch: its device and threads."""
    fits = OLDEST <= sys.version_info[:2] <= NEWEST
    fix = f"install Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} and set up again"
    yield Observation("Python", f"⟨{platform.python_version()}⟩", "" if fits else fix)
    for name in PACKAGES if has_lessons() else LIBRARY:
        found = _version(name)
        yield Observation(name, found or "missing", "" if found else REINSTALL)
    for what, (name, extra) in ({} if has_lessons() else MORE).items():
        install = f"not installed: python -m pip install 'tinylm-lib[{extra}]'"
        yield Observation(what, _version(name) or install)
    device = choose_device("auto").type
    found = f"⟨{torch.__version__}⟩, device ⟨{device}⟩, ⟨{torch.get_num_threads()} threads⟩"
    old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11)
    yield Observation("torch", found, "python -m pip install 'torch>=2.11'" if old else "")


def _version(name: str) -> str:
    """The version of an installed package, marked; empty for one that is not there."""
    is_there = importlib.util.find_spec(name) is not None
    return marked(importlib.metadata.version(name)) if is_there else ""


def memory() -> Observation:
    """Main memory, where the system reports it."""
    total = main_memory() / 2**30
    if math.isinf(total):
        return Observation("memory", "⟨unknown GiB⟩")
    fix = "close other programs; about 2 GiB must be free"
    return Observation("memory", f"⟨{rounded(total, 3)} GiB⟩", "" if total > 3 else fix)


def own_folder() -> Observation:
    """Where copies of lessons, kept parts and caches go."""
    try:
        folder = usable_work(WORK)
        return Observation(
            "work folder", "work, in the course" if folder == ROOT / "work" else str(folder)
        )
    except (OSError, ValueError) as error:
        return Observation("work folder", str(WORK), str(error))


def disk() -> Observation:
    """Free space where the work is kept."""
    free = (
        shutil.disk_usage(next(path for path in (WORK, *WORK.parents) if path.exists())).free
        / 2**30
    )
    return Observation(
        "free disk",
        f"⟨{rounded(free, 3)} GiB⟩",
        "" if free > 1 else ("free at least 1 GiB on this disk"),
    )


def speed() -> Observation:
    """The rate of a matrix product in fp32, the best of a few."""
    a = torch.randn(512, 512)
    rate = 2 * 512**3 / min(timeit.repeat(lambda: a @ a, number=1, repeat=20)) / 1e9
    fix = "plug in the charger and close other programs; all will take several times as long"
    return Observation("matrix product", f"⟨{rounded(rate, 3)} GFLOP/s⟩", "" if rate > 5 else fix)


def device_agrees() -> Observation:
    """The chosen device gives the CPU's logits, on a small model with everything in it."""
    device = choose_device("auto")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = preset(
            "modern", vocab_size=50, d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, max_seq_len=32
        )
        model = TransformerLM(config)
        ids = torch.randint(50, (2, 20))
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.5)
    with torch.no_grad():
        here = model(ids)
        there = model.to(device)(ids.to(device)).cpu()
    worst = (here - there).abs().max().item() / here.abs().max().item()
    fix = (
        f"this torch computes wrongly on {device.type}; use --device cpu, or install another torch"
    )
    return Observation(
        "same numbers", "on the chosen device as on the CPU", "" if worst < 1e-3 else fix
    )
