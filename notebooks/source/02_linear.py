# %% [markdown] slide="slide"
# # 02 Linear
# **How does a layer make new features out of old ones, and where do the first ones come from?**
#
# *Needs* lesson 01. *Builds* `Linear` and `Embedding` in `layers.py`. *Runs* in about 15 s on two cores.
# *Teaches* in about 74 minutes, plus 15 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a layer is a list of questions, each question is a list of weights, and the weights are learned. Sections 1 to 5 are the core. Section 6 asks what the rows of the shipped model's table have learned, section 7 shows two mistakes that raise no error, and section 8 explains how tensors lie in memory and how large new weights are.
# Before the class: run all cells once, and try the control at the end of section 4. If everybody knows tensors, leave out section 2 except for its last prediction.

# %% slide="skip"
import torch
from matplotlib import pyplot as plt
from torch import nn

from tinylm_lib import TransformerLM
from tinylm_classroom import figures
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import sentences

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** A model cannot compute with words, so it gives each word a list of numbers. Show the picture early and let the class look at it before you explain the axes.
#
# **Draw.** A table with a row for each of three words and five columns of numbers. Below it a plane with three points. A row of the table is a point.
#
# **Ask.** After the picture: "Nobody gave the model a list of colours. How could it find out that *red* and *blue* belong together?" Collect the answers and come back to them in section 6.
#
# **Usual answers.**
# - *The axes mean something, for instance person and thing* (from the room): They are only the two directions in which these points vary most. 126 other dimensions are not in the picture.
# - *Somebody must have labelled the words* (from the room): The training text has no labels. The colour of a point is our own, added after the training.
# - *You would find groups in any cloud if you colour it* (from the room): That is the right doubt. The left half of the picture is coloured by the same kinds, and there are no groups.
#
# **Cut if short.** The table of the nearest words; keep the picture.

# %% [markdown] slide="slide"
# ## 1. A map of words
# Before a language model can compute with a word, it replaces the word by a list of numbers, a **vector**. Here are the first five of the 128 numbers that the shipped model has for each of three words:

# %%
shipped = load_pretrained("storyworld")
tokenizer = shipped.tokenizer
trained = shipped.model.embed.weight.detach()  # (V, C): a row for each token
assert trained.shape == (345, 128)
for word in ("red", "blue", "kite"):
    row = trained[tokenizer.encode(f" {word}")[0]]  # (C)
    print(f"{word:<5}", "  ".join(f"{number:5.2f}" for number in row[:5].tolist()), " ...")

# %% [markdown] slide="say"
# Nobody can read these numbers. But a vector is also a point in space, and points can be drawn. We take 126 words of six kinds, with their vectors before and after training. The next two cells prepare the picture. You need not read them yet: section 2 explains such tensors.

# %% slide="skip"
kinds = {"girls": sentences.GIRLS.split(), "boys": sentences.BOYS.split()}
kinds |= {f"{kind}s": sentences.CLASSES[kind] for kind in ("colour", "thing", "place", "trait")}
ids_of = {kind: torch.tensor([tokenizer.encode(f" {word}")[0] for word in names]) for kind, names in kinds.items()}
word_ids = torch.cat(list(ids_of.values()))  # (N)
labels = torch.cat([torch.full((len(found),), kind) for kind, found in enumerate(ids_of.values())])  # (N)
_ = torch.manual_seed(2)
untrained = TransformerLM(shipped.model.config).embed.weight.detach()  # (V, C)


# %% slide="skip"
def in_plane(vectors: torch.Tensor) -> tuple[torch.Tensor, float]:
    """vectors (N, C). Their coordinates (N, 2) along the two widest directions, and their part of the variance."""
    cloud = nn.functional.normalize(vectors, dim=-1)
    cloud = cloud - cloud.mean(0)
    _, spreads, directions = torch.linalg.svd(cloud, full_matrices=False)  # directions (C, C): its rows, widest first
    plane = cloud @ directions[:2].T
    plane = plane * plane[labels == 0].mean(0).sign()  # an axis may point either way: girls on the positive side
    return plane, (spreads[:2].square().sum() / spreads.square().sum()).item()


planes = {"before training": in_plane(untrained[word_ids]), "after training": in_plane(trained[word_ids])}

# %% tags=["signature", "source-hidden"] slide="subslide"
hues, marks = [*figures.SERIES[:4], figures.AXIS_COLORS["S"].light, figures.INK], "osD^vX"
clouds = {"places": (-0.11, 0.42), "things": (0.08, -0.1), "names": (0.24, 0.21), "colours and traits": (-0.13, -0.46)}
fig, both_axes = plt.subplots(1, 2, figsize=(11.4, 6), layout="constrained", sharex=True, sharey=True)
for ax, (title, (points, _)) in zip(both_axes, planes.items(), strict=True):
    for kind, name in enumerate(kinds):
        across, up = points[labels == kind].T.tolist()
        ax.scatter(across, up, s=95, color=hues[kind], marker=marks[kind], label=name, edgecolors="white")
    ax.set_title(title, size=22)
    ax.set_xlabel("first direction", size=18)
    ax.set(xlim=(-0.5, 0.5), ylim=(-0.5, 0.5), xticks=[], yticks=[])
    ax.grid(visible=False)
for name, (across, up) in clouds.items():
    both_axes[1].text(across, up, name, size=20, weight="bold")
both_axes[0].set_ylabel("second direction", size=18)
handles = both_axes[0].get_legend_handles_labels()
fig.legend(*handles, loc="outside lower center", ncols=6, frameon=False, fontsize=18, handletextpad=0.1, columnspacing=1.1)  # fmt: skip
centres = {name: [points[labels == kind].mean(0).tolist() for kind in range(6)] for name, (points, _) in planes.items()}
columns = {f"{name}, {axis}": [c[i] for c in found] for name, found in centres.items() for i, axis in enumerate(("first", "second"))}  # fmt: skip
figures.display(
    fig,
    alt="Two scatter plots of the same 126 words, coloured by kind. Before training the colours are mixed. After training there are four separate clouds: places, things, names, and colours together with traits.",
    caption="Each point is a word, seen along the two directions in which the cloud is widest. Before training the kinds are mixed. After training places, things and names have moved apart, and colours and traits lie together below.",
    table={"kind, mean of": list(kinds), **columns},
    digits=1,
)  # fmt: skip

# %% [markdown] slide="say"
# We cannot draw 128 dimensions, but we can draw two. The **principal components** (Pearson 1901) of a cloud of points are the directions in which it varies most. The kinds do not affect these directions; they only set the colours and which way each axis points.

# %% slide="skip" evidence="two-directions"
held_by = {name: held for name, (_, held) in planes.items()}
print("variance along the two directions:", ", ".join(f"{held:.0%} {name}" for name, held in held_by.items()))
assert 0.08 < held_by["after training"] < 0.12 and held_by["after training"] > 1.4 * held_by["before training"]

# %% [markdown] slide="say"
# The two directions contain only 10 % of the variance, so the picture hides much: girls and boys overlap in it, and so do colours and traits. [[two-directions]]

# %% [markdown] slide="subslide"
# A picture can mislead, so we count. For each word we look for the word whose vector has the most similar direction, in all 128 dimensions. How often are both of the same kind?


# %%
def nearest_is_same(table: torch.Tensor, kind_of: torch.Tensor) -> float:
    directions = nn.functional.normalize(table[word_ids], dim=-1)  # (N, C)
    cosines = directions @ directions.T  # (N, C) @ (C, N) -> (N, N)
    nearest = cosines.fill_diagonal_(-1).argmax(-1)  # (N): not the word itself
    return (kind_of[nearest] == kind_of).double().mean().item()


# %% tags=["source-hidden"] evidence="word-map"
generator = torch.Generator().manual_seed(2)
shuffled = [nearest_is_same(trained, labels[torch.randperm(126, generator=generator)]) for _ in range(20)]
before, after, by_chance = nearest_is_same(untrained, labels), nearest_is_same(trained, labels), sum(shuffled) / 20
print(f"before training:                      {before:.0%}")
print(f"after training:                       {after:.0%}")
print(f"after training, with shuffled kinds:  {by_chance:.0%}, mean of 20 shuffles")
assert after > 0.6 > 0.25 > max(before, by_chance)

# %% [markdown]
# The groups are real. After training, the nearest word is usually of the same kind. Before training it is not, and with shuffled kinds it is not either. [[word-map]] Yet nobody gave the model a list of colours. It only learned to predict the next word.
#
# This lesson explains what a layer does with a vector (section 3), how a layer learns (section 4), and where the first vectors come from (section 5).

# %% [markdown] tags=["note"]
# **Say.** Most of the room knows some of this, so go fast. Two things must stay: shapes are compared from the right, and a wrong shape that happens to fit raises no error.
#
# **Draw.** Two shapes above each other, aligned at the right: (2, 5, 4) and (4). Write a 1 where an axis is missing. Then the square of the last prediction with the three means below its columns.
#
# **Ask.** Ask for the broadcasting rule before you show it; *from the right* is what people forget. At the last prediction let everybody say what they expect.
#
# **Usual answers.**
# - *Each mean goes to its own row* (`each row minus its own mean`): From the right: the only axis of the means is compared with the last axis of the square, which counts columns.
# - *The shapes do not fit* (`an error`): From the right, 3 meets 3.
# - *We test with square matrices because they are simple* (from the room): Then no shape can be wrong. Choose sizes that all differ.
#
# **Cut if short.** All but the last prediction.

# %% [markdown] slide="slide"
# ## 2. Tensors, quickly
# Everything inside a model is a **tensor**: numbers in a grid, with any number of axes. Here are the first tokens of two stories, as ids. As in training, a line end comes before each story.

# %% slide="skip"
from tinylm_lib import storyworld
from tinylm_classroom import fixed, predict, trace

