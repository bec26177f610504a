# %% [markdown] slide="slide"
# # 11 Training
# **How does a model learn?**
#
# *Needs* lessons 03, 09 and 10. *Builds* `random_windows` in `data/windows.py`, the schedule in `training/optim.py`, by hand AdamW's rule, and explains `train` in `training/loop.py`.
# *Runs* in about 50 s on two cores. *Teaches* in about 63 minutes, plus 38 of exercises.

# %% [markdown] tags=["note"]
# The lesson as a whole. It has one picture (a story shaded by loss, section 1, and again in section 6) and one piece of code (the loop of section 4). If you have only ten minutes, show these two. Start the kernel and run all cells before the class: the real run of section 6 takes about half a minute. The shortest plan leaves out sections 7, 9 and 10 and has one exercise; the next adds sections 7 and 9 and two exercises; the longest adds section 10 and its two. Instead of a section that you leave out, say its result. Section 7: windows that were held out at random follow the training loss, so they hide overfitting. Section 9: a NaN begins in the forward pass, so look for the first bad output there. Section 10: with a schedule and clipping, our loop gives the same losses as the library's.

# %% slide="skip"
import math

import torch

from tinylm_lib import TransformerLM, next_token_loss, storyworld
from tinylm_classroom import check, figures, hint, keep, predict
from tinylm_lib.pretrained import load_pretrained

# %% [markdown] tags=["note"]
# **Say.** A text needs no labels: at every position the next token is the right answer. Do not explain the picture yet. Ask the prediction first, show the picture, and let the class find the reason for the dark words.
#
# **Draw.** The sentence *One warm evening , modest David* on the board, and below each word the word that the model should predict there. The column under the last word stays empty: a text of T tokens gives T - 1 targets.
#
# **Ask.** Which words of this story could you have predicted yourself? (Collect a few; do not say yet why.)
#
# **Usual answers.**
# - *The first word is the target of the last* (`wraps around`): nothing is known after the last token, so it is not an input.
# - *The targets are the words themselves* (`not shifted`): then copying would be enough, and the model would learn nothing about language.
# - *High both times: these words are rare* (`high both times`): rare words can be certain; what counts is what the model has read before them.
# - *Shift the rows* (`over the batch`): `ids` are (B, T), and a row is a text; the tokens of a text are along axis 1.
#
# **Cut if short.** The cell that compares one pass with nine; say its result.

# %% [markdown] slide="slide"
# ## 1. What must the model predict?
# A text has no labels, so where do the right answers come from? From the text itself: at each position the right answer, the **target**, is the next token. Here is a story, and two models of one architecture: one with random weights, one trained for thousands of updates (on other stories).

# %% slide="skip"
shipped = load_pretrained("storyworld")
tokenizer = shipped.tokenizer
V = tokenizer.vocab_size
trained = shipped.model.eval()
torch.manual_seed(11)
untrained = TransformerLM(trained.config).eval()

# %% rows=["S4-21"]
story = storyworld.story(torch.Generator().manual_seed(11))
ids = torch.tensor([tokenizer.encode("\n" + story.text)])  # (1, T)
words = [tokenizer.decode([token]).strip() or "(line end)" for token in ids[0].tolist()]
for i in range(4):
    print(f"reads {' '.join(words[: i + 1])} -> should predict {words[i + 1]}")

# %% [markdown]
# At each position the model gives a **probability** to every token of its vocabulary (lesson 03). The **loss** of one prediction is the **negative log-likelihood**: minus the logarithm of the probability that the target got, in nats. It is 0 if the model was certain and right.


# %% slide="skip"
def word_losses(model, ids):
    """The loss at each position of ids (1, T) that has a target, in nats."""
    with torch.no_grad():
        log_probs = model(ids).log_softmax(-1)  # (1, T) -> (1, T, V)
    return [-log_probs[0, i, ids[0, i + 1]].item() for i in range(ids.shape[1] - 1)]


# %% slide="skip"
before = word_losses(untrained, ids)
after = word_losses(trained, ids)

# %% tags=["source-hidden"] slide="skip"
quotes = [i for i, word in enumerate(words[1:]) if word in ("Busy", "trees", "listen", "indoors")]
first_time = sum(after[i] for i in quotes[:4]) / 4
second_time = sum(after[i] for i in quotes[4:]) / 4

# %% tags=["source-hidden"]
predict(
    "In this story somebody says 'Busy trees listen indoors', and somebody thinks of it later. What is the trained model's loss on these four words, the first and the second time?",
    key=lambda: "high, then near 0" if first_time > 2 and second_time < 0.1 else "something else",
    choices={
        "high both times": "Rare words are not always surprising: what did the model read before them?",
        "high, then near 0": "",
        "near 0 both times": "It never saw this story. How could it know what David is about to say?",
    },
    because="The first time nothing in the story determines the words; the second time they are a quotation.",
)

# %% tags=["signature", "source-hidden"] slide="subslide"
figures.shaded_words(
    words[1:],
    {"before training": before, "after training": after},
    title="One story, each word shaded by its loss",
    caption="The darker a word, the higher its loss, up to 6 nats. Before training every word is a surprise. After training only those words stay dark that nothing before them determines.",
    limit=6,
)

# %% slide="skip" evidence="story-shaded"
determined = [loss for loss, kind in zip(after, story.kinds, strict=True) if kind]
assert sum(determined) / len(determined) < 0.3 and min(before) > 3 and first_time > 2
print(f"mean loss before training {sum(before) / len(before):.1f}, after training {sum(after) / len(after):.1f} nats")
print(
    f"after training, on the {len(determined)} words that must be looked up: {sum(determined) / len(determined):.1f} nats"
)

# %% [markdown] slide="subslide"
# Training has removed the surprise where the story determines the next word: a place, the silver cup, even a whole quotation. [[story-shaded]] Words that the story picks at random still have a loss. How does a model get from the upper picture to the lower one?

# %% [markdown]
# ### Your turn
# The targets are the inputs **shifted by one**.


# %% tags=["exercise"] name="next_token_pairs" minutes=3 difficulty=1
def next_token_pairs(ids):
    """ids (B, T), whole numbers, each row a text of its own. Returns inputs and targets, both (B, T - 1).

    At each position of the inputs the target is the token that follows it in the same row.
    """
    # SOLUTION
    return ids[:, :-1], ids[:, 1:]
    # END


# %% tags=["check"]
if check("next_token_pairs", next_token_pairs).passed:
    keep("next_token_pairs", next_token_pairs)

# %%
hint("next_token_pairs")

# %% [markdown] tags=["solution"]
# Two slices along the second axis: all but the last token, all but the first. Common mistakes: to slice the batch axis (`ids[1:]`); to use `roll`, which makes the first token the target of the last; to use the same slice twice.

# %% [markdown]
# Does the model have to run once for each target? The causal mask (lesson 05) lets each position see only its own past, so one pass should be enough:

# %% rows=["S4-24"] evidence="one-pass"
read = ids[:, :10]  # (1, 10)
with torch.no_grad():
    at_once = trained(read)  # (1, 10) -> (1, 10, V)
    one_by_one = [trained(read[:, : i + 1])[:, -1] for i in range(10)]
torch.testing.assert_close(at_once, torch.stack(one_by_one, dim=1), atol=1e-4, rtol=1e-4)
print("one pass over 10 tokens predicts the same as 10 passes, one for each position")

# %% [markdown]
# So in training one pass checks all predictions at once, while writing needs one pass for each new token. [[one-pass]]

# %% [markdown] slide="say"
# Without the mask the model could read each answer in its own input. (BERT sees both sides, so it hides the words that it has to predict: [Devlin et al. 2019](https://arxiv.org/abs/1810.04805).)

# %% [markdown] slide="subslide"
# The **loss** of a text is the mean over its positions. `next_token_loss` computes exactly this mean:

# %% rows=["S2-13"]
inputs, targets = ids[:, :-1], ids[:, 1:]
with torch.no_grad():
    loss = next_token_loss(trained(inputs), targets)
print(f"ids {tuple(ids.shape)}: inputs {tuple(inputs.shape)}, targets {tuple(targets.shape)}")
print(f"the mean of the losses by hand {sum(after) / len(after):.2f}, by next_token_loss {loss:.2f} nats per token")
assert math.isclose(loss, sum(after) / len(after), rel_tol=1e-4)

# %% [markdown] tags=["note"]
# **Say.** Hold out text before anything else happens. A batch is drawn at random, and its targets come with it.
#
# **Draw.** A line of 12 tokens with two overlapping windows of 5 (4 inputs and the last target) above it. After the prediction shade one as held out: most of it is inside the other one.
#
# **Ask.** How many windows of 4 inputs fit into 12 tokens? (8: the last target needs a token, too.)
#
# **Usual answers.**
# - *9 starts* (`one too far`): the last target must be inside the text, too.
# - *7 starts* (`a start missing`): `randint` never draws its upper end, so the upper end itself must be the number of starts.
# - *Starts at multiples of seq_len* (`whole blocks`): then a token always has the same position in its window. Any start that leaves room is allowed.
# - *Draw x, then draw y* (`other windows`): the targets belong to the inputs, so draw once.
# - *90 % leak* (`90`): this is right for one window, but each token is in 33 of them.
#
# **Cut if short.** The exercise; show its solution and the trace.

# %% [markdown] slide="slide"
# ## 2. Batches, and text that is held out
# First we hold out some text for **validation**. The model never trains on it.

# %% slide="skip"
from tinylm_lib import preset
from tinylm_lib.data import split

# %%
stories = storyworld.corpus(3000, seed=0).splitlines(keepends=True)
training, held_out = split(stories, validation_share=0.1)  # the held-out stories are the last ones
train_ids = torch.tensor(tokenizer.encode("\n" + "".join(training)))
new_ids = torch.tensor(tokenizer.encode("".join(held_out)))
print(f"{len(training)} stories, {len(train_ids):,} tokens to train on, {len(held_out)} stories held out")

