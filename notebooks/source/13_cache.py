# %% [markdown] slide="slide"
# # 13 Cache
# **Must writing get slower with every word?**
#
# *Needs* lessons 05 to 07, 10 and 12 (`generate`). *Builds* `KVCache` in `cache.py`. *Runs* in about 20 s on two cores.
# *Teaches* in about 52 minutes, plus 12 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: keep the keys and values of what was read, because the causal mask guarantees that they never change again.
# Sections 1 to 5 are the core, with one exercise. Section 6 counts the memory that the cache takes, section 7 makes three silent mistakes on purpose, and section 8 collects what engineers do about the memory and the time.
# Before the class: run all cells once on the computer that you project from, because the times of section 5 are those of your machine.

# %% slide="skip"
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap

from tinylm_lib import storyworld
from tinylm_classroom import capture, figures, predict, show_text
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)
_ = torch.manual_seed(13)

# %% [markdown] tags=["note"]
# **Say.** A model writes one token, appends it, and reads the whole text again. We count how much it reads, and then look at how much of that is new.
#
# **Draw.** Rows of boxes: 1, 2, 3, 4. Then complete the triangle to a rectangle with a second, upturned one: that is the formula.
#
# **Ask.** Let the class add the calls for four words, then for eight. How many times as much?
#
# **Usual answers.**
# - *Twice the text, twice the time* (`about 2 times`): That is right for reading a text once. Here each of the words starts a reading of its own.
# - *Twice as many calls, each twice as long, and then twice again* (`about 8 times`): Ask for the third factor of two. There are only two of them.
# - *The model surely remembers what it read* (from the room): Where? The function takes ids and returns logits. Nothing stays, unless we keep it.
#
# **Cut if short.** The table of operations; say that each doubling costs more than four times as much.

# %% [markdown] slide="slide"
# ## 1. Everything again, for each word
# To write one word, the model reads the text. Then the word is appended, and for the next one the model reads the text again, which is now one word longer. How much does it read in all?
#
# By hand, for a text that grows from 1 word to 4: 1 + 2 + 3 + 4 = 10 positions.

# %% tags=["source-hidden"]
predict(
    "A text becomes twice as long. How many times as many positions are read while it is written?",
    key=lambda: f"about {sum(range(1, 401)) / sum(range(1, 201)):.0f} times",
    choices={
        "about 2 times": "There are twice as many calls. How long is each of them, on average?",
        "about 4 times": "",
        "about 8 times": "Twice as many calls, each twice as long on average. Which factor is the third?",
    },
    because="There are twice as many calls, and on average each reads twice as much.",
)

# %% evidence="positions-read"
for n in (4, 100, 200, 400):
    assert sum(range(1, n + 1)) == n * (n + 1) // 2
    print(f"{n:>3} words: {sum(range(1, n + 1)):>6,} positions, n (n + 1) / 2 = {n * (n + 1) // 2:>6,}")

# %% [markdown]
# The reading grows with the square of the length: it is **quadratic**. Now for real. The shipped model gets a **prompt** of 6 tokens and writes 8 more, always the most probable one:

# %% slide="skip"
shipped = load_pretrained("storyworld")
model = shipped.model.eval()
tokenizer = shipped.tokenizer
story = storyworld.story(torch.Generator().manual_seed(13))
ids = torch.tensor([tokenizer.encode("\n" + story.text)[:40]])  # (1, 40)
prompt = ids[:, :6]  # (1, 6)

# %%
written, reads = prompt, []
with torch.no_grad():
    for _ in range(8):
        reads.append(written.shape[1])
        next_id = model(written)[:, -1:].argmax(-1)  # (1, 1)
        written = torch.cat((written, next_id), dim=1)
show_text(tokenizer.decode(written[0].tolist()))
print("positions read:", reads, "together", sum(reads))

# %% [markdown] slide="skip"
# How much of this work is new? For each call we take all keys and values of all layers, and compare them with those of the call before.


# %% slide="skip"
def keys_and_values(n: int) -> torch.Tensor:
    """Every key and value that reading the first n tokens makes, (n, 768): 768 numbers for each position."""
    caught = capture(model, written[:, :n])
    layers = [caught.attention(layer) for layer in range(3)]
    heads = torch.cat([x for layer in layers for x in (layer.k, layer.v)], dim=1)  # (1, 24, T, D)
    return heads[0].transpose(0, 1).flatten(1)  # (T, 768)


# %% slide="skip" evidence="read-again"
same = torch.zeros(8, 13, dtype=torch.bool)  # in call i, position j: the same keys and values as in the call before?
for call, n in enumerate(reads[1:], 1):
    difference = (keys_and_values(n)[:-1] - keys_and_values(n - 1)).abs().amax(-1)
    same[call, : n - 1] = difference < 1e-3
n_same = int(same.sum())
print(f"{sum(reads)} positions computed, {n_same} of them with the same keys and values as before")
assert n_same == sum(reads) - 13

# %% tags=["source-hidden"] slide="skip"
is_read = torch.arange(13) < torch.tensor(reads)[:, None]  # (8, 13)
story_words = [tokenizer.decode([token]).strip() or "(line end)" for token in written[0, :13].tolist()]
hues = ListedColormap(["white", "#cfe1f5", figures.SERIES[1], figures.SERIES[0]])
computed = (f"It computes {sum(reads)} positions", 3 * is_read - 1 * same, "the same again", "white", 2)
only_new = (f"Only {sum(reads) - n_same} are new", 3 * is_read - 2 * same, "was there before", "black", 1)

# %% tags=["signature", "source-hidden"] slide="subslide"
fig, halves = plt.subplots(1, 2, figsize=(11.4, 5.4), layout="constrained", sharey=True)
for ax, (title, kinds, words, ink, ground) in zip(halves, (computed, only_new), strict=True):
    ax.imshow(kinds, cmap=hues, vmin=0, vmax=3, aspect="auto")
    ax.set_title(title, size=24)
    around = {"facecolor": hues(ground), "linewidth": 0, "pad": 3}
    ax.text(4, 5, words, color=ink, size=21, weight="bold", ha="center", va="center", bbox=around)
    ax.text(9.6, 2.5, "new", color=figures.SERIES[0], size=21, weight="bold", va="center")
    ax.set_xticks(range(13), story_words, rotation=90, size=18)
    ax.set_yticks(range(8), range(1, 9), size=18)
    ax.set_xticks([x - 0.5 for x in range(14)], minor=True)
    ax.set_yticks([y - 0.5 for y in range(9)], minor=True)
    ax.grid(visible=False)
    ax.grid(which="minor", color="white", linewidth=2.5, linestyle="-")
    ax.tick_params(which="both", length=0)
halves[0].set_ylabel("call of the model", size=19)
halves[0].set_xlabel("position", size=19)
figures.display(
    fig,
    alt=f"Two grids with a row for each of 8 calls and a column for each of 13 positions. Left: of {sum(reads)} positions {n_same} are computed again. Right: only {sum(reads) - n_same} are new.",
    caption="The model writes 8 tokens. Each row is a call, each cell a position. Orange: all 768 numbers in the keys and values of this position, from all layers, are the same as in the call before, up to rounding.",
    table={"call": list(range(1, 9)), "computed": reads, "of them new": (is_read & ~same).sum(1).tolist()},
)

