# %% [markdown] deck="What does a word do with what it has fetched?"
# # 08 Feedforward
# **What does a word do with what it has fetched?**
#
# *Needs* lessons 02 to 07. *Builds* `silu` and `swiglu` (in the library: `layers.py`, and `GatedMLP` in `feedforward.py`). *Runs* in about 20 s on two cores.
# *Teaches* in about 45 minutes, plus 20 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: after attention has fetched, each position works by itself, with many small rules of the form *if this, then add that*. A rule that needs two facts at once needs an activation function, because no linear map can test it. Sections 1 to 4 build the feed-forward, section 5 rewrites a rule of a trained model.
# The exercises are homework, or a second hour. If you have only ten minutes, show section 1 and write a word into a unit, in section 5.

# %% [markdown] tags=["note"]
# **Say.** Attention moves vectors between positions. Today we look at the other half of a layer, which moves nothing. Show the three texts early, and let the class find the rule of each unit before anything is explained.
#
# **Usual answers.**
# - *Unit 34 reacts to every "the"* (from the room): Change the line: *By the*, *With the*.
# - *The feed-forward makes "end" out of "In the"* (from the room): Stop it in the view. The words stay, so somebody else knows them, too. Section 5 comes back to it.
#
# **Cut if short.** The reordered positions; say their result.
#
# **Tried.** Ten sets of 60 stories: at *the* after *In* unit 34 has a mean activation of 8.0 to 9.6, at *the* after another word at most 0.3, at another word at most 3.5. Reordered positions: exact, in all three layers.

# %% [markdown]
# ## 1. In the ..., by the ...
# > There she met Felix, a singer with a yellow lantern. **In the** \_\_\_
#
# In the stories of our model only *end* or *light* can come next. **Your task:** exchange *In* for *By*. Which words come now?

# %%
import torch

from tinylm_classroom import activations, capture, reactions, what_if
from tinylm_classroom import feedforward_figures as figures
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
TEXT = (
    "One cold morning, friendly Amara came to Foxhollow. She had a gray cup. "
    "There she met Felix, a singer with a yellow lantern."
)

# %% tags=["source-hidden"] deck="Task: exchange *In* for *By*. Which words come now?"
what_if(model, tokenizer, f"\n{TEXT} In the")

# %% [markdown]
# Both beginnings end with *the*. After *By the* the model says *yellow* or *gray*, the colours in this story. So attention must fetch the word before. But who makes something of both words? A layer has a second half, which works after attention: the **feed-forward**, also called *MLP* (multilayer perceptron).
#
# A feed-forward consists of **units**, also called *neurons*. At each position each unit computes one number, its **activation**: how strongly it reacts to what is there. The shipped model has 320 units in each of its three layers. Here three units of the last layer read a text:

# %% tags=["signature"] deck="Three units, three rules: what does each react to?"
QUOTED = ' Amara said to Felix, "Old bees sleep gladly." In the end'


def read(text):
    """The tokens of a text, and the activations of the last layer there (T, F)."""
    ids = torch.tensor([tokenizer.encode("\n" + text)])  # (B, T)
    said = [tokenizer.decode([token]) for token in ids[0, 1:].tolist()]
    return said, activations(model, ids)[0, 1:]


# ESSENTIAL
said, active = read(TEXT + QUOTED)
figures.units(said, {unit: active[:, unit].tolist() for unit in (203, 34, 70)})
# END

# %% [markdown]
# Unit 203 reacts to colours. What about unit 34? Is it active at every *the*?

# %% deck="Unit 34 is active only if two facts are true"
ending = "In the"  # try "By the", "In a" and "With the"
_, at_ending = read(f"{TEXT} {ending}")
print(f"{ending}: the activation of unit 34 is {at_ending[-1, 34]:.1f}")

# %% tags=["source-hidden"] evidence="both-facts" tried="held-out"
# Checked in three other sets of stories: only where both facts are true the mean is large.
SEEDS = (1, 2, 3)
for seed in SEEDS:
    at = reactions(model, tokenizer, 34, "In the", seed)
    assert at.at_both > 6 > 5 > at.elsewhere and at.at_second < 1

# %% [markdown]
# The unit reacts to *the* after *In*, and hardly to anything else. [[both-facts]] It cannot see *In*, because a feed-forward works **at each position by itself**: attention must have brought what it needs. If that is true, then reordered positions must have the same results as before:

# %%
from tinylm_classroom import beginning, entering, ids_of_stories, predict

caught = capture(model, ids_of_stories(tokenizer, 20, 8))
into = caught.inputs["blocks.0.ffn"]  # (B, T, C)
order = torch.randperm(into.shape[1], generator=torch.Generator().manual_seed(8))  # (T)
ffn = model.blocks[0].ffn
torch.testing.assert_close(ffn(into[:, order]), ffn(into)[:, order], atol=1e-4, rtol=0)

# %% tags=["source-hidden"] evidence="each-position-alone" tried="exact"
# Checked in each layer: reordered positions keep their results.
for at, part in enumerate(block.ffn for block in model.blocks):
    x = caught.inputs[f"blocks.{at}.ffn"]  # (B, T, C)
    assert part(x[:, order]).allclose(part(x)[:, order], atol=1e-3)

