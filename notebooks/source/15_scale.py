# %% [markdown] slide="slide" minutes=1
# # 15 Scale
# **What does more of everything buy?**
#
# *Needs* lessons 10, 11 and 14. *Builds* nothing new: it uses `cost.py`, and explains `distributed.py`. *Runs* in about 50 s on two cores.
# *Teaches* in 42 minutes, plus 20 of exercises.

# %%
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from tinylm_lib import TrainConfig, TransformerLM, evaluate, preset, storyworld, train
from tinylm_lib.classroom import check, figures, hint, keep, predict, show
from tinylm_lib.classroom.measured import measured
from tinylm_lib.cost import count_parameters, mfu, training_bytes, training_flops
from tinylm_lib.data import RandomWindows, every_document
from tinylm_lib.gaps import gaps
from tinylm_lib.job import line_end
from tinylm_lib.optim import build_optimizer
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(15)

# %% [markdown] slide="slide" minutes=4
# ## 1. Three things to buy
# A model can have more **parameters** N. It can read more **tokens** D. Both cost **compute** C, counted in floating-point operations (FLOPs, lesson 14). How are the three tied together?
#
# By hand: one weight $w$ meets one token. Forward, $wx$ is multiplied and added to a sum. Backward, the gradient $g$ that arrives is used twice: $gw$ goes on to the layer before, $gx$ is added to the gradient of the weight.

# %%
forward, to_the_layer_before, to_the_weight = 2, 2, 2  # a multiplication and an addition each
per_weight_and_token = forward + to_the_layer_before + to_the_weight
print(per_weight_and_token, "FLOPs for each weight and each token")

# %% [markdown]
# So **C = 6 N D**, nearly (Kaplan et al. 2020, section 2.1). Nearly, because an embedding's rows are looked up and not multiplied, and because attention's scores multiply without weights. How near is it?

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
configs = {"shipped": model.config, "GPT-2 small": preset("gpt2"), "Llama 2 7B": preset("llama", "2-7b")}
factors = {}
for name, config in configs.items():
    T = config.max_seq_len
    factors[name] = training_flops(config, 1, T) / T / count_parameters(config).total
    print(f"{name:<12} {count_parameters(config).total:>13,} parameters, C = {factors[name]:.2f} N D")

# %%
recipe = shipped.extra["train"]
D = recipe["total_steps"] * recipe["batch_size"] * recipe["seq_len"]
C = factors["shipped"] * count_parameters(model.config).total * D
print(f"the shipped model read {D:,} tokens: {C:.1e} FLOPs")

# %% tags=["source-hidden"]
predict(
    "We have four times the compute. A model twice as large shall use it up. How many times as many tokens may it read?",
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
# Ask who would spend everything on N, and who on D. Write the votes on the board for section 4. To cut for 50 minutes: the ladder in section 2, and the second half of section 5.

# %% [markdown] slide="slide" minutes=6
# ## 2. A grid of small models
# What does the loss do when N or D grows? Theory does not say. We train small models and look. All of them read StoryWorld and have two layers; only the width differs. Each is trained three times, from other first weights
# and on other batches: without several **seeds** nobody knows which difference is chance.

# %%
ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(2_000, seed=0)))
starts = (ids == line_end(tokenizer)).nonzero()[:, 0]
generator = torch.Generator().manual_seed(1_000_000)
held_out = [storyworld.story(generator) for _ in range(100)]
told = torch.tensor(tokenizer.encode("\n" + "".join(story.text + "\n" for story in held_out)))
floor = -sum(story.log_prob for story in held_out) / (len(told) - 1)
print(f"no model can lose less than {floor:.2f} nats per token on these held-out stories")


# %%
def small(width: int, seed: int) -> TransformerLM:
    torch.manual_seed(seed)
    sizes = {"d_model": width, "n_layers": 2, "n_heads": 2, "max_seq_len": 128, "d_ff_multiple_of": 8}
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, **sizes))


def updates(model: TransformerLM, n: int, seed: int):
    config = TrainConfig(total_steps=n, batch_size=16, seq_len=128, seed=seed, precision="fp32")
    batches = RandomWindows(ids, 16, 128, seed, starts=starts)
    return train(model, build_optimizer(model, config), batches, config)


