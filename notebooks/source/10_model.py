# %% [markdown] slide="slide"
# # 10 Model
# **All parts are built. What do they make together, and where in it does an answer arise?**
#
# *Needs* lessons 02 to 09. *Builds* `count_parameters` in `cost.py`, and explains `TransformerLM` in `model.py`. *Runs* in about 25 s on two cores.
# *Teaches* in about 59 minutes, plus 36 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a language model is a loop. An embedding fills a stream of vectors, each block adds to it, and a head reads it. Once this is clear, we can run the model on the students' own parts, look into the stream on the way, and count its parameters.
# Sections 1 to 4 are the core, with one short exercise. Sections 5 and 6 show the choices in which published models differ, section 7 the first weights, and section 8 helps those who plan or train real models.
# Before the class: if you have kept your own parts, run section 2, so that the card there is yours.

# %% slide="skip"
import torch
from matplotlib import pyplot as plt
from torch.nn.functional import cross_entropy

from tinylm_lib import storyworld
from tinylm_classroom import capture, check, figures, hint, keep, predict, shape_flow, trace
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** You have all the parts. The model is a loop over them, and it fits into seven lines. The line in the middle of the picture is the only connection from one block to the next.
#
# **Draw.** One long horizontal line, the stream. For each block two detours that leave the line and come back with a plus. At its left end the embedding, at its right end the final norm and the head.
#
# **Ask.** At the picture: "For Mia the words are *He*, *He*, *She*. What does that mean?" Collect the explanations and keep them for section 3. Before the second prediction: "Every block only adds. Does the order of the blocks matter?"
#
# **Usual answers.**
# - *One, for the next word* (`1`): Only the last row continues the text. Which rows does training use?
# - *All parts are still there, so it must be better than nothing* (`the model with its blocks reversed`): What did each block read in training? What does it read now?
# - *The order does not matter, because a sum does not depend on the order* (`they are equal`): What a block adds depends on what it reads.
# - *The rows are added up to probabilities* (`shares`): Logits are wanted. Softmax comes later, in the loss and in the sampler.
# - *The matrix without .T* (`not transposed`): Its rows are tokens. Which of its axes has the size of a vector?
#
# **Cut if short.** The walk with the arrow keys; students do it at home.

# %% [markdown] slide="slide"
# ## 1. From ids to logits
# You have built an embedding, norms, attention, positions, a feed-forward and a block. What is still missing? A loop.

# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
ids = torch.tensor([tokenizer.encode("\nOne sunny day, brave Mia had a red kite.")])  # (B, T)


# %% tags=["source-hidden"] slide="skip"
def would_say(name: str) -> list[tuple[str, float]]:
    """The next word and its probability, if the head read the stream at the embedding or after block 0, 1 or 2."""
    text = torch.tensor([tokenizer.encode(f"\nOne sunny day, brave {name} had a red kite.")])  # (B, T)
    outputs = capture(model, text).outputs
    found = []
    for part in ("embed", "blocks.0", "blocks.1", "blocks.2"):
        early = model.lm_head(model.final_norm(outputs[part]))[0, -1].softmax(-1)  # (V)
        found.append((tokenizer.decode([early.argmax().item()]).strip(), early.max().item()))
    return found


says = {name: would_say(name) for name in ("Mia", "Carlos")}
AFTER = (1.75, 4.1, 6.45, 8.8)  # where in the drawing the stream leaves the embedding and each block


# %% tags=["source-hidden"] slide="skip"
def draw_part(ax, start: float, said: str, letter: str) -> None:
    """A detour from the stream through one part and back, where what it computed is added."""
    figures.arrow(ax, (start, 2.2), (start + 0.4, 2.98), letter, width=2.4)
    figures.arrow(ax, (start + 0.6, 2.98), (start + 0.92, 2.32), letter, width=2.4)
    figures.box(ax, start + 0.5, 3.3, said, letter)
    plus = {"boxstyle": "circle,pad=0.12", "facecolor": figures.INK, "edgecolor": "none"}
    ax.text(start + 1.0, 2.2, "+", ha="center", va="center", color="white", weight="bold", bbox=plus, zorder=7)


def draw_reading(ax, across: float, high: float, word: str, prob: float) -> None:
    """A word and its probability, on a ground that is darker for a larger probability."""
    color = figures.HEAT(prob)
    ground = {"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": "none"}
    ink = figures.ink_on(color)
    ax.text(across, high, f"{word} {prob:.2f}", size=16, ha="center", va="center", color=ink, bbox=ground)


# %% tags=["signature", "source-hidden"] slide="subslide" evidence="read-early"
fig, ax = plt.subplots(figsize=(11.4, 5.4), layout="constrained")
figures.arrow(ax, (0.9, 2.2), (11.4, 2.2), "C", width=5)
for across, said, letter in ((0.6, "embed", "V"), (9.6, "final\nnorm", ""), (10.75, "head", "V")):
    figures.box(ax, across, 2.2, said, letter)
for i in range(3):
    draw_part(ax, AFTER[i] + 0.1, "atten-\ntion", "D")
    draw_part(ax, AFTER[i] + 1.25, "feed-\nforward", "F")
    ax.text(AFTER[i] + 1.15, 4.1, f"block {i}", ha="center", size=17, weight="bold")
for high, (name, readings) in zip((1.25, 0.6), says.items(), strict=True):
    ax.text(0, high, name, size=17, weight="bold", va="center")
    for across, (word, prob) in zip(AFTER, readings, strict=True):
        draw_reading(ax, across, high, word, prob)
ax.vlines(AFTER, 1.6, 2.1, color=figures.QUIET, linewidth=1.5, linestyle=":")
ax.text(9.75, 0.92, "what would the\nhead say here?", color=figures.QUIET, va="center")
ax.set(title="The whole model, and what it would say on the way", xlabel="left to right", ylabel="parts")
ax.set(xlim=(0, 11.6), ylim=(0.2, 4.4))
ax.axis("off")
alt = "Diagram: one line from embed through three blocks to the final norm and the head. From it attention and feed-forward branch off and are added again. Below, the next word read early: for Mia Often, He, He, She; for Carlos Often, He, He, He."
caption = "Below the line: the next word after One sunny day, brave Mia (or Carlos) had a red kite, if the head read the stream at this point already."
table = {"read after": ["embedding", "block 0", "block 1", "block 2"]}
table |= {name: [f"{word} {prob:.2f}" for word, prob in readings] for name, readings in says.items()}
figures.display(fig, alt=alt, caption=caption, table=table)
assert [word for word, _ in says["Mia"]][1:] == ["He", "He", "She"] and says["Carlos"][2][0] == "He"

# %% [markdown]
# Read it from left to right. The **embedding** turns each token into a vector of the **stream**, the residual stream of lesson 09. Each **block** adds to the stream twice, with attention and with its feed-forward. The **final norm** brings the vectors to one size, and the **head** (the output layer of earlier lessons, also *LM head*, because attention has heads, too) gives every token of the vocabulary a score, its *logit*. (As in the library, blocks are counted from 0.) For Mia the words after blocks 0 and 1 are wrong. [[read-early]] Section 3 finds out why.

# %% [markdown] slide="subslide"
# ### The last step
# The head has one row for each token of the vocabulary. The logit of a token is the dot product of its row with the final vector. For three tokens, by hand:

# %%
final = capture(model, ids).outputs["final_norm"]  # (B, T, C)
for word in (" She", " He", " kite"):
    row = model.lm_head.weight[tokenizer.encode(word)[0]]  # (C)
    print(f"{word:>5}: {sum(a * b for a, b in zip(final[0, -1].tolist(), row.tolist(), strict=True)):6.2f}")

# %% [markdown] slide="subslide"
# ### Your turn
# Write it for all tokens at all positions. (The exercise is called `tied_logits`, because in many models these rows are those of the embedding: section 6.)


# %% tags=["exercise"] name="tied_logits" minutes=6 difficulty=1
def tied_logits(x, embedding_weight):
    """x (..., C): final vectors. embedding_weight (V, C): a row for each token.

    Returns (..., V), the logits: the dot product of each vector with each row.
    Gradients flow back to both, and the dtype stays.
    """
    # SOLUTION
    return x @ embedding_weight.T
    # END


# %% tags=["check"]
if check("tied_logits", tied_logits).passed:
    keep("tied_logits", tied_logits)

# %%
hint("tied_logits")

# %% [markdown] tags=["solution"]
# One dot product with each row: the matrix is used as a linear map from C to V, stored as (out, in), as in lesson 02. Common mistake: the transpose is forgotten. If there are as many tokens as features, this raises no error.

# %% [markdown] slide="subslide"
# ### The loop
# Now the whole forward pass:


# %%
@torch.no_grad()
def forward(ids, blocks):
    positions = torch.arange(ids.shape[1])  # (T)
    x = model.embed(ids)  # (B, T) -> (B, T, C)
    for block in blocks:
        x = block(x, positions)  # (B, T, C)
    h = model.final_norm(x)  # (B, T, C)
    return h @ model.lm_head.weight.T  # (B, T, C) -> (B, T, V)


# %% rows=["S0-39", "S0-42", "S1-25", "S4-3", "S4-27"] evidence="forward-pass"
logits = forward(ids, model.blocks)  # (B, T, V)
torch.testing.assert_close(logits, model(ids))
print("next word:", tokenizer.decode([logits[0, -1].argmax().item()]).strip())

