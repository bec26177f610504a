# %% [markdown] slide="slide"
# # 07 Heads
# **How can a word look back for several things at once?**
#
# *Needs* lessons 05 and 06. *Builds* `Attention` in `attention.py`. *Runs* in about 25 s on two cores.
# *Teaches* in about 60 minutes, plus 33 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: one head returns one average, so a layer has several heads, each with its own features, and adds up what they find. Sections 1 to 4 are the core, with one exercise. Section 4 is the heart: it compares where a head looks with what breaks when the head is removed, and the two disagree.
# If you have only ten minutes, show the picture of section 1, let the class vote on the prediction of section 4, and show the two maps there.
# Before the class: run section 1 and the controls of sections 1 and 4.

# %% slide="skip"
from itertools import takewhile

import torch
from matplotlib import patheffects, patches
from matplotlib import pyplot as plt
from matplotlib.path import Path

from tinylm_lib import storyworld
from tinylm_classroom import capture, figures, predict
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** In lesson 05 a word looks back once, and its weights sum to 1. The picture shows four such looks in each word of a story. Today: why four, how they are computed together, and how we find out what each contributes.
#
# **Draw.** *Carlos sang to Jamal* on the board, with one arrow of weight 0.5 to each name and below them one box, in which both arrows end. Exchange the names: the box stays the same. Then two boxes, one for each arrow.
#
# **Ask.** After the prediction: "Could one head fetch both names, so that we know who is who?" (Yes, if the values are longer and name the role as well.)
#
# **Usual answers.**
# - *All of Carlos and all of Jamal* (`[1.0, 1.0]`): The weights of one query sum to 1. To give Jamal half, the query has to take half from Carlos.
# - *Only the first one* (`[1.0, 0.0]`): Both names have the same score, so which of them should win?
# - *Two things always need two heads* (from the room): Not if the values tell them apart, or if a network behind the layer takes the average apart. Both are tried in this section.
#
# **Cut if short.** The longer values and the network behind the layer; keep the picture of the trained heads.

# %% [markdown] slide="slide"
# ## 1. One query, one average
# This story is new to the shipped model. Some of its words can be known from earlier words. Just before those words we draw which of the words that determine them the last layer looks at.

# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
story = storyworld.story(torch.Generator().manual_seed(11))
story_ids = torch.tensor([tokenizer.encode("\n" + story.text)])  # (B, T)
story_words = [tokenizer.decode([token]) for token in story_ids[0, 1:].tolist()]

# %% slide="skip"
last_layer = capture(model, story_ids).attention(2).weights[0]  # (H, T, S)
threads = []
for target, sources in enumerate(story.lookback):  # the earlier words that determine each word
    for source in sources:
        for head, weight in enumerate(last_layer[:, target, source + 1].tolist()):  # the line end is at 0
            if weight > 0.4:
                threads.append((head, source, target, weight))


# %% slide="skip" tags=["source-hidden"]
def lay_out(words: list[str], columns: int) -> list[tuple[int, int]]:
    """The column and the line at which each word begins."""
    column, line, starts = 0, 0, []
    for i, word in enumerate(words):
        if word.startswith(" "):  # a mark without a space stays with its word
            marks = takewhile(lambda following: following[0] != " ", words[i + 1 :])
            column += 1
            if column + len(word) - 1 + sum(map(len, marks)) > columns:
                column, line = 0, line + 1
        starts.append((column, line))
        column += len(word.strip())
    return starts


def curve(start: tuple[float, float], end: tuple[float, float]) -> Path:
    """From below a word, down to a later line, or in an arc to a word of the same line."""
    (x1, y1), (x2, y2) = start, end
    bend = 0.55 if y1 == y2 else (y2 - y1) / 2
    last = y2 + 0.23 if y1 == y2 else y2 - 0.23
    points = [(x1, y1 + 0.23), (x1, y1 + 0.1 + bend), (x2, y2 + (bend if y1 == y2 else -bend)), (x2, last)]
    return Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])


# %% tags=["signature", "source-hidden"]
starts = lay_out(story_words, columns=84)
from_words, to_words = ({thread[i] for thread in threads} for i in (1, 2))
box = {"boxstyle": "round,pad=0.16", "fc": "#e7eef6", "ec": "none"}
fig, ax = plt.subplots(figsize=(11.8, 5.9), layout="constrained")
halo = [patheffects.withStroke(linewidth=4, foreground="white")]
for i, ((column, line), word) in enumerate(zip(starts, story_words, strict=True)):
    style = {"weight": "bold", "color": figures.INK} if i in from_words | to_words else {"color": figures.QUIET}
    style |= {"bbox": box} if i in to_words else {"path_effects": halo}
    ax.text(column, line, word.strip(), size=16.5, va="center", family="DejaVu Sans Mono", **style)
for head, source, target, weight in threads:
    middles = [starts[i][0] + len(story_words[i].strip()) / 2 + 0.75 * (head - 1.5) for i in (source, target)]
    path = curve((middles[0], starts[source][1]), (middles[1], starts[target][1]))
    width = 1.5 + 5 * weight**2
    ax.add_patch(patches.PathPatch(path, fill=False, ec=figures.SERIES[head], lw=width, alpha=0.8, capstyle="round"))
for head in range(4):
    ax.plot([], [], color=figures.SERIES[head], linestyle="-", linewidth=6, label=f"head {head}")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=4, frameon=False, fontsize=17)
ax.set(xlim=(-0.5, 84.5), ylim=(starts[-1][1] + 0.35, -0.4), xlabel="words", ylabel="lines")
ax.set_title("What four heads look back for", pad=46)
ax.axis("off")
figures.display(
    fig, alt="A story in six lines. Curved threads in four colours lead from names, places and things to later words.",
    caption="Each thread leads to a word in a box from an earlier word that determines it. The larger the attention weight, the thicker the thread.",
    table={name: list(column) for name, column in zip(("head", "from word", "to word", "weight"), zip(*threads, strict=True), strict=True)},
)  # fmt: skip

# %% [markdown]
# Each colour is a **head**: attention as in lesson 05, with queries, keys and values of its own. This model has four heads in each layer. Often two of them look at the same word, and head 2 looks for other words than head 0 does. (We draw only weights above 0.4, and only on these words.)
#
# Why four? What could a single head not do?

# %% [markdown] slide="subslide"
# ### What one query can fetch
# > Carlos sang to Jamal.
#
# To continue this story we must know two things: who sang, and to whom. Here the key of a word is its role in the sentence, and its value says who it is.


# %%
def fetch(words: list[str], query: list[float], say_role: bool = False) -> torch.Tensor:
    who = {"Carlos": [1.0, 0.0], "Jamal": [0.0, 1.0]}
    keys = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])  # singer first, listener last
    values = torch.tensor([who.get(word, [0.0, 0.0]) for word in words])
    if say_role:  # longer values: two numbers for the singer, two for the listener
        values = (keys[:, :, None] * values[:, None]).flatten(1)
    weights = (keys @ torch.tensor(query)).softmax(-1)
    return weights @ values


# %%
sang, sang_back = ["Carlos", "sang", "to", "Jamal"], ["Jamal", "sang", "to", "Carlos"]
singer, listener, both = [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]
for name, query in (("singer", singer), ("listener", listener)):
    print(f"query for the {name:<8} fetches {fetch(sang, query).numpy().round(2)}")

# %% [markdown]
# A query for one role gets a clear answer, because nearly all of the weight goes to one word.

# %% tags=["source-hidden"]
predict(
    "One query for both roles, [6, 6]. What does it fetch from the same sentence?",
    key=lambda: str([round(x, 1) for x in fetch(sang, both).tolist()]),
    choices={
        "[1.0, 1.0]": "That would be all of Carlos and all of Jamal. The weights of a query sum to 1.",
        "[0.5, 0.5]": "",
        "[1.0, 0.0]": "That would be Carlos alone. This query matches both roles equally well.",
    },
    because="The two words have the same score, so each gets half of the weight.",
)

# %% [markdown] slide="subslide"
# The result is an average, and an average does not show which half came from which word. Now let Jamal sing to Carlos. Next to the one query we use **two**, each with weights of its own, and put their results **side by side**:

# %% rows=["S3-3"] evidence="one-average"
for sentence in (sang, sang_back):
    two = torch.cat((fetch(sentence, singer), fetch(sentence, listener)))
    print(*sentence, "| one query", fetch(sentence, both).numpy().round(2), "| two", two.numpy().round(2))
assert torch.equal(fetch(sang, both), fetch(sang_back, both))
assert fetch(sang, singer)[0] > 0.9 and fetch(sang_back, singer)[1] > 0.9

# %% [markdown]
# With these values, one query returns the same average for both sentences, and two queries distinguish them. [[one-average]] But that depends on the values, which say *who* and not in which role. If a value is longer and contains the role as well, one average is enough:

