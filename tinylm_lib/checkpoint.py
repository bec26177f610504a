"""Weights and training state on disk: safetensors and JSON, written atomically, nothing that can run code."""

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .config import ModelConfig
from .model import TransformerLM
from .tokenizer import tokenizer_from_dict

MANIFEST = "checkpoint.json"
FORMAT = 1


@dataclass
class Checkpoint:
    """What a folder held. `model` is built and filled, on the CPU; the rest is None where it was not saved."""

    model: TransformerLM
    step: int
    tokenizer: Any | None
    optimizer_state: dict[str, Any] | None
    batches_state: dict[str, Any] | None
    rng_state: Tensor
    extra: dict[str, Any]

    def restore(self, model: nn.Module, optimizer: Any = None, batches: Any = None) -> None:
        """Put everything back where it was: weights, optimizer, place in the data, torch's random state.

        Raises ValueError where the model has other shapes, or a state is asked for that was not saved.
        """
        for what, target, state in (
            ("optimizer", optimizer, self.optimizer_state),
            ("batches", batches, self.batches_state),
        ):
            if target is not None and state is None:
                raise ValueError(f"the checkpoint holds no state for {what}; it was saved without")
        _fill(model, self.model.state_dict(), "the model given")
        if optimizer is not None:
            optimizer.load_state_dict(self.optimizer_state)
        if batches is not None:
            batches.load_state(self.batches_state)
        torch.set_rng_state(self.rng_state)


def save(
    folder: str | Path,
    model: TransformerLM,
    optimizer: Any = None,
    batches: Any = None,
    step: int = 0,
    *,
    tokenizer: Any = None,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write a checkpoint into `folder`; one that stands there is replaced at the last moment, in one step.

    extra: plain values to keep beside it, such as the train config.
    Returns the folder.
    Raises OSError, naming the folder and the remedy, where it cannot be written; what stood there before still loads.
    """
    folder = Path(folder)
    rng = {"rng": torch.get_rng_state()}
    tensors, optimizer_state = {}, None
    if optimizer is not None:
        optimizer_state = _take_tensors(optimizer.state_dict(), "", tensors)
    manifest = {
        "format": FORMAT,
        "step": step,
        "config": model.config.to_dict(),
        "tokenizer": None if tokenizer is None else tokenizer.to_dict(),
        "optimizer": optimizer_state,
        "batches": None if batches is None else batches.state(),
        "extra": extra or {},
        "torch": torch.__version__,
        "files": {},
    }
    weights = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for role, content in (("model", weights), ("training", {**tensors, **rng})):
            manifest["files"][role] = _write_tensors(folder, role, content)
        partial = folder / (MANIFEST + ".partial")
        partial.write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
        _sync(partial)
        os.replace(partial, folder / MANIFEST)
        _sync(folder)
    kept = {entry["name"] for entry in manifest["files"].values()}
    for old in [*folder.glob("*.safetensors"), *folder.glob("*.partial")]:
        if old.name not in kept:
            old.unlink(missing_ok=True)
    return folder


def load(folder: str | Path) -> Checkpoint:
    """Read a checkpoint; every file is checked against its SHA-256 first.

    Raises FileNotFoundError for a folder without one, ValueError for damaged or foreign files.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    tensors = {role: _read_tensors(folder, entry) for role, entry in manifest["files"].items()}
    try:
        config = ModelConfig.from_dict(manifest["config"])
        tokenizer = None if manifest["tokenizer"] is None else tokenizer_from_dict(manifest["tokenizer"])
        rng_state = tensors["training"].pop("rng")
        optimizer_state = manifest["optimizer"]
        if optimizer_state is not None:
            optimizer_state = _put_tensors(optimizer_state, tensors["training"])
            optimizer_state["state"] = {int(k): v for k, v in optimizer_state["state"].items()}
        step, batches, extra = int(manifest["step"]), manifest["batches"], manifest["extra"]
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"{folder / MANIFEST} is not a checkpoint of this library: {e!r}") from None
    with torch.device("meta"):
        model = TransformerLM(config)
    model.to_empty(device="cpu")
    _fill(model, tensors["model"], str(folder))
    return Checkpoint(model, step, tokenizer, optimizer_state, batches, rng_state, extra)


