# %% [markdown] deck="How do scores become probabilities, and how wrong are they?"
# # 03 Softmax
# **How do scores become probabilities, and how do we measure how wrong they are?**
#
# *Needs* lessons 01 and 02. *Builds* `softmax` in `layers.py` and `next_token_loss` in `training/evaluation.py`. *Runs* in about 35 s on two cores.
# *Teaches* in about 45 minutes, plus 23 of exercises.

# %% [markdown] tags=["note"]
# **Say.** The last layer of a model answers one question for each word of the vocabulary, and the answer is a score. Scores can be any numbers. Today we turn them into probabilities, then into a loss, and then we let a table learn from it.
#
# **Usual answers.**
# - *Take the squares, or the absolute values* (`square`): Then -3 beats 2. What must stay true when the numbers become positive?
# - *Set negative scores to 0* (`negative ones become 0`): Then a word with a negative score can never come, and its score gets no gradient, so no training can raise it again.
# - *A shift makes the largest one larger* (from the room): Its exponential grows, and so does the sum. By which factor does each of them grow?
#
# **Cut if short.** The sentence about the sigmoid; lesson 08 comes back to it.
#
# **Tried.** Exact arithmetic: 20 rows of 50 random scores, shifted by -50 to 50, and 20 pairs for the sigmoid.

# %% [markdown]
# ## 1. Scores are not probabilities
# How does the next sentence of this story start?
#
# > Carlos sang to Jamal, "Happy foxes sleep together." Then they traded their things. Afterwards they left Hillcrest for Springfield. \_\_\_
#
# The shipped model of lesson 00, whose tokens are whole words, reads the story from its beginning and computes a number for each token of its vocabulary:

# %%
import torch

from tinylm_lib import layers, storyworld
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
story = storyworld.story(torch.Generator().manual_seed(1)).text
beginning = story[: story.index(" In the end")]
ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (B, T)
scores = model(ids)[0, -1].detach()  # (V)

# %% tags=["source-hidden"] deck="A model gives every word a score"
from tinylm_classroom import exact_after, predict, softmax_figures

shown = torch.cat((scores.topk(10).indices, torch.tensor(tokenizer.encode(" kite"))))
softmax_figures.columns(tokenizer, shown, scores, exact_after(beginning, tokenizer), n_stages=1)

# %% tags=["source-hidden"] deck="Which function makes scores positive and keeps their order?"
predict(
    "We want probabilities: none is negative, and they add up to 1. So all scores have to become positive, and a larger score must stay larger. What does both for the scores 2 and -3?",
    key=lambda: "exponential" if torch.tensor([-3.0, 2.0]).exp().diff() > 0 else "square",
    choices={
        "exponential": "",
        "square": "-3 becomes 9, and 2 becomes 4. Which one is larger now?",
        "absolute value": "-3 becomes 3. Which one is larger now?",
    },
    because="The exponential is positive for every number, and it always rises. (With 0 for all negative scores, such words could never come, and no training could raise their scores.)",
)

# %% tags=["signature", "source-hidden"] slide="subslide" deck="Exponentials, divided by their sum"
softmax_figures.columns(tokenizer, shown, scores, exact_after(beginning, tokenizer))

# %% [markdown] deck="Softmax: exponential, divided by the sum"
# The numbers that a model computes are its **scores**, or **logits**. **Softmax** (Bridle 1990) turns them into a probability for each token, and all of them together are a distribution:
#
# $$p_i = \text{softmax}(x)_i = \frac{\exp(x_i)}{\sum_j \exp(x_j)} \qquad \text{with } \exp(x) = e^x$$


# %% rows=["S0-14"]
def simple_softmax(row: torch.Tensor) -> torch.Tensor:
    powers = row.exp()  # (V)
    return powers / powers.sum()  # (V)


few = torch.tensor([2.0, 1.0, 0.1])
probs = simple_softmax(few)  # (V)
print("exponentials: ", few.exp())
print("probabilities:", probs)
assert [round(p, 3) for p in probs.tolist()] == [0.659, 0.242, 0.099]

# %% deck="All scores grow by 50, and nothing changes"
shift = 50.0  # try 0.0, -20.0 and 100.0
print(simple_softmax(few + shift))

# %% rows=["S1-12"] tags=["source-hidden"] evidence="only-differences" tried="exact"
# Checked: a shift changes no probability, and with two scores softmax is the sigmoid.
rows = torch.randn(20, 50, generator=torch.Generator().manual_seed(3))
rows[0, :3] = torch.tensor([100.0, 101.0, 102.0]) - 102  # they mean the same as -2, -1 and 0
for by in (-1000, -50, 1, 102):
    torch.testing.assert_close(layers.softmax(rows + by, dim=-1), layers.softmax(rows, dim=-1), rtol=1e-3, atol=1e-7)
torch.testing.assert_close(layers.softmax(rows[:, :2], dim=-1)[:, 0], (rows[:, 0] - rows[:, 1]).sigmoid())

# %% [markdown]
# **Only differences count.** $\exp(x + 50)$ is $\exp(x) \cdot \exp(50)$, and this factor is in the numerator and in the denominator. [[only-differences]] (With 100 something else happens. Section 5 explains it.) If two scores differ by 1, one word is $e$ = 2.7183 times as likely as the other. With only two scores there is only one difference $d$, and softmax is $1/(1 + e^{-d})$, the **sigmoid** (lesson 08).

# %% [markdown] tags=["note"]
# **Say.** Adding a number to all scores changes nothing. Dividing them by a number does: it is the dial for how sure the model is. This dial is in every program that writes with a language model.
#
# **Usual answers.**
# - *At half the temperature the ratio doubles* (from the room): The difference of the scores doubles. What is $e^{2d}$ if $e^d$ is the ratio?
# - *At a high temperature the order changes* (from the room): Dividing by a positive number keeps the order. Only the distances change.
# - *Heat makes the model more creative* (from the room): It makes unlikely words more likely, also those that are wrong. Look at the words that cannot come.
#
# **Cut if short.** The third task of the mixing desk; section 5 repeats it.
#
# **Tried.** Exact arithmetic: 20 rows of 50 random scores. At each of seven temperatures from 0.1 to 1,000 the order stays. At 1,000 no probability is 2 % larger than another.

# %% [markdown]
# ## 2. Temperature
# *Dividing* all scores by the same number makes all differences smaller or larger. This number is called the **temperature** $\tau$ (tau):
#
# $$p_i = \frac{\exp(x_i / \tau)}{\sum_j \exp(x_j / \tau)}$$

# %%
everybody, soon = tokenizer.encode(" Everybody Soon")
temperature = 1.0  # try 0.5, 0.1, 5.0 and 1000.0
dialled = layers.softmax(scores / temperature, dim=0)  # (V)
print(f"Everybody {dialled[everybody]:.3f}, Soon {dialled[soon]:.3f}")
print(f"Everybody is {dialled[everybody] / dialled[soon]:.2f} times as likely as Soon")
print(f"the other {len(scores) - 10} words {1 - dialled[shown[:10]].sum():.3f}")

# %% deck="The mixing desk: drag a score, change the temperature"
from tinylm_classroom import softmax_view

top = scores.topk(6)
softmax_view(top.values, [tokenizer.decode([i]) for i in top.indices.tolist()])

# %% [markdown]
# **Your task**, with the six highest scores: (1) Drag *Soon* until it is the most likely word. (2) Find a temperature at which the best word has more than 0.9. (3) Add to all scores until the simple formula breaks. How large is the largest score then?

# %% tags=["source-hidden"] evidence="temperature" tried="exact"
# Checked: the order stays; near 0 the largest score has everything, far up all have the same.
for tau in (0.1, 0.5, 1, 2, 5, 10, 1000):
    at_tau = layers.softmax(rows.double() / tau, dim=-1)  # (20, V)
    assert at_tau.argsort(-1).equal(rows.argsort(-1))
assert at_tau.max() < 1.03 * at_tau.min() and layers.softmax(rows / 1e-4, dim=-1).amax(-1).min() > 0.9

# %% [markdown]
# Half the temperature doubles each difference, so each ratio is squared. Towards 0 softmax becomes a choice of the largest score, an *argmax*. So it is really a **soft argmax**. Towards infinity all tokens get the same probability. The order never changes. [[temperature]] At 5 the words that cannot come have more than the ten together.

# %% [markdown] tags=["note"]
# **Say.** A story continues in one way. The loss asks: which probability did the model give to what came? Its gradient is the simplest formula of the course, and we derive it in two lines.
#
# **Usual answers.**
# - *The last one, because it is the most wrong* (`the third`): It has hardly any probability. What could it give away?
# - *Both in the same way* (`both alike`): Gradient descent takes most where most is wrong.
# - *The gradient of a token without probability* (from the room): It is 0, and -1 if that token comes.
#
# **Cut if short.** The curve of the loss; lesson 00 has explained it.
#
# **Tried.** Exact arithmetic: 20 rows of 50 random scores with random targets, gradient from `backward` against $p - y$.

# %% [markdown]
# ## 3. The loss of a prediction
# The story continued with *In*. As in lesson 00, the loss is minus the logarithm of the probability of what came, in **nats**. It is also called the **negative log-likelihood**.

# %% tags=["source-hidden"] deck="Being sure of something else has a high loss"
came = ("Everybody", "In", "Soon", "kite")
softmax_figures.loss_of_what_comes({w: -scores.log_softmax(0)[tokenizer.encode(f" {w}")].item() for w in came})

# %% [markdown] deck="The loss is log-sum-exp minus the score"
# Write out minus the logarithm of softmax. The logarithm and the exponential cancel, and $t$ is the id of the **target**, the token that came:
#
# $$-\ln \frac{\exp(x_t)}{\sum_j \exp(x_j)} = \ln \sum_j \exp(x_j) - x_t$$
#
# The first term is called **log-sum-exp**. Which way should the scores move, if the second of our three tokens comes?

# %% tags=["source-hidden"] deck="The second token comes. Which score falls most?"
predict(
    "The three scores have the probabilities 0.66, 0.24 and 0.10, and the second token comes. Gradient descent raises its score. Which of the other two scores does it lower more?",
    key=lambda: ["the third", "the first"][int(probs[0] > probs[2])],
    choices={
        "the first": "",
        "the third": "It has hardly any probability to give away.",
        "both alike": "Where is most of the probability that the second token lacks?",
    },
    because="Each score falls in proportion to its own probability. The first has 0.66 of it.",
)