# %%
stories = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in (1, 2)]
starts = torch.tensor([tokenizer.encode("\n" + text)[:5] for text in stories])  # (B, T)
print([tokenizer.decode([token]) for token in starts[0].tolist()])
print(starts, starts.shape, starts.dtype)

# %% [markdown]
# The shape is $(B, T)$, where $B$ counts texts and $T$ positions. The **dtype** is the type of all the numbers in the tensor, here integers of 64 bits.

# %% [markdown] slide="subslide"
# **Indexing** picks out parts: a number removes its axis, a slice keeps it, and `None` adds an axis of size 1.


# %% slide="skip"
def parts(ids):
    ids[0]
    ids[:, -1]
    ids[:, -1:]
    ids[:, 1:]
    ids[:, None]


# %%
trace(parts, starts, sizes={"B": 2, "T": 5})

# %% [markdown] slide="subslide"
# ### Broadcasting
# Two tensors of different shapes can still be added or multiplied. PyTorch aligns their shapes **from the right**. Sizes that are equal fit, and where a size is 1 or missing, that tensor is repeated.

# %%
ones = torch.ones(2, 5, 4)  # (B, T, C)
per_feature = torch.tensor([1.0, 10.0, 100.0, 1000.0])  # (C)
per_position = torch.arange(5.0)[:, None]  # (T, 1)
print((ones * per_feature)[0, 0], "the same at all positions")
print((ones * per_position)[0, :, 0], "the same for all features")

# %% [markdown]
# Here one tensor was repeated to fit the other. Both can be repeated in one step:

# %%
three, five = torch.arange(3), torch.arange(5)  # (T), (S)
print(three[:, None] - five)  # (T, S)

# %% [markdown] slide="say"
# The shapes (3, 1) and (5) are aligned from the right: the 1 is repeated 5 times, and the missing axis 3 times. The result is each number of `three` minus each number of `five`, without a loop.

# %% [markdown] slide="subslide"
# Now the trap. From each row we want to subtract the mean of that row.

# %%
square = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]])
means = square.mean(-1)
print(means)

# %% tags=["source-hidden"]
right = torch.equal(square - means, square - square.mean(-1, keepdim=True))
predict(
    "`square` is (3, 3), `means` is (3). What does `square - means` give?",
    key=lambda: "each row minus its own mean" if right else "something else, without an error",
    choices={
        "an error": "The shapes are (3, 3) and (3). From the right: 3 meets 3, which is allowed.",
        "each row minus its own mean": "From the right: the only axis of `means` is aligned with the last axis of `square`, which counts columns.",
        "something else, without an error": "",
    },
    because="Each mean was subtracted from a column instead of its row.",
)

# %% evidence="kept-axis"
kept_axis = square - square.mean(-1, keepdim=True)  # (3, 3) - (3, 1)
print(square - means)
print(kept_axis)
torch.testing.assert_close(kept_axis.mean(-1), torch.zeros(3))
assert (square - means).mean(-1).abs().max() > 1

# %% [markdown] slide="subslide"
# The second result is right: `keepdim=True` leaves the axis with size 1, so the shape is $(3, 1)$ and each mean meets its own row. With 4 columns the first line would have raised an error, so test with sizes that all differ. [[sizes-differ]]

# %% evidence="sizes-differ"
wide = torch.randn(3, 4)
try:
    wide - wide.mean(-1)
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("no error: the sizes do not differ")

# %% [markdown]
# Different sizes reveal a forgotten `keepdim`, but not a wrong `dim`: `wide.mean(0)` is the mean of each column, and no error is raised. So check the values, too. [[wrong-dim]]

# %% evidence="wrong-dim"
wrong_dim = wide - wide.mean(0)  # (3, 4) - (4): no error
print("every row has the mean 0:", torch.allclose(wrong_dim.mean(-1), torch.zeros(3), atol=1e-5))
assert wrong_dim.mean(-1).abs().max() > 0.01

# %% [markdown] tags=["note"]
# **Say.** Each new feature is the answer to a question about the old features, and a question is a list of weights. Learning will find the weights in section 4; here we choose them by hand.
#
# **Draw.** The weight as a list of questions, row by row. Then point at a column: what one old feature contributes to all the answers. Both readings come back in section 8.
#
# **Ask.** Before the picture: "Which weights would you give to the question *can it be given?*" Afterwards: "Who would have written `x @ weight`?"
#
# **Usual answers.**
# - *4 features go in, so 4 come out* (`(2, 5, 4)`): How many questions are there?
# - *`x @ weight`* (`not transposed`): The rows of the weight are the questions, but `@` takes columns.
# - *`weight @ x`* (`weight first`): Right for a single vector. With leading dimensions x has to be on the left.
# - *Words are mixed, because it is a matrix product* (from the room): Change one word and look which answers change.
#
# **Cut if short.** The library's version; the exercise has to stay.

# %% [markdown] slide="slide"
# ## 3. A linear map asks questions
# Let four numbers describe a word, its **features**. How can a layer make three new features out of them? Each new feature is the answer to a *question*, and a question is a list of **weights**, one for each old feature.

# %%
features = ["person", "thing", "flies", "colour"]
words = {"kite": [0.0, 1, 1, 0], "lamp": [0.0, 1, 0, 0], "Mia": [1.0, 0, 0, 0]}
words |= {"pilot": [1.0, 0, 1, 0], "red kite": [0.0, 1, 1, 1]}
questions = {"for a windy day?": [0.0, 1, 2, 0], "can it sing?": [1.0, 0, 0, 0], "can it be given?": [-1.0, 1, 0, 0]}

# %% [markdown]
# To answer, multiply each weight by its feature and add up: a **dot product**.

# %% rows=["S0-7"]
answer = 0.0
for w, feature in zip(questions["for a windy day?"], words["kite"], strict=True):
    answer += w * feature
print("kite, for a windy day?", answer)

# %% [markdown] slide="subslide"
# The answer is high if the word has what the question looks for. A negative weight counts against it: a person cannot be given. We ask each word all questions: we take the dot product of each row of `x`, which is a word, with each row of the weight, which is a question.

# %% slide="skip"
x = torch.tensor(list(words.values()))  # (words, in)
question_weights = torch.tensor(list(questions.values()))  # (out, in)
answers = torch.stack([torch.stack([word @ question for question in question_weights]) for word in x])  # (words, out)


# %% slide="skip"
def draw_grid(ax, numbers: torch.Tensor, row_names: list, column_names: list, digits: int = 0, size: int = 20) -> None:
    """Draws numbers (rows, columns) as shaded cells: blue is positive, orange negative."""
    ax.imshow(numbers, cmap=figures.SIGNED, vmin=-3, vmax=3, aspect="auto")
    for i, row in enumerate(numbers.tolist()):
        for j, number in enumerate(row):
            color = figures.ink_on(figures.SIGNED((number + 3) / 6))
            ax.text(j, i, fixed(number, digits), ha="center", va="center_baseline", size=size, color=color)
    ax.set_xticks(range(len(column_names)), column_names, rotation=25, ha="right", rotation_mode="anchor", size=18)
    ax.set_yticks(range(len(row_names)), row_names, size=18, va="center_baseline")
    figures.unframed(ax)
    ax.grid(visible=False)


def frame(ax, left: int, top: int, width: int, height: int) -> None:
    """Draws a frame around some cells of a grid."""
    ax.add_patch(plt.Rectangle((left - 0.5, top - 0.5), width, height, fill=False, ec=figures.SERIES[1], lw=5, zorder=3, clip_on=False))  # fmt: skip


# %% tags=["source-hidden"]
asked = ["windy?", "sing?", "give?"]
grids = {"x (5, 4)": (x, list(words), features), "weight (3, 4)": (question_weights, asked, features)}
grids["answers (5, 3)"] = (answers, list(words), asked)
fig, three_axes = plt.subplots(1, 3, figsize=(12.4, 4.8), layout="constrained", width_ratios=(4, 4, 3))
for ax, (title, (numbers, row_names, column_names)) in zip(three_axes, grids.items(), strict=True):
    draw_grid(ax, numbers, row_names, column_names)
    ax.set_title(title, size=21)
for ax, n_columns in zip(three_axes, (4, 4, 1), strict=True):
    frame(ax, 0, 0, n_columns, 1)
fig.supxlabel("row of x  ·  row of weight  =  answer:   0·0 + 1·1 + 1·2 + 0·0 = 3", size=20)
three_axes[0].set_ylabel("word", size=18)
figures.display(
    fig,
    alt="Three grids of numbers: five words with four features, three questions with four weights, and the five words with three answers. The row of the kite, the row of the windy day and their answer, 3, are framed.",
    caption="A linear map as three grids. Take a row of the first and a row of the second, multiply them number by number and add up: that is one number of the third. The frames show it for the kite and the windy day.",
    table={"word": list(words), **{name: answers[:, i].tolist() for i, name in enumerate(questions)}},
)

# %% [markdown] slide="subslide"
# This is a **linear map**. Its weight has the shape $(out, in)$: a **row for each output**, which is a question, and a column for each input. `Linear` is such a layer. *Linear* means: twice the input gives twice the output, and the sum of two inputs gives the sum of their outputs.

# %% evidence="rows-of-weight"
from tinylm_lib.layers import Linear

kite, lamp = torch.tensor(words["kite"]), torch.tensor(words["lamp"])
ask = Linear(4, 3)
torch.testing.assert_close(ask(kite), torch.stack([row @ kite for row in ask.weight]))
torch.testing.assert_close(ask(2 * kite + lamp), 2 * ask(kite) + ask(lamp))
print("an input of 0 gives", ask(torch.zeros(4)).tolist())

# %% tags=["source-hidden"] slide="subslide"
predict(
    "Now x contains 2 texts of 5 words, each with 4 features, and the weight is (3, 4). What is the shape of the result?",
    key=lambda: ask(torch.zeros(2, 5, 4)).shape,
    shape="(B, T, out)",
    feedback={(2, 5, 4): "4 features go in for each word. How many questions are there?", (3, 5, 2): "What is in front of the features stays as it is."},
    because="Each word is asked the same 3 questions, by itself.",
)  # fmt: skip