# %% [markdown]
# We train on **windows**: T = 32 tokens and, for the last target, one more, so 33 in all. Windows may start anywhere, so they overlap. Why not take all windows, shuffle them, and hold out a tenth of those?

# %% slide="skip"
T = 32
some = train_ids[:4000]
starts = torch.randperm(len(some) - T, generator=torch.Generator().manual_seed(1))
for_validation = starts[: len(starts) // 10]
for_training = starts[len(starts) // 10 :]

# %% slide="skip" evidence="shuffled-windows"
trained_on = torch.zeros(len(some), dtype=torch.bool)
trained_on[for_training[:, None] + torch.arange(T + 1)] = True
leaked = 100 * trained_on[for_validation[:, None] + torch.arange(T + 1)].float().mean().item()
assert leaked > 99

# %% tags=["source-hidden"]
predict(
    "A tenth of all windows is held out at random. How many % of the tokens in these windows are in a training window, too?",
    key=lambda: leaked,
    number="%",
    within=1,
    feedback={90: "That is the probability for one window. Each token is in many."},
    because="A token is in 33 windows, and all of them would have to be held out.",
)

# %%
print(f"shuffled: {leaked:.0f} % of the held-out tokens were trained on")

# %% [markdown]
# That is a **leak**, and section 7 shows how it misleads. The problem is not the shuffling but the overlap. So hold out whole stories, as we did: then no held-out token is in a training window. [[shuffled-windows]]

# %% [markdown] slide="subslide"
# ### Your turn
# A batch is B windows. They start **anywhere** that leaves room for seq_len tokens and one more, the last target. All randomness comes from the generator that is **given**, so that a run can be repeated.


# %% tags=["exercise"] name="random_windows" minutes=9 difficulty=2 plan=80
def random_windows(tokens, batch_size, seq_len, generator):
    """tokens (N,), whole numbers. Returns x and y, both (batch_size, seq_len), whole numbers.

    Each row of x is a piece of the text, and the row of y the same piece one token later.
    Each row draws its own start: any that leaves room for all of x and y, all equally likely.
    All randomness comes from the given `generator`, which is used as it is and not seeded again.
    """
    # SOLUTION
    starts = torch.randint(len(tokens) - seq_len, (batch_size, 1), generator=generator)
    windows = tokens[starts + torch.arange(seq_len + 1)]
    return windows[:, :-1], windows[:, 1:]
    # END


# %% tags=["check"]
if check("random_windows", random_windows).passed:
    keep("random_windows", random_windows)

# %%
hint("random_windows")

# %% [markdown] tags=["solution"]
# The starts run from 0 to N - seq_len - 1, and `randint` leaves out its upper end: N - seq_len. A column of starts plus a row of offsets is a table of positions. Common mistakes: one start too few or too many; x and y drawn separately; starts at multiples of seq_len only.

# %%
from tinylm_lib.data import random_windows as library_windows

numbered = torch.arange(100, 112)  # 12 tokens that show their position
x, y = library_windows(numbered, 200, 4, torch.Generator().manual_seed(1))  # (200, 4), (200, 4)
print("one row of x", x[0].tolist(), "and of y", y[0].tolist())
print("starts of 200 windows", x[:, 0].unique().tolist())

# %% [markdown] slide="subslide"
# Follow one batch from ids to logits, to a loss, and back to the gradient of one matrix. The way back, by the chain rule, is **backpropagation** (lesson 02).


# %% slide="skip"
def fresh(seed: int = 1, **sizes) -> TransformerLM:
    """A small model with new random weights."""
    torch.manual_seed(seed)
    return TransformerLM(preset("modern", vocab_size=V, **{"d_model": 48, **sizes}))


# %%
def one_batch(model, x, y):
    logits = model(x)  # (B, T) -> (B, T, V)
    losses = -logits.log_softmax(-1).gather(-1, y[..., None])  # (B, T, 1)
    loss = losses.mean()  # ()
    loss.backward()
    return model.lm_head.weight.grad  # (V, C)


# %% slide="subslide"
from tinylm_classroom import trace

x, y = library_windows(train_ids, 16, T, torch.Generator().manual_seed(5))  # (16, T), (16, T)
trace(one_batch, fresh(), x, y, sizes={"B": 16, "T": T, "C": 48})

# %% [markdown] tags=["note"]
# **Say.** The gradient gives a direction, the optimizer decides how far to go. Adam divides the size of the gradient away, so ask at once: what do small gradients still mean? The last cell of the section answers.
#
# **Draw.** A long, narrow valley seen from above, and in it a zigzag path. Then the two running means: m (which way?) and the root of v (how large usually?), and the step m / root of v.
#
# **Ask.** Plain steps with a rate of 0.07 diverge in this valley. Which direction is to blame, the long one or the narrow one? (The narrow one, so one rate for all directions is limited by the steepest.)
#
# **Usual answers.**
# - *By 10* (`by 10`): m is 100 times as large, but so is the root of v.
# - *By 5* (`by 5`): that is the plain step, lr times g.
# - *The decay is added to the gradient* (`coupled`): then it is divided by the root of v, too. That is Adam with L2, and its difference from AdamW is the W.
# - *The corrected means are returned* (`corrected moments kept`): the running means continue uncorrected; correct them only in the step.
# - *eps inside the root* (`eps inside`): the root of 1e-8 is 1e-4, so gradients below that would hardly move anything.
# - *The first step is tiny* (`no correction`): both means start at 0; divide by 1 - beta to the power of the step.
#
# **Cut if short.** The exercise (show its solution and the comparison with PyTorch), then the sentence on GPT-3.

# %% [markdown] slide="slide"
# ## 3. One step
# The **gradient** contains, for each parameter, how fast the loss changes with it. Here is one step for the model `gpt` of lesson 10, with random tokens and AdamW, the optimizer that most language models use:

# %% slide="skip"
torch.manual_seed(0)
gpt = TransformerLM(preset("gpt")).eval()
noise = torch.randint(10_000, (2, 16))  # (2, 16)
optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4)

# %% rows=["S2-15", "S2-16"]
loss = next_token_loss(gpt(noise[:, :-1]), noise[:, 1:])
loss.backward()
norm = torch.nn.utils.get_total_norm([p.grad for p in gpt.parameters()])
optimizer.step()
new_loss = next_token_loss(gpt(noise[:, :-1]), noise[:, 1:])
print(f"loss {loss:.2f}, gradient norm {norm:.1f}, loss after one step {new_loss:.2f}")

# %% [markdown] slide="say"
# (The **gradient norm** is the length of all gradients as one long vector.) GPT-3 read 300 billion tokens, 3.2 million at each step after a start with smaller batches, so it was trained with about 100,000 steps ([Brown et al. 2020](https://arxiv.org/abs/2005.14165)).

# %% [markdown] slide="subslide"
# The plain step is `w - lr * g` (lesson 02), with `lr` the **learning rate**. A loss with only two weights shows its weakness: a valley that is 30 times steeper in one direction than in the other.

# %% slide="skip"
import matplotlib.pyplot as plt

plt.style.use(figures.STYLE)


# %% slide="skip"
def height(at):
    return (at[0] ** 2 + 30 * at[1] ** 2) / 2


# %% slide="skip"
def descend(make_optimizer, updates=40):
    """All points of a way down from (-8, 1.5)."""
    at = torch.tensor([-8.0, 1.5], requires_grad=True)
    optimizer = make_optimizer([at])
    points = [at.tolist()]
    for _ in range(updates):
        optimizer.zero_grad()
        height(at).backward()
        optimizer.step()
        points.append(at.tolist())
    return points


# %%
ways = {
    "plain steps": descend(lambda weights: torch.optim.SGD(weights, lr=0.06)),
    "with momentum": descend(lambda weights: torch.optim.SGD(weights, lr=0.02, momentum=0.8)),
    "Adam": descend(lambda weights: torch.optim.Adam(weights, lr=0.3, betas=(0.8, 0.95))),
}

# %%
too_far = descend(lambda weights: torch.optim.SGD(weights, lr=0.07))
print(f"plain steps at 0.06 end {height(ways['plain steps'][-1]):.2f} above the bottom")
print(f"plain steps at 0.07 end {height(too_far[-1]) / 1000:.0f} thousand above it")

# %% tags=["source-hidden"] slide="subslide"
fig, axes = plt.subplots(3, 1, figsize=(8.6, 4.8), layout="constrained", sharex=True, sharey=True)
xs, ys = torch.linspace(-9, 2, 90), torch.linspace(-2, 2, 60)
ground = height(torch.meshgrid(xs, ys, indexing="xy"))
for ax, (name, points) in zip(axes, ways.items(), strict=True):
    ax.contour(xs, ys, ground.sqrt(), levels=9, colors="#b9c3cc", linewidths=1)
    ax.plot(*zip(*points, strict=True), marker="o", markersize=4, linewidth=1.6, linestyle="-")
    ax.plot(0, 0, marker="*", markersize=16, color="#b34700")
    ax.text(1.9, -1.7, name, ha="right")
axes[0].set(title="Three ways down a narrow valley", ylabel=" ")
axes[0].set_xlabel(" ", labelpad=-18)
axes[1].set(ylabel="second weight")
axes[2].set(xlabel="first weight")
figures.display(
    fig,
    alt="Three paths of 40 steps in a narrow valley. Plain steps jump from side to side and then creep along the valley; momentum and Adam reach the neighbourhood of the lowest point.",
    caption="40 steps to the star, each way with a rate found by trying. Plain steps jump from side to side and then creep: their rate cannot be much larger, because the steep direction limits it.",
    table={"way": list(ways), "height at the end": [float(height(points[-1])) for points in ways.values()]},
)

# %% [markdown] slide="subslide"
# **Momentum** steps along a fading sum of the gradients: what points from side to side cancels, and what points along the valley adds up. **Adam** also divides by the usual size of the gradient, separately for each weight, so steep and flat directions move at about the same pace ([Kingma and Ba 2015](https://arxiv.org/abs/1412.6980)). It keeps two running means, called *moments*: m of the gradient, v of its square, and steps by $m / \sqrt{v}$. For one weight, the first step is:

# %%
g, lr, beta1, beta2 = 0.5, 0.1, 0.9, 0.999
m = beta1 * 0 + (1 - beta1) * g
v = beta2 * 0 + (1 - beta2) * g**2
m_hat = m / (1 - beta1**1)
v_hat = v / (1 - beta2**1)
print(f"m {m:.3f}, v {v:.5f}; corrected: m {m_hat:.2f}, v {v_hat:.2f}; step {lr * m_hat / math.sqrt(v_hat):.2f}")

# %% [markdown] slide="say"
# Both means start at 0, so at first they are too small: m is a tenth of g. After $t$ steps the start still has the weight $\beta^t$, so divide by $1 - \beta^t$ (`m_hat`, `v_hat`). Steps count from 1.


# %% tags=["source-hidden"]
predict(
    "With lr 0.1 and a gradient of 0.5 the first step moves the weight by 0.1. How far does it move with a gradient of 50?",
    key=lambda: "by 0.1" if math.isclose(lr * 50 / math.sqrt(50**2), 0.1) else "by 10",
    choices={
        "by 10": "m is divided by the root of v, and both have grown.",
        "by 0.1": "",
        "by 5": "That is lr times g, the plain way.",
    },
    because="m is 100 times as large, and so is the root of v: at step 1 only the sign of the gradient counts.",
)

# %% [markdown] slide="subslide"
# The W in **AdamW** is *weight decay*: each weight also shrinks by a fraction of itself, and this has no part in m and v ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1711.05101)). The fraction is `lr * decay` in PyTorch and here.

# %% [markdown] slide="say"
# (In the paper's algorithm 2 only the schedule, not the learning rate itself, multiplies the decay.)

# %% [markdown] slide="subslide"
# ### Your turn
# With $g$ the gradient, $t$ the step, counted from 1, $\lambda$ the decay, and on the right the $w$ that came in:
#
# $$m \leftarrow \beta_1 m + (1-\beta_1)\,g \qquad v \leftarrow \beta_2 v + (1-\beta_2)\,g^2$$
#
# $$w \leftarrow w - \text{lr}\,\lambda\,w - \text{lr}\,\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}$$


# %% tags=["exercise"] name="adamw_step" minutes=12 difficulty=3 plan=80
def adamw_step(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    """param, grad, m, v (...) of one shape and dtype; step counts from 1. Returns the new param, m and v.

    The decay is a fraction of the param that came in. eps is added to the root, not inside it.
    m and v are returned without the correction. The arguments stay as they are.
    """
    # SOLUTION
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    size = (v / (1 - beta2**step)).sqrt() + eps
    param = param - lr * weight_decay * param - lr * m / (1 - beta1**step) / size
    return param, m, v
    # END


# %% tags=["check"]
if check("adamw_step", adamw_step).passed:
    keep("adamw_step", adamw_step)

# %%
hint("adamw_step")

# %% [markdown] tags=["solution"]
# Two running means, one correction each, one line for the weight. Common mistakes: to return the corrected means; eps inside the root; beta1 and beta2 exchanged, which never shows at the first step; the decay in the gradient.

# %% [markdown] slide="subslide"
# The same rule step by step, next to PyTorch's own optimizer:

# %% evidence="adamw-by-hand"
decay = 0.1
w, m, v = 1.0, 0.0, 0.0
weight = torch.tensor([1.0], requires_grad=True)
reference = torch.optim.AdamW([weight], lr=lr, betas=(beta1, beta2), eps=1e-8, weight_decay=decay)
for t, g in enumerate((0.5, 0.5, -0.2), start=1):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w = w - lr * decay * w - lr * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + 1e-8)
    weight.grad = torch.tensor([g])
    reference.step()
    print(f"step {t}: {w:.6f} by hand, {weight.item():.6f} by torch")
    assert abs(w - weight.item()) < 1e-6

# %% [markdown] slide="subslide"
# If Adam divides the size of a gradient away, do small gradients still matter? Four weights make 100 steps with lr 0.01, each with gradients of another kind:

# %%
kinds = {
    "always 1": torch.ones(100),
    "always 0.000001": torch.full((100,), 1e-6),
    "0.1, with noise of size 1": 0.1 + torch.randn(100, generator=torch.Generator().manual_seed(2)),
    "always 0.000000000001": torch.full((100,), 1e-12),
}

# %%
moved = {}
for kind, gradients in kinds.items():
    weight = torch.zeros(1, requires_grad=True)
    adam = torch.optim.Adam([weight], lr=0.01)
    for gradient in gradients:
        weight.grad = gradient[None]
        adam.step()
    moved[kind] = -weight.item()
    print(f"{kind:<26} moved by {moved[kind]:.4f}")

# %% slide="skip" evidence="small-gradients"
assert min(moved["always 1"], moved["always 0.000001"]) > 0.98 > 0.5 > moved["0.1, with noise of size 1"]
assert moved["always 0.000000000001"] < 0.001

# %% [markdown] slide="subslide"
# A gradient of a millionth moves its weight almost as far as a gradient of 1: what counts is whether the gradients **agree**. In noise, a small gradient moves its weight far less, because the noise largely cancels in m over many steps, while v keeps its full size. Far below eps (1e-8) it moves almost nothing. [[small-gradients]] So the size of a gradient matters even with Adam: a small one may drown in noise, fall below eps, or become 0 where numbers have few bits (lesson 14).

# %% [markdown] tags=["note"]
# **Say.** This is the whole of training in ten lines. Read them aloud one by one, and let the class say what each of them does before you do. The slide prints *yours* because it was made from the solutions; in a class that left the two exercises out, the loop uses the library's functions.
#
# **Draw.** A circle of four words with arrows: windows, loss, gradients, update, and again. Everything else in this lesson improves one of the four.
#
# **Ask.** Which lines depend on the text being language? (None: the same loop trains on anything that comes as ids.)
#
# **Usual answers.**
# - *None of these predictors* (`none of them`): 100 updates teach a small model much about a small language; such a result would mean a broken loop.
# - *Frequencies, as the simplest* (`one that knows only frequencies`): the loop passes this level within its first updates.
# - *The gradients must be set to 0 first* (`gradients never cleared`, a mistake of section 8): `torch.autograd.grad` returns new ones each time; `loss.backward()` adds to the old ones.
# - *A list of gradients comes back* (`returns the step`, `param last`): `update` must return the new tensor, m and v, in this order.
#
# **Cut if short.** Nothing: this is the heart. Let the levels be said, not derived.

# %% [markdown] slide="slide"
# ## 4. The loop
# You now have every part of a training loop. It uses your functions where they pass their checks, and the library's where they do not:

# %% slide="skip"
from tinylm_classroom import diagnose, find_exercise


# %% slide="skip"
def yours(function):
    """The function if it passes its check, otherwise the library's."""
    name = function.__name__
    passed = diagnose(name, function).passed
    print(f"{name:<15}", "yours" if passed else "the library's")
    return function if passed else find_exercise(name).reference


# %%
draw_windows = yours(random_windows)
update = yours(adamw_step)

# %% [markdown] slide="subslide"
# One round of the loop is one update: draw windows, compute the loss, compute its gradients, update every tensor of weights.


# %%
def plain_loop(model, rate, updates):
    """Train the model with one learning rate; return the loss before each update."""
    source = torch.Generator().manual_seed(5)
    weights = list(model.parameters())
    m = [torch.zeros_like(weight) for weight in weights]
    v = [torch.zeros_like(weight) for weight in weights]
    losses = []
    # ESSENTIAL
    for step in range(1, updates + 1):
        x, y = draw_windows(train_ids, 16, T, source)  # (16, T), (16, T)
        loss = next_token_loss(model(x), y)  # ()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for i, g in enumerate(gradients):
                new, m[i], v[i] = update(weights[i], g, m[i], v[i], step, rate, 0.9, 0.95, 1e-8, 0.0)
                weights[i].copy_(new)
        losses.append(loss.item())
    # END
    return losses


# %%
learner = fresh()
course = plain_loop(learner, rate=0.01, updates=100)
reached = sum(course[-10:]) / 10  # mean loss of the last ten updates

# %% [markdown] slide="subslide"
# How good is that? Lesson 00 measured the loss of *readers* that know only so much; here we call them predictors. No model can stay below the **floor** on new text, because the remaining uncertainty is pure chance.

# %%
levels = storyworld.entropies(tokenizer, n_stories=2000)
print(f"nothing known: {math.log(V):.1f} nats per token; frequencies: {levels.unigram:.1f}")
print(f"the token before: {levels.bigram:.1f}; everything there is to know: {levels.floor:.1f}")

# %% tags=["source-hidden"]
predict(
    f"The loop begins at {course[0]:.1f} nats per token. Which is the best of these predictors that it beats after 100 updates?",
    key=lambda: (
        "one that knows the token before"
        if reached < levels.bigram
        else "one that knows only frequencies"
        if reached < levels.unigram
        else "none of them"
    ),
    choices={
        "none of them": "That would be a broken loop: 100 updates teach a small model a lot about a small language.",
        "one that knows only frequencies": "It passes that level within the first updates.",
        "one that knows the token before": "",
    },
    because="The language is small: its pairs of neighbours are learned in some tens of updates.",
)

# %% slide="skip" evidence="ten-lines"
from tinylm_lib.sampling import generate

assert reached < levels.bigram < levels.unigram

# %% slide="subslide"
from tinylm_classroom import show_text

print(f"first loss {course[0]:.1f}, mean of the last ten {reached:.1f}")
prompt = torch.tensor([tokenizer.encode("\nOne")])  # (1, 2)
written = generate(learner, prompt, 10, temperature=0)  # (1, 12)
show_text({"it writes": tokenizer.decode(written[0].tolist())})

# %% [markdown]
# These few lines train a language model, and you could have written every part of them. [[ten-lines]] The library's `train` is this loop and a little more: with a schedule and clipping, ours gives the same losses. [[same-loop]]

# %% [markdown] tags=["note"]
# **Say.** The learning rate is the one number that you will search for in every training of your life. The search is simple: a few short runs, a constant factor apart, and a look at the curve.
#
# **Draw.** Empty axes: learning rate from left to right in factors of ten, loss upwards. Let the class draw the curve before you show it.
#
# **Ask.** Why is the left end bad, and why is the right end bad? (Left: too little distance in so few updates. Right: each step jumps over the lower ground, as in the valley.) Is the best rate a property of the model? (Not alone: batch size, length of the run and optimizer count, too.)
#
# **Usual answers.**
# - *The smallest, it is the safest* (`0.0001`): it is on the left branch: so few updates do not lead far.
# - *The largest, it is the fastest* (`0.1`): its steps jump across the valley.
# - *The second largest* (`0.03`): it comes close in this run; look at the figure, and how steep the curve is on its right.
#
# **Cut if short.** The figure of three runs; say its caption.

# %% [markdown] slide="slide"
# ## 5. Which learning rate?
# The loop above used a rate of 0.01. Where did this number come from? From a search: the same short run, once for each of five rates.

# %%
rates = (0.0001, 0.001, 0.01, 0.03, 0.1)
runs = {rate: plain_loop(fresh(), rate, updates=60) for rate in rates}
found = {rate: sum(losses[-10:]) / 10 for rate, losses in runs.items()}

# %% tags=["source-hidden"]
predict(
    "60 updates with each rate. Which rate leads to the lowest loss?",
    key=lambda: f"{min(found, key=found.get):g}",
    choices={
        "0.0001": "Small steps are safe, but how far do they lead in 60 updates?",
        "0.01": "",
        "0.03": "It comes close. Compare the two in the figure.",
        "0.1": "Larger steps are faster until they raise the loss.",
    },
    because="Too small a rate does not get far, and too large a rate makes the loss jump up at first: in between is the best one.",
)

# %% slide="skip"
from tinylm_classroom import learned

limits = [(3.6, 3.9), (2.65, 2.85), (1.75, 1.95), (1.85, 2.1), (2.3, 2.9)]
shown = [learned(loss, *limit) for loss, limit in zip(found.values(), limits, strict=True)]

# %% tags=["source-hidden"] slide="subslide" evidence="rate-valley"
fig, ax = plt.subplots(figsize=(8.6, 4.4), layout="constrained")
ax.semilogx(rates, found.values(), marker="o")
ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
ax.set_xticks([], minor=True)
ax.set(title="Five learning rates, 60 updates each", xlabel="learning rate", ylabel="loss at the end (nats per token)")
figures.display(
    fig,
    alt="The loss after 60 updates falls from a rate of 0.0001 to a rate of 0.01 and rises again to 0.1: a U.",
    caption="A U: with too small a rate the loss falls slowly, and with too large a rate it jumps up at first. The mean loss of the last ten of 60 updates.",
    table={"learning rate": [f"{rate:g}" for rate in rates], "loss": shown},
)
assert found[0.0001] > found[0.001] > found[0.01] < found[0.03] < found[0.1]

# %% [markdown] slide="subslide"
# The curve is a **U**. [[rate-valley]] Why are both ends bad? Look at three of the five runs:

# %% tags=["source-hidden"]
chosen = (0.0001, 0.01, 0.1)
with figures.axes("Too small, good, too large", "update", "loss (nats per token)") as (fig, ax):
    for rate in chosen:
        ax.plot(range(1, 61), runs[rate], label=f"rate {rate:g}")
    ax.legend()
figures.display(
    fig,
    alt="The loss over 60 updates with three learning rates. With 0.0001 it falls evenly and slowly, with 0.01 fast, with 0.1 it jumps up at first and ends between the two.",
    caption="Too small: a slow, even fall. Too large: a restless curve that stays above the one of 0.01.",
    table={"learning rate": [f"{rate:g}" for rate in chosen], "loss at the end": [shown[rates.index(rate)] for rate in chosen]},
)  # fmt: skip

# %% [markdown] slide="subslide"
# Search in factors of 3 to 10. The lowest point depends on the model, the batch size, the length of the run and the optimizer, so search again when you change these. During a long run the rate is usually not constant: it first rises, and then falls (section 10).

# %% [markdown] tags=["note"]
# **Say.** Two habits of people whose trainings work: learn one batch by heart before any long run, and look at what the model gets right, not only at the loss.
#
# **Draw.** Five lines that rise from 0 to 1 at different times, and below them one smooth curve that falls: the loss is a mean over skills.
#
# **Ask.** Which skill comes first: pronouns, places, or who owns what? After the figure of skills: is the order a law? (The recorded runs with other first weights show another one.) Has the model understood the story? (Owners are right about half the time, quotations hardly ever.)
#
# **Usual answers.**
# - *A place is too hard* (`still nearly none`): a place is named several times in a story, so looking it up pays early.
# - *As slowly as the loss* (`about a third`): the loss is a mean over all words; a single skill does not have to follow it.
# - *All places at once, suddenly* (`nearly all`, which is right): nearly; in between, some of them are right, so the change is fast but gradual.
#
# **Cut if short.** The table of recorded runs.

# %% [markdown] slide="slide"
# ## 6. The real run
# Before any long run, train on **one batch, again and again** ([Karpathy 2019](https://karpathy.github.io/2019/04/25/recipe/)). If the model cannot learn one batch by heart, no long run will help.

# %% [markdown] slide="say"
# From here on we use the library's `train` and its default optimizer: AdamW for tables and vectors, Muon for the matrices of the blocks (section 10).

# %% slide="skip"
import itertools

from tinylm_lib import TrainConfig, train
from tinylm_lib.data import RandomWindows
from tinylm_lib.training import build_optimizer

# %% rows=["S4-56"]
short = TrainConfig(total_steps=20, schedule="cosine", warmup_steps=5, precision="fp32")
parrot = fresh()
batch = next(RandomWindows(train_ids, batch_size=8, seq_len=T, seed=3))
for s in train(parrot, build_optimizer(parrot, short), itertools.repeat(batch), short):
    if s.step in (1, 5, 10, 20):
        print(f"update {s.step:>2}: loss {s.loss:.1f}, {s.lr_share:.0%} of the peak rate, norm {s.grad_norm:.0f}")

# %% evidence="one-batch"
probs = parrot(batch[0]).detach().softmax(-1)  # (B, T, V)
entropy = torch.special.entr(probs).sum(-1).mean()  # (B, T, V) -> (B, T) -> ()
assert next_token_loss(parrot(batch[0]), batch[1]) < levels.floor / 2
print(f"entropy of its predictions: {entropy:.1f}; of one that knows nothing: {math.log(V):.1f}")

# %% [markdown]
# The loss goes far below the floor of the language, with hardly any entropy in the predictions: the model knows this batch by heart. So model, loss and loop can learn. [[one-batch]] (Whether the targets are the right ones, this test does not show: section 8.)

# %% [markdown] slide="say"
# (`entr` computes $-p \ln p$ and is 0 where $p$ is 0; written out, this would be 0 times infinity, which is NaN. And we took the mean over all positions, because a sum would grow with the batch.)

# %% [markdown] slide="subslide"
# Now the language: 2 layers of width 128, batches of 8 whole stories, each read once. After some updates we note which words are right, sorted by what must be looked up: a *pronoun*, a *place*, a person's *trait*, the *owner* of a thing, a *quotation*.

# %% [markdown] tags=["note"]
# In the live notebook start the cell of the real run now; it takes about half a minute. Meanwhile say what each of the five kinds of words is, with an example from the picture of section 1. In the deck move the slider of the next slide. In both let somebody read the samples of update 5 and update 75 aloud.

# %% slide="skip"
from torch.nn.functional import kl_div

from tinylm_lib.storyworld import gaps

# %% slide="skip"
counts = torch.zeros(V, V)  # row: the token before, column: the next token
counts.index_put_((train_ids[:-1], train_ids[1:]), torch.tensor(1.0), accumulate=True)
predictors = {
    "nothing": torch.full((V, V), 1 / V),
    "frequencies": (counts.sum(0) / counts.sum()).expand(V, V),
    "the token before": counts / counts.sum(1, keepdim=True).clamp(min=1),
}

# %% slide="skip"
source = torch.Generator().manual_seed(6)
test_stories = [storyworld.story(source) for _ in range(40)]
recent = new_ids[: 40 * T].view(40, T)  # (40, T)


# %% slide="skip"
def noting(steps, lm, kl, right, by_word):
    """Pass every update on, and note after some of them where the model is."""
    for s in steps:
        if s.step <= 10 or s.step in (40, 60, 80, 100, 120, 160, 200, 250, 300):
            gap_of = gaps(lm, tokenizer, test_stories)
            right[s.step] = {kind: gap.right for kind, gap in gap_of.items()}
            by_word[s.step] = word_losses(lm, ids)
            with torch.no_grad():
                log_q = lm(recent).log_softmax(-1)  # (40, T) -> (40, T, V)
            kl[s.step] = {"the whole story": gap_of["all"].nats}
            for name, p in predictors.items():
                kl[s.step][name] = kl_div(log_q, p[recent], reduction="none").sum(-1).mean().item()  # (40, T, V) -> ()
        yield s


# %% slide="skip"
from tinylm_classroom import training_view
from tinylm_lib.data import every_document

# %% slide="skip"
expected = {100: (1.18, 1.1825), 200: (0.949, 0.953), 300: (0.872, 0.881)}
line_end = tokenizer.encode("\n")[0]

# %% [markdown] slide="say"
# (Processors round differently, and over hundreds of updates this adds up; `expected` is the range that we allow.)

# %%
recipe = TrainConfig(
    total_steps=300, schedule="cosine", warmup_steps=10, batch_size=8, precision="fp32"
)  # fmt: skip

# %% rows=["S4-58"] slide="subslide"
kl, right, by_word = {}, {}, {}
model = fresh(d_model=128)
batches = every_document(train_ids, line_end, batch_size=8)
steps = train(model, build_optimizer(model, recipe), batches, recipe)
noted = noting(steps, model, kl, right, by_word)
await training_view(noted, model, tokenizer, total_steps=300, levels=levels, expected=expected)

# %% [markdown] slide="subslide"
# The curve is smooth. Does each skill grow smoothly, too?

# %% tags=["source-hidden"]
predict(
    f"After 60 updates {right[60]['place']:.0%} of the places are right. From there the loss falls slowly. How many places are right after 200 updates?",
    key=lambda: "nearly all" if right[200]["place"] > 0.9 else "about a third",
    choices={
        "still nearly none": "A place is named many times in a story, so the model can profit from looking it up.",
        "about a third": "The loss is a mean over all words. A single skill does not have to follow it.",
        "nearly all": "",
    },
    because="Once places begin to improve, some tens of updates are enough. In between, some of the places are right, so the change is fast but gradual.",
)

# %% tags=["source-hidden"] slide="subslide"
begin = words.index("Afterwards") - 1
figures.shaded_words(
    words[begin + 1 :],
    {f"after {step} updates": by_word[step][begin:] for step in (60, 120, 300)},
    title="The end of the story, while the model learns",
    caption=f"The darker a word, the higher its loss, up to 6 nats. Watch Eastbridge, a place, and the quotation at the end, which stays dark: the model of section 1, which knows it, is larger and has trained for {shipped.step:,} updates.",
    limit=6,
    learned=True,
)

# %% tags=["source-hidden"] slide="skip"
NOTED = (60, 120, 200, 300)
SKILLS = {  # right after 60, 120, 200 and 300 updates, and how far rounding can move it
    "pronoun": [(0.46, 0.66), (0.5, 0.8), (0.84, 1.0), (0.9, 1.0)],
    "place": [(0.0, 0.03), (0.85, 1.0), (0.97, 1.0), (0.97, 1.0)],
    "trait": [(0.0, 0.12), (0.03, 0.25), (0.3, 0.6), (0.6, 0.92)],
    "owner": [(0.15, 0.31), (0.35, 0.53), (0.39, 0.56), (0.43, 0.66)],
    "quotation": [(0.0, 0.12), (0.0, 0.14), (0.0, 0.16), (0.03, 0.22)],
}
table = {"updates": NOTED}
for kind, ranges in SKILLS.items():
    table[kind] = [learned(right[step][kind], *limits) for step, limits in zip(NOTED, ranges, strict=True)]

# %% tags=["source-hidden"] slide="subslide"
at = [step for step in right if step >= 10]
fig, ax = plt.subplots(figsize=(8.6, 4.8), layout="constrained")
for kind, mark in zip(SKILLS, "osD^v", strict=True):
    ax.plot(at, [right[step][kind] for step in at], marker=mark, label=kind)
ax.set(title="Skills arrive at different times", xlabel="update", ylabel="fraction right", ylim=(-0.03, 1.03))
ax.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.18), columnspacing=1.2)
figures.display(
    fig,
    alt="Fraction of words right over 300 updates, a line for each kind of word. Places stay at zero for 60 updates and are nearly all right after 120. Pronouns rise early and unevenly. Traits come late, owners stop at about half, quotations stay near zero.",
    caption="Each kind of word has its own time. Places rise from none to nearly all within some tens of updates, while traits and owners rise gradually. Owners are right about half the time; this figure does not show how the model guesses.",
    table=table,
)

