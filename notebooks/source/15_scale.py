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
# **Usual answers.**
# - *The largest one is best* (from the room): It would be, if it could read as much as the others. Each of its tokens costs more.
# - *4 times as many tokens* (`4`): Each token costs more now, because the model is larger.
# - *C is the width of the model* (from the room): Until lesson 14 it was. Here C is the compute, as in the papers.
#
# **Cut if short.** The table of four models; say that 6 N D is right to about a fifth.
#
# **Tried.** Section 1's contest, each seed alone: 11,820 parameters win both times, 1.41 against 1.43 and 1.47 for the next size and 1.71 and 1.72 for the smallest; with 16 texts for each update 7,240 and 11,820 win (1.83 and 1.80). 6 N D of the recorded sizes, in their texts of 128 tokens: 7.24 (3,108 parameters), 6.97 (11,820), 6.65 (47,392), 6.26 (484,288), so the smallest spent up to 9 % more than 47,392.

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
# **Your task:** choose the size with the lowest loss. How many tokens does it read for each of its parameters?
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
configs |= {"our smallest": scale.small(tokenizer, 4, 0).config}
short = 16  # try 4
for name, config in configs.items():
    N = count_parameters(config).total
    lengths = (config.max_seq_len, short)
    full, few = (training_flops(config, 1, T) / T / N for T in lengths)
    print(f"{name:<12} {N:>13,} parameters: {full:.2f} N D, short texts {few:.2f} N D")
    assert few < 6 < full < 7.5

# %% [markdown]
# In texts of full length all four need more than 6 N D, our smallest model most, and in texts of 16 tokens less. [[six-n-d]]

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
# **Say.** One budget has one best size. What happens to it when the budget grows? With four times the compute the bottom goes down; where else does it go? The left slope is too small, the right one has read too little.
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
# **Tried.** Best sizes 11,810, 17,239, 52,615 and 72,204. Without any one size (10 subsets) and with each seed alone: sizes and tokens grow with each budget in 11 of 12; the exception is the subset without 17,040 parameters, the smallest size of the fourth budget (46,031). An earlier record had no run there, so its fourth valley had no left side, and we wrote that the best size does not grow. In all 44 pairs of recorded runs with equal text (within 10 %) the larger model has the lower loss. With equal compute 47,392 parameters beat 11,820 at 160 billion FLOPs (1.07 and 0.97 against 1.27 and 1.20); at 40 billion FLOPs 7,240 and 47,392 tie. The live contest, eight other seeds: 1.77 to 1.86 against 2.50 to 2.57 at equal compute, 1.36 to 1.40 with equal text; half the learning rates 2.1, 2.8, 1.4, twice the rates 1.7, 2.4 to 2.5, 1.4. With 16, 8, 4, 2 and 1 text for each update at 4 billion FLOPs: 2.7, 2.1, 1.8, 1.7 and 1.6 for the smaller model, 3.4, 2.8, 2.5, 2.3 and 2.2 for the larger one, so 4 is honest and not the best. The rise from the best size to the largest, 4 texts and 16 texts: 0.33 and 0.53, 0.31 and 0.53 (10 billion FLOPs, two seeds), 0.12 and 0.50, 0.15 and 0.52 (40 billion). From 11,820 to 47,392 parameters at 10 billion FLOPs, with 16, 4, 2 and 1 texts: 0.52, 0.32, 0.16 and 0.15 (means of two seeds; with 1 text 0.12 with both learning rates halved or doubled, too), so at least half of that slope is the recipe.

# %% [markdown]
# ## 2. One budget, many sizes
# Here are four budgets, each four times the one before. Two seeds for each size were recorded, with 4 texts for each update (`tools/scaling.py`). A star marks the lowest point of a parabola through each budget's losses, over the logarithm of the size, as in [Hoffmann et al. (2022)](https://arxiv.org/abs/2203.15556), section 3.2.

# %% slide="skip"
world = scale.stories(tokenizer, 2_000)  # for training; 300 new ones for the loss