# %% [markdown] slide="say"
# Of 76 positions 63 give the same keys and values again. [[read-again]] The work is a triangle, and what is new in it is only its edge.

# %% [markdown] slide="subslide"
# What does the triangle cost? `forward_flops` (lesson 08) counts the operations in the matrix products of one call. We add up the calls from 1 position to n:

# %% slide="skip"
from tinylm_lib.cost import forward_flops

# %% evidence="operations"
before = None
for n in (64, 128, 256, 512, 1024, 2048):
    total = sum(forward_flops(model.config, 1, length) for length in range(1, n + 1))
    grown = "" if before is None else f", {total / before:.1f} times the line above"
    assert before is None or total > 4 * before
    print(f"{n:>4} words: {total / 1e9:8.1f} billion operations{grown}")
    before = total

# %% [markdown] slide="say"
# Each doubling costs more than four times as much. [[operations]] The reason is attention, which scores every position against every position: a call over $n$ positions makes $n^2$ scores in each head, and the scores of all calls together grow with the *cube* of the length.

# %% [markdown] tags=["note"]
# **Say.** Nearly all of this work was done before. So what exactly do we have to keep, and why does it not change?
#
# **Draw.** One layer of attention with a column for each word: q, k and v. Add a column for a new word and draw its arrows. Cross out everything that no arrow touches: the old queries.
#
# **Ask.** Name a model for which this fails. (One without a causal mask, such as BERT. Section 3 tests it.)
#
# **Usual answers.**
# - *A layer mixes the words, so all of them change* (`in all`): A layer mixes each word with *earlier* words, and those are the same as before.
# - *From the second layer on the words know of the new one* (`in all but the first`): They would without the mask. This answer describes BERT.
# - *Keys and values are made from x, so x is enough* (`as many`): It is enough, but then they must be made again for each new word. Compare the operations.
# - *Two maps more are not much* (`about 2 times`): They are two maps for each of the kept positions, in each layer.
# - *Without k and v nothing is saved* (`about 128 times`): Most of it is saved: the feed-forward network, the scores and two of the four maps.
# - *Keep the queries, too* (from the room): Ask who would ever read them again.
#
# **Cut if short.** The view; the picture of section 1 shows the same. Keep the three changed inputs.

# %% [markdown] slide="slide"
# ## 2. What must be kept?
# A token is appended. Which of the numbers inside the model change? We read 12 tokens of the story, and then the same with one more.

# %% slide="skip"
shorter, longer = capture(model, ids[:, :12]), capture(model, ids[:, :13])


# %% slide="skip"
def moved(layer: int, name: str) -> float:
    """How far the q, k or v of the first 12 tokens moves at most when a token is appended."""
    earlier = getattr(shorter.attention(layer), name)  # (B, H, 12, D)
    later = getattr(longer.attention(layer), name)  # (B, H, 13, D)
    return (later[:, :, :12] - earlier).abs().max().item()


# %% tags=["source-hidden"]
changed = [i for i in range(3) if max(moved(i, "k"), moved(i, "v")) > 1e-3]
predict(
    "A token is appended. In which of the 3 layers do the keys and values of the earlier tokens change?",
    key=lambda: "in none" if not changed else str(changed),
    choices={
        "in none": "",
        "in all": "A layer computes a token's keys and values from that token and those before it. Did any of these change?",
        "in all but the first": "It would be so if a token could look ahead: from the second layer on it would know of the new one. But the mask forbids it.",
    },
    because="The causal mask is in every layer, so no token has seen anything that comes later.",
)

# %% evidence="past-unchanged"
for i in range(3):
    assert max(moved(i, name) for name in "qkv") < 1e-3
    print(f"layer {i}: q, k and v move by less than 0.001:", max(moved(i, name) for name in "qkv") < 1e-3)

# %% [markdown]
# They stay the same, up to rounding, in every layer. [[past-unchanged]] So which of them does the newest word need? By hand, in one head with six words: the newest query alone meets the keys and values of all six.

# %% slide="skip"
from tinylm_lib.attention import attend

# %%
q, k, v = torch.randn(3, 6, 4)  # (T, D) each
whole = attend(q, k, v, causal=True)  # (T, D)
newest_alone = attend(q[-1:], k, v)  # (1, D)
torch.testing.assert_close(newest_alone, whole[-1:])
print("all rows", tuple(whole.shape), "and the newest alone", tuple(newest_alone.shape), "agree in the last row")

# %% [markdown]
# No mask was used for the single row, because the newest word may see all others. Now we spoil the five old queries, or keys, or values, and look at the newest result:

# %% evidence="newest-alone"
for name in ("queries", "keys", "values"):
    spoiled = {"queries": q.clone(), "keys": k.clone(), "values": v.clone()}
    spoiled[name][:-1] += 1.0
    result = attend(*spoiled.values(), causal=True)[-1]
    is_same = bool((result - whole[-1]).abs().max() < 1e-6)
    print(f"old {name:<8} spoiled: the newest result is", "the same" if is_same else "different")
    assert is_same == (name == "queries")

# %% [markdown]
# So we keep **keys and values**, of every layer, and drop the queries. [[newest-alone]] This store is the **KV cache**. But keys and values are both made from one vector $x$ for each position and layer. Why not keep that?

# %% slide="skip"
from tinylm_lib import preset
from tinylm_classroom import cache_view

n_kept = 127
small = model.config
step_operations = forward_flops(small, 1, 1, n_keys=n_kept + 1)
one_map = 2 * small.d_model * small.n_kv_heads * small.d_head  # operations to make k, or v, of one position
remade = 2 * small.n_layers * n_kept * one_map  # the keys and values of all kept positions, again

# %% tags=["source-hidden"]
predict(
    f"The shipped model has kept x for 127 positions, and reads one more token. A step with kept keys and values takes {step_operations / 1e6:.1f} million operations, and to make the k or v of one position in one layer takes {one_map:,}. How many times the operations of such a step does it take, if it makes all keys and values again?",
    key=lambda: f"about {(step_operations + remade) / step_operations:.0f} times",
    choices={
        "as many": "For that, keys and values would have to come from x without any work. Made again like this, they take two matrix products for each kept position and layer.",
        "about 2 times": "How many positions must be multiplied by the two matrices?",
        "about 19 times": "",
        "about 128 times": "That is a reading of the whole text. Here no scores and no feed-forward network are computed for the kept positions.",
    },
    because="In each layer the keys and values of 127 positions are made again, and each of them takes a matrix product with a vector.",
)

# %% evidence="x-instead"
print(f"a step: {step_operations:,} operations; to make the keys and values of 127 positions again: {remade:,}")
for name, design in (("the shipped model", small), ("Llama 3 8B", preset("llama", "3-8b"))):
    numbers = 2 * design.n_kv_heads * design.d_head
    print(f"{name}: x has {design.d_model:,} numbers for a position and layer, k and v together {numbers:,}")
