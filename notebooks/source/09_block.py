# %% [markdown] slide="slide"
# # 09 Block
# **How can dozens of layers be stacked so that the model still learns?**
#
# *Needs* lessons 04, 05, 07 and 08. *Builds* `PreNormBlock` in `model.py`. *Runs* in about 45 s on two cores.
# *Teaches* in about 67 minutes, plus 7 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: each part of a layer adds to a vector instead of replacing it, so that a word is not lost on the way forward and a gradient is not lost on the way back.
# Sections 1 to 5 are the core, with the exercise at the end of section 5. Section 6 compares pre-norm and post-norm, section 7 removes the last norm of the shipped model, section 8 breaks the block on purpose, and section 9 helps those who build deeper models.
# If you have only ten minutes, show the picture of section 1, vote on the prediction of section 2, and draw the block of section 5.
# Before the class: run all cells once, and try the control of section 3 with 0.75 and with 1.25.

# %% slide="skip"
from functools import partial

import torch
from matplotlib import pyplot as plt
from torch.nn.functional import cross_entropy

from tinylm_lib import ModelConfig, TransformerLM, storyworld
from tinylm_classroom import figures, learned, predict
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** You have built all the parts. Today we only decide how to connect them, and it comes down to one plus sign. Do not explain yet why it works; let the class make guesses, write them on the board, and test them in sections 2 and 3.
#
# **Draw.** One block as two boxes, attention and feed-forward, and a long arrow through five such blocks. Next to it the same with an arrow that runs past every box, and a plus sign where each box joins it.
#
# **Ask.** Before the prediction: "Every part is fine on its own, and each one reads a normalized vector. What could go wrong if you put eight of them one after the other?" Collect the answers.
#
# **Usual answers.**
# - *All depths* (`16`): The norms keep the vectors at one size, so why should it fail? Sections 2 and 3 find two reasons.
# - *A deeper chain learns later* (from the room): It might. The picture is about 30 updates, and section 2 tries a smaller learning rate and some more updates.
#
# **Cut if short.** The second kind of feed-forward; say that it fails as well.

# %% [markdown] slide="slide"
# ## 1. One sign
# You have built two parts: attention fetches from other positions, and the feed-forward works on each position. A **block**, also called a *layer*, is one of each. Models have dozens of blocks, each of which reads what the one before returns. Can they be stacked like that?

# %% [markdown] slide="subslide"
# Each part reads a normalized copy of a vector (lesson 04) and returns a new vector. What becomes of the two? We try two answers: the result **replaces** the vector, or it is **added** to it.


