"""A model in a page: how soon it answers, how fast it writes, and how long a click has to wait
meanwhile.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

from tinylm_classroom.course.handout import find_chromium
from tinylm_classroom.live.record import live_record
from tinylm_classroom.live.scripts import engine_script
from tinylm_lib.pretrained import load_pretrained

from .measure import Row, Settings, seconds_bar, show

N_TOKENS = 100
SLICES = "delete globalThis.Worker;"  # as on a page that may start none
# `opening` is over when the first logits are there, in seconds from the start of the navigation.
# `writing` takes the likeliest word again and again; meanwhile a timer should run every 5 ms: how
# late it runs, so long a click would wait.
SCRIPT = """
const opening = tinylm.open(record).then(async (live) => {
  await live.read(ids);
  return { live, seconds: performance.now() / 1000 };
});
const likeliest = (logits) => logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));

async function writing(n) {
  const { live } = await opening, text = [...ids];
  let before = performance.now(), wait = 0, n_long = 0;
  const observer = new PerformanceObserver((list) => { n_long += list.getEntries().length; });
  observer.observe({ type: "longtask" });
  const timer = setInterval(() => {
    const now = performance.now();
    wait = Math.max(wait, now - before - 5);
    before = now;
  }, 5);
  const start = performance.now();
  for (let i = 0; i < n; i++) text.push(likeliest((await live.read(text)).logits));
  const seconds = (performance.now() - start) / 1000;
  await new Promise((resolve) => setTimeout(resolve, 10));
  clearInterval(timer);
  return { rate: n / seconds, wait: wait / 1000, n_long };
}
"""


def live(s: Settings) -> Iterator[Row]:
    """The shipped model in a page of headless Chromium, opened from disk: first logits, tokens per
    second, waits.
    """
    program = find_chromium()
    if program is None:
        yield Row(
            "a model in a page", float("nan"), note="not run: install Chromium, Chrome or Edge"
        )
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield from rows_of_pages(browser, s.rounds(8))
        browser.close()


def rows_of_pages(browser: Browser, rounds: int) -> Iterator[Row]:
    """The rows with and without a worker, each page opened `rounds` times after one that does not
    count.
    """
    with TemporaryDirectory() as folder:
        for where, first in (("in a worker", ""), ("in slices", SLICES)):
            path = page(Path(folder) / "live.html", first)
            found = [run(browser, path.as_uri()) for _ in range(1 + rounds)][1:]
            yield from rows(where, found, f"page of {path.stat().st_size / 1e6:.2f} MB")


def rows(where: str, found: list[dict[str, float]], note: str) -> Iterator[Row]:
    """Three rows from what each opened page has measured."""
    opened, rate, wait = (
        median(each[name] for each in found) for name in ("opened", "rate", "wait")
    )
    yield Row(f"page from disk to first logits, {where}", opened, bar=seconds_bar(1.0), note=note)
    fast = seconds_bar(0.0)._replace(sign="≥", limit=300)
    yield Row(
        f"shipped model writes, {where}",
        rate,
        "tokens/s",
        bar=fast,
        note=f"one thread, {N_TOKENS} tokens",
    )
    worst = max(each["wait"] for each in found)
    n_long = sum(each["n_long"] for each in found)
    note = f"at most {show(worst, 's')} in {len(found)} texts; {n_long:.0f} tasks longer than 50 ms"
    yield Row(f"longest wait of a click meanwhile, {where}", wait, bar=seconds_bar(0.05), note=note)


def page(path: Path, first: str) -> Path:
    """Write a page with the shipped model and return its path. first: a script that runs before the
    others.
    """
    ready = load_pretrained("storyworld")
    record = live_record(ready.model, ready.tokenizer)
    ids = ready.tokenizer.encode("\nOne sunny day, brave Mia")
    data = f"const record = {json.dumps(record)}, ids = {ids};"
    body = "".join(
        f"<script>{script}</script>" for script in (first, engine_script(), data, SCRIPT)
    )
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><title>live</title>{body}', encoding="utf-8"
    )
    return path


def run(browser: Browser, address: str) -> dict[str, float]:
    """Open the page in a new window and write.

    Returns seconds, tokens per second, and the number of long tasks.
    """
    tab = browser.new_page()
    tab.goto(address)
    opened = tab.evaluate("opening.then(({ seconds }) => seconds)")
    written = tab.evaluate(f"writing({N_TOKENS})")
    tab.close()
    return {"opened": opened, **written}


ROWS = {"live": live}
