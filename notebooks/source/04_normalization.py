# %% [markdown] deck="How do numbers keep the same size, however many layers they pass?"
# # 04 Normalization
# **How do numbers keep the same size, however many layers they pass?**
#
# *Needs* lessons 02 and 03. *Builds* `RMSNorm` and `LayerNorm` in `layers.py`. *Runs* in about 30 s on two cores.
# *Teaches* in about 44 minutes, plus 22 of exercises.

# %% [markdown] tags=["note"]
# **Say.** A model passes every vector through many layers. We look at the simplest such chain and ask two questions: how large are the numbers at its end, and can it still learn? Let the class vote on both predictions before you show anything.
#
# **Usual answers.**
# - *24 times 0.2* (`about 5 times`): Let the class compute two layers: 1.2 times 1.2 is more than 1.4.
# - *All of them, because learning corrects the weights* (`all five`): It would, if a useful gradient arrived. What is the gradient multiplied by on its way back?
# - *The norm throws information away* (from the room): It does, one number of each vector. Does anybody miss it?
#
# **Cut if short.** Nothing: the next section rests on it.
#
# **Tried.** 24 seeds, factors from 0.3 to 3. Without a norm: factor 1 learns in 24 of 24, 0.9 in 4 (4 are NaN), 0.8 and less in none (loss 2.60 to 2.77; after 500 updates still in none of 10), 1.1 and more are NaN in 24 of 24. With a norm: 0.7 to 3 learn in 24 of 24 (0.06 to 0.21), 0.6 in 14, 0.5 and less in none (2.12 to 2.77, also after 500 updates). With vectors of 64 numbers and 32 tokens the picture is the same, and with a norm 0.5 learns in 23 of 24.

# %% [markdown]
# ## 1. Small factors multiply
# In a model each vector passes many layers, and each layer may make its numbers a little larger or smaller. Here one vector passes 24 layers, and each makes it 0.8 times as large:

# %% tags=["source-hidden"] deck="Each layer makes the vector 0.8 times as large"
from tinylm_classroom import chains, predict
from tinylm_classroom import normalization_figures as figures

figures.sizes_on_the_way({"factor 0.8": chains.sizes(0.8)})

# %% tags=["source-hidden"] deck="24 layers, each 1.2 times: how much larger is the vector at the end?"
predict(
    "Now each of the 24 layers makes the vector 1.2 times as large. How much larger is it at the end?",
    key=lambda: f"about {round(chains.sizes(1.2)[-1], -1):.0f} times",
    choices={
        "about 5 times": "That is 24 times 0.2, added up. But each factor multiplies what is already there.",
        "about 29 times": "That is 24 times 1.2. But each factor multiplies what is already there.",
        "about 80 times": "",
    },
    because="Factors multiply: 1.2 to the power of 24.",
)

# %% tags=["source-hidden"] deck="Small factors multiply, and a norm after each layer keeps the size"
ways = [chains.sizes(0.8), chains.sizes(1.2), chains.sizes(1.2, lambda x: x / x.square().mean().sqrt())]
figures.sizes_on_the_way(dict(zip(("factor 0.8", "factor 1.2", "factor 1.2, with a norm"), ways, strict=True)))

# %% [markdown]
# The numbers **explode** or **vanish**. The **size** of a vector is its **root mean square**, RMS: square its numbers, take their mean, take the root. A **norm** after each layer (blue) brings the vector back to a fixed size. Our first norm divides by the size:

# %%
import torch


def size(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()  # (..., C) -> (...)


def divide_by_size(x: torch.Tensor) -> torch.Tensor:
    return x / size(x)[..., None]


def no_norm(x: torch.Tensor) -> torch.Tensor:
    return x


# %% [markdown]
# ### Can it still learn?
# The gradient takes the same way back (chain rule, lesson 02), so it is multiplied by the same factors. We train such chains: for each of 16 tokens, the chain must name another token. All factors and seeds are trained side by side.

# %%
import torch.nn.functional as F

SEEDS = range(5)


def train(factors, norm, rate=0.1, optimizer=torch.optim.SGD, **settings):
    """For each factor and seed: the loss after 100 updates and what leaves layer 24."""
    tokens, weights, readout, answers = chains.starts(factors, SEEDS)  # R runs
    stepper = optimizer([weights], lr=rate, **settings)  # SGD: the steps of lesson 02
    for _ in range(100):
        # ESSENTIAL
        x = tokens  # (R, V, C)
        for weight in weights:  # (R, C, C)
            x = norm(x @ weight)  # (R, V, C) @ (R, C, C) -> (R, V, C)
        losses = F.cross_entropy((x @ readout).mT, answers, reduction="none")  # (R, V)
        # END
        stepper.zero_grad()
        losses.mean(-1).sum().backward()  # each run for itself
        stepper.step()
    runs = (len(factors), len(SEEDS))
    with torch.no_grad():
        return chains.Trained(losses.mean(-1).unflatten(0, runs), x.unflatten(0, runs))


# %%
factors = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 2.0]
without = train(factors, no_norm).losses  # (10, 5)
with_norm = train(factors, divide_by_size).losses  # (10, 5)

