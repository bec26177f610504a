# %% [markdown] slide="slide" minutes=1
# # 09 Block
# **How can dozens of layers be stacked so that each still learns?**
#
# *Needs* lessons 04, 05, 07 and 08. *Builds* `PreNormBlock` in `model.py`. *Runs* in about 20 s on two cores.
# *Teaches* in 35 minutes, plus 7 of exercises.

# %%
import math
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from tinylm_lib import ModelConfig, TransformerLM, preset, storyworld
from tinylm_lib.classroom import check, figures, hint, keep, predict, show, trace
from tinylm_lib.classroom.capture import capture
from tinylm_lib.classroom.measured import rounded
from tinylm_lib.model import BLOCKS, PostNormBlock, PreNormBlock
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(9)

# %% [markdown] slide="slide" minutes=6
# ## 1. Stack it, and it dies
# You have built two parts: attention, which fetches, and the feed-forward, which works on what was fetched. A model has dozens of them, one behind the other. Can
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
# That is $0.5 \cdot 0.2 \cdot (-0.3)$: **in a chain the slopes multiply**, and a product of many small numbers is nearly nothing. Now 24 layers, each
# a random map and a bent curve, $\tanh(Wx + b)$. The curve keeps the numbers between $-1$ and 1, so their sizes cannot run away.
# The loss is `x @ wanted`: how far the end points into a random direction. `stays` says how much of the old vector stays: at first nothing, it is replaced.


# %%
def gradients(stays: float, seed: int) -> list[float]:
    """How large the gradient of each layer's weights is."""
    generator = torch.Generator().manual_seed(seed)
    x, weights = torch.randn(64, generator=generator), []
    for _ in range(24):
        W = torch.randn(64, 64, generator=generator) / math.sqrt(64)
        weights.append(W.requires_grad_())
        x = stays * x + torch.tanh(W @ x + torch.randn(64, generator=generator))  # (64)
    wanted = torch.randn(64, generator=generator)
    return [g.norm().item() for g in torch.autograd.grad(x @ wanted, weights)]


# %%
replaced = torch.tensor([gradients(0.0, seed) for seed in range(5)])  # (5, 24): seeds, layers

# %% tags=["source-hidden"]
least = replaced.mean(0).argmin().item()
predict(
    "The 24 layers stand in a row. Whose weights get the smallest gradient?",
    key=lambda: {0: "the first layer's", 23: "the last layer's"}.get(least, "those in the middle"),
    choices={
        "the first layer's": "",
        "those in the middle": "How many slopes lie between a layer and the end?",
        "the last layer's": "So one published course note says. But the gradient comes from the end, and the last layer stands right there.",
    },
    because="The gradient has to pass all the other layers to get there, and each multiplies.",
)

# %%
for layer in (1, 8, 16, 24):
    print(f"layer {layer:>2}: gradient {rounded(replaced[:, layer - 1].mean().item(), 1)}")

# %% [markdown]
# The early layers hardly learn. They are also the first to touch the text: what they lose, no later layer can bring back.

# %% [markdown] tags=["note"]
# Have the room multiply 0.5 by itself ten times (a thousandth). If someone proposes larger weights: 1.5 times as large saves this chain, 1 is too small, 2 makes the
# gradient explode. Adding is far less particular.

# %% [markdown] slide="slide" minutes=5
# ## 2. Add instead of replace
# The remedy is one plus sign: a part does not replace the vector, it **adds** to it. $x$ becomes $x + f(x)$. This is a **residual connection** (He et al. 2016). What does it do to the slope?
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

# %%
a, b, c = slopes
ways = {"past all three": 1, "through one": a + b + c, "through two": a * b + a * c + b * c, "through all": a * b * c}
print(f"gradient {x.grad.item():.2f} =", " ".join(f"{way:+.2f} ({name})" for name, way in ways.items()))

# %% [markdown]
# Multiply out $(1+a)(1+b)(1+c)$, and each term is one way back from the end. The chain had only the last way. Now there is one that **passes no part at all**, and its
# factor is 1, however many layers there are. On the 24 layers:

