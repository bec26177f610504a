# %% [markdown] slide="slide"
# # 03 Softmax
# **How do scores become probabilities, and what does a wrong probability cost?**
#
# *Needs* lessons 01 and 02. *Builds* `softmax` in `layers.py` and `next_token_loss` in `evaluation.py`. *Runs* in about 10 s on two cores.
# *Teaches* in about 59 minutes, plus 30 of exercises.

# %%
import math

import torch

from tinylm_lib import TransformerLM, layers, next_token_loss, preset, storyworld
from tinylm_lib.classroom import check, hint, keep, predict, show, trace
from tinylm_lib.classroom import figures, fixed, learned, measured, softmax_view
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(3)

# %% [markdown] slide="slide"
# ## 1. Scores are not probabilities
# Here is the beginning of a story. Two people have met. Who acts next?

# %%
told = storyworld.story(torch.Generator().manual_seed(1)).text
beginning = told[: told.index(" Carlos sang")]
print(beginning)

# %% [markdown]
# We give this beginning to the model that ships with the library, with a line end in front of it, as in training. It computes a number for every token of its vocabulary.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (B, T)
with torch.no_grad():
    scores = model(ids)[0, -1]  # (V)

# %%
best = scores.topk(4).indices.tolist()
for i in best:
    print(f"{tokenizer.decode([i]).strip():>8} {scores[i]:6.2f}")
print(f"{len(scores)} scores, from {scores.min():.0f} to {scores.max():.0f}")

# %% [markdown]
# These numbers are **scores**, also called *logits*: Carlos leads, Jamal follows. But they say little by themselves. Is 11.64 a lot? Some are
# negative. What we want is a **probability** for each token (lesson 00 called it a share): none is below 0, and all of them add up to 1. All these probabilities together are a *distribution*.
#
# Three scores are enough to see how. The first idea is to divide by the sum.

# %%
few = torch.tensor([2.0, 1.0, 0.1])
negative = torch.tensor([2.0, 1.0, -2.9])
print("works:", few / few.sum())
print("fails:", negative / negative.sum())

# %% [markdown]
# A probability cannot be 20 or -29. So make every number positive first, such that larger stays larger. The exponential $e^x$ does that.

# %% rows=["S0-14"]
powers = few.exp()
probs = powers / powers.sum()
print("powers:       ", powers)
print("probabilities:", probs)
assert [round(p, 3) for p in probs.tolist()] == [0.659, 0.242, 0.099]

# %% [markdown]
# That is all of it: **exponential, sum, divide**.
#
# $$\text{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}$$
#
# A higher score gives a higher probability, and a token that leads another by one point gets $e$ times its probability:

# %%
print(f"probability 0 / probability 1 = {probs[0] / probs[1]:.3f}, and e = {math.e:.3f}")

# %% tags=["source-hidden"]
lifted = (few + 50).exp() / (few + 50).exp().sum()
predict(
    "We add 50 to each of the three scores. How large is the largest probability now?",
    key=lambda: "as large as before" if torch.allclose(lifted, probs) else "larger",
    choices={
        "larger": "Its power grows, and so does the sum, by the same factor.",
        "as large as before": "",
        "smaller": "Its power grows, and so does the sum, by the same factor.",
    },
    because="`exp(x + 50)` is `exp(x) * exp(50)`, and that factor stands above and below the line.",
)

# %% [markdown]
# **Only differences count.** So these two rows of scores mean the same:

# %% rows=["S1-12"] evidence="only-differences"
for row in ([100.0, 101.0, 102.0], [-2.0, -1.0, 0.0]):
    print(row, "->", layers.softmax(torch.tensor(row), dim=0))
some = torch.randn(50)
for shift in (-1000, -1, 50, 1000):
    torch.testing.assert_close(layers.softmax(some + shift, dim=0), layers.softmax(some, dim=0), rtol=1e-3, atol=0)
beyond = layers.softmax(torch.tensor([100.0, 101.0, 102.0]) + 1e9, dim=0)
print("plus 1e9                ->", beyond)
assert beyond.allclose(torch.tensor(1 / 3))

# %% [markdown]
# (The first row would not survive our formula, as the next section shows; here we let the library do it.) The last line shows a limit of the number format, not of softmax: fp32 keeps about
# seven digits, so after adding a thousand million the three scores are the same number, and their differences are lost.

# %% [markdown] tags=["note"]
# Ask before the exponential: what else makes numbers positive? Squares (then -3 beats 2) and absolute values (the same) come up, and both lose the order.
# With 50 minutes: cut section 4, it returns in lesson 12.

# %% [markdown] slide="slide"
# ## 2. When it overflows
# Scores can be large. Nobody stops a model from giving 1005.

# %%
large = torch.tensor([20.0, 3.0, 1005.0])

