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
# **Draw.** None.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *The number of layers* (`the number of layers`): Count the names.
# - *Everything, because it is just weights* (from the room): Then what is the eps of the norms?
#
# **Cut if short.** The card of parts.
#
# **Tried.** In transformers the same file, converted to a folder of Hugging Face, gives the same ids for 24 odd texts and logits that differ by at most 5e-5. Greedy texts are equal.

# %% [markdown] deck="A real model completes a sentence"
# ## 1. A real model
# SmolLM2 has 135 million parameters, anyone may use it, and it comes as a Python package with one file. How does it continue a sentence? (Without the package you see what it answered when we asked it.)

# %% tags=["nbval-ignore-output", "source-hidden"]
from tinylm_classroom import pretrained_figures as figures, real_model

real = real_model()

# %%
import torch

_ = torch.set_grad_enabled(False)
italy = "The capital of France is Paris, and the capital of Italy is"


def next_words(lm, text):
    ids = torch.tensor([lm.tokenizer.encode(text)])  # (1, T)
    best = lm.model(ids)[0, -1].softmax(-1).topk(3)
    words = [lm.tokenizer.decode([token]) for token in best.indices.tolist()]
    return dict(zip(words, best.values.tolist(), strict=True))


# %% deck="The capital of Italy is Rome"
country = "Italy"  # try "Spain" and "Japan"
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

# %%
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
# The same answer, from the parts that you have written. [[same-class]] Some settings repeat what the shapes say already. Which of them do not?

# %% tags=["source-hidden"] deck="The settings are lost. Which of these cannot be read from names and shapes?"
from dataclasses import replace

from tinylm_classroom import predict


def changes_shapes(**choices):
    with torch.device("meta"):
        changed = TransformerLM(replace(real.config, **choices)).state_dict()
    return shapes != {n: list(t.shape) for n, t in changed.items()}


unseen = not changes_shapes(rope_base=10_000.0) and changes_shapes(n_layers=29)
predict(
    "The settings are lost and you have only the tensors. Which of these can you not read from names and shapes?",
    key=lambda: "how fast positions rotate" if unseen else "?",
    choices={
        "the number of layers": "Count the names that differ only in their number.",
        "the size of the vocabulary": "It is the number of rows of the embedding.",
        "how fast positions rotate": "",
        "how wide the feed-forward is": "It is the number of rows of `ffn_up`.",
    },
    because="The base of the angles is a setting, and no tensor gets its shape from it.",
)

# %% tags=["source-hidden"] evidence="not-in-the-shapes" tried="exact"
# Checked: the base and the eps leave no trace in the shapes.
assert unseen and not changes_shapes(norm_eps=1e-3) and changes_shapes(d_ff=1024)

# %% [markdown]
# `rope.freq_base` and the eps of the norms leave no trace. [[not-in-the-shapes]] If one of them is read wrongly, the model loads without an error. Section 4 shows what happens then.

# %% [markdown] tags=["note"]
# **Say.** Lesson 14 made 8 bits of 32, with one scale for a row. This file has 4, and for so few levels a row is too long.
#
# **Draw.** None: the picture shows it.
#
# **Ask.** None: the predictions ask.
#
# **Usual answers.**
# - *4 bits per weight* (`4`): The scale and the minimum need room as well.
# - *At none* (`at none`): Which angle has position 0?
# - *It must fall silent* (from the room): The values are right, and position 0 is. A part of the model still works.
# - *The rows go the other way* (`the other way`): Try four rows with pencil and paper.
#
# **Cut if short.** The line with the bytes.
#
# **Tried.** Unpacked by the lesson's four lines, the v of block 0 equals what the package `gguf` unpacks, bit for bit. Rotary pairs on three texts of 120 tokens: loss 5.15, 4.72 and 4.62 instead of 3.86, 3.29 and 3.26; error of a logit at position 0: 0, at 1: 0.06 to 0.28, at 2: 0.13 to 0.24.

# %% [markdown]
# ## 2. Four bits
# How can so many numbers be in so small a file? Lesson 14 stored a weight in 8 bits with a scale for each row. Most matrices here are stored in 4 bits, and **32 numbers share a scale and a minimum** (the kind is called Q4_1): 2 bytes for the scale, 2 for the minimum, 16 for the numbers.


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

