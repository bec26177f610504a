"""Corpora: built in, downloaded once, or a file of yours. Notebook 11."""

from pathlib import Path

from ..files import work_folder
from ..storyworld.stories import corpus
from ..text.reading import is_file, read_blocks
from .download import Source, download


def storyworld_text() -> str:
    """20,000 stories, one a line: 10 MB of a language whose exact entropy is known (see the room
    storyworld).
    """
    return corpus(20_000, seed=0)


def pydoc_text() -> str:
    """The help topics that every CPython carries: about 460 KB of English prose about Python."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n"


CACHE = work_folder() / "cache/corpora"
SHAKESPEARE = Source(
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    n_bytes=1_115_394,
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)


def shakespeare_text() -> str:
    """Tiny Shakespeare, 1.1 MB of his plays: downloaded once, then kept in work/cache/corpora.

    Raises ConnectionError for a download that fails.
    """
    path = CACHE / "shakespeare.txt"
    download(SHAKESPEARE, path)
    return path.read_bytes().decode("utf-8")


CORPORA = {"storyworld": storyworld_text, "pydoc": pydoc_text, "shakespeare": shakespeare_text}
LINES = {"storyworld"}  # corpora in which each line is a text of its own


def load_corpus(name_or_path: str | Path) -> str:
    """Return the text of a built-in corpus (a key of CORPORA) or of a UTF-8 file.

    Raises FileNotFoundError if it is neither, ValueError for an empty, binary or differently
    encoded file, ConnectionError for a corpus that cannot be downloaded.
    """
    if name_or_path in CORPORA:
        return CORPORA[name_or_path]()
    if not is_file(name_or_path):
        raise FileNotFoundError(
            f"{str(name_or_path)!r} is neither a file nor a corpus; the corpora are "
            f"{', '.join(CORPORA)}"
        )
    text = "".join(read_blocks(Path(name_or_path)))
    if not text.strip():
        raise ValueError(f"{name_or_path} is empty; give a file with text")
    return text
