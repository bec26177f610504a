"""Lesson 05: every position looks back and fetches."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe

INF = float("inf")
# A score of size s is rounded by up to s EPS / 2, which is then the relative error of its attention weight.
EPS = torch.finfo(torch.float32).eps


def causal_mask(n: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Who may look at whom: (n, n), True where key j is not later than query i, and the mistakes that are `on`."""
    n += ("one larger" in on) - ("one smaller" in on)
    i, j = torch.arange(n)[:, None], torch.arange(n)
    allowed = j <= i
    wrong = {
        "future": j >= i, "strict": j < i, "one too many": j <= i + 1, "inverted": j > i, "only itself": j == i,
        "others only": j != i, "flipped": i + j < n, "everything": j >= 0 * i, "nothing": j < 0 * i,
    }  # fmt: skip
    for fault in wrong.keys() & on:
        allowed = wrong[fault]
    if "numbers" in on:
        return allowed.float()
    if "additive" in on:
        return torch.zeros(n, n).masked_fill(~allowed, -INF)
    if "additive, -1e9" in on:
        return torch.zeros(n, n).masked_fill(~allowed, -1e9)
    if "additive, lowest" in on:
        return torch.zeros(n, n).masked_fill(~allowed, torch.finfo(torch.float32).min)
    return allowed[None, None] if "more axes" in on else allowed


WHY_BOOL = "The result must be bool, because a reader of a mask should never have to guess what a number means."
CAUSAL_MASK = Exercise(
    name="causal_mask",
    lesson="05",
    reference=causal_mask,
    probes=(
        Probe("row i is True up to column i", lambda g: (3,)),
        Probe("a single position sees itself", lambda g: (1,)),
        Probe("so it is for every n", lambda g: (4,)),
        Probe("so it is for every n", lambda g: (7,)),
        Probe("so it is for every n", lambda g: (130,)),
    ),
    faults={
        "future": Fault(
            "a position sees itself and what comes later",
            "The past and the future are exchanged. Row i belongs to query i. Which columns has it read already?",
        ),
        "strict": Fault(
            "a position does not see itself",
            "Then position 0 sees nothing at all, and its softmax is 0 / 0. A position may look at itself.",
        ),
        "one too many": Fault(
            "every position sees one position too far",
            "That position holds the token to be predicted. The diagonal is the last column that is allowed.",
        ),
        "inverted": Fault(
            "True marks what is forbidden",
            "Here True means allowed. Some libraries do the reverse, so check each time.",
        ),
        "everything": Fault("nothing is forbidden", "A position must not see what comes later."),
        "nothing": Fault("nothing is allowed", "A position sees itself and all positions before it."),
        "only itself": Fault("a position sees only itself", "It may also look at all positions before it."),
        "others only": Fault(
            "only the diagonal is forbidden", "A position sees itself and what came before it, but nothing later."
        ),
        "flipped": Fault(
            "the staircase goes the wrong way",
            "Row 0 has one True, and the last row is full. Look at the first column.",
        ),
        "numbers": Fault("the mask holds 1 and 0", WHY_BOOL),
        "additive": Fault("the mask holds 0 and -inf, to be added to the scores", WHY_BOOL),
        "additive, -1e9": Fault("the mask holds 0 and -1e9, to be added to the scores", WHY_BOOL),
        "additive, lowest": Fault("the mask holds 0 and the lowest float, to be added to the scores", WHY_BOOL),
        "more axes": Fault(
            "the mask has axes for batch and heads", "Its shape is (n, n). Broadcasting adds the leading axes."
        ),
        "one larger": Fault(
            "the mask has a row and a column too many", "n positions look at n positions, so it is (n, n)."
        ),
        "one smaller": Fault(
            "the mask has a row and a column too few", "n positions look at n positions, so it is (n, n)."
        ),
    },
    hints=(
        "Draw the mask for n = 4, with a row for each query. Which columns may each row look at?",
        "Compare a column of row numbers with a row of column numbers, or keep a triangle of a square full of True.",
        "The diagonal is allowed, and the result is bool.",
    ),
)


