# %% [markdown] slide="slide"
# # 06 Positions
# **How does a model know which word came first?**
#
# *Needs* lessons 02 to 05. *Builds* `positions.py`. *Runs* in about 20 s on two cores.
# *Teaches* in about 56 minutes, plus 18 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: do not add the position to the word, rotate the word by it, because the angle between two rotated words depends only on how far they are apart.
# Sections 1 to 5 are the core, with one exercise. Sections 6 and 7 test the idea until it fails. Section 8 goes further, with what students need when they load, train or stretch real models.
# Before the class: open the lesson, run section 1 and try its control, so that you have seen the head being trained again.

# %% slide="skip"
import math

import torch
from matplotlib import pyplot as plt

from tinylm_lib import TransformerLM, next_token_loss, preset
from tinylm_classroom import capture, control, figures, learned, predict, show_text
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** Attention compares words by what they are. Nothing in it says where they are. Today a head learns to count to two, which it cannot do until we give it positions.
#
# **Draw.** The two sentences below each other, with an arrow from the full stop to every word. Cover the word order with your hand: the set of arrows is the same in both.
#
# **Ask.** Before the prediction: "How would *you* give a position to a vector?" Collect the proposals on the board, because sections 2 and 3 try them in turn.
#
# **Usual answers.**
# - *Number the words and add the number* (from the room): What happens far into a long text, when the number is large and the other features are about 1? Section 2 adds waves, which stay small.
# - *Jamal and Carlos exchange their probabilities* (`the logits of the two names are exchanged`): A word is weighted by what it is. The same words get the same weights, in whatever order they come, and a sum does not depend on the order.
# - *Everything changes, but only a little* (`all logits change a little`): Where would the change come from? Name a number in the layer that depends on the order.
#
# **Cut if short.** The control at the end of the section; show the picture of the eight maps only.

# %% [markdown] slide="slide"
# ## 1. Which word came first?
# Who thanked whom? These two sentences have the same words.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
ids = torch.tensor([tokenizer.encode("\nOne day, Carlos thanked Jamal.")])  # (B, T)
swapped = ids[:, [0, 1, 2, 3, 6, 5, 4, 7]]
show_text([tokenizer.decode(sentence[0].tolist()) for sentence in (ids, swapped)])

# %% [markdown]
# Lesson 05 compared words by what they *are*. A small model with random weights and **no positions** reads both sentences.


# %% slide="skip"
def random_model(position: str, n_layers: int) -> TransformerLM:
    torch.manual_seed(6)
    sizes = {"n_layers": n_layers, "max_seq_len": 64, "init": "xavier", "init_std": 0.5}
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, position=position, **sizes)).eval()


@torch.no_grad()
def difference(reader: TransformerLM) -> float:
    """The largest difference between the logits for the next token after the two sentences."""
    return (reader(ids) - reader(swapped))[0, -1].abs().max().item()


# %% tags=["source-hidden"]
predict(
    "One layer of attention without positions reads both sentences. How do its logits for the next token, after the full stop, differ?",
    key=lambda: "they are equal" if difference(random_model("none", 1)) < 1e-4 else "something else",
    choices={
        "the logits of the two names are exchanged": "A weight belongs to a word, not to its position. Which number in the layer depends on the order?",
        "all logits change a little": "The full stop sees the same set of words. Does a weighted sum depend on the order of what is added?",
        "they are equal": "",
    },
    because="The query of the full stop meets the same keys and values, only in another order, and a sum does not depend on the order.",
)

# %% tags=["source-hidden"] rows=["S0-26"] evidence="order"
for position, n_layers in (("none", 1), ("none", 2), ("rotary", 1)):
    largest = difference(random_model(position, n_layers))
    print(f"positions: {position:<7} layers: {n_layers}   largest difference {largest:.2f}")
    assert largest < 1e-4 if (position, n_layers) == ("none", 1) else largest > 0.02

# %% [markdown]
# One layer without positions gives the same logits after both sentences. [[order]] With two layers some of the order leaks through the mask, because the second layer sees what each word could see in the first.

# %% [markdown] slide="say"
# With random weights it matters only whether the difference is 0, not how large it is.
#
# A leak of the order is not enough to measure distances. To find *the word two positions back*, whatever the words are, a head has to know where the words are. So we make that the task: a model of one layer and one head reads random tokens and must name the token two positions back. No token helps to guess another, so without positions a head can learn only which tokens have occurred.

# %% [markdown] slide="subslide"
# ### A head learns to count to two
# The task: random tokens, and at each position name the token `back` positions earlier. One layer, one head.


# %%
def train_head(position: str, back: int, n_updates: int) -> tuple[TransformerLM, float]:
    """Returns the trained model and its last loss."""
    torch.manual_seed(6)
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 1, "max_seq_len": 32}
    head = TransformerLM(preset("modern", vocab_size=32, position=position, **sizes))
    # ESSENTIAL
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    for _ in range(n_updates):
        x = torch.randint(32, (16, 32))  # (B, T)
        logits = head(x)  # (B, T, V)
        loss = next_token_loss(logits[:, back:], x[:, :-back])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # END
    return head, loss.item() if n_updates else math.log(32)


# %% slide="skip"
def attention_map(head: TransformerLM) -> torch.Tensor:
    """The mean attention weights over 64 new texts."""
    new = torch.randint(32, (64, 32), generator=torch.Generator().manual_seed(1))  # (B, T)
    return capture(head, new).attention(0).weights.mean((0, 1))  # (T, S)


# %% slide="skip"
moments = (0, 30, 60, 120)
kinds = {"none": "no positions", "rotary": "with positions"}
maps = {(kind, n): attention_map(train_head(kind, 2, n)[0]) for kind in kinds for n in moments}

# %% tags=["signature", "source-hidden"] slide="subslide"
weight_back = {shown: learned(grid.diagonal(-2).mean().item(), 0.02, 1.0) for shown, grid in maps.items()}
by_kind = {f"weight two back, {name}": [weight_back[kind, n] for n in moments] for kind, name in kinds.items()}
fig, grid_axes = plt.subplots(2, 4, figsize=(11.4, 6), layout="constrained", sharex=True, sharey=True)
for ax, ((kind, n), weights) in zip(grid_axes.flat, maps.items(), strict=True):
    ax.imshow(weights[:16, :16], cmap=figures.HEAT, vmin=0, vmax=1)
    ax.set(xticks=[0, 5, 10, 15], yticks=[0, 5, 10, 15])
    ax.set_title(f"{n} updates" if kind == "none" else "", size=20)
    ax.tick_params(labelsize=17)
    ax.grid(visible=False)
for ax, name in zip(grid_axes[:, 0], kinds.values(), strict=True):
    ax.set_ylabel(name, size=20)
fig.supxlabel("looks at position", size=18)
figures.display(
    fig,
    alt="Eight attention maps, after 0, 30, 60 and 120 updates. Above, without positions, they stay blurred. Below, with positions, a dark diagonal line appears: each position looks two positions back.",
    caption="A head learns to count to two. Each row of a map shows where one position looks. Without positions (above) no line appears; with rotary positions (below) every position learns to look two back.",
    table={"updates": list(moments), **by_kind},
)

# %% slide="skip" evidence="two-back"
print(f"guessing: ln 32 = {math.log(32):.1f} nats")
for kind, (low, high) in {"none": (2.3, 3.4), "rotary": (0.0001, 0.2)}.items():
    _, loss = train_head(kind, 2, 120)
    print(f"{kind:<7} loss {learned(loss, low, high)}, weight two positions back {weight_back[kind, 120]}")
    weight = maps[kind, 120].diagonal(-2).mean()
    assert weight > 0.7 if kind == "rotary" else weight < 0.2

