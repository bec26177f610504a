"""Measure what the tests catch: the fixed mistakes of mutations.json, one at a time, in a copy of
this checkout.

    python tools/mutations.py --to after.json
        all of them; the file is written after each
    python tools/mutations.py --only 7 softmax --to FILE
        number 7 and all in definitions called softmax, again
    python tools/mutations.py --to after.json --compare tools/mutations_caught.json

A mutation is a definition (the qualified name of a function, a class, a method or a constant), a
piece of its code, and what is written there instead. It names no file: the packages and the tools
are searched for the one definition of that name that holds the piece once, whatever its white
space, so files can move and code can be formatted again. One that is not found is reported and has
to be adapted. mutations_caught.json says which test caught it.

A mutation is caught if a quick test (neither `slow` nor `browser`) fails in a test file that
imports the changed module, directly or through a package; if no test file does, those count that
import a module which imports it. The test file of the same name runs first, then the shorter ones,
in a process forked from one that has loaded torch and pytest but nothing of the library. A row may
name a test file, or a test, as its fourth entry: then this runs instead, slow tests too. Tests that
do not end count as a catch. So this measures the tests next to the code, not the whole suite. It
needs os.fork, which Windows does not have.
"""

import argparse
import ast
import compileall
import json
import os
import queue
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
FOLDERS = [*(path.parent for path in sorted(ROOT.glob("*/__init__.py"))), TOOLS]  # of the product
IMPORTED_FROM = [TOOLS / "portable", TOOLS, ROOT]  # an inner folder before the one around it


def module_name(path: Path) -> str:
    """The name under which tests import a file."""
    start = next(folder for folder in IMPORTED_FROM if path.is_relative_to(folder))
    return ".".join(path.relative_to(start).with_suffix("").parts).removesuffix(".__init__")


FILES: dict[str, Path] = {}
for _folder in FOLDERS:
    FILES |= {module_name(path): path for path in sorted(_folder.rglob("*.py"))}
TREES = {module: ast.parse(path.read_text("utf-8")) for module, path in FILES.items()}
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "work", "__pycache__", ".*_cache", ".hypothesis")
QUICK = "not slow and not browser"
ANY = ""
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are loaded before the fork
OPTIONS += ["-k", "not notebooks_are_fresh"]  # which fails for any change of what builds them
SECONDS = 120  # how long the tests of a mutation may take beyond what they take without it


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yields (qualified name, statement) for the functions, classes and constants of a module or a
    class.
    """
    for child in node.body:
        targets = [child, *getattr(child, "targets", [getattr(child, "target", None)])]
        names = [getattr(target, "name", getattr(target, "id", None)) for target in targets]
        yield from ((prefix + name, child) for name in names if name)
        if isinstance(child, ast.ClassDef):
            yield from definitions(child, f"{prefix}{child.name}.")


def place(definition: str, old: str) -> tuple[str, int, int] | None:
    """Find the one place of a piece of code: its module and first and last character; None if there
    is not one.
    """
    pattern = r",?\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", old)))
    pattern = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", pattern)
    found = set()
    for module, tree in TREES.items():
        for node in [node for name, node in definitions(tree) if name == definition]:
            lines = FILES[module].read_text("utf-8").splitlines(keepends=True)
            start = len("".join(lines[: node.lineno - 1]))
            code = "".join(lines[node.lineno - 1 : node.end_lineno])
            found |= {
                (module, start + m.start(), start + m.end()) for m in re.finditer(pattern, code)
            }
    return found.pop() if len(found) == 1 else None


@cache
def imported(tree: ast.Module, module: str = "") -> list[tuple[str, str]]:
    """The (module, name) of everything that a file imports; the name is empty for a module as a
    whole.
    """
    is_package = module in FILES and FILES[module].name == "__init__.py"
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.rsplit(".", node.level - is_package)[0] if node.level else ""
            found += [
                (f"{above}.{node.module or ''}".strip("."), alias.name) for alias in node.names
            ]
    return found


@cache
def origins(module: str, name: str) -> set[str]:
    """The modules behind a name that is imported from a module: this one, and those that it has the
    name from.
    """
    if f"{module}.{name}" in TREES:
        module = f"{module}.{name}"
        name = ""
    if module not in TREES:
        return set()
    whole = {
        f"{module}.{known}" for source, known in imported(TREES[module], module) if source == module
    }
    passed_on = {source for source, known in imported(TREES[module], module) if known == name} - {
        module
    }
    # of names found when needed
    for table in [node for node in ast.walk(TREES[module]) if isinstance(node, ast.Dict)]:
        pairs = zip(table.keys, table.values, strict=True)
        passed_on |= {
            f"{module}.{getattr(v, 'value', '')}"
            for k, v in pairs
            if getattr(k, "value", None) == name
        }
    return {module}.union(whole & TREES.keys(), *(origins(source, name) for source in passed_on))


def reached(tree: ast.Module, module: str = "") -> set[str]:
    """All modules of the product that a file imports."""
    return set().union(*(origins(*one) for one in imported(tree, module)))


@cache
def tests() -> dict[Path, set[str]]:
    """The test files, the shorter ones first, and the modules that each imports."""
    texts = {path: path.read_text("utf-8") for path in sorted(ROOT.glob("tests/**/test_*.py"))}
    return {
        path: reached(ast.parse(texts[path]))
        for path in sorted(texts, key=lambda path: texts[path].count("\n"))
    }


@cache
def tests_of(module: str) -> list[str]:
    """The test files that import a module, or else those of the modules that do; that of the same
    name first.
    """
    wanted = {module}
    size = 0
    while (
        not (found := [path for path in tests() if wanted & tests()[path]]) and len(wanted) > size
    ):
        size = len(wanted)
        wanted |= {importer for importer, tree in TREES.items() if wanted & reached(tree, importer)}
    own = f"test_{module.rpartition('.')[2].strip('_')}"
    return [
        path.relative_to(ROOT).as_posix()
        for path in sorted(found, key=lambda path: path.stem != own)
    ]


class Watch:
    """A plugin of pytest that keeps the first failure."""

    caught = why = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Look at what collecting a file, or a part of a test, has come to."""
        if report.failed and not self.caught:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.caught = report.nodeid
            self.why = str(crash.message if crash else report.longrepr)[-300:]

    pytest_collectreport = pytest_runtest_logreport


