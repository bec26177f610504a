# %% [markdown] slide="slide"
# # 15 Scale
# **What does more of everything buy?**
#
# *Needs* lessons 10, 11 and 14. *Builds* `compute_optimal` and `all_reduce_mean`, and uses `cost.py` and `training/distributed.py`. *Runs* in about 25 s on two cores.
# *Teaches* in about 55 minutes, plus 20 of exercises.

# %% [markdown] tags=["note"]
# The lesson as a whole. It has one idea: a budget of compute can be spent on parameters or on tokens, and for each budget one size is best. Section 2 measures this, section 3 looks at what the loss hides, sections 4 and 5 ask how far a formula may be trusted.
# If you have only ten minutes, show the picture of the valleys in section 2. The shortest plan is sections 1 to 5 with one exercise. The next plan adds the wrong comparison of section 6, training with several processes and its exercise, and the arithmetic of large models; the longest adds section 9 for engineers.
# Before the class: run all cells once. Section 2 trains four small models, which takes some seconds.

# %% slide="skip"
from matplotlib import pyplot as plt

from tinylm_lib import preset
from tinylm_classroom import figures, predict
from tinylm_lib.cost import count_parameters, training_flops
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** More compute makes better models: everybody has heard that. But what exactly do you buy with it? There are two things to buy, and one currency.
#
# **Draw.** A rectangle with the sides N and D, and its area C. Then a wide, flat rectangle and a narrow, tall one of the same area.
#
# **Ask.** You have four times the compute. Who would spend everything on N, and who on D? Write the votes on the board for section 2.
#
# **Usual answers.**
# - *4 times as many tokens* (`4`): Each token costs more now, because the model is larger.
# - *C is the width of the model* (from the room): Until lesson 14 it was. Here C is the compute, as in the papers.
#
# **Cut if short.** The table of three models; say that 6 N D is right to about a seventh.

# %% [markdown] slide="slide"
# ## 1. Two things to buy
# Suppose that you get more computers. You can train a model with more **parameters** N, or let it read more **tokens** D. Both take **compute** C, counted in floating-point operations (FLOPs, lesson 14): for each parameter and each token, 2 in the forward pass and 4 in the backward pass. So
#
# $$C = 6ND,$$
#
# nearly ([Kaplan et al. 2020](https://arxiv.org/abs/2001.08361), section 2.1; they count N without embeddings, we count all). An embedding's rows are looked up and not multiplied, while attention's scores are products without parameters. How good is the rule?

# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer

# %% evidence="six-n-d"
configs = {"shipped": model.config, "GPT-2 small": preset("gpt2"), "Llama 2 7B": preset("llama", "2-7b")}
for name, config in configs.items():
    N = count_parameters(config).total
    long, short = (training_flops(config, 1, length) / length / N for length in (config.max_seq_len, 16))
    print(f"{name:<12} {N:>13,} parameters, C = {long:.2f} N D; in texts of 16 tokens {short:.2f} N D")
    assert short < 6 < long < 7 < 20 < training_flops(config, 1, 200_000) / 200_000 / N

# %% [markdown]
# At full text length all three need a little more than 6 N D, and in short texts a little less. In very long texts they need far more, because the scores grow with the length. [[six-n-d]]

# %% [markdown] slide="say"
# (The optimizer's own products are not counted. And take care: four letters have another meaning here, because we follow the papers on scaling. Until now C was the width of the model, D the width of a head, B the number of texts in a batch and L the number of layers. Here C is the compute, D the number of training tokens, and in section 4 L is the loss and B a constant of a formula.)

# %% tags=["source-hidden"]
predict(
    "We have four times the compute and spend all of it on a model twice as large. How many times as many tokens can it read?",
    key=lambda: 4 / 2,
    number="times",
    within=0,
    feedback={
        4: "Each token costs more now: the model is larger.",
        8: "A larger model reads fewer tokens for its compute.",
    },
    because="C is 6 times N times D: 4 = 2 times 2.",
)

# %% [markdown] tags=["note"]
# **Say.** Now the question of the lesson. The compute is fixed, and you choose the size of the model. We try it with models that train in seconds, and then look at a larger experiment that was recorded.
#
# **Draw.** A valley: the size on the horizontal axis, the loss on the vertical one. Write *too small* on the left slope and *has read too little* on the right one.
#
# **Ask.** With four times the compute, where does the bottom of the valley go? (Down and to the right.) And the number of tokens at the bottom? (It grows as well.)
#
# **Usual answers.**
# - *The larger one is better* (`the larger one`): It would be, if both could read the same text. Here it makes only 7 updates.
# - *Then smaller is always better* (from the room): Look at the left slopes of the picture.
# - *C = N D* (`six left out`): A parameter needs six FLOPs for each token.
# - *Divide by the ratio and do not take the root* (`no root`): The tokens grow with the parameters, so the parameters occur squared.
#
# **Cut if short.** The second recipe; say its result: the valley remains, and its bottom moves.

# %% [markdown] slide="slide"
# ## 2. One budget, many sizes
# The compute is fixed. Is a large model that reads little better, or a small one that reads much? We try it: two models with two layers, 8 and 32 wide, each with a budget of 4 billion FLOPs. The smaller model costs less for each token, so it reads more text.

# %% slide="skip"
import math

import torch

from tinylm_lib import TrainConfig, TransformerLM, evaluate, storyworld, train
from tinylm_classroom import check, hint, keep, learned
from tinylm_lib.data import RandomWindows, every_document
from tinylm_lib.text import line_end
from tinylm_lib.training import build_optimizer

ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(2_000, seed=0)))
starts = (ids == line_end(tokenizer)).nonzero()[:, 0]  # every window begins with a story

# %% slide="skip"
generator = torch.Generator().manual_seed(1_000_000)
held_out = [storyworld.story(generator) for _ in range(300)]
new_ids = torch.tensor(tokenizer.encode("\n" + "".join(story.text + "\n" for story in held_out)))
floor = -sum(story.log_prob for story in held_out) / (len(new_ids) - 1)  # the loss of a perfect model


# %% slide="skip"
def small(width: int, seed: int) -> TransformerLM:
    torch.manual_seed(seed)
    sizes = {"d_model": width, "n_layers": 2, "n_heads": 2, "max_seq_len": 128, "d_ff_multiple_of": 8}
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, **sizes))


# %%
def train_within(budget: float, width: int, seed: int) -> tuple[TransformerLM, int]:
    """A model of this width that was trained for `budget` FLOPs, and how many tokens it read."""
    small_model = small(width, seed)
    N, per_update = count_parameters(small_model.config).total, 16 * 128  # 16 texts of 128 tokens
    updates = round(budget / (6 * N * per_update))
    config = TrainConfig(total_steps=updates, batch_size=16, seq_len=128, seed=seed, precision="fp32")
    batches = RandomWindows(ids, 16, 128, seed, starts=starts)
    list(train(small_model, build_optimizer(small_model, config), batches, config))
    return small_model, updates * per_update


# %% slide="skip"
small_models, tokens_read, small_losses = {}, {}, {}
for width in (8, 32):
    for seed in (0, 1):  # two seeds: other first weights and other batches
        small_models[width, seed], tokens_read[width] = train_within(4e9, width, seed)
        on_new_stories = evaluate(small_models[width, seed], every_document(new_ids, line_end(tokenizer), 50))
        small_losses[width, seed] = on_new_stories.nats_per_token

# %% tags=["source-hidden"]
smaller_wins = max(small_losses[8, 0], small_losses[8, 1]) < min(small_losses[32, 0], small_losses[32, 1]) - 0.1
predict(
    f"The larger model reads {tokens_read[32]:,} tokens, the smaller one {tokens_read[8]:,}. Which has the lower loss on new stories?",
    key=lambda: "the smaller one" if smaller_wins else "?",
    choices={
        "the larger one": "With the same text it would. But each of its tokens costs more, so it has read little.",
        "the smaller one": "",
        "they are equal": "They cost the same. What they buy with it is not the same.",
    },
    because="The larger model has read less than one token for each of its parameters.",
)

# %% evidence="smaller-wins"
expected = {8: (2.5, 2.85), 32: (3.2, 3.65)}  # processors round differently, and it adds up
for width in (8, 32):
    N = count_parameters(small_models[width, 0].config).total
    losses = ", ".join(learned(small_losses[width, seed], *expected[width]) for seed in (0, 1))
    print(f"width {width:>2}: {N:>6,} parameters read {tokens_read[width]:>6,} tokens, loss {losses} nats per token")
assert smaller_wins and tokens_read[32] < N

# %% [markdown]
# With both seeds the smaller model wins. [[smaller-wins]] (In this budget it makes several times as many updates; we return to that.) Is smaller always better, then? More sizes and larger budgets take longer than a lesson has. So here is a larger experiment: two seeds for each size (one for the smallest size of the largest budget), ten times as many stories, the same held-out ones, recorded once on two cores with lines such as `python tools/scaling.py --compute 1e10 --widths 4 8 16 --seeds 0 --kinds`.

