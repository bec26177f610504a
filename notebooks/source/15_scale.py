# %% [markdown] deck="What does more of everything buy?"
# # 15 Scale
# **What does more of everything buy?**
#
# *Needs* lessons 10, 11 and 14. *Builds* `compute_optimal` and `all_reduce_mean`, and uses `cost.py`. *Runs* in about 30 s on two cores.
# *Teaches* in about 45 minutes, plus 20 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a budget of compute can be spent on parameters or on tokens, and for each budget one size is best. Section 2 measures this, section 3 looks at what the loss hides, sections 4 and 5 ask how far a formula may be trusted, and section 6 divides the work among many machines.
# If you have only ten minutes, show section 1 and the picture of the valleys.

# %% [markdown] tags=["note"]
# **Say.** More compute makes better models: everybody has heard that. But what exactly do you buy with it? There are two things to buy, and one currency.
#
# **Draw.** None: the rectangle is on the screen.
#
# **Ask.** None: the predictions ask.
#
# **Usual answers.**
# - *The largest one is best* (from the room): It would be, if it could read as much as the others. Each of its tokens costs more.
# - *4 times as many tokens* (`4`): Each token costs more now, because the model is larger.
# - *C is the width of the model* (from the room): Until lesson 14 it was. Here C is the compute, as in the papers.
#
# **Cut if short.** The table of three models; say that 6 N D is right to about a seventh.
#
# **Tried.** Section 1's contest, each seed alone: 11,820 parameters win both times, 1.41 against 1.43 and 1.47 for the next size and 1.71 and 1.72 for the smallest; with 16 texts for each update 7,240 and 11,820 win (1.83 and 1.80).

# %% [markdown]
# ## 1. Two things to buy
# Suppose that you get more computers. You can train a model with more **parameters**, or let it read more **tokens**. Both take **compute**, counted in FLOPs (lesson 14). Small models were trained on StoryWorld, each with 10 billion FLOPs. A larger model costs more for each token, so it read less text.

# %% slide="skip"
from tinylm_classroom import control, predict, scale
from tinylm_classroom import scale_figures as figures

recorded = scale.recorded()
budgets = scale.budgets_of(recorded)
same_budget = scale.of_budget(recorded, 1e10)


# %% tags=["source-hidden"] deck="Task: spend 10 billion FLOPs on the best size"
def spend(size=3_108):
    figures.spent(same_budget, size)


control(spend, size=sorted({run.size for run in same_budget}))

# %% [markdown]
# **Your task:** find the size with the lowest loss.
#
# The rectangle's sides are the parameters N and the tokens D, and its area is always the same. For each parameter and each token, training takes 2 FLOPs in the forward pass and 4 in the backward pass, so the compute is nearly
#
# $$C = 6ND$$
#
# ([Kaplan et al. 2020](https://arxiv.org/abs/2001.08361), section 2.1; they count N without embeddings, we count all). These letters are those of the papers: here C and D are not widths. An embedding's rows are looked up and not multiplied, and attention's scores are products without parameters. How good is the rule?

# %% evidence="six-n-d" tried="exact"
from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, training_flops
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
configs = {"shipped": model.config, "GPT-2 small": preset("gpt2")}
configs |= {"Llama 2 7B": preset("llama", "2-7b")}
short = 16  # try 64
for name, config in configs.items():
    N = count_parameters(config).total
    lengths = (config.max_seq_len, short)
    full, few = (training_flops(config, 1, T) / T / N for T in lengths)
    print(f"{name:<12} {N:>13,} parameters: {full:.2f} N D, short texts {few:.2f} N D")
    assert few < full < 7

# %% [markdown]
# In texts of full length all three need a little more than 6 N D, and in short ones a little less. [[six-n-d]]

# %% tags=["source-hidden"] deck="Four times the compute, a model twice as large: how many tokens?"
predict(
    "We have four times the compute and train a model twice as large. How many times as many tokens can it read?",
    key=lambda: 4 / 2,
    number="times",
    within=0,
    feedback={
        4: "Each token costs more now: the model is larger.",
        8: "A larger model reads fewer tokens for its compute.",
    },
    because="C is 6 times N times D, and 4 = 2 times 2.",
)

