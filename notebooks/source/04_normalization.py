# %% [markdown] slide="slide"
# # 04 Normalization
# **How do numbers keep one size, however many layers they pass?**
#
# *Needs* lessons 02 and 03. *Builds* `RMSNorm` and `LayerNorm` in `layers.py`. *Runs* in about 10 s on two cores.
# *Teaches* in about 43 minutes, plus 22 of exercises.

# %%
import math
from copy import deepcopy

import torch
import torch.nn.functional as F

from tinylm_lib import storyworld
from tinylm_lib.classroom import capture, check, figures, hint, keep, predict, rounded, show, trace
from tinylm_lib.layers import LayerNorm, Linear, RMSNorm
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(4)

# %% [markdown] slide="slide"
# ## 1. Sizes drift
# In a model a vector passes many layers, and each may change the size of its numbers, perhaps only a little. How much is that, in the end? The simplest
# case is a chain of linear maps.
#
# By the **size** of a vector we mean its *root mean square*: square the numbers, take the mean, take the root.


# %%
def size(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()


# %%
C, n_layers = 64, 24

# %% tags=["source-hidden"]
predict(
    f"A vector passes {n_layers} maps, and each makes it 1.2 times as large. How much larger is it at the end?",
    key=lambda: f"about {round(1.2**n_layers, -1):.0f} times",
    choices={
        "about 5 times": "That would be 24 times a fifth, added up. But each factor multiplies what is already there.",
        "about 29 times": "That is 24 times 1.2. But each factor multiplies what is already there.",
        "about 80 times": "",
    },
    because="Factors multiply: 1.2 to the power of 24.",
)

# %% [markdown]
# Each map turns the vector somewhere else (`qr` makes a random turn, which keeps every size) and then multiplies by a factor. After it stands a **norm**:
# a function that brings a vector to a fixed size. The first two chains go without, the third one divides by the size.


# %%
def sizes_on_the_way(factor: float, norm) -> list[float]:
    generator = torch.Generator().manual_seed(4)
    x, found = torch.randn(C, generator=generator), []
    for _ in range(n_layers):
        turn = torch.linalg.qr(torch.randn(C, C, generator=generator)).Q  # (C, C)
        x = norm(factor * turn @ x)  # (C)
        found.append(size(x).item())
    return found


# %%
courses = {
    "factor 1.2": sizes_on_the_way(1.2, norm=lambda x: x),
    "factor 0.8": sizes_on_the_way(0.8, norm=lambda x: x),
    "factor 1.2, divided by its size": sizes_on_the_way(1.2, norm=lambda x: x / size(x)),
}

# %% tags=["source-hidden"]
layers = list(range(1, n_layers + 1))
with figures.axes("Small factors multiply", "layer", "size of the vector") as (figure, ax):
    for name, course in courses.items():
        ax.plot(layers, course, label=name)
    ax.set_yscale("log")
    ax.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    ax.legend(frameon=False, loc="upper left")
    ax.set_ylim(0.002, 2000)
shown = [0, 7, 15, 23]
figures.display(
    figure,
    alt="Line chart, logarithmic: over 24 layers one vector grows, one shrinks, and one that is divided by its size stays at 1.",
    caption="A factor near 1, repeated, is a straight line up or down on a logarithmic scale. Dividing by the size holds the third at 1.",
    table={"layer": [layers[i] for i in shown], **{n: [c[i] for i in shown] for n, c in courses.items()}},
    digits=2,
)

# %% [markdown]
# With more layers or another factor, another size: the next layer cannot know what to expect. The remedy is the third line: **divide by the size**, again
# and again. What is lost is how large a vector was. What stays is how its numbers compare with each other.
#
# Is this a problem of toys? Here is the model that ships with the library. It adds to its vectors in each layer (lesson 09), so they grow.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
told = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in (1, 2)]
ids = torch.tensor([tokenizer.encode("\n" + text)[:80] for text in told])  # (B, T)
caught = capture(model, ids)

