# %% [markdown] slide="slide" minutes=1
# # 11 Training
# **How does a model learn?**
#
# *Needs* lessons 03, 09 and 10. *Builds* `random_windows` in `data.py`, the schedule and AdamW's rule in `optim.py`, and explains `train` in `training.py`.
# *Runs* in about 45 s on two cores. *Teaches* in 45 minutes, plus 39 of exercises.

# %%
import itertools
import math
import tempfile
from pathlib import Path

import torch

from tinylm_lib import TrainConfig, TransformerLM, checkpoint, evaluate, next_token_loss, preset, storyworld, train
from tinylm_lib.attention import Attention, attend
from tinylm_lib.classroom import check, figures, hint, keep, predict, show, training_view
from tinylm_lib.classroom.cards import card, number_table
from tinylm_lib.data import RandomWindows, every_document, split
from tinylm_lib.optim import adamw_update, build_optimizer, orthogonalise
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.sampling import generate

_ = torch.manual_seed(11)

# %% [markdown] slide="slide" minutes=5
# ## 1. What is asked of it?
# A text has no labels. Where do the right answers come from? From the text itself: at each position the right answer is **the next token**, the **target**. Here is the
# beginning of a story, and below each word what is asked there.

# %%
shipped = load_pretrained("storyworld")
teacher, tokenizer = shipped.model.eval(), shipped.tokenizer
V, line_end = tokenizer.vocab_size, tokenizer.encode("\n")[0]
told = storyworld.story(torch.Generator().manual_seed(11)).text
tokens = tokenizer.encode("\n" + told)[:10]

# %% rows=["S4-21"]
words = [tokenizer.decode([token]).strip() or "(line end)" for token in tokens]
for i in range(4):
    print(f"reads {' '.join(words[: i + 1])} -> should say {words[i + 1]}")
print(f"{len(tokens)} tokens, {len(tokens) - 1} targets")

# %% [markdown]
# So targets are the inputs, **shifted by one**. The last token is nobody's input, since nothing is known behind it. And the causal mask of lesson 05 is what makes this a question at all: a model that
# saw the later tokens would find each answer in its own input. (BERT sees both sides, so it must hide words and can ask for these alone: Devlin et al. 2019.)
#
# The first line reads one word, the next one two. Must the model run once for each?

# %%
T = len(tokens)
read = torch.tensor([tokens])  # (1, T)
with torch.no_grad():
    at_once = teacher(read)  # (1, T) -> (1, T, V)
    one_by_one = torch.stack([teacher(read[:, : i + 1])[:, -1] for i in range(T)], dim=1)  # (1, T, V)

# %% tags=["source-hidden"]
predict(
    "`at_once` comes from one pass over the whole text, `one_by_one` from a pass over each beginning of it. How do the logits differ?",
    key=lambda: "not at all" if torch.allclose(at_once, one_by_one, atol=1e-3) else "clearly",
    choices={
        "clearly": "In the one pass, what does the mask let position 3 see?",
        "only the last rows agree": "Each row sees its own past and nothing else, in both cases.",
        "not at all": "",
    },
    because="The mask shows each position its past alone, which is all that a pass over the beginning has.",
)

# %% rows=["S4-24"]
torch.testing.assert_close(at_once, one_by_one, atol=1e-4, rtol=1e-4)
print(f"one pass: {at_once.shape[1]} guesses; writing the same text: {T} passes, one token each")

# %% [markdown]
# That is why a Transformer trains fast: one pass gives all guesses at once, because the right words are known already. When it *writes*, they are not, and it goes token by token. The mask is needed there, too, as long as
# whole texts are read again (a published course note leaves it out); lesson 13 finds the one case where it is not.
#
# How wrong were the guesses? Each costs minus the logarithm of the share that the right token got (lesson 03), and the **loss** is the mean. By hand:

# %%
costs = []
for i in range(T - 1):
    shares = at_once[0, i].softmax(-1)  # (V)
    costs.append(-math.log(shares[tokens[i + 1]]))
by_hand = sum(costs) / len(costs)
print(*(f"{word} {cost + 0:.2f}" for word, cost in zip(words[1:], costs, strict=True)), sep="   ")
print(f"mean: {by_hand:.2f} nats per token")

# %% [markdown]
# Words that are drawn by chance are dear, words that could be known are cheap.
#
# ### Your turn
# Make inputs and targets of a whole batch.


# %% tags=["exercise"] name="next_token_pairs" minutes=4 difficulty=1
def next_token_pairs(ids):
    """ids (B, T), whole numbers, each row a text of its own. Returns inputs and targets, both (B, T - 1).

    At each position of the inputs the target is the token that follows it in the same row.
    """
    # SOLUTION
    return ids[:, :-1], ids[:, 1:]
    # END


# %% tags=["check"]
if check("next_token_pairs", next_token_pairs).passed:
    keep("next_token_pairs", next_token_pairs)

# %%
hint("next_token_pairs")

# %% [markdown] tags=["solution"]
# Two slices along the second axis: all but the last, all but the first. The usual slips: slicing the batch axis (`ids[1:]`); `roll`, which makes the first token the target of the last; and
# giving the same slice twice. Section 8 shows what the wrong shifts do to a training.