# %% [markdown] tags=["note"]
# **Say.** One budget has one best size. What happens to it when the budget grows? With four times the compute the bottom goes down; where else does it go?
#
# **Draw.** None: the valleys are on the screen. The left slope is too small, the right one has read too little.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *64 times as large* (`about 770,000`): Then it would read no more text than before.
# - *The smaller one, it won before* (`the smaller one again`): It won at equal compute. Now the larger one reads the same text.
# - *Compare after equal numbers of tokens, that is fair* (from the room): It is one fair question. But the larger model costs several times as much; say what you held equal.
# - *C = N D* (`six left out`): A parameter needs six FLOPs for each token.
# - *Divide by the ratio and do not take the root* (`no root`): The tokens grow with the parameters, so the parameters occur squared.
#
# **Cut if short.** The second recipe; say its result: the valley remains, and it is flatter.
#
# **Tried.** The older record had 16 texts for each update, and its best size grew with each budget. With 4 texts it is 11,810, 17,239, 52,615 and 46,031: the last valley is so flat that the two seeds give 32,000 and 57,000. Without any one size: 10,000 to 12,000, 16,000 to 20,000, 49,000 to 57,000, 36,000 to 51,000. So "it grows with each budget" has fallen, and "the tokens grow" holds in all 12 subsets. The live contest, eight other seeds: 1.77 to 1.86 against 2.50 to 2.57 at equal compute, 1.36 to 1.40 with equal text; half the learning rates 2.1, 2.8, 1.4, twice the rates 1.7, 2.4 to 2.5, 1.4. With 16, 8, 4, 2 and 1 text for each update at 4 billion FLOPs: 2.7, 2.1, 1.8, 1.7 and 1.6 for the smaller model, 3.4, 2.8, 2.5, 2.3 and 2.2 for the larger one, so 4 is honest and not the best. The rise from the best size to the largest, 4 texts and 16 texts: 0.33 and 0.53, 0.31 and 0.53 (10 billion FLOPs, two seeds), 0.12 and 0.50, 0.15 and 0.52 (40 billion).

# %% [markdown]
# ## 2. One budget, many sizes
# Here are four budgets, each four times the one before. Two seeds for each size were recorded, with 4 texts for each update (`tools/scaling.py`). A star marks the lowest point of a parabola through each budget's losses, over the logarithm of the size, as in [Hoffmann et al. (2022)](https://arxiv.org/abs/2203.15556), section 3.2.

# %% slide="skip"
world = scale.stories(tokenizer, 2_000)  # to read, and 300 new stories with their floor

# %% tags=["source-hidden"] deck="The best size was 12,000 parameters. And with 64 times the compute?"
predict(
    "With 10 billion FLOPs about 12,000 parameters were best. Which size is best with 64 times the compute?",
    key=lambda: "about 50,000" if 25_000 < scale.best_spent(recorded)[0][3] < 100_000 else "?",
    choices={
        "about 12,000": "Then all of it would be spent on text. A model of this size cannot use so much.",
        "about 50,000": "",
        "about 770,000": "Then all of it would be spent on parameters, and such a model would read no more text than before.",
    },
    because="The compute is best spent on both: on a larger model and on more text for it.",
)

# %% tags=["signature", "source-hidden"] deck="Every budget has a best size"
figures.valleys(recorded, world.floor)

# %% [markdown]
# Curves of equal compute are called **IsoFLOP** curves. With more compute the bottom moves down. How does the best model spend its budget?

# %% deck="More compute: a larger model, and more text for it"
best = {budget: scale.best_of(scale.of_budget(recorded, budget)) for budget in budgets}
# ESSENTIAL
for budget, N in best.items():
    D = budget / (6 * N)
    each = f"{D / N:.0f} per parameter"
    print(f"{budget:.1e} FLOPs: {N:>6,.0f} parameters, {D:>9,.0f} tokens, {each}")
# END

# %% tags=["source-hidden"] evidence="valleys" tried="held-out"
# Checked without any one of the sizes, and with each seed alone: the best model of each budget reads more text than
# that of the one before, and over all budgets it grows.
subsets = [[run for run in recorded if run.size != n] for n in sorted({run.size for run in recorded})]
subsets += [[run for run in recorded if run.seed == seed] for seed in (0, 1)]
for some in subsets:
    sizes_of, tokens_of = scale.best_spent(some)
    assert tokens_of == sorted(tokens_of) and sizes_of[3] > 2 * sizes_of[0]

# %% [markdown]
# The best model of a larger budget reads more text each time, and over all four budgets it also grows. [[valleys]] But the bottoms are flat, so the exact sizes are rough: from the third budget to the fourth the best size does not grow, and for the fourth one the two seeds disagree by nearly a factor of two.
#
# ### Break it: hold something else equal
# A colleague compares sizes after equal numbers of *tokens*. We train two sizes ourselves, with three seeds.


# %%
def loss_after(width, tokens, seed):
    """The loss on new stories of a model of this width that has read so many tokens."""
    small = scale.small(tokenizer, width, seed)
    scale.trained(small, world, tokens, seed)
    return scale.loss_of(small, tokenizer, world)


SEEDS = range(3)
sizes = {width: scale.size_of(tokenizer, width) for width in (8, 32)}
reads = {width: 4e9 / (6 * size) for width, size in sizes.items()}  # tokens
losses = {}
for width, size in sizes.items():
    name = f"{size:,} parameters, {reads[width]:,.0f} tokens"
    losses[name] = [loss_after(width, reads[width], seed) for seed in SEEDS]