# %% slide="subslide"
trace(forward, ids, model.blocks, sizes={"B": 1, "T": 12, "C": 128, "V": 345})

# %% [markdown]
# That is all: these seven lines give the same logits as the library's model. [[forward-pass]] From the embedding to the final norm the stream keeps its shape, (B, T, C). Only attention, inside the blocks, connects different positions.

# %% tags=["source-hidden"]
predict(
    f"The text has {ids.shape[1]} tokens. For how many positions does one forward pass predict the next token?",
    key=lambda: forward(ids, model.blocks).shape[1],
    number="positions",
    within=0,
    feedback={
        1: "The last position continues the text, but every position has its row of logits.",
        11: "All but the last can be compared with the text. The last one predicts as well.",
    },
    because="Each position predicts the token that follows it, and the causal mask keeps it from seeing the answer.",
)

# %% [markdown] slide="skip"
# Here is the same walk with real numbers. Move down with the arrow keys, open attention with →, and follow another word.

# %% rows=["S0-41", "S1-2", "S2-2", "S4-2"] slide="skip"
shape_flow(model, tokenizer, "\nOne sunny day, brave Mia had a red kite.")

# %% slide="skip" rows=["S4-29"] evidence="shapes"
caught = capture(model, ids)
for part in ("embed", "blocks.0.attention", "blocks.0.ffn.gate_proj", "blocks.0.ffn", "blocks.2", "final_norm"):
    print(f"{part:<23}{tuple(caught.outputs[part].shape)}")
print(f"{'attention weights':<23}{tuple(caught.attention(0).weights.shape)}")
print(f"{'logits':<23}{tuple(logits.shape)}")
assert all(caught.outputs[f"blocks.{i}"].shape == (1, 12, 128) for i in range(3))
assert all(caught.attention(i).weights.shape == (1, 4, 12, 12) for i in range(3))

# %% [markdown] slide="say"
# Each block returns the shape that it reads, (B, T, C). [[shapes]] The attention weights, (B, H, T, T), are the only tensor here that grows with the square of the length of the text.

# %% [markdown] slide="subslide"
# ### Does the order matter?
# Lesson 09 ran the blocks in another order, and the loss rose. But each block only *adds* to the stream. So are blocks in the wrong order still better than no blocks?

# %% slide="skip"
generator = torch.Generator().manual_seed(10)
stories = [storyworld.story(generator) for _ in range(60)]
story_ids = torch.tensor([tokenizer.encode("\n" + story.text)[:80] for story in stories])  # (B, T)


def loss_of(story_logits: torch.Tensor) -> float:
    """The mean loss of these logits (B, T, V) on the stories, in nats per token."""
    return cross_entropy(story_logits[:, :-1].mT, story_ids[:, 1:]).item()


# %%
first, second, third = model.blocks
orders = {"as trained": [first, second, third], "first two exchanged": [second, first, third]}
orders |= {"last two exchanged": [first, third, second], "reversed": [third, second, first], "no blocks": []}
order_losses = {name: loss_of(forward(story_ids, blocks)) for name, blocks in orders.items()}

# %% tags=["source-hidden"]
predict(
    "Which has the lower loss: the shipped model with its blocks reversed, or without any blocks?",
    key=lambda: min(("reversed", "no blocks"), key=order_losses.get),
    choices={
        "reversed": "All parts are there. But what did the third block read in training, and what does it read now?",
        "no blocks": "",
        "they are equal": "What a block adds depends on what it reads, so the sum depends on the order.",
    },
    because="The third block was trained to read what the first two add. What it adds without them is worse than nothing.",
)

# %% tags=["source-hidden"] evidence="order-of-blocks"
for name, value in order_losses.items():
    print(f"{name:<20} {value:.2f} nats per token")
assert order_losses["as trained"] + 1 < min(value for name, value in order_losses.items() if name != "as trained")
assert order_losses["reversed"] > order_losses["no blocks"]

# %% [markdown]
# The order matters: each exchange raises the loss by at least 1 nat, and reversed the blocks do more harm than good. [[order-of-blocks]] A block reads what the blocks before it have written.

# %% slide="skip" evidence="final-norm"
outputs = capture(model, story_ids).outputs
for part in ("embed", "blocks.0", "blocks.1", "blocks.2"):
    print(f"{part:<9} standard deviation of the stream {outputs[part].std():5.1f}")
without_norm = loss_of(model.lm_head(outputs["blocks.2"]))
print(f"without the final norm: {without_norm:.1f} nats per token")
assert without_norm > 10 and outputs["blocks.2"].std() > 10 * outputs["embed"].std()

# %% [markdown] slide="say"
# The stream grows on its way, and without the final norm the loss is above 10 nats. [[final-norm]] This head was trained with the norm before it. The numbers do not show that a model trained without the norm would be worse.

# %% [markdown] tags=["note"]
# **Say.** Here is what you have worked for since lesson 02. This model calls the functions that you wrote. Your code and the shipped weights together are a language model.
#
# **Draw.** Two boxes, *code* and *weights*, with arrows to one model. Cross out the weights and ask what is left.
#
# **Ask.** Before the last cell: "The same code with random weights: what will it write?" And: "How would you prove to a friend that your own functions ran?"
#
# **Usual answers.**
# - *It writes random words* (from the room): Nearly. Look at the loss, and compare it with ln 345. Why is it not lower?
# - *It writes nothing* (from the room): There are logits, so there is a largest one.
# - *The card says that nothing is mine* (from the room): Then no exercise was kept. The card names the lesson of each part.
#
# **Cut if short.** The comparison word by word. Keep the control, and let a student type.

# %% [markdown] slide="slide"
# ## 2. A language model of your own parts
# `build` makes a model that calls the functions that you kept since lesson 02, and the library's where you have kept none. It takes the weights of the shipped model.

# %% slide="skip"
import math

from ipywidgets import Text

from tinylm_lib import TransformerLM
from tinylm_classroom import build, control, using

# %%
mine = build(model.config)
mine.load_state_dict(model.state_dict())

# %% slide="skip"
using(mine)

# %% [markdown] slide="subslide"
# To write, take the most probable word, append it, and repeat:


# %%
@torch.no_grad()
def write(lm, beginning: str, n_words: int) -> list[int]:
    so_far = torch.tensor([tokenizer.encode("\n" + beginning)])  # (1, T)
    for _ in range(n_words):
        next_id = lm(so_far)[:, -1:].argmax(-1)  # (1, 1)
        so_far = torch.cat([so_far, next_id], dim=1)  # (1, T)
    return so_far[0].tolist()


# %% evidence="your-parts"
from tinylm_classroom import show_text

begun = torch.tensor([tokenizer.encode("\nOne")])  # (1, 2)
torch.testing.assert_close(mine(begun), model(begun), atol=1e-2, rtol=1e-2)
by_mine, by_shipped = write(mine, "One", 36), write(model, "One", 36)
same_ids = [a == b for a, b in zip(by_mine, by_shipped, strict=True)]
show_text(tokenizer.decode(by_mine))
print(f"{sum(same_ids)} of {len(same_ids)} tokens are those of the shipped model")

# %% [markdown]
# If the parts in the card are yours, this text was written by **your model**. Its logits are those of the shipped one, up to rounding. [[your-parts]] Type a beginning of your own, with words that StoryWorld has:


# %%
def continued(beginning="One cold evening, careful", n_words=40):
    show_text(tokenizer.decode(write(mine, beginning, n_words)))


# %%
control(continued, beginning=Text("One cold evening, careful"), n_words=(5, 60))

# %% [markdown] slide="subslide"
# Where is what the model knows, in the code or in the weights? The same code, with random weights:

# %% rows=["S0-43", "S2-18", "S4-57"] evidence="untrained"
for seed in range(3):
    torch.manual_seed(seed)
    random_model = TransformerLM(model.config)
    random_loss = loss_of(random_model(story_ids))
    print(f"{random_loss:.2f} nats per token:", tokenizer.decode(write(random_model, "One", 8)).strip())
    assert random_loss > math.log(345)
print(f"trained: {order_losses['as trained']:.2f}; each of 345 tokens equally likely: ln 345 = {math.log(345):.2f}")

# %% [markdown]
# In the weights: complete but untrained, the model writes nonsense, and its loss is higher than if it gave each token the same probability. [[untrained]] Lesson 11 trains one. And what lies between this and an assistant that you can talk to? Far more parameters and text, then further training on dialogues and on people's judgements of its answers ([Ouyang et al. 2022](https://arxiv.org/abs/2203.02155)).

# %% [markdown] tags=["note"]
# **Say.** We can look into the stream before the model is ready. What we see there looks like a mistake about Mia. Looking is not enough, so we exchange vectors, and the picture then shows where the information is.
#
# **Draw.** Two texts below each other, Mia's and Carlos's, with the stream at each word as a dot. Exchange one pair of dots with an arrow.
#
# **Ask.** Before the first prediction: "If the model first takes Mia for a boy, what must the reading show for Carlos?" After the map: "In which part of the third block does the information move?"
#
# **Usual answers.**
# - *The model first believes that Mia is a boy* (from the room): Then the reading for Carlos would have to be different. Is it?
# - *He, because its full stop now comes from a boy's text* (`He`): It would be, if the full stop already held the gender. But block 2 has attention of its own.
# - *Both are equally likely* (`both are equally likely`): Which of the two vectors, the name's or the full stop's, does block 2 use?
# - *The gender is in the full stop, because the answer is read there* (from the room): When? Look at the four rows of the map.
#
# **Cut if short.** The second sentence and the parts of block 2; the map says most of it.

