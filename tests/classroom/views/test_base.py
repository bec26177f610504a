"""Views: what their output carries, that it is the same on every run, and that their data hold what they show."""

import json
import re

import pytest
import torch
from support.models import scrambled, some_ids, tiny

from tinylm_lib.attention import causal_mask
from tinylm_lib.classroom.display.cards import number_table
from tinylm_lib.classroom.shapes.capture import capture
from tinylm_lib.classroom.views.attention import attention_view
from tinylm_lib.classroom.views.base import DIGITS, MIME, SCRIPTS, View, few_digits, packed, source
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.text.tokenizers import ByteTokenizer

WIDGET = "application/vnd.jupyter.widget-view+json"
TEXT = "her kite <b>"


@pytest.fixture(scope="module")
def model():
    return scrambled(tiny("modern", vocab_size=256))


@pytest.fixture(scope="module")
def view(model):
    return attention_view(model, ByteTokenizer(), TEXT, layer=1, head=2)


def bundle(view: View) -> dict:
    return view._repr_mimebundle_()[0]


def test_a_view_carries_what_lives_what_is_exported_a_picture_and_words(view):
    data = bundle(view)
    assert set(data) == {WIDGET, MIME, "text/html", "text/plain"}
    assert data[WIDGET]["model_id"] == view.model_id
    assert data[MIME] == {"module": "attention", "data": view.data}
    assert json.loads(json.dumps(data[MIME], allow_nan=False)) == data[MIME]


def test_its_static_form_survives_an_untrusted_notebook_and_says_what_is_seen(view):
    html = bundle(view)["text/html"]
    alt, caption = re.search(r'<img alt="([^"]+)"', html)[1], re.search(r"<figcaption[^>]*>([^<]+)<", html)[1]
    assert html.startswith("<figure") and "data:image/png;base64," in html
    assert alt.startswith("Heat map of the attention weights, query by row and key by column, from 0 to 1.")
    assert re.search(r"“&gt;” gives \d+ % of its attention to ", alt) and "hatched is masked" in caption
    assert not re.search(r"<(style|script|svg|b)\b|class=|\son\w+=|https?:", html)
    assert "<details>" in html and html.count("<table") == 2


def test_what_is_compared_is_the_same_for_the_same_model(view, model):
    again = bundle(attention_view(model, ByteTokenizer(), TEXT, layer=1, head=2))
    first = bundle(view)
    assert again[WIDGET] != first[WIDGET]
    assert {**again, WIDGET: None} == {**first, WIDGET: None}
    assert repr(view) == first["text/plain"] and " at 0x" not in repr(view)


