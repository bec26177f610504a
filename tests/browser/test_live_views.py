"""Views that the page's own model answers where there is no kernel: the data that the kernel's answer would give."""

import base64
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect
from support.browser import OPENING, SCREENSHOTS, assert_fits, enter, findings
from support.toys import evaluation_copy
from support.views import ask, unpacked

from tinylm_classroom.course import site
from tinylm_classroom.course.cells import views_script
from tinylm_classroom.live.record import live_record
from tinylm_classroom.views.attention import attention_view
from tinylm_classroom.views.base import View
from tinylm_classroom.views.one_word import one_word
from tinylm_classroom.views.sampling import sampling_view
from tinylm_lib import TransformerLM, generate, storyworld
from tinylm_lib.probabilities import next_token_probs

pytestmark = pytest.mark.browser

STORY = "\nOne foggy afternoon, careful Carlos came to Hillcrest. He had a pink"
TEXT = "\nOne mild evening, kind Samir ran"
PROMPT = "\nOne sunny day, brave Mia"
LESSON = f"""{OPENING}
# %%
attention_view(ready.model, ready.tokenizer, {STORY!r}, layer=2)

# %%
one_word(ready.model, ready.tokenizer, {TEXT!r})

# %%
sampling_view(ready.model, ready.tokenizer, {PROMPT!r}, seed=3)

# %%
with torch.no_grad():
    ready.model.embed.weight[7] += 0.01
attention_view(ready.model, ready.tokenizer, {STORY!r})
"""
VIEWS = ("attention", "one_word", "sampling")
# What a visitor may type: beginnings of stories, no stories at all, what has no id, what is too long, and nothing.
BEGINNINGS = [text[: text.index(".") + 1] for text in storyworld.corpus(5, seed=21).strip().split("\n")]
TEXTS = [
    *BEGINNINGS, "One", "One day", "One rainy evening, shy", "One foggy day, careful Mia came to Hillcrest. She",
    "One.", ".", '"One day', "One kite kite kite", "One Jamal took the", "One day. He had a pink", "One, day, day",
    "One\nOne day", "  One day,  ", "One day, Mia had a kite.", "One day, kind Mia had",
    "One foggy evening, kind Mia ran to Hillcrest.\n", "the pink fan", "Jamal took the", "One stormy evening, shy Elsa",
]  # fmt: skip
STRANGE = [
    "", "   ", "One zeppelin", "🙂", "One 🙂🙂 day", "<b>One</b> day", "<img src=x onerror=alert(1)>", "漢字", "it's",
    'One "x\'s"', "One\u00a0day", "One\u200bday", "\x1cOne day,\x85", "\ufeffOne day", "\ud83d One",
    "One" + " day" * 2500, "x" * 10_000, "\\n", "One\x00day", "one day",
]  # fmt: skip
OFF = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": None}
ANSWERS = """async ([script, module, data, requests]) => {
  const answerOf = new Function(`${script}\nreturn (name, data) => answerOf(views[name], data);`)(), found = [];
  const answer = answerOf(module, data);
  for (const request of requests) found.push(await answer(request).catch(({ message }) => ({ error: message })));
  return found;
}"""


@pytest.fixture(scope="module")
def rounded(ready) -> TransformerLM:
    """The shipped model with its weights in half precision, as a page has them."""
    return evaluation_copy(ready.model).half().float()


@pytest.fixture(scope="module")
def exported(sample) -> Path:
    """The lesson as a page of a site, which has the model."""
    return site.export(sample, sample.parent / "site")[0]


@pytest.fixture
def open_site(open_exported, exported):
    """A function that opens this page."""
    return lambda **options: open_exported(exported.as_uri(), **options)


@pytest.fixture
def answers(open_site):
    """A function that asks a page what the kernel of a view is asked."""
    page = open_site()

    def answers(view: View, requests: list[dict]) -> list[dict]:
        script = views_script({view.module})
        return page.evaluate(ANSWERS, [script, view.module, view.data, requests])

    return answers