# %% tags=["source-hidden"] slide="skip"
# budget in 1e10 FLOPs, parameters, loss, and for six kinds of words the nats above the exact distribution (section 3)
RECORDED = """
1 3108 2.03 1.6 3.9 3.7 3.3 3.1 3.0; 1 3108 1.97 1.2 4.1 3.5 3.2 3.0 3.0; 1 7240 1.83 1.2 3.9 3.6 3.3 3.0 2.9
1 7240 1.86 1.2 3.9 3.6 3.3 3.0 2.9; 1 11820 1.86 1.3 4.0 3.6 3.3 3.1 2.9; 1 11820 1.81 1.0 3.9 3.6 3.3 3.1 3.0
1 17040 1.98 1.5 4.2 3.7 3.3 3.1 3.0; 1 17040 1.96 1.4 4.1 3.7 3.3 3.2 3.0; 1 30552 2.17 1.6 4.5 3.8 3.6 3.6 3.1
1 30552 2.18 1.5 4.4 3.8 3.6 3.9 3.2; 1 47392 2.41 1.9 4.7 4.1 3.8 4.4 3.4; 1 47392 2.38 1.7 4.9 4.1 3.7 4.2 3.5
4 3108 1.60 1.3 3.7 3.5 3.2 2.8 2.9; 4 3108 1.57 0.8 3.8 3.5 3.2 2.8 2.9; 4 7240 1.39 0.6 3.7 3.5 3.2 2.8 2.8
4 7240 1.37 0.7 3.7 3.5 3.2 2.8 2.9; 4 11820 1.35 0.2 3.7 3.5 3.2 2.8 2.9; 4 11820 1.33 0.7 3.7 3.4 3.2 2.8 2.8
4 17040 1.34 0.5 3.7 3.5 3.2 2.8 2.8; 4 17040 1.35 0.3 3.7 3.5 3.2 2.8 2.9; 4 30552 1.38 0.7 3.8 3.5 3.2 2.8 2.9
4 30552 1.35 0.2 3.7 3.5 3.3 2.9 2.9; 4 47392 1.44 0.6 3.8 3.5 3.3 2.9 2.9; 4 47392 1.44 0.3 3.7 3.5 3.2 2.9 3.0
4 88720 1.63 1.1 4.0 3.7 3.3 3.0 3.0; 4 88720 1.64 0.7 4.0 3.7 3.3 3.0 2.9; 4 141824 1.87 1.4 4.2 3.8 3.4 3.2 3.0
4 141824 1.88 0.9 4.0 3.7 3.5 3.4 3.0; 16 11820 1.28 0.0 3.5 3.4 3.2 2.8 2.8; 16 11820 1.25 0.0 3.3 3.4 3.2 2.8 2.8
16 17040 1.24 0.4 3.2 3.4 3.2 2.2 2.8; 16 17040 1.27 0.0 3.3 3.4 3.2 2.8 2.8; 16 30552 1.10 0.5 1.9 3.4 0.0 2.8 2.9
16 30552 1.19 0.0 2.3 3.4 3.2 2.6 2.9; 16 47392 1.25 0.1 3.6 2.8 3.1 2.7 2.9; 16 47392 1.19 0.0 2.3 3.4 3.1 2.3 2.8
16 88720 1.20 0.3 2.4 3.4 2.4 2.8 2.9; 16 88720 1.21 0.0 2.9 3.4 3.2 2.8 2.9; 16 141824 1.33 0.5 3.7 3.4 3.2 2.9 2.9
16 141824 1.30 0.0 3.7 3.5 3.2 2.9 2.9; 16 287968 1.40 0.4 3.9 3.7 3.2 3.0 2.9; 16 287968 1.41 0.4 3.8 3.7 3.3 3.0 2.9
64 17040 0.89 0.0 0.1 2.0 0.0 2.1 2.8; 64 30552 0.81 0.0 0.5 0.0 0.0 2.0 1.1; 64 30552 0.84 0.0 0.3 1.5 0.0 1.5 2.8
64 47392 0.82 0.0 0.3 1.4 0.0 1.4 0.6; 64 47392 0.85 0.0 0.4 2.3 0.0 1.3 0.6; 64 88720 0.81 0.0 0.0 1.2 0.0 2.4 0.5
64 88720 0.83 0.0 0.4 1.2 0.0 2.1 0.7; 64 141824 0.92 0.0 0.9 2.6 0.7 2.5 0.1; 64 141824 0.84 0.0 0.7 1.2 0.0 1.8 0.5
64 287968 1.01 0.0 0.8 3.4 3.1 2.4 2.4; 64 287968 1.00 0.0 1.1 3.4 0.1 2.7 2.8; 64 484288 1.10 0.2 1.6 3.3 2.7 2.6 2.9
64 484288 1.10 0.3 1.6 3.5 2.4 2.8 2.9
"""
RECORDED = RECORDED.replace("\n", ";").strip(";").split(";")
runs = torch.tensor([[float(x) for x in line.split()] for line in RECORDED], dtype=torch.float64)
runs[:, 0] *= 1e10

# %% [markdown]
# For each budget we put a parabola through the losses, over the logarithm of the size, and take its lowest point, as in [Hoffmann et al. (2022)](https://arxiv.org/abs/2203.15556), section 3.2:


# %%
def parabola(sizes, losses):
    """The constants of c0 + c1 x + c2 x^2 with the smallest squared error, x = log N; then the best size."""
    x = sizes.log()
    columns = torch.stack([torch.ones_like(x), x, x**2], dim=1)  # (R, 3)
    c = torch.linalg.lstsq(columns, losses).solution  # (3)
    return c, (-c[1] / (2 * c[2])).exp().item()


# %% slide="skip"
budgets = runs[:, 0].unique().tolist()
best_size = {}
for budget in budgets:
    same = runs[:, 0] == budget
    best_size[budget] = parabola(runs[same, 1], runs[same, 2])[1]

# %% tags=["signature", "source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10.4, 5.8), layout="constrained")
frontier = []
for budget, mark, color in zip(budgets, "osD^", figures.SERIES, strict=False):
    N, loss = runs[runs[:, 0] == budget, 1:3].T
    c, best = parabola(N, loss)
    along = torch.logspace(N.min().log10().item() - 0.06, N.max().log10().item() + 0.06, 80, dtype=torch.float64).log()
    curve = c[0] + c[1] * along + c[2] * along**2
    ax.plot(along.exp(), curve, linestyle="-", linewidth=3, color=color)
    ax.plot(N, loss, mark, markersize=8, color=color, alpha=0.75)
    frontier.append((best, c[0] + c[1] * math.log(best) + c[2] * math.log(best) ** 2))
    ax.text(along[-1].exp() * 1.07, curve[-1], f"{budget / 1e9:,.0f} billion FLOPs", color=color, va="center")
