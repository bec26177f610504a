"""All views: what their output carries, that it is small and the same on every run, and that their scripts fit."""

import json
import re

import pytest
import torch
from support.models import scrambled, tiny
from support.views import WIDGET, Numbers, ask, shipped, stored, unpacked

from tinylm_classroom.display.cards import number_table
from tinylm_classroom.display.figures import DARK_NOTEBOOK
from tinylm_classroom.live.record import live_record
from tinylm_classroom.views import base
from tinylm_classroom.views.attention import attention_view
from tinylm_classroom.views.base import MIME, SCRIPTS, SHARED, SHARED_WITH, View, few_digits, packed, source
from tinylm_classroom.views.cache import cache_view
from tinylm_classroom.views.memory import memory_view
from tinylm_classroom.views.one_word import one_word
from tinylm_classroom.views.patch import patch_view
from tinylm_classroom.views.predict import predict
from tinylm_classroom.views.residual import residual_view
from tinylm_classroom.views.rope import rope_view
from tinylm_classroom.views.sampling import sampling_view
from tinylm_classroom.views.softmax import softmax_view
from tinylm_classroom.views.token import token_view
from tinylm_classroom.views.watch import watch
from tinylm_classroom.views.watch_learning import watch_learning
from tinylm_classroom.views.what_if import what_if
from tinylm_lib import TransformerLM, preset
from tinylm_lib.text.tokenizers import ByteTokenizer

