# %% [markdown] deck="What has a model learned, and how would we know?"
# # 16 Inside
# **What has a model learned, and how would we know?**
#
# *Needs* lessons 03, 05, 07, 09 and 10. *Builds* two instruments: `patch` and `probe_step`. *Runs* in about 35 s on two cores.
# *Teaches* in about 45 minutes, plus 12 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: what we see inside a model is a hypothesis, and an intervention tests it. One question runs through all sections: who has the chair? The model names the owner in about four of five cases, and the class finds out why.
# The exercises are homework, or a second hour. If you have only ten minutes, show sections 1 and 2 up to the two maps.

# %% [markdown] tags=["note"]
# **Say.** Read both stories aloud, and let the class say who has the chair. Everybody is right. Then show the bars.
#
# **Ask.** After the dots: "Which rule gives exactly these dots? Find two."
#
# **Usual answers.**
# - *It is a little unsure everywhere* (from the room): Then all dots would be near four fifths. Is any group there?
# - *Trades are hard* (from the room): The first row has stories with a trade *and* a gift.
# - *It knows when one person has everything* (from the room): Good. Which text would separate this from a rule that only copies a name?
#
# **Cut if short.** The control.
#
# **Tried.** Four sets of 300 stories: after one gift 166 of 166, 172 of 172, 169 of 169 and 181 of 181 are right, the lowest probability is 0.96; after a trade 40 to 58 % are right, after two gifts 43 to 62 %, together 82 to 85 %. The shortcut, ten other pairs of names, ten stories each, five kinds of gifts with a trade and without, both questions: the lowest probability of the receiver is 0.987. A trade alone: 0.48. After all 28 pairs of events the answers about thing 1 and thing 2 differ by at most 0.001.

# %% [markdown] deck="Who has the white chair?"
# ## 1. Who has the chair?
# Two stories differ in one sentence: in the first, Mia gives Carlos her white chair, in the second they trade their things. Who has the chair at the end? Answer first, and then look at what the model of the earlier lessons says.

# %%
from tinylm_classroom import inside_figures as figures, owners, predict
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
seed = 1  # try 2 and 3
people = owners.cast(10, seed)  # the words of ten stories

# %% tags=["source-hidden"] deck="After a gift the model is sure, after a trade it is not"
figures.two_stories(model, tokenizer, people[0])

# %% [markdown]
# The right answer is *Carlos*, twice. How often is the model right about an owner in 300 stories of StoryWorld? By the rules of that world each of these names is certain, so a perfect reader is always right.

# %%
SEED = 16
found = owners.named_owners(model, tokenizer, 300, SEED)
rights = {group: right for group, (_, right) in found.items()}
n_right = sum(int(right.sum()) for right in rights.values())
n_names = sum(len(right) for right in rights.values())
print(f"right: {n_right} of {n_names} names, {n_right / n_names:.0%}")

# %% tags=["source-hidden"] deck="Sure after one gift, lost after a trade or two gifts"
figures.by_event(found)

# %% tags=["source-hidden"] evidence="sure-or-lost" tried="held-out"
# Checked: right in every story with one gift, and about a coin in the others.
one_gift, traded, two_gifts = rights.values()
assert one_gift.all() and found["one gift"][0].min() > 0.9
assert all(abs(right.float().mean() - 0.5) < 4 * (0.25 / len(right)) ** 0.5 for right in (traded, two_gifts))

# %% [markdown]
# Where does the number come from? With one gift the model is always right, otherwise about half of the time: no group is at four fifths. [[sure-or-lost]] Where it is sure, one person has *both* things. So has the model learned **who has everything**? A simpler rule fits all dots as well: **copy the name of the one who received a gift.**
#
# ### Two rules, one experiment
# Both rules agree on every story of StoryWorld, so only an impossible story can separate them: Mia gives Carlos the chair, so that he has both things, and *then* they trade. Now Mia has everything, but Carlos is the one who received the gift.


# %% tags=["source-hidden"] deck="Mia gave Carlos the chair, then they traded. Whom does the model name?"
answer = owners.who(model, tokenizer, people, ["A gives", "trade"])
predict(
    "Mia gave Carlos her chair, then they traded their things. Whom does the model name?",
    key=lambda: "Carlos, who received the gift" if answer["B"] > 0.9 else "?",
    choices={
        "Mia, who has everything now": "So it would be if the model followed the things.",
        "Carlos, who received the gift": "",
        "both with about one half": "So it would be if a trade made the model give up.",
    },
    because="It copies the receiver of the gift, and the trade after it changes nothing.",
)

# %% [markdown]
# A is the person who comes first in the story, B the other one; *A gives B's thing* is impossible, because B has it. Can you find events after which it matters *which* thing the question is about?

# %% deck="Task: does it ever matter which thing the question is about?"
from tinylm_classroom import control, show_text


def show_who(first="A gives", then="trade", thing=1):
    events = [event for event in (first, then) if event != "nothing"]
    found = owners.who(model, tokenizer, people, events, thing)
    show_text([f"{role} has thing {thing}: {p:.2f}" for role, p in found.items()])


