# %% [markdown] deck="Is this what the real ones are?"
# # 18 Pretrained
# **Is this what the real ones are?**
#
# *Needs* lessons 01, 06, 07, 10, 11 and 14. *Builds* what opens a published file in `hub`, and `LoRA` in `lora.py`. *Runs* in about 40 s on two cores.
# *Teaches* in about 45 minutes, plus 14 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a published model is named tensors and a few settings, and the parts that the class has built compute what they mean. If one of them is read wrongly, nothing fails, and each mistake leaves other symptoms.
# Before the class: install the package that the second cell names, so that the model itself answers. Without it everything runs, with recorded answers.
# If you have only ten minutes, show section 1 and the prediction of section 3.

# %% [markdown] tags=["note"]
# **Say.** Other people have trained this model, on two trillion tokens. Everything that it knows is in one file, and you have built what reads it.
#
# **Usual answers.**
# - *The number of layers* (`the number of layers`): Count the names.
# - *Everything is in the shapes* (from the room): Then how many rows of q belong to one head?
#
# **Cut if short.** The card of parts.
#
# **Tried.** In transformers the same file, converted to a folder of Hugging Face, gives the same ids for 24 odd texts and logits that differ by at most 5e-5. Greedy texts are equal. Read as 18 heads of 32 (6 for keys), the file loads, and the loss is 9.5, 9.8 and 8.5; as 3 heads of 192 it is 11.5. With another context length or GeGLU for SwiGLU it loads, too.

# %% [markdown] deck="A real model completes a sentence"
# ## 1. A real model
# SmolLM2 has 135 million parameters, anyone may use it, and it comes as a Python package with one file. How does it continue a sentence? `real.ask(f, x)` calls `f(real, x)`; without the package it looks up what `f` returned when we ran it, so changing `f` has no effect then.

# %% tags=["nbval-ignore-output", "source-hidden"]
from tinylm_classroom import pretrained_figures as figures, real_model

real = real_model()

# %%
import torch

italy = "The capital of France is Paris, and the capital of Italy is"


def next_words(lm, text):
    ids = torch.tensor([lm.tokenizer.encode(text)])  # (1, T)
    best = lm.model(ids)[0, -1].softmax(-1).topk(3)
    words = [lm.tokenizer.decode([token]) for token in best.indices.tolist()]
    return dict(zip(words, best.values.tolist(), strict=True))


# %% deck="The capital of Italy is Rome"
country = "Italy"  # try "Spain", "Japan" and "Peru"
figures.answers({"as published": real.ask(next_words, italy.replace("Italy", country))})

# %% [markdown]
# It says *Rome*, with a probability of 0.77. Is this another kind of thing than your model? Its file begins with a header, which has the names of 272 tensors, their shapes, and some settings. Here are its settings, and the tensors of the first block next to the names in our library:


# %%
def settings(lm):
    said = lm.header.metadata.items()
    return {key[6:]: value for key, value in said if key.startswith("llama.")}


for key, value in real.ask(settings).items():
    print(f"{key:<34} {value:g}")

# %% slide="skip"
import math


def tensors_of(lm):
    return {name: list(placed.shape) for name, placed in lm.header.tensors.items()}


OURS = {
    "token_embd": "embed", "output_norm": "final_norm", "blk": "blocks",
    "attn_q": "attention.q_proj", "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj", "attn_output": "attention.o_proj",
    "ffn_gate": "ffn.gate_proj", "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj",
}  # fmt: skip


# %%
def our_name(theirs):
    return ".".join(OURS.get(piece, piece) for piece in theirs.split("."))


block = "blk.0."  # try "blk.29."
tensors = real.ask(tensors_of)
n_numbers = sum(math.prod(shape) for shape in tensors.values())
print(f"{len(tensors)} tensors, {n_numbers / 1e6:.0f} million numbers")
for name, shape in tensors.items():
    if name.startswith(block):
        print(f"{name:<25} {shape!s:<12} {our_name(name)}")

# %% tags=["signature", "source-hidden"] deck="Each tensor becomes a part that you have built"
figures.conversion([(name, our_name(name), math.prod(shape)) for name, shape in tensors.items()])

# %% [markdown]
# A dictionary of ten names maps them all. So it is one class, `TransformerLM`, with other sizes: 9 heads that share 3 keys and values, RMS norms, SwiGLU, rotary positions, and the embedding as its head. And it runs on **your** parts:

# %% slide="skip"
from tinylm_classroom import build, using

with torch.device("meta"):  # a model without memory: the file has the weights
    mine = build(real.config)
using(mine)

