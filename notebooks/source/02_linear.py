# %% [markdown] deck="How does a layer make new features out of old ones?"
# # 02 Linear
# **How does a layer make new features out of old ones, and where do the first ones come from?**
#
# *Needs* lesson 01. *Builds* `Linear` and `Embedding` in `layers.py`. *Runs* in about 15 s on two cores.
# *Teaches* in about 45 minutes, plus 15 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a layer is a list of questions, each question is a row of weights, and the rows are learned. Sections 3 and 4 are its heart. Section 2 introduces tensors; if everybody knows PyTorch, keep its prediction only.
# Before the class: run all cells once. The last section uses the map of the first one again, so leave the map on the board.

# %% [markdown] tags=["note"]
# **Say.** A model cannot compute with words, so it gives each word a list of numbers. Let the class look at the map before you explain the axes. Keep the answers to *how could it find out?* for the end of section 5.
#
# **Usual answers.**
# - *What comes next in a text* (`the word that follows it most often`): Its row does not say what follows. It says what the word is like.
# - *The axes mean something, for instance person and thing* (from the room): They are only the two directions in which these points vary most.
# - *You would find groups in any cloud if you colour it* (from the room): That is the right doubt. The left half is coloured by the same kinds.
#
# **Cut if short.** The words to try; keep the map.
#
# **Tried.** The nearest of 126 words of six kinds is of the same kind for 72 %; with shuffled kinds for 13 to 25 % (ten shuffles), in ten untrained models for 10 to 19 %. Four kinds that are not in the map (weather, jobs, food, feelings; 58 words): 98 %, untrained 19 to 28 %. Small models trained by ourselves (64 numbers a word, 400 updates, three seeds; half and twice the rate): 91 to 98 % in the map. Measured by distance instead of direction only 44 %: the nearest to *red* would be *ducks*, so the lesson says direction. *kite* is a counterexample on purpose: its neighbours are of other kinds.

# %% [markdown]
# ## 1. A map of words
# A language model first replaces each word by a list of numbers, a **vector**. In our shipped model these are 128 numbers: the coordinates of a point. The map shows these points, all scaled to length 1, along the two directions in which they vary most, their first two **principal components**.

# %%
import torch

from tinylm_classroom import linear_figures, nearest_is_same, nearest_words, predict
from tinylm_classroom import shuffled, word_kinds
from tinylm_lib import TransformerLM
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
table = model.embed.weight.detach()  # (V, C): a row for each word
kinds = word_kinds(tokenizer)  # the ids of words of six kinds

# %% tags=["signature", "source-hidden"] deck="Training sorts the words, and nobody named a kind"
_ = torch.manual_seed(2)
untrained = TransformerLM(model.config).embed.weight.detach()  # (V, C)
linear_figures.word_map({"before training": untrained, "after training": table}, kinds)

# %% tags=["source-hidden"] deck="Which word is nearest to red?"
predict(
    "The picture shows only two directions. Among *all* words of the vocabulary and in all 128 dimensions: which one points most nearly in the same direction as *red*?",
    key=lambda: {"silver": "another colour"}.get(nearest_words(table, tokenizer, "red", 1)[0], ""),
    choices={
        "another colour": "",
        "a thing that can be red": "The vectors of things are elsewhere. What do *red* and *white* have in common that a kite does not have?",
        "the word that follows it most often": "The model has to know what follows. But is it written in the vector of *red*?",
    },
    because="*red* and other colours occur in the same places of a text, so the model has given them similar vectors.",
)

# %% deck="The nearest words of red are colours"
word = "red"  # try "had", "snowy" and "kite"
print(nearest_words(table, tokenizer, word))

# %% tags=["source-hidden"] evidence="word-map" tried="held-out" rows=["S0-11"]
# Checked: the nearest word is of the same kind, also for kinds that the map does not show.
SEEDS = (1, 2, 3)
for shown in (kinds, word_kinds(tokenizer, ("weather", "job", "food", "feeling"))):
    by_chance = [nearest_is_same(table, shuffled(shown, seed)) for seed in SEEDS]
    assert nearest_is_same(table, shown) > 0.65 > 0.45 > max(*by_chance, nearest_is_same(untrained, shown))

