"""Weights and training state on disk: safetensors and JSON, written atomically, nothing that can
run code.

A folder holds two tensor files, named after their content, and a manifest that lists them with
their SHA-256. The manifest is replaced last, in one step: what was there before stays whole until
then. Where the model lies in shards, a folder with a file of each process takes the place of a
file, and any number of processes can read it.
"""

import hashlib
import json
import re
import shutil
import warnings
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import ModelConfig
from ..files import explained, write_whole
from ..inputs import unwrapped
from ..lora import refuse_lora
from ..model import TransformerLM
from ..positions import Tables
from ..quantization import refuse_quantized
from ..text.tokenizers import tokenizer_from_dict
from .distributed import ALONE, Alone, cut_like, random_states, read_whole_tensors, set_random_state
from .tensors import check_files, on_cpu, put_tensors, take_tensors

MANIFEST = "checkpoint.json"
FORMAT = 1
RANDOM = re.compile(r"rng(_cuda)?(/[0-9]+)?")
# the last two are what is left of a manifest and of a safetensors file whose write was killed
OURS = re.compile(
    r"(model|training)(-[0-9a-f]{16}\.(safetensors|shards)|\.partial)"
    rf"|(\.[0-9a-f]{{8}}\.)?{re.escape(MANIFEST)}\.partial|\.tmp[0-9A-Za-z]{{6}}"
)


@dataclass
class Checkpoint:
    """What a folder held. `model` is built and filled, on the CPU; the rest is None where it was
    not saved.

    random_states: of torch's generators, by name: "rng" on the CPU, "rng_cuda", and "rng/1" of
    process 1.
    """

    model: TransformerLM
    step: int
    tokenizer: Any
    optimizer_state: dict[str, Any] | None
    batches_state: dict[str, Any] | None
    random_states: dict[str, Tensor]
    extra: dict[str, Any]

    def restore(
        self, model: nn.Module, optimizer: Any = None, batches: Any = None, team: Alone = ALONE
    ) -> None:
        """Put everything back where it was: weights, optimizer, position in the data, torch's
        random state.

        The weights take the dtype of the model given.
        team: with whom this process trains the model, and perhaps has only a shard of it.
        Raises ValueError, before anything is changed, where the model has other shapes or a state
        was not saved.
        """
        states = {
            "optimizer": (optimizer, self.optimizer_state),
            "batches": (batches, self.batches_state),
        }
        for what, (target, state) in states.items():
            if target is not None and state is None:
                raise ValueError(f"the checkpoint holds no state for {what}; it was saved without")
        weights = self.model.state_dict()
        _check_fit(model, weights, "the model given")
        if optimizer is not None and self.optimizer_state is not None:
            optimizer.load_state_dict(_cut(self.optimizer_state, optimizer))
        if batches is not None:
            batches.load_state(self.batches_state)
        own = model.state_dict()
        model.load_state_dict(
            {name: cut_like(weight, own[name]) for name, weight in weights.items()}
        )
        set_random_state(self.random_states, team)


