# %% [markdown] slide="slide"
# # 02 Linear
# **How does a layer make new features out of old ones, and where do the first ones come from?**
#
# *Needs* lesson 01. *Builds* `Linear` and `Embedding` in `layers.py`. *Runs* in about 10 s on two cores.
# *Teaches* in about 66 minutes, plus 15 of exercises.

# %%
import math
import tempfile
from copy import deepcopy
from time import perf_counter

import safetensors.torch
import torch
from torch import nn
from torch.nn.functional import one_hot

from tinylm_lib import TransformerLM, next_token_loss, storyworld
from tinylm_lib.classroom import check, diagnose, figures, find_exercise, fixed, hint, keep
from tinylm_lib.classroom import measured, predict, show, trace
from tinylm_lib.layers import Embedding, Linear
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import sentences

_ = torch.manual_seed(2)

# %% [markdown] slide="slide"
# ## 1. Tensors, quickly (skip what you know)
# Everything inside a model is a **tensor**: numbers in a grid, with any number of axes. Here are the first tokens of two stories, as ids. As in training, a line end comes before each story.

# %%
shipped = load_pretrained("storyworld")
tokenizer = shipped.tokenizer
told = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in (1, 2)]
starts = torch.tensor([tokenizer.encode("\n" + text)[:5] for text in told])  # (B, T)
print([tokenizer.decode([i]) for i in starts[0].tolist()])
print(starts, starts.shape, starts.dtype)

# %% [markdown]
# Two texts of five tokens: the shape is $(B, T)$, where $B$ counts texts and $T$ positions. We pick out parts by **indexing**. The lines of this
# function make one thing each, and `trace` writes beside each line what shape it made.


# %%
def parts(ids):
    ids[0]
    ids[:, -1]
    ids[:, -1:]
    ids[:, 1:]
    ids[:, None]


trace(parts, starts, sizes={"B": 2, "T": 5})

# %% [markdown]
# The rule: **a number removes its axis, a slice keeps it, `None` adds one of size 1.** A negative number counts from the end.
#
# ### Broadcasting
# Two tensors of different shapes can still be added or multiplied. Their shapes are laid one over the other **from the right**. Where the sizes are
# equal, fine. Where one of them is 1, or missing, that tensor is repeated.

# %%
C = 4
x = torch.ones(2, 5, C)  # (B, T, C)
per_feature = torch.tensor([1.0, 10.0, 100.0, 1000.0])  # (C)
per_position = torch.arange(5.0)[:, None]  # (T, 1)
print((x * per_feature)[0, 0], "the same at all positions")
print((x * per_position)[0, :, 0], "the same for all features")

# %% [markdown]
# That was one tensor stretched to the other. It can go both ways in one step.

# %%
query, key = torch.arange(3), torch.arange(5)  # (T), (S)

# %% tags=["source-hidden"]
predict(
    "`query` is (3), `key` is (5). What is the shape of `query[:, None] - key`?",
    key=lambda: (query[:, None] - key).shape,
    shape="(T, S)",
    feedback={(3, 1): "That is `query[:, None]` alone. Its axis of size 1 is repeated.", (5, 3): "`key` has only one axis, and that is laid over the last one."},
    because="(3, 1) and (5) are laid over each other from the right: the 1 is repeated 5 times, and the missing axis 3 times.",
)  # fmt: skip

# %%
print(query[:, None] - key)

# %% [markdown]
# Every query minus every key, without a loop. Now the trap. From each row we want to take that row's mean.

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
        "each row minus its own mean": "From the right: the one axis of `means` lies over the *last* axis of `square`, which counts columns.",
        "something else, without an error": "",
    },
    because="Each mean met a column in place of its row.",
)

# %% evidence="kept-axis"
kept_axis = square - square.mean(-1, keepdim=True)  # (3, 3) - (3, 1)
print(square - means)
print(kept_axis)
torch.testing.assert_close(kept_axis.mean(-1), torch.zeros(3))
assert (square - means).mean(-1).abs().max() > 1

# %% [markdown]
# The second is right: `keepdim=True` leaves the axis in place with size 1, $(3, 1)$, so each mean meets its own row. With 4 columns the first would have been
# an error. On a square it is only wrong. That is why we test with sizes that all differ. This finds a forgotten `keepdim`, but not a wrong `dim`: `wide.mean(0)` below takes the mean of each column, and no error is raised. So
# check the values, too. [[wrong-dim]]

# %% evidence="sizes-differ"
wide = torch.randn(3, 4)
try:
    wide - wide.mean(-1)
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("no error: the sizes do not differ")

# %% evidence="wrong-dim"
wrong_dim = wide - wide.mean(0)  # (3, 4) - (4): no error
print("mean of each row with the wrong dim is 0:", torch.allclose(wrong_dim.mean(-1), torch.zeros(3), atol=1e-5))
assert wrong_dim.mean(-1).abs().max() > 0.01

# %% [markdown]
# ### The matrix product
# A **dot product** multiplies two lists, number by number, and adds up: $(1, 2) \cdot (3, 4) = 1 \cdot 3 + 2 \cdot 4 = 11$. The matrix product `a @ b`
# takes the dot product of each row of `a` with each column of `b`.

# %% rows=["S1-6"]
assert torch.tensor([1, 2]) @ torch.tensor([3, 4]) == 11
a, b = torch.randn(1, 3), torch.randn(3, 6)
product = a @ b  # (1, 3) @ (3, 6) -> (1, 6)
dots = [(a[0] * b[:, j]).sum() for j in range(6)]
torch.testing.assert_close(product[0], torch.stack(dots))
print(f"{product.numel()} outputs, each a dot product of {a.shape[1]} numbers")

# %% [markdown]
# The **last** axis of the left side meets the **last but one** of the right side. They must be equally long, and both disappear. Axes further to the left stay
# where they are: every text, and every position, gets its own product.

