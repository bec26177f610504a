"""The views of tokens and of softmax in JupyterLab and in an exported page: moved, and compared with Python."""

import math

import pytest
import torch
from playwright.sync_api import Page, expect
from support.browser import OPENING, SCREENSHOTS, ZOOMED, assert_fits, enter, findings

from tinylm_classroom.views.token import joins
from tinylm_lib import storyworld
from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.text.bpe import apply_merges, train_bpe
from tinylm_lib.text.cutting import pre_tokens
from tinylm_lib.text.tokenizers import ByteTokenizer

pytestmark = pytest.mark.browser

LESSON = (
    OPENING
    + r"""
# %%
from tinylm_lib.text.bpe import train_bpe
from tinylm_lib.text.tokenizers import TOKENIZERS

text = storyworld.corpus(200, seed=0)
tokenizers = [*(TOKENIZERS[kind].from_text(text) for kind in ("bytes", "chars", "words")), train_bpe(text, 500)]
token_view({"a story": text[: text.index(".") + 1], "other signs": "Noé met Mia. 🙂\nThe end"}, tokenizers)

# %%
softmax_view([12.5548, 10.5282, 4.0244, 3.9839, -1.5], ["Jamal", "Carlos", "David", "Adam", "a"])
"""
)
SCORES = torch.tensor([12.5548, 10.5282, 4.0244, 3.9839, -1.5])
CORPUS = storyworld.corpus(200, seed=0)
STORY, OTHER = CORPUS[: CORPUS.index(".") + 1], "Noé met Mia. 🙂\nThe end"
TOKENS, SOFTMAX = ".tinylm-view.tokens", ".tinylm-view.softmax"


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(CORPUS, 500)


def seen(token: bytes) -> str:
    """A token as the view writes it."""
    try:
        return token.decode().replace(" ", "␣").replace("\n", "↵")
    except UnicodeDecodeError:
        return token.hex().upper()


def boxes(page: Page) -> list[str]:
    return page.locator(f"{TOKENS} .token").evaluate_all("nodes => nodes.map(node => node.textContent)")


def choose(page: Page, name: str) -> None:
    page.locator(TOKENS).get_by_role("radio", name=name, exact=True).check()


def slide(page: Page, name: str, value: float) -> None:
    page.get_by_role("slider", name=name, exact=True).evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", value
    )


def cut(text: str, bpe, limit: int) -> list[bytes]:
    ranks = {pair: rank for rank, pair in enumerate(bpe.merges[:limit])}
    return [token for piece in pre_tokens(text) for token in apply_merges(piece.encode(), ranks)]


def move_the_tokens(page: Page, bpe) -> None:
    """Cuts, replays and names tokens, by mouse and by keyboard."""
    say, merge, n = page.locator(f"{TOKENS} .say"), page.locator(f"{TOKENS} .merge"), len(bpe.merges)
    ids = bpe.encode(STORY)
    assert boxes(page) == [seen(token) for token in cut(STORY, bpe, min(40, n))]
    page.get_by_role("button", name="Play").click()
    expect(page.locator(f"{TOKENS} .merge")).to_contain_text("here.")  # it goes from join to join
    page.get_by_role("button", name="Pause").click()
    for limit in (0, 1, 12, 100, n):
        slide(page, "Merges", limit)
        assert boxes(page) == [seen(token) for token in cut(STORY, bpe, limit)]
        places = joins(STORY, bpe)[limit - 1] if limit else 0
        assert page.locator(f"{TOKENS} .token.new").count() == places
        if limit:
            a, b = bpe.merges[limit - 1]
            told = f"joins {places} pair{'s' if places > 1 else ''} here." if places else "joins nothing in this text."
            expect(merge).to_have_text(f"Merge {limit}: {seen(a)} + {seen(b)} → {seen(a + b)} {told}")
        else:
            expect(merge).to_have_text("No merge yet: each byte is a token of its own.")
    page.get_by_role("slider", name="Merges").press("ArrowLeft")
    expect(page.locator(f"{TOKENS} .replay .value")).to_have_text(f"{n - 1} of {n}")
    page.get_by_role("button", name="the previous join in this text").click()
    last = max(rank for rank in joins(STORY, bpe) if rank < n - 2) + 1
    expect(page.locator(f"{TOKENS} .replay .value")).to_have_text(f"{last} of {n}")
    slide(page, "Merges", n)
    page.locator(f"{TOKENS} .token").nth(2).click()
    token = bpe.vocab[ids[2]]
    expect(say).to_contain_text(f"{seen(token)} is token 3 of {len(ids)}, with the id {ids[2]}: {len(token)} byte")
    page.keyboard.press("ArrowRight")
    expect(say).to_contain_text(f"{seen(bpe.vocab[ids[3]])} is token 4 of {len(ids)}, with the id {ids[3]}:")
    expect(page.locator(f"{TOKENS} [role=status]")).to_contain_text("is token 4 of")
    page.locator(f"{TOKENS} .token").first.hover()
    expect(say).to_contain_text("is token 1 of")
    page.mouse.move(0, 0)
    expect(say).to_contain_text("is token 4 of")
    choose(page, "words")
    expect(page.locator(f"{TOKENS} .replay")).to_be_hidden()
    counts = [str(len(boxes(page))), f"{len(STORY) / len(boxes(page)):.1f}"]
    expect(page.locator(f"{TOKENS} .counts .on.number")).to_have_text(counts)


