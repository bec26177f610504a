# %% [markdown] slide="slide"
# # 19 Clinic
# **Something is wrong, and nothing raises an error. Where do you look first?**
#
# *Needs* lessons 00 to 18; each patient says which one it needs most. *Builds* a method: seven questions, and `bisect`. *Runs* in about 20 s on two cores.
# *Teaches* in about 25 minutes, plus 62 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a model that is wrong rarely says so. It has no syntax error and no traceback, only a number that is not what it should be. So one asks questions in a fixed order, and each answer is a measurement.
# A class does section 1 and four patients: *stuck* and *floor* in section 2, *too good* and *nonsense* in section 3. The longer plans have the other eight, or students do them afterwards. Each patient is a real run of a second or so with one fault. Students see a complaint and instruments, never the source.
# Before the class: run all cells once. Let students work in pairs, and insist that they say which measurement they expect before they measure.

# %% slide="skip"
import math

from matplotlib import pyplot as plt

from tinylm_classroom import figures, patient, predict

plt.style.use(figures.STYLE)
ward = {each.name: each for each in map(patient, range(1, 13))}
V = 345  # words of StoryWorld

# %% [markdown] tags=["note"]
# **Say.** A compiler finds a misspelled name. Nobody finds a misplaced mask: the model trains, the loss falls, and only the result is bad. Experts are not better at guessing. They ask the cheap questions first, and believe only what they have measured.
#
# **Draw.** A stair with seven steps, each a question. You go down as long as the answer is yes.
#
# **Ask.** "Your model trains badly. What is the first thing that you change?" Collect, then ask of each answer: which measurement told you to?
#
# **Usual answers.**
# - *Change the learning rate* (from the room): That is tuning. Tuning a model that has a fault hides the fault.
# - *Train longer first* (`train for longer`): It costs most and says least.
# - *Look at the model's code* (from the room): Yes, but at which hundred lines? A measurement tells you.
#
# **Cut if short.** The seven numbers of a healthy start.

# %% [markdown] slide="slide"
# ## 1. The order in which experts look
# Andrej Karpathy's *A Recipe for Training Neural Networks* ([Karpathy 2019](https://karpathy.github.io/2019/04/25/recipe/)) begins with a warning: training **fails silently**. A wrong mask, a wrong target, a forgotten matrix raise no error. The model just becomes worse, often only a little, or too good. So the recipe goes from simple to complex, and before each step it says what should be seen. Which of these steps comes first?

# %% slide="skip"
STEPS = [
    "look at a batch",
    "look at the first loss",
    "learn one batch by heart",
    "train on all texts",
    "tune the rates",
]

# %% tags=["source-hidden"]
predict(
    "Put these steps into the order of the recipe.",
    key=lambda: STEPS,
    ranking=[STEPS[i] for i in (3, 0, 4, 2, 1)],
    because="Each step costs more than the one before, and a fault that an early step can find makes all later ones worthless.",
)

# %% [markdown] slide="subslide"
# From it we make seven questions for language models, a **decision tree**. Each *yes* leads to the next question. At the first *no* we stop, and look at what is written to the right of it.

# %% slide="skip"
QUESTIONS = {
    "data": ("Are inputs and targets right?", "a batch, word by word; which targets count"),
    "start": ("Does the loss begin at ln V?", "initial weights, loss"),
    "learns": ("Does it learn?", "gradients, rate, loss of certain predictions"),
    "matrices": ("Does every matrix change?", "gradients of each matrix"),
    "floor": ("Is new text above the floor?", "attention, leaks, targets"),
    "writes": ("Does it write as it reads?", "cache against full, padding, window"),
    "lasts": ("Does it stay well?", "what grows, what is saved, what it writes"),
}


