# %% [markdown]
# # 10 Choices
# **In which choices do published models differ, and which mistakes in them raise no error?**
#
# *Needs* lesson 10. *Runs* in about 20 s on two cores.

# %%
import torch

from tinylm_lib import TransformerLM, preset
from tinylm_lib.cost import count_parameters

# %% [markdown]
# ## 1. One class, many models
# Published courses, GPT-2, Llama and this course's own model are one class. A **config** records the choices:

# %% rows=["S2-3", "S2-7", "S2-8", "S4-8", "S1-27", "S4-42", "S4-62"] evidence="families" tried="exact"
small = {"vocab_size": 90, "d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 16}
variants = ({}, {"position": "none"}, {"position": "learned"}, {"tie_embeddings": True}, {"init": "xavier"})
for name in ("cs336", "cs190c", "llama", "modern", "gpt", "gpt2", "tiny_transformer"):
    c = preset(name)
    head = "tied" if c.tie_embeddings else "a head of its own"
    print(f"{name:<17}{c.norm:<6}{c.position:<11}{c.ffn:<10}{c.init:<14}{head}")
    for variant in variants:
        lm = TransformerLM(preset(name, **small, **variant))
        assert lm(torch.zeros(2, 16, dtype=torch.long)).shape == (2, 16, 90)

# %% [markdown]
# Each family runs, also with one choice exchanged. [[families]] Four are of the Llama kind, with RMSNorm, rotary positions and SwiGLU, and three of the GPT kind. Each part has a file of its own:

# %% tags=["source-hidden"] rows=["S0-4"]
from importlib import import_module

for name in ("layers", "positions", "feedforward", "attention", "model"):
    file = import_module(f"tinylm_lib.{name}")
    print(f"{name + '.py':<15} {file.__doc__.split('.')[0]}")

# %% [markdown]
# Here is the shipped model at work, with real numbers. Open each block, and find the only step that connects different positions.

# %% rows=["S0-41", "S1-2", "S2-2", "S4-2"]
from tinylm_classroom import one_word
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
one_word(model, tokenizer, "\nOne sunny day, brave Mia had a red kite.")

# %% [markdown]
# ## 2. One matrix, two jobs
# The embedding has a row for each token, and so does the head. A model can be trained with one matrix as both: its head is **tied** ([Press and Wolf 2017](https://arxiv.org/abs/1608.05859)). A batch has 12 different tokens of 1000:

# %%
from torch.nn.functional import cross_entropy


def rows_with_gradient(tie):
    lm = TransformerLM(preset("gpt", vocab_size=1000, tie_embeddings=tie))
    batch = torch.arange(12)[None]  # (1, T)
    cross_entropy(lm(batch)[0], batch[0].roll(-1)).backward()
    return int((lm.embed.weight.grad.norm(dim=1) > 0).sum())


# %% tags=["source-hidden"]
from tinylm_classroom import predict

predict(
    "After one backward pass of a tied model, how many of the 1000 rows have a gradient?",
    key=lambda: rows_with_gradient(tie=True),
    number="rows",
    within=0,
    feedback={12: "That is true of an embedding that is only read. This one is also the head."},
    because="As the head, each row gave a logit, and through the softmax every logit gets a gradient.",
)

# %% rows=["S4-10", "S4-13", "S4-44"] evidence="every-row" tried="exact"
print("tied:", rows_with_gradient(tie=True), " untied, the embedding:", rows_with_gradient(tie=False))
assert rows_with_gradient(tie=True) == 1000 and rows_with_gradient(tie=False) == 12

# %% [markdown]
# Every row of a tied matrix has a gradient in every update, also the rows of words that the batch does not contain. [[every-row]] Are the two jobs alike? The shipped model has two matrices. We use its embedding as its head:

# %% evidence="not-interchangeable" tried="held-out"
from math import log

from tinylm_classroom import capture
from tinylm_lib import storyworld

for seed in (1, 2, 3):
    generator = torch.Generator().manual_seed(seed)
    texts = [storyworld.story(generator).text for _ in range(40)]
    ids = torch.tensor([tokenizer.encode("\n" + text)[:64] for text in texts])  # (B, T)
    last = capture(model, ids).outputs["final_norm"][:, :-1]  # (B, T - 1, C)
    found = [cross_entropy((last @ w.T).mT, ids[:, 1:]).item() for w in (model.lm_head.weight, model.embed.weight)]
    print(f"ln 345 = {log(345):.2f}; loss with its head {found[0]:.1f}, with its embedding as the head {found[1]:.1f}")
    assert found[1] > log(345) > 3 * found[0]

# %% [markdown]
# That is worse than equal probabilities would be: trained apart, the two matrices cannot replace each other. [[not-interchangeable]] What does tying save?

# %% rows=["S4-14", "S4-11", "S4-12"] evidence="tying-saves" tried="exact"
saved = []
for family, size in (("gpt2", "small"), ("gpt2", "xl"), ("llama", "3.2-1b"), ("llama", "3-8b")):
    untied, tied = (count_parameters(preset(family, size, tie_embeddings=tie)).total for tie in (False, True))
    saved.append(1 - tied / untied)
    print(f"{family:>5} {size:<7} untied {untied:>13,}  tied {tied:>13,}  saves {saved[-1]:.0%}")
assert saved[0] > saved[1] and saved[2] > saved[3]

# %% [markdown]
# Within a family the larger model saves the smaller fraction. [[tying-saves]] So small models are often tied (Llama 3.2 1B is), and large ones often not (Llama 3 8B). A trap: **tied means one tensor, not two equal ones.**

# %% evidence="one-tensor" tried="exact"
embed, head = torch.nn.Embedding(1000, 256), torch.nn.Linear(256, 1000, bias=False)
head.weight = torch.nn.Parameter(embed.weight.clone())
print("equal:", torch.equal(head.weight, embed.weight), " one tensor:", head.weight is embed.weight)
embed.weight.data[0] += 1  # as an update would
assert not torch.equal(head.weight, embed.weight)

# %% [markdown]
# They are equal until the first update, and no error is raised. [[one-tensor]] So the library keeps no second name: without `lm_head` it multiplies by `embed.weight`.
#
# ## 3. First weights
# Before training, weights are random, with a mean of 0. How far should they spread? For a map from 512 to 2048 features, and one back into the stream:

# %% rows=["S4-16", "S4-18", "S4-20"] evidence="recipes" tried="exact"
formulas = {"normal": 0.02, "gpt2": 0.02, "xavier": (2 / 2560) ** 0.5, "cs336": (2 / 2560) ** 0.5}
formulas |= {"kaiming": (2 / 512) ** 0.5, "zero_residual": (1 / 512) ** 0.5}
for name, std in formulas.items():
    ffn = TransformerLM(preset("gpt", vocab_size=9, n_layers=1, n_heads=8, d_model=512, init=name)).blocks[0].ffn
    up, back = ffn.up_proj.weight.std().item(), ffn.down_proj.weight.std().item()
    print(f"{name:<14} formula {std:.3f}  measured / formula {up / std:.2f}  back {back:.3f}")
    assert abs(up / std - 1) < 0.02

# %% [markdown]
# Each recipe is what its formula says. [[recipes]] *Xavier* has the variance 2/(in + out), *Kaiming* 2/in, `zero_residual` LeCun's 1/in, and 0 for the maps back; `gpt2` makes these smaller by the root of their number. Measure it: a recipe that is ignored raises no error.
#
# Why 2/in? Each output is a sum of *in* products, so a variance of 1/in keeps the size. But ReLU removes half of the squares:


# %%
def size_after(factor, activation, seed):
    torch.manual_seed(seed)
    x = torch.randn(200, 512)
    for _ in range(10):
        x = activation(x @ torch.randn(512, 512).mul((factor / 512) ** 0.5))  # (200, 512)
    return x.square().mean().sqrt().item()


# %% rows=["S4-17"] evidence="factor-2" tried="seeds"
SEEDS = (10, 11, 12)
for name, activation in {"ReLU": torch.relu, "none": lambda x: x}.items():
    one, two = ([size_after(factor, activation, seed) for seed in SEEDS] for factor in (1, 2))
    print(f"{name:<5} after 10 maps: with 1/in {sum(one) / 3:5.2f}, with 2/in {sum(two) / 3:5.2f}")
    assert max(one) < 0.1 < 0.6 < min(two) < 1.6 if name == "ReLU" else 0.6 < min(one) < 1.6 < 20 < min(two)

# %% [markdown]
# With ReLU 2/in keeps the size, and without an activation function 1/in. [[factor-2]] What does the recipe do to the stream of 12 layers?

# %% tags=["signature"] rows=["S4-15"]
from tinylm_classroom import model_figures, stream_sizes

recipes = ("kaiming", "xavier", "normal", "gpt2", "zero_residual")
sizes = {init: [stream_sizes(init, seed) for seed in SEEDS] for init in recipes}
model_figures.growth(sizes)

# %% tags=["source-hidden"] evidence="first-weights" tried="seeds"
# Checked: with every seed each recipe grows more than the next one.
growth = [[course[-1] / course[0] for course in courses] for courses in sizes.values()]
assert all(min(growth[i]) > 1.2 * max(growth[i + 1]) for i in range(4))

# %% [markdown]
# `kaiming` grows most, `gpt2` little, and `zero_residual` not at all: there every block starts as the identity. [[first-weights]]
#
# A common mistake draws *all* parameters at random, also the gains of the norms, which should be 1. Can you see it in the first loss? We overfit one batch of eight stories:

# %% rows=["S4-19"] evidence="spoiled-gains" tried="seeds"
from tinylm_classroom import learned, overfit

runs = {
    spoiled: [overfit(model.config, ids[:8, :41], spoiled=spoiled, seed=seed) for seed in SEEDS]
    for spoiled in (False, True)
}
for spoiled, found in runs.items():
    ends = ", ".join(learned(run.last, 0, 6) for run in found)
    print(
        f"spoiled {spoiled!s:<6} first loss {found[0].first:.2f}, after 51 updates {ends}; gradient {found[0].gradient:.0e}"
    )
assert all(abs(run.first - log(345)) < 0.05 for run in runs[True])
assert min(run.last for run in runs[True]) > 0.5 + max(run.last for run in runs[False])

# %% [markdown]
# The first loss of the spoiled model is that of equal probabilities, lower than that of the right one, and at the end it is far behind. [[spoiled-gains]] Gains near 0 make all logits nearly 0, and the gradient small. So a good first loss is not enough: look at the gradients, too.
#
# ## 4. Bytes and counts
# Training keeps 16 bytes for each parameter in fp32, and the **activations**: what the backward pass needs of the forward pass. For 8 texts of 128 tokens:

# %% rows=["S4-37", "S4-34", "S4-35"] evidence="bytes" tried="exact"
from tinylm_classroom import kept_bytes

for size in ("tiny", "small", "medium"):
    n, kept = (
        count_parameters(preset("tiny_transformer", size)).total,
        kept_bytes(preset("tiny_transformer", size), 8, 128),
    )
    print(f"{size:<7} {n:>9,} parameters: {16 * n / 1e6:5.1f} MB, activations {kept / 1e6:5.1f} MB")
    assert kept > 16 * n

# %% [markdown]
# The same for your model and four published ones; open each bar's table for the parts:

# %%
from tinylm_classroom import memory_view

memory_view()

# %% rows=["S4-36", "S4-9", "S4-47"]
from tinylm_lib.cost import training_flops

gpt2 = preset("gpt2")
flops = training_flops(gpt2, batch_size=1, seq_len=1024) / 1024 / count_parameters(gpt2).total
print(f"GPT-2 small: {flops:.1f} FLOPs per token and parameter in training")

# %% [markdown]
# In these models the activations of 8 short texts need more memory than everything that belongs to the parameters. [[bytes]] They grow with the batch and the length, so make the batch smaller first. The FLOPs are a little more than 6: 2 forward, 4 backward, and the attention scores.
#
# Now counts that go wrong. A table of positions that is computed is not a parameter, a width counts twice, and `[block] * 6` is one block:

# %% rows=["S4-31", "S4-5"]
for kind in ("sinusoidal", "learned"):
    counts = [
        count_parameters(preset("tiny_transformer", position=kind, tie_embeddings=tie)).total for tie in (True, False)
    ]
    print(f"tiny_transformer, {kind:<10}: tied {counts[0]:,}, untied {counts[1]:,}")
for layers, width in ((12, 512), (3, 2048), (24, 256)):
    print(f"{layers:>2} layers of width {width:>4}: {12 * layers * width**2 / 1e6:5.1f} million in the blocks")

# %% evidence="one-block" tried="exact"
block = TransformerLM(preset("gpt", vocab_size=9)).blocks[0]
six = torch.nn.ModuleList(type(block)(preset("gpt", vocab_size=9)) for _ in range(6))
for name, blocks in {"six blocks": six, "[block] * 6": torch.nn.ModuleList([block] * 6)}.items():
    print(
        f"{name:<12} {sum(p.numel() for p in blocks.parameters()):>9,} parameters, {len(blocks.state_dict())} tensors"
    )
assert len(blocks.state_dict()) == len(six.state_dict()) and blocks[0] is blocks[5]

# %% [markdown]
# The checkpoints list the same number of tensors; only the count of parameters shows the mistake. [[one-block]]
#
# ## 5. An untrained model that repeats its input
# `tiny_transformer` multiplies its embeddings by $\sqrt{C}$, and its head is tied. What does it predict before training?

# %% rows=["S2-10", "S2-12"] evidence="echo" tried="seeds"
from tinylm_classroom import repeats

for scaled in (True, False):
    found = [repeats(scaled, seed) for seed in SEEDS]
    again, on_next, on_itself = found[0]
    print(f"factor {scaled!s:<6} repeats {again:.0%}; loss on the next token {on_next:.1f}, on itself {on_itself:.1f}")
    assert all(each[0] > 0.9 and each[2] < 7 if scaled else each[0] < 0.5 for each in found)

# %% [markdown]
# With the factor, the row of the token that was just read outweighs all that the blocks add, and the head compares with that same row. [[echo]] If you forget to shift the targets by one, this model's first loss is far below ln V, although it has learned nothing.

# %% [markdown]
# ## What you have now
# - One class runs each of seven families, also with one choice exchanged. [[families]]
# - Each row of a tied matrix has a gradient in every update [[every-row]], and tied means one tensor. [[one-tensor]]
# - Trained apart, embedding and head cannot replace each other. [[not-interchangeable]] Larger models save less by tying. [[tying-saves]]
# - First weights have the spread that their recipe says [[recipes]], ReLU needs twice the variance [[factor-2]], and the recipe decides how the stream grows. [[first-weights]]
# - Spoiled gains improve the first loss and delay learning. [[spoiled-gains]]
# - Activations can need more memory than parameters [[bytes]], and a count finds a mistake that a checkpoint hides. [[one-block]]
# - A tied model with scaled embeddings repeats its input before training. [[echo]]

# %% [markdown]
# ## Sources
# - Tying: Press and Wolf 2017, [*Using the Output Embedding to Improve Language Models*](https://arxiv.org/abs/1608.05859).
# - Xavier: Glorot and Bengio 2010, [*Understanding the difficulty of training deep feedforward neural networks*](https://proceedings.mlr.press/v9/glorot10a.html), equation 16. Kaiming: He et al. 2015, [*Delving Deep into Rectifiers*](https://arxiv.org/abs/1502.01852), equation 10. Variance 1/in: LeCun et al. 1998, *Efficient BackProp*, section 4.6.
# - Activations and FLOPs: Kaplan et al. 2020, [*Scaling Laws for Neural Language Models*](https://arxiv.org/abs/2001.08361), section 2.1.