# %% evidence="longer-values"
for sentence in (sang, sang_back):
    print(*sentence, "| one query, longer values", fetch(sentence, both, say_role=True).numpy().round(2))
assert (fetch(sang, both, say_role=True) - fetch(sang_back, both, say_role=True)).abs().max() > 0.4

# %% [markdown]
# So one query is not hopeless. [[longer-values]] But then each word arrives at half strength, and every value needs room for every role. What happens when a layer *learns*?

# %% [markdown] slide="subslide"
# ### One head or two, trained
# The task: random tokens, and at each position name the two before it, in order. The model is one layer of attention with rotary positions (lesson 06), and one linear map that reads its result.

# %% slide="skip"
from collections.abc import Callable

import torch.nn.functional as F
from torch import nn

from tinylm_lib import ModelConfig
from tinylm_lib.attention import Attention, attend, causal_mask
from tinylm_classroom import check, control, hint, keep, learned


# %%
def train_heads(n_heads: int, make_reader: Callable) -> tuple[torch.Tensor, float]:
    """Returns the mean attention weights (H, T, S) and the last loss."""
    torch.manual_seed(7)
    embed = nn.Embedding(32, 48)
    attention = Attention(ModelConfig(d_model=48, n_heads=n_heads, max_seq_len=32, position="rotary"))
    reader = make_reader()
    parts = nn.ModuleList((embed, attention, reader))
    optimizer = torch.optim.AdamW(parts.parameters(), lr=0.01)
    # ESSENTIAL
    for _ in range(200):
        tokens = torch.randint(32, (16, 32))  # (B, T)
        found = attention(embed(tokens), torch.arange(32))  # (B, T, C)
        logits = reader(found).unflatten(-1, (2, 32))  # (B, T, 2, V)
        last_two = torch.stack((tokens[:, 1:-1], tokens[:, :-2]), dim=-1)  # (B, T - 2, 2)
        loss = F.cross_entropy(logits[:, 2:].flatten(0, 2), last_two.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # END
    return mean_weights(attention, embed(tokens)), loss.item()


# %% slide="skip"
@torch.no_grad()
def mean_weights(attention: Attention, inputs: torch.Tensor) -> torch.Tensor:
    """The attention weights, as in lesson 05, as a mean over the texts: (H, T, S)."""
    at = torch.arange(inputs.shape[1])
    q = attention.rotation(attention.split(attention.q_proj(inputs)), at)  # (B, H, T, D)
    k = attention.rotation(attention.split(attention.k_proj(inputs)), at)  # (B, H, S, D)
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, T, S)
    return scores.masked_fill(~causal_mask(len(at)), -torch.inf).softmax(-1).mean(0)


def linear_map() -> nn.Module:
    return nn.Linear(48, 64)


def small_network() -> nn.Module:
    return nn.Sequential(nn.Linear(48, 128), nn.GELU(), nn.Linear(128, 64))


# %% slide="skip" tags=["source-hidden"]
def draw_heads(maps: torch.Tensor, titles: list[str], caption: str) -> None:
    fig, grid_axes = plt.subplots(1, len(titles), figsize=(11.4, 4.9), layout="constrained", squeeze=False, sharey=True)
    for ax, weights, title in zip(grid_axes[0], maps, titles, strict=True):
        ax.imshow(weights[:12, :12], cmap=figures.HEAT, vmin=0, vmax=1)
        ax.set(xticks=[0, 5, 10], yticks=[0, 5, 10])
        ax.set_title(title, size=19)
        ax.tick_params(labelsize=16)
        ax.grid(visible=False)
    fig.supxlabel("looks at position", size=18)
    grid_axes[0, 0].set_ylabel("from position", size=18)
    alt = f"Attention maps: {', '.join(titles)}. Dark lines show how many positions back each head looks."
    back = {f"weight {n} back": [learned(w.diagonal(-n).mean().item(), 0, 1) for w in maps] for n in (1, 2)}
    figures.display(fig, alt=alt, caption=caption, table={"map": titles, **back})


# %% slide="skip"
one_head, loss_of_one = train_heads(1, linear_map)
two_heads, loss_of_two = train_heads(2, linear_map)

# %% tags=["source-hidden"] slide="subslide"
draw_heads(
    torch.cat((one_head, two_heads)),
    ["one head", "two heads: head 0", "two heads: head 1"],
    "The single head divides its weight between one back and two back. Of two heads, each finds one of them.",
)

# %% evidence="two-heads-learn"
print(f"loss, one head: {learned(loss_of_one, 0.65, 0.85)}, two heads: {learned(loss_of_two, 0, 0.1)} nats")
print(f"knowing both tokens but not their order: ln 2 = {torch.tensor(2.0).log():.2f} nats")
assert two_heads.shape == (2, 32, 32) and abs(loss_of_one - 0.69) < 0.15 and loss_of_two < 0.1

# %% [markdown]
# The single head stays near ln 2, the loss of a reader that knows both tokens but has to guess their order. With two heads the loss goes to nearly 0. [[two-heads-learn]] Nobody divided the work between the heads: they learned it.

# %% [markdown] slide="subslide"
# A rival explanation: perhaps a linear map is too weak a reader. We give the single head a small network instead, and train as long as before:

# %% evidence="network-reads"
_, loss_of_network = train_heads(1, small_network)
print(f"one head, read by a network: {learned(loss_of_network, 0.02, 0.4)} nats")
assert loss_of_two < loss_of_network < loss_of_one - 0.2

# %% [markdown]
# The network takes much of the mixture apart, which is possible because the two weights need not be equal. But in this time it does not reach the loss of two heads with a linear map. [[network-reads]] So several heads are not the only way to fetch several things. They are the way that training found faster here.

# %% [markdown] slide="subslide"
# Train your own. `control` runs `trained` again for each choice.


# %% slide="skip"
def trained(n_heads=3):
    maps, loss = train_heads(n_heads, linear_map)
    caption = f"{n_heads} heads: the loss ends at {learned(loss, 0, 4)} nats."
    draw_heads(maps, [f"head {h}" for h in range(n_heads)], caption)


# %%
control(trained, n_heads=[3, 1, 2, 4])

# %% [markdown] slide="say"
# With three or four heads some look at the same position, or divide their weight. The task needs two, and the others are not forbidden.

# %% [markdown] tags=["note"]
# **Say.** Four heads with all features each would be four times the work. Instead they divide the features among them. The whole trick is one cut and one transpose, and it is easy to get a cut that has the right shape and the wrong numbers.
#
# **Draw.** The numbers 0 to 11 as a table of 3 words and 4 features. Colour the two left columns (head 0) and the two right columns (head 1). Then write 0 to 11 in one line, as in memory, and colour them again.
#
# **Ask.** The prediction. Afterwards: "Which test would have found this?" (None that looks at shapes; compare numbers, with all sizes different.)
#
# **Usual answers.**
# - *The right shape means the right cut* (`[[0, 1], [4, 5], [8, 9]]`): `view` does not know what the numbers mean. It counts on in memory.
# - *The numbers are only reshaped to (B, H, T, D)* (`only reshaped`): Cut the last axis first, then move the new axis to the front.
# - *Neighbouring features go to different heads* (`interleaved`): (D, H) deals the features out like cards. In (H, D) a head is a block.
# - *n_heads is the size of a head* (`number and size exchanged`): It is how many there are.
#
# **Cut if short.** Half of the exercise time: show all hints after four minutes and let the class finish it at home.

# %% [markdown] slide="slide"
# ## 2. Cut the features into heads
# Each head could have all the features, but then four heads would be four times the work. In practice the heads **divide the features among them**. With $C$ features and $H$ heads, each head gets a block of $D = C / H$ neighbouring features of q, k and v, and uses only these. This is **multi-head attention** ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)).

# %% slide="skip"
_ = torch.manual_seed(7)

# %%
B, T, C, H = 2, 6, 12, 3
D = C // H
x = torch.randn(B, T, C)  # (B, T, C)
w_q, w_k, w_v, w_o = (torch.randn(C, C) / C**0.5 for _ in range(4))
q, k, v = (x @ w.T for w in (w_q, w_k, w_v))  # (B, T, C)

# %% [markdown]
# First as a loop, with slices. The scores of a head are dot products of $D$ features, so `attend` divides them by $\sqrt{D}$.

# %%
answers = []
for h in range(H):
    block = slice(h * D, (h + 1) * D)
    answers.append(attend(q[..., block], k[..., block], v[..., block], causal=True))  # each (B, T, D)
print(len(answers), "heads, the result of each:", tuple(answers[0].shape))