def kernel(view: View, requests: list[dict]) -> list[dict]:
    """What the kernel answers, or what it says is wrong."""
    found = []
    for request in requests:
        data = ask(view, **request)
        found.append({"error": data["error"]} if data["error"] else json.loads(json.dumps(data)))
    return found


def assert_packed_alike(seen: dict, expected: dict, rows: int) -> float:
    """The same numbers but for the rounding of their digits. Returns the largest difference, in units."""
    assert seen["places"] == expected["places"] and len(seen["units"]) == len(expected["units"])
    np.testing.assert_allclose(seen["units"], expected["units"], rtol=1e-4)
    units = torch.tensor(expected["units"])[:, None, None]
    apart = ((unpacked(seen, rows) - unpacked(expected, rows)) / units).abs().max().item()
    assert apart <= 1.3  # a step where a number lies between two, and the rounding of the unit
    return apart


@pytest.mark.parametrize("stored", [STORY, "\n Carlos had a pink fan."])
def test_attention_of_a_typed_text_is_what_the_kernel_answers(answers, rounded, ready, stored):
    view = attention_view(rounded, ready.tokenizer, stored, layer=2)
    requests = [{"text": text} for text in TEXTS + STRANGE] + [{"layers": [2, 0]}, {"text": "One day", "layers": [1]}]
    refused = told = 0
    for request, seen, expected in zip(requests, answers(view, requests), kernel(view, requests), strict=True):
        if "error" in seen:
            assert seen == expected, request
            refused += 1
            continue
        assert seen.keys() == {"tokens", "told", "layers"} and seen["layers"].keys() == expected["layers"].keys()
        assert (seen["tokens"], seen["told"]) == (expected["tokens"], expected["told"]), request
        for layer, parts in seen["layers"].items():
            for name, part in parts.items():
                assert_packed_alike(part, expected["layers"][layer][name], len(seen["tokens"]))
        told += any(seen["told"])
    assert refused == len(STRANGE) - 1 and told >= 3  # what Python strips from a text is stripped here, too


def test_the_film_of_a_typed_text_is_what_the_kernel_answers(answers, rounded, ready):
    view = one_word(rounded, ready.tokenizer, TEXT)
    requests = [{"typed": text} for text in TEXTS + STRANGE]
    told = 0
    for request, seen, expected in zip(requests, answers(view, requests), kernel(view, requests), strict=True):
        if "error" in seen:
            assert seen == {"error": expected["error"]}, request
            continue
        assert seen.keys() <= expected.keys() and seen["film"].keys() == expected["film"].keys()
        for name in ("text", "tokens", "ids", "open"):
            assert seen[name] == expected[name], (request, name)
        for name, part in expected["film"].items():
            if "digits" in part:
                assert_rounded_alike(seen["film"][name], part)
            else:
                np.testing.assert_allclose(seen["film"][name], part, rtol=1e-4, atol=1e-4, err_msg=name)  # 5 digits
        assert_words_alike(seen["best"], expected["best"])
        assert seen["race"]["words"] == expected["race"]["words"]
        assert worst(seen["race"]["probs"], expected["race"]["probs"]) < 1e-4
        bars, known = seen["bars"], expected["bars"]
        assert_rounded_alike([bars["logits"]], known["logits"])
        assert (bars["every"], bars["top"]) == (known["every"], known["top"])
        assert [bars["largest"], bars["all"]] == pytest.approx([known["largest"], known["all"]], rel=1e-4)
        for own, draw in zip(seen["draws"], expected["draws"], strict=True):
            assert [own[key] for key in ("u", "at", "id", "fits")] == [draw[key] for key in ("u", "at", "id", "fits")]
            assert own["before"] == pytest.approx(draw["before"], abs=1e-4)
            assert_words_alike(own["top"], draw["top"])
            told += draw["fits"] is not None
    assert told >= 4 * len(BEGINNINGS)


def assert_words_alike(seen: list, expected: list) -> None:
    """The same words, each with numbers that agree."""
    assert [word for word, *_ in seen] == [word for word, *_ in expected]
    for (_, *own), (_, *known) in zip(seen, expected, strict=True):
        assert own == pytest.approx(known, abs=1e-4)


