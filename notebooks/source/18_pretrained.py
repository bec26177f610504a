# %% [markdown] slide="slide"
# # 18 Pretrained
# **Is this what the real ones are?**
#
# *Needs* lessons 01, 06, 07, 10 and 11. *Builds* what opens a checkpoint of Hugging Face in `hub`, and `LoRA` in `lora.py`. *Runs* in about 30 s on two cores.
# *Teaches* in about 50 minutes, plus 28 of exercises.

# %% [markdown] tags=["note"]
# The lesson has two ideas. A published model is a file of named tensors and a few settings, and our library computes what they mean; where it goes wrong, each mistake leaves other symptoms. And a published model can be taught something new with a small update next to its frozen matrices.
# Sections 1 to 4 are the core, with one exercise in section 3, and section 6. Section 5 is about tokenizers and the real model, section 7 trains, section 8 breaks LoRA, and section 9 has more for engineers.
# If you have only ten minutes, show the map of section 1 and the table of symptoms of section 4, and let the class find the fault of the unknown patient.
# Before the class: decide whether you show a real model. If yes, download one (section 5 says how), set `MODEL` in the first cell, run all cells, and expect other numbers than those that the text names.

# %% slide="skip"
MODEL = None  # or a folder with a model of Hugging Face, or its id on the hub, such as "openai-community/gpt2"

# %% slide="skip"
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from matplotlib import pyplot as plt

from tinylm_lib import TransformerLM, load_hf, preset, save_hf, storyworld
from tinylm_classroom import figures, predict, show_text
from tinylm_lib.hub.folder import find_folder
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** Everything that a company publishes when it publishes a model is in this folder. Today we open it without any library first, because there is nothing secret in it.
#
# **Draw.** A folder with two files: a short one with settings, and a long one that is cut into named tensors.
#
# **Ask.** Before the prediction: "You get only the shapes of all tensors. What do you know about the model?" Collect: vocabulary, width, number of layers, kind of feed-forward.
#
# **Usual answers.**
# - *The number of layers* (`the number of layers`): Count the names.
# - *The vocabulary* (`the size of the vocabulary`): It is a side of the embedding.
# - *Everything, it is just weights* (from the room): Then let them say what the eps of the norms is.
#
# **Cut if short.** The bytes of the header; show the names only.

# %% [markdown] slide="slide"
# ## 1. Open the file
# You have built a language model. Are GPT-2, Llama and Qwen the same kind of thing? A published model is a folder. We make one ourselves, so that the lesson needs no network: `save_hf` writes the shipped model in the format of Hugging Face.

# %%
shipped = load_pretrained("storyworld")
place = TemporaryDirectory()
folder = save_hf(shipped.model.eval(), Path(place.name) / "storyworld")
print(*sorted(path.name for path in folder.iterdir()))

# %% [markdown] slide="subslide"
# `config.json` has the settings, and `model.safetensors` the weights. A safetensors file begins with 8 bytes: the length of a header. The header is JSON text, and it says the name, type, shape and place of each tensor.


# %%
def read_header(path: Path) -> dict:
    with open(path, "rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(n_bytes))


# %% slide="subslide" evidence="header"
header = read_header(folder / "model.safetensors")
header.pop("__metadata__")
for name, about in list(header.items())[:5]:
    print(f"{name:<45} {about['dtype']} {about['shape']}, bytes {about['data_offsets']}")
n_numbers = sum(torch.Size(about["shape"]).numel() for about in header.values())
print(f"{len(header)} tensors, {n_numbers:,} numbers")
n_parameters_of_ours = sum(p.numel() for p in shipped.model.parameters())
assert n_numbers == n_parameters_of_ours

# %% [markdown]
# That is all there is: names, shapes, and then the numbers, one after the other. No code is in the file, and nothing says what is multiplied by what. [[header]] The name of the family is in `config.json`, and everybody who opens the file has to know what models of this family do.

# %% slide="subslide"
settings = json.loads((folder / "config.json").read_text())
for key in ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps", "rope_theta"):
    print(f"{key:<22} {settings[key]}")
print("tie_word_embeddings   ", settings["tie_word_embeddings"])


# %% [markdown]
# (Our model has the choices of the family `qwen3`: RMS norms, SwiGLU, rotary positions, and norms inside the heads.) Some of these settings repeat what the shapes say already. Which of them do not?


# %% slide="skip"
def shapes_with(**choices) -> dict[str, torch.Size]:
    """The names and shapes of a model like ours, but for these choices."""
    with torch.device("meta"):  # shapes without numbers
        lm = TransformerLM(replace(shipped.model.config, **choices))
    return {name: tensor.shape for name, tensor in lm.state_dict().items()}


# %% tags=["source-hidden"]
changes = {
    "the number of layers": {"n_layers": 4},
    "the size of the vocabulary": {"vocab_size": 346},
    "how fast positions rotate": {"rope_base": 500_000.0},
    "how wide the feed-forward is": {"d_ff": 384},
}
unseen = [what for what, change in changes.items() if shapes_with(**change) == shapes_with()]
predict(
    "You lose `config.json` and have only the weights. Which of these can you not read off the names and shapes?",
    key=lambda: unseen[0],
    choices={
        "the number of layers": "Count the names that differ only in their number.",
        "the size of the vocabulary": "It is the number of rows of the embedding.",
        "how fast positions rotate": "",
        "how wide the feed-forward is": "It is the number of rows of `gate_proj`.",
    },
    because="The base of the angles is a number in `config.json`, and no weight has its shape from it.",
)

# %% slide="subslide" evidence="not-in-the-shapes"
for what, change in {**changes, "the eps of the norms": {"norm_eps": 1e-3}}.items():
    print(f"{what:<30} changes the shapes: {shapes_with(**change) != shapes_with()}")
assert unseen == ["how fast positions rotate"] and shapes_with(norm_eps=1e-3) == shapes_with()

# %% [markdown]
# The speed of the rotation and the eps leave no trace in the shapes. [[not-in-the-shapes]] If such a setting is read wrongly, the model loads without an error. Section 4 shows what happens then.

# %% [markdown] slide="subslide"
# ### The map
# Each tensor of the file becomes a part of our model. Here is the whole map for two families. GPT-2 (its layout, not its weights, and without the masks that its file also holds) is in the second picture:


# %% slide="skip"
from tinylm_lib.hub.convert import family_of, hub_tensors, read_config


# %% slide="skip"
def parts_of(folder: Path) -> list[tuple[str, tuple, list[str]]]:
    """For each tensor of a file: its name, the sizes of its pieces, and the names of ours that these become."""
    values = json.loads((folder / "config.json").read_text())
    with torch.device("meta"):
        lm = TransformerLM(read_config(values))
    shapes = {name: tuple(t.shape) for name, t in lm.state_dict().items()}
    found = hub_tensors(family_of(values), shapes, lm.config.n_layers)
    return sorted((t.name, tuple(torch.Size(s).numel() for s in t.shapes), t.ours) for t in found)


# %% slide="skip"
torch.manual_seed(18)
gpt2_sizes = {"vocab_size": 345, "max_seq_len": 128, "d_model": 128, "n_layers": 3, "n_heads": 4, "d_ff": 512}
gpt2_like = TransformerLM(preset("gpt2", **gpt2_sizes)).eval()
gpt2_place = TemporaryDirectory()
gpt2_folder = save_hf(gpt2_like, gpt2_place.name)
real_folder = find_folder(MODEL) if MODEL else folder

# %% tags=["source-hidden"] slide="skip"
PART_COLORS = {"embed": "V", "lm_head": "V", "position": "T", "attention": "H", "ffn": "F", "norm": "B"}


def color_of(ours: str) -> str:
    part = next(part for part in PART_COLORS if part in ours)
    return figures.AXIS_COLORS[PART_COLORS["norm" if "norm" in ours else part]].light


def order_in_model(ours: str) -> tuple:
    rank = {"embed": 0, "position": 1, "blocks": 2, "final_norm": 3, "lm_head": 4}
    pieces = ours.split(".")
    return rank[pieces[0]], int(pieces[1]) if pieces[0] == "blocks" else 0, "ffn" in ours, ours


def stacked(names: list[tuple[str, int]], gap: float) -> dict[str, tuple[float, float]]:
    """Where each name begins and ends on a column of height 1."""
    total, at, found = sum(size for _, size in names), 0.0, {}
    room = 1 - gap * (len(names) - 1)
    for name, size in names:
        found[name] = (at, at + room * size / total)
        at = found[name][1] + gap
    return found


# %% tags=["source-hidden"] slide="skip"
EASE = torch.linspace(0, 1, 40).pow(2) * (3 - 2 * torch.linspace(0, 1, 40))  # from 0 to 1, flat at both ends


def band(ax, left: tuple[float, float], right: tuple[float, float], hue: str) -> None:
    """A piece of a tensor at the left, our part at the right, and a band between them."""
    low, high = (a + (b - a) * EASE for a, b in zip(left, right, strict=True))
    ax.fill_between(torch.linspace(0, 1, 40), low, high, color=hue, alpha=0.5, linewidth=0)
    ax.fill_between([-0.07, -0.01], *left, color=hue, linewidth=0)
    ax.fill_between([1.01, 1.07], *right, color=hue, linewidth=0)


def label_parts(ax, places: dict[str, tuple[float, float]]) -> None:
    groups: dict[str, list] = {}
    for part, ends in places.items():
        pieces = part.split(".")
        group = f"block {pieces[1]}" if pieces[0] == "blocks" else pieces[0]
        groups.setdefault(group, []).extend(ends)
    for group, ends in groups.items():
        if max(ends) - min(ends) > 0.03:
            ax.text(1.1, (min(ends) + max(ends)) / 2, group, va="center", size=18)


# %% tags=["source-hidden"] slide="skip"
def draw_map(ax, folder: Path) -> list:
    """The tensors of a file at the left, our parts at the right, and what becomes what."""
    tensors = parts_of(folder)
    ours = [(part, n) for _, sizes, names in tensors for part, n in zip(names, sizes, strict=True)]
    left = stacked([(name, sum(sizes)) for name, sizes, _ in tensors], 0.25 / len(tensors))
    right = stacked(sorted(ours, key=lambda pair: order_in_model(pair[0])), 0.25 / len(ours))
    for name, sizes, names in tensors:
        start, end = left[name]
        for part, size in zip(names, sizes, strict=True):
            below = start + (end - left[name][0]) * size / sum(sizes)
            band(ax, (start, below), right[part], color_of(part))
            start = below
    label_parts(ax, right)
    return tensors


# %% tags=["signature", "source-hidden"] slide="subslide"
fig, both = plt.subplots(1, 2, figsize=(10.6, 5.6), layout="constrained")
mapped = []
for ax, where in zip(both, (folder, real_folder if MODEL else gpt2_folder), strict=True):
    mapped.append(draw_map(ax, where))
    title = json.loads((where / "config.json").read_text())["model_type"]
    ax.set(xlim=(-0.1, 1.5), ylim=(1.02, -0.02), xticks=[], yticks=[])
    ax.set_title(title, size=22)
    ax.set_xlabel("left: the file, right: our model", size=18)
    ax.set_ylabel("tensors by size", size=18)
    ax.spines[:].set_visible(False)
kinds = {"embedding, head": "V", "positions": "T", "attention": "H", "feed-forward": "F"}
keys = [plt.Rectangle((0, 0), 1, 1, color=figures.AXIS_COLORS[letter].light) for letter in kinds.values()]
fig.legend(keys, list(kinds), loc="outside lower center", ncols=4, frameon=False, fontsize=18)
figures.display(
    fig, alt="Two maps. In each, coloured bands lead from the tensors of a file, in the order of the file, to the parts of our model: embedding, three blocks and head. In the second, one wide tensor of each block splits into three bands.",
    caption="Each band is a tensor, as wide as it is large. In the file the head comes first, because names are sorted. In GPT-2's format one tensor holds the weights of q, k and v, and the head is missing, because it is the embedding.",
    table={
        "family": [ax.get_title(loc="left") + ax.get_title() for ax in both],
        "tensors": [len(each) for each in mapped],
        "parts of ours": [sum(len(names) for *_, names in each) for each in mapped],
        "split in three": [sum(len(names) == 3 for *_, names in each) for each in mapped],
    },
)  # fmt: skip

# %% [markdown] tags=["note"]
# **Say.** Four lines of renaming, and the shipped model is a Qwen. Then we do the opposite of trusting: we compute a whole attention layer from the raw tensors of the file and compare it with the library.
#
# **Draw.** Two columns of names with arrows: `self_attn.q_proj` to `attention.q_proj`, `mlp.up_proj` to `ffn.up_proj`.
#
# **Ask.** "How would you notice that two names were exchanged, if the shapes are equal?"
#
# **Usual answers.**
# - *The loss would be bad* (from the room): Yes, but it does not say where. Section 4 does.
# - *The parts are still (in, out)* (`not turned`): With as many inputs as outputs no error is raised.
#
# **Cut if short.** The tied head.

# %% [markdown] slide="slide"
# ## 2. Names, one by one
# For the families with Llama's blocks, other names are nearly all that differs:

# %%
RENAMED = {
    "model.embed_tokens": "embed", "model.layers": "blocks", "model.norm": "final_norm", "self_attn": "attention",
    "mlp": "ffn", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


# %%
def our_name(theirs: str) -> str:
    for old, new in RENAMED.items():
        theirs = theirs.replace(old, new)
    return theirs


# %% slide="subslide"
from safetensors.torch import load_file

raw = load_file(folder / "model.safetensors")
weights = {our_name(name): tensor for name, tensor in raw.items()}
for name in list(raw)[1:6]:
    print(f"{name:<45} {our_name(name)}")

# %% evidence="renamed" slide="subslide"
by_hand = TransformerLM(replace(shipped.model.config, rope_base=settings["rope_theta"])).eval()
by_hand.load_state_dict(weights)
opened = load_hf(folder)
some_ids = torch.tensor([shipped.tokenizer.encode("\nOne snowy day, shy Felix strolled to Ashford.")])
assert torch.equal(by_hand(some_ids), opened(some_ids))
print("a name for each of ours, and the same logits as load_hf, bit for bit")

# %% [markdown]
# A dictionary with seven entries opens the file. [[renamed]] But `TransformerLM` and `load_hf` are both ours. To be sure of what these names *mean*, we compute one attention layer from the raw tensors, with nothing of the library:


# %% slide="skip"
def normed(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return gain * x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def rotated(x: torch.Tensor) -> torch.Tensor:
    """x (H, T, D), turned by position * 10000^(-2i/D), where D/2 rows lie between the partners of a pair."""
    D = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[1]), 10_000.0 ** (-torch.arange(0, D, 2) / D))  # (T, D/2)
    a, b = x.chunk(2, -1)  # the first and the second half of a head
    return torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), -1)


# %%
def attention_by_hand(x: torch.Tensor, W: dict) -> torch.Tensor:
    x = normed(x, W["input_layernorm"])  # (T, C)
    q, k, v = ((x @ W[f"self_attn.{n}_proj"].T).view(-1, 4, 32).transpose(0, 1) for n in "qkv")  # each (H, T, D)
    q = rotated(normed(q, W["self_attn.q_norm"]))  # (H, T, D)
    k = rotated(normed(k, W["self_attn.k_norm"]))  # (H, T, D)
    scores = q @ k.mT / 32**0.5  # (H, T, T)
    scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)  # (H, T, T)
    mixed = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)  # (T, C)
    return mixed @ W["self_attn.o_proj"].T  # (T, C)


# %% slide="skip"
def raw_layer(layer: int) -> dict[str, torch.Tensor]:
    """The tensors of one layer of the file, without the beginning and the end of their names."""
    start = f"model.layers.{layer}."
    return {n.removeprefix(start).removesuffix(".weight"): t for n, t in raw.items() if n.startswith(start)}


# %% slide="subslide"
from tinylm_classroom import capture, trace

caught = capture(opened, some_ids)
trace(attention_by_hand, caught.inputs["blocks.1"][0], raw_layer(1), sizes={"C": 128, "H": 4, "D": 32})

# %% evidence="by-hand"
for layer in range(3):
    of_library = caught.outputs[f"blocks.{layer}.attention"][0]  # (T, C)
    of_file = attention_by_hand(caught.inputs[f"blocks.{layer}"][0], raw_layer(layer))
    torch.testing.assert_close(of_file, of_library, rtol=1e-4, atol=1e-4)
    print(f"layer {layer}: largest number {of_library.abs().max():.1f}, largest difference below 0.001")

# %% [markdown]
# Three layers agree. [[by-hand]] And is this what *Hugging Face's* code computes? Lessons do not import `transformers`, but a test of this project does: `tests/hub/test_load.py` makes GPT-2, Llama, Mistral, Qwen2 and Qwen3 models in `transformers`, opens each with `load_hf`, and compares all logits.

# %% [markdown] slide="subslide"
# ### GPT-2 is older
# GPT-2's file has four surprises. Its matrices are stored as (in, out), because its code computes `x @ W`. The weights of q, k and v are one matrix, side by side. There is no head, because it is the embedding once more (lesson 10). And `attn.bias` is not a bias but the causal mask.

# %% slide="skip"
from safetensors.torch import save_file


def as_published(path: Path) -> None:
    """Rewrites the file of a GPT-2 as the one on the hub is: names without the prefix, and the mask of each layer."""
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 128, 128).tril() for layer in range(3)}
    save_file(tensors | masks, path, {"format": "pt"})


# %% slide="skip"
with_prefix = load_hf(gpt2_folder)  # save_hf writes names such as transformer.h.0.attn.c_attn.weight, and no masks
as_published(gpt2_folder / "model.safetensors")

# %% evidence="gpt2-file"
gpt2_raw = load_file(gpt2_folder / "model.safetensors")
for name in ("wte.weight", "h.0.attn.bias", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight", "h.0.mlp.c_fc.weight"):
    print(f"{name:<23} {tuple(gpt2_raw[name].shape)}")
print("a tensor called lm_head:", "lm_head.weight" in gpt2_raw)
assert gpt2_raw["h.0.attn.c_attn.weight"].shape == (128, 3 * 128) and "lm_head.weight" not in gpt2_raw
assert gpt2_raw["h.0.mlp.c_fc.weight"].shape == (gpt2_like.config.d_model, gpt2_like.config.d_ff)
without_prefix = load_hf(gpt2_folder)
assert torch.equal(with_prefix(some_ids), gpt2_like(some_ids)) and torch.equal(
    without_prefix(some_ids), gpt2_like(some_ids)
)

# %% [markdown]
# [[gpt2-file]] (Newer programs put `transformer.` before all names and store no masks. `load_hf` opens both.) `attn.c_proj` is square: if you forget to transpose it, no shape is wrong and nothing fails.

# %% [markdown] slide="subslide"
# ### Your turn
# Cut GPT-2's fused matrix into the three that our `Linear` layers need.

# %% slide="skip"
from tinylm_classroom import check, hint, keep, show


# %% tags=["exercise"] name="split_fused" minutes=4 difficulty=1 plan=80
def split_fused(fused):
    """fused (in, 3 * out): the weights of q, k and v side by side, in this order,
    stored for `x @ fused`.

    Returns a tuple of three, each (out, in), for `F.linear`.
    """
    # SOLUTION
    return tuple(fused.T.chunk(3))
    # END


# %% tags=["check"]
if check("split_fused", split_fused).passed:
    keep("split_fused", split_fused)
    three = split_fused(gpt2_raw["h.0.attn.c_attn.weight"])
    first = load_hf(gpt2_folder).blocks[0].attention
    print([torch.equal(a, b.weight) for a, b in zip(three, (first.q_proj, first.k_proj, first.v_proj), strict=True)])

# %%
hint("split_fused")

# %% [markdown] tags=["solution"]
# After the transposition the three matrices lie one below the other. A common mistake is to cut along the wrong axis and to transpose afterwards; another one is `reshape`, which keeps the order of the numbers and so does not exchange rows and columns.

# %% [markdown] slide="subslide"
# ### The library's version
# The library does the same for every family, from a table of names. It refuses what it cannot compute, reads one tensor at a time, and runs no code from the file.

# %%
show(load_hf)

# %% [markdown] tags=["note"]
# **Say.** This mistake has cost many people a day. Two programs rotate the same pairs, but they disagree about where the two members of a pair are. Nothing fails, and the first word is even right.
#
# **Draw.** A head of eight rows. Left: brackets around neighbours. Right: arcs from row 0 to row 4, 1 to 5, and so on.
#
# **Ask.** The prediction. Before the answer, ask what a rotation by 0 does.
#
# **Usual answers.**
# - *At none* (`none`): What is rotated by the angle 0, and how?
# - *At all of them, because the model was trained so* (`all`): It was trained with the other pairs.
# - *The rows go the other way* (`the other way`): Try four rows with pencil and paper.
# - *All rows are reordered as one head* (`one head`): No row may leave its head.
#
# **Cut if short.** The reason why q and k alone need it; say it in one sentence.

# %% [markdown] slide="slide"
# ## 3. Two ways to pair coordinates
# Rotary positions have two layouts (lesson 06): the paper pairs neighbours, (0, 1), (2, 3) and so on, and the hub's files of Llama, Mistral and Qwen pair the two halves of a head, 0 with D/2, 1 with D/2 + 1. With the wrong pairs the loss is high, but *where* does it go wrong?

# %% slide="skip"
from torch.nn.functional import cross_entropy

texts = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(500, 560)]
encoded = [shipped.tokenizer.encode("\n" + text) for text in texts]
ids = torch.tensor([each[:96] for each in encoded if len(each) >= 96][:40])  # (B, T)


# %% slide="skip"
@torch.no_grad()
def losses_of(lm: TransformerLM, ids: torch.Tensor = ids) -> torch.Tensor:
    """The loss of each token after the first: (B, T-1)."""
    logits = lm(ids)[:, :-1]  # (B, T-1, V)
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)


# %%
def loaded(edit=lambda name, tensor: tensor, **choices) -> TransformerLM:
    """Our model filled from the file, after `edit` of each tensor, with other choices in its config."""
    lm = TransformerLM(replace(opened.config, **choices)).eval()
    state = {name: edit(name, tensor.clone()) for name, tensor in weights.items() if name in lm.state_dict()}
    lm.load_state_dict(state)
    return lm


# %% slide="skip"
good, mispaired = loaded(), loaded(rope_layout="interleaved")
with torch.no_grad():
    right_logits, wrong_logits = good(ids), mispaired(ids)  # (B, T, V)
error_at = (wrong_logits - right_logits).abs().amax((0, 2)) / right_logits.abs().amax((0, 2))  # (T)

# %% tags=["source-hidden"]
exact = [position for position in range(96) if error_at[position] < 1e-4]
predict(
    "The wrong pairs are rotated. At which positions of the text are the logits still right?",
    key=lambda: {0: "none", 1: "the first one", 96: "all"}[len(exact)],
    choices={
        "none": "Which angle has position 0?",
        "the first one": "",
        "the first ten or so": "Nearby positions have small angles in most pairs, but not in all of them.",
        "all": "It would be all if the weights had been trained with these pairs.",
    },
    because="At position 0 every angle is 0, so it does not matter which coordinates are paired.",
)

# %% slide="subslide" evidence="mispaired"
print(f"loss with the right pairs {losses_of(good).mean():.2f}, with the wrong ones {losses_of(mispaired).mean():.2f}")
print("largest error of a logit, relative to the largest logit:")
for position in (0, 1, 5, 10, 90):
    print(f"position {position:>2}: {error_at[position]:.2f}")
far_off = (error_at[10:] > 0.3).float().mean()
print(f"from position 10 on it is above 0.3 at {far_off:.0%} of the positions")
assert exact == [0] and losses_of(mispaired).mean() > losses_of(good).mean() + 1.5
assert error_at[:6].max() < 0.15 and far_off > 0.8

# %% [markdown]
# No error is raised. Position 0 is right and the next five are nearly right, but from position 10 on the logits are far off nearly everywhere. [[mispaired]] So a converter puts the rows of q and k, with their biases and the gains of their norms, into the other order. (v is not rotated, so its rows stay.)

# %% [markdown] slide="subslide"
# ### Your turn
# Someone trained with neighbours. Reorder the rows of a weight so that the same coordinates are paired as halves.


# %% tags=["exercise"] name="rotary_layout" minutes=8 difficulty=3
def rotary_layout(weight, n_heads):
    """weight (H * D, C): head after head, the pairs of a head are rows (0, 1), (2, 3), ...

    Returns (H * D, C): the same rows, in each head in the order
    0, 2, 4, ..., 1, 3, 5, ..., so that partners are D / 2 rows apart.
    """
    # SOLUTION
    heads = weight.view(n_heads, -1, weight.shape[1])
    return torch.cat((heads[:, 0::2], heads[:, 1::2]), 1).view(weight.shape)
    # END


# %% tags=["check"]
if check("rotary_layout", rotary_layout).passed:
    keep("rotary_layout", rotary_layout)
    print(rotary_layout(torch.arange(8)[:, None], 1).flatten().tolist())

# %%
hint("rotary_layout")

# %% [markdown] tags=["solution"]
# Two axes for the rows, then the even rows of every head, then the odd ones. A common mistake is to reorder all rows at once, which moves rows from one head into another; with a single head that gives the right result.

# %% [markdown]
# The library's converter does this, too. A model of neighbours with unequal gains goes into a file, and a model of halves reads it:

# %% slide="skip"
torch.manual_seed(3)
of_neighbours = TransformerLM(replace(opened.config, rope_layout="interleaved", init="normal")).eval()
with torch.no_grad():
    for name, gains in of_neighbours.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            gains.uniform_(0.5, 2)
second_place = TemporaryDirectory()
second_file = save_hf(of_neighbours, second_place.name) / "model.safetensors"
halves = {our_name(name): tensor for name, tensor in load_file(second_file).items()}
old_gains = {
    name: tensor for name, tensor in of_neighbours.state_dict().items() if "q_norm" in name or "k_norm" in name
}

# %% evidence="layout-kept" slide="subslide"
of_halves = TransformerLM(replace(opened.config, rope_layout="halves")).eval()
expected = of_neighbours(some_ids)
for what, state in {"as the file has them": halves, "gains in the old order": halves | old_gains}.items():
    of_halves.load_state_dict(state)
    error = (of_halves(some_ids) - expected).abs().max() / expected.abs().max()
    print(f"{what:<23} largest error {error:.3f}")
    assert error < 1e-4 if state is halves else error > 0.01
torch.testing.assert_close(load_hf(second_place.name)(some_ids), expected)

# %% [markdown]
# Both the rows and the gains are reordered. [[layout-kept]] Hugging Face did this with the rows of Meta's own Llama files ([source](https://github.com/huggingface/transformers/blob/main/src/transformers/models/llama/convert_llama_weights_to_hf.py), its function `permute`).

