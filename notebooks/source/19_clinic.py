# %% [markdown] deck="Something is wrong, and nothing raises an error"
# # 19 Clinic
# **Something is wrong, and nothing raises an error. Where do you look first?**
#
# *Needs* lessons 00 to 18; each patient says which one it needs most. *Builds* a method: a tree of questions, and `bisect`. *Runs* in about 45 s on two cores.
# *Teaches* in about 45 minutes, plus 20 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a model that is wrong rarely says so. There is no traceback, only a number that is not what it should be. So you ask questions in a fixed order, and each answer is a measurement.
# It is a game for pairs: twelve patients, and the clinic counts who is diagnosed at the first try. Insist that both say what they expect before they measure. Each patient is a real run of a second or so with one fault; students see a story and instruments, and never the source. If you have only ten minutes, show sections 1 and 2 and one patient.

# %% [markdown] tags=["note"]
# **Say.** A compiler finds a misspelled name. It does not find a misplaced mask: the model trains, the loss falls, and only the result is bad.
#
# **Usual answers.**
# - *It falls smoothly, so it is healthy* (`A`): So do three of the six.
# - *D has the lowest loss* (from the room): Too low. On new texts, too, it is below a line that no model can go under.
# - *E, because it is lower than A and C* (`E`): A matrix is missing, and it is lower by chance.
# - *Two curves are a bit different, so one must be ill* (from the room): Run the healthy one with another seed: the difference is as large.
#
# **Cut if short.** Nothing; it is short.
#
# **Tried.** Seeds 0 to 5: with the matrix that never changes the loss ends at 1.88, 2.10, 2.14, 2.12, 2.00 and 2.21, without the fault at 1.86, 2.12, 2.07, 2.12, 2.03 and 2.14: the largest difference is 0.07, and seeds differ by 0.28. So it is with 7 of the 8 matrices (seeds 0 to 2: -0.16 to 0.09); without the embedding's updates the loss ends 3.3 to 3.5 higher. The hundred hooks cost less time than the noise: count them instead.

# %% [markdown]
# ## 1. Who is healthy?
# Welcome to the clinic. Six owners have brought the loss curves of their models, and five of these models have a fault. None of them has raised an error.

# %% slide="skip"
from tinylm_classroom import clinic_figures as figures
from tinylm_classroom import ill_runs, patient, predict

SEED = 0
six = ill_runs.six(SEED)

# %% tags=["source-hidden"] deck="Six training runs, and one of them is healthy"
figures.curves({letter: who.losses() for letter, (who, _) in six.items()}, ill_runs.floor())

# %% tags=["source-hidden"] deck="Vote: A, C or E?"
letter_of = {name: letter for letter, (_, name) in six.items()}
predict(
    "B, D and F look ill. Which one of the other three is healthy?",
    key=lambda: letter_of["healthy"],
    choices={
        "A": "Its losses are right. But each of its updates calls one function more than the one before.",
        "C": "",
        "E": "It has the lowest end. But one of its matrices still has the random numbers of the first day.",
    },
    because="A and E have faults that a loss curve does not show. D is below the floor on new texts, too.",
)

# %% tags=["source-hidden"] evidence="loss-hides" tried="seeds"
# Checked: with a matrix that is never updated, and with hooks that stay, the loss is as without.
for who in (six["E"][0], patient("left behind", SEED)):
    assert who.number("matrices that never change although they have a gradient") == 1
    assert abs(who.number("loss at the end") - who.healthy_number("loss at the end")) < 0.35
slow = six["A"][0]
assert abs(slow.number("loss at the end") - slow.healthy_number("loss at the end")) < 0.02

# %% [markdown]
# You cannot see it: a curve hides most single matrices that never learn, because the others learn around them. [[loss-hides]] Training **fails silently**, writes Andrej Karpathy in *A Recipe for Training Neural Networks* ([Karpathy 2019](https://karpathy.github.io/2019/04/25/recipe/)). That is why experts do not guess. They measure, and they begin with what is cheap.