# %%
def replace(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return made


# %%
def add(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return x + made


# %% [markdown] slide="subslide"
# The vectors run through all blocks, and `join` is one of the two functions. The parts are those of the library, and they are untrained.


# %%
def vectors(lm: TransformerLM, join, ids: torch.Tensor) -> list[torch.Tensor]:
    """The vectors (B, T, C) of a text: the embeddings, and what leaves each block."""
    x = lm.embed(ids)  # (B, T) -> (B, T, C)
    positions = torch.arange(ids.shape[1])  # (T)
    found = [x]
    for block in lm.blocks:
        x = join(x, block.attention(block.attn_norm(x), positions))  # (B, T, C)
        x = join(x, block.ffn(block.ffn_norm(x)))  # (B, T, C)
        found.append(x)
    return found


# %%
def logits_of(lm: TransformerLM, join, ids: torch.Tensor) -> torch.Tensor:
    return lm.lm_head(lm.final_norm(vectors(lm, join, ids)[-1]))  # (B, T, V)


# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
texts = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(100)]
tokens = torch.tensor(tokenizer.encode("\n" + "\n".join(texts)))


# %% slide="skip"
def untrained(n_blocks: int, seed: int, **choices) -> TransformerLM:
    """A model with new weights. `cs336` draws them as in lesson 02."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 64, "n_layers": n_blocks, "tie_embeddings": False}
    return TransformerLM(ModelConfig(**{**sizes, "init": "cs336", **choices}))


# %%
def train(lm: TransformerLM, read, rate: float = 0.01, updates: int = 30, warmup: int = 1) -> float:
    """The mean loss of the last 10 updates. read(ids) returns logits; the rate rises during the warm-up."""
    optimizer = torch.optim.Adam(lm.parameters(), fused=True)  # lesson 11
    losses = []
    # ESSENTIAL
    for update in range(1, updates + 1):
        starts = torch.randint(len(tokens) - 16, (8,)).tolist()
        batch = torch.stack([tokens[start : start + 17] for start in starts])  # (8, 17)
        loss = cross_entropy(read(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = rate * min(1, update / warmup)
        optimizer.step()
        losses.append(loss.item())
    # END
    return sum(losses[-10:]) / 10


# %% [markdown] slide="subslide"
# We train models of 1 to 16 blocks on stories, each for 30 updates. For comparison we take a reader that ignores the text and knows only how frequent each word is:

# %%
frequency = tokens.bincount() / len(tokens)  # (V)
entropy = -torch.xlogy(frequency, frequency).sum().item()
print(f"loss of a reader that knows only the word frequencies: {entropy:.2f}")


# %% slide="skip"
@torch.no_grad()
def smaller(lm: TransformerLM, factor: float) -> TransformerLM:
    """The model with its maps into the stream, the last of each part, multiplied by this factor."""
    for block in lm.blocks:
        block.attention.o_proj.weight.mul_(factor)
        block.ffn.down_proj.weight.mul_(factor)
    return lm


# %% slide="skip"
depths = [1, 2, 4, 8, 16]
by_depth = {}  # a loss for each depth
for name, join in (("replaced", replace), ("added", add), ("added, smaller", add)):
    fresh = [untrained(n_blocks, 1) for n_blocks in depths]
    if name == "added, smaller":  # section 9 explains this factor
        fresh = [smaller(lm, (2 * len(lm.blocks)) ** -0.5) for lm in fresh]
    by_depth[name] = torch.tensor([train(lm, partial(logits_of, lm, join)) for lm in fresh])

# %% tags=["source-hidden"]
good_depths = [n for n, each in zip(depths, by_depth["replaced"], strict=True) if each < entropy - 0.4]
predict(
    "Each result replaces the vector. How many blocks can you stack so that the loss is clearly below that of the word frequencies after 30 updates?",
    key=lambda: str(max(good_depths)),
    choices={
        "1": "",
        "4": "Each part works well alone. But what is left of a word after eight parts have replaced it?",
        "16": "The norms keep the vectors at one size. Is the size all that can be lost?",
    },
    because="From two blocks on, the loss is near that of the word frequencies.",
)

# %% tags=["signature", "source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10.4, 5.6), layout="constrained")
at_depth = list(range(len(depths)))
ax.axhline(entropy, color=figures.QUIET, linestyle=":", linewidth=2.5)
ax.text(4.15, entropy - 0.16, "only word frequencies", color=figures.QUIET, size=17, ha="right")
styles = ((figures.SERIES[1], "o-", 5), (figures.SERIES[0], "o-", 5), (figures.SERIES[0], "--", 3))
for each, (hue, dash, width) in zip(by_depth.values(), styles, strict=True):
    ax.plot(at_depth, each, dash, color=hue, linewidth=width, markersize=12)
ax.text(1.06, 4.55, "x  becomes  f(x)", color=figures.SERIES[1], size=23, weight="bold")
ax.text(0.45, 3.5, "x  becomes  x + f(x)", color=figures.SERIES[0], size=23, weight="bold")
ax.text(1.9, 2.62, "the same, smaller first weights", color=figures.SERIES[0], size=18)
ax.set_xticks(at_depth, [str(n) for n in depths], size=18)
ax.tick_params(axis="y", labelsize=16)
ax.set(xlim=(-0.2, 4.2), ylim=(2.5, 5.5))
ax.set_title("One plus sign", size=26)
ax.set_xlabel("blocks, one after the other", size=19)
ax.set_ylabel("loss after 30 updates", size=19)
means = {f"loss, {name}": [learned(v, 2.4, 5.7) for v in each.tolist()] for name, each in by_depth.items()}
figures.display(
    fig, alt="Line chart. With replacing, the loss is near the word frequencies from 2 blocks on. With adding it is below them at all depths, and with smaller first weights it stays low.",
    caption="Models of 1 to 16 blocks after 30 updates. f is a part together with its norm. The two thick lines have the same parts and the same first weights.",
    table={"blocks": depths, **means},
)  # fmt: skip

# %% [markdown] slide="subslide"
# One plus sign decides. Is that a peculiarity of one recipe? We repeat it for 8 blocks with another seed, with another feed-forward of lesson 08, and with a smaller learning rate:

# %% evidence="plus-learns"
for ffn, rate in (("swiglu", 0.01), ("gelu", 0.01), ("swiglu", 0.003)):
    after_30 = []
    for join in (replace, add):
        fresh = untrained(8, 3, ffn=ffn)
        after_30.append(train(fresh, partial(logits_of, fresh, join), rate))
    both = [learned(loss, 2.5, 5.6) for loss in after_30]
    print(f"8 blocks, {ffn:<6} rate {rate:<5} loss if replaced {both[0]}, if added {both[1]}")
    assert after_30[0] > entropy > after_30[1] + 0.4
assert (by_depth["replaced"][2:] > entropy).all() and (by_depth["added"] < entropy - 0.4).all()

# %% [markdown]
# Without the plus sign, 4 blocks or more learned nothing beyond the word frequencies in these 30 updates. With it, every depth learned more. [[plus-learns]] A part that adds to its input has a **residual connection**, also called a *skip connection* ([He et al. 2016](https://arxiv.org/abs/1512.03385)).

# %% [markdown] slide="say"
# This failure should surprise you. A deeper model can be at least as good as a shallow one on the training text, because its additional blocks only have to do nothing. But without a plus sign, doing nothing means to copy the vector through attention and feed-forward exactly, and that has to be learned. With it, a block does nothing if its last maps are 0. So the question is not what a deep model can express, but what training finds.

# %% [markdown] slide="say"
# (The thick line of adding rises with the depth, too. For the dashed line the first weights of some maps were made smaller. Sections 6 and 9 come back to that.)

# %% [markdown]
# Why does it work? There are two suspects: something is lost on the way **forward**, or something is lost on the way **back**.

# %% [markdown] tags=["note"]
# **Say.** First suspect: the way forward. We measure how similar the vectors of different positions become. Then comes the test that decides: if attention's averaging is the cause, a chain that cannot average must learn.
#
# **Draw.** Four words with four arrows of different directions. Below them the same four after averaging once and twice: the arrows turn to one direction.
#
# **Ask.** The prediction. Before the answer, ask which of the two models has more information. (The one that reads texts, and yet it loses.)
#
# **Usual answers.**
# - *Texts, because the model knows more* (`whole texts`): It could know more, if its own word were not averaged away.
# - *Both learn nothing* (`neither learns`): Then averaging would not be the cause. The experiment decides.
# - *The norm makes the vectors equal* (from the room): It makes their sizes equal, not their directions. The chain that reads words alone has the same norms.
#
# **Cut if short.** The picture; say its result, and keep the prediction.

# %% [markdown] slide="slide"
# ## 2. Lost on the way forward
# Attention returns a weighted average of values (lesson 05). If it *replaces* the vector, a position keeps of its own word only what the average contains. After many averages all positions might look alike. We measure it: the mean **cosine** between the vectors of two positions of a text is 1 if all point in one direction.


# %%
def likeness(x: torch.Tensor) -> float:
    """The mean cosine between the vectors (..., T, C) of two different positions."""
    units = x / x.norm(dim=-1, keepdim=True)
    cosines = units @ units.mT  # (..., T, T)
    n = cosines.shape[-1]
    return ((cosines.sum((-2, -1)) - n) / (n * (n - 1))).mean().item()


# %% [markdown] slide="subslide"
# Besides whole texts, an untrained model reads each word **alone**, as a text of its own. There attention has nothing to average, and everything else is the same.

# %% slide="skip"
eight_texts = tokens[: 8 * 32].view(8, 32)  # (8, 32)
likely = {}  # how alike the vectors are: the embeddings, and what leaves each block
for name, join in (("texts, replaced", replace), ("alone, replaced", replace), ("texts, added", add)):
    read = eight_texts.reshape(-1, 1) if name.startswith("alone") else eight_texts  # (256, 1) or (8, 32)
    found = []
    for seed in range(3):
        with torch.no_grad():
            found.append([likeness(x.view(8, 32, -1)) for x in vectors(untrained(8, seed), join, read)])
    likely[name] = torch.tensor(found).mean(0)  # (9)

# %% tags=["source-hidden"] slide="subslide" evidence="positions-alike"
fig, ax = plt.subplots(figsize=(9.6, 4.7), layout="constrained")
for (name, each), hue in zip(likely.items(), (figures.SERIES[1], figures.SERIES[2], figures.SERIES[0]), strict=True):
    ax.plot(range(9), each, "o-", color=hue)
    ax.text(8.2, each[-1], name, color=hue, va="center")
ax.set(title="Do the positions become alike?", xlabel="after how many blocks", ylabel="mean cosine")
ax.set(xlim=(0, 11), ylim=(-0.03, 1.03), xticks=range(9))
figures.display(
    fig, alt="Line chart over 8 blocks. Replaced in texts: the cosine rises towards 1. Read alone it stays near 0, added in texts below a half.",
    caption="The mean cosine between two positions of untrained models, mean of 3 seeds. Where each word is read alone, we compare the words of the same texts.",
    table={"blocks": list(range(9)), **{name: each.tolist() for name, each in likely.items()}}, digits=2,
)  # fmt: skip
assert likely["texts, replaced"][-1] > 0.75 and likely["alone, replaced"].max() < 0.2
assert likely["texts, added"][-1] < 0.55

# %% [markdown]
# In texts, and without the plus sign, the positions become more and more alike. When each word is read alone they do not, so the averaging of attention makes them alike. With the plus sign it happens far less. [[positions-alike]] This is called **rank collapse** ([Dong et al. 2021](https://arxiv.org/abs/2103.03404)).

# %% [markdown] slide="subslide"
# ### Is that the reason?
# So far we have only watched. If the averaging is the reason why the chain does not learn, then it should learn when it reads each word alone, although it then knows much less. We train 4 blocks without plus signs in both ways, with a rate of 0.001 and for 40 updates.


# %%
def logits_alone(lm: TransformerLM, join, ids: torch.Tensor) -> torch.Tensor:
    """The same logits (B, T, V), but each word is read as a text of its own."""
    return logits_of(lm, join, ids.reshape(-1, 1)).view(*ids.shape, -1)


# %% slide="skip"
chains = {}  # the losses for two seeds
for name, reads in (("whole texts", logits_of), ("words alone", logits_alone)):
    fresh = [untrained(4, seed) for seed in (1, 2)]
    chains[name] = [train(lm, partial(reads, lm, replace), rate=0.001, updates=40) for lm in fresh]

# %% tags=["source-hidden"]
text_loss, alone_loss = (max(chains[name]) for name in chains)
predict(
    "4 blocks without a plus sign. One model reads whole texts, one reads each word alone. Which one learns more than the word frequencies?",
    key=lambda: "each word alone" if alone_loss < entropy - 0.3 < text_loss else "something else",
    choices={
        "whole texts": "They contain more, but at each position the word itself is averaged away.",
        "each word alone": "",
        "neither learns": "Nothing is averaged when a word is read alone. What, then, should stop this model?",
    },
    because="Alone, a word cannot be averaged away, so the model learns which word follows which.",
)

# %% slide="subslide" evidence="own-word-lost"
for name, losses in chains.items():
    print(f"4 blocks, replaced, {name:<12} loss", *(learned(loss, 3, 5.6) for loss in losses))
assert min(chains["whole texts"]) > entropy - 0.2
assert max(chains["words alone"]) < entropy - 0.4

# %% [markdown]
# The chain that sees **less** learns more. So averaging is a reason why the chain fails on texts. [[own-word-lost]] The plus sign keeps the word, because whatever attention adds, the vector that was there is still in the sum.

# %% [markdown] slide="subslide"
# Is it the only reason? We train 8 blocks on words alone at the rate of section 1, 0.01, with both kinds of feed-forward, and once at a tenth of this rate:

# %% evidence="not-only-averaging"
tried = ((replace, "swiglu", 0.01, 30), (replace, "gelu", 0.01, 30))
tried += ((add, "swiglu", 0.01, 30), (replace, "swiglu", 0.001, 60))
for join, ffn, rate, updates in tried:
    fresh = untrained(8, 1, ffn=ffn)
    loss_alone = train(fresh, partial(logits_alone, fresh, join), rate, updates)
    how = f"{join.__name__:<7} {ffn:<6} rate {rate:<5} {updates} updates"
    print(f"8 blocks, words alone, {how}: loss {learned(loss_alone, 2.5, 5.6)}")
    if join is replace and rate == 0.01:
        assert loss_alone > entropy - 0.3
    else:
        assert loss_alone < entropy - 0.5

# %% [markdown]
# No. At the rate 0.01 these longer chains learn hardly anything, without any averaging. With the plus sign the model learns at this rate, and at the rate 0.001 the chain learns, too. [[not-only-averaging]] So there is a second reason, and we look for it on the way back.

# %% [markdown] tags=["note"]
# **Say.** Second suspect: the way back. In a chain the slopes multiply, and a product of many factors is rarely near 1. Let the room multiply 0.5 by itself ten times (about a thousandth). Be strict at the end of the section: gradients of a good size are not enough, as the control shows.
#
# **Draw.** Three boxes in a row with the slopes 0.5, 0.2 and -0.3, and the gradient that comes back. Then the arrow that runs past each box, and all eight ways from one end to the other.
#
# **Ask.** Before the first prediction: "Who has read that deep networks have *vanishing* gradients?" Before the second: "Multiply out (1 + a)(1 + b)(1 + c). Which term passes no part?"
#
# **Usual answers.**
# - *The first block's gradient is much smaller* (`much smaller`): A product can go both ways, and in these blocks it explodes.
# - *About as large, because of the norms* (`about as large`): They keep the size of the vectors on the way forward. The slopes on the way back multiply all the same.
# - *-0.03* (`-0.03`): That was the chain. With adding, each factor is 1 + slope.
# - *0.4* (`0.4`): That is the sum of the slopes. The factors are 1 + slope, and they multiply.
# - *Keeping 0.75 is nearly as good as keeping 1* (from the room): Sixteen parts keep 0.75 to the power of 16, which is a hundredth.
#
# **Cut if short.** The eight ways; keep the formula.

# %% [markdown] slide="slide"
# ## 3. Lost on the way back
# By hand: one number, and three parts that multiply it by their slopes. How large is the gradient that comes back?

# %% slide="skip"
import math

from tinylm_classroom import control, rounded

# %%
slopes = [0.5, 0.2, -0.3]


def gradient_at_start(adds: bool) -> float:
    begin = torch.tensor(1.0, requires_grad=True)
    number = begin
    for slope in slopes:
        number = number + slope * number if adds else slope * number
    number.backward()
    return begin.grad.item()


# %%
print(f"the gradient that arrives, if each part replaces: {gradient_at_start(adds=False):.2f}")

# %% [markdown]
# That is $0.5 \cdot 0.2 \cdot (-0.3)$. By the **chain rule**, the slopes of a chain multiply.

# %% [markdown] slide="subslide"
# A product of many factors seldom stays near 1. Here are 24 equal ones:

# %% evidence="equal-slopes"
for slope in (0.5, 0.9, 1.1, 1.5):
    print(f"24 parts of slope {slope}: {rounded(slope**24, 2)}")
assert 0.5**24 < 1e-6 and 1.5**24 > 1e4

# %% [markdown]
# With slopes of a size below 1 the gradient **vanishes**, and above 1 it **explodes**. [[equal-slopes]] Which of the two happens in our blocks? We stack 24 and measure the gradient of each block's weights. As in the library, blocks are counted from 0, so the last one is block 23.


# %% slide="skip"
def block_gradients(lm: TransformerLM, join) -> list[float]:
    """The norm of the gradient of each block's weights, for one batch of random tokens."""
    some, after = torch.randint(lm.config.vocab_size, (2, 4, 32))  # each (4, 32)
    cross_entropy(logits_of(lm, join, some).flatten(0, 1), after.flatten()).backward()
    return [torch.cat([p.grad.flatten() for p in block.parameters()]).norm().item() for block in lm.blocks]


# %% slide="skip"
def gradients_of_24(join, **choices) -> torch.Tensor:
    """For three seeds: (3, 24)."""
    return torch.tensor([block_gradients(untrained(24, seed, **choices), join) for seed in range(3)])


# %% slide="skip"
replaced, added = gradients_of_24(replace), gradients_of_24(add)

# %% tags=["source-hidden"]
how_large = (replaced[:, 0].mean() / replaced[:, -1].mean()).item()
predict(
    "24 blocks, and each result replaces the vector. How large is the gradient of block 0, the first one, compared with that of block 23?",
    key=lambda: "much larger" if how_large > 10 else "much smaller" if how_large < 0.1 else "about as large",
    choices={
        "much smaller": "It would be if the slopes were below 1.",
        "about as large": "The norms keep the size of the vectors on the way forward, but on the way back the slopes multiply.",
        "much larger": "",
    },
    because="On its way to block 0 the gradient passes all the others, and each of them multiplies it by more than 1 on average.",
)

# %% slide="subslide" evidence="slopes-multiply"
for block_number in (23, 16, 8, 0):
    each = learned(replaced[:, block_number].mean().item(), 1, 100_000)
    print(f"block {block_number:>2}: gradient {each}")
assert (replaced[:, 0] > 100 * replaced[:, -1]).all()  # for each seed

# %% [markdown]
# It **explodes**: it grows several thousand times from the last block to the first. [[slopes-multiply]] The norms do not prevent this, because they keep the size of the vectors, not of the gradients. (He et al. 2016, whose chains had BatchNorm (lesson 04), considered vanishing gradients an unlikely cause of their difficulty.)

# %% [markdown] slide="subslide"
# And with the plus sign? The slope of $x + f(x)$ is
#
# $$\frac{d}{dx}\bigl(x + f(x)\bigr) = 1 + \frac{df}{dx}$$

# %% tags=["source-hidden"]
predict(
    "The same three parts, with the slopes 0.5, 0.2 and -0.3, but now each adds. We move x a little. How many times as far does the end move?",
    key=lambda: gradient_at_start(adds=True),
    number="times",
    within=0.02,
    feedback={
        -0.03: "That was the chain. Now each factor is 1 + slope.",
        1.4: "That is 1 plus all slopes. The factors 1 + slope multiply.",
        0.4: "That is the sum of the slopes. The factors are 1 + slope, and they multiply.",
    },
    because="1.5 times 1.2 times 0.7.",
)

# %% slide="subslide" evidence="a-way-of-slope-1"
a, b, c = slopes
ways = {"past all three": 1, "through one": a + b + c, "through two": a * b + a * c + b * c, "through all": a * b * c}
for way, slope in ways.items():
    print(f"{way:<15} {slope:+.2f}")
print(f"{'the gradient':<15} {gradient_at_start(adds=True):+.2f}")
assert math.isclose(gradient_at_start(adds=True), sum(ways.values()), rel_tol=1e-5)

# %% [markdown]
# Multiply out $(1+a)(1+b)(1+c)$: each term is one way back from the end, eight in all ([Veit et al. 2016](https://arxiv.org/abs/1605.06431)). The chain had only the last one. Now there is one that **passes no part at all**, and its slope is 1, however many blocks there are. [[a-way-of-slope-1]]


# %% tags=["source-hidden"] slide="subslide" evidence="adding-keeps"
few = [0, 5, 11, 17, 23]
fig, ax = plt.subplots(figsize=(9.6, 4.8), layout="constrained")
for each, name, hue in ((replaced, "replaced", figures.SERIES[1]), (added, "added", figures.SERIES[0])):
    ax.fill_between(range(24), each.amin(0), each.amax(0), color=hue, alpha=0.2, linewidth=0)
    ax.plot(range(24), each.mean(0), "-", color=hue)
    ax.text(1, each[:, 1].mean() * (0.2 if name == "replaced" else 2), name, color=hue, weight="bold")
ax.set(title="The gradient travels from right to left", xlabel="block", ylabel="gradient", yscale="log")
ax.set_yticks([0.1, 1, 10, 100, 1000, 10000], ["0.1", "1", "10", "100", "1000", "10000"])
figures.display(
    fig, alt="Line chart, logarithmic. From block 23 to block 0 the replaced gradient grows several thousand times, and the added one less than ten times.",
    caption="24 untrained blocks, mean and range of 3 seeds. Where parts replace the vector, the gradient grows with every block. Where they add, the ends differ by less than a factor of ten.",
    table={
        "block": few,
        "replaced": [learned(value, 1, 100_000) for value in replaced.mean(0)[few].tolist()],
        "added": [rounded(value, 2) for value in added.mean(0)[few].tolist()],
    },
)  # fmt: skip
assert (added[:, 0] < 10 * added[:, -1]).all()

# %% [markdown] slide="subslide"
# ### Is a gradient of the right size enough?
# A counterexample: in the same chain with GELU instead of SwiGLU, the size of the gradient happens to change little.

# %% evidence="size-is-not-enough"
gelu_chain = gradients_of_24(replace, ffn="gelu")  # (3, 24)
for block_number in (23, 0):
    print(f"GELU, replaced, block {block_number:>2}: gradient {gelu_chain[:, block_number].mean():.1f}")
ratio = gelu_chain[:, 0] / gelu_chain[:, -1]  # (3)
assert (ratio < 30).all() and (ratio > 1 / 30).all()

# %% [markdown]
# This gradient neither vanishes nor explodes, and yet the chain with GELU does not learn either when it reads words alone at the rate 0.01 (section 2). So the size of the gradients cannot be the whole second reason. [[size-is-not-enough]]

# %% [markdown] slide="subslide"
# ### A gradient holds only nearby
# A gradient says how the loss changes for *small* steps. How small? We let every weight take one step of 0.001 in the direction that its gradient suggests, and compute the gradient again. If it points in a new direction, the first one was right for less than this step.


# %%
def same_direction(lm: TransformerLM, join) -> float:
    """The cosine between the gradient before and after one small step."""
    batch = tokens[: 8 * 17].view(8, 17)
    found = []
    # ESSENTIAL
    for _ in range(2):
        lm.zero_grad()
        logits = logits_alone(lm, join, batch[:, :-1])  # (8, 16, V)
        cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        found.append(torch.cat([p.grad.flatten() for block in lm.blocks for p in block.parameters()]))
        with torch.no_grad():
            for p in lm.parameters():
                p -= 0.001 * p.grad.sign()
    # END
    return torch.cosine_similarity(*found, dim=0).item()


# %% evidence="gradient-holds" slide="subslide"
for ffn in ("swiglu", "gelu"):
    for join in (replace, add):
        held = torch.tensor([same_direction(untrained(8, seed, ffn=ffn), join) for seed in range(3)])
        low, high = (learned(value, -1, 1) for value in (held.min().item(), held.max().item()))
        print(f"{ffn:<6} {join.__name__:<7} cosine of the two gradients: {low} to {high}")
        assert held.min() > 0.7 if join is add else held.max() < 0.5

# %% [markdown]
# (Words alone, 8 blocks, three seeds.) In the chain the gradient after the step has little to do with the one before it, whatever its size. A likely reason is that the small changes in eight blocks act on each other. With the plus sign the direction stays, with both kinds of feed-forward. [[gradient-holds]]

# %% [markdown] slide="say"
# This is a candidate for the second reason, not a proof: at the rate 0.001 the chain of section 2 did learn when it read words alone, so a gradient that soon turns is not worthless. Gradients that change as strongly from one *input* to the next have been called **shattered** ([Balduzzi et al. 2017](https://arxiv.org/abs/1702.08591)).

# %% [markdown]
# So these chains lost something in both directions, and the plus sign keeps both: the word on the way **forward**, and a reliable gradient on the way **back**.

# %% [markdown] slide="subslide"
# How exact must it be? Between replacing and adding there is everything else: **keep** a part of the vector, and add the result. The control trains 8 blocks and measures the gradients of 24.


# %% slide="skip"
def after_keeping(factor: float, seed: int) -> float:
    lm = untrained(8, seed)
    return train(lm, partial(logits_of, lm, lambda x, made: factor * x + made))


# %%
def keep_some(factor=1.0):
    # ESSENTIAL
    def join(x, made):
        return factor * x + made

    gradients = gradients_of_24(join).mean(0)
    fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
    ax.plot(range(24), gradients, "-")
    # END
    ax.set(title=f"Keep {factor} of the vector, add the result", xlabel="block", ylabel="gradient", yscale="log")
    ax.set_ylim(1e-6, 1e5)
    reached = learned(after_keeping(factor, 1), 2.5, 5.7)
    caption = f"24 untrained blocks, mean of 3 seeds. After 30 updates 8 such blocks have a loss of {reached}."
    table = {"block": few, "gradient": [learned(value, 0, 1e6) for value in gradients[few].tolist()]}
    figures.display(fig, alt="The gradient of 24 blocks on a logarithmic axis.", caption=caption, table=table)


# %% slide="subslide"
control(keep_some, factor=(0.0, 1.25, 0.25))  # then try 0.75 and 1.25

# %% evidence="keep-exactly" slide="subslide"
for factor in (0.75, 1.25):
    kept_losses = [after_keeping(factor, seed) for seed in (1, 2)]
    of_24 = gradients_of_24(lambda x, made, factor=factor: factor * x + made).mean(0)  # (24)
    losses_text = " and ".join(learned(loss, 2.5, 5.7) for loss in kept_losses)
    first_of_24, last_of_24 = (learned(value, 0, 100) for value in of_24[[0, -1]].tolist())
    print(f"keep {factor:<5} loss {losses_text}, gradient of block 0 {first_of_24}, of block 23 {last_of_24}")
    assert min(kept_losses) > entropy if factor == 0.75 else max(kept_losses) < entropy - 1
assert of_24[-1] < of_24[0] / 1000
print(f"16 parts that keep 0.75 keep together {0.75**16:.2f}")

# %% [markdown]
# With 0.75 the gradients of the first and the last block differ by less than a factor of ten, but the 16 parts of 8 blocks leave only 0.01 of the embedding, and the model does not learn in 30 updates. With 1.25 it learns even faster than with 1, but in 24 such blocks the last ones get next to no gradient: the stream has grown so much that what they add hardly counts. [[keep-exactly]] With exactly 1 the word stays, and every block gets a gradient.

# %% [markdown] slide="say"
# ([He et al. 2016](https://arxiv.org/abs/1603.05027), *Identity Mappings in Deep Residual Networks*, tried a factor of 0.5 and learned gates on the skip, and found the plain sum best for their images.)

# %% [markdown] tags=["note"]
# **Say.** What runs past all parts and is added to is the residual stream. Now look at it in the trained model: it is a plain sum. So we can take one term out of the sum, which nobody could do with a chain.
#
# **Draw.** The stream as a vertical line with seven things written on it: the embedding, and six additions. Strike one out.
#
# **Ask.** After the table of lengths and before the losses: "Which one would you take out first?" Most classes keep the longest.
#
# **Usual answers.**
# - *The last feed-forward, because it adds the longest vector* (`the longest one, of the last feed-forward`): Long is not the same as important. After it comes a norm, and nobody else reads it.
# - *None of them matters, because the others replace it* (`none of them`): That would be an ensemble. Three layers are too few for it.
#
# **Cut if short.** Exchanging whole blocks.

# %% [markdown] slide="slide"
# ## 4. The stream
# The vector that runs past all parts is the **residual stream** ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)). In the shipped model, too, it ends as a plain sum: the embedding, and what each part added. `capture` (lesson 04) keeps what each part returned.

# %% slide="skip"
from tinylm_classroom import capture

# %% slide="skip"
new_stories = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(200, 220)]
ids = torch.tensor([tokenizer.encode("\n" + text)[:80] for text in new_stories])  # (20, 80)
caught = capture(model, ids)

