# %% [markdown] slide="slide"
# # 20 Yours
# **What have you built, and what can it learn from a text of yours?**
#
# *Needs* lessons 10, 11, 12 and 18. *Builds* a model of your own parts, its page `my_model.html` and its `report.html`. *Runs* in about 35 s on two cores.
# *Teaches* in about 35 minutes.

# %% [markdown] tags=["note"]
# The lesson has one idea: a model is finished when somebody else can check it. Each part is compared with the library's, the text is held out before anything is learned, and the report says what was measured and what came from the library.
# All sections fit into the shortest plan. Section 7, the self-assessment, is done at home; its ten questions are in the notebook and not on the slides.
# If you have only ten minutes, show the picture of section 1 and the report of section 5.
# Before the class: ask everyone to bring a text of 20 KB or more as a UTF-8 file. Run the notebook once with a file of yours, and expect other numbers than those that the text names: they belong to StoryWorld.

# %% slide="skip"
TEXT = "storyworld"  # or "pydoc", the documentation of Python, or the path of a text file of yours

# %% slide="skip"
import itertools
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from matplotlib import pyplot as plt

from tinylm_classroom import figures, learned, own_text, predict, show_text

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** Before we train anything, we say what to expect. The size of the text decides more than anything else that you can choose today.
#
# **Draw.** A page, with its last tenth shaded: held out, before the tokenizer sees it.
#
# **Ask.** Before the prediction: "20 KB are about ten pages. How often does the model read each of them?" (Some forty times.)
#
# **Usual answers.**
# - *Nearly as low as its training loss* (`nearly as low as its training loss`): The stories are new. What has the model learned instead of the language?
# - *Half way* (`between the floor and ln V`): A model that knows nothing says so: each token gets the same probability. What does a model say that knows ten pages by heart?
#
# **Cut if short.** The list of refused texts.

# %% [markdown] slide="slide"
# ## 1. Choose a text
# The first cell has one variable, `TEXT`. `own_text` reads the text, holds out its last tenth, and makes a tokenizer for it.

# %%
text = own_text(TEXT)
print(f"{text.name}: {text.n_bytes / 1000:,.0f} KB, of which {text.held_out_bytes / 1000:,.0f} KB are held out")
print(f"{len(text.training):,} tokens to train on, from a vocabulary of {text.tokenizer.vocab_size}")
print(f"{text.repeated:.0%} of the held-out text occurs in the training text as it is")

# %% [markdown] slide="say"
# StoryWorld has a token for each of its words. For every other text, byte-level BPE is learned (lesson 01), from the training text only. Its first tokens are all bytes, so no character is ever unknown.

# %% [markdown] slide="subslide"
# ### What to expect of each size
# We trained one small model on texts of five sizes, three texts of each, with the command in the first line. Every training has 300 updates.

# %% slide="skip"
RECORDED = """
# python tools/yours.py
# corpus bytes training held-out-end held-out-lowest at-update bits-per-byte from to
storyworld 20000 0.03 6.53 2.89 23 0.90 0.88 0.94
storyworld 50000 0.04 4.07 2.02 37 0.62 0.61 0.64
storyworld 100000 0.21 2.32 1.59 83 0.50 0.48 0.51
storyworld 200000 0.80 1.37 1.34 200 0.42 0.41 0.43
storyworld 400000 1.01 1.12 1.12 300 0.35 0.33 0.36
pydoc 20000 0.36 8.17 4.66 23 3.36 3.07 3.56
pydoc 50000 1.70 5.06 4.24 45 3.10 2.75 3.51
pydoc 100000 2.48 3.56 3.56 300 2.28 1.95 2.53
pydoc 200000 2.92 3.33 3.33 300 2.19 2.03 2.44
pydoc 400000 3.06 3.33 3.33 300 2.15 2.06 2.33
"""


# %% slide="skip"
def recorded(corpus: str) -> dict[int, list[float]]:
    """The numbers of a corpus by the size of its text in bytes: mean losses in nats per token, then bits per byte."""
    rows = [line.split() for line in RECORDED.splitlines() if line.startswith(corpus)]
    return {int(n_bytes): [float(x) for x in rest] for _, n_bytes, *rest in rows}


expect = {corpus: recorded(corpus) for corpus in ("storyworld", "pydoc")}
FLOOR, LN_V = 0.66, {"storyworld": math.log(345), "pydoc": math.log(512)}

# %% tags=["source-hidden"]
training, at_end, lowest, at_update, *_ = expect["storyworld"][20_000]
predict(
    f"20 KB of StoryWorld, 300 updates: the training loss ends at {training}. How high is the loss on held-out stories then?",
    key=lambda: "higher than that of a model that knows nothing" if at_end > LN_V["storyworld"] else "lower",
    choices={
        "nearly as low as its training loss": "These stories are new. What has the model learned by heart?",
        "between the floor and ln V": "A model that knows nothing is never certain. This one is, and it is wrong.",
        "higher than that of a model that knows nothing": "",
    },
    because=f"It is {at_end}, and ln 345 is {math.log(345):.2f}: the model is certain of what it knows by heart, and new stories are different.",
)


