# %% [markdown] deck="Can a model be taught what nobody can write down?"
# # 17 Rewards
# **Can a model be taught what we want, when nobody can write down the right text?**
#
# *Needs* lessons 03, 11 and 12. *Builds* the losses of `rewards.py`. *Runs* in about 45 s on two cores.
# *Teaches* in about 45 minutes, plus 23 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: if you can judge texts, you can teach a model, by making each text more or less likely according to its judgement. And it has one warning: the model learns what the judge rewards, which is not always what the judge wants.
# Sections 1 to 4 are the heart. The two cells that take longest are the view of section 1 and the stories of section 6: run them before the class. The exercises are homework, or a second hour. If you have only ten minutes, show the view and the picture of section 1, and let the class guess the reward of section 6.

# %% [markdown] tags=["note"]
# **Say.** So far every model has learned from texts that somebody had written. Today nobody writes the right text. We only say of what the model has written whether it is good.
#
# **Ask.** "Where in your life do you know a good answer when you see one, but could not write it down?" (Jokes, proofs, programs that pass their tests.)
#
# **Usual answers.**
# - *It comes nearer to the language* (`it comes nearer`): More of its stories are possible, so it should. Look at the second curve.
# - *We could train on right stories* (from the room): Here we could, because StoryWorld can write them. For a proof often nobody can.
#
# **Cut if short.** The three stories.
#
# **Tried.** Five seeds, after 16 updates 768 stories each, all to the same 12 beginnings: 0.54 to 0.59 possible, 0.21 before (0.18 to 150 other beginnings); 0.069 to 0.084 nats per token from the language, 0.019 before. After 40 updates (three seeds): 0.75 to 0.84, and 0.13 to 0.19 nats. A coin as judge, three recorded seeds and five of a reader: 0.046 to 0.061 nats, so half of the way is the noise of 16 large updates; 0.12 to 0.25 possible. Lesson 11's loss on 32 true stories an update: 0.024. At a learning rate of 1e-4 and 48 updates (one seed): coin 0.0203 nats, verdicts 0.0236 with 0.32 possible, start 0.0195. After two sentences the language is 1.98 nats a story from the start; without its impossible stories the start would be 0.1 to 0.3.

# %% [markdown]
# ## 1. Judging instead of writing
# To train a model, somebody has to write texts (lesson 11). Often it is easier to **judge** an answer than to write one: does the program pass its tests, is the proof correct? StoryWorld is such a judge, because it knows whether a story contains an impossible word. Here the shipped model continues the first two sentences of a story. Each is shown up to its first impossible word, in brackets:

# %%
from tinylm_classroom import judging, predict, rewards_view, show_text
from tinylm_classroom import rewards_figures as figures
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
start, tokenizer = shipped.model.eval(), shipped.tokenizer

# %% deck="Most stories contain an impossible word"
first_texts = judging.drawn(start, tokenizer, 8, seed=17)  # 8 stories to each
stories = judging.decoded(tokenizer, first_texts)
show_text([judging.marked(text) for text in stories[7:24:8]])

# %% [markdown]
# We pretend that nobody can write a right story, so the model learns from verdicts alone. For each update it writes 8 stories to each of 4 beginnings, the judge gives each of them a 1 or a 0 (0 also if it is too long), and the good ones become more likely, the others less. **Your task:** move the handle back to the first update. Where do its stories go wrong, and where do the last ones?

# %% tags=["source-hidden"] deck="Task: where do its stories go wrong, first and last?"
SEED = 1
model, history, updates = judging.watched(start, tokenizer, SEED)
await rewards_view(updates, judging.UpToMistake(tokenizer), total_steps=16, expected={8: (0.2, 0.65), 16: (0.3, 0.9)})

# %% tags=["source-hidden"]
recorded = judging.recorded_rewards()
away = [recorded.start.from_language, judging.from_language(model, tokenizer)]

# %% tags=["source-hidden"] deck="More of its stories are possible. Is it nearer to the language?"
predict(
    f"The start was {away[0]:.2f} nats per token away from the language (the KL divergence of lesson 03). Does the model that learns from verdicts come nearer?",
    key=lambda: "it moves away" if away[1] > 1.2 * away[0] else "it comes nearer",
    choices={
        "it comes nearer": "More of its stories are stories of this language. But are they the ones that the language tells?",
        "it moves away": "",
    },
    because="It could have come nearer, for the start without its impossible stories would be nearer. But steps from a few noisy verdicts change more than the verdict.",
)

# %% tags=["source-hidden", "signature"] deck="More stories are possible, and the model leaves the language"
part_right = [update.rewards.mean().item() for update in history]
verdict_runs = recorded.runs[0.0, True, 0.0, 16]
figures.judged(part_right, away, verdict_runs, recorded.coin)

# %% tags=["source-hidden"] evidence="both-rise" tried="seeds"
# Checked in five recorded runs, on 768 new stories each, and in ours: both rise; a coin goes half as far.
before = judging.part_possible(recorded.start.kinds)
assert min(judging.part_possible(run.kinds) for _, run in verdict_runs) > before + 0.2
by_verdicts, by_coin = [run.from_language for _, run in verdict_runs], [run.from_language for run in recorded.coin]
assert min(by_verdicts) > max(by_coin) > sum(by_coin) / 3 > (sum(by_verdicts) / 5 + away[0]) / 2 > 2 * away[0]
assert sum(part_right[-4:]) > sum(part_right[:4]) + 0.3 and away[1] > 2 * away[0]

