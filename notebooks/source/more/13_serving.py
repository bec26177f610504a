# %% [markdown]
# # 13 Serving
# **What do servers do about the memory and the time of a cache?**
#
# *Needs* lesson 13. *Runs* in about 40 s on two cores.

# %%
import torch

from tinylm_lib import KVCache, generate, preset, storyworld
from tinylm_lib.attention import attend, causal_mask
from tinylm_lib.cost import count_parameters, kv_cache_bytes
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer


# %%
def stories(seeds, n):
    """The first n tokens of a story for each seed, (B, n)."""
    texts = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in seeds]
    return torch.tensor([tokenizer.encode("\n" + text)[:n] for text in texts])


# %% [markdown]
# ## 1. How many texts fit on a GPU?
# For each layer, text, key-value head and position, a cache holds a key and a value of D numbers each: $2 \cdot L \cdot B \cdot G \cdot S \cdot D$ numbers.

# %%
from tinylm_classroom import predict

# %% tags=["source-hidden"]
predict(
    "GPT-2 small has 12 layers with 12 heads of 64 features (G = H). One text, 2 bytes a number: how many bytes does one position take in the cache?",
    key=lambda: kv_cache_bytes(preset("gpt2", "small"), batch_size=1, length=1, bytes_per_element=2),
    number="bytes",
    within=500,
    feedback={
        18_432: "Each number has 2 bytes, and there are keys *and* values: twice 2.",
        3_072: "That is one layer. There are 12.",
    },
    because="2 (k and v) times 12 layers times 12 heads times 64 features times 2 bytes.",
)

# %% [markdown]
# Do real tensors agree? We make some on the meta device (shapes without memory, lesson 10), for texts as long as each model allows:

# %% evidence="cache-bytes" tried="exact"
for family, size in (("gpt2", "small"), ("llama", "2-7b"), ("llama", "3-8b")):
    large = preset(family, size)
    length = large.max_seq_len
    empty = KVCache(large, 1, length, device="meta", dtype=torch.bfloat16)
    held = sum(tensor.nbytes for tensor in (*empty.keys, *empty.values))
    assert held == kv_cache_bytes(large, 1, length, 2)
    print(f"{family} {size}: {held // length:,} bytes a position, {held / 1e9:.2f} GB for {length:,}")

# %% [markdown]
# Llama 3 8B is larger than Llama 2 7B and has as many layers and query heads, but a position leaves only a quarter of the bytes, because it has 8 key-value heads instead of 32. [[cache-bytes]]
#
# For one text the cache is small compared with the weights. But a server writes many texts at once. All of them use the same weights, and each has a cache of its own.

# %%
from tinylm_classroom import control, figures