# %% tags=["source-hidden"] slide="skip"
def draw_sizes(ax, corpus: str) -> None:
    """The losses at the end and the lowest held-out loss, over the size of the text."""
    sizes = [n / 1000 for n in expect[corpus]]
    named = {"training, at the end": (0, "o"), "held out, at the end": (1, "s"), "held out, lowest": (2, "D")}
    for name, (column, mark) in named.items():
        ax.semilogx(sizes, [row[column] for row in expect[corpus].values()], marker=mark, label=name)
    ax.axhline(LN_V[corpus], color=figures.QUIET, linewidth=1.6, linestyle=(0, (1, 1.5)))
    ax.text(sizes[-1], LN_V[corpus] + 0.12, "ln V: knows nothing", color=figures.QUIET, ha="right")
    ax.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
    ax.set_xticks([], minor=True)
    ax.set(title=corpus, xlabel="KB of text", ylabel="loss (nats per token)", ylim=(0, 8.6))


# %% tags=["signature", "source-hidden"] slide="subslide"
fig, (left, right) = plt.subplots(1, 2, figsize=(11.2, 5.2), layout="constrained")
draw_sizes(left, "storyworld")
draw_sizes(right, "pydoc")
left.axhline(FLOOR, color=figures.INK, linewidth=1.6, linestyle=(0, (1, 1.5)))
left.text(20, FLOOR + 0.12, "floor")
fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
figures.display(
    fig,
    alt="Two line charts of losses over the size of the text, from 20 to 400 KB. For small texts the training loss is near 0 and the held-out loss at the end is above 6; with more text the two meet. The lowest held-out loss falls with the size.",
    caption="Left the stories, right the documentation of Python. Where the blue and the orange line are far apart, the model knows its text by heart. The green line is what early stopping keeps.",
    table={
        "text": [f"{corpus} {n // 1000} KB" for corpus in expect for n in expect[corpus]],
        "training": [f"{row[0]:.2f}" for rows in expect.values() for row in rows.values()],
        "held out": [f"{row[1]:.2f}" for rows in expect.values() for row in rows.values()],
        "lowest": [f"{row[2]:.2f}" for rows in expect.values() for row in rows.values()],
        "bits per byte": [f"{row[4]:.2f}" for rows in expect.values() for row in rows.values()],
    },
)

# %% slide="skip" evidence="sizes"
for corpus, rows in expect.items():
    assert rows[20_000][1] > LN_V[corpus] and rows[20_000][0] < 0.5
    assert rows[20_000][5] > rows[100_000][6]  # the best of the small texts is above the worst of the larger ones
stories_in_bits = [row[5:] for row in expect["storyworld"].values()]
assert all(small[0] > large[1] for small, large in itertools.pairwise(stories_in_bits))

# %% [markdown]
# With 20 KB the model learns its text by heart. At the end it is worse on new text than a model that knows nothing, and only early stopping saves it. With 100 KB the lowest held-out loss is clearly lower, in bits per byte, and for the stories each larger text is better still. [[sizes]] For the documentation, three pieces of one size differ more than 200 and 400 KB do. A loss in nats per token depends on the tokenizer, so compare the two corpora in bits per byte only (lesson 11).

# %% [markdown] slide="subslide"
# ### Texts that are refused
# What if a file is missing, too short, or not text? Each of these is tried:

# %% slide="skip"
place = TemporaryDirectory()
here = Path(place.name)
(here / "empty.txt").write_text("\n")
(here / "short.txt").write_text("word " * 600)
(here / "latin.txt").write_bytes("Tout le monde était là. ".encode("latin-1") * 1000)
bad = ["no_such_file.txt", "empty.txt", "short.txt", "latin.txt", "."]

# %% evidence="refused" slide="subslide"
refusals = []
for name in bad:
    try:
        own_text(here / name)
    except (OSError, ValueError) as error:
        refusals.append(str(error).replace(str(here), "my"))
        print(f"- {refusals[-1]}")
assert len(refusals) == len(bad)

# %% [markdown]
# All five are refused, each with what to do. [[refused]] What about a character that the training text does not have?

# %% evidence="no-unknown-character"
few = own_text("pydoc", n_bytes=20_000)
for characters in ("naïve 日本語 🙂", "\t\r\n"):
    ids = few.tokenizer.encode(characters)
    print(f"{characters!r}: {len(ids)} tokens, and back {few.tokenizer.decode(ids)!r}")
    assert few.tokenizer.decode(ids) == characters

# %% [markdown]
# The first tokens of byte-level BPE are all bytes, so it can write every character. [[no-unknown-character]] StoryWorld's tokenizer has words only, so it refuses a beginning with another word:

# %% evidence="unknown-word"
stories = own_text("storyworld", n_bytes=20_000)
try:
    stories.tokenizer.encode("\nOne rainy day, brave Zoe")
    raise AssertionError("an unknown word was accepted")
except ValueError as error:
    print(error)