# %% [markdown] tags=["note"]
# **Say.** The tree is the only thing to take home. Go down as long as the answer is yes.
#
# **Usual answers.**
# - *The learning rate* (from the room): That is tuning, the last step. Tuning a model that has a fault hides the fault.
# - *The first question finds nobody, so it is useless* (from the room): It costs one forward pass, and excludes two: initial weights that are too large, and a loss that is not a mean.
#
# **Cut if short.** The list of causes.
#
# **Tried.** Seeds 0 to 5: all eight runs that train new weights begin within 0.05 nats of ln V.

# %% [markdown]
# ## 2. A tree of questions
# For language models we make a **decision tree** from the recipe. Each *yes* leads down. At the first *no* a second question says where to look.

# %% tags=["signature", "source-hidden"] deck="At the first no, a second question says where to look"
figures.tree(ill_runs.TREE)

# %% [markdown]
# `measurements()` lists the numbers under the question that they answer. A model that arrives trained starts at *Does it write as it reads?*
#
# To **overfit one batch** is part of the second of Karpathy's six steps, where the whole program is set up: a model that cannot learn eight texts by heart has a fault, and no amount of data repairs it.
#
# Now open the ward. Some patients train new weights. How do they begin?

# %% deck="All begin at ln V, and all are ill"
import itertools
import math

ward = {who.name: who for who in map(patient, range(1, 13))}
# ESSENTIAL
trained = [who for who in ward.values() if who.has("loss at the start")]
firsts = [who.number("loss at the start") for who in trained]
print(f"ln V = {math.log(345):.2f}")
apart = max(abs(first - math.log(345)) for first in firsts)
print(f"all {len(firsts)} begin within {apart:.2f} of it")
# END

# %% tags=["source-hidden"] evidence="all-start-right" tried="seeds"
# Checked with the runs of section 1, too, which have other seeds.
for who in [*trained, *(each for each, _ in six.values())]:
    assert abs(who.number("loss at the start") - math.log(345)) < 0.15

# %% [markdown]
# All begin where they should, because their first logits are tiny (lesson 10), and all have a fault: a *yes* excludes causes, it does not prove health. [[all-start-right]]
#
# The clinic has instruments. `gradients()`, `attention()`, `activations()`, `cache_against_full()`, `curve()` and `writes()` show many numbers; `measure("...")` shows one. Look around, with any patient:

# %% deck="The examination room"
from tinylm_classroom import control

instruments = ["gradients", "attention", "activations", "cache_against_full", "writes"]


def examine(who="stuck", instrument="gradients"):
    getattr(ward[who], instrument)()


# ESSENTIAL
control(examine, frames=20, who=[*ward], instrument=instruments)
# END

# %% [markdown] tags=["note"]
# **Say.** A diagnosis is a cause *and* its evidence. The clinic answers a wrong one with the number that contradicts it.
#
# **Usual answers.**
# - *The learning rate is 0* (`learning rate 0`): A good idea, and a measurable one.
# - *The data is random* (from the room): Then the loss would still move at first, because words are not equally frequent.
# - *It would reach 0 if we trained longer* (`0`): Compute the lowest possible loss instead of waiting for it.
#
# **Cut if short.** The second softmax.
#
# **Tried.** Seeds 0, 1 and 2: each of the two patients has all signs of its own cause, and none of the other 34. A second softmax: the limit is computed, 4.85; six runs end at 4.91 to 4.96.

# %% [markdown]
# ## 3. The same complaint twice
# Mia and Omar both say: it does not learn.

# %% slide="skip"
stuck, floor = ward["stuck"], ward["floor"]
stuck

# %% tags=["source-hidden"] deck="Both stop: is it the same fault?"
figures.flat({who.name: who.losses() for who in (stuck, floor)})

# %% [markdown]
# A colleague has a quick answer for Mia. A diagnosis names a cause and the measurement that shows it, `diagnose(cause, because)`:

# %% deck="A wrong guess is contradicted by a number"
cause, because = "learning rate 0", "largest learning rate"
_ = patient("stuck").diagnose(cause, because)

# %% [markdown]
# The rate is not 0. The clinic counts your tries, so measure first. What do the gradients say?

# %% deck="All gradients are exactly 0"
stuck.gradients()