# %% rows=["S4-22"] evidence="p-minus-y" tried="exact"
def loss_of(row: torch.Tensor, target: int) -> torch.Tensor:
    return row.logsumexp(0) - row[target]  # (V) -> ()


target = 1  # try 0 and 2
leaf = few.clone().requires_grad_()
loss_of(leaf, target).backward()
print(f"loss {loss_of(few, target):.4f}, which is -ln {probs[target]:.3f}")
print("gradient:", leaf.grad)
torch.testing.assert_close(loss_of(few, target), -probs[target].log())
torch.testing.assert_close(leaf.grad, probs - torch.eye(3)[target])

# %% [markdown] deck="The gradient is p minus y"
# The derivative of $\;\ln \sum_j \exp(x_j) - x_t\;$ with respect to one score $x_i$ has two terms. The first is $\exp(x_i) / \sum_j \exp(x_j) = p_i$, by the chain rule (lesson 02). The second is 1 for the target and 0 for all others; call it $y_i$.
#
# $$\frac{\partial\,\text{loss}}{\partial x_i} = p_i - y_i$$
#
# **The gradient is the probabilities minus what came.** [[p-minus-y]] If the model is right and sure, hardly any gradient is left.

# %% [markdown] tags=["note"]
# **Say.** With softmax, a loss and its gradient we can train a language model. The simplest one is a table with a row of scores for each token. It sees only one token, but in a few seconds it writes.
#
# **Draw.** A square table. At the left the token that was read, on top the token that comes. Point at the row of *He*: a score for each token, and one softmax.
#
# **Usual answers.**
# - *Random order cannot be learned* (`5.8, knowing nothing`): The order is random, but is *the* not still more common than *kite*?
# - *The same, because the tokens are the same* (`2.1, one token back`): What does the token before say about the next one, after the shuffling?
# - *Then counting is the better training* (from the room): For pairs, yes. Change `n` in the last line.
# - *It writes nonsense, so it has learned nothing* (from the room): Compare it with temperature 3. Nearly every pair of neighbours is possible; only what is further away is lost.
#
# **Cut if short.** Temperature 3.
#
# **Tried.** Ten seeds, each with other stories for training and for the test. New stories: the table 2.15 to 2.19 nats, counting with 0.01 added 2.12 to 2.16, and counting is better in 10 of 10, by 0.02 to 0.03; without anything added it is infinite in 10 of 10 (39 to 77 pairs of 21,000 are new). Rates 0.03, 0.1 and 0.3, three seeds each: 2.23, 2.16 and 2.18 to 2.19. Five times as many updates: 2.15 to 2.16, still 0.02 above counting in 3 of 3; with a rate that falls to 0, 0.003 remain (five seeds). With 1e-9 added, counting has 2.15, and with 1 added 2.47, so it matters how much. Shuffled tokens end at 4.87 to 4.88 in training, slightly below the dotted line, and have 5.5 on new text, because the table has memorized pairs that came by chance. New runs of 8 tokens: 79 to 80 % in three sets.

# %% [markdown]
# ## 4. A table learns to write
# The smallest language model is a table with $V$ rows and $V$ columns. The row of a token has the scores of the token that comes next. This is a **bigram** model, because it knows pairs. At the start all scores are 0, so all tokens have the same probability.
#
# It reads pieces of 2,000 stories, 64 at a time. The mean of their losses is called **cross-entropy**; you will write it in section 5.

# %%
import math

from tinylm_classroom import learned, levels_of_guessing, never_read, show_text
from tinylm_lib import next_token_loss

SEED = 3
V = tokenizer.vocab_size
train_ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(2000, seed=3)))
new_ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(200, seed=4)))


