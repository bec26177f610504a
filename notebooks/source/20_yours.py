# %% [markdown] deck="What have you built, and what can it learn from a text of yours?"
# # 20 Yours
# **What have you built, and what can it learn from a text of yours?**
#
# *Needs* lessons 10, 11, 12 and 18. *Builds* a model of your own parts, its page `my_model.html` and its `report.html`. *Runs* in about 50 s on two cores.
# *Teaches* in about 45 minutes, plus 12 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a model is finished when somebody else can check it and try it. So each part is compared with the library's, a tenth of the text is held out, and at the end there is a page to send.
# Before the class: ask everyone to bring a UTF-8 file with a text of theirs, ten pages or more. All cells run on the text of the first cell; the numbers in the text belong to StoryWorld.
# If you have only ten minutes, show the shaded texts of section 4 and the page of section 7. The ten questions are homework.

# %% [markdown] tags=["note"]
# **Say.** Before we train anything, we say what to expect. The size of the text decides more than anything else that you can choose today.
#
# **Usual answers.**
# - *Nearly as low as its training loss* (`nearly as low as its training loss`): The stories are new. What has the model learned instead of the language?
# - *Half way* (`between the floor and ln V`): A model that knows nothing gives each token the same probability. What does a model do that knows ten pages by heart?
#
# **Cut if short.** What was tried with 1 MB.
#
# **Tried.** 30 trainings of 300 updates: five sizes, two corpora, three texts of each with other first weights. In bits per byte the best of the three texts of 20 KB is above the worst of the three of 100 KB, for both corpora. The pieces are held out in seven places, because the end of a file is often another document.

# %% [markdown]
# ## 1. Your text, and what to expect of it
# This is your lesson. You choose a text, your parts become a model of it, and at the end there is a page that you can send to a friend. Put a text file next to this notebook (in JupyterLab, drag it into the list of files), and its name into `TEXT`: notes, letters, poems. It needs 20 KB, which teach a model letters more than words; words need some hundred KB, and sentences 1 MB or section 6.

# %%
from tinylm_classroom import own_text, predict, yours_experiments
from tinylm_classroom import yours_figures as figures

LARGE = False  # True for 1 MB of text: about five minutes
UPDATES = 300  # try 1200
TEXT = "storyworld"  # try "pydoc" and "my_text.txt"
text = own_text(TEXT)

# %% tags=["source-hidden"] deck="A tenth of the text is held out, in seven places"
figures.pieces(text)

# %% [markdown]
# The orange pieces are **held out**: neither the model nor its tokenizer sees them, so they test what the model has learned. They are spread over the file, because its end may be about something else.

# %%
print(f"{len(text.training):,} tokens to train on, {text.tokenizer.vocab_size} known")
print(f"{text.repeated:.0%} of its held-out passages are in the training text, too")

# %% [markdown]
# StoryWorld has a token for each of its words. For every other text byte-level BPE is learned (lesson 01). What can a small model learn from a text? We trained one on texts of five sizes, three of each. The training loss for 20 KB of StoryWorld ends near 0. And the held-out loss? It cannot be below the floor, the loss of the true probabilities.

# %% tags=["source-hidden"] deck="20 KB, learned by heart. How high is the loss on new text?"
import math

expected = yours_experiments.recorded_sizes()
least = expected["storyworld"][20_000]
predict(
    f"20 KB of StoryWorld, 300 updates: the training loss ends at {least.training}. How high is the loss on held-out stories then?",
    key=lambda: "higher than that of a model that knows nothing" if least.at_end > math.log(345) else "lower",
    choices={
        "nearly as low as its training loss": "These stories are new. What has the model learned by heart?",
        "between the floor and ln V": "A model that knows nothing is never certain. This one is, and it is wrong.",
        "higher than that of a model that knows nothing": "",
    },
    because=f"It is {least.at_end}, and ln 345 is {math.log(345):.2f}: the model is certain of what it knows by heart, and new stories are different.",
)

# %% tags=["source-hidden"] deck="A small text is learned by heart, a larger one is learned from"
figures.sizes(expected)