# %% rows=["S2-13"]
ids = torch.randint(10_000, (2, 16))  # (2, 16)
inputs, targets = ids[:, :-1], ids[:, 1:]
print(f"ids {tuple(ids.shape)}: inputs {tuple(inputs.shape)}, targets {tuple(targets.shape)}")
torch.testing.assert_close(next_token_loss(at_once[:, :-1], read[:, 1:]).item(), by_hand, atol=1e-4, rtol=1e-4)

# %% [markdown] tags=["note"]
# Let the room fill in the targets of one sentence on the board, and ask what stands below the last word. Common answer: the first word again. To cut for a short class: section 7 and the figure of the schedule.

# %% [markdown] slide="slide" minutes=4
# ## 2. Text in batches
# Before anything is cut, a part is put away for **validation**: text that the model never trains on. We take the end, in one piece, from a story's first word on.

# %%
stories = storyworld.corpus(2200, seed=0).splitlines(keepends=True)
lessons, unseen = split(stories, validation_share=0.1)
train_ids = torch.tensor(tokenizer.encode("\n" + "".join(lessons)))
new_ids = torch.tensor(tokenizer.encode("".join(unseen)))
print(f"{len(lessons)} stories, {len(train_ids):,} tokens to learn from, {len(unseen)} stories put away")

# %% [markdown]
# Would it not be fairer to shuffle? Training texts are cut into **windows** of T tokens, which may begin anywhere, so windows overlap. Cut all of them, shuffle, and put away a tenth:

# %%
T = 32
some = train_ids[:4000]
starts = torch.randperm(len(some) - T, generator=torch.Generator().manual_seed(1))
held, used = starts[: len(starts) // 10], starts[len(starts) // 10 :]
trained_on = torch.zeros(len(some), dtype=torch.bool)
trained_on[used[:, None] + torch.arange(T + 1)] = True
leaked = 100 * trained_on[held[:, None] + torch.arange(T + 1)].float().mean().item()

# %% tags=["source-hidden"]
predict(
    "A tenth of all windows is held out at random. How many % of the tokens in these windows stand in a training window, too?",
    key=lambda: leaked,
    number="%",
    within=1,
    feedback={
        90: "That is one neighbour's chance. Each token lies in many windows.",
        0: "Neighbouring windows share all tokens but one.",
    },
    because="A token lies in 33 windows, and it would have to be missing from all that train.",
)

# %%
print(f"shuffled: {leaked:.0f} % of the held-out tokens were trained on")

# %% [markdown]
# That is a **leak**: such a validation measures memory. Section 6 shows how it looks. So cut in one piece, where two texts meet.
#
# ### Batches
# A batch is B windows, each with its start drawn anew. Text, sizes and a seeded generator decide all of it, so a run can be repeated.

# %%
text = torch.arange(100, 112)  # 12 tokens that tell where they stand
for name, rows in zip(("inputs", "targets"), next(RandomWindows(text, batch_size=3, seq_len=4, seed=1)), strict=True):
    print(f"{name:<8}", rows.tolist())

# %% [markdown]
# ### Your turn
# Write it. A window needs seq_len tokens and one more for its last target. How many starts do the 12 tokens above leave for windows of 4?


# %% tags=["exercise"] name="random_windows" minutes=9 difficulty=2
def random_windows(tokens, batch_size, seq_len, generator):
    """tokens (N,), whole numbers. Returns x and y, both (batch_size, seq_len).

    Each row of x is a piece of the text, and the row of y the same piece one token later. Every start that leaves room for
    all of x and y is equally likely. All chance comes from `generator`, which is not seeded here.
    """
    # SOLUTION
    starts = torch.randint(len(tokens) - seq_len, (batch_size, 1), generator=generator)
    windows = tokens[starts + torch.arange(seq_len + 1)]
    return windows[:, :-1], windows[:, 1:]
    # END


# %% tags=["check"]
if check("random_windows", random_windows).passed:
    keep("random_windows", random_windows)

# %%
hint("random_windows")

# %% [markdown] tags=["solution"]
# The starts run from 0 to N - seq_len - 1, and `randint` leaves out its upper end: N - seq_len. A column of starts plus a row of offsets is a table of places. The usual slips: one start too few or too many; x and y
# drawn separately; starts at multiples of seq_len, which shows the model each token at one position only.

# %%
from tinylm_lib.data import random_windows as library_windows

x, y = library_windows(text, 200, 4, torch.Generator().manual_seed(1))  # (200, 4), (200, 4)
assert x[:, 0].unique().tolist() == list(range(100, 108)) and torch.equal(y, x + 1)
show(library_windows)

# %% [markdown] slide="slide" minutes=7
# ## 3. One step
# The **gradient** says for each parameter how the loss changes when it moves. Here is one batch of random tokens, the model `gpt` of lesson 10, and one step of the optimizer that most language models use:

# %% rows=["S2-15", "S2-16"]
torch.manual_seed(0)
gpt = TransformerLM(preset("gpt")).eval()
optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4)
loss = next_token_loss(gpt(inputs), targets)
loss.backward()
norm = torch.nn.utils.get_total_norm([p.grad for p in gpt.parameters()])
optimizer.step()
print(f"loss {loss:.2f}, gradient norm {norm:.1f}, loss after one step {next_token_loss(gpt(inputs), targets):.2f}")