# %%
for name in ("blocks.0.attn_norm", "blocks.1.attn_norm", "blocks.2.attn_norm", "final_norm"):
    met = size(caught.inputs[name])  # (B, T)
    print(f"{name:<18} meets vectors of size {met.min():.1f} to {met.max():.0f}, on average {met.mean():.1f}")
print("the largest of all stands at the word", tokenizer.decode([ids.flatten()[met.argmax()].item()]).strip())

# %% [markdown]
# Two stories, and in front of the final norm some vectors are many times as large as others. Every part that reads them has a norm in front, so that it makes no difference to that part how large a vector had become.

# %% [markdown] tags=["note"]
# Real maps do not only turn: they stretch some directions more than others, and then even a factor of 1 on average wanders. If time is short, skip the second half of section 4.

# %% [markdown] slide="slide"
# ## 2. RMSNorm: divide by the size
# By hand first. The numbers 3 and 4:

# %%
v = torch.tensor([3.0, 4.0])
print("squares:", v.square())
print(f"mean {v.square().mean():.1f}, root of it {v.square().mean().sqrt():.4f}")
print("divided by that:", v / size(v))

# %% [markdown]
# The result has the size 1, and 3 to 4 is still 3 to 4.
#
# One published course note calls this root the "L2 norm" of the vector. The L2 norm is its *length*: the root of the **sum** of the squares.

# %% rows=["S1-8"]
length = v.square().sum().sqrt()
print(f"length {length:.0f}, size {size(v):.4f}, length / root of 2 = {length / math.sqrt(2):.4f}")
assert torch.isclose(size(v), length / math.sqrt(len(v)))

# %% tags=["source-hidden"]
w = torch.randn(64)  # (64)
predict(
    "We divide a vector of 64 numbers by its length instead of its size. What size has the result?",
    key=lambda: f"1/{1 / size(w / w.norm()).item():.0f}",
    choices={
        "1": "Its length is 1 then. The squares sum to 1, so their mean is smaller.",
        "1/8": "",
        "1/64": "That is the mean of the squares. Now the root.",
    },
    because="The squares sum to 1, so their mean is 1/64, and the root of that is 1/8.",
)

# %% [markdown]
# ### A gain for each feature
# After the division the norm multiplies each feature by a learned number, its **gain** $g$, which starts at 1. In a block, the linear map that comes next could do the same scaling. So
# the gains there add nothing that the model could not compute without them, but each one is a parameter of its own, which training adjusts.
#
# $$\text{RMSNorm}(x)_i = \frac{x_i}{\sqrt{\frac{1}{C}\sum_j x_j^2 + \epsilon}} \cdot g_i$$
#
# Think of a mixing desk. First the whole band is brought to one volume, however loud it came in. Then each instrument has its own slider. The small
# $\epsilon$ (epsilon) has a section of its own below. One word by hand, and a batch of words by the library's norm. From here
# on $C$ is the width of the shipped model, 128 instead of 64:

# %% rows=["S0-17", "S0-18"] evidence="by-hand"
with torch.no_grad():
    x = model.embed(ids[:, :6])  # (B, T) -> (B, T, C)
    B, T, C = x.shape
    assert C == 128
    norm = RMSNorm(C)
    one = x[0, 5]  # (C)
    by_hand = one / (one.square().mean() + 1e-5).sqrt() * norm.weight  # (C)
torch.testing.assert_close(norm(x)[0, 5], by_hand)
assert size(norm(x)).sub(1).abs().max() < 0.001
for i, token in enumerate(ids[0, :T].tolist()):
    word = tokenizer.decode([token]).strip() or "line end"
    print(f"{word:>10}: size {size(x)[0, i]:.2f} before, {size(norm(x))[0, i]:.2f} after")

# %% [markdown]
# Look at the shapes: `size(x)` is $(B, T)$, one number for each vector. `[..., None]` (`...` means all the axes there are) gives it a last axis of size 1, $(B, T, 1)$, as
# `keepdim=True` would have done. The gain is $(C)$, one for each feature. Each is stretched by broadcasting
# over the axes that the other one has.