# %% slide="skip" evidence="skills-in-time"
assert right[40]["pronoun"] > 0.5 and right[60]["place"] < 0.05
assert right[200]["place"] > 0.95 and right[300]["pronoun"] > 0.9
assert right[300]["owner"] < 0.75 and right[300]["quotation"] < 0.5
assert right[120]["place"] > 0.85 and right[120]["trait"] < 0.3 < right[300]["trait"]
distances = [kl[step]["the whole story"] for step in kl if step <= 250]
assert distances == sorted(distances, reverse=True)
first_good = {kind: min(step for step in at if right[step][kind] > 0.9) for kind in ("pronoun", "place")}
assert first_good["place"] < first_good["pronoun"]
print("this run: places are more than 90 % right before pronouns are")

# %% tags=["source-hidden"] slide="skip"
import re

from tinylm_classroom import card, number_table


def show_table(title, heads, rows):
    """Show a table that a class can read; its last column is text."""
    html = number_table(heads, rows).replace("font-size:13px", "font-size:18px").replace('padding="3"', 'padding="6"')
    html = re.sub(r"<(t[hd])([^<]*</t[hd]></tr>)", r'<\1 style="text-align:left;padding-left:24px"\2', html)
    card(title, [html], "\n".join(" | ".join(row) for row in [heads, *rows])).show()