def loss_of(model: TransformerLM) -> float:
    return evaluate(model, every_document(told, line_end(tokenizer), 50)).nats_per_token


# %% tags=["slow"]
live = {}
for width in (8, 16, 32):
    models = [small(width, seed) for seed in range(3)]
    for seed, one in enumerate(models):
        list(updates(one, 50, seed))
    N = count_parameters(models[0].config).total
    live[N] = [loss_of(one) for one in models]
    print(f"width {width:>2}, {N:>6,} parameters: " + ", ".join(f"{loss:.1f}" for loss in live[N]))

# %% [markdown]
# More parameters, less loss, and the three seeds of a size lie closer together than the sizes. Each of these models had 50 updates of 16 texts of 128 tokens. More tokens take more time than a lesson has. Here is a larger grid, measured once on two cores by
# `python tools/scaling.py --widths 8 16 32 64 --updates 50 100 200 400`; without options it goes further.

# %% tags=["source-hidden"]
MEASURED = """
7240 102400 2.5308 2.5993
7240 204800 1.9124 1.9399
7240 409600 1.5172 1.5419
7240 819200 1.4145 1.3829
17040 102400 1.9536 1.9282
17040 204800 1.4844 1.4970
17040 409600 1.3412 1.3508
17040 819200 1.3100 1.3075
47392 102400 1.5758 1.5837
47392 204800 1.3616 1.3697
47392 409600 1.3129 1.2723
47392 819200 1.1114 1.0360
141824 102400 1.4248 1.4101
141824 204800 1.3229 1.2837
141824 409600 1.1152 1.0301
141824 819200 0.8814 0.8295
"""
rows = [[float(x) for x in line.split()] for line in MEASURED.strip().split("\n")]
grid = torch.tensor(rows, dtype=torch.float64)  # a row for each size and length: N, D, a loss for each seed
RECORDED_FLOOR = 0.6571  # of that tool's held-out stories

# %%
sizes, lengths = grid[:, 0].unique(), grid[:, 1].unique()
n_seeds = grid.shape[1] - 2
mean = grid[:, 2:].mean(1)
print(f"{len(sizes)} sizes, {len(lengths)} lengths, {n_seeds} seeds")
print(f"from {mean.max():.2f} down to {mean.min():.2f} nats per token, floor {RECORDED_FLOOR:.2f}")

# %% tags=["source-hidden"]
with figures.axes("More parameters, more tokens, less loss", "parameters N", "nats above the floor") as (figure, ax):
    for D, dash, color in zip(lengths.tolist(), figures.DASHES, figures.SERIES, strict=False):
        found = grid[grid[:, 1] == D]
        found = found[found[:, 0].argsort()]
        above = found[:, 2:] - RECORDED_FLOOR
        ax.fill_between(found[:, 0], above.amin(1), above.amax(1), color=color, alpha=0.18, linewidth=0)
        ax.plot(found[:, 0], above.mean(1), linestyle=dash, marker="o", color=color)
        ax.text(found[-1, 0] * 1.06, above.mean(1)[-1], f"{D:,.0f} tokens", va="center", color=color)
    ax.set(xscale="log", yscale="log", xlim=(6_000, 480_000))
    ax.set_xticks([1e4, 1e5], ["10,000", "100,000"])
    ax.set_yticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
figures.show(
    figure,
    alt="Line chart, both axes logarithmic. Four lines, one for each number of tokens, fall with the parameters; more tokens, lower line.",
    caption="Mean and range of the seeds. Every step to the right or to a lower line helps; the lines are not straight.",
    table={
        "parameters": [f"{n:,.0f}" for n in grid[:, 0].tolist()],
        "tokens": [f"{d:,.0f}" for d in grid[:, 1].tolist()],
        "loss": mean.tolist(),
    },
)

# %% [markdown]
# In many published measurements such lines are nearly straight on logarithmic axes: that is what "scaling law" means. Ours bend, and cross where the loss hangs for a while and then falls again. The models learn something in between. What?
#
# ### What does more depth buy?
# A course note draws a ladder: the first layers learn surfaces, the next phrases, then discourse, the last meaning. StoryWorld knows what each word needs, so we can ask. In the shipped model we take out one block at a time: whatever it added to the stream is left away.