# %% [markdown] slide="say"
# With positions the head finds the token two positions back in 120 updates, and its loss goes to nearly 0. Without them it does not: knowing which tokens have occurred is not enough. [[two-back]]

# %% [markdown] slide="subslide"
# Train your own: `control` runs `trained` again at each choice.


# %% slide="skip"
def trained(back=2, position="rotary"):
    head, _ = train_head(position, back, n_updates=120)
    fig, ax = plt.subplots(figsize=(6, 5), layout="constrained")
    ax.imshow(attention_map(head)[:16, :16], cmap=figures.HEAT, vmin=0, vmax=1)
    ax.grid(visible=False)
    ax.set(title=f"{back} back, positions: {position}", xlabel="looks at position", ylabel="from position")
    ax.set(xticks=[0, 5, 10, 15], yticks=[0, 5, 10, 15])
    alt = f"An attention map of a head that was trained to find the token {back} back."
    caption = "Does a line appear, and at which distance from the diagonal?"
    figures.display(fig, alt=alt, caption=caption, table={"back": [back], "positions": [position]})


# %%
control(trained, back=(1, 8), position=["none", "learned", "sinusoidal", "rotary"])

# %% [markdown] slide="say"
# Three of the four kinds of positions work here. (Try them in the control.) The rest of the lesson explains what they are, and what is different about the last one, which most new models use.

# %% [markdown] tags=["note"]
# **Say.** The first idea of the field was to add a vector for the position to the vector of the word. A clock shows how to compute such a vector: a fast hand and a slow one tell many times apart.
#
# **Draw.** A clock with two hands. Write the tip of each hand as (sine, cosine). Move both on by one position.
#
# **Ask.** After the heat map: "Cover all columns but the first pair. Which positions can you no longer tell apart?" Then the prediction.
#
# **Usual answers.**
# - *all sines come before all cosines* (`two blocks`): `cat` puts the two tables after each other. Stack them along a new last axis, then flatten.
# - *every column has a speed of its own* (`own speed for each`): i counts pairs, and two neighbours share one angle.
# - *the pairs are counted from 1* (`frequencies from one`): Pair 0 has the exponent 0, so its speed is 1.
# - *It has changed, because the rows are others* (`1.497`): Ask how far apart the two rows of the question are. 1.497 is the product of rows 0 and 53.
# - *The network cannot separate word and position once they are added* (from the room): In hundreds of dimensions there is room for both, and the first linear maps learn to read either.
#
# **Cut if short.** The exercise; show its solution for one row and go to the heat map.

# %% [markdown] slide="slide"
# ## 2. Waves that are added
# The first answer is an embedding for positions: a learned vector for position 0, one for position 1, and so on, added to the word's vector. GPT-1 and GPT-2 have such **learned positions** (Radford et al. 2018, 2019).

# %% [markdown]
# Can the vectors be *computed* instead? A clock does it with two hands, a fast one and a slow one. Each hand is given by its tip, a sine and a cosine. Here the first hand moves on by 1 radian per position, and the second by 0.01:

# %%
for p in range(4):
    row = [math.sin(p), math.cos(p), math.sin(0.01 * p), math.cos(0.01 * p)]
    print(f"position {p}:", "  ".join(f"{value:7.4f}" for value in row))
print(f"a full turn: {2 * math.pi:.2f} radians")

# %% [markdown] slide="subslide"
# In general there are $d/2$ pairs, counted from $i = 0$. Pair $i$ turns with the **frequency** $\omega_i$ (omega), in radians per position:
#
# $$\omega_i = 10000^{-2i/d}$$
# $$\text{row}_p = [\sin(p\,\omega_0),\ \cos(p\,\omega_0),\ \sin(p\,\omega_1),\ \cos(p\,\omega_1),\ \dots]$$
#
# For $d = 4$: $10000^0 = 1$ and $10000^{-1/2} = 0.01$. The number 10,000 is the **base**. These are **sinusoidal positions** ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)). Write the whole table.

# %% slide="skip"
from tinylm_classroom import check, hint, keep


# %% tags=["exercise"] name="sinusoidal" minutes=8 difficulty=2 plan=80
def sinusoidal(n, d):
    """Returns (n, d): row p is [sin a_0, cos a_0, sin a_1, cos a_1, ...].

    a_i = p * 10000^(-2i/d) radians, for i = 0 .. d/2 - 1. d is even.
    sinusoidal(2, 4): [0, 1, 0, 1] and [0.8415, 0.5403, 0.0100, 1.0000].
    The positions are p = 0 .. n-1; fp32 is precise enough.
    """
    # SOLUTION
    frequencies = 10_000.0 ** (-torch.arange(0, d, 2) / d)
    angles = torch.arange(n)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    # END


# %% tags=["check"]
if check("sinusoidal", sinusoidal).passed:
    keep("sinusoidal", sinusoidal)

# %%
hint("sinusoidal")

# %% [markdown] tags=["solution"]
# A column of positions times a row of frequencies is the table of angles, (n, d/2). `arange(0, d, 2)` counts 0, 2, 4, ..., which is $2i$ already. `stack` along a new last
# axis puts each cosine next to its sine, and `flatten(-2)` makes (d/2, 2) into d. Common mistakes: `cat`, which puts all sines first; $i/d$ in the exponent; pairs counted from 1.

# %% [markdown] slide="subslide"
# The table for 64 positions and 64 numbers, as a picture. Read one row: that is the fingerprint of a position.

# %% slide="skip"
from tinylm_lib.positions import sinusoidal_table

waves = sinusoidal_table(64, 64)  # (positions, d)

# %% tags=["source-hidden"]
fig, ax = plt.subplots(figsize=(10.4, 5), layout="constrained")
image = ax.imshow(waves, cmap=figures.SIGNED, vmin=-1, vmax=1, aspect="auto")
fig.colorbar(image, ax=ax, ticks=[-1, 0, 1])
ax.set(title="Fast waves at the left, slow ones at the right", xlabel="number in the row", ylabel="position")
ax.grid(visible=False)
figures.display(
    fig,
    alt="A heat map of 64 rows and 64 columns: the columns at the left change colour every few rows, those at the right hardly change.",
    caption="One row for each position. The first pair of columns repeats after about 6 positions, and the last pairs have not finished a full turn in 64.",
    table={"position": [0, 1, 6, 63], **{f"number {i}": waves[[0, 1, 6, 63], i].tolist() for i in (0, 1, 32, 62)}},
    digits=2,
)

# %% [markdown] slide="subslide"
# What do these rows know? In a smaller table, `rows`, each has 8 numbers. Take the dot product of a row and the row three positions later.

# %% slide="skip"
rows = sinusoidal_table(64, 8)  # (64, 8)
products = {p: (rows[p] @ rows[p + 3]).item() for p in (0, 7, 50)}

# %% tags=["source-hidden"]
same, apart, grown = f"{products[50]:.3f}", f"{rows[0] @ rows[53]:.3f}", f"{products[0] + 50:.3f}"
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

# %% [markdown]
# Row times row depends only on the distance, because $\sin\,a\,\sin\,b + \cos\,a\,\cos\,b = \cos(a - b)$, summed over the pairs. But attention does not multiply rows. It multiplies *word plus row* by *word plus row*, and that is four products:
#
# $$(w + r)^\top(w' + r') = w^\top w' + w^\top r' + r^\top w' + r^\top r'$$

# %%
word, other = torch.randn(2, 8, generator=torch.Generator().manual_seed(6))
print("positions    w·w'    w·r'    r·w'    r·r'     sum")
for p in (0, 7, 50):
    r, s = rows[p], rows[p + 3]
    terms = [word @ other, word @ s, r @ other, r @ s]
    print(f"{p:2d} and {p + 3:2d} ", "".join(f"{term:8.2f}" for term in [*terms, sum(terms)]))

