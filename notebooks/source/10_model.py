# %% [markdown] slide="slide"
# # 10 Model
# **All parts are built. What do they make together, and how large is it?**
#
# *Needs* lessons 02 to 09. *Builds* `count_parameters` in `cost.py`, and explains `TransformerLM` in `model.py`. *Runs* in about 20 s on two cores.
# *Teaches* in about 52 minutes, plus 36 of exercises.

# %%
import importlib
import math
from collections import Counter
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tinylm_lib import TransformerLM, generate, preset, storyworld
from tinylm_lib.classroom import check, hint, keep, predict, show
from tinylm_lib.classroom import build, capture, card, figures, learned, number_table, trace_model, using
from tinylm_lib.classroom import memory_view, residual_view, shape_flow
from tinylm_lib.cost import training_flops
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import CLASSES

_ = torch.manual_seed(10)

# %% [markdown] slide="slide"
# ## 1. From ids to logits
# You have built an embedding, norms, attention, positions, a feed-forward and a block. What is still missing? A loop.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
told = storyworld.story(torch.Generator().manual_seed(10)).text
ids = torch.tensor([tokenizer.encode("\n" + told)[:12]])  # (B, T)
print(tokenizer.decode(ids[0].tolist()).strip())

# %%
B, T = ids.shape
positions = torch.arange(T)  # (T)

# %% tags=["source-hidden"]
predict(
    f"The text has {T} tokens. For how many places does one forward pass predict the next token?",
    key=lambda: model(ids).shape[1],
    number="places",
    within=0,
    feedback={
        1: "The last one is the one that writes on. But each position has a row of logits.",
        T - 1: "All but the last can be checked against the text; the last predicts, too.",
    },
    because="Each position predicts what follows it; the causal mask keeps each from seeing the answer.",
)

# %% rows=["S0-39", "S0-42", "S1-25", "S4-3", "S4-27"] evidence="forward-pass"
with torch.no_grad():
    x = model.embed(ids)  # (B, T) -> (B, T, C)
    for block in model.blocks:
        x = block(x, positions)  # (B, T, C)
    h = model.final_norm(x)  # (B, T, C)
    logits = h @ model.lm_head.weight.T  # (B, T, C) -> (B, T, V)
torch.testing.assert_close(logits, model(ids))
print(f"{len(model.blocks)} blocks: ids {tuple(ids.shape)} became logits {tuple(logits.shape)}")
print("next word:", tokenizer.decode([logits[0, -1].argmax().item()]).strip())

# %% [markdown]
# That is the whole forward pass. One token becomes one vector of the **stream**; each block adds to it; the final norm brings it to one size, since the
# stream has grown on its way; and the **head** gives every token of the vocabulary a score. Here is the whole walk. Go down with the arrow keys, open attention with →, and follow another word.

# %% rows=["S0-41", "S1-2", "S2-2", "S4-2"]
shape_flow(model, tokenizer, tokenizer.decode(ids[0].tolist()))

# %% [markdown]
# Nothing stands on the stream itself but the two additions of each block; its shape is always (B, T, C). Positions enter in attention (rotary), or are added behind the embedding.
#
# The final norm and the head can read the stream after any block, too. This is called the **logit lens** (nostalgebraist 2020). What do they read there? Try the column above the full stop, from the embedding upwards.

# %%
residual_view(model, tokenizer, "\nOne sunny day, brave Mia had a red kite. She")

# %% [markdown]
# After blocks 1 and 2 the readout is *He*, and only after block 3 it is *She*. Did the model take Mia for a boy at first? To find out we need the same text with other names: StoryWorld has 40, and the first 20 of them take *She*.

# %%
names = CLASSES["name"]
read_names = torch.tensor([tokenizer.encode("\nOne sunny day, brave " + name + " had a red kite.") for name in names])
name_positions = torch.arange(read_names.shape[1])  # (T)
with torch.no_grad():
    streams = [model.embed(read_names)]  # (40, T, C)
    for block in model.blocks:
        streams.append(block(streams[-1], name_positions))  # (40, T, C)
    readouts = [model.lm_head(model.final_norm(stream))[:, -1].softmax(-1) for stream in streams]  # each (40, V)

# %% evidence="same-for-all-names"
he = tokenizer.encode(" He")[0]
she = tokenizer.encode(" She")[0]
for name in ("Mia", "Carlos"):
    for depth in (1, 2, 3):
        probs = readouts[depth][names.index(name)]  # (V)
        print(f"{name:<6} after block {depth}: He {probs[he]:.2f}, She {probs[she]:.2f}")
after_1 = readouts[1][:, he]  # (40)
print(f"He after block 1, all {len(names)} names: {after_1.min():.2f} to {after_1.max():.2f}")
assert after_1.max() - after_1.min() < 0.05 and (after_1 + readouts[1][:, she] > 0.95).all()
assert (readouts[3][:20, she] > 0.95).all() and (readouts[3][20:, he] > 0.95).all()

# %% [markdown]
# No: after block 1 the readout is the same for all names. It says that a pronoun comes next, and nothing about Mia. Nor does *He* mean that the model prefers boys: the head was trained to read the stream after the
# *last* block, so what it makes of an earlier stream need not be what the model will say.
#
# Where does the gender come from, then? We exchange vectors. In each text the stream at the full stop after block 2 is replaced with that of a text whose name takes the other pronoun, and block 3 continues from there.