ax.plot(*zip(*frontier, strict=True), "*--", color=figures.INK, markersize=26, linewidth=2.5, zorder=5)
ax.text(frontier[1][0] * 0.94, 1.0, "the best sizes", size=19, weight="bold", ha="right")
ax.axhline(floor, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
ax.text(2_600, floor + 0.02, "floor: no model can be below", color=figures.QUIET, va="bottom")
ax.set(title="Every budget has a best size", xlabel="parameters", ylabel="loss (nats per token)")
ax.set(xscale="log", xlim=(2_400, 3_500_000), ylim=(0.6, 2.6))
ax.set_xticks([3e3, 1e4, 3e4, 1e5, 3e5], ["3,000", "10,000", "30,000", "100,000", "300,000"])
ax.minorticks_off()
figures.display(
    fig, alt="Four valleys, one for each budget of compute: the loss over the number of parameters. The larger the budget, the lower the valley and the further to the right its lowest point, which has a star. A dashed line leads from star to star.",
    caption="Each point is a model that used up its budget. To the right of a star the models have read too little, to the left they are too small for what they read.",
    table={"FLOPs": [f"{budget:.1e}" for budget in budgets], "best size": [f"{N:,.0f}" for N in best_size.values()]},
)  # fmt: skip

# %% [markdown]
# Curves of equal compute are called **IsoFLOP** curves. Each of ours is a valley, and with more compute its bottom moves down and to the right. How does the best model spend its budget?

# %% evidence="valleys"
for budget, N in best_size.items():
    D = budget / (6 * N)
    print(f"{budget:.1e} FLOPs: {N:>6,.0f} parameters, {D:>9,.0f} tokens, {D / N:.0f} for each parameter")
assert list(best_size.values()) == sorted(best_size.values())
assert all(budgets[i + 1] / best_size[budgets[i + 1]] > budgets[i] / best_size[budgets[i]] for i in range(3))

# %% [markdown]
# With each larger budget the best model is larger, *and* it reads more text. [[valleys]] The bottoms are flat and the seeds differ, so the exact numbers are rough.

# %% [markdown] slide="subslide"
# Is the right slope really a matter of size? A rival explanation is the recipe: each update read 16 texts, so the largest models made very few updates. Here is the second budget again with 4 texts for each update and therefore four times as many updates (recorded with `--batch-size 4`, one seed):

# %% evidence="second-recipe"
tried = [7_240, 11_820, 17_040, 30_552, 47_392, 88_720, 141_824]  # parameters
losses_of = {
    "16 texts": [1.387, 1.349, 1.337, 1.375, 1.439, 1.630, 1.868],
    "4 texts": [1.330, 1.314, 1.330, 1.332, 1.348, 1.377, 1.445],
}
slopes = {name: losses[-1] - min(losses) for name, losses in losses_of.items()}
for name, losses in losses_of.items():
    best = tried[losses.index(min(losses))]
    print(f"{name:>8}: best {min(losses):.2f} at {best:,}, the largest {losses[-1]:.2f}: {slopes[name]:.2f} higher")
assert 0.05 < slopes["4 texts"] < 0.3 * slopes["16 texts"]

# %% [markdown]
# The rival is mostly right: with the other recipe the slope is still there, but only a quarter as high. [[second-recipe]] So a valley belongs to a recipe as well as to a language, and anyone who compares sizes must tune the recipe at each size.

# %% [markdown]
# ### Your turn
# Suppose that the bottoms of all valleys had the same number of tokens for each parameter. Then the arithmetic of section 1 is enough to plan a training. Solve $C = 6ND$ for a given ratio $D / N$.


# %% tags=["exercise"] name="compute_optimal" minutes=8 difficulty=1
def compute_optimal(flops, tokens_per_parameter):
    """The size whose training takes so many FLOPs, 6 for each parameter and token. Both arguments are above 0.

    Returns (parameters, tokens), two numbers that need not be whole; tokens / parameters is tokens_per_parameter.
    """
    # SOLUTION
    parameters = (flops / (6 * tokens_per_parameter)) ** 0.5
    return parameters, tokens_per_parameter * parameters
    # END


# %% tags=["check"]
if check("compute_optimal", compute_optimal).passed:
    keep("compute_optimal", compute_optimal)

# %%
hint("compute_optimal")

# %% [markdown] tags=["solution"]
# With $D = rN$ the compute is $6 r N^2$. Divide by $6r$, then take the root, and the tokens follow. Common mistakes: the ratio outside the root, no 6, and 2 instead of 6 (the forward pass alone). Four times the compute buys twice the parameters *and* twice the tokens.

# %% [markdown] tags=["note"]
# **Say.** A loss is one number for all words. What does a model with a lower loss know that the other does not?
#
# **Draw.** A staircase, and next to it a ramp. Which of the two is a skill?
#
# **Ask.** Two models have the same loss. Do they know the same things? (Look for two such models in the table.)
#
# **Usual answers.**
# - *All kinds get better together* (`all six`): Look at the first two columns of the table.
# - *A jump shows that something new has emerged* (from the room): First look at a measure that can move gradually: the distance from the exact distribution.
#
# **Cut if short.** The last table, of distances.

# %% [markdown] slide="slide"
# ## 3. What the loss hides
# The loss falls from valley to valley. Does the model get a little better at everything? StoryWorld knows for each word what an earlier sentence determines: whether it must be *he* or *she*, a name, an object, a place, a quotation or a trait. So we can measure for each kind how far the model's distribution is from the exact one: the **Kullback-Leibler divergence** (lesson 03), in nats. At 0 the model knows all that can be known. A coin between *he* and *she* has $\ln 2$ = 0.69.

# %% slide="skip"
KINDS = ("pronoun", "name", "object", "place", "quotation", "trait")
coin = math.log(2)


# %% slide="skip"
def nats_of(budget):
    """Of the recorded size nearest to the best one: the mean over seeds for each kind of word."""
    of_budget = runs[runs[:, 0] == budget]
    nearest = of_budget[(of_budget[:, 1].log() - math.log(best_size[budget])).abs().argmin(), 1]
    return of_budget[of_budget[:, 1] == nearest, 3:].mean(0)  # (6)


# %% slide="skip"
from tinylm_lib.storyworld import gaps

shipped_gap = gaps(model, tokenizer, held_out[:40])
shipped_loss = evaluate(model, every_document(new_ids, line_end(tokenizer), 50)).nats_per_token

# %% tags=["source-hidden"]
predict(
    "From the best model of the first valley to the best one of the second, the loss falls by about half a nat. Which of the six kinds does the second one know almost completely (below 0.1 nats)?",
    key=lambda: "none" if nats_of(4e10).min() > 0.1 else "?",
    choices={
        "all six": "That would be progress everywhere. Most words of a story need no look back at all.",
        "pronouns": "It has come closer, and it is better than a coin. That is not yet knowing.",
        "none": "",
    },
    because="Nearly all of the half nat comes from words of none of these kinds. Probably the model has learned which words are frequent and which follow which.",
)

# %% evidence="one-kind"
print(f"a coin has {coin:.2f} nats")
print(f"{'FLOPs':>8}" + "".join(f"{kind:>11}" for kind in KINDS))
for budget in budgets:
    print(f"{budget:>8.1e}" + "".join(f"{nats:>11.1f}" for nats in nats_of(budget).tolist()))
words_of = torch.tensor([shipped_gap[kind].n_words / shipped_gap["all"].n_words for kind in KINDS])  # fractions
from_kinds = (words_of * (nats_of(1e10) - nats_of(4e10))).sum()
print(f"first to second valley: all six kinds together lower the loss by {from_kinds:.2f} nats")
assert from_kinds < 0.1 and nats_of(1e10)[0] > coin > nats_of(4e10)[0] > 0.1 and nats_of(4e10)[1:].min() > 2.5
assert nats_of(6.4e11)[3] < 0.1 < 1 < nats_of(6.4e11)[4]

# %% [markdown]
# The first model's pronouns are worse than a coin, and those of the second one somewhat better. Everything else it hardly looks up, although its loss is half a nat lower: all six kinds together contribute less than a tenth of a nat. At the best size of the largest budget pronouns and places are known, and quotations are not. [[one-kind]] Here are all models of section 2, each as a point:

# %% tags=["source-hidden"] slide="subslide"
fig, panels = plt.subplots(2, 3, figsize=(10.2, 5.7), layout="constrained", sharex=True, sharey=True)
for ax, kind, column in zip(panels.flat, KINDS, range(3, 9), strict=True):
    ax.plot(runs[:, 2], runs[:, column], "o", markersize=8, alpha=0.6, color=figures.SERIES[0])
    ax.plot(shipped_loss, shipped_gap[kind].nats, "*", markersize=20, color="#b34700")
    ax.set_title(kind, size=17)
    ax.set(xlim=(2.5, 0.6), ylim=(-0.5, 5.3))
panels[0, 0].axhline(coin, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
panels[0, 0].text(2.45, coin - 0.1, "a coin", color=figures.QUIET, va="top")
panels[0, 0].set_ylabel("nats above exact")
panels[1, 0].set_ylabel("nats above exact")
fig.supxlabel("loss of the model (nats per token), better to the right")
figures.display(
    fig,
    alt="Six panels, one for each kind of word; each model is a point. From left to right the loss falls. Pronouns fall first, then names, then places; objects, quotations and traits fall last, mostly below a loss of 1. Near a loss of 1, two models with equal losses are far apart in places.",
    caption="Each point is one trained model, 0 means that it knows this kind as well as possible. The kinds fall at different losses, and near a loss of 1 there are models that know places and models that do not. Stars: the shipped model.",
    table={"budget": [f"{run[0]:.1e}" for run in runs.tolist()], "parameters": [f"{run[1]:,.0f}" for run in runs.tolist()], "loss": runs[:, 2].tolist(), **{kind: runs[:, i].tolist() for i, kind in enumerate(KINDS, 3)}},
    digits=2,
)  # fmt: skip

# %% [markdown]
# Down to a loss of about 1.4 hardly anything is looked up. Then pronouns fall, next, in most models, names before places, and the others last. Does the loss determine what a model knows? Here are two models of one size, one budget and one recipe, with other first weights and batches (recorded):

# %% evidence="same-loss"
same_size = {  # 287,968 parameters, 6.4e11 FLOPs: the loss, and the fraction of words that are right
    "seed 0": {"loss": 1.01, "name": 0.68, "place": 0.16, "quotation": 0.21, "trait": 0.20},
    "seed 1": {"loss": 1.00, "name": 0.54, "place": 1.00, "quotation": 0.11, "trait": 0.10},
}
for seed, found in same_size.items():
    print(f"{seed}: loss {found['loss']:.2f}", {kind: f"{found[kind]:.0%} right" for kind in list(found)[1:]})
one, other = same_size.values()
assert abs(one["loss"] - other["loss"]) < 0.02 and other["place"] - one["place"] > 0.5
assert all(one[kind] > other[kind] for kind in ("name", "quotation", "trait"))

# %% [markdown]
# Their losses differ by 0.01. Yet one of them knows nearly every place and the other only about one in six, although the other is better at names, quotations and traits. So the same loss can hide different skills, and part of the order in which they arrive is chance. [[same-loss]]

# %% [markdown] slide="say"
# Steps like these in large models were called *emergent abilities* ([Wei et al. 2022](https://arxiv.org/abs/2206.07682)). [Schaeffer et al. (2023)](https://arxiv.org/abs/2304.15004) showed that many of them come from the measure: a fraction of right answers jumps where the probability of the right answer grows smoothly. That is the rival explanation here as well, and it is why the figure shows nats, which can move gradually. In our models places fall steeply in nats, too. (Each point is a training of its own, so this is not yet how one model learns: that is lesson 11.)

# %% [markdown] tags=["note"]
# **Say.** Labs plan trainings that they can afford only once. So they fit a curve to many small runs and read it far to the right. How far may one trust it? Here we know the truth, so we can look.
#
# **Draw.** Points that fall and flatten, and three curves through them that end at three different heights.
#
# **Ask.** What would have to be true for the fitted E to be the entropy of the language? (The formula is exact, and the recipe is the best at every size.)
#
# **Usual answers.**
# - *E is the entropy of the language* (from the room): It is a parameter of a curve, far from all points.
# - *All just below the lowest loss* (`all just below the lowest loss`): The fit continues far to the right of all points.
# - *More seeds make it certain* (from the room): They reduce chance. They cannot say that the formula is wrong.
#
# **Cut if short.** The shape trace.

# %% [markdown] slide="slide"
# ## 4. A law, and what it cannot know
# In many published measurements such losses follow a simple curve, a **scaling law** ([Hoffmann et al. 2022](https://arxiv.org/abs/2203.15556), section 3.3):
#
# $$L(N, D) = E + \frac{A}{N^a} + \frac{B}{D^b}$$
#
# $E$ is the **irreducible** loss: what would be left with endless parameters and endless text. Does the formula fit ours? For that we need sizes and lengths that vary independently: four of each, with three seeds (recorded by the same tool).

# %% tags=["source-hidden"] slide="skip"
MEASURED = """
7240 102400 2.5308 2.5993 2.5267
7240 204800 1.9124 1.9399 1.9248
7240 409600 1.5172 1.5419 1.5707
7240 819200 1.4145 1.3829 1.4015
17040 102400 1.9536 1.9282 1.9283
17040 204800 1.4844 1.4970 1.4797
17040 409600 1.3412 1.3508 1.3453
17040 819200 1.3100 1.3075 1.3022
47392 102400 1.5758 1.5837 1.5827
47392 204800 1.3616 1.3697 1.3627
47392 409600 1.3129 1.2723 1.2990
47392 819200 1.1114 1.0360 1.0616
141824 102400 1.4248 1.4101 1.4038
141824 204800 1.3229 1.2837 1.2733
141824 409600 1.1152 1.0301 1.0640
141824 819200 0.8814 0.8295 0.7972
"""
# a row for each size and length: N, D, and the loss of each seed
grid = torch.tensor([[float(x) for x in line.split()] for line in MEASURED.strip().split("\n")], dtype=torch.float64)

# %%
units = torch.tensor([1e4, 1e5], dtype=torch.float64)  # N is counted in 10,000, D in 100,000
mean = grid[:, 2:].mean(1)
points = torch.cat([grid[:, :2] / units, mean[:, None]], 1)  # (16, 3)
print(f"16 runs: losses from {mean.max():.2f} down to {mean.min():.2f} nats per token, floor {floor:.2f}")

# %% [markdown]
# If the exponents $a$ and $b$ are given, the formula is linear in $E$, $A$ and $B$, so `lstsq` finds those with the smallest squared error. (With R runs:)


# %%
def solve(runs, a, b):
    N, D, loss = runs.T
    columns = torch.stack([torch.ones_like(N), N**-a, D**-b], dim=1)  # (R, 3)
    constants = torch.linalg.lstsq(columns, loss).solution  # (3)
    missed_by = columns @ constants - loss  # (R)
    return constants, missed_by


# %% slide="skip"
from tinylm_classroom import trace

# %%
trace(solve, points, 0.5, 0.6, sizes={"R": 16})

# %% [markdown]
# Then try all pairs of exponents, and keep the best.


# %%
EXPONENTS = [i / 10 for i in range(1, 13)]


# ESSENTIAL
def fit(runs):
    """E, A, B, a and b with the smallest mean squared error. runs: N in 10,000, D in 100,000, and the loss."""
    best = {"error": float("inf")}
    for a in EXPONENTS:
        for b in EXPONENTS:
            constants, missed_by = solve(runs, a, b)
            error = missed_by.square().mean().item()
            if error < best["error"]:
                E, A, B = constants.tolist()
                best = {"E": E, "A": A, "B": B, "a": a, "b": b, "error": error}
    return best
    # END


# %% slide="skip"
def predicted(law, N, D):
    return law["E"] + law["A"] * N ** -law["a"] + law["B"] * D ** -law["b"]


# %%
law = fit(points)
print("  ".join(f"{name} {law[name]:.2f}" for name in ("E", "A", "a", "B", "b")))

# %% tags=["source-hidden"] slide="subslide"
lengths = grid[:, 1].unique()
along = torch.logspace(3.8, 5.7, 60, dtype=torch.float64)
fig, ax = plt.subplots(figsize=(9.4, 5), layout="constrained")
for D, mark, color in zip(lengths, "osD^", figures.SERIES, strict=False):
    same = grid[:, 1] == D
    ax.plot(grid[same, 0], mean[same], mark, color=color, markersize=10)
    ax.plot(along, predicted(law, along / 1e4, D / 1e5), linestyle="-", linewidth=2, color=color)
    ax.text(along[-1] * 1.06, predicted(law, along[-1] / 1e4, D / 1e5), f"{D:,.0f} tokens", color=color, va="center")
ax.axhline(floor, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
ax.text(6_400, floor + 0.02, "floor", color=figures.QUIET, va="bottom")
ax.set(title="The law and our measurements", xlabel="parameters", ylabel="loss (nats per token)")
ax.set(xscale="log", xlim=(6_000, 1_900_000), ylim=(0.6, 2.7))
ax.set_xticks([1e4, 1e5], ["10,000", "100,000"])
ax.minorticks_off()
figures.display(
    fig,
    alt="Sixteen points and four fitted curves, one for each number of tokens. The curves follow the points only roughly; the highest point, at the left, lies far above its curve.",
    caption="Points are measured, curves are the fitted law. The law is smooth, but our losses wait near 1.3 and then fall again, when more kinds of words are looked up (section 3).",
    table={"parameters": [f"{n:,.0f}" for n in grid[:, 0].tolist()], "tokens": [f"{d:,.0f}" for d in grid[:, 1].tolist()], "loss": mean.tolist(), "law": predicted(law, *points[:, :2].T).tolist()},
)  # fmt: skip

# %% [markdown]
# How good is the fit? A fair test is a run that the fit has not seen. So fit again without it, and predict it. And how well is $E$ known? Fit to each seed alone, and without one run, or without all runs of one size.

# %% slide="skip"
one_seed = [torch.cat([points[:, :2], grid[:, k, None]], 1) for k in (2, 3, 4)]
one_run_less = [points[torch.arange(16) != i] for i in range(16)]
one_size_less = [points[grid[:, 0] != N] for N in grid[:, 0].unique()]
refits = {"one seed": one_seed, "one run less": one_run_less, "one size less": one_size_less}
refits = {name: [fit(runs) for runs in tries] for name, tries in refits.items()}

# %% evidence="law-misses"
unseen = [predicted(refit, N, D) - loss for refit, (N, D, loss) in zip(refits["one run less"], points, strict=True)]
typical_miss = torch.stack(unseen).square().mean() ** 0.5
seed_spread = grid[:, 2:].var(1).mean() ** 0.5
print(f"a run that the fit has not seen is typically missed by {typical_miss:.2f} nats")
print(f"the seeds of a run are typically {seed_spread:.2f} from their mean")
assert law["error"] ** 0.5 > 3 * seed_spread and typical_miss > 3 * seed_spread

# %% tags=["source-hidden"]
predict(
    f"The grid's losses end at {mean.min():.2f}. Between which values do the refits' E lie?",
    key=lambda: "some are below 0" if min(refit["E"] for some in refits.values() for refit in some) < -0.1 else "?",
    choices={
        "all just below the lowest loss": "Nothing was measured near E. The fit has to continue far to the right of all points.",
        "all between 0 and the lowest loss": "A loss is never below 0, but least squares does not know that.",
        "some are below 0": "",
    },
    because="E is where the curve would end, far from all points: leaving out a single run can move it by more than 1 nat.",
)

# %% evidence="fitted-floor"
print(f"E of the fit {law['E']:.2f}, the floor {floor:.2f} nats per token")
for name, some in refits.items():
    E = [refit["E"] for refit in some]
    print(f"{name:<13}: E from {min(E):.2f} to {max(E):.2f}")
fitted_floors = [refit["E"] for some in refits.values() for refit in some]
assert law["E"] < floor - 0.1 and min(fitted_floors) < 0 and max(fitted_floors) > floor

# %% [markdown]
# And outside its range? The shipped model is larger than all of the grid, and it has read more (with another recipe and three layers, so this is only a rough test):

# %%
recipe = shipped.extra["train"]
N, D = count_parameters(model.config).total, recipe["total_steps"] * recipe["batch_size"] * recipe["seq_len"]
print(f"{N / grid[:, 0].max():.1f} times the grid's largest N, {D / grid[:, 1].max():.0f} times its longest D")
print(
    f"the law predicts {predicted(law, N / 1e4, D / 1e5):.2f}; the model has {shipped_loss:.2f}, the floor is {floor:.2f}"
)

# %% [markdown]
# Even inside its range the law misses by several times what chance does. [[law-misses]] Outside, it promises a loss below the floor, which no model can have. Some refits put $E$ below 0, and one above the loss of the shipped model. [[fitted-floor]] Error bars over seeds do not show this, because the error is in the formula: it has no plateaus.

# %% [markdown] slide="say"
# Our grid has four sizes, one depth, one recipe and one small language. Published grids are far larger, but they, too, end far below the sizes for which they are used. And for English nobody knows the floor, so a fitted $E$ cannot be compared with anything.

# %% [markdown] tags=["note"]
# **Say.** The most quoted number of this field is 20 tokens for each parameter. Where does it come from, and what does it not say?
#
# **Draw.** The table with two columns, training and use. Training costs 6 FLOPs for each parameter and token, use costs 2 for each parameter and token written. Which of the two is larger for a model that millions use?
#
# **Ask.** Llama 3 8B read far more than 20 tokens for each parameter. Were its makers wrong? (No. They wanted a small model that is cheap to use.)
#
# **Usual answers.**
# - *A model needs 20 tokens for each parameter* (from the room): It may read more or fewer. 20 is where the training compute was best spent in those experiments.
# - *20 is a law of nature* (from the room): Our valleys do not agree on one number, and neither do the published fits.
#
# **Cut if short.** The table of three fits; say that they differ by more than a factor of four at Chinchilla's budget.

# %% [markdown] slide="slide"
# ## 5. What Chinchilla says
# Now real models. Over 400 of them, from 70 million to 16 billion parameters, were trained to find where the valleys are ([Hoffmann et al. 2022](https://arxiv.org/abs/2203.15556)). One of the three ways was the formula of section 4. Here are its valleys, with the constants of a later and more careful fit to the runs that could be read from a figure of that paper ([Besiroglu et al. 2024](https://arxiv.org/abs/2404.10102)):


# %%
def valley(budget, E=1.8172, A=482.01, B=2085.43, a=0.3478, b=0.3658):
    """Sizes, and the loss of each when it uses up the budget; then the best size."""
    N = torch.logspace(6.5, 12.7, 20_000, dtype=torch.float64)
    D = budget / (6 * N)
    loss = E + A / N**a + B / D**b
    return N, loss, N[loss.argmin()].item()


# %% slide="skip"
from tinylm_classroom import control

# %% slide="skip" evidence="formula-ratios"
large_budgets = [1e17, 1e19, 1e21, 1e23, 1e25]
best_sizes = [valley(budget)[2] for budget in large_budgets]
ratios = [budget / 6 / N**2 for budget, N in zip(large_budgets, best_sizes, strict=True)]
assert all(15 < ratio < 30 for ratio in ratios) and ratios == sorted(ratios, reverse=True)

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10, 5.2), layout="constrained")
for exponent, lowest, color in zip((17, 19, 21, 23, 25), best_sizes, figures.SERIES, strict=False):
    N, loss, _ = valley(10.0**exponent)
    near = (loss < loss.min() + 0.35) & ((N / lowest).log().abs() < math.log(12))
    ax.plot(N[near], loss[near], linestyle="-", linewidth=3, color=color)
    ax.plot(lowest, loss.min(), "*", markersize=22, color="#b34700", zorder=5)
    ax.text(N[near][-1] * 1.15, loss[near][-1], f"$10^{{{exponent}}}$ FLOPs", color=color, va="center")
ax.set(title="The formula's valleys", xlabel="billion parameters", ylabel="predicted loss (nats per token)")
ax.set(xscale="log", xlim=(3e6, 6e13), ylim=(1.7, 4.8))
ax.set_xticks([1e7, 1e8, 1e9, 1e10, 1e11, 1e12], ["0.01", "0.1", "1", "10", "100", "1,000"])
ax.minorticks_off()
figures.display(
    fig,
    alt="Five smooth valleys, one for each budget. Each is lower and further to the right than the one before, and a star marks its lowest point.",
    caption="The same picture as in section 2, from a formula and for budgets up to a hundred million times as large. These are predictions; the valleys that Hoffmann et al. 2022 measured had budgets from 6e18 to 3e21 FLOPs.",
    table={"FLOPs": [f"{budget:.0e}" for budget in large_budgets], "best size": [f"{N:.1e}" for N in best_sizes], "tokens per parameter": ratios},
    digits=2,
)  # fmt: skip

# %% [markdown]
# At every budget the formula's best ratio is near 20 tokens for each parameter, and it falls slowly with the budget. [[formula-ratios]] So its rule is: **let N and D grow alike**, each with about the root of C. `control` lets you move along the valleys, and away from the bottom:


# %%
def spend(exponent=21, tokens_per_parameter=20):
    budget = 10.0**exponent
    N = (budget / (6 * tokens_per_parameter)) ** 0.5
    _, loss, lowest = valley(budget)
    D = tokens_per_parameter * N
    here = 1.8172 + 482.01 / N**0.3478 + 2085.43 / D**0.3658
    print(f"{N / 1e9:.3g} billion parameters, {D / 1e9:.3g} billion tokens: predicted loss {here:.3f}")
    print(f"the best size has {lowest / 1e9:.3g} billion parameters: predicted loss {loss.min():.3f}")


# %%
control(spend, exponent=(17, 25), tokens_per_parameter=[1, 2, 5, 20, 100, 300, 2000])

# %% [markdown] slide="subslide"
# What did people do?

# %%
published = {  # parameters, training tokens, source
    "GPT-3": (175e9, 300e9, "Brown et al. 2020"),
    "Chinchilla": (70e9, 1.4e12, "Hoffmann et al. 2022"),
    "Llama 2 7B": (6.74e9, 2e12, "Touvron et al. 2023"),
    "Llama 3 8B": (8e9, 15e12, "Grattafiori et al. 2024"),
}
for name, (N, D, source) in published.items():
    print(f"{name:<11} {6 * N * D:.1e} FLOPs, {D / N:>7,.1f} tokens per parameter ({source})")

# %% [markdown]
# Three things are often said wrongly about the 20:
#
# - **It is not a law of nature.** It was the best use of *training* compute for those models and that text. A small model that is used often is cheaper to run, so it pays to train it longer: look at the two Llamas.
# - **It is not "a model needs 20 tokens per parameter".** Past 20, more tokens still help; the same extra compute would help more if a part of it bought parameters.
# - **At Chinchilla's budget the published numbers of the formula do not give 20.** They were rounded for print, and fitted again later. Which best size does each version give?

# %% evidence="published-fits"
fits = {  # E, A, B, a, b
    "Hoffmann, as printed": (1.69, 406.4, 410.7, 0.34, 0.28),
    "Hoffmann, before rounding": (1.6934, 406.4, 410.7, 0.3392, 0.2849),
    "Besiroglu, fitted again": (1.8172, 482.01, 2085.43, 0.3478, 0.3658),
}
large, little = [], []  # tokens per parameter
gopher = 5.76e23  # Gopher's budget, for which Chinchilla was planned (Hoffmann et al. 2022)
for source, constants in fits.items():
    large.append(gopher / 6 / valley(gopher, *constants)[2] ** 2)
    little.append(1e18 / 6 / valley(1e18, *constants)[2] ** 2)
    print(f"{source:<26} {large[-1]:.0f} tokens per parameter; with 1e18 FLOPs {little[-1]:.0f}")
assert max(large) > 4 * min(large) and max(little) < 1.5 * min(little)

# %% [markdown]
# At a small budget the three nearly agree, so it is the extrapolation that differs. [[published-fits]] An exponent acts on a huge number: rounding two of them to two decimals moves the answer from 59 to 93. An optimizer that stopped too early accounts for much of the rest ([Besiroglu et al. 2024](https://arxiv.org/abs/2404.10102)).

# %% [markdown] slide="say"
# Before that, N was said to grow as $C^{0.73}$, much faster than D ([Kaplan et al. 2020](https://arxiv.org/abs/2001.08361)). Hoffmann et al. suspected a learning-rate schedule made for more tokens. [Porian et al. (2024)](https://arxiv.org/abs/2406.19146) could explain the difference without it: by the last layer's compute, which was not counted, too long a warm-up, and an optimizer not tuned for each size. It is our second recipe of section 2 once more: a scaling law is a law of a recipe, too.

# %% [markdown] tags=["note"]
# **Say.** One thing is changed: sizes are compared after equal numbers of tokens. It looks fair, and it is the comparison that most people make first.
#
# **Draw.** The four curves of section 4, and a vertical line of equal tokens across the valleys of section 2.
#
# **Ask.** What should one hold equal? (What is scarce: compute, time, text, or the cost of using the model. And say which.)
#
# **Usual answers.**
# - *A middle one* (`a middle one`): At equal compute it can be. Here all read the same text.
# - *The smallest, it costs least* (`the smallest, for every number of tokens`): The cost is what this comparison leaves out.
#
# **Cut if short.** All of it; say the last sentence.

# %% [markdown] slide="slide" plan=80
# ## 6. Break it: equal tokens
# One thing changes: a colleague compares the four sizes of the grid in section 4 after equal numbers of *tokens*, and not at equal *compute*.

# %% tags=["source-hidden"]
grid_sizes = grid[:, 0].unique()
best_at = {mean[grid[:, 1] == D].argmin().item() for D in grid[:, 1].unique()}
predict(
    "Which of the four sizes does the colleague call best?",
    key=lambda: "the largest, for every number of tokens" if best_at == {len(grid_sizes) - 1} else "?",
    choices={
        "the smallest, for every number of tokens": "It costs least. But the cost is what this comparison leaves out.",
        "a middle one": "At equal compute it can be. Here each size reads the same text.",
        "the largest, for every number of tokens": "",
    },
    because="In this grid more parameters never hurt, and nobody looks at what they cost.",
)

# %% evidence="equal-compute"
flops = 6 * grid[:, 0] * grid[:, 1]
twins = [i for i in range(len(grid)) if 8e10 < flops[i] < 9e10]
for D in grid[:, 1].unique():
    same = (grid[:, 1] == D).nonzero()[:, 0]
    best = same[mean[same].argmin()]
    print(
        f"{D:>9,.0f} tokens: {grid[best, 0]:,.0f} parameters, at {flops[best] / flops[same].min():.0f} times the smallest's FLOPs"
    )
for i in twins:
    print(f"{flops[i]:.1e} FLOPs: {grid[i, 0]:>9,.0f} parameters read {grid[i, 1]:>9,.0f} tokens, loss {mean[i]:.2f}")
assert grid[twins[0], 2:].max() < grid[twins[1], 2:].min()  # the smaller one, in all seeds

# %% [markdown]
# There is no error message, and each line is true. But the winner at 102,400 tokens loses to a model of an eighth of its size that spent the same compute on more text. [[equal-compute]] If you compare sizes, say what you held equal.

# %% [markdown] tags=["note"]
# **Say.** A batch can be divided among many machines. Each computes the gradient of its part, and then all of them need the mean. It sounds trivial, and it goes wrong as soon as the parts are unequal.
#
# **Draw.** Two boxes with the same weights and different texts, and an arrow in both directions between them: the gradients are averaged. Then, for shards, the same two boxes with half of the weights each.
#
# **Ask.** One process has 12 texts and the other has 4. By how much is a text in the small part over-weighted with the plain mean? (Three times.)
#
# **Usual answers.**
# - *The mean of the means* (`every process has the same weight`): Weigh each by its number of targets.
# - *Add the gradients up* (`the gradients are added up`): Then more processes would make larger steps.
# - *Divide by the number of processes as well* (`it is divided by the processes as well`): The weights already add up to 1.
#
# **Cut if short.** The part from torchrun on; say that two processes reach the same losses as one.

# %% [markdown] slide="slide" plan=80
# ## 7. Many processes
# Large budgets need many machines. In **data-parallel** training every process has a copy of the model and a part of the batch. Then all of them average their gradients, an **all-reduce**, and make the same update. By hand, with two processes in one:

# %% slide="skip"
from torch.nn.functional import cross_entropy


def gradient(of_model: TransformerLM, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """All gradients of the mean loss, as one long vector."""
    loss = cross_entropy(of_model(x).flatten(0, 1), y.flatten())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(of_model.parameters()))])


