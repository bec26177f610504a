"""Fourth step: a notebook runs in a fresh kernel, and what differs from run to run is taken from
its outputs.
"""

import os
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbformat import NotebookNode

from ...display import frames
from ...display.picture import WIDGET

CELL_SECONDS = 120
# Spinning threads stall on a busy machine; parts that somebody kept must not change what is built.
SETTINGS = {"GOMP_SPINCOUNT": "1000", "TINYLM_WORKSHOP": "off", frames.SWITCH: "on"}
OF_A_READER = "TINYLM_WORK"  # its folder is named in what a check prints


def execute(notebook: NotebookNode, name: str) -> float:
    """Runs the notebook in a fresh kernel and an empty folder; returns the seconds it took, without
    those of the frames of its controls, which no reader computes.

    Raises: ValueError if a cell raises or does not end, the lesson leaves files behind, or nbval
    could not compare it.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        start = perf_counter()
        try:
            client(notebook, folder).execute(env=environment())
        except (CellControlSignal, DeadKernelError, TimeoutError) as error:
            raise ValueError(f"{name}: {error}") from error
        seconds = perf_counter() - start
        left = os.listdir(folder)
    if left:
        raise ValueError(
            f"{name}: leaves {left} in its folder; "
            "lessons write into a temporary folder or work/ only"
        )
    _tidy(notebook, name)
    return seconds - _seconds_of_frames(notebook)


def client(notebook: NotebookNode, folder: str, **choices: Any) -> NotebookClient:
    """What runs the notebook in a fresh kernel and this folder; `choices` are nbclient's own."""
    return NotebookClient(
        notebook,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        # a kernel warns of its own transport at each start
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": folder}},
        **{"timeout": CELL_SECONDS, **choices},
    )


def environment() -> dict[str, str]:
    """The variables of the kernel."""
    return {**SETTINGS, **{k: v for k, v in os.environ.items() if k != OF_A_READER}}


def _seconds_of_frames(notebook: NotebookNode) -> float:
    """Takes from the outputs how long their frames took, and returns the sum."""
    seconds = 0.0
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            stored = output.get("data", {}).get(frames.MIME, {})
            seconds += stored.pop("seconds", 0.0)
    return seconds


def _tidy(notebook: NotebookNode, name: str) -> None:
    """Takes from the outputs what differs from run to run.

    Refuses what nbval could not compare.
    """
    for cell in notebook.cells:
        outputs = cell.get("outputs", ())
        raised = any(output.output_type == "error" for output in outputs)
        if "raises-exception" in cell.metadata.get("tags", ()) and not raised:
            raise ValueError(
                f"{name}: a cell tagged raises-exception does not raise any more\n{cell.source}"
            )
        for output in outputs:
            data = output.get("data", {})
            data.pop(WIDGET, None)
            if any(kind.startswith("image/") for kind in data):
                raise ValueError(
                    f"{name}: nothing compares a bare picture: use figures.display\n{cell.source}"
                )
            if output.get("name") == "stderr":
                raise ValueError(
                    f"{name}: a cell writes to stderr: {output.text.strip()}\n{cell.source}"
                )
            if output.output_type == "error":  # its frames name the files of this machine
                output.traceback = [f"{output.ename}: {output.evalue}"]