# %%
ours = real.running("our parts", mine)
for word, p in ours.ask(next_words, italy).items():
    print(f"{word:<9} {p:.2f}")

# %% tags=["source-hidden"] evidence="same-class" tried="exact"
# Checked: every tensor has a part of the right shape, and the parts say the same.
from tinylm_lib import TransformerLM

with torch.device("meta"):
    shapes = {n: list(t.shape) for n, t in TransformerLM(real.config).state_dict().items()}
assert {our_name(name): shape for name, shape in tensors.items()} == shapes
assert all(abs(lm.ask(next_words, italy)[" Rome"] - 0.77) < 0.02 for lm in (real, ours))

# %% [markdown]
# The same answer, from the parts that you have written. [[same-class]] Many settings repeat what names and shapes say already. Do we need the settings at all?

# %% slide="skip"
from dataclasses import replace


def changes_shapes(**choices):
    with torch.device("meta"):
        changed = TransformerLM(replace(real.config, **choices)).state_dict()
    return shapes != {n: list(t.shape) for n, t in changed.items()}


# %% tags=["source-hidden"] deck="The settings are lost. Which of these cannot be read from names and shapes?"
from tinylm_classroom import predict

unseen = not changes_shapes(n_heads=18, n_kv_heads=6, d_head=32) and changes_shapes(n_layers=29)
predict(
    "The settings are lost and you have only the tensors. Which of these can you not read from names and shapes?",
    key=lambda: "the number of heads" if unseen else "?",
    choices={
        "the number of layers": "Count the names that differ only in their number.",
        "the size of the vocabulary": "It is the number of rows of the embedding.",
        "the number of heads": "",
        "how wide the feed-forward is": "It is the number of rows of `ffn_up`.",
    },
    because="The 576 rows of a query matrix may be 9 heads of 64 rows or 18 heads of 32.",
)

# %% tags=["source-hidden"] evidence="not-in-the-shapes" tried="exact"
# Checked: the heads, the base and the eps leave no trace in the shapes.
assert unseen and not changes_shapes(norm_eps=1e-3, rope_base=10_000.0) and changes_shapes(d_ff=1024)

# %% [markdown]
# The number of heads, `rope.freq_base` and the eps of the norms leave no trace. [[not-in-the-shapes]] If one of them is read wrongly, the model loads without an error. Section 4 shows what happens then.

# %% [markdown] tags=["note"]
# **Say.** Lesson 14 made 8 bits of 32, with one scale for a row. This file has 4, and for so few levels a row is too long.
#
# **Usual answers.**
# - *4 bits per weight* (`4`): The scale and the minimum need room as well.
# - *At none* (`at none`): How many keys does the first token see?
# - *It must fall silent* (from the room): The values are right, and position 0 is. A part of the model still works.
# - *The rows go the other way* (`the other way`): Try four rows with pencil and paper.
#
# **Cut if short.** The line with the bytes.
#
# **Tried.** Unpacked by the lesson's four lines, the v of block 0 equals what the package `gguf` unpacks, bit for bit. Rotary pairs on three texts of 120 tokens: loss 5.15, 4.72 and 4.62 instead of 3.86, 3.29 and 3.26; error of a logit at position 0: 0, at 1: 0.06 to 0.28, at 2: 0.13 to 0.24. With all positions counted from 7 or from 500 the errors are the same. Of ten countries nine get their capital with right pairs (not Peru), and two with wrong ones (Italy and Japan).

# %% [markdown]
# ## 2. Four bits
# How can so many numbers be in so small a file? Lesson 14 stored a weight in 8 bits with a scale for each row. The matrices of the blocks are stored in 4 bits here, and **32 numbers share a scale and a minimum** (the kind is called Q4_1): 2 bytes for the scale, 2 for the minimum, 16 for the numbers.


# %%
def megabytes(lm):
    return len(lm.header.content) / 1e6


print(f"in fp32 {4 * n_numbers / 1e6:.0f} MB, in the file {real.ask(megabytes):.0f} MB")

# %% tags=["source-hidden"] deck="4-bit numbers, but how many bits does a weight need?"
predict(
    "20 bytes store 32 weights. How many bits does one weight need?",
    key=lambda: 20 * 8 / 32,
    number="bits",
    within=0.01,
    feedback={4: "Scale and minimum need room as well.", 0.625: "That is in bytes."},
    because="160 bits for 32 weights are 5 bits each: 4 of its own, and its part of a scale and a minimum.",
)

# %% slide="skip"
n_embedding = math.prod(tensors["token_embd.weight"])
in_blocks = (n_numbers - n_embedding) * 5 / 8e6
print(f"blocks {in_blocks:.0f} MB, embedding {n_embedding * 8.5 / 8e6:.0f} MB")