def child(copy: Path, file: str, marks: str) -> None:
    """In a process of its own: run a test file of a copy and leave there what failed first."""
    import pytest

    os.setsid()
    os.chdir(copy)
    sys.path[0] = str(copy)
    os.environ["PYTHONPATH"] = os.pathsep.join((str(copy), str(copy / "tools/portable")))
    out = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    code = pytest.main([*OPTIONS, "-m", marks, file], plugins=[watch := Watch()])
    caught = watch.caught or (f"pytest ended with {code}" if code not in (0, 5) else "")
    Path("caught.json").write_text(json.dumps({"caught": caught, "why": watch.why}), "utf-8")


def run(copy: Path, file: str, marks: str, limit: float) -> dict[str, Any]:
    """Run a test file of a copy. Returns the test that failed first, why, and the seconds."""
    result = copy / "caught.json"
    started = time.monotonic()
    result.unlink(missing_ok=True)
    for leftover in ("work", ".hypothesis"):
        shutil.rmtree(copy / leftover, ignore_errors=True)
    if not (pid := os.fork()):
        try:
            child(copy, file, marks)
        finally:
            os._exit(0)
    while not (ended := os.waitpid(pid, os.WNOHANG)[0]) and time.monotonic() < started + limit:
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        os.waitpid(pid, 0)
    found = {"caught": "the process died" if ended else "the tests did not end", "why": ""}
    found = json.loads(result.read_text("utf-8")) if result.exists() else found
    return {**found, "seconds": round(time.monotonic() - started, 1)}


class Bench:
    """Copies of the checkout, one for each job, and how long the test files may take."""

    def __init__(self, folder: Path, jobs: int):
        self.free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self.limits: dict[tuple[str, str], float] = {}
        for copy in [folder / str(number) for number in range(jobs)]:
            shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
            for product in FOLDERS:
                place = copy / product.relative_to(ROOT)
                compileall.compile_dir(
                    place, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH
                )
            self.free.put(copy)

    def limit(self, copy: Path, file: str, marks: str) -> float:
        """How long the tests of a file may take with a mutation, 0 if one fails without; measured
        before the first.
        """
        if (file, marks) not in self.limits:
            found = run(copy, file, marks, 5 * SECONDS)
            self.limits[file, marks] = 0 if found["caught"] else SECONDS + found["seconds"]
            if found["caught"]:
                print(
                    f"LEFT OUT, it fails without a mutation: {found['caught']}: {found['why']}",
                    flush=True,
                )
        return self.limits[file, marks]

    def measure(self, mutation: dict[str, Any]) -> dict[str, Any]:
        """Run the tests of a mutation on a copy that has it, until one fails."""
        if not (at := place(mutation["definition"], mutation["old"])):
            return {
                **mutation,
                "module": "",
                "caught": "",
                "why": "not found: adapt it",
                "seconds": 0.0,
            }
        module, start, end = at
        copy = self.free.get()
        text = FILES[module].read_text("utf-8")
        path = copy / FILES[module].relative_to(ROOT)
        found = {"caught": "", "why": "no test file imports it"}
        seconds = 0.0
        for file, marks in asked(mutation):
            if not (limit := self.limit(copy, file, marks)):
                continue
            path.write_text(text[:start] + mutation["new"] + text[end:], "utf-8")
            found = run(copy, file, marks, limit)
            path.write_text(text, "utf-8")
            seconds += found["seconds"]
            if found["caught"]:
                break
        self.free.put(copy)
        return {**mutation, "module": module, **found, "seconds": round(seconds, 1)}