# %% evidence="stream-is-a-sum"
stream = caught.outputs["embed"]  # (B, T, C)
lengths = {}
for i in range(3):
    for part in ("attention", "ffn"):
        made = caught.outputs[f"blocks.{i}.{part}"]  # (B, T, C)
        lengths[i, part] = (made.norm(dim=-1) / stream.norm(dim=-1)).median().item()
        print(f"block {i}: {part:<9} adds a vector {lengths[i, part]:.2f} times as long as the stream")
        stream = stream + made
torch.testing.assert_close(stream, caught.inputs["final_norm"])

# %% [markdown]
# (The median over all positions of 20 stories.) So the stream is a sum. [[stream-is-a-sum]] It is like a page on which everyone writes: all parts read it, and each adds something. But they write on top of each other, and a later part can also subtract what an earlier one wrote.

# %% [markdown] slide="subslide"
# ### Take one part out
# From a sum one can remove a term. Here is what the model's loss becomes without one of the six parts, and if only the plus sign of that part is missing, so that its result replaces the stream.


# %%
@torch.no_grad()
def loss_of(join_at, blocks=model.blocks) -> float:
    """The shipped model's loss. join_at(i, part, x, made) is the stream after this part."""
    x, positions = model.embed(ids), torch.arange(ids.shape[1])
    for i, block in enumerate(blocks):
        x = join_at(i, "attention", x, block.attention(block.attn_norm(x), positions))  # (B, T, C)
        x = join_at(i, "ffn", x, block.ffn(block.ffn_norm(x)))  # (B, T, C)
    logits = model.lm_head(model.final_norm(x))  # (B, T, V)
    return cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()