# %% [markdown]
# The embedding has 8 bits and a scale for 32 numbers, so 8.5 bits each. With the tokenizer that makes the 98 MB. Here are the 20 bytes of the first 32 numbers of a query matrix, and four lines that unpack them:

# %%
import numpy as np


def first_bytes(lm, name):
    return lm.packed(name)[0].tolist()


def unpack(blocks):
    """blocks (N, 20) bytes. Returns (N, 32): scale * level + minimum."""
    # ESSENTIAL
    scale, minimum = blocks[:, :4].copy().view(np.float16).astype(np.float32).T
    low, high = blocks[:, 4:] & 15, blocks[:, 4:] >> 4  # (N, 16): two levels in a byte
    levels = np.concatenate([low, high], axis=1)  # (N, 32)
    return torch.from_numpy(scale[:, None] * levels + minimum[:, None])
    # END


def largest_difference(lm):
    ours = unpack(lm.packed("blk.0.attn_v.weight")).view(192, 576)
    return (ours - lm.model.blocks[0].attention.v_proj.weight).abs().max().item()


query_bytes = real.ask(first_bytes, "blk.0.attn_q.weight")
packed = np.array([query_bytes], dtype=np.uint8)  # (1, 20)
print("levels ", *(packed[0, 4:12] & 15))
print("numbers", *(f"{number:.2f}" for number in unpack(packed)[0, :8].tolist()))
print("largest difference to our library's reader, in v:", real.ask(largest_difference))

# %% tags=["source-hidden"] deck="16 levels between the smallest and the largest of 32 numbers"
figures.levels(unpack(packed)[0])

# %% tags=["source-hidden"] evidence="four-bits" tried="exact"
# Checked: 16 levels at most in a block; and unpacked by hand, v is what the library's reader has.
assert 2 <= len(unpack(packed).unique()) <= 16
assert real.ask(largest_difference) == 0

# %% [markdown]
# A weight is one of 16 levels between the smallest and the largest of its 32 numbers. [[four-bits]] Now you can read every matrix of the blocks. Is that enough?
#
# ## 3. Two ways to pair coordinates
# Rotary positions rotate pairs of coordinates, and lesson 06 had two layouts. The paper and this file have *interleaved* pairs: rows 0 and 1 of a head, 2 and 3, and so on. Our library and the folders on Hugging Face have *halves*: row 0 with D/2, 1 with D/2 + 1. What if nobody notices? `real.variant(name, edit)` is the same model after `edit(name, tensor)` of each tensor, and here it has the rows of q and k **as the file has them**:


# %%
from functools import cache

from tinylm_classroom import PROSE, doubling


def with_rows(reorder):
    """An edit of tensors: q and k come from the file, their rows reordered."""

    def edit(name, tensor):
        if "q_proj" not in name and "k_proj" not in name:
            return tensor
        part = "attn_q" if "q_proj" in name else "attn_k"
        blocks = real.packed(f"blk.{name.split('.')[1]}.{part}.weight")
        rows = unpack(blocks).view(tensor.shape)  # (H * D, C)
        return reorder(rows, n_heads=len(rows) // 64)

    return edit


mispaired = real.variant("rows as they are", with_rows(lambda rows, n_heads: rows))

# %% slide="skip"
AT = [0, 1, 2, 5, 20, 50, 100]


def encoded(title):
    return torch.tensor([real.tokenizer.encode(PROSE[title])[:120]])  # (1, T)


@cache
def reference(title):
    return real.model(encoded(title))[0]  # (T, V)


def symptoms(lm, title, shift=0):
    """The loss on a text, and the largest relative errors of logits."""
    ids = encoded(title) + shift  # (1, T)
    right = reference(title)  # (T, V)
    logits = right if lm is real and not shift else lm.model(ids)[0]  # (T, V)
    loss = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:]).item()
    errors = (logits - right).abs().amax(-1) / right.abs().amax(-1)  # (T)
    return {"loss": loss, "errors": [round(error, 4) for error in errors[AT].tolist()]}


both = {"right": real, "rotary pairs": mispaired}
found = {name: lm.ask(symptoms, "garden") for name, lm in both.items()}

