"""A check that is interrupted leaves the kernel as it was: in a real kernel, at ten moments.

The learner's function itself sends the signal that the Stop button sends, so each moment is placed and not timed.
"""

import os
from collections.abc import Callable, Iterator

import pytest
from jupyter_client.manager import start_new_kernel

from tinylm_classroom.course import lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="on Windows a process cannot send itself the Stop button's signal"),
]

START = """
import os, random, signal, sys, threading, time, warnings
import torch
from tinylm_classroom import check
from tinylm_classroom.checks.calling import still_running

def right(n):
    return torch.ones(n, n, dtype=torch.bool).tril()

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def forever():
    while True:
        pass

def state():
    streams = sys.stdout, sys.stderr, list(warnings.filters), torch.get_default_dtype()
    return streams, torch.get_rng_state().tolist(), random.getstate()

def quiet():
    '''Whether nothing computes.'''
    start = time.process_time()
    time.sleep(0.4)
    return time.process_time() - start < 0.2 and not still_running()

def after(call, *steps):
    '''A function that takes some steps in one of its calls, and is right otherwise.'''
    calls = []
    def causal_mask(n):
        calls.append(n)
        if len(calls) == call:
            for step in steps:
                step()
        return right(n)
    return causal_mask

def meddle():
    print("here I am")
    print("here I am", file=sys.stderr)
    torch.manual_seed(1); random.seed(1); torch.set_default_dtype(torch.float64); warnings.simplefilter("error")

def holds_on():
    try:
        interrupt()
        forever()
    except BaseException:
        interrupt()  # while the check waits for the end
        forever()

def waits_in_c(seconds):
    threading.Timer(0.2, interrupt).start()
    time.sleep(seconds)

def misfit():
    torch.ones(2, 3) @ torch.ones(2, 3)

calls = []
def explained(n):
    '''Its first call raises an error of shapes; the second, which looks for the cause, does not end.'''
    calls.append(n)
    if len(calls) == 2:
        interrupt()
        forever()
    misfit()

before = state()
"""
MOMENTS = {
    "in its first call": "after(1, interrupt, forever)",
    "in its second call": "after(2, interrupt, forever)",
    "in its last call": "after(5, interrupt, forever)",
    "after much was printed and changed": "after(3, meddle, interrupt, forever)",
    "just before it returns": "after(4, interrupt)",
    "just before it raises": "after(4, interrupt, misfit)",
    "twice": "after(2, holds_on)",
    "where it makes random numbers": "after(2, lambda: torch.randn(10), interrupt, forever)",
    "while its shapes are explained": "explained",
    "while it waits in C": "after(1, lambda: waits_in_c(1))",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Runs a cell in a kernel as JupyterLab has one, and returns everything that it shows, errors included."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, folder in lab.CACHES.items():
            patch.setenv(variable, str(tmp_path_factory.mktemp("caches") / folder))
        manager, client = start_new_kernel(kernel_name="python3")

    def run(code: str) -> str:
        shown: list[str] = []

        def hook(message: dict) -> None:
            content = message["content"]
            shown.append(content.get("text") or "\n".join(content.get("traceback", ())))
            shown.append(content.get("data", {}).get("text/plain", ""))

        client.execute_interactive(code, timeout=60, output_hook=hook, allow_stdin=False)
        return "".join(shown)

    assert run(START) == ""
    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("learner", MOMENTS.values(), ids=MOMENTS)
def test_an_interrupted_check_says_so_and_leaves_the_kernel_as_it_was(run: Callable, learner: str) -> None:
    shown = run(f'check("causal_mask", {learner})')
    assert shown.startswith("causal_mask: you stopped the check\n"), shown
    assert "Your function has ended" in shown
    assert shown.endswith("Interrupted: you stopped the check of causal_mask")
    assert run("print(state() == before, quiet())") == "True True\n"
    assert run('check("causal_mask", right)').startswith("causal_mask: right\n")


def test_code_that_cannot_be_stopped_is_left_alone_and_the_student_told(run: Callable) -> None:
    shown = run('check("causal_mask", after(1, meddle, lambda: waits_in_c(4), meddle))')
    assert "cannot be stopped" in shown and "restart the kernel" in shown
    assert run("print(state()[0][:2] == before[0][:2], still_running())") == "True True\n"
    run("while still_running(): time.sleep(0.1)")
    assert run("print(sys.stdout is before[0][0], quiet())") == "True True\n"
