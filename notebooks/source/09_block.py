# %% [markdown] deck="How can dozens of layers be stacked so that the model still learns?"
# # 09 Block
# **How can dozens of layers be stacked so that the model still learns?**
#
# *Needs* lessons 04, 05, 07 and 08. *Builds* `PreNormBlock` in `model.py`. *Runs* in about 45 s on two cores.
# *Teaches* in about 45 minutes, plus 16 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a part adds to a vector instead of replacing it, so that a word is not lost on the way forward and a step may be long on the way back. Sections 1 to 3 show that and why, sections 4 and 5 use it, section 6 answers the question of the title.
# The exercises are homework, or a second hour. If you have only ten minutes, show the two pictures of section 1, and vote on its prediction.

# %% [markdown] tags=["note"]
# **Say.** You have built all the parts. Today we only connect them, and it comes down to one plus sign. Do not explain yet why it works: let the class guess, write the guesses on the board, and test them in sections 2 and 3.
#
# **Usual answers.**
# - *Nearly the same, the parts are the same* (`nearly as much as with them`): Sixteen results replace the vector, one after the other. What is left of the word?
# - *As much as two blocks, the others do nothing* (`as much as a model of 2 blocks`): Without a plus sign, doing nothing means copying a vector exactly, through attention and a feed-forward. Who teaches them that?
# - *It only needs more time* (from the room): Right for 2 and 4 blocks, see the picture. For 8 nobody here has seen the end of the wait.
#
# **Cut if short.** The line to change; keep the picture.
#
# **Tried.** Three seeds for each line of the picture, rate 0.001, 1,000 updates. Below 4.5 for the first time: with plus signs 8 and 24 blocks after 60 updates; without, 2 blocks after 140 (three of three), 4 after 280 to 380, 8 in none; one run of 8 blocks over 2,000 updates never leaves 4.97 to 5.05. A plus sign at one of the two parts only is not enough: 8 blocks, 60 updates, 5.11 (attention) and 5.10 (feed-forward), both 4.08, none 5.10 (one seed). Other rates, whole texts, 60 updates: 8 blocks without plus signs have 5.80, 5.10, 5.16 and 5.15 at 0.0001, 0.001, 0.01 and 0.1, with them 5.68, 4.08, 2.52 and 4.82. At the rate 0.01, 30 updates, three seeds: replaced 3.68 to 3.84 with 1 block, 4.86 to 5.04 with 2, 5.11 to 5.17 with 4, 8 and 16; added 2.85 to 3.24 with 1 to 4, 3.52 to 3.65 with 8, 4.09 to 4.54 with 16.

# %% [markdown]
# ## 1. One plus sign
# You have built two parts: attention fetches from other positions, and the feed-forward works on each position alone. A **block**, also called a *layer*, is one of each, and each reads a normalized copy of its vector (lesson 04). What becomes of the vector? The result can **replace** it, or be **added** to it:

# %% tags=["source-hidden"] deck="A result can replace the vector, or be added to it"
from tinylm_classroom import predict, stacks
from tinylm_classroom import stack_figures as figures

figures.joins("replaced", "added")

# %% tags=["source-hidden"] deck="8 blocks without plus signs, 1,000 updates: what have they learned?"
ends = [run["losses"][-1] for run in stacks.recorded("runs") if (run["join"], run["blocks"]) == ("replace", 8)]
predict(
    "We train a model of 8 blocks without plus signs on stories, for 1,000 updates. What has it learned?",
    key=lambda: "only how frequent each word is" if min(ends) > 4.8 else "nearly as much as with them",
    choices={
        "only how frequent each word is": "",
        "as much as a model of 2 blocks": "The others would have to do nothing. Without a plus sign that means copying the vector exactly.",
        "nearly as much as with them": "It has the same parts. But what is left of a word when sixteen results have replaced it?",
    },
    because="Its loss stays at that of a reader who knows only the word frequencies.",
)

# %%
import torch

from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
V = tokenizer.vocab_size
tokens = stacks.stories(tokenizer)  # (N)
counting_only = stacks.counting_only(tokens)  # knows only the word frequencies

# %% tags=["signature", "source-hidden"] deck="With plus signs 24 blocks learn; without, not 8"
figures.runs(stacks.recorded("runs"), counting_only)

# %% tags=["source-hidden"] evidence="plus-learns" tried="seeds"
# Checked: with each seed, the order in which the losses fall; and the record repeats here.
runs = {(run["join"], run["blocks"], run["seed"]): run["losses"] for run in stacks.recorded("runs")}
waits = {key: 20 * sum(loss > 4.5 for loss in losses) for key, losses in runs.items()}
for seed in range(3):
    assert waits["add", 24, seed] < waits["replace", 2, seed] < waits["replace", 4, seed] < 500
    assert min(runs["replace", 8, seed]) > counting_only - 0.1
lm = stacks.untrained(V, 2, seed=0)
again = stacks.train(lm, stacks.reading(lm, stacks.replace), tokens, rate=0.001, updates=60)
assert abs(sum(again[40:]) / 20 - runs["replace", 2, 0][2]) < 0.15

# %% [markdown]
# With the sign, 24 blocks learn at once. Without it, 2 blocks first wait for a hundred updates and 4 for some hundreds, while 8 know only the word frequencies, even after 1,000. [[plus-learns]] A part that adds to its input has a **residual connection**, also called a *skip connection* ([He et al. 2016](https://arxiv.org/abs/1512.03385)).
#
# A deeper model should be at least as good as a shallow one: its additional blocks only have to do nothing. But blocks without plus signs are a **chain**: each result is all that the next block gets, so doing nothing means copying the vector exactly, and that has to be learned. With the sign, a block does nothing if its last maps are 0.
#
# This is how the vectors pass all blocks (`join` is `replace` or `add`). Then try it yourself, with steps ten times as long (0.01), so that 30 updates are enough:

