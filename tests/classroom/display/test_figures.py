"""Figures: what each must carry, that it says the same on every run, and that its colours can be told apart."""

import base64
import io
import itertools
import math
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from support.views import table_rows

from tinylm_classroom.display import figures
from tinylm_classroom.display.theme import DASHES

TABLE = {"x": [0, 1], "y": [0.12345, 2.0]}
# How red-green blindness changes linear RGB (Machado, Oliveira, Fernandes 2009, severity 1).
SIGHT = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color: Any) -> np.ndarray:
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)])


def lab(rgb: np.ndarray) -> np.ndarray:
    ratios = TO_XYZ @ np.clip(rgb, 0, 1) / TO_XYZ.sum(1)
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in ratios)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: Any, other: Any) -> float:
    dark, light = sorted(float(TO_XYZ[1] @ linear(color)) for color in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.fixture
def shown(monkeypatch) -> list[dict]:
    """The mime bundles that were displayed."""
    bundles = []
    monkeypatch.setattr(figures, "publish_display_data", bundles.append)
    return bundles


def picture(html: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", html)[1])))


def draw(title="A line", x="x", y="y"):
    with figures.axes(title, x, y) as (figure, ax):
        ax.plot([0, 1], [0.1, 2.0])
    return figure


def test_a_figure_carries_alt_text_caption_and_numbers_and_a_sharp_picture_that_names_no_software(shown):
    figures.display(draw(), alt='a "line" <rising>', caption="It rises & rises.", table=TABLE)
    (bundle,) = shown
    assert set(bundle) == {"text/html", "text/plain"}
    assert '<img alt="a &quot;line&quot; &lt;rising&gt;"' in bundle["text/html"]
    assert ">It rises &amp; rises.</figcaption>" in bundle["text/html"]
    assert re.findall(r"<t[hd][^>]*>([^<]*)<", bundle["text/html"]) == ["x", "y", "0", "0.123", "1", "2.00"]
    assert bundle["text/plain"] == 'Figure: a "line" <rising>\nIt rises & rises.'
    untrusted = bundle["text/html"].replace(figures.DARK_NOTEBOOK, "")
    assert not re.search(r"<(style|script|svg)|class=|onclick|https?:", untrusted)
    image = picture(bundle["text/html"])
    assert image.format == "PNG" and not {"Software", "Matplotlib"} & set(image.info)
    assert image.width >= 1.4 * int(re.search(r'width="(\d+)"', bundle["text/html"])[1]), "it is not sharp"


@pytest.mark.parametrize(("names", "changed", "message"), [
    *(({name: ""}, {}, "a title and two axis labels") for name in ("title", "x", "y")),
    ({}, {"alt": " "}, "needs an alt text"), ({}, {"caption": ""}, "and a caption"),
    ({}, {"table": {}}, "needs its numbers"), ({}, {"table": {"x": [], "y": []}}, "needs its numbers"),
    ({}, {"table": {"x": [1], "y": [1, 2]}}, "equally long"), ({}, {"table": {"x": [1], "y": []}}, "equally long"),
])  # fmt: skip
def test_a_figure_without_names_words_or_numbers_is_refused(shown, names, changed, message):
    with pytest.raises(ValueError, match=message):
        figures.display(draw(**names), **{"alt": "a", "caption": "c", "table": TABLE, **changed})
    assert shown == []


def test_a_figure_of_pyplot_is_closed_so_that_it_is_shown_once(shown):
    figure, ax = pyplot.subplots()
    ax.set(title="t", xlabel="x", ylabel="y")
    figures.display(figure, alt="a", caption="c", table=TABLE)
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("size", [3, 15])
def test_the_style_neither_leaks_nor_depends_on_the_users(shown, size):
    with pyplot.rc_context({"font.size": size, "lines.linewidth": 9, "axes.facecolor": "red"}):
        before = dict(pyplot.rcParams)
        figures.display(draw(), alt="a", caption="c", table=TABLE)
        assert dict(pyplot.rcParams) == before
    figures.display(draw(), alt="a", caption="c", table=TABLE)
    assert shown[0] == shown[1]


def test_importing_changes_no_setting():
    code = (
        "from matplotlib import rcParams\nbefore = {**rcParams, 'backend': 0}\n"
        "import tinylm_classroom.display.figures\nassert {**rcParams, 'backend': 0} == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_loss_curve_says_where_it_begins_and_ends(shown):
    steps = list(range(100))
    losses = [4.0 - 0.02 * step for step in steps]
    curves = {"training": (steps, losses), "validation": ([0, 99], [4.1, 2.2])}
    figures.loss_curve(curves, {"ln 65": 4.174}, caption="It falls.")
    (bundle,) = shown
    assert bundle["text/plain"] == (
        "Figure: Line chart of the loss in nats per token over the steps: training goes from 4.0 to 2.0; "
        "validation goes from 4.1 to 2.2; ln 65 lies at 4.17.\nIt falls."
    )
    cells = table_rows(bundle["text/html"])
    assert cells[:3] == [["step", "training", "validation"], ["0", "4.0", "4.1"], ["14", "3.7", ""]]
    assert cells[-2:] == [["99", "2.0", "2.2"], ["ln 65", "4.2", "4.2"]] and len(cells) == 10


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """The figures that were drawn, whose HTML is their words and numbers alone."""
    found = []
    monkeypatch.setattr(figures, "framed", lambda figure, *rest: found.append(figure) or " ".join(rest))
    return found


def test_a_heat_map_says_its_limits_and_hatches_what_is_masked(shown, drawn):
    values = [[0.25, math.nan, math.nan], [0.5, 0.5, math.nan]]
    figures.heat_map(values, ["a", "b"], ["a", "b", "a"], title="Shares", caption="Each row is one budget.")
    (bundle,), (figure,) = shown, drawn
    assert bundle["text/plain"] == (
        "Figure: Heat map: Shares. query by row, key by column, from 0 to 1.\n"
        "Each row is one budget. The colour goes from 0 to 1. Hatched is masked."
    )
    cells = re.findall(r"<t[hd][^>]*>([^<]*)<", bundle["text/html"])
    assert cells == ["", "a", "b", "a", "a", "0.25", "", "", "b", "0.50", "0.50", ""]
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.50", "0.50"]
    assert [patch.get_xy() for patch in ax.patches] == [(0.5, -0.5), (1.5, -0.5), (1.5, 0.5)]


@pytest.mark.parametrize(
    ("limits", "colors"), [((0.0, 2.0), ["black", "black", "white"]), ((-2.0, 2.0), ["white", "black", "white"])]
)
def test_a_number_can_be_read_on_its_cell(shown, drawn, limits, colors):
    figures.heat_map([[limits[0], 0.0, 2.0]], ["row"], "abc", title="t", caption="c", limits=limits, digits=1)
    (ax,) = drawn[0].axes
    assert [text.get_color() for text in ax.texts] == colors and "masked" not in shown[0]["text/plain"]
    for text, shade in zip(ax.texts, ax.images[0].get_array()[0], strict=True):
        paper = ax.images[0].get_cmap()(shade)
        assert contrast(text.get_color(), paper) >= 4.5


@pytest.mark.parametrize("steps", [[0], [0, 10], list(range(7)), list(range(8)), list(range(1000))])
def test_a_curve_of_any_length_is_drawn(shown, steps):
    figures.loss_curve({"training": (steps, [1.0 / (step + 1) for step in steps])}, caption="It falls.")
    assert shown[0]["text/html"].count("<tr>") == 1 + min(len(steps), figures.TABLE_ROWS)


def test_words_are_shaded_by_their_numbers_and_fit_the_page(shown, drawn):
    words = [*["One", "warm", "evening", ",", "modest", "David", "cycled", "to", "Eastbridge", "."] * 4, "home"]
    low, high = [0.0] * len(words), [9.0] * len(words)
    figures.shaded_words(words, {"after": low, "before": high}, title="A story", caption="c", limit=6)
    after, before = drawn[0].axes
    assert [text.get_text() for text in after.texts] == words
    drawn[0].set_dpi(figures.PIXELS_PER_INCH * figures.SHARPNESS)
    drawn[0].draw_without_rendering()
    for text, ground in zip(after.texts, after.patches, strict=True):
        around, word = ground.get_window_extent(), text.get_window_extent()
        assert around.x0 <= word.x0 and word.x1 <= around.x1 <= drawn[0].bbox.x1
    for ax in (after, before):
        assert all(contrast(text.get_color(), ax.patches[i].get_facecolor()) > 4.5 for i, text in enumerate(ax.texts))
    assert (
        linear(after.patches[0].get_facecolor()).mean() > 0.9 > 0.1 > linear(before.patches[0].get_facecolor()).mean()
    )
    html = shown[0]["text/html"]
    assert "A story: the text 2 times" in html and table_rows(html)[-1] == ["home", "0.0", "9.0"]


def test_names_at_the_right_do_not_cover_each_other():
    with figures.axes("t", "x", "y") as (figure, ax):
        ax.plot([0, 1], [0, 1])
        figures._name_at_the_right(ax, [(0.5, "one", "k"), (0.5, "two", "k"), (0.51, "three", "k")])
    figure.canvas.draw()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 for low, high in itertools.pairwise(boxes))


# the palette


def are_apart(colors: Iterable[Any], matrix: Any = SIGHT["full"]) -> bool:
    seen = [lab(np.array(matrix) @ linear(color)) for color in colors]
    return all(np.linalg.norm(one - other) > 15 for one, other in itertools.combinations(seen, 2))


@pytest.mark.parametrize(("shade", "paper"), [("light", "#ffffff"), ("dark", "#14181d")])
def test_letters_are_legible_and_different_on_light_and_on_dark_paper(shade, paper):
    colors = [getattr(figures.AXIS_COLORS[letter], shade) for letter in "BTSCHGDFV"]
    assert all(contrast(color, paper) >= 4.5 for color in colors) and are_apart(colors)


@pytest.mark.parametrize("sight", SIGHT)
def test_two_curves_can_be_distinguished(sight):
    assert are_apart(figures.SERIES, SIGHT[sight])
    assert len(set(map(str, DASHES))) == len(figures.SERIES)


def test_the_heat_map_gets_steadily_darker_in_one_hue():
    shades = [lab(linear(figures.HEAT(value))) for value in np.linspace(0, 1, 50)]
    assert all(np.diff([shade[0] for shade in shades]) < 0)
    assert shades[0][0] > 95 and shades[-1][0] < 25
    assert all(shade[2] < 1 for shade in shades)  # never yellow: the blue side of the axis throughout


def test_a_diagram_has_the_colours_of_the_axes():
    with figures.axes("Parts", "x", "y") as (figure, ax):
        figures.box(ax, 0.2, 0.5, "norm", "C")
        figures.box(ax, 0.8, 0.5, "head")
        figures.arrow(ax, (0.3, 0.5), (0.7, 0.5), "V")
    named = {text.get_text(): text.get_bbox_patch().get_edgecolor()[:3] for text in ax.texts if text.get_text()}
    assert named == {"norm": to_rgb(figures.AXIS_COLORS["C"].light), "head": to_rgb(figures.INK)}
    (flow,) = [text.arrow_patch for text in ax.texts if getattr(text, "arrow_patch", None)]
    assert flow.get_edgecolor()[:3] == to_rgb(figures.AXIS_COLORS["V"].light)
    pyplot.close(figure)


# flat pictures


def test_a_flat_picture_keeps_every_colour_of_the_palette():
    colors = figures.palette()
    drawn = Image.new("RGB", (len(colors), 1))
    drawn.putdata(colors)
    assert np.asarray(figures._flat(drawn).convert("RGB"))[0].tolist() == [list(color) for color in colors]
    named = [*figures.SERIES, figures.INK, figures.QUIET, *(shade.light for shade in figures.AXIS_COLORS.values())]
    assert {tuple(round(255 * level) for level in to_rgb(color)) for color in named} <= set(colors)


def test_a_flat_picture_is_small_and_close_to_the_whole_one():
    with figures.axes("Weights", "key", "query") as (figure, ax):
        figures.cells(ax, [[1.0, 0.93, 0.5, 0.07, 0.0]], [[1.0, 0.93, 0.5, 0.07, 0.0]], ["row"], [2])
    flat, whole = (figures.framed(figure, "alt", "caption", "", flat=flat) for flat in (True, False))
    pyplot.close(figure)
    assert len(flat) < len(whole)
    one, other = (np.asarray(picture(html).convert("RGB"), dtype=int) for html in (flat, whole))
    assert np.abs(one - other).mean() < 2
    middle = one[len(one) // 3]
    assert len({tuple(pixel) for pixel in middle}) >= 5, "1.00 and 0.93 have one colour"


def test_a_picture_with_a_palette_looks_like_what_was_drawn_and_is_half_as_large():
    rng = np.random.default_rng(0)
    with figures.axes("Weights", "key", "query") as (figure, ax):
        ax.imshow(rng.random((12, 12)), cmap=figures.HEAT)
        ax.plot(range(12), rng.random(12) * 12)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white", dpi=figures.PIXELS_PER_INCH * figures.SHARPNESS)
    shown = picture(figures.framed(figure, "alt", "caption", ""))
    pyplot.close(figure)
    one, other = (np.asarray(each.convert("RGB"), dtype=int) for each in (shown, Image.open(buffer)))
    assert shown.mode == "P" and np.abs(one - other).mean() < 0.2
    assert (np.abs(one - other).max(-1) > 24).mean() < 0.002
    assert one[0, 0].tolist() == [255, 255, 255]
    assert len(figures.framed(figure, "alt", "caption", "")) < len(buffer.getvalue()) * 4 / 3 / 2


def test_a_picture_knows_the_points_of_its_smallest_text():
    with figures.axes("One", "x", "y") as (figure, ax):
        ax.text(0.5, 0.5, "small", size=11)
        ax.text(0.2, 0.5, "", size=3)
    assert 'data-points="11"' in figures.framed(figure, "A word.", "See it.", "")