# %% tags=["source-hidden"] deck="Now the larger model reads as much text as the smaller one. Which wins?"
at_equal_compute = list(losses.values())
same_text = [loss_after(32, reads[8], seed) for seed in SEEDS]
smaller_first = max(at_equal_compute[0]) < min(at_equal_compute[1])
larger_then = max(same_text) < min(at_equal_compute[0])
predict(
    f"At equal compute the smaller model {'wins' if smaller_first else 'loses'}, with all three seeds. Now both read {reads[8]:,.0f} tokens. Which model wins?",
    key=lambda: "the larger one" if larger_then else "?",
    choices={
        "the smaller one again": "It won because it read more text for the same compute. Now both read the same.",
        "the larger one": "",
        "they are about equal": "They read the same text. But one of them can keep more of it.",
    },
    because="With equal text the larger model loses nothing, and nobody looks at what it costs.",
)

# %% deck="Equal compute or equal text: another winner"
from tinylm_classroom import check, hint, keep, learned

losses[f"{sizes[32]:,} parameters, {reads[8]:,.0f} tokens"] = same_text
# ESSENTIAL
for name, of_seeds in losses.items():
    print(f"{name}: loss", ", ".join(learned(loss, 1, 4) for loss in of_seeds))
# END

# %% tags=["source-hidden"] evidence="equal-what" tried="seeds"
# Checked: with all seeds the smaller model wins at equal compute, and the larger one with equal text.
assert smaller_first and larger_then and 6 < sizes[32] / sizes[8] < 7

# %% [markdown]
# Each line is true. But the winner with equal text spent more than six times the compute. [[equal-what]] If you compare sizes, say what you held equal.
#
# ### Is it the size, or the recipe?
# The largest models of a budget make few updates. Does their slope come from that? Here is 10 billion FLOPs again, with 16 texts for each update and so a quarter of the updates:

# %% tags=["source-hidden"] deck="16 texts for each update: worse, and a steeper slope"
by_recipe = {"4 texts": same_budget, "16 texts": scale.of_budget(scale.recorded(16), 1e10)}
figures.recipes(by_recipe, "16 texts for each update: worse, and a steeper slope")

# %% tags=["source-hidden"] evidence="second-recipe" tried="held-out"
# Checked with two budgets, each seed alone: the slope at the right is steeper with 16 texts, and there with 4.
for budget, seed in ((1e10, 0), (1e10, 1), (4e10, 0), (4e10, 1)):
    rises = [scale.rise(runs, budget, seed) for runs in (recorded, scale.recorded(16))]
    assert 0.1 < rises[0] < 0.7 * rises[1]
extra = [scale.mean_loss(by_recipe["16 texts"], n) - scale.mean_loss(same_budget, n) for n in (3_108, 11_820, 47_392)]
assert 0.15 < extra[0] < extra[1] < extra[2]

# %% [markdown]
# With 16 texts every size is worse, and the larger ones most, which make the fewest updates. So a part of the slope is the recipe, but with both recipes it is there. [[second-recipe]] A valley belongs to a recipe as well as to a language, and anyone who compares sizes must tune the recipe at each size.

# %% [markdown]
# ### Your turn: plan a training
# If the best models of all budgets had the same number of tokens for each parameter, section 1 would be enough to plan a training. Solve $C = 6ND$ for a given ratio $D / N$.


# %% tags=["exercise"] name="compute_optimal" minutes=8 difficulty=1 deck="Your turn: plan a training"
def compute_optimal(flops, tokens_per_parameter):
    """The size whose training takes so many FLOPs, 6 for each parameter and token.

    Both arguments are above 0. Returns (parameters, tokens), two numbers that
    need not be whole; tokens / parameters is tokens_per_parameter.
    """
    # SOLUTION
    parameters = (flops / (6 * tokens_per_parameter)) ** 0.5
    return parameters, tokens_per_parameter * parameters
    # END


# %% tags=["check"]
if check("compute_optimal", compute_optimal).passed:
    keep("compute_optimal", compute_optimal)

# %% slide="skip"
hint("compute_optimal")

# %% [markdown] tags=["solution"]
# With $D = rN$ the compute is $6 r N^2$. Divide by $6r$, then take the root, and the tokens follow. Common mistakes: the ratio outside the root, no 6, and 2 instead of 6 (the forward pass alone). Four times the compute buys twice the parameters *and* twice the tokens.

