# %% [markdown] deck="Must writing get slower with every word?"
# # 13 Cache
# **Must writing get slower with every word?**
#
# *Needs* lessons 05 to 07, 10 and 12 (`generate`). *Builds* `KVCache` in `cache.py`. *Runs* in about 30 s on two cores.
# *Teaches* in about 45 minutes, plus 22 of exercises.

# %% [markdown] tags=["note"]
# **Say.** The lesson has one idea: keep the keys and values of what was read, because the causal mask guarantees that they never change again. First we count how much a model reads, and how much of that is new.
#
# **Usual answers.**
# - *All, because the text is another one each time* (`76`): Look at the first column. Which word could its eight cells see?
# - *One in each call* (`8`): The first call reads the prompt, and all of that is new.
# - *Twice the text, twice the time* (from the room): That is right for reading a text once. Here each of the words starts a reading of its own: let the class change `n`.
#
# **Cut if short.** The last sentence.
#
# **Tried.** 40 other stories of 60 tokens, cut after 1, 6, 20 and 59: no key or value moved by more than 2.4e-6; with 120 tokens, five times the prompt and more, by 0.0. The formula is exact, compared for every length up to 2,000.

# %% [markdown]
# ## 1. Everything again, for each word
# To write one word, the model reads the text. Then the word is appended, and for the next one the model reads the whole text again. The shipped model gets a **prompt** of 6 tokens and writes 8 more, always the most probable one:

# %%
import torch

from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
prompt = torch.tensor([tokenizer.encode("\nOne mild afternoon, quiet")])  # (1, 6)
written, reads = prompt, []
for _ in range(8):
    reads.append(written.shape[1])
    next_id = model(written)[:, -1:].argmax(-1)  # (1, 1)
    written = torch.cat((written, next_id), dim=1)

# %% tags=["source-hidden"] deck="To write 8 tokens, the model computes 76 positions"
from tinylm_classroom import cache_figures as figures

figures.calls(tokenizer, written, reads)

# %%
from tinylm_classroom import cache_view, capture, predict

_ = torch.manual_seed(13)


def keys_and_values(ids):  # of a reading of ids (1, T): (T, 768)
    caught = capture(model, ids)
    layers = [caught.attention(layer) for layer in range(3)]
    heads = torch.cat([each for x in layers for each in (x.k, x.v)], 1)  # (1, 24, T, D)
    return heads[0].transpose(0, 1).flatten(1)  # (T, 768)


same = torch.zeros(8, 13, dtype=torch.bool)  # call, position: as in the call before?
for call, n in enumerate(reads[1:], start=1):
    before, now = keys_and_values(written[:, : n - 1]), keys_and_values(written[:, :n])
    same[call, : n - 1] = (now[:-1] - before).abs().amax(-1) < 1e-4

# %% tags=["source-hidden"] deck="How many of these 76 positions are new?"
predict(
    "We compare the keys and values of each call with those of the call before, in all 3 layers. How many of the 76 positions are new, so that their numbers were not there before?",
    key=lambda: sum(reads) - int(same.sum()),
    number="positions",
    within=0,
    feedback={
        76: "Then a word would change the keys and values of the words before it. Can they see it?",
        8: "One in each call, except in the first: there all 6 positions of the prompt are new.",
    },
    because="No position sees anything that comes later. So only the prompt and then one position in each call are new: 6 + 7.",
)

# %% tags=["signature", "source-hidden"] deck="63 of 76 positions are computed again"
figures.calls(tokenizer, written, reads, same)

# %% [markdown]
# Of 76 positions 63 give the same keys and values again. [[read-again]] The work is a triangle, and what is new in it is only its edge. How fast does a triangle grow?

# %% tags=["source-hidden"] evidence="read-again" tried="held-out"
# Checked: in ten other stories, too, an appended token changes no key and no value before it.
from tinylm_lib import storyworld


def stories(seeds, n):
    """The first n tokens of a story for each seed, (B, n)."""
    texts = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in seeds]
    return torch.tensor([tokenizer.encode("\n" + text)[:n] for text in texts])


assert int(same.sum()) == sum(reads) - 13
for text in stories(range(100, 110), 24).split(1):
    last = keys_and_values(text)  # (24, 768)
    assert all((last[:n] - keys_and_values(text[:, :n])).abs().max() < 1e-4 for n in (1, 6, 23))

