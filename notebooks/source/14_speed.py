# %% [markdown] deck="How fast could it be, and what keeps it from that?"
# # 14 Speed
# **How fast could it be, and what keeps it from that?**
#
# *Needs* lessons 05, 08, 10, 11 and 13. *Builds* `training_flops` in `cost.py` and `quantize_int8` in `quantization.py`. *Runs* in about 35 s on two cores.
# *Teaches* in about 43 minutes, plus 26 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: three things can set the pace (the processor, the memory, the calls), and a change only helps if it moves the one that does. Count first, measure second, change third.
# Before the class: run all cells once on the computer that you project from, without other programs. All times are those of your machine, and no text depends on them. `more/14_timing` shows how to compare two timings.

# %% [markdown] tags=["note"]
# **Say.** Your model writes. Is that fast or slow? Without a number to compare with, nobody can say.
#
# **Usual answers.**
# - *Nearly all of it, a computer computes* (`nearly all of it`): Look at the white gaps, and at the boxes that are not blue.
# - *One operation for three numbers* (`1/4`): Count bytes, not numbers. Each number has four.
#
# **Cut if short.** The second prediction; say its answer.
#
# **Tried.** The FLOPs of `product` equal what PyTorch counts for 30 random sizes; those of a token equal the count of the shipped model after 1, 20 and 100 tokens.

# %% [markdown]
# ## 1. One token
# The shipped model reads one more token of a text; `n_kept` are in its cache (lesson 13). What does the machine do in this time?

# %%
from tinylm_classroom import predict, speed, speed_figures as figures
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
writer = shipped.model.eval()
n_kept = 100  # try 20
one_token = speed.next_token(writer, n_kept=n_kept)

# %% tags=["source-hidden"] deck="One token: many short operations, few products"
figures.timeline(speed.operations(one_token))

# %% [markdown]
# Is that fast? To answer, count how much work there must be. Nearly all arithmetic is in matrix products. One multiplication or addition is a **FLOP**, a floating-point operation. And the numbers must get from the memory to the processor and back, with 4 bytes each in fp32:

# %%
import time

import torch

from tinylm_classroom import measured, memory_view
from tinylm_lib import cost

_ = torch.manual_seed(14)


def product(M, K, N):
    """FLOPs and bytes of (M, K) @ (K, N)."""
    return 2 * M * K * N, 4 * (M * K + K * N + M * N)


# %% deck="A large product does more work for each byte"
# ESSENTIAL
n = 600  # try 6 and 6_000
flops, n_bytes = product(n, n, n)
print(f"{flops:,} FLOPs, {n_bytes:,} bytes")
print(f"{flops / n_bytes:.1f} FLOPs per byte")
# END

# %% tags=["source-hidden"] evidence="products-count" tried="exact"
# Checked: these FLOPs, and those of a token, are what PyTorch counts when it multiplies.
for M, K, N in torch.randint(1, 50, (30, 3)).tolist():
    assert speed.counted(torch.matmul, torch.randn(M, K), torch.randn(K, N)) == product(M, K, N)[0]
for n in (1, 20, 100):
    counted = speed.counted(speed.next_token(writer, n_kept=n))
    assert counted == cost.forward_flops(writer.config, 1, 1, n_keys=n + 1)

# %% [markdown]
# The product of (M, K) and (K, N) takes $2MKN$ FLOPs. [[products-count]] FLOPs per byte are called the **arithmetic intensity**. How large is it when two vectors are added?

# %% tags=["source-hidden"] deck="Two vectors are added. How many FLOPs per byte?"
predict(
    "Two vectors of n numbers in fp32 are added: n additions. How many FLOPs per byte?",
    key=lambda: f"1/{4 * 3}",
    choices={
        "1": "Each addition reads two numbers and writes one, and each has 4 bytes.",
        "1/4": "Two numbers are read, and one is written.",
        "1/12": "",
    },
    because="Three numbers of 4 bytes for one addition.",
)

# %% [markdown] tags=["note"]
# **Say.** Two numbers describe a machine, the peak and the bandwidth. Together they are a roof.
#
# **Usual answers.**
# - *64 tokens are 64 times the work* (`about as much`): All of them meet the same weights, which are read once.
# - *A larger batch makes each token slower* (`more`): It makes the whole batch slower; we divide by the tokens. For 2 tokens with two threads the answer is right: PyTorch's product for few rows is slow.
# - *A point above the line shows a wrong roof* (from the room): Then a program next to ours disturbed the measurement, or the bytes fit into a cache. The cell measures again while large work is above 1.15 roofs.
#
# **Cut if short.** The control of the GPU.
#
# **Tried.** The bandwidth is the best of five kinds of work: on one machine a sum, a copy and a product with a vector reached 16 to 22 billion bytes per second, an addition into other memory 15 to 23, in place 44 to 48. The peak is the best of three sizes: on two busy cores 1024 reached 56 to 78 billion FLOPs per second, 256 and 512 at the same moment 190 to 206. Each token: 16 or more at once were faster in all runs; 2 gained nothing with one thread (3.8 and 3.9 ms) and lost with two. The A100's numbers are exact: with 312 features or fewer no number of tokens reaches the corner.

# %% [markdown]
# ## 2. The roof of this machine
# How many FLOPs per second does this machine reach at best, its **peak**? How many bytes per second come from memory, its **bandwidth**? We take the best of a few calls, because everything else that runs can only add time. And we try several kinds of work, because none is the fastest on every machine:


# %%
def seconds(work, rounds=5):
    """The best time of a few calls; the first one, a warm-up, does not count."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])


# %% slide="skip"
block = torch.randn(4096, 4096)
other, row = torch.empty_like(block), torch.randn(4096)
moves = {  # how many times the 67 MB of a block are read or written
    "sum": (1, block.sum),
    "copy": (2, lambda: other.copy_(block)),
    "add": (2, lambda: torch.add(block, 1.0, out=other)),
    "add in place": (2, lambda: other.add_(1.0)),
    "product with a vector": (1, lambda: block @ row),
}


def roof():
    """Peak in FLOPs per second, bandwidth in bytes per second."""
    squares = [torch.randn(n, n) for n in (256, 512, 1024)]
    peak = max(product(*3 * [len(s)])[0] / seconds(lambda s=s: s @ s) for s in squares)
    return peak, max(n * block.nbytes / seconds(work) for n, work in moves.values())


# %% [markdown] deck="The slower of the two sets the pace: the roofline"
# If moving and computing happen at the same time, the slower one sets the pace. So work of intensity $I$ can reach at most
#
# $$\min(\text{peak},\; \text{bandwidth} \cdot I)$$
#
# FLOPs per second: the **roofline** ([Williams et al. 2009](https://doi.org/10.1145/1498765.1498785)). Left of its corner work is **memory-bound**, right of it **compute-bound**. We measure a linear map of 4096 features, for one token and for more at once.

# %%
work = {}
for tokens in (1, 4, 16, 64, 256):
    x = torch.randn(tokens, 4096)  # (T, C)
    work[f"{tokens} at once"] = (*product(tokens, 4096, 4096), lambda x=x: x @ block.T)
vector, result = torch.randn(2, 2 * 10**7)
add_one = 2 * 10**7, 8 * 2 * 10**7, lambda: torch.add(vector, 1.0, out=result)
work["x + 1"] = add_one
peak, bandwidth, took = speed.under_a_roof(roof, work, seconds)
print(measured(peak / 1e9, "billion FLOPs per second", 0.5, 50_000))
print(measured(bandwidth / 1e9, "billion bytes per second", 0.2, 5_000))
print("the corner is at", measured(peak / bandwidth, "FLOPs per byte", 0.05, 2000))

# %% tags=["source-hidden"] deck="1 token alone, or 64 at once?"
answer = "clearly less" if took["64 at once"] < 50 * took["1 at once"] else "about as much"
predict(
    "The map takes 1 token alone, or 64 at once. How much time does each of the 64 take, compared with the one alone?",
    key=lambda: answer,
    choices={
        "clearly less": "That needs a processor that waits for the weights of one token.",
        "about as much": "It would if one token kept the processor busy. But it does only 2 FLOPs with each weight.",
        "more": "All tokens use the same weights. Why should that make a token slower?",
        answer: "",
    },
    because="We divide the time for 64 by 64. The weights are fetched once for all of them.",
)

# %% tags=["signature", "source-hidden"] deck="One token is far below the peak, many come nearer"
figures.roof(peak, bandwidth, {name: (*work[name][:2], took[name]) for name in work})

# %% slide="skip" evidence="intensity"
for tokens in (1, 16, 64, 256):
    each = measured(1000 * took[f"{tokens} at once"] / tokens, "ms", 1e-4, 1000)
    print(f"{tokens:>3} at once: {each} for each token")

# %% [markdown]
# A token took less time when many were computed with it. [[intensity]] That is one reason why servers answer many people at once.
#
# A **GPU**, a processor with thousands of small cores, has another roof. By its data sheet an A100 does 312 trillion FLOPs per second in bf16 (2 bytes a number) and moves 2 trillion bytes. How many tokens keep it busy? With which width is it impossible?

# %% deck="Task: with which width is the ceiling out of reach?"
from itertools import product as pairs

from tinylm_classroom import capture, control

all_tokens, all_widths = [1, 16, 64, 256, 1024], [128, 1024, 4096]


def on_a_gpu(tokens=1, width=4096):
    figures.gpu(tokens, width, [*pairs(all_tokens, all_widths)])


# ESSENTIAL
control(on_a_gpu, tokens=all_tokens, width=all_widths)
# END

# %% tags=["source-hidden"] evidence="gpu-roof" tried="exact"
# Checked for each width: one token is far from the corner; 312 features are too few for any number.
for width in range(64, 5000, 8):
    assert speed.intensity_in_bf16(1, width) < 1
    assert (speed.intensity_in_bf16(10**9, width) > 156) == (width > 312)
assert 312e12 / 2e12 == 156 < speed.intensity_in_bf16(256, 4096)

# %% [markdown]
# One token reaches less than 1% of this peak. With 4096 features 256 tokens can be enough, and with 128 no number of tokens is, because inputs and results must be moved as well: a model as small as ours cannot keep such a GPU busy. [[gpu-roof]]

# %% [markdown] tags=["note"]
# **Say.** Training has many tokens at once, so it should be near the peak. Count, measure, compare.
#
# **Usual answers.**
# - *A linear map has one product backward, too* (`backward as forward`): One for the inputs, one for the weights.
# - *A multiply-add is one operation* (`a multiply-add is one`): Some authors count so. We count 2, as the peak does.
# - *Attention's products are the four maps* (`no scores`): Two more have no weights: queries with keys, and weights with values.
#
# **Cut if short.** The table of the profiler.
#
# **Tried.** Twice the FLOPs backward: exact, 30 random sizes. `training_flops` equals PyTorch's count for five kinds of models, and for 120 random configs. With the kernel that works in tiles PyTorch counts no attention at all: 366 instead of 412 million for a text of 100; it makes the scores again backward. The optimizer is AdamW (1 % of the time); the library's usual Muon multiplies matrices itself, another 34 % of the FLOPs for 8 texts. Long texts: exact.

# %% [markdown]
# ## 3. Where a training step's time goes
# In the forward pass each weight is multiplied and added once for each token: 2 FLOPs. And backward? Here is one linear map; `back` is the gradient that comes back at $y$:


# %% deck="Backward has two products for each one of forward"
def forward_and_back(x, W, back):
    y = x @ W.T
    for_x = back @ W
    for_W = back.T @ x
    return y, for_x, for_W


# %%
from tinylm_classroom import trace

parts = torch.randn(5, 3), torch.randn(4, 3), torch.randn(5, 4)
trace(forward_and_back, *parts, sizes={"T": 5, "C": 3, "F": 4})

# %% tags=["source-hidden"] evidence="backward-twice" tried="exact"
# Checked: these are autograd's gradients, and each product is as large as the forward one.
for T, C, F in torch.randint(1, 40, (30, 3)).tolist():
    x, W, back = torch.randn(T, C), torch.randn(F, C), torch.randn(T, F)
    (x.requires_grad_() @ W.requires_grad_().T).backward(back)
    for ours, theirs in zip(forward_and_back(x, W, back)[1:], (x.grad, W.grad), strict=True):
        torch.testing.assert_close(ours.detach(), theirs, atol=1e-4, rtol=1e-4)
    assert product(T, F, C)[0] + product(F, T, C)[0] == 2 * product(T, C, F)[0]

# %% [markdown]
# Forward and backward together take as many FLOPs as **three forward passes**. [[backward-twice]] So take the multiplications of one token (lesson 08). Each comes with an addition: together they are a *multiply-add*. Multiply by 2, by 3 and by the number of tokens.
#
# ### The FLOPs of any model
# A config has `d_model`, `n_layers`, `n_heads`, `n_kv_heads`, `d_head`, `d_ff`, `vocab_size`, `ffn` and `tie_embeddings`.

# %% slide="skip"
from tinylm_classroom import check, hint, keep
from tinylm_lib import TransformerLM, preset


# %% tags=["exercise"] name="training_flops" minutes=10 difficulty=2 deck="Your turn: the FLOPs of an update"
def training_flops(config, batch_size, seq_len):
    """FLOPs of the matrix products of one forward and backward pass, a whole number.

    A multiply-add counts 2. Queries have n_heads heads of d_head features, keys and values
    n_kv_heads; n_heads times d_head need not be d_model. ffn "swiglu" and "geglu" have a gate
    and three matrices, the others two. The output layer is a product whether it is tied or
    not. The embedding only looks up rows: it counts nothing. Scores (queries with keys) and
    mixing (weights with values) count in full, seq_len x seq_len for each of n_heads heads,
    masked ones included. Biases, norms, positions and everything else that is not a matrix
    product count nothing.
    """
    # SOLUTION
    C, D, F, V = config.d_model, config.d_head, config.d_ff, config.vocab_size
    H, G = config.n_heads, config.n_kv_heads
    matrices = 3 if config.ffn in ("swiglu", "geglu") else 2
    block = 2 * C * H * D + 2 * C * G * D + matrices * C * F
    scores = 2 * H * D * seq_len
    per_token = config.n_layers * (block + scores) + C * V
    return 3 * 2 * batch_size * seq_len * per_token
    # END


# %% tags=["check"]
if check("training_flops", training_flops).passed:
    keep("training_flops", training_flops)

# %% slide="skip"
hint("training_flops")

# %% [markdown] tags=["solution"]
# Multiply-adds for one token: each weight of each matrix once, and two products per layer that have no weights. The usual mistakes: one of attention's two products is forgotten, the tied head counts nothing because it has no weights of its own, `n_kv_heads` narrows the scores as well (each query head has its own), and everything is counted for the forward pass only.

# %% tags=["source-hidden"] evidence="flops-counted" tried="exact" rows=["S4-51"]
# Checked: PyTorch counts the same for five kinds of models; long texts take more for each token.
for kind in ({}, {"ffn": "gelu"}, {"n_kv_heads": 2}, {"tie_embeddings": True}, {"n_layers": 1}):
    shape = {"vocab_size": 345, "d_model": 64, "n_heads": 4, "n_layers": 2, **kind}
    made = TransformerLM(preset("modern", **shape))
    counted = speed.counted(lambda model: model(torch.arange(50)[None]).sum().backward(), made)
    assert counted == cost.training_flops(made.config, 1, 50)
many_tokens = [cost.training_flops(writer.config, 2**14 // n, n) for n in (32, 512, 2**14)]
assert many_tokens == sorted(many_tokens)

# %% [markdown]
# With the library's version of it, and the clock, here is one update of `B` texts of 100 tokens:

# %% slide="skip"
from tinylm_lib import TrainConfig, storyworld
from tinylm_lib.data import RandomWindows
from tinylm_lib.training import build_optimizer

B = 8  # try 2
learner = TransformerLM(writer.config)
text = torch.tensor(shipped.tokenizer.encode("\n" + storyworld.corpus(300, seed=14)))
batches = RandomWindows(text, B, 100, seed=14)
optimizer = build_optimizer(learner, TrainConfig(optimizer="adamw"))
updates = [speed.step_times(learner, batches, optimizer) for _ in range(9)]
spent = speed.middle_of(updates[2:])
flops = cost.training_flops(learner.config, B, 100)

# %% tags=["source-hidden"] deck="An update takes longer than its products alone"
figures.update(spent, {"forward": flops / 3 / peak, "backward": 2 * flops / 3 / peak})

# %% [markdown]
# The fraction of the peak that an update reaches is called **MFU**, model FLOPs utilization (Chowdhery et al. 2022): the lower bar divided by the upper one. The count is what PyTorch counts if attention makes its whole table. [[flops-counted]] What takes the rest of the time? A **profiler** records every operation:

# %%
groups = speed.groups(lambda: speed.step_times(learner, batches, optimizer))
for name, spans in groups.items():
    print(f"{name:<16}", measured(100 * spans / sum(groups.values()), "%", 0.01, 100))

# %% [markdown]
# Whatever you make faster, you save at most the percentage of its own group (Amdahl's law). If *everything else* is large, the time goes into norms, rotations, sums and copies: they have few FLOPs, but each has to be started, and reads and writes its numbers.

# %% [markdown] tags=["note"]
# **Say.** A model that writes one token at a time often waits for something else: for Python and PyTorch to start the next small operation.
#
# **Usual answers.**
# - *60 times fewer weights take a sixtieth of the time* (`about 1/60`): The weights were not what took the time.
# - *Use a faster processor* (from the room): It helps as far as it makes Python faster, too. Fewer calls help everywhere.
#
# **Cut if short.** The cell with 16 texts.
#
# **Tried.** Operations are counted, not timed: in each of three layers one token calls far more operations than products, after 1, 20 and 100 tokens, and with 8 features as many as with 128. Times: with 8 features 768 to 804 µs, with 128 902 to 990; with 6 layers instead of 3 1,961. One addition of two vectors took 1.1 µs for 1 number and 1.2 for 1,000. The profiler of section 1 doubles the time of a token.

# %% [markdown]
# ## 4. The price of a call
# Back to the one token of section 1. By count, it should take:

# %% deck="Neither the processor nor the memory explains the time of a token"
token_flops = cost.forward_flops(writer.config, 1, 1, n_keys=n_kept + 1)
token_bytes = sum(p.nbytes for p in writer.parameters())
# ESSENTIAL
token_time = seconds(one_token, rounds=50)
print("at the peak:", measured(1e6 * token_flops / peak, "µs", 0.01, 1e5))
print("its weights, read:", measured(1e6 * token_bytes / bandwidth, "µs", 0.1, 1e5))
print("measured:", measured(1e6 * token_time, "µs", 10, 1e6))
# END

# %% [markdown]
# Most of the time is neither. (The profiler of section 1 took even longer, because it takes notes.) So we change the work and keep the operations: the same three blocks with 8 features instead of 128.

# %% slide="skip"
sizes = {"vocab_size": 345, "n_heads": 4, "n_layers": 3, "max_seq_len": 128}
tiny = TransformerLM(preset("modern", **sizes, d_model=8)).eval()
both = {"128 features": writer, "8 features": tiny}
times = [seconds(speed.next_token(each, 1, n_kept), 50) for each in both.values()]
left = times[1] / times[0]

# %% tags=["source-hidden"] deck="60 times fewer weights: how much of the time is left?"
answer = "more than 2/3" if left > 2 / 3 else "about half" if left > 1 / 4 else "about 1/60"
predict(
    "The same three blocks with 8 features instead of 128: 60 times fewer weights. How much of the time of a token is left?",
    key=lambda: answer,
    choices={
        "more than 2/3": "So it would be if calls took nearly all of the time.",
        "about half": "That would need work that takes half of the time. How long should it take, by count?",
        "about 1/60": "By count the work takes little of the time, so little is saved.",
        answer: "",
    },
    because="The operations are as many as before. For each, Python calls PyTorch, which looks at types and shapes and chooses the machine code.",
)

# %% slide="skip"
for (name, each), spent_on in zip(both.items(), times, strict=True):
    n_weights = sum(p.numel() for p in each.parameters())
    print(f"{name}: {n_weights:,} weights,", measured(1e6 * spent_on, "µs", 10, 1e6))

# %% tags=["source-hidden"] evidence="calls" tried="held-out"
# Checked: after 1, 20 and 100 tokens, far more operations than products; 8 features need as many.
for n in (1, 20, 100):
    found = speed.operations(speed.next_token(writer, 1, n), rounds=1)
    assert 20 < sum(each.is_product for each in found) < 0.4 * len(found)
    assert len(found) == len(speed.operations(speed.next_token(tiny, 1, n), rounds=1))

# %% [markdown]
# What is left is called **overhead**: the call of PyTorch, and the Python around it. One token pays it for each operation, few of which are products. [[calls]] If calls are the limit, then a token for each of 16 texts takes far less than 16 times as long: 16 times the work, as many calls.

# %% deck="16 texts at once take far less than 16 times as long"
# ESSENTIAL
n_texts = 16  # try 4 and 64
together = seconds(speed.next_token(writer, n_texts, n_kept), rounds=30)
print(f"{n_texts} texts:", measured(together / token_time, "times as long", 0.3, 100))
# END

# %% [markdown]
# So there are three limits, and each has its own remedies ([He 2022](https://horace.io/brrr_intro.html)): with large products count the FLOPs, with numbers from memory count the bytes, with many short operations count the calls. Two famous remedies follow: one for bytes that need not be moved, one for bytes that need not exist.

# %% [markdown] tags=["note"]
# **Say.** Attention's table is too large to keep. The trick is from the first week of programming: keep a running maximum and a running sum, and correct them when a larger number arrives.
#
# **Usual answers.**
# - *It is an approximation* (from the room): Compare the results. It only adds in another order.
# - *It saves only the FLOPs of the masked half* (from the room): It saves bytes as well.
# - *Just add the two sums* (`no rescale`): They were computed with different tops.
#
# **Cut if short.** The picture of the tiles.
#
# **Tried.** 100 random rows of 2 to 40 scores between 0 and 50, each cut at every place: equal to softmax up to 5e-7. Both kernels, five seeds, 300 tokens: equal. Table and tiles, one thread, two readers and a busy machine: 128 tokens 0.29 to 0.35 and 0.15 ms; 1,024 tokens 42 to 83 and 9 to 14 ms; 2,048 tokens 145 to 576 and 23 to 58 ms.

# %% [markdown]
# ## 5. Attention without the table
# Attention (lesson 05) has a table of T times T weights for each head, written to memory and read again.

# %% deck="Twice the text, four times the table"
# ESSENTIAL
n_keys = 1024  # try 2048 and 32_768
print(f"4 heads, fp32: {4 * n_keys**2 * 4 / 1e6:,.1f} MB in one layer, for one text")
# END

# %% [markdown]
# The softmax needs the largest score and the sum over *all* keys. But we can take the keys in pieces, if we keep three numbers of each: its largest score, its sum, its weighted values.


# %%
def piece(scores, values):
    top = scores.max()
    e = (scores - top).exp()
    return top, e.sum(), (e * values).sum()


def in_two_pieces(scores, values, cut):
    top_1, sum_1, value_1 = piece(scores[:cut], values[:cut])
    top_2, sum_2, value_2 = piece(scores[cut:], values[cut:])
    top = max(top_1, top_2)
    shrink_1, shrink_2 = (top_1 - top).exp(), (top_2 - top).exp()
    total = shrink_1 * sum_1 + shrink_2 * sum_2
    return (shrink_1 * value_1 + shrink_2 * value_2) / total


# %% deck="Softmax in two pieces: the same result, wherever you cut"
scores = torch.tensor([1.0, 3.0, 0.0, 2.0])
values = torch.tensor([10.0, 20.0, 30.0, 40.0])
# ESSENTIAL
cut = 2  # try 1 and 3
print(f"in two pieces {in_two_pieces(scores, values, cut):.4f}")
print(f"at once       {scores.softmax(-1) @ values:.4f}")
# END

# %% [markdown]
# We scale down the piece with the smaller top, and the result is the same: the **online softmax** ([Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867)). For many queries at once the pieces are tiles of the table. Here is one head of the shipped model, 24 tokens, in tiles of 6 by 6:

# %% tags=["source-hidden"] deck="10 tiles computed, 6 skipped"
figures.tiles(capture(writer, text[None, :24]).attention(layer=2).weights[0, 0])

# %% [markdown]
# ### Join two pieces
# Write this step for all queries at once: each query has a top and a total of its own.


# %% tags=["exercise"] name="join_pieces" minutes=8 difficulty=3 deck="Your turn: join two pieces"
def join_pieces(one, other):
    """Join two pieces of attention into one. A piece is a tuple (top, total, mixed).

    top (T, 1): the largest score of each query. total (T, 1): the sum of exp(score - top) over
    the keys of the piece. mixed (T, D): the sum of exp(score - top) times the value, not yet
    divided by total. If all keys of a query are masked in a piece, its top is -inf there, and
    total and mixed are 0. At most one of the two pieces is so.
    Returns (top, total, mixed) of all keys together.
    """
    # SOLUTION
    top = torch.maximum(one[0], other[0])  # (T, 1)
    shrink_one, shrink_other = (one[0] - top).exp(), (other[0] - top).exp()  # (T, 1) each
    total = shrink_one * one[1] + shrink_other * other[1]
    mixed = shrink_one * one[2] + shrink_other * other[2]
    return top, total, mixed
    # END


# %% tags=["check"]
if check("join_pieces", join_pieces).passed:
    keep("join_pieces", join_pieces)

# %% slide="skip"
hint("join_pieces")

# %% [markdown] tags=["solution"]
# $e^{s - t_1} e^{t_1 - t} = e^{s - t}$: the factor $e^{t_1 - t}$ brings every number of a piece from its own top to the common one, the sum as well as the values. A masked piece needs no `if`, because its factor is $e^{-\infty} = 0$. Nothing is divided by the sum before the last piece has been joined.

# %% tags=["source-hidden"] evidence="same-attention" tried="seeds"
# Checked with five seeds: two pieces, and PyTorch's kernel in tiles, give the result at once.
SEEDS = range(5)
for seed in SEEDS:
    chance = torch.Generator().manual_seed(seed)
    row_of, value_of = torch.randn(2, 40, generator=chance)
    for place in (1, 20, 39):
        found = in_two_pieces(10 * row_of, value_of, place)
        torch.testing.assert_close(found, (10 * row_of).softmax(-1) @ value_of, atol=1e-4, rtol=1e-4)
    both = speed.by_both_kernels(torch.randn(3, 1, 4, 300, 32, generator=chance))
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-4)

# %% [markdown]
# With small tiles everything stays in the **cache** (a small, fast memory near the processor, not the KV cache), and the table never gets to memory. That is **FlashAttention** ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)): not an approximation, but the same result with far fewer bytes moved. [[same-attention]] The library's `attend` calls PyTorch's **kernel** (a ready-made piece of machine code) for it. Half of the tiles are skipped. Is half of the time left, or less?


# %% slide="skip"
def table_and_tiles(n_tokens):
    """Seconds of causal attention, four heads: with the whole table, and in tiles."""
    qkv = torch.randn(3, 1, 4, n_tokens, 32)
    ways = "table", "tiles"
    return [seconds(lambda way=way: speed.attention(qkv, way)) for way in ways]


# %% deck="In tiles less than half of the time is left"
# ESSENTIAL
n_tokens = 1024  # try 128 and 2048
# END
for way, spent_on in zip(("table", "tiles"), table_and_tiles(n_tokens), strict=True):
    print(way, measured(1000 * spent_on, "ms", 0.01, 60_000))

# %% [markdown] tags=["note"]
# **Say.** A large model that writes waits for its weights. Fewer bytes a weight are fewer seconds a token.
#
# **Usual answers.**
# - *The largest number without its sign* (`largest without its sign`): The farthest from 0 counts.
# - *One scale for the whole matrix* (`one scale`): The small rows then get few steps.
# - *15 values are too few* (`with 4 bits`): The loss grows by about 0.01.
# - *7 values are too few* (`with 3 bits`): By about 0.09. Half a step is a sixth of the largest weight in the row, and few are that large.
# - *The errors have both signs and cancel* (from the room): Good hypothesis; with 4 bits it is right, see *Tried*.
#
# **Cut if short.** Nothing; lesson 18 uses this.
#
# **Tried.** Four sets of 60 other stories: the loss grows by 0.0000 to 0.0002 nats. Smallest rival, the same errors of one sign only: no more than 0.0001 with 8 bits, but 0.38 to 0.46 with 4 bits, where errors of both signs cost 0.008 to 0.013: there they cancel. With 3 bits 0.08 to 0.10, with 2 bits 7.3 to 7.5. One scale for the whole matrix: up to 0.0012 with 8 bits, 0.09 to 0.11 with 4.

# %% [markdown]
# ## 6. One byte for each weight
# To write one token, a large model reads all its weights. In the view, choose Llama 3 8B and compare inference in fp32 and bf16: what becomes smaller, and where are most of the bytes?

# %% tags=["source-hidden"] deck="Task: where are the bytes of Llama 3 8B?"
memory_view({"ours": writer.config})

# %% [markdown]
# In bf16 the weights take half of the bytes, and most are in the feed-forward. Can a weight take 1 byte instead of 4? This is **quantization**. One byte (`torch.int8`) has the whole numbers from -128 to 127. So choose the **step** so that the largest weight is exactly 127 steps, and round each weight to the nearest whole number of steps. (With 4 bits the largest is 7 steps.)

# %% deck="Each weight becomes a whole number of steps"
weight_row = torch.tensor([0.100, -0.021, 0.254, -0.0005])
# ESSENTIAL
largest = 127  # try 7
step = weight_row.abs().max() / largest
steps = (weight_row / step).round().to(torch.int8)
print(f"step {step:.4f}, steps {steps.tolist()}")
print("weights again:", [f"{weight:.4f}" for weight in (steps * step).tolist()])
# END

# %% [markdown]
# No weight moves by more than half a step. One large number makes the steps coarse for everything that shares its scale. That is why each *row* of a matrix has a scale of its own.


# %% tags=["exercise"] name="quantize_int8" minutes=8 difficulty=2 deck="Your turn: 8 bits"
def quantize_int8(weight):
    """Round each row of weight (out, in), fp32, to whole steps. Returns values (out, in) and
    scale (out,).

    values: torch.int8, the number of steps. scale: fp32, the size of a step of each row.
    The number of a row that is the farthest from 0 takes 127 steps. A row of zeros has values
    of 0, and some scale above 0.
    """
    # SOLUTION
    scale = weight.abs().amax(1) / 127  # (N, K) -> (N)
    scale = torch.where(scale > 0, scale, 1.0)
    return (weight / scale[:, None]).round().to(torch.int8), scale
    # END


# %% tags=["check"]
if check("quantize_int8", quantize_int8).passed:
    keep("quantize_int8", quantize_int8)

# %% slide="skip"
hint("quantize_int8")

# %% [markdown] tags=["solution"]
# `amax(1)` takes the maximum along each row, and `scale[:, None]` gives the scales the axis that they need to divide the rows. `round` comes before the conversion, because `.to(torch.int8)` cuts off the digits behind the point.

# %% [markdown]
# The library's `quantize_model` copies a model with every matrix in this form. How much does it lose, on held-out stories?

# %% slide="skip"
from tinylm_lib import evaluate, quantization
from tinylm_lib.data import every_document

in_8_bits = quantization.quantize_model(writer)


def held_out(seed, n=60):
    ids = torch.tensor(shipped.tokenizer.encode("\n" + storyworld.corpus(n, seed)))
    return list(every_document(ids, shipped.tokenizer.encode("\n")[0], 20))


unseen = held_out(1_000_014)
losses = [evaluate(each, unseen).nats_per_token for each in (writer, in_8_bits)]

with_bits = {n: speed.loss_with_errors(writer, unseen, n, False) for n in (4, 3, 2)}

# %% tags=["source-hidden"] deck="Fewer and fewer bits: when does the model break?"
breaks = next((f"with {n} bits" for n, loss in with_bits.items() if loss > 1 + losses[0]), "never")
predict(
    "Every matrix is rounded to fewer and fewer bits a weight, with a scale for each row. When does the loss grow by more than 1 nat per token?",
    key=lambda: breaks,
    choices={
        "with 4 bits": "15 different weights in a row are still many: no weight moves by more than 1/14 of the largest.",
        "with 3 bits": "7 different weights in a row: no weight moves by more than 1/6 of the largest.",
        "with 2 bits": "",
    },
    because="With 2 bits a weight moves by up to half of the largest one in its row, and most become 0.",
)

# %% slide="skip"
for name, each, loss in zip(("fp32", "int8"), (writer, in_8_bits), losses, strict=True):
    n_bytes = sum(t.nbytes for t in each.state_dict().values())
    print(f"{name}: {n_bytes:>9,} bytes, {loss:.3f} nats per token")

# %% deck="8 bits cost nothing, 2 bits cost everything"
# ESSENTIAL
n_bits = 3  # try 4 and 2
print(f"{n_bits} bits: {with_bits[n_bits] - losses[0]:.2f} nats per token more")
# END

# %% tags=["source-hidden"] evidence="eight-bits" tried="held-out"
# Checked on other stories; with 8 bits the signs of the errors do not matter, with 4 bits they do.
assert abs(losses[1] - losses[0]) < 0.01
for seed in (1_000_015, 1_000_016):
    batches_of = held_out(seed, 30)
    plain, rounded = (evaluate(each, batches_of).nats_per_token for each in (writer, in_8_bits))
    more = [speed.loss_with_errors(writer, batches_of, *of) - plain for of in ((8, 1), (4, 0), (4, 1), (3, 0), (2, 0))]
    assert max(abs(rounded - plain), abs(more[0]), abs(more[1]) / 6) < 0.01 < 0.15 < more[2] and more[3] < 0.5 < more[4]

# %% [markdown]
# A little more than a quarter of the bytes (scales and gains take 4 bytes each), and the loss moved by less than a hundredth of a nat. [[eight-bits]] Only *weights* are kept in 8 bits, and only for inference: in training, an update smaller than half a step would change nothing.

# %% [markdown] tags=["note"]
# **Say.** Now make it faster. You have three changes and two models. Say first which limit each model has.
#
# **Usual answers.**
# - *8 bits make both faster* (`both`): The small one does not wait for its bytes. Before and after the product something has to be converted: 259 calls instead of 119.
# - *Fewer calls help both* (from the room): In the large model a call is a tiny part of the time.
#
# **Cut if short.** Nothing: it is the point of the lesson.
#
# **Tried.** Stacked maps give the same logits, five seeds and two sizes. Times are the reader's own. Five runs on two shared, busy cores with AVX-512: 8 bits made the large model 1.8 to 2.3 times as fast and the small one slower (0.6 to 0.7), 16 texts at once gave 8.5 to 12 times the tokens with ours and 5.4 to 7.4 times with the large one, and stacked maps gave 0.8 to 1.4, where no difference can be told from chance: they make 116 calls instead of 119, six products less and three cuts more.

# %% [markdown]
# ## 7. Make it faster
# Which change helps which model? Here are two: ours, and a large one with random weights (for a clock that makes no difference). And three changes: **8 bits**; **16 texts at once**; and **stacked maps**, where one product with `torch.cat([W_q, W_k, W_v])` makes q, k and v, because all three read the same x. All are timed in turns (A, B, A, B, ...), because a machine can be slower for a while:


# %%
sizes |= {"d_model": 1536, "n_layers": 2, "n_heads": 12}
large = TransformerLM(preset("modern", **sizes)).eval()


def price(model, n_texts=1):
    """Seconds for one token of one of the texts."""
    rounds = 3 if model.config.d_model > 1000 else 30
    return seconds(speed.next_token(model, n_texts, n_kept), rounds) / n_texts


# %% slide="skip"
before_and_after = {"stacked maps": {}, "8 bits": {}, "16 texts at once": {}}
for name, each in {"ours": writer, "large": large}.items():
    short = quantization.quantize_model(each)
    tried = [(each,), (speed.stacked(each),), (short,), (each, 16)]
    before, *after = speed.best_in_turns(price, tried)
    for change, took_after in zip(before_and_after, after, strict=True):
        before_and_after[change][name] = before / took_after

# %% tags=["source-hidden"] deck="8 bits: which of the two models becomes faster?"
helped = [name for name, times in before_and_after["8 bits"].items() if times > 1.1]
answer = "neither" if not helped else "both" if len(helped) > 1 else f"only {helped[0]}"
predict(
    "Both models get weights in 8 bits. Which one writes a token clearly sooner?",
    key=lambda: answer,
    choices={
        "only ours": "Ours waits for calls, and around each product in 8 bits there are more of them.",
        "only large": "So it would be with a product that reads the bytes and multiplies at once.",
        "neither": "The large model has only a quarter of the bytes to read.",
        answer: "",
    },
    because="8 bits help a model that waits for its weights, if the processor has instructions for such a product. Otherwise the matrix is first converted to fp32. Ours becomes slower, because it makes more calls.",
)

# %% tags=["source-hidden"] deck="A change must move the limit to help"
figures.changes(before_and_after)

# %% slide="skip"
same = {"fp32": writer, "stacked": speed.stacked(writer), "8 bits": in_8_bits}
for name, each in same.items():
    n_calls = len(speed.operations(speed.next_token(each)))
    print(f"{name:<8}", measured(n_calls, "operations", 20, 5000), "for one token")

# %% tags=["source-hidden"] evidence="same-model" tried="seeds"
# Checked with five seeds and two sizes: stacked maps give the same logits with a few calls less.
for seed, C in pairs(SEEDS, (32, 96)):
    torch.manual_seed(seed)
    drawn = TransformerLM(preset("modern", vocab_size=50, d_model=C, n_heads=4, init="normal"))
    both = [speed.next_token(each, n_kept=9) for each in (drawn, speed.stacked(drawn))]
    torch.testing.assert_close(both[0](), both[1](), atol=1e-4, rtol=1e-4)
    calls = [len(speed.operations(step, rounds=1)) for step in both]
    assert 0.9 * calls[0] < calls[1] < calls[0]

# %% [markdown]
# Stacked maps give the same logits and save one call a layer: too few to notice. [[same-model]] 8 bits read a quarter of the bytes but need more calls, so they help a model that waits for bytes and slow one that waits for calls. Many texts share calls *and* bytes.
#
# **Your own change, before and after.** Choose changes (in this order) and a model: `large`, `writer`, or one of your own (lesson 18 opens a real one). How many times as fast can you make it? Say first which of the three limits your change moves.

# %% deck="Your change: how many times as fast?"
mine = changed = large
# ESSENTIAL
changes = ["8 bits"]  # try ["stacked", "8 bits"], ["stacked"] and []
texts_at_once = 1  # try 4 and 64
# END
for each in changes:
    changed = speed.CHANGES[each](changed)
before, after = speed.best_in_turns(price, [(mine,), (changed, texts_at_once)])
print("your model:", measured(before / after, "times as fast", 0.01, 1000))

# %% [markdown] tags=["note"]
# **Say.** Count first. Then ask which of the three limits sets the pace: processor, memory, calls.
#
# **Usual answers.**
# - *A faster norm* (from the room): Look at your own table: what is the percentage of its group?
#
# **Cut if short.** Read the first, the third and the last two points.
#
# **Tried.** The sections say it: all points but the one about a measured time are exact, or were tried on other stories or seeds.

# %% [markdown] deck="What you have now"
# ## What you have now
# - A product of (M, K) and (K, N) takes $2MKN$ FLOPs, and those of a whole token are what PyTorch counts. [[products-count]]
# - Work can reach at most min(peak, bandwidth times intensity). A token of a linear map took less time, in this run, when 16 or more were computed at once. [[intensity]]
# - On an A100 a map from C to C features, with C up to 312, is memory-bound however many tokens there are, if its inputs and results are moved. [[gpu-roof]]
# - The backward pass of a linear map has two products for each one of the forward pass. [[backward-twice]]
# - `training_flops` counts the products of the forward and backward pass of any config, and PyTorch agrees if attention makes its whole table. [[flops-counted]]
# - A small model that writes one token at a time runs many short operations, few of which are products, and as many of them with 8 features as with 128. [[calls]]
# - Attention in pieces gives the same result as attention with the whole table. [[same-attention]]
# - Weights of one byte, with one scale for each row, change the loss of the shipped model by less than a hundredth of a nat. [[eight-bits]]
# - Stacked maps save less than a tenth of the calls and do not change the logits. [[same-model]]
#
# *More*: `14_timing` asks when a difference is more than chance. Next, lesson 15: what to do with ten, a thousand, a million times as many FLOPs.

# %% [markdown]
# ## Sources
# - The roofline: Williams, Waterman and Patterson 2009, [*Roofline: An Insightful Visual Performance Model for Multicore Architectures*](https://doi.org/10.1145/1498765.1498785).
# - The three limits of deep learning: He 2022, [*Making Deep Learning Go Brrrr From First Principles*](https://horace.io/brrr_intro.html).
# - FLOPs of a step and MFU: Chowdhery et al. 2022, [*PaLM: Scaling Language Modeling with Pathways*](https://arxiv.org/abs/2204.02311), table 3 and appendix B.
# - The online softmax: Milakov and Gimelshein 2018, [*Online normalizer calculation for softmax*](https://arxiv.org/abs/1805.02867).
# - Attention in tiles: Dao et al. 2022, [*FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*](https://arxiv.org/abs/2205.14135), section 3.
# - 8 bits with a scale: Jacob et al. 2018, [*Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference*](https://arxiv.org/abs/1712.05877), section 2.1 (there with a shifted zero).
# - The GPU's numbers: NVIDIA 2021, *NVIDIA A100 Tensor Core GPU* data sheet.
