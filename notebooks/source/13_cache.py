# %% [markdown] slide="slide"
# # 13 Cache
# **Must writing get slower with every word?**
#
# *Needs* lessons 05 to 07, 10 and 12 (`generate`). *Builds* `KVCache` in `cache.py`. *Runs* in about 20 s on two cores.
# *Teaches* in about 42 minutes, plus 12 of exercises.

# %%
import time
from dataclasses import replace

import torch
from torch.nn.functional import cross_entropy

from tinylm_lib import KVCache, TransformerLM, generate, preset, storyworld
from tinylm_lib.attention import attend, causal_mask
from tinylm_lib.classroom import check, hint, keep, predict, show, trace
from tinylm_lib.classroom import build, cache_view, capture, figures, measured, using
from tinylm_lib.cost import count_parameters, forward_flops, kv_cache_bytes
from tinylm_lib.pretrained import load_pretrained

_ = torch.manual_seed(13)

# %% [markdown] slide="slide"
# ## 1. Everything again, for each word
# To write one word, the model reads the text. Then the word is appended, and for the next one the model reads the text again, one word longer. How much reading is that in all?
#
# By hand, for four words: 1 + 2 + 3 + 4 = 10 positions.

# %% tags=["source-hidden"]
predict(
    "A text becomes twice as long. How many times as many positions are read while it is written?",
    key=lambda: f"about {sum(range(1, 401)) / sum(range(1, 201)):.0f} times",
    choices={
        "about 2 times": "There are twice as many calls. How long is each of them, on average?",
        "about 4 times": "",
        "about 8 times": "Twice as many calls, each twice as long.",
    },
    because="There are twice as many calls, and each reads twice as much: the square of 2.",
)

# %% evidence="positions-read"
for n in (4, 100, 200, 400):
    assert sum(range(1, n + 1)) == n * (n + 1) // 2
    print(f"{n:>3} words: {sum(range(1, n + 1)):>6,} positions, n (n + 1) / 2 = {n * (n + 1) // 2:>6,}")

# %% [markdown]
# The reading grows with the **square** of the length: it is **quadratic**. Here the shipped model writes 6 tokens, always the most probable:

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
story = storyworld.story(torch.Generator().manual_seed(13))
ids = torch.tensor([tokenizer.encode("\n" + story.text)[:40]])  # (1, 40)
prompt = ids[:, :12]  # (1, 12)

# %%
written, reads = prompt, []
with torch.no_grad():
    for _ in range(6):
        reads.append(written.shape[1])
        newest = model(written)[:, -1:].argmax(-1)  # (1, 1)
        written = torch.cat((written, newest), dim=1)

# %%
print(tokenizer.decode(prompt[0].tolist()).strip(), "...")
print(tokenizer.decode(written[0].tolist()).strip())
print("positions read:", reads, "together", sum(reads))

# %% [markdown]
# For 6 tokens it read 87 positions, each through every layer. What does that cost? `forward_flops` of `cost.py` counts the operations in the matrix products of one call (2 for a multiplication with its
# addition). We add up all calls, from 1 position to n:

# %% evidence="operations"
before = None
for n in (64, 128, 256, 512, 1024, 2048):
    total = sum(forward_flops(model.config, 1, length) for length in range(1, n + 1))
    grown = "" if before is None else f", {total / before:.1f} times the line above"
    assert before is None or total > 4 * before
    print(f"{n:>4} words: {total / 1e9:8.1f} billion operations{grown}")
    before = total
maps = forward_flops(model.config, 1, 1, n_keys=0)
key = forward_flops(model.config, 1, 1, n_keys=1) - maps
print(f"a position: {maps:,} operations in the maps, {key:,} for each key")
print(f"they are equal near {round(maps / key, -2):.0f} keys")

# %% [markdown]
# In this table each doubling costs more than four times as much. Why more? In attention every position is scored against every position (the mask only throws half away), so a call over $n$ positions makes $n^2$ scores, and in all calls
# together the scores grow with the *cube*. In one call of this model attention costs as much as all maps near 800 positions.