# %% [markdown]
# The first product compares the words and the last the positions: both are the same in every line. The two in the middle mix a word with a position. They change from line to line, so the same two words, three positions apart, get another score at another position in the text.

# %% [markdown] slide="say"
# In a model the matrices for queries and keys act on the vectors before the products, so the four terms have weights, but there are four all the same. A model can learn to live with them, as the sinusoidal head in the control did. The cosine is the same for an angle and its negative, so without those matrices the last term cannot distinguish before from after.

# %% [markdown] tags=["note"]
# **Say.** Moving a row on by three positions is one matrix, and the same matrix everywhere. It is a rotation of each pair. If a matrix can move the position on, apply it to the word itself and add nothing.
#
# **Draw.** Two arrows from one point, a query and a key. Rotate both by the same angle with your hands: the angle between them stays.
#
# **Ask.** Let two students point in two directions, then let both turn by a quarter. "What has changed? What has not?"
#
# **Usual answers.**
# - *Their directions have changed, so their score has changed* (from the room): The dot product depends on the two lengths and the angle between them, and none of the three has changed.
# - *Rotating loses what the word meant* (from the room): A rotation can be undone and keeps all lengths, and both vectors are rotated.
#
# **Cut if short.** The last step, the product of two rotations; keep the picture of the arrows and the three scores.

# %% [markdown] slide="slide"
# ## 3. Rotate the word itself
# Is there one matrix that moves *every* row three positions on? We let least squares look for it.

# %% evidence="linear-map"
clock = sinusoidal_table(64, 4).double()  # (64, 4)
M = torch.linalg.lstsq(clock[:-3], clock[3:]).solution  # (4, 4): row p times M is row p + 3
error = (clock[:-3] @ M - clock[3:]).abs().max()
random_rows = torch.randn(64, 4, generator=torch.Generator().manual_seed(6)).double()
best = torch.linalg.lstsq(random_rows[:-3], random_rows[3:]).solution
random_error = (random_rows[:-3] @ best - random_rows[3:]).abs().max()
print(f"largest error: {error:.4f} for the waves, {random_error:.1f} for random rows")
assert error < 1e-6 < 1 < random_error

# %% tags=["source-hidden"] slide="subslide"
names = ["sin, fast", "cos, fast", "sin, slow", "cos, slow"]
figures.heat_map(
    M.round(decimals=2), names, names, title="One matrix moves every row on by 3", limits=(-1, 1),
    y="position p: row", x="position p + 3: column",
    caption="Two blocks, a rotation by 3 radians for the fast pair and by 0.03 for the slow one, and zeros everywhere else.",
)  # fmt: skip

# %% [markdown]
# One matrix moves all rows on, because every pair is rotated by an angle that depends on the offset alone. For random rows there is no such matrix. [[linear-map]] This is the reason that Vaswani et al. (2017) gave for their waves.
#
# **If a matrix can move a row on, why not apply it to the word?** Do not add a position to the word, *rotate the word* by its position.

# %% [markdown] slide="subslide"
# Take two numbers of a query or a key as a point $(a, b)$ and rotate it by the angle $\theta$ (theta), which is the position times the frequency:
#
# $$\begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{pmatrix} \begin{pmatrix} a \\ b \end{pmatrix} = \begin{pmatrix} a\cos\theta - b\sin\theta \\ a\sin\theta + b\cos\theta \end{pmatrix}$$


# %%
def rotation(angle: float) -> torch.Tensor:
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)  # (2, 2)


arrow = torch.tensor([1.0, 0.0], dtype=torch.float64)
for p in range(3):
    print(f"position {p}:", rotation(1.0 * p) @ arrow)

# %% slide="skip"
for block, angle in ((M[:2, :2], 3.0), (M[2:, 2:], 0.03)):
    assert (block - rotation(angle)).abs().max() < 1e-6

# %% [markdown] slide="say"
# The two blocks of the picture are such matrices, for 3 and for 0.03 radians. (There a row that begins with a sine is at the left of the matrix, here a column that begins with a cosine is at its right. The two differences cancel.)

# %% tags=["source-hidden"] slide="subslide"
tips = [(rotation(p) @ arrow).tolist() for p in range(7)]
fig, ax = plt.subplots(figsize=(6.2, 6), layout="constrained")
for p, (x, y) in enumerate(tips):
    figures.arrow(ax, (0, 0), (x, y), letter="C", width=2.8)
    ax.text(1.17 * x, 1.17 * y, f"{p}", ha="center", va="center", size=20, weight="bold")
around = torch.linspace(0, 2 * math.pi, 200)
ax.plot(around.cos(), around.sin(), color=figures.QUIET, linewidth=1.2, linestyle="-")
ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
ax.set(title="Each position rotates it further", xlabel="first number", ylabel="second number")
figures.display(
    fig,
    alt="Seven arrows on a circle, numbered 0 to 6: each is rotated by 1 radian from the one before.",
    caption="The same pair of numbers at seven positions. The length stays, and the direction shows the position. At 6 the circle is nearly closed.",
    table={"position": list(range(7)), "first": [x for x, _ in tips], "second": [y for _, y in tips]},
)

# %% [markdown] slide="subslide"
# Now rotate a query and a key, each to its own position, and take the dot product.

# %%
query = torch.tensor([0.8, 0.5], dtype=torch.float64)
key = torch.tensor([0.3, -1.1], dtype=torch.float64)
for m, n in ((5, 3), (105, 103), (3, 5)):
    score = (rotation(m) @ query) @ (rotation(n) @ key)
    print(f"query at {m:3d}, key at {n:3d}: score {score:.4f}")

# %% [markdown]
# The score depends on the two words and on the **offset**, including its sign: *two positions earlier* and *two positions later* get different scores. At 105 and 103 both vectors were rotated by a further 100 radians, and the angle between them stayed.

# %% [markdown] slide="subslide"
# Write $R_m$ for the rotation at position $m$. Its transpose has the minus in the other corner, so it rotates *back*:
#
# $$(R_m q)^\top (R_n k) = q^\top R_m^\top R_n\, k = q^\top R_{n-m}\, k$$
#
# Back by $m$ and forward by $n$ is a rotation by $n - m$.

# %% rows=["S1-14"] evidence="offset-only"
for m, n in ((3, 5), (110, 10), (3010, 3007)):
    assert (rotation(m).T @ rotation(n) - rotation(n - m)).abs().max() < 1e-14
    assert ((rotation(m) @ query) @ (rotation(n) @ key) - query @ rotation(n - m) @ key).abs() < 1e-14
    print(f"m = {m}, n = {n}: equal to within 1e-14")

# %% [markdown]
# This is **rotary position embedding**, RoPE ([Su et al. 2021](https://arxiv.org/abs/2104.09864)). It has no weights and adds nothing: the two mixed products of section 2 do not exist.

# %% [markdown] tags=["note"]
# **Say.** One pair comes round again, so a head has many pairs, each with its own frequency. Then we ask the shipped model what it uses the fast and the slow pairs for, by stopping them and by removing them.
#
# **Draw.** Three clock hands: a fast, a middle and a slow one. Which of them helps to distinguish neighbours, and which the beginning of a text from its end?
#
# **Ask.** Before the second prediction: "What are the slow pairs good for, in a model that reads at most 128 tokens?" After the last table: "Must a model that *can* have a head for two back *learn* one?"
#
# **Usual answers.**
# - *It is close to a multiple of the full turn* (`22`): That is three and a half turns. Where does the arrow point after half a turn?
# - *They do nothing, so nothing is lost* (`nothing happens in either case`): You think of the rotation alone. A pair is also a part of the score when it does not rotate.
# - *Every pair is used, so both do harm* (`both raise it`): How far does the slowest pair rotate in 128 positions? Could the model notice?
# - *Why not one slow pair that never repeats?* (from the room): Neighbours would then differ by an angle too small to matter.
#
# **Cut if short.** The view (show its picture), and the last table of the section.