# %% tags=["source-hidden"] evidence="sizes" tried="seeds"
# Checked: at 20 KB the end is worse than ln V, and each of three texts of 100 KB beats each of 20 KB.
for corpus, rows in expected.items():
    assert rows[20_000].at_end > figures.LN_V[corpus] and rows[20_000].training < 0.6
    assert rows[20_000].least > rows[100_000].most

# %% [markdown]
# With 20 KB the model learns its text by heart, and at the end it is worse on new text than a model that knows nothing. Early stopping saves it. With 100 KB it is clearly better: on stories it needs 0.51 bits per byte instead of 0.84. [[sizes]] And 1 MB, with `LARGE = True`? We tried it with the plays of Shakespeare:

# %%
from tinylm_classroom import show_text

large = yours_experiments.recorded()["large"]
letters = 150  # try 400
print(large["says"])
show_text(large["sample"][:letters])

# %% [markdown] tags=["note"]
# **Say.** You believe that your softmax is right, because a check said so. Now each part must work in the place where it is called, with the others around it.
#
# **Usual answers.**
# - *The logits* (`the logits`): Its values are right. What would training do with it?
# - *The logits with a cache* (`the logits with a cache`): These are values, too.
#
# **Cut if short.** The trace.
#
# **Tried.** Parity with three sets of random weights, and two others with byte-level BPE: the right version agrees, each wrong one is found. `parity` reads 19 tokens, so a `linear` that is wrong for more than 64 positions passes, and agreement does not prove a part right.

# %% [markdown] deck="A part passes if logits, cached logits and gradients agree"
# ## 2. Your parts become a model
# `build` makes a model that calls the parts that you have kept, and the library's where you have kept none. (Kept on another computer? Copy its folder `work/parts`.)

# %%
import torch

from tinylm_classroom import build, kept_functions, own_config, parity, using

_ = torch.manual_seed(20)
mine = build(own_config(text, LARGE))
n_parameters = sum(p.numel() for p in mine.parameters())
print(f"{n_parameters:,} parameters, {mine.config.n_layers} layers")

# %%
using(mine)

# %% [markdown]
# Is a part the same function as the library's? `parity` puts it alone into a model with random weights, lets it read a short text, and compares the logits, the logits with a cache, and the gradients. Here are three versions of `linear`. One is right:


# %%
def linear(x, weight):
    return torch.einsum("...i,oi->...o", x, weight)


def linear_detached(x, weight):
    return x @ weight.detach().T


def linear_square(x, weight):
    return x @ weight if weight.shape[0] == weight.shape[1] else x @ weight.T


# %% tags=["source-hidden"] deck="Which comparison finds the detached weight?"
(detached,) = parity(mine.config, {"linear": linear_detached})
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

# %% deck="Right values, no gradients: the part would never be trained"
versions = {"right": linear, "detached": linear_detached, "square": linear_square}
name = "detached"  # try "right" and "square"
# ESSENTIAL
(found,) = parity(mine.config, {"linear": versions[name]})
for what in ("logits", "cached", "gradients"):
    apart = getattr(found, what)
    print(f"{what:<10}", "equal" if apart < 1e-3 else f"differ by {apart:.1g}")
# END

# %% tags=["source-hidden"] evidence="parity" tried="seeds"
# Checked with three sets of weights: the right version is equal, the two wrong ones are found.
SEEDS = range(3)
for seed in SEEDS:
    named = (linear, linear_detached, linear_square)
    equal = [parity(mine.config, {"linear": each}, seed)[0].equal for each in named]
    assert equal == [True, False, False]

# %% [markdown]
# The right version agrees in all three, although it is written in another way, and both wrong ones are found. A mistake that only a longer text shows would not be. [[parity]] Now yours, if any are kept on this computer:

# %%
tested = [part for part in parity(mine.config, kept_functions()) if part.places]
for part in tested:
    print(f"{part.name:<20} {'equal' if part.equal else 'NOT EQUAL'}  {part.why}")
print(f"{sum(part.equal for part in tested)} of {len(tested)} kept parts are equal")

# %% [markdown]
# Together they must still be a model:


# %%
from tinylm_classroom import trace


def next_token(model, ids):
    logits = model(ids)  # (B, T) -> (B, T, V)
    last = logits[:, -1]  # (B, T, V) -> (B, V)
    return last.softmax(-1)  # (B, V)


