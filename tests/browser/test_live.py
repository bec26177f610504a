"""The engine of a page against the library: the same half-precision weights, computed by PyTorch in fp64."""

import base64
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import live
from playwright.sync_api import Browser, Page
from support.toys import evaluation_copy

from tinylm_classroom.live.film import film
from tinylm_classroom.live.record import live_record
from tinylm_classroom.live.scripts import engine_script
from tinylm_classroom.shapes.capture import capture
from tinylm_lib import ModelConfig, TransformerLM, generate, intervene, storyworld
from tinylm_lib.text.tokenizers import WordTokenizer

pytestmark = pytest.mark.browser

WORDS = WordTokenizer("a b c.")
CLOSE = 1e-4  # logits of a size of about 10 in fp32, with a few hundred rounded sums behind one another
EQUAL = 2e-4  # two logits that are as close may change their order
SIZES = {
    "vocab_size": 41, "max_seq_len": 150, "d_model": 20, "n_layers": 2, "n_heads": 6, "n_kv_heads": 3, "d_head": 8,
    "d_ff": 28,
}  # fmt: skip
STRETCHED = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_seq_len": 32}
CONFIGS = {
    "grouped": {},
    "interleaved": {"rope_layout": "interleaved"},
    "qk_norm": {"qk_norm": True, "rope_layout": "interleaved"},
    "one key per head": {"n_kv_heads": 6, "qk_norm": True},
    "one key for all": {"n_kv_heads": 1},
    "untied": {"tie_embeddings": False},
    "geglu": {"ffn": "geglu"},
    "rope_base": {"rope_base": 500.0, "max_seq_len": 90},
    "rope_scaling": {"rope_scaling": STRETCHED},
    "odd sizes": {"vocab_size": 17, "d_model": 19, "n_heads": 5, "n_kv_heads": 1, "d_head": 2, "d_ff": 13},
    "one layer, large eps": {"n_layers": 1, "norm_eps": 0.3, "qk_norm": True, "d_head": 6},
    "5 million": {"vocab_size": 349, "d_model": 256, "n_layers": 6, "n_heads": 8, "n_kv_heads": 8, "d_head": 32,
        "d_ff": 704, "qk_norm": True, "tie_embeddings": False},
}  # fmt: skip
READ_ALL = """ids => {
    const model = new tinylm.Model(record), rows = ids.map((id) => model.read(id)), V = rows[0].length;
    const all = new Float32Array(rows.length * V);
    rows.forEach((row, i) => all.set(row, i * V));
    return packed(all);
}"""
HELPERS = """
"use strict";
/** Base64 of numbers. */
function packed(values) {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}
/** Arrays of Float32Arrays as plain ones. */
const plain = (values) => Array.from(values, (each) => (typeof each === "number" ? each : plain(each)));
/** What a promise ends with: its value, or what is wrong. */
function outcome(promise) {
  const late = new Promise((_, reject) => setTimeout(reject, 60000, new Error("no answer")));
  return Promise.race([promise, late]).then(({ logits }) => plain(logits), ({ name, message }) => ({ name, message }));
}
"""