# %%
with torch.no_grad():
    exchanged = streams[2].clone()  # (40, T, C)
    exchanged[:, -1] = streams[2][:, -1].roll(20, dims=0)  # the other 20 names
    answers = model.lm_head(model.final_norm(model.blocks[2](exchanged, name_positions)))[:, -1].softmax(-1)  # (40, V)
own = torch.cat([answers[:20, she], answers[20:, he]])  # (40)

# %% tags=["source-hidden"]
predict(
    "Mia's text now has the full stop of a boy's text, as it was after block 2. What does block 3 make of it?",
    key=lambda: "She" if (own > 0.5).sum() > 30 else "He" if (own < 0.5).sum() > 30 else "both are equally likely",
    choices={
        "She": "",
        "He": "It would be, if the full stop already held the gender after block 2. But block 3 has an attention of its own.",
        "both are equally likely": "Only one of the two vectors at the full stop and at the name was exchanged. Which of them does block 3 use?",
    },
    because="Block 3's attention still reads Mia's own position, and takes the gender from there.",
)

# %% evidence="block-3-fetches-the-gender"
print(f"{(own > 0.5).sum()} of {len(names)} names still get their own pronoun")
assert (own > 0.5).sum() >= 36

# %% [markdown]
# So it is the last block that fetches the gender, for nearly all names. Such an exchange is called *activation patching* (Vig et al. 2020): the logit lens shows what can be read, the exchange shows what the model uses.
#
# Only a few shapes occur on the way, the same ones in every layer. The cell counts all but two: the logits, (B, T, V), and the attention weights, (B, H, T, T), which are the only ones that grow with the square of the text's length.

# %% rows=["S4-29"] evidence="shapes"
caught = capture(model, ids)
C, F, V = model.config.d_model, model.config.d_ff, model.config.vocab_size
H, D = model.config.n_heads, model.config.d_head
named = {(B, T, C): "(B, T, C)", (B, H, T, D): "(B, H, T, D)", (B, T, F): "(B, T, F)"}
print(Counter(named[tuple(value.shape)] for value in caught.outputs.values()))
assert all(caught.outputs[f"blocks.{i}"].shape == (B, T, C) for i in range(len(model.blocks)))
assert all(caught.attention(i).weights.shape == (B, H, T, T) for i in range(len(model.blocks)))
assert caught.logits.shape == (B, T, V) and H * D == C

# %% [markdown]
# We can see the shapes of a large model without any numbers: on PyTorch's *meta* device a tensor has a shape and no contents. Here is
# `tiny_transformer` of the next section with 32 texts of 128 tokens.

# %% rows=["S4-28"]
with torch.device("meta"):
    trace_model(TransformerLM(preset("tiny_transformer")), torch.zeros(32, 128, dtype=torch.long)).show()

# %% [markdown] tags=["note"]
# Ask: which step of the walk knows about other positions? (Attention only.) Which step could you skip without an error message? (Any but embed and head, because all others return the shape that they read.)
# The usual wrong answer to the names: "the model first believes that Mia is a boy". Ask what the readout would have to show for that. (Another result for Carlos.)
# To cut for 50 minutes: section 6 from the second table on, and two of the three mistakes in section 8.

# %% [markdown] slide="slide"
# ## 2. One class, many models
# Four models of published courses, GPT-2, Llama, and this course's own: how many different models is that? In the library it is one class and a **config** for each, a record of
# plain choices. A name such as `cs336` stands for some of them, and sizes come on top. This is what they choose:

# %%
FAMILIES = ("cs336", "cs190c", "llama", "modern", "gpt", "gpt2", "tiny_transformer")
CHOICES = ("norm", "position", "rope_layout", "ffn", "qkv_bias", "o_bias", "ffn_bias")
CHOICES += ("qk_norm", "tie_embeddings", "scale_embeddings", "init", "residual_dropout")
configs = {name: preset(name) for name in FAMILIES}


# %% tags=["source-hidden"]
def said(config, choice: str) -> str:
    if choice == "rope_layout" and config.position != "rotary":
        return ""
    value = getattr(config, choice)
    return {True: "yes", False: ""}.get(value, str(value))


# %% tags=["source-hidden"] rows=["S2-3", "S2-7", "S2-8", "S4-8"]
table = [[choice, *(said(config, choice) for config in configs.values())] for choice in CHOICES]
lines = [
    f"{name}: " + ", ".join(f"{row[0]} {row[i + 1]}" for row in table if row[i + 1]) for i, name in enumerate(FAMILIES)
]
card("What each family chooses", [number_table(["", *FAMILIES], table)], "\n".join(lines)).show()

# %% [markdown]
# `gelu_tanh` is GELU's approximation (lesson 08), `qk_norm` puts a small RMSNorm on queries and keys, and `scale_embeddings` is the $\sqrt{C}$ of lesson 06. Four are of the Llama kind, three of the
# GPT kind. `gpt` is close to GPT-2 and not equal to it: GPT-2 has biases in its attention and the other GELU, so its published weights do not fit. `modern` is what this
# course trains. Each is a model that runs, at any size:

# %% rows=["S1-27", "S4-42", "S4-62"] evidence="families"
small = {"vocab_size": 90, "d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 16}
tokens = torch.randint(90, (2, 16))  # (2, 16)
variants = ({}, {"position": "none"}, {"position": "learned"}, {"tie_embeddings": True}, {"init": "xavier"})
for name in FAMILIES:
    assert all(TransformerLM(preset(name, **small, **v))(tokens).shape == (2, 16, 90) for v in variants)


# %% tags=["source-hidden"]
def counted(**choices) -> int:
    return sum(p.numel() for p in TransformerLM(preset("cs336", **small, **choices)).parameters())


changes = {
    "rotary -> sinusoidal": {"position": "sinusoidal"},
    "first weights: cs336 -> xavier": {"init": "xavier"},
    "RMSNorm -> LayerNorm": {"norm": "layer"},
    "no dropout -> dropout": {"residual_dropout": 0.1},
}
predict(
    "Which of these changes the number of parameters?",
    key=lambda: next(name for name, change in changes.items() if counted(**change) != counted()),
    choices={
        "rotary -> sinusoidal": "Both compute their angles from the position: nothing is learned there.",
        "first weights: cs336 -> xavier": "Other numbers in the same places.",
        "RMSNorm -> LayerNorm": "",
        "no dropout -> dropout": "Dropout draws its zeros anew each time; it keeps no weights.",
    },
    because="LayerNorm has an offset for each feature beside the gain.",
)

# %% tags=["source-hidden"] rows=["S0-4"]
print("Each part has its file:")
for name in ("layers", "positions", "feedforward", "attention", "model"):
    file = importlib.import_module(f"tinylm_lib.{name}")
    print(f"{name + '.py':<15} {file.__doc__.split('.')[0]}")

# %% [markdown] slide="slide"
# ## 3. How many parameters?
# "A model of 7 billion parameters": where are they? Count one by hand, with V tokens, width C, inner width F and L layers. We take `gpt` at its usual size, which the table leaves out.

# %% rows=["S2-9", "S4-31", "S4-32"]
V, C, F, L, max_seq_len = 10_000, 256, 1024, 4, 512
token, position = V * C, max_seq_len * C
attention = 4 * C * C  # q, k, v and output, no biases
ffn = 2 * C * F + F + C  # two matrices and their biases
norms = 2 * 2 * C  # two LayerNorms with gain and offset
block = attention + ffn + norms
by_hand = token + position + L * block + 2 * C  # the last: the final norm
print(f"token {token:,}  position {position:,}  attention {attention:,}  ffn {ffn:,}  block {block:,}  all {by_hand:,}")


# %% rows=["S1-26", "S4-30", "S4-33"] evidence="count-by-hand"
def n_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


built = TransformerLM(preset("gpt"))
assert n_parameters(built) == by_hand and n_parameters(built.blocks[0]) == block
assert n_parameters(built.blocks[0]) == sum(n_parameters(part) for part in built.blocks[0].children())

# %% [markdown]
# The formula and the model agree to the last parameter. A block's parameters are those of its parts and no others. The usual slip is small: forget one bias per layer
# and the sum is off by C times L, which nobody notices unless the two are compared. For a model of the Llama kind, without biases, with a head of its own (so 2VC), and with as many key-value heads as heads:
#
# $$N = 2VC + L\,(4C^2 + 3CF + 2C) + C$$

# %% rows=["S0-40"]
V, C, F, L = 10_000, 512, 1365, 6
N = 2 * V * C + L * (4 * C * C + 3 * C * F + 2 * C) + C
assert n_parameters(TransformerLM(preset("cs336"))) == N
print(f"{N:,} parameters; the number of heads does not occur")

# %% tags=["source-hidden"]
predict(
    "We double the width C (and F with it) and keep everything else. What happens to the parameters of a block?",
    key=lambda: (
        "about 4 times as many"
        if 3.9 < (4 * (2 * C) ** 2 + 3 * 4 * C * F + 4 * C) / (4 * C * C + 3 * C * F + 2 * C) < 4.1
        else "?"
    ),
    choices={
        "about twice as many": "A matrix grows in both directions.",
        "about 4 times as many": "",
        "about 8 times as many": "A matrix has two sides, not three.",
    },
    because="Every matrix has both sides doubled. Twice the layers would be twice the blocks.",
)

# %% evidence="square-of-the-width"
with torch.device("meta"):
    narrow = n_parameters(TransformerLM(preset("cs336")).blocks[0])
    wide = n_parameters(TransformerLM(preset("cs336", d_model=2 * C, d_ff=2 * F)).blocks[0])
print(f"a block: {narrow:,} and {wide:,} parameters, {wide / narrow:.2f} times as many")
assert 3.9 < wide / narrow < 4.1

# %% [markdown]
# Published sizes are often rounded, and sometimes wrong. The course note behind `tiny_transformer` names three sizes, and what they come to. We build each on the meta device and count.

# %% rows=["S4-34", "S4-35"]
claims = {"tiny": "150 thousand", "small": "2 to 3 million", "medium": "40 to 50 million"}
with torch.device("meta"):
    for size, claim in claims.items():
        print(f"{size:<7}{n_parameters(TransformerLM(preset('tiny_transformer', size))):>12,}   said to be {claim}")

# %% [markdown]
# And the large ones, as they were announced:

# %% rows=["S2-17"]
real = {"small": ("gpt2", "117 million"), "large": ("gpt2", "774 million"), "3-8b": ("llama", "8 billion")}
with torch.device("meta"):
    for size, (name, claim) in real.items():
        print(f"{name} {size:<7}{n_parameters(TransformerLM(preset(name, size))):>16,}   said to be {claim}")
    gpt3 = preset("gpt2", d_model=12_288, n_layers=96, n_heads=96, max_seq_len=2048)
    print(f"{'gpt3':<13}{n_parameters(TransformerLM(gpt3)):>15,}   said to be 175 billion")

# %% [markdown]
# The medium model is a seventh of what was said. GPT-2's smallest has 7 million parameters more than the 117 announced; the others fit. GPT-3's sizes are published (Brown et al. 2020, section 2.1); for
# models whose makers publish none, every number you read is a guess.

# %% [markdown] slide="slide"
# ## 4. One matrix, two jobs
# The embedding has a row for each token. The head has a row for each token, too. Could they be the same rows?
#
# What the head does is a comparison: the logit of a token is the dot product of the final vector and the token's row. For three tokens of the shipped model, by hand:

# %%
final = h[0, -1].tolist()  # (C)
for word in (" held", " had", " spoon"):
    token = tokenizer.encode(word)[0]
    logit = sum(a * b for a, b in zip(final, model.lm_head.weight[token].tolist(), strict=True))
    print(f"{word:>7}: {logit:6.2f} by hand, {logits[0, -1, token]:6.2f} in the logits")

# %% [markdown]
# As head, a token's row should point where the final vectors point when that token comes next. As embedding, it should say what the token means. Both are facts about the same word, so many models use
# one matrix for both: the head is **tied** to the embedding (Press and Wolf 2017).

# %% rows=["S4-10", "S4-13", "S4-44"] evidence="tied"
tied = TransformerLM(preset("gpt", vocab_size=1000))
untied = TransformerLM(preset("gpt", vocab_size=1000, tie_embeddings=False))
assert tied.lm_head is None and "lm_head.weight" not in tied.state_dict()
assert n_parameters(untied) - n_parameters(tied) == untied.lm_head.weight.numel() == 1000 * 256


# %% tags=["source-hidden"]
def rows_with_gradient(model: TransformerLM) -> int:
    batch = torch.arange(12)[None]  # (1, T)
    cross_entropy(model(batch)[0], batch[0].roll(-1)).backward()
    return int((model.embed.weight.grad.norm(dim=1) > 0).sum())


predict(
    "A batch holds 12 different tokens of a vocabulary of 1000. After one backward pass, how many rows of the one matrix of a tied model have a gradient?",
    key=lambda: rows_with_gradient(tied),
    number="rows",
    within=0,
    feedback={12: "So it is for an embedding that only reads. This one is also the head."},
    because="As head, each row gave a logit, and the softmax pushes on all logits.",
)

# %% evidence="every-row"
print("untied, the embedding alone:", rows_with_gradient(untied), "rows")
assert rows_with_gradient(tied) == 1000

# %% [markdown]
# So every row of a tied embedding has a gradient in every update, even those of rare words. (AdamW's weight decay, lesson 11, also moves the rows of an untied embedding that have no gradient.) And tying saves memory. How much depends on how large the vocabulary is beside the rest:

# %% rows=["S4-14"]
with torch.device("meta"):
    for name, size in (("gpt", "example"), ("tiny_transformer", "example"), ("gpt2", "small"), ("llama", "3-8b")):
        two, one = (n_parameters(TransformerLM(preset(name, size, tie_embeddings=tie))) for tie in (False, True))
        print(f"{name:<17}{size:<8} untied {two:>13,}  tied {one:>13,}  saves {(two - one) / two:.1%}")

# %% rows=["S4-11", "S4-12"]
bert, table = 110e6, 30_000 * 768  # BERT-base as published, tied: Devlin et al. 2019
print(f"BERT-base untied: {(bert + table) / 1e6:.0f} million, tying saves {table / (bert + table):.0%} of them")
for what, apart, shared in (("large, 66 -> 51 million", 78.4, 74.3), ("small, 4.65 -> 2.65 million", 114.5, 112.4)):
    print(f"an older kind of model, {what}: perplexity {apart} -> {shared}, {(shared - apart) / apart:+.1%}")

# %% [markdown]
# The last two lines are from Press and Wolf (2017); **perplexity** is $e$ to the loss, so lower is better. With fewer parameters the models got better, the large one more than the small one. That is no
# law: the small Llama of the table is tied, the one of 8 billion is not, and `modern` is not either (lesson 14 measures what that is worth).
#
# **Tying means one tensor, not two equal ones.** PyTorch refuses a bare copy, but not one that is wrapped as a parameter:

# %%
head = nn.Linear(256, 1000, bias=False)
try:
    head.weight = tied.embed.weight.clone()
except TypeError as error:
    print("refused:", str(error).split(" (")[0])
head.weight = nn.Parameter(tied.embed.weight.clone())
print("equal:", torch.equal(head.weight, tied.embed.weight), " one tensor:", head.weight is tied.embed.weight)

# %% [markdown]
# Equal today, different after the first update, and no message. So the library keeps no second name at all: without `lm_head` it multiplies by `embed.weight`.
#
# And no bias on the head? A bias could hold how frequent each token is, alike at every position. Without one that must be in the vectors, which is what most decoders do; BERT ties *and* has a bias.

# %% rows=["S4-9", "S4-47"]
assert untied.lm_head.bias is None
assert all("bias" not in name for name in model.state_dict())  # and none anywhere else in `modern`

# %% [markdown] slide="slide"
# ## 5. First weights, first words
# Before training, what should the weights be? Drawn at random, with a mean of 0; the recipes differ in the spread. For a map from 512 to 2048 features:

# %%
by_both, by_input = math.sqrt(2 / (512 + 2048)), math.sqrt(2 / 512)
formulas = {"normal": 0.02, "gpt2": 0.02, "xavier": by_both, "cs336": by_both, "kaiming": by_input}
formulas["zero_residual"] = math.sqrt(1 / 512)

# %% rows=["S4-16", "S4-17", "S4-18", "S4-19", "S4-20"]
deep = {"vocab_size": 100, "n_layers": 2, "n_heads": 8, "d_model": 512, "tie_embeddings": False}
for name, std in formulas.items():
    layer = TransformerLM(preset("gpt", **deep, init=name)).blocks[0]
    up, into_stream = layer.ffn.up_proj.weight.std(), layer.ffn.down_proj.weight.std()
    print(f"{name:<14} formula {std:.4f}  measured {up:.4f}   map back into the stream {into_stream:.4f}")

# %% [markdown]
# Xavier (Glorot and Bengio 2010) balances both sides: the variance is 2 over in plus out. Kaiming (He et al. 2015) looks at the input side alone, 2 over in; so the map back, from 2048, has less. `zero_residual` takes
# 1 over in, and 0 for the maps that write into the stream. `gpt2` makes these smaller, by the root of how many there are. `cs336` cuts off what lies beyond three standard deviations, and loses a little spread by it.
#
# Why treat the maps into the stream apart? Watch the stream of 12 layers before any training.


# %%
def stream_sizes(init: str, seed: int) -> list[float]:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 200, "d_model": 128, "n_heads": 4, "n_layers": 12, "tie_embeddings": False}
    caught = capture(TransformerLM(preset("gpt", **sizes, init=init)), torch.randint(200, (2, 16)))
    places = ["position", *(f"blocks.{i}" for i in range(12))]
    return [caught.outputs[place].std().item() for place in places]


