"""A lesson's outputs as Colab shows them: each in a frame of another origin, which shares no window
with the next, has a widget manager of its own, and reaches the kernel by messages alone.
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from queue import Empty
from typing import Any

from colab.environment import FOLDER, HERE, ROOT
from colab.lessons import VIEW, WIDGET, Run
from jupyter_client import BlockingKernelClient
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import FrameLocator, Page, Route, sync_playwright

from tinylm_classroom.course.handout import find_chromium

HOST = "https://notebook.test/"
CDN = "https://cdn.jsdelivr.net/npm/"
PACKAGES = FOLDER / "npm"
NPM = ["@jupyter-widgets/html-manager@1.0.15", "requirejs@2.3.7"]
PATIENCE = 60  # seconds until what a click asks for is seen
FLAGS = ["--no-sandbox", "--disable-gpu"]
SCREENSHOTS = ROOT / "work" / "screenshots"
CARD = ".tinylm-view"


def own_text(frame: FrameLocator) -> None:
    """Give a view a text of one's own."""
    field = frame.locator(".needs-kernel input[type=text]").first
    field.fill("One sunny day, brave Mia")
    field.press("Enter")


def press(name: str) -> Callable[[FrameLocator], None]:
    """What clicks the button of this name."""
    return lambda frame: frame.get_by_role("button", name=name, exact=True).first.click()


def exchange(frame: FrameLocator) -> None:
    """Exchange the two texts of a patch, and their words."""
    fields = frame.locator(".needs-kernel input[type=text]").all()
    values = [field.input_value() for field in fields]
    for field, value in zip(fields, values[2:] + values[:2], strict=True):
        field.fill(value)
    press("Read")(frame)


def guess(frame: FrameLocator) -> None:
    """Answer a question, rightly or not."""
    options = frame.locator(".options input, .field input")
    if options.count():
        first = options.first
        first.check() if first.get_attribute("type") == "radio" else first.fill("2")
    frame.get_by_role("button", name="Check my guess").click()


def slide(frame: FrameLocator) -> None:
    """Move the first slider or menu of a control."""
    frame.locator("input[type=text], select, .widget-readout, .slider-handle").first.wait_for()
    menu = frame.locator("select")
    if menu.count():
        menu.first.select_option(index=1)
        return
    frame.locator(".noUi-handle, .ui-slider-handle").first.press("ArrowRight")


# What changes a view of each kind, and whether its kernel must answer. Before it is drawn, `watch`
# has got the whole model from there.
ACTIONS: dict[str, tuple[Callable[[FrameLocator], None], bool]] = {
    "attention": (own_text, True),
    "control": (slide, True),
    "patch": (exchange, True),
    "predict": (guess, False),
    "residual": (own_text, True),
    "sampling": (press("Write one token"), True),
    "token": (own_text, True),
    "watch": (press("One word"), False),
    "watch_learning": (press("One update"), False),
    "what_if": (own_text, True),
}


def fetch_packages() -> None:
    """The packages that such a frame loads, in the versions that a network would give.

    Raises CalledProcessError where npm cannot, FileNotFoundError where there is no npm.
    """
    wanted = [*NPM, f"anywidget@{version('anywidget')}"]
    stamp = PACKAGES / "wanted.txt"
    if stamp.exists() and stamp.read_text("utf-8") == " ".join(wanted):
        return
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("the frames need npm, which comes with Node.js")
    PACKAGES.mkdir(parents=True, exist_ok=True)
    options = ["--prefix", str(PACKAGES), "--no-save", "--ignore-scripts", "--no-audit"]
    subprocess.run([npm, "install", "--silent", *options, *wanted], check=True)
    stamp.write_text(" ".join(wanted), "utf-8")


def packaged(address: str) -> Path:
    """The file that is asked of the network: `anywidget@~0.11.*/dist/index` of its package."""
    name, _, inside = address.removeprefix(CDN).replace("%40", "@").partition("/")
    if name.startswith("@"):
        second, _, inside = inside.partition("/")
        name = f"{name}/{second}"
    folder = PACKAGES / "node_modules" / (name[0] + name[1:].partition("@")[0])
    path = folder / inside
    return path if path.suffix else path.with_suffix(".js")