def unpacked(text: str, width: int) -> torch.Tensor:
    """What `packed` wrote, in rows of this width."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype="<f4").reshape(-1, width).copy()).double()


def random_model(seed: int = 1, **changes: object) -> TransformerLM:
    """A model with activations about as large as 1, where every gain counts."""
    model, generator = TransformerLM(ModelConfig(**{**SIZES, **changes})), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            size = 1 if name == "embed.weight" else p.shape[-1] ** -0.5
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(1 + 0.4 * noise if p.ndim == 1 else size * noise)
    return model


def oracle(model: TransformerLM) -> TransformerLM:
    """The model with its weights rounded to half precision, in fp64."""
    return evaluation_copy(model).half().double()


def random_ids(model: TransformerLM, n: int, seed: int = 3) -> list[int]:
    return torch.randint(model.config.vocab_size, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def logits(model: TransformerLM, ids: list[int]) -> torch.Tensor:
    """Of all positions, (T, V)."""
    with torch.no_grad():
        return model(torch.tensor([ids]))[0]


def worst(seen: object, expected: torch.Tensor) -> float:
    """The largest difference."""
    return (torch.as_tensor(seen, dtype=torch.float64) - expected).abs().max().item()


@pytest.fixture
def open_live(open_exported, tmp_path) -> Callable[..., Page]:
    """A function that opens a page with the scripts and the record of a model, from disk."""

    def open_live(model: TransformerLM, tokenizer: object = WORDS, policy: str = "", first: str = "") -> Page:
        record = json.dumps(live_record(model, tokenizer))
        path = Path(tmp_path / "live.html")
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
        scripts = [HELPERS, first, engine_script(), f"const record = {record};"]
        path.write_text(
            f'<!doctype html><meta charset="utf-8">{meta}<title>x</title>'
            + "".join(f"<script>{script}</script>" for script in scripts),
            encoding="utf-8",
        )
        return open_exported(path.as_uri())

    return open_live


# The forward pass


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_the_library_for_every_architecture(name, open_live):
    model = random_model(**CONFIGS[name])
    ids = random_ids(model, 40 if name == "5 million" else model.config.max_seq_len)
    expected = logits(oracle(model), ids)
    seen = unpacked(open_live(model).evaluate(READ_ALL, ids), model.config.vocab_size)
    print(f"{name}: {worst(seen, expected):.1e}, logits up to {expected.abs().max():.0f}")
    assert seen.shape == expected.shape and worst(seen, expected) < CLOSE


@pytest.mark.parametrize("name", CONFIGS)
def test_a_film_shows_what_the_library_computes_for_every_architecture(name, open_live):
    model = random_model(**CONFIGS[name])
    ids, page = random_ids(model, 9), open_live(model)
    read = """async ids => {
        const live = await tinylm.open(record);
        await live.read([...ids].reverse());
        const { film } = await live.read(ids, { film: true });
        return Object.fromEntries(Object.entries(film).map(([name, rows]) => [name, plain(rows)]));
    }"""
    seen = page.evaluate(read, ids)
    expected = film(oracle(model), torch.tensor(ids))
    assert seen.keys() == expected.keys()
    for part, values in expected.items():
        found = torch.tensor(seen[part])
        torch.testing.assert_close(found, values, atol=CLOSE, rtol=CLOSE, msg=lambda m, part=part: f"{part}: {m}")


@pytest.mark.slow
def test_the_shipped_model_reads_200_stories_like_the_library(ready, open_live):
    page, model = open_live(ready.model, ready.tokenizer), oracle(ready.model)
    differences = []
    for seed in range(200):
        story = "\n" + storyworld.story(torch.Generator().manual_seed(seed)).text
        ids = ready.tokenizer.encode(story)[: model.config.max_seq_len]
        differences.append(worst(unpacked(page.evaluate(READ_ALL, ids), model.config.vocab_size), logits(model, ids)))
    print(f"200 stories: {max(differences):.1e}")
    assert max(differences) < CLOSE


@pytest.mark.slow
def test_greedy_texts_are_those_of_the_library(ready, open_live):
    page, model = open_live(ready.model, ready.tokenizer), oracle(ready.model)
    stories = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(30)]
    prompts = torch.tensor([ready.tokenizer.encode("\n" + story)[:6] for story in stories])
    write = """([ids, n]) => {
        const model = new tinylm.Model(record);
        let logits;
        ids.forEach((id) => { logits = model.read(id); });
        while (ids.length < n) {
            ids.push(logits.indexOf(logits.reduce((a, b) => Math.max(a, b))));
            logits = model.read(ids.at(-1));
        }
        return ids;
    }"""
    expected, ties = generate(model, prompts, 100, temperature=0).tolist(), 0
    for prompt, text in zip(prompts.tolist(), expected, strict=True):
        seen = page.evaluate(write, [prompt, len(text)])
        if seen != text:
            at = next(i for i, (a, b) in enumerate(zip(seen, text, strict=True)) if a != b)
            best = logits(model, text[:at])[-1].topk(2).values
            assert best[0] - best[1] < EQUAL, (seen, text)
            ties += 1
    print(f"{ties} of {len(expected)} greedy texts part at two logits within {EQUAL}")


def test_what_a_view_shows_is_what_capture_catches(open_live):
    model = random_model(qk_norm=True, tie_embeddings=False)
    ids, wants = random_ids(model, 70), {"attention": True, "parts": True, "layers": True}
    read = """async ([ids, wants]) => {
        const live = await tinylm.open(record), found = await live.read(ids, wants);
        return Object.fromEntries(Object.entries(found).map(([name, values]) => [name, plain(values)]));
    }"""
    page = open_live(model)
    seen, caught = page.evaluate(read, [ids, wants]), capture(oracle(model), torch.tensor([ids]))
    assert {*seen} == {"logits", "attention", "queries", "keys", "values", "stream", "layers"}
    for layer in range(2):
        stages, name = caught.attention(layer), f"blocks.{layer}.attention"
        for head in range(6):
            for row, weights in enumerate(seen["attention"][layer][head]):
                assert worst(weights, stages.weights[0, head, row, : row + 1]) < CLOSE
        assert worst(seen["queries"][layer], stages.q[0]) < CLOSE
        assert worst(seen["keys"][layer], caught.outputs[f"{name}.rotation.k"][0]) < CLOSE
        assert worst(seen["values"][layer], stages.v[0, ::2]) < CLOSE
    places = [caught.inputs["blocks.0"], caught.outputs["blocks.0"], caught.outputs["blocks.1"]]
    for place, stream in enumerate(places):
        assert worst(seen["stream"][place], stream[0]) < CLOSE
        with torch.no_grad():
            assert worst(seen["layers"][place], caught.model.lm_head(caught.model.final_norm(stream[0, -1]))) < CLOSE
    assert seen["logits"] == seen["layers"][-1] and worst(seen["logits"], caught.logits[0, -1]) < CLOSE
    assert {*page.evaluate(read, [ids, {}])} == {"logits"}
    last = page.evaluate(read, [ids, {**wants, "rows": 2}])
    for name in ("attention", "queries", "keys", "values"):
        assert last[name] == [[rows[-2:] for rows in layer] for layer in seen[name]]
    assert last["stream"] == [rows[-2:] for rows in seen["stream"]] and last["layers"] == seen["layers"]


def test_what_was_cut_is_forgotten_and_can_be_read_again(open_live):
    model = random_model(qk_norm=True)
    first, second = random_ids(model, 70), random_ids(model, 70, seed=4)
    seen = open_live(model).evaluate(
        """([first, second]) => {
            const model = new tinylm.Model(record), read = (ids) => ids.map((id) => plain(model.read(id)));
            const before = read(first);
            model.cut(23);
            const others = read(second.slice(23));
            model.cut(23);
            model.cut(99);
            const length = model.ids.length;
            return { before, others, length, again: read(first.slice(23)), ids: model.ids };
        }""",
        [first, second],
    )
    assert seen["again"] == seen["before"][23:] and seen["length"] == 23 and seen["ids"] == first
    assert worst(seen["others"], logits(oracle(model), first[:23] + second[23:])[23:]) < CLOSE


# What is changed of a model


CHANGED = ["one key per head", "untied", "geglu", "interleaved"]
READ_CHANGED = """async (all) => {
    const live = await tinylm.open(record), seen = [];
    for (const [ids, changes] of all) seen.push(plain((await live.read(ids, { changes, layers: true })).layers));
    return seen;
}"""


def random_changes(config: ModelConfig, n: int, rng: random.Random) -> dict[str, list[list]]:
    """Some changes of each kind, or none, for texts of n tokens."""
    L, H, D = config.n_layers, config.n_heads, config.d_head
    heads = rng.sample([(layer, head) for layer in range(L) for head in range(H)], rng.randrange(6))
    units = rng.sample([(layer, unit) for layer in range(L) for unit in range(config.d_ff)], rng.randrange(5))
    silent = rng.randrange(len(heads) + 1)
    queries, deaf, last = rng.choices(range(n), k=9), rng.randrange(H), rng.randrange(n)
    looks = [[rng.randrange(L), rng.choice([None, *range(H)]), query, rng.randint(0, query)] for query in queries]
    looks += [[0, deaf, last, key] for key in range(last + 1)]  # no key is left
    return {
        "silence": [list(head) for head in heads[:silent]],
        "means": [[*head, [[rng.gauss(0, 1) for _ in range(D)] for _ in range(n)]] for head in heads[silent:]],
        "forbid": looks[: rng.choice([0, 9, None])],
        "stop": [[rng.randrange(L), part] for part in ("attention", "ffn") if rng.random() < 0.2],
        "write": [[*unit, rng.randrange(config.vocab_size)] for unit in units],
    }


def of_library(changes: dict[str, list[list]]) -> dict[str, object]:
    """The same changes as `intervene` takes them."""
    means = {(layer, head): torch.tensor(rows, dtype=torch.float64) for layer, head, rows in changes.get("means", [])}
    return {**{kind: list(map(tuple, all)) for kind, all in changes.items()}, "means": means}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_model_reads_like_the_librarys(name, open_live):
    """200 changes together; the log-probabilities of the next token, and those of the stream at every depth."""
    model, rng, cases, worsts = random_model(**CONFIGS[name]), random.Random(5), [], []
    for i in range(50):
        cases.append([random_ids(model, n := rng.randint(1, 30), seed=i), random_changes(model.config, n, rng)])
    seen, right = open_live(model).evaluate(READ_CHANGED, cases), oracle(model)
    n_moved = 0
    for (ids, changes), layers in zip(cases, seen, strict=True):
        with intervene(right, **of_library(changes)):
            caught = capture_stream(right, ids)
            expected = torch.stack([right.unembed(right.final_norm(x)) for x in caught]).log_softmax(-1)
        found = torch.tensor(layers, dtype=torch.float64).log_softmax(-1)
        worsts.append(worst(found, expected))
        n_moved += worst(logits(right, ids)[-1].log_softmax(-1), expected[-1]) > 100 * CLOSE
    print(f"{name}: {max(worsts):.1e} nats at most, in {len(cases)} changes, of which {n_moved} move the prediction")
    assert max(worsts) < CLOSE and n_moved > 0.8 * len(cases)


def capture_stream(model: TransformerLM, ids: list[int]) -> list[torch.Tensor]:
    """The stream (C) of the last token, before each block and after the last."""
    caught = []
    hooks = [block.register_forward_pre_hook(lambda _, args: caught.append(args[0][0, -1])) for block in model.blocks]
    hooks.append(model.blocks[-1].register_forward_hook(lambda _, args, output: caught.append(output[0, -1])))
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    return caught


@pytest.mark.parametrize("place", ["a worker", "no worker"])
def test_changed_and_unchanged_reads_of_one_text_take_turns(place, open_live):
    model = random_model()
    ids, changes = random_ids(model, 20), {"silence": [[1, 2]], "forbid": [[0, None, 19, 3]], "write": [[1, 4, 5]]}
    begin, stop = ids[:18], {"stop": [[0, "ffn"]]}
    texts = [[begin, None], [ids, None], [begin, changes], [ids, changes], [ids, stop], [ids, None]]
    seen = open_live(model, **PLACES[place]).evaluate(
        """async (texts) => {
            const live = await tinylm.open(record), seen = [];
            for (const [ids, changes] of texts) seen.push(await outcome(live.read(ids, changes ? { changes } : {})));
            return seen;
        }""",
        texts,
    )
    right = oracle(model)
    for (read, asked), row in zip(texts, seen, strict=True):
        with intervene(right, **of_library(asked or {})):
            assert worst(row, logits(right, read)[-1]) < CLOSE


def test_the_weights_of_attention_and_the_stream_are_those_of_the_changed_model(open_live):
    model = random_model(qk_norm=True)
    ids = random_ids(model, 9)
    changes = {"silence": [[1, 2]], "forbid": [[1, 4, 5, 1], [1, None, 8, 8], *([1, 0, 3, key] for key in range(4))],
        "write": [[1, 4, 5]]}  # fmt: skip
    seen = open_live(model).evaluate(
        """async ([ids, wants]) => {
            const live = await tinylm.open(record), { attention: looks, film } = await live.read(ids, wants);
            return { looks: plain(looks), stream: plain(film.stream) };
        }""",
        [ids, {"changes": changes, "attention": True, "film": True}],
    )
    for head, query, keys in ((4, 5, [1]), (0, 8, [8]), (5, 8, [8]), (0, 3, [0, 1, 2, 3])):
        row = seen["looks"][1][head][query]
        assert [key for key, weight in enumerate(row) if weight == 0] == keys
        assert math.isclose(sum(row), 0 if len(keys) == 4 else 1, abs_tol=1e-6)
    right = oracle(model)
    with intervene(right, **of_library(changes)):
        caught = capture(right, torch.tensor([ids]))
    stream = torch.tensor(seen["stream"], dtype=torch.float64)  # after the embedding, each attention, each feed-forward
    for name, depth in (("attention", 3), ("ffn", 4)):
        added = (stream[depth] - stream[depth - 1]).tolist()
        assert worst(added, caught.outputs[f"blocks.1.{name}"][0]) < CLOSE
    assert worst(seen["stream"][4], caught.outputs["blocks.1"][0]) < CLOSE


WRONG_CHANGES = {
    "{ silence: [[2, 0]] }": "change silence 2 0", "{ silence: [[0, 6]] }": "change silence 0 6",
    "{ silence: [[0, null]] }": "change silence 0 null", "{ silence: [['1', 0]] }": "change silence 1 0",
    "{ silence: [1, 2] }": "not iterable", "{ silent: [[0, 1]] }": "change silent 0 1",
    "{ forbid: [[0, 0, 2, 3]] }": "change forbid 0 0 2 3", "{ forbid: [[0, null, 150, 3]] }": "forbid 0 null 150 3",
    "{ forbid: [[0, NaN, 1, 0]] }": "change forbid 0 NaN 1 0", "{ stop: [[0, 'mlp']] }": "change stop 0 mlp",
    "{ write: [[0, 28, 1]] }": "change write 0 28 1", "{ write: [[0, 2, 41]] }": "change write 0 2 41",
    "{ write: [[0, 2, 4], [0, 2, 5]] }": "change write 0 2 5 is the second",
    "{ silence: [[0, 2]], means: [[0, 2, [new Float32Array(8)]]] }": "change means 0 2 is the second",
    "{ means: [[0, 2, [new Float32Array(7)]]] }": "change means 0 2:", "{ means: [[0, 2, []]] }": "change means 0 2:",
    "{ means: [[0, 2]] }": "change means 0 2:",
    "{ means: [[0, 2, [new Float32Array(8)]]] }": "means of head 2 have 1 rows, too few for position 1",
}  # fmt: skip


@pytest.mark.parametrize("place", ["a worker", "no worker"])
def test_changes_that_a_model_cannot_make_are_named_and_the_next_text_is_read(place, open_live):
    model = random_model()
    seen = open_live(model, **PLACES[place]).evaluate(
        f"""async () => {{
            const live = await tinylm.open(record), seen = [];
            for (const changes of [{", ".join(WRONG_CHANGES)}]) {{
                seen.push(await outcome(live.read([3, 5], {{ changes }})), await outcome(live.read([3, 5])));
            }}
            return seen;
        }}"""
    )
    for error, row, said in zip(seen[::2], seen[1::2], WRONG_CHANGES.values(), strict=True):
        assert said in error["message"] and error["name"] in ("Error", "TypeError")
        assert worst(row, logits(oracle(model), [3, 5])[-1]) < CLOSE


# What a page talks to


PLACES = {
    "a worker": {},
    "no worker": {"first": "delete globalThis.Worker;"},
    "a policy against workers": {"policy": "worker-src 'none'"},
    "a worker that fails": {"first": "globalThis.Worker = class { terminate() {} set onerror(f) "
        "{ setTimeout(() => f({ message: 'x', preventDefault() {} })); } postMessage() {} };"},
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_texts_grow_change_and_slide_beyond_what_the_model_can_read(place, open_live):
    model = random_model(max_seq_len=30)
    ids, others = random_ids(model, 75), random_ids(model, 75, seed=4)
    texts = [ids[:1], ids[:9], ids[:9], ids[:4], [*ids[:4], *others[:9]], ids[:30], *(ids[:n] for n in range(31, 75))]
    seen = open_live(model, **PLACES[place]).evaluate(
        """async (texts) => {
            const live = await tinylm.open(record), seen = [];
            for (const ids of texts) seen.push(await outcome(live.read(ids)));
            return seen;
        }""",
        texts,
    )
    for ids, row in zip(texts, seen, strict=True):
        assert worst(row, logits(oracle(model), ids[-30:])[-1]) < CLOSE


WRONG = {
    "[]": "nothing to read", "[3, 41]": "id 41 is outside 0..40", "[3, -1]": "id -1 is", "[1.5]": "id 1.5 is",
    "[NaN]": "id NaN is", "['3']": "id 3 is", "[undefined]": "id undefined is", "[null]": "id null is",
    "undefined": "is not iterable",
}  # fmt: skip


@pytest.mark.parametrize("place", ["a worker", "no worker"])
def test_what_cannot_be_read_is_refused_and_the_next_text_is_read(place, open_live):
    model = random_model()
    seen = open_live(model, **PLACES[place]).evaluate(
        f"""async () => {{
            const live = await tinylm.open(record), seen = [];
            for (const ids of [{", ".join(WRONG)}]) seen.push(await outcome(live.read(ids)));
            return [await outcome(live.read([3, 5])), ...seen];
        }}"""
    )
    assert worst(seen[0], logits(oracle(model), [3, 5])[-1]) < CLOSE
    for error, said in zip(seen[1:], WRONG.values(), strict=True):
        assert said in error["message"] and error["name"] in ("Error", "TypeError")


@pytest.mark.parametrize("place", ["a worker", "no worker"])
def test_a_damaged_record_is_refused(place, open_live):
    seen = open_live(random_model(), **PLACES[place]).evaluate(
        """async () => {
            const records = [{ ...record, weights: record.weights.slice(8) }, { ...record, weights: "<b>" }, {}];
            const opened = await Promise.allSettled(records.map((each) => tinylm.open(each)));
            return opened.map(({ reason }) => String(reason));
        }"""
    )
    n = sum(p.numel() for p in random_model().parameters())
    assert seen[0] == f"Error: The model needs {n} weights, and its record has {n - 3}."
    assert "InvalidCharacterError" in seen[1] and "TypeError" in seen[2]


def test_a_newer_read_replaces_the_older_ones_of_the_same_asker(open_live):
    model = random_model()
    ids = random_ids(model, 60)
    replacing = """async (ids) => {
        const live = await tinylm.open(record);
        const first = live.read(ids, { attention: true }), other = live.read(ids.slice(7), { by: "another view" });
        const second = live.read(ids.slice(5)), third = live.read(ids.slice(9));
        return Promise.all([first, second, third, other].map(outcome));
    }"""
    expected = [logits(oracle(model), ids[n:])[-1] for n in (0, 5, 9, 7)]
    first, second, third, other = open_live(model, **PLACES["no worker"]).evaluate(replacing, ids)
    assert first["name"] == second["name"] == "Replaced" and "newer read has replaced" in first["message"]
    assert worst(third, expected[2]) < CLOSE and worst(other, expected[3]) < CLOSE
    *older, third, other = open_live(model).evaluate(replacing, ids)
    assert worst(third, expected[2]) < CLOSE and worst(other, expected[3]) < CLOSE
    for each, right in zip(older, expected[:2], strict=True):  # a worker may have been faster
        assert worst(each, right) < CLOSE if isinstance(each, list) else each["name"] == "Replaced"


@pytest.mark.parametrize("place", ["a worker", "no worker"])
def test_after_closing_nothing_is_answered(place, open_live):
    seen = open_live(random_model(), **PLACES[place]).evaluate(
        """async () => {
            const live = await tinylm.open(record), begun = outcome(live.read([1, 2, 3]));
            live.close();
            return [await begun, await outcome(live.read([4]))];
        }"""
    )
    assert [each["name"] for each in seen] == ["Replaced", "Replaced"]


def test_without_a_worker_the_page_has_its_turn_every_few_milliseconds(open_live):
    """On a clock that moves by 4 ms whenever it is looked at, no more than 4 tokens are read in a row."""
    first = "delete globalThis.Worker; let now = 0; performance.now = () => (now += 4);"
    runs = open_live(random_model(), first=first).evaluate(
        """async () => {
            const live = await tinylm.open(record), runs = [0], channel = new MessageChannel();
            channel.port1.onmessage = () => { runs.push(0); channel.port2.postMessage(null); };
            channel.port2.postMessage(null);
            const ids = [];
            for (let id = 0; id < 40; id++) { // a text is written, then one is read
                ids.push(id);
                await live.read(ids);
                runs[runs.length - 1]++;
            }
            const written = runs.length;
            await live.read(ids.slice(1));
            channel.port1.close();
            return { longest: Math.max(...runs), reading: runs.length - written };
        }"""
    )
    assert 1 <= runs["longest"] <= 4 and runs["reading"] >= 10


def test_the_scripts_add_two_names_to_the_page_and_run_in_strict_mode(open_live):
    first = "const before = Object.getOwnPropertyNames(globalThis);"
    found = open_live(random_model(), first=first).evaluate(
        """() => ({
            names: Object.getOwnPropertyNames(globalThis).filter((name) => !before.includes(name)),
            offered: Object.keys(tinylm),
            isStrict: !Object.hasOwn(engine, "arguments"), // which functions of the old mode have
        })"""
    )
    assert sorted(found["names"]) == ["engine", "tinylm"] and found["isStrict"]
    assert {"Model", "open", "serve"} <= {*found["offered"]}


def test_the_rows_of_the_benchmark_come_from_a_real_page_with_and_without_a_worker(chromium: Browser, monkeypatch):
    monkeypatch.setattr(live, "N_TOKENS", 3)
    rows = list(live.rows_of_pages(chromium, 1))
    assert [row.what.rpartition(", ")[2] for row in rows] == ["in a worker"] * 3 + ["in slices"] * 3
    assert [str(row.bar)[:11] for row in rows[:3]] == ["ours ≤ 1, c", "ours ≥ 300,", "ours ≤ 0.05"]
    assert all(0 < row.ours < math.inf for row in rows[:2] + rows[3:5])
