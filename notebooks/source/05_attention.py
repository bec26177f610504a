# %% [markdown] deck="How does a word find the earlier word it depends on?"
# # 05 Attention
# **How does a word find the earlier word it depends on?**
#
# *Needs* lessons 02 to 04. *Builds* `causal_mask` and `attend` in `attention.py`. *Runs* in about 45 s on two cores.
# *Teaches* in about 45 minutes, plus 18 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one sentence. Over its words grows one picture: arcs, keys and a query, scores, weights, the sum of the values, then the rows of all queries, the mask, the weights. Its steps are the deck, so keep a slide until the class has found the row that is new.
# The first three sections build attention, the next two train it, and the last two look into the shipped model. The exercises are homework, or a second hour.

# %% [markdown] tags=["note"]
# **Say.** Read the sentence aloud and stop at the gap. Everybody says *fan*. Today we build what finds it out of sums, products and a softmax.
#
# **Usual answers.**
# - *The fan is where it was* (`still at the fan`): It is. But is it still what the last word needs?
# - *The best one wins completely* (from the room): The exponential of 0 is 1, not 0, and fifteen words have the score 0.
# - *Keys and values could be the same vector* (from the room): What would come back then? The last word would fetch *I am the pink thing*, which it knew.
#
# **Cut if short.** The comparison with a Python `dict`.
#
# **Tried.** Five sets of 400 texts with names, things and colours from all of StoryWorld: the right thing has the larger weight in 99.8 to 100 % of each set, on average 0.78 against 0.20. Direction and length of a query: exact arithmetic.

# %% [markdown] deck="Fill the gap: what did your eyes do?"
# ## 1. One word looks back
# Read this and stop at the gap:
#
# > Carlos had a pink fan. Jamal had a gray book. Jamal took the pink \_\_\_
#
# You probably said *fan*, and so does our shipped model. Here one of its heads shows where the last word looks before the model guesses:

# %%
import torch

from tinylm_classroom import capture, looking, predict, two_things
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
text = " Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
words = text.replace(".", " .").split()
ids = torch.tensor([tokenizer.encode("\n" + text)])  # (B, T), after the line end at 0
last_looks = capture(model, ids).attention(layer=2).weights[0, 0, -1, 1:]  # (S)

# %% tags=["source-hidden"] deck="Before the guess, it looks at the fan"
looking.grow("arcs", words, weights=last_looks)

# %% tags=["source-hidden"] deck="Exchange the colours: where does it look?"
exchanged = " Carlos had a gray fan. Jamal had a pink book. Jamal took the pink"
other_ids = torch.tensor([tokenizer.encode("\n" + exchanged)])  # (B, T)
other_looks = capture(model, other_ids).attention(layer=2).weights[0, 0, -1, 1:]  # (S)
predict(
    "Only the two colours are exchanged: a gray fan, a pink book. Where does the last word look now?",
    key=lambda: {4: "still at the fan", 10: "at the book"}[other_looks.argmax().item()],
    choices={
        "still at the fan": "The fan has not moved. But is it still the thing that is asked for?",
        "at the book": "",
        "at both in the same way": "So it would be with two pink things. Try them below.",
    },
    because="It looks neither for a position nor for a certain word, but for the pink thing.",
)

# %% tags=["signature", "source-hidden"] deck="It looks for the pink thing, wherever it is"
looking.looks(model, tokenizer, text, exchanged)

# %% tags=["source-hidden"] evidence="look-moves" tried="held-out"
# Checked: with other words, too, the right thing has the larger weight, and it is the guess.
SEEDS = (1, 2, 3)
for seed in SEEDS:
    other_words, _ = two_things(tokenizer, 100, seed)
    at_things = capture(model, other_words).attention(layer=2).weights[:, 0, -1, [5, 11]]  # (100, 2)
    asks_first = torch.arange(100) % 2 == 0
    assert ((at_things[:, 0] > at_things[:, 1]) == asks_first).float().mean() > 0.97
assert last_looks[4] > 0.7 and other_looks[10] > 0.7

# %% [markdown]
# Both things are where they were, but now the model looks at *book* and guesses *book*. With other names, things and colours it is the same. [[look-moves]] To find the word, you did two things. You **matched**: which earlier word is a pink thing? And you **fetched**: what is that word? **Attention** consists of these two steps, done with numbers that a model learns. Change the colours, and look:

# %%
colours = "pink pink"  # try "red blue" and "blue pink"
first, second = colours.split()
own_text = f" Carlos had a {first} fan. Jamal had a {second} book. Jamal took the pink"
looking.looks(model, tokenizer, own_text, title=f"A {first} fan and a {second} book")

