"""Calling a function that may do anything: raise, never end, print, change what it was given,
return nonsense.
"""

import contextlib
import copy
import ctypes
import io
import math
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tinylm_lib

from ..exercises.base import Probe

SECONDS = 2.0  # for all calls of one check together
TOO_SLOW = 0.3  # seconds for all probes, after which nothing more is tried
LITTLE = 0.01  # of the time: code that computes less than this waits for something
# threads that may want the same processor: on a busy machine code waits although it computes
CROWD = 5
# seconds that a learner's code may import what it needs, such as an optimizer of torch at first
IMPORTING = 30.0
PATIENCE = 0.4  # seconds in which a call that has had its time may end
SEED = 20_260_101
LOOSELY = {
    bool: bool,
    int: Integral,
    float: Real,
    str: str,
    bytes: bytes,
    list: list,
    tuple: tuple,
    dict: dict,
}
LONGEST_OUTPUT = 10_000  # characters that are kept of what is printed, twice as many at most
# Where no line is a learner's.
OTHERS = tuple(
    str(Path(file).parent) for file in (Path(__file__).parent, tinylm_lib.__file__, torch.__file__)
)
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-6}


@dataclass(frozen=True)
class Strange:
    """A result of a type that no exercise expects."""

    kind: str


NOT_TRIED = Strange("not tried")


@dataclass(frozen=True)
class Raised:
    """An exception instead of a result: its kind, which alone is compared, and the learner's line
    that raised it.
    """

    kind: str
    message: str = field(compare=False)
    line: str = field(compare=False)


@dataclass
class Call:
    """What came of one call where the function runs, in plain values: nothing is looked at or
    compared yet.

    arguments: as they are after the call; gradients: in the order of the arguments.
    """

    result: Any = None
    arguments: tuple = ()
    gradients: list[Tensor | None] | None = None
    printed: str = ""
    error: BaseException | None = None
    ended: bool = True


@dataclass
class Outcome:
    """What a probe sees of one call, in plain values: tensors detached and copied."""

    value: Any = None
    gradients: list[Tensor | None] | None = None
    # the positions of the arguments that it wrote into
    changed: list[int] = field(default_factory=list)
    printed: str = ""
    error: BaseException | None = None
    arguments: tuple = ()
    ended: bool = True


class _Printed(io.StringIO):
    """The beginning of what is printed."""

    def write(self, text: str) -> int:
        if self.tell() < LONGEST_OUTPUT:
            super().write(text[:LONGEST_OUTPUT])
        return len(text)


class _Stop(BaseException):
    """Ends a thread that has had its time."""


def observe(
    function: Callable[..., Any], probes: tuple[Probe, ...], seed: int = SEED
) -> list[Outcome]:
    """Call the function once for each probe, in a thread of its own, 2 s for all; stops at a call
    that does not end.

    The list is shorter than `probes` only after a call that did not end: its last outcome says so.
    """
    return [
        outcome_of(call, probe)
        for call, probe in zip(calls_of(function, probes, seed), probes, strict=False)
    ]


def calls_of(
    function: Callable[..., Any], probes: tuple[Probe, ...], seed: int = SEED
) -> list[Call]:
    """As `observe`, where nothing is compared yet."""
    calls: list[Call] = []
    if not within(
        SECONDS,
        (lambda probe=probe: calls.append(_call(function, probe, seed)) for probe in probes),
    ):
        calls.append(Call(Raised("TimeIsUpError", "", ""), ended=False))
    return calls[: len(probes)]


def outcome_of(call: Call, probe: Probe) -> Outcome:
    """What a probe sees of a call; this no longer needs the function."""
    untouched = probe.make(torch.Generator().manual_seed(SEED))
    outcome = Outcome(
        call.result, call.gradients, [], call.printed, call.error, untouched, call.ended
    )
    if not call.ended:
        return outcome
    if not isinstance(call.result, Raised):
        try:
            outcome.value = plain(
                probe.sees(call.arguments, call.result) if probe.sees else call.result
            )
        except Exception as error:  # of a result that nobody expected
            outcome.value = _raised(error)
            outcome.error = error
            outcome.gradients = None
    both = enumerate(zip(call.arguments, untouched, strict=True))
    outcome.changed = [i for i, (a, b) in both if not _untouched(a, b)]
    return outcome