n_read = 24  # try 12
ids = text.held_out[: 2 * n_read].view(2, n_read).long()  # (B, T)
with torch.no_grad():
    probs = next_token(mine, ids)  # (B, V)
assert probs.shape == (2, mine.config.vocab_size)

# %% tags=["source-hidden"]
trace(next_token, mine, ids, sizes={"B": 2, "T": n_read, "V": mine.config.vocab_size})

# %% [markdown] tags=["note"]
# **Say.** The loop is the one of lesson 11. What is new is that we decide beforehand what would count as success.
#
# **Ask.** While it trains: "At which look will you stop it, and how do you know that you did not stop by luck?" (We choose on held-out text, so a third text would be needed for a fair number.)
#
# **Usual answers.**
# - *When the training loss is lowest* (from the room): That is always the last update.
#
# **Cut if short.** Nothing.
#
# **Tried.** The lesson's training in this run; the compressor is deterministic. Four other texts do not reach it in 300 updates, in bits per byte 3.47 and 3.16 (25 KB of notes), 3.07 and 2.93 (153 KB), 2.27 and 1.83 (300 KB), 2.0 and 0.92 (all of pydoc); with 1,200 updates the 153 KB have 2.90.

# %% [markdown] deck="Train, look at held-out text, keep the best weights"
# ## 3. Train it
# `learn` trains with the library's loop and looks at the held-out text from time to time. We keep the weights of the best look.

# %%
import copy
from dataclasses import replace

from tinylm_classroom import LARGE_RECIPE, OWN_RECIPE, learn


def train_and_keep_best(model, some_text, recipe):
    looks, best = [], None
    for look in learn(model, some_text, recipe):
        looks.append(look)
        if look.held_out == min(each.held_out for each in looks):
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return looks


# %%
from tinylm_classroom import learned

recipe = LARGE_RECIPE if LARGE else replace(OWN_RECIPE, total_steps=UPDATES)
looks = train_and_keep_best(mine, text, recipe)
best = min(looks, key=lambda look: look.held_out)
bits = text.bits_per_byte(best.held_out)
print(f"held-out loss {learned(best.held_out, 0.1, 6.5)} nats per token")
print(f"that is {learned(bits, 0.05, 6)} bits per byte")

# %% [markdown]
# Is that good? For StoryWorld the exact floor is known, for your text nobody knows it. But a compression program is a yardstick: how many bits does `lzma` need for the held-out text, if it has read the training text before? If your model does not reach it, look at the end of the held-out curve. While it falls, train longer: `UPDATES = 1200` takes about two minutes. Where it rises, you need more text, or section 6.

# %% tags=["source-hidden"] deck="On new text the model needs fewer bits than a compressor"
packed = yours_experiments.compressed_bits(text)
figures.learning(text, looks, packed)

# %% tags=["source-hidden"]
# Checked: it learned something about new text, and on StoryWorld it beats the compressor.
assert best.held_out < math.log(mine.config.vocab_size) - 0.5 and text.loss(mine) < best.held_out + 0.01
assert not text.stories or (text.floor < best.held_out < text.floor + 1 and bits < packed)

# %% [markdown] tags=["note"]
# **Say.** A loss is a mean over words. Read what the model writes, and ask whether it is new.
#
# **Usual answers.**
# - *By reading the training text* (from the room): Let the program do that.
# - *A model cannot copy, it only has probabilities* (from the room): The small model has probabilities near 1 for its own text.
# - *Each token of it occurs in the training text* (`tokens alone`): So do all words of this sentence. A copy is a passage.
#
# **Cut if short.** The control; the exercise is homework.
#
# **Tried.** Seven small models of two texts of StoryWorld, each writing at temperature 0.7. From an empty beginning the longest copy has 68 to 111 of 111 tokens, after new words 7 to 20, and the held-out text has 11 to 14. The updates are enough for StoryWorld only: 20 KB of English notes or of the documentation of Python have a training loss of 1.7 to 2.6 then, and copies of 4 to 13 tokens from both beginnings. So "a small model copies" is wrong as it stands: it must know its text by heart, and it depends on the beginning.

