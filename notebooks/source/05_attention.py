# %% [markdown] slide="slide"
# # 05 Attention
# **How does a word find the earlier word it depends on?**
#
# *Needs* lessons 02 to 04. *Builds* `causal_mask` and `attend` in `attention.py`. *Runs* in about 10 s on two cores.
# *Teaches* in about 54 minutes, plus 24 of exercises.

# %%
import math
from collections import Counter
from copy import deepcopy
from itertools import permutations, product

import torch
import torch.nn.functional as F

from tinylm_lib import TransformerLM, preset, storyworld
from tinylm_lib import attention as library
from tinylm_lib.attention import attend
from tinylm_lib.classroom import check, hint, keep, predict, show, trace
from tinylm_lib.classroom import attention_view, capture, figures, heads_that_find
from tinylm_lib.layers import Linear, softmax
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(5)

# %% [markdown] slide="slide"
# ## 1. One word looks back
# Read this and stop at the gap:
#
# > Carlos had a pink fan. Jamal had a gray book. Jamal took the pink \_\_\_
#
# You said *fan*, and so will the model that has read StoryWorld (section 5). To say it you did two things. You **matched**: which earlier word is a pink thing? And you **fetched**: what was that word? Attention
# is these two steps, done with numbers that can be learned.
#
# First by hand, with two numbers per word. Each word offers a **key**: what can I be found by? The first number says *I am the pink thing*, the second *I am the gray thing*.
# All other words offer zeros.

# %%
text = " Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
words = text.replace(".", " .").split()
offers = {"fan": [1.0, 0.0], "book": [0.0, 1.0]}
keys = torch.tensor([offers.get(word, [0.0, 0.0]) for word in words])  # (S, 2)

# %% [markdown]
# The last word asks with a **query**: what am I looking for? A pink thing, and rather urgently. The **score** of a key is its dot product with the query: large where
# both point the same way (lesson 02).

# %%
pink_scores = keys @ torch.tensor([4.0, 0.0])  # (S)
print({word: pink_scores[words.index(word)].item() for word in ("Jamal", "fan", "book")})

# %% [markdown]
# Scores become shares, as in lesson 03: how much of each word should be fetched? Here these shares are called **weights**.

# %% tags=["source-hidden"]
predict(
    "`fan` scores 4, the fifteen other words 0. What is the weight of `fan`?",
    key=lambda: f"about {softmax(pink_scores, dim=0)[words.index('fan')]:.1f}",
    choices={
        "1": "Then all others would have 0. But the exponential of 0 is 1, and there are fifteen of them.",
        "about 0.8": "",
        "about 0.1": "That is nearly an even share. But the exponential of 4 is about 55.",
    },
    because="The powers are 54.6 for `fan` and 1 for each of the others: 54.6 out of 69.6.",
)

# %%
pink_weights = softmax(pink_scores, dim=0)  # (S)
assert torch.isclose(pink_weights.sum(), torch.tensor(1.0))
said = "The last word finds fan. The other scores are only 4 lower, so each other word keeps a little."
title = "How much of each word is fetched"
figures.heat_map(pink_weights[None], ["pink"], words, title=title, caption=said, y="query", x="key")

# %% [markdown]
# And what comes back? Not the key: *the pink thing* is how *fan* was found, not what it has to say. So each word carries a third vector, its **value**: what do I hand over?
# Here it has three numbers, *person*, *fan*, *book*. The result is the **weighted sum** of all values.

# %% rows=["S0-21"]
hands_over = {"Carlos": [1, 0, 0], "Jamal": [1, 0, 0], "fan": [0, 1, 0], "book": [0, 0, 1]}
values = torch.tensor([hands_over.get(word, [0, 0, 0]) for word in words]).float()  # (S, 3)
result = torch.zeros(3)
for weight, value in zip(pink_weights, values, strict=True):
    result += weight * value
print({name: round(share, 2) for name, share in zip(("person", "fan", "book"), result.tolist(), strict=True)})

# %% [markdown]
# Mostly *fan*, and a little of the rest. That is attention for one query: **score, softmax, weighted sum**.
#
# Think of a library. The query is your question, the keys are the labels on the books, the values what stands in them. The picture ends where attention
# takes a little of every book at once, in shares that the labels decide.

# %% [markdown] tags=["note"]
# Let the room say what the full stop in *Carlos came to Hillcrest.* would ask for (*He* follows). Common wrong answer: keys and values are the same. Ask: what would come back then?
# For 50 minutes cut the noise experiment in section 4 and the table at the end of section 5.

# %% [markdown] slide="slide"
# ## 2. All queries at once
# Who writes queries, keys and values? Nobody. Each word has a vector, and three learned linear maps make the three of it.
#
# Four sizes are at work, and only some must agree: $T$ queries, $S$ keys, $d_k$ numbers in a key, $d_v$ in a value. Here all differ, to tell them apart: three words ask and five others answer.
# In our models the words that ask are the words that answer (**self-attention**).

