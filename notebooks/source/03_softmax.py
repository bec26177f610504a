# %% [markdown] slide="slide"
# # 03 Softmax
# **How do scores become probabilities, and how do we measure how wrong they are?**
#
# *Needs* lessons 01 and 02. *Builds* `softmax` in `layers.py` and `next_token_loss` in `training/evaluation.py`. *Runs* in about 20 s on two cores.
# *Teaches* in about 62 minutes, plus 23 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: softmax turns scores into probabilities, and the loss of a probability has a gradient that is simple enough to train with. Sections 1 to 6 are the core. Section 6 trains the first model that writes, so do not drop it. Section 7 measures what wrong probabilities add to the loss, section 8 shows a mistake that raises no error, and section 9 has what students need when they train models of their own.
# Before the class: run all cells once, and move the slider in section 2.

# %% slide="skip"
import torch
from matplotlib import pyplot as plt

from tinylm_lib import storyworld
from tinylm_classroom import figures
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** The last layer of a model answers one question for each word of the vocabulary, and the answer is a score. Scores can be any numbers. Today we turn them into probabilities, and then into a loss that a model can learn from.
#
# **Draw.** Three scores as bars, one of them below the line. Next to them an empty bar of height 1 that has to be divided among the three.
#
# **Ask.** Before the exponential: "How would you make all numbers positive?" Try each proposal on the scores 2 and -3.
#
# **Usual answers.**
# - *Take the squares, or the absolute values* (`squares`): Then -3 beats 2. What must stay true when the numbers become positive?
# - *Set negative scores to 0* (from the room): Then a word with a negative score can never come, and its score gets no gradient, so no training can raise it again.
# - *The probability grows, because the score grew* (`larger`): Its exponential grows, and so does the sum. By which factor does each of them grow?
# - *It becomes smaller* (`smaller`): Write out one of the three fractions, and cancel.
#
# **Cut if short.** The two lines about the sigmoid; lesson 08 comes back to it.

# %% [markdown] slide="slide"
# ## 1. Scores are not probabilities
# These are the last two sentences of a story that is not finished. How does the next one start?

# %%
story_text = storyworld.story(torch.Generator().manual_seed(1)).text
beginning = story_text[: story_text.index(" In the end")]
print("...", beginning[beginning.index("Then they") :])

# %% [markdown]
# We give the whole beginning to the shipped model, after a line end, as in training. For each token of its vocabulary the model computes a number.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (B, T)
with torch.no_grad():
    scores = model(ids)[0, -1]  # (V)
for word in ("Everybody", "In", "Soon", "kite"):
    print(f"{word:>10} {scores[tokenizer.encode(' ' + word)[0]]:6.2f}")
print(f"{len(scores)} scores, from {scores.min():.1f} to {scores.max():.1f}")

# %% [markdown] slide="subslide"
# These numbers are **scores**, also called **logits**. *Everybody* leads and *kite* is far behind, but is 8.88 a lot?
#
# We want a **probability** for each token: no probability is negative, and together they add up to 1. All these probabilities together are a **distribution**.
#
# Three scores are enough to see how. The first idea is to divide by the sum.

# %%
few = torch.tensor([2.0, 1.0, 0.1])
negative = torch.tensor([2.0, 1.0, -2.9])
print("works:", few / few.sum())
print("fails:", negative / negative.sum())

# %% [markdown] slide="subslide"
# A probability cannot be 20 or -29. So all numbers have to become positive first, and a larger score has to stay larger. Squares and absolute values are positive, but they would put -3 above 2. The exponential $e^x$ does both:

# %% rows=["S0-14"]
powers = few.exp()
probs = powers / powers.sum()
print("exponentials: ", powers)
print("probabilities:", probs)
assert [round(p, 3) for p in probs.tolist()] == [0.659, 0.242, 0.099]

# %% [markdown]
# This is **softmax** (Bridle 1990): take the exponential of each score and divide it by the sum of all of them.
#
# $$p_i = \text{softmax}(x)_i = \frac{\exp(x_i)}{\sum_j \exp(x_j)} \qquad \text{with } \exp(x) = e^x$$

# %% [markdown] slide="say"
# Now the scores of the model. StoryWorld also knows the **exact** probability of each word (lesson 01).


# %% slide="skip"
def simple_softmax(row: torch.Tensor) -> torch.Tensor:
    exponentials = row.exp()  # (V)
    return exponentials / exponentials.sum()  # (V)


# %% slide="skip"
reader = storyworld.Reader()
for word in storyworld.words(beginning):
    reader.read(word)
exact = reader.next_word_probs()
openers = [tokenizer.decode([i]) for i in scores.topk(10).indices.tolist()]
shown_words = [*openers, " kite"]
shown_ids = torch.tensor([tokenizer.encode(word)[0] for word in shown_words])
shown_scores, shown_probs = scores[shown_ids], simple_softmax(scores)[shown_ids]
shown_exact = [exact.get(word, 0.0) for word in shown_words]

# %% tags=["source-hidden"] slide="skip"
stages = {"score": shown_scores, "exponential": shown_scores.exp(), "probability": shown_probs}
labels = {
    "score": [f"{score:.1f}" for score in shown_scores.tolist()],
    "exponential": [f"{power:,.0f}" for power in shown_scores.exp().tolist()],
    "probability": [f"{p:.3f}" for p in shown_probs.tolist()],
}
labels["exponential"][-1] = f"{shown_scores[-1].exp():.2f}"  # kite needs more digits
labels["probability"][-1] = f"{shown_probs[-1]:.7f}"

# %% tags=["signature", "source-hidden"] slide="subslide"
fig, three_axes = plt.subplots(1, 3, figsize=(12.4, 6.4), layout="constrained", sharey=True)
for ax, (stage, values) in zip(three_axes, stages.items(), strict=True):
    values, high = values.tolist(), values.max().item()
    hues = [figures.SERIES[0] if value > 0 else figures.SERIES[1] for value in values]
    ax.barh(range(11), values, color=hues, height=0.7)
    for i, value in enumerate(values):
        right = max(value, shown_exact[i]) if stage == "probability" else max(value, 0)
        ax.text(right + 0.08 * high, i, labels[stage][i], va="center_baseline", size=18)
    ax.set(xlim=(min(0, 1.2 * min(values)), 1.48 * high), xticks=[], ylim=(10.6, -0.8))
    ax.set_title(stage, size=23)
    ax.grid(visible=False)
    figures.unframed(ax)
three_axes[0].set_yticks(range(11), [word.strip() for word in shown_words], size=19)
three_axes[0].set_ylabel("next word", size=19)
diamonds = {"mfc": "white", "mec": figures.INK, "mew": 2, "ms": 11, "clip_on": False}
three_axes[2].plot(shown_exact, range(11), "D", label="exact", **diamonds)
three_axes[2].legend(frameon=False, loc="lower right", fontsize=20, handletextpad=0.1)
fig.supxlabel("e to the power of each score, then each divided by the sum of all 345", size=20)
figures.display(
    fig,
    alt="Three bar charts of eleven words: their scores, of which one is negative; the exponentials of these; and the probabilities, with a diamond at each exact probability. Everybody has 0.217, and kite has nearly 0.",
    caption="How does the next sentence start? Scores become positive, then they are divided by their sum. The diamonds are the exact probabilities: nobody showed them to the model.",
    table={"word": [word.strip() for word in shown_words], **{stage: values.tolist() for stage, values in stages.items()}, "exact": shown_exact},
)  # fmt: skip

# %% evidence="close-to-exact"
largest_error = max(abs(p - q) for p, q in zip(shown_probs.tolist(), shown_exact, strict=True))
print(f"the ten words together: {shown_probs[:10].sum():.4f}; largest error {largest_error:.3f}")
assert shown_probs[:10].sum() > 0.999 and largest_error < 0.02 < max(exact.values()) - min(exact.values())

# %% [markdown]
# The ten words that can come have nearly all of the probability, and at this word the model is close to the exact probabilities. [[close-to-exact]] A higher score always gives a higher probability.

# %% tags=["source-hidden"] slide="subslide"
from tinylm_classroom import predict

lifted = simple_softmax(few + 50)
predict(
    "We add 50 to each of the three scores 2, 1 and 0.1. What happens to the largest probability, 0.659?",
    key=lambda: "it stays as it is" if torch.allclose(lifted, probs) else "larger",
    choices={
        "larger": "Its exponential grows, and so does the sum. By which factor does each of them grow?",
        "it stays as it is": "",
        "smaller": "The sum grows, and so does its own exponential. By which factor does each of them grow?",
    },
    because="`exp(x + 50)` is `exp(x) * exp(50)`, and this factor is in the numerator and in the denominator.",
)

# %% [markdown] slide="fragment"
# **Only differences count.** So these two rows of scores mean the same:

# %% rows=["S1-12"] evidence="only-differences" slide="fragment"
from tinylm_lib import layers

for row in ([100.0, 101.0, 102.0], [-2.0, -1.0, 0.0]):
    same = layers.softmax(torch.tensor(row), dim=0)  # (3)
    print(row, "->", same, f"neighbours: {same[1] / same[0]:.3f} to 1")