# %% [markdown]
# Two words are near if the **cosine** of the angle between their vectors is large: it is 1 for the same direction, 0 for a right angle. The groups are real: among the words of these kinds the nearest one is mostly of the same kind, also for weather, jobs, food and feelings, which are not in the map; before training it is not. [[word-map]] It is a tendency, and things have it least: *kite* is near words that are not things. And nobody gave the model a list of colours. It only learned to predict the next word.

# %% [markdown] tags=["note"]
# **Say.** Everything in a model is a grid of numbers. Two things must stay: shapes are compared from the right, and a wrong shape that happens to fit raises no error.
#
# **Usual answers.**
# - *Each mean goes to its own row* (`each row minus its own mean`): From the right, the only axis of the means meets the last axis of the square, which counts columns.
# - *The shapes do not fit* (`an error`): From the right, 3 meets 3.
# - *We test with square matrices because they are simple* (from the room): Then no shape can be wrong. Choose sizes that all differ.
#
# **Cut if short.** All but the prediction.
#
# **Tried.** Exact. With 4 columns instead of 3 the line without `keepdim` raises an error; a wrong `dim` does not, for any sizes.

# %% [markdown]
# ## 2. Tensors, quickly
# If you have never seen PyTorch: everything inside a model is a **tensor**, a grid of numbers with any number of axes. Here are the first tokens of two stories, as ids; a line end comes before each story, as in training.

# %%
from tinylm_classroom import trace

texts = ("One snowy day, shy Mia", "One warm evening, brave Omar")
starts = torch.tensor([tokenizer.encode("\n" + text) for text in texts])  # (B, T)
print(starts, starts.shape, starts.dtype)

# %% [markdown]
# The **shape** is $(B, T)$: $B$ texts, $T$ positions. The **dtype** is the type of all its numbers. To pick out parts, write what you want of each axis: a number removes the axis, a slice such as `1:` keeps it, and `None` adds an axis of size 1. `trace` runs a function and shows the shape after each line:


# %% deck="A number removes an axis, a slice keeps it"
# ESSENTIAL
def parts(ids):
    ids[0]
    ids[:, -1]
    ids[:, 1:]
    ids[:, None]
    # END


trace(parts, starts, sizes={"B": 2, "T": 7})

# %% [markdown]
# Tensors of different shapes can be added, too. PyTorch aligns their shapes **from the right** and repeats each tensor along the axes in which it has the size 1 or no axis at all. This is **broadcasting**:

# %%
n = 5  # try 2 and 1
three, others = torch.arange(3), torch.arange(n)  # (3), (n)
print(three[:, None] - others)  # (3, n): each number of one minus each of the other

# %% [markdown]
# Now the trap. From each row we want to subtract the mean of that row.

# %%
square = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]])
means = square.mean(-1)  # (3): over the last axis
print(means)

# %% tags=["source-hidden"] deck="Each row minus its mean: what comes out?"
predict(
    "`square` is (3, 3) and `means` is (3): 2, 20, 200. What does `square - means` give?",
    key=lambda: "something else, without an error" if (square - means)[0].sum() else "each row minus its own mean",
    choices={
        "an error": "From the right, 3 meets 3, which is allowed.",
        "each row minus its own mean": "From the right, the only axis of `means` meets the last axis of `square`, which counts columns.",
        "something else, without an error": "",
    },
    because="Each mean was subtracted from a column instead of its row.",
)

# %% deck="Keep the axis, and each mean meets its row"
print(square - means)
print(square - square.mean(-1, keepdim=True))  # (3, 3) - (3, 1)

# %% tags=["source-hidden"] evidence="kept-axis" tried="exact"
# Checked: keepdim is right; without it only sizes that differ raise an error, and a wrong dim never does.
torch.testing.assert_close((square - square.mean(-1, keepdim=True)).mean(-1), torch.zeros(3))
wide = torch.arange(12.0).view(3, 4)
assert (wide - wide.mean(0)).mean(-1).abs().max() > 1
try:
    wide = wide - wide.mean(-1)
except RuntimeError:
    wide = None
assert wide is None

# %% [markdown]
# `keepdim=True` leaves the averaged axis with size 1, so each mean meets its own row. With four columns the first line would have raised an error, so test with sizes that all differ, and look at the values, too. [[kept-axis]]

