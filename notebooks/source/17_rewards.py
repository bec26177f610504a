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
# **Draw.** None.
#
# **Ask.** "Where in your life do you know a good answer when you see one, but could not write it down?" (Jokes, proofs, programs that pass their tests.)
#
# **Usual answers.**
# - *It comes nearer to the language* (`it comes nearer`): More of its stories are possible, so it should. Look at the second curve.
# - *We could train on right stories* (from the room): Here we could, because StoryWorld can write them. For a proof often nobody can.
#
# **Cut if short.** The three stories.
#
# **Tried.** Five seeds, 768 new stories each after 16 updates (standard error 0.02): 0.54 to 0.59 possible, 0.21 before; 0.069 to 0.084 nats per token from the language, 0.019 before. After 40 updates (three seeds): 0.75 to 0.84, and 0.13 to 0.19 nats.

# %% [markdown]
# ## 1. Judging instead of writing
# To train a model, somebody has to write texts (lesson 11). But often it is much easier to **judge** an answer than to write one: does the program pass its tests, is the proof correct? StoryWorld is such a judge, because it knows whether a story contains an impossible word. Here the shipped model continues the first two sentences of a story. Each story is shown up to its first impossible word, in brackets:

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
# We pretend that nobody can write a right story, so the model learns from verdicts alone. For each update it writes 8 stories to each of 4 beginnings, the judge gives each of them a 1 or a 0, and the good ones become a little more likely, the others less. (How? See sections 2 and 3.) **Your task:** move the handle back to the first update. Where do its stories go wrong, and where do the last ones?

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
    because="Nothing pulls towards the language: the reward asks only for stories without an impossible word.",
)

# %% tags=["source-hidden", "signature"] deck="More stories are possible, and the model leaves the language"
part_right = [update.rewards.mean().item() for update in history]
verdict_runs = recorded.runs[0.0, True, 0.0, 16]
figures.judged(part_right, away, verdict_runs, recorded.start)

# %% tags=["source-hidden"] evidence="both-rise" tried="seeds"
# Checked in five recorded runs, on 768 new stories each, and in ours: both rise.
before = judging.part_possible(recorded.start.kinds)
assert min(judging.part_possible(run.kinds) for _, run in verdict_runs) > before + 0.2
assert min(run.from_language for _, run in verdict_runs) > 2 * recorded.start.from_language
assert sum(part_right[-4:]) > sum(part_right[:4]) + 0.3 and away[1] > 2 * away[0]

# %% [markdown]
# Both curves rise, with every seed: more stories are possible, and the model's probabilities are farther from those of the language. [[both-rise]] How does this work, and what has the model learned?

# %% [markdown] tags=["note"]
# **Say.** Forget texts for a moment. The smallest thing that makes a choice is a coin. We want more heads, and we may only throw it and look.
#
# **Draw.** None: the formula is on the screen. Underline the trick in it.
#
# **Ask.** None: the prediction asks. (The reward fell from the sky, so how can it have a gradient? It has none. The probability of the throw has one.)
#
# **Usual answers.**
# - *Nothing changes, because 11 - 10 is 1 - 0* (`nothing changes`): True for the mean. A single throw is multiplied by 10 or 11, though.
# - *Both grow tenfold* (`both larger`): Only differences between rewards have a direction, so the mean stays.
# - *The mean reward is the best baseline* (from the room): Nearly. Choose *best* in the control.
#
# **Cut if short.** The last paragraph.
#
# **Tried.** Ten seeds of 10,000 throws: all within four standard errors. The mean is exact for each baseline. A reward of 0 and 1 instead of 10 and 11 makes the baseline *none* nearly as good as the mean reward: this is the case of section 3.

# %% [markdown]
# ## 2. A coin that wants heads
# The smallest model that makes a choice is a coin. It lands on heads with probability $\sigma(\theta)$. Heads has the reward 1, tails 0. In which direction must $\theta$ move for more reward?

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
# Here we could add up *all* outcomes. A model that writes has too many: it can only write and look at the reward, and no gradient flows back through a draw. The **log-derivative trick** ([Williams 1992](https://doi.org/10.1007/BF00992696)) moves the derivative to something that we know, the log-probability of what was drawn. Since $\nabla p = p \, \nabla \log p$,
#
# $$\nabla \sum_x p(x)\, R(x) = \sum_x p(x)\, R(x)\, \nabla \log p(x).$$
#
# The right side is a *mean* over draws, of reward times $\nabla \log p$. So we draw, and take that mean:


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
baselines = {"none": 0, "mean reward": 10 + p_heads}
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


