# %% [markdown] slide="slide"
# # 05 Attention
# **How does a word find the earlier word it depends on?**
#
# *Needs* lessons 02 to 04. *Builds* `causal_mask` and `attend` in `attention.py`. *Runs* in about 15 s on two cores.
# *Teaches* in about 53 minutes, plus 18 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: attention is a soft lookup. A query is compared with all keys, softmax turns the scores into weights, and the result is the weighted sum of the values.
# Sections 1, 2, 4, 5 and 6 are the core, with one exercise. Section 3 shows how such queries and keys are learned. Sections 7 to 10 test names and parts: is it an induction head, and what do the mask and the order of the words change? Section 11 goes further, with what students need when they build real models.
# Before the class: run all cells once, try the control at the end of section 1, and click through the steps of the view in section 6, which is in the notebook but not on a slide.

# %% slide="skip"
import math
import re

import torch
from matplotlib import pyplot as plt

from tinylm_classroom import capture, control, figures, predict
from tinylm_lib.layers import softmax
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** Read the sentence aloud and stop at the gap. Everybody says *fan*. Today we find out how a model does that with sums, products and a softmax.
#
# **Draw.** Three boxes with a label on each (the key) and something inside (the value), and a person with a question (the query). The person compares the question with every label and then takes a little out of every box, most from the one that matches best.
#
# **Ask.** After the picture: "The words *fan* and *book* did not move. Does the last word look for a position or for a property?"
#
# **Usual answers.**
# - *The best one wins completely* (`1`): The exponential of 0 is 1, not 0, and fifteen words have the score 0.
# - *A score of 4 is not much more than 0* (`about 0.1`): Let the class compute e to the power of 4.
# - *Keys and values could be the same vector* (from the room): What would come back then? The last word would fetch *I am the pink thing*, which it knew already.
#
# **Cut if short.** The comparison with a Python `dict`, and the control; keep its picture.

# %% [markdown] slide="slide"
# ## 1. One word looks back
# Read this and stop at the gap:
#
# > Carlos had a pink fan. Jamal had a gray book. Jamal took the pink \_\_\_
#
# You probably said *fan*. To find that word, you did two things. You **matched**: which earlier word is a pink thing? And you **fetched**: what is that word? **Attention** consists of these two steps, done with numbers that a model learns.

# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
text = " Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
exchanged = " Carlos had a gray fan. Jamal had a pink book. Jamal took the pink"
pair = torch.tensor([tokenizer.encode("\n" + one_text) for one_text in (text, exchanged)])  # (B, T)

# %% slide="skip"
caught = capture(model, pair)
last_looks = caught.attention(layer=2).weights[:, 0, -1]  # (B, S): where the last word looks
guesses = [tokenizer.decode([i]).strip() for i in caught.logits[:, -1].argmax(-1).tolist()]


# %% tags=["source-hidden"]
def draw_words(ax: plt.Axes, one_text: str, guess: str) -> list[float]:
    """Draws the words of a text in a row, and the guess. Returns where the middle of each word is."""
    letters, ground = {"size": 18, "family": "DejaVu Sans Mono"}, {"pink": "#ffc2da", "gray": "#d3d9df"}
    found = list(re.finditer(r"\w+|\.", one_text))
    for word in found:
        ax.text(word.start(), 0, word[0], **letters)
        if word[0] in ground:
            sides = [word.start() - 0.3, word.end() + 0.3]
            ax.fill_between(sides, -0.3, 0.55, color=ground[word[0]], linewidth=0)
    ax.text(len(one_text) + 1, 0, guess, weight="bold", color=figures.SERIES[0], **letters)
    ax.set(xlim=(0, 73), ylim=(-0.35, 5.3))
    ax.axis("off")
    return [sum(word.span()) / 2 for word in found]


# %% tags=["source-hidden"]
def draw_arcs(ax: plt.Axes, middles: list[float], query: int, looks: list[float], side: int = 1) -> None:
    """Draws an arc from one word to each that it looks at, as thick as the weight. side: 1 above the words, -1 below."""
    angle = torch.linspace(0, math.pi, 90)
    for place, weight in zip(middles, looks, strict=False):
        centre, half = (place + middles[query]) / 2, (middles[query] - place) / 2
        if weight > 0.05 and half > 0:
            color = figures.SERIES[0] if side > 0 else figures.SERIES[1]
            up = side * (0.6 + half / 6.8 * angle.sin()) + 0.15
            ax.plot(centre + half * angle.cos(), up, "-", linewidth=18 * weight, color=color, solid_capstyle="butt")
            top = side * (0.7 + half / 6.8 + 0.3 * weight) + (0.15 if side > 0 else -0.3)
            ax.text(centre, top, f"{weight:.2f}", size=20, weight="bold", ha="center")


# %% [markdown] slide="say"
# The shipped model also guesses *fan*. Where does it look before it guesses? And where does it look if we exchange the two colours?

# %% tags=["signature", "source-hidden"]
fig, both_texts = plt.subplots(2, 1, figsize=(11.4, 5.6), layout="constrained")
for ax, one_text, looks, guess in zip(both_texts, (text, exchanged), last_looks.tolist(), guesses, strict=True):
    draw_arcs(ax, draw_words(ax, one_text, guess), 15, looks[1:])  # the line end at 0 is not drawn
both_texts[0].set(title="The last word looks for the pink thing", xlabel="words", ylabel="weight")
figures.display(
    fig,
    alt="The two texts, one below the other, with arcs from the last word, pink. In the first text the thick arc leads to fan, in the second one, with the colours exchanged, to book.",
    caption="Arcs lead from the last word to the words that it looks at, in one head of the shipped model. The blue word is the model's guess. Only the colours were exchanged, and the look moves from fan to book.",
    table={"text": ["as above", "exchanged"], "weight of fan": last_looks[:, 5].tolist(), "weight of book": last_looks[:, 11].tolist(), "guess": guesses},
    digits=2,
)  # fmt: skip

# %% slide="skip" evidence="look-moves"
assert guesses == ["fan", "book"]
assert last_looks[0, 5] > 0.7 > 0.3 > last_looks[0, 11] and last_looks[1, 11] > 0.7 > 0.3 > last_looks[1, 5]

# %% [markdown] slide="say"
# Both things are where they were, and only the colours have changed, but now the model looks at *book* and guesses *book*. [[look-moves]] So it does not look at a fixed position. It looks for the pink thing. How can numbers do this?

# %% [markdown] slide="subslide"
# ### By hand: queries and keys
# We begin with two numbers for each word. Each word has a **key**, which says by what it can be found. The first number says *I am the pink thing*, the second one *I am the gray thing*. All other words have zeros.

# %%
words = text.replace(".", " .").split()
labels = {"fan": [2.0, 0.0], "book": [0.0, 2.0]}
keys = torch.tensor([labels.get(word, [0.0, 0.0]) for word in words])  # (S, 2)

# %% [markdown]
# The last word has a **query**, which says what it is looking for: a pink thing. The **score** of a key is its dot product with the query (lesson 02). It is large if both point the same way.

# %%
pink_query = torch.tensor([2.0, 0.0])
pink_scores = keys @ pink_query  # (S)
print({word: pink_scores[words.index(word)].item() for word in ("Jamal", "fan", "book")})

# %% [markdown]
# Softmax turns these scores into probabilities (lesson 03): how much of each word should be fetched? In attention these probabilities are called **attention weights**.

# %% tags=["source-hidden"]
predict(
    "`fan` scores 4, the fifteen other words 0. What is the weight of `fan`?",
    key=lambda: f"about {softmax(pink_scores, dim=0)[words.index('fan')]:.1f}",
    choices={
        "1": "Then all others would have 0. But the exponential of 0 is 1, and there are fifteen of them.",
        "about 0.8": "",
        "about 0.1": "Then all words would have nearly the same weight. But the exponential of 4 is about 55.",
    },
    because="The exponentials are 54.6 for `fan` and 1 for each of the others, and 54.6 / 69.6 is 0.78.",
)

# %% [markdown] slide="subslide"
# ### What comes back
# Not the key: *the pink thing* is how *fan* was found, and the last word knew it already. So each word has a third vector, its **value**: what it hands over when it is found. Here it has three numbers, *person*, *fan*, *book*. The result is the **weighted sum** of all values.

# %% rows=["S0-21"]
contents = {"Carlos": [1, 0, 0], "Jamal": [1, 0, 0], "fan": [0, 1, 0], "book": [0, 0, 1]}
values = torch.tensor([contents.get(word, [0, 0, 0]) for word in words]).float()  # (S, 3)
pink_weights = softmax(pink_scores, dim=0)  # (S)
fetched = torch.zeros(3)
for weight, value in zip(pink_weights, values, strict=True):
    fetched += weight * value