# %% slide="skip"
def draw_tree(leaves, caption):
    """The seven questions, one below the other, and a leaf to the right of each."""
    fig, ax = plt.subplots(figsize=(11, 6.1), layout="constrained")
    for row, (key, (question, _)) in enumerate(QUESTIONS.items()):
        figures.box(ax, 0, -row, f"{row + 1}. {question}", "T")
        ax.text(3.0, -row, leaves[key], va="center")
        figures.arrow(ax, (1.72, -row), (2.9, -row), "B", width=2)
        ax.text(2.25, -row + 0.1, "no", ha="center", va="bottom", color=figures.QUIET)
        figures.arrow(ax, (0, -row - 0.27), (0, -row - 0.73), "T", width=3)
        ax.text(0.1, -row - 0.5, "yes", va="center", color=figures.QUIET)
    ax.text(0, -len(QUESTIONS) + 0.05, "healthy, as far as we can see", ha="center", va="center", weight="bold")
    ax.set(title="Seven questions, the cheap ones first", xlim=(-1.8, 7.6), ylim=(-7.25, 0.5), xlabel=" ", ylabel=" ")
    ax.grid(visible=False)
    figures.unframed(ax)
    ax.set(xticks=[], yticks=[])
    said = [question for question, _ in QUESTIONS.values()]
    alt = "A stair of seven questions. An arrow named yes leads from each to the next, and an arrow named no to the right."
    figures.display(fig, alt=alt, caption=caption, table={"question": said, "no": [*leaves.values()]})


# %% tags=["signature", "source-hidden"]
draw_tree(
    {key: f"look at: {measure}" for key, (_, measure) in QUESTIONS.items()},
    "Go down as long as the answer is yes. The first no says where to look.",
)

# %% [markdown] slide="subslide"
# What does a healthy answer to question 2 look like? New weights know nothing, so each of the V words should get about the same probability, and the loss should be near ln V. (It begins higher if the untrained logits have a spread, as in lesson 11: lesson 03, section 9. Those of the patients are nearly equal.) Twelve broken models, the **patients**, are waiting in `ward`. Eight of them train new weights. How do they begin?

# %% slide="skip"
trained = {name: who for name, who in ward.items() if who.number("updates of training")}
firsts = {name: who.number("loss at the start") for name, who in trained.items()}

# %% evidence="all-start-right"
print(f"ln V = {math.log(V):.2f} nats")
print("lowest and highest first loss:", ", ".join(f"{pick(firsts.values()):.1f}" for pick in (min, max)))
assert len(trained) == 8 and all(abs(first - math.log(V)) < 0.1 for first in firsts.values())

# %% [markdown]
# All eight begin where they should, and each of them has a fault. [[all-start-right]] So a *yes* proves nothing: it excludes some causes, and we continue.

# %% [markdown] tags=["note"]
# **Say.** Now the first two patients. For each: read the complaint, say what you expect to see, measure, choose a cause, fix. The clinic contradicts a wrong diagnosis with a number, so a guess is not free but it is not useless either.
#
# **Draw.** Two flat curves, one at ln V and one below it. They look alike and have nothing in common.
#
# **Ask.** "What could keep a loss at exactly ln V? Name three causes, and for each one number that would be 0."
#
# **Usual answers.**
# - *The learning rate is too small* (`learning rate 0`): Then there would be gradients.
# - *The data is random* (from the room): Then the loss would still move at first, because words are not equally frequent.
# - *It would reach 0 if we trained longer* (`0`): Compute the lowest possible loss instead of waiting for it.
#
# **Cut if short.** The bisection; it comes back in section 6.

# %% [markdown] slide="slide"
# ## 2. It does not learn
# A patient is opened by its name or number. It shows a complaint, and what its owner has measured:

# %% slide="skip"
stuck = ward["stuck"]

# %%
stuck

# %% [markdown]
# These are the instruments: `curve()`, `gradients()`, `activations()`, `attention()`, `cache_against_full()`, `writes()`, and `measure(...)` for single numbers. `exchange(...)` puts healthy parts in and runs again. `measurements()`, `parts()` and `causes()` list what there is. The causes are the same for all patients:

# %% slide="skip"
stuck.causes()

# %% [markdown]
# A colleague says that the learning rate is 0. That would explain a flat curve. Does it explain everything?

# %% evidence="flat-for-two-reasons"
answer = stuck.diagnose("learning rate 0")
assert not answer.passed and stuck.number("largest learning rate") > 0.001

# %% [markdown]
# The rate is not 0, so the colleague is wrong, and we know by which number. [[flat-for-two-reasons]] Now look yourself.

# %% slide="subslide"
stuck.gradients()


# %% tags=["exercise"] name="treat_stuck" minutes=5 difficulty=1
def treat_stuck():
    """Returns the diagnosis, one of `stuck.causes()`, and the part that you fixed: "cause", {"part": function}.

    `stuck.parts()` lists the parts with their arguments, and what a healthy one does.
    """
    # SOLUTION
    import torch

    def initial_weights(model):
        for parameter in model.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.05)
            else:
                torch.nn.init.ones_(parameter)

    return "weights start at 0", {"initial_weights": initial_weights}
    # END


# %% tags=["check"]
_ = stuck.treat(treat_stuck)

# %%
stuck.hint()

# %% [markdown] tags=["solution"]
# All gradients are exactly 0, so nothing can change. Each gradient is a product that contains other weights (lesson 02). If all of them are 0, every product is 0. Any random numbers break this; gains may start at 1. Common mistakes: one constant for all weights, which keeps the units of a layer equal; random embeddings and nothing else, so that the blocks stay at 0.

# %% [markdown] slide="subslide"
# ### The second patient
# To **overfit one batch** is step three of the recipe: if the loss on one batch does not come close to 0, training on all texts will not repair it.

# %% slide="skip"
floor = ward["floor"]

# %%
floor

# %%
floor.curve()

# %% tags=["source-hidden"]
predict(
    "A loss function expects logits, but is given probabilities p between 0 and 1, and applies softmax again. What is the lowest loss, in nats, if the right one of 345 words has p = 1 and all others have 0?",
    key=lambda: math.log(math.e + V - 1) - 1,
    number="nats",
    within=0.1,
    feedback={0: "So it would be with logits, which have no upper limit. Here the largest input is 1."},
    because="The right word gets e / (e + V - 1), which is less than one in a hundred, and no training can change that.",
)

# %% evidence="second-softmax"
lowest = math.log(math.e + V - 1) - 1
print(f"lowest possible loss after a second softmax: {lowest:.2f} nats")
assert lowest > 4.8

# %% [markdown]
# A second softmax alone sets a lower limit for the loss that is far above 0. [[second-softmax]] Is it what this patient has? Other causes stop a loss, too. Measure before you choose; `floor.measure("loss of certain, right predictions")` is one way.


# %% tags=["exercise"] name="treat_floor" minutes=5 difficulty=2
def treat_floor():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""
    # SOLUTION
    from torch.nn.functional import cross_entropy

    def loss(logits, targets):
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    return "softmax twice", {"loss": loss}
    # END


# %% tags=["check"]
_ = floor.treat(treat_floor)

# %%
floor.hint()

# %% [markdown] tags=["solution"]
# Predictions that are certain and right have a loss of 4.85 instead of 0: ln(e + V - 1) - 1, computed above. `cross_entropy` applies its own log-softmax, so it must be given logits (lesson 03). Common mistakes: `nll_loss` of probabilities, without a logarithm; the sum instead of the mean.

# %% [markdown] tags=["note"]
# **Say.** The next two look healthy while they train. One is too good, and one is good until it writes. So the curve is the wrong instrument, and we need two others: the attention, and the comparison of two ways to compute the same thing.
#
# **Draw.** A square of queries and keys with the triangle that a query may see. Then a line of tokens that are read one at a time, each with its position below it.
#
# **Ask.** "The loss is below the floor. Your boss is delighted. What do you say?"
#
# **Usual answers.**
# - *It has learned the texts by heart* (from the room): These texts are new.
# - *There is no mask at all* (`no mask`): How many keys would the first query see then?
# - *The cache loses a key* (`cache hidden`): Count how many keys a new token sees.
#
# **Cut if short.** The trace.

# %% [markdown] slide="slide"
# ## 3. Too good, and good until it writes
# StoryWorld is a program, so its floor is known (lesson 00): no model can have a lower mean loss on new texts. This one has.

# %% slide="skip"
too_good = ward["too good"]

# %%
too_good

# %% [markdown]
# A loss clearly below the floor proves a fault: a query sees the next word, the targets are wrong, or the texts are not new. We begin with what a query sees. The attention shows this. These are its steps (lesson 05), for two heads and eight tokens:

# %% slide="skip"
import torch

from tinylm_classroom import trace

generator = torch.Generator().manual_seed(19)
q, k = (torch.randn(1, 2, 8, 16, generator=generator) for _ in range(2))  # (B, H, T, D)
allowed = torch.ones(8, 8, dtype=torch.bool)  # (T, S)


# %%
def weights_of(q, k, allowed):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    visible = scores.masked_fill(~allowed, -torch.inf)
    return visible.softmax(-1)


# %% slide="subslide"
trace(weights_of, q, k, allowed, sizes={"B": 1, "H": 2, "T": 8, "D": 16})

# %% slide="subslide"
too_good.attention()


# %% tags=["exercise"] name="treat_too_good" minutes=5 difficulty=2
def treat_too_good():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""
    # SOLUTION
    import torch

    def mask(n_queries, n_keys):
        return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)

    return "mask shifted", {"mask": mask}
    # END


# %% tags=["check"]
_ = too_good.treat(treat_too_good)

# %%
too_good.hint()

# %% [markdown] tags=["solution"]
# Nearly all attention goes to the *next* token, which is the target. The first query sees 2 keys: the diagonal of `tril` is one too high. Without any mask it would see all 8. The queries are the last of the keys (lesson 13), so the diagonal is `n_keys - n_queries`. Common mistakes: `tril()` without it, which hides the cache from a new token; one lower, which hides a token from itself.

# %% [markdown] slide="subslide"
# ### The fourth patient
# This one is the shipped model itself. Nothing is trained.

# %% slide="skip"
nonsense = ward["nonsense"]

# %%
nonsense

# %%
nonsense.writes()

# %% [markdown]
# Two ways to compute the same logits, one of them trusted, are the best instrument there is: the first difference points at the cause.

# %% evidence="first-token-right"
nonsense.cache_against_full()
whole_is_right = nonsense.number("loss of a text that it reads at once") < 1.5
assert whole_is_right and nonsense.number("loss of a text that it reads token by token") > 3

# %% [markdown]
# Reading at once works, so the weights are right, and the fault is in what only writing uses. [[first-token-right]]


# %% tags=["exercise"] name="treat_nonsense" minutes=5 difficulty=2
def treat_nonsense():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""
    # SOLUTION
    import torch

    def positions(start, n):
        return start + torch.arange(n)

    return "position restarts", {"positions": positions}
    # END


# %% tags=["check"]
_ = nonsense.treat(treat_nonsense)

# %%
nonsense.hint()

# %% [markdown] tags=["solution"]
# The first token agrees, and the second does not: it gets position 0 again, although there is a token before it in the cache. A new token has the position `cache.length` (lesson 13). The mask is right, because a token after ten others sees all 11 keys.

# %% [markdown] tags=["note"]
# **Say.** Four patients of a kind that one meets in every project. If time is short, students take them home. Two of them have a loss that looks right from the first update to the last.
#
# **Draw.** A list with two columns: *what the curve shows* and *what else must be measured*.
#
# **Ask.** "One matrix never changes. What would you expect to see in the loss?" Then show both losses.
#
# **Usual answers.**
# - *The loss must be worse* (`clearly higher than in a healthy run`): The other matrices learn around it.
# - *The rate was too high* (`learning rate too high`): Did the loss rise before update 300?
# - *It ran out of memory* (from the room): What grows? Count it.
#
# **Cut if short.** *until 128*.

# %% [markdown] slide="slide" plan=80
# ## 4. The curve is silent
# In the next patient one matrix never changes. We compare its loss with that of a run in which all parts are healthy.

# %% slide="skip"
left_behind = ward["left behind"]
with_fault, without_fault = left_behind.number("loss at the end"), left_behind.healthy_number("loss at the end")

# %% tags=["source-hidden"]
predict(
    "One of the seven matrices in the block is never updated. How is the loss after 120 updates?",
    key=lambda: "nearly the same as in a healthy run" if abs(with_fault - without_fault) < 0.3 else "another",
    choices={
        "clearly higher than in a healthy run": "The other matrices learn around the one that does not.",
        "it does not fall": "Seven matrices learn.",
        "nearly the same as in a healthy run": "",
    },
    because="The other matrices can work with random numbers in this one.",
)

# %% evidence="loss-hides"
from tinylm_classroom import learned

print(f"loss with the fault {learned(with_fault, 1, 3)}, without {learned(without_fault, 1, 3)} nats")
assert abs(with_fault - without_fault) < 0.3

# %% [markdown]
# The two losses are nearly equal, so the loss does not show the fault. [[loss-hides]] So question 4 is not a formality.

# %%
left_behind


# %% tags=["exercise"] name="treat_left_behind" minutes=5 difficulty=2 plan=80
def treat_left_behind():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""

    # SOLUTION
    def trained(model):
        return list(model.parameters())

    return "not given to the optimizer", {"trained": trained}
    # END


# %% tags=["check"]
_ = left_behind.treat(treat_left_behind)

# %%
left_behind.hint()

# %% [markdown] tags=["solution"]
# `v_proj` has a gradient and never changes, so nobody uses its gradient: the optimizer was not given it. Had the way back been cut off, its gradient would be 0. The fault was a list of names, from which one was missing.

# %% slide="subslide"
slower = ward["slower"]
slower


# %% tags=["exercise"] name="treat_slower" minutes=5 difficulty=3 plan=80
def treat_slower():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""

    # SOLUTION
    def watch(block, forward):
        sizes = []
        handle = block.register_forward_hook(lambda _, __, output: sizes.append(output.square().mean().sqrt().item()))
        try:
            return forward(), sizes[-1]
        finally:
            handle.remove()

    return "hooks stay", {"watch": watch}
    # END


# %% tags=["check"]
_ = slower.treat(treat_slower)

# %%
slower.hint()

# %% [markdown] tags=["solution"]
# After 100 updates the block has 100 hooks, and each of them does its work at each forward pass. The batch does not grow and no graph is kept. A hook is removed in `finally`, so that it is also removed when the forward pass fails (lesson 16).

# %% slide="subslide"
until_128 = ward["until 128"]
until_128


# %% tags=["exercise"] name="treat_until_128" minutes=5 difficulty=2 plan=80
def treat_until_128():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""

    # SOLUTION
    def window(ids, limit):
        return ids[:, -limit:]

    return "wrong end of the window", {"window": window}
    # END


# %% tags=["check"]
_ = until_128.treat(treat_until_128)

# %%
until_128.hint()

# %% [markdown] tags=["solution"]
# It reads 128 of 200 tokens, but the newest one that it reads has number 128: it keeps the beginning. Short texts do not show it. Positions that were never trained are excluded, because it never reads more than 128 tokens (lesson 12).

# %% slide="subslide"
not_a_number = ward["NaN"]
not_a_number


# %% tags=["exercise"] name="treat_nan" minutes=5 difficulty=3 plan=80
def treat_nan():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""
    # SOLUTION
    from torch.nn.functional import cross_entropy

    def loss(logits, targets):
        counted = (targets != -100).sum().clamp(min=1)
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / counted

    return "nothing counts", {"loss": loss}
    # END


# %% tags=["check"]
_ = not_a_number.treat(treat_nan)

# %%
not_a_number.hint()

# %% [markdown] tags=["solution"]
# Loss, gradients and logits are calm before update 300, so nothing explodes. But in this update no target counts, and the mean divides 0 by 0. One NaN in the loss makes all weights NaN. A lower learning rate would not help; the division must know that the number can be 0.