# %% tags=["source-hidden"] deck="What makes every gradient 0?"
predict(
    "Every gradient is exactly 0, and the loss is ln V. What explains both?",
    key=lambda: "all weights are 0" if stuck.number("gradient norm at the start") < 1e-6 else "?",
    choices={
        "the learning rate is 0": "It is used after the gradients are computed, so they would not be 0.",
        "the batch is always the same": "Then the loss would fall quickly: one batch is easy.",
        "all weights are 0": "",
    },
    because="Each gradient is a product that contains other weights (lesson 02), and logits of 0 make all words equally probable.",
)

# %% [markdown]
# Now you. Measurements and causes have names, the same for all patients:

# %% slide="skip"
stuck.measurements()

# %% slide="skip"
stuck.causes()

# %% [markdown]
# Replace the empty texts in these cells, for Mia and then for Omar. (The values after `try` are the guesses of the colleague, who is always wrong.)

# %% slide="skip"
cause = ""  # try "learning rate too high"
because = ""  # try "largest learning rate"
_ = stuck.diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "learning rate too high"
because = ""  # try "largest loss minus the first"
_ = floor.diagnose(cause, because)

# %% [markdown] tags=["solution"]
# Mia: `"weights start at 0"` because of the `"gradient norm at the start"`. Omar: `"softmax twice"` because of the `"loss of certain, right predictions"`, which is 4.85 instead of 0.

# %% [markdown]
# Omar's model learns a little, then it stops. A loss can have a floor of its own: `cross_entropy` expects logits, but somebody gives it probabilities, and it applies softmax **again**.

# %% tags=["source-hidden"] deck="Softmax, applied twice: how low can the loss get?"
predict(
    "The right one of 345 words has p = 1 and all others 0, and softmax is applied to that again. What is the loss?",
    key=lambda: math.log(math.e + 344) - 1,
    number="nats",
    within=0.1,
    feedback={0: "So it would be with logits, which have no upper limit. Here the largest input is 1."},
    because="The right word gets e / (e + 344), less than one in a hundred, and no training can change that.",
)

# %%
lowest = math.log(math.e + 344) - 1
print(f"lowest loss after a second softmax: {lowest:.2f} nats")
floor.measure("loss of certain, right predictions")

# %% tags=["source-hidden"] evidence="second-softmax" tried="exact"
# Checked: the limit, and that both stand still for reasons that one number each separates.
assert abs(floor.number("loss of certain, right predictions") - lowest) < 1e-3 and lowest > 4.8
assert stuck.number("largest gradient norm") < 1e-6 < 1e-3 < floor.number("largest gradient norm")

# %% [markdown]
# The same complaint, two causes, and one number that separates them: Mia's gradients are 0, Omar's loss cannot get below a limit. [[second-softmax]] So ask of any number that stands still: what is the lowest value that it *can* have?

# %% [markdown] tags=["note"]
# **Say.** The next one looks healthy, and happy. A loss on new texts below their floor proves a fault.
#
# **Usual answers.**
# - *It has learned the texts by heart* (from the room): These texts are new.
# - *There is no mask at all* (`no mask`): How many keys would the first query see then?
#
# **Cut if short.** The trace.
#
# **Tried.** Seeds 0, 1 and 2: the loss on new texts is 0.51, 0.44 and 0.41, below the floor of 0.66; with a right mask it is 1.85, 1.85 and 1.73. On the next word is 0.81 to 0.97 of the attention. The floor is a mean over whole stories: without their first 20 tokens the healthy shipped model is at 0.50, and has no fault. Compare the same tokens.

# %% [markdown]
# ## 4. Too good
# StoryWorld is a program, so the floor is known (lesson 00): the exact probabilities have the lowest mean loss. Greta's model is below it:

# %%
too_good = ward["too good"]
too_good

# %% tags=["source-hidden"] deck="Where does its attention go?"
predict(
    "The loss on new texts is below the floor. Where does each word look?",
    key=lambda: "at the next word" if too_good.looks()[1].diagonal(1).mean() > 0.5 else "?",
    choices={
        "at the word before": "So it does in many healthy models. That cannot beat the exact probabilities.",
        "at the next word": "",
    },
    because="Here it can only be read ahead, and the attention shows it.",
)

# %% tags=["source-hidden"] deck="Each word looks at the word that it has to predict"
figures.looks(too_good)

# %% tags=["source-hidden"] evidence="below-floor" tried="seeds"
# Checked: below the floor with a view of the future, and above it without.
limit = too_good.number("floor of new texts")
assert too_good.healthy_number("loss on new texts") > limit + 0.2
for who in (too_good, six["D"][0]):
    assert who.number("loss on new texts") < limit - 0.05
    assert who.number("keys that the first of 8 queries sees") == 2

# %% [markdown]
# It sees the future. A loss on new texts clearly below the floor of the same tokens proves a fault: the model sees what it has to predict, the targets are wrong, the texts are not new, or the mean is counted wrongly. [[below-floor]] This is where the mask acts:

# %% deck="The mask acts between scores and softmax"
import torch

from tinylm_classroom import trace

q = torch.ones(1, 2, 3, 16)  # (B, H, T, D)
k = torch.ones(1, 2, 8, 16)  # (B, H, S, D)
allowed = torch.ones(3, 8, dtype=torch.bool).tril(5)  # (T, S)


# ESSENTIAL
def weights_of(q, k, allowed):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1)


# END
trace(weights_of, q, k, allowed, sizes={"B": 1, "H": 2, "T": 3, "S": 8, "D": 16})


# %% tags=["exercise"] name="treat_too_good" minutes=5 difficulty=2
def treat_too_good():
    """Returns the cause, its evidence and the part that you fixed:
    "cause", "measurement", {"part": function}. `too_good.parts()`
    lists the parts with their arguments, and what a healthy one does.
    """
    # SOLUTION
    import torch

    def mask(n_queries, n_keys):
        ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
        return ones.tril(n_keys - n_queries)

    return "mask shifted", "keys that the first of 8 queries sees", {"mask": mask}
    # END


# %% tags=["check"]
_ = too_good.treat(treat_too_good)

# %% slide="skip"
too_good.hint()

# %% [markdown] tags=["solution"]
# Nearly all attention goes to the *next* word, which is the target. The first query sees 2 keys: the diagonal of `tril` is one too high. Without any mask it would see all 8. The queries are the last of the keys (lesson 13), so the diagonal is `n_keys - n_queries`. Common mistakes: `tril()` without it, which hides the cache from a new token; one lower, which hides a token from itself.

# %% [markdown]
# This is the same model, trained with a healthy mask. **Your task:** find a word that still looks far back.

# %% deck="Cured: nobody looks ahead"
from tinylm_classroom import attention_view
from tinylm_lib.pretrained import load_pretrained

tokenizer = load_pretrained("storyworld").tokenizer
attention_view(too_good.healthy_model(), tokenizer, "\nOne day Mia walked to Oakhill.")

# %% [markdown] tags=["note"]
# **Say.** Here nothing is trained: it is the model that ships with the course. There are two ways to compute the same logits, and one of them is trusted.
#
# **Usual answers.**
# - *The cache loses a key* (`cache hidden`): Count how many keys a new token sees.
# - *The weights are damaged* (from the room): Then it would also read badly.
#
# **Cut if short.** Nothing; it is short.
#
# **Tried.** Six new texts: the first token agrees to 1e-5 each time, the second differs by 0.09, and later ones by more than 1.

# %% [markdown]
# ## 5. It reads well, and writes nonsense
# Kofi's patient is the model that ships with this course. Ask it for a story:

# %% deck="Kofi's model was asked for a story"
nonsense = ward["nonsense"]
nonsense.writes()

# %% [markdown]
# It reads whole texts well. Writing uses the cache (lesson 13), one token at a time. Both should give the same logits, so we can compare.

# %% tags=["source-hidden"] deck="At which token do the two ways differ first?"
apart = nonsense.apart()
predict(
    "We read a text at once, and then token by token through the cache. Which token is the first with other logits?",
    key=lambda: "the second" if apart[0] < 0.01 < apart[1] else "?",
    choices={
        "the first": "The first token has an empty cache, so both ways are the same there.",
        "the second": "",
        "the eleventh": "Nothing is special there: the cache only becomes longer.",
    },
    because="The second token is the first one that has something in the cache before it.",
)

# %% tags=["source-hidden"] deck="The first token agrees, the second one does not"
figures.apart(nonsense)

# %% tags=["source-hidden"] evidence="first-token-right" tried="held-out"
# Checked with other texts: only the first token is right, and a text that is read at once is right.
for who in (nonsense, patient("nonsense", SEED + 1), patient("nonsense", SEED + 2)):
    first, second = who.apart()[:2]
    assert first < 1e-3 < 1e-2 < second
    assert who.number("loss of a text that it reads at once") < 1.6
    assert who.number("loss of a text that it reads token by token") > 3

# %% [markdown]
# Reading at once is right, so the weights are right. The first difference points to the fault: it begins where the cache begins. [[first-token-right]] **Two ways to compute the same thing, one of them trusted, are one of the best instruments.**

# %% slide="skip"
cause = ""  # try "cache hidden"
because = ""  # try "keys that a token after 10 others sees"
_ = nonsense.diagnose(cause, because)

# %% [markdown] tags=["solution"]
# `"position restarts"` because of the `"position of a token after 10 others"`, which is 0: each new token gets position 0 again, although there are tokens before it in the cache. The mask is right: a token after ten others sees all 11 keys.

# %% [markdown] tags=["note"]
# **Say.** Now it is your clinic. Work in pairs, one measures, one writes down what both expect.
#
# **Usual answers.**
# - *The rate was too high* (`learning rate too high`): Did the loss rise before update 300?
# - *The padding is attended to* (`padding is seen`): The causal mask hides what comes later.
# - *The gradients are not averaged* (`gradients not averaged`): Then the two processes would have different weights.
# - *The reward is wrong* (from the room): It is exactly what its owner asked for.
# - *Its learning rate is too high* (`learning rate too high`): A lower one delays it.
#
# **Cut if short.** All but two patients; the others are homework.
#
# **Tried.** All twelve patients under seeds 0, 1 and 2: exactly one of 35 causes has all of its signs. beta: with 0 (seeds 0, 1, 2, 19) the log-probability of the texts is -13.8 to -18.1; with 2 (seeds 0 to 19) it is -1.2 to -5.0 and the reward gains 0.10 to 0.50 letters; with 50 it gains -0.01 to 0.10. With 0.5 half of the 20 seeds rave, and with five times the updates all of the two tried. A learning rate of 1e-3 without a hold heals two of three seeds after 25 updates; after 75 one of these two has -25.5, the other -5.5. beta 2 after 125 updates: -3.0 and -9.2 (seeds 0 and 19): a hold, too, works for a number of updates only.

# %% [markdown] deck="Eight more are in the waiting room"
# ## 6. The waiting room
# Eight more are waiting. Run a cell to see its card. Walk down the tree, measure, and only then fill in the two lines. (`ward["slower"].hint()` helps a little, and `.exchange("mask")` puts in a healthy part.)

# %% slide="skip"
cause = ""  # try "gradient cut off"
because = ""  # try "matrices without a gradient"
_ = ward["left behind"].diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "graphs kept"
because = ""  # try "losses that keep their graph"
_ = ward["slower"].diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "positions never trained"
because = ""  # try "tokens that it reads of 200"
_ = ward["until 128"].diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "logits too large"
because = ""  # try "largest logit"
_ = ward["NaN"].diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "padding is seen"
because = ""  # try "error with padding on the right"
_ = ward["padded"].diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "gradients not averaged"
because = ""  # try "difference between the weights of the processes"
_ = ward["two processes"].diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "generator not saved"
because = ""  # try "batches that differ after resuming"
_ = ward["resumed"].diagnose(cause, because)

# %% slide="skip"
cause = ""  # try "reward turned"
because = ""  # try "gain of reward"
_ = ward["rewarded"].diagnose(cause, because)