# %% tags=["source-hidden"]
naive = large.exp() / large.exp().sum()
predict(
    "Exponential, sum, divide, for the scores 20, 3 and 1005. What is the third probability?",
    key=lambda: "nan" if naive[2].isnan() else str(naive[2].item()),
    choices={
        "1.0": "That would be right, and the next cell shows why we do not get it.",
        "inf": "The power is infinite, but it is not the probability yet: it is still divided.",
        "nan": "",
    },
    because="Its power is inf, so the sum is inf too, and `inf / inf` has no value.",
)

# %%
print("powers:       ", large.exp())
print("probabilities:", large.exp() / large.exp().sum())

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
assert scores.max() > math.log(torch.finfo(torch.float16).max)

# %% [markdown]
# 88.72 in fp32, and only 11.09 in fp16: our model's best score is beyond that. Now use what section 1 found: only differences count. So take the
# largest score away from all of them.
#
# $$\frac{e^{x_i}}{\sum_j e^{x_j}} = \frac{e^{x_i}/e^{m}}{\sum_j e^{x_j}/e^{m}} = \frac{e^{x_i-m}}{\sum_j e^{x_j-m}}, \qquad m = \max_j x_j$$
#
# Now the largest power is $e^0 = 1$. None is greater, so no power overflows, and the sum is at least 1, so nothing is divided by 0. In fp16 the *sum* can still overflow if there are more than 65,504 tokens, as the last line below shows;
# fp32 is safe here. [[maximum-subtracted]]

# %% evidence="maximum-subtracted"
safe_powers = (large - large.max()).exp()
print("powers:       ", safe_powers)
print("probabilities:", safe_powers / safe_powers.sum())
assert large.exp()[2].isinf() and naive[2].isnan() and safe_powers.isfinite().all()
for row in (few, few + 50, -few):
    torch.testing.assert_close((row - row.max()).exp() / (row - row.max()).exp().sum(), row.exp() / row.exp().sum())
equal_scores = torch.zeros(70_000)
in_fp16 = layers.softmax(equal_scores.half(), dim=0).max().item()
in_fp32 = layers.softmax(equal_scores, dim=0).max().item()
print(f"70,000 equal scores: probability {in_fp16:.0f} in fp16, {in_fp32:.1e} in fp32")
assert in_fp16 == 0 and math.isclose(in_fp32, 1 / 70_000, rel_tol=1e-4)

# %% [markdown]
# In mathematics, softmax never gives a probability of 0. In fp32 it does, once a score lies far enough below the best one:

# %%
for gap in (80.0, 104.0):
    p = layers.softmax(torch.tensor([0.0, -gap]), dim=0)[1]
    print(f"{gap:.0f} below the best: probability {p:.1e}, logarithm {p.log():.0f}")

# %% [markdown]
# A probability of 0 is harmless. Its logarithm is not, and section 5 needs a logarithm. Remember the `-inf`.

# %% [markdown] tags=["note"]
# Most rooms say *inf* or *1*. Let someone compute 1/inf and inf/inf on the board. Then ask which number one may subtract from all scores: any. Why
# the maximum, and not the mean? (With the mean, three small scores and a very large one still overflow.)

# %% [markdown] slide="slide"
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
# No error, but these are not probabilities: broadcasting aligns the last axes, so a number in column $j$ was divided by the sum of row $j$, which is its own row only on
# the diagonal. The same holds for the maximum. Test with sizes that all differ.
#
# ### Your turn
# Write softmax for any number of axes, with the probabilities along `dim`. Every finite input must give finite probabilities.
# `amax` gives the maximum along an axis; `max` with a `dim` gives a pair, the numbers and their places.


# %% tags=["exercise"] name="softmax" minutes=10 difficulty=2
def softmax(x, dim):
    """x (...): any finite scores. Returns probabilities of the same shape and dtype that sum to 1 along dim; x stays as it was."""
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

# %% [markdown] slide="subslide"
# ### The library's version
# It agrees with PyTorch's own.

# %% rows=["S0-13", "S1-11"] evidence="along-one-axis"
torch.testing.assert_close(layers.softmax(x, dim=-1), torch.softmax(x, dim=-1))
torch.testing.assert_close(layers.softmax(x, dim=0), torch.softmax(x, dim=0))
torch.testing.assert_close(layers.softmax(x, dim=-1), x.exp() / x.exp().sum(-1, keepdim=True))
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
# `dim` has no default, although published notes call `softmax([2.0, 1.0, 0.1])`: a wrong axis would raise no error, and give wrong probabilities.

# %% [markdown]
# And do probabilities sum to *exactly* 1? Nearly:

# %% rows=["S0-15"]
sums = layers.softmax(torch.randn(10_000, 50), dim=-1).sum(-1)  # (10000)
exact = (sums == 1).float().mean().item()
print(measured(100 * exact, "% of the rows sum to exactly 1", 5, 100))
assert (sums - 1).abs().max() < 1e-6 and (sums != 1).any()

# %% [markdown]
# Each probability is rounded, and a sum of rounded numbers is off by a few units in the last place. So compare with a tolerance: `assert_close`, never `==`.

# %% [markdown] slide="slide"
# ## 4. Temperature
# How sure is the model about its next word? StoryWorld knows the exact probabilities, so we print them next to the model's.