assert remade > 10 * step_operations

# %% [markdown]
# Keeping x takes many more operations at each step. [[x-instead]] In the shipped model it would take half the memory. In Llama 3 8B, with its grouped queries (lesson 07), it would take even more memory.

# %% [markdown] slide="subslide"
# Step through the story and watch the cells with the arrow: each is work for a result that was there before. Then let the model read the prompt all at once.

# %%
cache_view(model, tokenizer, "\n" + tokenizer.decode(ids[0, 1:8].tolist()), n_prompt=4)

# %% [markdown] tags=["note"]
# **Say.** The prompt is known from the start, so we read it in one piece. A piece has several queries, and so the mask returns, moved to the right.
#
# **Draw.** The mask for P = 0, then for T = 1, then for P = 5 and T = 3. Let somebody find the one formula for all three.
#
# **Ask.** After the loop: which of its lines would go wrong if `positions` began at 0 for each piece? (The two rotations. Section 7 tries it.)
#
# **Usual answers.**
# - *The cache needs no mask* (`24`): A single query needs none. The first of three must not see the other two.
# - *1 + 2 + 3* (`6`): This is the mask of a text that begins with the piece. Five positions come before it.
# - *5 + 6 + 7* (`18`): Each position sees itself, too.
# - *The earlier words hardly change, with or without the mask* (from the room): Good hypothesis; look at the test without the mask.
#
# **Cut if short.** The table of scores in chunks.

# %% [markdown] slide="slide"
# ## 3. A piece at a time
# A prompt is known from the start, so all of its positions go through the model at once. This is called **prefill**. The steps after it, one token each, are **decoding**. A very long prompt is read in **chunks**.
#
# A chunk has several queries, and then the mask is back. Say that 5 positions are kept, and a chunk of 3 comes. It meets 8 keys, the kept ones and its own.

# %% slide="skip"
from tinylm_lib.attention import causal_mask

# %% tags=["source-hidden"]
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

# %% slide="skip"
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
# With $P$ kept positions, query $i$ of the chunk is at position $P + i$, so key $j$ is allowed if $j \le P + i$. With $P = 0$ this is the mask of lesson 05, and for a single query the row is all ones. The library's `causal_mask` follows this rule: [[moved-mask]]

# %% evidence="moved-mask"
assert causal_mask(T, S).equal(allowed) and causal_mask(1, 6).all()

# %% [markdown] slide="subslide"
# Why in chunks? Because of the scores, if they are stored. In one head:

# %% rows=["S4-48"]
chunk = 256
for n in (256, 1024, 4096, 32_768):
    print(f"{n:>6,} positions: at once {n * n:>13,} scores, for a chunk of {chunk} at most {chunk * n:>9,}")
assert 2048 == 8 * 256 and 2048**2 == 64 * 256**2

# %% [markdown] slide="say"
# GPT-3 reads 2,048 positions ([Brown et al. 2020](https://arxiv.org/abs/2005.14165)), 8 times as many as the first line, which makes 64 times as many scores. (Lesson 14 shows a way to attend without storing the scores at all.)

# %% [markdown] slide="subslide"
# Now the whole model by hand, in three functions. First q, k and v of one layer, at the `positions` of the new tokens. In this model G = H, so all three are (B, H, T, D).


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
        k = torch.cat((old_k, k), dim=-2)
        v = torch.cat((old_v, v), dim=-2)
    kept[layer] = k, v
    return k, v


# %% [markdown] slide="subslide"
# And the loop over the layers. Two things can go wrong in it, the positions and the mask, so both are arguments:


# %%
@torch.no_grad()
def read_on(ids, kept, positions, mask):
    """Logits (B, T, V) of the new tokens ids (B, T), which come after what is kept."""
    # ESSENTIAL
    x = model.embed(ids)  # (B, T) -> (B, T, C)
    for layer, block in enumerate(model.blocks):
        q, k, v = queries_keys_values(block.attention, block.attn_norm(x), positions)
        k, v = remember(kept, layer, k, v)  # (B, H, S, D), (B, H, S, D)
        y = attend(q, k, v, mask)  # (B, H, T, D)
        x = x + block.attention.o_proj(y.transpose(1, 2).flatten(2))  # (B, T, C)
        x = x + block.ffn(block.ffn_norm(x))  # (B, T, C)
    return model.final_norm(x) @ model.lm_head.weight.T  # (B, T, C) -> (B, T, V)
    # END


# %% [markdown] slide="say"
# It is the loop of lesson 10, with two differences: the positions continue, and the new queries meet all keys. Keys are kept *after* the rotation: each was rotated to its own position once, and that position does not change.

# %% [markdown] slide="subslide"
# We read the first 40 tokens of the story as a prompt of 12, a chunk of 20, and 8 single ones:

# %%
kept, start, pieces = {}, 0, []
for piece in ids.split([12, 20] + [1] * 8, dim=1):
    end = start + piece.shape[1]
    pieces.append(read_on(piece, kept, torch.arange(start, end), causal_mask(end - start, end)))
    start = end

# %% evidence="by-hand"
with torch.no_grad():
    full = model(ids)  # (1, 40, V)
torch.testing.assert_close(torch.cat(pieces, dim=1), full, atol=1e-3, rtol=1e-3)
print("10 pieces give the logits of one reading; kept per layer:", tuple(kept[0][0].shape))

# %% [markdown]
# The same logits, up to rounding, at all 40 positions. [[by-hand]] The cache is not an approximation: it saves only what would be computed twice.

# %% [markdown] slide="subslide"
# Is it really the mask that makes this possible? Perhaps a 13th word changes little in any case. We read 12 and 13 tokens with the same weights, once with the mask and once without:


# %%
def no_mask(T, S):
    return torch.ones(T, S, dtype=torch.bool)


def keys_of(n, mask_of):
    """The keys of each layer, (B, H, n, D), after reading the first n tokens at once."""
    of_layer = {}
    read_on(ids[:, :n], of_layer, torch.arange(n), mask_of(n, n))
    return [keys for keys, values in of_layer.values()]


# %% evidence="mask-decides"
for name, mask_of in (("causal mask", causal_mask), ("no mask", no_mask)):
    pairs = zip(keys_of(12, mask_of), keys_of(13, mask_of), strict=True)
    moves = [(later[:, :, :12] - earlier).abs().max().item() for earlier, later in pairs]
    print(f"{name:<12} the keys of 12 tokens move by at most", ", ".join(f"{move:.2f}" for move in moves))
    assert max(moves) < 1e-3 if mask_of is causal_mask else moves[0] < 1e-3 < 0.1 < min(moves[1:])

# %% [markdown]
# Without the mask the keys of the first layer still stay, because they depend on one word each. In the layers above, the keys change, so a cache would be wrong. [[mask-decides]] An encoder such as BERT, which sees both sides, therefore cannot use one in this way.

