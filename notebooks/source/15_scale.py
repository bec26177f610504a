# %% [markdown] slide="slide"
# # 15 Scale
# **What does more of everything buy?**
#
# *Needs* lessons 10, 11 and 14. *Builds* nothing new: it uses `cost.py` and `distributed.py`. *Runs* in about 30 s on two cores.
# *Teaches* in about 40 minutes, plus 20 of exercises.

# %%
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from tinylm_lib import TrainConfig, TransformerLM, evaluate, preset, storyworld, train
from tinylm_lib.classroom import check, figures, hint, keep, predict
from tinylm_lib.cost import count_parameters, training_bytes, training_flops
from tinylm_lib.data import RandomWindows, every_document
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import gaps
from tinylm_lib.text import line_end
from tinylm_lib.training import ALONE, build_optimizer

_ = torch.manual_seed(15)

# %% [markdown] slide="slide"
# ## 1. Three things to buy
# A model can have more **parameters** N. It can read more **tokens** D. Both cost **compute** C, counted in floating-point operations (FLOPs). Lesson 14: 2 forward and 4 backward for each weight that is multiplied, and for each token. So **C = 6 N D**, nearly (Kaplan et al. 2020, section 2.1; they count N without embeddings, we count all).
#
# Take care: three letters change their meaning here, because we follow the papers on scaling. Until lesson 14, C was the width of the model (`d_model`), D the width of a head and B the number of texts in a batch. In this lesson C is the compute and D the number of training tokens, and in section 3 B is a constant of a formula.
#
# Nearly, because an embedding's rows are looked up and not multiplied, and because attention's scores multiply without weights. How near is it?

# %% evidence="six-n-d"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
configs = {"shipped": model.config, "GPT-2 small": preset("gpt2"), "Llama 2 7B": preset("llama", "2-7b")}
for name, config in configs.items():
    T, N = config.max_seq_len, count_parameters(config).total
    factor, short = (training_flops(config, 1, length) / length / N for length in (T, 16))
    print(f"{name:<12} {N:>13,} parameters, C = {factor:.2f} N D; in texts of 16 tokens {short:.2f} N D")
    assert short < 6 < factor < 7

# %% [markdown]
# At full text length all three lie above 6, because attention's scores outweigh the rows that are only looked up. In short texts they lie below 6, and in very long ones far above, because the scores grow with the length. The optimizer's own products (lesson 14) are not counted. [[six-n-d]]

# %% tags=["source-hidden"]
predict(
    "We have four times the compute. A model twice as large is to use it up. How many times as many tokens may it read?",
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
# Ask who would spend everything on N, and who on D. Write the votes on the board for section 4. To cut for a short hour: the ladder in section 2, and the second half of section 5.

# %% [markdown] slide="slide"
# ## 2. A grid of small models
# What does the loss do when N or D grows? Theory does not say. We train small models and look. All read StoryWorld and have two layers; the width differs (and the widest of the grid has four heads). Each is trained more than once, from different first weights
# and on other batches: without several **seeds** nobody knows which difference is chance.

# %%
ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(2_000, seed=0)))
generator = torch.Generator().manual_seed(1_000_000)
held_out = [storyworld.story(generator) for _ in range(300)]
told = torch.tensor(tokenizer.encode("\n" + "".join(story.text + "\n" for story in held_out)))
floor = -sum(story.log_prob for story in held_out) / (len(told) - 1)
print(f"the floor: a perfect model loses {floor:.2f} nats per token on these held-out stories")


# %%
starts = (ids == line_end(tokenizer)).nonzero()[:, 0]


def small(width: int, seed: int) -> TransformerLM:
    torch.manual_seed(seed)
    sizes = {"d_model": width, "n_layers": 2, "n_heads": 2, "max_seq_len": 128, "d_ff_multiple_of": 8}
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, **sizes))


def fifty_updates(model: TransformerLM, seed: int) -> float:
    config = TrainConfig(total_steps=50, batch_size=16, seq_len=128, seed=seed, precision="fp32")
    list(train(model, build_optimizer(model, config), RandomWindows(ids, 16, 128, seed, starts=starts), config))
    return evaluate(model, every_document(told, line_end(tokenizer), 50)).nats_per_token


# %%
for width in (8, 32):
    models = [small(width, seed) for seed in range(2)]
    losses = [fifty_updates(one, seed) for seed, one in enumerate(models)]
    N = count_parameters(models[0].config).total
    print(f"width {width:>2}, {N:>6,} parameters: " + ", ".join(f"{loss:.2f}" for loss in losses))

