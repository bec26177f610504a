# %% [markdown] slide="slide" minutes=1
# # 06 Positions
# **How does a model know which word came first?**
#
# *Needs* lessons 02 to 05. *Builds* `positions.py`. *Runs* in about 20 s on two cores.
# *Teaches* in 42 minutes, plus 18 of exercises.

# %%
import math
from copy import deepcopy
from dataclasses import replace

import torch

from tinylm_lib import TransformerLM, next_token_loss, positions, preset, storyworld
from tinylm_lib.attention import attend
from tinylm_lib.classroom import capture, check, figures, fixed, hint, keep, learned, predict, rope_view, show, trace
from tinylm_lib.positions import POSITIONS, LearnedPosition, Positions, Rotary, SinusoidalPosition, frequencies
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(6)

# %% [markdown] slide="slide" minutes=4
# ## 1. Four answers in one table
# Who thanked whom? Two sentences of the same words:

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
ids = torch.tensor([tokenizer.encode("\nOne day, Carlos thanked Jamal.")])  # (B, T)
swapped = ids[:, [0, 1, 2, 3, 6, 5, 4, 7]]
for read in (ids, swapped):
    print(tokenizer.decode(read[0].tolist()).strip())

# %% [markdown]
# Lesson 05 compared words by what they are, and one layer could not tell their order. Our library has four answers: give no position, add a learned vector, add a fixed one, or turn queries and keys. (Other models add a number to the *scores*, for instance ALiBi, Press et al. 2022.)
# They are in a table, `POSITIONS`, with two columns: what is **added to the vectors $x$, once**, and what is **done to each $q$ and $k$, in every layer**.
#
# The folded code prints it, with what each answer stores. At the right: for each answer two models with random weights, of one layer and of two, read both sentences. How far apart are their scores after the full stop, at most?


# %% tags=["source-hidden"] rows=["S0-26"] evidence="order"
def build(position: str, n_layers: int) -> TransformerLM:
    _ = torch.manual_seed(6)
    choices = {"position": position, "n_layers": n_layers, "max_seq_len": 64, "init": "xavier", "init_std": 0.5}
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, **choices)).eval()


@torch.no_grad()
def gap(reader: TransformerLM) -> float:
    return (reader(ids) - reader(swapped))[0, -1].abs().max().item()


print(f"{'':<12}{'added to x':<20}{'q and k':<11}{'weights':>8}{'table':>10}{'1 layer':>9}{'2 layers':>10}")
for name, (added, rotated) in POSITIONS.items():
    one, two = build(name, n_layers=1), build(name, n_layers=2)
    n_weights = sum(w.numel() for w in one.position.parameters())
    stored = [*one.position.parameters(), *one.position.buffers(), *one.blocks[0].attention.rotation.buffers()]
    size = " x ".join(map(str, stored[0].shape)) if stored else "none"
    print(f"{name:<12}{added.__name__:<20}{rotated.__name__:<11}{n_weights:>8,}{size:>10}", end="")
    print(f"{gap(one):>9.2f}{gap(two):>10.2f}")
    assert gap(one) < 1e-4 if name == "none" else gap(one) > 0.02

# %% [markdown]
# `Unchanged` does nothing. Three answers store a row for each of 64 positions. Only the learned rows are trained: 64 of 128 numbers make 8,192 weights. After the full stop, one layer without positions gives both sentences the same scores. With two layers the mask
# leaks some of the order, as lesson 05 showed. (With random weights only 0 or not 0 counts, not the size.) But a leak is not a ruler: a head should be able to find *the word two places back*, whatever the words are.

# %% [markdown] tags=["note"]
# Ask the room for its own answer first. "Number the words and add the number" always comes: what happens far into a long text, when the other features are about 1?
# In a short class: sections 1, 3, 5 and 8, and the pictures of section 4 without their code.

# %% [markdown] slide="slide" minutes=5
# ## 2. Waves that are added
# The simplest answer is an embedding for places: a learned row for position 0, one for position 1, and so on, added to the word's vector. GPT-2 does so (Radford et al. 2019).
#
# Can the rows be *computed*? Think of a clock: a fast hand and a slow one, and both together tell many times apart. A hand is given by its tip, a sine and a cosine. With $d = 4$
# numbers there are two hands. Angles are in **radians**, 6.28 for a full turn. The first hand turns by 1 per position, the second by 0.01:

# %%
for p in range(4):
    row = [math.sin(p), math.cos(p), math.sin(0.01 * p), math.cos(0.01 * p)]
    print(f"position {p}:", " ".join(f"{value:7.4f}" for value in row))
print(f"a full turn: {2 * math.pi:.2f}")

# %% [markdown]
# In general there are $d/2$ pairs, counted from $i = 0$. Pair $i$ turns with the **speed** $\omega_i$ (omega), in radians per position:
#
# $$\omega_i = 10000^{-2i/d}$$
# $$\text{row}_p = [\sin(p\,\omega_0),\ \cos(p\,\omega_0),\ \sin(p\,\omega_1),\ \cos(p\,\omega_1),\ \dots]$$
#
# For $d = 4$: $10000^0 = 1$ and $10000^{-1/2} = 0.01$. The number 10,000 is the **base**; section 4 shows what it does. Write the whole table.


# %% tags=["exercise"] name="sinusoidal" minutes=8 difficulty=2
def sinusoidal(n, d):
    """Returns (n, d): for each position p = 0 .. n-1 the row [sin a_0, cos a_0, sin a_1, cos a_1, ...].

    a_i = p * 10000^(-2i/d) radians, for i = 0 .. d/2 - 1. d is even. fp32 is precise enough.
    """
    # SOLUTION
    speeds = 10_000.0 ** (-torch.arange(0, d, 2) / d)
    angles = torch.arange(n)[:, None] * speeds
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    # END


