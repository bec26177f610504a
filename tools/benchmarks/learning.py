"""A model that learns in a page: how soon it reaches known losses, how far it comes in a minute,
and how many of its stories are possible.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tinylm_classroom.course.handout import find_chromium
from tinylm_classroom.course.learn import learn_page
from tinylm_classroom.live.scripts import learning_script
from tinylm_classroom.live.stories import stories_record
from tinylm_classroom.views.watch_learning import SEED, story_levels
from tinylm_lib import storyworld

from .measure import Row, Settings, seconds_bar

SECONDS = 60
N_STORIES = 200
# The losses that should be reached, in nats per token: after so many seconds with and without SIMD.
SOON = {1.2: (4.0, 15.0), 1.0: (7.0, 30.0)}
LOW = (0.69, 0.75)  # nats per token, after SECONDS
WATCHED = 20  # seconds
LONGEST = 50  # ms
TASKS = """() => {
  globalThis.tasks = [];
  const seen = (list) => tasks.push(...list.getEntries().map(({ duration }) => duration));
  new PerformanceObserver(seen).observe({ type: "longtask" });
}"""
# Resolves to points [seconds of updates, loss of new stories], the loss on 300 held-out stories,
# the tokens until then, and stories.
SCRIPT = """
(given) => new Promise((resolve, reject) => {
  const points = [];
  let found = null, isAsked = false;
  const hear = {
    report({ points: more, seconds, state }) {
      for (const { loss } of more) points.push([seconds, loss]);
      if (isAsked || (seconds < given.seconds && state !== "finished")) return;
      isAsked = true;
      for (const ask of ["pause", "measure", "write"]) worker.ask({ do: ask, n: given.n });
    },
    measured({ loss, tokens, seconds }) { found = { loss, tokens, seconds }; },
    written({ texts }) { resolve({ points, texts, ...found }); },
    error({ message }) { reject(new Error(message)); },
  };
  const worker = tinylmLearning.startLearning((message) => hear[message.is]?.(message));
  worker.ask({ do: "start", ...given });
})
"""


def learning(s: Settings) -> Iterator[Row]:
    """A model that learns in headless Chromium, with and without SIMD: seconds to 1.2 and 1.0 nats,
    loss and possible stories after a minute.
    """
    program = find_chromium()
    if program is None:
        missing = "not run: install Chromium, Chrome or Edge"
        yield Row("a model learns in a page", float("nan"), note=missing)
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for way, allow_simd in enumerate((True, False)):
            yield from rows(way, run(browser, allow_simd, SECONDS))
        tasks = tasks_of_page(browser, WATCHED)
        bar = seconds_bar(0.0)._replace(limit=LONGEST)
        note = f"in {WATCHED} s; {len(tasks)} of 50 ms or more"
        yield Row(
            "longest task of the page meanwhile", max(tasks, default=0), "ms", bar=bar, note=note
        )
        browser.close()


def rows(way: int, found: dict[str, Any]) -> Iterator[Row]:
    """The rows of one run. way: 0 with SIMD, 1 without, as in SOON and LOW."""
    how = ("SIMD", "plain JavaScript")[way]
    speed = f"{found['tokens'] / found['seconds']:,.0f} tokens/s"
    for level, most in SOON.items():
        bar = seconds_bar(most[way])
        yield Row(f"loss {level} in a page, {how}", reached(found["points"], level), bar=bar)
    bar = seconds_bar(0.0)._replace(limit=LOW[way])
    yield Row(f"loss after {SECONDS} s, {how}", found["loss"], "nats", bar=bar, note=speed)
    possible = sum(storyworld.parse(text.strip("\n")).error_at is None for text in found["texts"])
    note = "of 200 that it writes, temperature 0.8"
    yield Row(f"possible stories then, {how}", possible, "stories", note=note)


def reached(points: list[list[float]], level: float) -> float:
    """The seconds after which the mean of five points is first below a loss; infinite if never."""
    for i in range(5, len(points) + 1):
        if sum(loss for _, loss in points[i - 5 : i]) / 5 < level:
            return points[i - 1][0]
    return float("inf")


def run(browser: Browser, allow_simd: bool, seconds: float) -> dict[str, Any]:
    """What a page says of a run of so many seconds."""
    page = browser.new_page()
    page.set_default_timeout(0)
    page.add_script_tag(content=learning_script())
    given = {
        "rules": stories_record(), "entropies": story_levels(), "settings": {}, "seed": SEED,
        "allowSimd": allow_simd, "seconds": seconds, "n": N_STORIES,
    }  # fmt: skip
    found = page.evaluate(SCRIPT, given)
    page.close()
    return found


def tasks_of_page(browser: Browser, seconds: float) -> list[float]:
    """The milliseconds of each task of 50 or more in a page whose worker learns for so long."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "learn.html"
        path.write_text(learn_page(), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(path.as_uri())
        start = page.get_by_role("button", name="Start learning", exact=True)
        start.wait_for()
        page.wait_for_timeout(2000)  # what comes before is loading
        page.evaluate(TASKS)
        start.click()
        page.wait_for_timeout(1000 * seconds)
        tasks = page.evaluate("globalThis.tasks")
        page.close()
    return tasks


ROWS = {"learning": learning}