random_scores = torch.randn(50, generator=torch.Generator().manual_seed(3))
random_probs = layers.softmax(random_scores, dim=0)
for shift in (-1000, -1, 50, 1000):
    torch.testing.assert_close(layers.softmax(random_scores + shift, dim=0), random_probs, rtol=1e-3, atol=0)

# %% [markdown] slide="say"
# Neighbours differ by 1 here, so each is $e$ = 2.718 times as likely as the one before: the exponential turns a difference of scores into a ratio of probabilities. With powers of 2 it would be twice as likely: another base is only another temperature (section 2).
#
# The library computed these probabilities, because our simple function would fail for the first row, as section 3 shows.

# %% [markdown] slide="subslide"
# With two scores there is only one difference. Divide the numerator and the denominator by $e^{a}$:
#
# $$\frac{e^a}{e^a + e^b} = \frac{1}{1 + e^{-(a - b)}} = \text{sigmoid}(a - b)$$
#
# So the **sigmoid** is the softmax of two scores. [[sigmoid]] You will use it in lesson 08.

# %% evidence="sigmoid"
for a, b in ((2.0, 1.0), (-3.0, 4.0)):
    two = simple_softmax(torch.tensor([a, b]))
    print(f"softmax of {a:.0f} and {b:.0f}: {two[0]:.4f}, sigmoid of {a - b:.0f}: {torch.tensor(a - b).sigmoid():.4f}")
    torch.testing.assert_close(two[0], torch.tensor(a - b).sigmoid())

# %% [markdown] tags=["note"]
# **Say.** Adding a number to all scores changes nothing. Dividing them by a number does: it is the dial for how sure the model is. This dial is in every program that writes with a language model.
#
# **Draw.** Two bars for two scores, and the difference between them. Below it the same two bars for half the temperature: the difference is twice as large.
#
# **Ask.** Before you move the slider: "What will be left at temperature 0.1? And what at 1000?"
#
# **Usual answers.**
# - *The ratio doubles* (`twice the ratio`): The difference of the scores doubles. What is $e^{2d}$ if $e^d$ is the ratio?
# - *At a high temperature the order changes* (from the room): Dividing by a positive number keeps the order. Only the distances change.
# - *Heat makes the model more creative* (from the room): It makes unlikely words more likely, also those that are wrong. Look at *kite*.
#
# **Cut if short.** The prediction; move the slider and let the class describe what they see.

# %% [markdown] slide="slide"
# ## 2. Temperature
# Adding the same number to all scores changes no probability. *Dividing* all scores by the same number does: it makes all differences smaller or larger. This number is called the **temperature** $\tau$ (tau).
#
# $$p_i = \frac{\exp(x_i / \tau)}{\sum_j \exp(x_j / \tau)}$$

# %% slide="skip"
import math

everybody, soon = tokenizer.encode(" Everybody Soon")


def ratio(temperature: float) -> float:
    dialled = simple_softmax(scores / temperature)  # (V)
    return (dialled[everybody] / dialled[soon]).item()


# %% tags=["source-hidden"]
predict(
    f"At temperature 1, 'Everybody' is {ratio(1):.1f} times as likely as 'Soon'. How many times at temperature 0.5?",
    key=lambda: ratio(0.5),
    number="times",
    within=0.3,
    feedback={
        round(ratio(1) * 2, 1): "The difference of the scores is doubled. What does this do to the ratio of the exponentials?",
        round(ratio(1) / 2, 1): "Dividing by 0.5 makes the differences larger.",
    },
    because="The difference of the scores is doubled, and the ratio is e to the power of the difference: it is squared.",
)  # fmt: skip

# %% [markdown] slide="subslide"
# Move the temperature. The outlines show temperature 1.


# %% slide="skip"
from tinylm_classroom import control


def next_word(temperature=0.3):
    dialled = simple_softmax(scores / temperature)[shown_ids].tolist()
    names = [word.strip() for word in shown_words]
    fig, ax = plt.subplots(figsize=(10, 4.6), layout="constrained")
    ax.bar(names, dialled)
    ax.bar(names, shown_probs.tolist(), facecolor="none", edgecolor=figures.INK, linewidth=1.5)
    ax.set(title=f"Temperature {temperature:.1f}", xlabel="next word", ylabel="probability", ylim=(0, 1))
    ax.tick_params(axis="x", rotation=40)
    alt = f"The probabilities of eleven words at temperature {temperature:.1f}, next to those at temperature 1."
    caption = "A low temperature gives more to the best words, a high one makes all words more alike."
    figures.display(fig, alt=alt, caption=caption, table={"word": names, "probability": dialled})


# %%
control(next_word, temperature=(0.2, 10.0, 0.1))

# %% evidence="temperature" slide="subslide"
print("temperature   Everybody   the other nine   the 335 others")
for temperature in (0.1, 0.5, 1, 2, 5, 10, 1000):
    dialled = simple_softmax((scores - scores.max()) / temperature)  # (V)
    first, ten = dialled[everybody].item(), dialled[shown_ids[:10]].sum().item()
    print(f"{temperature:>11}{first:>12.3f}{ten - first:>17.3f}{1 - ten:>17.3f}")
    assert dialled.argmax() == everybody
    assert temperature > 0.1 or first > 0.98
assert dialled.max() < 1.05 * dialled.min()
torch.testing.assert_close(2**few / (2**few).sum(), simple_softmax(few / (1 / math.log(2))))  # another base

# %% [markdown]
# Towards 0, softmax becomes a choice of the largest score, an *argmax*. So softmax is really a **soft argmax**: it shows *which* score is the largest. Towards infinity all tokens get the same probability. The order never changes. [[temperature]]

# %% [markdown] slide="say"
# (The maximum was subtracted first, which changes no probability. At temperature 0.1 the exponentials would otherwise overflow, as the next section shows.) A high temperature also raises the words that cannot come: at 5 they have more probability than the ten together. Powers of 2 instead of $e$ are softmax at the temperature $1/\ln 2$, as the last line of the code checks. Lesson 12 uses the temperature when it generates text.

# %% [markdown] tags=["note"]
# **Say.** The formula is right, and still the computer can give NaN. We look for the step where the damage begins, and then repair it with what we know already: only differences count.
#
# **Draw.** The curve of the exponential, and a horizontal line far up: the largest number that fp32 can hold. Where they meet, at 88.72, the format ends.
#
# **Ask.** Let someone compute 1/inf and inf/inf at the board. Then: "Which number may we subtract from all scores?" (Any.) "Which one is safe?"
#
# **Usual answers.**
# - *1.0, because it is by far the largest* (`1.0`): That is the right probability. Compute the three steps one by one.
# - *inf, because the exponential is inf* (`inf`): It is still divided by the sum, which is inf as well.
# - *Subtract the mean* (`mean`): Try it with the scores 20, 3 and 1005.
# - *Subtract the minimum* (`minimum`): The largest score gets even larger then.
#
# **Cut if short.** Subtracting the mean. The view at the end of the section is not on the slides, because readers try it alone.

# %% [markdown] slide="slide"
# ## 3. When it overflows
# Nothing prevents a model from computing a score of 1005. What does our function return then?

# %%
large = torch.tensor([20.0, 3.0, 1005.0])
naive = simple_softmax(large)

# %% tags=["source-hidden"]
predict(
    "Exponential, sum, divide, for the scores 20, 3 and 1005. What is the third probability?",
    key=lambda: "nan" if naive[2].isnan() else str(naive[2].item()),
    choices={
        "1.0": "That would be right. But can fp32 hold e to the power of 1005?",
        "inf": "The exponential is infinite. But it is still divided by the sum: what is the sum?",
        "nan": "",
    },
    because="Its exponential is inf, so the sum is inf as well, and `inf / inf` has no value.",
)

# %%
print("exponentials: ", large.exp())
print("probabilities:", large.exp() / large.exp().sum())

# %% [markdown] slide="subslide"
# Look where the damage begins. The exponential of 1005 is not NaN but **inf**: it is too large for the number format. NaN ("not a number") appears a step later, from $\infty / \infty$. In fp32, which keeps about seven digits, exponentials overflow above 88.72:

# %%
largest = torch.finfo(torch.float32).max
print(f"the largest number in fp32 is {largest:.3g}, which is e to the power of {math.log(largest):.2f}")
assert torch.tensor(88.72).exp().isfinite() and torch.tensor(88.73).exp().isinf()

# %% [markdown] slide="subslide"
# Only differences count, so we may subtract the same number $m$ from all scores. Let $m$ be the largest score:
#
# $$\frac{\exp(x_i)}{\sum_j \exp(x_j)} = \frac{\exp(x_i)/\exp(m)}{\sum_j \exp(x_j)/\exp(m)} = \frac{\exp(x_i-m)}{\sum_j \exp(x_j-m)}$$
#
# Then the largest exponential is $\exp(0) = 1$, so none can overflow, and the sum is at least 1, so we never divide by 0. Would the mean do as well? [[maximum-subtracted]]