# %%
added = torch.tensor([gradients(1.0, seed) for seed in range(5)])  # (5, 24): seeds, layers


# %% tags=["source-hidden"]
def band(ax, values: torch.Tensor, name: str, dash: str, color: str) -> None:
    """The mean over the seeds (rows) as a line, and from the smallest to the largest as a band."""
    at = range(1, values.shape[1] + 1)
    ax.fill_between(at, values.amin(0), values.amax(0), color=color, alpha=0.18, linewidth=0)
    ax.plot(at, values.mean(0), dash, color=color, label=name)


# %% tags=["source-hidden"]
few = [0, 5, 11, 17, 23]
with figures.axes("With a plus sign the gradient arrives", "layer", "gradient of its weights") as (figure, ax):
    band(ax, added, "added", "-", figures.SERIES[0])
    band(ax, replaced, "replaced", "--", figures.SERIES[1])
    ax.set_yscale("log")
    ax.set_yticks([1e-3, 0.1, 10, 1000], ["0.001", "0.1", "10", "1000"])
    ax.legend(frameon=False, loc="lower right")
figures.show(
    figure,
    alt=f"Line chart, logarithmic. From layer 24 to layer 1 the replaced gradient falls from {replaced[:, -1].mean():.0f} to {replaced[:, 0].mean():.0e}, and the added one rises from {added[:, -1].mean():.0f} to {added[:, 0].mean():.0f}.",
    caption="Mean and range of 5 seeds. From right to left the gradient travels back. Where parts add, it arrives at the first layer. It even grows, nearly threefold: the other ways add theirs to the 1.",
    table={
        "layer": [i + 1 for i in few],
        "replaced": replaced.mean(0)[few].tolist(),
        "added": added.mean(0)[few].tolist(),
    },
    digits=1,
)

# %% [markdown]
# ### The stream
# What runs straight through and is added to is the **residual stream**. In the shipped model, too, the vectors before the last norm are a plain sum: the
# embedding, plus what each part added.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
told = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in (1, 2)]
ids = torch.tensor([tokenizer.encode(text)[:80] for text in told])  # (B, T)
caught = capture(model, ids)

# %%
stream = caught.outputs["embed"]  # (B, T, C)
for i in range(3):
    for part in ("attention", "ffn"):
        made = caught.outputs[f"blocks.{i}.{part}"]  # (B, T, C)
        share = (made.norm(dim=-1) / stream.norm(dim=-1)).median()
        print(f"block {i + 1}: {part:<9} adds {share:.2f} times what is there")
        stream = stream + made
torch.testing.assert_close(stream, caught.inputs["final_norm"])

# %% [markdown]
# (The median over all words.) The last feed-forward adds more than all that is there: it has the last word on the answer. A part that has nothing to say adds little; what was there stays. It is like a shared notebook: everyone reads all of it and writes into it, nobody tears
# out a page. Except that here everyone writes on the same page: the additions overlap, and a later part can also subtract what an earlier one wrote.

# %% [markdown] slide="slide" minutes=9
# ## 3. Where does the norm stand?
# Each part should meet vectors of one size (lesson 04). There are two places for the norm that sees to it: **pre-norm**, $x + f(\text{norm}(x))$, and **post-norm**,
# $\text{norm}(x + f(x))$. A **block** is attention and feed-forward, each with its plus sign and its norm.

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