# %% [markdown]
# They have. [[each-position-alone]] Without attention no position could know what is at another one.

# %% [markdown] tags=["note"]
# **Say.** Two facts, four cases, and only one of them counts. It sounds like nothing. But a linear map cannot do it, whatever its weights are, and however many of them are in a row.
#
# **Usual answers.**
# - *8* (`8`): The offset is in both numbers, so it is counted twice.
# - *Any number, because it has not been trained* (`any number: it is free`): Three cases fix both weights and the offset. What is left to choose?
# - *A larger linear network would do it* (from the room): Two linear maps in a row are one. The left panel has 60 of them.
# - *All 60, it is such a simple task* (`all of them`): One unit is enough, and each network has six. But can all of them learn?
# - *About half* (`about half`): A start can be bad, but it has six units. How many must be lost?
#
# **Cut if short.** The product of the two matrices.
#
# **Tried.** ReLU, seeds 0 to 59, 60 to 119, 120 to 179, and 300 others: 5, 7, 2 and 19 runs fail; in all 33 at most 2 of 6 units are alive at the end (0 in 8, 1 in 23, 2 in 2). Rates 0.01, 0.03, 0.1 and 0.3: 2, 5, 5 and 31 of 60 fail, the same after 1,500 updates (at 0.03 only 1 of the 5 has no living unit, at 0.3 30 of the 31; other seeds: 1 to 8, 2 to 8, 2 to 12, 24 to 29; at 0.01 two of them with 3 units alive); at 0.003 21 are not finished after 300 updates, 2 after 1,500. The only living unit of a failed run (180 seeds, 11 such runs) is active where one of the facts is 0, or in one of the two middle cases; in the 10 runs that learn with one it is active at (1, 1) alone. Without an activation function 60 of 60 fail at each rate, all at 1/16. The losses of failed runs are those of what is left: 3/16 for a constant, 1/8 for one fact alone, 1/6 for a unit that is active in three cases. What enters unit 34 after twelve beginnings: *In the* 9.1 to 10.3, where the sum of two facts would give -0.6 to 0.6; without head 1 of the same layer, which looks back from *the* at *In*, 2.8 to 4.0 is left.

# %% [markdown]
# ## 2. No linear map can test two facts
# Unit 34 has it easy: what enters it is large only where both facts are true, mostly through head 1 of the same layer. [[who-tests]] Could a feed-forward test two facts alone? And a linear map? We write each fact as 0 or 1, and want 1 if both are 1, and 0 otherwise.

# %% tags=["source-hidden"] evidence="who-tests" tried="held-out"
# Checked after three beginnings: what enters is not a sum of facts, and head 1 makes most of it.
SEEDS = (1, 2, 3)
for text in map(beginning, SEEDS):
    enters = entering(model, tokenizer, text, 34)
    assert enters.both > 6 > 3 > enters.sum_of_facts and enters.without_head < 0.6 * enters.both

# %% tags=["source-hidden"] deck="A linear map gives 1, 3 and 5 for three cases. And for the fourth?"
predict(
    "A linear map of two facts, with an offset, gives 1 for (0, 0), 3 for (1, 0) and 5 for (0, 1). What does it give for (1, 1)?",
    key=lambda: f"{(torch.tensor([1.0, 1.0]) @ torch.tensor([2.0, 4.0]) + 1).item():.0f}",
    choices={
        "7": "",
        "8": "3 + 5 counts the offset twice.",
        "any number: it is free": "Three cases fix both weights and the offset. Nothing is left to choose.",
    },
    because="Each fact adds its own amount, whatever the other one is: 1 + 2 + 4.",
)

# %% [markdown]
# So three times 0 gives a fourth 0. A linear map is a tilted plane over the square of the four cases. Choose its two weights and its offset:

# %% deck="A plane misses, a folded sheet does not"
plane = (0.5, 0.5, -0.25)  # try (1.0, 1.0, -1.0) and (0.0, 0.0, 0.0)
figures.plane_and_sheet(plane)

# %% [markdown]
# The best plane misses every corner by a quarter. The sheet on the right is folded once: add the facts, subtract 1, and replace what is below 0 by 0. This fold is called **ReLU**. Could we ask instead whether the plane is above 0.5? All four cases would be right, but a threshold is not linear: it is an activation function, too.

# %%
facts = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
wanted = torch.tensor([0.0, 0.0, 0.0, 1.0])
added = facts @ torch.tensor([1.0, 1.0]) - 1  # (4)
print("before ReLU", added.tolist(), " after", torch.relu(added).tolist())
assert torch.relu(added).equal(wanted)

# %% [markdown]
# Such a function is an **activation function**: the unit's activation is what comes out. The classic feed-forward maps $C$ features *up* to $F$ units, applies the function $f$, and maps them *down* to $C$ features again ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)). Without biases, as in Llama:
#
# $$W_{down}\,f(W_{up}\, x)$$
#
# ### Can it be learned?
# 60 networks with six units each learn the four cases, side by side:

# %%
from tinylm_classroom import starts

SEEDS = range(60)


def train(activation, rate=0.03, bias=None, seeds=SEEDS):
    """The last loss of each network, and how many units are above 0 for some case."""
    w_up, b_up, w_down, b_down = weights = starts(seeds, bias)  # R networks
    optimizer = torch.optim.Adam(weights, lr=rate)
    for _ in range(300):
        # ESSENTIAL
        before = facts @ w_up.mT + b_up  # (R, 4, 6)
        answers = activation(before) @ w_down.mT + b_down  # (R, 4, 1)
        losses = (answers[..., 0] - wanted).square().mean(-1)  # (R)
        # END
        optimizer.zero_grad()
        losses.sum().backward()  # each network for itself
        optimizer.step()
    return losses.detach(), (before > 0).any(1).sum(-1)


def nothing(x):
    return x


# %% slide="skip"
losses, alive = {}, {}
for name, function in {"no activation function": nothing, "ReLU": torch.relu}.items():
    losses[name], alive[name] = train(function)

# %% tags=["source-hidden"] deck="60 networks with ReLU learn the four cases. How many succeed?"
predict(
    "One unit with ReLU is enough, and each of the 60 networks has six. How many networks learn the task?",
    key=lambda: "nearly all" if 0 < (losses["ReLU"] > 0.01).sum() < 15 else "another number",
    choices={
        "all of them": "A solution exists, but training must find it.",
        "nearly all": "",
        "about half": "A network fails only if it loses nearly all of its units.",
    },
    because="In a few runs at most one unit still reacts, and to wrong cases.",
)

# %% tags=["source-hidden"] deck="Without an activation function no run learns, with ReLU most do"
figures.runs(losses, alive)

# %% tags=["source-hidden"] evidence="few-units-left" tried="seeds"
# Checked: linear networks stay at 1/16; ReLU networks fail only with at most two units alive.
assert (losses["no activation function"] - 1 / 16).abs().max() < 1e-3
failed = losses["ReLU"] > 0.01  # (R)
assert failed.sum() < 20 and (not failed.any() or alive["ReLU"][failed].max() <= 2)
assert (train(torch.relu, 0.3)[0] > 0.01).sum() > failed.sum() + 5  # with larger steps more fail

# %% [markdown]
# Without an activation function every run ends at 1/16, the loss of the best plane. A second linear map changes nothing, because two linear maps in a row are one:

# %% evidence="one-map" tried="exact"
w_up, b_up, w_down, b_down = (each[0].detach() for each in starts([0]))
matrix = w_down @ w_up  # (1, 6) @ (6, 2) -> (1, 2)
offset = b_up @ w_down.mT + b_down  # (1, 1)
in_a_row = (facts @ w_up.mT + b_up) @ w_down.mT + b_down  # (4, 1)
torch.testing.assert_close(in_a_row, facts @ matrix.mT + offset)

# %% [markdown]
# With the product of both matrices the results are the same. [[one-map]] With ReLU most runs learn the task. Where a run fails, at most two of its six units are still alive. [[few-units-left]] One living unit is enough only if it asks the right question: in failed runs it reacts to wrong cases, and the dead ones cannot learn better. How does a unit die?

# %% [markdown] tags=["note"]
# **Say.** ReLU multiplies by 0 or by 1. Left of 0 it is flat, and where it is flat nothing can be learned. Replace the switch by something soft, and a unit that is off can come back.
#
# **Usual answers.**
# - *All three, they are nearly the same* (`ReLU and SiLU and GELU`): Left of 0 ReLU is flat. Move x a little: what changes?
# - *None, all are off* (`none`): SiLU and GELU are close to 0 there, but their slopes are not 0.
# - *SiLU is about 0 below 0 and about x above* (from the room): Far away, yes. Near 0, where most numbers are, -1 becomes -0.2689. And it does not only rise: -1 comes out lower than -5.
# - *The gate is returned alone* (`sigmoid alone`): The sigmoid is the gate. What passes through it?
# - *The formula with exp* (`overflows below`): Its values are right, but far below 0 its gradient is NaN.
#
# **Cut if short.** The line with the large steps.
#
# **Tried.** Starts at -3: ReLU fails in 60 of 60, at 3/16; SiLU and GELU learn in 60 of 60. Usual starts: SiLU and GELU learn in 480 of 480 at the rate 0.03, and in 60 of 60 at 0.01 and 0.1. At 0.3 60 of 60 SiLU runs learn, and 59 or 60 of GELU. Slopes at -3: 0, -0.0881 and -0.0119.

# %% [markdown]
# ## 3. Dead units and softer functions
# In training, the **slope** matters: a gradient on its way back is multiplied by it (lesson 02). A ReLU unit that is below 0 for every input has the slope 0 everywhere. It gets no gradient, so its weights stay as they are: a **dead unit**. With larger steps more units die:

# %% deck="With larger steps more units die"
rate = 0.3  # try 0.03 and 0.01
last, still_alive = train(torch.relu, rate)
fail = last > 0.01  # (R)
print(f"{fail.sum()} of 60 fail, {(still_alive[fail] == 0).sum()} with no living unit")