# %%
reader = storyworld.Reader()
for word in storyworld.words(beginning):
    reader.read(word)
truth = reader.next_word_probs()
for i, p in zip(best, layers.softmax(scores, dim=0)[best].tolist(), strict=True):
    token = tokenizer.decode([i])
    print(f"{token.strip():>8}: the model {p:6.1%}, exact {truth.get(token, 0.0):6.1%}")

# %% [markdown]
# Only these two can act, and they are equally likely. The model gives hardly any probability to the other tokens, but it prefers Carlos, although nothing in the story favours him. (What that costs is the question of section 6.)
#
# Since only differences count, there is one dial for *how sure*: divide all scores by a number, the **temperature**. It stretches or
# shrinks every difference, and never changes the order.

# %%
who = scores.topk(2).indices  # (2)


def ratio(temperature: float) -> float:
    first, second = layers.softmax(scores / temperature, dim=0)[who].tolist()
    return first / second


# %% tags=["source-hidden"]
predict(
    f"At temperature 1, the probability of Carlos is {ratio(1):.1f} times that of Jamal. How many times is it at temperature 0.5?",
    key=lambda: ratio(0.5),
    number="times",
    within=0.25,
    feedback={
        round(ratio(1) * 2, 1): "The difference of the scores is doubled, not the ratio of the probabilities.",
        round(ratio(1) / 2, 1): "Dividing by 0.5 moves the scores apart.",
    },
    because="Twice the difference in the exponent is the square of the ratio.",
)  # fmt: skip


# %%
def at(temperature: float) -> list[float]:
    dialled = layers.softmax(scores / temperature, dim=0)  # (V)
    others = torch.ones(len(scores), dtype=torch.bool).index_fill(0, who, False)
    return [*dialled[who].tolist(), dialled[others].sum().item()]


# %% tags=["source-hidden"]
names = ["Carlos", "Jamal", f"all {len(scores) - 2} others"]
dials = torch.logspace(-1, 1, 61).tolist()
with figures.axes("Cold decides, hot does not", "temperature", "probability") as (figure, ax):
    for name, line in zip(names, zip(*map(at, dials), strict=True), strict=True):
        ax.plot(dials, line, label=name)
    ax.set_xscale("log")
    ax.set_xticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="center left")
shown = [0.1, 0.5, 1, 2, 5, 10]
columns = zip(*map(at, shown), strict=True)
figures.display(
    figure,
    alt="Line chart: as the temperature rises from 0.1 to 10, the probability of Carlos falls from nearly 1 to nearly 0. That of Jamal rises to 0.4 and falls again, and that of the others rises.",
    caption="Below 1 the best score takes more and more, in the end all. Above, the many others gain; only far beyond 10 would every token have the same probability.",
    table={"temperature": shown, **{n: [f"{s:.0%}" for s in c] for n, c in zip(names, columns, strict=True)}},
)

# %% [markdown]
# Towards 0, softmax becomes a choice of the largest. So it is a soft *argmax*: it shows which score is the largest, while the soft version of the maximum itself is the log-sum-exp of section 5 (Goodfellow et al. 2016, section 6.2.2.3). Towards infinity all tokens get the same probability.
# Lesson 12 writes with this dial.
#
# Here is all of it at once, for the model's best words alone. Turn the temperature, move a score, and add to all scores until the formula breaks.

# %%
top = scores.topk(6)
softmax_view(top.values, [tokenizer.decode([i]) for i in top.indices.tolist()])

# %% [markdown]
# What is added to all scores changes no probability, but beyond 88.72 the plain formula ends in NaN. A low temperature alone can take it there, too.

# %% [markdown] slide="slide"
# ## 5. The loss of a prediction
# The story continued with *Carlos*, and the model had given him a probability of 0.615. How good is that?
#
# As in lesson 00 we take **minus the logarithm of the probability of what really came**, in nats. There it was called the cost; the usual name is the *loss*, or negative log-likelihood. A probability of 1 has a loss of 0.

# %%
for i in who.tolist():
    p = layers.softmax(scores, dim=0)[i]
    print(f"{tokenizer.decode([i]).strip():>8}: probability {p:.3f}, loss {-p.log():.2f} nats")
print(f"   exact: probability 0.500, loss {-math.log(0.5):.2f} nats")

# %% [markdown]
# With *Jamal* the loss would have been about twice as large. Now the same with our three scores, if the second one came:

# %%
target = 1
print(f"probability {probs[target]:.4f}, loss {-probs[target].log():.4f} nats")

# %% [markdown]
# This takes an exponential, and then its logarithm. Write it out, and the two cancel:
#
# $$-\ln \frac{e^{x_y}}{\sum_j e^{x_j}} = \ln \sum_j e^{x_j} - x_y$$
#
# The first term is called *log-sum-exp*. It can be computed without overflow (take out the maximum, as before), and the probability itself is not computed at all.


