# %% [markdown] slide="slide" minutes=1
# # 03 Softmax
# **How do scores become shares, and what does a wrong share cost?**
#
# *Needs* lessons 01 and 02. *Builds* `softmax` in `layers.py` and `next_token_loss` in `evaluation.py`. *Runs* in about 10 s on two cores.
# *Teaches* in 42 minutes, plus 30 of exercises.

# %%
import math

import torch

from tinylm_lib import TransformerLM, layers, next_token_loss, preset, storyworld
from tinylm_lib.classroom import check, figures, hint, keep, predict, show, softmax_view, trace
from tinylm_lib.classroom.measured import measured
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(3)

# %% [markdown] slide="slide" minutes=6
# ## 1. Scores are not shares
# Here is the beginning of a story. Two people have met. Who acts next?

# %%
told = storyworld.story(torch.Generator().manual_seed(1)).text
beginning = told[: told.index(" Carlos sang")]
print(beginning)

# %% [markdown]
# We ask the model that ships with the library. It gives every token of its vocabulary a number.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
ids = torch.tensor([tokenizer.encode(beginning)])  # (B, T)
with torch.no_grad():
    scores = model(ids)[0, -1]  # (V)

# %%
best = scores.topk(4).indices.tolist()
for i in best:
    print(f"{tokenizer.decode([i]).strip():>8} {scores[i]:6.2f}")
print(f"{len(scores)} scores, from {scores.min():.0f} to {scores.max():.0f}")

# %% [markdown]
# These numbers are **scores**, also called *logits*: Jamal leads, Carlos follows. But they say little by themselves. Is 12.55 a lot? Some are
# negative. What we want are **shares**: none below 0, and all of them together 1.
#
# Three scores are enough to see how. The first idea is to divide by the sum.

# %%
few = torch.tensor([2.0, 1.0, 0.1])
negative = torch.tensor([2.0, 1.0, -2.9])
print("works:", few / few.sum())
print("fails:", negative / negative.sum())

# %% [markdown]
# A share of 20, and one of -29. So make every number positive first, such that larger stays larger. The exponential $e^x$ does that.

# %% rows=["S0-14"]
powers = few.exp()
shares = powers / powers.sum()
print("powers:", powers)
print("shares:", shares)
assert [round(share, 3) for share in shares.tolist()] == [0.659, 0.242, 0.099]

# %% [markdown]
# That is all of it: **exponential, sum, divide**.
#
# $$\text{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}$$
#
# A higher score gets a higher share, and a token that leads another by one point gets $e$ times its share:

# %%
print(f"share 0 / share 1 = {shares[0] / shares[1]:.3f}, and e = {math.e:.3f}")

# %% tags=["source-hidden"]
lifted = (few + 50).exp() / (few + 50).exp().sum()
predict(
    "We add 50 to each of the three scores. How large is the largest share now?",
    key=lambda: "as large as before" if torch.allclose(lifted, shares) else "larger",
    choices={
        "larger": "Its power grows, and so does the sum, by the same factor.",
        "as large as before": "",
        "smaller": "Its power grows, and so does the sum, by the same factor.",
    },
    because="`exp(x + 50)` is `exp(x) * exp(50)`, and that factor stands above and below the line.",
)

# %% [markdown]
# **Only differences count.** So these two rows of scores mean the same:

# %% rows=["S1-12"]
for row in ([100.0, 101.0, 102.0], [-2.0, -1.0, 0.0]):
    print(row, "->", layers.softmax(torch.tensor(row), dim=0))

# %% [markdown]
# (The first row would not survive our formula, as the next section shows; here we let the library do it.)

# %% [markdown] tags=["note"]
# Ask before the exponential: what else makes numbers positive? Squares (then -3 beats 2) and absolute values (the same) come up, and both lose the order.
# With 50 minutes: cut section 4, it returns in lesson 12.

# %% [markdown] slide="slide" minutes=7
# ## 2. When it overflows
# Scores can be large. Nobody stops a model from giving 1005.

# %%
large = torch.tensor([20.0, 3.0, 1005.0])