# %% tags=["source-hidden"] slide="subslide"
RECORDED = {  # with other first weights: the columns of the table
    "seed 2": ("0.00", "1.00", "0.63", "0.07", "pronouns"),
    "seed 3": ("0.00", "1.00", "0.58", "0.30", "pronouns"),
    "seed 4": ("0.00", "1.00", "0.55", "0.14", "both at once"),
}
early = learned(right[40]["place"], 0.0, 0.03)
first = min(first_good, key=first_good.get) + "s"
show_table(
    "Fraction right in this run and in three recorded ones",
    ["", "places after 40", "places after 200", "owners after 300", "quotations after 300", "first above 0.9"],
    [
        ["this run", early, table["place"][2], table["owner"][3], table["quotation"][3], first],
        *([seed, *columns] for seed, columns in RECORDED.items()),
    ],
)

# %% [markdown]
# In all four runs no place is right at update 40, and nearly all are right at update 200. Owners and quotations are still unsolved at the end. But in this run places are above 0.9 before pronouns, with seeds 2 and 3 after them. So the loss comes steadily closer to the floor, but it is a mean over words whose skills arrive at different times, and part of their order is chance. [[skills-in-time]]

# %% [markdown] tags=["note"]
# **Say.** The number to report comes from text that was held out. Then make it fail: 40 stories, read again and again.
#
# **Draw.** Two curves that fall together and then part: training text continues to fall, new text turns. The vertical line at the turn is where to stop.
#
# **Ask.** The windows that were held out by shuffling: which of the two curves will they follow?
#
# **Usual answers.**
# - *The curve of new stories, they are held out, too*: they overlap with the training windows (section 2), so they follow the training curve and hide the overfitting.
# - *Perplexity is the better number*: it is e to the power of the loss, so it ranks models in the same order. Only bits per byte compare different tokenizers.
# - *First it was a model of frequencies*: this run has no such stage, as the list of nearest predictors shows.
#
# **Cut if short.** The nearest predictor.

