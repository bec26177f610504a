# %% [markdown]
# # 14 Timing
# **How to compare two timings, or two models: when is a difference more than chance?**
#
# *Needs* lessons 11 and 14. *Runs* in about 40 s on two cores.

# %%
import time

import torch

from tinylm_classroom import ablation, figures, measured, predict

# %% [markdown]
# ## 1. The same work, twice
# We time one product again and again. The work never changes, but the times do, because other programs use the machine, too.

# %%
square = torch.randn(256, 256)


def times(n):
    found = []
    for _ in range(n):
        start = time.perf_counter()
        _ = square @ square
        found.append(time.perf_counter() - start)
    return torch.tensor(found)


# %%
_ = times(20)  # a warm-up
spent = times(400)
for name, value in {"shortest": spent.min(), "median": spent.median(), "longest": spent.max()}.items():
    print(f"{name:<9}", measured(1e6 * value.item(), "µs", 1, 1e7))

# %% [markdown]
# Interruptions only ever *add* time. So the noise has one sign, and the mean, which takes all of it in, is a poor summary. What is the best one? On this machine nobody knows the true time, so we make times whose truth we know: 100 µs of work, and interruptions of 50 µs that come now and then.


# %%
def noisy(true, n_times, n_runs, seed, often=0.3):
    """Times (n_runs, n_times) of work that takes `true` µs alone, each with its interruptions."""
    generator = torch.Generator().manual_seed(seed)
    rate = torch.full((n_runs, n_times), often)
    n = torch.poisson(rate, generator=generator)
    return true + 50 * n + 0.5 * torch.rand(n_runs, n_times, generator=generator)


# %%
SEED = 14
SUMMARIES = {
    "mean": lambda runs: runs.mean(1),
    "median": lambda runs: runs.median(1).values,
    "minimum": lambda runs: runs.amin(1),
}
# %%
old, new = noisy(100, 9, 10_000, SEED), noisy(98, 9, 10_000, SEED + 1)  # the new code is 2% faster
right = {name: (of(new) < of(old)).float().mean().item() for name, of in SUMMARIES.items()}

# %% tags=["source-hidden"]
predict(
    "The new code is 2% faster, 98 µs instead of 100. We time each 9 times and compare. Which summary finds the faster one most often?",
    key=lambda: max(right, key=right.get),
    choices={
        "mean": "One interruption more in one of the two groups moves it by 5 µs, more than the difference.",
        "median": "Good, as long as fewer than half of the times are interrupted. Is there a better one?",
        "minimum": "",
    },
    because="An interruption only adds time, so the shortest time has the least of it.",
)

# %%
for name, fraction in right.items():
    print(f"{name:<8} right in {fraction:.0%} of 10,000 comparisons")

# %% tags=["source-hidden"] evidence="minimum" tried="seeds"
# Checked with five seeds and other rates of interruptions.
SEEDS = range(5)
for seed in SEEDS:
    for often in (0.3, 1.0):
        a, b = noisy(100, 9, 2000, 2 * seed, often), noisy(98, 9, 2000, 2 * seed + 1, often)
        found = [(of(b) < of(a)).float().mean().item() for of in SUMMARIES.values()]
        assert found[2] > found[0] + 0.1 and found[2] > 0.85

# %% [markdown]
# The minimum finds the faster code far more often than the mean. [[minimum]] This holds where all noise adds. It does not hold for a loss, whose noise has both signs, and to which we come below.
#
# ### In turns
# A machine can also become slower *for a while*: another program starts, or the processor gets warm. Then it matters in which order you measure. Say that the second half of an hour is 5% slower.

# %%
n = 9  # try 30
drift = torch.linspace(1.0, 1.05, 2 * n)
one_after_the_other = noisy(100, n, 5_000, 1) * drift[:n], noisy(100, n, 5_000, 2) * drift[n:]
in_turns = noisy(100, n, 5_000, 1) * drift[0::2], noisy(100, n, 5_000, 2) * drift[1::2]
# %%
for name, (first, second) in {"one after the other": one_after_the_other, "in turns": in_turns}.items():
    wins = (first.amin(1) < second.amin(1)).float().mean()
    print(f"{name:<20} the same code, measured first, wins {wins:.0%} of the comparisons")

