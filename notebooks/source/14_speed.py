# %% [markdown] slide="slide"
# # 14 Speed
# **How fast could it be, and what keeps it from that?**
#
# *Needs* lessons 05, 08, 10, 11 and 13. *Builds* `training_flops` in `cost.py` and `quantize_int8` in `quantization.py`. *Runs* in about 35 s on two cores.
# *Teaches* in about 71 minutes, plus 31 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: count the work first, then measure, and then ask which of three limits sets the pace: the processor, the memory, or the price of a call.
# Sections 1 to 5 are the core, with one exercise. Section 6 stores each weight in one byte. Section 7 asks how sure one can be that a choice helps, section 8 trains with numbers of half the size, and section 9 collects what engineers need.
# Before the class: run all cells once on the computer that you project from, without other programs, because all times and the roof are those of your machine. The text avoids conclusions that another machine could contradict.

# %% slide="skip"
import torch
from matplotlib import pyplot as plt

from tinylm_classroom import figures, predict

plt.style.use(figures.STYLE)
_ = torch.manual_seed(14)

# %% [markdown] tags=["note"]
# **Say.** Your model trains. Is that fast or slow? Without a number to compare with, nobody can say. So first we count what there is to do.
#
# **Draw.** Two small matrices and their product. Count the multiplications for one number of the result, then the numbers of the result. Below it two boxes, *memory* and *processor*, with an arrow between them: the matrices have to travel.
#
# **Ask.** Which has more work for each byte: a norm, a softmax, adding two vectors, or a large product? (All but the product are at about 1 or below.)
#
# **Usual answers.**
# - *One operation for three numbers, so a third* (`1/4`): Count bytes, not numbers. Each number has four.
# - *The result is free* (`1/8`): It has to be written, too.
# - *FLOPS is a speed* (from the room): Elsewhere it often is. Here a FLOP is a piece of work, and a speed is FLOPs per second.
#
# **Cut if short.** The table of the three sizes.

# %% [markdown] slide="slide"
# ## 1. Count first
# Your model trains. Is it fast? Without a number to compare with, nobody can say. So we first count how much work there is, then measure how fast this machine does such work, and only then look at the clock.
#
# Nearly all the arithmetic of a model is in matrix products. Here is a small one by hand: 2 rows of 3 numbers, times 3 rows of 4.

# %%
M, K, N = 2, 3, 4
a, b = torch.randn(M, K), torch.randn(K, N)
result = a @ b  # (M, K) @ (K, N) -> (M, N)
multiplications = sum(1 for row in range(M) for column in range(N) for inner in range(K))
print(f"{result.numel()} results, {multiplications} multiplications, as many additions: {2 * multiplications} in all")
assert 2 * multiplications == 2 * M * K * N

# %% [markdown]
# (Each product is added to a sum that starts at 0.) One multiplication or one addition is a **FLOP**, a floating-point operation, so the product of (M, K) and (K, N) takes $2MKN$ of them.
#
# The other half of the count is easily forgotten: the numbers have to get from the memory to the processor and back. Two matrices are read and one is written, with 4 bytes for each number in fp32.


# %%
def product(M: int, K: int, N: int) -> tuple[int, int]:
    """FLOPs and bytes of (M, K) @ (K, N)."""
    return 2 * M * K * N, 4 * (M * K + K * N + M * N)


# %%
for n in (6, 60, 600):
    flops, n_bytes = product(n, n, n)
    print(f"{n:>3} x {n:<3}: {flops:>11,} FLOPs, {n_bytes:>9,} bytes, {flops / n_bytes:.1f} FLOPs per byte")

# %% [markdown]
# FLOPs grow with the cube of the size, bytes with the square. FLOPs per byte are called the **arithmetic intensity**: how much work is done for each byte that is moved. A large product uses every number many times. Adding two vectors uses each number once:

# %% tags=["source-hidden"]
predict(
    "Two vectors of n numbers in fp32 are added: n additions. How many FLOPs per byte?",
    key=lambda: f"1/{4 * 3}",
    choices={
        "1": "Each addition reads two numbers and writes one, and each has 4 bytes.",
        "1/4": "That counts one number of 4 bytes for each addition. But two are read, and one is written.",
        "1/8": "Two are read. And the result?",
        "1/12": "",
    },
    because="Three numbers of 4 bytes for one addition.",
)

# %% [markdown] tags=["note"]
# **Say.** Two numbers describe a machine: how many FLOPs per second it can do, and how many bytes per second its memory can deliver. Together they are a roof, and we look at how close our code gets to it.
#
# **Draw.** The roof: both axes logarithmic, a slope and then a ceiling. Mark the corner. Left of it write *the memory is the limit*, right of it *the processor is the limit*.
#
# **Ask.** Before the picture: two additions, one of 20 million numbers and one of 100,000, have the same intensity. Do they have the same speed?
#
# **Usual answers.**
# - *64 tokens are 64 times the work, so each takes as long as one alone* (`about as much`): They are 64 times the FLOPs, but all of them meet the same weights, which are read once.
# - *A larger batch makes each token slower* (`more`): It makes the whole batch slower, but we divide by the number of tokens.
# - *The two additions have the same speed, because the line has only one height there* (from the room): The line describes numbers that come from memory. 1,200,000 bytes stay in the cache from one round to the next.
# - *A point is above the roof, so the roof is wrong* (from the room): Look at the repeated measurements first, and ask whether these bytes fit into a cache. On a busy machine even large work can be well above a roof that was measured in a bad moment.
# - *The intensity is bytes per FLOP* (`upside down`): Check the units. The bandwidth has bytes per second, the result has FLOPs per second.
# - *The larger of the two limits* (`the larger`): The slower of the two holds up the other.
#
# **Cut if short.** The three repeated measurements, and the control.

# %% [markdown] slide="slide"
# ## 2. The roof of this machine
# Two speeds of the machine matter. How many FLOPs per second does it reach at best? A large matrix product measures this speed, the **peak**. How many bytes per second come from memory? Reading and copying something large measures this speed, the **bandwidth**.

# %% slide="skip"
import time
from collections.abc import Callable

from tinylm_classroom import check, control, hint, keep, measured