# %%
def loss_of(scores: torch.Tensor, target: int) -> torch.Tensor:
    return scores.logsumexp(0) - scores[target]  # (V) -> ()


# %%
hopeless = torch.tensor([200.0, 0.0, 3.0])
print(f"the same again:     {loss_of(few, 1):.4f} nats")
print(f"a probability of 0: {loss_of(hopeless, 1):.0f} nats")
print(f"the long way:       {-layers.softmax(hopeless, dim=0)[1].log():.0f}")

# %% [markdown]
# A loss of 200 nats is high, but a model can learn from it. It cannot learn from `inf`.
#
# ### Which way should the scores move?
# The gradient of this loss is the most pleasant formula of the series. With $p$ the row of probabilities, and $y$ from here on no longer the target's number but a row, too, 1 for what came and 0 for the
# others:
#
# $$\frac{\partial\,\text{loss}}{\partial x} = p - y$$

# %% evidence="p-minus-y"
for came in range(3):
    x3 = few.clone().requires_grad_()
    loss_of(x3, came).backward()
    y = torch.eye(3)[came]
    torch.testing.assert_close(loss_of(few, came), -probs[came].log())
    torch.testing.assert_close(x3.grad, probs - y)
    print(f"score {came} came: gradient", x3.grad)

# %% [markdown]
# A step against it on the *scores* pushes what came up by the probability that it lacked, and each other token down by the probability that it had. Training changes the weights, which all positions share, so a step need not move every score in this
# direction. If the model is right and sure, the gradient is nearly 0.
#
# ### One number for a batch
# A batch has many losses, and there is more than one way to a single number. Take two texts, the whole story and its first words. The model reads all
# but the last token of each; position $t$ is asked for token $t+1$.


# %%
def losses_of(text: str) -> list[float]:
    tokens = torch.tensor(tokenizer.encode("\n" + text))  # (T)
    with torch.no_grad():
        rows = model(tokens[None, :-1])[0]
    return [loss_of(row, y).item() for row, y in zip(rows, tokens[1:], strict=True)]


# %% rows=["S4-26"]
long, short = losses_of(told), losses_of("One foggy afternoon, careful Carlos")
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
# Write the loss of a batch. Shapes: `logits` (B, T, V), `targets` (B, T); the target at position $t$ belongs to the scores at position $t$. At least one target is real.


# %% tags=["exercise"] name="cross_entropy" minutes=20 difficulty=3
def cross_entropy(logits, targets):
    """logits (B, T, V): any finite scores. targets (B, T): ids 0..V-1, or -100 for no target.

    Returns (): the mean of -ln(probability of the target) over the targets that are not -100, in nats.
    """
    # SOLUTION
    real = targets != -100  # (B, T)
    ids = targets.masked_fill(~real, 0)  # (B, T)
    picked = logits.gather(-1, ids[..., None])[..., 0]  # (B, T)
    losses = logits.logsumexp(-1) - picked  # (B, T)
    return losses[real].mean()
    # END


# %% tags=["check"] evidence="real-targets"
if check("cross_entropy", cross_entropy).passed:
    keep("cross_entropy", cross_entropy)

# %%
hint("cross_entropy")

# %% [markdown] tags=["solution"]
# Log-sum-exp of every row, minus the target's score, then the mean over the real targets. `gather` picks one score per row; it wants the index to
# have as many axes as the scores, hence `[..., None]`, and the size-1 axis is dropped afterwards. -100 is no valid index, so it is replaced before and
# masked after. The usual slips: `.mean()` over all positions (padding then counts as free), `softmax` followed by `log` (a probability of 0 has the loss inf),
# and taking the mean per text first.

# %% [markdown] slide="subslide"
# ### The library's version
# It agrees with our loop. Only its last line computes; the rest guards against wrong calls.

# %%
tokens = torch.tensor([tokenizer.encode("\n" + told)])
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
# The gradient $p - y$ is worth a pause: let the room say what happens to the score of a token to which the model never gives any probability.

# %% [markdown] slide="slide"
# ## 6. What does a wrong probability cost?
# The exact probability of *Carlos* is 0.5, and the model gave him more. Carlos came, so the model's loss was even lower than that of the exact probability. But with *Jamal* its loss would have been higher, and by a larger difference. So one word does not
# show how good a probability is. We need the **mean loss** over everything that can come. Let $q_i$ be the exact probability of token $i$, and $p_i$ the probability that the model gives it. Token $i$ comes with probability
# $q_i$, and its loss is then $-\ln p_i$. So the mean loss is
#
# $$-\sum_i q_i \ln p_i$$

# %%
q = torch.zeros(len(scores))  # (V)
for word, p in truth.items():
    q[tokenizer.ids[word]] = p


