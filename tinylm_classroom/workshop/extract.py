"""A student's function as a file that stands on its own: taken out of a notebook with everything
that it needs.
"""

import __future__

import ast
import contextlib
import inspect
import linecache
import symtable
import sys
import textwrap
import warnings
from collections.abc import Iterator
from itertools import chain
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

_ABSENT = object()


class KeepError(Exception):
    """Why a function cannot stand on its own in a file, and how to fix that, in words for its
    author.
    """


class Extract(NamedTuple):
    """A function's name, its source after everything that it needs, and what was taken along:
    imports and helpers.
    """

    name: str
    body: str
    along: list[str]


def extract(function: Any) -> Extract:
    """Take a function out of its notebook, with the imports it uses and the functions and classes
    that it calls.

    Raises KeepError for things that no file can hold: other variables of the notebook, closures,
    lambdas, lost source.
    """
    own = _original(function)
    with warnings.catch_warnings():
        # of a doubtful escape, which was said when the cell was run
        warnings.simplefilter("ignore")
        gathered = _Gathered(own)
        gathered.define(own.__name__, function)
        return gathered.result(own.__name__)


class _Gathered:
    """What a function needs of its notebook, in an order in which it can run."""

    def __init__(self, function: FunctionType):
        self.names = function.__globals__
        self.cells = _cells(function)
        self.stands_for: dict[str, Any] = {}
        self.imports: set[str] = set()
        self.texts: list[str] = []

    def result(self, name: str) -> Extract:
        """The text as a whole: imports, then definitions."""
        lines = sorted(
            self.imports, key=lambda line: ("__future__" not in line, line.startswith("from"), line)
        )
        helpers = [
            helper
            for helper, thing in self.stands_for.items()
            if helper != name and self._is_own(thing)
        ]
        above = ["\n".join(lines)] if lines else []
        return Extract(name, "\n\n\n".join([*above, *self.texts]) + "\n", [*lines, *helpers])

    def define(self, name: str, thing: Any) -> None:
        """Take a function or a class of the notebook, after everything that it needs itself."""
        own = thing if isinstance(thing, type) else _original(thing)
        if self._is_new(own.__name__, thing):
            text = self._class(own) if isinstance(own, type) else self._function(name, thing, own)
            for needed in sorted(names_from_outside(text)):
                self.take(needed, own.__name__)
            self.texts.append(text)
        if name != own.__name__ and self._is_new(name, thing):
            self.texts.append(f"{name} = {own.__name__}")

    def take(self, name: str, user: str) -> None:
        """Take what the notebook calls by this name; KeepError if no file can hold it."""
        value = self.names.get(name, _ABSENT)
        # built in, or missing: then the fresh process will say so
        if value is _ABSENT or name.startswith("__"):
            return
        if lines := self._import_lines(name, value):
            self._is_new(name, value)
            self.imports.update(lines)
        elif self._is_own(value):
            self.define(name, value)
        # IPython puts it among the variables, and the fresh process supplies it
        elif name != "get_ipython":
            fix = f"Define `{name}` inside the function, or pass it as an argument."
            if callable(value):
                fix = f"Call what `{name}` refers to, or define it inside the function."
            raise KeepError(
                f"`{user}` uses `{name}`, {_kind(value)} of your notebook, and a file does not "
                f"know your notebook. {fix}"
            )

    def _is_new(self, name: str, thing: Any) -> bool:
        """Whether nothing has this name so far; KeepError if something else has it."""
        is_new = name not in self.stands_for
        if self.stands_for.setdefault(name, thing) is not thing:
            raise KeepError(
                f"Two different things are called `{name}`: one was defined again after it had "
                "been used. Run the cells once more from top to bottom, or give one of them "
                "another name."
            )
        return is_new

    def _is_own(self, value: Any) -> bool:
        """Whether the notebook itself defines this function or class."""
        if isinstance(value, type):
            return value.__module__ == self.names.get("__name__")
        return _unwrapped(value) is not None and _original(value).__globals__ is self.names

    def _import_lines(self, name: str, value: Any) -> list[str]:
        """The notebook's own statements that import this value under this name.

        Where there are none, one that would.
        """
        found = [*chain.from_iterable(_imports(tree, name, value) for _, tree in self.cells)]
        if found:
            return found
        if isinstance(value, ModuleType):
            return [_as("import", value.__name__, name)]
        module = getattr(value, "__module__", None)
        known = getattr(value, "__qualname__", None)
        is_named = (
            isinstance(module, str)
            and isinstance(known, str)
            and module != self.names.get("__name__")
        )
        is_there = is_named and getattr(sys.modules.get(module), known, _ABSENT) is value
        return [_as(f"from {module} import", known, name)] if is_there else []

    def _function(self, name: str, thing: Any, own: FunctionType) -> str:
        """The text of the `def` of a function, with its decorators."""
        if own.__name__ == "<lambda>":
            what = "This" if name == own.__name__ else f"`{name}`"
            raise KeepError(
                f"{what} is a lambda, which has no name of its own. Write it with `def`."
            )
        if remembered := " and ".join(f"`{variable}`" for variable in own.__code__.co_freevars):
            raise KeepError(
                f"`{name}` was made inside another function and remembers {remembered} of it. "
                f"Define it at the left margin of a cell, and pass {remembered} as an argument."
            )
        if own.__code__.co_flags & __future__.annotations.compiler_flag:
            self.imports.add("from __future__ import annotations")
        for text, tree in _definition(own):
            if thing is not own and not tree.body[0].decorator_list:
                raise KeepError(
                    f"`{name}` is wrapped in another function behind its back. "
                    "Write `@` above its `def`."
                )
            return text
        fix = (
            "Put it in a cell of its own, without a line that begins with `%%`; run that cell, "
            "then this one."
        )
        raise KeepError(f"Python does not remember how `{name}` was written. {fix}")

    def _class(self, own: type) -> str:
        """The text of a class: the statement around its methods, or without methods the last of its
        name.
        """
        methods = [value for value in vars(own).values() if isinstance(value, FunctionType)]
        codes = [method.__code__ for method in methods if method.__globals__ is self.names]
        # a dataclass brings methods that nobody wrote
        written = [code for code in codes if _file(code)]
        for text, tree in reversed(_parsed(_file(written[0])) if written else self.cells):
            for node in ast.walk(tree):
                is_it = isinstance(node, ast.ClassDef) and node.name == own.__name__
                if is_it and all(
                    node.lineno <= code.co_firstlineno <= node.end_lineno for code in written
                ):
                    first = min(
                        [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
                    )
                    return _at_the_margin("\n".join(text.split("\n")[first - 1 : node.end_lineno]))
        raise KeepError(
            f"Python does not remember how `{own.__name__}` was written. Run its cell once more, "
            "then this one."
        )


def _unwrapped(value: Any) -> FunctionType | None:
    """The function below the wrappers that say what they wrap, if it is one written in Python."""
    inner = value
    with contextlib.suppress(ValueError):  # it wraps itself
        inner = inspect.unwrap(value)
    return inner if isinstance(inner, FunctionType) else None


def _original(function: Any) -> FunctionType:
    """The function below its decorators; KeepError for what was not written with `def`."""
    inner = _unwrapped(function)
    if inner is None:
        raise KeepError(
            f"This is {_kind(function)}, and only a function written with `def` can be kept."
        )
    for cell in inner.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            below = cell.cell_contents
            if (
                isinstance(below, FunctionType)
                and below.__globals__.get(below.__name__) is function
            ):
                return _original(below)
    return inner


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'AEIOaeio' else 'a'} {kind}"


