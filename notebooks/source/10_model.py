# %% [markdown] deck="What do all the parts make together, and where in it does an answer arise?"
# # 10 Model
# **What do all the parts make together, and where in it does an answer arise?**
#
# *Needs* lessons 02 to 09. *Builds* `count_parameters` in `cost.py`, and explains `TransformerLM` in `model.py`. *Runs* in about 25 s on two cores.
# *Teaches* in about 44 minutes, plus 22 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a language model is a loop. An embedding fills a stream of vectors, each block adds to it, and a head reads it. Then the model runs on the students' own parts, its first loss is computed before it is measured, and a small detective story finds where in the stream an answer arises.
# Section 2 is the moment that the course has worked for. If you have only ten minutes, show the first picture and section 2.
# Before the class: if you have kept your own parts, run section 2, so that the card there is yours.

# %% [markdown] tags=["note"]
# **Say.** You have all the parts. Here they work on one sentence, from its letters to a word. Each → plays one of 16 steps; with little time jump to the next slide (G, 3, Enter). Stop at the heads of block 2: since block 0 the machine would have said *He*.
#
# **Ask.** Before the heads of block 2: "Which word does the full stop have to look at, so that the answer is right?"
#
# **Usual answers.**
# - *At step 6, the percentages differ* (from the room): Is it another word, or the same word with another number?
# - *At the softmax of block 2, it looks at another name* (from the room): Has anything been added to the stream there?
# - *At step 13, the heads of block 2* (from the room, right): It reads *She* for Mia and *He* for Carlos. Which word have the heads looked at?
# - *All parts are still there, so it must be better than nothing* (`reversed`): What did the last block read in training? What does it read now?
# - *A sum does not depend on the order* (`they are equal`): The order of the terms does not matter. But what a block adds depends on what it reads.
# - *The rows are added up to probabilities* (`shares`): Logits are wanted. Softmax comes later, in the loss and in the sampler.
# - *The matrix without .T* (`not transposed`): Its rows are tokens. Which of its axes has the size of a vector?
#
# **Cut if short.** The trace; the comments in the code say the same.
#
# **Tried.** The loop: exact, the logits of the library for stories of five seeds. Orders: eight sets of 60 stories. As trained 0.93 to 0.94, the last two exchanged 1.93 to 2.04, the first two 2.31 to 2.42, none 3.89 to 4.03, reversed 4.50 to 4.63; reversed is worse than none in each set, by 0.54 to 0.66. The other two orders are at 2.95 to 3.14 and at 4.46 to 4.58.

# %% [markdown]
# ## 1. From ids to logits
# You have built an embedding, norms, attention, positions, a feed-forward and a block. Together they are a language model:

# %%
import torch

from tinylm_classroom import model_figures as figures
from tinylm_classroom import one_word
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer

# %% [markdown]
# **Your task:** play the film. Then type *Carlos* instead of *Mia*. At which step do the two films read another *word* for the first time?

# %% tags=["signature"] deck="One word through the machine: He, until block 2 looks at Mia"
one_word(model, tokenizer, "\nOne dark evening, calm Mia ran to Foxhollow.")

# %% [markdown]
# The **embedding** turns each id into a vector of the residual **stream** (lesson 09). Each **block** reads the stream twice through a norm, and adds to it twice, with attention and with its feed-forward. The **final norm** brings the vectors to one size, and the **head** (also *LM head*) gives every token of the vocabulary a score, its **logit**.
#
# Read after block 0 or 1, the stream says *He* for both names. For Mia the attention of the last block puts *She* just ahead of *He*, and its feed-forward makes it sure. Section 4 finds out why. First, the whole forward pass in code is a loop:


# %% deck="A language model is a loop"
@torch.no_grad()
def forward(ids, blocks):
    # ESSENTIAL
    x = model.embed(ids)  # (B, T) -> (B, T, C)
    for block in blocks:
        x = block(x, torch.arange(ids.shape[1]))  # (B, T, C)
    h = model.final_norm(x)  # (B, T, C)
    return h @ model.lm_head.weight.T  # (B, T, C) -> (B, T, V)
    # END


# %% rows=["S0-39", "S0-42", "S1-25", "S4-3", "S4-27", "S4-28", "S4-29"] evidence="forward-pass" tried="exact"
from tinylm_classroom import check, hint, keep, predict, trace