# %% [markdown]
# ReLU multiplies $x$ by 1 or by 0. A softer function multiplies it by a **gate** between 0 and 1:
#
# - **SiLU**, or *swish*: the gate is the sigmoid of lesson 03. $\text{silu}(x) = x \cdot \sigma(x)$ with $\sigma(x) = 1 / (1 + e^{-x})$
# - **GELU**: the gate is the probability that a draw from a standard normal distribution is below $x$. $\text{gelu}(x) = x \cdot \Phi(x)$
#
# Llama has SiLU, GPT-2 has GELU ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).

# %% slide="skip"
from tinylm_lib import layers

functions = {"ReLU": torch.relu, "SiLU": layers.silu, "GELU": layers.gelu}

# %% tags=["source-hidden"] rows=["S4-45"] deck="Left of 0 ReLU is flat, SiLU and GELU are not"
figures.curves(functions)

# %% slide="skip"
off_losses, off_alive = {}, {}
for name, function in functions.items():
    off_losses[name], off_alive[name] = train(function, bias=-3.0)

# %% tags=["source-hidden"] deck="All units start at about -3. Which networks can still learn?"
able = [name for name, found in off_losses.items() if found.max() < 0.02]
predict(
    "All six units start at about -3 for every case. Which networks can still learn?",
    key=lambda: " and ".join(able),
    choices={
        "ReLU and SiLU and GELU": "At -3 ReLU is flat. Where nothing changes, the gradient is 0.",
        "SiLU and GELU": "",
        "none": "SiLU and GELU are close to 0 there, but they still change a little.",
    },
    because="At -3 the slope of ReLU is exactly 0, so all of its units are dead.",
)

# %% tags=["source-hidden"] deck="All units off at the start: only ReLU cannot learn"
figures.runs(off_losses, off_alive)

# %% tags=["source-hidden"] evidence="dead-units" tried="seeds" rows=["S0-28", "S1-10", "S1-9"]
# Checked: off at the start, only ReLU fails, in every run; the formula; its NaN far below 0.
assert able == ["SiLU", "GELU"] and off_losses["ReLU"].min() > 0.18 and off_alive["ReLU"].max() == 0
x = torch.tensor([-89.0, -5.0, -3.0, -1.0], requires_grad=True)
slopes = [torch.autograd.grad(function(x).sum(), x)[0] for function in functions.values()]
assert slopes[0][2] == 0 and slopes[1][2] * slopes[2][2] != 0 and slopes[1].isfinite().all()
assert layers.silu(x).allclose(x * torch.sigmoid(x)) and layers.silu(x)[3] < layers.silu(x)[1] < 0
assert torch.autograd.grad((x / (1 + torch.exp(-x))).sum(), x)[0][0].isnan()

# %% [markdown]
# With SiLU and GELU every run learned, even from this start. [[dead-units]] Their slopes at -3 are small, but they are not 0.
#
# ### Your turn: SiLU
# Each number of a tensor, times its sigmoid.

# %% slide="skip"
from tinylm_classroom import check, hint, keep


# %% tags=["exercise"] name="silu" minutes=6 difficulty=1 deck="Your turn: SiLU"
def silu(x):
    """x (...), any shape: x times its sigmoid, each number by itself.

    Returns (...) in the dtype of x. The caller's x is not changed.
    Values and gradients are finite from -1e6 to 1e30.
    """
    # SOLUTION
    return x * torch.sigmoid(x)
    # END


# %% tags=["check"]
if check("silu", silu).passed:
    keep("silu", silu)

# %% slide="skip"
hint("silu")

# %% [markdown] tags=["solution"]
# It is x, multiplied by its gate. Common mistakes: the gate alone; and `x / (1 + torch.exp(-x))`, whose values are right. But at -89 the exponential is inf in fp32: forward, x / inf is 0, and nobody notices; backward, 0 times inf is NaN, and one NaN can spoil all weights.

# %% [markdown] tags=["note"]
# **Say.** In SiLU one number decides both whether something passes and what passes. Two questions deserve two maps. Then the students write the feed-forward of Llama.
#
# **Usual answers.**
# - *silu on the up branch* (`swapped`): Which of the two branches decides how much passes?
# - *silu on the product* (`silu of the product`): Then neither branch is a gate. Look at the picture again.
# - *A sum of the two branches* (`added`): In a sum nothing is ever off.
# - *One weight for both branches* (`gate for both`): Two questions, two matrices.
# - *x is added* (`x added`): That is the work of the block (lesson 09).
# - *The weights without .T* (`not transposed`): They are stored as (out, in), as in lesson 02.
# - *A gate is between 0 and 1* (from the room): SiLU of the gate branch has no upper limit. In the picture of section 1 activations are much larger than 1.
#
# **Cut if short.** The library's source; keep the trace.
#
# **Tried.** Exact: the library's layer is the formula in ten random layers, to the last digit. Three sets of 60 stories (80 tokens): as trained 0.82 to 0.83 nats, SiLU on up 3.4 to 3.6, on both 1.0, on none 3.8 to 3.9, a sum instead of the product 6.5 to 6.7, ReLU instead of SiLU 0.83.