def _untouched(a: Any, b: Any) -> bool:
    """Whether an argument is as it was made."""
    if type(a) is Tensor and not a.is_meta and a.dtype == b.dtype and torch.equal(a, b):
        return True
    return same(plain(a), plain(b), 0.0)


def moved(probe: Probe, place: int) -> Probe | None:
    """The probe with other numbers for one argument; None for other types, and where `sees` looks
    at chance.
    """
    arguments = probe.make(torch.Generator().manual_seed(SEED))
    argument = arguments[place]
    if (
        probe.sees is not None
        or not isinstance(argument, Tensor)
        or not argument.is_floating_point()
    ):
        return None
    noise = torch.randn(argument.shape, generator=torch.Generator().manual_seed(3)).to(
        argument.dtype
    )
    other = (*arguments[:place], 3 * noise - argument, *arguments[place + 1 :])
    return Probe(probe.holds, lambda _: copy.deepcopy(other))


class Learner:
    """A learner's function, called when something about it must be known."""

    def __init__(self, function: Callable[..., Any], probes: tuple[Probe, ...]):
        self.function = function
        self.probes = probes
        start = time.monotonic()
        self.outcomes = observe(function, probes)
        self.is_slow = time.monotonic() - start > TOO_SLOW

    def again(self, i: int) -> Outcome:
        """What comes of a probe with other random numbers; the same as before where that would take
        long.
        """
        return (
            self.outcomes[i]
            if self.is_slow
            else observe(self.function, (self.probes[i],), seed=1)[0]
        )

    def moved(self, i: int, place: int) -> Outcome:
        """What comes of a probe with other numbers for an argument; something strange where that
        would take long.
        """
        probe = moved(self.probes[i], place)
        return Outcome(NOT_TRIED) if self.is_slow else observe(self.function, (probe,))[0]


def agrees(mine: Outcome, right: Outcome, probe: Probe, wholly: bool = True) -> bool:
    """Whether two outcomes are the same: in their values, and wholly: in dtype, gradients and what
    was changed, too.
    """
    if not same(mine.value, right.value, probe.tolerance, wholly) or (
        wholly and mine.changed != right.changed
    ):
        return False
    if not wholly or mine.gradients is None or right.gradients is None:
        return not wholly or mine.gradients is right.gradients
    both = zip(mine.gradients, right.gradients, strict=True)
    return all(same(_zero(a, b), _zero(b, a), probe.tolerance, False) for a, b in both)