control(with_baseline, baseline=list(baselines), frames=4)

# %% tags=["source-hidden"] evidence="baseline" tried="exact"
# Checked: p of heads and 1 - p of tails average to the exact gradient with each baseline; the spreads differ.
for value in baselines.values():
    assert abs(p_heads * (1 - p_heads) * ((11 - value) - (10 - value)) - exact) < 1e-5
assert by_baseline["none"].std() > 10 * by_baseline["mean reward"].std() > 100 * by_baseline["best"].std()

# %% [markdown]
# Whatever number we subtract, the mean of the estimates is the exact gradient, because the mean of $\nabla \log p$ is 0. With the mean reward as the baseline they scatter far less than without one. [[baseline]] Reward minus baseline is the **advantage**: *was this better than usual?*
#
# It is not the best one. Heads contributes $(11 - b)(1 - p)$ to an estimate, tails $-(10 - b)\,p$. These are equal for $b = 11 - p$, and then every throw gives the exact gradient. For texts the best baseline would require a gradient of each text ([Greensmith et al. 2004](https://www.jmlr.org/papers/v5/greensmith04a.html)), so the mean is used.

# %% [markdown] tags=["note"]
# **Say.** From the coin to texts there is one decision: usual compared with what? Then the honest question: does the baseline matter here at all?
#
# **Draw.** None.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *Fewer possible stories* (`fewer are possible`): The spread is larger, so it should be worse. But a reward of 0 pushes nothing, and a reward of 1 is small.
# - *The loss must be positive* (`wrong sign`): Minus a log-probability is positive, minus an advantage times it need not be.
# - *Average each text first* (`mean of each text first`): Then a token of a short text counts more.
#
# **Cut if short.** The trace.
#
# **Tried.** Five seeds, 768 new stories each. Rewards of 0 and 1: with the group's mean 0.54 to 0.59 possible, without a baseline 0.48 to 0.60 (means 0.56 and 0.56). Without a baseline, 1 and 2: 0.13 to 0.27; 10 and 11: 0.00 to 0.18, once at 79 nats per story from the start. Before: 0.21. The sums of the loss without a baseline: exact.

# %% [markdown]
# ## 3. From a coin to stories
# A text is many draws, one for each token, and all of them get the advantage of the text.
#
# ### Your turn: the loss


# %% tags=["exercise"] name="policy_gradient_loss" minutes=9 difficulty=2 deck="Your turn: the loss"
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
from tinylm_classroom import check, hint, keep, trace, yours

if check("policy_gradient_loss", policy_gradient_loss).passed:
    keep("policy_gradient_loss", policy_gradient_loss)

# %% slide="skip"
hint("policy_gradient_loss")

# %% [markdown] tags=["solution"]
# `[:, None]` gives the advantages a second axis, so that each row is multiplied by its own; the mask then selects the written tokens, and one mean goes over all of them. Common mistakes: to forget the minus; to count the prompt, which the model did not choose; to average each text first, which makes a token of a short text count more; to let the gradient flow into the advantages.

# %% [markdown]
# Which baseline? Some beginnings are more difficult than others. So the model writes **a group** of stories to the same beginning, and the baseline is the mean of the group, as in *GRPO* ([Shao et al. 2024](https://arxiv.org/abs/2402.03300)). P beginnings with K stories each make B texts:


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
    texts = rewards.rollouts(model, prompts, **options, generator=source)
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
# With your loss, this is one update of section 1 and nothing more. [[same-step]] If all stories of a group are right, or all wrong, every advantage is 0 and the group teaches nothing.
#
# ### Take the baseline out
# With rewards of 0 and 1 and no baseline, the wrong stories count 0, so only the right ones have a gradient. What is that?

