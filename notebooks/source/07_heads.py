# %% [markdown] deck="How can a word look back for several things at once?"
# # 07 Heads
# **How can a word look back for several things at once?**
#
# *Needs* lessons 05 and 06. *Builds* `Attention` in `attention.py`. *Runs* in about 45 s on two cores.
# *Teaches* in about 45 minutes, plus 33 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: one head returns one average, so a layer has several heads, each with its own features, and adds up what they find. Sections 1 to 4 build them. Sections 5 and 6 ask what the heads of a trained model do, and end with a head that does the opposite of what everybody expects.
# The exercises are homework, or a second hour. If you have only ten minutes, show the first picture and section 6.

# %% [markdown] tags=["note"]
# **Say.** In lesson 05 a word looked back once, and its weights summed to 1. The picture shows several such looks. Today: why several, how they are computed together, and how we find out what each of them does.
#
# **Usual answers.**
# - *All of Carlos and all of Jamal* (`[1.0, 1.0]`): The weights of one query sum to 1. To give Jamal half, the query has to take half from Carlos.
# - *Only the first one* (`[1.0, 0.0]`): Both names have the same score, so which of them should win?
# - *Two things always need two heads* (from the room): Not if the values also say who sings, or if a network with hidden units reads the average. See *Tried*.
#
# **Cut if short.** The code of `train_heads`; show its picture.
#
# **Tried.** The average: exact arithmetic. The task: ten seeds, 200 updates. Rate 0.01: one head 0.73 to 0.77, two heads 0.00 to 0.05 in ten of ten. Rate 0.03: 0.80 to 0.86 and 0.00 to 0.15. Rate 0.003: 0.74 to 0.84 and 0.02 to 0.75, so there two of ten are not finished yet. Five times as long (three seeds): 0.68 to 0.71 and 0.00. The smallest rival: one head, read by a network with 128 hidden units, ends at 0.02 to 0.15, and at the rate 0.003 at 0.03 to 0.04, below two heads with a linear map. So the conclusion is about a linear reader.

# %% [markdown]
# ## 1. One query, one average
# Some words of this story are determined by earlier words. For the places and the things among them, a line leads back to the earlier word that a head of the shipped model looks at just before it. (In lesson 00 such a line was an experiment. Here it is only a look.)

# %%
import torch

from tinylm_classroom import heads_figures as figures, predict
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
story = storyworld.story(torch.Generator().manual_seed(11))

# %% tags=["signature"] deck="One head looks for things, one for places"
kinds = ["place", "object"]  # try ["name"] and ["quotation"]
figures.threads(model, tokenizer, story, kinds, layer=2)

# %% [markdown]
# Each colour is a **head**: attention as in lesson 05, with queries, keys and values of its own. This model has four heads in each of its three layers. Why four? What could a single head not do?
#
# > Carlos sang to Jamal.
#
# To continue this story we must know two things: who sang, and to whom. Here the key of a word is its role in the sentence, and its value says who it is.


# %%
def fetch(words, query):
    who = {"Carlos": [1.0, 0.0], "Jamal": [0.0, 1.0]}
    keys = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])  # (S, 2)
    values = torch.tensor([who.get(word, [0.0, 0.0]) for word in words])  # (S, 2)
    weights = (keys @ torch.tensor(query)).softmax(-1)  # (S)
    return [round(number, 2) for number in (weights @ values).tolist()]


sang = ["Carlos", "sang", "to", "Jamal"]
query = [6.0, 0.0]  # the singer; try [0.0, 6.0]
print("Carlos, Jamal:", fetch(sang, query))

# %% tags=["source-hidden"] deck="One query asks for both roles. What does it fetch?"
predict(
    "One query for both roles, [6, 6]. What does it fetch from *Carlos sang to Jamal*?",
    key=lambda: str([round(x, 1) for x in fetch(sang, [6.0, 6.0])]),
    choices={
        "[0.5, 0.5]": "",
        "[1.0, 1.0]": "That would be all of Carlos and all of Jamal. The weights of a query sum to 1.",
        "[1.0, 0.0]": "That would be Carlos alone. This query matches both roles equally well.",
    },
    because="The two words have the same score, so each gets half of the weight.",
)

# %% deck="One query averages, two queries tell who is who" rows=["S3-3"]
for sentence in (sang, ["Jamal", "sang", "to", "Carlos"]):
    one = fetch(sentence, [6.0, 6.0])
    two = fetch(sentence, [6.0, 0.0]) + fetch(sentence, [0.0, 6.0])
    print(*sentence, "| one query", one, "| two", two)

# %% tags=["source-hidden"] evidence="one-average" tried="exact"
# Checked: one query returns the same for both sentences, two queries do not.
assert fetch(sang, [6.0, 6.0]) == fetch(sang[::-1], [6.0, 6.0])
assert fetch(sang, [6.0, 0.0])[0] > 0.9 < fetch(sang[::-1], [6.0, 0.0])[1]

