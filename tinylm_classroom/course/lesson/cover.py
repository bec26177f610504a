"""What answers a prediction stays covered until somebody has guessed: on executed pages of
JupyterLab its output is folded, on the site it is behind a button.
"""

from itertools import islice

from nbformat import NotebookNode

from .slides import is_prediction


def cover(notebook: NotebookNode) -> None:
    """Marks the cell that answers each prediction: the next one with code, directly after it or
    after one text.

    JupyterLab shows the output of a cell that is run again, and where a kernel draws the prediction
    that one covers what comes next.
    """
    for place, cell in enumerate(notebook.cells):
        if not is_prediction(cell):
            continue
        following = [*islice(notebook.cells, place + 1, place + 3)]
        if following and following[0].cell_type == "markdown":
            following.pop(0)
        for after in following[:1]:
            if after.cell_type == "code" and after.outputs and not is_prediction(after):
                after.metadata["jupyter"] = {
                    **after.metadata.get("jupyter", {}),
                    "outputs_hidden": True,
                }


def is_covered(cell: NotebookNode) -> bool:
    """Whether a cell answers a prediction."""
    return bool(cell.metadata.get("jupyter", {}).get("outputs_hidden"))