# %%
T, S, d_k, d_v, C = 3, 5, 4, 6, 8
asking, answering = torch.randn(T, C), torch.randn(S, C)  # (T, C), (S, C)
q = Linear(C, d_k)(asking)
k, v = Linear(C, d_k)(answering), Linear(C, d_v)(answering)
assert q.shape == (T, d_k) and k.shape == (S, d_k) and v.shape == (S, d_v)

# %% tags=["source-hidden"]
predict(
    "One result for each query, and each is a sum of values. What is the shape of the result?",
    key=lambda: (q @ k.mT).softmax(-1).matmul(v).shape,
    shape="(?, ?)",
    feedback={
        (3, 5): "Those are the weights: for each query, one per key. Then they meet the values.",
        (5, 6): "Those are the values: one per key. The result has one row per query.",
    },
    because="A row for each of the 3 queries, and each is a weighted sum of vectors of 6 numbers.",
)

# %% [markdown]
# `k.mT` swaps the last two axes. Then all scores are one matrix product, and all weighted sums another:

# %% rows=["S0-20"] evidence="one-query-at-a-time"
scores = q @ k.mT  # (T, 4) @ (4, S) -> (T, S)
weights = softmax(scores / math.sqrt(d_k), dim=-1)  # (T, S)
out = weights @ v
for i, query in enumerate(q):  # the same, by hand: one query at a time, as in section 1
    row = softmax(k @ query / math.sqrt(d_k), dim=0)  # (S)
    torch.testing.assert_close(out[i], sum(w * value for w, value in zip(row, v, strict=True)))

# %% [markdown]
# $$\text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# The softmax runs along each row, over the keys, so the weights of each query sum to 1. [[one-query-at-a-time]] The next section explains the root.

# %% tags=["source-hidden"] rows=["S0-23", "S3-1"]
hue = {label: figures.AXIS_COLORS[axis].light for label, axis in (("T", "T"), ("S", "S"), ("$d_k$", "D"))}
drawn = [
    ("q", q, 0, 0, "T", "$d_k$"),
    ("k,\ntransposed", k.mT, 6.2, 4.6, "$d_k$", "S"),
    ("scores; softmax\nalong each row:\nweights", weights, 6.2, 0, "T", "S"),
    ("v", v, 13.4, 4.6, "S", "$d_v$"),
    ("result", out, 13.4, 0, "T", "$d_v$"),
]
with figures.axes("Sides of one colour have one length", "columns", "rows", (9.6, 6.2)) as (figure, ax):
    for name, matrix, x, y, rows, columns in drawn:
        height, width = matrix.shape
        ax.fill([x, x + width, x + width, x], [y, y, y + height, y + height], "#eef3f9")
        ax.plot([x, x], [y, y + height], color=hue.get(rows), linewidth=6, linestyle="-")
        ax.plot([x, x + width], [y + height] * 2, color=hue.get(columns, figures.INK), linewidth=6, linestyle="-")
        ax.text(x - 0.3, y + height / 2, rows, color=hue.get(rows), ha="right", va="center", size=20)
        ax.text(x + width / 2, y + height + 0.3, columns, color=hue.get(columns, figures.INK), ha="center", size=20)
        ax.text(x + width / 2, y + height / 2, name, ha="center", va="center", size=16)
    ax.set(aspect="equal")
    ax.axis("off")
figures.display(
    figure,
    alt="Diagram: q (T, d_k) times k transposed (d_k, S) gives scores (T, S); their softmax times v (S, d_v) gives the result (T, d_v).",
    caption="Drawn to scale. A product takes its rows from what stands left of it and its columns from what stands above it.",
    table={"matrix": [row[0] for row in drawn], "shape": [tuple(row[1].shape) for row in drawn]},
)

# %% [markdown]
# Read three rules off the picture:
# - Queries and keys share $d_k$, or there is no dot product.
# - Keys and values share $S$: each key that can be found has something to hand over.
# - $d_v$ is free, and $T$ and $S$ may differ: in section 1 one query met sixteen keys.

# %% [markdown] slide="slide"
# ## 3. Why divide by a root?
# A score is a sum of $d_k$ products. If all numbers in queries and keys are independent, with mean 0 and standard deviation 1, each product has the variance 1, and variances add up (lesson 02).

# %% tags=["source-hidden"]
predict(
    "Queries and keys of independent random numbers (mean 0, standard deviation 1), with `d_k` = 64. What is the standard deviation of their scores, undivided?",
    key=lambda: f"about {(torch.randn(1000, 64) @ torch.randn(64, 128)).std():.0f}",
    choices={
        "about 64": "That is the variance. The standard deviation is its root.",
        "about 8": "",
        "about 1": "That is one product. A score adds up 64 of them.",
    },
    because="The variance is 64, and its root is 8.",
)

# %% [markdown]
# So keys of more numbers mean larger scores. What do these do to the softmax? Let 1000 queries look at 128 keys. How many keys share the weight? $e$ to the power of the **entropy**, $-\sum w \ln w$, says it:
# 128 if all get the same, 1 if one gets all. And learning needs a gradient. We pull each result in a random direction and ask how large the gradient at a score is, in the median.