# %% deck="Twice the text takes four times the reading"
# ESSENTIAL
n = 400  # try 200 and 4_000
for length in (n // 2, n):
    # END
    print(f"{length:>5} words: {sum(range(1, length + 1)):>9,} positions read")

# %% tags=["source-hidden"] evidence="positions-read" tried="exact"
# Checked: the formula, for every length to 2,000, against a sum that grows word by word.
for n in range(1, 2001):
    assert sum(range(1, n + 1)) == n * (n + 1) // 2

# %% [markdown]
# A text of $n$ words makes the model read $n (n + 1) / 2$ positions: the reading grows with the square of the length. [[positions-read]]

# %% [markdown] tags=["note"]
# **Say.** Nearly all of this work was done before. So what exactly do we have to keep, and why does it not change?
#
# **Draw.** One layer of attention with a column for each word: q, k and v. Add a column for a new word and draw its arrows. Cross out everything that no arrow touches: the old queries.
#
# **Usual answers.**
# - *x is enough* (from the room): It is, but then a step makes all keys again: about 10 times the operations.
# - *One map more is not much* (from the room): It is a map for each of the kept positions, in each layer.
# - *Multiply the query by the key's matrix, then x needs no map* (from the room): Right, without rotation. Each key is rotated to its own position, so each would need a query of its own.
# - *Keep the queries, too* (from the room): Ask who would ever read them again.
#
# **Cut if short.** The view; the picture of section 1 shows the same.
#
# **Tried.** Ten seeds: old queries move the newest result by 0.0, old keys or values by at least 0.096. The operations are exact: with x a step takes 9.8 times as many. Smallest rival: folding the key's matrix into the query would take 2,048 operations for a position and layer instead of 65,536, together 1.4 times a step; the checked cell shows that it holds without rotation and fails with it.

# %% [markdown]
# ## 2. What must be kept?
# Only attention looks at other positions. So what does the newest word need there? By hand, in one head with six words: the newest query alone meets the keys and values of all six. It needs no mask, because it may see all of them.

# %%
from tinylm_lib.attention import attend, causal_mask

q, k, v = torch.randn(3, 6, 4)  # (T, D) each
whole = attend(q, k, v, causal=True)  # (T, D)
newest_alone = attend(q[-1:], k, v)  # (1, D)
torch.testing.assert_close(newest_alone, whole[-1:])

# %% [markdown]
# The same result. Now we change the five *old* queries, or keys, or values. Which of them does the newest word notice?

# %% deck="The newest word needs the old keys and values, but no old query"
by_how_much = 1.0  # try 0.1 and 5.0
for changed in ("queries", "keys", "values"):
    old = {"queries": q.clone(), "keys": k.clone(), "values": v.clone()}
    old[changed][:-1] += by_how_much
    # ESSENTIAL
    difference = (attend(*old.values(), causal=True)[-1] - whole[-1]).abs().max()
    print(f"old {changed} changed: the newest result moves by {difference:.2f}")
    # END

# %% tags=["source-hidden"] evidence="newest-alone" tried="seeds"
# Checked: with ten seeds the newest result depends on old keys and values, and on no old query.
SEEDS = range(10)
for seed in SEEDS:
    three = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(seed))  # q, k, v (T, D)
    for which in range(3):
        noise = torch.zeros(3, 6, 4)
        noise[which, :-1] = three[which, 1:]
        moved = (attend(*three + noise, causal=True) - attend(*three, causal=True))[-1].abs().max()
        assert moved < 1e-5 if which == 0 else moved > 1e-3

# %% [markdown]
# So we keep **keys and values**, of every layer, and drop the queries. [[newest-alone]] This store is the **KV cache**. But keys and values are both made from one vector $x$ for each position and layer. Why not keep that?

# %%
from tinylm_lib.cost import forward_flops, kv_cache_bytes

# ESSENTIAL
small = model.config
step = forward_flops(small, 1, 1, n_keys=128)  # keys and values at hand
remade = 127 * 3 * (2 * small.d_model**2)  # positions, layers; a product
# END
print(f"a step: {step:,} operations; to make all keys again: {remade:,}")

# %% [markdown]
# Keeping $x$ would make a step about 10 times as much work, so we keep keys and values. [[x-instead]] (Values need not be made again: $W_v$ can wait for the sum of the $x$. Could the query absorb the key's matrix? Without positions yes, since $q \cdot W x = W^\top q \cdot x$. But each key is also rotated to its own position (lesson 06), so each would need a query of its own.)

# %% tags=["source-hidden"] evidence="x-instead" tried="exact"
# Checked: far more operations; values can wait for the sum; a folded query only works without a rotation.
assert round((step + remade) / step) == 10 and small.n_kv_heads * small.d_head == small.d_model
part, x, query = model.blocks[0].attention, torch.randn(12, 128), torch.randn(32)  # x (S, C), query (D)
plain = x @ part.k_proj.weight[:32].detach().T  # (S, C) -> (S, D)
torch.testing.assert_close(part.v_proj(x.mean(0)), part.v_proj(x).mean(0), atol=1e-4, rtol=1e-4)
torch.testing.assert_close(x @ (part.k_proj.weight[:32].T @ query), plain @ query, atol=1e-3, rtol=1e-3)
assert ((part.rotation(plain[None, None], torch.arange(12))[0, 0] - plain) @ query)[1:].abs().min() > 1e-3

# %% [markdown]
# In the view, go to the last step. How many times the work has been done so far? Then let the model read its prompt all at once: what changes, and what does not?

# %% tags=["source-hidden"] deck="With a cache, each step computes one new position"
cache_view(model, tokenizer, "\nOne mild afternoon, quiet Pablo walked", n_prompt=4)

# %% [markdown] tags=["note"]
# **Say.** The prompt is known from the start, so we read it in one piece. A piece has several queries, and so the mask returns, moved to the right.
#
# **Usual answers.**
# - *The cache needs no mask* (`24`): A single query needs none. The first of three must not see the other two.
# - *1 + 2 + 3* (`6`): This is the mask of a text that begins with the piece. Five positions come before it.
# - *5 + 6 + 7* (`18`): Each position sees itself, too.
# - *The earlier words hardly change, with or without the mask* (from the room): Good hypothesis; change the line `masked`.
#
# **Cut if short.** The line `masked`; say what it shows.
#
# **Tried.** 50 other stories, 42 ways to cut them: the logits differ by at most 2.3e-5; 40 stories of 120 tokens, read one by one: 6.2e-5. With the mask a 13th token moves the logits before it by 0.0 in 50 stories, without it by 1.4 to 7.5.

# %% [markdown]
# ## 3. A piece at a time
# A prompt is known from the start, so all of its positions go through the model at once: this is **prefill**. The steps after it, one token each, are **decoding**. A very long prompt is read in **chunks**. Say that 5 positions are kept, and a chunk of 3 comes. It meets 8 keys, the kept ones and its own.

# %% tags=["source-hidden"] deck="5 are kept, 3 are new: who may see whom?"
predict(
    "3 queries meet 8 keys, which makes 24 pairs. How many of them are allowed?",
    key=lambda: causal_mask(3, 8).sum().item(),
    number="pairs",
    within=0,
    feedback={
        24: "All of them are allowed if nothing is masked. But then the first new word sees the two after it.",
        6: "1 + 2 + 3 would be right if the chunk were the beginning of the text. But its first word is at position 5.",
        18: "5 + 6 + 7: each word sees itself, too.",
    },
    because="Query 0 of the chunk is at position 5 and sees 6 keys. The next two see 7 and 8.",
)

# %% tags=["source-hidden"] deck="The mask moves right by what is kept"
figures.mask(causal_mask(3, 8))

# %% [markdown]
# With $P$ kept positions, query $i$ of the chunk is at position $P + i$, so key $j$ is allowed if $j \le P + i$. [[moved-mask]] With $P = 0$ this is the mask of lesson 05, and for a single query the row is all ones. (Why chunks? A prompt of 32,768 positions has 1,073,741,824 scores in a head, a chunk of 256 at most 8,388,608.)
#
# Now the whole model by hand. `kept` is a dict with the keys and values of each layer:

# %% tags=["source-hidden"] evidence="moved-mask" tried="exact" rows=["S4-48"]
# Checked: the rule for many sizes; scores at once, and of a chunk of 256.
for P in range(7):
    rule = [[key <= P + query for key in range(P + 5)] for query in range(5)]
    assert causal_mask(5, P + 5).tolist() == rule and causal_mask(1, P + 1).all()
assert [n * n for n in (256, 1024, 4096, 32768)] + [256 * 32768] == [65536, 1048576, 16777216, 1073741824, 8388608]


# %%
def queries_keys_values(part, h, positions):
    """q, k, v (B, H, T, D) of one layer, from h (B, T, C): lessons 06 and 07."""
    q = part.q_norm(part.split(part.q_proj(h)))
    k = part.k_norm(part.split(part.k_proj(h)))
    v = part.split(part.v_proj(h))
    return part.rotation(q, positions), part.rotation(k, positions), v


def remember(kept, layer, k, v):
    """Append new k and v (B, H, T, D) to the old. Returns all, (B, H, S, D)."""
    if layer in kept:
        old_k, old_v = kept[layer]
        k = torch.cat((old_k, k), dim=-2)
        v = torch.cat((old_v, v), dim=-2)
    kept[layer] = k, v
    return k, v


# %% deck="The loop of lesson 10, and a memory"
@torch.no_grad()
def read_on(ids, kept, positions, mask):
    """Logits (B, T, V) of the new tokens ids (B, T), which come after what is kept."""
    x = model.embed(ids)  # (B, T) -> (B, T, C)
    for layer, block in enumerate(model.blocks):
        part = block.attention
        # ESSENTIAL
        q, k, v = queries_keys_values(part, block.attn_norm(x), positions)
        k, v = remember(kept, layer, k, v)  # (B, H, S, D) each
        y = attend(q, k, v, mask)  # (B, H, T, D)
        x = x + part.o_proj(y.transpose(1, 2).flatten(2))  # (B, T, C)
        x = x + block.ffn(block.ffn_norm(x))  # (B, T, C)
        # END
    return model.final_norm(x) @ model.lm_head.weight.T  # (B, T, C) -> (B, T, V)


# %% [markdown]
# Keys are kept *after* the rotation: each was rotated to its own position once, and that position does not change. Now we read a story in pieces:


# %%
def read_in_pieces(ids, sizes, restart=False, mask_of=causal_mask):
    """Logits (B, T, V) of ids (B, T), read in pieces of these sizes, from one cache."""
    kept, start, logits = {}, 0, []
    for piece in ids.split(sizes, dim=1):
        end = start + piece.shape[1]
        positions = torch.arange(start, end) - (start if restart else 0)
        logits.append(read_on(piece, kept, positions, mask_of(end - start, end)))
        start = end
    return torch.cat(logits, dim=1)