# %% [markdown]
# The error names the word and its position, and says what to do. Known words that begin like it are listed, if there are any. [[unknown-word]]

# %% [markdown] tags=["note"]
# **Say.** You believe that your softmax is right, because a check said so. Now each part must work in the place where it is called, with the others around it, forwards, backwards and with the cache.
#
# **Draw.** The model of lesson 10 as a line with its detours. Colour one part: it is exchanged, everything else stays.
#
# **Ask.** Before the prediction: "Equal logits on a hundred texts. Is the part right?" (Not if nobody looked at its gradients.)
#
# **Usual answers.**
# - *The logits* (`the logits`): Its values are right. What would training do with it?
# - *The logits with a cache* (`the logits with a cache`): These are values, too.
#
# **Cut if short.** The trace.

# %% [markdown] slide="slide"
# ## 2. Your parts, one by one
# `build` makes a model that calls the parts that you have kept, and the library's where you have kept none. The card says whose each part is.

# %% slide="skip"
from tinylm_classroom import build, find_exercise, kept_functions, own_config, parity, trace, using

# %%
torch.manual_seed(20)
mine = build(own_config(text))
n_parameters = sum(p.numel() for p in mine.parameters())
print(f"{n_parameters:,} parameters, {mine.config.n_layers} layers, width {mine.config.d_model}")

# %% slide="skip"
using(mine)

# %% [markdown] slide="subslide"
# ### Parity
# Is a part the same function as the library's? `parity` puts it alone into a model with random weights, and compares three things: the logits, the logits with a cache, and the gradients. Here are five versions of two parts:


# %%
def linear(x, weight):
    return torch.einsum("...i,oi->...o", x, weight)


def linear_detached(x, weight):
    return x @ weight.detach().T


# %%
def rms_norm(x, gain, eps):
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain


def rms_norm_without_gain(x, gain, eps):
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()


def rms_norm_over_the_text(x, gain, eps):
    return x * (x.square().mean((-2, -1), keepdim=True) + eps).rsqrt() * gain


# %% slide="skip"
versions = (linear, linear_detached, rms_norm, rms_norm_without_gain, rms_norm_over_the_text)
found = {}
for version in versions:
    part = "linear" if version.__name__.startswith("linear") else "rms_norm"
    (found[version.__name__],) = parity(mine.config, {part: version})

# %% tags=["source-hidden"]
detached = found["linear_detached"]
predict(
    "`linear_detached` multiplies by `weight.detach()`. Which of the three comparisons finds it?",
    key=lambda: "the gradients" if max(detached.logits, detached.cached) < 1e-3 < detached.gradients else "the logits",
    choices={
        "the logits": "Detaching changes no value.",
        "the logits with a cache": "These are values, too, and detaching changes none.",
        "the gradients": "",
    },
    because="Its values are right, so the model would run, but none of its maps would ever be trained.",
)

# %% slide="subslide"
for name, part in found.items():
    numbers = (f"{x:7.0e}" if x > 1e-3 else "  equal" for x in (part.logits, part.cached, part.gradients))
    print(f"{name:<24} logits {next(numbers)}, with a cache {next(numbers)}, gradients {next(numbers)}")

# %% slide="skip" evidence="parity"
assert found["linear"].equal and found["rms_norm"].equal
assert not any(found[name].equal for name in ("linear_detached", "rms_norm_without_gain", "rms_norm_over_the_text"))
over = found["rms_norm_over_the_text"]
assert over.logits > 0.01 and over.cached > 0.01

# %% [markdown]
# The two right versions are equal to the library's up to rounding, although they are written in another way. Each wrong one differs in at least one of the three comparisons. [[parity]] Now yours:

# %% slide="subslide"
tested = [part for part in parity(mine.config, kept_functions()) if part.places]  # those that this model can call
for part in tested:
    print(f"{part.name:<20} {'equal' if part.equal else 'NOT EQUAL'}  {part.why}")
print(f"{sum(part.equal for part in tested)} of {len(tested)} kept parts are equal to the library's, one by one")

# %% [markdown] slide="say"
# If nothing is listed here, no part is kept on this computer, and the model is the library's. (On the published page that is so.) Parts that only other architectures call, such as a layer norm, are not tested here.

# %% [markdown] slide="subslide"
# Together they must still be a model. Follow two texts through it:


# %%
def next_token(model, ids):
    logits = model(ids)  # (B, T) -> (B, T, V)
    last = logits[:, -1]  # (B, T, V) -> (B, V)
    return last.softmax(-1)  # (B, V)


# %% evidence="whole-model"
ids = text.held_out[:48].view(2, 24).long()  # (B, T)
with torch.no_grad():
    probs = next_token(mine, ids)  # (B, V)
assert probs.shape == (2, mine.config.vocab_size) and torch.allclose(probs.sum(-1), torch.ones(2), atol=1e-4)
trace(next_token, mine, ids, sizes={"B": 2, "T": 24, "V": mine.config.vocab_size})

