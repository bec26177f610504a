"""The view of changes: what hooks of our own find, texts that name them, and refusals with advice."""

import re

import pytest
import torch
from support.models import scrambled, tiny
from support.toys import evaluation_copy
from support.views import ask, shipped, stored, table_rows

from tinylm_classroom.views.what_if import EXAMPLES, Change, read_state, what_if
from tinylm_lib import storyworld
from tinylm_lib.text.cutting import words
from tinylm_lib.text.tokenizers import ByteTokenizer

STORY = "\nOne foggy afternoon, careful Carlos came to Hillcrest. He had a pink"


@pytest.fixture
def view():
    return what_if(shipped().model, shipped().tokenizer, STORY)


def next_probs(model, text: str) -> dict[str, float]:
    """The model's probability of each next word."""
    tokenizer = shipped().tokenizer
    with torch.no_grad():
        probs = model(torch.tensor([tokenizer.encode(text)]))[0, -1].softmax(-1)
    return {tokenizer.decode([token]).strip(" "): p for token, p in enumerate(probs.tolist())}


def assert_rows(rows: list, before: dict[str, float], after: dict[str, float]) -> None:
    for word, *probs, _, _ in rows:
        assert probs == pytest.approx([before[word], after[word]], abs=2e-5)
    for column, all_probs in ((1, before), (2, after)):
        best = [word for word in sorted(all_probs, key=all_probs.get)[-5:] if all_probs[word] > 5.1e-4]
        assert set(best) <= {row[0] for row in rows}
        assert max(rows, key=lambda row: row[column])[0] == best[-1]


def test_without_a_change_both_are_the_models_own_probabilities(view):
    probs = next_probs(shipped().model, STORY)
    assert_rows(view.data["rows"], probs, probs)
    assert len(view.data["rows"]) == 5 and view.data["state"] == ""


def test_a_silent_head_is_one_whose_columns_of_the_output_projection_are_zero(view):
    changed = evaluation_copy(shipped().model)
    D = changed.config.d_head
    with torch.no_grad():
        changed.blocks[1].attention.o_proj.weight[:, 2 * D : 3 * D] = 0
        changed.blocks[2].ffn.down_proj.weight[:] = 0
    data = ask(view, state="silence 1 2; stop 2 ffn")
    assert data["error"] == ""
    assert_rows(data["rows"], next_probs(shipped().model, STORY), next_probs(changed, STORY))


def test_an_exchanged_word_is_another_text_with_its_own_exact_probabilities(view):
    data = ask(view, state="word 6 Mia; word 11 She")
    other = STORY.replace("Carlos", "Mia").replace(" He ", " She ")
    assert data["changed"][6] == "Mia" and data["tokens"][6] == "Carlos"
    assert_rows(data["rows"], next_probs(shipped().model, STORY), next_probs(shipped().model, other))
    reader = storyworld.Reader()
    for word in words(other)[1:]:
        assert reader.read(word)
    exact = {word.strip(): p for word, p in reader.next_word_probs().items()}
    assert [row[4] for row in data["rows"]] == [exact.get(row[0], 0.0) for row in data["rows"]]


def test_it_opens_on_the_head_that_looks_most_at_one_word(view):
    layer, head, row = view.data["look"]
    T = len(view.data["tokens"])
    most = {(n, h): max(ask(view, look=[n, h, T - 1])["looks"][1:-1]) for n in range(3) for h in range(4)}
    assert row == T - 1 and most[layer, head] == max(most.values())


def test_where_no_story_begins_so_nothing_is_exact(view):
    data = ask(view, state="word 11 She")
    assert [row[3] is None for row in data["rows"]] == [False] * len(data["rows"])
    assert [row[4] for row in data["rows"]] == [None] * len(data["rows"])


def test_a_forbidden_look_has_no_weight_and_the_others_share_all_of_it(view):
    T = len(view.data["tokens"])
    look = [2, 1, T - 1]
    free = ask(view, look=look)["looks"]
    seen = max(range(T), key=free.__getitem__)
    data = ask(view, look=look, state=f"forbid 2 1 {T - 1} {seen}")
    assert data["looks"][seen] == 0 and sum(data["looks"]) == pytest.approx(1, abs=1e-4)
    expected = [0 if at == seen else x / (1 - free[seen]) for at, x in enumerate(free)]
    assert data["looks"] == pytest.approx(expected, abs=1e-3)