# %% [markdown] slide="slide"
# ## 3. Where does the answer arise?
# The final norm and the head can read the stream after any block. This is called the **logit lens** ([nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens)). Try the column above the full stop, from the embedding upwards.

# %% slide="skip"
from tinylm_classroom import residual_view
from tinylm_lib.storyworld import CLASSES

# %%
residual_view(model, tokenizer, "\nOne sunny day, brave Mia had a red kite. She")

# %% [markdown] slide="subslide"
# After blocks 0 and 1 it reads *He*, and after block 2 *She*. Did the model take Mia for a boy at first? The name is what decides in the end:

# %% slide="skip"
from tinylm_classroom import what_if

# %%
what_if(model, tokenizer, "\nOne sunny day, brave Mia had a red kite.", "word 6 Omar")

# %% [markdown] slide="skip"
# If it was taken for a boy's before, other names must give other readings there. StoryWorld has 40 names, and the first 20 take *She*.

# %% slide="skip"
names = CLASSES["name"]
he, she = (tokenizer.encode(word)[0] for word in (" He", " She"))


# %%
@torch.no_grad()
def streams_of(template: str) -> list[torch.Tensor]:
    """The stream (40, T, C) of the text with each name, at the embedding and after each block."""
    texts = torch.tensor([tokenizer.encode("\n" + template.format(name)) for name in names])  # (40, T)
    outputs = capture(model, texts).outputs
    return [outputs[part] for part in ("embed", "blocks.0", "blocks.1", "blocks.2")]


# %%
@torch.no_grad()
def read(stream):
    """The probabilities of the next word, (40, V), if the head reads this stream (40, T, C)."""
    return model.lm_head(model.final_norm(stream))[:, -1].softmax(-1)


KITE = "One sunny day, brave {} had a red kite."
streams = streams_of(KITE)

# %% evidence="same-for-all-names"
after_block_1 = read(streams[1])  # (40, V)
for word, token in {"He": he, "She": she}.items():
    lowest, highest = after_block_1[:, token].aminmax()
    print(f"after block 0, all 40 names: {word:<3} from {lowest:.2f} to {highest:.2f}")
assert after_block_1[:, he].min() > 0.85 and after_block_1[:, [he, she]].sum(-1).min() > 0.95
after_both = read(streams[2])[:, he]  # (40)
for whose, of_these in {"girls'": after_both[:20], "boys'": after_both[20:]}.items():
    lowest, highest = of_these.aminmax()
    first_for = (of_these > 0.5).sum().item()
    print(f"after block 1, {whose:<6} names: He from {lowest:.2f} to {highest:.2f}, above 0.5 for {first_for} of 20")
    assert first_for > 14
assert after_both[:20].mean() < after_both[20:].mean() - 0.1

# %% [markdown]
# Not after block 0: there the reading is nearly the same for all names, and says nothing about Mia. After block 1 it differs between names, but *He* still comes first for most girls' names. [[same-for-all-names]] Nor does *He* mean that the model prefers boys: the head was trained to read the stream after the *last* block, so an early reading need not be what the model is going to say.

# %% [markdown] slide="subslide"
# ### Exchange vectors
# Where does the gender come from, then? In each text we replace the vector at *one* position, after one of the blocks, with that of a text whose name takes the other pronoun. The rest of the model continues from there.


# %%
@torch.no_grad()
def exchanged(streams, depth: int, at: int) -> float:
    """The mean probability of the other pronoun, if position `at` is exchanged after `depth` of the blocks."""
    stream = streams[depth].clone()  # (40, T, C)
    stream[:, at] = stream[:, at].roll(20, dims=0)  # girls' texts get boys' vectors, and boys' texts girls'
    for block in model.blocks[depth:]:
        stream = block(stream, torch.arange(stream.shape[1]))  # (40, T, C)
    probs = read(stream)  # (40, V)
    return torch.cat([probs[:20, he], probs[20:, she]]).mean().item()


# %% slide="skip"
grid = torch.tensor([[exchanged(streams, depth, at) for at in range(12)] for depth in range(4)])  # (4, 12)

# %% tags=["source-hidden"]
full_stop = grid[2, 11].item()
predict(
    "After block 1 the full stop of Mia's text is replaced with that of a boy's text. What does the model say next?",
    key=lambda: "She" if full_stop < 0.2 else "He" if full_stop > 0.8 else "both are equally likely",
    choices={
        "She": "",
        "He": "It would be, if the full stop already held the gender after block 1. But block 2 has attention of its own.",
        "both are equally likely": "Which of the two vectors, the one at the name or the one at the full stop, does block 2 use?",
    },
    because="Block 2's attention still reads the position of the name, and takes the gender from there.",
)

# %% tags=["source-hidden"] slide="subslide" evidence="where-the-gender-is"
figures.heat_map(
    grid,
    ["embedding", "after block 0", "after block 1", "after block 2"],
    ["(start)", *(tokenizer.decode([token]).strip() for token in ids[0, 1:6].tolist()), "(name)", "had", "a", "red", "kite", "."],
    title="One exchanged vector, and the other pronoun",
    caption="The probability of the wrong pronoun, mean of 40 names, when the vector at one position comes from a text of the other gender. Dark: here is the gender that the model uses.",
    x="position that is exchanged: column",
    y="depth: row",
)  # fmt: skip
assert grid[:3, 6].min() > 0.9 and grid[3, 11] > 0.9
grid_elsewhere = grid.clone()
grid_elsewhere[:3, 6] = grid_elsewhere[3, 11] = 0
assert grid_elsewhere.max() < 0.1

# %% [markdown]
# After block 1 the gender that the model uses is still at the name, and nowhere else. After block 2 it is at the full stop. [[where-the-gender-is]]
#
# To put an activation of one run into another and see what changes is called **activation patching**, an idea of causal mediation analysis ([Vig et al. 2020](https://arxiv.org/abs/2004.12265)). The logit lens shows what can be read, and the exchange shows what the model uses.

# %% [markdown] slide="say"
# The zeros before the name are certain: the causal mask hides the name from these positions, so their vectors are the same in all texts.

# %% [markdown] slide="subslide"
# So block 2, the last one, fetches it. With attention, or with its feed-forward? We leave out one of them.

# %% evidence="attention-fetches"
last = model.blocks[2]
with torch.no_grad():
    fetched = last.attention(last.attn_norm(streams[2]), torch.arange(12))  # (40, T, C)
    no_ffn = streams[2] + fetched  # (40, T, C)
    no_attention = streams[2] + last.ffn(last.ffn_norm(streams[2]))  # (40, T, C)
for what, stream in {"as trained": streams[3], "no feed-forward": no_ffn, "no attention": no_attention}.items():
    girls, boys = read(stream)[:20, she].mean(), read(stream)[20:, he].mean()
    print(f"block 2, {what:<16} girls' names She {girls:.2f}, boys' names He {boys:.2f}")
    assert boys < 0.1 if what == "no attention" else min(girls, boys) > 0.9

# %% [markdown]
# It is the attention: without it the model says *She* for every name, and without the feed-forward the right pronoun still has nearly all the probability. [[attention-fetches]] Does this hold for one sentence only? Another one:

# %% slide="skip" evidence="another-sentence"
cold_streams = streams_of("One cold morning, friendly {} came to Foxhollow.")
for where, at in {"name": 6, "full stop": 10}.items():
    values = [exchanged(cold_streams, depth, at) for depth in range(4)]
    print(f"{where:<10} embedding and after blocks 0 to 2:", "  ".join(f"{value:.2f}" for value in values))
    assert (min(values[:3]) > 0.9 > 0.1 > values[3]) if where == "name" else (max(values[:3]) < 0.1 < 0.9 < values[3])

# %% [markdown]
# The same. [[another-sentence]] (It is one model with three blocks; in a larger one the way may be longer.)

# %% [markdown] tags=["note"]
# **Say.** *A model of 7 billion parameters*: where are they? We count by hand, compare with a built model, and then look at models whose size was announced.
#
# **Draw.** One block as a stack of rectangles, to scale: four squares of C by C, and two of C by 4C. Next to it the token table, V by C.
#
# **Ask.** "Which of these rectangles grow when we add a layer, and which when we add words?" After the last cell: "How could the first number of a paper be wrong by 7 million?"
#
# **Usual answers.**
# - *Twice as many* (`about twice as many`): A matrix has two sides. How many of them are doubled?
# - *Eight times as many* (`about 8 times as many`): Which of the matrices has three sides?
# - *Most parameters are in attention* (from the room): Four matrices of C by C, and next to them two of C by 4C.
# - *More heads have more parameters* (from the room): The heads divide the width among them. Where does their number occur in the formula?
#
# **Cut if short.** The list of announced sizes.

# %% [markdown] slide="slide"
# ## 4. How many parameters?
# "A model of 7 billion parameters": where are they? We count the preset `gpt`, which is close to a small GPT-2, with V tokens, width C, inner width F and L layers.

# %% slide="skip"
from torch import nn

from tinylm_lib import preset

# %% rows=["S2-9", "S4-32"]
V, C, F, L = 10_000, 256, 1024, 4
tables = V * C + 512 * C  # a row for each token, and for each of 512 positions
attention = 4 * C * C  # query, key, value and output, without biases
ffn = 2 * C * F + F + C  # two matrices and their biases
norms = 2 * 2 * C  # two LayerNorms, each with a gain and an offset
per_block = attention + ffn + norms
by_hand = tables + L * per_block + 2 * C  # and the final norm
print(f"attention {attention:,}, feed-forward {ffn:,}, block {per_block:,}")
print(f"model {by_hand:,}")


