"""From an error in traced code back to the operation that failed, its operands, and the mismatch of their shapes."""

import io
import linecache
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from inspect import getdoc, isfunction, ismethod, signature, unwrap
from types import FrameType, FunctionType, TracebackType
from typing import Any, NamedTuple

from torch import Tensor, nn

from .comments import Operation, Report, letters_said
from .instrument import woven
from .letters import axis_names, used_letters
from .mismatch import find, is_of_torch
from .operands import Box, Case, Given, Letters, Mismatch
from .recording import Recording

DEEPEST = 6  # functions inside functions that are searched for the operation


class Failure(NamedTuple):
    """A line whose shapes do not fit.

    inside: the functions that the line called, by name and line, down to the operation itself.
    """

    line: int
    source: str
    found: Mismatch
    letters: Letters
    inside: tuple[tuple[str, str], ...]
    message: str

    def named_letters(self) -> Letters:
        """The letters that the operands' axes bear, with their sizes."""
        names = [axis_names(box.size, self.letters) for box in self.found.boxes]
        return {letter: self.letters[letter] for letter in used_letters(names) if letter in self.letters}


def function_of(
    what: Any, args: Sequence[Any], named: Mapping[str, Any] | None = None
) -> tuple[FunctionType, tuple, dict]:
    """Returns the function behind a module, a method or a partial, and what it is called with.

    Raises: TypeError for what is none of these.
    """
    named = dict(named or {})
    if isinstance(what, partial):
        return function_of(what.func, (*what.args, *args), {**what.keywords, **named})
    if isinstance(what, nn.Module):
        return function_of(what.forward, args, named)
    if ismethod(what):
        return function_of(what.__func__, (what.__self__, *args), named)
    function = unwrap(what) if callable(what) else what
    if not isfunction(function):
        kind = "class" if isinstance(what, type) else type(what).__name__
        raise TypeError(f"only functions, methods and modules written in Python can be traced, not this {kind}")
    return function, tuple(args), named


def failure_at(report: Report, recording: Recording, error: BaseException, depth: int = 0) -> Failure | None:
    """Returns what does not fit where an error was raised, None where shapes are not the reason."""
    place = _innermost(error.__traceback__)
    if place is None:
        return None
    frame, number = place.tb_frame, place.tb_lineno
    letters = {**recording.background, **recording.letters, **report.sizes}
    line = linecache.getline(frame.f_code.co_filename, number, frame.f_globals)
    source = re.sub(r" # \(.*", "", " ".join(line.split()))  # no shape comment
    message = str(error).strip().split("\n")[0]
    inside: tuple[tuple[str, str], ...] = ()
    found = _unpacking(recording, number, source, error)
    if found is None and report.begun:
        index, values = report.begun[-1]
        operation = report.operations[index]
        if len(values) != len(operation.operands) or not operation.first <= number <= operation.last:
            return None
        called = _called(operation, values, frame)
        case = _case(operation, values, error, letters)
        if operation.kind != "call" or is_of_torch(called):
            found = find(case)
        deeper = None
        if found is None and operation.kind == "call" and depth < DEEPEST:
            args = [one.value for one in case.given]
            named = {name: one.value for name, one in case.named.items()}
            deeper = explain(called, args, named, error, letters, depth + 1)
        if deeper:
            name = f"{type(called).__name__}.forward" if isinstance(called, nn.Module) else operation.name
            found, letters = deeper.found, {**letters, **deeper.letters}
            inside = ((name, deeper.source), *deeper.inside)
    return Failure(number, source, found, letters, inside, message) if found else None


def background(function: FunctionType, args: Sequence[Any], named: Mapping[str, Any]) -> Letters:
    """Returns letters for what a function's own lines do not name: from its docstring, and from numbers around it.

    Raises: TypeError for arguments that the function does not take.
    """
    arguments = signature(function).bind(*args, **named).arguments
    return {**capitals(function.__globals__), **letters_said(getdoc(function) or "", arguments)}


def capitals(namespace: Mapping[str, Any]) -> Letters:
    """Returns the whole numbers that are named by one capital letter."""
    return {name: n for name, n in namespace.items() if len(name) == 1 and name.isupper() and type(n) is int}


def explain(
    called: Any, args: Sequence[Any], named: Mapping[str, Any], error: BaseException, letters: Letters, depth: int = 0
) -> Failure | None:
    """Runs a function that has raised once more, traced and in silence; returns what does not fit, if so."""
    try:
        function, args, named = function_of(called, args, named)
        recording = Recording({**background(function, args, named), **letters})
        report = Report(strict=False, on_line=recording.note)
        copy = woven(function, report)
    except (TypeError, ValueError, SyntaxError):
        return None  # nothing to be read in it
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            copy(*args, **named)
    except type(error) as again:
        return failure_at(report, recording, again, depth)
    except Exception:
        return None
    return None


def _innermost(traceback: TracebackType | None) -> TracebackType | None:
    """Returns the last place of a traceback that is in traced code."""
    last = None
    while traceback is not None:
        frame = traceback.tb_frame
        if "__scope__" in frame.f_locals or (frame.f_code.co_name == "<module>" and "__scope__" in frame.f_globals):
            last = traceback
        traceback = traceback.tb_next
    return last


def _unpacking(recording: Recording, number: int, source: str, error: BaseException) -> Mismatch | None:
    """Returns the mismatch where a shape is taken apart into another number of names."""
    line, value = recording.latest
    if not isinstance(error, ValueError) or "values to unpack" not in str(error) or line != number:
        return None
    size = tuple(value) if isinstance(value, tuple) and all(type(n) is int for n in value) else None
    if size is None:
        return None
    text = source.partition("=")[2].partition("#")[0].strip()
    many = "one axis" if len(size) == 1 else f"{len(size)} axes"
    return Mismatch(
        "",
        (Box(text, size),),
        f"There {'is' if len(size) == 1 else 'are'} {many}, but another number of names on the left.",
    )


def _called(operation: Operation, values: list, frame: FrameType) -> Any:
    role = operation.operands[0].role if operation.operands else ""
    if role == "()":
        return values[0]
    if role == ".":
        return getattr(values[0], operation.name, None)
    return frame.f_locals.get(operation.name, frame.f_globals.get(operation.name))


def _case(operation: Operation, values: list, error: BaseException, letters: Letters) -> Case:
    """Returns an operation with its operands, what is unpacked by `*` and `**` one by one."""
    given, named = [], {}
    for (role, text), value in zip(operation.operands, values, strict=True):
        if role == "*":
            given += [Given(f"{text}[{i}]", part) for i, part in enumerate(value)]
        elif role == "**":
            named.update({name: Given(f"{text}[{name!r}]", part) for name, part in value.items()})
        elif role == "" or (role == "." and isinstance(value, Tensor)):
            given.append(Given(text, value))
        elif role not in (".", "()"):
            named[role] = Given(text, value)
    return Case(operation.name, given, named, error, letters)