# %%
assert size(x)[..., None].shape == (B, T, 1) and norm.weight.shape == (C,)
for name in ("blocks.0.attn_norm", "blocks.0.ffn_norm", "final_norm"):
    gain = model.get_submodule(name).weight  # (C)
    print(f"{name:<18} learned gains of {gain.min():.2f} to {gain.max():.2f}, on average {gain.mean():.2f}")

# %% [markdown]
# A gain near 0 switches its feature off for the part that reads it.
#
# ### What it forgets, what it keeps
# Ten times as loud in, the same out: the size is forgotten. The division keeps the direction; the gains then turn it a little, since each stretches its own
# feature:

# %%
with torch.no_grad():
    torch.testing.assert_close(norm(10 * x), norm(x), rtol=1e-4, atol=1e-4)
    for gains, result in (("all 1", norm(x)), ("learned", model.blocks[0].attn_norm(x))):
        cosine = torch.cosine_similarity(result, x, dim=-1)  # (B, T)
        print(f"gains {gains}: cosine of before and after {cosine.mean():.2f} on average")

# %% [markdown] slide="slide"
# ## 3. LayerNorm: the mean goes, too
# LayerNorm is the older one. It first takes the **mean** from all numbers, and then does the same as RMSNorm; and it has a learned offset per feature
# beside the gain.
#
# $$\text{LayerNorm}(x)_i = \frac{x_i - \mu}{\sqrt{\frac{1}{C}\sum_j (x_j-\mu)^2 + \epsilon}} \cdot g_i + b_i, \qquad \mu = \frac{1}{C}\sum_j x_j$$

# %%
u = torch.tensor([1.0, 2.0, 6.0])
centred = u - u.mean()
print("centred:", centred, "variance:", rounded(centred.square().mean().item(), 4))
print("result: ", centred / size(centred))

# %% [markdown]
# The mean of the squares about the mean is the *variance*. It is divided by $C$. (`torch.var` divides by $C - 1$ unless told otherwise: that is
# for guessing a population from a sample, and here the three numbers are all there is.)

# %%
layer = LayerNorm(C)

# %% tags=["source-hidden"]
with torch.no_grad():
    forgets = {n: torch.allclose(f(x + 5), f(x), atol=1e-3) for n, f in (("RMSNorm", norm), ("LayerNorm", layer))}
predict(
    "We add 5 to all numbers of a vector. Which norm gives the same result as before?",
    key=lambda: "both" if all(forgets.values()) else max(forgets, key=forgets.get),
    choices={
        "RMSNorm": "It divides, and it never subtracts: a shifted vector points elsewhere.",
        "LayerNorm": "",
        "both": "RMSNorm never subtracts: a shifted vector points elsewhere.",
    },
    because="It takes the mean away, and the 5 with it.",
)


# %%
def same(norm, changed: torch.Tensor) -> str:
    return "same" if torch.allclose(norm(changed), norm(x), atol=1e-3) else "differs"


# %% evidence="centred"
with torch.no_grad():
    for what, changed in {"10 x": 10 * x, "x + 5": x + 5}.items():
        print(f"{what:>6}: RMSNorm {same(norm, changed)}, LayerNorm {same(layer, changed)}")
    assert same(norm, x + 5) == "differs" and same(layer, x + 5) == "same"
    middle = x - x.mean(-1, keepdim=True)  # (B, T, C)
    torch.testing.assert_close(norm(middle), layer(middle))
    print("on centred vectors both agree (gains 1, offset 0)")

# %% [markdown]
# So RMSNorm is LayerNorm without the centring and without the offset. [[centred]] Does the centring matter? To subtract the mean is to remove one direction from the vector, the one along
# $(1, 1, \dots, 1)$. So we measure how much of the mean square of the shipped model's vectors lies along this direction.

# %%
stream = caught.inputs["final_norm"]  # (B, T, C)


def part_along(direction: torch.Tensor) -> float:
    unit = direction / direction.norm()  # (C)
    return ((stream @ unit).square().sum() / stream.square().sum()).item()


mean_direction = torch.ones(C)
print(f"along the mean: {part_along(mean_direction):.1%} of the mean square")

# %% [markdown]
# That looks like very little. But a small number means nothing until we know what to compare it with.

