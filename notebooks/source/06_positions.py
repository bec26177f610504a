# %% [markdown] deck="How does a model know which word came first?"
# # 06 Positions
# **How does a model know which word came first?**
#
# *Needs* lessons 02 to 05. *Builds* `positions.py`. *Runs* in about 40 s on two cores.
# *Teaches* in about 45 minutes, plus 18 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: do not add the position to the word, rotate the word by it, because the angle between two rotated words depends only on how far apart they are.
# Sections 1 to 4 build the idea, section 5 writes it, and section 6 goes on until it fails, and one line takes most of the harm away.

# %% [markdown] tags=["note"]
# **Say.** Attention compares words by what they are. Nothing in it says where they are. Today a head learns to count to two, which it cannot do until we give it positions.
#
# **Usual answers.**
# - *Number the words and add the number* (from the room): What happens far into a long text, when the number is large and the other features are about 1? Section 2 adds waves, which stay small.
# - *The names exchange their probabilities* (`the logits of the two names are exchanged`): A word is weighted by what it is. A sum does not depend on the order.
# - *Everything changes, but only a little* (`all logits change a little`): Name a number in the layer that depends on the order.
# - *Without positions it learns nothing* (from the room): It does learn to name one of the tokens that have occurred. Change the line to "none".
#
# **Cut if short.** The line with `back`.
#
# **Tried.** Largest difference after the two sentences, ten seeds: one layer without positions 0.000 in all, two layers 0.21 to 0.68, rotary 0.10 to 0.54. The head, ten seeds, rate 0.01: with positions the loss is 0.002 and the weight two back 0.87 to 0.92 in all; without 2.88 to 2.98 and 0.09, and after 1,000 updates 2.61 to 2.63 and 0.09 (two seeds). Rate 0.003, 300 updates, five seeds: 0.78 to 0.79 against 0.09. Rate 0.03: three of five seeds have not learned it after 120 updates (loss 2.0, weight 0.42 to 0.49), and no head without positions has. Eight back, 16 seeds, 120 updates: learned 16 of 16, rotary 15, sinusoidal 9; one to five back all.

# %% [markdown]
# ## 1. Which word came first?
# Who thanked whom? Both sentences have the same words:
#
# > One day, Carlos thanked Jamal.
#
# > One day, Jamal thanked Carlos.
#
# Lesson 05 compared words by what they *are*. A small model with random weights, one layer of attention and **no positions** reads the first sentence. Where does its full stop look?

# %%
import torch

from tinylm_classroom import position_figures, positions, predict
from tinylm_lib.pretrained import load_pretrained

SEED = 6
tokenizer = load_pretrained("storyworld").tokenizer
ids = torch.tensor([tokenizer.encode("\nOne day, Carlos thanked Jamal.")])  # (B, T)
swapped = ids[:, [0, 1, 2, 3, 6, 5, 4, 7]]
model = positions.random_model(tokenizer, "none", 1, SEED)
sentences, looks = positions.last_looks(model, tokenizer, ids, swapped)

# %% tags=["source-hidden"] deck="The full stop looks at all words"
position_figures.last_looks(sentences[:1], looks[:1])

# %% tags=["source-hidden"] deck="The names change places. What happens to the logits after the full stop?"
predict(
    "Now *Carlos* and *Jamal* change places. How do the logits for the next token, after the full stop, differ?",
    key=lambda: "they are equal" if positions.difference(model, ids, swapped) < 1e-4 else "something else",
    choices={
        "they are equal": "",
        "the logits of the two names are exchanged": "A weight belongs to a word, not to its position. Which number in the layer depends on the order?",
        "all logits change a little": "The full stop sees the same set of words. Does a weighted sum depend on the order of what is added?",
    },
    because="The query of the full stop meets the same keys and values, only in another order, and a sum does not depend on the order.",
)

# %% tags=["source-hidden"] slide="subslide" deck="The same words get the same weights, in any order"
position_figures.last_looks(sentences, looks)

# %% [markdown]
# Each word has the same weight in both sentences, so the sum is the same. Does a second layer help? Do positions?

# %% rows=["S0-26"] deck="One layer without positions gives the same logits"
n_layers = 1  # try 2
position = "none"  # try "rotary"
reader = positions.random_model(tokenizer, position, n_layers, SEED)
print(f"largest difference {positions.difference(reader, ids, swapped):.2f}")

# %% tags=["source-hidden"] evidence="order" tried="seeds"
# Checked: with one layer the logits are equal; a second layer or positions change them.
SEEDS = (6, 7, 8)
for seed in SEEDS:
    readers = [positions.random_model(tokenizer, *kind, seed) for kind in (("none", 1), ("none", 2), ("rotary", 1))]
    one, two, rotary = (positions.difference(each, ids, swapped) for each in readers)
    assert one < 1e-4 < 0.01 < min(two, rotary)

