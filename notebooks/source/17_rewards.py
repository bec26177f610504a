# %% [markdown] slide="slide"
# # 17 Rewards
# **Can a model be taught what we want, when nobody can write down the right text?**
#
# *Needs* lessons 03, 11 and 12. *Builds* the losses of `rewards.py`. *Runs* in about 50 s on two cores.
# *Teaches* in about 51 minutes, plus 27 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: if you can judge texts, you can teach a model, by making each text more or less likely according to its judgement. And it has one warning: the model learns what the judge rewards, which is not always what the judge wants.
# Sections 1, 3, 4, 5 and 8 are the core, with two exercises. Section 2 teaches a form from examples, section 6 holds the model near its start, section 7 asks whether it can do anything new, and section 9 is about what large models get.
# While the view of section 1 trains, read the newest story aloud up to its marked word.
# If you have only ten minutes, show the picture of section 1, the coin of section 3, and let the class guess the reward of section 8.
# Before the class: run all cells once, and try the control in section 3 at 0, near the mean reward, and half a point above it.

# %% slide="skip"
import copy
import math
import re
from collections.abc import Callable, Iterator

import torch
from matplotlib import pyplot as plt

from tinylm_lib import rewards, storyworld
from tinylm_classroom import figures, learned, predict, show_text
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# %% [markdown] tags=["note"]
# **Say.** So far every model has learned from texts that somebody had written. Today nobody writes the right text. We only say, of what the model has written itself, whether it is good. Show the picture, and do not explain yet how it works.
#
# **Draw.** A loop: the model writes, a judge gives a number, the model changes a little. Next to it lesson 11's straight line: text in, loss, update.
#
# **Ask.** "Where in your life do you know a good answer when you see one, but could not write it down?" (Jokes, proofs, programs that pass their tests.) Then the prediction.
#
# **Usual answers.**
# - *It comes nearer to the language* (`it comes nearer`): more of its stories are possible, so it should. Look at the second curve.
# - *It stays as it is* (`it stays as it is`): the stories have changed, so the distribution has changed, too.
# - *We could train on the right stories* (from the room): here we could, because StoryWorld can write them. For a proof or a helpful answer often nobody can.
#
# **Cut if short.** The three stories with their first impossible word.

# %% [markdown] slide="slide"
# ## 1. Judging instead of writing
# In training, a model learns to continue a text as its author did (lesson 11). For that, somebody has to write the text. But for many tasks it is much easier to **judge** an answer than to write one: does the program pass its tests, is the proof correct, does a reader like the summary?

# %% [markdown] slide="subslide"
# StoryWorld is such a judge. It knows exactly whether a story contains an impossible word. We pretend that this is all it can do, and that nobody can write a right story for us.

# %% slide="skip"
shipped = load_pretrained("storyworld")
start, tokenizer = shipped.model.eval(), shipped.tokenizer
line_end = tokenizer.encode("\n")


# %%
def possible(ids: list[int]) -> float:
    """1 for a whole story without an impossible word, 0 for any other text."""
    text = tokenizer.decode(ids[1:])  # without the line end in front
    return float(text.endswith("\n") and storyworld.log_prob(text) > -math.inf)


# %% slide="skip"
def beginning(generator: torch.Generator, n_sentences: int = 2) -> list[int]:
    """A line end and the first sentences of a new story, as ids."""
    text = storyworld.story(generator).text
    ends = [end.end() for end in re.finditer(r'\."?', text)]
    return tokenizer.encode("\n" + text[: ends[n_sentences - 1]])


def marked(ids: list[int]) -> str:
    """A story with its first impossible word in brackets."""
    text = tokenizer.decode(ids[1:]).rstrip("\n")
    at = storyworld.parse(text + "\n").error_at
    return text if at is None else f"{text[:at]} [{storyworld.words(text[at:] + ' ')[0].strip()}]{' ...'}"


# %% [markdown] slide="subslide"
# The shipped model gets the first two sentences of a story, and writes the rest. Here are three of 64 stories. Each ends at its first impossible word, in brackets, or at its end:

# %% evidence="mostly-impossible"
source = seeded(17)
prompts = [beginning(source) for _ in range(8)]
options = {"n_each": 8, "max_new_tokens": 97, "stop_ids": line_end}
first_texts = rewards.rollouts(start, prompts, **options, generator=source).texts()
show_text([marked(ids) for ids in first_texts[:24:8]])
n_right = int(sum(map(possible, first_texts)))
print(f"possible: {n_right} of {len(first_texts)} stories")
assert n_right < 0.4 * len(first_texts)

# %% [markdown] slide="subslide"
# Most stories are impossible. [[mostly-impossible]] Now the model learns from the verdicts alone, in a loop: it writes 8 stories to each of 4 beginnings, the judge gives each of them a 1 or a 0, and the model makes the good ones a little more likely and the others less. (How? This is the subject of sections 3 and 4. The library calls it `reinforce`.)


# %% slide="skip"
def batches(n_updates: int, n_sentences: int) -> Iterator[list[list[int]]]:
    source = seeded(0)
    for _ in range(n_updates):
        yield [beginning(source, n_sentences) for _ in range(4)]