# %% [markdown] tags=["note"]
# Have the room add the calls for four words, then for eight. Common wrong answer: "twice the text, twice the time", because one thinks of reading it once.
# If time is short: show the table's output, skip its code.

# %% [markdown] slide="slide"
# ## 2. How much of it is new?
# We read 12 tokens, then the same with one more, and compare what the layers made of the first 12.

# %%
shorter, longer = capture(model, ids[:, :12]), capture(model, ids[:, :13])


# %%
def moved(layer: int, name: str) -> float:
    """How far the q, k or v of the first 12 tokens moves at most when a token is appended."""
    before = getattr(shorter.attention(layer), name)  # (B, H, 12, D)
    after = getattr(longer.attention(layer), name)  # (B, H, 13, D)
    return (after[:, :, :12] - before).abs().max().item()


# %% tags=["source-hidden"]
changed = [i for i in range(3) if max(moved(i, "k"), moved(i, "v")) > 1e-3]
predict(
    "A token is appended. In which of the 3 layers do the keys and values of the earlier tokens change?",
    key=lambda: "in none" if not changed else str(changed),
    choices={
        "in none": "",
        "in all": "What a layer makes of a token comes from that token and those before it. Did one of them change?",
        "in all but the first": "So it would be if a token could look ahead: from the second layer on it would know the new one. But the mask forbids it.",
    },
    because="The causal mask stands in every layer: no token has seen what comes later.",
)

# %% evidence="past-unchanged"
for i in range(3):
    assert max(moved(i, name) for name in "qkv") < 1e-3
    print(f"layer {i}: q, k and v move by less than 0.001:", max(moved(i, name) for name in "qkv") < 1e-3)

# %% [markdown]
# They stay, up to rounding: reading the earlier words again makes the same numbers again. What does the new word need of them? Its query meets their keys, and it mixes their values. It never meets their queries.
# So we keep **keys and values**, of every layer, and drop the queries. The store is the **KV-cache**.
#
# By hand: one head, six words. The newest query alone, over the keys and values of all six:

# %% evidence="newest-alone"
q, k, v = torch.randn(3, 6, 4)  # (T, D) each
whole = attend(q, k, v, causal=True)  # (T, D)
newest = attend(q[-1:], k, v)  # (1, D)
torch.testing.assert_close(newest, whole[-1:])
print("all rows:", tuple(whole.shape), "the newest alone:", tuple(newest.shape))

# %% [markdown]
# It is the last row of the whole, and **no mask was needed**: the newest word may see all there are. (In a model, keys and values come from layers that had the mask. Section 7 shows what happens if those layers had none.)
#
# What does a cache save? Step through the story as it was told, and watch the cells with the arrow: each is work for a result that was there before. Then let it read the prompt all at once.

# %%
cache_view(model, tokenizer, "\n" + tokenizer.decode(ids[0, 1:14].tolist()), n_prompt=6)

# %% [markdown]
# With a cache the triangle of cells becomes its edge: each position is computed once. The other side of the bargain stands at the bottom: every position leaves keys and values behind, and they take memory (section 5).

# %% [markdown] tags=["note"]
# Ask: why keep k and v, not the stream x? (One could: k and v are maps of it. Then each step would make them all again, which is the work we want to save.)
# Ask also for a model where this fails: one without a causal mask.

# %% [markdown] slide="slide"
# ## 3. A piece at a time
# A prompt is known from the start, so all of its positions go through the model at once. This is called **prefill**; the steps after it, one token each, are **decoding**. A very long prompt is
# read in **chunks**, so that its scores do not all stand in memory together.
#
# A chunk has several queries, and then the mask is back. Say 5 positions are kept, and a chunk of 3 comes. It meets 8 keys: the kept ones and its own.