kite = "One sunny day, brave {} had a red kite."
ids = torch.tensor([tokenizer.encode("\n" + kite.format("Mia"))])  # (B, T)
logits = forward(ids, model.blocks)  # (B, T, V)
torch.testing.assert_close(logits, model(ids))
print("next word:", tokenizer.decode([logits[0, -1].argmax().item()]).strip())
trace(forward, ids, model.blocks, sizes={"B": 1, "T": 12, "C": 128, "V": 345})

# %% [markdown]
# These lines give the logits of the library's model. [[forward-pass]] From the embedding to the final norm the stream keeps its shape, and every position gets its row of logits: each predicts its next token.
#
# ### Your turn: the head
# The head has a row for each token, and a token's logit is the dot product of its row with the final vector. Write it for all tokens at all positions. (If these rows are those of the embedding, the head is **tied** to it: hence the name.)


# %% tags=["exercise"] name="tied_logits" minutes=6 difficulty=1 deck="Your turn: the head"
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

# %% slide="skip"
hint("tied_logits")

# %% [markdown] tags=["solution"]
# One dot product with each row: the matrix is used as a linear map from C to V, stored as (out, in), as in lesson 02. Common mistake: the transpose is forgotten. If there are as many tokens as features, this raises no error.

# %% [markdown]
# ### Does the order matter?
# Each block only *adds* to the stream. So are the trained blocks in reversed order still better than no blocks? (The losses are over the first 64 tokens.)

# %%
from math import log

from torch.nn.functional import cross_entropy

from tinylm_lib import TransformerLM, storyworld

SEEDS = (10, 11, 12)
b0, b1, b2 = model.blocks
orders = {"as trained": [b0, b1, b2], "last two exchanged": [b0, b2, b1]}
orders |= {"first two exchanged": [b1, b0, b2], "no blocks": []}
orders |= {"reversed": [b2, b1, b0]}


def stories(seed):
    generator = torch.Generator().manual_seed(seed)
    texts = [storyworld.story(generator).text for _ in range(60)]
    return torch.tensor([tokenizer.encode("\n" + t)[:64] for t in texts])  # (B, T)


def loss_of(logits, ids):
    return cross_entropy(logits[:, :-1].mT, ids[:, 1:]).item()


sets = [stories(seed) for seed in SEEDS]
losses = {name: [loss_of(forward(x, o), x) for x in sets] for name, o in orders.items()}

# %% tags=["source-hidden"] deck="Reversed, or no blocks at all: which loss is lower?"
predict(
    "Which has the lower loss: the model with its blocks reversed, or without any blocks?",
    key=lambda: min(("reversed", "no blocks"), key=lambda name: sum(losses[name])),
    choices={
        "no blocks": "",
        "reversed": "All parts are there. But what did the last block read in training, and what does it read now?",
        "they are equal": "What a block adds depends on what it reads, so the sum depends on the order.",
    },
    because="The last block was trained to read what the others add. What it adds without them is worse than nothing.",
)

# %% tags=["source-hidden"] deck="Reversed, the blocks do more harm than good"
figures.orders(losses)

# %% tags=["source-hidden"] evidence="order-of-blocks" tried="held-out"
# Checked: in each set every other order is at least 0.8 nats worse, and reversed is worse than none.
for i in range(len(sets)):
    best, *others = (found[i] for found in losses.values())
    assert best + 0.8 < min(others) and others[-1] > others[-2] + 0.2

# %% [markdown]
# A block reads what the blocks before it have written, so the order matters. [[order-of-blocks]]

# %% [markdown] tags=["note"]
# **Say.** Here is what you have worked for since lesson 02. This model calls the functions that you wrote. Your code and the shipped weights together are a language model. Show the card in the notebook: it lists the parts that are yours.
#
# **Ask.** At the story: "How would you prove to a friend that your own functions ran?"
#
# **Usual answers.**
# - *Break one of them, and see the story change* (from the room): The best proof. Try it with `tied_logits`.
# - *The card says that nothing is mine* (from the room): Then no exercise was kept. The card names the lesson of each part.
#
# **Cut if short.** Nothing. Let a student type.
#
# **Tried.** The tokens of five beginnings, 60 words each: all are those of the shipped model.

