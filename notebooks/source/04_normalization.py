# %% [markdown] slide="slide"
# # 04 Normalization
# **How do numbers keep one size, however many layers they pass?**
#
# *Needs* lessons 02 and 03. *Builds* `RMSNorm` and `LayerNorm` in `layers.py`. *Runs* in about 20 s on two cores.
# *Teaches* in about 57 minutes, plus 22 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: factors multiply from layer to layer, so the size of a vector drifts, and a norm divides by the size before that can do harm. Section 1 has the picture of the lesson, sections 1 to 3 are the core with one exercise, and section 4 compares the two norms in use. Sections 5 and 6 are about mistakes that raise no error. Section 7 goes further, with what students need when they write or load real models.
# Before the class: run all cells once, and try the control at the end of section 1.

# %% slide="skip"
import math

import torch
import torch.nn.functional as F
from matplotlib import pyplot as plt

from tinylm_classroom import control, figures, learned, predict

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** A model passes every vector through many layers. We look at the simplest such chain and ask two questions: how large are the numbers at its end, and can it still learn? Ask both predictions before you show anything.
#
# **Draw.** A chain of 24 boxes, a vector going in, and the factor 1.2 below each box. Then a second chain, with a small box *divide by the size* after each.
#
# **Ask.** After the picture of the lesson: "Could I not just choose the right start? What would you try, if you were not allowed to use a norm?" Collect *start*, *learning rate* and *optimizer*; the table after the picture tries them.
#
# **Usual answers.**
# - *24 times 0.2* (`about 5 times`): Let the class compute two layers: 1.2 times 1.2 is more than 1.4.
# - *All of them, because learning corrects the weights* (`all five`): It would, if a useful gradient arrived. What is the gradient multiplied by on its way back?
# - *Only the factor 1* (`only 1`): A good guess without a norm; count how many blue dots are at the bottom, too.
# - *The norm throws information away* (from the room): It does, one number of 64. The rest of the lesson asks whether anybody misses it.
#
# **Cut if short.** The control.

# %% [markdown] slide="slide"
# ## 1. Small factors multiply
# In a model each vector passes many layers, and each may make its numbers a little larger or smaller. How large are they at the end? The simplest case is a chain of linear maps (lesson 02).
#
# The **size** of a vector is its **root mean square**, RMS: square its numbers, take their mean, take the root.


# %%
def size(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()


# %% tags=["source-hidden"] slide="subslide"
predict(
    "A vector passes 24 layers, and each makes it 1.2 times as large. How much larger is it at the end?",
    key=lambda: f"about {round(1.2**24, -1):.0f} times",
    choices={
        "about 5 times": "That is 24 times 0.2, added up. But each factor multiplies what is already there.",
        "about 29 times": "That is 24 times 1.2. But each factor multiplies what is already there.",
        "about 80 times": "",
    },
    because="Factors multiply: 1.2 to the power of 24.",
)

# %% [markdown] slide="subslide"
# A chain of 24 orthogonal matrices (`qr` makes them), each times a factor. Such a matrix keeps every vector's size. A **norm** after each layer brings the vector back to a fixed size; our first one divides by the size.

# %% slide="skip"
n_layers, width = 24, 64


# %%
def first_weights(factor: float, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(n_layers, width, width, generator=generator)
    return list(factor * torch.linalg.qr(random).Q)  # n_layers of (width, width)


# %% slide="skip"
def no_norm(x: torch.Tensor) -> torch.Tensor:
    return x


def divide_by_size(x: torch.Tensor) -> torch.Tensor:
    return x / size(x)[..., None]


# %%
def sizes_on_the_way(factor: float, norm) -> list[float]:
    x = divide_by_size(torch.randn(width, generator=torch.Generator().manual_seed(5)))
    found = []
    for weight in first_weights(factor, seed=4):
        x = norm(weight @ x)
        found.append(size(x).item())
    return found


# %% slide="skip"
on_the_way = {
    "factor 1.2": sizes_on_the_way(1.2, no_norm),
    "factor 0.8": sizes_on_the_way(0.8, no_norm),
    "factor 1.2, with a norm": sizes_on_the_way(1.2, divide_by_size),
}

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10.4, 5.4), layout="constrained")
for label, sizes in on_the_way.items():
    (line,) = ax.plot(range(1, n_layers + 1), sizes)
    line.set_color(figures.SERIES["norm" not in label])
    ax.text(n_layers + 0.4, sizes[-1], label.replace(", ", ",\n"), color=line.get_color(), va="center", size=18)
ax.set_yscale("log")
ax.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
ax.minorticks_off()
ax.set(title="Small factors multiply", xlabel="layer", ylabel="size of the vector", xlim=(0, 32), xticks=[1, 8, 16, 24])
figures.display(
    fig,
    alt="Line chart, logarithmic: over 24 layers one vector grows, one shrinks, and one that is divided by its size stays at 1.",
    caption="A factor near 1, repeated, is a straight line up or down on a logarithmic scale. Dividing by the size keeps the third vector at 1.",
    table={"layer": [1, 8, 16, 24], **{label: [sizes[i] for i in (0, 7, 15, 23)] for label, sizes in on_the_way.items()}},
    digits=2,
)  # fmt: skip

# %% [markdown] slide="say"
# The numbers **explode** or **vanish**. The gradient takes the same way back, by the chain rule (lesson 02), so it is multiplied by the same factors. [[gradients-too]] The norm loses one thing, how large the vector was, and keeps how its numbers compare with each other.


# %% slide="skip" evidence="gradients-too"
def gradient_factor(factor: float, norm) -> float:
    """How large the gradient of one number at the end is at the start of the chain; at the end it is 1."""
    start = torch.randn(width, generator=torch.Generator().manual_seed(5)).requires_grad_()
    x = start
    for weight in first_weights(factor, seed=4):
        x = norm(weight @ x)
    x[0].backward()
    return start.grad.norm().item()


for label, factor, some_norm in (("", 0.8, no_norm), ("", 1.2, no_norm), (", with a norm", 1.2, divide_by_size)):
    back = gradient_factor(factor, some_norm)
    print(f"factor {factor}{label}: the gradient at the start is {back:.3f}")
    assert 0.5 < back < 2 if label else math.isclose(back, factor**24, rel_tol=1e-3)

# %% [markdown] slide="subslide"
# ### Does it matter for learning?
# We train the chain on a small task, with the plain steps of lesson 02: there are 32 tokens, and for token $t$ the chain has to name the token $5t + 3$, counted modulo 32.