# %% [markdown] tags=["note"]
# **Say.** Each new feature is the answer to a question about the old features, and a question is a list of weights, a row. Here we choose the weights by hand. Let the class say an answer before you run it.
#
# **Usual answers.**
# - *4 features go in, so 4 come out* (from the room): How many questions are there?
# - *`x @ weight`* (`not transposed`): The rows of the weight are the questions, but `@` takes columns.
# - *`weight @ x`* (`weight first`): Right for a single vector. With axes in front, x has to be on the left.
# - *Words are mixed, because it is a matrix product* (from the room): Change one word, and look which answers change.
#
# **Cut if short.** How large new weights are.
#
# **Tried.** Exact. The standard deviation of an output is the root of the number of inputs for 4 to 4,096 inputs (three seeds, 1 % off at most with 20,000 outputs).

# %% [markdown] deck="A feature is the answer to a question, and a question is a row of weights"
# ## 3. A row of the weight is a question
# Let four numbers describe a word, its **features**. A layer makes three new ones. Each new feature is the answer to a *question*, and a question is a list of **weights**, one for each old feature.

# %%
features = ["person", "thing", "flies", "colour"]
words = {"kite": [0.0, 1, 1, 0], "lamp": [0.0, 1, 0, 0], "Mia": [1.0, 0, 0, 0]}
words |= {"pilot": [1.0, 0, 1, 0], "red kite": [0.0, 1, 1, 1]}
questions = {"fun in the wind?": [0.0, 1, 2, 0], "can it sing?": [1.0, 0, 0, 0]}
questions |= {"can it be given?": [-1.0, 1, 0, 0]}

# %% [markdown]
# To answer, multiply each weight by its feature and add up: a **dot product**. The answer is high if the word has what the question looks for, and a negative weight counts against it.

# %% rows=["S0-7"]
name = "kite"  # try "pilot", "lamp" and "Mia"
for question, weights in questions.items():
    answer = 0.0
    for w, feature in zip(weights, words[name], strict=True):
        answer += w * feature
    print(f"{name}, {question} {answer:.0f}")

# %% [markdown]
# We ask all words all questions at once: each row of `x` with each row of the weight.

# %%
from tinylm_classroom import check, hint, ids_of_words, keep, what_if
from tinylm_lib.layers import Embedding, Linear

x = torch.tensor(list(words.values()))  # (words, in)
question_weights = torch.tensor(list(questions.values()))  # (out, in)

# %% tags=["source-hidden"] deck="A row of x times a row of the weight is one answer"
linear_figures.three_grids(x, question_weights, list(words), features, list(questions))

# %% [markdown]
# This is a **linear map**: twice the input gives twice the output, and the sum of two inputs gives the sum of their outputs. [[rows-of-weight]] Its weight has the shape $(out, in)$: a **row for each output**, which is a question, and a column for each input. Each word is asked by itself: if one word changes, the answers of the others stay.

# %% tags=["source-hidden"] evidence="rows-of-weight" tried="exact" rows=["S0-5", "S0-8"]
# Checked: a dot product with each row, linear, each word by itself; no bias unless asked for.
layer, seven, other = Linear(64, 128), torch.randn(7, 64), torch.randn(7, 64)
assert layer.weight.shape == (128, 64) and layer.bias is None and layer(seven).shape == (7, 128)
torch.testing.assert_close(layer(seven)[0], torch.stack([row @ seven[0] for row in layer.weight]))
torch.testing.assert_close(layer(2 * seven + other), 2 * layer(seven) + layer(other))
torch.testing.assert_close(layer(torch.cat([seven[:3], other]))[:3], layer(seven)[:3])

# %% [markdown]
# ### Your turn
# All these dot products are one **matrix product**. `a @ b` takes each row of `a` with each *column* of `b`: the last axis of the left side and the last but one of the right side must be equally long, and both disappear. The **transpose** `b.T` exchanges rows and columns. It is not `reshape`, which keeps the order of the numbers and only cuts them elsewhere:

# %% deck="A transpose exchanges rows and columns, reshape does not" rows=["S1-6"]
a, b = torch.ones(1, 3), torch.arange(18.0).view(3, 6)
print("a @ b    ", (a @ b)[0].tolist(), "six dot products of 3 numbers")
print("transpose", b.T[0].tolist(), "reshape", b.reshape(6, 3)[0].tolist())


# %% tags=["exercise"] name="linear" minutes=5 difficulty=1 deck="Your turn: all questions to all words"
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
# One line. `@` sums over the last axis of x and the last but one of its right side, so the rows of the weight must become columns: `weight.T` is $(in, out)$. Common mistakes: `x @ weight`, which raises no error if the weight is square; `weight @ x`, which is right for a single vector only; and `weight.reshape(in, out)`, which has the right shape and the wrong numbers. `torch.einsum("...i,oi->...o", x, weight)` says the same in letters.

