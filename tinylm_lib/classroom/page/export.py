"""A model as one HTML file, in which it writes, without Python and without a network."""

import re
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import torch

from ...cost import count_parameters
from ...files import explained, whole_file
from ...model import TransformerLM
from ...pretrained import load_pretrained
from ...text.base import Tokenizer
from ...writing import stream_text
from ..display.theme import css
from ..live.record import live_record
from ..live.scripts import engine_script
from ..live.stories import stories_record
from ..views.base import SHARED, json_in_html, source

# For a model of StoryWorld, after one's own beginning: one that determines the next word, and one that no story has.
BEGINNINGS = (
    "\nOne dark evening, calm Mia ran to Foxhollow. She had a golden bowl. There she met Farah, a doctor with a "
    'yellow basket. Farah whispered to Mia, "Early dreams return forever." Then they traded their things. Afterwards '
    'they left Foxhollow for Northgate. Often Mia thought, "Early dreams',
    "\nOne sunny day, brave kite",
)
UNITS = {"words": "words", "bytes": "bytes", "chars": "characters", "bpe": "tokens"}
SEED, SAMPLE_TOKENS = 0, 300


def export_page(
    model: TransformerLM,
    tokenizer: Tokenizer,
    path: str | Path = "my_model.html",
    *,
    title: str = "My language model",
    beginning: str = "\n",
) -> Path:
    """Write a model as one HTML file in which it writes, shows its attention and the probabilities of what comes next.

    path: the file, in a folder that exists; an older one is replaced. beginning: how the first text begins; the white
    space at its start is read by the model before everything that a visitor types.
    Returns the path. Raises FileNotFoundError or IsADirectoryError for a path that cannot be a file's, TypeError or
    ValueError for a title or beginning that is empty or has unknown words, and for a model that a page cannot compute
    with (see `live_record`). Then nothing is written.
    """
    path = _target(path)
    if not isinstance(title, str) or not title.strip():
        raise ValueError(f"title must be a text of at least one letter, got {title!r}; give title='My model'")
    record, stories = live_record(model, tokenizer), _stories(tokenizer)
    _check_beginning(tokenizer, beginning)
    sample = _sample(model, tokenizer, beginning, ("\n",) if stories else ())
    beginnings = [*_opening(tokenizer, beginning, sample), beginning, *(BEGINNINGS if stories else ())]
    page = Template(_own("page.html")).substitute(
        title=escape(title.strip()),
        look=css(),
        parameters=f"{count_parameters(model.config).total:,}",
        facts=_facts(model, tokenizer),
        source=f"Written by Python when this page was made, with temperature 1 and seed {SEED}.",
        sample=escape(sample.strip("\n")),
        options=json_in_html({"record": record, "stories": stories, "beginnings": beginnings}),
        script=writer_script(),
    )
    with explained("the page", path), whole_file(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return path


def writer_script() -> str:
    """One plain script: `tinylm` with the engine, and with `tinylm.writer(el, options)` of writer.js."""
    text = f"{engine_script()}(() => {{\n{source(SHARED)}\n{_own('writer.js')}\ntinylm.writer = writer;\n}})();"
    if "</script" in text.lower():
        raise ValueError("a script may not hold </script: the page would end there")
    return text


def _target(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end with .html, so that a browser opens it (got {str(path)!r})")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it, or choose another path")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; choose another name")
    return path


def _check_beginning(tokenizer: Tokenizer, beginning: Any) -> None:
    if not isinstance(beginning, str):
        raise TypeError(f"beginning must be a text, got {beginning!r}")
    try:
        ids = tokenizer.encode(beginning)
    except ValueError as e:
        raise ValueError(f"beginning {beginning!r} cannot be read; choose another one: {e}") from None
    if not ids:
        raise ValueError(f"beginning must have at least one token, got {beginning!r}; give beginning='The'")


def _stories(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """StoryWorld's exact probabilities as data, where its words are the tokens."""
    shipped = load_pretrained("storyworld").tokenizer.to_dict()
    return stories_record() if tokenizer.to_dict() == shipped else None


def _opening(tokenizer: Tokenizer, beginning: str, sample: str) -> list[str]:
    """A beginning of nothing but white space, continued with the first words of the sample if they can be typed."""
    words = re.match(r"\S+(?: \S+){0,4}", sample[len(beginning) :].lstrip())
    if beginning.strip() or not words or len(words[0]) > 60:
        return []
    try:
        tokenizer.encode(beginning + words[0])
    except ValueError:
        return []
    return [beginning + words[0]]


def _sample(model: TransformerLM, tokenizer: Tokenizer, beginning: str, stop: tuple[str, ...]) -> str:
    """A text of the model; it ends before one of the texts in stop."""
    generator = torch.Generator(model.embed.weight.device).manual_seed(SEED)
    pieces = stream_text(model, tokenizer, beginning, SAMPLE_TOKENS, stop=stop, generator=generator)
    return beginning + "".join(pieces)


def _facts(model: TransformerLM, tokenizer: Tokenizer) -> str:
    config, unit = model.config, UNITS[tokenizer.kind]
    facts = {
        "Parameters": f"{count_parameters(config).total:,}, stored in half precision",
        "Layers": f"{config.n_layers}, with {config.n_heads} attention heads each",
        "Width": f"{config.d_model} numbers per position",
        "Vocabulary": f"{tokenizer.vocab_size:,} {unit}",
        "Runs": "in this page: nothing is downloaded and nothing is sent",
        "Reads": f"up to the last {config.max_seq_len:,} {unit}",
    }
    return "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())


def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