# %% [markdown]
# Both have risen, with every seed: more stories are possible, and the model is farther from the language. Half of that way comes even with a *coin* as judge (rings), because these are large, noisy steps. [[both-rise]]

# %% [markdown] tags=["note"]
# **Say.** Forget texts for a moment. The smallest thing that makes a choice is a coin. We want more heads, and we may only throw it and look. Underline the trick in it. (The reward fell from the sky, so how can it have a gradient? It has none. The probability of the throw has one.)
#
# **Usual answers.**
# - *Nothing changes, because 11 - 10 is 1 - 0* (`nothing changes`): True for the mean. A single throw is multiplied by 10 or 11, though.
# - *Both grow tenfold* (`both larger`): Only differences between rewards have a direction, so the mean stays.
# - *The mean reward is the best baseline* (from the room): Nearly. Choose *best* in the control.
#
# **Cut if short.** The last paragraph.
#
# **Tried.** Ten seeds of 10,000 throws: all within four standard errors. The mean is exact for each fixed baseline. The mean of a group contains the throw itself: with groups of 8 the gradient is 7/8 as long (0.1720 instead of 0.1966).

# %% [markdown]
# ## 2. A coin that wants heads
# The smallest model that makes a choice is a coin: heads with probability $\sigma(\theta)$ and reward 1, or tails with reward 0. In which direction must $\theta$ move for more reward?

# %%
import torch
from torch.nn.functional import logsigmoid

from tinylm_classroom import control, instructions

theta = torch.tensor(-1.0, requires_grad=True)
reward_of = torch.tensor([0.0, 1.0])  # tails, heads
# ESSENTIAL
log_p = torch.stack([logsigmoid(-theta), logsigmoid(theta)])  # (2)
expected = (log_p.exp() * reward_of).sum()
(exact,) = torch.autograd.grad(expected, theta, retain_graph=True)
print(f"expected reward {expected.item():.3f}, its gradient {exact.item():.4f}")
# END

# %% [markdown]
# Here we could add up *all* outcomes. A model can only write and look at the reward, and no gradient flows back through a draw. The **log-derivative trick** ([Williams 1992](https://doi.org/10.1007/BF00992696)) moves the derivative to something that we know, the log-probability of what was drawn. Since $\nabla p = p \, \nabla \log p$,
#
# $$\nabla \sum_x p(x)\, R(x) = \sum_x p(x)\, R(x)\, \nabla \log p(x).$$
#
# The right side is a *mean* over draws. So we draw, and take that mean:


# %% deck="Ten thousand throws estimate the exact gradient"
def thrown(n, seed=17):
    source = torch.Generator().manual_seed(seed)
    p = log_p.detach().exp()  # (2)
    return torch.multinomial(p, n, replacement=True, generator=source)  # (n)


n_throws = 10_000  # try 100
# ESSENTIAL
flips = thrown(n_throws)  # 0 for tails, 1 for heads
loss = -(reward_of[flips] * log_p[flips]).mean()  # an optimizer minimizes
(estimate,) = torch.autograd.grad(loss, theta, retain_graph=True)
print(f"from the throws {-estimate.item():.3f}, exact {exact.item():.3f}")
# END

# %% tags=["source-hidden"] evidence="trick" tried="seeds"
# Checked with ten other seeds: within four standard errors, where a throw of heads has the slope 1 - p.
for slopes in (reward_of[thrown(10_000, seed)] * (1 - log_p[1].exp().item()) for seed in range(10)):
    assert abs(slopes.mean() - exact) < 4 * slopes.std() / 100

# %% [markdown]
# This is the **policy gradient** (a model that makes choices is a *policy*): *make what you did more likely, the more so the larger its reward.* [[trick]]
#
# ### A baseline
# Now let the rewards be 10 for tails and 11 for heads. The exact gradient is the same. Is the estimate? A **baseline** is a number that we subtract from every reward:


# %%
def estimates(baseline, n_batches=1000, n_flips=20):
    p = log_p.detach().exp()
    batches = thrown(n_batches * n_flips).view(n_batches, n_flips)
    slopes = torch.stack([-p[1], p[0]])  # (2), of the log-probabilities
    return ((10 + reward_of[batches] - baseline) * slopes[batches]).mean(1)


p_heads = log_p[1].exp().item()
baselines = {"none": 0, "10": 10, "mean reward": 10 + p_heads}
baselines |= {"best": 11 - p_heads, "too high": 12}
by_baseline = {name: estimates(value) for name, value in baselines.items()}

# %% tags=["source-hidden"] deck="Rewards of 10 and 11 instead of 0 and 1: how do estimates change?"
predict(
    "With rewards of 10 and 11 instead of 0 and 1, and no baseline: how do estimates from 20 throws change?",
    key=lambda: "same mean, larger spread" if by_baseline["none"].std() > 1 else "nothing changes",
    choices={
        "nothing changes": "The difference of the rewards is the same, but each throw is multiplied by its whole reward.",
        "same mean, larger spread": "",
        "both larger": "On average the 10 pushes heads and tails equally hard, in opposite directions.",
    },
    because="The 10 multiplies a slope whose mean is 0, so it adds nothing on average, and a lot of noise.",
)


# %% tags=["source-hidden"] deck="A baseline keeps the mean and removes the noise"
def with_baseline(baseline="mean reward"):
    figures.estimates(by_baseline, exact.item(), baseline)


control(with_baseline, baseline=list(baselines), frames=5)

# %% tags=["source-hidden"] evidence="baseline" tried="exact"
# Checked: p of heads and 1 - p of tails average to the exact gradient with each baseline; the spreads differ.
for value in baselines.values():
    assert abs(p_heads * (1 - p_heads) * ((11 - value) - (10 - value)) - exact) < 1e-5
assert by_baseline["none"].std() > 10 * by_baseline["mean reward"].std() > 100 * by_baseline["best"].std()

# %% [markdown]
# Whatever number we choose before the throws, the mean of the estimates is the exact gradient, because the mean of $\nabla \log p$ is 0. With the mean reward they scatter far less than without a baseline. [[baseline]] Reward minus baseline is the **advantage**: *was this better than usual?*
#
# It is not the best one. Heads contributes $(11 - b)(1 - p)$ to an estimate, tails $-(10 - b)\,p$. These are equal for $b = 11 - p$, and then every throw gives the exact gradient. For texts it would require a gradient of each text ([Greensmith et al. 2004](https://www.jmlr.org/papers/v5/greensmith04a.html)), so the mean is used.

# %% [markdown] tags=["note"]
# **Say.** From the coin to texts there is one decision: usual compared with what? Then the honest question: does the baseline matter here at all?
#
# **Usual answers.**
# - *Fewer possible stories* (`fewer`): The spread is larger, so it should be worse. But a reward of 0 pushes nothing, and a reward of 1 is small.
# - *The loss must be positive* (`wrong sign`): Minus a log-probability is positive, minus an advantage times it need not be.
# - *Average each text first* (`mean of each text first`): Then a token of a short text counts more.
#
# **Cut if short.** The trace.
#
# **Tried.** Five seeds, 768 new stories each. Rewards of 0 and 1: with the group's mean 0.54 to 0.59 possible, without a baseline 0.48 to 0.60 (means 0.56 and 0.56). Without a baseline, 1 and 2: 0.13 to 0.27; 10 and 11: 0.00 to 0.18, once at 79 nats per story from the start; 0.22 at a learning rate of 2e-4 with 48 updates. Before: 0.21. Without a baseline, 0 and 1, 40 updates (one seed): 0.82, with it 0.75 to 0.84. The sums of the loss without a baseline: exact. The reader's own loss, three seeds, 16 updates: 0.31, 0.48, 0.41 of 64 stories possible, 0.25 before.

# %% [markdown]
# ## 3. From a coin to stories
# A text is many draws, one for each token, and all of them get the advantage of the text.
#
# ### Your turn: the loss


# %% tags=["exercise"] name="policy_gradient_loss" minutes=9 difficulty=2 deck="Your turn: the loss"
def policy_gradient_loss(log_probs, advantages, mask):
    """log_probs (B, T): of each token, by the model. advantages (B,): of each text. mask (B, T): True where the model
    has written the token, False in the prompt and after the end.

    Returns (): minus the mean of advantage times log-probability over all written tokens of the batch, so that every
    written token counts the same. Advantages are given numbers: no gradient flows into them.
    """
    # SOLUTION
    gained = log_probs * advantages.detach()[:, None]
    return -gained[mask].mean()
    # END


# %% tags=["check"]
from tinylm_classroom import check, hint, keep, trace, yours

if check("policy_gradient_loss", policy_gradient_loss).passed:
    keep("policy_gradient_loss", policy_gradient_loss)

# %% slide="skip"
hint("policy_gradient_loss")

# %% [markdown] tags=["solution"]
# `[:, None]` gives the advantages a second axis, so that each row is multiplied by its own; the mask then selects the written tokens, and one mean goes over all of them. Common mistakes: to forget the minus; to count the prompt, which the model did not choose; to average each text first, which makes a token of a short text count more; to let the gradient flow into the advantages.

# %% [markdown]
# Some beginnings are more difficult than others. So the model writes **a group** of stories to the same beginning, and the baseline is the mean of the group, much as in *GRPO* ([Shao et al. 2024](https://arxiv.org/abs/2402.03300)). P beginnings with K stories each make B texts:


# %% deck="A group of stories is its own baseline"
def loss_of_stories(model, ids, padding, verdicts, mask):
    # ESSENTIAL
    logits = model(ids[:, :-1], padding=padding)  # (B, T) -> (B, T, V)
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])  # (B, T, 1)
    advantages = verdicts - verdicts.mean(1, keepdim=True)  # (P, K)
    written = log_probs.squeeze(-1)[:, -mask.shape[1] :]  # (B, N), without the prompt
    return policy_loss(written, advantages.flatten(), mask)
    # END


policy_loss = yours("policy_gradient_loss", policy_gradient_loss)

# %% tags=["source-hidden"]
trace(loss_of_stories, start, **judging.six_stories(start, tokenizer))