# %% [markdown] slide="slide" plan=80
# ## 7. How good is it, really?
# Each story was read once, so even the training loss is nearly honest. But report the loss on the stories that were held out:

# %% slide="skip"
from tinylm_lib import evaluate

n_bytes = len("".join(held_out).encode())

# %%
new = evaluate(model, every_document(new_ids, line_end, batch_size=32), n_bytes)
nats = new.nats_per_token
print(f"{nats:.2f} nats per token, perplexity {new.perplexity:.1f}")
print(f"bits per byte {new.bits_per_byte:.2f}")

# %% rows=["S4-54"] slide="skip"
assert math.isclose(new.perplexity, math.exp(nats)) and model.training
assert math.isclose(new.bits_per_byte, nats * new.n_tokens / math.log(2) / n_bytes)

# %% [markdown]
# **Perplexity**, $e$ to the power of the loss, is the number of equally likely tokens with the same loss. **Bits per byte** divide the loss of a text by its bytes, not its tokens (lesson 01), so they compare models with different tokenizers.

# %% [markdown] slide="say"
# `evaluate` switches to evaluation mode and back; if you forget the way back, you train on without dropout (lesson 09).

# %% [markdown] slide="subslide"
# The loss passed one level after the other. Did the model also *become* one predictor after the other? The **KL divergence** (lesson 03) measures how far it is from each:

# %%
nearest = {step: min(from_each, key=from_each.get) for step, from_each in kl.items()}
for step in (1, 3, 10, 40, 300):
    print(f"update {step:>3}: closest to a predictor that knows {nearest[step]}")

# %% slide="skip" evidence="nearest-predictor"
assert (nearest[1], nearest[10], nearest[40], nearest[300]) == ("nothing", "the token before", *["the whole story"] * 2)
assert "frequencies" not in nearest.values()

# %% [markdown]
# There is no stage of frequencies in this run, nor in three recorded runs with other first weights: the loss passes that level while the model already learns which token follows which. [[nearest-predictor]]

# %% [markdown] slide="say"
# (In larger models such a stage has been seen: [Chang and Bergen 2022](https://arxiv.org/abs/2110.02406).)

# %% [markdown] slide="subslide"
# ### Learning by heart
# A small model reads only 40 stories, again and again. We measure its loss on training windows, on windows held out by shuffling (the leak), and on new stories.