# %%
from tinylm_classroom import learned, show

show(stacks.vectors)

# %% deck="4 blocks at a learning rate of 0.01: with or without a plus sign?"
n_blocks, plus = 4, False  # try (4, True), (1, False) and (8, True)
# ESSENTIAL
lm = stacks.untrained(V, n_blocks, seed=1)
read = stacks.reading(lm, stacks.add if plus else stacks.replace)
losses = stacks.train(lm, read, tokens, rate=0.01, updates=30)
# END
print(f"{n_blocks} blocks, 30 updates: loss {learned(stacks.last_ten(losses), 2, 6)}")
print(f"with the word frequencies alone: {counting_only:.2f}")

# %% [markdown]
# Why does the sign matter so much? In lesson 04 a norm was enough for a chain of linear maps. Blocks are harder, because attention averages and SwiGLU multiplies. There are two suspects: something is lost on the way **forward**, or on the way **back**.

# %% [markdown] tags=["note"]
# **Say.** First suspect: the way forward. We measure how alike the vectors of different positions become. Then comes the test that decides: if averaging is the cause, a chain that cannot average must learn.
#
# **Usual answers.**
# - *Whole texts, because the model knows more* (`the one that reads whole texts`): It could know more, if its own word were not averaged away.
# - *Neither* (`neither`): Then averaging would not be the cause. The experiment decides.
# - *The norm makes the vectors equal* (from the room): It makes their sizes equal, not their directions. The words that are read alone pass the same norms.
#
# **Cut if short.** The line to change at the end; say its result.
#
# **Tried.** Three seeds, 8 blocks: whole texts, replaced 0.84 to 0.90; added 0.42 to 0.49; words alone, replaced 0.05 to 0.07 and added 0.01 to 0.02. 4 blocks without plus signs, rate 0.001, 60 updates: whole texts 5.0 to 5.1, words alone 3.6 to 3.7. At 0.003: words alone 3.3; at 0.01 4.1 to 4.3. For whole texts no rate helps 8 blocks (note of section 1). The cosine alone does not decide: 24 blocks added have 0.73 to 0.78 and learn, 2 replaced 0.47 to 0.49 and wait. The own word can be read after 1, 2, 4, 8 and 24 blocks in 0.22, 0.11, 0.12, 0.11 and 0.11 of the positions (replaced), 0.75, 0.70, 0.62, 0.51 and 0.34 to 0.39 (added), 0.79 to 0.82 (words alone, replaced). Averaging as a dose, 4 blocks in a chain, two seeds: own value only 3.6, half of it the word before 4.5, mean of all before 5.0 to 5.1.

# %% [markdown]
# ## 2. Lost on the way forward
# Attention returns a weighted average of values (lesson 05). If it *replaces* the vector, a position keeps of its own word only what the average contains. After many averages all positions may look alike: then the mean **cosine** of two positions is near 1.
#
# For comparison, a model reads each word **alone**, as a text of its own: attention has nothing to average there, and the rest is the same.


# %%
def likeness(x):
    """The mean cosine between the vectors (..., T, C) of two different positions."""
    units = x / x.norm(dim=-1, keepdim=True)  # (..., T, C)
    cosines = units @ units.mT  # (..., T, T)
    n = cosines.shape[-1]
    return ((cosines.sum((-2, -1)) - n) / (n * (n - 1))).mean().item()


# %%
SEEDS = range(3)
texts = tokens[:256].view(8, 32)  # (B, T)


@torch.no_grad()
def likeness_by_depth(ids, join):
    found = []
    for seed in SEEDS:
        xs = stacks.vectors(stacks.untrained(V, 8, seed), join, ids)
        found.append([likeness(x.view(8, 32, -1)) for x in xs])
    return torch.tensor(found)  # (3, 9)


alike = {
    "texts, replaced": likeness_by_depth(texts, stacks.replace),
    "texts, added": likeness_by_depth(texts, stacks.add),
    "words alone, replaced": likeness_by_depth(texts.reshape(-1, 1), stacks.replace),
}

# %% tags=["source-hidden"] deck="Without the plus sign, the positions of a text become alike"
figures.alike(alike)

# %% tags=["source-hidden"] evidence="positions-alike" tried="seeds"
# Checked: with each seed.
replaced, added, alone = alike.values()  # (3, 9) each
assert replaced[:, -1].min() > 0.75 > 0.6 > added[:, -1].max() and alone.max() < 0.2

# %% [markdown]
# Without the plus sign the positions become alike, and averaging makes them so: read alone, they do not. With the plus sign the old vector stays in the sum, and after 8 blocks they still differ. [[positions-alike]] This is **rank collapse** ([Dong et al. 2021](https://arxiv.org/abs/2103.03404)).
#
# ### Is that why the chain learns so late?
# Then a chain should learn when it reads each word alone, although it knows much less there. We train 4 blocks in both ways, at a learning rate of 0.001:


# %%
def train_chain(alone, seed, n_blocks=4, rate=0.001, ffn="swiglu"):
    """The loss of blocks without plus signs, after 60 updates."""
    lm = stacks.untrained(V, n_blocks, seed, ffn=ffn)
    read = stacks.reading(lm, stacks.replace, alone)
    return stacks.last_ten(stacks.train(lm, read, tokens, rate, updates=60))


by_reading = {}
for reads_alone in (False, True):
    by_reading[reads_alone] = [train_chain(reads_alone, seed) for seed in SEEDS]