# %% tags=["check"]
if check("sinusoidal", sinusoidal).passed:
    keep("sinusoidal", sinusoidal)

# %%
hint("sinusoidal")

# %% [markdown] tags=["solution"]
# A column of positions times a row of speeds is the table of angles, (n, d/2). `arange(0, d, 2)` counts 0, 2, 4, ..., which is $2i$ already. `stack` along a new last
# axis puts each sine beside its cosine, and `flatten(-2)` makes (d/2, 2) into d. The usual slips: `cat`, which puts all sines first; $i/d$ in the exponent; pairs counted from 1.

# %% [markdown] slide="subslide"
# What do these rows know? Take the row of a position and the row three places on, and multiply.

# %%
rows = positions.sinusoidal_table(64, 8)  # (64, 8)
products = [(rows[p] @ rows[p + 3]).item() for p in (0, 7, 50)]

# %% tags=["source-hidden"]
same, apart, grown = f"{products[2]:.3f}", f"{rows[0] @ rows[53]:.3f}", f"{products[0] + 50:.3f}"
predict(
    f"The dot product of rows 0 and 3 is {products[0]:.3f}. What is it for rows 50 and 53?",
    key=lambda: same,
    choices={
        apart: "That is the product of rows 0 and 53. How far apart are 50 and 53?",
        same: "",
        grown: "Each row has four sines and four cosines: the product with itself is 4, and no other is larger.",
    },
    because="Two tips of one hand have the dot product cos(angle between them), and that angle depends on the offset alone.",
)  # fmt: skip

# %%
word, other = torch.randn(2, 8)
for p, product in zip((0, 7, 50), products, strict=True):
    mixed = (word @ rows[p + 3] + rows[p] @ other).item()
    print(f"at {p:2d} and {p + 3:2d}: row times row {product:.4f}, words times rows {mixed:5.2f}")

# %% [markdown]
# Row times row measures distance: $\sin\,a\,\sin\,b + \cos\,a\,\cos\,b = \cos(a - b)$, summed over the pairs. (The cosine is the same for 3 and $-3$: before and after look alike.) But attention multiplies
# (word + row) by (word + row). Multiplied out there are four products. Word times row, twice, depends on the place itself, and can be the larger part.
#
# What is added must also fit in size. New word vectors are often tiny, with a standard deviation of 0.02:

# %% rows=["S4-6"]
C = 512
token = 0.02 * torch.randn(1000, C).norm(dim=-1).mean()
wave = positions.sinusoidal_table(1000, C).norm(dim=-1).mean()
scaled = math.sqrt(C) * token
print(f"word {token:.2f} long, position {wave:.0f}: {wave / token:.0f} to 1")
print(f"word times the root of {C}: {scaled:.0f} long: {wave / scaled:.1f} to 1")

# %% [markdown]
# The place drowns the word, 35 to 1. After the factor they are of like size. So models with these waves multiply the embeddings by $\sqrt{C}$, then add the row, then apply dropout (lesson 09). Learned and sinusoidal, side by side:

# %% rows=["S4-49"]
learned_rows, waves = LearnedPosition(64, C), SinusoidalPosition(64, C)
print(f"{'':<12}{'weights':>8}{'rows 0, 3':>12}{'rows 50, 53':>13}{'last position':>15}")
for name, table in (("learned", learned_rows.weight), ("sinusoidal", waves.table)):
    near, far = (table[0] @ table[3]).item(), (table[50] @ table[53]).item()
    print(f"{name:<12}{table.numel() * table.requires_grad:>8,}{near:>12.3f}{far:>13.3f}{len(table) - 1:>15}")

# %% [markdown]
# Fresh learned rows know nothing of distance: training must teach it. The waves know it from the start. Both tables end. More waves can be computed, but do they help a model that never saw them? Section 6 asks it of rotary.

# %% [markdown] tags=["note"]
# Common wrong answer: "the network cannot separate word and position once they are added". In 512 dimensions there is room for both; the first linear maps learn to read either.
# A published note explains the embedding scale by dot products of unit vectors, which are about 0 and not about d. The ratio of lengths is what we can measure.

# %% [markdown] slide="slide" minutes=5
# ## 3. Turning a pair
# We want a score that depends on the two words and on their **offset**, nothing else. The hands of the clock had it. So do not add a hand to the word: *turn the word itself*.
#
# Take two numbers of a query, or of a key, as a point $(a, b)$, and turn it by the angle $\theta$ (theta): position times speed. Section 2 wrote the sine first; a point has the cosine first.


# %%
def rotation(angle: float) -> torch.Tensor:
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)  # (2, 2)


pair = torch.tensor([1.0, 0.0], dtype=torch.float64)
for p in range(3):
    print(f"position {p}:", rotation(1.0 * p) @ pair)

# %% [markdown]
# The first row of the matrix says $a\,\cos\,\theta - b\,\sin\,\theta$, the second $a\,\sin\,\theta + b\,\cos\,\theta$. Seven positions, at the speed 1:

# %% tags=["source-hidden"]
tips = [(rotation(p) @ pair).tolist() for p in range(7)]
with figures.axes("Each position turns it further", "first number", "second number", (6.2, 6.0)) as (figure, ax):
    for p, (x, y) in enumerate(tips):
        arrow = {"arrowstyle": "-|>,head_width=0.35,head_length=0.7", "color": figures.SERIES[0], "lw": 2.8, "shrinkA": 0, "shrinkB": 0}  # fmt: skip
        ax.annotate("", (x, y), (0, 0), arrowprops=arrow)
        ax.text(1.17 * x, 1.17 * y, f"{p}", ha="center", va="center", size=19, weight="bold")
    around = torch.linspace(0, 2 * math.pi, 200)
    ax.plot(around.cos(), around.sin(), color=figures.QUIET, linewidth=1.2, linestyle="-")
    ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
