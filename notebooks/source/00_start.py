# %% [markdown] slide="slide" minutes=2
# # 00 Start
# **Can a program learn to write by doing nothing but guess what comes next?**
#
# *Needs* Python and what a logarithm is. *Builds* nothing yet: today you see the whole thing work, then you take it apart. *Runs* in about 30 s on
# two cores. *Teaches* in 30 minutes, plus 10 of exercises.
#
# In this series you build a language model, every part of it, until you can read each line of a small library called `tinylm_lib` and say
# why it is there. Run a cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>. Nothing here can break anything: this is your own copy.

# %%
import math
from collections import Counter

import torch

from tinylm_lib import TrainConfig, TransformerLM, evaluate, generate, preset, train
from tinylm_lib.classroom import doctor, figures, trace
from tinylm_lib.classroom.measured import measured
from tinylm_lib.data import RandomWindows, every_window, load_corpus, split
from tinylm_lib.optim import build_optimizer

_ = torch.manual_seed(0)

# %% [markdown] slide="slide" minutes=3
# ## 1. Is this machine ready?
# The doctor checks the usual problems. A number between ⟨angle brackets⟩ was measured on the machine
# that ran this page; yours will differ.

# %%
print(doctor.report(doctor.checkup()))

# %% [markdown]
# Every line should say *ok*. Where one says *mend*, the arrow below it says what to do. In a terminal, `python -m tinylm_lib doctor`
# tells you the same.

# %% [markdown] tags=["note"]
# Let everyone run the doctor before you go on: a broken installation found now costs a minute, in section 3 it costs the lesson.
# Common finds: a Python from the system instead of the project's, and a laptop in power-saving mode (slow matrix product).

# %% [markdown] slide="slide" minutes=6
# ## 2. Guess the next letter
# We need a text. Every Python carries one: the help pages of the language, mostly plain English.

# %%
text = load_corpus("pydoc")
print("\n\n".join(text.split("\n\n")[:2]))
print("\nand so on,", measured(len(text), "characters in all", 100_000, 2_000_000))

# %% [markdown]
# > **Predict.** Somebody has typed `the functio`. Which letter comes next? And after ` the`? Say how sure you are, in percent, before you run the next cell.


# %%
def what_follows(beginning: str) -> list[tuple[str, int]]:
    found = text.split(beginning)[1:]
    return Counter(rest[:1] for rest in found).most_common(3)


# %%
for beginning in ("the functio", " the"):
    total = text.count(beginning)
    print(repr(beginning), "->", ", ".join(f"{c!r} {n / total:.0%}" for c, n in what_follows(beginning)))

# %% [markdown]
# Counting answers it. After `the functio` there is one answer, *n*. After ` the` there are several: a blank or the end of a line, since the word
# is often complete, else the *n* of *then* and others. So the answer is not one letter. It is a **share for each possible letter**.
#
# Why not count everything, then? Because long beginnings are new.

# %%
half = len(text) // 2
known, fresh = text[:half], text[half:]
places = range(0, len(fresh) - 40, 997)
for length in (2, 5, 10, 20, 40):
    seen = sum(fresh[i : i + length] in known for i in places)
    print(f"{length:>2} letters: {seen / len(places):.0%} of the beginnings in one half occur in the other")

# %% [markdown]
# Two letters have always been seen before. The longer the beginning, the more often it is new (what is left at the end are passages that the help
# pages print more than once), and yet you would have no trouble to go on. A table of counts cannot. Something has to notice that a new sentence is
# *like* an old one. That something is what we build.

# %% [markdown] slide="slide" minutes=9
# ## 3. The same, learned
# Here is our model. For now it is a box: letters in, and for every position a score for each letter that could come next.
# To the model a letter is a number from 0 to 255, a *byte*. (An é takes two of them; a *token* is whatever a model reads one at a time, here a byte.)

# %%
_ = torch.manual_seed(0)
model = TransformerLM(preset("modern", n_layers=2, max_seq_len=64))
tokens = torch.tensor(list(text.encode("utf-8")))
training, validation = split(tokens)
print(tokens[:12].tolist(), "is", repr(text[:12]))

# %% [markdown]
# We score a guess by how surprised the model is: if it gave the letter that really came the share $p$, that costs $-\ln p$, counted in
# *nats*. Share 1 costs nothing, share 1/2 costs $\ln 2$, and a tiny share costs a lot.
#
# > **Predict.** A model that knows nothing gives each of the 256 bytes the same share. What does a letter cost it?


# %%
def cost(model: TransformerLM) -> float:
    return evaluate(model, every_window(validation[:8000], 32, 64)).nats_per_token


# %%
knows_nothing = math.log(256)
print(f"knows nothing: {knows_nothing:.1f} nats per letter; our model before training: {cost(model):.1f}")