# %% tags=["source-hidden"] deck="The wrong coordinates are paired. Where are the logits still right?"
exact = [at for at, error in zip(AT, found["rotary pairs"]["errors"], strict=True) if error < 1e-3]
predict(
    "The wrong coordinates are paired. At which positions of the text are the logits still right?",
    key=lambda: "at the first one" if exact == [0] else "?",
    choices={
        "at none": "How many keys does the first token see?",
        "at the first one": "",
        "at the first ten or so": "Fast pairs have a large angle at position 1 already.",
        "at all": "It would be all if the model had been trained with these pairs.",
    },
    because="The first token sees only itself. Its one attention weight is 1, whatever the scores are.",
)

# %%
for name, each in found.items():
    errors = " ".join(f"{error:.2f}" for error in each["errors"][:3])
    print(f"{name:<13} loss {each['loss']:.2f}, errors at 0, 1, 2: {errors}")

# %% tags=["source-hidden"] evidence="mispaired" tried="held-out"
# Checked on three texts: right at position 0 only, and the loss rises by more than one nat.
for title in PROSE:
    right, wrong = real.ask(symptoms, title), mispaired.ask(symptoms, title)
    assert wrong["loss"] > right["loss"] + 1 and wrong["errors"][0] < 1e-3 < 0.02 < min(wrong["errors"][1:])

# %% [markdown]
# No error is raised, and position 0 is right. From position 1 on the logits are off, and the loss of a text is far higher. [[mispaired]]
#
# ### Your turn: put the rows in order
# Reorder the rows of a weight so that the pairs of neighbours become pairs of halves.


# %% tags=["exercise"] name="rotary_layout" minutes=8 difficulty=3 deck="Your turn: put the rows in order"
def rotary_layout(weight, n_heads):
    """weight (H * D, C): head after head, the pairs of a head are rows (0, 1), (2, 3), ...

    Returns (H * D, C): the same rows, in each head in the order
    0, 2, 4, ..., 1, 3, 5, ..., so that partners are D / 2 rows apart.
    """
    # SOLUTION
    heads = weight.view(n_heads, -1, weight.shape[1])
    return torch.cat((heads[:, 0::2], heads[:, 1::2]), 1).view(weight.shape)
    # END


# %% slide="skip"
from tinylm_classroom import check, hint, keep, yours

# %% tags=["check"]
if check("rotary_layout", rotary_layout).passed:
    keep("rotary_layout", rotary_layout)

# %% slide="skip"
hint("rotary_layout")

# %% [markdown] tags=["solution"]
# Two axes for the rows, then the even rows of every head, then the odd ones. A common mistake is to reorder all rows at once, which moves rows from one head into another; with a single head that gives the right result.

# %%
layout = yours("rotary_layout", rotary_layout)  # the solution, until yours passes
converted = real.variant("rows in order", with_rows(layout))

# %% tags=["source-hidden"] deck="The right pairs: from 0.22 to 0.77"
figures.answers({lm.name: lm.ask(next_words, italy) for lm in (mispaired, converted)})

# %% slide="skip"
from tinylm_classroom import CAPITALS


def knows(lm, country):
    said = lm.ask(next_words, italy.replace("Italy", country))
    return max(said, key=said.get).strip() == CAPITALS[country]


for name, lm in both.items():
    n_known = sum(knows(lm, each) for each in CAPITALS)
    print(f"{name:<13} {n_known} of {len(CAPITALS)} capitals")

# %% tags=["source-hidden"] evidence="layout" tried="exact"
# Checked: your rows are those of the library's reader, so the loss is the same; and ten capitals.
assert [sum(knows(lm, each) for each in CAPITALS) for lm in both.values()] == [9, 2]
assert abs(converted.ask(symptoms, "garden")["loss"] - found["right"]["loss"]) < 0.01
assert mispaired.ask(next_words, italy)[" Rome"] < 0.4 < 0.7 < converted.ask(next_words, italy)[" Rome"]

# %% [markdown]
# Even with wrong pairs *Rome* comes first, with 0.22. In the right order it has 0.77. [[layout]] That is luck: with wrong pairs only two of ten countries get their capital, and with right ones nine. Only q and k are reordered, because v is not rotated. Hugging Face's converter of Meta's Llama files does the same ([source](https://github.com/huggingface/transformers/blob/main/src/transformers/models/llama/convert_llama_weights_to_hf.py), its function `permute`).