# %% rows=["S4-4"]
some = held_out[:40]
kinds = ("pronoun", "name", "object", "place", "quotation", "trait")
print(f"{'without':<9}" + "".join(f"{kind:>11}" for kind in kinds))
for i, block in enumerate([None, *model.blocks]):
    hook = block and block.register_forward_hook(lambda block, given, made: given[0])
    right = gaps(model, tokenizer, some)
    print(f"{f'block {i}' if block else 'none':<9}" + "".join(f"{right[kind].right:>11.0%}" for kind in kinds))
    if hook:
        hook.remove()

# %% [markdown]
# The table says how often the right word is the model's first choice. There is no ladder: each block is needed for several kinds of words, and most kinds need more than one block. Fetching takes steps that build on one another (lesson 05), and depth buys steps. What a layer of a large
# model does is an open question of research; a tidy ladder is a picture, not a finding.

# %% [markdown] slide="slide" minutes=7
# ## 3. A law, and what it cannot know
# Put the grid into one formula (Hoffmann et al. 2022, section 3.3):
#
# $$L(N, D) = E + \frac{A}{N^a} + \frac{B}{D^b}$$
#
# $E$ is the **irreducible** loss: what is left with endless parameters and endless text. For given exponents $a$ and $b$ the formula is linear in $E$, $A$ and $B$, so least squares finds them (lesson 02's matrices, solved by `lstsq`). We try all pairs of exponents and keep the best.

# %%
exponents = torch.arange(0.1, 3.01, 0.1, dtype=torch.float64)


def fit(N, D, loss) -> dict[str, float]:
    """The E, A, B, a and b with the smallest mean squared error. N in units of 10,000, D of 100,000."""
    best = {"error": float("inf")}
    for a in exponents:
        by_size = ((N / 1e4) ** -a).expand(len(exponents), -1)  # (30, rows): the same for each b
        by_length = (D / 1e5) ** -exponents[:, None]  # (30, rows)
        columns = torch.stack([torch.ones_like(by_length), by_size, by_length], 2)  # (30, rows, 3)
        solved = torch.linalg.lstsq(columns, loss[None, :, None].expand(len(exponents), -1, -1)).solution  # (30, 3, 1)
        errors = (columns @ solved - loss[:, None]).square().mean((1, 2))  # (30)
        i = errors.argmin()
        if errors[i] < best["error"]:
            E, A, B = solved[i, :, 0].tolist()
            best = {"error": errors[i].item(), "E": E, "A": A, "B": B, "a": a.item(), "b": exponents[i].item()}
    return best


# %%
law = fit(grid[:, 0], grid[:, 1], mean)
print("  ".join(f"{name} {law[name]:.2f}" for name in ("E", "A", "a", "B", "b")))
print(f"the typical miss is {law['error'] ** 0.5:.2f} nats")

# %% [markdown]
# Does the fit deserve trust? A first answer: leave out one row of the grid at a time and fit again.

# %%
keeps = [torch.arange(len(grid)) != i for i in range(len(grid))]
refits = [fit(grid[keep, 0], grid[keep, 1], mean[keep])["E"] for keep in keeps]
print(f"E from {min(refits):.2f} to {max(refits):.2f} when one row is left out")

# %% tags=["source-hidden"]
predict(
    "For English the floor is unknown, and a fitted E is all there is. For StoryWorld it is known. How well does our grid know E?",
    key=lambda: "hardly at all" if max(refits) - min(refits) > 0.3 else "well",
    choices={
        "well": "Look at what one row of the grid more or less does to it.",
        "hardly at all": "",
    },
    because="E is where the curve goes far to the right of all points: leaving out one of them moves it more than the models differ.",
)

# %%
entropies = storyworld.entropies(tokenizer, n_stories=1_000)
print(f"E of the fit {law['E']:.2f}, the floor {entropies.floor:.2f} nats per token")


# %%
def predicted(N: float, D: float) -> float:
    return law["E"] + law["A"] * (N / 1e4) ** -law["a"] + law["B"] * (D / 1e5) ** -law["b"]


