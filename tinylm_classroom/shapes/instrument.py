"""How a source comes to check and to trace itself: its tree is rewritten so that each value is seen
as it is made.

What is rewritten is one function (`woven`) or each cell of a notebook (trace.py); the tests rewrite
the library. What a value then has to match is in comments.py. Nothing is patched, and line numbers
stay those of the source.
"""

import ast
import linecache
import re
from collections.abc import Iterator
from copy import copy
from itertools import chain
from types import CodeType, FunctionType
from typing import Any

from .comments import Comment, Report, find_comments

_VALUED = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
_OPERANDS = (
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.BinOp,
    ast.UnaryOp,
    ast.Subscript,
    ast.IfExp,
    ast.NamedExpr,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (ast.Module, *_FUNCTIONS)
_UNWOVEN = (ast.JoinedStr, ast.pattern, ast.arg)  # what is inside is not an expression of its own


def _place(tree: ast.AST, line: int) -> ast.AST | None:
    """Returns the node whose value a comment on this line speaks of."""
    here = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and node.iter.end_lineno == line < node.body[0].lineno:
            return node if isinstance(node.target, ast.Name) else None
        if isinstance(node, _VALUED) and node.lineno <= line <= node.end_lineno:
            here.append(node)
    node = max(here, key=lambda statement: (statement.lineno, statement.col_offset), default=None)
    if isinstance(node, ast.AugAssign) and node.end_lineno == line:
        return node if isinstance(node.target, ast.Name) else None
    value = getattr(node, "value", None)
    if isinstance(tree, ast.Lambda) and not here and line == tree.end_lineno:
        value = tree
    if node is not None and value is not None and node.end_lineno > line:
        inside = _ending(value, line)
        value = inside[0] if len(inside) == 1 else None
    while isinstance(value, ast.Lambda | ast.Yield | ast.GeneratorExp):
        value = next(
            getattr(value, field) for field in ("body", "elt", "value") if hasattr(value, field)
        )
    return value


def _ending(node: ast.AST, line: int) -> list[ast.AST]:
    """Returns the largest expressions that end on a line."""
    if isinstance(node, ast.JoinedStr | ast.Constant):
        return []
    if isinstance(node, ast.expr) and node.end_lineno == line:
        return [node]
    return [*chain.from_iterable(_ending(child, line) for child in ast.iter_child_nodes(node))]


def instrument(
    source: str,
    file: str,
    report: Report,
    tree: ast.Module | None = None,
    part: ast.AST | None = None,
) -> ast.Module:
    """Returns the tree of a source whose shape comments check themselves; it runs where
    `__shapes__` is the report.

    part: the function inside the tree to weave, default everything.
    """
    tree = ast.parse(source, file) if tree is None else tree
    part = part or tree
    lines = range(
        getattr(part, "lineno", 1), getattr(part, "end_lineno", source.count("\n") + 1) + 1
    )
    comments = [comment for comment in find_comments(source, file) if comment.line in lines]
    if report.on_line:
        silent = sorted(set(lines) - {comment.line for comment in comments})
        comments += [Comment(file, line, "", "") for line in silent]
    claims: dict[ast.AST, list[int]] = {}
    for comment in comments:
        node = None if comment.obstacle else _place(part, comment.line)
        if comment.text or not isinstance(node, ast.Constant | None):
            if node:
                claims.setdefault(node, []).append(len(report.comments))
            comment.obstacle = comment.obstacle or (
                "" if node else "no single value ends on this line"
            )
            report.comments.append(comment)
    _Weaver(claims, report, source).visit(part)
    return ast.fix_missing_locations(tree)


class _Weaver(ast.NodeTransformer):
    """Wraps every claimed value in a check, its operands where the comment has left sides; for a
    trace, notes all.
    """

    def __init__(self, claims: dict[ast.AST, list[int]], report: Report, source: str) -> None:
        self.claims = claims
        self.report = report
        self.source = source
        self.watching = False  # inside a value whose comment has left sides
        # letters of the comments so far in this function; "" stands for any comment
        self.used: set[str] = set()

    def visit(self, node: ast.AST) -> Any:
        """Returns the node, woven from the inside out."""
        claims = self.claims.get(node, [])
        watching = self.watching
        used = set(self.used)
        self.watching |= any(self.report.comments[index].lefts for index in claims)
        self.used = set() if isinstance(node, _SCOPES) else self.used
        operation = copy(node) if self._is_noted(node) else None
        node = node if isinstance(node, _UNWOVEN) else self.generic_visit(node)
        if operation:
            self.used |= {""} if self.report.on_line else set()
            self.report.operations.append((operation, self.source))
            _note(node, len(self.report.operations) - 1)
        self.watching = watching
        if isinstance(node, _SCOPES):
            self._open(node)
            # decorators and defaults run outside
            self.used = used | ({""} if self.report.on_line else set())
        if (
            watching
            and isinstance(node, _OPERANDS)
            and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        ):
            node = _call("__scope__.see", node, node)
        if isinstance(node, ast.expr):
            return self._checked(node, claims)
        return self._statement(node, claims, used)

    def _is_noted(self, node: Any) -> bool:
        """Whether a trace notes this operation, or a comment that speaks of the sides of `@`."""
        if not self.report.on_line:
            return (
                self.watching and isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
            )
        if isinstance(node, ast.AugAssign):
            return isinstance(node.target, ast.Name)
        if isinstance(node, ast.Subscript):
            return isinstance(node.ctx, ast.Load)
        return isinstance(node, ast.BinOp | ast.Call) or (
            isinstance(node, ast.Compare) and len(node.ops) == 1
        )

    def _checked(self, node: ast.expr, claims: list[int]) -> ast.expr:
        for index in claims:
            comment = self.report.comments[index]
            self.used |= {"", *re.findall("[A-Z]", str(comment.lefts + comment.results))}
            node = _call(
                "__scope__.check", node, ast.Constant(index), _call("__scope__.begin", node), node
            )
        return node

    def _statement(self, node: Any, claims: list[int], used: set[str]) -> Any:
        """Checks the variable that `x += ...` and `for x in ...:` leave, and frees a loop's own
        letters each round.
        """
        after = []
        if claims:
            value = self._checked(ast.Name(node.target.id, ast.Load()), claims)
            after = [ast.copy_location(ast.Assign([node.target], value), node)]
        if isinstance(node, ast.AugAssign):
            return [node, *after]
        if isinstance(node, ast.For | ast.AsyncFor | ast.While) and "" in self.used:
            forget = _call(
                "__scope__.forget", node, ast.Constant("".join(sorted(self.used - used)))
            )
            node.body[:0] = [ast.copy_location(ast.Expr(forget), node), *after]
        return node

    def _open(self, node: Any) -> None:
        """Gives each call of a function that has comments its own letters."""
        scope = _call("__shapes__.scope", node)
        if self.used and isinstance(node, ast.Lambda):
            only = ast.arguments([], [ast.arg("__scope__")], None, [], [], None, [])
            node.body = ast.copy_location(ast.Call(ast.Lambda(only, node.body), [scope], []), node)
        elif self.used:
            first = ast.get_docstring(node, clean=False) is not None
            while getattr(node.body[first], "module", None) == "__future__":
                first += 1
            assign = ast.Assign([ast.Name("__scope__", ast.Store())], scope)
            node.body.insert(first, ast.copy_location(assign, node.body[first]))


def _note(node: Any, number: int) -> None:
    """Rewrites an operation so that it is noted when everything that it takes is there, right
    before it runs.
    """
    rest = _attribute("__scope__.rest")
    right = ast.Subscript(rest, ast.Constant(0), ast.Load())

    def noted(*operands: ast.expr) -> ast.Call:
        return _call("__scope__.operate", node, ast.Constant(number), *operands)

    if isinstance(node, ast.BinOp):
        node.left = noted(node.left, node.right)
        node.right = right
    elif isinstance(node, ast.Compare):
        node.left = noted(node.left, *node.comparators)
        node.comparators = [right]
    elif isinstance(node, ast.AugAssign):
        node.value = noted(
            node.value, ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        )
    elif isinstance(node, ast.Subscript):
        index = ast.Subscript(ast.Name("__scope__", ast.Load()), node.slice, ast.Load())
        node.value = noted(node.value, index)
        node.slice = right
    else:
        node.func = noted(node.func, *node.args)
        node.func.keywords = node.keywords
        node.args = [ast.Starred(rest, ast.Load())]
        node.keywords = [ast.keyword(None, _attribute("__scope__.named"))]


def _attribute(name: str) -> ast.Attribute:
    owner, attribute = name.split(".")
    return ast.Attribute(ast.Name(owner, ast.Load()), attribute, ast.Load())


def _call(name: str, at: ast.AST, *args: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(_attribute(name), list(args), []), at)


def woven(function: FunctionType, report: Report) -> FunctionType:
    """Returns a copy of a function that reports to `report`; the function itself stays as it is.

    Raises: ValueError for a function without Python source, and for one that shares its line with
    its like.
    """
    code = function.__code__
    source = _source(function)
    tree = ast.parse(source)
    part = definition(function, tree)
    part.args.kwonlyargs.append(ast.arg("__shapes__"))
    part.args.kw_defaults.append(None)
    tree = instrument(source, code.co_filename, report, tree, part)
    whole = compile(tree, code.co_filename, "exec", dont_inherit=True)
    found = next(inner for inner in _codes(whole) if "__shapes__" in inner.co_varnames)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in found.co_freevars)
    twin = FunctionType(
        found, function.__globals__, function.__name__, function.__defaults__, closure
    )
    twin.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "__shapes__": report}
    return twin


def _source(function: FunctionType) -> str:
    return "".join(linecache.getlines(function.__code__.co_filename, function.__globals__))


def definition(function: FunctionType, tree: ast.Module | None = None) -> Any:
    """Returns the node of a function in the tree of its file, or in `tree`."""
    code = function.__code__
    tree = ast.parse(_source(function)) if tree is None else tree
    names = code.co_varnames[: code.co_argcount]
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS)
        and getattr(node, "name", "<lambda>") == code.co_name
        and min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        == code.co_firstlineno
        and tuple(arg.arg for arg in [*node.args.posonlyargs, *node.args.args]) == names
    ]
    if not found:
        raise ValueError(
            f"{function.__qualname__} has no Python source here: define it in a cell or in a file"
        )
    if len(found) > 1:
        raise ValueError(
            f"line {code.co_firstlineno} has several functions alike: write this one with `def`"
        )
    return found[0]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)
