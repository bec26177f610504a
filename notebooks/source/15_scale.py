# %% [markdown] edition=3 deck="What does more of everything buy?"
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
# **Ask.** You have four times the compute. Who would spend everything on parameters, and who on tokens? Write the votes on the board for section 2.
#
# **Usual answers.**
# - *The largest one* (`the largest`): It would be, if it could read as much as the others. Each of its tokens costs more.
# - *4 times as many tokens* (`4`): Each token costs more now, because the model is larger.
# - *C is the width of the model* (from the room): Until lesson 14 it was. Here C is the compute, as in the papers.
#
# **Cut if short.** The table of three models; say that 6 N D is right to about a seventh.
#
# **Tried.** TRIED1

# %% [markdown]
# ## 1. Two things to buy
# Suppose that you get more computers. You can train a model with more **parameters**, or let it read more **tokens**. Both take **compute**, counted in floating-point operations (FLOPs, lesson 14). Small models with two layers were trained on StoryWorld, each with the same compute, 10 billion FLOPs. A larger model costs more for each token, so it read less text.

# %%
from tinylm_classroom import check, control, hint, keep, predict, scale
from tinylm_classroom import scale_figures as figures

recorded = scale.recorded()
budgets = scale.budgets_of(recorded)
same_budget = scale.of_budget(recorded, 1e10)

# %% tags=["source-hidden"] deck="Three models cost the same. Which has the lowest loss?"
mean_losses = {n: scale.mean_loss(same_budget, n) for n in (3_108, 11_820, 47_392)}
middle_wins = min(mean_losses, key=mean_losses.get) == 11_820
predict(
    "All three cost 10 billion FLOPs. Which model has the lowest loss on new stories?",
    key=lambda: "11,820 parameters, 141,000 tokens" if middle_wins else "?",
    choices={
        "3,108 parameters, 536,000 tokens": "It has read most. But it is too small to use all of it.",
        "11,820 parameters, 141,000 tokens": "",
        "47,392 parameters, 35,000 tokens": "With the same text it would win. But it has read too little.",
    },
    because="A budget is best spent on both: a model that is large enough, and enough text for it.",
)


# %% tags=["source-hidden"] deck="Task: spend 10 billion FLOPs on the best size"
def spend(size=3_108):
    figures.spent(same_budget, size)


control(spend, size=sorted({run.size for run in same_budget}))

# %% [markdown]
# **Your task:** find the size with the lowest loss. How much more text did the smallest model read, and how much less the largest?
#
# The rectangle's sides are the parameters N and the tokens D, and its area is always the same. For each parameter and each token, training takes 2 FLOPs in the forward pass and 4 in the backward pass, so the compute is nearly
#
# $$C = 6ND$$
#
# ([Kaplan et al. 2020](https://arxiv.org/abs/2001.08361), section 2.1; they count N without embeddings, we count all). Until now C was the width of the model and D that of a head; the letters here are those of the papers. An embedding's rows are looked up and not multiplied, while attention's scores are products without parameters. How good is the rule?

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
# **Say.** One budget has one best size. What happens to it when the budget grows? Before the picture, look at the votes on the board.
#
# **Draw.** A valley: the size on the horizontal axis, the loss on the vertical one. Write *too small* on the left slope and *has read too little* on the right one.
#
# **Ask.** With four times the compute, where does the bottom of the valley go? (Down and to the right.) And the number of tokens there? (It grows as well.)
#
# **Usual answers.**
# - *The smaller one, it won before* (`the smaller one again`): It won at equal compute. Now the larger one reads the same text.
# - *Compare after equal numbers of tokens, that is fair* (from the room): It is one fair question. But the larger model costs several times as much; say what you held equal.
# - *C = N D* (`six left out`): A parameter needs six FLOPs for each token.
# - *Divide by the ratio and do not take the root* (`no root`): The tokens grow with the parameters, so the parameters occur squared.
#
# **Cut if short.** The second recipe; say its result: the valley remains, and it is flatter.
#
# **Tried.** TRIED2

# %% [markdown]
# ## 2. One budget, many sizes
# Here are four budgets, each four times the one before. Two seeds for each size were trained and recorded (`tools/scaling.py`); each update read 4 texts. A parabola over the logarithm of the size is fitted to each budget, and its lowest point has a star, as in [Hoffmann et al. (2022)](https://arxiv.org/abs/2203.15556), section 3.2.