# %%
def measure(d_k: int, divisor: float, seed: int = 1) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1000, d_k, generator=generator)
    k = torch.randn(128, d_k, generator=generator)
    v = torch.randn(128, 8, generator=generator)
    scores = (q @ k.mT / divisor).requires_grad_()
    weights = softmax(scores, dim=-1)
    (weights @ v * torch.randn(1000, 8, generator=generator)).sum().backward()
    assert scores.max() < 88 and weights.isfinite().all()
    n_keys = torch.special.entr(weights).sum(-1).exp()  # entr is -w ln w, and 0 where w is 0
    return [n.item() for n in (scores.std(), weights.amax(-1).mean(), n_keys.mean(), scores.grad.abs().median())]


# %% rows=["S0-22"]
print("  d_k  divided by   std   largest weight   as many keys   gradient at a score")
for size in (16, 64, 256):
    for name, divisor in (("1", 1.0), ("root", math.sqrt(size)), ("d_k", size)):
        std, largest, n_keys, typical = measure(size, divisor)
        print(f"{size:>5}  {name:<10} {std:5.2f}   {largest:14.2f}   {n_keys:12.1f}   {typical:19.0e}")

# %% [markdown]
# (Weight and keys are means over the queries.) Divided by the root, the number of features makes no difference: the standard deviation is 1, the weights are spread, and the typical key gets a gradient. Undivided,
# with many features, one key takes nearly all of the weight: the softmax is **saturated**. The few keys that win still get a gradient. But a score's gradient carries its weight as a factor, and a typical weight is almost 0.
# So **a key that is not already found can hardly learn to be found**.
#
# And why not divide by $d_k$ itself? The gradients in these rows are even larger. But with many features, random queries then give all keys nearly the same weight, so at the start of training a query hardly distinguishes them. Training can undo
# this, because trained queries and keys are no longer independent. For this reason some models do divide by $d_k$ (Yang et al. 2022).
#
# These were single draws. The same for more sizes, each with three seeds:

# %% evidence="one-size"
for size in (4, 16, 64, 256):
    for seed in (1, 2, 3):
        undivided = measure(size, 1.0, seed)
        by_root = measure(size, math.sqrt(size), seed)
        by_d_k = measure(size, size, seed)
        assert 0.9 < undivided[0] / math.sqrt(size) < 1.1 and 0.9 < by_root[0] < 1.1
        assert 5e-3 < by_root[3] < 2e-2 and by_d_k[3] > by_root[3] and by_d_k[2] > by_root[2]
        assert size < 64 or (undivided[3] < 1e-7 and by_d_k[2] > 125)
long = measure(64, math.sqrt(64) / 4)  # as if the queries were 4 times as long
print(f"queries of size 4, divided by the root: std {long[0]:.1f}, gradient at a score {long[3]:.0e}")
assert long[3] < 1e-3

# %% [markdown]
# So the root undoes what comes from the number of features, for independent random queries and keys of size 1. [[one-size]] It does not undo what training makes of them: the last line has queries of size 4, and the
# softmax begins to saturate again. (Our shipped model therefore has a norm for its queries and keys, as in lesson 04: `qk_norm`.)
#
# Some texts give another reason, "numerical stability". Nothing overflowed here: `measure` asserts that no score reached 88, where the exponential in fp32 would begin to, and softmax takes
# the maximum off anyway (lesson 03).

# %% [markdown] tags=["note"]
# Before the paragraph on it, ask: why not divide by d_k itself? The usual wrong answer: because then no gradient arrives. (The table shows the opposite. With long random keys all scores are near 0, and every key gets the same weight; training can undo this.)
# Next section: the room often says that row 0 "attends to nothing". It attends to itself. The two ways to write the rule, i >= j and j <= i, are one.

# %% [markdown] slide="slide"
# ## 4. No looking ahead
# A model learns by guessing the next word at every position at once. But the next word stands right there, one place to the right. So no position may see what comes later. Which query may look at which key?
# For four words, with invented scores:

# %%
T = 4
allowed = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()  # (T, T)
word_scores = torch.tensor([[1.0, 2.0, 0.0, 3.0], [0.5, 1.0, 2.0, 0.0], [2.0, 0.0, 1.0, 2.0], [0.0, 1.5, 0.0, 1.0]])

# %% [markdown]
# This is a **causal mask**. Row $i$ belongs to query $i$, and in this series True means *allowed*: a position sees itself and all before it.
#
# A forbidden key must get the weight 0, and the others must still sum to 1. So the mask comes **before** the softmax: a forbidden score becomes $-\infty$, and its
# exponential is 0. `masked_fill` writes where its mask is True, so we hand it `~allowed`, the forbidden places. Some notes write the mask as numbers to add to the scores, 0 and $-\infty$:

# %% rows=["S4-23"]
added = torch.zeros(T, T).masked_fill(~allowed, -math.inf)
print(added)
masked = word_scores.masked_fill(~allowed, -math.inf)
assert masked.equal(word_scores + added)

