"""A model as one HTML file, in which it writes, without Python and without a network."""

import re
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import torch

from tinylm_lib.cost import count_parameters
from tinylm_lib.files import explained, whole_file
from tinylm_lib.model import TransformerLM
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.text.base import Tokenizer
from tinylm_lib.writing import stream_text

from ..display.theme import page_head
from ..folders import own
from ..live.record import live_record
from ..live.scripts import engine_script
from ..live.stories import stories_record
from ..views.base import SHARED, json_in_html, source

IMPOSSIBLE = "\nOne sunny day, brave kite"  # no story of StoryWorld begins like this
# For a model of StoryWorld, after one's own beginning: the first determines the next word.
BEGINNINGS = (
    "\nOne dark evening, calm Mia ran to Foxhollow. She had a golden bowl. There she met Farah, a "
    "doctor with a "
    'yellow basket. Farah whispered to Mia, "Early dreams return forever." Then they traded their '
    "things. Afterwards "
    'they left Foxhollow for Northgate. Often Mia thought, "Early dreams',
    IMPOSSIBLE,
)
UNITS = {"words": "words", "bytes": "bytes", "chars": "characters", "bpe": "tokens"}
SEED = 0
SAMPLE_TOKENS = 300


def export_page(
    model: TransformerLM,
    tokenizer: Tokenizer,
    path: str | Path = "my_model.html",
    *,
    title: str = "My language model",
    beginning: str = "\n",
    trained_on: str = "",
) -> Path:
    """Write a model as one HTML file in which it writes, shows its attention and the probabilities
    of what comes next.

    path: the file, in a folder that exists; an older one is replaced. beginning: how the first text
    begins; the white space at its start is read by the model before everything that a visitor
    types. trained_on: what the model was trained on, in a few words for the page; known for the
    shipped model, otherwise left out where it is empty.
    Returns the path. Raises FileNotFoundError or IsADirectoryError for a path that cannot be a
    file's, TypeError or ValueError for a title or beginning that is empty or has unknown words, and
    for a model that a page cannot compute with (see `live_record`). Then nothing is written.
    """
    path = _target(path)
    if not isinstance(title, str) or not title.strip():
        raise ValueError(
            f"title must be a text of at least one letter, got {title!r}; give title='My model'"
        )
    if not isinstance(trained_on, str):
        raise TypeError(
            f"trained_on must be a text, got {trained_on!r}; "
            "give trained_on='letters', or leave it out"
        )
    record = live_record(model, tokenizer)
    stories = _stories(tokenizer)
    _check_beginning(tokenizer, beginning)
    sample = _sample(model, tokenizer, beginning, ("\n",) if stories else ())
    beginnings = [
        *_opening(tokenizer, beginning, sample),
        beginning,
        *(BEGINNINGS if stories else ()),
    ]
    page = Template(own("page/page.html")).substitute(
        head=page_head(title.strip()),
        title=escape(title.strip()),
        parameters=f"{count_parameters(model.config).total:,}",
        facts=_facts(model, tokenizer, trained_on.strip() or _training_of(record)),
        source=f"Written by Python when this page was made, with temperature 1 and seed {SEED}.",
        sample=escape(sample.strip("\n")),
        options=json_in_html({"record": record, "stories": stories, "beginnings": beginnings}),
        script=writer_script(),
    )
    with explained("the page", path), whole_file(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return path


def writer_script() -> str:
    """One plain script: `tinylm` with the engine, and with `tinylm.writer(el, options)` of
    writer.js.
    """
    text = (
        f"{engine_script()}(() => {{\n{source(SHARED)}\n{own('page/writer.js')}\ntinylm.writer = "
        f"writer;\n}})();"
    )
    if "</script" in text.lower():
        raise ValueError("a script may not hold </script: the page would end there")
    return text


def _target(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"path must end with .html, so that a browser opens it (got {str(path)!r})"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"the folder {path.parent} does not exist; create it, or choose another path"
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; choose another name")
    return path


def _check_beginning(tokenizer: Tokenizer, beginning: Any) -> None:
    if not isinstance(beginning, str):
        raise TypeError(f"beginning must be a text, got {beginning!r}")
    try:
        ids = tokenizer.encode(beginning)
    except ValueError as e:
        raise ValueError(
            f"beginning {beginning!r} cannot be read; choose another one: {e}"
        ) from None
    if not ids:
        raise ValueError(
            f"beginning must have at least one token, got {beginning!r}; give beginning='The'"
        )


def _stories(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """StoryWorld's exact probabilities as data, where its words are the tokens."""
    shipped = load_pretrained("storyworld").tokenizer.to_dict()
    return stories_record() if tokenizer.to_dict() == shipped else None


def _opening(tokenizer: Tokenizer, beginning: str, sample: str) -> list[str]:
    """A beginning of nothing but white space, continued with the first words of the sample if they
    can be typed.
    """
    words = re.match(r"\S+(?: \S+){0,4}", sample[len(beginning) :].lstrip())
    if beginning.strip() or not words or len(words[0]) > 60:
        return []
    try:
        tokenizer.encode(beginning + words[0])
    except ValueError:
        return []
    return [beginning + words[0]]


def _sample(
    model: TransformerLM, tokenizer: Tokenizer, beginning: str, stop: tuple[str, ...]
) -> str:
    """A text of the model; it ends before one of the texts in stop."""
    generator = torch.Generator(model.embed.weight.device).manual_seed(SEED)
    pieces = stream_text(model, tokenizer, beginning, SAMPLE_TOKENS, stop=stop, generator=generator)
    return beginning + "".join(pieces)


def _training_of(record: dict[str, Any]) -> str:
    """What the model of a record was trained on, if it is the shipped one; otherwise nothing."""
    shipped = load_pretrained("storyworld")
    if record["fingerprint"] != live_record(shipped.model, shipped.tokenizer)["fingerprint"]:
        return ""
    return f"{shipped.extra['n_stories']:,} stories of StoryWorld, which a small program writes"


def _facts(model: TransformerLM, tokenizer: Tokenizer, trained_on: str) -> str:
    config = model.config
    unit = UNITS[tokenizer.kind]
    facts = {
        "Parameters": f"{count_parameters(config).total:,}, stored in half precision",
        "Layers": f"{config.n_layers}, with {config.n_heads} attention heads each",
        "Width": f"{config.d_model} numbers per position",
        "Vocabulary": f"{tokenizer.vocab_size:,} {unit}",
        "Runs": "in this page: nothing is downloaded and nothing is sent",
        "Reads": f"up to {config.max_seq_len:,} tokens: the last ones of a longer text",
    }
    facts |= {"Trained on": escape(trained_on)} if trained_on else {}
    return "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