def move_to_other_signs(page: Page) -> None:
    """A character of two bytes, one of four, and what a list of characters says of them."""
    choose(page, "other signs")
    choose(page, "bytes")
    data = OTHER.encode()
    assert boxes(page) == [seen(bytes([b])) for b in data]
    place = data.index("é".encode())
    page.locator(f"{TOKENS} .token").nth(place + 1).click()
    say = page.locator(f"{TOKENS} .say")
    expect(say).to_have_text(f"A9 is token {place + 2} of {len(data)}, with the id 169: 1 byte (A9) of the 2 of “é”.")
    expect(page.locator(f"{TOKENS} .counts")).to_contain_text(f"of {len(OTHER)} characters, {len(data)} bytes")
    choose(page, "characters")
    expect(page.locator(f"{TOKENS} .refused")).to_contain_text("Refused: It knows only")
    assert boxes(page) == []
    choose(page, "BPE")
    expect(say).to_contain_text("of the 2 of “é”.")
    choose(page, "a story")


def short(x: float) -> str:
    """A power as the view writes it."""
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else "inf"
    if x == 0:
        return "0"
    if 0.00995 <= x < 9999.5:
        return f"{x:,.0f}" if x >= 99.95 else f"{x:.{2 - math.floor(math.log10(float(f'{x:.2e}')))}f}"
    digits, power = f"{x:.1e}".split("e")
    return f"{digits}×10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def points(x: float) -> str:
    return f"{x:.2f}".replace("-", "−")


def percent(x: float) -> str:
    return "NaN" if math.isnan(x) else f"{100 * x:.1f} %"


def expected_channels(scores: torch.Tensor, shift: float, T: float) -> list[list[str]]:
    """The probability, the exponential and the score of each channel, computed by torch in fp32."""
    shifted = scores + shift
    scaled = shifted / T
    columns = [(scaled - scaled.max()).softmax(0), scaled.exp(), shifted]
    writers = (percent, short, points)
    return [[write(x.item()) for write, x in zip(writers, row, strict=True)] for row in zip(*columns, strict=True)]


def channels(page: Page) -> list[list[str]]:
    parts = "['.share', '.exp', '.fader b'].map(part => node.querySelector(part).textContent)"
    rows = page.locator(f"{SOFTMAX} .channel").evaluate_all(f"nodes => nodes.map(node => {parts})")
    return [[text.replace("\xa0", " ") for text in row] for row in rows]


def drag(page: Page, name: str, by: float) -> None:
    """Drag the knob of a score by so many pixels."""
    box = page.locator(f"{SOFTMAX} .channel", has_text=name).locator(".fader b").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + by, steps=5)
    page.mouse.up()


