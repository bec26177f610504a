"""A real JupyterLab in a real browser, and pages from disk.

A test file has the cells of its own lesson in LESSON, behind those of OPENING; `sample`, `run_sample`
and `open_page` are about it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect, sync_playwright

from tinylm_classroom.course import build, lab, site
from tinylm_classroom.course.handout import find_chromium
from tinylm_classroom.course.lesson.plans import parts, taught_minutes
from tinylm_classroom.course.lesson.read import read_lesson

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "work" / "screenshots"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
HEAD = """# %% [markdown]
# # 00 Sample
# **What is seen?**
#
# *Needs* nothing. *Builds* nothing. *Runs* in about 9 s on two cores. *Teaches* in about {} minutes.
"""
# The cells that every lesson of a view begins with: its own first cell is number 4.
OPENING = r"""
# %%
import math

import torch

from tinylm_lib import storyworld
from tinylm_classroom import attention_view, cache_view, memory_view, one_word, patch_view, predict, residual_view
from tinylm_classroom import rope_view, sampling_view, softmax_view, token_view, training_view
from tinylm_lib.pretrained import load_pretrained

# %%
ready = load_pretrained("storyworld")

# %% [markdown]
# ## 1. Try it
# Shares are $w_j = \frac{e^{s_j}}{\sum_k e^{s_k}}$.
"""
SAMPLE = "00_sample.ipynb"
ZOOMED = {"viewport": {"width": 640, "height": 800}, "device_scale_factor": 2}  # a small window at 200 percent
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LAPTOP, LAPTOP_PANE = {"width": 1280, "height": 800}, 640  # of JupyterLab's 679 pixels, some are margins of the cell
LEAST_TYPE = 13  # pixels
LOAD_MS, RUN_MS = 60_000, 300_000
PATIENCE_MS = 30_000  # until what is expected is seen: on a busy machine a kernel answers late
COMMANDS = "window.jupyterapp.commands"
NOTEBOOK = "window.jupyterapp.shell.currentWidget"
CELLS = f"{NOTEBOOK}.context.model.toJSON().cells.filter(cell => cell.cell_type == 'code' && cell.source)"
UNEXPECTED = f"{CELLS}.filter(cell => !cell.metadata.tags?.includes('raises-exception'))"
FAILED = f"{UNEXPECTED}.some(cell => cell.outputs.some(output => output.output_type == 'error'))"
ENDED = f"() => {CELLS}.every(cell => cell.execution_count) || {FAILED}"


@dataclass
class LabPage:
    """An open notebook."""

    page: Page

    def reload(self) -> None:
        """Opens the notebook again, with a new kernel."""
        self.page.reload(timeout=LOAD_MS)
        self.ready()

    def open(self, name: str) -> None:
        """Opens another notebook of the folder in a tab of its own."""
        path = f"{NOTEBOOK}.context.path.replace(/[^/]*$/, name)"
        self.page.evaluate(f"name => {COMMANDS}.execute('docmanager:open', {{path: {path}}}).then(() => null)", name)
        self.ready()

    def ready(self) -> None:
        """Waits until the notebook is shown and its kernel idle."""
        self.page.wait_for_selector(".jp-Notebook .jp-Cell:visible", timeout=LOAD_MS)
        idle = f"() => {NOTEBOOK}.sessionContext?.session?.kernel?.status == 'idle'"
        self.page.wait_for_function(idle, timeout=LOAD_MS)

    def command(self, name: str, **arguments: str) -> None:
        """Executes a command of JupyterLab and waits for it."""
        self.page.evaluate(f"([name, args]) => {COMMANDS}.execute(name, args)", [name, arguments])

    def run_all(self) -> None:
        """Runs all cells and waits until the last one has run, or one has failed."""
        self.page.evaluate(f"() => {{ {COMMANDS}.execute('notebook:run-all-cells') }}")
        self.ended()

    def ended(self) -> None:
        """Waits until the last cell has run, or one has failed: between two cells the kernel is idle, too."""
        self.page.wait_for_function(ENDED, timeout=RUN_MS)
        self.ready()

    def show_cell(self, place: int) -> None:
        """Scrolls the cell at this place into view."""
        self.page.evaluate(f"place => {NOTEBOOK}.content.scrollToItem(place, 'start')", place)

    def errors(self) -> list[str]:
        """What cells raised that should not raise."""
        outputs = [output for cell in self.page.evaluate(f"() => {UNEXPECTED}") for output in cell["outputs"]]
        return [output["evalue"] for output in outputs if output["output_type"] == "error"]

    def outputs(self) -> list[dict]:
        """The outputs of all cells as the notebook holds them now."""
        return [output for cell in self.page.evaluate(f"() => {CELLS}") for output in cell["outputs"]]

    def themes(self) -> Iterator[str]:
        """Goes through the light and the dark theme, and yields their names."""
        for theme in ("light", "dark"):
            name = f"JupyterLab {theme.title()}"
            self.command("apputils:change-theme", theme=name)
            self.page.wait_for_function("name => document.body.dataset.jpThemeName == name", arg=name)
            self.page.wait_for_timeout(500)  # style sheets are swapped after the name
            yield theme

    def screenshots(self, name: str) -> None:
        """Saves what is seen in both themes under work/screenshots/."""
        for theme in self.themes():
            self.page.screenshot(path=SCREENSHOTS / f"{name}-{theme}.png")


def build_lesson(course: Path, cells: str) -> Path:
    """Makes a folder of notebooks with a lesson of these cells in it, and returns the folder."""
    source = (course / "notebooks" / "source" / SAMPLE).with_suffix(".py")
    source.parent.mkdir(parents=True)
    source.write_text(HEAD + cells, encoding="utf-8")
    minutes = taught_minutes(parts(read_lesson(source).cells))
    source.write_text(HEAD.format(minutes) + cells, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:  # a solution would be the same, executed once more
        patch.setattr(build, "_places", lambda *_: {"student": course / "notebooks" / SAMPLE})
        build.build_notebooks(source, course / "notebooks")
    return course / "notebooks"


@pytest.fixture(scope="module")
def sample(request, tmp_path_factory) -> Path:
    """A folder of notebooks with the lesson of the test file."""
    return build_lesson(tmp_path_factory.mktemp("course"), request.module.LESSON)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Headless Chromium; without one the test is skipped, or fails where BROWSER=required."""
    path = find_chromium()
    if path is None:
        verdict = pytest.fail if os.environ.get("BROWSER") == "required" else pytest.skip
        verdict("NOT TESTED IN A BROWSER: install Chromium (Debian: apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Server:
    """A running JupyterLab: its root, which is the folder of all temporary ones, its address and its token."""

    root: Path
    address: str
    token: str

    @property
    def home(self) -> Path:
        """The home folder of the server and its kernels."""
        return self.root / "caches" / "home"

    def address_of(self, notebook: Path) -> str:
        """The address that opens a notebook from any temporary folder."""
        path = quote(notebook.relative_to(self.root).as_posix())
        return f"{self.address}lab/tree/{path}?token={self.token}"

    def request(self, path: str, method: str = "GET") -> bytes:
        """What the server answers to a request."""
        headers = {"Authorization": f"token {self.token}"}
        with urlopen(Request(f"{self.address}api/{path}", method=method, headers=headers)) as answer:
            return answer.read()

    def forget(self) -> None:
        """Shuts all kernels down and forgets the theme and the open tabs, as if the server were new."""
        for session in json.loads(self.request("sessions")):
            self.request(f"sessions/{session['id']}", "DELETE")
        shutil.rmtree(self.root / "caches" / lab.CACHES["JUPYTER_CONFIG_DIR"] / "lab", ignore_errors=True)


@pytest.fixture(scope="session")
def jupyterlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One JupyterLab for all tests of this process; its home and caches are in their temporary folder."""
    root = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        for variable, folder in {**lab.CACHES, "HOME": "home"}.items():
            patch.setenv(variable, str(root / "caches" / folder))
        (root / "caches" / "home").mkdir(parents=True)
        process, url = lab.start(root, "", ["--no-browser", "--expose-app-in-browser"])
    yield Server(root, *url.split("lab/tree/?token="))
    process.terminate()
    lab.end(process)


@pytest.fixture
def open_lesson(chromium: Browser, jupyterlab: Server) -> Iterator[Callable[[Path, str], LabPage]]:
    """A function that opens a notebook of a temporary folder in JupyterLab.

    A request that left the machine fails the test.
    """
    pages, external = [], []

    def refuse(route: Route) -> None:
        external.append(route.request.url)
        route.abort()

    def open_lesson(work: Path, name: str) -> LabPage:
        page = chromium.new_page(viewport={"width": 1280, "height": 1500})
        pages.append(page)
        page.route(lambda url: urlsplit(url).hostname not in ("localhost", "127.0.0.1"), refuse)
        page.goto(jupyterlab.address_of(work / name), timeout=LOAD_MS)
        opened = LabPage(page)
        opened.ready()
        return opened

    yield open_lesson
    for page in pages:
        page.close()
    jupyterlab.forget()
    assert external == []


@pytest.fixture
def open_exported(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """A function that opens a page from disk; anything else it would fetch, and any error, fails the test.

    A page may have the model of its site, which is next to it.
    """
    contexts, opened, seen = [], set(), []

    def open_exported(address: str, **options) -> Page:
        opened.add(address.partition("#")[0])
        contexts.append(chromium.new_context(**{"viewport": {"width": 1440, "height": 1000}, **options}))
        page = contexts[-1].new_page()
        page.on("request", lambda request: seen.append(request.url.partition("#")[0]))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.goto(address)
        return page

    yield open_exported
    for context in contexts:
        context.close()
    models = {urljoin(address, site.MODEL) for address in opened}
    assert {address for address in seen if not address.startswith(("data:", "blob:"))} - models == opened


@pytest.fixture
def run_sample(open_lesson, tmp_path, sample) -> LabPage:
    """The lesson of the test file in JupyterLab, all its cells run without an error."""
    lab.refresh(sample, tmp_path / "work")
    opened = open_lesson(tmp_path / "work", SAMPLE)
    opened.run_all()
    assert opened.errors() == []
    return opened


@pytest.fixture(scope="module")
def exported(sample) -> str:
    """The address of the lesson of the test file as a page on disk."""
    return site.export(sample, sample.parent / "pages")[0].as_uri()


@pytest.fixture
def open_page(open_exported, exported) -> Callable[..., Page]:
    """A function that opens this page."""
    return partial(open_exported, exported)


def findings(page: Page, part: str = "body", *, contrast: bool = True) -> list[str]:
    """What axe finds on a page, or in a part of it, by WCAG 2.2 (AA) and by common practice, each with its place.

    contrast: whether it also compares colours, which takes most of the time.
    """
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    rules = {"color-contrast": {"enabled": contrast}, "target-size": {"enabled": True}}  # axe leaves out the latter
    options = {"resultTypes": ["violations"], "runOnly": TAGS, "rules": rules}
    found = page.evaluate("([part, options]) => axe.run(part, options)", [part, options])["violations"]
    return [f"{one['id']}: {n['html'][:200]} {n['failureSummary']}" for one in found for n in one["nodes"]]


def assert_fits(page: Page, parts: str) -> None:
    """Nothing is lost at the side: the page does not move sideways, and no part ends outside of the window."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    rights = "nodes => Math.max(...nodes.map(node => node.getBoundingClientRect().right))"
    assert page.locator(parts).evaluate_all(rights) <= page.evaluate("window.innerWidth")


def assert_on_one_screen(page: Page, view: Locator) -> None:
    """In a laptop's window JupyterLab shows the whole view at once, and its text is not small."""
    before = page.viewport_size
    page.set_viewport_size(LAPTOP)
    page.wait_for_timeout(500)  # the view is laid out again
    assert view.bounding_box()["height"] <= LAPTOP_PANE
    words = "node => [...node.childNodes].some(child => child.nodeType == 3 && child.textContent.trim())"
    size = "node => parseFloat(getComputedStyle(node).fontSize)"
    sizes = view.evaluate(f"view => [...view.querySelectorAll('*')].filter({words}).map({size})")
    assert min(size for size in sizes if size) >= LEAST_TYPE  # 0 is not shown
    page.set_viewport_size(before)


def rows_of(rows: Locator) -> list[list[str]]:
    """The text in each data cell of the rows of a table."""
    return rows.evaluate_all("rows => rows.map(row => [...row.querySelectorAll('td')].map(td => td.textContent))")


def enter(field: Locator, text: str) -> None:
    """Types a text into a field, and ends it with Enter."""
    field.fill(text)
    field.press("Enter")


def nbval(folder: Path) -> str:
    """What nbval prints of the sample in a folder, which it must find as it is stored."""
    shutil.copy(ROOT / "notebooks" / "conftest.py", folder)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env", "-q"]
    options = ["--nbval-cell-timeout=120", "--nbval-sanitize-with", str(ROOT / "notebooks" / "sanitize.cfg")]
    done = subprocess.run([*command, *options, SAMPLE], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout
