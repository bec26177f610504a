# %% [markdown] slide="slide" minutes=1
# # 14 Speed
# **How fast could it be, and what keeps it from that?**
#
# *Needs* lessons 05, 08, 10 and 11. *Builds* `training_flops` in `cost.py`. *Runs* in about 45 s on two cores.
# *Teaches* in 43 minutes, plus 22 of exercises.

# %%
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from tinylm_lib import TrainConfig, TransformerLM, preset
from tinylm_lib.classroom import check, figures, hint, keep, predict, show
from tinylm_lib.classroom.ablation import WHOLE, gap_after, stories
from tinylm_lib.classroom.measured import measured
from tinylm_lib.data import RandomWindows
from tinylm_lib.optim import build_optimizer

_ = torch.manual_seed(14)

# %% [markdown] slide="slide" minutes=5
# ## 1. Count first
# Your model trains. Is it fast? Without a number to compare with, nobody can say. So we count first what there is to do, then look how fast this machine can do such things, and only then at
# the clock.
#
# Nearly all the work of a model is matrix products. By hand, a small one: 2 rows of 3 numbers, times 3 rows of 4.

# %%
M, K, N = 2, 3, 4
a, b = torch.randn(M, K), torch.randn(K, N)
result = a @ b  # (M, K) @ (K, N) -> (M, N)
multiplications = sum(1 for row in range(M) for column in range(N) for inner in range(K))
print(f"{result.numel()} results, {multiplications} multiplications, as many additions: {2 * multiplications} in all")
assert 2 * multiplications == 2 * M * K * N

# %% [markdown]
# (To a sum that starts at 0 each product is added.) One multiplication or one addition is a **FLOP**, a floating-point operation. A product takes $2MKN$ of them. That is one half of
# the count. The other half is easily forgotten: the numbers have to get to the processor and back. Two matrices are read, one is written, 4 bytes for each number in fp32.


# %%
def product(M: int, K: int, N: int) -> tuple[int, int]:
    """FLOPs and bytes of (M, K) @ (K, N)."""
    return 2 * M * K * N, 4 * (M * K + K * N + M * N)


# %%
for n in (6, 60, 600):
    flops, n_bytes = product(n, n, n)
    print(f"{n:>3} x {n:<3}: {flops:>11,} FLOPs, {n_bytes:>9,} bytes, {flops / n_bytes:.0f} FLOPs per byte")

# %% [markdown]
# FLOPs grow with the cube of the size, bytes with the square. What they make together, FLOPs per byte, is the **intensity**: how much work each byte brings that is fetched. A large product uses
# every number many times. Adding two vectors uses each once:

# %% tags=["source-hidden"]
predict(
    "Two vectors of n numbers in fp32 are added: n additions. How many FLOPs per byte?",
    key=lambda: f"1/{4 * 3}",
    choices={
        "1": "Each addition reads two numbers and writes one, and each has 4 bytes.",
        "1/4": "That is one number of 4 bytes for each addition. Two are read, and one is written.",
        "1/8": "Two are read. And the result?",
        "1/12": "",
    },
    because="Three numbers of 4 bytes for one addition.",
)

# %% [markdown]
# ### One token or many
# A linear map from 128 to 128 features has the same weights for each token. When a model *writes*, one token passes at a time (lesson 13). When it *trains*, all tokens of a batch pass together:

# %%
for tokens in (1, 16, 1024):
    flops, n_bytes = product(tokens, 128, 128)
    print(f"{tokens:>4} tokens: {flops:>10,} FLOPs, {n_bytes:>9,} bytes, intensity {flops / n_bytes:.1f}")

# %% [markdown]
# One token has all weights fetched for itself. With many, the fetching is shared.

# %% [markdown] tags=["note"]
# Let the room guess the intensity of norm, softmax and residual addition first (all below 1). Common wrong answer: "FLOPS" as a speed. Here a FLOP is a piece of work; speed is FLOPs per second.
# With little time: section 5 without recomputing, section 6 without waiting for the run.

# %% [markdown] slide="slide" minutes=7
# ## 2. The roof of this machine
# Two speeds of the machine matter. How many FLOPs per second does it reach at best? A large product tells: its **peak**. How many bytes per second come from memory? Reading and copying
# something large tells: its **bandwidth**.