# %% [markdown] tags=["note"]
# **Say.** A loss is one number for all words. What does a model with a lower loss know that the other does not?
#
# **Draw.** None: the panels are on the screen.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *All kinds get better together* (`all of them`): Look at the panels: they fall at different losses.
# - *A jump shows that something new has emerged* (from the room): First look at a measure that can move gradually. Here it is the distance from the exact distribution, and some skills fall steeply in it, too.
#
# **Cut if short.** The two models with the same loss.
#
# **Tried.** All 52 recorded runs with 4 texts. Above a loss of 1.3 no kind but pronouns is below 2.4 nats. In an older record with 16 texts for each update the order was the same. Pairs that differ in their seed alone and have losses within 0.02: 0.98 (places, 141,824 parameters) and 0.83 (places, 287,968 parameters) are the largest differences in the fraction right; an older record had a third pair (1.01 and 1.00: places 16 % and all).

# %% [markdown]
# ## 3. What the loss hides
# The loss falls from valley to valley. Does a model get a little better at everything? In StoryWorld some words are determined by an earlier sentence: *he* or *she*, a name, an object, a place, a quotation or a trait. For each kind we measure the **Kullback-Leibler divergence** (lesson 03) of the model's distribution from the exact one, in nats. At 0 the model knows all that can be known.

# %% tags=["source-hidden"] deck="The loss falls from 1.3 to 1.0. What is known now?"
at_best = {budget: scale.nats_at(recorded, budget, best[budget]) for budget in budgets}
known = [kind for kind, nats in at_best[budgets[2]].items() if nats < 0.1]
predict(
    "From the best model of the second budget to that of the third the loss falls from 1.3 to 1.0. Which of the six kinds of words does the third one know almost completely (below 0.1 nats)?",
    key=lambda: "one of them" if known == ["pronoun"] else "?",
    choices={
        "all of them": "That would be progress everywhere. Skills arrive one after the other.",
        "one of them": "",
        "none of them": "Then the loss would fall by better guesses alone. Something is looked up now.",
    },
    because="Pronouns are known. Names, places and traits have begun, objects and quotations hardly.",
)

# %% tags=["source-hidden"] deck="Skills arrive one after the other"
figures.skills(recorded, *scale.nats_and_loss(model, tokenizer, world))

# %% tags=["source-hidden"] evidence="one-kind" tried="held-out"
# Checked with all runs: above a loss of 1.3 nothing but pronouns is looked up; near the best size of the largest budget
# pronouns, names and places are known, and quotations are not.
early = [run.nats for run in recorded if run.loss > 1.3]
late = [run.nats for run in scale.of_budget(recorded, budgets[3]) if 30_000 < run.size < 50_000]
assert len(early) > 20 and min(min(nats[1:]) for nats in early) > 2.4
assert len(late) == 4 and max(max(nats[i] for i in (0, 1, 3)) for nats in late) < 0.15 < 0.5 < min(n[4] for n in late)

# %% [markdown]
# No run with a loss above 1.3 looks up anything but pronouns, so down to there the loss falls because the models learn which words are frequent and which follow which. Pronouns come first, then in most runs names and places; at the best size of the largest budget quotations are not known yet. [[one-kind]] Does the loss determine what a model knows? Here are two runs that differ in their seed alone:

# %% deck="The same loss, other skills"
within = 0.02  # try 0.05
first, second = scale.alike(recorded, within)
both_right = list(zip(scale.KINDS, first.right, second.right, strict=True))
# ESSENTIAL
print(f"{first.size:,} parameters, loss {first.loss:.2f} and {second.loss:.2f}, right:")
for kind, by_first, by_second in both_right:
    print(f"{kind:<10} {by_first:5.0%} {by_second:5.0%}")
# END

# %% tags=["source-hidden"] evidence="same-loss" tried="seeds"
# Checked: two pairs of runs that differ in their seed alone have losses within 0.02, and a kind that one knows.
differences = [scale.other_skills(*both) for both in scale.pairs_alike(recorded, 0.02)]
assert sum(far > 0.8 for far in differences) >= 2

# %% [markdown]
# Their losses differ by 0.01, yet one knows all places and the other nearly none, while the other knows all objects. So the same loss can hide different skills, and a part of their order is chance. [[same-loss]]
#
# Steps like these in large models were called *emergent abilities* ([Wei et al. 2022](https://arxiv.org/abs/2206.07682)). Many of them come from the measure: a fraction of right answers jumps where the probability grows smoothly ([Schaeffer et al. 2023](https://arxiv.org/abs/2304.15004)). That is why the picture shows nats.