# %% [markdown] tags=["note"]
# **Say.** Now you are the doctor. Eight patients, most of them loaded from the same file with one mistake; the last has a tokenizer that counts from 1. None raises an error. Each has symptoms of its own, if you measure the right things in the right order.
#
# **Draw.** The order of an expert, as a list: Is the text right? Is position 0 right? Is only what is far away wrong? Which part differs first?
#
# **Ask.** Cover the rows of the heat map and show only one: "Which conversion is this?"
#
# **Usual answers.**
# - *Higher than a uniform guess is impossible* (`near the uniform guess`): A uniform guess knows nothing. A broken model knows something wrong, and says it with certainty.
# - *It must be the weights* (from the room): A wrong base of the angles leaves every weight right.
# - *The last wrong one is returned* (`last`): Errors travel on. What is the first?
#
# **Cut if short.** The healthy patient, and the second unknown one.

# %% [markdown] slide="slide"
# ## 4. It loads, but it talks nonsense
# Seven patients were loaded from our file, each with one mistake that people really make:


# %% slide="skip"
def k_for_v(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or the other one of k_proj and v_proj."""
    other = {"k_proj": "v_proj", "v_proj": "k_proj"}
    here = next((part for part in other if part in name), None)
    return weights[name.replace(here, other[here])] if here else tensor


# %%
patients = {
    "right": loaded(),
    "eps 100 times too large": loaded(norm_eps=1e-3),
    "rotary pairs": loaded(rope_layout="interleaved"),
    "rope_theta 500000": loaded(rope_base=500_000.0),
    "o_proj not transposed": loaded(lambda name, t: t.T if "o_proj" in name else t),
    "k and v exchanged": loaded(k_for_v),
    "gains without the 1": loaded(lambda name, t: t - 1 if "norm" in name else t),
    "head tied": loaded(tie_embeddings=True),
}  # fmt: skip

# %% [markdown] slide="subslide"
# (Gemma stores its gains minus 1. "Head tied" uses the embedding as the head, although the file has its own.) The eighth is healthy, but its tokenizer counts from 1: every id is one too large.


# %% slide="skip"
def ids_for(patient: str) -> torch.Tensor:
    return (ids + 1) % opened.config.vocab_size if patient == "token ids + 1" else ids


patients["token ids + 1"] = loaded()
loss_at = {name: losses_of(lm, ids_for(name)).mean(0) for name, lm in patients.items()}  # each (T-1)
with torch.no_grad():
    logits_of = {name: lm(ids_for(name)) for name, lm in patients.items()}  # each (B, T, V)
certain = {name: each[:, :-1].softmax(-1).amax(-1).mean() for name, each in logits_of.items()}
right_words = {
    name: (each[:, :-1].argmax(-1) == ids_for(name)[:, 1:]).float().mean() for name, each in logits_of.items()
}
reference = logits_of.pop("right")

# %% tags=["source-hidden"]
uniform = torch.tensor(float(opened.config.vocab_size)).log().item()
worst = max(loss_at, key=lambda name: loss_at[name].mean())
predict(
    "A uniform guess over 345 words has a loss of 5.8. How high is the loss of the worst patient?",
    key=lambda: "several times as high" if loss_at[worst].mean() > 3 * uniform else "near the uniform guess",
    choices={
        "below the uniform guess": "Even broken models know which words are frequent, but do they say it?",
        "near the uniform guess": "A uniform guess is careful. Is a broken model careful?",
        "several times as high": "",
    },
    because="The worst patient is even more certain than the healthy model, but of wrong words, and that has a high loss.",
)

# %% slide="subslide" evidence="losses-of-patients"
near, far = ({name: each[part].mean() for name, each in loss_at.items()} for part in (slice(8), slice(60, None)))
# ESSENTIAL
print(f"{'':<24} loss   words 1-8   words 60 on   certain   right")
for name, each in loss_at.items():
    print(
        f"{name:<24} {each.mean():5.2f} {near[name]:9.2f} {far[name]:11.2f} {certain[name]:11.2f} {right_words[name]:9.2f}"
    )
print(f"{'uniform guess':<24} {uniform:5.2f}")
# END
ranking = sorted(loss_at, key=lambda name: loss_at[name].mean())
assert set(ranking[-3:]) == {"gains without the 1", "head tied", "token ids + 1"}
assert loss_at[ranking[-3]].mean() > 1.3 * loss_at[ranking[-4]].mean()
assert all(certain[name] > 0.5 and right_words[name] < 0.05 for name in ranking[-3:])
assert certain[ranking[-1]] > certain["right"]
late = [name for name in loss_at if near[name] < near["right"] + 0.2 and far[name] > 2 * far["right"]]
assert late == ["rotary pairs", "rope_theta 500000"]
assert (loss_at["eps 100 times too large"] - loss_at["right"]).mean().abs() < 0.005

# %% [markdown]
# The three with the highest loss, with broken gains, head or ids, are certain of wrong words: their first choice has a probability above 0.5 on average (*certain*), and it is almost never right (*right*). Only late words suffer in both patients with wrong rotations, and in no other. A wrong eps of this size cannot be seen in the loss. [[losses-of-patients]]

# %% [markdown] slide="subslide"
# ### With a reference
# If another program runs the file correctly, compare logits, position by position. Here "right" is the reference.

# %% slide="skip"
watched = [0, 1, 4, 16, 80]
relative = {
    name: ((each - reference).abs().amax((0, 2)) / reference.abs().amax((0, 2)))[watched]
    for name, each in logits_of.items()
}  # each (5)

# %% tags=["source-hidden"] slide="subslide" evidence="fingerprints"
errors = torch.stack(list(relative.values())).clamp(max=1)  # (patients, 5)
with figures.axes("Each mistake has its fingerprint", "position in the text", "patient", (9, 4.5)) as (fig, ax):
    ax.grid(visible=False)
    figures.cells(ax, errors, errors, list(relative), [2] * len(relative))
    ax.set_xticks(range(len(watched)), watched)
figures.display(
    fig, alt="Heat map of eight patients at five positions. The two with wrong rotations are right at position 0 and wrong later; a wrong eps is right everywhere; the others are wrong from position 0 on.",
    caption="Largest error of a logit, relative to the largest logit; 1.00 is that or more.",
    table={"patient": list(relative)} | {f"position {at}": [f"{error:.2f}" for error in errors[:, n]] for n, at in enumerate(watched)},
)  # fmt: skip
for name in ("rotary pairs", "rope_theta 500000"):
    assert relative[name][0] < 1e-4
assert relative["rope_theta 500000"][3] < 0.1 < relative["rotary pairs"][3]
others = relative.keys() - {"rotary pairs", "rope_theta 500000", "eps 100 times too large"}
assert min(relative[name][0] for name in others) > 0.1 and max(relative["eps 100 times too large"]) < 0.01

# %% [markdown]
# Apart from the eps, whose error is small everywhere, position 0 is right if the mistake is about positions, and wrong otherwise. With a wrong `rope_theta` the error grows slowly, with wrong pairs much faster. [[fingerprints]]

# %% [markdown] slide="subslide"
# ### Which part differs first?
# Now compare the result of *every part*. After the cause all are wrong, so only the first one counts. `capture` (lesson 04) returns them in the order of computation.


# %% tags=["exercise"] name="first_difference" minutes=6 difficulty=2 plan=80
def first_difference(ours, theirs, tolerance):
    """ours, theirs: two lists of tensors, pair by pair of the same shape.

    A pair differs if the largest absolute difference exceeds tolerance times
    the largest absolute value of theirs. A NaN in ours always differs,
    also from a NaN in theirs.
    Returns the index of the first pair that differs, an int;
    the number of pairs if none does.
    """
    # SOLUTION
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).abs().max() <= tolerance * b.abs().max():
            return i
    return len(ours)
    # END


# %% tags=["check"]
if check("first_difference", first_difference).passed:
    keep("first_difference", first_difference)

# %%
hint("first_difference")

# %% [markdown] tags=["solution"]
# `not error <= limit` instead of `error > limit`: a NaN makes every comparison False, so this form raises the alarm. Related to the largest value of *theirs*, because ours may be what is broken.

# %% slide="skip"
healthy = capture(patients["right"], ids[:4]).outputs


def first_wrong_part(name: str, tolerance: float = 1e-3) -> str:
    """The first part whose result differs; an ordinary loop, so that the cell runs before you solve the exercise."""
    found = capture(patients[name], ids_for(name)[:4]).outputs
    for part, right in healthy.items():
        if part not in found or not (found[part] - right).abs().max() <= tolerance * right.abs().max():
            return part
    error = (logits_of[name][:4] - reference[:4]).abs().max()
    return "the head" if error > tolerance * reference[:4].abs().max() else "none"


# %% slide="subslide" evidence="first-part"
for name in logits_of:
    print(f"{name:<24} first wrong: {first_wrong_part(name)}")
assert first_wrong_part("rotary pairs").endswith("rotation.q") and first_wrong_part("token ids + 1") == "embed"
assert first_wrong_part("rope_theta 500000").endswith("rotation.q")
assert first_wrong_part("gains without the 1") == "blocks.0.attn_norm"
assert first_wrong_part("o_proj not transposed") == "blocks.0.attention.o_proj"

# %% [markdown]
# This names the part: the ids at the embedding, the gains at the first norm, both wrong rotations at the rotation, the transposed matrix at `o_proj`. [[first-part]]

# %% [markdown] slide="subslide"
# ### An unknown patient
# Someone brings a model. You may look at its symptoms only:

# %% slide="skip"
unknown = loaded(rope_base=100_000.0)
patients["unknown"] = unknown
unknown_loss = losses_of(unknown).mean(0)
with torch.no_grad():
    unknown_error = ((unknown(ids) - reference).abs().amax((0, 2)) / reference.abs().amax((0, 2)))[watched]

# %% slide="subslide" evidence="unknown"
print(f"loss: first 8 words {unknown_loss[:8].mean():.2f}, words 60 on {unknown_loss[60:].mean():.2f}")
for position, error in zip(watched, unknown_error, strict=True):
    print(f"position {position:>2}: relative error {error:.2f}")
print("first wrong:", first_wrong_part("unknown"))
assert (
    unknown_error[0] < 1e-4 < unknown_error[2] < 0.2 and unknown_loss[60:].mean() > loss_at["right"][60:].mean() + 0.1
)

# %% tags=["source-hidden"]
predict(
    "What is wrong with the unknown patient?",
    key=lambda: "the base of the angles" if unknown.config.rope_base != opened.config.rope_base else "something else",
    choices={
        "the base of the angles": "",
        "the pairs of the rotation": "With wrong pairs the error would already be large in the middle of the text. Here it is small there.",
        "q and k were exchanged": "Then the first wrong part would be `q_proj`, which comes before the rotation.",
        "the tokenizer": "Then already the embedding would differ.",
    },
    because="Position 0 is right, near positions are nearly right, and the first part that differs is the rotation.",
)

# %% [markdown]
# Its base is nearer to the right one, so it is less ill. [[unknown]] Such a mistake is dangerous, because short tests pass.

# %% [markdown] tags=["note"]
# **Say.** The same cells, but now on whatever model `MODEL` names. Offline that is our own model and a small tokenizer that we train on the spot.
#
# **Draw.** A word in three scripts, and below it the bytes: one per letter, two per letter, three per letter.
#
# **Ask.** The prediction. Before it: "What does a tokenizer know of a script that it never saw?"
#
# **Usual answers.**
# - *One token per letter* (`one per letter`): A byte-level tokenizer falls back to bytes, and a letter of this script has two.
# - *It fails* (`it raises an error`): Bytes never fail (lesson 01).
#
# **Cut if short.** Numbers.

# %% [markdown] slide="slide" plan=80
# ## 5. The real thing
# Now the same with a model that somebody else has trained. Set `MODEL` in the first cell to an id such as `openai-community/gpt2`, `HuggingFaceTB/SmolLM2-135M` or `Qwen/Qwen3-0.6B`, or to a folder, and run all cells again. (It needs `pip install 'tinylm-lib[hf]'`, and the first time a network.) Nothing is downloaded unless you set it. The outputs that you see here are those of our small model.

# %% slide="skip"
from tinylm_lib import load_model, token_log_probs, train_bpe

if MODEL:
    real, real_tokenizer = load_model(real_folder)
    real = real.float()
    TEXT = "The capital of France is Paris, and the capital of Italy is"
else:
    real, real_tokenizer = opened, shipped.tokenizer
    TEXT = "\nOne snowy day, shy Felix strolled to Ashford. He carried a red kite. There he met"

# %% slide="subslide" evidence="opened"
n_parameters = sum(p.numel() for p in real.parameters())
print(f"{type(real).__name__}: {n_parameters:,} parameters, {real.config.n_layers} layers, {real.config.n_heads} heads")
print(f"norm {real.config.norm}, positions {real.config.position}, feed-forward {real.config.ffn}")
print(f"head tied: {real.config.tie_embeddings}")
assert type(real) is TransformerLM

# %% slide="subslide" evidence="read"
read = torch.tensor([list(real_tokenizer.beginning) + real_tokenizer.encode(TEXT)])  # (1, T)
surprise = -token_log_probs(real, read)[0]  # (T-1)
print(f"{read.shape[1]} tokens, loss {surprise.mean():.2f}, perplexity {surprise.mean().exp():.1f}")
with torch.no_grad():
    after = real(read)[0, -1].softmax(-1)  # (V)
for probability, token in zip(*(t.tolist() for t in after.topk(5)), strict=True):
    print(f"{probability:.2f} {real_tokenizer.decode([token])!r}")
assert len(surprise) == read.shape[1] - 1 and (surprise >= 0).all()

# %% [markdown]
# It is one class, `TransformerLM`, with other choices in its config. [[opened]] Everything of the earlier lessons works on it: loss and perplexity, the next word [[read]], and attention:

# %% slide="skip"
from tinylm_classroom import attention_view

# %% slide="skip"
attention_view(real, real_tokenizer, read[0, :8].tolist())

# %% [markdown] slide="subslide"
# ### What its tokenizer does
# A byte-level BPE (lesson 01) can write every text, but how many tokens does it need? Offline we train one on our stories, and then compare translations of one sentence, the first of article 1 of the [Universal Declaration of Human Rights](https://www.un.org/en/about-us/universal-declaration-of-human-rights):

# %% slide="skip"
small_bpe = train_bpe(storyworld.corpus(300, seed=1), 500)
bpe = real_tokenizer if MODEL else small_bpe

# %% tags=["source-hidden"]
per_letter = len(small_bpe.encode("Привет")) / len("Привет")
predict(
    "This tokenizer has seen English stories only. How many tokens does it need for the Russian word Привет?",
    key=lambda: {1.0: "one per letter", 2.0: "two per letter"}.get(per_letter, "one for the word"),
    choices={
        "one for the word": "Only frequent pairs became tokens, and it has seen no Russian.",
        "one per letter": "Its first tokens are bytes. How many bytes does a Cyrillic letter have?",
        "two per letter": "",
        "it raises an error": "Bytes can write every text.",
    },
    because="A Cyrillic letter has two bytes in UTF-8, and no merge was learned for them.",
)

# %% slide="subslide"
one_sentence = {
    "English": "All human beings are born free and equal in dignity and rights.",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
}  # fmt: skip

# %% evidence="scripts"
n_tokens = {name: len(bpe.encode(text)) for name, text in one_sentence.items()}
to_english = {name: n / n_tokens["English"] for name, n in n_tokens.items()}
for name, text in one_sentence.items():
    print(
        f"{name:<8} {len(text):>2} characters, {len(text.encode()):>3} bytes, {n_tokens[name]:>3} tokens, "
        f"{to_english[name]:.1f} times English"
    )
if not MODEL:
    assert min(ratio for name, ratio in to_english.items() if name != "English") > 1.05 and to_english["Hindi"] > 5

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(9.4, 4.6), layout="constrained")
ax.barh(list(to_english), list(to_english.values()), color=figures.SERIES[0])
ax.axvline(1, color=figures.QUIET, linestyle=":")
ax.invert_yaxis()
ax.set(title="Tokens for the same sentence", xlabel="tokens, relative to English", ylabel="language")
figures.display(
    fig, alt="Bar chart: how many tokens one sentence takes in six languages, relative to English.",
    caption="A tokenizer needs the fewest tokens for what it was trained on. For scripts that it has never seen it falls back to bytes.",
    table={"language": list(to_english), "tokens": list(n_tokens.values()), "relative to English": list(to_english.values())},
    digits=2,
)  # fmt: skip

# %% [markdown]
# The same sentence takes more tokens in every other language, in Hindi more than five times as many, so less text fits into the context, and reading and writing it takes more steps. [[scripts]] Real tokenizers are trained on many languages, but unequally ([Petrov et al. 2023](https://arxiv.org/abs/2305.15425)). Set `MODEL`, and this picture is about yours.

# %% slide="subslide" evidence="numbers-cut"
for number in ("7", "42", "1234", "1234567"):
    print(f"{number:<8}", [bpe.decode([token]) for token in bpe.encode(number)])
if not MODEL:
    assert len(bpe.encode("1234567")) == 7

# %% [markdown]
# Our stories have no numbers, so every digit is a token here. [[numbers-cut]] GPT-2 cuts numbers into irregular pieces, and newer tokenizers into single digits or groups of three. How numbers are cut matters: models add better when the groups of three are cut from the right ([Singh and Strouse 2024](https://arxiv.org/abs/2402.14903)).

# %% [markdown] tags=["note"]
# **Say.** You have a model of billions of parameters and want to teach it one thing. Full fine-tuning moves all of them, and keeps three more numbers for each while it trains. LoRA leaves them alone and learns a small detour.
#
# **Draw.** A wide box W with x going in and y coming out. Below it a detour through a bottleneck: A narrows to r numbers, B widens again, and a plus sign joins the two.
#
# **Ask.** "Why does B start at 0, and not A?" Leave it open until section 8.
#
# **Usual answers.**
# - *50 %* (`50`): Count the numbers of the two small matrices, not their sides.
# - *The factor alpha / r is missing* (`no factor`): With rank r the two have r times as many ways to add up.
# - *Both start at 0, to be safe* (from the room): Section 8 tries it.
#
# **Cut if short.** The library's version.

# %% [markdown] slide="slide"
# ## 6. A small update
# Can you teach such a model something new on a laptop? Training with AdamW keeps four numbers for each parameter (lesson 10), and afterwards every task has a whole model of its own.

# %% [markdown] slide="subslide"
# **LoRA** (*low-rank adaptation*, [Hu et al. 2021](https://arxiv.org/abs/2106.09685)) freezes the matrix $W$ and learns an update that is the product of two thin ones:
#
# $$y = W x + \frac{\alpha}{r} B A x$$
#
# $A$ makes $r$ numbers of $x$, and $B$ makes an output of these; $r$ is the **rank**. By hand, with rank 1:

# %% evidence="lora-by-hand"
W = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])  # (out, in)
A, B = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [0.0], [-1.0]])  # (r, in), (out, r)
x = torch.tensor([3.0, 1.0])
print("W x      ", (W @ x).tolist())
print("A x      ", (A @ x).tolist())
print("B A x    ", (B @ (A @ x)).tolist())
print("together ", (W @ x + B @ (A @ x)).tolist())
assert torch.equal((W + B @ A) @ x, W @ x + B @ (A @ x))

# %% [markdown]
# Because everything is linear, the update can be added to the weight after training. [[lora-by-hand]] ($\alpha$ is a fixed number that scales the update. Here $\alpha = r$, so the factor is 1.)

# %% slide="skip"
wide = 4096
percent = 100 * 4 * (wide + wide) / wide**2

# %% tags=["source-hidden"]
predict(
    "A matrix of a Llama has 4096 inputs and 4096 outputs. How many % of its number of parameters does an update of rank 4 have?",
    key=lambda: percent,
    number="%",
    within=0.06,
    feedback={50: "Count the numbers of the two thin matrices.", 0.1: "There are two of them, A and B."},
    because="Two times 4 times 4096 numbers, instead of 4096 times 4096.",
)

# %% slide="skip" evidence="few-parameters"
for rank in (1, 4, 16, 64):
    n_update = rank * (wide + wide)
    print(f"rank {rank:>2}: {n_update:>9,} parameters instead of {wide * wide:,}, {n_update / wide**2:.2%}")
assert n_update == torch.empty(wide, 64).numel() + torch.empty(64, wide).numel()

# %% [markdown]
# An update has r · (in + out) numbers, and the matrix in · out. [[few-parameters]]

# %% [markdown] slide="subslide"
# ### Your turn
# Write the layer, for any number of texts, and with the factor alpha / r.


# %% tags=["exercise"] name="lora_linear" minutes=6 difficulty=2 plan=80
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

# %%
hint("lora_linear")

# %% [markdown] tags=["solution"]
# `x @ a.T` first, so that the large product `b @ a` is never made. A common mistake is to forget the division by r, or to take another size for it.

# %% [markdown] slide="subslide"
# And the merged weight, for when the training is done:


# %% tags=["exercise"] name="merged_weight" minutes=4 difficulty=1 plan=110
def merged_weight(weight, a, b, alpha):
    """weight (out, in), a (r, in), b (out, r), alpha a number.

    Returns (out, in) in the dtype of weight, so that x @ result.T is what
    lora_linear makes of x, but for rounding. weight itself stays as it is.
    """
    # SOLUTION
    return (weight.float() + alpha / len(a) * (b.float() @ a.float())).to(weight.dtype)
    # END


# %% tags=["check"]
if check("merged_weight", merged_weight).passed:
    keep("merged_weight", merged_weight)

# %%
hint("merged_weight")

# %% [markdown] tags=["solution"]
# The sum is computed in fp32 and rounded once. `weight += ...` would change the caller's tensor, and nobody could go back.

# %% [markdown] slide="subslide"
# ### The library's version
# `LoRA` wraps a `Linear`, and `add_lora` does that for maps of every block and freezes everything else.

# %% slide="skip"
import copy

from tinylm_lib import add_lora, load_lora, merge_lora, remove_lora, save_lora, unmerge_lora
from tinylm_lib.lora import LoRA, lora_layers, lora_state

# %%
show(LoRA)

# %% slide="subslide" evidence="nothing-changes-at-first"
torch.manual_seed(1)
adapted = copy.deepcopy(real)  # our model, or the one that MODEL names
names = add_lora(adapted, rank=4)
assert torch.equal(adapted(read), real(read))
trainable = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
print(names[:2], "and so on: the same logits, bit for bit")
print(f"{trainable:,} of {n_parameters:,} parameters train")

# %% [markdown]
# B starts at 0, so at first nothing changes. [[nothing-changes-at-first]] By default queries and values get an update, as in the paper.

# %% slide="subslide" evidence="merged"
with torch.no_grad():
    for tensor in lora_state(adapted).values():
        tensor.normal_(std=0.1)  # as if it had been trained
    # ESSENTIAL
    before, separate = real(read), adapted(read)
    merge_lora(adapted)
    together = adapted(read)
    # END
    changed = [
        not torch.equal(lora.linear.weight, real.get_submodule(n).weight) for n, lora in lora_layers(adapted).items()
    ]
    # ESSENTIAL
    unmerge_lora(adapted)
    # END
largest = before.abs().max()
print(f"the update changes a logit by up to {(separate - before).abs().max() / largest:.2f} of the largest one")
assert (together - separate).abs().max() < 0.001 * largest
print(f"merging it, by less than 0.001; it changes {sum(changed)} of {len(changed)} matrices")
restored = [torch.equal(lora.linear.weight, real.get_submodule(n).weight) for n, lora in lora_layers(adapted).items()]
print(f"after unmerging, {sum(restored)} of {len(restored)} are what they were, bit for bit")
assert all(changed) and all(restored) and len(restored) == 2 * real.config.n_layers

# %% [markdown]
# Merged and separate agree but for rounding, and after `unmerge_lora` every weight is what it was, bit for bit. [[merged]] (The library keeps the original, because subtracting would leave rounding behind.)

# %% [markdown] tags=["note"]
# **Say.** In the village of Seaview everything is silver. The model has never heard of it. We teach it with 25 updates, by moving all weights, and with updates of three ranks, each at several rates.
#
# **Draw.** Two axes: how well it knows the village, and how well it still knows the world. A point for each training.
#
# **Ask.** "Does LoRA forget less?" Many articles say so. What would be a fair comparison?
#
# **Usual answers.**
# - *Yes, because the old weights are frozen* (`LoRA clearly less`): They are frozen, but what is added to them is not. Compare at equal learning.
# - *A higher rank learns more* (from the room): At the same rate it does. At a higher rate a low rank does, too.
#
# **Cut if short.** The table; keep the picture.

# %% [markdown] slide="slide" plan=80
# ## 7. Teach it something
# In the village of Seaview, everything is silver. Here is a story from there:

# %%
CHANGED = dict.fromkeys(storyworld.CLASSES["colour"], "silver") | dict.fromkeys(storyworld.CLASSES["place"], "Seaview")


# %%
def village(text: str) -> str:
    """The story with every colour silver and every place Seaview."""
    return "".join(
        word.replace(word.strip(), CHANGED.get(word.strip(), word.strip())) for word in storyworld.words(text)
    )


# %% slide="subslide"
show_text(village(texts[0]))

# %% slide="skip"
many = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(1000, 1340)]


def rows_of(stories: list[str]) -> torch.Tensor:
    encoded = [shipped.tokenizer.encode("\n" + story)[:81] for story in stories]
    return torch.tensor([each for each in encoded if len(each) == 81])


# %% slide="skip"
world, silver = rows_of(many), rows_of([village(story) for story in many])  # each (N, 81)
world_test, silver_test, silver_train = world[-40:], silver[-40:], silver[:-40]
NEW = torch.tensor([shipped.tokenizer.ids[word] for word in (" silver", " Seaview")])

# %% [markdown] slide="subslide"
# We measure two things: the probability of *silver* and *Seaview* where the village says them, and the loss on stories of the old world.


# %%
def measure(lm: TransformerLM) -> tuple[float, float]:
    """The geometric mean probability of the village's words, and the loss on old stories."""
    of_village = losses_of(lm, silver_test)[torch.isin(silver_test[:, 1:], NEW)]
    return of_village.mean().neg().exp().item(), losses_of(lm, world_test).mean().item()


# %% slide="skip"
from tinylm_lib import TrainConfig, build_optimizer, train
from tinylm_classroom import control, learned

EVERY_MAP = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


# %% slide="skip"
def batches(seed: int):
    generator = torch.Generator().manual_seed(seed)
    while True:
        rows = silver_train[torch.randint(len(silver_train), (4,), generator=generator)]  # (4, 81)
        yield rows[:, :-1], rows[:, 1:]


# %%
def teach(rate: float, rank: int | None = None, updates: int = 25, seed: int = 1) -> TransformerLM:
    """The model after some updates on village stories: all its weights, or updates of this rank."""
    torch.manual_seed(seed)
    lm = copy.deepcopy(opened)
    if rank:
        add_lora(lm, rank, EVERY_MAP)
    recipe = TrainConfig(total_steps=updates, optimizer="adamw", matrix_lr=rate, embedding_lr=rate)
    for _ in train(lm, build_optimizer(lm, recipe), batches(seed), recipe):
        pass
    return lm.eval()


# %% slide="skip"
runs = [(None, 0.001), (None, 0.002), (None, 0.004), (1, 0.02), (4, 0.01), (4, 0.015), (4, 0.02), (16, 0.005)]
taught = {(rank, rate): teach(rate, rank) for rank, rate in runs}
reached = {key: measure(lm) for key, lm in taught.items()}
at_first = measure(opened)

# %% slide="skip"
FULL, SMALL = (None, 0.004), (4, 0.015)  # they learn equally well
by_seed = {
    key: [reached[key], *(measure(teach(key[1], key[0], seed=seed)) for seed in (2, 3))] for key in (FULL, SMALL)
}
forgotten = {key: [old_loss - at_first[1] for _, old_loss in found] for key, found in by_seed.items()}
less = [small / full for small, full in zip(forgotten[SMALL], forgotten[FULL], strict=True)]

# %% tags=["source-hidden"]
predict(
    "We choose the rates so that full fine-tuning and an update of rank 4 learn the village equally well. Which one then forgets less of the old world?",
    key=lambda: "LoRA clearly less" if max(less) < 0.5 else "about the same" if max(less) < 1.5 else "LoRA more",
    choices={
        "LoRA clearly less": "The old weights are frozen, but the update is added to them everywhere.",
        "about the same": "",
        "LoRA more": "It has far fewer numbers to change things with.",
    },
    because="At equal learning the old loss rose by a similar amount: a little less with LoRA.",
)

# %% slide="subslide" evidence="learned-and-kept"
print(f"before: probability of the village's words {at_first[0]:.2f}, loss on old stories {at_first[1]:.2f}")
# ESSENTIAL
for (rank, rate), (probability, old_loss) in reached.items():
    n = sum(t.numel() for t in lora_state(taught[rank, rate]).values()) if rank else n_parameters_of_ours
    name = f"rank {rank}" if rank else "all weights"
    print(
        f"{name:<12} rate {rate:<6} {n:>8,} trained, {learned(probability, 0.3, 1)}, "
        f"old loss up by {learned(old_loss - at_first[1], 0.01, 0.6)}"
    )
# END
rising = [[(None, 0.001), (None, 0.002), (None, 0.004)], [(4, 0.01), (4, 0.015), (4, 0.02)]]
for low, middle, high in rising:
    assert at_first[1] + 0.01 < reached[low][1] < reached[middle][1] - 0.03 < reached[high][1] - 0.06
    assert at_first[0] + 0.3 < reached[low][0] < reached[middle][0] - 0.03 and reached[high][0] > 0.95
assert reached[1, 0.02][0] > at_first[0] + 0.3

# %% [markdown]
# A few thousand numbers are enough for this lesson about the village. With both methods, a higher rate made the model forget more. [[learned-and-kept]]

# %% tags=["source-hidden"] slide="skip"
BESIDE = {  # where the label of a point is: across, down, alignment
    (None, 0.001): (-0.02, 0.008, "right"), (None, 0.002): (-0.02, 0.016, "right"), (None, 0.004): (-0.02, 0.01, "right"),
    (1, 0.02): (-0.01, -0.03, "right"), (4, 0.01): (0.015, -0.015, "left"), (4, 0.015): (0.02, -0.004, "left"),
    (4, 0.02): (-0.02, 0.0, "right"), (16, 0.005): (0.02, 0.006, "left"),
}  # fmt: skip

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(9.4, 5), layout="constrained")
ax.plot(*at_first, "s", color=figures.INK, markersize=12)
ax.text(at_first[0] + 0.02, at_first[1], "before", va="center")
for rank in (None, 4):
    hue = figures.SERIES[0] if rank else figures.SERIES[1]
    ax.plot(*zip(*(reached[key] for key in runs if key[0] == rank), strict=True), color=hue, linewidth=2)
