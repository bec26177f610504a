"""A simulated accelerator: a device made in Python, whose tensors keep their numbers on the CPU.

It behaves as a GPU where that matters to a program: tensors of two devices do not mix, and a number
that is read makes the program wait. `reads` lists every such number with the line that asked for
it, and `memory` counts bytes. The results are the CPU's up to rounding: PyTorch composes what only
fast devices have whole, such as attention, of simple operations.

Not simulated: a global generator of its own (torch's serves both devices), autocast, several
devices, waiting inside a kernel, shapes that change in place, and what only CUDA has, such as
pinned memory, streams, TF32 and fused kernels. A parameter that `model.cpu` brings back is another
object.

The environment variable TINYLM_ACCELERATOR switches it on. With this folder on PYTHONPATH, torch
itself calls `start` in every process that imports it, child processes included (its entry points
"torch.backends"). PyTorch cannot forget a device, so it stays until the process ends.
"""

import os
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from torch.utils.weak import WeakIdKeyDictionary

NAME = "simulated"
DEVICE = torch.device("privateuseone", 0)  # torch's type for devices from outside; NAME renames it
NOBODY = (str(Path(torch.__file__).parent), __file__)  # the lines of these files ask for nothing
# The result, or its shape, depends on numbers. Of INDEXING that holds only for boolean indices.
WAITING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")
# How tensors begin on a device; PyTorch makes all other ways of these.
FACTORIES = (
    *("empty.memory_format", "empty_strided", "eye", "eye.m"),
    *("arange", "arange.start", "arange.start_step"),
)


class Read(NamedTuple):
    """Numbers went to the CPU, or a shape depends on them: by which operation, for which line."""

    operation: str
    line: str


class Memory:
    """Bytes of all tensors on the device: `now`, and at the `peak`."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.known: Any = WeakIdKeyDictionary()

    def add(self, x: Tensor) -> None:
        """Count the storage of x (...), once, until it is freed."""
        storage = x.untyped_storage()
        if storage not in self.known:
            self.known[storage] = storage.nbytes()
            self._change(storage.nbytes())
            weakref.finalize(storage, self._change, -storage.nbytes())

    def forget_peak(self) -> int:
        """Let the peak begin at what is there now. Returns that."""
        self.peak = self.now
        return self.now

    def _change(self, n_bytes: int) -> None:
        self.now += n_bytes
        self.peak = max(self.peak, self.now)


reads: list[Read] = []
memory = Memory()
generators: Any = weakref.WeakValueDictionary()  # those on the device, as PyTorch hands them on


class Generator(torch.Generator):
    """A source of the CPU's random numbers that is on one device. It takes torch's place."""

    def __new__(cls, device: Any = "cpu") -> "Generator":
        """device: where the tensors to fill are."""
        made = super().__new__(cls)
        made.place = torch.device(device)
        if made.place.type == NAME:
            generators[made._cdata] = made
        return made

    def __init__(self, device: Any = "cpu"): ...

    @property
    def device(self) -> torch.device:
        """Where the tensors to fill are."""
        return self.place


class Simulated(Tensor):
    """A tensor on the device, whose numbers are in `held`, on the CPU."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, held: Tensor) -> "Simulated":
        """held (...): on the CPU."""
        x = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        x.held = held
        memory.add(held)
        return x

    def __repr__(self) -> str:
        return f"{self.held!r} on {DEVICE}"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """A class with this method is swapped into the place of a parameter by `model.to`."""
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _: Any, size: Any, stride: Any) -> Tensor:
        """Undo `__tensor_flatten__`."""
        return Simulated(inner["held"])

    def tolist(self) -> Any:
        """As for every tensor; PyTorch refuses other classes than its own."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute on the CPU what a device would not refuse, and note what it would wait for."""
        options = kwargs or {}
        name = func.overloadpacket.__name__
        leaves = tree_leaves((args, options))
        ours = {id(x.held): x for x in leaves if isinstance(x, cls)}
        moved = name in ("copy_", "_to_copy")
        if not moved:
            _refuse_other_devices(func, args, leaves)
        to = options.get("device", args[0].device if moved else DEVICE)
        leaves_device = moved and torch.device(to or DEVICE).type == "cpu"
        if leaves_device or _waits(func, args):
            reads.append(Read(name, _line()))
        if to is not None and "device" in options:
            options = {**options, "device": "cpu"}
        args, options = tree_map_only(cls, lambda x: x.held, (args, options))
        with torch.inference_mode(False):  # in which a view cannot be a tensor of another class
            result = func(*args, **options)
            if any(x.held.shape != x.shape for x in ours.values()):
                raise NotImplementedError(f"{func} changes a shape in place: {NAME} cannot do that")
            if leaves_device:
                return result
            return tree_map_only(Tensor, lambda x: ours[id(x)] if id(x) in ours else cls(x), result)


def _refuse_other_devices(func: Any, args: tuple, leaves: list[Any]) -> None:
    """Raise RuntimeError, as a GPU does, for what is on the CPU: a tensor, or its generator.

    A single number may be there, except in a list, and an index of a tensor on the device.
    """
    may_index = func.overloadpacket.__name__ in INDEXING and isinstance(args[0], Simulated)
    numbers = {id(x) for x in args if isinstance(x, Tensor) and x.ndim == 0}
    for x in leaves:
        tensor = isinstance(x, Tensor) and not isinstance(x, Simulated)
        other = tensor and not may_index and id(x) not in numbers
        if other or (isinstance(x, torch._C.Generator) and x._cdata not in generators):
            raise RuntimeError(f"{func} got tensors on {NAME}, and a {type(x).__name__} on the CPU")


def _waits(func: Any, args: tuple) -> bool:
    if func.overloadpacket.__name__ in INDEXING:
        return any(i is not None and i.dtype == torch.bool for i in args[1])
    return not WAITING.isdisjoint(func.tags)


def _line() -> str:
    """The innermost line that is not PyTorch's."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(NOBODY):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _factory(name: str) -> Any:
    packet, _, overload = name.partition(".")
    on_cpu = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return lambda *args, **options: Simulated(on_cpu(*args, **{**options, "device": "cpu"}))


def _copy(source: Tensor, to: Simulated, non_blocking: bool = False) -> Tensor:
    to.held.copy_(source)  # from the CPU, by `new_tensor`
    return to


started: list[torch.library.Library] = []  # torch forgets kernels whose library is gone


def start() -> None:
    """Add the device to this process if TINYLM_ACCELERATOR is set."""
    if not os.environ.get("TINYLM_ACCELERATOR"):
        return
    module = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        manual_seed_all=lambda seed: None,
        get_rng_state=lambda device=None: torch.get_rng_state(),
        set_rng_state=lambda state, device=None: torch.set_rng_state(state),
        _is_in_bad_fork=lambda: False,
        get_amp_supported_dtype=list,  # none: `torch.autocast` is there, and refuses
    )
    _setup_privateuseone_for_python_backend(NAME, backend_module=module)
    torch.Generator = Generator
    library = torch.library.Library("aten", "IMPL")
    for name in FACTORIES:
        library.impl(name, _factory(name), "PrivateUse1")
    library.impl("_copy_from", _copy, "PrivateUse1")
    started.append(library)