# %% deck="Rewards of 0 and 1 without a baseline: the loss of lesson 11 on one's own successes"
verdicts = judging.verdicts(tokenizer, first_texts)  # (B)
added = 0.0  # try 10.0
log_probs = judging.answer_log_probs(start, first_texts)  # (B, N)
# ESSENTIAL
without = policy_loss(log_probs, verdicts + added, first_texts.mask)
successes = first_texts.mask & (verdicts == 1)[:, None]  # (B, N)
training_loss = -log_probs[successes].mean()
part = successes.sum() / first_texts.mask.sum()
print(f"{without.item():.5f} = {part:.3f} of the tokens x {training_loss.item():.4f}")
# END

# %% tags=["source-hidden"] evidence="imitation" tried="exact"
# Checked: the two losses are the same number, so their gradients are.
torch.testing.assert_close(without, part * training_loss)

# %% [markdown]
# It is the loss of lesson 11 on the stories that passed: **imitation of one's own successes**. [[imitation]] We recorded runs like that of section 1, with the baseline and without it, and also with 1 or 10 added to all rewards.

# %% tags=["source-hidden"] deck="Rewards of 0 and 1, no baseline: what becomes of the stories?"
runs_of, fine, means = judging.without_baseline(recorded)
predict(
    "Rewards of 0 and 1, with the baseline taken out: how many stories are possible after the run?",
    key=lambda: "about as many" if abs(means["0 and 1"][0] - means["0 and 1"][1]) < 0.06 else "fewer are possible",
    choices={
        "fewer are possible": "That was so for the coin with 10 and 11. Here the rewards are 0 and 1.",
        "about as many": "",
    },
    because="Right stories become more likely in both cases, and the probabilities of all texts sum to 1.",
)

# %% tags=["source-hidden"] deck="Rewards of 0 and 1 need no baseline, rewards of 10 and 11 do"
figures.without_baseline(runs_of, recorded.start)

# %% tags=["source-hidden"] evidence="needs-baseline" tried="seeds"
# Checked in five runs each: no baseline changes nothing for 0 and 1, and 10 and 11 without it teach nothing.
assert abs(means["0 and 1"][0] - means["0 and 1"][1]) < 0.06
assert max(fine["10 and 11"][1]) < before + 0.03 < before + 0.2 < min(fine["0 and 1"][1])

# %% [markdown]
# With 0 and 1 the runs end alike. With 10 and 11 and no baseline, no run gets better than the start: *every* story is pushed up, right or wrong, and the difference drowns in noise, as with the coin. [[needs-baseline]] So a baseline matters where rewards are far from 0. (On mathematics, too, training on one's own successes competes with GRPO: [Xiong et al. 2025](https://arxiv.org/abs/2504.11343).)

# %% [markdown] tags=["note"]
# **Say.** The reward went up. Now be the one who is not convinced. What else could have happened, other than that it learned to tell stories correctly?
#
# **Draw.** None: the four bars are on the screen.
#
# **Ask.** After the picture: "Is this cheating?" (It did exactly what we rewarded.)
#
# **Usual answers.**
# - *It knows better who has what* (from the room): Then stories with a gift would now mostly be possible.
# - *It writes shorter stories* (from the room): A good suspicion; the language has no much shorter ones.
#
# **Cut if short.** The two continuations.
#
# **Tried.** Five seeds, 768 stories each, four kinds of stories (gift, owner sentence, both, none). The new mix alone gives 76 to 90 % of the progress, the new care alone 4 to 30 %. With gifts alone as the kinds, and 128 stories, it was 110 % and -25 %: the luck of a small sample, and one of two avoided sentences. Owners: the start is right in 0.66 of 374, the runs in 0.60 to 0.70, with losses from 0.59 to 0.81 nats above the floor instead of 0.48; after 40 updates 0.60 to 0.70.

# %% [markdown]
# ## 4. What did it learn?
# More stories are possible now. Either the model does the difficult thing *better*, or it does it *less often*. Two sentences are difficult, because one must know who has what (lesson 16): a **gift** (somebody gives or hands over a thing) and an **owner sentence** (*By then the red hat belonged to Tom*). **Your task:** read pairs of stories, before and after the 16 updates. What does the model do differently?