figures.display(
    figure,
    alt="Seven arrows on a circle, numbered 0 to 6: each is turned by 1 radian from the one before.",
    caption="At each tip stands the position. The length stays, the direction tells the place. At 6 the circle is nearly closed.",
    table={"position": list(range(7)), "first": [x for x, _ in tips], "second": [y for _, y in tips]},
)

# %% [markdown]
# Now turn a query and a key, each to its own position, and take the dot product.

# %%
query, key = torch.tensor([[0.8, 0.5], [0.3, -1.1]], dtype=torch.float64)
for m, n in ((5, 3), (105, 103), (3, 5)):
    score = (rotation(m) @ query) @ (rotation(n) @ key)
    print(f"query at {m:3d}, key at {n:3d}: score {score:.4f}")

# %% [markdown]
# The score depends on the offset, and on its sign: *two places earlier* and *two places later* differ. Both vectors turned by a further 100 radians, and the angle between them
# stayed. Write $R_m$ for the turn at position $m$. Transposed, it has its minus in the other corner: it turns *back*.
#
# $$(R_m q)^\top (R_n k) = q^\top R_m^\top R_n\, k = q^\top R_{n-m}\, k$$
#
# Back by $m$ and forth by $n$ is a turn by $n - m$. In fp64 it holds to the last digits:

# %% rows=["S1-14"] evidence="offset-only"
for m, n in ((3, 5), (110, 10), (3010, 3007)):
    assert (rotation(m).T @ rotation(n) - rotation(n - m)).abs().max() < 1e-14
    assert ((rotation(m) @ query) @ (rotation(n) @ key) - query @ rotation(n - m) @ key).abs() < 1e-14
    print(f"m = {m}, n = {n}: equal to within 1e-14")

# %% [markdown]
# This is **rotary position embedding** (Su et al. 2021). It has no weights and adds nothing.

# %% [markdown] tags=["note"]
# Let two students stand and point in two directions, then have both turn by a quarter. What has changed? Not the angle between them.

# %% [markdown] slide="slide" minutes=10
# ## 4. Many pairs, many speeds
# One pair is not enough: it comes round again.

# %% tags=["source-hidden"]
predict(
    f"One pair of speed 1: a full turn takes {2 * math.pi:.2f} positions. Which position looks most like position 0?",
    key=lambda: str(max((6, 22, 44), key=math.cos)),
    choices={"6": "Close, but 0.28 radians short of a full turn.", "22": "That is 3.5 turns: there it points the opposite way.", "44": ""},
    because=f"Seven turns are {14 * math.pi:.2f} positions.",
)  # fmt: skip

# %% [markdown]
# To this pair 0 and 44 look alike (seven turns: 43.98). So the $D$ numbers of a query ($d_k$ in lesson 05) make $D/2$ pairs, each with a speed of its own, by the formula of section 2. The **wavelength** is the number of positions in a full turn.

# %%
speeds = frequencies(8)  # (4)
for i, speed in enumerate(speeds.tolist()):
    print(f"pair {i}: speed {speed:.3f}, wavelength {2 * math.pi / speed:,.0f}")

# %% [markdown]
# A fast pair tells neighbours apart, but repeats; a slow one hardly moves from word to word. Here is a real head: layer 2, its query of the full stop and its key of *Carlos*, caught before they are turned.
# Try the four parts: move the base, and in *score and distance* move both words on.

# %%
rope_view(model, tokenizer, "\nOne day, Carlos thanked Jamal.", layer=2, head=2, key=4, part="bank")

# %% [markdown]
# Read down a column of *all pairs*: that is how a position looks. And the score holds the promise of section 3 for all pairs at once: it is the same wherever the two stand.
# With waves added it is not. (*Layouts* belongs to section 5.)
#
# The lower half of the pairs turns by at most a fifth of a circle within the 128 positions that this model was trained on, the lowest hardly at all. What does the model use those pairs for? We intervene twice: we *stop* some pairs, so that they no longer turn, or we *remove* them, so that they no longer count in any score. (In this model pair $i$ is made of the numbers $i$ and $i + 16$; section 5 says why.)

# %%
texts_seen = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(1_000, 1_040)]
stories = torch.tensor([tokenizer.encode("\n" + text)[:90] for text in texts_seen])  # (B, T)


@torch.no_grad()
def loss_with(stopped: range, removed: range) -> float:
    """Nats per token if some pairs do not turn, and some are left at 0, in all heads and layers."""
    changed = deepcopy(model)
    for part in (block.attention for block in changed.blocks):
        for pair in stopped:
            part.rotation.cos[:, [pair, pair + 16]] = 1.0
            part.rotation.sin[:, [pair, pair + 16]] = 0.0
        for pair in removed:
            part.q_norm.weight[[pair, pair + 16]] = 0.0  # the gain of these numbers of each query
    return next_token_loss(changed(stories[:, :-1]), stories[:, 1:]).item()


# %%
nothing, quarters = range(0), [range(start, start + 4) for start in (0, 4, 8, 12)]
whole = loss_with(nothing, nothing)
stop = [loss_with(stopped=pairs, removed=nothing) - whole for pairs in quarters]
remove = [loss_with(stopped=nothing, removed=pairs) - whole for pairs in quarters]

