"""The visual language: the colours, type, spacing and motion of every view, page and figure.

Each card has one idea. A sentence says what is selected, and the cells hold the numbers. One hue,
from pale to dark, shows how much; a pair of hues shows the sign; each axis letter and each part of
the model has one colour through the whole series. No fact is shown by colour alone. The selected
thing has a frame in the colour `focus`, and what may not be seen is hatched. Things move only to
show what became of them, in 150 ms, and not at all where the reader has asked for less motion.
"""

from html import escape
from typing import NamedTuple

from matplotlib import cycler
from matplotlib.colors import LinearSegmentedColormap


class Shade(NamedTuple):
    """One colour of the palette, for light and for dark paper."""

    light: str
    dark: str


# What a surface, a line of text, a border or a state looks like; in scripts `var(--name)`.
SURFACES = {
    "paper": Shade("#fff", "#14181d"),
    "soft": Shade("#f3f6f9", "#1e252d"),
    "line": Shade("#d3dae1", "#38424d"),
    "ink": Shade("#1b1f24", "#e8ecf0"),
    "quiet": Shade("#555f69", "#a7b1bc"),
    "accent": Shade("#0b5cb3", "#7fbcff"),
    "on-accent": Shade("#fff", "#0c1218"),
    "focus": Shade("#c2410c", "#ffa94d"),
    "good": Shade("#0a6b4f", "#5fd6ae"),
    "bad": Shade("#a83a08", "#ffab78"),
}
# How much, from little to much; text on it is `low` up to the turn, above that `high`.
RAMP = {
    "pale": Shade("#eff5fc", "#1a222b"),
    "middle": Shade("#6aa9ea", "#2b6cb0"),
    "deep": Shade("#073878", "#a6d4ff"),
    "low": Shade("#000", "#fff"),
    "high": Shade("#fff", "#000"),
}
TURN = Shade("0.716", "0.557")  # where both inks have the same contrast, on the hues of both signs
# Which sign: `deep` is the positive end, this the negative one.
NEGATIVE = {
    "deep-negative": Shade("#6b2c00", "#ffc48f"),
    "middle-negative": Shade("#e18b3d", "#a55519"),
}
# Lines and bars next to one another, in this order; in scripts `var(--series-1)` and so on.
SERIES_SHADES = (
    Shade("#0b66c3", "#6cb2ff"),
    Shade("#b34700", "#ff9d5c"),
    Shade("#3d8f66", "#7fd6a8"),
    Shade("#7d3671", "#e0a3d6"),
    Shade("#1b1f24", "#e8ecf0"),
)
AXIS_COLORS = {
    "B": Shade("#6b7680", "#a3adb8"),
    "T": Shade("#b35900", "#ffb35c"),
    "S": Shade("#8a6d00", "#e6c84d"),
    "C": Shade("#0b66c3", "#6cb2ff"),
    "H": Shade("#8a3ea8", "#d39cf0"),
    "G": Shade("#6e3b1f", "#d0805a"),
    "D": Shade("#00796b", "#4dd0c0"),
    "F": Shade("#b5316e", "#ff8fc0"),
    "V": Shade("#2f7d32", "#7fd483"),
}
# The parts of a model, in every lesson and view: each has the colour of the axis that only it has.
# The head is the embedding read backwards, so it has the same, hatched. In scripts
# `var(--part-attention)` and so on.
PART_COLORS = {
    "embedding": AXIS_COLORS["V"],
    "attention": AXIS_COLORS["D"],
    "feed-forward": AXIS_COLORS["F"],
    "norms": SURFACES["quiet"],
    "head": AXIS_COLORS["V"],
    "stream": AXIS_COLORS["C"],
}
# Bytes of memory, which belong to no part: greys, from the weights to what is kept beside them.
BYTE_COLORS = (
    Shade("#3b4550", "#c3ccd5"),
    Shade("#7b8793", "#8b97a3"),
    Shade("#b3bcc5", "#5d6873"),
)
# Type in pixels: the title of a card, the sentence that says what is selected, text, labels,
# numbers and legends.
TYPE = {"title": 20, "say": 21, "text": 16, "label": 15, "small": 14}
FONT = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif'
MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace'
# Spacing in pixels: inside a group, between groups, between parts of a card.
SPACE = {"1": 4, "2": 10, "3": 16, "4": 28}
MOTION = "150ms"

# Figures are drawn on white paper. In the dark the page turns light and dark around and keeps the
# hues.
IN_THE_DARK = "filter:invert(.91) hue-rotate(180deg)"
INK = "#1b1f24"
QUIET = "#5c6670"
LINE = "#d9dee3"
SERIES = tuple(shade.light for shade in SERIES_SHADES)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
HEAT = LinearSegmentedColormap.from_list("tinylm", ["#f6f9fd", "#6ea8e0", "#0b66c3", "#062f5c"])
SIGNED = LinearSegmentedColormap.from_list(
    "tinylm_signed", ["#6b2c00", "#d97a2b", "#f6f9fd", "#3f86d0", "#062f5c"]
)
STYLE = {
    "figure.constrained_layout.h_pad": 0.12, "figure.constrained_layout.w_pad": 0.12,
    "font.family": "DejaVu Sans", "font.size": 15, "text.color": INK,
    "axes.titlesize": 19, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.titlepad": 14,
    "axes.labelsize": 16, "axes.labelcolor": INK, "axes.edgecolor": QUIET,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": LINE,
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=SERIES, linestyle=DASHES), "lines.linewidth": 2.6,
    "xtick.color": QUIET, "ytick.color": QUIET, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
}  # fmt: skip


HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{}</title>
<link rel="icon" href="data:,">
<style>:root {{ color-scheme: light dark; {} }}</style>"""


def page_head(title: str) -> str:
    """How every page begins: its title, and the visual language as custom properties."""
    return HEAD.format(escape(title), css())


def css() -> str:
    """The declarations of all of it as custom properties; `color-scheme` decides which shade is
    seen.
    """
    shades = {**SURFACES, **RAMP, **NEGATIVE}
    shades |= {f"series-{i}": shade for i, shade in enumerate(SERIES_SHADES, start=1)}
    shades |= {f"axis-{letter}": shade for letter, shade in AXIS_COLORS.items()}
    shades |= {f"part-{name}": shade for name, shade in PART_COLORS.items()}
    shades |= {f"bytes-{i}": shade for i, shade in enumerate(BYTE_COLORS, start=1)}
    lines = [f"--{name}: light-dark({shade.light}, {shade.dark})" for name, shade in shades.items()]
    lines += [f"--turn-{name}: {turn}" for name, turn in TURN._asdict().items()]
    lines += [f"--type-{name}: {size}px" for name, size in TYPE.items()]
    lines += [f"--space-{name}: {size}px" for name, size in SPACE.items()]
    return "; ".join([*lines, f"--font: {FONT}", f"--mono: {MONO}", f"--motion: {MOTION}"])