# %%
def train_chain(factor, norm, learning_rate=0.1, optimizer=torch.optim.SGD, seed=4) -> list[float]:
    """Returns the loss before each of 100 updates. SGD takes the plain steps of lesson 02."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(32, width, generator=generator)  # (V, width): a fixed vector for each token
    last = torch.randn(32, width, generator=generator) / math.sqrt(width)  # (V, width)
    answers = (5 * torch.arange(32) + 3) % 32
    weights = [weight.requires_grad_() for weight in [*first_weights(factor, seed), last]]
    stepper = optimizer(weights, lr=learning_rate)
    losses = []
    # ESSENTIAL
    for _ in range(100):
        x = tokens
        for weight in weights[:-1]:
            x = norm(x @ weight.T)
        loss = F.cross_entropy(x @ weights[-1].T, answers)
        losses.append(loss.item())
        stepper.zero_grad()
        loss.backward()
        stepper.step()
    # END
    return losses


# %% slide="skip"
factors = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0]
without = [train_chain(factor, no_norm)[-1] for factor in factors]
with_norm = [train_chain(factor, divide_by_size)[-1] for factor in factors]

# %% tags=["source-hidden"]
learned_from = [factor for factor in (0.5, 0.8, 1, 1.2, 2) if without[factors.index(factor)] < 0.5]
predict(
    "Five chains without a norm start with the factors 0.5, 0.8, 1, 1.2 and 2. Which of them learn the task in 100 updates?",
    key=lambda: "only 1" if learned_from == [1] else str(learned_from),
    choices={
        "all five": "Learning would correct the weights, if a useful gradient arrived. By what is it multiplied on its way back?",
        "0.8, 1 and 1.2": "0.8 and 1.2 look close to 1, but to the power of 24 they are 0.005 and 80.",
        "only 1": "",
    },
    because="With smaller factors hardly any gradient arrives, and with larger ones each step is so large that the loss becomes NaN.",
)

# %% tags=["signature", "source-hidden"] slide="subslide"
places, top = list(range(len(factors))), 4.15
fig, ax = plt.subplots(figsize=(11.4, 6), layout="constrained")
ax.axhline(math.log(32), color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
ax.text(9.4, math.log(32) - 0.12, "guessing", size=20, ha="right", va="top", color=figures.QUIET)
heights = [loss if math.isfinite(loss) else top for loss in without]
ax.plot(places, heights, "-", color=figures.SERIES[1], linewidth=2, alpha=0.5)
ax.plot(places, [h if h < top else math.nan for h in heights], "s", color=figures.SERIES[1], markersize=13)
ax.plot(places, [h if h == top else math.nan for h in heights], "X", color=figures.SERIES[1], markersize=17)
ax.plot(places, with_norm, "o-", color=figures.SERIES[0], markersize=13, linewidth=3)
ax.text(0, 2.95, "without a norm", color=figures.SERIES[1], size=24, weight="bold")
ax.text(0, 0.32, "with a norm", color=figures.SERIES[0], size=24, weight="bold")
ax.text(9.3, 4.45, "the numbers overflow: NaN", color=figures.SERIES[1], size=22, ha="right", va="bottom")
ax.set_xticks(places, [f"{factor:g}" for factor in factors], size=20)
ax.set_yticks([0, 1, 2, 3], ["0", "1", "2", "3"], size=20)
ax.set_title("Without a norm, the start must be just right", size=26)
ax.set(ylim=(-0.25, 5.0), xlim=(-0.5, 9.5))
ax.set_xlabel("factor of each of the 24 layers at the start", size=20)
ax.set_ylabel("loss after 100 updates", size=20)
shown_losses = {"without a norm": without, "with a norm": with_norm}
figures.display(
    fig,
    alt="Loss after training over the factor at the start. Without a norm the loss is low at 0.9 and 1 only; for smaller factors it is that of guessing, for larger ones NaN. With a norm the loss is near 0 for all factors from 0.5 to 2.",
    caption="Each point is a chain of 24 layers, trained in the same way. Without a norm it learns only from the starts nearest to 1; with a norm it learns from all of them.",
    table={"factor": factors, **{k: [learned(round(v, 3), 0, 4) if math.isfinite(v) else "NaN" for v in row] for k, row in shown_losses.items()}},
)  # fmt: skip

# %% slide="skip" evidence="any-start"
assert max(with_norm) < 0.1 and max(without[:4]) > 3 and without[5] < 0.1
assert all(loss > 3.3 for loss in without[:4]) and all(map(math.isnan, without[7:]))
print(f"guessing one of 32 tokens: ln 32 = {math.log(32):.2f} nats")
print(f"factor 1: without a norm {learned(without[5], 1e-4, 0.05)}, with one {learned(with_norm[5], 1e-3, 0.1)} nats")

# %% [markdown]
# With this learning rate and 100 updates, the chain without a norm learns only if the factor is close to 1. With a norm it learns from every start that we tried. [[any-start]] From the right start the chain without a norm is even a little better: here the norm does not improve the fit, it makes the chain much easier to train.

# %% [markdown] slide="subslide"
# ### Is it really the norm?
# Perhaps another learning rate is enough, or another optimizer: the steps of AdamW (lesson 11) hardly depend on the size of the gradient. We try both, without a norm.


# %% slide="skip"
def best_of(losses: list[float]) -> float:
    """The smallest of the losses that are numbers."""
    return min((loss for loss in losses if math.isfinite(loss)), default=math.inf)


# %% tags=["source-hidden"] evidence="rivals"
rates = (0.001, 0.01, 0.1, 1)
print(f"{'without a norm':<17}{'rate 0.1':>10}{f'best of {len(rates)} rates':>17}{'AdamW':>10}")
rivals = {}
for start in (0.5, 0.8, 1.2):
    plain = without[factors.index(start)]
    tuned = best_of([plain, *(train_chain(start, no_norm, rate)[-1] for rate in rates if rate != 0.1)])
    adam = train_chain(start, no_norm, 0.001, torch.optim.AdamW)[-1]
    rivals[start] = tuned, adam
    shown_row = [learned(round(loss, 3), 0, 5) if math.isfinite(loss) else "NaN" for loss in (plain, tuned, adam)]
    print(f"factor {start:<10}{shown_row[0]:>10}{shown_row[1]:>17}{shown_row[2]:>10}")
assert rivals[1.2][0] < 0.5 and rivals[0.8][0] > 3 and rivals[0.5][0] > 3
assert rivals[0.8][1] < 0.5 < 1.5 < rivals[0.5][1]

# %% [markdown]
# Both help, and neither is enough: a smaller learning rate saves the factor 1.2, AdamW, tried with the rate 0.001 only, saves 0.8 as well, and neither saves 0.5. [[rivals]] Without a norm the start, the learning rate and the optimizer must fit each other. With a norm one setting worked for all starts.

# %% [markdown] slide="subslide"
# Look for a setting yourself. `control` runs `two_chains` again at each choice. `log_rate` is the power of ten of the learning rate.


# %% slide="skip"
def two_chains(factor=0.8, optimizer="SGD", log_rate=-1.0):
    kind = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}[optimizer]
    fig, ax = plt.subplots(figsize=(7.4, 4.6), layout="constrained")
    table = {}
    for label, norm, color in (("no norm", no_norm, 1), ("norm", divide_by_size, 0)):
        losses = train_chain(factor, norm, 10**log_rate, kind)
        ax.plot(losses, color=figures.SERIES[color], label=label)
        table[label] = [learned(round(loss, 3), 0, math.inf) if math.isfinite(loss) else "NaN" for loss in losses[::33]]
    ax.legend(frameon=False, loc="upper right")
    title = f"factor {factor:g}, {optimizer}, rate {10**log_rate:.2g}"
    ax.set(title=title, xlabel="update", ylabel="loss", ylim=(0, 6))
    caption = "A line that leaves the picture or ends has overflowed. Guessing has a loss of 3.5."
    alt = "The loss of a chain without a norm and of one with a norm over 100 updates."
    figures.display(fig, alt=alt, caption=caption, table={"update": [0, 33, 66, 99], **table})


# %%
control(two_chains, factor=(0.4, 2.0, 0.1), optimizer=["SGD", "AdamW"], log_rate=(-4.0, 0.0, 0.5))

# %% [markdown] slide="say"
# A norm is one way to keep sizes under control, and nearly all language models have it. There are others: to choose the first weights with care (lesson 10), to add each layer's result to what came in (lesson 09), or a squashing function such as tanh where the norm would be (Zhu et al. 2025).

# %% [markdown] tags=["note"]
# **Say.** The norm that nearly all new models have is one line: square, mean, root, and divide. Do the numbers 3 and 4 by hand with the class before you show the formula.
#
# **Draw.** The point (3, 4) in the plane, with the arrow from 0 to it. Its length is 5, its size 3.54. Divide, and draw the new point on the same ray.
#
# **Ask.** Prediction on the length, then: "What can you no longer know about a vector after this layer?" (How long it was.)
#
# **Usual answers.**
# - *The result has the size 1* (`1`): That is its length. The squares sum to 1, so their mean is 1/64.
# - *1/64* (`1/64`): That is the mean of the squares. Take the root.
# - *The squares are summed* (`sum`): Then it is the length, and the result is too small by the root of C. This is the most frequent mistake in the exercise.
# - *The cast comes first* (`stays fp32`): bf16 times an fp32 gain is fp32 again, so the cast must be last.
# - *Why not the mean of the absolute values?* (from the room): It would also bring vectors to one size, but the root mean square belongs to the length, which does not change when a vector is rotated.
#
# **Cut if short.** The cell with the cosines.

# %% [markdown] slide="slide"
# ## 2. RMSNorm: divide by the size
# By hand first, with the numbers 3 and 4:

# %%
v = torch.tensor([3.0, 4.0])
print("squares:", v.square())
print(f"mean {v.square().mean():.1f}, root of it {v.square().mean().sqrt():.4f}")
print("divided by that:", v / size(v))

# %% [markdown]
# The result has the size 1, and its two numbers are still in the ratio 3 to 4. So the direction is kept and the size is lost.

# %% [markdown] slide="subslide"
# The word *norm* has two meanings. In mathematics the norm of a vector is a number, for instance its length: the **L2 norm** is the root of the **sum** of the squares. In neural networks a norm is a layer that brings vectors to one size. A common mistake confuses the two and divides by the length.

# %% rows=["S1-8"]
length = v.square().sum().sqrt()
print(f"length {length:.0f}, size {size(v):.4f}, length / root of 2 = {length / math.sqrt(2):.4f}")
assert torch.isclose(size(v), length / math.sqrt(len(v)))

# %% tags=["source-hidden"]
w = torch.arange(1.0, 65.0)  # (64)
predict(
    "We divide a vector of 64 numbers by its length instead of its size. What size does the result have?",
    key=lambda: f"1/{1 / size(w / w.norm()).item():.0f}",
    choices={
        "1": "Its length is 1 then. The squares sum to 1, so their mean is smaller.",
        "1/8": "",
        "1/64": "That is the mean of the squares. Now take the root.",
    },
    because="The squares sum to 1, so their mean is 1/64, and the root of that is 1/8.",
)

# %% [markdown] slide="subslide"
# ### A gain for each feature
# After the division, the layer multiplies each feature by a learned number, its **gain** $g_i$, which starts at 1. This is **RMSNorm** (Zhang and Sennrich 2019):
#
# $$\text{RMSNorm}(x)_i = \frac{x_i}{\sqrt{\frac{1}{C}\sum_j x_j^2 + \epsilon}} \cdot g_i$$
#
# Think of a mixing desk. First the whole band is brought to one volume, however loud it came in. Then each instrument has its own slider.

# %% [markdown] slide="say"
# $\epsilon$ (epsilon) is a small number. A vector of zeros has the size 0, and 0 / 0 is NaN; with $\epsilon$ the divisor is never 0. [[eps-zeros]] It is added **inside** the root, to the mean of the squares, and section 6 shows why.

# %% slide="skip"
from tinylm_lib import storyworld
from tinylm_lib.layers import LayerNorm, RMSNorm
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
generator = torch.Generator().manual_seed(5)
texts = [storyworld.story(generator).text for _ in range(40)]
ids = torch.tensor([tokenizer.encode("\n" + text)[:80] for text in texts])  # (B, T)

# %% [markdown] slide="subslide"
# One vector by hand, and all of them by the library's layer. Here are the first six tokens of two stories; $C$ is 128.

# %%
x = model.embed(ids[:2, :6]).detach()  # (B, T) -> (B, T, C)
B, T, C = x.shape
norm = RMSNorm(C).requires_grad_(False)

# %% rows=["S0-17", "S0-18"] evidence="by-hand"
one_vector = x[0, 5]  # (C)
by_hand = one_vector / (one_vector.square().mean() + 1e-5).sqrt() * norm.weight  # (C)
torch.testing.assert_close(norm(x)[0, 5], by_hand)
assert size(norm(x)).sub(1).abs().max() < 0.001

# %% tags=["source-hidden"]
for i, token in enumerate(ids[0, :T].tolist()):
    word = tokenizer.decode([token]).strip() or "line end"
    print(f"{word:>10}: size {size(x)[0, i]:.2f} before, {size(norm(x))[0, i]:.2f} after")

# %% [markdown] slide="say"
# Look at the shapes: `size(x)` is $(B, T)$, one number for each vector, and `[..., None]` gives it a last axis of size 1, as `keepdim=True` does. (`...` means all axes before.) The gain is $(C)$, one number for each feature. By broadcasting (lesson 02) the sizes are repeated for all features, and the gains for all vectors.

# %% evidence="eps-zeros"
assert size(x)[..., None].shape == (B, T, 1) and norm.weight.shape == (C,)
zeros = torch.zeros(1, C)
print("zeros without eps:", divide_by_size(zeros)[0, :3])
print("zeros with eps:   ", norm(zeros)[0, :3])
assert divide_by_size(zeros).isnan().all() and norm(zeros).eq(0).all()

# %% [markdown] slide="subslide"
# What does the layer forget, and what does it keep? We make the vectors ten times as large, and we compare directions.

# %% evidence="forgets-size"
torch.testing.assert_close(norm(10 * x), norm(x), rtol=1e-4, atol=1e-4)
print("10 x instead of x: the same result")
learned_norm = model.blocks[0].attn_norm
for gains, result in (("all 1", norm(x)), ("learned", learned_norm(x).detach())):
    cosine = torch.cosine_similarity(result, x, dim=-1)  # (B, T)
    print(f"gains {gains}: cosine of before and after {cosine.mean():.2f} on average")

# %% [markdown]
# The division forgets the size and keeps the direction. [[forgets-size]] The learned gains then change the direction a little, because each stretches its own feature.

# %% [markdown] slide="subslide"
# ### Your turn
# Write RMSNorm for any number of leading axes. Two things come from section 5, where you can see why: inputs of fp16 and bf16 are computed in fp32, and the result has the dtype of `x`. (`torch.promote_types(x.dtype, torch.float32)` names a dtype to compute in that leaves fp64 its digits, and `x.to(dtype)` casts.)

# %% slide="skip"
from tinylm_classroom import check, hint, keep, show, trace


# %% tags=["exercise"] name="rms_norm" minutes=12 difficulty=2
def rms_norm(x, weight, eps):
    """x (..., C), weight (C) the gains, eps inside the root. Returns (..., C) in the dtype of x.

    Each vector of C numbers is normalized by itself. Gradients reach x and weight.
    rms_norm(torch.tensor([3.0, 4.0]), torch.ones(2), 0.0): [0.8485, 1.1314].
    """
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
# Square, mean, plus eps, root; divide; gain; cast. `mean(-1, keepdim=True)` keeps the axis, so that each vector is divided by its own size. Common mistakes: `norm(dim=-1)`, which is the length and larger by the root of C; eps outside the root; no cast, or the cast before the gain, so that a fp32
# gain makes the result fp32 (section 5); and squares in fp16.

# %% [markdown] slide="subslide"
# ### The library's version
# It is a module, which holds the gains as parameters, and it agrees with PyTorch's own. First the same computation in single steps, with its shapes:


# %% slide="skip"
def rms_norm_in_steps(x, gain):
    squares = x.square()  # (B, T, C)
    mean = squares.mean(-1)  # (B, T, C) -> (B, T)
    root = (mean + 1e-5).sqrt()  # (B, T)
    divisor = root[..., None]  # (B, T) -> (B, T, 1)
    unit = x / divisor  # (B, T, C)
    return unit * gain  # (B, T, C)


# %%
trace(rms_norm_in_steps, x, learned_norm.weight, sizes={"B": B, "T": T, "C": C})

# %% rows=["S0-16", "S1-7"] slide="subslide"
torch.testing.assert_close(rms_norm_in_steps(x, norm.weight), norm(x))
torch.testing.assert_close(norm(x), torch.nn.RMSNorm(C, eps=1e-5)(x))
show(RMSNorm)

# %% [markdown] slide="say"
# `at_least_fp32` casts to fp32 and leaves fp64 as it is. `F.rms_norm` is PyTorch's function; on a GPU it can be one program (a *kernel*) instead of several.

# %% [markdown] tags=["note"]
# **Say.** So far the chains were toys. Now we open the shipped model, look at the sizes in front of its norms, and find something that nobody expects. Take a vote at the prediction and let both sides argue.
#
# **Draw.** Two arrows in the same direction, a short one and a long one. After the norm both are the same arrow.
#
# **Ask.** Before the prediction: "If there were no norm before the last layer, what would a long vector mean for the probabilities?" (Large logits, so a sharp distribution, as with the temperature of lesson 03.) Afterwards: "Which experiment would show whether the model relies on the division?"
#
# **Usual answers.**
# - *Where it is sure* (`where it is sure`): That would be right without the norm, because larger logits make a sharper distribution. With the norm the size has no effect.
# - *They have nothing to do with each other* (`neither`): The norm hides the size from the layer after it, so nothing forces a relation. There is one all the same.
# - *A constant is enough, so the norm is useless* (from the room): Who knew the right constant before the training? Point back to the picture of section 1.
#
# **Cut if short.** The shaded story; keep the prediction and the last table.

# %% [markdown] slide="slide"
# ## 3. The norm in a trained model
# Is drift a problem of toys? The shipped model adds to its vectors in each layer (lesson 09), so they grow. It has a norm in front of each attention, each feed-forward, and the output layer. (Two small norms inside each attention, which lesson 05 mentions, stay as they are here.) `capture` runs a model and keeps what went into each part.

# %% slide="skip"
import itertools
from copy import deepcopy

from tinylm_classroom import capture

caught = capture(model, ids)

# %%
for part in ("blocks.0.attn_norm", "blocks.1.attn_norm", "blocks.2.attn_norm", "final_norm"):
    met = size(caught.inputs[part])  # (B, T)
    print(f"{part:<18} gets sizes from {met.min():.1f} to {met.max():4.1f}, on average {met.mean():4.1f}")

# %% [markdown]
# The sizes differ most in front of the final norm. Which vectors are the large ones?

# %% slide="skip"
final_sizes = size(caught.inputs["final_norm"])  # (B, T)
best = caught.logits.softmax(-1).amax(-1)  # (B, T): the probability of the most likely next token
relation = torch.corrcoef(torch.stack((final_sizes.flatten(), best.flatten())))[0, 1].item()

# %% tags=["source-hidden"]
predict(
    "In front of the final norm, where are the vectors large: where the model is sure of the next token, or where it is not?",
    key=lambda: "where it is not sure" if relation < -0.5 else "where it is sure" if relation > 0.5 else "neither",
    choices={
        "where it is sure": "Without the norm this would be so: larger numbers, larger logits, a sharper distribution.",
        "where it is not sure": "",
        "neither": "Nothing forces a relation, because the norm hides the size. But this model has one.",
    },
    because="That is what we measure in this model. The norm hides the size from the output layer, so a large vector does "
    "not mean large logits.",
)

# %% tags=["source-hidden"] slide="subslide"
story_ids = ids[0, :64]
figures.shaded_words(
    [tokenizer.decode([token]).strip() or "(line end)" for token in story_ids.tolist()],
    {
        "how large its vector is in front of the final norm": (final_sizes[0, :64] / final_sizes.max()).tolist(),
        "how unsure the model is of the next word": (1 - best[0, :64]).tolist(),
    },
    title="Large vectors, unsure predictions",
    caption="Above: the size of the vector at each word, divided by the largest size. Below: 1 minus the highest probability for the word that follows. Mostly the same words are dark.",
    limit=1,
)

# %% slide="skip" evidence="unsure-is-large"
for low, high in ((0, 5), (5, 10), (10, 20), (20, 40), (40, 100)):
    inside = (low <= final_sizes) & (final_sizes < high)  # (B, T)
    print(f"size {low:>2} to {high:>3}: {inside.sum():>4} vectors, mean highest probability {best[inside].mean():.2f}")
print(f"correlation of size and highest probability: {relation:.2f}")
assert relation < -0.6 and best[final_sizes < 5].mean() > 0.9 > 0.4 > best[final_sizes > 40].mean()

# %% [markdown] slide="say"
# The largest vectors are where the model is least sure of the next word. [[unsure-is-large]] After the norm nobody can see how large they were, so nothing in the training kept them small. Why this model makes them large just there, we do not know.

# %% [markdown] slide="subslide"
# ### Would a constant do?
# We take the division away. In a copy of the model, the norms of one kind divide *all* vectors by one constant: the average size that each of them gets, times 0.25 to 2. The gains stay. We measure the loss on 20 stories.


# %%
def loss_with_constants(multiples: dict[str, float]) -> float:
    """multiples: for each kind of norm that is replaced, its constant in average sizes."""
    changed = deepcopy(model)
    for part, layer in changed.named_modules():
        kind = part.split(".")[-1]
        if kind in multiples:
            scale = layer.weight / (multiples[kind] * size(caught.inputs[part]).mean())  # (C)
            layer.register_forward_hook(lambda _, inputs, output, scale=scale: inputs[0] * scale)
    with torch.no_grad():
        return F.cross_entropy(changed(ids[:20, :-1]).mT, ids[:20, 1:]).item()


# %% tags=["source-hidden"] evidence="constants"
whole = loss_with_constants({})
multiples = (0.25, 0.5, 1, 2)
print(f"as trained: loss {whole:.2f}")
print(f"{'average size times':<20}", "".join(f"{multiple:>8}" for multiple in multiples))
for kind in ("attn_norm", "ffn_norm", "final_norm"):
    with_constants = [loss_with_constants({kind: multiple}) for multiple in multiples]
    print(
        f"{kind:<20}",
        "".join(f"{loss:8.2f}" for loss in with_constants),
        f"  at best {min(with_constants) - whole:+.2f}",
    )
    assert min(with_constants) < whole + 0.25 < max(with_constants)
at_once = [
    loss_with_constants({"attn_norm": for_attention, "ffn_norm": for_ffn, "final_norm": for_last})
    for for_attention, for_ffn, for_last in itertools.product((0.75, 1), (1, 1.5), (0.25, 0.5))
]
print(f"all three kinds, the best of {len(at_once)} combinations: {min(at_once):.2f}")
assert min(at_once) > whole + 0.3

# %% [markdown]
# One kind of norm can be replaced by a constant at a small increase of the loss, if the constant is right: the last column shows by how much. (For the final norm it is much, so close to the floor of lesson 00.) With all three kinds replaced at once the loss is much higher. [[constants]] The likely reason is that no part corrects any longer what the parts before it did to the size.

# %% [markdown] slide="say"
# So the norms of a trained model are not indispensable. Heimersheim (2024) removed all of them from GPT-2, step by step, with a little more training at each. What the norm gives above all is what section 1 showed: a model of many layers that can be trained, without looking for the right start.

# %% [markdown] tags=["note"]
# **Say.** LayerNorm is the older norm, and you will meet it in GPT-2 and BERT. It does one thing more. The picture shows in three dimensions what that is: RMSNorm puts every vector on a sphere, LayerNorm on a circle of this sphere.
#
# **Draw.** A sphere with an axis and its equator. To subtract the mean is to move a point parallel to the axis until it is level with the equator; to divide is to move it out to the surface.
#
# **Ask.** Prediction. Then: "Two vectors differ by 5 in all numbers. Which norm can still tell them apart?"
#
# **Usual answers.**
# - *Both, because a shift changes no differences* (`both`): RMSNorm never subtracts, and after a shift the ratios are different.
# - *LayerNorm needs no gain because it has an offset* (from the room): The gain stretches, the offset shifts; neither can do the work of the other.
# - *The variance needs C - 1* (`unbiased`): C - 1 estimates the variance of a population from a sample. These are all the numbers there are.
#
# **Cut if short.** The training of both norms; say that the losses are alike.

# %% [markdown] slide="slide"
# ## 4. LayerNorm: the mean goes, too
# LayerNorm (Ba et al. 2016) is older. It subtracts the **mean** $\mu$ of all the numbers first. Then it divides by the size of what is left, as RMSNorm does. In addition to the gain it has a learned **offset** $b_i$ for each feature, which starts at 0.
#
# $$\text{LayerNorm}(x)_i = \frac{x_i - \mu}{\sqrt{\frac{1}{C}\sum_j (x_j-\mu)^2 + \epsilon}} \cdot g_i + b_i, \qquad \mu = \frac{1}{C}\sum_j x_j$$

# %%
u = torch.tensor([1.0, 2.0, 6.0])
centred = u - u.mean()
print("centred: ", centred)
print(f"variance: {centred.square().mean():.3f}")
print("result:  ", centred / size(centred))

# %% [markdown] slide="say"
# The mean of the squares about the mean is the **variance**, and its root the *standard deviation*. Here it is divided by $C$. (`torch.var` divides by $C - 1$ unless you pass `unbiased=False`. With $C - 1$ it estimates the variance of a population from a sample, but here the three numbers are all there is.)

# %% slide="skip"
layer_norm_of_library = LayerNorm(C).requires_grad_(False)


# %% slide="skip"
def same(some_norm, changed: torch.Tensor) -> str:
    return "same" if torch.allclose(some_norm(changed), some_norm(x), atol=1e-3) else "differs"


# %% tags=["source-hidden"] slide="subslide"
both_norms = {"RMSNorm": norm, "LayerNorm": layer_norm_of_library}
shift_free = [name for name, some_norm in both_norms.items() if same(some_norm, x + 5) == "same"]
predict(
    "We add 5 to all numbers of a vector. Which norm gives the same result as before?",
    key=lambda: "both" if len(shift_free) == 2 else shift_free[0],
    choices={
        "RMSNorm": "It divides and never subtracts, so a shifted vector has another direction.",
        "LayerNorm": "",
        "both": "RMSNorm never subtracts, so a shifted vector has another direction.",
    },
    because="It subtracts the mean, and the 5 with it.",
)

# %% evidence="centred"
for what, changed_x in {"10 x": 10 * x, "x + 5": x + 5}.items():
    print(f"{what:>6}: RMSNorm {same(norm, changed_x)}, LayerNorm {same(layer_norm_of_library, changed_x)}")
assert same(norm, x + 5) == "differs" and same(layer_norm_of_library, x + 5) == "same"
centred_x = x - x.mean(-1, keepdim=True)  # (B, T, C)
torch.testing.assert_close(norm(centred_x), layer_norm_of_library(centred_x))
print("on centred vectors both agree (gains 1, offset 0)")

# %% [markdown] slide="subslide"
# So LayerNorm is RMSNorm on centred vectors, plus the offset. [[centred]] With three numbers for each vector we can draw it: to subtract the mean is to remove the direction $(1, 1, 1)$.

# %% slide="skip"
cloud_generator = torch.Generator().manual_seed(2)
middles = torch.tensor([[2.1, -1.3, -1.2], [-1.9, 1.7, 0.1], [-0.8, -1.5, 0.8]])
lengths = 0.3 + 0.8 * torch.rand(3, 30, 1, generator=cloud_generator)
cloud = lengths * (middles[:, None] + 0.11 * torch.randn(3, 30, 3, generator=cloud_generator))  # (3, 30, 3)
cloud = torch.cat((cloud, cloud[:1] + 1.3))  # (4, 30, 3): the last group is the first, 1.3 added to all its numbers
clouds = {"before": cloud, "RMSNorm: a sphere": divide_by_size(cloud)}
clouds["LayerNorm: a circle"] = divide_by_size(cloud - cloud.mean(-1, keepdim=True))

# %% slide="skip"
up = torch.ones(3) / 3**0.5
right_hand = torch.tensor([1.0, -1, 0]) / 2**0.5
backwards = torch.tensor([1.0, 1, -2]) / 6**0.5
tilt = 0.35  # radians: we look down on the circle a little
screen = torch.stack((right_hand, math.cos(tilt) * up + math.sin(tilt) * backwards), dim=-1)  # (3, 2)
around = torch.linspace(0, 2 * math.pi, 200)[:, None]  # (200, 1)
circle = 3**0.5 * (around.cos() * right_hand + around.sin() * backwards)  # (200, 3)

# %% tags=["source-hidden"]
fig, three_axes = plt.subplots(1, 3, figsize=(12.4, 4.9), layout="constrained", sharex=True, sharey=True)
for ax, (title, points) in zip(three_axes, clouds.items(), strict=True):
    ax.add_patch(plt.Circle((0, 0), 3**0.5, color=figures.LINE, fill=title != "before", alpha=0.5, linewidth=1.5))
    ax.plot(*(circle @ screen).T, "-", color=figures.QUIET, linewidth=1.5)
    ax.plot(*(torch.stack((-1.9 * up, 2.6 * up)) @ screen).T, linestyle="--", color=figures.QUIET, linewidth=1.5)
    for group, mark, points_wide in zip(points @ screen, "osDo", (13, 11, 11, 7), strict=True):
        ax.plot(*group.T, mark, markersize=points_wide, markeredgecolor="white")
    ax.set_title(title, size=21)
    ax.set(xlim=(-3.1, 3.1), ylim=(-2.1, 3.4), aspect="equal", xticks=[], yticks=[])
three_axes[0].text(-0.15, 2.75, "(1, 1, 1)", size=18, color=figures.QUIET, ha="right")
three_axes[0].set_ylabel("the mean", size=18)
three_axes[0].set_xlabel("seen from the side", size=18)
sizes_of_groups = {title: size(points).mean(-1).tolist() for title, points in clouds.items()}
figures.display(
    fig,
    alt="Three drawings of four groups of points in space. Before: three rays from the middle and a copy of one, moved up. RMSNorm: all points are on a sphere, and each ray has become a spot. LayerNorm: all points are on one circle of the sphere, and the copy covers its original.",
    caption="RMSNorm moves each point along its ray to a sphere, so a ray becomes a spot. LayerNorm puts all points on a circle of this sphere. The small points are the round ones with 1.3 added to each number: only LayerNorm brings the two together.",
    table={"group": ["1", "2", "3", "1, with 1.3 added"], **{f"size, {title}": row for title, row in sizes_of_groups.items()}},
)  # fmt: skip

# %% [markdown] slide="subslide"
# ### Is the centring needed?
# We train the chain of section 1 with each norm, from two starts and with two seeds.


# %% slide="skip"
def divide_centred(x: torch.Tensor) -> torch.Tensor:
    return divide_by_size(x - x.mean(-1, keepdim=True))


# %% evidence="both-train"
for start in (0.6, 2.0):
    by_rms = [train_chain(start, divide_by_size, seed=seed)[-1] for seed in (1, 2)]
    by_layer = [train_chain(start, divide_centred, seed=seed)[-1] for seed in (1, 2)]
    shown_rms, shown_layer = (learned(sum(losses) / 2, 0.005, 0.1) for losses in (by_rms, by_layer))
    print(f"factor {start}: mean loss {shown_rms} without centring, {shown_layer} with centring")
    assert max(by_rms + by_layer) < 0.1

# %% [markdown]
# Our chain learns as well without the centring. [[both-train]] For real models this is a result of Zhang and Sennrich (2019): with RMSNorm theirs became about as good as with LayerNorm, and the running time fell by 7 to 64 %. The Llama models use RMSNorm (Touvron et al. 2023), GPT-2 uses LayerNorm (Radford et al. 2019).

# %% [markdown] slide="subslide"
# ### Your turn
# Write LayerNorm, again for any number of leading axes, computed in fp32 and returned in the dtype of `x`.


# %% tags=["exercise"] name="layer_norm" minutes=10 difficulty=2 plan=80
def layer_norm(x, weight, bias, eps):
    """x (..., C), weight (C) the gains, bias (C) the offsets, eps inside the root. Returns (..., C) in the dtype of x.

    The variance is divided by C. Gradients reach x, weight and bias. A mean of 1000 must not cost digits.
    With gains 1, offsets 0 and eps 0, the vector [1, 2, 6] becomes [-0.9258, -0.4629, 1.3887].
    """
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
# `unbiased=False` divides by C - 1; with many features the difference is too small to see in a loss curve, and yet it is another function.

# %% slide="subslide"
torch.testing.assert_close(LayerNorm(C, eps=0.1)(x), torch.nn.LayerNorm(C, eps=0.1)(x))
show(LayerNorm)

# %% [markdown] tags=["note"]
# **Say.** On a GPU most numbers have 16 bits. A norm squares its numbers, and squares are where 16 bits are not enough. The result is wrong without an error and without a NaN.
#
# **Draw.** The fraction 300 / root of the mean square, and below it the line of fp16 that ends at 65,504. Write inf where 90,000 would be.
#
# **Ask.** After the prediction: "Which is worse, a NaN or a zero? Which would you find first?" (A NaN spreads and stops the training. Nothing stops at a zero.)
#
# **Usual answers.**
# - *It becomes NaN* (`[nan, nan]`): inf / inf would be. Which of the two numbers is inf here?
# - *0.85 and 1.13, because large and small cancel* (`[0.85, 1.13]`): In mathematics, yes. The computer takes one step after the other.
# - *bf16 would save us* (from the room): From the overflow, because it reaches as far as fp32. The next cell shows what it loses.
#
# **Cut if short.** All but the prediction.

# %% [markdown] slide="slide" plan=80
# ## 5. Sixteen bits
# On a GPU the numbers that pass between layers often have 16 bits each. There are two formats: fp16 ends at 65,504, and bf16 reaches as far as fp32 but keeps only two to three digits.

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
    because="300 squared is above 65,504, so the mean is inf, and a finite number divided by inf is 0.",
)

# %% evidence="fp16-squares"
print("largest fp16:", torch.finfo(torch.float16).max, " squares:", half.square())
print("careless:", careless)
print("library: ", RMSNorm(2)(half).detach())
assert careless.eq(0).all() and 0.999 < size(RMSNorm(2)(half).float()).item() < 1.001

# %% [markdown]
# There is no error and no NaN: the vector is simply gone. So **a norm computes in fp32** and casts the result back at the end (Micikevicius et al. 2018). In bf16 nothing overflows, but digits are lost:

# %% evidence="bf16-digits"
many = torch.randn(1000, 512, generator=torch.Generator().manual_seed(4)).bfloat16()
exact = many.double() / size(many.double())[:, None]  # (1000, 512)
rough = many / size(many)[:, None]  # (1000, 512)
off = {}
for how, result in (("all in bf16", rough), ("fp32 inside", RMSNorm(512)(many).detach())):
    off[how] = ((result.double() - exact).abs().mean() / exact.abs().mean()).item()
    print(f"{how}: off by {off[how]:.2%} on average")
assert off["all in bf16"] > 1.5 * off["fp32 inside"]

# %% [markdown]
# With fp32 inside only the last rounding is left, back to bf16. [[bf16-digits]]

# %% [markdown] tags=["note"]
# **Say.** Two mistakes that change one word or one bracket in the code. Both give plausible numbers. The first lets a model see the future, the second waits for a vector of zeros.
#
# **Draw.** A sentence as a row of vectors, and a circle around all of them: one mean for everything. Then a circle around each vector alone.
#
# **Ask.** After the first prediction: "Why would this model have an excellent loss in training, and write badly?" (When it writes there is no later word.)
#
# **Usual answers.**
# - *The first position has nothing to do with the last* (`as large as before`): It has, through the one mean.
# - *It grows with the others* (`larger`): The mean grows, and it divides.
# - *The derivative at 0 is infinite* (from the room): That of the root is. The derivative of the whole expression is finite, 1 over eps, but PyTorch computes it step by step.
#
# **Cut if short.** The second mistake; say that eps belongs inside the root.

# %% [markdown] slide="slide" plan=80
# ## 6. Break it
# ### Along the wrong axis
# A norm that takes one mean over texts, positions *and* features raises no error, and the size of all its output together is 1. What happens if we change the last word?


# %%
def joint_norm(x: torch.Tensor) -> torch.Tensor:
    return x / x.square().mean().sqrt()  # (B, T, C) -> (B, T, C)


last_changed = x.clone()
last_changed[:, -1] *= 3

# %% tags=["source-hidden"]
first = [size(joint_norm(vectors))[0, 0].item() for vectors in (x, last_changed)]
predict(
    "The last word's vector is now 3 times as large. How large is the result at the first position, with one mean over everything?",
    key=lambda: "as large as before" if math.isclose(*first) else ("smaller" if first[1] < first[0] else "larger"),
    choices={
        "as large as before": "It would be, with a mean of its own. Here all positions have one divisor.",
        "smaller": "",
        "larger": "The common mean grows, and it divides.",
    },
    because="The last word makes the one mean grow, and all positions are divided by its root.",
)

# %% evidence="one-mean-for-all"
per_vector = (norm(last_changed) - norm(x))[:, 0].abs().max().item()
over_all = (joint_norm(last_changed) - joint_norm(x))[:, 0].abs().max().item()
print(f"first position changes by {per_vector:.2f}; with one mean over everything by {over_all:.2f}")
assert per_vector == 0 < over_all

# %% [markdown]
# The first position now depends on the last word. A model that must not look ahead (lesson 05) would see the future through its norm.

# %% [markdown] slide="say"
# **BatchNorm** (Ioffe and Szegedy 2015), which is common for images, takes the mean of each feature over all examples of a batch. In the training of a language model each text would then depend on the other texts of its batch, and later words would be in the mean, too. So language models normalize each vector by itself.

# %% [markdown] slide="subslide"
# ### eps outside the root
# Some implementations add $\epsilon$ to the root instead of putting it inside, for instance the LayerNorm of *The Annotated Transformer* (Rush 2018). What does that change? We look at the gradient: how strongly a change of a vector shows in the result, near 0 and exactly at 0.


# %% slide="skip"
def with_eps_inside(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def with_eps_outside(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


def slope(rule, x: torch.Tensor, eps: float) -> float:
    x = x.clone().requires_grad_()
    rule(x, eps)[0].backward()
    return x.grad[0].item()


# %% evidence="eps-outside" tags=["source-hidden"]
tiny = 1e-9 * torch.ones(C)
print("eps                  gradient near 0   gradient at 0   size 0.02 becomes")
for how, rule, some_eps in (
    ("inside,  0.00001", with_eps_inside, 1e-5),
    ("outside, 0.00001", with_eps_outside, 1e-5),
    ("outside, 0.003", with_eps_outside, math.sqrt(1e-5)),
):
    at_zero = slope(rule, torch.zeros(C), some_eps)
    becomes = size(rule(0.02 * torch.ones(C), some_eps))
    print(f"{how:<18}   {slope(rule, tiny, some_eps):15,.0f}   {at_zero:13,.0f}   {becomes:17.3f}")
    assert math.isnan(at_zero) == (rule is with_eps_outside)

# %% [markdown]
# With eps outside a plain root, a single vector of zeros gives a gradient of NaN, and an update with it makes the weights NaN. With eps inside, the root never meets a 0. [[eps-outside]]

# %% [markdown] slide="say"
# With the same eps outside, a change of a tiny vector is multiplied by 99,990 instead of 316. A larger eps outside fixes that, but it shrinks vectors of size 0.02, such as new embeddings, to 0.863. The true derivative at 0 is finite, $1/\epsilon$, but PyTorch differentiates our formula step by step: the root has an infinite slope at 0, and infinity times 0 is NaN. (`torch.linalg.vector_norm` avoids the NaN, and so does `std`, which *The Annotated Transformer* uses.)

# %% [markdown] tags=["note"]
# **Say.** Four things for those who write or load real models. Choose one or two.
#
# **Draw.** The curve of size after over size before: 1 at the right, falling to 0 at the left, with the root of eps at the bend.
#
# **Ask.** "A checkpoint has gains of 0.1 in front of one layer and of 2 in front of another. Which layer gets the louder input?" (You cannot say from the gains alone: only the product with the weights counts.)
#
# **Usual answers.**
# - *It divides by 0.00001* (`0.00001`): eps is inside, so its root divides.
# - *The mean holds 10 % of the whole* (`about 10 %`): Then the 128 perpendicular directions would hold 13 times what there is.
# - *It holds little, so training does not need the centring* (from the room): Most directions hold little, and this model never had centring.
#
# **Cut if short.** All of it; the students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 7. For engineers
# Four topics, which you can read in any order: how large eps is, what a gain means, how much a trained model uses its mean, and which number format comes out of a norm.
#
# ### The root of eps is a size
# For a vector of zeros only eps is left under the root. By what is such a vector divided?

# %% tags=["source-hidden"]
predict(
    "With eps = 0.00001 inside the root, what is a vector of zeros divided by?",
    key=lambda: f"about {math.sqrt(1e-5):.3f}",
    choices={
        "0.00001": "eps is inside the root, so the vector is divided by the root of eps.",
        "about 0.003": "",
        "1": "The formula has no rule that makes small sizes 1.",
    },
    because="The mean of the squares is 0, so what is left is the root of eps.",
)

# %% [markdown] slide="say"
# So $\sqrt{10^{-5}} \approx 0.003$ is a size that you can compare with. A vector that is much larger hardly changes because of eps. A vector of size $r$ has the size $r / \sqrt{r^2 + \epsilon}$ afterwards.

# %% slide="skip"
size_before = torch.logspace(-6, 1, 71)
size_after = {f"eps = {eps:.0e}": size_before / (size_before.square() + eps).sqrt() for eps in (1e-8, 1e-5)}
new_size = 0.02  # standard deviation of new embeddings in many models

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10.4, 5.4), layout="constrained")
for label, curve in size_after.items():
    ax.plot(size_before, curve, label=label)
ax.axvline(new_size, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
ax.text(new_size * 0.9, 1.06, f"new embeddings, {new_size}", color=figures.QUIET, ha="right", size=18)
ax.set_xscale("log")
ax.set_xticks([1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10], ["1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1", "1", "10"])
ax.set(title="Small vectors stay small", xlabel="size before", ylabel="size after", ylim=(-0.03, 1.18))
ax.legend(frameon=False, loc="center left")
rows_shown = [0, 10, 20, 25, 30, 40, 43, 50, 60]
figures.display(
    fig,
    alt="Two curves from 0 up to 1: with eps of 1e-5 the size after reaches 1 for sizes before above 0.03, with 1e-8 above 0.001.",
    caption="Sizes far above the root of eps become 1. Sizes far below it stay small, because eps determines the divisor.",
    table={
        "size before": [f"{r:.1g}" for r in size_before[rows_shown].tolist()],
        **{label: [f"{r:.2g}" for r in curve[rows_shown].tolist()] for label, curve in size_after.items()},
    },
)  # fmt: skip

# %% [markdown] slide="subslide"
# Many models begin with embeddings of standard deviation 0.02, where eps is small but not negligible:

# %% evidence="below-eps"
new_embeddings = new_size * torch.randn(1000, 512, generator=torch.Generator().manual_seed(4))
print(f"after RMSNorm with eps 1e-5: size {size(RMSNorm(512)(new_embeddings)).mean().item():.3f}")
print(f"by the formula: {new_size / math.sqrt(new_size**2 + 1e-5):.3f}")
for any_eps in (1e-8, 1e-5, 0.1):
    root = math.sqrt(any_eps)
    results = [size(RMSNorm(C, eps=any_eps)(times * root * torch.ones(C))).item() for times in (0.1, 1, 10)]
    assert results[0] < 0.11 and 0.7 < results[1] < 0.72 and results[2] > 0.99

# %% [markdown]
# So use the eps that a model was trained with, and do not be surprised by a size of 0.988.

# %% [markdown] slide="subslide"
# ### What a gain means
# In the shipped model most gains in front of the feed-forward layers are far below 1. Do these layers hardly listen? We multiply each gain into the weights that read the feature, and set all gains to 1:

# %%
folded = deepcopy(model)
with torch.no_grad():
    for block in folded.blocks:
        for reader in (block.ffn.gate_proj, block.ffn.up_proj):
            reader.weight *= block.ffn_norm.weight  # (F, C)
        block.ffn_norm.weight.fill_(1.0)

# %% tags=["source-hidden"] evidence="gains-folded"
for i, block in enumerate(model.blocks):
    gains = block.ffn_norm.weight  # (C)
    print(f"block {i}: gains from {gains.min():.2f} to {gains.max():.2f}, on average {gains.mean():.2f}")
with torch.no_grad():
    difference = (folded(ids) - model(ids)).abs().max().item()
print("gains multiplied into the weights: the logits change by less than 0.001")
assert difference < 1e-3

# %% [markdown]
# It is the same model. Where a linear map reads the result, the gains add nothing that its weights could not do, and a small gain alone means little: what counts is its product with the weights. [[gains-folded]] They are separate parameters, which training adjusts on their own.

# %% [markdown] slide="subslide"
# ### How much does the shipped model use its mean?
# To subtract the mean is to remove the direction $(1, 1, \dots, 1)$ from the vector. How much of the mean square in front of the final norm lies along it?

# %%
stream = caught.inputs["final_norm"]  # (B, T, C)
ones = torch.ones(C)


def part_along(direction: torch.Tensor) -> float:
    unit = direction / direction.norm()  # (C)
    return ((stream @ unit).square().sum() / stream.square().sum()).item()


print(f"along the mean: {part_along(ones):.1%} of the mean square")

# %% [markdown] slide="say"
# That looks like very little. But a small number means nothing until we know what to compare it with.

# %% tags=["source-hidden"] slide="subslide"
drawn = torch.randn(1000, C, generator=torch.Generator().manual_seed(4))  # 1000 random directions
along = torch.tensor([part_along(direction) for direction in drawn])
predict(
    f"We take 1000 random directions in the same {C} dimensions. How much lies along one of them, on average?",
    key=lambda: f"about {round(100 * along.mean().item(), 1)} %",
    choices={
        "about 0.8 %": "",
        "about 10 %": f"Then {C} perpendicular directions would hold far more than there is.",
        "about 50 %": "That would be so in two dimensions. Here there are many more.",
    },
    because=f"{C} perpendicular directions together hold everything, so one of them has 1/{C} of it on average.",
)

# %% evidence="one-direction"
print(f"along a random direction: {along.mean():.1%} on average, from {along.min():.1%} to {along.max():.1%}")
strongest = torch.linalg.svd(stream.flatten(0, 1), full_matrices=False).Vh[0]  # (C)
print(f"along the strongest direction: {part_along(strongest):.0%};  1/C is {1 / C:.1%}")
assert abs(along.mean() * C - 1) < 0.1 and part_along(ones) < along.median()

# %% [markdown] slide="subslide"
# The mean holds less than most of the random directions. [[one-direction]] Now the intervention: we subtract one direction in front of each of these norms in a copy. For the mean this is the centring of LayerNorm.


# %%
def loss_without(direction: torch.Tensor) -> float:
    unit = direction / direction.norm()  # (C)
    changed = deepcopy(model)
    for part, layer in changed.named_modules():
        if part.endswith(("attn_norm", "ffn_norm", "final_norm")):
            layer.register_forward_pre_hook(lambda _, inputs: inputs[0] - (inputs[0] @ unit)[..., None] * unit)
    with torch.no_grad():
        return F.cross_entropy(changed(ids[:20, :-1]).mT, ids[:20, 1:]).item()


# %% tags=["source-hidden"] evidence="mean-removed"
removed = {"the mean": loss_without(ones), "the strongest": loss_without(strongest)}
for i in range(5):
    removed[f"random {i}"] = loss_without(drawn[i])
print(f"loss of the shipped model: {whole:.3f}")
for what, loss in removed.items():
    print(f"without {what:<13}: {loss:.3f}")
at_random = [loss for what, loss in removed.items() if what.startswith("random")]
assert max(removed["the mean"], *at_random) < whole + 0.02 < removed["the strongest"]

# %% [markdown]
# Without the mean the loss hardly changes, and the same holds for each of five random directions. Without the strongest direction it rises. [[mean-removed]] So this model hardly uses its mean. It does not follow that training needs no centring, because this model was trained without it from the beginning; for that question one has to train both ways, as in section 4.

# %% [markdown] slide="subslide"
# ### Which dtype comes out?
# If tensors of two formats are multiplied number by number, the result has a format that holds both. A matrix product raises an error instead.

# %%
for a, b in ((torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16), (torch.float32, torch.float64)):
    product = torch.ones(1, dtype=a) * torch.ones(1, dtype=b)
    print(f"{str(a)[6:]:>8} * {str(b)[6:]:<8} -> {str(product.dtype)[6:]}")

# %% [markdown] slide="subslide"
# In training, gains are often kept in fp32. So where does the cast back to bf16 belong, before or after the gain? Both orders are in use. The Llama code that Meta released casts first, then multiplies:


# %% slide="skip"
def gain_then_cast(z, gain, dtype):
    return (z * gain).to(dtype)


def cast_then_gain(z, gain, dtype):
    return z.to(dtype) * gain


z = exact.float()  # normalized, in fp32
some_gain = 0.5 + torch.rand(512, generator=torch.Generator().manual_seed(4))

# %% [markdown]
# With an fp32 gain the second one returns fp32, and the next layer, in bf16, raises an error:

# %% slide="skip"
from tinylm_lib.layers import Linear

following = Linear(512, 512, dtype=torch.bfloat16)

# %% tags=["raises-exception"]
following(cast_then_gain(z, some_gain, torch.bfloat16))

# %% [markdown] slide="subslide"
# With bf16 gains both return bf16, but the second order rounds twice:

# %% evidence="two-orders"
coarse_gain = some_gain.bfloat16()
true = exact * coarse_gain.double()
once = gain_then_cast(z, coarse_gain, torch.bfloat16)  # (1000, 512)
twice = cast_then_gain(z, coarse_gain, torch.bfloat16)  # (1000, 512)
print(f"{(once != twice).float().mean():.0%} of the numbers differ")
errors = []
for how, result in (("gain, then cast", once), ("cast, then gain", twice)):
    errors.append(((result.double() - true).abs().mean() / true.abs().mean()).item())
    print(f"{how}: off by {errors[-1]:.2%} on average")
assert errors[0] < 0.9 * errors[1]

# %% [markdown]
# Neither is a mistake if the gains have the dtype of the input. But a model that was trained with one order gives other numbers with the other. The library multiplies first: the dtype of the input comes back whatever that of the gain is, and the result is rounded only once.

# %% [markdown] tags=["note"]
# **Say.** Factors multiply, so sizes drift; a norm divides by the size. The first three points are from sections 1 to 3 and the fourth is from section 4. Say the others only if you taught their sections.
#
# **Draw.** Once more the picture of section 1: a narrow valley without a norm, a flat line with one.
#
# **Ask.** At the door: "What does RMSNorm take out of a vector, and what does LayerNorm take out in addition?"
#
# **Usual answers.**
# - *Outliers* (from the room): Each number is divided by the same divisor, so a large one stays large compared with the others.
# - *LayerNorm takes out the direction* (from the room): One direction, that of the mean, and the size.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - Small factors multiply from layer to layer. Without a norm our deep chain learns only if its first weights have nearly the right size; with a norm it learns from every start that we tried. [[any-start]] Another learning rate or optimizer helps, but not for every start. [[rivals]]
# - The size of a vector is its root mean square. RMSNorm divides by it and then multiplies each feature by a learned gain. [[by-hand]] The size is forgotten, the direction kept. [[forgets-size]]
# - In the shipped model the largest vectors are where it is least sure of the next word. [[unsure-is-large]] One kind of its norms can be replaced by constants (for the final norm at a higher loss), all three kinds together could not, with the constants that we tried. [[constants]]
# - LayerNorm subtracts the mean first. On vectors whose mean is 0 both norms agree, if the gains are equal and the offset is 0. [[centred]] Our chain learns as well without the centring. [[both-train]]
# - In fp16 the squares can overflow, so a norm computes in fp32 and returns the dtype of its input. [[fp16-squares]]
# - Each vector is normalized by itself, along the last axis; with one mean over all positions a word would learn about later words. [[one-mean-for-all]] eps is inside the root, because with a plain root outside the gradient at a vector of zeros is NaN. [[eps-outside]]
# - For engineers: vectors smaller than the root of eps do not come out with size 1. [[below-eps]] A gain has no meaning without the weights that read it. [[gains-folded]] In the shipped model the mean holds less than most directions do [[one-direction]], and removing it hardly changes the loss. [[mean-removed]] With one cast at the very end the result is rounded only once. [[two-orders]]
#
# Next, lesson 05: how a word finds the earlier word it depends on.

# %% [markdown]
# ## Sources
# - RMSNorm: Zhang and Sennrich 2019, [*Root Mean Square Layer Normalization*](https://arxiv.org/abs/1910.07467), section 4, equation 4.
# - LayerNorm: Ba, Kiros and Hinton 2016, [*Layer Normalization*](https://arxiv.org/abs/1607.06450), section 3.
# - BatchNorm: Ioffe and Szegedy 2015, [*Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift*](https://arxiv.org/abs/1502.03167).
# - RMSNorm in Llama: Touvron et al. 2023, [*LLaMA: Open and Efficient Foundation Language Models*](https://arxiv.org/abs/2302.13971), section 2.2. LayerNorm in GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.3.
# - Models without a norm: Heimersheim 2024, [*You can remove GPT2's LayerNorm by fine-tuning*](https://arxiv.org/abs/2409.13710); Zhu et al. 2025, [*Transformers without Normalization*](https://arxiv.org/abs/2503.10622).
# - fp32 inside: Micikevicius et al. 2018, [*Mixed Precision Training*](https://arxiv.org/abs/1710.03740), section 3.3.
# - eps outside the root: Rush 2018, [*The Annotated Transformer*](https://nlp.seas.harvard.edu/annotated-transformer/), class `LayerNorm`.