# %% [markdown]
# ## 2. A language model of your own parts
# `build` makes a model that calls the functions that you kept since lesson 02, and the library's where you have kept none. It takes the shipped weights.

# %%
from tinylm_classroom import build, control, using

mine = build(model.config)
mine.load_state_dict(model.state_dict())
using(mine)

# %% [markdown]
# Your very first part, `continue_greedily` of lesson 00, takes the most probable word, appends it, and repeats. Now it writes with your own model:


# %% deck="To write: take the most probable word, append it, repeat"
from tinylm_classroom import kept_functions, yours

kept = kept_functions().get("continue_greedily")
writer = yours("continue_greedily", kept)  # without yours, the solution


@torch.no_grad()
def write(lm, beginning, n_words):
    # ESSENTIAL
    ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (1, T)
    return tokenizer.decode(writer(lm, ids, n_words)[0].tolist())  # (1, T + n_words)
    # END


# %% deck="Your own model writes"
from ipywidgets import Text


def continued(beginning="One cold evening, careful", n_words=40):
    # ESSENTIAL
    print(write(mine, beginning, n_words).strip())
    # END


control(continued, beginning=Text("One cold evening, careful"), n_words=(5, 60))

# %% tags=["source-hidden"] evidence="your-parts" tried="held-out"
# Checked: the logits of other stories, and a story word by word, are those of the shipped model.
begun = stories(77)[:4, :20]  # (B, T)
torch.testing.assert_close(mine(begun), model(begun), atol=1e-2, rtol=1e-2)
assert write(mine, "One", 36) == write(model, "One", 36)

# %% [markdown]
# If the parts in the card are yours, this was written by **your model**, with the logits of the shipped one. [[your-parts]] Type a beginning of your own, with words that StoryWorld has.

# %% [markdown] tags=["note"]
# **Say.** The same code with random weights writes nonsense. But we can say beforehand, to a tenth, what its loss is. Before you train, you should know this number: if the first loss is another one, something is wrong.
#
# **Usual answers.**
# - *Random guessing is ln V* (`the same as ln 345`): Equal probabilities are. Random logits are not equal: they are confident about random words.
# - *Some of its guesses are right by luck* (`lower than ln 345`): Some are. But a confident wrong guess costs more than a lucky one saves.
#
# **Cut if short.** The line to change.
#
# **Tried.** Five seeds, seven spreads from 0.01 to 0.2, and three kinds of first weights for the blocks (`zero_residual`, `gpt2`, `xavier`): 105 models. The mean of the five is within 0.02 of the formula up to s = 0.45, within 0.1 up to s = 0.9, and at s = 2.3 lower by 0.1 to 0.5. (There the largest of 345 logits decides, and V is too small for the mean of their exponentials.) Tied heads can be far from it: the width 1,024 with `zero_residual` 13.6 instead of 6.1. Without all blocks, or without their norms, the first loss is the same; without the final norm it is not (5.84 instead of 6.35).

# %% [markdown]
# ## 3. The first loss
# Where is what the model knows, in the code or in the weights? We give the same code random weights.

# %% tags=["source-hidden"] deck="Random weights: how large is the first loss?"
first = loss_of(TransformerLM(model.config)(sets[0]), sets[0])
predict(
    f"If each of the 345 tokens had the same probability, the loss would be ln 345 = {log(345):.2f}. How large is the loss of this model with random weights?",
    key=lambda: "higher than ln 345" if first > log(345) + 0.2 else "the same as ln 345",
    choices={
        "lower than ln 345": "Some random guesses are right. But what does a confident wrong guess cost?",
        "the same as ln 345": "That would be equal probabilities. Are random logits equal?",
        "higher than ln 345": "",
    },
    because="Random logits are confident about random words, and that costs more than no opinion.",
)

# %% rows=["S0-43", "S2-18", "S4-57"] deck="Random weights cost more than no opinion"
for seed in range(3):
    torch.manual_seed(seed)
    untrained = TransformerLM(model.config)
    loss = loss_of(untrained(sets[0]), sets[0])
    print(f"loss {loss:.2f}: {write(untrained, 'One', 6).strip()}")