pupil = small_models[8, 0]
x, y = next(RandomWindows(ids, 64, 128, seed=99, starts=starts))  # (64, 128)

# %% evidence="same-gradient"
first_half, second_half = gradient(pupil, x[:8], y[:8]), gradient(pupil, x[8:16], y[8:16])
averaged = (first_half + second_half) / 2
torch.testing.assert_close(averaged, gradient(pupil, x[:16], y[:16]), atol=1e-5, rtol=1e-4)
print("the mean of the two gradients is the gradient of all 16 texts")

# %% evidence="unequal-parts"
uneven = (gradient(pupil, x[:12], y[:12]) + gradient(pupil, x[12:16], y[12:16])) / 2
off = (uneven - averaged).norm() / averaged.norm()
print(f"12 and 4 texts instead of 8 and 8: the plain mean is off by {off:.0%}")
assert off > 0.1

# %% [markdown]
# With equal parts the mean of the gradients is the gradient of the whole batch. [[same-gradient]] With unequal parts it is not: a text of the small part has three times the weight of one in the large part. [[unequal-parts]] To have equally many texts is enough only if they have equally many targets, because the loss is a mean over targets. Otherwise each gradient must be weighted by its number of targets.
#
# ### Your turn


# %% tags=["exercise"] name="all_reduce_mean" minutes=12 difficulty=2 plan=80
def all_reduce_mean(gradients, n_targets):
    """The gradients of the mean loss over the targets of all processes.

    gradients: for each process a list of tensors, of the same shapes in each, the gradients of its own mean loss.
    n_targets: for each process over how many targets its loss was averaged. It may be 0, but not for all; the gradients
    are 0 there. Returns a list of tensors, in the same order and dtype; the input stays as it is.
    """
    # SOLUTION
    total = sum(n_targets)
    weights = [n / total for n in n_targets]
    return [sum(w * g for w, g in zip(weights, of_all, strict=True)) for of_all in zip(*gradients, strict=True)]
    # END