# %% rows=["S1-26", "S4-30", "S4-33"] evidence="count-by-hand"
def n_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


gpt = TransformerLM(preset("gpt"))
assert n_parameters(gpt) == by_hand and n_parameters(gpt.blocks[0]) == per_block
print(f"built: {n_parameters(gpt):,}")

# %% [markdown]
# The count and the built model agree to the last parameter. [[count-by-hand]] If you forget one bias in each layer, your count is wrong by C times L, which nobody notices without this comparison.

# %% [markdown] slide="subslide"
# A model of the Llama kind has no biases, three matrices in its feed-forward, and usually a head of its own. With as many key-value heads as heads:
#
# $$N = 2VC + L\,(4C^2 + 3CF + 2C) + C$$


# %% rows=["S0-40"]
def llama_kind(V: int, C: int, F: int, L: int) -> int:
    return 2 * V * C + L * (4 * C * C + 3 * C * F + 2 * C) + C


assert n_parameters(TransformerLM(preset("cs336"))) == llama_kind(10_000, 512, 1365, 6)
print(f"{llama_kind(10_000, 512, 1365, 6):,} parameters; the number of heads does not occur")

# %% slide="skip"
with torch.device("meta"):
    narrow = n_parameters(TransformerLM(preset("cs336")).blocks[0])
    wide = n_parameters(TransformerLM(preset("cs336", d_model=2 * 512, d_ff=2 * 1365)).blocks[0])

# %% [markdown] slide="say"
# On PyTorch's *meta* device a tensor has a shape but no contents, so we can count the parameters of models that do not fit into memory.

# %% tags=["source-hidden"]
predict(
    "We double the width C, and F with it, and keep everything else. What happens to the parameters of a block?",
    key=lambda: "about 4 times as many" if 3.9 < wide / narrow < 4.1 else "something else",
    choices={
        "about twice as many": "A matrix grows in both directions.",
        "about 4 times as many": "",
        "about 8 times as many": "A matrix has two sides, not three.",
    },
    because="Both sides of every matrix are doubled. Twice as many layers would be twice as many blocks.",
)

# %% tags=["source-hidden"] evidence="square-of-the-width"
print(f"a block: {narrow:,} and {wide:,} parameters, {wide / narrow:.2f} times as many")
assert 3.9 < wide / narrow < 4.1

# %% [markdown] slide="subslide"
# ### Where are they?
# We group the parameters of four models by the part that they belong to.


# %% slide="skip"
def by_part(lm: TransformerLM) -> list[int]:
    """The parameters in token tables (embedding and head), in attention and in feed-forwards."""
    found = []
    for beginnings in (("embed", "lm_head"), ("attention",), ("ffn",)):
        inside = [
            p for name, p in lm.named_parameters() if name.split(".")[2 * name.startswith("blocks")] in beginnings
        ]
        found.append(sum(p.numel() for p in inside))
    return found


with torch.device("meta"):
    examined = {"shipped": TransformerLM(model.config), "GPT-2 small": TransformerLM(preset("gpt2", "small"))}
    examined |= {"GPT-2 XL": TransformerLM(preset("gpt2", "xl")), "Llama 3 8B": TransformerLM(preset("llama", "3-8b"))}

# %% tags=["source-hidden"] slide="subslide" evidence="feed-forwards-hold-most"
parts_of = ("token tables", "attention", "feed-forwards")
fractions = torch.tensor([by_part(lm) for lm in examined.values()]).double()  # (models, parts)
fractions = fractions / torch.tensor([n_parameters(lm) for lm in examined.values()])[:, None]
starts = fractions.cumsum(-1) - fractions
percent = [[f"{value:.0%}" for value in column] for column in fractions.T.tolist()]
bar_names = [f"{name}\n{n_parameters(lm) / 1e6:,.1f} million" for name, lm in examined.items()]
fig, ax = plt.subplots(figsize=(10.4, 5.2), layout="constrained")
for i, letter in enumerate("VDF"):
    hue = figures.AXIS_COLORS[letter].light
    bars = ax.barh(bar_names, fractions[:, i], 0.65, starts[:, i], color=hue, edgecolor="white", label=parts_of[i])
    ax.bar_label(bars, percent[i], label_type="center", color="white", weight="bold")
ax.set(title="Where the parameters are", xlabel="fraction of all parameters", ylabel="model")
ax.invert_yaxis()
ax.yaxis.label.set_visible(False)
ax.grid(visible=False)
fig.legend(loc="outside lower center", ncols=3, frameon=False)
alt = "Stacked bars for four models: feed-forwards are the largest part of each. Token tables are a third of GPT-2 small and a twentieth of GPT-2 XL."
caption = (
    "The feed-forwards are the largest part of each. The token tables weigh less in a larger model of the same family."
)
figures.display(
    fig, alt=alt, caption=caption, table={"model": list(examined), **dict(zip(parts_of, percent, strict=True))}
)
assert (fractions[:, 2] > fractions[:, :2].amax(-1)).all() and fractions[2, 0] < fractions[1, 0]

# %% [markdown]
# The famous part is attention, but in these four models the feed-forwards hold the most parameters. [[feed-forwards-hold-most]]

# %% slide="subslide" rows=["S2-17"]
announced = {("gpt2", "small"): "117 million", ("gpt2", "medium"): "345 million", ("gpt2", "large"): "762 million"}
announced |= {("gpt2", "xl"): "1,542 million", ("llama", "2-7b"): "7 billion", ("llama", "3-8b"): "8 billion"}
with torch.device("meta"):
    for (family, size), claim in announced.items():
        n = n_parameters(TransformerLM(preset(family, size)))
        print(f"{family:>5} {size:<7}{n / 1e6:>8,.0f} million   announced: {claim}")

# %% [markdown]
# The four sizes of GPT-2's paper ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)) are too small by 7 to 16 million; its authors corrected them later, and today people write 124, 355, 774 and 1,558 million. Count, and you need not believe anybody.

# %% [markdown] tags=["note"]
# **Say.** Seven published families are one class and a few choices. After the exercise you can say from a config alone how large a model is.
#
# **Draw.** A table with three columns for GPT-2, Llama and our `modern`. Fill in with the class: norm, positions, feed-forward, biases, tied or not.
#
# **Ask.** Before the prediction: "Which of these choices have weights of their own?" With the exercise: "What is the smallest model with which you could test your function?"
#
# **Usual answers.**
# - *Rotary has a table, so it has parameters* (`every position is a table`, `rotary -> sinusoidal`): The table is computed. Does an optimizer change it?
# - *The head is counted although it is tied* (`tied counts twice`): One tensor is counted once.
# - *One bias for each block* (`no second bias`): One for each matrix, as long as its outputs.
# - *All four matrices are C by C* (`square maps`): Only with as many key-value heads as heads.
# - *The final norm* (`no final norm`): Usually forgotten. Compare with a built model of one layer.
#
# **Cut if short.** The exercise, as homework: sixteen minutes.

# %% [markdown] slide="slide" plan=80
# ## 5. One class, many models
# Four models of published courses, GPT-2, Llama, and this course's own: how many classes is that? In the library it is one class, and for each a **config**, a record of plain choices. A name such as `cs336` is a set of choices, and sizes come on top.

# %% slide="skip"
from tinylm_classroom import card, number_table, show, trace_model

FAMILIES = ("cs336", "cs190c", "llama", "modern", "gpt", "gpt2", "tiny_transformer")
CHOICES = ["norm", "position", "rope_layout", "ffn", "qkv_bias", "o_bias", "ffn_bias"]
CHOICES += ["qk_norm", "tie_embeddings", "scale_embeddings", "init", "residual_dropout"]
configs = {name: preset(name) for name in FAMILIES}


# %% tags=["source-hidden"] slide="skip"
def shown_choice(config, choice: str) -> str:
    if choice == "rope_layout" and config.position != "rotary":
        return ""
    value = getattr(config, choice)
    return {True: "yes", False: ""}.get(value, str(value))


# %% tags=["source-hidden"] rows=["S2-3", "S2-7", "S2-8", "S4-8"] slide="skip"
chosen = [[choice, *(shown_choice(config, choice) for config in configs.values())] for choice in CHOICES]
in_words = [
    f"{name}: " + ", ".join(f"{row[0]} {row[i + 1]}" for row in chosen if row[i + 1]) for i, name in enumerate(FAMILIES)
]
card("What each family chooses", [number_table(["choice", *FAMILIES], chosen)], "\n".join(in_words)).show()

# %% [markdown]
# Four are of the Llama kind, three of the GPT kind. `gpt` is close to GPT-2 but not equal to it: GPT-2 has biases in its attention and the other GELU (`gelu_tanh`, lesson 08), so its published weights do not fit. `qk_norm` puts a small RMSNorm on queries and keys. `modern` is what this course trains.