# %% tags=["source-hidden"]
predict(
    "3 queries meet 8 keys, 24 pairs. How many of them are allowed?",
    key=lambda: causal_mask(3, 8).sum().item(),
    number="pairs",
    within=0,
    feedback={
        24: "That is no mask: then the first new word sees the two after it.",
        6: "1 + 2 + 3: as if the chunk stood at the beginning. But its first word stands at position 5.",
        18: "5 + 6 + 7: each word sees itself, too.",
    },
    because="Query 0 of the chunk stands at position 5 and sees 6 keys; the next see 7 and 8.",
)

# %%
P, T = 5, 3
S = P + T
allowed = torch.tensor([[key <= P + query for key in range(S)] for query in range(T)])  # (T, S)

# %% tags=["source-hidden"]
figures.heat_map(
    allowed,
    [f"new {i}, at {P + i}" for i in range(T)],
    [f"kept {j}" for j in range(P)] + [f"new {j}" for j in range(T)],
    title="The mask moves right by what is kept",
    caption="1 is allowed, 0 is not. Each new position sees everything that is kept, the new ones before it, and itself.",
    digits=0,
)

# %% [markdown]
# With $P$ positions kept, query $i$ of the chunk stands at position $P + i$, so key $j$ is allowed if $j \le P + i$. The triangle has moved to the right end. With $P = 0$ it is the mask of
# lesson 05, and with one query the row is all ones: no mask needed (unless the batch has padding, lesson 06). `causal_mask` of the library knows this rule:

# %% evidence="moved-mask"
assert causal_mask(T, S).equal(allowed) and causal_mask(1, 6).all()

# %% [markdown]
# Now the whole model by hand, in three functions. First q, k and v of one layer, at the `positions` of the new tokens. In this model G = H, so all three are (B, H, T, D):


# %%
def queries_keys_values(part, h, positions):
    """q, k, v (B, H, T, D) of one attention layer, from h (B, T, C): lessons 06 and 07."""
    q = part.q_norm(part.split(part.q_proj(h)))
    k = part.k_norm(part.split(part.k_proj(h)))
    v = part.split(part.v_proj(h))
    return part.rotation(q, positions), part.rotation(k, positions), v


# %% [markdown]
# Then the store. `kept` is a dict with the keys and values of each layer:


# %%
def remember(kept, layer, k, v):
    """Put new k and v (B, H, T, D) behind the old ones of this layer, and return all of them, (B, H, S, D)."""
    if layer in kept:
        old_k, old_v = kept[layer]
        k, v = torch.cat((old_k, k), dim=-2), torch.cat((old_v, v), dim=-2)
    kept[layer] = k, v
    return k, v


# %% [markdown]
# And the loop over the layers. Two things can go wrong in it, the positions and the mask, so both are arguments:


# %%
@torch.no_grad()
def read_on(ids, kept, positions, mask):
    """Logits (B, T, V) of the new tokens ids (B, T), which come after what is kept."""
    x = model.embed(ids)  # (B, T) -> (B, T, C)
    for layer, block in enumerate(model.blocks):
        q, k, v = queries_keys_values(block.attention, block.attn_norm(x), positions)
        k, v = remember(kept, layer, k, v)  # (B, H, S, D), (B, H, S, D)
        y = attend(q, k, v, mask)  # (B, H, T, D)
        x = x + block.attention.o_proj(y.transpose(1, 2).flatten(2))  # (B, T, C)
        x = x + block.ffn(block.ffn_norm(x))  # (B, T, C)
    return model.final_norm(x) @ model.lm_head.weight.T  # (B, T, C) -> (B, T, V)


# %% [markdown]
# It is the loop of lesson 10, with two differences: the positions continue, and the new queries meet all keys. Keys are kept *after* the rotation: each has been turned to its own position, once and for all.
# We read our 40 tokens as a prompt of 12, a chunk of 20, and 8 single ones:

# %%
kept, start, pieces = {}, 0, []
for piece in ids.split([12, 20] + [1] * 8, dim=1):
    end = start + piece.shape[1]
    pieces.append(read_on(piece, kept, torch.arange(start, end), causal_mask(end - start, end)))
    start = end

# %%
with torch.no_grad():
    full = model(ids)  # (1, 40, V)