# ESSENTIAL
then = ["nothing", "trade", "A gives"]
control(show_who, frames=12, first=[*owners.EVENTS], then=then, thing=[1, 2])
# END

# %% tags=["source-hidden"] evidence="copies-receiver" tried="held-out"
# Checked with other pairs of names: the receiver is named, whatever is given, asked or traded.
for seed, pair in enumerate((("Ben", "Omar"), ("Elsa", "Yuki"), ("Kofi", "Greta"))):
    lowest, after_trade = owners.of_receivers(model, tokenizer, owners.cast(10, 70 + seed, pair))
    assert lowest > 0.9 and (after_trade[0] - after_trade[1]).abs().max() < 0.15
    assert 0.3 < after_trade.mean() < 0.7

# %% [markdown]
# Never: it names the receiver, whatever was given, whatever the trade does and whatever the question is about. [[copies-receiver]] The model has found a **shortcut**: a simpler rule that is right in most of the stories it has learned from. The score did not show that, and neither did the dots.

# %% [markdown] tags=["note"]
# **Say.** Two questions that sound alike: is it there, and does the model use it? The upper map needs a reader that we train, the lower one needs the model alone.
#
# **Usual answers.**
# - *The model has written the answer there to use it later* (`the other name`): That is what the upper map suggests. Nobody has tested it yet.
# - *It is stored in many places, so one exchange is not enough* (from the room): A good rival. Section 2 ends with it.
# - *All texts get the position of the first* (`position of the first text`): `at` has an entry for each text.
# - *The later vectors must be exchanged as well* (`from there on`): They are computed from this one. That is why the model continues.
#
# **Cut if short.** The trace.
#
# **Tried.** Five other sets of texts: at the full stop after block 1 the reader is right in all 80, and the exchange gives the other name 0.000 to 0.001. All 14 together: 0.000 to 0.001, after block 0 and after block 1. Receiver and last word together: 0.997 to 0.999. Five other pairs of names and both wordings, the receiver after block 0: 0.99 to 1.00. After block 1, last word and receiver: Amara and Nora 0.57 and 0.44, Elsa and Sofia 0.26 and 0.63, Mia and Felix 0.28 and 0.75, Ines and Ben 0.08 and 0.91; both together 1.00, all in between 0.00.

# %% [markdown] deck="Is it there? And does the model use it?"
# ## 2. What can be read, and what is used?
# Inside, each word has a vector in the residual stream (lesson 09), at four depths. We take texts that differ only in the gift, A gives or B gives, and ask two questions about each vector.
#
# - **Can the receiver be read here?** We fit a linear map to the vectors of 160 texts and count how often it finds the receiver in 80 new ones.
# - **Does the model use it?** We exchange this one vector for that of the other text and let the model continue. This is activation patching, as in lesson 10 ([Vig et al. 2020](https://arxiv.org/abs/2004.12265)).

# %%
from tinylm_classroom import reading

SEED = 2
readable = reading.readable(model, tokenizer, SEED, fit_to=160, new=80)  # (4, W)
used = reading.used(model, tokenizer, SEED)  # (4, W)
full_stop = reading.FULL_STOP - reading.FIRST
print(f"full stop, after block 1: found in {readable[2, full_stop]:.0%} of new texts")

# %% tags=["source-hidden"] deck="The full stop holds the receiver. We exchange its vector: whom does the model name?"
predict(
    "We exchange this vector, at the full stop of the gift, for that of the other text. Whom does the model name?",
    key=lambda: "the same name as before" if used[2, full_stop] < 0.05 else "the other name",
    choices={
        "the same name as before": "",
        "the other name": "So it would be if the model had written its answer here, to use it later.",
        "both with about one half": "So it would be if it weighed this copy against others.",
    },
    because="The name can be read here, but the model does not take it from here.",
)

# %% tags=["signature", "source-hidden"] deck="What can be read is not what is used"
figures.maps(readable, used)

# %% tags=["source-hidden"] evidence="readable-not-used" tried="held-out"
# Checked with other texts: readable at the full stop, used at the receiver and the last word only.
SEEDS = (3, 4)
for seed in SEEDS:
    after = reading.used(model, tokenizer, seed, n=4)
    other_words = [i for i in range(22) if i not in (3, 21)]
    of_others = reading.used(model, tokenizer, seed, n=4, names=("Amara", "Nora"))
    assert of_others[:, other_words].max() < 0.05 and 0.3 < of_others[2, 21] < 0.8 > 0.3 > after[2, 21]
    assert after[:2, 3].min() > 0.9 and after[3, 21] > 0.9 and after[:, other_words].max() < 0.05
assert readable[2, [full_stop, 9, 21]].min() > 0.85

# %% [markdown]
# After block 1 a reader finds the receiver at the full stop, at *they* and at many other words. But an exchange has an effect at two positions only: at the receiver's own name and, from block 1 on, at the last word, which fetches the name in two steps. How much after block 1 depends on the names. **What can be read is not what is used.** [[readable-not-used]]
#
# ### Your turn: patch
# In a batch each text can have its own position.