# %% slide="skip"
usual_loss = loss_of(lambda i, part, x, made: x + made)
removed_loss, no_plus_loss = {}, {}
for place in lengths:
    removed_loss[place] = loss_of(lambda i, part, x, made, place=place: x if (i, part) == place else x + made)
    no_plus_loss[place] = loss_of(lambda i, part, x, made, place=place: made if (i, part) == place else x + made)

# %% tags=["source-hidden"]
harm = max(removed_loss, key=removed_loss.get)
predict(
    "We remove one of the six parts. Which one does the model miss most?",
    key=lambda: "attention of block 0" if harm == (0, "attention") else "another one",
    choices={
        "the longest one, of the last feed-forward": "Its addition is longer than the stream. But only the last norm and the output map read it.",
        "attention of block 0": "",
        "none of them": "In a sum of many terms one may be missing. Here there are only six, and each was trained with the others.",
    },
    because="All later parts were trained to read what it adds.",
)

# %% slide="subslide" evidence="parts-removed"
print(f"{'':<20}adds    removed   replaces the stream     (the whole model: loss {usual_loss:.2f})")
for place, length in lengths.items():
    name = f"block {place[0]}, {place[1]}"
    print(f"{name:<20}{length:4.2f}    {removed_loss[place]:7.2f}   {no_plus_loss[place]:19.2f}")
longest = max(lengths, key=lengths.get)
assert longest == (2, "ffn") and harm == (0, "attention")
assert removed_loss[longest] < usual_loss + 0.4 < usual_loss + 1.5 < removed_loss[harm]
assert all(no_plus_loss[place] > removed_loss[place] + 1 for place in lengths)

# %% [markdown]
# The longest addition is one of those that are missed least, so the length does not say how important a part is. And for every part it is better to remove it than to remove only its plus sign: without the plus sign the part still works, but everything that was in the stream before is lost. [[parts-removed]]

# %% [markdown] slide="subslide"
# One can even exchange whole blocks. Each expects a stream of the same kind:

# %% evidence="blocks-exchanged"
order_losses = {}
for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]):
    order_losses[tuple(order)] = loss_of(lambda i, part, x, made: x + made, [model.blocks[i] for i in order])
    print(f"blocks in the order {order}: loss {order_losses[tuple(order)]:.2f}")
assert usual_loss + 1 < min(order_losses[0, 2, 1], order_losses[1, 0, 2]) < 3 < order_losses[2, 1, 0] < entropy

# %% [markdown]
# Two neighbours in the wrong order raise the loss by more than 1 nat, but the model still knows much more than the word frequencies. [[blocks-exchanged]] In an image network of 110 layers, removing a single one hardly mattered (Veit et al. 2016).

# %% [markdown] tags=["note"]
# **Say.** There are two places for the norm. The exercise is the first one, pre-norm, which most language models use. Let students draw the stream first, then write the two lines.
#
# **Draw.** The pre-norm half of the picture, line by line, with the class dictating: norm, attention, plus; norm, feed-forward, plus. On the thick line there is nothing but two plus signs.
#
# **Ask.** At the picture: "On which of the two thick lines is there a norm?" After the exercise: "In the second line, what does `x` mean?"
#
# **Usual answers.**
# - *x = norm1(x)* (`normalized stream`): The copy is read, and the stream itself must be kept.
# - *norm1(x + attention(x))* (`post-norm`): That is the right-hand picture.
# - *The second line starts with x* (`old x`): Then what attention has found never reaches the stream. Section 8 trains such a model.
# - *x += ...* (`in place`): It changes the tensor of the caller.
#
# **Cut if short.** The library's version. After five minutes of the exercise show all hints.

# %% [markdown] slide="slide"
# ## 5. The block
# Each part should meet vectors of one size (lesson 04). The norm that ensures this can be in two places: **pre-norm**, $x + f(\text{norm}(x))$, and **post-norm**, $\text{norm}(x + f(x))$.

# %% slide="skip"
from tinylm_lib import preset
from tinylm_classroom import check, hint, keep, show, trace
from tinylm_lib.model import PreNormBlock

# %% tags=["source-hidden"] slide="skip"
shade = {letter: color.light for letter, color in figures.AXIS_COLORS.items()}


def stream_line(ax, x, name, tops):
    ax.plot([x, x], [0.9, 0.05], color=shade["C"], linewidth=5, linestyle="-")
    ax.plot(x, 0.03, "v", color=shade["C"], markersize=15)
    ax.text(x - 0.16, 1.0, name, ha="center", weight="bold")
    ax.text(x, 0.93, "stream", ha="center", color=shade["C"], weight="bold")
    for y in tops:
        ax.plot(x, y, "o", color=shade["C"], markersize=22, zorder=4)
        ax.text(x, y - 0.005, "+", ha="center", va="center", color="white", size=19, weight="bold", zorder=5)