torch.testing.assert_close(torch.cat(pieces, dim=1), full, atol=1e-3, rtol=1e-3)
print("10 pieces, the logits of one reading; kept per layer:", tuple(kept[0][0].shape))

# %% [markdown]
# The same logits, at all 40 places. A cache is no approximation: it leaves out only what would be computed twice.

# %% [markdown] tags=["note"]
# Draw the mask on the board for P = 0, then for T = 1. Let somebody find the one formula. Slip to wait for: "prefill needs no mask because nothing is written yet".

# %% [markdown] slide="slide"
# ## 4. Your turn
# One layer's attention with a cache, for all heads at once (again G = H): what `remember` and `attend` did. Write the mask yourself; `causal_mask` is for checking. Do not write into the caches that are given:
# return new, longer ones, through which gradients can flow.


# %% tags=["exercise"] name="cached_attention" minutes=12 difficulty=3
def cached_attention(q, k, v, cache_k, cache_v):
    """T new positions attend to P kept ones and to themselves.

    q, k, v (B, H, T, D): of the new positions; T is 1 or more. Any strides.
    cache_k, cache_v (B, H, P, D): of the kept positions, oldest first; P may be 0.
    New position i stands at P + i and sees all positions up to its own. Scores are divided by the
    root of D, forbidden ones get the weight 0, however low the others are.
    Returns a tuple of three, in this order: the result (B, H, T, D), all keys so far and all values
    so far, (B, H, P + T, D) each, for the next call. Works in the dtype it is given (fp64 stays fp64).
    None of the arguments is modified, and gradients flow back to all five.
    """
    # SOLUTION
    keys, values = torch.cat((cache_k, k), dim=-2), torch.cat((cache_v, v), dim=-2)
    T, S = q.shape[-2], keys.shape[-2]
    allowed = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    scores = q @ keys.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return weights @ values, keys, values
    # END


# %% tags=["check"]
if check("cached_attention", cached_attention).passed:
    keep("cached_attention", cached_attention)

# %%
hint("cached_attention")

# %% [markdown] tags=["solution"]
# Join first, along the positions (the axis before the last), then it is lesson 05's attention with a mask that is no square. `tril(S - T)` moves the diagonal by $P$, so that row 0 has $P + 1$ ones; `j <= P + i` with two
# `arange`s is as good. The usual slips: a T by T mask, or one that starts in the upper left corner (right without a past, so the first test passes); no mask, because "decoding needs none" (right for one new position);
# writing into the caches that were handed in.

# %% [markdown] slide="subslide"
# ### The library's version
# `torch.cat` has a cost of its own: to append one position it copies all the old ones, which is the square of section 1 again. So `KVCache` takes its memory once, room for `max_len` positions; `.length` says how many are filled.
# `extend` does what `remember` did, but its `_write` (not shown) copies the new ones into the tensor, from place `.length` on. `reset` forgets the text; `select` is what beam search uses (lesson 12).
# The model takes `cache.length` as the first position, and moves it when all layers are through.

# %%
show(KVCache)

# %%
B, T, G, D = 2, 3, model.config.n_kv_heads, model.config.d_head
cache = KVCache(model.config, batch_size=B, max_len=10)
cache.length = 4  # as if 4 positions were kept
k, v = torch.randn(2, B, G, T, D)  # (B, G, T, D) each
trace(cache.extend, 0, k, v, sizes={"B": B, "T": T, "G": G, "S": 4 + T, "D": D})

# %% [markdown]
# Equal to one reading, for *every* place where our text can be cut in two, for single steps, and for chunks:


# %% evidence="any-split"
@torch.no_grad()
def in_pieces(ids, sizes):
    """Logits of ids (B, T), read piece by piece through one cache."""
    cache = KVCache(model.config, len(ids), ids.shape[1])
    return torch.cat([model(piece, cache) for piece in ids.split(sizes, dim=1)], dim=1)


