"""Shape comments that run: `# (B, T, C) -> (B, H, T, D)` is checked while real tensors flow.

    # (R)                 the value of this line has this shape
    # (A) -> (R)          and a tensor of shape A flows in: a local variable or a part of the
                          expression
    # (A) @ (B) -> (R)    several flow in, joined by @ , + * or -; where the line has an `@`,
                          these are its two sides
    # (R), (S)            the shapes of a tuple's elements; one shape is that of all elements of
                          a tuple or list
    # (R) words           words may follow; after a single item only behind two spaces or one of
                          , : ;

A dimension is a letter, a number, arithmetic of both (`T + 1`, `H*D`, `D/2`) or, once per shape,
`...`: any dimensions, the same in all shapes of the comment up to broadcasting. `()` is a scalar
tensor. Ordinary comments are numbers without any letter, unless they are alone behind a tensor, and
a listing such as `# (0, D), (1, D + 1), ...`.

A comment ends a statement (assignment: the assigned value; `return`, `yield`, an expression: its
value; `x += ...`: the new x; `for x in ...:`: x; a lambda: what it returns; a generator expression:
each element), or a line inside one: then it speaks of the largest expression that ends there, such
as a link of a method chain.

Letters come from the caller's `sizes`, or from an int variable of that name in the same function;
otherwise they are bound by their first use in a call. A letter first used inside a loop is bound
again in each round.
"""

import ast
import io
import itertools
import operator
import re
import sys
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

Size = tuple[int, ...]  # of a real tensor
Shape = tuple[str, ...]  # as a comment says it
Letters = dict[str, Any]

_TERM = r"(?:[A-Z]|0|[1-9]\d*)"
_DIM = rf"(?:\.\.\.|{_TERM}(?:\s*[-+*/]\s*{_TERM})*)"
_SHAPE = rf"\(\s*(?:{_DIM}(?:\s*,\s*{_DIM})*\s*,?\s*)?\)"
_COMMENT = re.compile(
    rf"#\s*(?:({_SHAPE}(?:\s*[@,+*-]\s*{_SHAPE})*)\s*->\s*)?({_SHAPE}(?:,\s*{_SHAPE})*)(.*)"
)
_ITEM = r"[\w.]+(?:\s*[-+*/]+\s*[\w.]+)*"
_NEARLY = re.compile(
    rf"#\s*\((?=(?:[^()]*,)?\s*(?:[A-Z]|\.\.\.)\s*[,)]){_ITEM}(?:\s*,\s*{_ITEM})+\s*,?\s*\)"
)
_SPELLING = "nearly a shape: dimensions are capital letters, numbers, arithmetic of both, or `...`"
_SIGNS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass
class Comment:
    """One shape comment: where it is, what it claims, and what came of it.

    Without a text it claims nothing.
    """

    file: str
    line: int
    text: str
    source: str
    lefts: list[Shape] = field(default_factory=list)
    results: list[Shape] = field(default_factory=list)
    obstacle: str = ""  # why it cannot be executed
    runs: int = 0
    lie: str = ""  # the message of the first disagreement

    @property
    def state(self) -> str:
        """One of `unplaced`, `lie`, `never executed`, `true`."""
        if self.obstacle:
            return "unplaced"
        if self.lie:
            return "lie"
        return "true" if self.runs else "never executed"


@dataclass
class Report:
    """Every shape comment that was found, and how to check: `sizes` of the fixed letters may change
    between runs.

    on_line: makes the check a trace. It gets the value of each line, commented or not, and the
    letters known there; and each operation is noted before it runs, so that one that fails can be
    explained.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    on_line: Callable[[Comment, Any, Letters], None] | None = None
    comments: list[Comment] = field(default_factory=list)
    # each with the source that it is in
    operations: list[tuple[ast.AST, str]] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Returns one message per comment that lies, could not be placed or never ran."""
        bad = [comment for comment in self.comments if comment.text and comment.state != "true"]
        return [
            c.lie or f"{c.file}:{c.line}: {c.source}\n  {c.state} {c.obstacle}".rstrip()
            for c in bad
        ]

    def scope(self) -> "Scope":
        """Returns an empty set of letters for one function call."""
        return Scope(self)


def config_sizes(config: Any) -> dict[str, int]:
    """Returns the sizes of the fixed letters C H G D F V of a ModelConfig."""
    names = {
        "C": "d_model",
        "H": "n_heads",
        "G": "n_kv_heads",
        "D": "d_head",
        "F": "d_ff",
        "V": "vocab_size",
    }
    return {letter: getattr(config, name) for letter, name in names.items()}