# %% tags=["source-hidden"] deck="Five starts without a norm: which of them learn?"
learned_from = [factor for factor in (0.5, 0.8, 1.0, 1.2, 2.0) if without[factors.index(factor)].max() < 0.5]
predict(
    "Chains without a norm start with the factors 0.5, 0.8, 1, 1.2 and 2. Which of them learn the task in 100 updates?",
    key=lambda: "only 1" if learned_from == [1.0] else str(learned_from),
    choices={
        "only 1": "",
        "0.8, 1 and 1.2": "0.8 and 1.2 look close to 1, but to the power of 24 they are 0.005 and 80.",
        "all five": "Learning would correct the weights, if a useful gradient arrived. By what is it multiplied on its way back?",
    },
    because="With smaller factors hardly any gradient arrives, and with larger ones each step is so large that the loss becomes NaN.",
)

# %% tags=["signature", "source-hidden"] deck="Without a norm, the start must be just right"
figures.starts(factors, without, with_norm, chains.GUESSING)

# %% tags=["source-hidden"] evidence="the-start" tried="seeds"
# Checked: with every seed 1 learns without a norm, and 0.7 to 2 with one; the others do not.
assert without[6].max() < 0.1 and without[:5].min() > 2 and without[7:].isnan().all()
assert with_norm[3:].max() < 0.5 and with_norm[:2].min() > 1.5

# %% [markdown]
# Without a norm the chain learns from the factor 1, but at 0.9 and 1.1 hardly a seed does. With a norm it learns from 0.7 to 2. [[the-start]] But look at the left: at 0.4 and 0.5 it fails with the norm, too. Why?

# %% [markdown] tags=["note"]
# **Say.** The norm forgives large weights, but not small ones. The reason is a fact about every layer in front of a norm, and it explains much of what you will see in training.
#
# **Draw.** A circle with a point on it, and a smaller circle inside. A step of the same length turns the point on the small circle much further.
#
# **Usual answers.**
# - *The same, because the output is the same* (`the same`): A change of 0.01 is a larger part of a small weight. What does it do to the output?
# - *Half, as the weights are* (`half as large`): That would be so without the norm for the layers after it. Here the norm divides the factor away.
# - *Then make the weights huge* (from the room): Then the steps are too small, and learning is slow: the left end of the curve.
#
# **Cut if short.** The cosines at the end; say that all tokens end on one line.
#
# **Tried.** Ten seeds, factors 0.5, 1 and 2, twelve rates each: at equal rate / factor squared the losses agree to all printed digits. Rate / factor squared from 0.003 to 0.2 learns in 30 of 30, 0.001 not yet (0.79 to 1.08), 0.3 and more in none (1.27 to 2.77). Runs that fail (factor 0.4 at the rate 0.1, factor 1 at the rate 1, ten seeds each): all cosines are 1 or -1 (mean size 1.000), while those of runs that learn have a mean size of 0.16. 500 updates save none of the runs at 0.4. With AdamW it is rate / size that counts: size 1 at 0.004 equals 0.5 at 0.002 to three digits in ten seeds.

# %% [markdown]
# ## 2. In front of a norm only rate / size² counts
# If all weights of a layer are half as large, the norm behind it undoes that: the output is the same. And the gradient of the weights?


# %%
def output_and_gradient(factor: float) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(32, generator=generator)  # (C)
    weight = factor * torch.randn(32, 32, generator=generator)  # (C, C)
    weight.requires_grad_()
    out = divide_by_size(x @ weight)  # (C)
    out[0].backward()
    return out[0].item(), size(weight.grad.flatten()).item()


# %% tags=["source-hidden"] deck="Weights in front of a norm are halved: how large is their gradient?"
predict(
    "All weights in front of a norm are half as large, and the output is the same. How large is the gradient of the weights now?",
    key=lambda: {0.5: "half as large", 1.0: "the same", 2.0: "twice as large"}[
        round(output_and_gradient(0.5)[1] / output_and_gradient(1.0)[1], 3)
    ],
    choices={
        "half as large": "A gradient says how much the output moves for a small change of a weight. Is the same change small for a small weight?",
        "the same": "The output is the same, but a change of 0.01 is a larger part of a weight that is half as large.",
        "twice as large": "",
    },
    because="The same change turns a vector of small weights twice as far, and behind the norm only the direction counts.",
)

# %% deck="Half the weights, twice the gradient"
for factor in (1.0, 0.5):
    output, gradient = output_and_gradient(factor)
    print(f"weights times {factor}: output {output:.3f}, gradient {gradient:.4f}")

# %% [markdown]
# The gradient grows as 1 / size. A step is the rate times the gradient, and the weights that it moves are small themselves. So compared with the weights, a step grows as **rate / size²**, and the factor sets the size. Half the factor is four times the rate:

# %% deck="Half the weights: the same training as four times the rate"
from tinylm_classroom import learned

factor, rate = 0.5, 0.1  # try (1.0, 0.4), (0.5, 0.025), (1.0, 0.1) and (2.0, 0.4)
found = train([factor], divide_by_size, rate).losses[0]  # (5)
print("loss of each seed:", *(learned(loss, 0, 4) for loss in found.tolist()))

# %% tags=["source-hidden"] deck="Three starts, three rates: one curve"
rates = [0.0005 * 4**step for step in range(8)]
losses = torch.stack([train([0.5, 1.0, 2.0], divide_by_size, rate).losses for rate in rates])  # (8, 3, 5)
figures.one_curve(rates, dict(zip((0.5, 1.0, 2.0), losses.unbind(1), strict=True)))

# %% tags=["source-hidden"] evidence="one-curve" tried="seeds"
# Checked: half the weights at a rate are the whole weights at 4 times the rate; each start learns.
for at in range(2):
    torch.testing.assert_close(losses[1:4, at], losses[2:5, at + 1], rtol=0.01, atol=0.01)
for at in range(3):
    assert losses[at + 1 : at + 4, at].max() < 0.5 and losses[at + 4, at].min() > 1.5

# %% [markdown]
# So with the norm no start is wrong in itself: each has learning rates with which it learns. [[one-curve]]
#
# With too large a rate the loss is about 2.2, a little below that of guessing. What was learned? We compare the directions in which the 16 tokens leave the last layer:

# %% tags=["nbval-ignore-output"] deck="After steps that are too large, all tokens are on one line"
factor = 0.4  # try 1.0
ends = train([factor], divide_by_size).ends[0, 0]  # (V, C)
cosines = torch.cosine_similarity(ends[:1], ends, dim=-1)  # (V)
print([round(cosine, 1) for cosine in cosines.tolist()])

# %% tags=["source-hidden"] evidence="one-line" tried="seeds"
# Checked: with every seed the chain that fails has put all tokens on one line, the other has not.
ends = train([0.4, 1.0], divide_by_size).ends  # (2, 5, V, C)
along = torch.cosine_similarity(ends[:, :, :1], ends, dim=-1).abs().mean(-1)  # (2, 5)
assert along[0].min() > 0.9 > 0.5 > along[1].max()

# %% [markdown]
# All tokens end on one line, on one side or the other: the chain knows one bit about each token. [[one-line]]

# %% [markdown] tags=["note"]
# **Say.** Fair is fair: perhaps a chain without a norm needs only a better rate, or a better optimizer. AdamW is a norm for steps, so it is the strongest rival. What stops it is a number that everybody copies and nobody looks at.
#
# **Usual answers.**
# - *It learns, because its steps do not depend on the gradient's size* (`it learns`): That is the promise. Which number is added to the divisor?
# - *With a smaller eps it must learn* (from the room): Change the line. It moves, and then it stops: all tokens are on one line.
#
# **Cut if short.** Nothing: this section is short, and the next one needs it.
#
# **Tried.** Ten seeds. Plain steps with eight rates from 0.0001 to 10: factors 0.5 and 0.8 learn with none, 1.1 and 1.2 in 10 of 10 at 0.001, 1.5 and 2 with none. AdamW at 0.0001, 0.0003, 0.001 and 0.003, after 100 and after 300 updates: 0.8 learns in 10 of 10 at 0.0003 and more; 0.5 in none with eps 1e-8 and in at most 1 with 1e-20; 0.4 stays at 2.773 in all 80 runs with 1e-8 and comes to 1.78 to 2.32 with 1e-20, at the three larger rates. With 1e-8 the chain at 0.4 has not moved after 500 updates; after 1,000 it is below 2.7 in 8 of 10, all tokens on one line. Clipped gradients: 0.9 to 3 learn in 70 of 70. Plain steps at 0.03: 0.9 in 30 of 30; 1.5 at 0.000001 and 2 at 0.00000001 in all; 0.8 after 1,000 updates in 6 of 10. A larger chain, whose readout learns as well (64 numbers, 32 tokens, factor 0.5, 12 seeds): 0.80 to 2.64 with 1e-8 and 1.13 to 2.74 with 1e-20, so one seed there can show anything.

# %% [markdown]
# ## 3. A small number is a size
# Perhaps a chain without a norm only needs another rate? A smaller one saves 1.1 and 1.2 (each larger factor needs a smaller rate of its own), but in 100 plain steps no rate that we tried saves 0.8 and 0.5. [[eps-of-adamw]] Or another optimizer? AdamW (lesson 11) divides each step by the size of the gradients, so tiny gradients should be no problem. It adds a small number $\epsilon$ (epsilon) to the divisor, usually 0.00000001, so that it never divides by 0.

# %% tags=["source-hidden"] deck="AdamW divides by the size of the gradients. Does factor 0.4 learn without a norm?"
with_adam = train([0.4], no_norm, 0.001, torch.optim.AdamW).losses[0]  # (5)
predict(
    "AdamW trains the chain with the factor 0.4, without a norm. Guessing has a loss of 2.77. What happens in 100 updates?",
    key=lambda: ["it learns", "it stops halfway", "the loss does not move"][round(with_adam.mean().item() / 1.4)],
    choices={
        "the loss does not move": "",
        "it stops halfway": "That is what happens with a much smaller epsilon. Here the steps are far too small.",
        "it learns": "That is what dividing by the size promises. But how large is the gradient, and how large is epsilon?",
    },
    because="The gradients are below 0.4 to the power of 24, which is much less than epsilon, so AdamW divides by epsilon.",
)

# %% deck="Below eps, 100 steps of AdamW do nothing"
eps = 1e-8  # try 1e-20
with_eps = train([0.4], no_norm, 0.001, torch.optim.AdamW, eps=eps).losses[0]  # (5)
print(f"0.4 to the power of 24: {0.4**24:.0e}; eps: {eps:.0e}")
print("loss of each seed:", *(learned(loss, 1, 3) for loss in with_eps.tolist()))

# %% tags=["source-hidden"] evidence="eps-of-adamw" tried="seeds"
# Checked: at 0.4 eps decides whether AdamW moves, and it never learns; plain steps save 1.1 and 1.2.
by_adam = [train([0.4, 0.8], no_norm, rate, torch.optim.AdamW, eps=1e-20).losses for rate in (5e-4, 1e-3, 2e-3)]
assert all(low.min() > 1.4 and low.max() < 2.5 and high.max() < 0.5 for low, high in by_adam)
assert with_adam.min() > 2.7 and train([1.1, 1.2], no_norm, 0.001).losses.max() < 0.3
assert not any((train([0.5, 0.8], no_norm, rate).losses < 0.5).any() for rate in (0.001, 0.01, 1.0))

# %% [markdown]
# **An epsilon in a divisor is a size: what is much smaller is divided by epsilon instead.** With 1e-20 AdamW moves, but it stops at about 1.8, again with all tokens on one line. So epsilon decides *how soon* it moves, and a small one does not rescue this start. (From 0.8, where the gradients are larger, AdamW learns.) Every norm has such an epsilon, too. (Other ways to keep sizes under control: lessons 09 and 10.)

# %% [markdown] tags=["note"]
# **Say.** The norm that nearly all new models have is one line: square, mean, root, and divide. Do the numbers 3 and 4 by hand with the class before you show the formula.
#
# **Usual answers.**
# - *The squares are summed* (`sum`): Then it is the length, and the result is too small by the root of C. This is the most frequent mistake in the exercise.
# - *It becomes NaN* (`[nan, nan]`): inf / inf would be. Which of the two numbers is inf here?
# - *0.85 and 1.13, because large and small cancel* (`[0.85, 1.13]`): In mathematics, yes. The computer takes one step after the other.
# - *The cast comes first* (`stays fp32`): bf16 times an fp32 gain is fp32 again, so the cast must be last.
#
# **Cut if short.** The lines `n` and `axes`.
#
# **Tried.** Exact arithmetic, no seed. On 30 random vectors the steps agree with PyTorch's `RMSNorm`, and ten times larger vectors give the same within a hundredth.

# %% [markdown]
# ## 4. RMSNorm: divide by the size
# By hand first, with the numbers 3 and 4:

# %% deck="Square, mean, root, divide"
v = torch.tensor([3.0, 4.0])
print("squares:", v.square())
print(f"mean {v.square().mean():.1f}, root of it {v.square().mean().sqrt():.4f}")
print("divided by that:", v / size(v))

# %% [markdown]
# The result has the size 1, and the ratio is still 3 to 4: the direction is kept, the size is lost. In mathematics a *norm* is a number, such as the length (**L2 norm**): the root of the **sum** of the squares. Dividing by the length is a common mistake, because the result is too small:

# %% rows=["S1-8"]
n = 64  # try 2 and 1024
w = torch.arange(1.0, n + 1)  # (n)
print(f"divided by its length, it has the size {size(w / w.norm()):.4f}")
print(f"divided by its size:                   {size(w / size(w)):.4f}")
assert torch.isclose(size(v), v.norm() / 2**0.5)

# %% [markdown] deck="RMSNorm: one size for all, and a gain for each feature"
# After the division, the layer multiplies each feature by a learned number, its **gain** $g_i$, which starts at 1. This is **RMSNorm** (Zhang and Sennrich 2019, without the $\epsilon$):
#
# $$\text{RMSNorm}(x)_i = \frac{x_i}{\sqrt{\frac{1}{C}\sum_j x_j^2 + \epsilon}} \cdot g_i$$
#
# Think of a mixing desk. First the whole band is brought to the same volume. Then each instrument has its own slider. For a vector of zeros the size is 0, and 0 / 0 is NaN; with $\epsilon$ the divisor is never 0. It is added **inside** the root, to the mean of the squares. (Added after the root, it would leave the slope of the root at 0 infinite, and the gradient of a vector of zeros NaN. [[eps-is-a-size]]) So the root of $\epsilon$ is a size:

# %% deck="A vector much smaller than the root of eps stays small"
from tinylm_lib.layers import LayerNorm, RMSNorm

before = 0.00001  # try 0.001, 0.02 and 1.0
after = size(RMSNorm(128, eps=1e-5)(before * torch.ones(128))).item()
print(f"root of eps {1e-5**0.5:.4f}; size before {before:g}, after {after:.3f}")

# %% tags=["source-hidden"] evidence="eps-is-a-size" tried="exact"
# Checked: ten times the root of eps becomes 1, a tenth stays small; eps outside gives NaN at 0.
for any_eps in (1e-8, 1e-5, 0.1):
    y = any_eps**0.5 * torch.tensor([[0.1] * 128, [10.0] * 128])  # (2, C)
    assert size(RMSNorm(128, eps=any_eps)(y))[0] < 0.11 and size(RMSNorm(128, eps=any_eps)(y))[1] > 0.99
    zeros = torch.zeros(4, requires_grad=True)
    (zeros / (zeros.square().mean().sqrt() + any_eps))[0].backward()
    assert zeros.grad.isnan().any()

# %% [markdown]
# ### Sixteen bits
# On a GPU, numbers often have 16 bits. The format fp16 ends at 65,504.

# %% tags=["source-hidden"] deck="A norm in fp16 gets [300, 400]. What comes out?"
half = torch.tensor([300.0, 400.0], dtype=torch.float16)
predict(
    "A norm that computes in fp16 gets the vector [300, 400]. What comes out?",
    key=lambda: str((half / half.square().mean().sqrt()).tolist()),
    choices={
        "[0.85, 1.13]": "That is right in mathematics. But 300 squared is 90,000.",
        "[0.0, 0.0]": "",
        "[nan, nan]": "inf / inf would be NaN. Here only the divisor is inf.",
    },
    because="300 squared is above 65,504, so the mean is inf, and a finite number divided by inf is 0.",
)

# %% deck="No error, no NaN: the vector is gone"
print("squares:", half.square())
print("careless:", divide_by_size(half))
print("computed in fp32, then cast:", divide_by_size(half.float()).to(half.dtype))

# %% tags=["source-hidden"] evidence="fp16-squares" tried="exact"
# Checked: above 256 a square overflows in fp16; computed in fp32 the size is 1.
x16 = torch.tensor([[257.0] * 2, [300.0] * 2, [60000.0] * 2]).half()  # (3, 2)
assert x16.square().isinf().all() and (size(RMSNorm(2)(x16).float()) - 1).abs().max() < 0.001

