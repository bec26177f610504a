"""Take the README's pictures of the model that writes, light and dark, from the site's front page;
needs Chromium.

python tools/pictures.py [--to FOLDER]        default: .github/views
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Locator, expect, sync_playwright

from tinylm_classroom.course.handout import find_chromium
from tinylm_classroom.course.site import export
from tinylm_classroom.folders import NOTEBOOKS

PICTURES = Path(__file__).parents[1] / ".github" / "views"
SCHEMES = ("light", "dark")
WINDOW = {"width": 1280, "height": 900}
SCALE = 2
TOKENS = 50  # on the page when the next word depends on who has what
TICK_MS = 60  # shorter than the pause after any word, so that no word is missed


def main() -> int:
    """Write both pictures and print their paths; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=PICTURES, metavar="FOLDER")
    folder = parser.parse_args().to
    program = find_chromium()
    if program is None:
        print(
            "the pictures need Chromium, Chrome or Edge, and none was found: install one",
            file=sys.stderr,
        )
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as site, sync_playwright() as playwright:
        export(NOTEBOOKS, Path(site), ["00"])
        index = Path(site) / "index.html"
        browser = playwright.chromium.launch(executable_path=program)
        for scheme in SCHEMES:
            path = folder / f"writing-{scheme}.png"
            with writing(browser, index.as_uri(), scheme) as view:
                view.screenshot(path=path)
            print(path)
        browser.close()
    return 0


@contextmanager
def writing(browser: Browser, address: str, scheme: str) -> Iterator[Locator]:
    """The view of the front page in which the model writes, after it has written so much that there
    are TOKENS tokens.

    The page's clock is moved by hand, so that the picture does not depend on the speed of the
    machine.
    """
    options = {
        "viewport": WINDOW,
        "device_scale_factor": SCALE,
        "color_scheme": scheme,
        "reduced_motion": "reduce",
    }
    page = browser.new_page(**options)
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.goto(address)
    page.get_by_role("button", name="Watch it write").click()
    view = page.locator(".writer")
    # until the story has ended
    tokens = view.locator(".token")
    pause = view.get_by_role("button", name="Pause")
    while tokens.count() < TOKENS and pause.is_visible():
        page.clock.run_for(TICK_MS)
    expect(tokens).to_have_count(TOKENS)
    expect(view.locator(".say")).to_contain_text(f": {tokens.last.inner_text()} (")
    yield view
    page.close()


if __name__ == "__main__":
    raise SystemExit(main())