# %% tags=["source-hidden"]
predict(
    "We stop the 4 slowest pairs, or we remove them. What happens to the loss of the shipped model?",
    key=lambda: (
        "stopping changes nothing, removing raises it" if stop[3] < 0.01 < 0.05 < remove[3] else "something else"
    ),
    choices={
        "nothing happens in either case": "They hardly turn, so stopping them changes little. But the score is still a sum over all pairs.",
        "both raise it": "They turn by less than a tenth of a circle in 128 positions. Can the model notice whether they turn?",
        "stopping changes nothing, removing raises it": "",
    },
    because="The model does not get any position from these pairs. But they are a part of every score, whether they turn or not, and the model uses that part.",
)

# %% evidence="slow-pairs"
print(f"{'pairs':<10}{'wavelengths':<20}{'stopped':>8}{'removed':>9}   (nats added to the loss)")
for pairs, when_stopped, when_removed in zip(quarters, stop, remove, strict=True):
    first, last = (2 * math.pi / frequencies(32)[pair] for pair in (pairs[0], pairs[-1]))
    lengths = f"{first:,.0f} to {last:,.0f}"
    print(f"{f'{pairs[0]} to {pairs[-1]}':<10}{lengths:<20}{fixed(when_stopped, 2):>8}{when_removed:9.2f}")
assert min(stop[:2]) > 0.5 > min(remove) > 0.02 > 0.01 > max(stop[2:]) and sum(remove[:2]) > sum(stop[:2]) + 0.3

# %% [markdown]
# The faster half gives this model the order of the words: if either four of its pairs do not turn, the loss rises by more than half a nat. For the slower half it makes no difference whether the pairs turn, but the model does use them: without their part of the scores the loss rises. This is not a division of labour, because the faster half does more than give the order: removing its pairs costs more than stopping them. [[slow-pairs]] In Gemma 7B, too, the fastest pairs were found to make attention patterns by position, and the slow ones are suspected to carry meaning (Barbero et al. 2024). What slow pairs do in longer texts cannot be seen here, because this model reads at most 128 tokens.

# %% [markdown]
# What does turning do to a score? The query stands at position 40, and a key moves away from it to the left. The key is *equal* to the query, or has nothing to do with it, or the query is the key *turned back by two* positions.
# (`Rotary` turns all pairs at once; you write its core in section 7.)

# %%
away = torch.arange(41)  # (S)
rotary, (keys, strangers) = Rotary(64, 41), torch.randn(2, 500, 1, 64, generator=torch.Generator().manual_seed(6))
turned = rotary(keys.expand(500, 41, 64), 40 - away)  # (500, S, 64)
queries = {"query = key": (keys, 40), "key turned back by 2": (keys, 38), "unrelated": (strangers, 40)}
scores = {}
for name, (vectors, place) in queries.items():  # back by 2, then to 40: to 38
    scores[name] = (rotary(vectors, torch.tensor([place])) * turned).sum(-1) / 64  # (500, S)