# %% [markdown] deck="Words of your text, and your model continues them"
# ## 4. It writes
# **Your task:** type a beginning of your own, and watch your model continue it. (On the site it is the shipped model's page.) Which words is it sure of?

# %% deck="Task: type a beginning. Which words is it sure of?"
from tinylm_classroom import watch

openings = text.openings()
watch(mine.eval(), text.tokenizer, openings[0])

# %% [markdown]
# The buttons begin with words of held-out sentences. Here is a longer text. Lesson 12 showed that a temperature below 1 makes rare slips rarer, so from now on we write at 0.7:


# %% tags=["nbval-ignore-output"]
from tinylm_classroom import control


def write(temperature=0.7, seed=1):
    show_text(yours_experiments.written(mine, text, openings[0], 80, temperature, seed))


control(write, temperature=[0.7, 0.1, 1.0, 1.5], seed=(1, 4))

# %% [markdown]
# ### Is it new?
# A text can be good because it is a copy. So we look for the longest passage that a text and the training text have in common: tokens in a row and in the same order. The passage may be anywhere in both. With nothing in common it is 0.
#
# ### Your turn: the longest copy
# Both arguments are two lists of ids.

# %%
from tinylm_classroom import check, hint, keep


# %% tags=["exercise"] name="longest_copy" minutes=12 difficulty=3 deck="Your turn: the longest copy"
def longest_copy(known, ids):
    """known, ids: two lists of ids, of a training text and of a text that a model wrote.

    Returns the number of tokens of the longest passage of ids that is in known, too.
    """
    # SOLUTION
    text = f" {' '.join(map(str, known))} "
    longest = 0
    for start in range(len(ids)):
        end = start + longest + 1
        while end <= len(ids) and f" {' '.join(map(str, ids[start:end]))} " in text:
            longest, end = longest + 1, end + 1
    return longest
    # END


# %% tags=["check"]
if check("longest_copy", longest_copy).passed:
    keep("longest_copy", longest_copy)

# %%
hint("longest_copy")

# %% [markdown] tags=["solution"]
# From each position only passages that are longer than the longest so far are tried, so the loop is fast. Python finds a text in a text much faster than a list in a list; the space on both sides of each number keeps `12` and `120` apart.

# %% [markdown]
# Now a second model, trained on only 20 KB of StoryWorld for 100 updates, until its training loss is near 0. It writes twice: from an empty beginning, and from the first words of a held-out story.

# %%
from tinylm_classroom import small_run

few = own_text("storyworld", n_bytes=20_000)
small, small_looks = small_run(few, seed=0)


def writes(model, some_text, beginning, seed=1):
    return yours_experiments.written_ids(model, some_text, beginning, 110, 0.7, seed)


# %% tags=["source-hidden"] deck="Where does the small model copy?"
SEEDS = range(3)
runs = {0: (small, small_looks)}
for at in SEEDS:
    runs[at] = runs.get(at) or small_run(few, at)


def longest_of(beginning):
    written = (writes(run[0], few, beginning) for run in runs.values())
    return [max(yours_experiments.copied(few.training.tolist(), ids, 1)) for ids in written]


from_nothing, from_new = longest_of("\n"), longest_of(few.openings()[0])
ways = {
    "in both": "The held-out words are new to it. Can it recite from words that it has never read?",
    "from the empty beginning": "Then new words would have to stop it. Do they?",
    "in neither": "Its training loss is near 0: it knows these pages by heart.",
}
places = ["in neither", "from the empty beginning", "in both"]
copies_now = places[(from_nothing[0] > 30) + (from_nothing[0] > 30 < from_new[0])]
predict(
    "The small model writes 110 tokens from an empty beginning, and 110 after the first words of a held-out story. Where is more than a quarter of it one copy?",
    key=lambda: copies_now,
    choices=ways | {copies_now: ""},
    because="It can recite what it knows by heart only if it is led there. New words lead elsewhere.",
)

# %% tags=["signature", "source-hidden"] deck="By itself the small model recites; after new words it cannot"
figures.copies(few, {
    "small model, empty beginning": writes(small, few, "\n"),
    "small model, new beginning": writes(small, few, few.openings()[0]),
    "held-out text": few.held_out[:110].tolist(),
})  # fmt: skip

