"""The emblem of each lesson: its idea as a small drawing of a few shapes, which follows the colours
of the page.

A rounded box is a word. Orange is what comes out, blue what the lesson is about, and faint what it
starts from.
"""

from collections.abc import Callable, Iterable
from math import cos, radians, sin

SIZE = 96  # units of a drawing, across and down
TOKEN = 12  # units of a word's box, and from one to the next
STEP = 16.5
Point = tuple[float, float]


def emblem(file: str) -> str:
    """The emblem of the lesson in this file, such as `05_attention.html`, as SVG; empty if it has
    none.
    """
    draw = EMBLEMS.get(file[3:].partition(".")[0])
    shapes = "".join(draw()) if draw else ""
    head = f'<svg class="emblem" viewBox="0 0 {SIZE} {SIZE}" aria-hidden="true">'
    return f"{head}{shapes}</svg>" if shapes else ""


def _start() -> Iterable[str]:
    """Lines of a text, and the gap of its next word."""
    for x, y, width in ((8, 21, 26), (42, 21, 46), (8, 43, 46), (62, 43, 26), (8, 65, 20)):
        yield _box(x, y, width, 10, "fill faint", 5)
    yield _box(36, 60, 38, 20, "orange dashed")
    yield _dot((55, 70), 4, "orange fill")


def _tokens() -> Iterable[str]:
    """Neighbours grow together, row by row."""
    for row in range(3):
        wide = TOKEN + STEP * row
        look = ("faint", "blue", "blue fill")[row]
        for place in range(5 - row):
            x = 9 + STEP * (place if place < 2 else place + row)
            is_grown = place == 1
            y = 10 + 30 * row
            yield _box(x, y, wide if is_grown else TOKEN, 16, look if is_grown else "faint")


def _linear() -> Iterable[str]:
    """Every feature goes into every new one; one row of the weight is marked."""
    features = [(18.0, y) for y in (14.0, 36.7, 59.3, 82.0)]
    made = [(78.0, y) for y in (20.0, 48.0, 76.0)]
    for end in (made[0], made[2]):
        yield from (_path("ML", feature, end, look="faint thin") for feature in features)
    for feature, width in zip(features, (3, 7, 2, 5), strict=True):
        yield _path("ML", feature, made[1], look="blue", width=width)
    yield from (_dot(feature, 6, "fill") for feature in features)
    yield from (_dot(end, 6, "ground") for end in (made[0], made[2]))
    yield _dot(made[1], 8, "orange fill")


def _softmax() -> Iterable[str]:
    """Scores of any height become the parts of one whole."""
    left = 10.0
    for place, (height, part) in enumerate(((14, 10), (30, 17), (50, 38), (8, 7))):
        look = "blue fill" if height == 50 else "fill faint"
        yield _box(10 + 20 * place, 64 - height, 15, height, look, 3)
        yield _box(left, 74, part, 13, look, 3)
        left += part + 4 / 3


def _normalization() -> Iterable[str]:
    """Long and short vectors are drawn to one size."""
    for angle, length in ((-75, 45), (-20, 13), (38, 45), (105, 14), (160, 43), (-130, 15)):
        was = _around(angle, length)
        yield _path("ML", was, _around(angle, 28), look="faint") + _dot(was, 4.5, "fill faint")
    yield _dot(_around(0), 28, "blue")
    for angle in (-75, -20, 38, 105, 160, -130):
        yield _dot(_around(angle, 28), 6, "orange fill")


def _attention() -> Iterable[str]:
    """The last word looks back, mostly at one."""
    places = [9 + STEP * place for place in range(5)]
    end = places[4] + TOKEN / 2
    for place, width in ((0, 2), (2, 2), (3, 2), (1, 7)):
        x = places[place] + TOKEN / 2
        high = 62 - (end - x) * 0.86
        look = "blue" if place == 1 else "faint"
        yield _path("MC", (end, 62), (end, high), (x, high), (x, 62), look=look, width=width)
    for place, x in enumerate(places):
        look = {1: "blue fill", 4: "orange fill"}.get(place, "faint")
        yield _box(x, 68, TOKEN, TOKEN, look)


def _positions() -> Iterable[str]:
    """Hands that turn with the position, fast and slowly."""
    for y, step, look in ((28, 75, "blue"), (68, 22, "orange")):
        for place, x in enumerate((20, 48, 76)):
            turned = _around(place * step - 90, 12, (x, y))
            yield _dot((x, y), 12, "faint")
            yield _path("ML", (x, y), turned, look=look, width=5)


def _heads() -> Iterable[str]:
    """The parts of one vector look at different words."""
    looks = ("blue", "orange", "green", "plum")
    seen = (2, 0, 3, 1)
    for place in range(4):
        start = 19 + 19.4 * place
        end = 19 + 19.4 * seen[place]
        yield _path("MC", (start, 66), (start, 46), (end, 50), (end, 32), look=looks[place])
    for place, look in enumerate(looks):
        yield _box(13 + 19.4 * place, 13, TOKEN, TOKEN, "faint")
        yield _box(10 + 19.4 * place, 70, 18, 16, f"{look} fill", 3)