# %% deck="Read in any pieces, the logits are the same"
# ESSENTIAL
sizes = [12, 20] + [1] * 8  # try [40] and [39, 1]
ids = stories([13], 40)  # (1, 40): the first tokens of a story
pieces = read_in_pieces(ids, sizes)
# END
torch.testing.assert_close(pieces, model(ids), atol=1e-4, rtol=1e-4)
print(f"{len(sizes)} pieces, the same logits at all {pieces.shape[1]} positions")

# %% [markdown]
# The same logits at all 40 positions, up to rounding. The cache is not an approximation: it saves only what would be computed twice. Is it really the mask that makes this possible? We read 12 tokens and then 13, and compare what the model computes for the first 12:


# %%
def no_mask(T, S):
    return torch.ones(T, S, dtype=torch.bool)


def moved_by_the_last(ids, mask_of):
    """How far the last token moves the logits of the positions before it, at most."""
    before = read_in_pieces(ids[:, :-1], 40, mask_of=mask_of)  # (B, T - 1, V)
    return (read_in_pieces(ids, 40, mask_of=mask_of)[:, :-1] - before).abs().max()


# %% deck="Without the mask the past would change"
# ESSENTIAL
masked = False  # try True
move = moved_by_the_last(ids[:, :13], causal_mask if masked else no_mask)
# END
print(f"the logits of the first 12 positions move by at most {move:.2f}")

# %% tags=["source-hidden"] evidence="mask-decides" tried="held-out"
# Checked: in ten other stories, too, the past moves without the mask, and only so.
for text in stories(range(110, 120), 13).split(1):
    assert moved_by_the_last(text, causal_mask) < 1e-4 < 1 < moved_by_the_last(text, no_mask)

# %% [markdown]
# Without the mask a new word changes what was computed before it, so a cache would be wrong. [[mask-decides]] An encoder such as BERT, which sees both sides, cannot use one in this way.

# %% [markdown] tags=["note"]
# **Say.** You write one layer's attention with a cache, and then the loop that writes with it. One position and a whole prompt are the same function.
#
# **Usual answers.**
# - *Nothing is masked* (`no mask`): It is right for one new position. In a chunk the first must not see the others.
# - *The diagonal starts in the upper left corner* (`mask from the left`, `chunks masked from the left`): Query 0 is at position P, not at 0.
# - *New ones before old ones* (`new before old`): Positions are kept in their order, the oldest first.
# - *Joined along another axis* (`joined along the batch`, `joined along the heads`, `joined along the features`): Positions are the third axis of (B, H, P, D).
# - *The old caches are returned* (`caches not extended`): The next call needs what this one has added.
# - *A new dict in each round* (`a new cache each time`): Then a token sees only itself. Make it before the loop.
# - *Positions from 0* (`positions restart`): `S - N` is the first position of the last N of S tokens.
#
# **Cut if short.** Both exercises are homework. In class show the trace.
#
# **Tried.** `cached_attention`: 5 right variants pass, 37 faults and 12 mistakes from elsewhere are named. `write_with_cache`: 4 right variants pass (prefill before the loop, one token at a time, room made before), 19 faults and 14 mistakes from elsewhere are named.

# %% [markdown]
# ## 4. Your turn
# One layer's attention with a cache, for all heads at once (G = H): what `remember` and `attend` did. Write the mask yourself; `causal_mask` is for checking. Return new, longer caches.