# %% deck="The same beginning, before and after"
row = 14  # try 8 and 16
told = {}
for name, each in {"before": start, "after": model}.items():
    texts = judging.drawn(each, tokenizer, 3, seed=501)
    # ESSENTIAL
    told[name] = judging.marked(judging.decoded(tokenizer, texts)[row])
    # END
show_text(told)

# %%
kinds_of = [recorded.start.kinds] + [run.kinds for _, run in verdict_runs]
for which, what in enumerate(("a gift", "an owner sentence")):
    often = [judging.part_with(each, which) for each in kinds_of]
    print(f"stories with {what}:", *(f"{part:.0%}" for part in often))

# %% [markdown]
# In all five recorded runs both sentences have become rare. Suppose that only *how often* it writes each kind of story had changed, and of each kind as many were possible as before. Or the other way round:

# %% tags=["source-hidden"] deck="Most of the progress: difficult sentences have become rare"
figures.avoided(kinds_of[0], kinds_of[1:])

# %% tags=["source-hidden"] evidence="avoids" tried="seeds"
# Checked in five runs with 768 stories each: the new mix alone is most of the progress.
for kinds in kinds_of[1:]:
    half = (judging.part_possible(kinds) - before) / 2
    assert judging.mixed(kinds, kinds_of[0]) > before + 1.2 * half > before + half > judging.mixed(kinds_of[0], kinds)

# %% [markdown]
# The new mix alone gives three quarters of the progress or more, in each run. The model has mainly learned to **avoid** what it gets wrong. [[avoids]] Does it at least know better who has what? We ask about stories that *the language* tells, where it cannot avoid anything:

# %% deck="On the language's own stories it knows no better who has what"
n_made = 16  # try 40
portraits = [recorded.start] + [run for _, run in recorded.runs[0.0, True, 0.0, n_made]]
n_owners = recorded.start.n_owners
print(f"right, of {n_owners}:", *(f"{each.owners_right:.2f}" for each in portraits))
print("nats above the floor:", *(f"{each.owner_nats:.2f}" for each in portraits))

# %% tags=["source-hidden"] evidence="not-better" tried="seeds"
# Checked: the mean of the runs is not above the start, no run by two standard errors, and each has a higher loss.
rights = [each.owners_right for each in portraits]
error = (2 * rights[0] * (1 - rights[0]) / n_owners) ** 0.5
assert sum(rights[1:]) / 5 < rights[0] and max(rights[1:]) < rights[0] + 2 * error
assert min(each.owner_nats for each in portraits[1:]) > portraits[0].owner_nats

# %% [markdown]
# The first number is the start. The runs are right no more often, and all have a higher loss. [[not-better]] This is **reward hacking**: the reward rises, and what we had in mind does not.

# %% [markdown] tags=["note"]
# **Say.** The usual medicine: a leash. The model may change, but each step away from where it started has a price.
#
# **Draw.** None: the picture shows the leash.
#
# **Ask.** None: the picture answers what a long and a short leash do.
#
# **Usual answers.**
# - *The plain log-ratio is enough* (`log-ratio alone`): Its mean is right, but single tokens can be negative, and near the start it scatters more.
# - *Ratio the other way round* (`exchanged`): The texts come from the model, so the ratio has the model below.
# - *Why not simply stop earlier?* (from the room): A good rival: it trades one for the other, too.
#
# **Cut if short.** The estimate.
#
# **Tried.** Three seeds for each beta, 40 updates, 768 stories. From the language: 0.13 to 0.19 nats per token with 0, 0.10 to 0.13 with 0.03, 0.05 to 0.07 with 0.1, 0.03 with 0.3, so 0 and 0.03 overlap; possible: 0.75 to 0.84, 0.72 to 0.76, 0.47 to 0.55, 0.23 to 0.31. With 0.3 the runs went 1.0 to 1.8 nats from the start, and needed at most 0.03. The bound is exact for any two models.