# %% slide="skip" rows=["S1-27", "S4-42", "S4-62"] evidence="families"
small = {"vocab_size": 90, "d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 16}
some_ids = torch.randint(90, (2, 16))  # (B, T)
variants = ({}, {"position": "none"}, {"position": "learned"}, {"tie_embeddings": True}, {"init": "xavier"})
for name in FAMILIES:
    assert all(TransformerLM(preset(name, **small, **v))(some_ids).shape == (2, 16, 90) for v in variants)
    print(f"{name:<17}{len(variants)} variants run")

# %% [markdown]
# Each is a model that runs, also with one choice exchanged. [[families]] To see what is in one, print it. To move it to a GPU, use `.to`, and move the ids as well:

# %% slide="skip"
print(TransformerLM(preset("llama", **small)))

# %% slide="skip"
device = "cuda" if torch.cuda.is_available() else "cpu"
moved = TransformerLM(preset("llama", **small)).to(device)
assert moved(some_ids.to(device)).shape == (2, 16, 90)


# %% tags=["source-hidden"]
def counted(**choices) -> int:
    return n_parameters(TransformerLM(preset("cs336", **small, **choices)))


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
        "first weights: cs336 -> xavier": "The same weights get other numbers.",
        "RMSNorm -> LayerNorm": "",
        "no dropout -> dropout": "Dropout draws its zeros again each time and keeps no weights.",
    },
    because="LayerNorm has an offset for each feature in addition to its gain.",
)

# %% [markdown] slide="subslide"
# ### Your turn
# Count the parameters of any config, without building the model. Section 4 counted two; now the flags decide. (The check prints only what differs from the defaults: RMSNorm, rotary positions, SwiGLU, no biases, no `qk_norm`, a tied head.) The sizes are `vocab_size`, `max_seq_len`, `d_model`, `n_layers`, `n_heads`, `n_kv_heads`, `d_head` and `d_ff`.


