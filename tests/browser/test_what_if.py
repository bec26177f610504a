"""The view of changes in JupyterLab and on a page of the site: each change by mouse and keys, and as a text."""

import random
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support.browser import OPENING, SCREENSHOTS, ZOOMED, assert_fits, enter, findings
from support.toys import evaluation_copy
from support.views import ask

from tinylm_classroom.course import site
from tinylm_classroom.course.cells import views_script
from tinylm_classroom.views.what_if import what_if

pytestmark = pytest.mark.browser

STORY = "\nOne foggy afternoon, careful Carlos came to Hillcrest. He had a pink kite. There"
LESSON = f"{OPENING}\n# %%\nfrom tinylm_classroom import what_if\n\nwhat_if(ready.model, ready.tokenizer, {STORY!r})"
VIEW = ".tinylm-view.what_if"
N_STATES = 30
ANSWERS = """async ([script, data, requests]) => {
  const answer = new Function(`${script}\nreturn (data) => answerOf(views["what_if"], data);`)()(data), found = [];
  for (const request of requests) found.push(await answer(request).catch(({ message }) => ({ error: message })));
  return found;
}"""


@pytest.fixture(scope="module")
def exported(sample) -> Path:
    """The lesson as a page of a site, which has the model."""
    return site.export(sample, sample.parent / "site")[0]


def after(page: Page) -> dict[str, str]:
    """The percentages after the changes, by word."""
    rows = page.locator(f"{VIEW} .next tbody tr")
    return dict(rows.evaluate_all("rows => rows.map(row => [row.cells[0].innerText, row.cells[3].innerText])"))


def expected(ready, state: str) -> dict[str, str]:
    rows = what_if(ready.model, ready.tokenizer, STORY, state).data["rows"]
    return {row[0]: f"{100 * row[2]:.1f} %" for row in rows}


def move(page: Page, ready) -> None:
    """Makes each kind of change, takes some back, and pastes a state."""
    view = page.locator(VIEW)
    assert after(page) == expected(ready, "")
    view.get_by_role("button", name="Carlos", exact=True).click()
    view.get_by_label("Carlos becomes").select_option("Mia")
    expect(view.locator(".changes")).to_contain_text("1 change")
    assert after(page) == expected(ready, "word 6 Mia")
    view.get_by_label("a head", exact=True).check(force=True)
    view.get_by_role("button", name="as it is").nth(6).focus()
    page.keyboard.press("Enter")
    expect(view.locator(".changes")).to_contain_text("head 2 of layer 1 is silent")
    expect(view.get_by_role("button", name="silent", exact=True)).to_be_focused()
    assert after(page) == expected(ready, "word 6 Mia; silence 1 2")
    view.get_by_role("button", name="take back: Carlos is now Mia").click()
    expect(view.locator(".changes")).to_contain_text("1 change")
    view.get_by_label("a part", exact=True).check(force=True)
    view.get_by_role("button", name="works").last.click()
    expect(view.locator(".changes")).to_contain_text("the feed-forward of layer 2 is stopped")
    view.get_by_label("a look", exact=True).check(force=True)
    view.locator(".sentence button.shade").nth(6).click()
    expect(view.locator(".changes")).to_contain_text("may not look at Carlos")
    expect(view.locator(".sentence .forbidden")).to_contain_text("forbidden")
    state = view.get_by_label("These changes as a line")
    expect(state).to_be_hidden()
    view.get_by_text("These changes as a line, to share").click()
    kept = state.input_value()
    assert kept.startswith("silence 1 2; stop 2 ffn; forbid ")
    assert after(page) == expected(ready, kept)
    view.get_by_role("button", name="Take all back").click()
    expect(view.locator(".changes")).to_contain_text("no changes")
    assert after(page) == expected(ready, "")
    state.fill("write 2 17 kite")
    state.press("Enter")
    expect(view.locator(".changes")).to_contain_text("unit 17 of layer 2 writes kite")
    assert after(page) == expected(ready, "write 2 17 kite")
    state.fill("silence 1")
    state.press("Enter")
    expect(view.locator("[role=alert]")).to_contain_text("silence 1 2")
    assert state.input_value() == "silence 1"  # so that it can be corrected
    assert after(page) == expected(ready, "write 2 17 kite")
    enter(view.get_by_label("Your own text"), "a zebra had a kite")
    expect(view.locator("[role=alert]")).to_contain_text("not “zebra”")
    state.fill("stop 1 ffn")  # what was refused is not asked again
    state.press("Enter")
    expect(view.locator(".changes")).to_contain_text("the feed-forward of layer 1 is stopped")
    assert after(page) == expected(ready, "stop 1 ffn")