# %% [markdown]
# So inputs of fp16 (and of bf16, the other format of 16 bits) are computed in fp32, with 32 bits, and the result is **cast** (converted) back (Micikevicius et al. 2018, for fp16). [[fp16-squares]] Cast last: a product with an fp32 gain would be fp32 again.
#
# ### Your turn
# Write RMSNorm for any number of leading axes. As above, the result has the dtype of `x`. (`torch.promote_types(x.dtype, torch.float32)` names a dtype to compute in that leaves fp64 its digits, and `x.to(dtype)` casts.)

# %%
from tinylm_classroom import capture, check, hint, keep, show, sizes_and_surest, trace


# %% tags=["exercise"] name="rms_norm" minutes=12 difficulty=2 deck="Your turn: RMSNorm"
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
# Square, mean, plus eps, root; divide; gain; cast. `mean(-1, keepdim=True)` keeps the axis, so that each vector is divided by its own size. Common mistakes: `norm(dim=-1)`, which is the length and larger by the root of C; eps outside the root; no cast, or the cast before the gain, so that an fp32
# gain makes the result fp32; and squares in fp16.

# %% [markdown]
# ### In single steps
# Six words of a story in the shipped model: one size for each vector, one gain for each feature. Broadcasting (lesson 02) does the rest:

# %%
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
text = "\nOne dark evening, calm Mia ran to Foxhollow. She had a golden"
ids = torch.tensor([tokenizer.encode(text)])  # (B, T)
x = model.embed(ids[:, :6]).detach()  # (B, T) -> (B, T, C)
gain = model.blocks[0].attn_norm.weight.detach()  # (C)


# %%
def rms_norm_in_steps(x, gain):
    squares = x.square()  # (B, T, C)
    mean = squares.mean(-1)  # (B, T, C) -> (B, T)
    divisor = (mean + 1e-5).sqrt()[..., None]  # (B, T) -> (B, T, 1)
    return x / divisor * gain  # (B, T, C)


# %% deck="One divisor for each vector, one gain for each feature"
trace(rms_norm_in_steps, x, gain, sizes={"B": 1, "T": 6, "C": 128})

# %% rows=["S0-16", "S0-17", "S0-18", "S1-7"]
torch.testing.assert_close(model.blocks[0].attn_norm(x), rms_norm_in_steps(x, gain))
show(RMSNorm)

# %% tags=["source-hidden"] evidence="by-hand" tried="exact"
# Checked: the library, PyTorch and the steps agree; the result forgets the size of its input.
y = torch.randn(10, 3, 128, generator=torch.Generator().manual_seed(4))
torch.testing.assert_close(rms_norm_in_steps(y, gain), torch.nn.RMSNorm(128, 1e-5)(y) * gain)
torch.testing.assert_close(RMSNorm(128)(y), RMSNorm(128)(10 * y), rtol=1e-2, atol=1e-2)

# %% [markdown]
# ### Break it
# Take the mean over words, too: no error is raised. Now the *last* word's vector becomes 3 times as large, and we look at the *first*:

# %% deck="One mean over all words: the first word notices the last"
axes = (1, 2)  # try -1
changed = x.clone()
changed[:, -1] *= 3
normed = [y / y.square().mean(axes, keepdim=True).sqrt() for y in (x, changed)]
print(f"the first word changes by {(normed[1] - normed[0])[:, 0].abs().max():.2f}")

# %% tags=["source-hidden"] evidence="own-mean" tried="exact"
# Checked: only with a mean of its own does the first word not depend on any later word.
louder = x * (1 + 2 * torch.eye(6)[1:, :, None])  # (5, T, C): each later word in turn
for over, same in ((-1, True), ((1, 2), False)):
    own, other = ((y / y.square().mean(over, keepdim=True).sqrt())[:, 0] for y in (x, louder))
    assert (own == other).all() == same

# %% [markdown]
# A model must not see later words (lesson 05), so each vector has its own mean. [[own-mean]] **BatchNorm** (Ioffe and Szegedy 2015), common for images, takes the mean of a feature over all examples of a batch.