# %% [markdown]
# More parameters, less loss, and the two seeds of a size lie much closer together than the sizes. Each model had 50 updates of 16 texts of 128 tokens. More takes longer than a lesson has, so here is a larger grid, measured once on two cores, with three seeds, ten times as many stories and the same held-out ones, by
# `python tools/scaling.py --widths 8 16 32 64 --updates 50 100 200 400`.

# %% tags=["source-hidden"]
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
rows = [[float(x) for x in line.split()] for line in MEASURED.strip().split("\n")]
grid = torch.tensor(rows, dtype=torch.float64)  # a row for each size and length: N, D, a loss for each seed

# %%
sizes, lengths = grid[:, 0].unique(), grid[:, 1].unique()
n_seeds = grid.shape[1] - 2
mean = grid[:, 2:].mean(1)
print(f"{len(sizes)} sizes, {len(lengths)} lengths, {n_seeds} seeds")
print(f"from {mean.max():.2f} down to {mean.min():.2f} nats per token, floor {floor:.2f}")

# %% tags=["source-hidden"]
with figures.axes("More parameters, more tokens, less loss", "parameters N", "nats above the floor") as (figure, ax):
    for d, dash, color in zip(lengths.tolist(), figures.DASHES, figures.SERIES, strict=False):
        found = grid[grid[:, 1] == d]
        found = found[found[:, 0].argsort()]
        above = found[:, 2:] - floor
        ax.fill_between(found[:, 0], above.amin(1), above.amax(1), color=color, alpha=0.18, linewidth=0)
        ax.plot(found[:, 0], above.mean(1), linestyle=dash, marker="o", color=color)
        place = "bottom" if d == lengths[0] else "center"
        ax.text(found[-1, 0] * 1.06, above.mean(1)[-1], f"{d:,.0f} tokens", va=place, color=color)
    ax.set(xscale="log", yscale="log", xlim=(6_000, 480_000))
    ax.set_xticks([1e4, 1e5], ["10,000", "100,000"])
    ax.set_yticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
    ax.minorticks_off()
figures.display(
    figure,
    alt="Line chart, both axes logarithmic. Four lines, one for each number of tokens, fall with the parameters; more tokens, lower line.",
    caption="Mean and range of the seeds, a band often too narrow to see. Every step to the right or to a lower line helps; the lines are not straight.",
    table={
        "parameters": [f"{n:,.0f}" for n in grid[:, 0].tolist()],
        "tokens": [f"{d:,.0f}" for d in grid[:, 1].tolist()],
        "loss": mean.tolist(),
    },
)

# %% [markdown]
# In many published measurements such lines are nearly straight on logarithmic axes: that is what "scaling law" means. Ours bend: several runs end near 0.65 above the floor, and larger or longer ones fall again. What can a model not do there? Our last one, of width 32, is on its way there. StoryWorld knows for each word what an earlier sentence tells:

# %%
kinds = ("pronoun", "name", "object", "place", "quotation", "trait")
known = gaps(models[-1], tokenizer, held_out[:40])
print(f"{losses[-1] - floor:.1f} nats above the floor; the right word is its first choice")
print("more than 1 time in 2:", [kind for kind in kinds if known[kind].right > 1 / 2])
print("less than 1 time in 8:", [kind for kind in kinds if known[kind].right < 1 / 8])

# %% [markdown]
# It predicts most pronouns correctly but otherwise makes little use of earlier words. Three runs of the plateau, tried in the same way, do no better; those below it know more kinds.
#
# ### What does more depth buy?
# A common picture is a ladder: the first layers learn surfaces, the next phrases, then discourse, the last meaning. In BERT a rough one was measured with **probes**, small classifiers that were trained on the output of each layer: they show in which layer something can be *read* (Tenney et al. 2019). We ask another question of the shipped model: what does it *use*? We take out one block at a time, so that it adds nothing to the stream, and count what goes wrong.

# %% rows=["S4-4"] evidence="blocks-removed"
accuracies = []
print(f"{'without':<9}" + "".join(f"{kind:>11}" for kind in kinds))
for i, block in enumerate([None, *model.blocks]):
    hook = block and block.register_forward_hook(lambda block, given, made: given[0])
    right = gaps(model, tokenizer, held_out[:40])
    print(f"{f'block {i}' if block else 'none':<9}" + "".join(f"{right[kind].right:>11.0%}" for kind in kinds))
    accuracies.append([right[kind].right for kind in kinds])
    if hook:
        hook.remove()
fallen = torch.tensor(accuracies[0]) - torch.tensor(accuracies[1:])  # (3 blocks, 6 kinds)
assert ((fallen > 0.3).sum(1) >= 2).all()  # each block matters for two kinds or more
assert ((fallen > 0.2).sum(0) >= 2).sum() >= 4  # four kinds or more use two blocks or more