# %% [markdown]
# The library's `Linear` can also add a learned number to each output, the **bias**; it has none unless you ask for it. At the start the weights are random. How large should they be? An output is a sum of products, here each with variance 1, and in a sum of independent numbers the **variances** (the squares of the **standard deviations**) add up:

# %%
_ = torch.manual_seed(2)
n_in = 256  # try 16 and 4096
outputs = torch.randn(1000, n_in) @ torch.randn(n_in, 20)  # (1000, 20)
print(f"{n_in} inputs: standard deviation {outputs.std():.1f}, root {n_in**0.5:.1f}")

# %% tags=["source-hidden"] evidence="outputs-grow" tried="seeds"
# Checked: the size of an output is the root of the number of inputs.
SEEDS = (1, 2, 3)
for seed in SEEDS:
    _ = torch.manual_seed(seed)
    assert abs((torch.randn(1000, 400) @ torch.randn(400, 200)).std() / 20 - 1) < 0.05

# %% [markdown]
# So the output of 256 inputs is 16 times as large as one product, and the more inputs a new layer has, the smaller its weights begin. [[outputs-grow]] (*More*: [02 Weights](more/02_weights.ipynb).)

# %% [markdown] tags=["note"]
# **Say.** Nobody has to invent the questions. Give the right answers for a few words, and the gradient finds the weights. The chain rule is all the mathematics that a layer needs to learn.
#
# **Usual answers.**
# - *By 6* (`by 6`): That is the change per 1 of the weight. We change it by a hundredth of that.
# - *By 0.01* (`by 0.01`): The gradient of that weight is not 1.
# - *The pilot, because no other person flies* (`pilot`): Kite and lamp show what flying adds, and it adds the same for a person. That is what linear means.
# - *None, because the loss is 0 anyway* (from the room): 0 on what it has seen. Who asks about the red kite?
# - *The gradient points downhill* (from the room): It points uphill, so we subtract it.
#
# **Cut if short.** The chain by hand; keep its picture.
#
# **Tried.** Twenty starts. 100 updates with five words: largest difference from the hidden weights at most 0.004 at the rate 1, 0.000005 at 2, 1.6 at 0.1 (0.005 after 1,000), and it explodes at 3. Leave one word out, ten starts, 300 updates, rates 1 and 2: without kite, lamp, Mia or pilot at most 0.0004; without the red kite 0.35 to 1.8, with a loss below 0.000001 on the other four. At the rate 0.3 the four others are at 0.2 or less and still falling.

# %% [markdown]
# ## 4. A layer learns its questions
# We chose the weights by hand. To find them, a layer needs the right answers for a few words, and a loss: here the square of the error. The **gradient** says for each weight how fast the loss grows if this weight grows. `backward()` computes it:

# %% deck="backward() computes a gradient for each weight"
# ESSENTIAL
inputs, wanted = torch.tensor([3.0, -1.0]), 4.0
weights = torch.tensor([2.0, 1.0], requires_grad=True)
loss = (weights @ inputs - wanted) ** 2
loss.backward()
# END
print(f"loss {loss.item():.0f}, gradient {weights.grad.tolist()}")

# %% tags=["source-hidden"] deck="The gradient is 6. By how much does the loss grow?"
predict(
    "The gradient is 6 for the first weight. We make that weight 0.01 larger. By how much does the loss grow?",
    key=lambda: f"by {(torch.tensor([2.01, 1.0]) @ inputs - wanted).item() ** 2 - loss.item():.2f}",
    because="A small change times the gradient: 0.01 times 6. (The exact 0.0609 is a little more, because the slope itself grows on the way.)",
    choices={
        "by 0.01": "That would be right for a gradient of 1.",
        "by 0.06": "",
        "by 6": "So much for each 1 that the weight grows. Ours grows by a hundredth of that.",
    },
)

# %% tags=["source-hidden"] deck="The gradient is the slope of the loss"
linear_figures.slope(inputs.tolist(), wanted, [2.0, 1.0])

