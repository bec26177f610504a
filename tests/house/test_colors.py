"""One colour for each part of a model: the visual language has it, and no lesson, view or page writes it again."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tinylm_classroom.display.figures import ink_on
from tinylm_classroom.display.theme import (
    AXIS_COLORS,
    HEAT,
    NEGATIVE,
    PART_COLORS,
    RAMP,
    SIGNED,
    SURFACES,
    TURN,
    css,
)

ROOT = Path(__file__).parents[2]
THEME = ROOT / "tinylm_classroom/display/theme.py"
SOURCES = [
    *(path for path in ROOT.glob("tinylm_classroom/**/*.*") if path.suffix in (".py", ".js", ".css", ".html")),
    *ROOT.glob("notebooks/source/**/*.py"),
]
DRAWN = {
    "memory.js": ["part-${group.name}"],
    "one_word.js": ["part-stream", "part-attention", "part-feed-forward", "part-embedding"],
    "residual.js": ["part-stream", "part-attention", "part-feed-forward"],
    "memory.py": ["PART_COLORS[group].light"],
}
# From pale over middle to deep: a probability, and each sign of a number, on paper and on JupyterLab's.
JUPYTER_PAPER = ("#fff", "#111")
POSITIVE, BELOW = (RAMP["middle"], RAMP["deep"]), (NEGATIVE["middle-negative"], NEGATIVE["deep-negative"])
GROUNDS = [(RAMP["pale"], *POSITIVE)]
GROUNDS += [(paper, *hues) for paper in (SURFACES["paper"], JUPYTER_PAPER) for hues in (POSITIVE, BELOW)]
READABLE = 4.5  # contrast of text: WCAG 2.2, success criterion 1.4.3
TYPED = {shade for part in PART_COLORS.values() if part in AXIS_COLORS.values() for shade in part}


def typed_again(text: str) -> list[str]:
    """The colours of parts that a source has as numbers, where it should name the part or the axis letter."""
    return [found for found in re.findall(r"#[0-9a-fA-F]{6}\b", text) if found.lower() in TYPED]


def test_a_color_that_is_typed_again_is_found() -> None:
    assert typed_again(f'ax.bar(x, y, color="{PART_COLORS["attention"].light.upper()}")')
    assert not typed_again('ax.bar(x, y, color=figures.AXIS_COLORS["D"].light)')


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_types_the_color_of_a_part(path: Path) -> None:
    if path != THEME and "reveal" not in path.parts:
        assert not typed_again(path.read_text(encoding="utf-8"))


def test_parts_have_the_colors_of_the_axes_that_only_they_have() -> None:
    """Lessons draw with axis letters, views with names: both give one part one colour."""
    axes = {"embedding": "V", "attention": "D", "feed-forward": "F", "head": "V", "stream": "C"}
    assert {name: AXIS_COLORS[letter] for name, letter in axes.items()} == {n: PART_COLORS[n] for n in axes}
    for name, shade in PART_COLORS.items():
        assert f"--part-{name}: light-dark({shade.light}, {shade.dark})" in css()


@pytest.mark.parametrize("script", DRAWN)
def test_a_view_takes_the_colors_of_parts_from_the_table(script: str) -> None:
    text = (ROOT / "tinylm_classroom/views" / script).read_text(encoding="utf-8")
    assert all(name in text for name in DRAWN[script])
    assert not re.findall(r"var\(--(?:series|axis)-[^)]*\)", text)


def luminance(color) -> float:
    level = np.array(to_rgb(color))
    return np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)


def contrast(one, other) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_guidelines() -> None:
    assert contrast("black", "white") == pytest.approx(21)
    assert contrast("#767676", "white") == pytest.approx(4.54, abs=0.005)  # the lightest grey that passes on white


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS, ids=["probability", "positive", "negative", "lab positive", "lab negative"])
def test_numbers_are_readable_on_every_shade_of_a_view(ground, scheme: int) -> None:
    """The stylesheet mixes pale, middle and deep in sRGB, and the ink turns where `--turn-...` says."""
    pale, middle, deep = (np.array(to_rgb(color[scheme])) for color in ground)
    for a in np.linspace(0, 1, 1001):
        shade = pale + min(1, 2 * a) * (middle - pale)
        shade = shade + max(0, 2 * a - 1) * (deep - shade)
        ink = RAMP["high" if a > float(TURN[scheme]) else "low"][scheme]
        assert contrast(ink, shade) >= READABLE, a


@pytest.mark.parametrize("hues", [HEAT, SIGNED], ids=["probability", "signed"])
def test_numbers_are_readable_on_every_shade_of_a_figure(hues) -> None:
    shades = [hues(a)[:3] for a in np.linspace(0, 1, 1001)]
    assert min(contrast(ink_on(shade), shade) for shade in shades) >= READABLE


def inks_by_threshold(text: str) -> list[str]:
    """The inks that a source chooses by comparing a number, which does not know the colour of the ground."""
    return re.findall(r"""["']white["'] if [^\n]*[<>]""", text)


def test_no_source_chooses_the_ink_of_a_shade_by_a_number_of_its_own() -> None:
    assert inks_by_threshold('color = "white" if shade > 0.62 else "black"')
    for path in SOURCES:
        if path.name != "figures.py" and path.suffix == ".py":
            assert not inks_by_threshold(path.read_text(encoding="utf-8")), path.name