AFTER = {"mask after softmax", "shared out again"}


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, on: frozenset[str] = frozenset()) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v over the allowed keys, and the mistakes that are `on`.

    q (..., T, d_k), k (..., S, d_k), v (..., S, d_v), mask (T, S). Returns (..., T, d_v).
    """
    scores = _scores(q, k, v, on)
    if mask is None and "always causal" in on:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = _hide(scores, mask, on)
    weights = _share(scores, on)
    if mask is not None and on & AFTER:
        weights = weights * mask
        if "shared out again" in on:
            weights = weights / weights.sum(-1, keepdim=True)
    if "scaled later" in on:
        weights = weights / q.shape[-1] ** 0.5
    if "weights returned" in on:
        return weights
    out = weights @ (k if "keys for values" in on else v)
    return (out, weights) if "weights too" in on else out


def _scores(q: Tensor, k: Tensor, v: Tensor, on: frozenset[str]) -> Tensor:
    """How well each key answers each query: (..., T, S)."""
    d_k = q.shape[-1]
    divisors = {
        "no scale": 1, "scaled later": 1, "by d_k": d_k, "multiplied": d_k**-0.5, "fourth root": d_k**0.25,
        "by d_v": v.shape[-1] ** 0.5, "by the keys": k.shape[-2] ** 0.5, "fixed scale": 8.0,
    }  # fmt: skip
    divisor = next((by for fault, by in divisors.items() if fault in on), d_k**0.5)
    if "roles exchanged" in on:
        q, k = k, q
    if "keys meet keys" in on:
        q = k
    return q @ k.mT / divisor


def _hide(scores: Tensor, mask: Tensor, on: frozenset[str]) -> Tensor:
    """The scores, -inf where the mask forbids."""
    if on & {"mask ignored", *AFTER}:
        return scores
    if on & {"inverted", "inverted, finite"}:
        mask = ~mask
    if "mask transposed" in on:
        mask = mask.mT
    if "any mask is causal" in on:
        mask = torch.ones_like(mask).tril()
    if "mask added" in on:
        return scores + mask
    if "0 times infinity" in on:
        return scores + ~mask * -INF
    fills = {
        "zero fill": 0.0,
        "weak fill": -1000.0,
        "very weak fill": -10.0,
        "inverted, finite": -1e9,
        "strict, finite": -1e9,
    }
    return scores.masked_fill(~mask, next((fill for fault, fill in fills.items() if fault in on), -INF))


def _share(scores: Tensor, on: frozenset[str]) -> Tensor:
    """The scores as weights that sum to 1 for each query."""
    ways = {
        "over queries": lambda s: s.softmax(-2),
        "axis from the front": lambda s: s.softmax(1),
        "first axis": lambda s: s.softmax(0),
        "over everything": lambda s: s.flatten(-2).softmax(-1).view_as(s),
        "no softmax": lambda s: s,
        "no exponential": lambda s: s / s.sum(-1, keepdim=True),
        "one maximum": lambda s: (s - s.max()).exp() / (s - s.max()).exp().sum(-1, keepdim=True),
        "overflow": lambda s: s.exp() / s.exp().sum(-1, keepdim=True),
        "twice": lambda s: s.softmax(-1).softmax(-1),
        "sigmoid": lambda s: s.sigmoid(),
        "logarithm": lambda s: s.log_softmax(-1),
    }
    way = next((f for fault, f in ways.items() if fault in on), None)
    return way(scores) if way else scores.softmax(-1)


def _qkv(g: Generator, *lead: int, sizes: tuple[int, int, int, int] = (3, 5, 4, 6)) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v for sizes (T, S, d_k, d_v), all behind the leading sizes."""
    T, S, d_k, d_v = sizes
    return tuple(torch.randn(*lead, *size, generator=g) for size in ((T, d_k), (S, d_k), (S, d_v)))


def _mask(g: Generator, T: int, S: int) -> Tensor:
    """Random, with an allowed and a forbidden key for each query: read the wrong way round, it leaves no row empty."""
    one = torch.randint(S, (T, 1), generator=g)
    other = (one + torch.randint(1, S, (T, 1), generator=g)) % S
    mask = torch.rand(T, S, generator=g) < 0.5
    return (mask | (torch.arange(S) == one)) & (torch.arange(S) != other)