# %% tags=["source-hidden"] deck="A chain reads whole texts, another one each word alone. Which one learns?"
predict(
    "4 blocks without plus signs, 60 updates. Which model has learned more than the word frequencies?",
    key=lambda: "the one that reads each word alone" if max(by_reading[True]) < counting_only - 0.3 else "neither",
    choices={
        "the one that reads whole texts": "They contain more, but at each position the word itself is averaged away.",
        "the one that reads each word alone": "",
        "neither": "At a rate of 0.001 one of them learns. Keep your doubt: longer steps come next.",
    },
    because="Alone, a word cannot be averaged away, so the model learns which word follows which.",
)

# %% deck="The chain that sees less learns first"
for reads_alone, found in by_reading.items():
    name = "words alone" if reads_alone else "whole texts"
    print(f"4 blocks, {name}: loss", *(learned(loss, 3, 6) for loss in found))

# %% slide="skip"
many = tokens[:5_120].view(-1, 32)  # (B, T)


def word_read(join, n_blocks):
    """How often a linear map finds a position's word in its vector, for each seed."""
    models = [stacks.untrained(V, n_blocks, seed) for seed in SEEDS]
    return [stacks.own_word(lm, join, many) for lm in models]


lost, kept = word_read(stacks.replace, 2), word_read(stacks.add, 8)
print("own word found, 2 blocks, replaced:", *(learned(x, 0, 1) for x in lost))
print("own word found, 8 blocks, added:", *(learned(x, 0, 1) for x in kept))
print(f"guessing the most frequent word: {tokens.bincount().max() / len(tokens):.2f}")

# %% tags=["source-hidden"] evidence="own-word-lost" tried="seeds"
# Checked: with each seed.
assert max(lost) < 0.15 < 0.4 < min(kept)
assert min(by_reading[False]) > counting_only - 0.2 and max(by_reading[True]) < counting_only - 0.7

# %% [markdown]
# The chain that sees **less** has learned more. On texts a position's own word is lost: after 2 blocks a linear map finds it no more often than a guess, with plus signs in half of the positions even after 8. So averaging is one reason. [[own-word-lost]] Is it the only one? Here are 8 blocks on words alone, with steps ten times as long:

# %%
rate = 0.01  # try 0.001
loss = train_chain(True, seed=1, n_blocks=8, rate=rate)
print(f"8 blocks, words alone, rate {rate}: loss {learned(loss, 3, 6)}")

# %% [markdown]
# No: nothing is averaged, and still this chain learns nothing at 0.01, though it does at 0.001. The second reason has to do with the length of a step, on the way back.

# %% [markdown] tags=["note"]
# **Say.** Second suspect: the way back. The slopes of a chain multiply. Everybody has read that gradients then vanish or explode. Here they explode in one chain and keep their size in the other, and both fail. What counts is how far a gradient can be trusted.
#
# **Draw.** Three boxes in a row with the slopes 0.5, 0.2 and -0.3, and an arrow past each box. Let the class find the eight ways from one end to the other.
#
# **Usual answers.**
# - *-0.03* (`-0.03`): That was the chain. With adding, each factor is 1 + slope.
# - *0.4* (`0.4`): That is the sum of the slopes. The factors are 1 + slope, and they multiply.
# - *Then the sign changes nothing on the way back* (from the room, at 0.01): Look at the loss: one step pays, the other does not. Then try 0.001.
# - *Then the explosion is the reason* (from the room): AdamW divides the size away, and the chain with GELU fails, too.
#
# **Cut if short.** The eight ways; keep the formula and the last picture.
#
# **Tried.** 24 blocks, six seeds, gradient of block 0 divided by that of block 23: SwiGLU, replaced 3,230 to 11,970; GELU, replaced 0.5 to 4.8; added 3.7 to 4.8 with SwiGLU and 3.3 to 5.0 with GELU. So the gated product makes it explode, not the norms. The cosine, 8 blocks, words alone, mean of three seeds, falls below one half at 0.00003 (SwiGLU) and 0.00016 (GELU) when replaced, and at 0.0034 and 0.0030 when added. At 0.01 it is gone with the plus sign, too (-0.13 to -0.07), and still one step lowers the loss by 1.4 to 1.7, while in the chain no step from 0.00001 to 0.03 lowers it by more than 0.7. That is the batch of the gradient; on another one a step of 0.01 lowers it by 0.40 with the plus sign and 0.18 in the chain (six seeds). On whole texts the limits are 0.000016 and 0.0016. With 4 blocks: 0.0003 and 0.0009 against 0.006. Rates: 8 blocks, words alone, 60 updates, five seeds. Replaced: 4.5 to 4.6 at 0.0003, 4.0 to 4.2 at 0.001, 4.3 to 4.9 at 0.003, 5.0 to 5.1 from 0.01 on. Added: 4.6 to 4.7, 3.5 to 3.6, 2.7 to 2.9, 2.7 to 2.8, 2.9 to 3.2, and 3.7 to 4.4 at 0.1. With GELU (two seeds) replaced 4.4 at 0.001 and 5.1 at 0.01, added 3.0 to 3.1 at 0.01.

# %% [markdown]
# ## 3. Lost on the way back
# By hand: one number, and three parts that multiply it by their slopes. How large is the gradient that comes back?


# %%
def gradient_at_start(slopes, plus):
    start = torch.tensor(1.0, requires_grad=True)
    x = start
    for slope in slopes:
        x = x + slope * x if plus else slope * x
    x.backward()
    return start.grad.item()


slopes = [0.5, 0.2, -0.3]  # try [0.9, 0.9, 0.9] and [2.0, 2.0, 2.0]
print(f"if each part replaces: {gradient_at_start(slopes, plus=False):.2f}")

# %% [markdown]
# That is $0.5 \cdot 0.2 \cdot (-0.3)$: by the chain rule the slopes multiply. With the plus sign, each factor becomes
#
# $$\frac{d}{dx}\bigl(x + f(x)\bigr) = 1 + \frac{df}{dx}$$

