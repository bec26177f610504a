"""tokens: text files become a token file, which train maps instead of reading it."""

import argparse
import signal
from itertools import chain, takewhile
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tqdm import tqdm

from ..data.encoding import encode_files
from ..data.token_file import open_tokens
from ..files import explained
from ..hub import is_gguf, load_gguf_tokenizer
from ..hub.folder import TOKENIZER
from ..pretrained import load_hf_tokenizer, open_model
from ..runs.run import typed
from ..text.base import Tokenizer
from ..text.reading import read_blocks
from ..text.tokenizers import TOKENIZERS, load_tokenizer

LEARNT_FROM = 10_000_000  # bytes, with which BPE takes seconds; more text hardly changes the merges


def add_tokens(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("tokens", help="encode text of any size into a file for train --tokens")
    p.set_defaults(do=run_tokens)
    p.add_argument(
        "files", nargs="+", metavar="FILE", help="UTF-8 text; each file is a text of its own"
    )
    p.add_argument("--out", required=True, metavar="FILE", help="the token file; it must not exist")
    kinds = (
        f"{', '.join(TOKENIZERS)}: made from the files (bpe from the first {LEARNT_FROM // 10**6} "
        "MB)"
    )
    others = (
        "or one that exists: a file of Tokenizer.save, a token file, a run, a Hugging Face folder "
        "or hub id"
    )
    p.add_argument("--tokenizer", required=True, metavar="NAME_OR_PATH", help=f"{kinds}; {others}")
    p.add_argument("--vocab-size", type=int, help="how many tokens bpe learns (default 1,000)")


def run_tokens(arguments: argparse.Namespace) -> None:
    """Encode files, and show how far it is."""
    paths = [Path(name) for name in arguments.files]
    out = Path(arguments.out)
    n_bytes = sum(_size(path) for path in paths)
    if out.exists():
        raise ValueError(f"{out} exists; delete it, or choose another name for --out")
    with explained("the token file", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out.parent).close()
    # as Ctrl-C does, it leaves nothing half-written
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bar = {"total": n_bytes, "unit": "B", "unit_scale": True, "dynamic_ncols": True}
    tokenizer = _tokenizer(arguments, paths, bar)
    with tqdm(desc="encoding", **bar) as shown:
        n_ids = encode_files(paths, out, tokenizer, shown.update)
    print(
        f"{out}: {n_ids:,} tokens ({tokenizer.kind}, {tokenizer.vocab_size:,} ids) of {n_bytes:,} "
        "bytes,"
    )
    print(f"      {n_bytes / n_ids:.2f} bytes per token.")
    print(f"Train with: python -m tinylm_lib {typed('train', f'--tokens={out}')}")


def _size(path: Path) -> int:
    """The bytes of a file.

    Raises FileNotFoundError or ValueError for one that is missing, empty or a folder.
    """
    if not path.is_file():
        hint = f"give its files, such as {path}/*.txt" if path.is_dir() else "give UTF-8 text files"
        raise FileNotFoundError(f"{path} is not a file; {hint}")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty; give files with text")
    return path.stat().st_size


def _tokenizer(arguments: argparse.Namespace, paths: list[Path], bar: dict[str, Any]) -> Tokenizer:
    """Make the tokenizer that the flags name from the files, or open it.

    Raises ValueError for a size where there is none to choose.
    """
    name = arguments.tokenizer
    size = arguments.vocab_size
    kind = TOKENIZERS.get(name)
    if size is not None and not (kind and kind.sized):
        raise ValueError(
            f"vocab_size {size} is for --tokenizer bpe; {name} has its own size, so leave it out"
        )
    if kind is None:
        return open_tokenizer(name)
    with tqdm(desc="vocabulary", **bar) as shown:
        blocks = chain.from_iterable(read_blocks(path, shown.update) for path in paths)
        return kind.from_texts(
            takewhile(lambda _: not kind.sized or shown.n <= LEARNT_FROM, blocks), size
        )


def open_tokenizer(source: str) -> Tokenizer:
    """Open the tokenizer of a file, a token file, a GGUF file, a run or checkpoint, or a model of
    Hugging Face.

    Raises FileNotFoundError, OSError or ValueError where there is none.
    """
    path = Path(source)
    if path.is_file() and is_gguf(path):
        return load_gguf_tokenizer(path)
    if path.is_file():
        with open(path, "rb") as file:
            is_json = file.read(1) == b"{"  # a token file begins with a length
        return load_tokenizer(path) if is_json else open_tokens(path).tokenizer
    if path.is_dir() and not (path / TOKENIZER).is_file():
        return open_model(path).tokenizer
    return load_hf_tokenizer(source)