# %% [markdown]
# Here are the 20 bytes of the first 32 numbers of a query matrix, and four lines that unpack them:

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


query_bytes = real.ask(first_bytes, "blk.0.attn_q.weight")
packed = np.array([query_bytes], dtype=np.uint8)  # (1, 20)
print("levels ", *(packed[0, 4:12] & 15))
print("numbers", *(f"{number:.2f}" for number in unpack(packed)[0, :8].tolist()))

# %% tags=["source-hidden"] deck="16 levels between the smallest and the largest of 32 numbers"
figures.levels(unpack(packed)[0])

# %% tags=["source-hidden"] evidence="four-bits" tried="exact"
# Checked: 16 levels at most in a block; and unpacked by hand, v is what the library's reader has.
assert 2 <= len(unpack(packed).unique()) <= 16


def largest_difference(lm):
    ours = unpack(lm.packed("blk.0.attn_v.weight")).view(192, 576)
    return (ours - lm.model.blocks[0].attention.v_proj.weight).abs().max().item()


assert real.ask(largest_difference) == 0

# %% [markdown]
# A weight is one of 16 levels between the smallest and the largest of its 32 numbers. [[four-bits]] Now you can read every number of the file. Is that enough?
#
# ## 3. Two ways to pair coordinates
# Rotary positions rotate pairs of coordinates (lesson 06), and there are two layouts. The paper and this file pair neighbours: rows 0 and 1 of a head, 2 and 3, and so on. Our library and the hub's folders pair the two halves of a head: row 0 with D/2, 1 with D/2 + 1. So we fill our model with the rows of q and k **as the file has them**:


# %%
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
from functools import cache

from tinylm_classroom import PROSE

AT = [0, 1, 2, 5, 20, 50, 100]


def encoded(title):
    return torch.tensor([real.tokenizer.encode(PROSE[title])[:120]])  # (1, T)


@cache
def reference(title):
    return real.model(encoded(title))[0]  # (T, V)


# %% slide="skip"
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
        "at none": "Which angle has position 0?",
        "at the first one": "",
        "at the first ten or so": "Fast pairs have a large angle at position 1 already.",
        "at all": "It would be all if the model had been trained with these pairs.",
    },
    because="At position 0 every angle is 0, so it does not matter which coordinates are paired.",
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

# %% tags=["source-hidden"] evidence="layout" tried="exact"
# Checked: your rows are those of the library's reader, so the loss is the same.
assert abs(converted.ask(symptoms, "garden")["loss"] - found["right"]["loss"]) < 0.01
assert mispaired.ask(next_words, italy)[" Rome"] < 0.4 < 0.7 < converted.ask(next_words, italy)[" Rome"]

# %% [markdown]
# Even with wrong pairs *Rome* comes first, with 0.22. In the right order it has 0.77. [[layout]] Only q and k are reordered, because v is not rotated. Hugging Face's converter of Meta's Llama files does the same ([source](https://github.com/huggingface/transformers/blob/main/src/transformers/models/llama/convert_llama_weights_to_hf.py), its function `permute`).

# %% [markdown] tags=["note"]
# **Say.** Now you are the doctor. Each patient has the same file with one mistake, and none raises an error.
#
# **Draw.** None.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *By several nats* (`by more than 1 nat`): Near positions are rotated nearly right.
# - *It must be the weights* (from the room): A wrong base leaves every weight right.
#
# **Cut if short.** The table of losses; the map is enough.
#
# **Tried.** Three texts (a garden, a train, a pump), 180 to 200 tokens. Loss 3.55, 3.15, 3.20; eps 1e-3: 3.56, 3.16, 3.21, and 0.01 to 0.02 at position 0; base 10,000: 3.68, 3.24, 3.29; base 500,000: 0.02 to 0.05 more; o_proj transposed 11.1; k and v exchanged 15.4; gains minus 1 14.1; token ids + 1 10.0.

# %% [markdown]
# ## 4. It loads, but is it right?
# Seven patients get our file, each with one mistake that people really make. (Gemma stores its gains minus 1. The base of this model is 100,000, and many programs assume 10,000.)

# %% slide="skip"
OTHER = {"k_proj": "v_proj", "v_proj": "k_proj"}


def exchanged(name, tensor):
    """The tensor, or the other one of k_proj and v_proj."""
    part = name.split(".")[-2]
    weights = real.model.state_dict()
    return weights[name.replace(part, OTHER[part])] if part in OTHER else tensor