ways = [[first, 40 - first] for first in range(1, 40)] + [[1] * 40, [7, 1, 1, 20, 11], [16] * 2 + [8]]
for sizes in ways:
    torch.testing.assert_close(in_pieces(ids, sizes), full, atol=1e-3, rtol=1e-3)
print(f"{len(ways)} ways to cut 40 tokens, the same logits")

# %% [markdown]
# `generate` writes with a cache like this one. If you kept your `cached_attention`, it now writes with yours, and the card says so:

# %%
mine = build(model.config)
mine.load_state_dict(model.state_dict())
assert generate(mine, prompt, max_new_tokens=6, temperature=0).equal(written)
print("the same 6 tokens")
using(mine)

# %% [markdown] slide="slide"
# ## 5. What it costs: bytes
# Keys and values, for each layer, text, key-value head and position, a vector of D numbers:
#
# $$2 \cdot L \cdot B \cdot G \cdot S \cdot D \text{ numbers}$$

# %% tags=["source-hidden"]
predict(
    "GPT-2 small has 12 layers with 12 heads of 64 features (G = H). One text, 2 bytes a number: how many bytes does one position leave in the cache?",
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
# Is the formula true of the tensors? On the meta device (shapes without memory, lesson 10) we make the caches of large models, at the length that each was made for:

# %% evidence="cache-bytes"
for family, size in (("gpt2", "small"), ("llama", "2-7b"), ("llama", "3-8b")):
    config = preset(family, size)
    length = config.max_seq_len
    cache = KVCache(config, 1, length, device="meta", dtype=torch.bfloat16)
    held = sum(tensor.nbytes for tensor in (*cache.keys, *cache.values))
    assert held == kv_cache_bytes(config, batch_size=1, length=length, bytes_per_element=2)
    weights = 2 * count_parameters(config).total / 1e9
    letters = f"L {config.n_layers}, H {config.n_heads}, G {config.n_kv_heads}"
    print(f"{family} {size}: {letters}, {held // length:,} bytes a position")
    print(f"    {held / 1e9:.2f} GB for {length} positions, weights {weights:.2f} GB")

# %% [markdown]
# Llama 3 8B is larger than Llama 2 7B and has as many layers and query heads, yet a position leaves a quarter: 8 key-value heads in place of 32. This is what grouped queries (lesson 07) save. For one text the cache is
# small beside the weights. But a server writes many texts at once: they all use the same weights, and the cache grows with B times S.

# %% evidence="grouped-cache"
grouped, full_heads = preset("llama", "3-8b"), preset("llama", "3-8b", n_kv_heads=32)
quarter, whole_cache = (KVCache(config, 1, 8192, device="meta") for config in (grouped, full_heads))
assert 4 * sum(keys.nbytes for keys in quarter.keys) == sum(keys.nbytes for keys in whole_cache.keys)

# %% tags=["source-hidden"]
texts = [1, 4, 8, 12, 16]  # B, each of 8,192 positions
gigabytes = {
    name: [kv_cache_bytes(config, B, 8192, 2) / 1e9 for B in texts]
    for name, config in (("G = 32", full_heads), ("G = 8", grouped))
}
weights = 2 * count_parameters(grouped).total / 1e9
crossing = {name: weights / values[0] for name, values in gigabytes.items()}
with figures.axes(
    "Grouped queries keep the cache small", "B, texts of 8,192 positions each", "GB, 2 bytes a number"
) as (figure, ax):
    for (name, values), dash in zip(gigabytes.items(), ("--", "-"), strict=True):
        ax.plot(texts, values, dash, label=f"cache, {name}")
    ax.axhline(weights, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
    ax.text(1, weights + 1.2, "weights", color=figures.QUIET)
    ax.set_xticks(texts)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.05, 0.95))
figures.display(
    figure,
    alt=f"Line chart for Llama 3 8B. Both caches grow on a straight line: to {gigabytes['G = 32'][-1]:.0f} GB with 32 key-value heads, to {gigabytes['G = 8'][-1]:.0f} GB with 8. The weights lie at {weights:.0f} GB.",
    caption=f"Llama 3 8B, as it is (G = 8) and as it would be with a key-value head for each query head. With 8 the cache weighs as much as the model's weights at about {crossing['G = 8']:.0f} texts, with 32 already at about {crossing['G = 32']:.0f}.",
    table={"texts": texts, "cache G = 32, GB": gigabytes["G = 32"], "cache G = 8, GB": gigabytes["G = 8"]},
)