# %% tags=["source-hidden"] deck="Slopes 0.5, 0.2 and -0.3, each part adds: how far does the end move?"
predict(
    "The same slopes, 0.5, 0.2 and -0.3, but now each part adds. We move x a little. How many times as far does the end move?",
    key=lambda: gradient_at_start([0.5, 0.2, -0.3], plus=True),
    number="times",
    within=0.02,
    feedback={
        -0.03: "That was the chain. Now each factor is 1 + slope.",
        1.4: "That is 1 plus all slopes. The factors 1 + slope multiply.",
        0.4: "That is the sum of the slopes. The factors are 1 + slope, and they multiply.",
    },
    because="1.5 times 1.2 times 0.7.",
)

# %% evidence="a-way-of-slope-1" tried="exact" deck="Eight ways back, and one of them passes no part"
a, b, c = 0.5, 0.2, -0.3
print(f"past all three {1}, through one {a + b + c:+.2f},", end=" ")
print(f"through two {a * b + a * c + b * c:+.2f}, through all {a * b * c:+.2f}")
# ESSENTIAL
ways = 1 + (a + b + c) + (a * b + a * c + b * c) + a * b * c
# END
assert abs(ways - gradient_at_start([a, b, c], plus=True)) < 1e-6

# %% [markdown]
# Multiply out $(1+a)(1+b)(1+c)$: each term is one way back, eight in all ([Veit et al. 2016](https://arxiv.org/abs/1605.06431)). The chain had only the last one. Now one way **passes no part at all**, and its slope is 1, however many blocks there are. [[a-way-of-slope-1]]
#
# How large are the gradients of real blocks? We stack 24, with both feed-forwards of lesson 08:


# %%
def gradients_of_24(join, ffn):
    """The gradient of each block, for each seed: (3, 24)."""
    models = [stacks.untrained(V, 24, seed, ffn=ffn) for seed in SEEDS]
    return torch.tensor([stacks.block_gradients(lm, join) for lm in models])


gradients = {
    "SwiGLU, replaced": gradients_of_24(stacks.replace, "swiglu"),
    "GELU, replaced": gradients_of_24(stacks.replace, "gelu"),
    "SwiGLU, added": gradients_of_24(stacks.add, "swiglu"),
}

# %% tags=["source-hidden"] deck="With SwiGLU and no plus sign, the gradient explodes"
figures.gradients(gradients)

# %% tags=["source-hidden"] evidence="slopes-multiply" tried="seeds"
# Checked: with each seed.
grown = {name: each[:, 0] / each[:, -1] for name, each in gradients.items()}
assert grown["SwiGLU, replaced"].min() > 300 and grown["SwiGLU, added"].max() < 15
assert grown["GELU, replaced"].min() > 0.05 and grown["GELU, replaced"].max() < 30

# %% [markdown]
# SwiGLU multiplies two maps of one vector, so its slopes are large, and their product **explodes**. With GELU the size hardly changes, and with the plus sign the first and the last block differ by less than a factor of ten. [[slopes-multiply]] So does the chain with GELU learn at 0.01, on words alone?

# %% evidence="size-is-not-enough" tried="seeds"
of_gelu = [train_chain(True, seed, 8, 0.01, ffn="gelu") for seed in SEEDS]
print("8 blocks with GELU, rate 0.01: loss", *(learned(loss, 3, 6) for loss in of_gelu))
assert min(of_gelu) > counting_only - 0.2

# %% [markdown]
# It fails just the same, so the size is not the reason. [[size-is-not-enough]]
#
# ### How far does a gradient hold?
# A gradient says how the loss changes for *small* steps. How small? We let every weight take one step against its gradient and compute the gradient again. If the cosine between the two is low, the first gradient was right only for less than this step.

# %% deck="One step of 0.001: does the gradient still point there?"
step, adds = 0.001, False  # try (0.001, True), (0.01, False) and (0.01, True)
# ESSENTIAL
batch = tokens[:136].view(8, 17)  # (B, T + 1)
lm_8 = stacks.untrained(V, 8, seed=0)
alone = stacks.reading(lm_8, stacks.add if adds else stacks.replace, alone=True)
turned = stacks.after_step(lm_8, alone, batch, step)
# END
print(f"cosine of the two gradients {learned(turned.cosine, -0.5, 1.01)}")
print(f"change of the loss of this batch {learned(turned.change, -3, 2)}")

# %% slide="skip"
steps = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def over_steps(join, ffn):
    """Cosine and change of the loss, for each seed and step: (3, 7, 2)."""
    found = []
    for seed in SEEDS:
        lm = stacks.untrained(V, 8, seed, ffn=ffn.lower())
        read = stacks.reading(lm, join, alone=True)
        found.append([stacks.after_step(lm, read, batch, step) for step in steps])
    return torch.tensor(found)


joins = {"replaced": stacks.replace, "added": stacks.add}
ways_of = [(name, ffn) for name in joins for ffn in ("SwiGLU", "GELU")]
stepped = {(name, ffn): over_steps(joins[name], ffn) for name, ffn in ways_of}
cosines = {key: each[..., 0] for key, each in stepped.items()}  # (3, 7) each

# %% tags=["source-hidden"] deck="With the plus sign, steps may be much longer"
figures.holds(steps, cosines, stacks.recorded("rates"), counting_only)

# %% tags=["source-hidden"] evidence="limit-moves" tried="seeds"
# Checked: the limit moves by 100 and by 20; with each seed the gradient holds at 0.001, and a step of 0.01 pays.
limits = {key: stacks.limit_of(steps, each) for key, each in cosines.items()}
assert limits["added", "SwiGLU"] > 30 * limits["replaced", "SwiGLU"]
assert limits["added", "GELU"] > 7 * limits["replaced", "GELU"]
for ffn in ("SwiGLU", "GELU"):
    assert cosines["added", ffn][:, 4].min() > 0.8 > 0.5 > cosines["replaced", ffn][:, 4].max()
    assert stepped["added", ffn][:, 6, 1].max() < -1.1 < -0.8 < stepped["replaced", ffn][..., 1].min()