# %% [markdown] tags=["note"]
# **Say.** The last four need two ideas at once. Give them to people who are done, or keep them for the week after.
#
# **Draw.** Two rows of tokens with padding, once on the left and once on the right. An arrow to the column that is read.
#
# **Ask.** "Padding on the right comes after all real tokens. Which of them can see it?"
#
# **Usual answers.**
# - *The padding is attended to* (`padding is seen`): The causal mask hides what comes later.
# - *The gradients are not averaged* (`gradients not averaged`): Then the two processes would have different weights.
# - *The reward is wrong* (from the room): It is exactly what we asked for.
#
# **Cut if short.** All of it.

# %% [markdown] slide="slide" plan=110
# ## 5. Four hard cases
# Each of these is from a part of the course where two things must agree: two paddings, two processes, two halves of a run, two goals.

# %%
padded = ward["padded"]
padded


# %% tags=["exercise"] name="treat_padded" minutes=5 difficulty=4 plan=110
def treat_padded():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""
    # SOLUTION
    import torch

    def last_logits(logits, real):
        last = (real * torch.arange(real.shape[1])).argmax(1)  # (B)
        return logits[torch.arange(len(logits)), last]  # (B, V)

    return "padding is read", {"last_logits": last_logits}
    # END


# %% tags=["check"]
_ = padded.treat(treat_padded)

# %%
padded.hint()

# %% [markdown] tags=["solution"]
# At the last real token the logits are right on both sides, so no real token sees the padding: with padding on the right the causal mask already hides it. The fault is where the logits are read: `logits[:, -1]` is padding there. Common mistake: the number of real tokens minus 1, which is wrong for padding on the left.

# %% slide="subslide"
two_processes = ward["two processes"]
two_processes


# %% tags=["exercise"] name="treat_two_processes" minutes=5 difficulty=3 plan=110
def treat_two_processes():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""

    # SOLUTION
    def shard(texts, rank, n_processes):
        return texts[rank::n_processes]

    return "same texts", {"shard": shard}
    # END


# %% tags=["check"]
_ = two_processes.treat(treat_two_processes)

# %%
two_processes.hint()

# %% [markdown] tags=["solution"]
# The weights of both processes are equal, so the gradients are averaged. But 8 of the 16 texts are read by nobody, because the rank is not used: both processes read the first half (lesson 15).

# %% slide="subslide"
resumed = ward["resumed"]
resumed


# %% tags=["exercise"] name="treat_resumed" minutes=5 difficulty=3 plan=110
def treat_resumed():
    """Returns the diagnosis, and the part that you fixed: "cause", {"part": function}."""

    # SOLUTION
    def saved(model, optimizer, generator, step):
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "generator": generator.get_state(),
            "step": step,
        }

    return "optimizer not saved", {"saved": saved}
    # END


# %% tags=["check"]
_ = resumed.treat(treat_resumed)

# %%
resumed.hint()

# %% [markdown] tags=["solution"]
# Weights, batches and learning rates agree after loading, and the optimizer's means do not. AdamW starts them at 0 again (lesson 11), so the next updates differ. A checkpoint holds everything that determines how a run continues.

# %% slide="subslide"
rewarded = ward["rewarded"]
rewarded


# %% tags=["exercise"] name="treat_rewarded" minutes=5 difficulty=3 plan=110
def treat_rewarded():
    """Returns the diagnosis, and {"part": number}, the smallest number that is well: with a large one nothing is learned."""
    # SOLUTION
    return "nothing holds it", {"beta": 5.0}
    # END


# %% tags=["check"]
_ = rewarded.treat(treat_rewarded)

# %%
rewarded.hint()

# %% [markdown] tags=["solution"]
# The reward climbs, so its sign is right. But the texts have become impossible for the model that it began with: it repeats long words. The penalty on the distance was multiplied by 0 (lesson 17). How large beta should be is a choice: with a large one the reward hardly rises.