# %% evidence="maximum-subtracted"
for name, m in {"nothing": 0.0, "the mean": large.mean(), "the maximum": large.max()}.items():
    safe_powers = (large - m).exp()  # (3)
    print(f"subtract {name:<12} {safe_powers} {safe_powers / safe_powers.sum()}")
    assert safe_powers.isfinite().all() == (name == "the maximum")
for row in (few, few + 50, -few):
    torch.testing.assert_close(simple_softmax(row - row.max()), simple_softmax(row))

# %% [markdown] slide="say"
# With the mean the third score is still too large. With the maximum the probabilities are right, and where the simple formula works, both agree.

# %% [markdown] slide="skip"
# Here is all of it at once, for the six highest scores only, so each of them gets more than before. Drag a score, change the temperature, and add to all scores until the simple formula breaks.

# %% slide="skip"
from tinylm_classroom import softmax_view

top = scores.topk(6)

# %% slide="skip"
softmax_view(top.values, [tokenizer.decode([i]) for i in top.indices.tolist()])

# %% [markdown] slide="skip"
# What you add to all scores changes no probability, but once the largest score divided by the temperature is above 88.72, the simple formula gives NaN. A low temperature alone can do it, too.

# %% [markdown] tags=["note"]
# **Say.** A model computes scores for every position of every text at once. Softmax works on each row alone, and the code has to say along which axis.
#
# **Draw.** A box of (2, 3, 5): two texts, three positions, five tokens. Colour one row along the last axis: this row gets its own sum.
#
# **Ask.** "Which of these mistakes would raise an error?" A forgotten `keepdim` with sizes 2, 3 and 5, and with a square.
#
# **Usual answers.**
# - *(2, 3)* (prediction): That is the shape without `keepdim`. What does it meet when you divide?
# - *`x.max()`, one maximum for everything* (`the largest of all`): A row that is far below it becomes 0 / 0. Each row needs its own maximum.
# - *`-1` instead of `dim`* (`fixed axis`): It works for a model and fails when another axis is asked for.
# - *`x -= ...` saves memory* (`in place`): It changes the tensor of the caller.
#
# **Cut if short.** The trace.

# %% [markdown] slide="slide"
# ## 4. Many rows at once
# A model gives scores for every position of every text, in a tensor of shape $(B, T, V)$. Each row along the last axis is a distribution of its own, so the maximum and the sum are taken **along one axis**, `dim`.

# %%
B, T, n_tokens = 2, 3, 5
x = torch.randn(B, T, n_tokens, generator=torch.Generator().manual_seed(3))  # (B, T, V)

# %% tags=["source-hidden"]
predict(
    f"x is (B, T, V) = {tuple(x.shape)}. What is the shape of `x.sum(-1, keepdim=True)`?",
    key=lambda: x.sum(-1, keepdim=True).shape,
    shape="(B, T, ?)",
    feedback={(2, 3, 5): "Each row of 5 numbers has one sum."},
    because="The axis stays, with size 1, so each row meets its own sum again.",
)

# %% [markdown] slide="subslide"
# Shapes $(2, 3, 5)$ and $(2, 3, 1)$ broadcast row by row (lesson 02). Without `keepdim` the sums have the shape $(2, 3)$, and dividing by them raises an error. That is the lucky case. For a square no error is raised:

# %% rows=["S1-13"]
square = torch.randn(4, 4, generator=torch.Generator().manual_seed(3)).exp()
wrong_rows = square / square.sum(-1)  # (4, 4)
print("the rows sum to", wrong_rows.sum(-1))
assert not torch.allclose(wrong_rows.sum(-1), torch.ones(4), atol=0.1)

# %% [markdown]
# Broadcasting aligns the last axes, so the numbers of column $j$ were divided by the sum of row $j$. The same happens with the maximum. Test with sizes that all differ.

# %% [markdown] slide="subslide"
# ### Your turn
# Write softmax for any number of axes. `x.amax(dim, keepdim=True)` gives the maximum along an axis.

# %% slide="skip"
from tinylm_classroom import check, hint, keep


# %% tags=["exercise"] name="softmax" minutes=8 difficulty=2
def softmax(x, dim):
    """x (...): any finite scores, large or very negative ones too.

    Returns probabilities of the same shape and dtype as x that sum to 1
    along dim, all of them finite. x stays as it was. Gradients flow back to x.
    softmax(torch.tensor([2.0, 1.0, 0.1]), 0): [0.659, 0.242, 0.099].
    """
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
# The first line subtracts from each row its own maximum and takes the exponential; the second divides by the sum of the row. Common mistakes: `x.max()`, one maximum for the whole tensor (a row far below it becomes 0 / 0); a fixed `-1` instead of `dim`; `x -= ...`,
# which changes the caller's tensor; and a forgotten `keepdim=True`.

# %% [markdown] slide="subslide"
# ### The library's version
# It agrees with PyTorch's, and it has two lines, too.

# %% rows=["S0-13", "S1-11"] evidence="along-one-axis" slide="skip"
torch.testing.assert_close(layers.softmax(x, dim=-1), torch.softmax(x, dim=-1))
torch.testing.assert_close(layers.softmax(x, dim=0), torch.softmax(x, dim=0))
torch.testing.assert_close(layers.softmax(x, dim=-1), x.exp() / x.exp().sum(-1, keepdim=True))

# %% slide="skip"
from tinylm_classroom import show

show(layers.softmax)

# %% [markdown]
# Here are its steps, one on each line, with the shape of each result. The maximum and the sum keep an axis of size 1.


# %% slide="skip"
def in_steps(x, dim):
    top = x.amax(dim, keepdim=True)
    powers = torch.exp(x - top)
    total = powers.sum(dim, keepdim=True)
    return powers / total


# %%
from tinylm_classroom import trace

trace(in_steps, x, dim=-1, sizes={"B": 2, "T": 3, "V": 5})

# %% [markdown] slide="say"
# `dim` has no default in our function: with a wrong axis no error is raised, and the probabilities are wrong. So the call should say which axis it means.

# %% [markdown] tags=["note"]
# **Say.** A story continues in one way. The loss asks: which probability did the model give to what came? Its gradient is the simplest formula of the course, and we derive it in two lines.
#
# **Draw.** The curve of $-\ln p$: 0 at the right, rising without end at the left. Then three bars of probabilities, and an arrow at each: up by what is missing, down by what is there.
#
# **Ask.** After the derivation: "What is the gradient of the score of a token to which the model gives no probability?" (0: if that token comes, the gradient is -1.) "Sum or mean: does it matter for learning?" (The gradient of the sum grows with the batch.)
#
# **Usual answers.**
# - *Take the logarithm of softmax* (`log of softmax`): What is it if the probability has become 0 in fp32?
# - *Add a small number before the logarithm* (`small number added`): Then an impossible word can never have a loss above some limit, and its gradient is wrong.
# - *`.mean()` over all positions* (`padding counts`, `padding costs nothing`): How many targets are there really?
# - *Take the mean of each text first* (`by sequence`): Then a token in a short text counts more. Which number stays the same if the texts are grouped differently?
# - *Shift the targets inside* (`shifts`): The target at position t already belongs to the scores at position t.
#
# **Cut if short.** The exercise; explain its solution and let the class write it at home.

# %% [markdown] slide="slide"
# ## 5. The loss of a prediction
# The story continued with *In*. The model had given it a probability of 0.141. How good is that?
#
# As in lesson 00, the **loss** is minus the logarithm of the probability of what came, in **nats**. It is also called the **negative log-likelihood**.

# %% slide="skip"
came = ["Everybody", "In", "Soon", "kite"]
came_probs = torch.stack([simple_softmax(scores)[tokenizer.encode(f" {word}")[0]] for word in came])
assert story_text[len(beginning) :].startswith(" In ")

# %%
for word, p in zip(came, came_probs, strict=True):
    print(f"{word:>10} has the probability {p:.2g}: a loss of {-p.log():.2f} nats, if it comes")

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10, 5.4), layout="constrained")
given = torch.linspace(0.0005, 1, 2000)
ax.plot(given, -given.log())
for word, p in zip(came[:3], came_probs[:3].tolist(), strict=True):
    ax.plot(p, -math.log(p), "o", color=figures.INK, markersize=11)
    ax.text(p + 0.025, 0.15 - math.log(p), word, size=20)
ax.text(0.03, 7.1, f"kite, at {-came_probs[3].log():.1f} nats, is far above this picture", size=20)
ax.set(title="The loss of what comes", xlabel="probability that the model gave it", ylabel="loss (nats)", ylim=(0, 7.6))
figures.display(
    fig,
    alt="A curve that falls steeply at first and reaches 0 at a probability of 1. Everybody, In and Soon are on its steep part, with losses between 1.5 and 2.5 nats. The loss of kite, 14.5, is far above.",
    caption="A probability of 1 has a loss of 0. The smaller the probability of what comes, the faster the loss rises: being sure of something else has a high loss.",
    table={"word": came, "probability": came_probs.tolist(), "loss (nats)": (-came_probs.log()).tolist()},
)

# %% [markdown] slide="subslide"
# Write out minus the logarithm of softmax. The logarithm and the exponential cancel:
#
# $$-\ln \frac{\exp(x_y)}{\sum_j \exp(x_j)} = \ln \sum_j \exp(x_j) - x_y$$
#
# Here $y$ is the number of the target. The first term is called **log-sum-exp**. It is a soft version of the maximum, and it can be computed without overflow: take the maximum out, as before. The probability itself is not computed at all.


