"""The last line of a notebook's title cell, which the build writes: where the lesson is a page and
where it is slides.
"""

import re

from nbformat import NotebookNode

SITE = ""  # the address of a published site; as long as there is none, the commands are named
ALSO = re.compile(r"\n\n\*Also\* .*\Z")


def add_links(notebook: NotebookNode, file: str, has_deck: bool = True) -> None:
    """Ends the title cell with the line for the notebook of this file, such as `05_attention`."""
    title = notebook.cells[0]
    title.source = f"{without_links(title.source)}\n\n{_line(file, has_deck)}"


def without_links(text: str) -> str:
    """The text of a cell without that line, which pages and slides do not repeat."""
    return ALSO.sub("", text)


def _line(file: str, has_deck: bool) -> str:
    places = {"a page": f"{file}.html"} | ({"slides": f"slides/{file}.html"} if has_deck else {})
    if SITE:
        links = (f"[{what}]({SITE}/{place})" for what, place in places.items())
        return f"*Also* as {' and as '.join(links)}."
    commands = {"a page": "site", "slides": "slides"}
    named = (f"{what}: `python -m tinylm_lib {commands[what]} {file[:2]}`" for what in places)
    return f"*Also* as {', and as '.join(named)}."