# %% tags=["source-hidden"]
drawn = torch.randn(1000, C, generator=torch.Generator().manual_seed(4))  # 1000 random directions
parts = torch.tensor([part_along(direction) for direction in drawn])
predict(
    f"We take 1000 random directions in the same {C} dimensions. How much lies along one of them, on average?",
    key=lambda: f"about {round(100 * parts.mean().item(), 1)} %",
    choices={
        "about 0.8 %": "",
        "about 10 %": f"Then {C} perpendicular directions would hold far more than there is.",
        "about 50 %": "That would be so in two dimensions. Here there are many more.",
    },
    because=f"{C} perpendicular directions share the whole, so one of them has 1/{C} of it on average.",
)

# %% evidence="one-direction"
print(f"along a random direction: {parts.mean():.1%} on average, from {parts.min():.1%} to {parts.max():.1%}")
strongest = torch.linalg.svd(stream.flatten(0, 1), full_matrices=False).Vh[0]  # (C)
print(f"along the strongest direction: {part_along(strongest):.0%};  1/C is {1 / C:.1%}")
assert abs(parts.mean() * C - 1) < 0.1 and part_along(mean_direction) < parts.median()

# %% [markdown]
# In front of the final norm, the mean holds less than most of the random directions. [[one-direction]] What happens if we remove it? We subtract one direction
# in front of every norm of a copy. For the mean this is exactly the centring of LayerNorm. `F.cross_entropy` is the loss of lesson 03, on 20 other stories.


# %%
generator = torch.Generator().manual_seed(5)
others = torch.tensor([tokenizer.encode("\n" + storyworld.story(generator).text)[:80] for _ in range(20)])  # (20, T)


def loss_without(direction: torch.Tensor) -> float:
    unit = direction / direction.norm()  # (C)
    changed_model = deepcopy(model)
    for name, module in changed_model.named_modules():
        if name.endswith(("attn_norm", "ffn_norm", "final_norm")):
            module.register_forward_pre_hook(lambda _, inputs: inputs[0] - (inputs[0] @ unit)[..., None] * unit)
    with torch.no_grad():
        return F.cross_entropy(changed_model(others[:, :-1]).mT, others[:, 1:]).item()


# %% evidence="mean-removed"
with torch.no_grad():
    whole = F.cross_entropy(model(others[:, :-1]).mT, others[:, 1:]).item()
removed = {"the mean": loss_without(mean_direction), "the strongest": loss_without(strongest)}
for i in range(5):
    removed[f"random {i}"] = loss_without(drawn[i])
print(f"loss of the shipped model: {whole:.3f}")
for name, loss in removed.items():
    print(f"without {name:<13}: {loss:.3f}")
random_losses = [loss for name, loss in removed.items() if name.startswith("random")]
assert max(removed["the mean"], *random_losses) < whole + 0.01 < removed["the strongest"]

# %% [markdown]
# Without the mean the loss hardly changes, and the same holds for each of five random directions. Without the strongest direction it rises. [[mean-removed]] So this model hardly depends on its mean. That
# does not show that *training* needs no centring: we changed a finished model, and it was trained without centring. For that question one has to train both ways. Zhang and
# Sennrich did: with RMSNorm their models became about as good as with LayerNorm, and the running time fell by 7 to 64 % (Zhang and Sennrich 2019). The Llama models use RMSNorm (Touvron et al. 2023).

# %% [markdown] tags=["note"]
# A picture for the board, three numbers per vector: LayerNorm puts every vector on a circle (centred, then one length), RMSNorm on a sphere.
# Common wrong answer: that LayerNorm needs no gain because it has an offset. In the second half ask at the first percentage "small compared with what?". The usual wrong conclusion: the mean holds little,
# so a model can be trained without centring. What fails there: most directions hold little, and this model never had centring.

# %% [markdown] slide="slide"
# ## 4. The small number inside the root
# A vector of zeros has the size 0, and 0 / 0 is NaN. That is what $\epsilon$ is for: it keeps the divisor above 0. [[eps-zeros]] It is added **inside** the root, to the mean of the squares.