# %% [markdown] tags=["note"]
# **Say.** Labs plan trainings that they can afford only once. So they fit a curve to many small runs and read it far to the right. How far may one trust it? Here we have the next budget, and we know the floor.
#
# **Draw.** None: the curves are on the screen.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *E is the entropy of the language* (from the room): It is a parameter of a curve, far from all points.
# - *More seeds make it certain* (from the room): They reduce chance. They cannot say that the formula is wrong.
#
# **Cut if short.** The shape trace.
#
# **Tried.** Fitted to two budgets, the law misses the third by up to 0.20 and the fourth by 0.15 to 0.38. Fitted to three, the fourth by 0.08 to 0.30, always too high; the spread of the seeds is 0.03. E with three budgets 0.83, with all 0.24, with one seed 0.23 and 0.25, without one size -0.12 to 0.40; the floor is 0.66. On a grid of four sizes and four lengths, 16 texts and three seeds, E went from below 0 to above the floor.

# %% [markdown]
# ## 4. A law, and what it cannot know
# In many published measurements losses follow a simple curve, a **scaling law** ([Hoffmann et al. 2022](https://arxiv.org/abs/2203.15556), section 3.3):
#
# $$L(N, D) = E + \frac{A}{N^a} + \frac{B}{D^b}$$
#
# $E$ is the **irreducible** loss: what would be left with endless parameters and endless text. For given exponents $a$ and $b$ the formula is linear in $E$, $A$ and $B$, so `lstsq` finds the ones with the smallest squared error. (R runs; N is counted in ten thousands, D in hundred thousands.)

# %%
import torch

from tinylm_classroom import trace


def solve(runs, a, b):
    N, D, loss = runs.T
    columns = torch.stack([torch.ones_like(N), N**-a, D**-b], dim=1)  # (R, 3)
    constants = torch.linalg.lstsq(columns, loss).solution  # (3)
    missed_by = columns @ constants - loss  # (R)
    return constants, missed_by


smaller_runs = [run for run in recorded if run.budget < budgets[3]]
points = scale.as_points(smaller_runs)  # (R, 3)
trace(solve, points, 0.5, 0.6, sizes={"R": len(points)})

# %% [markdown]
# Then try all pairs of exponents, and keep the best. We fit to the three smaller budgets, and predict the largest.

# %%
EXPONENTS = [i / 10 for i in range(1, 13)]


def fit(runs):
    """E, A, B, a and b with the smallest mean squared error."""
    best_error, best_law = float("inf"), None
    # ESSENTIAL
    for a in EXPONENTS:
        for b in EXPONENTS:
            constants, missed_by = solve(runs, a, b)
            error = missed_by.square().mean().item()
            if error < best_error:
                # END
                best_error, best_law = error, [*constants.tolist(), a, b]
    return dict(zip("EABab", best_law, strict=True))


def predicted(law, N, D):
    A, B = law["A"] * (N / 1e4) ** -law["a"], law["B"] * (D / 1e5) ** -law["b"]
    return law["E"] + A + B


law = fit(points)
print(", ".join(f"{name} = {value:.2f}" for name, value in law.items()))

# %% tags=["source-hidden"] deck="The law is fitted to three budgets. What will it say of the fourth?"
largest = scale.of_budget(recorded, budgets[3])
misses = [predicted(law, run.size, run.budget / 6 / run.size) - run.loss for run in largest]
predict(
    "The law was fitted to three budgets. How will it predict the losses of the fourth?",
    key=lambda: "too high" if min(misses) > 0.05 else "too low" if max(misses) < -0.05 else "?",
    choices={
        "too low": "So it would be if the models had learned nearly everything. Look at section 3: they have just begun to look things up.",
        "too high": "",
        "about right": "So it would be if the losses followed the formula. But skills arrive in steps.",
    },
    because="The formula is smooth. Our losses wait near 1.3, and fall again when more kinds of words are looked up.",
)

# %% tags=["source-hidden"] deck="The law misses the next budget"
figures.beyond(recorded, lambda N, D: predicted(law, N, D), budgets[:3], world.floor, "The law misses the next budget")

# %% [markdown]
# And how well is $E$ known? We fit to all runs, then to each seed alone, and without each size:

# %%
refits = {"all runs": [fit(scale.as_points(recorded))]}
refits["one seed"] = [fit(scale.as_points(recorded, seed=seed)) for seed in (0, 1)]
all_sizes = sorted({run.size for run in recorded})
refits["one size less"] = [fit(scale.as_points(recorded, without=n)) for n in all_sizes]
lowest = min(run.loss for run in largest)
print(f"three budgets: E {law['E']:.2f}; the next budget's best loss {lowest:.2f}")
for name, laws in refits.items():
    E = [of_some["E"] for of_some in laws]
    print(f"{name:<13}: E {min(E):.2f} to {max(E):.2f}, floor {world.floor:.2f}")