# %% tags=["source-hidden"]
def fill_gpu(memory=80, positions=8192, bytes_per_number=2):
    """Draws Llama 3 8B, with 8 key-value heads and with 32, and the texts that fit next to its weights."""
    n_texts = {}
    with figures.axes(f"Texts of {positions:,} positions", f"GB of a GPU with {memory}", "Llama 3 8B", (10.4, 4.4)) as (
        figure,
        ax,
    ):
        for row, (name, kv_heads) in enumerate({"as it is": 8, "a pair for each head": 32}.items()):
            large = preset("llama", "3-8b", n_kv_heads=kv_heads)
            weights = 2 * count_parameters(large).total / 1e9
            each = kv_cache_bytes(large, 1, positions, bytes_per_number) / 1e9
            n = int((memory - weights) // each)
            ax.barh(row, weights, height=0.7, color=figures.QUIET)
            ax.barh(
                [row] * n, each, left=[weights + i * each for i in range(n)], height=0.7, color="#9cc3ee", ec="white"
            )
            ax.text(weights / 2, row, "weights", ha="center", va="center", color="white", size=15)
            n_texts[f"{name}: {n} texts"] = n
        ax.set_yticks(range(2), n_texts, size=17)
        ax.set(xlim=(0, memory))
        ax.grid(visible=False)
    alt = f"Two bars of {memory} GB, filled with the weights and with blocks for texts. {'; '.join(n_texts)}."
    caption = f"Each blue block is the cache of one text, {bytes_per_number} bytes a number."
    figures.display(figure, alt=alt, caption=caption, table={"": list(n_texts), "texts": list(n_texts.values())})
    return list(n_texts.values())


# %% tags=["signature"]
control(fill_gpu, memory=[80, 24], positions=[8192, 4096, 2048, 1024], bytes_per_number=[2, 1])

# %% tags=["source-hidden"] evidence="grouped-cache" tried="exact"
# Checked: next to the weights, about four times as many texts fit with 8 key-value heads as with 32.
grouped, ungrouped = preset("llama", "3-8b"), preset("llama", "3-8b", n_kv_heads=32)
assert kv_cache_bytes(ungrouped, 1, 8192, 2) == 4 * kv_cache_bytes(grouped, 1, 8192, 2)
fits = [(80e9 - 2 * count_parameters(c).total) // kv_cache_bytes(c, 1, 8192, 2) for c in (grouped, ungrouped)]
assert fits[0] == 59 and 3.8 < fits[0] / fits[1] < 4.5

# %% [markdown]
# On the GPU of 80 GB, about four times as many texts fit with 8 key-value heads. [[grouped-cache]] (Real servers need some of the memory for activations, so they fit fewer.)
#
# And how fast do they write? At each step the weights are read once for all texts, but each text's cache for that text alone. Suppose that reading from memory alone sets the pace (3.35 TB per second, NVIDIA's data sheet of the H100, 2023):

# %% evidence="shared-reading" tried="exact"
read_once, read_each = 2 * count_parameters(grouped).total, kv_cache_bytes(grouped, 1, 8192, 2)
waits = {n: (read_once + n * read_each) / 3.35e12 for n in (1, 8, 59)}
for n, seconds in waits.items():
    print(f"{n:>2} texts: {1000 * seconds:4.1f} ms a step, {n / seconds:5,.0f} tokens per second")
assert 8 * waits[1] / waits[8] > 5 and waits[59] > 4 * waits[1]

# %% [markdown]
# By this count eight texts give more than five times the tokens of one. With 59 most of the bytes are caches, and each text waits more than four times as long for its next word. [[shared-reading]] So a smaller cache also makes writing faster.

# %% [markdown]
# ## 2. Smaller caches
# Here is the formula for Llama 3 8B again, with what other models and servers do. One text of 8,192 positions:

# %% evidence="what-engines-do" tried="exact"
positions, layers, head_size = 8192, grouped.n_layers, grouped.d_head
cache_bytes = {
    "as it is: 8 key-value heads, 2 bytes": kv_cache_bytes(grouped, 1, positions, 2),
    "32 key-value heads: one for each query head": kv_cache_bytes(ungrouped, 1, positions, 2),
    "1 key-value head: multi-query attention": kv_cache_bytes(preset("llama", "3-8b", n_kv_heads=1), 1, positions, 2),
    "only the last 4,096 positions: a sliding window": kv_cache_bytes(grouped, 1, 4096, 2),
    "512 + 64 numbers for each layer and position: latent": layers * positions * (512 + 64) * 2,
    "1 byte a number and 2 for each vector: 8 bits": 2 * layers * positions * 8 * (head_size + 2),
}
for name, size in cache_bytes.items():
    print(f"{name:<53}{size / 1e9:5.2f} GB")
assert min(cache_bytes.values()) == cache_bytes["1 key-value head: multi-query attention"]

# %% [markdown]
# - **Multi-query attention** shares one key-value head among all query heads ([Shazeer 2019](https://arxiv.org/abs/1911.02150)).
# - A **sliding window** of 4,096 positions: Mistral 7B keeps no more in any layer ([Jiang et al. 2023](https://arxiv.org/abs/2310.06825)).
# - **Latent** attention keeps one short vector instead of the keys and values, and a small rotated key: 512 and 64 numbers in DeepSeek-V2 ([DeepSeek-AI 2024](https://arxiv.org/abs/2405.04434)). The query absorbs the key's matrix; the rotated key is extra, because a rotation cannot be absorbed (lesson 13, section 2).
# - **Fewer bits**: the numbers are rounded to 8 bits, with one scale for each vector (lesson 14).
#
# All but the second line make the cache of a text smaller than Llama 3's. [[what-engines-do]]

# %% [markdown]
# ## 3. Do they change the text?
# We try two of them on the shipped model, without training it again: after each token we round what is kept, or keep only the newest. First the model by hand, with a memory (lesson 13, section 3):


# %%
@torch.no_grad()
def read_on(ids, kept, positions, mask):
    """Logits (B, T, V) of the new tokens ids (B, T), which come after what is kept."""
    x = model.embed(ids)  # (B, T) -> (B, T, C)
    for layer, block in enumerate(model.blocks):
        part, h = block.attention, block.attn_norm(x)
        q = part.rotation(part.q_norm(part.split(part.q_proj(h))), positions)  # (B, H, T, D)
        k = part.rotation(part.k_norm(part.split(part.k_proj(h))), positions)  # (B, H, T, D)
        v = part.split(part.v_proj(h))  # (B, H, T, D)
        if layer in kept:
            k, v = (torch.cat(both, dim=-2) for both in zip(kept[layer], (k, v), strict=True))
        kept[layer] = k, v
        x = x + part.o_proj(attend(q, k, v, mask).transpose(1, 2).flatten(2))  # (B, T, C)
        x = x + block.ffn(block.ffn_norm(x))  # (B, T, C)
    return model.final_norm(x) @ model.lm_head.weight.T  # (B, T, C) -> (B, T, V)


# %%
from torch.nn.functional import cross_entropy


def loss_of_steps(texts, change):
    """The loss of tokens 20 to 87, read one by one. change: what becomes of kept keys and values."""
    kept, logits = {}, []
    for i in range(87):
        n_keys = 1 + (kept[0][0].shape[2] if kept else 0)
        logits.append(read_on(texts[:, i : i + 1], kept, torch.arange(i, i + 1), causal_mask(1, n_keys)))
        kept = {layer: (change(k), change(v)) for layer, (k, v) in kept.items()}
    each = cross_entropy(torch.cat(logits, dim=1).mT, texts[:, 1:], reduction="none")  # (B, 87)
    return each[:, 19:].mean().item()


# %%
def rounded_to(n_bits):
    def change(x):
        step = x.abs().amax(-1, keepdim=True) / (2 ** (n_bits - 1) - 1)  # one for each vector
        return (x / step).round() * step

    return change


# %%
def newest(n):
    return lambda x: x[:, :, -n:]


# %%
@torch.no_grad()
def loss_of_last(texts, n):
    """The loss of the same tokens if the last n tokens are read again for each of them."""
    logits = [model(texts[:, max(0, i - n + 1) : i + 1], last_only=True) for i in range(87)]
    each = cross_entropy(torch.cat(logits, dim=1).mT, texts[:, 1:], reduction="none")  # (B, 87)
    return each[:, 19:].mean().item()


# %%
long_texts = stories(range(32), 88)  # (32, 88)

# %%
all_kept = loss_of_steps(long_texts, lambda x: x)
few_bits = {n_bits: loss_of_steps(long_texts, rounded_to(n_bits)) for n_bits in (8, 4, 2)}
windows = {n: loss_of_steps(long_texts, newest(n - 1)) for n in (32, 16)}  # with the new token n
again = {n: loss_of_last(long_texts, n) for n in windows}

# %%
print(f"all kept, in fp32: loss {all_kept:.2f}")
for n_bits, loss in few_bits.items():
    print(f"{n_bits} bits: {loss:.2f}")
for n, loss in windows.items():
    print(f"the newest {n} kept: {loss:.2f}, the last {n} tokens read again: {again[n]:.2f}")

# %% tags=["source-hidden"] evidence="bits-and-windows" tried="held-out"
# Checked: the same on 32 other stories.
for texts in (long_texts, stories(range(600, 632), 88)):
    whole = loss_of_steps(texts, lambda x: x)
    eight, two = (loss_of_steps(texts, rounded_to(n_bits)) for n_bits in (8, 2))
    window, reading = loss_of_steps(texts, newest(31)), loss_of_last(texts, 32)
    assert abs(eight - whole) < 0.005 and two > whole + 0.1
    assert window > whole + 0.3 and abs(window - reading) < 0.1

# %% [markdown]
# Rounding to 8 bits is hardly noticed here, and rounding to 2 bits is. A window makes the loss far higher in these stories. [[bits-and-windows]]
#
# To drop old keys and to read the last tokens again are not the same: the kept vectors come from layers that had seen the dropped words. But this model, which was not trained with a window, gains next to nothing from them. `generate` reads the last tokens again when the cache is full. Models with a sliding window are trained with it.

# %% [markdown]
# ## 4. Many texts at once
# Prompts of unequal length are padded *at the left*, so that all of them end in the same column. But pads add keys and shift the positions:

# %%
from tinylm_lib.writing import pad_left
from tinylm_classroom import show_text

first, second = stories([13, 14], 12).tolist()
padded, padding = pad_left([first[:6], second])  # (B, T), (B)

# %%
greedy = {"max_new_tokens": 8, "temperature": 0}
alone = generate(model, torch.tensor([first[:6]]), **greedy)[0, 6:]
with_padding = generate(model, padded, padding=padding, **greedy)[0, 12:]
ignored = generate(model, padded, **greedy)[0, 12:]
runs = {"alone": alone, "padded": with_padding, "padding not named": ignored}
show_text({name: tokenizer.decode(run.tolist()) for name, run in runs.items()})

# %% tags=["source-hidden"] evidence="padded" tried="held-out"
# Checked: ten other pairs of prompts are continued as if each were alone; ignored pads change some.
changed = 0
for seed in range(20, 30):
    short, long = stories([seed], 5)[0].tolist(), stories([seed + 50], 15)[0].tolist()
    both, pads = pad_left([short, long])
    right = generate(model, torch.tensor([short]), **greedy)[0, 5:]
    assert generate(model, both, padding=pads, **greedy)[0, 15:].equal(right)
    changed += not generate(model, both, **greedy)[0, 15:].equal(right)
assert with_padding.equal(alone) and not ignored.equal(alone) and changed > 5

# %% [markdown]
# With `padding` the model masks the pads and counts positions from the first real token, and each text is continued as if it were alone. [[padded]]

# %% [markdown]
# ## 5. Pages
# Room for `max_len` positions is wasted on short texts. **Paged** attention cuts the memory into pages of a few positions, which a text gets when it needs them ([Kwon et al. 2023](https://arxiv.org/abs/2309.06180)). Then texts that begin with the same instructions can also **share** the pages of this prefix.

# %% evidence="pages" tried="exact"
n_tokens = 1_000  # try 100 and 8_000
page = 16
n_pages = -(-n_tokens // page)
print(f"{n_tokens:,} positions in a room for 8,192: {n_tokens / 8192:.0%} of it is used")
print(f"in {n_pages} pages of {page}: {n_tokens / (n_pages * page):.0%}")
assert n_tokens / (n_pages * page) > 0.85

# %% [markdown]
# Most of the room of a short text is empty, and of its pages only the end of the last one. [[pages]]
#
# A prefix that is shared is read once. With a cache by hand: we read a prefix of 20 tokens, copy what is kept for two texts, and continue each.

# %%
prefix, ends = stories([13], 20), stories([14, 15], 12)[:, 1:]  # (1, 20), (2, 11)
kept = {}
read_on(prefix, kept, torch.arange(20), causal_mask(20))
shared = {layer: (k.expand(2, -1, -1, -1), v.expand(2, -1, -1, -1)) for layer, (k, v) in kept.items()}
continued = read_on(ends, shared, torch.arange(20, 31), causal_mask(11, 31))  # (2, 11, V)

# %% evidence="shared-prefix" tried="held-out"
for seed in (13, 200, 201, 202):
    prefix, kept = stories([seed], 20), {}  # (1, 20)
    read_on(prefix, kept, torch.arange(20), causal_mask(20))
    shared = {layer: (k.expand(2, -1, -1, -1), v.expand(2, -1, -1, -1)) for layer, (k, v) in kept.items()}
    continued = read_on(ends, shared, torch.arange(20, 31), causal_mask(11, 31))  # (2, 11, V)
    whole = model(torch.cat((prefix.expand(2, -1), ends), dim=1))[:, 20:]  # (2, 11, V)
    torch.testing.assert_close(continued, whole, atol=1e-4, rtol=1e-4)
print("both texts: the logits of reading everything, and the prefix was read once")

# %% [markdown]
# The logits are those of reading both texts whole. [[shared-prefix]] `expand` copies nothing: both texts look at the same memory.

# %% [markdown]
# ## What you have now
# - A cache holds $2 L B G S D$ numbers; real tensors agree. [[cache-bytes]]
# - With 8 key-value heads instead of 32, about four times as many texts fit next to the weights of Llama 3 8B. [[grouped-cache]]
# - If reading from memory sets the pace, many texts at once give more tokens per second, and each waits longer. [[shared-reading]]
# - Multi-query attention, windows, latent vectors and fewer bits make the cache smaller. [[what-engines-do]]
# - Rounding what is kept to 8 bits hardly changes the loss of the shipped model; 2 bits and a window do. [[bits-and-windows]]
# - Padding at the left, named to the model, changes no text. [[padded]]
# - Pages leave hardly any room empty [[pages]], and a prefix in them can be read once for many texts.
# - A shared prefix gives the same logits. [[shared-prefix]]

# %% [markdown]
# ## Sources
# - One key-value head: Shazeer 2019, [*Fast Transformer Decoding: One Write-Head is All You Need*](https://arxiv.org/abs/1911.02150), section 3. What writing costs: Pope et al. 2022, [*Efficiently Scaling Transformer Inference*](https://arxiv.org/abs/2211.05102), section 2.
# - A sliding window: Jiang et al. 2023, [*Mistral 7B*](https://arxiv.org/abs/2310.06825), section 2. Latent vectors: DeepSeek-AI 2024, [*DeepSeek-V2*](https://arxiv.org/abs/2405.04434), section 2.1.
# - Pages: Kwon et al. 2023, [*Efficient Memory Management for Large Language Model Serving with PagedAttention*](https://arxiv.org/abs/2309.06180), section 4.
