"""Downloads from a server of our own: good, cut, altered, missing, refused and silent ones."""

import gc
import hashlib
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tinylm_lib.data import corpora
from tinylm_lib.data import download as downloads
from tinylm_lib.data.corpora import load_corpus
from tinylm_lib.data.download import Source, download

BODY = ("First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 3000).encode()
REAL = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"


class Server(ThreadingHTTPServer):
    """Serves `body` at /good; other addresses go wrong in the way that they are named."""

    daemon_threads = True
    body = BODY

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.closing = 0, threading.Event()

    def source(self, way: str) -> Source:
        digest = hashlib.sha256(self.body).hexdigest()
        return Source(f"http://127.0.0.1:{self.server_address[1]}/{way}", len(self.body), digest)


class Handler(BaseHTTPRequestHandler):
    """Answers well or badly."""

    def do_GET(self) -> None:
        way, body = self.path[1:], self.server.body
        self.server.requests += 1
        if way == "gone":
            return self.send_error(404)
        if way == "silent":
            self.server.closing.wait(20)
            return None
        changed = {"altered": body[:-1] + b"?", "longer": body + b"x" * 200_000, "empty": b""}
        sent = body[:-9000] if way in ("cut", "truncated") else changed.get(way, body)
        self.send_response(200)
        if way != "truncated":
            self.send_header("Content-Length", str(len(body if way == "cut" else sent)))
        self.end_headers()
        self.wfile.write(sent)
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.closing.set()
        running.shutdown()
        thread.join()


def test_a_good_download_is_kept_and_asked_for_once(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "cache" / "corpora" / "text.txt"
    download(server.source("good"), path)
    assert path.read_bytes() == BODY
    assert "100%" in capsys.readouterr().err, "no progress bar"
    download(server.source("good"), path)
    assert server.requests == 1
    assert [p.name for p in path.parent.iterdir()] == ["text.txt"]


FAILURES = {
    "cut": r"\d+ bytes came, and the file has 186000|IncompleteRead",
    "truncated": "177000 bytes came, and the file has 186000",
    "empty": "0 bytes came, and the file has 186000",
    "longer": r"\d+ bytes came, and the file has 186000",
    "altered": "what came is another file", "gone": "404", "silent": "timed out", "refused": "refused",
}  # fmt: skip


@pytest.mark.parametrize(("way", "says"), FAILURES.items())
def test_a_failed_download_says_what_to_do_and_leaves_nothing(
    way: str, says: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "DOWNLOAD_TIMEOUT", 0.3)
    source, path = server.source(way), tmp_path / "cache" / "text.txt"
    if way == "refused":
        source = source._replace(url="http://127.0.0.1:1/text.txt")
    with pytest.raises(ConnectionError, match=says) as e:
        download(source, path)
    for part in (source.url, f"put it at {path};", "--corpus FILE", "--corpus storyworld"):
        assert part in str(e.value)
    assert list(path.parent.iterdir()) == []
    with warnings.catch_warnings():  # after a time-out urllib leaves its socket to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        del e
        gc.collect()
    if way != "refused":
        download(server.source("good"), path)
        assert path.read_bytes() == BODY, "a failure spoils the next attempt"


def test_a_stopped_download_leaves_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        assert len(list(tmp_path.iterdir())) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(downloads.tqdm, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download(server.source("good"), tmp_path / "text.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_used_or_named_and_kept_without_the_network(server: Server, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.txt", tmp_path / "wrong.txt"
    right.write_bytes(BODY)
    wrong.write_bytes(BODY[:-1])
    download(server.source("good"), right)
    with pytest.raises(ValueError, match=r"wrong\.txt is not the file of http.*delete it"):
        download(server.source("good"), wrong)
    assert (right.read_bytes(), wrong.read_bytes(), server.requests) == (BODY, BODY[:-1], 0)


def test_shakespeare_is_downloaded_into_the_work_folder(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(corpora, "SHAKESPEARE", server.source("good"))
    assert load_corpus("shakespeare") == load_corpus("shakespeare") == BODY.decode()
    assert Path("work/cache/corpora/shakespeare.txt").read_bytes() == BODY
    assert server.requests == 1


@pytest.mark.skipif(not REAL.exists(), reason=f"the real Tiny Shakespeare is not at {REAL}")
def test_the_real_shakespeare_is_known_by_its_hash(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.body = REAL.read_bytes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(corpora, "SHAKESPEARE", corpora.SHAKESPEARE._replace(url=server.source("good").url))
    assert load_corpus("shakespeare").encode() == server.body
