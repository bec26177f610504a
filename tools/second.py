"""Train the second model of lesson 16 on one core, in ten minutes, and write it in 8 bits next to
the experiments of the classroom: python tools/second.py
"""

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from weights import RECIPE, make

from tinylm_classroom.experiments.second import write_second
from tinylm_lib.training.checkpoint import load


def main() -> None:
    """Train and write."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        make(Path(folder), replace(RECIPE, total_steps=1800, seed=2), n_stories=60_000)
        write_second(load(folder).model)


if __name__ == "__main__":
    sys.exit(main())