# %% deck="The whole loop: write, judge, make the better ones more likely"
from tinylm_lib import rewards

options = {"n_each": 4, "max_new_tokens": 97, "stop_ids": tokenizer.encode("\n")}


def one_update(model, optimizer, prompts, source):
    # ESSENTIAL
    texts = rewards.rollouts(model, prompts, **options, generator=source)  # it writes
    verdicts = judging.verdicts(tokenizer, texts).view(len(prompts), -1)  # (P, K)
    loss = loss_of_stories(model, texts.ids, texts.padding, verdicts, texts.mask)
    # END
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


# %% tags=["source-hidden"] evidence="same-step" tried="exact"
# Checked: one update with this loop is one update of the library's.
assert judging.same_update(one_update, start, tokenizer, options) < 0.2

# %% [markdown]
# With your loss, this is one update of section 1, with 4 stories to each beginning instead of 8. [[same-step]] If all stories of a group are right, or all wrong, every advantage is 0 and the group teaches nothing. Does your loss save the first story of section 1?

# %% tags=["nbval-ignore-output"] deck="Your loss trains a model: the first story, before and after"
import copy

n_updates = 16  # try 4
mine = copy.deepcopy(start)
optimizer = torch.optim.AdamW(mine.parameters(), lr=1e-3, weight_decay=0.0)
source = torch.Generator().manual_seed(2)
# ESSENTIAL
for prompts in judging.beginnings(tokenizer, 2, n_updates):
    one_update(mine, optimizer, prompts, source)
# END
told = {}
new_texts = judging.drawn(mine, tokenizer, 8, seed=17)
for name, texts in {"before": first_texts, "after": new_texts}.items():
    part = judging.verdicts(tokenizer, texts).mean().item()
    story = judging.decoded(tokenizer, texts)[7]
    told[f"{name}: {part:.0%} of the stories are possible"] = judging.marked(story)
show_text(told)

# %% [markdown]
# ### Take the baseline out
# With rewards of 0 and 1 and no baseline, the wrong stories count 0, so only the right ones have a gradient. What is that?

# %% deck="Rewards of 0 and 1 without a baseline: the loss of lesson 11 on one's own successes"
verdicts = judging.verdicts(tokenizer, first_texts)  # (B)
added = 0.0  # try 10.0
log_probs = judging.answer_log_probs(start, first_texts)  # (B, N)
# ESSENTIAL
without = policy_loss(log_probs, verdicts + added, first_texts.mask)
successes = first_texts.mask & (verdicts == 1)[:, None]  # (B, N)
loss_of_11 = -log_probs[successes].mean()
part = successes.sum() / first_texts.mask.sum()
print(f"loss without a baseline: {without.item():.5f}")
# END
print(f"{part:.3f} of the tokens x {loss_of_11:.4f}: {(part * loss_of_11).item():.5f}")

# %% tags=["source-hidden"] evidence="imitation" tried="exact"
# Checked: with rewards of 0 and 1 the two losses are the same number, so their gradients are.
torch.testing.assert_close(policy_loss(log_probs, verdicts, first_texts.mask), part * loss_of_11)

# %% [markdown]
# It is the loss of lesson 11 on the stories that passed: **imitation of one's own successes**. [[imitation]] We recorded runs with the baseline and without it, also with 1 or 10 added to all rewards.

# %% tags=["source-hidden"] deck="Rewards of 0 and 1: what if the baseline is missing?"
runs_of, fine, means = judging.without_baseline(recorded)
predict(
    "Rewards of 0 and 1: how many stories are possible after a run without the baseline, compared with the run with it?",
    key=lambda: "about as many" if abs(means["0 and 1"][0] - means["0 and 1"][1]) < 0.06 else "fewer",
    choices={
        "fewer": "That was so for the coin with 10 and 11. Here the rewards are 0 and 1.",
        "about as many": "",
    },
    because="Right stories become more likely in both cases, and the probabilities of all texts sum to 1.",
)

# %% tags=["source-hidden"] deck="Without a baseline, a reward for wrong stories, too, stops the learning"
figures.without_baseline(runs_of, recorded.start)

# %% tags=["source-hidden"] evidence="needs-baseline" tried="seeds"
# Checked in five runs each: without it 0 and 1 teach as much, 1 and 2 nothing on average, 10 and 11 nothing at all.
assert abs(means["0 and 1"][0] - means["0 and 1"][1]) < 0.06 and abs(means["1 and 2"][1] - before) < 0.06
assert max(fine["10 and 11"][1]) < before + 0.03 < before + 0.2 < min(fine["0 and 1"][1])

# %% [markdown]
# With 0 and 1 the runs end alike. Without a baseline, 1 and 2 teach nothing on average, and with 10 and 11 no run gets better than the start: *every* story is pushed up, right or wrong, and the difference drowns in noise, as with the coin. [[needs-baseline]] So a baseline matters when wrong stories are rewarded, too. (On mathematics, too, such imitation competes with GRPO: [Xiong et al. 2025](https://arxiv.org/abs/2504.11343).)