def same(a: Any, b: Any, tolerance: float | None = None, wholly: bool = True) -> bool:
    """Whether two values are equal: numbers within the tolerance, NaN equal to NaN; wholly: dtypes,
    too.
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or (wholly and a.dtype != b.dtype):
            return False
        return _near(a, b, tolerance)
    if isinstance(a, bool) or isinstance(b, bool) or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _near_numbers(a, b, 1e-4 if tolerance is None else tolerance)
    if is_number(a) and is_number(b):
        return _near(torch.as_tensor(a), torch.as_tensor(b), tolerance)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(
            same(x, y, tolerance, wholly) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], tolerance, wholly) for key in a)
    return type(a) is type(b) and a == b


def _near_numbers(a: float, b: float, tolerance: float) -> bool:
    """As `_near`, without tensors."""
    if not math.isfinite(a) or not math.isfinite(b):
        return a == b or (math.isnan(a) and math.isnan(b))
    return abs(a - b) <= tolerance * min(1.0, max(1e-3, abs(b))) + tolerance * abs(b)


def _near(a: Tensor, b: Tensor, tolerance: float | None) -> bool:
    if a.dtype == b.dtype and torch.equal(a, b):
        return True
    if not a.is_floating_point() and not b.is_floating_point():
        return torch.equal(a, b.to(a.dtype))
    if tolerance is None:
        tolerance = max(TOLERANCE.get(x.dtype, 1e-4) for x in (a, b))
    a = a.to(torch.float64)
    b = b.to(torch.float64)
    finite = b[b.isfinite()]
    scale = max(1e-3, finite.abs().max().item()) if finite.numel() else 1.0
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * min(1.0, scale), equal_nan=True)


def is_number(value: Any) -> bool:
    """Whether it is one number, in Python or in a tensor without axes."""
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.ndim == 0)


def _zero(gradient: Tensor | None, other: Tensor | None) -> Tensor | None:
    """A missing gradient counts as zeros: an argument that is multiplied by 0 and one that is left
    out are the same.
    """
    return torch.zeros_like(other) if gradient is None and other is not None else gradient


def plain(value: Any, depth: int = 0, strictly: bool = True) -> Any:
    """A copy in plain values that nothing can change any more; anything else is Strange.

    strictly: a subclass of a list, tuple, dict or number is Strange, too, except a tuple with named
    fields.
    """
    if isinstance(value, Tensor):
        if value.is_meta or value.layout is not torch.strided:
            return Strange("tensor without numbers" if value.is_meta else "sparse tensor")
        with torch._C.DisableTorchFunctionSubclass():  # a subclass has no say in what it holds
            return value.detach().to("cpu", copy=True).as_subclass(Tensor)
    kind = type(value)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        kind = tuple
    if not strictly:
        kind = next((to for to, of in LOOSELY.items() if isinstance(value, of)), kind)
    if value is None or kind in (bool, int, float, str, bytes):
        return value if kind is type(value) else kind(value)
    if kind in (list, tuple) and depth < 4 and len(value) <= 10_000:
        return kind(plain(item, depth + 1, strictly) for item in kind.__iter__(value))
    if kind is dict and depth < 4:
        return {str(key): plain(item, depth + 1, strictly) for key, item in value.items()}
    return value if kind is Strange else Strange(type(value).__name__)


def observe_one(function: Callable[..., Any], probe: Probe, seed: int = SEED) -> Outcome:
    """What comes of one call; everything else stays as it was. With a function that never ends,
    this never ends.

    seed: of torch's own generator, which no exercise should use.
    """
    with _undisturbed():
        return outcome_of(_call(function, probe, seed), probe)


def _call(function: Callable[..., Any], probe: Probe, seed: int) -> Call:
    """What comes of one call; what is printed is kept apart, and nothing is put back."""
    arguments = probe.make(torch.Generator().manual_seed(SEED))
    call = Call(arguments=arguments)
    wanted = (
        [a for a in arguments if isinstance(a, Tensor) and a.is_floating_point()]
        if probe.gradients
        else []
    )
    wanted = wanted[: probe.n_live]
    for tensor in wanted:
        tensor.requires_grad_()
    printed = _Printed()
    dtype = torch.get_default_dtype()
    threaded = threading.current_thread() is not threading.main_thread()
    try:
        sys.stdout = sys.stderr = printed
        # torch.manual_seed notes the whole stack for CUDA, each time
        torch.default_generator.manual_seed(seed)
        with torch.enable_grad():
            result = function(*arguments)
            call.result = plain(result, strictly=probe.sees is None)
            call.gradients = _gradients(result, wanted) if wanted else None
    except _Stop:
        raise
    except BaseException as error:  # a learner's code may raise anything, even an exit
        if isinstance(error, KeyboardInterrupt) and not threaded:
            raise  # not the code's own: the reader stopped it
        call.error = error
        call.result = _raised(error)
        call.gradients = None
    finally:
        torch.set_default_dtype(dtype)
    call.printed = printed.getvalue()
    return call


def _raised(error: BaseException) -> Raised:
    try:
        message = str(error)
    except Exception:  # it is a learner's own exception
        message = ""
    return Raised(type(error).__name__, message, _line(error))


def _gradients(result: Any, wanted: list[Tensor]) -> list[Tensor | None]:
    """The gradients of a fixed random weighting of all that was returned.

    None where nothing flows.
    """
    results = result if isinstance(result, list | tuple) else [result]
    tensors = [
        r for r in results if isinstance(r, Tensor) and r.requires_grad and r.is_floating_point()
    ]
    if not tensors:
        return [None] * len(wanted)
    generator = torch.Generator().manual_seed(SEED)
    loss = sum(
        (t.double() * torch.randn(t.shape, generator=generator, dtype=torch.float64)).sum()
        for t in tensors
    )
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [None if g is None else g.detach().clone() for g in found]


def _line(error: BaseException) -> str:
    """The last line of the learner's own code that an exception went through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [
        f
        for f in frames
        if not f.filename.startswith(OTHERS) and "site-packages" not in f.filename and f.line
    ]
    return (own or frames)[-1].line or "" if frames else ""


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Afterwards the streams, the generators, the default dtype and the warnings are as they were
    before.
    """
    streams = (sys.stdout, sys.stderr)
    dtype = torch.get_default_dtype()
    torch_state = torch.get_rng_state()
    python_state = random.getstate()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            torch.set_default_dtype(dtype)
            torch.set_rng_state(torch_state)
            random.setstate(python_state)


class _Learner(threading.Thread):
    """Makes calls of a learner's code.

    `ended` says whether it still does: an interrupted `join` spoils `is_alive`.
    """

    def __init__(self, calls: Iterable[Callable[[], None]]):
        super().__init__(daemon=True)
        self.calls = calls
        self.began = time.monotonic()
        self.computed_before = time.process_time()
        # of the processor time of this thread, where the system has one
        self.clock: int | None = None
        self.stopped = threading.Event()
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            if hasattr(time, "pthread_getcpuclockid"):
                self.clock = time.pthread_getcpuclockid(threading.get_ident())
            for call in self.calls:
                if self.stopped.is_set():  # before it began, or it caught what should have ended it
                    return
                call()
        except _Stop:
            pass
        finally:
            self.ended.set()

    def seconds(self) -> float:
        """The time that it has taken: that of the processor, or of the clock where the code mostly
        waits.
        """
        by_clock = time.monotonic() - self.began
        computed = self._computed()
        return by_clock if computed < LITTLE * by_clock else max(computed, by_clock / CROWD)

    def _computed(self) -> float:
        """Seconds of the processor; those of the whole process where the system has no clock for a
        thread.
        """
        if self.clock is None:
            return time.process_time() - self.computed_before
        try:
            return time.clock_gettime(self.clock)
        except OSError:  # it has just ended
            return 0.0

    def imports(self) -> bool:
        """Whether it is importing something, which is done once and should not be interrupted."""
        frame = sys._current_frames().get(self.ident)
        while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        return frame is not None

    def stop(self, patience: float) -> None:
        """Raise _Stop in it until it has ended, again and again for code that catches everything,
        so many seconds.
        """
        self.stopped.set()
        deadline = time.monotonic() + patience
        while self.ident is not None and not self.ended.is_set() and time.monotonic() < deadline:
            with contextlib.suppress(KeyboardInterrupt):  # people press Stop twice
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.ident), ctypes.py_object(_Stop)
                )
                self.ended.wait(0.1)


def within(seconds: float, calls: Iterable[Callable[[], None]]) -> bool:
    """Make calls one after the other in a thread of its own, so many seconds for all; afterwards
    all is as before.

    Seconds of the processor, so that a busy machine stops nothing, or of the clock for code that
    mostly waits. Returns False if a call had to be stopped, or abandoned where even that does not
    end it. What interrupts the wait, such as Ctrl-C, stops the thread, too.
    """
    learner = _Learner(calls)
    patience = 2.0  # where the reader has stopped it
    with _undisturbed():
        try:
            learner.start()
            start = 0.0
            while not learner.ended.wait(0.05):
                now = learner.seconds()
                if now < IMPORTING and learner.imports():
                    start = now
                elif now - start >= seconds:
                    break
            patience = PATIENCE
            return learner.ended.is_set()
        finally:
            learner.stop(patience)


def still_running() -> bool:
    """Whether a learner's code that could not be stopped still runs."""
    return any(
        isinstance(thread, _Learner) and not thread.ended.is_set()
        for thread in threading.enumerate()
    )