def test_the_browser_module_is_inline_and_imports_nothing(view):
    assert view._esm.startswith(source("shared")) and view._esm.endswith(source("attention"))
    for path in SCRIPTS.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*import\b|\bimport\(|https?:|</script|fetch\(|innerHTML", text, re.M), path.name
        assert text.count("export default") == (path.stem != "shared"), path.name


def test_no_module_declares_a_name_that_all_share():
    declared = re.compile(r"^(?:const|let|class|function) (\w+)", re.M)
    shared = set(declared.findall(source("shared")))
    assert {"PALETTE", "make", "frame"} <= shared
    for path in SCRIPTS.glob("*.js"):
        if path.stem != "shared":
            assert not shared & set(declared.findall(source(path.stem))), path.name


def test_an_unknown_module_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no view module 'attend'; there are attention, "):
        View("attend", {}, html="", text="")


def test_numbers_are_stored_with_five_digits_and_shown_in_escaped_cells():
    assert few_digits(torch.tensor([[1 / 3, -12345678.0], [0.0, 2.0]]).double()) == [[0.33333, -12346000.0], [0.0, 2.0]]
    table = number_table(["key", "<i>"], [["Mia & Tom", "0.62"]])
    assert re.findall(r"<(t[hd])[^>]*>([^<]*)<", table) == [
        ("th", "key"), ("th", "&lt;i&gt;"), ("th", "Mia &amp; Tom"), ("td", "0.62")
    ]  # fmt: skip


# attention in stages


@pytest.mark.parametrize("name", ["modern", "gpt2", "tiny_transformer"])
def test_the_stored_q_k_and_v_hold_every_stage_of_every_head(name):
    model, ids = scrambled(tiny(name)), some_ids(1, 9)
    data = attention_view(model, Numbers(), ids, layer=1).data
    assert list(data["layers"]) == ["0", "1"]
    for layer in (0, 1):
        q, k, v = (unpacked(data["layers"][str(layer)][name], 9) for name in ("q", "k", "v"))
        k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
        stages = capture(model, ids).attention(layer)
        scaled = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~causal_mask(9), float("-inf"))
        torch.testing.assert_close(scaled.softmax(-1), stages.weights[0].double(), atol=4e-3, rtol=0)
        step = v.abs().max().item() / 31
        torch.testing.assert_close(scaled.softmax(-1) @ v, stages.mixed[0].double(), atol=0.55 * step, rtol=0)
    assert data["tokens"] == [f"w{token}" for token in ids[0].tolist()]


def unpacked(stored: dict, rows: int) -> torch.Tensor:
    """What `packed` wrote, read by its definition."""
    parts = []
    for unit, text in zip(stored["units"], stored["digits"], strict=True):
        pieces = [text[at : at + stored["places"]] for at in range(0, len(text), stored["places"])]
        whole = [sum(DIGITS.index(d) * 64**n for n, d in enumerate(reversed(piece))) for piece in pieces]
        parts.append((torch.tensor(whole).double() - 64 ** stored["places"] // 2) * unit)
    return torch.stack(parts).unflatten(1, (rows, -1))


@pytest.mark.parametrize(("places", "steps"), [(1, 31), (2, 2047)])
def test_packed_numbers_are_exact_to_half_a_step_of_the_largest(places, steps):
    values = (
        torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 100, 0])[:, None, None]
    )
    stored = packed(values, places)
    assert [len(text) for text in stored["digits"]] == [35 * places] * 3
    for read, part in zip(unpacked(stored, 5), values.double(), strict=True):
        assert (read - part).abs().max() <= 0.501 * part.abs().max() / steps + 1e-12


def test_a_model_whose_layers_are_too_large_stores_one_and_its_kernel_answers_for_the_others():
    model = scrambled(tiny("modern", vocab_size=256, n_layers=2, d_model=384, n_heads=6, n_kv_heads=6, d_head=64))
    view = attention_view(model, ByteTokenizer(), "sixteen letters!", layer=1)
    assert list(view.data["layers"]) == ["1"] and view.data["n_layers"] == 2 and view.live
    first = view.data["layers"]["1"]
    view._handle_custom_msg({"layers": [0, 1]}, [])
    assert list(view.data["layers"]) == ["0", "1"] and view.data["layers"]["1"] == first


def test_a_typed_text_begins_after_the_same_blanks_and_may_have_32_tokens(model):
    view = attention_view(model, ByteTokenizer(), "\n abc ", layer=1)
    assert view.data["text"] == "abc" and view.data["tokens"] == ["↵", "␣", "a", "b", "c", "␣"]
    view._handle_custom_msg({"text": " de "}, [])
    assert view.data["tokens"] == ["↵", "␣", "d", "e"] and list(view.data["layers"]) == ["0", "1"]
    before = view.data
    for text, message in {"x" * 31: "shows 2 to 32 tokens, not 33: take a shorter", "": "", "x" * 30: ""}.items():
        view._handle_custom_msg({"text": text}, [])
        assert view.data["error"].find(message) >= 0 and (
            not message or view.data == {**before, "error": view.data["error"]}
        )
    assert len(view.data["tokens"]) == 32
    view._handle_custom_msg({"text": "One foggy day"}, [])
    assert view.data["tokens"][:4] == ["↵", "O", "n", "e"] and len(view.data["tokens"]) == 14
    assert "text" not in attention_view(model, ByteTokenizer(), [97, 98, 99]).data


def test_a_story_carries_what_tells_its_next_words_and_the_lesson_s_text_fits_in_60_kb():
    shipped = load_pretrained("storyworld")
    story = "\nOne foggy afternoon, careful Carlos came to Hillcrest. He had a pink"
    view = attention_view(shipped.model, shipped.tokenizer, story, layer=2, head=2)
    assert view.data["told"] == [[]] * 10 + [[6]] + [[]] * 4 and view.data["tokens"][6] == "Carlos"
    assert re.search(r"ring marks the words that tell .* gives them 9\d % .* equal looking gives 9 %", view.html)
    text = "\n Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
    plain = attention_view(shipped.model, shipped.tokenizer, text, layer=2)
    assert plain.data["told"] == [] and "ring" not in plain.html.partition("<figcaption")[2].partition("<details")[0]
    assert len(plain.data["tokens"]) == 17 and len(plain.data["layers"]) == 3
    for each in (view, plain):
        assert len(json.dumps({**bundle(each), WIDGET: None})) <= 60_000


class Numbers:
    """A tokenizer that names each id."""

    def decode(self, tokens: list[int]) -> str:
        return " ".join(f"w{token}" for token in tokens)


def test_the_words_and_the_table_tell_the_weights(view, model):
    ids = torch.tensor([ByteTokenizer().encode(TEXT)])
    weights = capture(model, ids).attention(1).weights[0, 2]
    rows = re.findall(r"<tr>(.*?)</tr>", view.html)
    cells = [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in rows]
    T = len(TEXT)
    assert cells[0][1:] == ["h", "e", "r", "␣", "k", "i", "t", "e", "␣", "&lt;", "b", "&gt;"]
    assert [row[1:] for row in cells[1 : T + 1]] == [[f"{weights[i, j]:.2f}" for j in range(i + 1)] for i in range(T)]
    assert [row[3] for row in cells[T + 2 :]] == cells[T][1:]
    most, share = view.data["tokens"][weights[-1].argmax()], f"{100 * weights[-1].max():.0f} %"
    assert re.search(rf"“>” gives {share} of its attention to “?{most}”?\.$", repr(view))


def test_text_ids_and_a_batch_of_one_give_the_same(view, model):
    ids = ByteTokenizer().encode(TEXT)
    for given in (ids, torch.tensor(ids), torch.tensor([ids])):
        assert attention_view(model, ByteTokenizer(), given, layer=1, head=2).data | {"text": TEXT} == view.data


def test_a_line_end_and_a_blank_can_be_seen(model):
    assert attention_view(model, ByteTokenizer(), "\n \tb").data["tokens"] == ["↵", "␣", "⇥", "b"]


@pytest.mark.parametrize(
    ("text", "changed", "message"),
    [
        ("abc", {"layer": 2}, "layer 2 is none of the model's 2, which count from 0 to 1"),
        ("abc", {"layer": -1}, "layer -1 is none"),
        ("abc", {"head": 6}, "head 6 is none of the model's 6"),
        ("a", {}, "shows 2 to 17 tokens, not 1"),
        ("a" * 18, {}, "not 18: take a shorter piece"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_remedy(model, text, changed, message):
    with pytest.raises(ValueError, match=message):
        attention_view(model, ByteTokenizer(), text, **changed)


def test_a_kernel_answers_a_request_with_data_or_with_what_is_wrong():
    def answer(request: dict) -> dict:
        if request["text"] == "":
            raise ValueError("the text is empty; type a word")
        return {"n": len(request["text"])}

    view = View("attention", {"n": 0, "kept": 1}, html="", text="", answer=answer)
    assert view.live and not View("attention", {}, html="", text="").live
    view._handle_custom_msg({"text": "four"}, [])
    assert view.data == {"n": 4, "kept": 1, "error": ""}
    view._handle_custom_msg({"text": ""}, [])
    assert view.data == {"n": 4, "kept": 1, "error": "the text is empty; type a word"}


def test_a_views_script_is_at_most_40_kb_with_what_all_share():
    sizes = {path.stem: len((source("shared") + source(path.stem)).encode()) for path in SCRIPTS.glob("*.js")}
    assert max(sizes.values()) <= 40_000, sizes