# %% [markdown] tags=["note"]
# **Say.** The reward went up. Now be the one who is not convinced. What else could have happened, other than that it learned to tell stories correctly? (Is this cheating? It did exactly what we rewarded.)
#
# **Usual answers.**
# - *It knows better who has what* (`more often`): Then stories with a gift would now mostly be possible.
# - *It writes shorter stories* (from the room): A good suspicion; the language has no much shorter ones.
#
# **Cut if short.** The two continuations.
#
# **Tried.** Five seeds, 768 stories each, four kinds of stories (gift, owner sentence, both, none). The new mix alone gives 76 to 90 % of the progress, the new care alone 4 to 30 %. With gifts alone as the kinds, and 128 stories, it was 110 % and -25 %: the luck of a small sample, and one of two avoided sentences. After 40 updates the new mix gives 64 to 75 %, at 1e-4 with 48 updates 98 %. In a model that multiplies all possible stories alike (section 5) it would be a fifth. With a coin as judge 57 to 95 % of the stories still have a gift. Owners: the start is right in 0.66 of 374, the runs in 0.60 to 0.70, after 40 updates, too. Their losses are 0.59 to 0.81 nats above the floor instead of 0.48, but a coin as judge gives 0.51 to 0.70, and at 1e-4 it is 0.46.

# %% [markdown]
# ## 4. What did it learn?
# Either the model now does the difficult thing *better*, or it does it *less often*. Two sentences are difficult, because one must know who has what (lesson 16): a **gift** (somebody gives or hands over a thing) and an **owner sentence** (*By then the red hat belonged to Tom*). **Your task:** read pairs of stories, before and after the 16 updates. What does the model do differently?

# %% deck="The same beginning, before and after"
row = 14  # try 8 and 16
told = {}
for name, each in {"before": start, "after": model}.items():
    texts = judging.drawn(each, tokenizer, 3, seed=501)
    # ESSENTIAL
    told[name] = judging.marked(judging.decoded(tokenizer, texts)[row])
    # END
show_text(told)

# %% tags=["source-hidden"]
kinds_of = [recorded.start.kinds] + [run.kinds for _, run in verdict_runs]
show_text(judging.how_often(kinds_of))

# %% [markdown]
# In all five recorded runs both sentences have become rare. Compare two imaginary models: one with the new mix of stories and the old care with each kind, and one with the old mix and the new care:

# %% tags=["source-hidden"] deck="Most of the progress: difficult sentences have become rare"
figures.avoided(kinds_of[0], kinds_of[1:])

# %% tags=["source-hidden"] evidence="avoids" tried="seeds"
# Checked in five runs with 768 stories each: the new mix alone is most of the progress.
for kinds in kinds_of[1:]:
    half = (judging.part_possible(kinds) - before) / 2
    assert judging.mixed(kinds, kinds_of[0]) > before + 1.2 * half > before + half > judging.mixed(kinds_of[0], kinds)

# %% [markdown]
# The new mix alone gives three quarters of the progress or more, in each run. The model has mainly learned to **avoid** what it gets wrong. [[avoids]] Does it at least know better who has what? We ask about stories that *the language* tells, where it cannot avoid anything:

# %% tags=["source-hidden"] deck="Does it know better who has what?"
knew, know = recorded.start.owners_right, [run.owners_right for _, run in verdict_runs]
predict(
    "How often do the trained models name the right owner, compared with the start?",
    key=lambda: "no more often" if sum(know) / len(know) < knew + 0.03 else "more often",
    choices={
        "more often": "They would, if they had become careful. But they needed this knowledge less than before.",
        "no more often": "",
    },
    because="They were rewarded for possible stories, and a story without an owner is easier.",
)

# %%
n_updates = 16  # try 40
measured = [run for _, run in recorded.runs[0.0, True, 0.0, n_updates]]
print(f"right owners: before {recorded.start.owners_right:.2f},", end=" ")
print("after", *(f"{run.owners_right:.2f}" for run in measured))

# %% tags=["source-hidden"] evidence="not-better" tried="seeds"
# Checked: the mean of the runs is not above the start, and no run by two standard errors.
assert sum(know) / len(know) < knew and max(know) < knew + 0.069

# %% [markdown]
# The runs are right no more often. [[not-better]] This is **reward hacking**: the reward rises, and what we had in mind does not.

# %% [markdown] tags=["note"]
# **Say.** The usual medicine: a leash. The model may change, but each step away from where it started has a price.
#
# **Usual answers.**
# - *The plain log-ratio is enough* (`log-ratio alone`): As a number its mean is right. As a loss it pulls nowhere, because its gradient is 0 on average.
# - *Ratio the other way round* (`exchanged`): The texts come from the model, so the ratio has the model below.
# - *Why not simply stop earlier?* (from the room): A good rival: it trades one for the other, too.
#
# **Cut if short.** The estimate.
#
# **Tried.** Three seeds for each beta, 40 updates, 768 stories. From the language: 0.13 to 0.19 nats per token with 0, 0.10 to 0.13 with 0.03, 0.05 to 0.07 with 0.1, 0.03 with 0.3, so 0 and 0.03 overlap; possible: 0.75 to 0.84, 0.72 to 0.76, 0.47 to 0.55, 0.23 to 0.31. With 0.3 the runs went 1.0 to 1.8 nats from the start, and needed at most 0.03; the smallest of the twelve ratios is 7.8. With a coin as judge 16 updates go 2.7 to 7.5 nats, with verdicts 3.2 to 5.5. Without a penalty, 48 updates at 1e-4 (one seed) go 0.37 nats for 0.32 possible: here a small learning rate is the better leash. The bound is exact for any two models; for several beginnings nobody reaches it. A coin p = sigmoid(-1), reference sigmoid(-0.5), 200,000 draws: gradient of the KL -0.098, of the loss -log r -0.0004, of r - log r - 1 -0.109, which is the gradient of KL(reference, p).