def turned(name, tensor):
    return tensor.T if "o_proj" in name else tensor


def without_one(name, tensor):
    return tensor - 1 if "norm" in name else tensor


# %%
patients = {
    "eps 1e-3": real.variant("eps", norm_eps=1e-3),
    "base 10,000": real.variant("base", rope_base=10_000.0),
    "rotary pairs": mispaired,
    "o_proj transposed": real.variant("turned", turned),
    "k and v exchanged": real.variant("exchanged", exchanged),
    "gains minus 1": real.variant("gains", without_one),
}
for name, patient in patients.items():
    found[name] = patient.ask(symptoms, "garden")
found["token ids + 1"] = real.ask(symptoms, "garden", 1)

# %% tags=["source-hidden"] deck="The base is 10,000 instead of 100,000. How much does the loss rise?"
rise = found["base 10,000"]["loss"] - found["right"]["loss"]
predict(
    "The base of the angles is 10,000 instead of 100,000. How much does the loss of a text of 120 tokens rise?",
    key=lambda: "by about 0.1 nats" if 0.02 < rise < 0.3 else "?",
    choices={
        "not at all": "Far positions are rotated wrongly, and the model uses them.",
        "by about 0.1 nats": "",
        "by more than 1 nat": "So it is with wrong pairs. Here fast pairs are rotated nearly right.",
    },
    because="It is so little that nobody sees it without a reference to compare with.",
)

# %%
for name, each in found.items():
    print(f"{name:<18} loss {each['loss']:5.2f}")

# %% tags=["source-hidden"] deck="Each mistake has its fingerprint"
figures.fingerprints({name: each["errors"] for name, each in found.items() if name != "right"}, AT)

# %% tags=["source-hidden"] evidence="fingerprints" tried="held-out"
# Checked: mistakes about positions, and no others, are right at position 0.
for name in ("base 10,000", "rotary pairs"):
    assert found[name]["errors"][0] < 1e-3 < max(found[name]["errors"])
for name in list(found)[4:]:
    assert found[name]["errors"][0] > 0.1 and found[name]["loss"] > found["right"]["loss"] + 4
assert 0.001 < found["eps 1e-3"]["errors"][0] < 0.05

# %% tags=["source-hidden"] evidence="base-unseen" tried="held-out"
# Checked, the base on three texts: neither can be seen in the loss alone.
for title in PROSE:
    right, wrong = (lm.ask(symptoms, title)["loss"] for lm in (real, patients["base 10,000"]))
    assert 0.01 < wrong - right < 0.3 and abs(found["eps 1e-3"]["loss"] - found["right"]["loss"]) < 0.05

# %% [markdown]
# **Mistakes about positions are right at position 0**, wrong pairs from position 1 on not any more, and a wrong base only later. The mistakes about weights and ids are wrong at once. [[fingerprints]] A wrong base raises the loss by about 0.1 nats and a wrong eps hardly at all, which nobody sees without a reference. [[base-unseen]] So compare the logits with a program that runs the file correctly, position by position.

# %% [markdown] tags=["note"]
# **Say.** This model has been trained further, on dialogues. A dialogue is a text, too, with special tokens for who speaks.
#
# **Draw.** None.
#
# **Ask.** None: the prediction asks.
#
# **Usual answers.**
# - *As many, it is the same sentence* (`about as many`): The merges were counted on English text.
#
# **Cut if short.** The languages.
#
# **Tried.** Five questions alone: in all five the model opens the assistant's turn itself. *Which city is the capital of Italy?* is then answered by *Italy is indeed the capital of Italy.*

# %% [markdown]
# ## 5. Ask it a question
# The name of the file ends with *Instruct*: after the training on texts this model has learned from dialogues. What does it make of a question, and of a question in the form of those dialogues, its **chat template**? The special tokens say who speaks, and an answer begins where the assistant's turn does.


# %%
def write(lm, text, n_tokens):
    so_far = torch.tensor([lm.tokenizer.encode(text)])  # (1, T)
    for _ in range(n_tokens):
        next_id = lm.model(so_far)[:, -1:].argmax(-1)  # (1, 1)
        so_far = torch.cat([so_far, next_id], dim=1)  # (1, T)
    return lm.tokenizer.decode(so_far[0, -n_tokens:].tolist())


