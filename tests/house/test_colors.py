"""One colour for each part of a model: the visual language has it, and no lesson, view or page writes it again."""

import re
from pathlib import Path

import pytest

from tinylm_lib.classroom.display.theme import AXIS_COLORS, PART_COLORS, css

ROOT = Path(__file__).parents[2]
THEME = ROOT / "tinylm_lib/classroom/display/theme.py"
SOURCES = [
    *(path for path in ROOT.glob("tinylm_lib/classroom/**/*.*") if path.suffix in (".py", ".js", ".css", ".html")),
    *ROOT.glob("notebooks/source/*.py"),
]
DRAWN = {
    "memory.js": ["part-${group.name}"],
    "residual.js": ["part-stream", "part-attention", "part-feed-forward"],
    "shape_flow.js": ["part-stream"],
    "memory.py": ["PART_COLORS[group].light"],
}
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
    text = (ROOT / "tinylm_lib/classroom/views" / script).read_text(encoding="utf-8")
    assert all(name in text for name in DRAWN[script])
    drawn = re.findall(r"var\(--(?:series|axis)-[^)]*\)", text)
    assert all("axis-${letter}" in use for use in drawn) if script == "shape_flow.js" else not drawn