# %% slide="skip"
import torch

from tinylm_classroom import check, hint, keep, trace, yours

_ = torch.set_grad_enabled(False)  # nothing is trained by autograd here


# %% tags=["exercise"] name="patch" minutes=5 difficulty=2 deck="Your turn: patch"
def patch(stream, other, at):
    """stream, other (B, T, C): the same depth of two runs.
    at (B): a position for each text, 0 to T - 1.

    Returns a new tensor (B, T, C): stream, but text i has the vector
    of `other` at position at[i].
    """
    # SOLUTION
    patched = stream.clone()
    texts = torch.arange(len(at))
    patched[texts, at] = other[texts, at]
    return patched
    # END


# %% tags=["check"]
if check("patch", patch).passed:
    keep("patch", patch)

# %% slide="skip"
hint("patch")

# %% [markdown] tags=["solution"]
# A copy, and two index tensors that go hand in hand. Common mistakes: `patched[:, at]`, which changes every text at the positions of all texts; no copy, so that the second exchange finds the traces of the first.

# %% [markdown]
# After the exchange the model continues from this depth:

# %%
put = yours("patch", patch)  # the solution, until yours passes
names = ("Mia", "Carlos")  # try ("Amara", "Nora")
ten = owners.cast(10, 1, names)
given = [owners.texts_of([event], ten) for event in ("A gives", "B gives")]
coded = [owners.encoded(tokenizer, texts) for texts in given]
runs = [reading.streams(model, each) for each in coded]  # (4, B, T, C) each
givers = owners.name_ids(tokenizer, ten, "A")  # (B, 1)


def read_on(stream, depth):
    at = torch.arange(stream.shape[1])  # (T)
    for block in model.blocks[depth:]:
        stream = block(stream, at)  # (B, T, C)
    end = model.final_norm(stream[:, -1])  # (B, C)
    return model.lm_head(end).softmax(-1)  # (B, V)


trace(read_on, runs[0][1], 1, sizes={"B": 10, "T": 63, "C": 128, "V": 345})


# %%
def exchanged(depth, positions):
    """The giver's probability, if these vectors come from the other text."""
    stream = runs[0][depth]  # (B, T, C)
    for position in positions:
        stream = put(stream, runs[1][depth], torch.full((10,), position))
    return read_on(stream, depth).gather(-1, givers).mean().item()


word = "(receiver)"  # try "." and "to"
place = reading.FIRST + reading.WORDS.index(word)
print(f"{word} exchanged:", *(f"{exchanged(i, [place]):.2f}" for i in range(4)))

# %% [markdown]
# These are the columns of the lower map. A rival: the receiver is stored at so many positions that one exchange is not enough. So we exchange **all** positions between the gift and the last word.

# %% deck="Nothing in between is used, the receiver and the last word are everything"
depth = 2  # try 1
between = range(reading.FULL_STOP, reading.LAST)
print(f"all {len(between)} in between: {exchanged(depth, between):.2f}")
both = [reading.RECEIVER, reading.LAST]
print(f"receiver and last word: {exchanged(depth, both):.2f}")

# %% tags=["source-hidden"] evidence="not-redundant" tried="held-out"
# Checked at two depths; and for other names and the other wording the receiver is what counts.
for before in (1, 2):
    assert exchanged(before, between) < 0.05 and exchanged(before, both) > 0.95
for pair in (("Ben", "Omar"), ("Elsa", "Yuki"), ("Kofi", "Greta")):
    assert min(reading.moved_by_receiver(model, tokenizer, owners.cast(8, 4, pair))) > 0.9

# %% [markdown]
# All of them together change nothing, and the receiver with the last word changes everything, so the rival is refuted. [[not-redundant]] (Later words could still use the full stop: we have asked one question only.)
#
# **Your task:** another story, and another question. Which vectors carry the answer before block 1, and which one before block 2? Follow the dark cells upwards.

# %% deck="Task: follow the answer upwards, from the colour to the last word"
from tinylm_classroom import patch_view

pink_fan = "\n a pink fan with a gray book. The pink"
pink_book = "\n a gray fan with a pink book. The pink"
patch_view(model, tokenizer, pink_fan, pink_book, ("fan", "book"))

# %% [markdown]
# Before block 1 the two colours carry it, before block 2 *fan*, which has fetched its colour.