# %% tags=["source-hidden"] evidence="law-misses" tried="held-out"
# Checked: each run of the budget that the fit has not seen is missed by several times the spread of the seeds; E of
# three budgets is above losses that were measured, E of all of them is below the floor, with each seed and size less.
spread = scale.spread_of_seeds(recorded)
assert spread < 0.05 and min(misses) > 0.06 and sum(misses) / len(misses) > 4 * spread
assert law["E"] > min(run.loss for run in largest) and refits["all runs"][0]["E"] < world.floor - 0.15
assert max(each["E"] for laws in refits.values() for each in laws) < world.floor - 0.1

# %% [markdown]
# The law misses the next budget by several times the spread of the seeds. Its $E$ was above losses that we measured afterwards, and the $E$ of all runs is far below the floor, which no model can reach. [[law-misses]] More seeds do not help, because the error is in the formula: it has no plateaus. Published fits, too, are used far beyond their sizes, and for English nobody knows the floor.

# %% [markdown] tags=["note"]
# **Say.** The most quoted number of this field is 20 tokens for each parameter. Where does it come from, and what does it not say?
#
# **Draw.** None: the control has the valleys.
#
# **Ask.** None: the task asks.
#
# **Usual answers.**
# - *A model needs 20 tokens for each parameter* (from the room): It may read more or fewer. 20 is where the training compute was best spent in those experiments.
# - *20 is a law of nature* (from the room): Our valleys do not agree on one number, and neither do the published fits.
#
# **Cut if short.** The table of three fits; say that they differ by more than a factor of four at Chinchilla's budget.
#
# **Tried.** The ratio of the formula at 33 budgets from 1e17 to 1e25: 15 to 30, and it falls everywhere. The three fits, at 1e18, 1e20, 1e22 and Chinchilla's budget: they agree within a factor of 1.5 at the first, and differ by more than 4 at the last.

# %% [markdown]
# ## 5. What Chinchilla says
# Over 400 real models, from 70 million to 16 billion parameters, were trained to find their valleys (Hoffmann et al. 2022). Here are those of their formula, with the constants of a later, more careful fit ([Besiroglu et al. 2024](https://arxiv.org/abs/2404.10102)):


# %%
def valley(budget, E=1.8172, A=482.01, B=2085.43, a=0.3478, b=0.3658):
    """Sizes, and the loss of each when it uses up the budget; then the best size."""
    N = torch.logspace(6.2, 13.5, 20_000, dtype=torch.float64)
    loss = E + A / N**a + B / (budget / (6 * N)) ** b
    return N, loss, N[loss.argmin()].item()


# %% tags=["source-hidden"] deck="Task: at which ratio is a budget best spent?"
def plan(exponent=21, tokens_per_parameter=1):
    figures.formula(valley, exponent, tokens_per_parameter)


control(plan, exponent=[21, 17, 25], tokens_per_parameter=[1, 5, 20, 100, 1000])

# %% tags=["source-hidden"] evidence="formula-ratios" tried="exact"
# Checked at 33 budgets: the formula's best ratio is near 20, and falls with the budget.
ratios = [10 ** (17 + i / 4) / 6 / valley(10 ** (17 + i / 4))[2] ** 2 for i in range(33)]
assert min(ratios) > 15 and max(ratios) < 30 and all(x > y for x, y in zip(ratios[:-4:4], ratios[4::4], strict=True))

# %% [markdown]
# **Your task:** take 1, 20 and 1000 tokens for each parameter. How far from the bottom are you? At every budget the formula's best ratio is near 20, and it falls slowly with the budget. [[formula-ratios]] So its rule is: **let N and D grow alike**, each with about the root of C. What did people do?

# %% deck="Real models read from 2 to 2,000 tokens for each parameter"
published = {  # parameters, training tokens
    "GPT-3 (Brown et al. 2020)": (175e9, 300e9),
    "Chinchilla (Hoffmann et al. 2022)": (70e9, 1.4e12),
    "Llama 2 7B (Touvron et al. 2023)": (6.74e9, 2e12),
    "Llama 3 8B (Grattafiori et al. 2024)": (8e9, 15e12),
}
# ESSENTIAL
for name, (N_of, D_of) in published.items():
    print(f"{name:<37} {D_of / N_of:>7,.1f} tokens per parameter")
# END

# %% [markdown]
# So the 20 is not a law of nature: it was the best use of *training* compute for those models and that text. A small model is cheaper to use, so it pays to train it longer: look at the two Llamas. And the published formula does not give 20. It was rounded for print, and fitted again later:

# %% deck="Three versions of one formula, three ratios"
fits = {  # E, A, B, a, b
    "as printed": (1.69, 406.4, 410.7, 0.34, 0.28),
    "before rounding": (1.6934, 406.4, 410.7, 0.3392, 0.2849),
    "fitted again": (1.8172, 482.01, 2085.43, 0.3478, 0.3658),
}
ratio = {}
# ESSENTIAL
for budget in (1e18, 5.76e23):  # the second one is Chinchilla's
    for name, constants in fits.items():
        ratio[budget, name] = budget / 6 / valley(budget, *constants)[2] ** 2
        print(f"{budget:.0e} FLOPs, {name:<15} {ratio[budget, name]:.0f} per parameter")