# %% tags=["source-hidden"] rows=["S0-38"]
figures.show(
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
# What is the difference in numbers? We make whole models of the library (lesson 10 puts them together), untrained, with the first weights of lesson 02 and 64 features, and let each read
# random tokens once. For each block we keep three numbers: the standard deviation of the stream behind it (`stds`), the size of the gradient of all its weights (`grads`), and how large
# its change of the stream is beside what was there (`shares`).

# %%
V, B, T, C = 100, 4, 32, 64


def untrained(kind: str, n_blocks: int, seed: int, vocab_size: int = V) -> TransformerLM:
    torch.manual_seed(seed)
    sizes = {"vocab_size": vocab_size, "d_model": C, "n_layers": n_blocks, "tie_embeddings": False}
    return TransformerLM(ModelConfig(**sizes, block=kind, init="cs336"))


# %%
def at_start(kind: str, n_blocks: int, seed: int) -> tuple[list[float], list[float], list[float]]:
    fresh = untrained(kind, n_blocks, seed)
    some, after = torch.randint(V, (B, T)), torch.randint(V, (B, T))
    cross_entropy(fresh(some).flatten(0, 1), after.flatten()).backward()
    read, stds, grads, shares = capture(fresh, some), [], [], []
    for i, block in enumerate(fresh.blocks):
        before, behind = read.inputs[f"blocks.{i}"], read.outputs[f"blocks.{i}"]  # (B, T, C)
        stds.append(behind.std().item())
        grads.append(torch.cat([p.grad.flatten() for p in block.parameters()]).norm().item())
        shares.append(((behind - before).norm() / before.norm()).item())
    return stds, grads, shares


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
    figures.show(figure, alt=alt, caption=caption, table={"block": [i + 1 for i in few], **means}, digits=2)


# %% tags=["source-hidden"]
says = "Mean and range of 5 seeds, untrained. In pre-norm each block adds; in post-norm each block ends in a norm."
compare(0, "The pre-norm stream grows", "standard deviation", "upper left", says)

# %% [markdown]
# In pre-norm every part reads a copy of the same size, wherever it stands, so what it adds is of about one size. Beside a larger stream that weighs less:

# %%
shares = deep["pre_norm"][:, 2].mean(0)  # (24)
for i in (1, 6, 24):
    print(f"pre-norm block {i:>2} adds {shares[i - 1]:.2f} times what is there")

# %% [markdown]
# Late blocks change little, at first. (In the shipped model the last block adds most: training decides in the end.) And the gradients?

# %% tags=["source-hidden"]
says = "The same models. None vanishes. Post-norm's are larger in every block, about four times as large at the end, and its band is wide: seeds differ."
compare(1, "What comes back to the weights", "gradient of the block", "upper right", says)

# %% [markdown]
# Post-norm has no way past all norms, and yet its early gradients are the largest. A norm on the stream rescales what comes back but does not stop it; what differs is the size, and the spread over the seeds.
#
# The right end stands next to the loss. How does it change with the depth? We measure 6 blocks as well:

# %%
flat = {kind: torch.tensor([at_start(kind, 6, seed) for seed in range(5)]) for kind in kinds}
for kind in kinds:
    of_6, of_24 = flat[kind][:, 1, -1].mean(), deep[kind][:, 1, -1].mean()
    print(f"{kind:<10} gradient of the last block: {of_6:.2f} of 6, {of_24:.2f} of 24: {of_24 / of_6:.1f} times")

# %% [markdown]
# In pre-norm four times the depth halves it: one over the root of 4. In post-norm it does not shrink. Xiong et al. (2020) derive both, and see in the large gradients at the
# end the reason why post-norm needs **warm-up**, a start with tiny steps (lesson 11).
#
# Does a difference show in training? Small models, 30 updates on stories, with the same step size for all and no warm-up. (`Adam` takes the steps: lesson 11.)

# %%
texts = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(100)]
tokens = torch.tensor(tokenizer.encode("\n".join(texts)))


