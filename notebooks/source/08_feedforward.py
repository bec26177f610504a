# %% [markdown] slide="slide"
# # 08 Feedforward
# **What does a position do with what it has fetched?**
#
# *Needs* lessons 02 to 07. *Builds* `silu`, `gelu` and `swiglu` (in the library: `layers.py`, and `GatedMLP` in `feedforward.py`). *Runs* in about 14 s on two cores.
# *Teaches* in about 47 minutes, plus 26 of exercises.

# %%
import copy
import math

import torch
from torch.nn.functional import cross_entropy

from tinylm_lib import ModelConfig, layers, preset, storyworld
from tinylm_lib.classroom import capture, check, figures, fixed, hint, keep, predict, show, trace
from tinylm_lib.config import derived_d_ff
from tinylm_lib.cost import forward_flops
from tinylm_lib.feedforward import FFNS, GatedMLP, feed_forward
from tinylm_lib.layers import Linear
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import CLASSES, gaps

_ = torch.manual_seed(8)

# %% [markdown] slide="slide"
# ## 1. Fetching is not enough
# > One cold morning, friendly Amara came to Foxhollow. \_\_\_ had a gray cup.
#
# *She*, you say. Attention can fetch *Amara*. What is left to do?
#
# After attention every position holds its own word and what it has fetched. Then comes the other half of a layer, the **feed-forward**. We take it away and look. The shipped model has one in each of its
# three layers. `with_rule` copies the model and lets its feed-forwards follow a rule of ours, by a *hook*: a function whose result replaces what a module returns. `gaps` compares a model's guesses with the words that the
# stories really have, for each kind of word.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer


def with_rule(rule):
    other = copy.deepcopy(model)
    for block in other.blocks:
        block.ffn.register_forward_hook(lambda ffn, inputs, output: rule(ffn, inputs[0]))
    return other


# %%
generator = torch.Generator().manual_seed(8)
stories = [storyworld.story(generator) for _ in range(60)]
silent = with_rule(lambda ffn, x: torch.zeros_like(x))
found = {"as trained": gaps(model, tokenizer, stories), "without": gaps(silent, tokenizer, stories)}

# %% tags=["source-hidden"]
OBJECT, PRONOUN = "an object (fan) that its colour tells", "a pronoun (He, he, She, she) that a name tells"
left = {text: found["without"][kind].right for text, kind in ((OBJECT, "object"), (PRONOUN, "pronoun"))}
predict(
    "Without feed-forwards, which kind of word does the model lose?",
    key=lambda: min(left, key=left.get),
    choices={
        OBJECT: "The fan stood in the story. Once it is fetched it can be repeated.",
        PRONOUN: "",
        "both": "Attention is all there, and an object needs little more than to be fetched and repeated.",
    },
    because="Objects are still fetched and repeated. A pronoun is now hardly ever the first guess.",
)

# %% evidence="without-feed-forwards"
print("how many of the words are the model's first guess")
for kind, gap in found["as trained"].items():
    if kind not in ("all", "other"):
        print(f"{kind:>10}: as trained {gap.right:.2f}, without {found['without'][kind].right:.2f}")
assert found["without"]["object"].right > 0.9 and found["without"]["pronoun"].right < 0.4

# %% [markdown]
# Objects and quotations survive, names and places mostly, traits half, pronouns hardly. Colours and owners hardly change, but the model often misses them as it was trained, too. What is lost with the pronouns? Look at the first 80 words of each story, where *He* or *She* comes next (the 0.23 counts whole stories, and *he* and *she*, too):

# %%
ids = torch.tensor([tokenizer.encode("\n" + story.text)[:80] for story in stories])  # (B, T)
B, T, C = *ids.shape, model.config.d_model
he, she = (tokenizer.encode(word)[0] for word in (" He", " She"))
at = (ids[:, 1:] == he) | (ids[:, 1:] == she)  # (B, T - 1)
told = ids[:, 1:][at]
for name, m in (("as trained", model), ("without", silent)):
    logits = m(ids[:, :-1])[at].detach()  # (N, V)
    first, of_two = logits.argmax(-1), torch.where(logits[:, he] > logits[:, she], he, she)
    print(f"{name:>10}: right {(first == told).double().mean():.2f}", end=", ")
    print(f"right, of the two pronouns {(of_two == told).double().mean():.2f}")
print("first guesses without:", *(tokenizer.decode([token]) for token in first[:8].tolist()))

# %% [markdown]
# Without feed-forwards the model hardly ever says a pronoun there. Which of the two, it still knows in most cases: much of that comes through attention alone. What is lost is that a pronoun comes next.
#
# In each layer **attention fetches, and the feed-forward works on the whole vector**, the position's own word and what was fetched, at each position by itself. `capture` (lesson 04) runs the model and keeps what went into each part and what came out:

# %% evidence="each-position-alone"
caught = capture(model, ids)
ffn, x = model.blocks[0].ffn, caught.inputs["blocks.0.ffn"]
with torch.no_grad():
    y, order = ffn(x), torch.randperm(T)  # (B, T, C), (T)
    torch.testing.assert_close(ffn(x[:, order]), y[:, order])
    torch.testing.assert_close(ffn(x[0, 5]), y[0, 5])
print(f"{T} positions in another order, or one alone: each has the same result as before")

# %% [markdown] tags=["note"]
# The contrast to ask for is lesson 05: there one changed word moved later results. With only the first layer's feed-forward switched off, about half of the pronouns are right. If time is short, cut the tanh form in
# section 3 and the two slips in section 7.

# %% [markdown] slide="slide"
# ## 2. Why a bend is needed
# "Works on" sounds like a job for a linear map. Why is that not enough? The smallest piece of work: a position has fetched two facts, *it is pink* and *it is a fan*, each 0 or 1, and something
# should happen only if **both** are true.

# %%
facts = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
wanted = torch.tensor([0.0, 0.0, 0.0, 1.0])

# %% tags=["source-hidden"]
some = facts @ torch.tensor([2.0, 4.0]) + 1
predict(
    "A linear map of two facts, with an offset, gives 1 for (0, 0), 5 for (0, 1) and 3 for (1, 0). And for (1, 1)?",
    key=lambda: f"{some[3].item():.0f}",
    choices={
        "7": "",
        "8": "5 + 3 counts the offset twice.",
        "any number: it is free": "Three cases fix both weights and the offset. Nothing is left to choose.",
    },
    because="Each fact adds its own amount: 1 + 2 + 4.",
)

# %% [markdown]
# In a linear map each fact adds its own amount, *whatever the other one is*. So the value at (1, 1) is that at (0, 1) plus that at (1, 0) minus that at (0, 0), and three times 0 forces a fourth 0. Would two
# linear maps in a row help, with six features between them?

# %% evidence="one-map"
first, second = Linear(2, 6, bias=True), Linear(6, 1, bias=True)
matrix = second.weight @ first.weight  # (1, 2)
offset = second.weight @ first.bias + second.bias  # (1)
torch.testing.assert_close(second(first(facts)), facts @ matrix.T + offset)
print("two linear maps in a row are one linear map, of", tuple(matrix.shape))

# %% [markdown]
# No: the product of two matrices is a matrix. What helps is a **bend** between the maps. The simplest is **ReLU**: what is below 0 becomes 0, the rest stays.

# %% evidence="relu"
total = facts @ torch.tensor([1.0, 1.0]) - 1
print("before the bend:", total.tolist(), " after:", torch.relu(total).tolist())
assert torch.relu(total).equal(wanted)

# %% [markdown]
# A number that is bent is a **unit**. The classic feed-forward maps $C$ features *up* to $F$ units, bends them, and maps *down* to $C$ again (Vaswani et al. 2017). Without its biases: $W_{down}\,\text{bend}(W_{up}\, x)$.

# %% [markdown] slide="slide"
# ## 3. Four bends
# ReLU multiplies a number by 1 or by 0. Softer bends multiply it by a **gate** between 0 (shut) and 1 (open), and the number itself decides how far it is open.
#
# - **SiLU** takes the sigmoid as its gate, `torch.sigmoid`, written $\sigma$ (sigma): $\sigma(x) = 1 / (1 + e^{-x})$. So $\text{silu}(x) = x \cdot \sigma(x)$.
# - **GELU** takes $\Phi(x)$ (phi): the share of a standard normal distribution (mean 0, variance 1) that lies below $x$. One can count it. $\text{gelu}(x) = x \cdot \Phi(x)$.

# %%
draws = torch.randn(200_000)
for value in (-2.0, -1.0, 0.0, 1.0, 2.0):
    sigmoid, below = 1 / (1 + math.exp(-value)), (draws < value).float().mean().item()
    print(f"x {value:2.0f}: sigmoid {sigmoid:.4f}, x times gate {value * sigmoid:7.4f}", end=" | ")
    print(f"share below {below:.2f}, x times gate {value * below:5.2f}")

# %% [markdown]
# ### Your turn
# Both for tensors, from their formulas. For GELU: `torch.erf(z)` is the *error function*. If $z$ is positive, it is the fraction of a normal distribution of variance **1/2** that lies between $-z$ and $z$, and
# `erf(-z)` is `-erf(z)`.


# %% tags=["exercise"] name="silu" minutes=6 difficulty=1
def silu(x):
    """x (...), any shape: x times its sigmoid, each number by itself. Returns (...) in the dtype of x.

    Values and gradients are finite from -1e6 to 1e30. The caller's x is not changed.
    """
    # SOLUTION
    return x * torch.sigmoid(x)
    # END


# %% tags=["check"]
if check("silu", silu).passed:
    keep("silu", silu)

# %%
hint("silu")

# %% [markdown] tags=["solution"]
# x, and its gate. The usual slips: the gate alone; and `1 / (1 + torch.exp(-x))`, whose values are right and whose gradient is NaN far below 0 (section 7).


# %% tags=["exercise"] name="gelu" minutes=8 difficulty=2
def gelu(x):
    """x (...), any shape: x times the share of a standard normal distribution below x; exact, no approximation.

    Each number by itself. Returns (...) in the dtype of x.
    Values and gradients are finite from -1e6 to 1e30. The caller's x is not changed.
    """
    # SOLUTION
    share = (1 + torch.erf(x / math.sqrt(2))) / 2
    return x * share
    # END


# %% tags=["check"]
if check("gelu", gelu).passed:
    keep("gelu", gelu)

# %%
hint("gelu")

# %% [markdown] tags=["solution"]
# erf belongs to a narrower distribution, whose standard deviation is the root of 1/2: so x is divided by the root of 2. It runs from -1 to 1, a share from 0 to 1: add 1, halve. The usual slips: no root of 2;
# erf itself as the gate, which is negative below 0; the form with tanh, which is close and not equal.

# %% [markdown] slide="subslide"
# ### What they look like
# The library leaves each to PyTorch, in one step. The figure and its slopes are made with these:

# %% rows=["S0-28"]
x = torch.linspace(-5, 3, 8001, dtype=torch.float64, requires_grad=True)
torch.testing.assert_close(layers.silu(x), x * torch.sigmoid(x))
torch.testing.assert_close(layers.gelu(x), x * torch.distributions.Normal(0, 1).cdf(x))
show(layers.silu)
show(layers.gelu)

# %%
bends = {"ReLU": torch.relu, "SiLU": layers.silu, "GELU": layers.gelu}
curves = {name: bend(x) for name, bend in bends.items()}
slopes = {name: torch.autograd.grad(curve.sum(), x)[0] for name, curve in curves.items()}
lowest = {name: curves[name].argmin().item() for name in ("SiLU", "GELU")}


# %% tags=["source-hidden"]
def draw(title: str, y: str, lines: dict, alt: str, caption: str) -> None:
    places = [0, 2000, lowest["SiLU"], 4000, lowest["GELU"], 5000, 6000, 8000]
    with figures.axes(title, "x", y) as (figure, ax):
        for name, line in lines.items():
            ax.plot(x.tolist(), line.tolist(), label=name)
        for i in lowest.values():
            value = lines[min(lowest, key=lambda name: abs(lowest[name] - i))][i].item()
            ax.plot(x[i].item(), value, "o", color=figures.INK, markersize=8)
        ax.legend(frameon=False, loc="upper left")
    table = {name: [fixed(value, 4) for value in line[places].tolist()] for name, line in lines.items()}
    figures.display(figure, alt=alt, caption=caption, table={"x": [fixed(v, 3) for v in x[places].tolist()], **table})


# %% tags=["source-hidden"]
draw(
    "Far from 0 alike, near 0 softer",
    "result",
    curves,
    "Three curves: ReLU has a corner at 0; SiLU and GELU are smooth and dip below 0 before they rise.",
    "Far to the left all are near 0, far to the right near x. The dots are the lowest points.",
)

# %% rows=["S1-10"] evidence="slope-below-0"
assert slopes["ReLU"][2000] == 0 and slopes["SiLU"][2000] != 0 and slopes["GELU"][2000] != 0  # at x = -3
assert all(slopes[name][0].abs() < slopes[name][2000].abs() / 2 for name in lowest)  # at x = -5 they are less steep
for name, i in lowest.items():
    print(f"{name} is lowest at x = {x[i]:.3f}, with {curves[name][i]:.6f}")
few = layers.silu(torch.tensor([-1.0, 1.0, -5.0]))
print("SiLU of -1, 1 and -5:", [round(value, 4) for value in few.tolist()])

# %% [markdown]
# You may read of SiLU: about 0 below 0, about $x$ above. Far away, yes. Near 0, where many numbers are, no: -1 becomes -0.2689, and 1 becomes 0.7311. Nor does it only rise: -1 comes out
# lower than -5.
#
# For learning the **slope** counts: a gradient on its way back is multiplied by it.

# %% tags=["source-hidden"]
at_minus_3 = [name for name, slope in slopes.items() if slope[2000] != 0]
predict(
    "A unit gets -3 at every word. With which bends can its weights still learn?",
    key=lambda: " and ".join(at_minus_3),
    choices={
        "ReLU and SiLU and GELU": "Below 0 ReLU is flat. Where nothing changes there is no gradient.",
        "SiLU and GELU": "",
        "none": "At -3 the soft ones are not yet 0, and they still change a little.",
    },
    because="The slope of ReLU is exactly 0 there. The other two are even negative: a larger result lies to the left.",
)

# %% tags=["source-hidden"] rows=["S4-45"]
draw(
    "Slopes of the three bends",
    "slope",
    slopes,
    "Three slopes: ReLU jumps from 0 to 1 at x = 0; SiLU and GELU rise smoothly through one half.",
    "At 0 the soft ones have the slope one half. Where a curve is lowest its slope crosses 0 (dots).",
)