# %% deck="One update: rows, loss, gradient, step"
def train_table(tokens, loss_function=next_token_loss, seed=SEED):
    """Returns the table (V, V) after 200 updates, and the loss at each of them."""
    generator, losses = torch.Generator().manual_seed(seed), []
    table = torch.zeros(V, V, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.1)  # steps down the gradient: lesson 11
    for _ in range(200):
        starts = torch.randint(len(tokens) - 64, (64, 1), generator=generator)
        texts = tokens[starts + torch.arange(65)]  # (B, T + 1)
        # ESSENTIAL
        logits = table[texts[:, :-1]]  # (B, T, V): the row of each token
        loss = loss_function(logits, texts[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # END
        losses.append(loss.item())
    return table.detach(), losses


# %% slide="skip"
runs = [train_table(train_ids, seed=SEED + i) for i in range(3)]
table = runs[0][0]  # (V, V)
order = torch.randperm(len(train_ids), generator=torch.Generator().manual_seed(SEED))
mixed_ids = train_ids[order]
mixed = [train_table(mixed_ids, seed=SEED + i)[1] for i in range(3)]

# %% tags=["source-hidden"] deck="The same tokens in random order: where does the loss end?"
levels = levels_of_guessing(tokenizer)
predict(
    "On stories the loss falls from 5.8 to about 2.1 nats. We train the same table on the same tokens in random order. Where does its loss end?",
    key=lambda: min(levels, key=lambda name: abs(levels[name] - mixed[0][-1])),
    choices={
        "5.8, knowing nothing": "The order is random. But is every token still equally common?",
        "5.0, how common each token is": "",
        "2.1, one token back": "After the shuffling, does a token still say anything about the next one?",
    },
    because="In random order the token before does not help, so each row can only learn how common each token is. (Below 5.0 it learns by heart pairs that came by chance.)",
)

# %% tags=["source-hidden"] deck="The table learns what follows what"
softmax_figures.table_learns({"stories": [losses for _, losses in runs], "shuffled": mixed}, levels)

# %% rows=["S2-14"] tags=["source-hidden"] evidence="bigram-table" tried="held-out"
# Checked: three tables nearly reach the level of pairs on new stories. Random scores of 10,000 tokens begin above 9.21.
for (rows_of, losses), shuffled in zip(runs, mixed, strict=True):
    assert abs(losses[0] - math.log(V)) < 1e-4 and sum(shuffled[-20:]) / 20 > 4.7
    assert abs(next_token_loss(rows_of[new_ids[:-1]], new_ids[1:]) - levels["2.1, one token back"]) < 0.15
noise = 0.3 * torch.randn(60, 30, 10_000, generator=torch.Generator().manual_seed(SEED))
first = torch.stack([next_token_loss(row, torch.arange(30)) for row in noise])  # (60)
assert first.min() < 9.1634 < math.log(10_000) < first.mean() < math.log(10_000) + 0.1

# %% [markdown]
# The first loss is $\ln V$ = 5.8, because all scores are equal (random ones begin slightly higher: lesson 10). Then the table learns nearly all that one token says about the next. [[bigram-table]] Let it write: draw a token from the probabilities, look up its row, and repeat.


# %%
def write(temperature: float, n_tokens: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    written = [tokenizer.encode("\n")[0]]
    for _ in range(n_tokens):
        next_probs = layers.softmax(table[written[-1]] / temperature, dim=0)  # (V)
        written.append(torch.multinomial(next_probs, 1, generator=generator).item())
    return torch.tensor(written)  # (T)


# %% tags=["nbval-ignore-output"] deck="A table of pairs writes"
temperature = 1.0  # try 0.3 and 3.0
show_text(tokenizer.decode(write(temperature).tolist()))

# %% [markdown]
# Nearly all neighbours fit, but the story has no thread, because the table forgets everything except the last token. A better model has to look further back: with **attention** (lesson 05).
#
# ### Learning or counting?
# Could we simply *count* pairs? Say *He* was read four times, and three times *had* came next. The score of *had* in this row gets $p - 1$ three times and $p$ once, and that adds up to 0 if $p$ is three quarters: the **counted fraction**. So on its own training text no table of pairs beats counting. And on new stories?

# %% tags=["nbval-ignore-output"] deck="With 0.01 added to each count, counting beats learning"
pairs = V * train_ids[:-1] + train_ids[1:]  # (N): a number for each pair
counts = torch.bincount(pairs, minlength=V * V).view(V, V)
added = 0.01  # try 0.0, 1e-9 and 1.0
# ESSENTIAL
counted = counts + added
counted = counted / counted.sum(-1, keepdim=True)  # (V, V)
by_counting = next_token_loss(counted.log()[new_ids[:-1]], new_ids[1:])
by_learning = next_token_loss(table[new_ids[:-1]], new_ids[1:])
# END
print(f"counted {by_counting:.3f}, learned {by_learning:.3f} nats per token")

# %% [markdown]
# A little added to each count is called **smoothing**. With 0.01, counting is better than our trained table (2.124 nats against 2.149). With 0 it fails, because a pair that was never counted has the probability 0, and one such pair makes the loss infinite. So why does anybody train models? Because one token is too little, and longer beginnings cannot be counted:

# %% deck="Most long beginnings are new"
n = 8  # try 2, 4 and 12
# ESSENTIAL
new = never_read(train_ids, new_ids, n)
# END
print(f"{100 * new:.1f} % of runs of {n} tokens were never read before")

# %% tags=["source-hidden"] evidence="counting" tried="held-out"
# Checked: in three sets of new stories counting with 0.01 wins for pairs, and ends at long runs.
smooth = (counts + 0.01) / (counts + 0.01).sum(-1, keepdim=True)
for seed in (4, 5, 6):
    other = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(200, seed=seed)))
    by_count = next_token_loss(smooth.log()[other[:-1]], other[1:])
    by_table = [next_token_loss(rows_of[other[:-1]], other[1:]) for rows_of, _ in runs]
    assert counts[other[:-1], other[1:]].min() == 0 and 0.01 < min(by_table) - by_count < 0.1
    assert never_read(train_ids, other, 2) < 0.01 and never_read(train_ids, other, 8) > 0.7

# %% [markdown]
# A longer run was mostly never read before, so counting whole runs says nothing about it. [[counting]] A model that learns can use what different beginnings have in common.

# %% [markdown] tags=["note"]
# **Say.** The formula is right, and still the computer can give NaN. We look for the step where the damage begins, and then repair it with what we know already: only differences count.
#
# **Usual answers.**
# - *1.0, because it is by far the largest* (`1.0`): That is the right probability. Compute the three steps one by one.
# - *inf, because the exponential is inf* (`inf`): It is still divided by the sum, which is inf as well.
# - *`x.max()`, one maximum for everything* (`the largest of all`): A row that is far below it becomes 0 / 0. Each row needs its own maximum.
# - *Take the logarithm of softmax* (`log of softmax`): What is it if the probability has become 0 in fp32?
# - *`.mean()` over all positions* (`padding counts`, `padding costs nothing`): How many targets are there really?
#
# **Cut if short.** The table of means; it belongs to the second exercise.
#
# **Tried.** Exact arithmetic, no seed: scores up to 1,005, each of the three numbers subtracted.

# %% [markdown]
# ## 5. Write it so that it never breaks
# A score of 1005 is allowed. What does our simple function return?

# %% tags=["source-hidden"] deck="Scores 20, 3 and 1005: what is the third probability?"
predict(
    "Exponential, sum, divide, for the scores 20, 3 and 1005. What is the third probability?",
    key=lambda: str(simple_softmax(torch.tensor([20.0, 3.0, 1005.0]))[2].item()),
    choices={
        "1.0": "That would be right. But can fp32 hold e to the power of 1005?",
        "inf": "The exponential is infinite. But it is still divided by the sum: what is the sum?",
        "nan": "",
    },
    because="Its exponential is inf, so the sum is inf as well, and `inf / inf` has no value.",
)

# %% deck="Above 88.72 an exponential is inf, and inf / inf is NaN"
large = torch.tensor([20.0, 3.0, 1005.0])
m = 0.0  # try 342.67 and 1005.0
# ESSENTIAL
powers = (large - m).exp()  # (3)
print("exponentials: ", powers)
print("probabilities:", powers / powers.sum())
# END
print(f"fp32 ends at e to the power of {math.log(torch.finfo(torch.float32).max):.2f}")

# %% tags=["source-hidden"] evidence="maximum-subtracted" tried="exact"
# Checked: of nothing, the mean and the maximum only the maximum keeps all exponentials finite.
assert [(large - m).exp().isfinite().all().item() for m in (0, large.mean(), large.max())] == [False, False, True]

# %% [markdown]
# Above 88.72 an exponential becomes **inf**, and inf / inf is NaN ("not a number"). Only differences count, so we may subtract the largest score $m$ from all:
#
# $$\frac{\exp(x_i)}{\sum_j \exp(x_j)} = \frac{\exp(x_i-m)}{\sum_j \exp(x_j-m)}$$
#
# The largest exponential is then $\exp(0) = 1$. The mean, 342.67, does not help. [[maximum-subtracted]]
#
# ### Many rows at once
# A model returns scores $(B, T, V)$: a row for each position of each text. Each row needs a maximum and a sum of its own, along the axis `dim`. One forgotten word, and no error:

# %% rows=["S1-13"] deck="Without keepdim a square divides by the wrong sums"
square = torch.randn(4, 4, generator=torch.Generator().manual_seed(3)).exp()
keepdim = False  # try True
wrong_or_right = square / square.sum(-1, keepdim=keepdim)  # (4, 4)
print("the rows sum to", wrong_or_right.sum(-1))

# %% [markdown]
# With `keepdim=True` the sums are $(4, 1)$, and broadcasting (lesson 02) divides row by row. Without it, column $j$ is divided by the sum of row $j$. So test with sizes that all differ.
#
# ### Your turn
# Write softmax for any number of axes. `x.amax(dim, keepdim=True)` gives the maximum along an axis.

# %% slide="skip"
from tinylm_classroom import check, diagnose, hint, keep, trace


# %% tags=["exercise"] name="softmax" minutes=8 difficulty=2 deck="Your turn: softmax along any axis"
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

# %% slide="skip"
hint("softmax")

# %% [markdown] tags=["solution"]
# The first line subtracts from each row its own maximum and takes the exponential; the second divides by the sum of the row. Common mistakes: `x.max()`, one maximum for the whole tensor (a row far below it becomes 0 / 0); a fixed `-1` instead of `dim`; `x -= ...`,
# which changes the caller's tensor; and a forgotten `keepdim=True`.

# %% [markdown] slide="skip"
# Here are the steps of the library's version, with the shape of each result:


# %% deck="One maximum and one sum for each row"
def in_steps(x, dim):
    top = x.amax(dim, keepdim=True)
    powers = torch.exp(x - top)
    total = powers.sum(dim, keepdim=True)
    return powers / total


x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(3))  # (B, T, V)
# ESSENTIAL
trace(in_steps, x, dim=-1, sizes={"B": 2, "T": 3, "V": 5})
# END