# %% [markdown] deck="A leash: a price for each nat away from the start"
# ## 5. A leash
# The model should improve and stay near the one that it was, the *reference*. So one adds a **penalty** to the loss: $\beta$ times the KL divergence from the reference, estimated from the tokens that were drawn:
#
# $$\text{KL} \approx \text{mean of } r - \log r - 1, \qquad r = \frac{p_\text{reference}(\text{token})}{p(\text{token})}.$$
#
# The mean of $-\log r$ alone would be right, too. But $r - 1$ is 0 on average, and with it no token has less than 0, so near the reference the estimate scatters less ([Schulman 2020](http://joschu.net/blog/kl-approx.html)).
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
# How far *must* a model go? At least as far as two coins are apart that land on *possible* as often as the two models do, because the verdict is only a part of the story:


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
# One model comes as near: the start, with the probability of *every possible story multiplied by the same factor*. It avoids nothing. Do runs of 40 updates find it?

# %% tags=["source-hidden"] deck="The penalty trades possible stories for nearness"
curve = [(least_nats(p / 100, before), p / 100) for p in range(21, 99)]
with_penalty = judging.with_penalty(recorded)
figures.penalties(with_penalty, curve)

# %% tags=["source-hidden"] evidence="penalty" tried="seeds"
# Checked: more penalty, nearer to the language; and all went at least twice as far from the start as they had to.
away_of = {beta: [run.from_language for run in each] for beta, each in with_penalty.items()}
assert max(away_of[0.3]) < min(away_of[0.1]) < max(away_of[0.1]) < min(away_of[0.03])
assert sum(away_of[0.03]) < sum(away_of[0.0])
every = [run for each in with_penalty.values() for run in each]
assert all(run.from_start > 2 * least_nats(judging.part_possible(run.kinds), before) for run in every)

# %% [markdown]
# The larger $\beta$, the nearer the models stay to the language, on average over three runs. But all went at least twice as far from the start as so many possible stories require: they changed *which* stories they tell. [[penalty]]

# %% [markdown] tags=["note"]
# **Say.** Now somebody else chose the reward, and does not tell us which. Read the stories and guess.
#
# **Draw.** None: leave the stories on the screen.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *Long stories* (`long stories`): They are long, but why always this one sentence?
# - *Possible stories* (`possible stories`): Hardly one of them is.
# - *At most one such sentence* (from the room): Good. What will it find next?
#
# **Cut if short.** Nothing.
#
# **Tried.** Three recorded seeds and the one of the lesson: 0.6 to 0.7 such sentences a story before, 4.5 to 5.8 after; from the ninth update on no story of the recorded runs is possible.

# %% [markdown]
# ## 6. Break it: guess the reward
# Somebody wanted to prevent this avoidance with another reward, and trained the start with it for 12 updates. Here is what it writes now, after five sentences of a story. What was the reward?

# %% tags=["source-hidden", "nbval-ignore-output"] deck="What was rewarded here?"
strange = judging.mystery(start, tokenizer, SEED)
show_text([judging.begun(text) for text in judging.decoded(tokenizer, strange[-1].rollouts)[:16:8]])

# %% tags=["source-hidden"] deck="What was the reward?"
ours = judging.gamed(tokenizer, strange)
predict(
    "What was the reward?",
    key=lambda: (
        "each sentence that says whose a thing is" if ours.reward[-1] > 2 * ours.reward[0] else "possible stories"
    ),
    choices={
        "long stories": "A long story could be long in many ways. Which kind of sentence comes again and again?",
        "possible stories": "Then you should find a possible one among them.",
        "each sentence that says whose a thing is": "",
    },
    because="Each of these sentences counted, true or not, and nothing else did.",
)

# %% deck="The reward rises, and hardly any story is possible"
for run in recorded.gamed:
    # ESSENTIAL
    print("sentences a story:", *(f"{run.reward[i]:.1f}" for i in (0, 5, 11)), end=", ")
    print("possible:", *(f"{run.possible[i]:.2f}" for i in (0, 5, 11)))
    # END

# %% tags=["source-hidden"] evidence="gamed" tried="seeds"
# Checked in three recorded runs and in ours: the reward doubles, and hardly any story is possible.
runs = (*recorded.gamed, ours)
assert all(run.reward[-1] > 2 * run.reward[0] and sum(run.possible[-3:]) / 3 < 0.1 for run in runs)

