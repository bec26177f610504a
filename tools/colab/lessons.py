"""A lesson as somebody opens it on Colab: the notebook alone in a folder, and a kernel of the
environment, without the library.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from colab.environment import EXTRA, kernel_specs, remove_library, variables
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

WIDGET = "application/vnd.jupyter.widget-view+json"
VIEW = "application/vnd.tinylm.view+json"
CELL_SECONDS = 300


@dataclass
class Run:
    """A lesson that has run: what it was, how long it took, and the error that ended it."""

    notebook: NotebookNode
    client: NotebookClient
    seconds: float = 0.0
    error: str = ""

    def outputs(self) -> list[NotebookNode]:
        """The outputs of all cells."""
        return [*chain.from_iterable(cell.get("outputs", ()) for cell in self.notebook.cells)]

    def complaints(self) -> list[str]:
        """What its cells wrote to the error stream."""
        return [output.text for output in self.outputs() if output.get("name") == "stderr"]

    def views(self) -> list[tuple[dict, dict]]:
        """The data and metadata of each output with a widget."""
        return [
            (output["data"], output["metadata"])
            for output in self.outputs()
            if WIDGET in output.get("data", {})
        ]


@contextmanager
def running(path: Path, wheel: Path) -> Iterator[Run]:
    """Run a lesson, and keep its kernel until the end of the block."""
    remove_library()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        alone = Path(shutil.copy(path, folder))
        notebook = nbformat.read(alone, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []
        manager = AsyncKernelManager(kernel_name=EXTRA, kernel_spec_manager=kernel_specs())
        client = NotebookClient(
            notebook, km=manager, timeout=CELL_SECONDS, resources={"metadata": {"path": folder}}
        )
        run = Run(notebook, client)
        with client.setup_kernel(env=variables(alone, wheel), cwd=folder):
            started = time.perf_counter()
            try:
                for index, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, index)
            except (CellExecutionError, DeadKernelError, TimeoutError) as error:
                run.error = str(error)
            run.seconds = time.perf_counter() - started
            yield run