# %% [markdown] slide="slide"
# ## 4. Many pairs, many frequencies
# One pair is not enough, because it comes round again.

# %% tags=["source-hidden"]
predict(
    f"One pair rotates by 1 radian per position: a full turn takes {2 * math.pi:.2f} positions. Which position looks most like position 0?",
    key=lambda: str(max((6, 22, 44), key=math.cos)),
    choices={"6": "Close, but 0.28 radians short of a full turn.", "22": "That is 3.5 turns: there it points the opposite way.", "44": ""},
    because=f"Seven turns are {14 * math.pi:.2f} positions.",
)  # fmt: skip

# %% [markdown]
# So the $D$ numbers of a query ($d_k$ in lesson 05) make $D/2$ pairs, each with a frequency of its own, by the formula of section 2. The **wavelength** is the number of positions in a full turn.

# %% slide="skip"
from copy import deepcopy

from tinylm_lib import storyworld
from tinylm_classroom import fixed, rope_view
from tinylm_lib.positions import frequencies

# %%
for i, frequency in enumerate(frequencies(8).tolist()):
    print(f"pair {i}: frequency {frequency:.3f}, wavelength {2 * math.pi / frequency:,.0f}")

# %% [markdown]
# A fast pair distinguishes neighbours but repeats, and a slow one hardly moves from word to word. Here are the pairs of a real head: layer 2, its query of the full stop and its key of *Carlos*, before they are rotated.

# %%
rope_view(model, tokenizer, "\nOne day, Carlos thanked Jamal.", layer=2, head=2, key=4, part="bank")

# %% [markdown] slide="say"
# Read down a column of *all pairs*: that is how a position looks. In *score and distance* move both words on. The score keeps the promise of section 3 for all pairs at once, because it is the same wherever the two words are. With waves added it is not. (The view adds the waves directly to q and k, which is simpler than in a model, where they are added to x before the matrices.) *Layouts* shows two ways to form the pairs, which come next.

# %% [markdown] slide="subslide"
# ### What does the shipped model use them for?
# We intervene twice: we *stop* some pairs, so that they no longer rotate, or we *remove* them, so that they no longer count in any score.

# %%
texts_seen = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(1_000, 1_040)]
stories = torch.tensor([tokenizer.encode("\n" + text)[:90] for text in texts_seen])  # (B, T)


# %%
@torch.no_grad()
def loss_with(stopped: range, removed: range) -> float:
    """Nats per token if some pairs do not rotate, and some are left at 0, in all heads and layers."""
    # ESSENTIAL
    changed = deepcopy(model)
    for part in (block.attention for block in changed.blocks):
        for pair in stopped:
            part.rotation.cos[:, [pair, pair + 16]] = 1.0
            part.rotation.sin[:, [pair, pair + 16]] = 0.0
        for pair in removed:
            part.q_norm.weight[[pair, pair + 16]] = 0.0  # the gain of these numbers of each query
    # END
    return next_token_loss(changed(stories[:, :-1]), stories[:, 1:]).item()


# %% [markdown] slide="say"
# In this model pair $i$ consists of the numbers $i$ and $i + 16$, so the **partner** of a number is half a vector away. Models use two such **layouts**: *halves*, as here, and *interleaved*, where neighbours are partners, as in section 3. The rotation is the same, but a model has to keep the layout that it was trained with.

# %% slide="skip"
nothing, everything = range(0), range(16)
quarters = [range(start, start + 4) for start in (0, 4, 8, 12)]
whole = loss_with(nothing, nothing)
stop = [loss_with(pairs, nothing) - whole for pairs in [*quarters, range(8, 16), everything]]
remove = [loss_with(nothing, pairs) - whole for pairs in quarters]

# %% tags=["source-hidden"]
predict(
    "We stop the 4 slowest pairs, or we remove them. What happens to the loss of the shipped model?",
    key=lambda: (
        "stopping changes nothing, removing raises it" if stop[3] < 0.01 < 0.05 < remove[3] else "something else"
    ),
    choices={
        "nothing happens in either case": "They hardly rotate, so stopping them changes little. But the score is still a sum over all pairs.",
        "both raise it": "They rotate by about a fiftieth of a circle at most in 128 positions. Can the model notice whether they do?",
        "stopping changes nothing, removing raises it": "",
    },
    because="The model does not get any position from these pairs. But they are a part of every score, whether they rotate or not, and the model uses that part.",
)

# %% tags=["source-hidden"] evidence="slow-pairs"
print(f"loss of the shipped model: {whole:.2f} nats per token; what is added to it:")
print(f"{'pairs':<10}{'wavelengths':<20}{'stopped':>8}{'removed':>9}")
for i, pairs in enumerate(quarters):
    first, last = (2 * math.pi / frequencies(32)[pair] for pair in (pairs[0], pairs[-1]))
    lengths = f"{first:,.0f} to {last:,.0f}"
    print(f"{f'{pairs[0]} to {pairs[-1]}':<10}{lengths:<20}{fixed(stop[i], 2):>8}{fixed(remove[i], 2):>9}")
for name, added in {"8 to 15": stop[4], "all": stop[5]}.items():
    print(f"{name:<10}{'at once':<20}{fixed(added, 2):>8}")
assert min(stop[:2]) > 0.5 > min(remove) > 0.02 > 0.01 > max(stop[2:5])
assert sum(remove[:2]) > sum(stop[:2]) + 0.3 and stop[5] > 2

# %% [markdown] slide="fragment"
# The faster half gives this model the order of the words. For the slower half it makes no difference whether the pairs rotate, but the model does use them: without their part of the scores the loss rises. [[slow-pairs]]

# %% [markdown] slide="say"
# The slower half of the pairs rotates by at most a fifth of a circle within the 128 positions that this model was trained on, and the slowest hardly at all.
#
# This is not a division of labour, because the faster half does more than give the order: removing its pairs costs more than stopping them. In Gemma 7B, too, the fastest pairs were found to make attention patterns by position, and the slow ones are suspected to carry meaning (Barbero et al. 2024). All this holds within the 128 tokens of its training; section 6 reads longer texts.

# %% [markdown] slide="subslide"
# Does the shipped model have a head like the one of section 1, for any fixed distance up to 20? For each of its 12 heads we take the mean attention weight at each distance, and print the largest.

# %% tags=["source-hidden"] evidence="no-fixed-distance"
caught = capture(model, stories)
for layer in range(3):
    weights = caught.attention(layer).weights  # (B, H, T, S)
    at_distance = [weights.diagonal(-away, -2, -1).mean((0, 2)) for away in range(1, 21)]  # 20 of (H)
    largest = torch.stack(at_distance).amax(0)  # (H)
    print(f"layer {layer}:", "  ".join(f"head {head}: {weight:.2f}" for head, weight in enumerate(largest)))
    assert largest.max() < 0.25

# %% [markdown]
# It has none: no head gives more than about a tenth of its attention to any one of these distances. [[no-fixed-distance]] Rotary positions make such a head possible, but whether a model learns one depends on the text and the training.

# %% [markdown] tags=["note"]
# **Say.** You now write the rotation that Llama uses, for all pairs, texts and heads at once. One pair first, then the table of angles.
#
# **Draw.** The vector of one query as boxes, neighbours joined in pairs, and next to it the table of angles: one row for each position, one column for each pair.
#
# **Ask.** After the trace: "Which line would be wrong for a text that is padded at the left?" (The positions differ between the texts then.)
#
# **Usual answers.**
# - *the minus is missing* (`no minus`): With a plus in both lines (1, 1) grows. A rotation keeps the length.
# - *the pairs turn the other way* (`backwards`): Rotate (1, 0) by a small angle on the board. In which direction does the second number go?
# - *the results are put behind each other instead of back in their places* (`in blocks`): `cat` makes two blocks. Stack and flatten.
# - *a coordinate is paired with one half a vector away* (`halves`): That is the layout of the shipped model. In this exercise neighbours are partners, as in section 3.
# - *the rows are counted instead of looking at `positions`* (`by row`): It works until a text is continued from a cache, where the first row is not at position 0.
# - *angles are computed in the dtype of x* (`all rounded`): bf16 keeps only a few bits of a number, so large odd positions are rounded to even ones.
#
# **Cut if short.** The library's version and everything after it. Keep the exercise: show all hints when half of its time is over, and let the class finish it at home.

