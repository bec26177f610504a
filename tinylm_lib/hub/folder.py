"""A folder of Hugging Face files: found or downloaded, opened, written whole."""

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..files import explained, put_in_place, sync
from ..text.hugging_face import package
from ..training.checkpoint import MANIFEST

CONFIG, TENSORS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
GENERATION = "generation_config.json"
INDEX = f"{TENSORS}.index.json"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def find_folder(path_or_id: str | Path) -> Path:
    """The folder of a model: the one given, or the download of what a hub id such as "openai-community/gpt2" names.

    Raises FileNotFoundError for neither a folder nor an id, OSError, with advice, where it cannot be downloaded.
    """
    folder = Path(path_or_id)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ValueError(f"{folder} is a file; give the folder that holds {CONFIG}")
    if not HUB_ID.fullmatch(str(path_or_id)):
        raise FileNotFoundError(f"{path_or_id} is neither a folder nor a hub id (owner/name); give one of the two")
    wanted = [CONFIG, GENERATION, "model*.safetensors", INDEX, TOKENIZER]
    hub = package("huggingface_hub")
    try:
        return Path(hub.snapshot_download(str(path_or_id), allow_patterns=wanted))
    except Exception as e:  # of any kind: its last lines differ between versions
        why = (str(e).strip().splitlines() or [""])[0] or type(e).__name__
        raise OSError(
            f"there is no folder {path_or_id}, and the hub did not give it as a model: {why} Download it where you "
            f"can (hf download {path_or_id} --local-dir FOLDER) and give that folder"
        ) from None


def read_text(path: Path) -> str:
    """The text of one of a model's files.

    Raises FileNotFoundError, naming what else is there, for a missing one, ValueError for one that is not UTF-8.
    """
    if not path.is_file():
        folder = path.parent
        if (folder / MANIFEST).is_file() or next(folder.glob(f"*/{MANIFEST}"), None):
            raise FileNotFoundError(f"{folder} holds a checkpoint of this library; open it with load_model")
        raise FileNotFoundError(
            f"{path.name} is missing in {folder}; give the folder of a Hugging Face model that has it (save_hf writes "
            f"{TOKENIZER} for the tokenizer that it gets)"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise ValueError(f"{path} is damaged ({e}); download it again") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises FileNotFoundError as `read_text`, ValueError for a file that holds something else.
    """
    try:
        values = json.loads(read_text(path))
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path} is damaged ({e}); download it again") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged (it holds no object); download it again")
    return values


def eos_ids(folder: Path) -> list[int]:
    """The ids that end a text: `eos_token_id` of the first file that has it, none where no file does.

    Raises ValueError for one that is neither an id nor a list of ids.
    """
    for path in (folder / GENERATION, folder / CONFIG):
        ids = read_json(path).get("eos_token_id") if path.is_file() else None
        if ids is not None:
            found = ids if isinstance(ids, list) else [ids]
            if not all(isinstance(i, int) for i in found):
                raise ValueError(f"{path}: eos_token_id must be an id or a list of ids, got {str(ids)[:40]!r}")
            return found
    return []


class Stored(NamedTuple):
    """A tensor in a file: the file's path and the tensor's name there, its shape and dtype."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    def read(self) -> Tensor:
        """The tensor (...), mapped from the file; the map goes with it, so that one tensor at a time is in memory."""
        with safe_open(self.path, "pt") as file:
            return file.get_tensor(self.name)


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """All tensors of a folder by name; only the headers of the files are read.

    Raises FileNotFoundError where there are none, ValueError for damaged files and for pickles, which can run code.
    """
    named, found = _shards(folder), {}
    for path in sorted({folder / name for name in named.values()} or {folder / TENSORS}):
        for name, stored in _header(path).items():
            if named and named.get(name) != path.name:
                raise ValueError(f"{path} holds {name}, and {INDEX} does not say so; download both again")
            found[name] = stored
    if missing := sorted(set(named) - set(found)):
        raise ValueError(f"{folder / named[missing[0]]} lacks {missing[0]}; download it again")
    return found


def _header(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: Stored(path, name, tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except (SafetensorError, OSError) as e:
        raise ValueError(f"{path} is damaged or not a safetensors file ({e}); download it again") from None


def _shards(folder: Path) -> dict[str, str]:
    """Which file holds each tensor, as the index says; empty where one file holds all."""
    whole, index = (folder / TENSORS).is_file(), (folder / INDEX).is_file()
    if whole and index:
        raise ValueError(f"{folder} holds both {TENSORS} and {INDEX}; delete the one that is not meant")
    if not whole and not index:
        if pickles := sorted(path.name for kind in PICKLES for path in folder.glob(kind)):
            raise ValueError(
                f"{folder} holds {pickles[0]} and no {TENSORS}; only safetensors is read, because a pickle can run "
                f"code. Take a version of the model that has {TENSORS}"
            )
        raise FileNotFoundError(f"{TENSORS} is missing in {folder}; give the folder of a Hugging Face model")
    if whole:
        return {}
    named = read_json(folder / INDEX).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise ValueError(f"{folder / INDEX} is damaged (it has no weight_map); download it again")
    for name in named.values():
        if not isinstance(name, str) or Path(name).name != name or "\0" in name or not (folder / name).is_file():
            raise ValueError(f"{folder / INDEX} names the file {name!r}, and it is missing; download it again")
    return named


def write_folder(folder: Path, shards: list[dict[str, Callable[[], Tensor]]], texts: dict[str, str]) -> None:
    """Write a model: its tensors in shards, and texts by file name; the last of these comes last of all.

    shards: for each file, what makes its tensors (...), by their names; one file after the other is in memory.
    Raises FileExistsError for a folder that holds a model, OSError where it cannot be written; nothing is left then.
    """
    kept = (CONFIG, GENERATION, "tokenizer*.json", MANIFEST, "*.safetensors", "*.safetensors.index.json", *PICKLES)
    if there := sorted(path.name for kind in kept for path in folder.glob(kind)):
        raise FileExistsError(f"{folder} holds a model already ({there[0]}); choose another folder, or empty it")
    with explained("the model", folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
            n, n_bytes, placed = len(shards), 0, {}
            for i, shard in enumerate(shards, 1):
                name = TENSORS if n == 1 else f"model-{i:05d}-of-{n:05d}.safetensors"
                made = {tensor: make().cpu() for tensor, make in shard.items()}
                n_bytes += sum(t.nbytes for t in made.values())
                save_file(made, Path(partial) / name, metadata={"format": "pt"})
                placed |= dict.fromkeys(shard, name)
            if n > 1:
                index = {"metadata": {"total_size": n_bytes}, "weight_map": placed}
                texts = {INDEX: json.dumps(index, indent=2), **texts}
            for name, text in texts.items():
                (Path(partial) / name).write_text(text, encoding="utf-8")
            _move([Path(partial) / name for name in dict.fromkeys((*placed.values(), *texts))], folder)


def _move(files: list[Path], folder: Path) -> None:
    """Put finished files into a folder, all or none."""
    try:
        for path in files:
            put_in_place(path, folder / path.name)
    except BaseException:
        for path in files:
            (folder / path.name).unlink(missing_ok=True)
        raise
    sync(folder)
