"""What a checkpoint stands on: nested states as named tensors, hashes, durable files, errors that say what to do."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor


def take_tensors(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of nested dicts and lists into `tensors`, leaving {"tensor": name} (...) in their place."""
    if isinstance(tree, Tensor):
        tensors[path] = tree.detach().cpu().contiguous()
        return {"tensor": path}
    if isinstance(tree, dict):
        return {str(k): take_tensors(v, f"{path}/{k}", tensors) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [take_tensors(v, f"{path}/{i}", tensors) for i, v in enumerate(tree)]
    return tree


def put_tensors(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Undo `take_tensors`; tensors of any shape (...) go back to where their names stand."""
    if isinstance(tree, dict):
        if set(tree) == {"tensor"}:
            return tensors[tree["tensor"]]
        return {k: put_tensors(v, tensors) for k, v in tree.items()}
    if isinstance(tree, list):
        return [put_tensors(v, tensors) for v in tree]
    return tree


def sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk, where the system lets us."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def explained(folder: Path, clean: Callable[[Path], None]) -> Iterator[None]:
    """Turn a failed write into an OSError that says where and what to do, after cleaning up."""
    try:
        yield
    except (OSError, SafetensorError) as e:
        clean(folder)
        number = e.errno if isinstance(e, OSError) and e.errno else errno.EIO
        why = os.strerror(number) if isinstance(e, OSError) else str(e)
        raise OSError(
            number,
            f"cannot write the checkpoint {folder}: {why}; free some space or choose another folder "
            f"(a checkpoint that stood there before is unharmed)",
        ) from None