def move_the_softmax(page: Page) -> None:
    """Moves temperature, shift and a score; each time all numbers are those of torch in fp32."""
    say, why = page.locator(f"{SOFTMAX} .say"), page.locator(f"{SOFTMAX} .why")
    warmths = [0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100]
    for T, shift in ((1, 0), (2, 0), (0.3, 7), (100, 0), (0.1, 0), (1, 76), (1, 77), (1, 100), (2, 100)):
        slide(page, "Temperature T", warmths.index(T))
        slide(page, "Add to all scores", shift)
        rows = expected_channels(SCORES, shift, T)
        assert channels(page) == rows, (T, shift)
        probs = next_token_probs(SCORES[None], temperature=T)[0].tolist()
        assert [row[0] for row in rows] == [percent(p) for p in probs]
        overflows = (12.5548 + shift) / T > 88.7228
        assert ("inf" in rows[0]) == overflows == ("inf ÷ inf = NaN" in why.inner_text())
        if shift:
            assert page.locator(f"{SOFTMAX} .tape .over").count() == (88.7228 * T - shift < 18 + 2.5)
    first = percent((SCORES / 2).softmax(0)[0].item())
    expect(say).to_have_text(f"100 added to every score: no probability changes. Jamal gets {first}, as before.")
    slide(page, "Temperature T", 0)
    assert [row[:2] for row in channels(page)] == [[p, "–"] for p in ("100.0 %", *["0.0 %"] * 4)]
    expect(say).to_have_text(f"Temperature 2 → 0: Jamal gets 100.0 % instead of {first}.")
    expect(why).to_contain_text("greedy: the largest score gets everything")
    page.get_by_role("button", name="Reset").click()
    assert channels(page) == expected_channels(SCORES, 0, 1)
    expect(say).to_contain_text("the largest part. Drag a knob")
    page.get_by_role("slider", name="score of Carlos").focus()
    for key in ("PageUp", "PageUp", "ArrowRight", "ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
    moved = SCORES.clone()
    moved[1] = 12.6282
    assert channels(page) == expected_channels(moved, 0, 1)
    before, after = SCORES.softmax(0)[1].item(), moved.softmax(0)[1].item()
    expect(say).to_have_text(
        f"Score 10.53 → 12.63: Carlos gets {percent(after)} instead of {percent(before)}. "
        f"Each of the others has {(1 - after) / (1 - before):.2g} times what it had."
    )
    expect(why).to_have_text("0.07 above Jamal: its probability is exp(0.07) ≈ 1.1 times as large.")
    expect(page.locator(f"{SOFTMAX} [role=status]")).to_contain_text("Carlos gets")
    drag(page, "Carlos", 60)
    score = float(channels(page)[1][-1].replace("−", "-"))
    assert score < 8
    moved[1] = score
    assert [row[0] for row in channels(page)] == [row[0] for row in expected_channels(moved, 0, 1)]
    expect(say).to_contain_text("Score 12.63 → ")
    page.get_by_role("button", name="Reset").press("Enter")
    assert channels(page) == expected_channels(SCORES, 0, 1)


def type_a_text(page: Page, bpe) -> None:
    """What the kernel answers: a text of one's own, and why another cannot be shown."""
    field = page.get_by_label("Your own text")
    enter(field, "Zoë has a 🪁")
    yours = page.locator(TOKENS).get_by_role("radio", name="yours")
    yours.wait_for()
    expect(yours).to_be_checked()
    assert boxes(page) == [seen(bpe.vocab[i]) for i in bpe.encode("Zoë has a 🪁")]
    slide(page, "Merges", 30)
    field.fill("x" * 201)
    page.get_by_role("button", name="Cut it").click()
    expect(page.locator(f"{TOKENS} .wrong")).to_contain_text("has 201 characters, and the view shows 200")
    assert boxes(page) == [seen(token) for token in cut("Zoë has a 🪁", bpe, 30)]
    enter(field, "a hat")
    page.wait_for_function(f"() => document.querySelectorAll('{TOKENS} .token').length < 8")
    expect(page.locator(f"{TOKENS} .wrong")).to_have_text("")
    assert boxes(page) == [seen(token) for token in cut("a hat", bpe, 30)]
    choose(page, "bytes")
    assert len(boxes(page)) == len(ByteTokenizer().encode("a hat"))


def test_both_live_in_jupyterlab_and_the_kernel_cuts_what_is_typed(run_sample, bpe):
    lesson, page = run_sample, run_sample.page
    lesson.show_cell(5)
    page.locator(SOFTMAX).wait_for()
    page.locator(TOKENS).wait_for()
    move_the_tokens(page, bpe)
    move_to_other_signs(page)
    type_a_text(page, bpe)
    move_the_softmax(page)
    lesson.screenshots("tokens-softmax-lab")
    for _ in lesson.themes():
        assert findings(page, TOKENS) == [] and findings(page, SOFTMAX) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_is_alive_from_disk_in_light_and_dark(open_page, bpe, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    assert page.get_by_label("Your own text").count() == 0
    move_the_tokens(page, bpe)
    move_to_other_signs(page)
    move_the_softmax(page)
    slide(page, "Merges", 40)
    slide(page, "Add to all scores", 90)
    page.locator(TOKENS).screenshot(path=SCREENSHOTS / f"tokens-{scheme}.png")
    page.locator(SOFTMAX).screenshot(path=SCREENSHOTS / f"softmax-{scheme}.png")
    assert findings(page) == []
    choose(page, "other signs")
    for name in ("characters", "bytes"):
        choose(page, name)
        assert findings(page) == []
    slide(page, "Temperature T", 0)
    assert findings(page) == []


def test_at_640_pixels_nothing_is_lost_at_the_side_or_too_small(open_page):
    page = open_page(**ZOOMED)
    slide(page, "Add to all scores", 90)
    page.locator(SOFTMAX).screenshot(path=SCREENSHOTS / "softmax-zoomed.png")
    page.locator(TOKENS).screenshot(path=SCREENSHOTS / "tokens-zoomed.png")
    assert_fits(page, f"{TOKENS} *, {SOFTMAX} *")
    small = "nodes => Math.min(...nodes.map(node => parseFloat(getComputedStyle(node).fontSize)))"
    words = ", ".join(f"{view} :is(span, p, td, th, label, legend, output, button, b)" for view in (TOKENS, SOFTMAX))
    assert page.locator(words).evaluate_all(small) >= 14