class Opened:
    """A lesson in a page: its outputs in frames, and their messages carried to its kernel."""

    def __init__(self, page: Page, run: Run) -> None:
        self.page = page
        self.run = run
        self.faults: list[str] = []
        self.sent = 0
        self.heard = 0
        self.outputs = [*shown(run)]
        self.kernel = BlockingKernelClient()
        self.kernel.load_connection_info(run.client.km.get_connection_info())
        self.kernel.start_channels()
        self.kernel.wait_for_ready(timeout=PATIENCE)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.route("**/*", self._serve)
        page.expose_function("outputs", lambda: self.outputs)
        page.expose_function("stateOf", lambda model: run.client.widget_state[model])
        page.expose_function("toKernel", self._to_kernel)
        page.goto(HOST)

    def _serve(self, route: Route) -> None:
        address = route.request.url
        if address.startswith(CDN):
            route.fulfill(path=packaged(address), content_type="text/javascript")
        elif address == HOST:
            route.fulfill(path=HERE / "page.html")
        elif address.endswith(".test/"):
            route.fulfill(path=HERE / "frame.html")
        else:
            self.faults.append(f"asks for {address}")
            route.abort()

    def _to_kernel(self, model: str, content: dict[str, Any]) -> None:
        message = self.kernel.session.msg("comm_msg", {"comm_id": model, "data": content})
        self.kernel.shell_channel.send(message)
        self.sent += 1

    def _from_kernel(self) -> None:
        while True:
            try:
                message = self.kernel.get_iopub_msg(timeout=0)
            except Empty:
                return
            if message["msg_type"] == "comm_msg":
                self.heard += 1
                content = message["content"]
                told = {"id": content["comm_id"], "data": content["data"]}
                self.page.evaluate("message => fromKernel(message)", told)

    def wait(self, condition: Callable[[], bool]) -> bool:
        """Carry messages until something is so. Returns whether it came to be."""
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                return False
            self.page.wait_for_timeout(50)
            self._from_kernel()
        return True

    def frame(self, at: int) -> FrameLocator:
        """The frame of the output at this place."""
        return self.page.frame_locator(f"iframe >> nth={at}")

    def is_drawn(self, at: int) -> bool:
        """Whether the view at this place comes to be seen."""
        drawn = self.frame(at).locator(f"{CARD}, .widget-interact")
        return self.wait(lambda: drawn.count() > 0)

    def act(self, at: int) -> str:
        """Change the view at this place. Returns what is wrong, or nothing."""
        module = self.outputs[at]["module"]
        change, asks = ACTIONS[module]
        body = self.frame(at).locator("#output")
        heard = self.heard
        before = body.inner_html()
        try:
            change(self.frame(at))
        except PlaywrightError as error:
            return f"cannot be used: {error}"
        if not self.wait(lambda: body.inner_html() != before and (self.heard > heard or not asks)):
            return "does not change" if body.inner_html() == before else "has no answer"
        return ""


def shown(run: Run) -> list[dict[str, str]]:
    """What each frame shows: the kind of a view, and its model."""
    found = []
    for data, _ in run.views():
        module = data.get(VIEW, {"module": "control"})["module"]
        found.append({"title": module, "module": module, "model": data[WIDGET]["model_id"]})
    return found


def faults_in_frames(run: Run, name: str) -> list[str]:
    """Open a lesson that has run, and click in each of its views. Returns what went wrong.

    A picture is left at work/screenshots/colab-NAME.png.
    """
    fetch_packages()
    chromium = find_chromium()
    if chromium is None:
        raise FileNotFoundError("the frames need Chromium, Chrome or Edge")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        opened = Opened(page, run)
        places = range(len(opened.outputs))
        drawn = [opened.is_drawn(at) for at in places]  # all, before a click: they push one another
        page.wait_for_timeout(1000)
        faults = []
        for at in places:
            fault = opened.act(at) if drawn[at] else "is not drawn"
            if fault:
                faults.append(f"frame {at}: {opened.outputs[at]['module']} {fault}")
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size(
            {"width": 1280, "height": height}
        )  # a frame out of sight is not drawn
        page.wait_for_timeout(1000)
        page.screenshot(path=SCREENSHOTS / f"colab-{name}.png")
        opened.kernel.stop_channels()
        browser.close()
    messages = f"{opened.sent} messages to the kernel, {opened.heard} from it"
    print(f"    {len(opened.outputs)} frames, {messages}")
    return faults + opened.faults