# %% [markdown] tags=["note"]
# **Say.** A probe is one neuron that we train on the frozen model. The most important question about any probe: does the model know it, or has the probe learned it?
#
# **Usual answers.**
# - *The texts are new, so it must be in the model* (`about 90 % or more`): Right number, wrong reason. Are the *words* new as well?
# - *It knows, but does not say it* (`it knows who has the thing`): Look at the numbers. Chance is one half.
# - *The probe is too weak* (from the room): A good rival. A probe with a hidden layer was tried, and a positive control shows that it could find the owner.
# - *The mean is forgotten* (`sum`): With 160 examples the step is 160 times too long.
#
# **Cut if short.** The control task; show its prediction.
#
# **Tried.** Control task, 20 tables of coins: at the thing 0.85 to 1.00 (mean 0.94), at the last word 0.39 to 0.75 (mean 0.58). Lost stories, 4,000 training texts instead of 160 and 1,200 new ones: owner 0.49 to 0.52 at all depths, with a hidden layer of 64 0.49 to 0.50; whose thing 0.50 to 0.52; who came first 0.99 to 1.00. At *belonged*, the thing and the colour of the question: owner at most 0.51. A trace: at the colour, after block 2, whose thing is 0.59 (linear) and 0.64 (hidden layer).

# %% [markdown]
# ## 3. Does it know more than it says?
# After a trade the model gives each person about one half. Is the right owner in its stream all the same? A **probe** is a reader that we train: one neuron with weights w and bias b on vectors of the frozen model. With the score $s = w \cdot x + b$ its probability for label 1 is $p = \sigma(s)$, and the derivative of the loss with respect to the score is $p - y$, as in lesson 03.
#
# ### Your turn: one step of a probe


# %% tags=["exercise"] name="probe_step" minutes=7 difficulty=3 deck="Your turn: one step of a probe"
def probe_step(w, b, x, y, lr):
    """w (C), b (): the probe. x (N, C): activations.
    y (N): labels, 0.0 or 1.0. lr: the learning rate.

    The loss is the binary cross-entropy: -log of the probability that
    the probe gives to the label, averaged over the examples. Write its
    gradients by hand. Returns the new w (C) and the new b () after one
    step; the old ones stay as they are. Scores may be large.
    """
    # SOLUTION
    error = (x @ w + b).sigmoid() - y
    return w - lr * (x.T @ error) / len(y), b - lr * error.mean()
    # END


# %% tags=["check"]
if check("probe_step", probe_step).passed:
    keep("probe_step", probe_step)

# %% slide="skip"
hint("probe_step")

# %% [markdown] tags=["solution"]
# Scores (N), errors (N), then each weight moves by its feature times the error, averaged. Common mistakes: the sum instead of the mean; the step uphill; w and b changed in place.

# %%
step = yours("probe_step", probe_step)


def trained(x, y, n_steps=300):
    w, b = torch.zeros(x.shape[1]), torch.tensor(0.0)
    for _ in range(n_steps):
        w, b = step(w, b, x, y, 0.3)
    return w, b


def accuracy(probe, x, y):
    return ((x @ probe[0] + probe[1] > 0) == y.bool()).double().mean().item()


# %% [markdown]
# ### A control for the probe
# A probe has weights of its own, so it can learn what the model has never computed. To notice this, ask for something that *cannot* be in the model. Throw a coin for each of the 30 things, *kite* 1, *ring* 0, and let the probe read the coin. This is a **control task** ([Hewitt and Liang 2019](https://arxiv.org/abs/1909.03368)).

# %% slide="skip"
seen, unseen = owners.cast(80, seed=2), owners.cast(40, seed=3)
x, y = reading.gift_streams(model, tokenizer, seen)  # (4, 160, T, C), (160)
new, new_y = reading.gift_streams(model, tokenizer, unseen)  # (4, 80, T, C), (80)


def right_at(position, y, new_y):
    """How often a probe of 160 texts is right in 80 new ones, after block 1."""
    own = x[2, :, position]  # (160, C)
    probe = trained((own - own.mean(0)) / own.std(), y)
    return accuracy(probe, (new[2, :, position] - own.mean(0)) / own.std(), new_y)


SEEDS = range(5)  # of tables of coins
places = {"at the thing": reading.THING_ASKED, "at the last word": reading.LAST}
found_coins = {}
for place, position in places.items():
    each = [right_at(position, *reading.coins(seed, seen, unseen)) for seed in SEEDS]
    found_coins[place] = sum(each) / len(each)

# %% tags=["source-hidden"] deck="A probe reads coins that we have thrown. How often is it right?"
predict(
    "A probe at the thing of the question learns the coins in 160 texts. How often is it right in 80 new ones?",
    key=lambda: "about 90 % or more" if found_coins["at the thing"] > 0.82 else "?",
    choices={
        "about half": "So it would be if the coin were thrown for each text. It belongs to the word.",
        "about 90 % or more": "",
    },
    because="The texts are new, but the words are not: the probe has learned a table of words that the model never had.",
)

# %% deck="A probe can learn what the model has never known"
from tinylm_classroom import learned

for place, position in places.items():
    right = learned(right_at(position, y, new_y), 0.4, 1)
    print(f"{place:<17} receiver {right}, coins {learned(found_coins[place], 0.35, 1)}")

# %% tags=["source-hidden"] evidence="control-task" tried="seeds"
# Checked: at the thing the coins are read, at the last word the receiver.
assert found_coins["at the thing"] > 0.82 and right_at(reading.THING_ASKED, y, new_y) < 0.9
assert right_at(reading.LAST, y, new_y) > 0.95 and found_coins["at the last word"] < 0.65

