"""Where a model's parameters and bytes are, in a real browser."""

import pytest
from playwright.sync_api import Page, expect
from support.browser import OPENING, assert_fits, assert_on_one_screen, findings

from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, kv_cache_bytes, training_bytes

pytestmark = pytest.mark.browser

LESSON = f"""{OPENING}
# %%
memory_view({{"shipped": ready.model.config}})
"""


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


def test_the_view_lives_in_jupyterlab(run_sample):
    lesson, page = run_sample, run_sample.page
    lesson.show_cell(4)
    move_the_memory(page)
    assert_on_one_screen(page, page.locator(".tinylm-view.memory"))
    lesson.screenshots("memory-lab")
    for _ in lesson.themes():
        assert findings(page, ".tinylm-view") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_view_lives_in_a_page_from_disk(open_page, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    move_the_memory(page)
    assert findings(page, ".tinylm-view") == []


def test_it_fits_a_page_at_200_percent(open_page):
    page = open_page(viewport={"width": 640, "height": 900})
    assert_fits(page, ".tinylm-view")
    card = page.locator(".tinylm-view")
    assert card.evaluate("card => card.scrollWidth <= card.clientWidth")