N, D = count_parameters(model.config).total, recipe["total_steps"] * recipe["batch_size"] * recipe["seq_len"]
print(f"the shipped model, {N:,} parameters and {D:,} tokens:")
print(f"the law says {predicted(N, D):.2f}, it has {loss_of(model):.2f}, the floor is {floor:.2f}")

# %% [markdown]
# Nobody can make this comparison for English. Here it shows two things. The fit's best guess is not the floor, and the refits reach from a loss that is impossible to one that the shipped model beats. The shipped model is far beyond the grid, so what the law says of it is little more than $E$: **a law is strong where it was
# measured, and its irreducible term lies where nothing was measured.** And formulas know no floor: least squares may put $E$ below what any model can reach, and nothing complains.
#
# Other limits, which a published law has too, at another scale: few sizes; one shape (two layers); learning rates that were tuned for one size; embeddings counted among the parameters; one language. And the typical miss is larger than the seeds' differences: the formula is not quite the right one, and error bars over seeds cannot tell that.

# %% [markdown] tags=["note"]
# The common wrong answer: "E is the entropy of the language". It is a parameter of a curve. Ask what would have to be true for the two to agree.

# %% [markdown] slide="slide" minutes=5
# ## 4. What Chinchilla says
# A budget C is given. Large model and little text, or small model and much text? Hoffmann et al. (2022) trained over 400 models and asked in three ways: for each size the best length, read off the training curves; for each budget the best size on a curve of equal compute; and the formula of section 3. All three said: **let N and D grow
# alike**, each with about the root of C. Their model Chinchilla follows it. How many tokens for each parameter?

# %%
published = {  # parameters, training tokens, source
    "GPT-3": (175e9, 300e9, "Brown et al. 2020"),
    "Chinchilla": (70e9, 1.4e12, "Hoffmann et al. 2022"),
    "Llama 2 7B": (7e9, 2e12, "Touvron et al. 2023"),
    "Llama 3 8B": (8e9, 15e12, "Grattafiori et al. 2024"),
}
for name, (N, D, source) in published.items():
    print(f"{name:<11} {6 * N * D:.1e} FLOPs, {D / N:>6,.1f} tokens per parameter ({source})")

# %% [markdown]
# About 20 is the number that is remembered. Three things are often said wrongly about it:
#
# - **It is no law of nature.** It is the best use of *training* compute for those models and that text. A small model that is used often is cheaper to run, so it pays to train it longer: look at the two Llamas.
# - **It is not "a model needs 20 tokens per parameter".** More tokens still help. They would help more in a larger model.
# - **The formula's published numbers do not give 20.** They were fitted again later (Besiroglu et al. 2024):

# %%
fits = {  # A, B, a, b
    "Hoffmann et al. 2022": (406.4, 410.7, 0.34, 0.28),
    "Besiroglu et al. 2024": (482.01, 2085.43, 0.3478, 0.3658),
}
for source, (A, B, a, b) in fits.items():
    G = (a * A / (b * B)) ** (1 / (a + b))
    N = G * (5.76e23 / 6) ** (b / (a + b))  # Chinchilla's budget
    print(f"{source}: {N:.1e} parameters, {5.76e23 / 6 / N / N:.0f} tokens per parameter")

# %% [markdown]
# An exponent acts on a huge number, so a small error in it is a large one in N. That is section 3 again. Kaplan et al. (2020) had found that N should grow much faster than D. Hoffmann et al. name a cause: their runs were compared in the middle of a learning-rate schedule that was made for more tokens. We try that in "Break it".
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

# %% [markdown] slide="slide" minutes=5
# ## 5. One update in pieces
# More compute per second comes from larger batches. Does a larger batch teach more? Its gradient is a mean over texts, so it has less noise. By how much? We compare the gradients of small batches with that of 64 texts.


