"""The views of the whole model in a browser: the walk through its shapes, and where its parameters and bytes are."""

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from support.browser import OPENING, assert_fits, assert_on_one_screen, enter, findings

from tinylm_classroom.shapes.model_steps import model_steps, sizes_of, values
from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, forward_flops, kv_cache_bytes, training_bytes
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.browser

TEXT = "\nOne mild evening, kind Samir ran"
LESSON = f"""{OPENING}
# %%
shape_flow(ready.model, ready.tokenizer, {TEXT!r})

# %%
memory_view({{"shipped": ready.model.config}})
"""


@pytest.fixture(scope="module")
def ready():
    """The shipped model, its tokenizer, and what flows in its first block."""
    shipped = load_pretrained("storyworld")
    ids = torch.tensor([shipped.tokenizer.encode(TEXT)])
    return shipped, ids, {name: x[0] for name, x in values(shipped.model.eval(), ids).items()}


def step(flow: Locator, name: str) -> Locator:
    return flow.locator(f'[data-step="{name}"]')


def short(n: int) -> str:
    unit, name = next(((u, f" {c}") for u, c in ((1e9, "B"), (1e6, "M"), (1e3, "K")) if n >= u), (1, ""))
    x = n / unit
    return str(n) if unit == 1 else f"{x:.{2 if x < 9.995 else 1 if x < 99.95 else 0}f}{name}"