# %% [markdown]
# One layer without positions cannot distinguish the sentences. [[order]] With two layers some of the order leaks through the mask: in the second layer a word has already seen what came before it. Positions do more, as a task shows that needs them: to find *the word two positions back*.
#
# ### A head learns to count to two
# The tokens are random, and at each position the model names the token `back` positions earlier. It has one layer with one head.

# %%
from tinylm_classroom import learned
from tinylm_lib import TransformerLM, next_token_loss, preset


def train_head(position, back=2, length=32, n_updates=120, seed=SEED):
    torch.manual_seed(seed)
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 1, "max_seq_len": 64}
    head = TransformerLM(preset("modern", vocab_size=32, position=position, **sizes))
    # ESSENTIAL
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)  # lesson 11
    for _ in range(n_updates):
        x = torch.randint(32, (16, length))  # (B, T)
        logits = head(x)  # (B, T, V)
        loss = next_token_loss(logits[:, back:], x[:, :-back])
        # END
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head.eval()


maps = {"no positions": {}, "with positions": {}}
for n in (0, 30, 60, 120):
    for kind, of_kind in zip(("none", "rotary"), maps.values(), strict=True):
        of_kind[n] = positions.mean_map(train_head(kind, n_updates=n))  # (T, S)

# %% tags=["signature", "source-hidden"] deck="With positions, a head learns to count to two"
position_figures.counting(maps, back=2)

# %% tags=["source-hidden"] evidence="two-back" tried="seeds"
# Checked: with every seed the head finds the token two back with positions, and not without.
for seed in SEEDS:
    none, rotary = (positions.mean_map(train_head(kind, seed=seed)).diagonal(-2).mean() for kind in ("none", "rotary"))
    assert none < 0.2 < 0.7 < rotary

# %% [markdown]
# With positions the head finds the token two back. Without them it does not. [[two-back]] There are several kinds of positions (*learned*: section 2, *sinusoidal*: section 2, *rotary*: section 3). All of them find it one, two and five positions back. Eight back is harder:

# %% deck="Learned, sinusoidal and rotary positions all work here"
position = "learned"  # try "sinusoidal", "rotary" and "none"
back = 2  # try 1, 5 and 8
right = positions.right_at(train_head(position, back), back, length=32)  # (T - back)
print("right:", learned(right.mean().item(), 0, 1))

# %% [markdown] tags=["note"]
# **Say.** The first idea of the field was to add a vector for the position to the vector of the word. A clock shows how to compute such a vector: with a fast hand and a slow one you can tell many times apart.
#
# **Usual answers.**
# - *all sines come before all cosines* (`two blocks`): `cat` puts the two tables after each other. Stack them along a new last axis, then flatten.
# - *every column has a frequency of its own* (`own speed for each`): i counts pairs, and two neighbours share one angle.
# - *the pairs are counted from 1* (`frequencies from one`): Pair 0 has the exponent 0, so its frequency is 1.
# - *It has changed, because the rows are others* (`1.497`): Ask how far apart the two rows of the question are. 1.497 is the product of rows 0 and 53.
# - *The network cannot separate word and position once they are added* (from the room): In hundreds of dimensions there is room for both, and the first linear maps learn to read either.
#
# **Cut if short.** The table of the library's kinds.
#
# **Tried.** Exact arithmetic: the product of two rows is the same for all 61 pairs of rows that are three apart, within 1e-5. With ten pairs of random words the sum of the four products changes by more than 0.5 from position to position in all ten.

# %% [markdown]
# ## 2. Waves that are added
# The first answer is an embedding for positions: a learned vector for position 0, one for position 1, and so on. Each is added to the word's vector. GPT-1 and GPT-2 have such **learned positions**.
#
# Can the vectors be *computed* instead? A clock does it with two hands, a fast one and a slow one. Each hand is given by its tip, a sine and a cosine:

# %%
import math

from tinylm_classroom import check, hint, keep
from tinylm_lib.positions import sinusoidal_table

rows = sinusoidal_table(64, 8)  # (64, 8), for later
for p in range(3):
    row = [math.sin(p), math.cos(p), math.sin(0.01 * p), math.cos(0.01 * p)]
    print(f"position {p}:", "  ".join(f"{value:7.4f}" for value in row))

# %% [markdown] deck="Each pair of numbers is a hand with its own frequency"
# In general there are $d/2$ such pairs, counted from $i = 0$. Pair $i$ rotates with the **frequency** $\omega_i$ (omega), in radians per position:
#
# $$\omega_i = 10000^{-2i/d}$$
# $$\text{row}_p = [\sin(p\,\omega_0),\ \cos(p\,\omega_0),\ \sin(p\,\omega_1),\ \cos(p\,\omega_1),\ \dots]$$
#
# The number 10,000 is the **base**. For $d = 4$ the frequencies are $10000^0 = 1$ and $10000^{-1/2} = 0.01$, as above. These are **sinusoidal positions** (Vaswani et al. 2017). For 64 positions and 64 numbers:

