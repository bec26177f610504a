# %% [markdown] slide="slide"
# # 09 Block
# **How can dozens of layers be stacked so that the model still learns?**
#
# *Needs* lessons 04, 05, 07 and 08. *Builds* `PreNormBlock` in `model.py`. *Runs* in about 35 s on two cores.
# *Teaches* in about 52 minutes, plus 7 of exercises.

# %%
import math
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from tinylm_lib import ModelConfig, TransformerLM, preset, storyworld
from tinylm_lib.classroom import capture, check, figures, hint, keep, learned, predict, rounded, show, trace
from tinylm_lib.model import BLOCKS, PostNormBlock, PreNormBlock
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(9)

# %% [markdown] slide="slide"
# ## 1. One behind the other: slopes multiply
# You have built two parts: attention, which fetches, and the feed-forward, which works on each position's own word and on what was fetched. A model has dozens of them, one behind the other. Can
# each take what the one before returns? The norm of lesson 04 can take care of the sizes. But layers also have to *learn*, and what they learn from comes back from the end.
#
# By hand: one number, and three parts that multiply it. Their slopes:

# %%
slopes = [0.5, 0.2, -0.3]
x = torch.tensor(1.0, requires_grad=True)
h = x
for slope in slopes:
    h = slope * h
h.backward()
print(f"the gradient that arrives at x: {x.grad.item():.2f}")

# %% [markdown]
# That is $0.5 \cdot 0.2 \cdot (-0.3)$: **in a chain the slopes multiply**. A product of many factors seldom stays near 1. Here are 24 equal ones:

# %% evidence="equal-slopes"
for slope in (0.5, 0.9, 1.1, 1.5):
    print(f"24 parts of slope {slope}: {rounded(slope**24, 2)}")
assert 0.5**24 < 1e-6 and 1.5**24 > 1e4

# %% [markdown]
# If the slopes are below 1, the gradient **vanishes**; if they are above 1, it **explodes**. Which of the two happens in real parts? A **block** is attention and a feed-forward, and
# each of them reads a normalized copy of the vector (lesson 04). We take models of the library (lesson 10 puts them together), untrained, with 24 blocks, the first weights (the *initialization*) of lesson 02, and 64 features.
# `join` decides what becomes of a part's result. At first each result simply *replaces* the vector.

# %%
V, B, T, C = 100, 4, 32, 64


def untrained(n_blocks: int, seed: int, **choices) -> TransformerLM:
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "d_model": C, "n_layers": n_blocks, "tie_embeddings": False}
    return TransformerLM(ModelConfig(**{**sizes, "init": "cs336", **choices}))