# %% [markdown] slide="subslide"
# The loop is correct, but it runs the heads one after another. If the heads are an axis of their own, in front of the positions, `attend` computes all of them at once, like the texts of a batch. So we want to turn $(B, T, C)$ into $(B, H, T, D)$. To see which head gets what, use counted numbers instead of random ones:

# %%
counted = torch.arange(12).view(1, 3, 4)  # one text, 3 words of 4 features
print(counted[0])
print("head 0:", counted[0, :, :2].tolist())
print("head 1:", counted[0, :, 2:].tolist())

# %% tags=["source-hidden"]
viewed = counted.view(1, 2, 3, 2)
predict(
    "`counted.view(1, 2, 3, 2)` has the right shape for 2 heads, 3 words and 2 features each. What does head 0 get?",
    key=lambda: str(viewed[0, 0].tolist()),
    choices={
        "[[0, 1], [4, 5], [8, 9]]": "That is what we want. But `view` takes the numbers in the order in which they are in memory.",
        "[[0, 1], [2, 3], [4, 5]]": "",
        "[[0, 2], [4, 6], [8, 10]]": "That would be every second feature of each word. `view` skips nothing.",
    },
    because="`view` keeps the order 0, 1, 2, ...: head 0 gets the whole of word 0 and half of word 1.",
)

# %% [markdown]
# The shape is right and the content is wrong: head 0 has *all features of some words* instead of *some features of all words*. A test of shapes cannot find this. As in lesson 02, `view` and `reshape` keep the order of the numbers in memory, and a transpose changes it.

# %% [markdown] slide="subslide"
# ### Your turn: split
# Cut the features of each position into `n_heads` blocks of neighbours, and give the heads an axis of their own, in front of the positions.


# %% tags=["exercise"] name="split_heads" minutes=8 difficulty=2
def split_heads(x, n_heads):
    """x (B, T, C), C a multiple of H = n_heads. Returns (B, H, T, D), D = C / H.

    Head h has the features h*D to (h+1)*D - 1. x may be stored with any strides.
    The dtype stays the same, and gradients flow back to x.
    """
    # SOLUTION
    B, T, C = x.shape
    return x.reshape(B, T, n_heads, C // n_heads).transpose(1, 2)
    # END


# %% tags=["check"]
if check("split_heads", split_heads).passed:
    keep("split_heads", split_heads)

# %%
hint("split_heads")

# %% [markdown] tags=["solution"]
# Two steps. First the last axis becomes two, (H, D): the features of a position are neighbours in memory, so this cuts each position into blocks. Then H moves in front of T.
# Common mistakes: straight to (B, H, T, D), as above; (D, H) instead of (H, D), which deals the features out like cards; `n_heads` taken for the size of a head.

# %% [markdown] tags=["note"]
# **Say.** After attention the heads have to come together again. Concatenation alone only puts their results next to each other. The output projection adds them up, and that is why we can take one head out in section 4.
#
# **Draw.** The matrix of the output projection as a wide box, divided by vertical lines into one block of columns for each head. Below each block write the head's result. The product is the sum over the blocks.
#
# **Ask.** "Between the split and the merge, does head 1 know what head 0 has found?" (No. Each has its own weights and its own values.) And: "Why is there no curve, such as a ReLU, between the heads and the output projection?" (Attention already is not linear in x; what a position does with what it fetched is the job of lesson 08.)
#
# **Usual answers.**
# - *The heads are summed* (`summed`): In the output projection each head first gets a map of its own. A plain sum would mix them before anything can tell them apart.
# - *`view` raises an error in the merge* (`viewed`): After a transpose the numbers are not in the order of the axes any more. `reshape` copies where it has to.
# - *The scores are divided by the root of C* (`scaled by C`): Each head compares D features only. With one head nobody notices.
# - *Both transposes are missing* (`both reshaped`): All shapes fit, and no future leaks. Section 6 shows what goes wrong.
#
# **Cut if short.** The exercises *merge* and *the whole layer*; show the solution of the layer and the trace.

# %% [markdown] slide="slide"
# ## 3. Put them together again, and mix
# After attention each position has $H$ results of $D$ numbers. Put **side by side** (concatenated), they are $C$ numbers again:

# %%
merged = torch.cat(answers, dim=-1)  # (B, T, C)
assert merged.shape == x.shape
print(len(answers), "times", tuple(answers[0].shape), "becomes", tuple(merged.shape))

# %% [markdown]
# In $(B, H, T, D)$ the results of one position are not neighbours in memory: other positions are between them. So the merge is the split backwards. First H moves back next to D, then the two axes become one.

# %% [markdown] slide="subslide"
# ### Your turn: merge
# Put the heads of each position side by side again.


# %% tags=["exercise"] name="merge_heads" minutes=7 difficulty=2 plan=110
def merge_heads(x):
    """x (B, H, T, D), stored with any strides. Returns (B, T, H*D).

    For each position: head 0's numbers, then head 1's, and so on.
    The dtype stays the same, and gradients flow back to x.
    """
    # SOLUTION
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)
    # END


# %% tags=["check"]
if check("merge_heads", merge_heads).passed:
    keep("merge_heads", merge_heads)

# %%
hint("merge_heads")

# %% [markdown] tags=["solution"]
# `transpose(1, 2)` brings H next to D, and `reshape` makes one axis of the two. `view` raises an error here: after the transpose the numbers are not in the order of the axes, so they have to be copied, and `reshape` does that. Common mistakes: no transpose, so that positions get each other's numbers (section 6); a sum or a mean over the heads.

# %% [markdown] slide="subslide"
# ### The output projection
# After the merge, features 0 to 3 contain only what head 0 found. A last linear map, the **output projection** $W_O$, lets every feature of the result use every head. Its columns come in blocks, one for each head: a map of its own from $D$ to $C$ features. The result is the **sum** of what these maps make of the heads.

# %% evidence="sum-of-maps"
maps = w_o.split(D, dim=-1)  # each (C, D)
parts = [answer @ w.T for answer, w in zip(answers, maps, strict=True)]  # each (B, T, C)
torch.testing.assert_close(sum(parts), merged @ w_o.T)
print("merge, then one map = a map for each head, then the sum")

# %% [markdown]
# So the heads do not depend on each other: each of them adds its own vector to the result. [[sum-of-maps]] ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html) take models apart in this way.) Section 4 uses it, because a part of a sum can be left out.

# %% slide="skip"
sentence_ids = torch.tensor([tokenizer.encode("\nOne foggy day, Carlos came to Hillcrest.")])  # (B, T)
real_maps = capture(model, sentence_ids).attention(2).weights[0]  # (H, T, S)
n_words = sentence_ids.shape[1]

# %% rows=["S0-35"] tags=["source-hidden"] slide="subslide"
names = ["q, k, v", "cut", "weights", "results", "side by side", "result"]
shapes = ["(B, T, C)", "(B, H, T, D)", "(B, H, T, S)", "(B, H, T, D)", "(B, T, C)", "(B, T, C)"]
steps = {7.6: "split", 15.6: "q · k,\nsoftmax", 24.9: "times v", 32.4: "merge", 41.4: "$W_O$"}
fig, ax = plt.subplots(figsize=(11, 5.6), layout="constrained")
for head, color in enumerate(figures.SERIES[:4]):
    floor = 14.6 - 5.4 * head
    ax.bar([1.2 * head, 34.2 + 1.2 * head], 5, 1.2, 6.5, align="edge", color=color, edgecolor="white")
    ax.bar([11, 27.6], 4.4, 1.2, floor, align="edge", color=color)
    ax.imshow(real_maps[head], cmap=figures.HEAT, vmin=0, vmax=0.8, extent=(17.6, 22.8, floor, floor + 4.6), zorder=3)
    ax.add_patch(patches.Rectangle((17.6, floor), 5.2, 4.6, fill=False, ec=color, lw=2.5, zorder=4))
ax.bar(43.2, 5, 4.8, 6.5, align="edge", color=figures.INK)
for middle, name, shape in zip((2.4, 11.6, 20.2, 28.2, 36.6, 45.6), names, shapes, strict=True):
    ax.text(middle, -6.9, f"{name}\n{shape}", ha="center", va="bottom", size=14, linespacing=1.5)
for middle, step in steps.items():
    ax.text(middle, 20.4, step, ha="center", weight="bold", size=16)
    ax.annotate("", (middle + 1.8, 9), (middle - 1.8, 9), arrowprops={"arrowstyle": "-|>", "fc": "black", "lw": 2})
ax.set(xlim=(-1.4, 49.4), ylim=(-7, 23.6), xlabel="steps", ylabel="heads", aspect="auto")
ax.set_title("Split, attend, merge, project")
ax.axis("off")
figures.display(
    fig, alt="Features cut into four colours; each colour has its own attention map and result; side by side they become one sheet.",
    caption="Each colour is a head, and the maps are those of the shipped model. The heads meet only in the output projection.",
    table={"": names, "shape": shapes},
)  # fmt: skip

