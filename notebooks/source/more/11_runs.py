# %% [markdown]
# # 11 Runs
# **Training for long runs: what must hold when a run takes hours, not seconds?**
#
# *Needs* lesson 11. *Runs* in about 25 s on two cores.

# %%
import itertools
import math

import torch

from tinylm_classroom import figures, predict

# %%
from tinylm_lib import TrainConfig, TransformerLM, evaluate, next_token_loss, preset, storyworld, train
from tinylm_lib.data import RandomWindows, every_document, split
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.training import build_optimizer

# %%
tokenizer = load_pretrained("storyworld").tokenizer
line_end, T = tokenizer.ids["\n"], 32
stories = storyworld.corpus(1200, seed=0).splitlines(keepends=True)
training, held_out = split(stories, validation_share=0.1)
train_ids = torch.tensor(tokenizer.encode("\n" + "".join(training)))  # (N)
new_ids = torch.tensor(tokenizer.encode("".join(held_out)))


# %%
def fresh(seed: int = 1) -> TransformerLM:
    """A small model with random weights."""
    torch.manual_seed(seed)
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, d_model=48))


# %% [markdown]
# ## 1. How good is it, really?
# A long run reports a number now and then. The number must come from text that was held out. To see why, a small model reads only 40 stories, again and again. We measure it on training windows, on windows held out by shuffling (the leak of lesson 11), and on new stories.

# %%
few = torch.tensor(tokenizer.encode("".join(training[:40])))
order = torch.randperm(len(few) - T, generator=torch.Generator().manual_seed(1))
used = order[len(order) // 10 :]
every_window = few.unfold(0, T + 1, 1)  # a row for every start

# %%
groups = {
    "training": every_window[used[:64]],
    "leak": every_window[order[:64]],
    "new stories": new_ids.unfold(0, T + 1, T + 1)[:64],
}

# %%
again = TrainConfig(total_steps=160, schedule="cosine", precision="fp32", optimizer="adamw", matrix_lr=0.01)
small = fresh()
courses = {name: [] for name in groups}
seen_at, kept = [], {}
for s in train(small, build_optimizer(small, again), RandomWindows(few, 16, T, starts=used), again):
    if s.step in (10, 20, 40, 80, 160):
        seen_at.append(s.step)
        kept[s.step] = {name: tensor.clone() for name, tensor in small.state_dict().items()}
        for name, rows in groups.items():
            courses[name].append(evaluate(small, [(rows[:, :-1], rows[:, 1:])]).nats_per_token)

# %% tags=["signature", "source-hidden"]
figures.loss_curve(
    {name: (seen_at, losses) for name, losses in courses.items()},
    title="Only new text shows overfitting",
    caption="On new stories the loss rises again, while the model memorizes the 40 stories. The leak shows nothing of it.",
)

# %% tags=["source-hidden"] evidence="overfitting" tried="seeds"
# Checked, in three other models too: the loss on new stories rises, the other two do not.
SEEDS = (2, 3, 4)


def losses_of(seed):
    lm = fresh(seed)
    for s in train(lm, build_optimizer(lm, again), RandomWindows(few, 16, T, starts=used), again):
        if s.step in (80, 160):
            yield {name: evaluate(lm, [(x[:, :-1], x[:, 1:])]).nats_per_token for name, x in groups.items()}


for early, late in map(losses_of, SEEDS):
    assert late["new stories"] > early["new stories"] + 0.1 and late["leak"] < early["leak"]
assert all((losses[-1] > min(losses) + 0.1) == (name == "new stories") for name, losses in courses.items())

# %% [markdown]
# That is **overfitting**: the training loss falls while the loss on new text rises. [[overfitting]] **Early stopping** keeps the weights with the lowest validation loss. Which words of a new story become worse?


# %%
def word_losses(model, text):
    """The loss of each word of a text, in nats."""
    ids = torch.tensor([tokenizer.encode("\n" + text)])  # (1, T + 1)
    with torch.no_grad():
        log_probs = model(ids[:, :-1]).log_softmax(-1)  # (1, T, V)
    return (-log_probs.gather(-1, ids[:, 1:, None]))[0, :, 0].tolist()


# %%
shaded = {}
for step in (80, 160):
    small.load_state_dict(kept[step])
    shaded[f"after {step} updates"] = word_losses(small, held_out[0].strip())

# %% tags=["source-hidden"]
figures.shaded_words(
    [word.strip() for word in storyworld.words(held_out[0].strip())],
    shaded,
    title="The darkest words are those that it never read",
    caption="A new story, each word shaded by its loss, up to 12 nats. Dalia, basket, kite and pie are in none of the 40 stories.",
    limit=12,
    learned=True,
)

# %% tags=["source-hidden"] evidence="unseen-words" tried="held-out"
# Checked in 30 new stories: words that are in none of the 40 have by far the highest loss.
known = set(storyworld.words("".join(training[:40])))
losses = {True: [], False: []}
for text in map(str.strip, held_out[:30]):
    for word, loss in zip(storyworld.words(text), word_losses(small, text), strict=True):
        losses[word in known].append(loss)
means = {kind: sum(each) / len(each) for kind, each in losses.items()}
assert "Dalia" not in "".join(training[:40]) and means[False] > 7 > 3 > means[True]

# %% [markdown]
# Mostly those that are in none of the 40 stories: the model has learned that they never come. [[unseen-words]]
#
# Three numbers say the same thing in other units:

# %% rows=["S4-54"] evidence="units" tried="exact"
n_bytes = len("".join(held_out).encode())
small.load_state_dict(kept[80])
new = evaluate(small, every_document(new_ids, line_end, batch_size=32), n_bytes)
print(
    f"{new.nats_per_token:.1f} nats per token, perplexity {new.perplexity:.0f}, {new.bits_per_byte:.1f} bits per byte"
)
assert math.isclose(new.perplexity, math.exp(new.nats_per_token)) and small.training
assert math.isclose(new.bits_per_byte, new.nats_per_token * new.n_tokens / math.log(2) / n_bytes)

# %% [markdown]
# **Perplexity**, $e$ to the power of the loss, is the number of equally likely tokens with the same loss. **Bits per byte** divide the loss of a text by its bytes, so they compare models with different tokenizers (lesson 01). [[units]] `evaluate` switches to evaluation mode and back; if you forget the way back, you train on without dropout.

# %% [markdown]
# ## 2. The loss is NaN
# A loss of NaN stays NaN. Here the mask of the second block has one diagonal too few, so the first position may look at nothing, and its softmax divides 0 by 0.

# %%
from tinylm_classroom import capture
from tinylm_lib.attention import Attention


# %%
class Strict(Attention):
    def mix(self, q, k, v, mask=None):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        earlier = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1)
        weights = scores.masked_fill(~earlier, -math.inf).softmax(-1)
        return (weights @ v).transpose(-3, -2).flatten(-2)  # (B, H, T, D) -> (B, T, H*D)