# %% [markdown]
# ### By hand: keys and a query
# How can numbers do this? We begin with two numbers for each word, and write them by hand. A word's **key** says by what it can be found: the first number means *I am the pink thing*, the second *I am the gray thing*. The last word's **query** says what it looks for. (In the model they have more numbers. How can *fan* know that it is pink? Section 6 shows it.)

# %%
labels = {"fan": [2.0, 0.0], "book": [0.0, 2.0]}
keys = torch.tensor([labels.get(word, [0.0, 0.0]) for word in words])  # (S, 2)
pink_query = torch.tensor([[2.0, 0.0]])  # (1, 2)

# %% tags=["source-hidden"] deck="Each word has a key, the last one a query" rows=["S0-21"]
looking.grow("keys", words, keys=keys, queries=pink_query)

# %% [markdown]
# The **score** of a word is the dot product of the query with its key (lesson 02). It is large if both point the same way. Softmax turns the scores into probabilities (lesson 03), here called **attention weights**: how much of each word is to be fetched?

# %%
pink_scores = keys @ pink_query[0]  # (S, 2) @ (2) -> (S)
exponentials = pink_scores.exp()  # (S)
largest, total = exponentials.max(), exponentials.sum()
print(f"weight of fan: {largest:.1f} / {total:.1f} = {largest / total:.2f}")

# %% tags=["source-hidden"] slide="subslide" deck="A score is the dot product of query and key"
looking.grow("scores", words, keys=keys, queries=pink_query)

# %% tags=["source-hidden"] slide="subslide" deck="Softmax gives fan 0.78, the others a little"
looking.grow("weights", words, keys=keys, queries=pink_query)

# %% [markdown]
# What comes back? Not the key: *the pink thing* is how *fan* was found, and the last word knew it already. So each word has a third vector, its **value**: what it hands over when it is found. Here the value has three numbers: *person*, *fan*, *book*. The result is the **weighted sum** of all values.

# %%
from tinylm_lib.layers import softmax

person, fan, book = [1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]
contents = {"Carlos": person, "Jamal": person, "fan": fan, "book": book}
values = torch.tensor([contents.get(word, [0, 0, 0]) for word in words])  # (S, 3)
numbers = (2, 0)  # try (0, 2), (2, 2), (1, 0) and (4, 0)
weights = softmax(keys @ torch.tensor(numbers).float(), dim=0)  # (S)
fetched = torch.zeros(3)
for weight, value in zip(weights, values, strict=True):
    fetched += weight * value
print("person, fan, book:", [round(number, 2) for number in fetched.tolist()])

# %% tags=["source-hidden"] slide="subslide" deck="What comes back is mostly the value of fan"
looking.grow("values", words, keys=keys, queries=pink_query, values=values)

# %% [markdown] deck="Score, softmax, weighted sum: a soft lookup"
# **Score, softmax, weighted sum**: that is attention for one query. The *direction* of a query decides what it finds, and its *length* how sharply: with (4, 0) nearly all of the weight is on *fan*. [[direction-and-length]]
#
# | lookup | a Python `dict` | attention |
# |---|---|---|
# | finds | a key that is equal | every key, more or less |
# | returns | one value | a mixture of all values |

# %% tags=["source-hidden"] evidence="direction-and-length" tried="exact"
# Checked: direction decides what is found, length how sharply.
for x, y in ((2, 0), (2, 2), (0, 2), (1, 0), (4, 0), (0, 4), (3, 1)):
    at_fan, at_book = softmax(keys @ torch.tensor([x, y]).float(), dim=0)[[4, 10]].tolist()
    assert ((at_fan > at_book) - (at_fan < at_book)) == ((x > y) - (x < y))
    assert (max(x, y) < 4 or max(at_fan, at_book) > 0.99) and (x + y != 1 or at_fan < 0.5)

# %% [markdown] tags=["note"]
# **Say.** Until now one word asked. Now all of them do, and nothing else happens: one row becomes a square.
#
# **Ask.** "Look at the row of the first *pink*. What does it find, and what is strange about that?" It finds a word that comes later. Section 3 takes it away.
#
# **Usual answers.**
# - *One number for each query and key* (`(3, 5)`): Those are the weights. Which product comes after them?
# - *The values keep their shape* (`(5, 6)`): There is one value for each key, but one result for each query.
# - *Queries and keys could be one matrix* (from the room): Then each word would match itself best.
#
# **Cut if short.** The last paragraph on shapes; the picture has it.
#
# **Tried.** The formula against the loop for each of the three queries: equal.