# %% tags=["source-hidden"]
naive = large.exp() / large.exp().sum()
predict(
    "Exponential, sum, divide, for the scores 20, 3 and 1005. What is the third share?",
    key=lambda: "nan" if naive[2].isnan() else str(naive[2].item()),
    choices={
        "1.0": "That would be right, and the next cell shows why we do not get it.",
        "inf": "The power is infinite, but it is not the share yet: it is still divided.",
        "nan": "",
    },
    because="Its power is inf, so the sum is inf too, and `inf / inf` has no value.",
)

# %%
print("powers:", large.exp())
print("shares:", large.exp() / large.exp().sum())

# %% [markdown]
# Look where the damage begins. The power of 1005 is not NaN, as one published course note has it: it is **inf**, too large for the format.
# NaN comes a step later, from $\infty / \infty$. Where does a format end?
#
# fp32 spends 32 bits on a number and keeps about seven digits; fp16 spends 16 bits and ends at 65,504; bf16, also 16 bits, has nearly the range of fp32, with two to
# three digits.

# %%
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    print(
        f"{dtype!s:>15} ends at {torch.finfo(dtype).max:.5g}: exp overflows above {math.log(torch.finfo(dtype).max):.2f}"
    )
assert torch.tensor(88.72).exp().isfinite() and torch.tensor(88.73).exp().isinf()

# %% [markdown]
# 88.72 in fp32, and only 11.09 in fp16: our model's best score is beyond that. Now use what section 1 found: only differences count. So take the
# largest score away from all of them.
#
# $$\frac{e^{x_i}}{\sum_j e^{x_j}} = \frac{e^{x_i}/e^{m}}{\sum_j e^{x_j}/e^{m}} = \frac{e^{x_i-m}}{\sum_j e^{x_j-m}}, \qquad m = \max_j x_j$$
#
# Now the largest power is $e^0 = 1$. None is greater, so nothing overflows, and the sum is at least 1, so nothing is divided by 0.

# %%
powers = (large - large.max()).exp()
print("powers:", powers)
print("shares:", powers / powers.sum())

# %% [markdown]
# In mathematics, a share is never 0. In fp32 it is, once its score lies far enough below the best one:

# %%
for gap in (80.0, 104.0):
    share = layers.softmax(torch.tensor([0.0, -gap]), dim=0)[1]
    print(f"{gap:.0f} below the best: share {share:.1e}, logarithm {share.log():.0f}")

# %% [markdown]
# A share of 0 is harmless. Its logarithm is not, and section 5 needs a logarithm. Remember the `-inf`.

# %% [markdown] tags=["note"]
# Most rooms say *inf* or *1*. Let someone compute 1/inf and inf/inf on the board. Then ask which number one may subtract from all scores: any. Why
# the maximum, and not the mean? (With the mean, three small scores and a very large one still overflow.)

# %% [markdown] slide="slide" minutes=5
# ## 3. Many rows at once
# A model gives scores for every position of every text, shape $(B, T, V)$, and each row along the last axis is a whole of its own.
# So the maximum and the sum are taken **along one axis**, `dim`.

# %%
B, T, V = 2, 3, 5
x = torch.randn(B, T, V)  # (B, T, V)

# %% tags=["source-hidden"]
predict(
    f"x is (B, T, V) = {tuple(x.shape)}. What is the shape of `x.sum(-1, keepdim=True)`?",
    key=lambda: x.sum(-1, keepdim=True).shape,
    shape="(B, T, ?)",
    feedback={(2, 3, 5): "One sum is left of every row of 5."},
    because="The axis stays, with size 1, so each row meets its own sum again.",
)

# %% [markdown]
# With the axis kept, $(2, 3, 5)$ and $(2, 3, 1)$ broadcast row by row, as in lesson 02. Without `keepdim` the sums are $(2, 3)$, and dividing by
# them raises an error. That is the lucky case. On a square input it does not:

# %% rows=["S1-13"]
powers = torch.randn(4, 4).exp()
wrong = powers / powers.sum(-1)  # (4, 4)
print("the rows sum to", wrong.sum(-1))
assert not torch.allclose(wrong.sum(-1), torch.ones(4), atol=0.1)

# %% [markdown]
# No error, and no shares: broadcasting aligns the last axes, so a number in column $j$ was divided by the sum of row $j$, which is its own row only on
# the diagonal. The same holds for the maximum. Test with sizes that all differ.
#
# ### Your turn
# Write softmax for any number of axes, with the shares along `dim`. Every finite input must give finite shares.
# `amax` gives the maximum along an axis; `max` with a `dim` gives a pair, the numbers and their places.


# %% tags=["exercise"] name="softmax" minutes=10 difficulty=2
def softmax(x, dim):
    """x (...): any finite scores. Returns shares of the same shape and dtype that sum to 1 along dim; x stays as it was."""
    # SOLUTION
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)
    # END


# %% tags=["check"]
if check("softmax", softmax).passed:
    keep("softmax", softmax)

# %%
hint("softmax")

# %% [markdown] tags=["solution"]
# Two lines. The first takes from each row its own maximum, then the exponential; the second divides by the row's sum. The usual slips:
# `x.max()`, one maximum for the whole tensor (a row that lies far below it becomes 0 / 0); a fixed `-1` where `dim` should stand; `x -= ...`,
# which changes the caller's tensor; and a forgotten `keepdim=True`.

# %% [markdown] slide="subslide" minutes=2
# ### The library's version
# It agrees with PyTorch's own.

# %% rows=["S0-13", "S1-11"]
torch.testing.assert_close(layers.softmax(x, dim=-1), torch.softmax(x, dim=-1))
torch.testing.assert_close(layers.softmax(x, dim=0), torch.softmax(x, dim=0))
show(layers.softmax)

# %% [markdown]
# Here are its steps, one to a line, each with the shape of what it made. The maximum and the sum keep an axis of size 1:


# %%
def in_steps(x, dim):
    top = x.amax(dim, keepdim=True)
    powers = torch.exp(x - top)
    total = powers.sum(dim, keepdim=True)
    return powers / total


# %%
trace(in_steps, x, dim=-1, sizes={"B": 2, "T": 3, "V": 5})

# %% [markdown]
# `dim` has no default, although published notes call `softmax([2.0, 1.0, 0.1])`: a wrong axis would raise no error, and give wrong shares.

# %% [markdown]
# And do shares sum to *exactly* 1? Nearly:

# %% rows=["S0-15"]
sums = layers.softmax(torch.randn(10_000, 50), dim=-1).sum(-1)  # (10000)
exact = (sums == 1).float().mean().item()
print(measured(100 * exact, "% of the rows sum to exactly 1", 5, 100))
assert (sums - 1).abs().max() < 1e-6 and (sums != 1).any()

# %% [markdown]
# Each share is rounded, and a sum of rounded numbers is off by a few units in the last place. So compare with a tolerance: `assert_close`, never `==`.

# %% [markdown] slide="slide" minutes=5
# ## 4. Temperature
# How sure is the model about its next word?

# %%
for i, share in zip(best, layers.softmax(scores, dim=0)[best], strict=True):
    print(f"{tokenizer.decode([i]).strip():>8} {share:6.1%}")

# %% [markdown]
# Since only differences count, there is one dial for *how sure*: divide all scores by a number, the **temperature**. It stretches or
# shrinks every difference, and never changes the order.

# %%
who = scores.topk(2).indices  # (2)


def ratio(temperature: float) -> float:
    first, second = layers.softmax(scores / temperature, dim=0)[who].tolist()
    return first / second


# %% tags=["source-hidden"]
predict(
    f"At temperature 1, Jamal's share is {ratio(1):.1f} times that of Carlos. How many times is it at temperature 2?",
    key=lambda: ratio(2),
    number="times",
    within=0.3,
    feedback={
        round(ratio(1) / 2, 1): "The difference of the scores is halved, not the ratio of the shares.",
        round(ratio(1) * 2, 1): "Dividing by 2 brings the scores closer together.",
    },
    because="Half the difference in the exponent is the square root of the ratio.",
)


# %%
def at(temperature: float) -> list[float]:
    shares = layers.softmax(scores / temperature, dim=0)  # (V)
    others = torch.ones(len(scores), dtype=torch.bool).index_fill(0, who, False)
    return [*shares[who].tolist(), shares[others].sum().item()]


# %% tags=["source-hidden"]
names = ["Jamal", "Carlos", f"all {len(scores) - 2} others"]
dials = torch.logspace(-1, 1, 61).tolist()
with figures.axes("Cold decides, hot does not", "temperature", "share") as (figure, ax):
    for name, line in zip(names, zip(*map(at, dials), strict=True), strict=True):
        ax.plot(dials, line, label=name)
    ax.set_xscale("log")
    ax.set_xticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="center left")
shown = [0.1, 0.5, 1, 2, 5, 10]
columns = zip(*map(at, shown), strict=True)
figures.show(
    figure,
    alt="Line chart: as the temperature rises from 0.1 to 10, Jamal's share falls from all to nothing, and the others' rises.",
    caption="Below 1 the best score takes more and more, in the end all. Above, the many others gain; only far beyond 10 would every token have the same share.",
    table={"temperature": shown, **{n: [f"{s:.0%}" for s in c] for n, c in zip(names, columns, strict=True)}},
)

# %% [markdown]
# Towards 0, softmax becomes a choice of the largest, and that is what the name means: a *soft max*. Towards infinity all tokens get the same share.
# Lesson 12 writes with this dial.
#
# Here is all of it at once, for the model's best words alone. Turn the temperature, move a score, and add to all scores until the formula breaks.

# %%
top = scores.topk(6)
softmax_view(top.values, [tokenizer.decode([i]) for i in top.indices.tolist()])

# %% [markdown]
# What is added to all scores changes no share, but beyond 88.72 the plain formula ends in NaN. A low temperature alone can take it there, too.

# %% [markdown] slide="slide" minutes=8
# ## 5. What a share costs
# The story went on with *Carlos*. The model had given him a small share. How bad is that?
#
# As in lesson 00 the cost is **minus the logarithm of the share of what really came**, in nats. A share of 1 costs nothing.

# %%
for i in who.tolist():
    share = layers.softmax(scores, dim=0)[i]
    print(f"{tokenizer.decode([i]).strip():>8}: share {share:.3f}, cost {-share.log():.2f} nats")

# %% [markdown]
# *Jamal* would have been cheap. Now the same with our three scores, if the second one came:

# %%
target = 1
print(f"share {shares[target]:.4f}, cost {-shares[target].log():.4f} nats")

# %% [markdown]
# This takes an exponential, and then its logarithm. Write it out, and the two cancel:
#
# $$-\ln \frac{e^{x_y}}{\sum_j e^{x_j}} = \ln \sum_j e^{x_j} - x_y$$
#
# The first term is called *log-sum-exp*. It can be computed without overflow (take out the maximum, as before), and the share itself is never needed.


# %%
def cost(scores: torch.Tensor, target: int) -> torch.Tensor:
    return scores.logsumexp(0) - scores[target]  # (V) -> ()


# %%
hopeless = torch.tensor([200.0, 0.0, 3.0])
print(f"the same again: {cost(few, 1):.4f} nats")
print(f"a share of 0:   {cost(hopeless, 1):.0f} nats")
print(f"the long way:   {-layers.softmax(hopeless, dim=0)[1].log():.0f}")

# %% [markdown]
# 200 nats is expensive, but it is a number one can learn from. `inf` is not.
#
# ### Which way should the scores move?
# The gradient of this cost is the most pleasant formula of the series. With $p$ the row of shares, and $y$ from here on no longer the target's number but a row, too, 1 for what came and 0 for the
# others:
#
# $$\frac{\partial\,\text{cost}}{\partial x} = p - y$$

# %%
x3 = few.clone().requires_grad_()
cost(x3, target).backward()
y = torch.tensor([0.0, 1.0, 0.0])
torch.testing.assert_close(x3.grad, shares - y)
print("gradient:", x3.grad)