# %% tags=["source-hidden"] evidence="in-turns" tried="seeds"
# Checked with five seeds: in blocks the first one nearly always wins, in turns far less.
for seed in SEEDS:
    a, b = noisy(100, 9, 2000, 2 * seed), noisy(100, 9, 2000, 2 * seed + 1)
    slower = torch.linspace(1.0, 1.05, 18)
    blocks = ((a * slower[:9]).amin(1) < (b * slower[9:]).amin(1)).float().mean()
    turns = ((a * slower[0::2]).amin(1) < (b * slower[1::2]).amin(1)).float().mean()
    assert blocks > 0.95 > 0.85 > turns

# %% [markdown]
# Measured one after the other, code "beats" itself nearly always; in turns (A, B, A, B, ...) far less often. [[in-turns]]

# %% [markdown]
# ## 2. Two models
# Training ends sooner if the model learns more from each update. The recipe of `modern` makes many choices: rotary positions, SwiGLU, norms on queries and keys, Muon, a falling learning rate. What is each worth? Change one, leave all others as they are, and compare: an **ablation**. On StoryWorld the floor is known, so we measure nats per token above it, on held-out stories. With another seed the first weights and the stories differ, so each choice runs with three seeds.

# %%
print(ablation.SMALL_MODEL, ablation.RECIPE)
WHOLE = ablation.WHOLE
tried = (WHOLE, "learned positions instead of rotary", "no norm on queries and keys")
RUNS = (1, 2, 3)
# %%
early = {name: sorted(ablation.gap_after(name, n_steps=30, seed=run) for run in RUNS) for name in tried}
for name, found in early.items():
    print(f"{name:<36}{sum(found) / 3:.2f} nats above the floor ({found[0]:.2f} to {found[2]:.2f})")

# %% tags=["source-hidden"] evidence="short-ablation" tried="seeds"
# Checked: all three seeds of the learned positions are below all of the whole recipe's.
assert max(early["learned positions instead of rotary"]) < min(early[WHOLE]) - 0.03

# %% [markdown]
# After 30 updates learned positions are ahead: all their seeds are below all seeds of the whole recipe. [[short-ablation]] Does that settle it? A longer run of all choices takes about ten minutes, so its figures are recorded (`make bench ARGS="--only ablation"` measures them again).

# %% tags=["source-hidden"]
RECORD = ablation.recorded()  # nats above the floor after 600 updates, three seeds each
later, whole = RECORD["learned positions instead of rotary"], RECORD[WHOLE]
predict(
    "In a whole run of 30 updates learned positions are ahead of rotary ones. And in a whole run of 600?",
    key=lambda: "behind" if min(later) > max(whole) else "still ahead" if max(later) < min(whole) else "?",
    choices={
        "still ahead": "What wins in a short run need not win in a long one.",
        "no difference to be seen": "Then the difference would be small compared with the spread of all rows.",
        "behind": "",
    },
    because="All three seeds end above all three of the whole recipe.",
)

# %% [markdown]
# ## 3. When is a difference more than chance?
# Three seeds are too few to estimate the spread of each row. So we assume that all rows have the same spread, and estimate it from all rows together: the **pooled** standard deviation. From it follows the **standard error** of a difference between two means of three seeds.

# %%
averages = {name: sum(found) / 3 for name, found in RECORD.items()}
pooled = torch.tensor(list(RECORD.values())).var(1).mean().sqrt().item()
standard_error = pooled * (1 / 3 + 1 / 3) ** 0.5
print(f"pooled standard deviation {pooled:.3f}, standard error of a difference {standard_error:.3f}")

# %% [markdown]
# How many standard errors are enough? Seven choices are compared with the same recipe, so chance has seven attempts. We simulate it: 10,000 tables of eight rows and three seeds in which *no* choice changes anything. In how many would we report at least one difference? This is the problem of **multiple comparisons**.


# %%
def null_tables(seed):
    """Of 10,000 tables: standard errors from row 0 (10000, 7), and rows all above or all below."""
    tables = torch.randn(10_000, 8, 3, generator=torch.Generator().manual_seed(seed))
    apart = (tables.mean(2)[:, 1:] - tables.mean(2)[:, :1]).abs()
    apart = apart / (tables.var(2).mean(1).sqrt() * (2 / 3) ** 0.5)[:, None]
    above = tables[:, 1:].amin(2) > tables[:, :1].amax(2)
    below = tables[:, 1:].amax(2) < tables[:, :1].amin(2)
    return apart, above | below