# %%
def train(fresh: TransformerLM, read) -> float:
    """The mean loss of the last 10 of 30 updates; read(ids) returns the logits."""
    optimizer, losses = torch.optim.Adam(fresh.parameters(), lr=0.01), []
    for _ in range(30):
        places = torch.randint(len(tokens) - 16, (8,)).tolist()
        batch = torch.stack([tokens[place : place + 17] for place in places])  # (8, 17)
        loss = cross_entropy(read(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


# %%
trained = {}
for kind in kinds:
    for n_blocks in (2, 8):
        fresh = [untrained(kind, n_blocks, seed, vocab_size=tokenizer.vocab_size) for seed in (1, 2)]
        trained[kind, n_blocks] = sum(train(one, one) for one in fresh) / 2
        print(f"{kind:<10}{n_blocks} blocks, mean of 2 seeds: loss {trained[kind, n_blocks]:.1f}")
often = tokens.bincount() / len(tokens)
print(f"knowing how frequent each word is, and nothing else: {-torch.xlogy(often, often).sum():.1f}")

# %% [markdown]
# With 2 blocks the two are close. With 8, post-norm does no better than somebody who knows only how frequent each word is. (Pre-norm with 8 is behind pre-norm with 2: 30 updates are few.) That does not mean that
# post-norm cannot be trained: the first Transformer was, with 4000 updates of warm-up (Vaswani et al. 2017). Pre-norm is less particular. All that we measured, side by side:

# %% rows=["S4-43"]
rows = {
    "what a part f does to the stream": ["x + f(norm(x))", "norm(x + f(x))"],
    "standard deviation behind block 24": [f"{deep[kind][:, 0, -1].mean():.1f}" for kind in kinds],
    "block 24 changes the stream by": [f"{deep[kind][:, 2, -1].mean():.0%}" for kind in kinds],
    "gradient of the last of 24 blocks": [f"{deep[kind][:, 1, -1].mean():.2f}" for kind in kinds],
    "loss, 8 blocks, 30 updates": [f"{trained[kind, 8]:.1f}" for kind in kinds],
    "needs one more norm at the end": ["yes" if BLOCKS[kind].final_norm else "no" for kind in kinds],
}
for what, (pre, post) in {"": ["pre-norm", "post-norm"], **rows}.items():
    print(f"{what:<37}{pre:>15}{post:>16}")

# %% [markdown] tags=["note"]
# Common wrong answer: "post-norm has vanishing gradients". Here they do not vanish, they are larger. A warm-up of a few dozen updates does not rescue post-norm here either:
# with twice the updates its loss stays where it is, whether the warm-up takes none, half or all of them. For what a long one does, see Xiong et al. (2020).
# For 50 minutes: show the training's output, do not wait for it.

# %% [markdown] slide="slide" minutes=3
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

# %%
for name, logits in results.items():
    loss = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    spread, best = logits.std(-1).median(), logits.softmax(-1).amax(-1).mean()
    same = (logits.argmax(-1) == caught.logits.argmax(-1)).float().mean()
    print(f"{name:<24}std {spread:4.1f}, best share {best:.2f}, loss {loss:4.1f}, the same best guess {same:.0%}")

# %%
lengths = end.square().mean(-1).sqrt()  # (B, T)
print(f"RMS before the norm: median {lengths.median():.0f}, largest {lengths.max():.0f}")
print(f"mean gain {model.final_norm.weight.mean():.2f}")

# %% [markdown]
# (`std` is how widely one word's logits are spread: the median over the words.) Without the division the ranking stays, but the model is surer, and a wrong guess made with certainty is expensive (lesson 03). The rest of the last row is the missing gains:
# they made everything smaller, each feature by its own factor. The division takes from the stream how far it has grown, which differs from word to word: the median size is 5, the largest 69.

# %% [markdown] slide="slide" minutes=5
# ## 5. First weights and dropout
# L blocks make 2L additions. If 12 blocks add 24 vectors of one size, pointing anywhere, how large is the sum? Variances add up (lesson 02), so $\sqrt{24}$ times as large as one of them.
# GPT-2 therefore draws the maps that *write into the stream* smaller by $\sqrt{2L}$ (Radford et al. 2019). One can go further and start them
# at 0: then each block starts as the **identity**, and returns what it gets. The stream of 12 blocks:

# %%
recipes = {"normal": "0.02", "gpt2": "0.02 / root of 24", "zero_residual": "0"}
sizes = {"vocab_size": 200, "d_model": 128, "n_heads": 4, "n_layers": 12, "tie_embeddings": False}
for init, into_stream in recipes.items():
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        read = capture(TransformerLM(preset("gpt", **sizes, init=init)), torch.randint(200, (2, 16)))
        found.append([read.inputs["blocks.0"].std(), read.outputs["blocks.11"].std()])
    before, behind = torch.tensor(found).mean(0).tolist()
    print(
        f"{init:<14} maps into the stream {into_stream:<18} std of the stream {before:.3f}, at the end {behind / before:.1f} times"
    )

# %% [markdown]
# (Means of three seeds.) A published course note gives 0.02 for all weights as GPT-2's way. The scaling is missing, and the stream grows to eight times its size. (GPT-2 also draws its learned positions with half the spread,
# hence the smaller start.) Can a map that is 0 learn? Yes: its gradient is what it reads, times what comes back along the stream, and neither is 0. What lies before it waits for one update.
#
# ### Dropout's places
# Lesson 07 dropped attention weights. There are three more places: the embedding, the end of the feed-forward, and **what a part adds** (for the feed-forward these two are the same place), `x + dropout(f(norm(x)))`. On the stream itself it has no place.

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

# %%
print(f"left: {share_left:.0f} %, 0.9^12 = {0.9**12:.2f}, and each {left.max():.1f} times as large")

# %% [markdown]
# (1 / 0.9^12: dropout scales up what stays.) What is dropped from an addition is missing once; what is dropped from the stream is gone for all that follow. So a block drops both additions, each of them once (lesson 08 showed twice):

# %% rows=["S2-6"]
block, vectors = PreNormBlock(preset("gpt")), torch.randn(2, 100, 256)
for name, made in (("attention", block.attention(vectors, torch.arange(100))), ("feed-forward", block.ffn(vectors))):
    before, added_with = ((t == 0).float().mean() for t in (made, block.dropout(made)))
    print(f"{name:<13}returns {before:.0%} zeros, added with {added_with:.0%}")

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

# %% [markdown] slide="subslide" minutes=2
# ### The library's version
# Attention also gets the positions, and dropout stands on what is added. (`extend`, `rows` and `rotation`: ignore them until they are needed.)

# %% rows=["S0-37"]
block, positions = PreNormBlock(preset("cs336", d_model=C, n_heads=4)), torch.arange(T)
vectors = torch.randn(B, T, C)
h = vectors + block.attention(block.attn_norm(vectors), positions)  # (B, T, C)
torch.testing.assert_close(block(vectors, positions), h + block.ffn(block.ffn_norm(h)))

# %%
show(PreNormBlock, PostNormBlock)

# %%
trace(block, vectors, positions, sizes={"B": B, "T": T, "C": C})

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

# %% [markdown] slide="slide" minutes=4
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
        fresh = untrained("pre_norm", 2, seed, vocab_size=tokenizer.vocab_size)
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
    because="The feed-forward reads h, with what attention found, and learns to say it in its own words.",
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
# right way are worth little in a stale model. Hence tests with parts that can be followed in the head, as in the exercise's check.
#
# ## What you have now
# - In a chain slopes multiply; what adds instead has a way back of slope 1. The early layers suffer first.
# - The residual stream is a sum: the embedding, plus what each part added.
# - Pre-norm normalizes the copy that a part reads. The stream grows, so it needs one norm at the end.
# - Post-norm normalizes the stream. Its gradients do not vanish, they stay large at the end; its makers gave it a warm-up.
# - Maps into the stream start small, or at 0. Dropout stands on what is added, never on the stream.
#
# Next, lesson 10: blocks, embedding and head become a model.
#
# ## Sources
# - Residual connections: He et al. 2016, *Deep Residual Learning for Image Recognition*, section 3.
# - Post-norm: Vaswani et al. 2017, *Attention Is All You Need*, section 3.1 (the block) and section 5 (warm-up, dropout).
# - Both, and warm-up: Xiong et al. 2020, *On Layer Normalization in the Transformer Architecture*, section 3.
# - Pre-norm and scaled first weights in GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.3.
# - Zero at the start: Zhang, Dauphin and Ma 2019, *Fixup Initialization: Residual Learning Without Normalization*, section 3.
# - Dropout: Srivastava et al. 2014, *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*.
