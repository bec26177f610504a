"""What is around a function: replaced functions of torch, values and names of its notebook,
ready-made parts.
"""

import ast
import builtins
import dis
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import IPython
import torch
from torch import Tensor

WATCHED = (
    (
        torch,
        (
            "allclose cat equal exp gather isclose matmul softmax sort stack sum tensor topk tril "
            "triu where zeros"
        ),
    ),
    (
        torch.nn.functional,
        (
            "cross_entropy embedding layer_norm linear log_softmax scaled_dot_product_attention "
            "softmax"
        ),
    ),
    (torch.testing, "assert_close"),
)


def _own() -> Iterator[tuple[Any, str, Any]]:
    """Yields where each watched function is, its name, and the function itself."""
    for place, names in WATCHED:
        for name in names.split():
            yield place, name, getattr(place, name)


OWN = [*_own()]
# What does the whole step of an exercise, besides functions with its name.
READY = {
    "attention": "scaled_dot_product_attention attend",
    "multi_head_attention": "scaled_dot_product_attention MultiheadAttention",
    "cached_attention": "scaled_dot_product_attention attend",
    "linear": "Linear",
    "embedding": "Embedding",
    "softmax": "Softmax log_softmax",
    "cross_entropy": "nll_loss CrossEntropyLoss",
    "rms_norm": "RMSNorm",
    "layer_norm": "LayerNorm",
    "silu": "SiLU",
    "gelu": "GELU",
    "swiglu": "SwiGLU",
    "adamw_step": "AdamW",
    "clip_gradients": "clip_grad_norm_",
}


def replaced_in_torch() -> list[str]:
    """The functions of torch that are not those of its import, by name: with them nothing can be
    compared.
    """
    return [
        f"{place.__name__}.{name}"
        for place, name, own in OWN
        if getattr(place, name, None) is not own
    ]


def values_used(function: Callable[..., Any]) -> dict[str, Any]:
    """The numbers and tensors of its notebook that a function uses, by name."""
    around = getattr(function, "__globals__", {})
    names = [each.argval for each in _instructions(function) if each.opname == "LOAD_GLOBAL"]
    found = {name: around[name] for name in names if name in around}
    return {name: value for name, value in found.items() if isinstance(value, int | float | Tensor)}


def of_notebook(function: Callable[..., Any]) -> str:
    """What to say of such values below a mistake; nothing where there are none."""
    said = []
    for name, value in values_used(function).items():
        shown = (
            f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else str(value)
        )
        said.append(f"`{name}`, which is {shown} in this notebook")
    return (
        f" Your function also uses {' and '.join(said)}. Should it come from the arguments?"
        if said
        else ""
    )


def ready_made(exercise: str, function: Callable[..., Any]) -> str | None:
    """The name that a function uses and that does the whole step of the exercise; None if it does
    the step itself.
    """
    wholes = {exercise, *READY.get(exercise, "").split()}
    for each in _instructions(function):
        if each.argval in wholes and each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            return each.argval
        if each.argval in wholes and each.opname == "LOAD_GLOBAL":
            used = function.__globals__.get(each.argval)
            # else the reader wrote it
            if getattr(used, "__globals__", None) is not function.__globals__:
                return each.argval
    return None


def never_ran(function: Callable[..., Any]) -> str:
    """What to say if the newest cell that defines a function has a syntax error, so that an older
    one is judged.
    """
    name = getattr(function, "__name__", "")
    cells = getattr(function, "__globals__", {}).get("In")
    defines = re.compile(rf"^[ \t]*def[ \t]+{re.escape(name)}\b", re.MULTILINE)
    typed = [text for text in cells if isinstance(text, str)] if isinstance(cells, list) else []
    texts = [text for text in typed if defines.search(text)]
    try:
        ast.parse(textwrap.dedent(texts[-1]) if texts else "")
    except SyntaxError as error:
        return (
            f"The newest cell with `{name}` has a syntax error in its line {error.lineno}: "
            f"{error.msg}. What is checked is the version before it. Correct the line, run the "
            "cell, and check again."
        )
    return ""


def _instructions(function: Callable[..., Any]) -> list[dis.Instruction]:
    code = getattr(function, "__code__", None)
    return [] if code is None else [*dis.get_instructions(code)]


class Nothing:
    """What takes the place of a notebook's own functions where there is no notebook: each use of it
    does nothing.
    """

    def __call__(self, *arguments: Any, **named: Any) -> "Nothing":
        return self

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def supply_names_of_a_notebook() -> None:
    """Gives this process the names that every kernel has, so that a function which uses them runs
    in it, too.
    """
    builtins.display = builtins.get_ipython = IPython.get_ipython = Nothing()