# %% [markdown] deck="Three learned matrices make queries, keys and values"
# ## 2. All queries at once
# In a model each word has a vector $x$ (lesson 02), and three learned matrices make a query, a key and a value of it:
#
# $$q = W_q\, x \qquad k = W_k\, x \qquad v = W_v\, x$$
#
# So *every* word asks. By hand: each colour looks for its thing, and the other words look for nothing.

# %%
wanted = {"pink": [2.0, 0.0], "gray": [0.0, 2.0]}
queries = torch.tensor([wanted.get(word, [0.0, 0.0]) for word in words])  # (T, 2)
scores = queries @ keys.mT  # (T, 2) @ (2, S) -> (T, S); .mT swaps the last two axes

# %% tags=["source-hidden"] deck="All words ask at once: a row is now a square"
looking.grow("matrix", words, keys=keys, queries=queries)

# %% [markdown]
# The outlined row is the one that we know. Here the words that ask and the words that answer are the same text (**self-attention**). If they are two texts (**cross-attention**), as in translation, the sizes differ, and one sees which of them must agree. Three words ask, five others answer:

# %%
import math

from tinylm_classroom import matching
from tinylm_lib.layers import Linear
from torch.nn.functional import cross_entropy

_ = torch.manual_seed(5)
asking, answering = torch.randn(3, 8), torch.randn(5, 8)  # (T, C), (S, C)
q = Linear(8, 4)(asking)  # (T, 4): d_k is 4
k = Linear(8, 4)(answering)  # (S, 4)
v = Linear(8, 6)(answering)  # (S, 6): d_v is 6

# %% tags=["source-hidden"] deck="Three queries, five keys, values of six: which shape comes out?"
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

# %% rows=["S0-20"] deck="Attention is three lines"
small_scores = q @ k.mT / math.sqrt(4)  # (T, 4) @ (4, S) -> (T, S)
small_weights = softmax(small_scores, dim=-1)  # (T, S), each row sums to 1
out = small_weights @ v  # (T, S) @ (S, 6) -> (T, 6)
print(tuple(out.shape))

# %% [markdown] slide="subslide" deck="The formula: scores, root, softmax, sum"
# $$\text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# Section 5 explains the root, which our keys of two numbers do without. The softmax runs along each row, over the keys. A score is a dot product, so queries and keys have the same number of features, $d_k$. There are as many values as keys, $S$. But $d_v$ is free, and $T$ and $S$ may differ:

# %% tags=["source-hidden"] rows=["S0-23", "S3-1"] deck="Sides of one colour have one length"
matching.shapes(q, k, small_weights, v, out)

# %% [markdown]
# Is the formula the loop of section 1, for each query?

# %% evidence="one-query-at-a-time" tried="exact"
i = 0  # try 1 and 2
row = softmax(k @ q[i] / math.sqrt(4), dim=0)  # (S)
one_result = sum(weight * value for weight, value in zip(row, v, strict=True))
torch.testing.assert_close(out[i], one_result)

# %% [markdown] tags=["note"]
# **Say.** A model learns at all positions at once, so the answer to each position is in its input, one position further on. We must hide it.
#
# **Usual answers.**
# - *Softmax first, the result is the same* (from the room): Let them type other scores of the fan, and compare both lines.
# - *Position 0 attends to nothing* (from the room): It attends to itself, and softmax distributes all of 1.
# - *i >= j and j <= i are different rules* (from the room): They are the same rule.
# - *a position does not see itself* (`strict`): Then the first row has nothing to look at.
# - *the scores are not scaled* (`no scale`): They copied the formula up to the root. Ask what section 5 says.
# - *the softmax runs over the queries* (`over queries`): Which sums should be 1, those of the rows or those of the columns?
#
# **Cut if short.** The library's version.
#
# **Tried.** Exact arithmetic, no seed. The leak: with the forbidden score 0, 4 and 9 the row of the first *pink* keeps 0.25, 0.06 and less than 0.01 of its 1.

# %% [markdown]
# ## 3. No looking ahead
# Look at the first *pink* in the square: it finds *fan*, one position to its right. While a model learns, it guesses the next word at every position at once, and the next word is in its input. The first *pink* would only have to copy its answer. So no position may see what comes later:

# %%
from tinylm_classroom import attention_view, check, hint, keep, show, trace, what_if
from tinylm_lib import attention as library

allowed = library.causal_mask(len(words))  # (T, S): you write it below
masked = scores.masked_fill(~allowed, -math.inf)  # (T, S)
causal_weights = softmax(masked, dim=-1)  # (T, S)

# %% tags=["source-hidden"] rows=["S1-19", "S4-23"] deck="What comes later gets minus infinity"
looking.grow("mask", words, keys=keys, queries=queries)