# %% [markdown]
# (The **gradient norm** is the length of all gradients as one long vector.) One step, and this batch costs less. But what does the step do with a gradient?
#
# The plain way is `w - lr * g`, as in lesson 02, with `lr` the **learning rate**. Two things trouble it. One batch is a small sample, so g is noisy. And parameters differ: where gradients are a thousand times
# smaller, so are the steps. **Adam** answers both with running means: m of the gradient, v of its square. It steps by $m / \sqrt{v}$ (Kingma and Ba 2015). By hand, one weight, first step:

# %%
w, g, lr, beta1, beta2, decay = 1.0, 0.5, 0.1, 0.9, 0.999, 0.1
m = beta1 * 0 + (1 - beta1) * g
v = beta2 * 0 + (1 - beta2) * g**2
print(f"m {m:.3f}, v {v:.5f}")

# %% [markdown]
# Both means started at 0, so they are far too small: m is a tenth of g. After $t$ steps the start still has a weight of $\beta^t$, so divide by $1 - \beta^t$. At step 1 that is exactly what was lost. (Were steps counted from 0, it would be a division by 0.)

# %%
m_hat, v_hat = m / (1 - beta1**1), v / (1 - beta2**1)
print(f"corrected: m {m_hat:.2f}, v {v_hat:.2f}, m over root of v {m_hat / math.sqrt(v_hat):.2f}")


# %% tags=["source-hidden"]
def first_move(gradient: float) -> float:
    weight = torch.tensor([1.0], requires_grad=True)
    weight.grad = torch.tensor([gradient], dtype=torch.float32)
    torch.optim.AdamW([weight], lr=0.1, weight_decay=0).step()
    return 1 - weight.item()


predict(
    "With lr 0.1 and a gradient of 0.5 the first step moves the weight by 0.1. How far does it move with a gradient of 50?",
    key=lambda: "by 0.1" if abs(first_move(50) - 0.1) < 1e-3 else "by 10",
    choices={
        "by 10": "Here m is divided by the root of v, and both have grown.",
        "by 0.1": "",
        "by 5": "That is lr times g, the plain way.",
    },
    because="m is 100 times as large, and so is the root of v: at step 1 only the sign of the gradient counts.",
)

# %% [markdown]
# The W in **AdamW** is *weight decay*: beside the step, each weight shrinks by a share of itself, `lr * decay`, taken from the weight **that came in** (Loshchilov and Hutter 2017). Nothing of it enters m or v. Three ways to get it wrong, one step each:

# %%
step = lr * m_hat / math.sqrt(v_hat)
print(f"AdamW                        {w * (1 - lr * decay) - step:.3f}")
print(f"decay behind the step        {(w - step) * (1 - lr * decay):.3f}")
print(f"decay added to the gradient  {w - step:.3f}: the step keeps its size, so at first nothing decays")
print(f"decay not multiplied by lr   {w * (1 - decay) - step:.3f}")

# %% [markdown]
# ### Your turn
# One step for a tensor. With $g$ the gradient, $t$ the step counted from 1, and $\lambda$ the decay:
#
# $$m \leftarrow \beta_1 m + (1-\beta_1)\,g \qquad v \leftarrow \beta_2 v + (1-\beta_2)\,g^2 \qquad w \leftarrow w - \text{lr}\,\lambda\,w - \text{lr}\,\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}$$


# %% tags=["exercise"] name="adamw_step" minutes=12 difficulty=3
def adamw_step(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    """param, grad, m, v (...) of one shape and dtype; step counts from 1. Returns the new param, m and v, in that order.

    m and v are returned as they run on, without the correction. The arguments stay as they are.
    """
    # SOLUTION
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    size = (v / (1 - beta2**step)).sqrt() + eps
    param = param - lr * weight_decay * param - lr * m / (1 - beta1**step) / size
    return param, m, v
    # END


# %% tags=["check"]
if check("adamw_step", adamw_step).passed:
    keep("adamw_step", adamw_step)

# %%
hint("adamw_step")

# %% [markdown] tags=["solution"]
# Two running means, one correction each, one line for the weight. The usual slips: returning the corrected means, which are then corrected again; eps inside the root; beta1 and beta2 exchanged, which shows from the third step on; and the decay in the gradient.

# %% [markdown]
# Step by step against PyTorch, with another gradient at the third step. The library calls the same function of PyTorch's, for a whole group of tensors at once.

# %%
w, m, v = 1.0, 0.0, 0.0
weight = torch.tensor([1.0], requires_grad=True)
reference = torch.optim.AdamW([weight], lr=lr, betas=(beta1, beta2), eps=1e-8, weight_decay=decay)
for t, g in enumerate((0.5, 0.5, -0.2), start=1):
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    w = w - lr * decay * w - lr * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + 1e-8)
    weight.grad = torch.tensor([g])
    reference.step()
    print(f"step {t}: {w:.6f} by hand, {weight.item():.6f} by torch")
    assert abs(w - weight.item()) < 1e-6