print({name: round(number, 2) for name, number in zip(("person", "fan", "book"), fetched.tolist(), strict=True)})

# %% [markdown]
# The result is mostly *fan*, with a little of the other words. That is attention for one query: **score, softmax, weighted sum**.

# %% [markdown] slide="say"
# Compare it with a Python `dict`. There `things["pink"]` needs a key that is equal to `"pink"`, and it returns one value. Attention is a *soft* lookup: every key matches to some degree, and the result is a mixture of all values. Because a small change of a query or a key changes the result only a little, gradient descent can improve them (section 3).

# %% [markdown] slide="subslide"
# ### Turn the query
# A query has a direction and a length. Change both: which of them determines *what* is found, and which one *how exclusively*?


# %%
def weights_for(direction: float, length: float) -> torch.Tensor:
    angle = math.radians(direction)
    query = length * torch.tensor([math.cos(angle), math.sin(angle)])
    return softmax(keys @ query, dim=0)  # (S)


# %% tags=["source-hidden"] slide="skip"
def look(direction=30, length=2):
    places = [words.index(word) for word in ("fan", "book", "Carlos")]
    fan, book, other = weights_for(direction, length)[places].tolist()
    fig, (plane, bars) = plt.subplots(1, 2, figsize=(11.4, 5), layout="constrained")
    for name, place in (("fan", (2, 0)), ("book", (0, 2)), ("the others", (0, 0))):
        plane.plot(*place, "o", markersize=16, color=figures.AXIS_COLORS["S"].light)
        offset = (-44, -6) if name == "book" else (0, -32)
        plane.annotate(name, place, xytext=offset, textcoords="offset points", ha="center", size=19)
    angle = math.radians(direction)
    figures.arrow(plane, (0, 0), (length * math.cos(angle), length * math.sin(angle)), letter="T", width=5)
    plane.set(xlim=(-1.5, 4.3), ylim=(-1.1, 4.3), aspect="equal", xticks=[0, 2, 4], yticks=[0, 2, 4])
    plane.set(title="Query (arrow) and keys", xlabel="pink thing", ylabel="gray thing")
    drawn = bars.barh(["another word", "book", "fan"], [other, book, fan], color=figures.SERIES[0])
    bars.bar_label(drawn, fmt="%.2f", padding=6, size=20)
    bars.tick_params(axis="y", labelsize=20)
    bars.set(title="Attention weights", xlim=(0, 1.15), xticks=[0, 0.5, 1])
    alt = f"Left: the query as an arrow in the plane of the keys. Right: bars, {fan:.2f} for fan, {book:.2f} for book."
    caption = "The arrow is the query of the last word. Its dot products with the keys decide the weights at the right."
    table = {"degrees": [direction], "length": [length], "fan": [fan], "book": [book], "another": [other]}
    figures.display(fig, alt=alt, caption=caption, table=table, digits=2)


# %%
control(look, direction=(0, 90, 15), length=(0, 4))

# %% slide="skip" evidence="direction-and-length"
for direction, length in ((0, 2), (45, 2), (90, 2), (0, 1), (0, 4)):
    fan, book = weights_for(direction, length)[[words.index("fan"), words.index("book")]].tolist()
    print(f"direction {direction:>2} degrees, length {length}: {fan:.2f} on fan, {book:.2f} on book")
    assert (fan > book) == (direction < 45) and (length < 4 or fan > 0.99) and (length > 1 or fan + book < 0.5)

# %% [markdown] slide="say"
# The direction of a query determines what it finds. Halfway between both keys it finds both, to the same degree. Its length determines how exclusively: with length 4 nearly all of the weight is on *fan*, and with length 1 most of it is on the other words. [[direction-and-length]] Length becomes a problem in section 4.

# %% [markdown] tags=["note"]
# **Say.** In section 1 we had one query and wrote its numbers by hand. A model computes the queries, keys and values of all words with three matrices, and all scores with one product.
#
# **Draw.** The shapes as rectangles, as in the diagram. Write T, S and d_k along the sides with three colours of chalk, and let the class say which sides must be equally long.
#
# **Ask.** "There are three queries and five keys. How many scores? How many weights sum to 1, and in which direction?"
#
# **Usual answers.**
# - *One number for each query and key* (`(3, 5)`): Those are the weights. Which product comes after them?
# - *The values keep their shape* (`(5, 6)`): There is one value for each key, but one result for each query.
# - *Queries and keys could be one matrix* (from the room): Then each word would match itself best. What a word looks for and what it can be found by are two things.
#
# **Cut if short.** The three rules below the diagram; the diagram contains them.

# %% [markdown] slide="slide"
# ## 2. All queries at once
# In a model each word has a vector (lesson 02), and three learned matrices make a query, a key and a value of it:
#
# $$q = W_q\, x \qquad k = W_k\, x \qquad v = W_v\, x$$
#
# In our models the words that ask and the words that answer are the same text: **self-attention**. If they are two different texts, it is **cross-attention**.

# %% [markdown] slide="say"
# Attention was invented as cross-attention, for translation ([Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473)): each word of the new sentence asks, and the words of the foreign sentence answer. A model with one part that reads (the **encoder**) and one that writes (the **decoder**) is an *encoder-decoder*. Ours has only the part that writes, and all its layers are causal (lesson 00), so it is called *decoder-only*.

# %% [markdown] slide="subslide"
# Four sizes occur, and only some of them must agree: $T$ queries, $S$ keys, $d_k$ numbers in a key and $d_v$ in a value. To distinguish them we let three words ask and five other words answer.

# %%
from tinylm_lib.layers import Linear

_ = torch.manual_seed(5)
asking, answering = torch.randn(3, 8), torch.randn(5, 8)  # (T, C), (S, C)
q = Linear(8, 4)(asking)  # (T, 4): d_k is 4
k = Linear(8, 4)(answering)  # (S, 4)
v = Linear(8, 6)(answering)  # (S, 6): d_v is 6

# %% tags=["source-hidden"]
predict(
    "One result for each query, and each is a weighted sum of values. What is the shape of the result?",
    key=lambda: (q @ k.mT).softmax(-1).matmul(v).shape,
    shape="(?, ?)",
    feedback={
        (3, 5): "Those are the weights: for each query, one per key. They are then multiplied by the values.",
        (5, 6): "Those are the values: one per key. The result has one row per query.",
    },
    because="A row for each of the 3 queries, and each row is a weighted sum of vectors of 6 numbers.",
)

# %% [markdown] slide="subslide"
# `k.mT` swaps the last two axes. Then all scores are one matrix product, and all weighted sums another one:

# %% rows=["S0-20"]
scores = q @ k.mT  # (T, 4) @ (4, S) -> (T, S)
weights = softmax(scores / math.sqrt(4), dim=-1)  # (T, S)
out = weights @ v  # (T, S) @ (S, 6) -> (T, 6)
print([round(total, 4) for total in weights.sum(dim=-1).tolist()])

# %% [markdown]
# $$\text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# The softmax runs along each row, over the keys, so the weights of each query sum to 1. Section 4 explains the root. The formula is the loop of section 1, for all queries at once: [[one-query-at-a-time]]

# %% evidence="one-query-at-a-time"
for i, query in enumerate(q):
    row = softmax(k @ query / math.sqrt(4), dim=0)  # (S)
    one_result = torch.zeros(6)
    for weight, value in zip(row, v, strict=True):
        one_result += weight * value
    torch.testing.assert_close(out[i], one_result)

# %% tags=["source-hidden"] rows=["S0-23", "S3-1"] slide="subslide"
hue = {label: figures.AXIS_COLORS[axis].light for label, axis in (("T", "T"), ("S", "S"), ("$d_k$", "D"))}
drawn = [
    ("q", q, 0, 0, "T", "$d_k$"),
    ("k,\ntransposed", k.mT, 6.2, 4.6, "$d_k$", "S"),
    ("scores; softmax\nalong each row:\nweights", weights, 6.2, 0, "T", "S"),
    ("v", v, 13.4, 4.6, "S", "$d_v$"),
    ("result", out, 13.4, 0, "T", "$d_v$"),
]
with figures.axes("Sides of one colour have one length", "columns", "rows", (9.6, 5.9)) as (figure, ax):
    for name, matrix, x, y, rows, columns in drawn:
        height, width = matrix.shape
        ax.fill([x, x + width, x + width, x], [y, y, y + height, y + height], "#eef3f9")
        ax.plot([x, x], [y, y + height], color=hue.get(rows), linewidth=6, linestyle="-")
        ax.plot([x, x + width], [y + height] * 2, color=hue.get(columns, figures.INK), linewidth=6, linestyle="-")
        ax.text(x - 0.3, y + height / 2, rows, color=hue.get(rows), ha="right", va="center", size=22)
        ax.text(x + width / 2, y + height + 0.3, columns, color=hue.get(columns, figures.INK), ha="center", size=22)
        ax.text(x + width / 2, y + height / 2, name, ha="center", va="center", size=18)
    ax.set(aspect="equal")
    ax.axis("off")