# %% tags=["source-hidden"]
title = "A match counts less, the farther it is, on average"
with figures.axes(title, "how many places back the key stands", "q · k, divided by D", (9.2, 5.0)) as (figure, ax):
    for name, values in scores.items():
        (line,) = ax.plot(away, values.mean(0), label=name)
        low, high = values.quantile(torch.tensor([0.1, 0.9]), dim=0)
        if "2" not in name:
            ax.fill_between(away, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.legend(frameon=False, loc="upper right")
    ax.set(xticks=[0, 2, 10, 20, 30, 40], xlim=(0, 40), ylim=(-0.35, 1.45))
shown = [0, 1, 2, 3, 4, 10, 20, 40]
figures.display(
    figure,
    alt="Three lines over distances 0 to 40: for equal vectors down from 1; turned back by two, the same two places further right; for unrelated ones 0 throughout.",
    caption="Means of 500 random vectors, each key equal in content at every place; 8 in 10 lie in a band. The fall is bumpy: fast pairs come round again. A query that is the key turned back by two scores highest two places back: that is the ruler.",
    table={"places back": shown, **{name: values.mean(0)[shown].tolist() for name, values in scores.items()}},
    digits=2,
)

# %% [markdown]
# All keys here were equal; in a text they differ. But if $W_q$ and $W_k$ read a part that all words have in common, large enough, and $W_q$ turns it back by two, a head *could* find the word two places back, whatever the words are. Can a head learn this? We train models of one layer and one head on random tokens. Their task is to name the token two places back.


# %%
def two_back(position: str) -> tuple[float, float]:
    """The loss after training, and the mean attention weight two places back."""
    torch.manual_seed(6)
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 1, "max_seq_len": 32}
    learner = TransformerLM(preset("modern", vocab_size=32, position=position, **sizes))
    optimizer = torch.optim.AdamW(learner.parameters(), lr=0.01)
    for _ in range(120):
        x = torch.randint(32, (16, 32))  # (B, T)
        loss = next_token_loss(learner(x)[:, 2:], x[:, :-2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = capture(learner, x).attention(0).weights  # (B, 1, T, S)
    return loss.item(), weights.diagonal(-2, -2, -1).mean().item()


# %% evidence="two-back"
trained = {position: two_back(position) for position in ("none", "rotary")}
print(f"guessing: ln 32 = {math.log(32):.1f} nats")
for position, (loss, weight) in trained.items():
    low, high = (2.3, 3.4) if position == "none" else (0.0001, 0.2)
    print(f"{position:<7} loss {learned(loss, low, high)}, weight two places back {weight:.1f}")
assert trained["rotary"][1] > 0.7 and trained["none"][1] < 0.2

# %% [markdown]
# With rotary positions the head finds the token two places back; without positions it cannot. [[two-back]] Does the shipped model have such a head, for this distance or another one up to 20? For each of its 12 heads we take the mean attention weight at the distances 1 to 20, and print the largest of the 20.

# %% evidence="no-fixed-distance"
caught = capture(model, stories)
for layer in range(3):
    weights = caught.attention(layer).weights  # (B, H, T, S)
    at = torch.stack([weights.diagonal(-away, -2, -1).mean((0, 2)) for away in range(1, 21)])  # (20, H)
    print(f"layer {layer}:", "  ".join(f"head {head}: {weight:.2f}" for head, weight in enumerate(at.amax(0))))
    assert at.max() < 0.25

# %% [markdown]
# It has none: no head gives more than about a tenth of its attention to any distance from 1 to 20. [[no-fixed-distance]] Rotary positions make such a head possible, but whether a model learns one depends on the text and the training.
#
# The **base** decides how slow the slow pairs are: by the formula of section 2, a larger base slows every pair but the first, and the slow ones most. Llama 3 has 500,000 in place of 10,000 (Grattafiori et al. 2024), for texts of up to 8,192 tokens, and heads of $D = 128$:

# %% tags=["source-hidden"] evidence="base"
length = 8192
wavelengths = {base: 2 * math.pi / frequencies(128, base) for base in (10_000.0, 500_000.0)}
slower = wavelengths[500_000.0] / wavelengths[10_000.0]  # (64)
assert slower[0] == 1 and (slower.diff() > 0).all() and slower[-1] > 40
slow = [int((row > length).sum()) for row in wavelengths.values()]
with figures.axes("A larger base slows the slow pairs most", "pair", "wavelength in positions") as (figure, ax):
    for base, row in wavelengths.items():
        (line,) = ax.plot(range(64), row)
        ax.text(64.5, row[-1], f"base\n{base:,.0f}", color=line.get_color(), va="center")
    ax.axhline(length, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
    ax.text(0, 1.3 * length, f"the longest text, {length:,}", color=figures.QUIET)
    ax.set_yscale("log")
    ax.set_yticks([10, 1000, 100_000, 10_000_000], ["10", "1,000", "100,000", "10,000,000"])
    ax.minorticks_off()
figures.display(
    figure,
    alt="Two rising lines on a logarithmic scale, both from 6: base 10,000 ends near 54,000, base 500,000 near 2.6 million; a dotted line at 8,192.",
    caption=f"Above the dotted line a pair stays within one turn for a whole text and never shows two places alike: {slow[0]} of 64 pairs with the small base, {slow[1]} with the large one.",
    table={"pair": [0, 16, 32, 48, 63], **{f"base {b:,.0f}": [f"{w:,.0f}" for w in r[[0, 16, 32, 48, 63]].tolist()] for b, r in wavelengths.items()}},
)  # fmt: skip

# %% [markdown] tags=["note"]
# Before the two interventions ask what the slow pairs are good for in a model that reads at most 128 tokens. The usual wrong answer is "nothing, they only matter in longer texts", because one thinks of the turning alone and forgets that a pair is a part of the score even if it does not turn.
# After the trained head ask whether the shipped model must have one like it. Possible is not the same as learned: the last table has none.
# A question that comes: why not one slow pair? Neighbours would then differ by an angle too small to matter. Later Llama models stretch the long wavelengths once more, for longer texts (`stretch` in the library).

# %% [markdown] slide="slide" minutes=5
# ## 5. One matrix, two cheap ways, two layouts
# Turning all pairs is one matrix, with a small rotation for each pair along its diagonal:

# %%
D, p = 6, 20
angles = p * frequencies(D)  # (D/2)
R = torch.block_diag(*[rotation(angle) for angle in angles.tolist()])
assert R.shape == (D, D)

# %% tags=["source-hidden"]
names = [str(i) for i in range(D)]
figures.heat_map(
    R, names, names, title="A small rotation for each pair", y="new number: row", x="old number: column", limits=(-1, 1),
    caption="Position 20, D = 6. Even rows say a cos - b sin, odd rows a sin + b cos; the last pair hardly turns. Each 0.00 is exactly 0.",
)  # fmt: skip

# %% tags=["source-hidden"]
big = torch.block_diag(*[rotation(angle) for angle in (20 * frequencies(64)).tolist()])
predict(
    f"For D = 64 this matrix has {big.numel():,} numbers. How many of them are not 0?",
    key=lambda: (big != 0).sum().item(),
    number="numbers",
    within=0,
    feedback={64: "That is the diagonal alone. Each number also needs its partner.", 32: "That is the number of blocks."},
    because="Two in each row: a cosine for the number itself, a sine for its partner.",
)  # fmt: skip

# %% [markdown]
# So nobody builds this matrix. The first cheap way: each number times its cosine, plus its **partner** (with its sign) times its sine, from tables that all words share.

# %% rows=["S0-25", "S1-15"]
x = torch.randn(D, dtype=torch.float64)
cos, sin = angles.cos().repeat_interleave(2), angles.sin().repeat_interleave(2)  # (D), (D)
partner = torch.stack((-x[1::2], x[0::2]), dim=-1).flatten()  # (D)
print("x      ", x.numpy().round(2))
print("partner", partner.numpy().round(2))
torch.testing.assert_close(x * cos + partner * sin, R @ x)

# %% [markdown]
# Even places get *minus* their partner. One published note forgets this minus; section 8 shows the damage.
#
# The second cheap way takes each pair as one *complex number* $a + b\,\mathrm{j}$, which PyTorch multiplies as one number: turning by $\theta$ is multiplying by $\cos\,\theta + \mathrm{j}\,\sin\,\theta$.

# %%
factor = torch.complex(angles.cos(), angles.sin())  # (D/2)
as_complex = torch.view_as_complex(x.view(-1, 2)) * factor  # (D/2)
ways = {"matrix": R @ x, "partner": x * cos + partner * sin, "complex": torch.view_as_real(as_complex).flatten()}
for name, y in ways.items():
    print(f"{name:<8}", y.numpy().round(2))

# %% [markdown]
# Which two numbers form a pair is a free choice. Two are in use: **interleaved**, neighbours $(0, 1), (2, 3), \dots$, and **halves**, $(0, D/2), (1, D/2 + 1), \dots$, as in Llama
# checkpoints in Hugging Face's format. (A checkpoint is a file of trained weights; those from Meta itself are interleaved.) One reordering leads from one to the other:

# %% evidence="reordering"
order = torch.arange(D).view(2, -1).T.flatten()  # (D)
neighbours, halves = Rotary(D, 64), Rotary(D, 64, layout="halves")
words, places = torch.randn(5, D), torch.tensor([3, 1, 4, 15, 9])
reordered = (neighbours(words[:, order], places) - halves(words, places)[:, order]).abs().max()
print("order", order.tolist(), "difference", reordered.item())
assert reordered < 1e-5
print(f"without reordering {(neighbours(words, places) - halves(words, places)).abs().max():.1f}")

# %% [markdown]
# Neither is better: $q$ and $k$ come out of learned matrices, whose rows may stand in any order. But a checkpoint belongs to its layout, and no shape tells which it is. (The view of section 4 draws both, and the two mixed up.)

# %% [markdown] slide="slide" minutes=6
# ## 6. Where it stands, and where it ends
# **On q and k, not on v.** Rotary turns what is *matched*. What is handed over should be the same wherever the word is. We move six words on by 50 positions:

# %% rows=["S3-2"] evidence="values"
spans = torch.arange(6), torch.arange(50, 56)  # (T) each
rotary, q, k, v = Rotary(8, 64), *torch.randn(3, 6, 8)  # (T, D) each
for name, turn_v in {"v as it is": False, "v turned as well": True}.items():
    moved = [(rotary(q, p), rotary(k, p), rotary(v, p) if turn_v else v) for p in spans]
    here, there = (attend(*qkv, causal=True) for qkv in moved)
    print(f"{name}: the results differ by {(here - there).abs().max():.2f}")
    assert (here - there).abs().max() > 0.1 if turn_v else (here - there).abs().max() < 1e-4

# %% [markdown]
# With turned values, the same words in the same order give another result further on. [[values]]
#
# **Precise tables.** Never compute *angles* in bf16: it has no 1001, and one position is a whole radian to the first pair. Tables that are exact and then rounded harm less. Two words, always three places apart:

# %% evidence="tables"
print("the position 1001 in bf16:", torch.tensor(1001.0).bfloat16().item())
exact, rounded, places = Rotary(64, 4096), Rotary(64, 4096), torch.tensor([10, 110, 3010])
rounded.cos, rounded.sin = exact.cos.bfloat16().float(), exact.sin.bfloat16().float()
q, k = torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(6)).expand(2, 3, 64)
true, rough = ((turn(q, places) * turn(k, places - 3)).sum(-1) for turn in (exact, rounded))
print("rounded tables change the score by", [f"{x:.1%}" for x in ((rough - true) / true).tolist()])
print("the library's tables after .bfloat16():", exact.bfloat16().cos.dtype)
assert (true - true[0]).abs().max() < 1e-3 * true[0].abs() < (rough - rough[0]).abs().max()

# %% [markdown]
# Little, but a different amount at each place, where rotary promised the same score at each. So the library keeps its tables in fp32, whatever the dtype of the model.
#
# **Past the trained length.** The shipped model was trained on 128 positions. We copy its weights into a model with a longer table (`replace` changes a field of a config), and take 40 pieces of 513 tokens from a corpus, each from the line end before a story.


# %%
def shipped_with(**changes) -> TransformerLM:
    other = TransformerLM(replace(model.config, **changes)).eval()
    other.load_state_dict(model.state_dict())
    return other


longer = shipped_with(max_seq_len=2048)
tokens = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(220, seed=77)))
line_ends = (tokens == tokens[0]).nonzero()[:, 0]
texts = torch.stack([tokens[start : start + 513] for start in line_ends[:200:5]])  # (40, 513)
print(f"a story has about {len(tokens) / 220:.0f} tokens")


