"""Runs the notebooks and the quick tests as other machines would, and lists what differs there.

    python tools/portable                            every machine below
    python tools/portable "jitter 3" "jitter 4"      these; a jitter of any seed rounds products
                                                     as another BLAS
    python tools/portable --parts notebooks 05 11    only these parts, only these lessons
    python tools/portable --spread 11                what training leaves open: each ⟨number⟩
                                                     under ten jitter seeds

The range that a `learned` number states is at most three times the spread printed here. Each
machine is a set of environment variables; those of "accelerator" add a simulated device, which
every command then chooses and tests/accelerator/ needs. Two tests or lessons run at a time, each
with one thread unless the machine says otherwise. All machines together take two hours on two
cores.
"""

import argparse
import os
import re
import sys
import time
from itertools import chain
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from run_tests import PARTS, ROOT, Part, run  # noqa: E402

MACHINES = {
    "bf16 off": {"TINYLM_BF16": "off"},
    "bf16 on": {"TINYLM_BF16": "on"},
    "jitter 1": {"TINYLM_JITTER": "1"},
    "jitter 2": {"TINYLM_JITTER": "2"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "SSE4.1": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "4 threads": {"OMP_NUM_THREADS": "4"},
    "accelerator": {"TINYLM_ACCELERATOR": "on"},
}
LOGS = ROOT / "work" / "cache" / "portable"
CELL_SECONDS = 900  # a simulated machine is slow
SEEDS = range(1, 11)
FOREVER = 1e9  # seconds


def settings(machine: str) -> dict[str, str]:
    """The environment of a machine. Raises KeyError for one that is not known."""
    if re.fullmatch(r"jitter \d+", machine):
        own = {"TINYLM_JITTER": machine[7:]}
    else:
        own = MACHINES[machine]
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "TINYLM_WORKSHOP": "off", **own}


def what_differs(machine: str, parts: list[str], lessons: list[str]) -> int:
    """Run the parts as on a machine and print a line, and one for each thing that differs.

    Returns their number.
    """
    log = LOGS / f"{machine.replace(' ', '_')}.txt"
    log.write_bytes(b"")
    found = []
    counts = []
    started = time.monotonic()
    for name in parts:
        command = [*PARTS[name].commands[0]]
        if name == "notebooks":
            paths: list[str] = []
            for n in lessons:
                files = (ROOT / "notebooks").glob(f"{n}_*.ipynb")
                paths += [str(path.relative_to(ROOT)) for path in files]
            command = [
                *command[:-1],
                f"--nbval-cell-timeout={CELL_SECONDS}",
                *(paths or command[-1:]),
            ]
        part = Part(name, 0, [command])
        run(part, FOREVER, settings(machine), log)
        found += part.failed or ([f"{name}: {part.status}"] if part.status != "ok" else [])
        counts.append(f"{name} {part.counts.get('passed', 0)} same")
    verdict = f"{len(found)} DIFFER" if found else "same"
    seconds = time.monotonic() - started
    print(f"{machine:<16} {verdict:<10} {', '.join(counts)}, {seconds:.0f} s")
    print("".join(f"    {what}\n" for what in found), end="", flush=True)
    return len(found)


def spread(lesson: str) -> None:
    """Execute a student's lesson under each seed, and print how far each blanked number goes."""
    from tinylm_classroom.course.lesson import execute as lessons
    from tinylm_classroom.course.lesson.read import read_lesson
    from tinylm_classroom.course.lesson.transform import to_notebook

    (source,) = (ROOT / "notebooks" / "source").glob(f"{lesson}_*.py")
    columns: list[list[str]] = []
    for seed in SEEDS:
        os.environ.update(settings(f"jitter {seed}"))
        lessons.CELL_SECONDS = CELL_SECONDS
        notebook = to_notebook(read_lesson(source), "student")
        lessons.execute(notebook, source.stem)
        outputs = [*chain.from_iterable(cell.get("outputs", ()) for cell in notebook.cells)]
        texts = [o.get("text", "") or o.get("data", {}).get("text/html", "") for o in outputs]
        columns.append(re.findall("\u27e8([^\u27e9]*)\u27e9", "\n".join(texts)))
        print(f"seed {seed}: {' '.join(columns[-1])}", flush=True)
    for i, values in enumerate(zip(*columns, strict=True)):
        numbers = [float(re.sub(r"[^\d.e-]", "", value.split()[0])) for value in values]
        print(
            f"number {i}: {min(numbers):g} to {max(numbers):g}, spread "
            f"{max(numbers) - min(numbers):.3g}"
        )


def main() -> int:
    """Returns 1 if something differs."""
    parser = argparse.ArgumentParser(
        prog="python tools/portable", description=__doc__.split("\n\n")[0]
    )
    parser.epilog = f"machines: {', '.join(MACHINES)}; jitter with any seed"
    parser.add_argument(
        "which",
        nargs="*",
        metavar="MACHINE or NN",
        help="machines, and lessons by their two digits",
    )
    parser.add_argument(
        "--parts",
        default="tests,notebooks",
        help="any of tests, notebooks, solutions, with commas",
    )
    parser.add_argument(
        "--spread", metavar="NN", help="the lesson whose blanked numbers to measure"
    )
    options = parser.parse_intermixed_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    if options.spread:
        spread(options.spread)
        return 0
    lessons = [word for word in options.which if re.fullmatch(r"\d\d", word)]
    machines = [word for word in options.which if word not in lessons] or [*MACHINES]
    if unknown := [m for m in machines if m not in MACHINES and not re.fullmatch(r"jitter \d+", m)]:
        parser.error(
            f"there is no machine {unknown[0]!r}; "
            f"there are {', '.join(MACHINES)}, and jitter with any seed"
        )
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in ("tests", "notebooks", "solutions")]:
        parser.error(f"there is no part {unknown[0]!r}; there are tests, notebooks and solutions")
    return int(sum([what_differs(machine, parts, lessons) for machine in machines]) > 0)


if __name__ == "__main__":
    sys.exit(main())