# %% tags=["source-hidden"] evidence="rates-move" tried="seeds"
# Checked: the recorded runs, five seeds each.
at = {(run["join"], run["rate"]): run["losses"] for run in stacks.recorded("rates")}
assert max(at["replace", 0.001]) < 4.3 < 4.9 < min(at["replace", 0.01])
assert max(at["add", 0.01]) < 2.9 < min(at["add", 0.001])

# %% [markdown]
# Left: the plus sign moves the limit of a step by a factor of about 100 with SwiGLU, and of 20 with GELU. [[limit-moves]] Why? A step that changes a slope from 0.2 to 0.1 halves the product of a chain, but it changes 1.2 to 1.1, by only 8 percent.
#
# Right: AdamW moves each weight by about the learning rate (lesson 11), so the rates move as well. The chain learns at 0.001 and not at 0.01, where the model with plus signs still learns well. [[rates-move]]
#
# Both learn best at steps somewhat longer than this limit, so it is not the best rate, but it moves with it. At 0.01, one step lowers the loss *of its own batch* by more than 1 nat with the plus sign; in the chain no step, short or long, lowers it by even 0.8. [[limit-moves]] (Gradients that change that strongly from one *input* to the next are called **shattered**, [Balduzzi et al. 2017](https://arxiv.org/abs/1702.08591).)

# %% [markdown] tags=["note"]
# **Say.** What runs past all parts is the residual stream, and in the trained model it is a plain sum. So we can take one term out of it, which nobody could do with a chain.
#
# **Usual answers.**
# - *The last feed-forward, because it adds the longest vector* (`the feed-forward of block 2`): Long is not the same as important. Only the last norm and the head read it.
# - *The attention of block 2, because it is the last one* (`the attention of block 2`): It finds only what earlier parts brought in.
# - *Subtract at the end what the part had added* (`subtracted afterwards`): The later parts have read it by then.
# - *Stop at the part* (`stops there`): The others still add.
# - *if out* (`the first stays`): 0 is a number, and False.
#
# **Cut if short.** The lengths; keep the picture and the view.
#
# **Tried.** Five sets of 20 new stories, loss 0.82 to 0.83. Without attention of block 0 2.79 to 2.95, of block 1 1.84 to 1.99, of block 2 1.42 to 1.53; without the feed-forwards 1.05 to 1.09, 0.82 to 0.83 (as good as with it) and 0.99 to 1.01. Without a plus sign alone 2.07 to 8.06, and always at least 1 more than without the part. The last feed-forward adds 1.56 to 1.61 lengths of the stream, the others 0.15 to 0.55. *In the* and *By the* after two sentences of 60 new stories, half of the sum of the differences of the probabilities: 1.00 in all, without any other part at least 0.99, without attention of block 0 a median of 0.01 to 0.04 (0.00 to 0.89). The two names before *thanked* in 40 new stories: 1.00 in all, without attention of block 0 still 1.00 (37 of 40 over 0.9), of block 1 0.00, other parts 0.99 to 1.00. *Needed least* holds for a part that adds 0: with its mean over all texts and positions in its place, the last feed-forward gives 10.7, the other parts 0.83 to 2.71.

# %% [markdown]
# ## 4. The stream is a sum
# The vector that runs past all parts is the **residual stream** ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)). It is like a page on which everyone writes: all parts read it, and each adds something. `capture` keeps what each part of the shipped model returned:

# %% evidence="stream-is-a-sum" tried="exact" deck="The stream is the embedding plus what each part adds"
from tinylm_classroom import capture, check, hint, keep

first = 200  # try 300
ids = stacks.new_stories(tokenizer, first)  # (B, T), the first 80 tokens
caught = capture(model, ids)
stream, lengths = caught.outputs["embed"], {}  # (B, T, C)
for i in range(3):
    for part, name in (("attention", "attention"), ("ffn", "feed-forward")):
        # ESSENTIAL
        made = caught.outputs[f"blocks.{i}.{part}"]  # (B, T, C)
        ratio = made.norm(dim=-1) / stream.norm(dim=-1)  # (B, T)
        lengths[i, name] = ratio.median().item()
        stream = stream + made  # (B, T, C)
        # END
        print(f"block {i}: {name} adds {lengths[i, name]:.2f} lengths of the stream")
torch.testing.assert_close(stream, caught.inputs["final_norm"])

# %% [markdown]
# So the stream is a sum: the embedding, and six additions. [[stream-is-a-sum]] From a sum one can take a term.
#
# ### Your turn: leave one part out
# What would the stream be if one part had never added anything? The parts come in a list, in the order in which they add.


# %% tags=["exercise"] name="stream_without" minutes=9 difficulty=2 deck="Your turn: leave one part out"
def stream_without(x, parts, out=None):
    """x of any dims, usually (..., T, C): the stream at its start. Each part
    takes the stream as it is then, and its result is added to it.

    Returns the stream after all parts but number `out`, counted from 0,
    which is not called. The later parts read the stream without its addition.
    With a number, one part is missing; with out=None no part is left out.
    The result is in the shape and dtype of x. x itself is left as it is,
    and gradients flow back to it.
    """
    # SOLUTION
    for i, part in enumerate(parts):
        if i != out:
            x = x + part(x)
    return x
    # END


# %% tags=["check"]
if check("stream_without", stream_without).passed:
    keep("stream_without", stream_without)
    for out in (None, 0, 3):
        loss = stacks.loss_after(model, ids, stream_without, out)
        print(f"first 80 tokens, part {out} left out: loss {loss:.2f}")

