"""A model as a page: what it holds, and what is refused before anything is written."""

import errno
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from support.toys import toy_model

from tinylm_classroom import export_page
from tinylm_classroom.live.record import live_record
from tinylm_classroom.page import export
from tinylm_lib import TransformerLM, storyworld
from tinylm_lib.text.base import Tokenizer
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer, WordTokenizer
from tinylm_lib.writing import stream_text

HOSTILE = "</title><script>alert(1)</script>&\"'<b>"
CHARACTERS = CharTokenizer("\n abcde<>!/'\"&;-")  # 16, the toy has 17 ids


class Seen(HTMLParser):
    """The tags of a page with their attributes, and the text in each kind of tag."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.texts: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag = self.tags[-1][0] if self.tags else ""
        self.texts[tag] = self.texts.get(tag, "") + data


@pytest.fixture
def toy() -> TransformerLM:
    return toy_model(seed=2)


@pytest.fixture(scope="module")
def shipped(ready, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "my_model.html"
    return export_page(ready.model, ready.tokenizer, path, title="Stories", beginning="\nOne sunny day")


def options_of(path: Path) -> dict:
    """What the page's script is given."""
    return json.loads(
        re.search(r'<script type="application/json" id="options">(.*?)</script>', path.read_text("utf-8"))[1]
    )


def written(model: TransformerLM, tokenizer: Tokenizer, beginning: str, **options) -> str:
    generator = torch.Generator().manual_seed(0)
    return beginning + "".join(stream_text(model, tokenizer, beginning, 300, generator=generator, **options))


def test_the_page_of_the_shipped_model_is_small_and_one_file(shipped):
    assert shipped.name == "my_model.html" and [*shipped.parent.iterdir()] == [shipped]
    assert 1_750_000 < shipped.stat().st_size < 2_500_000


def test_the_page_names_nothing_that_is_elsewhere(shipped):
    tags = Seen(shipped.read_text("utf-8")).tags
    addresses = [each[name] for _, each in tags for name in ("src", "href", "data", "action", "srcset") if name in each]
    assert addresses == ["data:,"]
    assert "://" not in shipped.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")


def test_without_scripts_the_page_says_what_the_model_is_and_shows_a_text_of_it(shipped, ready):
    seen = Seen(shipped.read_text("utf-8"))
    assert seen.texts["h1"].strip() == "Stories"
    expected = {
        "654,656, stored in half precision",
        "3, with 4 attention heads each",
        "345 words",
        "up to 128 tokens: the last ones of a longer text",
        "100,000 stories of StoryWorld, which a small program writes",
    }
    assert all(fact in seen.texts["dd"] for fact in expected), seen.texts["dd"]
    sample = written(ready.model, ready.tokenizer, "\nOne sunny day", stop=["\n"])
    assert seen.texts["blockquote"].strip() == sample.strip()
    assert "temperature 1 and seed 0" in seen.texts["p"]
    assert "A sample of its text is below" in seen.texts["p"]


def test_what_a_model_was_trained_on_is_said_only_if_it_is_known(toy, tmp_path):
    assert "Trained on" not in export_page(toy, CHARACTERS, tmp_path / "x.html").read_text("utf-8")
    seen = Seen(export_page(toy, CHARACTERS, tmp_path / "x.html", trained_on=" 3 <letters>").read_text("utf-8"))
    assert "3 <letters>" in seen.texts["dd"] and "Trained on" in seen.texts["dt"]


def test_a_page_can_begin_with_other_texts_and_another_temperature(ready, tmp_path):
    others = ["\nOne foggy evening, calm Mia", "\nOne dark day, kind Tom"]
    path = export_page(
        ready.model, ready.tokenizer, tmp_path / "x.html", beginning=others[0], beginnings=others, temperature=0.7
    )
    options = options_of(path)
    assert options["beginnings"][:2] == others and options["temperature"] == 0.7
    assert len(options["beginnings"]) == len(set(options["beginnings"]))
    assert "temperature 0.7 and seed 0" in path.read_text("utf-8")
    with pytest.raises(ValueError, match="temperature must be from 0 to 2, got 3"):
        export_page(ready.model, ready.tokenizer, path, temperature=3)


def test_the_page_has_the_record_and_for_storyworld_the_exact_probabilities(shipped, ready):
    options = options_of(shipped)
    assert options["record"] == json.loads(json.dumps(live_record(ready.model, ready.tokenizer)))
    assert options["beginnings"][0] == "\nOne sunny day"
    assert options["stories"]["classes"]["name"] == list(storyworld.CLASSES["name"])
    reader = storyworld.Reader()
    words = storyworld.words(options["beginnings"][1].lstrip())
    assert all(reader.read(word) for word in words), "the second beginning is one of a story"
    impossible = storyworld.words(options["beginnings"][2].lstrip())
    reader = storyworld.Reader()
    assert [reader.read(word) > 0 for word in impossible] == [True] * (len(impossible) - 1) + [False]


def test_another_vocabulary_has_no_exact_probabilities(toy, tmp_path):
    options = options_of(export_page(toy, WordTokenizer("a b\n"), tmp_path / "x.html", beginning="\na"))
    assert options["stories"] is None and options["beginnings"] == ["\na"]