# %% tags=["exercise"] name="count_parameters" minutes=16 difficulty=3
def count_parameters(config):
    """All parameters of a pre-norm model, as a whole number. config: a ModelConfig.

    Keys and values have n_kv_heads heads of d_head features, queries n_heads.
    qkv_bias, o_bias, ffn_bias: which maps have a bias, one for each matrix, as long as its outputs.
    The head has no bias. With tie_embeddings the head is the embedding.
    norm "rms" has a gain for each feature, "layer" a gain and an offset: two norms in a block, one at the end.
    qk_norm: queries and keys have an RMSNorm each, as wide as one head.
    ffn "swiglu" has three matrices, "gelu" and "gelu_tanh" two.
    position "learned" has a row for each of max_seq_len positions; the other kinds have no parameters.
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
# Go through the model once and write down each matrix as (out) times (in); a bias is as long as the matrix's outputs. Common mistakes: the output bias of the feed-forward, LayerNorm's offset and the final norm are forgotten; a tied head is counted twice; positions that are computed (rotary, sinusoidal) are counted as if they were learned.

# %% [markdown] slide="subslide"
# ### The library's version
# Its count agrees with every family. `TransformerLM` is the loop of section 1 with checks in front. Skip its cache (lesson 13) and its padding (prompts of different length).

# %% slide="skip"
from tinylm_lib.cost import count_parameters as library_count

for name in FAMILIES:
    with torch.device("meta"):
        assert library_count(configs[name]).total == n_parameters(TransformerLM(configs[name]))

# %% slide="skip"
show(library_count)
show(TransformerLM)

# %% [markdown] slide="say"
# Each part has a file of its own, and `model.py` puts them together. Now you can read all of them:

# %% tags=["source-hidden"] rows=["S0-4"] slide="skip"
import importlib

for name in ("layers", "positions", "feedforward", "attention", "model"):
    file = importlib.import_module(f"tinylm_lib.{name}")
    print(f"{name + '.py':<15} {file.__doc__.split('.')[0]}")

# %% [markdown]
# A large model has the same shapes. Here is `tiny_transformer` on the meta device, with 32 texts of 128 tokens:

# %% rows=["S4-28"] slide="skip"
with torch.device("meta"):
    trace_model(TransformerLM(preset("tiny_transformer")), torch.zeros(32, 128, dtype=torch.long)).show()

# %% [markdown] tags=["note"]
# **Say.** The embedding and the head each have one row for each token. Many models use one matrix for both. Today we see what this saves, and what it is not: two equal matrices.
#
# **Draw.** The token table once on the left, as embedding, and once on the right, as head, turned by a quarter. Then join them with an equals sign and write *one tensor*.
#
# **Ask.** Before the prediction: "The word *lantern* is not in the batch. Does its row move?" After the exchange: "How could one matrix do both jobs?"
#
# **Usual answers.**
# - *12, because only these tokens were read* (`12`): True of the embedding. What does the softmax do with the other logits?
# - *Tying is always better, because it has fewer parameters* (from the room): Then why is Llama 3 8B not tied?
# - *Equal matrices are tied matrices* (from the room): Until the first update.
#
# **Cut if short.** The list of savings and the numbers of the paper.

# %% [markdown] slide="slide" plan=80
# ## 6. One matrix, two jobs
# The embedding has a row for each token. The head has a row for each token, too. Could they be the same rows?

# %% [markdown]
# As a head, a token's row should point where the final vectors point when that token comes next. As an embedding, it should say what the token means for what follows. In the shipped model the two matrices were trained separately. Did they become similar?

# %% evidence="not-interchangeable"
with torch.no_grad():
    cosines = torch.cosine_similarity(model.embed.weight, model.lm_head.weight).abs()  # (V)
    last_vectors = capture(model, story_ids).outputs["final_norm"]  # (B, T, C)
    with_embedding = loss_of(last_vectors @ model.embed.weight.T)
print(f"cosine of a token's two rows, without its sign: {cosines.mean():.2f} on average, at most {cosines.max():.2f}")
print(f"loss with its head {order_losses['as trained']:.2f}, with its embedding as head {with_embedding:.1f}")
assert cosines.mean() < 0.15 and cosines.max() < 0.5 and with_embedding > math.log(345)

# %% [markdown]
# They did not. The two rows of a token are nearly perpendicular, and the embedding does not work as this model's head. [[not-interchangeable]]
#
# But a model can be *trained* with one matrix as embedding and as head: its head is **tied** to the embedding ([Press and Wolf 2017](https://arxiv.org/abs/1608.05859)).

# %% rows=["S4-10", "S4-13", "S4-44"] evidence="tied"
tied = TransformerLM(preset("gpt", vocab_size=1000))
untied = TransformerLM(preset("gpt", vocab_size=1000, tie_embeddings=False))
assert tied.lm_head is None and "lm_head.weight" not in tied.state_dict()
assert n_parameters(untied) - n_parameters(tied) == untied.lm_head.weight.numel() == 1000 * 256


# %% tags=["source-hidden"]
def rows_with_gradient(lm: TransformerLM) -> int:
    lm.zero_grad()
    batch = torch.arange(12)[None]  # (1, T)
    cross_entropy(lm(batch)[0], batch[0].roll(-1)).backward()
    return int((lm.embed.weight.grad.norm(dim=1) > 0).sum())


predict(
    "A batch has 12 different tokens of a vocabulary of 1000. After one backward pass, how many rows of the matrix of a tied model have a gradient?",
    key=lambda: rows_with_gradient(tied),
    number="rows",
    within=0,
    feedback={12: "That is true of an embedding that is only read. This one is also the head."},
    because="As the head, each row gave a logit, and through the softmax every logit gets a gradient.",
)

# %% evidence="every-row"
print("untied, the embedding alone:", rows_with_gradient(untied), "rows")
assert rows_with_gradient(tied) == 1000 and rows_with_gradient(untied) == 12

# %% [markdown]
# Every row of a tied matrix has a gradient in every update, even the rows of rare words. [[every-row]] (AdamW's weight decay, lesson 11, also moves rows that have no gradient.) And tying saves memory:

# %% slide="subslide" rows=["S4-14"] evidence="tying-saves"
saved = []
with torch.device("meta"):
    for family, size in (("gpt", "example"), ("gpt2", "small"), ("gpt2", "xl"), ("llama", "3.2-1b"), ("llama", "3-8b")):
        n_untied = n_parameters(TransformerLM(preset(family, size, tie_embeddings=False)))
        n_tied = n_parameters(TransformerLM(preset(family, size, tie_embeddings=True)))
        saved.append((n_untied - n_tied) / n_untied)
        print(f"{family:>5} {size:<8} untied {n_untied:>13,}  tied {n_tied:>13,}  saves {saved[-1]:.1%}")
assert saved[1] > saved[2] and saved[3] > saved[4]

# %% [markdown]
# Within a family, the larger model saves the smaller fraction. [[tying-saves]] So small models are often tied (Llama 3.2 1B is), and large ones often not (Llama 3 8B). Do not tie if the model reads one vocabulary and writes another, or if the two jobs need different rows. Whether they do, only a training can show: lesson 14 runs one.

# %% slide="skip" rows=["S4-11", "S4-12"]
bert, bert_table = 110e6, 30_000 * 768  # BERT-base as published, tied: Devlin et al. 2019
print(f"BERT-base untied: {(bert + bert_table) / 1e6:.0f} million, tying saves {bert_table / (bert + bert_table):.0%}")
for what, apart, joined in (("large, 66 -> 51 million", 78.4, 74.3), ("small, 4.65 -> 2.65 million", 114.5, 112.4)):
    print(f"an LSTM, {what}: perplexity {apart} -> {joined}, {(joined - apart) / apart:+.1%}")

# %% [markdown] slide="say"
# (The last two lines are results of Press and Wolf, 2017. **Perplexity** is $e$ to the power of the loss, so lower is better. With fewer parameters both of their models got better, the large one more than the small one.)

# %% [markdown] slide="subslide"
# **Tying means one tensor, not two equal ones.** PyTorch refuses a bare copy, but not a copy that is wrapped as a parameter:

# %%
head = nn.Linear(256, 1000, bias=False)
try:
    head.weight = tied.embed.weight.clone()
except TypeError as error:
    print("refused:", str(error).split(" (")[0])
head.weight = nn.Parameter(tied.embed.weight.clone())
print("equal:", torch.equal(head.weight, tied.embed.weight), " one tensor:", head.weight is tied.embed.weight)

# %% [markdown]
# They are equal today and different after the first update, and no error is raised. So the library keeps no second name at all: without `lm_head` it multiplies by `embed.weight`.

# %% [markdown] tags=["note"]
# **Say.** Before training all weights are random, with a mean of 0. The recipes differ in the spread. We see what the spread does to the stream, and whether this explains which model learns faster. It does not.
#
# **Draw.** The stream as a line that becomes thicker at every plus, once quickly and once slowly.
#
# **Ask.** Before the training: "In which of these models will the loss fall fastest? Use the picture." After it: "What else differs between the recipes?" Before the break: "Which first loss is closer to ln 500?"
#
# **Usual answers.**
# - *The flattest stream learns fastest* (from the room): Compare `kaiming` with `normal` in the table. What about the weights of their heads?
# - *Gains are drawn as well* (`gains drawn`): A gain of nearly 0 silences what it multiplies. The last cells show it.
# - *The module itself stays as it was* (`not itself`): `modules()` begins with the module itself.
# - *The right model's* (`the right model's`): Its logits have a spread of their own, and this raises its loss a little.
#
# **Cut if short.** ReLU's factor of 2, and the untrained model's words.

# %% [markdown] slide="slide" plan=110
# ## 7. First weights
# Before training, the weights are drawn at random, with a mean of 0. How far should they spread? For a map from 512 to 2048 features:

# %% slide="skip"
by_both, by_input = math.sqrt(2 / (512 + 2048)), math.sqrt(2 / 512)
formulas = {"normal": 0.02, "gpt2": 0.02, "xavier": by_both, "cs336": by_both, "kaiming": by_input}
formulas["zero_residual"] = math.sqrt(1 / 512)

# %% rows=["S4-16", "S4-18", "S4-20"]
deep = {"vocab_size": 100, "n_layers": 2, "n_heads": 8, "d_model": 512, "tie_embeddings": False}
for name, std in formulas.items():
    layer = TransformerLM(preset("gpt", **deep, init=name)).blocks[0]
    up, into_stream = layer.ffn.up_proj.weight.std(), layer.ffn.down_proj.weight.std()
    print(f"{name:<14} formula {std:.4f}  measured {up:.4f}   map back into the stream {into_stream:.4f}")

# %% [markdown]
# *Xavier* (Glorot and Bengio 2010) has the variance 2/(in + out). *Kaiming* (He et al. 2015) has 2/in, so its map back, from 2048 features, has less. `zero_residual` has 1/in, which is LeCun's rule (1998) and sometimes called Xavier by mistake, and 0 for the maps that write into the stream. `gpt2` makes these maps smaller by the root of their number. `cs336` cuts off what is more than three standard deviations away. We measured each, because a recipe that is ignored raises no error.

# %% [markdown] slide="subslide"
# Why 2/in? Each output is a sum of *in* products, so a variance of 1/in keeps the size. But ReLU removes half of the squares:


# %% rows=["S4-17"] evidence="factor-2"
def size_after(factor: float, bend) -> float:
    """The root mean square after 10 random maps of variance factor / 512, each followed by a bend."""
    torch.manual_seed(10)
    x = torch.randn(200, 512)
    for _ in range(10):
        x = bend(x @ torch.randn(512, 512).mul(math.sqrt(factor / 512)))  # (200, 512)
    return x.square().mean().sqrt().item()


for name, bend in {"ReLU": torch.relu, "no bend": lambda x: x}.items():
    print(f"{name:<8} after 10 maps: with 1/in {size_after(1, bend):5.2f}, with 2/in {size_after(2, bend):5.2f}")
assert size_after(1, torch.relu) < 0.1 < 0.7 < size_after(2, torch.relu) < 1.4 and size_after(2, lambda x: x) > 20

# %% [markdown]
# With ReLU it is 2/in that keeps the size, and without a bend 1/in. [[factor-2]]

# %% [markdown] slide="subslide"
# ### What the spread does to the stream
# A block adds to the stream what its two last maps write. Here is the stream of 12 untrained layers.


# %% slide="skip"
from itertools import pairwise


def stream_sizes(init: str, seed: int) -> list[float]:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 200, "d_model": 128, "n_heads": 4, "n_layers": 12, "tie_embeddings": False}
    outputs = capture(TransformerLM(preset("gpt", **sizes, init=init)), torch.randint(200, (2, 16))).outputs
    return [outputs[part].std().item() for part in ("position", *(f"blocks.{i}" for i in range(12)))]


recipes = ("kaiming", "xavier", "normal", "gpt2", "zero_residual")
courses = {init: torch.tensor([stream_sizes(init, seed) for seed in range(3)]).mean(0).tolist() for init in recipes}

# %% tags=["source-hidden"] rows=["S4-15"] slide="subslide" evidence="first-weights"
after_layers = list(range(13))
fig, ax = plt.subplots(figsize=(9.6, 5), layout="constrained")
for init, sizes in courses.items():
    (line,) = ax.plot(after_layers, sizes)
    ax.text(12.2, sizes[-1], init, va="center", color=line.get_color())
ax.set_yscale("log")
ax.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
ax.set(title="First weights decide how the stream grows", xlabel="after layer", ylabel="standard deviation")
ax.set(xlim=(0, 15.4), xticks=[0, 2, 4, 6, 8, 10, 12])
figures.display(
    fig,
    alt="Line chart, logarithmic: over 12 layers the stream grows most with kaiming, then xavier, then normal, little with gpt2, and not at all with zero_residual.",
    caption="Mean of 3 seeds; 0 is the stream before the first layer. Small maps into the stream keep it nearly flat, and with zeros every block starts as the identity.",
    table={"after layer": after_layers[::3], **{init: sizes[::3] for init, sizes in courses.items()}},
    digits=2,
)
growth = [courses[init][-1] / courses[init][0] for init in recipes]
assert all(faster > 1.3 * slower for faster, slower in pairwise(growth))

# %% [markdown] slide="subslide"
# `kaiming` grows most and `zero_residual` not at all. [[first-weights]] Does `kaiming` therefore learn worse than `zero_residual`? We train models of 4 layers on our stories, 30 updates each, from two seeds.


# %% slide="skip"
def early_loss(init: str, head_std: float | None, seed: int) -> float:
    """The mean loss of the last 5 of 30 updates. head_std: draws the head again, with this standard deviation."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": 345, "d_model": 64, "n_heads": 4, "n_layers": 4, "tie_embeddings": False}
    learner = TransformerLM(preset("gpt", **sizes, init=init)).eval()  # without dropout
    if head_std is not None:
        nn.init.normal_(learner.lm_head.weight, std=head_std)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=0.001)
    found = []
    for _ in range(30):
        few = story_ids[torch.randint(60, (8,)), :41]  # (8, 41)
        loss = cross_entropy(learner(few[:, :-1]).mT, few[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return sum(found[-5:]) / 5


# %% rows=["S4-19"] slide="subslide" evidence="spread-decides"
from tinylm_classroom import learned

tried = {"kaiming": ("kaiming", None), "normal": ("normal", None), "normal, head 0.125": ("normal", 0.125)}
tried |= {"zero_residual": ("zero_residual", None), "zero_residual, head 0.02": ("zero_residual", 0.02)}
early = {name: [early_loss(init, head_std, seed) for seed in (0, 1)] for name, (init, head_std) in tried.items()}
for name, values in early.items():
    print(f"{name:<25} loss after 30 updates:", "  ".join(learned(value, 1.5, 5.0) for value in values))
slow = early["normal"] + early["zero_residual, head 0.02"]
quick = early["kaiming"] + early["normal, head 0.125"] + early["zero_residual"]
assert min(slow) > 0.7 + max(quick)
assert max(early["normal, head 0.125"]) < 0.3 + min(early["zero_residual"])

# %% [markdown]
# No: `kaiming` and `zero_residual` both learn quickly, and `normal` is the slow one. The growth of the stream does not explain this, but the first weights of the head do: with 0.125 instead of 0.02 in the head alone, `normal` learns as fast as `zero_residual`, and with 0.02 in its head `zero_residual` is as slow as `normal`. [[spread-decides]] (One learning rate, one small model: with other settings the order can change.)

# %% [markdown] slide="say"
# A recipe for each kind of layer, if you have no reason for another one. The embedding: a standard deviation of 0.02 as in GPT-2, or of 1 as in `cs336`; a norm reads it in either case. Maps inside a block: $1/\sqrt{in}$. Maps into the stream: smaller by the root of their number, or 0. The head: not larger than the maps, so that the first logits are small. Gains 1, offsets and biases 0. The 0.02 of GPT-2's code is about $1/\sqrt{in}$ for widths of some thousand, not for ours.

# %% [markdown] slide="subslide"
# ### Your turn
# The recipe `normal`, for any module. `module.modules()` gives the module itself and everything inside it.


# %% tags=["exercise"] name="init_weights" minutes=14 difficulty=2
def init_weights(module, std):
    """Fill all weights inside `module`, the module itself included.

    nn.Linear and nn.Embedding (also subclasses): weights N(0, std^2), biases 0.
    Norms (nn.LayerNorm, nn.RMSNorm) stay as they are: gains 1, offsets 0.
    In place: no tensor is replaced. Returns nothing.
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
# `modules()` goes through all depths and begins with the module itself. What decides is the *kind* of part, not the number of dimensions: a loop over `parameters()` that draws everything at random spoils the gains, as the next cells show. A head without a bias has `bias` None.

# %% [markdown] slide="subslide"
# ### Break it: spoiled gains
# A common mistake draws *all* parameters from $N(0, 0.02^2)$, including the gains of the norms. Can you see this mistake in the first loss?


# %%
def tiny(seed: int, spoil: bool) -> TransformerLM:
    torch.manual_seed(seed)
    lm = TransformerLM(preset("tiny_transformer", "tiny")).eval()  # without dropout
    if spoil:
        for p in lm.parameters():
            nn.init.normal_(p, std=0.02)
    return lm


# %% slide="skip"
def learn_by_heart(lm: TransformerLM, seed: int) -> list[float]:
    """The losses of 51 updates on one batch of random tokens."""
    batch = torch.randint(500, (16, 33), generator=torch.Generator().manual_seed(seed))  # (B, T + 1)
    optimizer = torch.optim.AdamW(lm.parameters(), lr=0.003)
    found = []
    for _ in range(51):
        loss = cross_entropy(lm(batch[:, :-1]).mT, batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


by_heart = {spoil: [learn_by_heart(tiny(seed, spoil), seed) for seed in (1, 2)] for spoil in (False, True)}

# %% tags=["source-hidden"]
to_ln = {spoil: max(abs(losses[0] - math.log(500)) for losses in runs) for spoil, runs in by_heart.items()}
predict(
    f"ln 500 is {math.log(500):.3f}. Whose first loss is closer to it?",
    key=lambda: "the spoiled model's" if to_ln[True] < to_ln[False] else "the right model's",
    choices={
        "the right model's": "Its logits have a spread of their own, which raises its loss a little. The other's are nearly 0.",
        "the spoiled model's": "",
    },
    because="With gains near 0 the final norm silences everything, so all logits are nearly 0 and the probabilities nearly equal.",
)

# %% tags=["source-hidden"] evidence="spoiled-gains"
for spoil, runs in by_heart.items():
    for losses in runs:
        print(f"{'spoiled' if spoil else 'right':<8} first loss {losses[0]:.2f}, last {learned(losses[-1], 0.1, 5.5)}")
assert to_ln[True] < to_ln[False]
assert min(losses[-1] for losses in by_heart[True]) > 2 + max(losses[-1] for losses in by_heart[False])

# %% [markdown]
# The first loss looks even better with the mistake, and after 51 updates the spoiled model is far behind, with both seeds. [[spoiled-gains]] With more updates it learns the batch as well. So a first loss near ln V shows only that the model has no opinion yet. Look at the sizes of the gradients, too:

# %%
for spoil in (False, True):
    checked = tiny(1, spoil)
    checked(torch.arange(32)[None]).logsumexp(-1).mean().backward()
    print(
        f"{'spoiled' if spoil else 'right':<8} gradient of a first matrix: {checked.blocks[0].ffn.up_proj.weight.grad.norm():.0e}"
    )

# %% [markdown] slide="subslide"
# ### What an untrained model says
# The model of section 4, untrained, reads random tokens.

# %% rows=["S2-10"] slide="skip"
torch.manual_seed(10)
fresh = TransformerLM(preset("gpt")).eval()
random_tokens = torch.randint(10_000, (8, 128))  # (8, 128)
with torch.no_grad():
    fresh_logits = fresh(random_tokens)  # (8, 128) -> (8, 128, 10000)
assert fresh_logits.shape == (8, 128, 10_000)

# %% rows=["S2-12"]
best_probs, best_tokens = fresh_logits[0, -1].softmax(-1).topk(5)
for token, prob in zip(best_tokens.tolist(), best_probs.tolist(), strict=True):
    print(f"token {token:>5}: {prob:.4f}")
print(f"each of 10,000 tokens equally likely: {1 / 10_000}")

# %%
fresh_spread, ln_v = fresh_logits.std().item(), math.log(10_000)
fresh_loss = cross_entropy(fresh_logits[:, :-1].mT, random_tokens[:, 1:]).item()
print(f"loss {fresh_loss:.2f}; ln V is {ln_v:.2f}, and ln V + spread^2 / 2 is {ln_v + fresh_spread**2 / 2:.2f}")

# %% [markdown]
# The probabilities are nearly equal, but not quite: the logits have a spread of their own, and a random opinion has a slightly higher loss than none (lesson 03). In training mode two calls would even differ, because dropout sets other numbers to 0 each time. Call `.eval()` before you use a model.

# %% slide="skip"
with torch.no_grad():
    for training in (True, False):
        fresh.train(training)
        two_calls = [fresh(random_tokens[:1]) for _ in range(2)]
        print(f"training mode {training}: two calls differ by up to {(two_calls[0] - two_calls[1]).abs().max():.1f}")

# %% [markdown] tags=["note"]
# **Say.** Here is what you need to plan a model: bytes, shape, and the mistakes in published counts.
#
# **Draw.** A bar for the memory of a training: weights, gradients, two moments, then the activations, which grow with the batch.
#
# **Ask.** "Why does my small model run out of memory?" Go through the first table. After the shapes: "Which of the three would you choose for a phone?"
#
# **Usual answers.**
# - *The weights need 4 bytes each, so it fits* (from the room): What else is kept for each weight in training?
# - *A deeper model is always better* (from the room): At equal size the losses differ little over a wide range of shapes (Kaplan et al. 2020).
#
# **Cut if short.** All but the table of bytes.

# %% [markdown] slide="slide" plan=110
# ## 8. For engineers
# ### Bytes
# What does it take to train N parameters? In fp32 each has its value, its gradient, and two moments of AdamW (lesson 11): 4 numbers of 4 bytes. In addition the forward pass keeps everything that the backward pass needs, the **activations**.

# %% tags=["source-hidden"] slide="skip"
from tinylm_classroom import memory_view
from tinylm_lib.cost import training_flops


def kept_bytes(config, batch: int, length: int) -> int:
    """What the backward pass keeps of the forward pass, counted on the meta device, without a fused attention kernel."""
    with torch.device("meta"):
        lm = TransformerLM(config)
        no_tokens = torch.zeros(batch, length, dtype=torch.long)
    own = {x.untyped_storage()._cdata for x in [*lm.parameters(), *lm.buffers()]}
    kept = {}

    def keep_storage(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage()._cdata] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep_storage, lambda x: x):
        cross_entropy(lm(no_tokens).flatten(0, 1), no_tokens.flatten())
    return sum(storage.nbytes() for key, storage in kept.items() if key not in own)


# %% rows=["S4-37"] evidence="bytes" slide="skip"
for size in ("tiny", "small", "medium"):
    config_of_size = preset("tiny_transformer", size)
    n = library_count(config_of_size).total
    texts = kept_bytes(config_of_size, 8, 128)
    print(f"{size:<7} {n:>9,} parameters: {16 * n / 1e6:5.1f} MB, and {texts / 1e6:5.1f} MB", end=" ")
    print(f"for 8 texts of 128 tokens, {texts / (16 * n):.1f} times as much")
    assert texts > 16 * n
print(f"1 billion parameters: {16 * 1e9 / 1e9:.0f} GB before the first text")
print(f"logits of 32 texts of 128 tokens with V = 10,000: {32 * 128 * 10_000 * 4 / 1e6:.0f} MB")

# %% [markdown]
# In these three models the activations of 8 short texts need more memory than the parameters with their gradients and moments. [[bytes]] They grow with the batch and the length, so make the batch smaller first. (On a real device less is kept if one kernel computes attention without storing its T by T weights.)

# %% slide="skip"
memory_view({"shipped": model.config})

# %% [markdown] slide="subslide"
# ### Deep or wide?
# With F = 4C a block has $4C^2$ parameters in attention and $8C^2$ in its feed-forward. Are these three models equally large?

# %% rows=["S4-5"]
for name, width, depth in (("I", 512, 12), ("II", 2048, 3), ("III", 256, 24), ("BERT-base", 768, 12)):
    print(f"{name:<9} C {width:>4}, L {depth:>2}: {12 * depth * width**2 / 1e6:6.1f} million in the blocks")

# %% [markdown]
# They are not, because the width counts twice. At equal size, does depth matter more? The loss changes little over a wide range of shapes: 6 layers of width 4288 come within 3 % of the 48 layers of width 1600 ([Kaplan et al. 2020](https://arxiv.org/abs/2001.08361), section 3.1). So take a shape in the middle. How large? **Memory** limits N, **time** limits the tokens that you can train on, and the **text** decides how many parameters are useful (lesson 15).

# %% rows=["S4-36"] slide="skip"
for memory in (8e9, 16e9, 80e9):
    print(f"{memory / 1e9:2.0f} GB, half of it for the model: at most {memory / 2 / 16 / 1e6:,.0f} million parameters")
gpt2_small = preset("gpt2")
flops = training_flops(gpt2_small, batch_size=1, seq_len=1024) / 1024 / library_count(gpt2_small).total
print(f"GPT-2 small: {flops:.1f} FLOPs per token and parameter")

# %% [markdown]
# A multiplication and an addition for each parameter forward, twice that backward, and the attention scores in addition: a little more than 6. Divide the FLOPs per second of your machine, times the time that you have, by 6N: that is the number of tokens you can train on.

# %% [markdown] slide="subslide"
# ### Counts that go wrong
# How many parameters has `tiny_transformer`? The question has four answers:

# %% rows=["S4-31"]
with torch.device("meta"):
    for kind in ("sinusoidal", "learned"):
        for tie in (True, False):
            n = n_parameters(TransformerLM(preset("tiny_transformer", position=kind, tie_embeddings=tie)))
            print(f"{kind:<11}tied {tie!s:<6}{n:>11,}")

# %% [markdown]
# The first line is right. A common mistake is to count a table of positions although the code computes them: that gives 524,288 too many, 1024 times 512. Another is to guess:

# %% rows=["S4-34", "S4-35"] slide="skip"
claims = {"tiny": "150 thousand", "small": "2 to 3 million", "medium": "50 million"}
print("the difference of a table:", f"{1024 * 512:,}")
with torch.device("meta"):
    for size, claim in claims.items():
        print(f"{size:<7}{n_parameters(TransformerLM(preset('tiny_transformer', size))):>10,}   a guess: {claim}")
times_smaller = library_count(preset("gpt2")).total / library_count(preset("tiny_transformer", "medium")).total
print(f"GPT-2 small is {times_smaller:.0f} times as large as medium")

# %% [markdown]
# If you guess 50 million for the medium model, it seems comparable with GPT-2 small, which is 21 times as large. Now GPT-3:

# %%
gpt3 = preset("gpt2", d_model=12_288, n_layers=96, n_heads=96, max_seq_len=2048)
print(f"parameters: {library_count(gpt3).total / 1e9:.0f} billion, announced 175 billion")
print(f"width of a head: {gpt3.d_head}")
print(f"updates: {300e9 / 3.2e6:,.0f} (300 billion tokens, 3.2 million in a batch)")

# %% [markdown] slide="say"
# GPT-3's heads are 128 wide, not 64 as often in smaller models, and its training had about 100,000 updates (lesson 11), not millions ([Brown et al. 2020](https://arxiv.org/abs/2005.14165), sections 2.1 and 2.3).

# %% [markdown] slide="subslide"
# ### Biases
# A bias lets a map add something that does not depend on its input. Llama's maps have none. What would they add?

# %% rows=["S4-9", "S4-47"] evidence="few-biases"
with torch.device("meta"):
    with_biases = TransformerLM(preset("gpt2"))
n_biases = sum(p.numel() for name, p in with_biases.named_parameters() if "proj.bias" in name)
print(f"GPT-2 small: {n_biases:,} of {n_parameters(with_biases):,} parameters are biases of maps")
assert 0 < n_biases < n_parameters(with_biases) / 1000
assert with_biases.lm_head is None and all("bias" not in name for name in model.state_dict())

# %% [markdown]
# They are less than a thousandth of the parameters. [[few-biases]] PaLM's authors left them out and report a more stable training of large models ([Chowdhery et al. 2022](https://arxiv.org/abs/2204.02311), section 2). A bias of the head could hold how frequent each token is. Most decoders have none there; BERT is tied *and* has one.

# %% [markdown] slide="subslide"
# ### One block, six times
# `[block] * n` makes a list of n references to *one* block.

# %% evidence="one-block"
one = TransformerLM(preset("gpt", vocab_size=100)).blocks[0]
shared = nn.ModuleList([one] * 6)
apart = nn.ModuleList(type(one)(preset("gpt", vocab_size=100)) for _ in range(6))
for name, blocks in {"shared": shared, "apart": apart}.items():
    print(f"{name:<7}{n_parameters(blocks):>10,} parameters, {len(blocks.state_dict())} tensors in its checkpoint")
assert len(shared.state_dict()) == len(apart.state_dict()) and n_parameters(apart) == 6 * n_parameters(shared)

# %% [markdown]
# The checkpoints list the same tensors. The number of parameters shows the mistake. [[one-block]]

# %% [markdown] slide="subslide"
# ### An untrained model that knows the answer
# `tiny_transformer` multiplies its embeddings by $\sqrt{C}$, and its head is tied. What does it predict before training?

# %% slide="skip"
torch.manual_seed(10)
echo = TransformerLM(preset("tiny_transformer", n_layers=2)).eval()
unscaled = TransformerLM(preset("tiny_transformer", n_layers=2, scale_embeddings=False)).eval()
echo_ids = torch.randint(10_000, (2, 16))  # (B, T)

# %% evidence="echo"
with torch.no_grad():
    for name, lm in {"with the factor": echo, "without it": unscaled}.items():
        said_next = lm(echo_ids)  # (B, T, V)
        repeats = (said_next.argmax(-1) == echo_ids).double().mean().item()
        on_next, on_itself = cross_entropy(said_next[:, :-1].mT, echo_ids[:, 1:]), cross_entropy(said_next.mT, echo_ids)
        print(
            f"{name:<16} repeats {repeats:.0%}; loss on the next token {on_next:.1f}, on the token itself {on_itself:.1f}"
        )
        assert repeats > 0.9 if lm is echo else repeats < 0.5

# %% [markdown]
# With the factor, the row of the token that was just read outweighs all that the blocks add, and the head compares with that same row. [[echo]] If you forget to shift the targets by one, this model's first loss is far below ln V, although it has learned nothing. Lesson 11 is about that shift.

# %% [markdown] tags=["note"]
# **Say.** You have a language model of your own parts. Say only the points whose sections you taught.
#
# **Draw.** Once more the line with its detours.
#
# **Ask.** At the door: "Where in the model is Mia's gender, until the third block fetches it?"
#
# **Usual answers.**
# - *In the full stop, because the answer is read there* (from the room): When was it there? Which exchange changed the answer?
# - *In the weights* (from the room): The weights know which names take *She*. Where is it in this text?
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - A language model is a loop: an embedding, blocks that add to the stream, a final norm and a head. [[forward-pass]] Each block of ours returns the shape that it reads. [[shapes]] The order of the trained blocks matters, although they only add. [[order-of-blocks]] Without its final norm the shipped model has a far higher loss. [[final-norm]]
# - Your own parts, with the shipped weights, give the shipped model's logits. [[your-parts]] With random weights the same code has a higher loss than equal probabilities. [[untrained]]
# - The early readings for Mia are wrong. [[read-early]] After block 0 they say nothing about her. [[same-for-all-names]] The gender that the shipped model uses is at the name until its last block [[where-the-gender-is]], whose attention fetches it [[attention-fetches]], also in a second sentence. [[another-sentence]]
# - Your count agrees with the built model exactly. [[count-by-hand]] If the width and the inner width are doubled, a block has about four times as many parameters. [[square-of-the-width]] In the four models of section 4 the feed-forwards hold the most. [[feed-forwards-hold-most]]
# - One class runs each of the seven families. [[families]] In a tied model the embedding and the head are one tensor [[tied]], and each of its rows has a gradient after one backward pass. [[every-row]] Within a family, the larger model saves the smaller fraction. [[tying-saves]] Trained apart, the two matrices cannot replace each other in the shipped model. [[not-interchangeable]]
# - First weights decide how fast the stream grows before training. [[first-weights]] In our test the size of the head's weights, not this growth, separated the slow model from the others. [[spread-decides]] ReLU needs twice the variance to keep the size. [[factor-2]] Spoiled gains improve the first loss and delay learning. [[spoiled-gains]]
# - For engineers: activations can need more memory than the parameters with all that belongs to them. [[bytes]] In GPT-2 small the biases of its maps are less than a thousandth of the parameters. [[few-biases]] One block repeated shows in the number of parameters. [[one-block]] A tied model with scaled embeddings repeats its input before training. [[echo]]
#
# What is missing is a training of your own. Next, lesson 11.

# %% [markdown] slide="skip"
# ## Sources
# - GPT-2's first weights and sizes: Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), sections 2.3 and 3.
# - Reading the stream early: nostalgebraist 2020, [*interpreting GPT: the logit lens*](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens). Exchanging vectors: Vig et al. 2020, [*Investigating Gender Bias in Language Models Using Causal Mediation Analysis*](https://arxiv.org/abs/2004.12265).
# - Further training on dialogues: Ouyang et al. 2022, [*Training language models to follow instructions with human feedback*](https://arxiv.org/abs/2203.02155).
# - Tying: Press and Wolf 2017, [*Using the Output Embedding to Improve Language Models*](https://arxiv.org/abs/1608.05859).
# - Xavier: Glorot and Bengio 2010, [*Understanding the difficulty of training deep feedforward neural networks*](https://proceedings.mlr.press/v9/glorot10a.html), equation 16.
# - Kaiming: He et al. 2015, [*Delving Deep into Rectifiers*](https://arxiv.org/abs/1502.01852), equation 10. Variance 1/in: LeCun et al. 1998, *Efficient BackProp*, section 4.6.
# - Depth and width: Kaplan et al. 2020, [*Scaling Laws for Neural Language Models*](https://arxiv.org/abs/2001.08361), section 3.1.
# - GPT-3: Brown et al. 2020, [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165), sections 2.1 and 2.3. BERT: Devlin et al. 2019, [*BERT: Pre-training of Deep Bidirectional Transformers*](https://arxiv.org/abs/1810.04805). No biases: Chowdhery et al. 2022, [*PaLM*](https://arxiv.org/abs/2204.02311), section 2.