# %% tags=["check"]
if check("all_reduce_mean", all_reduce_mean).passed:
    keep("all_reduce_mean", all_reduce_mean)

# %%
hint("all_reduce_mean")

# %% [markdown] tags=["solution"]
# Each process's gradient times its number of targets is the gradient of a sum. Sums add up, and one division by all targets makes a mean. Common mistakes: the plain mean, weights without the division, and an `+=` that writes into the first process's tensors.

# %% [markdown] slide="subslide"
# ### Two real processes
# **torchrun** starts the processes and gives each its number, its **rank**. There are two strategies. `ddp` (distributed data parallel) is what we did by hand. In `fsdp` (fully sharded data parallel) each process *keeps* only a part, a **shard**, of every parameter, its gradient and its moments. A block's parameters are gathered when it computes, and dropped again ([Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054), [Zhao et al. 2023](https://arxiv.org/abs/2304.11277)).

# %% [markdown] slide="say"
# Every process runs the same file. `team` knows how many there are. A single process accumulates both pieces of a batch, and of two each takes one. -100 marks targets that the loss leaves out (here none), and `to_local` gives a process's own shard.

# %%
SCRIPT = """
import torch
from tinylm_lib import TrainConfig, TransformerLM, preset, train
from tinylm_lib.training import Replicas, Shards, build_optimizer, join

# ESSENTIAL
def losses(team):
    torch.manual_seed(15)
    model = TransformerLM(preset("modern", vocab_size=90, d_model=16, n_layers=2, n_heads=2))
    pieces = [(ids[:, :-1], ids[:, 1:]) for ids in torch.randint(90, (2, 4, 17))]
    recipe = TrainConfig(total_steps=5, micro_steps=2 // team.size, precision="fp32", warmup_steps=1)
    wrapped = team.wrap(model)
    steps = train(wrapped, build_optimizer(model, recipe), team.part(pieces * 5, -100), recipe, team=team)
    found = [step.loss.item() for step in steps]
    own = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    return [sum(p.numel() for p in own), *found]
# END

if __name__ == "__main__":
    with join("ddp", torch.device("cpu")) as me:
        for name, team in {"ddp": Replicas("cpu"), "fsdp": Shards("cpu")}.items():
            found = losses(team)
            if me.first:
                print(name, *found)
"""