@pytest.mark.parametrize(("sample", "beginnings"), [
    ("\na b b b b b b", ["\na b b b b", "\n"]),
    ("\n\na b\nb", ["\na b", "\n"]),
    ("\n b a", ["\n"]),  # b has no token of its own without a blank
    ("\n" + "a" * 61, ["\n"]),
    ("\n\n", ["\n"]),
], ids=["five words", "one line", "unknown", "long", "blank"])  # fmt: skip
def test_a_page_without_a_beginning_begins_with_words_of_its_sample(toy, tmp_path, monkeypatch, sample, beginnings):
    monkeypatch.setattr(export, "sampled", lambda *_, **__: sample)
    path = export_page(toy, WordTokenizer("a b\n"), tmp_path / "x.html")
    assert options_of(path)["beginnings"] == beginnings


def test_what_is_written_into_the_page_stays_text(toy, tmp_path):
    beginning = "<b>!</script>&;"
    known = CharTokenizer("".join(sorted(set(beginning + "\n a\"'"))))
    model = toy_model(vocab_size=known.vocab_size, seed=3)
    path = export_page(model, known, tmp_path / "x.html", title=HOSTILE, beginning=beginning)
    seen = Seen(path.read_text("utf-8"))
    tags = [tag for tag, _ in seen.tags]
    assert tags.count("b") == 0 and tags.count("script") == 2 and tags.count("title") == 1
    assert seen.texts["h1"].strip() == seen.texts["title"].strip() == HOSTILE
    assert seen.texts["blockquote"].strip() == written(model, known, beginning).strip()
    assert options_of(path)["beginnings"] == [beginning]


def test_half_of_a_surrogate_pair_in_a_vocabulary_is_no_obstacle(tmp_path):
    known = CharTokenizer("a\ud800\n")
    path = export_page(toy_model(vocab_size=3), known, tmp_path / "x.html", beginning="a\ud800")
    assert options_of(path)["record"]["tokenizer"]["characters"] == "a\ud800\n"


@pytest.mark.parametrize("change", [
    ({"title": ""}, ValueError, "title must be a text of at least one letter, got ''"),
    ({"title": " \n"}, ValueError, r"title must be a text of at least one letter, got ' \\n'"),
    ({"title": None}, ValueError, "title must be a text of at least one letter, got None"),
    ({"beginning": ""}, ValueError, "beginning must have at least one token, got ''"),
    ({"beginning": "aé"}, ValueError, "beginning 'aé' cannot be read; choose another one: character 'é' at position 1"),
    ({"beginning": 3}, TypeError, "beginning must be a text, got 3"),
    ({"trained_on": 3}, TypeError, "trained_on must be a text, got 3; give trained_on='letters', or leave it out"),
    ({"path": "my_model"}, ValueError, r"path must end with \.html, so that a browser opens it \(got 'my_model'\)"),
    ({"path": "missing/my_model.html"}, FileNotFoundError, "the folder missing does not exist; create it"),
    ({"path": "folder.html"}, IsADirectoryError, "folder.html is a folder; choose another name"),
    ({"tokenizer": ByteTokenizer()}, ValueError, "the tokenizer has 256 ids, and the model only 17"),
    ({"model": toy_model(norm="layer")}, ValueError, "norm 'layer' cannot run in a page"),
    ({"model": "storyworld"}, TypeError, "must be a TransformerLM, got str"),
])  # fmt: skip
def test_what_is_refused_leaves_no_file(change, toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    arguments, error, message = change
    with pytest.raises(error, match=message):
        export_page(**{"model": toy, "tokenizer": CHARACTERS, "path": "x.html", "beginning": "a", **arguments})
    assert [path.name for path in tmp_path.rglob("*")] == ["folder.html"]


def test_weights_that_are_no_numbers_are_refused_and_an_older_page_stays(toy, tmp_path):
    path = export_page(toy, CHARACTERS, tmp_path / "x.html")
    before = path.read_bytes()
    with torch.no_grad():
        toy.embed.weight[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"embed\.weight"):
        export_page(toy, CHARACTERS, path)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_older_page(toy, tmp_path, monkeypatch):
    path = export_page(toy, CHARACTERS, tmp_path / "x.html")
    before = path.read_bytes()

    def full(partial: Path, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tinylm_lib.files.put_in_place", full)
    with pytest.raises(OSError, match=r"cannot write the page .*x\.html"):
        export_page(toy, CHARACTERS, path, title="another")
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_a_page_is_replaced_and_the_model_stays_as_it_was(toy, tmp_path):
    toy.train()
    weights = {name: weight.clone() for name, weight in toy.state_dict().items()}
    paths = [export_page(toy, CHARACTERS, str(tmp_path / "x.HTML"), title=title) for title in ("one", "two")]
    assert paths == [tmp_path / "x.HTML"] * 2
    assert "<h1>two</h1>" in paths[0].read_text("utf-8")
    assert toy.training and all(torch.equal(weights[name], weight) for name, weight in toy.state_dict().items())


def test_the_scripts_are_one_plain_script_that_a_page_can_hold():
    script = export.writer_script()
    assert "</script" not in script.lower() and "<!--" not in script
    assert not re.search(r"^\s*(import|export)\b", script, re.M)
    assert "innerHTML" not in script and "insertAdjacentHTML" not in script