# %% tags=["source-hidden"]
predict(
    "Row 0 now holds one score and three times -inf. What are its weights?",
    key=lambda: str([round(w) for w in softmax(masked, dim=-1)[0].tolist()]),
    choices={
        "[1, 0, 0, 0]": "",
        "[0, 0, 0, 0]": "Position 0 sees nobody before it, but it sees itself, and softmax gives out all of 1.",
        "[nan, nan, nan, nan]": "One score is finite, so the maximum and the sum are, too.",
    },
    because="The first word sees only itself and gives itself everything.",
)

# %%
causal_weights = softmax(masked, dim=-1)
said = "Every row sums to 1. The first word has only itself, the last may look at all."
title = "Each row shares out its 1 among the past"
figures.heat_map(causal_weights.masked_fill(~allowed, math.nan), words[:T], words[:T], title=title, caption=said)

# %% [markdown]
# Why not softmax first, and cross out afterwards?

# %% evidence="mask-first"
print("mask before the softmax, rows sum to", causal_weights.sum(-1))
print("mask after the softmax, rows sum to ", (softmax(word_scores, dim=-1) * allowed).sum(-1))
left = softmax(word_scores + 200 * ~allowed, dim=-1) * allowed  # forbidden scores far above the others
print("and divided by what is left, row 0: ", (left / left.sum(-1, keepdim=True))[0])
torch.testing.assert_close(causal_weights.sum(-1), torch.ones(T))
assert (softmax(word_scores, dim=-1) * allowed).sum(-1).min() < 0.5 and left[0].eq(0).all()

# %% [markdown]
# The softmax first gave some probability to future positions, and the mask then removed it, so the rest no longer sums to 1. Worse: how much is left depends on the forbidden scores, so the future leaks. Dividing by the new sums is exact
# in theory. But if the forbidden scores are far above the others, as in the last line, the allowed weights underflow to 0, and nothing is left to divide.
#
# ### Your turn
# First the mask for any $n$, without typing it in.


# %% tags=["exercise"] name="causal_mask" minutes=6 difficulty=1
def causal_mask(n):
    """n: how many positions. Returns (n, n), bool: True where key j (column) is not later than query i (row)."""
    # SOLUTION
    return torch.ones(n, n, dtype=torch.bool).tril()
    # END


# %% tags=["check"]
if check("causal_mask", causal_mask).passed:
    keep("causal_mask", causal_mask)

# %%
hint("causal_mask")

# %% [markdown] tags=["solution"]
# `tril` keeps the lower triangle with its diagonal. As good: `torch.arange(n)[:, None] >= torch.arange(n)`. The usual slips: `triu` (the future), `tril(-1)` (position 0 sees nothing),
# numbers in place of True and False.

# %% [markdown]
# Then attention for all queries. You may use the library's `softmax` (lesson 03): a score of $-\infty$ gets exactly 0, as long as its row has a finite one.


# %% tags=["exercise"] name="attention" minutes=18 difficulty=3
def attention(q, k, v, mask=None):
    """q (..., T, d_k), k (..., S, d_k), v (..., S, d_v), with 0 or more leading axes, the same in all three.

    mask: bool (T, S), any pattern, True = allowed; None: every key is allowed. A row without any True is left open.
    Returns (..., T, d_v) in the dtype of q.
    """
    # SOLUTION
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return softmax(scores, dim=-1) @ v
    # END


# %% tags=["check"]
if check("attention", attention).passed:
    keep("attention", attention)

# %%
hint("attention")

# %% [markdown] tags=["solution"]
# The formula from left to right, with the mask between scale and softmax. `.mT` and `dim=-1` count from the end, so leading axes pass through. The usual slips: `k.T` (turns all axes round), `dim=0` or `dim=1`,
# the root of another size, -100 in place of $-\infty$ (it wins where all scores lie lower), and `~mask * -inf`: 0 times infinity is NaN.

# %% [markdown] slide="subslide"
# ### The library's version
# `causal_mask` agrees with the mask we typed in, and `attend` with the result of section 2. A forbidden key is as good as absent. Leading axes pass through: each text is read by itself.

# %% rows=["S0-19", "S1-20"]
assert library.causal_mask(4).equal(allowed)
torch.testing.assert_close(attend(q, k, v), out)
some = torch.tensor([True, False, True, True, False])  # (S)
torch.testing.assert_close(attend(q, k, v, some.expand(3, S)), attend(q, k[some], v[some]))
for lead in ((2,), (2, 7), (2, 3, 7)):
    x = torch.randn(*lead, 5, 4)
    first = x.flatten(0, -3)[0]  # (5, 4)
    torch.testing.assert_close(attend(x, x, x).flatten(0, -3)[0], attend(first, first, first))

# %%
show(library.causal_mask)
show(attend)


