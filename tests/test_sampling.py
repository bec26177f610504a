"""From logits to text: probabilities against exact fractions, texts against full forward passes and brute force."""

import dataclasses
import inspect
import itertools
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from support import toys
from support.toys import SIZES, Modes, chi_square, modes, random_modes, toy_ids, toy_model
from torch import Tensor, nn

from tinylm_lib import TransformerLM, beam_search, generate, next_token_probs, stream
from tinylm_lib.presets import FAMILIES
from tinylm_lib.sampling import STEPS_PER_LOOK, Options, sample

LIMIT, V = SIZES["max_seq_len"], SIZES["vocab_size"]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# e ** logits. All are squares, so that temperatures 1/2, 1 and 2 give exact fractions. Most rows hold ties.
WEIGHTS = [
    [1, 4, 4, 16, 9, 4, 1],
    [4, 4, 4, 4, 4, 4, 4],
    [0, 1, 0, 100, 49, 1, 0],
    [10**8, 1, 1, 1, 1, 1, 1],
    [9, 16, 9, 16, 9, 16, 9],
    [0, 0, 0, 0, 0, 0, 1],
]


def exact_probs(weights: list[int], temperature: float, top_k: int | None, top_p: float | None, min_p: float | None):
    """What `next_token_probs` promises, in exact arithmetic; no share may fall on the very edge of a cut."""
    ranking = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    if temperature == 0:
        return [Fraction(i == ranking[0]) for i in range(len(weights))]
    powers = {0.5: lambda w: w * w, 1: lambda w: w, 2: math.isqrt}
    mass = [Fraction(powers[temperature](weights[i])) for i in ranking]
    kept = mass if top_k is None else mass[:top_k]
    if top_p is not None:
        before = [sum(kept[:n]) / sum(kept) for n in range(len(kept))]
        assert top_p == 1 or all(abs(share - Fraction(top_p)) > 1e-5 for share in before), "on the edge of top_p"
        kept = [m for m, share in zip(kept, before, strict=True) if share < top_p]
    if min_p is not None:
        assert all(m == kept[0] or abs(m / kept[0] - Fraction(min_p)) > 1e-5 or min_p == 0 for m in kept)
        kept = [m for m in kept if m >= Fraction(min_p) * kept[0]]
    shares = [m / sum(kept) for m in kept] + [Fraction(0)] * (len(mass) - len(kept))
    return [shares[ranking.index(i)] for i in range(len(weights))]


@pytest.mark.parametrize("top_p", [None, 0.3, 0.8, 1])
@pytest.mark.parametrize("top_k", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("temperature", [0, 0.5, 1, 2])
def test_every_combination_of_options_equals_exact_arithmetic(temperature: float, top_k: int, top_p: float) -> None:
    for min_p in (None, 0, 0.2, 0.6, 1):
        options, logits = (temperature, top_k, top_p, min_p), torch.tensor(WEIGHTS).log()
        expected = torch.tensor([[float(p) for p in exact_probs(w, *options)] for w in WEIGHTS])
        actual = next_token_probs(logits, *options)
        torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5, msg=lambda m, o=options: f"{o}: {m}")
        assert ((actual > 0) == (expected > 0)).all(), f"{options}: another set of tokens was kept"
        assert torch.equal(logits, torch.tensor(WEIGHTS).log()), "the logits of the caller were changed"
        alone = torch.cat([next_token_probs(row[None], *options) for row in logits])
        assert torch.equal(alone, actual), "rows of a batch see each other"


THREE, FOUR = [2, 1, 0.1], [math.log(share) for share in (0.5, 0.3, 0.15, 0.05)]
ENDS = [-2, 0, 0, -math.inf]
SHUFFLED = [math.log(share) for share in (0.15, 0.5, 0.05, 0.3)]
PINNED: list[tuple[list[float], dict[str, float], list[float]]] = [
    (THREE, {}, [0.6590011388859679, 0.24243297070471392, 0.09856589040931818]),
    (THREE, {"temperature": 0.5}, [0.8638, 0.1169, 0.0193]),
    (THREE, {"temperature": 2}, [0.5017, 0.3043, 0.1940]),
    (THREE, {"temperature": 10}, [0.3661, 0.3312, 0.3027]),
    (THREE, {"temperature": 0.1}, [1, 0, 0]),
    ([*THREE, -3], {"top_k": 2}, [0.7311, 0.2689, 0, 0]),
    (FOUR, {"top_p": 0.4}, [1, 0, 0, 0]),
    (FOUR, {"top_p": 0.8}, [0.625, 0.375, 0, 0]),
    (SHUFFLED, {"top_p": 0.8}, [0, 0.625, 0, 0.375]),
    (FOUR, {"top_p": 0.9}, [0.5263, 0.3158, 0.1579, 0]),
    (SHUFFLED, {"top_p": 0.9}, [0.1579, 0.5263, 0, 0.3158]),
    (FOUR, {"top_p": 1}, [0.5, 0.3, 0.15, 0.05]),
    ([100, 101, 102], {}, [0.0900306, 0.2447285, 0.6652409]),
    ([-1e30, -1e30, -1e30], {}, [1 / 3, 1 / 3, 1 / 3]),
    ([20, 3, 1005], {}, [0, 0, 1]),
    ([3e38, -3e38, 3e38], {}, [0.5, 0, 0.5]),
    ([1e-40, 0, -1e-40], {}, [1 / 3, 1 / 3, 1 / 3]),
    ([-math.inf, 7, -math.inf], {}, [0, 1, 0]),
    *((ENDS, {"temperature": t}, [0, 0.5, 0.5, 0]) for t in (1e-30, 1e-46, 5e-324)),
    *((ENDS, {"temperature": t}, [1 / 3, 1 / 3, 1 / 3, 0]) for t in (1e38, 1e308)),
    *((ENDS, {"top_p": p}, [0, 1, 0, 0]) for p in (1e-30, 5e-324)),
    (ENDS, {"min_p": 5e-324}, [0.063379, 0.468311, 0.468311, 0]),
    ([5e-40, 0, 0, 1e-39], {"temperature": 0}, [0, 0, 0, 1]),
    ([-9], {"temperature": 0.4, "top_k": 1, "top_p": 1e-6, "min_p": 1}, [1]),
]