# %% [markdown]
# ## 4. Two branches: SwiGLU
# In SiLU one number answers two questions: *how much* passes, and *what* passes. Two questions deserve two maps. The **gate** branch decides how much, the **up** branch what, and the two are multiplied. With SiLU on the gate branch this is **SwiGLU** ([Shazeer 2020](https://arxiv.org/abs/2002.05202)), the feed-forward of the Llama models. Here $\odot$ multiplies number by number:
#
# $$\text{SwiGLU}(x) = W_{down}\,\big(\text{silu}(W_{gate}\, x) \odot W_{up}\, x\big)$$

# %% tags=["source-hidden"] rows=["S0-32"] deck="SwiGLU: one branch decides how much of the other passes"
figures.branches()

# %% deck="One SwiGLU unit, no bias: it tests two facts"
gate, up = facts.unbind(-1)  # (4), (4): one fact to each branch
print([round(n, 2) for n in (layers.silu(gate) * up).tolist()])

# %% [markdown]
# A product is large only if both of its factors are. So one unit tests two facts, even without a bias.
#
# ### Your turn: the whole feed-forward
# You may use your own `silu` or `torch.nn.functional.silu`.


# %% tags=["exercise"] name="swiglu" minutes=14 difficulty=2 deck="Your turn: the whole feed-forward"
def swiglu(x, w_gate, w_up, w_down):
    """x (..., C), any leading axes. w_gate and w_up (F, C), w_down (C, F).

    Weights are stored as (out, in), as in lesson 02. No biases. Any strides.
    Returns (..., C) in the dtype of x. Gradients reach all four.
    They are finite also where the gate branch is far below 0.
    """
    # SOLUTION
    gate = torch.nn.functional.silu(x @ w_gate.T)  # (..., F)
    return (gate * (x @ w_up.T)) @ w_down.T
    # END


# %% tags=["check"]
if check("swiglu", swiglu).passed:
    keep("swiglu", swiglu)

# %% slide="skip"
hint("swiglu")

# %% [markdown] tags=["solution"]
# Two maps from the same x, silu on one of them, the product, and a map back. Weights are (out, in), so each is used as `x @ w.T`. Common mistakes: silu on the up branch or on the product; a sum instead of a product; one weight for both branches; x added, which is the work of the block (lesson 09).

# %% [markdown]
# The library's layer, with the shape after each line:

# %%
from tinylm_classroom import show, trace
from tinylm_lib import ModelConfig
from tinylm_lib.feedforward import FFNS, GatedMLP

_ = torch.manual_seed(8)
layer = GatedMLP(ModelConfig(d_model=12, n_heads=3, d_ff=20), layers.silu)
small = torch.randn(2, 7, 12)  # (B, T, C)
trace(layer, small, sizes={"B": 2, "T": 7, "C": 12, "F": 20})

# %% tags=["source-hidden"] evidence="two-branches" tried="exact" rows=["S0-29", "S0-30", "S1-18"]
# Checked: the library's layer is the formula.
to_gate, to_up, back = (each.weight for each in (layer.gate_proj, layer.up_proj, layer.down_proj))
by_hand = (layers.silu(small @ to_gate.T) * (small @ to_up.T)) @ back.T  # (B, T, C)
torch.testing.assert_close(layer(small), by_hand)

# %% slide="skip"
show(GatedMLP)

# %% [markdown]
# The code is the formula. [[two-branches]] (**Dropout** sets some numbers to 0 at random in training. The shipped model has none.) Llama's code calls the matrices $W_1$ (gate), $W_3$ (up) and $W_2$ (down). It is a common mistake to take $W_3$ for the gate when you load weights. All shapes fit, so what happens?

# %%
from tinylm_classroom import token_losses, with_rule

ids = ids_of_stories(tokenizer, 60, 8)  # (B, T), the first 80 tokens
on_gate, on_up = False, True  # try (True, False), (True, True) and (False, False)


def silu_where(ffn, x):
    gate, up = ffn.gate_proj(x), ffn.up_proj(x)  # (B, T, F), (B, T, F)
    gate = layers.silu(gate) if on_gate else gate  # (B, T, F)
    up = layers.silu(up) if on_up else up  # (B, T, F)
    return ffn.down_proj(gate * up)


# %% deck="With SiLU on the wrong branch all shapes fit, and the loss is four times as high"
for name, reader in (("as trained", model), ("changed", with_rule(model, silu_where))):
    print(f"{name}: {token_losses(reader, ids).mean():.2f} nats a token")

# %% [markdown]
# So **look for the SiLU**: the gate is the branch that has it. Trained like this from the start, the model would do as well, because only two names are exchanged.