# %% slide="skip"
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tinylm_lib.training import ALONE

# %% slide="skip"
folder = tempfile.TemporaryDirectory()
_ = Path(folder.name, "in_many.py").write_text(SCRIPT)
sys.path.insert(0, folder.name)
curves = {"one process": importlib.import_module("in_many").losses(ALONE)}

# %%
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
command = [*torchrun, f"{folder.name}/in_many.py"]
done = subprocess.run(command, env=one_thread, check=True, capture_output=True, text=True, timeout=240)

# %% slide="skip"
for line in done.stdout.splitlines():
    name, *numbers = line.split()
    curves[f"two, {name}"] = [float(number) for number in numbers]

# %% evidence="same-losses"
for name, (kept, *step_losses) in curves.items():
    print(f"{name:<12} keeps {kept:>6,.0f} parameters; losses" + "".join(f"{loss:6.2f}" for loss in step_losses))
    torch.testing.assert_close(step_losses, curves["one process"][1:], rtol=1e-4, atol=0)
assert 2 * curves["two, fsdp"][0] == curves["one process"][0]

# %% [markdown]
# The losses are the same to 4 digits (`rtol`, the allowed relative difference, is 1e-4): sums in another order are rounded differently in the last digits. If the whole batch stays the same, more processes change how long a training takes, and the losses differ only by rounding, which can add up in a long run. With `fsdp` each of the two keeps half of the parameters. [[same-losses]] For a run of your own: `torchrun --nproc-per-node 2 -m tinylm_lib train --strategy fsdp`.