# %%
def replace(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return made


def stack(lm: TransformerLM, join, ids: torch.Tensor) -> torch.Tensor:
    """The logits of a model in which join(vector, what a part made of it) is the next vector."""
    x = lm.embed(ids)  # (B, T, C)
    positions = torch.arange(ids.shape[1])  # (T)
    for block in lm.blocks:
        x = join(x, block.attention(block.attn_norm(x), positions))  # (B, T, C)
        x = join(x, block.ffn(block.ffn_norm(x)))  # (B, T, C)
    return lm.lm_head(lm.final_norm(x))  # (B, T, V)


# %%
def block_gradients(lm: TransformerLM, join) -> list[float]:
    """How large the gradient of each block's weights is, for one batch of random tokens."""
    some = torch.randint(V, (B, T))
    after = torch.randint(V, (B, T))
    cross_entropy(stack(lm, join, some).flatten(0, 1), after.flatten()).backward()
    return [torch.cat([p.grad.flatten() for p in block.parameters()]).norm().item() for block in lm.blocks]


# %%
replaced = torch.tensor([block_gradients(untrained(24, seed), replace) for seed in range(5)])  # (5, 24): seeds, blocks

# %% tags=["source-hidden"]
how_large = (replaced[:, 0].mean() / replaced[:, -1].mean()).item()
predict(
    "24 blocks, and each result replaces the vector. How large is the gradient of the first block's weights, compared with the last block's?",
    key=lambda: "much larger" if how_large > 10 else "much smaller" if how_large < 0.1 else "about as large",
    choices={
        "much smaller": "It would be if the slopes were below 1, as in the example by hand.",
        "about as large": "The norms take care of the sizes on the way forward. On the way back there is no norm, and the slopes multiply.",
        "much larger": "",
    },
    because="On its way to the first block the gradient passes all others, and each of these blocks multiplies it by more than 1.",
)

# %% evidence="slopes-multiply"
for number in (1, 8, 16, 24):
    print(f"block {number:>2}: gradient {learned(replaced[:, number - 1].mean().item(), 1, 100_000)}")
assert (replaced[:, 0] > 100 * replaced[:, -1]).all()  # for each seed

# %% [markdown]
# The gradient **explodes**: it becomes several thousand times as large on its way from the last block to the first. The norms do not prevent this, because they keep the size of the
# vectors, not of the gradients. (Other parts have other slopes. Section 2 tries a second kind.)

# %% [markdown] tags=["note"]
# Ask before the prediction: who has read that deep networks have *vanishing* gradients? That is the usual wrong answer here. A product can go both ways, and these blocks explode. He et al. (2016, section 4.1), who
# introduced the residual connection for layers with batch norm, write that vanishing gradients are unlikely to be their difficulty. Let the room multiply 0.5 by itself ten times (about a thousandth).

# %% [markdown] slide="slide"
# ## 2. Add instead of replace
# The fix is one plus sign: a part does not replace the vector, it **adds** to it. $x$ becomes $x + f(x)$. This is a **residual connection** (He et al. 2016). What does it do to the slope?
#
# $$\frac{d}{dx}\bigl(x + f(x)\bigr) = 1 + \frac{df}{dx}$$

# %%
x = torch.tensor(1.0, requires_grad=True)
h = x
for slope in slopes:
    h = h + slope * h
h.backward()

# %% tags=["source-hidden"]
predict(
    "The same three parts, slopes 0.5, 0.2 and -0.3, but now each adds. We move x a little. How many times as far does the end move?",
    key=lambda: x.grad.item(),
    number="times",
    within=0.02,
    feedback={
        -0.03: "That was the chain. Now each factor is 1 + slope.",
        1.4: "That is 1 plus all slopes. The factors 1 + slope multiply.",
        0.4: "That is the sum of the slopes. The factors are 1 + slope, and they multiply.",
    },
    because="1.5 times 1.2 times 0.7.",
)

# %% evidence="a-way-of-slope-1"
a, b, c = slopes
ways = {"past all three": 1, "through one": a + b + c, "through two": a * b + a * c + b * c, "through all": a * b * c}
print(f"gradient {x.grad.item():.2f} =", " ".join(f"{way:+.2f} ({name})" for name, way in ways.items()))
assert math.isclose(x.grad.item(), sum(ways.values()), rel_tol=1e-5)

# %% [markdown]
# Multiply out $(1+a)(1+b)(1+c)$, and each term is one way back from the end. The chain had only the last way. Now there is one that **passes no part at all**, and its
# slope is 1, however many blocks there are. (The other ways still grow, so with other first weights or more blocks the ends can differ more.) On the 24 blocks:


# %% evidence="adding-keeps"
def add(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return x + made


added = torch.tensor([block_gradients(untrained(24, seed), add) for seed in range(5)])  # (5, 24): seeds, blocks
assert (added[:, 0] < 10 * added[:, -1]).all()


# %% tags=["source-hidden"]
def band(ax, values: torch.Tensor, name: str, dash: str, color: str) -> None:
    """The mean over the seeds (rows) as a line, and from the smallest to the largest as a band."""
    at = range(1, values.shape[1] + 1)
    ax.fill_between(at, values.amin(0), values.amax(0), color=color, alpha=0.18, linewidth=0)
    ax.plot(at, values.mean(0), dash, color=color, label=name)


# %% tags=["source-hidden"]
few = [0, 5, 11, 17, 23]
with figures.axes("With a plus sign the gradient grows far less", "block", "gradient of its weights") as (figure, ax):
    band(ax, added, "added", "-", figures.SERIES[0])
    band(ax, replaced, "replaced", "--", figures.SERIES[1])
    ax.set_yscale("log")
    ax.set_yticks([0.1, 1, 10, 100, 1000, 10000], ["0.1", "1", "10", "100", "1000", "10000"])
    ax.legend(frameon=False, loc="upper right")
figures.display(
    figure,
    alt=f"Line chart, logarithmic. From block 24 to block 1 the replaced gradient rises from {replaced[:, -1].mean():.0f} to more than a thousand, and the added one from {added[:, -1].mean():.2f} to {added[:, 0].mean():.1f}.",
    caption="Mean and range of 5 seeds. From right to left the gradient travels back. Where parts replace the vector, it grows with every block. Where they add to it, the first and the last block of these models differ by less than a factor of ten.",
    table={
        "block": [i + 1 for i in few],
        "replaced": [learned(value, 1, 100_000) for value in replaced.mean(0)[few].tolist()],
        "added": [rounded(value, 2) for value in added.mean(0)[few].tolist()],
    },
)

# %% [markdown]
# ### Does it learn?
# The test is training. Models of 8 blocks make 30 updates on stories. (`Adam` makes the updates: lesson 11.) We compare two kinds of feed-forward of lesson 08, because they have different slopes.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
texts = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(100)]
tokens = torch.tensor(tokenizer.encode("\n" + "\n".join(texts)))


# %%
def train(fresh: TransformerLM, read, rate: float = 0.01, warmup: int = 1) -> float:
    """The mean loss of the last 10 of 30 updates; read(ids) returns the logits. The rate grows over the warm-up."""
    optimizer = torch.optim.Adam(fresh.parameters())
    losses = []
    for update in range(1, 31):
        places = torch.randint(len(tokens) - 16, (8,)).tolist()
        batch = torch.stack([tokens[place : place + 17] for place in places])  # (8, 17)
        loss = cross_entropy(read(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = rate * min(1, update / warmup)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


# %%
often = tokens.bincount() / len(tokens)
entropy = -torch.xlogy(often, often).sum().item()
print(f"knowing how frequent each word is, and nothing more: loss {entropy:.1f}")

# %% evidence="plus-learns"
after_30 = {}
for ffn in ("swiglu", "gelu"):
    for join in (replace, add):
        found = torch.tensor([block_gradients(untrained(24, seed, ffn=ffn), join) for seed in range(3)]).mean(0)  # (24)
        learner = untrained(8, 1, ffn=ffn, vocab_size=tokenizer.vocab_size)
        after_30[ffn, join] = train(learner, partial(stack, learner, join))
        ends = f"gradient of block 1 of 24: {learned(found[0].item(), 0.5, 1e5):>8}, of block 24: {learned(found[-1].item(), 0.1, 10):>6}"
        print(f"{ffn:<6} {join.__name__:<7} {ends}, loss of 8 blocks {learned(after_30[ffn, join], 2.5, 5.6)}")
    assert after_30[ffn, replace] > entropy > after_30[ffn, add] + 0.4

# %% [markdown]
# Without the plus sign neither model gets below the loss of someone who knows only how frequent each word is. With it and these first weights, both learn more. (Section 3 has first weights with which the plus sign is not enough in 30 updates.) The size of the gradients alone does not explain this: with GELU they neither
# vanish nor explode when each part replaces the vector, and that model learns no more than the word frequencies either. (He et al. 2016, section 4.1, also consider vanishing gradients an unlikely cause of their difficulty, and leave the cause open.)
#
# ### The stream
# What runs straight through and is added to is the **residual stream**. In the shipped model, too, the vectors before the last norm are a plain sum: the
# embedding, plus what each part added.

# %%
stories = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in (1, 2)]
ids = torch.tensor([tokenizer.encode("\n" + text)[:80] for text in stories])  # (2, 80)
caught = capture(model, ids)

# %% evidence="stream-is-a-sum"
stream = caught.outputs["embed"]  # (B, T, C)
for i in range(3):
    for part in ("attention", "ffn"):
        made = caught.outputs[f"blocks.{i}.{part}"]  # (B, T, C)
        length = (made.norm(dim=-1) / stream.norm(dim=-1)).median()
        print(f"block {i + 1}: {part:<9} adds {length:.2f} times what is there")
        stream = stream + made
torch.testing.assert_close(stream, caught.inputs["final_norm"])

# %% [markdown]
# (The median over all words.) The last feed-forward adds a longer vector than the one that is there. It is like a shared notebook: everyone reads all of it and writes into it, nobody tears
# out a page. Except that here everyone writes on the same page: the additions overlap, and a later part can also subtract what an earlier one wrote.

# %% [markdown] slide="slide"
# ## 3. Where does the norm stand?
# Each part should meet vectors of one size (lesson 04). There are two places for the norm that sees to it: **pre-norm**, $x + f(\text{norm}(x))$, and **post-norm**,
# $\text{norm}(x + f(x))$. Both are used with a plus sign for each part.

# %% tags=["source-hidden"]
shade = {letter: color.light for letter, color in figures.AXIS_COLORS.items()}


def stream_line(ax, x, name, tops):
    ax.plot([x, x], [0.9, 0.05], color=shade["C"], linewidth=5, linestyle="-")
    ax.plot(x, 0.03, "v", color=shade["C"], markersize=15)
    ax.text(x - 0.16, 1.0, name, ha="center", weight="bold")
    ax.text(x, 0.93, "stream", ha="center", color=shade["C"], weight="bold")
    for y in tops:
        ax.plot(x, y, "o", color=shade["C"], markersize=22, zorder=4)
        ax.text(x, y - 0.005, "+", ha="center", va="center", color="white", size=19, weight="bold", zorder=5)


# %% tags=["source-hidden"]
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

# %% tags=["signature", "source-hidden"] rows=["S0-38"]
figures.display(
    figure,
    alt="Two blocks beside their streams. Pre-norm: a norm reads the stream, attention adds to it; another norm reads it, the feed-forward adds. Post-norm: attention reads the stream and adds, then a norm stands on the stream itself; the same with the feed-forward.",
    caption="Follow each thick line from top to bottom. What stands on it?",
    table={
        "step": ["1", "2", "3", "4", "5", "6"],
        "pre-norm": ["norm", "attention", "+", "norm", "feed-forward", "+"],
        "post-norm": ["attention", "+", "norm", "feed-forward", "+", "norm"],
    },
)

# %% [markdown]
# The first Transformer had post-norm (Vaswani et al. 2017), GPT-2 moved the norms to the front (Radford et al. 2019), and Llama has them there, too.
#
# What is the difference in numbers? Untrained models read
# random tokens once. For each block we keep three numbers: the standard deviation of the stream behind it (`stds`), the size of the gradient of all its weights (`grads`), and the size of
# its change of the stream, relative to the stream before it (`changes`).


# %%
def at_start(kind: str, n_blocks: int, seed: int, **choices) -> tuple[list[float], list[float], list[float]]:
    fresh = untrained(n_blocks, seed, block=kind, **choices)
    some = torch.randint(V, (B, T))
    after = torch.randint(V, (B, T))
    cross_entropy(fresh(some).flatten(0, 1), after.flatten()).backward()
    read, stds, grads, changes = capture(fresh, some), [], [], []
    for i, block in enumerate(fresh.blocks):
        before, behind = read.inputs[f"blocks.{i}"], read.outputs[f"blocks.{i}"]  # (B, T, C)
        stds.append(behind.std().item())
        grads.append(torch.cat([p.grad.flatten() for p in block.parameters()]).norm().item())
        changes.append(((behind - before).norm() / before.norm()).item())
    return stds, grads, changes


# %%
kinds = list(BLOCKS)  # pre_norm and post_norm
deep = {kind: torch.tensor([at_start(kind, 24, seed) for seed in range(5)]) for kind in kinds}
assert deep["pre_norm"].shape == (5, 3, 24)  # seeds, what is measured, blocks

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
    because="In pre-norm nothing but additions stands on the stream.",
)


# %% tags=["source-hidden"]
def compare(which: int, title: str, label: str, corner: str, caption: str) -> None:
    with figures.axes(title, "block", label) as (figure, ax):
        for kind, dash, color in zip(kinds, ("-", "--"), figures.SERIES, strict=False):
            band(ax, deep[kind][:, which], kind.replace("_", "-"), dash, color)
        ax.legend(frameon=False, loc=corner)
        ax.set_ylim(0)
    means = {kind.replace("_", "-"): deep[kind][:, which].mean(0)[few].tolist() for kind in kinds}
    courses = "; ".join(f"{name} from {values[0]:.1f} to {values[-1]:.1f}" for name, values in means.items())
    alt = f"Line chart over 24 blocks, {label}: {courses}."
    figures.display(figure, alt=alt, caption=caption, table={"block": [i + 1 for i in few], **means}, digits=2)


# %% tags=["source-hidden"]
says = "Mean and range of 5 seeds, untrained. In pre-norm each block adds; in post-norm each block ends in a norm."
compare(0, "The pre-norm stream grows", "standard deviation", "upper left", says)

# %% [markdown]
# In pre-norm every part reads a copy of the same size, so what it adds is of about one size. Compared with a larger stream that is less:

# %% evidence="stream-grows"
changes = deep["pre_norm"][:, 2].mean(0)  # (24)
for number in (1, 6, 24):
    print(f"pre-norm block {number:>2} adds {changes[number - 1]:.2f} times what is there")
assert (deep["pre_norm"][:, 0, -1] > 2 * deep["pre_norm"][:, 0, 0]).all()  # the stream grows
assert (deep["post_norm"][:, 0] - 1).abs().max() < 0.1  # and here it stays at 1, in every block
assert (deep["pre_norm"][:, 2, -1] < 0.6 * deep["pre_norm"][:, 2, 0]).all()  # late blocks change it less

# %% [markdown]
# Late blocks change little, at first. (In the shipped model the last block adds most: training decides in the end.) And the gradients?

# %% tags=["source-hidden"]
says = "The same models. With these first weights post-norm's gradients are larger in every block, about four times as large at the end, and its band is wide: seeds differ."
compare(1, "What comes back to the weights", "gradient of the block", "upper right", says)

# %% [markdown]
# Is that a fact about post-norm, or about these first weights and this feed-forward? We measure the last block, which is next to the loss, with four recipes and two depths. `cs336` and `gpt2` are two courses' and GPT-2's
# first weights, `normal` draws every matrix with the standard deviation 0.02 (lesson 02), which is small for 64 features.

# %%
RECIPES = (("cs336", "swiglu"), ("normal", "swiglu"), ("normal", "gelu"), ("gpt2", "gelu"))


def last_gradient(kind: str, n_blocks: int, init: str, ffn: str) -> float:
    """The gradient of the last block, mean of three seeds."""
    return sum(at_start(kind, n_blocks, seed, init=init, ffn=ffn)[1][-1] for seed in range(3)) / 3


# %%
pairs = [(kind, recipe) for recipe in RECIPES for kind in kinds]
of_6 = {(kind, recipe): last_gradient(kind, 6, *recipe) for kind, recipe in pairs}
of_24 = {(kind, recipe): last_gradient(kind, 24, *recipe) for kind, recipe in pairs}

# %% tags=["source-hidden"]
post_larger = [of_24["post_norm", recipe] > of_24["pre_norm", recipe] for recipe in RECIPES]
predict(
    "With cs336 and SwiGLU post-norm's last gradient is the larger one. In the three other recipes?",
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

# %% evidence="recipes"
for kind, recipe in pairs:
    few_blocks, many_blocks = of_6[kind, recipe], of_24[kind, recipe]
    print(
        f"{' '.join(recipe):<14}{kind:<10} gradient of the last of 6 blocks {few_blocks:.3f}, of 24 {many_blocks:.3f}"
    )
    grows_with_depth = kind == "pre_norm" and recipe[0] != "gpt2"  # the stream, and so the gradient falls
    low, high = (0.4, 0.65) if grows_with_depth else (0.8, 1.6)
    assert low < many_blocks / few_blocks < high
assert of_24["post_norm", RECIPES[0]] > 2 * of_24["pre_norm", RECIPES[0]]
assert all(of_24["post_norm", recipe] < of_24["pre_norm", recipe] / 4 for recipe in RECIPES[1:])

# %% [markdown]
# Which of the two is larger depends on the recipe here. What holds in all four: post-norm's last gradient hardly depends on the depth. Pre-norm's falls by about half, one over the root of 4, when there are four times as many blocks,
# except with `gpt2`, with which the stream grows less (section 5). [[recipes]] Xiong et al. (2020) derive both courses for one recipe.
# They see in post-norm's large gradients the reason why it needs **warm-up**, a start with small steps (lesson 11). Others find the trouble elsewhere: Takase et al. (2022) in deep
# post-norm models whose gradients vanish, Liu et al. (2020) in how much each block changes the stream.
#
# ### Which one learns?
# Models of 8 blocks, 30 updates as in section 2, with two learning rates and with a warm-up of 15 updates.

# %%
STEPS = {"rate 0.01": (0.01, 1), "rate 0.003": (0.003, 1), "0.01, warm-up": (0.01, 15)}


def loss_after_30(kind: str, init: str, factor: float = 1.0, rate: float = 0.01, warmup: int = 1) -> float:
    """factor: what the maps that write into the stream are multiplied by, at first."""
    fresh = untrained(8, 1, block=kind, init=init, vocab_size=tokenizer.vocab_size)
    with torch.no_grad():
        for block in fresh.blocks:
            block.attention.o_proj.weight.mul_(factor)
            block.ffn.down_proj.weight.mul_(factor)
    return train(fresh, fresh, rate, warmup)


# %% evidence="rates"
trained = {kind: [loss_after_30(kind, "cs336", 1.0, *step) for step in STEPS.values()] for kind in kinds}
print(f"{'cs336, 8 blocks':<17}", *STEPS, sep="  ")
for kind in kinds:
    print(f"{kind:<17}", *(f"{learned(loss, 2.5, 5.6):>9}" for loss in trained[kind]), sep="  ")
    assert all((loss < entropy - 0.5) == (kind == "pre_norm") for loss in trained[kind])

# %% [markdown]
# Pre-norm learns with all three. Within these 30 updates post-norm learns no more than the word frequencies, at both rates and with the warm-up. [[rates]] This does not show that post-norm cannot learn with these first weights: try a tenth of the first rate and ten times as many updates. A constant factor in all
# gradients cannot be the reason, because Adam divides it away (lesson 11).

# %% tags=["source-hidden"]
starts = {"cs336, a tenth": ("cs336", 0.1), "normal": ("normal", 1.0)}
of_start = {(kind, name): loss_after_30(kind, *start) for name, start in starts.items() for kind in kinds}
of_start |= {(kind, "cs336"): trained[kind][0] for kind in kinds}
predict(
    "We multiply the maps that write into the stream by 0.1 before training. Does post-norm learn then, in 30 updates?",
    key=lambda: "yes" if of_start["post_norm", "cs336, a tenth"] < entropy - 0.5 else "no",
    choices={
        "yes": "",
        "no": "With these weights each block changes the stream little at first, so that what the first blocks found still arrives at the end.",
    },
    because="Each block now changes the stream little at first.",
)

# %% evidence="first-weights-decide"
for name in ("cs336", *starts):
    pre, post = (learned(of_start[kind, name], 2.3, 5.6) for kind in kinds)
    print(f"first weights {name:<15} pre-norm {pre}, post-norm {post}")
assert of_start["post_norm", "cs336"] > of_start["pre_norm", "cs336"] + 0.5
assert of_start["post_norm", "cs336, a tenth"] < entropy - 0.5
assert of_start["post_norm", "normal"] < of_start["pre_norm", "normal"] - 0.5
assert of_start["pre_norm", "normal"] > entropy - 0.3  # the plus sign alone is not enough

# %% [markdown]
# Now post-norm learns. With `normal`, whose weights are small in all parts, it is even ahead of pre-norm, which here learns no more than the word frequencies. So neither arrangement is ahead with all of these first weights. At this rate and within 30 updates, post-norm
# learned only with weights with which each block changes the stream little at first. [[first-weights-decide]]
# Liu et al. (2020) explain post-norm's trouble in this way, and Wang et al. (2022) train deep post-norm models with smaller first weights and a stronger skip. The first Transformer trained with post-norm and 4000 updates of warm-up (Vaswani et al. 2017).
# These are small models, one seed and 30 updates: they do not show which one is better after a long training. The first recipe, side by side:

# %% rows=["S4-43"]
rows = {
    "what a part f does to the stream": ["x + f(norm(x))", "norm(x + f(x))"],
    "standard deviation behind block 24": [f"{deep[kind][:, 0, -1].mean():.1f}" for kind in kinds],
    "block 24 changes the stream by": [f"{deep[kind][:, 2, -1].mean():.0%}" for kind in kinds],
    "gradient of the last of 24 blocks": [f"{deep[kind][:, 1, -1].mean():.2f}" for kind in kinds],
    "loss, 8 blocks, 30 updates": [learned(trained[kind][0], 2.5, 5.6) for kind in kinds],
    "needs one more norm at the end": ["yes" if BLOCKS[kind].final_norm else "no" for kind in kinds],
}
for what, (pre, post) in {"": ["pre-norm", "post-norm"], **rows}.items():
    print(f"{what:<37}{pre:>15}{post:>16}")

# %% [markdown] tags=["note"]
# Ask before the recipes: what would you have to try before you say "post-norm has large gradients"? Both usual answers, "its gradients vanish" and "they explode", generalise one recipe. [[recipes]]
# The last prediction is the important one: most people expect the smaller learning rate or the warm-up to help within these 30 updates. (A much smaller rate does help post-norm, but only after many more updates.) For 50 minutes: show the training's output, do not wait for it.

# %% [markdown] slide="slide"
# ## 4. What is the last norm for?
# The last line of the table: behind its last block a pre-norm model has one more norm, before the map to the vocabulary. It makes all words
# equally large, and multiplies each feature by its gain (lesson 04). Let us leave it out of the shipped model, once the division alone, once the gains as well:

# %%
with torch.no_grad():
    end, head = caught.inputs["final_norm"], model.lm_head.weight  # (B, T, C), (V, C)
    kept, bare = end * model.final_norm.weight @ head.T, end @ head.T
results = {"with the norm": caught.logits, "gains kept, no division": kept, "without": bare}  # each (B, T, V)

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
    because="The stream has grown, so all logits grow, and the softmax of large logits gives nearly everything to one.",
)

# %% evidence="without-the-final-norm"
surest, losses = {}, {}
for name, logits in results.items():
    losses[name] = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    spread = logits.std(-1).median()
    surest[name] = logits.softmax(-1).amax(-1).mean()
    same = (logits.argmax(-1) == caught.logits.argmax(-1)).float().mean()
    print(f"{name:<24}std {spread:4.1f}, highest probability {surest[name]:.2f}", end=", ")
    print(f"loss {losses[name]:4.1f}, the same best guess {same:.0%}")
assert surest["without"] > surest["gains kept, no division"] > surest["with the norm"] + 0.1
assert losses["without"] > losses["gains kept, no division"] > losses["with the norm"] + 0.3

# %%
lengths = end.square().mean(-1).sqrt()  # (B, T)
print(f"RMS before the norm: median {lengths.median():.0f}, largest {lengths.max():.0f}")
print(f"mean gain {model.final_norm.weight.mean():.2f}")

# %% [markdown]
# (`std` is how widely one word's logits are spread: the median over the words.) Without the division the ranking stays, but the model is surer, and a wrong guess made with certainty is expensive (lesson 03). The rest of the last row is the missing gains:
# they made everything smaller, each feature by its own factor. The division takes from the stream how far it has grown, which differs from word to word: the median size is 5, the largest 70.

# %% [markdown] slide="slide"
# ## 5. First weights and dropout
# L blocks make 2L additions. If 12 blocks add 24 vectors of one size, pointing anywhere, how large is the sum? Variances add up (lesson 02), so $\sqrt{24}$ times as large as one of them.
# GPT-2 therefore draws the maps that *write into the stream* smaller by $\sqrt{2L}$ (Radford et al. 2019). One can go further and start them
# at 0: then each block starts as the **identity**, and returns what it gets. The stream of 12 blocks:

# %% evidence="small-maps"
recipes = {"normal": "0.02", "gpt2": "0.02 / root of 24", "zero_residual": "0"}
sizes = {"vocab_size": 200, "d_model": 128, "n_heads": 4, "n_layers": 12, "tie_embeddings": False}
for init, into_stream in recipes.items():
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        read = capture(TransformerLM(preset("gpt", **sizes, init=init)), torch.randint(200, (2, 16)))
        found.append([read.inputs["blocks.0"].std(), read.outputs["blocks.11"].std()])
    before, behind = torch.tensor(found).mean(0).tolist()
    print(f"{init:<14} maps into the stream {into_stream:<18}", end=" ")
    print(f"std of the stream {before:.3f}, at the end {behind / before:.1f} times")
    assert {"normal": 5, "gpt2": 1.5, "zero_residual": 0.99}[init] < behind / before
    assert behind / before < {"normal": 12, "gpt2": 3, "zero_residual": 1.01}[init]

# %% [markdown]
# (Means of three seeds.) A published course note gives 0.02 for all weights as GPT-2's way. The scaling is missing, and the stream grows to eight times its size. (GPT-2 also draws its learned positions with half the spread,
# hence the smaller start.) Can a map that is 0 learn? Yes: its gradient is what it reads, times what comes back along the stream, and neither is 0. What lies before it waits for one update.
#
# ### Dropout's places
# Lesson 07 dropped attention weights. There are three more places: the embedding, the end of the feed-forward, and **what a part adds** (for the feed-forward these two are the same place), `x + dropout(f(norm(x)))`. Between the blocks the stream itself is not dropped.

# %% tags=["source-hidden"]
torch.manual_seed(9)
left = torch.ones(100_000)
for _ in range(12):
    left = torch.dropout(left, 0.1, train=True)
share_left = 100 * left.count_nonzero().item() / len(left)
predict(
    "Somebody writes `dropout(x + f(norm(x)))` and drops 10 %, once in each of 12 blocks. How many % of the numbers of the embedding are left at the end?",
    key=lambda: share_left,
    number="%",
    within=4,
    feedback={90: "That is one block.", 10: "Each block keeps 90 % of what is left."},
    because="Each block keeps 0.9 of what is left: 0.9 to the power of 12.",
)

# %% evidence="dropout-on-the-stream"
assert abs(share_left - 100 * 0.9**12) < 2
print(f"left: {share_left:.0f} %, 0.9^12 = {0.9**12:.2f}, and each {left.max():.1f} times as large")

# %% [markdown]
# (1 / 0.9^12: dropout scales up what stays.) What is dropped from an addition is missing once; what is dropped from the stream is gone for all that follow. So a block drops both additions, each of them once (lesson 08 showed twice):

# %% rows=["S2-6"]
block, vectors = PreNormBlock(preset("gpt")), torch.randn(2, 100, 256)
for name, made in (("attention", block.attention(vectors, torch.arange(100))), ("feed-forward", block.ffn(vectors))):
    before, added_with = ((t == 0).float().mean() for t in (made, block.dropout(made)))
    print(f"{name:<13}returns {before:.0%} zeros, added with {added_with:.0%}")
    assert before == 0 and abs(added_with - 0.1) < 0.02

# %% evidence="dropout-on-what-is-added"
ones_block = PreNormBlock(preset("gpt"))
for part in (ones_block.attention, ones_block.ffn):
    part.register_forward_hook(lambda part, inputs, output: torch.ones_like(output))
after_ones = ones_block(vectors, torch.arange(100))  # (2, 100, 256)
change = 0.9 * (after_ones - vectors)  # nothing of the stream itself is missing
print("if each part adds 1, the block adds 0, 1 or 2 times 1 / 0.9:", change.abs().round(decimals=3).unique().tolist())
assert change.abs().round(decimals=3).unique().tolist() == [0, 1, 2]

# %% [markdown] tags=["note"]
# A good question: why not normalize what is added, too? Some models do. It is a fair answer to the growing stream, though not what the exercise asks.

# %% [markdown] slide="slide"
# ## 6. Your turn
# Write the pre-norm block. Its four parts are functions: each takes exactly one argument and returns something of the same shape (positions and masks are inside `attention`). Call each part once, in the order norm1, attention, norm2, ffn.


# %% tags=["exercise"] name="pre_norm_block" minutes=7 difficulty=2
def pre_norm_block(x, norm1, attention, norm2, ffn):
    """x of any dims, usually (..., T, C). Each part takes one tensor and returns one of its shape and dtype.

    attention reads norm1 of the stream and adds to the stream; then ffn reads norm2 of the stream and adds to it.
    Returns the stream, in the shape and dtype of x. x itself is left as it is, and gradients flow back to it.
    """
    # SOLUTION
    h = x + attention(norm1(x))
    return h + ffn(norm2(h))
    # END


# %% tags=["check"]
if check("pre_norm_block", pre_norm_block).passed:
    keep("pre_norm_block", pre_norm_block)

# %%
hint("pre_norm_block")

# %% [markdown] tags=["solution"]
# The same line twice, and the second one starts from what the first has made. The usual slips: `x = norm1(x)`, which puts the copy in the place of the stream (every sum then passes a norm, as in post-norm); the old `x` in the second line (section 7);
# `norm1(x + attention(x))`, which is post-norm; and `x += ...`, which changes the caller's tensor.

# %% [markdown] slide="subslide"
# ### The library's version
# Attention also gets the positions, and dropout stands on what is added. (`extend`, `Positions` and `rotation`: ignore them for now.)

# %% rows=["S0-37"]
block, positions = PreNormBlock(preset("cs336", d_model=C, n_heads=4)), torch.arange(T)
x_in = torch.randn(B, T, C)
h = x_in + block.attention(block.attn_norm(x_in), positions)  # (B, T, C)
torch.testing.assert_close(block(x_in, positions), h + block.ffn(block.ffn_norm(h)))

# %%
show(PreNormBlock, PostNormBlock)

# %%
trace(block, x_in, positions, sizes={"B": B, "T": T, "C": C})

# %% [markdown]
# In and out are of one shape, so any number of blocks fits behind one another. The blocks of four published courses are this class with four configs:

# %% rows=["S0-36", "S1-24", "S4-7"]
for name in ("cs336", "cs190c", "gpt", "tiny_transformer"):
    config = preset(name)
    one = PreNormBlock(config)
    assert one(torch.zeros(2, 16, config.d_model), torch.arange(16)).shape == (2, 16, config.d_model)
    widths, norm = f"C {config.d_model}, H {config.n_heads}, F {config.d_ff}", type(one.attn_norm).__name__
    biases = "no biases" if one.attention.q_proj.bias is None else "with biases"
    print(f"{name:<17}{widths}, {norm}, {config.ffn}, dropout {config.residual_dropout}, {biases} in attention")

# %% [markdown] slide="slide"
# ## 7. Break it: the old x
# One letter. The second sum starts from `x` instead of `h`:


# %%
def right(block, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    h = x + block.attention(block.attn_norm(x), positions)  # (B, T, C)
    return h + block.ffn(block.ffn_norm(h))


# %%
def stale(block, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    h = x + block.attention(block.attn_norm(x), positions)  # (B, T, C)
    return x + block.ffn(block.ffn_norm(h))


# %%
def logits_of(lm: TransformerLM, one, ids: torch.Tensor) -> torch.Tensor:
    x, positions = lm.embed(ids), torch.arange(ids.shape[1])
    for block in lm.blocks:
        x = one(block, x, positions)
    return lm.lm_head(lm.final_norm(x))


# %%
seen = {}
for one in (right, stale):
    found = []
    for seed in range(3):
        fresh = untrained(2, seed, vocab_size=tokenizer.vocab_size)
        read = partial(logits_of, fresh, one)
        first = cross_entropy(read(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        first.backward()
        gradient = fresh.blocks[0].attention.o_proj.weight.grad.norm()
        found.append([first.item(), gradient.item(), train(fresh, read)])
    seen[one.__name__] = torch.tensor(found).mean(0).tolist()

# %% tags=["source-hidden"]
behind_by = seen["stale"][2] - seen["right"][2]
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

# %%
for name, (first, gradient, last) in seen.items():
    losses = f"first loss {first:.1f}, after 30 updates {last:.1f}"
    print(f"{name}: {losses}, gradient of attention's output map {gradient:.2f}")

# %%
with torch.no_grad():
    for one in (right, stale):
        loss = cross_entropy(logits_of(model, one, ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        print(f"the trained model, run with {one.__name__} blocks: loss {loss:.1f}")

# %% [markdown]
# No error, and the losses agree. What is lost: attention's addition never reaches the stream, all it finds must squeeze through the feed-forward of the same block, and only a third of the gradient arrives at attention's output map. And weights trained the
# right way lose much in a stale model: the loss rises from 0.8 to 2.3. Hence tests with parts that can be followed in the head, as in the exercise's check.
#
# ## What you have now
# - In a chain the slopes multiply, so a gradient can vanish or explode. [[equal-slopes]] In the blocks of section 1 it explodes. [[slopes-multiply]] If each part only adds to the vector, one way back has slope 1. [[a-way-of-slope-1]]
#   With the first weights and the deep stack of section 2 the gradients of the first and the last block then differ by less than a factor of ten. [[adding-keeps]]
# - Without the residual connection 8 blocks learned no more than the word frequencies in 30 updates. With it and suitable first weights they learned more. [[plus-learns]] [[first-weights-decide]]
# - In pre-norm the residual stream is a sum: the embedding plus what each part added. [[stream-is-a-sum]]
# - Pre-norm normalizes the copy that a part reads. With most of the first weights tried here its stream grows from block to block. [[stream-grows]] [[small-maps]] Without the final norm the shipped model becomes overconfident, and its loss rises. [[without-the-final-norm]]
# - Post-norm normalizes the stream itself. In the recipes tried here, the first weights decided whether pre-norm or post-norm had the larger gradient in the last block. [[recipes]] They also decided which one had the lower loss after 30 updates. [[first-weights-decide]]
# - With smaller first weights in the maps that write into the stream, the stream grows less; with 0 it does not grow. [[small-maps]]
# - In training, a block's dropout acts on what each part adds, not on the stream. [[dropout-on-what-is-added]] On the stream itself, dropping a tenth in each of 12 blocks would remove most of the embedding. [[dropout-on-the-stream]]
#
# Next, lesson 10: blocks, embedding and head become a model.

# %% [markdown]
# ## Sources
# - Residual connections: He et al. 2016, *Deep Residual Learning for Image Recognition*, sections 3 and 4.1. The stream: Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*. The ways through a sum:
#   Veit, Wilber and Belongie 2016, *Residual Networks Behave Like Ensembles of Relatively Shallow Networks*.
# - Post-norm: Vaswani et al. 2017, *Attention Is All You Need*, section 3.1 (the block) and section 5 (warm-up, dropout).
# - Both, and warm-up: Xiong et al. 2020, *On Layer Normalization in the Transformer Architecture*, section 3.
# - What makes post-norm hard to train: Liu et al. 2020, *Understanding the Difficulty of Training Transformers*; Takase et al. 2022, *On Layer Normalizations and Residual Connections in Transformers*; Wang et al. 2022,
#   *DeepNet: Scaling Transformers to 1,000 Layers*.
# - Pre-norm and scaled first weights in GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.3.
# - Zero at the start: Zhang, Dauphin and Ma 2019, *Fixup Initialization: Residual Learning Without Normalization*, section 3.
# - Dropout: Srivastava et al. 2014, *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*.