# %% [markdown] slide="subslide"
# ### Your turn: the whole layer
# Linear maps for q, k and v, split, attention, merge, output projection. You may use `attend(q, k, v, causal=True)` and your own functions: for `attend`, the heads are just one more leading axis. There is no rotation here.


# %% tags=["exercise"] name="multi_head_attention" minutes=18 difficulty=3 plan=80
def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads):
    """Causal attention of x (B, T, C) to itself in n_heads heads.

    w_q, w_k, w_v, w_o (C, C): stored as (out, in), without biases.
    Head h has the h-th block of D = C / n_heads features of q, k, v.
    Scores are divided by the root of D. Position t sees 0 to t, also
    where all its scores are very low. The merged heads go through w_o;
    x is not added. n_heads may be 1, or C. Any strides.
    Returns (B, T, C) in the dtype of x; gradients reach all five.
    """
    # SOLUTION
    q, k, v = (split_heads(x @ w.T, n_heads) for w in (w_q, w_k, w_v))
    answers = attend(q, k, v, causal=True)
    return merge_heads(answers) @ w_o.T
    # END


# %% tags=["check"]
if check("multi_head_attention", multi_head_attention).passed:
    keep("multi_head_attention", multi_head_attention)

# %%
hint("multi_head_attention")

# %% [markdown] tags=["solution"]
# Five steps in three lines. Common mistakes: the scores divided by the root of C instead of D (with one head nobody notices), weights used as (in, out), keys made with w_q, no output projection, and all mistakes of the two exercises before.

# %% [markdown] slide="subslide"
# ### The library's version
# `Attention` takes its sizes from a config. With our weights and no positions it equals the loop.

# %% slide="skip"
from tinylm_classroom import show, trace

# %% rows=["S0-33", "S1-22"]
layer = Attention(ModelConfig(d_model=C, n_heads=H, position="none"))
for projection, w in ((layer.q_proj, w_q), (layer.k_proj, w_k), (layer.v_proj, w_v), (layer.o_proj, w_o)):
    projection.weight.data.copy_(w)
at = torch.arange(T)  # (T)
torch.testing.assert_close(layer(x, at), merged @ w_o.T)
print("the library's layer equals the loop")

# %%
show(Attention)

# %% [markdown] slide="subslide"
# The whole layer once more, with the shape after each line. S counts the keys, as T counts the queries.


# %%
def in_steps(x):
    q = layer.split(x @ w_q.T)
    k = layer.split(x @ w_k.T)
    v = layer.split(x @ w_v.T)
    scores = q @ k.mT / D**0.5
    weights = scores.masked_fill(~causal_mask(T), -torch.inf).softmax(-1)
    found = weights @ v
    side_by_side = found.transpose(1, 2).reshape(B, T, C)
    return side_by_side @ w_o.T


# %% slide="subslide"
trace(in_steps, x, sizes={"B": B, "T": T, "C": C, "H": H, "D": D, "S": T})

# %% rows=["S1-21", "S1-23"] slide="skip"
torch.testing.assert_close(in_steps(x), layer(x, at))
per_head = [layer.split(features) for features in (q, k, v)]  # each (B, H, T, D)
torch.testing.assert_close(layer.o_proj(layer.mix(*per_head)), layer(x, at))

# %% [markdown] slide="say"
# In the library's source, `mix` does the four lines from the scores to *side by side*. `extend` is for lesson 13, and `q_norm`, `k_norm`, `Positions` and the biases are options that you can skip.

# %% [markdown] tags=["note"]
# **Say.** A picture of attention weights invites you to give each head a name. Today we test the names: we take the head out and look at what the model no longer can do.
#
# **Draw.** A stage with two spotlights that both point at the singer. Switch one off: the singer is still lit. Then one spotlight that points at a mirror, and the mirror lights the singer: the lamp that matters does not point at her.
#
# **Ask.** Let the class name the heads from the first map, then vote on the prediction. Afterwards: "Which single head do the names need most?" (Head 2 of layer 1, which nobody would choose from the first map.)
#
# **Usual answers.**
# - *The head for names is gone, so most names are lost* (`about one in ten`): It would be so if no other head had anything to say about names. What does the map show for the other heads?
# - *Half of them* (`about half`): Other heads look at names as well. How many names need this one?
# - *Then the attention map is wrong* (from the room): It correctly shows where the head looks. It does not show what is done with it.
# - *What breaks when I remove it is what it does* (from the room): Only that the model needs it there. Remove the fuse and the lamp goes out, but a fuse does not shine.
#
# **Cut if short.** The example with one word, and the control. Keep both maps.

# %% [markdown] slide="slide"
# ## 4. What is each head for?
# Several heads are like several spotlights on a stage. It is tempting to give each a name: the light for the singer, the light for the listener. We compare two ways to find such names: **where** a head looks, and **what breaks** without it.

# %% [markdown] slide="subslide"
# ### One word, four heads
# The shipped model reads: *Carlos had a pink fan. Jamal had a gray book. Jamal took the* ... Nothing decides which thing he takes. Where do the heads of layer 1 look at the last word?

# %% slide="skip"
from copy import deepcopy

from torch.nn.utils.rnn import pad_sequence

from tinylm_classroom import heads_that_find

# %% slide="skip"
two_things = "\nOne foggy day, Carlos had a pink fan. Jamal had a gray book. Jamal took the"
two_ids = torch.tensor([tokenizer.encode(two_things)])  # (B, T)
two_words = [tokenizer.decode([token]).strip() or "⏎" for token in two_ids[0].tolist()]
looks = capture(model, two_ids).attention(1).weights[0, :, -1]  # (H, S)

# %% tags=["source-hidden"]
figures.shaded_words(
    two_words,
    {f"head {h} of layer 1": looks[h].tolist() for h in range(4)},
    title="Where four heads look at the last word, “the”",
    caption="The darker a word, the larger its weight, up to 1. Head 0 looks at pink, heads 1 and 3 look at gray, and head 2 at many words.",
    limit=1,
)

# %% [markdown] slide="subslide"
# Two things at once, in different heads. Does the model use them? By section 3 the result of a layer is a sum with one part for each head. To remove a part, we set the columns of this head in $W_O$ to 0. Such a test is an **ablation**:


# %%
def without(*heads: tuple[int, int]) -> torch.nn.Module:
    """A copy of the model without these heads, each given as (layer, head)."""
    changed = deepcopy(model)
    D_head = model.config.d_head
    for layer, head in heads:
        columns = slice(head * D_head, (head + 1) * D_head)
        changed.blocks[layer].attention.o_proj.weight.data[:, columns] = 0
    return changed


# %% evidence="two-at-once"
colours = {colour: tokenizer.encode(f" {colour}")[0] for colour in ("pink", "gray")}
changes = {"no head": (), "head 0": ((1, 0),), "heads 1 and 3": ((1, 1), (1, 3)), "head 2": ((1, 2),)}
chances = {}
for name, heads in changes.items():
    with torch.no_grad():
        probs = without(*heads)(two_ids)[0, -1].softmax(-1)  # (V)
    chances[name] = [probs[token].item() for token in colours.values()]
    print(f"removed: {name:<14} pink {chances[name][0]:.2f}   gray {chances[name][1]:.2f}")
assert chances["head 0"][0] < 0.05 < 0.4 < chances["no head"][0]
assert chances["heads 1 and 3"][1] < 0.35 < 0.5 < chances["head 2"][1]

# %% [markdown]
# Without head 0, *pink* loses nearly all of its probability. Without heads 1 and 3, *gray* loses half of it, and without head 2 little changes. [[two-at-once]] So for this word the model needs different heads.

# %% [markdown] slide="skip"
# Try it: here heads 1 and 3 are silent. Which one matters more? A click on a change takes it back.

# %% slide="skip"
from tinylm_classroom import what_if

# %% slide="skip"
what_if(model, tokenizer, two_things, "silence 1 1; silence 1 3")

# %% [markdown] slide="subslide"
# Now remove any head, and read the whole story of section 1 again. Each word is shaded by its loss.


# %% slide="skip"
def losses(reader: torch.nn.Module) -> list[float]:
    with torch.no_grad():
        log_probs = reader(story_ids).log_softmax(-1)  # (B, T, V)
    return (-log_probs[0, :-1].gather(-1, story_ids[0, 1:, None])[:, 0]).tolist()


# %%
def story_without(layer=2, head=2):
    figures.shaded_words(
        [word.strip() for word in story_words],
        {"with all heads": losses(model), f"without head {head} of layer {layer}": losses(without((layer, head)))},
        title="Which words need this head?",
        caption="The darker a word, the higher its loss, up to 6 nats. Look for words that are dark below and pale above.",
        limit=6,
    )