def mean_loss(scores: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (q * (scores.logsumexp(0) - scores)).sum()  # (V), (V) -> ()


# %% [markdown]
# First a simple case: only two words can come, and the model gives the first one a probability of 0.01, 0.02 and so on up to 0.99, and the rest to the second.

# %%
grid = torch.arange(1, 100) / 100  # (99): what the model gives to the first word


def over_grid(exact_first: float) -> torch.Tensor:
    return -(exact_first * grid.log() + (1 - exact_first) * (1 - grid).log())  # (99)


# %% tags=["source-hidden"]
predict(
    "Carlos and Jamal are equally likely. Which probability for Carlos (the rest goes to Jamal) has the lowest mean loss?",
    key=lambda: f"{grid[over_grid(0.5).argmin()]:.1f}",
    choices={
        "1.0": "Half of the time Jamal comes, and a probability of 0 has an infinite loss.",
        "0.5": "",
        "no matter which": "From 0.5 to 0.6 the loss of Carlos falls by 0.18, but that of Jamal rises by 0.22.",
    },
    because="The loss of the word that loses probability rises more than the other one falls, and both come equally often.",
)

# %% evidence="lowest-at-the-truth"
for exact_first in (0.1, 0.5, 0.7):
    curve = over_grid(exact_first)
    lowest_at = grid[curve.argmin()].item()
    print(f"exact probability {exact_first}: lowest mean loss {curve.min():.3f}, at {lowest_at:.2f}")
    assert abs(lowest_at - exact_first) < 1e-6

# %% [markdown]
# The lowest mean loss is at the exact probability, wherever that is. Does this hold for more than two words, too? We draw three random distributions of 345 words, and for each of them three times 1,000 wrong ones, the first 1,000 only a little wrong. We compute in fp64, because rounding in fp32 can hide differences that are so small.

# %% evidence="lowest-for-many"
n_lower = 0
for seed in range(3):
    generator = torch.Generator().manual_seed(seed)
    exact_scores = 3 * torch.randn(345, generator=generator, dtype=torch.float64)  # (V)
    exact_probs = layers.softmax(exact_scores, dim=0)
    for size in (0.01, 1, 3):
        wrong = exact_scores + size * torch.randn(1000, 345, generator=generator, dtype=torch.float64)  # (1000, V)
        for row in wrong:
            n_lower += int(mean_loss(row, exact_probs) < mean_loss(exact_scores, exact_probs))
print(f"{n_lower} of the wrong distributions have a lower mean loss than the exact one")
assert n_lower == 0

# %% [markdown]
# Now our story. We compare four sets of probabilities: the exact ones, those of the model, those of the model when it does not see the line end, and some that are nearly certain of Carlos.

# %%
certain = torch.zeros(len(scores)).index_copy(0, who, torch.tensor([0.99, 0.01]))  # (V)
with torch.no_grad():
    no_line_end = model(ids[:, 1:])[0, -1]  # (V)
opinions = {
    "exact": (q + 1e-12).log(),  # a token that cannot come has a very low score
    "the model": scores,
    "no line end": no_line_end,
    "nearly certain": (certain + 1e-12).log(),
}

# %% evidence="entropy-and-divergence"
entropy = -(q[who] * q[who].log()).sum()
points = {}
print("                Carlos  Jamal   mean loss = entropy + KL divergence")
for name, row in opinions.items():
    p = layers.softmax(row, dim=0)  # (V)
    loss = mean_loss(row, q)
    divergence = (q[who] * (q[who] / p[who]).log()).sum()
    torch.testing.assert_close(loss, entropy + divergence, rtol=1e-4, atol=1e-5)
    print(f"{name:<15} {p[who[0]]:.3f}   {p[who[1]]:.3f}   {loss:.3f}     = {entropy:.3f}   + {fixed(divergence, 3)}")
    points[name] = (p[who[0]].item(), loss.item())
assert points["exact"][1] < points["the model"][1] - 0.01 < points["no line end"][1] < points["nearly certain"][1]

# %% [markdown]
# That is the answer to our question:
#
# $$-\sum_i q_i \ln p_i = -\sum_i q_i \ln q_i + \sum_i q_i \ln \frac{q_i}{p_i}$$
#
# **Cross-entropy = entropy + KL divergence.** (The mean over a batch in section 5 has the same name, because over many texts it comes close to the left side.) The *entropy* does not depend on the model: it is the mean loss of the exact probabilities, and no model has a lower one (the floor of lesson 00). The *Kullback-Leibler divergence* (Kullback and Leibler 1951) is
# what a wrong probability costs on average: at this word 0.032 nats for our model, and 0.446 nats if we leave out the line end that it always saw in training. It is 0 if the probabilities are exact. For ordinary text nobody knows $q$, so
# only the left side can be measured.

# %% tags=["source-hidden"]
with figures.axes("Lowest at the exact probability", "probability given to Carlos", "mean loss (nats)") as (figure, ax):
    for exact_first in (0.5, 0.7):
        ax.plot(grid.tolist(), over_grid(exact_first).tolist(), label=f"if it is exactly {exact_first}")
        ax.axvline(exact_first, ymax=0.22, color=figures.QUIET, linewidth=1.5, linestyle=":")
    for (name, (across, up)), marker in zip(list(points.items())[:3], "osD", strict=True):
        ax.plot(across, up, marker, color=figures.INK, markersize=10, label=f"{name}: {up:.3f}")
    ax.set_ylim(0, 2.5)
    ax.legend(frameon=False, loc="upper center")
figures.display(
    figure,
    alt="Line chart: the mean loss over the probability given to Carlos is a valley. If his exact probability is 0.5, its lowest point is at 0.5; if it is 0.7, at 0.7.",
    caption="Each valley is lowest at the exact probability. The model is near the bottom of its valley; without the line end it is far up the side.",
    table={"probabilities": list(points), "Carlos": [p for p, _ in points.values()], "mean loss": [loss for _, loss in points.values()]},
    digits=3,
)  # fmt: skip

# %% [markdown]
# Does training find the bottom of this valley? In section 5 the gradient for one target was $p - y$. Its mean over everything that can come, each with its exact probability, is $p - q$:

# %% evidence="zero-at-the-truth"
for name, row in opinions.items():
    leaf = row.clone().requires_grad_()
    mean_loss(leaf, q).backward()
    torch.testing.assert_close(leaf.grad, layers.softmax(row, dim=0) - q, rtol=0, atol=1e-5)
    carlos, jamal = leaf.grad[who].tolist()
    print(f"{name:<15} gradient {fixed(carlos, 2):>5} for Carlos, {fixed(jamal, 2):>5} for Jamal")
    assert (leaf.grad.abs().max() < 1e-5) == (name == "exact")
    after_step = mean_loss(row - 0.1 * leaf.grad, q)
    assert after_step < mean_loss(row, q) or name == "exact"

# %% [markdown]
# The gradient is 0 only for the exact probabilities. For the other three, a small step on the scores against it makes the mean loss lower, and so the KL divergence, too. (Single probabilities may still move away.) That does not mean that training arrives there: after all of its training our model still gives Carlos
# 0.615.

# %% [markdown] tags=["note"]
# Ask first: the model gave Carlos more than the exact 0.5, and Carlos came. Was that good? The usual wrong answer is *yes, its loss was lower*. Let the room bet on both names with 0.6 and 0.4 and add up the losses of 10 stories in which each
# comes 5 times. Draw the valley before you show the figure. The divergence is not symmetric: exchange p and q for *nearly certain* and another number comes out.

# %% [markdown] slide="slide"
# ## 7. What should the first loss be?
# A new model knows nothing. Before you train, you should know what its loss ought to be: if the loss is far from that, look for the reason before you train. A right first loss does not prove that all
# is well (section 8). Here is an untrained model with a vocabulary of 10,000, and random tokens.

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
    "If all 10,000 tokens had the same probability, the loss would be ln 10,000 = 9.21 nats. What is the loss of this model?",
    key=lambda: "more than 9.21" if first_loss > uniform + 0.1 else "9.21",
    choices={
        "less than 9.21": "The tokens are random. Their exact probabilities are all equal, and no others have a lower mean loss.",
        "9.21": "That is the loss of equal probabilities. Those of random weights are not equal.",
        "more than 9.21": "",
    },
    because="The exact probabilities are all equal and those of the model are not, so the KL divergence of section 6 comes on top of 9.21.",
)