# %% [markdown]
# The shapes fit, and no logit is NaN. That the probabilities sum to 1 is the work of softmax alone; whether the model learns, section 3 shows. [[whole-model]]

# %% [markdown] tags=["note"]
# **Say.** The loop is the one of lesson 11. What is new is that we decide beforehand what would count as success.
#
# **Draw.** Two curves that part, and a flag at the lowest point of the upper one.
#
# **Ask.** While it trains: "At which look will you stop it, and how do you know that you did not stop by luck?" (We choose on held-out text, so a third text would be needed for a fair number.)
#
# **Usual answers.**
# - *When the training loss is lowest* (from the room): That is always the last update.
# - *The floor is 0* (from the room): Only for a text in which every word is determined.
#
# **Cut if short.** The compressor.

# %% [markdown] slide="slide"
# ## 3. Train it
# `learn` trains with the library's loop and looks at the held-out text from time to time. We keep the weights of the best look.

# %% slide="skip"
import copy

from tinylm_classroom import OWN_RECIPE, learn, show


# %%
def train_and_keep_best(model, some_text, recipe):
    """Train a model, leave it with the weights of its lowest held-out loss, and return all looks."""
    looks, best = [], None
    for look in learn(model, some_text, recipe):
        looks.append(look)
        if look.held_out == min(each.held_out for each in looks):
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return looks


# %% slide="subslide"
looks = train_and_keep_best(mine, text, OWN_RECIPE)
best = min(looks, key=lambda look: look.held_out)
print(f"best look after {best.step} updates")
print(f"held-out loss {learned(best.held_out, 0.1, 6.5)} nats per token")
print(f"that is {learned(text.bits_per_byte(best.held_out), 0.05, 6)} bits per byte")

# %% tags=["source-hidden"] slide="subslide"
levels = {"ln V": math.log(mine.config.vocab_size)} | ({"floor": text.floor} if text.floor else {})
steps = [look.step for look in looks]
figures.loss_curve(
    {"training": (steps, [look.training for look in looks]), "held out": (steps, [look.held_out for look in looks])},
    levels,
    title=f"Your model learns {text.name}",
    caption="If the two curves part, the model begins to learn its text by heart. Nothing can be below the floor on new text, and a model that knows nothing is at ln V.",
)

# %% evidence="trained"
assert best.held_out < math.log(mine.config.vocab_size) - 0.5 and text.loss(mine) < best.held_out + 0.01
print(f"a model that knows nothing: {math.log(mine.config.vocab_size):.2f} nats per token, this model: less")

# %% slide="skip"
show(learn)

# %% [markdown]
# The model has learned something about new text, not only about its own. [[trained]] How much is that?

# %% [markdown] slide="subslide"
# ### How far from the best?
# For StoryWorld the exact probabilities are known, so we can say how far the model is from them, for each kind of word.

# %% slide="skip"
from tinylm_lib import storyworld

generator = torch.Generator().manual_seed(20)
new_stories = [storyworld.story(generator) for _ in range(40)]
apart = storyworld.gaps(mine, text.tokenizer, new_stories) if text.stories else {}

# %% evidence="kinds"
for kind, gap in sorted(apart.items()):
    print(f"{kind:<10} {learned(gap.nats, 0, 8)} nats above the exact distribution")
if text.stories:
    assert text.floor < best.held_out < text.floor + 1
    assert apart["pronoun"].nats < 0.5 < 1 < apart["quotation"].nats
else:
    print("nobody knows the exact probabilities of this text")

# %% [markdown]
# With StoryWorld, pronouns are close to exact. Objects, traits, quotations, owners and colours, which the model must find again in earlier sentences, are not. [[kinds]] For a text of yours nobody knows the floor. But a good compression program is a yardstick: how many bytes more does the held-out text need, if the program has read the training text before?

# %% slide="subslide"
import lzma


def compressed_bits(some_text) -> float:
    """Bits per byte that the held-out text adds to the compressed training text."""
    before, after = (
        some_text.tokenizer.decode(part.tolist()).encode() for part in (some_text.training, some_text.held_out)
    )
    more = len(lzma.compress(before + after)) - len(lzma.compress(before))
    return 8 * more / some_text.held_out_bytes


# %% evidence="compressor"
print(
    f"lzma {compressed_bits(text):.2f} bits per byte, this model {learned(text.bits_per_byte(best.held_out), 0.05, 6)}"
)
print(
    f"20 KB of pydoc: lzma {compressed_bits(few):.2f} bits per byte, recorded models {expect['pydoc'][20_000][4]:.2f}"
)
if text.stories:
    assert text.bits_per_byte(best.held_out) < compressed_bits(text)

# %% [markdown]
# On StoryWorld the model is better than this compressor. [[compressor]] If yours is not, more text is the first thing to try.

# %% [markdown] slide="subslide"
# ### The same model on a small text
# Now 20 KB of stories and 100 updates, so that you see the curves part:

# %% slide="skip"
from dataclasses import replace

from tinylm_lib import TransformerLM