# %% [markdown] deck="A leash: a price for each nat away from the start"
# ## 5. A leash
# The model should improve and stay near the one that it was, the *reference*. So one adds a **penalty** to the loss: $\beta$ times the KL divergence from the reference, estimated from the tokens that were drawn:
#
# $$\text{KL} \approx \text{mean of } r - \log r - 1, \qquad r = \frac{p_\text{reference}(\text{token})}{p(\text{token})}.$$
#
# The mean of $-\log r$ is the same number, but as a loss it would not pull at all: its slope is that of $\log p$, whose mean is 0 (section 2). With $r - 1$ it pulls, and the term of each token is at least 0 ([Schulman 2020](http://joschu.net/blog/kl-approx.html)).
#
# ### Your turn: the penalty


# %% tags=["exercise"] name="kl_penalty" minutes=7 difficulty=2 deck="Your turn: the penalty"
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

# %% slide="skip"
hint("kl_penalty")

# %% [markdown] tags=["solution"]
# The logarithm of a ratio is a difference of logarithms, and `exp` gives the ratio. Common mistakes: to exchange model and reference; to forget the 1, so that equal models have a distance; to count tokens of the prompt.

# %% [markdown]
# How far *must* a model go? If we see only verdicts, each model is a coin that lands on *possible* with some probability. The models are at least as far apart as these coins, because hiding a part of a draw cannot increase a KL divergence:


# %%
def least_nats(p, q):
    """From a model with a fraction q of possible stories to one with p."""
    # ESSENTIAL
    coin, other = torch.tensor([p, 1 - p]), torch.tensor([q, 1 - q])
    return (coin * (coin / other).log()).sum().item()
    # END


goal = 0.9  # try 0.5
# ESSENTIAL
print(f"from {before:.2f} to {goal}: {least_nats(goal, before):.2f} nats a story")
# END

# %% [markdown]
# For one beginning, one model reaches this minimum: the start, with the probability of *every possible story multiplied by the same factor*. It leaves out nothing but mistakes. Do runs of 40 updates find it?

# %% tags=["source-hidden"] deck="The penalty trades possible stories for nearness"
curve = [(least_nats(p / 100, before), p / 100) for p in range(21, 99)]
with_penalty = judging.with_penalty(recorded)
figures.penalties(with_penalty, curve)

# %% tags=["source-hidden"] evidence="penalty" tried="seeds"
# Checked: more penalty, nearer to the language; all went seven times as far from the start as they had to, or more.
free, weak, middle, strong = ([run.from_language for run in each] for each in with_penalty.values())
assert max(strong) < min(middle) < max(middle) < min(weak) and sum(weak) < sum(free)
every = [run for each in with_penalty.values() for run in each]
assert all(run.from_start > 7 * least_nats(judging.part_possible(run.kinds), before) for run in every)

# %% [markdown]
# The larger $\beta$, the nearer the models stay to the language, on average over three runs. But 0.03 keeps them no nearer to the start, and 0.1 and 0.3 cost possible stories. All went at least seven times as far from the start as they had to: they changed *which* stories they tell, and part is noise. [[penalty]]

# %% [markdown] tags=["note"]
# **Say.** Now somebody else chose the reward, and does not tell us which. Read the stories and guess.
#
# **Usual answers.**
# - *Long stories* (`long stories`): They are long, but why always this one sentence?
# - *Possible stories* (`possible stories`): Hardly one of them is.
# - *At most one such sentence* (from the room): Good. What will it find next?
#
# **Cut if short.** Nothing.
#
# **Tried.** Three recorded seeds: 0.6 to 0.7 such sentences a story before, 4.5 to 5.8 after; from the ninth update on no story is possible. At half the learning rate (two seeds) 12 updates reach one sentence in each story, without a repetition; the repetition is found at update 20 to 27, and 36 updates end at 3.9 and 7.8, with no possible story.

# %% [markdown]
# ## 6. Break it: guess the reward
# Somebody wanted to prevent this avoidance with another reward, and trained the start with it for 12 updates. Here is how it continues after the bar. What was the reward?

# %% tags=["source-hidden"] deck="What was rewarded here?"
show_text(recorded.gamed[1].texts)

# %% tags=["source-hidden"] deck="What was the reward?"
predict(
    "What was the reward?",
    key=lambda: "each owner sentence" if min(run.reward[-1] for run in recorded.gamed) > 2 else "possible stories",
    choices={
        "long stories": "A long story could be long in many ways. Which kind of sentence comes again and again?",
        "possible stories": "Then you should find a possible one among them.",
        "each owner sentence": "",
    },
    because="Each of these sentences counted, true or not, and nothing else did.",
)