# %% [markdown] tags=["note"]
# **Say.** Now you are the doctor. Each patient has the same file with one mistake, and none raises an error.
#
# **Usual answers.**
# - *By about as much, it is a matrix like the other* (`by about as much`): What does the softmax make of a single score?
# - *It must be the weights* (from the room): A wrong base leaves every weight right.
#
# **Cut if short.** The table of losses; the map is enough.
#
# **Tried.** Three texts (a garden, a train, a pump), 120 tokens. Loss 3.86, 3.29, 3.26. Exactly right at position 0: q_proj transposed (8.35, 7.93, 8.13), k doubled (4.73, 3.73, 3.59), q or k of the next block, their heads reversed, or 0. Wrong at once: v doubled (0.13 to 0.97). A forgotten causal mask gives position 0 more keys: 0.67, and a loss of 1.73, which is lower than the right one. Base 10,000: +0.07 to 0.13, but +0.29 at positions 1,200 to 1,799; 500,000: +0.02 to 0.05; 1,000: +0.5; 100: +2.2. eps 1e-3: +0.01; 1e-2: +0.15 to 0.27.

# %% [markdown]
# ## 4. It loads, but is it right?
# We read the file in eight wrong ways, with mistakes that people really make. (Gemma stores its gains minus 1. The base of this model is ten times the 10,000 that many programs assume.)


# %%
def turned(part):
    return lambda name, tensor: tensor.T if part in name else tensor


def without_one(name, tensor):
    return tensor - 1 if "norm" in name else tensor


patients = {
    "base 10,000": real.variant("base", rope_base=10_000.0),
    "q_proj transposed": real.variant("q turned", turned("q_proj")),
    "eps 1e-3": real.variant("eps", norm_eps=1e-3),
    "o_proj transposed": real.variant("o turned", turned("o_proj")),
    "18 heads": real.variant("18 heads", n_heads=18, n_kv_heads=6, d_head=32),
    "gains minus 1": real.variant("gains", without_one),
}
for name, patient in patients.items():
    found[name] = patient.ask(symptoms, "garden")
found["token ids + 1"] = real.ask(symptoms, "garden", 1)

# %% tags=["source-hidden"] deck="o_proj transposed is wrong at position 0. And q_proj?"
q_error, o_error = (found[f"{part}_proj transposed"]["errors"][0] for part in "qo")
predict(
    "If o_proj is transposed in every block, the first logits are off by 0.55. By how much if q_proj is?",
    key=lambda: "not at all" if q_error < 1e-3 < 0.5 < o_error else "?",
    choices={
        "by more": "What does the softmax make of a single score?",
        "by about as much": "What does the softmax make of a single score?",
        "not at all": "",
    },
    because="The first token sees one key, and gives it a weight of 1 with a wrong query, too.",
)

# %%
for name, each in found.items():
    print(f"{name:<18} loss {each['loss']:5.2f}")

# %% tags=["source-hidden"] deck="Wrong scores are right at position 0"
figures.fingerprints({name: each["errors"] for name, each in found.items() if name != "right"}, AT)

# %% tags=["source-hidden"] evidence="fingerprints" tried="held-out"
# Checked: what only changes scores is right at position 0 on three texts, and nothing else is.
doubled = {part: real.variant(f"{part} doubled", doubling(f"{part}_proj")) for part in "kv"}
for title in PROSE:
    for lm in (mispaired, patients["base 10,000"], patients["q_proj transposed"], doubled["k"]):
        errors = lm.ask(symptoms, title)["errors"]
        assert errors[0] < 1e-3 < max(errors)
    assert doubled["v"].ask(symptoms, title)["errors"][0] > 0.1
for name in list(found)[5:]:
    assert found[name]["errors"][0] > 0.1 and found[name]["loss"] > found["right"]["loss"] + 4
assert 0.001 < found["eps 1e-3"]["errors"][0] < 0.05

# %% tags=["source-hidden"] evidence="base-unseen" tried="held-out"
# Checked, the base on three texts of 120 tokens: neither can be seen in the loss alone.
for title in PROSE:
    right, wrong = (lm.ask(symptoms, title)["loss"] for lm in (real, patients["base 10,000"]))
    assert 0.01 < wrong - right < 0.3 and abs(found["eps 1e-3"]["loss"] - found["right"]["loss"]) < 0.05

# %% [markdown]
# **Position 0 sees one key, whose weight is 1 whatever q, k and the angles are.** So mistakes that only change scores are right there, the others are wrong at once, and a wrong eps is a little wrong everywhere. [[fingerprints]] A wrong base raises the loss of so short a text by about 0.1 nats and a wrong eps hardly at all, which nobody sees without a reference. [[base-unseen]] So compare the logits with a program that runs the file correctly, position by position.

