"""The folder of a run: an earlier run is set aside, the last two checkpoints and the best one are
kept.
"""

import math
import os
import re
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from ..training.checkpoint import MANIFEST, read_manifest
from .log import LOG_NAME

STEP = re.compile(r"step_(\d{6,})")  # the folder of a checkpoint


def set_aside(out: Path) -> None:
    """Rename the folder of an earlier run, so that a new one never overwrites or mixes with it.

    Raises ValueError for a folder that cannot be renamed, because we work in it or a disk is
    mounted there.
    """
    if not [*out.glob("step_*"), *out.glob(LOG_NAME)]:
        return
    if Path.cwd().is_relative_to(out.resolve()) or os.path.ismount(out):
        raise ValueError(
            f"{out} holds a run, and a folder in use cannot be renamed; choose another one for "
            "--out"
        )
    aside = next(path for n in count(1) if not (path := Path(f"{out}.{n}")).exists())
    out.rename(aside)
    print(f"The earlier run in {out} is now {aside}.")


def kept(out: str) -> str:
    """What is left of a run that failed."""
    if any(Path(out).glob("step_*/" + MANIFEST)):
        return f"the last checkpoint in {out} is kept"
    return f"nothing was saved in {out} yet"


def checkpoint_loss(folder: Path) -> float:
    """The validation loss that a checkpoint was saved with; infinity where there is none."""
    try:
        return read_manifest(folder)["extra"].get("validation_loss", math.inf)
    except (ValueError, OSError):
        return math.inf


def best_checkpoint(newest: Path) -> Path | None:
    """The checkpoint of the lowest validation loss in a run, up to the newest; None where none has
    one.
    """
    numbers = _numbers(newest.parent)
    losses = {p: checkpoint_loss(p) for p in numbers if numbers[p] <= numbers[newest]}
    best = min(losses, key=losses.get)
    return best if losses[best] < math.inf else None


def forget(newest: Path) -> None:
    """Delete the checkpoints before the newest, all but the last one and the best, and what a
    killed run left.

    The manifest is deleted first, so a folder that is deleted by half does not look like a
    checkpoint.
    """
    numbers = _numbers(newest.parent)
    before = sorted((p for p in numbers if numbers[p] < numbers[newest]), key=numbers.__getitem__)
    spared = [*[p for p in before if (p / MANIFEST).exists()][-1:], best_checkpoint(newest)]
    for old in before:
        if old not in spared:
            with suppress(OSError):
                (old / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(old, ignore_errors=True)


def _numbers(out: Path) -> dict[Path, int]:
    """The folders of checkpoints and the updates in their names."""
    return {p: int(match[1]) for p in sorted(out.iterdir()) if (match := STEP.fullmatch(p.name))}