# %% [markdown]
# One query returns one average, and in the average nobody can tell who sang. Two queries, each with weights of its own and their results **side by side**, can. [[one-average]]
#
# ### One head or two, trained
# Do heads learn to divide the work? The task: random tokens, and at each position name the two before it, in order. The model is one layer of attention with rotary positions (lesson 06), read by one linear map.

# %%
import torch.nn.functional as F
from torch import nn

from tinylm_classroom import learned, mean_weights
from tinylm_lib import ModelConfig
from tinylm_lib.attention import Attention, attend, causal_mask


def train_heads(n_heads, seed, rate=0.01):
    """The mean attention weights (H, T, S) and the last loss."""
    torch.manual_seed(seed)
    embed, reader = nn.Embedding(32, 48), nn.Linear(48, 64)
    attention = Attention(ModelConfig(d_model=48, n_heads=n_heads, position="rotary"))
    parts = nn.ModuleList((embed, attention, reader))
    optimizer = torch.optim.AdamW(parts.parameters(), lr=rate)
    for _ in range(200):
        tokens = torch.randint(32, (16, 32))  # (B, T)
        found = attention(embed(tokens), torch.arange(32))  # (B, T, C)
        logits = reader(found).unflatten(-1, (2, 32))[:, 2:]  # (B, T - 2, 2, V)
        last_two = torch.stack((tokens[:, 1:-1], tokens[:, :-2]), -1)  # (B, T - 2, 2)
        loss = F.cross_entropy(logits.flatten(0, 2), last_two.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return mean_weights(attention, embed(tokens)), loss.item()


# %%
n_heads = 2  # try 1 and 3
_, loss = train_heads(n_heads, seed=0)
print(f"{n_heads} heads: the loss ends at {learned(loss, 0, 4)}")

# %% tags=["source-hidden"] deck="One head mixes two words, two heads share the work"
SEEDS = range(5)
runs = {n_heads: [train_heads(n_heads, seed) for seed in SEEDS] for n_heads in (1, 2)}
losses = {f"{n} head{'s' * (n > 1)}": [run[-1] for run in each] for n, each in runs.items()}
figures.trained(runs[1][0][0], runs[2][0][0], losses)

# %% tags=["source-hidden"] evidence="two-heads-learn" tried="seeds"
# Checked: with every seed two heads end below one head, which stays above 0.6.
assert min(losses["1 head"]) > 0.6 > 0.5 > max(losses["2 heads"])

# %% [markdown]
# After 200 updates the single head is still near ln 2, the loss of a reader that knows both tokens but not their order. With two heads every run learned the order, and nobody told the heads how to share the work. [[two-heads-learn]]

# %% [markdown] tags=["note"]
# **Say.** Four heads with all features each would be four times the work. Instead they divide the features among them. The whole trick is one cut and one transpose, and it is easy to get a cut that has the right shape and the wrong numbers.
#
# **Usual answers.**
# - *The right shape means the right cut* (`[[0, 1], [4, 5], [8, 9]]`): `view` does not know what the numbers mean. It counts on in memory.
# - *The numbers are only reshaped to (B, H, T, D)* (`only reshaped`): Cut the last axis first, then move the new axis to the front.
# - *Neighbouring features go to different heads* (`interleaved`): (D, H) deals the features out like cards. In (H, D) a head is a block.
# - *n_heads is the size of a head* (`number and size exchanged`): It is how many there are.
#
# **Cut if short.** Nothing.
#
# **Tried.** Exact: the order of numbers in memory has no seed. A layer of 512 features has 1,048,576 parameters with 1, 4 and 16 heads.

# %% [markdown] deck="Heads divide the features among them"
# ## 2. Cut the features into heads
# Four heads with all features each would be four times the work. So the heads **divide the features among them**. With $C$ features and $H$ heads, each head gets a block of $D = C / H$ neighbouring features of q, k and v:
#
# $$D = \frac{C}{H} \qquad (B, T, C) \to (B, H, T, D)$$
#
# This is **multi-head attention** ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)). First as a loop, with slices:

# %%
_ = torch.manual_seed(7)
B, T, C, H = 2, 6, 12, 3
D = C // H  # features of a head
x = torch.randn(B, T, C)  # (B, T, C)
w_q, w_k, w_v, w_o = torch.randn(4, C, C) / C**0.5  # (C, C) each
q, k, v = (x @ w.T for w in (w_q, w_k, w_v))  # (B, T, C) each
answers = []
for h in range(H):
    block = slice(h * D, (h + 1) * D)
    own = (each[..., block] for each in (q, k, v))  # (B, T, D) each
    answers.append(attend(*own, causal=True))  # (B, T, D)

# %% [markdown]
# The loop runs one head after another. If the heads are an axis of their own in front of the positions, `attend` computes all of them at once, like the texts of a batch. Counted numbers show which head gets what:

# %%
counted = torch.arange(12).view(1, 3, 4)  # one text, 3 words of 4 features
print(counted[0])
print("head 0:", counted[0, :, :2].tolist(), " head 1:", counted[0, :, 2:].tolist())

# %% tags=["source-hidden"] deck="The shape is right. What does head 0 get?"
predict(
    "`counted.view(1, 2, 3, 2)` has the right shape for 2 heads, 3 words and 2 features each. What does head 0 get?",
    key=lambda: str(counted.view(1, 2, 3, 2)[0, 0].tolist()),
    choices={
        "[[0, 1], [4, 5], [8, 9]]": "That is what we want. But `view` takes the numbers in the order in which they are in memory.",
        "[[0, 2], [4, 6], [8, 10]]": "That would be every second feature of each word. `view` skips nothing.",
        "[[0, 1], [2, 3], [4, 5]]": "",
    },
    because="`view` keeps the order 0, 1, 2, ...: head 0 gets the whole of word 0 and half of word 1.",
)

# %% deck="Right shape, wrong words: view keeps the order of memory"
print("view:", counted.view(1, 2, 3, 2)[0, 0].tolist())

# %% [markdown]
# Head 0 should get *some features of all words*, and it gets *all features of some words*. A test of shapes cannot find this. As in lesson 02, `view` and `reshape` keep the order of the numbers in memory, and a transpose changes it.
#
# ### Your turn: split
# Cut the features of each position into `n_heads` blocks of neighbours, and give the heads an axis of their own, in front of the positions.

# %%
from tinylm_classroom import capture, check, hint, keep


# %% tags=["exercise"] name="split_heads" minutes=8 difficulty=2 deck="Your turn: split"
def split_heads(x, n_heads):
    """x (B, T, C), C a multiple of H = n_heads. Returns (B, H, T, D), D = C / H.

    Head h has the features h*D to (h+1)*D - 1. x may be stored with any strides.
    The dtype stays the same, and gradients flow back to x.
    """
    # SOLUTION
    B, T, C = x.shape
    return x.reshape(B, T, n_heads, C // n_heads).transpose(1, 2)
    # END


# %% tags=["check"]
if check("split_heads", split_heads).passed:
    keep("split_heads", split_heads)

# %% slide="skip"
hint("split_heads")

# %% [markdown] tags=["solution"]
# Two steps. First the last axis becomes two, (H, D): the features of a position are neighbours in memory, so this cuts each position into blocks. Then H moves in front of T.
# Common mistakes: straight to (B, H, T, D), as above; (D, H) instead of (H, D), which deals the features out like cards; `n_heads` taken for the size of a head.

# %% [markdown] tags=["note"]
# **Say.** After attention the heads come together again. Side by side is not yet together: the output projection adds them up, and that is why we can take one head out in section 5.
#
# **Usual answers.**
# - *The heads are summed* (`summed`): In the output projection each head first gets a map of its own. A plain sum would mix them before anything can tell them apart.
# - *`view` raises an error in the merge* (`viewed`): After a transpose the numbers are not in the order of the axes any more. `reshape` copies where it has to.
# - *The scores are divided by the root of C* (`scaled by C`): Each head compares D features only. With one head nobody notices.
# - *Both transposes are missing* (`both reshaped`): All shapes fit, and no future leaks. The end of the section is about it.
# - *The split alone* (`split`): Inside, the order of time is lost, so the mask forbids the wrong pairs.
# - *The merge alone* (`merge`): Each position is given numbers of other positions, some of them later.
#
# **Cut if short.** The trace; the picture has the shapes.
#
# **Tried.** The sum: exact, ten random layers, largest difference 1e-6. The three wrong layers: ten random layers; a reshape in one step leaks in ten of ten, in both steps in none, and the first word never reaches the last result there.

# %% [markdown]
# ## 3. Put them together again, and add
# After attention each position has $H$ results of $D$ numbers. Put **side by side** (concatenated), they are $C$ numbers again. In $(B, H, T, D)$ the results of one position are not neighbours in memory, so the merge is the split backwards.
#
# ### Your turn: merge
# Put the heads of each position side by side again.


# %% tags=["exercise"] name="merge_heads" minutes=7 difficulty=2 deck="Your turn: merge"
def merge_heads(x):
    """x (B, H, T, D), stored with any strides. Returns (B, T, H*D).

    For each position: head 0's numbers, then head 1's, and so on.
    The dtype stays the same, and gradients flow back to x.
    """
    # SOLUTION
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)
    # END


# %% tags=["check"]
if check("merge_heads", merge_heads).passed:
    keep("merge_heads", merge_heads)

# %% slide="skip"
hint("merge_heads")

# %% [markdown] tags=["solution"]
# `transpose(1, 2)` brings H next to D, and `reshape` makes one axis of the two. `view` raises an error here: after the transpose the numbers are not in the order of the axes, so they have to be copied, and `reshape` does that. Common mistakes: no transpose, so that positions get each other's numbers; a sum or a mean over the heads.

# %% [markdown]
# ### The output projection
# After the merge, the first $D$ features contain only what head 0 found. A last linear map, the **output projection** $W_O$, lets every feature of the result use every head. Its columns come in blocks, one for each head: a map of its own from $D$ to $C$ features. The result is the **sum** of what these maps make of the heads.

# %% evidence="sum-of-maps" tried="exact" deck="The result is a sum, with one part for each head"
merged = torch.cat(answers, dim=-1)  # (B, T, C)
maps = w_o.split(D, dim=-1)  # (C, D) each
parts = [found @ w.T for found, w in zip(answers, maps, strict=True)]  # (B, T, C) each
torch.testing.assert_close(sum(parts), merged @ w_o.T)

# %% tags=["source-hidden"] rows=["S0-35"] deck="Split, attend, project: each head adds its own part"
sentence = torch.tensor([tokenizer.encode("\nOne foggy day, Carlos came to Hillcrest.")])  # (B, T)
figures.flow(capture(model, sentence).attention(2).weights[0])

# %% [markdown]
# So the heads do not depend on each other: each adds its own vector to the result. [[sum-of-maps]] In section 5 we leave out one part of this sum.
#
# ### Your turn: the whole layer
# Linear maps for q, k and v, split, attention, merge, output projection. You may use `attend(q, k, v, causal=True)` and your own functions: for `attend`, the heads are just one more leading axis. There is no rotation here.


# %% tags=["exercise"] name="multi_head_attention" minutes=18 difficulty=3 deck="Your turn: the whole layer"
def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads):
    """Causal attention of x (B, T, C) to itself in n_heads heads.

    w_q, w_k, w_v, w_o (C, C): stored as (out, in), without biases.
    Head h has the h-th block of D = C / n_heads features of q, k, v.
    Scores are divided by the root of D. Position t sees 0 to t, also
    where all its scores are very low. The merged heads go through w_o;
    x is not added. n_heads may be 1, or C. Any strides.
    Returns (B, T, C) in the dtype of x; gradients reach all five.
    """
    # SOLUTION
    q, k, v = (split_heads(x @ w.T, n_heads) for w in (w_q, w_k, w_v))
    answers = attend(q, k, v, causal=True)
    return merge_heads(answers) @ w_o.T
    # END