# %% [markdown] tags=["note"]
# **Say.** A unit reacts if the position looks like this, and then it adds that. We have seen the *if*. Now the *then*. And if it is a rule, we can rewrite it: every student chooses a word. Fill in the sentence *if ..., then ...* for unit 34 aloud.
#
# **Usual answers.**
# - *kite, it is the same unit* (`kite`): What is the activation of unit 34 after *By the*?
# - *Something broken, we changed the weights* (`a word that makes no sense`): 128 of 654,656 numbers. Where do they count?
# - *They are gone for good* (`neither, as without unit 34`): Then no other part knows them. Do you remember the view of section 1?
# - *A colour, as after "By the"* (`a colour`): The attention of this layer still works. What has it fetched?
# - *Then unit 34 is useless* (from the room): It decides against the other units of its layer. And its loss is better: without the whole feed-forward the choice between the two words is less even.
#
# **Cut if short.** The line with the largest rises.
#
# **Tried.** Eleven beginnings: 304 to 309 of 323 words are said after *In the*, 246 to 248 of them with a probability above 0.9. Each of the others says a word whose row points nearly the same way (cosine 0.90 to 0.996): weather for weather, *carried* for *brought*. After *By the* no probability moves by more than 0.02. Without the mean row taken away only 261 are said; with a column of the old length 306. Unit 34 removed, four sets of 60 stories: +2.5 to +3.6 nats on *end* and *light* (22 to 30 times), 0.000 on the others, and the most probable word is one of the two in 8 to 27 %. Without unit 239 the loss rises by at most 0.33 on any word, four sets; of all units alone 312 raise the mean loss by less than 0.001. Without any feed-forward: 1.68 to 1.73 nats instead of 0.82 to 0.83. All 320 removed: 100 %, and with all three feed-forwards stopped, too, at a loss of 0.58 to 0.95 instead of 0.55 to 0.67. With unit 34 alone in its layer: the same loss as with all.

# %% [markdown]
# ## 5. If this, then that
# What a unit passes on, its *number*, is its activation times up. The number multiplies the unit's column of `down_proj`, and the result is added at the position. After the last layer the model compares the sum with a row for each word. So the rows tell us which words a column raises ([Geva et al. 2022](https://arxiv.org/abs/2203.14680)):

# %% deck="If it reads this, it raises that"
unit = 34  # try 203, 70 and 64
rows = model.lm_head.weight * model.final_norm.weight  # (V, C), with its gain
column = model.blocks[2].ffn.down_proj.weight[:, unit]  # (C)
whole = torch.tensor([tokenizer.encode("\n" + TEXT + QUOTED)])  # (B, T)
numbers = capture(model, whole).inputs["blocks.2.ffn.down_proj"][0, 1:]  # (T, F)
strongest = active[:, unit].argmax()  # the position
number = numbers[strongest, unit]  # ()
print(f"activation {active[strongest, unit]:.1f}, number {number:.0f}")
# ESSENTIAL
raises = rows @ column * number  # (V, C) @ (C) -> (V)
raised = [tokenizer.decode([token]).strip() for token in raises.topk(2).indices]
figures.units(said, {unit: active[:, unit].tolist()}, {unit: raised})
# END

# %% [markdown]
# **If** the last words are *In the*, **then** raise *end* and *light*. The feed-forward has been compared with a memory of such pairs ([Geva et al. 2021](https://arxiv.org/abs/2012.14913)). Most units are harder to read, because they react to several kinds of words, as unit 70 does in the picture of section 1: a quote, *a* and *sleep*. One proposed reason is **superposition**: a model stores more features than it has units ([Elhage et al. 2022](https://arxiv.org/abs/2209.10652)).
#
# ### Rewrite the rule
# If this is a rule, we can change what it says. We replace the column of unit 34 by the row of a word. All rows have a part in common, their mean. We take it away, so that what is left (made 1 long) is special to the new word. The sign is minus, because the number of unit 34 is negative:

# %% slide="skip"
import copy

from tinylm_classroom import harm, largest_rises, missed, written


def says(reader, text):
    """The most probable next word, and its probability."""
    with torch.no_grad():
        logits = reader(torch.tensor([tokenizer.encode("\n" + text)]))[0, -1]  # (V)
    best = tokenizer.decode([logits.argmax().item()]).strip()
    return f"{best} {logits.softmax(-1).max():.2f}"


# %%
def write(new_word):
    """A copy of the model in which unit 34 writes this word."""
    changed = copy.deepcopy(model)
    words = model.lm_head.weight.detach()  # (V, C)
    row = words[tokenizer.encode(f" {new_word}")[0]] - words.mean(0)  # (C)
    changed.blocks[2].ffn.down_proj.weight.data[:, 34] = -row / row.norm()
    return changed


# %% tags=["source-hidden"] deck="Unit 34 writes *kite*. What comes after *By the*?"
predict(
    "We write *kite* into unit 34. What does the model say after *By the*?",
    key=lambda: "a colour, as before" if says(write("kite"), f"{TEXT} By the")[:4] in ("yell", "gray") else "?",
    choices={
        "a colour, as before": "",
        "kite": "That would be so if the unit were active there.",
        "a word that makes no sense": "The weights of the model have changed, but where do they count?",
    },
    because="After *By the* the unit is hardly active, so it hardly matters what it would write.",
)

# %% deck="Write your word: the rule says it, and nothing else changes"
# ESSENTIAL
word = "kite"  # try "Mia", "sleep" and "red"
taught = write(word)
for first in ("In", "By"):
    text = f"{TEXT} {first} the"
    print(f"{first} the: before {says(model, text)}, now {says(taught, text)}")
# END
n = sum(each.numel() for each in model.parameters())
print(f"changed: {column.numel()} of {n:,} numbers")

# %% [markdown]
# We changed 128 numbers of 654,656, and the model has a new rule. Does it work for every word?