# %% [markdown] tags=["solution"]
# - *left behind*: `"not given to the optimizer"` because of `"matrices that never change although they have a gradient"`. Had the way back been cut off, `v_proj` would have no gradient.
# - *slower*: `"hooks stay"` because of the `"hooks on the block at the end"`. A hook is removed in `finally` (lesson 16).
# - *until 128*: `"wrong end of the window"` because of the `"number of the newest token that it reads of 200"`: it keeps the first 128 tokens instead of the last (lesson 13).
# - *two processes*: `"same texts"` because of the `"texts that no process reads"`: the rank is not used.
# - *resumed*: `"optimizer not saved"` because of the `"difference of the optimizer's means after loading"`. See [more: runs](more/11_runs.ipynb).
# - *NaN* and *padded*: below. *rewarded*: `"nothing holds it"` because of the `"log-probability of its texts for the model at the beginning"`.

# %% [markdown]
# ### Cures that hide
# Noah's loss becomes NaN at update 300. The colleague knows a cure: replace NaN by 0.

# %% deck="nan_to_num is refused: it hides every other explosion, too"
from torch.nn.functional import cross_entropy


# ESSENTIAL
def hide(logits, targets):
    return cross_entropy(logits.flatten(0, 1), targets.flatten()).nan_to_num()


# END
hidden = ward["NaN"].fix(loss=hide)

# %% [markdown]
# Refused: the number is gone and the fault is not.
#
# Ada's patient is rewarded for long words. The colleague's cure: hold it as tightly as possible to the model that it began with!

# %%
ward["rewarded"].writes()

# %% deck="Held too loosely it raves, held too tightly it learns nothing"
beta = 50.0  # try 0.0 and 1.0
_ = ward["rewarded"].fix(beta=beta)

# %% tags=["source-hidden"] evidence="cures-that-hide" tried="seeds"
# Checked: both cures are refused, for a reason; a moderate hold is a cure. Other seeds are in the note.
assert "hides a model that explodes" in hidden.message
assert "learns nothing" in ward["rewarded"].refusal(beta=50.0) and not ward["rewarded"].refusal(beta=2.0)

# %% [markdown]
# A cure must remove the cause *and* leave the patient able to live: to learn, and to say when something else breaks. [[cures-that-hide]]


# %% tags=["exercise"] name="treat_nan" minutes=7 difficulty=3
def treat_nan():
    """Returns "cause", "measurement", {"part": function}, such as
    "softmax twice", "loss at the start", {"loss": my_loss}."""
    # SOLUTION
    from torch.nn.functional import cross_entropy

    def loss(logits, targets):
        counted = (targets != -100).sum().clamp(min=1)
        total = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        return total / counted

    because = "losses of no targets that are NaN"
    return "nothing counts", because, {"loss": loss}
    # END


# %% tags=["check"]
_ = ward["NaN"].treat(treat_nan)

# %% slide="skip"
ward["NaN"].hint()

# %% [markdown] tags=["solution"]
# Loss, gradients and logits are calm before update 300, so nothing explodes. But in this update no target counts, and the mean divides 0 by 0. A healthy run has the same update: the evidence is the loss that is NaN there. Common mistake: a mean over all positions, which is finite and too small. One NaN in the loss makes all weights NaN. A lower learning rate does not help; the division must know that the number can be 0.


# %% tags=["exercise"] name="treat_padded" minutes=8 difficulty=4
def treat_padded():
    """Returns "cause", "measurement", {"part": function}, such as
    "mask shifted", "loss at the start", {"mask": my_mask}."""
    # SOLUTION
    import torch

    def last_logits(logits, real):
        last = (real * torch.arange(real.shape[1])).argmax(1)  # (B)
        return logits[torch.arange(len(logits)), last]  # (B, V)

    because = "difference between what it reads and the last real token"
    return "padding is read", because, {"last_logits": last_logits}
    # END


# %% tags=["check"]
_ = ward["padded"].treat(treat_padded)

# %% slide="skip"
ward["padded"].hint()

# %% [markdown] tags=["solution"]
# What it reads is not what the last real token has, and there the logits are right on both sides, so no real token sees the padding: with padding on the right the causal mask already hides it. The fault is where the logits are read: `logits[:, -1]` is padding there. Common mistake: the number of real tokens minus 1, which is wrong for padding on the left.