# %%
F = 3
x, weight = torch.randn(2, 5, C), torch.randn(C, F)
y = x @ weight  # (B, T, C) @ (C, F) -> (B, T, F)
torch.testing.assert_close(y[1, 2], x[1, 2] @ weight)

# %% [markdown]
# ### The gradient
# One thing more, and it is why we use PyTorch: it notes what was computed, and can then say how much the result would change if an input changed a little. That is
# the **gradient**. A guess `weights @ inputs` is 5, wanted is 4, and the loss is the square of the error.

# %%
weights = torch.tensor([2.0, 1.0], requires_grad=True)
inputs, wanted = torch.tensor([3.0, -1.0]), 4.0
loss = (weights @ inputs - wanted) ** 2
loss.backward()
print(f"guess {(weights @ inputs).item():.0f}, loss {loss.item():.0f}, gradient {weights.grad.tolist()}")

# %% tags=["source-hidden"]
nudged = (torch.tensor([2.01, 1.0]) @ inputs - wanted) ** 2
predict(
    "The gradient is 6 for the first weight. We make that weight 0.01 larger. By how much does the loss grow?",
    key=lambda: (nudged - loss).item(),
    number="(loss)",
    within=0.003,
    feedback={0.01: "So it would be with a gradient of 1.", 6: "That is the change per 1 of the weight. Ours changes by a hundredth of that."},
    because="A small change times the gradient: 0.01 times 6. (The exact 0.0609 shows that the slope itself changes on the way.)",
)  # fmt: skip

# %% [markdown]
# `requires_grad=True` asks PyTorch to take notes, `backward()` walks back through them, and `weights.grad` holds the result. By hand it is 2 times the error times the input:
# $2 \cdot 1 \cdot 3 = 6$ and $2 \cdot 1 \cdot (-1) = -2$. So a small step *against* the gradient makes this loss smaller. Training repeats such steps, and most optimizers change their direction and size (lesson 11).

# %%
with torch.no_grad():
    weights -= 0.05 * weights.grad
guess = (weights @ inputs).item()
print(f"weights {weights[0]:.2f} and {weights[1]:.2f}, guess {guess:.2f}, loss {(guess - wanted) ** 2:.2f}")

# %% [markdown]
# (Straight to the goal, because we chose the step well. Lesson 11 says how it is chosen otherwise.)

# %% [markdown] tags=["note"]
# Most of the room knows some of this. Ask for the broadcasting rule first; *from the right* is what people forget. The square trap costs real
# projects days: let everybody say what they expect. In a short class skip the matrix product of three axes and the timing in section 3.

# %% [markdown] slide="slide"
# ## 2. A linear map asks questions
# A word is described by four features. A layer shall make three new ones from them. How? Each new feature is a **question**, and the question is a list of
# weights, one for each old feature.

# %%
features = ["person", "thing", "flies", "colour"]
words = {"kite": [0.0, 1, 1, 0], "lamp": [0.0, 1, 0, 0], "Mia": [1.0, 0, 0, 0]}
questions = {
    "for a windy day?": [0.0, 1, 2, 0],
    "can it sing?": [1.0, 0, 0, 0],
    "can it be given?": [-1.0, 1, 0, 0],
}
question_weights = torch.tensor(list(questions.values()))
assert question_weights.shape == (3, 4)

# %% [markdown]
# One answer by hand: weight times feature, added up. It is a dot product.

# %%
answer = 0.0
for w, f in zip(questions["for a windy day?"], words["kite"], strict=True):
    answer += w * f
print("kite, for a windy day?", answer)

# %% [markdown]
# High where the word has what the question looks for. A minus sign speaks against: whoever is a person cannot be given. All questions, for each word:

# %% rows=["S0-7"]
for word, has in words.items():
    answers = [sum(w * f for w, f in zip(row, has, strict=True)) for row in question_weights.tolist()]
    print(f"{word}: {answers}")

# %% [markdown]
# This is a **linear map**: one dot product for each row of the weight. The weight has shape $(out, in)$: a **row for each output**, a column for
# each input. Learning means to change the numbers in the rows, so nobody has to invent the questions. It is called linear because what goes in twice as
# large comes out twice as large, and a sum comes out as the sum of what its parts give.

# %% evidence="rows-of-weight"
kite, lamp = torch.tensor(words["kite"]), torch.tensor(words["lamp"])
ask = Linear(4, 3)
torch.testing.assert_close(ask(kite), torch.stack([row @ kite for row in ask.weight]))
torch.testing.assert_close(ask(2 * kite + lamp), 2 * ask(kite) + ask(lamp))
assert ask(torch.zeros(4)).tolist() == [0, 0, 0]

# %% tags=["source-hidden"]
predict(
    "Now x holds 2 texts of 5 words, each with 4 features, and the weight is (3, 4). What is the shape of the result?",
    key=lambda: ask(torch.zeros(2, 5, 4)).shape,
    shape="(B, T, out)",
    feedback={(2, 5, 4): "4 go in for each word. How many questions are there?", (3, 5, 2): "What stands before the features stays as it is."},
    because="Each word is asked the same 3 questions, by itself.",
)  # fmt: skip

# %% [markdown]
# ### Your turn
# Write the general form: x has any leading dimensions, none included, and its last axis is $in$. Write it without a loop: `@` takes the *columns* of its
# right side, and `weight.T`, the **transpose**, makes columns of the rows, $(out, in)$ to $(in, out)$. Gradients must reach x
# and the weight, and the result has their dtype.


# %% tags=["exercise"] name="linear" minutes=5 difficulty=1
def linear(x, weight):
    """x (..., in), weight (out, in), of one dtype. Returns (..., out): the dot products of x with each row of weight."""
    # SOLUTION
    return x @ weight.T
    # END


# %% tags=["check"]
if check("linear", linear).passed:
    keep("linear", linear)

# %%
hint("linear")