def _far_below(g: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All scores near -4,096: a weak fill would win, the usual -1e4 not. Whole numbers and a root of 4: exact."""
    q, k, v = _qkv(g, sizes=(3, 5, 16, 6))
    q, k = q.round(), k.round()
    q[:, 0], k[:, 0] = 128.0, -128.0
    return q, k, v, _mask(g, 3, 5)


def _strided(g: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = _qkv(g, 2, sizes=(3, 5, 4, 6))
    return (*(t.mT.contiguous().mT for t in (q, k, v)), _mask(g, 5, 3).T)


SCALE = {
    "no scale": Fault(
        "the scores are not scaled",
        "A sum of d_k products grows like the root of d_k, and with large scores the softmax gives one key nearly all of the weight.",
    ),
    "by d_k": Fault(
        "the scores are divided by d_k itself", "A sum of d_k random products grows like the *root* of d_k."
    ),
    "multiplied": Fault("the scores are multiplied by the root", "They are too large already, so divide by it."),
    "by the keys": Fault(
        "the number of keys is used for the scale",
        "A score is a sum over the d_k features of a query and a key, however many keys there are.",
    ),
}
MASK = {
    "inverted": Fault(
        "the mask is read the other way round",
        "True means allowed, so the scores must become -inf where the mask is False.",
    ),
    "inverted, finite": Fault(
        "the mask is read the other way round",
        "True means allowed, so the scores must become very low where the mask is False.",
    ),
    "mask ignored": Fault("the mask is not used", "A query then sees every key, later ones included."),
    "mask after softmax": Fault(
        "the mask is applied after the softmax",
        "Then a row no longer sums to 1, because the softmax has already given some probability to the forbidden keys. "
        "Look at the order of your last lines.",
    ),
    "shared out again": Fault(
        "the mask is applied after the softmax, and the rest is divided by its sum",
        "If a forbidden key scores far above the others, their weights are 0 by then, and 0 / 0 is NaN. Apply the mask "
        "before the softmax.",
    ),
    "zero fill": Fault(
        "a forbidden score becomes 0, or nearly",
        "A score of 0 is a score like any other, because e^0 = 1. Which number has the exponential 0?",
    ),
    "weak fill": Fault(
        "the number for forbidden scores is not low enough",
        "If all scores of a row are far below it, the forbidden keys win. Only -inf is below every number.",
    ),
    "very weak fill": Fault(
        "the number for forbidden scores is not low enough",
        "If all scores of a row are far below it, the forbidden keys win. Only -inf is below every number.",
    ),
}
SHARE = {
    "over queries": Fault(
        "the softmax runs over the queries",
        "Each query distributes its attention over the keys, so the weights of one query, a row, sum to 1.",
    ),
    "no softmax": Fault(
        "the scores are used as weights", "Weights are positive and sum to 1. What turns scores into probabilities?"
    ),
    "twice": Fault("softmax is applied twice", "The second softmax makes the weights nearly equal."),
    "axis from the front": Fault(
        "the softmax counts its axis from the front",
        "Axis 1 may be the keys, the queries or a leading axis, depending on how many axes there are. Count from the end.",
    ),
    "overflow": Fault(
        "the softmax overflows or underflows",
        "Above 88.7 an exponential is inf, and inf / inf is NaN. Subtract the largest score of the row first.",
    ),
}
ATTENTION = Exercise(
    name="attention",
    lesson="05",
    reference=attention,
    probes=(
        Probe(
            "the weights of a query sum to 1",
            lambda g: (torch.tensor([[1.0]]), torch.tensor([[0.5], [2.0]]), torch.tensor([[1.0, 10.0], [1.0, 10.0]])),
        ),
        Probe(
            "the weights are the softmax of the scores",
            lambda g: (torch.tensor([[1.0]]), torch.tensor([[0.5], [2.0]]), torch.tensor([[10.0, 1.0], [20.0, 4.0]])),
        ),
        Probe("a single key gets all the weight", lambda g: _qkv(g, sizes=(3, 1, 2, 2))),
        Probe(
            "the scores are divided by the root of d_k",
            lambda g: (
                torch.tensor([[1.0, 2.0]]),
                torch.tensor([[2.0, 1.0], [3.0, -0.5]]),
                torch.tensor([[10.0], [20.0]]),
            ),
        ),
        Probe("every query has its own weights", lambda g: _qkv(g)),
        Probe("queries ask, keys answer", lambda g: _qkv(g, sizes=(4, 4, 3, 5))),
        Probe(
            "a query sees only the keys that are allowed",
            lambda g: (
                torch.tensor([[1.0], [2.0]]),
                torch.tensor([[1.0], [0.5], [-1.0]]),
                torch.tensor([[1.0], [2.0], [6.0]]),
                torch.tensor([[True, False, False], [True, True, False]]),
            ),
        ),
        Probe(
            "a forbidden key changes nothing, however high its score",
            lambda g: (
                torch.tensor([[10.0]]),
                torch.tensor([[1.0], [30.0]]),
                torch.tensor([[2.0], [5.0]]),
                torch.tensor([[True, False]]),
            ),
        ),
        Probe("any mask, not only a causal one", lambda g: (*_qkv(g), _mask(g, 3, 5))),
        Probe("any mask, not only a causal one", lambda g: (*_qkv(g, sizes=(4, 4, 3, 5)), _mask(g, 4, 4))),
        Probe("any number of leading axes", lambda g: _qkv(g, 2, sizes=(4, 3, 6, 5))),
        Probe("any number of leading axes", lambda g: (*_qkv(g, 2, 3, sizes=(4, 5, 6, 7)), _mask(g, 4, 5))),
        Probe("any number of leading axes", lambda g: (*_qkv(g, 2, 1, 3, sizes=(5, 4, 2, 3)), _mask(g, 5, 4))),
        Probe(
            "large scores do not overflow", lambda g: tuple((30 * t).round() for t in _qkv(g)), tolerance=2 * 4096 * EPS
        ),
        Probe("a mask holds for very low scores, too", _far_below, tolerance=2 * 4096 * EPS),
        Probe("any strides", _strided),
        Probe("gradients reach q, k and v", lambda g: (*_qkv(g, 2), _mask(g, 3, 5)), gradients=True),
        Probe("gradients without a mask", lambda g: (*_qkv(g), None), gradients=True),
        Probe("fp64 stays fp64", lambda g: (*(t.double() for t in _qkv(g)), _mask(g, 3, 5))),
        Probe("bf16 stays bf16", lambda g: tuple(t.bfloat16() for t in _qkv(g)), tolerance=4e-2),
    ),
    faults={
        **SCALE,
        "scaled later": Fault(
            "the weights are scaled, not the scores", "Weights that are divided after the softmax no longer sum to 1."
        ),
        "by d_v": Fault(
            "the root of the values' size is used", "The scores are sums over the d_k features of q and k."
        ),
        "fourth root": Fault(
            "the scores are divided by the fourth root of d_k", "If only q is scaled, it takes the whole root."
        ),
        "fixed scale": Fault(
            "the scale is a fixed 8, the root of 64", "d_k is the size of the last axis of q, whatever it is."
        ),
        "roles exchanged": Fault("q and k have exchanged their roles", "Row i of the scores belongs to query i."),
        "keys meet keys": Fault(
            "keys are compared with keys", "q is never used, but a score is the product of a query and a key."
        ),
        **SHARE,
        "one maximum": Fault(
            "one maximum is taken from all scores",
            "Then a row whose scores are far below it vanishes. Each row has its own maximum.",
        ),
        "first axis": Fault("the softmax runs over the first axis", "The keys are the last axis of the scores."),
        "over everything": Fault("all queries share one softmax", "Each query, a row of the scores, has its own."),
        "no exponential": Fault(
            "the scores are divided by their sum", "Scores may be negative. What makes every weight positive?"
        ),
        "sigmoid": Fault(
            "a sigmoid is used instead of the softmax", "The keys compete, so the weights of a query sum to 1."
        ),
        "logarithm": Fault("the logarithm of the weights is used", "Weights are between 0 and 1."),
        **{name: fault for name, fault in MASK.items() if name != "inverted, finite"},
        "mask added": Fault(
            "the mask is added to the scores",
            "True counts as 1 there, so an allowed key gains 1 and no key is forbidden.",
        ),
        "0 times infinity": Fault(
            "the mask is multiplied by -inf", "0 times inf is NaN. Choose between two numbers instead."
        ),
        "mask transposed": Fault(
            "the mask is transposed", "Its rows are queries and its columns keys, as in the scores."
        ),
        "always causal": Fault("a causal mask is used where none is given", "Without a mask every key is allowed."),
        "any mask is causal": Fault(
            "a causal mask is used instead of the one given", "The mask of the caller decides which keys are allowed."
        ),
        "weights returned": Fault(
            "the weights are returned", "Return what they fetch, the weighted sum of the values."
        ),
        "weights too": Fault("the weights are returned with the result", "Return the result alone, one tensor."),
        "keys for values": Fault(
            "the keys are summed up, not the values", "Keys determine where to look, and values what is fetched."
        ),
    },
    hints=(
        "Four steps: a score for each query and key, a division by the root, weights for each query, a weighted sum of the values.",
        "All scores at once are one matrix product. Swap the last two axes of k, counted from the end.",
        "A forbidden key must get the weight 0, and the others must still sum to 1. Before which step must the mask come?",
    ),
)

EXERCISES = (CAUSAL_MASK, ATTENTION)