# %%
torch.manual_seed(20)
small = TransformerLM(own_config(stories))
small_looks = list(learn(small, stories, replace(OWN_RECIPE, total_steps=100)))  # the last weights stay in the model

# %% tags=["source-hidden"]
predict(
    f"The floor of these held-out stories is {stories.floor:.2f} nats per token. Where is the training loss after 100 updates?",
    key=lambda: "below the floor" if small_looks[-1].training < stories.floor else "above the floor",
    choices={
        "above the floor": "The floor holds for text that the model has not read before.",
        "below the floor": "",
    },
    because="The floor is the loss of the best predictor of new text. Text that was learned by heart has no surprise.",
)

# %% tags=["source-hidden"] slide="subslide"
figures.loss_curve(
    {
        "training": ([look.step for look in small_looks], [look.training for look in small_looks]),
        "held out": ([look.step for look in small_looks], [look.held_out for look in small_looks]),
    },
    {"floor": stories.floor},
    title="20 KB: learned by heart",
    caption="The training loss falls below the floor, because the model knows this text by heart. The held-out loss rises again after its lowest point.",
)

# %% evidence="by-heart"
small_best = min(small_looks, key=lambda look: look.held_out)
assert small_looks[-1].training < stories.floor < small_best.held_out < small_looks[-1].held_out - 0.3
assert small_best.step < 100
print("the lowest held-out loss is at an earlier look than the last one")

# %% [markdown]
# That is overfitting (lesson 11). The training loss goes below the floor of the language, and the held-out loss rises again. [[by-heart]]

# %% [markdown] tags=["note"]
# **Say.** A loss is a mean over words. Read what the model writes, and ask whether it is new.
#
# **Draw.** A written text as a line, and above it the pieces that occur in the training text.
#
# **Ask.** "Your model writes a perfect sentence. How do you find out whether it is a copy?"
#
# **Usual answers.**
# - *By reading the training text* (from the room): Let the program do that.
# - *A model cannot copy, it only has probabilities* (from the room): The small model of section 3 has probabilities near 1 for its own text.
#
# **Cut if short.** The control.

# %% [markdown] slide="slide"
# ## 4. It writes
# Here is a text of your model, at temperature 1. (It is drawn at random, and processors round differently, so yours may be another.)

# %% slide="skip"
from tinylm_lib import stream_text
from tinylm_classroom import control


# %%
def written(model, some_text, n_tokens=120, temperature=1.0, seed=20):
    """A text that begins with a line end."""
    source = torch.Generator().manual_seed(seed)
    pieces = stream_text(model, some_text.tokenizer, "\n", n_tokens, temperature=temperature, generator=source)
    return "".join(pieces)


# %% tags=["nbval-ignore-output"] slide="subslide"
sample = written(mine, text)
show_text(sample)

# %% [markdown] slide="subslide"
# ### Is it new?
# For each position of a text, how many tokens from there on are a copy of a passage in the training text?


# %%
def longest_copy(some_text, ids: list[int]) -> int:
    """The largest number of tokens in a row that occur in the training text, too."""
    known = " ".join(map(str, some_text.training.tolist())) + " "
    longest = 0
    for start in range(len(ids)):
        while f" {' '.join(map(str, ids[start : start + longest + 1]))} " in known:
            longest += 1
            if start + longest >= len(ids):
                return longest
    return longest


# %% slide="skip"
texts = {  # and the training text with which each is compared
    "your model": (text, text.tokenizer.encode(sample)),
    "your held-out text": (text, text.held_out[:120].tolist()),
    "the small model": (stories, stories.tokenizer.encode(written(small.eval(), stories))),
    "its held-out text": (stories, stories.held_out[:120].tolist()),
}
copies = {name: longest_copy(*pair) for name, pair in texts.items()}

# %% tags=["source-hidden"]
predict(
    "The small model of section 3 writes 120 tokens. How long is the longest piece of it that is a copy?",
    key=lambda: "at least half of it" if copies["the small model"] >= 60 else "as long as in a held-out text",
    choices={
        "as long as in a held-out text": "That would be a model of the language. What is the training loss of this one?",
        "twice as long as in a held-out text": "Its probabilities are near 1, for one word after the other.",
        "at least half of it": "",
    },
    because="It knows its stories by heart, so from a few words on it continues one of them.",
)

# %% slide="subslide"
for name, n in copies.items():
    print(f"{name:<19} longest copy {learned(n, 1, 121)} tokens of {len(texts[name][1])}")

# %% slide="skip" evidence="copies"
assert copies["the small model"] >= 60 > 2 * copies["its held-out text"]

# %% [markdown]
# Some copying is the language itself: a held-out text has pieces in common with the training text, too. The small model copies far longer ones. [[copies]] Compare the two lines of *your* model before you say that it writes something new. Try other temperatures:


# %%
def try_temperature(temperature=0.5, seed=1):
    show_text(written(mine, text, 80, temperature, seed))


# %% tags=["nbval-ignore-output"]
control(try_temperature, temperature=[0.5, 0.1, 1.0, 1.5], seed=(1, 9))