# %% [markdown] tags=["note"]
# **Say.** You write one layer's attention with a cache, for all heads and for any number of new positions. One position and a whole prompt are the same function.
#
# **Draw.** The shapes: q (B, H, T, D), the caches (B, H, P, D), and the scores (B, H, T, P + T).
#
# **Ask.** After the trace: why does `extend` return only the filled part of its room? (The rest is zeros, and a key of zeros would get a score of 0, which is a weight.)
#
# **Usual answers.**
# - *Nothing is masked* (`no mask`): It is right for one new position. In a chunk the first must not see the others.
# - *The diagonal starts in the upper left corner* (`mask from the left`, `chunks masked from the left`): Query 0 is at position P, not at 0.
# - *New ones before old ones* (`new before old`): Positions are kept in their order, the oldest first.
# - *Joined along another axis* (`joined along the batch`, `joined along the heads`, `joined along the features`): Positions are the third axis of (B, H, P, D).
# - *The old caches are returned* (`caches not extended`): The next call needs what this one has added.
#
# **Cut if short.** The library's version, all but the line about the ways to cut the text. If the exercise takes longer, show all hints when half of its time is over.

# %% [markdown] slide="slide"
# ## 4. Your turn
# One layer's attention with a cache, for all heads at once (again G = H): what `remember` and `attend` did. Write the mask yourself; `causal_mask` is for checking. Do not write into the caches that are given: return new, longer ones, through which gradients can flow.

# %% slide="skip"
from tinylm_classroom import check, hint, keep


# %% tags=["exercise"] name="cached_attention" minutes=12 difficulty=3
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
if check("cached_attention", cached_attention).passed:
    keep("cached_attention", cached_attention)

# %%
hint("cached_attention")

# %% [markdown] tags=["solution"]
# Join first, along the positions (the axis before the last). Then it is lesson 05's attention with a mask that is not square. `tril(S - T)` moves the diagonal by $P$, so that row 0 has $P + 1$ ones; `j <= P + i` with two
# `arange`s is as good. Common mistakes: a T by T mask, or one that starts in the upper left corner (right without a past, so the first test passes); no mask, because "decoding needs none" (right for one new position);
# writing into the caches that were handed in.

# %% [markdown] slide="subslide"
# ### The library's version
# To append one position, `torch.cat` makes a new tensor and copies all the old ones into it. So `KVCache` takes its memory once, with room for `max_len` positions, and `.length` says how many of them are filled.

# %% slide="skip"
from tinylm_lib import KVCache, generate
from tinylm_classroom import build, show, trace, using

# %%
show(KVCache.extend)

# %% slide="subslide"
sizes = {"B": 2, "T": 3, "G": small.n_kv_heads, "S": 4 + 3, "D": small.d_head}
partly_filled = KVCache(small, batch_size=2, max_len=10)
partly_filled.length = 4  # as if 4 positions were kept
new_k, new_v = torch.randn(2, *(sizes[letter] for letter in "BGTD"))  # (B, G, T, D) each
trace(partly_filled.extend, 0, new_k, new_v, sizes=sizes)

# %% [markdown] slide="subslide"
# The result equals one reading for *every* position at which our text can be cut in two, for single steps, and for chunks:


# %% evidence="any-split"
@torch.no_grad()
def in_pieces(ids, sizes):
    """Logits of ids (B, T), read piece by piece through one cache."""
    cache = KVCache(model.config, len(ids), ids.shape[1])
    return torch.cat([model(piece, cache) for piece in ids.split(sizes, dim=1)], dim=1)


ways = [[first, 40 - first] for first in range(1, 40)] + [[1] * 40, [7, 1, 1, 20, 11], [16] * 2 + [8]]
for way in ways:
    torch.testing.assert_close(in_pieces(ids, way), full, atol=1e-3, rtol=1e-3)
print(f"{len(ways)} ways to cut 40 tokens, the same logits, up to rounding")

# %% [markdown]
# `generate` writes with such a cache. If you kept your `cached_attention`, it now writes with yours, and the card says so:

# %%
mine = build(model.config)
mine.load_state_dict(model.state_dict())
assert generate(mine, prompt, max_new_tokens=8, temperature=0).equal(written)
print("the same 8 tokens")

# %% slide="skip"
using(mine)

# %% [markdown] tags=["note"]
# **Say.** Back to the question of the lesson. First we count the operations of one step, then we look at the clock.
#
# **Draw.** Two curves over the length of the text, time for one more token: let the class draw them before the picture is shown.
#
# **Ask.** Why is the upper curve not a straight line, and why does the lower one rise at all?
#
# **Usual answers.**
# - *A step is always the same: one position* (`once`): One position, but it meets all kept keys.
# - *128 keys are 128 times the work* (`about 128 times`): Only the scores and the mixing grow. The maps see a single position.
# - *Keys cost as much as the maps* (`about 2 times`): Look at the two numbers in the table: how much does a step grow from 1 key to 128?
# - *It is faster because the logits of one position are computed, not of all* (from the room): In our measurement both ways compute only the last logits.
#
# **Cut if short.** The paragraph about a full cache.

# %% [markdown] slide="slide"
# ## 5. Must it get slower?
# With a cache each step reads one position. Does it take the same time for every word?

# %% slide="skip"
steps = {n: forward_flops(small, 1, 1, n_keys=n) for n in (1, 128, 2048)}

# %% tags=["source-hidden"]
predict(
    "With a cache, how many times the operations of the first step does the 128th take, in the shipped model?",
    key=lambda: f"about {steps[128] / steps[1]:.1f} times",
    choices={
        "once": "It reads one position, as the first step did. But its query meets 128 keys.",
        "about 1.2 times": "",
        "about 2 times": "For that, 128 keys would have to cost as much as all the maps of the model. They cost far less.",
        "about 128 times": "Without a cache it would be even more. With one, the maps of the model see a single position.",
    },
    because="The query meets all kept keys. But the maps cost the same at each step, and compared with them 128 keys are little.",
)

# %% evidence="step-grows"
print("keys    with a cache   without")
for n, with_cache in steps.items():
    without = forward_flops(small, 1, n)
    print(f"{n:>4}    {with_cache / 1e6:8.1f}   {without / 1e6:12.1f}   million operations in one step")
assert steps[1] < steps[128] < steps[2048] < forward_flops(small, 1, 128)

# %% [markdown] slide="skip"
# Now the clock. The shipped model was made for 128 positions. Rotary positions have no weights, so the same weights fit into a model with room for 2,048. For each length we time the next step, the best of 5. In both ways the model computes the logits of the last position only.

# %% slide="skip"
import time
from dataclasses import replace

from tinylm_lib import TransformerLM
from tinylm_classroom import measured

roomy = TransformerLM(replace(small, max_seq_len=2048)).eval()
roomy.load_state_dict(model.state_dict())
random_ids = torch.randint(small.vocab_size, (1, 2047))  # (1, 2047)
roomy_cache = KVCache(roomy.config, batch_size=1, max_len=2048)


# %% slide="skip"
def with_cache_step(n):
    roomy_cache.length = n  # what is kept behind position n counts as free
    roomy(random_ids[:, n : n + 1], roomy_cache, last_only=True)