# %% tags=["source-hidden"] evidence="copies" tried="seeds"
# Checked: three of three small models recite from nothing, and not after new words.
in_held_out = max(yours_experiments.copied(few.training.tolist(), few.held_out.tolist(), 1))
assert min(from_nothing) > 50 > 2 * in_held_out and max(from_new) < 2.5 * in_held_out
assert max(run[1][-1].training for run in runs.values()) < 0.1

# %% deck="And yours?"
from tinylm_classroom import yours

measure = yours("longest_copy", longest_copy)  # the solution, until yours passes
# ESSENTIAL
known = text.training.tolist()
shown = {beginning: writes(mine, text, beginning) for beginning in ("\n", openings[0])}
shown["held-out text"] = text.held_out[:110].tolist()
# END
for name, ids_of in shown.items():
    longest = measure(known, ids_of)
    print(f"{name!r}: longest copy {learned(longest, 0, 130)} tokens")

# %% [markdown]
# Some copying is the language itself: held-out text has passages in common with the training text, too. The small model of the stories recites a long passage when nothing leads it away, and after new words it copies about as much as a new text does. [[copies]] So look for copies where the training text begins, and compare with held-out text, before you say that your model writes something new.

# %% [markdown] tags=["note"]
# **Say.** The most flattering result of the whole lesson, and it is worthless.
#
# **Usual answers.**
# - *Higher, there is less to learn from* (`higher`): Less new text, yes. But what is held out?
# - *The same* (`about the same`): The text is the same. Is the held-out part?
#
# **Cut if short.** Nothing; it is short.
#
# **Tried.** Five seeds, 100 updates each, on the stories: 1.12 to 1.25 bits per byte once, 0.02 to 0.03 twice, and the floor of the language is 0.2. Other stories, two seeds: 1.36 and 0.03; pydoc, which is not learned by heart then: 2.8 and 1.8. With another tokenizer for the second file (byte-level BPE): 0.57 to 0.67. Held out at the end only, it would be the same: the end of the second copy is in the first.

# %% [markdown]
# ## 5. Break it: the text twice
# Files from the web often contain a passage twice. Here are the 20 KB of stories once more, twice in one file. The model and its updates are the same.

# %%
from tinylm_classroom import twice_in_a_file

double = twice_in_a_file(few)
double_looks = [small_run(double, at)[1] for at in SEEDS]

# %% tags=["source-hidden"] deck="The same pages twice in a file. What happens to the held-out loss?"
once = [few.bits_per_byte(run[1][-1].held_out) for run in runs.values()]
two = [double.bits_per_byte(each[-1].held_out) for each in double_looks]
predict(
    "The same pages, twice in one file. How does the held-out loss after 100 updates compare with that of the pages once?",
    key=lambda: "much lower" if max(two) < 0.8 * min(once) else "about the same",
    choices={
        "much lower": "",
        "about the same": "The text is the same, but which parts of it are held out?",
        "higher": "There is as much new text as before. But what is held out?",
    },
    because="The held-out pieces of one copy are in the training part of the other.",
)

# %% deck="Twice in a file: a much better number that means nothing"
# ESSENTIAL
for name, values in {"once": once, "twice": two}.items():
    mean = learned(sum(values) / len(values), 0, 9)
    print(f"{name:<6} {mean} bits per byte on held-out text")
print(f"repeated: once {few.repeated:.0%}, twice {double.repeated:.0%}")
# END
print(f"the floor of new stories is {double.bits_per_byte(double.floor):.2f}")

# %% tags=["source-hidden"] evidence="twice" tried="seeds"
# Checked with three seeds: the loss falls below the floor of new stories, and most is repeated.
assert max(two) < 0.8 * min(once) and double.repeated > 0.8
assert max(two) < double.bits_per_byte(double.floor)

# %% [markdown]
# The held-out loss is far lower, and the number is worthless, because what was held out in one copy was trained on in the other. It is even below the floor, which nobody can reach on new text. No error was raised. [[twice]] So the report shows how much of the held-out text is repeated.