# %% [markdown] tags=["solution"]
# One line. `@` sums over the last axis of x and the last but one of its right side, so the rows of the weight must become columns: `weight.T` is
# $(in, out)$. The usual slips: `x @ weight`, which a square weight does not punish; `weight @ x`, right for a single vector only;
# and `weight.reshape(in, out)`, which has the right shape and the wrong numbers (section 3). `torch.einsum("...i,oi->...o", x, weight)` says the same in letters.

# %% [markdown] slide="subslide"
# ### The library's version
# A layer keeps its weight, and calls PyTorch's `F.linear`, which is the same product. It can also add a learned number to each output, the *bias*; ours has
# none unless asked.

# %% rows=["S0-5", "S0-8"]
layer, x = Linear(64, 128), torch.randn(7, 64)
assert layer.weight.shape == (128, 64) and layer.bias is None
assert layer(x).shape == (7, 128)
torch.testing.assert_close(layer(x), find_exercise("linear").reference(x, layer.weight))
assert Linear(64, 128, dtype=torch.bfloat16).weight.dtype == torch.bfloat16
show(Linear)

# %%
trace(layer, torch.randn(2, 5, 64), sizes={"B": 2, "T": 5})

# %% [markdown] tags=["note"]
# Draw the weight on the board as a list of questions, row by row. Then point at a column: what one old feature contributes to all answers. Both readings
# return in section 3. Ask who would have written x @ weight.

# %% [markdown] slide="slide"
# ## 3. Why (out, in)?
# Stored as $(in, out)$, we could write `x @ weight`, without the transpose. Does the order matter? First, what does a transpose do?

# %%
grid = torch.arange(18).view(6, 3)
print(grid)
print("in memory:", grid.flatten().tolist())
print("strides:  ", grid.stride())

# %% [markdown]
# Memory has no rows: it is one long line. The **strides** say how far to walk in that line: 3 places to the next row, 1 to the next column. Where the
# numbers lie in memory in the order in which we read them, row after row, the tensor is **contiguous**.

# %% tags=["source-hidden"]
predict(
    "`grid.T` is (3, 6). What are its strides?",
    key=lambda: str(grid.T.stride()),
    choices={
        "(3, 1)": "Then the next row of `grid.T` would be 3 places away. Look: from 0 to 1 is one step in memory.",
        "(1, 3)": "",
        "(6, 1)": "So it would be if the numbers had been written anew, row by row. Nothing was copied.",
    },
    because="Only the two strides change places.",
)

# %% rows=["S1-6"] evidence="transpose-strides"
flipped = grid.T
print("the same memory:", flipped.data_ptr() == grid.data_ptr())
assert flipped.data_ptr() == grid.data_ptr()
print("contiguous:", flipped.is_contiguous())
flipped[0, 1] = 100
print("written into flipped[0, 1], read from grid[1, 0]:", grid[1, 0].item())
assert flipped.shape == (3, 6) and flipped.stride() == (1, 3)
assert torch.empty(4, 3, 6).stride() == (18, 6, 1)

# %% [markdown]
# A transpose costs nothing: no number moves. That is different from `reshape`, which keeps the order in which we read the numbers, row after row, and cuts it anew. Both give the
# shape $(3, 6)$, but not the same matrix:

# %%
print(grid.T[0].tolist(), "first row of the transpose")
print(grid.reshape(3, 6)[0].tolist(), "first row of the reshape")

# %% [markdown]
# ### A parameter that is not contiguous
# One published course note stores $(out, in)$ and makes its transpose the parameter, so that it can write `x @ weight` with a weight $(in, out)$. As the reason it gives speed.


# %%
class Transposed(nn.Module):
    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        stored = torch.randn(n_out, n_in) * 0.02
        self.weight = nn.Parameter(stored.T)  # in front (in, out), in memory (out, in)

    def forward(self, x):
        return x @ self.weight


transposed = Transposed(3, 6)
transposed(torch.randn(4, 3)).sum().backward()
attempts = {
    "the gradient": lambda: transposed.weight.grad.norm(),
    "weight.T": lambda: transposed.weight.T,
    "safetensors.torch.save": lambda: safetensors.torch.save(transposed.state_dict()),
    "weight.view(-1)": lambda: transposed.weight.view(-1),
    "parameters_to_vector": lambda: nn.utils.parameters_to_vector(transposed.parameters()),
}

# %% [markdown]
# One of these attempts writes a file. Most published models are *safetensors* files. Such a file holds, for each tensor, its dtype, its shape and its numbers,
# row after row (Source: the format's description, README of safetensors). It has no field for strides.

# %%
fails = {}
for name, attempt in attempts.items():
    try:
        attempt()
    except (RuntimeError, ValueError) as error:
        fails[name] = str(error)

# %% tags=["source-hidden"]
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

# %% rows=["S1-5"] evidence="not-contiguous"
for name, message in fails.items():
    print(f"{name}: {message[:72]}...")
assert transposed.weight.grad is not None
assert list(fails) == ["safetensors.torch.save", "weight.view(-1)", "parameters_to_vector"]

# %% evidence="saved-by-copy"
with tempfile.TemporaryDirectory() as folder:
    safetensors.torch.save_model(transposed, f"{folder}/model.safetensors")
    loaded = safetensors.torch.load_file(f"{folder}/model.safetensors")["weight"]  # (in, out)
equal_numbers = torch.equal(loaded, transposed.weight)
print("save_model saves equal numbers:", equal_numbers, "- contiguous:", loaded.is_contiguous())
assert equal_numbers and loaded.is_contiguous()

# %% [markdown]
# The layer computes and has a gradient, but `safetensors.torch.save` refuses its weight. The function `save_model` makes a contiguous copy first, without a message [[saved-by-copy]], and `torch.save` accepts the weight as it is, because it stores the strides, too. There is a second trap.
# Kaiming initialization (`nn.init.kaiming_normal_`) counts the inputs along the second axis, so with $(in, out)$ it takes the wrong number:

# %%
for shape in ((2048, 512), (512, 2048)):
    std = nn.init.kaiming_normal_(torch.empty(shape)).std().item()
    print(f"512 inputs, 2048 outputs, weight {shape}: std {std:.3f}")

# %% [markdown]
# Half the scale, without a word. Now the claim itself: is one order *faster*? Measure it honestly: both in turns, many times, on one core, and take the fastest run of each,
# because other programs can only make a run slower (Source: the documentation of Python's `timeit`).


# %%
def seconds(*ways, rounds: int = 31) -> list[float]:
    runs, n_threads = [[] for _ in ways], torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(rounds):
        for way, found in zip(ways, runs, strict=True):
            start = perf_counter()
            way()
            found.append(perf_counter() - start)
    torch.set_num_threads(n_threads)
    return [min(found) for found in runs]


# %% evidence="order-timed"
for n, n_in, n_out in ((1, 512, 2048), (1, 2048, 512), (64, 512, 2048), (64, 2048, 512)):
    x, rows_out = torch.randn(n, n_in), torch.randn(n_out, n_in)
    rows_in = rows_out.T.contiguous()
    a, b = seconds(lambda: x @ rows_out.T, lambda: x @ rows_in)  # noqa: B023
    print(f"{n:>2} x {n_in} to {n_out}: (out, in)", measured(1e6 * a, "us", 1, 1e6), end=", ")
    print("(in, out) takes", measured(b / a, "times as long", 0.1, 10))

# %% [markdown]
# Look at the last number of each line: 1 means equally fast. Run the cell again and it changes a little. On our machine at none of the four sizes did one order take twice as long as the other. [[order-timed]]
# A smaller difference is possible: with one row, the faster order depends on the sizes. This is one core in fp32: if your processor or a GPU disagrees, believe your measurement.
# A likely reason is that both orders can be read straight through memory. With $(out, in)$,
# take a row and make a dot product. With $(in, out)$, take a row, multiply it by one number of x, and add it to the result.
#
# So why $(out, in)$? Because a row is one output's question, because Kaiming initialization, `nn.Linear` and the files of Llama expect it,
# and because the last layer of a model, $(V, C)$, then has the same shape as the table of section 5. A convention, and a good one to share.

# %% [markdown] tags=["note"]
# Common wrong answer: a transpose copies. Let someone walk through the line of 18 numbers with the finger, once for each stride. The timing surprises those who have
# read otherwise; do it on several laptops and collect the ratios on the board. If you take the mean or the median in place of the fastest run, other programs can change the ratio by a factor of 3.

# %% [markdown] slide="slide"
# ## 4. How large at the start?
# Before training, the weights are random. How large should they be? An output is a sum over all inputs. Let inputs and weights be drawn
# independently around the mean 0 with a standard deviation of 1 (the typical distance from the mean; its square is the *variance*). Then a product of two also has the variance 1.

# %%
n_in, n_out = 256, 1024
x = torch.randn(4000, n_in)
y = x @ torch.randn(n_out, n_in).T

# %% tags=["source-hidden"]
predict(
    "Each output is a sum of 256 products of such numbers. What is its standard deviation?",
    key=lambda: y.std().item(),
    number="times that of x",
    within=0.5,
    feedback={256: "So it would be if all products pointed the same way. They have both signs and mostly cancel.", 1: "Many chances to go far: sums of random numbers grow."},
    because="In a sum of independent numbers the variances add up: 256 times 1. The standard deviation is the root of that.",
)  # fmt: skip

# %% [markdown]
# In a model of many layers this would multiply (lesson 04 shows a chain). With weights of standard deviation $\sigma$ the outputs have $\sigma \sqrt{in}$, so
# $\sigma = 1/\sqrt{in}$ keeps the size. But gradients go the other way, from the outputs back to the inputs, and there the sum is over the *outputs*: an input has a part in every
# output, so its gradient is the sum of weight times that output's gradient, `gradient @ weight`. They want $1/\sqrt{out}$. The
# compromise takes the mean of both counts (Glorot and Bengio 2010):
#
# $$\sigma = \sqrt{\frac{2}{in + out}}$$

# %%
scales = {"1 / sqrt(in)": n_in**-0.5, "1 / sqrt(out)": n_out**-0.5}
scales["compromise"] = math.sqrt(2 / (n_in + n_out))
for name, sigma in scales.items():
    weight = sigma * torch.randn(n_out, n_in)
    forward, backward = (x @ weight.T).std(), (torch.randn(4000, n_out) @ weight).std()
    print(f"{name:<14} sigma {sigma:.4f}: outputs {forward:.2f}, gradients {backward:.2f}")
print(f"128 to 10,000, compromise, by the formula: outputs {math.sqrt(2 * 128 / (128 + 10_000)):.2f}")

# %% [markdown]
# For 256 inputs and 1,024 outputs, neither is 1 with the compromise, and neither is far off. If the two sizes are very different, the compromise is worse: in an output layer from 128 features to a vocabulary of 10,000 the outputs
# become much smaller than the inputs.
#
# ### Cutting off the tails
# A normal distribution has no end: among millions of weights some are very large. So they are drawn again until they lie within three $\sigma$. What remains is a
# little narrower. Statistics has a formula for how much (the first two lines below; take it on trust), and we check it on millions of weights of three shapes.

# %% rows=["S0-6"] evidence="tails-cut"
density = math.exp(-(3**2) / 2) / math.sqrt(2 * math.pi)
kept = math.erf(3 / math.sqrt(2))
narrower = math.sqrt(1 - 2 * 3 * density / kept)
print(f"kept {kept:.4f} of all, standard deviation {narrower:.5f} sigma")
for wide_in, wide_out in ((2000, 2000), (500, 3000), (3000, 500)):
    in_sigmas = Linear(wide_in, wide_out).weight.detach() / math.sqrt(2 / (wide_in + wide_out))  # (out, in)
    std, furthest = in_sigmas.std().item(), in_sigmas.abs().max().item()
    print(f"{wide_in} to {wide_out}: measured {std:.3f} sigma, largest {furthest:.2f}")
    assert abs(std - narrower) < 0.005 and 2.9 < furthest < 3.0001