# %% tags=["source-hidden"]
@torch.no_grad()
def loss_from(start: int) -> float:
    x, places = longer.embed(texts[:, :128]), torch.arange(start, start + 128)  # (B, T, C), (T)
    for block in longer.blocks:  # the layers, one after another: lesson 10
        x = block(x, places)  # (B, T, C)
    return next_token_loss(longer.lm_head(longer.final_norm(x)), texts[:, 1:129]).item()


starts = {start: loss_from(start) for start in (0, 1900)}
predict(
    f"The first 128 tokens of each piece, at positions 0 to 127: the loss is {starts[0]:.2f} nats. And for the same tokens at positions 1900 to 2027?",
    key=lambda: "the same" if abs(starts[1900] - starts[0]) < 0.005 else "higher",
    choices={"the same": "", "a little higher": "The positions are new to it. But what does a score depend on?", "far higher": "The positions are new to it. But what does a score depend on?"},
    because="Only offsets count, and within 128 words there is none that was not trained.",
)  # fmt: skip

# %% evidence="far-positions"
assert abs(starts[1900] - starts[0]) < 0.005
print("128 tokens, by their first position:", {start: round(loss, 2) for start, loss in starts.items()})

# %% [markdown]
# And a longer text? We read all 512 tokens at once and take the loss of 64 at a time; beside it, of the same 64 read with only the last 128 tokens in view.