# %% tags=["source-hidden"] deck="Fast waves at the left, slow ones at the right"
position_figures.waves(sinusoidal_table(64, 64))

# %% [markdown]
# ### Your turn
# Write the whole table.


# %% tags=["exercise"] name="sinusoidal" minutes=8 difficulty=2 deck="Your turn: sinusoidal positions"
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

# %% [markdown]
# ### What do the rows know?
# In a smaller table each row has 8 numbers. Take the dot product of a row and the row three positions later.

# %% tags=["source-hidden"] deck="The dot product of rows 0 and 3 is 1.965. And of rows 50 and 53?"
predict(
    f"The dot product of rows 0 and 3 is {rows[0] @ rows[3]:.3f}. What is it for rows 50 and 53?",
    key=lambda: f"{rows[50] @ rows[53]:.3f}",
    choices={
        f"{rows[0] @ rows[53]:.3f}": "That is the product of rows 0 and 53. How far apart are 50 and 53?",
        f"{rows[0] @ rows[3]:.3f}": "",
        f"{rows[0] @ rows[3] + 50:.3f}": "Each row has four sines and four cosines: the product with itself is 4, and no other is larger.",
    },
    because="Two tips of one hand have the dot product cos(angle between them), and that angle depends on the offset alone.",
)

# %% [markdown] deck="Word plus position, times word plus position: four products"
# Row times row depends only on the distance. But attention multiplies *word plus row* by *word plus row*, and that is four products:
#
# $$(w + r)^\top(w' + r') = w^\top w' + w^\top r' + r^\top w' + r^\top r'$$

# %% deck="The same two words, three apart: the score depends on where they are"
p = 7  # try 50 and 20
word, other = torch.randn(2, 8, generator=torch.Generator().manual_seed(6))
# ESSENTIAL
for at in (0, p):
    r, s = rows[at], rows[at + 3]
    terms = torch.stack([word @ other, word @ s, r @ other, r @ s])  # (4)
    print(f"at {at}:", [round(x, 2) for x in terms.tolist()], f"sum {terms.sum():.2f}")
# END

# %% [markdown]
# The first product compares the words and the last the positions: both are the same everywhere. The two in the middle mix a word with a position. So the same two words at the same distance get another score at another position. A model can learn to live with that, as your heads did. But it is a nuisance: can we avoid it?

# %% [markdown] tags=["note"]
# **Say.** Moving a row on by three positions is one matrix, the same everywhere, and it rotates each pair. If a matrix can move the position on, apply it to the word itself and add nothing.
#
# **Usual answers.**
# - *Their directions have changed, so their score has changed* (from the room): The dot product depends on the two lengths and the angle between them, and none of the three has changed.
# - *Rotating loses what the word meant* (from the room): A rotation can be undone and keeps all lengths, and both vectors are rotated.
# - *Sinusoidal, because its waves exist everywhere* (`sinusoidal and rotary`): The row exists, but the matrices have never seen it added to a word.
#
# **Cut if short.** The line with `rotate_values`.
#
# **Tried.** Heads trained on 16 tokens (150, 200 or 300 updates), right at positions 16 to 31 and 32 to 63, with the last 16 in view. Rotary, ten seeds: 1.00 and 1.00 in all ten; rate 0.003, five seeds: 1.00 in all; rate 0.03: 1.00 in the four of five that have learned the task. Sinusoidal, eight seeds: 0.24 to 0.53 and 0.13 to 0.33; learned, five: 0.08 to 0.09 and 0.08 to 0.10; at the rate 0.003, three seeds each, 0.14 to 0.22 and 0.06 to 0.07. One back, three seeds each: rotary 1.00, sinusoidal 0.26 to 0.35, learned 0.13 to 0.16. Eight back needs more updates: two of three rotary heads have not learned it after 300.

# %% [markdown]
# ## 3. Rotate the word itself
# Is there one matrix that moves *every* row of the clock three positions on? Least squares finds it:

# %% deck="One matrix moves every row on by three positions"
clock = sinusoidal_table(64, 4).double()  # (64, 4)
M = torch.linalg.lstsq(clock[:-3], clock[3:]).solution  # (4, 4)
print(M.round(decimals=2) + 0)
print(f"largest error: {(clock[:-3] @ M - clock[3:]).abs().max():.4f}")

# %% [markdown] deck="Take two numbers as a point and rotate it"
# One matrix moves all rows on. It has two blocks: each **rotates** its pair, the fast one by 3 radians and the slow one by 0.03.
#
# **If a matrix can move a row on, why not apply it to the word?** Do not add a position to the word: *rotate the word* by its position. Take two numbers of a query or a key as a point $(a, b)$ and rotate it by the angle $\theta$ (theta), which is position times frequency:
#
# $$\begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{pmatrix} \begin{pmatrix} a \\ b \end{pmatrix} = \begin{pmatrix} a\cos\theta - b\sin\theta \\ a\sin\theta + b\cos\theta \end{pmatrix}$$