# %% deck="With its template, it answers"
question = "What is the capital of Italy?"  # try "What is the capital of Spain?"
chat = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
print("alone:   ", repr(real.ask(write, question, 20)))
print("template:", repr(real.ask(write, chat, 8)))

# %% tags=["source-hidden"] evidence="answers" tried="exact"
# Checked: with the template there is an answer, without it the model writes the template itself.
asked = "What is the capital of Italy?"
assert real.ask(write, chat.replace(question, asked), 8) == "The capital of Italy is Rome.<|im_end|>"

# %% [markdown]
# Alone, the model ends the user's turn itself, opens its own, and then speaks about Italy in general. With the template it answers, and `<|im_end|>` says that its turn is over. [[answers]] How a model learns this is in [More: 18 Chat](more/18_chat.ipynb). Its tokenizer (lesson 01) was trained mostly on English. How many tokens does one sentence take in other languages, the first of article 1 of the [Universal Declaration of Human Rights](https://www.un.org/en/about-us/universal-declaration-of-human-rights)?

# %% slide="skip"
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
        "about as many": "The merges were counted on texts. On which ones?",
        "about twice as many": "So it is for Chinese.",
        "about seven times as many": "",
    },
    because="A letter of Hindi has three bytes, and few of their pairs were frequent enough for a merge.",
)

# %% tags=["source-hidden"] deck="The same sentence takes seven times as many tokens in Hindi"
figures.languages(counts)

# %% tags=["source-hidden"] evidence="languages" tried="exact"
# Checked: the numbers of tokens.
assert list(counts.values()) == [13, 29, 54, 92]

# %% [markdown]
# So less text fits into the context, and writing it takes more steps. [[languages]]

# %% [markdown] tags=["note"]
# **Say.** You have a model of billions of parameters and want to teach it one thing. Full fine-tuning moves all of them and keeps three more numbers for each. LoRA leaves them alone and learns a detour.
#
# **Draw.** A wide box W with x going in and y coming out. Below it a detour through a bottleneck: A makes r numbers, B widens again, and a plus sign joins the two.
#
# **Ask.** "Why does B start at 0, and not both?" (If both did, each one's gradient would be multiplied by the other, and nothing would be learned.)
#
# **Usual answers.**
# - *LoRA, because the old weights are frozen* (`LoRA`): The update is added to them everywhere.
# - *The factor alpha / r is missing* (`no factor`): With rank r the two have r times as many ways to add up.
#
# **Cut if short.** The view.
#
# **Tried.** 25 updates, seeds 1 to 7, equal learning: old loss up by 0.199 to 0.238 with all weights, by 0.170 to 0.204 with rank 4. With gentle rates it turns around: 100 updates 0.180 and 0.191, 200 updates 0.187 and 0.190. A larger study finds that LoRA often learns less and forgets less ([Biderman et al. 2024](https://arxiv.org/abs/2405.09673)).

# %% [markdown] deck="Teach it something new, with a small update"
# ## 6. A small update
# Can you teach a model something new on a laptop? Training with AdamW keeps four numbers for each parameter (lesson 11), and every task would have a whole model of its own. **LoRA** (*low-rank adaptation*, [Hu et al. 2021](https://arxiv.org/abs/2106.09685)) freezes a matrix $W$ and learns an update that is the product of two thin ones:
#
# $$y = W x + \frac{\alpha}{r} B A x$$
#
# $A$ makes $r$ numbers of $x$, and $B$ makes an output of these; $r$ is the **rank**, and $\alpha$ a fixed number. $B$ starts at 0, so that nothing changes at first.
#
# ### Your turn: the layer
# Write it for any number of texts, and with the factor.


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

x, weight = torch.randn(2, 5, 128), torch.randn(384, 128)  # (B, T, C), (F, C)
layer = yours("lora_linear", lora_linear)
trace(layer, x, weight, a=torch.randn(4, 128), b=torch.zeros(384, 4), alpha=4)

# %% [markdown]
# We teach the shipped model about the village of Seaview, where everything is silver, once by training all weights and once by updates of rank 4 in all matrices, and measure two things: the probability of the words *silver* and *Seaview* where the village says them, and the loss on stories of the old world.

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

