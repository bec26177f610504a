"""A model's page in a real browser, opened from disk: what it writes and shows is what the library computes."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from playwright.sync_api import Page, expect
from support.browser import SCREENSHOTS, assert_fits, findings
from support.models import scramble
from support.toys import evaluation_copy

from tinylm_classroom import export_page
from tinylm_classroom.shapes.capture import capture
from tinylm_lib import ModelConfig, TransformerLM, generate, storyworld
from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.text.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer

pytestmark = pytest.mark.browser

BEGINNING = "One sunny day, brave Mia"
LATER = "One foggy evening, clever Victor went to Foxhollow. She"
THINNEST = 0.12  # attention that the page draws
TEXT = "to be, or not to be: that is the question. Ça va 🙂\n"
OTHERS = {
    "chars": CharTokenizer.from_text(TEXT),
    "bytes": ByteTokenizer(),
    "bpe": BPETokenizer.from_text(TEXT * 3, vocab_size=290),
}
VIEW = ".tinylm-view.writer"
TOKENS, ROWS = f"{VIEW} .token", f"{VIEW} tbody tr:not(.empty, [hidden])"


@pytest.fixture(scope="module")
def address(ready, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "my_model.html"
    return export_page(ready.model, ready.tokenizer, path, title="Stories", beginning=f"\n{BEGINNING}").as_uri()


@pytest.fixture
def open_story(open_exported, address) -> Iterator[Callable[..., Page]]:
    """A function that opens the page of the shipped model and waits for its first probabilities."""
    complaints = []

    def open_story(**options) -> Page:
        page = open_exported(address, **options)
        page.on("console", lambda message: complaints.append(message.text))
        expect(page.locator(f"{VIEW} .say")).to_contain_text("345 words")
        return page

    yield open_story
    assert complaints == []


def half(model: TransformerLM) -> TransformerLM:
    """The model as a page has it."""
    return evaluation_copy(model).half().double()


def field(page: Page):
    return page.get_by_label("Begin a text")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def slide(page: Page, value: float) -> None:
    page.get_by_role("slider", name="temperature").fill(str(value))


def begin(page: Page, text: str) -> None:
    """Types a beginning of a story, and waits until its tokens are there and the next one is known."""
    field(page).fill(text)
    expect(page.locator(TOKENS)).to_have_count(len(storyworld.words(f"\n{text}")))
    expect(page.locator(f"{VIEW} .coming.on")).to_have_count(1)


GROW = """async ([one, tokens, n]) => {
  const count = () => document.querySelectorAll(tokens).length, until = performance.now() + 60000;
  const later = window.setTimeout;
  window.setTimeout = (then) => later(then); // how a token is drawn need not be seen
  for (let want = count() + 1, last = want + n; want < last; want++) {
    document.querySelector(one).click();
    while (count() !== want && performance.now() < until) await new Promise(requestAnimationFrame);
  }
  window.setTimeout = later;
}"""


def grow(page: Page, n: int) -> None:
    """Writes n tokens, one after the other."""
    one = f"{VIEW} .bar .plain"
    wanted = page.locator(TOKENS).count() + n
    expect(page.locator(one).first).to_be_enabled()
    page.evaluate(GROW, [one, TOKENS, n])
    expect(page.locator(TOKENS)).to_have_count(wanted)


def text_of(page: Page) -> str:
    """The text as the page shows it, without its signs for line ends."""
    parts = page.locator(f"{VIEW} .sheet > span:not(.coming)").evaluate_all("nodes => nodes.map(n => n.textContent)")
    return re.sub("^↵ ", "\n", "".join(parts)).replace("↵", "")


def bars(page: Page) -> list[list[str]]:
    return page.locator(ROWS).evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.textContent))")


def number(percent: str) -> float:
    return 0.0005 if percent.startswith("<") else float(percent.removesuffix("\u00a0%")) / 100


# What it computes


@pytest.mark.parametrize("temperature", [1, 0.5, 2])
def test_the_bars_are_the_probabilities_of_the_library_and_sum_to_1(open_story, ready, temperature):
    page = open_story()
    slide(page, temperature)
    ids = torch.tensor([ready.tokenizer.encode(f"\n{BEGINNING}")])
    probs = next_token_probs(half(ready.model)(ids)[:, -1].detach(), temperature)[0]
    order = probs.argsort(descending=True)[:8].tolist()
    named = {1: "model", 0.5: "model, T\u00a00.5", 2: "model, T\u00a02"}[temperature]
    expect(page.locator(f"{VIEW} thead .number").first).to_have_text(named)
    found = bars(page)
    assert [row[0] for row in found[:8]] == [ready.tokenizer.decode([token]).strip() for token in order]
    assert found[8][0] == "337 others"
    expected = [*probs[order].tolist(), 1 - probs[order].sum().item()]
    shown = [number(row[2]) for row in found]
    assert shown == pytest.approx(expected, abs=0.0006)
    assert sum(shown) == pytest.approx(1, abs=9 * 0.0005)
    widths = page.locator(f"{ROWS} .track i").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.width) / 100)")
    assert widths == pytest.approx(expected, abs=1e-4) and sum(widths) == pytest.approx(1, abs=1e-6)


def test_next_to_them_are_the_exact_probabilities_of_storyworld(open_story):
    page, reader = open_story(), storyworld.Reader()
    for word in storyworld.words(BEGINNING):
        reader.read(word)
    exact = {word.strip(): p for word, p in reader.next_word_probs().items()}
    assert {row[0]: number(row[3]) for row in bars(page)[:8]} == pytest.approx(exact, abs=0.0005)
    assert bars(page)[8][3] == "0\u00a0%"
    begin(page, f"{BEGINNING} ran to")
    reader.read(" ran"), reader.read(" to")
    exact = {word.strip(): p for word, p in reader.next_word_probs().items()}  # more places than bars
    found = bars(page)
    assert all(number(row[3]) == pytest.approx(exact[row[0]], abs=0.0005) for row in found[:8])
    assert number(found[8][3]) == pytest.approx(1 - sum(exact[row[0]] for row in found[:8]), abs=0.0005)
    begin(page, f"{BEGINNING} ran to Foxhollow.")
    assert bars(page)[0][0] == "She" and [row[3] for row in bars(page)] == ["100\u00a0%", *["0\u00a0%"] * 8]


def test_without_chance_it_writes_the_text_of_the_library(open_story, ready):
    page = open_story()
    begin(page, "One dark evening,")
    slide(page, 0)
    grow(page, 40)
    ids = torch.tensor([ready.tokenizer.encode("\nOne dark evening,")])
    tokens = generate(half(ready.model), ids, 40, temperature=0)[0].tolist()
    assert text_of(page) == ready.tokenizer.decode(tokens)
    expect(page.locator(f"{VIEW} .say")).to_have_text(
        re.compile(r"It drew .+ \(100\s%, exact .+\)\. Now the word after it:")
    )


def test_a_seed_gives_the_same_text_again_and_another_seed_another_one(open_story):
    page, texts = open_story(), []
    slide(page, 2)
    for seed in (7, 0, 7, 8):
        page.get_by_label("seed").fill(str(seed))
        page.get_by_label("seed").press("Tab")
        expect(page.locator(TOKENS)).to_have_count(7)
        grow(page, 12)
        texts.append(text_of(page))
    assert texts[0] == texts[2] != texts[3]


def test_a_new_story_has_the_next_seed_and_is_written_at_once(open_story):
    page = open_story()
    grow(page, 12)
    first = text_of(page)
    press(page, "New story")
    expect(page.get_by_label("seed")).to_have_value("1")
    expect(page.locator(TOKENS).nth(18)).to_be_visible()
    press(page, "Pause")
    assert not text_of(page).startswith(first)
    page.get_by_label("seed").fill("0")
    page.get_by_label("seed").press("Tab")
    grow(page, 12)
    assert text_of(page) == first
    expect(page.get_by_text("The same seed gives the same story.")).to_be_visible()


def test_threads_lead_to_what_the_last_layer_looks_at(open_story, ready):
    page = open_story()
    begin(page, LATER)
    ids = torch.tensor([ready.tokenizer.encode(f"\n{LATER}")])
    weights = capture(half(ready.model), ids).attention(2).weights[0, :, -1]  # -> (H, S)
    expected = {(head, place) for head, place in (weights >= THINNEST).nonzero().tolist()}

    def threads() -> set[tuple[int, int]]:
        paths = "paths => paths.map(path => [Number(path.dataset.head), Number(path.dataset.from)])"
        return {tuple(each) for each in page.locator(f"{VIEW} .threads path").evaluate_all(paths)}

    assert threads() == expected and len({head for head, _ in expected}) > 1
    for head in range(4):
        page.get_by_role("radio", name=str(head), exact=True).check(force=True)
        assert threads() == {each for each in expected if each[0] == head}


def test_words_that_determine_the_next_one_are_underlined(open_story):
    page = open_story()
    begin(page, LATER.removesuffix(" She"))
    told = page.locator(f"{VIEW} .token.told")
    assert told.all_inner_texts() == ["Victor"]  # whose pronoun comes next
    begin(page, "One foggy evening,")
    expect(told).to_have_count(0)  # any trait may come


def test_the_first_impossible_word_is_marked_and_named(open_story):
    page = open_story()
    say, wrong = page.locator(f"{VIEW} .say"), page.locator(f"{VIEW} .token.false")
    press(page, "One sunny day, brave kite")
    expect(say).to_contain_text("✗ kite cannot come here in any story: its exact probability is 0")
    assert wrong.all_inner_texts() == ["kite"]
    assert {row[3] for row in bars(page)} == {"unknown"}
    grow(page, 2)
    expect(say).to_contain_text("After kite, which no story continues with, exact probabilities do not exist. It drew ")
    assert {row[3] for row in bars(page)} == {"unknown"}
    assert wrong.all_inner_texts() == ["kite"]
    begin(page, LATER)  # the story's hero is a boy
    assert wrong.all_inner_texts() == ["She"]
    press(page, BEGINNING)
    expect(wrong).to_have_count(0)
    expect(page.locator(f"{VIEW} .coming.on")).to_have_count(1)
    assert number(bars(page)[0][3]) == 0.125


def test_looking_back_shows_what_the_model_expected_there(open_story, ready):
    page = open_story()
    begin(page, LATER)
    page.locator(TOKENS, has_text="Victor").click()
    ids = torch.tensor([ready.tokenizer.encode(f"\n{LATER}")])
    probs = half(ready.model)(ids[:, :6])[0, -1].softmax(-1)
    given = f"The model gives it a probability of {100 * probs[ids[0, 6]].item():.1f}\u00a0%; "
    says = f"{given}the exact probability is 2.5\u00a0%."
    expect(page.locator(f"{VIEW} .say")).to_contain_text(says)
    assert page.locator(f"{VIEW} .token.on").all_inner_texts() == ["Victor"]
    text = page.get_by_role("listbox")
    text.press("ArrowRight")
    expect(page.locator(f"{VIEW} .token.on")).to_have_text("went")
    press(page, "Back to the end")
    expect(page.locator(f"{VIEW} .coming.on")).to_have_count(1)
    expect(page.get_by_role("button", name="Back to the end")).to_be_hidden()
    expect(text).to_be_focused()
    text.press("ArrowLeft")
    expect(page.get_by_role("button", name="Back to the end")).to_be_visible()
    text.press("End")
    expect(page.locator(f"{VIEW} .coming.on")).to_have_count(1)
    grow(page, 1)  # the end, not the place that was looked at, is continued
    assert text_of(page).startswith(f"\n{LATER} ")


def test_a_bar_can_be_taken_instead_of_chance(open_story):
    page = open_story()
    press(page, "cycled")
    expect(page.locator(TOKENS)).to_have_count(8)
    assert text_of(page) == f"\n{BEGINNING} cycled"
    expect(page.locator(f"{VIEW} .coming.on")).to_have_count(1)
    name = bars(page)[0][0]
    page.locator(f"{VIEW} .track").first.click()  # all of a row is its button
    expect(page.locator(TOKENS).last).to_have_text(name)


@pytest.mark.parametrize("kind", OTHERS)
def test_every_tokenizer_writes_on_beyond_what_the_model_can_read(kind, open_exported, tmp_path):
    tokenizer = OTHERS[kind]
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24, "max_seq_len": 10}
    model = scramble(TransformerLM(ModelConfig(vocab_size=tokenizer.vocab_size, **sizes)), 0.4, seed=5)
    path = export_page(model, tokenizer, tmp_path / "page.html", beginning="to be, Ça")
    page = open_exported(path.as_uri())
    given = tokenizer.encode("to be, Ça")
    expect(page.locator(TOKENS)).to_have_count(len(given))
    slide(page, 0)
    ids = given[:]
    while len(ids) < 18:  # the page moves its window of 10 by 5
        window = ids[-(-(len(ids) - 10) // 5) * 5 :] if len(ids) > 10 else ids
        with torch.no_grad():
            ids.append(int(half(model)(torch.tensor([window]))[0, -1, : tokenizer.vocab_size].argmax()))
    grow(page, 18 - len(given))
    shown = tokenizer.decode(ids)
    assert text_of(page) == shown or (shown.startswith(text_of(page)) and shown.endswith("\ufffd"))
    assert page.locator(f"{VIEW} .unread").count() > 0


# What a visitor may type


@pytest.mark.parametrize(("text", "message", "instead"), [
    ("One 🙂", "The model knows only 345 words, and not “🙂”.", "One"),
    ("One sunny day, brave Zoe", "The model knows only 345 words, and not “Zoe”.", "One sunny day, brave"),
    ("Once upon a brave", "The model knows only 345 words, and not “Once”.", r"One \w+ \w+, brave"),
    ("Elsa gave a zebra", "The model knows only 345 words, and not “zebra”.", r"One \w+ \w+, \w+ Elsa .* a"),
    ("One sunny day, One", "The model knows “One” only without a blank before it: at the beginning of a story or",
     "One sunny day,"),
    ("One\t", "The model knows only 345 words, and not “⇥”.", "One"),
    ("<img src=x onerror=alert(1)>", "The model knows only 345 words, and not “<”.", ".*"),
    ("x" * 10_000, "The model knows only 345 words, and not “xxxxxxxxxxxxxxxxxxxx…”.", BEGINNING),
    ("</textarea><script>document.title='gone'</script>", "The model knows only 345 words, and not “<”.", ".*"),
], ids=["emoji", "other", "fable", "first", "later", "tab", "html", "long", "script"])  # fmt: skip
def test_what_the_model_does_not_know_is_said_and_it_begins_with_what_is_nearest(text, message, instead, open_story):
    page = open_story()
    field(page).fill(text)
    problem, near = page.locator(f"{VIEW} .problem"), page.locator(f"{VIEW} .near")
    expect(problem).to_contain_text(message)
    expect(near).to_have_text(re.compile(f"^{instead}$"))
    expect(field(page)).to_have_attribute("aria-invalid", "true")
    assert page.locator(f"{VIEW} :is(img, script)").count() == 0 and page.title() == "Stories"
    assert text_of(page) == f"\n{BEGINNING}"  # as it was
    for name in ("Write", "One word", "New story", "cycled"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_enabled()
    assert_fits(page, f"{VIEW} *:not(.unseen, .offers *)")
    found = near.inner_text()
    n = len(storyworld.words(f"\n{found}"))
    press(page, "One word")
    expect(page.locator(TOKENS)).to_have_count(n + 1)
    assert text_of(page).startswith(f"\n{found}") and field(page).input_value() == text
    near.click()
    expect(problem).to_have_text(f"The model reads this as {n} tokens.")
    assert field(page).input_value() == found
    grow(page, 1)


@pytest.mark.parametrize(("text", "read"), [
    ("one SUNNY day, brave mia", "One sunny day, brave Mia"), ("One sunny day,brave Mia", "One sunny day, brave Mia"),
    ("One sunny day ,", "One sunny day,"),
])  # fmt: skip
def test_other_letters_and_blanks_are_read_as_the_model_knows_them(text, read, open_story):
    page = open_story()
    begin(page, text)
    expect(page.locator(f"{VIEW} .problem")).to_have_text(re.compile(r"^The model reads this as \d tokens\.$"))
    assert text_of(page) == f"\n{read}" and page.locator(f"{VIEW} .near").count() == 0


def test_where_no_story_goes_on_so_the_nearest_one_that_does_is_offered(open_story):
    page = open_story()
    begin(page, "Mia had a kite")
    problem = "The model reads this as 5 tokens. No story has “Mia” there. Nearest that works:"
    expect(page.locator(f"{VIEW} .problem")).to_have_text(problem)
    assert text_of(page) == "\n Mia had a kite"
    page.locator(f"{VIEW} .near").click()
    assert re.fullmatch(r"One .* Mia .* had a \w+ kite", field(page).input_value())
    expect(page.locator(f"{VIEW} .token.false")).to_have_count(0)


def test_an_unknown_word_is_said_only_when_the_keys_rest(open_story):
    page = open_story()
    page.clock.install(time=0)
    page.clock.pause_at(60)  # typing takes no time, however busy the machine
    problem = page.locator(f"{VIEW} .problem")
    field(page).press("End")
    field(page).press_sequentially(" cycl")
    page.clock.run_for(600)
    assert problem.inner_text() == ""
    page.clock.run_for(200)
    assert problem.inner_text() == "The model knows only 345 words, and not “cycl”. Nearest that works:"
    expect(page.locator(f"{VIEW} .offers button")).to_have_text(["cycled"])
    field(page).press_sequentially("ed")
    assert problem.inner_text() == "The model reads this as 8 tokens."


def test_more_blanks_than_one_are_read_as_one(open_story):
    page = open_story()
    field(page).fill(" One  sunny   day, ")
    expect(page.locator(f"{VIEW} .problem")).to_have_text("The model reads this as 5 tokens.")
    expect(page.locator(TOKENS)).to_have_count(5)
    assert text_of(page) == "\nOne sunny day,"


def test_ten_thousand_characters_are_read_from_their_end(open_story):
    page = open_story()
    field(page).fill("One" + " brave" * 1700)
    n = 1 + 1 + 1700  # the line end comes first
    read = n - -(-(n - 128) // 64) * 64
    expect(page.locator(f"{VIEW} .problem")).to_have_text(
        f"The model reads this as {n:,} tokens, but sees only the last {read} of them. "
        "No story has “brave” there. Nearest that works:"
    )
    expect(page.locator(TOKENS)).to_have_count(read)
    grow(page, 2)


def test_an_empty_field_lets_the_model_begin(open_story):
    page = open_story()
    begin(page, "")
    expect(page.locator(f"{VIEW} .problem")).to_have_text(
        "The field is empty, so the model begins the text on its own."
    )
    grow(page, 1)
    assert text_of(page) == "\nOne"


def test_an_empty_beginning_has_a_button_with_a_name(open_exported, ready, tmp_path):
    page = open_exported(export_page(ready.model, ready.tokenizer, tmp_path / "page.html").as_uri())
    sample = page.locator("blockquote").inner_text()
    assert field(page).input_value() == " ".join(sample.split()[:5])
    begin(page, BEGINNING)
    press(page, "empty text")
    expect(page.locator(TOKENS)).to_have_count(1)
    expect(page.locator(f"{VIEW} .coming.on")).to_have_count(1)
    assert field(page).input_value() == "" and bars(page)[0][0] == "One"


def test_where_nothing_is_read_before_it_an_empty_field_is_a_mistake(open_exported, tmp_path):
    model = TransformerLM(ModelConfig(vocab_size=256, d_model=16, n_layers=1, n_heads=2, d_ff=24))
    page = open_exported(export_page(model, ByteTokenizer(), tmp_path / "page.html", beginning="a").as_uri())
    expect(page.locator(TOKENS)).to_have_count(1)
    field(page).fill("")
    field(page).press("Enter")
    expect(page.locator(f"{VIEW} .problem")).to_have_text("Type at least one byte.")
    field(page).fill("🙂")
    expect(page.locator(TOKENS)).to_have_count(4)
    assert page.locator(TOKENS).all_inner_texts() == ["", "", "", "🙂"]


# How it behaves


def test_it_writes_until_the_story_ends_and_nothing_moves_meanwhile(open_story):
    page, boxes = open_story(viewport={"width": 1280, "height": 800}), []
    parts = page.locator(f"{VIEW} :is(.text, .bar, .next, .say, table, .more)")
    places = "nodes => nodes.map(n => { const r = n.getBoundingClientRect(); return [r.x, r.y, r.width, r.height] })"
    begin(page, "One foggy day, wise Ben went to Hillcrest. He had a pink fan. There he met Tara, a poet with a blue")
    slide(page, 0)
    boxes.append(parts.evaluate_all(places))
    press(page, "Write")
    for n in (30, 40, 50, 60):
        page.wait_for_function("([tokens, n]) => document.querySelectorAll(tokens).length >= n", arg=[TOKENS, n])
        boxes.append(parts.evaluate_all(places))
    expect(page.get_by_role("button", name="Write", exact=True)).to_have_count(1)
    boxes.append(parts.evaluate_all(places))
    assert all(one == other for one, other in pairwise(boxes))
    text = text_of(page)
    assert text.endswith(" home.\n") and text.count("\n") == 2
    assert storyworld.parse(text.strip())


def test_it_can_be_paused_warmed_and_continued_while_it_writes(open_story):
    page = open_story()
    first_bar = page.locator(f"{VIEW} .track i").first
    expect(first_bar).to_have_css("transition-property", "width, left")
    slide(page, 0)
    press(page, "Write")
    expect(first_bar).to_have_css("transition-property", "all")  # no motion: the bars are those of the numbers
    page.wait_for_function("tokens => document.querySelectorAll(tokens).length > 10", arg=TOKENS)
    assert bars(page)[0][2] == "100\u00a0%"
    slide(page, 2)  # under the hand, while it writes
    expect(page.locator(f"{ROWS} .number").first).not_to_have_text("100\u00a0%")
    press(page, "Pause")
    n = page.locator(TOKENS).count()
    page.wait_for_timeout(500)
    assert page.locator(TOKENS).count() <= n + 1
    press(page, "Write")
    page.wait_for_function("([tokens, n]) => document.querySelectorAll(tokens).length > n + 2", arg=[TOKENS, n])
    field(page).fill("xyz")  # who types, stops it
    expect(page.get_by_role("button", name="Write", exact=True)).to_have_count(1)
    field(page).fill(BEGINNING)
    expect(page.locator(TOKENS)).to_have_count(7)


def test_the_keyboard_is_enough(open_story):
    page, seen = open_story(), []
    wanted = ["Pause", "One word", "New story", "seed", "temperature", "all"]
    focus = """() => {
      const node = document.activeElement, outline = (each) => getComputedStyle(each).outlineStyle;
      const name = node.ariaLabel || node.labels?.[0]?.textContent || node.textContent;
      return [name, [outline(node), outline(node.parentNode)].includes("solid")];
    }"""
    field(page).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Pause")).to_have_count(1)
    for _ in range(40):
        page.keyboard.press("Tab")
        name, is_visible = page.evaluate(focus)
        assert is_visible, name
        seen.append(name)
        if name == wanted[-1]:
            break
        if name == "Pause":
            page.keyboard.press("Space")
            expect(page.get_by_role("button", name="Write", exact=True)).to_be_focused()
    assert [name for name in seen if name in wanted] == wanted
    text = page.get_by_role("listbox")
    text.focus()
    text.press("ArrowLeft")
    expect(page.locator(f"{VIEW} .token.on")).to_have_count(1)
    assert text.get_attribute("aria-activedescendant") == page.locator(".token.on").get_attribute("id")


PLACES = """parts => parts.map(part => {
  const { left, top, right, bottom } = part.getBoundingClientRect();
  return { left, top, right, bottom };
})"""


def assert_in_window(page: Page, parts: str, n: int) -> None:
    """The first n of some parts of the page are in its window, after it has scrolled there."""
    size = page.viewport_size
    page.wait_for_function(
        "([parts, n]) => [...document.querySelectorAll(parts)].slice(0, n)"
        ".every(part => part.getBoundingClientRect().bottom <= innerHeight)",
        arg=[parts, n],
    )
    places = page.locator(parts).evaluate_all(PLACES)[:n]
    assert len(places) == n
    for place in places:
        assert 0 <= place["left"] < place["right"] <= size["width"]
        assert 0 <= place["top"] < place["bottom"] <= size["height"]


@pytest.mark.parametrize("height", [844, 620])  # 620: as much as the bars of a browser leave
def test_on_a_phone_the_text_and_four_bars_are_seen_while_it_writes(open_story, height):
    page = open_story(viewport={"width": 390, "height": height})
    press(page, "Write")
    expect(page.locator(TOKENS).nth(40)).to_be_visible()
    for parts, n in (".text", 1), (".bar button", 3), ("tbody tr", 4), (".coming", 1):
        assert_in_window(page, f"{VIEW} {parts}", n)
    press(page, "Pause")
    (text,), (bar, *_) = (page.locator(f"{VIEW} {part}").evaluate_all(PLACES) for part in (".text", ".track"))
    assert text["bottom"] - text["top"] == 190 and bar["right"] - bar["left"] == text["right"] - text["left"]
    buttons = page.locator(f"{VIEW} .bar button").evaluate_all(PLACES)
    assert len({button["top"] for button in buttons}) == 1
    knobs = page.locator(f"{VIEW} .knobs label").evaluate_all(PLACES)
    assert knobs[0]["right"] < knobs[1]["left"] and knobs[1]["top"] < knobs[0]["bottom"]
    assert field(page).bounding_box()["height"] < 50  # one line
    assert len(bars(page)) == 6 and sum(number(row[2]) for row in bars(page)) == pytest.approx(1, abs=6 * 0.0005)


def test_on_a_phone_a_table_without_exact_probabilities_has_the_width_of_the_window(open_exported, tmp_path):
    model = TransformerLM(ModelConfig(vocab_size=256, d_model=16, n_layers=1, n_heads=2, d_ff=24))
    path = export_page(model, ByteTokenizer(), tmp_path / "page.html", beginning="a")
    page = open_exported(path.as_uri(), viewport={"width": 390, "height": 844})
    slide(page, 0.35)
    expect(page.locator(f"{VIEW} thead .number")).to_have_text("model, T\u00a00.35")
    assert_fits(page, f"{VIEW} thead span")
    expect(page.get_by_text("Choose a byte of the text to see what was expected there")).to_be_visible()


def test_a_phone_that_is_turned_shows_more_bars(open_story):
    page = open_story(viewport={"width": 390, "height": 844})
    expect(page.locator(f"{ROWS}:visible")).to_have_count(6)
    page.set_viewport_size({"width": 844, "height": 390})
    expect(page.locator(f"{ROWS}:visible")).to_have_count(9)


def test_the_exact_probability_is_not_in_a_colour_of_a_head(open_story):
    page = open_story()
    begin(page, LATER.removesuffix(" She"))
    color = "node => getComputedStyle(node)"
    tick = page.locator(f"{VIEW} .track s").first.evaluate(f"{color}.backgroundColor")
    under = page.locator(f"{VIEW} .told").first.evaluate(f"{color}.borderBottomColor")
    assert tick == under == page.locator(VIEW).evaluate(f"{color}.color")
    press(page, "One sunny day, brave kite")
    expect(page.locator(f"{VIEW} .false")).to_have_count(1)
    page.locator(TOKENS).nth(2).click()
    wrong = page.locator(f"{VIEW} .token.false").evaluate(f"{color}.color")
    heads = page.locator(f"{VIEW} .segments label").evaluate_all(
        "labels => labels.map(label => getComputedStyle(label, '::after').backgroundColor)"
    )
    assert len({tick, wrong, *heads}) == 2 + len(heads)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_page_fits_and_has_no_barrier(open_story, width, scheme):
    page = open_story(viewport={"width": width, "height": 900}, color_scheme=scheme)
    begin(page, LATER)
    assert findings(page) == []
    page.locator(TOKENS).nth(5).click()
    expect(page.locator(f"{VIEW} .token.on")).to_have_count(1)
    field(page).fill("nothing")
    field(page).press("Enter")
    assert findings(page) == []
    assert_fits(page, f"{VIEW} *:not(.unseen, .begin button)")  # which move sideways in their row
    offers = page.locator(f"{VIEW} .begin > div:first-child button").all_inner_texts()
    assert sorted(offers, key=len) == offers
    cut = "names => names.filter(name => name.scrollWidth > name.clientWidth).map(name => name.textContent)"
    assert page.locator(f"{VIEW} th button").evaluate_all(cut) == []
    sizes = "nodes => nodes.map(node => parseFloat(getComputedStyle(node).fontSize))"
    assert min(page.locator(f"{VIEW} *:not(.unseen, svg *, [type=radio], [type=range])").evaluate_all(sizes)) >= 18
    page.screenshot(path=SCREENSHOTS / f"page-{width}-{scheme}.png", full_page=True)


def test_without_scripts_the_page_is_legible(chromium, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    seen = page.locator("main").inner_text()
    assert "A sample of its text is below." in seen and "654,656" in seen and " home." in seen
    context.close()