# %% [markdown]
# Training steps against it: what came is pushed up by the share that it lacked, each other token down by the share that it had. A model that
# is right and sure is left alone.
#
# ### One number for a batch
# A batch holds many costs, and there is more than one way to a single number. Take two texts, the whole story and its first words. The model reads all
# but the last token of each; position $t$ is asked for token $t+1$.


# %%
def costs_of(text: str) -> list[float]:
    tokens = torch.tensor(tokenizer.encode(text))  # (T)
    with torch.no_grad():
        rows = model(tokens[None, :-1])[0]
    return [cost(row, y).item() for row, y in zip(rows, tokens[1:], strict=True)]


# %% rows=["S4-26"]
long, short = costs_of(told), costs_of("One foggy afternoon, careful Carlos")
both = long + short
print(f"{len(long)} and {len(short)} targets")
print(f"sum                        {sum(both):6.1f} nats: grows with the batch")
print(f"mean over all targets      {sum(both) / len(both):6.2f} nats per token")
of_means = (sum(long) / len(long) + sum(short) / len(short)) / 2
print(f"mean of the texts' means   {of_means:6.2f}: short texts count more")
padded = 2 * len(long)
free = len(long) - len(short)
print(f"mean with padding counted  {sum(both) / padded:6.2f}: flattered by {free} free places")

# %% [markdown]
# We want the **mean over all targets**: each token counts the same, wherever it stands. It does not change when texts are grouped differently.
# This mean is called *cross-entropy*.
#
# The last line needs a word. In a batch both texts have the same length, so the short one is filled up with *padding*. A place without a real
# target is marked with the target **-100** (PyTorch's convention), and it must vanish from the sum *and from the count*. The last line left it out of the
# sum only.
#
# Two tools: `gather` picks one number per row, and a boolean mask keeps the numbers where it is True.

# %%
table, places = torch.arange(15.0).view(3, 5), torch.tensor([4, 0, 2])
picked = table.gather(-1, places[:, None])[:, 0]
print(table, picked, picked[places != 0], sep="\n")

# %% [markdown]
# -100 is no index, and `gather` refuses it: replace it by some valid id before indexing (`targets.clamp(min=0)` turns it into 0), and mask its
# place afterwards.
#
# ### Your turn
# Write the cost of a batch. Shapes: `logits` (B, T, V), `targets` (B, T); the target at position $t$ belongs to the scores at position $t$. At least one target is real.


# %% tags=["exercise"] name="cross_entropy" minutes=20 difficulty=3
def cross_entropy(logits, targets):
    """logits (B, T, V): any finite scores. targets (B, T): ids 0..V-1, or -100 for no target.

    Returns (): the mean of -ln(share of the target) over the targets that are not -100, in nats.
    """
    # SOLUTION
    real = targets != -100  # (B, T)
    ids = targets.masked_fill(~real, 0)  # (B, T)
    picked = logits.gather(-1, ids[..., None])[..., 0]  # (B, T)
    costs = logits.logsumexp(-1) - picked  # (B, T)
    return costs[real].mean()
    # END


# %% tags=["check"]
if check("cross_entropy", cross_entropy).passed:
    keep("cross_entropy", cross_entropy)

# %%
hint("cross_entropy")

# %% [markdown] tags=["solution"]
# Log-sum-exp of every row, minus the target's score, then the mean over the real targets. `gather` picks one score per row; it wants the index to
# have as many axes as the scores, hence `[..., None]`, and the size-1 axis is dropped afterwards. -100 is no valid index, so it is replaced before and
# masked after. The usual slips: `.mean()` over all positions (padding then counts as free), `softmax` followed by `log` (a share of 0 costs inf),
# and taking the mean per text first.

# %% [markdown] slide="subslide" minutes=2
# ### The library's version
# It agrees with our loop. Only its last line computes; the rest guards against wrong calls.

# %%
tokens = torch.tensor([tokenizer.encode(told)])
with torch.no_grad():
    logits = model(tokens[:, :-1])
