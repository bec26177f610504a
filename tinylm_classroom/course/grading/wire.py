"""Plain values as JSON, on the way from a process that runs a student's code to one that never
does.

Decoding builds tensors, numbers, texts, bytes, lists and dicts, nothing else; anything that is not
exactly such a value raises ValueError. A module, a generator or a recorded part among the arguments
is sent as its state.
"""

import base64
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...checks.calling import Call, Raised, Strange, plain

LONGEST_TEXT = 10_000  # characters of a text, bytes of a bytes object
SENT_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}


def encode(value: Any) -> Any:
    """A plain value as JSON knows it."""
    if value is None or type(value) in (bool, float):
        return value
    if type(value) is int:
        return value if abs(value) < 10**4000 else encode(Strange("int of more than 4,000 digits"))
    if type(value) is str:
        return {"text": value[:LONGEST_TEXT]}
    if type(value) is bytes:
        return {"bytes": value[:LONGEST_TEXT].hex()}
    if type(value) is Tensor:
        return _tensor(value)
    if type(value) in (list, tuple):
        return {type(value).__name__: [encode(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[str(key), encode(item)] for key, item in value.items()]}
    if type(value) is Raised:
        return {
            "raised": [str(part)[:LONGEST_TEXT] for part in (value.kind, value.message, value.line)]
        }
    return {"strange": str(value.kind if type(value) is Strange else type(value).__name__)[:100]}


def _tensor(value: Tensor) -> dict:
    name = str(value.dtype).removeprefix("torch.")
    if name not in SENT_DTYPES or value.layout != torch.strided or value.device.type != "cpu":
        return encode(Strange(f"tensor of {name} on {value.device}"))
    # with any strides
    flat = torch.empty(value.numel(), dtype=value.dtype).copy_(value.detach().reshape(-1))
    return {
        "tensor": [
            name,
            list(value.shape),
            base64.b64encode(flat.view(torch.uint8).numpy().tobytes()).decode(),
        ]
    }


def decode(data: Any) -> Any:
    """The value again. Raises ValueError for anything that `encode` does not write."""
    if data is None or type(data) in (bool, int, float):
        return data
    (kind, inside), *more = data.items() if type(data) is dict and data else [(None, None)]
    if (
        more
        or kind not in DECODERS
        or type(inside) is not (str if kind in ("text", "bytes", "strange") else list)
    ):
        raise ValueError("not a plain value")
    return DECODERS[kind](inside)


def _read_tensor(inside: list) -> Tensor:
    name, shape, text = inside
    if (
        name not in SENT_DTYPES
        or type(shape) is not list
        or not all(type(n) is int and 0 <= n < 2**40 for n in shape)
    ):
        raise ValueError("not a tensor")
    content = bytearray(base64.b64decode(text, validate=True))
    if math.prod(shape) * SENT_DTYPES[name].itemsize != len(content) or len(shape) > 64:
        raise ValueError("a tensor of another size than it says")
    flat = (
        torch.frombuffer(content, dtype=torch.uint8)
        if content
        else torch.empty(0, dtype=torch.uint8)
    )
    return flat.view(SENT_DTYPES[name]).reshape(shape)


def _texts(inside: list) -> list[str]:
    if not all(type(text) is str for text in inside):
        raise ValueError("not texts")
    return inside


DECODERS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "bytes": bytes.fromhex,
    "strange": Strange,
    "list": lambda inside: [decode(item) for item in inside],
    "tuple": lambda inside: tuple(decode(item) for item in inside),
    "dict": lambda inside: {str(key): decode(item) for key, item in inside},
    "raised": lambda inside: Raised(*_texts(inside)),
    "tensor": _read_tensor,
}


def encode_call(call: Call) -> dict:
    """A call with the state of its arguments."""
    return {
        "result": encode(call.result),
        "gradients": None if call.gradients is None else [encode(g) for g in call.gradients],
        "printed": bool(call.printed.strip()),
        "ended": call.ended,
        "arguments": [_state(argument) for argument in call.arguments],
    }


def decode_call(data: Any, arguments: tuple) -> Call:
    """The call again. arguments: fresh ones, which take the state that was sent."""
    gradients = None if data["gradients"] is None else [decode(g) for g in data["gradients"]]
    if not all(g is None or type(g) is Tensor for g in gradients or ()):
        raise ValueError("a gradient is a tensor")
    if data["ended"]:
        after = tuple(
            _with_state(a, state) for a, state in zip(arguments, data["arguments"], strict=True)
        )
    else:
        after = ()
    return Call(
        decode(data["result"]),
        after,
        gradients,
        "printed" if data["printed"] else "",
        None,
        bool(data["ended"]),
    )


def _state(argument: Any) -> Any:
    """What a call may have changed in an argument."""
    if isinstance(argument, nn.Module):
        seen: dict[int, int] = {}
        found = [*argument.named_parameters(remove_duplicate=False)]
        return [
            [name, seen.setdefault(id(p), len(seen)), p.requires_grad, encode(plain(p))]
            for name, p in found
        ]
    if isinstance(argument, torch.Generator):
        return [encode(argument.get_state()), argument.initial_seed()]
    if hasattr(argument, "calls"):
        return [str(name)[:100] for name in argument.calls[:100]]
    return encode(plain(argument))


def _with_state(argument: Any, state: Any) -> Any:
    """A fresh argument as it was after a call."""
    if isinstance(argument, nn.Module):
        _set_parameters(argument, state)
    elif isinstance(argument, torch.Generator):
        argument.manual_seed(state[1]).set_state(decode(state[0]))
    elif hasattr(argument, "calls"):
        argument.calls[:] = _texts(state)
    else:
        value = decode(state)
        return argument if isinstance(plain(argument), Strange) else value
    return argument


def _set_parameters(module: nn.Module, state: list) -> None:
    """Give a module other parameters; what was one tensor under two names is one again."""
    fresh: dict[int, nn.Parameter] = {}
    for name in [name for name, _ in module.named_parameters(remove_duplicate=False)]:
        owner, _, own = name.rpartition(".")
        del module.get_submodule(owner)._parameters[own]
    for name, number, learns, content in state:
        value = decode(content)
        if type(value) is not Tensor:
            raise ValueError("a parameter is a tensor")
        parameter = fresh.setdefault(
            number, nn.Parameter(value, requires_grad=learns and value.is_floating_point())
        )
        owner, _, own = name.rpartition(".")
        module.get_submodule(owner).register_parameter(own, parameter)