# %%
def rotation(angle: float) -> torch.Tensor:
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)  # (2, 2)


# %% tags=["source-hidden"] deck="Each position rotates it further"
position_figures.circle([(rotation(p) @ torch.tensor([1.0, 0.0]).double()).tolist() for p in range(7)])

# %% [markdown]
# Now rotate a query and a key, each to its own position, and take the dot product:

# %% deck="The score depends on the distance, not on where the words are"
query, key = torch.tensor([[0.8, 0.5], [0.3, -1.1]]).double()
at = (5, 3)  # try (105, 103), (3, 5) and (5, 5)
score = (rotation(at[0]) @ query) @ (rotation(at[1]) @ key)
print(f"query at {at[0]}, key at {at[1]}: score {score:.4f}")

# %% [markdown] deck="Back by m and forward by n is a rotation by n - m"
# The score depends on the two words and on their **offset**, with its sign: *two earlier* and *two later* have different scores. The reason: let $R_m$ be the rotation at position $m$. Its transpose rotates *back*, so
#
# $$(R_m q)^\top (R_n k) = q^\top R_m^\top R_n\, k = q^\top R_{n-m}\, k$$
#
# This is **rotary position embedding**, RoPE (Su et al. 2021). It has no weights and adds nothing, so the two mixed products do not exist. [[offset-only]]

# %% tags=["source-hidden"] rows=["S1-14"] evidence="offset-only" tried="exact"
# Checked: the score is that of the key rotated by n - m, for other positions, too.
for m, n in ((3, 5), (110, 10), (3010, 3007)):
    assert ((rotation(m) @ query) @ (rotation(n) @ key) - query @ rotation(n - m) @ key).abs() < 1e-12

# %% [markdown]
# ### Why does nearly every new model rotate?
# Here all three kinds could count to two. But what if a text is longer than those of the training? We train heads on texts of **16** tokens, four seeds of each kind, and test them on 64. At each position a head sees the last 16 tokens, as many as in its training:

# %%
from tinylm_lib.attention import causal_mask

SEEDS = (0, 1, 2, 3)
heads = {
    kind: [train_head(kind, length=16, n_updates=150, seed=seed) for seed in SEEDS]
    for kind in ("learned", "sinusoidal", "rotary")
}
last_16 = causal_mask(64).triu(-15)  # (T, S): no look further than 15 back
found = {}
for kind, each in heads.items():
    found[kind] = [positions.right_at(head, 2, mask=last_16) for head in each]

# %% tags=["source-hidden"] deck="Trained at positions 0 to 15. Which heads are right at 16 to 63?"
predict(
    "Trained on 16 tokens, all heads are right at positions up to 15. Which are right at positions 16 to 63, too?",
    key=lambda: " and ".join(kind for kind, each in found.items() if min(right[14:].mean() for right in each) > 0.9),
    choices={
        "none of them": "The positions are new to all of them. But what does a rotary score depend on?",
        "sinusoidal and rotary": "Both have angles for every position. But the sinusoidal row is added, so a new row is a new input.",
        "rotary": "",
    },
    because="A rotary score depends on the offset alone, and with 16 tokens in view no offset is new.",
)

# %% tags=["source-hidden"] slide="subslide" deck="Only rotary is right at positions it never saw"
position_figures.beyond(found, back=2, trained=16)

# %% tags=["source-hidden"] evidence="new-positions" tried="seeds"
# Checked: every head is right where it was trained; beyond, only the rotary ones are.
for kind, each in found.items():
    right = torch.stack(each)  # (4, 62)
    assert right[:, :14].mean(1).min() > 0.97
    assert right[:, 14:].mean(1).min() > 0.97 if kind == "rotary" else right[:, 14:].mean(1).max() < 0.8

# %% [markdown]
# A learned vector for position 20 was never trained. A sinusoidal row exists there, but the matrices never met it. Rotary heads are right everywhere, because no *offset* is new. [[new-positions]]
#
# Rotary rotates what is *matched*, the query and the key. What is *fetched*, the value, should be the same wherever the word is. Move six words on by 50 positions:

# %% rows=["S3-2"] deck="Rotate queries and keys, but not values"
from tinylm_lib.attention import attend
from tinylm_lib.positions import Rotary

small = Rotary(8, max_seq_len=64)
q, k, v = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(6))  # (T, D)
# ESSENTIAL
for rotate_values in (False, True):
    results = []
    for at in (torch.arange(6), torch.arange(50, 56)):  # (T)
        values = small(v, at) if rotate_values else v
        results.append(attend(small(q, at), small(k, at), values, causal=True))
    # END
    apart = (results[0] - results[1]).abs().max()
    print(f"values rotated: {rotate_values}, the results differ by {apart:.2f}")