# %% tags=["source-hidden"] slide="skip"
with figures.axes("One block, two places for the norm", "left: pre-norm", "top to bottom", (9, 6)) as (figure, ax):
    stream_line(ax, 0.4, "pre-norm", (0.6, 0.18))
    stream_line(ax, 0.95, "post-norm", (0.66, 0.25))
    for top, part, letter in ((0.8, "attention", "D"), (0.38, "feed-forward", "F")):
        figures.arrow(ax, (0.4, top), (0.15, top), "C")
        figures.arrow(ax, (0.1, top - 0.04), (0.1, top - 0.158))
        figures.arrow(ax, (0.1, top - 0.2), (0.377, top - 0.2), letter)
        figures.box(ax, 0.1, top, "norm", "B")
        figures.box(ax, 0.1, top - 0.2, part, letter)
    for top, part, letter in ((0.83, "attention", "D"), (0.42, "feed-forward", "F")):
        figures.arrow(ax, (0.95, top), (0.65, top - 0.128), "C", bend="angle,angleA=180,angleB=90,rad=0")
        figures.arrow(ax, (0.65, top - 0.17), (0.927, top - 0.17), letter)
        figures.box(ax, 0.65, top - 0.17, part, letter)
        figures.box(ax, 0.95, top - 0.29, "norm", "B")
    ax.set(xlim=(-0.05, 1.08), ylim=(0, 1.06))
    ax.axis("off")

# %% tags=["source-hidden"] rows=["S0-38"] slide="subslide"
figures.display(
    figure,
    alt="Two blocks beside their streams. Pre-norm: a norm reads the stream, attention adds to it; another norm reads it, the feed-forward adds. Post-norm: attention reads the stream and adds, then a norm follows on the stream itself; the same with the feed-forward.",
    caption="Follow each thick line from top to bottom. What is on the line itself?",
    table={
        "step": ["1", "2", "3", "4", "5", "6"],
        "pre-norm": ["norm", "attention", "+", "norm", "feed-forward", "+"],
        "post-norm": ["attention", "+", "norm", "feed-forward", "+", "norm"],
    },
)

# %% [markdown] slide="say"
# The first Transformer had post-norm ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)), GPT-2 moved the norms to the front (Radford et al. 2019), as [He et al. 2016](https://arxiv.org/abs/1603.05027) had done for images, and Llama has them there, too.

# %% [markdown] slide="subslide"
# ### Your turn
# Write the pre-norm block, with four functions as its parts. Each takes one tensor and returns one of the same shape. (Positions and the mask are inside `attention`.) Call each part once, in the order norm1, attention, norm2, ffn.


# %% slide="skip"
@torch.no_grad()
def loss_with(one_block) -> float:
    """The shipped model's loss, if this function is each of its blocks."""
    x, positions = model.embed(ids), torch.arange(ids.shape[1])
    for block in model.blocks:
        attention = partial(block.attention, positions=positions)
        x = one_block(x, block.attn_norm, attention, block.ffn_norm, block.ffn)  # (B, T, C)
    logits = model.lm_head(model.final_norm(x))  # (B, T, V)
    return cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()


# %% tags=["exercise"] name="pre_norm_block" minutes=7 difficulty=2
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
    print(f"the shipped model with your block: loss {loss_with(pre_norm_block):.2f}")

# %%
hint("pre_norm_block")

# %% [markdown] tags=["solution"]
# The same line twice, and the second one starts from what the first has made. Common mistakes: `x = norm1(x)`, which replaces the stream by the copy; the old `x` in the second line (section 8); `norm1(x + attention(x))`, which is post-norm; and `x += ...`, which changes the caller's tensor.

# %% [markdown] slide="subslide"
# ### The library's version
# Attention also gets the positions, and there is dropout on what is added. (`extend`, `Positions` and `rotation` belong to other lessons.)

# %%
show(PreNormBlock)

# %% slide="skip"
one_block = PreNormBlock(preset("cs336", d_model=64, n_heads=4))
x_in, at_32 = torch.randn(4, 32, 64), torch.arange(32)

# %% slide="subslide"
trace(one_block, x_in, at_32, sizes={"B": 4, "T": 32, "C": 64})

# %% rows=["S0-37"] slide="subslide"
h_in = x_in + one_block.attention(one_block.attn_norm(x_in), at_32)  # (B, T, C)
by_hand = h_in + one_block.ffn(one_block.ffn_norm(h_in))  # (B, T, C)
torch.testing.assert_close(one_block(x_in, at_32), by_hand)
print(f"in {tuple(x_in.shape)}, out {tuple(by_hand.shape)}")

# %% [markdown]
# What goes in and what comes out have one shape, so any number of blocks can follow one another.

# %% [markdown] tags=["note"]
# **Say.** This section is about being careful. One recipe suggests that post-norm has large gradients and that this is its problem. The next recipe turns the first half around, and the optimizer removes the second half. What remains is how much each block changes the stream at the start.
#
# **Draw.** A table with two columns, pre-norm and post-norm, and one row for each recipe. Fill in which gradient is larger.
#
# **Ask.** "What would you have to try before you say that post-norm has large gradients?"
#
# **Usual answers.**
# - *The stream grows in both* (`in both`): In post-norm each sum passes a norm.
# - *Post-norm's is larger* (`post-norm's is larger`): So the first recipe says, and one recipe is one example.
# - *It changes from recipe to recipe* (`sometimes one, sometimes the other`): The first recipe is the exception here.
# - *No, it cannot learn* (`no`): It did not learn with the first weights of one recipe.
# - *A smaller learning rate or a warm-up will help* (from the room): Most people expect that. Within these 30 updates neither does.
#
# **Cut if short.** The gradients; begin with *Which one learns?*

# %% [markdown] slide="slide" plan=80
# ## 6. Pre-norm or post-norm?
# What changes with the place of the norm? We compare the two kinds, first untrained, then trained.

# %% [markdown] slide="subslide"
# Untrained models read random tokens. For each block we keep the standard deviation of the stream after it (`stds`), the norm of the gradient of its weights (`grads`), and how much it changes the stream, relative to what was there (`changes`).


# %% slide="skip"
from tinylm_lib.model import BLOCKS, PostNormBlock


# %% slide="skip"
def at_start(kind: str, n_blocks: int, seed: int, **choices) -> tuple[list[float], list[float], list[float]]:
    fresh = untrained(n_blocks, seed, block=kind, **choices)
    some, after = torch.randint(fresh.config.vocab_size, (2, 4, 32))  # each (4, 32)
    cross_entropy(fresh(some).flatten(0, 1), after.flatten()).backward()
    read, stds, grads, changes = capture(fresh, some), [], [], []
    for i, block in enumerate(fresh.blocks):
        before, behind = read.inputs[f"blocks.{i}"], read.outputs[f"blocks.{i}"]  # (4, 32, C)
        stds.append(behind.std().item())
        grads.append(torch.cat([p.grad.flatten() for p in block.parameters()]).norm().item())
        changes.append(((behind - before).norm() / before.norm()).item())
    return stds, grads, changes


# %% slide="skip"
kinds = list(BLOCKS)  # pre_norm and post_norm
deep = {kind: torch.tensor([at_start(kind, 24, seed) for seed in range(3)]) for kind in kinds}
assert deep["pre_norm"].shape == (3, 3, 24)  # seeds, what is measured, blocks

# %% tags=["source-hidden"]
grown = tuple(deep[kind][:, 0, -1].mean().item() > 2 for kind in kinds)
predict(
    "24 blocks, untrained. In which kind does the standard deviation of the stream grow from block to block?",
    key=lambda: {(True, False): "in pre-norm only", (True, True): "in both"}.get(grown, "in neither"),
    choices={
        "in pre-norm only": "",
        "in both": "In post-norm each sum passes a norm, so what leaves a block has one size.",
        "in neither": "Both have norms. But in pre-norm only the copy that a part reads passes one.",
    },
    because="In pre-norm nothing but additions happens on the stream.",
)


# %% tags=["source-hidden"] slide="skip"
def compare(which: int, title: str, label: str, caption: str) -> None:
    fig, ax = plt.subplots(figsize=(9, 4.4), layout="constrained")
    for kind, dash, hue in zip(kinds, ("-", "--"), figures.SERIES, strict=False):
        each = deep[kind][:, which]  # (seeds, blocks)
        ax.fill_between(range(24), each.amin(0), each.amax(0), color=hue, alpha=0.18, linewidth=0)
        ax.plot(range(24), each.mean(0), dash, color=hue, label=kind.replace("_", "-"))
    ax.set(title=title, xlabel="block", ylabel=label)
    ax.set_ylim(0)
    ax.legend(frameon=False)
    means = {kind.replace("_", "-"): deep[kind][:, which].mean(0)[few].tolist() for kind in kinds}
    courses = "; ".join(f"{name} from {values[0]:.1f} to {values[-1]:.1f}" for name, values in means.items())
    alt = f"Line chart over 24 blocks, {label}: {courses}."
    figures.display(fig, alt=alt, caption=caption, table={"block": few, **means}, digits=2)


# %% tags=["source-hidden"] slide="subslide"
says = "Mean and range of 3 seeds, untrained. In pre-norm each block only adds. In post-norm each block ends in a norm."
compare(0, "The pre-norm stream grows", "standard deviation", says)

# %% evidence="stream-grows" slide="subslide"
pre_changes = deep["pre_norm"][:, 2].mean(0)  # (24)
for number in (0, 5, 23):
    print(f"pre-norm block {number:>2} adds {pre_changes[number]:.2f} times what is there")
assert (deep["pre_norm"][:, 0, -1] > 2 * deep["pre_norm"][:, 0, 0]).all()  # the stream grows
assert (deep["post_norm"][:, 0] - 1).abs().max() < 0.1  # and here it stays at 1, in every block
assert (pre_changes[-1] < 0.6 * pre_changes[0]).all()  # late blocks change it less