# %% slide="skip"
few = torch.tensor(tokenizer.encode("".join(training[:40])))
order = torch.randperm(len(few) - T, generator=torch.Generator().manual_seed(1))
used = order[len(order) // 10 :]
every_window = few.unfold(0, T + 1, 1)  # a row for every start

# %% slide="skip"
groups = {
    "training": every_window[used[:64]],
    "leak": every_window[order[:64]],
    "new stories": new_ids.unfold(0, T + 1, T + 1)[:64],
}

# %%
again = TrainConfig(total_steps=160, schedule="cosine", precision="fp32")
small = fresh()
courses = {name: [] for name in groups}
seen_at = []
again_and_again = RandomWindows(few, batch_size=16, seq_len=T, starts=used)
for s in train(small, build_optimizer(small, again), again_and_again, again):
    if s.step in (10, 20, 40, 80, 160):
        seen_at.append(s.step)
        for name, rows in groups.items():
            courses[name].append(evaluate(small, [(rows[:, :-1], rows[:, 1:])]).nats_per_token)

# %% tags=["source-hidden"] slide="subslide"
figures.loss_curve(
    {name: (seen_at, losses) for name, losses in courses.items()},
    title="Only new text shows overfitting",
    caption="On new stories the loss rises again, while the model learns the 40 stories by heart. The leak shows nothing of it.",
)

# %% slide="skip" evidence="overfitting"
best = min(range(len(seen_at)), key=lambda i: courses["new stories"][i])
assert all((losses[-1] > min(losses) + 0.1) == (name == "new stories") for name, losses in courses.items())
print(f"keep update {seen_at[best]}")

# %% [markdown]
# That is **overfitting**: the training loss falls while the loss on new text rises. **Early stopping** keeps the weights with the lowest validation loss.

# %% [markdown] tags=["note"]
# **Say.** A broken training seldom raises an error: it has a loss, and the loss falls. Four mistakes in the data and the mask first, then four in the model and in the steps.
#
# **Draw.** Two horizontal lines, ln V above and the floor below. Let the class place each mistake's final loss: below the floor, between, or at ln V.
#
# **Ask.** Which of these would you notice from the loss curve alone? (Only some: "shifted twice" looks like a slow, healthy run.)
#
# **Usual answers.**
# - *The one that can see the answer* (`no causal mask`): it must first find the answer in what it reads, and in 60 updates it has only begun to.
# - *The double shift* (`shifted twice`): two words ahead is harder to predict than one, not easier.
# - *The extra softmax* (`softmax in the model`): its probabilities pass through a second softmax, which makes them nearly equal, so the loss cannot fall far.
#
# **Cut if short.** The second table; read its four lines aloud.

# %% [markdown] slide="slide"
# ## 8. Break it: what does a mistake look like?
# A broken training seldom raises an error, and its loss may even fall. Here is a small run (60 updates, batches of 8, AdamW at 0.01) with one mistake at a time:
# - *Not shifted*: the target is the token just read. *Shifted twice*: the target is two tokens ahead. *Another text's targets*: those of another window of the batch.
# - *No causal mask*: each position may read the future. *Softmax in the model*: the loss gets probabilities as logits.


# %% tags=["source-hidden"] slide="skip"
from tinylm_lib.attention import Attention, attend


class Unmasked(Attention):
    def mix(self, q, k, v, mask=None):
        return attend(q, k, v).transpose(-3, -2).flatten(-2)  # (B, H, T, D) -> (B, T, H*D)


# %% tags=["source-hidden"] slide="skip"
def changed(how: str) -> TransformerLM:
    lm = fresh()
    if how == "no causal mask":
        for block in lm.blocks:
            block.attention = Unmasked(lm.config)
    if how == "all matrices start at 0":
        for p in lm.parameters():
            p.data.mul_(p.ndim == 1)
    return lm


# %% tags=["source-hidden"] slide="skip"
def symptoms(how: str) -> list[float | str]:
    lm, losses = changed(how), []
    rate = 1.0 if how == "rate 1.0" else 0.01
    optimizer = torch.optim.AdamW(lm.parameters(), lr=rate, betas=(0.9, 0.95))
    for x, y in itertools.islice(RandomWindows(train_ids, batch_size=8, seq_len=T, seed=1), 60):
        window = torch.cat((x, y[:, -1:]), dim=1)  # (B, T + 1)
        x, y, next_but_one = window[:, :-2], window[:, 1:-1], window[:, 2:]  # (B, T - 1), all three
        wrong = {"not shifted": x, "shifted twice": next_but_one, "another text's targets": y.roll(1, 0)}
        logits = lm(x).softmax(-1) if how == "softmax in the model" else lm(x)
        loss = next_token_loss(logits, wrong.get(how, y))
        loss.backward()
        arrived = sum(p.grad.norm() for p in lm.parameters())
        assert (arrived == 0) == (how == "all matrices start at 0")
        optimizer.step()
        if how != "gradients never cleared":
            optimizer.zero_grad()
        losses.append(loss.item())
    rows = new_ids.unfold(0, T, T)[:200]  # (N, T)
    new_loss = evaluate(lm, [(rows[:, :-1], rows[:, 1:])]).nats_per_token
    written = generate(lm, torch.tensor([tokenizer.encode("\nOne")]), 6, temperature=0)  # (1, 8)
    return [losses[0], sum(losses[-10:]) / 10, new_loss, " ".join(tokenizer.decode(written[0].tolist()).split())]


# %% tags=["source-hidden"] slide="skip"
IN_DATA = ["nothing wrong", "not shifted", "shifted twice", "another text's targets", "no causal mask"]
IN_STEPS = ["softmax in the model", "gradients never cleared", "rate 1.0", "all matrices start at 0"]
seen = {how: symptoms(how) for how in (*IN_DATA, *IN_STEPS)}

# %% tags=["source-hidden"]
predict(
    "Which mistake has the lowest training loss after 60 updates?",
    key=lambda: min(seen, key=lambda how: seen[how][1]),
    choices={
        "no causal mask": "It has to find the answer in what it reads; in 60 updates it only began.",
        "not shifted": "",
        "shifted twice": "Two words ahead is harder to predict than one.",
        "softmax in the model": "The softmax of probabilities is nearly flat: its loss cannot fall far.",
    },
    because="The answer is the token just read: it only has to be copied.",
)

# %% tags=["source-hidden"] slide="skip"
heads = ["", "first loss", "after 60", "new stories", "writes"]
# three times the spread of 15 roundings
large_losses = {"not shifted": (11.46, 11.56), "softmax in the model": (15.2, 16.8)}


# %% tags=["source-hidden"] slide="skip"
def row_of(how):
    *losses, text = seen[how]
    if how in ("gradients never cleared", "rate 1.0"):  # they jump about
        assert min(losses) > 4
        return [how, f"{losses[0]:.1f}", "over 4", "over 4", "(it varies)"]
    is_large = [loss > 9 and how in large_losses for loss in losses]
    shown = [learned(x, *large_losses[how]) if y else f"{x:.1f}" for x, y in zip(losses, is_large, strict=True)]
    return [how, *shown, text]


# %% tags=["source-hidden"] slide="subslide"
title = f"Wrong targets, no mask: ln V is {math.log(V):.2f}, the floor {levels.floor:.2f} nats per token"
show_table(title, heads, [row_of(how) for how in IN_DATA])

# %% [markdown] slide="subslide"
# - **Not shifted.** A loss far below the floor on text that was not read before is impossible: there is a mistake or a leak. The model repeats what it read last.
# - **Shifted twice.** The loss looks like a slow but healthy run. New text with the right targets gives it away, and what the model writes: it leaves words out.
# - **Another text's targets.** The input does not help to predict them, so the loss stops at the level of frequencies.
# - **No causal mask.** The loss looks even better, on new text, too, because the future can be read. What the model writes gives it away, and so does section 1's comparison.

# %% tags=["source-hidden"] slide="subslide"
title = "Mistakes in the model and in the steps, in nats per token"
show_table(title, heads, [row_of(how) for how in ("nothing wrong", *IN_STEPS)])

# %% [markdown] slide="subslide"
# - **Softmax in the model.** The loss hardly moves from $\ln V$ = 5.84, because it takes the softmax of probabilities. (On new stories it is measured without the extra softmax: the logits have become very large.)
# - **Gradients never cleared**, and a **rate of 1.0** instead of 0.01: the losses jump about, far above the run with nothing wrong.
# - **All matrices start at 0.** Exactly $\ln V$ for ever, because no gradient arrives anywhere.
#
# So know $\ln V$ and the floor, compare with new text, and read what the model writes.

# %% [markdown] tags=["note"]
# **Say.** A NaN spreads: one bad number makes the loss NaN, the loss makes nearly every gradient NaN, and one update later nearly every weight is. So look for the place where it began.
#
# **Draw.** The modules of a model as boxes in a row, with a cross in one of them. Arrows to the right carry the cross to the loss, arrows to the left carry it back to nearly all boxes.
#
# **Ask.** One position of one text is NaN. Why is the whole loss NaN? (The loss is a mean over all positions.)
#
# **Usual answers.**
# - *Find the NaN in the gradients*: they pass it on to nearly all tensors; go through the forward pass and take the first bad output.
# - *A mean gradient of 0 means that nothing arrives*: positive and negative numbers cancel; look at the norm.
#
# **Cut if short.** Norms and means; read the last paragraph aloud.

# %% [markdown] slide="slide" plan=80
# ## 9. The loss is NaN
# A loss of NaN stays NaN. Here the mask of the second block has one diagonal too few, so the first position may look at nothing: its softmax divides 0 by 0.


# %%
class Strict(Attention):
    def mix(self, q, k, v, mask=None):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        earlier = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1)
        weights = scores.masked_fill(~earlier, -math.inf).softmax(-1)
        return (weights @ v).transpose(-3, -2).flatten(-2)  # (B, H, T, D) -> (B, T, H*D)


# %% slide="skip"
broken = fresh()
broken.blocks[1].attention = Strict(broken.config)
x, y = draw_windows(train_ids, 8, T, torch.Generator().manual_seed(5))  # (8, T), (8, T)

# %%
loss = next_token_loss(broken(x), y)
loss.backward()
has_nan = [p.grad.isnan().any().item() for p in broken.parameters()]
print(f"loss {loss.item()}; NaN in {sum(has_nan)} of {len(has_nan)} gradients")

# %% [markdown] slide="subslide"
# Nearly all gradients are NaN, so they do not show where it began. The forward pass does: `capture` keeps every module's input and output in the order of the run. Which output is the first bad one?

# %% rows=["S4-50"] evidence="first-bad"
from tinylm_classroom import capture