def _feedforward() -> Iterable[str]:
    """A vector becomes wide, a few of its units answer, and it becomes narrow again."""
    yield _path("MLLLLLZ", (14, 30), (48, 6), (82, 30), (82, 66), (48, 90), (14, 66), look="tint")
    for y in (39, 57):
        yield _box(7, y - 7, 14, 14, "fill") + _box(75, y - 7, 14, 14, "orange fill")
    for y, look in (
        (14, "ground"),
        (31, "blue fill"),
        (48, "ground"),
        (65, "ground"),
        (82, "blue fill"),
    ):
        yield _dot((48, y), 7 if "fill" in look else 5.5, look)


def _block() -> Iterable[str]:
    """The stream goes on, and what a part makes of it is added."""
    yield _path("ML", (34, 90), (34, 10), look="blue", width=7)
    yield _path("MLL", (24, 18), (34, 8), (44, 18), look="blue", width=6)
    yield _path("MC", (34, 82), (60, 82), (68, 80), (68, 66))
    yield _path("MC", (68, 44), (68, 32), (60, 32), (48, 32))
    yield _box(54, 44, 28, 22, "", 5)
    yield _dot((34, 32), 12, "orange fill")
    yield _path("MLML", (28, 32), (40, 32), (34, 26), (34, 38), look="paper")


def _model() -> Iterable[str]:
    """Layers, one on the other, and what comes out at the top."""
    yield from (_slab(48, y, 36, "ground") for y in (76, 62))
    yield _slab(48, 48, 36, "ground")
    yield _slab(48, 34, 36, "blue fill")
    yield _path("ML", (48, 34), (48, 14), look="orange")
    yield _dot((48, 12), 7, "orange fill")


def _training() -> Iterable[str]:
    """Steps down into a valley, which become smaller."""

    def valley(x: float) -> float:
        return 84 - 66 * ((x - 54) / 44) ** 2

    yield _path("M" + "L" * 41, *[(x, valley(x)) for x in range(10, 94, 2)], look="faint")
    steps = [(x + 6, valley(x) - 7) for x in (11.0, 22.0, 32.0, 41.0, 48.0)]
    yield _path("MLLLL", *steps, look="blue")
    yield from (_dot(step, 5, "blue fill") for step in steps[:-1])
    yield _dot(steps[-1], 8, "orange fill")


def _sampling() -> Iterable[str]:
    """A dart hits one of the parts, large or small."""
    begin = -95.0
    looks = ("orange fill", "blue fill", *["fill faint"] * 3)
    for part, look in zip((0.27, 0.42, 0.17, 0.09, 0.05), looks, strict=True):
        yield _sector((42, 54), 34, begin + 3, begin + 360 * part - 3, look)
        begin += 360 * part
    yield _path("ML", (56, 40), (80, 16), look="rim") + _path("ML", (56, 40), (80, 16))
    yield _path("MLLML", (90, 14), (80, 16), (82, 6), (84, 20), (74, 22), look="thin")


def _cache() -> Iterable[str]:
    """Each row computes its last word; the others are kept."""
    for row in range(4):
        for column in range(row + 1):
            look = "orange fill" if column == row else "blue tinted"
            yield _box(10 + 20 * column, 10 + 20 * row, 16, 16, look)


def _speed() -> Iterable[str]:
    """What limits a machine, and how far below it stays."""
    roof = ((12, 76), (44, 22), (90, 22))
    yield _path("MLLLL", *roof, (90, 84), (12, 84), look="tint")
    yield _path("MLL", (8, 8), (8, 88), (90, 88), look="faint thin")
    yield _path("MLL", *roof, look="blue", width=6)
    yield _path("ML", (66, 34), (66, 52), look="orange dashed")
    yield _dot((66, 62), 8, "orange fill")


def _scale() -> Iterable[str]:
    """Each budget has its best size, and more of it buys a lower loss."""
    yield _path("MLL", (8, 6), (8, 90), (92, 90), look="faint thin")
    yield _path("ML", (18, 22), (90, 82), look="faint dashed")
    for x, y in ((25, 28), (50, 50), (75, 70)):
        ends = (x - 12, y - 22), (x + 12, y - 22)
        yield _path("MC", ends[0], (x - 7, y + 7), (x + 7, y + 7), ends[1], look="blue")
        yield _dot((x, y), 6.5, "orange fill")


def _inside() -> Iterable[str]:
    """A lens on one number of many."""
    for row in range(4):
        yield from (_box(8 + 17 * column, 8 + 17 * row, 12, 12, "faint", 3) for column in range(4))
    yield _path("ML", (72, 72), (88, 88), width=8)
    yield _dot((55, 55), 23, "ground blue")
    yield _box(46, 46, 18, 18, "orange fill")