# %%
world = scale.stories(tokenizer, 2_000)  # to read, and 300 new stories with their floor

# %% tags=["signature", "source-hidden"] deck="Every budget has a best size, and it grows with the budget"
figures.valleys(recorded, world.floor)

# %% [markdown]
# Curves of equal compute are called **IsoFLOP** curves. With more compute the bottom moves down and to the right. How does the best model spend its budget?

# %% deck="More compute: a larger model, and more text for it"
best = {budget: scale.best_of(scale.of_budget(recorded, budget)) for budget in budgets}
# ESSENTIAL
for budget, N in best.items():
    D = budget / (6 * N)
    print(f"{budget:.1e} FLOPs: {N:>7,.0f} parameters, {D:>9,.0f} tokens ({D / N:.0f} each)")
# END

# %% tags=["source-hidden"] evidence="valleys" tried="held-out"
# Checked: also without any one of the sizes, and with each seed alone, best size and tokens grow with the budget.
subsets = [[run for run in recorded if run.size != n] for n in {run.size for run in recorded}]
subsets += [[run for run in recorded if run.seed == seed] for seed in (0, 1)]
for some in subsets:
    sizes = [scale.best_of(scale.of_budget(some, budget)) for budget in budgets]
    pairs = list(zip(budgets, sizes, strict=True))
    assert sizes == sorted(sizes) and all(
        b / n < c / m for (b, n), (c, m) in zip(pairs, pairs[1:], strict=False)
    )

# %% [markdown]
# With each larger budget the best model is larger, *and* it reads more text. [[valleys]] The bottoms are flat, so the exact numbers are rough.
#
# ### Break it: hold something else equal
# A colleague compares sizes after equal numbers of *tokens*. We train two sizes ourselves, with three seeds: at equal compute first, then with equal text.


# %%
def loss_after(width, tokens, seed):
    """The loss on new stories of a model of this width that has read so many tokens."""
    small = scale.small(tokenizer, width, seed)
    scale.trained(small, world, tokens, seed)
    return scale.loss_of(small, tokenizer, world)


SEEDS = range(3)
N = {width: scale.size_of(tokenizer, width) for width in (8, 32)}
D = {width: 4e9 / (6 * N[width]) for width in N}  # 4 billion FLOPs for each
losses = {f"{N[width]:,} parameters, {D[width]:,.0f} tokens": width for width in N}
losses = {
    name: [loss_after(width, D[width], seed) for seed in SEEDS] for name, width in losses.items()
}

# %% tags=["source-hidden"] deck="Now the larger model reads as much text as the smaller one. Which wins?"
at_equal_compute = list(losses.values())
same_text = [loss_after(32, D[8], seed) for seed in SEEDS]
smaller_first = max(at_equal_compute[0]) < min(at_equal_compute[1])
larger_then = max(same_text) < min(at_equal_compute[0])
predict(
    f"At equal compute the smaller model {'wins' if smaller_first else 'loses'}, with all three seeds. Now both read {D[8]:,.0f} tokens. Which model wins?",
    key=lambda: "the larger one" if larger_then else "?",
    choices={
        "the smaller one again": "It won because it read more text for the same compute. Now both read the same.",
        "the larger one": "",
        "they are about equal": "They read the same text. But one of them can keep more of it.",
    },
    because="With equal text the larger model loses nothing, and nobody looks at what it costs.",
)

# %% deck="Equal compute or equal text: another winner"
from tinylm_classroom import learned

losses[f"{N[32]:,} parameters, {D[8]:,.0f} tokens"] = same_text
# ESSENTIAL
for name, of_seeds in losses.items():
    print(f"{name}: loss", ", ".join(learned(loss, 1, 4) for loss in of_seeds))
# END

# %% tags=["source-hidden"] evidence="equal-what" tried="seeds"
# Checked: with all seeds the smaller model wins at equal compute, and the larger one with equal text.
assert smaller_first and larger_then and 6 < N[32] / N[8] < 7

# %% [markdown]
# There is no error message, and each line is true. But the winner with equal text spent more than six times the compute. [[equal-what]] If you compare sizes, say what you held equal.
#
# ### Is it the size, or the recipe?
# The largest models of a budget make few updates. Does their slope come from that? The budget of 10 billion FLOPs again, with 16 texts for each update and so a quarter of the updates:

# %% tags=["source-hidden"] deck="RECIPETITLE"
by_recipe = {"4 texts": same_budget, "16 texts": scale.of_budget(scale.recorded(16), 1e10)}
figures.recipes(by_recipe, "RECIPETITLE")