# %%
def seconds(work: Callable[[], object], device: str = "cpu", rounds: int = 5) -> float:
    """The best time of a few calls; the first, which also sets things up, does not count."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times[1:])


# %% [markdown]
# The *best* of a few calls, because whatever else the machine does can only add time. (A GPU is handed its work and computes on its own; `wait` makes the clock wait for it.)


# %%
def roof(device: str = "cpu") -> tuple[float, float]:
    """Peak in FLOPs per second and bandwidth in bytes per second, both in fp32."""
    square = torch.randn(1024, 1024, device=device)
    peak = product(1024, 1024, 1024)[0] / seconds(lambda: square @ square, device)
    block = torch.randn(32_000_000, device=device)
    other = torch.empty_like(block)
    n_bytes = 4 * block.numel()
    read, copied = seconds(block.sum, device), seconds(lambda: other.copy_(block), device)
    return peak, max(n_bytes / read, 2 * n_bytes / copied)


# %%
peak, bandwidth = roof()
print("peak:     ", measured(peak / 1e9, "billion FLOPs per second", 2, 20_000))
print("bandwidth:", measured(bandwidth / 1e9, "billion bytes per second", 1, 3_000))
print("they meet at", measured(peak / bandwidth, "FLOPs per byte", 0.5, 500))

# %% [markdown]
# While one byte arrives, the processor could do that many FLOPs. Work with a smaller intensity leaves it waiting, and is **memory-bound**; work with a larger one is **compute-bound**. If moving
# and computing go on at the same time, the slower one sets the pace. So the fastest that work of intensity $I$ can be is
#
# $$\min(\text{peak},\; \text{bandwidth} \cdot I)$$
#
# and drawn over $I$ this is a slope and then a ceiling: a **roofline** (Williams et al. 2009). Under it we put what we measure: an addition, and a linear map from 4096 to 4096 features for more and more tokens at once.

# %%
C, tokens_at_once = 4096, (1, 4, 16, 64, 256)
weight = torch.randn(C, C)  # 67 MB, more than most caches hold
times = {}
for tokens in tokens_at_once:
    x = torch.randn(tokens, C)
    times[tokens] = seconds(lambda x=x: x @ weight, rounds=3)
left, right = torch.randn(20_000_000), torch.randn(20_000_000)
sums = torch.empty_like(left)
adding = seconds(lambda: torch.add(left, right, out=sums), rounds=3)

# %% tags=["source-hidden"]
longer = times[64] / times[1]
predict(
    "The linear map takes 1 token, or 64 at once: 64 times the FLOPs. How many times as long does it take?",
    key=lambda: "clearly less than 64 times" if longer < 50 else "about 64 times",
    choices={
        "about as long": "At some number of tokens the processor has enough to do. Where do slope and ceiling meet?",
        "clearly less than 64 times": "",
        "about 64 times": "It would be if one token kept the processor busy. It waits for the weights.",
    },
    because="One token's time goes into fetching the weights. The other 63 find them there.",
)

# %% tags=["source-hidden"]
points = {f"{n} token" + "s" * (n > 1): (*product(n, C, C), times[n]) for n in tokens_at_once}
points = {"addition": (20_000_000, 240_000_000, adding), **points}
drawn = {name: (flops / n_bytes, flops / took) for name, (flops, n_bytes, took) in points.items()}
with figures.axes("The roof of this machine", "FLOPs per byte", "billion FLOPs per second") as (figure, ax):
    over = torch.logspace(-1.5, 3, 91)
    ax.plot(over, (bandwidth * over).clamp(max=peak) / 1e9, label="at most")
    ax.plot(*zip(*((i, rate / 1e9) for i, rate in drawn.values()), strict=True), "o", label="measured")
    for name, (intensity, rate) in drawn.items():
        ax.annotate(name, (intensity, rate / 1e9), (9, -15), textcoords="offset points")
    ax.set(xscale="log", yscale="log", xlim=(0.03, 1000))
    ax.legend(frameon=False, loc="upper left")
said = [measured(rate / 1e9, "billion/s", 0.01, 20_000) for _, rate in drawn.values()]
most = [measured(min(peak, bandwidth * i) / 1e9, "billion/s", 0.01, 20_000) for i, _ in drawn.values()]
figures.show(
    figure,
    alt="A roofline, both axes logarithmic: a slope that becomes a ceiling, with points for an addition at the left and a linear map of 1, 4, 16, 64 and 256 tokens further and further to the right.",
    caption="The line is the most that is possible, the points are what was measured. Left of the corner the memory decides, right of it the processor.",
    table={"work": list(drawn), "FLOPs per byte": [i for i, _ in drawn.values()], "measured": said, "at most": most},
)

# %%
for tokens in tokens_at_once:
    print(f"{tokens:>3} at once:", measured(1000 * times[tokens] / tokens, "ms for each token", 1e-3, 1000))

# %% [markdown]
# That is why servers answer many people at once, and why a batch is cheaper than its texts one by one. A point far below the line has another reason: a product too small to keep all parts of the processor
# busy, or the time that a call costs by itself.
#
# The slope is for what lies in memory. What fits into the processor's cache, such as the weights of our small models, has a steeper one:

# %%
small = torch.randn(50_000)
beside = torch.empty_like(small)
copying = seconds(lambda: [beside.copy_(small) for _ in range(100)]) / 100
print("copying 0.2 MB:", measured(8 * len(small) / copying / 1e9, "billion bytes per second", 1, 10_000))

# %% [markdown] slide="slide" minutes=8
# ## 3. Where a training step's time goes
# Now the model. How many FLOPs does one update take? Forward, each weight of a matrix is multiplied once for each token: 2 FLOPs. And backward? By hand, for one linear map $y = xW$, when `back` is the gradient that comes back at $y$:

# %%
x, W, back = torch.randn(5, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
(x @ W).backward(back)
torch.testing.assert_close(x.grad, back @ W.T)  # (5, 4) @ (4, 3) -> (5, 3)
torch.testing.assert_close(W.grad, x.T @ back)  # (3, 5) @ (5, 4) -> (3, 4)
print("forward", product(5, 3, 4)[0], "FLOPs, backward", product(5, 4, 3)[0], "+", product(3, 5, 4)[0])

# %% [markdown]
# Two products, one for what goes further back and one for the weights, and each as large as the forward one. So a step is **three times its forward pass**. For a model of the kind `modern` with
# its head, L layers, and T tokens in each of B texts:

# %%
V, C, F, L, H, B, T = 345, 128, 320, 3, 4, 8, 100
config = preset("modern", vocab_size=V, d_model=C, n_layers=L, n_heads=H, max_seq_len=T)
assert config.d_ff == F
maps = L * (4 * C * C + 3 * C * F) + C * V  # multiply-adds for one token: attention's four, SwiGLU's three, the head
scores = L * 2 * C * T  # q with each key, and the weights with each value
step_flops = 3 * 2 * B * T * (maps + scores)
print(f"{step_flops / 1e9:.2f} billion FLOPs; {scores / (maps + scores):.0%} of them in scores and mixing")
print("at the peak that would take", measured(1000 * step_flops / peak, "ms", 0.05, 1000))

# %% [markdown]
# Which share goes into the scores depends on T, and only on T: that is the difference between many short texts and few long ones.

# %% rows=["S4-51"]
for batch, length in ((64, 16), (8, 128), (1, 1024)):
    products = maps + L * 2 * C * length
    print(
        f"{batch:>2} texts of {length:>4}: {batch * length} tokens, {6 * batch * length * products / 1e9:.2f} billion FLOPs"
    )
print(f"32 texts of 512 tokens: {32 * 512:,} in an update; 64 micro-steps of them: {64 * 32 * 512:,}")

# %% [markdown]
# (A published course note sets "about 1 million tokens" for an update of 32 texts of 512. That is wrong by a factor of 64; accumulated gradients (lesson 11) make up for it.)
#
# ### The clock
# The same update, its parts timed one by one, with the library's default optimizer.

# %%
PARTS = ("data", "forward", "backward", "clip", "optimizer")


def step_times(model: TransformerLM, batches, optimizer) -> dict[str, float]:
    """Seconds of each part of one update."""
    clock = [time.perf_counter()]
    x, y = next(batches)
    clock.append(time.perf_counter())
    loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    clock.append(time.perf_counter())
    loss.backward()
    clock.append(time.perf_counter())
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    clock.append(time.perf_counter())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    clock.append(time.perf_counter())
    return {part: clock[i + 1] - clock[i] for i, part in enumerate(PARTS)}


# %%
model = TransformerLM(config)
batches = RandomWindows(stories().ids, B, T, seed=14)
optimizer = build_optimizer(model, TrainConfig())
rounds = [step_times(model, batches, optimizer) for _ in range(12)][2:]
spent = {part: sorted(times[part] for times in rounds)[5] for part in PARTS}
total = sum(spent.values())

# %% tags=["source-hidden"]
ratio = spent["backward"] / spent["forward"]
predict(
    "The forward pass takes some time. How much does the backward pass take?",
    key=lambda: "about half of it" if ratio < 0.7 else "about as much" if ratio < 1.2 else "about twice as much",
    choices={
        "about half of it": "Each map has two products backward, one forward.",
        "about as much": "Each map has two products backward, one forward.",
        "about twice as much": "",
    },
    because="Two products for each one of the forward pass. (Between 1.2 and 3 times is what one sees.)",
)

# %% tags=["source-hidden"]
with figures.axes("One update, part by part", "milliseconds", "part of the update", (8.6, 3.6)) as (figure, ax):
    ax.barh(PARTS[::-1], [1000 * spent[part] for part in PARTS[::-1]])
    ax.axvline(1000 * step_flops / peak, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
    ax.text(1000 * step_flops / peak, -0.3, " all products at the peak", color=figures.QUIET)
    ax.grid(visible=False, axis="y")
figures.show(
    figure,
    alt="Bars of the time that data, forward, backward, clip and optimizer take in one update; backward is the longest. A dotted line marks the time that all products would take at the machine's peak.",
    caption="Median of ten updates. The dotted line: all products of the whole update, if each ran at the peak.",
    table={"part": list(PARTS), "time": [measured(1000 * s, "ms", 1e-4, 5000) for s in spent.values()]},
)

# %% [markdown]
# Fetching the data costs next to nothing here, and clipping little. Which share of the peak does the update reach? It has a name, **MFU**, model FLOPs utilisation (Chowdhery et al. 2022):

# %%
print("MFU:", measured(100 * step_flops / total / peak, "%", 0.5, 150))

# %% [markdown]
# And what keeps it from 100? Part of it is that our products are small. We run them alone, in their sizes:

# %%
shapes = [p.shape for p in model.parameters() if p.ndim == 2 and p is not model.embed.weight]
assert sum(p.numel() for p in shapes) == maps
alone = 0.0
for out, inner in shapes:
    x, w = torch.randn(B * T, inner), torch.randn(out, inner)
    alone += 3 * seconds(lambda x=x, w=w: x @ w.T, rounds=3)
print("products of all maps, alone:", measured(100 * alone / total, "% of the update", 1, 150))

# %% [markdown]
# The rest is not products at all. Here is everything the forward pass does, one operation of PyTorch after the other:


# %% tags=["source-hidden"]
class Watch(TorchDispatchMode):
    """Notes each operation that makes new numbers, with the bytes of what it makes."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if all(r.alias_info is None for r in operation._schema.returns):
            tensors = [t for t in (result if isinstance(result, tuple) else [result]) if isinstance(t, torch.Tensor)]
            self.seen.append((operation.name().split("::")[1], max((t.nbytes for t in tensors), default=0)))
        return result