# %% [markdown]
# It knows nothing: the knowledge is in the weights. But why is the loss half a nat higher? The final norm gives each vector the size 1 (its root mean square), so a logit is a sum of $C$ products with random weights. If these have the standard deviation $\sigma$, the logits have
#
# $$s = \sigma \sqrt{C} \qquad \text{and the first loss is about} \quad \ln V + \frac{s^2}{2}$$
#
# because the mean of $e^z$ over random logits $z$ is $e^{s^2/2}$, while the logit of the right token is 0 on average. We draw the head of untrained models with several $\sigma$:

# %%
SEEDS = range(5)
spreads = (0.01, 0.05, 0.09, 0.12, 0.16, 0.2)


@torch.no_grad()
def first_loss(std, seed):
    torch.manual_seed(seed)
    untrained = TransformerLM(model.config)
    untrained.lm_head.weight.normal_(std=std)  # (V, C)
    return loss_of(untrained(sets[0][:20]), sets[0][:20])


first_losses = {std: [first_loss(std, seed) for seed in SEEDS] for std in spreads}

# %% tags=["source-hidden"] deck="The wider the first logits, the higher the first loss"
figures.first_losses(first_losses, vocab_size=345, width=128)

# %% tags=["source-hidden"] evidence="untrained" tried="seeds"
# Checked: every model is near the formula, within a third of s, and above it there is none by more.
for std, found in first_losses.items():
    spread = std * 128**0.5
    assert max(abs(loss - log(345) - spread**2 / 2) for loss in found) < 0.35 * spread + 0.02
    assert std < 0.09 or min(found) > log(345)

# %% [markdown]
# The dots follow the formula, which is not fitted. [[untrained]] So you know the first loss before you train:

# %% deck="ln V + s²/2: the first loss, before you train"
V, C, std = 345, 128, 0.088  # try (50_257, 768, 0.02)
print(f"ln V = {log(V):.2f}, s = {std * C**0.5:.2f}")
print(f"first loss: about {log(V) + std**2 * C / 2:.2f}")

# %% [markdown]
# If a training run starts far from this number, the final norm is missing, or the first weights are not those that you think. (With a tied head, a vector may still resemble its own row; then that logit is not random.)

# %% [markdown] tags=["note"]
# **Say.** We can look into the stream before the model is ready. What we see there looks like a mistake about Mia. Looking is not enough, so we exchange vectors, and the picture then shows where the information is.
#
# **Usual answers.**
# - *The model first believes that Mia is a boy* (from the room): Then the reading for Carlos would have to be different. Is it?
# - *He, because its full stop now comes from a boy's text* (`He`): It would be, if the full stop already held the gender. But block 2 has attention of its own.
# - *Both are equally likely* (`both are equally likely`): Which of the two vectors, the name's or the full stop's, does block 2 use?
# - *The name decides* (`Mia`): It did in the first sentence. Is there another word now that shows the gender?
# - *Both words together* (`both are needed`): Then one of them alone would not change the answer.
#
# **Cut if short.** The view at the end; students do it at home.
#
# **Tried.** Three sentences like the first one, 40 names each: the name 0.98 to 1.00 at the three lower depths, the full stop 0.000 there and 1.00 at the end, every other cell below 0.005. All positions after the name exchanged together: below 0.0001 after blocks 0 and 1. With the name's own vector after block 1 made neutral (the mean of girls and boys, ten sentences), the trace is used: *She* 0.20 to 0.88 for girls and 0.00 to 0.28 for boys. So there is a weak second copy, which loses against the name. The early *He*: after block 0 from 0.90 to 0.92 on average for both genders, after block 1 0.74 to 0.79 for girls' names and 0.93 to 0.95 for boys'. A threshold would tell 87 to 90 of 100 pairs apart, so there is a trace. Without attention in block 2: *She* with 0.95 to 0.99 for boys' names. Three sentences with a pronoun: the pronoun 1.00 at the embedding and after block 0, *There* 1.00 after blocks 1 and 2, the name below 0.005 everywhere. With the other pronoun in the text, 40 of 40 names follow the pronoun.

# %% [markdown]
# ## 4. Where does the answer arise?
# The final norm and the head can read the stream at any depth, as the film does. This is the **logit lens** ([nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens)).
#
# After blocks 0 and 1 it read *He*, after block 2 *She*. Did the model take Mia for a boy at first? Then other names must give other readings there. StoryWorld has 40 names, and the first 20 take *She*.

# %%
from tinylm_classroom import capture
from tinylm_lib.storyworld import CLASSES