# %% [markdown] slide="subslide"
# *By itself*: if we change one word, do the answers of another change?

# %% evidence="each-by-itself"
batch = torch.ones(2, 5, 4)  # (B, T, in)
changed_batch = batch.clone()
changed_batch[1, 2] = 7.0
differs = (ask(batch) != ask(changed_batch)).any(-1)  # (B, T)
print("answers changed at:", differs.nonzero().tolist())
assert differs.nonzero().tolist() == [[1, 2]]

# %% [markdown]
# They do not: a linear map computes the answers of each word from that word alone. [[each-by-itself]] A layer that looks at other words, too, is attention (lesson 05).

# %% [markdown] slide="subslide"
# ### Your turn
# All these dot products are one **matrix product**. `a @ b` takes each row of `a` with each *column* of `b`:

# %% rows=["S1-6"]
a, b = torch.randn(1, 3), torch.randn(3, 6)
product = a @ b  # (1, 3) @ (3, 6) -> (1, 6)
dots = [a[0] @ b[:, j] for j in range(6)]
torch.testing.assert_close(product[0], torch.stack(dots))
print(f"{product.numel()} outputs, each a dot product of {a.shape[1]} numbers")

# %% [markdown]
# The **last** axis of the left side and the **last but one** axis of the right side must be equally long, and both disappear. Axes further to the left stay. The **transpose** `b.T` exchanges rows and columns.

# %% slide="skip"
from tinylm_classroom import check, hint, keep


# %% tags=["exercise"] name="linear" minutes=5 difficulty=1
def linear(x, weight):
    """x (..., in), weight (out, in). Returns (..., out): the dot products of x with each row of weight.

    x has any leading dimensions, or none. Use operations on tensors, without a loop.
    The result has the dtype of x and weight, and gradients (section 4) flow back to both.
    """
    # SOLUTION
    return x @ weight.T
    # END


# %% tags=["check"]
if check("linear", linear).passed:
    keep("linear", linear)

# %%
hint("linear")

# %% [markdown] tags=["solution"]
# One line. `@` sums over the last axis of x and the last but one of its right side, so the rows of the weight must become columns: `weight.T` is $(in, out)$. Common mistakes: `x @ weight`, which raises no error if the weight is square; `weight @ x`, which is right for a single vector only; and `weight.reshape(in, out)`, which has the right shape and the wrong numbers (section 8). `torch.einsum("...i,oi->...o", x, weight)` says the same in letters.

# %% [markdown] slide="subslide"
# ### The library's version
# `Linear` keeps its weight and calls PyTorch's `F.linear`, which computes the same product. A layer can also add a learned number to each output, the **bias**. Ours has none unless you ask for it.

# %% rows=["S0-5", "S0-8"] slide="skip"
from tinylm_classroom import find_exercise, show

layer, seven_vectors = Linear(64, 128), torch.randn(7, 64)
assert layer.weight.shape == (128, 64) and layer.bias is None
assert layer(seven_vectors).shape == (7, 128)
torch.testing.assert_close(layer(seven_vectors), find_exercise("linear").reference(seven_vectors, layer.weight))
assert Linear(64, 128, dtype=torch.bfloat16).weight.dtype == torch.bfloat16

# %% slide="fragment"
show(Linear)

# %% slide="subslide"
trace(layer, torch.randn(2, 5, 64), sizes={"B": 2, "T": 5})

# %% [markdown] tags=["note"]
# **Say.** Nobody has to invent the questions. Give the right answers for a few words, and the gradient finds the weights. The chain rule is all the mathematics that a layer needs to learn, and `backward()` does nothing else.
#
# **Draw.** Three boxes in a row: guess, error, loss. Write the values above the arrows. Then go back from the right and write below each arrow how much the loss changes if the value at its left grows by a little; multiply on the way.
#
# **Ask.** "Which way would you change the first weight, and how do you know?" Before the second prediction: "Five words have answers. Now I take the red kite away. What can no longer be learned?"
#
# **Usual answers.**
# - *By 6* (`by 6`): That is the change per 1 of the weight. We change it by a hundredth of that.
# - *By 0.01* (`by 0.01`): The gradient of that weight is not 1.
# - *Four words are too few for a low loss* (`stays above 0, other questions`): Fewer answers are easier to fit. What is harder is to find the questions that were meant.
# - *It finds the same questions, because the loss is 0* (`goes to 0, the same questions`): Which of the four words has a colour?
# - *The gradient points downhill* (from the room): It points uphill, so we subtract it.
#
# **Cut if short.** The control; show its picture.

# %% [markdown] slide="slide"
# ## 4. A layer learns its questions
# We chose the weights by hand. How can a layer find them? It needs the right answers for a few words, and a loss. In this section the **loss** is the square of the error. The **gradient** says for each weight how fast the loss grows if this weight grows.

# %%
inputs, wanted = torch.tensor([3.0, -1.0]), 4.0
weights = torch.tensor([2.0, 1.0], requires_grad=True)
guess = weights @ inputs
loss = (guess - wanted) ** 2
loss.backward()
print(f"guess {guess.item():.0f}, loss {loss.item():.0f}, gradient {weights.grad.tolist()}")

# %% tags=["source-hidden"] slide="subslide"
nudged = (torch.tensor([2.01, 1.0]) @ inputs - wanted) ** 2
predict(
    "The gradient is 6 for the first weight. We make that weight 0.01 larger. By how much does the loss grow?",
    key=lambda: f"by {(nudged - loss).item():.2f}",
    because="A small change times the gradient: 0.01 times 6. (The exact 0.0609 is a little more, because the slope itself grows on the way.)",
    choices={
        "by 0.01": "That would be right for a gradient of 1.",
        "by 0.06": "",
        "by 6": "So much for each 1 that the weight grows. Ours grows by a hundredth of that.",
    },
)

# %% slide="skip"
tried = [1 + n / 50 for n in range(66)]  # values of the first weight
losses_tried = [(3 * first - 1 - wanted) ** 2 for first in tried]
near = torch.tensor([1.84, 2.3])  # around the weight that we have, 2
tangent = loss.item() + weights.grad[0].item() * (near - 2)

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10, 4.9), layout="constrained")
ax.plot(tried, losses_tried, "-", lw=4)
ax.plot(near, tangent, "-", lw=4, color=figures.SERIES[1])
ax.plot([2], [1], "o", markersize=15, color=figures.INK, zorder=3)
figures.arrow(ax, (1.96, 1), (1.74, 1), letter="T", width=4)
ax.text(2.04, 0.85, "the weight is 2", size=20)
ax.text(2.23, 1.55, "slope 6:\nthe gradient", size=20, color=figures.SERIES[1])
ax.text(1.72, 1.12, "a step against\nthe gradient", size=20, color=figures.SERIES[1])
ax.text(1.32, 2, "the loss", size=20, color=figures.SERIES[0])
ax.set(title="The gradient is the slope of the loss", xlabel="first weight", ylabel="loss")
ax.set(xlim=(1.15, 2.5), ylim=(-0.1, 3.2))
figures.display(
    fig,
    alt="A parabola, the loss for each value of the first weight, with its lowest point at five thirds. At the weight 2 the loss is 1, and a straight line with the slope 6 touches the curve. An arrow to the left shows the step against the gradient.",
    caption="The loss for each value of the first weight. At 2 the slope is 6: to the right the loss grows, so learning takes a step to the left.",
    table={"first weight": tried[::10], "loss": losses_tried[::10]},
    digits=3,
)

# %% [markdown] slide="subslide"
# Where does the 6 come from? The loss is computed in steps, and each step has a simple slope. The **chain rule** says: multiply the slopes along the way. Applied from the loss back to the weights this is **backpropagation** ([Rumelhart et al. 1986](https://www.nature.com/articles/323533a0)).

# %% tags=["source-hidden"]
fig, ax = plt.subplots(figsize=(12, 3.7), layout="constrained")
chain = [("weight 2", "times 3, minus 1"), ("guess 5", "minus the wanted 4"), ("error 1", "squared"), ("loss 1", "")]
slopes = ["times 3\n(the input)", "times 1", "times 2\n(2 · error)"]
for i, (name, step) in enumerate(chain):
    figures.box(ax, 4 * i, 0, name, letter="C" if i == 0 else "")
    ax.texts[-1].set_size(21)
    if step:
        figures.arrow(ax, (4 * i + 1.05, 0.2), (4 * i + 2.95, 0.2), letter="C", width=2.5)
        figures.arrow(ax, (4 * i + 2.95, -0.2), (4 * i + 1.05, -0.2), letter="T", width=2.5)
        ax.text(4 * i + 2, 0.42, step, ha="center", va="bottom", size=17)
        ax.text(4 * i + 2, -0.42, slopes[i], ha="center", va="top", size=17, color=figures.SERIES[1])
ax.text(6, -1.45, "back from the loss: 2 · 1 · 3 = 6", ha="center", size=20, color=figures.SERIES[1])
ax.set(xlim=(-1.3, 13.3), ylim=(-1.65, 0.85), xlabel="step", ylabel="value")
ax.set_title("Forward the values, backward the slopes")
ax.axis("off")
figures.display(
    fig,
    alt="Four boxes in a row: weight 2, guess 5, error 1, loss 1. Arrows to the right carry the values; arrows back carry the slopes 2, 1 and 3, whose product is 6.",
    caption="The chain rule for the first weight. Each arrow back says by how much the value at its right changes for each 1 that the value at its left changes. Their product is the gradient.",
    table={"from": ["weight", "guess", "error"], "to": ["guess", "error", "loss"], "slope": [3, 1, 2]},
)

# %% evidence="chain-rule"
error = 2.0 * 3 + 1.0 * (-1) - 4
by_hand = [2 * error * 1 * 3, 2 * error * 1 * (-1)]  # slope of the square, of the difference, of the product
print("by hand", by_hand, "by backward()", weights.grad.tolist())
assert by_hand == weights.grad.tolist()