# %% [markdown]
# The same share for all means $-\ln(1/256) = \ln 256$. Our model starts close to there: its weights are random, and so are its opinions. We
# measure on the last tenth of the text, the *validation* part, and keep that hidden while it learns.
#
# Two more marks to measure against. If it only learned **how often** each letter occurs, it would get to the first. If it also looked at
# the **one letter before**, to the second.


# %%
def cost_of_counting(pairs: Counter) -> float:
    before = Counter()
    for (first, _), n in pairs.items():
        before[first] += n
    return sum(n * -math.log(n / before[first]) for (first, _), n in pairs.items()) / pairs.total()


# %%
letters = cost_of_counting(Counter(("", b) for b in tokens.tolist()))
pairs = cost_of_counting(Counter(zip(tokens.tolist(), tokens.tolist()[1:], strict=False)))
print(f"letters alone {letters:.1f}, one letter back {pairs:.1f} nats per letter")

# %% [markdown]
# Now it learns. Four hundred times: read 16 pieces of the text, guess every next letter, and move each weight a little in the direction
# that would have made the guesses better. Lesson 11 builds this loop; here we only watch.

# %%
recipe = TrainConfig(total_steps=400, batch_size=16, seq_len=64, precision="fp32")
batches = RandomWindows(training, recipe.batch_size, recipe.seq_len, recipe.seed)
optimizer = build_optimizer(model, recipe)
losses = [step.loss.item() for step in train(model, optimizer, batches, recipe)]

# %%
after = cost(model)
print("after training:", measured(after, "nats per letter", 0.4, 4.0))
print("as unsure as a fair choice among", measured(math.exp(after), "letters", 1.5, 50))
print(f"it has read its text {400 * 16 * 64 / len(training):.1f} times")
assert after < pairs < letters < knows_nothing

# %%
smooth = [sum(losses[i : i + 20]) / 20 for i in range(0, 400, 20)]
steps = list(range(20, 401, 20))
figures.loss_curve(
    {"our model": (steps, smooth)},
    {"knows nothing": knows_nothing, "letters alone": letters, "one letter back": pairs},
    caption="In the first hundred steps it passes both ways of counting, and goes on falling.",
    title="It learns to guess",
    unit="nats per letter",
)

# %% [markdown]
# To get below a dotted line it must know at least as much as that counter knows, in some form: how common each letter is, then which follow
# which, then more than any pair can tell. Nobody told it that there are words. (The curve is the cost on the text it learns from, a little lower
# than on the hidden part.)

# %% [markdown] tags=["note"]
# While it trains (15 to 30 s), ask the room: which of the three lines will it pass, and when? Most people guess that it stops at the pairs.
# The cost after training is measured on the last tenth of the text. The help pages repeat some passages, so a little of it was seen before.

# %% [markdown] slide="slide" minutes=5
# ## 4. Ask it to write
# A guess becomes writing when it is repeated: draw one letter from the shares, put it behind the text,
# guess again. A *temperature* below 1 keeps closer to the likely letters.


# %%
def write(model: TransformerLM, beginning: str, length: int, temperature: float) -> str:
    ids = torch.tensor([list(beginning.encode("utf-8"))])
    source = torch.Generator().manual_seed(2)
    out = generate(model, ids, length, temperature=temperature, generator=source)
    return bytes(out[0].tolist()).decode("utf-8", errors="replace")


# %%
_ = torch.manual_seed(0)
untrained = TransformerLM(model.config)
print(repr(write(untrained, "The ", 60, temperature=1.0)))

# %% [markdown]
# That was the same model before it had seen a single letter. And now ours:

# %% tags=["nbval-ignore-output"]
print(write(model, "The ", 300, temperature=0.6))

# %% [markdown]
# Read it aloud. Mostly real words, something of the tone of a manual, and no sense at all: it has been through one text about once, with
# a memory of 64 letters. Bigger models are this, with more of everything.

# %% [markdown] slide="slide" minutes=3
# ## 5. The whole model on one page
# This is everything that just happened between the letters and the scores, each part with the shape of what it really returned for two
# texts of twelve letters. One colour is one axis, here and in every lesson.

# %%
ids = validation[:24].view(2, 12)
assert model(ids).shape == (2, 12, 256)
trace.trace_model(model, ids)

# %% [markdown]
# Look at the shapes only: nearly everything is $(B, T, C)$, for every text and every position one vector (a list of numbers) of width $C$.
# Letters go in at the top as numbers, become vectors, are changed a little by each *block*, and leave as $V$ scores, which lesson 03 turns into
# shares. Every kind of part gets its lesson.
#
# > **Predict.** Where are most of a block's weights: in the attention or in the feed-forward (`ffn`)? The right column knows.

# %%
block = model.blocks[0]
count = {name: sum(p.numel() for p in part.parameters()) for name, part in block.named_children()}
print(
    "most of a block:",
    max(count, key=count.get),
    f"with {max(count.values()) / sum(count.values()):.0%} of its weights",
)