def _cells(function: FunctionType) -> list[tuple[str, ast.Module]]:
    """All that was typed, as text and as a tree: what IPython remembers of each cell, with or
    without a history.
    """
    texts = [
        "".join(entry[2])
        for entry in list(linecache.cache.values())
        if len(entry) > 1 and entry[1] is None
    ]
    history = function.__globals__.get("In")
    if isinstance(history, list):
        texts += [text for text in history if isinstance(text, str)]
    texts.append(_file(function.__code__))
    return [*chain.from_iterable(map(_parsed, texts))]


def _parsed(text: str) -> list[tuple[str, ast.Module]]:
    """The text and its tree, or nothing for a text that is not Python."""
    with contextlib.suppress(SyntaxError, ValueError):
        return [(text, ast.parse(text))]
    return []


def _file(code: CodeType) -> str:
    linecache.checkcache(code.co_filename)
    return "".join(linecache.getlines(code.co_filename))


def _definition(function: FunctionType) -> list[tuple[str, ast.Module]]:
    """The `def` of a function with its decorators, as text and as a tree, if it is still where it
    was compiled from.
    """
    try:
        found = _parsed(_at_the_margin(inspect.getsource(function.__code__)))
    except (OSError, SyntaxError):
        return []
    return [
        (text, tree)
        for text, tree in found
        if getattr(tree.body[0], "name", None) == function.__name__
    ]


def _at_the_margin(text: str) -> str:
    """An indented definition at the left margin, without its comments where moving them would
    change a string.
    """
    text = text.rstrip("\n")
    if not text[:1].isspace():
        return text
    node = ast.parse(f"if True:\n{text}").body[0].body[0]
    for moved, tree in _parsed(textwrap.dedent(text)):
        if ast.dump(tree.body[0]) == ast.dump(node):
            return moved
    return ast.unparse(node)


def names_from_outside(text: str) -> set[str]:
    """The names that a definition looks up outside of itself: in its body, its defaults,
    annotations, decorators.
    """
    names: set[str] = set()
    tables = [symtable.symtable(text, "part", "exec")]
    for table in tables:
        tables += table.get_children()
        names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return names


def _imports(tree: ast.Module, name: str, value: Any) -> Iterator[str]:
    """The imports of a tree that bind this value to this name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                if (
                    name == (alias.asname or top)
                    and sys.modules.get(alias.name if alias.asname else top) is value
                ):
                    yield _as("import", alias.name, alias.asname or alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in sys.modules:
            for alias in node.names:
                known = name if alias.name == "*" else alias.name
                is_bound = name == (alias.asname or known)
                if is_bound and getattr(sys.modules[node.module], known, _ABSENT) is value:
                    yield _as(f"from {node.module} import", known, name)


def _as(statement: str, known: str, name: str) -> str:
    return f"{statement} {known}" + (f" as {name}" if name != known else "")