# %%
def gradient(model: TransformerLM, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


# %%
pupil = small(32, seed=0)
list(updates(pupil, 50, seed=0))
x, y = next(RandomWindows(ids, 64, 128, seed=99, starts=starts))  # (64, 128)
whole = gradient(pupil, x, y)
noise = {}
for B in (1, 4, 16):
    parts = [gradient(pupil, x[i : i + B], y[i : i + B]) for i in range(0, 64, B)]
    noise[B] = torch.stack([(part - whole).norm() / whole.norm() for part in parts]).mean().item()

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
print("distance, in lengths of the gradient of all 64:", {B: round(distance, 1) for B, distance in noise.items()})

# %% [markdown]
# (At 16 the distance is a little too small: a quarter of the 64 are its own texts.) While the noise is larger than the gradient, a larger batch gives a better direction. Once it is small, twice the batch is twice the cost for the same update. McCandlish et al. (2018) call the place between the two the **critical batch size**.
#
# And when the batch that you want does not fit into memory? **Accumulate**: several backward passes, their gradients averaged, one update (`micro_steps`, lesson 11). Or keep less: with **activation recompute** each block keeps its input only, and computes the rest again in the backward pass.

# %%
parts = [gradient(pupil, x[i : i + 4], y[i : i + 4]) for i in range(0, 16, 4)]
torch.testing.assert_close(torch.stack(parts).mean(0), gradient(pupil, x[:16], y[:16]), atol=1e-5, rtol=1e-4)


# %%
def kept_bytes(model: TransformerLM, x: torch.Tensor, y: torch.Tensor) -> int:
    """What a forward pass keeps for the backward pass, without the weights."""
    own, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    return sum(n for place, n in kept.items() if place not in own)


# %%
torch.manual_seed(15)
deep = TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, d_model=64, n_layers=8)).train()
held = {"16 texts": kept_bytes(deep, x[:16], y[:16]), "4 texts": kept_bytes(deep, x[:4], y[:4])}
deep.recompute = True
held["16 texts, recomputed"] = kept_bytes(deep, x[:16], y[:16])
for name, n_bytes in held.items():
    print(f"{name:<21} {n_bytes / 1e6:5.0f} MB kept")

# %%
seconds = {}
for deep.recompute in (False, True, False, True):
    began = time.perf_counter()
    gradient(deep, x[:16], y[:16])
    seconds[deep.recompute] = time.perf_counter() - began
print("with recompute:", measured(seconds[True] / seconds[False], "times as long", 0.5, 5))

# %% [markdown]
# A forward pass is a third of the work, so computing it twice should cost about a third more time. The memory falls much more than that. (Chen et al. 2016.)

# %% [markdown] slide="slide" minutes=6
# ## 6. Many processes
# A batch in pieces can also go to many machines. In **data-parallel** training every process has a copy of the model and a part of the batch. Then all of them average their gradients, an **all-reduce**, and make the same update. By hand, with two processes in one:

# %%
parts = [gradient(pupil, x[:8], y[:8]), gradient(pupil, x[8:16], y[8:16])]
averaged = (parts[0] + parts[1]) / 2
torch.testing.assert_close(averaged, gradient(pupil, x[:16], y[:16]), atol=1e-5, rtol=1e-4)

# %%
uneven = (gradient(pupil, x[:12], y[:12]) + gradient(pupil, x[12:16], y[12:16])) / 2
off = (uneven - averaged).norm() / averaged.norm()
print(f"12 and 4 texts instead of 8 and 8: the plain mean is off by {off:.0%}")

# %% [markdown]
# With unequal parts the mean of the means is not the mean: a text of the small part weighs three times as much. So the library gives every process equally many, and otherwise one has to weigh.
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
# **torchrun** starts the processes and tells each its **rank**, its number. Inside, the same `train` runs as with one. Two strategies: `ddp` is what we did by hand. In `fsdp` each process *keeps* only a shard of every
# parameter, its gradient and its moments; a block is put together when it computes, and taken apart again (Rajbhandari et al. 2020 and Zhao et al. 2023). First one process, then two, on a tiny text.

# %%
folder = tempfile.TemporaryDirectory()
text = Path(folder.name) / "text.txt"
_ = text.write_text("the cat sat on the mat and the dog sat on the log . " * 40)
command = f"train --corpus {text} --d-model 16 --n-layers 2 --n-heads 2 --seq-len 16 --batch-size 4"
command += " --total-steps 5 --sample-tokens 0 --device cpu --precision fp32"
START = {"none": "-m", "ddp": "-m torch.distributed.run --standalone --nproc-per-node 2 -m"}
START["fsdp"] = START["ddp"]