# %%
spread = logits.std().item()
print(f"ln V {uniform:.2f}, first loss {first_loss:.2f}")
print(f"standard deviation of the scores {spread:.2f}; ln V + half its square {uniform + spread**2 / 2:.2f}")
assert abs(first_loss - (uniform + spread**2 / 2)) < 0.05

# %% [markdown]
# The rule is $\ln V + \sigma^2/2$, with $\sigma$ the standard deviation of the scores. Here is where it comes from. The loss is log-sum-exp minus the target's score. Before training the score
# of a random target is 0 on average. And $V$ powers of normally distributed scores add up to about $V$ times their average, which for such scores is $e^{\sigma^2/2}$ (a known result; we only use it).
# The logarithm of that is the rule. Does it hold for any $\sigma$? We multiply the scores of three untrained models by a factor.

# %% evidence="first-loss"
scores_of = {}
for seed in range(3):
    _ = torch.manual_seed(seed)
    fresh = TransformerLM(preset("modern", vocab_size=10_000)).eval()
    fresh_tokens = torch.randint(10_000, (8, 65))
    with torch.no_grad():
        scores_of[seed] = fresh(fresh_tokens[:, :-1]), fresh_tokens[:, 1:]
for factor in (0.25, 1, 2, 3, 5, 8):
    sigmas, losses, tops = [], [], []
    for row, targets in scores_of.values():  # (B, T, V), (B, T)
        sigmas.append((factor * row).std().item())
        losses.append(next_token_loss(factor * row, targets).item())
        tops.append(layers.softmax(factor * row[0], dim=-1).topk(10).values.sum(-1).mean().item())
    sigma, found = sum(sigmas) / 3, sum(losses) / 3
    rule = uniform + sigma**2 / 2
    print(
        f"sigma {sigma:.1f}: loss {found:4.1f}, rule {rule:4.1f}; the ten largest hold {sum(tops) / 3:4.0%} of the sum"
    )
    assert abs(found - rule) < 0.15 or sigma > 3
