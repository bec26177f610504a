"""From an error in traced code back to the operation that failed, its operands, and the mismatch of
their shapes.
"""

import ast
import io
import linecache
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from inspect import getdoc, isfunction, ismethod, signature, unwrap
from itertools import chain
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from torch import Tensor, nn

from .comments import Letters, Report, letters_said
from .instrument import woven
from .letters import axis_names, used_letters
from .mismatch import Case, Mismatch, Operand
from .recording import Recording
from .rules import is_of_torch, mismatch_of

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
        names = [axis_names(one.size, self.letters) for one in self.found.operands]
        used = used_letters(chain.from_iterable(names))
        return {letter: self.letters[letter] for letter in used if letter in self.letters}


def _function_of(
    what: Any, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[FunctionType, tuple, dict]:
    """Returns the function behind a module, a method or a partial, and what it is called with.

    Raises: TypeError for anything else.
    """
    if isinstance(what, partial):
        return _function_of(what.func, (*what.args, *args), {**what.keywords, **named})
    if isinstance(what, nn.Module):
        return _function_of(what.forward, args, named)
    if ismethod(what):
        return _function_of(what.__func__, (what.__self__, *args), named)
    function = unwrap(what) if callable(what) else what
    if not isfunction(function):
        kind = "class" if isinstance(what, type) else type(what).__name__
        raise TypeError(
            f"only functions, methods and modules written in Python can be traced, not this {kind}"
        )
    return function, tuple(args), dict(named)


def capitals(namespace: Mapping[str, Any]) -> Letters:
    """Returns the whole numbers that are named by one capital letter."""
    return {
        name: n
        for name, n in namespace.items()
        if len(name) == 1 and name.isupper() and type(n) is int
    }


def run_traced(
    what: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
    sizes: Letters,
    letters: Letters | None = None,
) -> tuple[FunctionType, dict[str, Any], Report, Recording, Exception | None]:
    """Runs a function while its lines are recorded; returns it, its arguments, the records and what
    it raised.

    letters: for what its own lines, its docstring and the numbers around it do not name.
    Raises: TypeError and ValueError if it cannot be called so or has no Python source.
    """
    function, args, named = _function_of(what, args, named)
    arguments = signature(function).bind(*args, **named).arguments
    doc = getdoc(function) or ""
    recording = Recording(
        {**capitals(function.__globals__), **letters_said(doc, arguments), **(letters or {})}
    )
    report = Report(sizes, on_line=recording.note)
    copy = woven(function, report)
    raised = None
    try:
        copy(*args, **named)
    except Exception as error:
        raised = error
    return function, arguments, report, recording, raised


def explain(
    called: Any, args: Sequence[Any], named: Mapping[str, Any], error: BaseException,
    letters: Letters | None = None, depth: int = 0,
) -> Failure | None:  # fmt: skip
    """Runs a function that has raised once more, traced and in silence; returns what does not fit,
    if so.
    """
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            _, _, report, recording, again = run_traced(called, args, named, {}, letters)
        except (TypeError, ValueError, SyntaxError):
            return None  # nothing to be read in it
    return failure_at(report, recording, again, depth) if isinstance(again, type(error)) else None


def failure_at(
    report: Report, recording: Recording, error: BaseException, depth: int = 0
) -> Failure | None:
    """Returns what does not fit where an error was raised, None where shapes are not the reason."""
    place = _innermost(error)
    if place is None:
        return None
    frame, number = place
    letters = {**recording.background, **recording.letters, **report.sizes}
    line = linecache.getline(frame.f_code.co_filename, number, frame.f_globals)
    source = re.sub(r" # \(.*", "", " ".join(line.split()))  # no shape comment
    message = str(error).strip().split("\n")[0]
    found = _unpacking(recording, number, source, error)
    inside = ()
    scope = frame.f_locals.get("__scope__", frame.f_globals.get("__scope__"))
    (operation, written) = scope.operation
    first = scope.first
    if found is None and operation and operation.lineno <= number <= operation.end_lineno:
        case = Case(*_operands(operation, written, first, scope.rest, scope.named), error, letters)
        is_call = isinstance(operation, ast.Call)
        deeper = None
        if not is_call or is_of_torch(first):
            found = mismatch_of(case)
        if found is None and is_call and depth < DEEPEST:
            deeper = explain(first, scope.rest, scope.named, error, letters, depth + 1)
        if deeper:
            name = f"{type(first).__name__}.forward" if isinstance(first, nn.Module) else case.name
            found = deeper.found
            letters = {**letters, **deeper.letters}
            inside = ((name, deeper.source), *deeper.inside)
    return Failure(number, source, found, letters, inside, message) if found else None


def _innermost(error: BaseException) -> tuple[FrameType, int] | None:
    """Returns the last frame and line of a traceback in traced code."""
    place = None
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if "__scope__" in frame.f_locals or (
            frame.f_code.co_name == "<module>" and "__scope__" in frame.f_globals
        ):
            place = frame, traceback.tb_lineno
        traceback = traceback.tb_next
    return place


def _unpacking(
    recording: Recording, number: int, source: str, error: BaseException
) -> Mismatch | None:
    """Returns the mismatch where a shape is taken apart into another number of names."""
    line, value = recording.latest
    is_shape = isinstance(value, tuple) and all(type(n) is int for n in value)
    if not (
        isinstance(error, ValueError)
        and "values to unpack" in str(error)
        and line == number
        and is_shape
    ):
        return None
    text = source.partition("=")[2].partition("#")[0].strip()
    many = "is one axis" if len(value) == 1 else f"are {len(value)} axes"
    fact = f"There {many}, but another number of names on the left."
    return Mismatch("", (Operand(text, value, tuple(value)),), fact)


def _operands(
    operation: Any, source: str, first: Any, rest: tuple, named: dict[str, Any]
) -> tuple[str, list[Operand], dict[str, Operand]]:
    """Returns an operation's name and its operands as they are written, what `*` and `**` unpack
    one by one.
    """

    def text(node: ast.AST) -> str:
        return " ".join((ast.get_source_segment(source, node) or ast.unparse(node)).split())

    values = [first, *rest]
    written = {}
    match operation:
        case ast.Call(func=func, args=nodes):
            name = getattr(func, "attr", text(func))
            values = list(rest)
            written = {word.arg or "**": text(word.value) for word in operation.keywords}
            if isinstance(func, ast.Attribute) and isinstance(
                owner := getattr(first, "__self__", None), Tensor
            ):
                values = [owner, *values]
                nodes = [func.value, *nodes]
        case ast.Subscript(value=left, slice=right):
            name = "[]"
            nodes = [left, right]
        case ast.AugAssign(target=left, op=sign, value=right):
            name = _sign(sign)
            nodes = [left, right]
            values = [*rest, first]
        case (
            ast.BinOp(left=left, op=sign, right=right)
            | ast.Compare(left=left, ops=[sign], comparators=[right])
        ):
            name = _sign(sign)
            nodes = [left, right]
    texts = []
    surplus = len(values) - len(nodes)
    for node in nodes:
        if isinstance(node, ast.Starred):
            texts += [f"{text(node.value)}[{i}]" for i in range(surplus + 1)]
            surplus = 0
        else:
            texts.append(text(node))
    given = [Operand.of(text, value) for text, value in zip(texts, values, strict=False)]
    unpacked = written.get("**")
    keywords = {
        key: Operand.of(written.get(key, f"{unpacked}[{key!r}]"), value)
        for key, value in named.items()
    }
    return name, given, keywords


def _sign(operator: ast.operator | ast.cmpop) -> str:
    a = ast.Name("a")
    b = ast.Name("b")
    whole = (
        ast.Compare(a, [operator], [b])
        if isinstance(operator, ast.cmpop)
        else ast.BinOp(a, operator, b)
    )
    return ast.unparse(whole)[2:-2]