def test_a_mean_is_taken_over_texts_and_over_this_one_alone_it_changes_nothing():
    ready = shipped()
    alone = what_if(ready.model, ready.tokenizer, STORY, "mean 1 2; mean 0 3", texts=[STORY])
    for _, before, after, *_ in alone.data["rows"]:
        assert after == pytest.approx(before, abs=2e-3)  # the means are kept in half precision
    over_stories = what_if(ready.model, ready.tokenizer, STORY, "mean 2 2")
    assert over_stories.data["rows"] != alone.data["rows"]


def test_a_written_unit_adds_the_row_of_its_word(view):
    unit, value = view.data["units"][0]
    changed = evaluation_copy(shipped().model)
    token = shipped().tokenizer.encode(" kite")[0]
    with torch.no_grad():
        changed.blocks[2].ffn.down_proj.weight[:, unit] = changed.lm_head.weight[token]
    data = ask(view, state=f"write 2 {unit} kite")
    assert value != 0
    assert_rows(data["rows"], next_probs(shipped().model, STORY), next_probs(changed, STORY))


def test_the_picture_and_its_table_show_the_state_that_the_view_begins_with():
    ready = shipped()
    view = what_if(ready.model, ready.tokenizer, STORY, "silence 1 2;silence 1 2 ; stop 2 ffn")
    assert view.data["state"] == "silence 1 2; stop 2 ffn"
    bundle = stored(view)
    assert "head 2 of layer 1 is silent; the feed-forward of layer 2 is stopped" in bundle["text/plain"]
    rows = table_rows(bundle["text/html"])[1:]
    assert [row[0] for row in rows] == [row[0] for row in view.data["rows"]]
    assert [row[2] for row in rows] == [f"{100 * row[2]:.1f} %" for row in view.data["rows"]]
    assert len(re.sub("data:image[^\"']*", "", str(bundle))) < 60_000  # and no weights


def test_a_text_says_each_change_and_is_read_back():
    changes = [Change("word", (5,), "Mia;, x"), Change("forbid", (1, 2, 9, 4)), Change("stop", (0,), "attention")]
    state = "; ".join(map(str, changes))
    assert state == "word 5 Mia%3B%2C%20x; forbid 1 2 9 4; stop 0 attention"
    assert read_state(state) == changes
    assert [*map(str, read_state("word 6 Tom; stop 0 ffn; word 6 Elsa; stop 0 attention"))] == [
        "word 6 Elsa", "stop 0 ffn", "stop 0 attention",
    ]  # fmt: skip
    assert [str(change) for example in EXAMPLES.values() for change in read_state(example)] == [*EXAMPLES.values()]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("quiet 1 2", "a change begins with word, silence"),
        ("silence 1", "'silence 1' cannot be read: write it like 'silence 1 2'"),
        ("silence 1 2 3", "write it like 'silence 1 2'"),
        ("silence 1 -2", "write it like 'silence 1 2'"),
        ("silence 1 ²", "write it like 'silence 1 2'"),
        ("silence 9 0", "9"),
        ("mean 0 7", "head 7 is not one of the model's 4"),
        ("word 99 Mia", "position 99 is not one of the text's 15"),
        ("word 5 xylophone", "xylophone"),
        ("stop 0 norm", "norm"),
        ("forbid 0 0 3 5", "5"),
        ("write 0 999 kite", "999"),
        ("silence 1 2; mean 1 2", "2"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_the_rest_stays(view, state, says):
    before = dict(view.data)
    data = ask(view, state=state)
    assert says in data["error"]
    assert {**data, "error": ""} == {**before, "error": ""}
    with pytest.raises(ValueError, match=re.escape(says)):
        what_if(shipped().model, shipped().tokenizer, STORY, state)


def test_a_model_of_bytes_has_no_exact_probabilities_and_no_means_without_texts():
    model = scrambled(tiny("modern", vocab_size=256))
    view = what_if(model, ByteTokenizer(), "Hello", "word 1 a")
    assert view.data["changed"] == [*"Hallo"] and {row[3] for row in view.data["rows"]} == {None}
    with_means = what_if(model, ByteTokenizer(), "Hello", "mean 0 0", texts=["Hello you", "what is it"])
    assert with_means.data["rows"] != view.data["rows"]
    with pytest.raises(ValueError, match="texts must be a list of texts"):
        what_if(model, ByteTokenizer(), "Hello", texts="Hello you")
    with pytest.raises(TypeError, match="state must be a text"):
        what_if(model, ByteTokenizer(), "Hello", None)
    with pytest.raises(ValueError, match="1 to 32 tokens, not 33"):
        what_if(model, ByteTokenizer(), "x" * 33)