# %% slide="skip"
hint("stream_without")

# %% [markdown] tags=["solution"]
# One loop. Common mistakes: all parts add, and one addition is subtracted at the end, although the later parts have read it; every part reads the start; `if out and i == out`, which leaves nothing out for 0; and `x += ...`, which changes the caller's tensor.

# %%
sets = [ids, *(stacks.new_stories(tokenizer, first) for first in (300, 400))]
removed = torch.tensor([stacks.without_each(model, each) for each in sets])  # (3, 6)
signless = [stacks.without_each(model, each, plus_alone=True) for each in sets]
whole = stacks.loss_with_block(model, ids, stacks.pre_norm)

# %% tags=["source-hidden"] deck="We remove one of the six parts. Which one is needed most?"
predict(
    "The feed-forward of block 2 adds the longest vector. We remove one of the six parts. Which one does the model need most?",
    key=lambda: "attention of block 0" if removed[0].argmax() == 0 else "the attention of block 2",
    choices={
        "the feed-forward of block 2": "Its addition is longer than the stream. But only the last norm and the head read it.",
        "the attention of block 2": "It is the last one that looks back, but it finds only what earlier parts brought in.",
        "attention of block 0": "",
    },
    because="Through it the later parts know what stands before a word like *the*. The view below shows it.",
)

# %% tags=["source-hidden"] deck="The longest addition is among the least needed"
figures.parts([f"{i}: {name}" for i, name in lengths], list(lengths.values()), whole, removed, torch.tensor(signless))

# %% tags=["source-hidden"] evidence="parts-removed" tried="held-out"
# Checked in three sets of new stories.
assert max(lengths, key=lengths.get) == (2, "feed-forward") and (removed.argmax(1) == 0).all()
assert (removed[:, 5] < whole + 0.4).all() and (removed[:, 0] > whole + 1.5).all()
assert (torch.tensor(signless) > removed + 0.8).all()

# %% [markdown]
# Five parts are needed roughly in the order of their lengths. The longest is the exception, so length alone does not say how important a part is. And it is better to remove a part than its plus sign alone: then all that was in the stream before is lost. [[parts-removed]]
#
# Why is the attention of block 0 needed most? Here it is stopped: it adds 0. What does the model say after *In the*? **Your task:** exchange *In* for *By*. Then stop another part instead.

# %% tags=["source-hidden"] deck="Task: without the attention of block 0, exchange In for By"
from tinylm_classroom import what_if

basket = "\nOne sunny day, patient Yuki ran to Hillcrest. There she met Tom, a carpenter with a yellow basket. In the"
what_if(model, tokenizer, basket, "stop 0 attention")

# %% tags=["source-hidden"] evidence="word-before" tried="held-out"
# Checked in 30 and 10 new stories: half of the sum of the differences.
for stop in [(i, part) for i in range(3) for part in ("attention", "ffn")]:
    apart = torch.tensor(stacks.told_apart(model, tokenizer, 300, [stop], n=30))  # (30)
    assert apart.median() < 0.2 if stop == (0, "attention") else apart.min() > 0.9
    names = torch.tensor(stacks.names_apart(model, tokenizer, 300, [stop], n=10)).median()
    assert names < 0.1 if stop == (1, "attention") else names > 0.9

# %% [markdown]
# Without this attention the model continues *In the* as it continues *By the*: no other part brings in the word before *the*. (In lesson 08 head 1 of block 2 fed the unit for *In the*, but that head needs this attention: without it the unit hardly reacts.) But which name stands before *thanked* comes in through the attention of block 1. [[word-before]]

# %% [markdown] tags=["note"]
# **Say.** There are two places for the norm. The exercise is the first one, which most language models use. Let students draw the stream first, then write the two lines.
#
# **Usual answers.**
# - *x = norm1(x)* (`normalized stream`): The copy is read, and the stream itself must be kept.
# - *norm1(x + attention(x))* (`post-norm`): That is the lower picture.
# - *The second line starts with x* (`old x`): Then what attention has found never reaches the stream. We train such a model below.
# - *x += ...* (`in place`): It changes the tensor of the caller.
# - *Clearly higher* (`clearly higher`): The feed-forward still reads what attention found, and can pass it on.
# - *It does not fall* (`it does not fall at all`): There is a way through, and all weights get a gradient.
#
# **Cut if short.** The broken block; say its result.
#
# **Tried.** The old x, 2 blocks: after 30 updates nothing can be seen, because a block without attention has the same loss (2.9 to 3.0). After 100, six seeds: right 1.73 to 1.92, stale 1.80 to 1.98, without attention 2.26 to 2.37; after 200 (one seed) 1.56, 1.57 and 2.16; after 300 1.50 and 1.48 against 1.52 and 1.48 (2 blocks), 1.39 and 1.38 against 1.39 and 1.39 (4 blocks). The shipped weights in stale blocks have a loss above 2 in five sets of stories.

# %% [markdown]
# ## 5. The block
# Each part should read vectors of one size (lesson 04). The norm that ensures this can be in two places, **pre-norm** or **post-norm**:

# %% tags=["source-hidden"] rows=["S0-38"] deck="In pre-norm nothing but two plus signs is on the stream"
figures.joins("pre-norm", "post-norm")

# %% [markdown]
# The first Transformer had post-norm ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)). GPT-2 moved the norms to the front (Radford et al. 2019), and Llama has them there, too: then the way of slope 1 leads through the whole model.
#
# ### Your turn: the block
# Write the pre-norm block, with four functions as its parts. Each takes one tensor and returns one of the same shape. (Positions and the mask are inside `attention`.) Call each part once, in the order norm1, attention, norm2, ffn.