# %% tags=["source-hidden"] deck="304 of 323 words, written into one unit, are what the model says"
with_in, with_by = (written(model, tokenizer, f"{TEXT} {first} the") for first in ("In", "By"))
figures.written(with_in.words, {"In the": with_in.probabilities, "By the": with_by.probabilities}, with_in.said)

# %% tags=["source-hidden"] evidence="written" tried="held-out"
# Checked after four beginnings: most words are said, the others give way to a similar row.
SEEDS = (1, 2, 3)
for text in (TEXT, *map(beginning, SEEDS)):
    said_in, said_by = (written(model, tokenizer, f"{text} {first} the") for first in ("In", "By"))
    similar = missed(model, tokenizer, said_in)
    assert len(similar) < 0.1 * len(said_in.words) and min(similar) > 0.8
    assert len(set(said_by.said)) <= 2

# %% [markdown]
# For 304 of 323 words it does. The others have a row that points in nearly the same direction as that of a similar word, and the model says that one: you write *cold*, it says *cloudy*. [[written]]
#
# ### Is the rule needed?
# To find out, we take the unit away, as we did with heads. On which words of our stories does the loss rise most?


# %% slide="skip"
def without(units):
    """A copy of the model in which these units of the last layer add nothing."""
    changed = copy.deepcopy(model)
    changed.blocks[2].ffn.down_proj.weight.data[:, units] = 0
    return changed


# %% deck="Without unit 34 exactly its two words are lost"
units = [34]  # try [239] and [70]
rise = token_losses(without(units), ids) - token_losses(model, ids)  # (B, T - 1)
for harmed, nats in largest_rises(rise, ids, tokenizer).items():
    print(f"without {units}: {harmed} {nats:+.2f} nats")

# %% [markdown]
# Without unit 34 exactly the two words that it raises have a higher loss. (Most units are hardly missed: try 239.) So only unit 34 knows them?

# %% tags=["source-hidden"] deck="Now all 320 units of the layer are removed. What comes after *In the*?"
predict(
    "Now we remove all 320 units of this layer. What does the model say after *In the*?",
    key=lambda: "end or light" if says(without(range(320)), f"{TEXT} In the")[:3] in ("end", "lig") else "?",
    choices={
        "neither, as without unit 34": "Then no other part of the model would know them.",
        "a colour": "The attention of this layer still works. What has it fetched?",
        "end or light": "",
    },
    because="Attention had raised both words already. Other units push other words up here, and unit 34 outweighs them.",
)

# %% deck="Without all units the words come back"
for name, out in (("nothing", []), ("unit 34", [34]), ("all units", range(320))):
    print(f"without {name}: In the {says(without(out), f'{TEXT} In the')}")
no_ffn = with_rule(model, lambda ffn, x: 0 * x)  # in no layer
for name, reader in (("all", model), ("no", no_ffn)):
    print(f"{name} feed-forwards: {token_losses(reader, ids).mean():.2f} nats a token")

# %% tags=["source-hidden"] evidence="unit-34" tried="held-out"
# Checked in three other sets: unit 34 is missed at its two words only; without all they are back.
for seed in SEEDS:
    of_one, of_all = (harm(model, without(each), tokenizer, ("end", "light"), seed) for each in ([34], range(320)))
    assert of_one.at_words > 1.5 and abs(of_one.elsewhere) < 0.01
    assert of_one.right < 0.5 < 0.9 < of_all.right
assert token_losses(no_ffn, ids).mean() > 1.7 * token_losses(model, ids).mean()

# %% [markdown]
# Attention knew these words already, but other units of the layer raise other words here, and unit 34 is the answer to them. [[unit-34]] (Feed-forwards are not useless: without any of them the loss over all words doubles. We read only the beginning of each story, so it is higher than in lesson 00.) A removal shows what the *rest* does without a part, not that only this part knows something. Writing shows more: what the unit adds is what the model says.

# %% [markdown] tags=["note"]
# **Say.** How many units should there be, and what do they cost? In three models at their full length the feed-forward does more work than attention.
#
# **Usual answers.**
# - *The scores, because they grow with the square of the length* (`scores`): For one token they grow with the length. Compare T with 4C.
# - *The output map, because it has 50,257 rows* (`output map`): It comes once, the others come in each of 12 layers.
# - *Attention, because it is the famous part* (`attention's matrices`): Four matrices of C by C against two of C by 4C.
#
# **Cut if short.** The rule of the width.
#
# **Tried.** Exact: the counts are those of the library, for the three models at their full length.

# %% [markdown]
# ## 6. How wide, and how much work?
# The classic feed-forward has two matrices and $F = 4C$. SwiGLU has three, so with as many parameters it is narrower: $2 \cdot C \cdot 4C = 3 \cdot C \cdot F$ gives
#
# $$F = \tfrac{8}{3}\, C$$
#
# The result is often rounded to a multiple of 64. What is it for the shipped model, with $C = 128$? You have met this number in section 1. Where does a model do most of its work? We count the multiplications for one token, which sees a text of full length:

# %%
from tinylm_classroom import zeros_of_two_dropouts
from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, forward_flops