# %% [markdown]
# 0.98658: a strict test of the standard deviation finds it 1.3 % too small, which is not a bug. What comes next is a trap.

# %% tags=["source-hidden"]
weight = nn.init.trunc_normal_(torch.empty(1000, 1000), std=0.02)  # (1000, 1000)
largest = weight.abs().max().item() / 0.02
predict(
    "`nn.init.trunc_normal_(weight, std=0.02)` fills a million weights. How many standard deviations is the largest away from 0?",
    key=lambda: next(text for limit, text in ((2.1, "2"), (3.1, "3"), (6, "about 5"), (200, "100")) if largest < limit),
    choices={
        "2": "The defaults are a=-2 and b=2, but in which unit?",
        "3": "Nobody said 3. The defaults are a=-2 and b=2.",
        "about 5": "",
        "100": "That is where the cut is: at 2, and 2 is 100 times 0.02. No weight gets so far.",
    },
    because="`a` and `b` are absolute, not counted in standard deviations: the cut at 2 is never reached, and the largest of a million is where it is without a cut.",
)

# %% rows=["S1-3"] evidence="absolute-limits"
uncut = nn.init.trunc_normal_(torch.empty(1000, 1000), std=0.02)
cut = nn.init.trunc_normal_(torch.empty(1000, 1000), std=0.02, a=-3 * 0.02, b=3 * 0.02)
for name, weight in {"defaults": uncut, "a, b given": cut}.items():
    print(
        f"{name:<10} largest {weight.abs().max() / 0.02:.1f} sigma, beyond 3: {(weight.abs() > 0.06).double().mean():.2%}"
    )
assert uncut.abs().max() > 4 * 0.02 and cut.abs().max() < 3.001 * 0.02

# %% [markdown]
# So an embedding made by this line with its default limits is called truncated normal and is in effect a plain normal one. The library gives both limits.

# %% [markdown] tags=["note"]
# Ask why gradients sum over the outputs: an input feeds all of them (a column of the weight). If time is short, tell the factor 0.98658 and show only the trap.

# %% [markdown] slide="slide"
# ## 5. Where vectors come from
# A linear map needs numbers, and an id is only a name: token 4 is not twice token 2. So each token of the vocabulary has a vector of its own. They stand
# as **rows** in a table of shape $(V, C)$, and the id says which row.

# %%
V, C = 5, 3
table = torch.arange(float(V))[:, None] + torch.tensor([0.1, 0.2, 0.3])  # (V, C)
print(table)
print("token 2:", table[2])

# %% [markdown]
# Is this still mathematics? Yes: a product with a vector that is 0 everywhere, and 1 at the place of the id, called **one-hot**. It picks its row out.

# %%
hot = one_hot(torch.tensor(2), V).float()  # (V)
print(hot, "@ table =", hot @ table)
assert torch.equal(hot @ table, table[2])

# %% [markdown]
# So an embedding *is* a linear map, of one-hot vectors. Only nobody multiplies all those zeros: looking up is the same, and cheaper. As a
# `Linear` its weight would be `table.T`, $(C, V)$, one column per token; the table is kept the other way round, so that the vector of token $i$ is **row** $i$. (In this table a
# column is one feature of all tokens, not a vector of one token.)

# %% tags=["source-hidden"]
predict(
    "A program marks places without a word by the id -1. What is `table[-1]`?",
    key=lambda: {4: "the row of token 4", 0: "the row of token 0"}[(table == table[-1]).all(-1).nonzero().item()],
    choices={
        "an error": "It should be. Python counts negative places from the end, and so does a tensor.",
        "the row of token 0": "Python counts negative places from the end.",
        "the row of token 4": "",
    },
    because="-1 is the last row: a mark for *nothing* silently becomes the last word of the vocabulary.",
)

# %%
print(table[-1])

# %% [markdown]
# The model would train on it, and nobody would notice. So a good embedding refuses what is no id.
#
# ### Your turn
# - ids has any shape $(...)$, and the result is $(..., C)$. A single id, a tensor without axes, gives one row.
# - An id below 0 or above $V - 1$ raises an `IndexError`.
# - Gradients reach the table: a row that is named twice gets both. The result has the table's dtype.


# %% tags=["exercise"] name="embedding" minutes=10 difficulty=2
def embedding(ids, weight):
    """ids (...): integers. weight (V, C). Returns (..., C): row i of weight for each id i; IndexError outside 0..V-1."""
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
# A tensor indexed with a tensor of ids gives a row for each of them, in their shape. The look at the range comes first; note the parentheses around both comparisons,
# because `|` binds more tightly than `<`. `F.embedding(ids, weight)` alone is right, too: it refuses by itself, on the CPU. The usual slips: `weight[:, ids]`, which takes
# columns; `one_hot(ids)` without V, which is as wide as the largest id that happens to occur; `assert`, which `python -O` leaves out; and a `.tolist()` on the way, which the gradient cannot follow.

# %% [markdown] slide="subslide"
# ### The library's version
# PyTorch's `F.embedding` with a table of its own. It equals yours, and the product with one-hot vectors:

# %% rows=["S0-9", "S0-10", "S0-12"] evidence="looked-up"
embed, ids = Embedding(10_000, 512), torch.tensor([5, 23, 156])
vectors = embed(ids)  # (3) -> (3, 512)
assert torch.equal(vectors, find_exercise("embedding").reference(ids, embed.weight))
torch.testing.assert_close(vectors, one_hot(ids, 10_000).float() @ embed.weight)
assert embed(ids.view(1, 3)).shape == (1, 3, 512) and embed.weight.abs().max() <= 3
print(f"standard deviation {embed.weight.std().item():.3f}, largest {embed.weight.abs().max().item():.2f}")
assert abs(embed.weight.std().item() - narrower) < 0.005
in_model = TransformerLM(shipped.model.config).embed.weight.std().item()
print(f"in a new model like the shipped one: {in_model:.3f}")
assert in_model < 0.1
show(Embedding)

