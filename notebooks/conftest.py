"""Strict nbval: counts what is compared and what is not, and closes the holes through which broken cells pass."""

from collections import defaultdict

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams

NOT_COMPARED = ("application/vnd.tinylm.view+json",)  # a view's data; its table stands in the text/html beside it
LONGEST_CELL = 600
ONE_IN = 10

counts = defaultdict(lambda: {"compared": 0, "ignored": 0})


def pytest_configure(config):
    if config.option.nbval and config.option.nbval_cell_timeout > LONGEST_CELL:
        raise pytest.UsageError("a dead kernel would hang until the time-out: set --nbval-cell-timeout=120")


def pytest_collectstart(collector):
    if isinstance(collector, IPyNbFile):
        collector.skip_compare += NOT_COMPARED


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if isinstance(collector, IPyNbFile) and report.passed and (problem := unseen(report.result)):
        report.outcome, report.longrepr = "failed", f"{collector.path.name}: {problem}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if not isinstance(item, IPyNbCell):
        return (yield)
    kind = "compared" if is_compared(item) else "ignored"
    counts[item.path][kind] += len(coalesce_streams(item.cell.outputs))
    result = yield
    if item.options["check_exception"] and "error" not in [output.output_type for output in item.test_outputs]:
        item.raise_cell_error("the cell is tagged raises-exception, but it raised nothing")
    if any(output.get("name") == "stderr" and "UsageError: " in output.text for output in item.test_outputs):
        item.raise_cell_error("the cell stopped at an unknown or misused magic, and nbval lets that pass")
    return result


def pytest_terminal_summary(terminalreporter):
    for path, count in sorted(counts.items()):
        terminalreporter.line(f"{path.name}: {count['compared']} outputs compared, {count['ignored']} ignored")


def is_compared(item):
    """Whether nbval compares the outputs of a cell, and something in each of them."""
    outputs = [output.get("data", {"text": ""}) for output in item.cell.outputs]
    pictures = any(kind.startswith("image/") for data in outputs for kind in data)
    return item.options["check"] and not item.options["skip"] and not pictures


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