def without_cache_step(n):
    roomy(random_ids[:, : n + 1], last_only=True)


# %% slide="skip"
def milliseconds(step, n) -> float:
    """The fastest of 5 runs."""
    spent = []
    for _ in range(5):
        begun = time.perf_counter()
        step(n)
        spent.append(1000 * (time.perf_counter() - begun))
    return min(spent)


# %% slide="skip"
lengths = [64, 128, 256, 512, 1024, 2046]
with torch.no_grad():
    roomy_cache.reset()
    roomy(random_ids, roomy_cache)
    short_times = [milliseconds(with_cache_step, n) for n in lengths]
    long_times = [milliseconds(without_cache_step, n) for n in lengths]

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(9.4, 4.8), layout="constrained")
ax.plot(lengths, long_times, "--o", label="everything again", color=figures.SERIES[1])
ax.plot(lengths, short_times, "-o", label="with a cache", color=figures.SERIES[0])
ax.set(title="The time for one more token", xlabel="tokens so far", ylabel="milliseconds", ylim=(0, None))
ax.legend(frameon=False, loc="upper left")
figures.display(
    fig,
    alt="Line chart of the time for one more token over the tokens so far, without and with a cache.",
    caption="Measured on the machine that ran this notebook. Both ways give the same next token; only the amount of work differs.",
    table={
        "tokens so far": lengths,
        "everything again": [measured(x, "ms", 0.01, 1e5) for x in long_times],
        "with a cache": [measured(x, "ms", 0.01, 1e5) for x in short_times],
    },
)

# %% evidence="step-timed"
few, most = (forward_flops(small, 1, 1, n_keys=n + 1) for n in (lengths[1], lengths[-1]))
print(f"128 to 2,046 tokens: {most / few:.1f} times the operations with a cache,")
print("in time", measured(short_times[-1] / short_times[1], "times", 0.1, 100))
print("and without a cache", measured(long_times[-1] / long_times[1], "times", 1, 10_000))

# %% [markdown]
# So yes, each word takes more operations than the one before, because it meets one more key. [[step-grows]] But the work of a step now grows slowly, and the time may grow even less, because so short a step also waits for other things than arithmetic. [[step-timed]] Lesson 14 finds out what they are.

# %% [markdown] slide="say"
# Over a whole text, the scores and the mixing of the values still grow with the square of its length; all other work grows in proportion to it.
#
# And when the cache is full? By default `generate` then reads the last `max_seq_len` tokens again for each word, so from there on every word costs a full reading. Section 8 tries to drop the oldest keys instead.

# %% [markdown] tags=["note"]
# **Say.** We have bought time with memory. How much memory? In a server with many users this number decides how many of them can be answered at once.
#
# **Draw.** A long box for a GPU of 80 GB. Shade the weights. Let the class guess how many texts fit into the rest.
#
# **Ask.** Which of the letters L, B, G, S, D can be made smaller when a model is designed, and which only when it is used?
#
# **Usual answers.**
# - *12 x 12 x 64 x 2* (`18_432`): Keys *and* values, so this must be doubled.
# - *For one layer* (`3_072`): There are 12 of them, and each has keys and values of its own.
# - *The cache is small compared with the weights* (from the room): For one text. How many texts share the weights?
#
# **Cut if short.** The control; show its picture.

# %% [markdown] slide="slide" plan=80
# ## 6. What it costs: memory
# We have bought time with memory. For each layer, text, key-value head and position there are a key and a value of D numbers each:
#
# $$2 \cdot L \cdot B \cdot G \cdot S \cdot D \text{ numbers}$$

# %% slide="skip"
from tinylm_lib.cost import count_parameters, kv_cache_bytes
from tinylm_classroom import control

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

# %% evidence="cache-bytes"
for family, size in (("gpt2", "small"), ("llama", "2-7b"), ("llama", "3-8b")):
    large = preset(family, size)
    length = large.max_seq_len
    empty_cache = KVCache(large, 1, length, device="meta", dtype=torch.bfloat16)
    held = sum(tensor.nbytes for tensor in (*empty_cache.keys, *empty_cache.values))
    assert held == kv_cache_bytes(large, batch_size=1, length=length, bytes_per_element=2)
    n_bytes = 2 * count_parameters(large).total / 1e9
    print(f"{family} {size}: L {large.n_layers}, H {large.n_heads}, G {large.n_kv_heads}", end=", ")
    print(f"{held // length:,} bytes a position, {held / 1e9:.2f} GB for {length:,}, weights {n_bytes:.2f} GB")

# %% [markdown]
# Llama 3 8B is larger than Llama 2 7B and has as many layers and query heads, but a position leaves only a quarter of the bytes, because it has 8 key-value heads instead of 32. [[cache-bytes]]

# %% [markdown]
# For one text the cache is small compared with the weights. But a server writes many texts at once. All of them use the same weights, and each has a cache of its own. How many fit on a GPU?


