"""What tests of Hugging Face's files share: a small tokenizer of their own package, and a hub on this machine."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from tinylm_lib import storyworld

BEGIN, END = "<|begin|>", "<|end|>"
COMMIT = "c0ffee" * 6 + "c0ff"


@cache
def trained(begins: bool = False) -> tokenizers.Tokenizer:
    """A byte-level BPE of 300 tokens, trained on stories. begins: it wants <|begin|> before every text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[BEGIN, END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator([storyworld.corpus(200, seed=1)], trainer)
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)])
    return tokenizer


class Hub(BaseHTTPRequestHandler):
    """The few answers that `snapshot_download` asks for: what a model is, its files, and each file."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name, _, rest = self.path.lstrip("/").removeprefix("api/models/").partition("owner/name")
        files: dict[str, bytes] = self.server.files
        if name or not self.path.partition("?")[0].count("owner/name"):
            return self.answer(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        if self.path.startswith("/api/models/owner/name/tree/"):
            listed = [{"type": "file", "path": f, "size": len(b), "oid": etag(b)} for f, b in files.items()]
            return self.answer(200, json.dumps(listed).encode())
        if self.path.startswith("/api/models/"):
            info = {"id": "owner/name", "sha": COMMIT, "siblings": [{"rfilename": f} for f in files]}
            return self.answer(200, json.dumps(info).encode())
        body = files[rest.removeprefix("/resolve/").partition("/")[2]]
        return self.answer(200, body, {"ETag": f'"{etag(body)}"', "X-Repo-Commit": COMMIT})

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def etag(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()


@contextmanager
def served(folder: Path) -> Iterator[ThreadingHTTPServer]:
    """A hub whose only model, owner/name, has the files of a folder and a pickle; `asked` lists what was requested."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files = {path.name: path.read_bytes() for path in folder.iterdir()} | {"pytorch_model.bin": b"no"}
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