# %% [markdown]
# Each owner sentence counted, and nobody asked whether it is true. In three recorded runs the model learned to repeat it, and in the end no story is possible. [[gamed]] A reward is not what you *mean*. It is what you *wrote*. If the reward is itself a model, its score keeps rising while the true quality first rises and then falls ([Gao et al. 2023](https://arxiv.org/abs/2210.10760)).

# %% [markdown] tags=["note"]
# **Say.** What is different in the models that you know? The judge. For programs and sums it is a test, as here. For everything else people compare answers.
#
# **Draw.** None.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *The one whose chosen story rose* (`the one whose chosen story gained 1`): The loss looks at the difference alone.
# - *Beta multiplies the loss* (`beta in front`): Inside it decides how far the model has to move until a pair counts as learned.
# - *The reference is unnecessary* (`reference unused`): Then a text that was improbable from the start loses, however much it improved.
#
# **Cut if short.** The instructions; say their result.
#
# **Tried.** DPO, three seeds, 577 and more pairs of the start's stories, 175 to 181 new pairs (standard error 0.035), 768 new stories: after 5 steps 0.64 to 0.69 are ranked right, after 40 0.69 to 0.74, after 120 0.65 to 0.75. Possible stories: 0.44 to 0.58 after 40, 0.04 to 0.22 after 120, 0.09 after 240 (one seed). Chosen stories lose 16 to 24 nats by 120, rejected 24 to 31. (An older text had 31 new pairs and concluded that nothing is learned about new ones.) With the chosen story's loss added: 0.57 to 0.58 after 120, 0.44 after 240 (one seed). Examples, 32 updates, three seeds: with the loss on the story 57 to 88 % of what was asked is used, on everything 62 to 72 %, before 29 %; a name begins a line with 0.00, 0.97 to 0.99, 0.00. After 16 updates: 36 to 77 %, 12 to 17 %, so the loss on everything is slower, and does catch up.

# %% [markdown] deck="What large models get: examples, comparisons, rewards"
# ## 7. What large models get
# **RLHF**, reinforcement learning from human feedback, has three steps ([Ouyang et al. 2022](https://arxiv.org/abs/2203.02155)).
#
# First come **examples**: a pretrained model follows no instructions, so training continues on instructions with their answers (**supervised fine-tuning**, SFT). Only the answer counts in the loss; the targets in the instruction are -100 (lesson 03). Our instruction is a line with two names and two things:

# %%
n_updates = 32  # try 2
tuned = instructions.fine_tuned(start, tokenizer, SEED, n_updates=n_updates)
show_text(instructions.answered(tuned, tokenizer, seed=2002))
# ESSENTIAL
for name, found in recorded.examples.items():
    print(f"loss on {name}: uses", *(f"{run.as_asked:.0%}" for run in found), end=", ")
    print("begins with a name", *(f"{run.begins_with_name:.2f}" for run in found))
# END

# %% tags=["source-hidden"] evidence="form-learned" tried="seeds"
# Checked in three recorded runs each: examples teach to use what is asked; only the loss on everything, to ask.
(untaught,), taught, asking = recorded.examples.values()
assert min(run.as_asked for run in (*taught, *asking)) > untaught.as_asked + 0.15
assert max(run.begins_with_name for run in taught) < 0.01 < 0.5 < min(run.begins_with_name for run in asking)

# %% [markdown]
# After 32 updates the stories use more of the two names and things. With the loss on everything, too, but then the model also learns to write instructions: without one, it begins with a name, which no story does. [[form-learned]] *From completing to answering* (`more/18_chat`) goes on with the loss on answers only.
#
# Second come **comparisons** of two answers by people, which a **reward model** learns to predict. Third, its score is the reward of a training like ours, with a leash. **DPO** ([Rafailov et al. 2023](https://arxiv.org/abs/2305.18290)) does without the reward model and without writing. For a pair of a *chosen* and a *rejected* answer it asks how much more probable each has become than it is under the reference:
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
# The brackets hold the **margin**. In one model the chosen story of a pair has gained 1 nat of log-probability and the rejected one is as before. In another the chosen story has *lost* 20 nats, and the rejected one 40.