def test_in_jupyterlab_each_change_is_made_and_taken_back(run_sample, ready):
    page = run_sample.page
    page.locator(VIEW).wait_for()
    move(page, ready)
    enter(page.get_by_label("Your own text"), "One cloudy day, wise Omar")
    expect(page.locator(f"{VIEW} .sentence > *")).to_have_count(8)
    run_sample.screenshots("what-if-lab")
    assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_the_site_computes_it_without_a_kernel(open_exported, exported, ready, scheme):
    page = open_exported(exported.as_uri(), color_scheme=scheme, reduced_motion="reduce")
    move(page, ready)
    assert findings(page) == []
    for kind in ("a word", "a look", "a head", "a part", "a unit"):
        page.locator(VIEW).get_by_label(kind, exact=True).check(force=True)
        page.locator(VIEW).screenshot(path=SCREENSHOTS / f"what-if-{kind.split()[1]}-{scheme}.png")


def test_the_page_answers_as_the_kernel(open_exported, exported, ready):
    page = open_exported(exported.as_uri())
    rounded = evaluation_copy(ready.model).half().float()  # as a page has the weights
    view = what_if(rounded, ready.tokenizer, STORY)
    data = what_if(ready.model, ready.tokenizer, STORY).data
    rng, T = random.Random(1), len(data["tokens"])
    layer, head, unit = (
        (lambda n: lambda: rng.randrange(n))(3),
        (lambda: rng.randrange(4)),
        (lambda: rng.randrange(320)),
    )
    query = rng.randrange(1, T)
    kinds = [
        lambda: f"word 6 {rng.choice(data['classes']['name'])}", lambda: f"silence {layer()} {head()}",
        lambda: f"forbid {layer()} {head()} {query} {rng.randrange(query)}", lambda: f"stop {layer()} ffn",
        lambda: f"write {layer()} {unit()} {rng.choice(data['classes']['thing'])}",
    ]  # fmt: skip
    states = ["; ".join(kind() for kind in rng.sample(kinds, rng.randrange(4))) for _ in range(N_STATES)]
    requests = [
        {"state": state, "look": [layer(), head(), rng.randrange(T)], "unit_layer": layer()} for state in states
    ]
    requests += [{"state": state} for state in ("silence 9 0", "word 6 xylophone", "silence 1", "word 99 Mia", "quiet")]
    requests += [{"state": "", "text": "One cloudy day, wise Omar"}, {"state": "", "text": ""}]
    page_answers = page.evaluate(ANSWERS, [views_script({"what_if"}), data, requests])
    for request, seen in zip(requests, page_answers, strict=True):
        kernel = ask(view, **request)
        assert bool(seen.get("error")) == bool(kernel["error"]), (request, seen)
        if kernel["error"]:
            continue
        for name in ("state", "tokens", "changed", "look", "unit_layer"):
            assert seen[name] == kernel[name], (request, name)
        assert seen["looks"] == pytest.approx(kernel["looks"], abs=1e-4)
        rows = {row[0]: row[1:] for row in kernel["rows"]}
        common = [row for row in seen["rows"] if row[0] in rows]  # the fifth and sixth may be alike, or just as rare
        assert len(common) >= len(rows) - 1
        for word, *probs in common:
            assert probs == pytest.approx(rows[word], abs=1e-4), (request, word)


def test_at_200_percent_the_page_does_not_move_sideways(open_exported, exported):
    page = open_exported(exported.as_uri(), **ZOOMED)
    assert_fits(page, VIEW)
    page.locator(VIEW).screenshot(path=SCREENSHOTS / "what-if-zoomed.png")