# %% [markdown] tags=["note"]
# **Say.** One pair comes round again, so a head has many pairs, each with its own frequency. Then we ask the shipped model what it uses the fast and the slow pairs for.
#
# **Usual answers.**
# - *They do nothing, so nothing is lost* (`nothing happens in either case`): You think of the rotation alone. A pair is also a part of the score when it does not rotate.
# - *Every pair is used, so both do harm* (`both raise it`): How far does the slowest pair rotate in 128 positions? Could the model notice?
# - *Why not one slow pair that never repeats?* (from the room): Neighbours would then differ by an angle too small to matter.
#
# **Cut if short.** The view; show its picture.
#
# **Tried.** Five sets of 40 stories (loss 0.83). Stopped: pairs 0 to 3 add 0.67 to 0.81 nats, 4 to 7 add 0.61 to 0.68, 8 to 11, 12 to 15 and all of 8 to 15 add 0.001 or less, all pairs 2.77 to 2.95. Removed: 0.97 to 1.10, 0.71 to 0.88, 0.03 to 0.06 and 0.13 to 0.16. In texts of 512 tokens stopping 8 to 15 does raise the loss.

# %% [markdown]
# ## 4. Many pairs, many frequencies
# One pair is not enough, because it comes round again: a pair that rotates by 1 radian per position points nearly the same way at position 44 as at 0. So the $D$ numbers of a query make $D/2$ pairs, each with its own frequency. Its **wavelength** is the number of positions in a full circle:

# %% deck="From pair to pair the circle takes longer"
from tinylm_lib.positions import frequencies

for i, frequency in enumerate(frequencies(8).tolist()):
    print(f"pair {i}: wavelength {2 * math.pi / frequency:,.0f}")
print(f"pair 0, seven full circles: {7 * 2 * math.pi:.2f} positions (44 is close)")

# %% [markdown]
# A fast pair distinguishes neighbours but repeats, and a slow one hardly moves. (A larger base, as in Llama 3, slows every pair but the first.) Here are the 16 pairs of a head of the shipped model, with its query of the full stop and its key of *Carlos*. **Your task:** how many pairs hardly move? Then look at *score and distance* and move both words on: does the score change?

# %% deck="Task: which of the 16 pairs never move?"
from tinylm_classroom import rope_view

shipped = load_pretrained("storyworld").model.eval()
text = "\nOne day, Carlos thanked Jamal."
rope_view(shipped, tokenizer, text, layer=2, head=2, key=4, part="bank")

# %% [markdown]
# ### What does the model use them for?
# In all heads we **stop** some pairs, so that they no longer rotate, or **remove** them, so that they no longer count in any score. (The loss is that of the first 80 tokens, which are harder than the rest of a story.)

# %%
texts = positions.story_texts(tokenizer, 77, 81)  # (24, 81)
whole = positions.loss(shipped, texts)
print(f"loss of the shipped model, first 80 tokens: {whole:.2f} nats per token")

# %% tags=["source-hidden"] deck="Stop the 4 slowest pairs, or remove them: what happens to the loss?"
stop, remove = positions.added(shipped, texts, range(12, 16))
predict(
    "We stop the 4 slowest pairs, or we remove them. What happens to the loss of the shipped model?",
    key=lambda: "stopping changes nothing, removing raises it" if stop < 0.01 < 0.05 < remove else "something else",
    choices={
        "nothing happens in either case": "They hardly rotate, so stopping them changes little. But the score is still a sum over all pairs.",
        "stopping changes nothing, removing raises it": "",
        "both raise it": "They rotate by about a fiftieth of a circle at most in 128 positions. Can the model notice whether they do?",
    },
    because="The model does not get any position from these pairs. But they are a part of every score, whether they rotate or not.",
)

# %% slide="subslide" deck="Slow pairs: not for positions, but used"
n = 4  # try 8
for first in range(16 - n, -1, -n):
    stop, remove = positions.added(shipped, texts, range(first, first + n))
    print(f"{n} pairs from {first}: stopped +{stop:.2f}, removed +{remove:.2f} nats")

# %% tags=["source-hidden"] evidence="slow-pairs" tried="held-out"
# Checked in three other sets: stopping the slower half changes nothing, removing it does.
SEEDS = (78, 79, 80)
new_texts = [positions.story_texts(tokenizer, seed) for seed in SEEDS]  # (24, 513) each
for new in new_texts:
    added = torch.tensor([positions.added(shipped, new[:, :81], range(i, i + 4)) for i in (0, 4, 8, 12)])
    assert added[:2, 0].min() > 0.4 > 0.01 > added[2:, 0].max() and (added[:, 1] > added[:, 0] + 0.01).all()

# %% [markdown]
# Only the faster half gives this model the order of the words. Within the trained length, whether the slower half rotates makes no difference. But without it the loss rises: these pairs compare words by what they are. [[slow-pairs]] (It seems to be similar in a large model: Barbero et al. 2024.)