# %%
broken = fresh()
broken.blocks[1].attention = Strict(broken.config)
x, y = next(RandomWindows(train_ids, 8, T, seed=5))  # (8, T) each

# %%
loss = next_token_loss(broken(x), y)
loss.backward()
has_nan = [p.grad.isnan().any().item() for p in broken.parameters()]
print(f"loss {loss.item()}; NaN in {sum(has_nan)} of {len(has_nan)} gradients")

# %% [markdown]
# Nearly all gradients are NaN, so they do not say where it began. The forward pass does: `capture` keeps every module's input and output in the order of the run. Which output is the first bad one?

# %% rows=["S4-50"] evidence="first-bad" tried="exact"
caught = capture(broken, x)
bad = [name for name, output in caught.outputs.items() if not output.isfinite().all()]
at_positions = caught.inputs[bad[0]].isnan().any(-1)[0].nonzero().flatten().tolist()
print(f"first bad module: {bad[0]}; its input is already NaN at positions {at_positions}")
print("v_proj is fine:", caught.outputs["blocks.1.attention.v_proj"].isfinite().all().item())
assert bad[0] == "blocks.1.attention.o_proj" and at_positions == [0]

# %% [markdown]
# So it happened between `v_proj` and `o_proj` of block 1, in its `mix`, and only at position 0: a row of the mask without any allowed position. [[first-bad]] If a NaN first appears in the backward pass, `torch.autograd.set_detect_anomaly(True)` names the operation.
#
# Before it comes to that, watch the gradients, with **norms**, not means:

# %% evidence="norms-not-means" tried="exact"
healthy = fresh()
next_token_loss(healthy(x), y).backward()
head = healthy.lm_head.weight.grad  # (V, C)
for factor in (1, 1000):
    print(f"lm_head times {factor:>4}: norm {factor * head.norm():7.2f}, mean {abs(factor * head.mean()):.4f}")
assert abs(1000 * head.mean()) < 1e-4 < head.norm()

# %% [markdown]
# A gradient a thousand times too large has the same mean. It is 0 by construction: for each prediction the gradients of the logits sum to 0, because probabilities sum to 1. [[norms-not-means]]

# %% [markdown]
# ## 3. A schedule, and a limit for gradients
# At step 1 AdamW moves every weight by about the full rate, although its gradient comes from a single batch. A **warm-up** makes the first steps small: a straight line from 0 at step 0 to the peak at step $W$. Later the rate falls, because near the goal large steps jump across it: half a **cosine** up to the last step $N$ ([Loshchilov and Hutter 2016](https://arxiv.org/abs/1608.03983)):
#
# $$\text{lr}(t) = \text{floor} + (\text{peak} - \text{floor})\;\tfrac{1}{2}\Bigl(1 + \cos\bigl(\pi\,\tfrac{t - W}{N - W}\bigr)\Bigr)$$


# %%
def warmup_cosine(step, peak, floor, warmup_steps, total_steps):
    """The learning rate of a step, counted from 1."""
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2


# %% tags=["source-hidden"] rows=["S4-52"] evidence="schedule" tried="exact"
from tinylm_lib.training import warmup_cosine as library_schedule

at_steps = range(1, 12_001, 50)
rates = [warmup_cosine(step, 1e-3, 1e-4, 500, 10_000) for step in at_steps]
assert rates == [library_schedule(step, 1e-3, 1e-4, 500, 10_000) for step in at_steps]
with figures.axes("Warm-up, then half a cosine", "step", "learning rate", (9.6, 3.8)) as (figure, ax):
    ax.plot(at_steps, rates)
    ax.set(ylim=(0, 0.00108))
marked = (1, 500, 5250, 10_000)
figures.display(
    figure,
    alt="The learning rate rises in a straight line to 0.001 at step 500, falls along half a cosine to 0.0001 at step 10,000, and stays there.",
    caption="Peak 0.001, floor 0.0001, W = 500, N = 10,000; the library's schedule is the same at every step.",
    table={"step": marked, "rate": [f"{warmup_cosine(step, 1e-3, 1e-4, 500, 10_000):.6f}" for step in marked]},
)

# %% [markdown]
# Our function is the library's schedule. [[schedule]]
#
# Sometimes a batch has a huge gradient. **Clipping** limits its length: above the limit, all numbers shrink by one factor, so the direction stays. The length is that of *all* gradients together ([Pascanu et al. 2013](https://arxiv.org/abs/1211.5063)). Two tensors, (3, 4) and (12), have lengths of 5 and 12, together $\sqrt{5^2 + 12^2} = 13$.


# %%
def clip_gradients(grads, max_norm):
    """The gradients, shortened by one factor to a common length of at most max_norm."""
    length = torch.stack([g.norm() for g in grads]).norm()
    factor = max_norm / length if length > max_norm else 1.0
    return [g * factor for g in grads]


two = [torch.tensor([3.0, 4.0]), torch.tensor([12.0])]

# %% tags=["source-hidden"]
predict(
    "The limit is 6.5. What becomes of the 12?",
    key=lambda: f"{clip_gradients(two, 6.5)[1].item():g}",
    choices={
        "12": "The length of the whole is above the limit: every number shrinks.",
        "6.5": "Then each tensor would be clipped by itself, and the direction would turn.",
        "6": "",
    },
    because="The length of 13 is halved, so every number is.",
)

# %% evidence="clipping" tried="exact"
print([g.tolist() for g in clip_gradients(two, 6.5)])
parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in two]
for p, g in zip(parameters, two, strict=True):
    p.grad = g.clone()
torch.nn.utils.clip_grad_norm_(parameters, 6.5)
torch.testing.assert_close([p.grad for p in parameters], clip_gradients(two, 6.5))