# %% [markdown]
# The cache grows with the length; the scores of a text that is read at once grow with its square. In our `tiny_transformer`, for several lengths:

# %% rows=["S4-48"]
config = preset("tiny_transformer")
print("  positions   scores per head   cache, 4 bytes a number")
for length in (256, 1024, 4096, 32_768):
    cache_mb = kv_cache_bytes(config, batch_size=1, length=length) / 1e6
    print(f"{length:>11,}   {length * length:>15,}   {cache_mb:20.1f} MB")

# %% [markdown]
# So 256 positions make 256 by 256 scores, for each head and layer; GPT-3 reads 2,048 (Brown et al. 2020, section 2.1), which is 8 times as many positions and 64 times the scores.

# %% [markdown] slide="slide"
# ## 6. What it costs: time
# Back to the question. With a cache a step reads one position: is it then the same for every word?

# %% tags=["source-hidden"]
steps = {n: forward_flops(model.config, 1, 1, n_keys=n) for n in (1, 128, 2048)}
predict(
    "With a cache, how many times the operations of the first step does the 128th take, in the shipped model?",
    key=lambda: f"about {steps[128] / steps[1]:.1f} times",
    choices={
        "once": "It reads one position, as the first step did. But its query meets 128 keys.",
        "about 1.2 times": "",
        "about 2 times": "So it would be if 128 keys cost as much as the maps of the model. They cost far less.",
        "about 128 times": "That is the way without a cache. With one, the maps of the model see a single position.",
    },
    because="The query meets all kept keys. But the maps cost the same at each step, and beside them 128 keys are little.",
)

# %%
print("keys    with a cache   without")
for n in (1, 128, 2048):
    with_cache, without = (forward_flops(model.config, 1, *sizes) / 1e6 for sizes in ((1, n), (n,)))
    print(f"{n:>4}    {with_cache:8.1f}   {without:12.1f}   million operations in one step")

# %% [markdown]
# Now the clock. The shipped model was made for 128 positions; rotary positions have no weights, so the same weights fit a model with room for 2048. For each length we time the next step, the best of 5.


# %%
roomy = TransformerLM(replace(model.config, max_seq_len=2048)).eval()
roomy.load_state_dict(model.state_dict())
text = torch.randint(model.config.vocab_size, (1, 2047))  # (1, 2047)
roomy_cache = KVCache(roomy.config, batch_size=1, max_len=2048)


def next_token(n):
    roomy_cache.length = n  # what is kept behind position n counts as free
    roomy(text[:, :1], roomy_cache)


# %% tags=["source-hidden"]
def milliseconds(step, n) -> float:
    """The fastest of 5 runs."""
    spent = []
    for _ in range(5):
        begun = time.perf_counter()
        step(n)
        spent.append(1000 * (time.perf_counter() - begun))
    return min(spent)


# %%
lengths = [64, 128, 256, 512, 1024, 2047]
with torch.no_grad():
    roomy_cache.reset()
    roomy(text, roomy_cache)
    short = [milliseconds(next_token, n) for n in lengths]
    long = [milliseconds(lambda n: roomy(text[:, :n]), n) for n in lengths]
few, most = (forward_flops(model.config, 1, 1, n_keys=n + 1) for n in (128, 2047))
print(f"with a cache, 128 to 2,047 tokens: {most / few:.1f} times the operations")
print("the time:", measured(short[1], "ms", 0.01, 1e5), "to", measured(short[-1], "ms", 0.01, 1e5))