def walk_the_model(page: Page, ready) -> None:
    """Walks by mouse and keyboard, follows two tokens, and compares each row and sentence with the model."""
    shipped, ids, found = ready
    config, T = shipped.model.config, ids.shape[1]
    flow, say = page.locator(".tinylm-view.shape-flow"), page.locator(".tinylm-view.shape-flow .say")
    steps, sizes = {each.name: each for each in model_steps(config, T)}, sizes_of(config, T)
    total, each = count_parameters(config).total, round(forward_flops(config, 1, T) / T)
    expect(flow.locator(".sub")).to_contain_text(f"{total:,} parameters, {each:,} FLOPs per token in a text of {T}.")
    expect(say).to_contain_text(f"ran becomes a vector of 128 numbers: row {ids[0, -1]} of the table.")
    expect(step(flow, "q_proj")).to_be_hidden()
    step(flow, "embed").click()
    page.keyboard.press("ArrowDown")
    expect(step(flow, "block")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(step(flow, "block")).to_have_attribute("aria-expanded", "false")
    expect(step(flow, "attention")).to_be_hidden()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(step(flow, "q_proj")).to_be_focused()
    expect(flow.get_by_role("status")).to_have_text("ran asks: its query has 32 numbers in each of 4 heads.")
    for name, known in steps.items():
        row = flow.locator(f'[data-step="{name}"]')
        numbers = [row.locator(".number").nth(i).text_content() for i in range(2)]
        assert numbers == [short(n) if n else "" for n in (known.parameters, known.flops)], name
        axes = zip(known.axes.split(), known.shape(sizes), strict=True)
        assert row.locator(".shape").text_content() == f"({', '.join(f'{a}={n}' for a, n in axes)})".replace("*", "·")
    step(flow, "weights").click()
    flow.get_by_role("radio", name="Samir").press("ArrowLeft")
    share, place = found["weights"][0, 5].max(-1)
    word = shipped.tokenizer.decode([ids[0, place].item()]).strip(" ").replace("\n", "↵")
    expect(say).to_have_text(f"kind turns its scores into weights. Head 0 gives {100 * share:.0f} % to {word}.")
    first = " ".join(f"{x:.2f}" for x in found["weights"][0, 5, :3].tolist())
    expect(flow.locator(".about")).to_contain_text(f"kind begins with {first}")
    assert [row.get_attribute("y") for row in flow.locator(".big .chosen").all()] == ["5"]
    step(flow, "down_proj").evaluate("row => row.scrollIntoView()")
    step(flow, "weights").press("End")
    share, best = found["head"][5].softmax(-1).max(-1)
    word = shipped.tokenizer.decode([best.item()]).strip(" ")
    expect(say).to_contain_text(f"Best guess for the next: “{word}”, {100 * share:.0f} %.")


def move_the_memory(page: Page) -> None:
    """Goes through the parts and the sliders, and compares what is said with the closed formulas."""
    view = page.locator(".tinylm-view.memory")
    say, told = view.locator(".say"), view.locator(".told")
    view.get_by_role("radio", name="llama 3-8b").check()
    config = preset("llama", "3-8b")
    view.locator('[data-part="k_proj"]').click()
    k = config.n_layers * config.n_kv_heads * config.d_head * config.d_model
    assert k == 134_217_728
    expect(say).to_have_text(f"attention, k: 134 million of 8.03 billion parameters, {100 * k / 8_030_261_248:.1f} %.")
    page.keyboard.press("ArrowLeft")
    expect(say).to_contain_text("attention, q: 537 million")
    page.keyboard.press("End")
    expect(view.locator("p[role=status]")).to_contain_text("head: 525 million of 8.03 billion parameters, 6.5 %.")
    widths_of = "all => all.map(each => each.getBoundingClientRect().width)"
    assert len(view.locator(".column").evaluate_all(widths_of)) == 5
    q, up = (view.locator(f'[data-part="{name}"]').bounding_box() for name in ("q_proj", "up_proj"))
    assert q["width"] * q["height"] / (up["width"] * up["height"]) == pytest.approx(4096 / 14_336, rel=0.05)
    view.get_by_label("Context").press("End")
    view.get_by_label("Batch").press("ArrowRight")
    cache, weights = kv_cache_bytes(config, 2, 8192, 2), 2 * count_parameters(config).total
    expect(told).to_contain_text(f"2 texts of 8,192 tokens the KV cache takes {cache / 1e9:.2f} GB")
    expect(told).to_contain_text(f"{100 * cache / (cache + weights):.1f} % of what inference needs")
    expect(told).to_contain_text(f"Training takes {training_bytes(config) / 1e9:.0f} GB")
    view.get_by_role("radio", name="fp32").check()
    cache = kv_cache_bytes(config, 2, 8192, 4)
    expect(told).to_contain_text(f"{cache / 1e9:.2f} GB")
    expect(view.locator(".total").nth(1)).to_have_text(f"{(cache + 2 * weights) / 1e9:.1f} GB")
    bars = view.locator(".line").nth(1).locator(".stack").evaluate_all(widths_of)
    assert bars[1] / bars[0] == pytest.approx(cache / (2 * weights), rel=0.02)
    view.get_by_role("radio", name="gpt2 small").check()
    expect(say).to_contain_text("of 124 million parameters")
    expect(told).to_contain_text("2 texts of 1,024 tokens")


def walk_another_text(page: Page) -> None:
    """Types a text that the kernel or the page's model answers, one that it cannot, and opens another block."""
    flow = page.locator(".tinylm-view.shape-flow")
    enter(flow.get_by_label("Your own text"), "One day, Mia had a kite.")
    expect(flow.get_by_role("radio", name="kite")).to_be_visible()
    flow.get_by_label("Your own text").fill("Half a")
    flow.locator(".walk").evaluate("it => it.classList.add('before')")
    flow.get_by_role("group", name="Inside block").get_by_role("radio", name="2").check()
    expect(flow.locator(".before")).to_have_count(0)  # the answer about block 2 is drawn
    expect(flow.get_by_role("group", name="Inside block").get_by_role("radio", name="2")).to_be_checked()
    expect(flow.get_by_label("Your own text")).to_have_value("Half a")
    flow.get_by_label("Your own text").fill("")
    flow.get_by_role("button", name="Walk").click()
    expect(flow.get_by_role("alert")).to_have_text("the text is empty: type a text")
    expect(flow.get_by_role("radio", name="kite")).to_be_visible()


def test_the_views_live_in_jupyterlab(run_sample, ready):
    lesson, page = run_sample, run_sample.page
    page.locator(".tinylm-view.memory").wait_for()
    lesson.show_cell(4)
    walk_the_model(page, ready)
    lesson.screenshots("flow-lab")
    walk_another_text(page)
    lesson.show_cell(5)
    move_the_memory(page)
    assert_on_one_screen(page, page.locator(".tinylm-view.memory"))
    lesson.screenshots("memory-lab")
    for _ in lesson.themes():
        assert findings(page, ".tinylm-view") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_views_live_in_a_page_from_disk(open_page, ready, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    walk_the_model(page, ready)
    assert page.locator(".tinylm-view.shape-flow *").count() < 2_000, "a step of the walk lays out few nodes"
    walk_another_text(page)
    move_the_memory(page)
    assert findings(page, ".tinylm-view") == []


def test_they_fit_a_page_at_200_percent(open_page):
    page = open_page(viewport={"width": 640, "height": 900})
    page.locator('[data-step="attention"]').click()
    page.locator('[data-step="attention"]').press("ArrowRight")
    assert_fits(page, ".tinylm-view")
    for view in page.locator(".tinylm-view").all():
        assert view.evaluate("card => card.scrollWidth <= card.clientWidth")