# %% evidence="first-weights"
recipes = ("kaiming", "xavier", "normal", "gpt2", "zero_residual")
courses = {init: torch.tensor([stream_sizes(init, seed) for seed in range(3)]).mean(0).tolist() for init in recipes}
for faster, slower in pairwise(recipes):
    assert courses[faster][-1] / courses[faster][0] > 1.3 * courses[slower][-1] / courses[slower][0]

# %% tags=["source-hidden"] rows=["S4-15"]
layers = list(range(13))
with figures.axes("First weights affect how the stream grows", "after layer", "standard deviation") as (figure, ax):
    for init, sizes in courses.items():
        (line,) = ax.plot(layers, sizes)
        ax.text(12.2, sizes[-1], init, va="center", color=line.get_color())
    ax.set_yscale("log")
    ax.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    ax.set(xlim=(0, 15.4), xticks=[0, 2, 4, 6, 8, 10, 12])
figures.display(
    figure,
    alt="Line chart, logarithmic: over 12 layers the stream grows most with kaiming, then xavier, then normal, little with gpt2, and not at all with zero_residual.",
    caption="Mean of 3 seeds; 0 is the stream before the first layer. Small maps into the stream keep it nearly flat, and with zeros every block starts as the identity.",
    table={"after layer": layers[::3], **{init: sizes[::3] for init, sizes in courses.items()}},
    digits=2,
)