# %% [markdown] tags=["note"]
# **Say.** One instrument is stronger than all others, if you can afford it: a version that works. Exchange half of the parts, run again, and keep the half that matters. But it says where, not what.
#
# **Draw.** 14 dots. Cross out half of them, four times.
#
# **Ask.** "What must be true so that halving works?" (One fault, and a healthy version of each part.)
#
# **Usual answers.**
# - *Then we need no questions* (from the room): Where do the healthy parts come from in your own project?
#
# **Cut if short.** The control.

# %% [markdown] slide="slide" plan=80
# ## 6. Break it: where is not what
# If healthy parts are at hand, a **bisection** finds the ill one: exchange half of the parts, run again, keep the half that matters.


# %%
def bisect(parts, is_ill):
    """The part that has to be exchanged; is_ill(*healthy): whether it is ill with these parts exchanged."""
    while len(parts) > 1:
        half = parts[: len(parts) // 2]
        parts = parts[len(half) :] if is_ill(*half) else half
    return parts[0]


# %% slide="skip"
PARTS = ["initial_weights", "mask", "positions", "batch", "loss", "learning_rate", "trained", "watch", "saved"]
PARTS += ["shard", "average", "window", "last_logits", "beta"]
found, runs = {}, {}
for name, who in ward.items():
    calls = []
    found[name] = bisect(PARTS, lambda *healthy, who=who, calls=calls: calls.append(healthy) or who.is_ill(*healthy))
    runs[name] = len(calls)

# %% evidence="bisection"
print(f"{len(PARTS)} parts, {len(ward)} patients, at most {max(runs.values())} runs for each")
assert max(runs.values()) == 4 and all(not who.is_ill(found[name]) for name, who in ward.items())

# %% [markdown]
# At most four runs find the ill part of every patient. [[bisection]] Why all the questions, then? Count the different parts that it has found:

# %% evidence="same-part"
shared = [part for part in {*found.values()} if [*found.values()].count(part) > 1]
print(f"{len({*found.values()})} different parts for {len(found)} patients")
assert len(shared) == 1

# %% [markdown]
# Two patients have the same ill part, for different reasons. [[same-part]] A bisection says where to look, and the measurement says what is wrong there. It also assumes that there is one fault. With two in different halves, exchanging one half never heals:

# %% evidence="two-faults"
two_faults = {"mask", "watch"}  # in different halves
answer = bisect(PARTS, lambda *healthy: not two_faults <= {*healthy})
print(f"two faults, and the bisection says: {answer}")
assert answer not in two_faults

# %% [markdown]
# The answer is a part that is well. [[two-faults]] So test it: exchange this one part alone, and look whether the complaint is gone. Try it, with any patient:

# %% slide="skip"
from tinylm_classroom import control


def healthy_part(who="stuck", part="learning_rate"):
    ward[who].exchange(part)


# %% slide="skip"
control(healthy_part, who=[*ward], part=PARTS)

# %% [markdown] tags=["note"]
# **Say.** Back to the tree. Each patient stops at one of the questions. Fill it in for those that you have treated; the code fills in the rest.
#
# **Draw.** The stair of the beginning, and let students write names next to the steps.
#
# **Ask.** "At which question does nobody stop, and is it useless then?"
#
# **Usual answers.**
# - *The second question is useless* (from the room): It costs one forward pass, and it has excluded a dozen causes.
#
# **Cut if short.** The exercise; show the tree.

# %% [markdown] slide="slide"
# ## 7. Fill in the tree
# At which question does a patient stop? Name the **first** question whose answer is *no* for the four patients of sections 2 and 3: `stuck`, `floor`, `too good` and `nonsense`. A loss above 3.5 nats at the end counts as *does not learn*.


# %% tags=["exercise"] name="my_tree" minutes=2 difficulty=1
def my_tree():
    """Returns a dict from a patient to a question: "data", "start", "learns", "matrices", "floor", "writes" or "lasts"."""
    # SOLUTION
    return {"stuck": "learns", "floor": "learns", "too good": "floor", "nonsense": "writes"}
    # END


# %% slide="skip"
ANSWERS = {  # question: measurements, and between which numbers they have to be
    "data": {"targets that are the next input": (0.99, 1), "fewest targets that count in an update": (1, 999), "texts that no process reads": (0, 0)},
    "start": {"loss at the start": (math.log(V) - 0.1, math.log(V) + 0.1)},
    "learns": {"loss at the end": (0, 3.5)},
    "matrices": {"matrices that never change although they have a gradient": (0, 0)},
    "floor": {"loss on new texts": (too_good.number("floor of new texts"), 99)},
    "writes": {"largest difference of logits, cache against full": (0, 0.01), "error with padding on the right": (0, 0.01), "number of the newest token that it reads of 200": (200, 200)},
    "lasts": {"hooks on the block at the end": (0, 0), "largest difference of the loss after resuming": (0, 0.001), "log-probability of its texts for the model at the beginning": (-4, 0)},
}  # fmt: skip


# %%
def first_no(who):
    """The first question whose answer is no, and the measurement that says so."""
    for key, wanted in ANSWERS.items():
        for name, (low, high) in wanted.items():
            if who.has(name) and not low <= who.number(name) <= high:
                return key, name
    return "healthy", ""


# %% tags=["check"]
try:
    mine = my_tree()
except NotImplementedError:
    mine = {}
    print("my_tree: not attempted yet")
for name, key in mine.items():
    stops, because = first_no(ward[name])
    print(f"{name}: {key}", "is right" if key == stops else f"is not the first no: look at the {because}")
if len(mine) == 4 and all(key == first_no(ward[name])[0] for name, key in mine.items()):
    print("my_tree: right")

# %% slide="skip"
stops = {name: first_no(who)[0] for name, who in ward.items()}

# %% tags=["source-hidden"] evidence="tree-filled"
leaves = {key: ", ".join(name for name, where in stops.items() if where == key) or "nobody today" for key in QUESTIONS}
draw_tree(leaves, "Where each patient stops. Nobody stops at question 2, and everybody stops somewhere.")
assert "healthy" not in stops.values() and leaves["start"] == "nobody today"
assert [stops[name] for name in ("stuck", "floor", "too good", "nonsense")] == ["learns", "learns", "floor", "writes"]

# %% [markdown]
# Each of the twelve stops at one of the seven questions, and the question says where to look next. [[tree-filled]] The tree is ours, for these patients; a larger project adds questions of its own. The order stays: what is cheap to ask and would make later answers worthless comes first.

# %% [markdown] tags=["note"]
# **Say.** Only the points whose sections you taught. The one to take home: say what you expect before you measure.
#
# **Draw.** Nothing. Leave the tree on the board.
#
# **Ask.** At the door: "Which fault of your own cost you most time, and which question would have found it?"
#
# **Usual answers.**
# - *A file that was read twice* (from the room): Question 1.
#
# **Cut if short.** The list; students read it.

# %% [markdown] slide="slide"
# ## What you have now
# - Seven questions, the cheap ones first; each patient stops at one of them. [[tree-filled]] A right start excludes causes and proves no health. [[all-start-right]]
# - The same flat curve can have several causes, and one number separates them. [[flat-for-two-reasons]] A second softmax sets a lower limit for the loss, which can be computed. [[second-softmax]]
# - Two ways to compute the same thing show where a fault begins. [[first-token-right]]
# - A loss can hide a matrix that never learns. [[loss-hides]]
# - With healthy parts, a bisection finds the ill one in a few runs [[bisection]], but not what is wrong with it [[same-part]], and it assumes a single fault. [[two-faults]]
#
# Next, lesson 20: a model of your own, from your own parts.

# %% [markdown] slide="skip"
# ## Sources
# - The order of the questions: Karpathy 2019, [*A Recipe for Training Neural Networks*](https://karpathy.github.io/2019/04/25/recipe/).
# - One batch that is learned by heart, and other strategies: Goodfellow et al. 2016, [*Deep Learning*](https://www.deeplearningbook.org/contents/guidelines.html), section 11.5.
# - Halving what differs between a run that fails and one that does not: Zeller and Hildebrandt 2002, [*Simplifying and Isolating Failure-Inducing Input*](https://doi.org/10.1109/32.988498).