# %%
def loss_of(row: torch.Tensor, target: int) -> torch.Tensor:
    return row.logsumexp(0) - row[target]  # (V) -> ()


# %% evidence="log-sum-exp"
hopeless = torch.tensor([200.0, 0.0, 3.0])
by_probability = -layers.softmax(hopeless, dim=0)[1].log()
print(f"three scores, the second one comes: {loss_of(few, 1):.4f} nats, by its probability {-probs[1].log():.4f}")
print(f"200, 0 and 3, the second one comes: {loss_of(hopeless, 1):.0f} nats, by its probability {by_probability:.0f}")
torch.testing.assert_close(loss_of(few, 1), -probs[1].log())
assert by_probability.isinf() and loss_of(hopeless, 1) == 200
leaf = hopeless.clone().requires_grad_()
(-layers.softmax(leaf, dim=0)[1].log()).backward()
print("gradient of the infinite loss:", leaf.grad.tolist())
assert leaf.grad.isnan().all()

# %% [markdown]
# In mathematics no probability of softmax is 0. In fp32 one can become 0, and its logarithm is `-inf`. A loss of 200 nats has a gradient to learn from; here the infinite one gives NaN. [[log-sum-exp]]

# %% [markdown] slide="subslide"
# ### Which way should the scores move?
# Take the derivative of $\;\ln \sum_j \exp(x_j) - x_y\;$ with respect to one score $x_i$:
#
# - First term, by the chain rule: $\dfrac{1}{\sum_j \exp(x_j)} \cdot \exp(x_i) = p_i$.
# - Second term: 1 for the score of the target, and 0 for all others. Call it $y_i$.
#
# $$\frac{\partial\,\text{loss}}{\partial x_i} = p_i - y_i$$
#
# The gradient is **the probabilities minus what came**.

# %% evidence="p-minus-y"
for target in range(3):
    leaf = few.clone().requires_grad_()
    loss_of(leaf, target).backward()
    one_hot = torch.eye(3)[target]
    print(f"score {target} came: gradient", leaf.grad)
    torch.testing.assert_close(leaf.grad, probs - one_hot)

# %% [markdown]
# A step against this gradient raises the score of what came in proportion to the probability that it lacked, and lowers each other score in proportion to the probability that it had. If the model is right and sure, hardly any gradient is left. [[p-minus-y]]

# %% [markdown] slide="say"
# This is about the *scores*. Training changes weights, and all positions use the same weights, so a step need not move every single score in this direction.

# %% [markdown] slide="subslide"
# ### One number for a batch
# A batch has many losses. How do they become one number? Take two texts: the whole story, and its first five words. At position $t$ the model predicts token $t+1$.


# %%
def losses_of(text: str) -> list[float]:
    tokens = torch.tensor(tokenizer.encode("\n" + text))  # (T)
    with torch.no_grad():
        rows = model(tokens[None, :-1])[0]
    return [loss_of(row, target).item() for row, target in zip(rows, tokens[1:], strict=True)]


# %% rows=["S4-26"] evidence="mean-over-targets"
long, short = losses_of(story_text), losses_of("One foggy afternoon, careful Carlos")
both = long + short
mean_of_means = (sum(long) / len(long) + sum(short) / len(short)) / 2
print(f"{len(long)} and {len(short)} targets")
print(f"sum                       {sum(both):6.1f} nats: grows with the batch")
print(f"mean over all targets     {sum(both) / len(both):6.2f} nats per token")
print(f"mean of the texts' means  {mean_of_means:6.2f}: short texts count more")
print(f"mean with padding counted {sum(both) / (2 * len(long)):6.2f}: too low")
assert sum(both) / (2 * len(long)) < sum(both) / len(both) < mean_of_means

# %% [markdown]
# We want the **mean over all targets**, the **cross-entropy**: each token counts the same, however the texts are grouped. [[mean-over-targets]] ($e$ to the power of this mean is called **perplexity**.)

# %% [markdown] slide="subslide"
# The last line needs an explanation. In a batch both texts must have the same length, so the short one is filled up with **padding**. A position without a real target has the target **-100** (PyTorch's convention). It must vanish from the sum *and from the count*; the last line removed it from the sum only.
#
# Two tools: `gather` picks one number from each row, and a boolean mask keeps the numbers where it is True.

# %%
grid_of_scores, picks = torch.arange(15.0).view(3, 5), torch.tensor([4, 0, 2])
picked = grid_of_scores.gather(-1, picks[:, None])[:, 0]  # (3)
print(grid_of_scores, picked, picked[picks != 0], sep="\n")

# %% [markdown] slide="say"
# `gather` raises an error for -100, so replace it by a valid id first. (`targets.clamp(min=0)` turns it into 0.) Mask its position afterwards.


