"""The tensors of a checkpoint: nested states as named tensors, in files named by their content."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..files import sha256, sync

Entry = dict[str, Any]  # what a manifest says of a file, or of a folder of files: its name, and bytes and SHA-256


def take_tensors(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of nested dicts and lists into `tensors`, leaving {"tensor": name} (...) in their place."""
    if isinstance(tree, Tensor):
        tensors[path] = on_cpu(tree)
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


def on_cpu(tensor: Tensor) -> Tensor:
    """A tensor (...) as a file can take it; one that lies in shards stays where it is."""
    return tensor.detach() if hasattr(tensor, "device_mesh") else tensor.detach().cpu().contiguous()


def write_tensors(folder: Path, role: str, tensors: dict[str, Tensor]) -> Entry:
    """Write tensors (...) to one safetensors file, under a name made of their content. Returns its entry."""
    partial = folder / f"{role}.partial"
    save_file(tensors, partial)
    sync(partial)
    digest = sha256(partial)
    name = f"{role}-{digest[:16]}.safetensors"
    os.replace(partial, folder / name)
    return {"name": name, "sha256": digest, "bytes": (folder / name).stat().st_size}


def list_files(folder: Path, role: str) -> Entry:
    """Give a finished folder of files, `<role>.partial`, a name made of their content. Returns its entry."""
    partial, files = folder / f"{role}.partial", []
    for path in sorted(partial.iterdir()):
        sync(path)
        files.append({"name": path.name, "sha256": sha256(path), "bytes": path.stat().st_size})
    sync(partial)
    name = f"{role}-{hashlib.sha256(str(files).encode()).hexdigest()[:16]}.shards"
    if (folder / name).exists():  # the same content: a folder cannot replace another
        shutil.rmtree(partial)
    else:
        os.replace(partial, folder / name)
    return {"name": name, "files": files}


def read_tensors(folder: Path, entry: Entry) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote, tensors (...) on the CPU.

    Raises ValueError for another file.
    """
    try:
        return load_file(folder / entry["name"])
    except SafetensorError as e:
        raise ValueError(f"{folder / entry['name']} is no safetensors file: {e}") from None


def check_files(folder: Path, entry: Entry) -> None:
    """Raise ValueError unless what an entry lists is there, and has the bytes that were written."""
    place = folder / entry["name"]
    for listed in entry.get("files", [entry]):
        path = place / listed["name"] if "files" in entry else place
        if place.parent != folder or (path != place and path.parent != place) or not path.is_file():
            raise ValueError(f"{path} is missing; the checkpoint {folder} is incomplete, use an earlier one")
        if path.stat().st_size != listed["bytes"] or sha256(path) != listed["sha256"]:
            raise ValueError(
                f"{path} is damaged: its {path.stat().st_size} bytes do not have the SHA-256 that was written "
                f"({listed['bytes']} bytes); use an earlier checkpoint"
            )


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
