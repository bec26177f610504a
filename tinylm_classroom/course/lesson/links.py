"""Where a notebook is to be found elsewhere, which the build writes under its title, and the cell
that prepares Colab and Kaggle for it.
"""

import re

from nbformat import NotebookNode, v4

REPOSITORY = "your_account/tinylm"  # on GitHub; every link to it and to its pages is made from here
SETUP = "setup"  # the id of the cell for Colab and Kaggle
# The line, and that of an earlier edition, which copies of students still have.
LINE = re.compile(r"(?<=\n)\[With moving views\]\(.*\n\n|\n\n\*Also\* .*\Z")
SOURCE = """
# @title Only Colab and Kaggle need this: it installs TinyLM and turns on its views
import os
import subprocess
import sys

if "google.colab" in sys.modules or "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
    library = "tinylm-lib[colab] @ git+https://github.com/{}"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", library], check=True)
if "google.colab" in sys.modules:
    from google.colab import output

    output.enable_custom_widget_manager()
"""


def site() -> str:
    """The address of the published site."""
    owner, _, name = REPOSITORY.partition("/")
    return f"https://{owner}.github.io/{name}"


def on_colab(file: str) -> str:
    """The address that opens a notebook in Colab. file: `05_attention`, `more/13_serving`."""
    return f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/notebooks/{file}.ipynb"


def add_links(notebook: NotebookNode, name: str, has_deck: bool = True) -> None:
    """Writes the line of links under the title, and the cell for Colab and Kaggle after it, each in
    the place of an earlier one. name: `05_attention`, `more/13_serving`.
    """
    title, *cells = notebook.cells
    page = name.rpartition("/")[2]
    places = {
        "With moving views": f"{site()}/{page}.html",
        "in Colab": on_colab(name),
    } | ({"as slides": f"{site()}/slides/{page}.html"} if has_deck else {})
    line = " · ".join(f"[{what}]({where})" for what, where in places.items())
    heading, _, rest = without_links(title.source).partition("\n")
    title.source = f"{heading}\n{line}\n\n{rest}"
    folded = {"cellView": "form", "jupyter": {"source_hidden": True}}
    new = v4.new_code_cell(id=SETUP, metadata=folded)
    setup = next((cell for cell in cells if cell.id == SETUP), new)
    setup.source = SOURCE.strip().format(REPOSITORY)
    notebook.cells = [title, setup, *(cell for cell in cells if cell is not setup)]


def without_links(text: str) -> str:
    """The text of a title cell without that line, which pages and slides do not repeat."""
    return LINE.sub("", text, count=1)