# %% tags=["check"]
if check("multi_head_attention", multi_head_attention).passed:
    keep("multi_head_attention", multi_head_attention)

# %% slide="skip"
hint("multi_head_attention")

# %% [markdown] tags=["solution"]
# Five steps in three lines. Common mistakes: the scores divided by the root of C instead of D (with one head nobody notices), weights used as (in, out), keys made with w_q, no output projection, and all mistakes of the two exercises before.

# %% [markdown]
# The library's layer takes its sizes from a config. The whole layer once more, with the shape after each line:

# %%
from tinylm_classroom import reshaped, show, trace

attention = Attention(ModelConfig(d_model=C, n_heads=H, position="none"))


def in_steps(x):
    q = attention.split(x @ w_q.T)  # (B, T, C) -> (B, H, T, D)
    k = attention.split(x @ w_k.T)  # (B, T, C) -> (B, H, S, D)
    v = attention.split(x @ w_v.T)  # (B, T, C) -> (B, H, S, D)
    scores = q @ k.mT / D**0.5  # (B, H, T, D) @ (B, H, D, S) -> (B, H, T, S)
    masked = scores.masked_fill(~causal_mask(T), -torch.inf)  # (B, H, T, S)
    weights = masked.softmax(-1)  # (B, H, T, S)
    found = weights @ v  # (B, H, T, S) @ (B, H, S, D) -> (B, H, T, D)
    side_by_side = found.transpose(1, 2).reshape(B, T, C)  # (B, T, C)
    return side_by_side @ w_o.T  # (B, T, C)