# %% [markdown] tags=["note"]
# **Say.** Three things leave this notebook: the weights in a format that others open, a page in which the model writes, and a report that says what was measured.
#
# **Draw.** One model, three arrows: a folder, a page, a sheet of paper.
#
# **Ask.** At the report: "Which line would you leave out if you wanted to impress somebody?" That is the line that must be there.
#
# **Usual answers.**
# - *The floor* (from the room): Without it nobody can judge the loss.
# - *What came from the library* (from the room): Then somebody finds out later.
#
# **Cut if short.** Opening the exported folder; say that the logits are the same.

# %% [markdown] slide="slide"
# ## 5. Take it with you
# `model_folder` makes a new folder, `work/yours/` and the name of the text. First the weights, in the format of Hugging Face (lesson 18):

# %% slide="skip"
from tinylm_lib import load_hf, save_hf
from tinylm_classroom import export_page, model_folder, model_report

# %%
folder = model_folder(text.name)
tokenizer = None if text.stories else text.tokenizer  # Hugging Face has no tokenizer of whole words like ours
exported = save_hf(mine.eval(), folder / "hugging_face", tokenizer=tokenizer)
text.tokenizer.save(folder / "tokenizer.json")

# %% evidence="exported"
opened = load_hf(exported).eval()
with torch.no_grad():
    torch.testing.assert_close(opened(ids), mine(ids), atol=1e-3, rtol=1e-3)
print(*sorted(path.name for path in exported.iterdir()))

# %% [markdown]
# Opened again, by the library's code, the model gives the same logits. [[exported]] Then a page of its own. It needs no Python and no network, so you can send it to a friend:

# %% slide="subslide"
title = f"A model of {text.name}"
page = export_page(
    mine, text.tokenizer, folder / "my_model.html", title=title, trained_on=f"{text.n_bytes / 1000:,.0f} KB of {text.name}"
)  # fmt: skip
print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")

# %% [markdown] slide="subslide"
# ### The report
# One page with everything that this lesson has measured:

# %%
report = model_report(
    folder / "report.html", mine, text, looks,
    sample=sample, title=title, tested=tested, gaps=apart, links={"Its page": page, "Its weights": exported},
)  # fmt: skip
print(*sorted(path.name for path in folder.iterdir()))

# %% slide="skip" evidence="report"
words = report.read_text("utf-8")
assert f"{best.held_out:.2f} nats per token" in words and "From the library: " in words
assert 'href="my_model.html"' in words and all(name in words for name in ("tokenizer", "optimizer"))

# %% [markdown]
# The report has the held-out loss, the link to the page, and a sentence that says which parts are yours and what came from the library. [[report]] Where the folder is: `folder.resolve()`.

# %% [markdown] tags=["note"]
# **Say.** The most flattering result of the whole lesson, and it is worthless.
#
# **Draw.** A file as a bar: the same page twice, and the last tenth shaded. Where does the shaded text occur once more?
#
# **Ask.** The prediction, with a reason.
#
# **Usual answers.**
# - *Higher, there is less to learn from* (`higher`): Less new text, yes. But what is held out?
# - *The same* (`about the same`): The text is the same. Is the held-out part?
#
# **Cut if short.** Nothing; it is short.

# %% [markdown] slide="slide"
# ## 6. Break it: the text twice
# Files from the web often contain a passage twice. Here are 20 KB of Python's documentation, once and twice in a file. The architecture and its 100 updates are the same; the tokenizer is learned again.

# %% slide="skip"
once = few
all_of_it = once.tokenizer.decode([*once.training.tolist(), *once.held_out.tolist()])
(here / "twice.txt").write_text(all_of_it * 2, encoding="utf-8", newline="")
twice = own_text(here / "twice.txt")


# %% slide="skip"
def loss_after(some_text) -> float:
    torch.manual_seed(20)
    return list(learn(TransformerLM(own_config(some_text)), some_text, replace(OWN_RECIPE, total_steps=100)))[
        -1
    ].held_out


reached = {"once": loss_after(once), "twice": loss_after(twice)}

# %% tags=["source-hidden"]
predict(
    "The same pages, twice in one file. How does the held-out loss after 100 updates compare with that of the pages once?",
    key=lambda: "much lower" if reached["twice"] < reached["once"] - 1 else "about the same",
    choices={
        "much lower": "",
        "about the same": "The text is the same, but which part of it is held out?",
        "higher": "There is as much new text as before. But what is held out?",
    },
    because="The last tenth is held out, and it is in the training part already: the first copy.",
)

# %% evidence="twice"
for name, some_text in {"once": once, "twice": twice}.items():
    print(f"{name:<6} held-out loss {learned(reached[name], 0.3, 9)}, repeated {some_text.repeated:.0%}")
assert reached["twice"] < reached["once"] - 1 and twice.repeated == 1 and once.repeated < 0.3

# %% [markdown]
# The held-out loss is far lower, and it says nothing about new text, because all of the held-out text was trained on. No error was raised. [[twice]] So `own_text` counts how much of the held-out text is repeated, and the report shows it.