# %% [markdown]
# `normal` grows to about 8 times its size in 12 layers, `gpt2` to twice. In a stream that has grown, what one more untrained layer adds weighs little beside what is there (lesson 09).
#
# ### What an untrained model says
# The model of section 3, untrained, and random tokens:

# %% rows=["S2-10"]
torch.manual_seed(10)
fresh = TransformerLM(preset("gpt")).eval()
tokens = torch.randint(10_000, (8, 256))  # (8, 256)
with torch.no_grad():
    fresh_logits = fresh(tokens)  # (8, 256) -> (8, 256, 10000)
assert fresh_logits.shape == (8, 256, 10_000)

# %% rows=["S2-12"]
shares, best = fresh_logits[0, -1].softmax(-1).topk(5)
print("top 5:", [f"token {i}: {share:.4f}" for i, share in zip(best.tolist(), shares.tolist(), strict=True)])
print(f"an equal share would be {1 / 10_000}")

# %%
spread, equal = fresh_logits.std().item(), math.log(10_000)
loss = cross_entropy(fresh_logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).item()
print(f"loss {loss:.2f}; ln V is {equal:.2f}, and ln V + spread^2 / 2 is {equal + spread**2 / 2:.2f}")

# %% [markdown]
# Nearly equal shares, not quite: the logits have a spread of their own, and a random opinion costs a little more than none (lesson 03).
#
# The `.eval()` matters: in training mode dropout throws away other numbers at each call.