# %% tags=["source-hidden"] deck="Both learn the village equally well. Which one forgets more of the old world?"
small, full = (sum(loss - before[1] for _, loss in points[key]) for key in (("rank 4", 0.015), ("all weights", 0.004)))
predict(
    "The rates are chosen so that both learn the village equally well. Which one forgets more of the old world?",
    key=lambda: "about the same" if 0.6 < small / full < 1.5 else "?",
    choices={
        "LoRA": "It has far fewer numbers to change things with.",
        "all weights": "The old weights are frozen, but the update is added to them everywhere.",
        "about the same": "",
    },
    because="At equal learning the old loss rises by a similar amount. How much is learned counts, and not the method.",
)

# %% tags=["source-hidden"] deck="Who learns more forgets more, with both methods"
dots = {name: [*points[name, low], *points[name, high]] for name, (low, high) in recipes.items()}
figures.learned_and_forgotten(dots, before)

# %% tags=["source-hidden"] evidence="forgets-the-same" tried="seeds"
# Checked with every seed: the higher rate learns more and forgets more, and the methods are close.
for name, (low, high) in recipes.items():
    for slow, fast in zip(points[name, low], points[name, high], strict=True):
        assert before[0] + 0.4 < slow[0] < fast[0] and before[1] < slow[1] < fast[1] - 0.04
assert 0.6 < small / full < 1.5

# %% [markdown]
# With both methods, a model that learns more of the village forgets more of the old world, and at equal learning they forget about the same. [[forgets-the-same]] (The dots of rank 4 are a little lower here. In longer and gentler training the order turned around.) What LoRA saves is the memory of training and the space: the update is a small file, and taking it out brings the old model back.

# %%
villager = village.taught(0.01, 4, 1)
n_update = sum(p.numel() for name, p in villager.named_parameters() if "lora" in name)
n_all = sum(p.numel() for p in villager.parameters()) - n_update
print(f"rank 4: {n_update:,} numbers next to {n_all:,}, {n_update / n_all:.0%}")

# %% [markdown]
# **Your task:** make the villager say another colour than silver. How hot must it be?

# %% deck="Task: how hot until it says another colour?"
from tinylm_classroom import sampling_view

beginning = "\nOne snowy day, shy Felix strolled to Seaview. He carried a"
sampling_view(villager, village.tokenizer(), beginning, temperature=1.0, seed=18)

# %% [markdown] tags=["note"]
# **Say.** Is this what the real ones are? Yes: named tensors, a few settings, and the parts that you have built. What differs is the size, the data, and the choices in the config.
#
# **Draw.** None.
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
# - The base of the angles and the eps leave no trace in the shapes. [[not-in-the-shapes]]
# - In 4 bits, 32 weights share a scale and a minimum, so that a weight takes 5 bits. [[four-bits]]
# - Rotary positions have two layouts. With the wrong one the model loads, is right at position 0, and has a far higher loss. [[mispaired]]
# - Reordering the rows of q and k makes it right. [[layout]]
# - Mistakes about positions are right at position 0, those about weights and ids are not. [[fingerprints]]
# - A wrong base can hardly be seen in the loss. [[base-unseen]]
# - A chat template makes a question a text that an answer follows. [[answers]]
# - The same sentence takes seven times as many tokens in Hindi as in English. [[languages]]
# - LoRA learns an update of low rank next to a frozen matrix. At equal learning it forgot about the same as training all weights. [[forgets-the-same]]
#
# You can now open a published model, check that you compute what it means, and teach it something.
#
# Next, lesson 19: how to find a fault that raises no error.

# %% [markdown] slide="skip"
# ## Sources
# - The model: Allal et al. 2025, [*SmolLM2: When Smol Goes Big*](https://arxiv.org/abs/2502.02737). The file format: [GGUF](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
# - LoRA: Hu et al. 2021, [*LoRA: Low-Rank Adaptation of Large Language Models*](https://arxiv.org/abs/2106.09685), section 4.1. What it learns and forgets: Biderman et al. 2024, [*LoRA Learns Less and Forgets Less*](https://arxiv.org/abs/2405.09673).
# - Rotary positions: Su et al. 2021, [*RoFormer*](https://arxiv.org/abs/2104.09864), section 3.2 (neighbours).
# - Tokenizers and languages: Petrov et al. 2023, [*Language Model Tokenizers Introduce Unfairness Between Languages*](https://arxiv.org/abs/2305.15425).