# %% [markdown] tags=["note"]
# **Say.** You now write the rotation that Llama uses, for all pairs, texts and heads at once. Then we read the same thing in the form that most code has.
#
# **Usual answers.**
# - *the minus is missing* (`no minus`): With a plus in both lines (1, 1) grows. A rotation keeps the length.
# - *the pairs rotate the other way* (`backwards`): Rotate (1, 0) by a small angle on the board. In which direction does the second number go?
# - *the results are put behind each other instead of back in their places* (`in blocks`): `cat` makes two blocks. Stack and flatten.
# - *a number is paired with one half a vector away* (`halves`): That is the layout of the shipped model. In this exercise neighbours are partners.
# - *the rows are counted instead of looking at `positions`* (`by row`): It works until a text is continued from a cache, where the first row is not at position 0.
# - *angles are computed in the dtype of x* (`all rounded`): bf16 keeps only a few bits of a number, so large odd positions are rounded to even ones.
#
# **Cut if short.** The table of the library's kinds.
#
# **Tried.** The plain form against the library: bases 100, 10,000 and 500,000, widths 2 to 64, positions up to 4,000, equal within 1e-5. The wrong layout on five sets, 2.96 to 3.13 nats instead of 0.82 to 0.83.

# %% [markdown]
# ## 5. Your turn
# Rotate the pairs of any number of texts and heads. Neighbours are partners: numbers 0 and 1, 2 and 3, and so on.


# %% tags=["exercise"] name="rotate" minutes=10 difficulty=3 deck="Your turn: rotate all pairs"
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

# %% [markdown]
# ### As most code has it
# Which two numbers form a pair is a free choice, a **layout**. Yours is *interleaved*. The shipped model, like Llama in Hugging Face's files, has *halves*: number $i$ and number $i + D/2$. Then the partners of all numbers are one `cat`:


# %%
def rotary_plain(x, at, base=10_000.0):
    angles = at[:, None] * frequencies(x.shape[-1], base)  # (T, D/2), in fp64
    cos = angles.cos().float().repeat(1, 2)  # (T, D)
    sin = angles.sin().float().repeat(1, 2)  # (T, D)
    a, b = x.chunk(2, dim=-1)  # (B, H, T, D/2) each
    partner = torch.cat((-b, a), dim=-1)  # (B, H, T, D)
    return x * cos + partner * sin  # (B, H, T, D)


# %% rows=["S0-24", "S0-25", "S0-27", "S1-15", "S1-16"]
from tinylm_classroom import trace

queries = torch.randn(3, 2, 5, 64)  # (B, H, T, D)
at = torch.arange(7, 12)  # (T)
# ESSENTIAL
library = Rotary(64, max_seq_len=512, base=10_000.0, layout="halves")
torch.testing.assert_close(rotary_plain(queries, at), library(queries, at))
trace(rotary_plain, queries, at, sizes={"B": 3, "H": 2, "T": 5, "D": 64})
# END

# %% tags=["source-hidden"] evidence="plain" tried="exact"
# Checked: the plain form is the library's for other bases, widths and far positions.
far = torch.tensor([0, 17, 3999, 5])  # (T)
for base, width in ((100.0, 2), (10_000.0, 64), (500_000.0, 8)):
    x, other = torch.randn(2, 1, 4, width), Rotary(width, 4000, base, layout="halves")
    torch.testing.assert_close(rotary_plain(x, far, base), other(x, far), atol=1e-5, rtol=1e-5)
assert library.cos.shape == (512, 64) and library.bfloat16().cos.dtype == torch.float32

# %% [markdown]
# The library's `Rotary` does the same with tables that are computed once and stay in fp32. [[plain]] Nothing in a file of weights shows its layout. What if you load the shipped weights with the wrong one?

# %% deck="The wrong layout loads without an error"
layout = "interleaved"  # try "halves"
reader = positions.with_config(shipped, rope_layout=layout)
print(f"loss with {layout}: {positions.loss(reader, texts):.2f}")

# %% tags=["source-hidden"] evidence="wrong-layout" tried="held-out"
# Checked in three other sets: the wrong layout adds about 2 nats, without an error.
wrong = positions.with_config(shipped, rope_layout="interleaved")
for new in new_texts:
    assert 1.7 < positions.loss(wrong, new[:, :81]) - positions.loss(shipped, new[:, :81]) < 2.8

# %% [markdown]
# No error, but the loss is far higher. [[wrong-layout]] The library's four kinds of positions:

# %% slide="skip" rows=["S4-6", "S4-49"]
from tinylm_lib.positions import POSITIONS

for name, (added, rotated) in POSITIONS.items():
    print(f"{name:<11} added to x: {added.__name__:<19} q and k: {rotated.__name__}")
classic = preset("tiny_transformer", "tiny")  # waves; token vectors times the root of C
assert classic.position == "sinusoidal" and classic.embedding_dropout == 0.1
assert TransformerLM(classic).embed_scale == math.sqrt(classic.d_model)