# %%
show(adamw_update)

# %% [markdown] tags=["note"]
# Ask what happens to a weight whose gradient is always 0: m and v stay 0, eps prevents 0 / 0, and only the decay is left. A common wrong answer to the prediction is 10.

# %% [markdown] slide="slide" minutes=7
# ## 4. How large a step?
# At step 1 only signs count, and every weight moves by the full lr, on the word of one batch. Later, gradients that disagree cancel in m. How far do weights move then, as a share of lr?


# %%
def fresh(seed: int = 1, **sizes) -> TransformerLM:
    torch.manual_seed(seed)
    return TransformerLM(preset("modern", vocab_size=V, **{"d_model": 48, **sizes}))


# %%
small, batches = fresh(), RandomWindows(train_ids, batch_size=8, seq_len=T, seed=1)
optimizer = torch.optim.AdamW(small.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0)
for t in range(1, 21):
    x, y = next(batches)
    next_token_loss(small(x), y).backward()
    before = small.lm_head.weight.detach().clone()
    optimizer.step()
    optimizer.zero_grad()
    if t in (1, 2, 5, 20):
        print(f"step {t:>2}: {(small.lm_head.weight - before).abs().median() / 1e-3:.1f} of lr")

# %% [markdown]
# So the first steps are the largest, and the least founded. A **warm-up** makes them small: the rate rises in a straight line, from $1/W$ of its peak at step 1 to the peak at step W. (At step 0 it would be 0, so nobody starts there.)
# Afterwards it should fall, since near the goal large steps jump across it. Half a **cosine** does that gently:
#
# $$\text{lr}(t) = \text{floor} + (\text{peak} - \text{floor})\;\tfrac{1}{2}\Bigl(1 + \cos\bigl(\pi\,\tfrac{t - W}{N - W}\bigr)\Bigr)$$
#
# for steps $t$ from $W$ to $N$; after N it stays at the floor (Loshchilov and Hutter 2016, with the warm-up in front).
#
# ### Your turn


# %% tags=["exercise"] name="warmup_cosine" minutes=8 difficulty=2
def warmup_cosine(step, peak, floor, warmup_steps, total_steps):
    """The learning rate of a step, counted from 1, as a float; warmup_steps is at least 1 and below total_steps.

    Below warmup_steps a straight line towards the peak, which would be 0 at step 0; half a cosine from the peak at
    warmup_steps to the floor at total_steps; the floor after that.
    """
    # SOLUTION
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2
    # END


# %% tags=["check"]
if check("warmup_cosine", warmup_cosine).passed:
    keep("warmup_cosine", warmup_cosine)

# %%
hint("warmup_cosine")

# %% [markdown] tags=["solution"]
# Three parts with two borders, and one share of the way for the middle part. The usual slips: counting from 0, so that the first step does nothing; a cosine that begins at step 1; and no end, so that the cosine rises again.

# %%
from tinylm_lib.optim import warmup_cosine as library_schedule

show(library_schedule)


# %% tags=["source-hidden"] rows=["S4-52"]
def rate_at(step: int) -> float:
    return library_schedule(step, 1e-3, 1e-4, 500, 10_000)


picked = [1, 250, 500, 2000, 5250, 10_000, 11_000]
with figures.axes("Up in a line, down in half a cosine", "step", "learning rate") as (figure, ax):
    ax.plot(range(1, 11_001, 10), [rate_at(step) for step in range(1, 11_001, 10)])
    ax.set_ylim(0)
figures.show(
    figure,
    alt="Line chart: the learning rate rises from 0 to 0.001 at step 500, falls in half a cosine to 0.0001 at step 10000, and stays there.",
    caption="Peak 0.001, floor 0.0001, warm-up over 500 of 10,000 steps. Flat at the top and at the bottom, steep between.",
    table={"step": picked, "rate": [rate_at(step) for step in picked]},
)

# %% [markdown]
# ### Clipping
# Now and then a batch has a huge gradient. **Clipping** sets a limit to the gradient's length: above it, all numbers shrink by one factor, and the direction stays. The length is that of *all* gradients together (Pascanu et al. 2013). Two tensors, (3, 4) and (12):

# %%
lengths = [math.hypot(3, 4), 12.0]
print(f"lengths {lengths}, together {math.hypot(*lengths):.0f}")

# %% tags=["source-hidden"]
predict(
    "The limit is 6.5. What becomes of the 12?",
    key=lambda: 12 * 6.5 / math.hypot(3, 4, 12),
    number="units of the gradient",
    within=0.1,
    feedback={
        6.5: "Then each tensor would be clipped by itself, and the direction would turn.",
        12: "All together they are longer than the limit.",
    },
    because="The whole length is halved, so every number is.",
)