# %% [markdown]
# `allowed` is a **causal mask**. Row $i$ belongs to query $i$, and in this course True means *allowed*: a position sees itself and everything before it. A forbidden key must get the weight 0, and the other weights must still sum to 1. So a forbidden score becomes $-\infty$, whose exponential is 0, and then comes the softmax. (`masked_fill` writes where its mask is True, so it gets `~allowed`.)

# %% tags=["source-hidden"] slide="subslide" deck="Each row distributes its 1 over the past"
looking.grow("softmax", words, keys=keys, queries=queries)

# %% [markdown]
# The first word sees only itself. The first *pink* finds nothing and spreads its weight over four words, and the last one still finds *fan*. Could the mask also come after the softmax, and set the future to 0? The sums of the first *pink*'s weights, both ways:

# %% deck="Mask first: afterwards it is too late"
score_of_fan = 4.0  # try 0.0 and 9.0
changed = scores.clone()
changed[3, 4] = score_of_fan  # the first pink asks, and fan is in its future
hidden = changed.masked_fill(~allowed, -math.inf)  # (T, S)
# ESSENTIAL
mask_first = softmax(hidden, dim=-1)  # (T, S)
mask_last = softmax(changed, dim=-1) * allowed  # (T, S)
for when, rows in (("first", mask_first), ("last", mask_last)):
    print(f"mask {when}: the weights of the first pink sum to {rows[3].sum():.2f}")
# END

# %% tags=["source-hidden"] evidence="mask-first" tried="exact"
# Checked: mask first, no row depends on a forbidden score; mask last, its sum does.
changed[3, 4] = 9.0
assert softmax(changed.masked_fill(~allowed, -math.inf), dim=-1).equal(causal_weights)
sums = [(softmax(each, dim=-1) * allowed)[3].sum() for each in (scores, changed)]
assert 0.05 < sums[0] < 0.07 and sums[1] < 0.01 and causal_weights.sum(-1).allclose(torch.ones(16))

# %% [markdown]
# With the mask last, the sum depends on a score in the future. So the future leaks. The mask comes **before** the softmax. [[mask-first]]
#
# ### Your turn
# First the mask for any $n$, as bool.


# %% tags=["exercise"] name="causal_mask" minutes=6 difficulty=1 deck="Your turn: the mask"
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

# %% slide="skip"
hint("causal_mask")

# %% [markdown] tags=["solution"]
# `tril` keeps the lower triangle with its diagonal. Just as good: `torch.arange(n)[:, None] >= torch.arange(n)`. Common mistakes: `triu` (the future), `tril(-1)` (position 0 sees nothing), numbers instead of True and False.

# %% [markdown]
# Now attention for all queries: scores, root, mask, softmax, weighted sum. You may use the library's `softmax` (lesson 03), which gives a score of $-\infty$ exactly 0. Leading axes, such as a batch of texts, pass through if you count axes from the end.


# %% tags=["exercise"] name="attention" minutes=12 difficulty=3 deck="Your turn: attention, with the mask"
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

# %% slide="skip"
hint("attention")

# %% [markdown] tags=["solution"]
# The formula from left to right, with the mask between the root and the softmax. `.mT` and `dim=-1` count axes from the end, so leading axes pass through. Common mistakes: `k.T`, which reverses all axes; `dim=0` or `dim=1`; the root of another size; -100 instead of $-\infty$, which is the highest score where all others are lower; and `~mask * -inf`, because 0 times infinity is NaN.

# %% [markdown] slide="skip"
# The library calls the two functions `causal_mask` and `attend`. `attend` leaves the steps to PyTorch, which does them in one program (lesson 14). It gives the result of section 2, also for a batch of texts, and the mask keeps a new last word away from the others:

# %% slide="skip" rows=["S0-19", "S1-20", "S4-46"]
torch.testing.assert_close(library.attend(q, k, v), out)
four = torch.randn(2, 4, 6)  # (B, T, D)
# Another last word:
other = torch.cat((four[:, :3], torch.randn(2, 1, 6)), dim=1)  # (B, T, D)
for name, mask in (("causal", library.causal_mask(4)), ("no mask", None)):
    one, two = (library.attend(x, x, x, mask)[:, :3] for x in (four, other))
    print(f"{name}: the first three results change by {(one - two).abs().max():.2f}")

# %% [markdown] slide="skip"
# Without the mask the first three change, too. The trace shows the shapes:


# %% tags=["source-hidden"] slide="skip"
def in_steps(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    masked = scores.masked_fill(~mask, -math.inf)
    weights = softmax(masked, dim=-1)
    return weights @ v


trace(in_steps, four, four, four, library.causal_mask(4), sizes={"B": 2, "T": 4, "D": 6})

# %% slide="skip"
show(library.attend)

# %% [markdown] tags=["note"]
# **Say.** In section 1 we invented the keys. Here gradient descent invents them, and we can read what it found.
#
# **Usual answers.**
# - *The diagonal was built in* (from the room): The left map is before training, and it has none.
# - *Somebody must have said that pink belongs to pink* (from the room): Only the thing was said. Nothing else lowers the loss.
#
# **Cut if short.** The code of `train_lookup`; show both maps.
#
# **Tried.** 20 seeds at each of the rates 0.01, 0.03 and 0.1, with 6 and with 16 colours: in all 120 runs the weight on the right thing is 0.99 or more, and each colour finds its own. If the values begin with random numbers, 1 of 20 runs with 6 colours fails at each rate (weight 0.00, loss 1.5): the query finds the two *other* things and their values exclude them. With 16 colours none of 20 failed. If all of 3 colours are shown, 9 of 20 seeds end at weight 0.00.

# %% [markdown]
# ## 4. Who writes the queries?
# We wrote the numbers of section 1 by hand. In a model gradient descent has to find them. Can it?
#
# The same problem: a few things, each with the key of its colour. One of these colours is asked for, and the answer is the thing that has it. Three tables (lesson 02) hold a query and a key for each colour, which begin with random numbers, and a value for each thing, which begins with 0.


# %%
SEED = 5
batch = torch.arange(32)  # (B)


def train_lookup(n, shown, d_k, divide_by, n_updates, seed=SEED, rate=0.03):
    """n colours and things. Returns scores (n, n), the weight on the right thing."""
    generator = torch.Generator().manual_seed(seed)
    tables = [*torch.randn(2, n, d_k, generator=generator), torch.zeros(n, n)]
    of_query, of_key, of_value = (table.requires_grad_() for table in tables)
    optimizer = torch.optim.AdamW(tables, lr=rate)  # lesson 11
    for step in range(n_updates + 1):
        mixed = torch.rand(2, 32, n, generator=generator).argsort(-1)  # (2, B, n)
        colours, things = mixed[:, :, :shown]  # (B, S) each
        right = torch.randint(shown, (32,), generator=generator)  # (B)
        asked, wanted = colours[batch, right], things[batch, right]  # (B) each
        scores = of_query @ of_key.mT / divide_by  # (n, n), colour by colour
        look = softmax(scores[asked[:, None], colours], dim=-1)  # (B, S)
        answer = (look[:, :, None] * of_value[things]).sum(1)  # (B, n)
        loss = cross_entropy(answer, wanted)
        if step < n_updates:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return scores.detach(), look[batch, right].mean().item()


# %%
n_updates = 150  # try 0, 10, 25 and 50
_, found = train_lookup(6, shown=3, d_k=4, divide_by=2, n_updates=n_updates)
print(f"weight on the right thing: {found:.2f}, chance is {1 / 3:.2f}")

# %% tags=["source-hidden"] deck="Only the answer was given: pink finds pink"
matching.scores(*(train_lookup(6, 3, 4, 2, n)[0] for n in (0, 150)))

# %% tags=["source-hidden"] evidence="learned-keys" tried="seeds"
# Checked: with each seed nearly all of the weight is on the right thing, and each colour finds its own.
SEEDS = (0, 1, 2, 3, 4)
for seed in SEEDS:
    learned_scores, found = train_lookup(6, 3, 4, 2, 150, seed)
    assert found > 0.95 and learned_scores.argmax(-1).equal(torch.arange(6))

# %% [markdown]
# The loss came from the *answer*, and nothing said where to look. The gradient reached queries and keys through the weighted sum, and made each colour find its own. [[learned-keys]]

# %% [markdown] tags=["note"]
# **Say.** One thing in the formula is unexplained: the root. It does not come from the idea of a lookup. It comes from random numbers, at the start of training.
#
# **Usual answers.**
# - *Training repairs it* (`in all nine`): First a gradient has to arrive at the key that is not found yet.
# - *It depends on the rate* (`in about half`): A good guess, so we tried three.
# - *To avoid overflow* (from the room): Softmax subtracts the largest score anyway (lesson 03).
# - *Why not d_k itself?* (from the room): At the two larger rates it learns as well, and at the smallest it is slower.
#
# **Cut if short.** The line with `d_k` in the first cell.
#
# **Tried.** Weight on the right thing after 300 updates, ten seeds, rates 0.003, 0.01 and 0.1. By the root: 1.00 in all 60 runs with 16, 64 and 256 features at 0.01 and 0.1; at 0.003 0.99 to 1.00 with 64 and 256, and 0.70 to 0.91 with 16. Undivided, 256 features: 0.00 to 0.69 in all 30 runs, and after 2,000 updates 0.75 to 0.81 (three seeds), at 0.03 after 5,000 0.90 to 0.99 (six); 64: 0.00 to 0.78; 16: 0.00 to 1.00, so short queries may do without the root. By d_k, five seeds: 0.97 to 0.99 at 0.01 and 0.1, and 0.27 to 0.39 at 0.003. The smallest rival: with 8 things instead of 16 undivided runs reach 0.66 to 1.00, so the sentence is about many keys.

# %% [markdown]
# ## 5. Why divide by a root?
# A score is a sum of $d_k$ products. At the start of training queries and keys are random numbers with mean 0 and standard deviation 1. Then each product has the variance 1, and variances add up (lesson 02): the scores have the standard deviation $\sqrt{d_k}$. What does softmax make of them?

# %%
d_k = 256  # try 4 and 64
_ = torch.manual_seed(5)
random_scores = torch.randn(1000, d_k) @ torch.randn(d_k, 16)  # (1000, S)
largest = softmax(random_scores, dim=-1).amax(-1).mean().item()
print(f"standard deviation {random_scores.std():.1f}, largest weight {largest:.2f}")

# %% [markdown]
# With long queries one key has nearly all of the weight before anything is learned: the softmax is **saturated**. The gradient of a score has its weight as a factor, so the other keys get almost none. Can training still find the right one? We train the lookup of section 4 with 32 colours, 16 things and 256 features.

# %%
SEEDS = (0, 1, 2)
rates = (0.003, 0.01, 0.1)
runs = {"not divided": {}, "by the root": {}, "by d_k": {}}
for name, divide_by in zip(runs, (1, 16, 256), strict=True):
    for rate in rates:
        each = [train_lookup(32, 16, 256, divide_by, 300, seed, rate) for seed in SEEDS]
        runs[name][rate] = [found for _, found in each]

# %% tags=["source-hidden"] deck="256 features, no division, nine runs: how many learn?"
n_learned = sum(found > 0.9 for each in runs["not divided"].values() for found in each)
predict(
    "Scores of 256 features that are **not** divided: three learning rates, three seeds each, 300 updates. In how many of the nine runs is more than 0.9 of the weight on the right thing?",
    key=lambda: {0: "in none"}.get(n_learned, "in about half"),
    choices={
        "in none": "",
        "in about half": "That would be luck of the start, or of the rate. None of these was enough.",
        "in all nine": "Training could make the queries shorter. But for that a gradient has to arrive.",
    },
    because="The scores begin with a standard deviation of 16, so most keys get hardly any gradient.",
)

# %% tags=["source-hidden"] rows=["S0-22"] deck="Divided by the root, it learns at all three rates"
matching.found(runs, title="Divided by the root, it learns", chance=1 / 16)

# %% tags=["source-hidden"] evidence="root-learns" tried="seeds"
# Checked at three rates with three seeds each: what the picture shows, and the root with fewer features.
for rate in rates:
    assert max(runs["not divided"][rate]) < 0.9 < 0.95 < min(runs["by the root"][rate])
    assert min(runs["by d_k"][rate]) > 0.95 if rate > 0.003 else max(runs["by d_k"][rate]) < 0.85
for seed in SEEDS:
    assert min(train_lookup(32, 16, d_k, math.sqrt(d_k), 300, seed, 0.01)[1] for d_k in (16, 64)) > 0.95

# %% [markdown]
# Divided by the root, the scores begin with a standard deviation of 1, whatever $d_k$ is, and training finds the right thing at all three rates. Divided by $d_k$ they begin nearly equal, so it learns more slowly at the smallest rate. Undivided, no run gets 0.9 of the weight there in 300 updates. [[root-learns]]

# %% [markdown] tags=["note"]
# **Say.** Back to the first picture. We know what the last word looks at. Now we forbid single looks and count what breaks. That is how you find out what a part of a model does.
#
# **Usual answers.**
# - *The model has another way to know the colours* (`nearly all`): Then the same would hold for the other layers. Try them.
# - *It knows nothing, so it guesses* (`about half`): So it is if both colours are forbidden. Here the second thing still sees the first one's colour.
#
# **Cut if short.** The attention view; keep `what_if`.
#
# **Tried.** Five sets of 400 texts, all names, things and colours of StoryWorld. Nothing forbidden: 99.5 to 100 % right. Own colours, head 0 of layer 1: 24 to 31 %; if the first colour is asked for 1 to 4 %, otherwise 48 to 61 %. The other heads of layer 1: 99.2 to 100 %; all heads of layer 0 or of layer 2: 99.5 to 100 %. Both colours, head 0: 48 to 56 %. The last word at the things, head 0 of layer 2: 3 to 5 %; the other heads: 99.5 to 100 %.

# %% [markdown]
# ## 6. Two looks make a circuit
# Back to the shipped model. *book* is the same word at the same position in both texts. How can its key know that it is the pink thing now? Our head is one of four attentions that run side by side in layer 2 (lesson 07). **Your task:** this is layer 1. Find its head in which *fan* looks at *pink*, and *book* at *gray*.

# %% tags=["source-hidden"] deck="Task: which head looks at the colours?"
attention_view(model, tokenizer, "\n" + text, layer=1, head=3)

# %% [markdown]
# So *book* has looked back itself (with head 0), in an **earlier layer**, and what it found is in the vector that its key is made from. Both steps:

# %% tags=["source-hidden"] deck="Things take up colours, then pink finds one"
looking.looks(model, tokenizer, text, exchanged, earlier=True)

# %% [markdown]
# In the second text *book* takes up even more gray (0.28) than pink (0.21), which is the wrong colour. Still it matches best, because *fan* cannot have seen any pink. Do these looks **matter**? **Your task:** choose *a look*, and forbid *fan* to look at *pink* in layer 1, head 0. What does the model guess? Take it back, and forbid the second step: *pink* at *fan*, layer 2.

# %% tags=["source-hidden"] deck="Task: fan may not look at pink in layer 1. What is the guess?"
what_if(model, tokenizer, "\n" + text)

# %% [markdown]
# Now we count, in 400 texts:

# %%
from tinylm_lib.interventions import intervene

SEED = 1
texts = two_things(tokenizer, 400, SEED)  # (400, T), (400, 2)


def right_without(texts, *looks):
    """looks: (layer, head, asking, forbidden). Returns how often right, and other."""
    ids, things = texts
    with intervene(model, forbid=looks), torch.no_grad():
        guesses = model(ids)[:, -1].argmax(-1)  # (400)
    return [(guesses == each).float().mean().item() for each in things.T]


# %% tags=["source-hidden"] deck="No thing may look at its colour. How many of 400 guesses are right?"
right, _ = right_without(texts, (1, 0, 5, 4), (1, 0, 11, 10))
predict(
    "In head 0 of layer 1 no thing may look at its own colour. How many of the 400 guesses are right? By choosing one of the two things blindly, it would be half.",
    key=lambda: "far fewer than half" if right < 0.4 else "about half",
    choices={
        "nearly all": "Then the model would know the colours of the things in another way.",
        "about half": "That would be so if it knew nothing about colours. But it may know something wrong.",
        "far fewer than half": "",
    },
    because="If the first thing is asked for, the second may still look at that colour, and wins. If the second is, it is a coin toss.",
)

# %%
layer = 1  # try 0 and 2
head = 0  # try 1, 2 and 3
right, other = right_without(texts, (layer, head, 5, 4), (layer, head, 11, 10))
print(f"{right:.0%} right, {other:.0%} the other thing")

# %% tags=["source-hidden"] slide="subslide" deck="In three other sets: two heads do it, the others make no difference" evidence="looks-forbidden" tried="held-out"
# Checked in three other sets of 200 texts: two heads carry the looks.
own = ((5, 4), (11, 10))  # from each thing to its colour
looks_of = {
    "nothing forbidden": [],
    "own colour, layer 1, head 0": [(1, 0, *each) for each in own],
    "own colour, layer 1, others": [(1, head, *each) for head in (1, 2, 3) for each in own],
    "own colour, layers 0 and 2": [(layer, None, *each) for layer in (0, 2) for each in own],
    "both colours, layer 1, head 0": [(1, 0, *each) for each in (*own, (11, 4))],
    "things, layer 2, head 0": [(2, 0, 16, 5), (2, 0, 16, 11)],
    "things, layer 2, others": [(2, head, 16, at) for head in (1, 2, 3) for at in (5, 11)],
}
SEEDS = (2, 3, 4)
for what, forbidden in looks_of.items():
    counted = [right_without(two_things(tokenizer, 200, seed), *forbidden)[0] for seed in SEEDS]
    print(f"{what:<31}{min(counted):>4.0%} to {max(counted):>4.0%} right")
    most = 0.65 if "both" in what else 0.4 if "colour" in what else 0.1
    assert max(counted) < most if "head 0" in what else min(counted) > 0.97

# %% [markdown]
# If the first thing is asked for, nearly all guesses name the *other* one; for the second it is a coin toss. If the second may not see the first one's colour either, it always is. Without the look at the things, most guesses are things that the text does not have. Two heads do the work; the same looks of others make no difference. [[looks-forbidden]] Such a chain of looks is called a **circuit** ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)).

# %% [markdown] tags=["note"]
# **Say.** Our pink head finds the word after an earlier *pink*. That is what an induction head does. Is it one?
#
# **Usual answers.**
# - *It is one, because pink finds the word after pink* (from the room): In this text the pink thing *is* the word after the earlier *pink*. Which text separates the two rules?
# - *The model is bad, then* (from the room): It never met such words in such places. A model learns what lowers its loss where it is trained.
#
# **Cut if short.** All of it.
#
# **Tried.** Three sets of 200 stories: heads 0 and 3 of layer 2 put 0.51 to 0.52 and 0.57 to 0.58 on the word after the earlier copy. In another order, in a short frame, 0.05 and 0.04; with four random words 0.01 to 0.02 and 0.01. With other words of the same kinds in the second saying (500 stories, five seeds) head 0 puts 0.522 on the same places, and 0.523 with a copy (difference -0.0008, standard error 0.0013), head 3 -0.0006 (0.0010).

# %% [markdown]
# ## 7. Is it an induction head?
# The last *pink* looks at the word *after* the earlier *pink*. A head that does this with any words is called an **induction head** ([Olsson et al. 2022](https://arxiv.org/abs/2209.11895)). Many stories repeat a saying. At each word of the second copy, do heads of layer 2 look at the word that came next in the first? And in another order? And if the second saying has other words of the same kinds, so that there is nothing to copy?

# %%
from tinylm_classroom import others_like, weight_on_next

SEED = 5
order = [2, 0, 3, 1]  # try [1, 2, 3, 0]
sayings = {
    "as written": lambda four: (four, four),
    "in another order": lambda four: (four[order], four[order]),
    "the second: other words": lambda four: (four, others_like(tokenizer, four)),
}
for what, both in sayings.items():
    # ESSENTIAL
    by_head = weight_on_next(model, tokenizer, both, SEED)  # (H)
    print(f"{what:<25}", [round(weight, 2) for weight in by_head.tolist()])
    # END

# %% tags=["source-hidden"] evidence="kinds-not-copies" tried="held-out"
# Checked in three sets of stories: also four random words, both times.
SEEDS = (1, 2, 3)
known = texts[1].flatten().unique()  # of the things in the texts of section 6
sayings["random words"] = lambda four: (known[four % len(known)],) * 2
for seed in SEEDS:
    found = {what: weight_on_next(model, tokenizer, both, seed)[[0, 3]] for what, both in sayings.items()}
    assert torch.stack([found[what] for what in ("as written", "the second: other words")]).min() > 0.4
    assert torch.stack([found[what] for what in ("in another order", "random words")]).max() < 0.15

# %% [markdown]
# In the order of a saying, heads 0 and 3 put about half of their weight on the next word, and head 0 is our pink head. In another order they find nearly nothing. But with other words in the second saying they look at the same places. So they follow no copy: they look for the **kind of word** that comes next. [[kinds-not-copies]]

# %% [markdown] tags=["note"]
# **Say.** One sentence to take home: score, softmax, weighted sum, and the mask before the softmax.
#
# **Usual answers.**
# - *The future gets 0 with both orders* (from the room): It does, but then the rows no longer sum to 1.
#
# **Cut if short.** Nothing.
#
# **Tried.** Each conclusion in its section.

# %% [markdown] deck="Score, softmax, weighted sum, and the mask before the softmax"
# ## What you have now
# - Attention is score, softmax, weighted sum, for one query or for all at once. [[one-query-at-a-time]]
# - The mask comes before the softmax. Then nothing in a row depends on the future. [[mask-first]]
# - Gradient descent finds queries and keys, although the loss only sees the answer. [[learned-keys]]
# - With 256 features no undivided run found one of sixteen things in 300 updates. Divided by the root, all did. [[root-learns]]
# - The shipped model looks for the pink thing, and needs two heads for it. [[looks-forbidden]]
# - The second is not an induction head: in a saying it looks for the next kind of word, not for a copy. [[kinds-not-copies]]
#
# Next, lesson 06: nothing in the formula knows *where* a word is.

# %% [markdown]
# ## Sources
# - Attention, for translation: Bahdanau et al. 2014, [*Neural Machine Translation by Jointly Learning to Align and Translate*](https://arxiv.org/abs/1409.0473).
# - Queries, keys and values, the root of $d_k$, the mask: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.2.
# - Circuits of two steps: Elhage et al. 2021, [*A Mathematical Framework for Transformer Circuits*](https://transformer-circuits.pub/2021/framework/index.html).
# - Induction heads: Olsson et al. 2022, [*In-context Learning and Induction Heads*](https://arxiv.org/abs/2209.11895).