def read_mutations() -> list[dict[str, Any]]:
    """The rows of mutations.json, numbered from 1; `test` is empty where a row names none."""
    rows = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    keys = ("number", "definition", "old", "new", "test")
    return [dict(zip(keys, (i, *row, ""), strict=False)) for i, row in enumerate(rows, 1)]


def asked(mutation: dict[str, Any]) -> list[tuple[str, str]]:
    """The test files that a mutation is measured with, or a test, each with its marks; empty if it
    is not found.
    """
    if not (at := place(mutation["definition"], mutation["old"])):
        return []
    return (
        [(mutation["test"], ANY)]
        if mutation["test"]
        else [(file, QUICK) for file in tests_of(at[0])]
    )


def read_results(path: Path | None) -> dict[int, dict[str, Any]]:
    """What a file says of the mutations that are the same now as when it was written, by their
    numbers.
    """
    stored = json.loads(path.read_text("utf-8")) if path and path.exists() else []
    known = {mutation["number"]: mutation for mutation in read_mutations()}
    same = [
        one for one in stored if known.get(one["number"], {}).get("definition") == one["definition"]
    ]
    return {one["number"]: {**known[one["number"]], "seconds": 0.0, **one} for one in same}


def write_results(path: Path, results: dict[int, dict[str, Any]]) -> None:
    """Write one line for each mutation: which test caught it."""
    kept = [
        {key: results[n][key] for key in ("number", "definition", "module", "caught")}
        for n in sorted(results)
    ]
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in kept)
    path.write_text(f"[\n{lines}\n]\n", "utf-8")


def line(result: dict[str, Any]) -> str:
    """Two lines of the table."""
    change = f"{result['definition']}: {result['old']} -> {result['new'] or 'nothing'}"
    found = result["caught"] or ("SURVIVED" if result["module"] else "NOT FOUND: adapt it")
    return f"{result['number']:3} {result['seconds']:6.1f} s  {change}\n{'':14}{found}"


def summary(results: list[dict[str, Any]]) -> str:
    """What was not caught, and the sum of each room."""
    lines = [line(result) for result in results if not result["caught"]]
    rooms = [
        (result["module"].rpartition(".")[0] or result["module"], bool(result["caught"]))
        for result in results
    ]
    for room, n in sorted(Counter(room for room, _ in rooms).items()):
        lines.append(
            f"{rooms.count((room, True)):4} of {n:3} caught in {room or 'what was not found'}"
        )
    return "\n".join(
        [*lines, f"{sum(caught for _, caught in rooms):4} of {len(rooms):3} caught in all"]
    )


def main() -> int:
    """Returns 0, or 1 if a mutation is not found, or with --compare if one was caught before and is
    not now.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME|NUMBER", help="these mutations, not all"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FILE",
        help="keep the results there; what it holds of others stays",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="OLD", help="say what was caught there and is not now"
    )
    options = parser.parse_args()
    chosen = [
        m
        for m in read_mutations()
        if not options.only or {str(m["number"]), m["definition"]} & {*options.only}
    ]
    results = read_results(options.to)
    os.environ |= {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
    sys.dont_write_bytecode = False  # so that pytest rewrites each test file only once
    for name in ("torch", "numpy", "hypothesis"):
        __import__(name)
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        bench = Bench(Path(folder), options.jobs)
        each = pool.map if options.jobs > 1 else map
        for result in each(bench.measure, chosen):
            results[result["number"]] = result
            print(line(result), flush=True)
            if options.to:
                write_results(options.to, results)
    print(summary([results[number] for number in sorted(results)]))
    before = read_results(options.compare)
    lost = [
        old
        for old in before.values()
        if old["caught"] and not results.get(old["number"], old)["caught"]
    ]
    print("".join(f"CAUGHT BEFORE, NOT NOW: {line(old)}\n" for old in lost), end="")
    return 1 if lost or not all(result["module"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