# %% slide="skip"
def fill_gpu(memory=80, positions=8192, bytes_per_number=2):
    """Draws Llama 3 8B, with 32 and with its own 8 key-value heads, and as many texts as fit next to its weights."""
    fig, ax = plt.subplots(figsize=(10.4, 4.4), layout="constrained")
    n_texts = {}
    # ESSENTIAL
    for row, kv_heads in enumerate((8, 32)):
        large = preset("llama", "3-8b", n_kv_heads=kv_heads)
        weights = 2 * count_parameters(large).total / 1e9
        each = kv_cache_bytes(large, 1, positions, bytes_per_number) / 1e9
        n = int((memory - weights) // each)
        ax.barh(row, weights, height=0.7, color=figures.QUIET)
        ax.barh([row] * n, each, left=[weights + i * each for i in range(n)], height=0.7, color="#9cc3ee", ec="white")
        n_texts[f"G = {kv_heads}: {n} texts"] = n
        # END
        ax.text(weights / 2, row, "weights", ha="center", va="center", color="white", size=15)
    ax.set_yticks(range(2), n_texts, size=17)
    ax.set(xlim=(0, memory), xlabel=f"GB of a GPU with {memory}", ylabel="Llama 3 8B")
    ax.set_title(f"Texts of {positions:,} positions")
    ax.grid(visible=False)
    alt = f"Two bars of {memory} GB, filled with the weights and with blocks for texts. {'; '.join(n_texts)}."
    caption = f"Each blue block is the cache of one text, {bytes_per_number} bytes a number. Below, Llama 3 8B as it is (G = 8); above, with a key-value head for each query head (G = 32)."
    figures.display(fig, alt=alt, caption=caption, table={"": list(n_texts), "texts": list(n_texts.values())})
    return list(n_texts.values())


# %%
control(fill_gpu, memory=[80, 24], positions=[8192, 4096, 2048, 1024], bytes_per_number=[2, 1])

# %% [markdown]
# On the GPU of 80 GB, about four times as many texts fit with 8 key-value heads. [[grouped-cache]] This is one use of grouped queries (lesson 07). (Real servers need some of the memory for activations, so they fit fewer.)

# %% evidence="grouped-cache" slide="skip"
grouped, ungrouped = preset("llama", "3-8b"), preset("llama", "3-8b", n_kv_heads=32)
quarter, whole_cache = (KVCache(large, 1, 8192, device="meta") for large in (grouped, ungrouped))
assert 4 * sum(keys.nbytes for keys in quarter.keys) == sum(keys.nbytes for keys in whole_cache.keys)
fits = [
    (80e9 - 2 * count_parameters(large).total) // kv_cache_bytes(large, 1, 8192, 2) for large in (grouped, ungrouped)
]
assert 3.8 < fits[0] / fits[1] < 4.5

# %% [markdown]
# And how fast do they write? At each step the weights are read once for all texts, but each text's cache for that text alone. Suppose that reading from memory alone sets the pace (3.35 TB per second, NVIDIA's data sheet of the H100, 2023):

# %% evidence="shared-reading"
read_once, read_each = 2 * count_parameters(grouped).total, kv_cache_bytes(grouped, 1, 8192, 2)
waits = {n: (read_once + n * read_each) / 3.35e12 for n in (1, 8, 59)}
for n, seconds in waits.items():
    print(f"{n:>2} texts: {1000 * seconds:4.1f} ms a step, {n / seconds:5,.0f} tokens per second")
assert 8 * waits[1] / waits[8] > 5 and 59 * read_each > 0.75 * (read_once + 59 * read_each) and waits[59] > 4 * waits[1]

# %% [markdown]
# Eight texts give more than five times the tokens of one. With 59 more than three quarters of the bytes are caches, and each text waits more than four times as long for its next word. [[shared-reading]] So a smaller cache also makes writing faster.

# %% [markdown] tags=["note"]
# **Say.** None of the following mistakes raises an error. For each one say first which words will be wrong, then look.
#
# **Draw.** A prompt of 20 and single tokens behind it. Under each mistake mark what is still right: the prompt, the first layer, or nothing.
#
# **Ask.** Which single test would find all four mistakes? (Read in several pieces, compare with one reading at every position, and do it twice with one cache.)
#
# **Usual answers.**
# - *Rotary positions are relative, so nothing happens* (`nothing: rotary sees only distances`): Distances between the new positions and the *kept* ones are wrong.
# - *Everything is wrong* (`all is bad`): For the first piece, starting at 0 is right.
# - *The missing mask is harmless, as the loss shows* (from the room): Look at the percentage of other guesses, and at what a text of a hundred words would be.
#
# **Cut if short.** The last mistake, the missing reset; say that two texts in one cache are one text to the model.

# %% [markdown] slide="slide" plan=80
# ## 7. Break it
# Three mistakes that raise no error. How bad is each? Of 128 stories we read the first 20 tokens as the prompt, in one piece, and 20 more one by one. The loss is the mean over the predictions, in nats. (The prediction at the last token of the prompt belongs to both parts and is not counted.) The last column gives the fraction of single steps whose most probable token differs from the right one's.

# %% slide="skip"
generators = [torch.Generator().manual_seed(seed) for seed in range(128)]
stories = [storyworld.story(generator).text for generator in generators]
many = torch.tensor([tokenizer.encode("\n" + text)[:40] for text in stories])  # (128, 40)


# %% slide="skip"
def in_steps(restart, mask_of):
    """Logits (128, 40, V). restart: positions begin at 0 in each piece. mask_of(T, S): the mask of a piece."""
    # ESSENTIAL
    kept, start, logits = {}, 0, []
    for piece in many.split([20] + [1] * 20, dim=1):
        n_new = piece.shape[1]
        first = 0 if restart else start
        positions = torch.arange(first, first + n_new)
        logits.append(read_on(piece, kept, positions, mask_of(n_new, start + n_new)))
        start += n_new
    # END
    return torch.cat(logits, dim=1)


# %%
def from_upper_left(T, S):
    return no_mask(T, S).tril()


mistakes = {
    "right": in_steps(False, causal_mask),
    "positions restart": in_steps(True, causal_mask),
    "no prefill mask": in_steps(False, no_mask),
    "mask from the upper left": in_steps(False, from_upper_left),
}

# %% slide="skip"
from torch.nn.functional import cross_entropy


# %% tags=["source-hidden"]
def losses(logits, rows=slice(None)):
    """Mean loss of the predictions inside the prompt, and of those made by single steps, in nats."""
    each = cross_entropy(logits[rows, :-1].mT, many[rows, 1:], reduction="none")  # (B, 39)
    return each[:, :19].mean().item(), each[:, 20:].mean().item()


# %% tags=["source-hidden"]
right_loss, restarted = losses(mistakes["right"]), losses(mistakes["positions restart"])
predict(
    "Somebody lets `positions` begin at 0 for each piece. What happens?",
    key=lambda: (
        "the prompt is read right, what follows is bad"
        if abs(restarted[0] - right_loss[0]) < 0.01 and restarted[1] > right_loss[1] + 1
        else "all is bad"
    ),
    choices={
        "nothing: rotary sees only distances": "Distances between which positions? The kept keys were rotated to 0 to 19, and each new token is rotated to 0.",
        "the prompt is read right, what follows is bad": "",
        "all is bad": "For the prompt, the first piece, starting at 0 is right.",
    },
    because="The first piece does begin at 0. Each later token then has the position 0, before all that it should look back at.",
)

# %% evidence="mistakes"
best = mistakes["right"][:, 20:].argmax(-1)  # (128, 20)
print("                          loss: prompt   single steps   other most probable token")
for name, logits in mistakes.items():
    prompt_loss, step_loss = losses(logits)
    other = (logits[:, 20:].argmax(-1) != best).float().mean().item()
    print(f"{name:<27}{prompt_loss:11.2f}   {step_loss:12.2f}   {other:23.0%}")
    assert (other > 0.03) == (name != "right")

# %% evidence="both-halves" slide="skip"
for half in (slice(64), slice(64, 128)):
    right, restart, unmasked, upper = (losses(logits, half) for logits in mistakes.values())
    assert abs(restart[0] - right[0]) < 1e-3 and restart[1] > right[1] + 2
    assert unmasked[0] > right[0] + 0.1 and abs(unmasked[1] - right[1]) < 0.02
    assert abs(upper[0] - right[0]) < 1e-3 and upper[1] > right[1] + 5
print("in both halves of the stories the same")

# %% [markdown] slide="subslide"
# **Restarted positions**: the prompt is perfect, so a test that looks only at the prefill passes. After it the loss is far higher. [[mistakes]]
#
# **The missing prefill mask** hides best. The predictions inside the prompt get worse, although the words can look ahead: the model was trained with the mask. But while the model writes, nobody looks at these predictions. The mean loss of the single steps hardly changes in this model, in either half of the stories [[both-halves]], but some of its most probable tokens do, and so would the text. [[mistakes]]

# %% [markdown] slide="subslide"
# **The mask from the upper left** is right without a past, so here, too, the prefill is perfect. After it a single new token sees key 0 and nothing else. [[mistakes]] (PyTorch's `is_causal=True` means this mask.)
#
# "Decoding needs no mask" is true of a single step [[newest-alone]], but not of the prefill before it. [[mistakes]]

# %% [markdown] slide="subslide"
# And one more, with the library's own cache: a new text without `reset()`. Each row reads another story first. The cache has room for both, 80 positions. (With room for one text only, the second one would raise an error.)

# %% evidence="no-reset"
used_cache = KVCache(small, batch_size=128, max_len=80)
with torch.no_grad():
    model(many.roll(1, dims=0), used_cache)
    second = model(many, used_cache)  # (128, 40, V)
    used_cache.reset()
    fresh = model(many, used_cache)  # (128, 40, V)
    torch.testing.assert_close(fresh, model(many), atol=1e-3, rtol=1e-3)
assert (second - fresh).abs().amax(dim=(1, 2)).min() > 1  # in each of the 128 texts
for name, logits in (("without reset", second), ("with reset", fresh)):
    print(f"{name:<14} loss {cross_entropy(logits[:, :-1].mT, many[:, 1:]):.1f}")

# %% [markdown]
# To the model it was one text of 80 tokens. [[no-reset]] One test finds all four mistakes: **read in several pieces, compare with one reading at every position, and do it twice with one cache.**

# %% [markdown] tags=["note"]
# **Say.** Five things that engineers do about the memory and the time of a cache. Pick what your class needs.
#
# **Draw.** The formula once more. For each topic circle the letter that it makes smaller, or write *time* next to it.
#
# **Ask.** Which of these change what the model writes, and which do not? (A window, fewer key-value heads and latent vectors are other models; rounding changes a little; pages, shared prefixes, padding and drafts change nothing.)
#
# **Usual answers.**
# - *Dropping the oldest keys must be the same as reading the last tokens again* (from the room): The kept ones were made by layers that saw the dropped words.
# - *A draft makes the text worse* (from the room): A wrong draft is never kept. It only costs time.
#
# **Cut if short.** All of it; students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 8. For engineers
# ### What one text takes
# Here is the formula for Llama 3 8B again, with what other models and servers do. One text of 8,192 positions:

# %% evidence="what-engines-do"
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

# %% [markdown] slide="say"
# - **Multi-query attention** shares one key-value head among all query heads ([Shazeer 2019](https://arxiv.org/abs/1911.02150)).
# - A **sliding window** of 4,096 positions: Mistral 7B keeps no more in any layer ([Jiang et al. 2023](https://arxiv.org/abs/2310.06825)).
# - **Latent** attention keeps one short vector instead of the keys and values, and a small rotated key: 512 and 64 numbers in DeepSeek-V2 ([DeepSeek-AI 2024](https://arxiv.org/abs/2405.04434)).
# - **Fewer bits**: the numbers are rounded to 8 bits, with one scale for each vector (lesson 14).
#
# Each of the others makes the cache of a text smaller than Llama 3's, except a key-value head for each query head, which makes it larger. [[what-engines-do]]

# %% [markdown] slide="subslide"
# ### Do they change the text?
# We try two of them on the shipped model, without training it again: after each token we round what is kept, or keep only the newest.

# %% slide="skip"
long_texts = torch.tensor([tokenizer.encode("\n" + text)[:88] for text in stories[:32]])  # (32, 88)


# %%
def loss_of_steps(change):
    """The loss of tokens 20 to 87, read one by one. change: what becomes of the kept keys, and of the values."""
    kept, logits = {}, []
    # ESSENTIAL
    for i in range(87):
        n_keys = 1 + (kept[0][0].shape[2] if kept else 0)
        new = long_texts[:, i : i + 1]
        logits.append(read_on(new, kept, torch.arange(i, i + 1), causal_mask(1, n_keys)))
        kept = {layer: (change(k), change(v)) for layer, (k, v) in kept.items()}
    # END
    each = cross_entropy(torch.cat(logits, dim=1).mT, long_texts[:, 1:], reduction="none")  # (32, 87)
    return each[:, 19:].mean().item()


# %%
def rounded_to(n_bits):
    def change(x):
        step = x.abs().amax(-1, keepdim=True) / (2 ** (n_bits - 1) - 1)  # one for each vector of D numbers
        return (x / step).round() * step

    return change


def newest(n):
    return lambda x: x[:, :, -n:]


# %% slide="skip"
all_kept = loss_of_steps(lambda x: x)
few_bits = {n_bits: loss_of_steps(rounded_to(n_bits)) for n_bits in (8, 4, 2)}
windows = {n: loss_of_steps(newest(n - 1)) for n in (32, 16)}  # with the new token there are n


# %% slide="skip"
@torch.no_grad()
def loss_of_last(n):
    """The loss of the same tokens if the last n tokens are read again for each of them."""
    starts = [max(0, i - n + 1) for i in range(87)]
    logits = [model(long_texts[:, first : i + 1], last_only=True) for i, first in enumerate(starts)]
    each = cross_entropy(torch.cat(logits, dim=1).mT, long_texts[:, 1:], reduction="none")  # (32, 87)
    return each[:, 19:].mean().item()


# %% evidence="bits-and-windows"
print(f"all kept, in fp32: loss {all_kept:.2f}")
print("\n".join(f"{n_bits} bits: {loss:.2f}" for n_bits, loss in few_bits.items()))
for n, loss in windows.items():
    again = loss_of_last(n)
    print(f"the newest {n} kept: {loss:.2f}, the last {n} tokens read again: {again:.2f}")
    assert abs(loss - again) < 0.1 and loss > all_kept + 0.3
assert abs(few_bits[8] - all_kept) < 0.005 and few_bits[2] > all_kept + 0.1

# %% [markdown]
# Rounding to 8 bits is hardly noticed here, and rounding to 2 bits is. A window makes the loss far higher in these stories. Reading the last tokens again hardly helps, so the main reason is probably that the earlier words are missing. [[bits-and-windows]]

# %% [markdown] slide="say"
# Dropping old keys and reading the last tokens again are not the same. The kept vectors come from layers that had seen the dropped words. One might expect that this helps, but this model, which was not trained with a window, gains next to nothing from them here. [[bits-and-windows]] `generate` reads the last tokens again when the cache is full. Models with a sliding window are trained with it.

# %% [markdown] slide="subslide"
# ### Many texts at once
# Prompts of unequal length are padded *at the left*, so that all of them end in the same column. But pads add keys and shift the positions:

# %% slide="skip"
from tinylm_lib.writing import pad_left

# %% evidence="padded"
first_prompt, second_prompt = prompt[0].tolist(), ids[0, :12].tolist()
padded, padding = pad_left([first_prompt, second_prompt])  # (B, T), (B)
greedy = {"max_new_tokens": 8, "temperature": 0}
alone = written[0, 6:]
with_padding = generate(model, padded, padding=padding, **greedy)[0, 12:]
ignored = generate(model, padded, **greedy)[0, 12:]
runs = {"alone": alone, "padded": with_padding, "padding not named": ignored}
show_text({name: tokenizer.decode(run.tolist()) for name, run in runs.items()})
assert with_padding.equal(alone) and not ignored.equal(alone)

# %% [markdown]
# With `padding` the model masks the pads and counts positions from the first real token, and each text is continued as if it were alone. [[padded]]

# %% [markdown] slide="say"
# Room for `max_len` positions is wasted on short texts. **Paged** attention cuts the memory into pages of a few positions, which a text gets when it needs them ([Kwon et al. 2023](https://arxiv.org/abs/2309.06180)). Then texts that begin with the same instructions can also **share** the pages of this prefix.

# %% evidence="pages"
n_tokens, page = 1000, 16
n_pages = -(-n_tokens // page)
print(f"{n_tokens:,} positions in a room for 8,192: {n_tokens / 8192:.0%} of it is used")
print(f"in {n_pages} pages of {page}: {n_tokens / (n_pages * page):.0%}")
assert n_tokens / (n_pages * page) > 0.99

# %% [markdown]
# So one text of 1,000 positions leaves most of its room empty, and nearly none of its pages. [[pages]]

# %% [markdown] slide="subslide"
# ### Guess first, check in one pass
# Several tokens can be *checked* in one call, because they are a chunk. In **speculative decoding** something fast writes a draft, and the model checks it with the mask of section 3 ([Leviathan et al. 2023](https://arxiv.org/abs/2211.17192)). Our draft comes from a table: which token follows two tokens most often, in 500 other stories?

# %% slide="skip"
from collections import Counter, defaultdict

corpus = tokenizer.encode("\n" + storyworld.corpus(500, seed=1))
followers = defaultdict(Counter)
for first, second, third in zip(corpus, corpus[1:], corpus[2:], strict=False):
    followers[first, second][third] += 1


# %%
def likely_draft(tokens):
    """The 4 tokens that follow most often in the table, one after the other."""
    draft = list(tokens)
    for _ in range(4):
        draft += [token for token, _ in followers[draft[-2], draft[-1]].most_common(1)]
    return draft[len(tokens) :]


# %%
@torch.no_grad()
def write_with_drafts(tokens, n_new, draft_of):
    """The tokens that the model writes (always the most probable), and the number of calls."""
    cache, calls, n_in_all = KVCache(small, 1, small.max_seq_len), 0, len(tokens) + n_new
    # ESSENTIAL
    while len(tokens) < n_in_all:
        draft = draft_of(tokens)
        unread = torch.tensor([tokens[cache.length :] + draft])  # (1, T)
        best = model(unread, cache)[0].argmax(-1).tolist()[-len(draft) - 1 :]
        n_right = 0
        while n_right < len(draft) and draft[n_right] == best[n_right]:
            n_right += 1
        tokens = tokens + draft[:n_right] + [best[n_right]]  # the model's own next token comes for free
        cache.length = len(tokens) - 1  # forget the wrong part of the draft
        calls += 1
    # END
    return tokens[:n_in_all], calls


# %% evidence="drafts-exact"
def senseless_draft(tokens):
    return [0] * 4


for seed in (13, 14, 15):
    opening = tokenizer.encode("\n" + storyworld.story(torch.Generator().manual_seed(seed)).text)[:40]
    plain = generate(model, torch.tensor([opening]), max_new_tokens=60, temperature=0)[0].tolist()
    likely, calls = write_with_drafts(opening, 60, likely_draft)
    senseless, more_calls = write_with_drafts(opening, 60, senseless_draft)
    assert likely == senseless == plain and calls < 45 < more_calls
    print(f"60 tokens, the same text: {calls} calls with likely drafts, {more_calls} with senseless ones")

# %% [markdown]
# The text is the same with both drafts, because a wrong token is never kept, and with the good one there are fewer calls. [[drafts-exact]] How much time this saves depends on the draft and on the machine. Leviathan et al. show how tokens can be drawn, too, with exactly the model's probabilities.

# %% [markdown] tags=["note"]
# **Say.** The mask makes the past final. So keep its keys and values, continue the positions, move the mask, and pay with memory.
#
# **Draw.** The two triangles of section 1 from memory.
#
# **Ask.** Each student writes down one change to a model that would make its cache wrong without an error.
#
# **Usual answers.**
# - *A larger vocabulary* (from the room): It changes the head, not the cache.
# - *No causal mask* (from the room): Right; see the test without it in section 3.
#
# **Cut if short.** Read the bold words of each section only. With the shortest plan leave out the points about memory, mistakes and engineers.

# %% [markdown] slide="slide"
# ## What you have now
# - Without a cache, writing n tokens one at a time reads n (n + 1) / 2 positions, and the operations grow faster than the square of n. [[positions-read]] [[operations]] Most of this is computed again. [[read-again]]
# - With the causal mask the keys and values of earlier tokens do not change when a token is appended, in any layer; without it they do. [[past-unchanged]] [[mask-decides]]
# - The newest token needs only its own query, so the cache keeps keys and values, and no queries. [[newest-alone]] To keep x instead would take many more operations for each token. [[x-instead]]
# - The new position $i$ after $P$ kept ones sees the keys 0 to $P + i$. [[moved-mask]] With this mask the model computes the same logits, up to rounding, at every split that we tried. [[by-hand]] [[any-split]]
# - With a cache a step grows slowly with the text, because the new query meets one key more. [[step-grows]] [[step-timed]]
# - A cache holds $2 L B G S D$ numbers. [[cache-bytes]] Grouped queries divide that by H / G. [[grouped-cache]]
# - Restarted positions, a wrong mask or no mask at the prefill change the result without an error [[mistakes]] [[both-halves]]; so does a missing reset, if the cache has room. [[no-reset]]
# - For engineers: smaller caches [[what-engines-do]] [[bits-and-windows]], padding at the left [[padded]], pages [[pages]], drafts. [[drafts-exact]]
#
# A step is now so small that arithmetic may not be what it waits for. Next, lesson 14: where the time goes.

# %% [markdown]
# ## Sources
# - Attention: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.2.
# - Decoding with kept keys and values, and one key-value head: Shazeer 2019, [*Fast Transformer Decoding: One Write-Head is All You Need*](https://arxiv.org/abs/1911.02150), section 2.
# - Grouped queries: Ainslie et al. 2023, [*GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*](https://arxiv.org/abs/2305.13245), section 2.
# - What writing costs in large models: Pope et al. 2022, [*Efficiently Scaling Transformer Inference*](https://arxiv.org/abs/2211.05102), section 2.
# - Llama 3: Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), section 3.2.
# - A sliding window: Jiang et al. 2023, [*Mistral 7B*](https://arxiv.org/abs/2310.06825), section 2. Latent vectors: DeepSeek-AI 2024, [*DeepSeek-V2*](https://arxiv.org/abs/2405.04434), section 2.1.
# - Pages: Kwon et al. 2023, [*Efficient Memory Management for Large Language Model Serving with PagedAttention*](https://arxiv.org/abs/2309.06180), section 4.
# - Drafts: Leviathan, Kalman and Matias 2023, [*Fast Inference from Transformers via Speculative Decoding*](https://arxiv.org/abs/2211.17192), section 2.
# - GPT-3's sizes: Brown et al. 2020, [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165), section 2.1.