names = CLASSES["name"]  # 20 take She, then 20 take He
he, she = (tokenizer.encode(word)[0] for word in (" He", " She"))


def streams_of(texts):
    encoded = torch.tensor([tokenizer.encode("\n" + text) for text in texts])  # (40, T)
    outputs = capture(model, encoded).outputs
    parts = ("embed", "blocks.0", "blocks.1", "blocks.2")
    return [outputs[part] for part in parts]  # (40, T, C) each


@torch.no_grad()
def read(stream):
    return model.lm_head(model.final_norm(stream))[:, -1].softmax(-1)  # (40, V)


# %% deck="After block 0 the reading is the same for all 40 names"
streams = streams_of([kite.format(name) for name in names])
for depth in (1, 2, 3):
    said = read(streams[depth])[:, he]  # (40)
    girls, boys = said[:20].mean(), said[20:].mean()
    print(f"block {depth - 1}: He {girls:.2f} (girls), {boys:.2f} (boys)")

# %% tags=["source-hidden"] evidence="same-for-all-names" tried="held-out"
# Checked in two other sentences: after block 0 no difference, after block 1 still He for most girls.
plain = ["One cold morning, friendly {} came to Foxhollow.", "One foggy day, {} ran to Hillcrest."]
others = [streams_of([each.format(name) for name in names]) for each in plain]
for found in (streams, *others):
    after_0, after_1 = (read(found[depth])[:, he] for depth in (1, 2))  # (40) each
    assert after_0.min() > 0.85 and abs(after_0[:20].mean() - after_0[20:].mean()) < 0.02
    assert (after_1[:20] > 0.5).sum() > 14 and after_1[:20].mean() < after_1[20:].mean() - 0.1

# %% [markdown]
# After block 0 the reading says nothing about Mia: it is the same for all names. After block 1 there is a trace of the gender, but *He* still comes first for most girls' names. [[same-for-all-names]] So where is it?
#
# ### Exchange vectors
# In each text we replace the vector at *one* position and depth with that of a text whose name takes the other pronoun. The rest of the model continues from there.


# %% deck="Exchange one vector, and let the model continue"
@torch.no_grad()
def exchanged(streams, depth, at, his=he, hers=she):
    """The mean probability of the other pronoun."""
    # ESSENTIAL
    x = streams[depth].clone()  # (40, T, C)
    x[:, at] = x[:, at].roll(20, dims=0)  # girls' get boys' vectors
    for block in model.blocks[depth:]:
        x = block(x, torch.arange(x.shape[1]))  # (40, T, C)
    # END
    probs = read(x)  # (40, V)
    return torch.cat([probs[:20, his], probs[20:, hers]]).mean().item()


# %% tags=["source-hidden"] deck="After block 1 the full stop is exchanged. What does the model say?"
full_stop = exchanged(streams, 2, 11)
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

# %%
depth, at = 2, 11  # try (2, 6), (3, 11) and (0, 6)
print(f"the other pronoun: {exchanged(streams, depth, at):.2f}")
later = list(range(7, 12))
print(f"all after the name, after block 1: {exchanged(streams, 2, later):.3f}")

# %% tags=["source-hidden"] deck="After block 1 the gender is still at the name"
words = "(start) One sunny day , brave (name) had a red kite ."
grid = torch.tensor([[exchanged(streams, d, t) for t in range(12)] for d in range(4)])
figures.exchanges(grid, words, "After block 1 the gender is still at the name")

# %% tags=["source-hidden"] evidence="where-the-gender-is" tried="held-out"
# Checked in two other sentences: name, then full stop, and nothing at all later positions together.
for found, at_name in zip((streams, *others), (6, 6, 5), strict=True):
    T = found[0].shape[1]
    for depth_of in range(4):
        values = [exchanged(found, depth_of, position) for position in range(T)]
        here = values.pop(T - 1 if depth_of == 3 else at_name)
        assert here > 0.9 and max(values) < 0.1
    assert exchanged(found, 2, list(range(at_name + 1, T))) < 0.01

# %% [markdown]
# Until block 2 the model takes the gender from the name alone: all later positions together do not change the answer, in spite of the trace. Then it is at the full stop. [[where-the-gender-is]] This is **activation patching** ([Vig et al. 2020](https://arxiv.org/abs/2004.12265)): the lens shows what can be read, the exchange what the model uses. Does block 2 fetch it with its attention?

