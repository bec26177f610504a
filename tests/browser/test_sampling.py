"""The view of sampling in JupyterLab and in an exported page: its shares are those of `next_token_probs`."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from tinylm_lib import generate
from tinylm_lib.classroom.course import lab
from tinylm_lib.classroom.course import site as pages
from tinylm_lib.classroom.views.base import source
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.probabilities import next_token_probs

pytest_plugins = ["support.browser"]
pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parents[2] / "work" / "screenshots"
PROMPT = "\nOne sunny day, brave Mia"
LESSON = r"""# %% [markdown]
# # 12 Sample
# **From which words may the next one be drawn?**
#
# *Needs* nothing. *Builds* nothing. *Runs* in about 5 s on two cores. *Teaches* in 1 minute.

# %%
from tinylm_lib.classroom import sampling_view
from tinylm_lib.pretrained import load_pretrained

ready = load_pretrained("storyworld")

# %% [markdown] minutes=1
# ## 1. Try it
# Move it.

# %%
sampling_view(ready.model, ready.tokenizer, "\nOne sunny day, brave Mia", seed=3)
"""
VIEW = ".tinylm-view.sampling"
SAYS = f"{VIEW} .say"


@pytest.fixture(scope="module")
def sample(tmp_path_factory, built) -> Path:
    """A folder of notebooks with one lesson, built."""
    return built(tmp_path_factory.mktemp("course"), "12_sample", LESSON)


@pytest.fixture
def open_page(open_exported, sample) -> Callable[..., Page]:
    """A function that opens the exported page."""
    return partial(open_exported, pages.export(sample, sample.parent / "pages")[0].as_uri())


@pytest.fixture(scope="module")
def ready():
    return load_pretrained("storyworld")


def written(ready, n: int, seed: int, **options) -> list[int]:
    """What the library writes after the prompt."""
    ids = torch.tensor([ready.tokenizer.encode(PROMPT)])
    generator = torch.Generator().manual_seed(seed)
    return generate(ready.model, ids, n, generator=generator, **options)[0, ids.shape[1] :].tolist()


def said(ready, tokens: list[int]) -> list[str]:
    return [ready.tokenizer.decode([token]).strip(" ").replace("\n", "↵") for token in tokens]


def words(page: Page) -> list[str]:
    return page.locator(f"{VIEW} .text .shade").all_inner_texts()


def slide(page: Page, name: str, value: float) -> None:
    page.get_by_role("slider", name=name, exact=True).fill(str(value))


def shares(page: Page) -> dict[str, str]:
    """What the chart says of each word shown."""
    return dict(
        page.locator(f"{VIEW} tbody tr:not(.cut)").evaluate_all(
            "rows => rows.map(row => [row.firstChild.textContent, row.lastChild.textContent])"
        )
    )


def cuts(page: Page) -> list[str]:
    return page.locator(f"{VIEW} tr.cut[data-cut]").all_inner_texts()


def move(page: Page, ready) -> None:
    """Moves every slider, and compares the chart with the library."""
    ids = torch.tensor([ready.tokenizer.encode(PROMPT)])
    logits = ready.model(ids)[:, -1].detach()
    expect(page.locator(SAYS)).to_contain_text("345 of 345 words may be drawn")
    slide(page, "temperature", 1.5)
    slide(page, "top-k", 5)
    slide(page, "top-p", 0.7)
    slide(page, "min-p", 0.1)
    probs = next_token_probs(logits, 1.5, 6, 0.7, 0.1)[0]
    kept = {token: f"{probs[token]:.3f}" for token in probs.nonzero()[:, 0].tolist()}
    seen = {word: share for word, share in shares(page).items() if share not in ("cut",)}
    assert seen == {ready.tokenizer.decode([token]).strip(" "): share for token, share in kept.items()}
    assert [line.partition(":")[0] for line in cuts(page)] == ["top-p 0.70", "top-k 6"]
    expect(page.locator(SAYS)).to_contain_text(f"{len(kept)} of 345 words may be drawn")
    page.get_by_role("slider", name="temperature", exact=True).press("Home")
    expect(page.locator(SAYS)).to_contain_text("only the likeliest word may be drawn")
    assert cuts(page) == ["temperature 0: only the likeliest stays"]
    for name, off in (("temperature", 1), ("top-k", 15), ("top-p", 1), ("min-p", 0)):
        slide(page, name, off)
    expect(page.locator(SAYS)).to_contain_text("345 of 345 words may be drawn")
    assert cuts(page) == []


def table(V: int) -> list[dict]:
    """A hundred settings, corners included."""
    chance = random.Random(12)
    settings = [{"temperature": 0, "top_k": 3, "top_p": 0.5, "min_p": 0.5}]
    settings += [
        {"temperature": t, "top_k": k, "top_p": p, "min_p": m}
        for t, k, p, m in (
            (1, None, None, None),
            (1, 1, None, None),
            (0.05, None, 1, 0),
            (3, V, 0.01, None),
            (2, None, None, 1),
            (1, 9, 0.9, 0.3),
        )
    ]
    while len(settings) < 100:
        settings.append({
            "temperature": chance.choice([0, 0.3, 1, round(chance.uniform(0.05, 3), 2)]),
            "top_k": chance.choice([None, chance.randint(1, V), chance.randint(1, 20)]),
            "top_p": chance.choice([None, 1, round(chance.uniform(0.01, 1), 2)]),
            "min_p": chance.choice([None, 0, round(chance.uniform(0, 1), 2), 0.01]),
        })  # fmt: skip
    return settings


def test_the_script_computes_what_the_library_computes_ties_included(open_page):
    logits = torch.randn(3, 60, generator=torch.Generator().manual_seed(1)) * torch.tensor([[1.0], [4.0], [1.0]])
    logits[2] = logits[2].round()  # many are equal
    settings = table(60)
    module = source("sampling").replace("export default", "const view =")
    each = "rows.map(row => settings.map(each => nextTokenProbs(row, each).probs))"
    run = f"([rows, settings]) => {{ {module}\n return {each} }}"
    found = torch.tensor(open_page().evaluate(run, [logits.tolist(), settings]))  # (3, 100, V)
    expected = torch.stack([next_token_probs(logits, **each) for each in settings], dim=1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert ((found > 0) == (expected > 0)).all()


def test_in_jupyterlab_the_kernel_writes_on(open_lesson, tmp_path, sample, findings, ready):
    lab.refresh(sample, tmp_path / "work")
    lesson = open_lesson(tmp_path / "work", "12_sample.ipynb")
    lesson.run_all()
    assert lesson.errors() == []
    page = lesson.page
    page.locator(VIEW).wait_for()
    move(page, ready)
    page.get_by_role("button", name="Write one token").click()
    expect(page.locator(f"{VIEW} .text .shade")).to_have_count(1)
    page.get_by_role("button", name="Ten tokens").click()
    expect(page.locator(f"{VIEW} .text .shade")).to_have_count(11)
    assert words(page) == said(ready, written(ready, 11, 3))
    page.get_by_label("seed").fill("5")
    page.get_by_label("seed").press("Tab")
    expect(page.locator(f"{VIEW} .text .shade")).to_have_count(0)
    for _ in range(2):  # the same answer twice
        slide(page, "temperature", 2)
        page.get_by_role("button", name="Ten tokens").click()
        expect(page.locator(f"{VIEW} .text .shade")).to_have_count(10)
        assert words(page) == said(ready, written(ready, 10, 5, temperature=2.0))
        page.get_by_role("button", name="Begin again").click()
    page.get_by_role("button", name="Ten tokens").click()
    expect(page.locator(f"{VIEW} .text .shade")).to_have_count(10)
    slide(page, "top-p", 0.8)
    lesson.screenshots("sampling-lab")
    assert lesson.external == []
    assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_walks_along_the_stored_text_in_light_and_dark(open_page, findings, ready, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    move(page, ready)
    assert page.get_by_label("seed").count() == 0
    note = page.locator(f"{VIEW} .note")
    assert note.inner_text().startswith("The buttons show 12 words drawn beforehand (seed 3, temperature 1.00); ")
    page.get_by_role("button", name="Write one token").press("Enter")
    expect(page.locator(f"{VIEW} .text .shade")).to_have_count(1)
    page.get_by_role("button", name="Ten tokens").click()
    assert words(page) == said(ready, written(ready, 11, 3))
    page.get_by_role("button", name="One back").click()
    assert len(words(page)) == 10
    slide(page, "temperature", 1.3)
    slide(page, "top-p", 0.8)
    slide(page, "min-p", 0.1)
    assert findings(page) == []
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.locator(VIEW).screenshot(path=SCREENSHOTS / f"sampling-{scheme}.png")


def test_at_200_percent_the_page_does_not_move_sideways(open_page):
    page = open_page(viewport={"width": 640, "height": 800}, device_scale_factor=2)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    rights = "nodes => nodes.map(node => node.getBoundingClientRect().right)"
    assert max(page.locator(f"{VIEW} *:not(.unseen)").evaluate_all(rights)) <= 640
    page.locator(VIEW).screenshot(path=SCREENSHOTS / "sampling-zoomed.png")