# %% slide="subslide"
control(story_without, layer=[2, 1, 0], head=[2, 0, 1, 3])

# %% [markdown] slide="say"
# Without head 2 of layer 2, *Eastbridge* becomes a surprise each time that the story comes back to it. The first time it is one with all heads as well, because nothing before it determines the place.

# %% [markdown] slide="subslide"
# ### Where the heads look
# One story is not enough. In three sets of 20 stories we take each word that the story determines: a pronoun, a place, an object after its colour, a quotation, a name, a trait such as *careful*. By the rules of StoryWorld the exact probability of such a word is 1. How often does a head, just before it, give its largest weight to an earlier word that determines it?

# %% slide="skip"
kinds = ["pronoun", "place", "object", "quotation", "name", "trait"]
sets = []
for seed in (7, 8, 9):
    generator = torch.Generator().manual_seed(seed)
    sets.append([storyworld.story(generator) for _ in range(20)])

# %% slide="skip"
found = [heads_that_find(model, tokenizer, one_set) for one_set in sets]
looked_at = {kind: torch.stack([finds[kind] for finds in found]) for kind in kinds}  # each (sets, layers, heads)
assert looked_at["name"].shape == (3, 3, 4)

# %% slide="skip"
all_heads = [(depth, head) for depth in range(3) for head in range(4)]
head_names = [f"layer {depth}, head {head}" for depth, head in all_heads]


# %% slide="skip" tags=["source-hidden"]
def draw_maps(maps: dict[str, dict[str, torch.Tensor]], caption: str) -> None:
    """Heat maps next to each other, of what each head (row) has for each kind of word (column): means over the sets."""
    means = {title: torch.stack([each[kind].mean(0).flatten() for kind in kinds], -1) for title, each in maps.items()}
    fig, map_axes = plt.subplots(1, len(maps), figsize=(11.2, 5.2), layout="constrained", squeeze=False)
    for ax, (title, values) in zip(map_axes[0], means.items(), strict=True):
        figures.cells(ax, values, values, head_names, [2] * 12)
        ax.set_xticks(range(len(kinds)), kinds, rotation=30, ha="right", rotation_mode="anchor")
        ax.set(title=title, xlabel="kind of word that comes next", ylabel="head")
        ax.grid(visible=False)
        ax.label_outer()
    rows = {f"{title}: {kind}": v[:, i].tolist() for title, v in means.items() for i, kind in enumerate(kinds)}
    alt = f"Heat maps of twelve heads and six kinds of words: {', '.join(maps)}. The colour goes from 0 to 1."
    figures.display(fig, alt=alt, caption=caption, table={"": head_names, **rows}, digits=2)


# %% tags=["source-hidden"] rows=["S3-5"] slide="subslide"
draw_maps(
    {"Where the heads look": looked_at},
    "How often the head looks most at a word that determines the next one. Mean of three sets of stories.",
)

# %% [markdown] slide="say"
# (StoryWorld also has the kinds *colour* and *owner*. This model often gets them wrong, so it cannot show what they need.)

# %% [markdown]
# The heads differ, although the training never gave them a job. Head 1 of layer 2 looks like the head for names, because it finds 0.86 of them, more than any other. Head 0 of that layer finds every object and two thirds of the quotations, and head 2 finds pronouns *and* places. But the weights show what a head fetches, not whether anything later uses it.

# %% [markdown] slide="subslide"
# ### What breaks without it
# So we remove each of the twelve heads, one at a time, and count how often the right word is still the model's most probable one.

# %% slide="skip"
chosen = [one_story for one_set in sets for one_story in one_set]  # 60 stories
read_ids = [torch.tensor(tokenizer.encode("\n" + one_story.text)) for one_story in chosen]
batch = pad_sequence(read_ids, batch_first=True)  # (60, T + 1)

# %% slide="skip"
of_kind = {}
for kind in kinds:
    marks = [torch.tensor([named_kind == kind for named_kind in one_story.kinds]) for one_story in chosen]
    of_kind[kind] = pad_sequence(marks, batch_first=True)  # (60, T)


# %%
def right_words(reader: torch.nn.Module) -> dict[str, torch.Tensor]:
    """For each kind, the fraction of right words in each of the three sets."""
    with torch.no_grad():
        hit = reader(batch[:, :-1]).argmax(-1) == batch[:, 1:]  # (60, T)
    counts = {}
    for kind, mark in of_kind.items():
        counts[kind] = (hit & mark).view(3, -1).sum(-1) / mark.view(3, -1).sum(-1)  # (sets)
    return counts


# %%
whole = right_words(model)
print("with all heads:", *(f"{kind} {whole[kind].mean():.0%}" for kind in kinds))

# %% tags=["source-hidden"]
names_left = right_words(without((2, 1)))["name"].mean().item()
predict(
    "Before most names, head 1 of layer 2 looks most at that name. We remove the head. How many of the names are still right?",
    key=lambda: "nearly all" if names_left > 0.9 else "about half" if names_left > 0.3 else "about one in ten",
    choices={
        "about one in ten": "That would be so if the other heads had nothing to say about names.",
        "about half": "The map shows other heads that look at names, too. How many names need this one?",
        "nearly all": "",
    },
    because="A look suggests what a head does, but the model may not depend on it: here the other heads are enough for nearly all names.",
)

# %% slide="skip"
removed = [right_words(without(head)) for head in all_heads]
left = {kind: torch.stack([counts[kind] for counts in removed], -1).view(3, 3, 4) for kind in kinds}  # as `looked_at`

# %% tags=["source-hidden"] rows=["S3-5"] slide="subslide"
draw_maps(
    {"Where the heads look": looked_at, "What breaks without it": {kind: whole[kind].mean() - left[kind] for kind in kinds}},
    "Left: where the head looks. Right: by how much the fraction of right words falls without this one head.",
)  # fmt: skip

# %% [markdown] slide="subslide"
# The two maps disagree in many cells. Here are some of them, with the range over the three sets:

# %% slide="skip"
cells = [("name", 2, 1), ("quotation", 2, 0), ("name", 1, 2), ("object", 1, 0), ("object", 2, 0), ("place", 2, 2)]

# %%
print("kind       head              finds it     right without it")
for kind, depth, head in cells:
    finds = 100 * looked_at[kind][:, depth, head]  # (sets)
    kept = 100 * left[kind][:, depth, head]  # (sets)
    ranges = f"{finds.min():3.0f}-{finds.max():3.0f} %    {kept.min():3.0f}-{kept.max():3.0f} %"
    print(f"{kind:<9}  layer {depth}, head {head}   {ranges}")

# %% evidence="heads-removed" slide="skip"
for kind, depth, head in cells[:2]:  # it looks, and is hardly needed
    assert looked_at[kind][:, depth, head].min() > 0.5 and left[kind][:, depth, head].min() > 0.85
for kind, depth, head in cells[2:4]:  # it does not look at the answer, and is needed
    assert looked_at[kind][:, depth, head].max() < 0.1 and left[kind][:, depth, head].max() < 0.8
for kind, depth, head in cells[4:]:  # it looks, and is needed
    assert looked_at[kind][:, depth, head].min() > 0.9 and left[kind][:, depth, head].max() < 0.25

# %% [markdown] slide="subslide"
# - **It looks, and is hardly needed.** Head 1 of layer 2 finds the names, and without it nearly all names are right. Head 0 of layer 2 finds most quotations, and without it most of them are right.
# - **It does not look at the answer, and is needed.** Head 2 of layer 1 almost never looks at the right name, but without it three names in ten are wrong. Without head 0 of layer 1 about half of the objects are wrong. [[heads-removed]]
# - **Look and use agree.** Without head 2 of layer 2 places are lost, and without head 0 of layer 2 objects are lost. [[heads-removed]]
#
# How can a head that does not look at the answer be needed? The first map shows only the position just before the answer, but we removed the head at *all* positions. So we remove it once at that position alone, and once everywhere except there:


# %% slide="skip"
def without_at(layer: int, head: int, positions: torch.Tensor) -> torch.nn.Module:
    """A copy of the model without this head at the marked positions (60, T) of the batch."""
    changed, D_head = deepcopy(model), model.config.d_head
    gone = torch.zeros(*positions.shape, model.config.d_model, dtype=torch.bool)  # (60, T, C)
    gone[..., head * D_head : (head + 1) * D_head] = positions[..., None]
    changed.blocks[layer].attention.o_proj.register_forward_pre_hook(lambda _, inputs: inputs[0].masked_fill(gone, 0))
    return changed