for (rank, rate), (probability, old_loss) in reached.items():
    hue = figures.SERIES[0] if rank else figures.SERIES[1]
    ax.plot(probability, old_loss, "o", color=hue, markersize=13)
    across, down, side = BESIDE[rank, rate]
    name = f"rank {rank}, {rate}" if rank else f"all weights, {rate}"
    ax.text(probability + across, old_loss + down, name, color=hue, ha=side, va="center")
ax.set(title="Learned and forgotten", xlabel="probability of the village's words", ylabel="loss on old stories")
ax.set(xlim=(0.1, 1.22), xticks=[0.2, 0.4, 0.6, 0.8, 1.0])
figures.display(
    fig, alt="Scatter plot. With all weights and with rank 4, a higher rate is further right and higher: what learns more of the village has a higher loss on old stories. The line of rank 4 is a little lower.",
    caption="Each point is a training of 25 updates, at the rate beside it. Right is better for the village, down is better for the old world.",
    table={
        "trained": [f"rank {rank}" if rank else "all weights" for rank, _ in reached],
        "rate": [str(rate) for _, rate in reached],
        "probability": [learned(p, 0.3, 1) for p, _ in reached.values()],
        "old loss up by": [learned(o - at_first[1], 0.01, 0.6) for _, o in reached.values()],
    },
)  # fmt: skip