# %% [markdown] tags=["note"]
# **Say.** Ten pages are not enough to learn English. But somebody has already trained a model on English, and you know how to open it.
#
# **Usual answers.**
# - *The real model, of course* (`the real model as it is`): It knows English. Does it know how few words these stories have?
#
# **Cut if short.** The commands.
#
# **Tried.** Two texts of 20 KB, each one run of 20 updates of all weights (AdamW, rate 1e-4, batches of 2 texts of 256 tokens): the stories 1.12 to 0.49 bits per byte, the documentation of Python, which the model has probably read, 1.14 to 0.98. From scratch three texts of each. LoRA of rank 8 (rate 2e-3, queries and values) on the stories, 20 updates: 0.87, so all weights learn faster here. 20 updates take about two minutes on one core.

# %% [markdown]
# ## 6. Stand on a real model
# 20 KB are about ten pages, not enough to learn English from. SmolLM2 has read 2 trillion tokens of it ([Ben Allal et al. 2025](https://arxiv.org/abs/2502.02737)), and `train --from` continues its training on a text of yours (lesson 18). It has never seen our stories, because a small program writes them.

# %% tags=["source-hidden"] deck="20 KB of stories. Which model needs the fewest bits for new ones?"
roads = yours_experiments.recorded()["real"]["roads"]
means = {road: sum(v) / len(v) for road, v in roads["storyworld"].items()}
predict(
    "20 KB of stories: a tiny model from scratch, the real model as it is, and the real model after 20 updates on them. Order them by bits per byte on held-out stories, fewest first.",
    key=lambda: sorted(means, key=means.get),
    ranking=list(means) if list(means) != sorted(means, key=means.get) else list(means)[::-1],
    because="The real model knows English, and after the updates it knows these stories, too.",
)

# %% tags=["source-hidden"] deck="With 20 KB, the real model wins after 20 updates"
figures.roads(roads)

# %% tags=["source-hidden"] evidence="real" tried="held-out"
# Checked: on held-out text, 20 updates beat both the model as it is and the one from scratch.
for of_text in roads.values():
    scratch, as_it_is, tuned = of_text.values()
    assert max(tuned) < min(as_it_is) and max(tuned) < min(scratch)
assert not text.stories or bits < min(map(min, roads["storyworld"].values()))

# %% [markdown]
# For both texts the real model after 20 updates needs the fewest bits, fewer than a model of your own parts from 20 KB. [[real]] With all of StoryWorld as its text, the tiny model of section 3 needs fewer still, because it has enough text of a narrow kind. For a text of yours, in a terminal:

# %%
print(yours_experiments.commands("my_text.txt" if text.stories else TEXT))

# %% [markdown] tags=["note"]
# **Say.** Three things leave this notebook: the weights in a format that others open, a page in which the model writes, and a report that says what was measured.
#
# **Ask.** At the report: "Which line would you leave out if you wanted to impress somebody?" That is the line that must be there.
#
# **Usual answers.**
# - *What came from the library* (from the room): Then somebody finds out later.
#
# **Cut if short.** The exported folder.
#
# **Tried.** Exact: the opened model gives the logits of the exported one.

# %% [markdown] deck="A page, a report and the weights"
# ## 7. Something to send
# `model_folder` makes a new folder in `work/yours/`. First the weights, in the format of Hugging Face (lesson 18):

# %%
from tinylm_classroom import export_page, model_folder, model_report
from tinylm_lib import load_hf, save_hf

folder = model_folder(text.name)
tokenizer = None if text.stories else text.tokenizer
exported = save_hf(mine.eval(), folder / "hugging_face", tokenizer=tokenizer)
text.tokenizer.save(folder / "tokenizer.json")
opened = load_hf(exported).eval()

# %% tags=["source-hidden"] evidence="exported" tried="exact"
# Checked: opened again, by the library's code, the model gives the same logits.
with torch.no_grad():
    torch.testing.assert_close(opened(ids), mine(ids), atol=1e-3, rtol=1e-3)

# %% [markdown]
# Opened again, by the library's code, the model gives the same logits. [[exported]] Then the page. It needs no Python and no network, so anybody can open it. Give it a title, and send it:

# %% deck="A page that anybody can open"
title = "A model of my text"  # try "Letters to my sister"
# ESSENTIAL
page = export_page(
    mine, text.tokenizer, folder / "my_model.html", title=title,
    beginning=openings[0], beginnings=openings, temperature=0.7,
    trained_on=f"{text.n_bytes / 1000:,.0f} KB of {text.name}",
)  # fmt: skip
# END
print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# And the report: what is good about your model, what it writes, and what was measured.