# %%
with torch.no_grad():
    for training in (True, False):
        fresh.train(training)
        print(f"training mode {training}: two calls differ by up to {(fresh(tokens) - fresh(tokens)).abs().max():.1f}")

# %% [markdown] slide="slide"
# ## 6. How large should it be?
# What does it take to train N parameters? In fp32 each has its value, its gradient, and two moments of AdamW (lesson 11): 4 numbers of 4 bytes. That is before a single text. In the forward
# pass everything that the backward pass needs is kept as well, the **activations**. We count both:


# %% tags=["source-hidden"]
def kept_bytes(config, batch: int, length: int) -> int:
    """What the backward pass keeps of the forward pass, counted on the meta device, without a fused attention kernel."""
    with torch.device("meta"):
        model, ids = TransformerLM(config), torch.zeros(batch, length, dtype=torch.long)
    own = {x.untyped_storage()._cdata for x in [*model.parameters(), *model.buffers()]}
    kept = {}

    def keep_storage(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage()._cdata] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep_storage, lambda x: x):
        cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    return sum(storage.nbytes() for name, storage in kept.items() if name not in own)


# %% rows=["S4-37"] evidence="bytes"
for size in ("tiny", "small", "medium"):
    config = preset("tiny_transformer", size)
    with torch.device("meta"):
        N = n_parameters(TransformerLM(config))
    texts = kept_bytes(config, 8, 128)
    print(f"{size:<7} {N:>9,} parameters: {16 * N / 1e6:5.1f} MB, and {texts / 1e6:5.1f} MB", end=" ")
    print(f"for 8 texts of 128 tokens, {texts / (16 * N):.1f} times as much")
    assert texts > 16 * N
print(f"1 billion parameters: {16 * 1e9 / 1e9:.0f} GB before the first text")
print(f"logits of 32 texts of 128 tokens with V = 10,000: {32 * 128 * 10_000 * 4 / 1e6:.0f} MB")

# %% [markdown]
# In these three models the activations of 8 texts need more memory than the parameters with their gradients and moments. How much they need depends on the batch and on the length as well as on the model, so make the batch smaller first. (On a real device less is kept, where one kernel computes attention without storing its T by T weights.)
#
# Where are the parameters, and how do these bytes grow? Choose a larger model, then move the sliders: inference keeps weights and the keys and values of the text (lesson 13).

# %%
memory_view({"shipped": model.config})

# %% [markdown]
# Within a family, a wider model has a smaller share of its parameters in the token table. The KV cache grows with the context and with the batch, the weights with neither.
#
# ### Deep or wide?
# With F = 4C a block holds $4C^2$ in attention and $8C^2$ in its feed-forward. A course note calls these three equally large:

# %% rows=["S4-5"]
for name, width, depth in (("I", 512, 12), ("II", 2048, 3), ("III", 256, 24)):
    print(f"{name:<3} C {width:>4}, L {depth:>2}: {12 * depth * width**2 / 1e6:6.1f} million in the blocks")

# %% [markdown]
# They are not. So how to choose? By what you have, in this order. **Memory** gives the largest N. **Time** gives the tokens you can read. The **text** decides what is worth it: more parameters than it
# can teach are wasted (lesson 15 measures that). Then take a shape in the middle: depth and width that grow together, F by its ratio (lesson 08), heads as others have them (lesson 07).

# %% rows=["S4-36"]
for memory in (8e9, 16e9, 80e9):
    print(f"{memory / 1e9:2.0f} GB, half of it for the model: at most {memory / 2 / 16 / 1e6:,.0f} million parameters")
config = preset("gpt2")
with torch.device("meta"):
    work = training_flops(config, batch_size=1, seq_len=1024) / 1024 / n_parameters(TransformerLM(config))
print(f"GPT-2 small: {work:.1f} FLOPs per token and parameter")

# %% [markdown]
# A multiplication and an addition for each parameter forward, twice that backward, and the attention scores on top: a little more than 6. So your machine's FLOPs per second, times the time you have, divided by 6N, are the tokens that you can read.

# %% [markdown] tags=["note"]
# The question that always comes: "why does my small model run out of memory?" Go through the lines of the table: 16 bytes for each parameter, and then the activations of 8 short texts, which need
# 1.7 times as much for the medium model and 6.8 times as much for the tiny one. A usual wrong answer is "the weights need 4 bytes each, so it fits".

# %% [markdown] slide="slide"
# ## 7. Your turn
# Count the parameters of any config. Section 3 counted two; now the flags decide. `config` has the fields of the table in section 2, and the sizes `vocab_size`, `max_seq_len`, `d_model`, `n_layers`,
# `n_heads`, `n_kv_heads`, `d_head` and `d_ff`.