# %% [markdown]
# At the thing the probe reads coins that the model has never seen, better than it reads the receiver, so a high accuracy there proves nothing. At the last word it reads the receiver always, and the coins little better than chance. [[control-task]]
#
# ### The stories in which it is lost
# Now the stories after a trade, or two gifts. Three probes at the last word, at each depth: who has the thing, who came *first* in the story, and *whose* thing the question is about, the first or the second person's.

# %% slide="skip"
ends, labels = reading.lost_ends(model, tokenizer, seen[:40])  # (4, N, C)
new_ends, new_labels = reading.lost_ends(model, tokenizer, unseen[:20])
middle, size = ends.mean(1, keepdim=True), ends.std((1, 2), keepdim=True)
ends, new_ends = ((v - middle) / size for v in (ends, new_ends))
knows = {}
for question, label in labels.items():
    probes = [trained(vectors, label) for vectors in ends]  # one for each depth
    new_label = new_labels[question]
    knows[question] = [accuracy(probes[i], new_ends[i], new_label) for i in range(4)]

# %% tags=["source-hidden"] deck="Lost after a trade: what does a probe find?"
predict(
    "After a trade, or two gifts: what does a probe at the last word find?",
    key=lambda: "only who came first" if [max(row) > 0.8 for row in knows.values()] == [False, True, False] else "?",
    choices={
        "it knows who has the thing": "Then the model would know more than it says. Compare with chance, one half.",
        "nothing": "The probe is not blind: one of the three can be read from these vectors.",
        "only who came first": "",
    },
    because="Nothing at the last word says who has the thing, although the order of the two people is there.",
)

# %% tags=["source-hidden"] deck="It knows who came first, not who has the thing"
figures.probed(knows)

# %% tags=["source-hidden"] evidence="knows-no-more" tried="held-out"
# Checked: a hidden layer finds no more, although it does when the missing label is written in.
assert torch.equal(labels["who has it"], (labels["who came first"] != labels["whose thing"]).float())
assert max(knows["who has it"] + knows["whose thing"]) < 0.65 and max(knows["who came first"]) > 0.9
own, written = reading.hidden_layer(ends[2], labels, new_ends[2], new_labels)
assert own < 0.68 and written > 0.9

# %% [markdown]
# As far as these readers can tell, the model does not know more than it says. There is a reason: in these stories the owner is the *exclusive or* of who came first and whose thing it is, and the second cannot be read here. [[knows-no-more]] (An exclusive or is not linear, but a probe with a hidden layer found no more. It does find the owner as soon as we write the missing label into the vectors.)

# %% [markdown] tags=["note"]
# **Say.** A probe gives a direction. If the model uses it, a push along it must change what the model writes, and a push along other directions must not.
#
# **Usual answers.**
# - *Any random ones* (from the room): Most of them point where no text ever differs from another. Fair ones vary as the texts do.
#
# **Cut if short.** The last paragraph.
#
# **Tried.** 200 directions of each kind, two sets, half the distance: the probe's changes the probability by 0.38 backwards and 0.43 forwards; any direction by at most 0.20 and 0.25; one that varies as the trade texts by at most 0.24 and 0.27 (2 and 7 % above 0.2); one that varies as the gift texts: 93 % above 0.2, median 0.42. At strength 2, 64 % of the third kind move it by more than 0.2, so a large push proves little. The first principal direction of the gift texts has 95 % of their variance and a cosine of 0.9996 with the probe's. Two distances at the full stop leave Mia at 0.00; at the last word they give 0.96. Other names, half a distance, median, 90 % and largest of 20 directions as trades vary, against the probe's: Elsa and Sofia 0.08, 0.25, 0.31 against 0.47; Amara and Nora 0.17, 0.38, 0.42 against 0.57. A push of 1 after a gift: Amara and Nora 1.00 to 0.45 and 0.00 to 0.69, Elsa and Sofia 1.00 to 0.70 and 0.00 to 0.30. Half a distance is 4 to 7 times the spread of the trade texts.

# %% [markdown] deck="Does the model use the probe's direction?"
# ## 4. A direction that changes what it says
# The weights of a probe are a direction in the stream. Does the *model* use it? We push the vector at the last word along it, after block 1, and let the model continue. A push of 1 is the distance between the means of the two kinds of gifts.

# %%
gifts = x[2, :, reading.LAST]  # (160, C)
weights, _ = trained((gifts - gifts.mean(0)) / gifts.std(), y)
direction = weights / weights.norm()  # (C)
distance = (gifts[y == 1].mean(0) - gifts[y == 0].mean(0)) @ direction
mia = tokenizer.encode(" Mia")[0]
trade_ids = owners.encoded(tokenizer, owners.texts_of(["trade"], seen))  # (80, T)
trades = reading.streams(model, trade_ids)[2]  # (80, T, C)


