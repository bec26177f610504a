"""The last attempt at an exercise, out of a notebook's cells, with everything it refers to: read,
and never run.
"""

import ast
import builtins
import contextlib
import re
import warnings
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from IPython.core.inputtransformer2 import TransformerManager

from ...folders import PACKAGES
from ...workshop.extract import names_from_outside

# cells that are Python behind their first line
MEASURES = re.compile(r"\A\s*%%(time|timeit|capture|prun)\b.*")
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# a statement that runs as if this were not there
TIMED = re.compile(r"^([ \t]*)%time[ \t]+(?=\w)", re.M)
NOTHING = re.compile(r"\A\s*%%")
# what Git leaves where two versions differ
CONFLICT = re.compile(r"^(<<<<<<< |=======$|>>>>>>> )", re.M)


class Attempt(NamedTuple):
    """A function with its surroundings, as a text that can be run on its own.

    body: the definition alone; library: what it takes from tinylm_lib, by name; problem: why there
    is no text.
    python: the version that the notebook was written with, where the grader runs another one.
    """

    text: str = ""
    body: str = ""
    library: tuple[str, ...] = ()
    problem: str = ""
    python: str = ""


class Statement(NamedTuple):
    """One statement at the left margin: what it binds, what it looks up, and what it writes into
    without binding it.

    given: its cell is one of the lesson, as the course gives it to everybody.
    """

    text: str
    node: ast.stmt
    binds: set[str]
    needs: set[str]
    changes: set[str]
    cell: int = 0
    given: bool = False