# %% [markdown]
# Where does the 6 come from? The loss is computed in steps, and each step has a simple slope. The **chain rule** (another one than in lesson 01) says: multiply the slopes along the way. Applied from the loss back to the weights this is **backpropagation** ([Rumelhart et al. 1986](https://www.nature.com/articles/323533a0)).

# %% tags=["source-hidden"] deck="Forward the values, backward the slopes"
linear_figures.chain(inputs.tolist(), wanted, [2.0, 1.0])

# %% evidence="chain-rule" tried="exact"
first = 2.0  # try 3.0 and 1.0
weights = torch.tensor([first, 1.0], requires_grad=True)
((weights @ inputs - wanted) ** 2).backward()
error = first * 3 + 1.0 * (-1) - wanted
by_hand = [2 * error * 1 * 3, 2 * error * 1 * (-1)]
assert by_hand == weights.grad.tolist()
print("by hand and by backward():", by_hand)

# %% [markdown]
# `requires_grad=True` makes PyTorch record each step, and `backward()` goes back through the record and multiplies the slopes. [[chain-rule]] If a value is used twice, the slopes of both ways add up. To learn, we take a step *against* the gradient: from each weight we subtract its gradient times a number, the **learning rate** (`lr`).
#
# ### Nobody has to invent the questions
# Now we hide the three questions and keep only the words and their answers. A new weight, drawn at random, takes steps against its gradient:

# %% deck="A step: loss, gradient, subtract"
answers = x @ question_weights.T  # (words, in) @ (in, out) -> (words, out)