# %% [markdown]
# A whole model may draw its weights again, in the way that its configuration names, as the second printed line shows. [[looked-up]]
#
# For values that are not valid ids, the embedding raises an error:

# %% evidence="ids-refused"
for bad_id in (-1, 10_000):
    try:
        embed(torch.tensor([5, bad_id]))
    except IndexError as error:
        print("IndexError:", error)
    else:
        raise AssertionError(f"{bad_id} was looked up")

# %% tags=["source-hidden"]
small = Embedding(5, 3)
small(torch.tensor([2, 0, 2])).sum().backward()
predict(
    "The ids 2, 0, 2 are looked up in a new table with 5 rows, and all the numbers are added up. What gradient has each number of row 2?",
    key=lambda: f"{small.weight.grad[2, 0]:.0f}",
    choices={
        "0": "Its numbers are part of the sum: if they grow, the sum grows.",
        "1": "That would be one use. It has two.",
        "2": "",
    },
    because="It is used twice, and the gradients of both uses add up.",
)

# %%
print(small.weight.grad)

# %% [markdown]
# If the table is used only for the input, as here, rows that no text named get a gradient of 0: this step does not train them (an optimizer may still shrink them a little). If the output layer uses the same table, all its rows get a gradient. The rows that were named move. Where to? A popular picture: a vector is a *personality profile*, and
# similar words get similar profiles. Let us see in the model that ships with the library. We compare the directions of two rows by their cosine: 1 is the same, 0 unrelated.

# %%
kinds = {"girls": sentences.GIRLS.split(), "boys": sentences.BOYS.split()}
kinds |= {f"{kind}s": sentences.CLASSES[kind] for kind in ("colour", "thing", "place", "trait")}
rows = {kind: torch.tensor([tokenizer.encode(f" {word}")[0] for word in names]) for kind, names in kinds.items()}


def alike(table: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> float:
    directions = nn.functional.normalize(table, dim=-1)  # (V, C)
    cosines = directions[one] @ directions[other].T  # (N, C) @ (C, M) -> (N, M)
    return cosines[one[:, None] != other].mean().item()


# %% rows=["S0-11"] evidence="same-kind-cosine"
trained = shipped.model.embed.weight.detach()  # (V, C)
new = Embedding(*trained.shape).weight.detach()
own, others, untrained = [], [], []
for ids in rows.values():
    rest = torch.cat([more for more in rows.values() if more is not ids])
    own.append(alike(trained, ids, ids))
    others.append(alike(trained, ids, rest))
    untrained.append(alike(new, ids, ids))
for name, means_of in {"same kind": own, "another kind": others, "same kind, untrained": untrained}.items():
    print(f"{name:<21} mean cosine {fixed(min(means_of), 2):>5} to {fixed(max(means_of), 2)}")
assert max(own) < 0.3 and min(own) > 0.05 > max(map(abs, others + untrained))

# %% evidence="another-kind"
weather = torch.tensor([tokenizer.encode(f" {word}")[0] for word in sentences.CLASSES["weather"]])  # (N)
print(f"a seventh kind, weather: {fixed(alike(trained, weather, weather), 2)}")
assert alike(trained, weather, weather) > 0.4

# %% [markdown]
# For these six kinds, two words of one kind have only a little in common: their mean cosine is small, but it is positive for each kind. For other kinds it is higher, such as for the words of the weather [[another-kind]]. Is so little of any use? Let us try to guess the kind of a
# word from its row alone. For each word we compute the mean direction of each kind, *without this word*, and take the kind whose mean is nearest.


# %%
def nearest_kind(vectors: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """vectors (N, C), labels (N): kinds as numbers. Returns (N): the kind whose mean, without the word, is nearest."""
    directions, nearest = nn.functional.normalize(vectors, dim=-1), []
    for i, direction in enumerate(directions):
        without = torch.arange(len(labels)) != i
        kind_means = torch.stack([directions[without & (labels == kind)].mean(0) for kind in range(len(kinds))])
        cosines = nn.functional.cosine_similarity(kind_means, direction, dim=-1)  # (K, C), (C) -> (K)
        nearest.append(cosines.argmax())
    return torch.stack(nearest)


def n_right(vectors: torch.Tensor, labels: torch.Tensor) -> int:
    return (nearest_kind(vectors, labels) == labels).sum().item()


# %%
word_ids = torch.cat(list(rows.values()))  # (N)
labels = torch.cat([torch.full((len(ids),), kind) for kind, ids in enumerate(rows.values())])  # (N)
right_trained = n_right(trained[word_ids], labels)

# %% tags=["source-hidden"]
predict(
    f"There are {len(labels)} words of {len(kinds)} kinds. For how many of them is the nearest mean that of their own kind?",
    key=lambda: next(text for limit, text in ((35, "about 21"), (90, "about 63"), (126, "nearly all")) if right_trained <= limit),
    choices={
        "about 21": "That is a sixth of them, as many as a guess gets right. The common part is small, but it is not 0.",
        "about 63": "So much for a cosine of two single words. A mean of many words is more precise than one word.",
        "nearly all": "",
    },
    because="What is different in the words of a kind mostly cancels in their mean, and what they have in common remains.",
)  # fmt: skip

# %% evidence="nearest-kind"
shuffled, new_models = [], []
for seed in range(5):
    generator = torch.Generator().manual_seed(seed)
    shuffled.append(n_right(trained[word_ids], labels[torch.randperm(len(labels), generator=generator)]))
    _ = torch.manual_seed(seed)
    new_model = TransformerLM(shipped.model.config)
    new_models.append(n_right(new_model.embed.weight.detach()[word_ids], labels))
print(f"the shipped model's rows:       {right_trained} of {len(labels)} right")
print(f"the same rows, kinds shuffled:  {min(shuffled)} to {max(shuffled)}")
print(f"the rows of untrained models:   {min(new_models)} to {max(new_models)}")
all_names, found_kinds = [name for names in kinds.values() for name in names], nearest_kind(trained[word_ids], labels)
mistakes = (found_kinds != labels).nonzero()[:, 0].tolist()
print("mistakes:", ", ".join(f"{all_names[i]} to the {list(kinds)[found_kinds[i]]}" for i in mistakes))
assert right_trained > 0.9 * len(labels) and max(shuffled + new_models) < 0.35 * len(labels)
assert ((found_kinds < 2) == (labels < 2)).all()  # kinds 0 and 1 are girls and boys

# %% [markdown]
# So both are true for these six kinds: the rows of one kind have only a small part of their direction in common, and this part is enough to find the kind of 120 of the 126 words. All six mistakes confuse girls
# and boys. [[nearest-kind]]
#
# A picture of 128 axes is not possible, but a picture of two is. The **principal components** (Pearson 1901) of a cloud of points are the directions in which it varies most.
# They come from the points alone: this computation does not know the kinds, which only choose the colour of each point.


# %% evidence="two-directions"
def in_plane(vectors: torch.Tensor) -> tuple[torch.Tensor, float]:
    """vectors (N, C). Their coordinates (N, 2) along the first two principal directions, and how much these hold."""
    cloud = nn.functional.normalize(vectors, dim=-1)
    cloud = cloud - cloud.mean(0)
    _, spreads, directions = torch.linalg.svd(cloud, full_matrices=False)  # directions (C, C): its rows, widest first
    return cloud @ directions[:2].T, (spreads[:2].square().sum() / spreads.square().sum()).item()


plane, held = in_plane(trained[word_ids])
plane = plane * plane[labels == 0].mean(0).sign()  # an axis may point either way: put girls on the positive side
held_new = in_plane(new[word_ids])[1]
print(f"two directions hold {held:.0%} of the variance; {held_new:.0%} before training")
print(f"nearest kind from these two coordinates: {n_right(plane, labels)} of {len(labels)} right")
assert 0.08 < held < 0.12 and held > 1.4 * held_new and n_right(plane, labels) < right_trained - 10

# %% tags=["source-hidden"]
hues = [*figures.SERIES[:4], figures.QUIET, figures.INK]
with figures.axes("Words gather by kind", "first direction", "second direction", (8.6, 6.2)) as (figure, ax):
    for kind, (name, hue, marker) in enumerate(zip(kinds, hues, "osD^vX", strict=True)):
        across, up = plane[labels == kind].T.tolist()
        ax.scatter(across, up, s=75, color=hue, marker=marker, label=name, edgecolors="white")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), handletextpad=0.2)
