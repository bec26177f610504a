"""Run lessons as on Colab: its versions, the notebook alone in a folder, and the library installed
by the notebook's first cell.

    python tools/colab                     every lesson, and five of them in frames
    python tools/colab 00 05               these, without frames
    python tools/colab 05 --frames 05      and one in frames

The first cell takes its way through Colab: a stand-in for Colab's package is there, and pip gets a
wheel of this checkout instead of the repository's address, with nothing from the network. Frames
show each view as Colab does: in a window of its own, from where only messages reach the kernel. A
click must change it. They need Chromium and npm.

The environment is made in work/cache/colab, once, which takes minutes.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from colab.environment import ROOT, build_wheel, changed, prepare  # noqa: E402
from colab.lessons import VIEW, Run, running  # noqa: E402

NOTEBOOKS = ROOT / "notebooks"
IN_FRAMES = ["00", "04", "05", "12", "16"]
NEWEST = (3, 12)  # of the Pythons that IPython 7 runs on


def views_of(run: Run) -> str:
    """How many views of each kind a lesson shows: `5 predict, 1 sampling`."""
    kinds = Counter(data.get(VIEW, {"module": "control"})["module"] for data, _ in run.views())
    return ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())


def faults_of(run: Run) -> list[str]:
    """What a reader on Colab would miss."""
    found = [run.error] if run.error else []
    found += [f"says {text.strip()}" for text in run.complaints()]
    found += [
        f"a {data[VIEW]['module']} does not name Colab's widget manager"
        for data, metadata in run.views()
        if VIEW in data and not metadata
    ]
    return found


def main() -> int:
    """Returns 1 if a lesson fails, or a view does not live."""
    parser = argparse.ArgumentParser(
        prog="python tools/colab", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("lessons", nargs="*", metavar="NN", help="two digits; all if none is named")
    parser.add_argument("--frames", nargs="*", metavar="NN", help="of these, also in frames")
    options = parser.parse_args()
    if sys.version_info[:2] > NEWEST:
        print("NOT RUN AS ON COLAB: its IPython needs Python 3.12 or older")
        return 0
    names = options.lessons or [path.name[:2] for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]
    framed = options.frames if options.lessons else options.frames or IN_FRAMES
    prepare()
    wheel = build_wheel()
    failed = 0
    for name in names:
        (path,) = NOTEBOOKS.glob(f"{name}_*.ipynb")
        with running(path, wheel) as run:
            faults = faults_of(run)
            if name in (framed or ()) and not run.error:
                from colab.frames import faults_in_frames

                faults += faults_in_frames(run, path.stem)
        failed += bool(faults)
        verdict = "FAILED" if faults else "ok"
        print(f"{path.stem:<18} {verdict:<6} {run.seconds:5.0f} s  {views_of(run)}", flush=True)
        print("".join(f"    {fault}\n" for fault in faults), end="", flush=True)
    replaced = changed()
    if replaced:
        print(f"the installation replaced what Colab has: now {', '.join(replaced)}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return int(failed > 0 or bool(replaced))


if __name__ == "__main__":
    sys.exit(main())