# %% [markdown] tags=["note"]
# **Say.** So far the chains were toys. Now we open the shipped model and find something that nobody expects. Take a vote at the prediction and let both sides argue.
#
# **Usual answers.**
# - *Where it is sure* (`where it is sure`): That would be right without the norm, because larger logits make a sharper distribution. With the norm the length has no effect.
# - *They have nothing to do with each other* (`neither`): The norm hides the size from the layer after it, so nothing forces a relation. There is one all the same.
#
# **Cut if short.** Nothing.
#
# **Tried.** Twelve sets of 40 new stories, 80 tokens each: the correlation of size and highest probability is -0.83 or -0.84 in all. Below size 5 the mean highest probability is 0.97 or 0.98, above 40 it is 0.05 or 0.06. Sizes in front of the final norm go from 1.5 to 73, on average 14.6. All seven norms replaced by seven constants, tuned on 20 stories: 1.07 nats instead of 0.81 there, and 1.13 to 1.14 instead of 0.83 to 0.84 on three sets of 20 other stories.

# %% [markdown]
# ## 5. Long vectors in a trained model
# The shipped model adds to its vectors in each block (lesson 09), so they grow. Each block begins with a norm, and so does the last layer, which computes the logits. `capture` runs a model and keeps what went into each part.

# %%
caught = capture(model, ids)
for part in (*(f"blocks.{i}.attn_norm" for i in range(3)), "final_norm"):
    print(f"{part:<18} gets vectors of size {size(caught.inputs[part]).mean():.1f}")

# %% tags=["source-hidden"] deck="Where are the vectors long: where the model is sure, or where it is not?"
relation = torch.corrcoef(torch.stack(sizes_and_surest(model, tokenizer, seed=5)))[0, 1].item()
predict(
    "In front of the final norm, where are the vectors long: where the model is sure of the next word, or where it is not?",
    key=lambda: "where it is not sure" if relation < -0.5 else "where it is sure" if relation > 0.5 else "neither",
    choices={
        "where it is sure": "Without the norm this would be so: larger numbers, larger logits, a sharper distribution.",
        "where it is not sure": "",
        "neither": "Nothing forces a relation, because the norm hides the size. But this model has one.",
    },
    because="We measure it below, in three sets of stories. The norm hides the size from the last layer, so a long vector does not mean large logits.",
)

# %% deck="Long vectors, unsure predictions"
from tinylm_classroom import residual_view

residual_view(model, tokenizer, "\nOne dark evening, calm Mia ran to")

# %% [markdown]
# **Your task:** a dark cell in the top row means that the model is sure of the next word. Click words with a pale and with a dark top cell, such as *to* and *evening*, and compare the top *length of the stream*: of the vector on its way through the blocks, its size times the root of $C$. The other rows are for lesson 10.

# %% tags=["source-hidden"] evidence="unsure-is-long" tried="held-out"
# Checked: in three sets of 40 new stories the largest vectors are where the model is least sure.
for seed in (101, 102, 103):
    sizes, surest = sizes_and_surest(model, tokenizer, seed)
    assert surest[sizes < 5].mean() > 0.9 and surest[sizes > 40].mean() < 0.2

# %% [markdown]
# The longest vectors are where the model is least sure of the next word. [[unsure-is-long]] Behind the norm only the direction counts, so a long vector does not mean large logits.

# %% [markdown] tags=["note"]
# **Say.** LayerNorm is the older norm, and you will meet it in GPT-2 and BERT. It does one thing more. The picture shows in three dimensions what that is: RMSNorm puts every vector on a sphere, LayerNorm on a circle of this sphere.
#
# **Usual answers.**
# - *Both, because a shift changes no differences* (from the room): RMSNorm never subtracts, and after a shift the ratios are different.
# - *The variance needs C - 1* (`unbiased`): C - 1 estimates the variance of a population from a sample. These are all the numbers there are.
#
# **Cut if short.** The picture.
#
# **Tried.** Exact arithmetic: on 30 random vectors `LayerNorm` agrees with PyTorch's, and with RMSNorm after the mean is subtracted.

# %% [markdown]
# ## 6. LayerNorm: the mean goes, too
# LayerNorm (Ba et al. 2016) is older. It subtracts the **mean** $\mu$ of all the numbers first. Then it divides by the size of what is left, as RMSNorm does. In addition to the gain it has a learned **offset** $b_i$ for each feature, which starts at 0.
#
# $$\text{LayerNorm}(x)_i = \frac{x_i - \mu}{\sqrt{\frac{1}{C}\sum_j (x_j-\mu)^2 + \epsilon}} \cdot g_i + b_i, \qquad \mu = \frac{1}{C}\sum_j x_j$$