# %%
preference = yours("dpo_loss", dpo_loss)


def pair_loss(chosen, rejected, beta=0.1):
    changed = torch.tensor([[chosen], [rejected], [0.0], [0.0]])  # (4, 1)
    return preference(*changed, beta).item()


# %% tags=["source-hidden"] deck="Which model has the lower loss?"
predict(
    "Which of the two models has the lower DPO loss?",
    key=lambda: (
        "the one that lost 20 and 40"
        if pair_loss(-20, -40) < pair_loss(1, 0)
        else "the one whose chosen story gained 1"
    ),
    choices={
        "the one whose chosen story gained 1": "Its margin is 1. What is the other one's?",
        "the one that lost 20 and 40": "",
    },
    because="The loss looks at the margin alone, so losing both stories is fine, if the rejected one loses more.",
)

# %% deck="The loss sees the margin, not the probability"
lost = 20.0  # try 2.0 and 200.0
print(f"chosen gained 1, rejected as before: loss {pair_loss(1, 0):.3f}")
print(f"lost {lost:g} and {2 * lost:g}: loss {pair_loss(-lost, -2 * lost):.3f}")

# %% [markdown]
# Does training go there? Of two stories of the start to the same beginning, the possible one is chosen. Recorded runs learned from several hundred such pairs:

# %% tags=["source-hidden"] deck="A margin is not a probability: ranked right, and hardly possible"
figures.margins({"DPO": recorded.pairs[0.0], "plus chosen": recorded.pairs[1.0]}, recorded.start.kinds)

# %% tags=["source-hidden"] evidence="margin" tried="seeds"
# Checked in three runs: from step 40 to the end the ranking stays, both stories become less likely, fewer are possible.
for _, _, middle, *_, end in recorded.pairs[0.0]:
    assert abs(end.ranked - middle.ranked) < 0.08 and end.ranked > 0.6 and end.chosen < middle.chosen - 5
    assert judging.part_possible(end.kinds) < judging.part_possible(middle.kinds) - 0.15

# %% [markdown]
# After 40 steps the models rank more than two thirds of the new pairs right, and more stories are possible. From there on the ranking stays, both stories of a pair become less likely, and fewer and fewer stories are possible. The loss does not ask where the probability goes: **a margin is not a probability**. [[margin]] ([Razin et al. 2024](https://arxiv.org/abs/2410.08847): *likelihood displacement*.) The green lines add lesson 11's loss of the chosen story, which holds it.

# %% [markdown] tags=["note"]
# **Say.** Two sentences for the way home: if you can judge, you can teach. And what you reward is what you get.
#
# **Draw.** None.
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
# - Learning from verdicts makes more stories possible, and takes the model away from the language. [[both-rise]]
# - The policy gradient makes what was drawn more likely in proportion to its reward, and is right on average. [[trick]]
# - A baseline leaves this mean as it is, and can reduce the spread a lot. [[baseline]]
# - Rewards of 0 and 1 without a baseline are imitation of one's own successes. [[imitation]]
# - There a baseline changes nothing; with 10 and 11, nothing is learned without it. [[needs-baseline]]
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
# - The policy gradient and its baseline: Williams 1992, [*Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*](https://doi.org/10.1007/BF00992696); Greensmith, Bartlett and Baxter 2004, [*Variance Reduction Techniques for Gradient Estimates in Reinforcement Learning*](https://www.jmlr.org/papers/v5/greensmith04a.html).
# - Groups: Shao et al. 2024, [*DeepSeekMath*](https://arxiv.org/abs/2402.03300), section 4. Human feedback: Ouyang et al. 2022, [*Training Language Models to Follow Instructions with Human Feedback*](https://arxiv.org/abs/2203.02155).
# - Pairs: Rafailov et al. 2023, [*Direct Preference Optimization*](https://arxiv.org/abs/2305.18290); what their margin does not see: Razin et al. 2024, [*Unintentional Unalignment*](https://arxiv.org/abs/2410.08847).
# - When the reward is a model: Gao et al. 2023, [*Scaling Laws for Reward Model Overoptimization*](https://arxiv.org/abs/2210.10760).