# %%
def seconds(work: Callable[[], object], device: str = "cpu", rounds: int = 5) -> float:
    """The best time of a few calls; the first, which also sets things up, does not count."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(rounds + 1):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times[1:])


# %% [markdown]
# We take the *best* of a few calls, because everything else that the machine does can only add time. (A GPU receives its work and computes on its own, so `wait` lets it finish before we look at the clock.)


# %%
def fastest_product(device: str = "cpu") -> float:
    """FLOPs per second of a large product in fp32."""
    square = torch.randn(1024, 1024, device=device)
    return product(1024, 1024, 1024)[0] / seconds(lambda: square @ square, device)


# %%
def roof(device: str = "cpu") -> tuple[float, float]:
    """Peak in FLOPs per second and bandwidth in bytes per second, both in fp32."""
    block = torch.randn(32_000_000, device=device)
    other = torch.empty_like(block)
    n_bytes = 4 * block.numel()
    read, copied = seconds(block.sum, device), seconds(lambda: other.copy_(block), device)
    return fastest_product(device), max(n_bytes / read, 2 * n_bytes / copied)


# %%
roofs = [roof() for _ in range(3)]
peak = max(fastest for fastest, _ in roofs)
bandwidth = max(widest for _, widest in roofs)
print("peak:     ", measured(peak / 1e9, "billion FLOPs per second", 0.5, 50_000))
print("bandwidth:", measured(bandwidth / 1e9, "billion bytes per second", 0.2, 5_000))
print("they meet at", measured(peak / bandwidth, "FLOPs per byte", 0.1, 2000))

# %% slide="skip"
for fastest, widest in roofs:
    print("peak:", measured(100 * fastest / peak, "% of the best", 1, 101), end=", ")
    print("bandwidth:", measured(100 * widest / bandwidth, "% of the best", 1, 101))

# %% [markdown] slide="subslide"
# While one byte arrives, the processor could do that many FLOPs. Work of a smaller intensity leaves the processor waiting, if its numbers come from memory: it is **memory-bound**. Work of a larger intensity is **compute-bound**. If moving and computing happen at the same time, the slower one sets the pace. So work of intensity $I$ can reach at most this many FLOPs per second, which is called the **roofline** ([Williams et al. 2009](https://doi.org/10.1145/1498765.1498785)):
#
# $$\min(\text{peak},\; \text{bandwidth} \cdot I)$$
#
# Drawn over $I$ it is a slope and then a ceiling.

# %% [markdown]
# Where is real work on this roof? We measure a linear map from 4096 to 4096 features: for one token, as when a model writes (lesson 13), and for more and more tokens at once, as when it trains. And we measure two additions, of 20 million numbers and of 100,000.

# %% slide="skip"
wide, tokens_at_once = 4096, (1, 4, 16, 64, 256)
weight = torch.randn(wide, wide)  # 67 MB, more than most caches hold
times = {}
for tokens in tokens_at_once:
    x = torch.randn(tokens, wide)
    times[tokens] = seconds(lambda x=x: x @ weight.T, rounds=3)
adding = {}
for n in (20_000_000, 100_000):  # 240,000,000 and 1,200,000 bytes: two vectors are read, one is written
    left, right = torch.randn(n), torch.randn(n)
    sums = torch.empty_like(left)
    adding[n] = seconds(lambda left=left, right=right, sums=sums: torch.add(left, right, out=sums), rounds=10)

# %% [markdown]
# With one token, each weight of 4 bytes takes part in 2 FLOPs: half a FLOP per byte.

# %% tags=["source-hidden"]
answer = "clearly less" if times[64] / times[1] < 50 else "about as much"
feedback = {
    "clearly less": "That needs a processor that waits for the weights of one token. This one was busy enough.",
    "about as much": "It would if one token kept the processor busy. But it does only 2 FLOPs with each weight.",
    "more": "All tokens use the same weights, which are read once. Why should that make a token slower?",
}
predict(
    "The linear map takes 1 token alone, or 64 at once. How much time does each of the 64 take, compared with the one alone?",
    key=lambda: answer,
    choices={**feedback, answer: ""},
    because="We compare the time for 64, divided by 64, with the time for 1. The weights are fetched once for all 64, and larger products also use the processor better.",
)

# %% tags=["source-hidden"]
points = {f"{n} token" + "s" * (n > 1): (*product(n, wide, wide), times[n]) for n in tokens_at_once}
points = {f"{n:,} additions": (n, 3 * 4 * n, took) for n, took in adding.items()} | points
drawn = {name: (flops / n_bytes, flops / took) for name, (flops, n_bytes, took) in points.items()}
meet = peak / bandwidth

# %% tags=["signature", "source-hidden"]
with figures.axes("How fast could it be? The roof of this machine", "FLOPs per byte", "billion FLOPs per second", (11.4, 6)) as (figure, ax):  # fmt: skip
    over = torch.tensor([0.002, meet, 1000])
    roof_line = (bandwidth * over).clamp(max=peak) / 1e9
    ax.fill_between(over, roof_line, 1e-3, color=figures.SERIES[0], alpha=0.1, linewidth=0)
    ax.plot(over, roof_line, color=figures.SERIES[0], linewidth=4)
    dots = [(i, rate / 1e9) for i, rate in drawn.values()]
    ax.plot(*zip(*dots, strict=True), "o", markersize=13, color=figures.SERIES[1])
    for name, (intensity, rate) in drawn.items():
        place, side = ((-14, -5), "right") if "additions" in name else ((10, -22), "left")
        ax.annotate(
            name.removesuffix(" tokens"), (intensity, rate / 1e9), place, textcoords="offset points", size=17, ha=side
        )
    bottom, top_rate = min(rate for _, rate in drawn.values()) / 6e9, 3 * peak / 1e9
    ax.axvline(meet, color=figures.INK, linestyle=":", linewidth=2)
    ax.text(meet / 1.3, bottom * 1.4, "the memory is the limit", size=18, ha="right", weight="bold")
    ax.text(meet * 1.3, bottom * 1.4, "the processor is the limit", size=18, weight="bold")
    ax.set(xscale="log", yscale="log", xlim=(0.002, 1000), ylim=(bottom, top_rate))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
figures.display(
    figure,
    alt="A roofline, both axes logarithmic: a slope that becomes a ceiling, with points for two additions at the left, one below the other, and a linear map of 1, 4, 16, 64 and 256 tokens further and further to the right.",
    caption="The line is the most that the measured bandwidth and peak allow, and the points are measured work. The same weights, used for 1 to 256 tokens at once, climb the slope.",
    table={"work": list(drawn), "FLOPs per byte": [i for i, _ in drawn.values()], "measured": [measured(rate / 1e9, "billion/s", 1e-3, 50_000) for _, rate in drawn.values()], "at most": [measured(min(peak, bandwidth * i) / 1e9, "billion/s", 1e-3, 50_000) for i, _ in drawn.values()]},
)  # fmt: skip

# %% evidence="intensity" slide="skip"
for tokens in tokens_at_once:
    print(f"{tokens:>3} at once:", measured(1000 * times[tokens] / tokens, "ms for each token", 1e-4, 10_000))
map_rate = product(256, wide, wide)[0] / times[256] / 1e9
addition_rate = 20_000_000 / adding[20_000_000] / 1e9
print("256 at once:", measured(map_rate, "billion FLOPs per second", 0.1, 1e6), end="; ")
print("20 million additions:", measured(addition_rate, "billion FLOPs per second", 0.01, 1e5))

# %% [markdown]
# The linear map took less time for each token when many tokens were computed at once. [[intensity]] This is one reason why servers answer many people at once. The memory need not be its only cause: a small map, whose weights fit into the cache (a small, fast memory near the processor, not the KV cache of lesson 13), can behave in the same way.

# %% [markdown] slide="say"
# How exactly should you read the figure? The peak and the bandwidth are measurements, too: we measured each three times and took the best, and you saw above how much they vary. So a point that is above the line by no more than that means nothing.
#
# A point far above the line probably found its numbers in the **cache**, a small and faster memory. The addition of 20 million numbers moves 240,000,000 bytes, which do not fit into the cache of most processors. (Some servers have caches of hundreds of MB. There the measured bandwidth may be the cache's.) The addition of 100,000 numbers moves 1,200,000 bytes, has the same intensity, and is usually higher, by half or by several times. A point far below the line, as 4 tokens at once may be, shows that the roof is only a limit: not all code reaches it.

# %% [markdown] slide="subslide"
# ### The roof as a function
# The formula takes one line of Python, if you compute the intensity first.


# %% tags=["exercise"] name="attainable" minutes=5 difficulty=1
def attainable(flops, n_bytes, peak, bandwidth):
    """The most FLOPs per second that work of `flops` FLOPs, which moves n_bytes > 0 bytes, can reach; a number.

    peak: FLOPs per second of the processor. bandwidth: bytes per second of the memory.
    Moving and computing go on at the same time.
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
# Bytes per second, times FLOPs per byte, are FLOPs per second; and the processor has a limit of its own. The usual mistakes: the intensity upside down, and `max`. If you think in seconds, you get the same: `flops / max(flops / peak, n_bytes / bandwidth)`.

# %% [markdown] slide="subslide"
# ### On a GPU
# A **GPU** is a processor with thousands of small units that all do the same operation on different numbers, and with a memory of its own. Its roof has the same form as ours. For an A100 the data sheet says 312 trillion FLOPs per second in bf16 (2 bytes for each number) and 2 trillion bytes per second (NVIDIA 2021). How many tokens at once keep it busy?


# %%
def on_a_gpu(tokens=1, width=4096):
    flops, n_bytes = product(tokens, width, width)
    intensity = flops / (n_bytes / 2)  # bf16: half the bytes
    most = min(312e12, 2e12 * intensity)
    draw_roof(intensity, most, f"{tokens} at once, {width} features: at most {most / 312e12:.1%} of the peak")


# %% tags=["source-hidden"] slide="skip"
def draw_roof(intensity, most, title):
    fig, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
    across = torch.tensor([0.3, 156, 3000])
    ax.plot(across, (2e12 * across).clamp(max=312e12) / 1e12, color=figures.SERIES[0], linewidth=4)
    ax.plot(intensity, most / 1e12, "o", markersize=16, color=figures.SERIES[1])
    ax.set(xscale="log", yscale="log", title=title, xlabel="FLOPs per byte", ylabel="trillion FLOPs per second")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    alt = f"The roofline of an A100 and one point at {intensity:.0f} FLOPs per byte."
    caption = "The point is the most that the two numbers of the data sheet allow for this product."
    figures.display(
        fig, alt=alt, caption=caption, table={"FLOPs per byte": [intensity], "trillion FLOPs/s": [most / 1e12]}
    )


# %%
control(on_a_gpu, tokens=[1, 16, 64, 256, 1024], width=[128, 1024, 4096])

# %% slide="skip" evidence="gpu-roof"
corner_of_a_gpu = 312e12 / 2e12
for features in (128, 1024, 4096):
    one, some, many = (
        2 * product(n, features, features)[0] / product(n, features, features)[1] for n in (1, 256, 100_000)
    )
    print(
        f"{features:>4} features: {one:.1f} FLOPs per byte for 1 token, {some:>3.0f} for 256, {many:>4.0f} for 100,000"
    )
    assert one < 1 and (many > corner_of_a_gpu) == (features > 312)
print(f"the corner of the roof is at {corner_of_a_gpu:.0f}")
assert some > corner_of_a_gpu  # 4096 features

# %% [markdown] slide="say"
# One token alone reaches less than 1 % of this peak. With 4096 features 256 tokens at once are enough to get to the ceiling. With 128 features even 100,000 tokens are not, because the inputs and results must be moved as well: [[gpu-roof]] a model as small as ours cannot keep such a GPU busy.

# %% [markdown] tags=["note"]
# **Say.** Now the clock. We count the FLOPs of one update, compare with the peak, and ask a profiler who took the rest of the time.
#
# **Draw.** The two products of the backward pass, with shapes. Let the class find which axis disappears in each of them.
#
# **Ask.** Before the profiler's table: which of the four groups is the largest?
#
# **Usual answers.**
# - *The products, nearly all of it* (from the room): That follows from counting FLOPs. But a FLOP in a norm takes longer than one in a product.
# - *The norms and the other small operations* (from the room): That follows from one ratio. Measure the whole step.
# - *A linear map has one product backward, too* (`backward as forward`): It has one for the gradient of the inputs and one for the gradient of the weights.
# - *A multiply-add is one operation* (`a multiply-add is one`): Some authors count so. We count 2, as the peak does.
# - *Attention's products are the four maps* (`no scores`): Two more have no weights: queries with keys, and weights with values.
#
# Collect the tables of the room, and let somebody repeat it with another number of threads (`torch.set_num_threads`). A machine with many cores has a higher peak and a lower MFU at these sizes.
#
# **Cut if short.** The table of long and short texts, and the time of the norm.

# %% [markdown] slide="slide"
# ## 3. Where a training step's time goes
# How many FLOPs does one update take? In the forward pass each weight is multiplied once and added once for each token: 2 FLOPs. Lesson 10 said that the backward pass takes twice as many. Why twice? Here is one linear map $y = xW^\top$, where `back` is the gradient that comes back at $y$:

# %% slide="skip"
from tinylm_lib import TrainConfig, TransformerLM, preset
from tinylm_classroom import ablation, show, trace


# %% slide="skip"
def forward_and_back(x, W, back):
    y = x @ W.T
    for_x = back @ W
    for_W = back.T @ x
    return y, for_x, for_W


# %%
five, linear, came_back = torch.randn(5, 3), torch.randn(4, 3), torch.randn(5, 4)
trace(forward_and_back, five, linear, came_back, sizes={"T": 5, "C": 3, "F": 4})

# %% evidence="backward-twice"
by_hand = forward_and_back(five, linear, came_back)[1:]
(five.requires_grad_() @ linear.requires_grad_().T).backward(came_back)
for ours, theirs in zip(by_hand, (five.grad, linear.grad), strict=True):
    torch.testing.assert_close(ours.detach(), theirs)
five.grad = linear.grad = None
assert product(5, 4, 3)[0] + product(4, 5, 3)[0] == 2 * product(5, 3, 4)[0]
print("forward", product(5, 3, 4)[0], "FLOPs, backward", product(5, 4, 3)[0], "+", product(4, 5, 3)[0])