def assert_rounded_alike(seen: list, kept: dict) -> None:
    """Rows of numbers are those that were packed, to half a step of each row."""
    units = torch.tensor(kept["units"]).double()[:, None, None]
    assert ((torch.tensor(seen).double()[:, None] - unpacked(kept, 1)) / units).abs().max() < 0.52


def worst(seen: list, expected: list) -> float:
    """The largest difference."""
    return (torch.tensor(seen) - torch.tensor(expected)).abs().max().item()


def test_what_is_written_has_the_probabilities_of_the_library_and_is_its_text_where_nothing_is_drawn(
    answers, rounded, ready
):
    view = sampling_view(rounded, ready.tokenizer, PROMPT, seed=3)
    greedy = [{"n": n, "begin": n == 9, "seed": 1, **OFF, "temperature": 0} for n in (9, 1, 30)]
    options = {"temperature": 1.4, "top_k": 50, "top_p": 0.9, "min_p": 0.01}
    drawn = [{"n": 8, "begin": True, "seed": 5, **OFF}, {"n": 10, "begin": False, "seed": 5, **options}]
    refused = [{"n": 43, "begin": False, "seed": 5, **OFF}]
    seen, expected = answers(view, greedy + drawn + refused + drawn), kernel(view, greedy + drawn + refused + drawn)
    assert [each.get("turn") for each in seen] == [1, 2, 3, 4, 5, None, 6, 7] and seen[5] == expected[5]
    for own, known in zip(seen[:3], expected[:3], strict=True):
        assert own["path"] == known["path"]
        torch.testing.assert_close(rows_of(own), rows_of(known), atol=1e-4, rtol=0)
    assert seen[6]["path"] == seen[3]["path"] == seen[4]["path"][:8] and seen[7]["path"] == seen[4]["path"]
    prompt, written = ready.tokenizer.encode(PROMPT), [token for token, _ in seen[4]["path"]]
    logits = rounded(torch.tensor([prompt + written]))[0, len(prompt) - 1 :].detach()
    torch.testing.assert_close(rows_of(seen[4]), logits, atol=1e-4, rtol=0)
    for place, (token, share) in enumerate(seen[4]["path"]):
        probs = next_token_probs(logits[place][None], **(OFF if place < 8 else options))
        assert share == pytest.approx(probs[0, token].item(), rel=1e-3) and share > 0


def rows_of(data: dict) -> torch.Tensor:
    """The logits that the view unpacks, (steps + 1, V)."""
    return torch.tensor(np.stack([np.frombuffer(base64.b64decode(row), "<f4") for row in data["logits"]]))


def view_of(page: Page, name: str, nth: int = 0):
    return page.locator(f".tinylm-view.{name}").nth(nth)


def type_texts(page: Page) -> None:
    """Types into the attention view and the film, by keyboard, what is read and what is not."""
    attention, film = view_of(page, "attention"), view_of(page, "one_word")
    field, words = attention.get_by_label("Your own text"), attention.locator(".sentence span")
    assert field.input_value() == STORY.strip()
    enter(field, "One foggy day, careful Mia came to Hillcrest. She had a pink fan. There she met Tom, a gardener with")
    expect(words).to_have_count(25)
    expect(field).to_be_focused()
    assert attention.locator("td.told").count() == 3
    attention.get_by_role("group", name="Layer").get_by_role("radio", name="0").check()
    enter(field, "<b onclick=alert(1)>One")
    expect(attention.get_by_role("alert")).to_contain_text("The model knows only 345 words, and not “<”. Try “")
    assert words.count() == 25 and page.locator("b[onclick]").count() == 0
    enter(field, "")
    expect(attention.get_by_role("alert")).to_have_text("the text is empty: type a text")
    enter(field, " One day, Mia had a kite. ")
    expect(words).to_have_text(["↵", "One", "day", ",", "Mia", "had", "a", "kite", "."])
    expect(attention.get_by_role("alert")).to_be_empty()
    field = film.get_by_label("Your own text")
    enter(field, "One day, Mia had a kite.")
    expect(film.locator("canvas")).to_have_attribute("aria-label", re.compile("The text"))
    expect(film.locator(".list")).to_contain_text("cut into 9 tokens")
    film.get_by_role("group", name="Open block").get_by_role("radio", name="0").check()
    expect(film.locator(".name")).to_contain_text("Block 0: norm")
    enter(field, "🙂")
    expect(film.get_by_role("alert")).to_contain_text("The model knows only 345 words, and not “🙂”. Try “")
    enter(field, "One day, Mia had a kite.")
    expect(film.get_by_role("alert")).to_be_empty()