# %% [markdown] slide="slide"
# ## 5. Your turn
# Rotate the pairs of any number of texts and heads.


# %% tags=["exercise"] name="rotate" minutes=10 difficulty=3
def rotate(x, positions, base):
    """Rotates row t of x (..., T, D) to positions[t].

    Pair i, the numbers 2i and 2i + 1, by position * base^(-2i/D) radians.
    positions (T,): any integers in any order, large or negative ones too.
    [[1, 0, 1, 0]] at [1], base 10000: [[0.5403, 0.8415, 1.0000, 0.0100]].
    Angles in fp32 or better. Returns (..., T, D) in the dtype of x;
    x stays as it was and may have any strides. Gradients flow back to x.
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
# The angles are (T, D/2) and broadcast from the right over texts and heads. `stack` and `flatten(-2)` put each pair back where it was, and `cat` would make halves. Common mistakes:
# a lost minus; `arange(T)` instead of `positions`, which works until a text is continued; angles in the dtype of `x`; no cast at the end.

# %% [markdown] slide="subslide"
# ### The library's version
# `Rotary` looks up cosines and sines in its tables, and `flip` swaps the partners of each pair: the minus is in the table of sines.

# %% slide="skip"
from tinylm_classroom import show, trace
from tinylm_lib.positions import POSITIONS, Rotary

# %% rows=["S0-24", "S0-27", "S1-16", "S4-6"] slide="skip"
rotary = Rotary(64, max_seq_len=512, base=10_000.0)
queries, keys = torch.randn(2, 3, 2, 5, 64)  # each (B, H, T, D)
window = torch.arange(7, 12)  # (T)
here = rotary(queries, window) @ rotary(keys, window).mT  # (B, H, T, S)
there = rotary(queries, window + 100) @ rotary(keys, window + 100).mT
torch.testing.assert_close(here, there, rtol=0, atol=1e-3)
torch.testing.assert_close(rotary(queries, window).norm(dim=-1), queries.norm(dim=-1))
assert rotary.cos.shape == (512, 64) and not rotary.state_dict()
classic = preset("tiny_transformer", "tiny")
assert (classic.position, classic.embedding_dropout) == ("sinusoidal", 0.1)
assert TransformerLM(classic).embed_scale == math.sqrt(classic.d_model)

# %% slide="fragment"
show(sinusoidal_table, Rotary)

# %% slide="subslide"
trace(rotary, queries, window, sizes={"B": 3, "H": 2, "T": 5, "D": 64})

# %% [markdown] slide="say"
# Positions are $(T)$, or $(B, T)$ when texts have their own: texts padded at the left, for instance. Cosines of $(B, T, D)$, laid over $(B, H, T, D)$ from the right, would put *texts* over *heads*: an error, and with
# as many heads as texts a silent one. The two lines under `if` prevent it.

# %% [markdown] slide="subslide"
# How can a rotation find "two back"? Suppose that the query is the key, rotated *back* by two positions:

# %%
one_key = torch.randn(64, generator=torch.Generator().manual_seed(6))  # one key, equal at every position
away = torch.arange(6)
keys_behind = rotary(one_key.expand(6, 64), 40 - away)  # (6, D): at 40, 39, 38, ...
looking_back = rotary(one_key[None], torch.tensor([40 - 2]))  # (1, D): rotated back by 2, then to position 40
print("positions back:", away.tolist())
print("score:         ", [round(score, 1) for score in (keys_behind @ looking_back[0] / 8).tolist()])

# %% [markdown]
# The score is highest two positions back, because there the rotations cancel and the key meets itself. The neighbours score nearly as high. So a head needs a part of $W_k$ that gives every word the same vector, and a $W_q$ that gives every word this vector rotated back by two, and longer, so that the softmax is sharp (lesson 05).

# %% [markdown] slide="subslide"
# ### The library's four answers
# A position is **added to the vectors $x$, once**, or it **rotates $q$ and $k$, in every layer**:

# %% tags=["source-hidden"] rows=["S4-49"]
print(f"{'position':<12}{'added to x':<20}{'q and k':<11}{'weights':>8}   table")
for name, (added, rotated) in POSITIONS.items():
    reader = random_model(name, n_layers=1)
    n_weights = sum(w.numel() for w in reader.position.parameters())
    parts = (reader.position, reader.blocks[0].attention.rotation)
    stored = [table for part in parts for table in (*part.parameters(), *part.buffers())]
    size = " x ".join(map(str, stored[0].shape)) if stored else "none"
    print(f"{name:<12}{added.__name__:<20}{rotated.__name__:<11}{n_weights:>8,}   {size}")

# %% [markdown]
# `Unchanged` does nothing. Only the learned rows are trained: 64 positions of 128 numbers make 8,192 weights, which know nothing of distance at first. The other tables are computed. All of them end, and so the next question is what happens beyond the positions that a model was trained on.

# %% [markdown] tags=["note"]
# **Say.** Two different things are called "longer": positions with large numbers, and texts with more words. We test them apart.
#
# **Draw.** A number line with the trained positions 0 to 127. Draw a short text far to the right of it, then a long text that begins at 0.
#
# **Ask.** The prediction is the heart of the section. Ask those who say "the same" why the long text fails nevertheless.
#
# **Usual answers.**
# - *These positions are new to it* (`far higher`, most of the room): What does a score depend on? Which offsets occur in the moved text?
# - *Rounding grows with the position* (`a little higher`): The tables are precise. Same question. Is there an offset that was not trained?
# - *Then rotary works with any length* (after the first result): True of the arithmetic. Look at the next table.
#
# **Cut if short.** Show the prediction and its answer, and say what the table shows.

# %% [markdown] slide="slide" plan=80
# ## 6. Beyond the trained length
# The shipped model was trained on 128 positions. We copy its weights into a model with a longer table and read 40 texts, each from the line end before a story.

# %% slide="skip"
from dataclasses import replace


def shipped_with(**changes) -> TransformerLM:
    other_model = TransformerLM(replace(model.config, **changes)).eval()
    other_model.load_state_dict(model.state_dict())
    return other_model


# %%
longer = shipped_with(max_seq_len=2048)
tokens = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(220, seed=77)))
line_ends = (tokens == tokens[0]).nonzero()[:, 0]
texts = torch.stack([tokens[start : start + 513] for start in line_ends[:200:5]])  # (40, 513)
print(f"40 texts of 512 tokens; a story has about {len(tokens) / 220:.0f}")

# %% [markdown] slide="say"
# The loss below differs a little from that of section 4, which was measured on other, shorter texts.


# %% tags=["source-hidden"]
@torch.no_grad()
def loss_from(start: int) -> float:
    x, at = longer.embed(texts[:, :128]), torch.arange(start, start + 128)  # (B, T, C), (T)
    for block in longer.blocks:  # the layers, one after another: lesson 10
        x = block(x, at)  # (B, T, C)
    return next_token_loss(longer.lm_head(longer.final_norm(x)), texts[:, 1:129]).item()


starts = {start: loss_from(start) for start in (0, 1900)}
predict(
    f"The first 128 tokens of each text, at positions 0 to 127: the loss is {starts[0]:.2f} nats. And for the same tokens at positions 1900 to 2027?",
    key=lambda: "the same" if abs(starts[1900] - starts[0]) < 0.005 else "higher",
    choices={"the same": "", "a little higher": "The positions are new to it. But what does a score depend on?", "far higher": "The positions are new to it. But what does a score depend on?"},
    because="Only offsets count, and within 128 words there is none that was not trained.",
)  # fmt: skip

# %% tags=["source-hidden"] evidence="far-positions"
assert abs(starts[1900] - starts[0]) < 0.005
print("128 tokens, by their first position:", {start: round(loss, 2) for start, loss in starts.items()})

# %% [markdown] slide="subslide"
# And a longer text? We read all 512 tokens at once and take the loss of 64 at a time. For comparison, the model reads the same 64 with only the last 128 tokens in view.

# %% evidence="long-texts"
with torch.no_grad():
    long_logits = longer(texts[:, :-1])  # (40, 512, V)
    for end in (128, 192, 320, 448, 512):
        targets = texts[:, end - 63 : end + 1]
        short_logits = model(texts[:, end - 128 : end])  # (40, 128, V)
        from_start = next_token_loss(long_logits[:, end - 64 : end], targets)
        last_only = next_token_loss(short_logits[:, -64:], targets)
        span = f"tokens {end - 64:3d} to {end - 1:3d}"
        print(f"{span}: read from the start {from_start:.2f}, the last 128 only {last_only:.2f}")
        assert from_start < last_only + 0.01 if end == 128 else from_start > last_only + 0.1

# %% [markdown]
# Positions far from those of the training do no harm [[far-positions]], but in a long text something else is new: distances beyond 127, and more words to look at than ever in training. The loss grows, and the tokens are not the reason, because the same tokens have a low loss when only the last 128 are in view. [[long-texts]] "Works with any length" is true of the arithmetic only.

# %% [markdown] slide="skip"
# In section 4 it made no difference whether the slower half of the pairs rotates. And here?

# %% slide="skip" evidence="slow-far"
stopped_far = deepcopy(longer)
for part in (block.attention for block in stopped_far.blocks):
    part.rotation.cos[:, [*range(8, 16), *range(24, 32)]] = 1.0
    part.rotation.sin[:, [*range(8, 16), *range(24, 32)]] = 0.0
with torch.no_grad():
    stopped_logits = stopped_far(texts[:, :-1])  # (40, 512, V)
added_far = {}
for end in (128, 320, 512):
    span_losses = [
        next_token_loss(each[:, end - 64 : end], texts[:, end - 63 : end + 1]).item()
        for each in (long_logits, stopped_logits)
    ]
    added_far[end] = span_losses[1] - span_losses[0]
    print(
        f"tokens {end - 64:3d} to {end - 1:3d}: as trained {span_losses[0]:.2f}, pairs 8 to 15 stopped {span_losses[1]:.2f}"
    )
assert abs(added_far[128]) < 0.03 and min(added_far[320], added_far[512]) > 0.2

# %% [markdown] slide="skip"
# Beyond the trained length the loss rises further without these rotations, so there the model is not indifferent to them. [[slow-far]]

# %% [markdown] slide="say"
# The first loss is a mean over tokens 0 to 127, and the first line of the table one over tokens 64 to 127, which have more words to go by. The model raises an error for more positions than its table has.

# %% tags=["raises-exception"] slide="skip"
model(texts[:, :200])

# %% [markdown] tags=["note"]
# **Say.** Two popular tests of a rotation are that lengths stay and that the score depends on the offset only. We try them on four wrong rotations.
#
# **Draw.** A table with four mistakes as rows and the two tests as columns, empty. The room fills it in before the cell does.
#
# **Ask.** The prediction, and afterwards: "Which third test would find forgotten positions?"
#
# **Usual answers.**
# - *A wrong rotation fails a test of rotations* (`0`): Which of them still rotates every pair, only by another angle?
# - *Every rotation passes* (`4`): Without the minus, or with another pair's partner, no pair is rotated at all.
# - *Rotating by 0 is not a rotation* (from the room): It keeps all lengths, and its scores depend on nothing, so on nothing but the offset.
#
# **Cut if short.** The drawing; keep the prediction and the table of yes and no.

# %% [markdown] slide="slide" plan=80
# ## 7. Break it: wrong, and nothing complains
# Two tests of a rotation: *lengths stay*, and *the score depends on the offset only*. We try them with one query and one key, always three positions apart, on four mistakes:
#
# - **no minus**: $a\cos\theta + b\sin\theta$ in even positions of the vector;
# - **wrong partner**: the angles belong to pairs of neighbours, but each number is combined with the one half a vector away;
# - **pairs counted from 1**: each pair has the frequency of the next one;
# - **positions forgotten**: every angle is 0.

# %% slide="skip"
from tinylm_lib.positions import Positions

where = torch.tensor([3, 0, 53, 50, 103, 100])  # query, key, query, key, ...
vectors = torch.randn(2, 8, generator=torch.Generator().manual_seed(6)).repeat(3, 1)  # (6, D)
speeds = frequencies(8).float()  # (D/2)
turn, turn_halves = Rotary(8, 128), Rotary(8, 128, layout="halves")


def looked_up(speeds: torch.Tensor, minus: float = -1.0) -> Positions:
    """Positions with the cosines and sines of these frequencies, as the model passes them to `Rotary`."""
    angles = where[:, None] * speeds  # (6, D/2)
    sin = torch.stack((minus * angles.sin(), angles.sin()), dim=-1).flatten(-2)  # (6, D)
    return Positions(where, (angles.cos().repeat_interleave(2, dim=-1), sin))


# %% slide="skip"
tried = {
    "right": turn(vectors, looked_up(speeds)),
    "no minus": turn(vectors, looked_up(speeds, minus=1.0)),
    "wrong partner": turn_halves(vectors, looked_up(speeds)),
    "pairs counted from 1": turn(vectors, looked_up(speeds * speeds[1])),
    "positions forgotten": turn(vectors, looked_up(0 * speeds)),
}


# %% slide="skip"
def tests(rotated: torch.Tensor) -> list[bool]:
    length_stays = torch.allclose(rotated.norm(dim=-1), vectors.norm(dim=-1), rtol=1e-4)
    scores = (rotated[0::2] * rotated[1::2]).sum(-1)  # (3)
    offset_only = torch.allclose(scores, scores[:1], atol=1e-4)
    right_numbers = torch.allclose(rotated, turn(vectors, where), atol=1e-4)
    return [length_stays, offset_only, right_numbers]


# %% tags=["source-hidden"]
passing = [name for name, rotated in tried.items() if all(tests(rotated)[:2]) and name != "right"]
predict(
    "How many of the four mistakes pass both tests?",
    key=lambda: len(passing),
    number="mistakes",
    within=0,
    feedback={
        1: "Rotating by 0 is a rotation, too, and so is rotating at the wrong frequency.",
        3: "Two of them rotate no pair at all: which?",
        0: "Which of them still rotates every pair by an angle that is position times frequency?",
        4: "Without the minus, or with the partner of another pair, no pair is rotated at all.",
    },
    because=f"These pass: {' and '.join(passing)}. Slower pairs are rotations, too, and so is rotating by 0.",
)  # fmt: skip

# %% tags=["source-hidden"] slide="subslide"
print(f"{'':<24}{'length stays':<16}{'offset only':<16}right numbers")
for name, rotated in tried.items():
    print(f"{name:<24}" + "".join(f"{'yes' if passed else 'NO':<16}" for passed in tests(rotated)).rstrip())

# %% [markdown]
# The last two pass. A third test finds forgotten positions: another offset must give another score. Miscounted pairs are found only by comparing with known numbers, as `check` does.

# %% [markdown] tags=["note"]
# **Say.** Here is what you need when you load or train real models: how the rotation is computed, the two layouts of published weights, and how models read texts longer than those of their training.
#
# **Draw.** Six numbers in a row; join neighbours above the row, and the halves below it. Both are the same rotation, in another order.
#
# **Ask.** "You load a checkpoint, no error is raised, and the loss is far too high. How do you find out whether the layout is wrong?"
#
# **Usual answers.**
# - *One for each number* (`64`): That is the diagonal alone. Each number also needs its partner.
# - *One for each pair* (`32`): That is the number of blocks, and each block has four numbers.
# - *The shapes would not fit* (from the room): All shapes are the same in both layouts. That is the trap.
#
# **Cut if short.** All of it; the students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 8. For engineers
# ### One matrix, two fast ways
# The rotation of all pairs is one matrix, with a small rotation for each pair along its diagonal.

# %% slide="skip"
D, p = 4, 20
pair_angles = p * frequencies(D)  # (D/2)
R = torch.block_diag(*[rotation(angle) for angle in pair_angles.tolist()])
assert R.shape == (D, D)

# %% tags=["source-hidden"]
names = [str(i) for i in range(D)]
figures.heat_map(
    R, names, names, title="A small rotation for each pair", y="new number: row", x="old number: column", limits=(-1, 1),
    caption="Position 20, D = 4. Even rows say a cos - b sin, odd rows a sin + b cos; the last pair hardly rotates. Each 0.00 is exactly 0.",
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
# So nobody builds this matrix. The first fast way: each number times its cosine, plus its **partner** (with its sign) times its sine. The second takes each pair as one *complex number* $a + b\,\mathrm{j}$ and multiplies it by $\cos\theta + \mathrm{j}\sin\theta$.

# %% rows=["S0-25", "S1-15"]
x = torch.randn(D, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
cos, sin = pair_angles.cos().repeat_interleave(2), pair_angles.sin().repeat_interleave(2)  # (D), (D)
partner = torch.stack((-x[1::2], x[0::2]), dim=-1).flatten()  # (D)
factor = torch.complex(pair_angles.cos(), pair_angles.sin())  # (D/2)
multiplied = torch.view_as_real(torch.view_as_complex(x.view(-1, 2)) * factor).flatten()  # (D)
for name, y in {"matrix": R @ x, "partner": x * cos + partner * sin, "complex": multiplied}.items():
    torch.testing.assert_close(y, R @ x)
    print(f"{name:<8}", y.numpy().round(2))

# %% [markdown] slide="subslide"
# ### Two layouts
# Which two numbers form a pair is a free choice. Two are in use: **interleaved**, neighbours $(0, 1), (2, 3), \dots$, and **halves**, $(0, D/2), (1, D/2 + 1), \dots$, as in Llama
# checkpoints in Hugging Face's format. (Those from Meta itself are interleaved.) A reordering leads from one to the other:

# %% evidence="reordering"
order = torch.arange(6).view(2, -1).T.flatten()  # (D)
neighbours, halves = Rotary(6, 64), Rotary(6, 64, layout="halves")
words, places = torch.randn(5, 6, generator=torch.Generator().manual_seed(6)), torch.tensor([3, 1, 4, 15, 9])
reordered = neighbours(words[:, order], places) - halves(words, places)[:, order]
print("order", order.tolist(), f"largest difference {fixed(reordered.abs().max(), 5)}")
assert reordered.abs().max() < 1e-5
print(f"without reordering {(neighbours(words, places) - halves(words, places)).abs().max():.1f}")

# %% [markdown]
# Neither is better: $q$ and $k$ come out of learned matrices, whose rows may be in any order. But a checkpoint belongs to its layout, and no shape shows which one it is. The shipped model has halves. We load its weights in three ways: as if they were interleaved; without positions; and as interleaved, after we put the rows of $W_q$ and $W_k$ and the gains of their norms (lesson 04) in the order above.

# %% slide="skip"
wrong, regrouped = (shipped_with(rope_layout="interleaved") for _ in range(2))
d_head = model.config.d_head
head_order = torch.arange(d_head).view(2, -1).T.flatten()  # (32)
with torch.no_grad():
    for part in (block.attention for block in regrouped.blocks):
        for layer, norm in ((part.q_proj, part.q_norm), (part.k_proj, part.k_norm)):
            layer.weight.copy_(layer.weight.unflatten(0, (-1, d_head))[:, head_order].flatten(0, 1))
            norm.weight.copy_(norm.weight[head_order])

# %% evidence="wrong-layout"
blind = shipped_with(position="none")
losses = {}
for name, reader in {"as trained": model, "wrong layout": wrong, "no positions": blind, "regrouped": regrouped}.items():
    with torch.no_grad():
        losses[name] = next_token_loss(reader(texts[:, :128]), texts[:, 1:129]).item()
    print(f"{name:<17}{losses[name]:.2f} nats")
assert losses["wrong layout"] > 2 + losses["as trained"]
assert abs(losses["regrouped"] - losses["as trained"]) < 1e-3
print(f"{'knowing nothing':<17}{math.log(tokenizer.vocab_size):.2f} nats, ln {tokenizer.vocab_size}")

# %% [markdown]
# All four load without an error, since rotations have no weights that could be missing. With the wrong layout the loss is far higher, and the one with the rows in order is the model again.
# (This model was trained with rotations. One trained without any would probably do better than 4.19.)

# %% [markdown] slide="subslide"
# ### On q and k, not on v
# Rotary rotates what is *matched*. What is fetched should be the same wherever the word is. We move six words on by 50 positions:

# %% slide="skip"
from tinylm_lib.attention import attend

# %% rows=["S3-2"] evidence="values"
small = Rotary(8, 64)
q, k, v = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(6))  # (T, D) each
for name, rotate_v in {"v as it is": False, "v rotated as well": True}.items():
    results = []
    for at in (torch.arange(6), torch.arange(50, 56)):  # (T)
        results.append(attend(small(q, at), small(k, at), small(v, at) if rotate_v else v, causal=True))
    change = (results[0] - results[1]).abs().max()
    print(f"{name}: the results differ by {change:.2f}")
    assert change > 0.1 if rotate_v else change < 1e-4

# %% [markdown]
# With rotated values, the same words in the same order give another result further on. [[values]]

# %% [markdown] slide="subslide"
# ### Precise tables
# Never compute *angles* in bf16: it cannot represent 1001, and for the first pair an error of one position is one radian. Tables that are computed exactly and then rounded do less harm. Two words, always three positions apart:

# %% evidence="tables"
print("the position 1001 in bf16:", torch.tensor(1001.0).bfloat16().item())
exact, rounded_tables, far = Rotary(64, 4096), Rotary(64, 4096), torch.tensor([10, 110, 3010])
rounded_tables.cos, rounded_tables.sin = exact.cos.bfloat16().float(), exact.sin.bfloat16().float()
pair = torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(6))
q_far, k_far = pair.expand(2, 3, 64)  # (3, D) each
true, rough = ((each(q_far, far) * each(k_far, far - 3)).sum(-1) for each in (exact, rounded_tables))
print("rounded tables change the score by", [f"{change:.1%}" for change in ((rough - true) / true).tolist()])
print("the library's tables after .bfloat16():", exact.bfloat16().cos.dtype)
assert (true - true[0]).abs().max() < 1e-3 * true[0].abs() < (rough - rough[0]).abs().max()

# %% [markdown]
# The change is small, but it differs from position to position, where rotary promised the same score at each. So the library keeps its tables in fp32, whatever the dtype of the model. [[tables]]

# %% [markdown]
# A bf16 number times an fp32 table is fp32. The result must be rounded back to the dtype of $q$ and $k$:

# %% evidence="rounded-back"
q, k, v = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(6)).bfloat16()  # (T, D) each
at = (torch.arange(4)[:, None] * frequencies(8)).float().repeat_interleave(2, dim=-1)  # (T, D)
turned_q, turned_k = (x * at.cos() + torch.stack((-x[:, 1::2], x[:, 0::2]), -1).flatten(1) * at.sin() for x in (q, k))
rounded_back = attend(turned_q.to(q.dtype), turned_k.to(k.dtype), v, causal=True)
print("rounded back:", rounded_back.dtype)
try:
    attend(turned_q, turned_k, v, causal=True)
except RuntimeError as error:
    print(f"q {turned_q.dtype}, k {turned_k.dtype}, v {v.dtype}: attention raises a {type(error).__name__}")
else:
    raise AssertionError("attention took q, k and v of two dtypes")

# %% [markdown]
# Otherwise $v$ alone is in bf16, and attention refuses the mixture: a model that offers `dtype=torch.bfloat16` then fails in its first step. [[rounded-back]] So `rotate` returns the dtype of `x`.

# %% [markdown] slide="subslide"
# ### Added waves must fit in size
# New word vectors are often tiny, with a standard deviation of 0.02:

# %% rows=["S4-6"] evidence="sizes"
C = 512
token = 0.02 * torch.randn(1000, C, generator=torch.Generator().manual_seed(6)).norm(dim=-1).mean()
wave = sinusoidal_table(1000, C).norm(dim=-1).mean()
scaled = math.sqrt(C) * token
print(f"word {token:.2f} long, position {wave:.0f}: {wave / token:.0f} to 1")
print(f"word times the root of {C}: {scaled:.0f} long: {wave / scaled:.1f} to 1")
assert wave / token > 30 and wave / scaled < 2

# %% [markdown]
# The position is 35 times as long as the word. After the factor they are of similar length, and models with these waves usually multiply the embeddings by $\sqrt{C}$ before they add the row. [[sizes]] The preset `tiny_transformer` has waves, this factor, and dropout (lesson 09).

# %% [markdown] slide="subslide"
# ### Longer texts
# By the formula of section 2, a larger **base** slows every pair but the first, and the slow ones most. [Llama 3](https://arxiv.org/abs/2407.21783) has 500,000 instead of 10,000, to support longer texts, with heads of $D = 128$ (Grattafiori et al. 2024).

# %% tags=["source-hidden"] evidence="base"
length = 8192
wavelengths = {base: 2 * math.pi / frequencies(128, base) for base in (10_000.0, 500_000.0)}
slower = wavelengths[500_000.0] / wavelengths[10_000.0]  # (64)
assert slower[0] == 1 and (slower.diff() > 0).all() and slower[-1] > 40
slow = [int((row > length).sum()) for row in wavelengths.values()]
title = "A larger base slows the slow pairs most"
with figures.axes(title, "pair", "wavelength in positions", (9.6, 5.2)) as (figure, ax):
    for base, row in wavelengths.items():
        (line,) = ax.plot(range(64), row)
        ax.text(64.5, row[-1], f"base\n{base:,.0f}", color=line.get_color(), va="center")
    ax.axhline(length, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
    ax.text(0, 1.3 * length, f"a text of {length:,}", color=figures.QUIET)
    ax.set_yscale("log")
    ax.set_yticks([10, 1000, 100_000, 10_000_000], ["10", "1,000", "100,000", "10,000,000"])
    ax.minorticks_off()
figures.display(
    figure,
    alt="Two rising lines on a logarithmic scale, both from 6: base 10,000 ends near 54,000, base 500,000 near 2.6 million; a dotted line at 8,192.",
    caption=f"Above the dotted line a pair stays within one turn for a whole text and never shows two positions alike: {slow[0]} of 64 pairs with the small base, {slow[1]} with the large one.",
    table={"pair": [0, 16, 32, 48, 63], **{f"base {b:,.0f}": [f"{w:,.0f}" for w in r[[0, 16, 32, 48, 63]].tolist()] for b, r in wavelengths.items()}},
)  # fmt: skip

# %% [markdown]
# How do models read texts longer than those of their training?
#
# - **Position interpolation** divides all positions by a factor, so that none is larger than in training; a short training gets the model used to it ([Chen et al. 2023](https://arxiv.org/abs/2306.15595)).
# - **YaRN** interpolates the slow pairs only and leaves the fast ones, which tell neighbours apart ([Peng et al. 2023](https://arxiv.org/abs/2309.00071)). Llama 3.1 does something similar: `stretch` in the library.
# - **ALiBi** has no positions in the vectors. It subtracts from each score a number that grows with the distance ([Press et al. 2022](https://arxiv.org/abs/2108.12409)).
# - **T5** adds a learned number to each score, one for each head and range of distances, its *relative position bias* ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683)).

# %% [markdown] tags=["note"]
# **Say.** We began with a model that cannot know who thanked whom. Now the angle between a query and a key depends on how far apart two words are. The first three points are from sections 1 to 4, the fourth is from section 6 and the last from section 8: say only those whose section you taught.
#
# **Draw.** Once more the query and the key of section 3, with the angle between them.
#
# **Ask.** At the door: "Nothing is added to the word. How does a score depend on the distance nevertheless?"
#
# **Usual answers.**
# - *The vector of the word is rotated, so it contains the position* (from the room): Only its query and its key are rotated. The vector itself and its value stay.
# - *The mask shows what came before* (from the room): The first model of section 1 had the mask as well, and it gave the same logits.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - One layer of attention without positions gives the same logits after both orders of our sentence. [[order]] With positions a head learns to find the token at a fixed distance, and without them it does not. [[two-back]] The shipped model has no such head for the distances that we tried. [[no-fixed-distance]]
# - One matrix moves every sinusoidal row on by the same number of positions, and it rotates each pair. [[linear-map]] Rotary positions apply this rotation to queries and keys, so a score depends on the two words and their offset, not on where they are. [[offset-only]]
# - The shipped model relies on the faster half of its pairs for the order of the words. The slower half is used as well, but within the trained length it makes no difference whether it rotates. [[slow-pairs]]
# - At positions far beyond those of its training the shipped model has the same loss [[far-positions]], but in texts longer than those of its training its loss rises. [[long-texts]]
# - For engineers: there are two layouts, and a reordering leads from one to the other. [[reordering]] In the wrong layout the shipped model's loss rises by more than 2 nats, without an error. [[wrong-layout]] Values are not rotated, so that the result does not depend on where the words are. [[values]] The tables are kept in fp32, because rounded ones make the score depend on the position. [[tables]] A larger base slows every pair but the first. [[base]]
#
# Next, lesson 07: why a layer looks back in several ways at once.

# %% [markdown]
# ## Sources
# - Sinusoidal rows, the matrix that moves them, and the embedding scale: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), sections 3.4 and 3.5.
# - Rotary: Su et al. 2021, [*RoFormer: Enhanced Transformer with Rotary Position Embedding*](https://arxiv.org/abs/2104.09864), section 3, equations 14, 15 and 34.
# - Learned positions: Radford et al. 2018, [*Improving Language Understanding by Generative Pre-Training*](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf) (GPT-1), and 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf) (GPT-2).
# - Numbers added to the scores: Press et al. 2022, [*Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*](https://arxiv.org/abs/2108.12409); Raffel et al. 2020, [*Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*](https://arxiv.org/abs/1910.10683), section 2.1.
# - Longer texts: Chen et al. 2023, [*Extending Context Window of Large Language Models via Positional Interpolation*](https://arxiv.org/abs/2306.15595); Peng et al. 2023, [*YaRN: Efficient Context Window Extension of Large Language Models*](https://arxiv.org/abs/2309.00071).
# - What fast and slow pairs do in a large model: Barbero et al. 2024, [*Round and Round We Go! What makes Rotary Positional Encodings useful?*](https://arxiv.org/abs/2410.06205)
# - The base in Llama 3: Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), section 3.2.