# %% [markdown]
# In pre-norm every part reads a copy of the same size, however large the stream has become, and the sum grows. Compared with a larger stream an addition counts less: before training, late blocks change the stream little. [[stream-grows]] (Training decides in the end. In the shipped model the last part adds most, as section 4 measured.)

# %% [markdown] slide="subslide"
# ### The gradients
# And what comes back to the weights?

# %% tags=["source-hidden"] slide="subslide"
says = "The same models, mean and range of 3 seeds. With these first weights post-norm's gradients are larger in every block, and its seeds differ more."
compare(1, "What comes back to the weights", "gradient of the block", says)

# %% [markdown] slide="subslide"
# Is that a fact about post-norm, or about these first weights and this feed-forward? We measure the last block, which is next to the loss, with four recipes and two depths. `cs336` and `gpt2` are the first weights of a course and of GPT-2, and `normal` draws every matrix with the standard deviation 0.02, which is small for 64 features.


# %% slide="skip"
RECIPES = (("cs336", "swiglu"), ("normal", "swiglu"), ("normal", "gelu"), ("gpt2", "gelu"))


# %% slide="skip"
def last_gradient(kind: str, n_blocks: int, init: str, ffn: str) -> float:
    """The gradient of the last block, mean of two seeds."""
    found = []
    for seed in range(2):
        fresh = untrained(n_blocks, seed, block=kind, init=init, ffn=ffn)
        some, after = torch.randint(fresh.config.vocab_size, (2, 4, 32))  # each (4, 32)
        loss = cross_entropy(fresh(some).flatten(0, 1), after.flatten())
        gradients = torch.autograd.grad(loss, list(fresh.blocks[-1].parameters()))  # of this block alone
        found.append(torch.cat([g.flatten() for g in gradients]).norm().item())
    return sum(found) / 2


# %% slide="skip"
pairs = [(kind, recipe) for recipe in RECIPES for kind in kinds]
of_6 = {(kind, recipe): last_gradient(kind, 6, *recipe) for kind, recipe in pairs}
of_24_blocks = {(kind, recipe): last_gradient(kind, 24, *recipe) for kind, recipe in pairs}

# %% tags=["source-hidden"]
post_larger = [of_24_blocks["post_norm", recipe] > of_24_blocks["pre_norm", recipe] for recipe in RECIPES]
predict(
    "With cs336 and SwiGLU post-norm's last gradient is the larger one. Which one is larger in the three other recipes?",
    key=lambda: {0: "pre-norm's is larger", 3: "post-norm's is larger"}.get(
        sum(post_larger[1:]), "sometimes one, sometimes the other"
    ),
    choices={
        "post-norm's is larger": "So the first recipe says. One recipe is one example.",
        "pre-norm's is larger": "",
        "sometimes one, sometimes the other": "The first recipe is the exception here.",
    },
    because="With small first weights post-norm's gradient becomes small, and pre-norm's hardly changes.",
)

# %% evidence="recipes" slide="subslide"
for kind, recipe in pairs:
    few_blocks, many_blocks = of_6[kind, recipe], of_24_blocks[kind, recipe]
    print(f"{' '.join(recipe):<14} {kind:<9} gradient of the last of 6: {few_blocks:.3f}, of 24: {many_blocks:.3f}")
    grows_with_depth = kind == "pre_norm" and recipe[0] != "gpt2"  # the stream, and so the gradient falls
    low, high = (0.4, 0.65) if grows_with_depth else (0.8, 1.6)
    assert low < many_blocks / few_blocks < high
assert of_24_blocks["post_norm", RECIPES[0]] > 2 * of_24_blocks["pre_norm", RECIPES[0]]
assert all(of_24_blocks["post_norm", recipe] < of_24_blocks["pre_norm", recipe] / 4 for recipe in RECIPES[1:])

# %% [markdown]
# Which of the two is larger depends on the recipe here. What holds in all four: post-norm's last gradient hardly depends on the depth. Pre-norm's falls by about half, one over the root of 4, when there are four times as many blocks, except with `gpt2`, with which the stream grows less (section 9). [[recipes]]

# %% [markdown] slide="say"
# Xiong et al. (2020) derive both courses for one recipe, and see in post-norm's large gradients the reason why it needs **warm-up**, a start with small steps (lesson 11). Takase et al. (2022) find vanishing gradients in deep post-norm models, and Liu et al. (2020) look at how much each block changes the stream.

# %% [markdown] slide="subslide"
# ### Which one learns?
# Models of 8 blocks with 30 updates. Post-norm has two learning rates, and a **warm-up**, during which the rate rises for 15 updates. (Section 1 tried both rates with pre-norm.) Each with two seeds.


# %% slide="skip"
STEPS = {"rate 0.01": (0.01, 30, 1), "rate 0.003": (0.003, 30, 1), "0.01, warm-up": (0.01, 30, 15)}


def losses_of(kind: str, init: str, factor: float, step: tuple) -> list[float]:
    """For two seeds. factor: what the maps that write into the stream are multiplied by, at first."""
    found = []
    for seed in (1, 2):
        fresh = smaller(untrained(8, seed, block=kind, init=init), factor)
        found.append(train(fresh, fresh, *step))
    return found


# %% slide="skip"
trained = {("pre_norm", "rate 0.01"): losses_of("pre_norm", "cs336", 1.0, STEPS["rate 0.01"])}
for name, step in STEPS.items():
    trained["post_norm", name] = losses_of("post_norm", "cs336", 1.0, step)

# %% evidence="rates"
for (kind, step), losses in trained.items():
    print(f"cs336, {kind:<9} {step:<14} loss", *(learned(loss, 2.5, 5.6) for loss in losses))
    assert max(losses) < entropy - 0.5 if kind == "pre_norm" else min(losses) > entropy - 0.3

# %% [markdown]
# Pre-norm learns. Within these 30 updates post-norm learns no more than the word frequencies, at both rates and with the warm-up. [[rates]] A constant factor in all gradients cannot be the reason, because Adam divides it away (lesson 11). And this does not show that post-norm *cannot* learn with these weights: try a tenth of the first rate and ten times as many updates.

# %% slide="skip"
plain = STEPS["rate 0.01"]
of_start = {("cs336", kind): trained[kind, "rate 0.01"] for kind in kinds}
of_start["cs336, a tenth", "post_norm"] = losses_of("post_norm", "cs336", 0.1, plain)
for kind in kinds:
    of_start["normal", kind] = losses_of(kind, "normal", 1.0, plain)

# %% tags=["source-hidden"] slide="subslide"
predict(
    "We multiply the maps that write into the stream by 0.1 before training. Does post-norm learn then, in 30 updates?",
    key=lambda: "yes" if max(of_start["cs336, a tenth", "post_norm"]) < entropy - 0.5 else "no",
    choices={
        "yes": "",
        "no": "With these weights each block changes the stream little at first, so that what the first blocks found still arrives at the end.",
    },
    because="Each block now changes the stream little at first.",
)

# %% slide="subslide" evidence="first-weights-decide"
for (name, kind), losses in of_start.items():
    print(f"first weights {name:<15} {kind:<9} loss", *(learned(loss, 2.3, 5.6) for loss in losses))
assert max(of_start["cs336, a tenth", "post_norm"]) < entropy - 0.5
assert max(of_start["normal", "post_norm"]) < min(of_start["normal", "pre_norm"]) - 0.5
assert min(of_start["normal", "pre_norm"]) > entropy - 0.4  # the plus sign alone is not enough

# %% [markdown]
# Now post-norm learns. With `normal`, whose weights are small in all parts, it is even ahead of pre-norm, which hardly learns here. So neither is ahead with all of these first weights. [[first-weights-decide]]

# %% [markdown] slide="say"
# Liu et al. (2020) explain post-norm's trouble by how much its blocks change the stream at first, and Wang et al. (2022) train deep post-norm models with smaller first weights and a stronger skip. The first Transformer trained with post-norm and 4000 updates of warm-up (Vaswani et al. 2017).
# These are small models and 30 updates: they do not show which one is better after a long training.

# %% [markdown] slide="subslide"
# The first recipe, side by side:

# %% rows=["S4-43"]
table_rows = {
    "what a part f does to the stream": ["x + f(norm(x))", "norm(x + f(x))"],
    "standard deviation after block 23": [f"{deep[kind][:, 0, -1].mean():.1f}" for kind in kinds],
    "block 23 changes the stream by": [f"{deep[kind][:, 2, -1].mean():.0%}" for kind in kinds],
    "gradient of block 23": [f"{deep[kind][:, 1, -1].mean():.2f}" for kind in kinds],
    "loss, 8 blocks, 30 updates": [learned(trained[kind, "rate 0.01"][0], 2.5, 5.6) for kind in kinds],
    "needs one more norm at the end": ["yes" if BLOCKS[kind].final_norm else "no" for kind in kinds],
}
for what, (pre, post) in {"": ["pre-norm", "post-norm"], **table_rows}.items():
    print(f"{what:<35}{pre:>15}{post:>16}")

# %% slide="skip"
show(PostNormBlock)

# %% [markdown] tags=["note"]
# **Say.** A pre-norm model has one norm more, at its end. Take it out of the shipped model: the best guesses mostly stay, and still the loss rises. That is a good occasion to repeat what a logit is.
#
# **Draw.** Two vectors of one direction, one three times as long, and below each the bars of its softmax.
#
# **Ask.** "Most best guesses are the same. How can the loss be so much higher?" (A wrong guess made with certainty has a high loss.)
#
# **Usual answers.**
# - *Nothing, because the head is linear* (`nothing, because the head is a linear map`): Then logits ten times as large come out. What does softmax make of them?
# - *It cannot predict any more* (`its best guesses are no better than chance`): A longer vector of the same direction has the same ranking.
#
# **Cut if short.** The list of long words.

