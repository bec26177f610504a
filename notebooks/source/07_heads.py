# %% [markdown] slide="slide"
# # 07 Heads
# **How can a word look back for several things at once?**
#
# *Needs* lessons 05 and 06. *Builds* `Attention` in `attention.py`. *Runs* in about 12 s on two cores.
# *Teaches* in about 56 minutes, plus 33 of exercises.

# %%
import time
from copy import deepcopy

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.flop_counter import FlopCounterMode

from tinylm_lib import ModelConfig, preset, storyworld
from tinylm_lib.attention import Attention, attend, causal_mask
from tinylm_lib.classroom import capture, check, figures, heads_that_find, hint, keep, measured, predict, show, trace
from tinylm_lib.cost import count_parameters, kv_cache_bytes
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(7)

# %% [markdown] slide="slide"
# ## 1. One budget, one average
# > Carlos sang to Jamal.
#
# Whoever goes on with this story must know two things: who sang, and to whom. In lesson 05 a word looks back with one query, and its weights
# sum to 1. That is one **budget**. Can one budget fetch two words?
#
# By hand: the key of a word says its role in the sentence, and its value says who it is.


# %%
def fetch(words: list[str], query: list[float], say_role: bool = False) -> torch.Tensor:
    who = {"Carlos": [1.0, 0.0], "Jamal": [0.0, 1.0]}
    # role by place: singer first, listener last
    roles = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    values = torch.tensor([who.get(word, [0.0, 0.0]) for word in words])
    if say_role:  # longer values: a block for the singer, a block for the listener
        values = (roles[:, :, None] * values[:, None]).flatten(1)
    weights = (roles @ torch.tensor(query)).softmax(-1)
    return weights @ values


# %%
told, turned = ["Carlos", "sang", "to", "Jamal"], ["Jamal", "sang", "to", "Carlos"]
singer, listener, both = [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]
for name, query in (("singer", singer), ("listener", listener)):
    print(f"asked for {name:>8}: {fetch(told, query).numpy().round(2)}")

# %% [markdown]
# Asked for one role, the answer is clear: nearly all of the budget goes to one word.

# %% tags=["source-hidden"]
predict(
    "One query asks for both roles at once, [6, 6]. What does it fetch from the same sentence?",
    key=lambda: str([round(x, 1) for x in fetch(told, both).tolist()]),
    choices={
        "[1.0, 1.0]": "That would be all of Carlos and all of Jamal. The weights sum to 1.",
        "[0.5, 0.5]": "",
        "[1.0, 0.0]": "That would be Carlos alone. The query asks for both roles, and both score 6.",
    },
    because="The two words score alike, so each gets half of the budget.",
)

# %% [markdown]
# What comes back is an average, and an average does not know which half came from which word. Now let Jamal sing to Carlos. Beside the one query we put two budgets, each with
# its own query, and their answers **side by side**:

# %% rows=["S3-3"] evidence="one-average"
for sentence in (told, turned):
    two = torch.cat((fetch(sentence, singer), fetch(sentence, listener)))
    print(*sentence, "| one", fetch(sentence, both).numpy().round(2), "| two", two.numpy().round(2))
assert torch.equal(fetch(told, both), fetch(turned, both))
assert fetch(told, singer)[0] > 0.9 and fetch(turned, singer)[1] > 0.9

# %% [markdown]
# With these values, one budget returns the same average for both sentences, and two budgets keep the sentences apart. [[one-average]] That depends on the values, which say *who* but not
# in which role. If a value were longer and named its role as well, a single average could keep the sentences apart, too:

# %% evidence="longer-values"
for sentence in (told, turned):
    print(*sentence, "| one, longer values", fetch(sentence, both, say_role=True).numpy().round(2))
assert (fetch(told, both, say_role=True) - fetch(turned, both, say_role=True)).abs().max() > 0.4

# %% [markdown]
# So one budget is not hopeless. [[longer-values]] But each word then arrives at half strength, and its value needs room for every role. With several budgets, each one has its own weights and
# returns its word at full strength. Here they share keys and values and differ in the query. In a model each budget has its own queries, keys and values, and is called a **head**.
#
# ### Four heads at one word
# The shipped model has four heads in each layer. Near the end of this story Jamal takes something home. To guess what, one must know what there is to take.
# (We looked through the words of this story and chose one where the heads of layer 1 differ clearly. At many words they do not.)

# %%
story = storyworld.story(torch.Generator().manual_seed(1)).text
print(story)
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
read = story[: story.index(" pink fan home")]
ids = torch.tensor([tokenizer.encode("\n" + read)])  # (B, T)
words = [tokenizer.decode([i]).strip() for i in ids[0].tolist()]
caught = capture(model, ids)
looks = caught.attention(1).weights[0, :, -1]  # (H, S), the last word's
guess = caught.logits[0, -1].softmax(-1)  # (V)
print("...", *words[-5:], f"| {tokenizer.decode([guess.argmax().item()]).strip()} {guess.max():.0%}")

# %% tags=["source-hidden"]
named = ["pink", "fan", "gray", "book", "Carlos", "Jamal"]
shares = [looks[:, [w == name for w in words]].sum(-1) for name in named]
rest = sum(w not in named for w in words)
figures.heat_map(
    torch.stack([*shares, 1 - sum(shares)], -1),
    [f"head {h}" for h in range(4)],
    [*named, f"{rest} others"],
    title="One word, four heads: “took the ...”",
    y="head of layer 1",
    x="key: all mentions of a word together",
    caption="Each row is one budget and sums to 1. Heads 0 and 2 find two different words at once, pink and gray, the colours of the two things he could take.",
)