assert found < rule - 5 and tops[0] > 0.5

# %% [markdown]
# Up to $\sigma = 3$ the rule holds within 0.15 nats for this vocabulary. For much larger $\sigma$ it is too high: then the ten largest of 10,000 scores make up most of the sum, and the average over so few is not reliable. [[first-loss]]
#
# The rule assumes that the scores are nearly normal, and independent of the target. These models have an output layer of their own. If it uses the same table as the embedding (*tied* embeddings, lesson 10), the token that the model has just read gets
# a much higher score than all others.

# %% evidence="first-loss-tied"
for factor in (1, 5):
    sigmas, losses = [], []
    for seed in range(3):
        _ = torch.manual_seed(seed)
        tied = TransformerLM(preset("modern", vocab_size=10_000, tie_embeddings=True)).eval()
        tied_tokens = torch.randint(10_000, (8, 65))
        with torch.no_grad():
            tied_scores = factor * tied(tied_tokens[:, :-1])  # (B, T, V)
        sigmas.append(tied_scores.std().item())
        losses.append(next_token_loss(tied_scores, tied_tokens[:, 1:]).item())
    sigma, found = sum(sigmas) / 3, sum(losses) / 3
    rule = uniform + sigma**2 / 2
    print(f"tied, sigma {sigma:.1f}: loss {found:4.1f}, rule {rule:4.1f}")
    assert (abs(found - rule) < 0.1) if factor == 1 else (found > rule + 1)

# %% [markdown]
# With its small initial weights the tied model fits the rule, too. But with scores 5 times as large the rule is too low already at a small $\sigma$, because one score in each row is far outside the normal distribution. [[first-loss-tied]]
#
# The scores of a model with small initial weights barely differ, so for many models $\ln V$ is close. How close can one tell from one batch?
#
# A published notebook prints a first loss of 9.1634, which is below $\ln V$ = 9.21. Does that model know something before its training? We rebuild it three times, with the preset `"gpt"`.

# %% rows=["S2-14"] evidence="first-loss-noise"
published, first_losses = 9.1634, []
for seed in (3, 4, 5):
    _ = torch.manual_seed(seed)
    small = TransformerLM(preset("gpt", vocab_size=10_000)).eval()
    texts = torch.randint(10_000, (120, 16))  # 60 batches of two texts
    with torch.no_grad():
        rows = small(texts[:, :-1])  # (120, 15, V)
    losses = [next_token_loss(rows[i : i + 2], texts[i : i + 2, 1:]).item() for i in range(0, 120, 2)]
    mean = sum(losses) / len(losses)
    print(f"60 batches of 30 targets: {min(losses):.2f} to {max(losses):.2f}, mean {mean:.2f}, ln V {uniform:.2f}")
    assert uniform < mean < uniform + 0.1
    first_losses += losses
n_below = sum(loss < published for loss in first_losses)
print(f"{n_below} of {len(first_losses)} batches are below {published}")
assert 1 <= n_below < 0.2 * len(first_losses)

# %% [markdown]
# So 9.1634 is a low value, but within the noise: some batches of these models are even lower, although the tokens are random and nothing can be known about them. The mean lies a little *above* $\ln V$. [[first-loss-noise]]

# %% [markdown] slide="slide"
# ## 8. Break it: softmax twice
# A model whose last line is a softmax returns probabilities. `next_token_loss` takes them for scores and applies softmax again. Nothing complains: the
# shapes fit, and the first loss is close to $\ln V$, as it should be. What is the lowest loss that such a model can reach?

# %%
V = 32
perfect = torch.zeros(V)
perfect[7] = 1.0  # all probability on the right token

