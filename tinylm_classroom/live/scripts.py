"""All scripts of a live model as one text for a page."""

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


def engine_script() -> str:
    """The scripts as one function `engine`, whose results are `tinylm`.

    A page runs this text in a <script>. A worker is made from the text of `engine`, so it needs no
    file of its own.
    """
    texts = [
        Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8") for name in LIVE_SCRIPTS
    ]
    offered = ", ".join(chain.from_iterable(LIVE_SCRIPTS.values()))
    whole = "\n".join(['"use strict";', *texts, f"return {{ {offered} }};"])
    return f"function engine() {{\n{whole}\n}}\nglobalThis.tinylm = engine();\n"