# %% rows=["S0-13", "S1-11", "S0-15"] tags=["nbval-ignore-output"] evidence="along-one-axis" tried="exact" slide="skip"
for dim in (0, 1, -1):
    torch.testing.assert_close(layers.softmax(x, dim=dim), torch.softmax(x, dim=dim))
    torch.testing.assert_close(layers.softmax(x, dim=dim), in_steps(x, dim))
many = torch.randn(10_000, 50, generator=torch.Generator().manual_seed(3))
sums = layers.softmax(many, dim=-1).sum(-1)  # (10000)
print(f"{(sums == 1).float().mean():.0%} of the rows sum to exactly 1")

# %% [markdown] slide="skip"
# The library agrees with PyTorch and with the steps, along each axis. [[along-one-axis]] In fp32 each probability is rounded, so many rows sum only *nearly* to 1: compare with a tolerance, never with `==`.
#
# ### The loss of a batch
# A batch has many losses, and in a batch all texts have the same length. A short one is filled up with **padding**: a position without a real target has the target **-100** (PyTorch's convention). Take a text with 20 targets and one with 5, whose other 15 positions are padding:

# %% rows=["S4-26"] slide="skip"
long, short = torch.full((20,), 2.0), torch.full((5,), 4.0)  # the losses of two texts
both = torch.cat((long, short))  # (25)
print(f"sum                       {both.sum():5.1f}: grows with the batch")
means = (long.mean() + short.mean()) / 2
print(f"mean of the texts' means  {means:5.1f}: short texts count more")
print(f"mean with padding counted {both.sum() / 40:5.1f}: too low")
print(f"mean over all targets     {both.mean():5.1f}")