# %% tags=["exercise"] name="cached_attention" minutes=12 difficulty=3 deck="Your turn: attention with a cache"
def cached_attention(q, k, v, cache_k, cache_v):
    """T new positions attend to P kept ones and to themselves.

    q, k, v (B, H, T, D): of the new positions; T is 1 or more. Any strides.
    cache_k, cache_v (B, H, P, D): of the kept positions, oldest first; P may be 0.
    New position i is at P + i and sees all positions up to its own. Scores are divided by the
    root of D, and forbidden ones get the weight 0, however low the others are.
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
from tinylm_classroom import build, check, hint, keep, show, trace, using

if check("cached_attention", cached_attention).passed:
    keep("cached_attention", cached_attention)

# %%
hint("cached_attention")

# %% [markdown] tags=["solution"]
# Join first, along the positions (the axis before the last). Then it is lesson 05's attention with a mask that is not square. `tril(S - T)` moves the diagonal by $P$, so that row 0 has $P + 1$ ones; `j <= P + i` with two
# `arange`s is as good. Common mistakes: a T by T mask, or one that starts in the upper left corner (right without a past, so the first test passes); no mask, because "decoding needs none" (right for one new position);
# writing into the caches that were handed in.

# %% [markdown]
# `torch.cat` copies all old positions to append one. So the library's `KVCache` has room for `max_len` positions from the start, and `.length` says how many are filled.

# %%
from tinylm_lib import KVCache, TransformerLM, generate, preset

show(KVCache.extend)

# %%
axes = {"B": 2, "T": 3, "G": small.n_kv_heads, "S": 4 + 3, "D": small.d_head}
partly_filled = KVCache(small, batch_size=2, max_len=10)
partly_filled.length = 4  # as if 4 positions were kept
new_k, new_v = torch.randn(2, *(axes[letter] for letter in "BGTD"))  # (B, G, T, D) each
trace(partly_filled.extend, 0, new_k, new_v, sizes=axes)


# %% tags=["source-hidden"] evidence="any-split" tried="held-out"
# Checked: 42 ways to cut ten other stories, by hand and with the library's cache.
ways = [[first, 40 - first] for first in range(1, 40)] + [[1] * 40, [7, 1, 1, 20, 11], [16] * 2 + [8]]
many = stories(range(120, 130), 40)  # (10, 40)
for way in ways:
    library, right = KVCache(small, 10, 40), model(many)  # right (10, 40, V)
    pieces = torch.cat([model(piece, library) for piece in many.split(way, dim=1)], dim=1)
    for logits in (pieces, read_in_pieces(many, way)):
        torch.testing.assert_close(logits, right, atol=1e-4, rtol=1e-4)

# %% [markdown]
# The library's cache and `read_on` give the logits of one reading, wherever we cut a text. [[any-split]] `read_on` of section 3 is the reader; you write the loop. The prompt is one piece, and after it each new token is one.


# %% tags=["exercise"] name="write_with_cache" minutes=10 difficulty=3 deck="Your turn: the loop that writes with a cache"
def write_with_cache(read_on, ids, n):
    """ids (B, T) and n more tokens, each the most probable next one: (B, T + n).

    read_on(new, kept, positions, mask) returns the logits (B, N, V) of the N tokens `new` (B, N)
    and adds their keys and values to the dict `kept`, which is empty at first. positions (N,) are
    theirs in the text, and mask is (N, S) for the S tokens so far. `causal_mask(N, S)` is allowed.
    The text must be the same as without a cache, and no token is read twice. T is 1 or more,
    n is 0 or more. ids itself must not change.
    """
    # SOLUTION
    kept, new = {}, ids
    for _ in range(n):
        S, N = ids.shape[1], new.shape[1]
        logits = read_on(new, kept, torch.arange(S - N, S), causal_mask(N, S))  # (B, N, V)
        new = logits[:, -1:].argmax(-1)  # (B, 1)
        ids = torch.cat((ids, new), dim=1)
    return ids
    # END


# %% tags=["check"]
if check("write_with_cache", write_with_cache).passed:
    keep("write_with_cache", write_with_cache)
    assert write_with_cache(read_on, prompt, 8).equal(written)  # with the real model

# %%
hint("write_with_cache")

# %% [markdown] tags=["solution"]
# `new` is first the whole prompt and then always one token, so one loop does both. The last N of S tokens are at the positions S - N to S - 1. Common mistakes: a new dict in each round; positions from 0 in each piece; no mask at the prefill; and `logits[:, 0]`, which is right for one token and wrong for the prompt. To read the prompt before the loop is as good.

# %% [markdown]
# `generate` (lesson 12) writes with a `KVCache`. If you kept your `cached_attention`, it now writes with yours, and the card says so:

# %%
mine = build(small)
mine.load_state_dict(model.state_dict())
assert generate(mine, prompt, max_new_tokens=8, temperature=0).equal(written)
using(mine)

# %% [markdown] tags=["note"]
# **Say.** Back to the question of the lesson. First we count the operations of one step, then we look at the clock.
#
# **Usual answers.**
# - *A step is always the same: one position* (`once`): One position, but it meets all kept keys.
# - *128 keys are 128 times the work* (`about 128 times`): Only the scores and the mixing grow. The maps see a single position.
# - *Keys cost as much as the maps* (`about 2 times`): Look at the table: how much does a step grow from 1 key to 128?
# - *It is faster because the logits of one position are computed, not of all* (from the room): Here both ways compute only the last logits.
#
# **Cut if short.** The paragraph about a full cache.
#
# **Tried.** Operations are exact, also for Llama 3 8B. Seconds on one busy core, three runs each: 100 tokens 1.4 to 2.1 times as long without a cache, 400 tokens 4.7 to 5.1 times, 1,000 tokens (once) 8.9 times (52.9 s and 5.9 s). On a quiet machine the first factor may be below 2, and the last is higher.

# %% [markdown]
# ## 5. Must it get slower?
# With a cache each step reads one position. Does it take the same work for every word?

# %% tags=["source-hidden"] deck="Does the 128th step take more than the first?"
steps = {n: forward_flops(small, 1, 1, n_keys=n) for n in (1, 128, 2048)}
predict(
    "With a cache, how many times the operations of the first step does the 128th take, in the shipped model?",
    key=lambda: f"about {steps[128] / steps[1]:.1f} times",
    choices={
        "once": "It reads one position, as the first step did. But its query meets 128 keys.",
        "about 1.2 times": "",
        "about 2 times": "Then 128 keys would cost as much as all the maps of the model.",
        "about 128 times": "Without a cache it would be even more. With one, the maps of the model see a single position.",
    },
    because="The query meets all kept keys. But compared with the maps, which cost the same at each step, 128 keys are little.",
)

# %% deck="With a cache a step grows, but slowly"
for n, with_cache in steps.items():
    # ESSENTIAL
    without = forward_flops(small, 1, n)  # reads everything again
    print(f"step {n:>4}: {with_cache:>9,} operations, without a cache {without:>13,}")
    # END

# %% [markdown]
# So yes, each word takes more operations than the one before, because it meets one more key, but the step grows slowly. [[step-grows]] And the clock? The shipped model was made for 128 positions, but rotary positions have no weights, so the same weights fit into a model with more room. It writes 400 tokens in both ways:

# %% tags=["source-hidden"] evidence="step-grows" tried="exact"
# Checked: a step grows with its keys, in this model and in a large one, and far less than a reading.
for config in (small, preset("llama", "3-8b")):
    few, more, most = (forward_flops(config, 1, 1, n_keys=n) for n in (1, 128, 2048))
    assert few < more < most < 6 * few and most < forward_flops(config, 1, 128)

# %%
import time
from dataclasses import replace

from tinylm_classroom import measured

roomy = TransformerLM(replace(small, max_seq_len=512)).eval()
_ = roomy.load_state_dict(model.state_dict())


# %%
@torch.no_grad()
def seconds_so_far(n, cache=None):
    """Writes n tokens. Returns the seconds after each of them."""
    text = new = prompt[:, :1]  # (1, 1)
    begun, spent = time.perf_counter(), []
    for _ in range(n):
        logits = roomy(new if cache else text, cache, last_only=True)  # (1, 1, V)
        new = logits.argmax(-1)  # (1, 1)
        text = torch.cat((text, new), dim=1)
        spent.append(time.perf_counter() - begun)
    return spent


# %%
n_tokens = 400  # try 100
without = seconds_so_far(n_tokens)
with_cache = seconds_so_far(n_tokens, KVCache(roomy.config, 1, n_tokens))

# %% tags=["source-hidden"] deck="The longer the text, the more the cache saves"
figures.seconds(with_cache, without)

# %% evidence="whole-text"
for n in (n_tokens // 4, n_tokens):
    both = [measured(spent[n - 1], "s", 1e-3, 1e4) for spent in (without, with_cache)]
    times = measured(without[n - 1] / with_cache[n - 1], "times", 0.1, 1000)
    print(f"{n} tokens: {both[0]} without a cache, {both[1]} with one, {times}")

# %% [markdown]
# In this run the whole text of 400 tokens took several times as long without a cache, and the factor grows with the length. [[whole-text]] Over a whole text, scores and weighted sums still grow with the square of its length, the maps in proportion to it.
#
# And when the cache is full? By default `generate` then reads the last `max_seq_len` tokens again for each word, so from there on every word costs a full reading.

# %% [markdown] tags=["note"]
# **Say.** We have bought time with memory. In a server with many users this number decides how many of them can be answered at once.
#
# **Usual answers.**
# - *The cache is small compared with the weights* (from the room): For one text. How many texts share the weights?
# - *B for keys and B for values* (from the room): That is the 2 in front.
#
# **Cut if short.** The whole section; say that the cache is what fills a GPU.
#
# **Tried.** Exact for four designs: the formula, `kv_cache_bytes` and the tensors of `KVCache` agree. Smallest rival, sharing one key-value head: 8 times less again than the 8 heads of Llama 3.

# %% [markdown] deck="The price is memory: layers, texts, heads, positions, numbers"
# ## 6. What it costs: memory
# The cache holds a key and a value of $D$ numbers for each of $L$ layers, $B$ texts, $G$ key-value heads and $S$ positions:
#
# $$2 \cdot L \cdot B \cdot G \cdot S \cdot D \text{ numbers}$$
#
# One text in Llama 3 8B, 2 bytes a number: with its 8 key-value heads, and with 32, one for each query head:

# %% deck="Fewer key-value heads, a smaller cache"
# ESSENTIAL
positions = 8_192  # try 1_024 and 131_072
for kv_heads in (8, 32):
    each = kv_cache_bytes(preset("llama", "3-8b", n_kv_heads=kv_heads), 1, positions, 2)
    # END
    print(f"{kv_heads:>2} key-value heads: {each / 1e9:5.2f} GB for one text")

# %% tags=["source-hidden"] evidence="cache-bytes" tried="exact"
# Checked: the formula is what the tensors take; fewer key-value heads divide it.
for config in (preset("gpt2", "small"), preset("llama", "3-8b"), preset("llama", "3-8b", n_kv_heads=32)):
    empty = KVCache(config, 1, 1024, device="meta", dtype=torch.bfloat16)
    numbers = 2 * config.n_layers * config.n_kv_heads * 1024 * config.d_head
    assert sum(kept.nbytes for kept in (*empty.keys, *empty.values)) == 2 * numbers
    assert kv_cache_bytes(config, 1, 1024, 2) == 2 * numbers

# %% [markdown]
# Grouped queries (lesson 07) divide the cache by H / G, here by 4. [[cache-bytes]] A smaller cache also makes writing faster, because a GPU reads each text's cache once for every token. *More*: [13 Serving](more/13_serving.ipynb) shows what servers do with this memory.

# %% [markdown] tags=["note"]
# **Say.** None of the following mistakes raises an error. For each one say first which words will be wrong, then look.
#
# **Usual answers.**
# - *Rotary positions are relative, so nothing happens* (`nothing: rotary sees only distances`): Distances between the new positions and the *kept* ones are wrong.
# - *Everything is wrong* (`all is bad`): For the first piece, starting at 0 is right.
# - *The missing mask is harmless, as the loss shows* (from the room): Look at the percentage of other tokens, and at what a text of a hundred words would be.
#
# **Cut if short.** The last mistake, the missing reset; say that two texts in one cache are one text to the model.
#
# **Tried.** 128 and 256 other stories: restarted positions 4.55 and 4.52 in the steps (right 1.08), no prefill mask 1.51 in the prompt (right 1.33), the same 1.08 in the steps and 5 % other tokens, mask from the upper left 14.4. Prompts of 5, 10, 30 and 50 tokens: the steps without a prefill mask differ by 0.000 to 0.011, with 2 to 4 % other tokens; the other two stay far off. Without reset, 64 stories: loss 1.65 instead of 1.27, 28 % other tokens.

# %% [markdown]
# ## 7. Break it
# Three mistakes that raise no error. How bad is each? Of 128 stories we read the first 20 tokens as the prompt, in one piece, and 20 more one by one.


# %%
def upper_left(T, S):
    return no_mask(T, S).tril()


def with_mistakes(texts):
    """Logits (B, 40, V) of texts (B, 40), read with a right cache and wrong ones."""
    sizes = [20] + [1] * 20
    return {
        "right": read_in_pieces(texts, sizes),
        "positions restart": read_in_pieces(texts, sizes, restart=True),
        "no prefill mask": read_in_pieces(texts, sizes, mask_of=no_mask),
        "mask from the upper left": read_in_pieces(texts, sizes, mask_of=upper_left),
    }


# %% tags=["source-hidden"] deck="Positions begin at 0 in each piece. What happens?"
texts = stories(range(128), 40)  # (128, 40)
rows = figures.judged(with_mistakes(texts), texts)
predict(
    "Somebody lets `positions` begin at 0 for each piece. What happens?",
    key=lambda: "the prompt is read right, what follows is bad" if rows["positions restart"][1] > 2 else "all is bad",
    choices={
        "nothing: rotary sees only distances": "Distances to which positions? The kept keys were rotated to 0 to 19, each new token to 0.",
        "the prompt is read right, what follows is bad": "",
        "all is bad": "For the prompt, the first piece, starting at 0 is right.",
    },
    because="The first piece does begin at 0. Each later token is then before all that it should look back at.",
)

# %% tags=["source-hidden"] deck="No mistake raises an error"
figures.mistakes(rows)

# %% tags=["source-hidden"] evidence="mistakes" tried="held-out"
# Checked: the same in both halves of these stories and in 128 others.
for seeds in (range(64), range(64, 128), range(200, 328)):
    texts = stories(seeds, 40)  # (B, 40)
    right, restart, unmasked, upper = figures.judged(with_mistakes(texts), texts).values()
    assert abs(restart[0] - right[0]) + abs(upper[0] - right[0]) + abs(unmasked[1] - right[1]) < 0.02
    assert min(restart[1], upper[1]) > right[1] + 2 and unmasked[0] > right[0] + 0.1 and unmasked[2] > 0.03

# %% [markdown]
# - **Restarted positions**: the prompt is perfect, so a test that looks only at the prefill passes.
# - **The missing prefill mask** hides best. Inside the prompt the loss gets worse, because in training no word saw later ones, but while the model writes, nobody looks there. The loss of the steps hardly changes, but some tokens do, and so would the text.
# - **The mask from the upper left** (PyTorch's `is_causal=True`) lets a single new token see key 0 and nothing else.
#
# The prompt, or the steps, look right each time. [[mistakes]] And one more, with the library's cache: a second text without `reset()`, which empties a cache. (With room for one text only, it would raise an error.)

# %% deck="To the model, two texts in one cache are one text"
# ESSENTIAL
cache = KVCache(small, batch_size=10, max_len=80)
model(many.roll(1, dims=0), cache)  # each row reads another story first
other = model(many, cache).argmax(-1) != model(many).argmax(-1)  # (10, 40)
# END
print(f"{other.float().mean():.0%} of the most probable tokens are other ones")

# %% [markdown]
# To the model it was one text of 80 tokens. One test finds all four: **read in several pieces, some longer than a token, compare with one reading at every position, then `reset()` and repeat.**

# %% [markdown] tags=["note"]
# **Say.** A chunk is checked in one call. So let something fast guess, and let the model check.
#
# **Usual answers.**
# - *A draft makes the text worse* (from the room): A wrong draft is never kept. It only costs time.
#
# **Cut if short.** All of it; students can read it alone.
#
# **Tried.** 40 other stories: the text is that of `generate` each time. 20 calls write 27 to 40 tokens with the table (32.6 on average), and 20 with a senseless draft. A table of the most frequent follower writes 33 to 45 in eleven stories.

# %% [markdown]
# ## 8. Guess first, check in one pass
# Several tokens can be *checked* in one call, because they are a chunk. In **speculative decoding** something fast writes a draft, and the model checks it ([Leviathan et al. 2023](https://arxiv.org/abs/2211.17192)). Our draft comes from a table: which token followed the last two tokens, in 500 other stories?

# %%
from itertools import pairwise

corpus = tokenizer.encode("\n" + storyworld.corpus(500, seed=1))
followers = dict(zip(pairwise(corpus), corpus[2:], strict=False))  # the last time


def likely_draft(tokens):
    """4 tokens, each one that followed the two before it in another story."""
    draft = list(tokens)
    for _ in range(4):
        draft.append(followers.get((draft[-2], draft[-1]), 0))
    return draft[-4:]


# %%
@torch.no_grad()
def write_with_drafts(tokens, n_calls, draft_of):
    """The tokens that the model writes in so many calls, always the most probable."""
    cache = KVCache(small, 1, small.max_seq_len)
    for _ in range(n_calls):
        draft = draft_of(tokens)
        unread = torch.tensor([tokens[cache.length :] + draft])  # (1, T)
        best = model(unread, cache)[0].argmax(-1).tolist()[-len(draft) - 1 :]
        n_right = [a == b for a, b in zip([*draft, -1], best, strict=True)].index(False)
        tokens = tokens + best[: n_right + 1]  # the right ones and the model's next
        cache.length = len(tokens) - 1  # forget the wrong part of the draft
    return tokens


# %% deck="A wrong guess is never kept: the same text, in fewer calls"
likely = True  # try False
draft_of = likely_draft if likely else lambda tokens: [0] * 4
# ESSENTIAL
text = write_with_drafts(ids[0, :12].tolist(), 20, draft_of)
# END
assert text == generate(model, ids[:, :12], len(text) - 12, temperature=0)[0].tolist()
print(f"20 calls write {len(text) - 12} tokens, the same as without drafts")
print(f"positions read: {12 + 4 + 19 * (1 + 4)}, with a cache alone: {len(text) - 1}")

# %% tags=["source-hidden"] evidence="drafts-exact" tried="held-out"
# Checked: in ten other stories the text is the same with any draft; likely ones save calls.
for begun in many[:, :12].tolist():
    right = generate(model, torch.tensor([begun]), 100, temperature=0)[0].tolist()
    both = [write_with_drafts(begun, 20, draft) for draft in (likely_draft, lambda tokens: [0] * 4)]
    assert all(text == right[: len(text)] for text in both) and len(both[0]) >= 36 > len(both[1])

# %% [markdown]
# The text is the same with both drafts, because a wrong token is never kept, and with the good one there are fewer calls. [[drafts-exact]] But more positions were read: whether that pays depends on what a call waits for (lesson 14).

# %% [markdown] tags=["note"]
# **Say.** The mask makes the past final. So keep its keys and values, continue the positions, move the mask, and pay with memory. One student draws the two triangles of section 1 from memory.
#
# **Usual answers.**
# - *A larger vocabulary* (from the room): It changes the head, not the cache.
# - *No causal mask* (from the room): Right; see the test without it in section 3.
#
# **Cut if short.** Read the first, the third and the last point.
#
# **Tried.** The sections say it: each point has its cell, and all but the one about seconds were tried on other stories, with other seeds, or are exact.

# %% [markdown] deck="What you have now"
# ## What you have now
# - Without a cache, writing n tokens one at a time reads n (n + 1) / 2 positions. [[positions-read]]
# - With the causal mask a new token changes no key and no value before it, so nearly all of this is computed again. [[read-again]]
# - Without the mask a new token changes the past, and such a cache would be wrong. [[mask-decides]]
# - The newest token needs its own query and all keys and values, so these two are kept. [[newest-alone]]
# - The new position $i$ after $P$ kept ones sees the keys 0 to $P + i$. [[moved-mask]]
# - With this mask and continued positions the logits are the same, however the text is cut into pieces. [[any-split]]
# - With a cache a step grows slowly with the text, because the new query meets one key more. [[step-grows]]
# - A cache holds $2 L B G S D$ numbers, so grouped queries divide it by H / G. [[cache-bytes]]
# - Restarted positions, a wrong mask or no mask at the prefill change the text without an error. [[mistakes]]
#
# A step is now so small that arithmetic may not be what it waits for. Next, lesson 14: where the time goes.

# %% [markdown]
# ## Sources
# - Decoding with kept keys and values: Shazeer 2019, [*Fast Transformer Decoding: One Write-Head is All You Need*](https://arxiv.org/abs/1911.02150), section 2. What it costs in large models: Pope et al. 2022, [*Efficiently Scaling Transformer Inference*](https://arxiv.org/abs/2211.05102), section 2.
# - Grouped queries: Ainslie et al. 2023, [*GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*](https://arxiv.org/abs/2305.13245), section 2. Llama 3: Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), section 3.2.
# - A query that absorbs the key's matrix: DeepSeek-AI 2024, [*DeepSeek-V2*](https://arxiv.org/abs/2405.04434), section 2.1.
# - Drafts: Leviathan, Kalman and Matias 2023, [*Fast Inference from Transformers via Speculative Decoding*](https://arxiv.org/abs/2211.17192), section 2.