# %% tags=["exercise"] name="cross_entropy" minutes=15 difficulty=3 plan=80
def cross_entropy(logits, targets):
    """logits (B, T, V): any finite scores. targets (B, T): ids 0..V-1, or -100.

    Returns (): the mean of -ln(probability of the target) in nats, over the
    targets that are not -100. At least one target is real. The target at
    position t belongs to the scores at position t. Gradients flow back to logits.
    Scores [[[2.0, 1.0, 0.1]]] and targets [[1]]: 1.4170.
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
# Log-sum-exp of every row, minus the score of the target, then the mean over the real targets. `gather` picks one score from each row. Its index needs as many axes as the scores, hence `[..., None]`, and the axis of size 1 is removed afterwards. Common mistakes: `.mean()` over all positions, which counts padding; `softmax` followed by `log` (a probability of 0 has an infinite loss); and taking the mean of each text first.

# %% [markdown] slide="subslide"
# ### The library's version
# It agrees with our loop. (That it is close to $\ln 2$ is a coincidence.) Only its last line computes, and the rest guards against wrong calls.

# %%
from tinylm_lib import next_token_loss

story_ids = torch.tensor([tokenizer.encode("\n" + story_text)])
with torch.no_grad():
    story_logits = model(story_ids[:, :-1])
by_library = next_token_loss(story_logits, story_ids[:, 1:]).item()
print(f"by hand {sum(long) / len(long):.4f}, by the library {by_library:.4f}")
assert math.isclose(by_library, sum(long) / len(long), rel_tol=1e-4)

# %% slide="fragment"
show(next_token_loss)

# %% [markdown] tags=["note"]
# **Say.** With softmax, a loss and its gradient we can train a language model. The simplest one is a table with a row of scores for each token. It sees only one token, but in a minute it writes.
#
# **Draw.** A square table. At the left the token that was read, on top the token that comes. Point at the row of *He*: a score for each token, and one softmax.
#
# **Ask.** After the prediction: "At which numbers does the training stop, and what have they to do with counting?" The gradient $p - y$ gives the answer.
#
# **Usual answers.**
# - *Random order cannot be learned* (`5.8, knowing nothing`): The order is random, but is *the* not still more common than *kite*?
# - *The same, because the tokens are the same* (`2.1, one token back`): What does the token before say about the next one, after the shuffling?
# - *Then counting is the better training* (from the room): Look at the pairs that were never counted.
# - *It writes nonsense, so it has learned nothing* (from the room): Compare it with temperature 3. Every pair of neighbours is possible; only what is further away is lost.
#
# **Cut if short.** The comparison with counting.

# %% [markdown] slide="slide"
# ## 6. A table learns to write
# The smallest language model is a table with $V$ rows and $V$ columns. The row of a token has the scores of the token that comes next. This is a **bigram** model, because it knows pairs.
#
# We train it on 2,000 stories. If your `cross_entropy` has passed its check, it computes the loss.

# %% slide="skip"
from torch.nn import functional as F

from tinylm_classroom import diagnose, fixed

V = tokenizer.vocab_size
train_ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(2000, seed=3)))  # 2,000 stories
new_ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(200, seed=4)))  # 200 others
mine = diagnose("cross_entropy", cross_entropy).passed
loss_function = cross_entropy if mine else next_token_loss

# %%
print("the loss is computed by", "your cross_entropy" if mine else "the library's next_token_loss")


# %% slide="subslide"
def train_table(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
    """Returns the table (V, V) after 200 updates, and the loss at each of them."""
    generator, losses = torch.Generator().manual_seed(3), []
    # ESSENTIAL
    table = torch.zeros(V, V, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.1)  # steps against the gradient: lesson 11
    for _ in range(200):
        starts = torch.randint(len(tokens) - 64, (64, 1), generator=generator)
        texts = tokens[starts + torch.arange(65)]  # (B, T + 1)
        logits = F.embedding(texts[:, :-1], table)  # (B, T, V): the row of each token
        loss = loss_function(logits, texts[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # END
    return table.detach(), losses


# %% slide="skip"
shuffled_ids = train_ids[torch.randperm(len(train_ids), generator=torch.Generator().manual_seed(3))]
table, table_losses = train_table(train_ids)
shuffled_table, shuffled_losses = train_table(shuffled_ids)
levels = storyworld.entropies(tokenizer, n_stories=2000)
end, shuffled_end = (sum(losses[-20:]) / 20 for losses in (table_losses, shuffled_losses))

# %% tags=["source-hidden"]
answers = {
    "5.8, knowing nothing": math.log(V),
    "5.0, how common each token is": levels.unigram,
    "2.1, one token back": levels.bigram,
}
predict(
    f"On stories the loss falls from {table_losses[0]:.1f} to about 2.1 nats. We train another table on the same tokens in random order. Where does its loss end?",
    key=lambda: min(answers, key=lambda name: abs(answers[name] - shuffled_end)),
    choices={
        "5.8, knowing nothing": "The order is random. But is every token still equally common?",
        "5.0, how common each token is": "",
        "2.1, one token back": "After the shuffling, does a token still say anything about the next one?",
    },
    because="In random order the token before does not help, so each row can only learn how common each token is.",
)  # fmt: skip

# %% tags=["source-hidden"] slide="subslide"
from tinylm_classroom import learned

updates = list(range(200))
marks = {"knowing nothing": math.log(V), "how common": levels.unigram, "one token back": levels.bigram}
fig, ax = plt.subplots(figsize=(10, 5.6), layout="constrained")
ax.plot(updates, table_losses, label="stories")
ax.plot(updates, shuffled_losses, label="the same tokens, shuffled")
for name, level in marks.items():
    ax.axhline(level, color=figures.QUIET, linewidth=1.6, linestyle=":")
    ax.text(204, level, name, color=figures.QUIET, va="center", size=17)
ax.set(title="A table learns which token follows", xlabel="update", ylabel="loss (nats per token)", ylim=(0, 6.4))
ax.legend(frameon=False, loc="lower left", fontsize=18)
figures.display(
    fig,
    alt="Two falling curves: on stories the loss goes from 5.8 to the dotted line of one token back, on shuffled tokens only to the dotted line of how common each token is.",
    caption="The same table, the same tokens. In their order it learns what follows what; in random order it learns only how common each token is.",
    table={"level": list(marks), "nats per token": [f"{level:.1f}" for level in marks.values()]},
)


# %% slide="skip"
def loss_on(rows: torch.Tensor, tokens: torch.Tensor) -> float:
    return next_token_loss(F.embedding(tokens[:-1], rows), tokens[1:]).item()


shuffled_new = new_ids[torch.randperm(len(new_ids), generator=torch.Generator().manual_seed(4))]

# %% evidence="bigram-table"
on_new, on_shuffled = loss_on(table, new_ids), loss_on(shuffled_table, shuffled_new)
print(f"stories:  end of training {learned(end, 1.9, 2.3)}, new text {learned(on_new, 1.9, 2.3)}")
print(f"shuffled: end of training {learned(shuffled_end, 4.7, 5.1)}, new text {learned(on_shuffled, 5.1, 5.8)}")
assert abs(on_new - levels.bigram) < 0.15 and on_shuffled > levels.unigram - 0.05

# %% [markdown]
# From stories the table has learned nearly all that the token before says about the next one. From shuffled tokens there is nothing of this kind to learn. [[bigram-table]] (The loss there even falls slightly below the dotted line, but on new text it is far above it, mostly because the table has memorized pairs that came by chance.)

# %% [markdown] slide="subslide"
# Let the table write: draw a token from the probabilities, look up the row of that token, and repeat.


# %%
def write(temperature: float, n_tokens: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    written = [tokenizer.encode("\n")[0]]
    for _ in range(n_tokens):
        next_probs = layers.softmax(table[written[-1]] / temperature, dim=0)  # (V)
        written.append(torch.multinomial(next_probs, 1, generator=generator).item())
    return torch.tensor(written)  # (T)


# %% slide="skip"
counts = torch.zeros(V, V).index_put_((train_ids[:-1], train_ids[1:]), torch.ones(len(train_ids) - 1), accumulate=True)

# %% evidence="table-writes" slide="subslide"
from tinylm_classroom import show_text

n_new, texts = {}, {}
for temperature in (0.3, 1, 3):
    written = write(temperature)
    n_new[temperature] = (counts[written[:-1], written[1:]] == 0).sum().item()
    label = f"temperature {temperature}: {n_new[temperature]} of 32 pairs are not in the training stories"
    texts[label] = tokenizer.decode(written.tolist())
show_text(texts)
assert n_new[0.3] == 0 and n_new[1] <= 2 and n_new[3] > 10

# %% [markdown]
# At temperature 1 nearly all pairs of neighbours are right, but the story has no thread, because the table forgets everything except the last token. A better model has to look further back, and ours will do it with **attention** (lesson 05). At temperature 3 even the pairs are wrong. [[table-writes]]

# %% [markdown] slide="subslide"
# ### Learning or counting?
# Could we simply *count* pairs? The gradient has the answer. The row of *He* gets $p - y$ each time *He* was read. The sum of these is 0 if $p$ is the mean of all $y$, which is the **counted fraction** of each token after *He*.

# %% slide="skip"
counted = counts / counts.sum(-1, keepdim=True)  # (V, V)
he = tokenizer.encode(" He")[0]
after_he = counted[he].topk(5).indices

# %%
print("after He    counted  learned")
for token in after_he.tolist():
    by_table = layers.softmax(table[he], dim=0)[token].item()
    print(f"{tokenizer.decode([token]).strip():>8} {counted[he, token]:10.2f}  {learned(by_table, 0.05, 0.6)}")

# %% evidence="gradient-of-counting"
gradients = {}
for name, start in {"counted": (counted + 1e-12).log(), "learned": table, "zeros": torch.zeros(V, V)}.items():
    leaf = start.clone().requires_grad_()
    losses = leaf.logsumexp(-1, keepdim=True) - leaf  # (V, V): the loss of each pair
    loss = (counts * losses).sum() / counts.sum()  # each pair as often as it occurs
    loss.backward()
    gradients[name] = leaf.grad.abs().max().item()
    print(f"{name:<8} loss on the training stories {loss.item():.1f}, largest gradient {gradients[name]:.3f}")
    assert loss >= -(counts * (counted + 1e-12).log()).sum() / counts.sum() - 1e-5
assert gradients["counted"] < 1e-6 and gradients["counted"] < gradients["learned"] < gradients["zeros"] / 5

# %% evidence="unseen-pairs"
new_probs = counted[new_ids[:-1], new_ids[1:]]
print(f"new stories: {(new_probs == 0).sum()} of {len(new_probs):,} pairs were never counted")
print(f"loss on all pairs: counted {-new_probs.log().mean():.1f}, learned {learned(on_new, 1.9, 2.3)} nats per token")
assert new_probs.min() == 0 and math.isfinite(on_new)

# %% [markdown]
# On the training text no table is better than the counted one: its gradient is 0, and this loss has only one valley. [[gradient-of-counting]] But a pair that was never counted has the probability 0, and a single one of them makes the loss of a whole corpus infinite. The learned table gives such pairs a low probability, so its loss stays finite. [[unseen-pairs]]

# %% [markdown] slide="say"
# (Counting can be repaired by adding a little to each count, *smoothing*. But counting works only after short beginnings: most long ones occur only once, so there is nothing to count after them. A model that learns can use what they have in common.)

# %% [markdown] tags=["note"]
# **Say.** In section 5 we took the loss of one word. One word does not show whether a probability was good. So we take the mean over everything that can come, and find that it splits into two parts.
#
# **Draw.** Two words, 0.5 and 0.5. Let the room bet 0.6 and 0.4, and add up the losses of ten stories in which each word comes five times. Draw the valley before you show the figure.
#
# **Ask.** "The model gave Carlos more than the exact 0.5, and Carlos came. Was that good?"
#
# **Usual answers.**
# - *Yes, its loss was lower than with 0.5* (from the room): This time. How much is its loss if Jamal comes?
# - *Put everything on one of them* (`1.0`): Half of the time the other one comes. What is the loss of a probability of 0?
# - *It makes no difference, on average it cancels* (`no matter which`): From 0.5 to 0.6 the loss of the one falls less than that of the other one rises.
# - *The divergence is a distance* (from the room): Exchange p and q for *nearly certain*, and another number comes out.
#
# **Cut if short.** The three random distributions, and the gradient at the end.

# %% [markdown] slide="slide" plan=80
# ## 7. What do wrong probabilities add?
# Earlier in the same story, two people have met. Who acts next?

# %% slide="skip"
meeting = story_text[: story_text.index(" Carlos sang")]
meeting_ids = torch.tensor([tokenizer.encode("\n" + meeting)])  # (B, T)
with torch.no_grad():
    act_scores = model(meeting_ids)[0, -1]  # (V)
    act_blind = model(meeting_ids[:, 1:])[0, -1]  # (V): without the line end
act_reader = storyworld.Reader()
for word in storyworld.words(meeting):
    act_reader.read(word)
q = torch.zeros(V)
for word, p in act_reader.next_word_probs().items():
    q[tokenizer.ids[word]] = p
who = torch.tensor(tokenizer.encode(" Carlos Jamal"))

# %%
print("...", meeting[meeting.index("A gardener") :])
for token in who.tolist():
    model_p = layers.softmax(act_scores, dim=0)[token].item()
    losses_here = f"loss {-math.log(model_p):.2f} nats, and {-q[token].log():.2f} with the exact one"
    print(f"{tokenizer.decode([token]).strip():>7}: exact {q[token]:.3f}, model {model_p:.3f}: {losses_here}")

# %% [markdown]
# Both are equally likely, but the model prefers Carlos. Carlos came, so its loss was lower than that of the exact probability. With Jamal it would have been higher, and by more. One word does not show how good a probability is.

# %% [markdown] slide="subslide"
# We need the **mean loss** over everything that can come. Let $q_i$ be the exact probability of token $i$, and $p_i$ that of the model. Token $i$ comes with probability $q_i$, and then the loss is $-\ln p_i$. So the mean loss is
#
# $$-\sum_i q_i \ln p_i$$


# %% slide="skip"
def mean_loss(row: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (q * (row.logsumexp(0) - row)).sum()  # (V), (V) -> ()


first_probs = torch.arange(1, 100) / 100  # (99): what a model gives to the first of two words


def two_words(exact_first: float) -> torch.Tensor:
    return -(exact_first * first_probs.log() + (1 - exact_first) * (1 - first_probs).log())  # (99)


# %% tags=["source-hidden"]
predict(
    "Carlos and Jamal are equally likely. Which probability for Carlos (the rest goes to Jamal) has the lowest mean loss?",
    key=lambda: f"{first_probs[two_words(0.5).argmin()]:.1f}",
    choices={
        "1.0": "Half of the time Jamal comes, and a probability of 0 has an infinite loss.",
        "0.5": "",
        "no matter which": "From 0.5 to 0.6 the loss of Carlos falls by 0.18. By how much does that of Jamal rise?",
    },
    because="The loss of the word that loses probability rises more than the other one falls (0.22 and 0.18 for a step from 0.5 to 0.6), and both come equally often.",
)

# %% evidence="lowest-at-the-truth" slide="subslide"
for exact_first in (0.1, 0.5, 0.7):
    valley = two_words(exact_first)
    lowest_at = first_probs[valley.argmin()].item()
    print(f"exact probability {exact_first}: lowest mean loss {valley.min():.3f}, at {lowest_at:.2f}")
    assert abs(lowest_at - exact_first) < 1e-6

# %% [markdown]
# The lowest mean loss is at the exact probability, wherever that is.

# %% [markdown] slide="say"
# Does this hold for more than two words? We draw three random distributions of 345 words, and for each of them three times 1,000 wrong ones, the first 1,000 only slightly wrong (in fp64, because fp32 rounds such small differences away).

# %% evidence="lowest-for-many" slide="skip"
n_tried = n_lower = 0
for seed in range(3):
    generator = torch.Generator().manual_seed(seed)
    true_scores = 3 * torch.randn(345, generator=generator, dtype=torch.float64)  # (V)
    true_probs = layers.softmax(true_scores, dim=0)
    for size in (0.01, 1, 3):
        tried = true_scores + size * torch.randn(1000, 345, generator=generator, dtype=torch.float64)  # (1000, V)
        tried_losses = ((tried.logsumexp(-1, keepdim=True) - tried) * true_probs).sum(-1)  # (1000)
        n_tried += len(tried)
        n_lower += (tried_losses < mean_loss(true_scores, true_probs)).sum().item()
print(f"{n_lower} of {n_tried:,} wrong distributions have a lower mean loss than the exact one")
assert n_lower == 0

# %% [markdown] slide="subslide"
# Now our story, with four distributions: the exact one, that of the model, that of the model if it does not see the line end, which began every text in its training, and one that is nearly certain of Carlos.

# %% slide="skip"
certain = torch.full((V,), 1e-12).index_copy(0, who, torch.tensor([0.99, 0.01]))  # (V)
opinions = {
    "exact": (q + 1e-12).log(),
    "the model": act_scores,
    "no line end": act_blind,
    "nearly certain": certain.log(),
}

# %% evidence="entropy-and-divergence"
entropy = -(q[who] * q[who].log()).sum()
points = {}
print("                Carlos  Jamal   mean loss = entropy + KL divergence")
for name, row in opinions.items():
    p = layers.softmax(row, dim=0)  # (V)
    divergence = (q[who] * (q[who] / p[who]).log()).sum()
    mean = mean_loss(row, q)
    torch.testing.assert_close(mean, entropy + divergence, rtol=1e-4, atol=1e-5)
    print(f"{name:<15} {p[who[0]]:.3f}   {p[who[1]]:.3f}   {mean:.3f}     = {entropy:.3f}   + {fixed(divergence, 3)}")
    points[name] = (p[who[0]].item(), mean.item())
assert points["exact"][1] < points["the model"][1] - 0.01 < points["no line end"][1] < points["nearly certain"][1]

# %% [markdown] slide="subslide"
# The mean loss has two parts:
#
# $$-\sum_i q_i \ln p_i = -\sum_i q_i \ln q_i + \sum_i q_i \ln \frac{q_i}{p_i}$$
#
# **Cross-entropy = entropy + KL divergence.** The *entropy* is the mean loss of the exact probabilities, and no model has a lower one: it is the floor of lesson 00. The *Kullback-Leibler divergence* is what wrong probabilities add: 0.032 nats for our model at this word. It is 0 if the probabilities are exact. [[entropy-and-divergence]]

# %% [markdown] slide="say"
# The mean over a batch in section 5 has the same name, because over many texts it comes close to the left side. For ordinary text nobody knows $q$, so only the left side can be measured.

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10, 5.6), layout="constrained")
for exact_first in (0.5, 0.7):
    ax.plot(first_probs, two_words(exact_first), label=f"exact probability {exact_first}")
label_at = {"exact": (0.3, 0.45), "the model": (0.5, 1.0), "no line end": (0.0, 0.62), "nearly certain": (0.62, 2.0)}
for (name, (across, up)), marker in zip(points.items(), "osDv", strict=True):
    ax.plot(across, up, marker, color=figures.INK, markersize=11)
    line = {"arrowstyle": "-", "color": figures.QUIET}
    ax.annotate(f"{name} {up:.3f}", (across, up), label_at[name], size=18, arrowprops=line)
ax.set(
    title="Lowest at the exact probability",
    xlabel="probability given to Carlos",
    ylabel="mean loss (nats)",
    ylim=(0.3, 2.6),
)
ax.legend(frameon=False, loc="upper center", fontsize=18)
figures.display(
    fig,
    alt="The mean loss over the probability given to Carlos is a valley. If his exact probability is 0.5, its lowest point is at 0.5; if it is 0.7, at 0.7. The model is near the bottom, and without the line end it is far up the side.",
    caption="Each valley is lowest at the exact probability. The model is near the bottom of its valley; without the line end, which it always saw in training, it is far up the side.",
    table={"distribution": list(points), "Carlos": [across for across, _ in points.values()], "mean loss": [up for _, up in points.values()]},
)  # fmt: skip

# %% [markdown] slide="subslide"
# Does training move towards the bottom? For one target the gradient was $p - y$. Its mean over everything that can come is $p - q$:

# %% evidence="zero-at-the-truth"
for name, row in opinions.items():
    leaf = row.clone().requires_grad_()
    mean_loss(leaf, q).backward()
    torch.testing.assert_close(leaf.grad, layers.softmax(row, dim=0) - q, rtol=0, atol=1e-5)
    carlos, jamal = leaf.grad[who].tolist()
    print(f"{name:<15} gradient {fixed(carlos, 2):>5} for Carlos, {fixed(jamal, 2):>5} for Jamal")
    assert (leaf.grad.abs().max() < 1e-5) == (name == "exact")
    assert mean_loss(row - 0.1 * leaf.grad, q) < mean_loss(row, q) or name == "exact"

# %% [markdown]
# The gradient is 0 only for the exact probabilities, and for the other three a small step against it lowers the mean loss. [[zero-at-the-truth]] This does not mean that training arrives there: after all of its training our model still gives Carlos 0.615.

# %% [markdown] tags=["note"]
# **Say.** A very common mistake: the model ends with a softmax, and the loss applies another one. All shapes fit, and the first loss looks right.
#
# **Draw.** Three bars 1, 0, 0: perfect probabilities. Apply softmax to them: the first bar shrinks to less than a tenth if there are 32 tokens.
#
# **Ask.** "How would you notice it?" (The loss stays high although the answers are right.)
#
# **Usual answers.**
# - *0: it is perfect* (`0`): The second softmax sees a 1 and 31 zeros. How much do these scores differ?
# - *ln V* (`3.47`): That is the loss of equal probabilities. Ours differ a little.
# - *Only the loss is wrong, the model learns as well as before* (from the room): Start from random scores and count the right answers.
#
# **Cut if short.** The random start; say its result.

# %% [markdown] slide="slide" plan=80
# ## 8. Break it: softmax twice
# Suppose that the last line of a model is a softmax. `next_token_loss` takes its probabilities for scores and applies softmax again. No error is raised, because the shapes fit. What is the lowest loss that such a model can reach?

# %% slide="skip"
perfect = torch.zeros(32)
perfect[7] = 1.0  # all probability on the right one of 32 tokens

# %% tags=["source-hidden"]
predict(
    "There are 32 tokens, and the model gives the right one a probability of exactly 1. What is its loss if softmax is applied twice?",
    key=lambda: loss_of(perfect, 7).item(),
    number="nats",
    within=0.2,
    feedback={
        0: "The second softmax sees a 1 and 31 zeros. How much do these scores differ?",
        math.log(32): "That is the loss of equal probabilities. Nearly, but here they differ a little.",
    },
    because="The right token gets e of e + 31 parts, so the loss is ln(e + 32 - 1) - 1.",
)

# %% [markdown] slide="subslide"
# So there is a lower limit, $\ln(e + V - 1) - 1$. Let a model run into it: a table of 32 rows, which starts at 0 and learns a fixed rule (after token $t$ comes the remainder of $5t + 3$ divided by 32).


# %% slide="skip"
def learn_rule(twice: bool, start: torch.Tensor) -> tuple[list[float], float]:
    """Returns the losses of 200 updates and the fraction of right answers after them."""
    follows, rows, losses = (5 * torch.arange(32) + 3) % 32, start, []  # (32), (32, 32)
    # ESSENTIAL
    for _ in range(201):
        rows = rows.detach().requires_grad_()
        out = layers.softmax(rows, dim=-1) if twice else rows  # (32, 32)
        loss = next_token_loss(out, follows)
        losses.append(loss.item())
        loss.backward()
        rows = rows - 30 * rows.grad
    # END
    return losses, (rows.argmax(-1) == follows).float().mean().item()


# %% evidence="softmax-twice"
once, right_once = learn_rule(twice=False, start=torch.zeros(32, 32))
double, right_double = learn_rule(twice=True, start=torch.zeros(32, 32))
limit = math.log(math.e + 32 - 1) - 1
assert math.isclose(loss_of(perfect, 7).item(), limit, abs_tol=1e-5)
assert right_once == right_double == 1 and once[-1] < 0.1 and limit <= min(double) + 1e-4
print(f"softmax once:  loss {once[-1]:.2f}, {right_once:.0%} right")
print(f"softmax twice: loss {double[-1]:.2f}, {right_double:.0%} right, limit {limit:.2f}")

# %% slide="subslide" tags=["source-hidden"]
fig, ax = plt.subplots(figsize=(9.6, 5.2), layout="constrained")
ax.plot(once, label="softmax once")
ax.plot(double, label="softmax twice")
ax.axhline(limit, color=figures.QUIET, linewidth=1.6, linestyle=":")
ax.text(200, limit - 0.1, "limit", color=figures.QUIET, ha="right", va="top", size=17)
ax.set(title="Right every time, and stuck", xlabel="update", ylabel="loss (nats)", ylim=(0, 3.7))
ax.legend(frameon=False, loc=(0.62, 0.3), fontsize=18)
figures.display(
    fig,
    alt="Two falling curves: with softmax once the loss goes to 0, with softmax twice it stops at the dotted line at 2.52.",
    caption="From a table of zeros both learn every answer, but with softmax twice the loss cannot go below its limit.",
    table={"update": [0, 50, 100, 200], "once": [once[i] for i in (0, 50, 100, 200)], "twice": [double[i] for i in (0, 50, 100, 200)]},
    digits=2,
)  # fmt: skip

# %% [markdown] slide="subslide"
# Both learned every answer, but only because all probabilities were equal at the start. What happens from random scores?

# %% evidence="softmax-twice-random"
for deviation in (1, 3):
    right = {False: [], True: []}
    for seed in range(3):
        start = deviation * torch.randn(32, 32, generator=torch.Generator().manual_seed(seed))  # (32, 32)
        for twice in right:
            right[twice].append(100 * learn_rule(twice, start)[1])
    mean_once, mean_twice = sum(right[False]) / 3, sum(right[True]) / 3
    percent = learned(mean_twice, 85, 99) if deviation == 1 else learned(mean_twice, 15, 60)
    print(f"random scores, standard deviation {deviation}: once {mean_once:.0f} % right, twice {percent} %")
    assert mean_once == 100 and max(right[True]) < (100 if deviation == 1 else 70)

# %% [markdown]
# With softmax once the table still learns every answer. With softmax twice it does not, in the same number of updates: on its way back through the first softmax the gradient is multiplied by the probabilities, so it vanishes where the right token has a probability near 0. [[softmax-twice-random]]

# %% [markdown] slide="subslide"
# A larger vocabulary does not help: the limit is always less than 1 nat below the $\ln V$ of knowing nothing.

# %%
for size in (32, 1_000, 10_000, 100_000):
    lowest = math.log(math.e + size - 1) - 1
    print(f"V = {size:>7,}: ln V {math.log(size):5.2f}, limit {lowest:5.2f}")
    assert math.log(size) - 1 < lowest < math.log(size)

# %% [markdown]
# So **a model returns scores**. Apply softmax only where probabilities are needed: in the loss, which has it built in, and when a token is drawn. [[softmax-twice-random]]

# %% [markdown] tags=["note"]
# **Say.** Here is what you need when you train a model of your own: what the number formats can hold, and which loss a new model should have before its first update.
#
# **Draw.** A bell curve of scores, and above it the exponential: a few scores at the right make most of the sum.
#
# **Ask.** Before the prediction: "Your new model has a first loss of 12, and ln V is 9.2. What do you look at?" (The standard deviation of its scores.)
#
# **Usual answers.**
# - *Exactly ln V, because it knows nothing* (`9.21`): Are the probabilities of random weights all equal?
# - *Less, because some guesses are right by luck* (`less than 9.21`): The tokens are random. Which distribution has the lowest mean loss?
# - *A first loss below ln V shows that the model knows something* (from the room): How much does the loss differ from batch to batch?
#
# **Cut if short.** All of it; the students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 9. For engineers
# Three topics, which you can read in any order: what the number formats can hold, a mistake with the shape of the targets, and what the first loss of a new model should be.
#
# ### What the formats can hold
# fp32 uses 32 bits for a number and keeps about seven digits. fp16 and bf16 use 16 bits: fp16 ends at 65,504, and bf16 has the range of fp32 with only two to three digits.

# %%
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    most = torch.finfo(dtype).max
    print(f"{str(dtype)[6:]:>8} ends at {most:.5g}: exp overflows above {math.log(most):.2f}")
print(f"the largest score of our model: {scores.max():.1f} in section 1, {act_scores.max():.1f} in section 7")
assert scores.max() < math.log(torch.finfo(torch.float16).max) < act_scores.max()

# %% evidence="fp16-sum"
equal_scores = torch.zeros(70_000)
in_fp16 = layers.softmax(equal_scores.half(), dim=0).max().item()
in_fp32 = layers.softmax(equal_scores, dim=0).max().item()
print(f"70,000 equal scores: probability {in_fp16:.0f} in fp16, {in_fp32:.1e} in fp32")
far_away = layers.softmax(torch.tensor([100.0, 101.0, 102.0]) + 1e9, dim=0)
print("100, 101 and 102 plus 1e9:", far_away)
assert in_fp16 == 0 and math.isclose(in_fp32, 1 / 70_000, rel_tol=1e-4)
assert far_away.allclose(torch.tensor(1 / 3))

# %% [markdown]
# In fp16 an exponential overflows above 11.09, and some scores of our model, such as the largest one of section 7, are larger. Even with the maximum subtracted, the *sum* of more than 65,504 terms can overflow in fp16. And "only differences count" ends where the format can no longer hold the differences: after adding a billion, the three scores are the same number. So softmax is usually computed in fp32 (Micikevicius et al. 2018). [[fp16-sum]]

# %% [markdown] slide="subslide"
# Rounding also decides whether probabilities sum to exactly 1:

# %% slide="skip"
from tinylm_classroom import measured

# %% rows=["S0-15"]
many_rows = layers.softmax(torch.randn(10_000, 50, generator=torch.Generator().manual_seed(3)), dim=-1)
sums = many_rows.sum(-1)  # (10000)
print(measured(100 * (sums == 1).float().mean().item(), "% of the rows sum to exactly 1", 5, 100))
assert (sums - 1).abs().max() < 1e-6 and (sums != 1).any()

# %% [markdown]
# They do only nearly. Each probability is rounded, so a sum of them can be wrong by a few units in the last digit. Compare with a tolerance, with `assert_close`, and never with `==`.

# %% [markdown] slide="subslide"
# ### Flat targets
# `next_token_loss` flattens its targets with `flatten`. A common mistake is `targets.view(-1)`, which fails for a slice, because its rows are not next to each other in memory (lesson 02):

# %% tags=["raises-exception"] rows=["S4-22"]
two_texts = torch.cat((story_ids, story_ids))
two_texts[:, 1:].view(-1)

# %% [markdown] slide="subslide"
# ### What should the first loss be?
# Before you train a new model, compute its loss. If it is far from what it should be, look for the reason first. Here are three untrained models with a vocabulary of 10,000 that read random tokens.

# %% slide="skip"
from tinylm_lib import TransformerLM, preset


def first_scores(**changes) -> tuple[torch.Tensor, torch.Tensor]:
    """The scores (24, 64, 10000) of three untrained models for random tokens, and the targets (24, 64)."""
    logits, targets = [], []
    for seed in range(3):
        torch.manual_seed(seed)
        untrained = TransformerLM(preset("modern", vocab_size=10_000, **changes)).eval()
        tokens = torch.randint(10_000, (8, 65))  # (B, T + 1)
        with torch.no_grad():
            logits.append(untrained(tokens[:, :-1]))  # (B, T, V)
        targets.append(tokens[:, 1:])
    return torch.cat(logits), torch.cat(targets)


uniform = math.log(10_000)
first_logits, first_targets = first_scores()
first_loss, spread = next_token_loss(first_logits, first_targets).item(), first_logits.std().item()

# %% tags=["source-hidden"]
predict(
    "If all 10,000 tokens had the same probability, the loss would be ln 10,000 = 9.21 nats. What is the mean loss of these models?",
    key=lambda: "more than 9.21" if first_loss > uniform + 0.1 else "9.21",
    choices={
        "less than 9.21": "The tokens are random, so the exact probabilities are all equal. Which distribution has the lowest mean loss?",
        "9.21": "That is the loss of equal probabilities. Are those of random weights equal?",
        "more than 9.21": "",
    },
    because="The exact probabilities are all equal and those of a model are not, so a KL divergence is added to 9.21.",
)

# %% slide="subslide"
print(f"ln V {uniform:.2f}, first loss {first_loss:.2f}")
print(f"standard deviation of the scores {spread:.2f}; ln V + half its square {uniform + spread**2 / 2:.2f}")
assert abs(first_loss - (uniform + spread**2 / 2)) < 0.05

# %% [markdown]
# The rule is $\ln V + \sigma^2/2$, where $\sigma$ is the standard deviation of the scores. The loss is log-sum-exp minus the target's score, and this score is 0 on average before training. And the mean of $e^x$ over normally distributed $x$ is $e^{\sigma^2/2}$, so the sum is about $V e^{\sigma^2/2}$, and its logarithm is the rule.

# %% [markdown] slide="subslide"
# Does it hold for any $\sigma$? We multiply the scores by a factor. Other models use one table for its embedding and its output layer (**tied** embeddings, lesson 10).


# %% slide="skip"
def found_and_rule(logits: torch.Tensor, targets: torch.Tensor) -> tuple[float, float, float]:
    sigma = logits.std().item()
    return sigma, next_token_loss(logits, targets).item(), uniform + sigma**2 / 2


tied_logits, tied_targets = first_scores(tie_embeddings=True)

# %% evidence="first-loss"
for factor in (0.25, 1, 2, 3, 4, 5, 8):
    sigma, found, rule = found_and_rule(factor * first_logits, first_targets)
    ten_largest = layers.softmax(factor * first_logits[0], dim=-1).topk(10).values.sum(-1).mean().item()
    print(f"untied, sigma {sigma:.1f}: loss {found:4.1f}, rule {rule:4.1f}; ten largest: {ten_largest:3.0%} of the sum")
    assert abs(found - rule) < 0.2 or sigma > 3.1
assert found < rule - 5 and ten_largest > 0.5

# %% evidence="first-loss-tied" slide="subslide"
for factor in (1, 5):
    sigma, found, rule = found_and_rule(factor * tied_logits, tied_targets)
    print(f"tied, sigma {sigma:.1f}: loss {found:4.1f}, rule {rule:4.1f}")
    assert (abs(found - rule) < 0.1) if factor == 1 else (found > rule + 1)

# %% [markdown]
# Up to $\sigma = 3$ the rule holds for the untied models. Above that the loss falls behind it, by more than a nat at about 5: the larger $\sigma$, the fewer scores make up the sum. At 7.9 ten of 10,000 scores are nearly all of it, and an average over so few is not reliable. [[first-loss]] The rule assumes that the scores are nearly normal and do not depend on the target. In a tied model the token that was just read has a much higher score than all others, so with larger scores the rule is too low. [[first-loss-tied]]

# %% [markdown] slide="subslide"
# Suppose that your first batch has a loss of 9.1634, which is below $\ln V$ = 9.21. Does the model know something before its training? We build three models of that size and measure many small batches of random tokens.

# %% rows=["S2-14"] evidence="first-loss-noise"
seen, first_losses = 9.1634, []
# ESSENTIAL
for seed in (3, 4, 5):
    _ = torch.manual_seed(seed)
    small = TransformerLM(preset("gpt", vocab_size=10_000)).eval()
    random_texts = torch.randint(10_000, (120, 16))  # 60 batches of two texts
    with torch.no_grad():
        small_logits = small(random_texts[:, :-1])  # (120, 15, V)
    # END
    pairs = range(0, 120, 2)
    batches = [next_token_loss(small_logits[i : i + 2], random_texts[i : i + 2, 1:]).item() for i in pairs]
    mean_of_60 = sum(batches) / 60
    # ESSENTIAL
    print(f"60 batches of 30 targets: {min(batches):.2f} to {max(batches):.2f}, mean {mean_of_60:.2f}")
    # END
    assert uniform < mean_of_60 < uniform + 0.1
    first_losses += batches
n_below = sum(loss < seen for loss in first_losses)
print(f"{n_below} of {len(first_losses)} batches are below {seen}")
assert 1 <= n_below < 0.2 * len(first_losses)

# %% [markdown]
# The value 9.1634 is low, but within the noise: some batches of these models are even lower, although nothing can be known about random tokens. The mean is slightly *above* $\ln V$. [[first-loss-noise]]

# %% [markdown] tags=["note"]
# **Say.** Scores become probabilities, a probability becomes a loss, and the gradient of the loss is the probabilities minus what came. The first three points are from sections 1 to 5, the fourth is from section 6, and the last three are from sections 7 to 9: say only those whose section you taught.
#
# **Draw.** Once more three bars of probabilities and the arrows of $p - y$.
#
# **Ask.** At the door: "Why does a model return scores, and not probabilities?"
#
# **Usual answers.**
# - *Because the loss has softmax built in* (from the room): Yes, and because the logarithm of softmax can be computed without overflow only from the scores.
# - *Because temperature needs them* (from the room): Also true. Could you compute the probabilities at another temperature from the probabilities? (Yes, except for those that have become 0.)
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - Softmax takes the exponential of each score and divides it by the sum of all, along one axis. [[along-one-axis]] Only differences of scores count [[only-differences]], and the softmax of two scores is a sigmoid. [[sigmoid]] The temperature makes the differences larger or smaller and never changes the order. [[temperature]]
# - Subtracting the maximum changes no probability, and it prevents the overflow in fp32; the mean would not. [[maximum-subtracted]]
# - The loss of a target is log-sum-exp minus its score [[log-sum-exp]], and its gradient is $p - y$. [[p-minus-y]] The loss of a batch is one mean over all real targets. [[real-targets]]
# - A table trained with this loss learns what the token before says about the next one, and writes. [[bigram-table]] On its training text nothing is better than the counted fractions [[gradient-of-counting]], but they fail for pairs that were never counted. [[unseen-pairs]]
# - The mean loss is the entropy plus the KL divergence. [[entropy-and-divergence]] It is lowest if the probabilities are exact [[lowest-at-the-truth]] [[lowest-for-many]], and there its gradient is 0. [[zero-at-the-truth]]
# - A model returns scores. If softmax is applied twice, the loss stays above $\ln(e + V - 1) - 1$ even if every answer is right [[softmax-twice]], and from random scores our table learned fewer answers in the same number of updates. [[softmax-twice-random]]
# - For engineers: in fp16 even the sum can overflow. [[fp16-sum]] If the scores are nearly normal and independent of the target, the first loss is about $\ln V + \sigma^2/2$. [[first-loss]] In a tied model with larger scores it is higher. [[first-loss-tied]]
#
# Next, lesson 04: how the numbers inside the model keep one size.

# %% [markdown]
# ## Sources
# - Softmax: Bridle 1990, *Probabilistic Interpretation of Feedforward Classification Network Outputs, with Relationships to Statistical Pattern Recognition*.
# - Overflow and the maximum: Goodfellow, Bengio and Courville 2016, [*Deep Learning*](https://www.deeplearningbook.org), section 4.1; softmax as an output, and why it is a soft argmax: section 6.2.2.3.
# - Temperature: Hinton, Vinyals and Dean 2015, [*Distilling the Knowledge in a Neural Network*](https://arxiv.org/abs/1503.02531), section 2, equation 1.
# - Entropy and cross-entropy: Goodfellow, Bengio and Courville 2016, section 3.13; the divergence: Kullback and Leibler 1951, *On Information and Sufficiency*.
# - Bigrams, counting and smoothing: Jurafsky and Martin, [*Speech and Language Processing*](https://web.stanford.edu/~jurafsky/slp3/), chapter 3.
# - In mixed precision, softmax and other sums are usually computed in fp32: Micikevicius et al. 2018, [*Mixed Precision Training*](https://arxiv.org/abs/1710.03740), section 3.3. Our `layers.softmax` computes in the dtype of x.