# %% [markdown]
# ReLU itself has no jump, though you may read that it is not continuous: the first figure has a corner, no gap. What jumps is its slope. And a ReLU unit that is below 0 at every word gets no gradient: its weights stay as they are.
#
# The fourth bend is GPT-2's: a form of GELU with tanh.
#
# $$\text{gelu}_{\tanh}(x) = \tfrac{1}{2}\, x \left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\, x^3)\right)\right)$$

# %%
by_hand = x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
torch.testing.assert_close(layers.gelu_tanh(x), by_hand)
print(f"from the exact form it differs by at most {(by_hand - layers.gelu(x)).abs().max():.2e}")

# %% [markdown]
# That is little, and yet another function. One published course note takes the exact form and calls its model the same as GPT-2. With GPT-2's weights, take GPT-2's GELU.

# %% [markdown] tags=["note"]
# That SiLU goes down before it goes up surprises most. Ask what a gate of 1 everywhere would be. (No bend at all.)

# %% [markdown] slide="slide"
# ## 4. A gate of its own
# In SiLU one number answers two questions: *whether* to pass and *what*. Two questions deserve two maps. The **gate** route says whether, the **up** route says what, and the two are multiplied. By hand, for two
# units: one wants to say 3, the other as much as 1000.

# %%
for gate, up in ((4.0, 3.0), (-10.0, 1000.0)):
    opened = layers.silu(torch.tensor(gate)).item()
    print(f"gate {gate:.0f}, after SiLU {opened:.4f}, times {up:.0f} is {opened * up:.1f}")

# %% [markdown]
# The second unit is shut, and however much it wants to say, next to nothing passes. Think of a tap: one hand turns it, and what flows is another matter. The picture ends at *fully open*: from here on *gate* means SiLU of the gate route, and that may pass 1.
#
# With SiLU on the gate route this is **SwiGLU** (Shazeer 2020), the feed-forward of the Llama models. $\odot$ multiplies numbers at the same place. Papers and notes also call the matrices $W_1$ (gate), $W_3$ (up) and $W_2$ (down).
#
# $$\text{SwiGLU}(x) = W_{down}\,\big(\text{silu}(W_{gate}\, x) \odot W_{up}\, x\big)$$

# %% tags=["source-hidden"]
shade = {letter: color.light for letter, color in figures.AXIS_COLORS.items()}
ARROWS = ((0.05, 0.56, 0.126, 0.76, "C"), (0.05, 0.44, 0.141, 0.24, "C"), (0.294, 0.8, 0.39, 0.8, "F"))
ARROWS += ((0.47, 0.8, 0.617, 0.543, "F"), (0.279, 0.2, 0.61, 0.475, "F"), (0.672, 0.5, 0.725, 0.5, "F"))
ARROWS += ((0.905, 0.5, 0.96, 0.5, "C"),)
BOXES = ((0.21, 0.8, "gate_proj\n(F, C)"), (0.43, 0.8, "silu"), (0.21, 0.2, "up_proj\n(F, C)"))
BOXES += ((0.815, 0.5, "down_proj\n(C, F)"),)
LABELS = ((0.01, 0.5, "x\n(B, T, C)", "C"), (0.65, 0.8, "(B, T, F)\nhow open?", "F"))
LABELS += ((0.56, 0.2, "(B, T, F)\nwhat to say", "F"), (1.02, 0.5, "(B, T, C)", "C"))

# %% tags=["source-hidden"] rows=["S0-32"]
with figures.axes("SwiGLU: two routes and a product", "left to right", "routes", (10.4, 4.6)) as (figure, ax):
    for x0, y0, x1, y1, letter in ARROWS:
        figures.arrow(ax, (x0, y0), (x1, y1), letter, width=4)
    for left, high, text in BOXES:
        figures.box(ax, left, high, text)
    for left, high, text, letter in LABELS:
        ax.text(left, high, text, color=shade[letter], weight="bold", ha="center", va="center")
    ax.plot(0.64, 0.5, "o", color=figures.INK, markersize=32)
    ax.text(0.64, 0.495, "×", color="white", size=26, ha="center", va="center")
    ax.set(xlim=(-0.05, 1.08), ylim=(0.05, 0.95))
    ax.axis("off")
figures.display(
    figure,
    alt="Diagram: x goes through gate_proj and silu on one route, through up_proj on the other; their product goes through down_proj.",
    caption="Blue is C wide, pink is F wide. The routes meet only in the product, number by number.",
    table={"after": ["gate_proj, silu", "up_proj", "product", "down_proj"], "shape": ["(B, T, F)"] * 3 + ["(B, T, C)"]},
)

# %% [markdown]
# ### Your turn
# All of it, with the picture beside you. `torch.nn.functional.silu`, or your own, is allowed.