# %% [markdown]
# Head 1 leans to *pink*. Head 3 divides its budget, much as in the toy: 0.49 for *pink* and 0.32 for *gray*. And the model says *pink*, with 100%.

# %% [markdown] tags=["note"]
# Ask before the cell with longer values: could the one head fetch both? (Yes, if the values name the role.) The usual wrong answer: two words need two heads, whatever the values hold.
# The jobs of the four heads come in section 4, when the part of each one in the output projection can be removed.

# %% [markdown] slide="slide"
# ## 2. Cut the features into heads
# Each of the four heads could have all the features, but that would be four times the work. The usual way is another: the heads **share the features**. With $C$ features and $H$ heads, each
# head gets a block of $D = C / H$ neighbouring features of q, k and v, and does attention with these alone.

# %%
B, T, C, H = 2, 6, 12, 3
D = C // H
x = torch.randn(B, T, C)  # (B, T, C)
w_q, w_k, w_v, w_o = (torch.randn(C, C) / C**0.5 for _ in range(4))
q, k, v = (x @ w.T for w in (w_q, w_k, w_v))  # (B, T, C)

# %% [markdown]
# A loop over the heads, with slices. The scores of a head are dot products of $D$ features, so $\sqrt{D}$ scales them, and `attend` sees to that.

# %%
answers = []
for h in range(H):
    block = slice(h * D, (h + 1) * D)
    answers.append(attend(q[..., block], k[..., block], v[..., block], causal=True))  # each (B, T, D)
print(len(answers), "heads, the answers of each:", tuple(answers[0].shape))

# %% [markdown]
# The loop is right, but it takes one head after the other. If the heads are an axis of their own, in front, `attend` takes them all at once, like the texts
# of a batch. So we want $(B, T, C)$ as $(B, H, T, D)$. Count instead of drawing random numbers, and you see who gets what:

# %%
counted = torch.arange(12).view(1, 3, 4)  # one text, 3 words of 4 features
print(counted[0])
print("head 0:", counted[0, :, :2].tolist())
print("head 1:", counted[0, :, 2:].tolist())

# %% tags=["source-hidden"]
viewed = counted.view(1, 2, 3, 2)
predict(
    "`counted.view(1, 2, 3, 2)` has the right shape for 2 heads, 3 words, 2 features each. What does it give head 0?",
    key=lambda: str(viewed[0, 0].tolist()),
    choices={
        "[[0, 1], [4, 5], [8, 9]]": "That is what we want. But `view` deals out the numbers in the order in which they lie in memory.",
        "[[0, 1], [2, 3], [4, 5]]": "",
        "[[0, 2], [4, 6], [8, 10]]": "That would be every second feature of each word. `view` skips nothing.",
    },
    because="`view` keeps the order 0, 1, 2, ...: head 0 gets the whole of word 0 and half of word 1.",
)

# %% [markdown]
# The shape is right and the content is wrong: head 0 has *all features of some words*, not *some features of all words*. No shape test can
# see it. As in lesson 02: `view` and `reshape` keep the order of the numbers, a transpose changes it.
#
# ### Your turn: split
# Cut the features of each position into `n_heads` consecutive blocks and give the heads an axis of their own, in front of the positions.


# %% tags=["exercise"] name="split_heads" minutes=8 difficulty=2
def split_heads(x, n_heads):
    """x (B, T, C), C a multiple of H = n_heads. Returns (B, H, T, D), D = C / H.

    Head h has the features h*D to (h+1)*D - 1. x may lie in memory in any order.
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
# Two moves. First the last axis becomes two, (H, D): the features lie side by side in memory, so this cuts each position into blocks. Then H moves in front of T.
# The usual slips: straight to (B, H, T, D), as above; (D, H) instead of (H, D), which deals the features out like cards; `n_heads` taken for the size of a head.

# %% [markdown] slide="slide"
# ## 3. Put them together again, and mix
# Afterwards each position has $H$ answers of $D$ numbers. Put them **side by side** and it has $C$ numbers again, as it came:

# %%
merged = torch.cat(answers, dim=-1)  # (B, T, C)
assert merged.shape == x.shape

# %% [markdown]
# In $(B, H, T, D)$ the answers of one position lie apart, with other positions between them. So the merge is the split backwards: first H back
# beside D, then the two become one axis.
#
# ### Your turn: merge


# %% tags=["exercise"] name="merge_heads" minutes=7 difficulty=2
def merge_heads(x):
    """x (B, H, T, D), in memory in any order. Returns (B, T, H*D).

    For each position: head 0's numbers, then head 1's, and so on.
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
# `transpose(1, 2)` brings H beside D, `reshape` makes one axis of the two. `view` refuses here: after the transpose the numbers do not lie
# in the order of the axes, so somebody must copy, and `reshape` does. The usual slips: no transpose (then positions get each other's numbers, section 8), a sum or a mean over the heads.

# %% [markdown] slide="subslide"
# ### The output projection
# After the merge, features 0 to 3 hold only what head 0 found. A last linear map, $w_o$, lets every feature of the result draw on every head. Its columns
# come in blocks, one for each head: a map of its own from $D$ to $C$. The result is the *sum* of what these maps make of the answers. [[sum-of-maps]]

# %% evidence="sum-of-maps"
maps = w_o.split(D, dim=-1)  # each (C, D)
parts = [answer @ w.T for answer, w in zip(answers, maps, strict=True)]  # each (B, T, C)
torch.testing.assert_close(sum(parts), merged @ w_o.T)
print("merge, then one map = a map for each head, then the sum")