# %% tags=["exercise"] name="count_parameters" minutes=16 difficulty=3
def count_parameters(config):
    """All parameters of a pre-norm model, as a whole number. config: a ModelConfig.

    Keys and values have n_kv_heads heads of d_head features, queries n_heads. `qkv_bias`, `o_bias` and `ffn_bias` say which
    maps have a bias: one for each matrix, as long as its outputs. The head has none, and with `tie_embeddings` the head is
    the embedding. norm "rms" has gains, "layer" gains and offsets: two in a block, one at the end.
    With `qk_norm` queries and keys have an RMSNorm each, as wide as one head. ffn "swiglu" has three matrices, "gelu" and
    "gelu_tanh" two. position "learned" has a row for each of max_seq_len positions; the other kinds have nothing.
    """
    # SOLUTION
    C, D, F, V = config.d_model, config.d_head, config.d_ff, config.vocab_size
    H, G = config.n_heads, config.n_kv_heads
    attention = 2 * C * H * D + 2 * C * G * D
    attention += config.qkv_bias * (H + 2 * G) * D + config.o_bias * C + config.qk_norm * 2 * D
    matrices = 3 if config.ffn == "swiglu" else 2
    ffn = matrices * C * F + config.ffn_bias * ((matrices - 1) * F + C)
    norm = C if config.norm == "rms" else 2 * C
    total = V * C + config.n_layers * (attention + ffn + 2 * norm) + norm
    if config.position == "learned":
        total += config.max_seq_len * C
    return total if config.tie_embeddings else total + V * C
    # END


# %% tags=["check"]
if check("count_parameters", count_parameters).passed:
    keep("count_parameters", count_parameters)

# %%
hint("count_parameters")

# %% [markdown] tags=["solution"]
# Go through the model once and write down each matrix as (out) times (in): a bias is as long as the matrix's outputs. The usual slips: the output bias of the feed-forward, LayerNorm's
# offset, the final norm, the tied head counted twice, and positions that are computed (rotary, sinusoidal) counted as if learned.


# %% tags=["exercise"] name="tied_logits" minutes=6 difficulty=1
def tied_logits(x, embedding_weight):
    """x (..., C) final vectors, embedding_weight (V, C): a row for each token. Returns (..., V), the logits."""
    # SOLUTION
    return x @ embedding_weight.T
    # END


# %% tags=["check"]
if check("tied_logits", tied_logits).passed:
    keep("tied_logits", tied_logits)

# %%
hint("tied_logits")

# %% [markdown] tags=["solution"]
# One dot product with each row: the matrix is used as a linear map from C to V, stored (out, in) as in lesson 02. With as many tokens as features a forgotten transpose raises no error.


# %% tags=["exercise"] name="init_weights" minutes=14 difficulty=2
def init_weights(module, std):
    """Fill all weights inside `module`, the module itself included, in place: no tensor is replaced. Returns nothing.

    nn.Linear and nn.Embedding: weights N(0, std^2), biases 0. Norms (nn.LayerNorm, nn.RMSNorm) are left alone: their gains
    are 1 already, their offsets 0.
    """
    # SOLUTION
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
    # END


# %% tags=["check"]
if check("init_weights", init_weights).passed:
    keep("init_weights", init_weights)

# %%
hint("init_weights")

# %% [markdown] tags=["solution"]
# `modules()` goes through all depths and begins with the module itself. What decides is the *kind* of part, not the number of dimensions: a loop over `parameters()` that draws everything at
# random spoils the gains (section 8). A head without a bias has `bias` None.

# %% [markdown] slide="subslide"
# ### The library's version
# The count agrees with every family of the table. `TransformerLM` is the loop of section 1, with checks in front; skip its cache (lesson 13) and its padding (prompts of different length).

# %%
from tinylm_lib.cost import count_parameters as library_count

for name in FAMILIES:
    with torch.device("meta"):
        assert library_count(configs[name]).total == n_parameters(TransformerLM(configs[name]))
show(library_count)
show(TransformerLM)

# %% [markdown]
# ### A model of your parts
# `build` makes a model that calls the functions you kept, since lesson 02, and the library's where there is none. It takes the weights of the shipped model, and writes.

# %%
mine = build(model.config)
mine.load_state_dict(model.state_dict())
using(mine)

# %% evidence="your-parts"
begun = torch.tensor([tokenizer.encode("\nOne")])  # (1, 2)
torch.testing.assert_close(mine(begun), model(begun), atol=1e-2, rtol=1e-2)
written = generate(mine, begun, max_new_tokens=36, temperature=0)
print(tokenizer.decode(written[0].tolist()).strip())

# %% [markdown]
# If all but the last are yours, this is your model: its parts ran in your code. (`cached_attention` is lesson 13's. `tied_logits` and `init_weights` are not in the list: the shipped model is not tied, and its
# weights are loaded.)

# %% [markdown] slide="slide"
# ## 8. Break it: spoiled gains
# The function of a course note draws *all* parameters from $N(0, 0.02^2)$, the gains of the norms, too. Does the first loss show this mistake?


# %%
def untrained(spoil: bool) -> TransformerLM:
    torch.manual_seed(1)
    m = TransformerLM(preset("tiny_transformer", "tiny", embedding_dropout=0.0, residual_dropout=0.0))
    for p in m.parameters() if spoil else ():
        nn.init.normal_(p, std=0.02)
    return m