# %% deck="Without attention in block 2, every name is a She"
with torch.no_grad():
    without = streams[2] + b2.ffn(b2.ffn_norm(streams[2]))  # (40, T, C)
says_she = read(without)[:, she]  # (40)
print(f"no attention in block 2: {(says_she > 0.5).sum()} of 40 She")

# %% tags=["source-hidden"] evidence="attention-fetches" tried="held-out"
# Checked in two other sentences: without attention She, also for boys; without feed-forward both are right.
with torch.no_grad():
    for found in (streams, *others):
        no_ffn = read(found[2] + b2.attention(b2.attn_norm(found[2]), torch.arange(found[2].shape[1])))
        assert read(found[2] + b2.ffn(b2.ffn_norm(found[2])))[20:, she].mean() > 0.9
        assert no_ffn[:20, she].mean() > 0.8 and no_ffn[20:, he].mean() > 0.9

# %% [markdown]
# Yes. Without it the model says *She* for all 40 names. [[attention-fetches]] And that although the lens read *He* here: an early reading is not what the model is going to say, because the head was trained for the end of the stream.
#
# ### A second clue
# > One sunny day, brave Mia came to Foxhollow. She had a gray cup. There \_\_\_
#
# Now two words show the gender. From which of them does the model take it?

# %%
cup = "One sunny day, brave {} came to Foxhollow. {} had a gray cup. There"
both = list(zip(names, ["She"] * 20 + ["He"] * 20, strict=True))
cup_streams = streams_of([cup.format(*each) for each in both])
small = tuple(tokenizer.encode(word)[0] for word in (" he", " she"))

# %% tags=["source-hidden"] deck="Mia, or She: which word decides now?"
alone = {"Mia": exchanged(cup_streams, 0, 6, *small), "She": exchanged(cup_streams, 0, 11, *small)}
predict(
    "*Mia came to Foxhollow. She had a gray cup. There* ... We exchange one word for that of a boy's text. For which word does the model then say *he*?",
    key=lambda: max(alone, key=alone.get) if max(alone.values()) > 0.9 else "both are needed",
    choices={
        "Mia": "It decided in the first sentence. But which word is nearer now, and shows the gender as well?",
        "She": "",
        "both are needed": "Then one of them alone would not change the answer.",
    },
    because="The pronoun alone decides. The model no longer looks at the name for this.",
)

# %% tags=["source-hidden"] deck="Now the gender is at the pronoun, no longer at the name"
cup_words = "(start) One sunny day , brave (name) came to Foxhollow . (pronoun) had a gray cup . There"
cup_grid = torch.tensor([[exchanged(cup_streams, d, t, *small) for t in range(18)] for d in range(4)])
figures.exchanges(cup_grid, cup_words, "Now the gender is at the pronoun, no longer at the name")

# %% tags=["source-hidden"] evidence="another-sentence" tried="held-out"
# Checked in two other texts: the pronoun until block 0, then There; the name nowhere.
longer = [
    "One cold morning, friendly {} ran to Hillcrest. {} had a red kite. There",
    "One sunny morning, {} had a red kite. {} ran to Eastbridge. There",
]
for each, at_name in zip((cup, *longer), (6, 6, 5), strict=True):
    found = streams_of([each.format(*pair_of) for pair_of in both])
    last = found[0].shape[1] - 1
    for depth_of in range(4):
        assert exchanged(found, depth_of, at_name, *small) < 0.05
        assert exchanged(found, depth_of, 11 if depth_of < 2 else last, *small) > 0.9

# %% [markdown]
# The model reads the gender at the pronoun, and already block 1 brings it to *There*. [[another-sentence]] Where an answer is depends on the sentence. **Your task:** exchange *Mia* for *Omar*, then *She* for *He*. Which of the two changes the answer?

# %% deck="Task: Mia or She, which of the two changes the answer?"
from tinylm_classroom import what_if

what_if(model, tokenizer, "\n" + cup.format("Mia", "She"))