def pushed(texts, strength, way=direction, at=-1):
    """The mean probability of Mia, if vectors (B, C) at one position are pushed."""
    moved = texts.clone()  # (B, T, C)
    moved[:, at] += strength * distance * way
    return read_on(moved, 2)[:, mia].mean().item()


strength = 0.5  # try -0.5 and 2
print(f"Mia {pushed(trades, 0):.2f}, pushed {pushed(trades, strength):.2f}")
strengths = [-2, -1, -0.5, 0, 0.5, 1, 2]
mias, carloses = new[2, new_y == 1], new[2, new_y == 0]  # who received
kinds = {"after a trade": trades, "Mia received": mias, "Carlos received": carloses}
curves = {kind: [pushed(v[:16], s) for s in strengths] for kind, v in kinds.items()}

# %% tags=["source-hidden"] deck="The direction in which gifts differ changes the answer"
SEED = 8
ways = reading.kinds_of_directions(direction, trades[:, -1], gifts, SEED)
changes = {name: reading.largest_changes(lambda way: pushed(trades[:8], 0.5, way), each) for name, each in ways.items()}
figures.steered(strengths, curves, changes)

# %% tags=["source-hidden"] evidence="steered" tried="seeds"
# Checked: more than nearly all fair directions; and the gifts vary along one direction.
above = {name: sum(change > 0.33 for change in each) / len(each) for name, each in changes.items()}
assert above["the probe's"] == 1 and max(above["any direction"], above["as trades vary"]) < 0.05
_, sizes, main = torch.linalg.svd(gifts - gifts.mean(0), full_matrices=False)
assert sizes[0] ** 2 / (sizes**2).sum() > 0.85 and (main[0] @ direction).abs() > 0.98 and above["as gifts vary"] > 0.7
assert pushed(carloses, 1) < 0.3 and pushed(carloses, 2) > 0.7
assert 0.5 * distance > 3 * trades[:, -1].var(0).sum().sqrt()

# %% [markdown]
# Half the distance moves the probability most of the way to 0 or 1. Along an arbitrary direction texts may not differ at all. So in the third row each direction is a random mixture of differences between trade texts. Most of them do much less. [[steered]] In the last row they are mixtures of differences between *gift* texts, and nearly every one works as well as the probe's: the receiver is the largest difference between those vectors, so no probe was needed to find it.
#
# Where Mia or Carlos received a gift, a push of 1 hardly changes the answer, because block 2 reads the name once more. With Amara and Nora it moves by more than half.

# %% [markdown] tags=["note"]
# **Say.** We know where the name is. What tells the model *which* of the two names to fetch? Try the smallest change that turns the answer around.
#
# **Usual answers.**
# - *The name itself must be exchanged* (from the room): Try less. What distinguishes the two names in the text?
# - *All models have the mark in the same head* (`the same head`): Nothing in the training says which head has which work.
#
# **Cut if short.** The line with the other wording.
#
# **Tried.** 30 other pairs of names, two sets of texts: head 1 of layer 0 exchanged: giver 0.98 and 0.99; each of the seven others at most 0.01. *Handed*: 0.11 to 0.21 by head 1, 0.98 to 0.99 by heads 1 and 2. Without head 1 the receiver keeps 0.97. Ten pairs, six texts each: both marks exchanged 0.97 to 1.00, only the giver's wrong 0.07 to 0.40, only the receiver's 0.08 to 0.40. Without heads 0 and 1 the receiver has 0.71 (B receives) and 0.54 (A), heads 1 and 3 0.87 and 0.92, heads 1 and 2 0.98 and 0.99. The second model (other start, other batches, 1,800 updates): one gift 116 of 116 right; all kinds of gifts, ten pairs: lowest 0.982; layer 1, head 2 exchanged: giver 0.96 (*handed*: 0.54, all of layer 1: 1.00); all four heads of layer 0 together: 0.01.

# %% [markdown] deck="What tells the model which name to fetch?"
# ## 5. Which head marks the receiver?
# Blocks 1 and 2 fetch the name from its own position. But how do they know which of the two names to fetch? Where do the heads of layer 0 look, at the two names?

# %%
from tinylm_classroom import capture

head = 1  # try 0 and 3
pairs = owners.ten_pairs()
crowd = [said for pair in pairs for said in owners.cast(2, 60, pair)]
ids = owners.encoded(tokenizer, owners.texts_of(["A gives"], crowd))  # (20, T)
looks = capture(model, ids).attention(0).weights[:, head].mean(0)  # (T, S)
for name, at in {"giver": reading.GIVER, "receiver": reading.RECEIVER}.items():
    most = int(looks[at].argmax())
    word = tokenizer.decode([ids[0, most].item()]).strip()
    print(f"at the {name} it gives {looks[at, most]:.2f} to {word}")

# %% [markdown]
# At the receiver, head 1 looks at *gave*. A hypothesis: it **marks** the name that comes after *gave*, and later heads fetch the marked name. If so, we can exchange the two marks and nothing else, and the model must name the giver. The hook exchanges what some heads of a layer have found; `finally` removes it even if the model fails.


