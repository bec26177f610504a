"""A text of one's own: what is refused and what is said then, what is held out, and what its numbers are."""

import math
from pathlib import Path

import pytest
import torch

from tinylm_classroom.workshop.own_text import (
    LARGE_RECIPE,
    OWN_RECIPE,
    OwnText,
    learn,
    own_config,
    own_text,
    read_stories,
)
from tinylm_lib import TransformerLM, storyworld
from tinylm_lib.config import TrainConfig
from tinylm_lib.data.corpora import pydoc_text

pytestmark = pytest.mark.usefixtures("one_thread")
LINES = "".join(f"{i} is followed by {i + 1}, naïve and 日本.\n" for i in range(900))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


BAD = {
    "missing": (
        lambda f: f / "no.txt",
        FileNotFoundError,
        "neither a file nor a corpus; the corpora are storyworld",
    ),
    "a folder": (lambda f: f, IsADirectoryError, r"is a folder; give one file, such as '.*notes.txt'"),
    "an empty folder": (lambda f: f / "folder", IsADirectoryError, "my_text.txt"),
    "empty": (lambda f: f / "empty", ValueError, "is empty; give a file with text"),
    "3 KB": (lambda f: f / "short", ValueError, "has 3,000 bytes, and a model needs at least 20,000"),
    "not UTF-8": (lambda f: f / "latin", ValueError, "is not UTF-8 .* iconv"),
    "UTF-16": (lambda f: f / "utf16", ValueError, "is UTF-16; convert it"),
    "binary": (lambda f: f / "binary", ValueError, "is binary"),
    "no name": (lambda f: None, TypeError, "must be named by a str or a Path, got None"),
    "a text for a name": (lambda f: LINES, FileNotFoundError, "is neither a file nor a corpus"),
    "a zero byte": (lambda f: "a\0b", FileNotFoundError, "is neither a file nor a corpus"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_text_is_refused_with_what_to_do(file: Path, name: str) -> None:
    folder = file.parent
    (folder / "folder").mkdir()
    (folder / "empty").write_text(" \n")
    (folder / "short").write_text("word \n" * 500)
    (folder / "latin").write_bytes(("caf\xe9 " * 5000).encode("latin-1"))
    (folder / "utf16").write_bytes(LINES.encode("utf-16"))
    (folder / "binary").write_bytes(b"a\0" * 20_000)
    make, error, says = BAD[name]
    with pytest.raises(error, match=says):
        own_text(make(folder))


def test_a_missing_file_is_said_with_its_folder_and_home_is_found(file: Path, monkeypatch) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(FileNotFoundError, match=f"A file is looked for in {file.parent}"):
        own_text("my_texts.txt")
    monkeypatch.setenv("HOME", str(file.parent))
    assert own_text("~/notes.txt").n_bytes == own_text(file).n_bytes


def whole(text: OwnText) -> str:
    """Its pieces in their order again."""
    rest = [text.tokenizer.decode(part.tolist()) for part in (text.training, text.held_out)]
    pieces = []
    for i, length in enumerate(text.lengths):
        pieces.append(rest[i % 2][:length])
        rest[i % 2] = rest[i % 2][length:]
    assert rest == ["", ""]
    return "".join(pieces)


def test_a_tenth_is_held_out_in_seven_places_and_no_character_is_unknown(file: Path) -> None:
    text = own_text(file)
    decode = text.tokenizer.decode
    assert whole(text) == LINES and len(text.lengths) == 14
    assert len(decode(text.held_out.tolist())) == pytest.approx(len(LINES) / 10, rel=0.1)
    assert (text.name, text.n_bytes, text.floor) == ("notes.txt", len(LINES.encode()), None)
    assert text.held_out_bytes == len(decode(text.held_out.tolist()).encode())
    for other in ("новое слово", "🙂", "\r\n\t"):
        assert decode(text.tokenizer.encode(other)) == other


def test_the_tokenizer_has_not_seen_what_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    lines = ("zqxzqx\n" if i % 200 >= 180 else "abcdefg hijklmn\n" for i in range(1400))
    path.write_text("".join(lines), encoding="utf-8")
    text = own_text(path)
    assert len(text.tokenizer.encode("zqx")) == 3 and len(text.tokenizer.encode("abcdefg")) == 1


def test_only_whole_lines_and_characters_of_the_beginning_are_taken(file: Path, tmp_path: Path) -> None:
    text = own_text(file, n_bytes=20_001)
    read = whole(text)
    assert LINES.startswith(read) and read.endswith("\n") and 20_001 - 60 < len(read.encode()) <= 20_001
    (tmp_path / "one line").write_text("日" * 9000, encoding="utf-8")
    assert own_text(tmp_path / "one line", n_bytes=20_000).n_bytes == 19_998
    with pytest.raises(ValueError, match="n_bytes must be at least 20,000, got 5"):
        own_text(file, n_bytes=5)


def test_a_text_that_repeats_itself_is_found(tmp_path: Path) -> None:
    page = pydoc_text()[:30_000]
    (tmp_path / "once").write_text(page, encoding="utf-8")
    (tmp_path / "twice").write_text(page * 2, encoding="utf-8")
    assert own_text(tmp_path / "once").repeated < 0.2 and own_text(tmp_path / "twice").repeated > 0.8


def test_a_page_begins_with_words_of_held_out_sentences(file: Path) -> None:
    for text in (own_text(file), read_stories(storyworld.corpus(60, seed=3)), own_text("pydoc", n_bytes=20_000)):
        held_out = text.tokenizer.decode(text.held_out.tolist())
        found = text.openings(2)
        assert 1 <= len(found) <= 2
        for opening in found:
            assert opening.startswith("\n") and opening.strip() in held_out and text.tokenizer.encode(opening)


def test_the_large_model_is_for_a_megabyte(file: Path) -> None:
    config = own_config(own_text(file), large=True)
    assert (config.n_layers, config.d_model, config.residual_dropout) == (4, 128, 0.1)
    assert LARGE_RECIPE.total_steps * LARGE_RECIPE.batch_size * LARGE_RECIPE.seq_len > 2_000_000


def test_stories_are_whole_and_their_floor_is_the_exact_one() -> None:
    stories = storyworld.corpus(60, seed=3)
    text = read_stories(stories)
    held_out = text.tokenizer.decode(text.held_out.tolist())
    assert text.stories == held_out == "".join(stories.splitlines(keepends=True)[9::10])
    assert len(text.tokenizer.decode(text.training.tolist())) == len("\n" + stories) - len(held_out)
    assert text.floor == pytest.approx(-storyworld.log_prob(text.stories) / len(text.held_out))
    x, y = next(text.batches(OWN_RECIPE))
    line_end = text.tokenizer.encode("\n")[0]
    assert x.shape == y.shape == (8, 128) and (x[:, 0] == line_end).all()
    with pytest.raises(ValueError, match="9 stories leave none to hold out"):
        read_stories(storyworld.corpus(9, seed=3))
    with pytest.raises(ValueError, match="word"):
        read_stories("One unheard word.\n" * 20)


def test_a_loss_is_a_mean_over_all_held_out_tokens_and_its_bits_are_per_byte(file: Path) -> None:
    for text in (own_text(file), read_stories(storyworld.corpus(60, seed=3))):
        model = TransformerLM(own_config(text))
        with torch.no_grad():
            model.lm_head.weight.zero_()  # all tokens equally likely
        assert text.loss(model) == pytest.approx(math.log(text.tokenizer.vocab_size), rel=1e-5)
        in_bits = text.bits_per_byte(text.loss(model)) * text.held_out_bytes
        assert in_bits == pytest.approx(len(text.held_out) * math.log2(text.tokenizer.vocab_size), rel=1e-5)


def test_learning_yields_its_looks_and_the_last_update(file: Path) -> None:
    text = own_text(file)
    torch.manual_seed(0)
    looks = list(learn(TransformerLM(own_config(text)), text, TrainConfig(total_steps=24, precision="fp32")))
    assert [look.step for look in looks] == [10, 20, 24]
    assert looks[-1].training < looks[0].training and looks[-1].held_out < math.log(512)