# %% evidence="where-removed"
for kind, depth, head in cells[2:4]:
    just_before = right_words(without_at(depth, head, of_kind[kind]))[kind]  # (sets)
    elsewhere = right_words(without_at(depth, head, ~of_kind[kind]))[kind]  # (sets)
    print(f"{kind}s right without head {head} of layer {depth}")
    print(f"   just before the {kind}: {just_before.mean():.0%}, everywhere except there: {elsewhere.mean():.0%}")
    needed, harmless = (just_before, elsewhere) if kind == "name" else (elsewhere, just_before)
    assert needed.max() < 0.8 and harmless.min() > 0.9

# %% [markdown]
# The two heads work in different ways. Head 2 of layer 1 is needed just before the name, whatever it looks at there. Head 0 of layer 1 is not needed just before the object, so it **works at earlier words**, which the first map leaves out. [[where-removed]] (In the texts of lesson 05 the things take up their colours with it.)
#
# So a map of attention weights suggests what a head is for, and a removal has to test it. [[heads-removed]]

# %% [markdown] slide="say"
# The question has a history. In other models, very different attention weights led to the same predictions ([Jain and Wallace 2019](https://arxiv.org/abs/1902.10186)), and most heads could be removed one at a time with little harm ([Michel et al. 2019](https://arxiv.org/abs/1905.10650)).

# %% [markdown] tags=["note"]
# **Say.** A removal is a test, and a test can mislead as well. Two rivals: the head did help, but counting right words does not show it; and the harm comes from the removal itself, not from what is missing.
#
# **Draw.** A bar for the logit of the right word and a lower bar for the best other word. The distance between them is the margin. Lower the first bar a little: the word is still right.
#
# **Ask.** "Two heads are each not needed for the names. Are both together not needed either?"
#
# **Usual answers.**
# - *The model can do without each of them, so it can do without both* (from the room): Each of them may replace the other. Two brakes on a bicycle.
# - *More names are wrong, so they replace each other* (from the room): Not yet. Two independent losses can add up until many words are wrong. The sum of the margins tests it.
# - *A removed head contributes 0, so it does nothing* (from the room): 0 is an input, too, and one that the later layers have never seen.
#
# **Cut if short.** The average instead of 0; say its result.

# %% [markdown] slide="slide" plan=80
# ## 5. What one removal cannot show
# If hardly a word becomes wrong, the head may still have helped. A count of right words has a threshold: a word stays right as long as its logit is the highest. So we also measure the **margin**: the logit of the right word minus the highest other logit.


# %%
def margins(reader: torch.nn.Module) -> torch.Tensor:
    """The margin of each name."""
    with torch.no_grad():
        logits = reader(batch[:, :-1])  # (60, T, V)
    answer = batch[:, 1:, None]  # (60, T, 1)
    best_other = logits.scatter(-1, answer, -torch.inf).amax(-1)  # (60, T)
    return (logits.gather(-1, answer)[..., 0] - best_other)[of_kind["name"]]


# %% [markdown] slide="subslide"
# We remove two heads that look at names, first each alone and then both. If they worked independently, the two falls of the margin would add up, and we can compute how many names would then be right:

# %%
margin = margins(model)
print(f"margin with all heads: {margin.mean():.1f}")
lost = {}
for heads in (((1, 1),), ((2, 1),), ((1, 1), (2, 1))):
    lost[heads] = margin - margins(without(*heads))
    still_right = (margin > lost[heads]).float().mean()
    print(f"without {' '.join(map(str, heads)):<14} it falls by {lost[heads].mean():.1f}, {still_right:.0%} right")

# %% evidence="two-removed"
first_lost, second_lost, both_lost = lost.values()
added_up = (margin > first_lost + second_lost).float().mean()
print(f"the two losses added up: {(first_lost + second_lost).mean():.1f}, {added_up:.0%} would be right")
assert first_lost.mean() > 1 and second_lost.mean() > 1  # the margin shows each loss
assert both_lost.mean() > (first_lost + second_lost).mean() + 1
assert (margin > both_lost).float().mean() < added_up - 0.08

# %% [markdown]
# Without one of them nearly all names are right, but the margin is already smaller. Without both, the margin falls by more than the sum, and more names are wrong. So for names these two heads are partly redundant: each is needed more when the other is missing. [[two-removed]] In GPT-2 small some heads take over only when others are removed: **backup heads** ([Wang et al. 2022](https://arxiv.org/abs/2211.00593)).

# %% [markdown] slide="say"
# A fall in the number of right words alone would not show this, because two small independent losses can add up until many words are wrong.

# %% [markdown] slide="subslide"
# ### Is it the removal itself?
# If something breaks, the reason may be the removal: a part that is exactly 0 is an input that the later layers never met in training (**zero ablation**). A milder way replaces the head's result by its *average* (**mean ablation**). Then every word gets the same from this head, wherever it looks:


# %% slide="skip"
def with_average(layer: int, head: int) -> torch.nn.Module:
    changed = without((layer, head))
    columns = slice(head * model.config.d_head, (head + 1) * model.config.d_head)
    name = f"blocks.{layer}.attention.o_proj"
    average = capture(model, batch[:20]).inputs[name].mean((0, 1))[columns]  # (D)
    part = model.get_submodule(name).weight[:, columns] @ average  # (C)
    changed.get_submodule(name).bias = torch.nn.Parameter(part.detach())
    return changed


# %% evidence="mean-removed"
for kind, depth, head in (("name", 2, 1), ("name", 1, 2), ("object", 2, 0), ("place", 2, 2)):
    zero = left[kind][:, depth, head].mean()
    mean = right_words(with_average(depth, head))[kind].mean()
    print(f"{kind:<6} layer {depth}, head {head}: right with 0 instead {zero:4.0%}, with its average {mean:4.0%}")
    assert abs(zero - mean) < 0.1

# %% [markdown]
# For these four the answer stays the same. [[mean-removed]] Neither removal shows what a head such as head 2 of layer 1 does for the names. They show *that* the model needs the head, not *how* it works.

# %% [markdown] tags=["note"]
# **Say.** The most dangerous mistakes have the right shape. Here is one that also passes the test for leaks of the future, and still learns something, only less.
#
# **Draw.** Six words in a row. Circle words 0 and 1, 2 and 3, 4 and 5: these are the "heads" of a layer that only reshapes. Who can look at whom?
#
# **Ask.** The prediction, and afterwards: "Name a test that finds the two silent mistakes." (Change the first word: does the last result change?)
#
# **Usual answers.**
# - *The split alone* (`split`): Inside, the order of time is lost, so the mask forbids the wrong pairs.
# - *The merge alone* (`merge`): Each position is given numbers of other positions, some of them later.
# - *Two mistakes are worse than one* (from the room): Here the second one undoes the order of the first. That is why this one survives.
#
# **Cut if short.** The table of who is in which head; keep the prediction and the last table.

# %% [markdown] slide="slide" plan=80
# ## 6. Break it: reshape instead of transpose
# Three layers with the right shapes: one only reshapes in the split, one in the merge, one in both. The weights are those of section 3.

# %% slide="skip"
cut = {"right": layer.split, "reshaped": lambda x: x.view(B, H, T, D), "unmoved": lambda x: x.view(B, T, H, D)}
join = {"right": lambda y: y.transpose(1, 2).flatten(2), "reshaped": lambda y: y.reshape(B, T, C)}


def run(x: torch.Tensor, split: str, merge: str) -> torch.Tensor:
    cut_features = (cut[split](projection(x)) for projection in (layer.q_proj, layer.k_proj, layer.v_proj))
    return layer.o_proj(join[merge](attend(*cut_features, causal=True))).detach()  # (B, T, C)


# %% slide="skip"
last_changed, first_changed = x.clone(), x.clone()
last_changed[:, -1] += 1
first_changed[:, 0] += 1
slips = {"split": ("reshaped", "right"), "merge": ("right", "reshaped"), "both": ("reshaped", "reshaped")}

# %% tags=["source-hidden"]
still = {name: torch.allclose(run(last_changed, *way)[:, :-1], run(x, *way)[:, :-1]) for name, way in slips.items()}
predict(
    "The last word changes, so no result before it may change. With a reshape in which step does this still hold?",
    key=lambda: max(still, key=still.get),
    choices={
        "split": "Inside, time and features are then in another order than outside, and the mask forbids the wrong pairs.",
        "merge": "Then a position gets numbers of other positions, and of later ones.",
        "both": "",
    },
    because="What is cut in the order of memory is put together in the same order: time still runs forward inside.",
)

# %% [markdown] slide="subslide"
# Which words are in which head? We give each word its own number in all its features, and split. The row `unmoved` is a fourth layer: `view(B, T, H, D)`, attention on that, and no transpose at all. For each head, the words in its rows:

# %%
numbered = torch.arange(T)[:, None].repeat(B, 1, C)  # (B, T, C)
for way in cut:
    print(f"{way:<8}", *cut[way](numbered)[0, ..., 0].tolist())