def learn_questions(seen, n_updates, lr=1.0, seed=2):
    """Returns the weight (out, in) after training on these rows of x."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 4, generator=generator).requires_grad_()
    for _ in range(n_updates):
        # ESSENTIAL
        loss = (x[seen] @ weight.T - answers[seen]).square().mean()
        loss.backward()
        with torch.no_grad():  # the step itself is not recorded
            weight -= lr * weight.grad
        weight.grad = None  # otherwise the next one is added
        # END
    return weight.detach()


# %% tags=["source-hidden"] deck="From answers alone, each row becomes a question"
SEEDS = range(5)
linear_figures.found_questions(learn_questions, question_weights, list(questions), features, SEEDS)

# %% tags=["source-hidden"] evidence="questions-found" tried="seeds"
# Checked: from each start, each weight is found.
for seed in SEEDS:
    assert (learn_questions(range(5), 100, seed=seed) - question_weights).abs().max() < 0.01

# %% [markdown]
# Each row has become the question that we had hidden, from answers alone. [[questions-found]] How few words are enough?

# %% tags=["source-hidden"] deck="Four words are seen. Which one must not be left out?"
rest = {each: [i for i in range(5) if i != at] for at, each in enumerate(words)}
predict(
    "We leave out one of the five words. With four of the five that does no harm: the layer still finds all three questions. Which word can it not do without?",
    key=lambda: next(each for each in words if (learn_questions(rest[each], 300) - question_weights).abs().max() > 0.1),
    choices={
        "kite": "*lamp* is a thing, and *pilot* against *Mia* shows what flying adds.",
        "red kite": "",
        "Mia": "*pilot* is a person who flies, and *kite* against *lamp* shows what flying adds. The rest is *Mia*.",
        "pilot": "Its two features occur in other words, and what they add up to is the same.",
    },
    because="It is the only word with a colour. Without it nothing corrects the weights of that feature.",
)

# %% deck="A loss of 0, and still the wrong question"
# ESSENTIAL
leave_out = "red kite"  # try "pilot" and "Mia"
lr = 1.0  # try 3.0
seen = [i for i, each in enumerate(words) if each != leave_out]
found = learn_questions(seen, 300, lr)
# END
for name, rows in {"seen": seen, "all": range(5)}.items():
    print(f"loss on {name}: {(x[rows] @ found.T - answers[rows]).square().mean():.2f}")

# %% tags=["source-hidden"] evidence="fewer-words" tried="seeds"
# Checked: without the red kite the weights of colour stay as drawn, the loss is 0, its answers are wrong.
SEEDS = range(5)
for seed in SEEDS:
    for each, seen in rest.items():
        start, end = (learn_questions(seen, n, seed=seed) for n in (0, 300))
        assert (x[seen] @ end.T - answers[seen]).square().mean() < 1e-4
        assert ((end - question_weights).abs().max() > 0.01) == (each == "red kite")
        assert torch.equal(start[:, 3], end[:, 3]) == (each == "red kite")

# %% [markdown]
# A loss of 0 on the words that a layer has seen does not prove that it has found the questions. Nothing ever corrected the weights of colour, so the answers for the red kite are wrong. [[fewer-words]] This is the difference between fitting and **generalizing**, so always test on what the fit has not seen. Section 6 does.

# %% [markdown] tags=["note"]
# **Say.** A layer needs vectors, and an id is only a name. So each token has a row in a table, and the id says which. Back to the map: the rows are learned like the questions. Come back to the answers of section 1.
#
# **Usual answers.**
# - *-1 raises an error* (`an error`): It should. Python counts negative indices from the end, and so does a tensor.
# - *-1 is the first row* (`the row of token 0`): Counted from the end, it is the last one.
# - *The columns are the vectors* (`columns`): The first axis of the table is the vocabulary, so an id names a row.
# - *Rows that no text named are trained a little as well* (from the room): Their gradient is 0 here.
#
# **Cut if short.** The one-hot vector.
#
# **Tried.** Exact.

# %% [markdown]
# ## 5. Where vectors come from
# A linear map needs numbers, but an id is only a name: token 4 is not twice token 2. So each token of the vocabulary has a vector of its own, as a **row** of a table of shape $(V, C)$. The id says which row. This table is an **embedding**. A look-up is a linear map, too: the product of a **one-hot** vector, which is 1 at the id and 0 everywhere else, with the table.

# %% deck="To look up a row is a product with a one-hot vector"
from torch.nn.functional import one_hot

# ESSENTIAL
small = torch.arange(5.0)[:, None] + torch.tensor([0.1, 0.2, 0.3])  # (V, C)
token = 2  # try 0 and 4
hot = one_hot(torch.tensor(token), 5).float()  # (V)
print(small[token], hot, hot @ small)  # (C), (V), (V) @ (V, C) -> (C)
# END

# %% tags=["source-hidden"] deck="A position without a word has the id -1. What is table[-1]?"
predict(
    "A program marks positions without a word by the id -1. What is `small[-1]`?",
    key=lambda: {4: "the row of token 4", 0: "the row of token 0"}[(small == small[-1]).all(-1).nonzero().item()],
    choices={
        "the row of token 4": "",
        "the row of token 0": "Python counts negative indices from the end.",
        "an error": "It should be. But Python counts negative indices from the end, and so does a tensor.",
    },
    because="-1 is the last row, so a mark for an empty position becomes the last word of the vocabulary, and no error is raised.",
)

# %% [markdown]
# The model would train on the wrong word, and nobody would notice. So a good embedding raises an error for values that are not valid ids.
#
# ### Your turn
# `ids` has any shape $(...)$, and the result has the shape $(..., C)$. A single id, a tensor without axes, gives one row.


# %% tags=["exercise"] name="embedding" minutes=10 difficulty=2 deck="Your turn: a row for each id"
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

# %% tags=["source-hidden"] rows=["S0-9", "S0-12"] evidence="looked-up" tried="exact"
# Checked: rows of the table are the product with one-hot vectors.
embed, three_ids = Embedding(10_000, 512), torch.tensor([5, 23, 156])
torch.testing.assert_close(embed(three_ids), one_hot(three_ids, 10_000).float() @ embed.weight)

# %% [markdown]
# The library's `Embedding` looks up rows, and this equals the product with one-hot vectors. [[looked-up]] How do the rows learn? We look up three ids, add up all the numbers, and ask for the gradient of the table:

# %% deck="A row learns from each place where its word occurs"
embed = Embedding(5, 3)
ids = [2, 0, 2]  # try [4, 4, 4]
embed(torch.tensor(ids)).sum().backward()
print(embed.weight.grad)

# %% [markdown]
# Row 2 was looked up twice, so it gets both gradients; rows that were not looked up get 0, and a plain step leaves them as they are. So the rows learn by the same rule as the questions, each from the places where its word occurs. Colours occur in the same places, so they are pushed in the same directions. That is how they found each other in the map.

# %% [markdown] tags=["note"]
# **Say.** A group in a map tempts us to say: the model uses this direction. We change the model and look. First: is the direction enough? Then: is it needed? They are two questions.
#
# **Usual answers.**
# - *About half, because the difference is gone* (`about half`): It is gone for the names that made the arrow. Is it for the others?
# - *Then the difference of girls and boys is unimportant* (from the room): The arrow is one estimate of it, from few names. The gradient finds a better one.
# - *But the fitted names need the arrow* (from the room): Much of what is taken from them is theirs alone. Test on others.
#
# **Cut if short.** The view.
#
# **Tried.** Made from all 40 names and removed: 21 of 40 right, in two contexts. Twenty splits into 10 + 10 and 10 + 10: without the arrow 8 to 12 of the 20 fitted names are right and on average 19.4 (standard error 0.2) of the 20 others; without the mean gradient of the 20 fitted names 10.2 (0.1) of the others, without that of three other sentences 11.1 (0.3), without a random direction 20. Rows of names made up without any part of their own but chance show the same pattern: 10.2 of the fitted, 19.6 of the others. Four small models (two seeds, 400 and 2,000 updates): without the arrow 18 to 19 of the others, without the gradient 11.6 to 15.4. The arrow added to ten other girls and taken from ten other boys, five sentences with ten splits each: all turned; with half of it 5 to 10 girls and 1 to 6 boys.

# %% [markdown]
# ## 6. Enough and needed are two questions
# In the map girls and boys are one cloud, but rows have many more directions. Do they differ in one, and does the model *use* it? After *shy Mia wandered to Eastbridge.* it continues with *She*. Here word 6, *Mia*, is exchanged for *Omar*. **Your task:** try other names, such as *Lena* and *Tom*.

# %% tags=["source-hidden"] deck="Task: exchange Mia. Which pronoun follows?"
what_if(model, tokenizer, "\nOne snowy day, shy Mia wandered to Eastbridge.", "word 6 Omar")

# %% [markdown]
# Now we only move the rows of names. The **arrow** leads from the mean of ten girls to the mean of ten boys, and we add it to names that it was *not* made from. (The model's scores are called logits; lesson 03 explains them.)

# %%
from copy import deepcopy

he, she = ids_of_words(tokenizer, ["He", "She"]).tolist()
names = torch.cat([kinds["girls"], kinds["boys"]])  # (N): 20 girls, then 20 boys
is_boy = torch.arange(40) >= 20  # (N)
begin, end = "One snowy day, shy", " wandered to Eastbridge."
texts = [begin + tokenizer.decode([i]) + end for i in names.tolist()]
prompts = torch.tensor([tokenizer.encode("\n" + text) for text in texts])  # (N, T)
rows = table[names]  # (N, C)


def half(seed):
    """Ten girls and ten boys, drawn at random, (N)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([torch.randperm(20, generator=generator) < 10 for _ in range(2)])