# %% [markdown] slide="slide"
# ## 6. Your turn
# Exercises look like this one: a function with a missing body. Fill it in, run the cell, then run the check below it. Until you do, the
# check says *not attempted yet* and the lesson still runs to its end, so you can come back later.
#
# **The most likely letter, again and again.** In section 4 letters were drawn at random. Write the simplest writer of all: it always takes
# the letter with the highest score. `model(ids)` takes ids of shape (1, T) and returns scores (1, T, V); the row for the *last* position
# belongs to the next letter. `scores.argmax(-1)` finds the highest, `torch.cat((a, b), dim=1)` puts b behind a.
# Both must have two axes: `scores[:, -1:]` keeps the axis of positions, `scores[:, -1]` drops it. Our model can see at most 64
# letters at once; the check stays below that.


# %% tags=["exercise"] name="continue_greedily" minutes=10 difficulty=2
def continue_greedily(model, ids, n):
    """ids (1, T). Returns (1, T + n): the ids and n more, each the most likely next one."""
    # SOLUTION
    for _ in range(n):
        scores = model(ids)  # (1, T, V)
        next_id = scores[:, -1].argmax(-1, keepdim=True)  # (1, 1)
        ids = torch.cat((ids, next_id), dim=1)  # (1, T + 1)
    return ids
    # END


# %% tags=["check"]
prompt = torch.tensor([list(b"The ")])
try:
    mine = continue_greedily(model, prompt, 30)
except NotImplementedError:
    print("continue_greedily: not attempted yet")
else:
    assert mine is not None, "your function gives nothing back: is there a return at the end?"
    assert mine.shape == (1, 34), f"30 letters behind 4 make (1, 34), yours is {tuple(mine.shape)}"
    assert torch.equal(mine[:, :4], prompt), "the beginning must stay as it was"
    wanted = generate(model, prompt, 30, temperature=0)
    wrong = (mine != wanted).nonzero()
    assert len(wrong) == 0, (
        f"letter {wrong[0, 1] - 3} differs: the highest at the last position? does the model see all letters so far?"
    )
    print("continue_greedily: right, letter by letter the same as the library's generate(..., temperature=0)")

# %% [markdown] tags=["solution"]
# Three lines in a loop: score, take the highest at the *last* position, append. The two usual slips are `scores[:, 0]` (the first
# position: the text then never changes its mind) and forgetting `keepdim=True`, which leaves a shape of (1,) that `torch.cat` refuses.
# The library does the same thing, only it remembers the earlier positions instead of computing them again (lesson 13).

# %% [markdown] slide="slide" minutes=2
# ## 7. Break it
# Always taking the best letter sounds like the best way to write.
#
# > **Predict.** We let the model write 600 letters, once greedily (always the most likely one) and once drawing from the shares. Then we look at
# > every stretch of 20 letters and count those that occur more than once. Which text repeats itself more?


# %%
def repeats(written: str, size: int = 20) -> float:
    pieces = [written[i : i + size] for i in range(len(written) - size)]
    return sum(pieces.count(piece) > 1 for piece in pieces) / len(pieces)


# %%
greedy, drawn = (repeats(write(model, "The ", 600, temperature)) for temperature in (0.0, 1.0))
assert greedy > 0.5 > 0.1 > drawn
print("greedy:", measured(100 * greedy, "% of it repeated", 10, 100))
print("drawn: ", measured(100 * drawn, "% of it repeated", 0, 10))

# %% [markdown]
# The greedy text goes round in circles. The most likely letter leads to the most likely word, which
# leads back to where it was. Chance is part of writing; lesson 12 is about how much of it.

# %% [markdown] slide="slide"
# ## How the series works
# | lesson | you build |
# |---|---|
# | 01 tokens, 02 linear, 03 softmax, 04 normalization | the small parts |
# | 05 attention, 06 positions, 07 heads, 08 feedforward, 09 block, 10 model | the model of section 5, row by row |
# | 11 training, 12 sampling, 13 cache, 14 speed, 15 scale | what makes it learn, write, and do both fast |
#
# Each lesson asks one question, answers it at a size that you can check by hand, lets you write the general form, and then shows that the
# library's version is equal to yours. Later lessons import it. You work on copies in the folder `work/`: nothing you have changed is ever overwritten,
# and when a lesson has been improved, the new one is put beside yours.
#
# ## What you have now
# - A model is a function from a text to a share for every possible next token.
# - Its cost is $-\ln p$ of what really came, in nats; knowing nothing costs $\ln V$.
# - Writing is guessing in a loop.
#
# ## Sources
# The text: the help topics of CPython. Guessing letters as a measure of a language: Shannon 1951, *Prediction and Entropy of Printed English*.
# The model: Vaswani et al. 2017, *Attention Is All You Need*, with the changes that lessons 04 to 08 explain.