def _rewards() -> Iterable[str]:
    """Two texts, and the better one has a star."""
    for x, y, height, look in ((8, 34, 48, "faint"), (48, 20, 62, "blue")):
        yield _box(x, y, 34, height, look, 6)
        lines = [y + height - 12 * place for place in (1, 2, 3)]
        yield from (_path("ML", (x + 10, one), (x + 24, one), look=look) for one in lines)
    points = [_around(36 * place - 90, 8 if place % 2 else 17, (78, 22)) for place in range(10)]
    star = "MLLLLLLLLLZ"
    yield _path(star, *points, look="rim") + _path(star, *points, look="orange fill")


def _pretrained() -> Iterable[str]:
    """The same layers, small and large."""
    yield from (_slab(62, y, 30, "ground") for y in (74, 62, 50, 38))
    yield _slab(62, 26, 30, "ground") + _slab(62, 26, 30, "fill faint") + _slab(62, 26, 30, "")
    yield from (_slab(23, y, 17, "rim") for y in (84, 76, 68))
    yield from (_slab(23, y, 17, "blue ground") for y in (84, 76))
    yield _slab(23, 68, 17, "blue fill")


def _clinic() -> Iterable[str]:
    """One of the layers is ill: where does one listen first?"""
    for place in range(4):
        look = "orange fill" if place == 2 else "faint"
        yield _box(8, 12 + 19 * place, 38, 13, look, 5)
    tube = (72, 44), (72, 78), (70, 88), (58, 88), (46, 88), (48, 74), (46, 66)
    yield _path("MCC", *tube, look="blue")
    yield _path("MCC", (58, 12), (56, 34), (60, 44), (72, 44), (84, 44), (88, 34), (86, 12))
    yield _dot((59, 10), 4, "fill") + _dot((85, 10), 4, "fill")
    yield _dot((44, 57), 9, "blue ground")


def _yours() -> Iterable[str]:
    """A page with a model of one's own, which writes."""
    yield _box(6, 12, 84, 72, "", 8) + _path("ML", (6, 28), (90, 28))
    yield from (_slab(31, y, 17, "blue ground") for y in (68, 60))
    yield _slab(31, 52, 17, "blue fill")
    for y, width in ((40, 24), (53, 16)):
        yield _box(55, y, width, 8, "fill faint", 4)
    yield _box(55, 66, 24, 8, "orange fill", 4)


EMBLEMS: dict[str, Callable[[], Iterable[str]]] = {
    draw.__name__.removeprefix("_"): draw
    for draw in (
        _start, _tokens, _linear, _softmax, _normalization, _attention, _positions, _heads,
        _feedforward, _block, _model, _training, _sampling, _cache, _speed, _scale, _inside,
        _rewards, _pretrained, _clinic, _yours,
    )
}  # fmt: skip


def _around(angle: float, length: float = 0, middle: Point = (SIZE / 2, SIZE / 2)) -> Point:
    """The point at an angle, in degrees clockwise from the right, and this far from the middle."""
    return (
        middle[0] + length * cos(radians(angle)),
        middle[1] + length * sin(radians(angle)),
    )


def _box(x: float, y: float, width: float, height: float, look: str = "", round_: float = 4) -> str:
    return (
        f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="{round_:g}"/>'
    )


def _dot(middle: Point, radius: float, look: str) -> str:
    return f'<circle class="{look}" cx="{middle[0]:.1f}" cy="{middle[1]:.1f}" r="{radius:g}"/>'


def _path(commands: str, *points: Point, look: str = "", width: float = 0) -> str:
    """A path of SVG's commands M, L, C and Z, whose points follow in order."""
    rest = iter(points)
    takes = {"M": 1, "L": 1, "C": 3, "Z": 0}
    drawn = ""
    for command in commands:
        numbers = [f"{x:.1f} {y:.1f}" for x, y in (next(rest) for _ in range(takes[command]))]
        drawn += command + " ".join(numbers)
    style = f' style="stroke-width:{width:g}"' if width else ""
    return f'<path class="{look}"{style} d="{drawn}"/>'


def _slab(x: float, y: float, half: float, look: str) -> str:
    """A layer, seen from above at an angle."""
    low = half * 0.42
    return _path("MLLLZ", (x - half, y), (x, y - low), (x + half, y), (x, y + low), look=look)


def _sector(middle: Point, radius: float, begin: float, end: float, look: str) -> str:
    """A part of a disc between two angles."""
    (x1, y1), (x2, y2) = (_around(angle, radius, middle) for angle in (begin, end))
    wide = int(end - begin > 180)
    return (
        f'<path class="{look}" d="M{middle[0]:g} {middle[1]:g}L{x1:.1f} {y1:.1f}'
        f'A{radius:g} {radius:g} 0 {wide} 1 {x2:.1f} {y2:.1f}Z"/>'
    )