# %%
with torch.no_grad(), Watch() as watch:
    model(next(batches)[0])
product_names = ("mm", "addmm", "bmm", "_scaled_dot_product_flash_attention_for_cpu")
in_products = [n for name, n in watch.seen if name in product_names]
in_others = [n for name, n in watch.seen if name not in product_names]
print(f"{len(in_products)} products, and {len(in_others)} other operations")
print(f"they write {sum(in_products) / 1e6:.1f} MB and {sum(in_others) / 1e6:.1f} MB")

# %% [markdown]
# (Attention's kernel counts as one product.) For each product there are several small operations: norms, rotations, SiLU, sums. Their FLOPs are few, but each one reads all it needs and writes all it makes, with an
# intensity below 1. This is where the time is that no count of FLOPs shows.

# %% [markdown] tags=["note"]
# Common wrong answer to the prediction: "as much, it is the same model backwards". The two products of a linear map on the board, with shapes, settle it.
# A machine with many cores has a higher peak and a lower MFU at these sizes: good to compare across the room.

# %% [markdown] slide="slide" minutes=6
# ## 4. Attention without the table
# Attention has a table of T times T weights for each head. Lesson 05 built it whole: scores, softmax, weighted sum, each of them written to memory and read again.

# %% tags=["source-hidden"]
predict(
    "One text of 1024 tokens, 4 heads, fp32. How many MB does one table of weights take in one layer?",
    key=lambda: 4 * 1024**2 * 4 / 1e6,
    number="MB",
    within=0.5,
    feedback={
        4.2: "That is one head, or one byte for each number.",
        1.0: "1024 times 1024 numbers, 4 bytes each, 4 heads.",
    },
    because="4 heads, 1024 times 1024 weights, 4 bytes each.",
)

