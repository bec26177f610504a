"""A folder of Hugging Face files: found or downloaded, opened, written whole."""

import json
import re
import tempfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..files import explained, foreign, put_in_place, sync
from ..text.chat import TOKENIZER_CONFIG
from ..text.hugging_face import package
from ..text.published import CHAT_TEMPLATE, SPECIAL_TOKENS
from ..training.checkpoint import MANIFEST
from .gguf_header import is_gguf

CONFIG = "config.json"
TENSORS = "model.safetensors"
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
INDEX = f"{TENSORS}.index.json"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# What transformers knows about a tokenizer: the chat template is read, and `save_hf` writes all.
SIDE_FILES = (TOKENIZER_CONFIG, SPECIAL_TOKENS, CHAT_TEMPLATE)
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def find_folder(path_or_id: str | Path, wanted: str = CONFIG) -> Path:
    """The folder of a model: the one given, or the download of what a hub id such as
    "openai-community/gpt2" names.

    wanted: the file for which the folder is needed.
    Raises FileNotFoundError for neither a folder nor an id, OSError, with advice, where it cannot
    be downloaded.
    """
    folder = Path(path_or_id)
    if folder.is_dir():
        return folder
    if folder.is_file() and is_gguf(folder):
        raise ValueError(f"{folder} is a GGUF file; open it with load_model")
    if folder.exists():
        raise ValueError(f"{folder} is a file; give the folder that holds {wanted}")
    if not HUB_ID.fullmatch(str(path_or_id)):
        raise FileNotFoundError(
            f"{path_or_id} is neither a folder nor a hub id (owner/name); give one of the two"
        )
    patterns = [CONFIG, GENERATION, "model*.safetensors", INDEX, TOKENIZER, *SIDE_FILES]
    hub = package("huggingface_hub")
    try:
        return Path(hub.snapshot_download(str(path_or_id), allow_patterns=patterns))
    except Exception as e:  # of any kind: its last lines differ between versions
        why = (str(e).strip().splitlines() or [""])[0] or type(e).__name__
        raise OSError(
            f"there is no folder {path_or_id}, and the hub did not give it as a model: {why} "
            f"Download it where you can (hf download {path_or_id} --local-dir FOLDER) and give "
            "that folder"
        ) from None


def read_text(path: Path) -> str:
    """The text of one of a model's files.

    Raises FileNotFoundError, naming what else is there, for a missing one, ValueError for one that
    is not UTF-8.
    """
    if not path.is_file():
        folder = path.parent
        if (folder / MANIFEST).is_file() or next(folder.glob(f"*/{MANIFEST}"), None):
            raise FileNotFoundError(
                f"{folder} holds a checkpoint of this library; open it with load_model"
            )
        raise FileNotFoundError(
            f"{path.name} is missing in {folder}{_also(folder)}; give the folder of a Hugging Face "
            f"model that has it (save_hf writes {TOKENIZER} for the tokenizer that it gets)"
        )
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise damaged(path, e) from None


def damaged(path: Path, why: object) -> ValueError:
    """What to raise for a file that cannot be read: what it is instead, or that it is damaged, and
    what to do.
    """
    what = foreign(path)
    return ValueError(
        f"{path} is {what}" if what else f"{path} is damaged ({why}); download it again"
    )


# What a model may be stored in that is not read here, and why or what to do.
_OTHERS = {
    **dict.fromkeys(
        PICKLES,
        f"only safetensors is read, because a pickle can run code. Take one with {TENSORS}",
    ),
    "*.gguf": "that is a whole model in one file, in GGUF. Open this file with load_model",
    "consolidated*.safetensors": (
        f"that is a format of the model's makers. Take one with {TENSORS}, of transformers"
    ),
    "adapter_model.safetensors": (
        "that is an update for another model. Merge the two with peft, and save the result"
    ),
    "model-*-of-*.safetensors": (
        f"{INDEX} is missing, which says what each of these files holds. Download it, too"
    ),
    "*.safetensors": f"if that is a whole model, name it {TENSORS}",
}


def check_form(folder: Path) -> None:
    """Raise for a folder that does not hold a model of Hugging Face: ValueError where the model is
    a GGUF file, FileNotFoundError where config.json is missing, which says how a model is built.
    """
    files = sorted(path.name for path in folder.glob("*.gguf"))
    if files and not any(folder.glob("*.safetensors*")):
        raise ValueError(
            f"{folder} holds a model in GGUF; open its file {files[0]} with load_model"
        )
    if not (folder / CONFIG).is_file():
        read_text(folder / CONFIG)


def others(folder: Path) -> str:
    """The first file of a folder that holds a model in another way, and what to do; "" where there
    is none.
    """
    for pattern, fix in _OTHERS.items():
        if names := sorted(path.name for path in folder.glob(pattern)):
            return f"{names[0]}, and {fix}"
    return ""