# %% [markdown]
# There are two products, one for what goes further back and one for the weights, each as large as the forward one. So the products of forward and backward together take as many FLOPs as those of **three forward passes**. [[backward-twice]] (The optimizer can have products of its own, which we count below.)

# %% [markdown] slide="subslide"
# Lesson 08 counted the multiply-adds of one token. Multiply by 2, by 3 and by the number of tokens. For a model of the kind `modern`, with L layers and T tokens in each of B texts:

# %%
V, C, F, L, H, B, T = 345, 128, 320, 3, 4, 8, 100
config = preset("modern", vocab_size=V, d_model=C, n_layers=L, n_heads=H, max_seq_len=T)
assert config.d_ff == F
maps = L * (4 * C * C + 3 * C * F) + C * V  # multiply-adds for one token: attention's four, SwiGLU's three, the head
scores = L * 2 * C * T  # q with each key, and the weights with each value
step_flops = 3 * 2 * B * T * (maps + scores)
print(f"{step_flops / 1e9:.2f} billion FLOPs; {scores / (maps + scores):.0%} of them in scores and mixing")
print("at the peak that would take", measured(1000 * step_flops / peak, "ms", 0.02, 5000))

# %% [markdown] slide="say"
# The linear maps take the same number of FLOPs for every token, but the scores grow with T. So the same number of tokens takes more FLOPs in a few long texts than in many short ones.

# %% rows=["S4-51"] evidence="long-texts" slide="skip"
flops = 0
for batch, length in ((512, 32), (32, 512), (1, 16384)):
    in_shorter = flops
    flops = 3 * 2 * batch * length * (maps + L * 2 * C * length)
    assert flops > in_shorter
    print(f"{batch:>3} texts of {length:>6,}: {batch * length:,} tokens, {flops / 1e9:>5.0f} billion FLOPs")
print(f"an update of a million tokens: {1e6 / (32 * 512):.0f} such batches, accumulated (lesson 11)")

# %% [markdown] slide="subslide"
# Now the clock. We time the parts of one update one by one, with the library's default optimizer:

# %% slide="skip"
from itertools import pairwise

from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from tinylm_lib.data import RandomWindows
from tinylm_lib.training import build_optimizer


# %% slide="skip"
def step_times(model: TransformerLM, batches: RandomWindows, optimizer: torch.optim.Optimizer) -> list[float]:
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
    return [end - start for start, end in pairwise(clock)]


# %% slide="skip"
PARTS = ("data", "forward", "backward", "clip", "optimizer")
model = TransformerLM(config)
batches = RandomWindows(ablation.stories().ids, B, T, seed=14)
optimizer = build_optimizer(model, TrainConfig())
rounds = torch.tensor([step_times(model, batches, optimizer) for _ in range(9)][2:])  # (7, 5): updates, parts
spent = dict(zip(PARTS, rounds.median(0).values.tolist(), strict=True))
total = sum(spent.values())
print("one update:", measured(1000 * total, "ms", 0.5, 60_000))

# %% tags=["source-hidden"]
best = {"forward": step_flops / 3 / peak, "backward": 2 * step_flops / 3 / peak}
with figures.axes("Where the time goes", "milliseconds", "one update", (8.6, 3.4)) as (figure, ax):
    left = [0.0, 0.0]
    for part, color in zip(PARTS, figures.SERIES, strict=False):
        widths = [1000 * best.get(part, 0.0), 1000 * spent[part]]
        ax.barh(["at the peak", "measured"], widths, left=left, label=part, color=color)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    ax.grid(visible=False, axis="y")
    ax.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.4, -0.25), columnspacing=1, handlelength=1)
figures.display(
    figure,
    alt="Two bars in one scale. The upper one is a measured update, in pieces: data, forward, backward, clip, optimizer. The lower one is the time that the products of forward and backward would take at the machine's peak.",
    caption="Above: one update, the median of 7. Below: all products of forward and backward, if each ran at the peak.",
    table={"part": [*PARTS, "all"], "time": [measured(1000 * s, "ms", 1e-4, 60_000) for s in [*spent.values(), total]]},
)

# %% [markdown] slide="subslide"
# The fraction of the peak that the whole update reaches is called **MFU**, model FLOPs utilization (Chowdhery et al. 2022). (The peak is measured again below, so the MFU can differ from the ratio of the two bars.) What can keep it from 100 %? There are three candidates.
#
# - The products of this model are smaller than the one that measured the peak, so they may be slower. We run them alone, in their sizes.
# - The optimizer multiplies, too, and MFU does not count its products. [[optimizer-products]]
# - Many operations are not products at all.

# %% evidence="optimizer-products" slide="skip"
alone = 0.0
now = max(fastest_product() for _ in range(5))  # other work may have come to the machine, so the peak is measured again
for out, inner in [p.shape for p in model.parameters() if p.ndim == 2 and p is not model.embed.weight]:
    x, w = torch.randn(B * T, inner), torch.randn(out, inner)
    alone += seconds(lambda x=x, w=w: x @ w.T, rounds=3)
print("MFU:", measured(100 * step_flops / total / now, "%", 0.02, 300))
print("small products reach", measured(100 * 2 * B * T * maps / alone / now, "% of the peak", 0.2, 1000))
with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
    step_times(model, batches, optimizer)
print(f"products in the optimizer: {counter.get_total_flops() / step_flops - 1:.0%} on top of forward and backward")
assert counter.get_total_flops() > 1.2 * step_flops

# %%
x, w = torch.randn(B * T, C), torch.randn(C, C)  # (B*T, C), (C, C)
with torch.no_grad():
    norm_time, map_time = seconds(lambda: model.final_norm(x)), seconds(lambda: x @ w.T)
print(f"FLOPs for each number: norm about 4, map {2 * C}")
print("the norm takes", measured(100 * norm_time / map_time, "% of the map's time", 0.1, 10_000))
print(f"by FLOPs it would be {100 * 4 / (2 * C):.1f} %")

# %% [markdown] slide="subslide"
# The norm takes more time than its FLOPs suggest, because it squares, sums, scales and multiplies by its gain, in several passes over its numbers. But from this one ratio you cannot conclude how much of a *step* such operations take. For that, measure the step itself.
#
# A **profiler** records every operation that PyTorch runs, its time without the operations that it calls (its *self* time), and which operation called it. We sort all of them into four groups.


# %% slide="skip"
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from torch.profiler import ProfilerActivity, profile


# %% tags=["source-hidden"]
@contextmanager
def without_messages() -> Iterator[None]:
    """Some versions of the profiler write messages about themselves: keep them out of the notebook."""
    kept = os.dup(2)  # where the machine code of PyTorch writes its messages
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with redirect_stderr(io.StringIO()):  # where Python writes them
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


# %% slide="skip"
def group(operation) -> str:
    """The group of one recorded operation; all that the optimizer calls belongs to the optimizer."""
    caller = operation
    while caller is not None:
        if caller.name.startswith("Optimizer."):
            return "optimizer"
        caller = caller.cpu_parent
    if operation.name in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"):
        return "matrix products"
    return "attention" if "attention" in operation.name.lower() else "everything else"