# %% [markdown]
# Must it ever be there? The softmax needs the largest score and the sum over *all* keys. But we can take the keys in pieces, if for each piece we keep three numbers: its largest score, its sum, and its weighted values.

# %%
scores = torch.tensor([1.0, 3.0, 0.0, 2.0])
values = torch.tensor([10.0, 20.0, 30.0, 40.0])


def piece(scores, values):
    top = scores.max()
    e = (scores - top).exp()
    return top, e.sum(), (e * values).sum()


# %%
(top_1, sum_1, value_1), (top_2, sum_2, value_2) = piece(scores[:2], values[:2]), piece(scores[2:], values[2:])
top = max(top_1, top_2)
shrink_1, shrink_2 = (top_1 - top).exp(), (top_2 - top).exp()
joined = (shrink_1 * value_1 + shrink_2 * value_2) / (shrink_1 * sum_1 + shrink_2 * sum_2)
torch.testing.assert_close(joined, scores.softmax(-1) @ values)
print(f"in two pieces {joined:.4f}, at once {scores.softmax(-1) @ values:.4f}")

# %% [markdown]
# The piece with the smaller top is scaled down, and all is as if it had been computed at once. With small enough pieces everything stays in the cache, and the table never gets to memory. That is the idea of **FlashAttention** (Dao et al. 2022). The result is
# the same, not an approximation, and so is the number of FLOPs, forward. In PyTorch `scaled_dot_product_attention` chooses among several **kernels**, ready-made pieces of machine code. Which are there on a CPU?