# %% [markdown] tags=["note"]
# **Say.** One instrument is stronger than all others, if you can afford it: a version that works. Exchange half of the parts, run again, and keep the half that matters. But it says where, not what.
#
# **Usual answers.**
# - *Then we need no questions* (from the room): Where do the healthy parts come from in your own project?
# - *It finds one of the two* (`one of the two`): Exchange either half: is the complaint gone?
#
# **Cut if short.** The two faults.
#
# **Tried.** All twelve patients: at most 4 runs. Two faults in different halves: with every pair of the first seven and the last seven parts the answer is the last part, whichever two are ill, because no half heals them both. Of all 91 pairs it names a healthy part in 66. If it keeps the cured half cured, it names an ill one in 91 of 91.

# %% [markdown]
# ## 7. Where is not what
# Sometimes you have a version that works: yesterday's. Then a **bisection** finds the ill part without any question: put in healthy parts for one half, run again, and keep the half that matters.


# %% deck="Bisection in six lines"
def bisect(parts, is_ill):
    """The ill one of the parts; is_ill(*healthy): whether it is
    ill with healthy ones put in for these parts."""
    # ESSENTIAL
    while len(parts) > 1:
        half = parts[: len(parts) // 2]
        parts = parts[len(half) :] if is_ill(*half) else half
    return parts[0]
    # END


# %% slide="skip"
PARTS = ill_runs.PARTS


def recorded(who, rounds):
    """Like who.is_ill, and it writes down each run."""

    def is_ill(*healthy):
        rounds.append((healthy, who.is_ill(*healthy)))
        return rounds[-1][1]

    return is_ill


# %% slide="skip"
rounds = {name: [] for name in ward}
found = {name: bisect(PARTS, recorded(who, rounds[name])) for name, who in ward.items()}
name = "until 128"
print(f"{name}: {found[name]}, in {len(rounds[name])} runs")
print(f"{len({*found.values()})} different parts for {len(found)} patients")

# %% tags=["source-hidden"] deck="Four runs find one of fourteen parts"
figures.halving(PARTS, rounds[name])

# %% tags=["source-hidden"] evidence="bisection" tried="exact"
# Checked: at most four runs for each, and two patients with the same ill part.
assert max(map(len, rounds.values())) == 4 and len({*found.values()}) == len(ward) - 1
assert all(not who.is_ill(found[name]) for name, who in ward.items())

# %% [markdown]
# Four runs are enough for 14 parts, for every patient. Two patients even have the same ill part, the loss, for different reasons: bisection says **where**, and only a measurement says **what**. [[bisection]]
#
# Then somebody brings a patient with *two* faults: the weights start at 0 as Mia's do, and the loss is Omar's.

# %% tags=["source-hidden"] deck="Two faults: what does bisection find?"
both = patient("stuck", also="floor")
answer = bisect(PARTS, both.is_ill)
two_ill = ["initial_weights", "loss"]
predict(
    "The initial weights and the loss are both ill. What does bisection name?",
    key=lambda: "one of the two" if answer in two_ill else "a healthy part",
    choices={
        "one of the two": "Whichever half it heals, the other fault keeps the complaint.",
        "a healthy part": "",
    },
    because="Once the two are in different halves, every later run stays ill, so it ends at its last part.",
)

# %% deck="Two faults, and the answer is a healthy part"
print("bisection says:", answer)
healthy = ["initial_weights"]  # try ["loss"] and ["initial_weights", "loss"]
state = "still ill" if both.is_ill(*healthy) else "well"
print(f"with a healthy {', '.join(healthy)}: {state}")


# %% tags=["source-hidden"] evidence="two-faults" tried="exact"
# Checked with all pairs of parts: it names a healthy part in most cases.
pairs = list(itertools.combinations(PARTS, 2))
named = [bisect(PARTS, lambda *healthy, pair=pair: not {*pair} <= {*healthy}) for pair in pairs]
wrong = sum(name not in pair for name, pair in zip(named, pairs, strict=True))
assert wrong > 0.6 * len(pairs) and answer not in two_ill
assert both.is_ill(answer) and not both.is_ill(*two_ill)

# %% [markdown]
# It names a healthy part, because it assumes that there is one fault. [[two-faults]] So test the answer: exchange this part alone, and see whether the complaint is gone. **Your task:** which part heals Yuki's *left behind*?


# %% deck="Task: exchange one part. Is the complaint gone?"
def exchange(who="left behind", part="learning_rate"):
    ward[who].exchange(part)


# ESSENTIAL
control(exchange, frames=20, who=[*ward], part=PARTS)
# END

# %% [markdown] tags=["note"]
# **Say.** Back to the tree. Before you show it, let students write the names of the patients next to its leaves.
#
# **Usual answers.**
# - *NaN belongs to* Does it learn? (from the room): It did learn, until it broke.
# - *Their batch is too small* (`Does it learn one batch?`): They learn one as quickly as a single process.
#
# **Cut if short.** The card with your tries.
#
# **Tried.** Seeds 0, 1 and 2: each of the twelve comes to the same leaf.

# %% [markdown]
# ## 8. The tree, filled in
# The measurements alone walk down the tree. Carlos' two processes learn less together than one alone. At which question do they stop?

# %% tags=["source-hidden"] deck="Two processes that learn too little: at which question?"
leaves = {name: ill_runs.walk(who) for name, who in ward.items()}
asked = [each.text.replace("\n", " ") for each in ill_runs.TREE]
predict(
    "At which question does *two processes* stop?",
    key=lambda: asked[leaves["two processes"][0]],
    choices={
        asked[1]: "They learn a batch by heart as quickly as one process does.",
        asked[3]: "",
    },
    because="Nobody reads half of the texts. It looks like weak learning, and it is data that takes no part.",
)

# %% tags=["source-hidden"] deck="Everybody stops somewhere, and nobody at the first question"
figures.tree(ill_runs.TREE, leaves)

# %% tags=["source-hidden"] evidence="one-cause-fits" tried="seeds"
# Checked: everybody stops, each of them has the signs of one cause only, also under another seed.
others = {name: who for who, name in six.values() if name != "healthy"}
assert max(leaves.values()) < (6, 0) and min(leaves.values()) > (0, 9)
for who in [*ward.values(), *others.values()]:
    assert who.fitting_causes() == 1

# %% [markdown]
# Each of the twelve stops at one leaf, and of all causes on the list exactly one has all of its signs: a diagnosis excludes what is on the list, nothing else. [[one-cause-fits]] The tree is ours, for these patients; your own project will add questions. The order stays.

# %%
from tinylm_classroom import visits

visits(ward.values())

# %% [markdown] tags=["note"]
# **Say.** The one to take home: say what you expect before you measure. And at the door: which fault of your own cost you most time, and which question would have found it?
#
# **Usual answers.**
# - *A file that was read twice* (from the room): The fourth question.
#
# **Cut if short.** The list; students read it.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="Say what you expect, then measure"
# ## What you have now
# - A loss curve hides faults: most single matrices that never learn, work that grows. [[loss-hides]]
# - A right start excludes a few causes, and does not prove health. [[all-start-right]]
# - The same complaint can have several causes, and one number separates them. [[second-softmax]]
# - A loss on new texts clearly below the floor of the same tokens proves a fault. [[below-floor]]
# - Two ways to compute the same thing show where a fault begins. [[first-token-right]]
# - A cure removes the cause; one that only removes the number is refused. [[cures-that-hide]]
# - With healthy parts, a bisection finds the ill one in a few runs, but not what is wrong with it. [[bisection]]
# - It assumes a single fault: with two it usually names a healthy part. [[two-faults]]
# - Each of the twelve has all signs of exactly one listed cause, so a diagnosis can be checked. [[one-cause-fits]]
#
# Next, lesson 20: a model of your own, from your own parts.

# %% [markdown]
# ## Sources
# - The order of the questions: Karpathy 2019, [*A Recipe for Training Neural Networks*](https://karpathy.github.io/2019/04/25/recipe/).
# - One batch that is learned by heart, and other strategies: Goodfellow et al. 2016, [*Deep Learning*](https://www.deeplearningbook.org/contents/guidelines.html), section 11.5.
# - Halving what differs between a run that fails and one that does not: Zeller and Hildebrandt 2002, [*Simplifying and Isolating Failure-Inducing Input*](https://doi.org/10.1109/32.988498).