# %% evidence="long-texts"
with torch.no_grad():
    logits = longer(texts[:, :-1])  # (40, 512, V)
    for end in (128, 192, 320, 448, 512):
        short = model(texts[:, end - 128 : end])  # (40, 128, V)
        both = [next_token_loss(x[:, -64:], texts[:, end - 63 : end + 1]) for x in (logits[:, :end], short)]
        assert both[0] < both[1] + 0.01 if end == 128 else both[0] > both[1] + 0.1
        print(f"tokens {end - 64} to {end - 1}: read from the start {both[0]:.2f}, the last 128 only {both[1]:.2f}")

# %% [markdown]
# Far positions do no harm. [[far-positions]] (0.79 is the mean over tokens 0 to 127, 0.65 over 64 to 127: the first words of a piece have little to go by.) In a long text something else is new: distances beyond 127, and more words to look at than ever in training. The loss grows,
# and it is not the tokens: read with the last 128 only, the same ones stay easy. "Works with any length" is true of the arithmetic only. And the model refuses what its table does not hold:

# %% tags=["raises-exception"]
model(texts[:, :200])

# %% [markdown] tags=["note"]
# The prediction is the heart of the section: most rooms say "far higher". Ask whoever says "the same" why the long text then fails.

# %% [markdown] slide="slide"
# ## 7. Your turn
# Turn the pairs of any number of texts and heads.


# %% tags=["exercise"] name="rotate" minutes=10 difficulty=3
def rotate(x, positions, base):
    """x (..., T, D): row t is turned to positions[t], its pairs (0, 1), (2, 3), ... by position * base^(-2i/D) radians.

    positions (T,): any integers in any order, large or negative ones too. Angles in fp32 or better.
    Returns (..., T, D) in the dtype of x; x stays as it was.
    """
    # SOLUTION
    D = x.shape[-1]
    angles = positions[:, None] * base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).to(x.dtype)
    # END


# %% tags=["check"]
if check("rotate", rotate).passed:
    keep("rotate", rotate)

# %%
hint("rotate")

# %% [markdown] tags=["solution"]
# The angles are (T, D/2) and broadcast from the right over texts and heads. `stack` and `flatten(-2)` put each pair back in its places, where `cat` would make halves. The usual slips:
# a lost minus; `arange(T)` in place of `positions`, which works until a text is continued; angles in the dtype of `x`; no cast at the end.

# %% [markdown] slide="subslide" minutes=2
# ### The library's version
# `Rotary` looks its tables up, and `flip` swaps partners: the minus is in the table of sines. An odd $D$ is an error, and so is a position beyond the table.
# The preset `tiny_transformer` has waves, the factor $\sqrt{C}$ and the dropout of section 2.

# %% rows=["S0-24", "S0-27", "S1-16", "S4-6"]
rotary = Rotary(64, max_seq_len=512, base=10_000.0)
q, k, window = torch.randn(3, 2, 5, 64), torch.randn(3, 2, 5, 64), torch.arange(7, 12)  # twice (B, H, T, D), (T)
here, there = (rotary(q, p) @ rotary(k, p).mT for p in (window, window + 100))
torch.testing.assert_close(here, there, rtol=0, atol=1e-3)
torch.testing.assert_close(rotary(q, window).norm(dim=-1), q.norm(dim=-1))
assert rotary.cos.shape == (512, 64) and not rotary.state_dict()
classic = preset("tiny_transformer", "tiny")
assert (classic.position, classic.embedding_dropout) == ("sinusoidal", 0.1)
assert TransformerLM(classic).embed_scale == math.sqrt(classic.d_model)
show(positions.sinusoidal_table, Rotary)

# %%
trace(rotary, q, window, sizes={"B": 3, "H": 2, "T": 5, "D": 64})

# %% [markdown]
# Positions are $(T)$, or $(B, T)$ when texts have their own: texts padded at the left, for instance. Cosines of $(B, T, D)$, laid over $(B, H, T, D)$ from the right, would put *texts* over *heads*: an error, and with
# as many heads as texts a silent one. The two lines under `if` prevent it.

# %% [markdown] slide="slide" minutes=4
# ## 8. Break it: wrong, and nothing complains
# Two popular tests of a rotation: lengths stay, and the score depends on the offset only. We try them with one query and one key, always three places apart. The model looks the cosines and sines up once for all layers and passes them to `Rotary` with the positions, so we can pass wrong ones:
#
# - **no minus**: $a\,\cos\,\theta + b\,\sin\,\theta$ in even places;
# - **layouts mixed**: cosines and sines in the order of neighbours, partners in halves;
# - **pairs counted from 1**: each pair has the speed of the next one;
# - **positions forgotten**: every angle is 0.


# %%
places = torch.tensor([3, 0, 53, 50, 103, 100])  # query, key, query, key, ...
vectors, speeds = torch.randn(2, 8).repeat(3, 1), frequencies(8).float()  # (6, D), (D/2)


def turned_by(speeds, minus=-1.0):
    angles = places[:, None] * speeds  # (6, D/2)
    sin = torch.stack((minus * angles.sin(), angles.sin()), dim=-1).flatten(-2)  # (6, D)
    return Positions(places, (angles.cos().repeat_interleave(2, dim=-1), sin))


# %%
turn, turn_halves = Rotary(8, 128), Rotary(8, 128, layout="halves")
tried = {
    "right": turn(vectors, turned_by(speeds)),
    "no minus": turn(vectors, turned_by(speeds, minus=1.0)),
    "layouts mixed": turn_halves(vectors, turned_by(speeds)),
    "pairs counted from 1": turn(vectors, turned_by(speeds * speeds[1])),
    "positions forgotten": turn(vectors, turned_by(0 * speeds)),
}