# %% [markdown] tags=["note"]
# **Say.** Ten questions, one for each idea that you should be able to use without looking it up. Each is answered by code when you open it.
#
# **Draw.** Ten empty lines, and beside each the number of a lesson.
#
# **Ask.** Let everyone write ten answers on paper first, then run the cells and count.
#
# **Usual answers.**
# - *I got six* (from the room): Each answer names its lesson. Read the section, and come back to the other four.
#
# **Cut if short.** All of it: it is homework.

# %% [markdown] slide="slide"
# ## 7. Ten questions to yourself
# Ten ideas of the course, each with a question about *your* model or a number that you can compute by hand. Answer first, then open. Every key is computed by code.

# %% slide="skip"
model = mine.eval()
config = model.config
one = text.held_out[:16].view(1, 16).long()  # (B, T)

# %% tags=["source-hidden"] slide="skip"
predict(
    f"1. Your model reads {tuple(one.shape)} ids. What is the shape of its logits?",
    key=lambda: tuple(model(one).shape),
    shape="(B, T, V)",
    feedback={(1, 1, config.vocab_size): "Every position predicts the next token, not only the last (lesson 10)."},
    because="Every position gives each token of the vocabulary a logit (lesson 10).",
)

# %% tags=["source-hidden"] slide="skip"
changed = one.clone()
changed[0, 9] = (changed[0, 9] + 1) % config.vocab_size
with torch.no_grad():
    differ = ((model(changed) - model(one)).abs().amax(-1) > 1e-6)[0].nonzero()[:, 0].tolist()
predict(
    "2. The token at position 9 of 16 is exchanged. (Positions begin at 0.) How many positions get other logits?",
    key=lambda: len(differ),
    number="positions",
    within=0,
    feedback={
        16: "The causal mask hides position 9 from those before it (lesson 05).",
        6: "Position 9 itself reads it, too.",
    },
    because="Positions 9 to 15 can see it, and the causal mask hides it from all earlier ones (lesson 05).",
)

# %% tags=["source-hidden"] slide="skip"
logits = torch.tensor([2.0, 1.0, 0.0])
predict(
    "3. The logits are 2, 1 and 0. What happens to the probability of the first token, if 5 is added to all three?",
    key=lambda: "it stays the same" if torch.allclose((logits + 5).softmax(-1), logits.softmax(-1)) else "it rises",
    choices={
        "it rises": "So do the others. What does softmax divide by?",
        "it stays the same": "",
        "it falls": "All three exponentials are multiplied by one number.",
    },
    because="Every exponential is multiplied by the same number, which the division removes (lesson 03).",
)

# %% tags=["source-hidden"] slide="skip"
norm = find_exercise("rms_norm").reference
x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
predict(
    "4. A vector is multiplied by 10 before RMSNorm. By what is the result multiplied?",
    key=lambda: (norm(10 * x, torch.ones(64), 1e-6) / norm(x, torch.ones(64), 1e-6)).mean().item(),
    number="times",
    within=0.1,
    feedback={10: "Then the norm would not normalize. What does it divide by? (Lesson 04.)"},
    because="The root mean square grows by the same factor, and the norm divides by it (lesson 04).",
)

# %% tags=["source-hidden"] slide="skip"
rotate = find_exercise("rotate").reference
q, k = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(2))


def score(at_q: int, at_k: int) -> float:
    """The dot product of a query and a key, each rotated by its position."""
    turned = [rotate(v, torch.tensor([at]), 10_000.0) for v, at in ((q, at_q), (k, at_k))]
    return (turned[0] * turned[1]).sum().item()


predict(
    "5. A query at position 12 reads a key at position 4, with rotary positions. Which pair has the same score?",
    key=lambda: "32 and 24" if math.isclose(score(12, 4), score(32, 24), abs_tol=1e-4) else "24 and 8",
    choices={
        "24 and 8": "The ratio is the same. What does the angle between the two depend on?",
        "12 and 5": "The key has moved by one position, and so has the angle.",
        "32 and 24": "",
    },
    because="The score depends on the difference of the positions only, which is 8 (lesson 06).",
)

# %% tags=["source-hidden"] slide="skip"
from tinylm_lib import KVCache

