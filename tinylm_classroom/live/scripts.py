"""All scripts of a live model as one text for a page, and those of a model that learns there."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

# The scripts in the order in which they are joined, and what each of them offers.
LIVE_SCRIPTS = {
    "engine": ("Model", "unpackHalves"),
    "live": ("open", "serve"),
    "film": (),
    "tokenizers": ("tokenizer", "words"),
    "sampling": ("nextTokenProbs", "draw", "Generator"),
    "stories": ("StoryReader",),
}


# Those of a model that learns, for pages that show this, too.
LEARNING_SCRIPTS = {
    "sampling": (),
    "stories": ("StoryReader",),
    "learner": ("learner",),
    "lessons": ("drawStory", "faultOf", "storiesOf", "textOf"),
    "learning": ("newRun", "serveLearning", "startLearning", "TOTALS"),
    "keeping": ("checkpointOf", "recordOf"),
}


def engine_script() -> str:
    """The scripts as one function `engine`, whose results are `tinylm`.

    A page runs this text in a <script>. A worker is made from the text of `engine`, so it needs no
    file of its own.
    """
    return f"{_function('engine', LIVE_SCRIPTS)}globalThis.tinylm = engine();\n"


def learning_script() -> str:
    """The scripts of a model that learns as one function `learning`, whose results are
    `tinylmLearning`.
    """
    text = _function("learning", LEARNING_SCRIPTS)
    return f"{text}globalThis.tinylmLearning = learning();\n"


def _function(name: str, scripts: Mapping[str, tuple[str, ...]]) -> str:
    texts = [Path(__file__).with_name(f"{each}.js").read_text(encoding="utf-8") for each in scripts]
    offered = ", ".join(chain.from_iterable(scripts.values()))
    whole = "\n".join(['"use strict";', *texts, f"return {{ {offered} }};"])
    return f"function {name}() {{\n{whole}\n}}\n"