def tests(turned: torch.Tensor) -> list[bool]:
    length_stays = torch.allclose(turned.norm(dim=-1), vectors.norm(dim=-1), rtol=1e-4)
    products = (turned[0::2] * turned[1::2]).sum(-1)  # (3)
    right = torch.allclose(turned, turn(vectors, places), atol=1e-4)
    return [length_stays, torch.allclose(products, products[:1], atol=1e-4), right]


# %% tags=["source-hidden"]
passing = [name for name, turned in tried.items() if all(tests(turned)[:2]) and name != "right"]
predict(
    "How many of the four mistakes pass both tests?",
    key=lambda: len(passing),
    number="mistakes",
    within=0,
    feedback={
        1: "Turning by 0 is a rotation, too, and so is turning at the wrong speed.",
        3: "Two of them turn no pair at all: which?",
        0: "Which of them still turns every pair by an angle that is position times speed?",
        4: "Without the minus, or with the partner of another pair, no pair is rotated at all.",
    },
    because=f"These pass: {' and '.join(passing)}. Slower pairs are rotations, too, and so is turning by 0.",
)  # fmt: skip

# %%
print(f"{'':<24}{'length stays':<16}{'offset only':<16}right numbers")
for name, turned in tried.items():
    print(f"{name:<24}" + "".join(f"{'yes' if passed else 'NO':<16}" for passed in tests(turned)).rstrip())

# %% [markdown]
# The last two pass. A third test finds forgotten positions: another offset must give another score. Miscounted pairs are found only by comparing with known numbers.
#
# And a whole model? The shipped one has its pairs in halves (this model normalizes each $q$ and $k$ first, with gains, lesson 04). We load its weights as if they were interleaved, then without positions. Last, as
# interleaved again, but with the rows of $W_q$ and $W_k$, and the gains of their norms, put in the order of section 5 (`regrouped`).

# %%
wrong, regrouped = (shipped_with(rope_layout="interleaved") for _ in range(2))
d_head = model.config.d_head
order = torch.arange(d_head).view(2, -1).T.flatten()  # (32)
with torch.no_grad():
    for part in (block.attention for block in regrouped.blocks):
        for layer, norm in ((part.q_proj, part.q_norm), (part.k_proj, part.k_norm)):
            layer.weight.copy_(layer.weight.unflatten(0, (-1, d_head))[:, order].flatten(0, 1))
            norm.weight.copy_(norm.weight[order])

# %% evidence="wrong-layout"
blind = shipped_with(position="none")
losses = {}
for name, reader in {"as trained": model, "wrong layout": wrong, "no positions": blind, "regrouped": regrouped}.items():
    with torch.no_grad():
        loss = next_token_loss(reader(texts[:, :128]), texts[:, 1:129])
    losses[name] = loss.item()
    print(f"{name:<17}{loss:.2f} nats")
assert losses["wrong layout"] > 2 + losses["as trained"]
assert abs(losses["regrouped"] - losses["as trained"]) < 1e-3
print(f"{'knowing nothing':<17}{math.log(tokenizer.vocab_size):.2f} nats, ln {tokenizer.vocab_size}")

# %% [markdown]
# All four load without a word, since rotations have no weights that could be missing. With the wrong layout and without positions the loss is far higher, and no error is raised. The one with the rows in order is the model again.
# (This model was trained with rotations; one trained without any would probably do better than 4.19. A model that knows nothing has a loss of $\ln\,345 = 5.84$.)
#
# ## What you have now
# - After the full stop, one layer of attention without positions gives the same scores for both orders of our sentence. [[order]] In this library a position is either added to $x$ once, or it turns $q$ and $k$ in every layer; other models add a number to the scores.
# - Rotary positions turn each pair of numbers by position times speed, so a score depends on the two words and their offset, and not on where they are. [[offset-only]] A head can learn to find the word at a fixed distance [[two-back]], though the shipped model has no such head for the distances that we tried. [[no-fixed-distance]]
# - In the shipped model only the faster half of the pairs gives information about the order of the words. The slower half is used as well, but whether it turns makes no difference. The faster half does more than give the order, because removing it costs more than stopping it. [[slow-pairs]] By its formula, a larger base slows every pair but the first, and the slow ones most. [[base]]
# - There are two layouts, and a reordering leads from one to the other. [[reordering]] In the wrong layout the shipped model's loss rises from 0.79 to 3.42 nats, without an error. [[wrong-layout]]
# - Values are not turned, so that the result does not depend on where the words are. [[values]] The tables are kept in fp32, because rounded ones make the score depend on the position. [[tables]]
# - At positions far beyond those of its training the shipped model has the same loss [[far-positions]], but in texts longer than those of its training its loss rises. [[long-texts]]
#
# Next, lesson 07: why a layer looks back in several ways at once.

# %% [markdown]
# ## Sources
# - Sinusoidal rows and the embedding scale: Vaswani et al. 2017, *Attention Is All You Need*, sections 3.4 and 3.5.
# - Rotary: Su et al. 2021, *RoFormer: Enhanced Transformer with Rotary Position Embedding*, section 3, equations 14, 15 and 34.
# - Learned positions in GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*.
# - A number added to the scores: Press et al. 2022, *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*.
# - What fast and slow pairs do in a large model: Barbero et al. 2024, *Round and Round We Go! What makes Rotary Positional Encodings useful?*
# - The base in Llama 3: Grattafiori et al. 2024, *The Llama 3 Herd of Models*, section 3.2.
