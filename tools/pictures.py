"""Take the README's film of one word, light and dark; needs Chromium.

python tools/pictures.py [--to FOLDER]        default: .github/views
"""

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Locator, expect, sync_playwright

from tinylm_classroom.course.cells import views_script
from tinylm_classroom.course.handout import find_chromium
from tinylm_classroom.display.theme import page_head
from tinylm_classroom.views.base import json_in_html
from tinylm_classroom.views.one_word import one_word
from tinylm_lib.pretrained import load_pretrained

PICTURES = Path(__file__).parents[1] / ".github" / "views"
SCHEMES = ("light", "dark")
SCALE = 2
STORY = "\nOne dark evening, calm Mia ran to Foxhollow."
FILM = {"width": 900, "height": 700}
MOMENTS = 11  # of each step
MOMENT_MS = 140
REST_MS = 2000  # at the end of a step, to read its sentence
COLORS = 64
# of the card only the sentence and the stage
BARE = """body { margin: 0 }
.one_word :is(.time, .bar, details, .large) { display: none !important }
.one_word .say { height: 4.1em } /* the longest sentence, so that all pictures have one size */
.tinylm-view.one_word { margin: 0 !important; border: 0 !important; border-radius: 0 !important }"""
SEEK = """([i, part]) => {
    const { film } = document.querySelector(".one_word").parentElement, step = film.steps()[i];
    film.seek(step.from + step.seconds * part);
}"""


def main() -> int:
    """Write all pictures and print their paths; return the exit status."""
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
    with TemporaryDirectory() as pages, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        for scheme in SCHEMES:
            path = folder / f"one-word-{scheme}"
            with film(browser, film_page(Path(pages)), scheme) as view:
                view.screenshot(path=path.with_suffix(".png"))
                save_film(list(moments(view)), path.with_suffix(".gif"))
            print(path.with_suffix(".png"), path.with_suffix(".gif"), sep="\n")
        browser.close()
    return 0


def film_page(folder: Path) -> str:
    """The address of a new page with the film alone."""
    shipped = load_pretrained("storyworld")
    data = json_in_html(one_word(shipped.model.eval(), shipped.tokenizer, STORY).data)
    view = f'<div data-view="one_word"><script type="application/json">{data}</script></div>'
    script = f"{views_script({'one_word'})}\ndrawView(document.querySelector('[data-view]'));"
    page = f"{page_head('One word')}<style>{BARE}</style></head><body>{view}"
    path = folder / "film.html"
    path.write_text(f"{page}<script>{script}</script></body></html>", encoding="utf-8")
    return path.as_uri()


@contextmanager
def film(browser: Browser, address: str, scheme: str) -> Iterator[Locator]:
    """The film at the step of the whole machine."""
    page = browser.new_page(viewport=FILM, device_scale_factor=SCALE, color_scheme=scheme)
    page.goto(address)
    view = page.locator(".one_word")
    expect(view.locator(".say")).not_to_be_empty()
    page.wait_for_timeout(300)  # the stage takes the size of its card
    yield view
    page.close()


def moments(view: Locator) -> Iterator[Image.Image]:
    """Yields MOMENTS pictures of each step at which slides stop, and of the last one."""
    stops, n_steps = view.evaluate(
        "({ parentElement: { film } }) => [film.stops(), film.steps().length]"
    )
    for step in [*stops, n_steps - 1]:
        for moment in range(1, MOMENTS + 1):
            view.page.evaluate(SEEK, [step, min(moment / MOMENTS, 0.9999)])
            view.page.wait_for_timeout(30)  # a word of the sentence fades in
            yield Image.open(io.BytesIO(view.screenshot(scale="css"))).convert("RGB")


def save_film(frames: list[Image.Image], path: Path) -> None:
    """Write frames as one moving picture, in the colours of some of them."""
    some = frames[:: max(1, len(frames) // 6)][:6]
    sheet = Image.new("RGB", (frames[0].width, len(some) * frames[0].height))
    for place, frame in enumerate(some):
        sheet.paste(frame, (0, place * frame.height))
    palette = sheet.quantize(COLORS, Image.Quantize.MEDIANCUT)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    times = [REST_MS if n % MOMENTS == 0 else MOMENT_MS for n in range(1, len(frames) + 1)]
    first.save(path, save_all=True, append_images=others, duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    raise SystemExit(main())