# %% deck="The reward rises, and hardly any story is possible"
runs = recorded.gamed
for update in (1, 6, 12):
    # ESSENTIAL
    at = update - 1
    print(f"update {update}: owner sentences", *(f"{r.reward[at]:.1f}" for r in runs))
    print("    stories possible", *(f"{r.possible[at]:.2f}" for r in runs))
    # END

# %% tags=["source-hidden"] evidence="gamed" tried="seeds"
# Checked in three recorded runs: the reward doubles, and hardly any story is possible.
assert all(run.reward[-1] > 2 * run.reward[0] and sum(run.possible[-3:]) / 3 < 0.1 for run in recorded.gamed)

# %% [markdown]
# Each owner sentence counted, and nobody asked whether it is true. In three recorded runs the model learned to repeat it, and in the end no story is possible. [[gamed]] A reward is not what you *mean*. It is what you *wrote*. If the reward is itself a model, its score keeps rising while the true quality first rises and then falls ([Gao et al. 2023](https://arxiv.org/abs/2210.10760)).

# %% [markdown] tags=["note"]
# **Say.** What is different in the models that you know? The judge. For programs and sums it is a test, as here. For everything else people compare answers.
#
# **Usual answers.**
# - *The one whose chosen story rose* (`the one that gained 1`): The loss looks at the difference alone.
# - *Beta multiplies the loss* (`beta in front`): Inside it decides how far the model has to move until a pair counts as learned.
# - *The reference is unnecessary* (`reference unused`): Then a text that was improbable from the start loses, however much it improved.
#
# **Cut if short.** The instructions; say their result.
#
# **Tried.** DPO, three seeds, 577 and more pairs of the start's stories, 175 to 181 new pairs (standard error 0.035), 768 new stories: after 5 steps 0.64 to 0.69 are ranked right, after 40 0.69 to 0.74, after 120 0.65 to 0.75. Possible stories: 0.44 to 0.58 after 40, 0.04 to 0.22 after 120, 0.09 after 240 (one seed). Chosen stories lose 16 to 24 nats by 120, rejected 24 to 31. With the chosen story's loss added, it loses 6 to 7 nats by 120, and 0.57 to 0.58 are possible; 0.44 after 240 (one seed). At 1.5e-4 instead of 5e-4 (one seed, 338 pairs): chosen -0.2, -1.5, -3.2 after 40, 80, 120, possible 0.36, 0.51, 0.57, so the fall of possible stories belongs to this learning rate. Examples, 32 updates, three seeds: with the loss on the story 57 to 88 % of what was asked is used, on everything 62 to 72 %, before 29 %; a name begins a line with 0.00, 0.97 to 0.99, 0.00. After 16 updates: 36 to 77 %, 12 to 17 %, so the loss on everything is slower, and does catch up.

# %% [markdown] deck="What large models get: examples, comparisons, rewards"
# ## 7. What large models get
# **RLHF**, reinforcement learning from human feedback, has three steps ([Ouyang et al. 2022](https://arxiv.org/abs/2203.02155)).
#
# First come **examples**: a pretrained model follows instructions badly, so training continues on instructions with their answers (**supervised fine-tuning**, SFT). Usually only the answer counts in the loss; the targets in the instruction are -100 (lesson 03). Our instruction is a line with two names and two things:

# %%
n_updates = 32  # try 2
tuned = instructions.fine_tuned(start, tokenizer, SEED, n_updates=n_updates)
show_text(instructions.answered(tuned, tokenizer, seed=2002))
# ESSENTIAL
for name, found in recorded.examples.items():
    print("not trained" if name == "before" else f"loss on {name}")
    print("    uses of what is asked", *(f"{run.as_asked:.0%}" for run in found))
    print("    begins with a name", *(f"{run.begins_with_name:.2f}" for run in found))
# END

# %% tags=["source-hidden"] evidence="form-learned" tried="seeds"
# Checked in three recorded runs each: examples teach to use what is asked; only the loss on everything, to ask.
(untaught,), taught, asking = recorded.examples.values()
assert min(run.as_asked for run in (*taught, *asking)) > untaught.as_asked + 0.15
assert max(run.begins_with_name for run in taught) < 0.01 < 0.5 < min(run.begins_with_name for run in asking)

# %% [markdown]
# After 32 updates the stories use more of the two names and things. With the loss on everything the model also learns to write instructions: without one, it begins with a name, which no story does. [[form-learned]] *From completing to answering* (`more/18_chat`) continues with the loss on answers only.
#
# Second come **comparisons** of two answers by people, which a **reward model** learns to predict. Third, its score is the reward of a training like ours, with a leash. **DPO** ([Rafailov et al. 2023](https://arxiv.org/abs/2305.18290)) needs no reward model, and no writing during training. For a pair of a *chosen* and a *rejected* answer it asks how much more probable each has become than it is under the reference:
#
# $$\text{loss} = -\log \sigma\Big(\beta \Big[\log \frac{p(\text{chosen})}{p_\text{reference}(\text{chosen})} - \log \frac{p(\text{rejected})}{p_\text{reference}(\text{rejected})}\Big]\Big)$$
#
# ### Your turn: DPO


# %% tags=["exercise"] name="dpo_loss" minutes=7 difficulty=2 deck="Your turn: DPO"
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

# %% slide="skip"
hint("dpo_loss")