def multiplications(config):
    C, D, F, L = config.d_model, config.d_head, config.d_ff, config.n_layers
    H, G, S = config.n_heads, config.n_kv_heads, config.max_seq_len
    return {
        "attention's matrices": L * (2 * C * H * D + 2 * C * G * D),
        "scores": L * 2 * H * D * S,
        "feed-forward": L * FFNS[config.ffn][0].matrices * C * F,
        "output map": C * config.vocab_size,
    }


# %% slide="skip"
configs = {
    "shipped": model.config,
    "GPT-2 small": preset("gpt2", "small"),
    "Llama 3 8B": preset("llama", "3-8b"),
}

# %% tags=["source-hidden"] deck="GPT-2 small reads 1024 tokens: which part multiplies most?"
predict(
    "GPT-2 small with texts of 1024 tokens, its longest: which part multiplies most?",
    key=lambda: max(multiplications(configs["GPT-2 small"]).items(), key=lambda pair: pair[1])[0],
    choices={
        "attention's matrices": "Four matrices of C by C in each layer. The feed-forward has two of C by 4C.",
        "scores": "They grow with the length, but at this length others are ahead.",
        "feed-forward": "",
        "output map": "It has 50,257 rows, but it comes only once.",
    },
    because="Two matrices of C by 4C are twice as much as attention's four of C by C.",
)

# %% deck="In three models the feed-forward multiplies most"
for name, config in configs.items():
    work = multiplications(config)
    total = sum(work.values())
    # ESSENTIAL
    print(f"{name}, {config.max_seq_len} tokens:")
    print(", ".join(f"{part} {n / total:.0%}" for part, n in work.items()))
    # END

# %% tags=["source-hidden"] evidence="most-multiplications" tried="exact" rows=["S0-31", "S1-17", "S2-5"]
# Checked: the counts are the library's; three narrow matrices are two wide ones; dropout twice.
for config in configs.values():
    work, n = multiplications(config), config.max_seq_len
    assert 2 * n * sum(work.values()) == forward_flops(config, 1, n)  # it counts additions, too
    assert work["feed-forward"] > work["attention's matrices"] + work["scores"]
sizes = {"d_model": 512, "d_ff_multiple_of": 64}
narrow, wide = (count_parameters(ModelConfig(ffn=ffn, **sizes)).ffn for ffn in ("swiglu", "gelu"))
assert abs(narrow / wide - 1) < 0.02 and abs(zeros_of_two_dropouts() - 0.19) < 0.01

# %% [markdown]
# In all three the feed-forward does more than the two parts of attention together. [[most-multiplications]] To have more units without more work, many large models have several feed-forwards in each layer, of which each position uses only a few: a **mixture of experts** ([Shazeer et al. 2017](https://arxiv.org/abs/1701.06538)).

# %% [markdown] tags=["note"]
# **Say.** Attention fetches, and the feed-forward works on what was fetched, with units that are rules. We have rewritten one of them.
#
# **Ask.** At the door: "Why can one linear map not test two facts?"
#
# **Usual answers.**
# - *Because it is too small* (from the room): Two large linear maps in a row are still one linear map.
# - *Because the gates are learned* (from the room): A linear map is learned, too. What can it not express?
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="If this, then that: a feed-forward is many small rules"
# ## What you have now
# - The feed-forward computes each position by itself. [[each-position-alone]]
# - Unit 34 of the shipped model is strongly active only where two facts are true. [[both-facts]]
# - A linear map cannot give 1 for two facts and 0 otherwise, and two in a row are one linear map. [[one-map]]
# - With ReLU most networks learn the test, and those that fail have at most two units alive. [[few-units-left]]
# - A dead ReLU unit stays dead; SiLU and GELU units come back. [[dead-units]]
# - SwiGLU multiplies a gate branch by an up branch. [[two-branches]]
# - Write a word into unit 34, and after *In the* the model says it, or one with nearly the same row. [[written]]
# - Without unit 34 two words are lost, and without all units of its layer they are back. [[unit-34]]
# - In three models at their full length the feed-forward multiplies more than attention. [[most-multiplications]]
#
# Next, lesson 09: attention and feed-forward in one block, and blocks in a row.

# %% [markdown]
# ## Sources
# - The classic feed-forward: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.3.
# - GELU and SiLU: Hendrycks and Gimpel 2016, [*Gaussian Error Linear Units (GELUs)*](https://arxiv.org/abs/1606.08415), section 2.
# - SwiGLU and its width: Shazeer 2020, [*GLU Variants Improve Transformer*](https://arxiv.org/abs/2002.05202). In Llama: Touvron et al. 2023, [*LLaMA: Open and Efficient Foundation Language Models*](https://arxiv.org/abs/2302.13971), section 2.2.
# - A memory of pairs: Geva et al. 2021, [*Transformer Feed-Forward Layers Are Key-Value Memories*](https://arxiv.org/abs/2012.14913). What a column raises: Geva et al. 2022, [*Transformer Feed-Forward Layers Build Predictions by Promoting Concepts in the Vocabulary Space*](https://arxiv.org/abs/2203.14680).
# - Superposition: Elhage et al. 2022, [*Toy Models of Superposition*](https://arxiv.org/abs/2209.10652).
# - Mixture of experts: Shazeer et al. 2017, [*Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer*](https://arxiv.org/abs/1701.06538).