def arrow_of(made):
    """The arrow from the mean girl to the mean boy of these names, (C)."""
    return rows[made & is_boy].mean(0) - rows[made & ~is_boy].mean(0)


# %% deck="An arrow of other names turns every girl's pronoun"
@torch.no_grad()
def says_he(added):
    """added (N, C) or (C): to the rows of the names. Is He more likely than She? (N)"""
    changed = deepcopy(model)
    changed.embed.weight[names] += added
    logits = changed(prompts)[:, -1]  # (N, T) -> (N, V)
    return logits[:, he] > logits[:, she]


# ESSENTIAL
made = half(seed=1)
part = 1.0  # try 0.0, 0.5 and -1.0
he_now = says_he(part * arrow_of(made))[~made]  # the other names: girls, then boys
# END
print(f"He for {he_now[:10].sum()} of 10 girls and {he_now[10:].sum()} of 10 boys")

# %% [markdown]
# So the direction is **enough** to change the pronoun. [[turned]] Does the model also **need** it? We remove the direction from all 40 names, and count how often the right pronoun is the more likely one:


# %%
def right_without(arrow, fitted):
    """arrow (C), made by the fitted names (N). Returns who keeps the pronoun, (N)."""
    direction = arrow / arrow.norm()  # (C)
    level = rows[fitted].mean(0) @ direction  # the same for all
    removed = (level - rows @ direction)[:, None] * direction  # (N, 1) * (C) -> (N, C)
    return says_he(removed) == is_boy


SEEDS = range(10)
halves = [half(seed) for seed in SEEDS]
splits = [(made, right_without(arrow_of(made), made)) for made in halves]
all_names = torch.ones(40, dtype=torch.bool)
everybody = right_without(arrow_of(all_names), all_names)
print(f"made from all names, removed from all: {everybody.sum()} of 40 right")