# %%
def marks_exchanged(model, layer, heads, ids, at):
    """Everything inside, if these heads' results are moved: at = {to: from}."""

    def exchange(_, inputs):
        found = inputs[0].unflatten(-1, (4, -1)).clone()  # (B, T, H, D)
        for head in heads:
            found[:, list(at), head] = found[:, list(at.values()), head]
        return (found.flatten(-2),)

    mixing = model.blocks[layer].attention.o_proj
    hook = mixing.register_forward_pre_hook(exchange)
    try:
        return capture(model, ids)
    finally:
        hook.remove()


# %% slide="skip"
gave_at = {reading.GIVER: reading.RECEIVER, reading.RECEIVER: reading.GIVER}
ids_of_givers = owners.name_ids(tokenizer, crowd, "A")  # (20, 1)


def giver_named(model, layer, heads, ids, at):
    logits = marks_exchanged(model, layer, heads, ids, at).logits[:, -1]  # (B, V)
    return logits.softmax(-1).gather(-1, ids_of_givers).mean()


def mark_map(model):
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    found = [giver_named(model, layer, [head], ids, gave_at) for layer, head in heads]
    return torch.stack(found).view(2, 4)


# %% [markdown]
# But this is one model. So we have trained a second one, with another random start and other batches. It copies the receiver as well. Which of its heads has the mark?

# %%
from tinylm_classroom import second_model

second = second_model()
mark_maps = {"this model": mark_map(model), "another start": mark_map(second)}
best = {name: divmod(int(values.argmax()), 4) for name, values in mark_maps.items()}
print("in this model: layer, head", best["this model"])

# %% tags=["source-hidden"] deck="Another random start: where is the mark?"
predict(
    f"In this model, head {best['this model'][1]} of layer {best['this model'][0]} has the mark. And with another start?",
    key=lambda: "in another layer" if len({layer for layer, _ in best.values()}) == 2 else "in the same head",
    choices={
        "in the same head": "Nothing in training decides which head gets which work. The start does.",
        "in another head of the same layer": "The heads of a layer could change places, and nothing would differ. But the layer may differ, too.",
        "in another layer": "",
    },
    because="Both models copy the receiver, but the second one finds it a layer later.",
)

# %% tags=["source-hidden"] deck="Same shortcut, another head"
figures.marks(mark_maps)

# %% tags=["source-hidden"] evidence="another-head" tried="held-out"
# Checked: one head in each model; the second one has learned the same shortcut.
assert mark_maps["this model"][0, 1] > 0.9 and mark_maps["another start"][1, 2] > 0.9
assert all(values.flatten().sort().values[-2] < 0.1 for values in mark_maps.values())
for pair in pairs[:3]:
    assert owners.of_receivers(second, tokenizer, owners.cast(10, 7, pair))[0] > 0.8

# %% [markdown]
# In both models one head alone turns the answer around in sentences with *gave*. The shortcut is the same, but its place is not: *head 1 of layer 0* means nothing in another model. [[another-head]]
#
# Is this *the* mark? Two tests can refute it: the other wording of StoryWorld, *handed ... to*, and a removal, as in lesson 07.

# %%
from tinylm_lib.interventions import intervene

handed_ids = owners.encoded(tokenizer, owners.texts_of(["A hands"], crowd))  # (20, T)
handed_at = {reading.GIVER: reading.HANDED_TO, reading.HANDED_TO: reading.GIVER}
for heads in ([1], [1, 2]):
    p = giver_named(model, 0, heads, handed_ids, handed_at)
    print(f"handed, heads {heads} exchanged: giver {p:.2f}")
one_mark = [giver_named(model, 0, [1], ids, {at: gave_at[at]}) for at in gave_at]
print("gave, one mark wrong: giver", *(f"{p:.2f}" for p in one_mark))
removed = [(0, 1)]  # try [(0, 1), (0, 0)]
with intervene(model, silence=removed):
    kept = owners.who(model, tokenizer, crowd, ["A gives"])["B"]
print(f"gave, {removed} removed: receiver {kept:.2f}")

# %% tags=["source-hidden"] evidence="not-the-only-mark" tried="held-out"
# Checked with ten pairs: in *gave* both marks turn the answer, one does not; and others mark, too.
assert giver_named(model, 0, [1], ids, gave_at) > 0.9 > 0.4 > giver_named(model, 0, [1], handed_ids, handed_at)
assert giver_named(model, 0, [1, 2], handed_ids, handed_at) > 0.9 and max(one_mark) < 0.45
for silence, low, high in (([(0, 1)], 0.85, 1), ([(0, 1), (0, 0)], 0.4, 0.85)):
    with intervene(model, silence=silence):
        assert low <= owners.who(model, tokenizer, crowd, ["A gives"])["B"] <= high

# %% [markdown]
# Both refute it. With *handed* a second head marks as well, and without head 1 the receiver is still named. (Without heads 0 and 1 far less often.) What we may say: **in sentences with *gave*, exchanging what head 1 has found at the two names is enough to turn the answer around. One wrong mark is not, and it is not the only mark.** [[not-the-only-mark]]