# %% [markdown] tags=["solution"]
# Each ratio of probabilities is a difference of log-probabilities. `logsigmoid` computes the logarithm without an overflow; `sigmoid` followed by `log` gives minus infinity for a pair that is wrong by far. Common mistakes: to put beta in front of the loss; to leave out the reference.

# %% [markdown]
# The brackets hold the **margin**. In one model the chosen story of a pair has gained 1 nat and the rejected one is as before. In another the chosen story has *lost* 20 nats, and the rejected one 40.

# %%
preference = yours("dpo_loss", dpo_loss)


def pair_loss(chosen, rejected, beta=0.1):
    changed = torch.tensor([[chosen], [rejected], [0.0], [0.0]])  # (4, 1)
    return preference(*changed, beta).item()


# %% tags=["source-hidden"] deck="Which model has the lower loss?"
predict(
    "Which of the two models has the lower DPO loss?",
    key=lambda: "the one that lost 20 and 40" if pair_loss(-20, -40) < pair_loss(1, 0) else "the one that gained 1",
    choices={
        "the one that gained 1": "Its margin is 1. What is the other one's?",
        "the one that lost 20 and 40": "",
    },
    because="The loss looks at the margin alone, so losing both stories is fine, if the rejected one loses more.",
)

# %% deck="The loss sees the margin, not the probability"
lost = 20.0  # try 2.0 and 200.0
print(f"chosen gained 1, rejected as before: loss {pair_loss(1, 0):.3f}")
print(f"lost {lost:g} and {2 * lost:g}: loss {pair_loss(-lost, -2 * lost):.3f}")

# %% [markdown]
# Does training go there? The start writes two stories to the same beginning, one possible and one not; the possible one is *chosen*. Recorded runs learned from several hundred pairs:

# %% tags=["source-hidden"] deck="DPO raises a margin, and both stories of a pair become less likely"
figures.margins({"DPO": recorded.pairs[0.0], "DPO + chosen": recorded.pairs[1.0]}, recorded.start.kinds)

# %% tags=["source-hidden"] evidence="margin" tried="seeds"
# Checked in three runs: both lose until step 40, and much more to the end; the ranking stays, fewer are possible.
for _, _, middle, *_, end in recorded.pairs[0.0]:
    assert abs(end.ranked - middle.ranked) < 0.08 and end.ranked > 0.6 and end.chosen < middle.chosen - 5 < -7
    assert judging.part_possible(middle.kinds) > max(judging.part_possible(end.kinds) + 0.15, before + 0.2)

# %% [markdown]
# After 40 steps the models rank more than two thirds of new pairs right, and more stories are possible, although both stories have become less likely. From there on the ranking stays, both lose much more, and fewer stories are possible. The loss does not ask where the probability goes: **a margin is not a probability**. [[margin]] ([Razin et al. 2024](https://arxiv.org/abs/2410.08847): *likelihood displacement*.) With lesson 11's loss of the chosen story added (green), it loses less, and the stories stay possible.

# %% [markdown] tags=["note"]
# **Say.** Two sentences for the way home: if you can judge, you can teach. And what you reward is what you get.
#
# **Ask.** At the door: "Name one thing that you would reward in a chat model, and how it could be hacked."
#
# **Usual answers.**
# - *Reward politeness* (from the room): How would a model be polite and useless?
# - *Reward the user's approval* (from the room): It may learn to flatter.
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="If you can judge, you can teach; and you get what you reward"
# ## What you have now
# - Learning from verdicts makes more stories possible, and takes the model farther from the language than a coin as judge. [[both-rise]]
# - The policy gradient makes what was drawn more likely in proportion to its reward, and is right on average. [[trick]]
# - A baseline that is chosen before the draw leaves this mean, and can reduce the spread a lot. [[baseline]]
# - Rewards of 0 and 1 without a baseline are imitation of one's own successes. [[imitation]]
# - In 16 updates a baseline adds nothing there; with 10 and 11, nothing is learned without it. [[needs-baseline]]
# - The model mainly learned to avoid what it gets wrong. [[avoids]]
# - It knows no better who has what. [[not-better]]
# - A larger penalty keeps it nearer to the language, and it still goes farther than it must. [[penalty]]
# - A reward that counts sentences gets sentences. [[gamed]]
# - Examples teach to use what is asked, and with the loss on everything also to ask. [[form-learned]]
# - DPO raises a margin, and a margin is not a probability. [[margin]]
#
# Next, lesson 18: are the real models like this one?

# %% [markdown]
# ## Sources
# - The policy gradient and its baseline: Williams 1992, [*Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*](https://doi.org/10.1007/BF00992696); Greensmith et al. 2004, [*Variance Reduction Techniques*](https://www.jmlr.org/papers/v5/greensmith04a.html).
# - Groups: Shao et al. 2024, [*DeepSeekMath*](https://arxiv.org/abs/2402.03300). Human feedback: Ouyang et al. 2022, [*Training Language Models to Follow Instructions with Human Feedback*](https://arxiv.org/abs/2203.02155).
# - Pairs: Rafailov et al. 2023, [*Direct Preference Optimization*](https://arxiv.org/abs/2305.18290); Razin et al. 2024, [*Unintentional Unalignment*](https://arxiv.org/abs/2410.08847).