# %% [markdown]
# `requires_grad=True` makes PyTorch record each step, and `backward()` goes back through the record and multiplies the slopes. [[chain-rule]] Such a record can be written by hand: from, to, slope. The square is error times error, so the error is used twice. For each use the slope is the other factor, 1, and slopes that come back to one place **add**:

# %%
record = [("first weight", "guess", 3.0), ("second weight", "guess", -1.0)]
record += [("guess", "error", 1.0), ("error", "loss", 1.0), ("error", "loss", 1.0)]
slope_of = {"loss": 1.0}
for before, after, slope in reversed(record):
    slope_of[before] = slope_of.get(before, 0.0) + slope * slope_of[after]
print(slope_of)
assert [slope_of["first weight"], slope_of["second weight"]] == weights.grad.tolist()

# %% [markdown]
# To learn, we take a step *against* the gradient: from each weight we subtract its gradient times a number, the **learning rate** (`lr` below, and lesson 11).

# %% [markdown] slide="subslide"
# ### Nobody has to invent the questions
# Now we hide the three questions and keep only the five words and their answers. A new weight, drawn at random, takes 100 steps against its gradient.


# %%
def loss_on(weight: torch.Tensor, n_words: int) -> torch.Tensor:
    return (x[:n_words] @ weight.T - answers[:n_words]).square().mean()


def learn_questions(n_words: int, n_updates: int, lr: float = 1.0) -> torch.Tensor:
    """Returns the weight (out, in) after training on the first words."""
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(2)).requires_grad_()
    # ESSENTIAL
    for _ in range(n_updates):
        loss_on(weight, n_words).backward()
        with torch.no_grad():
            weight -= lr * weight.grad  # no_grad: the update itself is not recorded
        weight.grad = None  # otherwise the next gradient would be added to this one
    # END
    return weight.detach()


# %% slide="skip"
from tinylm_classroom import control

moments = (0, 3, 10, 100)
weights_at = {f"{n} updates": learn_questions(5, n) for n in moments}
weights_at["hidden"] = question_weights

# %% tags=["source-hidden"] slide="subslide"
fig, five_axes = plt.subplots(1, 5, figsize=(13, 4.4), layout="constrained", sharey=True)
for ax, (title, numbers) in zip(five_axes, weights_at.items(), strict=True):
    draw_grid(ax, numbers.T, features, asked, digits=1, size=17)
    ax.set_title(title, size=20)
five_axes[0].set_ylabel("weight of", size=18)
fig.supxlabel("question", size=18)
figures.display(
    fig,
    alt="Five grids of twelve weights. Before the first update they are random, after 10 they resemble the last grid, and after 100 they equal it. The last grid shows the hidden questions.",
    caption="From random numbers to questions: the layer has seen only five words and their answers, and after 100 updates its weights are the questions that we had hidden (at the right).",
    table={"question": asked, **{f"{title}, {name}": grid[:, i].tolist() for title, grid in weights_at.items() for i, name in enumerate(features)}},
    digits=2,
)  # fmt: skip

# %% evidence="questions-found"
found = learn_questions(5, 100)
torch.testing.assert_close(found, question_weights, atol=0.01, rtol=0)
print("largest difference from the hidden questions:", fixed((found - question_weights).abs().max(), 2))

# %% [markdown]
# The layer has found the questions that we had hidden, from answers alone. [[questions-found]] But do right answers always mean that the right questions were found? We leave out the last word, the red kite.

# %% slide="skip"
fewer = learn_questions(4, 100)
fewer_loss = loss_on(fewer, 4)
is_same = (fewer - question_weights).abs().max() < 0.1

# %% tags=["source-hidden"] slide="subslide"
predict(
    "We train with kite, lamp, Mia and pilot only. What happens to the loss on these four words, and which questions does the layer find?",
    key=lambda: "goes to 0, other questions" if fewer_loss < 1e-4 and not is_same else "something else",
    choices={
        "goes to 0, the same questions": "Which of these four words has a colour? Only such a word can correct the weight of that feature.",
        "goes to 0, other questions": "",
        "stays above 0, other questions": "Fewer answers are easier to get right, not harder.",
    },
    because="None of the four words has a colour, so the gradient of these weights is 0 and they stay as they were drawn.",
)

# %% evidence="fewer-words"
drawn_first = learn_questions(4, 0)
print("weights of colour as drawn:   ", [fixed(number, 2) for number in drawn_first[:, 3].tolist()])
print("weights of colour at the end: ", [fixed(number, 2) for number in fewer[:, 3].tolist()])
red_kite_loss = (x[4] @ fewer.T - answers[4]).square().mean()
print(f"loss on the four words {fewer_loss:.2f}, on the red kite {red_kite_loss:.2f}")
assert torch.equal(drawn_first[:, 3], fewer[:, 3]) and fewer_loss < 1e-4 and red_kite_loss > 0.5

# %% [markdown]
# A loss of 0 on the words that a layer has seen does not prove that it has found the questions. Nothing ever corrected the weights of colour, so the answers for the red kite are wrong. [[fewer-words]] This is the difference between fitting and **generalizing**, and the reason why lesson 11 tests a model on text that it has not seen.

# %% [markdown] slide="subslide"
# Try it: how many words does it take, and which learning rate is too high?


# %% slide="skip"
def relearn(n_words=5, lr=1.0):
    weight = learn_questions(n_words, 100, lr)
    print(f"loss on the {n_words} words seen {loss_on(weight, n_words):.2f}, on all five {loss_on(weight, 5):.2f}")
    print(f"{'':<18}" + "".join(f"{name:>9}" for name in features))
    for name, row in zip(questions, weight.tolist(), strict=True):
        print(f"{name:<18}" + "".join(f"{fixed(number, 1):>9}" for number in row))


# %%
control(relearn, n_words=(1, 5), lr=[1.0, 0.1, 2.0, 3.0])

# %% [markdown] tags=["note"]
# **Say.** A layer needs vectors, and an id is only a name. So each token has a row of its own in a table, and the id says which. A look-up is a linear map of a vector that is 1 in one position and 0 in all others.
#
# **Draw.** A table with five rows. Next to it a one-hot vector, with an arrow from its 1 to the row that it picks out.
#
# **Ask.** "Why not use the id itself as the input?" Then the prediction about -1: many programs mark padding with it.
#
# **Usual answers.**
# - *-1 raises an error* (`an error`): It should. Python counts negative indices from the end, and so does a tensor.
# - *-1 is the first row* (`the row of token 0`): Python counts negative indices from the end.
# - *Its gradient is 1* (`1`): The row is used twice, and gradients of both uses add up.
# - *The columns are the vectors* (`columns`): The first axis of the table is the vocabulary, so an id names a row.
# - *Rows that no text named are trained a little as well* (from the room): Their gradient is 0 here. Only weight decay or a shared output layer would change them.
#
# **Cut if short.** The exercise; say in a sentence what it asks for.

# %% [markdown] slide="slide"
# ## 5. Where vectors come from
# A linear map needs numbers, but an id is only a name: token 4 is not twice token 2. So each token of the vocabulary has a vector of its own, as a **row** of a table of shape $(V, C)$. The id says which row. This table is an **embedding**.

# %%
table = torch.arange(5.0)[:, None] + torch.tensor([0.1, 0.2, 0.3])  # (V, C)
print(table)
print("token 2:", table[2])

# %% [markdown]
# To look up a row is a linear map, too: the product of the table with a **one-hot** vector, which is 1 at the id and 0 everywhere else.

# %%
from torch.nn.functional import one_hot

hot = one_hot(torch.tensor(2), 5).float()  # (V)
print(hot, "@ table =", hot @ table)
assert torch.equal(hot @ table, table[2])

# %% [markdown] slide="say"
# Nobody multiplies all those zeros, because a look-up reads the same row without any arithmetic. As a `Linear` its weight would be `table.T`, $(C, V)$, with one column per token; the table is stored the other way round, so that the vector of token $i$ is **row** $i$.

# %% tags=["source-hidden"] slide="subslide"
predict(
    "A program marks positions without a word by the id -1. What is `table[-1]`?",
    key=lambda: {4: "the row of token 4", 0: "the row of token 0"}[(table == table[-1]).all(-1).nonzero().item()],
    choices={
        "an error": "It should be. But Python counts negative indices from the end, and so does a tensor.",
        "the row of token 0": "Python counts negative indices from the end.",
        "the row of token 4": "",
    },
    because="-1 is the last row, so a mark for an empty position becomes the last word of the vocabulary, and no error is raised.",
)

# %% [markdown]
# The model would train on the wrong word, and nobody would notice. So a good embedding raises an error for values that are not valid ids.

# %% [markdown] slide="say"
# ### Your turn
# `ids` has any shape $(...)$, and the result has the shape $(..., C)$. A single id, which is a tensor without axes, gives one row.


# %% tags=["exercise"] name="embedding" minutes=10 difficulty=2 plan=80
def embedding(ids, weight):
    """ids (...): integers. weight (V, C). Returns (..., C): row i of weight for each id i, in the dtype of weight.

    Raises an IndexError for an id below 0 or above V - 1.
    Gradients flow back to weight: a row that is looked up twice gets both.
    """
    # SOLUTION
    if ((ids < 0) | (ids >= len(weight))).any():
        raise IndexError(f"ids must be in 0..{len(weight) - 1}")
    return weight[ids]
    # END


# %% tags=["check"]
if check("embedding", embedding).passed:
    keep("embedding", embedding)

# %%
hint("embedding")

# %% [markdown] tags=["solution"]
# A tensor indexed with a tensor of ids gives a row for each id, in their shape. The range is checked first; both comparisons must be in parentheses, because `|` binds more tightly than `<`. `F.embedding(ids, weight)` alone is right, too, because on the CPU it refuses such ids itself. Common mistakes: `weight[:, ids]`, which takes columns; `one_hot(ids)` without V, which is as wide as the largest id that happens to occur; `assert`, which `python -O` leaves out; and `.tolist()` on the way, which the gradient cannot follow.