# %% tags=["exercise"] name="clip_gradients" minutes=6 difficulty=2
def clip_gradients(grads, max_norm):
    """grads: a list of tensors of any shapes. Returns a list of tensors of the same shapes and dtypes.

    Where the length of all numbers together exceeds max_norm, all are multiplied by the one factor that makes it
    max_norm; where it does not, they stay as they are. The given tensors are not changed.
    """
    # SOLUTION
    length = torch.stack([g.norm() for g in grads]).norm()
    factor = max_norm / length if length > max_norm else 1.0
    return [g * factor for g in grads]
    # END


# %% tags=["check"]
if check("clip_gradients", clip_gradients).passed:
    keep("clip_gradients", clip_gradients)

# %%
hint("clip_gradients")

# %% [markdown] tags=["solution"]
# The length of lengths is the length of the whole. The usual slips: one limit for each tensor; stretching what is short; and clipping before `backward`, when the gradients are still the old ones.

# %% [markdown]
# ### A batch too large for memory
# Read it in parts and add up the gradients: **accumulation**. Each part's loss is divided by the number of parts, so that the sum is the mean over all.

# %% rows=["S2-19"]
x, y = next(RandomWindows(train_ids, batch_size=32, seq_len=T, seed=2))  # (32, T), (32, T)
whole, parts = fresh(), fresh()
next_token_loss(whole(x), y).backward()
for micro_x, micro_y in zip(x.split(8), y.split(8), strict=True):
    (next_token_loss(parts(micro_x), micro_y) / 4).backward()
for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
    torch.testing.assert_close(p.grad, q.grad, atol=1e-5, rtol=1e-4)
print("4 parts of 8 windows: the gradient of all 32")

# %% [markdown]
# Without the division the gradient is 4 times as long: clipping or AdamW hide most of that, so nobody notices. And it is equal only where every part has as many targets; with padding, weigh the parts by their targets.

# %% [markdown] tags=["note"]
# Ask: why does AdamW hardly notice a loss that is 4 times as large? (m and the root of v grow alike.) And why does clipping? (The limit then bites at every step.)

# %% [markdown] slide="slide" minutes=6
# ## 5. The real run
# All parts together are the loop of the library: for each step the rate, the losses of the parts, backward, clip, update, gradients to zero. It yields after each, and the caller looks, saves or stops.

# %%
show(train)

# %% [markdown]
# Note `model.train()`: dropout is on while training and off while measuring (`model.eval()`). A published course note switches to `eval` to measure, and never back: from then on it trains without dropout.
#
# ### One batch first
# Before any long run, train on **one batch, again and again**. We print what one wants to see: loss, rate, gradient norm, and the entropy of the guesses, a mean over positions.

# %%
recipe = TrainConfig(total_steps=20, schedule="cosine", warmup_steps=5, precision="fp32")
small, batch = fresh(), next(RandomWindows(train_ids, batch_size=8, seq_len=T, seed=3))
noted = {}
for s in train(small, build_optimizer(small, recipe), itertools.repeat(batch), recipe):
    if s.step in (1, 3, 5, 10, 20):
        shares = small(batch[0]).detach().softmax(-1)  # (B, T, V)
        entropy = torch.special.entr(shares).sum(-1).mean()
        noted[s.step] = [float(x) for x in (s.loss, s.lr_share, s.grad_norm, entropy)]

# %% tags=["source-hidden"]
predict(
    "One batch of 8 windows, again and again, 20 updates. Where does its loss go?",
    key=lambda: "to nearly 0" if noted[20][0] < 0.2 else "to the floor of the language",
    choices={
        "to the floor of the language": "The floor is for new text. This one can be learned by heart.",
        "to nearly 0": "",
        "it stays near ln V": "Then something would be broken: model, loss or loop.",
    },
    because="A model with more parameters than the batch has tokens can learn it by heart.",
)

# %% rows=["S4-56"]
for update, (loss, rate, norm, entropy) in noted.items():
    print(f"update {update:>2}: loss {loss:.1f}, rate {rate:.2f}, norm {norm:.1f}, entropy {entropy:.1f}")

# %% [markdown]
# Loss and entropy fall together to nearly nothing: model, loss and loop can learn. If this fails, no long run will help. (`entr` makes $0 \ln 0$ a 0. The note that this list comes from sums over the batch, and gets NaN when a share is 0.)
#
# ### And now the language
# The default model, 2 layers of width 128. A batch is 8 whole stories, each from one line end to the next. There are enough for the whole run, so it reads every story only once. Lesson 00 showed the lines to compare with: knowing nothing costs $\ln V$, and the floor is what is pure chance.

# %%
recipe = TrainConfig(total_steps=240, schedule="cosine", warmup_steps=10, batch_size=8, precision="fp32")
model = fresh(d_model=128)
batches = every_document(train_ids, line_end, batch_size=8)
levels = storyworld.entropies(tokenizer, n_stories=2000)

# %% rows=["S4-58"]
losses = []


def noting(steps):
    for step in steps:
        losses.append(step.loss.item())
        yield step


steps = noting(train(model, build_optimizer(model, recipe), batches, recipe))
await training_view(steps, model, tokenizer, total_steps=recipe.total_steps, levels=levels)

# %% [markdown]
# Frequencies are learned within a few updates, the word before a little later, and then comes the long part: who has what, who said what. What it writes turns from word soup into stories.
#
# The rest of the way takes patience. The shipped model has a layer more and read batches four times as large. This was noted while it trained:

# %%
notes = (Path(storyworld.__file__).parent / "weights/storyworld/log.txt").read_text().splitlines()
lines = [line.split() for line in notes if line.startswith("update")]
figures.loss_curve(
    {"shipped model": ([int(line[1]) for line in lines], [float(line[4]) for line in lines])},
    {"the floor": 0.0},
    title="The rest of the way",
    unit="nats above the floor",
    caption="From update 200 to 400 half of the distance goes. At update 3,400 a sixth of it is left: each halving takes longer than the one before.",
)

# %% [markdown] tags=["note"]
# While it trains: which line first? What will it write at update 5, at 20? With a running kernel, pause it half-way and read a sample aloud.

# %% [markdown] slide="slide" minutes=6
# ## 6. How good is it, really?
# A training loss is measured on the very text that the weights are fitted to. The honest number comes from the stories put away.

# %%
n_bytes = len("".join(unseen).encode())
found = evaluate(model, every_document(new_ids, line_end, batch_size=32), n_bytes)
recent = sum(losses[-40:]) / 40

# %% tags=["source-hidden"]
predict(
    "How does the loss on the new stories compare with the mean of the last 40 updates?",
    key=lambda: "nearly the same" if abs(found.nats_per_token - recent) < 0.1 else "clearly higher",
    choices={
        "clearly higher": "It would be, had the model read its training stories several times.",
        "nearly the same": "",
    },
    because="The run read each story once, so its stories were new, too, when their loss was measured.",
)

# %% rows=["S4-54"]
total = found.nats_per_token * found.n_tokens
assert math.isclose(found.perplexity, math.exp(found.nats_per_token))
assert math.isclose(found.bits_per_byte, total / math.log(2) / n_bytes)
print(f"last 40 updates {recent:.2f}, new stories {found.nats_per_token:.2f} nats per token, floor {levels.floor:.2f}")
print(f"perplexity {found.perplexity:.1f}, bits per byte {found.bits_per_byte:.2f}")

# %% [markdown]
# **Perplexity**, $e$ to the loss, is the number of equally likely tokens that would cost as much. Both depend on what a token is: larger tokens cost more each, and there are fewer. **Bits per byte** do not (lesson 01), so they compare models with different tokenizers.
#
# ### Learning by heart
# Nothing could be learned by heart above: each story was read once. Now 40 stories, again and again, and three losses: on training windows, on windows held out as in section 2 (the leak), and on new stories.