@pytest.mark.parametrize(("logits", "options", "expected"), PINNED)
def test_pinned_numbers(logits: list[float], options: dict[str, float], expected: list[float]) -> None:
    actual = next_token_probs(torch.tensor([logits]).float(), **options)
    torch.testing.assert_close(actual, torch.tensor([expected]).float(), atol=1e-6 if not options else 6e-5, rtol=0)


def test_top_p_of_1_cuts_nothing_however_large_the_vocabulary() -> None:
    logits = 3 * torch.randn(8, 50_257, generator=seeded(0))
    torch.testing.assert_close(next_token_probs(logits, top_p=1.0), next_token_probs(logits), atol=0, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_low_precision_logits_are_computed_in_fp32(dtype: torch.dtype) -> None:
    logits, result = torch.randn(3, 9, generator=seeded(1)).to(dtype), torch.promote_types(dtype, torch.float32)
    probs = next_token_probs(logits, 0.7, top_p=0.9)
    assert probs.dtype == result
    assert torch.equal(probs, next_token_probs(logits.to(result), 0.7, top_p=0.9))


BAD_OPTIONS = {
    "temperature": ("positive and finite", [-0.1, math.nan, math.inf, "0.5"]),
    "top_k": ("from 1 to 17 .*", [0, 18, -3, 1.5, 2.0, math.nan, math.inf, True, "0.5"]),
    "top_p": ("above 0 and at most 1", [0, 1.1, -0.5, math.nan, "0.5"]),
    "min_p": ("from 0 to 1", [-0.01, 1.01, math.nan, "0.5"]),
}


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(("name", "value"), [(name, x) for name, (_, values) in BAD_OPTIONS.items() for x in values])
def test_bad_options_are_refused_by_all_with_value_and_range(name: str, value: Any, temperature: float) -> None:
    options = {"temperature": temperature, name: value}
    says = f"^{name} must be .*{BAD_OPTIONS[name][0]}.*got {value!r}$"
    with pytest.raises(ValueError, match=says):
        next_token_probs(torch.zeros(1, V), **options)
    for call in (generate, stream):
        with pytest.raises(ValueError, match=says):
            call(toy_model(), toy_ids(1, 3), 2, **options)


@pytest.mark.parametrize("row", [[0, math.nan, 1], [math.inf, 0, 0], [-math.inf] * 3])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_without_a_finite_maximum_are_refused(row: list[float], temperature: float) -> None:
    with pytest.raises(ValueError, match=r"logits have the maximum (nan|-?inf) in some row"):
        next_token_probs(torch.tensor([[1, 2, 3], row]), temperature)


SHARES = [[0.5, 0.3, 0.15, 0.05], [2.0**-i for i in (*range(1, 14), 13)], [1 / 7] * 7, [0.999, 0.0005, 0.0005]]


@pytest.mark.parametrize("shares", SHARES)
def test_tokens_are_drawn_in_proportion(shares: list[float]) -> None:
    probs = torch.tensor(shares)
    draws = sample(probs.expand(300_000, -1), seeded(3))
    assert (draws.shape, draws.dtype) == ((300_000,), torch.long)
    assert chi_square(draws.bincount(minlength=len(shares)), probs) < toys.chi_square_bound(len(shares) - 1)


def test_rows_and_calls_are_drawn_independently() -> None:
    generator, probs = seeded(4), torch.tensor([0.5, 0.3, 0.2]).expand(2, 3)
    pairs = torch.stack([sample(probs, generator) for _ in range(20_000)])
    rows = (3 * pairs[:, 0] + pairs[:, 1]).bincount(minlength=9)
    calls = (3 * pairs[:-1, 0] + pairs[1:, 0]).bincount(minlength=9)
    joint = torch.outer(probs[0], probs[0]).flatten()
    assert chi_square(rows, joint) < toys.chi_square_bound(8)
    assert chi_square(calls, joint) < toys.chi_square_bound(8)


@pytest.mark.parametrize(("point", "drawn"), [(0.0, [0, 2]), (0.5, [0, 3]), (1 - 2**-53, [1, 3])])
def test_no_point_however_far_out_draws_a_cut_token(
    point: float, drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest and the largest random number there are, which random draws never show."""
    probs = next_token_probs(torch.tensor([[3.0, 2, 1, 0.5], [0.5, 1, 2, 3.0]]), top_k=2)
    monkeypatch.setattr(Tensor, "uniform_", lambda x, **_: x.fill_(point))
    for scale in (1.0, 1 / 3, 1e-3, 3.0):  # a sum of probabilities is 1 only nearly
        assert sample(probs * scale).tolist() == drawn


def test_rare_tokens_of_a_large_vocabulary_are_drawn_as_often_as_their_probability_says() -> None:
    """Half of a vocabulary of 2^18 tokens has a probability of 2^-26 each: together 2^-9."""
    probs = torch.full((1, 2**18), 2.0**-26)
    probs[0, : 2**17] = (1 - 2.0**-9) / 2**17
    draws = sample(probs.expand(256, -1), seeded(5)).tolist()
    assert len(set(draws)) > 240
    points = torch.arange(1, 2**9, 2, dtype=torch.float64)[:, None] / 2**18 + 1 - 2.0**-9  # in the last 2^-9
    ends = probs.double().cumsum(-1).expand(len(points), -1).contiguous()
    expected = torch.searchsorted(ends, points, right=True)[:, 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "uniform_", lambda x, **_: x.copy_(points))
        assert torch.equal(sample(probs.expand(len(points), -1)), expected)
    assert len(expected.unique()) == len(points), "each of these points has a token of its own"


def continued(model: nn.Module, ids: Tensor, n: int, seed: int = 0, **options: float) -> Tensor:
    """What `generate` promises, by full forward passes over the last max_seq_len tokens, without cache or stops."""
    model, generator = toys.evaluation_copy(model), seeded(seed)
    for _ in range(n):
        logits = model(ids[:, -model.config.max_seq_len :])[:, -1]
        ids = torch.cat((ids, sample(next_token_probs(logits, **options), generator)[:, None].to(ids)), dim=1)
    return ids


def stopped(reference: Tensor, n_prompt: int, stop_ids: tuple[int, ...], pad_id: int) -> Tensor:
    """`reference` (B, T + n) with everything behind the first stop id of a continuation padded, then trimmed."""
    rows, end = reference.tolist(), 0
    for row in rows:
        at = next((i for i in range(n_prompt, len(row)) if row[i] in stop_ids), len(row) - 1)
        row[at + 1 :] = [pad_id] * (len(row) - at - 1)
        end = max(end, at + 1)
    return torch.tensor(rows)[:, :end]


@pytest.mark.parametrize("n_prompt", [1, LIMIT - 1, LIMIT, LIMIT + 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_is_the_argmax_of_full_forward_passes_also_beyond_the_limit(name: str, n_prompt: int) -> None:
    model, ids = toy_model(name, seed=2, std=0.5), toy_ids(4, n_prompt)
    actual = generate(model, ids, LIMIT + 2, temperature=0)
    assert torch.equal(actual, continued(model, ids, LIMIT + 2, temperature=0))
    assert len(actual[:, n_prompt:].unique()) > 1, "the toy model repeats itself, so this compares too little"


@pytest.mark.parametrize(
    "options",
    [
        {}, {"temperature": 0.6}, {"temperature": 1.7, "top_k": 4}, {"top_p": 0.7}, {"min_p": 0.2},
        {"temperature": 2.0, "top_k": 9, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)  # fmt: skip
def test_sampling_passes_every_option_on_and_stream_yields_the_same(options: dict[str, Any]) -> None:
    model, ids = toy_model(std=0.2), toy_ids(3, 4)
    actual = generate(model, ids, 20, generator=seeded(7), **options)
    assert torch.equal(actual, continued(model, ids, 20, seed=7, **options))
    assert not torch.equal(actual, generate(model, ids, 20, generator=seeded(8), **options))
    streamed = torch.stack(list(stream(model, ids, 20, generator=seeded(7), **options)), dim=1)
    assert torch.equal(actual[:, 4:], streamed)


@pytest.mark.parametrize("n_new", [0, 1, 4, LIMIT - 5, LIMIT - 4, 99])
@pytest.mark.parametrize("n_prompt", [1, 5, LIMIT, LIMIT + 3])
def test_overflow_stop_ends_at_the_limit_and_error_refuses_before_the_first_token(n_prompt: int, n_new: int) -> None:
    model, ids, n_out = toy_model(), toy_ids(2, n_prompt), max(0, min(n_new, LIMIT - n_prompt))
    expected, passes = continued(model, ids, n_out, temperature=0), Modes(model)
    if n_new > LIMIT - n_prompt:
        for call in (generate, stream):
            with pytest.raises(
                ValueError, match=f"{n_prompt} prompt tokens and {n_new} new ones exceed max_seq_len 12"
            ):
                call(model, ids, n_new, overflow="error")
    else:
        assert torch.equal(generate(model, ids, n_new, temperature=0, overflow="error"), expected)
    assert torch.equal(generate(model, ids, 0), ids) and list(stream(model, ids, 0)) == []
    assert torch.equal(generate(model, ids, n_new, temperature=0, overflow="stop"), expected)
    assert len(list(stream(model, ids, n_new, overflow="stop"))) == n_out
    assert len(passes.shapes) == n_out * (3 if n_new == n_out else 2), "refused options and no new tokens cost nothing"


# Their text alone slides beyond the limit early, late, and never; the batch itself is longer than the limit, or not.
LENGTHS = [[5, 1, 9, 3], [2, LIMIT], [1, LIMIT + 3, 4]]
POSITIONED = {**{name: {} for name in FAMILIES}, "none": {"position": "none"}, "post": {"block": "post_norm"}}


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("name", POSITIONED)
def test_prompts_of_different_length_are_continued_as_each_alone(name: str, lengths: list[int]) -> None:
    changes = {"n_heads": 4, "n_kv_heads": 2, "d_head": 4, **POSITIONED[name]}
    model = toy_model(name if name in FAMILIES else "llama", seed=2, std=0.5, **changes)
    prompts = [toy_ids(1, n, seed=n)[0] for n in lengths]
    expected = [generate(model, prompt[None], LIMIT + 2, temperature=0)[0, len(prompt) :] for prompt in prompts]
    assert len(torch.stack(expected).unique()) > 1, "the toy model repeats itself, so this compares too little"
    T = max(lengths)
    padding = T - torch.tensor(lengths)
    for pad_id in (0, V - 1):
        ids = torch.stack([torch.cat((torch.full((T - len(p),), pad_id), p)) for p in prompts])
        options = {"temperature": 0, "padding": padding}
        actual = generate(model, ids, LIMIT + 2, **options)
        assert torch.equal(actual[:, :T], ids) and torch.equal(actual[:, T:], torch.stack(expected))
        assert torch.equal(torch.stack(list(stream(model, ids, LIMIT + 2, **options)), dim=1), actual[:, T:])
    assert padding.tolist() == [T - n for n in lengths], "the padding of the caller was changed"


def test_padded_prompts_stop_and_are_sampled_as_others() -> None:
    model, ids, padding = toy_model(std=0.3), toy_ids(3, 5), torch.tensor([0, 2, 4])
    assert torch.equal(
        generate(model, ids, 20, generator=seeded(3), padding=padding - padding),
        generate(model, ids, 20, generator=seeded(3)),
    )
    free = generate(model, ids, 20, temperature=0, padding=padding)
    stops = (int(free[1, 7]),)
    expected = stopped(free, 5, stops, 3)
    assert torch.equal(generate(model, ids, 20, temperature=0, padding=padding, stop_ids=stops, pad_id=3), expected)


@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"temperature": 1.7, "top_k": 3}, {"top_p": 0.9}], ids=str)
@pytest.mark.parametrize("vocab_size", [1, 4, V])
def test_ids_from_vocab_size_on_are_never_drawn(vocab_size: int, options: dict[str, Any]) -> None:
    model, ids = toy_model(seed=3, std=0.1), toy_ids(4, 5)
    options = {name: min(x, vocab_size) if name == "top_k" else x for name, x in options.items()}
    actual = generate(model, ids, 40, generator=seeded(1), vocab_size=vocab_size, **options)[:, 5:]
    assert actual.max() < vocab_size
    assert generate(model, ids, 40, generator=seeded(1))[:, 5:].max() == V - 1, "the model draws them where it may"
    streamed = list(stream(model, ids, 40, generator=seeded(1), vocab_size=vocab_size, **options))
    assert torch.equal(torch.stack(streamed, dim=1), actual)
    first = next_token_probs(toys.evaluation_copy(model)(ids)[:, -1, :vocab_size], **options)
    assert torch.equal(actual[:, 0], sample(first, seeded(1)))


def test_beams_hold_no_id_from_vocab_size_on() -> None:
    model, prompt = toy_model(seed=3, std=0.1), toy_ids(1, 3)[0]
    free = beam_search(model, prompt, 4, 6)
    assert max(max(tokens[3:]) for tokens, _ in free) >= 5
    for tokens, log_prob in beam_search(model, prompt, 4, 6, vocab_size=5):
        assert max(tokens[3:]) < 5
        logits = toys.evaluation_copy(model)(torch.tensor([tokens[:-1]]))[0, 2:, :5].log_softmax(-1)
        assert log_prob == pytest.approx(float(logits[range(4), tokens[3:]].sum()))
    with pytest.raises(ValueError, match="vocab_size must be an integer from 1 to 17, got 18"):
        beam_search(model, prompt, 4, 6, vocab_size=18)


STOPS = [(0,), (5,), (7,), (16,), (), (0, 1, 2), (3, 3), (16, 5, 9), tuple(range(V))]


@pytest.fixture(scope="module")
def unstopped() -> tuple[TransformerLM, Tensor, Tensor]:
    """A model, prompts of 3 tokens and what follows without stops at temperature 1.5 from seed 1: 36 tokens."""
    model, ids = toy_model(seed=1, std=0.25), toy_ids(3, 3, seed=1)
    reference = continued(model, ids, 36, seed=1, temperature=1.5)
    lengths = {stopped(reference, 3, stops, 0).shape[1] - 3 for stops in [*STOPS[:4], (16, 5, 9)]}
    assert min(lengths) < STEPS_PER_LOOK < max(lengths - {36}) < 36 in lengths, "batches end early, late and never"
    return model, ids, reference


@pytest.mark.parametrize("stop_ids", STOPS)
@pytest.mark.parametrize("pad_id", [0, 5])
def test_stops_pad_the_row_and_trim_the_batch(
    unstopped: tuple[TransformerLM, Tensor, Tensor], stop_ids: tuple[int, ...], pad_id: int
) -> None:
    model, ids, reference = unstopped
    options: dict[str, Any] = {"temperature": 1.5, "stop_ids": stop_ids, "pad_id": pad_id}
    expected = stopped(reference, 3, stop_ids, pad_id)
    actual = generate(model, ids, 36, generator=seeded(1), **options)
    assert torch.equal(actual, expected)
    columns = torch.stack(list(stream(model, ids, 36, generator=seeded(1), **options)), dim=1)
    n_new = expected.shape[1] - 3
    assert torch.equal(columns[:, :n_new], expected[:, 3:])
    assert (columns[:, n_new:] == pad_id).all()
    assert columns.shape[1] <= n_new + STEPS_PER_LOOK, "the stream continues after everything has ended"


@pytest.mark.parametrize("make", [list, tuple, set, iter, torch.tensor], ids=lambda make: make.__name__)
def test_stop_ids_may_be_any_collection(make: Any) -> None:
    model, ids = toy_model(), toy_ids(2, 3)
    reference = continued(model, ids, 20, temperature=0)
    stops = (int(reference[0, 5]), int(reference[1, 8]))
    actual = generate(model, ids, 20, temperature=0, stop_ids=make(stops))
    assert torch.equal(actual, stopped(reference, 3, stops, 0))


def test_randomness_comes_from_the_generator_alone_or_from_torch() -> None:
    model, ids = toy_model("gpt", std=0.1), toy_ids(3, 4)
    state = torch.get_rng_state()
    first = generate(model, ids, 9, generator=seeded(5))
    assert torch.equal(torch.get_rng_state(), state), "torch's global generator was used"
    assert torch.equal(first, generate(model, ids, 9, generator=seeded(5)))
    texts = []
    for _ in range(2):
        torch.manual_seed(5)
        texts.append(generate(model, ids, 9))
    torch.set_rng_state(state)
    assert torch.equal(*texts)


def test_prompts_are_left_alone_and_the_result_is_the_callers() -> None:
    model, ids = toy_model(), toy_ids(2, 4)
    list(stream(model, ids, 20))
    for n_new in (20, 3, 0):
        generate(model, ids, n_new, stop_ids=[1]).fill_(0)
    assert torch.equal(ids, toy_ids(2, 4))


def test_the_model_runs_in_evaluation_mode_without_gradients_and_gets_its_modes_back() -> None:
    model, ids = toy_model("gpt"), toy_ids(2, 4)
    before, passes = random_modes(model), Modes(model)
    assert not generate(model, ids, 20).requires_grad
    beam_search(model, ids[0], 5, 3)
    assert modes(model) == before
    for n, token in enumerate(stream(model, ids, 5)):
        assert not token.requires_grad and torch.is_grad_enabled()
        assert modes(model) == before, "the model stays in evaluation mode between two tokens of a stream"
        model.train(n % 2 == 1)
        before = modes(model)
    assert not any(passes.training) and not any(passes.gradients)


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"stop_ids": [1], "vocab_size": 9}])
def test_what_was_written_can_be_trained_on_and_so_can_the_model(options: dict[str, Any]) -> None:
    """Nothing of the inference mode stays behind: autograd refuses to keep a tensor that was made in it."""
    model, ids = toy_model("modern"), toy_ids(2, 4)
    written = [generate(model, ids, 5, **options), torch.stack([*stream(model, ids, 5, **options)], dim=1)]
    for tokens in written:
        assert not tokens.is_inference()
        model(tokens).logsumexp(-1).mean().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_broken_weights_give_a_clear_error_and_lose_nothing(value: float, temperature: float) -> None:
    model, ids = toy_model(), toy_ids(2, 4)
    nn.init.constant_(model.blocks[0].ffn.down_proj.weight[:1, :1], value)
    before, weights = random_modes(model), {n: w.clone() for n, w in model.state_dict().items()}
    for call in (
        lambda: generate(model, ids, 40, temperature=temperature),
        lambda: list(stream(model, ids, 40, temperature=temperature)),
        lambda: beam_search(model, ids[0], 5, 2),
    ):
        with pytest.raises(ValueError, match="NaN or inf there usually comes from weights that diverged in training"):
            call()
    assert modes(model) == before and torch.is_grad_enabled()
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("n_new", [1, 15, 16, 17, 40])
def test_broken_weights_are_seen_in_time_where_logits_are_not_looked_at(
    n_new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # switches off what only a CPU checks
    model, ids, tokens = toy_model(), toy_ids(2, 4), []
    nn.init.constant_(model.final_norm.weight, math.nan)
    with pytest.raises(ValueError, match="NaN or inf there"):
        tokens.extend(stream(model, ids, n_new))
    assert len(tokens) < STEPS_PER_LOOK
    with pytest.raises(ValueError, match="NaN or inf there"):
        generate(model, ids, n_new)


def test_integer_prompts_keep_their_dtype() -> None:
    model, ids = toy_model(), toy_ids(2, 4)
    long, short = (generate(model, ids.to(dtype), 20, temperature=0, stop_ids=[3]) for dtype in (torch.long, torch.int))
    assert (long.dtype, short.dtype) == (torch.long, torch.int)
    assert torch.equal(long, short.long())


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_low_precision_models_generate(name: str, autocast: bool) -> None:
    model, ids = toy_model(name, std=0.1), toy_ids(2, 4)
    model = model.float() if autocast else model.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for text in (generate(model, ids, 20)[:, 4:], torch.stack(list(stream(model, ids, 20)), dim=1)):
            assert text.shape[1] == 20
            assert 0 <= text.min() <= text.max() < V
        assert all(log_prob < 0 for _, log_prob in beam_search(model, ids[0], 5, 2))


def test_a_cache_reads_each_token_once_and_the_window_slides_after_it() -> None:
    model, ids = toy_model(), toy_ids(2, 4)
    passes = Modes(model)
    generate(model, ids, LIMIT)
    n_cached = LIMIT - 4
    assert passes.shapes == [(2, 4)] + [(2, 1)] * n_cached + [(2, LIMIT)] * (LIMIT - 1 - n_cached)


def test_stream_works_only_when_asked() -> None:
    model, ids = toy_model(), toy_ids(2, 4)
    passes = Modes(model)
    tokens = stream(model, ids, 5)
    assert passes.shapes == []
    first = next(tokens)
    assert (len(passes.shapes), first.shape, first.dtype) == (1, (2,), ids.dtype)


BAD_REQUESTS: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    *(([[1]], {"dtype": dtype}, TypeError, f"ids must be integers .*got {dtype}")
      for dtype in (torch.float32, torch.bool, torch.uint8, torch.int8, torch.int16)),
    ([1, 2], {}, ValueError, r"ids must be \(B, T\), got \(2,\)"),
    ([[]], {}, ValueError, "hold no token"),
    *(([[1, t]], {}, ValueError, rf"token id {t} is outside 0\.\.16") for t in (-1, 17)),
    ([[17] + [1] * LIMIT], {}, ValueError, r"token id 17 is outside 0\.\.16"),
    *(([[1]], {"n": n}, ValueError, f"max_new_tokens must be an integer of at least 0, got {n}")
      for n in (-1, 1.5, 2.0, math.nan, math.inf)),
    ([[1]], {"overflow": "crop"}, ValueError, "overflow 'crop' is unknown; choose one of slide, stop, error"),
    *(([[1]], {"stop_ids": [3, t]}, ValueError, rf"stop id must be an integer in 0\.\.16 .*, got {t!r}")
      for t in (-1, 17, 2.5, True, "1", None)),
    *(([[1]], {"stop_ids": ids}, TypeError, rf"stop_ids must be a list .*, got {re.escape(repr(ids))}; .*\[5\]")
      for ids in (5, 2.5, "a", "", None)),
    ([[1]], {"stop_ids": torch.tensor(5)}, TypeError, "stop_ids must be a list of token ids, got 5;"),
    ([[1]], {"stop_ids": torch.tensor([[1, 2]])}, ValueError, r"stop id must be an integer .*, got \[1, 2\]"),
    *(([[1]], {"pad_id": t}, ValueError, rf"pad_id must be an integer in 0\.\.16 .*, got {t!r}")
      for t in (-1, 17, 0.5, "0", None)),
    *(([[1]], {"n": n}, ValueError, f"max_new_tokens must be an integer of at least 0, got {re.escape(repr(n))}")
      for n in ("3", None, torch.tensor(3))),
    *(([[1]], {"generator": seed}, TypeError, f"generator must be a torch.Generator, got {seed!r}; use torch.Generator")
      for seed in (0, "1")),
    ([[1]], {"overflow": ["stop"]}, ValueError, r"overflow \['stop'\] is unknown"),
    *(([[1]], {"vocab_size": n}, ValueError, f"vocab_size must be an integer from 1 to 17, got {n}")
      for n in (0, 18, 2.5, True)),
    ([[1]], {"vocab_size": 5, "top_k": 6}, ValueError, r"top_k must be an integer from 1 to 5 .*got 6"),
    *(([[1, 2]], {"padding": p}, ValueError, r"padding must be a tensor of 1 integers in 0\.\.1, ")
      for p in (1, [1], torch.tensor([2]), torch.tensor([-1]), torch.tensor([0, 0]), torch.tensor([0.5]))),
]  # fmt: skip


@pytest.mark.parametrize(("ids", "options", "error", "says"), BAD_REQUESTS, ids=[str(r[1:]) for r in BAD_REQUESTS])
@pytest.mark.parametrize("call", [generate, stream])
def test_bad_requests_are_refused_at_the_call(
    call: Any, ids: list[Any], options: dict[str, Any], error: type[Exception], says: str
) -> None:
    model, options = toy_model(), {"dtype": torch.long, "n": 5, **options}
    before, passes = random_modes(model), Modes(model)
    with pytest.raises(error, match=says):
        call(model, torch.tensor(ids, dtype=options.pop("dtype")), options.pop("n"), **options)
    assert passes.shapes == []
    assert modes(model) == before


@pytest.mark.parametrize("ids", [[1, 2], [[1, 2]], "text", np.array([[1, 2]]), None], ids=repr)
def test_prompts_that_are_no_tensors_are_refused_with_the_way_to_make_one(ids: Any) -> None:
    fix = r"tokenizer.encode\(text\)" if isinstance(ids, str) else r"\[1, 2\]\]\) or pad_left"
    for call in (generate, stream):
        with pytest.raises(TypeError, match=rf"got {type(ids).__name__}; use torch.tensor\(\[{fix}"):
            call(toy_model(), ids, 5)


def test_stream_and_generate_take_the_same_options() -> None:
    taken, streamed = (inspect.signature(call).parameters.values() for call in (generate, stream))
    assert {p.name: p.default for p in taken if p.kind is p.KEYWORD_ONLY} == dataclasses.asdict(Options())
    assert list(taken) == list(streamed), "editors and `help` show the options of stream, too"
    assert inspect.signature(stream).return_annotation == Iterator[Tensor]
    assert "yield" not in inspect.getsource(generate) and "def stream" in inspect.getsource(stream)
    with pytest.raises(TypeError, match="temprature"):
        stream(toy_model(), toy_ids(1, 2), 1, temprature=0)


def test_values_are_read_every_16_tokens_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = toy_model(), toy_ids(2, 4)

    def reads(n_new: int, **options: Any) -> int:
        with toys.DeviceReads() as device:
            generate(model, ids, n_new, generator=seeded(0), **options)
        return device.total

    assert reads(15) >= 15, "a CPU looks at every token, and that is counted"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # switches that off
    options = {"temperature": 0.8, "top_k": 9, "top_p": 0.99, "min_p": 0.001, "stop_ids": []}
    for kind in ({}, options, {"temperature": 0}):
        assert reads(15, **kind) == reads(1, **kind), "tokens are looked at one by one"
        assert reads(48, **kind) - reads(16, **kind) <= 2 * 2
    with toys.DeviceReads() as device:
        for n, _ in enumerate(stream(model, ids, 48), start=1):
            assert device.total <= 2 + 2 * (n // STEPS_PER_LOOK)


def test_probabilities_and_draws_never_read_a_value() -> None:
    logits = torch.zeros(3, 9, device="meta")  # a meta tensor has no values: reading one is an error
    for options in ({}, {"temperature": 0}, {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1}):
        assert sample(next_token_probs(logits, **options)).shape == (3,)


SMALL_V = 5


def beam_model(std: float = 0.4) -> TransformerLM:
    return toy_model("gpt", std=std, vocab_size=SMALL_V)


def log_prob_of(model: nn.Module, tokens: list[int], n_prompt: int) -> float:
    ids = torch.tensor(tokens)[None]
    shares = toys.evaluation_copy(model)(ids[:, :-1]).log_softmax(-1)
    return shares[0, n_prompt - 1 :].gather(-1, ids[0, n_prompt:, None]).sum().item()


def all_continuations(model: nn.Module, prompt: list[int], n: int, stop_ids: set[int]) -> list[tuple[list[int], float]]:
    """Every continuation of n tokens, ended by the first stop id, with its log-probability."""
    distinct = set()
    for new in itertools.product(range(model.config.vocab_size), repeat=n):
        end = next((i for i, t in enumerate(new) if t in stop_ids), n - 1)
        distinct.add(new[: end + 1])
    return [([*prompt, *new], log_prob_of(model, [*prompt, *new], len(prompt))) for new in sorted(distinct)]


def plain_beams(model: nn.Module, prompt: list[int], n: int, n_beams: int, stop_ids: set[int], length_penalty: float):
    """Beam search over Python lists, without a cache: a stop among the n_beams best is set aside, n_beams continue."""
    quiet, alive, done = toys.evaluation_copy(model), [(prompt, 0.0)], []
    for _ in range(n):
        shares = [quiet(torch.tensor([tokens]))[0, -1].log_softmax(-1).tolist() for tokens, _ in alive]
        pairs = zip(alive, shares, strict=True)
        grown = [([*tokens, t], lp + share) for (tokens, lp), row in pairs for t, share in enumerate(row)]
        grown.sort(key=lambda c: -c[1])
        done += [c for c in grown[:n_beams] if c[0][-1] in stop_ids]
        alive = [c for c in grown if c[0][-1] not in stop_ids][:n_beams]
    scored = sorted(done + alive, key=lambda c: -c[1] / (len(c[0]) - len(prompt)) ** length_penalty)
    return [tokens for tokens, _ in scored[:n_beams]]


@pytest.mark.parametrize("length_penalty", [0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("stop_ids", [(), (2,), (0, 4)])
def test_wide_beams_equal_brute_force(stop_ids: tuple[int, ...], length_penalty: float) -> None:
    model, prompt = beam_model(), [1, 3]
    everything = all_continuations(model, prompt, 3, set(stop_ids))
    expected = sorted(everything, key=lambda c: c[1] / (len(c[0]) - 2) ** length_penalty, reverse=True)
    for n_beams in (SMALL_V**3, SMALL_V**2):  # the best of a level descend from the SMALL_V**2 of the level before
        actual = beam_search(model, torch.tensor(prompt), 3, n_beams, length_penalty, stop_ids)
        found = actual[:10] if n_beams < SMALL_V**3 else actual
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected[: len(found)]]
        assert [lp for _, lp in found] == pytest.approx([lp for _, lp in expected[: len(found)]], abs=1e-5)
        assert len(actual) == min(n_beams, len(expected))


@pytest.mark.parametrize("n_beams", [1, 2, 3, 7])
@pytest.mark.parametrize("stop_ids", [(), (2,), (0, 3, 9)])
@pytest.mark.parametrize("length_penalty", [0, 1.5])
@pytest.mark.parametrize("name", ["modern", "gpt"])
def test_narrow_beams_equal_a_plain_search(
    name: str, n_beams: int, stop_ids: tuple[int, ...], length_penalty: float
) -> None:
    model, prompt = toy_model(name, std=0.2), toy_ids(1, 4)[0]
    actual = beam_search(model, prompt, 6, n_beams, length_penalty, stop_ids)
    expected = plain_beams(model, prompt.tolist(), 6, n_beams, set(stop_ids), length_penalty)
    assert [tokens for tokens, _ in actual] == expected
    for tokens, log_prob in actual:
        assert all(type(t) is int for t in tokens)
        assert log_prob == pytest.approx(log_prob_of(model, tokens, 4), abs=1e-5)


def test_one_beam_is_greedy_on_ties_too() -> None:
    model, prompt = toy_model(std=0.2), toy_ids(1, 4)[0]
    nn.init.zeros_(model.final_norm.weight)
    assert beam_search(model, prompt, 6, 1)[0][0] == generate(model, prompt[None], 6, temperature=0)[0].tolist()


def test_beam_search_reads_the_prompt_once_or_not_at_all() -> None:
    model, prompt = beam_model(), torch.tensor([1, 2, 3])
    passes = Modes(model)
    assert beam_search(model, prompt, 0, 4) == [([1, 2, 3], 0.0)]
    beam_search(model, prompt, 4, 2)
    assert passes.shapes == [(1, 3), (2, 1), (2, 1), (2, 1)]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *(({"n_beams": n}, f"n_beams must be an integer of at least 1, got {n}") for n in (0, -2, 1.5, 2.0, math.nan)),
        ({"length_penalty": math.nan}, "length_penalty .*nan"),
        ({"length_penalty": math.inf}, "length_penalty .*inf"),
        *(({"max_new_tokens": n}, f"max_new_tokens must be an integer of at least 0, got {n}") for n in (-1, 2.0)),
        ({"max_new_tokens": LIMIT - 2}, "3 prompt tokens and 10 new ones exceed max_seq_len 12"),
        ({"stop_ids": (5,)}, r"stop id must be an integer in 0\.\.4 .*, got 5"),
        ({"ids": torch.tensor([[1, 2]])}, r"one prompt, ids \(T,\), got \(1, 2\)"),
        ({"ids": [1, 2]}, r"a tensor of one prompt, ids \(T,\), got a list; use torch.tensor\(\["),
        ({"ids": torch.tensor([1, 5])}, r"token id 5 is outside 0\.\.4"),
        ({"ids": torch.tensor([]).long()}, "hold no token"),
    ],
    ids=str,
)
def test_bad_beam_requests_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        beam_search(beam_model(), **{"ids": torch.tensor([1, 2, 3]), "max_new_tokens": 2, "n_beams": 2, **changes})