# %% tags=["source-hidden"]
def in_steps(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    masked = scores.masked_fill(~mask, -math.inf)
    weights = softmax(masked, dim=-1)
    return weights @ v


qkv = torch.randn(3, T, C)  # queries, keys and values: (T, C) each
torch.testing.assert_close(attend(*qkv, allowed), in_steps(*qkv, allowed))
trace(in_steps, *qkv, allowed, sizes={"T": T, "C": C})

# %% [markdown]
# The trace shows the steps. `attend` checks its arguments and leaves these steps to PyTorch; on a GPU they are one kernel. (What its text says of heads and groups is for lesson 07; fewer queries than keys for lesson 13.)
#
# The exercise left one row open: a query that may see **nobody**. Three answers are in use.

# %% rows=["S1-19"]
questions, labels, contents = torch.randn(2, 4), torch.randn(3, 4), torch.randn(3, 2)
mask = torch.tensor([[True, True, False], [False, False, False]])
scores = questions @ labels.mT / 2  # the root of 4
for fill in (-math.inf, -1e9):
    print(f"filled with {fill:.0e}: weights", softmax(scores.masked_fill(~mask, fill), dim=-1)[1])
print("library:            result ", attend(questions, labels, contents, mask)[1])
questions[0] = math.nan
print("library, NaN query: result ", attend(questions, labels, contents, mask)[0])

# %% [markdown]
# With $-\infty$ every exponential would be 0, and 0 / 0 is NaN. With -1e9 nothing is forbidden any more: all keys are equally bad, and each gets a third. The library fetches nothing, 0. A published note
# turns every NaN into 0 afterwards, which hides real trouble: a broken query should stay NaN, and here it does.
#
# ### What happens without a mask?
# Would a model make use of the future? We train a small one on texts of pure noise: six positions, and at each one of 32 words, drawn at random. Nothing can be known. What is fetched
# is a mix of the words, each as a vector with a 1 at its own id (`one_hot`). Multiplied by one learned number, `trust`, the mix gives the logits. Gradient descent chooses `trust` and the scores, one for each pair
# of positions. (`AdamW`, an optimizer, takes the steps: lesson 11.)


# %%
def learned(causal: bool, seed: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores, trust = torch.zeros(6, 6, requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.AdamW([scores, trust], lr=0.1)
    mask = library.causal_mask(6) if causal else torch.ones(6, 6, dtype=torch.bool)
    for _ in range(200):
        ids = torch.randint(32, (64, 7), generator=generator)
        weights = softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
        logits = trust * (weights @ F.one_hot(ids[:, :-1], 32).float())  # (64, 6, 32)
        # cross_entropy wants the 32 logits on axis 1 (.mT); "none": a loss for each position, not their mean
        losses = F.cross_entropy(logits.mT, ids[:, 1:], reduction="none").mean(0)  # (6)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    return weights.detach(), losses.detach()


# %% rows=["S4-46"] evidence="no-mask"
print(f"nothing can be known: ln 32 = {math.log(32):.1f} nats")
for causal in (True, False):
    runs = [learned(causal, seed) for seed in (5, 6, 7)]
    first_five = torch.stack([losses[:-1] for _, losses in runs]).mean()
    last_one = torch.stack([losses[-1] for _, losses in runs]).mean()
    print(f"causal={causal}: loss of the first five positions {first_five:.1f}, of the last one {last_one:.1f}")
    assert abs(first_five - math.log(32)) < 0.1 if causal else first_five < 0.2
next_ones = torch.stack([weights.diagonal(1) for weights, _ in runs])  # (3 runs, 5): the weight of the next position
assert next_ones.min() > 0.9 and last_one > math.log(32)

# %% tags=["source-hidden"]
places = [f"position {i}" for i in range(6)]
said = "Each position but the last finds the word it should predict. The last one has none to find, and spreads its weight."
figures.heat_map(runs[0][0], places, places, title="Without a mask: look one position ahead", caption=said)

# %% [markdown]
# Without a mask all three runs (three seeds) learned to copy the next word. [[no-mask]] The loss looks wonderful, but when the model writes there is no next word to copy. The last position shows it: one `trust`
# serves all positions, so here it trusts words that say nothing about the next one, and the loss is a little above the 3.5 nats of not knowing. [[no-mask]]
#
# And while the model writes, when there is no future yet: does it need a mask then? A common answer is no. We read a text with and without, and compare the results at the last position:


# %%
def read(x: torch.Tensor, turn: torch.Tensor, n_layers: int, causal: bool) -> torch.Tensor:
    for _ in range(n_layers):
        x = x + attend(x @ turn, x, x, causal=causal)  # `turn` plays the part of the learned maps
    return x[-1]


# %% evidence="reading-again"
for n in (1, 2, 3):
    apart = []
    for seed in (1, 2, 3):
        generator = torch.Generator().manual_seed(seed)
        some_text = torch.randn(6, 8, generator=generator)
        turn = torch.randn(8, 8, generator=generator) / math.sqrt(8)
        difference = read(some_text, turn, n, causal=True) - read(some_text, turn, n, causal=False)
        apart.append(difference.abs().max().item())
    print(f"layers: {n}, the last result differs by", ", ".join(f"{gap:.2f}" for gap in apart))
    assert max(apart) < 1e-5 if n == 1 else min(apart) > 0.1

# %% [markdown]
# With one layer that is right for the last position: the last word may see everything anyway. With two, and no mask, the *earlier* words have looked ahead in the first layer, and the last word reads what they found. So with more than one layer, even the last result needs the mask. [[reading-again]] The earlier
# positions always need it: if you use their results, as a loss at every position does, the mask is needed with a single layer, too. [[no-mask]] (A single new query, with stored keys, needs none: lesson 13.)

# %% [markdown] slide="slide"
# ## 5. The shipped model looks back
# Has a trained model found the same trick? Here is one *head* (one of several attentions side by side, lesson 07) in the last layer of the model that ships with the library, with our text. The buttons show
# the steps of sections 2 to 4, here with $d_k$ = 32; *mix* is the weighted sum. Read the row of the last word first. Then choose *all heads*: does any
# other head find the fan? (The text begins with a line end, because every story in the training did.) In JupyterLab you can type a text, too. Try *One foggy day, careful Mia came to Hillcrest.*: where StoryWorld knows which word tells the next one, that word has a ring.

# %% tags=["signature"]
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
attention_view(model, tokenizer, "\n" + text, layer=2, head=0)

# %%
texts = {"as above": text, "exchanged": " Carlos had a gray fan. Jamal had a pink book. Jamal took the pink"}
pair = torch.tensor([tokenizer.encode("\n" + one_text) for one_text in texts.values()])  # (B, T)
at = {word: 1 + words.index(word) for word in ("pink", "fan", "book")}  # the line end is at 0

# %%
caught = capture(model, pair)
for i, name in enumerate(texts):
    rows = caught.attention(layer=2).weights[i, :, -1]  # (H, S), of the last word
    guess = tokenizer.decode([caught.logits[i, -1].argmax().item()])
    print(f"{name}: head 0 gives {rows[0, at['fan']]:.2f} to fan, {rows[0, at['book']]:.2f} to book, guess:{guess}")
    print(f"   no other head gives them more than {rows[1:, [at['fan'], at['book']]].max():.2f}")

# %% [markdown]
# As in our toy: *pink* finds *fan*. And with the two colours exchanged it finds *book*. The words *fan* and *book* are where they were: how can their keys know which of them is pink?
# In an **earlier layer** they have looked back themselves:

# %%
gives = caught.attention(layer=1).weights[0, :, at["fan"], at["pink"]]
print("layer 1: the four heads of fan give pink", [round(weight, 2) for weight in gives.tolist()])

# %% [markdown]
# Does the model need these looks? We forbid them, one at a time, in a copy of the model, and count how often its guess is still right. To be sure that it is not about *fan* and *pink*, we take four sets of words, each in all orders of names, things
# and colours. All these texts have the same form, so in all of them the first thing is at position 5, with its colour just before it, and the second thing at 11.

# %%
sets = [
    (("Carlos", "Jamal"), ("fan", "book"), ("pink", "gray")),
    (("Mia", "Tom"), ("kite", "drum"), ("red", "blue")),
    (("Jamal", "Mia"), ("bell", "hat"), ("golden", "purple")),
    (("Tom", "Carlos"), ("cup", "flute"), ("white", "green")),
]

# %%
asked = []
for names, things, colours in sets:
    for (a, b), (x, y), (c, d), colour in product(*map(permutations, (names, things, colours)), colours):
        one_text = f" {a} had a {c} {x}. {b} had a {d} {y}. {names[1]} took the {colour}"
        asked.append((one_text, x, y) if colour == c else (one_text, y, x))  # the right thing comes first
many = torch.tensor([tokenizer.encode("\n" + one_text) for one_text, _, _ in asked])  # (64, T)

# %% [markdown]
# (In the code the method `mix` calls `attend` and puts the heads side by side, lesson 07; we replace it by one with another mask.)


# %%
def count_without(layer: int, looks: list[tuple[int, int]], heads: list[int]) -> tuple[int, int]:
    """Forbid these looks (query, key) to these heads. Returns how many guesses are right, and name the other thing."""
    mask = library.causal_mask(many.shape[1]).repeat(4, 1, 1)  # (H, T, T)
    for query, key in looks:
        mask[heads, query, key] = False
    changed = deepcopy(model)
    changed.blocks[layer].attention.mix = lambda q, k, v, _: attend(q, k, v, mask).transpose(1, 2).flatten(2)
    with torch.no_grad():
        best = changed(many)[:, -1].argmax(-1).tolist()
    guesses = [tokenizer.decode([i]).strip() for i in best]
    n_right = sum(guess == right for guess, (_, right, _) in zip(guesses, asked, strict=True))
    n_wrong = sum(guess == wrong for guess, (_, _, wrong) in zip(guesses, asked, strict=True))
    return n_right, n_wrong


# %%
own_colour = [(5, 4), (11, 10)]  # each thing at its own colour
other_colour = [(11, 4)]  # the second thing at the first one's colour; the reverse would be a look ahead
every_head = [0, 1, 2, 3]

# %% tags=["source-hidden"]
n_right, n_wrong = count_without(1, own_colour, every_head)
predict(
    f"In layer 1 no thing may look at its own colour. How many of the {len(asked)} guesses are right? By choosing one of the two things blindly, it would be about {len(asked) // 2}.",
    key=lambda: "far fewer than half" if n_right < 0.35 * len(asked) else "about half",
    choices={
        "nearly all": "Then the model would know the colours of the things in another way.",
        "about half": "That would be so if it knew nothing about the colours of the things. But it may know something wrong.",
        "far fewer than half": "",
    },
    because="Most guesses name the other thing: the second thing can still look at the first one's colour, and takes it for its own.",
)

# %%
counts = {}
for what, layer, looks, heads in (
    ("own colour, layer 0", 0, own_colour, every_head),
    ("own colour, layer 1", 1, own_colour, every_head),
    ("own colour, layer 2", 2, own_colour, every_head),
    ("own colour, layer 1, head 0 only", 1, own_colour, [0]),
    ("own colour, layer 1, all but head 0", 1, own_colour, [1, 2, 3]),
    ("the other's colour, layer 1", 1, other_colour, every_head),
    ("both colours, layer 1", 1, own_colour + other_colour, every_head),
    ("last word at the things, layer 2", 2, [(16, 5), (16, 11)], every_head),
):
    counts[what] = count_without(layer, looks, heads)
    print(f"{what:<36} {counts[what][0]:2} of {len(asked)} right, {counts[what][1]:2} name the other thing")

# %% evidence="looks-forbidden"
fraction = {what: n_right / len(asked) for what, (n_right, _) in counts.items()}
assert min(fraction["own colour, layer 0"], fraction["own colour, layer 2"]) > 0.9
assert fraction["own colour, layer 1"] < 0.35 and 0.4 < fraction["both colours, layer 1"] < 0.6
assert fraction["own colour, layer 1, head 0 only"] < 0.4 and fraction["own colour, layer 1, all but head 0"] > 0.9
assert fraction["the other's colour, layer 1"] > 0.9 and fraction["last word at the things, layer 2"] < 0.1

# %% [markdown]
# Without its own colour the second thing still sees the first one's colour, and takes it up. So the model is not ignorant but **misled**: in three of four texts it names the other thing. Forbid that look as well, and nothing is left to know: about half of the
# guesses are right, as by chance. In layers 0 and 2 the look at the colour makes no difference, and in layer 1 it is head 0 that needs it. And if the last word may not look at the things in layer 2, the model names other things altogether.
#
# So finding takes two steps in two layers: in layer 1 the things take up their colours, in the last one *pink* finds its thing. [[looks-forbidden]] Olsson et al. (2022) describe a similar circuit of two layers. They call
# its second head an **induction head**, and they recognize it by a test with repeated random words: it finds the word that came after the earlier copy. Our cells show nothing of that kind about our head, so we do not use the name for it.
#
# And other words? For some of them StoryWorld knows which earlier words tell them. We ask each head at the word before, where the guess is made: does it look most at one of these? For each layer, the
# hits of the best of its 4 heads:

# %%
generator = torch.Generator().manual_seed(5)
stories = [storyworld.story(generator) for _ in range(20)]
told = Counter(kind for story in stories for kind in story.kinds if kind)
found = heads_that_find(model, tokenizer, stories)
print(f"{told.total()} of {sum(len(story.kinds) for story in stories)} words are told by earlier ones")
print("     kind  words   layer 0   layer 1   layer 2")
for kind, n in told.most_common():
    print(f"{kind:>9}  {n:>5}", *(f"{share:9.0%}" for share in found[kind].amax(-1).tolist()))

# %% [markdown]
# Three kinds are always found by one head of the last layer: object, pronoun and place. The others are found partly, or in an earlier layer. (The best head was chosen on these same stories, which flatters it. And to find a word is not yet to use it: lesson 07 removes the heads.)

# %% [markdown] slide="slide"
# ## 6. What order means
# Nothing in the formula knows where a word stands: keys are matched, wherever they are. (The shipped model turns queries and keys by their place, lesson 06.) What is order to a model without
# positions? Our two texts have the same words before the same last word, in another order. We build untrained models of the
# shipped one's kind (`modern`), with larger random weights than usual (`xavier`), so that a difference shows:


# %%
def gap(n_layers: int, seed: int, one: torch.Tensor, other: torch.Tensor) -> float:
    torch.manual_seed(seed)
    config = preset("modern", vocab_size=tokenizer.vocab_size, position="none", n_layers=n_layers, init="xavier")
    without_positions = TransformerLM(config).eval()
    with torch.no_grad():
        last_logits = [without_positions(ids[None])[0, -1] for ids in (one, other)]  # each (V)
    return (last_logits[0] - last_logits[1]).abs().max().item()


# %% tags=["source-hidden"]
can = [n for n in (1, 2) if gap(n, 0, *pair) > 1e-3]
predict(
    "Two models, of one layer and of two: random weights, no positions, a causal mask. Which give different logits for the two texts, at the last word?",
    key=lambda: {(): "neither", (2,): "only the one with two layers", (1, 2): "both"}[tuple(can)],
    choices={
        "neither": "That is right for the first layer. But what has the second one to read?",
        "only the one with two layers": "",
        "both": "With one layer the last word sums up the same keys and values, only in another order.",
    },
    because="After the first layer each earlier word has seen the words before it, and no others: now its vector depends on order.",
)

# %% evidence="bag"
shuffled = torch.cat((pair[0, torch.randperm(16, generator=torch.Generator().manual_seed(5))], pair[0, -1:]))
for name, another in (("exchanged", pair[1]), ("shuffled", shuffled), ("said twice", pair[0].repeat(2))):
    assert another.unique().equal(pair[0].unique()) and another[-1] == pair[0, -1]
    for n_layers in (1, 2, 3):
        gaps = [gap(n_layers, seed, pair[0], another) for seed in range(3)]
        print(f"{name:<10}  layers: {n_layers}, three seeds:", ", ".join(f"{g:.2f}" for g in gaps))
        assert (max(gaps) < 1e-4) if n_layers == 1 else (min(gaps) > 0.1)
assert gap(1, 0, pair[0], torch.cat((pair[0, :6], pair[0, 5:]))) > 0.01  # one word twice, the others once

# %% [markdown]
# With one layer the last word sees a **bag**: which words came before, in which proportions, and in no order. (Proportions, because attention is an average: a text that is said twice gives the same result.) It cannot say which thing is pink. With two layers,
# the causal mask itself gives away something of the order: the first *pink* has three words before it in one text and nine in the other, and its vector shows it. [[bag]] So it is not true that a model without positions finds any two orders "identical". But different is all that these
# random models show: whether a model learns to use the difference is another question (Haviv et al. 2022 say yes). Order is only a hint
# there; lesson 06 tells the model outright.

# %% [markdown] slide="slide"
# ## 7. Break it: which way round?
# Published notes write masks in three ways: True = allowed, True = *blocked*, and numbers to be added, 0 and $-\infty$. Each is right with its own code. Exchange them:

# %%
T, D = 4, 8
qkv = torch.randn(3, T, D)  # queries, keys and values: (T, D) each
scores, mask = qkv[0] @ qkv[1].mT / math.sqrt(D), library.causal_mask(T)
true_is_blocked = softmax(scores.masked_fill(mask, -math.inf), dim=-1)  # (T, T)

# %% tags=["source-hidden"]
broken = true_is_blocked.isnan().any(-1).nonzero()[:, 0].tolist()
predict(
    "Our causal mask went into code that reads True as blocked. Which row is NaN?",
    key=lambda: {(): "none", (0,): "the first", (T - 1,): "the last"}[tuple(broken)],
    choices={
        "the first": "It is blocked from itself, but now it may see all that come later.",
        "the last": "",
        "none": "Look for a row that is True everywhere.",
    },
    because="The last row allows everything, so read the other way round it blocks everything.",
)

# %%
print(true_is_blocked)

# %% [markdown]
# The other rows see the future only. The NaN is good luck: somebody notices. A mask of numbers, read as blocked where it is 0, is the same
# mistake. So the library takes bool masks only, and says so:

# %% tags=["raises-exception"]
added = torch.zeros(T, T).masked_fill(~mask, -math.inf)
assert added.eq(0).equal(mask)
attend(*qkv, added)

# %% [markdown]
# ## What you have now
# - A query scores all keys, softmax turns the scores into weights, and the result is the weighted sum of the values. [[one-query-at-a-time]]
# - Queries and keys have the same number of features, $d_k$. There are as many values as keys, $S$. The size of a value, $d_v$, is free. [[one-query-at-a-time]]
# - For independent queries and keys of mean 0 and variance 1, the scores have a standard deviation of $\sqrt{d_k}$. Divided by this root, they keep one size for every $d_k$, and in our experiment a typical key still gets a gradient. [[one-size]]
# - The causal mask comes before the softmax, so that the weights sum to 1. True means allowed: a position sees itself and what comes before it. [[mask-first]]
# - Trained without a mask, our small model learned to copy the next word. When a text is read again, only the last result of a single layer needs no mask: the earlier positions always need it, and with more layers the last one does, too. [[no-mask]] [[reading-again]]
# - The shipped model finds *fan* after *pink* in two steps: in one layer the things take up their colours, in the next one the last word finds the thing. Without the first step for both things, or without the second step, most guesses are wrong. [[looks-forbidden]]
# - One layer without positions sees a bag of words. Two layers with a causal mask gave different results for different orders. [[bag]]
#
# Next, lesson 06: how to tell a model directly where each word stands.

# %% [markdown]
# ## Sources
# - Attention, the root of $d_k$, the mask: Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.
# - Dividing by $d_k$: Yang et al. 2022, *Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer*.
# - Finding in two steps: Olsson et al. 2022, *In-context Learning and Induction Heads*.
# - Order from the mask: Haviv et al. 2022, *Transformer Language Models without Positional Encodings Still Learn Positional Information*.