# %% tags=["exercise"] name="swiglu" minutes=12 difficulty=2
def swiglu(x, w_gate, w_up, w_down):
    """x (..., C), any leading axes. w_gate and w_up (F, C), w_down (C, F): stored as (out, in), as in lesson 02.

    No biases. Returns (..., C) in the dtype of x. Gradients are finite where the gate route is far below 0, too.
    """
    # SOLUTION
    opened = torch.nn.functional.silu(x @ w_gate.T)
    return (opened * (x @ w_up.T)) @ w_down.T
    # END


# %% tags=["check"]
if check("swiglu", swiglu).passed:
    keep("swiglu", swiglu)

# %%
hint("swiglu")

# %% [markdown] tags=["solution"]
# Two maps from the same x, silu on one of them, the product, and a map back. Weights are (out, in), so `x @ w.T`. The usual slips: silu on the up route or on the product; a sum instead of
# a product; one weight for both routes; x added, which is the job of the block (lesson 09).

# %% [markdown] slide="subslide"
# ### The library's version

# %% rows=["S0-29", "S0-30", "S1-18"] evidence="two-routes"
F = 20
layer = GatedMLP(ModelConfig(d_model=12, n_heads=3, d_ff=F), layers.silu)
small = torch.randn(2, 7, 12)
opened, says = layers.silu(layer.gate_proj(small)), layer.up_proj(small)  # (2, 7, F)
torch.testing.assert_close(layer(small), (opened * says) @ layer.down_proj.weight.T)
show(GatedMLP)
trace(layer, small, sizes={"B": 2, "T": 7, "C": 12, "F": F})

# %% [markdown]
# ### Which units open for which words?
# Six units of the last feed-forward of the shipped model (layers count from 0, so layer 2 is the last): their gates after SiLU, on average over all places where a word stands.

# %%
units = [203, 234, 239, 64, 193, 113]
words = [" silver", " pink", " rainy", " cold", " friendly", " careful", " met", " named"]
words += ["Quick", "Early", " sleep", " fall", " He", " She"]
opened = layers.silu(caught.outputs["blocks.2.ffn.gate_proj"])  # (B, T, F)
says = caught.outputs["blocks.2.ffn.up_proj"]
average = [opened[ids == tokenizer.encode(word)[0]].mean(0)[units] for word in words]

# %% tags=["signature", "source-hidden"] rows=["S0-31"]
figures.heat_map(
    torch.stack(average, -1),
    [f"unit {unit}" for unit in units],
    [word.strip() for word in words],
    title="What opens each of six units",
    y="unit of layer 2",
    x="word at the position",
    limits=(0, 13),
    digits=1,
    caption="Six units, picked by hand because they are easy to read. Each is nearly shut at most of the other words here.",
)

# %% [markdown]
# The columns are picked, too. Which of all words open these units most? And are they typical? We count, for all units, how many of StoryWorld's classes of words (names, colours, ...) open a unit at least half as far as its best word does. (A word that is in none of these classes counts as a class of its own.) Half is our choice, so we try a stricter limit, too.

# %%
frequent = [token for token in range(model.config.vocab_size) if (ids == token).sum() >= 3]
gates = torch.stack([opened[ids == token].mean(0) for token in frequent])  # (N, F): words, units
for unit in units:
    best = gates[:, unit].topk(5).indices.tolist()
    print(f"unit {unit:>3} is open widest at", *(tokenizer.decode([frequent[i]]).strip() for i in best))

# %% evidence="most-units-are-mixed"
class_of = {word: name for name, members in CLASSES.items() for word in members}
classes = [class_of.get(word.strip(), word) for word in (tokenizer.decode([token]) for token in frequent)]
n_classes = {}
for limit in (0.5, 0.9):
    counts = []
    for of_unit in gates.T:
        wide = (of_unit > limit * of_unit.max()).tolist()
        counts.append(len({name for name, is_wide in zip(classes, wide, strict=True) if is_wide}))
    n_classes[limit] = torch.tensor(counts)
    print(f"above {limit} of its largest gate: median of {len(counts)} units {n_classes[limit].median()}")
print(f"with one class above 0.5: {(n_classes[0.5] == 1).sum()} units")
assert 20 < (n_classes[0.5] == 1).sum() < 100 and n_classes[0.5].median() >= 3 and n_classes[0.9].median() == 1
assert n_classes[0.5][203] == n_classes[0.5][234] == 1

# %% [markdown]
# If a unit counts as open at half of its largest gate, units 203 and 234 open at one class, but most units of this layer open at words of several classes. With the limit 0.9 most of them have one class, so the answer depends on the limit: a unit may open widest at one class and less wide at others. One reason that has been proposed for units with several classes is **superposition**: a model stores more features than it has units (Elhage et al. 2022).
#
# Unit 239 opens at *friendly* as well as at *met*. What do these words have in common? A guess: a name comes next. Names also come next where a person is mentioned again, so we measure both:

# %% evidence="a-new-name"
name_ids = torch.tensor([tokenizer.encode(" " + name)[0] for name in CLASSES["name"]])
following = ids[:, 1:]  # (B, T - 1)
is_name = torch.isin(following, name_ids)
said_before = (following[:, :, None] == ids[:, None, :-1]).tril().any(-1)  # (B, T - 1)
where = {"a new name": is_name & ~said_before, "a name again": is_name & said_before, "another word": ~is_name}
of_239 = {what: opened[:, :-1, 239][mask] for what, mask in where.items()}
for what, gate in of_239.items():
    print(f"where {what:<12} comes next: {fixed(gate.mean(), 1):>4} on average")
assert of_239["a new name"].mean() > 5 > 1 > of_239["a name again"].mean()

# %% [markdown]
# It is narrower than the guess: the unit opens where a *new* name comes next.
#
# What do the units contribute when they are open? What leaves a unit is multiplied by its column of `down_proj` and added to the position. After the last layer the model compares the position with a row for each word of
# its vocabulary (the final norm multiplies each feature by a weight, so we do, too). Which words does such a column raise most? (With the sign that the up route has where the unit is open.)

# %%
rows = model.lm_head.weight * model.final_norm.weight  # (V, C)
raises = (rows @ model.blocks[2].ffn.down_proj.weight).detach()  # (V, F)
for unit in units:
    sign = says[..., unit][opened[..., unit] > 2].mean().sign()
    best = (sign * raises[:, unit]).topk(4).indices.tolist()
    print(f"unit {unit:>3} raises", *(tokenizer.decode([token]) for token in best))

# %% [markdown]
# After a colour, things; after weather, times of the day; before a new name, names. Each of these six is like a small rule: **if** the position looks like this, **then** add that. Some compare a feed-forward with a
# memory of such pairs (Geva et al. 2021).
#
# What happens if the gates cannot react to the word? Hold every gate at its average, and what is left of each feed-forward is a linear map:


# %%
def loss(m) -> float:
    with torch.no_grad():
        return cross_entropy(m(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).item()


def held(ffn, x):
    gates = layers.silu(ffn.gate_proj(x)).mean((0, 1))
    return ffn.down_proj(gates * ffn.up_proj(x))


# %% evidence="gates-held"
with_gates, gates_held, with_none = (loss(m) for m in (model, with_rule(held), silent))
print(f"as trained {with_gates:.1f}, gates held {gates_held:.1f}, no feed-forward {with_none:.1f} nats per token")
assert gates_held - with_gates > 0.7 * (with_none - with_gates)

# %% [markdown]
# With its gates held, this model is hardly better than without its feed-forwards. This does not single out the gates, because the parts that follow also read vectors which they never met in training: exchange any route for an average, and the loss may rise. Nor does it show that a model trained without gates would be worse. (Lesson 14 trains one.) Why SiLU, and not another bend? The SwiGLU paper tried several bends, and losses were lower with a gate than without; its author offers no explanation (Shazeer 2020).

# %% [markdown] tags=["note"]
# Ask which unit will open at *golden*. A fair objection is that the six are cherry-picked: they are, and the count of classes shows it; let the room name a unit at random and look. The usual wrong answer for unit 239 is "it opens at verbs". Common wrong answer: that this gate lies between 0 and 1.

# %% [markdown] slide="slide"
# ## 5. How wide?
# The classic feed-forward has two matrices and $F = 4C$. SwiGLU has three. To have as many parameters it must be narrower: $2 \cdot C \cdot 4C = 3 \cdot C \cdot F$, so
#
# $$F = \tfrac{8}{3}\, C$$
#
# The result is often rounded to a multiple of 64, which suits GPUs. Both forms are in use. The library derives $F$ in the config:

# %% rows=["S0-31", "S1-17"] evidence="as-many"
for ffn, multiple in (("gelu", 64), ("swiglu", 1), ("swiglu", 64)):
    config = ModelConfig(d_model=512, ffn=ffn, d_ff_multiple_of=multiple)
    made = sum(p.numel() for p in feed_forward(config).parameters())
    assert made == FFNS[ffn][0].matrices * 512 * config.d_ff
    print(f"{ffn:>6}, multiple of {multiple:>2}: F = {config.d_ff}, {made:,} parameters")

# %% [markdown]
# ### A trap
# A common way to write the rounding, to the nearest multiple of 64:


# %%
def nearest_64(d_model: int) -> int:
    return (int(8 / 3 * d_model) + 31) // 64 * 64


for d_model in (512, 128, 16, 8):
    width = derived_d_ff(d_model, 8 / 3, 64)
    print(f"C {d_model:>3}: this rule {nearest_64(d_model):>4}, the library {width:>4}")

# %%
F = nearest_64(8)
tiny, w_gate, w_up, w_down = (torch.randn(size) for size in ((7, 8), (F, 8), (F, 8), (8, F)))
nothing = (layers.silu(tiny @ w_gate.T) * (tiny @ w_up.T)) @ w_down.T  # (7, 8)

# %% tags=["source-hidden"]
predict(
    "A model with C = 8 is built by this rule, so F = 0. What happened when its feed-forward ran, above?",
    key=lambda: "zeros, of the right shape" if not nothing.any() else "?",
    choices={
        "an error: a matrix without rows": "An axis may have size 0, and the product of (7, 0) and (0, 8) is (7, 8).",
        "zeros, of the right shape": "",
        "the input, unchanged": "Nothing copies the input.",
    },
    because="Each result is a sum of no products, which is 0, and PyTorch raises no error.",
)

# %% evidence="width-0"
assert nothing.shape == (7, 8) and not nothing.any()
print("shape", tuple(nothing.shape), "largest number", nothing.abs().max().item())

# %% [markdown]
# Such a model runs, and could be trained, without a feed-forward. The library's rule never goes below one multiple, and a config refuses `d_ff=0`.

# %% [markdown] slide="slide"
# ## 6. Where the work is
# Attention is the famous part. Does it do most of the work? Count the multiplications for one token. A matrix of $a \times b$ takes $a \cdot b$. Each key takes $D$ for its score and $D$ for its part in the weighted sum,
# in each head; we count all keys of a text of full length. Four parts: *attention's matrices* (query, key, value, output), the *scores* with the weighted sums, the *feed-forward*, and the *output map* from $C$ features to $V$ words.


# %%
def multiplications(config: ModelConfig) -> dict[str, int]:
    C, D, F, L = config.d_model, config.d_head, config.d_ff, config.n_layers
    H, G, T = config.n_heads, config.n_kv_heads, config.max_seq_len
    return {
        "attention's matrices": L * (2 * C * H * D + 2 * C * G * D),
        "scores": L * 2 * H * D * T,
        "feed-forward": L * FFNS[config.ffn][0].matrices * C * F,  # 3 matrices with a gate, otherwise 2
        "output map": C * config.vocab_size,
    }


# %% evidence="most-multiplications"
models = {"shipped": model.config, "GPT-2 small": preset("gpt2", "small")}
models["Llama 3 8B"] = preset("llama", "3-8b")
work = {name: multiplications(config) for name, config in models.items()}
for name, config in models.items():
    length = config.max_seq_len  # and the library counts additions, too: as many again
    assert 2 * length * sum(work[name].values()) == forward_flops(config, 1, length)
    assert work[name]["feed-forward"] > work[name]["attention's matrices"] + work[name]["scores"]

# %% tags=["source-hidden"]
predict(
    "GPT-2 small with texts of 1024 tokens, its longest: which part multiplies most?",
    key=lambda: max(work["GPT-2 small"], key=work["GPT-2 small"].get),
    choices={
        "attention's matrices": "Four matrices of C by C in each layer. The feed-forward has two of C by 4C.",
        "scores": "They grow with the length, but at this length others are ahead.",
        "feed-forward": "",
        "output map": "It has 50,257 rows, but it comes only once.",
    },
    because="Two matrices of C by 4C are twice as much as attention's four of C by C.",
)

# %% tags=["source-hidden"]
parts, hues = list(work["shipped"]), ("#00796b", "#8a6d00", "#b5316e", "#2f7d32")
shares = torch.tensor([list(each.values()) for each in work.values()]).double()
shares = shares / shares.sum(-1, keepdim=True)
starts, said = shares.cumsum(-1) - shares, [[f"{share:.0%}" for share in column] for column in shares.T.tolist()]
named = [f"{name},\n{config.max_seq_len:,} tokens" for name, config in models.items()]
title = "Where three models multiply"
with figures.axes(title, "share of the multiplications for one token", "model and length", (9.6, 4.8)) as (figure, ax):
    for i, (part, hue) in enumerate(zip(parts, hues, strict=True)):
        bars = ax.barh(named, shares[:, i], 0.65, starts[:, i], color=hue, edgecolor="white", label=part)
        ax.bar_label(bars, said[i], label_type="center", color="white", weight="bold")
    ax.invert_yaxis()
    ax.yaxis.label.set_visible(False)
    ax.grid(visible=False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
figures.display(
    figure,
    alt="Stacked bars for three models: the feed-forward has the largest share in each.",
    caption="Each model at its full length. Only the scores grow with the length.",
    table={"model": list(models), **dict(zip(parts, said, strict=True))},
)

# %% [markdown]
# In all three the feed-forward does more than the two parts of attention together. But the scores alone grow with the length. When would they overtake it?

# %% evidence="scores-overtake"
small, C = work["GPT-2 small"], models["GPT-2 small"].d_model
even = small["feed-forward"] / (small["scores"] / models["GPT-2 small"].max_seq_len)
assert even == 4 * C  # 2 * C * T = 8 * C * C
print(f"GPT-2 small: as much for the scores as for the feed-forward at {even:,.0f} tokens")

# %% [markdown] slide="slide"
# ## 7. Break it: wrong routes
# The shipped model, with the weights it has, under three other rules:

# %%
rules = {
    "ReLU on gate": lambda ffn, x: ffn.down_proj(torch.relu(ffn.gate_proj(x)) * ffn.up_proj(x)),
    "SiLU on up": lambda ffn, x: ffn.down_proj(ffn.gate_proj(x) * layers.silu(ffn.up_proj(x))),
    "gate added": lambda ffn, x: ffn.down_proj(layers.silu(ffn.gate_proj(x)) + ffn.up_proj(x)),
}
losses = {name: loss(with_rule(rule)) for name, rule in rules.items()}

# %% tags=["source-hidden"]
predict(
    "Order them: which harms the model most, which least?",
    key=lambda: sorted(losses, key=losses.get, reverse=True),
    ranking=["SiLU on up", "gate added", "ReLU on gate"],
    because="In a sum nothing is ever shut; on the wrong route the wrong units are. ReLU opens and shuts the same ones.",
)

# %%
print(f"  as trained: {loss(model):.2f} nats per token")
for name, value in losses.items():
    print(f"{name:>12}: {value:.2f}")

# %% [markdown]
# All have the right shapes. ReLU in place of SiLU costs next to nothing here. *SiLU on up* is even the same architecture with two names exchanged: trained so from the start it would do as well, and only with
# weights that exist does it fail. One published note calls $W_3$ the gate: look for the SiLU.
#
# ### Two quiet slips
# SiLU with its sigmoid written as a formula looks right everywhere. And its gradients?

# %% rows=["S1-9"]
for value in (-20.0, -89.0):
    point = torch.tensor(value, requires_grad=True)
    for name, result in (("formula", point / (1 + torch.exp(-point))), ("library", layers.silu(point))):
        (slope,) = torch.autograd.grad(result, point)
        print(f"x {value:.0f}, {name}: value {result.item():.1g}, gradient {slope.item():.1g}")

# %% [markdown]
# Lesson 03 again: the exponential of 89 is inf in fp32. Forward, $x / \infty$ is 0 and nobody notices. Backward that 0 is multiplied by the infinite exponential: NaN, and one NaN can spoil all weights. `torch.sigmoid` has no such edge.
#
# The other: **dropout**, which sets numbers to 0 at random in training, at the end of the feed-forward and again in the block on its result. What share of zeros do two times 10 % make?

# %% rows=["S2-5"]
classic = feed_forward(ModelConfig(d_model=512, ffn="gelu", ffn_bias=True, ffn_dropout=0.1))
in_block = torch.nn.Dropout(0.1)
once = classic(torch.randn(400, 512))  # (400, 512)
for name, result in (("once", once), ("twice", in_block(once))):
    print(f"dropped {name}: {(result == 0).float().mean():.0%}")

# %% [markdown]
# 0.9 times 0.9 is left, so a config that asks for 10 % gets 19 % of zeros. The library has a switch for each place, and its presets use at most one.
#
# ## What you have now
# - The feed-forward computes each position separately. [[each-position-alone]] Without its feed-forwards the shipped model still repeats objects but hardly predicts a pronoun. [[without-feed-forwards]]
# - Linear maps in a row are one linear map. [[one-map]] With ReLU between them they can compute that two facts are both true. [[relu]] For inputs a little below 0, where ReLU is flat, SiLU and GELU still have a slope (except at their lowest point), so weights can learn there. Further below 0 their slopes become small, too. [[slope-below-0]]
# - SwiGLU multiplies a gate route by an up route. [[two-routes]] If every gate of the shipped model is held at its average, its loss rises most of the way to the loss without feed-forwards. [[gates-held]] If a unit counts as open at half of its largest gate, most units of its last layer open at several classes of words. [[most-units-are-mixed]] One of them opens where a
#   new name comes next. [[a-new-name]]
# - If the inner width is 8/3 of the model's width, the three matrices of SwiGLU have about as many parameters as the two classic ones. [[as-many]] If rounding makes the inner width 0, a feed-forward without biases returns zeros without an error. [[width-0]]
# - In three models at their full length the feed-forwards need more multiplications than attention does. [[most-multiplications]] The scores of attention overtake them when a text is longer than 4 times the width, in a model with a classic feed-forward. [[scores-overtake]]
#
# Next, lesson 09: attention and feed-forward in one block, and blocks in a row.

# %% [markdown]
# ## Sources
# - The classic feed-forward: Vaswani et al. 2017, *Attention Is All You Need*, section 3.3.
# - GELU and SiLU: Hendrycks and Gimpel 2016, *Gaussian Error Linear Units (GELUs)*, section 2.
# - SwiGLU and its width: Shazeer 2020, *GLU Variants Improve Transformer*. Before it: Dauphin et al. 2017, *Language Modeling with Gated Convolutional Networks*.
# - Superposition: Elhage et al. 2022, *Toy Models of Superposition*.
# - A memory of pairs: Geva et al. 2021, *Transformer Feed-Forward Layers Are Key-Value Memories*.
# - SwiGLU in Llama: Touvron et al. 2023, *LLaMA: Open and Efficient Foundation Language Models*, section 2.2.