# %% evidence="eps-zeros"
zeros, eps = torch.zeros(1, C), 1e-5
print("without eps:", (zeros / size(zeros)[:, None])[0, :3])
print("with eps:   ", RMSNorm(C, eps=eps)(zeros)[0, :3].detach())
assert (zeros / size(zeros)[:, None]).isnan().all() and RMSNorm(C, eps=eps)(zeros).eq(0).all()

# %% tags=["source-hidden"]
predict(
    "With eps = 0.00001 inside the root, what is a vector of zeros divided by?",
    key=lambda: f"about {math.sqrt(eps):.3f}",
    choices={
        "0.00001": "Inside the root: so the root of it is what divides.",
        "about 0.003": "",
        "1": "A fixed size of 1 for small vectors would be another rule; here it is only what the formula says.",
    },
    because="The mean of the squares is 0, so what is left is the root of eps.",
)

# %% [markdown]
# So the root of eps is a size, too: $\sqrt{10^{-5}} \approx 0.003$. A vector that is much larger hardly changes because of eps. And a smaller one? Its size afterwards
# is $r / \sqrt{r^2 + \epsilon}$, where $r$ was its size before:

# %%
before = torch.logspace(-6, 1, 71)
after = {f"eps = {eps:.0e}": before / (before.square() + eps).sqrt() for eps in (1e-8, 1e-5)}
mark = 0.02  # standard deviation of freshly made embeddings in many models