# %% [markdown] slide="skip"
# We want the last one: each real target counts the same. Padding must vanish from the sum *and from the count*.
#
# A probability can become 0 in fp32, and its logarithm is then $-\infty$. So compute the loss from the scores: log-sum-exp (`x.logsumexp(-1)`) minus the score of the target. `gather` picks one number from each row. It raises an error for -100, so replace -100 first; a boolean mask then keeps the real ones:

# %% slide="skip"
grid, picks = torch.arange(15.0).view(3, 5), torch.tensor([4, 0, 2])
real = torch.tensor([True, False, True])
picked = grid.gather(-1, picks[..., None])[..., 0]  # (3)
print(grid, picked, picked[real], sep="\n")


# %% tags=["exercise"] name="cross_entropy" minutes=15 difficulty=3 deck="Your turn: the loss of a batch"
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


# %% tags=["check"]
if check("cross_entropy", cross_entropy).passed:
    keep("cross_entropy", cross_entropy)

# %% slide="skip"
hint("cross_entropy")

# %% [markdown] tags=["solution"]
# Log-sum-exp of every row, minus the score of the target, then the mean over the real targets. `gather` picks one score from each row. Its index needs as many axes as the scores, hence `[..., None]`, and the axis of size 1 is removed afterwards. Common mistakes: `.mean()` over all positions, which counts padding; `softmax` followed by `log` (a probability of 0 has an infinite loss); and taking the mean of each text first.

# %% [markdown] slide="skip"
# Does *your* loss train the table of section 4?

# %% slide="skip"
mine = diagnose("cross_entropy", cross_entropy).passed
_, my_losses = train_table(train_ids, cross_entropy if mine else next_token_loss)
print("computed by", "your cross_entropy" if mine else "the library's next_token_loss")
print(f"the loss ends at {learned(my_losses[-1], 1.8, 2.4)} nats per token")

# %% [markdown] tags=["note"]
# **Say.** In section 3 we took the loss of one word. One word does not show whether a probability was good. So we take the mean over everything that can come, and find that it splits into two parts. In StoryWorld we know both.
#
# **Usual answers.**
# - *Yes, its loss was lower than with 0.5* (from the room): This time. How much is its loss if Jamal comes?
# - *Put everything on one of them* (`1.0`): Half of the time the other one comes. What is the loss of a probability of 0?
# - *It makes no difference, on average it cancels* (`no matter which`): From 0.5 to 0.6 the loss of the one falls less than that of the other one rises.
# - *The divergence is a distance* (from the room): Exchange p and q for 0.99, and another number comes out.
#
# **Cut if short.** The line with `given`.
#
# **Tried.** Ten sets of 40 other stories: entropy 0.65 to 0.67 nats per token, KL divergence of the shipped model 0.017 to 0.021 (1.8 to 2.2 nats per story), and their sum is at most 0.004 away from the loss that was measured. The decomposition and the gradient $p - q$: exact arithmetic, 20 pairs of random distributions.

# %% [markdown]
# ## 6. What do wrong probabilities add?
# Earlier in the same story, two people have met. Who acts next?
#
# > One foggy afternoon, careful Carlos came to Hillcrest. He had a pink fan. A gardener named Jamal was there with a gray book. \_\_\_

# %% deck="The model prefers Carlos, and Carlos came. Was that good?"
# ESSENTIAL
meeting = story[: story.index(" Carlos sang")]
ids = torch.tensor([tokenizer.encode("\n" + meeting)])  # (B, T)
p = layers.softmax(model(ids)[0, -1].detach(), dim=0)  # (V)
q = exact_after(meeting, tokenizer)  # (V)
# END
for name in ("Carlos", "Jamal"):
    token = tokenizer.encode(" " + name)[0]
    print(f"{name}: exact {q[token]:.3f}, model {p[token]:.3f}", end=", ")
    print(f"loss {-p[token].log():.2f}, with the exact one {-q[token].log():.2f}")

# %% [markdown]
# Carlos came, so the model's loss was lower than that of the exact probability. With Jamal it would have been higher, and by more. So we take the mean over everything that can come. Let $q_i$ be the exact probability of token $i$, and $p_i$ that of the model. Token $i$ comes with probability $q_i$, and then the loss is $-\ln p_i$:
#
# $$\text{mean loss} = -\sum_i q_i \ln p_i$$