# %% [markdown]
# PyTorch's clipping gives the same. [[clipping]] The library's `train` has both, as a recipe, and yields after each update so that the caller can look, save or stop.

# %%
recipe = TrainConfig(
    total_steps=20, schedule="cosine", warmup_steps=5, clip_norm=1.0,
    optimizer="adamw", matrix_lr=0.01, embedding_lr=0.01, precision="fp32",
)  # fmt: skip
model = fresh()
for s in train(model, build_optimizer(model, recipe), RandomWindows(train_ids, 16, T), recipe):
    if s.step in (1, 3, 5, 10, 20):
        print(f"update {s.step:>2}: {s.lr_share:4.0%} of the peak rate, loss {s.loss:.1f}")

# %% [markdown]
# ## 4. A batch too large for memory
# Read it in parts with equally many targets and add up the gradients: **accumulation**. Each part's loss is divided by the number of parts, so that the sum is the mean over all.

# %% rows=["S2-19"] evidence="accumulation" tried="exact"
x, y = next(RandomWindows(train_ids, 32, T, seed=2))  # (32, T) each
whole, parts = fresh(), fresh()
next_token_loss(whole(x), y).backward()
for micro_x, micro_y in zip(x.split(8), y.split(8), strict=True):
    (next_token_loss(parts(micro_x), micro_y) / 4).backward()
for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
    torch.testing.assert_close(p.grad, q.grad, atol=1e-5, rtol=1e-4)
print("4 parts of 8 windows: the gradient of all 32")

# %% [markdown]
# The sum over the parts is the gradient of the whole batch. [[accumulation]] AdamW would hide a missing division, because m and the root of v grow alike.

# %% [markdown]
# ## 5. Stop and resume
# What must be saved so that a run continues *exactly*? We train to the end without a stop; then half of it, save, load into another model, and the other half, with and without the optimizer's running means.

# %%
import tempfile
from pathlib import Path

from tinylm_lib.training import checkpoint


def run_parts(seed: int = 1):
    lm = fresh(seed)
    return lm, build_optimizer(lm, recipe), RandomWindows(train_ids, 8, T, seed=1)


straight = [s.loss.item() for s in train(*run_parts(), recipe)]
lm, optimizer, batches = run_parts()
*_, last = itertools.islice(train(lm, optimizer, batches, recipe), 10)

# %% rows=["S4-55"] evidence="resume" tried="exact"
with tempfile.TemporaryDirectory() as place:
    folder = Path(place) / "saved"
    checkpoint.save(folder, lm, optimizer, batches, step=last.step, tokenizer=tokenizer)
    for with_optimizer in (True, False):
        saved = checkpoint.load(folder)
        other, its_optimizer, its_batches = run_parts(seed=7)
        saved.restore(other, its_optimizer if with_optimizer else None, its_batches)
        rest = train(other, its_optimizer, its_batches, recipe, first_step=saved.step + 1)
        off = [abs(s.loss.item() - loss) for s, loss in zip(rest, straight[10:], strict=True)]
        assert (max(off) == 0) == with_optimizer
        print("with the optimizer's state: every loss is the same" if with_optimizer else "without: they differ")

# %% [markdown]
# Equal to the last bit. The checkpoint contains the weights, the optimizer's state, the position in the text, the step number (for the schedule) and the state of the random generators (for dropout). [[resume]]
#
# If you save a model with `torch.save` instead, three mistakes are common. Without its configuration nobody can build the model again. The file is a pickle, which can run any code if it is loaded with `weights_only=False`, the default of older versions of PyTorch, so this library stores tensors as safetensors. And a tensor that was saved on a GPU does not load on a computer without one, unless `map_location="cpu"` says where to put it.

# %% [markdown]
# ## 6. Fewer bits
# Numbers of half the size take half the bytes (lesson 14). **bf16** has 16 bits: the range of fp32, with fewer digits (lesson 03). May everything be bf16?

# %%
weight = torch.tensor(1.0, dtype=torch.bfloat16)
for _ in range(100):
    weight = weight - 0.001