alt = "Diagram: q (T, d_k) times k transposed (d_k, S) gives scores (T, S); their softmax times v (S, d_v) gives the result (T, d_v)."
caption = "Drawn to scale. A product has the rows of the matrix at its left and the columns of the matrix above it."
table = {"matrix": [row[0] for row in drawn], "shape": [tuple(row[1].shape) for row in drawn]}
figures.display(figure, alt=alt, caption=caption, table=table)

# %% [markdown] slide="subslide"
# The picture shows three rules:
# - Queries and keys have the same number of features, $d_k$. Otherwise there is no dot product.
# - There are as many values as keys, $S$, because each key that can be found has something to hand over.
# - $d_v$ is free, and $T$ and $S$ may differ. In section 1 one query met sixteen keys.

# %% [markdown] tags=["note"]
# **Say.** In section 1 we invented the keys. Here gradient descent invents them, and afterwards we can read what it found.
#
# **Draw.** A square with a row for each colour that asks and a column for each colour that a thing can have. "Which cells should be large?" Let the class shade the diagonal.
#
# **Ask.** "What would the model do if it could not see the colours of the things?" Collect a number for the weight before you show the last line.
#
# **Usual answers.**
# - *It would learn more slowly* (from the room): It cannot learn it at all. Nothing in the keys distinguishes the thing that is asked for.
# - *The diagonal was built in* (from the room): The left picture is before training, and it has none.
#
# **Cut if short.** The code of `train_lookup`; show the picture and the table.

# %% [markdown] slide="slide" plan=80
# ## 3. Who writes the queries?
# We wrote the numbers of section 1 by hand. In a model gradient descent has to find them. Can it?
#
# A small task with the same problem: three things out of six, each with a colour of its own. A query names one of these colours, and the answer is the thing that has it.

# %%
from torch.nn.functional import cross_entropy, one_hot