# %%
seed = 1  # try 2
sample = yours_experiments.written(mine, text, openings[0], 110, 0.7, seed)
report = model_report(
    folder / "report.html", mine, text, looks, sample=sample, title=title,
    tested=tested, compressor=packed, links={"Its page": page, "Its weights": exported},
)  # fmt: skip
print(*sorted(path.name for path in folder.iterdir()))

# %% tags=["source-hidden"] evidence="report" tried="exact"
# Checked: the report says the held-out loss, links the page, and names what is the library's.
words = report.read_text("utf-8")
assert f"{best.held_out:.2f} nats per token" in words and "From the library: " in words
assert 'href="my_model.html"' in words and f"lzma needs {packed:.2f} bits" in words

# %% [markdown]
# The report has the held-out loss, the link to the page, and a sentence that says which parts are yours and what came from the library. [[report]] The folder is in `work/yours/`; `folder.resolve()` is its path.

# %% [markdown] tags=["note"]
# **Say.** Ten questions, one for each idea that you should be able to use without looking it up. Let everyone write ten answers on paper at home, then run the cells and count.
#
# **Usual answers.**
# - *I got six* (from the room): Each answer names its lesson. Read the section, and come back to the other four.
#
# **Cut if short.** All of it: it is homework.
#
# **Tried.** Each key is computed from the model of this run.

# %% [markdown]
# ## 8. Ten questions to yourself
# Ten ideas of the course, each with a question about *your* model or a number that you can compute by hand. Every key is computed by code.

# %% tags=["source-hidden"]
from tinylm_classroom import ask_first_five, ask_last_five

ask_first_five(mine, text)

# %% tags=["source-hidden"]
ask_last_five(mine, text)

# %% tags=["source-hidden"]
# Checked: what the model does agrees with what the course says.
assert yours_experiments.changed_positions(mine, ids[:1, :16], 9) == [9, 10, 11, 12, 13, 14, 15]
assert abs(yours_experiments.untrained_loss(mine, text) - math.log(mine.config.vocab_size)) < 0.8

# %% [markdown]
# With eight right answers or more, you know the main ideas behind the code of real language models. With fewer, each answer names the lesson that explains it.

# %% [markdown] tags=["note"]
# **Say.** You have a model that you can explain down to the last multiplication, and a page to send.
#
# **Ask.** At the door: "What would you build next, and which number would tell you that it works?"
#
# **Usual answers.**
# - *A larger model* (from the room): Of which text, and what did the picture say about its size?
#
# **Cut if short.** The list.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="You have built a language model"
# ## What you have now
# You have built a language model, and you can send it to somebody.
#
# - The size of the text decides what to expect: 20 KB are learned by heart, and with 100 KB a model is better on new text. [[sizes]]
# - On a short text, wrong logits, cached logits or gradients show that a part is not the library's function. [[parity]]
# - A model that knows 20 KB of stories by heart recites long passages from an empty beginning, and not after new words. [[copies]]
# - A text that is twice in its file gives a low held-out loss that is worthless. [[twice]]
# - With 20 KB, a real model after 20 updates beats both itself and a model from scratch. [[real]]
# - The exported weights give the same logits. [[exported]]
# - The report says what was measured and what came from the library. [[report]]
#
# That is the course. What you build next is up to you.

# %% [markdown]
# ## Sources
# - Reporting a model: Mitchell et al. 2019, [*Model Cards for Model Reporting*](https://arxiv.org/abs/1810.03993).
# - Repeated text in training data: Lee et al. 2022, [*Deduplicating Training Data Makes Language Models Better*](https://arxiv.org/abs/2107.06499).
# - Copies in what a model writes: Carlini et al. 2021, [*Extracting Training Data from Large Language Models*](https://arxiv.org/abs/2012.07805).
# - Language models and compressors: Delétang et al. 2023, [*Language Modeling Is Compression*](https://arxiv.org/abs/2309.10668).
# - The real model: Ben Allal et al. 2025, [*SmolLM2: When Smol Goes Big*](https://arxiv.org/abs/2502.02737).