# %% evidence="reshape-breaks" slide="subslide"
right = run(x, "right", "right")
print("reshape in  shape       off by  last moves others  first moves last")
for name, way in {"none": ("right", "right"), **slips, "unmoved": ("unmoved", "reshaped")}.items():
    y = run(x, *way)
    # ESSENTIAL
    ahead = (run(last_changed, *way) - y)[:, :-1].abs().max()
    back = (run(first_changed, *way) - y)[:, -1].abs().max()
    off = (y - right).abs().max()
    # END
    print(f"{name:<10}  {tuple(y.shape)}  {off:6.1f}  {ahead:17.1f}  {back:16.1f}")
    assert y.shape == right.shape and (off > 0.5 or name == "none")
assert torch.equal(x.reshape(B, 1, T, C), x.reshape(B, T, 1, C).transpose(1, 2))  # with one head

# %% [markdown]
# A reshape in one step leaks: some results depend on words that they should predict. A reshape in both does not leak, but a "head" is then a short stretch of the text, two words with all their features, and nobody looks back beyond it. Unmoved, each "head" is one word, which compares its own heads with each other.

# %% [markdown] slide="fragment"
# The last two pass every test of shapes and of leaks. A test that the first word still reaches the last result finds them, and so does a comparison of numbers. With one head, a reshape is right, so **test with several heads, and with all sizes different**.

# %% [markdown] tags=["note"]
# **Say.** Here is what you need when you choose or load a real model: what heads cost, why many models have fewer keys and values than queries, and how many heads people choose.
#
# **Draw.** Eight query heads in a row, below them eight key-value heads with a line to each. Erase six of the lower ones and connect the upper ones in groups of four: grouped queries.
#
# **Ask.** "Why does nobody group the *queries* instead?" (The cache has no queries: each is used once.)
#
# **Usual answers.**
# - *16 heads are 16 times the work* (`16 times as many`): Each head is a sixteenth as wide.
# - *The scores become fewer as well* (`the number of scores`): Each query head still compares itself with every earlier word.
# - *What is the best number of heads?* (from the room): The sources give no answer for your task. Only a sweep decides: train with several numbers and compare.
#
# **Cut if short.** All of it; the students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 7. For engineers
# ### What heads cost
# Are more heads more expensive? We count first, in one layer of 512 features.

# %% slide="skip"
import time

from torch.utils.flop_counter import FlopCounterMode

from tinylm_lib import preset
from tinylm_classroom import measured
from tinylm_lib.cost import count_parameters, kv_cache_bytes


# %% slide="skip"
def one_layer(n_heads: int, **more) -> ModelConfig:
    return ModelConfig(d_model=512, n_layers=1, n_heads=n_heads, **more)


# %% tags=["source-hidden"]
sizes = [sum(p.numel() for p in Attention(one_layer(n)).parameters()) for n in (1, 16)]
predict(
    "An attention layer of 512 features has 1,048,576 parameters with one head. How many with 16 heads?",
    key=lambda: "as many" if sizes[0] == sizes[1] else "more",
    choices={
        "as many": "",
        "16 times as many": "That would be so if each head had 512 features of its own. They divide the 512 among them.",
        "a sixteenth": "Each head is a sixteenth as wide, and there are 16 of them.",
    },
    because="The four weights are 512 by 512, however their features are cut into heads.",
)

# %% [markdown]
# And the multiplications, for 32 texts of 128 words? Each of the four maps makes 512 features of a word, at 512 multiplications each. In each head a word then takes $D$ multiplications for each of the 128 scores, masked ones included, and $D$ for each of the 128 values:

# %%
for n_heads in (1, 4, 16):
    parameters = sum(p.numel() for p in Attention(one_layer(n_heads)).parameters())
    looking = n_heads * 128 * 2 * (512 // n_heads)  # for one word
    total = 32 * 128 * (4 * 512 * 512 + looking)
    print(f"{n_heads:2d} heads: {parameters:,} parameters, {total / 1e9:.1f} billion multiplications")
    assert parameters == count_parameters(one_layer(n_heads)).attention == 4 * 512 * 512

# %% [markdown] slide="subslide"
# Neither number changes: twice as many heads, each half as wide. What grows is the number of **scores**, $(B, H, T, T)$: a square for each head. We time the plain formula of lesson 05, which stores them, and `attend`. The best of five runs counts, because other programs can only slow a run down:


# %% slide="skip"
def timed(compute, *inputs, **options) -> str:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        compute(*inputs, **options)
        seconds.append(time.perf_counter() - start)
    return measured(1000 * min(seconds), "ms", 0.1, 5000)


def plain(q: torch.Tensor) -> torch.Tensor:
    scores = (q @ q.mT / q.shape[-1] ** 0.5).masked_fill(~causal_mask(128), -torch.inf)  # (B, H, T, T)
    return scores.softmax(-1) @ q


# %% evidence="cost-of-heads"
for n_heads in (1, 4, 8, 16):
    # ESSENTIAL
    x_cut = torch.randn(32, n_heads, 128, 512 // n_heads)
    megabytes = 4 * 32 * n_heads * 128 * 128 / 1e6  # 4 bytes a score
    times = f"plain {timed(plain, x_cut)}, attend {timed(attend, x_cut, x_cut, x_cut, causal=True)}"
    print(f"{n_heads:2d} heads: {megabytes:4.1f} MB of scores, {times}")
    # END
    assert (x_cut @ x_cut.mT).nbytes == 1e6 * megabytes
    with FlopCounterMode(display=False) as counter:
        plain(x_cut)
    # two matrix products, with a multiplication and an addition each: no n_heads in this number
    assert counter.get_total_flops() == 2 * 2 * 32 * 128 * 128 * 512
    assert sum(p.numel() for p in Attention(one_layer(n_heads)).parameters()) == sizes[0]

# %% [markdown]
# So more heads do not mean larger weight matrices or more multiplications in the matrix products. They mean more scores to compute, and more memory if the scores are stored. [[cost-of-heads]]

# %% [markdown] slide="say"
# The time of the plain formula grows several times over from one head to 16, mainly because scaling, mask and softmax touch every score. The kernel behind `attend` still computes every allowed score, but it need not store them all ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)), and on our machines its time grew by less than a factor of two. (We count matrix products only. With `qk_norm`, which has gains for the features of one head, the parameters change slightly.)

# %% [markdown] slide="subslide"
# ### Fewer keys and values
# A model that writes a text word by word keeps the keys and values of all earlier words, in every layer: the **KV cache** of lesson 13. For long texts it is large. The queries are not in it, because each is used once. So where could one save?
#
# **Grouped-query attention**, GQA ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)): there are only $G$ key-value heads, and each is used by a group of $H / G$ query heads. It equals attention with each key-value head repeated:

# %% evidence="groups-written-out"
queries, keys, values = torch.randn(B, 10, T, D), torch.randn(B, 5, T, D), torch.randn(B, 5, T, D)
uses = torch.arange(5).repeat_interleave(2)
print("query heads 0 to 9 use the key-value heads", uses.tolist())
repeated = attend(queries, keys[:, uses], values[:, uses], causal=True)
torch.testing.assert_close(attend(queries, keys, values, causal=True), repeated)

# %% slide="skip"
few, full = preset("llama", "3-8b"), preset("llama", "3-8b", n_kv_heads=32)
compared = {
    "the KV-cache": [kv_cache_bytes(size, 1, 8192) for size in (few, full)],
    "the weights of k_proj and v_proj": [count_parameters(size).attention for size in (few, full)],
    "the number of scores": [size.n_heads for size in (few, full)],
}

# %% tags=["source-hidden"]
predict(
    "Llama 3 8B has 32 query heads, but 8 key-value heads instead of 32. What does not become smaller?",
    key=lambda: next(name for name, (small, large) in compared.items() if small == large),
    choices={
        "the KV-cache": "It holds keys and values, and there are only a quarter as many.",
        "the weights of k_proj and v_proj": "They make fewer features, so they have fewer rows.",
        "the number of scores": "",
    },
    because="Each of the 32 query heads still has a score for every earlier word.",
)

# %% slide="subslide"
print("key-value heads   attention parameters a layer   cache for 8192 tokens")
for kv_heads in (32, 8, 1):
    size = preset("llama", "3-8b", n_kv_heads=kv_heads)
    millions = count_parameters(size).attention / 1e6
    gigabytes = kv_cache_bytes(size, batch_size=1, length=8192, bytes_per_element=2) / 1e9
    print(f"{kv_heads:>15}   {millions:>20.0f} million   {gigabytes:18.2f} GB")

# %% evidence="smaller-cache" slide="skip"
assert kv_cache_bytes(full, 1, 8192) == 4 * kv_cache_bytes(few, 1, 8192) and full.n_heads == few.n_heads

# %% [markdown]
# A quarter of the keys and values makes a quarter of the cache. With a single key-value head it is called **multi-query attention** ([Shazeer 2019](https://arxiv.org/abs/1911.02150)). The price is that the heads of a group see the same keys and values. The paper on grouped queries reports a quality close to that of full heads (Ainslie et al. 2023).

# %% [markdown] slide="subslide"
# ### How many heads?
# If $D = C / H$, then $H$ must divide $C$. The config refuses anything else before anything runs:

# %% tags=["raises-exception"]
ModelConfig(d_model=512, n_heads=7)

# %% [markdown] slide="say"
# A common mistake is a layer that computes `D = C // H` without this test. It runs: with `C = 10` and `H = 3` it is only 9 features wide inside, and no error is raised.

# %% [markdown] slide="subslide"
# With more heads, a word looks back in more ways, but each head compares fewer features, so fewer patterns of scores are possible. Take one head's scores of 64 words. The **rank** of this table is the smallest number of rows from which all others follow by scaling and adding.

# %%
for n_heads in (1, 4, 16, 128):
    pair = torch.randn(2, 64, 128 // n_heads)  # one head's queries and keys
    rank = torch.linalg.matrix_rank(pair[0] @ pair[1].T)
    print(f"H {n_heads:3d}   D {pair.shape[-1]:3d}   rank {rank:2d} of 64")

# %% [markdown]
# With $D = 1$ every row is a multiple of one row: all words put the others in the same order, or in exactly the reverse ([Bhojanapalli et al. 2020](https://arxiv.org/abs/2002.07028) discuss this limit).

# %% [markdown] slide="say"
# The rank says little about the weights, however. With two features, softmax can single out any key: if all keys are on a circle, each has the highest score for a query in its own direction, and a long query gives it nearly all of the weight.

# %% [markdown] slide="subslide"
# What do people choose?

# %% slide="skip"
published = {"Transformer base": (512, 8), "BERT-base": (768, 12), "BERT-large": (1024, 16), "GPT-3 175B": (12288, 96)}
presets = {
    "GPT-2 small": preset("gpt2", "small"),
    "GPT-2 XL": preset("gpt2", "xl"),
    "Llama 2 7B": preset("llama", "2-7b"),
    "Llama 3 8B": preset("llama", "3-8b"),
    "our shipped model": model.config,
}
published |= {name: (config.d_model, config.n_heads) for name, config in presets.items()}

# %% rows=["S3-4"]
for name, (width, n_heads) in sorted(published.items(), key=lambda item: item[1]):
    print(f"{name:<17} C {width:6,}   H {n_heads:2d}   D {width // n_heads:3d}")

# %% [markdown]
# In models like these, $D$ is usually 64 or 128, and $H = C / D$ follows. The heads of our small model are narrower, with 32 features.

# %% [markdown] slide="subslide"
# **Only a sweep decides**: train with several numbers of heads and compare. In a published one for translation, with the same $C$, one head was 0.9 BLEU (a score for translations, higher is better) worse than the best number, and with 32 heads the quality dropped again (Vaswani et al. 2017, table 3, rows A). In the task of section 1, two heads were enough, because it asks for two things.

# %% [markdown] slide="subslide"
# ### Rotation and dropout
# The rotation of lesson 06 comes after the split, so each head has all frequencies, fast and slow, and rotates independently of the others.

# %% rows=["S0-34"]
rotating = Attention(ModelConfig(d_model=C, n_heads=H, position="rotary"))
rotating.load_state_dict(layer.state_dict())
alone = rotating.rotation(per_head[0][:, 1:2], at)  # the queries of head 1 without the others
torch.testing.assert_close(rotating.rotation(per_head[0], at)[:, 1:2], alone)
for positions in (at, torch.zeros_like(at)):
    same = torch.allclose(rotating(x, positions), layer(x, at))
    print("positions", positions.tolist(), "as without rotation:", same)

# %% [markdown]
# With all positions 0 nothing is rotated, and no error is raised. A default for `positions` could hide this, which is a common mistake, so they must be given. The layer makes the causal mask itself, so nobody can pass one with the opposite meaning.

# %% [markdown] slide="subslide"
# One more option: `attention_dropout` sets some weights to 0 at random (lesson 09), in training only.

# %% rows=["S2-4"]
dropping = Attention(ModelConfig(d_model=C, n_heads=H, attention_dropout=0.5))
for name, mode in (("training", True), ("evaluation", False)):
    dropping.train(mode)
    print(name, "- two calls agree:", torch.equal(dropping(x, at), dropping(x, at)))

# %% [markdown] slide="subslide"
# ### The wrong number of heads
# We save a layer with 4 heads and load its weights into a layer with 8.

# %%
saved, other = (Attention(one_layer(n, position="none")) for n in (4, 8))
print(other.load_state_dict(saved.state_dict()))
some, some_positions = torch.randn(1, 20, 512), torch.arange(20)
with torch.no_grad():
    expected = saved(some, some_positions)
    difference = expected - other(some, some_positions)
print(f"the results differ by {difference.std() / expected.std():.0%} of their size")
assert difference.std() > 0.2 * expected.std()

# %% [markdown]
# No error, and a different function: in this layer the weights do not record the number of heads. So it has to be saved with them, and the library's checkpoints contain the config as well.

# %% [markdown] tags=["note"]
# **Say.** A head is a look back with its own queries, keys and values. Several heads are several averages, and the output projection adds them up. You cannot read off its weights what a head contributes. Remove it, and see what breaks. The points are in the order of the sections: say only those that you taught.
#
# **Draw.** Once more the two boxes of section 1, one for each name.
#
# **Ask.** At the door: "You see a head that always looks at the subject of the sentence. What would you do before you call it the subject head?"
#
# **Usual answers.**
# - *Look at more sentences* (from the room): Good, but that is still only looking. Remove it, and see what breaks.
# - *Remove it and look at the loss* (from the room): Yes, for the kind of words in question. And if nothing breaks, remove it together with others that look at the same word.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - The attention weights of one head sum to 1, so a head returns one average. Several heads return several averages at once, side by side. [[one-average]] In a task that needs two tokens in order, read by a linear map, two heads learned what one head did not. [[two-heads-learn]]
# - Each head gets its own features: (B, T, C) becomes (B, H, T, D), and back. With several heads and positions, a reshape straight to (B, H, T, D) gives the right shape but the wrong numbers. [[reshape-breaks]]
# - The output projection is a sum of linear maps, one for each head. [[sum-of-maps]]
# - Where a head looks suggests what it does, but the model may not depend on it: remove the head to test this (an ablation). A head can also work at earlier words than the one that we look at. [[heads-removed]] [[where-removed]]
# - A count of right words can hide what one head contributes. For names, removing two heads of the shipped model costs more margin than the sum of the single removals. [[two-removed]]
# - For engineers: with the same number of features, the weight matrices and the multiplications in matrix products do not depend on the number of heads. More heads mean more scores. [[cost-of-heads]] With grouped queries, several query heads use the same keys and values, so the KV cache becomes smaller, while every query head still has scores of its own. [[groups-written-out]] [[smaller-cache]]
#
# Next, lesson 08: what a word does with what it has fetched.

# %% [markdown]
# ## Sources
# - Heads: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.2.2 and table 3.
# - Heads as a sum: Elhage et al. 2021, [*A Mathematical Framework for Transformer Circuits*](https://transformer-circuits.pub/2021/framework/index.html).
# - Where a head looks: Jain and Wallace 2019, [*Attention is not Explanation*](https://arxiv.org/abs/1902.10186). Heads removed: Michel, Levy and Neubig 2019, [*Are Sixteen Heads Really Better than One?*](https://arxiv.org/abs/1905.10650), section 3. Backup heads: Wang et al. 2022, [*Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2 small*](https://arxiv.org/abs/2211.00593).
# - Grouped queries: Ainslie et al. 2023, [*GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*](https://arxiv.org/abs/2305.13245), section 2.2. One key-value head: Shazeer 2019, [*Fast Transformer Decoding: One Write-Head is All You Need*](https://arxiv.org/abs/1911.02150).
# - Narrow heads: Bhojanapalli et al. 2020, [*Low-Rank Bottleneck in Multi-head Attention Models*](https://arxiv.org/abs/2002.07028).
# - Sizes: Devlin et al. 2019, [*BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*](https://arxiv.org/abs/1810.04805), section 3; Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), with the configurations published with its models; Brown et al. 2020, [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165), table 2.1; Touvron et al. 2023, [*LLaMA: Open and Efficient Foundation Language Models*](https://arxiv.org/abs/2302.13971), table 2, for the 7B that Llama 2 keeps; Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), table 3.
# - A kernel that keeps no scores: Dao et al. 2022, [*FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*](https://arxiv.org/abs/2205.14135).