# %% rows=["S0-35"] tags=["source-hidden"]
shades, blue = ["#8a3ea8", "#b987cc", "#d9bde4"], figures.AXIS_COLORS["C"].light
names = ["q, k, v", "q, k, v", "weights", "answers", "side by side", "result"]
shapes = ["(B, T, C)", "(B, H, T, D)", "(B, H, T, S)", "(B, H, T, D)", "(B, T, C)", "(B, T, C)"]
steps = {7.4: "split", 15.3: "q · k,\nsoftmax", 24.5: "times v", 32.2: "merge", 41.2: "project"}
with figures.axes("Split, attend, merge, project", "steps", "positions", (11, 4.9)) as (figure, ax):
    for i, (color, floor) in enumerate(zip(shades, (10.4, 4.8, -0.8), strict=True)):
        ax.bar([1.6 * i, 34.2 + 1.6 * i], 5, 1.6, 3, align="edge", color=color, edgecolor="white")
        ax.bar([10.8, 27.2], 4.6, 1.6, floor, align="edge", color=color)
        ax.fill([18, 18, 22], [floor, floor + 4.6, floor], color=color, linewidth=0)
    ax.bar(43.2, 5, 4.8, 3, align="edge", color=blue)
    for middle, name, shape in zip((2.4, 11.6, 20, 28, 36.6, 45.6), names, shapes, strict=True):
        ax.text(middle, -6.4, f"{name}\n{shape}", ha="center", va="bottom", size=13.5, linespacing=1.5)
    for middle, step in steps.items():
        ax.text(middle, 16.4, step, ha="center", weight="bold")
        ax.annotate("", (middle + 1.8, 5.5), (middle - 1.8, 5.5), arrowprops={"arrowstyle": "-|>", "fc": "black"})
    ax.set(xlim=(-1.4, 49.4), ylim=(-6.6, 19.5))
    ax.axis("off")
figures.display(
    figure,
    alt="Diagram: features are cut into three blocks; each makes its own triangle of weights and its own answers; side by side these become one sheet.",
    caption="Each purple is a head. From the split to the merge the heads know nothing of each other. The output projection mixes them.",
    table={"": names, "shape": shapes},
)

# %% [markdown] slide="subslide"
# ### Your turn: the whole layer
# Linear maps for q, k and v, split, attention, merge, output projection. `attend(q, k, v, causal=True)` is allowed, and so are your own functions. To `attend`, the heads are just one
# more leading axis. No rotation here.