# %%
q, k, v = (torch.randn(1, 4, 64, 32) for _ in range(3))  # 1 text, 4 heads, 64 tokens, 32 features
for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
    try:
        with sdpa_kernel(kernel):
            scaled_dot_product_attention(q, k, v, is_causal=True)
        print(f"{kernel.name:<20} is here")
    except RuntimeError:
        print(f"{kernel.name:<20} is not, it needs a GPU")


# %%
def attention_costs(kernel: SDPBackend, length: int) -> tuple[int, float, torch.Tensor]:
    """Bytes of the largest tensor that is made, seconds, and the result."""
    generator = torch.Generator().manual_seed(14)
    q, k, v = torch.randn(3, 1, 4, length, 32, generator=generator)
    with sdpa_kernel(kernel):
        with Watch() as watch:
            result = scaled_dot_product_attention(q, k, v, is_causal=True)
        took = seconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=True), rounds=3)
    return max(n for _, n in watch.seen), took, result


# %%
for length in (256, 512, 1024):
    table, slow, one = attention_costs(SDPBackend.MATH, length)
    pieces, fast, other = attention_costs(SDPBackend.FLASH_ATTENTION, length)
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    print(f"T {length:>4}: largest tensor {table / 1e6:5.2f} MB, in pieces {pieces / 1e6:4.2f} MB;", end=" ")
    print("the table takes", measured(slow / fast, "times as long", 0.2, 500))

# %% [markdown]
# Twice the tokens, four times the table; in pieces, twice. The library's `attend` calls this function, and with `is_causal` instead of a mask of its own, so that blocks of keys that are all masked can be left out.

# %% [markdown] slide="slide" minutes=7
# ## 5. Fewer passes, fewer bytes, fewer digits
# ### Compile
# What FlashAttention does for attention, can it be done for norms and sums? `torch.compile` watches the model run once, notes all operations as one **graph**, and writes code in which neighbours share a pass over memory. The second part needs a C++ compiler and takes
# a while, so here is the first: a compiler of ours, which only counts and then runs the graph as it is.

# %%
graphs = []


def only_look(graph, inputs):
    graphs.append(graph)
    return graph.forward


ids = next(batches)[0]
with torch.no_grad():
    watched = torch.compile(model, backend=only_look)(ids)
    torch.testing.assert_close(watched, model(ids))
print(f"{len(graphs)} graph holds the whole model")

# %% [markdown]
# One graph: nothing in the model forces a stop, such as looking at a value to decide what to do next. Each stop would split it. `model.compile()` compiles for good.
# What that is worth here takes too long for a lesson. It was measured once, and `make bench ARGS="--only compiled"` measures it on your machine:

# %% tags=["source-hidden"]
record = {"eager": 1160, "compiled": 757}  # ms, median of 10, 2 cores, torch 2.13, while others worked
print(f"an update of the default recipe: {record['eager']} ms, compiled {record['compiled']} ms,", end=" ")
print(f"{record['compiled'] / record['eager']:.2f} times as long (0.39 to 2.85); the first one took 57 s")

# %% [markdown]
# ### Half the bytes
# Numbers of 16 bits take half the memory, and half the time to move. Whether they are also *multiplied* faster depends on the processor: it needs instructions for them. Without, each product is put together from detours.

# %%
square = torch.randn(768, 768)
brief = square.bfloat16()
full, half = seconds(lambda: square @ square), seconds(lambda: brief @ brief, rounds=3)
print("here a product in bf16 takes", measured(half / full, "times as long as in fp32", 0.02, 50))

# %% [markdown]
# Below 1 means faster. On processors without these instructions it is several times slower, on those with them, and on GPUs, several times faster. Do not take anybody's word for it, measure it where you train: the library's `precision="auto"` takes bf16 only
# where there are instructions.
#
# bf16 reaches as far as fp32 and loses digits (lesson 04). The older fp16 has more digits, and ends early, at both ends. Gradients are often tiny:

# %%
tiny = torch.tensor(1e-8)
print("in fp16:", tiny.half().item(), " in bf16:", f"{tiny.bfloat16().item():.1e}")
print("times 65536, in fp16, and back:", f"{(65536 * tiny).half().float().item() / 65536:.1e}")

# %% [markdown]
# So with fp16 the loss is multiplied by a large number before the backward pass, all gradients with it, and they are divided again before the update: a `GradScaler` does that. It also leaves out an update whose gradients are infinite, and takes a smaller number. The whole loop of **mixed precision**:


# %%
def small_model() -> TransformerLM:
    torch.manual_seed(14)
    return TransformerLM(preset("modern", vocab_size=32, d_model=32, n_layers=1, n_heads=2, max_seq_len=24))