# %% tags=["source-hidden"] deck="The best size was 12,000 parameters. And with 64 times the compute?"
predict(
    "With 10 billion FLOPs about 12,000 parameters were best. Which size is best with 64 times the compute?",
    key=lambda: "about 70,000" if 60_000 < scale.best_spent(recorded)[0][3] < 80_000 else "?",
    choices={
        "about 12,000": "Then all of it would be spent on text. A model of this size cannot use so much.",
        "about 70,000": "",
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
at_least = 20_000  # try 40_000
fourth = scale.of_budget(recorded, budgets[3])
sizes_left = [run for run in fourth if run.size > at_least]
print(f"The fourth without smaller sizes: {scale.best_of(sizes_left):,.0f} parameters")

# %% tags=["source-hidden"] evidence="valleys" tried="held-out"
# Checked with each seed alone, and without any one of the sizes; the exception is the left end of the fourth valley.
for name, some in scale.subsets(recorded).items():
    sizes_of, tokens_of = scale.best_spent(some)
    assert tokens_of == sorted(tokens_of) and (sizes_of == sorted(sizes_of)) == (name != "without 17,040")

# %% [markdown]
# The best model of a larger budget is larger, and it reads more text. [[valleys]] But the bottoms are flat, so the exact sizes are rough: the last line shows the fourth star without the smallest size of its budget. It moves far to the left, below the third one: a valley needs both of its sides.
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
at_equal_compute = list(losses.values())

# %% tags=["source-hidden"] deck="Now the larger model reads as much text as the smaller one. Which wins?"
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
# Checked with all seeds; with equal text in all pairs of recorded runs, too, and at 160 billion FLOPs.
assert smaller_first and larger_then and 6 < sizes[32] / sizes[8] < 7
small_one, large_one = ([run.loss for run in scale.all_seeds(1.6e11, n)] for n in (11_820, 47_392))
assert max(large_one) < min(small_one) and all(a > b for a, b in scale.losses_of_equal_text(recorded))

# %% [markdown]
# Each line is true. But the winner with equal text spent more than six times the compute. [[equal-what]] And with more compute the contest turns round: in the record of 160 billion FLOPs 47,392 parameters beat 11,820. If you compare sizes, say what you held equal.
#
# ### Is it the size, or the recipe?
# Each curve rises to the right. Is that only because the largest models make the fewest updates? Here is 10 billion FLOPs again, with 16 texts for each update and so a quarter of the updates:

# %% tags=["source-hidden"] deck="16 texts for each update: worse, and a steeper slope"
by_recipe = {"4 texts": same_budget, "16 texts": scale.of_budget(scale.recorded(16), 1e10)}
figures.recipes(by_recipe, "16 texts for each update: worse, and a steeper slope")

# %% tags=["source-hidden"] evidence="second-recipe" tried="held-out"
# Checked with two budgets, each seed alone: the slope at the right is steeper with 16 texts, and there with 4.
for budget, seed in ((1e10, 0), (1e10, 1), (4e10, 0), (4e10, 1)):
    rises = [scale.rise(runs, budget, seed) for runs in (recorded, scale.recorded(16))]
    assert 0.1 < rises[0] < 0.7 * rises[1]

# %% [markdown]
# With 16 texts, at the same learning rate, every size is worse, most of all the largest ones, because they make the fewest updates. So a part of the slope is the recipe, but with both recipes it is there. [[second-recipe]] A valley belongs to a recipe as well as to a language, and anyone who compares sizes must tune the recipe at each size.

# %% [markdown]
# ### Your turn: plan a training
# If the best models of all budgets had the same number of tokens for each parameter, section 1 would be enough to plan a training. Solve $C = 6ND$ for a given ratio $D / N$. With your function the check plans a famous model: whose is it?


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
    size, text = compute_optimal(5.76e23, tokens_per_parameter=20)
    print(f"{size / 1e9:.1f} billion parameters, {text / 1e12:.2f} trillion tokens")

# %% slide="skip"
hint("compute_optimal")

# %% [markdown] tags=["solution"]
# With $D = rN$ the compute is $6 r N^2$. Divide by $6r$, then take the root, and the tokens follow. Common mistakes: the ratio outside the root, no 6, and 2 instead of 6 (the forward pass alone). Four times the compute buys twice the parameters *and* twice the tokens. The plan is nearly Chinchilla's (section 5).

# %% [markdown] tags=["note"]
# **Say.** A loss is one number for all words. What does a model with a lower loss know that the other does not?
#
# **Usual answers.**
# - *All kinds get better together* (`all six`): Look at the panels: they fall at different losses.
# - *A jump shows that something new has emerged* (from the room): First look at a measure that can move gradually. Here it is the distance from the exact distribution, and some skills fall steeply in it, too.
#
# **Cut if short.** The two models with the same loss.
#
# **Tried.** All 54 recorded runs with 4 texts, and seven more seeds of 47,392 parameters at 160 billion FLOPs. Above a loss of 1.3 no kind but pronouns is below 2.4 nats. Of those nine seeds seven know the pronouns and five the places, three of them both; in two the places come before the pronouns (0.51 and 0.52 nats), so "pronouns first" holds in most runs only. Of 61 runs 14 know the places, 43 do not (3.0 nats and more), and four are between. Pairs that differ in their seed alone and have losses within 0.02: 0.98 (places, 141,824 parameters) and 0.83 (places, 287,968 parameters) are the largest differences in the fraction right of 12 pairs, the others at most 0.36; of the nine seeds 0 and 7 (1.071 and 1.073): places 3 % and all.

# %% [markdown]
# ## 3. What the loss hides
# The loss falls from valley to valley. Does a model get a little better at everything? In StoryWorld some words are determined by an earlier sentence: *he* or *she*, a name, an object, a place, a quotation or a trait. For each kind we measure the **Kullback-Leibler divergence** (lesson 03) of the model's distribution from the exact one, in nats. At 0 the model knows all that can be known.

# %% tags=["source-hidden"] deck="The loss falls from 1.3 to about 1. What is known now?"
nine = scale.all_seeds(budgets[2], 47_392)
predict(
    "From the best model of the second budget to that of the third the loss falls from 1.3 to about 1. Nine models of nearly the third one's size were trained, with nine seeds. How many of the six kinds of words does such a model know almost completely (below 0.1 nats)?",
    key=lambda: "one or two" if {len(scale.known(run)) for run in nine} == {1, 2} else "?",
    choices={
        "all six": "That would be progress everywhere. Skills arrive one after the other.",
        "one or two": "",
        "none": "Then the loss would fall by better guesses alone. Something is looked up now.",
    },
    because="Seven of the nine know the pronouns, five the places, three of them both. The seed decides.",
)

# %% tags=["source-hidden"] deck="Skills arrive one after the other"
figures.skills([*recorded, *nine[2:]], *scale.nats_and_loss(model, tokenizer, world))

# %% tags=["source-hidden"] evidence="one-kind" tried="held-out"
# Checked: above a loss of 1.3 nothing but pronouns is looked up; most runs know pronouns first, not all of nine seeds.
early = [run.nats for run in recorded if run.loss > 1.3]
known = [scale.known(run) for run in recorded if scale.known(run)]
assert len(early) > 20 and min(min(nats[1:]) for nats in early) > 2.4 and all("pronoun" in each for each in known)
assert {("pronoun",), ("place",), ("pronoun", "place")} == {tuple(scale.known(run)) for run in nine}

# %% [markdown]
# No run with a loss above 1.3 looks up anything but pronouns, so down to there the loss falls because the models learn which words are frequent and which follow which. Pronouns come first in most runs, and names improve gradually. Which of places, objects and traits comes next differs from seed to seed, and no run knows the quotations. [[one-kind]] Here is the most different pair of runs with one size and budget, and losses within 0.02:

# %% deck="The same loss, other skills"
within = 0.02  # try 0.005
n_pairs = len(scale.pairs_alike(recorded, within))
first, second = scale.alike(recorded, within)
both_right = list(zip(scale.KINDS, first.right, second.right, strict=True))
print(f"{n_pairs} pairs; the most different one has {first.size:,} parameters.")
print(f"Its losses are {first.loss:.2f} and {second.loss:.2f}; right:")
# ESSENTIAL
for kind, by_first, by_second in both_right:
    print(f"{kind:<10} {by_first:5.0%} {by_second:5.0%}")
# END

# %% tags=["source-hidden"] evidence="same-loss" tried="seeds"
# Checked: two pairs of runs that differ in their seed alone have losses within 0.02, and a kind that one knows.
differences = [scale.other_skills(*both) for both in scale.pairs_alike(recorded, 0.02)]
assert len(differences) == 12 and sum(far > 0.8 for far in differences) == 2

# %% [markdown]
# Their losses differ by 0.01, yet one knows all places and the other nearly all objects. Both pairs below a loss of 1.3 differ like this. So the same loss can hide different skills, and a part of their order is chance. [[same-loss]]
#
# Steps like these in large models were called *emergent abilities* ([Wei et al. 2022](https://arxiv.org/abs/2206.07682)). Many of them come from the measure: a fraction of right answers jumps where the probability grows smoothly ([Schaeffer et al. 2023](https://arxiv.org/abs/2304.15004)). But ours are steps in nats, too: hardly a run is between 3 nats and 0 for places.

# %% [markdown] tags=["note"]
# **Say.** Labs plan trainings that they can afford only once. So they fit a curve to many small runs and read it far to the right. How far may one trust it? Here we have the next budget, and we know the floor.
#
# **Usual answers.**
# - *E is the entropy of the language* (from the room): It is a parameter of a curve, far from all points.
# - *More seeds make it certain* (from the room): They reduce chance. They cannot say that the formula is wrong.
#
# **Cut if short.** The shape trace.
#
# **Tried.** Fitted to two budgets, the law misses the third by up to 0.20 and the fourth by 0.15 to 0.38. Fitted to three, the fourth by 0.08 to 0.30 (mean 0.18), always too high; the spread of the seeds is 0.03. With E fixed anywhere from 0 to the floor the mean miss is 0.09 to 0.16, and in 100 bootstrap samples of the points 0.11 to 0.23 (5 to 95 %). E with three budgets 0.83, with all 0.24, with one seed 0.23 and 0.24, without one size 0.21 to 0.39; the floor is 0.66. These ranges look like precision; the error with E fixed at 0, 0.2, 0.4, 0.5 and the floor is 0.071, 0.070, 0.071, 0.071 and 0.077. On a grid of four sizes and four lengths, 16 texts and three seeds, E went from below 0 to above the floor.

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
misses = [predicted(law, run.size, run.budget / 6 / run.size) - run.loss for run in fourth]
predict(
    "The law was fitted to three budgets. Will its predictions for the fourth be too low or too high?",
    key=lambda: "too high" if min(misses) > 0.05 else "too low" if max(misses) < -0.05 else "?",
    choices={
        "too low": "This would be right if the models had learned nearly everything. Look at section 3: they have just begun to look things up.",
        "too high": "",
        "about right": "This would be right if the losses followed the formula. But skills arrive in steps.",
    },
    because="The formula is smooth. Our losses stay near 1.3 for long, and fall again when more kinds of words are looked up.",
)

# %% tags=["source-hidden"] deck="The law misses the next budget"
figures.beyond(recorded, lambda N, D: predicted(law, N, D), budgets[:3], world.floor, "The law misses the next budget")

# %% [markdown]
# And how well is $E$ known? We fit to all runs, then fix E and find the smallest error that the other constants allow:

# %%
from itertools import product


def error_with(E, runs):
    """The smallest root mean squared error with this E."""
    N, D, loss = runs.T
    errors = []
    for a, b in product(EXPONENTS, EXPONENTS):
        columns = torch.stack([N**-a, D**-b], dim=1)  # (R, 2)
        constants = torch.linalg.lstsq(columns, loss - E).solution  # (2)
        missed_by = columns @ constants + E - loss  # (R)
        errors.append(missed_by.square().mean().sqrt().item())
    return min(errors)


every = scale.as_points(recorded)
of_all = fit(every)["E"]
lowest = min(run.loss for run in fourth)
print(f"three budgets: E {law['E']:.2f}; the next budget's best loss {lowest:.2f}")
print(f"all runs: E {of_all:.2f}, floor {world.floor:.2f}")
guesses = [0.0, 0.25, 0.5]  # try [0.8, 1.0]
for E in [*guesses, world.floor, of_all]:
    print(f"all runs, E fixed at {E:.2f}: error {error_with(E, every):.3f}")

# %% tags=["source-hidden"] evidence="law-misses" tried="held-out"
# Checked: all runs of the next budget are missed; E of three budgets is above losses that were measured, E of all of
# them is below the floor, and any E from 0 to 0.5 has nearly the smallest error.
assert min(misses) > 0.06 and sum(misses) / len(misses) > 5 * scale.spread_of_seeds(recorded) > 0.1
assert law["E"] > lowest and of_all < world.floor - 0.3
assert all(error_with(E / 10, every) < 1.05 * error_with(of_all, every) for E in range(6))

# %% [markdown]
# The law misses the next budget, on average by more than five times the spread of the seeds. Its $E$ was above losses that we measured afterwards. The $E$ of all runs is far below the floor, but any $E$ from 0 to 0.5 fits nearly as well: our losses hardly determine it. [[law-misses]] The error is in the formula, which has no plateaus. Published fits, too, are used far beyond the sizes that they were fitted to, and for English nobody knows the floor.

# %% [markdown] tags=["note"]
# **Say.** The most quoted number of this field is 20 tokens for each parameter. Where does it come from, and what does it not say?
#
# **Usual answers.**
# - *A model needs 20 tokens for each parameter* (from the room): It may read more or fewer. 20 is where the training compute was best spent in those experiments.
# - *20 is a law of nature* (from the room): Our valleys do not agree on one number, and neither do the published fits.
#
# **Cut if short.** The table of three fits; say that they differ by more than a factor of four at Chinchilla's budget.
#
# **Tried.** The ratio of the formula at 33 budgets from 1e17 to 1e25: 15 to 30, and it falls everywhere. The three fits, highest over lowest ratio: 1.4 at 1e18, 1.7 at 1e20, 2.3 at 1e21, 3.2 at 1e22, 5 at Chinchilla's budget; the measured budgets of the valleys were 6e18 to 3e21, so it is not the extrapolation alone that differs.

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
def plan(exponent=17, tokens_per_parameter=1):
    figures.formula(valley, exponent, tokens_per_parameter)


control(plan, exponent=[17, 21, 25], tokens_per_parameter=[1, 5, 20, 100, 1000])

# %% tags=["source-hidden"] evidence="formula-ratios" tried="exact"
# Checked at 33 budgets: the formula's best ratio is near 20, and falls with the budget.
ratios = [10 ** (17 + i / 4) / 6 / valley(10 ** (17 + i / 4))[2] ** 2 for i in range(33)]
assert min(ratios) > 15 and max(ratios) < 30 and all(x > y for x, y in zip(ratios[:-4:4], ratios[4::4], strict=True))

# %% [markdown]
# **Your task:** take 1, 20 and 100 tokens for each parameter. How far from the bottom are you? With 100 the model has about half of the best size, or less, and its loss is at most 2% higher. At every budget the formula's best ratio is near 20, and it falls slowly with the budget. [[formula-ratios]] So its rule is: **let N and D grow alike**, each with about the root of C. What did people do?

# %% tags=["source-hidden"] deck="How many tokens for each parameter did Llama 3 8B read?"
predict(
    "Chinchilla's rule says about 20. How many tokens for each of its parameters did Llama 3 8B read?",
    key=lambda: "about 2,000" if 1_500 < 15e12 / 8e9 < 2_500 else "?",
    choices={
        "about 20": "That would be the best use of its training compute.",
        "about 200": "It is more than the rule, but the training cost still more.",
        "about 2,000": "",
    },
    because="It was trained far beyond its best ratio: a small model costs more training, but every use is cheaper.",
)

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
# So the 20 is not a law of nature: it was the best use of *training* compute for those models and that text. A small model is cheaper to use, so it pays to train it longer. And the formula as it was first published does not give 20, which came from valleys like those of section 2. It was rounded for print, and fitted again later:

# %% deck="Three versions of one formula, three ratios"
fits = {  # E, A, B, a, b
    "as printed": (1.69, 406.4, 410.7, 0.34, 0.28),
    "before rounding": (1.6934, 406.4, 410.7, 0.3392, 0.2849),
    "fitted again": (1.8172, 482.01, 2085.43, 0.3478, 0.3658),
}
ratio = {}
for budget in (1e18, 1e21, 5.76e23):  # the last one is Chinchilla's
    for name, constants in fits.items():
        # ESSENTIAL
        ratio[budget, name] = budget / 6 / valley(budget, *constants)[2] ** 2
        # END
        print(f"{budget:.0e} FLOPs, {name:<15} {ratio[budget, name]:.0f} per parameter")

# %% tags=["source-hidden"] evidence="published-fits" tried="exact"
# Checked: the fits differ by a factor of 1.4, more than 2 and more than 4.
factors = [max(of := [ratio[each, name] for name in fits]) / min(of) for each in (1e18, 1e21, 5.76e23)]
assert factors[0] < 1.45 and 2 < factors[1] < 2.5 and factors[2] > 4

# %% [markdown]
# Already at $10^{21}$ FLOPs, where models were measured, the three differ by more than a factor of two, and the extrapolation widens the gap. [[published-fits]] The optimizer of the first fit had stopped too early (Besiroglu et al. 2024). And rounding two exponents to two decimals moves the last answer from 59 to 93, because they act on a huge number.

# %% [markdown] tags=["note"]
# **Say.** A batch can be divided among many machines. Each computes the gradient of its part, and then all of them need the mean. It sounds trivial, and it goes wrong as soon as the parts are unequal: of 12 and 4 texts, each text of the small part has three times the weight.
#
# **Usual answers.**
# - *The same, a mean is a mean* (from the room): A mean of two means weighs both of them equally.
# - *The mean of the means* (`every process has the same weight`): Weigh each by its number of targets.
# - *Add the gradients up* (`the gradients are added up`): Then more processes would make larger steps.
# - *Divide by the number of processes as well* (`it is divided by the processes as well`): The weights already add up to 1.
#
# **Cut if short.** The view.
#
# **Tried.** Five other sets of 16 texts: 12 and 4 are off, 8 and 8 agree to 1 in 1,000. The lesson's case is a mild one: ten other batches, 12 and 4: 18 to 23 %, 15 and 1: 54 to 70 %; after 60,000 tokens of training 28 to 51 % and 78 to 148 %. The bytes are computed.

# %% [markdown]
# ## 6. Many machines
# How large is a model that one **GPU** can train? **Your task:** choose the models one after the other, and compare the bytes of training with the dashed line of an H100 (80 GB).

# %% tags=["source-hidden"] deck="Task: which of these models can one GPU train?"
from tinylm_classroom import memory_view

memory_view({"Llama 2 7B": configs["Llama 2 7B"]})

# %% tags=["source-hidden"] evidence="memory" tried="exact"
# Checked: training takes 16 bytes for each parameter, so Llama 2 7B needs more than one H100, and GPT-2 XL does not.
from tinylm_lib.cost import training_bytes

assert training_bytes(configs["Llama 2 7B"]) > 80e9 > training_bytes(preset("gpt2", "xl"))

# %% [markdown]
# Training keeps 16 bytes for each parameter (lesson 10), so a model of 7 billion parameters does not fit on one such GPU. [[memory]] If the model is too large, each process stores only a **shard**, a part of every parameter. If the text is too much for one GPU, the batch is divided: in **data-parallel** training every process computes the gradients of its part, then all average these, an **all-reduce**, and make the same update. Here one process plays two:


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
    right, cuts = gradient(pupil, a, b), (8, 12)
    wrong = [(gradient(pupil, a[:n], b[:n]) + gradient(pupil, a[n:], b[n:])) / 2 - right for n in cuts]
    assert wrong[0].norm() < 1e-3 * right.norm() < 0.02 * right.norm() < wrong[1].norm()

# %% [markdown]
# With equal parts the mean of the gradients is the gradient of the whole batch. With unequal parts it is not. [[unequal-parts]] The loss is a mean over targets, so each gradient must be weighted by its number of targets.
#
# ### Your turn: the mean of many processes
# The check then uses your function on the two parts above.


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
    (mean,) = all_reduce_mean([[one], [other]], [n_first * 128, (16 - n_first) * 128])
    print(f"off by {(mean - whole).norm() / whole.norm():.0%} instead of {off:.0%}")

# %% slide="skip"
hint("all_reduce_mean")

# %% [markdown] tags=["solution"]
# Each process's gradient times its number of targets is the gradient of a sum. Sums add up, and one division by all targets makes a mean. Common mistakes: the plain mean, weights without the division, and an `+=` that writes into the first process's tensors.

# %% [markdown] tags=["note"]
# **Say.** A budget has two sides, and a curve that fits is not a law of nature. If you got a hundred times the compute, you would first train small models with several recipes, to find the valley.
#
# **Usual answers.**
# - *One model as large as possible* (from the room): Where is the bottom of your valley? You do not know before you have looked.
#
# **Cut if short.** The list; students read it.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="A budget has two sides, and one size is best"
# ## What you have now
# - Training takes about 6 N D FLOPs, and less in short texts. [[six-n-d]]
# - Each recorded budget had a best size, and a larger budget was best spent on both: a larger model and more text. [[valleys]]
# - At equal compute the smaller of two models won with 4 billion FLOPs, a larger one with 160 billion. With equal text the larger one won. [[equal-what]]
# - With 16 texts for each update instead of 4 the slope of a valley was steeper. [[second-recipe]]
# - Kinds of words are learned one after the other; the order differs between seeds. [[one-kind]]
# - Two models with the same loss can know different things. [[same-loss]]
# - Our scaling law missed the next budget, and its loss E was hardly determined. [[law-misses]]
# - Chinchilla's rule is to let N and D grow alike, with about 20 tokens for each parameter. [[formula-ratios]]
# - At Chinchilla's budget its published formulas differ by more than a factor of four. [[published-fits]]
# - One GPU of 80 GB cannot train 7 billion parameters with 16 bytes for each. [[memory]]
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