# %%
apart, separated = null_tables(SEED)
chance = separated.any(1).float().mean().item()

# %% tags=["source-hidden"]
predict(
    "Nothing differs in these tables. We report a difference if all three seeds of a row are above, or all below, those of row 0. In how many of 100 tables do we report one?",
    key=lambda: 100 * chance,
    number="tables",
    within=8,
    feedback={
        5: "1 in 20 is the chance that one row of three lies above. Below counts, too, and there are seven rows.",
        10: "That is the chance for one row. There are seven of them.",
        52: "That would be right if the seven reports were independent, but all are compared with the same row 0.",
        70: "Seven times 10 would be right if the seven reports excluded each other.",
    },
    because="For one row the chance is about 1 in 10. Seven rows, compared with the same row 0, have seven chances to be wrong.",
)

# %%
print(f"all three seeds above or below: in {chance:.0%} of the tables")
for limit in (1, 2, 3):
    print(f"{limit} standard errors or more: in {(apart > limit).any(1).float().mean():.0%} of the tables")

# %% tags=["source-hidden"] evidence="null-tables" tried="seeds"
# Checked with five seeds: often a false report by the first rule, rarely by the last.
for seed in SEEDS:
    distances, reports = null_tables(seed)
    assert 0.3 < reports.any(1).float().mean() < 0.5
    assert (distances > 3).any(1).float().mean() < 0.08 < 0.2 < (distances > 2).any(1).float().mean()

# %% [markdown]
# So "all three seeds are higher" is weak evidence if there are many rows, and we require three standard errors. [[null-tables]]

# %% tags=["signature", "source-hidden"]
order = sorted(RECORD, key=lambda name: -averages[name])
with figures.axes("Only one choice is more than chance", "nats above the floor", "", (9.6, 5)) as (figure, ax):
    ax.set_ylabel("what was exchanged")
    for row, name in enumerate(order):
        ax.plot(RECORD[name], [row] * 3, "o", color=figures.SERIES[name == WHOLE])
        ax.plot(averages[name], row, "|", markersize=26, markeredgewidth=3, color=figures.SERIES[name == WHOLE])
    reach = 3 * standard_error
    ax.axvspan(averages[WHOLE] - reach, averages[WHOLE] + reach, color=figures.SERIES[1], alpha=0.15, linewidth=0)
    ax.set_yticks(range(len(order)), ["(nothing) " * (name == WHOLE) + name for name in order])
figures.display(
    figure,
    alt="Dots, three for each choice, and a bar at their mean: nats above the floor after 600 updates. A band marks three standard errors on both sides of the whole recipe's mean; only the bar of learned positions lies outside it.",
    caption="600 updates, three seeds each; the bar is their mean. A bar outside the band counts as a difference; a bar inside can be chance.",
    table={"exchanged": order, "mean": [averages[name] for name in order]},
)

# %% evidence="long-ablation" tried="seeds"
away = {name: (averages[name] - averages[WHOLE]) / standard_error for name in RECORD if name != WHOLE}
for name, n_errors in sorted(away.items(), key=lambda item: -item[1]):
    verdict = "no difference to be seen" if abs(n_errors) < 3 else "worse" if n_errors > 0 else "better"
    print(f"{name:<36}{n_errors:4.1f} standard errors  {verdict}")
assert away["learned positions instead of rotary"] > 3
assert sorted(abs(n_errors) for n_errors in away.values())[-2] < 3

# %% [markdown]
# Only learned positions are worse by more than three standard errors, and in the short run they were ahead. [[long-ablation]] AdamW is 2.3 standard errors behind, which seven comparisons can produce by chance: it takes more seeds to know. For the constant learning rate all three seeds are above those of the whole recipe, but its mean is less than 1 standard error away.
#
# "No difference to be seen" does not mean that a choice has no effect. A smaller effect needs more seeds: four times as many for half the standard error.

# %% [markdown]
# ## 4. Two changes to time
# Here are two changes that engineers make to training, to try out what you know. **Recomputing** keeps only what enters each block, and computes the rest again in the backward pass ([Chen et al. 2016](https://arxiv.org/abs/1604.06174)): less memory, more work. First make sure that nothing else changed; then time both in turns.