# %% [markdown]
# The table shows how often the right word is the model's first choice. Each block matters for at least two kinds of words, and most kinds use more than one block; two other sets of stories gave the same pattern. [[blocks-removed]] So the work is not divided as in a ladder, with one kind for each block. This does not contradict the probes: what can be read from a layer and what the model uses are different questions, and our model is far smaller than BERT. Nor does it show what each block computes, since the later blocks never saw such a stream in training.

# %% [markdown] tags=["note"]
# Ask before the table: without block 1, which kinds of words go wrong? The usual wrong answer is "everything, because the later blocks build on it". Places hardly suffer. Then ask what a probe on the output of block 1 could have found, and whether that would contradict the table.

# %% [markdown] slide="slide"
# ## 3. A law, and what it cannot know
# Put the grid into one formula (Hoffmann et al. 2022, section 3.3):
#
# $$L(N, D) = E + \frac{A}{N^a} + \frac{B}{D^b}$$
#
# $E$ is the **irreducible** loss: what is left with endless parameters and endless text. For given exponents $a$ and $b$ the formula is linear in $E$, $A$ and $B$, so `lstsq` finds those with the smallest squared error. We try all pairs of exponents and keep the best. N is counted in 10,000 and D in 100,000: that changes A and B, so do not compare them with published ones.


# %%
EXPONENTS = [i / 10 for i in range(1, 13)]


def fit(rows) -> dict[str, float]:
    """E, A, B, a and b with the smallest mean squared error. rows: N in 10,000, D in 100,000, and the loss."""
    N, D, loss = rows.T
    best = {"error": float("inf")}
    for a, b in itertools.product(EXPONENTS, EXPONENTS):
        columns = torch.stack([torch.ones_like(N), N**-a, D**-b], 1)  # a row for each run, and 3 columns
        solved = torch.linalg.lstsq(columns, loss).solution
        error = (columns @ solved - loss).square().mean().item()
        if error < best["error"]:
            best = dict(zip("EAB", solved.tolist(), strict=True)) | {"error": error, "a": a, "b": b}
    return best


# %%
def says(law: dict[str, float], N, D):
    return law["E"] + law["A"] * N ** -law["a"] + law["B"] * D ** -law["b"]


# %%
units = torch.tensor([1e4, 1e5], dtype=torch.float64)  # (2)
points = torch.cat([grid[:, :2] / units, mean[:, None]], 1)  # (16, 3)
law = fit(points)
print("  ".join(f"{name} {law[name]:.2f}" for name in ("E", "A", "a", "B", "b")))
print(f"the typical miss is {law['error'] ** 0.5:.2f} nats")

# %% [markdown]
# How well is $E$ known? **Error bars** come from fitting again: to each seed alone, and with one run, or all runs of one size, excluded. And the excluded run is a test: does the law of the others find it?

# %%
one_seed = [torch.cat([points[:, :2], grid[:, 2 + k, None]], 1) for k in range(n_seeds)]
one_run_less = [points[torch.arange(len(points)) != i] for i in range(len(points))]
one_size_less = [points[grid[:, 0] != N] for N in sizes]
refits = {"one seed": one_seed, "one run less": one_run_less, "one size less": one_size_less}
refits = {name: [fit(rows) for rows in tries] for name, tries in refits.items()}

# %% evidence="law-misses"
missed = [says(refit, N, D) - loss for refit, (N, D, loss) in zip(refits["one run less"], points, strict=True)]
typical_miss = torch.stack(missed).square().mean() ** 0.5
seed_spread = grid[:, 2:].var(1).mean() ** 0.5
print(f"an excluded run is typically missed by {typical_miss:.2f} nats")
print(f"the seeds of a run are typically {seed_spread:.2f} from their mean")
assert law["error"] ** 0.5 > 3 * seed_spread and typical_miss > 3 * seed_spread