# END

# %% tags=["source-hidden"] evidence="published-fits" tried="exact"
# Checked: the fits nearly agree at a small budget, and differ by more than a factor of four at Chinchilla's.
little, much = ([ratio[budget, name] for name in fits] for budget in (1e18, 5.76e23))
assert max(much) > 4 * min(much) and max(little) < 1.5 * min(little)

# %% [markdown]
# At a small budget the three nearly agree, so it is the extrapolation that differs. [[published-fits]] Rounding two exponents to two decimals moves the answer from 59 to 93, because they act on a huge number.

# %% [markdown] tags=["note"]
# **Say.** A batch can be divided among many machines. Each computes the gradient of its part, and then all of them need the mean. It sounds trivial, and it goes wrong as soon as the parts are unequal.
#
# **Draw.** None.
#
# **Ask.** One process has 12 texts and the other has 4. How many times the weight of a text in the large part has one in the small part, with the plain mean? (Three times: 1/4 against 1/12.)
#
# **Usual answers.**
# - *The same, a mean is a mean* (from the room): A mean of two means weighs both of them equally.
# - *The mean of the means* (`every process has the same weight`): Weigh each by its number of targets.
# - *Add the gradients up* (`the gradients are added up`): Then more processes would make larger steps.
# - *Divide by the number of processes as well* (`it is divided by the processes as well`): The weights already add up to 1.
#
# **Cut if short.** The view.
#
# **Tried.** Five other sets of 16 texts: 12 and 4 are off, 8 and 8 agree to 1 in 1,000. The bytes are computed.

# %% [markdown]
# ## 6. Many machines
# How large is a model that one machine can train? **Your task:** choose the models one after the other, and compare the bytes of training with the dashed line of an H100 (80 GB).

# %% tags=["source-hidden"] deck="Task: which of these models can one GPU train?"
from tinylm_classroom import memory_view

memory_view({"Llama 2 7B": configs["Llama 2 7B"]})

# %% tags=["source-hidden"] evidence="memory" tried="exact"
# Checked: training takes 16 bytes for each parameter, so Llama 2 7B needs more than one H100, and GPT-2 XL does not.
from tinylm_lib.cost import training_bytes

assert training_bytes(configs["Llama 2 7B"]) > 80e9 > training_bytes(preset("gpt2", "xl"))

# %% [markdown]
# Training keeps 16 bytes for each parameter (lesson 10), so a model of 7 billion parameters does not fit on one such GPU. [[memory]] So the work is divided. In **data-parallel** training every process has a copy of the model and a part of the batch. Then all of them average their gradients, an **all-reduce**, and make the same update. (If the model is too large, each keeps only a **shard**, a part of every parameter.) Here one process plays two:


# %%
from torch.nn.functional import cross_entropy

from tinylm_lib.data import RandomWindows


def gradient(pupil, x, y):
    """All gradients of the mean loss, as one long vector."""
    loss = cross_entropy(pupil(x).flatten(0, 1), y.flatten())
    all_of_them = torch.autograd.grad(loss, list(pupil.parameters()))
    return torch.cat([g.flatten() for g in all_of_them])


# %%
pupil = scale.small(tokenizer, 8, seed=0)
x, y = next(RandomWindows(world.ids, 16, 128, seed=99, starts=world.starts))  # (16, T)
whole = gradient(pupil, x, y)
parts = [gradient(pupil, x[:8], y[:8]), gradient(pupil, x[8:], y[8:])]
torch.testing.assert_close(sum(parts) / 2, whole, atol=1e-5, rtol=1e-4)
print("equal parts: the mean of the two gradients is that of all 16 texts")

# %% deck="With unequal parts the plain mean is wrong"
n_first = 12  # try 15 and 8
# ESSENTIAL
one = gradient(pupil, x[:n_first], y[:n_first])
other = gradient(pupil, x[n_first:], y[n_first:])
off = ((one + other) / 2 - whole).norm() / whole.norm()
print(f"{n_first} and {16 - n_first} texts: the plain mean is off by {off:.0%}")
# END

# %% tags=["source-hidden"] evidence="unequal-parts" tried="seeds"
# Checked with other texts: 12 and 4 are off, 8 and 8 are not.
SEEDS_OF_TEXTS = range(5)
for seed in SEEDS_OF_TEXTS:
    a, b = next(RandomWindows(world.ids, 16, 128, seed=seed, starts=world.starts))
    right, wrong = gradient(pupil, a, b), {}
    for n in (8, 12):
        wrong[n] = (gradient(pupil, a[:n], b[:n]) + gradient(pupil, a[n:], b[n:])) / 2 - right
    assert wrong[8].norm() < 1e-3 * right.norm() < 0.02 * right.norm() < wrong[12].norm()

