"""Tokens in a file that carries its tokenizer, and is mapped into memory instead of read.

Notebook 11.
"""

import hashlib
import json
import struct
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..files import sha256, whole_file
from ..text.base import Tokenizer, checked
from ..text.tokenizers import tokenizer_from_dict

IDS_PER_WRITE = 1 << 18  # ids that are written at a time


class Tokens(NamedTuple):
    """What a token file holds, or a text that was encoded: ids (N,), torch.uint16 or torch.int32,
    and their tokenizer.

    sha256: of what was read; of a token file, of its tokenizer and ids, computed when the file was
    written.
    """

    ids: Tensor
    tokenizer: Tokenizer
    sha256: str


def write_tokens(path: str | Path, ids: Iterable[int], tokenizer: Tokenizer) -> int:
    """Write ids and their tokenizer to one file, in constant memory: ids may come from
    `tokenizer.encode_iterable`.

    The file is a safetensors file; ids take 2 bytes where the vocabulary allows, 4 for larger ones.
    It is there only when whole.
    Returns the number of ids.
    Raises ValueError for no ids, and for one outside the vocabulary.
    """
    code, dtype = ("U16", "<u2") if tokenizer.vocab_size <= 1 << 16 else ("I32", "<i4")
    remaining = iter(ids)
    n_ids = 0
    digest = hashlib.sha256(json.dumps(tokenizer.to_dict()).encode())
    with whole_file(Path(path)) as file:
        file.write(_header(tokenizer, code, 0, digest.hexdigest()))
        while block := checked(islice(remaining, IDS_PER_WRITE), tokenizer.vocab_size):
            raw = np.array(block, dtype).tobytes()
            file.write(raw)
            digest.update(raw)
            n_ids += len(block)
        if n_ids == 0:
            raise ValueError(f"there are no ids to write to {path}; give at least one")
        file.seek(0)
        file.write(_header(tokenizer, code, n_ids, digest.hexdigest()))
    return n_ids


def _header(tokenizer: Tokenizer, code: str, n_ids: int, sha256: str) -> bytes:
    """The beginning of a safetensors file, as long for any number of ids: JSON, filled up with
    spaces.
    """
    size = n_ids * (2 if code == "U16" else 4)
    ids = json.dumps({"dtype": code, "shape": [n_ids], "data_offsets": [0, size]})
    metadata = json.dumps(
        {
            "format": "tinylm tokens",
            "tokenizer": json.dumps(tokenizer.to_dict()),
            "sha256": sha256,
        }
    )
    text = f'{{"__metadata__": {metadata}, "ids": {ids.ljust(100)}}}'.encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def open_tokens(path: str | Path) -> Tokens:
    """Map a file of `write_tokens` into memory: what is looked at is read, when it is looked at.

    Raises FileNotFoundError for a missing file, ValueError for another or a damaged one.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no token file {path}; write_tokens makes one")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != "tinylm tokens":
                raise ValueError("it was not made by write_tokens")
            ids = file.get_tensor("ids")
            tokenizer = tokenizer_from_dict(json.loads(metadata["tokenizer"]))
            if ids.dim() != 1 or ids.dtype not in (torch.uint16, torch.int32):
                raise ValueError(f"ids have shape {tuple(ids.shape)} and {ids.dtype}")
            return Tokens(ids, tokenizer, metadata.get("sha256") or sha256(Path(path)))
    except (SafetensorError, ValueError, KeyError, RecursionError) as e:
        raise ValueError(
            f"{path} is not a token file, or damaged: {e}; write it again with write_tokens"
        ) from None