# %% tags=["source-hidden"] deck="Which probability for Carlos has the lowest mean loss?"
to_carlos = torch.arange(1, 100) / 100  # (99)
predict(
    "Carlos and Jamal are equally likely. Which probability for Carlos (the rest goes to Jamal) has the lowest mean loss?",
    key=lambda: f"{to_carlos[(-to_carlos.log() - (1 - to_carlos).log()).argmin()]:.1f}",
    choices={
        "1.0": "Half of the time Jamal comes, and a probability of 0 has an infinite loss.",
        "0.5": "",
        "no matter which": "From 0.5 to 0.6 the loss of Carlos falls by 0.18. By how much does that of Jamal rise?",
    },
    because="The loss of the word that loses probability rises more than the other one falls (0.22 and 0.18 for a step from 0.5 to 0.6), and both come equally often.",
)

# %% tags=["source-hidden"] deck="The mean loss is lowest at the exact probability"
softmax_figures.valleys({"model": p[tokenizer.encode(" Carlos")[0]].item(), "nearly sure": 0.95})

# %% [markdown] deck="Cross-entropy = entropy + KL divergence"
# The mean loss has two parts:
#
# $$-\sum_i q_i \ln p_i = -\sum_i q_i \ln q_i + \sum_i q_i \ln \frac{q_i}{p_i}$$
#
# The first is the **entropy**: the mean loss of the exact probabilities. No model can do better, so it is the floor of lesson 00. The second is the **Kullback-Leibler divergence** (**KL divergence**): what wrong probabilities add. It is 0 only if they are exact. [[entropy-and-divergence]] The gradient of the mean loss is $p - q$, so it leads there.

# %%
given = 0.615  # try 0.5, 0.9 and 0.99
two = torch.tensor([given, 1 - given])  # (2): Carlos, Jamal
entropy, divergence = math.log(2), (0.5 * (0.5 / two).log()).sum()
print(f"{-(0.5 * two.log()).sum():.3f} = {entropy:.3f} + {divergence:.3f} nats")

# %% tags=["source-hidden"] evidence="entropy-and-divergence" tried="exact"
# Checked: for 20 random q and p the parts add up, the gradient is p - q, and only q itself adds 0.
leaf = rows.roll(1, 0).requires_grad_()  # (20, V)
exact, wrong = layers.softmax(rows, dim=-1), layers.softmax(leaf.detach(), dim=-1)  # (20, V) each
mean_losses = (exact * (leaf.logsumexp(-1, keepdim=True) - leaf)).sum(-1)  # (20)
mean_losses.sum().backward()
extra = (exact * (exact / wrong).log()).sum(-1)  # (20)
torch.testing.assert_close(mean_losses.detach(), extra - (exact * exact.log()).sum(-1))
torch.testing.assert_close(leaf.grad, wrong - exact)
assert extra.min() > 0.1

# %% [markdown]
# For ordinary text nobody knows $q$. StoryWorld knows it at every word, so here are both parts for whole stories:

# %% deck="In StoryWorld both parts are known"
from tinylm_classroom import gaps, learn_rule

# ESSENTIAL
SEEDS = range(40)
found = gaps(model, tokenizer, SEEDS)  # one story for each seed
entropy, divergence, loss = (each.mean().item() for each in found)
# END
print(f"entropy {entropy:.3f} + KL divergence {divergence:.3f}")
print(f"together {entropy + divergence:.3f}, measured loss {loss:.3f} nats per token")
print(f"a story has an entropy of {storyworld.entropy_per_story():.1f} nats")
print(f"the model adds {found.divergence.sum() / len(SEEDS):.1f} nats per story")

# %% tags=["source-hidden"] evidence="storyworld" tried="held-out"
# Checked: in three sets of 20 other stories the model adds 0.01 to 0.03 nats per token.
for first in (100, 200, 300):
    other = gaps(model, tokenizer, range(first, first + 20))
    assert 0.01 < other.divergence.mean() < 0.03 and 0.6 < other.entropy.mean() < 0.72
    assert abs(other.entropy.mean() + other.divergence.mean() - other.loss.mean()) < 0.05

# %% [markdown]
# The measured loss is close to the sum: what came is a sample of what can come. The shipped model adds only about 0.02 nats per token to the entropy, [[storyworld]] while the table of section 4 is far above it.

# %% [markdown] tags=["note"]
# **Say.** A very common mistake: the model ends with a softmax, and the loss applies another one. All shapes fit, and the first loss looks right.
#
# **Usual answers.**
# - *0: it is perfect* (`0`): The second softmax sees a 1 and 31 zeros. How much do these scores differ?
# - *ln V* (`3.47`): That is the loss of equal probabilities. Ours differ a little.
# - *Only the loss is wrong, the model learns as well as before* (from the room): Look at the picture, and at the time.
#
# **Cut if short.** The picture; say its result.
#
# **Tried.** With Adam softmax twice needs 0.8, 1.1 and 1.6 times the updates at the rates 0.03, 0.1 and 0.3 (ten seeds): Adam hides the fault, and only the loss shows it. Ten seeds, random scores of standard deviation 3, plain steps. With softmax once, 20 updates at the rates 1, 3 and 10 suffice for all answers in 30 of 30 runs. With softmax twice 2,000 updates suffice in none of 30 (59 to 84 % at the rate 1, 72 to 94 % at 3, 84 to 97 % at 10), and at the rate 1 even 20,000 updates lead to 88 to 97 % in five runs. With standard deviation 1 2,000 updates at the rate 1 suffice and 200 do not (84 to 97 %). A start from zeros shows nothing: one update breaks the tie, so all answers are right while the loss is still 3.465.