# %%
from torch import nn
from torch.nn.functional import cross_entropy

from tinylm_lib import TransformerLM, preset

_ = torch.manual_seed(14)
model = TransformerLM(preset("modern", vocab_size=345, d_model=64, n_layers=4, n_heads=4))
ids = torch.randint(345, (8, 64))  # (B, T)


# %%
def gradient(recompute):
    model.recompute = recompute
    model.zero_grad()
    cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()  # any targets will do
    return model.blocks[0].ffn.up_proj.weight.grad.clone()


# %% rows=["S4-61"] evidence="recomputed" tried="exact"
torch.testing.assert_close(gradient(True), gradient(False))
clock = {True: [], False: []}
for _ in range(20):
    for recompute in clock:
        start = time.perf_counter()
        _ = gradient(recompute)
        clock[recompute].append(time.perf_counter() - start)
print("recomputed:", measured(min(clock[True]) / min(clock[False]), "times as long", 0.1, 10))

# %% [markdown]
# The gradient is the same [[recomputed]]; by FLOPs it takes four forward passes instead of three, and the operations between the products are repeated as well.
#
# **Mixed precision** in fp16 needs more care than bf16, because fp16 ends at 65,504 and small gradients become 0. So the loss is multiplied by a large number before the backward pass, and the gradients are divided again before the update: **loss scaling** ([Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740)). Here is the whole loop, on a toy rule: each number is 7 more than the one before, modulo 32.


# %%
def mixed_update(net, adamw, scaler, x, y):
    adamw.zero_grad()
    with torch.amp.autocast("cpu", dtype=torch.float16):
        loss = cross_entropy(net(x).flatten(0, 1).float(), y.flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(adamw)  # before clipping, which would otherwise see the multiplied gradients
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(adamw)  # skipped if a gradient is infinite
    scaler.update()
    return loss.item()


# %%
def mixed_losses(seed, n_updates=100):
    torch.manual_seed(seed)
    net = TransformerLM(preset("modern", vocab_size=32, d_model=32, n_layers=1, n_heads=2, max_seq_len=24))
    adamw, scaler = torch.optim.AdamW(net.parameters(), lr=1e-2), torch.amp.GradScaler("cpu")
    found = []
    for _ in range(n_updates):
        numbers = (torch.randint(32, (8, 1)) + 7 * torch.arange(25)) % 32  # (8, 25)
        found.append(mixed_update(net, adamw, scaler, numbers[:, :-1], numbers[:, 1:]))
    return found


# %% rows=["S4-53"] evidence="mixed-precision" tried="seeds"
for seed in SEEDS:
    curve = mixed_losses(seed)
    assert curve[-1] < 0.3 * curve[0]
ends = torch.finfo(torch.float16)
print(f"fp16 ends at {ends.max:,.0f}; five seeds have learned the rule")

# %% [markdown]
# All five seeds learn the rule. [[mixed-precision]] Whether it is *faster* depends on the processor: without instructions for 16 bits it is slower. Time it in turns.

# %% [markdown]
# ## What you have now
# - Noise of a clock only adds time, so compare the shortest times. [[minimum]]
# - Measure in turns, because a machine drifts. [[in-turns]]
# - With seven comparisons "all three seeds are higher" is often chance, and three standard errors rarely are. [[null-tables]]
# - Learned positions were ahead in a short run. [[short-ablation]]
# - In a longer, recorded one they were behind: an ablation measures a choice at one size and one length. [[long-ablation]]
# - Recomputing leaves the gradient as it is. [[recomputed]]
# - With a scaled loss a small model learns in fp16. [[mixed-precision]]

# %% [markdown]
# ## Sources
# - The minimum of several timings: the documentation of Python's [`timeit`](https://docs.python.org/3/library/timeit.html), `Timer.repeat`.
# - Recomputing: Chen et al. 2016, [*Training Deep Nets with Sublinear Memory Cost*](https://arxiv.org/abs/1604.06174), section 3. Loss scaling: Micikevicius et al. 2018, [*Mixed Precision Training*](https://arxiv.org/abs/1710.03740), section 3.
# - Several seeds and standard errors in this field: Agarwal et al. 2021, [*Deep Reinforcement Learning at the Edge of the Statistical Precipice*](https://arxiv.org/abs/2108.13264), section 3.