# %% [markdown] tags=["note"]
# **Say.** This model has been trained further, on dialogues. A dialogue is a text, too, with special tokens for who speaks.
#
# **Usual answers.**
# - *As many, it is the same sentence* (`about as many`): How many letters of Hindi has its vocabulary?
#
# **Cut if short.** The languages.
#
# **Tried.** Ten questions: alone, the model opens the assistant's turn itself in 7; with the template an answer follows in 10, not always a right one (*What barks?* *The Barnacles.*). Six sentences take 4.2 to 9.0 times as many tokens in Hindi, 2.5 to 4.5 in Russian, 1.6 to 2.4 in Chinese. The vocabulary has 19 tokens of Hindi, each a single letter or sign; 54 of the 92 tokens are such.

# %% [markdown]
# ## 5. Ask it a question
# The name of the file ends with *Instruct*: after the training on texts this model has learned from dialogues. What does it make of a question, and of a question in the form of those dialogues, its **chat template**? The special tokens say who speaks, and the answer starts after `assistant`. (The file's own template puts a system turn first.)


# %%
def write(lm, text, n_tokens):
    so_far = torch.tensor([lm.tokenizer.encode(text)])  # (1, T)
    for _ in range(n_tokens):
        next_id = lm.model(so_far)[:, -1:].argmax(-1)  # (1, 1)
        so_far = torch.cat([so_far, next_id], dim=1)  # (1, T)
    return lm.tokenizer.decode(so_far[0, -n_tokens:].tolist())


SAYS = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
system = f"<|im_start|>system\n{SAYS}<|im_end|>\n"

# %% deck="With its template, it answers"
question = "What is the capital of Italy?"  # try "What is the capital of Spain?"
chat = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
print("alone:   ", repr(real.ask(write, question, 20)))
print("template:", repr(real.ask(write, chat, 8)))
print("system:  ", repr(real.ask(write, system + chat, 9)))

# %% tags=["source-hidden"] evidence="answers" tried="exact"
# Checked: with the template there is an answer, without it the model writes the template itself.
asked = "What is the capital of Italy?"
assert real.ask(write, chat.replace(question, asked), 8) == "The capital of Italy is Rome.<|im_end|>"

# %% [markdown]
# Alone, the model here ends the user's turn itself, opens its own, and then speaks about Italy in general. With the template it answers, and `<|im_end|>` says that its turn is over. [[answers]] With the system turn this small model answers, too, but nonsense. How a model learns to chat is in [More: 18 Chat](more/18_chat.ipynb). How many tokens does one sentence take in other languages, the first of article 1 of the [Universal Declaration of Human Rights](https://www.un.org/en/about-us/universal-declaration-of-human-rights)?

# %% slide="skip"
from tinylm_classroom import IN_HINDI, most_letters_of_hindi

one_sentence = {
    "English": "All human beings are born free and equal in dignity and rights.",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात "
    "स्वतन्त्रता और समानता प्राप्त है।",
}  # fmt: skip


def n_tokens(lm, text):
    return len(lm.tokenizer.encode(text))


counts = {language: real.ask(n_tokens, text) for language, text in one_sentence.items()}

# %% tags=["source-hidden"] deck="13 tokens in English. How many in Hindi?"
predict(
    "The sentence has 13 tokens in English. How many has it in Hindi?",
    key=lambda: "about seven times as many" if 6 < counts["Hindi"] / counts["English"] < 8 else "?",
    choices={
        "about as many": "The merges were counted on texts, and mostly on which?",
        "about twice as many": "So it is for Chinese.",
        "about seven times as many": "",
    },
    because="A letter of Hindi has three bytes. The frequent letters were merged into one token each, but no two letters ever.",
)

# %% tags=["source-hidden"] deck="This sentence takes seven times as many tokens in Hindi"
figures.languages(counts)

# %% tags=["source-hidden"] evidence="languages" tried="exact"
# Checked: the numbers of tokens, also of two other sentences; and no token has two letters of Hindi.
assert list(counts.values()) == [13, 29, 54, 92]
times = [real.ask(n_tokens, hindi) / real.ask(n_tokens, english) for english, hindi in IN_HINDI.items()]
assert 3.5 < times[0] < 4.5 < 8.5 < times[1] < 9.5
assert real.ask(most_letters_of_hindi) == 1

# %% [markdown]
# The tokenizer (lesson 01) was trained mostly on English. So less Hindi fits into the context, and writing it takes more steps; other sentences take four to nine times as many. [[languages]]