# %% tags=["source-hidden"]
predict(
    f"The grid's losses end at {mean.min():.2f}. Between which values do the refits' E lie?",
    key=lambda: "some are below 0" if min(refit["E"] for some in refits.values() for refit in some) < -0.1 else "?",
    choices={
        "all just below the lowest loss": "Nothing was measured near E. The fit has to go on far to the right of all points.",
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
# And outside its range? The shipped model is larger than all of the grid, and it read more:

# %%
recipe = shipped.extra["train"]
N, D = count_parameters(model.config).total, recipe["total_steps"] * recipe["batch_size"] * recipe["seq_len"]
larger, longer = N / grid[:, 0].max(), D / grid[:, 1].max()
print(f"{model.config.n_layers} layers, {larger:.1f} times the grid's largest N, {longer:.0f} times its longest D")
loss = evaluate(model, every_document(told, line_end(tokenizer), 50)).nats_per_token
print(f"the law says {says(law, N / 1e4, D / 1e5):.2f}, the model has {loss:.2f}, the floor is {floor:.2f}")

# %% [markdown]
# For English the floor is unknown, and a fitted $E$ is all there is. Here we can compare. The best fit's $E$ lies well below the floor; some refits put it below 0, where no loss can be, and one has an "irreducible" loss that the shipped model is already below. **Even inside its range the law misses by several times what chance does; outside, it promises the impossible.** No error bar over seeds can tell that the formula is not quite right.
#
# Our grid has four sizes, one depth, one learning rate for all sizes, one small language. Published grids are far larger, but they too end far below the sizes they are used for.

# %% [markdown] tags=["note"]
# The common wrong answer: "E is the entropy of the language". It is a parameter of a curve. Ask what would have to be true for the two to agree.

# %% [markdown] slide="slide"
# ## 4. What Chinchilla says
# A budget C is given. Large model and little text, or small model and much text? Two runs of our grid cost nearly the same:

# %% evidence="equal-compute"
costs = 6 * grid[:, 0] * grid[:, 1]
twins = [i for i in range(len(grid)) if 8e10 < costs[i] < 9e10]
for i in twins:
    print(f"{grid[i, 0]:>9,.0f} parameters, {grid[i, 1]:>9,.0f} tokens: {costs[i]:.1e} FLOPs")
assert grid[twins[0], 2:].max() < grid[twins[1], 2:].min()  # the smaller one, in all seeds

# %% tags=["source-hidden"]
predict(
    "Which of the two has the lower loss?",
    key=lambda: "the smaller one" if mean[twins[0]] < mean[twins[1]] - 0.05 else "?",
    choices={
        "the larger one": "After equal tokens it has. But here it reads an eighth of the text.",
        "the smaller one": "",
        "they are equal": "They cost the same. What they buy with it is not the same.",
    },
    because="The larger one has read less than one token for each of its parameters.",
)

# %% tags=["source-hidden"]
with figures.axes(
    "At equal compute, the larger is behind at first", "compute 6 N D, in FLOPs", "nats above the floor"
) as (figure, ax):
    for size, dash, color in zip(sizes.tolist(), figures.DASHES, figures.SERIES, strict=False):
        same = grid[:, 0] == size
        ax.plot(costs[same], mean[same] - floor, linestyle=dash, marker="o", color=color)
        ax.text(costs[same][0] * 1.07, mean[same][0] - floor, f"{size:,.0f} parameters", va="bottom", color=color)
    ax.set(xscale="log", yscale="log", xlim=(3e9, 1e12), ylim=(0.14, 2.3))
    ax.set_yticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
    ax.minorticks_off()
figures.display(
    figure,
    alt="Line chart, both axes logarithmic. Four lines, one for each size. Each starts above the line of the smaller size at the same cost; the two smallest cross.",
    caption="The grid of section 2 once more, a line for each number of parameters.",
    table={
        "FLOPs": [f"{cost:.1e}" for cost in costs.tolist()],
        "parameters": [f"{n:,.0f}" for n in grid[:, 0].tolist()],
        "loss": mean.tolist(),
    },
)

# %% [markdown]
# Each size starts behind the smaller one at equal cost, and the two smallest cross: with more compute the larger one wins. (The others would have to be trained for longer to show it.) Where is the best size for a budget? Over 400 models were trained to find it, in three ways (Hoffmann et al. 2022): for each budget the lowest of all training curves; for each budget the best size at equal compute; and the formula of section 3. All three said: **let N and D grow alike**, each with about the root of C. Their model Chinchilla follows it. How many tokens for each parameter?

# %%
published = {  # parameters, training tokens, source
    "GPT-3": (175e9, 300e9, "Brown et al. 2020"),
    "Chinchilla": (70e9, 1.4e12, "Hoffmann et al. 2022"),
    "Llama 2 7B": (6.74e9, 2e12, "Touvron et al. 2023"),
    "Llama 3 8B": (8e9, 15e12, "Grattafiori et al. 2024"),
}
for name, (N, D, source) in published.items():
    print(f"{name:<11} {6 * N * D:.1e} FLOPs, {D / N:>6,.1f} tokens per parameter ({source})")

# %% [markdown]
# About 20 is the number that is remembered. Three things are often said wrongly about it:
#
# - **It is no law of nature.** It is the best use of *training* compute for those models and that text. A small model that is used often is cheaper to run, so it pays to train it longer: look at the two Llamas.
# - **It is not "a model needs 20 tokens per parameter".** Past 20, more tokens still help; the same extra compute would help more if a part of it bought parameters.
# - **At Chinchilla's budget the formula's published numbers do not give 20.** They were rounded for print, and fitted again later (Besiroglu et al. 2024). Which best size does each version give?

# %% evidence="published-fits"
fits = {  # A, B, a, b
    "Hoffmann, as printed": (406.4, 410.7, 0.34, 0.28),
    "Hoffmann, before rounding": (406.4, 410.7, 0.3392, 0.2849),
    "Besiroglu, fitted again": (482.01, 2085.43, 0.3478, 0.3658),
}
ratios, early = [], []
budget = 5.76e23  # Gopher's, for which Chinchilla was planned (Hoffmann et al. 2022)
for source, (A, B, a, b) in fits.items():
    # put D = C / 6N into the formula, and set its derivative by N to 0
    N = (a * A / (b * B)) ** (1 / (a + b)) * (budget / 6) ** (b / (a + b))
    ratios.append(budget / 6 / N / N)
    early.append(1e18 / 6 / (N * (1e18 / budget) ** (b / (a + b))) ** 2)
    print(f"{source:<26} {N:.1e} parameters, {ratios[-1]:.0f} tokens per parameter")
print("tokens per parameter with 1e18 FLOPs:", ", ".join(f"{ratio:.0f}" for ratio in early))
assert max(ratios) > 4 * min(ratios) and max(early) < 1.5 * min(early)

# %% [markdown]
# At a small budget the three nearly agree, so it is the extrapolation that differs. [[published-fits]] An exponent acts on a huge number: rounding two of them to two decimals moves the answer from 59 to 93. An optimizer that stopped too early accounts for much of the rest (Besiroglu et al. 2024).
#
# Before that, N was said to grow as $C^{0.73}$, much faster than D (Kaplan et al. 2020). Hoffmann et al. suspected a learning-rate schedule made for more tokens. Porian et al. (2024) could explain the difference without it: by the last layer's compute, which was not counted, too long a warm-up, and an optimizer not tuned for each size.
#
# ### Your turn
# Solve $C = 6ND$ for a given number of tokens per parameter.


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
# With $D = rN$ the compute is $6 r N^2$. Divide by $6r$, then take the root, and the tokens follow. The usual slips: the ratio outside the root, the 6 forgotten, and 2 in place of 6 (the forward pass alone). Four times the compute buys twice the parameters *and* twice the tokens.

# %% [markdown] slide="slide"
# ## 5. One update in pieces
# A larger batch uses a machine better (lesson 14). Does it teach more? Its gradient is a mean over texts, so it has less noise. By how much? We compare the gradients of small batches with that of 64 texts, in one of the small models of section 2.


# %%
def gradient(model: TransformerLM, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


# %%
pupil = models[0]
x, y = next(RandomWindows(ids, 64, 128, seed=99, starts=starts))  # (64, 128)
whole, noise = gradient(pupil, x, y), {}
for size in (1, 4, 16):
    parts = [gradient(pupil, x[i : i + size], y[i : i + size]) for i in range(0, 64, size)]
    noise[size] = torch.stack([(part - whole).norm() / whole.norm() for part in parts]).mean().item()

# %% tags=["source-hidden"]
predict(
    "A batch of 4 texts instead of 1. What is left of the gradient's distance from that of all 64?",
    key=lambda: "about half" if 0.4 < noise[4] / noise[1] < 0.6 else "?",
    choices={
        "about a quarter": "Noise of a mean falls with the root of how many are averaged (lesson 02).",
        "about half": "",
        "about the same": "Independent noise cancels in a mean.",
    },
    because="The noise of a mean of n falls with the root of n.",
)

# %%
print("distance, in lengths of the gradient of all 64:", {size: round(far, 1) for size, far in noise.items()})
alone = torch.stack([gradient(pupil, x[i : i + 1], y[i : i + 1]) for i in range(64)])  # (64, parameters)
variance = alone.var(0).sum()
signal = whole.square().sum() - variance / 64  # a 64th of the variance is left in the mean of 64
print(f"noise as long as the gradient itself: at about {round((variance / signal).item(), -1):.0f} texts")

# %% [markdown]
# From 4 to 16 it falls to less than half, because the 16 are a quarter of the 64. While the noise is longer than the gradient, a larger batch gives a better direction. Once it is short, twice the batch is twice the cost for nearly the same update. Between the two is the **critical batch size** (McCandlish et al. 2018). The mean of $n$ texts has the variance of a single text divided by $n$; it equals the squared length of the gradient, the signal, if $n$ is variance divided by signal: here about 60 texts. (Not 20, as the first line suggests: its gradient of 64 still has noise in it and so is too long. And another batch or model gives another number.)
#
# And when the batch that you want does not fit into memory? **Accumulate** (`micro_steps`, lesson 11): only one piece's activations are kept at a time. Or keep less: with **activation recompute** (lesson 14) each block keeps its input only, and computes the rest again in the backward pass. What does it save?


# %%
def kept_bytes(model: TransformerLM, x: torch.Tensor, y: torch.Tensor) -> int:
    """What a forward pass keeps for the backward pass, without the weights."""
    weights, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    return sum(n for place, n in kept.items() if place not in weights)


# %%
deep = TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, d_model=64, n_layers=8)).train()
held = {"16 texts": kept_bytes(deep, x[:16], y[:16]), "4 texts": kept_bytes(deep, x[:4], y[:4])}
deep.recompute = True
held["16 texts, recomputed"] = kept_bytes(deep, x[:16], y[:16])
for name, n_bytes in held.items():
    print(f"{name:<21} {n_bytes / 1e6:5.0f} MB kept")

# %% [markdown]
# Four pieces keep a quarter. Recompute keeps far less still, for a second forward pass: about a third more FLOPs, since a forward pass is a third of an update (Chen et al. 2016). In the backward pass the activations of one block at a time come on top.

# %% [markdown] slide="slide"
# ## 6. Many processes
# A batch in pieces can also go to many machines. In **data-parallel** training every process has a copy of the model and a part of the batch. Then all of them average their gradients, an **all-reduce**, and make the same update. By hand, with two processes in one:

# %% evidence="same-gradient"
parts = [gradient(pupil, x[:8], y[:8]), gradient(pupil, x[8:16], y[8:16])]
averaged = (parts[0] + parts[1]) / 2
torch.testing.assert_close(averaged, gradient(pupil, x[:16], y[:16]), atol=1e-5, rtol=1e-4)

# %%
uneven = (gradient(pupil, x[:12], y[:12]) + gradient(pupil, x[12:16], y[12:16])) / 2
off = (uneven - averaged).norm() / averaged.norm()
print(f"12 and 4 texts instead of 8 and 8: the plain mean is off by {off:.0%}")
assert off > 0.1

# %% [markdown]
# With unequal parts the mean of the means is not the mean: a text of the small part has three times the weight. Equally many texts are enough only if they have equally many targets, because the loss is a mean over targets. Otherwise the gradients must be weighted by the number of targets.
#
# ### Your turn


# %% tags=["exercise"] name="all_reduce_mean" minutes=12 difficulty=2
def all_reduce_mean(gradients, n_targets):
    """The gradients of the mean loss over the targets of all processes.

    gradients: for each process a list of tensors, of the same shapes in each, the gradients of its own mean loss.
    n_targets: for each process over how many targets its loss was averaged. It may be 0, but not for all; the gradients
    are 0 there. Returns a list of tensors, in the same order; the input stays as it is.
    """
    # SOLUTION
    total = sum(n_targets)
    shares = [n / total for n in n_targets]
    return [sum(share * g for share, g in zip(shares, of_all, strict=True)) for of_all in zip(*gradients, strict=True)]
    # END


# %% tags=["check"]
if check("all_reduce_mean", all_reduce_mean).passed:
    keep("all_reduce_mean", all_reduce_mean)

# %%
hint("all_reduce_mean")

# %% [markdown] tags=["solution"]
# Each process's gradient times its targets is the gradient of a sum. Sums add up, and one division by all targets makes a mean. The usual slips: the plain mean, weights without the division, and an `+=` that writes into the first process's tensors.

# %% [markdown] slide="subslide"
# ### For real
# **torchrun** starts the processes and tells each its **rank**, its number. Two strategies: `ddp` (distributed data parallel) is what we did by hand. In `fsdp` (fully sharded data parallel) each process *keeps* only a **shard** of every parameter, its gradient and its moments; a block's parameters are put together when it computes, and dropped again (Rajbhandari et al. 2020 and Zhao et al. 2023).
# Every process runs the same file. `team` says how many there are; alone, one process accumulates both pieces of a batch, and of two each takes one. -100 marks targets that the loss leaves out (here none), and `to_local` gives a process's own shard.

# %%
SCRIPT = """
import torch
from tinylm_lib import TrainConfig, TransformerLM, preset, train
from tinylm_lib.training import Replicas, Shards, build_optimizer, join

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

if __name__ == "__main__":
    with join("ddp", torch.device("cpu")) as me:
        for name, team in {"ddp": Replicas("cpu"), "fsdp": Shards("cpu")}.items():
            found = losses(team)
            if me.first:
                print(name, *found)
"""

# %%
folder = tempfile.TemporaryDirectory()
_ = Path(folder.name, "in_many.py").write_text(SCRIPT)
sys.path.insert(0, folder.name)
curves = {"one process": importlib.import_module("in_many").losses(ALONE)}
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
command = [*torchrun, f"{folder.name}/in_many.py"]
done = subprocess.run(command, env=quiet, check=True, capture_output=True, text=True, timeout=240)
folder.cleanup()

# %%
for line in done.stdout.splitlines():
    name, *numbers = line.split()
    curves[f"two, {name}"] = [float(number) for number in numbers]

# %% evidence="same-losses"
for name, (kept, *step_losses) in curves.items():
    print(f"{name:<12} keeps {kept:>6,.0f} parameters; losses" + "".join(f"{loss:6.2f}" for loss in step_losses))
    torch.testing.assert_close(step_losses, curves["one process"][1:], rtol=1e-4, atol=0)
assert 2 * curves["two, fsdp"][0] == curves["one process"][0]

# %% [markdown]
# The same losses, to 4 digits (`rtol`, the allowed relative difference, says so): sums in another order round elsewhere in the last digits. More processes change how long it takes, not what is learned. And with `fsdp` each keeps half. For a run of your own: `torchrun --nproc-per-node 2 -m tinylm_lib train --strategy fsdp`.

# %% [markdown] slide="slide"
# ## 7. Seven billion, a trillion
# Now the large ones, on paper: a **7B** is Llama 2's published shape, the **1T** (a trillion) one that we make up, of 128 layers. Training keeps 16 bytes per parameter (lesson 10), and activations on top. No training reaches a GPU's peak. We plan with 40 %: Llama 3's makers report 38 to 43 % (Grattafiori et al. 2024).

# %%
seven = configs["Llama 2 7B"]
trillion = preset("llama", "2-7b", d_model=25_600, n_layers=128, n_heads=200)
PEAK, SHARE, GPU_BYTES = 989e12, 0.4, 80e9  # H100, bf16 without sparsity, and its memory: NVIDIA's data sheet, 2023


def plan(config, tokens: float, n_gpus: int, peak: float = PEAK) -> float:
    """Days of training, at 40 % of the peak."""
    T = config.max_seq_len
    flops = training_flops(config, 1, T) / T * tokens
    return flops / (n_gpus * peak * SHARE) / 86_400


# %%
for name, config, n_gpus in (("7B", seven, 256), ("1T", trillion, 16_384)):
    N, need = count_parameters(config).total, training_bytes(config)
    gpus, days = need / GPU_BYTES, plan(config, 20 * N, n_gpus)
    print(f"{name}: {N / 1e9:,.1f} billion parameters; to train {need / 1e9:,.0f} GB, which fills {gpus:,.1f} GPUs")
    print(f"    {20 * N / 1e12:.2f} trillion tokens on {n_gpus:,} GPUs: {days:,.1f} days")

# %% [markdown]
# Does such a plan agree with anything real? Llama 2's makers report their GPU hours. They had A100s, with 312e12 FLOPs per second, and read 2 trillion tokens:

# %% evidence="gpu-hours"
hours, reported = plan(seven, 2e12, 1, peak=312e12) * 24, 184_320
print(f"planned {hours:,.0f} GPU hours, reported {reported:,} (Touvron et al. 2023)")
assert 0.8 < hours / reported < 1.25
print(f"so they reached {SHARE * hours / reported:.1%} of the peak")

# %% [markdown]
# For this run a few lines of arithmetic come within about a tenth. But they contain a guess, the fraction of the peak. Lesson 14 lists published ones from a fifth to nearly three quarters, so the plan of another run can differ by a factor of two.

# %% [markdown] slide="slide"
# ## 8. Break it: equal tokens
# One thing changes: a colleague compares sizes after equal numbers of *tokens*, as in the figure of section 2, and not at equal *compute*.

# %% tags=["source-hidden"]
best_at = {mean[grid[:, 1] == d].argmin().item() for d in lengths}
predict(
    "Which of the four sizes does the colleague call best?",
    key=lambda: "the largest, for every number of tokens" if best_at == {len(sizes) - 1} else "?",
    choices={
        "the smallest, for every number of tokens": "It costs least. But cost is what this comparison leaves out.",
        "a middle one": "At equal compute it can be. Here each size reads the same text.",
        "the largest, for every number of tokens": "",
    },
    because="More parameters never hurt here, and nobody looks at what they cost.",
)

# %%
for d in lengths:
    same = (grid[:, 1] == d).nonzero()[:, 0]
    best = same[mean[same].argmin()]
    times = costs[best] / costs[same].min()
    print(f"{d:>9,.0f} tokens: {grid[best, 0]:,.0f}, at {times:.0f} times the smallest's cost")

# %% [markdown]
# No message, and each line is true. But the largest at 102,400 tokens is the loser of section 4: a much smaller one was better for the same compute. If you compare sizes, say what was held equal.
#
# ## What you have now
# - At full text length, training takes a little more than 6 N D FLOPs in the three models of our table: 2 forward and 4 backward for each parameter that is multiplied, and for each token, and attention's scores on top. Short texts take less than 6 N D, and very long ones far more. [[six-n-d]]
# - A scaling law is a curve that is fitted to measurements. Ours misses the losses, even inside the range of the grid, by several times the spread of the seeds [[law-misses]], and its irreducible loss E is not the floor. [[fitted-floor]]
# - At equal compute a smaller model that reads more tokens can have the lower loss. [[equal-compute]] Chinchilla's rule is to let N and D grow alike, with about 20 tokens for each parameter (Hoffmann et al. 2022). At Chinchilla's budget the published formula gives ratios that differ by more than a factor of four, depending on how its constants were rounded and fitted; at a small budget they nearly agree. [[published-fits]]
# - Without any one of its blocks the shipped model gets at least two kinds of words wrong much more often, and most kinds need more than one block. [[blocks-removed]]
# - Several processes with equally many targets compute, up to rounding, the same gradient as one process [[same-gradient]] and reach the same losses; with `fsdp` each of two processes keeps half of the parameters. [[same-losses]]
# - A plan is a few lines of arithmetic and a guess of the fraction of the peak. For Llama 2 7B it came close to the reported GPU hours [[gpu-hours]]; other runs can differ by a factor of two.
#
# This is the last lesson. Ten questions for you, each with the lesson to go back to if the answer does not come:

# %% rows=["S4-59"] tags=["source-hidden"]
QUESTIONS = {
    "What does a tokenizer of bytes do with a word that it has never seen?": "01",
    "Which sizes of a linear map must agree, and which are free?": "02",
    "What does it cost to give the right word a share of 0.1?": "03",
    "What do RMSNorm and LayerNorm each take out of a vector?": "04",
    "What are query, key and value, and why is the score divided by a root?": "05",
    "How does a rotation tell distances and not places?": "06",
    "What would be lost without the feed-forwards, and without the plus signs?": "08, 09",
    "Can you write down the shape after every step of a forward pass, and count the parameters?": "10",
    "Name three mistakes in training that give no error, and how each shows.": "11",
    "What does a cache keep, and what does sampling choose from?": "12, 13",
}
for i, (question, lesson) in enumerate(QUESTIONS.items(), 1):
    print(f"{i:>2}. {question} ({lesson})")

# %% [markdown]
# And where to read on:

# %% rows=["S4-60"] tags=["source-hidden"]
READING = {
    "the model": "Vaswani et al. 2017, Attention Is All You Need",
    "GPT-2": "Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    "GPT-3": "Brown et al. 2020, Language Models are Few-Shot Learners",
    "first weights": "He et al. 2015, Delving Deep into Rectifiers",
    "norms": "Xiong et al. 2020, On Layer Normalization in the Transformer Architecture",
    "scale": "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models",
    "scale, a post": "nostalgebraist 2022, chinchilla's wild implications (LessWrong)",
    "code": "nanoGPT and minbpe (Karpathy), torchtitan (PyTorch)",
}
for about, work in READING.items():
    print(f"{about:<14} {work}")

# %% [markdown]
# ## Sources
# - C = 6ND, and laws before Chinchilla: Kaplan et al. 2020, *Scaling Laws for Neural Language Models*, sections 2.1 and 6.
# - Hoffmann et al. 2022, *Training Compute-Optimal Large Language Models*, section 3 (three approaches) and section 2 (the schedule).
# - The numbers before rounding, and the second fit: Besiroglu et al. 2024, *Chinchilla Scaling: A replication attempt*. Why Kaplan et al. found another exponent: Porian et al. 2024, *Resolving Discrepancies in Compute-Optimal Scaling of Language Models*.
# - A ladder of layers: Tenney et al. 2019, *BERT Rediscovers the Classical NLP Pipeline*.
# - Batch size: McCandlish et al. 2018, *An Empirical Model of Large-Batch Training*.
# - Recompute: Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost*, section 3.
# - Shards: Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*; Zhao et al. 2023, *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*.
# - GPU hours: Touvron et al. 2023, *Llama 2: Open Foundation and Fine-Tuned Chat Models*, table 2.
# - Training tokens: Brown et al. 2020, *Language Models are Few-Shot Learners*; Grattafiori et al. 2024, *The Llama 3 Herd of Models*.