MODULES = sorted(path.stem for path in SCRIPTS.glob("*.js") if path.stem not in (SHARED, *SHARED_WITH.values()))
STORY = "\nOne mild evening, kind Samir ran to Northgate. He"
LOOKED_UP = "\n Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
SWAPPED = (LOOKED_UP, "\n Carlos had a gray fan. Jamal had a pink book. Jamal took the pink")
# what a whole page shows, too; all scenes of a film
LARGEST = {"attention": 40_800, "watch": 57_000, "watch_learning": 48_000, "one_word": 78_800}
MOST_STORED = {"one_word": 95_000}  # every number that a film draws
VIEWS = {
    "attention": lambda model, words: attention_view(model, words, LOOKED_UP, layer=2),
    "cache": lambda model, words: cache_view(preset("gpt2", "small"), ByteTokenizer(), "a" * 16),
    "memory": lambda model, words: memory_view(),
    "one_word": lambda model, words: one_word(model, words, STORY),
    "patch": lambda model, words: patch_view(model, words, SWAPPED[0], SWAPPED[1], ("fan", "book")),
    "what_if": lambda model, words: what_if(model, words, LOOKED_UP, "silence 2 0"),
    "predict": lambda model, words: predict("Is it <b>?", key=lambda: 2, number="a", within=0, because="It is."),
    "residual": lambda model, words: residual_view(model, words, f"{STORY} had a"),
    "rope": lambda model, words: rope_view(model, words, " Carlos thanked Jamal.", 2, 2, part="bank"),
    "sampling": lambda model, words: sampling_view(model, words, STORY, temperature=1.3, top_k=30, seed=3),
    "softmax": lambda model, words: softmax_view([12.6, 10.5, -0.5, 3.98], [" Jamal", " Carlos", "<b>", "."]),
    "token": lambda model, words: token_view({"a <b>": STORY}, [words, ByteTokenizer()]),
    "watch": lambda model, words: watch(model, words),
    "watch_learning": lambda model, words: watch_learning(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_small_the_same_on_every_run_and_survives_an_untrusted_notebook(name):
    first, again = (VIEWS[name](shipped().model, shipped().tokenizer) for _ in range(2))
    kept = stored(first)
    assert set(kept) == {MIME, "text/html", "text/plain"}
    assert kept[MIME] == {"module": name, "data": first.data}
    assert json.loads(json.dumps(kept[MIME], allow_nan=False))["module"] == name
    assert kept == stored(again) and len(json.dumps(kept)) <= MOST_STORED.get(name, 60_000)
    widgets = [view._repr_mimebundle_()[0][WIDGET]["model_id"] for view in (first, again)]
    assert widgets == [first.model_id, again.model_id] and widgets[0] != widgets[1]
    assert repr(first) == kept["text/plain"] and " at 0x" not in repr(first)
    assert not re.search(r"<(style|script|svg|b)\b|class=|\son\w+=|https?:", first.html.replace(DARK_NOTEBOOK, ""))
    if name != "predict":
        assert first.html.startswith("<figure") and "data:image/png;base64," in first.html and "<details>" in first.html
        assert all(
            re.search(pattern, first.html)[1].strip() for pattern in ('alt="([^"]+)"', "<figcaption[^>]*>([^<]+)<")
        )


@pytest.mark.parametrize("name", MODULES)
def test_a_script_is_inline_small_imports_nothing_and_declares_no_name_twice(name):
    shared, own = source("shared"), source(name)
    assert len((shared + own).encode()) <= LARGEST.get(name, 40_000)
    for text in (shared, own):
        assert not re.search(r"^\s*import\b|\bimport\(|https?:|</script|fetch\(|innerHTML", text, re.M)
    assert own.count("export default") == 1 and "export default" not in shared
    names = re.findall(r"^(?:const|let|function|class) (\w+)", f"{shared}\n{own}", re.M)
    assert {"PALETTE", "make", "frame"} <= set(names)
    assert len(names) == len(set(names)), sorted(each for each in names if names.count(each) > 1)
    assert View(name, {}, html="", text="")._esm == f"{shared}\n{own}"


def test_an_unknown_module_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no view module 'attend'; there are attention, "):
        View("attend", {}, html="", text="")


def test_numbers_are_stored_with_five_digits_and_shown_in_escaped_cells():
    assert few_digits(torch.tensor([[1 / 3, -12345678.0], [0.0, 2.0]]).double()) == [[0.33333, -12346000.0], [0.0, 2.0]]
    table = number_table(["key", "<i>"], [["Mia & Tom", "0.62"]])
    assert re.findall(r"<(t[hd])[^>]*>([^<]*)<", table) == [
        ("th", "key"), ("th", "&lt;i&gt;"), ("th", "Mia &amp; Tom"), ("td", "0.62")
    ]  # fmt: skip


@pytest.mark.parametrize(("places", "steps"), [(1, 31), (2, 2047)])
def test_packed_numbers_are_exact_to_half_a_step_of_the_largest(places, steps):
    sizes = torch.tensor([1.0, 100, 0])[:, None, None]
    values = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(1)) * sizes
    kept = packed(values, places)
    assert [len(text) for text in kept["digits"]] == [35 * places] * 3
    for read, part in zip(unpacked(kept, 5), values.double(), strict=True):
        assert (read - part).abs().max() <= 0.501 * part.abs().max() / steps + 1e-12


def test_a_token_can_be_seen_in_a_cell_and_in_a_sentence():
    assert [base.readable(token) for token in (" kite", "\n", " ", "\t", "a\nb")] == ["kite", "↵", "␣", "⇥", "a↵b"]
    assert [base.named(token) for token in ("kite", ".", "↵", "b2")] == ["kite", "“.”", "“↵”", "b2"]


def test_a_text_its_ids_and_a_batch_of_one_are_the_same_and_too_few_or_too_many_are_refused():
    ids = ByteTokenizer().encode("kite")
    for given in ("kite", ids, torch.tensor(ids), torch.tensor([ids])):
        assert base.ids_of(ByteTokenizer(), given, 4, 4).tolist() == ids
    for least, most, fix in ((5, 9, "take a longer one"), (0, 3, "take a shorter piece of the text")):
        with pytest.raises(ValueError, match=f"the view shows {least} to {most} tokens, not 4: {fix}"):
            base.ids_of(ByteTokenizer(), "kite", least, most)


def test_only_what_a_page_can_compute_with_is_recognized_by_it():
    words, model = shipped().tokenizer, shipped().model
    known = base.page_model(model, words)
    assert known == {"model": live_record(model, words)["fingerprint"]}
    for view in (attention_view, one_word, sampling_view):
        assert view(model, words, STORY).data["model"] == known["model"]
    gpt = TransformerLM(preset("gpt2", "small", vocab_size=345, d_model=12, n_layers=1))
    assert base.page_model(model, Numbers()) == base.page_model(gpt, words) == {}
    assert "model" not in attention_view(model, words, words.encode(STORY)).data


def test_a_kernel_answers_a_request_with_data_or_with_what_is_wrong():
    def answer(request: dict) -> dict:
        if request["text"] == "":
            raise ValueError("the text is empty; type a word")
        return {"n": len(request["text"])}

    view = View("attention", {"n": 0, "kept": 1}, html="", text="", answer=answer)
    assert view.live and not View("attention", {}, html="", text="").live
    assert ask(view, text="four") == {"n": 4, "kept": 1, "error": ""}
    assert ask(view, text="") == {"n": 4, "kept": 1, "error": "the text is empty; type a word"}


def test_no_text_ends_the_script_that_holds_it() -> None:
    data = {"story": "</script><b>"}
    assert "<" not in base.json_in_html(data) and json.loads(base.json_in_html(data)) == data


def test_a_kernel_sends_the_record_when_it_is_wanted_and_stores_it_nowhere() -> None:
    found = base.computable(shipped().model, shipped().tokenizer)
    view = View("attention", {"model": found["record"]["fingerprint"]}, html="", text="", record=lambda: found)
    sent = []
    view.send = sent.append
    view._handle_custom_msg({"wants": "record"}, [])
    assert [{"record", "stories", "engine"}] == [set(message) for message in sent]
    assert sent[0]["stories"] and "globalThis.tinylm = engine()" in sent[0]["engine"]
    assert json.loads(json.dumps(sent[0]))["record"] == found["record"]
    assert len(json.dumps(stored(view))) < 500 and found["record"]["weights"][:99] not in json.dumps(view.get_state())
    view._handle_custom_msg({"text": "a request that it does not answer"}, [])
    assert len(sent) == 1 and not view.live
    assert base.computable(scrambled(tiny("modern", vocab_size=256)), ByteTokenizer())["stories"] is None