# %%
def learning(reward: Callable, n_updates: int, lr: float = 1e-3, n_sentences: int = 2, max_new_tokens: int = 97):
    """A copy of the start, and the updates that it will make."""
    # ESSENTIAL
    model = copy.deepcopy(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    limits = options | {"max_new_tokens": max_new_tokens, "generator": seeded(0)}
    run = rewards.reinforce(model, start, batches(n_updates, n_sentences), reward, optimizer, **limits)
    # END
    return model, run


# %% slide="skip"
from tinylm_lib.storyworld import gaps

held_out = [storyworld.story(seeded(1000 + i)) for i in range(160)]


# %% slide="skip"
def noting(run, model, history, distances):
    """Pass every update on and keep it; after each eighth, measure how far the model is from the language."""
    for update in run:
        history.append(update)
        if update.step % 8 == 0:
            distances.append(gaps(model, tokenizer, held_out))
        yield update


# %% [markdown] slide="say"
# (After some updates a difference in rounding leads to other words, and so to another run; `expected` is the range that we allow.)

# %% slide="subslide"
from tinylm_classroom import rewards_view

history, distances = [], [gaps(start, tokenizer, held_out)]
model, run = learning(possible, n_updates=16)
noted = noting(run, model, history, distances)
await rewards_view(noted, tokenizer, total_steps=16, expected={8: (0.2, 0.6), 16: (0.35, 0.85)})

# %% [markdown]
# The reward rises, and the model moves away from its start. Move the handle back and see where the stories first go wrong.

# %% slide="skip"
right_part = torch.stack([update.rewards.mean() for update in history])  # (16)
in_fours = [part.mean().item() for part in right_part.split(4)]
away = [gap["all"].nats for gap in distances]  # nats per token

# %% tags=["source-hidden"]
predict(
    f"The start was {away[0]:.2f} nats per token away from the language, measured by the KL divergence of lesson 03. Does the model that learns from the verdicts come nearer to the language?",
    key=lambda: "it moves away" if away[-1] > 1.2 * away[0] else "it comes nearer",
    choices={
        "it comes nearer": "More of its stories are stories of this language. But are they the ones that the language tells?",
        "it stays as near": "The model writes other stories than before, so its distribution has changed.",
        "it moves away": "",
    },
    because="Nothing here pulls towards the language: the reward asks only for stories without an impossible word, and updates from few stories also move the model by chance.",
)

# %% tags=["source-hidden", "signature"] slide="subslide"
fig, (left, right) = plt.subplots(1, 2, figsize=(11.4, 5.2), layout="constrained")
left.plot(range(1, 17), right_part, "o", color=figures.SERIES[0], alpha=0.35, markersize=9)
left.plot([2.5, 6.5, 10.5, 14.5], in_fours, "-", color=figures.SERIES[0], linewidth=5)
left.set_title("What we reward", size=23)
left.set_ylabel("possible stories (fraction)", size=18)
left.set(xlim=(0, 16.5), ylim=(0, 0.8))
right.plot([0, 8, 16], away, "o-", color=figures.SERIES[1], linewidth=5, markersize=11)
right.set_title("What it costs", size=23)
right.set_ylabel("nats per token from the language", size=18)
right.set(xlim=(0, 16.5), ylim=(0, 1.25 * max(away)))
for ax in (left, right):
    ax.set_xlabel("updates", size=18)
    ax.tick_params(labelsize=16)
figures.display(
    fig, alt="Two line charts over 16 updates. The fraction of possible stories rises, and the distance from the language rises, too.",
    caption="Left: one dot for the 32 stories of each update, and the means of four updates. Right: the exact KL divergence of the model from the language, on 160 stories that it has not seen.",
    table={"updates": [8, 16], "possible": [learned(in_fours[i], 0.1, 0.9) for i in (1, 3)], "distance": [learned(x, 0.01, 0.3) for x in away[1:]]},
)  # fmt: skip

# %% evidence="both-rise"
print(
    f"possible stories, first and last four updates: {learned(in_fours[0], 0.1, 0.4)}, {learned(in_fours[-1], 0.3, 0.8)}"
)
print(f"distance from the language: {learned(away[0], 0.015, 0.025)} to {learned(away[-1], 0.025, 0.3)} nats per token")
assert in_fours[-1] > in_fours[0] + 0.1 and away[-1] > 2 * away[0]

# %% [markdown]
# Both curves rise. The model writes more stories that are possible, and at the same time its probabilities are farther from those of the language. [[both-rise]] How does this learning work, and what exactly has the model learned?

# %% [markdown] tags=["note"]
# **Say.** Before the rewards, the older way: examples. It is how a model learns the form of an answer. The only new thing is which tokens count in the loss.
#
# **Draw.** One line of tokens: instruction, line end, story. Underline the part whose tokens count in the loss.
#
# **Ask.** "Should the model also learn to predict the instruction?" Collect reasons on both sides before the second run.
#
# **Usual answers.**
# - *More targets teach more* (from the room): they are targets of another task, to write instructions.
# - *The stories become possible, too* (from the room): look at the printed lines. So few examples teach the form here, and most stories stay impossible.
#
# **Cut if short.** The rival with the loss on everything.

# %% [markdown] slide="slide" plan=80
# ## 2. First the form, from examples
# A pretrained model continues texts. It does not follow instructions, because nobody showed it any. The usual first step is **supervised fine-tuning** (SFT): training continues on pairs of an instruction and an answer ([Ouyang et al. 2022](https://arxiv.org/abs/2203.02155)). Our instruction is a line with two names and two things, and the answer is a story about them:

# %% slide="skip"
NAMES, THINGS = (set(storyworld.CLASSES[kind]) for kind in ("name", "thing"))


# %% slide="skip"
def about(text: str) -> list[str]:
    """The names and then the things of a story, in the order in which they appear."""
    said = list(dict.fromkeys(word.strip() for word in storyworld.words(text)))
    return [word for word in said if word in NAMES] + [word for word in said if word in THINGS]


def instruction(story: str) -> list[int]:
    return tokenizer.encode("\n " + " ".join(about(story)) + ".\n")


# %%
example = storyworld.story(seeded(17)).text
show_text({tokenizer.decode(instruction(example)).strip(): f"{example[:120]} ..."})


# %% [markdown] slide="subslide"
# The model should learn to *answer* instructions, not to write them. So only the tokens of the answer count in the loss; the targets in the instruction are -100 (lesson 03):


# %%
def examples(n: int, source: torch.Generator, answer_only: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets (n, T) of instructions with their stories."""
    # ESSENTIAL
    ids, targets = (torch.full((n, 128), fill) for fill in (line_end[0], -100))
    for row in range(n):
        story = storyworld.story(source).text
        asked = instruction(story)
        tokens = (asked + tokenizer.encode(story + "\n"))[:128]
        ids[row, : len(tokens)] = torch.tensor(tokens)
        first = len(asked) if answer_only else 1
        targets[row, first : len(tokens)] = torch.tensor(tokens[first:])
    # END
    return ids[:, :-1], targets[:, 1:]


# %%
from tinylm_lib import next_token_loss


def fine_tune(answer_only: bool):
    model, source = copy.deepcopy(start), seeded(17)
    # ESSENTIAL
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(16):
        ids, targets = examples(16, source, answer_only)
        loss = next_token_loss(model(ids), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    # END
    return model.eval()


# %% slide="skip"
wanted = [storyworld.story(seeded(2000 + i)).text for i in range(32)]
asked = [instruction(story) for story in wanted]
line = torch.tensor([line_end])  # (1, 1)


# %% slide="skip"
@torch.no_grad()
def followed(model) -> dict[str, float]:
    """How much of what was asked the stories contain, how many are possible, and how the model begins unasked."""
    texts = rewards.rollouts(model, asked, 1, 115, stop_ids=line_end, generator=seeded(17)).texts()
    stories = [tokenizer.decode(ids[len(a) :]).strip() for ids, a in zip(texts, asked, strict=True)]
    found = [
        len({*about(story)} & {*about(want)}) / len(about(want)) for story, want in zip(stories, wanted, strict=True)
    ]
    fine = [storyworld.log_prob(story) > -math.inf for story in stories]
    begins = model(line)[0, -1].softmax(-1)[[tokenizer.ids[" " + name] for name in NAMES]].sum().item()
    return {"as asked": sum(found) / 32, "possible": sum(fine) / 32, "begins with a name": begins}


# %% slide="skip"
tuned = {"before": start, "answer only": fine_tune(True), "everything": fine_tune(False)}
form = {name: followed(each) for name, each in tuned.items()}

# %% slide="subslide" evidence="form-learned"
for name, found in form.items():
    print(f"loss on {name:<12}", ", ".join(f"{what} {learned(100 * x, 0, 100)} %" for what, x in found.items()))
asked_for = {name: found["as asked"] for name, found in form.items()}
assert asked_for["answer only"] > 0.25 + max(asked_for["before"], asked_for["everything"])
assert form["answer only"]["possible"] < 0.4
unasked = {name: found["begins with a name"] for name, found in form.items()}
assert max(unasked["before"], unasked["answer only"]) < 0.05 < 0.5 < unasked["everything"]

# %% [markdown]
# (*as asked*: which part of the names and things of the instruction the 32 stories use. *begins with a name*: the probability that a new line starts with a name, as our instructions do, and stories do not.) After 16 updates with the loss on the answer, the stories use most of what the line above names, which is far more than before. Most of these stories are still impossible. With the loss on everything, as many updates have not taught this (more updates would), and left alone the model now begins with a name, which nobody wanted. [[form-learned]]

# %% [markdown] slide="say"
# In StoryWorld we could draw as many right stories as we like, and continue with examples. From here on we pretend again that nobody can write them.

# %% [markdown] tags=["note"]
# **Say.** Forget texts for a moment. The smallest thing that makes a choice is a coin. We want more heads, and we may only throw it and look.
#
# **Draw.** The coin's parameter on a line, the probability of heads as a curve over it, and an arrow: in which direction is more heads? Then the formula, with the one trick underlined.
#
# **Ask.** "The reward is a number that fell from the sky. How can it have a gradient?" (It has none. The probability of the throw has one.) Then the prediction.
#
# **Usual answers.**
# - *Same mean, more spread* (`same mean, larger spread`): yes; let them say why before you show the control.
# - *Both grow tenfold* (`both larger`): only differences between rewards have a direction, so the mean stays.
# - *Nothing changes, because 11 - 10 is 1 - 0* (`nothing changes`): true for the mean. A single throw is multiplied by 10 or 11, though.
# - *Minimise minus reward directly* (from the room): try it; the reward of a throw does not depend on the parameter in any way that autograd could follow.
#
# **Cut if short.** The proof that a baseline does not change the mean.

# %% [markdown] slide="slide"
# ## 3. A coin that wants heads
# The smallest model that makes a choice is a coin. It has one parameter $\theta$ and lands on heads with probability $\sigma(\theta)$. Heads has the reward 1, tails 0. In which direction must $\theta$ move for more reward?

# %%
from torch.nn.functional import logsigmoid

theta = torch.tensor(-1.0, requires_grad=True)
reward_of = torch.tensor([0.0, 1.0])  # tails, heads


def coin(theta: torch.Tensor) -> torch.Tensor:
    """The log-probabilities (2,) of tails and heads."""
    return torch.stack([logsigmoid(-theta), logsigmoid(theta)])


# %%
expected = (coin(theta).exp() * reward_of).sum()
(exact,) = torch.autograd.grad(expected, theta)
print(f"expected reward {expected.item():.3f}, its exact gradient {exact.item():.4f}")

# %% [markdown] slide="subslide"
# That was easy, because we could add up *all* outcomes. A model that writes has too many. We can only let it write and look at rewards, and the reward of one throw is just a number:

# %%
flips = torch.multinomial(coin(theta).detach().exp(), 10_000, replacement=True, generator=seeded(17))  # (10_000)
print("mean reward of 10,000 throws:", round(reward_of[flips].mean().item(), 3))
print("can autograd follow it back to theta?", reward_of[flips].mean().requires_grad)

# %% [markdown] slide="subslide"
# It cannot: nothing flows back through a draw. The **log-derivative trick** ([Williams 1992](https://doi.org/10.1007/BF00992696)) moves the derivative to something that we do know, the log-probability of what was drawn. In this lesson $\log$ is the natural logarithm, as in the papers. Since $\nabla p = p \, \nabla \log p$,
#
# $$\nabla \sum_x p(x)\, R(x) = \sum_x p(x)\, R(x)\, \nabla \log p(x).$$
#
# The right side is a *mean* over draws, of reward times $\nabla \log p$. So we draw, and take that mean:

# %% evidence="trick"
loss = -(reward_of[flips] * coin(theta)[flips]).mean()  # minus, because an optimizer minimizes
(estimate,) = torch.autograd.grad(loss, theta)
print(f"from the throws {-estimate.item():.4f}, exact {exact.item():.4f}")
assert abs(-estimate - exact) < 0.02

# %% [markdown]
# The mean over draws estimates the exact gradient. [[trick]] This is the **policy gradient**; a model that makes choices is called a *policy* in this field. In words: *make what you did more likely, the more so the larger its reward.*

# %% [markdown] slide="subslide"
# ### A baseline
# Now let the rewards be 10 for tails and 11 for heads. Only the difference matters to us, and the exact gradient is the same. Is the estimate?


# %%
def estimates(baseline: float, n_batches: int = 1000, n_flips: int = 20) -> torch.Tensor:
    """The gradient, estimated from each of many batches of throws, (n_batches,)."""
    p = coin(theta).detach().exp()
    flips = torch.multinomial(p, n_batches * n_flips, replacement=True, generator=seeded(17)).view(n_batches, -1)
    slopes = torch.stack([-p[1], p[0]])  # the gradient of the log-probability of tails and of heads
    return ((10 + reward_of[flips] - baseline) * slopes[flips]).mean(1)


# %% slide="skip"
p_heads = coin(theta)[1].exp().item()
mean_reward, best_baseline = 10 + p_heads, 11 - p_heads  # why it is the best: below
without, balanced = estimates(0.0), estimates(mean_reward)

# %% tags=["source-hidden"]
same_mean = abs(without.mean() - exact).item() < 4 * (without.std() / 1000**0.5).item()
predict(
    "With rewards of 10 and 11 instead of 0 and 1: how do estimates from batches of 20 throws change?",
    key=lambda: "same mean, larger spread" if same_mean and without.std() > 5 * balanced.std() else "both larger",
    choices={
        "nothing changes": "The difference of the rewards is the same, but each throw is multiplied by its whole reward.",
        "same mean, larger spread": "",
        "both larger": "On average the 10 pushes heads and tails equally hard, in opposite directions.",
    },
    because="The 10 multiplies a slope whose mean is 0, so it adds nothing on average, and a lot of noise.",
)


# %% slide="skip"
def spread(baseline: float = 0.0) -> None:
    """Draws the estimates of 1000 batches with this baseline."""
    found = estimates(baseline)
    fig, ax = plt.subplots(figsize=(9.6, 4.2), layout="constrained")
    counts, edges, _ = ax.hist(found.tolist(), bins=40, range=(-4, 4), color=figures.SERIES[0])
    ax.axvline(exact.item(), color=figures.SERIES[1], linewidth=3)
    ax.set(title=f"Baseline {baseline:g}", xlabel="estimated gradient", ylabel="batches of 20 throws", xlim=(-4, 4))
    figures.display(
        fig, alt="Histogram of gradient estimates around the exact gradient, which is a vertical line.",
        caption=f"Mean {found.mean():.2f}, standard deviation {found.std():.2f}. The line is the exact gradient.",
        table={"from": edges[:-1:8].tolist(), "batches": counts.reshape(5, 8).sum(1).astype(int).tolist()}, digits=2,
    )  # fmt: skip


# %% slide="subslide"
from tinylm_classroom import control

control(spread, baseline=(0.0, 12.0, 0.25))

# %% slide="subslide" evidence="baseline"
for name, baseline in {"none": 0.0, "mean reward": mean_reward, "best": best_baseline, "too high": 12.0}.items():
    found = estimates(baseline)
    print(f"{name:<11} {baseline:5.2f}: mean {found.mean():.2f}, standard deviation {found.std():.4f}")
    assert abs(found.mean() - exact) < 4 * found.std() / 1000**0.5 + 1e-5
assert without.std() > 10 * balanced.std() > 100 * estimates(best_baseline).std()

# %% [markdown]
# Whatever number we subtract from all rewards, the mean of the estimates stays the exact gradient, within chance, because the mean of $\nabla \log p$ is 0. With the mean reward $10 + p$, where $p$ is the probability of heads, the estimates scatter far less than without. The subtracted number $b$ is the **baseline**, and reward minus baseline is the **advantage**: *was this better than usual?*

# %% [markdown]
# The mean reward is not the best baseline, though. Heads contributes $(11 - b)(1 - p)$ to an estimate, tails $-(10 - b)\,p$. These are equal for $b = 11 - p$, and then every throw gives the exact gradient. [[baseline]] In general the best baseline weights each reward by the square of $\nabla \log p$ ([Greensmith et al. 2004](https://www.jmlr.org/papers/v5/greensmith04a.html)). For texts that would require a gradient of each text by itself. The mean of the rewards needs nothing but the rewards, and already removes most of the spread, so it is used all the same.

# %% [markdown] slide="subslide"
# ### Your turn
# For texts the loss is the same, and a text is many draws. Its log-probability is the sum over its tokens, and all of them get the advantage of the text.

# %% slide="skip"
from tinylm_classroom import check, diagnose, hint, keep, show, trace


# %% tags=["exercise"] name="policy_gradient_loss" minutes=9 difficulty=2
def policy_gradient_loss(log_probs, advantages, mask):
    """log_probs (B, T): of each token, by the model. advantages (B,): of each text. mask (B, T): True where the model
    has written the token, False in the prompt and behind the end.

    Returns (): minus the mean of advantage times log-probability over all written tokens of the batch, so that every
    written token counts the same. Advantages are given numbers: no gradient flows into them.
    """
    # SOLUTION
    gained = log_probs * advantages.detach()[:, None]
    return -gained[mask].mean()
    # END


# %% tags=["check"]
if check("policy_gradient_loss", policy_gradient_loss).passed:
    keep("policy_gradient_loss", policy_gradient_loss)

# %%
hint("policy_gradient_loss")

# %% [markdown] tags=["solution"]
# `[:, None]` gives the advantages a second axis, so that each row is multiplied by its own; the mask then selects the written tokens, and one mean goes over all of them. Common mistakes: to forget the minus; to count the prompt, which the model did not choose; to average each text first, which makes a token of a short text count more; to let the gradient flow into the advantages.

# %% [markdown] tags=["note"]
# **Say.** From the coin to texts there is one decision: which baseline? Usual compared with what? We let the model write several texts to the same beginning and compare these with one another.
#
# **Draw.** Two beginnings, an easy one and a difficult one, with 8 dots each, for 1 and 0. Draw the mean of each group, and then the one mean of all: under it the difficult group is all bad luck.
#
# **Ask.** "What do we learn from a group in which all 8 stories are impossible?" (Nothing: all advantages are 0.)
#
# **Usual answers.**
# - *The mean of all stories* (`mean over the whole batch`): it works, too, but then a text is also punished for a difficult beginning.
# - *Divide by the standard deviation* (`divided by the spread`): the first GRPO does; Liu et al. 2025 leave it out. Both are in the library.
# - *A second model should guess the mean* (from the room): that is PPO's critic. A group needs no second model.
#
# **Cut if short.** The shape trace.

# %% [markdown] slide="slide"
# ## 4. From a coin to stories
# For a coin, the mean reward was a good baseline. For stories it depends on the beginning, because some are more difficult than others. So we let the model write **a group** of stories to the same beginning, and take the group's mean. This is the idea of *GRPO* ([Shao et al. 2024](https://arxiv.org/abs/2402.03300)), which needs no second model to guess how good a story usually is.

# %%
verdicts = torch.tensor([possible(ids) for ids in first_texts]).view(8, 8)  # (P, K), a row for each beginning
print("possible stories of each group:", verdicts.sum(1).int().tolist())
print("first group: ", verdicts[0].tolist())
print("minus its mean:", [round(x, 2) for x in (verdicts[0] - verdicts[0].mean()).tolist()])


# %% [markdown] slide="subslide"
# ### Your turn


# %% tags=["exercise"] name="group_advantages" minutes=4 difficulty=1
def group_advantages(rewards):
    """rewards (P, K): K texts to each of P beginnings. Returns (P, K): each reward minus the mean of its group."""
    # SOLUTION
    return rewards - rewards.mean(1, keepdim=True)
    # END


# %% tags=["check"]
if check("group_advantages", group_advantages).passed:
    keep("group_advantages", group_advantages)

# %%
hint("group_advantages")

# %% [markdown] tags=["solution"]
# The mean over axis 1 has one number for each group; `keepdim=True` keeps the axis, so that it is subtracted from its own row. Without it PyTorch subtracts along the wrong axis where the sizes allow it, and raises no error.

# %% slide="skip"
mine = all(diagnose(f.__name__, f).passed for f in (policy_gradient_loss, group_advantages))


def library_loss(log_probs, advantages, mask):
    """The loss of the library, with the same gradient."""
    return rewards.policy_loss(log_probs, log_probs.detach(), advantages, mask)


loss_function = policy_gradient_loss if mine else library_loss
advantage_function = group_advantages if mine else rewards.group_advantages

# %% [markdown] slide="subslide"
# With these two functions we can follow a batch from the ids to the loss: P beginnings with K texts each make B texts.


# %%
def loss_of_stories(model, ids, verdicts, mask):
    log_probs = model(ids[:, :-1]).log_softmax(-1)  # (B, T) -> (B, T, V)
    drawn = log_probs.gather(-1, ids[:, 1:, None]).squeeze(-1)  # (B, T, 1) -> (B, T)
    advantages = advantage_function(verdicts).flatten()  # (P, K) -> (B)
    return loss_function(drawn, advantages, mask)


# %% slide="subslide"
batch = rewards.rollouts(
    start, [prompts[0], prompts[0]], n_each=3, max_new_tokens=97, stop_ids=line_end, generator=seeded(17)
)
n_prompt = batch.ids.shape[1] - batch.mask.shape[1]
written = torch.cat((torch.zeros(6, n_prompt - 1, dtype=torch.bool), batch.mask), dim=1)  # (B, T)
six = torch.tensor([[1.0, 0, 0], [1, 1, 0]])  # verdicts, made up
sizes = {"B": 6, "P": 2, "K": 3, "T": written.shape[1], "V": tokenizer.vocab_size}
trace(loss_of_stories, start, batch.ids, six, written, sizes=sizes)

# %% [markdown] slide="subslide"
# The library's `policy_loss` is written with a ratio of probabilities, which matters when the same texts are used for several updates (*clipping*, [Schulman et al. 2017](https://arxiv.org/abs/1707.06347)). In the first update its gradient must be that of our loss. So we train two models from the same start, one with the functions above and one with `reinforce`:

# %% slide="skip"
settings = options | {"n_each": 4}
by_hand, by_library = copy.deepcopy(start), copy.deepcopy(start)
optimizers = [torch.optim.AdamW(each.parameters(), lr=5e-4, weight_decay=0.0) for each in (by_hand, by_library)]


# %%
def one_update(model, optimizer, prompts, source) -> None:
    texts = rewards.rollouts(model, prompts, **settings, generator=source)
    verdicts = torch.tensor([possible(ids) for ids in texts.texts()]).view(len(prompts), -1)  # (P, K)
    n_first = texts.ids.shape[1] - texts.mask.shape[1] - 1
    mask = torch.nn.functional.pad(texts.mask, (n_first, 0))  # the prompt was not written
    optimizer.zero_grad()
    loss_of_stories(model, texts.ids, verdicts, mask).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


# %%
source = seeded(3)
for _ in range(2):
    one_update(by_hand, optimizers[0], prompts[:2], source)
source = seeded(3)
run = rewards.reinforce(by_library, start, [prompts[:2]] * 2, possible, optimizers[1], **settings, generator=source)
n_updates = len(list(run))


# %% evidence="same-step"
def largest_difference(one, other) -> float:
    both = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in both)


moved, apart = largest_difference(by_hand, start), largest_difference(by_hand, by_library)
print("computed with", "your two functions" if mine else "the library's functions")
print(f"in {n_updates} updates a weight moved by up to {moved:.4f}")
print(f"the two models differ by less than a hundredth of that: {apart < moved / 100}")
assert apart < moved / 100

# %% [markdown]
# Both are the same two updates. [[same-step]] The loop of section 1 is this and nothing more, with more stories.

# %% slide="skip"
show(rewards.policy_loss, rewards.group_advantages)

# %% [markdown] slide="subslide"
# How much does a group teach? If all its stories are right, or all are wrong, its advantages are 0. Let us look at the 16 updates of section 1 again:

# %% evidence="silent-groups"
groups = torch.cat([update.rewards for update in history])  # (64, 8)
silent = (groups.std(1) == 0).view(4, 16).float().mean(1).tolist()  # of each four updates
all_wrong = (groups.sum(1) == 0).float().mean().item()
print("groups without any difference, in each four updates:", [learned(x, 0, 0.6) for x in silent])
print(f"groups in which all 8 stories are impossible: {learned(all_wrong, 0, 0.5)}")
assert rewards.group_advantages(groups[groups.std(1) == 0]).abs().sum() == 0

# %% [markdown]
# Such a group costs as much as any other, and teaches nothing. [[silent-groups]] A task that the model never solves cannot be learned in this way, and neither can one that it always solves.

# %% [markdown] tags=["note"]
# **Say.** The reward went up. Now be the one who is not convinced. What else could have happened, other than that it learned to tell stories correctly?
#
# **Draw.** Two ways to get fewer mistakes: do the difficult thing better, or do the difficult thing less often. Write both on the board, and collect measurements that tell them apart.
#
# **Ask.** The prediction. Then: "Is this cheating?" (It did exactly what we rewarded.)
#
# **Usual answers.**
# - *It knows better who has what* (`it knows better who has what`): the held-out stories measure this. Look at the third line.
# - *It writes shorter stories* (`it writes shorter stories`): a good suspicion; the language has no much shorter ones.
# - *It tells the difficult sentences less often* (`it avoids the difficult sentences`): yes; and how much does that explain? The four bars.
#
# **Cut if short.** The split into two parts.

# %% [markdown] slide="slide"
# ## 5. What did it learn, and what did that cost?
# More stories are possible now. That can have two reasons: the model does the difficult thing *better*, or it does the difficult thing *less often*. Both give the same reward. Look at how the same model continued three beginnings before and after the 16 updates:

# %% slide="skip"
look_options = options | {"n_each": 16}
new_prompts = [beginning(seeded(500 + i)) for i in range(8)]
drawn = {
    name: rewards.rollouts(each, new_prompts, **look_options, generator=seeded(17))
    for name, each in (("before", start), ("after", model))
}
written_by = {name: texts.texts() for name, texts in drawn.items()}

# %%
for row in (0, 16, 32):
    ends = {name: marked(texts[row]).partition(". ")[2].partition(". ")[2] for name, texts in written_by.items()}
    show_text({name: f"... {end}" for name, end in ends.items()})

# %% [markdown] slide="subslide"
# A story may have **gifts** (somebody gives or hands something to the other), a **trade** of both things, or both. StoryWorld's rule is simple: nobody gives away what the other one has. In lesson 12, a gift of the wrong thing was about as probable as one of the right thing.


# %%
def has_gift(ids: list[int]) -> bool:
    return bool({" gave", " handed"} & set(storyworld.words(tokenizer.decode(ids[1:]))))


# %% slide="skip"
def mean(values) -> float:
    values = list(values)
    return sum(values) / max(1, len(values))


gifts, fine_with, fine_without = {}, {}, {}
for name, texts in written_by.items():
    gifts[name] = mean(map(has_gift, texts))
    fine_with[name] = mean(possible(ids) for ids in texts if has_gift(ids))
    fine_without[name] = mean(possible(ids) for ids in texts if not has_gift(ids))

# %% tags=["source-hidden"]
n_words = {name: texts.mask.sum(1).float().mean().item() for name, texts in drawn.items()}
fewer = gifts["after"] < 0.7 * gifts["before"]
predict(
    "What does the model do differently after the 16 updates?",
    key=lambda: "it avoids the difficult sentences" if fewer else "it knows better who has what",
    choices={
        "it knows better who has what": "Then stories with a gift would now mostly be possible. The next cells count them.",
        "it avoids the difficult sentences": "",
        "it writes shorter stories": f"Before it wrote about {n_words['before']:.0f} words, and now about {n_words['after']:.0f}.",
    },
    because="It writes far fewer gifts. Stories without a gift were more often possible before, too.",
)

# %% slide="subslide" evidence="avoids"
for name in written_by:
    parts = [learned(100 * x, 0, 100) for x in (gifts[name], fine_with[name], fine_without[name])]
    print(f"{name:<6} stories with a gift {parts[0]} %; possible with one {parts[1]} %, without {parts[2]} %")
# ESSENTIAL
mix_alone = gifts["after"] * fine_with["before"] + (1 - gifts["after"]) * fine_without["before"]
skill_alone = gifts["before"] * fine_with["after"] + (1 - gifts["before"]) * fine_without["after"]
# END
whole = [mean(map(possible, texts)) for texts in written_by.values()]
print(f"possible stories: {learned(whole[0], 0.1, 0.4)} before, {learned(whole[1], 0.3, 0.8)} after")
print(f"if only the number of gifts had changed: {learned(mix_alone, 0.2, 0.7)}")
print(f"if only the care had changed: {learned(skill_alone, 0.1, 0.6)}")
progress = whole[1] - whole[0]
n_with = gifts["before"] * 128
error = math.sqrt(
    sum(p * (1 - p) / n for p, n in ((fine_with["before"], n_with), (fine_without["before"], 128 - n_with)))
)
print(f"part of the progress: {learned((mix_alone - whole[0]) / progress, 0.5, 2)} from the number of gifts alone")
assert gifts["after"] < 0.7 * gifts["before"] and fine_without["before"] > fine_with["before"] + 2 * error
# ESSENTIAL
assert mix_alone - whole[0] > 0.5 * progress > skill_alone - whole[0]
# END

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(9.6, 4.6), layout="constrained")
bars = {
    "before": whole[0],
    "fewer gifts,\nsame care": mix_alone,
    "same gifts,\nnew care": skill_alone,
    "after": whole[1],
}
hues = [figures.QUIET, figures.SERIES[1], figures.SERIES[2], figures.SERIES[0]]
ax.bar(range(4), bars.values(), 0.7, color=hues)
for i, height in enumerate(bars.values()):
    ax.text(i, height + 0.01, f"{height:.2f}", ha="center", size=18)
ax.set_xticks(range(4), bars, size=16)
ax.set(title="Better, or only more cautious?", xlabel="", ylabel="possible stories (fraction)", ylim=(0, 0.75))
ax.set_xlabel("stories", size=16)
figures.display(
    fig, alt="Four bars. With fewer gifts alone more than half of the progress is there, with the new care alone less than half.",
    caption="The two bars in the middle combine the stories from before and after: the number of gifts of one, and the success with and without a gift of the other.",
    table={"what changed": ["nothing", "gifts", "care", "both"], "possible": [learned(x, 0.1, 0.8) for x in bars.values()]},
)  # fmt: skip

# %% [markdown] slide="subslide"
# Before the training, stories with a gift failed more often than stories without one, by more than two standard errors. And the model now writes gifts in far fewer stories. Suppose that it had only changed *how often* it writes a gift, and were as careful as before with and without one: this alone gives more than half of the progress. If it had only become more careful, and had kept its gifts, there would be less than half of it. [[avoids]] It has mainly learned to **avoid** what it gets wrong.

# %% [markdown] slide="subslide"
# Does it at least know better who has a thing? We ask it about stories that *the language* tells, where it cannot avoid anything:

# %% evidence="not-better"
for n_updates, gap in zip((0, 8, 16), distances, strict=True):
    right, nats = learned(100 * gap["owner"].right, 50, 85), learned(gap["owner"].nats, 0.2, 1.5)
    print(f"after {n_updates:>2} updates: owner right {right} %, loss above the floor {nats} nats;", end=" ")
    print(f"all words {learned(gap['all'].nats, 0.015, 0.3)}")
first, last = (distances[i]["owner"] for i in (0, -1))
error = math.sqrt((first.right * (1 - first.right) + last.right * (1 - last.right)) / first.n_words)
print(f"{first.n_words} owners: a change has a standard error of at most {learned(100 * error, 2, 5)} points")
assert last.right - first.right < 2 * error and last.nats > first.nats
assert distances[-1]["all"].nats > 2 * distances[0]["all"].nats

# %% [markdown]
# If the model puts the right owner first more often than before, then by less than two standard errors. Its loss on these words has become larger, not smaller, and on all words together it is farther from the language. [[not-better]] This is called **reward hacking**: the reward rises, and what we had in mind does not. Here we can measure it exactly, because we know the language. For most models nobody can.

# %% [markdown] tags=["note"]
# **Say.** The usual medicine: a leash. The model may change, but each step away from where it started has a price.
#
# **Draw.** A dog, a post, and a sausage. The leash is the penalty, and its length is 1 over beta.
#
# **Ask.** "What happens with a very long leash, and with a very short one?" Let the class draw possible stories over the distance before you show the picture.
#
# **Usual answers.**
# - *The plain log-ratio is enough* (`log-ratio alone`): its mean is right, but single tokens can be negative, and near the start it scatters more. The cells behind the exercise measure this.
# - *Ratio the other way round* (`exchanged`): the texts come from the model, so the ratio has the model below.
# - *Why not simply stop earlier?* (from the room): that is a good rival: the square in the picture is an earlier stop without a penalty. Compare it with the other marks.
#
# **Cut if short.** The comparison of the two estimators.

# %% [markdown] slide="slide" plan=80
# ## 6. A leash
# The model should improve and stay near the model it was. So one adds a **penalty**: $\beta$ times the KL divergence from the start. [Stiennon et al. 2020](https://arxiv.org/abs/2009.01325) subtract it from the reward; GRPO adds it to the loss, as we do. The start is called the *reference*. To compute the divergence exactly, one needs the probabilities of all words at each position. From the tokens that were drawn it can be estimated:
#
# $$\text{KL} \approx \text{mean of } r - \log r - 1, \qquad r = \frac{p_\text{reference}(\text{token})}{p(\text{token})}.$$

# %% [markdown] slide="say"
# Why not simply the mean of $-\log r$? It has the right mean, too. But with $r - 1$, which is 0 on average, every token has at least 0, and while r is near 1 the estimate scatters less ([Schulman 2020](http://joschu.net/blog/kl-approx.html)).

# %% [markdown] slide="subslide"
# ### Your turn


# %% tags=["exercise"] name="kl_penalty" minutes=7 difficulty=2
def kl_penalty(log_probs, reference_log_probs, mask):
    """log_probs, reference_log_probs (B, T): of each token, by the model and by the reference. mask (B, T): True where
    the model has written the token.

    Returns (): the mean of r - log r - 1 over all written tokens, where r is the token's probability by the reference
    divided by that by the model. The gradient flows through log_probs.
    """
    # SOLUTION
    log_ratio = reference_log_probs - log_probs
    return (log_ratio.exp() - log_ratio - 1)[mask].mean()
    # END


# %% tags=["check"]
if check("kl_penalty", kl_penalty).passed:
    keep("kl_penalty", kl_penalty)

# %%
hint("kl_penalty")

# %% [markdown] tags=["solution"]
# The logarithm of a ratio is a difference of logarithms, and `exp` gives the ratio. Common mistakes: to exchange model and reference; to forget the 1, so that equal models have a distance; to count tokens of the prompt.

# %% slide="skip"
penalty_function = kl_penalty if diagnose("kl_penalty", kl_penalty).passed else rewards.kl_penalty
whose = "your kl_penalty" if penalty_function is kl_penalty else "the library's kl_penalty"


# %% slide="skip"
@torch.no_grad()
def at_answers(model, texts: rewards.Rollouts) -> torch.Tensor:
    """The log-probabilities (B, N, V) at the tokens that were written."""
    logits = model(texts.ids[:, :-1], padding=texts.padding)[:, -texts.mask.shape[1] :]  # (B, N, V)
    return logits.log_softmax(-1)


def of_drawn(log_probs: torch.Tensor, texts: rewards.Rollouts) -> torch.Tensor:
    return log_probs.gather(-1, texts.ids[:, -texts.mask.shape[1] :, None]).squeeze(-1)  # (B, N)


# %% slide="skip"
near = rewards.rollouts(by_hand, new_prompts, **settings, generator=seeded(17))
compared = {}
for name, policy, texts in (("after 2 updates", by_hand, near), ("after 16 updates", model, drawn["after"])):
    now, then = at_answers(policy, texts), at_answers(start, texts)
    ours, theirs = of_drawn(now, texts), of_drawn(then, texts)
    log_ratio = (theirs - ours)[texts.mask]
    exact_kl = rewards.kl_divergence(now, then)[texts.mask]  # of each token
    better = log_ratio.exp() - log_ratio - 1
    error = ((better - exact_kl).std() / len(better) ** 0.5).item()
    estimated = penalty_function(ours, theirs, texts.mask).item()
    compared[name] = exact_kl.mean().item(), estimated, error, -log_ratio, better

# %% evidence="two-estimators"
print("estimated with", whose)
for name, (exact_kl, estimated, error, plain, better) in compared.items():
    print(
        f"{name}: exact {learned(exact_kl, 1e-6, 0.3)}, estimated {learned(estimated, 1e-6, 0.3)} nats per token,",
        end=" ",
    )
    print(f"standard error {learned(error, 1e-7, 0.05)}")
    spreads = [learned(each.std().item(), 1e-6, 5) for each in (plain, better)]
    print(f"   spread of a token: {spreads[0]} for -log r alone, {spreads[1]} for r - log r - 1")
    assert abs(estimated - exact_kl) < 4 * error and (better > -1e-6).all() and (plain < 0).any()
ratios = [(better.std() / plain.std()).item() for *_, plain, better in compared.values()]
assert ratios[0] < 0.6 and ratios[1] > 1.5 * ratios[0]

# %% [markdown]
# The estimates agree with the exact divergences within a few standard errors, and no token has less than 0. Near the start the tokens also scatter far less than with the plain logarithm. For the model that has moved farther this advantage is smaller or gone, because for a few tokens r is large. [[two-estimators]]

# %% [markdown] slide="subslide"
# ### How far must it go?
# How much distance do so many possible stories cost at least? For reward minus $\beta$ times the KL divergence of a whole story, the best model of all is known ([Rafailov et al. 2023](https://arxiv.org/abs/2305.18290), section 4): it is the start, with the probability of each text multiplied by $e^{R/\beta}$, and divided by a number that makes the sum 1 again. All possible stories become more likely *by the same factor*, and so do not change among themselves.


# %%
def best_model(q: torch.Tensor, beta: float) -> tuple[float, float]:
    """Possible stories, and nats per story from the start, for beginnings with a fraction q (N,) of possible ones."""
    up = q * math.exp(1 / beta)
    p = up / (up + 1 - q)
    kl = torch.xlogy(p, p / q.clamp(min=1e-9)) + torch.xlogy(1 - p, (1 - p) / (1 - q))
    return p.mean().item(), kl.mean().item()


# %% slide="skip"
q = torch.tensor([possible(ids) for ids in written_by["before"]]).view(8, 16).mean(1).clamp(max=0.999)  # (8)
frontier = {beta: best_model(q, beta) for beta in (2, 1, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2)}
n_words_after = drawn["after"].mask.sum(1).float().mean().item()
here = whole[1], compared["after 16 updates"][0] * n_words_after  # possible stories, nats per story

# %% [markdown] slide="subslide"
# Does our training with a penalty find such a model? A single training with it takes as long as the whole lesson, so the runs below are recorded: 40 updates with `beta` 0, 0.03, 0.1 and 0.3, three seeds each, on two cores with `python tools/rewards.py`. Each model then wrote 64 stories to each of 8 other beginnings, and its exact KL divergence from the start was taken at every word of them.

# %% tags=["source-hidden"] slide="skip"
# run, seed; possible stories, nats per token from the start, from the language, words, its own owners right, gifts and
# owner sentences in its stories, possible stories with such a sentence, owners of held-out stories right, own owners
RECORDED = """
start 0 0.191 0 0.0202 89.2 0.687 1.15 0.617 0.092 0.667 134; possible 0 0.852 0.0752 0.146 84.3 0.333 0.0254 0.0312 0.01 0.675 15
possible 1 0.656 0.123 0.137 82.4 0.56 0.0332 0.082 0.025 0.675 25; possible 2 0.795 0.082 0.139 84.3 0.579 0.0293 0.0391 0.02 0.665 19
64-stories 0 0.906 0.0756 0.151 85.3 0.667 0.00977 0.0117 0.008 0.677 6; kl-0.03 0 0.74 0.0561 0.0879 84.4 0.571 0.109 0.0605 0.029 0.708 28
kl-0.03 1 0.732 0.0563 0.0935 84.2 0.421 0.0898 0.0859 0.029 0.658 38; kl-0.03 2 0.777 0.0643 0.104 83.9 0.65 0.0898 0.0859 0.049 0.661 40
kl-0.1 0 0.457 0.0847 0.0612 86.6 0.579 0.414 0.275 0.08 0.628 95; kl-0.1 1 0.545 0.0311 0.0528 85.9 0.529 0.287 0.203 0.066 0.636 87
kl-0.1 2 0.484 0.0559 0.0582 85.6 0.444 0.318 0.287 0.072 0.64 108; kl-0.3 0 0.225 0.00879 0.0285 87.4 0.621 0.894 0.516 0.084 0.661 124
kl-0.3 1 0.258 0.012 0.0283 87.4 0.685 0.883 0.469 0.105 0.644 127; kl-0.3 2 0.27 0.01 0.0283 87.7 0.618 0.766 0.565 0.109 0.687 152
hard 0 0.449 0.0906 0.146 83.6 0.611 0.0644 1 0.449 0.671 421; hard 1 0.35 0.0804 0.129 83.6 0.487 0.0762 0.996 0.348 0.689 431
hard 2 0.248 0.155 0.196 84 0.507 0.15 0.99 0.246 0.689 345; no-error 0 0.475 0.0302 0.0555 84.5 0.523 0.27 0.375 0.121 0.704 149
coin 0 0.00195 1.3 0.296 102 0.8 1.3 0.66 0.002 0.628 5; coin 1 0.201 0.0235 0.0445 90.2 0.71 1.31 0.65 0.131 0.697 176
"""
COLUMNS = ["possible", "start", "language", "words", "own", "gifts", "told", "hard", "right", "n"]
recorded = {}
for row in RECORDED.strip().replace("\n", ";").split(";"):
    run, _, *numbers = row.split()
    recorded.setdefault(run, []).append(dict(zip(COLUMNS, map(float, numbers), strict=True)))
penalized = {0.0: recorded["possible"], **{beta: recorded[f"kl-{beta}"] for beta in (0.03, 0.1, 0.3)}}
points = {beta: [(one["possible"], one["start"] * one["words"]) for one in runs] for beta, runs in penalized.items()}

# %% tags=["source-hidden"] slide="subslide"
fig, (left, right) = plt.subplots(1, 2, figsize=(11.4, 5.2), layout="constrained", sharey=True)
best = [(q.mean().item(), 0.0), *frontier.values()]  # from the start on
left.plot([kl for _, kl in best], [fine for fine, _ in best], "o-", color=figures.INK, linewidth=4)
left.text(1.8, 0.93, "the best models", size=17)
left.plot(*here[::-1], "s", color=figures.QUIET, markersize=13)
left.text(here[1], here[0] - 0.1, "section 1", color=figures.QUIET, size=16, ha="center")
labels = {0.0: (0.151, 0.79), 0.03: (0.083, 0.83), 0.1: (0.067, 0.48), 0.3: (0.034, 0.23)}
for (beta, some), mark, color in zip(points.items(), "^vDo", figures.SERIES, strict=False):
    left.plot([kl for _, kl in some], [fine for fine, _ in some], mark, color=color, markersize=11)
    known = [(one["language"], one["possible"]) for one in penalized[beta]]
    right.plot(*zip(*known, strict=True), mark, color=color, markersize=11)
    right.text(*labels[beta], f"β = {beta:g}", color=color, size=17)
for ax, x, far in ((left, "start (nats per story)", 11), (right, "language (nats per token)", 0.19)):
    ax.set_xlabel(f"from the {x}", size=17)
    ax.tick_params(labelsize=15)
    ax.set(ylim=(0, 1), xlim=(-0.02 * far, far))
right.set_xticks([0, 0.05, 0.1, 0.15])
left.set_title("What the penalty trades", size=22)
left.set_ylabel("possible stories (fraction)", size=17)
middle = {beta: [mean(values) for values in zip(*some, strict=True)] for beta, some in points.items()}
figures.display(
    fig, alt="Two charts of the fraction of possible stories. Left: the best models rise steeply with the distance from the start, and the trained ones are far to the right of them. Right: the larger beta is, the nearer the trained models are to the language, and the fewer of their stories are possible.",
    caption="Each mark is a training of 40 updates, three for each β. Left, line: the best model for each of several β, from the fractions that the start gets right; square: our 16 updates of section 1, without a penalty.",
    table={"beta": list(middle), "possible": [fine for fine, _ in middle.values()], "nats per story": [kl for _, kl in middle.values()]}, digits=2,
)  # fmt: skip

# %% slide="subslide" evidence="penalty"
ranges = {}
for beta, runs in penalized.items():
    fine, from_language, far = [
        sorted(values)
        for values in ([o["possible"] for o in runs], [o["language"] for o in runs], [kl for _, kl in points[beta]])
    ]
    ranges[beta] = fine, from_language, far
    print(f"beta {beta:<4}: possible {fine[0]:.2f} to {fine[-1]:.2f}, nats per token from the language", end=" ")
    print(
        f"{from_language[0]:.3f} to {from_language[-1]:.3f}, nats per story from the start {far[0]:.1f} to {far[-1]:.1f}"
    )
# ESSENTIAL
for weak, strong in ((0.0, 0.03), (0.03, 0.1), (0.1, 0.3)):
    fine, from_language, _ = ((a[0], b[-1]) for a, b in zip(ranges[weak], ranges[strong], strict=True))
    assert from_language[0] > from_language[1] and (weak == 0 or fine[0] > fine[1])
assert ranges[0.0][0][0] < ranges[0.03][0][0] and ranges[0.03][0][-1] < ranges[0.0][0][-1]
assert ranges[0.3][2][-1] < min(ranges[beta][2][0] for beta in (0.0, 0.03, 0.1))
# END

# %% [markdown]
# In these trainings the penalty traded one for the other. (Stopping earlier does that, too.) The larger $\beta$, the nearer the models stay to the language, and from 0.03 on, the fewer of their stories are possible; all three trainings with one $\beta$ are on the same side of all those with the next. With 0.03 they are nearer to the language than without a penalty, and the fraction of possible stories is within the range of those without. The distance from the start, which the penalty is about, scatters more; with 0.3 it is clearly smallest. [[penalty]]


# %% slide="skip"
def needed(fine: float) -> float:
    """Nats per story at which the best model certainly has so many possible stories."""
    return min(far for fine_at, far in frontier.values() if fine_at > fine)


# %% evidence="farther-than-needed"
reached, went = here
print(f"section 1: {learned(reached, 0.3, 0.9)} possible at {learned(went, 0.5, 15)} nats per story;", end=" ")
print(f"the best model needs no more than {learned(needed(reached), 0.02, 1.5)} for that")
times = sorted(kl / needed(fine) for some in points.values() for fine, kl in some)
print(f"recorded: {learned(times[0], 2, 20)} to {learned(times[-1], 10, 200)} times as far as needed")
assert went > 2 * needed(reached) and times[0] > 2

# %% [markdown]
# With or without a penalty, all these models went at least twice as far from the start as so many possible stories require. [[farther-than-needed]] (The curve and the marks were measured on different beginnings, so this is rough.) The curve is for the best possible distribution, which has to know who has what; a network that does not know may be unable to come so near. The value of our penalty estimates the divergence KL(model || start). Its gradient is another one, that of KL(start || model), because the draws are not differentiated. Both pull the model back.

# %% [markdown] slide="skip"
# How much of the way is chance? As a control we rewarded two trainings of 16 updates by a coin for each text, which says nothing about it.

# %% slide="skip" evidence="coin"
before_any, by_coin = recorded["start"][0]["language"], [one["language"] for one in recorded["coin"]]
print(f"from the language: start {before_any:.3f}, after 16 updates by coins", *(f"{far:.3f}" for far in by_coin))
print("possible stories:", *(f"{one['possible']:.3f}" for one in recorded["coin"]), "gifts a story:", end=" ")
print(*(f"{one['gifts']:.2f}" for one in recorded["coin"]))
assert min(by_coin) > 2 * before_any and min(one["gifts"] for one in recorded["coin"]) > 1

# %% [markdown] slide="skip"
# A reward without any meaning moves the model away from the language as well, and the first training fell apart: hardly any of its stories is possible. The gifts stayed. So a part of the distance is chance, because every update comes from few stories, and the missing gifts come from the reward. [[coin]]

# %% [markdown] tags=["note"]
# **Say.** A hard question about all of this: did the model learn anything that it could not do before, or does it only find it at the first try more often?
#
# **Draw.** Two curves over k, the number of tries: one starts low and rises steeply, one starts high and is flat. Where do they meet?
#
# **Ask.** "You may ask a model 16 times, and a judge picks the best. Which of the two models do you take?"
#
# **Usual answers.**
# - *The trained one, always* (from the room): at one try, yes. Look at the right end.
# - *Asking 16 times is cheating* (from the room): it costs compute, but so does training.
#
# **Cut if short.** The last line, about the cost.

# %% [markdown] slide="slide" plan=110
# ## 7. Did it learn anything new?
# With a judge there is a much simpler way to better stories, and without any training: write several, and keep one that the judge accepts (**best of n**). The fraction of beginnings for which at least one of k stories is possible is called **pass@k**. From n stories of which c are right, an unbiased estimate is ([Chen et al. 2021](https://arxiv.org/abs/2107.03374))
#
# $$\text{pass@}k = 1 - \binom{n-c}{k} \Big/ \binom{n}{k}.$$


# %%
def pass_at(k: int, texts: list[list[int]], n: int = 16) -> float:
    """The mean over the beginnings, each with n texts."""
    right = [int(sum(map(possible, texts[i : i + n]))) for i in range(0, len(texts), n)]
    return mean(1 - math.comb(n - c, k) / math.comb(n, k) for c in right)


# %% evidence="pass-at-k"
tries = (1, 2, 4, 8, 16)
passed = {name: [pass_at(k, texts) for k in tries] for name, texts in written_by.items()}
for name, values in passed.items():
    print(f"{name:<6}", ", ".join(f"pass@{k} {learned(x, 0, 1)}" for k, x in zip(tries, values, strict=True)))
lead = [after - before for before, after in zip(passed["before"], passed["after"], strict=True)]
assert lead[0] > 0.1 and lead[-1] < lead[0] and passed["before"][-1] > 0.85
assert passed["before"][3] > passed["after"][0]
n_written = sum(len(update.rollouts.ids) for update in history)
forwards = 1 + 1 + 3  # for each story of the training: written, read by the reference, learned (a backward is two)
print(f"training: {n_written} stories, with the compute of {forwards * n_written} that are only written")
print(f"best of 8 writes 7 more for each request, and has used as much after {forwards * n_written // 7} requests")
assert forwards * n_written // 7 > 300

# %% [markdown]
# At one try the trained model is far ahead. But with 8 tries and a judge the model *before* the training does better than the trained one with a single try, and with 16 tries it writes a possible story for all or nearly all of these beginnings. The lead has shrunk or gone, and the extra stories of best of 8 have cost as much as our short training only after some hundred requests. [[pass-at-k]] For these beginnings the start could already write a possible story within 16 tries, and training made it more likely at the first. Here both fractions are near 1, so the lead must shrink. Yue et al. 2025 go further: on mathematics and programs, with many tries, the model before the training overtakes ([paper](https://arxiv.org/abs/2504.13837)). Whether more training finds new answers is an open question.

# %% [markdown] tags=["note"]
# **Say.** Now somebody else chose the reward, and he will not tell us which. Read the stories and guess.
#
# **Draw.** Nothing yet. Leave the stories on the screen and let the class read.
#
# **Ask.** "What did he reward?" Take a vote with the prediction. Then: "What would you have rewarded instead?"
#
# **Usual answers.**
# - *Long stories* (`long stories`): they are long, but why always this one sentence?
# - *Possible stories* (`possible stories`): hardly one of them is.
# - *Add another rule: at most one such sentence* (from the room): good. What will it find next?
#
# **Cut if short.** The part *Ask for what you mean*; say its result.

# %% [markdown] slide="slide"
# ## 8. Break it: guess the reward
# In section 5 the trained model wrote fewer gifts, which it gets wrong. Somebody wanted to prevent such avoidance with another reward, and trained the start with it for 12 updates of 32 stories. This time it gets five sentences of each story. Here is what it writes now. What was the reward?


# %% tags=["source-hidden"] slide="skip"
def secret(ids: list[int]) -> float:
    """How often the text says to whom a thing belongs."""
    text = tokenizer.decode(ids)
    return float(text.count(" belonged to ") + text.count(" was now with "))


gamed, run = learning(secret, n_updates=12, lr=2e-3, n_sentences=5, max_new_tokens=64)
secret_history = list(run)

# %% tags=["source-hidden"] slide="skip"
last_texts = secret_history[-1].rollouts.texts()
n_told = [update.rewards.mean().item() for update in secret_history]
n_last = mean(n_told[-3:])
n_fine = [mean(map(possible, update.rollouts.texts())) for update in secret_history]

# %% tags=["source-hidden", "nbval-ignore-output"]
show_text([tokenizer.decode(ids).strip()[:520] for ids in last_texts[:32:8]])

# %% tags=["source-hidden"]
predict(
    "What was the reward?",
    key=lambda: "each sentence that says whose a thing is" if n_last > 2 * n_told[0] else "possible stories",
    choices={
        "long stories": "A long story could be long in many ways. Which kind of sentence comes again and again?",
        "possible stories": "Then you should find a possible one among them.",
        "each sentence that says whose a thing is": "",
    },
    because="Each of these sentences counted, true or not, and nothing else did.",
)

# %% slide="subslide" evidence="gamed"
for name, values in (("reward", n_told), ("possible", n_fine)):
    print(f"{name:<9}", [learned(mean(values[i : i + 3]), 0, 20) for i in range(0, 12, 3)])
repeated = mean(secret(ids) > 2 for ids in last_texts)
print(f"stories with more than two such sentences: {learned(100 * repeated, 0, 100)} %")
assert n_last > 2 * n_told[0] and mean(n_fine[-3:]) < 0.1 and repeated > 0.3

# %% [markdown]
# The reward was the number of sentences that say whose a thing is. About six in ten stories of the start have one, and somebody wanted more of them. Nobody asked whether they are true, and whether the story ends. In a few updates the model learned to repeat the sentence, and hardly any of its stories is possible any more. [[gamed]] A reward is not what you *mean*. It is what you *wrote*, and training can find the difference. If the reward is itself a model, its score keeps rising while the true quality first rises and then falls ([Gao et al. 2023](https://arxiv.org/abs/2210.10760)).

# %% [markdown] slide="subslide"
# ### Ask for what you mean
# A better reward asks for both: a story counts if it is possible *and* has a sentence that says who has a thing now. Three such trainings of 40 updates were recorded like those of section 6. Here they are next to the start, and to those that were rewarded for possible stories only:

# %% slide="subslide"
labels = {
    "start": "start",
    "possible": "possible, 40 updates",
    "64-stories": "possible, 120 updates of 64",
    "hard": "with owner, too, 40 updates",
}
for run, label in labels.items():
    columns = ("possible", "told", "hard", "gifts", "right")
    fine, told, both, n_gifts, right = (mean(one[column] for one in recorded[run]) for column in columns)
    print(f"{label:<27}: possible {fine:.2f}, with owner {told:.2f}, both {both:.2f};", end=" ")
    print(f"gifts {n_gifts:.2f}; held-out owners right {right:.2f}")

# %% slide="subslide" evidence="hard-sentence"
before, asked_both = recorded["start"][0], recorded["hard"]
print(
    "right of the owners that they name: start", before["own"], "and asked for both", [one["own"] for one in asked_both]
)
errors = [math.sqrt(sum(one["own"] * (1 - one["own"]) / one["n"] for one in (before, after))) for after in asked_both]
error = math.sqrt(2 * before["right"] * (1 - before["right"]) / 514)  # of the held-out owners
assert min(one["told"] for one in asked_both) > 0.9 and max(one["gifts"] for one in asked_both) < 0.2 * before["gifts"]
assert min(one["hard"] for one in asked_both) > 2 * before["hard"] and recorded["64-stories"][0]["told"] < 0.05
assert all(after["own"] < before["own"] + 2 * error for after, error in zip(asked_both, errors, strict=True))
assert all(after["right"] < before["right"] + 2 * error for after in asked_both)

# %% [markdown]
# Rewarded for possible stories only, the models hardly ever write the sentence, and after 120 updates of 64 stories, at half the rate, even less often. Asked for both, nearly all stories have it, and many more than at the start are possible with it. But the gifts have gone again. And the models name the right owner no more often than the start, in their own stories and in held-out ones, within two standard errors. [[hard-sentence]] A quarter to nearly half of their stories meet the demand, with hardly any gifts left, and they did not learn who has what.


# %% evidence="not-gamed"
def stops_early(ids: list[int]) -> bool:
    text = tokenizer.decode(ids[1:])
    return text.endswith("\n") and storyworld.parse(text).error_at == len(text) - 1


forgiving, strict = recorded["no-error"][0]["possible"], recorded["start"][0]["possible"]
print(f"whole possible stories: {strict} at the start, {forgiving} after the reward that forgives a missing end")
n_early = sum(map(stops_early, written_by["before"]))
print(
    f"of {len(written_by['before'])} stories of section 5, the start stopped {n_early} at a place where only the end is wrong"
)
assert forgiving > strict + 0.1 and n_early <= 2

# %% [markdown]
# Not every gap is found. A judge that forgives a missing end should be easy to cheat: stop after one sentence. In a recorded training of 12 updates the model did not do so; more of its stories were whole and possible than before. A model can only learn from what it sometimes writes, and the start hardly ever stops early. [[not-gamed]]

# %% [markdown] tags=["note"]
# **Say.** What is different in the models that you know? The judge. For programs and sums it is a test, as here. For everything else people compare answers, and a model learns to judge like them.
#
# **Draw.** Three boxes for RLHF: examples, a reward model from comparisons, reinforcement learning with a leash. Then cross out the middle box: this is DPO.
#
# **Ask.** "Which of the three boxes can be hacked?" (The second, by the third.)
#
# **Usual answers.**
# - *Beta multiplies the loss* (`beta in front`): inside it decides how far the model has to move until a pair counts as learned.
# - *The reference is unnecessary* (`reference unused`): then a text that was improbable from the start loses, however much it improved.
#
# **Cut if short.** The training with DPO; say its result.

# %% [markdown] slide="slide" plan=110
# ## 9. What large models get
# **RLHF**, reinforcement learning from human feedback, has three steps ([Ouyang et al. 2022](https://arxiv.org/abs/2203.02155)): examples, as in section 2; comparisons, in which people say which of two answers is better; and reinforcement learning as in sections 3 to 6, with a **reward model** that has learned from the comparisons. The reward of an answer y to a prompt x is then
#
# $$R(x, y) = r(x, y) - \beta \log \frac{p(y \mid x)}{p_\text{reference}(y \mid x)}.$$

# %% [markdown] slide="subslide"
# **DPO**, direct preference optimization ([Rafailov et al. 2023](https://arxiv.org/abs/2305.18290)), does without the reward model and the writing. For a pair of a *chosen* and a *rejected* answer, it asks how much more probable each has become than it is under the reference:
#
# $$\text{loss} = -\log \sigma\Big(\beta \Big[\log \frac{p(\text{chosen})}{p_\text{reference}(\text{chosen})} - \log \frac{p(\text{rejected})}{p_\text{reference}(\text{rejected})}\Big]\Big)$$

# %% [markdown] slide="subslide"
# ### Your turn


# %% tags=["exercise"] name="dpo_loss" minutes=7 difficulty=2
def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta):
    """chosen, rejected (B,): log-probabilities of whole answers, by the model. ref_chosen, ref_rejected (B,): of the
    same answers, by the reference.

    Returns (): the mean of the loss above over the pairs. It must stay finite for large differences.
    Gradients flow through chosen and rejected.
    """
    # SOLUTION
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -logsigmoid(beta * margin).mean()
    # END


# %% tags=["check"]
if check("dpo_loss", dpo_loss).passed:
    keep("dpo_loss", dpo_loss)

# %%
hint("dpo_loss")

# %% [markdown] tags=["solution"]
# Each ratio of probabilities is a difference of log-probabilities. `logsigmoid` computes the logarithm without an overflow; `sigmoid` followed by `log` gives minus infinity for a pair that is wrong by far. Common mistakes: to put beta in front of the loss; to leave out the reference.

# %% [markdown] slide="subslide"
# StoryWorld can rank pairs: of two stories with the same beginning, the possible one is chosen. We use the stories that the model had written in section 5, before any training:

# %% slide="skip"
preference_function = dpo_loss if diagnose("dpo_loss", dpo_loss).passed else rewards.dpo_loss


def in_pairs(texts: rewards.Rollouts, n_each: int) -> rewards.Rollouts:
    """First the possible stories of all pairs, then the impossible ones to the same beginnings."""
    right, pairs = [possible(ids) for ids in texts.texts()], []
    for first in range(0, len(right), n_each):
        good, bad = ([i for i in range(first, first + n_each) if right[i] == wanted] for wanted in (1, 0))
        pairs += list(zip(good, bad, strict=False))
    rows = torch.tensor(pairs).T.flatten()
    return rewards.Rollouts(texts.ids[rows], texts.padding[rows], texts.mask[rows], texts.log_probs[rows])


# %%
def text_log_probs(model, texts: rewards.Rollouts) -> torch.Tensor:
    """The log-probability (B,) of each whole answer."""
    logits = model(texts.ids[:, :-1], padding=texts.padding)[:, -texts.mask.shape[1] :]  # (B, N, V)
    each = logits.log_softmax(-1).gather(-1, texts.ids[:, -texts.mask.shape[1] :, None]).squeeze(-1)  # (B, N)
    return (each * texts.mask).sum(1)


# %% slide="skip"
other_prompts = [beginning(seeded(600 + i)) for i in range(8)]  # for pairs that the training does not see
before_dpo = rewards.rollouts(start, other_prompts, **look_options, generator=seeded(18))
pairs, new_pairs = in_pairs(drawn["before"], 16), in_pairs(before_dpo, 16)
with torch.no_grad():
    reference, new_reference = (text_log_probs(start, texts) for texts in (pairs, new_pairs))  # (B)
preferred = copy.deepcopy(start)
optimizer = torch.optim.AdamW(preferred.parameters(), lr=5e-4, weight_decay=0.0)
dpo_losses = []

# %%
for _ in range(5):
    loss = preference_function(*text_log_probs(preferred, pairs).chunk(2), *reference.chunk(2), 0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dpo_losses.append(loss.item())


# %% slide="skip"
@torch.no_grad()
def changes(texts: rewards.Rollouts, reference: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By how many nats the chosen and the rejected stories of the pairs have become more probable."""
    return (text_log_probs(preferred, texts) - reference).chunk(2)


# %% slide="subslide" evidence="dpo"
print(f"loss before the first step {dpo_losses[0]:.3f}, and log 2 is {math.log(2):.3f};", end=" ")
print(f"before the last step {learned(dpo_losses[-1], 0.1, 0.69)}")
these, new = changes(pairs, reference), changes(new_pairs, new_reference)
# ESSENTIAL
ranked = [(chosen > rejected).float().mean().item() for chosen, rejected in (these, new)]
# END
n_pairs, n_new = len(these[0]), len(new[0])
print(
    f"ranked right: {learned(ranked[0], 0.7, 1)} of these {n_pairs} pairs, {learned(ranked[1], 0.1, 0.9)} of {n_new} new pairs"
)
chosen, rejected = (each.mean().item() for each in these)
print(f"these pairs: chosen {learned(chosen, -9, 9)} nats, rejected {learned(rejected, -20, 5)} nats")
after_dpo = rewards.rollouts(preferred, other_prompts, **look_options, generator=seeded(18))
fine = [mean(map(possible, texts.texts())) for texts in (before_dpo, after_dpo)]
error = math.sqrt(sum(p * (1 - p) for p in fine) / 128)
print(
    f"possible stories, other beginnings: {learned(fine[0], 0, 0.6)} before, {learned(fine[1], 0, 1)} after,", end=" "
)
print(f"standard error {learned(error, 0.02, 0.1)}")
assert abs(dpo_losses[0] - math.log(2)) < 1e-4 and dpo_losses[-1] < 0.62 and ranked[0] > 0.8
assert rejected < -abs(chosen) and ranked[1] < 0.5 + 2 * 0.5 / math.sqrt(n_new)

# %% [markdown]
# At the start the loss is log 2, because the model is the reference. After 5 steps the model ranks most of the pairs that it was trained on right, without a reward model and without writing a text. It did so more by making the rejected stories less probable than by making the chosen ones more probable. New pairs it ranks no better than a coin, within two standard errors: what it has learned holds for these few pairs. [[dpo]] The last line counts new stories; compare the difference with its standard error. In practice one takes many thousand pairs, and each only once or a few times.

# %% slide="skip"
show(rewards.kl_penalty, rewards.dpo_loss, rewards.reinforce)

# %% [markdown] tags=["note"]
# **Say.** Two sentences for the way home: who can judge can teach. And what you reward is what you get.
#
# **Draw.** The loop of the beginning once more, by a student, with the leash.
#
# **Ask.** At the door: "Name one thing that you would reward in a chat model, and how it could be hacked."
#
# **Usual answers.**
# - *Reward politeness* (from the room): how would a model be polite and useless?
# - *Reward the user's approval* (from the room): it may learn to flatter.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - Most stories of the shipped model contain an impossible word, and a judge can find it. [[mostly-impossible]] Learning from the verdicts alone makes more stories possible, and takes the model farther from the language. [[both-rise]]
# - Supervised fine-tuning taught the model to use what the instruction names; the loss counts only the answer. [[form-learned]]
# - The policy gradient makes what was drawn more likely in proportion to its reward, and is right on average. [[trick]] A baseline leaves its mean and can reduce its spread a lot; the mean reward is a simple baseline and not the best. [[baseline]]
# - For texts, the mean of a group with the same beginning can be the baseline. Your two functions make the same updates as the library. [[same-step]] A group of equal rewards teaches nothing. [[silent-groups]]
# - Here the model mainly learned to avoid the sentences that it gets wrong [[avoids]], and knows no better who has what. [[not-better]]
# - The KL penalty estimates the distance from the start with the drawn tokens alone. [[two-estimators]] A larger penalty kept the models nearer to the language and, from 0.03 on, with fewer possible stories. [[penalty]] All went farther than their reward requires. [[farther-than-needed]]
# - With several tries and a judge, the lead of the trained model shrinks. [[pass-at-k]]
# - A reward that only counts sentences gets sentences. [[gamed]] One that asks for a possible story with the hard sentence gets it in a quarter to nearly half of the stories, with hardly any gifts. [[hard-sentence]] And a gap that the model did not happen to use stayed unused. [[not-gamed]]
# - DPO learns from pairs: after a few steps the model ranked most of its training pairs right, without a reward model, and new pairs no better than a coin. [[dpo]]
#
# Next, lesson 18: are the real models like this one?

# %% [markdown] slide="skip"
# ## Sources
# - The policy gradient and its baseline: Williams 1992, [*Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*](https://doi.org/10.1007/BF00992696); Sutton and Barto 2018, [*Reinforcement Learning: An Introduction*](http://incompleteideas.net/book/the-book-2nd.html), chapter 13. The best baseline: Greensmith, Bartlett and Baxter 2004, [*Variance Reduction Techniques for Gradient Estimates in Reinforcement Learning*](https://www.jmlr.org/papers/v5/greensmith04a.html).
# - Clipping: Schulman et al. 2017, [*Proximal Policy Optimization Algorithms*](https://arxiv.org/abs/1707.06347). Estimating a KL divergence: Schulman 2020, [*Approximating KL Divergence*](http://joschu.net/blog/kl-approx.html).
# - Human feedback: Stiennon et al. 2020, [*Learning to Summarize from Human Feedback*](https://arxiv.org/abs/2009.01325); Ouyang et al. 2022, [*Training Language Models to Follow Instructions with Human Feedback*](https://arxiv.org/abs/2203.02155).
# - Groups: Shao et al. 2024, [*DeepSeekMath*](https://arxiv.org/abs/2402.03300), section 4. Without the division by the spread: Liu et al. 2025, [*Understanding R1-Zero-Like Training*](https://arxiv.org/abs/2503.20783).
# - Preferences without a reward model: Rafailov et al. 2023, [*Direct Preference Optimization*](https://arxiv.org/abs/2305.18290).
# - When the reward is a model: Gao et al. 2023, [*Scaling Laws for Reward Model Overoptimization*](https://arxiv.org/abs/2210.10760).
# - Several tries: Chen et al. 2021, [*Evaluating Large Language Models Trained on Code*](https://arxiv.org/abs/2107.03374), section 2.1; Yue et al. 2025, [*Does Reinforcement Learning Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?*](https://arxiv.org/abs/2504.13837)