# %% tags=["exercise"] name="pre_norm_block" minutes=7 difficulty=2 deck="Your turn: the block"
def pre_norm_block(x, norm1, attention, norm2, ffn):
    """x of any dims, usually (..., T, C). Each part takes one tensor
    and returns one of its shape and dtype.

    attention reads norm1 of the stream, and its result is added to the stream.
    Then ffn reads norm2 of this new stream, and its result is added to it.
    Returns the stream, in the shape and dtype of x. x itself is left as it is,
    and gradients flow back to it.
    """
    # SOLUTION
    h = x + attention(norm1(x))
    return h + ffn(norm2(h))
    # END


# %% tags=["check"]
if check("pre_norm_block", pre_norm_block).passed:
    keep("pre_norm_block", pre_norm_block)
    loss = stacks.loss_with_block(model, ids, pre_norm_block)
    print(f"the shipped model with your block: loss {loss:.2f}")

# %% slide="skip"
hint("pre_norm_block")

# %% [markdown] tags=["solution"]
# The same line twice, and the second one starts from what the first has made. Common mistakes: `x = norm1(x)`, which replaces the stream by the copy; the old `x` in the second line; `norm1(x + attention(x))`, which is post-norm; and `x += ...`, which changes the caller's tensor.

# %% [markdown]
# In the library, attention also gets the positions, and dropout (lesson 08) acts on what each part adds, never on the stream itself.

# %% slide="skip" rows=["S2-6"]
from tinylm_classroom import trace
from tinylm_lib.model import PreNormBlock

show(PreNormBlock)

# %%
from tinylm_lib import preset

one_block = PreNormBlock(preset("cs336", d_model=64, n_heads=4))
x_in, at_32 = torch.randn(4, 32, 64), torch.arange(32)  # (B, T, C), (T)
trace(one_block, x_in, at_32, sizes={"B": 4, "T": 32, "C": 64})

# %% tags=["source-hidden"] rows=["S0-37", "S0-36", "S1-24", "S4-7"]
# Checked: the block by hand, and four published configs of one class.
h_in = x_in + one_block.attention(one_block.attn_norm(x_in), at_32)  # (B, T, C)
torch.testing.assert_close(one_block(x_in, at_32), h_in + one_block.ffn(one_block.ffn_norm(h_in)))
for config in map(preset, ("cs336", "cs190c", "gpt", "tiny_transformer")):
    zeros = torch.zeros(2, 16, config.d_model)  # (B, T, C)
    assert PreNormBlock(config)(zeros, torch.arange(16)).shape == zeros.shape

# %% [markdown]
# ### Break it: the old x
# One letter is wrong in the second block: its last sum starts from `x` instead of `h`. The third has no attention.


# %%
def right_block(x, norm1, attention, norm2, ffn):
    h = x + attention(norm1(x))
    return h + ffn(norm2(h))


def stale_block(x, norm1, attention, norm2, ffn):
    h = x + attention(norm1(x))
    return x + ffn(norm2(h))


def deaf_block(x, norm1, attention, norm2, ffn):
    return x + ffn(norm2(x))


def train_with(block, seed):
    lm = stacks.untrained(V, 2, seed)
    read = stacks.reading_with_block(lm, block)
    return stacks.last_ten(stacks.train(lm, read, tokens, updates=100))


trained = {}
for block in (right_block, stale_block, deaf_block):
    trained[block.__name__] = [train_with(block, seed) for seed in SEEDS]

# %% tags=["source-hidden"] deck="The second sum starts from the old x. How high is the loss?"
predict(
    "Two blocks, 100 updates, three seeds. How does the loss of the stale model compare with that of the right one?",
    key=lambda: "nobody would notice" if max(trained["stale_block"]) < 2.1 else "clearly higher",
    choices={
        "nobody would notice": "",
        "clearly higher": "What attention found is not added to the stream, but the feed-forward still reads it.",
        "it does not fall at all": "There is a way through, and all weights get a gradient.",
    },
    because="The feed-forward still reads h, so the model learns to pass on what attention found.",
)

# %% deck="No error, and nearly the same loss"
# ESSENTIAL
for name, found in trained.items():
    print(f"{name:<11} trained:", *(learned(loss, 1.4, 5) for loss in found))
# END
of_shipped = []
for block in (right_block, stale_block):
    of_shipped.append(stacks.loss_with_block(model, ids, block))
    print(f"shipped model with {block.__name__}: {of_shipped[-1]:.2f}")

# %% tags=["source-hidden"] evidence="stale-block" tried="seeds"
# Checked: with each seed, and the shipped weights.
for right, late, deaf in zip(*trained.values(), strict=True):
    assert abs(late - right) < 0.2 < deaf - late and of_shipped[1] > of_shipped[0] + 1

# %% [markdown]
# No error, and nearly the same loss: the feed-forward passes on what attention found. But the shipped weights have a much higher loss in stale blocks. [[stale-block]]

# %% [markdown] tags=["note"]
# **Say.** The plus sign alone makes 24 blocks learn, slowly. A second idea makes them learn well: let each block change the stream only a little at first.
#
# **Usual answers.**
# - *Why not normalize what is added, too?* (from the room): Some models do. It is a fair answer to the growing stream.
# - *Then start the maps at 0* (from the room): One can. Its gradient is what it reads, times what comes back along the stream, and neither is 0.
#
# **Cut if short.** The sum of directions; say the root.
#
# **Tried.** 24 blocks, rate 0.01, 30 updates: eight seeds: usual weights 4.5 to 4.9, divided by the root 3.3 to 4.2, ahead by 0.5 to 1.5 with each; 16 blocks 4.1 to 4.5 and 3.2 to 3.3; 16 blocks at 0.003 4.52 and 3.44. The stream of 24 pre-norm blocks grows 3.9 to 4.3 times with SwiGLU, 4.1 to 4.5 times with GELU, 1.08 to 1.09 times with the smaller weights; in post-norm its standard deviation stays at 0.99 to 1.00 (three seeds each).