caught = capture(broken, x)
bad = [name for name, output in caught.outputs.items() if not output.isfinite().all()]
at_positions = caught.inputs[bad[0]].isnan().any(-1)[0].nonzero().flatten().tolist()
print(f"first bad module: {bad[0]}; its input is already NaN at positions {at_positions}")
v_output = caught.outputs["blocks.1.attention.v_proj"]
print("the module before it is fine:", v_output.isfinite().all().item())
assert bad[0] == "blocks.1.attention.o_proj" and at_positions == [0]

# %% [markdown]
# So it happened between `v_proj` and `o_proj` of block 1, in its `mix`, and only at position 0: a row of the mask without any allowed position. [[first-bad]] (To look for NaN in the *ids* is useless, because they are whole numbers.)

# %% [markdown] slide="skip"
# (If a NaN first appears in the backward pass, `torch.autograd.set_detect_anomaly(True)` names the operation.)

# %% [markdown] slide="subslide"
# To watch gradients, print **norms**, not means:

# %% evidence="norms-not-means"
healthy = fresh()
next_token_loss(healthy(x), y).backward()
head = healthy.lm_head.weight.grad  # (V, C)
for factor in (1, 1000):
    norm, mean = (factor * head).norm(), (factor * head).mean()
    print(f"gradient of lm_head times {factor:>4}: norm {norm:7.2f}, mean {abs(mean):.4f}")
assert abs(1000 * head.mean()) < 1e-4 < head.norm()

# %% [markdown]
# A gradient a thousand times too large has the same mean. Here it is 0 by construction: for each prediction the gradients of the logits sum to 0, because probabilities sum to 1. [[norms-not-means]]

# %% [markdown] tags=["note"]
# **Say.** Six tools that long runs need. Each is independent of the others: choose two or three.
#
# **Draw.** The learning rate over the steps: a short straight line up, a long half cosine down. For Muon: a circle, and what a gradient matrix makes of it, a thin ellipse.
#
# **Ask.** After a power cut, what must have been saved so that the run continues as if nothing had happened?
#
# **Usual answers.**
# - *Only the weights*: the running means, the step number, the position in the text and the random generators are missing; without the means the losses differ.
# - *Each tensor is clipped separately* (`per tensor`): this changes the direction; one length for all, one factor for all.
# - *Small gradients are stretched, too* (`always`): below the limit nothing changes.
# - *The cosine begins at step 1* (`from the first step`): it begins where the warm-up ends.
# - *The rate rises again after the last step* (`goes on`): after the end it stays at the floor.
# - *The limit itself* (`6.5`): then each tensor would be clipped by itself.
# - *Where arithmetic says* (`near 0.9`): in fp32 it would be; bf16 has no number between 0.996 and 1.
#
# **Cut if short.** Any part: only "The loop again" uses the two exercises.

# %% [markdown] slide="slide" plan=110
# ## 10. For engineers
# ### A schedule for the learning rate
# At step 1 Adam moves every weight by about the full rate, although its gradient comes from a single batch. A **warm-up** makes the first steps small: a straight line from **0** at step 0 to the peak at step W. Later the rate falls, because near the goal large steps jump across it: half a **cosine** for steps $t$ from $W$ to $N$, the last one ([Loshchilov and Hutter 2016](https://arxiv.org/abs/1608.03983), with the warm-up in front):
#
# $$\text{lr}(t) = \text{floor} + (\text{peak} - \text{floor})\;\tfrac{1}{2}\Bigl(1 + \cos\bigl(\pi\,\tfrac{t - W}{N - W}\bigr)\Bigr)$$
#
# After N the rate stays at the floor.

# %% tags=["source-hidden"] slide="subslide" rows=["S4-52"]
from tinylm_lib.training import warmup_cosine as library_schedule

at_steps = range(1, 12_001, 50)
fig, ax = plt.subplots(figsize=(8.6, 3.6), layout="constrained")
ax.plot(at_steps, [library_schedule(step, 1e-3, 1e-4, 500, 10_000) for step in at_steps])
ax.set(title="Warm-up, then half a cosine", xlabel="step", ylabel="learning rate", ylim=(0, 0.00108))
marked = (1, 500, 5250, 10_000)
figures.display(
    fig,
    alt="The learning rate rises in a straight line from 0 to 0.001 at step 500, falls along half a cosine to 0.0001 at step 10,000, and stays there.",
    caption="Peak 0.001, floor 0.0001, W = 500, N = 10,000.",
    table={"step": marked, "rate": [f"{library_schedule(step, 1e-3, 1e-4, 500, 10_000):.6f}" for step in marked]},
)


# %% tags=["exercise"] name="warmup_cosine" minutes=8 difficulty=2 plan=110
def warmup_cosine(step, peak, floor, warmup_steps, total_steps):
    """The learning rate of a step, counted from 1, as a float; warmup_steps is at least 1 and below total_steps.

    A straight line from 0 at step 0 to the peak at warmup_steps, even where that is below the floor;
    half a cosine from there to the floor at total_steps; the floor after that.
    """
    # SOLUTION
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2
    # END


# %% tags=["check"] evidence="schedule"
if check("warmup_cosine", warmup_cosine).passed:
    keep("warmup_cosine", warmup_cosine)

# %%
hint("warmup_cosine")

# %% [markdown] tags=["solution"]
# Three parts with two borders, and one fraction of the way for the middle part. Common mistakes: to count from 0, so that the first step does nothing; a cosine that begins at step 1; no end, so that the cosine rises again.

# %% [markdown] slide="subslide"
# ### Clipping
# Sometimes a batch has a huge gradient. **Clipping** limits its length: above the limit, all numbers shrink by one factor, so the direction stays. The length is that of *all* gradients together ([Pascanu et al. 2013](https://arxiv.org/abs/1211.5063)). Two tensors, (3, 4) and (12), have lengths of 5 and 12, together $\sqrt{5^2 + 12^2} = 13$.

# %% tags=["source-hidden"]
predict(
    "The limit is 6.5. What becomes of the 12?",
    key=lambda: f"{12 * 6.5 / math.hypot(5, 12):g}",
    choices={
        "12": "The length of the whole is above the limit: every number shrinks.",
        "6.5": "Then each tensor would be clipped by itself, and the direction would turn.",
        "6": "",
    },
    because="The length of 13 is halved, so every number is.",
)


# %% tags=["exercise"] name="clip_gradients" minutes=6 difficulty=2 plan=110
def clip_gradients(grads, max_norm):
    """grads: a list of tensors of any shapes. Returns a list of tensors of the same shapes and dtypes.

    Where the length of all numbers together exceeds max_norm, all are multiplied by the one factor that makes it
    max_norm; where it does not, they stay as they are. The given tensors are not changed.
    """
    # SOLUTION
    length = torch.stack([g.norm() for g in grads]).norm()
    factor = max_norm / length if length > max_norm else 1.0
    return [g * factor for g in grads]
    # END


# %% tags=["check"] evidence="clipping"
if check("clip_gradients", clip_gradients).passed:
    keep("clip_gradients", clip_gradients)

# %%
hint("clip_gradients")

# %% [markdown] tags=["solution"]
# The length of the lengths is the length of the whole. Common mistakes: one limit for each tensor; to stretch what is short.

# %% [markdown] slide="subslide"
# ### The loop again
# These two functions are two more lines of the plain loop. Does it now agree with the library's `train`? Both get the same first weights, the same windows and AdamW:

# %%
set_rate = yours(warmup_cosine)
clip = yours(clip_gradients)


# %% slide="subslide"
def full_loop(model, updates):
    """The plain loop with a schedule and clipping; return the losses and the windows that were read."""
    source = torch.Generator().manual_seed(5)
    weights = list(model.parameters())
    m = [torch.zeros_like(weight) for weight in weights]
    v = [torch.zeros_like(weight) for weight in weights]
    losses = []
    windows_read = []
    # ESSENTIAL
    for step in range(1, updates + 1):
        x, y = draw_windows(train_ids, 16, T, source)  # (16, T), (16, T)
        loss = next_token_loss(model(x), y)  # ()
        gradients = torch.autograd.grad(loss, weights)
        gradients = clip(list(gradients), 1.0)  # new
        rate = set_rate(step, 0.01, 0.001, 10, 100)  # new
        with torch.no_grad():
            for i, g in enumerate(gradients):
                new, m[i], v[i] = update(weights[i], g, m[i], v[i], step, rate, 0.9, 0.95, 1e-8, 0.0)
                weights[i].copy_(new)
        # END
        losses.append(loss.item())
        windows_read.append((x, y))
    return losses, windows_read


# %% slide="skip"
plain_losses, windows_read = full_loop(fresh(), updates=20)
adamw = TrainConfig(
    total_steps=100, schedule="cosine", warmup_steps=10, floor=0.1, clip_norm=1.0,
    optimizer="adamw", matrix_lr=0.01, embedding_lr=0.01, precision="fp32",
)  # fmt: skip

# %% evidence="same-loop"
twin = fresh()
library_steps = train(twin, build_optimizer(twin, adamw), iter(windows_read), adamw)
apart = [abs(s.loss.item() - loss) for loss, s in zip(plain_losses, library_steps, strict=False)]
assert len(apart) == 20 and max(apart) < 1e-3
print("20 updates: every loss of the library's loop is within 0.001 of the plain one")

# %% [markdown] slide="say"
# The library's loop adds several batches for one update, fewer bits, and a step number to resume from. It yields after each update, so that the caller can look, save or stop.

# %% slide="skip"
from tinylm_classroom import show

show(train)

# %% [markdown] slide="subslide"
# ### A batch too large for memory
# Read it in parts with equally many targets and add up the gradients: **accumulation**. Each part's loss is divided by the number of parts, so that the sum is the mean over all.

# %% [markdown] slide="say"
# (AdamW hides a missing division, because m and the root of v grow alike.)