# %% tags=["exercise"] name="multi_head_attention" minutes=18 difficulty=3
def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads):
    """Causal attention of x (B, T, C) to itself in n_heads heads, without rotation. Returns (B, T, C).

    w_q, w_k, w_v, w_o (C, C): stored as (out, in), as in lesson 02; no biases. Head h has the h-th block of
    D = C / n_heads features of q, k and v. Scores are divided by the root of D. Position t sees positions 0 to t,
    also where all its scores are very low. The merged answers go through w_o; x is not added.
    n_heads may be 1, or C. Tensors may lie in memory in any order. The dtype is kept; gradients reach all five.
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
# Five steps in three lines. The usual slips: the scale by the root of C instead of D (with one head nobody sees it), weights used as (in, out),
# keys made with w_q, no output projection, and all mistakes of the two exercises before.

# %% [markdown] slide="subslide"
# ### The library's version
# `Attention` takes its sizes from a config. With our weights, and position "none", it equals the loop.
# In its source `extend` is for lesson 13; `q_norm`, `k_norm`, `Positions` and the biases are options you can skip.

# %% rows=["S0-33", "S1-22"]
config = ModelConfig(d_model=C, n_heads=H, position="none")
layer = Attention(config)
for projection, w in ((layer.q_proj, w_q), (layer.k_proj, w_k), (layer.v_proj, w_v), (layer.o_proj, w_o)):
    projection.weight.data.copy_(w)
at = torch.arange(T)  # (T)
torch.testing.assert_close(layer(x, at), merged @ w_o.T)

# %%
show(Attention)

# %%
trace(layer, x, at, sizes={"B": B, "T": T, "C": C, "H": H, "G": H, "D": D})

# %% [markdown]
# The letter G belongs to section 6; here it equals H. The last line holds attention, merge and output projection; `mix` is the first two:

# %% rows=["S1-21", "S1-23"]
per_head = [layer.split(features) for features in (q, k, v)]  # each (B, H, T, D)
beside = attend(*per_head, causal=True).transpose(1, 2)  # (B, T, H, D)
torch.testing.assert_close(layer.mix(*per_head), beside.reshape(B, T, C))
torch.testing.assert_close(layer.o_proj(layer.mix(*per_head)), layer(x, at))
trace(layer.mix, *per_head, sizes={"B": B, "T": T, "H": H, "G": H, "D": D, "C": C, "S": T})

# %% [markdown]
# The rotation of lesson 06 comes after the split: each head has all speeds, fast and slow, and turns by itself.

# %% rows=["S0-34"]
turning = Attention(ModelConfig(d_model=C, n_heads=H, position="rotary"))
turning.load_state_dict(layer.state_dict())
alone = turning.rotation(per_head[0][:, 1:2], at)  # the queries of head 1 without the others
torch.testing.assert_close(turning.rotation(per_head[0], at)[:, 1:2], alone)
for positions in (at, torch.zeros_like(at)):
    same = torch.allclose(turning(x, positions), layer(x, at))
    print("positions", positions.tolist(), "as without rotation:", same)

# %% [markdown]
# With all positions 0 nothing is turned, and nothing complains. A default could hide that, as it does in one published course note, so `positions` must be given. The causal mask,
# by contrast, the layer makes itself: nobody can hand it one that means the reverse.
#
# One more option: `attention_dropout` sets some weights to 0 at random (lesson 09), in training only.

# %% rows=["S2-4"]
dropping = Attention(ModelConfig(d_model=C, n_heads=H, attention_dropout=0.5))
for name, mode in (("training", True), ("evaluation", False)):
    dropping.train(mode)
    print(name, "- two calls agree:", torch.equal(dropping(x, at), dropping(x, at)))

# %% [markdown] tags=["note"]
# That merging and projecting is a sum of maps, one per head, is a good one-minute proof on the board. For 50 minutes: leave rotation and dropout for
# reading at home. A frequent question: why no curve between the heads and $w_o$? (That is the job of lesson 08.)

# %% [markdown] slide="slide"
# ## 4. What is each head for?
# Several heads are like several spotlights on a stage, each with its own beam. It is tempting to give each one a name: the singer's light, the listener's light. We compare two ways to find these
# names in the shipped model: **where** a head looks, and **what breaks** without it.
#
# ### Where it looks
# Some words of a story can be known from an earlier one: the pronoun *He*, a place, the object *fan* after its colour, a sentence that is quoted again, a name, a trait such as *careful*. Take the
# word just before such a word. How often does the head give its largest weight to the earlier word that determines the answer? We count in three sets of 20 stories. (StoryWorld also knows the
# kinds *colour* and *owner*, but this model often gets them wrong, so it cannot show us what they need.)

# %%
kinds = ["pronoun", "place", "object", "quotation", "name", "trait"]
sets = []
for seed in (7, 8, 9):
    generator = torch.Generator().manual_seed(seed)
    sets.append([storyworld.story(generator) for _ in range(20)])

# %%
found = [heads_that_find(model, tokenizer, one_set) for one_set in sets]
looked_at = {kind: torch.stack([finds[kind] for finds in found]) for kind in kinds}  # each (sets, layers, heads)
assert looked_at["name"].shape == (3, 3, 4)

# %% tags=["signature", "source-hidden"] rows=["S3-5"]
all_heads = [(layer, head) for layer in range(3) for head in range(4)]
rows = [f"layer {layer}, head {head}" for layer, head in all_heads]
figures.heat_map(
    torch.stack([looked_at[kind].mean(0).flatten() for kind in kinds], -1),
    rows,
    kinds,
    title="Where the heads look",
    y="head",
    x="kind of word that comes next",
    caption="How often the head looks most at a word that determines the next one. Mean of three sets of stories.",
)

# %% [markdown]
# The heads differ, and the training never assigned them a job. Head 1 of layer 2 looks like the head for names: it finds 0.86 of them, more than any other. Head 0 of that layer finds every object and
# two thirds of the quotations; head 2 finds pronouns *and* places. But a look is only a look. The weights say what a head fetches, not whether anything later uses it.
#
# ### What breaks without it
# So we take the heads away, one at a time. By section 3 the result of a layer is a sum with one part for each head. To remove a part, set that head's columns of $w_o$ to 0, and leave
# everything else as it was. This is an **ablation**. Then we count how often a known word is still the model's most probable next word, for each kind and in each set of stories.


# %%
def without(*heads: tuple[int, int]) -> torch.nn.Module:
    changed = deepcopy(model)
    D_head = model.config.d_head
    for layer, head in heads:
        columns = slice(head * D_head, (head + 1) * D_head)
        changed.blocks[layer].attention.o_proj.weight.data[:, columns] = 0
    return changed


# %%
chosen = [one_story for one_set in sets for one_story in one_set]  # 60 stories
read_ids = [torch.tensor(tokenizer.encode("\n" + one_story.text)) for one_story in chosen]
batch = pad_sequence(read_ids, batch_first=True)  # (60, T + 1)

# %%
of_kind = {}
for kind in kinds:
    marks = [torch.tensor([named_kind == kind for named_kind in one_story.kinds]) for one_story in chosen]
    of_kind[kind] = pad_sequence(marks, batch_first=True)  # (60, T)


# %%
def right_words(reader: torch.nn.Module) -> dict[str, torch.Tensor]:
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
        "about half": "The map shows other heads that look at names, too. With them, nearly all names are still right.",
        "nearly all": "",
    },
    because="A look suggests what a head does, but the model may not depend on it: here the other heads are enough for nearly all names.",
)

# %% [markdown]
# Now all twelve, one at a time:

# %%
removed = [right_words(without(head)) for head in all_heads]
left = {kind: torch.stack([counts[kind] for counts in removed], -1).view(3, 3, 4) for kind in kinds}  # as `looked_at`

# %% tags=["source-hidden"] rows=["S3-5"]
figures.heat_map(
    torch.stack([(whole[kind].mean() - left[kind].mean(0)).flatten() for kind in kinds], -1),
    rows,
    kinds,
    title="What breaks without it",
    y="head that is removed",
    x="kind of word that comes next",
    caption="By how much the fraction of right words falls when this one head is removed. Mean of the same three sets. Compare it with the first map, cell by cell.",
)

# %% [markdown]
# The two maps disagree in many cells. Here are some cells, with the range over the three sets:

# %%
cells = [
    ("name", 2, 1),
    ("quotation", 2, 0),
    ("name", 1, 2),
    ("object", 1, 0),
    ("object", 2, 0),
    ("place", 2, 2),
]
print("kind       head              finds it     right without it")
for kind, depth, head in cells:
    finds = 100 * looked_at[kind][:, depth, head]  # (sets)
    kept = 100 * left[kind][:, depth, head]  # (sets)
    ranges = f"{finds.min():3.0f}-{finds.max():3.0f} %    {kept.min():3.0f}-{kept.max():3.0f} %"
    print(f"{kind:<9}  layer {depth}, head {head}   {ranges}")

# %% evidence="heads-removed"
for kind, depth, head in cells[:2]:  # it looks, and is hardly needed
    assert looked_at[kind][:, depth, head].min() > 0.5 and left[kind][:, depth, head].min() > 0.85
for kind, depth, head in cells[2:4]:  # it does not look at the answer, and is needed
    assert looked_at[kind][:, depth, head].max() < 0.1 and left[kind][:, depth, head].max() < 0.8
for kind, depth, head in cells[4:]:  # it looks, and is needed
    assert looked_at[kind][:, depth, head].min() > 0.9 and left[kind][:, depth, head].max() < 0.25

# %% [markdown]
# Without two of these heads many words are wrong, although the heads do not look at the answer. [[heads-removed]] But the first map shows one position only, the word just before the answer, and we removed the head at all positions. So we
# remove it once at that position alone, and once everywhere except there:


# %%
def without_at(layer: int, head: int, places: torch.Tensor) -> torch.nn.Module:
    changed, D_head = deepcopy(model), model.config.d_head
    gone = torch.zeros(*places.shape, model.config.d_model, dtype=torch.bool)  # (60, T, C)
    gone[..., head * D_head : (head + 1) * D_head] = places[..., None]
    changed.blocks[layer].attention.o_proj.register_forward_pre_hook(lambda _, inputs: inputs[0].masked_fill(gone, 0))
    return changed


# %% evidence="where-removed"
for kind, depth, head in cells[2:4]:
    just_before = right_words(without_at(depth, head, of_kind[kind]))[kind]  # (sets)
    elsewhere = right_words(without_at(depth, head, ~of_kind[kind]))[kind]  # (sets)
    print(
        f"{kind:<6}  layer {depth}, head {head}, removed just before the {kind}: {just_before.mean():.0%} right,",
        end=" ",
    )
    print(f"removed elsewhere: {elsewhere.mean():.0%} right")
    needed, harmless = (just_before, elsewhere) if kind == "name" else (elsewhere, just_before)
    assert needed.max() < 0.8 and harmless.min() > 0.9

# %% [markdown]
# - **It looks, and is hardly needed.** Head 1 of layer 2 finds the names, and without it nearly all names are right. Head 0 of layer 2 finds most quotations, and without it most of them are right.
# - **It does not look at the answer, and is needed.** Head 2 of layer 1 almost never looks at the right name, but without it three names in ten are wrong, also if we remove it only just before the name. [[heads-removed]] [[where-removed]]
# - **It works elsewhere.** Without head 0 of layer 1 about half of the objects are wrong, but not one if we remove it only just before the object. So this head works at earlier words, which the first map leaves
#   out: in the texts of lesson 05 the things take up their colours with it. [[where-removed]]
# - **Look and use agree.** Without head 2 of layer 2 places are lost, and without head 0 of layer 2 objects are lost.
#
# So a map of attention weights suggests what a head is for, and a removal has to test it. [[heads-removed]] The question has a history: in other models, very different attention weights
# led to the same predictions (Jain and Wallace 2019), and most heads could be removed one at a time with little harm (Michel et al. 2019).
#
# ### What one removal cannot show
# If hardly a word becomes wrong, the head may still have helped. Counting right words has a threshold: a word stays right as long as its logit is the highest. So we also measure the **margin**, the logit of the
# right word minus the highest other logit. We remove two heads that look at names, first each alone and then both. If they worked independently, the two losses of margin would add up, and we can
# compute how many names would then be right:


# %%
def margins(reader: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        logits = reader(batch[:, :-1])  # (60, T, V)
    answer = batch[:, 1:, None]  # (60, T, 1)
    best_other = logits.scatter(-1, answer, -torch.inf).amax(-1)  # (60, T)
    return (logits.gather(-1, answer)[..., 0] - best_other)[of_kind["name"]]  # one for each name


# %%
margin = margins(model)
lost = {heads: margin - margins(without(*heads)) for heads in (((1, 1),), ((2, 1),), ((1, 1), (2, 1)))}
print(f"margin with all heads: {margin.mean():.1f}")
for heads, loss in lost.items():
    print(
        "without",
        *heads,
        f"it falls by {loss.mean():.1f}, and {(margin > loss).float().mean():.0%} of the names are right",
    )

# %% evidence="two-removed"
one_loss, other_loss, both_lost = lost.values()
added_up = (margin > one_loss + other_loss).float().mean()
print(f"two losses added up: {(one_loss + other_loss).mean():.1f}, and {added_up:.0%} would be right")
assert one_loss.mean() > 1 and other_loss.mean() > 1  # the margin shows each loss
assert both_lost.mean() > (one_loss + other_loss).mean() + 1 and (margin > both_lost).float().mean() < added_up - 0.08

# %% [markdown]
# Without one of them nearly all names are right, but the margin already shows a loss. Without both, the loss is larger than the sum, and so is the number of wrong names: for names, each of these two heads partly replaces the other. [[two-removed]]
# A fall in the number of right words alone would not show this, because two small independent losses can add up until many words are wrong.
#
# And if something breaks, the reason may be the removal itself: a part that is exactly 0 is an input that the later layers never met in training. A milder removal puts the head's *average* answer
# in its place. Every word then gets the same answer from this head, whatever it looks at:


# %% evidence="mean-removed"
def with_average(layer: int, head: int) -> torch.nn.Module:
    changed = without((layer, head))
    columns = slice(head * model.config.d_head, (head + 1) * model.config.d_head)
    name = f"blocks.{layer}.attention.o_proj"
    average = capture(model, batch[:20]).inputs[name].mean((0, 1))[columns]  # (D)
    part = model.get_submodule(name).weight[:, columns] @ average  # (C)
    changed.get_submodule(name).bias = torch.nn.Parameter(part.detach())
    return changed


for kind, depth, head in (("name", 2, 1), ("name", 1, 2), ("object", 2, 0), ("place", 2, 2)):
    zero = left[kind][:, depth, head].mean()
    mean = right_words(with_average(depth, head))[kind].mean()
    print(f"{kind:<6} layer {depth}, head {head}: right with 0 in its place {zero:4.0%}, with its average {mean:4.0%}")
    assert abs(zero - mean) < 0.1

# %% [markdown]
# For these four the answer stays the same. [[mean-removed]] What a head such as head 2 of layer 1 does for the names, neither removal says. It shows *that* the model needs the head, not how.

# %% [markdown] tags=["note"]
# Let the room name the heads from the first map, then vote on the prediction. The usual wrong answer: "head = one grammatical relation", so without the names head most names are lost.
# Then ask: which single head *do* the names need most? (Head 2 of layer 1, which no one would pick from the first map.) Spend the time on the second map; with 50 minutes, cut the average answers at the end.

# %% [markdown] slide="slide"
# ## 5. What it costs
# Are more heads more expensive? Count first. One layer, with its features cut into one head or many:


# %%
def one_layer(n_heads: int, **more) -> ModelConfig:
    return ModelConfig(d_model=512, n_layers=1, n_heads=n_heads, **more)


# %% tags=["source-hidden"]
sizes = [sum(p.numel() for p in Attention(one_layer(n)).parameters()) for n in (1, 16)]
predict(
    "An attention layer of 512 features has 1,048,576 parameters with one head. How many with 16 heads?",
    key=lambda: "as many" if sizes[0] == sizes[1] else "more",
    choices={
        "as many": "",
        "16 times as many": "That would be so if each head had 512 features of its own. They share the 512.",
        "a sixteenth": "Each head is a sixteenth as wide, and there are 16 of them.",
    },
    because="The four weights are 512 by 512, however their features are cut into heads.",
)

# %% [markdown]
# And the multiplications, for 32 texts of 128 words? Each of the four maps makes 512 features of a word, at 512 multiplications a feature. In each head a word then takes $D$ for each of the 128 scores, masked ones included, and $D$ for each of the 128 values:

# %%
for n_heads in (1, 4, 16):
    parameters = sum(p.numel() for p in Attention(one_layer(n_heads)).parameters())
    looking = n_heads * 128 * 2 * (512 // n_heads)  # for one word
    total = 32 * 128 * (4 * 512 * 512 + looking)
    print(f"{n_heads:2d} heads: {parameters:,} parameters, {total / 1e9:.1f} billion multiplications")
    assert parameters == count_parameters(one_layer(n_heads)).attention == 4 * 512 * 512

# %% [markdown]
# Neither number changes: twice the heads, each half as wide. (We count matrix products only. And with `qk_norm`, which has gains for the features of one head, the parameters change slightly.) What grows is the number of **scores**, $(B, H, T, T)$: a square for each head. We time the plain formula of
# lesson 05, which writes them down, and `attend`. The best of five runs counts, because other programs can only slow a run down:


# %%
def timed(look, *inputs, **options) -> str:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        look(*inputs, **options)
        seconds.append(time.perf_counter() - start)
    return measured(1000 * min(seconds), "ms", 0.1, 5000)


def plain(q: torch.Tensor) -> torch.Tensor:
    scores = (q @ q.mT / q.shape[-1] ** 0.5).masked_fill(~causal_mask(128), -torch.inf)  # (B, H, T, T)
    return scores.softmax(-1) @ q


# %% evidence="cost-of-heads"
for n_heads in (1, 4, 8, 16):
    x_cut = torch.randn(32, n_heads, 128, 512 // n_heads)
    megabytes = 4 * 32 * n_heads * 128 * 128 / 1e6  # 4 bytes a score
    times = f"plain {timed(plain, x_cut)}, attend {timed(attend, x_cut, x_cut, x_cut, causal=True)}"
    print(f"{n_heads:2d} heads: {megabytes:4.1f} MB of scores, {times}")
    assert (x_cut @ x_cut.mT).nbytes == 1e6 * megabytes
    with FlopCounterMode(display=False) as counter:
        plain(x_cut)
    # two matrix products, with a multiplication and an addition each: no n_heads in this number
    assert counter.get_total_flops() == 2 * 2 * 32 * 128 * 128 * 512
    assert sum(p.numel() for p in Attention(one_layer(n_heads)).parameters()) == sizes[0]

# %% [markdown]
# So more heads do not mean larger weight matrices or more multiplications in the matrix products. They mean more scores to compute, and more memory if the scores are stored. [[cost-of-heads]] The time of the plain formula grows several times over
# from one head to 16, because mask and softmax touch every score. The kernel behind `attend` still computes every score, but it need not store them all (Dao et al. 2022), and on our machines its
# time grew by about half.

# %% [markdown] slide="slide"
# ## 6. Fewer keys and values
# A model that writes a text word by word keeps the keys and values of all earlier words, in every layer. This store is the **KV-cache**; lesson 13 builds
# it. For long texts it is large. The queries are not in it: each is used once. So where could one save?
#
# **Grouped queries** (Ainslie et al. 2023): only $G$ key-value heads, and a group of $H / G$ query heads uses each of them. It is attention as before, with each key-value
# head written down several times:

# %% evidence="groups-written-out"
queries, keys, values = torch.randn(B, 10, T, D), torch.randn(B, 5, T, D), torch.randn(B, 5, T, D)
uses = torch.arange(5).repeat_interleave(2)
print("query heads 0 to 9 use the key-value heads", uses.tolist())
written_out = attend(queries, keys[:, uses], values[:, uses], causal=True)
torch.testing.assert_close(attend(queries, keys, values, causal=True), written_out)

# %% tags=["source-hidden"]
few, full = preset("llama", "3-8b"), preset("llama", "3-8b", n_kv_heads=32)
compared = {
    "the KV-cache": [kv_cache_bytes(size, 1, 8192) for size in (few, full)],
    "the weights of k_proj and v_proj": [count_parameters(size).attention for size in (few, full)],
    "the number of scores": [size.n_heads for size in (few, full)],
}
predict(
    "Llama 3 8B has 32 query heads, and 8 key-value heads in place of 32. What does not become smaller?",
    key=lambda: next(name for name, (small, large) in compared.items() if small == large),
    choices={
        "the KV-cache": "It holds keys and values, and there are only a quarter as many.",
        "the weights of k_proj and v_proj": "They make fewer features, so they have fewer rows.",
        "the number of scores": "",
    },
    because="Each of the 32 query heads still scores every earlier word.",
)

# %%
print("key-value heads   attention parameters a layer   cache for 8192 tokens")
for kv_heads in (32, 8, 1):
    size = preset("llama", "3-8b", n_kv_heads=kv_heads)
    millions = count_parameters(size).attention / 1e6
    gigabytes = kv_cache_bytes(size, batch_size=1, length=8192, bytes_per_element=2) / 1e9
    print(f"{kv_heads:>15}   {millions:>20.0f} million   {gigabytes:18.2f} GB")

# %% evidence="smaller-cache"
assert kv_cache_bytes(full, 1, 8192) == 4 * kv_cache_bytes(few, 1, 8192) and full.n_heads == few.n_heads

# %% [markdown]
# A quarter of the keys and values, a quarter of the cache. With a single one it is called *multi-query attention* (Shazeer 2019). The price: the heads of
# a group look at the same keys. The paper on grouped queries reports a quality close to that of full heads (Ainslie et al. 2023).

# %% [markdown] tags=["note"]
# Ask why nobody groups the *queries* instead: the cache holds none. Common wrong answer to the prediction: that the scores shrink, too.

# %% [markdown] slide="slide"
# ## 7. How many heads?
# If $D = C / H$, then $H$ must divide $C$. The config says so before anything runs:

# %% tags=["raises-exception"]
ModelConfig(d_model=512, n_heads=7)

# %% [markdown]
# A layer that computes `D = C // H` and does not look, as in one published course note, runs anyway: with `C = 10` and `H = 3` it is only `10 // 3 * 3` features
# wide inside, and nobody is told.
#
# With more heads, a word looks back in more ways, but each head compares fewer features, so fewer patterns of scores are possible. Take one head's scores of 64 words. How many rows suffice, so that all
# others are sums of multiples of these? This number is the **rank** of the table.

# %%
for n_heads in (1, 4, 16, 128):
    pair = torch.randn(2, 64, 128 // n_heads)  # one head's queries and keys
    rank = torch.linalg.matrix_rank(pair[0] @ pair[1].T)
    print(f"H {n_heads:3d}   D {pair.shape[-1]:3d}   rank {rank:2d} of 64")

# %% [markdown]
# With $D = 1$ every row is a multiple of one row: all words put the others in the same order, or in exactly the reverse (Bhojanapalli et al. 2020 discuss this
# limit). With two features or more, softmax can still single out a key: if all keys lie on a circle, each one has the highest score for a query in its own direction, and a long query gives it nearly all of the weight. So the rank of
# the scores limits their patterns, but says little about the weights. So what do people choose?

# %% rows=["S3-4"]
published = {"Transformer base": (512, 8), "BERT-base": (768, 12), "BERT-large": (1024, 16), "GPT-3 175B": (12288, 96)}
presets = {
    "GPT-2 small": preset("gpt2", "small"),
    "GPT-2 XL": preset("gpt2", "xl"),
    "Llama 2 7B": preset("llama", "2-7b"),
    "Llama 3 8B": preset("llama", "3-8b"),
    "our shipped model": model.config,
}
published |= {name: (config.d_model, config.n_heads) for name, config in presets.items()}
for name, (width, n_heads) in sorted(published.items(), key=lambda item: item[1]):
    print(f"{name:<17} C {width:6,}   H {n_heads:2d}   D {width // n_heads:3d}")

# %% [markdown]
# So: choose $D$, 64 or 128 in models like these, and $H = C / D$ follows. You may read that heads of fewer than 32 features hurt. That is a rule of thumb, no law:
# our small model, with 32, sits right at that edge.

# %% [markdown] tags=["note"]
# The room will ask for "the best number". There is none in the sources; a sweep on the task decides. 512 with 8 heads of 64 or 16 of 32 are both in use.

# %% [markdown] slide="slide"
# ## 8. Break it: reshape in place of transpose
# Three layers, each with the right shapes: one that only reshapes in the split, one in the merge, one in both. The weights are those of section 3.

# %%
cut = {"right": layer.split, "reshaped": lambda x: x.view(B, H, T, D), "unmoved": lambda x: x.view(B, T, H, D)}
join = {"right": lambda y: y.transpose(1, 2).flatten(2), "reshaped": lambda y: y.reshape(B, T, C)}


def run(x: torch.Tensor, split: str, merge: str) -> torch.Tensor:
    per_head = (cut[split](projection(x)) for projection in (layer.q_proj, layer.k_proj, layer.v_proj))
    return layer.o_proj(join[merge](attend(*per_head, causal=True))).detach()  # (B, T, C)


last, first = x.clone(), x.clone()
last[:, -1] += 1
first[:, 0] += 1

# %% tags=["source-hidden"]
slips = {"split": ("reshaped", "right"), "merge": ("right", "reshaped"), "both": ("reshaped", "reshaped")}
still = {name: torch.allclose(run(last, *way)[:, :-1], run(x, *way)[:, :-1]) for name, way in slips.items()}
predict(
    "The last word changes, and no result before it may move. With a reshape in which place does this still hold?",
    key=lambda: max(still, key=still.get),
    choices={
        "split": "Inside, time and features are then in another order than outside, and the mask forbids the wrong pairs.",
        "merge": "Then a position is given numbers of other positions, and of later ones.",
        "both": "",
    },
    because="What is cut in the order of memory is put together in the same order: time still runs forward inside.",
)

# %% [markdown]
# Who sits in which head? We give each word its own number in all its features and split. The row `unmoved` is a fourth layer: `view(B, T, H, D)`, attention on that, and no
# transpose at all. Printed for each head: the words in its rows.

# %%
numbered = torch.arange(T)[:, None].repeat(B, 1, C)  # (B, T, C)
for way in cut:
    print(f"{way:<8}", *cut[way](numbered)[0, ..., 0].tolist())

# %% evidence="reshape-breaks"
right = run(x, "right", "right")
print("reshape in  shape       off by  last moves others  first moves last")
for name, way in {"none": ("right", "right"), **slips, "unmoved": ("unmoved", "reshaped")}.items():
    y = run(x, *way)
    ahead = (run(last, *way) - y)[:, :-1].abs().max()
    back = (run(first, *way) - y)[:, -1].abs().max()
    off = (y - right).abs().max()
    print(f"{name:<10}  {tuple(y.shape)}  {off:6.1f}  {ahead:17.1f}  {back:16.1f}")
    assert y.shape == right.shape and (off > 0.5 or name == "none")
assert torch.equal(x.reshape(B, 1, T, C), x.reshape(B, T, 1, C).transpose(1, 2))  # with one head

# %% [markdown]
# A reshape in one place: words are told the future, part of what they should guess. In both: no leak, but a "head" is a short stretch of the text, two words with all their
# features, and nobody looks back beyond it. Unmoved: each "head" is one word, which compares its own heads with one another. These two pass every test of shapes and of leaks. A test that
# the first word still reaches the last finds them, and so does a comparison of numbers. With one head, a reshape is right: **test with several heads, and all sizes different**.
#
# ### The wrong number of heads
# We save a layer with 4 heads and load its weights into a layer with 8.

# %%
saved, other = (Attention(one_layer(n, position="none")) for n in (4, 8))
print(other.load_state_dict(saved.state_dict()))
with torch.no_grad():
    some, places = torch.randn(1, 20, 512), torch.arange(20)
    difference = saved(some, places) - other(some, places)
    share = (difference.std() / saved(some, places).std()).item()
print(f"the results differ by {share:.0%} of their size")

# %% [markdown]
# No error, and another function: in this layer the weights do not record the number of heads. It has to travel with them; the library's checkpoints keep the config beside them.
#
# ## What you have now
# - The attention weights of one head sum to 1, so a head returns one average. Several heads return several averages at once, and their answers are concatenated. [[one-average]]
# - Each head gets its own features: (B, T, C) becomes (B, H, T, D), and back. With several heads and positions, a reshape straight to (B, H, T, D) gives the right shape but the wrong numbers. [[reshape-breaks]]
# - The output projection is a sum of linear maps, one for each head. [[sum-of-maps]]
# - Where a head looks suggests what it does, but the model may not depend on it: remove the head to test this (an ablation). A head can also work at earlier words than the one that we look at. [[heads-removed]] [[where-removed]]
# - Counting right words can hide the loss from one removed head. For names, removing two heads of the shipped model costs more margin than the sum of the single removals. [[two-removed]]
# - With the same number of features, the weight matrices and the multiplications in matrix products do not depend on the number of heads. More heads mean more scores to compute; the plain formula also stores them, a fused kernel need not. [[cost-of-heads]]
# - With grouped queries, several query heads use the same keys and values. The KV-cache becomes smaller, and every query head still has scores of its own. [[groups-written-out]] [[smaller-cache]]
#
# Next, lesson 08: what a word does with what it has fetched.

# %% [markdown]
# ## Sources
# - Heads: Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2 and table 3.
# - Where a head looks: Jain and Wallace 2019, *Attention is not Explanation*. Heads removed: Michel, Levy and Neubig 2019, *Are Sixteen Heads Really Better than One?*, section 3.
# - Grouped queries: Ainslie et al. 2023, *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, section 2.2.
# - One key-value head: Shazeer 2019, *Fast Transformer Decoding: One Write-Head is All You Need*.
# - Narrow heads: Bhojanapalli et al. 2020, *Low-Rank Bottleneck in Multi-head Attention Models*.
# - Sizes: Devlin et al. 2019, *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*, section 3; Radford et al. 2019, *Language Models are Unsupervised
#   Multitask Learners*; Brown et al. 2020, *Language Models are Few-Shot Learners*, table 2.1; Touvron et al. 2023, *Llama 2: Open Foundation and Fine-Tuned Chat Models*;
#   Grattafiori et al. 2024, *The Llama 3 Herd of Models*, table 3.
# - A kernel that keeps no scores: Dao et al. 2022, *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*.