# %% tags=["source-hidden"]
predict(
    f"V = {V}, and the model gives the right token a probability of exactly 1. What is its loss with softmax applied twice?",
    key=lambda: loss_of(perfect, 7).item(),
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
# starts at 0 and shall learn the token that follows (after $t$ always the remainder of $5t + 3$ divided by 32: any fixed rule would do). We train it both ways, with a step size of 30, large because the mean
# over 32 rows makes each row's gradient small.


# %%
def learn(twice: bool, start: torch.Tensor, steps: int = 200) -> tuple[list[float], float]:
    follows = (5 * torch.arange(V) + 3) % V  # (V)
    table, losses = start.clone().requires_grad_(), []  # (V, V)
    for _ in range(steps + 1):
        out = layers.softmax(table, dim=-1) if twice else table  # (V, V)
        loss = next_token_loss(out, follows)
        losses.append(loss.item())
        gradient = torch.autograd.grad(loss, table)[0]  # (V, V)
        table = (table - 30 * gradient).detach().requires_grad_()
    return losses, (table.argmax(-1) == follows).float().mean().item()


# %% evidence="softmax-twice"
once, right_once = learn(twice=False, start=torch.zeros(V, V))
double, right_double = learn(twice=True, start=torch.zeros(V, V))
floor = math.log(math.e + V - 1) - 1
assert math.isclose(loss_of(perfect, 7).item(), floor, abs_tol=1e-5)
assert right_once == right_double == 1 and once[-1] < 0.1 and floor <= min(double) + 1e-4
print(f"softmax once:  loss {once[-1]:.2f}, {right_once:.0%} right")
print(f"softmax twice: loss {double[-1]:.2f}, {right_double:.0%} right, floor {floor:.2f}")

# %%
steps = list(range(0, 201, 4))
figures.loss_curve(
    {"once": (steps, once[::4]), "twice": (steps, double[::4])},
    {"the floor": floor},
    title="From zeros: right every time, and stuck",
    caption="From a table of zeros both models learn every answer. The loss of the second stops at its floor.",
)

# %% [markdown]
# This table starts at 0, so it learns every answer, although its loss stays high. That is a special case, because at the start all probabilities are equal. What happens from random weights?

# %% evidence="softmax-twice-random"
for deviation in (1, 3):
    right = {False: [], True: []}
    for seed in range(3):
        start = deviation * torch.randn(V, V, generator=torch.Generator().manual_seed(seed))  # (V, V)
        for twice in right:
            right[twice].append(100 * learn(twice, start)[1])
    mean_once, mean_twice = sum(right[False]) / 3, sum(right[True]) / 3
    found = learned(mean_twice, 85, 99) if deviation == 1 else learned(mean_twice, 15, 60)
    print(f"random scores, standard deviation {deviation}: once {mean_once:.0f} % right, twice {found} %")
    assert mean_once == 100 and max(right[True]) < (100 if deviation == 1 else 70)

# %% [markdown]
# With softmax once, the table still learns every answer. With softmax twice it does not in the same number of steps, and the further the random scores are apart, the fewer answers it learns. [[softmax-twice-random]] The reason is the gradient: on its way back through the first softmax it is multiplied by the probabilities. So
# where the right token has a probability near 0, hardly any gradient is left. Softmax twice spoils the learning, not only the loss that you see.
#
# However large the vocabulary, the floor
# is less than one nat below the $\ln V$ of knowing nothing:

# %%
for n_tokens in (32, 1_000, 10_000, 100_000):
    lowest = math.log(math.e + n_tokens - 1) - 1
    print(f"V = {n_tokens:>7,}: ln V {math.log(n_tokens):5.2f}, floor {lowest:5.2f}")
    assert math.log(n_tokens) - 1 < lowest < math.log(n_tokens)

# %% [markdown]
# So: **a model returns scores**. Apply softmax only where probabilities are needed: in the loss, which has it built in, and in the sampler. [[softmax-twice-random]]
#
# ## What you have now
# - Softmax takes the exponential of each score and divides it by the sum of all, along one axis. [[along-one-axis]] Only differences of scores count, as long as the number format can hold them. [[only-differences]]
# - In exact arithmetic, subtracting the maximum changes no probability. It keeps every power at most 1, which prevents the overflow in fp32; in fp16 the sum can still overflow. Without it, the NaN came from $\infty / \infty$. [[maximum-subtracted]]
# - The loss of a target is log-sum-exp minus its score, and its gradient is $p - y$. [[p-minus-y]] The loss of a batch is one mean over all real targets. [[real-targets]]
# - A wrong probability costs the KL divergence: the mean loss is the entropy plus this divergence [[entropy-and-divergence]]. It is lowest if the model's probabilities are the exact ones [[lowest-at-the-truth]] [[lowest-for-many]], and there its gradient is 0. [[zero-at-the-truth]]
# - If the scores are nearly normal and independent of the target, the first loss is about $\ln V + \sigma^2/2$. We checked it up to $\sigma$ = 3 for untied models with $V$ = 10,000. [[first-loss]] With tied embeddings and larger scores it can be much too low. [[first-loss-tied]]
# - A model returns scores. If softmax is applied twice, the loss stays above $\ln(e + V - 1) - 1$ even if every answer is right [[softmax-twice]], and from random scores our table learned fewer answers in the same number of steps. [[softmax-twice-random]]
#
# Next, lesson 04: how the numbers inside the model keep one size.

# %% [markdown]
# ## Sources
# - Softmax: Bridle 1990, *Probabilistic Interpretation of Feedforward Classification Network Outputs, with Relationships to Statistical Pattern Recognition*.
# - Overflow and the maximum: Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 4.1; softmax as an output: section 6.2.2.3.
# - Entropy and cross-entropy: Goodfellow, Bengio and Courville 2016, section 3.13; the divergence: Kullback and Leibler 1951, *On Information and Sufficiency*.
# - In mixed precision, softmax and other sums are usually computed in fp32: Micikevicius et al. 2018, *Mixed Precision Training*, section 3.3. Our `layers.softmax` computes in the dtype of x.
# - Temperature: Hinton, Vinyals and Dean 2015, *Distilling the Knowledge in a Neural Network*, section 2, equation 1.