# %% tags=["source-hidden"] evidence="second-recipe" tried="held-out"
# Checked with each seed alone: the valley is there with both recipes, and the slope at the right is steeper with 16.
for seed in (0, 1):
    rises = {}
    for name, some in by_recipe.items():
        of_seed = {run.size: run.loss for run in some if run.seed == seed}
        rises[name] = of_seed[max(of_seed)] - min(of_seed.values())
    assert 0.03 < rises["4 texts"] < 0.5 * rises["16 texts"], rises

# %% [markdown]
# RECIPETEXT [[second-recipe]] So a valley belongs to a recipe as well as to a language, and anyone who compares sizes must tune the recipe at each size.

# %% [markdown]
# ### Your turn: plan a training
# Suppose that the best models of all budgets had the same number of tokens for each parameter. Then section 1 is enough to plan a training. Solve $C = 6ND$ for a given ratio $D / N$.


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
# **Draw.** A staircase, and next to it a ramp. Which of the two is a skill?
#
# **Ask.** None: the prediction asks. Then: "Two models have the same loss. Do they know the same things?"
#
# **Usual answers.**
# - *All kinds get better together* (`all of them`): Most words of a story need no look back at all.
# - *A jump shows that something new has emerged* (from the room): First look at a measure that can move gradually. Here it is the distance from the exact distribution, and some skills fall steeply in it, too.
#
# **Cut if short.** The two models with the same loss.
#
# **Tried.** TRIED3

# %% [markdown]
# ## 3. What the loss hides
# The loss falls from valley to valley. Does a model get a little better at everything? StoryWorld knows which words are determined by an earlier sentence: whether it must be *he* or *she*, a name, an object, a place, a quotation or a trait. For each kind we measure how far the model's distribution is from the exact one, with the **Kullback-Leibler divergence** (lesson 03), in nats. At 0 the model knows all that can be known; a coin between *he* and *she* has ln 2 = 0.69.

# %% tags=["source-hidden"] deck="PREDICT3TITLE"
at_best = {budget: scale.nats_at(recorded, budget, best[budget]) for budget in budgets}
known = [kind for kind in scale.KINDS if at_best[budgets[1]][kind] < 0.1]
predict(
    "The best model of the second budget has a much lower loss than that of the first. Which of the six kinds does it know almost completely (below 0.1 nats)?",
    key=lambda: "none of them" if not known else "?",
    choices={
        "all of them": "That would be progress everywhere. Most words of a story need no look back at all.",
        "pronouns": "It has come closer, and it is better than a coin. That is not yet knowing.",
        "none of them": "",
    },
    because="What it has learned is which words are frequent and which follow which.",
)

# %% tags=["source-hidden"] deck="Skills arrive one after the other"
gap = scale.gaps(model, tokenizer, world.held_out[:40])
figures.skills(recorded, {kind: gap[kind].nats for kind in scale.KINDS}, scale.loss_of(model, tokenizer, world))

# %% deck="The best model of each budget, kind by kind"
print(f"{'FLOPs':>8}" + "".join(f"{kind:>11}" for kind in scale.KINDS))
# ESSENTIAL
for budget, nats in at_best.items():
    print(f"{budget:>8.1e}" + "".join(f"{n:>11.1f}" for n in nats.values()))
# END

# %% tags=["source-hidden"] evidence="one-kind" tried="held-out"
# Checked: KINDSCHECK
pass

# %% [markdown]
# KINDSTEXT [[one-kind]] Does the loss determine what a model knows? Among the recorded runs there are pairs with nearly the same loss:

# %% deck="The same loss, other skills"
SAMELOSS = 0
pair = scale.alike(recorded, 0.02)
for run in pair:
    right = {kind: f"{r:.0%}" for kind, r in zip(scale.KINDS, run.right, strict=True)}
    print(f"{run.size:,} parameters, seed {run.seed}, loss {run.loss:.2f}: {right}")

# %% tags=["source-hidden"] evidence="same-loss" tried="seeds"
# Checked: SAMECHECK
pass

# %% [markdown]
# SAMETEXT [[same-loss]]
#
# Steps like these in large models were called *emergent abilities* ([Wei et al. 2022](https://arxiv.org/abs/2206.07682)). [Schaeffer et al. (2023)](https://arxiv.org/abs/2304.15004) showed that many of them come from the measure: a fraction of right answers jumps where the probability of the right answer grows smoothly. That is why the picture shows nats, which can move gradually.