# %% [markdown]
# ## 7. Break it: softmax twice
# Suppose that the last line of a model is a softmax. `next_token_loss` takes its probabilities for scores and applies softmax again. No error is raised, because the shapes fit. How low can the loss get?

# %% tags=["source-hidden"] deck="Every answer is perfect, softmax is applied twice: the loss?"
predict(
    "There are 32 tokens, and the model gives the right one a probability of exactly 1. What is its loss if softmax is applied twice?",
    key=lambda: loss_of(torch.eye(32)[7], 7).item(),
    number="nats",
    within=0.2,
    feedback={
        0: "The second softmax sees a 1 and 31 zeros. How much do these scores differ?",
        math.log(32): "That is the loss of equal probabilities. Nearly, but here they differ a little.",
    },
    because="The right token gets e of e + 31 parts, so the loss is ln(e + 32 - 1) - 1.",
)

# %%
for size in (32, 1000, 100_000):
    perfect = torch.zeros(size)
    perfect[7] = 1.0
    print(f"{size:>7,} tokens: knowing nothing {math.log(size):5.2f}", end=", ")
    print(f"perfect {loss_of(perfect, 7):5.2f} nats")

# %% [markdown]
# Scores between 0 and 1 differ too little: the loss never gets below $\ln(e + V - 1) - 1$. And can such a model still learn? A table with 32 rows starts from random scores and learns a fixed rule (after token $t$ comes the remainder of $5t + 3$ divided by 32), five times with softmax once and five times with softmax twice:

# %% tags=["source-hidden"] deck="Softmax twice: 100 times the plain steps are not enough"
SEEDS = range(5)
at = (2, 20, 200, 2000)
right = {"softmax once": learn_rule(False, SEEDS, at), "softmax twice": learn_rule(True, SEEDS, at)}
softmax_figures.once_and_twice(at, right)

# %% tags=["source-hidden"] evidence="softmax-twice" tried="seeds"
# Checked: once, all is right after 20 updates; twice, not after 2,000.
once, twice = right.values()  # (4, 5) each
assert (once[1] == 1).all() and twice[1].max() < 0.5 and twice[3].max() < 1

# %% [markdown]
# With softmax once, 20 updates are enough for every answer. With softmax twice, 2,000 are not. On its way back through the first softmax the gradient is multiplied by the probabilities, so it vanishes where the right token has a probability near 0. So **a model returns scores**, and the loss and the sampler apply softmax. [[softmax-twice]]

# %% [markdown] tags=["note"]
# **Say.** Scores become probabilities, a probability becomes a loss, and the gradient of the loss is the probabilities minus what came. Show the picture of section 1 once more.
#
# **Ask.** At the door: "Why does a model return scores, and not probabilities?"
#
# **Usual answers.**
# - *Because the loss has softmax built in* (from the room): Yes, and because the logarithm of softmax can be computed without overflow only from the scores.
# - *Because temperature needs them* (from the room): Also true. Could you compute the probabilities at another temperature from the probabilities? (Yes, except for those that have become 0.)
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="Scores, softmax, loss, and the gradient p minus y"
# ## What you have now
# - Softmax takes the exponential of each score and divides it by the sum of all, along one axis. [[along-one-axis]]
# - Only differences of scores count. [[only-differences]]
# - The temperature makes the differences larger or smaller and never changes the order. [[temperature]]
# - The maximum is subtracted first, so that no exponential overflows; the mean would not prevent it. [[maximum-subtracted]]
# - The loss of a target is log-sum-exp minus its score, and its gradient is $p - y$. [[p-minus-y]]
# - A table trained with this loss learns what one token says about the next one, and writes. [[bigram-table]]
# - For pairs, counting with a little added to each count is better than our trained table. Plain counting ends where beginnings get long, because most of them are new. [[counting]]
# - The mean loss is the entropy plus the KL divergence, and it is lowest if the probabilities are exact. [[entropy-and-divergence]]
# - In StoryWorld the shipped model adds about 0.02 nats per token to the entropy. [[storyworld]]
# - A model returns scores. With softmax twice the loss has a high limit, and with plain steps our table learned more than a hundred times as slowly. [[softmax-twice]]
#
# Next, lesson 04: how the numbers inside the model keep the same size.

# %% [markdown]
# ## Sources
# - Softmax: Bridle 1990, *Probabilistic Interpretation of Feedforward Classification Network Outputs, with Relationships to Statistical Pattern Recognition*.
# - Overflow and the maximum: Goodfellow, Bengio and Courville 2016, [*Deep Learning*](https://www.deeplearningbook.org), section 4.1; softmax as an output, and why it is a soft argmax: section 6.2.2.3.
# - Temperature: Hinton, Vinyals and Dean 2015, [*Distilling the Knowledge in a Neural Network*](https://arxiv.org/abs/1503.02531), section 2, equation 1.
# - Entropy and cross-entropy: Goodfellow, Bengio and Courville 2016, section 3.13; the divergence: Kullback and Leibler 1951, *On Information and Sufficiency*; entropy: Shannon 1948, *A Mathematical Theory of Communication*.
# - Bigrams, counting and smoothing: Jurafsky and Martin, [*Speech and Language Processing*](https://web.stanford.edu/~jurafsky/slp3/), chapter 3.