# %% [markdown] tags=["note"]
# **Say.** *A model of 8 billion parameters*: where are they? We count by hand, compare with a built model, and then with models whose size was announced.
#
# **Usual answers.**
# - *Twice as many* (`about twice as many`): A matrix has two sides. How many of them are doubled?
# - *Eight times as many* (`about 8 times as many`): Which of the matrices has three sides?
# - *Rotary has a table, so it has parameters* (`every position is a table`): The table is computed. Does an optimizer change it?
# - *The head is counted although it is tied* (`tied counts twice`): One tensor is counted once.
# - *One bias for each block* (`no second bias`): One for each matrix, as long as its outputs.
# - *All four matrices are C by C* (`square maps`): Only with as many key-value heads as heads.
# - *The final norm* (`no final norm`): Usually forgotten. Compare with a built model of one layer.
#
# **Cut if short.** The announced sizes.
#
# **Tried.** Exact: counts have no seed. The count by hand is that of the built model for four pairs of widths and depths. Doubled width: 3.97 to 4.00 times as many in a block of seven families, with widths of 64, 256 and 1,024. Feed-forwards hold the most in 11 of 12 presets; the exception is `gpt` itself, whose 10,000 tokens are many for its width.

# %% [markdown]
# ## 5. How many parameters?
# "A model of 8 billion parameters": where are they? We count the preset `gpt`, which is close to a small GPT-2, with V tokens, width C, inner width F and L layers.

# %% rows=["S2-9", "S4-32", "S1-26", "S4-30", "S4-33"] evidence="count-by-hand" tried="exact" deck="Count to the last parameter"
from tinylm_lib import preset


def n_parameters(module):
    return sum(p.numel() for p in module.parameters())


n_tokens, width, inner, layers = 10_000, 256, 1024, 4
# ESSENTIAL
attention = 4 * width * width  # query, key, value, output
ffn = 2 * width * inner + inner + width  # two matrices and their biases
norms = 2 * 2 * width  # two LayerNorms, each with a gain and an offset
rest = n_tokens * width + 512 * width + 2 * width  # tables, final norm
by_hand = rest + layers * (attention + ffn + norms)
# END
gpt = TransformerLM(preset("gpt"))
assert n_parameters(gpt) == by_hand
print(f"by hand {by_hand:,}, built {n_parameters(gpt):,}")

# %% [markdown]
# The count and the built model agree to the last parameter. [[count-by-hand]] If you forget one bias, nobody notices without this comparison.

# %% tags=["source-hidden"] deck="Twice the width: how many parameters has a block?"
with torch.device("meta"):
    narrow = n_parameters(TransformerLM(preset("cs336")).blocks[0])
    wide = n_parameters(TransformerLM(preset("cs336", d_model=2 * 512, d_ff=2 * 1365)).blocks[0])
predict(
    "We double the width C, and F and the width of the heads with it. What happens to the parameters of a block?",
    key=lambda: "about 4 times as many" if 3.9 < wide / narrow < 4.1 else "something else",
    choices={
        "about twice as many": "A matrix grows in both directions.",
        "about 4 times as many": "",
        "about 8 times as many": "A matrix has two sides, not three.",
    },
    because="Both sides of every matrix are doubled. Twice as many layers would be twice as many blocks.",
)

# %% tags=["source-hidden"] deck="The feed-forwards hold the largest part"
with torch.device("meta"):  # shapes without contents
    examined = {"shipped": TransformerLM(model.config), "GPT-2 small": TransformerLM(preset("gpt2", "small"))}
    examined |= {"GPT-2 XL": TransformerLM(preset("gpt2", "xl")), "Llama 3 8B": TransformerLM(preset("llama", "3-8b"))}
figures.where_parameters(examined)

# %% tags=["source-hidden"] evidence="feed-forwards-hold-most" tried="exact" rows=["S0-40"]
# Checked: the feed-forwards are the largest part, a formula for the Llama kind, and 4 times as many.
for lm in examined.values():
    kinds = (".ffn.", ".attention.", "embed.", "lm_head.")
    held = [sum(p.numel() for name, p in lm.named_parameters() if kind in name) for kind in kinds]
    assert held[0] > max(held[1], sum(held[2:])) and 3.9 < wide / narrow < 4.1
llama_kind = 2 * 10_000 * 512 + 6 * (4 * 512**2 + 3 * 512 * 1365 + 2 * 512) + 512
assert n_parameters(TransformerLM(preset("cs336"))) == llama_kind