# %% slide="subslide" evidence="equally-learned"
for seed, pair in enumerate(zip(*by_seed.values(), strict=True), 1):
    for name, (probability, old_loss) in zip(("all weights", "rank 4"), pair, strict=True):
        rise = learned(old_loss - at_first[1], 0.1, 0.35)
        print(f"seed {seed}: {name:<11} {learned(probability, 0.9, 1)}, old loss up by {rise}")
    assert abs(pair[0][0] - pair[1][0]) < 0.04
assert all(0.6 < ratio < 1 for ratio in less)

# %% [markdown]
# At the rates 0.004 and 0.015 both learn equally well, and there LoRA forgot a little less, in each of three seeds. [[equally-learned]]

# %% [markdown] slide="say"
# A larger study finds that LoRA often learns less and forgets less ([Biderman et al. 2024](https://arxiv.org/abs/2405.09673)). Our test is one small task, and the rate mattered far more than the method. LoRA leaves the old weights untouched, and taking the update out brings the old model back, bit for bit.

# %% slide="subslide" evidence="taken-out"
villager = taught[4, 0.01]
path = save_lora(villager, Path(place.name) / "village.safetensors")
remove_lora(villager)
assert torch.equal(villager(some_ids), opened(some_ids))
load_lora(villager, path)
whole = (folder / "model.safetensors").stat().st_size
print(
    f"update removed: the old model. The file of the update has {path.stat().st_size / whole:.0%} of the model's bytes"
)