def latest(folder: str | Path) -> Path:
    """The checkpoint with the highest step in a folder: itself or one of its subfolders. Damaged ones are passed over
    with a warning.

    Raises FileNotFoundError where there is no sound one.
    """
    folder = Path(folder)
    found = []
    for candidate in [folder, *sorted(p for p in folder.glob("*") if p.is_dir())]:
        if (candidate / MANIFEST).is_file():
            try:
                manifest = _read_manifest(candidate)
                for entry in manifest["files"].values():
                    _check_hash(candidate, entry)
                found.append((int(manifest["step"]), candidate))
            except (ValueError, KeyError, TypeError, OSError) as e:
                warnings.warn(f"passed over a damaged checkpoint: {e}", stacklevel=2)
    if not found:
        raise FileNotFoundError(f"no sound checkpoint in {folder}; train one, or give the folder that holds one")
    return max(found)[1]


def _fill(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Copy weights into a model; ValueError naming the first weight that does not fit."""
    own = model.state_dict()
    for name in sorted(set(own) | set(weights)):
        here, there = (tuple(d[name].shape) if name in d else "missing" for d in (own, weights))
        if here != there:
            raise ValueError(f"weights do not fit {where}: {name} is {there} in the file and {here} in the model")
    model.load_state_dict(weights)


def _take_tensors(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of nested dicts and lists into `tensors`, leaving their names."""
    if isinstance(tree, Tensor):
        tensors[path] = tree.detach().cpu().contiguous()
        return {"tensor": path}
    if isinstance(tree, dict):
        return {str(k): _take_tensors(v, f"{path}/{k}", tensors) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [_take_tensors(v, f"{path}/{i}", tensors) for i, v in enumerate(tree)]
    return tree


def _put_tensors(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {"tensor"}:
            return tensors[tree["tensor"]]
        return {k: _put_tensors(v, tensors) for k, v in tree.items()}
    if isinstance(tree, list):
        return [_put_tensors(v, tensors) for v in tree]
    return tree


def _write_tensors(folder: Path, role: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Write one safetensors file under a name made of its content, and return its entry in the manifest."""
    partial = folder / f"{role}.partial"
    save_file(tensors, partial)
    _sync(partial)
    digest = _sha256(partial)
    name = f"{role}-{digest[:16]}.safetensors"
    os.replace(partial, folder / name)
    return {"name": name, "sha256": digest, "bytes": (folder / name).stat().st_size}


def _read_tensors(folder: Path, entry: dict[str, Any]) -> dict[str, Tensor]:
    _check_hash(folder, entry)
    try:
        return load_file(folder / entry["name"])
    except SafetensorError as e:
        raise ValueError(f"{folder / entry['name']} is no safetensors file: {e}") from None


def _check_hash(folder: Path, entry: dict[str, Any]) -> None:
    path = folder / Path(entry["name"]).name
    if not path.is_file():
        raise ValueError(f"{path} is missing; the checkpoint is incomplete, use an earlier one")
    if path.stat().st_size != entry["bytes"] or _sha256(path) != entry["sha256"]:
        raise ValueError(
            f"{path} is damaged: its {path.stat().st_size} bytes do not have the SHA-256 that was written "
            f"({entry['bytes']} bytes); use an earlier checkpoint"
        )


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint in {folder} ({MANIFEST} is missing); give the folder that holds one")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise ValueError(f"{path} is damaged: {e}; use an earlier checkpoint") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is not a checkpoint of format {FORMAT}")
    entries = manifest.get("files")
    wanted = {"name": str, "sha256": str, "bytes": int}
    if (
        not isinstance(entries, dict)
        or set(entries) != {"model", "training"}
        or not all(isinstance(e, dict) and isinstance(e.get(k), t) for e in entries.values() for k, t in wanted.items())
    ):
        raise ValueError(f"{path} is damaged: its list of files is not readable; use an earlier checkpoint")
    return manifest


def _sha256(path: Path) -> str:
    with open(path, "rb") as f:
        digest = hashlib.sha256()
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk, where the system lets us."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn a failed write into an OSError that says where and what to do, and leave no half-written file behind."""
    try:
        yield
    except (OSError, SafetensorError) as e:
        for partial in folder.glob("*.partial"):
            partial.unlink(missing_ok=True)
        why = os.strerror(e.errno) if isinstance(e, OSError) and e.errno else str(e)
        raise OSError(
            getattr(e, "errno", None) or errno.EIO,
            f"cannot write the checkpoint {folder}: {why}; free some space or choose another folder "
            f"(a checkpoint that stood there before is unharmed)",
        ) from None
