"""The tensors of a checkpoint: nested states as named tensors, in files named by their content."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..files import put_in_place, sha256

# what a manifest says of a file, or of a folder of files: its name, and bytes and SHA-256
Entry = dict[str, Any]


def take_tensors(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of nested dicts and lists into `tensors`, leaving {"tensor": name} (...) in
    their place.
    """
    if isinstance(tree, Tensor):
        tensors[path] = on_cpu(tree)
        return {"tensor": path}
    if isinstance(tree, dict):
        return {str(k): take_tensors(v, f"{path}/{k}", tensors) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [take_tensors(v, f"{path}/{i}", tensors) for i, v in enumerate(tree)]
    return tree


def put_tensors(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Undo `take_tensors`; tensors of any shape (...) go back to where their names are."""
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
    """Write tensors (...) to one safetensors file, under a name made of their content.

    Returns its entry.
    """
    partial = folder / f"{role}.partial"
    save_file(tensors, partial)
    entry = _entry(partial)
    name = f"{role}-{entry['sha256'][:16]}.safetensors"
    put_in_place(partial, folder / name)
    return {**entry, "name": name}


def list_files(folder: Path, role: str) -> Entry:
    """Give a finished folder of files, `<role>.partial`, a name made of their content.

    Returns its entry.
    """
    partial = folder / f"{role}.partial"
    files = [_entry(path) for path in sorted(partial.iterdir())]
    name = f"{role}-{hashlib.sha256(str(files).encode()).hexdigest()[:16]}.shards"
    if (folder / name).exists():  # the same content: a folder cannot replace another
        shutil.rmtree(partial)
    else:
        put_in_place(partial, folder / name)
    return {"name": name, "files": files}


def _entry(path: Path) -> Entry:
    return {"name": path.name, "sha256": sha256(path), "bytes": path.stat().st_size}


def read_tensors(folder: Path, entry: Entry) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote, tensors (...) on the CPU.

    Raises ValueError for another file.
    """
    try:
        return load_file(folder / entry["name"])
    except SafetensorError as e:
        raise ValueError(f"{folder / entry['name']} is not a safetensors file: {e}") from None


def check_files(folder: Path, entry: Entry) -> None:
    """Raise ValueError unless what an entry lists is there, and has the bytes that were written."""
    entry_path = folder / entry["name"]
    for listed in entry.get("files", [entry]):
        path = entry_path / listed["name"] if "files" in entry else entry_path
        if (
            entry_path.parent != folder
            or (path != entry_path and path.parent != entry_path)
            or not path.is_file()
        ):
            raise ValueError(
                f"{path} is missing; the checkpoint {folder} is incomplete, use an earlier one"
            )
        if path.stat().st_size != listed["bytes"] or sha256(path) != listed["sha256"]:
            raise ValueError(
                f"{path} is damaged: its {path.stat().st_size} bytes do not have the SHA-256 that "
                f"was written ({listed['bytes']} bytes); use an earlier checkpoint"
            )