middles = torch.stack([plane[labels == kind].mean(0) for kind in range(len(kinds))])  # (K, 2)
figures.display(
    figure,
    alt="Scatter plot of 126 words in two directions: places lie at the left, girls and boys together at the right, colours and traits together below, things between them.",
    caption="Each point is a word. Four groups are visible: names, places, things, and colours with traits. Girls and boys lie over each other here, and so do colours and traits.",
    table={"kind": list(kinds), "mean, first": middles[:, 0].tolist(), "mean, second": middles[:, 1].tolist()},
    digits=1,
)  # fmt: skip

# %% [markdown]
# These two directions hold only 10 % of the variance, so the picture hides much: girls and boys overlap in it, and so do colours and traits. [[two-directions]] Our count used all 128 numbers of a row, where even these
# are apart for nearly all words.
#
# That we can read the kind from a row does not prove that the model uses it. So we take the common part away: from each of the 126 rows we subtract the mean of its kind, and add the
# mean of all of them. To compare, we subtract something else of the same length: a random vector for each kind, or a part of what distinguishes each word from the mean of its kind (its *own* part). The weights of the layers stay as they are.

# %%
stories = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(100, 110)]


def loss_with(new_rows: torch.Tensor) -> float:
    """new_rows (N, C): of the words in word_ids. The mean loss on ten stories, in nats (the cost of lesson 00)."""
    changed, losses = deepcopy(shipped.model).eval(), []
    changed.embed.weight.data[word_ids] = new_rows
    for text in stories:
        tokens = torch.tensor([tokenizer.encode("\n" + text)])  # (1, T)
        with torch.no_grad():
            losses.append(next_token_loss(changed(tokens[:, :-1]), tokens[:, 1:]).item())
    return sum(losses) / len(losses)


# %% evidence="kind-removed"
old_rows = trained[word_ids].clone()  # (N, C)
common = torch.stack([old_rows[labels == kind].mean(0) for kind in range(len(kinds))]) - old_rows.mean(0)  # (K, C)
losses = {"as it is": loss_with(old_rows), "common part removed": loss_with(old_rows - common[labels])}
for seed in range(3):
    noise = torch.randn(common.shape, generator=torch.Generator().manual_seed(seed))  # (K, C)
    noise = noise * common.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
    losses[f"random part removed, {seed}"] = loss_with(old_rows - noise[labels])
own_part = old_rows - old_rows.mean(0) - common[labels]  # (N, C): each word minus the mean of its kind
lengths = common.norm(dim=-1)[labels, None]  # (N, 1)
losses["own part shortened"] = loss_with(old_rows - lengths * nn.functional.normalize(own_part, dim=-1))
for name, nats in losses.items():
    print(f"{name:<24} loss {nats:.1f}")
assert losses["common part removed"] > losses["as it is"] + 1
assert all(abs(nats - losses["as it is"]) < 0.1 for name, nats in losses.items() if "common" not in name)

