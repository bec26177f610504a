"""A control without a kernel, on a page of the site and in slides: it steps through the frames that are stored."""

import pytest
from playwright.sync_api import Locator, Page, expect
from support.browser import OPENING, SCREENSHOTS, assert_fits, findings

from tinylm_classroom.course.slides import write_slides

pytestmark = pytest.mark.browser

LESSON = (
    OPENING
    + r"""
# %%
from matplotlib import pyplot as plt

from tinylm_classroom import control, figures


# %%
def bars(height=3, side="left"):
    fig, ax = plt.subplots(figsize=(8, 4))
    ax.bar(["left", "right"], [height, 2] if side == "left" else [2, height])
    ax.set(title=f"height {height}", xlabel="x", ylabel="y", ylim=(0, 10))
    figures.display(fig, alt=f"A bar of {height}.", caption=f"It is {height} high.", table={"height": [height]})


# %% deck="A bar"
control(bars, height=(0, 9), side=["left", "right"])


# %%
def told(n=2, word="ja"):
    print(f"{word}\n" * n)


# %%
control(told, n=(1, 30), word=["ja", "nein"])
"""
)
INK = """image => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let blue = 0, clear = 0;
  for (let i = 0; i < data.length; i += 4) {
    blue += data[i + 2] - data[i] > 100;
    clear += data[i + 3] < 255;
  }
  return [blue / canvas.width / canvas.height, clear];
}"""


def picture(page: Page) -> Locator:
    return page.locator(".tinylm-view.control").first.locator("img")


def move_and_look(page: Page) -> None:
    """Moves the first control by keys and looks at its picture, which must follow."""
    slider, menu = page.get_by_role("slider", name="height"), page.get_by_role("combobox", name="side")
    expect(slider).to_have_attribute("aria-valuetext", "3")
    (few, _), width = picture(page).evaluate(INK), picture(page).bounding_box()["width"]
    slider.focus()
    for height in (4, 5, 6, 7):
        page.keyboard.press("ArrowRight")
        expect(slider).to_have_attribute("aria-valuetext", str(height))
    expect(picture(page)).to_have_attribute("alt", "A bar of 7.")
    expect(page.locator(".tinylm-view.control").first.get_by_role("status")).to_have_text("A bar of 7.")
    expect(page.locator("figcaption").first).to_contain_text("It is 7 high.")
    page.wait_for_timeout(200)
    (many, clear) = picture(page).evaluate(INK)
    assert many > 1.5 * few and clear == 0, "the bar of the frame is not drawn, or not over the picture below it"
    assert abs(picture(page).bounding_box()["width"] - width) < 1
    menu.focus()
    menu.select_option("right")
    expect(picture(page)).to_have_attribute("alt", "A bar of 7.")


def test_the_frames_of_a_page_are_moved_by_keys(open_page):
    page = open_page()
    move_and_look(page)
    page.get_by_role("slider", name="height").press("Home")
    expect(picture(page)).to_have_attribute("alt", "A bar of 0.")


def test_one_setting_at_a_time_goes_back_and_says_so_and_nothing_moves(open_page):
    page = open_page()
    view = page.locator(".tinylm-view.control").nth(1)
    n, word = view.get_by_role("slider", name="n"), view.get_by_role("combobox", name="word")
    expect(view.locator(".note")).to_contain_text("the others go back")
    height = view.bounding_box()["height"]
    n.press("End")
    expect(view.locator(".on pre")).to_have_text("ja\n" * 29 + "ja")
    word.select_option("nein")
    expect(n).to_have_attribute("aria-valuetext", "2")
    expect(view.locator(".on pre")).to_have_text("nein\nnein")
    expect(view.get_by_role("status")).to_have_text("nein\nnein")
    assert view.bounding_box()["height"] == height


def test_the_frames_of_a_slide_are_moved_by_keys(sample, open_exported, tmp_path):
    (path,) = write_slides(sample, tmp_path)
    page = open_exported(path.as_uri(), viewport={"width": 1280, "height": 720})
    page.wait_for_function("window.Reveal?.isReady()")
    page.evaluate(
        "Reveal.slide(...Object.values(Reveal.getIndices(document.querySelector('.control').closest('.leaf'))))"
    )
    move_and_look(page)
    page.screenshot(path=SCREENSHOTS / "control-slide.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1920])
def test_a_control_fits_and_has_no_finding(open_page, width, scheme):
    page = open_page(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page.get_by_role("slider", name="height").press("ArrowRight")
    page.locator(".tinylm-view.control").first.screenshot(path=SCREENSHOTS / f"control-{width}-{scheme}.png")
    assert findings(page, ".tinylm-view.control") == []
    assert_fits(page, ".tinylm-view.control :is(input, select, img)")