def letters_said(text: str, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Returns the letters that a docstring such as `x (B, T, C), positions (T)` gives to arguments,
    none if it errs.
    """
    claims = [
        (_parse(said[1])[0], tuple(value.shape))
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor) and (said := re.search(rf"\b{name} ({_SHAPE})", text))
    ]
    letters, problems = _match(claims, {})
    return {} if problems else letters


def find_comments(source: str, file: str = "<source>") -> list[Comment]:
    """Returns the shape comments of a source text; what is nearly one has an obstacle."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        comment = Comment(file, token.start[0], token.string, token.line.strip())
        trailing = not comment.source.startswith("#")
        match = _COMMENT.match(token.string)
        if match and _is_claim(*match.groups()):
            comment.lefts, comment.results = (_parse(text or "") for text in match.groups()[:2])
            if not trailing:
                comment.obstacle = "a shape comment belongs at the end of a line of code"
            elif re.match(r"\s*(->|[@,+*-]\s*\()", match[3]):
                comment.obstacle = _SPELLING
            found.append(comment)
        elif not match and trailing and _NEARLY.match(token.string):
            comment.obstacle = _SPELLING
            found.append(comment)
    return found


def _is_claim(lefts: str | None, results: str, words: str) -> bool:
    if words.startswith(", ..."):
        return False
    if not re.search(r"[A-Z]|\.\.\.", results + (lefts or "")) and results != "()":
        return "," in results and not words.strip()
    return bool(lefts or "," in results or re.match(r"\s*$|\s\s|\s*[,:;]", words))


def _parse(text: str) -> list[Shape]:
    return [tuple(re.findall(_DIM, shape)) for shape in re.findall(_SHAPE, text)]


class Scope:
    """The letters of one function call, the operands of the lines that are running, and the
    operation begun last.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.letters = {}
        self.running = []
        self.operation: tuple[ast.AST | None, str] = None, ""  # with the source that it is in
        # what it takes
        self.first = None
        self.rest = ()
        self.named = {}

    def forget(self, letters: str) -> None:
        """Unbinds the letters that belong to one round of a loop."""
        for letter in letters:
            self.letters.pop(letter, None)

    def begin(self) -> tuple[list, list]:
        """Returns where a line notes its operands and its matrix products."""
        self.running.append(([], []))
        return self.running[-1]

    def see(self, value: Any) -> Any:
        """Notes an operand; returns it."""
        if self.running:
            self.running[-1][0].append(_short(value))
        return value

    def operate(self, number: int, first: Any, /, *rest: Any, **named: Any) -> Any:
        """Notes an operation that is about to run on these; returns the first: its left side, or
        what is called.
        """
        self.operation = self.report.operations[number]
        self.first = first
        self.rest = rest
        self.named = named
        if self.running and isinstance(getattr(self.operation[0], "op", None), ast.MatMult):
            self.running[-1][1].append((first, *rest))
        return first

    def __getitem__(self, index: Any) -> Any:
        return index  # `__scope__[1:, None]` is the index of `x[1:, None]`

    def check(self, index: int, line: tuple[list, list], value: Any) -> Any:
        """Compares a value with its comment; returns it."""
        while self.running and self.running.pop() is not line:
            pass  # lines that an exception left unfinished
        comment = self.report.comments[index]
        variables = sys._getframe(1).f_locals
        numbers = {
            name: n
            for name, n in variables.items()
            if re.fullmatch("[A-Z]", name) and type(n) is int
        }
        known = {**self.letters, **numbers, **self.report.sizes}
        bound = {}
        problem = ""
        if comment.results:
            around = {"": line, **{name: _short(part) for name, part in variables.items()}}
            bound, problem = _judge(comment, value, around, line[1], known)
        comment.runs += 1
        known = {**known, **bound}
        if problem:
            named = (
                " ".join(f"{letter}={known[letter]}" for letter in sorted(known)) or "none known"
            )
            place = f"{comment.file}:{comment.line}: {comment.source}"
            comment.lie = comment.lie or f"{place}\n{problem}\n  letters  {named}"
        else:
            self.letters.update(bound)
        if self.report.on_line:
            self.report.on_line(comment, value, known)
        return value


def _short(value: Any) -> Any:
    # a variable may be a whole corpus
    return value[:32] if isinstance(value, tuple | list) else value


def _sizes(value: Any) -> list[Size | None]:
    """Returns the sizes of a tensor, or of all tensors in a tuple or list, None for each thing that
    is not a tensor.
    """
    if isinstance(value, torch.Tensor | np.ndarray | torch.Size):
        return [tuple(value if isinstance(value, torch.Size) else value.shape)]
    if isinstance(value, tuple | list):
        return list(itertools.chain.from_iterable(map(_sizes, value)))
    return [None]


def _judge(
    comment: Comment, value: Any, around: Mapping, products: list, known: Letters
) -> tuple[Letters, str]:
    """Returns the letters that a true comment binds, and what is wrong with a false one."""
    said = "  says     " + ", ".join(map(_text, comment.results))
    real = _sizes(value)
    if not real or None in real:
        prose = not re.search(r"[A-Z]|\.\.\.|\(\)", said)
        return {}, "" if prose else f"{said}\n  real     {type(value).__name__}, not a tensor"
    results = comment.results * (len(real) if len(comment.results) == 1 else 1)
    if len(results) != len(real):
        return {}, f"{said}\n  real     {len(real)} tensors"
    claims = list(zip(results, real, strict=True))
    letters, problems = _match(claims, known)
    if problems or not comment.lefts:
        problems = problems or _match(claims, known, whole=True)[1]
        why = "".join(f"\n  why      {problem}" for problem in dict.fromkeys(problems))
        return letters, why and (
            f"{said}\n  real     {', '.join(_spelled(size, known) for size in real)}{why}"
        )
    live = {}
    for name, part in around.items():
        live.update({size: name for size in _sizes(part) if size is not None})
    there = "; ".join(f"{name} {_spelled(size, letters)}".strip() for size, name in live.items())
    choices = itertools.product(live, repeat=len(comment.lefts))
    joint = " and "
    if products and len(comment.lefts) == 2 and "@" in comment.text:
        choices = [tuple(_sizes(sides)) for sides in products]
        joint = " @ "
        there = "; ".join(
            " @ ".join(_spelled(size, letters) for size in sides) for sides in choices
        )
    fits = (
        _match(claims + list(zip(comment.lefts, choice, strict=True)), known, whole=True)
        for choice in choices
    )
    fits = [letters for letters, problems in fits if not problems]
    if fits:
        return {k: n for k, n in fits[0].items() if all(fit.get(k) == n for fit in fits)}, ""
    return {}, (
        f"  says     {joint.join(map(_text, comment.lefts))} flows in\n  real     "
        f"{there or 'no tensor'}"
    )


def _match(
    claims: list[tuple[Shape, Size]], known: Letters, whole: bool = False
) -> tuple[Letters, list[str]]:
    """Returns all letters after matching shapes with sizes, and the disagreements; `whole`: no
    letter stays unknown.
    """
    letters = dict(known)
    problems = []
    later = []
    for shape, size in claims:
        if "..." in shape:
            at = shape.index("...")
            n = max(0, len(size) - len(shape) + 1)
            lead = size[at : at + n]
            full = letters.setdefault("...", lead)
            if any(a not in (1, b) for a, b in itertools.zip_longest(lead[::-1], full[::-1][:n])):
                problems.append(f"`...` is {full} elsewhere in this comment, but {lead} here")
            shape = shape[:at] + tuple(map(str, lead)) + shape[at + 1 :]
        if len(shape) != len(size):
            problems.append(f"{len(shape)} axes in the comment, {len(size)} in the tensor")
            continue
        for axis, (dim, n) in enumerate(zip(shape, size, strict=True)):
            if len(dim) > 1 or dim.isdigit():
                later.append((axis, dim, n))
            elif letters.setdefault(dim, n) != n:
                problems.append(_axis(axis, dim, letters[dim], n, letters))
    for axis, dim, n in later:
        unknown = sorted(set(re.findall("[A-Z]", dim)) - letters.keys())
        if len(unknown) == 1:
            letters[unknown[0]] = _solve(dim, n, unknown[0], letters)
        if len(unknown) < 2 and (said := _value(dim, letters)) != n:
            problems.append(_axis(axis, dim, said, n, letters))
        elif len(unknown) > 1 and whole:
            problems.append(f"axis {axis}: of {' and '.join(unknown)} one must be known before")
    letters.pop("...", None)
    return letters, problems


def _value(dim: str, letters: Letters) -> float:
    """Returns the number that a dimension such as `T + 1` means."""

    def value(node: Any) -> float:
        if isinstance(node, ast.BinOp):
            return _SIGNS[type(node.op)](value(node.left), value(node.right))
        return node.value if isinstance(node, ast.Constant) else letters[node.id]

    return value(ast.parse(dim, mode="eval").body)


def _solve(dim: str, n: int, letter: str, letters: Letters) -> int:
    """Returns the letter's value that makes a dimension linear in it equal to n, rounded."""
    one, two = (_value(dim, {**letters, letter: x}) for x in (1, 2))
    return round(1 + (n - one) / (two - one)) if two != one else 1


def _axis(axis: int, dim: str, said: float, real: int, letters: Letters) -> str:
    wanted = dim if dim == str(said) else f"{dim} = {said:g}"
    return (
        f"axis {axis} should be {wanted} but is {' = '.join([str(real), *_named(real, letters)])}"
    )


def _named(n: int, letters: Letters) -> list[str]:
    return (
        ["|".join(sorted(letter for letter in letters if letters[letter] == n))]
        if n in letters.values()
        else []
    )


def _spelled(size: Size, letters: Letters) -> str:
    spelled = ", ".join((_named(n, letters) or [str(n)])[0] for n in size)
    return f"{size} = ({spelled})" if re.search("[A-Z]", spelled) else str(size)


def _text(shape: Shape) -> str:
    return f"({', '.join(shape)})"
