"""What does not fit on the slides of a lesson: found in a browser, slide by slide, with everything shown."""

from pathlib import Path

from playwright.sync_api import Page

LEAST_PIXELS = {"index": 18, "least": 26}  # of text on a slide, and of an index in a formula
FIND = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def deck_findings(page: Page, number: str) -> list[str]:
    """What does not fit in open slides, one line each: "06 slide 4.2: the table overflows by 80 px"."""
    page.wait_for_function("window.Reveal?.isReady()")
    return [f"{number} {found}" for found in page.evaluate(FIND, LEAST_PIXELS)]