# %% [markdown] tags=["note"]
# **Say.** Labs plan trainings that they can afford only once. So they fit a curve to many small runs and read it far to the right. How far may one trust it? Here we have the next budget, and we know the floor.
#
# **Draw.** Points that fall and flatten, and three curves through them that end at three different heights.
#
# **Ask.** None: the prediction asks. Afterwards: "What would have to be true for the fitted E to be the entropy of the language?" (The formula is exact, and the recipe is the best at every size.)
#
# **Usual answers.**
# - *E is the entropy of the language* (from the room): It is a parameter of a curve, far from all points.
# - *More seeds make it certain* (from the room): They reduce chance. They cannot say that the formula is wrong.
#
# **Cut if short.** The shape trace.
#
# **Tried.** TRIED4

# %% [markdown]
# ## 4. A law, and what it cannot know
# In many published measurements losses follow a simple curve, a **scaling law** ([Hoffmann et al. 2022](https://arxiv.org/abs/2203.15556), section 3.3):
#
# $$L(N, D) = E + \frac{A}{N^a} + \frac{B}{D^b}$$
#
# $E$ is the **irreducible** loss: what would be left with endless parameters and endless text. For given exponents $a$ and $b$ the formula is linear in $E$, $A$ and $B$, so `lstsq` finds the ones with the smallest squared error. (R runs; N is counted in 10,000, D in 100,000.)

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
        "too low": "So it would be if the models stopped learning. Look at section 3: they have just begun to look things up.",
        "too high": "",
        "about right": "So it would be if the losses followed the formula. But skills arrive in steps.",
    },
    because="The formula is smooth. It cannot know that with more compute the models begin to look words up.",
)

# %% tags=["source-hidden"] deck="LAWTITLE"
figures.beyond(recorded, lambda N, D: predicted(law, N, D), budgets[:3], world.floor, "LAWTITLE")

# %% [markdown]
# And how well is $E$ known? We fit to all runs, then to each seed alone, and without each size:

# %%
refits = {"all runs": [fit(scale.as_points(recorded))]}
refits["one seed"] = [fit(scale.as_points(recorded, seed=seed)) for seed in (0, 1)]
all_sizes = sorted({run.size for run in recorded})
refits["one size less"] = [fit(scale.as_points(recorded, without=n)) for n in all_sizes]
for name, laws in refits.items():
    E = [each["E"] for each in laws]
    print(f"{name:<13}: E from {min(E):.2f} to {max(E):.2f} (floor {world.floor:.2f})")

# %% tags=["source-hidden"] evidence="law-misses" tried="held-out"
# Checked: LAWCHECK
pass

# %% [markdown]
# LAWTEXT [[law-misses]]

# %% [markdown] tags=["note"]
# **Say.** The most quoted number of this field is 20 tokens for each parameter. Where does it come from, and what does it not say?
#
# **Draw.** Two columns, training and use. Training costs 6 FLOPs for each parameter and token, use costs 2 for each parameter and token written. Which is larger for a model that millions use?
#
# **Ask.** Llama 3 8B read far more than 20 tokens for each parameter. Were its makers wrong? (No. They wanted a small model that is cheap to use.)
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
# Over 400 real models, from 70 million to 16 billion parameters, were trained to find their valleys (Hoffmann et al. 2022). One of the three methods was the formula of section 4. Here are its valleys, with the constants of a later and more careful fit to the same runs ([Besiroglu et al. 2024](https://arxiv.org/abs/2404.10102)):


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
assert 15 < min(ratios) and max(ratios) < 30 and all(x > y for x, y in zip(ratios[:-4:4], ratios[4::4], strict=True))

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
# Three things are often said wrongly about the 20:
#
# - **It is not a law of nature.** It was the best use of *training* compute for those models and that text. A small model is cheaper to use, so it pays to train it longer: look at the two Llamas.
# - **It is not "a model needs 20 tokens per parameter".** Past 20, more tokens still help; the same extra compute would help more if a part of it bought parameters.
# - **The published formula does not give 20.** It was rounded for print, and fitted again later:

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
# At a small budget the three nearly agree, so it is the extrapolation that differs. [[published-fits]] An exponent acts on a huge number: rounding two of them to two decimals moves the answer from 59 to 93. An optimizer that stopped too early accounts for much of the rest (Besiroglu et al. 2024).

