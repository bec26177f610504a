"""What tests of several files share."""

import signal
from collections.abc import Iterator

import pytest
import torch

from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.training.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def ready() -> Checkpoint:
    """The shipped model with its tokenizer."""
    return load_pretrained("storyworld")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny products lose more by waiting for a second thread than they win."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_configure() -> None:
    """Ctrl-C works in the programs that tests start, even where this run is a job in the background that ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items) -> None:
    """What takes long comes last: the event loop of a browser stays in its process until the end."""
    items.sort(key=lambda item: any(map(item.get_closest_marker, ("slow", "browser"))))


@pytest.fixture
def record(request):
    """A function that notes how a check did, for the table at the end of the run."""

    def note(exercise: str, kind: str, **facts: bool) -> None:
        request.node.user_properties.append(("check", (exercise, kind, facts)))

    return note


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints what the checks catch, name and reject."""
    scores: dict[str, dict[str, list]] = {}
    for report in (*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())):
        for _, (exercise, kind, facts) in report.user_properties:  # they also come back from another process
            scores.setdefault(exercise, {}).setdefault(kind, []).append(facts)
    if not scores:
        return
    line = "{:<22}{:>8}{:>8}{:>8}{:>10}{:>10}{:>16}{:>8}{:>8}".format
    head = ("exercise", "faults", "caught", "named", "variants", "rejected", "outside: tried", "caught", "named")
    terminalreporter.write_line(line(*head))
    totals = [0] * 8
    for name, kinds in scores.items():
        faults, variants, unknown = (kinds.get(kind, []) for kind in ("faults", "variants", "unknown"))
        counts = [len(faults), *(sum(f[k] for f in faults) for k in ("caught", "named")), len(variants)]
        counts += [sum(not v["passed"] for v in variants), len(unknown)]
        counts += [sum(u[k] for u in unknown) for k in ("caught", "named")]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        terminalreporter.write_line(line(name, *counts))
    terminalreporter.write_line(line("all", *totals))