# %% [markdown] tags=["note"]
# **Say.** Two different things are called "longer": positions with large numbers, and texts with more words. We test them apart. The second one fails, and one line helps.
#
# **Usual answers.**
# - *These positions are new to it* (`far higher`): What does a score depend on? Which offsets occur in the moved text?
# - *Rounding grows with the position* (`a little higher`): The tables are precise. Is there an offset that was not trained?
# - *Then rotary works with any length* (after the first result): True of the arithmetic. Look at the next picture.
# - *It sees less, so it must be worse* (`higher, because it sees less`): So it would be, if what it does not see had helped. Here it disturbs.
#
# **Cut if short.** The last cell, on the small heads.
#
# **Tried.** Three sets of 40 texts. 128 tokens at 0, 1,000 and 1,900: equal to four digits. Tokens 448 to 511: whole text in view 1.64 to 1.66, a window of 128 0.74 to 0.80 (paired difference 0.85 to 0.92, standard error 0.05), 64: 0.66 to 0.80, 32: 1.34 to 1.35, 256: 1.13 to 1.15; the last 128 tokens only, 0.59 to 0.63. Is it the distances or the number of words? The nearest 64 words and 64 more, 256 to 319 back, are as many as in training, and the loss is 0.90 to 0.95, higher than with the nearest 64 alone: new distances do harm by themselves. Small rotary heads with the whole text in view, ten seeds: 0.75 to 1.00 at positions 16 to 31, 0.58 to 1.00 at 32 to 63; 2,000 updates instead of 300 do not help (0.71 and 0.49). With the window tokens 128 to 511 have 0.82 nats, read alone in pieces of 128 the same tokens 0.78, and with the whole text in view 1.24 (72 texts): the window costs 0.04 (standard error 0.006). Beyond the trained length the rotation of the slower half matters: stopped, it adds 0.38 there.

# %% [markdown]
# ## 6. Beyond the trained length
# The shipped model was trained on positions 0 to 127. We give its weights a longer table. First the same 128 tokens, moved to other positions:

# %% tags=["source-hidden"] deck="The same 128 tokens at positions 1900 to 2027: what is the loss?"
longer = positions.with_config(shipped, max_seq_len=2048)
at_0, at_1900 = (positions.loss(longer, new_texts[0][:, :129], start) for start in (0, 1900))
predict(
    f"The first 128 tokens of 24 texts, at positions 0 to 127: the loss is {at_0:.2f} nats. And for the same tokens at positions 1900 to 2027?",
    key=lambda: "the same" if abs(at_0 - at_1900) < 0.005 else "higher",
    choices={
        "the same": "",
        "a little higher": "The positions are new to it. But what does a score depend on?",
        "far higher": "The positions are new to it. But what does a score depend on?",
    },
    because="Only offsets count, and within 128 words there is none that was not trained.",
)

# %% slide="subslide" deck="At positions far beyond the training, the loss is the same"
start = 1900  # try 0 and 1000
moved = positions.loss(longer, new_texts[0][:, :129], start)
print(f"loss from position {start} on: {moved:.2f}")

# %% tags=["source-hidden"] evidence="far-positions" tried="held-out"
# Checked in three other sets: the first position makes no difference.
for new in new_texts:
    assert abs(positions.loss(longer, new[:, :129]) - positions.loss(longer, new[:, :129], 1900)) < 0.005

# %% [markdown]
# Far positions do no harm. [[far-positions]] And a longer *text*? The model reads 512 tokens at once:

# %% tags=["source-hidden"] deck="In a longer text the loss rises beyond the trained length"
in_view = {"whole text": [positions.losses_at(longer, new) for new in new_texts]}
position_figures.long_texts(in_view, step=64, trained=128)

# %% [markdown]
# What is new here? Not the positions, but the **distances** beyond 127, and more words to look at than ever in training. So take both away: forbid every look further back than 127, in the mask.

# %% tags=["source-hidden"] deck="Each word sees the last 128 words only. What is the loss at the end?"
masks = (None, causal_mask(512).triu(-127))
before, cured = (positions.losses_at(longer, new_texts[0], mask=mask)[:, 448:].mean().item() for mask in masks)
predict(
    f"Tokens 448 to 511, with the whole text in view: the loss is {before:.2f} nats. Without any training, each layer now sees the last 128 positions only. What is the loss?",
    key=lambda: "half as high" if cured < 0.6 * before else "something else",
    choices={
        "higher, because it sees less": "It would be, if what it no longer sees had helped. It was never trained with it.",
        "a little lower": "Which distances and how many words are in view now, compared with the training?",
        "half as high": "",
    },
    because="With the window no layer meets a distance or a number of words that is new to it.",
)

# %% slide="subslide" deck="A window is one line in the mask"
window = 128  # try 64, 32 and 256
allowed = causal_mask(512).triu(1 - window)  # (T, S)
late = positions.losses_at(longer, new_texts[0], mask=allowed)[:, 448:]  # (24, 64)
print(f"tokens 448 to 511, window {window}: loss {late.mean():.2f}")