# %% [markdown] slide="slide" plan=80
# ## 7. What is the last norm for?
# After its last block a pre-norm model has one more norm, before the map to the vocabulary. It makes the vectors of all positions equally large, and multiplies each feature by its gain (lesson 04). We leave it out of the shipped model, once the division alone, once the gains as well:

# %%
with torch.no_grad():
    end, head = caught.inputs["final_norm"], model.lm_head.weight  # (B, T, C), (V, C)
    gains_kept = end * model.final_norm.weight @ head.T  # (B, T, V)
    bare = end @ head.T  # (B, T, V)
without_norm = {"with the norm": caught.logits, "gains kept, no division": gains_kept, "without": bare}

# %% tags=["source-hidden"]
agree = (bare.argmax(-1) == caught.logits.argmax(-1)).float().mean().item()
sure = bare.softmax(-1).amax(-1).mean().item()
predict(
    "Without its final norm, division and gains: what happens to the model's predictions?",
    key=lambda: (
        "most best guesses stay, but it is far too sure"
        if agree > 0.6 and sure > 0.9
        else "its best guesses are no better than chance"
    ),
    choices={
        "nothing, because the head is a linear map": "So a vector 10 times as long gives logits 10 times as large. What does softmax make of them?",
        "its best guesses are no better than chance": "A longer vector of the same direction gives the same ranking. Only the missing gains change it.",
        "most best guesses stay, but it is far too sure": "",
    },
    because="All logits grow, and softmax gives nearly all probability to one word.",
)

# %% slide="subslide" evidence="without-the-final-norm"
surest, norm_losses = {}, {}
for name, logits in without_norm.items():
    norm_losses[name] = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    surest[name] = logits.softmax(-1).amax(-1).mean()
    same = (logits.argmax(-1) == caught.logits.argmax(-1)).float().mean()
    print(
        f"{name:<24}highest probability {surest[name]:.2f}, loss {norm_losses[name]:4.1f}, same best guess {same:.0%}"
    )
assert surest["without"] > surest["gains kept, no division"] > surest["with the norm"] + 0.1
assert norm_losses["without"] > norm_losses["gains kept, no division"] > norm_losses["with the norm"] + 0.3

# %% [markdown]
# (The highest probability is a mean over all positions.) Without the division each ranking stays, but the model is surer, and a wrong prediction made with certainty has a high loss (lesson 03). Without the gains it is surer still, because they made everything smaller, each feature by its own factor. [[without-the-final-norm]]

# %% [markdown] slide="subslide"
# But why divide each position by its *own* size? Would one factor for all positions do? The sizes differ from word to word:

