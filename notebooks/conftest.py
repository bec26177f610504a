"""How pytest runs notebooks here: strictly compared and, if asked for, each cell once more from the last to the first.

`pytest --nbval notebooks` needs no option: the kernel, the time-out and what is compared are set below. It runs the
students' copies; `pytest --nbval notebooks/solutions` runs the solutions. `--nbval-lax` compares nothing.
"""

import os
import time
from collections import Counter
from pathlib import Path
from queue import Empty

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams

HERE = Path(__file__).parent
# A view's data, whose table is in the text/html, and the frames of a control, which only the build computes.
NOT_COMPARED = ("application/vnd.tinylm.view+json", "application/vnd.tinylm.control+json")
CELL_SECONDS, NBVAL_SECONDS = 120, 2000  # nbval's own time-out would let a dead kernel hang for half an hour
ONE_IN = 10
# Spinning threads stall on a busy machine; nobody's kept parts may take part in what is compared.
SETTINGS = {"GOMP_SPINCOUNT": "1000", "TINYLM_WORKSHOP": "off"}
COUNTED = ("compared", "ignored", "blanked")

KEEP = "import sys, types; sys.modules['kept_state'] = types.SimpleNamespace(names=dict(globals()))"
PUT_BACK = "(lambda kept: (globals().clear(), globals().update(kept)))(__import__('sys').modules['kept_state'].names)"


def pytest_addoption(parser):
    text = "at the end of a student's notebook run each cell again, from the last to the first"
    parser.getgroup("nbval").addoption("--going-back", action="store_true", help=text)


def pytest_configure(config):
    option = config.option
    if not (option.nbval or option.nbval_lax):
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    os.environ.pop("TINYLM_WORK", None)  # a folder of the reader's own is named in what a check prints
    os.environ.pop("TINYLM_FRAMES", None)  # a control runs its function once, as for a student
    option.nbval_current_env = option.nbval_current_env or not option.nbval_kernel_name
    option.nbval_sanitize_with = option.nbval_sanitize_with or str(HERE / "sanitize.cfg")
    if option.nbval_cell_timeout == NBVAL_SECONDS:
        option.nbval_cell_timeout = CELL_SECONDS


def pytest_ignore_collect(collection_path, config):
    """The solutions, and what goes further than the lessons, unless they are asked for."""
    if collection_path not in (HERE / "solutions", HERE / "more"):
        return None
    arguments = [Path(str(argument).partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(collection_path) for path in arguments) else True


def pytest_collectstart(collector):
    if isinstance(collector, IPyNbFile):
        collector.skip_compare += NOT_COMPARED


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if isinstance(collector, IPyNbFile) and report.passed:
        if collector.compare_outputs and (problem := unseen(report.result)):
            report.outcome, report.longrepr = "failed", f"{collector.path.name}: {problem}"
        elif collector.config.option.going_back and collector.path.parent.name != "solutions":
            report.result.append(GoingBack.from_parent(collector, name="going back", cells=[*report.result]))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if not isinstance(item, IPyNbCell):
        return (yield)
    kind, outputs = "compared" if is_compared(item) else "ignored", coalesce_streams(item.cell.outputs)
    counts = {kind: len(outputs), "blanked": sum(map(n_blanked, outputs))}
    item.user_properties.append(("outputs", (item.path.name, counts)))
    result = yield
    if item.options["check_exception"] and "error" not in [output.output_type for output in item.test_outputs]:
        item.raise_cell_error("the cell is tagged raises-exception, but it raised nothing")
    if any(output.get("name") == "stderr" and "UsageError: " in output.text for output in item.test_outputs):
        item.raise_cell_error("the cell stopped at an unknown or misused magic, and nbval lets that pass")
    return result


def pytest_terminal_summary(terminalreporter):
    found = {}
    for report in (*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())):
        for _, (name, counts) in (p for p in report.user_properties if p[0] == "outputs"):
            found.setdefault(name, Counter()).update(counts)
    if len(found) > 1:
        found["all"] = sum(found.values(), Counter())
    for name in sorted(found, key=lambda name: (name == "all", name)):
        compared, ignored, blanked = (found[name][kind] for kind in COUNTED)
        terminalreporter.line(f"{name}: {compared} outputs compared, {ignored} ignored; {blanked} numbers blanked")


def is_compared(item):
    """Whether nbval compares the outputs of a cell, and something in each of them."""
    outputs = [output.get("data", {"text": ""}) for output in item.cell.outputs]
    pictures = any(kind.startswith("image/") for data in outputs for kind in data)
    return item.options["check"] and not item.options["skip"] and not pictures


def n_blanked(output):
    """How many numbers of an output stand between the marks of a measurement, so that only their range is checked."""
    texts = [output.get("text", ""), *map(str, output.get("data", {}).values())]
    return max(text.count("\u27e8") for text in texts)


def unseen(items):
    """What in a notebook would pass without being looked at; None if all is well."""
    with_outputs = [item for item in items if item.cell.outputs]
    ignored = [item for item in with_outputs if not is_compared(item)]
    if any(item.cell.execution_count is None and item.cell.source.strip() for item in items):
        return "a code cell was never run, so nothing would be compared: run make notebooks"
    if len(with_outputs) == len(ignored):
        return "no cell has an output that could be compared"
    if ONE_IN * len(ignored) > len(with_outputs):
        return f"{len(ignored)} of {len(with_outputs)} output cells are not compared; at most one in {ONE_IN} may be"
    return None


class GoingBackError(Exception):
    """Cells that fail when a student goes back to them."""


class GoingBack(pytest.Item):
    """Runs every cell once more, from the last to the first, each with the names that the whole notebook left."""

    def __init__(self, cells, **more):
        super().__init__(**more)
        self.cells = cells

    def runtest(self):
        if not self.parent.kernel.is_alive() or self.parent.timed_out:
            pytest.skip("the kernel did not reach the end of the notebook")
        self.execute(KEEP)
        failed = {}
        for item in reversed(self.cells):
            if item.options["skip"]:
                continue
            error = self.execute(item.cell.source)
            if item.options["check_exception"] != (error is not None):
                failed[item.name] = (
                    f"{error or 'raised nothing, but it is tagged raises-exception'}\n{item.cell.source}"
                )
            self.execute(PUT_BACK)
        if failed:
            raise GoingBackError("\n\n".join(f"{name}: {what}" for name, what in failed.items()))

    def execute(self, code):
        """Runs code in the notebook's kernel and returns its error, or None."""
        client = self.parent.kernel.kc
        deadline = time.monotonic() + self.config.option.nbval_cell_timeout
        message_id = client.execute(code, store_history=False, allow_stdin=False, stop_on_error=False)
        while True:
            try:
                reply = client.get_shell_msg(timeout=deadline - time.monotonic())
            except Empty:
                self.parent.kernel.stop()
                raise GoingBackError(
                    f"a cell takes more than {self.config.option.nbval_cell_timeout:g} s:\n{code}"
                ) from None
            if reply["parent_header"].get("msg_id") == message_id:
                content = reply["content"]
                return f"{content['ename']}: {content['evalue']}" if content["status"] == "error" else None

    def repr_failure(self, excinfo, style=None):
        return str(excinfo.value) if isinstance(excinfo.value, GoingBackError) else super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, 0, f"{self.path.name}: going back"