cache = KVCache(config, batch_size=1, max_len=1)
per_token = sum(each.numel() for each in (*cache.keys, *cache.values))
predict(
    f"6. Your model has {config.n_layers} layers and {config.n_kv_heads} key-value heads of width {config.d_head}. How many numbers does its cache hold for each token?",
    key=lambda: per_token,
    number="numbers",
    within=0,
    feedback={per_token // 2: "The cache holds keys and values (lesson 13)."},
    because="A key and a value for each layer and head (lesson 13).",
)

# %% tags=["source-hidden"] slide="skip"
torch.manual_seed(1)
untrained_loss = text.loss(TransformerLM(config))
predict(
    f"7. The same model, untrained. What is its loss, in nats per token, with V = {config.vocab_size}? (0.8 nats is near enough.)",
    key=lambda: untrained_loss,
    number="nats",
    within=0.8,
    feedback={0: "It would have to be certain and right."},
    because="Nearly equal probabilities have a loss of about ln V (lessons 03 and 10).",
)

# %% tags=["source-hidden"] slide="skip"
predict(
    "8. A model has 2.1 nats per token on a text with 3 bytes per token. How many bits per byte are that?",
    key=lambda: 2.1 / math.log(2) / 3,
    number="bits per byte",
    within=0.05,
    feedback={0.7: "These are nats per byte. A nat is 1.44 bits (lesson 11).", 3.03: "These are bits per token."},
    because="2.1 nats are 3.03 bits, which belong to 3 bytes (lesson 11).",
)

# %% tags=["source-hidden"] slide="skip"
noted = {10: (3.6, 3.1), 20: (2.4, 2.8), 50: (0.6, 3.5), 100: (0.1, 4.3)}  # training and held-out loss
predict(
    f"9. After {', '.join(map(str, noted))} updates a model has the training losses {', '.join(str(a) for a, _ in noted.values())} and the held-out losses {', '.join(str(b) for _, b in noted.values())}. Which weights do you publish?",
    key=lambda: min(noted, key=lambda step: noted[step][1]),
    number="updates",
    within=0,
    feedback={100: "There the training loss is lowest. Look at the held-out loss (lesson 11)."},
    because="There the held-out loss is lowest: early stopping (lesson 11).",
)

# %% tags=["source-hidden"] slide="skip"
n_update = 4 * (config.d_model + config.d_model)
predict(
    f"10. A map of {config.d_model} by {config.d_model} gets a LoRA update of rank 4. How many numbers are trained?",
    key=lambda: n_update,
    number="numbers",
    within=0,
    feedback={config.d_model**2: "That is the whole matrix, which is frozen (lesson 18)."},
    because="Two matrices, 4 by the input and the output by 4 (lesson 18).",
)

# %% evidence="ten-keys" slide="skip"
assert differ == [9, 10, 11, 12, 13, 14, 15]
assert math.isclose(score(12, 4), score(32, 24), abs_tol=1e-4) and not math.isclose(
    score(12, 4), score(24, 8), abs_tol=1e-2
)
assert abs(untrained_loss - math.log(config.vocab_size)) < 0.8
assert per_token == 2 * config.n_layers * config.n_kv_heads * config.d_head
print("the keys of questions 2, 5, 6 and 7 agree with what the course says of them")

# %% [markdown] slide="say"
# What the model does agrees with what the course says. [[ten-keys]] With eight right answers or more, you know the main ideas behind the code of real language models. With fewer, each answer names the lesson that explains it.

# %% [markdown] tags=["note"]
# **Say.** You have a model that you can explain down to the last multiplication, and a report that others can check.
#
# **Draw.** The report once more, with one empty line: what you would measure next.
#
# **Ask.** At the door: "What would you build next, and which number would tell you that it works?"
#
# **Usual answers.**
# - *A larger model* (from the room): Of which text, and what did the table say about its size?
#
# **Cut if short.** The list.

# %% [markdown] slide="slide"
# ## What you have now
# - The size of the text decides what to expect: the model learns a small text by heart, and with more text the lowest held-out loss is lower. [[sizes]] On a small text the training loss falls below the floor while the held-out loss rises. [[by-heart]]
# - Texts that cannot be used are refused with what to do [[refused]], and byte-level BPE can write every character. [[no-unknown-character]] A tokenizer of words refuses an unknown word. [[unknown-word]]
# - A part is the same as the library's if logits, cached logits and gradients are; each of our wrong parts failed one of these. [[parity]] Together the parts give logits of the right shape. [[whole-model]]
# - Your model has learned something about new text. [[trained]] On StoryWorld it is close to exact for pronouns and not for quotations [[kinds]], and better than `lzma`. [[compressor]]
# - Compare the longest copy in what a model writes with that in held-out text. [[copies]]
# - The exported weights give the same logits [[exported]], and the report says what was measured and what came from the library. [[report]]
# - A text that is twice in its file gives a low held-out loss that says nothing. [[twice]]
# - Ten ideas of the course, each with a key that code computes. [[ten-keys]]
#
# That is the course. What you build next is up to you.

# %% [markdown] slide="skip"
# ## Sources
# - Reporting a model: Mitchell et al. 2019, [*Model Cards for Model Reporting*](https://arxiv.org/abs/1810.03993).
# - Repeated text in training data: Lee et al. 2022, [*Deduplicating Training Data Makes Language Models Better*](https://arxiv.org/abs/2107.06499).
# - Copies in what a model writes: Carlini et al. 2021, [*Extracting Training Data from Large Language Models*](https://arxiv.org/abs/2012.07805).
# - Language models and compressors: Delétang et al. 2023, [*Language Modeling Is Compression*](https://arxiv.org/abs/2309.10668).
# - Early stopping: Prechelt 1998, *Early Stopping - But When?*