# %%
def losses_of(strategy: str) -> list[float]:
    out = Path(folder.name) / strategy
    arguments = f"{START[strategy]} tinylm_lib {command} --strategy {strategy} --out {out}".split()
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *arguments], env=quiet, check=True, capture_output=True, timeout=240)
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [entry["loss"] for entry in log if "loss" in entry]


# %% tags=["slow"]
curves = {strategy: losses_of(strategy) for strategy in START}
for strategy, losses in curves.items():
    print(f"{strategy:<5}" + "".join(f"{loss:8.2f}" for loss in losses))
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(curves["none"]), rtol=1e-5, atol=0)
folder.cleanup()

# %% [markdown]
# The same losses, to 5 digits (`rtol`, the allowed relative difference, says so): sums in another order round elsewhere in the last digits. More processes change how long it takes, not what is learned. (On a system without `torchrun`'s support for the CPU, read this section; the outputs are stored.)

# %%
for n in (1, 2, 8):
    print(f"{n} processes with fsdp: {16 / n:4.0f} bytes per parameter in each, and its own texts' activations")
show(train)

# %% [markdown] slide="slide" minutes=5
# ## 7. Seven billion, a trillion
# Now the large ones, on paper: a **7B** is Llama 2's published shape, the **1T** (a trillion) one that we make up, a dense model of 128 layers. On the meta device the 7B is built without a byte.

# %%
seven = configs["Llama 2 7B"]
trillion = preset("llama", "2-7b", d_model=25_600, n_layers=128, n_heads=200)
with torch.device("meta"):
    assert sum(p.numel() for p in TransformerLM(seven).parameters()) == count_parameters(seven).total

# %%
PEAK, SHARE, GPU_BYTES = 989e12, 0.4, 80e9  # H100, bf16 without sparsity, and its memory: NVIDIA's data sheet, 2023


def plan(config, tokens: float, n_gpus: int, peak: float = PEAK) -> tuple[float, float]:
    """FLOPs and days of training, at 40 % of the peak."""
    T = config.max_seq_len
    flops = training_flops(config, 1, T) / T * tokens
    seconds = flops / (n_gpus * peak * SHARE)
    assert abs(mfu(flops, seconds, n_gpus * peak) - SHARE) < 1e-9
    return flops, seconds / 86_400


# %%
for name, config, n_gpus in (("7B", seven, 256), ("1T", trillion, 16_384)):
    N = count_parameters(config).total
    flops, days = plan(config, 20 * N, n_gpus)
    need = training_bytes(config) / GPU_BYTES
    print(f"{name}: {N / 1e9:,.1f} billion parameters, {training_bytes(config) / 1e9:,.0f} GB to train")
    print(f"    more than {need:,.1f} GPUs to hold them; {20 * N / 1e12:.2f} trillion tokens, {flops:.1e} FLOPs")
    print(f"    on {n_gpus:,} GPUs {days:,.1f} days")

# %% tags=["source-hidden"]
n_7, n_1000 = (count_parameters(config).total for config in (seven, trillion))
predict(
    "The 1T has about 150 times the parameters of the 7B, and reads 20 tokens for each. How many times the FLOPs does it take?",
    key=lambda: (
        "about 22,000" if 20_000 < plan(trillion, 20 * n_1000, 1)[0] / plan(seven, 20 * n_7, 1)[0] < 25_000 else "?"
    ),
    choices={
        "about 150": "That is the parameters alone. The tokens grow with them.",
        "about 22,000": "",
        "about 3,400,000": "Parameters and tokens make two factors, not three.",
    },
    because="150 times the parameters, 150 times the tokens.",
)

# %% [markdown]
# Does such a plan agree with anything real? Llama 2's makers report their GPU hours. They had A100s, with 312e12 FLOPs per second, and read 2 trillion tokens:

# %%
hours = plan(seven, 2e12, 1, peak=312e12)[1] * 24
print(f"planned {hours:,.0f} GPU hours, reported 184,320 (Touvron et al. 2023)")

# %% [markdown]
# Close. A line of arithmetic predicts a training of months, provided that the share of the peak is right: 40 % is what good runs reach (lesson 14 measured yours).