trace(in_steps, x, sizes={"B": B, "T": T, "C": C, "H": H, "D": D, "S": T})

# %% tags=["source-hidden"] rows=["S0-33", "S0-34", "S1-21", "S1-22", "S1-23", "S2-4"]
# Checked: loop, steps and the library's layer are equal; so is the rotation of each head.
for projection, w in zip("qkvo", (w_q, w_k, w_v, w_o), strict=True):
    attention.get_submodule(f"{projection}_proj").weight.data.copy_(w)
at = torch.arange(T)  # (T)
assert attention(x, at).allclose(merged @ w_o.T, atol=1e-5) and in_steps(x).allclose(attention(x, at), atol=1e-5)
rotating = Attention(ModelConfig(d_model=C, n_heads=H, position="rotary"))
rotating.load_state_dict(attention.state_dict())
heads = attention.split(q)  # (B, H, T, D)
assert rotating.rotation(heads, at)[:, 1:2].equal(rotating.rotation(heads[:, 1:2], at))
assert torch.allclose(rotating(x, 0 * at), attention(x, at)) and not torch.allclose(rotating(x, at), attention(x, at))
dropping = Attention(ModelConfig(d_model=C, n_heads=H, attention_dropout=0.5))
assert not torch.equal(dropping(x, at), dropping(x, at)) and torch.equal(dropping.eval()(x, at), dropping(x, at))

# %% slide="skip"
show(Attention)

# %% [markdown]
# In the library `mix` does the steps from the scores to *side by side*. The rotation of lesson 06 comes after the split, so each head has all its frequencies.
#
# The trap of section 2 has a worse relative: a reshape instead of the transpose in split *and* merge. We change one word and see which results move:

# %% deck="A reshape in both steps: nothing leaks, but the first word never arrives"
in_split, in_merge = True, True  # try (True, False), (False, True) and (False, False)
leaks, arrives = reshaped(x, (w_q, w_k, w_v), H, in_split, in_merge)
print(f"the last word moves earlier results by {leaks:.1f}")
print(f"the first word moves the last result by {arrives:.1f}")

# %% tags=["source-hidden"] evidence="reshape-breaks" tried="seeds"
# Checked with three texts: in one step it leaks, in both the first word never arrives.
SEEDS = (1, 2, 3)
for seed in SEEDS:
    text = torch.randn(B, T, C, generator=torch.Generator().manual_seed(seed))  # (B, T, C)
    for way in ((False, False), (False, True), (True, False), (True, True)):
        leaks, arrives = reshaped(text, (w_q, w_k, w_v), H, *way)
        assert (leaks > 0.01) == (way[0] != way[1]) and (not all(way) or arrives == 0)

# %% [markdown]
# In only one step, split or merge, the reshape leaks the future. In **both** it leaks nothing and has all the right shapes, but each "head" is a short stretch of the text, and no word looks back beyond it. [[reshape-breaks]] With one head it is even correct. So **test with several heads, and with all sizes different**.

# %% [markdown] tags=["note"]
# **Say.** Every query is used once, but keys and values are kept for all later words. So most large models of today have fewer of them.
#
# **Usual answers.**
# - *The scores become fewer as well* (`the number of scores`): Each query head still compares itself with every earlier word.
# - *Why does nobody group the queries instead?* (from the room): They are not kept, so nothing would be saved.
# - *What is the best number of heads?* (from the room): Nobody can compute it. One trains with several numbers and compares.
#
# **Cut if short.** The code of the repeated keys; keep the picture.
#
# **Tried.** Exact: repeated keys and values give the same result in ten random layers, and the bytes follow from the formula.

# %% [markdown]
# ## 4. Fewer keys and values than queries
# A model that writes keeps the keys and values of all earlier words, in every layer (the **KV cache**, lesson 13). For long texts it is large. A query is used once and not kept. So most large models of today have fewer key-value heads, $G$, than query heads: **grouped-query attention**, GQA ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)).

# %% tags=["source-hidden"] deck="Grouped queries share keys and values"
figures.groups(8, (8, 2, 1))

# %% [markdown]
# It equals attention in which each key-value head is repeated for its group:

# %% evidence="groups-written-out" tried="exact"
from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, kv_cache_bytes