# %%
x, y = next(RandomWindows(train_ids, batch_size=32, seq_len=T, seed=2))  # (32, T), (32, T)

# %% rows=["S2-19"] evidence="accumulation"
whole = fresh()
next_token_loss(whole(x), y).backward()
parts = fresh()
for micro_x, micro_y in zip(x.split(8), y.split(8), strict=True):
    (next_token_loss(parts(micro_x), micro_y) / 4).backward()
for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
    torch.testing.assert_close(p.grad, q.grad, atol=1e-5, rtol=1e-4)
print("4 parts of 8 windows: the gradient of all 32")

# %% [markdown] slide="subslide"
# ### Stop and resume
# What must be saved so that a run continues *exactly*? We train 20 updates; then 10, save, load into another model, and 10 more, with and without the optimizer's running means.


# %% slide="skip"
import tempfile
from pathlib import Path

from tinylm_lib.training import checkpoint


# %% slide="skip"
def run_parts(seed: int = 1):
    lm = fresh(seed)
    return lm, build_optimizer(lm, short), RandomWindows(train_ids, batch_size=8, seq_len=T, seed=1)


# %%
straight = [s.loss.item() for s in train(*run_parts(), short)]
lm, optimizer, batches = run_parts()
*_, last = itertools.islice(train(lm, optimizer, batches, short), 10)

# %% rows=["S4-55"] evidence="resume"
with tempfile.TemporaryDirectory() as place:
    folder = Path(place) / "saved"
    checkpoint.save(folder, lm, optimizer, batches, step=last.step, tokenizer=tokenizer)
    for with_optimizer in (True, False):
        saved = checkpoint.load(folder)
        other, its_optimizer, its_batches = run_parts(seed=7)
        saved.restore(other, its_optimizer if with_optimizer else None, its_batches)
        rest = train(other, its_optimizer, its_batches, short, first_step=saved.step + 1)
        off = [abs(s.loss.item() - loss) for s, loss in zip(rest, straight[10:], strict=True)]
        assert (max(off) == 0) == with_optimizer
        print("with the optimizer's state: every loss is the same" if with_optimizer else "without: they differ")

# %% [markdown]
# Equal to the last bit. The checkpoint contains the weights, the optimizer's state, the position in the text, the step number (for the schedule) and the state of the random generators (for dropout). [[resume]]

# %% [markdown] slide="say"
# If you save a model with `torch.save` instead, three mistakes are common. Without its configuration nobody can build the model again. The file is a pickle, which can run any code if it is loaded with `weights_only=False`, the default of older versions of PyTorch, so this library stores tensors as safetensors. And a tensor that was saved on a GPU does not load on a computer without one, unless `map_location="cpu"` says where to put it.

# %% [markdown] slide="subslide"
# ### Fewer bits
# Numbers of half the size take half the bytes (lesson 14). **bf16** has 16 bits: the range of fp32, with fewer digits (lesson 03). May everything be bf16?

# %%
weight = torch.tensor(1.0, dtype=torch.bfloat16)
for _ in range(100):
    weight = weight - 0.001

# %% tags=["source-hidden"]
predict(
    "A weight in bf16 starts at 1 and makes 100 steps of -0.001. Where is it?",
    key=lambda: {1.0: "still at 1"}.get(weight.item(), "near 0.9"),
    choices={
        "near 0.9": "In fp32 it is. What is the next number below 1 in bf16?",
        "still at 1": "",
        "at 0": "Rounding stops it long before.",
    },
    because="bf16 has no number that near to 1: each step is rounded away.",
)

# %% evidence="bf16-weight"
assert weight.item() == 1
print(f"after 100 steps {weight.item()}; the next number below 1 is {1 - torch.finfo(torch.bfloat16).eps / 2:.3f}")

# %% [markdown]
# Updates that are small relative to the weight are lost. So weights, their updates and the loss stay in fp32, and only the products are computed in bf16: **mixed precision** ([Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740)). What does that do to the loss of one forward pass?

# %% evidence="bf16-products"
new_x, new_y = next(every_document(new_ids, line_end, batch_size=32))
with torch.no_grad():
    full = next_token_loss(model(new_x), new_y)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = next_token_loss(model(new_x), new_y)
assert 0 < abs(mixed - full) < 0.01
print("with its products in bf16 the loss is less than 0.01 away")

# %% [markdown] slide="subslide"
# ### Muon
# AdamW treats a matrix as a list of numbers. But a matrix has directions, each with a strength, its **singular value**. **Muon** brings the strengths of the momentum, a running mean of gradients, close to each other ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)). A gradient of 2x2 shows the difference:

# %% slide="skip"
from tinylm_lib.training import orthogonalise

# %%
tiny = torch.tensor([[3.0, 1.0], [1.0, 3.0]])
steps_of = {"gradient": tiny, "Adam, first step": tiny.sign(), "Muon": orthogonalise(tiny[None])[0]}
for name, matrix in steps_of.items():
    strong, weak = torch.linalg.svdvals(matrix).tolist()
    numbers = (matrix.double().round(decimals=1) + 0.0).tolist()
    print(f"{name:<17}{numbers}  strengths {strong:.1f}, {weak:.1f}")

# %% slide="skip" evidence="muon"
assert torch.linalg.svdvals(tiny.sign())[1] < 1e-6
assert torch.linalg.svdvals(steps_of["Muon"])[1] > 0.9 * torch.linalg.svdvals(steps_of["Muon"])[0]

# %% [markdown]
# The gradient has two directions, (1, 1) with a strength of 4 and (1, -1) with a strength of 2. Adam's first step, all ones, moves the first and ignores the second. Muon moves both about equally. [[muon]] (Their sizes are inexact, because the iteration stops early.) In a real gradient the strengths differ more:

# %%
gradient = whole.blocks[0].attention.o_proj.weight.grad  # (C, C)
for name, matrix in (("gradient", gradient), ("Muon", orthogonalise(gradient[None])[0])):
    strengths = torch.linalg.svdvals(matrix)  # (C)
    print(f"{name:<9}the middle strength is {strengths.median() / strengths[0]:.2f} of the largest")

# %% [markdown] slide="say"
# The embedding, the head and all vectors are left to AdamW. Lesson 14 measures what Muon gains.

# %% [markdown] tags=["note"]
# **Say.** Five steps make a training: hold text out, draw windows, compute the loss and its gradients, update, and measure on the text that was held out.
#
# **Draw.** The circle of section 4 again. Let the class write next to each of its words what can go wrong there.
#
# **Ask.** Name one mistake that the loss curve alone does not show, and say how you would find it. (Shifted twice, no causal mask, a leak: the loss on new stories, what the model writes, and whole stories held out.)
#
# **Usual answers.**
# - *A mistake would raise an error*: of the eight mistakes of section 8 none did.
# - *The loss falls, so it is learning the right thing*: without the causal mask the loss falls even further, and what the model writes is useless.
#
# **Cut if short.** Read the first words of each point. With the shortest plan pass over what belongs to section 7 (overfitting), section 9 (NaN, norms) and section 10 (the library's loop, the last point); with the next plan over section 10 only.

# %% [markdown] slide="slide"
# ## What you have now
# - On a new story, the trained model has a low loss on the words that must be looked up. [[story-shaded]] The targets are the inputs shifted by one; one pass gives a loss at every position. [[one-pass]]
# - Hold out whole stories: windows held out at random overlap with the training windows and hide overfitting. [[shuffled-windows]] [[overfitting]]
# - AdamW keeps two running means and decays each weight by a fraction of itself. [[adamw-by-hand]] Gradients that agree move a weight far, even small ones. [[small-gradients]]
# - A training loop of your own: windows, loss, gradients, update. [[ten-lines]] With a schedule and clipping it gives the same losses as the library's loop. [[same-loop]]
# - The loss after a short run is a U over the learning rate. [[rate-valley]]
# - Skills arrive at different times, while the model comes steadily closer to the floor. [[skills-in-time]]
# - When the loss is NaN, the first bad output of the forward pass shows where. [[first-bad]] Norms of gradients show their size, and a mean can be 0 at any size. [[norms-not-means]]
# - For engineers: a schedule [[schedule]], clipping [[clipping]], accumulation [[accumulation]], exact resuming [[resume]], products but not weights in bf16 [[bf16-products]] [[bf16-weight]], Muon [[muon]].
#
# Next, lesson 12: the model has learned probabilities. How do you write with them?

# %% [markdown] slide="skip"
# ## Sources
# - How to train, and how to find mistakes: Karpathy 2019, [*A Recipe for Training Neural Networks*](https://karpathy.github.io/2019/04/25/recipe/).
# - Adam: Kingma and Ba 2015, [*Adam: A Method for Stochastic Optimization*](https://arxiv.org/abs/1412.6980), algorithm 1. AdamW: Loshchilov and Hutter 2017, [*Decoupled Weight Decay Regularization*](https://arxiv.org/abs/1711.05101), algorithm 2.
# - The cosine: Loshchilov and Hutter 2016, [*SGDR: Stochastic Gradient Descent with Warm Restarts*](https://arxiv.org/abs/1608.03983), equation 5.
# - Clipping: Pascanu, Mikolov and Bengio 2013, [*On the Difficulty of Training Recurrent Neural Networks*](https://arxiv.org/abs/1211.5063), algorithm 1.
# - Stages of learning: Chang and Bergen 2022, [*Word Acquisition in Neural Language Models*](https://arxiv.org/abs/2110.02406).
# - Mixed precision: Micikevicius et al. 2018, [*Mixed Precision Training*](https://arxiv.org/abs/1710.03740), section 3.
# - Muon: Jordan et al. 2024, [*Muon: An Optimizer for Hidden Layers in Neural Networks*](https://kellerjordan.github.io/posts/muon/).
# - BERT: Devlin et al. 2019, [*BERT: Pre-training of Deep Bidirectional Transformers*](https://arxiv.org/abs/1810.04805), section 3.1.
# - GPT-3's steps: Brown et al. 2020, [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165), section 2.