# %% [markdown] tags=["note"]
# **Say.** Now the largest trainings, on the back of an envelope. Three lines of arithmetic are enough to see whether a plan is possible, and not enough to carry it out.
#
# **Draw.** Two boxes: the bytes that must fit, the FLOPs that must be computed. Below them a list of what the envelope leaves out.
#
# **Ask.** A GPU has 80 GB and the trillion needs 16 TB. So a few hundred GPUs hold it. Why are they not enough? (They would train for decades.)
#
# **Usual answers.**
# - *Twice the GPUs, half the time* (from the room): Only while the fraction of the peak stays the same. Communication grows.
# - *One text for each GPU is little* (from the room): Compute how many tokens that makes in all.
#
# **Cut if short.** The trillion.

# %% [markdown] slide="slide" plan=80
# ## 8. Seven billion, a trillion
# Now the large ones, on paper: a **7B** with the shape of Llama 2, and a **1T** (a trillion) of 128 layers that we make up. Training keeps 16 bytes per parameter (lesson 10), and activations on top. No training reaches a GPU's peak; we plan with 40 % of it, because Llama 3's makers report 38 to 43 % (Grattafiori et al. 2024).

# %% slide="skip"
from tinylm_lib.cost import training_bytes

seven = configs["Llama 2 7B"]
trillion = preset("llama", "2-7b", d_model=25_600, n_layers=128, n_heads=200)
PEAK, FRACTION, GPU_BYTES = 989e12, 0.4, 80e9  # H100, bf16 without sparsity, and its memory: NVIDIA's data sheet, 2023


# %%
def plan(config, tokens: float, n_gpus: int, peak: float = PEAK) -> float:
    """Days of training, at 40 % of the peak."""
    T = config.max_seq_len
    total_flops = training_flops(config, 1, T) / T * tokens
    return total_flops / (n_gpus * peak * FRACTION) / 86_400  # seconds of a day


# %%
for name, config, n_gpus in (("7B", seven, 256), ("1T", trillion, 16_384)):
    N, need = count_parameters(config).total, training_bytes(config)
    print(
        f"{name}: {N / 1e9:,.1f} billion parameters; to train {need / 1e9:,.0f} GB, which fills {need / GPU_BYTES:,.1f} GPUs"
    )
    print(f"    {20 * N / 1e12:.2f} trillion tokens on {n_gpus:,} GPUs: {plan(config, 20 * N, n_gpus):,.1f} days")
    print(
        f"    a text of {config.max_seq_len:,} tokens for each GPU: {n_gpus * config.max_seq_len / 1e6:,.1f} million tokens for each update"
    )

# %% [markdown]
# What is wrong with the plan of the trillion? Look at its last line: 67 million tokens for each update. The largest Llama 3 used up to 16 million (Grattafiori et al. 2024), and beyond some size a larger batch hardly helps (section 9). So the GPUs cannot all work on different texts. Instead, several must share each matrix (**tensor parallelism**) or each have some of the layers (**pipeline parallelism**), and then the time to send numbers between them counts as well as FLOPs.

# %% [markdown] slide="subslide"
# How large must each GPU's part be, so that it does not wait for the gradients of the others? An all-reduce (section 7) sends and receives nearly every gradient twice, 2 bytes each. We assume 50 GB per second:

# %% evidence="break-even"
N = count_parameters(seven).total
for tokens in (1_000, 10_000):
    computing, sending = 6 * N * tokens / (PEAK * FRACTION), 2 * 2 * N / 50e9
    print(f"{tokens:>6,} tokens on each GPU: {computing:.1f} s to compute, {sending:.1f} s to send")
    assert (computing < sending) == (tokens == 1_000)
equal_at = 4 / 50e9 * PEAK * FRACTION / 6
print(f"equal at about {round(equal_at, -2):,.0f} tokens")

# %% [markdown]
# N is in both times, so it cancels: whatever the size, they are equal at about 5,300 tokens on each GPU. With fewer, a GPU waits longer than it computes, unless both happen at once. [[break-even]]

# %% [markdown] slide="subslide"
# Does at least the arithmetic agree with something real? Llama 2's makers report their GPU hours, on A100s with 312e12 FLOPs per second and for 2 trillion tokens:

# %% evidence="gpu-hours"
hours, reported = plan(seven, 2e12, 1, peak=312e12) * 24, 184_320
print(f"planned {hours:,.0f} GPU hours, reported {reported:,} (Touvron et al. 2023)")
assert 0.8 < hours / reported < 1.25
print(f"so they reached {FRACTION * hours / reported:.1%} of the peak")

# %% [markdown]
# For this run a few lines of arithmetic come within about a tenth. [[gpu-hours]] But they contain a guess, the fraction of the peak. Lesson 14 lists published ones from a fifth to nearly three quarters, so the plan of another run can differ by a factor of two.

# %% [markdown] tags=["note"]
# **Say.** Three questions for people who train: how large should a batch be, what fills the memory, and what does each block do for the result?
#
# **Draw.** Many short arrows around one long arrow: gradients of single texts around their mean.
#
# **Ask.** Before the table of blocks: without block 0, which kinds of words go wrong?
#
# **Usual answers.**
# - *About a quarter* (`about a quarter`): The noise of a mean falls with the root of how many are averaged.
# - *Everything goes wrong without block 0, because the later blocks build on it* (from the room): Places hardly suffer.
#
# **Cut if short.** All of it; students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 9. For engineers
# ### How large should a batch be?
# The gradient of a batch is a mean over texts, so a larger batch has less noise. By how much? We compare the gradients of small batches with the one of 64 texts, in a small model of section 2.

# %%
whole, noise = gradient(pupil, x, y), {}
for size in (1, 4, 16):
    batches_of = [gradient(pupil, x[i : i + size], y[i : i + size]) for i in range(0, 64, size)]
    noise[size] = torch.stack([(part - whole).norm() / whole.norm() for part in batches_of]).mean().item()

# %% tags=["source-hidden"]
predict(
    "A batch of 4 texts instead of 1. What is left of the gradient's distance from the one of all 64?",
    key=lambda: "about half" if 0.4 < noise[4] / noise[1] < 0.6 else "?",
    choices={
        "about a quarter": "The noise of a mean falls with the root of how many are averaged (lesson 02).",
        "about half": "",
        "about the same": "Independent noise cancels in a mean.",
    },
    because="The noise of a mean of n falls with the root of n.",
)

# %% evidence="noise-halves"
print("distance, in lengths of the gradient of all 64:", {size: round(far, 1) for size, far in noise.items()})
assert 0.4 < noise[4] / noise[1] < 0.6

# %% [markdown]
# Four times as many texts halve the noise (from 4 to 16 it falls further, because the 16 are a part of the 64). [[noise-halves]] While the noise is longer than the gradient itself, a larger batch gives a better direction. Once it is short, twice the batch costs twice as much for nearly the same update. In between is the **critical batch size** ([McCandlish et al. 2018](https://arxiv.org/abs/1812.06162)). The mean of $n$ texts has the variance of one text divided by $n$. So it is as large as the squared gradient, the *signal*, if $n$ is the variance divided by the signal:

# %%
alone = torch.stack([gradient(pupil, x[i : i + 1], y[i : i + 1]) for i in range(64)])  # (64, parameters)
variance = alone.var(0).sum()
signal = whole.square().sum() - variance / 64  # a 64th of the variance is left in the mean of 64
print(f"noise as long as the gradient itself: at about {round((variance / signal).item(), -1):.0f} texts")

# %% [markdown]
# This holds for one moment of one training; the number grows as the loss falls (McCandlish et al. 2018).

# %% [markdown] slide="subslide"
# ### What fills the memory?
# If a batch does not fit, **accumulate** (`micro_steps`, lesson 11): only one piece's activations are kept at a time. Or keep less: with **activation recompute** (lesson 14) each block keeps its input only, and computes the rest again in the backward pass. What does it save?