def rule_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Each number is 7 more than the one before, modulo 32."""
    ids = (torch.randint(32, (8, 1)) + 7 * torch.arange(25)) % 32  # (8, 25)
    return ids[:, :-1], ids[:, 1:]


# %%
def mixed_losses(fp16: bool = True, forget: bool = False) -> list[float]:
    net, losses = small_model(), []
    adamw, scaler = torch.optim.AdamW(net.parameters(), lr=1e-2), torch.amp.GradScaler("cpu", enabled=fp16)
    for _ in range(100):
        x, y = rule_batch()
        if not forget:
            adamw.zero_grad()
        with torch.amp.autocast("cpu", dtype=torch.float16, enabled=fp16):
            loss = cross_entropy(net(x).flatten(0, 1).float(), y.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(adamw)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(adamw)
        scaler.update()
        losses.append(loss.item())
    return losses


# %% rows=["S4-53"]
losses = mixed_losses()
print(f"loss {losses[0]:.1f}, after 100 updates {losses[-1]:.1f}")
assert losses[-1] < 0.5 * losses[0]

# %% [markdown]
# `autocast` lets matrix products run in 16 bits and keeps what needs digits in fp32; the weights stay fp32. `unscale_` comes before clipping, or else the limit would be compared with the multiplied gradients. With bf16 the three lines with `scaler` go away, and nothing else changes. That is why hardly anybody
# trains in fp16 any more.
#
# ### Recompute
# A step can also be *made* slower to save memory. Lesson 10 counted what the backward pass needs of the forward pass: most of a step's memory. Instead of keeping all of it, keep what enters each block, and compute the rest a second time when it is needed (Chen et al. 2016).


# %%
def kept_bytes(model: TransformerLM, ids: torch.Tensor) -> int:
    """What the backward pass keeps, without the weights."""
    own, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def note(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x  # hold it, or its place is used again
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    entering = len(model.blocks) * ids.numel() * C * 4 if model.recompute else 0
    return entering + sum(x.untyped_storage().nbytes() for place, x in kept.items() if place not in own)


# %% rows=["S4-61"]
def gradient(model: TransformerLM, ids: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    return model.blocks[0].ffn.up_proj.weight.grad.clone()


found, took = {}, {}
for model.recompute in (False, True):
    print(f"recompute {model.recompute}: {kept_bytes(model, ids) / 1e6:.1f} MB are kept")
    found[model.recompute] = gradient(model, ids)
    took[model.recompute] = seconds(lambda: gradient(model, ids), rounds=3)
torch.testing.assert_close(found[True], found[False])
parts = [gradient(model, some) for some in ids.split(2)]  # accumulation: 4 micro-batches of 2 texts
torch.testing.assert_close(sum(parts) / 4, found[False], rtol=1e-3, atol=1e-6)
print("with recompute a pass takes", measured(took[True] / took[False], "times as long", 0.3, 10))
model.recompute = False

# %% [markdown]
# The same gradient, for a good deal less memory. Counted in FLOPs, 4 forward passes' worth instead of 3: a third more. The other way to save memory stands in the last lines: smaller batches whose gradients are added up (lesson 11) give the same gradient, too, for no more FLOPs. Why then recompute at all? Where a single text is already too large.

# %% [markdown] slide="slide" minutes=4
# ## 6. What is each choice worth?
# A faster machine is one way to be done sooner. To learn more from each update is another. The recipe of `modern` makes many choices: rotary positions, SwiGLU, norms on queries and keys, blocks that start at 0, a head of its own, Muon for the matrices. What is each worth? One
# exchanges one of them, leaves all else, and compares: an **ablation**. On StoryWorld the floor is known, so what is left can be measured exactly (lesson 11): nats per token above the floor.

# %%
show(gap_after)

# %% [markdown]
# One run says little: with another seed the weights start elsewhere and other stories come. So each choice runs with three seeds, and we look at the spread.

# %%
tried = (WHOLE, "AdamW instead of Muon", "first weights not zero")
gaps = {name: sorted(gap_after(name, n_steps=40, seed=seed) for seed in (1, 2, 3)) for name in tried}
for name, (least, middle, most) in gaps.items():
    print(f"{name:<23}{middle:.2f} nats above the floor ({least:.2f} to {most:.2f})")

# %% [markdown]
# Only a difference that is larger than the spread says something. And 40 updates are the very beginning: what helps there need not help at the end. AdamW runs with Muon's learning rate here, which may not be its best one; a fair comparison tries several.

# %% [markdown]
# So here is a longer run, of all choices. It takes minutes, so its figures are recorded; `make bench ARGS="--only ablation"` measures them again. AdamW has the best of three rates.

# %% tags=["source-hidden"]
# Nats above the floor after 100 updates, seeds 1 to 3; 2 cores without bf16 instructions, torch 2.13, fp32.
RECORD = {}

# %% tags=["source-hidden"]
whole = RECORD[WHOLE]
order = sorted(RECORD, key=lambda name: -sorted(RECORD[name])[1])
with figures.axes("One choice exchanged at a time", "nats above the floor", "", (9.6, 5)) as (figure, ax):
    ax.set_ylabel("what was exchanged")
    for row, name in enumerate(order):
        ax.plot(RECORD[name], [row] * 3, "o", color=figures.SERIES[name == WHOLE])
    ax.axvspan(min(whole), max(whole), color=figures.SERIES[1], alpha=0.15, linewidth=0)
    ax.set_yticks(range(len(order)), order)
figures.show(
    figure,
    alt="Dots, three for each choice: nats above the floor after 100 updates; a band marks the spread of the whole recipe.",
    caption="100 updates, three seeds each. The band is the spread of the whole recipe. Dots to its right: worse without that choice.",
    table={
        "exchanged": order,
        "middle": [sorted(RECORD[n])[1] for n in order],
        "least": [min(RECORD[n]) for n in order],
        "most": [max(RECORD[n]) for n in order],
    },
)

# %%
clearly = [name for name in RECORD if min(RECORD[name]) > max(whole)]
better = [name for name in RECORD if max(RECORD[name]) < min(whole)]
unclear = [name for name in RECORD if name not in (*clearly, *better, WHOLE)]
for verdict, names in (("worse", clearly), ("better", better), ("cannot be told", unclear)):
    print(f"{verdict}: {', '.join(names) or 'none'}")

# %% [markdown]
# What cannot be told apart here may still matter: in a larger model, on another text, or later in a run of its full length. And what is better after 100 updates may be worse at the end: the falling learning rate, for one, pays off where there is an end to fall to. An ablation speaks of the size at which it was run.

# %% [markdown] tags=["note"]
# Ask before the run: which choice would you give up first? Then: what would have to be true for this table to hold for a model a thousand times as large? (Nothing here says.)

# %% [markdown] slide="slide"
# ## 7. Your turn
# The roof of section 2, as a function.


# %% tags=["exercise"] name="attainable" minutes=6 difficulty=1
def attainable(flops, n_bytes, peak, bandwidth):
    """The most FLOPs per second that work of `flops` FLOPs, which moves n_bytes > 0 bytes, can reach; a number.

    peak: FLOPs per second of the processor. bandwidth: bytes per second of the memory. Both go on at the same time.
    """
    # SOLUTION
    return min(peak, bandwidth * flops / n_bytes)
    # END


# %% tags=["check"]
if check("attainable", attainable).passed:
    keep("attainable", attainable)

# %%
hint("attainable")

# %% [markdown] tags=["solution"]
# Bytes per second, times FLOPs per byte, are FLOPs per second; and the processor has a limit of its own. The usual slips: the intensity upside down, and `max`. Who thinks in seconds gets the same: `flops / max(flops / peak, n_bytes / bandwidth)`.

# %% [markdown]
# And the FLOPs of a step, for any config. Section 3 counted one kind of model; now the config decides. It has `d_model`, `n_layers`, `n_heads`, `n_kv_heads`, `d_head`, `d_ff`, `vocab_size`, `ffn` and `tie_embeddings`.


# %% tags=["exercise"] name="training_flops" minutes=16 difficulty=3
def training_flops(config, batch_size, seq_len):
    """FLOPs of the matrix products of one forward and backward pass, a whole number. config: a ModelConfig.

    A multiply-add counts 2. Queries have n_heads heads of d_head features, keys and values n_kv_heads; n_heads times
    d_head need not be d_model. ffn "swiglu" has three matrices, the others two. The head is a product whether it is tied or not;
    the embedding is none, it fetches rows. Scores count in full, seq_len x seq_len for each of n_heads heads, masked
    ones included. Biases, norms, positions and all else that is no matrix product count nothing.
    """
    # SOLUTION
    C, D, F, V = config.d_model, config.d_head, config.d_ff, config.vocab_size
    H, G = config.n_heads, config.n_kv_heads
    matrices = 3 if config.ffn == "swiglu" else 2
    block = 2 * C * H * D + 2 * C * G * D + matrices * C * F
    scores = 2 * H * D * seq_len
    per_token = config.n_layers * (block + scores) + C * V
    return 3 * 2 * batch_size * seq_len * per_token
    # END


# %% tags=["check"]
if check("training_flops", training_flops).passed:
    keep("training_flops", training_flops)

# %%
hint("training_flops")

# %% [markdown] tags=["solution"]
# Multiply-adds for one token: each weight of each matrix once, and two products per layer that have no weights. Then times 2 for multiply and add, times 3 for forward and backward, times the tokens. The usual slips: one of attention's two products is forgotten, the tied head counts nothing
# because it has no weights of its own, `n_kv_heads` narrows the scores as well (each query head has its own), and everything is counted for the forward pass only.

# %% [markdown] slide="subslide" minutes=1
# ### The library's version
# It agrees with section 3, and with what PyTorch counts when the products are run:

# %%
from torch.utils.flop_counter import FlopCounterMode

from tinylm_lib import cost

assert cost.training_flops(config, B, T) == step_flops
with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
    cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
print(f"ours {cost.training_flops(config, B, T):,}, counted {counter.get_total_flops():,}")
show(cost.training_flops, cost.forward_flops, cost.mfu)

# %% [markdown] slide="slide" minutes=4
# ## 8. On a GPU, and break it
# All of this holds on a GPU, with other numbers. Where there is one, this cell measures its roof as well; the stored output comes from a machine without.

# %% tags=["nbval-ignore-output"]
for device in ("cpu", "cuda")[: 1 + torch.cuda.is_available()]:
    top_speed, flow = roof(device)
    print(device, "peak:", measured(top_speed / 1e12, "trillion FLOPs per second", 1e-3, 1000))
    print(device, "bandwidth:", measured(flow / 1e12, "trillion bytes per second", 1e-4, 100))

# %% [markdown]
# And on paper, with a data sheet: an A100 with 80 GB multiplies at most $312 \cdot 10^{12}$ FLOPs per second in bf16, and moves about $2 \cdot 10^{12}$ bytes (NVIDIA 2021). A model of 1 billion parameters writes a text on it, alone:

# %%
peak_a100, bandwidth_a100 = 312e12, 2e12
n = 1e9  # parameters, 2 bytes each
print(f"they meet at {peak_a100 / bandwidth_a100:.0f} FLOPs per byte; one token has {2 * n / (2 * n):.0f}")
print(f"at most {bandwidth_a100 / (2 * n):,.0f} tokens per second, {bandwidth_a100 / peak_a100:.1%} of the peak")

# %% [markdown]
# One token at a time uses less than a hundredth of such a machine. This repository has no measured figures of a GPU: none was at hand. `make bench` measures training and writing there, where there is one.
#
# ### Break it: no zero_grad
# A published course note prints the loop of mixed precision in full, and forgets one line: `zero_grad`. PyTorch *adds* gradients to those that are there.

# %%
runs = {
    "right": losses,
    "forgotten, fp32": mixed_losses(fp16=False, forget=True),
    "forgotten, fp16": mixed_losses(forget=True),
}

# %% tags=["source-hidden"]
ends = runs["forgotten, fp16"]
predict(
    "The loop with fp16 and its scaler, without `zero_grad`, 100 updates. What does the loss do?",
    key=lambda: "it never falls" if min(ends) > 0.9 * ends[0] else "it falls" if ends[-1] < 1 else "?",
    choices={
        "an error comes": "PyTorch adds on purpose: accumulation needs it. Nothing tells it that an update is over.",
        "it falls": "In fp32 it does. But the scaler tries a large number first, and leaves out updates with infinite gradients.",
        "it never falls": "",
    },
    because="The first scaled gradients are infinite. Whatever is added to infinity, it stays infinite, and each update is left out.",
)

# %%
for name, run in runs.items():
    print(f"{name:<16} " + ", ".join(f"update {i}: {run[i - 1]:.1f}" for i in (1, 10, 30, 100)))

# %% [markdown]
# In the right run the first few updates are left out as well: the scaler halves its number until the gradients fit. Where nothing is zeroed, the infinite ones are still there, whatever the number, and not one
# update is ever made. No message says so. In fp32 the same slip does hardly any harm here: the rule is easy, and clipping keeps the sum of all old gradients from growing. That is what makes it hard to find. Look at whether the *weights* move.
#
# ## What you have now
# - Work is counted in FLOPs and bytes. FLOPs per byte decide whether memory or processor is the limit.
# - A step is three forward passes; each weight of a matrix takes 6 FLOPs per token, and attention's scores come on top.
# - What keeps a step from the peak: small products, and many small operations that are no products.
# - Attention in pieces gives the same result without its table. Compiling joins neighbours; 16 bits halve the bytes, and pay where there are instructions for them.
# - A choice is worth what an ablation shows, with its spread, at the size where it was run.

# %%
print(f"6 FLOPs per weight and token: {6 * maps * B * T / step_flops:.0%} of the step; the rest are scores")

# %% [markdown]
# Next, lesson 15: what to do with ten, a thousand, a million times as many FLOPs.
#
# ## Sources
# - The roofline: Williams, Waterman and Patterson 2009, *Roofline: An Insightful Visual Performance Model for Multicore Architectures*.
# - FLOPs of a step and MFU: Chowdhery et al. 2022, *PaLM: Scaling Language Modeling with Pathways*, appendix B.
# - Attention in pieces: Dao et al. 2022, *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*, section 3.
# - Mixed precision and loss scaling: Micikevicius et al. 2018, *Mixed Precision Training*, section 3.
# - Recomputing: Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost*, section 3.
# - The GPU's numbers: NVIDIA 2021, *NVIDIA A100 Tensor Core GPU* data sheet.