# %% [markdown] tags=["note"]
# **Say.** A batch can be divided among many machines. Each computes the gradient of its part, and then all of them need the mean. It sounds trivial, and it goes wrong as soon as the parts are unequal.
#
# **Draw.** Two boxes with the same weights and different texts, and an arrow in both directions between them: the gradients are averaged.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *The same, a mean is a mean* (`the same`): A mean of two means weighs both of them equally.
# - *The mean of the means* (`every process has the same weight`): Weigh each by its number of targets.
# - *Add the gradients up* (`the gradients are added up`): Then more processes would make larger steps.
# - *Divide by the number of processes as well* (`it is divided by the processes as well`): The weights already add up to 1.
#
# **Cut if short.** The view.
#
# **Tried.** TRIED6

# %% [markdown]
# ## 6. Many machines
# **Your task:** choose *training* in this view. Which of these models fit on one H100 (80 GB)?

# %% tags=["source-hidden"] deck="Task: which of these models can one GPU train?"
from tinylm_classroom import memory_view

memory_view({"Llama 2 7B": configs["Llama 2 7B"]})

# %% tags=["source-hidden"] evidence="memory" tried="exact"
# Checked: training takes 16 bytes for each parameter, so Llama 2 7B needs more than one H100, and GPT-2 XL does not.
from tinylm_lib.cost import training_bytes

assert training_bytes(configs["Llama 2 7B"]) > 80e9 > training_bytes(preset("gpt2", "xl"))

# %% [markdown]
# Training keeps 16 bytes for each parameter (lesson 10), so a model of 7 billion parameters does not fit on one such GPU. [[memory]] And one GPU would train it for centuries, so the work must be divided. In **data-parallel** training every process has a copy of the model and a part of the batch. Then all of them average their gradients, an **all-reduce**, and make the same update. (If the model is too large for one of them, each keeps only a **shard**, a part of every parameter.) By hand, with two processes in one:


# %%
from torch.nn.functional import cross_entropy

from tinylm_lib.data import RandomWindows


def gradient(pupil, x, y):
    """All gradients of the mean loss, as one long vector."""
    loss = cross_entropy(pupil(x).flatten(0, 1), y.flatten())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(pupil.parameters()))])


# %%
pupil = scale.small(tokenizer, 8, seed=0)
x, y = next(RandomWindows(world.ids, 16, 128, seed=99, starts=world.starts))  # (16, T)
whole = gradient(pupil, x, y)
parts = [gradient(pupil, x[:8], y[:8]), gradient(pupil, x[8:], y[8:])]
torch.testing.assert_close(sum(parts) / 2, whole, atol=1e-5, rtol=1e-4)
print("equal parts: the mean of the two gradients is that of all 16 texts")

# %% tags=["source-hidden"] deck="12 texts and 4 texts: what weight has a text of the small part?"
predict(
    "One process has 12 texts and the other one has 4. We take the plain mean of their gradients. How many times the weight of a text in the large part has one in the small part?",
    key=lambda: (1 / 4) / (1 / 12),
    number="times",
    within=0,
    feedback={
        1: "A mean of two means weighs both parts equally, however many texts they have.",
        4: "Each part is divided by its own number of texts: compare 1/4 with 1/12.",
    },
    because="Both parts have half of the weight, divided by 4 texts in one and by 12 in the other.",
)

# %% deck="With unequal parts the plain mean is wrong"
n_first = 12  # try 15 and 8
# ESSENTIAL
one, other = gradient(pupil, x[:n_first], y[:n_first]), gradient(pupil, x[n_first:], y[n_first:])
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
# With unequal parts the plain mean is not the gradient of the batch. [[unequal-parts]] To have equally many texts is enough only if they have equally many targets, because the loss is a mean over targets. Otherwise each gradient must be weighted by its number of targets.
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
    return [
        sum(w * g for w, g in zip(weights, of_all, strict=True))
        for of_all in zip(*gradients, strict=True)
    ]
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
# **Draw.** The valleys of section 2, from memory.
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
# - In the recorded experiment each budget had a best size, which grew with the budget, and so did its number of tokens. [[valleys]]
# - At equal compute the smaller of two models won, with equal text the larger one. [[equal-what]]
# - SUMRECIPE [[second-recipe]]
# - SUMKINDS [[one-kind]]
# - Two models with the same loss can know different things. [[same-loss]]
# - SUMLAW [[law-misses]]
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
