"""The view of the residual stream: equal to what hooks catch in any architecture, and refused with advice."""

import pytest
import torch
from support.models import MODELS, scrambled, some_ids, tiny
from support.views import ask, shipped

from tinylm_classroom.views.residual import depths, residual_view
from tinylm_lib.text.tokenizers import ByteTokenizer

STORY = "\nOne sunny day, brave Mia had a red kite. She"


@pytest.fixture(scope="module")
def view():
    return residual_view(shipped().model, shipped().tokenizer, STORY)


def streams(model, ids):
    """What enters and leaves each block, and what its parts add, by hooks of our own: (1, T, C) each."""
    seen, hooks = {"stream": [], "attention": [], "ffn": []}, []
    hooks.append(model.blocks[0].register_forward_pre_hook(lambda module, args: seen["stream"].append(args[0])))
    for block in model.blocks:
        for name, part in (("attention", block.attention), ("ffn", block.ffn), ("stream", block)):
            hooks.append(part.register_forward_hook(lambda module, args, out, name=name: seen[name].append(out)))
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_each_depth_is_the_head_on_the_normed_stream_and_the_last_is_the_models_own_answer(name):
    model, ids = scrambled(tiny(name)), some_ids(1, 9)
    read, seen = depths(model, ids[0]), streams(model, ids)
    torch.testing.assert_close(read.probs[-1:], model(ids).softmax(-1))
    weight = (model.embed if model.config.tie_embeddings else model.lm_head).weight
    for depth, x in enumerate(seen["stream"]):
        expected = (model.final_norm(x) @ weight.T).softmax(-1)[0]
        torch.testing.assert_close(read.probs[depth], expected)
        torch.testing.assert_close(read.stream[depth], x[0].norm(dim=-1))
    for part in ("attention", "ffn"):
        torch.testing.assert_close(getattr(read, part), torch.cat(seen[part]).norm(dim=-1))


def test_the_data_name_the_best_five_and_follow_the_last_answer(view):
    ready, data = shipped(), view.data
    ids = torch.tensor(ready.tokenizer.encode(STORY))
    read = depths(ready.model, ids)
    assert [len(data[name]) for name in ("best", "last", "stream", "attention", "ffn")] == [4, 4, 4, 3, 3]
    for d in range(4):
        for t in range(len(ids)):
            shares, best = read.probs[d, t].sort(descending=True)
            assert data["probs"][d][t] == pytest.approx(shares[:5].tolist(), rel=1e-4)
            assert data["vocabulary"][data["best"][d][t][0]] == ready.tokenizer.decode([int(best[0])]).strip(" ")
            end = int(read.probs[-1, t].argmax())
            assert data["last"][d][t] == pytest.approx(read.probs[d, t, end].item(), rel=1e-4)
    normed = scrambled(tiny("modern", block="post_norm", vocab_size=256))
    assert not data["normed"] and residual_view(normed, ByteTokenizer(), "ab").data["normed"]


def test_it_begins_where_the_surest_readout_before_the_last_block_differs_from_the_answer(view):
    assert repr(view) == (
        "What the model would say at each depth, 3 blocks, 13 tokens. "
        "At “.”, after block 1, the model would say He with 0.95; in the end it says She with 1.00."
    )
    assert "He 0.95" in view.html and "She 1.00" in view.html
    assert "Each row is read with the final norm and the head, which were trained for the top row." in view.html


def test_a_kernel_reads_another_text_after_the_same_line_end_or_says_what_is_wrong():
    ready = shipped()
    asked = residual_view(ready.model, ready.tokenizer, STORY)
    data = ask(asked, text=" One day Mia ")
    assert data == residual_view(ready.model, ready.tokenizer, "\nOne day Mia").data | {"error": ""}
    assert data["tokens"] == ["↵", "One", "day", "Mia"]
    for text, message in (("One xylophone", "xylophone"), ("One" + " day" * 31, "1 to 32 tokens, not 33")):
        assert message in ask(asked, text=text)["error"] and asked.data["tokens"] == data["tokens"]


@pytest.mark.parametrize(
    ("text", "message"), [("", "not 0: take a longer"), ("a" * 17, "not 17: take a shorter piece")]
)
def test_too_few_and_too_many_tokens_are_refused(text, message):
    with pytest.raises(ValueError, match=f"shows 1 to 16 tokens, {message}"):
        residual_view(scrambled(tiny("modern", vocab_size=256)), ByteTokenizer(), text)