# %% deck="LayerNorm does not notice a shift, RMSNorm does"
shift = 5.0  # try 0.0 and 100.0
u = torch.tensor([1.0, 2.0, 6.0]) + shift  # (3)
print("RMSNorm:  ", divide_by_size(u))
print("LayerNorm:", divide_by_size(u - u.mean()))

# %% [markdown]
# Only RMSNorm notices the shift. So LayerNorm is RMSNorm on centred vectors, plus the offset. [[centred]] The mean of the squares about the mean is the **variance**, here divided by $C$. (`torch.var` divides by $C - 1$ unless you pass `unbiased=False`.) To subtract the mean is to remove the direction $(1, 1, 1)$:

# %% tags=["source-hidden"] deck="RMSNorm puts vectors on a sphere, LayerNorm on a circle"
figures.spheres(divide_by_size)

# %% tags=["source-hidden"] evidence="centred" tried="exact"
# Checked: on ten texts both norms agree after centring, and LayerNorm with PyTorch's.
y = 3 + torch.randn(10, 3, 128, generator=torch.Generator().manual_seed(4))
torch.testing.assert_close(RMSNorm(128)(y - y.mean(-1, keepdim=True)), LayerNorm(128)(y))
torch.testing.assert_close(LayerNorm(128, eps=0.1)(y), torch.nn.LayerNorm(128, eps=0.1)(y))

# %% [markdown]
# Without the centring, real models became about as good, in 7 to 64 % less time (Zhang and Sennrich 2019). The Llama models use RMSNorm (Touvron et al. 2023), GPT-2 uses LayerNorm (Radford et al. 2019).
#
# ### Your turn
# Write LayerNorm, again for any number of leading axes, computed in fp32 and returned in the dtype of `x`.


# %% tags=["exercise"] name="layer_norm" minutes=10 difficulty=2 deck="Your turn: LayerNorm"
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

# %% [markdown] tags=["note"]
# **Say.** Factors multiply, so sizes drift; a norm divides by the size, and then only the direction counts. That is also why the rate must fit the size of the weights. Show the picture of section 1 once more.
#
# **Ask.** At the door: "What does RMSNorm take out of a vector, and what does LayerNorm take out in addition?"
#
# **Usual answers.**
# - *Outliers* (from the room): Each number is divided by the same divisor, so a large one stays large compared with the others.
# - *LayerNorm takes out the direction* (from the room): One direction, that of the mean, and the size.
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="Factors multiply; a norm divides by the size, and the direction is left"
# ## What you have now
# - Small factors multiply. With plain steps at the rate 0.1 our deep chain learns from the factor 1, but not from 0.8 or 1.2; with a norm from 0.7 to 2. [[the-start]]
# - The gradient of weights in front of a norm grows as 1 / size, so for plain steps only rate / size² counts. [[one-curve]]
# - With too large a rate, all tokens end on one line. [[one-line]]
# - An epsilon in a divisor is a size: for gradients far below it, the steps of AdamW are tiny. [[eps-of-adamw]]
# - A vector much smaller than the root of a norm's epsilon stays small. [[eps-is-a-size]]
# - RMSNorm divides by the root mean square and multiplies each feature by a gain. [[by-hand]]
# - In fp16 squares can overflow, so a norm computes in fp32. [[fp16-squares]]
# - Through a common mean a word would depend on later words. [[own-mean]]
# - The longest vectors of the shipped model are where it is least sure. [[unsure-is-long]]
# - LayerNorm is RMSNorm after the mean is subtracted. [[centred]]
#
# Next, lesson 05: how a word finds the earlier word it depends on.

# %% [markdown]
# ## Sources
# - RMSNorm: Zhang and Sennrich 2019, [*Root Mean Square Layer Normalization*](https://arxiv.org/abs/1910.07467), section 4, equation 4.
# - LayerNorm: Ba, Kiros and Hinton 2016, [*Layer Normalization*](https://arxiv.org/abs/1607.06450), section 3.
# - BatchNorm: Ioffe and Szegedy 2015, [*Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift*](https://arxiv.org/abs/1502.03167).
# - Weights in front of a norm, and the rate: van Laarhoven 2017, [*L2 Regularization versus Batch and Weight Normalization*](https://arxiv.org/abs/1706.05350).
# - RMSNorm in Llama: Touvron et al. 2023, [*LLaMA: Open and Efficient Foundation Language Models*](https://arxiv.org/abs/2302.13971), section 2.2. LayerNorm in GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.3.
# - fp32 inside: Micikevicius et al. 2018, [*Mixed Precision Training*](https://arxiv.org/abs/1710.03740), section 3.3.