# %% [markdown] slide="slide" minutes=3
# ## 8. Break it: reading a law off one run
# Why train anew for each length? One long run passes all lengths on its way, and its curve has a loss for each. Here are runs of 100 updates, stopped for a look at 50, beside the runs of 50 of section 2. In each the learning rate falls to 0 at the run's own end.

# %% tags=["slow"]
halfway = []
for seed in range(2):
    long = small(16, seed)
    for step in updates(long, 100, seed):
        if step.step == 50:
            halfway.append(loss_of(long))
own = live[count_parameters(long.config).total][:2]
in_the_middle, at_the_end = sum(halfway) / 2, sum(own) / 2

# %% tags=["source-hidden", "slow"]
predict(
    "Both have made 50 updates on the same batches. Which has the lower loss?",
    key=lambda: "the long run in its middle" if in_the_middle < at_the_end - 0.05 else "the short run at its end",
    choices={
        "the short run at its end": "So it is in long trainings: a falling rate lets the weights settle. Here 50 updates are so few that weights which hardly move any more cost more than that.",
        "the long run in its middle": "",
        "they are equal": "The batches are equal, the learning rates are not.",
    },
    because="Its rate is still half the peak where the short run's is 0, and so early movement is what counts.",
)

# %% tags=["slow"]
print(f"after 50 of 50 updates {at_the_end:.1f}, after 50 of 100 {in_the_middle:.1f} nats per token (2 seeds)")

# %% [markdown]
# The middle of a run is not a run of that length, and no message shows it. In long trainings the sign is the other one: there the middle looks worse than a run that ends, and so short trainings seemed worse than they are (Hoffmann et al. 2022, section 2). Either way a law that is read off one run bends.
#
# ## What you have now
# - C = 6 N D, nearly: 2 FLOPs forward and 4 backward for each weight and token.
# - A scaling law is a curve through measurements. Inside their range it predicts; its E is not the floor, and error bars do not say so.
# - Chinchilla: for the best use of training compute, N and D grow alike, about 20 tokens per parameter. Models that are used much are trained far longer.
# - Batches in pieces give the same update: accumulated, recomputed, or in many processes, if every target weighs the same.
# - Sharding divides the 16 bytes per parameter; a plan for a trillion parameters fits on one page.
#
# This is the last lesson. Ten questions for you, each with the lesson to go back to if the answer does not come:

# %% rows=["S4-59"]
QUESTIONS = {
    "Why can a tokenizer's choice change the loss per token, and not the loss per byte?": "01",
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

# %% rows=["S4-60"]
READING = {
    "the model": ["Vaswani et al. 2017, Attention Is All You Need"],
    "language models": [
        "Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
        "Brown et al. 2020, Language Models are Few-Shot Learners",
    ],
    "learning in deep stacks": [
        "He et al. 2015, Delving Deep into Rectifiers",
        "Xiong et al. 2020, On Layer Normalization in the Transformer Architecture",
    ],
    "scale": [
        "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models",
        "nostalgebraist 2022, chinchilla's wild implications (a post on LessWrong)",
    ],
    "code": ["nanoGPT and minbpe (Karpathy)", "torchtitan (PyTorch)"],
}
for group, works in READING.items():
    print(f"{group}:\n    " + "\n    ".join(works))

# %% [markdown]
# ## Sources
# - C = 6ND, and laws before Chinchilla: Kaplan et al. 2020, *Scaling Laws for Neural Language Models*, sections 2.1 and 6.
# - Hoffmann et al. 2022, *Training Compute-Optimal Large Language Models*, section 3 (three approaches) and section 2 (the schedule).
# - The second fit: Besiroglu et al. 2024, *Chinchilla Scaling: A replication attempt*.
# - Batch size: McCandlish et al. 2018, *An Empirical Model of Large-Batch Training*.
# - Recompute: Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost*, section 3.
# - Shards: Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*; Zhao et al. 2023, *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*.
# - GPU hours: Touvron et al. 2023, *Llama 2: Open Foundation and Fine-Tuned Chat Models*, table 2.
# - Training tokens: Brown et al. 2020, *Language Models are Few-Shot Learners*; Grattafiori et al. 2024, *The Llama 3 Herd of Models*.