def new_tasks(n: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    colours = torch.rand(n, 6, generator=generator).argsort(dim=-1)[:, :3]  # (n, 3)
    things = torch.rand(n, 6, generator=generator).argsort(dim=-1)[:, :3]  # (n, 3)
    asked = torch.randint(3, (n, 1), generator=generator)  # (n, 1)
    return colours, things, asked


# %% [markdown] slide="subslide"
# A query sees a colour. Keys and values see a colour and a thing, as two one-hot vectors (lesson 02) one after the other. Three linear maps begin with random weights, and the loss is the cross-entropy of the answer (lesson 03). (`AdamW` takes the steps: lesson 11.)


# %%
def train_lookup(n_updates: int, colours_in_keys: bool = True, seed: int = 5) -> tuple[torch.Tensor, float, float]:
    """Returns the scores (6, 6) of each asked colour for each key's colour, the weight on the right thing, the loss."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    to_query, to_key, to_value = Linear(6, 4), Linear(12, 4), Linear(12, 6)
    matrices = [to_query.weight, to_key.weight, to_value.weight]
    optimizer = torch.optim.AdamW(matrices, lr=0.03)
    # ESSENTIAL
    for update in range(n_updates + 1):
        colours, things, asked = new_tasks(64, generator)
        query = to_query(one_hot(colours.gather(1, asked), 6).float())  # (64, 1, 4)
        both = (one_hot(colours, 6) * colours_in_keys, one_hot(things, 6))
        shown = torch.cat(both, dim=-1).float()  # (64, 3, 12)
        look_at = softmax(query @ to_key(shown).mT / math.sqrt(4), dim=-1)  # (64, 1, 3)
        answers = (look_at @ to_value(shown))[:, 0]  # (64, 6)
        loss = cross_entropy(answers, things.gather(1, asked)[:, 0])
        if update < n_updates:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    # END
    learned_scores = matrices[0].T @ matrices[1][:, :6] / math.sqrt(4)  # (6, 4) @ (4, 6) -> (6, 6)
    return learned_scores.detach(), look_at[:, 0].gather(1, asked).mean().item(), loss.item()


# %% slide="skip"
from tinylm_classroom import learned

runs = {n: train_lookup(n) for n in (0, 25, 50, 100)}
blind = train_lookup(100, colours_in_keys=False)

# %% tags=["source-hidden"] slide="subslide"
colour_names = ["red", "blue", "green", "pink", "gray", "white"]
fig, both_axes = plt.subplots(1, 2, figsize=(11.4, 5.6), layout="constrained", sharey=True)
for ax, n in zip(both_axes, (0, 100), strict=True):
    image = ax.imshow(runs[n][0], cmap=figures.SIGNED, vmin=-6, vmax=6, aspect="auto")
    ax.set_xticks(range(6), colour_names, rotation=45, size=19)
    ax.set_yticks(range(6), colour_names, size=19)
    ax.set_title(f"after {n} updates" if n else "before training", size=22)
    ax.grid(visible=False)
both_axes[0].set_ylabel("the query's colour", size=19)
fig.supxlabel("the key's colour", size=19)
bar = fig.colorbar(image, ax=both_axes, ticks=[-6, 0, 6])
bar.set_label("score", size=19)
bar.ax.tick_params(labelsize=19)
means = [learned(scores_of.diagonal().mean().item(), -2, 8) for scores_of, _, _ in runs.values()]
figures.display(
    fig,
    alt="Two maps of scores, six query colours by six key colours. Before training there is no pattern. After 100 updates the diagonal is dark blue.",
    caption="The score of each query for each key. Before training it has no pattern. After training the diagonal is high: a query for a colour matches the keys of things with this colour. Nobody wrote these numbers.",
    table={"updates": list(runs), "mean score on the diagonal": means},
)

# %% slide="subslide" evidence="learned-keys"
print("updates   weight on the right thing   loss")
for n, (_, right, loss) in runs.items():
    print(f"{n:>7}   {learned(right, 0.2, 1):<28}{learned(loss, 0.01, 2.2)}")
print(f"keys without colours: {learned(blind[1], 0.28, 0.38)}, chance is {1 / 3:.2f}")
for seed in (6, 7):
    assert train_lookup(100, seed=seed)[1] > 0.95
assert runs[100][1] > 0.95 and runs[100][0].argmax(-1).equal(torch.arange(6)) and blind[1] < 0.38

# %% [markdown]
# After 100 updates nearly all of the weight is on the right thing. Only the loss at the *answer* was given, and nothing said where to look: the gradient reached queries and keys through the weighted sum. If the keys cannot see the colours, the weight stays at chance, so it is indeed the colours that are matched. [[learned-keys]]

# %% [markdown] tags=["note"]
# **Say.** There is one thing in the formula that we have not explained: the root. It does not come from the idea of a lookup. It comes from random numbers, at the start of training.
#
# **Draw.** Two bar charts of eight weights, one nearly flat and one with a single bar. "In which of them can the small bars learn?" The softmax in the second one is saturated.
#
# **Ask.** "Why not divide by d_k itself?"
#
# **Usual answers.**
# - *64 products, so 64* (`about 64`): That is the variance. What is the standard deviation?
# - *Each product is about 1, so the sum is, too* (`about 1`): The products have different signs, so they cancel in part, but not completely.
# - *Divided by d_k no gradient arrives* (from the room): The table shows the opposite. But on its way to the queries it is divided by d_k, and all keys look alike at the start.
# - *To avoid overflow* (from the room): No score in the table comes near 88, where the exponential overflows in fp32, and softmax takes off the maximum anyway (lesson 03).
#
# **Cut if short.** The paragraph on division by d_k.

# %% [markdown] slide="slide"
# ## 4. Why divide by a root?
# A score is a sum of $d_k$ products. Assume that all numbers in queries and keys are independent, with mean 0 and standard deviation 1, as they roughly are in a new model like ours. Then each product has the variance 1, and variances add up (lesson 02).

# %% tags=["source-hidden"]
predict(
    "Queries and keys of independent random numbers (mean 0, standard deviation 1), with `d_k` = 64. What is the standard deviation of their scores, before any division?",
    key=lambda: f"about {(torch.randn(1000, 64) @ torch.randn(64, 128)).std():.0f}",
    choices={
        "about 64": "That is the variance. The standard deviation is its root.",
        "about 8": "",
        "about 1": "That is one product. A score adds up 64 of them.",
    },
    because="The variance is 64, and its root is 8.",
)

# %% [markdown] slide="subslide"
# So longer keys give larger scores. What does this do to the softmax? Let 1000 queries look at 128 keys, and measure:
#
# - the **largest weight** of a query;
# - how many **keys share** its weight: $e$ to the power of the entropy, $-\sum w \ln w$. It is 128 if all keys have the same weight, and 1 if one key has all of it;
# - the **gradient** that arrives at a typical score (the median) if we pull the result in a random direction. Without a gradient nothing is learned.


# %% slide="skip"
def measure(size: int, divisor: float, seed: int = 1) -> list[float]:
    """The standard deviation of the scores, the largest weight, how many keys share the weight, the gradient."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(1000, size, generator=generator)
    random_keys = torch.randn(128, size, generator=generator)
    random_values = torch.randn(128, 8, generator=generator)
    raw = (queries @ random_keys.mT / divisor).requires_grad_()  # (1000, 128)
    spread = softmax(raw, dim=-1)
    result = spread @ random_values
    (result * torch.randn(1000, 8, generator=generator)).sum().backward()
    assert raw.max() < 88 and spread.isfinite().all()
    entropy = torch.special.entr(spread).sum(-1)  # entr is -w ln w, and 0 where w is 0
    return [n.item() for n in (raw.std(), spread.amax(-1).mean(), entropy.exp().mean(), raw.grad.abs().median())]


# %% rows=["S0-22"] tags=["source-hidden"] slide="subslide" evidence="one-draw"
print("  d_k  divided by   std   largest weight   keys sharing   gradient at a score")
for size in (16, 64, 256):
    for name, divisor in (("1", 1.0), ("root", math.sqrt(size)), ("d_k", size)):
        std, largest, n_sharing, typical = measure(size, divisor)
        print(f"{size:>5}  {name:<10} {std:5.2f}   {largest:14.2f}   {n_sharing:12.1f}   {typical:19.0e}")
        assert name != "root" or (0.9 < std < 1.1 and largest < 0.1 and typical > 5e-3)
        assert size < 256 or name != "1" or (largest > 0.85 and typical < 1e-7)

# %% [markdown]
# With the root, all three sizes behave in the same way: the standard deviation is 1, the weights are spread, and a typical score gets a gradient. Without division one key takes nearly all of the weight if $d_k$ is large: the softmax is **saturated**. [[one-draw]]

# %% [markdown] slide="say"
# The keys that win still get a gradient. But the gradient of a score has its weight as a factor, and a typical weight is then almost 0. So **among many keys a query can hardly learn to find one that it does not find already**. [[one-draw]]

# %% [markdown] slide="say"
# Why not divide by $d_k$ itself? At the scores those gradients are even larger, but on their way to queries and keys they are divided by $d_k$, too. And with many features all keys then get nearly the same weight, so at the start of training a query hardly distinguishes them. Training can undo this, because trained queries and keys are no longer independent, and some models do divide by $d_k$ (Yang et al. 2022).

# %% [markdown] tags=["note"]
# **Say.** A model learns at all positions at once, so the answer to each position is in its input, one position further on. We must hide it.
#
# **Draw.** A square of 4 by 4, rows are queries, columns are keys. Let the class say for each row which cells are allowed. A staircase appears.
#
# **Ask.** The prediction, and before the last table of the section: "Can we do the softmax first and cross out the future afterwards?"
#
# **Usual answers.**
# - *Position 0 attends to nothing* (`[0, 0, 0, 0]`): It attends to itself, and softmax always distributes all of 1.
# - *Infinity breaks the softmax* (`[nan, nan, nan, nan]`): Minus infinity gives the exponential 0. Only a row without any finite score breaks it.
# - *i >= j and j <= i are different rules* (from the room): They are the same rule.
# - *a position does not see itself* (`strict`): Then the first row has nothing to look at.
# - *the scores are not scaled* (`no scale`): They copied the formula up to the root. Ask where section 4 has it.
# - *the softmax runs over the queries* (`over queries`): Which sums should be 1, those of the rows or those of the columns?
#
# **Cut if short.** The comparison of both orders of mask and softmax.

# %% [markdown] slide="slide"
# ## 5. No looking ahead
# A model learns by guessing the next word at every position at once. But during training the next word is in its input, one position to the right. So no position may see what comes later. Which query may look at which key? For four words, with invented scores:

# %%
allowed = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()  # (T, T)
word_scores = torch.tensor([[1, 2, 0, 3], [0, 1, 2, 0], [2, 0, 1, 2], [0, 2, 0, 1]]).float()

# %% [markdown] slide="subslide"
# `allowed` is a **causal mask**. Row $i$ belongs to query $i$, and in this series True means *allowed*: a position sees itself and everything before it.
#
# A forbidden key must get the weight 0, and the other weights must still sum to 1. So the mask comes **before** the softmax: a forbidden score becomes $-\infty$, whose exponential is 0. `masked_fill` writes where its mask is True, so we give it `~allowed`, the forbidden cells:

# %%
masked = word_scores.masked_fill(~allowed, -math.inf)
print(masked)

# %% tags=["source-hidden"]
predict(
    "Row 0 now has one score and three times -inf. What are its weights?",
    key=lambda: str([round(w) for w in softmax(masked, dim=-1)[0].tolist()]),
    choices={
        "[1, 0, 0, 0]": "",
        "[0, 0, 0, 0]": "Position 0 sees no word before it, but it sees itself, and softmax distributes all of 1.",
        "[nan, nan, nan, nan]": "One score is finite, so the maximum and the sum are finite, too.",
    },
    because="The first word sees only itself, so all of the weight is on itself.",
)

# %% tags=["source-hidden"] slide="subslide"
causal_weights = softmax(masked, dim=-1)
said = "Every row sums to 1. The first word has only itself, the last one may look at all words."
title = "Each row distributes its 1 over the past"
figures.heat_map(causal_weights.masked_fill(~allowed, math.nan), words[:4], words[:4], title=title, caption=said)

# %% [markdown] slide="subslide"
# Why not softmax first, and cross out the future afterwards?

# %% tags=["source-hidden"] evidence="mask-first"
softmax_first = softmax(word_scores, dim=-1) * allowed  # (T, T)
print("mask before the softmax, rows sum to", causal_weights.sum(-1))
print("mask after the softmax, rows sum to ", softmax_first.sum(-1))
torch.testing.assert_close(causal_weights.sum(-1), torch.ones(4))
far_above = softmax(word_scores + 200 * ~allowed, dim=-1) * allowed  # the forbidden scores are far above the others
print("far above, divided by the sum, row 0:", (far_above / far_above.sum(-1, keepdim=True))[0])
assert softmax_first.sum(-1).min() < 0.5 and far_above[0].eq(0).all()

# %% [markdown]
# Then the softmax first gives some probability to the future, the mask removes it, and the rest no longer sums to 1. How much is left depends on the forbidden scores, so the future leaks. Dividing by the new sums repairs this in theory, but if the forbidden scores are far above the others, as in the last line, nothing is left to divide. [[mask-first]]

# %% [markdown] slide="subslide"
# ### Your turn
# First the mask for any $n$, without typing it in.

# %% slide="skip"
from tinylm_classroom import check, hint, keep


# %% tags=["exercise"] name="causal_mask" minutes=6 difficulty=1 plan=80
def causal_mask(n):
    """n: how many positions.

    Returns (n, n), bool: True where key j (column) is not later than query i (row).
    """
    # SOLUTION
    return torch.ones(n, n, dtype=torch.bool).tril()
    # END


# %% tags=["check"]
if check("causal_mask", causal_mask).passed:
    keep("causal_mask", causal_mask)

# %%
hint("causal_mask")

# %% [markdown] tags=["solution"]
# `tril` keeps the lower triangle with its diagonal. Just as good: `torch.arange(n)[:, None] >= torch.arange(n)`. Common mistakes: `triu` (the future), `tril(-1)` (position 0 sees nothing), numbers instead of True and False.

# %% [markdown] slide="subslide"
# Now attention for all queries: scores, root, mask, softmax, weighted sum. You may use the library's `softmax` (lesson 03), which gives a score of $-\infty$ exactly 0. Write the steps yourself, without PyTorch's ready-made function.


# %% tags=["exercise"] name="attention" minutes=12 difficulty=3
def attention(q, k, v, mask=None):
    """q (..., T, d_k), k (..., S, d_k), v (..., S, d_v), with 0 or more leading axes, the same in all three.

    mask: bool (T, S), any pattern, True = allowed, with at least one True in each row. None: every key is allowed.
    Scores may be very large or very low: a forbidden key always gets the weight 0. Any strides.
    Returns (..., T, d_v) in the dtype of q. Gradients flow back to q, k and v.
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
# The formula from left to right, with the mask between the root and the softmax. `.mT` and `dim=-1` count axes from the end, so leading axes pass through. Common mistakes: `k.T`, which reverses all axes; `dim=0` or `dim=1`; the root of another size; -100 instead of $-\infty$, which is the highest score where all others are lower; and `~mask * -inf`, because 0 times infinity is NaN.

# %% [markdown] slide="subslide"
# ### The library's version
# The library calls the two functions `causal_mask` and `attend`. They agree with the mask that we typed and with the result of section 2. A forbidden key has the same effect as one that is absent. Leading axes pass through, because each text is read by itself.

# %% slide="skip"
from tinylm_lib import attention as library
from tinylm_lib.attention import attend
from tinylm_classroom import show, trace

# %% rows=["S0-19", "S1-20"] slide="skip"
assert library.causal_mask(4).equal(allowed)
torch.testing.assert_close(attend(q, k, v), out)
some = torch.tensor([True, False, True, True, False])  # (S)
torch.testing.assert_close(attend(q, k, v, some.expand(3, 5)), attend(q, k[some], v[some]))
for lead in ((2,), (2, 7), (2, 3, 7)):
    many_texts = torch.randn(*lead, 5, 4)
    first_text = many_texts.flatten(0, -3)[0]  # (5, 4)
    whole = attend(many_texts, many_texts, many_texts)
    torch.testing.assert_close(whole.flatten(0, -3)[0], attend(first_text, first_text, first_text))

# %% [markdown] slide="subslide"
# Read the trace from top to bottom: a batch of two texts with four words each. Which line makes a table of words by words?


# %% tags=["source-hidden"]
def in_steps(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    masked = scores.masked_fill(~mask, -math.inf)
    weights = softmax(masked, dim=-1)
    return weights @ v


batch = torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(5))  # queries, keys, values: (B, T, D) each
torch.testing.assert_close(attend(*batch, allowed), in_steps(*batch, allowed))
trace(in_steps, *batch, allowed, sizes={"B": 2, "T": 4, "D": 6})

# %% [markdown] slide="skip"
# `attend` checks its arguments and leaves these steps to PyTorch, which on a GPU does them in one program, a *kernel* (lesson 14). What its text says of heads and groups belongs to lesson 07, and fewer queries than keys to lesson 13.

# %% slide="skip"
show(library.causal_mask)
show(attend)

# %% [markdown] tags=["note"]
# **Say.** Back to the model of the first picture. We know what the last word looks at. Now we forbid single looks and count what breaks. That is how you find out what a part of a model does.
#
# **Draw.** The sentence with two arrows: in the earlier layer from each thing to its own colour, in the last layer from *pink* to *fan*. Cross out one arrow at a time, as the table does.
#
# **Ask.** Before the picture: "The keys of *fan* and *book* are computed at *fan* and at *book*. How can they contain a colour?"
#
# **Usual answers.**
# - *The model has another way to know the colours* (`nearly all`): Then the same would be true in the other layers. Look at the table.
# - *It knows nothing, so it guesses* (`about half`): That is so if both colours are forbidden. Here the second thing can still see the first one's colour.
# - *It is an induction head* (from the room): A good guess. Section 7 tests it.
#
# **Cut if short.** The rows of the table for layers 0 and 2.

# %% [markdown] slide="slide"
# ## 6. The shipped model looks back
# The head of the first picture finds *fan*, or *book* if the colours are exchanged. But *book* is the same word at the same position in both texts. How can its key know that it is pink now?

# %% [markdown] slide="skip"
# First look at the head itself, one of four attentions that run side by side in the last layer (lesson 07). The buttons show the steps of sections 1 to 5, with $d_k$ = 32. Read the row of the last word. Then choose *all heads*: does another head look at the fan?

# %% slide="skip"
from tinylm_classroom import attention_view

# %% slide="skip"
attention_view(model, tokenizer, "\n" + text, layer=2, head=0)

# %% [markdown] slide="skip"
# The text begins with a line end, because every story in the training did. In JupyterLab you can type your own. Try *One foggy day, careful Mia came to Hillcrest.* Where StoryWorld knows which earlier word determines the next one, that word has a ring. The four heads:

# %% slide="skip"
at_fan, at_book = 5, 11  # their positions; the line end is at 0

# %% slide="skip"
for head, row in enumerate(caught.attention(layer=2).weights[0, :, -1]):  # each row (S)
    print(f"head {head}: {row[at_fan]:.2f} on fan, {row[at_book]:.2f} on book")

# %% [markdown] slide="skip"
# So how can the key of *book* know a colour? In an **earlier layer** *book* has looked back itself:

# %% tags=["source-hidden"] slide="subslide"
earlier = caught.attention(layer=1).weights[:, 0]  # (B, T, S): head 0 of layer 1
fig, both_texts = plt.subplots(2, 1, figsize=(11.4, 5.7), layout="constrained")
for ax, one_text, guess, late, early in zip(both_texts, (text, exchanged), guesses, last_looks, earlier, strict=True):
    middles = draw_words(ax, one_text, guess)
    draw_arcs(ax, middles, 15, late[1:].tolist())
    for thing in (at_fan, at_book):
        only_colour = [0.0] * (thing - 2) + [early[thing, thing - 1].item()]
        draw_arcs(ax, middles, thing - 1, only_colour, side=-1)
    ax.set(ylim=(-1.9, 5.3))
both_texts[0].set(title="Layer 1 below the words, layer 2 above", xlabel="words", ylabel="weight")
to_colour = {
    f"of its colour, {word}": earlier[:, at, at - 1].tolist() for word, at in (("fan", at_fan), ("book", at_book))
}
to_colour["of the other's colour, book"] = earlier[:, at_book, at_fan - 1].tolist()
figures.display(
    fig,
    alt="The two texts with arcs of two layers. Below the words, in layer 1, fan and book look at the colour just before them. Above the words, in layer 2, the last word looks at the thing.",
    caption="First step, below the words: in layer 1 each thing looks at its own colour (one head; its other looks are not drawn, and in the second text *book* looks even more at the other colour). Second step, above: in layer 2 the last word looks at the things.",
    table={"text": ["as above", "exchanged"], **{f"weight {of}": row for of, row in to_colour.items()}},
    digits=2,
)  # fmt: skip

# %% [markdown] slide="say"
# So there seem to be two steps: in layer 1 each thing takes up its colour, and in layer 2 the last word finds the thing with this colour.

# %% [markdown] slide="skip"
# Take a step away. Below, in head 0 of layer 2, the last word may not look at *fan*. Then take this back, and forbid the first step: layer 1, head 0, asking word *fan*, forbidden *pink*.

# %% slide="skip"
from tinylm_classroom import what_if

# %% slide="skip"
what_if(model, tokenizer, "\n" + text, "forbid 2 0 16 5")

# %% [markdown] slide="subslide"
# ### Forbid a look
# Does the model need these looks? We forbid them, one at a time, in a copy of the model, and count how many guesses are still right. To be sure that it is not about *fan* and *pink*, we take four sets of words, in all orders of names, things and colours.

# %% slide="skip"
from copy import deepcopy
from itertools import permutations, product

# %% slide="skip"
sets = [
    (("Carlos", "Jamal"), ("fan", "book"), ("pink", "gray")),
    (("Mia", "Tom"), ("kite", "drum"), ("red", "blue")),
    (("Jamal", "Mia"), ("bell", "hat"), ("golden", "purple")),
    (("Tom", "Carlos"), ("cup", "flute"), ("white", "green")),
]

# %% slide="skip"
asked = []
for names, things, colours in sets:
    for (a, b), (x, y), (c, d), colour in product(*map(permutations, (names, things, colours)), colours):
        one_text = f" {a} had a {c} {x}. {b} had a {d} {y}. {names[1]} took the {colour}"
        asked.append((one_text, x, y) if colour == c else (one_text, y, x))  # the right thing comes first
many = torch.tensor([tokenizer.encode("\n" + one_text) for one_text, _, _ in asked])  # (64, T)


# %% [markdown] slide="skip"
# All these texts have the same form, so the first thing is always at position 5, with its colour just before it, and the second one at 11. The method `mix` of an attention layer calls `attend` and puts its heads side by side (lesson 07). In the copy we replace it by one with another mask.


# %% slide="skip"
def guesses_without(layer: int, looks: list[tuple[int, int]], heads: list[int]) -> list[str]:
    """The guesses of a copy of the model in which these heads may not look from a query to a key."""
    # ESSENTIAL
    mask = library.causal_mask(many.shape[1]).repeat(4, 1, 1)  # (H, T, T)
    for query_at, key_at in looks:
        mask[heads, query_at, key_at] = False
    # END
    changed = deepcopy(model)
    changed.blocks[layer].attention.mix = lambda q, k, v, _: attend(q, k, v, mask).transpose(1, 2).flatten(2)
    with torch.no_grad():
        best = changed(many)[:, -1].argmax(-1).tolist()
    return [tokenizer.decode([i]).strip() for i in best]


# %% slide="skip"
def count_without(layer: int, looks: list[tuple[int, int]], heads: list[int]) -> tuple[int, int]:
    """How many guesses are right, and how many name the other thing."""
    found = list(zip(guesses_without(layer, looks, heads), asked, strict=True))
    n_right = sum(guess == right for guess, (_, right, _) in found)
    n_other = sum(guess == other for guess, (_, _, other) in found)
    return n_right, n_other


# %% slide="skip"
own_colour = [(at_fan, at_fan - 1), (at_book, at_book - 1)]  # from each thing to its own colour
other_colour = [(at_book, at_fan - 1)]  # from the second thing to the first one's; the reverse would look ahead
at_things = [(16, at_fan), (16, at_book)]  # from the last word to both things
every_head = [0, 1, 2, 3]

# %% tags=["source-hidden"]
n_right, _ = count_without(1, own_colour, every_head)
predict(
    f"In layer 1 no thing may look at its own colour. How many of the {len(asked)} guesses are right? By choosing one of the two things blindly, it would be about {len(asked) // 2}.",
    key=lambda: "far fewer than half" if n_right < 0.35 * len(asked) else "about half",
    choices={
        "nearly all": "Then the model would know the colours of the things in another way.",
        "about half": "That would be so if it knew nothing about the colours of the things. But it may know something wrong.",
        "far fewer than half": "",
    },
    because="The first thing has lost its colour, but the second one has still seen it. So if this colour is asked for, the guess names the second thing.",
)

# %% tags=["source-hidden"] slide="subslide" evidence="looks-forbidden"
counts = {}
print("the look that is forbidden             right   the other thing")
for what, layer, looks, heads in (
    ("own colour, layer 0", 0, own_colour, every_head),
    ("own colour, layer 1", 1, own_colour, every_head),
    ("own colour, layer 1, head 0 only", 1, own_colour, [0]),
    ("own colour, layer 1, all but head 0", 1, own_colour, [1, 2, 3]),
    ("own colour, layer 2", 2, own_colour, every_head),
    ("the other's colour, layer 1", 1, other_colour, every_head),
    ("both colours, layer 1", 1, own_colour + other_colour, every_head),
    ("last word at the things, layer 2", 2, at_things, every_head),
):
    counts[what] = [n / len(asked) for n in count_without(layer, looks, heads)]
    print(f"{what:<38}{counts[what][0]:6.0%}{counts[what][1]:18.0%}")
right_with = {what: right for what, (right, _) in counts.items()}
assert min(right_with["own colour, layer 0"], right_with["own colour, layer 2"]) > 0.9
assert right_with["own colour, layer 1"] < 0.35 and 0.4 < right_with["both colours, layer 1"] < 0.6
assert right_with["own colour, layer 1, head 0 only"] < 0.4 < 0.9 < right_with["own colour, layer 1, all but head 0"]
assert right_with["the other's colour, layer 1"] > 0.9 > 0.1 > right_with["last word at the things, layer 2"]

# %% [markdown]
# Most guesses name the other thing, so the model is not ignorant but **misled**. Is it misled about both things?

# %% tags=["source-hidden"] slide="skip" evidence="first-colour"
asks_first = [one_text.split()[4] == f"{right}." for one_text, right, _ in asked]
halves = {}
print("own colour is forbidden to   right, first colour asked   second colour asked")
for what, looks in (
    ("both things", own_colour),
    ("the first thing", own_colour[:1]),
    ("the second thing", own_colour[1:]),
):
    hits = [guess == right for guess, (_, right, _) in zip(guesses_without(1, looks, every_head), asked, strict=True)]
    of_first = sum(hit for hit, first in zip(hits, asks_first, strict=True) if first)
    halves[what] = (of_first / sum(asks_first), (sum(hits) - of_first) / (len(hits) - sum(asks_first)))
    print(f"{what:<29}{halves[what][0]:25.0%}{halves[what][1]:22.0%}")
assert halves["both things"][0] < 0.1 and 0.3 < halves["both things"][1] < 0.7
assert halves["the first thing"][0] < 0.3 and min(halves["the second thing"][0], halves["the first thing"][1]) > 0.9

# %% [markdown]
# The first thing has lost its colour, but the second one has still taken it up. So if this colour is asked for, nearly all guesses name the second thing. If the other colour is asked for, about half of them are right, as by chance. [[first-colour]] If we forbid the look at the first one's colour as well, about half of all guesses are right. [[looks-forbidden]]

# %% [markdown] slide="say"
# In layers 0 and 2 the look at the colour makes no difference, and in layer 1 only head 0 needs it. If the last word may not look at the things in layer 2, the model names quite different words. So there are indeed two steps: in layer 1 the things take up their colours, and in layer 2 *pink* finds its thing. [[looks-forbidden]]

# %% [markdown] tags=["note"]
# **Say.** Our head does what an induction head does. Before we give it that name, we make the test that defines the name.
#
# **Draw.** Two rows with the same three invented words, A B C A B C. An arrow from the second A to the B after the first A.
#
# **Ask.** "The second copy repeats the first one. How low should the loss be, if the model has such a head?"
#
# **Usual answers.**
# - *It is one, because pink finds the word after pink* (from the room): In this text the pink thing *is* the word after the earlier *pink*. Which text separates the two rules?
# - *The model is bad, then* (from the room): Random words never occur in its training. A model learns what lowers its loss there.
#
# **Cut if short.** The code; show the four lines that it prints.

# %% [markdown] slide="slide" plan=80
# ## 7. Is it an induction head?
# Elhage et al. (2021) described such circuits of two steps, and Olsson et al. (2022) found them in many models. The first step is the work of a **previous-token head**. The head of the second step finds the word *after an earlier copy* of the last word, here *fan* after *pink*. They call it an **induction head**, and they test for it with random words, said twice: at each word of the second copy, does the head look at the word that followed in the first one?

# %% slide="skip"
from tinylm_lib.storyworld.sentences import CLASSES

# %% tags=["source-hidden"] evidence="not-induction"
kinds = ("colour", "thing", "place", "trait")
known = torch.tensor([tokenizer.encode(f" {word}")[0] for kind in kinds for word in CLASSES[kind]])  # (N)
generator = torch.Generator().manual_seed(5)
once = torch.stack([known[torch.randperm(len(known), generator=generator)[:20]] for _ in range(64)])  # (B, 20)
line_ends = torch.full((64, 1), tokenizer.encode("\n")[0])  # (B, 1)
repeated = capture(model, torch.cat((line_ends, once, once), dim=1))
second = torch.arange(21, 40)  # in the second copy; the word that followed in the first one is 19 positions back
for layer in range(3):
    on_next = repeated.attention(layer).weights[:, :, second, second - 19].mean((0, 2))  # (H)
    print(f"layer {layer}, weight on that word:", "  ".join(f"{weight:.2f}" for weight in on_next.tolist()))
    assert on_next.max() < 0.08
print(f"all words alike: {(1 / (second + 1)).mean():.2f}")
loss = cross_entropy(repeated.logits[:, second].mT, once[:, 1:])
print(
    f"loss in the second copy: {loss:.0f} nats, all {tokenizer.vocab_size} tokens alike: {math.log(tokenizer.vocab_size):.1f}"
)
assert loss > math.log(tokenizer.vocab_size)

# %% [markdown]
# It is not one. No head gives that word clearly more weight than chance would, and in the second copy the loss is far above that of a model that gives all tokens the same probability. [[not-induction]] Our head has learned what StoryWorld's sentences need, but not the general rule. So the same pattern in one text does not show the same mechanism: other texts have to decide.

# %% [markdown] tags=["note"]
# **Say.** What does the mask do for the model? We take it away, in training and while reading, and look.
#
# **Draw.** A row of six words with an arrow from each word to the next one. "If you may look there, what do you learn?"
#
# **Ask.** "While the model writes, there is no future yet. Does it need a mask then?"
#
# **Usual answers.**
# - *No, nothing can leak* (from the room): True for one layer and the last position. Let them think about what the earlier words see in the first layer.
# - *The loss is low, so the model is good* (from the room): The loss measures copying here. When the model writes, there is nothing to copy.
#
# **Cut if short.** Training on noise; keep the table on reading.

# %% [markdown] slide="slide" plan=80
# ## 8. What happens without a mask?
# Would a model make use of the future? We train a small one on pure noise: six positions with a random word at each, one of 32, so nothing can be predicted. It fetches a mixture of the words (one-hot vectors) and multiplies it by one learned number, `trust`. That gives the logits. Gradient descent chooses `trust` and a score for each pair of positions.


# %% slide="skip"
def train_on_noise(causal: bool, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the weights (T, S) after training, and the loss at each position (T)."""
    generator = torch.Generator().manual_seed(seed)
    pair_scores, trust = torch.zeros(6, 6, requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.AdamW([pair_scores, trust], lr=0.1)
    mask = library.causal_mask(6) if causal else torch.ones(6, 6, dtype=torch.bool)
    # ESSENTIAL
    for _ in range(200):
        ids = torch.randint(32, (64, 7), generator=generator)
        look_at = softmax(pair_scores.masked_fill(~mask, -math.inf), dim=-1)  # (6, 6)
        logits = trust * (look_at @ one_hot(ids[:, :-1], 32).float())  # (64, 6, 32)
        # cross_entropy needs the 32 logits on axis 1; "none": a loss for each position, not their mean
        losses = cross_entropy(logits.mT, ids[:, 1:], reduction="none").mean(0)  # (6)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    # END
    return look_at.detach(), losses.detach()


# %% rows=["S4-46"] evidence="no-mask" tags=["source-hidden"]
trained_on_noise = {causal: [train_on_noise(causal, seed) for seed in (5, 6, 7)] for causal in (True, False)}
print(f"nothing can be known: ln 32 = {math.log(32):.1f} nats")
for causal, seeds in trained_on_noise.items():
    losses = torch.stack([losses for _, losses in seeds]).mean(0)  # (6)
    first_five, last_one = losses[:-1].mean(), losses[-1]
    print(f"causal={causal}: loss of the first five positions {first_five:.1f}, of the last one {last_one:.1f}")
    assert abs(first_five - math.log(32)) < 0.1 if causal else first_five < 0.2
next_ones = torch.stack([look_at.diagonal(1) for look_at, _ in trained_on_noise[False]])  # (3 seeds, 5)
assert next_ones.min() > 0.9 and last_one > math.log(32)

# %% tags=["source-hidden"] slide="subslide"
places = [f"position {i}" for i in range(6)]
said = "Each position but the last finds the word that it should predict. The last one has none to find, so it spreads its weight."
title = "Without a mask: look one position ahead"
figures.heat_map(trained_on_noise[False][0][0], places, places, title=title, caption=said)

# %% [markdown] slide="subslide"
# Without a mask all three runs (three seeds) learned to copy the next word. [[no-mask]] The loss is close to 0, but when the model writes there is no next word to copy. The last position shows it: it has the same `trust` as the others, but no word to copy, so its loss is slightly above the 3.5 nats of not knowing. [[no-mask]]

# %% [markdown] slide="subslide"
# And while the model writes? Then there is no future to look at, so does it need a mask? We read a text with and without a mask, and compare the results at the last position:


# %%
def read(vectors: torch.Tensor, matrix: torch.Tensor, n_layers: int, causal: bool) -> torch.Tensor:
    for _ in range(n_layers):
        vectors = vectors + attend(vectors @ matrix, vectors, vectors, causal=causal)  # random queries
    return vectors[-1]


# %% evidence="reading-again" tags=["source-hidden"]
for n in (1, 2, 3):
    apart = []
    for seed in (1, 2, 3):
        generator = torch.Generator().manual_seed(seed)
        some_text = torch.randn(6, 8, generator=generator)
        matrix = torch.randn(8, 8, generator=generator) / math.sqrt(8)
        difference = read(some_text, matrix, n, causal=True) - read(some_text, matrix, n, causal=False)
        apart.append(difference.abs().max().item())
    print(f"layers: {n}, the last result differs by", ", ".join(f"{change:.2f}" for change in apart))
    assert max(apart) < 1e-5 if n == 1 else min(apart) > 0.1

# %% [markdown]
# With one layer the last result does not need a mask, because the last word may see everything anyway. With two layers and no mask, the *earlier* words look ahead in the first layer, and the last word reads what they found. [[reading-again]] So without its mask a model with several layers computes something that it was not trained to compute. (A single new query with stored keys needs none: lesson 13.)

# %% [markdown] tags=["note"]
# **Say.** Nothing in the formula knows where a word is. So what is the order of words to a model without positions?
#
# **Draw.** A bag with words in it. Shake it.
#
# **Ask.** The prediction. Then: "How could a word know how many words there are before it?"
#
# **Usual answers.**
# - *The sum does not depend on the order, so neither* (`neither`): Right for the first layer. What does the second layer read?
# - *The words have other neighbours, so both* (`both`): Which number in one layer depends on the neighbours?
#
# **Cut if short.** All of it. Lesson 06 begins with it.

# %% [markdown] slide="slide" plan=80
# ## 9. What order means
# Nothing in the formula knows where a word is. (The shipped model rotates queries and keys by their position, lesson 06.) Our two texts have the same words before the same last word, in another order. We build untrained models like the shipped one, but without positions. Their random weights are larger than usual (`xavier`), so that a difference is visible.

# %% slide="skip"
from tinylm_lib import TransformerLM, preset


def last_logits(n_layers: int, seed: int, ids: torch.Tensor) -> torch.Tensor:
    """The logits (V) at the last of these ids (T), in a model with random weights and no positions."""
    torch.manual_seed(seed)
    config = preset("modern", vocab_size=tokenizer.vocab_size, position="none", n_layers=n_layers, init="xavier")
    with torch.no_grad():
        return TransformerLM(config).eval()(ids[None])[0, -1]


def gap(n_layers: int, seed: int, one: torch.Tensor, other: torch.Tensor) -> float:
    return (last_logits(n_layers, seed, one) - last_logits(n_layers, seed, other)).abs().max().item()


# %% tags=["source-hidden"]
can = [n for n in (1, 2) if gap(n, 0, *pair) > 1e-3]
predict(
    "Two models, of one layer and of two: random weights, no positions, a causal mask. Which of them give different logits for the two texts, at the last word?",
    key=lambda: {(): "neither", (2,): "only the one with two layers", (1, 2): "both"}[tuple(can)],
    choices={
        "neither": "That is right for the first layer. But what does the second one read?",
        "only the one with two layers": "",
        "both": "With one layer the last word sums up the same keys and values, only in another order.",
    },
    because="After the first layer each earlier word has seen the words before it, and no others: now its vector depends on the order.",
)

# %% evidence="bag" tags=["source-hidden"]
shuffled = torch.cat((pair[0, torch.randperm(16, generator=torch.Generator().manual_seed(5))], pair[0, -1:]))
print("largest difference of the last logits, three seeds")
for name, another in (("exchanged", pair[1]), ("shuffled", shuffled), ("said twice", pair[0].repeat(2))):
    for n_layers in (1, 2, 3):
        gaps = [gap(n_layers, seed, pair[0], another) for seed in range(3)]
        print(f"{name:<10}  layers: {n_layers}  ", ", ".join(f"{difference:.2f}" for difference in gaps))
        assert (max(gaps) < 1e-4) if n_layers == 1 else (min(gaps) > 0.1)

# %% [markdown]
# With one layer the last word sees a **bag of words**: which words came before, in which proportions, and in no order. (Proportions, because attention is an average: a text that is said twice gives the same result.) It cannot say which thing is pink. With two layers the causal mask itself gives away something of the order, because each word has seen only the words before it. [[bag]]

# %% [markdown] slide="say"
# That is all that random models show. Whether a model learns to use the difference is another question (Haviv et al. 2022 say yes). Lesson 06 gives the model its positions directly.

# %% [markdown] tags=["note"]
# **Say.** Before you use somebody's mask, find out which way round it is. A wrong one does not always raise an error.
#
# **Draw.** The same staircase three times: True and False, False and True, 0 and minus infinity.
#
# **Ask.** The prediction. Then: "Which of the other rows would you notice?"
#
# **Usual answers.**
# - *The first row, because it sees nothing* (`the first`): Read the other way round, it sees everything but itself.
# - *None, all rows have some True* (`none`): Which row is True in every column?
#
# **Cut if short.** All of it; the error message of the library is in the students' copies.

# %% [markdown] slide="slide" plan=80
# ## 10. Break it: which way round?
# Masks are written in three ways: True = allowed, as in PyTorch's `scaled_dot_product_attention`; True = *blocked*, as in its older `nn.MultiheadAttention`; and numbers to be added to the scores, 0 and $-\infty$. The third way gives the same as ours:

# %% rows=["S4-23"]
to_add = torch.zeros(4, 4).masked_fill(~allowed, -math.inf)  # (T, T)
print(to_add)
assert masked.equal(word_scores + to_add)

# %% [markdown]
# Each way is right with its own code. Now our mask goes into code that reads True as blocked:

# %%
read_as_blocked = softmax(word_scores.masked_fill(allowed, -math.inf), dim=-1)  # (T, T)

# %% tags=["source-hidden"]
broken = read_as_blocked.isnan().any(-1).nonzero()[:, 0].tolist()
predict(
    "Our causal mask went into code that reads True as blocked. Which row is NaN?",
    key=lambda: {(): "none", (0,): "the first", (3,): "the last"}[tuple(broken)],
    choices={
        "the first": "It is blocked from itself, but now it may see all words that come later.",
        "the last": "",
        "none": "Look for a row that is True everywhere.",
    },
    because="The last row allows everything, so read the other way round it blocks everything.",
)

# %%
print(read_as_blocked)

# %% [markdown]
# The other rows see only the future, and they look healthy. The NaN is good luck, because somebody notices it. So the library accepts bool masks only, and its error says what to do:

# %% tags=["raises-exception"]
attend(*batch, to_add)

# %% [markdown] tags=["note"]
# **Say.** Three things that you meet when you build real models: what attention costs, why some models need more than the root, and what to do with a query that sees nothing.
#
# **Draw.** A square of T by T. Double its side.
#
# **Ask.** "A model reads twice as much text. How much more work is that for attention, and how much for a linear layer?"
#
# **Usual answers.**
# - *Twice as much* (from the room): That is right for the linear layers. Attention has a score for each pair of words.
# - *NaN should be replaced by 0* (from the room): Then a real error is hidden, too. Compare the last line of the table.
#
# **Cut if short.** All of it; the students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 11. For engineers
# ### What it costs
# Each query is compared with each key, so a text of $T$ words has $T \times T$ scores in each head and layer. A linear layer works on each word once.

# %%
for n_words in (1_000, 2_000, 100_000):
    n_scores = n_words * n_words
    print(f"{n_words:>7,} words: {n_scores:>14,} scores, {2 * n_scores / 1e9:6.3f} GB in 16 bits")

# %% [markdown]
# Twice as much text means four times as many scores. So for long texts this table is not stored. Lesson 14 shows how it is computed in tiles, and lesson 13 how a model that writes avoids computing it again.

# %% [markdown] slide="subslide"
# ### How far does the root help?
# The table of section 4 came from one draw. Here are more sizes, each with three seeds, and queries that are longer than the assumption says:

# %% evidence="one-size"
for size in (4, 16, 64, 256):
    for seed in (1, 2, 3):
        undivided = measure(size, 1.0, seed)
        by_root = measure(size, math.sqrt(size), seed)
        by_d_k = measure(size, size, seed)
        assert 0.9 < undivided[0] / math.sqrt(size) < 1.1 and 0.9 < by_root[0] < 1.1
        assert 5e-3 < by_root[3] < 2e-2 and by_d_k[3] > by_root[3] and by_d_k[2] > by_root[2]
        assert size < 64 or (undivided[3] < 1e-7 and by_d_k[2] > 125)
long_queries = measure(64, math.sqrt(64) / 4)  # as if each query were 4 times as long
print(f"queries of size 4, divided by the root: std {long_queries[0]:.1f}, gradient at a score {long_queries[3]:.0e}")
assert long_queries[3] < 1e-3

# %% [markdown]
# The root removes the effect of the number of features, if queries and keys are random and of standard deviation 1. [[one-size]] It does not control what training makes of them: with queries of standard deviation 4 the softmax begins to saturate again. So many models, ours among them, have a norm for queries and keys, as in lesson 04 (`qk_norm`). The reason for the root is not numerical stability. Nothing overflowed here, as `measure` asserts, and softmax subtracts the largest score anyway (lesson 03).

# %% [markdown] slide="subslide"
# ### A query that may see nothing
# The exercise left one case out: a row of the mask without any True. It occurs in batches with padding. Three answers are in use:

# %% rows=["S1-19"]
few_q, few_k, few_v = torch.randn(3, 3, 4, generator=torch.Generator().manual_seed(5))  # (T, 4) each
sees = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
few_scores = few_q @ few_k.mT / math.sqrt(4)  # (3, 3)
for fill in (-math.inf, -1e9):
    print(f"{fill:.0e}:  weights", softmax(few_scores.masked_fill(~sees, fill), dim=-1)[2])
print("library: result", attend(few_q, few_k, few_v, sees)[2])
print("a NaN query:   ", attend(few_q * math.nan, few_k, few_v, sees)[0])

# %% [markdown]
# With $-\infty$ every exponential is 0, and 0 / 0 is NaN. With -1e9 nothing is forbidden any more: all keys are equally bad, and each gets a third. The library fetches nothing, 0. A common repair turns every NaN of the result into 0, but it hides real errors: a broken query (of NaN) should give NaN, and here it does.

# %% [markdown] tags=["note"]
# **Say.** One sentence to take home: score, softmax, weighted sum, and the mask before the softmax.
#
# **Draw.** The sentence of the beginning with its two arrows, and next to it the formula.
#
# **Ask.** Each student writes down, without looking, what would change if the mask came after the softmax.
#
# **Usual answers.**
# - *Nothing, the future gets 0 in both cases* (from the room): The future does, but the rows no longer sum to 1, and how much is left depends on the future.
#
# **Cut if short.** The drawing.

# %% [markdown]
# ## What you have now
# - A query scores all keys, softmax turns the scores into attention weights, and the result is the weighted sum of the values. [[one-query-at-a-time]] The direction of a query determines what it finds, and its length how exclusively. [[direction-and-length]]
# - Gradient descent finds such queries and keys, although the loss only sees the answer. [[learned-keys]]
# - For independent queries and keys of mean 0 and variance 1, the scores have a standard deviation of $\sqrt{d_k}$. Divided by this root they keep one size, and a typical score still gets a gradient. [[one-size]]
# - The causal mask comes before the softmax, so that the weights sum to 1. [[mask-first]] Trained without a mask, our small model learned to copy the next word. [[no-mask]] When it reads, a model of several layers needs the mask even for its last result. [[reading-again]]
# - The shipped model looks for the pink thing, at whichever of the two positions it is. [[look-moves]] It does so in two steps in two layers. Without the first one at most about half of the guesses are right, and without the second one hardly any. [[looks-forbidden]] Its head is not a general induction head. [[not-induction]]
# - One layer without positions sees a bag of words. Two layers with a causal mask gave different results for different orders. [[bag]]
#
# Next, lesson 06: how to give a model the position of each word.

# %% [markdown]
# ## Sources
# - Attention, for translation: Bahdanau et al. 2014, [*Neural Machine Translation by Jointly Learning to Align and Translate*](https://arxiv.org/abs/1409.0473).
# - Queries, keys and values, the root of $d_k$, the mask: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.2.
# - Dividing by $d_k$: Yang et al. 2022, [*Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer*](https://arxiv.org/abs/2203.03466).
# - Circuits of two steps: Elhage et al. 2021, [*A Mathematical Framework for Transformer Circuits*](https://transformer-circuits.pub/2021/framework/index.html).
# - Induction heads: Olsson et al. 2022, [*In-context Learning and Induction Heads*](https://arxiv.org/abs/2209.11895).
# - Order from the mask: Haviv et al. 2022, [*Transformer Language Models without Positional Encodings Still Learn Positional Information*](https://arxiv.org/abs/2203.16634).