few, full = preset("llama", "3-8b"), preset("llama", "3-8b", n_kv_heads=32)
G = 2
many = torch.randn(B, 8, T, D)  # (B, 8, T, D)
keys, values = torch.randn(2, B, G, T, D)  # (B, G, T, D) each
uses = torch.arange(G).repeat_interleave(8 // G)  # (8)
print("query heads 0 to 7 use the key-value heads", uses.tolist())
repeated = attend(many, keys[:, uses], values[:, uses], causal=True)  # (B, 8, T, D)
torch.testing.assert_close(attend(many, keys, values, causal=True), repeated)

# %% tags=["source-hidden"] deck="8 key-value heads instead of 32: what does not become smaller?"
predict(
    "Llama 3 8B has 32 query heads, but 8 key-value heads instead of 32. What does not become smaller?",
    key=lambda: "the number of scores" if few.n_heads == full.n_heads else "the KV cache",
    choices={
        "the number of scores": "",
        "the KV cache": "It holds keys and values, and there are only a quarter as many.",
        "the weights of k_proj and v_proj": "They make fewer features, so they have fewer rows.",
    },
    because="Each of the 32 query heads still has a score for every earlier word.",
)

# %% rows=["S3-4"] deck="A quarter of the keys and values is a quarter of the cache"
for name in (("gpt2", "small"), ("gpt2", "xl"), ("llama", "2-7b"), ("llama", "3-8b")):
    c = preset(*name)
    # ESSENTIAL
    sizes = f"C {c.d_model:4}  H {c.n_heads}  D {c.d_head:3}  G {c.n_kv_heads:2}"
    cache = kv_cache_bytes(c, batch_size=1, length=8192, bytes_per_element=2)
    print(f"{'-'.join(name):<11} {sizes}  {cache / 1e9:.1f} GB")
    # END

# %% tags=["source-hidden"] evidence="smaller-cache" tried="exact"
# Checked: the cache shrinks by four, the scores do not, and parameters do not depend on H.
assert kv_cache_bytes(full, 1, 8192) == 4 * kv_cache_bytes(few, 1, 8192)
assert full.n_heads == few.n_heads and count_parameters(full).attention > count_parameters(few).attention
assert {count_parameters(ModelConfig(d_model=512, n_heads=n)).attention for n in (1, 4, 16)} == {4 * 512 * 512}

# %% [markdown]
# The last column is the cache for 8192 tokens. Fewer key-value heads make it smaller, while every query head keeps its own scores. [[smaller-cache]] [[groups-written-out]] Ainslie et al. report nearly the quality of full heads. In such models $D$ is usually 64 or 128. $H$ must divide $C$, otherwise `ModelConfig` raises an error.

# %% [markdown] tags=["note"]
# **Say.** A picture of attention weights invites you to give each head a name. Today we test the names: we take the head out and look at what the model no longer can do.
#
# **Usual answers.**
# - *The head for names is gone, so most names are lost* (`about one in ten`): It would be so if no other head had anything to say about names. What does the map show for the other heads?
# - *Half of them* (`about half`): Other heads look at names as well. How many names need this one?
# - *Then the attention map is wrong* (from the room): It correctly shows where the head looks. It does not show what is done with it.
# - *0 is an input that the model has never seen* (from the room): A good objection. So the head was also given its average over all words: hardly anything differs.
#
# **Cut if short.** The line with two heads.
#
# **Tried.** Three other sets of 60 stories. Head 1 of layer 2 looks at the right name in 0.89 to 0.94, and 0.986 to 0.989 of the names are right without it. Head 2 of layer 1: 0.01 to 0.02, and 0.27 to 0.30 are lost. Head 0 of layer 1, objects: 0.00 to 0.01, and 0.41 to 0.44 lost. Head 2 of layer 2, places: 1.00, and 0.95 to 0.98 lost. 0 against the average, all 72 cells: the largest difference is 0.02 to 0.04. Without heads 1 of layer 1 and of layer 2: 0.94 to 0.96 and 0.99 right alone, 0.66 to 0.73 together.

# %% [markdown]
# ## 5. What is each head for?
# Heads are like spotlights on a stage: it is tempting to give each a name, by **where** it looks or by **what breaks** without it.
#
# In 60 new stories we take the words of which only one can come, because an earlier word determines it: a *pronoun* (*She*, by *Yuki*), a *trait* that is said again, a word of a *quotation*. How often does a head, just before such a word, look most at the earlier one?

# %%
from tinylm_classroom import determined, fractions_right, heads_that_find
from tinylm_lib.interventions import intervene

SEED = 7
kinds = ["pronoun", "place", "object", "quotation", "name", "trait"]
# ids (B, T + 1), before[kind] (B, T):
stories, ids, before = determined(tokenizer, kinds, 60, SEED)
found = heads_that_find(model, tokenizer, stories)
looked_at = {kind: found[kind] for kind in kinds}  # (3, 4) each: layer, head

# %% tags=["source-hidden"] rows=["S3-5"] deck="Each head looks for different words"
figures.maps({"Where the head looks": looked_at})

# %% [markdown]
# Head 1 of layer 2 looks like the head for names. Head 0 finds every object, head 2, which you silenced in lesson 00, pronouns *and* places. But does anything later use what they fetch? We remove a head: its part of the sum becomes 0. Such a test is an **ablation**.


# %%
def right_without(*heads):
    """For each kind, the fraction of right words without these heads (layer, head)."""
    with intervene(model, silence=heads):
        return fractions_right(model, ids, before)


# %% tags=["source-hidden"] deck="Without the head for names, how many names are right?"
left = right_without((2, 1))["name"]
predict(
    "With all heads every name is right. We remove head 1 of layer 2, which finds most names. How many are still right?",
    key=lambda: "nearly all" if left > 0.9 else "about half" if left > 0.3 else "about one in ten",
    choices={
        "about one in ten": "That would be so if the other heads had nothing to say about names.",
        "about half": "The map shows other heads that look at names, too. How many names need this one?",
        "nearly all": "",
    },
    because="A look suggests what a head does, but the model may not depend on it: here the other heads are enough.",
)

# %% deck="Without the head for names, nearly all names are right"
heads = [(2, 1)]  # try [(1, 1)] and [(0, 0)]
for removed in (heads, [(1, 1), (2, 1)]):
    print(f"names right without {removed}: {right_without(*removed)['name']:.0%}")

# %% [markdown]
# Head 1 of layer 1 also looks at names. Without either one nearly all names are right, without both far fewer: several heads raise the right name, and one of them may be missing. [[heads-removed]] (In GPT-2 small some heads even begin to work when another one is removed: **backup heads**, [Wang et al. 2022](https://arxiv.org/abs/2211.00593).) Now we remove each of the twelve heads, one at a time:

# %%
marked = [("name", 2, 1), ("name", 1, 2), ("object", 1, 0), ("place", 2, 2)]
whole = right_without()
lost = {kind: torch.zeros(3, 4) for kind in kinds}
for layer in range(3):
    for head in range(4):
        for kind, right in right_without((layer, head)).items():
            lost[kind][layer, head] = whole[kind] - right

# %% tags=["source-hidden"] rows=["S3-5"] deck="Look and use often disagree"
figures.maps({"Where the head looks": looked_at, "What is lost without it": lost}, marked)

# %% tags=["source-hidden"] evidence="heads-removed" tried="held-out"
# Checked in three other sets of stories: the framed cells, and two heads for names.
SEEDS = (1, 2, 3)
for seed in SEEDS:
    stories, ids, before = determined(tokenizer, kinds, 40, seed)
    look = heads_that_find(model, tokenizer, stories)
    for (kind, depth, head), looks, needed in zip(marked, (1, 0, 0, 1), (0, 1, 1, 1), strict=True):
        share, right = look[kind][depth, head], right_without((depth, head))[kind]
        assert (share > 0.5 if looks else share < 0.1) and (right < 0.8 if needed else right > 0.95)
    assert right_without((1, 1))["name"] > 0.88 > 0.8 > right_without((1, 1), (2, 1))["name"]

# %% tags=["source-hidden"] evidence="mean-removed" tried="held-out"
# Checked: in all 72 cells the average of a head instead of 0 gives the same, within a tenth.
from tinylm_classroom import largest_difference_of_ablations

assert largest_difference_of_ablations(model, ids, before) < 0.1
stories, ids, before = determined(tokenizer, kinds, 60, SEED)

# %% [markdown]
# - **It looks, and the most probable word is hardly ever another one without it**: head 1 of layer 2, for names. [[heads-removed]]
# - **Look and use agree**: head 2 of layer 2, for places. [[heads-removed]]
# - **It does not look at the answer, and is needed**: head 0 of layer 1, for objects. It works earlier: in lesson 05 the things took up their colours with it. And head 2 of layer 1, for names. [[heads-removed]]
#
# If a removed head leaves its average instead of 0, all 72 cells of the map stay nearly the same. [[mean-removed]] So a look suggests what a head is for, and a removal tests it.

# %% [markdown] tags=["note"]
# **Say.** One head is left. Without it three names in ten are wrong, and it almost never looks at the right one. What does it look at? Let them vote before you show anything.
#
# **Usual answers.**
# - *At the right name, a little less than the others* (`the right name`): Then the first map would show it. It shows 0.01.
# - *At the verb, which says that a name comes* (`the verb`): Reasonable, and wrong: count it.
# - *Then it copies the wrong name* (from the room): That is what the other heads do. Silence it, and see which name comes.
#
# **Cut if short.** The last picture; keep the view.
#
# **Tried.** Twelve sets of 60 stories, 3,461 names: it looks most at the other name in 97 to 100 % of each set, with a mean weight of 0.69 to 0.75. Without it the logit of that name rises by 6.3 to 7.1, the right one's falls by 2.3 to 2.7, and of 1,062 newly wrong names 1,062 are the one that it looked at. In three sets all 265 of them are in sentences that already have the person; there the weight is 0.94, elsewhere 0.44. The direct part: in six sets -3.2 to -3.5 for the name it looks at, and +0.9 to +1.1 for the right one. Of all names it lowers most the one that it looks at in 97 to 99 %.

# %% [markdown]
# ## 6. The head that says no
# A riddle is left. Just before a name, head 2 of layer 1 hardly ever looks at the right one, and yet three names in ten are lost without it. In this text two people meet:
#
# > One sunny morning, patient Yuki ran to Hillcrest. There she met Tom, a carpenter with a yellow basket. Tom said to \_\_\_

# %%
from tinylm_classroom import added_to_names, what_if

at_names = before["name"]  # (B, T)
right_name = ids[:, 1:][at_names]  # (N)


def looked_at_most(layer, head):
    """The word at which a head looks most, just before each name (N)."""
    looks = capture(model, ids[:, :-1]).attention(layer).weights[:, head]  # (B, T, S)
    return ids.gather(1, looks.argmax(-1))[at_names]


seen = looked_at_most(1, 2)  # (N)

# %% tags=["source-hidden"] deck="At which word does head 2 of layer 1 look?"
is_other = torch.isin(seen, right_name.unique()) & (seen != right_name)
predict(
    "In the 60 stories, just before a name: at which word does this head look most?",
    key=lambda: "the other name" if is_other.float().mean() > 0.9 else "the verb",
    choices={
        "the right name": "Then the map of section 5 would show it.",
        "the other name": "",
        "the verb": "It says that a name comes. But which one?",
    },
    because="It looks at the person who is *not* the answer: in the text above at *Tom*, who speaks.",
)

# %% deck="It looks at the other person's name"
print(f"before {len(seen)} names, {is_other.sum()} times at the other name")

# %% [markdown]
# Why look at the wrong name? **Your task:** silence head 2 of layer 1. To whom does Tom speak now? Then exchange the *Tom* who speaks for *Yuki*, with the head and without it.

# %% tags=["source-hidden"] deck="Task: silence head 2 of layer 1. To whom does Tom speak now?"
met = "\nOne sunny morning, patient Yuki ran to Hillcrest. There she met Tom, a carpenter with a yellow basket. Tom said to"
what_if(model, tokenizer, met)

# %% [markdown]
# Without it, Tom speaks to Tom. Is it always so? We remove the head in all 60 stories, and look at the names that are wrong now:


# %%
def logits_without(*heads):
    with intervene(model, silence=heads), torch.no_grad():
        return model(ids[:, :-1])[at_names]  # (N, V)


# %% deck="Every name that is now wrong is the one it looked at"
layer, head = 1, 2  # try (1, 1) and (2, 1)
looked = looked_at_most(layer, head)  # (N)
without_it = logits_without((layer, head))  # (N, V)
change = (without_it - logits_without()).gather(-1, looked[:, None]).mean().item()
said = without_it.argmax(-1)  # (N)
wrong = said != right_name  # (N)
# ESSENTIAL
print(f"without it the logit of the name that it looks at changes by {change:+.1f}")
same = (said == looked)[wrong].sum()
print(f"{wrong.sum()} names are now wrong, {same} of them are that name")
# END

# %% tags=["source-hidden"] evidence="not-this-one" tried="held-out"
# Checked in three other sets, and in ours: it looks at the other name, and newly wrong names are that one.
SEEDS = (1, 2, 3)
for seed in (*SEEDS, SEED):
    _, ids, before = determined(tokenizer, kinds, 60, seed)
    at_names = before["name"]  # (B, T)
    right_name = ids[:, 1:][at_names]  # (N)
    looked, said = looked_at_most(1, 2), logits_without((1, 2)).argmax(-1)
    wrong = said != right_name
    assert (looked != right_name).float().mean() > 0.95 and wrong.float().mean() > 0.2
    assert (said == looked)[wrong].float().mean() > 0.97

# %% [markdown]
# In these stories nobody speaks to themselves, so in a sentence that begins with *Tom* the next name is the other one. That is what this head contributes: ***not this one***. [[not-this-one]] How? By section 3 it adds a part of its own to the sum. We compute how much this part alone changes the logit of the name that the head looks at, and do the same for the other heads:

# %% tags=["source-hidden"] deck="Five heads raise the name they look at, one lowers it"
SEEDS = (7, 8, 9)
added = added_to_names(model, tokenizer, SEEDS)
figures.pushes(added)

# %% tags=["source-hidden"] evidence="others-say-this-one" tried="held-out"
# Checked in all three sets: one head lowers the name that it looks at, the others raise it.
for head, changes in ((head, changes) for head, (often, changes) in added.items() if often > 0.5):
    assert max(changes) < -2 if head == (1, 2) else min(changes) > 1

# %% [markdown]
# Five heads raise the name that they look at. One lowers it, and none of the others does its work. [[others-say-this-one]] (This direct part is about half of what the head does. The rest comes from what later layers make of it.) Such a head was found in GPT-2 small, too; there it is called **copy suppression** ([McDougall et al. 2023](https://arxiv.org/abs/2310.04625)).

# %% [markdown] tags=["note"]
# **Say.** A head is a look back with its own queries, keys and values. Several heads are several averages, and the output projection adds them up. What one of them does you find out by taking it away, and by looking at what comes instead.
#
# **Ask.** At the door: "You see a head that always looks at the subject of the sentence. What would you do before you call it the subject head?"
#
# **Usual answers.**
# - *Look at more sentences* (from the room): Good, but that is still only looking. Remove it, and see what breaks.
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="One head, one average; a layer adds up what its heads find"
# ## What you have now
# - One head returns one average, several heads return several, side by side. [[one-average]]
# - In a task that needs two tokens in order, read by a linear map, two heads learned what one head did not. [[two-heads-learn]]
# - $(B, T, C)$ becomes $(B, H, T, D)$ with a cut and a transpose; a reshape alone gives the right shape and the wrong numbers. [[reshape-breaks]]
# - The output projection is a sum, with one part for each head. [[sum-of-maps]]
# - With grouped queries the cache becomes smaller, the number of scores does not. [[smaller-cache]]
# - Where a head looks suggests what it is for; a removal tests it. [[heads-removed]]
# - Zero or average, without a head nearly the same words are right. [[mean-removed]]
# - Head 2 of layer 1 looks at the name that is not the answer, and lowers it. [[not-this-one]]
# - The other heads that look at names raise them. [[others-say-this-one]]
#
# Next, lesson 08: what a word does with what it has fetched.

# %% [markdown]
# ## Sources
# - Heads: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.2.2.
# - Heads as a sum: Elhage et al. 2021, [*A Mathematical Framework for Transformer Circuits*](https://transformer-circuits.pub/2021/framework/index.html).
# - Where a head looks: Jain and Wallace 2019, [*Attention is not Explanation*](https://arxiv.org/abs/1902.10186). Heads removed: Michel, Levy and Neubig 2019, [*Are Sixteen Heads Really Better than One?*](https://arxiv.org/abs/1905.10650).
# - Backup heads, and heads that look at the wrong name: Wang et al. 2022, [*Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2 small*](https://arxiv.org/abs/2211.00593).
# - Not this one: McDougall et al. 2023, [*Copy Suppression: Comprehensively Understanding an Attention Head*](https://arxiv.org/abs/2310.04625).
# - Grouped queries: Ainslie et al. 2023, [*GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*](https://arxiv.org/abs/2305.13245). One key-value head: Shazeer 2019, [*Fast Transformer Decoding: One Write-Head is All You Need*](https://arxiv.org/abs/1911.02150).
# - Sizes: Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf); Touvron et al. 2023, [*LLaMA: Open and Efficient Foundation Language Models*](https://arxiv.org/abs/2302.13971), table 2, for the 7B that Llama 2 keeps; Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), table 3.