# %% tags=["source-hidden"] slide="subslide" deck="With a window of 128, the loss stays below 1"
in_view["window of 128"] = [positions.losses_at(longer, new, mask=causal_mask(512).triu(-127)) for new in new_texts]
position_figures.long_texts(in_view, step=64, trained=128)

# %% tags=["source-hidden"] evidence="window" tried="held-out"
# Checked in three sets: beyond 128 tokens the loss rises; with the window it stays below 1.
for without, windowed in zip(*in_view.values(), strict=True):
    assert without[:, 448:].mean() > 1.35 > 1.0 > windowed[:, 448:].mean() and windowed[:, 128:].mean() < 1.0

# %% [markdown]
# In a long text the loss rises, and a window of 128 keys takes most of the rise away, without any training. [[window]] (Not all: higher layers still get something from beyond it, and later words are harder.) Mistral 7B has such a **sliding window**, of 4,096 keys (Jiang et al. 2023). It does not make the model use far words: for that a model must be trained further, with slower pairs (**position interpolation**, **YaRN**).
#
# Look back at section 3: there each head saw the last 16 tokens. And if the rotary heads see all 64?

# %% deck="New distances harm rotary heads, too"
n = 64  # try 32 and 16
seen = causal_mask(64).triu(1 - n)  # the last n tokens
by_head = [positions.right_at(head, 2, mask=seen)[30:] for head in heads["rotary"]]
print("right at 32 to 63:", *(learned(right.mean().item(), 0, 1) for right in by_head))

# %% tags=["source-hidden"] evidence="new-distances" tried="seeds"
# Checked: with all 64 in view some rotary heads make mistakes, with the last 16 none does.
all_64, last = (
    [positions.right_at(head, 2, mask=mask)[30:].mean() for head in heads["rotary"]] for mask in (None, last_16)
)
assert min(all_64) < 0.9 < 0.97 < min(last)

# %% [markdown]
# Some make mistakes. **Rotary makes new positions harmless, but not new distances.** [[new-distances]]

# %% [markdown] tags=["note"]
# **Say.** We began with a model that cannot know who thanked whom. Now the angle between a query and a key depends on how far apart two words are. Show the picture of section 3 once more. At the door, let one student say how a score can depend on the distance although nothing was added to the word.
#
# **Usual answers.**
# - *The vector of the word is rotated, so it contains the position* (from the room): Only its query and its key are rotated. The vector itself and its value stay.
# - *The mask shows what came before* (from the room): The first model of section 1 had the mask as well, and it gave the same logits.
#
# **Cut if short.** The list; students read it.
#
# **Tried.** Each conclusion in its section.

# %% [markdown] deck="Rotate queries and keys, and only the distance counts"
# ## What you have now
# - One layer of attention without positions gives the same logits for both orders of the names. [[order]]
# - With positions a head learns to find the token two back, and without them it does not. [[two-back]]
# - Rotated queries and keys have a score that depends on the two words and their offset only. [[offset-only]]
# - Trained on 16 tokens, only rotary heads are right at later positions, too. [[new-positions]]
# - The shipped model gets the order of words from the faster half of its pairs. It uses the slower half, but within the trained length not its rotation. [[slow-pairs]]
# - In the wrong layout its loss rises by about 2 nats, without an error. [[wrong-layout]]
# - Far positions do no harm to it. [[far-positions]]
# - In long texts its loss rises, and a window of 128 keys takes most of the rise away without training. [[window]]
# - Distances that are new can harm rotary heads. [[new-distances]]
#
# Next, lesson 07: why a layer looks back in several ways at once.

# %% [markdown]
# ## Sources
# - Sinusoidal rows, and the matrix that moves them: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.5.
# - Rotary: Su et al. 2021, [*RoFormer: Enhanced Transformer with Rotary Position Embedding*](https://arxiv.org/abs/2104.09864), section 3, equations 14, 15 and 34.
# - Learned positions: Radford et al. 2018, [*Improving Language Understanding by Generative Pre-Training*](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf) (GPT-1).
# - What fast and slow pairs do in a large model: Barbero et al. 2024, [*Round and Round We Go! What makes Rotary Positional Encodings useful?*](https://arxiv.org/abs/2410.06205)
# - A sliding window: Jiang et al. 2023, [*Mistral 7B*](https://arxiv.org/abs/2310.06825), section 2.
# - Longer texts: Chen et al. 2023, [*Extending Context Window of Large Language Models via Positional Interpolation*](https://arxiv.org/abs/2306.15595); Peng et al. 2023, [*YaRN: Efficient Context Window Extension of Large Language Models*](https://arxiv.org/abs/2309.00071); numbers added to the scores instead (**ALiBi**): Press et al. 2022, [*Train Short, Test Long*](https://arxiv.org/abs/2108.12409).
# - The base in Llama 3: Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), section 3.2.