# %% evidence="one-factor"
rms = end.square().mean(-1).sqrt()  # (B, T)
one_factor = end / rms.median() * model.final_norm.weight @ head.T  # (B, T, V)
loss_one_factor = cross_entropy(one_factor[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
longest_at = rms.flatten().topk(20).indices
long_words = dict.fromkeys(tokenizer.decode([token]).strip() for token in ids.flatten()[longest_at].tolist())
print(f"RMS before the norm: median {rms.median():.0f}, largest {rms.max():.0f}")
print(f"the largest come after: {', '.join(long_words)}")
print(f"one factor for all positions: loss {loss_one_factor:.2f}, with the norm {norm_losses['with the norm']:.2f}")
assert norm_losses["with the norm"] + 0.05 < loss_one_factor < norm_losses["gains kept, no division"]

# %% [markdown]
# With one factor for all, the median size, the model loses something, but much less than without any division. [[one-factor]] Where the stream is many times as long, after a few words, the logits remain too large.

# %% [markdown] tags=["note"]
# **Say.** One letter is wrong, no error is raised, and the loss of a new model is the same. Only a comparison with numbers that can be computed by hand finds this mistake.
#
# **Draw.** The pre-norm half of the picture, and the second arrow that leads back to the wrong end: past attention's plus sign.
#
# **Ask.** After the prediction: "Which test would have found this?" (A check with parts that can be followed in the head, as in the exercise.)
#
# **Usual answers.**
# - *Clearly higher* (`clearly higher`): The feed-forward still reads what attention found, and can pass it on.
# - *It does not fall* (`it does not fall at all`): There is a way through, and all weights get a gradient.
#
# **Cut if short.** The gradient; say its result.

# %% [markdown] slide="slide" plan=110
# ## 8. Break it: the old x
# One letter is wrong: the second sum starts from `x` instead of `h`.


# %%
def right_block(x, norm1, attention, norm2, ffn):
    h = x + attention(norm1(x))
    return h + ffn(norm2(h))


# %%
def stale_block(x, norm1, attention, norm2, ffn):
    h = x + attention(norm1(x))
    return x + ffn(norm2(h))


# %% slide="skip"
def logits_with(one_block, lm: TransformerLM, ids: torch.Tensor) -> torch.Tensor:
    """The logits (B, T, V), if this function is each of its blocks."""
    x, positions = lm.embed(ids), torch.arange(ids.shape[1])
    for block in lm.blocks:
        attention = partial(block.attention, positions=positions)
        x = one_block(x, block.attn_norm, attention, block.ffn_norm, block.ffn)  # (B, T, C)
    return lm.lm_head(lm.final_norm(x))


# %% slide="skip"
seen = {}  # first loss, gradient, loss after 30 updates: means of three seeds
for one in (right_block, stale_block):
    found = []
    for seed in range(3):
        fresh = untrained(2, seed)
        reader = partial(logits_with, one, fresh)
        first = cross_entropy(reader(ids[:2, :-1]).flatten(0, 1), ids[:2, 1:].flatten())
        first.backward()
        gradient = fresh.blocks[0].attention.o_proj.weight.grad.norm()
        found.append([first.item(), gradient.item(), train(fresh, reader)])
    seen[one.__name__] = torch.tensor(found).mean(0).tolist()

# %% tags=["source-hidden"]
behind_by = seen["stale_block"][2] - seen["right_block"][2]
predict(
    "Two blocks, 30 updates, three seeds. How does the loss of the stale model compare with the right one's?",
    key=lambda: "nobody would notice" if abs(behind_by) < 0.2 else "clearly higher",
    choices={
        "clearly higher": "What attention found is not added to the stream, but the feed-forward still reads it, and can pass it on.",
        "nobody would notice": "",
        "it does not fall at all": "There is a straight way through, and all weights get a gradient.",
    },
    because="The feed-forward still reads h, with what attention found, and so the model can learn to pass it on.",
)

# %% slide="subslide" evidence="stale-block"
for name, (first_loss, gradient, last_loss) in seen.items():
    losses_text = f"first loss {learned(first_loss, 4, 8)}, after 30 updates {learned(last_loss, 2, 5)}"
    print(f"{name:<12} {losses_text}, gradient of attention's output map {gradient:.2f}")
for one in (right_block, stale_block):
    print(f"the shipped model with {one.__name__:<12} loss {loss_with(one):.2f}")
assert abs(behind_by) < 0.2 and loss_with(stale_block) > loss_with(right_block) + 1
assert seen["stale_block"][1] < 0.6 * seen["right_block"][1]

# %% [markdown]
# No error, and in a new model nearly the same loss. What is lost: attention's addition never reaches the stream, so everything it finds must pass through the feed-forward of the same block, and a smaller gradient arrives at attention's output map. And weights that were trained in the right way have a much higher loss in stale blocks. [[stale-block]] That is why the exercise's check uses parts whose results you can compute in your head.

# %% [markdown] tags=["note"]
# **Say.** Three things for those who build deeper models: first weights that grow smaller with the depth, the places of dropout, and four published blocks that are one class.
#
# **Draw.** 24 arrows of length 1 in random directions, one after the other, and the arrow from the first tail to the last head: about the root of 24 long.
#
# **Ask.** "Why not normalize what is added, too?" (Some models do. It is a fair answer to the growing stream, though not what the exercise asks.)
#
# **Usual answers.**
# - *90 %* (`90`): That is one block.
# - *10 %* (`10`): Each block keeps 90 % of what is left.
# - *A map that is 0 cannot learn* (from the room): Its gradient is what it reads, times what comes back along the stream, and neither is 0.
#
# **Cut if short.** The four configs.

# %% [markdown] slide="slide" plan=110
# ## 9. For engineers
# ### Deeper: smaller first weights
# $L$ blocks make $2L$ additions. If 12 blocks add 24 vectors of one size, pointing anywhere, how large is the sum? Variances add up (lesson 02), so it is $\sqrt{24}$ times as large as one of them. GPT-2 therefore draws the maps that *write into the stream* smaller by $\sqrt{2L}$ (Radford et al. 2019). One can go further and start them at 0: then each block starts as the **identity**, and returns what it gets.

# %% slide="skip"
recipes = {"normal": "0.02", "gpt2": "0.02 / root of 24", "zero_residual": "0"}
sizes_12 = {"vocab_size": 200, "d_model": 128, "n_heads": 4, "n_layers": 12, "tie_embeddings": False}
stream_sizes = {}  # the standard deviation of the stream at its start and at its end, means of three seeds
for init in recipes:
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        read = capture(TransformerLM(preset("gpt", **sizes_12, init=init)), torch.randint(200, (2, 16)))
        found.append([read.inputs["blocks.0"].std(), read.outputs["blocks.11"].std()])
    stream_sizes[init] = torch.tensor(found).mean(0).tolist()

# %% evidence="small-maps" slide="subslide"
for init, into_stream in recipes.items():
    before, behind = stream_sizes[init]
    print(f"{init:<14} maps into the stream {into_stream:<18} stream {before:.3f}, grows {behind / before:.1f} times")
    assert {"normal": 5, "gpt2": 1.5, "zero_residual": 0.99}[init] < behind / before
    assert behind / before < {"normal": 12, "gpt2": 3, "zero_residual": 1.01}[init]

# %% [markdown]
# (Means of three seeds. GPT-2 also draws its learned positions with half the spread, hence the smaller start.) A common mistake is to use 0.02 for all weights and call it GPT-2's way: without the scaling the stream grows to eight times its size. [[small-maps]]

# %% [markdown] slide="subslide"
# Does it help a deep model to learn? That was the dashed line of section 1, where the maps into the stream were divided by $\sqrt{2L}$. Here are its 16 blocks once more, with a second seed:

# %% evidence="deeper"
second = smaller(untrained(16, 2), (2 * 16) ** -0.5)
second_loss = train(second, second)
print(f"16 blocks, the usual first weights: loss {learned(by_depth['added'][-1].item(), 3.5, 5)}")
print("divided by the root:", learned(by_depth["added, smaller"][-1].item(), 2.5, 4), learned(second_loss, 2.5, 4))
assert max(by_depth["added, smaller"][-1].item(), second_loss) < by_depth["added"][-1] - 0.5

# %% [markdown]
# Now the model is far ahead after as many updates. [[deeper]] So in our stacks the answer to the question of this lesson has two parts: a plus sign, and blocks that change the stream only a little at first.

# %% [markdown] slide="say"
# Can a map that is 0 learn? Yes: its gradient is what it reads, times what comes back along the stream, and neither is 0. What is before it in the part waits for one update.

# %% [markdown] slide="subslide"
# ### Dropout's places
# Lesson 07 dropped attention weights. There are three more places: the embedding, the end of the feed-forward, and **what a part adds**, `x + dropout(f(norm(x)))`. (For the feed-forward the last two are the same place, so one of them is enough.) Between the blocks the stream itself is not dropped.

# %% slide="skip"
torch.manual_seed(9)
remains = torch.ones(100_000)
for _ in range(12):
    remains = torch.dropout(remains, 0.1, train=True)
percent_left = 100 * remains.count_nonzero().item() / len(remains)

# %% tags=["source-hidden"]
predict(
    "Somebody writes `dropout(x + f(norm(x)))` and drops 10 %, once in each of 12 blocks. How many % of the numbers of the embedding are left at the end?",
    key=lambda: percent_left,
    number="%",
    within=4,
    feedback={90: "That is one block.", 10: "Each block keeps 90 % of what is left."},
    because="Each block keeps 0.9 of what is left: 0.9 to the power of 12.",
)

# %% evidence="dropout-on-the-stream"
assert abs(percent_left - 100 * 0.9**12) < 2
print(f"left: {percent_left:.0f} %, 0.9^12 = {0.9**12:.2f}, and each {remains.max():.1f} times as large")

# %% [markdown]
# (The numbers that stay are 1 / 0.9^12 times as large, because each dropout scales up what it keeps.) What is dropped from an addition is missing once, and what is dropped from the stream is missing in all that follows. [[dropout-on-the-stream]] So a block drops both additions, each of them once:

# %% rows=["S2-6"] slide="subslide"
gpt_block = PreNormBlock(preset("gpt"))
some_vectors, at_100 = torch.randn(2, 100, 256), torch.arange(100)
for name, made in (("attention", gpt_block.attention(some_vectors, at_100)), ("ffn", gpt_block.ffn(some_vectors))):
    zeros_before, zeros_added = ((t == 0).float().mean() for t in (made, gpt_block.dropout(made)))
    print(f"{name:<9} returns {zeros_before:.0%} zeros, added with {zeros_added:.0%}")
    assert zeros_before == 0 and abs(zeros_added - 0.1) < 0.02

# %% evidence="dropout-on-what-is-added"
ones_block = PreNormBlock(preset("gpt"))
for part in (ones_block.attention, ones_block.ffn):
    part.register_forward_hook(lambda part, inputs, output: torch.ones_like(output))
after_ones = ones_block(some_vectors, at_100)  # (2, 100, 256)
change = 0.9 * (after_ones - some_vectors)  # nothing of the stream itself is missing
steps_seen = change.abs().round(decimals=3).unique().tolist()
print("if each part adds 1, the block adds 0, 1 or 2 times 1 / 0.9:", steps_seen)
assert steps_seen == [0, 1, 2]

# %% [markdown]
# The stream itself is not dropped, only what is added to it. [[dropout-on-what-is-added]]

# %% [markdown] slide="subslide"
# ### Four blocks, one class
# The blocks of four published courses are this class with four configs:

# %% rows=["S0-36", "S1-24", "S4-7"]
for name in ("cs336", "cs190c", "gpt", "tiny_transformer"):
    config = preset(name)
    each_block = PreNormBlock(config)
    assert each_block(torch.zeros(2, 16, config.d_model), torch.arange(16)).shape == (2, 16, config.d_model)
    norm = type(each_block.attn_norm).__name__
    biases = "no biases" if each_block.attention.q_proj.bias is None else "biases"
    widths = f"C {config.d_model}, H {config.n_heads}, F {config.d_ff}"
    print(f"{name:<17}{widths}, {norm}, {config.ffn}, {biases} in attention")

# %% [markdown] tags=["note"]
# **Say.** The whole lesson is two lines of code, and the reason for its two plus signs. Say only the points whose sections you taught.
#
# **Draw.** The block once more, from memory, by a student.
#
# **Ask.** At the door: "Name one thing that the plus sign keeps on the way forward, and one on the way back."
#
# **Usual answers.**
# - *It keeps the gradient from vanishing* (from the room): Here it exploded in one chain and did neither in the other, and both failed. What else gets lost?
# - *It adds the word again* (from the room): The vector was never replaced, so nothing has to be added again.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - A residual connection adds a part's result to the vector. Without it, the deeper stacks of section 1 learned no more than the word frequencies in the few updates that we gave them. With it all of them learned more. [[plus-learns]]
# - On the way forward the averages of attention make the positions of a chain alike. [[positions-alike]] A chain that reads each word alone learned more than one that reads texts, because a word cannot be averaged away there. [[own-word-lost]]
# - On the way back the slopes of a chain multiply, so a gradient can vanish or explode. [[equal-slopes]] In one kind of chain it exploded [[slopes-multiply]], in another it did neither and the chain still failed. [[size-is-not-enough]] In both its direction did not survive one small step, and with the plus sign it did. [[gradient-holds]]
# - If each part only adds, one way back passes no part and has slope 1. [[a-way-of-slope-1]] With the first weights of section 3 the gradients of the first and the last block of a deep stack then differ by less than a factor of ten. [[adding-keeps]]
# - In pre-norm the residual stream is a sum: the embedding plus what each part added. [[stream-is-a-sum]] In the shipped model the longest addition is one of those that are missed least. [[parts-removed]]
# - A pre-norm block normalizes the copy that a part reads. With the first weights of section 6 its stream grows from block to block. [[stream-grows]]
# - Post-norm normalizes the stream itself. In the recipes tried here, the first weights decided which of the two has the larger gradient in the last block [[recipes]] and which one has the lower loss after a short training. [[first-weights-decide]]
# - Without the final norm the shipped model becomes overconfident, and its loss rises. [[without-the-final-norm]]
# - A block that adds its second result to the old stream raises no error. [[stale-block]]
# - For engineers: with smaller first weights in the maps that write into the stream, the stream grows less [[small-maps]], and the deepest model of section 1 learned faster. [[deeper]] Dropout acts on what each part adds. [[dropout-on-what-is-added]] On the stream itself it would remove most of the embedding. [[dropout-on-the-stream]]
#
# Next, lesson 10: blocks, embedding and head become a model.

# %% [markdown] slide="skip"
# ## Sources
# - Residual connections: He et al. 2016, [*Deep Residual Learning for Image Recognition*](https://arxiv.org/abs/1512.03385), sections 3 and 4.1. The norm in front, and factors on the skip: He et al. 2016, [*Identity Mappings in Deep Residual Networks*](https://arxiv.org/abs/1603.05027).
# - The stream: Elhage et al. 2021, [*A Mathematical Framework for Transformer Circuits*](https://transformer-circuits.pub/2021/framework/index.html). The ways through a sum: Veit, Wilber and Belongie 2016, [*Residual Networks Behave Like Ensembles of Relatively Shallow Networks*](https://arxiv.org/abs/1605.06431).
# - Rank collapse: Dong, Cordonnier and Loukas 2021, [*Attention is Not All You Need: Pure Attention Loses Rank Doubly Exponentially with Depth*](https://arxiv.org/abs/2103.03404). Shattered gradients: Balduzzi et al. 2017, [*The Shattered Gradients Problem: If resnets are the answer, then what is the question?*](https://arxiv.org/abs/1702.08591)
# - Post-norm: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.1 (the block) and section 5 (warm-up, dropout).
# - Both, and warm-up: Xiong et al. 2020, [*On Layer Normalization in the Transformer Architecture*](https://arxiv.org/abs/2002.04745), section 3.
# - What makes post-norm hard to train: Liu et al. 2020, [*Understanding the Difficulty of Training Transformers*](https://arxiv.org/abs/2004.08249); Takase et al. 2022, [*On Layer Normalizations and Residual Connections in Transformers*](https://arxiv.org/abs/2206.00330); Wang et al. 2022, [*DeepNet: Scaling Transformers to 1,000 Layers*](https://arxiv.org/abs/2203.00555).
# - Pre-norm and scaled first weights in GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.3.
# - Zero at the start: Zhang, Dauphin and Ma 2019, [*Fixup Initialization: Residual Learning Without Normalization*](https://arxiv.org/abs/1901.09321), section 3.
# - Dropout: Srivastava et al. 2014, [*Dropout: A Simple Way to Prevent Neural Networks from Overfitting*](https://jmlr.org/papers/v15/srivastava14a.html).