# %% [markdown]
# [[taken-out]] So one large model can serve many tasks, each with a small file. In the notebook you can try other ranks and rates:


# %% slide="skip"
def try_rank(rank=2, rate=0.01):
    lm = teach(rate, rank)
    probability, old_loss = measure(lm)
    print(
        f"probability of the village's words {learned(probability, 0, 1)}, loss on old stories {learned(old_loss, 0.5, 9)}"
    )


# %% slide="skip"
control(try_rank, rank=[2, 1, 8, 32], rate=[0.01, 0.005, 0.02, 0.05], frames=7)

# %% [markdown] tags=["note"]
# **Say.** Why is B zero and A random? Try the two other ways.
#
# **Draw.** y = B A x, and below it the two gradients: that of B contains A x, that of A contains B.
#
# **Ask.** The prediction, with a reason. Who can say it with the chain rule?
#
# **Usual answers.**
# - *It learns more slowly* (`it learns, but more slowly`): How large is the gradient of B if A is 0? And that of A if B is 0?
# - *As usual* (`it learns as usual`): Both start at 0, and each one's gradient is multiplied by the other.
#
# **Cut if short.** Both random.

# %% [markdown] slide="slide"
# ## 8. Break it: both zero
# A starts at random and B at 0. What if both start at 0, so that it is even more certain that nothing changes at first?


# %% slide="skip"
def taught_from(start: str) -> tuple[float, float, float]:
    """The loss on village stories before and after 10 updates, and the largest number in B."""
    torch.manual_seed(2)
    lm = copy.deepcopy(opened)
    add_lora(lm, 4, EVERY_MAP)
    with torch.no_grad():
        for name, tensor in lora_state(lm).items():
            if start == "both zero":
                tensor.zero_()
            elif start == "both random" and name.endswith("lora_b"):
                tensor.normal_()
    before = losses_of(lm, silver_test).mean().item()
    recipe = TrainConfig(total_steps=10, optimizer="adamw", matrix_lr=0.01)
    list(train(lm, build_optimizer(lm, recipe), batches(2), recipe))
    largest = max(t.abs().max().item() for n, t in lora_state(lm).items() if n.endswith("lora_b"))
    return before, losses_of(lm.eval(), silver_test).mean().item(), largest