torch.testing.assert_close(next_token_loss(logits, tokens[:, 1:]).item(), sum(long) / len(long), rtol=1e-4, atol=1e-5)
show(next_token_loss)

# %% [markdown]
# It flattens with `flatten`. Published code often has `targets.view(-1)`, which fails for a slice, whose rows do not lie side by side in memory
# (lesson 02):

# %% tags=["raises-exception"] rows=["S4-22"]
pair = torch.cat((tokens, tokens))  # two texts
pair[:, 1:].view(-1)

# %% [markdown] tags=["note"]
# Ask: the sum or the mean, does it matter for learning? (The gradient of the sum grows with the batch; a step size found for 8 texts is wrong for 64.)
# The gradient $p - y$ is worth a pause: let the room say what happens to the score of a token that the model never gives any share.

# %% [markdown] slide="slide" minutes=4
# ## 6. What should the first loss be?
# A new model knows nothing. Before you train, you should know what its loss ought to be: if it is not that, something is broken, and no training will
# mend it. Here is an untrained model with a vocabulary of 10,000, and random tokens.

# %%
_ = torch.manual_seed(3)
untrained = TransformerLM(preset("modern", vocab_size=10_000)).eval()
tokens = torch.randint(10_000, (8, 65))
with torch.no_grad():
    logits = untrained(tokens[:, :-1])
assert logits.shape == (8, 64, 10_000)
first_loss, uniform = next_token_loss(logits, tokens[:, 1:]).item(), math.log(10_000)

# %% tags=["source-hidden"]
predict(
    "If all 10,000 tokens had the same share, each would cost ln 10,000 = 9.21 nats. What does this model pay?",
    key=lambda: "more than 9.21" if first_loss > uniform + 0.1 else "9.21",
    choices={
        "less than 9.21": "The tokens are random: nothing can be known, and every opinion costs.",
        "9.21": "That is the cost of having no opinion. Random weights have opinions.",
        "more than 9.21": "",
    },
    because="Its scores are not all equal, and on random tokens an opinion loses more when it is wrong than it saves when it is right.",
)

# %%
spread = logits.std().item()
print(f"ln V {uniform:.2f}, first loss {first_loss:.2f}")
print(f"standard deviation of the scores {spread:.2f}; ln V + half its square {uniform + spread**2 / 2:.2f}")
assert abs(first_loss - (uniform + spread**2 / 2)) < 0.05

# %% [markdown]
# The rule is $\ln V + \sigma^2/2$, with $\sigma$ the standard deviation of the scores. Here is where it comes from. The cost is log-sum-exp minus the target's score. Before training the score
# of a random target is 0 on average. And $V$ powers of normally distributed scores add up to about $V$ times their average, which for such scores is $e^{\sigma^2/2}$ (a known result; we only use it).
# The logarithm of that is the rule.
#
# The scores of a model with small initial weights barely differ, so for many models $\ln V$ is close. How close can one tell from one batch?
#
# A published notebook prints a first loss of 9.1634 beside $\ln V$ = 9.21, as if the model knew something. We rebuild its model, with the preset `"gpt"`.

# %% rows=["S2-14"]
published = 9.1634
_ = torch.manual_seed(3)
small = TransformerLM(preset("gpt", vocab_size=10_000)).eval()
with torch.no_grad():
    batches = [torch.randint(10_000, (2, 16)) for _ in range(60)]
    losses = [next_token_loss(small(b[:, :-1]), b[:, 1:]).item() for b in batches]
mean = sum(losses) / len(losses)
print(f"60 batches of 30 targets: {min(losses):.2f} to {max(losses):.2f}, mean {mean:.2f}")
print(f"{sum(loss < uniform for loss in losses)} of them below ln V = {uniform:.2f}")
assert min(losses) < published < uniform < mean

# %% [markdown]
# So 9.1634 is noise: on 30 tokens the first loss varies by more than that difference, and on average it lies a little *above* $\ln V$.