def _also(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*") if path.is_file())
    return f", which holds {', '.join(names[:3])}" if names else ""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises FileNotFoundError as `read_text`, ValueError for a file that holds something else.
    """
    try:
        values = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as e:
        raise damaged(path, e) from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged (it holds no object); download it again")
    return values


def eos_ids(folder: Path) -> list[int]:
    """The ids that end a text: `eos_token_id` of the first file that has it, none where no file
    does.

    Raises ValueError for one that is neither an id nor a list of ids.
    """
    for path in (folder / GENERATION, folder / CONFIG):
        ids = read_json(path).get("eos_token_id") if path.is_file() else None
        if ids is not None:
            id_list = ids if isinstance(ids, list) else [ids]
            if not all(isinstance(i, int) for i in id_list):
                raise ValueError(
                    f"{path}: eos_token_id must be an id or a list of ids, got {str(ids)[:40]!r}"
                )
            return id_list
    return []


class Stored(NamedTuple):
    """A tensor in a file: the file's path and the tensor's name there, its shape and dtype."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    def read(self) -> Tensor:
        """The tensor (...), mapped from the file; the map goes with it, so that one tensor at a
        time is in memory.
        """
        with safe_open(self.path, "pt") as file:
            return file.get_tensor(self.name)


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """All tensors of a folder by name; only the headers of the files are read.

    Raises FileNotFoundError where there are none, ValueError for damaged files and for pickles,
    which can run code.
    """
    named = _shards(folder)
    tensors = {}
    for path in sorted({folder / name for name in named.values()} or {folder / TENSORS}):
        for name, stored in _header(path).items():
            if named and named.get(name) != path.name:
                raise ValueError(
                    f"{path} holds {name}, and {INDEX} does not say so; download both again"
                )
            tensors[name] = stored
    if missing := sorted(set(named) - set(tensors)):
        raise ValueError(f"{folder / named[missing[0]]} lacks {missing[0]}; download it again")
    return tensors


def _header(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Stored(path, name, tuple(s.get_shape()), s.get_dtype())
                for name, s in slices.items()
            }
    except (SafetensorError, OSError) as e:
        raise damaged(path, f"it is not a safetensors file: {e}") from None


def _shards(folder: Path) -> dict[str, str]:
    """Which file holds each tensor, as the index says; empty where one file holds all."""
    whole = (folder / TENSORS).is_file()
    index = (folder / INDEX).is_file()
    if whole and index:
        raise ValueError(
            f"{folder} holds both {TENSORS} and {INDEX}; delete the one that is not meant"
        )
    if not whole and not index:
        if other := others(folder):
            raise ValueError(f"{folder} holds no {TENSORS}, only {other}")
        raise FileNotFoundError(
            f"{TENSORS} is missing in {folder}; give the folder of a Hugging Face model"
        )
    if whole:
        return {}
    named = read_json(folder / INDEX).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise ValueError(f"{folder / INDEX} is damaged (it has no weight_map); download it again")
    for name in named.values():
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or "\0" in name
            or not (folder / name).is_file()
        ):
            raise ValueError(
                f"{folder / INDEX} names the file {name!r}, and it is missing; download it again"
            )
    return named


def write_folder(
    folder: Path, shards: list[dict[str, Callable[[], Tensor]]], texts: dict[str, str]
) -> None:
    """Write a model: its tensors in shards, and texts by file name; the last of these comes last of
    all.

    shards: for each file, what makes its tensors (...), by their names; one file after the other is
    in memory.
    Raises FileExistsError for a folder that holds a model, OSError where it cannot be written;
    nothing is left then.
    """
    kept = (
        CONFIG,
        GENERATION,
        "tokenizer*.json",
        MANIFEST,
        "*.safetensors",
        "*.safetensors.index.json",
    )
    matches = map(folder.glob, (*kept, *SIDE_FILES, *PICKLES))
    names = sorted(path.name for path in chain.from_iterable(matches))
    if names:
        fix = "choose another folder, or empty it"
        raise FileExistsError(f"{folder} holds a model already ({names[0]}); {fix}")
    with explained("the model", folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
            n = len(shards)
            n_bytes = 0
            placed = {}
            for i, shard in enumerate(shards, 1):
                name = TENSORS if n == 1 else f"model-{i:05d}-of-{n:05d}.safetensors"
                tensors = {tensor: make().cpu() for tensor, make in shard.items()}
                n_bytes += sum(t.nbytes for t in tensors.values())
                save_file(tensors, Path(partial) / name, metadata={"format": "pt"})
                placed |= dict.fromkeys(shard, name)
            if n > 1:
                index = {"metadata": {"total_size": n_bytes}, "weight_map": placed}
                texts = {INDEX: json.dumps(index, indent=2), **texts}
            for name, text in texts.items():
                (Path(partial) / name).write_text(text, encoding="utf-8")
            _move(
                [Path(partial) / name for name in dict.fromkeys((*placed.values(), *texts))], folder
            )


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