# %% slide="skip"
started = {start: taught_from(start) for start in ("A random, B zero", "both zero", "both random")}

# %% tags=["source-hidden"]
predict(
    "A and B both start at 0. What happens?",
    key=lambda: "nothing is ever learned" if started["both zero"][0] == started["both zero"][1] else "it learns",
    choices={
        "it learns as usual": "The gradient of B is multiplied by A, and that of A by B.",
        "it learns, but more slowly": "How large is a gradient that is multiplied by 0?",
        "nothing is ever learned": "",
    },
    because="Each one's gradient is multiplied by the other, and the other is 0.",
)

# %% slide="subslide" evidence="both-zero"
for start, (before, after, _) in started.items():
    print(f"{start:<17} loss before {learned(before, 0.5, 30)}, after 10 updates {learned(after, 0.5, 30)}")
assert started["both zero"][0] == started["both zero"][1] and started["both zero"][2] == 0
assert started["A random, B zero"][1] < started["A random, B zero"][0] - 0.02
assert started["both random"][0] > started["A random, B zero"][0] + 1

# %% [markdown]
# With both at 0 every gradient is 0, so nothing moves, ever. With a large random $B$ the model is damaged before training starts. So one of the two starts at 0, so that nothing changes at first, and the other must not, or nothing is learned. [[both-zero]]

# %% [markdown] tags=["note"]
# **Say.** What LoRA saves is above all memory during training. And two traps: merging in bf16, and weights in 8 bits.
#
# **Draw.** Four stacked bars for full fine-tuning: weights, gradients, two averages. One bar and a thin line for LoRA.
#
# **Ask.** "What does LoRA *not* save?" (The forward pass, the activations, and most of the backward pass.)
#
# **Usual answers.**
# - *Half of the time* (from the room): Gradients must still flow back through every frozen matrix.
#
# **Cut if short.** The table of memory.

# %% [markdown] slide="slide" plan=110
# ## 9. For engineers
# ### What it saves
# For a Llama 3 of 8 billion parameters, from its config alone. We count bf16 weights, and gradients and AdamW's moments in fp32. (An fp32 copy of all weights, which is common, would add 32 GB to the first line.)

# %% evidence="memory"
from tinylm_lib.cost import count_parameters

big = preset("llama", "3-8b")
n_big = count_parameters(big).total
kv = big.n_kv_heads * big.d_head
n_lora = big.n_layers * 16 * ((big.d_model + big.n_heads * big.d_head) + (big.d_model + kv))  # q_proj and v_proj
for name, n_trained in (("all weights", n_big), ("rank 16 on q and v", n_lora)):
    gigabytes = (2 * n_big + 12 * n_trained) / 1e9
    print(f"{name:<19} {n_trained:>13,} trained, {gigabytes:6.1f} GB for weights, gradients and averages")
assert n_lora < n_big / 1000

# %% [markdown]
# (Activations come on top, in both cases.) [[memory]] It also saves the gradients of the frozen weights, but gradients still flow back *through* every frozen matrix; Hu et al. report 25 % less time for GPT-3 ([Hu et al. 2021](https://arxiv.org/abs/2106.09685)).

# %% [markdown] slide="subslide"
# ### Merging in bf16
# A weight in bf16 has 8 significant bits. What is left of a small update when it is merged?

# %% evidence="lost-in-bf16" slide="subslide"
lost = {}  # by size
layer = lora_layers(villager)["blocks.0.attention.q_proj"]
frozen, update = layer.linear.weight.detach().bfloat16(), layer.update.detach()
for part in (1, 0.1, 0.01):
    merged = (frozen.float() + part * update).bfloat16()
    lost[part] = ((merged.float() - frozen.float() - part * update).norm() / (part * update).norm()).item()
    print(f"{part:>4} of the update: {learned(lost[part], 0.005, 1.5)} of it lost")
assert lost[1] < lost[0.1] < lost[0.01]

# %% [markdown]
# Rounding swallows what is smaller than half a step of the weight, so the smaller the update is, the more of it is lost. [[lost-in-bf16]] Keep a small update separate while weights are in bf16, or merge it in fp32.

# %% [markdown] slide="subslide"
# ### Over weights in 8 bits
# The frozen weights need no gradients, so they may as well be in 8 bits (lesson 14). That is the idea of **QLoRA**, which has 4 ([Dettmers et al. 2023](https://arxiv.org/abs/2305.14314)).

# %% slide="skip"
from tinylm_lib.quantization import quantize_model

# %% slide="skip"
torch.manual_seed(1)
small = quantize_model(opened)
add_lora(small, 4, EVERY_MAP)
recipe = TrainConfig(total_steps=25, optimizer="adamw", matrix_lr=0.01)
for _ in train(small, build_optimizer(small, recipe), batches(1), recipe):
    pass

# %% evidence="over-8-bits" slide="subslide"
probability, old_loss = measure(small.eval())
print(f"over 8 bits: probability {learned(probability, 0.3, 1)}, old loss {learned(old_loss, 0.8, 1.5)}")
print(
    f"over fp32:   probability {learned(reached[4, 0.01][0], 0.3, 1)}, old loss {learned(reached[4, 0.01][1], 0.8, 1.5)}"
)
assert abs(probability - reached[4, 0.01][0]) < 0.15

# %% [markdown]
# The same training works over rounded weights. [[over-8-bits]]

# %% [markdown] tags=["note"]
# **Say.** Is this what the real ones are? Yes: files of named tensors, a few settings, and the parts that you have built. What differs is the size, the data and the choices in the config.
#
# **Draw.** The map of section 1 again, from memory: which band splits in three, and why?
#
# **Ask.** At the door: "A model loads and talks nonsense. Which three things do you measure, and in which order?"
#
# **Usual answers.**
# - *The loss* (from the room): First. Then the positions, then the first part that differs.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - A published model is a file of named tensors and some settings. [[header]] Some settings leave no trace in the shapes, so the model loads without an error if they are read wrongly. [[not-in-the-shapes]]
# - For families like Llama, opening a file is renaming. [[renamed]] What the names mean was checked by computing the attention layers from the raw tensors. [[by-hand]] GPT-2 stores its matrices transposed, q, k and v fused, masks, and no head. [[gpt2-file]]
# - Rotary positions have two layouts. With the wrong one the model loads, the first positions are nearly right, and later ones have a high loss. [[mispaired]]
# - Each broken conversion has symptoms of its own: the loss near and far [[losses-of-patients]], the error at each position [[fingerprints]], and the first part that differs. [[first-part]]
# - LoRA freezes a matrix and learns an update of low rank next to it. At first nothing changes [[nothing-changes-at-first]], and afterwards it can be merged and taken out again. [[merged]] One of its two matrices starts at 0, so that nothing changes at first; if both did, nothing would be learned. [[both-zero]]
# - In our test, LoRA and the training of all weights forgot about the same when both had learned equally well, [[equally-learned]] and a higher rate made both forget more. [[learned-and-kept]]
# - A byte-level tokenizer writes every script, but those that it was not trained on take more tokens. [[scripts]]
#
# You can now open a published model, check that you compute what it means, and teach it something.
#
# Next, lesson 19: how to find a fault that raises no error.

# %% [markdown] slide="skip"
# ## Sources
# - The file format: [safetensors](https://github.com/huggingface/safetensors), section *Format*.
# - LoRA: Hu et al. 2021, [*LoRA: Low-Rank Adaptation of Large Language Models*](https://arxiv.org/abs/2106.09685), section 4.1. Over rounded weights: Dettmers et al. 2023, [*QLoRA: Efficient Finetuning of Quantized LLMs*](https://arxiv.org/abs/2305.14314).
# - What it learns and forgets: Biderman et al. 2024, [*LoRA Learns Less and Forgets Less*](https://arxiv.org/abs/2405.09673).
# - Rotary positions: Su et al. 2021, [*RoFormer*](https://arxiv.org/abs/2104.09864), section 3.2 (neighbours). The reordering: [the converter of Llama's weights](https://github.com/huggingface/transformers/blob/main/src/transformers/models/llama/convert_llama_weights_to_hf.py) in `transformers`.
# - GPT-2: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, and [its files](https://huggingface.co/openai-community/gpt2).
# - The sentence in six languages: United Nations 1948, [*Universal Declaration of Human Rights*](https://www.un.org/en/about-us/universal-declaration-of-human-rights), article 1, in its official translations.
# - Tokenizers and languages: Petrov et al. 2023, [*Language Model Tokenizers Introduce Unfairness Between Languages*](https://arxiv.org/abs/2305.15425). Digits: Singh and Strouse 2024, [*Tokenization Counts: the Impact of Tokenization on Arithmetic in Frontier LLMs*](https://arxiv.org/abs/2402.14903).
# - Opening published weights in a model of one's own: Raschka 2024, [*Build a Large Language Model (From Scratch)*](https://github.com/rasbt/LLMs-from-scratch), chapter 5 and appendix E.