# %% tags=["source-hidden"]
with figures.axes("Below the root of eps, a norm lets go", "size before", "size after") as (figure, ax):
    for name, course in after.items():
        line = ax.plot(before, course, label=name)[0]
        root = math.sqrt(float(name[6:]))
        ax.plot(root, math.sqrt(0.5), "o", color=line.get_color())
        ax.annotate(f"root: {root:.1g}", (root, math.sqrt(0.5)), (-8, 2), textcoords="offset points", ha="right")
    ax.axvline(mark, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
    ax.text(mark * 1.1, 0.05, f"fresh embeddings, {mark}", color=figures.QUIET)
    ax.set_xscale("log")
    ax.set_xticks(
        [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10], ["1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1", "1", "10"]
    )
    ax.legend(frameon=False, loc="center right")
places = [0, 10, 20, 25, 30, 40, 43, 50, 60]
figures.display(
    figure,
    alt="Two curves from 0 up to 1: with eps of 1e-5 the size after reaches 1 for sizes before above 0.03, with 1e-8 above 0.001.",
    caption="The dots mark the root of each eps. Far right of it a vector leaves with size 1; left of it eps decides, and small vectors stay small.",
    table={
        "size before": [f"{r:.1g}" for r in before[places].tolist()],
        **{n: [f"{r:.2g}" for r in c[places].tolist()] for n, c in after.items()},
    },
)

# %% [markdown]
# At the dotted line eps is just not negligible. Many models begin with embeddings of standard deviation 0.02:

# %% evidence="below-eps"
fresh = mark * torch.randn(1000, 512)
print(f"after RMSNorm with eps 1e-5: size {size(RMSNorm(512)(fresh)).mean().item():.3f}")
print(f"by the formula: {mark / math.sqrt(mark**2 + 1e-5):.3f}")
for some_eps in (1e-8, 1e-5, 0.1):
    root = math.sqrt(some_eps)
    results = [size(RMSNorm(C, eps=some_eps)(times * root * torch.ones(C))).item() for times in (0.1, 1, 10)]
    assert results[0] < 0.11 and 0.7 < results[1] < 0.72 and results[2] > 0.99

# %% [markdown]
# Not 1. So use the eps a model was trained with, and do not be surprised by a size of 0.988.
#
# And why inside? Some implementations add it outside, to the root. We compare both, and look at the gradient: how strongly a change of a vector shows in the result, near 0 and exactly at 0.


# %%
def with_eps_inside(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def with_eps_outside(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


def slope(rule, x: torch.Tensor, eps: float) -> float:
    x = x.clone().requires_grad_()
    rule(x, eps)[0].backward()
    return x.grad[0].item()


# %% evidence="eps-outside"
tiny = 1e-9 * torch.ones(C)
print("eps                  slope near 0   slope at 0   size 0.02 becomes")
for name, rule, eps_here in (
    ("inside,  0.00001", with_eps_inside, 1e-5),
    ("outside, 0.00001", with_eps_outside, 1e-5),
    ("outside, 0.003", with_eps_outside, math.sqrt(1e-5)),
):
    at_zero = slope(rule, torch.zeros(C), eps_here)
    becomes = size(rule(mark * torch.ones(C), eps_here))
    print(f"{name:<18}   {slope(rule, tiny, eps_here):12,.0f}   {at_zero:10,.0f}   {becomes:17.3f}")
    assert math.isnan(at_zero) == (rule is with_eps_outside)

# %% [markdown]
# With the same eps outside, a change of a tiny vector is multiplied by 99,990 instead of 316. A larger eps outside fixes that, but it shrinks vectors of size 0.02, such as fresh embeddings, to 0.863. And at
# 0, automatic differentiation gives NaN if eps is outside. The true derivative is finite there, $1/\epsilon$, but PyTorch differentiates our formula step by step: the plain root has an infinite slope at 0, and infinity times 0
# is NaN. (Other ways to compute the root, such as `torch.linalg.vector_norm`, avoid the NaN.) With eps inside, the root never meets a 0. [[eps-outside]]

# %% [markdown] slide="slide"
# ## 5. Sixteen bits
# On a GPU the numbers that pass between layers often have 16 bits each. fp16 ends at 65,504; bf16 reaches as far as fp32, but keeps only two to three digits.

# %%
half = torch.tensor([300.0, 400.0], dtype=torch.float16)

# %% tags=["source-hidden"]
careless = half / (half.square().mean() + 1e-5).sqrt()
predict(
    "A norm that computes in fp16 gets the vector [300, 400]. What comes out?",
    key=lambda: str([round(value, 2) for value in careless.tolist()]),
    choices={
        "[0.85, 1.13]": "That is right in mathematics. But 300 squared is 90,000.",
        "[nan, nan]": "inf / inf would be NaN. Here only the divisor is inf.",
        "[0.0, 0.0]": "",
    },
    because="300 squared is above 65,504, so the mean is inf; and a finite number divided by inf is 0.",
)

# %% evidence="fp16-squares"
print("largest fp16:", torch.finfo(torch.float16).max, " squares:", half.square())
print("careless:", half / (half.square().mean() + 1e-5).sqrt())
print("library: ", RMSNorm(2)(half).detach())
assert careless.eq(0).all() and 0.999 < size(RMSNorm(2)(half).float()).item() < 1.001

# %% [markdown]
# No error, no NaN: the word is simply gone. So **a norm computes in fp32** and casts back at the end. In bf16 nothing overflows, but digits are lost:

# %%
brain = torch.randn(1000, 512).bfloat16()
exact = brain.double() / size(brain.double())[:, None]  # (1000, 512)
rough = brain / size(brain)[:, None]  # (1000, 512)
for name, result in (("all in bf16", rough), ("fp32 inside", RMSNorm(512)(brain))):
    error = (result.double() - exact).abs().mean() / exact.abs().mean()
    print(f"{name}: off by {100 * error.item():.2f} % on average")

# %% [markdown]
# The 0.14 % is only the last rounding, back to bf16.
#
# ### Which dtype comes out?
# When two formats are multiplied number by number, the result has a format that holds both; a matrix product refuses (section 7).

# %%
for a, b in ((torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16), (torch.float32, torch.float64)):
    print(f"{str(a)[6:]:>8} * {str(b)[6:]:<8} -> {str((torch.ones(1, dtype=a) * torch.ones(1, dtype=b)).dtype)[6:]}")

# %% [markdown]
# Gains are usually kept in fp32. So a bf16 vector times its gain is fp32, unless somebody casts it back. The next layer expects what came in:
# **the dtype of the input is the dtype of the output**.

# %% [markdown] tags=["note"]
# Most rooms vote for NaN. Walk through it: which number is inf, and where does it stand? Lesson 03 had inf above and below the line, here it is only below.
# A silent zero is worse than a NaN: nothing stops.

# %% [markdown] slide="slide"
# ## 6. Your turn
# Write both norms for any number of leading axes. Inputs of fp16 and bf16 are computed in fp32; the result has the dtype of `x`.
# (`torch.promote_types(x.dtype, torch.float32)` names a dtype to compute in that leaves fp64 its digits.)


# %% tags=["exercise"] name="rms_norm" minutes=12 difficulty=2
def rms_norm(x, weight, eps):
    """x (..., C), weight (C) the gains, eps inside the root. Returns (..., C) in the dtype of x."""
    # SOLUTION
    z = x.to(torch.promote_types(x.dtype, torch.float32))
    z = z / (z.square().mean(-1, keepdim=True) + eps).sqrt()
    return (z * weight).to(x.dtype)
    # END


# %% tags=["check"]
if check("rms_norm", rms_norm).passed:
    keep("rms_norm", rms_norm)

# %%
hint("rms_norm")

# %% [markdown] tags=["solution"]
# Square, mean, plus eps, root; divide; gain; cast. `mean(-1, keepdim=True)` keeps the axis, so that each vector is divided by its own size. The usual slips:
# `norm(dim=-1)`, which is the length, larger by the root of C; eps outside the root; no cast, or the cast before the gain, so that a fp32
# gain makes the result fp32 (section 7); and squares in fp16.


# %% tags=["exercise"] name="layer_norm" minutes=10 difficulty=2
def layer_norm(x, weight, bias, eps):
    """x (..., C), weight (C) the gains, bias (C) the offsets, eps inside the root. Returns (..., C) in the dtype of x."""
    # SOLUTION
    z = x.to(torch.promote_types(x.dtype, torch.float32))
    z = z - z.mean(-1, keepdim=True)
    z = z / (z.square().mean(-1, keepdim=True) + eps).sqrt()
    return (z * weight + bias).to(x.dtype)
    # END


# %% tags=["check"]
if check("layer_norm", layer_norm).passed:
    keep("layer_norm", layer_norm)

# %%
hint("layer_norm")

# %% [markdown] tags=["solution"]
# One line more than RMSNorm, and the offset at the end. Once the vector is centred, its variance is the mean of its squares. `x.var(-1)` without
# `unbiased=False` divides by C - 1; with many features nobody sees it in a loss curve, and yet it is another function.

# %% [markdown] slide="subslide"
# ### The library's version
# As modules, which hold gain and offset as parameters. They agree with PyTorch's own.

# %% rows=["S0-16", "S1-7"]
with torch.no_grad():
    torch.testing.assert_close(RMSNorm(C, eps=0.1)(x), torch.nn.RMSNorm(C, eps=0.1)(x))
    torch.testing.assert_close(LayerNorm(C, eps=0.1)(x), torch.nn.LayerNorm(C, eps=0.1)(x))
show(RMSNorm)
show(LayerNorm)

# %%
trace(RMSNorm(C), x, sizes={"B": B, "T": T, "C": C})

# %% [markdown]
# `rsqrt` is one over the root, in one step. `at_least_fp32` goes to fp32, and leaves fp64 alone. LayerNorm leaves its arithmetic to PyTorch; on a GPU that
# is one kernel instead of several.

# %% [markdown] slide="slide"
# ## 7. Break it: one line, two orders
# Two published course notes define the same RMSNorm, and disagree in the last line. One multiplies by the gain and then casts back.
# The other casts back and then multiplies.


# %%
def gain_then_cast(z, gain, dtype):
    return (z * gain).to(dtype)


def cast_then_gain(z, gain, dtype):
    return z.to(dtype) * gain


# %%
z, gain = exact.float(), 0.5 + torch.rand(512)  # normalized, in fp32

# %% [markdown]
# With an fp32 gain the second one returns fp32, as section 5 showed. The next layer, in bf16, refuses it:

# %% tags=["raises-exception"]
following = Linear(512, 512, dtype=torch.bfloat16)
following(cast_then_gain(z, gain, torch.bfloat16))

# %% [markdown]
# With bf16 gains both return bf16, but the second order rounds twice:

# %% evidence="two-orders"
coarse_gain = gain.bfloat16()
one = gain_then_cast(z, coarse_gain, torch.bfloat16)  # (1000, 512)
other = cast_then_gain(z, coarse_gain, torch.bfloat16)  # (1000, 512)
true = z.double() * coarse_gain.double()
print(f"{(one != other).float().mean():.0%} of the numbers differ")
errors = []
for name, result in (("gain, then cast", one), ("cast, then gain", other)):
    errors.append((result.double() - true).abs().mean() / true.abs().mean())
    print(f"{name}: off by {100 * errors[-1].item():.2f} % on average")
assert errors[0] < 0.9 * errors[1]

# %% [markdown]
# As long as the gains have the dtype of the input, neither is a mistake; the released Llama code, for one, casts first. But a model trained with one order and run with the other gives other numbers.
# The library takes the first: the input's dtype comes back whatever the gain's is, and one rounding is better than two.
#
# ### Along the wrong axis
# A second break. A norm that takes one mean over texts, positions *and* features raises no error, and the root mean square of all its output numbers together is 1. Each single
# vector's need not be. But we change the last word:

# %%
changed = x.detach().clone()
changed[:, -1] *= 3


def joint_norm(x: torch.Tensor) -> torch.Tensor:
    return x / x.square().mean().sqrt()  # (B, T, C) -> (B, T, C)


# %% tags=["source-hidden"]
first = [size(joint_norm(vectors.detach()))[0, 0].item() for vectors in (x, changed)]
predict(
    "The last word's vector is now 3 times as large. Does the first position move? How large is its result, with one mean over everything?",
    key=lambda: "as large as before" if math.isclose(*first) else ("smaller" if first[1] < first[0] else "larger"),
    choices={
        "as large as before": "It would be, with a mean of its own. Here all positions share one divisor.",
        "smaller": "",
        "larger": "The shared mean grows, and it divides.",
    },
    because="The last word makes the one mean grow, and all positions are divided by its root.",
)

# %% evidence="one-mean-for-all"
per_vector = (RMSNorm(C)(changed) - RMSNorm(C)(x))[:, 0].abs().max().item()
over_all = (joint_norm(changed) - joint_norm(x))[:, 0].abs().max().item()
print(f"first position moves by {per_vector:.2f}; with one mean over everything by {over_all:.2f}")
assert per_vector == 0 < over_all

# %% [markdown]
# The first word has learned something about the last one. A model that may not look ahead (lesson 05) has just been told the future, through its norm.
#
# ## What you have now
# - The size of a vector is its root mean square. RMSNorm divides by it and then multiplies each feature by a learned gain. [[by-hand]]
# - LayerNorm subtracts the mean first. On vectors whose mean is 0, both norms agree if LayerNorm's offset is 0 and the gains are equal. [[centred]]
# - In our model, which was trained without centring, the mean holds less than most directions in front of the final norm, and removing it hardly changes the loss. That training works without centring is a result of Zhang and Sennrich (2019). [[one-direction]] [[mean-removed]]
# - With eps inside the root, automatic differentiation gives a finite gradient at 0. With eps outside, a plain square root gives NaN at 0, although the true derivative is finite. Vectors smaller than the root of eps do not come out with size 1. [[eps-outside]] [[below-eps]]
# - In fp16 the squares can overflow, so a norm computes in fp32 and returns the dtype of its input. With one cast at the very end, the result is rounded only once. [[fp16-squares]] [[two-orders]]
# - Each vector is normalized by itself, along the last axis. With one mean over all positions, a word would learn about later words. [[one-mean-for-all]]
#
# Next, lesson 05: how a word finds the earlier word it depends on.

# %% [markdown]
# ## Sources
# - RMSNorm: Zhang and Sennrich 2019, *Root Mean Square Layer Normalization*, section 4, equation 4.
# - LayerNorm: Ba, Kiros and Hinton 2016, *Layer Normalization*, section 3.
# - RMSNorm in Llama: Touvron et al. 2023, *LLaMA: Open and Efficient Foundation Language Models*, section 2.2.
# - fp32 inside: Micikevicius et al. 2018, *Mixed Precision Training*, section 3.3.