# %% slide="skip"
def kept_bytes(of_model: TransformerLM, x: torch.Tensor, y: torch.Tensor) -> int:
    """What a forward pass keeps for the backward pass, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in of_model.parameters()}
    kept_for = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept_for[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = cross_entropy(of_model(x).flatten(0, 1), y.flatten())
    loss.backward()
    return sum(n_bytes for address, n_bytes in kept_for.items() if address not in weights)


# %% evidence="kept-bytes"
deep = TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, d_model=64, n_layers=8)).train()
held = {"16 texts": kept_bytes(deep, x[:16], y[:16]), "4 texts": kept_bytes(deep, x[:4], y[:4])}
deep.recompute = True
held["16 texts, recomputed"] = kept_bytes(deep, x[:16], y[:16])
for name, n_bytes in held.items():
    print(f"{name:<21} {n_bytes / 1e6:5.0f} MB kept")
assert held["16 texts, recomputed"] < held["4 texts"] / 2 < held["16 texts"] / 7

# %% [markdown]
# A quarter of the texts keeps a quarter of the bytes. Recompute keeps far less still, for a second forward pass: about a third more FLOPs, since a forward pass is a third of an update ([Chen et al. 2016](https://arxiv.org/abs/1604.06174)). [[kept-bytes]] In the backward pass the activations of one block at a time come on top.

# %% [markdown] slide="subslide"
# ### What does more depth buy?
# A common picture is a ladder: the first layers learn surfaces, the next ones phrases, then discourse, the last ones meaning. In BERT a rough ladder was measured with **probes**, small classifiers that are trained on the output of each layer: they show in which layer something can be *read* ([Tenney et al. 2019](https://arxiv.org/abs/1905.05950)). We ask another question of the shipped model: what does it *use*? We take out one block at a time, so that it adds nothing to the stream, and count which fraction of each kind of word is still right.

# %% rows=["S4-4"] evidence="blocks-removed"
accuracies = []
print(f"{'without':<9}" + "".join(f"{kind:>11}" for kind in KINDS))
for i, block in enumerate([None, *model.blocks], start=-1):
    hook = block and block.register_forward_hook(lambda block, given, made: given[0])
    right = gaps(model, tokenizer, held_out[:40])
    print(f"{f'block {i}' if block else 'none':<9}" + "".join(f"{right[kind].right:>11.0%}" for kind in KINDS))
    accuracies.append([right[kind].right for kind in KINDS])
    if hook:
        hook.remove()
fallen = torch.tensor(accuracies[0]) - torch.tensor(accuracies[1:])  # (3 blocks, 6 kinds)
assert ((fallen > 0.3).sum(1) >= 2).all()  # each block matters for two kinds or more
assert ((fallen > 0.2).sum(0) >= 2).sum() >= 4  # four kinds or more use two blocks or more

# %% [markdown]
# Each block matters for at least two kinds of words, and most kinds use more than one block; two other sets of stories gave the same pattern. [[blocks-removed]] So the work is not divided as in a ladder, with one kind for each block. This does not contradict the probes: what can be read from a layer and what the model uses are different questions, and our model is far smaller than BERT. Nor does it show what each block computes, since the later blocks never saw such a stream in training.

# %% [markdown] tags=["note"]
# **Say.** A budget has two sides, and a curve that fits is not a law of nature. And this was the last lesson: what you built is complete.
#
# **Draw.** The valleys of section 2, from memory.
#
# **Ask.** You get a hundred times the compute for your own project. What do you train first? (Small models with several recipes, to find the valley.)
#
# **Usual answers.**
# - *One model as large as possible* (from the room): Where is the bottom of your valley? You do not know before you have looked.
#
# **Cut if short.** The ten questions; students take them home.

# %% [markdown] slide="slide"
# ## What you have now
# - At full text length, training takes a little more than 6 N D FLOPs in the three models of our table, and in short texts a little less. [[six-n-d]]
# - At equal compute, the smaller of two models won [[smaller-wins]]. In the recorded experiment each budget had a best size, which grew with the budget, and so did its number of tokens. [[valleys]] With another recipe the valley was flatter. [[second-recipe]]
# - Two models with the same loss can know different things. [[same-loss]]
# - A scaling law is a curve that is fitted to measurements. Ours misses the losses, even inside the range of the grid, by several times the spread of the seeds [[law-misses]], and its irreducible loss E is not the floor. [[fitted-floor]]
# - Chinchilla's rule is to let N and D grow alike, with about 20 tokens for each parameter. [[formula-ratios]] At Chinchilla's budget the published versions of the formula give ratios that differ by more than a factor of four. [[published-fits]]
# - Compare sizes at equal compute, or say what you held equal. [[equal-compute]] Processes with unequal parts of a batch must weight their gradients [[unequal-parts]]; then they reach the same losses as one process. [[same-losses]] For Llama 2 7B a few lines of arithmetic came close to the reported GPU hours. [[gpu-hours]]
# - For engineers: four times the texts, half the noise of the gradient. [[noise-halves]] Recompute keeps far fewer bytes. [[kept-bytes]] In the shipped model most kinds of words need more than one block. [[blocks-removed]]

# %% [markdown] slide="subslide"
# ### Ten questions
# The model is now built, trained and measured. Can you answer these? If the answer does not come, go back to the lesson.
#
# | question | where |
# |---|---|
# | What does a tokenizer of bytes do with a word that it has never seen? | lesson 01 |
# | Which sizes of a linear map must agree, and which are free? | lesson 02 |
# | What is the loss if the right word gets a probability of 0.1? | lesson 03 |
# | What do RMSNorm and LayerNorm each take out of a vector? | lesson 04 |
# | What are query, key and value, and why is the score divided by a root? | lesson 05 |
# | Why does a rotation show distances between positions and not the positions themselves? | lesson 06 |
# | What would be lost without the feed-forwards, and without the plus signs? | lessons 08 and 09 |
# | Can you write down the shape after every step of a forward pass, and count the parameters? | lesson 10 |
# | Name three mistakes in training that give no error. How does each show? | lesson 11 |
# | What does a cache keep, and what does sampling choose from? | lessons 13 and 12 |

# %% [markdown] slide="skip"
# And this is what you have built:

# %% slide="skip" rows=["S4-59", "S4-60"]
from tinylm_classroom import progress

progress()

# %% [markdown] slide="subslide"
# ### What comes next
# Next, lesson 16: what the model has learned inside. Then come rewards, published models, faults, and a model of your own. Between this model and a chat assistant are a large text, fine-tuning on conversations, and training on what people prefer. The library helps with the first steps: `python -m tinylm_lib train` trains on your own text, and `load_hf` opens trained models of others. To read on:
#
# | about | to read |
# |---|---|
# | the model | Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762); Brown et al. 2020, [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165) (GPT-3) |
# | its parts | He et al. 2015, [*Delving Deep into Rectifiers*](https://arxiv.org/abs/1502.01852) (first weights); Xiong et al. 2020, [*On Layer Normalization in the Transformer Architecture*](https://arxiv.org/abs/2002.04745) |
# | scale | [*How to Scale Your Model*](https://jax-ml.github.io/scaling-book/) (Google DeepMind 2025), *The Ultra-Scale Playbook* (Hugging Face 2025), *chinchilla's wild implications* (nostalgebraist 2022) |
# | a course | [CS336, *Language Modeling from Scratch*](https://stanford-cs336.github.io/) (Stanford) |
# | code | nanoGPT, nanochat and minbpe (Karpathy), torchtitan (PyTorch) |

# %% [markdown] slide="skip"
# ## Sources
# - C = 6ND, and laws before Chinchilla: Kaplan et al. 2020, [*Scaling Laws for Neural Language Models*](https://arxiv.org/abs/2001.08361), sections 2.1 and 6.
# - Hoffmann et al. 2022, [*Training Compute-Optimal Large Language Models*](https://arxiv.org/abs/2203.15556), section 3 (three approaches) and section 2 (the schedule).
# - The numbers before rounding, and the second fit: Besiroglu et al. 2024, [*Chinchilla Scaling: A replication attempt*](https://arxiv.org/abs/2404.10102). Why Kaplan et al. found another exponent: Porian et al. 2024, [*Resolving Discrepancies in Compute-Optimal Scaling of Language Models*](https://arxiv.org/abs/2406.19146).
# - Skills: Wei et al. 2022, [*Emergent Abilities of Large Language Models*](https://arxiv.org/abs/2206.07682); Schaeffer et al. 2023, [*Are Emergent Abilities of Large Language Models a Mirage?*](https://arxiv.org/abs/2304.15004)
# - A ladder of layers: Tenney et al. 2019, [*BERT Rediscovers the Classical NLP Pipeline*](https://arxiv.org/abs/1905.05950).
# - Batch size: McCandlish et al. 2018, [*An Empirical Model of Large-Batch Training*](https://arxiv.org/abs/1812.06162).
# - Recompute: Chen et al. 2016, [*Training Deep Nets with Sublinear Memory Cost*](https://arxiv.org/abs/1604.06174), section 3.
# - Shards: Rajbhandari et al. 2020, [*ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*](https://arxiv.org/abs/1910.02054); Zhao et al. 2023, [*PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*](https://arxiv.org/abs/2304.11277).
# - GPU hours: Touvron et al. 2023, [*Llama 2: Open Foundation and Fine-Tuned Chat Models*](https://arxiv.org/abs/2307.09288), table 2.
# - Training tokens: Brown et al. 2020, [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165); Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783).