# %% tags=["source-hidden"]
with figures.axes("With a cache the next token takes far less time", "tokens so far", "milliseconds for one more") as (
    figure,
    ax,
):
    ax.plot(lengths, long, "--o", label="everything again", color=figures.SERIES[1])
    ax.plot(lengths, short, "-o", label="with a cache", color=figures.SERIES[0])
    ax.set_ylim(0)
    ax.legend(frameon=False, loc="upper left")
figures.display(
    figure,
    alt="Line chart. Without a cache the time of a step rises to many times its start; with a cache it stays near the bottom.",
    caption="Measured on the machine that ran this notebook. Without a cache the next token waits for the whole text to be read again.",
    table={
        "tokens so far": lengths,
        "everything again": [measured(x, "ms", 0.01, 1e5) for x in long],
        "with a cache": [measured(x, "ms", 0.01, 1e5) for x in short],
    },
)

# %% [markdown]
# So each word takes a little longer than the one before, because it adds a key that the next one meets. With long texts or many of them, fetching the cache can cost as much as fetching the weights (section 5). The whole is still quadratic in the scores, and only there. And the time grows less than the operations: a step
# does so little arithmetic that other costs show: starting each operation, and in a large model fetching all weights for a single position. Lesson 14 measures both.
#
# And when the room is full? By default `generate` then reads the last `max_seq_len` tokens anew: from there on, every word costs a full reading. Dropping the oldest keys instead would be another model: those that stay were made by layers that had seen the dropped words.

# %% [markdown] tags=["note"]
# With learned positions there is a plainer reason, too: every word would move one place, and all its keys with it. On a very fast machine the lower curve may look flat.

# %% [markdown] slide="slide"
# ## 7. Break it
# Three mistakes that raise no error. How bad is each? Of 64 stories we read the first 20 tokens as the prompt, in one piece, and 20 more one by one. The loss is the mean cost of a guess, in nats. (The guess at the last token of the prompt belongs to both and is not counted.)

# %%
generators = [torch.Generator().manual_seed(seed) for seed in range(64)]
stories = [storyworld.story(generator).text for generator in generators]
many = torch.tensor([tokenizer.encode("\n" + text)[:40] for text in stories])  # (64, 40)


# %%
def in_steps(restart, mask_of):
    """Logits (64, 40, V). restart: positions begin at 0 in each piece. mask_of(T, S): the mask of a piece."""
    kept, start, logits = {}, 0, []
    for piece in many.split([20] + [1] * 20, dim=1):
        T = piece.shape[1]
        first = 0 if restart else start
        logits.append(read_on(piece, kept, torch.arange(first, first + T), mask_of(T, start + T)))
        start += T
    return torch.cat(logits, dim=1)


# %%
def no_mask(T, S):
    return torch.ones(T, S, dtype=torch.bool)


found = {
    "right": in_steps(False, causal_mask),
    "positions restart": in_steps(True, causal_mask),
    "no prefill mask": in_steps(False, no_mask),
    "mask from the upper left": in_steps(False, lambda T, S: no_mask(T, S).tril()),
}


# %% tags=["source-hidden"]
def losses(logits):
    """Mean cost of the guesses inside the prompt, and of those made by single steps, in nats."""
    costs = cross_entropy(logits[:, :-1].mT, many[:, 1:], reduction="none")  # (64, 39)
    return costs[:, :19].mean().item(), costs[:, 20:].mean().item()


# %% tags=["source-hidden"]
right, restarted = losses(found["right"]), losses(found["positions restart"])
predict(
    "Somebody lets `positions` begin at 0 for each piece. What happens?",
    key=lambda: (
        "the prompt is read right, what follows is bad"
        if abs(restarted[0] - right[0]) < 0.01 and restarted[1] > right[1] + 1
        else "all is bad"
    ),
    choices={
        "nothing: rotary sees only distances": "Distances between what? The kept keys were turned to 0 to 19, and each new token says it stands at 0.",
        "the prompt is read right, what follows is bad": "",
        "all is bad": "For the prompt, the first piece, starting at 0 is right.",
    },
    because="The first piece does begin at 0. Each later token then stands, by its position, before what it should look back at.",
)