def save(
    folder: str | Path,
    model: nn.Module,
    optimizer: Any = None,
    batches: Any = None,
    step: int = 0,
    *,
    tokenizer: Any = None,
    extra: dict[str, Any] | None = None,
    team: Alone = ALONE,
) -> Path:
    """Write a checkpoint into `folder`; one that is there is replaced at the last moment.

    model: a TransformerLM, which torch.compile, DataParallel or DDP may wrap; its weights keep
    their dtypes.
    extra: plain values to keep with it, such as the train config.
    team: with whom this process trains the model; all of them save together, into a folder that all
    can reach.
    Returns the folder.
    Raises OSError, naming the folder and what to do, where it cannot be written (what was there
    before still loads), TypeError or ValueError for an extra that JSON cannot hold, and for a model
    that would not load again: of another class, with weights in 8 bits, with LoRA updates, or with
    other weights than those of its config.
    """
    model = unwrapped(model)
    weights = _fitting_weights(model)
    folder = Path(folder)
    training = random_states(team)
    manifest = _manifest(model, batches, step, tokenizer, extra)
    if optimizer is not None:
        manifest["optimizer"] = take_tensors(optimizer.state_dict(), "", training)
    json.dumps(manifest, ensure_ascii=False).encode("utf-8")
    with explained("the checkpoint", folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            manifest["files"] = {
                "model": team.write(folder, "model", weights),
                "training": team.write(folder, "training", training),
            }
            if team.first:
                sealed = {**manifest, "sha256": _seal(manifest)}
                text = json.dumps(sealed, indent=1, ensure_ascii=False)
                write_whole(folder / MANIFEST, text.encode())
        finally:
            if team.first:
                _clean(folder)
    team.wait()
    return folder


def _manifest(
    model: TransformerLM, batches: Any, step: int, tokenizer: Any, extra: dict[str, Any] | None
) -> dict[str, Any]:
    """What a checkpoint says besides its tensors; the optimizer's plain values come later."""
    return {
        "format": FORMAT,
        "step": step,
        "config": model.config.to_dict(),
        "tokenizer": None if tokenizer is None else tokenizer.to_dict(),
        "optimizer": None,
        "batches": None if batches is None else batches.state(),
        "extra": extra or {},
        "torch": torch.__version__,
    }


def _fitting_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights on the CPU.

    Raises TypeError or ValueError for a model that would not load again.
    """
    if not isinstance(config := getattr(model, "config", None), ModelConfig):
        raise TypeError(
            f"checkpoint.save needs a TransformerLM, got {type(model).__name__}; give the model "
            "itself"
        )
    refuse_quantized(model, "checkpoint.save")
    refuse_lora(model, "checkpoint.save")
    weights = {name: on_cpu(t) for name, t in model.state_dict().items()}
    if misfit := _misfit(_skeleton(config), weights):
        name, here, there = misfit
        raise ValueError(
            f"{name} is {there} in the model and {here} in a model of its config, so this "
            "checkpoint would not load; save a model that fits its config, and compile its parts "
            "with part.compile(), not torch.compile(part)"
        )
    return weights


def load(folder: str | Path) -> Checkpoint:
    """Read a checkpoint; every file is checked against its SHA-256 first, and the weights keep
    their dtypes.

    Raises FileNotFoundError for a folder without one, ValueError for damaged or foreign files.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    try:
        for role in ("model", "training"):
            check_files(folder, manifest["files"][role])
        tensors = {
            role: read_whole_tensors(folder, manifest["files"][role])
            for role in ("model", "training")
        }
        config = ModelConfig.from_dict(manifest["config"])
        tokenizer = (
            None if manifest["tokenizer"] is None else tokenizer_from_dict(manifest["tokenizer"])
        )
        random_states = {
            name: t for name, t in tensors["training"].items() if RANDOM.fullmatch(name)
        }
        random_states["rng"]  # each checkpoint has it
        optimizer_state = put_tensors(manifest["optimizer"], tensors["training"])
        if optimizer_state is not None:
            optimizer_state["state"] = {int(k): v for k, v in optimizer_state["state"].items()}
        rest = (optimizer_state, manifest["batches"], random_states, manifest["extra"])
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(
            f"{folder / MANIFEST} is not a checkpoint of this library: {e!r}"
        ) from None
    model = _skeleton(config)
    _check_fit(model, tensors["model"], str(folder))
    if wrong := [name for name, t in tensors["model"].items() if not t.is_floating_point()]:
        raise ValueError(
            f"{folder}: {wrong[0]} is of {tensors['model'][wrong[0]].dtype}; weights are "
            "floating-point"
        )
    # those of the file are a part of it, mapped
    own = {name: t.clone() for name, t in tensors["model"].items()}
    model.load_state_dict(own, assign=True)
    for module in model.modules():
        if isinstance(module, Tables):
            module.build("cpu")
    return Checkpoint(model, manifest["step"], tokenizer, *rest)


def latest(folder: str | Path) -> Path:
    """The checkpoint with the highest step in a folder: itself or one of its subfolders.

    Damaged ones are passed over with a warning.
    Raises FileNotFoundError where there is no sound one.
    """
    folder = Path(folder)
    sound = []
    for candidate in [folder, *sorted(p for p in folder.glob("*") if p.is_dir())]:
        if (candidate / MANIFEST).is_file():
            try:
                manifest = read_manifest(candidate)
                for entry in manifest["files"].values():
                    check_files(candidate, entry)
                sound.append((manifest["step"], candidate))
            except (ValueError, KeyError, TypeError, OSError) as e:
                warnings.warn(f"passed over a damaged checkpoint: {e}", stacklevel=2)
    if not sound:
        if (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} holds a Hugging Face model; open it with load_model")
        raise FileNotFoundError(
            f"no sound checkpoint in {folder}; train one, or give the folder that holds one"
        )
    return max(sound)[1]


def _skeleton(config: ModelConfig) -> TransformerLM:
    with torch.device("meta"):
        return TransformerLM(config)


def _misfit(model: nn.Module, weights: dict[str, Tensor]) -> tuple[str, Any, Any] | None:
    """The first of the weights (...) that a model does not have in that shape: its name, what is
    here, what there.
    """
    own = model.state_dict()
    for name in sorted(set(own) | set(weights)):
        here, there = (tuple(d[name].shape) if name in d else "missing" for d in (own, weights))
        if here != there:
            return name, here, there
    return None


def _check_fit(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Raise ValueError naming the first of the weights (...) that the model does not have in that
    shape.
    """
    if misfit := _misfit(model, weights):
        name, here, there = misfit
        raise ValueError(
            f"weights do not fit {where}: {name} is {there} in the file and {here} in the model"
        )


def _cut(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """The state of an optimizer as this process has it: where a parameter lies in shards, its
    moments do, too.
    """
    groups = (group["params"] for group in optimizer.param_groups)
    parameters = dict(enumerate(chain.from_iterable(groups)))

    def cut(value: Any, p: Tensor | None) -> Any:
        return (
            cut_like(value, p)
            if isinstance(value, Tensor) and p is not None and value.shape == p.shape
            else value
        )

    own = {
        i: {k: cut(v, parameters.get(i)) for k, v in values.items()}
        for i, values in state["state"].items()
    }
    return {**state, "state": own}


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint says about itself, its files and the `extra` of the run; the tensors are
    not read.

    Raises FileNotFoundError for a folder without one, ValueError for a damaged one.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"no checkpoint in {folder} ({MANIFEST} is missing); give the folder that holds one"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        sound = manifest.pop("sha256") == _seal(manifest)
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError) as e:
        raise ValueError(f"{path} is damaged: {e!r}; use an earlier checkpoint") from None
    if not sound or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is damaged or not of format {FORMAT}; use an earlier checkpoint")
    return manifest


def _seal(manifest: dict[str, Any]) -> str:
    """The SHA-256 of a manifest, the same for any order of its keys."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode("utf-8")).hexdigest()


def _clean(folder: Path) -> None:
    """Delete our own files that the manifest does not list, as far as they can be deleted."""
    kept: set[str] = set()
    with suppress(OSError):
        if (folder / MANIFEST).exists():
            try:
                kept = {entry["name"] for entry in read_manifest(folder)["files"].values()}
            except ValueError:
                return  # a damaged manifest says nothing about what it needs
        for path in folder.glob("*"):
            if OURS.fullmatch(path.name) and path.name not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