# %% [markdown] tags=["note"]
# **Say.** Each sentence about the inside of a model needs the experiment that could have refuted it.
#
# **Usual answers.**
# - *Then nothing can be claimed* (from the room): All that was tried can. Say for which texts.
#
# **Cut if short.** The last paragraph.
#
# **Tried.** Ten pairs of names: after *One day* 0.37 to 0.60, after *Then* 0.93 to 0.99. Means: *Soon* 0.92, *Afterwards* 0.84, *There* 0.75, *One dark morning,* 0.52.

# %% [markdown] deck="Five things we saw, and what became of them"
# ## 6. What may we claim?
# Does the model copy the name after *gave* in any text? We leave out the story around it:

# %%
opening = "One day"  # try " Then"
short = " gave {1} the red kite. By then the kite belonged to"
brief = [f"{opening} {pair[0]}" + short.format(*pair) for pair in pairs]
in_short = owners.probs_of(model, tokenizer, [pair[1] for pair in pairs], brief)
print(f"after {opening!r}: the receiver has {in_short.mean():.2f}")

# %% tags=["source-hidden"] evidence="short-texts" tried="held-out"
# Checked with all ten pairs: it depends on how the sentence begins.
for begins, low, high in (("One day", 0.3, 0.7), (" Then", 0.85, 1), (" Soon", 0.8, 1)):
    brief = [f"{begins} {pair[0]}" + short.format(*pair) for pair in pairs]
    assert low <= owners.probs_of(model, tokenizer, [pair[1] for pair in pairs], brief).mean() <= high

# %% [markdown]
# Change the line: the model copies after a beginning that gifts have in StoryWorld (*Then*, *Soon*); after *One day* it is a coin. [[short-texts]] So each claim holds for the texts that we have tried.
#
# | we saw | it suggested | we changed | it turned out |
# |---|---|---|---|
# | sure after one gift | it knows who has everything | a trade after the gift | it copies the receiver |
# | the receiver can be read at the full stop | it is stored there | exchanged the vector | it is not used |
# | a probe reads coins | the model knows them | nobody ever told it the coins | the probe learned a table |
# | a direction changes the answer | the probe found it | random ones that vary as gifts | no probe was needed |
# | head 1 marks the name | this is the mark | *handed*, and another start | other heads mark, too |
#
# In large models a single direction or neuron often means several things, because there are more features than directions (superposition, lesson 08, [Elhage et al. 2022](https://transformer-circuits.pub/2022/toy_model/index.html)). **Sparse autoencoders** take such vectors apart into many features that are rarely active ([Cunningham et al. 2023](https://arxiv.org/abs/2309.08600)). The question stays the same: what happens if you change one?

# %% [markdown] tags=["note"]
# **Say.** Look, then change, then say only what survived.
#
# **Ask.** At the door: "Somebody reports a truth neuron in a large model, found by a probe. Which three questions do you ask?"
#
# **Usual answers.**
# - *Is the accuracy high?* (from the room): Compared with what? (A control task, an intervention, other texts.)
#
# **Cut if short.** The list; students read it.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="Look, then change, then say only what survived"
# ## What you have now
# - A score can hide a rule: the model is always right about an owner after one gift, and about half of the time otherwise. [[sure-or-lost]]
# - In stories like StoryWorld's it copies the receiver of a gift, and does not track who has what. [[copies-receiver]]
# - What can be read is not what is used: the receiver is readable at many positions, and taken from two. [[readable-not-used]]
# - A probe can learn what the model never knew, so it needs a control task. [[control-task]]
# - Where the model is lost, no probe found the owner at the last word: one of the two labels that determine it is not there. [[knows-no-more]]
# - After a trade, a push along the direction in which gifts differ changes the answer; most other directions change it less. [[steered]]
# - A second model, from another start, learned the same shortcut and in sentences with *gave* it marks the receiver in another head. [[another-head]]
# - Exchanging both marks of one head turns this answer, one wrong mark does not. Others mark, too. [[not-the-only-mark]]
#
# Next, lesson 17: can a model be taught what we *want*?

# %% [markdown]
# ## Sources
# - Activation patching: Vig et al. 2020, [*Investigating Gender Bias in Language Models Using Causal Mediation Analysis*](https://arxiv.org/abs/2004.12265).
# - Probes: Hewitt and Liang 2019, [*Designing and Interpreting Probes with Control Tasks*](https://arxiv.org/abs/1909.03368).
# - A circuit of heads in GPT-2: Wang et al. 2022, [*Interpretability in the Wild*](https://arxiv.org/abs/2211.00593).
# - Superposition: Elhage et al. 2022, [*Toy Models of Superposition*](https://transformer-circuits.pub/2022/toy_model/index.html). Sparse autoencoders: Cunningham et al. 2023, [*Sparse Autoencoders Find Highly Interpretable Features in Language Models*](https://arxiv.org/abs/2309.08600).