# %% [markdown] slide="subslide"
# ### The library's version
# `Embedding` calls PyTorch's `F.embedding`. It equals the look-up above and the product with one-hot vectors, and it raises an error for values that are not valid ids. [[looked-up]] [[ids-refused]]

# %% rows=["S0-9", "S0-10", "S0-12"] evidence="looked-up" slide="skip"
from tinylm_lib.layers import Embedding

embed, three_ids = Embedding(10_000, 512), torch.tensor([5, 23, 156])
vectors = embed(three_ids)  # (3) -> (3, 512)
assert torch.equal(vectors, find_exercise("embedding").reference(three_ids, embed.weight))
torch.testing.assert_close(vectors, one_hot(three_ids, 10_000).float() @ embed.weight)
assert embed(three_ids.view(1, 3)).shape == (1, 3, 512)
print("3 ids give", tuple(vectors.shape))

# %% slide="fragment"
show(Embedding)

# %% evidence="ids-refused" slide="skip"
for bad_id in (-1, 10_000):
    try:
        embed(torch.tensor([5, bad_id]))
    except IndexError as refusal:
        print("IndexError:", refusal)
    else:
        raise AssertionError(f"{bad_id} was looked up")

# %% tags=["source-hidden"] slide="subslide"
small = Embedding(5, 3)
small(torch.tensor([2, 0, 2])).sum().backward()
predict(
    "The ids 2, 0, 2 are looked up in a new table with 5 rows, and all the numbers are added up. What is the gradient of each number of row 2?",
    key=lambda: f"{small.weight.grad[2, 0]:.0f}",
    choices={
        "0": "Its numbers are part of the sum: if they grow, the sum grows.",
        "1": "That would be one use. It has two.",
        "2": "",
    },
    because="The row is used twice, and the gradients of both uses add up.",
)

# %%
print(small.weight.grad)

# %% [markdown]
# So the rows learn by the same rule as the questions, and each row learns from the positions where its word occurs. Rows that were not looked up get a gradient of 0 and stay as they are. (If the output layer uses the same table, all its rows get a gradient.)

# %% [markdown] tags=["note"]
# **Say.** We return to the map of words. A picture shows groups, but this does not prove that the model uses them. So we change the rows and look at what the model does.
#
# **Draw.** Two clouds, girls and boys, with an arrow from the mean of the one to the mean of the other. Move one point of the first cloud along the arrow.
#
# **Ask.** Before the count: "Is a mean cosine of 0.10 to 0.23 of any use?" Before the last picture: "Mia's row moves along the arrow. What does the model write, and what would convince you that any other arrow would not do the same?"
#
# **Usual answers.**
# - *A cosine near 0 is useless* (`about 63`, `about 21`): That is the cosine of two single words. A mean of many words is more precise.
# - *Why compute the mean without the word itself?* (from the room): Otherwise each word helps to find itself.
# - *The row of Mia becomes the row of a boy* (from the room): Its nearest row is still her own. Only a small part of it has moved.
#
# **Cut if short.** The count of nearest means; keep the arrow from girls to boys.

# %% [markdown] slide="slide" plan=80
# ## 6. What have the rows learned?
# It is often said that a vector is like a *personality profile*, and that similar words get similar profiles. How similar are they? The **cosine** of two vectors compares their directions: divide each vector by its length, then take the dot product. It is 1 for the same direction and 0 for directions at a right angle.


# %%
def mean_cosine(rows: torch.Tensor, ids: torch.Tensor, other_ids: torch.Tensor) -> float:
    directions = nn.functional.normalize(rows, dim=-1)  # (V, C)
    cosines = directions[ids] @ directions[other_ids].T  # (N, C) @ (C, M) -> (N, M)
    return cosines[ids[:, None] != other_ids].mean().item()


# %% tags=["source-hidden"] rows=["S0-11"] evidence="same-kind-cosine"
own, others, at_start = [], [], []
for members in ids_of.values():
    rest = torch.cat([more for more in ids_of.values() if more is not members])
    own.append(mean_cosine(trained, members, members))
    others.append(mean_cosine(trained, members, rest))
    at_start.append(mean_cosine(untrained, members, members))
for name, means_of in {"same kind": own, "another kind": others, "same kind, untrained": at_start}.items():
    print(f"{name:<21} mean cosine {fixed(min(means_of), 2):>5} to {fixed(max(means_of), 2)}")
assert max(own) < 0.3 and min(own) > 0.05 > max(map(abs, others + at_start))

# %% [markdown] slide="say"
# Two words of one kind have only a little in common, but more than before training and more than words of different kinds. Another kind has more in common: the words of the weather. [[another-kind]]

# %% evidence="another-kind" slide="skip"
weather = torch.tensor([tokenizer.encode(f" {word}")[0] for word in sentences.CLASSES["weather"]])  # (N)
print(f"a seventh kind, weather: {fixed(mean_cosine(trained, weather, weather), 2)}")
assert mean_cosine(trained, weather, weather) > 0.4

# %% [markdown] slide="subslide"
# Is so little of any use? We guess the kind of a word from its row alone: for each kind we take the mean direction of its words, *without this word*, and choose the kind whose mean is nearest.


# %%
def nearest_kind(vectors: torch.Tensor, kind_of: torch.Tensor) -> torch.Tensor:
    """vectors (N, C), kind_of (N). Returns (N): the kind whose mean, without the word, is nearest."""
    directions, nearest = nn.functional.normalize(vectors, dim=-1), []
    for i, direction in enumerate(directions):
        without = torch.arange(len(kind_of)) != i
        kind_means = torch.stack([directions[without & (kind_of == kind)].mean(0) for kind in range(len(kinds))])
        cosines = nn.functional.cosine_similarity(kind_means, direction, dim=-1)  # (K, C), (C) -> (K)
        nearest.append(cosines.argmax())
    return torch.stack(nearest)


# %% slide="skip"
def n_right(vectors: torch.Tensor, kind_of: torch.Tensor) -> int:
    return (nearest_kind(vectors, kind_of) == kind_of).sum().item()


right_trained = n_right(trained[word_ids], labels)

# %% tags=["source-hidden"]
predict(
    f"There are {len(labels)} words of {len(kinds)} kinds. For how many of them is the nearest mean that of their own kind?",
    key=lambda: next(text for limit, text in ((35, "about 21"), (90, "about 63"), (126, "nearly all")) if right_trained <= limit),
    choices={
        "about 21": "That is a sixth of them, as many as a guess gets right. The common part is small, but it is not 0.",
        "about 63": "You think of the cosine of two single words. A mean of many words is more precise than one word.",
        "nearly all": "",
    },
    because="What is different in the words of a kind mostly cancels in their mean, and what they have in common remains.",
)  # fmt: skip

# %% slide="skip"
shuffled_right, untrained_right = [], []
for seed in range(5):
    _ = torch.manual_seed(seed)
    shuffled_right.append(n_right(trained[word_ids], labels[torch.randperm(len(labels))]))
    new_rows = TransformerLM(shipped.model.config).embed.weight.detach()[word_ids]  # (N, C)
    untrained_right.append(n_right(new_rows, labels))
in_two = n_right(planes["after training"][0], labels)

# %% tags=["source-hidden"] evidence="nearest-kind"
print(f"the shipped model's rows:       {right_trained} of {len(labels)} right")
print(f"the same rows, kinds shuffled:  {min(shuffled_right)} to {max(shuffled_right)}")
print(f"the rows of untrained models:   {min(untrained_right)} to {max(untrained_right)}")
print(f"the two numbers of the map:     {in_two}")
assert right_trained > 0.9 * len(labels) and max(shuffled_right + untrained_right) < 0.35 * len(labels)
assert in_two < right_trained - 10

# %% slide="skip" evidence="mistakes"
guessed = nearest_kind(trained[word_ids], labels)
all_names = [name for names in kinds.values() for name in names]
for i in (guessed != labels).nonzero()[:, 0].tolist():
    print(f"{all_names[i]} is nearest to the {list(kinds)[guessed[i]]}")
assert ((guessed < 2) == (labels < 2)).all()  # kinds 0 and 1 are girls and boys

# %% [markdown]
# Two words of a kind have only a small part of their direction in common, but this part is enough to find the kind of 120 of the 126 words. [[nearest-kind]] So the map of section 1 shows less than there is: where two kinds overlap in it, all 128 numbers still separate nearly all words. The six mistakes confuse girls and boys. [[mistakes]]

# %% [markdown] slide="say"
# We can read the kind from a row, but this does not prove that the model uses it. So we change the rows and look at what the model predicts, in two experiments.

# %% [markdown] slide="subslide"
# ### Does the model use it?
# To the row of a girl's name we add a part of the arrow from the mean of the other girls to the mean of the boys. Then the model reads *One snowy day, shy Mia wandered to Eastbridge.* Does it continue with *He* or with *She*? (`softmax` makes probabilities from its scores, which are called logits; lesson 03 explains it.)

# %% slide="skip"
from copy import deepcopy

he, she = (tokenizer.encode(word)[0] for word in (" He", " She"))
girls, boys = ids_of["girls"], ids_of["boys"]
prompts = {
    kind: torch.tensor(
        [tokenizer.encode(f"\nOne snowy day, shy {name} wandered to Eastbridge.") for name in kinds[kind]]
    )  # (N, T)
    for kind in ("girls", "boys")
}


# %%
@torch.no_grad()
def next_probabilities(arrows: torch.Tensor, kind: str) -> torch.Tensor:
    """arrows (N, C): what is added to the rows of these names. The probabilities of the next word, (N, V)."""
    changed = deepcopy(shipped.model).eval()
    changed.embed.weight[ids_of[kind]] += arrows
    return changed(prompts[kind])[:, -1].softmax(-1)  # (N, T) -> (N, V)