def write_words(page: Page, ready) -> None:
    """Writes in the view of sampling, and begins again with another seed."""
    view = view_of(page, "sampling")
    words, ten = view.locator(".text .shade"), view.get_by_role("button", name="Ten tokens")
    view.get_by_role("slider", name="temperature", exact=True).fill("0")
    view.get_by_role("button", name="Write one token").press("Enter")
    expect(words).to_have_count(1)
    ten.click()
    expect(words).to_have_count(11)
    written = generate(ready.model, torch.tensor([ready.tokenizer.encode(PROMPT)]), 11, temperature=0)[0, -11:]
    assert words.all_inner_texts() == [ready.tokenizer.decode([token]).strip() for token in written.tolist()]
    expect(view.locator(".note")).to_contain_text("a seed gives other words here than in Python")
    for _ in range(5):
        expect(ten).to_be_enabled()
        ten.click()
    expect(view.get_by_role("alert")).to_contain_text("n must be from 1 to 9, since 51 of 60 tokens are written")
    view.get_by_role("slider", name="temperature", exact=True).fill("1")
    texts = []
    for seed in ("8", "9", "8"):
        view.get_by_label("seed").fill(seed)
        view.get_by_label("seed").press("Tab")
        expect(words).to_have_count(0)
        ten.click()
        expect(words).to_have_count(10)
        expect(ten).to_be_enabled()
        texts.append(words.all_inner_texts())
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_views_of_a_site_answer_by_themselves(open_site, ready, scheme):
    page = open_site(color_scheme=scheme, reduced_motion="reduce")
    type_texts(page)
    write_words(page, ready)
    assert page.get_by_label("Your own text").count() == 2, "a view of another model stays as it is"
    assert findings(page) == []
    for name in VIEWS:
        view_of(page, name).screenshot(path=SCREENSHOTS / f"live-{name}-{scheme}.png")


def test_they_fit_a_phone(open_site):
    page = open_site(viewport={"width": 390, "height": 844})
    enter(view_of(page, "attention").get_by_label("Your own text"), "One day, Mia had a kite.")
    expect(view_of(page, "attention").locator(".sentence span")).to_have_count(9)
    cell = view_of(page, "attention").locator("tbody td").last
    long = "Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
    enter(view_of(page, "attention").get_by_label("Your own text"), long)
    expect(view_of(page, "attention").locator(".sentence span")).to_have_count(17)
    assert_fits(page, ".tinylm-view.attention tbody td")
    assert cell.evaluate("cell => getComputedStyle(cell).fontSize") == "0px", "no numbers, but the label has them"
    view_of(page, "one_word").screenshot(path=SCREENSHOTS / "live-one_word-phone.png")
    assert_fits(page, ".tinylm-view form, .field, .stage")


def test_a_page_without_the_model_is_as_ever(open_exported, exported, tmp_path):
    page = open_exported(Path(shutil.copy(exported, tmp_path)).as_uri())
    expect(view_of(page, "sampling")).to_be_visible()
    assert page.get_by_label("Your own text").count() == 0 and page.get_by_label("seed").count() == 0
    assert page.get_by_role("button", name="One back").count() == 1


def test_the_weights_are_in_the_model_of_the_site_and_in_no_page(exported, ready):
    weights = live_record(ready.model, ready.tokenizer)["weights"]
    assert weights in exported.with_name(site.MODEL).read_text("utf-8")
    assert weights[:60] not in exported.read_text("utf-8")