# %% [markdown]
# With equal parts the mean of the gradients is the gradient of the whole batch. With unequal parts it is not. [[unequal-parts]] The loss is a mean over targets, so each gradient must be weighted by its number of targets.
#
# ### Your turn: the mean of many processes


# %% tags=["exercise"] name="all_reduce_mean" minutes=12 difficulty=2 deck="Your turn: the mean of many processes"
def all_reduce_mean(gradients, n_targets):
    """The gradients of the mean loss over the targets of all processes.

    gradients: for each process a list of tensors, of the same shapes in each, the
    gradients of its own mean loss. n_targets: for each process over how many targets
    its loss was averaged. It may be 0, but not for all; the gradients are 0 there.
    Returns a list of tensors, in the same order and dtype; the input stays as it is.
    """
    # SOLUTION
    total = sum(n_targets)
    weights = [n / total for n in n_targets]
    return [sum(w * g for w, g in zip(weights, of_all, strict=True)) for of_all in zip(*gradients, strict=True)]
    # END


# %% tags=["check"]
if check("all_reduce_mean", all_reduce_mean).passed:
    keep("all_reduce_mean", all_reduce_mean)

# %% slide="skip"
hint("all_reduce_mean")

# %% [markdown] tags=["solution"]
# Each process's gradient times its number of targets is the gradient of a sum. Sums add up, and one division by all targets makes a mean. Common mistakes: the plain mean, weights without the division, and an `+=` that writes into the first process's tensors.

# %% [markdown] tags=["note"]
# **Say.** A budget has two sides, and a curve that fits is not a law of nature.
#
# **Draw.** None.
#
# **Ask.** You get a hundred times the compute for your own project. What do you train first? (Small models with several recipes, to find the valley.)
#
# **Usual answers.**
# - *One model as large as possible* (from the room): Where is the bottom of your valley? You do not know before you have looked.
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="A budget has two sides, and one size is best"
# ## What you have now
# - Training takes about 6 N D FLOPs: in the three models of our table a little more in texts of full length, a little less in short ones. [[six-n-d]]
# - In the recorded experiment each budget had a best size. A larger budget was best spent on more text, and over all four budgets also on a larger model. [[valleys]]
# - At equal compute the smaller of two models won, with equal text the larger one. [[equal-what]]
# - A valley belongs to a recipe: with 16 texts for each update instead of 4 its slope was steeper. [[second-recipe]]
# - The kinds of words that must be looked up arrive one after the other, pronouns first. [[one-kind]]
# - Two models with the same loss can know different things. [[same-loss]]
# - A scaling law is a curve that is fitted to measurements. Ours missed the next budget, and its irreducible loss E is not the floor. [[law-misses]]
# - Chinchilla's rule is to let N and D grow alike, with about 20 tokens for each parameter. [[formula-ratios]]
# - At Chinchilla's budget the published versions of the formula give ratios that differ by more than a factor of four. [[published-fits]]
# - One GPU of 80 GB cannot train a model of 7 billion parameters with 16 bytes for each. [[memory]]
# - Processes with unequal parts of a batch must weight their gradients. [[unequal-parts]]
#
# Next, lesson 16: what the model has learned inside. And this is what you have built:

# %% slide="skip" rows=["S4-59", "S4-60"]
from tinylm_classroom import progress

progress()

# %% [markdown]
# ## Sources
# - C = 6ND, and laws before Chinchilla: Kaplan et al. 2020, [*Scaling Laws for Neural Language Models*](https://arxiv.org/abs/2001.08361), sections 2.1 and 6.
# - Hoffmann et al. 2022, [*Training Compute-Optimal Large Language Models*](https://arxiv.org/abs/2203.15556), section 3.
# - The numbers before rounding, and the second fit: Besiroglu et al. 2024, [*Chinchilla Scaling: A replication attempt*](https://arxiv.org/abs/2404.10102). Why Kaplan et al. found another exponent: Porian et al. 2024, [*Resolving Discrepancies in Compute-Optimal Scaling of Language Models*](https://arxiv.org/abs/2406.19146).
# - Skills: Wei et al. 2022, [*Emergent Abilities of Large Language Models*](https://arxiv.org/abs/2206.07682); Schaeffer et al. 2023, [*Are Emergent Abilities of Large Language Models a Mirage?*](https://arxiv.org/abs/2304.15004)
# - Shards: Zhao et al. 2023, [*PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*](https://arxiv.org/abs/2304.11277).
# - Training tokens: Brown et al. 2020, [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165); Touvron et al. 2023, [*Llama 2*](https://arxiv.org/abs/2307.09288); Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783).