class Cells:
    """All that the code cells of a notebook say, in their order there, whatever the order in which
    they were run.

    given: the texts of cells that are not the student's own.
    """

    def __init__(self, texts: Iterable[str], given: Collection[str] = ()):
        self.given = given
        self.statements: list[Statement] = []
        self.broken: list[tuple[str, str]] = []  # the text of a cell that is not Python, and why
        for number, text in enumerate(texts):
            with warnings.catch_warnings():
                # of a doubtful escape, which was said when the cell was run
                warnings.simplefilter("ignore")
                try:
                    found = _statements(_python(text))
                    self.statements += [s._replace(cell=number, given=text in given) for s in found]
                # of a text that was made to break Python's parser, or IPython's
                except Exception as error:
                    self.broken.append((text, _said(error, text)))

    def attempt(self, name: str) -> Attempt | None:
        """The last attempt at a function, None where there is only the stub; a broken one if there
        is no other.
        """
        try:
            return self._attempt(name)
        except RecursionError:
            return Attempt(
                problem=(
                    "its functions refer to one another in a chain that is too long, or never ends"
                )
            )

    def _attempt(self, name: str) -> Attempt | None:
        written = [i for i, s in enumerate(self.statements) if name in s.binds]
        found = [i for i in written if _is_written_out(self.statements[i].node)]
        made = [i for i in written if _is_made(self.statements[i].node, name if found else "")]
        found = sorted(found + [i for i in made if not found or i > found[-1]])
        if found:
            chosen = self._with_all_it_needs(name, found[-1])
            text = "\n\n".join([*self._future(), *(self.statements[i].text for i in chosen)]) + "\n"
            return Attempt(text, self.statements[found[-1]].text, self._library(chosen))
        for other in self._checked_as(name):
            if aliased := self._attempt(other):
                return aliased._replace(text=f"{aliased.text}\n\n{name} = {other}\n")
        for text, why in reversed(self.broken):
            if re.search(rf"^[ \t]*(async )?def {name}\b|^{name}[ \t]*=", text, re.M):
                return Attempt(body=text, problem=f"its cell has {why}")
        return None

    def _checked_as(self, name: str) -> list[str]:
        """The names of functions that a student gave to a check of this exercise.

        The last comes first.
        """
        return [other for exercise, other in reversed(self._checks) if exercise == name != other]

    @cached_property
    def _checks(self) -> list[tuple[str, str]]:
        """The names in calls like `check("softmax", mine)` that a student wrote."""
        own = _walked(s.node for s in self.statements if not s.given)
        calls = [n.args for n in own if isinstance(n, ast.Call) and len(n.args) == 2]
        return [
            (a.value, b.id)
            for a, b in calls
            if isinstance(a, ast.Constant) and isinstance(b, ast.Name)
        ]

    def answers(self, name: str, n_arguments: int) -> bool:
        """Whether a student wrote this function here, or had it checked, although it belongs to
        another lesson.

        A function that takes another number of arguments only has the same name.
        """
        found = [
            s
            for s in self.statements
            if name in s.binds and not s.given and _is_written_out(s.node)
        ]
        is_meant = any(_takes(s.node, n_arguments) for s in found) or name in [
            exercise for exercise, _ in self._checks
        ]
        return is_meant and self.attempt(name) is not None

    def defines(self, name: str) -> bool:
        """Whether there is a function of this name, be it the stub."""
        return any(name in s.binds and isinstance(s.node, FUNCTION) for s in self.statements)

    def _with_all_it_needs(self, name: str, at: int) -> list[int]:
        """The numbers of a statement and of all it needs, each behind what it needs itself."""
        chosen: list[int] = []
        begun: set[int] = set()

        def take(i: int, own: str) -> None:
            if i not in begun:
                begun.add(i)
                for needed in sorted(self.statements[i].needs - {own}):
                    for provider in self._providers(needed, self.statements[i].cell):
                        take(provider, needed)
                chosen.append(i)

        for i in self._down_to(name, at):
            take(i, name)
        return chosen

    def _providers(self, name: str, cell: int) -> list[int]:
        """The statements that make a name what it is: the last that binds it, what this starts
        from, what follows.

        A cell that needs a name and binds it means its own, although the lesson may use the name
        again below.
        """
        binding = [i for i, s in enumerate(self.statements) if name in s.binds]
        if not binding:
            if hasattr(builtins, name):
                return []
            return [i for i, s in enumerate(self.statements) if "*" in s.binds]
        # torch, torch.nn
        imports = [i for i in binding if isinstance(self.statements[i].node, ast.Import)]
        real = [i for i in binding if not _is_stub(self.statements[i].node)] or binding
        real = [i for i in real if self.statements[i].cell == cell] or real
        if real[-1] in imports:
            return imports
        later = [i for i, s in enumerate(self.statements) if i > real[-1] and name in s.changes]
        return [*self._down_to(name, real[-1]), *later]

    def _down_to(self, name: str, last: int) -> list[int]:
        """The statements that bind a name up to the last one, as far back as each starts from the
        one before.
        """
        found = [last]
        while name in _looked_up_at_once(self.statements[found[0]].node):
            earlier = [
                i
                for i, s in enumerate(self.statements[: found[0]])
                if name in s.binds and not _is_stub(s.node)
            ]
            if not earlier:
                break
            found.insert(0, earlier[-1])
        return found

    def _future(self) -> list[str]:
        found = [
            s
            for s in self.statements
            if isinstance(s.node, ast.ImportFrom) and s.node.module == "__future__"
        ]
        return list(dict.fromkeys(s.text for s in found))

    def _library(self, chosen: list[int]) -> tuple[str, ...]:
        """What is taken from the library, by name; modules through what is looked up in them."""
        found: list[str] = []
        statements = [self.statements[i].node for i in chosen]
        used = [*_walked(statements)]
        for node in statements:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                where = alias.name if isinstance(node, ast.Import) else node.module or ""
                if where.split(".")[0] in PACKAGES:
                    short = alias.asname or alias.name.split(".")[0]
                    inside = [
                        n.attr for n in used if isinstance(n, ast.Attribute) and _root(n) == short
                    ]
                    found += inside or [alias.name]
        texts = [n.value for n in used if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        for text in texts:
            found += [package for package in PACKAGES if text.startswith(package)]
        return tuple(dict.fromkeys(found))


def _walked(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes in these."""
    return chain.from_iterable(map(ast.walk, nodes))


def _takes(node: ast.stmt, n_arguments: int) -> bool:
    """Whether it is a function that can be called with so many arguments."""
    if not isinstance(node, ast.FunctionDef):
        return False
    places = len(node.args.posonlyargs) + len(node.args.args)
    return places - len(node.args.defaults) <= n_arguments and (
        n_arguments <= places or node.args.vararg is not None
    )


def _python(text: str) -> str:
    """A cell without what only Jupyter understands."""
    text = TIMED.sub(r"\1", text)
    if measured := MEASURES.match(text):
        text = text[measured.end() :]
    elif NOTHING.match(text):
        return ""
    if re.search("[!%?]", text):
        with contextlib.suppress(SyntaxError, ValueError):
            ast.parse(text)
            return text
        return TransformerManager().transform_cell(text)
    return text


def _statements(text: str) -> Iterator[Statement]:
    lines = re.split("\r\n|\r|\n", text)
    for node in ast.parse(text).body:
        for part in _parts(node):
            segment = ast.unparse(part) if part is not node else _segment(lines, node)
            binds = _bound_at_once(part)
            needs = names_from_outside(segment) - (binds - _looked_up_at_once(part))
            yield Statement(segment, part, binds, needs, _changed_at_once(part))


def _parts(node: ast.stmt) -> list[ast.stmt]:
    """A statement; of an import each name alone, since only some may be needed."""
    if isinstance(node, ast.Import):
        return [ast.Import([alias]) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module != "__future__":
        return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
    return [node]


def _segment(lines: list[str], node: ast.stmt) -> str:
    """As ast.get_source_segment, with its decorators, and without splitting the text for each
    statement.
    """
    if decorators := getattr(node, "decorator_list", []):
        return "\n".join(lines[min(d.lineno for d in decorators) - 1 : node.end_lineno])
    own = lines[node.lineno - 1 : node.end_lineno]
    own[-1] = own[-1].encode()[: node.end_col_offset].decode()
    own[0] = own[0].encode()[node.col_offset :].decode()
    return "\n".join(own)


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """All parts of a statement that run when it does, in the names of the notebook: not the inside
    of functions.
    """
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.ClassDef):
        children = [*node.decorator_list, *node.bases]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        children = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    elif isinstance(
        node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ):
        children = ()
    for child in children:
        yield from _at_once(child)


def _bound_at_once(node: ast.AST) -> set[str]:
    """The names that a statement gives to something, but for those that it only adds to."""
    bound: set[str] = set()
    for n in _at_once(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            bound.add(n.id)
        elif isinstance(n, FUNCTION):
            bound.add(n.name)
        elif isinstance(n, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.split(".")[0] for alias in n.names}
    return bound - _added_to_at_once(node)


def _added_to_at_once(node: ast.AST) -> set[str]:
    return {
        _root(n.target)
        for n in _at_once(node)
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }


def _looked_up_at_once(node: ast.AST) -> set[str]:
    return {n.id for n in _at_once(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _changed_at_once(node: ast.AST) -> set[str]:
    """The names of things that a statement changes.

    So do `x += 1`, `x[0] = 1`, `x.y = 1` and `x.append(1)`.
    """
    changed = _added_to_at_once(node)
    for n in _at_once(node):
        if isinstance(n, ast.Subscript | ast.Attribute) and not isinstance(n.ctx, ast.Load):
            changed.add(_root(n))
        elif (
            isinstance(n, ast.Expr)
            and isinstance(n.value, ast.Call)
            and isinstance(n.value.func, ast.Attribute)
        ):
            changed.add(_root(n.value.func))
    return changed


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_written_out(node: ast.stmt) -> bool:
    """Whether it is a function, and not the stub, or a compound statement that holds one."""
    return (isinstance(node, FUNCTION) and not _is_stub(node)) or isinstance(
        node, ast.If | ast.Try | ast.With
    )


def _is_made(node: ast.stmt, wrapped: str = "") -> bool:
    """Whether it may make a function of something, or only of one that it wraps: no import, no
    number of the lesson.
    """
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    if wrapped:
        made = isinstance(node.value, ast.Call) and _root(node.value.func) != wrapped
        return made and wrapped in _looked_up_at_once(node)
    return isinstance(node.value, ast.Lambda | ast.Name | ast.Attribute | ast.Call)


def _is_stub(node: ast.stmt) -> bool:
    """Whether a function does nothing but raise NotImplementedError, or nothing at all."""
    if not isinstance(node, FUNCTION):
        return False
    return all(
        isinstance(part, ast.Pass)
        or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
        or (
            isinstance(part, ast.Raise)
            and part.exc is not None
            and "NotImplemented" in ast.unparse(part.exc)
        )
        for part in node.body
    )


def _said(error: BaseException, text: str) -> str:
    """Why a cell is not Python, behind "its cell has"."""
    if conflict := CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        return (
            f"the conflict markers of a merge in line {line}: keep one of the two versions and "
            "delete the markers"
        )
    if isinstance(error, SyntaxError):
        return f"a syntax error, line {error.lineno}: {error.msg}"
    return f"a syntax error, {type(error).__name__}: {error}"