# %% evidence="mistakes"
print("                    loss: prompt   single steps   best guesses unlike right, rounded to tens")
best = found["right"][:, 20:].argmax(-1)  # (64, 20)
for name, logits in found.items():
    prompt_loss, loss = losses(logits)
    unlike = (logits[:, 20:].argmax(-1) != best).sum().item()
    print(f"{name:<25}{prompt_loss:7.2f}   {loss:12.2f}   {round(unlike, -1):>7,} of {best.numel():,}")
    assert (unlike > 30) == (name != "right")
assert losses(found["no prefill mask"])[0] > losses(found["right"])[0] + 0.1

# %% [markdown]
# **Restarted positions**: the prompt is perfect, so a test that looks only at the prefill passes. From then on the model is lost in the text.
#
# **The missing prefill mask** hides best. The guesses inside the prompt get worse (they look ahead, but these weights were trained with the mask and never learned to use it), and while the model writes nobody looks at them. Layer 0 is unharmed; in layers 1 and 2 the kept keys and values come from words that had looked ahead.
# The single steps read those: their loss stays at 1.09, and still about 70 of 1,280 best guesses change, so a story written in this way would soon contain other words. "Decoding needs no mask" is true of the step, not of the prefill.
#
# **The mask from the upper left**: without a past it is right, so here, too, the prefill is perfect. A single new token then sees key 0 and nothing else. (torch's `is_causal=True` draws it so.)
#
# And one more, with the library's own cache: a new text without `reset()`. Each row reads another story first. The cache has room for both, 80 positions; if it had room for one text only, the second one would raise an error.

# %% evidence="no-reset"
cache = KVCache(model.config, batch_size=64, max_len=80)
with torch.no_grad():
    model(many.roll(1, dims=0), cache)
    second = model(many, cache)  # (64, 40, V)
    cache.reset()
    fresh = model(many, cache)  # (64, 40, V)
torch.testing.assert_close(fresh[:, :1], model(many[:, :1]).detach(), atol=1e-3, rtol=1e-3)
assert (second - fresh).abs().amax(dim=(1, 2)).min() > 1  # in each of the 64 texts
for name, logits in (("without reset", second), ("with reset", fresh)):
    print(f"{name:<14} loss {cross_entropy(logits[:, :-1].mT, many[:, 1:]):.1f}")

# %% [markdown]
# To the model it was one text of 80 tokens. One test finds all four: **read in several pieces, compare with one reading at every place, and do it twice with one cache.**
#
# ## What you have now
# - Without a cache, writing n tokens, one at a time, computes n (n + 1) / 2 positions [[positions-read]], and the number of operations grows faster than with the square of n, because each position also meets more keys. [[operations]]
# - In a causal model the keys and values of earlier tokens do not change when a token is appended, in any layer. [[past-unchanged]] The newest token needs only its own query, so the cache keeps keys and values, and no queries. [[newest-alone]]
# - The new position $i$ after $P$ kept ones sees the keys 0 to $P + i$. [[moved-mask]] In texts without padding, a single new token may see all keys, so it needs no mask. [[newest-alone]] [[any-split]] A chunk, such as the prompt, needs one. [[mistakes]]
# - With a cache the model computes the same logits, up to rounding, at every split that we tried. [[any-split]] Restarted positions and a wrong mask change them without an error [[mistakes]]; so does a missing reset, if the cache has room for both texts. [[no-reset]]
# - A cache holds $2 L B G S D$ numbers. [[cache-bytes]] Grouped queries divide that by H / G. [[grouped-cache]]
#
# A step is now so small that arithmetic is no longer what it waits for. Next, lesson 14: where the time goes.

# %% [markdown]
# ## Sources
# - Attention: Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.
# - Decoding with kept keys and values, and what it costs in memory traffic: Shazeer 2019, *Fast Transformer Decoding: One Write-Head is All You Need*, section 2.
# - Grouped queries: Ainslie et al. 2023, *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, section 2.
# - GPT-3's sizes: Brown et al. 2020, *Language Models are Few-Shot Learners*, section 2.1.