# %% [markdown]
# ## 6. Dozens of layers
# 24 blocks make 48 additions to the stream. If 48 vectors of length 1 point anywhere, how long is their sum?

# %% deck="48 vectors of length 1, in any directions: how long is the sum?"
n = 48  # try 12 and 192
directions = torch.randn(n, 1000, generator=torch.Generator().manual_seed(0))  # (n, C)
together = (directions / directions.norm(dim=-1, keepdim=True)).sum(0)  # (C)
print(f"sum of {n}: length {together.norm():.1f}; root of {n}: {n**0.5:.1f}")

# %% [markdown]
# Variances add up (lesson 02), so the sum grows like the root. The stream of an untrained pre-norm model grows, and what late blocks add counts less and less. GPT-2 therefore draws the maps that *write into the stream* smaller by $\sqrt{2L}$ for $L$ blocks (Radford et al. 2019). Does that help?

# %% deck="24 blocks with smaller initial weights: they learn faster"
deep = {}
for name, factor in (("the usual weights", 1.0), ("divided by the root", 48**-0.5)):
    # ESSENTIAL
    deep[name] = []
    for seed in SEEDS:
        lm = stacks.smaller(stacks.untrained(V, 24, seed), factor)
        deep[name].append(stacks.last_ten(stacks.train(lm, lm, tokens)))
    # END
    print(f"24 blocks, {name}: loss", *(learned(loss, 2.5, 6) for loss in deep[name]))

# %% tags=["source-hidden"] evidence="deeper" tried="seeds"
# Checked: with each seed, and by more in the mean.
gains = [usual - small for usual, small in zip(*deep.values(), strict=True)]
assert min(gains) > 0.15 and sum(gains) / len(gains) > 0.5

# %% tags=["source-hidden"] rows=["S4-43"] evidence="stream-grows" tried="seeds"
# Checked: with each seed, how the standard deviation of the stream grows in 24 blocks.
usual, small, post = ([stacks.growth(V, seed, *how) for seed in SEEDS] for how in ((), (48**-0.5,), (1.0, "post_norm")))
assert min(usual) > 2.5 and max(small) < 1.3 and max(abs(each - 1) for each in post) < 0.1

# %% [markdown]
# With smaller weights the stream hardly grows at first, while with the usual ones it becomes several times as large; in post-norm it stays, because a norm is on it. [[stream-grows]] And with each seed they have the lower loss after as many updates. [[deeper]] So the answer to our question has two parts: a plus sign at every part, and blocks that change the stream only a little at first.

# %% [markdown] tags=["note"]
# **Say.** The whole lesson is two lines of code, and the reason for their two plus signs.
#
# **Ask.** At the door: "Name one thing that the plus sign keeps on the way forward, and one on the way back."
#
# **Usual answers.**
# - *It keeps the gradient from vanishing* (from the room): Here it exploded in one chain and did neither in the other, and both failed. How far did it hold?
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="A plus sign keeps the word, and lets steps be longer"
# ## What you have now
# - A residual connection adds a part's result to the vector. With it 24 blocks learn at once; without it 8 learned only the word frequencies in 1,000 updates. [[plus-learns]]
# - In a chain, averaging makes positions alike, and a word is lost from its own vector. A chain that reads each word alone learns first. [[own-word-lost]]
# - If each part adds, one way back passes no part and has the slope 1. [[a-way-of-slope-1]]
# - The size of the gradients is not the reason: a chain with GELU keeps it, and at 0.01 it fails all the same. [[size-is-not-enough]]
# - With the plus sign a gradient holds for much longer steps. [[limit-moves]]
# - So it learns at larger learning rates. [[rates-move]]
# - In pre-norm the stream is a sum: the embedding plus what each part added. [[stream-is-a-sum]]
# - The longest addition of the shipped model is among the least needed. [[parts-removed]]
# - The attention of block 0 is needed most. After *the*, it alone tells *In* and *By* apart. [[word-before]]
# - A block that adds to the old stream raises no error, and its loss is nearly the same after 100 updates. [[stale-block]]
# - With smaller initial weights in the maps that write into the stream, 24 blocks learn faster. [[deeper]]
#
# Next, lesson 10: blocks, embedding and head become a model.

# %% [markdown]
# ## Sources
# - Residual connections: He et al. 2016, [*Deep Residual Learning for Image Recognition*](https://arxiv.org/abs/1512.03385), sections 3 and 4.1. The norm in front: He et al. 2016, [*Identity Mappings in Deep Residual Networks*](https://arxiv.org/abs/1603.05027).
# - The stream: Elhage et al. 2021, [*A Mathematical Framework for Transformer Circuits*](https://transformer-circuits.pub/2021/framework/index.html). The ways through a sum: Veit, Wilber and Belongie 2016, [*Residual Networks Behave Like Ensembles of Relatively Shallow Networks*](https://arxiv.org/abs/1605.06431).
# - Rank collapse: Dong, Cordonnier and Loukas 2021, [*Attention is Not All You Need: Pure Attention Loses Rank Doubly Exponentially with Depth*](https://arxiv.org/abs/2103.03404). Shattered gradients: Balduzzi et al. 2017, [*The Shattered Gradients Problem: If resnets are the answer, then what is the question?*](https://arxiv.org/abs/1702.08591)
# - Post-norm: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.1. Both: Xiong et al. 2020, [*On Layer Normalization in the Transformer Architecture*](https://arxiv.org/abs/2002.04745).
# - Pre-norm and scaled initial weights in GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.3.