def probability_of_he(arrows: torch.Tensor, kind: str = "girls") -> float:
    """The mean over the names."""
    return next_probabilities(arrows, kind)[:, he].mean().item()


# %% slide="skip"
other_girls = (trained[girls].sum(0) - trained[girls]) / (len(girls) - 1)  # (N, C): without the name itself
to_boys = trained[boys].mean(0) - other_girls  # (N, C)
amounts = [0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0]
arrows_to = {"the boys": [to_boys], "another kind": [], "a random point": []}
for kind in ("colours", "things", "places", "traits"):
    arrows_to["another kind"].append(trained[ids_of[kind]].mean(0) - other_girls)  # (N, C)
for seed in range(4):
    arrows_to["a random point"].append(torch.randn(1, 128, generator=torch.Generator().manual_seed(seed)))  # (1, C)

# %% slide="skip" evidence="girls-to-boys"
mean_he, length = {}, to_boys.norm(dim=-1, keepdim=True)  # (N, 1)
for name, arrows in arrows_to.items():
    same_length = [length * arrow / arrow.norm(dim=-1, keepdim=True) for arrow in arrows]  # each (N, C)
    mean_he[name] = [max(probability_of_he(amount * arrow) for arrow in same_length) for amount in amounts]
    print(f"the whole arrow towards {name:<15} mean probability of He {mean_he[name][-1]:.2f}")
assert mean_he["the boys"][0] < 0.01 < 0.95 < mean_he["the boys"][-1]
assert max(mean_he["another kind"]) < 0.2 and max(mean_he["a random point"]) < 0.05

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10, 5.2), layout="constrained")
for (name, probabilities), style in zip(mean_he.items(), ("o-", "^:", "s--"), strict=True):
    ax.plot(amounts, probabilities, style, label=f"towards {name}", markersize=9)
ax.set(title="One direction decides between She and He", xlabel="part of the arrow that is added to a girl's name", ylabel="probability of He", ylim=(-0.04, 1.04))  # fmt: skip
ax.tick_params(labelsize=17)
ax.xaxis.label.set_size(18)
ax.yaxis.label.set_size(18)
ax.legend(frameon=False, fontsize=18, loc="center right")
figures.display(
    fig,
    alt="Line chart: the mean probability of He rises from 0 to 1 as a girl's name is moved towards the boys; moved equally far towards another kind or towards a random point it stays below 0.2.",
    caption="Mean over all 20 girls' names. Moved along the arrow from girls to boys, a name changes its pronoun. Moved equally far towards another kind or a random point (the highest of four), it does not.",
    table={"part": amounts, **mean_he},
    digits=2,
)

# %% [markdown]
# The model uses this direction: along it *She* becomes *He*, and other arrows of the same length do not do that. [[girls-to-boys]] Does the model also *need* it? We remove the direction from all names, so that girls and boys no longer differ in it:

# %% tags=["source-hidden"] evidence="direction-needed"
axis = nn.functional.normalize(trained[boys].mean(0) - trained[girls].mean(0), dim=0)  # (C)
level = trained[torch.cat([girls, boys])].mean(0) @ axis  # the mean of all names along it
without = {kind: (level - trained[ids_of[kind]] @ axis)[:, None] * axis for kind in ("girls", "boys")}  # each (N, C)
he_without = {kind: probability_of_he(arrows, kind) for kind, arrows in without.items()}
print("mean probability of He without the direction:", ", ".join(f"{kind} {p:.2f}" for kind, p in he_without.items()))
n_pronouns = 0
for kind, arrows in without.items():
    probs = next_probabilities(arrows, kind)  # (N, V)
    n_pronouns += int(((probs[:, he] > probs[:, she]) == (kind == "boys")).sum())
print(f"the right pronoun has the higher probability for {n_pronouns} of {len(girls) + len(boys)} names")
assert max(he_without.values()) - min(he_without.values()) < 0.3 and 12 < n_pronouns < 28

# %% [markdown]
# Without it the model guesses: about half of its pronouns are right, as with a coin. [[direction-needed]]

# %% [markdown] slide="subslide"
# This is the well-known arithmetic with word vectors ([Mikolov et al. 2013](https://aclanthology.org/N13-1090/)): *king* minus *man* plus *woman* is near *queen*.

# %% evidence="still-mia"
moved = trained[girls[0]] + to_boys[0]  # (C)
closest = nn.functional.cosine_similarity(trained, moved, dim=-1).argmax().item()  # (V, C), (C) -> (V)
first_name = tokenizer.decode([girls[0].item()])
print(f"{first_name.strip()} plus the arrow is nearest to{tokenizer.decode([closest])}")
assert closest == girls[0]

# %% [markdown] slide="say"
# One caution about such arithmetic: the row nearest to the moved name is still the row of that name, because most of it has not changed. [[still-mia]] Published results leave out the words of the question before they look for the nearest one.

# %% [markdown] slide="subslide"
# The second experiment changes all six kinds at once. From each of the 126 rows we remove what its kind has in common. To compare, we remove something else of the same length: what *shuffled* kinds have in common, or a part of what distinguishes each word from the mean of its kind (its *own* part).

# %% slide="skip"
from tinylm_lib import next_token_loss

held_out = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(100, 110)]


# %%
def loss_with(new_rows: torch.Tensor) -> float:
    """new_rows (N, C): of the words in word_ids. The mean loss on ten new stories, in nats."""
    changed, losses = deepcopy(shipped.model).eval(), []
    changed.embed.weight.data[word_ids] = new_rows
    for text in held_out:
        tokens = torch.tensor([tokenizer.encode("\n" + text)])  # (1, T)
        with torch.no_grad():
            losses.append(next_token_loss(changed(tokens[:, :-1]), tokens[:, 1:]).item())
    return sum(losses) / len(losses)


# %% slide="skip"
old_rows = trained[word_ids].clone()  # (N, C)


def common_part(kind_of: torch.Tensor) -> torch.Tensor:
    """kind_of (N). Returns (N, C): for each word the mean of its kind, less the mean of all words."""
    means_of_kinds = torch.stack([old_rows[kind_of == kind].mean(0) for kind in range(len(kinds))])  # (K, C)
    return means_of_kinds[kind_of] - old_rows.mean(0)  # (N, C)


# %% slide="skip"
common = common_part(labels)  # (N, C)
parts_of_rows = {"own part": old_rows - old_rows.mean(0) - common}
for seed in range(3):
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))  # (N)
    parts_of_rows[f"part of shuffled kinds {seed}"] = common_part(labels[order])
removed = {"nothing": torch.zeros(1), "common part": common}
for name, part in parts_of_rows.items():
    removed[name] = part * common.norm(dim=-1, keepdim=True) / part.norm(dim=-1, keepdim=True)  # (N, C)

# %% tags=["source-hidden"] evidence="kind-removed"
losses_without = {name: loss_with(old_rows - part) for name, part in removed.items()}
for name, nats in losses_without.items():
    print(f"{name + ' removed':<32} loss {nats:.1f}")
assert losses_without["common part"] > losses_without["nothing"] + 1
assert all(abs(nats - losses_without["nothing"]) < 0.1 for name, nats in losses_without.items() if "common" not in name)

# %% [markdown]
# Without the common part the loss rises from 0.7 to 3.3 nats, and the other changes of the same length hardly change it. So the model uses what the words of a kind have in common. [[kind-removed]]

# %% [markdown] slide="say"
# Nobody gave the model a list of kinds. A likely reason, which we do not test here: words of one kind occur in the same contexts, so the gradients move their rows in similar directions.

# %% [markdown] tags=["note"]
# **Say.** Two mistakes that raise no error. One is found by counting parameters, the other by testing with sizes that differ.
#
# **Draw.** A module as a box with two drawers, *parameters* and *buffers*, and a plain tensor that lies outside. The optimizer sees the first drawer only, and a saved file contains both.
#
# **Ask.** The prediction. Then: "Which line in your own program would have shown you this mistake?"
#
# **Usual answers.**
# - *All 40, because the module uses them all* (`40`): Only an `nn.Parameter` is entered in the list.
# - *The loss would not go down* (from the room): It does, because the head learns. That is why nobody notices.
# - *Use a buffer* (from the room): A buffer is saved, but it is not trained.
#
# **Cut if short.** The forgotten transpose.

# %% [markdown] slide="slide" plan=80
# ## 7. Break it
# **A table that is not a parameter.** A common mistake is to keep the table of vectors as a plain tensor. Everything runs.


# %%
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.randn(5, 4)  # should be nn.Parameter(torch.randn(5, 4))
        self.head = Linear(4, 5)

    def forward(self, ids):
        return self.head(self.table[ids])


# %% tags=["source-hidden"] slide="subslide"
predict(
    "A table of 5 rows with 4 numbers, and a linear map from 4 to 5. How many learnable numbers does `Plain().parameters()` contain?",
    key=lambda: sum(p.numel() for p in Plain().parameters()),
    number="numbers",
    within=0,
    feedback={40: "That is how it should be. But only an `nn.Parameter` is entered in that list."},
    because="The linear map has 20. The table is a plain tensor, and `parameters()` does not list plain tensors.",
)

# %% [markdown] slide="subslide"
# So the optimizer never gets the table. We train, save and load.