# %% [markdown]
# Attention is the famous part, but the feed-forwards hold the most parameters. [[feed-forwards-hold-most]] These models were counted on PyTorch's *meta* device, where a tensor has a shape but no contents. Training in fp32 keeps 16 bytes for each parameter: its value, its gradient, and two moments of AdamW (lesson 11). The **activations** come on top: what the backward pass needs of the forward pass.

# %% rows=["S2-17"] deck="Announced, counted, and the memory to train them"
announced = {("gpt2", "small"): 117, ("gpt2", "medium"): 345, ("gpt2", "large"): 762}
announced |= {("gpt2", "xl"): 1542, ("llama", "2-7b"): 7000, ("llama", "3-8b"): 8000}
for (family, size), claim in announced.items():
    # ESSENTIAL
    with torch.device("meta"):
        count = n_parameters(TransformerLM(preset(family, size))) / 1e6
    memory = f"{16 * count / 1e3:.0f} GB to train"
    print(f"{family} {size}: {claim} million announced, {count:.0f} counted, {memory}")
    # END

# %% [markdown]
# The four sizes of GPT-2's paper ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)) are too small; its authors corrected them later. If you count, you need not take anyone's word.
#
# ### Your turn: count any model
# Published families are one class and a few choices, a **config**. Count the parameters of any config without building the model. (The check prints only what differs from the defaults: RMSNorm, rotary positions, SwiGLU, no biases, no `qk_norm`, a tied head.) The sizes are `vocab_size`, `max_seq_len`, `d_model`, `n_layers`, `n_heads`, `n_kv_heads`, `d_head` and `d_ff`.


# %% tags=["exercise"] name="count_parameters" minutes=16 difficulty=3 deck="Your turn: count any model"
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

# %% slide="skip"
hint("count_parameters")

# %% [markdown] tags=["solution"]
# Go through the model once and write down each matrix as (out) times (in); a bias is as long as the matrix's outputs. Common mistakes: the output bias of the feed-forward, LayerNorm's offset and the final norm are forgotten; a tied head is counted twice; positions that are computed (rotary, sinusoidal) are counted as if they were learned.

# %% [markdown]
# The library's class is the loop of section 1 with checks in front. Skip its cache (lesson 13) and its padding.

# %% slide="skip"
from tinylm_classroom import show

show(TransformerLM)

# %% [markdown] tags=["note"]
# **Say.** You have a language model of your own parts, you know its first loss, and you have followed one answer through it.
#
# **Ask.** At the door: "Where in the model is Mia's gender, until the third block fetches it?"
#
# **Usual answers.**
# - *In the full stop, because the answer is read there* (from the room): When was it there? Which exchange changed the answer?
# - *In the weights* (from the room): The weights know which names take *She*. Where is it in this text?
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="A model is a loop, and an answer arises at a position and a depth"
# ## What you have now
# - A language model is a loop: an embedding, blocks that add to a stream, a final norm and a head. [[forward-pass]]
# - The order of these trained blocks matters, although they only add. [[order-of-blocks]]
# - Your own parts, with the shipped weights, give the shipped model's logits. [[your-parts]]
# - An untrained model with a head of its own has a first loss of about $\ln V + s^2/2$. [[untrained]]
# - An early reading can be wrong: after block 0 it is *He* for every name. [[same-for-all-names]]
# - After *Mia had a red kite.* the model takes the gender from the name until the last block. [[where-the-gender-is]]
# - In that text, the attention of block 2 fetches it. [[attention-fetches]]
# - If a pronoun follows, the gender is at the pronoun instead. [[another-sentence]]
# - Your count agrees with the built model to the last parameter. [[count-by-hand]]
# - In four models of very different size the feed-forwards hold the most parameters. [[feed-forwards-hold-most]]
#
# *More*: [10 Choices](more/10_choices.ipynb) has the film of another sentence, tied heads, first weights, and counts that go wrong. Next you train a model yourself: lesson 11.

# %% [markdown]
# ## Sources
# - Sizes: Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), section 3.
# - Reading the stream early: nostalgebraist 2020, [*interpreting GPT: the logit lens*](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens). Exchanging vectors: Vig et al. 2020, [*Investigating Gender Bias in Language Models Using Causal Mediation Analysis*](https://arxiv.org/abs/2004.12265).
# - Tying: Press and Wolf 2017, [*Using the Output Embedding to Improve Language Models*](https://arxiv.org/abs/1608.05859).