# %% tags=["source-hidden"]
predict(
    "A weight in bf16 starts at 1 and makes 100 steps of -0.001. Where is it?",
    key=lambda: {1.0: "still at 1"}.get(weight.item(), "near 0.9"),
    choices={
        "near 0.9": "In fp32 it is. What is the next number below 1 in bf16?",
        "still at 1": "",
        "at 0": "Rounding stops it long before.",
    },
    because="bf16 has no number that near to 1: each step is rounded away.",
)

# %% evidence="bf16-weight" tried="exact"
assert weight.item() == 1
print(f"after 100 steps {weight.item()}; the next number below 1 is {1 - torch.finfo(torch.bfloat16).eps / 2:.3f}")

# %% [markdown]
# Updates that are small relative to the weight are lost. [[bf16-weight]] So weights, their updates and the loss stay in fp32, and only the products are computed in bf16: **mixed precision** ([Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740)). What does that do to the loss of one forward pass?

# %% evidence="bf16-products" tried="held-out"
for new_x, new_y in itertools.islice(every_document(new_ids, line_end, batch_size=32), 3):
    with torch.no_grad():
        full = next_token_loss(small(new_x), new_y)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = next_token_loss(small(new_x), new_y)
    assert 0 < abs(mixed - full) < 0.02
print("with its products in bf16 the loss is less than 0.02 away")

# %% [markdown]
# Rounded products hardly change the loss. [[bf16-products]]

# %% [markdown]
# ## 7. Muon
# AdamW treats a matrix as a list of numbers. But a matrix has directions, each with a strength, its **singular value**. **Muon** brings the strengths of the momentum close to each other ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)). A gradient of 2x2 shows the difference:

# %%
from tinylm_lib.training import orthogonalise

tiny = torch.tensor([[3.0, 1.0], [1.0, 3.0]])
steps_of = {"gradient": tiny, "Adam, first step": tiny.sign(), "Muon": orthogonalise(tiny[None])[0]}
for name, matrix in steps_of.items():
    strong, weak = torch.linalg.svdvals(matrix).tolist()
    numbers = (matrix.double().round(decimals=1) + 0.0).tolist()
    print(f"{name:<17}{numbers}  strengths {strong:.1f}, {weak:.1f}")

# %% tags=["source-hidden"] evidence="muon" tried="exact"
# Checked: Adam's first step ignores the weaker direction, Muon moves both.
assert torch.linalg.svdvals(tiny.sign())[1] < 1e-6
assert torch.linalg.svdvals(steps_of["Muon"])[1] > 0.9 * torch.linalg.svdvals(steps_of["Muon"])[0]

# %% [markdown]
# The gradient has two directions, (1, 1) with a strength of 4 and (1, -1) with a strength of 2. Adam's first step, all ones, moves the first and ignores the second. Muon moves both about equally. [[muon]] (Their sizes are inexact, because the iteration stops early.) In a real gradient the strengths differ more:

# %%
gradient = whole.blocks[0].attention.o_proj.weight.grad  # (C, C)
for name, matrix in (("gradient", gradient), ("Muon", orthogonalise(gradient[None])[0])):
    strengths = torch.linalg.svdvals(matrix)  # (C)
    print(f"{name:<9}the middle strength is {strengths.median() / strengths[0]:.2f} of the largest")

# %% [markdown]
# The embedding, the head and all vectors are left to AdamW. Lesson 14 measures Muon on a longer run.

# %% [markdown]
# ## Sources
# - How to train, and how to find mistakes: Karpathy 2019, [*A Recipe for Training Neural Networks*](https://karpathy.github.io/2019/04/25/recipe/).
# - The cosine: Loshchilov and Hutter 2016, [*SGDR: Stochastic Gradient Descent with Warm Restarts*](https://arxiv.org/abs/1608.03983), equation 5.
# - Clipping: Pascanu, Mikolov and Bengio 2013, [*On the Difficulty of Training Recurrent Neural Networks*](https://arxiv.org/abs/1211.5063), algorithm 1.
# - Mixed precision: Micikevicius et al. 2018, [*Mixed Precision Training*](https://arxiv.org/abs/1710.03740), section 3.
# - Muon: Jordan et al. 2024, [*Muon: An Optimizer for Hidden Layers in Neural Networks*](https://kellerjordan.github.io/posts/muon/).