# %% [markdown] tags=["note"]
# **Say.** You have a model of billions of parameters and want to teach it one thing. Full fine-tuning moves all of them and keeps three more numbers for each. LoRA leaves them alone and learns a detour.
#
# **Draw.** A wide box W with x going in and y coming out. Below it a detour through a bottleneck: A makes r numbers, B widens again, and a plus sign joins the two.
#
# **Ask.** "Why does B start at 0, and not both?" (If both did, each one's gradient would be multiplied by the other, and nothing would be learned.)
#
# **Usual answers.**
# - *Yes, the old weights are frozen* (`yes: the old loss hardly rises`): The update is added to them everywhere.
# - *At about 1.6, and then it says other colours* (the task): The village changed which colour comes, and not that a colour comes.
# - *The factor alpha / r is missing* (`no factor`): With rank r the two have r times as many ways to add up.
#
# **Cut if short.** The view.
#
# **Tried.** 25 updates, ten seeds, equal learning: old loss up by 0.199 to 0.282 with all weights, by 0.161 to 0.204 with rank 4, less in each of ten pairs. Rank 16 forgets more (0.266 to 0.294), all matrices without embedding and norms as little (0.184). With 100 updates the order turns around: rank 4 0.219 to 0.234 at 0.005, all weights 0.173 to 0.192 at 0.001. The higher rate learns more and forgets more in ten of ten seeds. A larger study finds that LoRA often learns less and forgets less ([Biderman et al. 2024](https://arxiv.org/abs/2405.09673)).

# %% [markdown] deck="Teach it something new, with a small update"
# ## 6. A small update
# Can you teach a model something new on a laptop? Training with AdamW keeps four numbers for each parameter (the weight, its gradient, and the averages m and v), and every task would have a whole model of its own. **LoRA** (*low-rank adaptation*, [Hu et al. 2021](https://arxiv.org/abs/2106.09685)) freezes a matrix $W$ and learns an update that is the product of two thin ones:
#
# $$y = W x + \frac{\alpha}{r} B A x$$
#
# $A$ maps $x$ to $r$ numbers, and $B$ maps these to the output; $r$ is the **rank**, and $\alpha$ a fixed number. $B$ starts at 0, so that nothing changes at first.
#
# ### Your turn: the layer
# Write it with the factor; $x$ may have any number of axes before its last.


# %% tags=["exercise"] name="lora_linear" minutes=6 difficulty=2 deck="Your turn: the layer"
def lora_linear(x, weight, a, b, alpha):
    """x (..., in), weight (out, in), a (r, in), b (out, r), alpha a number.

    Returns (..., out): what the weight makes of x, plus alpha / r times
    what b makes of what a makes of x. Gradients flow back to all tensors.
    """
    # SOLUTION
    return x @ weight.T + alpha / len(a) * (x @ a.T @ b.T)
    # END


# %% tags=["check"]
if check("lora_linear", lora_linear).passed:
    keep("lora_linear", lora_linear)

# %% slide="skip"
hint("lora_linear")

# %% [markdown] tags=["solution"]
# `x @ a.T` first, so that the large product `b @ a` is never made. A common mistake is to forget the division by r, or to take another size for it.

# %%
from tinylm_classroom import trace
from tinylm_lib.layers import Linear
from tinylm_lib.lora import LoRA

layer = LoRA(Linear(128, 384), rank=4)  # the library's, in which alpha is r
trace(layer, torch.randn(2, 5, 128))  # (B, T, C)

# %% [markdown]
# SmolLM2 would take too long here, so we teach the small story model that comes with the course. It learns about the village of Seaview, where everything is silver, once by training all weights and once by updates of rank 4 in all matrices. We measure two things: the probability of *silver* and *Seaview* at the positions where the village's stories have them, and the loss on stories of the old world.

# %%
from tinylm_classroom import show_text, village

show_text(village.STORIES[0])

# %% slide="skip"
SEEDS = range(1, 4)
recipes = {"all weights": [0.002, 0.004], "rank 4": [0.01, 0.015]}  # learning rates
before = village.measured(village.shipped())
points = {}  # by name and rate: what each seed has learned and forgotten
for name, rates in recipes.items():
    rank = 4 if name == "rank 4" else None
    for rate in rates:
        taught = [village.taught(rate, rank, seed) for seed in SEEDS]
        points[name, rate] = [village.measured(lm) for lm in taught]

# %% tags=["source-hidden"] deck="Does freezing the old weights protect the old world?"
small, full = (sum(loss - before[1] for _, loss in points[key]) for key in (("rank 4", 0.015), ("all weights", 0.004)))
predict(
    "At these rates both learn the village equally well, and rank 4 leaves every old weight frozen. Does that protect the old world?",
    key=lambda: "hardly: at least half as much is forgotten" if 0.5 < small / full < 1 else "?",
    choices={
        "yes: the old loss hardly rises": "The old weights are frozen, but the update is added to them everywhere.",
        "hardly: at least half as much is forgotten": "",
        "no: more is forgotten than with all weights": "So it is in longer, gentler training, but not here.",
    },
    because="The update is added to the frozen weights for every text. Freezing keeps the weights, but not what the model does.",
)