# %% evidence="plain-table" rows=["S1-3"]
plain, ids = Plain(), torch.tensor([0, 1, 2, 3])
before, first_loss = plain.table.clone(), plain(ids).square().mean().item()
optimizer = torch.optim.AdamW(plain.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    plain(ids).square().mean().backward()
    optimizer.step()
print("the loss goes down:", plain(ids).square().mean().item() < first_loss)
print("the table is unchanged:", torch.equal(plain.table, before))
assert torch.equal(plain.table, before)

# %% evidence="plain-lost"
reloaded = Plain()
print("saved:", list(plain.state_dict()))
print("loading says:", reloaded.load_state_dict(plain.state_dict()))
print("the outputs are the same:", torch.allclose(reloaded(ids), plain(ids)))
assert list(plain.state_dict()) == ["head.weight"] and not torch.allclose(reloaded(ids), plain(ids))

# %% [markdown]
# The loss goes down, because the rest of the model learns, so the mistake is hard to see. But the table is not trained [[plain-table]] and not saved, and loading reports no problem. [[plain-lost]] You notice the mistake if you print the number of parameters.

# %% evidence="buffer"
with_buffer = nn.Module()
with_buffer.register_buffer("table", torch.randn(5, 4))
print("a buffer: saved", list(with_buffer.state_dict()), "but parameters()", list(with_buffer.parameters()))
assert list(with_buffer.state_dict()) == ["table"] and not list(with_buffer.parameters())

# %% [markdown] slide="say"
# A *buffer* (`register_buffer`) is a tensor that is saved but not trained. It is the right choice for constants, but not for a table that should learn. [[buffer]]

# %% [markdown] slide="subslide"
# **A forgotten transpose.** A common mistake is `x @ weight`. If the sizes differ, `trace` shows what does not fit:

# %% slide="skip"
from tinylm_classroom import diagnose


def hasty(x, weight):
    return x @ weight


# %%
trace(hasty, torch.randn(7, 4), torch.randn(6, 4), sizes={})

# %% [markdown] slide="subslide"
# A Transformer has many square weights, and with these no error is raised. The check of the exercise names this mistake:

# %%
five_vectors, square_weight = torch.randn(5, 4), torch.randn(4, 4)
assert not torch.allclose(hasty(five_vectors, square_weight), five_vectors @ square_weight.T)
print(diagnose("linear", hasty).message)

# %% [markdown] tags=["note"]
# **Say.** Here is what you use when you write layers, load weights or initialize models: how a tensor lies in memory, why weights are stored as (out, in), and how large they are at the start.
#
# **Draw.** The line of 18 numbers in memory. Let someone walk through it with a finger, once for each stride.
#
# **Ask.** "Is one order of a weight faster than the other?" Let several students run the timing and collect the ratios on the board.
#
# **Usual answers.**
# - *A transpose copies the numbers* (`(6, 1)`): Nothing was copied. Only the two strides changed places.
# - *The standard deviation grows 256 times* (`256`): The products have both signs and mostly cancel.
# - *The cut is at two standard deviations* (`2`): The limits are absolute numbers, not counted in standard deviations.
# - *Taking the mean time is fairer* (from the room): Other programs can only make a run slower, so the fastest run is disturbed least.
#
# **Cut if short.** All of it; students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 8. For engineers
# ### A transpose copies nothing

# %%
grid = torch.arange(18).view(6, 3)
print("shape", tuple(grid.shape), "strides", grid.stride())
print("in memory:", grid.flatten().tolist())

# %% [markdown]
# Memory has no rows: it is one long line. The **strides** say how far to walk in that line: 3 numbers to the next row, 1 to the next column. If the numbers lie in memory in the order in which we read them, row after row, the tensor is **contiguous**.

# %% tags=["source-hidden"] slide="subslide"
predict(
    "`grid.T` is (3, 6). What are its strides?",
    key=lambda: str(grid.T.stride()),
    choices={
        "(3, 1)": "Then the next row of `grid.T` would be 3 numbers away. Look: from 0 to 1 is one step in memory.",
        "(1, 3)": "",
        "(6, 1)": "That would be right if the numbers had been written again, row by row. Nothing was copied.",
    },
    because="Only the two strides change places.",
)

# %% evidence="transpose-strides" rows=["S1-6"]
copy = grid.clone()
flipped = copy.T
flipped[0, 1] = 100
print("written into flipped[0, 1], read from copy[1, 0]:", copy[1, 0].item())
print("the same memory:", flipped.data_ptr() == copy.data_ptr(), "- contiguous:", flipped.is_contiguous())
assert flipped.shape == (3, 6) and flipped.stride() == (1, 3) and flipped.data_ptr() == copy.data_ptr()
assert torch.empty(4, 3, 6).stride() == (18, 6, 1) and copy[1, 0] == 100

# %% [markdown] slide="subslide"
# A transpose does not move any number. `reshape` is different: it keeps the order in which we read the numbers and cuts them into other rows. Both give the shape $(3, 6)$, but not the same matrix:

# %%
print(grid.T[0].tolist(), "first row of the transpose")
print(grid.reshape(3, 6)[0].tolist(), "first row of the reshape")

# %% [markdown] slide="subslide"
# ### A parameter that is not contiguous
# Some code stores $(out, in)$ and makes its transpose the parameter, so that it can write `x @ weight`.


# %% slide="skip"
class Transposed(nn.Module):
    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        stored = torch.randn(n_out, n_in) * 0.02
        self.weight = nn.Parameter(stored.T)  # its shape is (in, out), its order in memory (out, in)

    def forward(self, x):
        return x @ self.weight


# %% slide="skip"
import safetensors.torch

transposed = Transposed(3, 6)
transposed(torch.randn(4, 3)).sum().backward()
attempts = {
    "the gradient": lambda: transposed.weight.grad.norm(),
    "weight.T": lambda: transposed.weight.T,
    "safetensors.torch.save": lambda: safetensors.torch.save(transposed.state_dict()),
    "weight.view(-1)": lambda: transposed.weight.view(-1),
    "parameters_to_vector": lambda: nn.utils.parameters_to_vector(transposed.parameters()),
}

# %% slide="skip"
fails = {}
for name, attempt in attempts.items():
    try:
        attempt()
    except (RuntimeError, ValueError) as failure:
        fails[name] = str(failure)

# %% [markdown]
# Many published models are *safetensors* files. Such a file contains, for each tensor, its dtype, its shape and its numbers, row after row (Source: the format's description, README of safetensors). It has no field for strides.

# %% tags=["source-hidden"] slide="subslide"
predict(
    "The forward pass works. Which of these three fails?",
    key=lambda: next(name for name in fails if "save" in name),
    choices={
        "the gradient": "Gradients follow strides as everything else does.",
        "weight.T": "A transpose only exchanges two strides, and here that leads back to the order in memory.",
        "safetensors.torch.save": "",
    },
    because="The file has no strides, so it needs the numbers row after row, and in memory they are in another order. The function `save` does not copy them; it raises an error.",
)

# %% evidence="not-contiguous" rows=["S1-5"]
for name, message in fails.items():
    print(f"{name}: {message[:60]}...")
assert transposed.weight.grad is not None
assert list(fails) == ["safetensors.torch.save", "weight.view(-1)", "parameters_to_vector"]

# %% evidence="saved-by-copy" slide="skip"
import tempfile

with tempfile.TemporaryDirectory() as folder:
    safetensors.torch.save_model(transposed, f"{folder}/model.safetensors")
    loaded = safetensors.torch.load_file(f"{folder}/model.safetensors")["weight"]  # (in, out)
equal_numbers = torch.equal(loaded, transposed.weight)
print("save_model saves equal numbers:", equal_numbers, "- contiguous:", loaded.is_contiguous())
assert equal_numbers and loaded.is_contiguous()

# %% [markdown] slide="say"
# The layer computes and has a gradient, but `safetensors.torch.save` refuses its weight. `save_model` makes a contiguous copy first, without a message [[saved-by-copy]], and `torch.save` accepts the weight as it is, because it stores the strides, too.

# %% [markdown] slide="subslide"
# ### Is one order faster?
# A common reason for $(in, out)$ is speed. We measure both orders in turns, many times, on one core, and take the fastest run of each, because other programs can only make a run slower (Source: the documentation of Python's `timeit`).

# %% slide="skip"
from time import perf_counter

from tinylm_classroom import measured


def seconds(*ways, rounds: int = 31) -> list[float]:
    runs, n_threads = [[] for _ in ways], torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(rounds):
        for way, times in zip(ways, runs, strict=True):
            began = perf_counter()
            way()
            times.append(perf_counter() - began)
    torch.set_num_threads(n_threads)
    return [min(times) for times in runs]


# %% evidence="order-timed"
for n, n_in, n_out in ((1, 512, 2048), (1, 2048, 512), (64, 512, 2048), (64, 2048, 512)):
    batch_in, rows_out = torch.randn(n, n_in), torch.randn(n_out, n_in)
    rows_in = rows_out.T.contiguous()
    ways = (lambda a=batch_in, w=rows_out: a @ w.T, lambda a=batch_in, w=rows_in: a @ w)
    by_out, by_in = seconds(*ways)
    print(f"{n:>2} x {n_in} to {n_out}: (out, in)", measured(1e6 * by_out, "us", 1, 1e6))
    print("   (in, out) takes", measured(by_in / by_out, "times as long", 0.1, 10))

# %% [markdown]
# On our machine neither order took twice as long as the other at any of the four sizes. [[order-timed]] If your processor or a GPU disagrees, believe your measurement.

# %% [markdown] slide="say"
# A smaller difference is possible, and it may depend on the sizes and the machine. A likely reason why there is not more: both orders can be read straight through memory. With $(out, in)$, take a row and compute a dot product. With $(in, out)$, take a row, multiply it by one number of the input, and add it to the result.
#
# So why $(out, in)$? It is a convention: a row is the question of one output, `nn.Linear`, its initializations and the files of Llama expect it, and the last layer of a model, $(V, C)$, then has the same shape as the embedding.

# %% [markdown] slide="subslide"
# ### How large at the start?
# Before training the weights are random. An output is a sum over all inputs. Let inputs and weights be drawn independently around the mean 0 with a **standard deviation** of 1 (the typical distance from the mean; its square is the **variance**). Then a product of two also has the variance 1.

# %% slide="skip"
import math

_ = torch.manual_seed(2)
drawn = torch.randn(4000, 256)
sums = drawn @ torch.randn(1024, 256).T

# %% tags=["source-hidden"] slide="subslide"
predict(
    "Each output is a sum of 256 products of such numbers. What is its standard deviation?",
    key=lambda: sums.std().item(),
    number="times that of the inputs",
    within=0.5,
    feedback={256: "That would be right if all products had the same sign. They have both signs and mostly cancel.", 1: "Sums of random numbers grow, because there are many chances to go far."},
    because="In a sum of independent numbers the variances add up: 256 times 1. The standard deviation is the root of that.",
)  # fmt: skip

# %% [markdown] slide="subslide"
# So weights with $\sigma = 1/\sqrt{in}$ keep the size of the outputs. But the gradients go back from the outputs to the inputs, and there the sum is over the *outputs*: to keep their size takes $1/\sqrt{out}$. **Xavier** initialization is the compromise ([Glorot and Bengio 2010](https://proceedings.mlr.press/v9/glorot10a.html)):
#
# $$\sigma = \sqrt{\frac{2}{in + out}}$$

# %% evidence="compromise"
_ = torch.manual_seed(2)
scales = {"1 / sqrt(in)": 256**-0.5, "1 / sqrt(out)": 1024**-0.5, "Xavier": math.sqrt(2 / (256 + 1024))}
for name, sigma in scales.items():
    begun = sigma * torch.randn(1024, 256)  # (out, in)
    forward, backward = (drawn @ begun.T).std(), (torch.randn(4000, 1024) @ begun).std()
    print(f"{name:<14} sigma {sigma:.4f}: outputs {forward:.2f}, gradients {backward:.2f}")
assert 0.5 < forward < 0.75 and 1.1 < backward < 1.4

# %% [markdown] slide="say"
# With the compromise neither is 1 and neither is far off. [[compromise]] A model of many layers multiplies such factors (lesson 04). **Kaiming** initialization ([He et al. 2015](https://arxiv.org/abs/1502.01852)) looks at the inputs only and takes $\sqrt{2/in}$, because an activation such as ReLU sets about half of the outputs to 0 and so halves their mean square. `nn.init.kaiming_normal_` takes the second axis for the inputs, so with a weight of shape $(in, out)$ it uses the wrong number, and no error is raised [[kaiming-axis]]:

# %% slide="skip" evidence="kaiming-axis"
_ = torch.manual_seed(2)
print(f"by the formula, 512 inputs: {math.sqrt(2 / 512):.4f}")
for shape in ((2048, 512), (512, 2048)):
    std = nn.init.kaiming_normal_(torch.empty(shape)).std().item()
    print(f"512 inputs, 2048 outputs, weight {shape}: std {std:.3f}")
assert abs(std - math.sqrt(2 / 2048)) < 0.001

# %% [markdown] slide="subslide"
# ### Cutting off the tails
# Among millions of weights some are very large. So the library draws them again until they lie within three $\sigma$. What remains is a little narrower, by a known factor:

# %% rows=["S0-6"] evidence="tails-cut"
density = math.exp(-(3**2) / 2) / math.sqrt(2 * math.pi)
kept = math.erf(3 / math.sqrt(2))
narrower = math.sqrt(1 - 2 * 3 * density / kept)
print(f"kept {kept:.4f} of all, standard deviation {narrower:.5f} sigma")
_ = torch.manual_seed(2)
for wide_in, wide_out in ((2000, 2000), (500, 3000), (3000, 500)):
    in_sigmas = Linear(wide_in, wide_out).weight.detach() / math.sqrt(2 / (wide_in + wide_out))  # (out, in)
    std, furthest = in_sigmas.std().item(), in_sigmas.abs().max().item()
    print(f"{wide_in} to {wide_out}: measured {std:.3f} sigma, largest {furthest:.2f}")
    assert abs(std - narrower) < 0.005 and 2.9 < furthest < 3.0001

# %% slide="skip" evidence="embedding-start"
_ = torch.manual_seed(2)
new_table = Embedding(10_000, 512).weight
print(f"a new Embedding: standard deviation {new_table.std().item():.3f}, largest {new_table.abs().max().item():.2f}")
print(f"in a new model like the shipped one: {untrained.std().item():.3f}")
assert abs(new_table.std().item() - narrower) < 0.005 and new_table.abs().max() <= 3 and untrained.std() < 0.1

# %% [markdown] slide="say"
# A strict test of the standard deviation finds it 1.3 % too small. That is not a bug: it is the factor 0.98658. A new `Embedding` is drawn in the same way with $\sigma = 1$, and a whole model may draw its weights again, in the way that its configuration names. [[embedding-start]] What comes next is a trap.

# %% tags=["source-hidden"] slide="subslide"
_ = torch.manual_seed(2)
largest = nn.init.trunc_normal_(torch.empty(1000, 1000), std=0.02).abs().max().item() / 0.02
predict(
    "`nn.init.trunc_normal_(weight, std=0.02)` fills a million weights. How many standard deviations is the largest away from 0?",
    key=lambda: next(text for limit, text in ((2.1, "2"), (3.1, "3"), (6, "about 5"), (200, "100")) if largest < limit),
    choices={
        "2": "The defaults are a=-2 and b=2, but in which unit?",
        "3": "Nobody said 3. The defaults are a=-2 and b=2.",
        "about 5": "",
        "100": "That is where the cut is: at 2, and 2 is 100 times 0.02. No weight is that large.",
    },
    because="`a` and `b` are absolute numbers, not counted in standard deviations: the cut at 2 is never reached, and the largest of a million is where it is without a cut.",
)

# %% rows=["S1-3"] evidence="absolute-limits"
_ = torch.manual_seed(2)
uncut = nn.init.trunc_normal_(torch.empty(1000, 1000), std=0.02)
cut = nn.init.trunc_normal_(torch.empty(1000, 1000), std=0.02, a=-3 * 0.02, b=3 * 0.02)
for name, filled in {"defaults": uncut, "a, b given": cut}.items():
    beyond = (filled.abs() > 0.06).double().mean()
    print(f"{name:<10} largest {filled.abs().max() / 0.02:.1f} sigma, beyond 3: {beyond:.2%}")
assert uncut.abs().max() > 4 * 0.02 and cut.abs().max() < 3.001 * 0.02

# %% [markdown]
# So with the default limits and a small `std` the numbers are called truncated normal, but in effect they are plain normal. The library gives both limits.

# %% [markdown] tags=["note"]
# **Say.** Back to the map. Each word has a row of its own, a layer asks questions about it, and both are learned with the same gradient. The first four points are from sections 2 to 5, and the others from sections 6 to 8: say only those whose section you taught.
#
# **Draw.** An id, an arrow to a row of the table, an arrow through a layer to three answers. Below it an arrow back: the gradient.
#
# **Ask.** At the door: "A layer has a loss of 0 on what it has seen. What do you know about its questions?"
#
# **Usual answers.**
# - *They are right* (from the room): Only for features that occurred. Nothing corrected the others.
# - *Nothing at all* (from the room): For the words that it has seen the answers are right.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - Broadcasting aligns shapes from the right. Keep the axis of a sum or a mean. [[kept-axis]] With sizes that all differ, a mean over the last axis without `keepdim` raises an error [[sizes-differ]]; a wrong `dim` may raise none, so check the values, too. [[wrong-dim]]
# - A linear map computes a dot product with each row of its weight, of shape $(out, in)$. [[rows-of-weight]] It maps each word by itself. [[each-by-itself]]
# - The gradient is a product of slopes along the way back from the loss. [[chain-rule]] With it a layer finds its questions from answers alone [[questions-found]], but only if the words that it has seen determine them. [[fewer-words]]
# - An embedding looks up a row, which equals the product with a one-hot vector. [[looked-up]] On the CPU it raises an error for ids out of range. [[ids-refused]]
# - The rows of our six kinds of words have only a small part of their direction in common. [[same-kind-cosine]] It is enough to find the kind of more than nine in ten words [[nearest-kind]], and the model uses it: along one direction *She* becomes *He* [[girls-to-boys]], without this direction the model can hardly tell girls from boys [[direction-needed]], and without the common part the loss rises by more than 1 nat. [[kind-removed]]
# - A table that is a plain tensor is not trained [[plain-table]] and not saved. [[plain-lost]] A buffer is saved, but it is not a parameter. [[buffer]]
# - For engineers: a transpose only exchanges strides. [[transpose-strides]] `safetensors.torch.save` refuses a tensor that is not contiguous. [[not-contiguous]] In our timings on one core neither order of a weight took twice as long as the other. [[order-timed]] A new `Linear` draws its weights with $\sigma = \sqrt{2/(in+out)}$, cut off at three $\sigma$. [[tails-cut]] The limits of `trunc_normal_` are absolute numbers. [[absolute-limits]]
#
# Next, lesson 03: how the answers of a last layer become probabilities.

# %% [markdown]
# ## Sources
# - Initial scale: Glorot and Bengio 2010, [*Understanding the difficulty of training deep feedforward neural networks*](https://proceedings.mlr.press/v9/glorot10a.html), equation 12. He et al. 2015, [*Delving Deep into Rectifiers*](https://arxiv.org/abs/1502.01852), section 2.2.
# - Backpropagation: Rumelhart et al. 1986, [*Learning representations by back-propagating errors*](https://www.nature.com/articles/323533a0).
# - Vectors for words, learned with the model: Bengio et al. 2003, [*A Neural Probabilistic Language Model*](https://www.jmlr.org/papers/v3/bengio03a.html), section 2. Arithmetic with them: Mikolov et al. 2013, [*Linguistic Regularities in Continuous Space Word Representations*](https://aclanthology.org/N13-1090/).
# - Gradients and strides as used here: Paszke et al. 2019, [*PyTorch: An Imperative Style, High-Performance Deep Learning Library*](https://arxiv.org/abs/1912.01703), section 4.
# - Principal components: Pearson 1901, *On Lines and Planes of Closest Fit to Systems of Points in Space*.
# - The file format: [safetensors](https://github.com/huggingface/safetensors), section *Format* of its README.