# %% [markdown]
# Without the common part the loss rises from 0.7 to 3.3 nats, while a random change of the same size does next to nothing, and neither does a change of each word's own part. This model uses what the words of a kind have in common. [[kind-removed]]
#
# Nobody gave the model a list of colours. A likely reason, which we do not test here: words of one kind occur in the same contexts, so training moves their rows in similar directions.

# %% [markdown] tags=["note"]
# Before the count, ask whether a mean cosine of 0.10 to 0.23 is of any use. The usual wrong answer is *no*, because it is nearly 0. Then ask why we compute the mean without the word itself
# (otherwise it helps to find itself). Ask, too, what the row of a word that never occurs looks like after training: as at the start, unless weight decay shrinks it or the output layer uses the same table. These
# results hold for six kinds of words: with others, such as the weather, the mean cosine is higher.

# %% [markdown] slide="slide"
# ## 6. Break it
# **A table that is no parameter.** The course note of section 3 keeps its table of vectors as a plain tensor. Everything runs.


# %%
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.randn(5, 4)  # should be nn.Parameter(torch.randn(5, 4))
        self.head = Linear(4, 5)

    def forward(self, ids):
        return self.head(self.table[ids])


model = Plain()

# %% tags=["source-hidden"]
predict(
    "A table of 5 rows with 4 numbers, and a linear map from 4 to 5. How many learnable numbers does `model.parameters()` find?",
    key=lambda: sum(p.numel() for p in model.parameters()),
    number="numbers",
    within=0,
    feedback={40: "So it should be. But only an `nn.Parameter` is entered in that list."},
    because="The linear map has 20. The table is a plain tensor, and `parameters()` does not list plain tensors.",
)

# %% [markdown]
# So the optimizer never gets it. Let us train, save and load.

# %%
ids, before = torch.tensor([0, 1, 2, 3]), model.table.clone()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(ids).square().mean().backward()
    optimizer.step()
print("the table after 5 steps is unchanged:", torch.equal(model.table, before))

# %% rows=["S1-3"] evidence="plain-table"
again = Plain()
print("saved:", list(model.state_dict()))
print("loading says:", again.load_state_dict(model.state_dict()))
print("the outputs are the same:", torch.allclose(again(ids), model(ids)))
assert torch.equal(model.table, before) and list(model.state_dict()) == ["head.weight"]
assert not torch.allclose(again(ids), model(ids))

# %% evidence="buffer"
with_buffer = nn.Module()
with_buffer.register_buffer("table", torch.randn(5, 4))
print("a buffer: saved", list(with_buffer.state_dict()), "but parameters()", list(with_buffer.parameters()))
assert list(with_buffer.state_dict()) == ["table"] and not list(with_buffer.parameters())

# %% [markdown]
# This table is not trained and not saved, and loading reports no problem. [[plain-table]] Print the number of parameters, and you will notice. A *buffer* is a tensor that is saved but not trained (`register_buffer`); it is the right choice for constants, but not for a table that should learn. [[buffer]]
#
# **A forgotten transpose.** Somebody writes `x @ weight`. With sizes that differ, `trace` shows where they do not fit:


# %%
def hasty(x, weight):
    return x @ weight


trace(hasty, torch.randn(7, 4), torch.randn(6, 4), sizes={"T": 7})

# %% [markdown]
# With a square weight, as many in a Transformer are, nothing is said at all. The check has a name for it:

# %%
vectors, weight = torch.randn(5, 4), torch.randn(4, 4)
assert hasty(vectors, weight).shape == (5, 4) and not torch.allclose(hasty(vectors, weight), vectors @ weight.T)
print(diagnose("linear", hasty).message)

# %% [markdown]
# ## What you have now
# - Broadcasting aligns shapes from the right. Keep the axis of a sum or a mean. [[kept-axis]] With sizes that all differ, a mean over the last axis without `keepdim` raises an error [[sizes-differ]]; a wrong `dim` may still raise none, so
#   check the values, too. [[wrong-dim]]
# - A linear map computes a dot product with each row of its weight, which has the shape $(out, in)$. [[rows-of-weight]] This order is a convention: in our timings on one core, neither order took twice as
#   long as the other. [[order-timed]]
# - A transpose copies nothing: it only exchanges strides. [[transpose-strides]] `safetensors.torch.save` refuses a tensor that is not contiguous [[not-contiguous]], while `save_model` makes a contiguous copy first. [[saved-by-copy]]
# - A new `Linear` draws its weights from a normal distribution with the standard deviation $\sqrt{2/(in+out)}$ [[tails-cut]], and a new `Embedding` from one with 1, both cut off at three standard deviations. A model may draw them
#   again in another way. [[looked-up]] `trunc_normal_` takes the limits of the cut as absolute numbers. [[absolute-limits]]
# - An embedding looks up a row, which equals the product with a one-hot vector. [[looked-up]] On the CPU it raises an error for ids out of range. [[ids-refused]] A table that is a plain tensor is not in `parameters()` or
#   `state_dict()`. [[plain-table]] A buffer is saved, but it is not a parameter. [[buffer]]
# - In the shipped model's table, the rows of our six kinds of words have only a small part of their direction in common [[same-kind-cosine]]; those of the weather have more. [[another-kind]] This small part is enough to find the kind of
#   more than nine in ten of these words [[nearest-kind]], and without it the loss rises by more than 1 nat. [[kind-removed]]

# %% [markdown]
# ## Sources
# Initial scale: Glorot and Bengio 2010, *Understanding the difficulty of training deep feedforward neural networks*, equation 12. Vectors for words, learned with
# the model: Bengio et al. 2003, *A Neural Probabilistic Language Model*, section 2. Gradients and strides as used here: Paszke et al. 2019, *PyTorch: An Imperative Style,
# High-Performance Deep Learning Library*, section 4. Principal components: Pearson 1901, *On Lines and Planes of Closest Fit to Systems of Points in Space*. The file format:
# [safetensors](https://github.com/huggingface/safetensors), section *Format* of its README.