# %% tags=["source-hidden"] deck="Without the direction: how many of the other names keep their pronoun?"
predict(
    "About half are right, as with a coin, so the model seems to need the direction. Now we make it from 10 girls and 10 boys only, and remove it from all 40. How many of the *20 other* names keep their pronoun?",
    key=lambda: "nearly all" if min(kept[~made].sum() for made, kept in splits) > 14 else "about half",
    choices={
        "about half": "So it is for the names that the direction was made from. What is different about the others?",
        "nearly all": "",
    },
    because="The mean of ten girls is a tenth of each of them. So the direction holds a part of every row that made it, and takes it away again. The other rows keep theirs.",
)

# %% tags=["source-hidden"] deck="Without it, the others keep their pronoun"
linear_figures.fit_and_test(splits)

# %% tags=["source-hidden"] evidence="turned" tried="held-out"
# Checked: arrows of other names turn every name; another direction of the same length turns none.
SEEDS = range(5)
for seed in SEEDS:
    made, arrow = half(seed), arrow_of(half(seed))
    assert says_he(arrow)[~made].all() and not says_he(-arrow)[~made].any()
    assert (says_he(arrow.flip(0)) == is_boy).all()

# %% [markdown]
# Of the names that made the arrow about half are right, as with a coin; of the others nearly all. So the model does not need the arrow. Why? The arrow is made from 20 rows, and much of it is what these rows have by chance. To take that away harms only them.
#
# Which direction does the model *read*? The gradient knows (section 4): how fast does *He* gain on *She* if a number of a row grows? We take the mean gradient of the 20 names, and remove this direction instead:

# %% deck="Without the direction that the model reads, a coin"
probe = deepcopy(model)
scores = probe(prompts)[:, -1]  # (N, T) -> (N, V)
(scores[:, he] - scores[:, she]).sum().backward()
gradients = probe.embed.weight.grad[names]  # (N, C)
# ESSENTIAL
made = half(seed=1)
read = gradients[made].mean(0)  # (C)
right = right_without(read, made)[~made]
print(f"right without it: {right.sum()} of 20 other names")
# END

# %% tags=["source-hidden"] evidence="needed" tried="held-out"
# Checked: without the arrow the other names are right, without the direction that is read they are not.
for made, kept in splits:
    read = gradients[made].mean(0)
    assert kept[~made].sum() > 14 > max(kept[made].sum(), right_without(read, made)[~made].sum())

# %% [markdown]
# Now the other names are no better than a coin: *this* direction the model needs. [[needed]] The arrow was enough to turn the pronoun, and still it is not what the model reads. To see that, we had to test on names that were not fitted, as with the red kite.

# %% [markdown] tags=["note"]
# **Say.** Each word has a row, a layer asks questions about it, and both are learned with the same gradient.
#
# **Usual answers.**
# - *The questions are right if the loss is 0* (from the room): Only for features that occurred.
#
# **Cut if short.** Nothing.
#
# **Tried.** Each conclusion in its section.

# %% [markdown] deck="A row of the weight is a question, and a row of the table is a word"
# ## What you have now
# - After training, words of one kind are near each other, and nobody named a kind. [[word-map]]
# - Shapes are aligned from the right. Keep the axis of a sum or a mean, and test with sizes that all differ. [[kept-axis]]
# - A linear map is a dot product with each row of its weight, $(out, in)$: a row is a question. [[rows-of-weight]]
# - The gradient is the product of the slopes on the way back from the loss. [[chain-rule]]
# - With it a layer finds its questions from answers alone, from every start that we tried. [[questions-found]]
# - A loss of 0 is not proof: what no word corrects stays as it was drawn. [[fewer-words]]
# - An embedding looks up a row, and each row learns where its word occurs. [[looked-up]]
# - A direction can be enough to change what a model says, and not be the one that it reads: test on what was not fitted. [[needed]]
#
# Next, lesson 03: how the answers of a last layer become probabilities.

# %% [markdown]
# ## Sources
# - Backpropagation: Rumelhart et al. 1986, [*Learning representations by back-propagating errors*](https://www.nature.com/articles/323533a0).
# - Vectors for words, learned with the model: Bengio et al. 2003, [*A Neural Probabilistic Language Model*](https://www.jmlr.org/papers/v3/bengio03a.html), section 2.
# - Principal components: Pearson 1901, *On Lines and Planes of Closest Fit to Systems of Points in Space*.