# %% slide="skip"
GROUPS = ("matrix products", "attention", "optimizer", "everything else")
records = []
for _ in range(3):
    with without_messages(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        step_times(model, batches, optimizer)
    found = {name: [] for name in GROUPS}
    for operation in profiler.events():
        found[group(operation)].append(operation.self_cpu_time_total / 1e6)  # it counts microseconds
    records.append(found)
record = min(records, key=lambda found: sum(map(sum, found.values())))  # the fastest of the updates

# %% evidence="profile"
in_all = sum(map(sum, record.values()))
for name, spans in record.items():
    print(f"{name:<16}", measured(1000 * sum(spans), "ms", 1e-3, 60_000), end=" ")
    print(measured(100 * sum(spans) / in_all, "% of the time", 0.1, 100), end=" ")
    print("in", measured(len(spans), "operations", 3, 100_000))

# %%
slowdown = sum(record["matrix products"]) / (3 * alone)
print("the matrix products take", measured(slowdown, "times as long as alone", 0.02, 100))

# %% [markdown]
# Which group is the largest? Your own table decides, because it depends on the processor, on the number of threads and on the sizes of the model.

# %% [markdown] slide="subslide"
# Read the table in this order:
#
# - If *matrix products* are the largest group, a faster norm would change little. Ask why the products are slower than at the peak. The last line compares them with the same products run alone (the forward ones, times 3). If it is well above 1, the products take longer inside the step. Likely reasons are that other operations have used the cache in between, and that the backward products have other shapes.
# - If *everything else* is the largest group, most of the time goes into short operations: norms, rotations, SiLU, sums, copies. They have few FLOPs, but each has to be started, and reads and writes its numbers.
# - The *optimizer* works on the weights and not on the texts, so a larger batch does not take it longer. If it needs much of the step, try a larger batch.

# %% [markdown] slide="say"
# In our runs, with one and with two threads, on a quiet and on a busy machine, the products of the linear maps took three tenths to a half of the time. [[profile]] The group *attention* contains products of its own, scores and mixing, and so does the optimizer. And whatever you make faster, you save at most the percentage of its own group (Amdahl's law).
#
# Three warnings. The table is the fastest of three updates, and the bars above are a median, so on a busy machine their totals can differ by a factor of two or more. The profiler itself adds time to each operation, so a group of many short operations looks somewhat larger than it is. And the time that Python needs between the operations is not in the table.

# %% [markdown] slide="subslide"
# ### The FLOPs of any model
# Above we counted one kind of model. Now the config decides, as for the count of lesson 08. It has `d_model`, `n_layers`, `n_heads`, `n_kv_heads`, `d_head`, `d_ff`, `vocab_size`, `ffn` and `tie_embeddings`.


# %% tags=["exercise"] name="training_flops" minutes=10 difficulty=2 plan=80
def training_flops(config, batch_size, seq_len):
    """FLOPs of the matrix products of one forward and backward pass, a whole number. config: a ModelConfig.

    A multiply-add counts 2. Queries have n_heads heads of d_head features, keys and values n_kv_heads;
    n_heads times d_head need not be d_model. ffn "swiglu" and "geglu" have a gate and three matrices, the
    others two. The head is a product whether it is tied or not. The embedding only looks up rows: it counts nothing.
    Scores and mixing count in full, seq_len x seq_len for each of n_heads heads, masked ones included.
    Biases, norms, positions and everything else that is not a matrix product count nothing.
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

# %%
hint("training_flops")

# %% [markdown] tags=["solution"]
# Multiply-adds for one token: each weight of each matrix once, and two products per layer that have no weights. Then times 2 for multiply and add, times 3 for forward and backward, times the tokens. The usual mistakes: one of attention's two products is forgotten, the tied head counts nothing because it has no weights of its own, `n_kv_heads` narrows the scores as well (each query head has its own), and everything is counted for the forward pass only.

# %% [markdown] slide="subslide"
# ### The library's version
# It agrees with section 3, and with what PyTorch counts when the products are run: [[flops-counted]]

# %% evidence="flops-counted"
from tinylm_lib import cost

assert cost.training_flops(config, B, T) == step_flops
one_batch = next(batches)[0]  # (B, T)
with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
    cross_entropy(model(one_batch).flatten(0, 1), one_batch.flatten()).backward()
print(f"ours {cost.training_flops(config, B, T):,}, counted {counter.get_total_flops():,}")
assert counter.get_total_flops() == step_flops
show(cost.training_flops, cost.forward_flops, cost.mfu)

# %% [markdown] tags=["note"]
# **Say.** A product waits for the processor or for the memory. A model that writes one token at a time often waits for something else: for Python and PyTorch to start the next small operation.
#
# **Draw.** A row of small boxes, the work, with a gap before each. Make the boxes longer and the gaps stay the same; make the boxes shorter and only gaps are left.
#
# **Ask.** Adding two vectors of 1 number or of 1,000: how much longer does the second take? And of ten million?
#
# **Usual answers.**
# - *A thousand times the work takes a thousand times as long* (`about 1,000 times`): The work is not what takes the time.
# - *A few times longer* (`2 to 10 times`): Possible on a slow machine. Compare the first lines of the table.
# - *Use a faster processor* (from the room): It helps only as far as it makes Python faster, too. Fewer calls help everywhere.
#
# **Cut if short.** The random draw at the end.

# %% [markdown] slide="slide"
# ## 4. The price of a call
# The processor and the memory are two limits. A model that *writes*, one token at a time, can meet a third one. How many operations does PyTorch run for one token of the shipped model, after 100 tokens that are in the cache (lesson 13)? We sort them as above.

# %% slide="skip"
from tinylm_lib import KVCache
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.probabilities import sample

# %% slide="skip"
shipped = load_pretrained("storyworld")
writer = shipped.model.eval()
hundred = torch.randint(writer.config.vocab_size, (1, 101))  # (1, T)
cache = KVCache(writer.config, batch_size=1, max_len=101)
with torch.no_grad():
    writer(hundred[:, :100], cache)


# %% slide="skip"
@torch.no_grad()
def one_token() -> torch.Tensor:
    cache.length = 100  # the token that was added is overwritten
    return writer(hundred[:, 100:], cache)  # (1, 1, V)


for _ in range(10):  # the first tokens are slower
    one_token()
profiles = []
for _ in range(5):
    with without_messages(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        one_token()
    found = {name: [] for name in GROUPS if name != "optimizer"}
    for operation in profiler.events():
        found[group(operation)].append(operation.self_cpu_time_total)
    profiles.append(found)
calls_of_one = min(profiles, key=lambda found: sum(map(sum, found.values())))  # the fastest

# %% evidence="calls"
for name, spans in calls_of_one.items():
    print(f"{name:<16}", measured(len(spans), "operations", 1, 50000), end=" ")
    print(measured(100 * sum(spans) / sum(map(sum, calls_of_one.values())), "% of the time", 0.1, 100))
assert len(calls_of_one["matrix products"]) < 0.1 * sum(map(len, calls_of_one.values()))

# %% [markdown]
# Only a few of them are matrix products. [[calls]] The rest are norms, rotations, sums, copies into the cache, transposes that only describe how numbers are to be read, and many operations that others call to prepare their work. Nearly all of them work on a few hundred numbers. How long does such a small operation take?


# %%
def microseconds(work: Callable[[], object], times: int = 500) -> float:
    """The time of one short call, from the best of several rounds of many."""
    return 1e6 * seconds(lambda: [work() for _ in range(times)]) / times


# %%
lengths = [10**power for power in range(8)]  # 1 to 10 million numbers
vectors = {n: (torch.randn(n), torch.randn(n), torch.empty(n)) for n in lengths}
prices = {}
for n, (left, right, sums) in vectors.items():
    calls = max(3, min(500, 10**6 // n))
    prices[n] = microseconds(lambda left=left, right=right, sums=sums: torch.add(left, right, out=sums), calls)

# %% tags=["source-hidden"]
predict(
    "Two vectors are added: of 1 number each, or of 1,000. How much longer does the second addition take?",
    key=lambda: "less than twice" if prices[1000] < 2 * prices[1] else "2 to 10 times",
    choices={
        "less than twice": "",
        "2 to 10 times": "On a slow machine, perhaps. Here the adding itself was too short to notice.",
        "about 1,000 times": "It does a thousand times the work, but the work is not what takes the time.",
    },
    because="Before anything is added, Python calls PyTorch, which looks at types and shapes and chooses the machine code. That takes longer than adding 1,000 numbers.",
)

# %% slide="skip"
for n, price in prices.items():
    print(f"{n:>10,} numbers:", measured(price, "µs", 0.05, 1e6))

# %% tags=["source-hidden"]
rates = [12 * n / price / 1e3 for n, price in prices.items()]  # bytes in a microsecond, in billions in a second
fig, ax = plt.subplots(figsize=(9.6, 4.8), layout="constrained")
ax.plot(lengths, rates, "o-", linewidth=3, markersize=10)
ax.axhline(bandwidth / 1e9, color=figures.INK, linestyle=":", linewidth=2)
ax.text(1, bandwidth / 1e9, "the memory, as measured above", size=14, va="bottom")
ax.set(xscale="log", yscale="log", xlabel="numbers in each vector", ylabel="billion bytes per second")
ax.set(title="The same addition, longer and longer", ylim=(min(rates) / 2, 4 * max(*rates, bandwidth / 1e9)))
figures.display(
    fig,
    alt="A curve over the length of two vectors that are added, both axes logarithmic: it rises in a straight line and then bends; a dotted line marks the bandwidth of the memory.",
    caption="At the left each call takes about the same time, so ten times the numbers give ten times the speed. At the right the speed is limited by the memory, and in between the vectors may fit into the cache.",
    table={"numbers": lengths, "speed": [measured(rate, "billion bytes/s", 1e-6, 1e5) for rate in rates]},
)

# %% [markdown] slide="subslide"
# The time before the work begins is called **overhead**. One token of the shipped model takes:

# %% evidence="slower-than-memory"
n_bytes = sum(p.numel() * p.element_size() for p in writer.parameters())
token_price = microseconds(one_token, times=20)
print("one token takes", measured(token_price, "µs", 20, 1e6), end="; ")
print("its weights, read once at this bandwidth,", measured(1e6 * n_bytes / bandwidth, "µs", 1, 1e5))
assert token_price > 1e6 * n_bytes / bandwidth

# %% [markdown]
# That is longer than it takes to read all weights from memory. [[slower-than-memory]] Are the calls the reason? Then a token for each of 16 texts at once should take far less than 16 times as long: 16 times the work, but the same number of calls.


# %%
@torch.no_grad()
def price_of_a_step(n_texts: int) -> float:
    contents = KVCache(writer.config, batch_size=n_texts, max_len=101)
    rows = hundred.expand(n_texts, -1)  # (B, T)
    writer(rows[:, :100], contents)

    def step() -> torch.Tensor:
        contents.length = 100
        return writer(rows[:, 100:], contents)  # (B, 1, V)

    return microseconds(step, times=20)


# %% evidence="overhead"
compared = price_of_a_step(16) / price_of_a_step(1)
print("16 texts at once take", measured(compared, "times as long as one", 0.3, 10))

# %% [markdown]
# It takes clearly less than 16 times as long, so the FLOPs do not set the pace of one token. [[overhead]] A memory that is read only once for all 16 would give the same result, but reading the weights takes only a fraction of the time, as measured above. [[slower-than-memory]] What is left are the calls. In a large model it is the other way round: the price of a call is the same, while the work in it grows.

# %% [markdown]
# There are three limits, and each has its own remedies ([He 2022](https://horace.io/brrr_intro.html)): with large products count the FLOPs, with numbers from memory count the bytes, and with many short operations count the calls.

# %% [markdown] slide="subslide"
# Fewer calls, and no needless work in them: here is an example. A common way to draw a word is the exponential form of the **Gumbel-max trick**: divide each probability by exponential noise, and take the largest. It draws correctly, but it needs a random number for every word of the vocabulary, while the dart of lesson 12 needs one. [[one-dart]]

# %% evidence="one-dart"
probs = torch.randn(1, 50_257).softmax(-1)  # (1, V), as many words as GPT-2 has
noisy = microseconds(lambda: (probs / torch.empty_like(probs).exponential_()).argmax(-1), times=10)
dart = microseconds(lambda: sample(probs), times=10)
print("drawing one of 50,257 words takes", measured(noisy, "µs by noise", 1, 1e6), end=", ")
print(measured(dart, "µs by one dart", 1, 1e6))
assert dart < noisy

# %% [markdown] tags=["note"]
# **Say.** Attention's table is too large to keep. The trick of FlashAttention is an algorithm from the first week of programming: keep a running maximum and a running sum, and correct them when a larger number arrives.
#
# **Draw.** A row of scores in two pieces. Below each piece its top, its sum and its weighted values. Then both tops, and the factor that brings the smaller one to the common top.
#
# **Ask.** The second piece has a larger score than the first one. What happens to everything that we have added up so far?
#
# **Usual answers.**
# - *4 bytes for each weight of one head* (`4.2`): There are 4 heads.
# - *It is an approximation* (from the room): Compare the results. It only adds in another order.
# - *It saves FLOPs* (from the room): It saves bytes. With a causal mask it also leaves out blocks, but the table could leave them out as well.
# - *Just add the two sums* (`no rescale`): They were computed with different tops, so they have different units.
#
# **Cut if short.** The times of the two kernels.

# %% [markdown] slide="slide"
# ## 5. Attention without the table
# Attention has a table of T times T weights for each head. Lesson 05 built it whole: scores, softmax, weighted sum, each written to memory and read again.

# %% tags=["source-hidden"]
predict(
    "One text of 1024 tokens, 4 heads, fp32. How many MB (millions of bytes) does the table of weights take in one layer?",
    key=lambda: 4 * 1024**2 * 4 / 1e6,
    number="MB",
    within=0.5,
    feedback={4.2: "That is one head, or one byte for each number.", 1.0: "4 bytes for each number, and 4 heads."},
    because="4 heads, 1024 times 1024 weights, 4 bytes each.",
)

# %% [markdown]
# Must the table ever be in memory? The softmax needs the largest score and the sum over *all* keys. But we can take the keys in pieces, if we keep three things for each piece: its largest score, its sum, and its weighted values.


# %%
def piece(scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    top = scores.max()
    e = (scores - top).exp()
    return top, e.sum(), (e * values).sum()


scores, values = torch.tensor([1.0, 3.0, 0.0, 2.0]), torch.tensor([10.0, 20.0, 30.0, 40.0])
(top_1, sum_1, value_1), (top_2, sum_2, value_2) = piece(scores[:2], values[:2]), piece(scores[2:], values[2:])
top = max(top_1, top_2)
shrink_1, shrink_2 = (top_1 - top).exp(), (top_2 - top).exp()
joined = (shrink_1 * value_1 + shrink_2 * value_2) / (shrink_1 * sum_1 + shrink_2 * sum_2)
torch.testing.assert_close(joined, scores.softmax(-1) @ values)
print(f"in two pieces {joined:.4f}, at once {scores.softmax(-1) @ values:.4f}")

# %% [markdown]
# We scale down the piece with the smaller top, and the result is the same as if it were computed at once. This is the **online softmax** ([Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867)).

# %% [markdown] slide="say"
# For many queries at once the pieces are tiles of the table. Here is one head of the shipped model, with 24 tokens and tiles of 6 by 6:

# %% tags=["source-hidden"]
from tinylm_lib import storyworld
from tinylm_classroom import capture

first_words = shipped.tokenizer.encode("\n" + storyworld.story(torch.Generator().manual_seed(14)).text)[:24]
looks = capture(writer, torch.tensor([first_words])).attention(layer=2).weights[0, 0]  # (T, S)
fig, ax = plt.subplots(figsize=(7.4, 6), layout="constrained")
ax.imshow(looks, cmap=figures.HEAT, vmin=0, vmax=1)
ax.grid(visible=False)
order_of_tiles = [(row, column) for row in range(4) for column in range(row + 1)]
for row in range(4):
    for column in range(4):
        name = str(order_of_tiles.index((row, column)) + 1) if column <= row else "skipped"
        ax.text(6 * column + 2.5, 6 * row + 2.5, name, size=20 if column <= row else 15, weight="bold", ha="center", va="center")  # fmt: skip
for edge in (5.5, 11.5, 17.5):
    ax.axhline(edge, color=figures.INK, linewidth=2)
    ax.axvline(edge, color=figures.INK, linewidth=2)
ax.set(title="Attention in tiles", xlabel="key", ylabel="query", xticks=[0, 6, 12, 18], yticks=[0, 6, 12, 18])
figures.display(
    fig,
    alt="A table of attention weights of 24 by 24, cut into 4 by 4 tiles. The tiles on and below the diagonal are numbered from 1 to 10, the six above it are skipped.",
    caption="Only one tile at a time has to be in the cache. The six tiles above the diagonal are masked whole, so nobody computes them.",
    table={"tiles": ["computed", "skipped"], "how many": [len(order_of_tiles), 16 - len(order_of_tiles)]},
)

# %% [markdown] slide="subslide"
# ### Join two pieces
# FlashAttention reads one tile after the other and joins each with what it has so far. Write this step for all queries at once: each query has a top and a total of its own.


# %% tags=["exercise"] name="join_pieces" minutes=8 difficulty=3 plan=110
def join_pieces(one, other):
    """Join two pieces of attention into one. A piece is a tuple (top, total, mixed).

    top (T, 1): the largest score of each query. total (T, 1): the sum of exp(score - top) over the keys of the piece.
    mixed (T, D): the sum of exp(score - top) times the value, not yet divided by total.
    If all keys of a query are masked in a piece, its top is -inf there, and total and mixed are 0. At most one of the
    two pieces is so. Returns (top, total, mixed) of all keys together.
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

# %%
hint("join_pieces")

# %% [markdown] tags=["solution"]
# $e^{s - t_1} e^{t_1 - t} = e^{s - t}$: the factor $e^{t_1 - t}$ brings every number of a piece from its own top to the common one, the sum as well as the values. The piece with the larger top has the factor 1. Nothing is divided by the sum before the last piece has been joined.

# %% [markdown] slide="subslide"
# ### FlashAttention
# With small tiles everything stays in the cache, and the table never gets to memory. That is **FlashAttention** ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)): it is not an approximation. Apart from skipped tiles the forward pass takes as many FLOPs, but moves far fewer bytes.
#
# PyTorch's `scaled_dot_product_attention` chooses among several **kernels**, ready-made pieces of machine code. On a CPU there are two: `MATH` builds the table, `FLASH_ATTENTION` works in tiles. Do they give the same result?


# %% slide="skip"
def run(kernel: SDPBackend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The result, and the seconds."""
    with sdpa_kernel(kernel):
        took = seconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=True), rounds=3)
        return scaled_dot_product_attention(q, k, v, is_causal=True), took


# %% evidence="same-attention"
for length in (256, 512, 1024):
    q, k, v = torch.randn(3, 1, 4, length, 32)
    (one, slow), (other, fast) = (run(kernel, q, k, v) for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    slow, fast = (measured(1000 * took, "ms", 1e-3, 10_000) for took in (slow, fast))
    print(f"T {length:>4}: a table of {4 * 4 * length**2 / 1e6:4.1f} MB takes {slow}, pieces {fast}")

# %% [markdown]
# Both kernels give the same result. [[same-attention]] Twice the tokens make a table four times as large, and in training it would also have to be kept for the backward pass. The library's `attend` calls this function, with `is_causal` instead of a mask of its own, so that a kernel can skip tiles in which all keys are masked.

# %% [markdown] tags=["note"]
# **Say.** A model that writes reads every weight for every token, so a large one is limited by the memory. Fewer bytes for each weight are fewer seconds for each token.
#
# **Draw.** A ruler from -0.254 to 0.254 with marks at whole steps, and the four weights of the first cell on it. Each moves to its nearest mark.
#
# **Ask.** One number of the row is now 10 times as large. What happens to the other three?
#
# **Usual answers.**
# - *the largest number without its sign* (`largest without its sign`): A large negative weight would not fit. The farthest from 0 counts.
# - *one scale for the whole matrix* (`one scale`): The small rows then get few steps. A scale of 4 bytes for each row takes little room.
# - *more than a hundredth of a nat* (`more than 0.1`): Half a step is less than one part in 250 of the largest weight in the row.
# - *The errors have both signs and cancel* (from the room): A good hypothesis. The next cell gives all of them one sign.
#
# **Cut if short.** The time of one product: the bytes are enough.

# %% [markdown] slide="slide" plan=80
# ## 6. One byte for each weight
# A model that writes reads all its weights for each token, and does only 2 FLOPs with each (section 2). So in a large model the bytes of the weights limit how fast it can write. In bf16 a weight takes 2 bytes. Can it be 1? This is **quantization**.
#
# One byte has `2**8` different values, which in `torch.int8` are the whole numbers from -128 to 127. So we count **steps**: choose a step so small that the largest weight is 127 of them, and round each weight to the nearest whole number of steps. By hand, for one row:

# %%
weight_row = torch.tensor([0.100, -0.021, 0.254, -0.0005])
step = weight_row.abs().max() / 127
steps = (weight_row / step).round().to(torch.int8)
print(f"step {step:.4f}, steps {steps.tolist()}")
print("weights again:", [f"{weight:.4f}" for weight in (steps * step).tolist()])
assert ((steps * step - weight_row).abs() <= step / 2 * 1.0001).all()

# %% [markdown]
# No weight moves by more than half a step. The smallest one became 0: whatever is smaller than half a step is lost. So one large number makes the steps coarse for everything that shares its scale. That is why each *row* of a matrix has a scale of its own, and not the matrix as a whole.


# %% tags=["exercise"] name="quantize_int8" minutes=8 difficulty=2 plan=80
def quantize_int8(weight):
    """Round each row of weight (out, in), fp32, to whole steps. Returns values (out, in) and scale (out,).

    values: torch.int8, the number of steps. scale: fp32, the size of a step of each row.
    The number of a row that is the farthest from 0 takes 127 steps. A row of zeros has values of 0, and some
    scale above 0.
    """
    # SOLUTION
    scale = weight.abs().amax(1) / 127  # (N, K) -> (N)
    scale = torch.where(scale > 0, scale, 1.0)
    return (weight / scale[:, None]).round().to(torch.int8), scale
    # END


# %% tags=["check"]
if check("quantize_int8", quantize_int8).passed:
    keep("quantize_int8", quantize_int8)

# %%
hint("quantize_int8")

# %% [markdown] tags=["solution"]
# `amax(1)` takes the maximum along each row, and `scale[:, None]` gives the scales the axis that they need to divide the rows. `round` comes before the conversion, because `.to(torch.int8)` cuts off the digits behind the point.

# %% [markdown] slide="subslide"
# ### The library's version
# `quantize_model` copies a model and keeps the matrix of each `Linear` and `Embedding` in this form, with the gains in fp32. `F.linear` multiplies with it as before, so the forward pass stays the same code.

# %%
from tinylm_lib import quantization

counted, sizes = quantization.quantize_int8(weight_row[None])  # (1, 4), (1)
assert torch.equal(counted[0], steps) and torch.equal(sizes[0], step)
show(quantization.quantize_int8, quantization.quantize_model)

# %%
model_fp32 = shipped.model.eval()
model_int8 = quantization.quantize_model(model_fp32)
n_bytes = {m: sum(t.nbytes for t in m.state_dict().values()) for m in (model_fp32, model_int8)}
print(f"{n_bytes[model_fp32]:,} bytes in fp32, {n_bytes[model_int8]:,} in int8")

# %% [markdown]
# A little more than a quarter, because the scales and the gains take 4 bytes each. How much does the loss grow? We measure both models on 100 held-out stories.

# %% slide="skip"
from tinylm_lib.data import every_document
from tinylm_lib.training import evaluate

# %% slide="skip"
unseen = "\n" + storyworld.corpus(100, seed=1_000_014)
ids_of_stories = torch.tensor(shipped.tokenizer.encode(unseen))
stories = list(every_document(ids_of_stories, shipped.tokenizer.encode("\n")[0], 20))
loss_fp32, loss_int8 = (evaluate(m, stories).nats_per_token for m in (model_fp32, model_int8))

# %% tags=["source-hidden"]
lost_nats = loss_int8 - loss_fp32
predict(
    "Every matrix of the shipped model is rounded to 8 bits. By how many nats per token does its loss grow?",
    key=lambda: "less than 0.01" if lost_nats < 0.01 else "0.01 to 0.1" if lost_nats < 0.1 else "more than 0.1",
    choices={
        "more than 0.1": "A weight moves by half a step at most. How large is that, compared with the largest one in its row?",
        "0.01 to 0.1": "Each weight is only a little off, by less than one part in 250 of the largest one in its row.",
        "less than 0.01": "",
    },
    because="A weight moves by half a step at most, less than one part in 250 of the largest one in its row.",
)

# %% evidence="eight-bits"
print(f"{loss_fp32:.3f} nats per token in fp32, {loss_int8:.3f} in int8")
assert abs(lost_nats) < 0.01

# %% [markdown]
# Rounding the matrices of this model to 8 bits changed its loss by less than a hundredth of a nat. [[eight-bits]] Is that because the errors have both signs, so that most of them cancel in a sum? We test it: the same errors, but all of them positive. And both once more with 4 bits, where the largest weight of a row has far fewer steps.

# %% slide="skip"
from copy import deepcopy


@torch.no_grad()
def loss_with_errors(n_bits: int, one_sign: bool) -> float:
    """On 40 stories: the loss if all matrices are rounded, or moved as far as by rounding, but always upwards."""
    changed = deepcopy(model_fp32)
    for p in changed.parameters():
        if p.ndim == 2:
            step = p.abs().amax(1, keepdim=True) / (2 ** (n_bits - 1) - 1)  # (N, 1)
            error = (p / step).round() * step - p  # (N, K)
            p += error.abs() if one_sign else error
    return evaluate(changed, stories[:2]).nats_per_token


# %% evidence="errors-cancel"
exact_loss = evaluate(model_fp32, stories[:2]).nats_per_token
added_by = {}
for n_bits in (8, 4):
    for one_sign in (False, True):
        added_by[n_bits, one_sign] = loss_with_errors(n_bits, one_sign) - exact_loss
        signs = "all positive" if one_sign else "of both signs"
        print(
            f"{n_bits} bits ({2 ** (n_bits - 1) - 1:>3} steps), errors {signs:<14} the loss grows by {abs(added_by[n_bits, one_sign]):.2f} nats"
        )
assert max(abs(added_by[8, one_sign]) for one_sign in (False, True)) < 0.005
assert abs(added_by[4, False]) < 0.05 < 0.2 < added_by[4, True]

# %% [markdown]
# With 8 bits the signs hardly matter: the errors are so small that this model does not notice them. With 4 bits they do matter, because there most of the errors of both signs cancel. [[errors-cancel]]

# %% [markdown] slide="subslide"
# And the time? One product with one token, as in writing, with a matrix that does not fit into most caches:

# %%
token, matrix = torch.randn(1, 4096), torch.randn(4096, 4096)
in_int8 = quantization.Int8Weight(matrix)
print(f"{matrix.nbytes:,} bytes in fp32, {in_int8.values.nbytes + in_int8.scale.nbytes:,} in int8")
full = seconds(lambda: nn.functional.linear(token, matrix), rounds=10)
eight = seconds(lambda: nn.functional.linear(token, in_int8), rounds=10)
print("in int8 it takes", measured(eight / full, "times as long as in fp32", 0.01, 300))

# %% [markdown]
# Below 1 means faster. If your processor has the instructions, PyTorch has a kernel that reads the bytes and multiplies at once. Without them the matrix is first converted to fp32, which takes longer than reading it. A small matrix that is in the cache gains nothing and may take longer, because its bytes were not what the product waited for.

# %% [markdown] slide="say"
# Two limits. Only *weights* are kept in 8 bits: the activations stay in floating point, which that kernel takes in bf16. And do not train in 8 bits: an update smaller than half a step would change nothing.

# %% [markdown] tags=["note"]
# **Say.** There are two ways to be done sooner: faster updates, or updates that teach more. Now the second one, and with it a question from statistics: when is a difference a difference?
#
# **Draw.** Three dots in a row for one recipe, three for another, slightly shifted. Then seven such rows below the first.
#
# **Ask.** Which choice would you give up first? Afterwards: what would have to be true for this table to hold for a model a thousand times as large? (Nothing here answers this.)
#
# **Usual answers.**
# - *What is ahead stays ahead* (`still ahead`): Look at the recorded long run.
# - *A constant learning rate is worse, because all three seeds say so* (from the room): Let everybody write down a limit before the simulation, and count how many tables it would have reported.
# - *1 in 10* (`10`): That is the chance for one row. There are seven of them.
#
# **Cut if short.** The simulation: state its result.

# %% [markdown] slide="slide" plan=110
# ## 7. What is each choice worth?
# Training also ends sooner if the model learns more from each update. The recipe of `modern` makes many choices: rotary positions, SwiGLU, norms on queries and keys, blocks that start at 0, a head of its own, Muon for the matrices, a falling learning rate. What is each worth? Change one, leave all others as they are, and compare: an **ablation**.

# %% [markdown] slide="say"
# On StoryWorld the floor is known, so we measure nats per token above it (lesson 11), on held-out stories. `gap_after` trains a model of these sizes, with this recipe, and the learning rate of each run falls to 0 at its own end. One run says little: with another seed the first weights and the stories differ. So each choice runs with three seeds, and we look at the spread.

# %% evidence="short-ablation"
print(ablation.SMALL_MODEL, ablation.RECIPE)
tried = (WHOLE := ablation.WHOLE, "learned positions instead of rotary", "no norm on queries and keys")
early = {name: sorted(ablation.gap_after(name, n_steps=30, seed=seed) for seed in (1, 2, 3)) for name in tried}
for name, found in early.items():
    print(f"{name:<36}{sum(found) / 3:.2f} nats above the floor on average ({found[0]:.2f} to {found[2]:.2f})")
assert max(early["learned positions instead of rotary"]) < min(early[WHOLE]) - 0.03

# %% [markdown]
# The seeds of the first and of the last line overlap. But in a whole run of 30 updates learned positions are ahead: all their seeds are clearly below all seeds of the whole recipe. [[short-ablation]] Does that settle it?

# %% tags=["source-hidden"]
# Nats above the floor after 600 updates, seeds 1 to 3: two shared cores, one thread, torch 2.13, fp32.
RECORD = {
    WHOLE: (1.384, 1.416, 1.392),
    "AdamW instead of Muon": (1.457, 1.611, 1.527),
    "a constant learning rate": (1.428, 1.441, 1.434),
    "learned positions instead of rotary": (1.588, 1.596, 1.633),
    "GELU instead of SwiGLU": (1.483, 1.396, 1.359),
    "no norm on queries and keys": (1.394, 1.464, 1.311),
    "first weights not zero": (1.320, 1.529, 1.420),
    "head tied to the embedding": (1.486, 1.294, 1.269),
}
later, whole = RECORD["learned positions instead of rotary"], RECORD[WHOLE]
predict(
    "In a whole run of 30 updates learned positions are ahead of rotary ones. And in a whole run of 600?",
    key=lambda: "behind" if min(later) > max(whole) else "still ahead" if max(later) < min(whole) else "?",
    choices={
        "still ahead": "What wins in a short run need not win in a long one.",
        "no difference to be seen": "Then the difference would be small compared with the spread of all rows. It is not.",
        "behind": "",
    },
    because="All three seeds end above all three of the whole recipe. What wins in a short run need not win in a long one.",
)

# %% [markdown] slide="say"
# The longer run, of all choices, takes about ten minutes, so its figures are recorded; `make bench ARGS="--only ablation"` measures them again. AdamW was tried at three learning rates and the best counts; all others run at Muon's, which may be unfair to them.

# %% [markdown] slide="subslide"
# ### When is a difference more than chance?
# The three seeds of the whole recipe are within 0.03 nats of each other, while those of some other choices spread over 0.2. Three seeds are too few to estimate the spread of each row. So we assume that all rows have the same spread, and estimate it from all rows together: the **pooled** standard deviation. From it follows the **standard error** of a difference between two means of three seeds.

# %%
averages = {name: sum(found) / 3 for name, found in RECORD.items()}
ranges = {name: max(found) - min(found) for name, found in RECORD.items()}
print(f"from the lowest to the highest seed: {ranges[WHOLE]:.2f} in the whole recipe, up to {max(ranges.values()):.1f}")
pooled = torch.tensor(list(RECORD.values())).var(1).mean().sqrt().item()
standard_error = pooled * (1 / 3 + 1 / 3) ** 0.5
print(f"pooled standard deviation {pooled:.3f}, standard error of a difference {standard_error:.3f}")

# %% [markdown]
# How many standard errors are enough? Seven choices are compared with the same recipe, so chance has seven attempts. We simulate it: 10,000 tables of eight rows and three seeds in which *no* choice changes anything. In how many of them would we report at least one difference? (The field calls this the problem of **multiple comparisons**.)

# %% slide="skip"
tables = torch.randn(10_000, 8, 3, generator=torch.Generator().manual_seed(14))
apart = (tables.mean(2)[:, 1:] - tables.mean(2)[:, :1]).abs()  # (10000, 7): from the mean of row 0
apart = apart / (tables.var(2).mean(1).sqrt() * (2 / 3) ** 0.5)[:, None]  # in standard errors
above = tables[:, 1:].amin(2) > tables[:, :1].amax(2)  # (10000, 7): all three seeds above those of row 0
below = tables[:, 1:].amax(2) < tables[:, :1].amin(2)
chance = (above | below).any(1).float().mean().item()

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
        70: "Seven times 10 would be right if the seven reports excluded each other, but two rows can be wrong in the same table.",
    },
    because="For one row the chance is about 1 in 10. Seven rows, compared with the same row 0, have seven chances to be wrong.",
)

# %%
print(f"all three seeds above or below: in {chance:.0%} of the tables")
for limit in (1, 2, 3):
    print(f"{limit} standard errors or more: in {(apart > limit).any(1).float().mean():.0%} of the tables")

# %% [markdown]
# So "all three seeds are higher" is weak evidence, and we require three standard errors.

# %% tags=["source-hidden"]
order = sorted(RECORD, key=lambda name: -averages[name])
with figures.axes("One choice exchanged at a time", "nats above the floor", "", (9.6, 5)) as (figure, ax):
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
    caption="600 updates, three seeds each; the bar is their mean. The band reaches three standard errors of a difference to both sides of the whole recipe's mean. A bar outside the band counts as a difference; a bar inside can be chance.",
    table={
        "exchanged": order,
        **{f"seed {i + 1}": [RECORD[name][i] for name in order] for i in range(3)},
        "mean": [averages[name] for name in order],
    },
)

# %% evidence="long-ablation" slide="skip"
away = {name: (averages[name] - averages[WHOLE]) / standard_error for name in RECORD if name != WHOLE}
for name, n_errors in sorted(away.items(), key=lambda item: -item[1]):
    verdict = "no difference to be seen" if abs(n_errors) < 3 else "worse" if n_errors > 0 else "better"
    print(f"{name:<36}{n_errors:4.1f} standard errors  {verdict}")
assert away["learned positions instead of rotary"] > 3
assert abs(away["a constant learning rate"]) < 1

# %% slide="skip"
two_rows = torch.tensor([RECORD[WHOLE], RECORD["a constant learning rate"]])
own_errors = (two_rows[1].mean() - two_rows[0].mean()) / (two_rows.var(1).sum() / 3).sqrt()
print(f"a constant learning rate, with the spread of only these two rows: {own_errors:.1f} standard errors")

# %% [markdown] slide="subslide"
# Only learned positions are worse by more than three standard errors, and after 30 updates they were ahead. [[long-ablation]] AdamW is 2.3 standard errors behind, which seven comparisons can produce by chance, so it would take more seeds to know.

# %% [markdown] slide="say"
# For the constant learning rate all three seeds are above those of the whole recipe, but its mean is less than 1 standard error away. By our rule it does not count as a difference. The rule depends on our assumption, because with the spread of only these two rows the mean is 3.6 standard errors away, and two rows of three seeds estimate a spread poorly; more seeds would show it.
#
# "No difference to be seen" does not mean that a choice has no effect. A smaller effect needs more seeds, and the choice may matter in a larger model, on another text or in a longer run, because these models are far from the floor.

# %% [markdown] tags=["note"]
# **Say.** bf16 needs no tricks. fp16 has more digits but a smaller range, and what is done about it can fail without a message.
#
# **Draw.** A line of powers of ten from -8 to 5, with the range of fp16 marked. The gradients are a hill at its left end. Multiplying by 65,536 moves the hill into the range.
#
# **Ask.** What does the loop do if somebody forgets `zero_grad`: nothing, something, or an error?
#
# **Usual answers.**
# - *An error* (`an error comes`): PyTorch adds gradients on purpose, because accumulation needs it.
# - *It learns a little worse* (`it falls`): In fp32 that is so. In fp16 the scaler is in the way.
# - *The scaler makes training better* (from the room): Not in this toy, as the print shows. It prevents a loss of gradients whose effect is hard to predict.
#
# **Cut if short.** The count of lost gradients in the shipped model: give its result.

# %% [markdown] slide="slide" plan=110
# ## 8. Break it: no zero_grad
# Numbers of 16 bits take half the bytes of fp32. bf16 has the range of fp32 and fewer digits (lesson 04). The older fp16 has more digits, but it ends at 65,504, and below about 6e-8 it has only 0. A gradient can be smaller than that:

# %%
tiny, ends = torch.tensor(1e-8), torch.finfo(torch.float16)
print(f"fp16 reaches from {ends.smallest_normal * ends.eps:.0e} to {ends.max:,.0f}")
print("in fp16:", tiny.half().item(), " in bf16:", f"{tiny.bfloat16().item():.1e}")
print("times 65536, in fp16, and back:", f"{(65536 * tiny).half().float().item() / 65536:.1e}")

# %% [markdown]
# How many gradients of a real model are that small? We take the shipped model and 8 held-out stories, compute the gradients in fp32, and count how many of them become 0 in 16 bits: as they are, and multiplied by 65,536.

# %% slide="skip"
lost = {"fp16": [], "fp16, times 65536": [], "bf16": []}
for seed in (1, 2, 3):
    generator = torch.Generator().manual_seed(1_000_000 + seed)
    texts = [storyworld.story(generator).text for _ in range(8)]
    read = torch.tensor([shipped.tokenizer.encode("\n" + text)[:60] for text in texts])  # (8, 60)
    loss = cross_entropy(shipped.model(read[:, :-1]).flatten(0, 1), read[:, 1:].flatten())
    exact = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(shipped.model.parameters()))])
    exact = exact[exact != 0]  # words that do not occur have no gradient
    rounded = {"fp16": exact.half(), "fp16, times 65536": (65536 * exact).half(), "bf16": exact.bfloat16()}
    for name, values in rounded.items():
        lost[name].append((values == 0).float().mean().item())

# %% evidence="underflow"
for name, fractions in lost.items():
    print(f"{name:<18}", ", ".join(f"{100 * fraction:.0f} %" for fraction in fractions), "become 0")
assert min(lost["fp16"]) > 0.005 > 20 * max(lost["fp16, times 65536"])
assert max(lost["bf16"]) == 0

# %% [markdown]
# About 2 % of this model's gradients become 0 in fp16, and a factor of 65,536 brings nearly all of them back. [[underflow]] So with fp16 the loss is multiplied by a large number before the backward pass, and all gradients with it; they are divided again before the update: **loss scaling** ([Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740)).

# %% [markdown] slide="subslide"
# A `GradScaler` does that, and begins with 65,536. When gradients are infinite, it skips the update and halves its number. Here is the whole loop of **mixed precision**, on a toy rule: each number is 7 more than the one before, modulo 32.


# %% slide="skip"
def rule_batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = (torch.randint(32, (8, 1)) + 7 * torch.arange(25)) % 32  # (8, 25)
    return ids[:, :-1], ids[:, 1:]


# %%
def mixed_losses(fp16: bool = True, forget: bool = False, scaled: bool = True) -> tuple[list[float], float]:
    """The loss at each of 100 updates, and the scaler's number at the end."""
    torch.manual_seed(14)
    net = TransformerLM(preset("modern", vocab_size=32, d_model=32, n_layers=1, n_heads=2, max_seq_len=24))
    adamw = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=fp16 and scaled)  # if it is not enabled, it does nothing
    losses = []
    for _ in range(100):
        x, y = rule_batch()
        if not forget:
            adamw.zero_grad()
        # ESSENTIAL
        with torch.amp.autocast("cpu", dtype=torch.float16, enabled=fp16):
            loss = cross_entropy(net(x).flatten(0, 1).float(), y.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(adamw)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(adamw)
        scaler.update()
        # END
        losses.append(loss.item())
    return losses, scaler.get_scale()


# %% rows=["S4-53"] evidence="scaler"
losses, scale = mixed_losses()
unscaled, _ = mixed_losses(scaled=False)
for name, curve in {"with the scaler": losses, "without it": unscaled}.items():
    print(f"{name:<16}" + ", ".join(f"update {i}: {curve[i - 1]:.1f}" for i in (1, 10, 100)))
    assert curve[-1] < 0.1 * curve[0]

# %% [markdown]
# `autocast` runs matrix products in 16 bits and keeps in fp32 what needs digits; the weights stay in fp32. `unscale_` comes before clipping; otherwise the limit would be compared with the multiplied gradients.

# %% [markdown] slide="say"
# Note what this run does not show: the toy learns just as well without the scaler [[scaler]], even a little earlier, because the scaler skips the first updates. Losing a few tiny gradients does not always harm the training, and it is hard to know in advance when it will. In bf16 none of the gradients above became 0 [[underflow]], so bf16 is used without a scaler.

# %% [markdown] slide="subslide"
# ### Without zero_grad
# `zero_grad` is easily forgotten in this loop. PyTorch *adds* new gradients to those that are already there.

# %% slide="skip"
runs = {
    "right": (losses, scale),
    "forgotten, fp32": mixed_losses(fp16=False, forget=True),
    "forgotten, fp16": mixed_losses(forget=True),
}

# %% tags=["source-hidden"]
ends, _ = runs["forgotten, fp16"]
predict(
    "The loop with fp16 and its scaler, without `zero_grad`, 100 updates. What does the loss do?",
    key=lambda: "it never falls" if min(ends) > 0.9 * ends[0] else "it falls" if ends[-1] < 1 else "?",
    choices={
        "an error comes": "PyTorch adds on purpose: accumulation needs it. Nothing tells it that an update is over.",
        "it falls": "In fp32 it does. But the scaler tries 65,536 first, and leaves out updates with infinite gradients.",
        "it never falls": "",
    },
    because="The first scaled gradients are infinite. Whatever is added to them, they never become finite again, and each update is left out.",
)

# %%
for name, (curve, _) in runs.items():
    print(f"{name:<16} " + ", ".join(f"update {i}: {curve[i - 1]:.1f}" for i in (1, 30, 100)))
least, stuck = (runs[name][1] for name in ("right", "forgotten, fp16"))
print(f"the scaler's number: over 1,000 when right: {least > 1000}; forgotten: {stuck:.0e}")

# %% [markdown]
# In the right run the scaler skips the first few updates as well, and halves its number until the gradients fit. Where nothing is zeroed, the infinite ones are still there, whatever the number, so the number is halved each time and not one update is made. There is no message, so look at that number, and at whether the *weights* change.

# %% [markdown] slide="say"
# In fp32 the same mistake does hardly any harm here, which makes it hard to find. A likely reason is that the rule is easy, and that clipping bounds the sum of all old gradients.

# %% [markdown] tags=["note"]
# **Say.** Five things that you meet when you make a real model faster. Pick what your class needs.
#
# **Draw.** The roof once more. For each topic mark where it moves a point: more work for each byte is to the right, fewer calls are upwards.
#
# **Ask.** For each topic: which of the three limits does it push?
#
# **Usual answers.**
# - *One product is always faster than three* (from the room): For 800 tokens look at the second line. There is less to gain when each product is long.
# - *bf16 is always faster* (from the room): Only with the instructions for it; see the last line of its cell.
# - *Accumulating makes training faster* (from the room): It makes the step fit into the memory.
#
# **Cut if short.** All of it; students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 9. For engineers
# Five topics for real models. Ask of each which of the three limits it moves: the processor, the memory or the price of a call.

# %% [markdown] slide="subslide"
# ### Fewer calls
# The products for q, k and v read the same x. Stack their weights, and three calls become one:

# %%
block = writer.blocks[0].attention
separate = [each.weight.detach() for each in (block.q_proj, block.k_proj, block.v_proj)]  # three times (C, C)
stacked = torch.cat(separate)  # (3*C, C)
for tokens in (1, 800):
    x = torch.randn(tokens, stacked.shape[1])
    torch.testing.assert_close(x @ stacked.T, torch.cat([x @ w.T for w in separate], dim=-1), atol=1e-4, rtol=1e-4)
    three = microseconds(lambda x=x: [x @ w.T for w in separate], times=50)
    one = microseconds(lambda x=x: x @ stacked.T, times=50)
    print(f"{tokens:>3} tokens: one product takes", measured(100 * one / three, "% of the time of three", 5, 400))

# %% [markdown]
# Why does our library keep three? Three products are the smaller part of a token's operations, so the token as a whole gains far less than this line. And three names, `q_proj`, `k_proj`, `v_proj`, are what Llama checkpoints have, and each map can be replaced on its own. Libraries made for speed alone stack them.

# %% [markdown] slide="subslide"
# ### Compile
# Can norms and sums be treated as FlashAttention treats attention? `model.compile()` watches the model run once, notes all operations as one **graph**, and writes code in which neighbouring operations share a pass over memory (**fusion**). It needs a C++ compiler and a while, so we do not run it here. Recorded on two shared cores: 0.66 to 0.87 of the time for each update, after a first one of 35 s (Source: `make bench ARGS="--only compiled"`). nanoGPT on a GPU: 135 ms instead of about 250 (Karpathy 2022, its README).

# %% [markdown] slide="subslide"
# ### Half the bytes
# Numbers of 16 bits take half the bytes of fp32, so half as many bytes have to be moved. Whether they are also *multiplied* faster depends on the processor: it needs instructions for them.

# %%
square = torch.randn(512, 512)
brief = square.bfloat16()
assert 2 * brief.nbytes == square.nbytes
full, half = seconds(lambda: square @ square), seconds(lambda: brief @ brief, rounds=3)
print("a product in bf16 takes", measured(half / full, "times as long as in fp32", 0.01, 200))

# %% [markdown]
# Below 1 means faster. Processors with such instructions, and GPUs, are several times faster in bf16; others may be many times slower, because they must imitate the 16 bits. The library's `precision="auto"` takes bf16 only where there are instructions.

# %% [markdown] slide="subslide"
# ### Fewer bytes at a time
# A step too large for the memory can be cut. Either **accumulate** the gradients of smaller batches (lesson 11), or **recompute**: keep only what enters each block and compute the rest again in the backward pass ([Chen et al. 2016](https://arxiv.org/abs/1604.06174)). Neither changes the gradient:


# %% slide="skip"
def gradient(texts: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    cross_entropy(model(texts).flatten(0, 1), texts.flatten()).backward()  # any targets will do here
    return model.blocks[0].ffn.up_proj.weight.grad.clone()


# %% rows=["S4-61"]
ids = next(batches)[0]
at_once = gradient(ids)
parts = torch.stack([gradient(some) for some in ids.split(2)])  # 4 micro-batches of 2 texts
torch.testing.assert_close(parts.mean(0), at_once, rtol=1e-3, atol=1e-6)
model.recompute = True
torch.testing.assert_close(gradient(ids), at_once)
model.recompute = False
print("at once, in 4 parts, recomputed: the same gradient")

# %% [markdown]
# Recomputing takes a second forward pass: forward and backward then take 4 passes' worth of FLOPs instead of 3. Lesson 15 measures what it saves.

# %% [markdown] slide="subslide"
# ### Your own GPU
# `model.to("cuda")` moves a model to the GPU, and its inputs must be there, too. If your machine has one, here is its roof:

# %% tags=["nbval-ignore-output"]
if torch.cuda.is_available():
    top_speed, flow = roof("cuda")
    print("peak:     ", measured(top_speed / 1e9, "billion FLOPs per second", 100, 1_000_000))
    print("bandwidth:", measured(flow / 1e9, "billion bytes per second", 10, 50_000))
else:
    print("no GPU here")

# %% [markdown]
# And what others have published (`roof` measures fp32; the peak of 312 is the one in bf16):

# %% tags=["source-hidden"]
PUBLISHED = [
    ("A100 with 80 GB, peak in bf16", "312 trillion FLOPs/s", "NVIDIA 2021, data sheet"),
    ("A100 with 80 GB, bandwidth", "2 trillion bytes/s", "NVIDIA 2021, data sheet"),
    ("GPT-3, 175 billion parameters, V100", "MFU 21.3 %", "Chowdhery et al. 2022, table 3"),
    ("Megatron-Turing NLG, 530 billion, A100", "MFU 30.2 %", "Chowdhery et al. 2022, table 3"),
    ("PaLM, 540 billion, TPU v4 (no GPU)", "MFU 46.2 %", "Chowdhery et al. 2022, table 3"),
    ("a GPT with FlashAttention-2, A100", "MFU up to 72 %", "Dao 2023, abstract"),
]
for what, figure_given, source in PUBLISHED:
    print(f"{what:<40}{figure_given:<24}{source}")
corner = 312e12 / 2e12
print(
    f"the A100's slope meets its ceiling at {corner:.0f} FLOPs per byte; work with 1 gets {1 / corner:.1%} of the peak"
)

# %% [markdown]
# A large model that writes one text does 2 FLOPs with each weight, and fetches 2 bytes for it in bf16, so it can reach less than a hundredth of the peak. Training reached from a fifth to nearly three quarters of it.

# %% [markdown] tags=["note"]
# **Say.** Count first. Then ask which of the three limits sets the pace: processor, memory, calls.
#
# **Draw.** The roof, from memory.
#
# **Ask.** Each student writes down one change to their own model or its training that would be useless, and why.
#
# **Usual answers.**
# - *A faster norm* (from the room): Look at your own table: what is the percentage of its group?
#
# **Cut if short.** The drawing.

# %% [markdown]
# ## What you have now
# - You count work in FLOPs and in bytes. By the roofline, work with few FLOPs per byte is limited by the memory, if its numbers do not fit into the cache. A linear map took less time for each token when many tokens were computed at once. [[intensity]] A product of few features stays memory-bound on a GPU, however many tokens there are. [[gpu-roof]]
# - The matrix products of the forward and backward pass together take three times the FLOPs of the forward pass alone [[backward-twice]]; Muon's own products come on top. [[optimizer-products]] The linear maps take the same number of FLOPs for each token, and attention's scores take a number that grows with the length of the text. [[long-texts]] [[flops-counted]]
# - In our runs the products of the linear maps took three tenths to a half of a step's time. The proportions depend on the machine and on the sizes, so use a profiler. [[profile]]
# - A small model that writes one token at a time runs many short operations, few of which are products. [[calls]] Neither the processor nor the memory but the overhead of these calls sets its pace. [[overhead]]
# - Attention in pieces gives the same result as attention with the whole table. [[same-attention]]
# - Weights of one byte, as whole numbers of steps with one scale for each row, take about a quarter of the bytes of fp32, and change the loss of the shipped model by less than a hundredth of a nat per token. [[eight-bits]] In fp16 some small gradients become 0, nearly all of which come back if the loss is scaled. [[underflow]]
# - An ablation measures what a choice is worth at one size and one length of training: learned positions were ahead in a short run [[short-ablation]] and behind in a longer, recorded one. Compare a difference with its standard error, and remember how many comparisons you make. [[long-ablation]]
#
# Next, lesson 15: what to do with ten, a thousand, a million times as many FLOPs.

# %% [markdown]
# ## Sources
# - The roofline: Williams, Waterman and Patterson 2009, [*Roofline: An Insightful Visual Performance Model for Multicore Architectures*](https://doi.org/10.1145/1498765.1498785).
# - The three limits of deep learning: He 2022, [*Making Deep Learning Go Brrrr From First Principles*](https://horace.io/brrr_intro.html).
# - FLOPs of a step and MFU: Chowdhery et al. 2022, [*PaLM: Scaling Language Modeling with Pathways*](https://arxiv.org/abs/2204.02311), table 3 and appendix B.
# - The online softmax: Milakov and Gimelshein 2018, [*Online normalizer calculation for softmax*](https://arxiv.org/abs/1805.02867).
# - Attention in tiles: Dao et al. 2022, [*FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*](https://arxiv.org/abs/2205.14135), section 3; Dao 2023, [*FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning*](https://arxiv.org/abs/2307.08691).
# - Mixed precision and loss scaling: Micikevicius et al. 2018, [*Mixed Precision Training*](https://arxiv.org/abs/1710.03740), section 3.
# - 8 bits with a scale: Jacob et al. 2018, [*Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference*](https://arxiv.org/abs/1712.05877), section 2.1 (there with a shifted zero).
# - Recomputing: Chen et al. 2016, [*Training Deep Nets with Sublinear Memory Cost*](https://arxiv.org/abs/1604.06174), section 3.
# - Compiling on a GPU: Karpathy 2022, [*nanoGPT*](https://github.com/karpathy/nanoGPT), README on GitHub.
# - The GPU's numbers: NVIDIA 2021, *NVIDIA A100 Tensor Core GPU* data sheet.