# %% [markdown] slide="slide" minutes=2
# ## 7. Break it: softmax twice
# A model whose last line is a softmax returns shares. `next_token_loss` takes them for scores and applies softmax again. Nothing complains: the
# shapes fit, and the first loss is close to $\ln V$, as it should be. What is the lowest loss that such a model can reach?

# %%
V = 32
perfect = torch.zeros(V)
perfect[7] = 1.0  # the whole share on the right token

# %% tags=["source-hidden"]
predict(
    f"V = {V}, and the model gives the right token a share of exactly 1. What is its loss with softmax applied twice?",
    key=lambda: cost(perfect, 7).item(),
    number="nats",
    within=0.2,
    feedback={
        0: "The second softmax sees a 1 and 31 zeros: scores that hardly differ.",
        math.log(V): "That is the loss of knowing nothing. Nearly, but not quite.",
    },
    because="The right token gets e of e + 31 parts, which costs ln(e + V - 1) - 1.",
)

# %% [markdown]
# So there is a floor, $\ln(e + V - 1) - 1$. Now watch a model run into it. The smallest model there is: a table with one row of scores per token, which
# shall learn the token that follows (after $t$ always the remainder of $5t + 3$ divided by 32: any fixed rule would do). We train it both ways, with a step size of 30, large because the mean
# over 32 rows makes each row's gradient small.


# %%
def learn(twice: bool, steps: int = 200) -> tuple[list[float], float]:
    follows = (5 * torch.arange(V) + 3) % V  # (V)
    table, losses = torch.zeros(V, V, requires_grad=True), []
    for _ in range(steps + 1):
        out = layers.softmax(table, dim=-1) if twice else table  # (V, V)
        loss = next_token_loss(out, follows)
        losses.append(loss.item())
        gradient = torch.autograd.grad(loss, table)[0]  # (V, V)
        table = (table - 30 * gradient).detach().requires_grad_()
    return losses, (table.argmax(-1) == follows).float().mean().item()


# %%
once, right_once = learn(twice=False)
double, right_double = learn(twice=True)
floor = math.log(math.e + V - 1) - 1
assert math.isclose(cost(perfect, 7).item(), floor, abs_tol=1e-5)
print(f"softmax once:  loss {once[-1]:.2f}, {right_once:.0%} right")
print(f"softmax twice: loss {double[-1]:.2f}, {right_double:.0%} right, floor {floor:.2f}")

# %%
steps = list(range(0, 201, 4))
figures.loss_curve(
    {"once": (steps, once[::4]), "twice": (steps, double[::4])},
    {"the floor": floor},
    title="Right every time, and stuck",
    caption="Both models learn every answer. The loss of the second stops at its floor.",
)

# %% [markdown]
# Whoever sees this loss hunts for the bug in the step size, while the model is right every time. However large the vocabulary, the floor
# is less than one nat below the $\ln V$ of knowing nothing:

# %%
print(f"V = 10,000: ln V {uniform:.2f}, floor {math.log(math.e + 9_999) - 1:.2f}")

# %% [markdown]
# So: **a model returns scores**. Softmax belongs to whoever needs shares: the loss, which has it built in, and the sampler.
#
# ## What you have now
# - Softmax: exponential, sum, divide, along one axis. Only differences of scores count.
# - Subtracting the maximum changes no share and removes the overflow; NaN came from $\infty / \infty$.
# - The cost of a target is log-sum-exp minus its score; its gradient is $p - y$.
# - The loss is one mean over all real targets. Before training it is about $\ln V + \sigma^2/2$.
#
# Next, lesson 04: how the numbers inside the model keep one size.
#
# ## Sources
# - Softmax: Bridle 1990, *Probabilistic Interpretation of Feedforward Classification Network Outputs, with Relationships to Statistical Pattern Recognition*.
# - Overflow and the maximum: Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 4.1; softmax as an output: section 6.2.2.3.
# - Softmax and other sums are computed in fp32: Micikevicius et al. 2018, *Mixed Precision Training*, section 3.3.
# - Temperature: Hinton, Vinyals and Dean 2015, *Distilling the Knowledge in a Neural Network*, section 2, equation 1.