# %%
few = torch.tensor(tokenizer.encode("".join(lessons[:40])))
order = torch.randperm(len(few) - T, generator=torch.Generator().manual_seed(1))
used, windows = order[len(order) // 10 :], few.unfold(0, T + 1, 1)  # a row for every start
groups = {"training": windows[used[:64]], "leak": windows[order[:64]]}
groups["new stories"] = new_ids.unfold(0, T + 1, T + 1)[:64]

# %%
recipe = TrainConfig(total_steps=120, precision="fp32")
small, courses, at = fresh(), {name: [] for name in groups}, []
batches = RandomWindows(few, batch_size=16, seq_len=T, starts=used)
for s in train(small, build_optimizer(small, recipe), batches, recipe):
    if s.step % 20 == 0:
        at.append(s.step)
        for name, rows in groups.items():
            courses[name].append(evaluate(small, [(rows[:, :-1], rows[:, 1:])]).nats_per_token)
assert small.training

# %%
figures.loss_curve(
    {name: (at, losses) for name, losses in courses.items()},
    title="Only new text tells",
    caption="The training loss goes on falling, and the leak with it. On new stories the loss turns: from there on the model learns these stories, no longer the language.",
)

# %% [markdown]
# That is **overfitting**. **Early stopping** keeps the weights of the lowest validation loss. Keep a copy: `state_dict()` alone is a reference, and changes as training goes on.

# %%
best = min(range(len(at)), key=lambda i: courses["new stories"][i])
lowest, last = courses["new stories"][best], courses["new stories"][-1]
print(f"keep update {at[best]}: {lowest:.1f} on new stories, at the end {last:.1f}")

# %% [markdown]
# ### Stop, and go on
# A run should survive a power cut. What must be saved so that it goes on *exactly* as if nothing had happened? We train 20 updates; then 10, save, load into a new model, and 10 more.


# %%
def run_parts(seed: int = 1):
    lm, batches = fresh(seed), RandomWindows(train_ids, batch_size=8, seq_len=T, seed=1)
    return lm, build_optimizer(lm, recipe), batches


recipe = TrainConfig(total_steps=20, warmup_steps=5, precision="fp32")
lm, optimizer, batches = run_parts()
straight = [s.loss.item() for s in train(lm, optimizer, batches, recipe)]

# %%
rescue = tempfile.TemporaryDirectory()
folder = Path(rescue.name) / "step_10"
lm, optimizer, batches = run_parts()
half = list(itertools.islice(train(lm, optimizer, batches, recipe), 10))
_ = checkpoint.save(folder, lm, optimizer, batches, step=half[-1].step, tokenizer=tokenizer)


# %%
def resumed(with_optimizer: bool) -> list[float]:
    saved, (lm, optimizer, batches) = checkpoint.load(folder), run_parts(seed=7)
    saved.restore(lm, optimizer if with_optimizer else None, batches)
    return [s.loss.item() for s in train(lm, optimizer, batches, recipe, first_step=saved.step + 1)]


# %% tags=["source-hidden"]
kept = {"all": resumed(True), "weights and place in the text": resumed(False)}
off = {name: max(abs(a - b) for a, b in zip(losses, straight[10:], strict=True)) for name, losses in kept.items()}
predict(
    "We load weights and the place in the text, but not the optimizer's state. How do the next 10 losses compare with those of the run that went straight through?",
    key=lambda: "they differ" if off["weights and place in the text"] > 1e-3 else "they are the same",
    choices={
        "they are the same": "Weights and batches are. But what does the optimizer remember?",
        "they differ": "",
        "it stops with an error": "Nothing is missing that an update needs: new means start at 0.",
    },
    because="The running means start anew.",
)

# %% rows=["S4-55"]
rescue.cleanup()
assert off["all"] == 0 and off["weights and place in the text"] > 1e-3
print(f"all restored: the losses differ by {off['all']}")
print(f"without the optimizer's state: by up to {off['weights and place in the text']:.1g} nats")

# %% [markdown]
# Exactly equal, to the last bit. Saved are the weights, the optimizer's state, the place in the text, the step number (the schedule needs it) and the state of the random generators (dropout needs them).

# %% [markdown] slide="slide" minutes=4
# ## 7. Fewer bits, and a newer step
# Numbers of half the size are moved twice as fast, and some hardware multiplies them faster still (lesson 14 measures it). **bf16** has 16 bits: the range of fp32, with fewer digits (lesson 03). May everything be bf16?

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

# %%
print(f"in bf16 after 100 steps: {weight.item()}; below 1 comes {1 - torch.finfo(torch.bfloat16).eps / 2:.3f}")
new_x, new_y = next(every_document(new_ids, line_end, batch_size=32))
with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
    mixed = next_token_loss(model(new_x), new_y)
with torch.no_grad():
    full = next_token_loss(model(new_x), new_y)
assert 0 < abs(mixed - full) < 0.01
print(f"loss {full:.2f}, and in bf16 less than 0.01 away")
for dtype in (torch.float16, torch.bfloat16):
    print(f"a gradient of 1e-8 in {dtype}: {torch.tensor(1e-8).to(dtype).item():.0e}")

# %% [markdown]
# So the products are made in bf16, while weights, their updates and the loss stay in fp32: **mixed precision**. The loss hardly notices. fp16 needs more care: small gradients become 0 there, so the loss is scaled up before backward, and the gradients down again before clipping. In bf16 that is not needed.
#
# ### Muon
# AdamW treats a matrix as a list of numbers. But a gradient matrix has directions (its *singular vectors*), and a few of them are far stronger than the others. **Muon** brings all directions to about the same strength before it steps (Jordan et al. 2024). Look at the strengths, the *singular values*, of one gradient:

# %%
x, y = next(RandomWindows(train_ids, batch_size=8, seq_len=T, seed=4))
next_token_loss(small(x), y).backward()
gradient = small.blocks[0].attention.v_proj.weight.grad  # (C, C)
for name, matrix in (("gradient", gradient), ("Muon", orthogonalise(gradient[None])[0])):
    strengths = torch.linalg.svdvals(matrix)  # (C)
    print(f"{name:<9} the middle direction has {strengths.median() / strengths[0]:.1f} of the strongest one's strength")

# %% [markdown]
# Cheap products do it, without computing a singular vector. Tables and vectors have no such directions: the library uses Muon for the matrices of the blocks and AdamW for all else. What that is worth, and what it costs, lesson 14 measures.

# %% [markdown] slide="slide" minutes=5
# ## 8. Break it: is my loss right?
# A broken training seldom raises an error. It has a loss, and the loss falls. What does each mistake look like? Below, one change each in the same small run.


# %%
class Unmasked(Attention):
    def mix(self, q, k, v):
        return attend(q, k, v).transpose(-3, -2).flatten(-2)  # (B, H, T, D) -> (B, T, H*D)


def changed(how: str) -> TransformerLM:
    lm = fresh()
    for block in lm.blocks if how == "no causal mask" else ():
        block.attention = Unmasked(lm.config)
    for p in lm.parameters() if how == "all matrices start at 0" else ():
        p.data.mul_(p.ndim == 1)
    return lm


# %%
def pairs(how: str, window: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = window[:, :-1], window[:, 1:]
    if how == "not shifted":
        return x, x
    if how == "shifted twice":
        return window[:, :-2], window[:, 2:]
    return x, y.roll(1, 0) if how == "another text's targets" else y


# %%
def symptoms(how: str) -> tuple[float, float, float, str]:
    lm, losses = changed(how), []
    rate = 0.3 if how == "rate 30 times as large" else 0.01
    optimizer = torch.optim.AdamW(lm.parameters(), lr=rate, betas=(0.9, 0.95))
    batches = RandomWindows(train_ids, batch_size=8, seq_len=T, seed=1)
    for _ in range(80):
        x, y = next(batches)  # (B, T), (B, T)
        x, y = pairs(how, torch.cat((x, y[:, -1:]), dim=1))
        logits = lm(x)  # (B, T, V)
        loss = next_token_loss(logits.softmax(-1) if how == "softmax in the model" else logits, y)
        loss.backward()
        optimizer.step()
        if how != "gradients never cleared":
            optimizer.zero_grad()
        losses.append(loss.item())
    new = evaluate(lm, [(new_x, new_y)]).nats_per_token
    begun = torch.tensor([tokenizer.encode("\nOne")])  # (1, 2)
    written = tokenizer.decode(generate(lm, begun, 7, temperature=0)[0].tolist())
    return losses[0], sum(losses[-10:]) / 10, new, " ".join(written.split())


# %%
MISTAKES = ["nothing wrong", "not shifted", "shifted twice", "another text's targets", "no causal mask"]
MISTAKES += ["softmax in the model", "gradients never cleared", "rate 30 times as large", "all matrices start at 0"]
seen = {how: symptoms(how) for how in MISTAKES}

# %% tags=["source-hidden"]
predict(
    "Which mistake has the lowest training loss after 80 updates?",
    key=lambda: min(MISTAKES, key=lambda how: seen[how][1]),
    choices={
        "not shifted": "",
        "shifted twice": "Two words ahead is harder to guess than one.",
        "softmax in the model": "A softmax of shares is nearly flat: its loss cannot fall far.",
        "gradients never cleared": "Old gradients keep pushing, in directions that were right long ago.",
    },
    because="The answer is the token just read: it only has to be copied.",
)

# %% tags=["source-hidden"] rows=["S4-50"]
heads = ["", "first loss", "after 80", "new stories", "writes"]
table = [[how, *(f"{x:.1f}" for x in numbers), text] for how, (*numbers, text) in seen.items()]
card("What each mistake looks like", [number_table(heads, table)], "\n".join(" | ".join(row) for row in table)).show()

# %%
for how in ("nothing wrong", "all matrices start at 0"):
    lm = changed(how)
    next_token_loss(lm(new_x[:, :T]), new_x[:, 1 : T + 1]).backward()
    gradient = lm.lm_head.weight.grad  # (V, C)
    assert gradient.mean().abs() < 1e-6
    print(f"{how:<23} gradient of the head: mean 0, norm {gradient.norm():.1f}")

# %% [markdown]
# - **Not shifted.** The loss falls far below the floor. Nothing can be that good on new text: a loss below the floor is a mistake or a leak. The model repeats what it read last.
# - **Shifted twice.** The loss looks like that of a slow but healthy run. Only reading what it writes tells: it leaves words out.
# - **Another text's targets.** The input tells nothing about them, so the loss stops where frequencies alone lead.
# - **No causal mask.** The training loss is fine, but when the model writes, the future that it learned to read is not there.
# - **Softmax in the model.** The first loss is near $\ln V$, as it should be, and it hardly moves: the loss takes the softmax of shares.
# - **Gradients never cleared**, and **a rate too large**: they end far above the run with nothing wrong.
# - **All matrices start at 0.** Exactly $\ln V$ for ever. No gradient arrives anywhere.
#
# So: know $\ln V$ and the floor, learn one batch by heart, compare with new text, read what it writes. Look at gradient *norms*: the mean, which a published course note prints, is 0 in a healthy model, too. The other
# items of its list have had their places: shapes are asserted, tied weights counted (lesson 10), memory saved by accumulation. And a loss of NaN stays NaN: stop, go back to the last checkpoint, and lower the rate or lengthen the warm-up.
#
# ## What you have now
# - Targets are the inputs shifted by one; one pass gives a guess, and a loss, at every position.
# - Validation text is cut off in one piece. A shuffled cut leaks.
# - AdamW: two running means, corrected for their start; the decay is a share of the weight that came in.
# - Warm-up, cosine, clipping by the one length of all gradients, accumulation: they say how large a step is.
# - A run that is saved whole goes on to the last bit. Products may be bf16, weights not.
# - The loss alone does not say that all is right.
#
# Next, lesson 12: the model has learned shares. How does one write with them?
#
# ## Sources
# - Adam: Kingma and Ba 2015, *Adam: A Method for Stochastic Optimization*, algorithm 1.
# - AdamW: Loshchilov and Hutter 2017, *Decoupled Weight Decay Regularization*, algorithm 2.
# - The cosine: Loshchilov and Hutter 2016, *SGDR: Stochastic Gradient Descent with Warm Restarts*, equation 5.
# - Clipping: Pascanu, Mikolov and Bengio 2013, *On the Difficulty of Training Recurrent Neural Networks*, algorithm 1.
# - Mixed precision: Micikevicius et al. 2018, *Mixed Precision Training*, section 3.
# - Muon: Jordan et al. 2024, *Muon: An Optimizer for Hidden Layers in Neural Networks*.
# - BERT: Devlin et al. 2019, *BERT: Pre-training of Deep Bidirectional Transformers*, section 3.1.