def losses_of(name: str, m: TransformerLM, batch: torch.Tensor) -> list[float]:
    optimizer, losses = torch.optim.AdamW(m.parameters(), lr=3e-3), []
    for _ in range(51):
        loss = cross_entropy(m(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            print(f"{name:<8} gradient of a first-layer matrix: {m.blocks[0].ffn.up_proj.weight.grad.norm():.0e}")
        losses.append(loss.item())
        optimizer.step()
    return losses


# %%
batch = torch.randint(500, (16, 32))
right, spoiled = (losses_of(name, untrained(name == "spoiled"), batch) for name in ("right", "spoiled"))

# %% tags=["source-hidden"]
predict(
    f"ln 500 is {math.log(500):.3f}. Whose first loss is nearer to it?",
    key=lambda: (
        "the spoiled model's"
        if abs(spoiled[0] - math.log(500)) < abs(right[0] - math.log(500))
        else "the right model's"
    ),
    choices={
        "the right model's": "Its logits have a spread of their own, and that costs a little. The other's are nearly 0.",
        "the spoiled model's": "",
    },
    because="With gains near 0 the final norm silences everything: all logits are nearly 0, and the shares nearly equal.",
)

# %% evidence="spoiled-gains"
for name, losses in (("right", right), ("spoiled", spoiled)):
    print(f"{name:<8} first loss {losses[0]:.2f}, after 50 updates {learned(losses[-1], 0.1, 5.5)}")
assert abs(spoiled[0] - math.log(500)) < abs(right[0] - math.log(500))
assert spoiled[-1] > right[-1] + 2

# %% [markdown]
# A first loss near ln V shows that the model has no opinion yet, but not how soon it learns: the spoiled model starts nearer to ln V and is far behind after 50 updates. So look at the gradients, too. (There is one batch and one seed, and the right model has learned the batch by heart. This does not show that the spoiled model never learns it: try more updates.)
#
# ### One block, six times
# `[block] * n` makes a list of n references to *one* block.

# %%
one = TransformerLM(preset("gpt", vocab_size=100)).blocks[0]
shared, apart = nn.ModuleList([one] * 6), nn.ModuleList(type(one)(preset("gpt", vocab_size=100)) for _ in range(6))
print(
    f"shared: {n_parameters(shared):,} parameters, apart: {n_parameters(apart):,}; both list {len(shared.state_dict())} tensors"
)

# %% [markdown]
# Both checkpoints list the same tensors. The number of parameters shows the mistake.
#
# ### An untrained model that knows the answer
# `tiny_transformer` multiplies its embeddings by $\sqrt{C}$ and is tied. What does it predict before training?

# %%
torch.manual_seed(10)
echo = TransformerLM(preset("tiny_transformer", n_layers=2)).eval()
read = torch.randint(10_000, (2, 16))  # (2, 16)
with torch.no_grad():
    echoed, others = echo(read), fresh(read)
for name, scores in (("tiny_transformer", echoed), ("gpt", others)):
    print(f"{name} guesses the token it just read {(scores.argmax(-1) == read).float().mean():.0%} of the time")
next_one, same_one = cross_entropy(echoed[:, :-1].mT, read[:, 1:]), cross_entropy(echoed.mT, read)
print(f"loss of the first on the next token {next_one:.1f}, on the token itself {same_one:.1f}")

# %% [markdown]
# Multiplied by $\sqrt{C}$, the row of the token just read outweighs all that the blocks add, and the head compares with that same row. Whoever forgets to shift the targets by one sees a fine low loss from the first step. Lesson 11 is about that shift.
#
# ## What you have now
# - A language model: embedding, blocks, final norm and head. [[forward-pass]] It gives the same logits when it runs on the functions that you kept. [[your-parts]] From the embedding to the final norm each layer returns the shape (B, T, C). [[shapes]]
# - The logit lens reads the stream after any block with the last norm and the head. What it reads early need not be what the model computes: in this model the last block fetches the gender. [[same-for-all-names]] [[block-3-fetches-the-gender]]
# - One class runs each of the seven configs of section 2. [[families]]
# - A count of the parameters that agrees with the built model exactly. [[count-by-hand]] If the width and the inner width are doubled, a block has about four times as many. [[square-of-the-width]]
# - In a tied model the embedding and the head are one tensor [[tied]], and each of its rows has a gradient after one backward pass. [[every-row]]
# - In a pre-norm model of a given shape, the first weights strongly affect how fast the stream grows before training. [[first-weights]] A model with spoiled gains starts nearer to ln V and yet learns later, which the first loss does not show. [[spoiled-gains]]
# - Training in fp32 with AdamW takes 16 bytes for each parameter, and the activations in addition. For the 8 short texts of section 6 they need more than the parameters in its three models. [[bytes]]

# %% rows=["S0-43", "S2-18", "S4-57"]
print(f"complete, but untrained: {loss:.1f} nats per token; equal shares would cost {equal:.1f}")

# %% [markdown]
# What is missing is all that makes it know: text, a loss and updates. Next, lesson 11: training.
#
# ## Sources
# - GPT-2's first weights and sizes: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, sections 2.3 and 3.
# - Tying: Press and Wolf 2017, *Using the Output Embedding to Improve Language Models*.
# - Reading the stream early: nostalgebraist 2020, *interpreting GPT: the logit lens*. Exchanging vectors: Vig et al. 2020, *Investigating Gender Bias in Language Models Using Causal Mediation Analysis*.
# - Xavier: Glorot and Bengio 2010, *Understanding the difficulty of training deep feedforward neural networks*, equation 16.
# - Kaiming: He et al. 2015, *Delving Deep into Rectifiers*, equation 10.
# - GPT-3: Brown et al. 2020, *Language Models are Few-Shot Learners*, section 2.1. BERT: Devlin et al. 2019, *BERT: Pre-training of Deep Bidirectional Transformers*.
