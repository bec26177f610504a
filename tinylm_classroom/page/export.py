"""A model as one HTML file, in which it writes, without Python and without a network."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from tinylm_lib.cost import count_parameters
from tinylm_lib.files import explained, whole_file
from tinylm_lib.model import TransformerLM
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.text.base import Tokenizer

from ..display.theme import page_head
from ..folders import own
from ..live.record import live_record
from ..live.scripts import engine_script
from ..views.base import SHARED, computable, json_in_html, source
from ..views.watch import SEED, UNITS, beginnings_of, check_beginning, sampled


def export_page(
    model: TransformerLM,
    tokenizer: Tokenizer,
    path: str | Path = "my_model.html",
    *,
    title: str = "My language model",
    beginning: str = "\n",
    trained_on: str = "",
    beginnings: Sequence[str] = (),
    temperature: float = 1.0,
) -> Path:
    """Write a model as one HTML file in which it writes, shows its attention and the probabilities
    of what comes next.

    path: the file, in a folder that exists; an older one is replaced. beginning: how the first text
    begins; the white space at its start is read by the model before everything that a visitor
    types. beginnings: other texts to begin with, offered first, such as words of a held-out text.
    temperature: of the sample, and where the page's slider begins. trained_on: what the model was
    trained on, in a few words for the page; known for the shipped model, otherwise left out where
    it is empty.
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
    found = computable(model, tokenizer)
    check_beginning(tokenizer, beginning)
    is_story = found["stories"] is not None
    for each in beginnings:
        check_beginning(tokenizer, each)
    if not 0 <= temperature <= 2:
        raise ValueError(f"temperature must be from 0 to 2, got {temperature}; give 0.7")
    sample = sampled(model, tokenizer, beginning, is_story, temperature=temperature)
    offered = beginnings_of(tokenizer, beginning, sample, is_story)
    if beginnings:
        offered = list(dict.fromkeys([*beginnings, beginning, *offered]))
    page = Template(own("page/page.html")).substitute(
        head=page_head(title.strip()),
        title=escape(title.strip()),
        parameters=f"{count_parameters(model.config).total:,}",
        facts=_facts(model, tokenizer, trained_on.strip() or _training_of(found["record"])),
        source=(
            "Written by Python when this page was made, with temperature "
            f"{temperature:g} and seed {SEED}."
        ),
        sample=escape(sample.strip("\n")),
        options=json_in_html({**found, "beginnings": offered, "temperature": temperature}),
        script=writer_script(),
    )
    with explained("the page", path), whole_file(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return path


def writer_script() -> str:
    """One plain script: `tinylm` with the engine, and as `tinylm.watch` the module of the view."""
    module = source("watch").replace("export default", "tinylm.watch =")
    text = f"{engine_script()}(() => {{\n{source(SHARED)}\n{module}}})();"
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


def _training_of(record: dict[str, Any]) -> str:
    """What the model of a record was trained on, if it is the shipped one; otherwise nothing."""
    shipped = load_pretrained("storyworld")
    if record["fingerprint"] != live_record(shipped.model, shipped.tokenizer)["fingerprint"]:
        return ""
    return f"{shipped.extra['n_stories']:,} stories of StoryWorld, which a small program writes"


def _facts(model: TransformerLM, tokenizer: Tokenizer, trained_on: str) -> str:
    config = model.config
    unit = UNITS[tokenizer.kind] + "s"
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