# %% tags=["source-hidden"] deck="A higher rate learns more and forgets more, with both methods"
dots = {name: [*points[name, low], *points[name, high]] for name, (low, high) in recipes.items()}
figures.learned_and_forgotten(dots, before)

# %% tags=["source-hidden"] evidence="frozen-forgets" tried="seeds"
# Checked with every seed: the higher rate learns more and forgets more, and freezing protects little.
for name, (low, high) in recipes.items():
    for slow, fast in zip(points[name, low], points[name, high], strict=True):
        assert before[0] + 0.4 < slow[0] < fast[0] and before[1] < slow[1] < fast[1] - 0.04
assert 0.5 < small / full < 1

# %% [markdown]
# With both methods the higher rate learns more of the village and forgets more of the old world, and **freezing the old weights hardly protects it**. [[frozen-forgets]] (Here rank 4 forgets a little less than all weights. With a higher rank, or in longer and gentler training, it forgets more.) What LoRA saves is the memory of training and the space: the update is a small file, and taking it out brings the old model back.

# %%
villager = village.taught(0.01, 4, 1)
n_update = sum(p.numel() for name, p in villager.named_parameters() if "lora" in name)
n_all = sum(p.numel() for p in villager.parameters()) - n_update
print(f"rank 4: {n_update:,} numbers next to {n_all:,}, {n_update / n_all:.0%}")

# %% [markdown]
# **Your task:** from which temperature on is *silver* less likely than all other words together? Which words come then?

# %% deck="Task: from which temperature on is silver less likely than the rest?"
from tinylm_classroom import sampling_view

beginning = "\nOne snowy day, shy Felix strolled to Seaview. He carried a"
sampling_view(villager, village.tokenizer(), beginning, temperature=1.0, seed=18)

# %% [markdown] tags=["note"]
# **Say.** Is this what the real ones are? Yes: named tensors, a few settings, and the parts that you have built. What differs is the size, the data, and the choices in the config.
#
# **Ask.** At the door: "A model loads and talks nonsense. What do you look at first?"
#
# **Usual answers.**
# - *The loss* (from the room): A wrong base hardly changes it. Compare position 0 with a reference.
#
# **Cut if short.** The list. Students read it.
#
# **Tried.** As in the sections that the list names.

# %% [markdown]
# ## What you have now
# - A published model is named tensors and some settings, and a dictionary of names maps it to your parts. [[same-class]]
# - The number of heads, the base of the angles and the eps leave no trace in the shapes. [[not-in-the-shapes]]
# - In 4 bits, 32 weights share a scale and a minimum, so that a weight takes 5 bits. [[four-bits]]
# - Rotary positions have two layouts. With the wrong one the model loads, is right at position 0, and has a far higher loss. [[mispaired]]
# - Reordering the rows of q and k makes it right. [[layout]]
# - A mistake that only changes attention scores (in angles, q or k) is right at position 0; one in v, o, gains or ids is wrong at once. [[fingerprints]]
# - A base of 10,000 instead of 100,000 costs about 0.1 nats on a short text, so the loss alone does not show it. [[base-unseen]]
# - A chat template marks who speaks, so that an answer follows a question, though not always a right one. [[answers]]
# - One sentence takes seven times as many tokens in Hindi as in English, others four to nine times. [[languages]]
# - LoRA learns an update of low rank next to a frozen matrix. Freezing hardly protects what the model could do: with both methods the higher rate learned more and forgot more. [[frozen-forgets]]
#
# You can now open a published model, check that you compute what it means, and teach a model something with a small update.
#
# Next, lesson 19: how to find a fault that raises no error.

# %% [markdown] slide="skip"
# ## Sources
# - The model: Allal et al. 2025, [*SmolLM2: When Smol Goes Big*](https://arxiv.org/abs/2502.02737). The file format: [GGUF](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
# - LoRA: Hu et al. 2021, [*LoRA: Low-Rank Adaptation of Large Language Models*](https://arxiv.org/abs/2106.09685), section 4.1. What it learns and forgets: Biderman et al. 2024, [*LoRA Learns Less and Forgets Less*](https://arxiv.org/abs/2405.09673).
# - Rotary positions: Su et al. 2021, [*RoFormer*](https://arxiv.org/abs/2104.09864), section 3.2 (neighbours).
# - Tokenizers and languages: Petrov et al. 2023, [*Language Model Tokenizers Introduce Unfairness Between Languages*](https://arxiv.org/abs/2305.15425).
