# %% [markdown] slide="slide"
# # 08 Feedforward
# **What does a position do with what it has fetched?**
#
# *Needs* lessons 02 to 07. *Builds* `silu`, `swiglu` and `gelu` (in the library: `layers.py`, and `GatedMLP` in `feedforward.py`). *Runs* in about 20 s on two cores.
# *Teaches* in about 57 minutes, plus 26 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: after attention has fetched, each position works by itself, with many small rules of the form *if this, then add that*. A rule needs a bend, because two facts that must both be true cannot be tested by a linear map.
# Sections 1 to 5 are the core. Section 6 asks how typical the units of sections 1 and 5 are, section 7 exchanges the routes of the shipped model, section 8 counts how wide a feed-forward is and how much it computes, and section 9 helps those who load or train real models.
# Before the class: run all cells once, and try the control of section 5 with three or four units, so that you know a mixed one.

# %% slide="skip"
import copy

import torch

from tinylm_lib import intervene, storyworld
from tinylm_classroom import capture, figures, predict
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import gaps

# %% [markdown] tags=["note"]
# **Say.** Attention moves vectors between positions. Today we look at the other half of a layer, which moves nothing, and ask what is lost without it. Show the shaded text early, and let the class find the rules of the three units.
#
# **Draw.** Five columns for five positions. Attention is a set of arrows between the columns, the feed-forward a box inside each column. No arrow leads from box to box.
#
# **Ask.** Before the prediction: "At the full stop attention has fetched *Amara*. The next word is *She*. What is still missing?" After the picture: "State the rule of each unit in one sentence."
#
# **Usual answers.**
# - *The object, because its colour is far away* (`an object (fan), determined by its colour`): Fetching is the work of attention, and attention is still there. An object has only to be repeated.
# - *Both* (`both`): Which of the two words is already in the text, and which one has to be made from another word?
# - *Unit 34 opens at "the"* (from the room): Look for a second *the* in a text of your own, such as *with the lamp*. Section 2 tries it.
#
# **Cut if short.** The two lines on the pronouns; say their result.

# %% [markdown] slide="slide"
# ## 1. Fetching is not enough
# > One cold morning, friendly Amara came to Foxhollow. \_\_\_ had a gray cup.
#
# You probably said *She*. Attention can fetch *Amara*, but the next word is not *Amara*. What is still missing?
#
# After attention each position holds its own word and what it has fetched. Then comes the other half of a layer, the **feed-forward**, also called *MLP* (multilayer perceptron).

# %% [markdown] slide="subslide"
# What does each half do? We switch it off in all three layers, so that it adds nothing, and count what the model can no longer predict. Such a test is an *ablation* (lesson 07).

# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
generator = torch.Generator().manual_seed(8)
stories = [storyworld.story(generator) for _ in range(60)]


# %%
def without(part: str, layers: tuple[int, ...] = (0, 1, 2)):
    """A copy of the shipped model in which this part of these layers adds nothing."""
    with intervene(model, stop=[(layer, part) for layer in layers]):
        return copy.deepcopy(model)  # the copy keeps the change


# %% [markdown] slide="say"
# `gaps` compares the most probable word of the model with the word of the story, for each kind of word that an earlier word determines.

# %% slide="skip"
readers = {"as trained": model, "no feed-forward": without("ffn"), "no attention": without("attention")}
found = {name: gaps(reader, tokenizer, stories) for name, reader in readers.items()}

# %% tags=["source-hidden"]
OBJECT, PRONOUN = "an object (fan), determined by its colour", "a pronoun (He, he, She, she), determined by a name"
left = {text: found["no feed-forward"][kind].right for text, kind in ((OBJECT, "object"), (PRONOUN, "pronoun"))}
predict(
    "Without its feed-forwards, which kind of word can the model no longer predict?",
    key=lambda: min(left, key=left.get) if max(left.values()) > 0.9 > 0.4 > min(left.values()) else "something else",
    choices={
        OBJECT: "The fan is in the story already. Once it is fetched, it has only to be repeated.",
        PRONOUN: "",
        "both": "Attention is all there, and an object has only to be fetched and repeated.",
    },
    because="Objects are still fetched and repeated, but a pronoun is now hardly ever the most probable word.",
)

# %% tags=["source-hidden"] slide="subslide" evidence="without-feed-forwards"
print(f"correct{'':<5}" + "".join(f"{name:>17}" for name in readers))
for kind in found["as trained"]:
    if kind not in ("all", "other"):
        print(f"{kind:<12}" + "".join(f"{found[name][kind].right:17.2f}" for name in readers))
halved = found["no feed-forward"]
assert halved["object"].right > 0.9 and halved["pronoun"].right < 0.4
assert all(gap.right < 0.2 for kind, gap in found["no attention"].items() if kind not in ("all", "other"))

# %% [markdown]
# (The fraction of words that are the model's most probable one. Colours and owners are often missed by the trained model, too. There are few such colours, so their fraction scatters.) Without attention everything fails, because nothing is fetched. Without feed-forwards most names, places, objects and quotations, which can be copied, survive, and pronouns are lost. [[without-feed-forwards]] Traits could be copied as well, but half are lost, so copying is not the whole story.

# %% [markdown] slide="skip"
# In the first sentence of this lesson, which of the three feed-forwards turns *Amara* into *She*? All three are stopped here. Take the changes back one by one.

# %% slide="skip"
from tinylm_classroom import what_if

# %% slide="skip"
what_if(model, tokenizer, "\nOne cold morning, friendly Amara came to Foxhollow.", "stop 0 ffn; stop 1 ffn; stop 2 ffn")

# %% [markdown] slide="subslide"
# What exactly is lost with the pronouns? We look at the beginnings of the stories, where *He* or *She* comes next.

# %% slide="skip"
ids = torch.tensor([tokenizer.encode("\n" + story.text)[:80] for story in stories])  # (B, T)
following = ids[:, 1:]  # (B, T - 1)
he, she = (tokenizer.encode(word)[0] for word in (" He", " She"))
pronoun_next = (following == he) | (following == she)  # (B, T - 1)

# %%
for name in ("as trained", "no feed-forward"):
    with torch.no_grad():
        logits = readers[name](ids[:, :-1])[pronoun_next]  # (N, V)
    first = logits.argmax(-1)  # (N)
    of_two = torch.where(logits[:, he] > logits[:, she], he, she)  # (N)
    pair = [(guess == following[pronoun_next]).double().mean() for guess in (first, of_two)]
    print(f"{name:<16} most probable of all words {pair[0]:.2f}, of the two pronouns {pair[1]:.2f}")

# %% [markdown]
# Attention alone can make most of the choice between *He* and *She*. What is mostly lost is the knowledge that a pronoun comes next.

# %% [markdown] slide="say"
# (This table counts the capital pronouns of the first 80 tokens, the one before it all pronouns of whole stories.)

# %% [markdown] slide="subslide"
# So **attention fetches, and the feed-forward works on the result**, at each position by itself. Is that true? If we reorder the positions, each must have the same result as before. `capture` (lesson 04) keeps what goes into each part, here for the first 20 stories.

# %% evidence="each-position-alone"
some_stories = ids[:20]  # (20, T)
caught = capture(model, some_stories)
at_positions = torch.arange(80)  # (T)
order = torch.randperm(80, generator=torch.Generator().manual_seed(8))  # (T)
halves = {"ffn": model.blocks[0].ffn, "attention": lambda x: model.blocks[0].attention(x, at_positions)}
with torch.no_grad():
    for name, part in halves.items():
        into = caught.inputs[f"blocks.0.{name}"]  # (20, T, C)
        change = (part(into[:, order]) - part(into)[:, order]).abs().max().item()
        print(f"{name:<9} reordered, the results differ by at most {change:.4f}")
        assert change < 1e-4 if name == "ffn" else change > 0.5

# %% [markdown] slide="subslide"
# ### Look inside
# A feed-forward consists of **units**, also called *hidden units* or *neurons*. Each unit computes at each position a number that says how far it **opens** there. The shipped model has 320 units in each of its three layers. Sections 3 and 4 show how it is computed. Three units of the last layer read a text:

# %% slide="skip"
TEXT = "One cold morning, friendly Amara came to Foxhollow. She had a gray cup. There she met Felix, a singer with a yellow lantern."
QUOTED = ' Amara said to Felix, "Old bees sleep gladly." In the end Felix understood, "Old bees sleep gladly."'


def openness(tokens: torch.Tensor) -> torch.Tensor:
    """tokens (B, T). How far each unit of the last layer opens at each of them, (B, T, F)."""
    gate_route = capture(model, tokens).outputs["blocks.2.ffn.gate_proj"]  # (B, T, F)
    return torch.nn.functional.silu(gate_route)


def opens_in(text: str) -> torch.Tensor:
    """The same for the line end and one text after it, (T, F)."""
    return openness(torch.tensor([tokenizer.encode("\n" + text)]))[0]


# %% tags=["source-hidden"] slide="skip"
def shaded_text(ax, words: list[str], shades: list[float]) -> None:
    """The words of a text in lines, each on a ground that is darker for a larger number, 0 to 1."""
    across, line = 0, 0
    for word, shade in zip(words, shades, strict=True):
        if across + len(word) > 70:
            across, line = 0, line + 1
        color = figures.HEAT(max(0.0, shade))
        ground = {"boxstyle": "round,pad=0.18", "facecolor": color, "edgecolor": "none"}
        ink = figures.ink_on(color)
        ax.text(across, -line, word, family="DejaVu Sans Mono", size=17, color=ink, bbox=ground, va="center")
        across += len(word) + 1
    ax.set(xlim=(-0.5, 71), ylim=(-line - 0.6, 0.6))
    figures.unframed(ax)
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)


# %% tags=["signature", "source-hidden"] slide="subslide" evidence="three-units"
read_by = opens_in(TEXT + QUOTED)  # (T, F)
shown_words = [tokenizer.decode([token]).strip() for token in tokenizer.encode("\n" + TEXT + QUOTED)][1:]
opened = {f"unit {unit}": read_by[1:, unit].tolist() for unit in (203, 34, 70)}
with figures.drawing(10.6, 6.6) as fig:
    for ax, (unit, how_far) in zip(fig.subplots(3, 1), opened.items(), strict=True):
        shaded_text(ax, shown_words, [x / 11 for x in how_far])
        ax.set_ylabel(unit, size=19, weight="bold")
    fig.axes[0].set_title("Three units read the same text", size=24)
    fig.supxlabel("darker: the unit opens further", size=19)
figures.display(
    fig, alt="The same text three times, for three units. Unit 203 is dark at gray and yellow, unit 34 at the, unit 70 at the first quotation mark.",
    caption="The darker a word, the further the unit opens when the model has read it. Nobody programmed these units: training found them. What is the rule of each?",
    table={"word": shown_words, **opened}, digits=2,
)  # fmt: skip
assert read_by.shape[1] == 320
assert shown_words[read_by[1:, 34].argmax()] == "the" and shown_words[read_by[1:, 70].argmax()] == '"'
assert {shown_words[i] for i in read_by[1:, 203].topk(2).indices.tolist()} == {"gray", "yellow"}

# %% [markdown]
# Unit 203 opens at colours. Unit 34 opens far only once, at *the*. Unit 70 opens furthest at the first quotation mark, but not where the same words are quoted again, and less far at a few other words. [[three-units]] The rest of the lesson explains how such a unit works, and what it does when it is open.

# %% [markdown] tags=["note"]
# **Say.** Unit 34 opens only if two facts are true. A linear map of the two facts cannot do that, whatever its weights are. One bend is enough.
#
# **Draw.** The four corners of a square, with 0, 0, 0 and 1 written at them. Ask for one straight slope over the square that has these heights.
#
# **Ask.** After the 2 by 2 table: "Which of the two facts had to be fetched by attention?" (That the word before is *In*.) After the prediction: "And if you are free to choose other weights?"
#
# **Usual answers.**
# - *8* (`8`): The offset is in both numbers, so it is counted twice.
# - *Any number, because it has not been trained* (`any number: it is free`): Three cases fix both weights and the offset. What is left to choose?
# - *A larger linear network would do it* (from the room): Two linear maps in a row are one. The training in this section tries it.
#
# **Cut if short.** The product of the two matrices; the training shows the same.

# %% [markdown] slide="slide"
# ## 2. Why a bend is needed
# When does unit 34 open? In the picture it opened at the *the* of *In the end*. We let it read four pairs of words after the same beginning.

# %% slide="skip"
from torch import nn

from tinylm_classroom import fixed
from tinylm_lib.layers import Linear

# %%
for before_it in ("In", "By"):
    for its_word in ("the", "a"):
        opened_34 = opens_in(f"{TEXT} {before_it} {its_word}")[-1, 34]
        print(f"{before_it} {its_word:<4} unit 34 opens {opened_34:5.1f}")
        assert opened_34 > 5 if (before_it, its_word) == ("In", "the") else opened_34 < 1

# %% [markdown] slide="subslide"
# It seems to open only if **both** facts are true: this word is *the*, and the word before is *In*. Is this true in all our stories?

# %% slide="skip"
gates = torch.cat([openness(part) for part in ids.split(20)])  # (B, T, F)
the, capital_in = (tokenizer.encode(word)[0] for word in (" the", " In"))
is_the = ids[:, 1:] == the  # (B, T - 1)
after_in = ids[:, :-1] == capital_in  # (B, T - 1)

# %% evidence="both-facts"
gate_34 = gates[:, 1:, 34]  # (B, T - 1)
cases = {"the, after In": is_the & after_in, "the, after another": is_the & ~after_in, "another word": ~is_the}
for case, mask in cases.items():
    mean, most = (fixed(value, 1) for value in (gate_34[mask].mean(), gate_34[mask].max()))
    print(f"{case:<18} {mask.sum():>4} times: unit 34 opens {mean:>4} on average, at most {most}")
assert gate_34[is_the & after_in].mean() > 5 > 0.1 > gate_34[is_the & ~after_in].max()

# %% [markdown]
# It is, apart from a few other words where the unit opens a little. [[both-facts]] The word before had to be fetched by attention. Which part combines the two facts? We look at head 1 of layer 2, and at the unit in a copy of the model without this head.

# %% slide="skip"
headless, d_head = copy.deepcopy(model), model.config.d_head
with torch.no_grad():
    headless.blocks[2].attention.o_proj.weight[:, d_head : 2 * d_head] = 0.0  # what head 1 writes

# %% evidence="attention-combines"
for before_it in ("In", "By"):
    for its_word in ("the", "a"):
        pair_ids = torch.tensor([tokenizer.encode(f"\n{TEXT} {before_it} {its_word}")])  # (1, T)
        looks = capture(model, pair_ids).attention(layer=2).weights[0, 1, -1]  # (S)
        alone = torch.nn.functional.silu(capture(headless, pair_ids).outputs["blocks.2.ffn.gate_proj"])[0, -1, 34]
        print(
            f"{before_it} {its_word:<4} head 1 gives {looks[-2]:.2f} to the word before; without it: {fixed(alone, 1)}"
        )
        assert looks[-2] > 0.5 if (before_it, its_word) == ("In", "the") else looks[-2] < 0.1
        assert 1 < alone < 5 if (before_it, its_word) == ("In", "the") else alone < 1

# %% [markdown]
# This head of the same layer does a large part of it: its weights depend on two words at once, so it looks back at *In* from *the* only, and without it the unit opens less far. It is not alone, because the unit still opens at *In the* and at no other pair. [[attention-combines]] Could a linear map combine two facts?

# %% [markdown] slide="subslide"
# We write each fact as 0 or 1. What we want is 1 if both are 1, and otherwise 0.

# %%
facts = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
wanted = torch.tensor([0.0, 0.0, 0.0, 1.0])

# %% tags=["source-hidden"]
some = facts @ torch.tensor([2.0, 4.0]) + 1
predict(
    "A linear map of two facts, with an offset, gives 1 for (0, 0), 5 for (0, 1) and 3 for (1, 0). What does it give for (1, 1)?",
    key=lambda: f"{some[3].item():.0f}",
    choices={
        "7": "",
        "8": "5 + 3 counts the offset twice.",
        "any number: it is free": "Three cases fix both weights and the offset. Nothing is left to choose.",
    },
    because="Each fact adds its own amount: 1 + 2 + 4.",
)

# %% [markdown]
# In a linear map each fact adds its own amount, *whatever the other one is*. So the results for the first three cases determine the fourth, and three times 0 gives a fourth 0.

# %% [markdown] slide="subslide"
# Does training find a way around this? Three networks learn the four cases, each from five different random beginnings: one linear map, two linear maps in a row, and two with a **bend** between them. The bend is **ReLU**: what is below 0 becomes 0, and the rest stays.


# %%
def learn(make, seed: int) -> float:
    """The loss (mean squared error) of a new network after 300 updates."""
    torch.manual_seed(seed)
    network = make()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    for _ in range(300):
        loss = (network(facts)[:, 0] - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


# %% slide="skip"
networks = {
    "one linear map": lambda: Linear(2, 1, bias=True),
    "two linear maps": lambda: nn.Sequential(Linear(2, 6, bias=True), Linear(6, 1, bias=True)),
    "a bend between": lambda: nn.Sequential(Linear(2, 6, bias=True), nn.ReLU(), Linear(6, 1, bias=True)),
}

# %% tags=["source-hidden"] slide="subslide" evidence="bend-learns"
for name, make in networks.items():
    lost = [learn(make, seed) for seed in range(5)]
    print(f"{name:<16} loss after training, five times:", "  ".join(f"{each:.2f}" for each in lost))
    assert max(lost) < 0.001 if name == "a bend between" else all(abs(each - 1 / 16) < 1e-4 for each in lost)
print(f"the best that a linear map can do: 1/16 = {1 / 16:.2f}")

# %% [markdown]
# Without a bend, no training helps: the loss stays at its minimum, where each case is wrong by a quarter. A second linear map changes nothing. With a bend the network learns the task. [[bend-learns]] Two linear maps in a row are one, because the product of two matrices is a matrix:

# %% slide="subslide" evidence="one-map"
first_map, second_map = Linear(2, 6, bias=True), Linear(6, 1, bias=True)
matrix = second_map.weight @ first_map.weight  # (1, 2)
offset = second_map.weight @ first_map.bias + second_map.bias  # (1)
torch.testing.assert_close(second_map(first_map(facts)), facts @ matrix.T + offset)
print("two linear maps in a row are one linear map, of", tuple(matrix.shape))

# %% [markdown]
# By hand one unit is enough. Add the facts, subtract 1, and bend:

# %% evidence="relu"
total = facts @ torch.tensor([1.0, 1.0]) - 1
print("before the bend:", total.tolist(), " after:", torch.relu(total).tolist())
assert torch.relu(total).equal(wanted)

# %% [markdown] slide="subslide"
# A number that is bent is a **unit**, and the bend is its **activation function**. The classic feed-forward maps $C$ features *up* to $F$ units, bends them, and maps them *down* to $C$ features again ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)). Without biases:
#
# $$W_{down}\,\text{bend}(W_{up}\, x)$$

# %% [markdown] slide="say"
# With biases and enough units, such a network can come as close as you like to any continuous function on a closed, bounded region ([Leshno et al. 1993](https://doi.org/10.1016/S0893-6080%2805%2980131-5)). This says nothing about whether training finds it.

# %% [markdown] tags=["note"]
# **Say.** ReLU multiplies by 0 or by 1. Replace this switch by something between 0 and 1, and a unit that is nearly shut can still learn.
#
# **Draw.** The three curves. Mark the point x = -3 on each, and draw the slope there as a short line.
#
# **Ask.** Before the prediction: "A unit is shut at every word. What does its gradient look like?" After the training: "Why is 0.19 the loss of a network whose units are all shut?" (It can only learn the mean of the four answers, a quarter. Three of its errors are 1/4, one is 3/4, and the mean of their squares is 3/16.)
#
# **Usual answers.**
# - *SiLU is about 0 below 0 and about x above* (from the room): Far away, yes. Near 0, where most numbers are, -1 becomes -0.2689.
# - *All three still learn* (`ReLU and SiLU and GELU`): Below 0 ReLU is flat. Move x a little: what changes?
# - *The gate is returned alone* (`sigmoid alone`): The sigmoid is the gate. What passes through it?
# - *The formula with exp* (`overflows below`): Its values are right, but far below 0 its gradient is NaN (section 9).
#
# **Cut if short.** The exercise (it is one line), and the sentence on GELU.

# %% [markdown] slide="slide"
# ## 3. Softer bends
# ReLU multiplies a number by 1 if it is above 0, and otherwise by 0. A softer bend multiplies it by a **gate** between 0 (shut) and 1 (open), and the number itself decides how far the gate is open.

# %% [markdown]
# - **SiLU**, also called *swish*, uses the sigmoid as its gate, written $\sigma$ (sigma): $\text{silu}(x) = x \cdot \sigma(x)$ with $\sigma(x) = 1 / (1 + e^{-x})$. Llama has it.
# - **GELU** uses the probability that a random number from a standard normal distribution is below $x$: $\text{gelu}(x) = x \cdot \Phi(x)$ (phi). BERT and GPT-2 have it (section 9).

# %% slide="skip"
import math

from matplotlib import pyplot as plt

from tinylm_lib import layers
from tinylm_classroom import check, hint, keep, show

plt.style.use(figures.STYLE)

# %%
for value in (-2.0, -1.0, 0.0, 1.0, 2.0):
    sigmoid = 1 / (1 + math.exp(-value))
    print(f"x {value:2.0f}: gate {sigmoid:.4f}, x times gate {value * sigmoid:7.4f}")

# %% [markdown] slide="subslide"
# ### Your turn
# SiLU for a tensor of any shape.


# %% tags=["exercise"] name="silu" minutes=6 difficulty=1 plan=80
def silu(x):
    """x (...), any shape: x times its sigmoid, each number by itself.

    Returns (...) in the dtype of x. The caller's x is not changed.
    Values and gradients are finite from -1e6 to 1e30.
    """
    # SOLUTION
    return x * torch.sigmoid(x)
    # END


# %% tags=["check"]
if check("silu", silu).passed:
    keep("silu", silu)

# %%
hint("silu")

# %% [markdown] tags=["solution"]
# It is x, multiplied by its gate. Common mistakes: the gate alone; and `1 / (1 + torch.exp(-x))`, whose values are right and whose gradient is NaN far below 0 (section 9).

# %% [markdown] slide="subslide"
# ### What they look like
# The library leaves each bend to PyTorch. We compare both with their formulas, and let autograd compute the slopes.

# %% rows=["S0-28"] slide="skip"
x_line = torch.linspace(-6, 6, 12_001, dtype=torch.float64, requires_grad=True)
torch.testing.assert_close(layers.silu(x_line), x_line * torch.sigmoid(x_line))
torch.testing.assert_close(layers.gelu(x_line), x_line * torch.distributions.Normal(0, 1).cdf(x_line))
bends = {"ReLU": torch.relu, "SiLU": layers.silu, "GELU": layers.gelu}
curves = {name: bend(x_line) for name, bend in bends.items()}
slopes = {name: torch.autograd.grad(curve.sum(), x_line)[0] for name, curve in curves.items()}

# %% slide="fragment"
show(layers.silu)

# %% tags=["source-hidden"] rows=["S4-45"] slide="subslide"
fig, (left_ax, right_ax) = plt.subplots(1, 2, figsize=(11.4, 5), layout="constrained")
for name, curve in curves.items():
    left_ax.plot(x_line.tolist(), curve.tolist(), label=name)
    right_ax.plot(x_line.tolist(), slopes[name].tolist())
left_ax.set(title="Far from 0 alike, near 0 softer", xlabel="x", ylabel="result")
right_ax.set(title="Their slopes", xlabel="x", ylabel="slope")
left_ax.legend(frameon=False, loc="upper left")
some_x = [0, 3000, 4000, 5000, 6000, 7000, 8000, 12_000]
columns = {name: [fixed(value, 4) for value in curve[some_x].tolist()] for name, curve in curves.items()}
columns |= {f"slope of {name}": [fixed(value, 4) for value in slope[some_x].tolist()] for name, slope in slopes.items()}
figures.display(
    fig,
    alt="Two charts for x from -6 to 6. Left: ReLU has a corner at 0; SiLU and GELU are smooth and dip below 0 before they rise. Right: the slope of ReLU jumps from 0 to 1, those of SiLU and GELU rise smoothly through one half.",
    caption="Left of 0 ReLU is flat, so its slope is exactly 0. The soft bends dip below 0 and come back, so their slopes cross 0 at the lowest point.",
    table={"x": [fixed(value, 0) for value in x_line[some_x].tolist()], **columns},
)

# %% slide="skip" rows=["S1-10"] evidence="slope-below-0"
at_minus_3 = {name: slope[3000].item() for name, slope in slopes.items()}
assert at_minus_3["ReLU"] == 0 and at_minus_3["SiLU"] != 0 and at_minus_3["GELU"] != 0
for name in ("SiLU", "GELU"):
    lowest = curves[name].argmin()
    assert slopes[name][1000].abs() < slopes[name][3000].abs() / 2  # at x = -5 it is less steep than at -3
    print(f"{name} is lowest at x = {x_line[lowest]:.3f}, with {curves[name][lowest]:.6f}")
few = layers.silu(torch.tensor([-1.0, 1.0, -5.0]))
print("SiLU of -1, 1 and -5:", [round(value, 4) for value in few.tolist()])

# %% [markdown] slide="say"
# People often say that SiLU is about 0 below 0 and about $x$ above it. Far away that is right. Near 0, where many numbers are, -1 becomes -0.2689 and 1 becomes 0.7311. And the curve does not only rise: -1 comes out lower than -5.

# %% [markdown] slide="subslide"
# ### What the slope is for
# For learning the **slope** counts, because a gradient on its way back is multiplied by it (lesson 02). We train the network of section 2 once more, but all its units start at about -3.


# %%
def shut_at_first(bend: nn.Module) -> nn.Module:
    network = nn.Sequential(Linear(2, 6, bias=True), bend, Linear(6, 1, bias=True))
    nn.init.constant_(network[0].bias, -3.0)
    return network


# %% slide="skip"
revived = {
    "ReLU": [learn(lambda: shut_at_first(nn.ReLU()), seed) for seed in range(5)],
    "SiLU": [learn(lambda: shut_at_first(nn.SiLU()), seed) for seed in range(5)],
    "GELU": [learn(lambda: shut_at_first(nn.GELU()), seed) for seed in range(5)],
}

# %% tags=["source-hidden"]
able = [name for name, lost in revived.items() if max(lost) < 0.01]
predict(
    "Every unit gets about -3 at every input. With which bends can the network still learn the task?",
    key=lambda: " and ".join(able),
    choices={
        "ReLU and SiLU and GELU": "Below 0 ReLU is flat. Where nothing changes, the gradient is 0.",
        "SiLU and GELU": "",
        "none": "At -3 the soft bends are close to 0, but they still change a little.",
    },
    because="The slope of ReLU is exactly 0 there, so its units get no gradient.",
)

# %% tags=["source-hidden"] evidence="dead-units"
for name, lost in revived.items():
    print(f"{name}: slope at -3 {at_minus_3[name]:.4f}, loss after training", "  ".join(f"{each:.2f}" for each in lost))
assert able == ["SiLU", "GELU"] and all(abs(each - 3 / 16) < 1e-4 for each in revived["ReLU"])

# %% [markdown]
# A ReLU unit that is below 0 at every input gets no gradient, so its weights stay as they are: a **dead unit** (the *dying ReLU* problem). Here all six are dead, and only the bias of the last map learns. With SiLU or GELU the same network learns the task. [[dead-units]] Their slopes at -3 are small and even negative, but they are not 0. [[slope-below-0]]

# %% [markdown] slide="say"
# ReLU itself has no jump: its curve has a corner, and only its slope jumps. We started the network so that all units are dead. Whether units die in practice depends on the initial weights and on the learning rate.

# %% [markdown] tags=["note"]
# **Say.** In SiLU one number decides both whether something passes and what passes. Two questions deserve two maps. Then the students write the feed-forward of Llama.
#
# **Draw.** The two routes, with a tap on the upper one. Write the shapes at the arrows, C at both ends and F in the middle.
#
# **Ask.** "How many parameters does the second route add, and what could you cut to pay for it?" (Section 8 answers.)
#
# **Usual answers.**
# - *silu on the up route* (`swapped`): Which of the two routes decides how much passes?
# - *silu on the product* (`silu of the product`): Then neither route is a gate. Look at the picture again.
# - *A sum of the two routes* (`added`): In a sum nothing is ever shut.
# - *One weight for both routes* (`gate for both`): Two questions, two matrices.
# - *x is added* (`x added`): That is the work of the block (lesson 09).
# - *The weights without .T* (`not transposed`): They are stored as (out, in), as in lesson 02.
# - *A gate lies between 0 and 1* (from the room): SiLU of the gate route has no upper limit. In the picture of section 1 units open much further than 1.
#
# **Cut if short.** The library's source; keep the trace.

# %% [markdown] slide="slide"
# ## 4. A gate of its own
# In SiLU one number answers two questions: *whether* something passes, and *what* passes. Two questions deserve two maps. The **gate** route decides how far a unit opens, the **up** route what it passes on, and the two are multiplied. By hand, for two units:

# %%
for gate_value, up_value in ((4.0, 3.0), (-10.0, 1000.0)):
    opened_by_hand = layers.silu(torch.tensor(gate_value)).item()
    passes = opened_by_hand * up_value
    print(f"gate {gate_value:.0f}, after SiLU {opened_by_hand:.4f}, times {up_value:.0f} is {passes:.1f}")

# %% [markdown]
# The second unit is shut, so nearly nothing of its 1000 passes. Think of a tap: the gate is the hand that turns it, and the up route is the water. The image has a limit: a tap can only be fully open, but SiLU of the gate route may be larger than 1.

# %% [markdown] slide="subslide"
# With SiLU on the gate route this is **SwiGLU** ([Shazeer 2020](https://arxiv.org/abs/2002.05202)), the feed-forward of the Llama models. Here $\odot$ multiplies two vectors number by number. Llama's code calls the matrices $W_1$ (gate), $W_3$ (up) and $W_2$ (down).
#
# $$\text{SwiGLU}(x) = W_{down}\,\big(\text{silu}(W_{gate}\, x) \odot W_{up}\, x\big)$$

# %% tags=["source-hidden"] slide="skip"
ARROWS = (
    ((0.05, 0.56), (0.126, 0.76), "C"),
    ((0.05, 0.44), (0.141, 0.24), "C"),
    ((0.294, 0.8), (0.39, 0.8), "F"),
    ((0.47, 0.8), (0.617, 0.543), "F"),
    ((0.279, 0.2), (0.61, 0.475), "F"),
    ((0.672, 0.5), (0.725, 0.5), "F"),
    ((0.905, 0.5), (0.96, 0.5), "C"),
)
BOXES = (
    (0.21, 0.8, "gate_proj\n(F, C)"),
    (0.43, 0.8, "silu"),
    (0.21, 0.2, "up_proj\n(F, C)"),
    (0.815, 0.5, "down_proj\n(C, F)"),
)
LABELS = (
    (0.01, 0.5, "x\n(B, T, C)", "C"),
    (0.65, 0.8, "(B, T, F)\nhow far open?", "F"),
    (0.56, 0.2, "(B, T, F)\nwhat to pass on", "F"),
    (1.02, 0.5, "(B, T, C)", "C"),
)

# %% tags=["source-hidden"] rows=["S0-32"]
with figures.axes("SwiGLU: two routes and a product", "left to right", "routes", (10.4, 4.6)) as (figure, ax):
    for start, end, letter in ARROWS:
        figures.arrow(ax, start, end, letter, width=4)
    for across, high, said in BOXES:
        figures.box(ax, across, high, said)
    for across, high, said, letter in LABELS:
        color = figures.AXIS_COLORS[letter].light
        ax.text(across, high, said, color=color, weight="bold", ha="center", va="center")
    ax.plot(0.64, 0.5, "o", color=figures.INK, markersize=32)
    ax.text(0.64, 0.495, "×", color="white", size=26, ha="center", va="center")
    ax.set(xlim=(-0.05, 1.08), ylim=(0.05, 0.95))
    ax.axis("off")
figures.display(
    figure,
    alt="Diagram: x goes through gate_proj and silu on one route, through up_proj on the other; their product goes through down_proj.",
    caption="Blue is C wide, pink is F wide. The routes meet only in the product, number by number.",
    table={"after": ["gate_proj, silu", "up_proj", "product", "down_proj"], "shape": ["(B, T, F)"] * 3 + ["(B, T, C)"]},
)

# %% [markdown] slide="subslide"
# ### Your turn
# Write the whole feed-forward, with the picture next to you. You may use your own `silu` or `torch.nn.functional.silu`.


# %% tags=["exercise"] name="swiglu" minutes=12 difficulty=2
def swiglu(x, w_gate, w_up, w_down):
    """x (..., C), any leading axes. w_gate and w_up (F, C), w_down (C, F).

    Weights are stored as (out, in), as in lesson 02. No biases. Any strides.
    Returns (..., C) in the dtype of x. Gradients reach all four.
    They are finite also where the gate route is far below 0.
    """
    # SOLUTION
    opened = torch.nn.functional.silu(x @ w_gate.T)  # (..., F)
    return (opened * (x @ w_up.T)) @ w_down.T
    # END


# %% tags=["check"]
if check("swiglu", swiglu).passed:
    keep("swiglu", swiglu)

# %%
hint("swiglu")

# %% [markdown] tags=["solution"]
# Two maps from the same x, silu on one of them, the product, and a map back. Weights are (out, in), so each is used as `x @ w.T`. Common mistakes: silu on the up route or on the product; a sum instead of
# a product; one weight for both routes; x added, which is the work of the block (lesson 09).

# %% [markdown] slide="subslide"
# ### The library's version
# The same with modules. The trace shows what each line does to the shapes: C features, F units, C features again.

# %% slide="skip"
from tinylm_lib import ModelConfig
from tinylm_classroom import trace
from tinylm_lib.feedforward import FFNS, GatedMLP, feed_forward

# %% rows=["S0-29", "S0-30", "S1-18"] evidence="two-routes" slide="skip"
_ = torch.manual_seed(8)
layer_of_20 = GatedMLP(ModelConfig(d_model=12, n_heads=3, d_ff=20), layers.silu)
small = torch.randn(2, 7, 12)  # (B, T, C)
gate_route = layers.silu(layer_of_20.gate_proj(small))  # (B, T, F)
up_route = layer_of_20.up_proj(small)  # (B, T, F)
torch.testing.assert_close(layer_of_20(small), (gate_route * up_route) @ layer_of_20.down_proj.weight.T)

# %% slide="fragment"
show(GatedMLP)

# %% slide="subslide"
trace(layer_of_20, small, sizes={"B": 2, "T": 7, "C": 12, "F": 20})

# %% [markdown] slide="say"
# The SwiGLU paper tried several bends with a gate and without one. Its losses were lower with a gate than without one, and its author offers no explanation (Shazeer 2020).

# %% [markdown] tags=["note"]
# **Say.** A unit opens if the position looks like this, and then it adds that. We have seen the *if*. Now the *then*, and what happens without the unit. Only removing it shows what the model uses it for.
#
# **Draw.** One unit as a sentence with two blanks: *if ..., then ...*. Fill it in for unit 34.
#
# **Ask.** Before the prediction: "The shipped model has three layers of 320 units. What can one of them matter?" With the control let the room choose a unit at random: most are hard to name, and that is an honest result.
#
# **Usual answers.**
# - *One of so many changes nothing* (`nothing changes`): True of most units. Look at what unit 34 raises: which other unit would do it?
# - *Everything gets a little worse* (`all words get a little worse`): At how many positions is it open?
# - *The six are picked by hand* (from the room): They are. That is why the section counts all units.
#
# **Cut if short.** Everything after the control; say that most units are mixed, but few of those open far.

# %% [markdown] slide="slide"
# ## 5. If this, then that
# What does a unit do when it is open? Its number, now gate times up, is multiplied by its column of `down_proj`, and the result is added to the position.

# %% [markdown]
# After the last layer the model compares the vector at the position with a row for each word of its vocabulary. So we can project a column onto the vocabulary and read off which words it raises most ([Geva et al. 2022](https://arxiv.org/abs/2203.14680)). The final norm multiplies each feature by its gain (lesson 04), so we do the same. The sign is the one that the up route has where the unit is open.

# %% slide="skip"
from torch.nn.functional import cross_entropy

from tinylm_classroom import control

added = layers.silu(caught.outputs["blocks.2.ffn.gate_proj"]) * caught.outputs["blocks.2.ffn.up_proj"]  # (20, T, F)

# %%
head_rows = model.lm_head.weight * model.final_norm.weight  # (V, C)
column_raises = head_rows @ model.blocks[2].ffn.down_proj.weight  # (V, C) @ (C, F) -> (V, F)
raises = (column_raises * added.sum((0, 1)).sign()).detach()  # (V, F)

# %% slide="skip"
pairs = torch.stack((ids[:, :-1], ids[:, 1:]), -1).flatten(0, 1)  # (N, 2): each token and the one before it
kinds_of_pairs, which_pair, counts = pairs.unique(dim=0, return_inverse=True, return_counts=True)
sums = torch.zeros(len(counts), gates.shape[-1]).index_add(0, which_pair, gates[:, 1:].flatten(0, 1))
frequent = counts >= 3
pair_gates = (sums / counts[:, None])[frequent]  # (P, F)
pair_texts = [[tokenizer.decode([token]).strip() for token in pair] for pair in kinds_of_pairs[frequent].tolist()]
pair_names = [" ".join(texts) for texts in pair_texts]

# %% [markdown] slide="say"
# For the *if* we take the average gate after each pair of words that occurs at least 3 times.


# %% slide="skip"
def if_then(unit=34):
    fig, (if_ax, then_ax) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    # ESSENTIAL
    opens = pair_gates[:, unit].topk(6).indices.tolist()
    raised = raises[:, unit].topk(6).indices.tolist()
    contexts = [pair_names[i] for i in opens]
    answers = [tokenizer.decode([token]).strip() for token in raised]
    if_ax.barh(contexts, pair_gates[opens, unit], color=figures.AXIS_COLORS["F"].light)
    then_ax.barh(answers, raises[raised, unit], color=figures.AXIS_COLORS["V"].light)
    # END
    if_ax.set(title=f"If unit {unit} reads ...", xlabel="how far it opens", ylabel="last two words")
    then_ax.set(title="... then it raises", xlabel="weight of its column", ylabel="next word")
    for side in (if_ax, then_ax):
        side.invert_yaxis()
    alt = f"Two bar charts for unit {unit}: after which pairs of words it opens furthest, and which next words it raises most."
    caption = "A unit as a rule. Left: where it opens furthest, on average. Right: the next words that its column of down_proj raises most."
    opened, by = pair_gates[opens, unit].tolist(), raises[raised, unit].tolist()
    table = {"reads": contexts, "opens": opened, "raises": answers, "by": by}
    figures.display(fig, alt=alt, caption=caption, table=table, digits=2)


# %%
control(if_then, unit=(0, 319))  # then try 203, 64, 113 and one at random

# %% [markdown]
# **If** the last words are *In the*, **then** raise *end* and *light*. The feed-forward has been compared with a memory of such pairs, each with a key and a value ([Geva et al. 2021](https://arxiv.org/abs/2012.14913)). Move the slider to 203 (colours, then things), 64 or 113. Most other units are harder to read.

# %% [markdown] slide="subslide"
# ### Is the unit needed?
# So far we have only watched. To find out what a unit is *for*, remove it.


# %%
@torch.no_grad()
def losses(reader) -> torch.Tensor:
    """The loss at each position of the stories, in nats, (B, T - 1)."""
    logits = reader(ids[:, :-1])  # (B, T - 1, V)
    return cross_entropy(logits.mT, following, reduction="none")


def without_units(removed: list[int], layer: int = 2):
    """A copy of the shipped model in which these units of a layer pass nothing on."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.blocks[layer].ffn.down_proj.weight[:, removed] = 0
    return changed


# %% slide="skip"
usual = losses(model)
rise_34 = losses(without_units([34])) - usual  # (B, T - 1)
end, light = (tokenizer.encode(word)[0] for word in (" end", " light"))
in_the = (following == end) | (following == light)  # (B, T - 1)

# %% tags=["source-hidden"]
predict(
    "We remove unit 34, one of 3 times 320. How does the loss of the model change?",
    key=lambda: "a few words get much worse" if rise_34[in_the].mean() > 2 and rise_34[~in_the].mean() < 0.01 else "?",
    choices={
        "nothing changes": "Which other unit raises these two words after these two words?",
        "all words get a little worse": "At most positions the unit is shut, and a shut unit adds nothing.",
        "a few words get much worse": "",
    },
    because="It is open at few positions, and there nothing else does its work.",
)

# %% tags=["source-hidden"] evidence="unit-34"
print(f"without unit 34: end and light {rise_34[in_the].mean():+.2f} nats ({in_the.sum()} times)")
print(f"                 all other words {fixed(rise_34[~in_the].mean(), 3)}")
assert rise_34[in_the].mean() > 2 and rise_34[~in_the].abs().mean() < 0.01

# %% [markdown]
# Without unit 34 the loss rises by more than 2 nats on the two words that the unit raises, and not on the others. [[unit-34]] Here watching and removing agree: the unit is *for* these words. Is this the rule? We remove each unit of the last layer alone. Only what comes after it has to be computed again.

# %% slide="skip"
stream = caught.outputs["blocks.2"]  # (20, T, C)
columns_down = model.blocks[2].ffn.down_proj.weight.detach()  # (C, F)


# %%
@torch.no_grad()
def loss_after(stream: torch.Tensor) -> float:
    """The mean loss if this comes out of the last layer."""
    logits = model.lm_head(model.final_norm(stream[:, :-1]))  # (B, T - 1, V)
    return cross_entropy(logits.mT, some_stories[:, 1:]).item()


alone = [loss_after(stream - added[..., [unit]] * columns_down[:, unit]) for unit in range(320)]
rises = torch.tensor(alone) - loss_after(stream)  # (F)

# %% slide="subslide" evidence="units-alone"
quiet = [unit for unit in range(320) if rises[unit] < 0.001]
together = (losses(without_units(quiet)) - usual).mean()
print(f"{len(quiet)} of 320 units: without any one of them the loss rises by less than 0.001 nats")
print(f"without any one of them, all these rises added: {rises[quiet].sum():.2f} nats")
print(f"without all of them at once: {together:.2f} nats")
assert len(quiet) > 300 and together > 10 * rises[quiet].sum() > 0

# %% [markdown]
# It is not. Nearly every unit can be removed alone with hardly any rise of the mean loss. But without all of these units at once the loss rises by far more than their single rises added. [[units-alone]] So removing units one by one does not show what they do together. (Part of this harm comes from the removal itself: without all 320 units the loss rises less, as the next cell shows.)

# %%
for removed in ((0,), (1,), (2,), (0, 1)):
    rise = (losses(without("ffn", removed)) - usual).mean()
    print(f"without all units of {' and '.join(f'layer {i}' for i in removed)}: {rise:.2f} nats")

# %% [markdown]
# Alone, the feed-forward of the middle layer is not missed. But without both it and that of layer 0 the loss rises by far more than without layer 0 alone.

# %% [markdown] tags=["note"]
# **Say.** We have chosen readable units. Now the honest count, a guess that is too wide, and a test that shows less than it seems to.
#
# **Draw.** A row of units and a row of kinds of words. For the units of the picture draw one line each, then many lines from one unit to several kinds: that is a mixed unit.
#
# **Ask.** After the list for unit 239: "What do *friendly* and *met* have in common?" After the last table: "Why is it worse to hold the up route than to have no feed-forward at all?"
#
# **Usual answers.**
# - *It opens at verbs and adjectives* (from the room): Which of them? Look at the word that comes next.
# - *It opens before names* (from the room): Names come next in other positions, too. Is it open there?
# - *The model could not say names without it* (from the room): Remove it. It still says names, but prefers some of them.
# - *So the gates are what counts* (from the room): Hold the other route, and it is even worse. What have the parts that follow never seen?
#
# **Cut if short.** The last table. Keep the count of mixed units.

# %% [markdown] slide="slide" plan=80
# ## 6. How typical are these units?
# The units so far were chosen because they are easy to read. Which words open them most?

# %% slide="skip"
from tinylm_lib.storyworld import CLASSES

shown_units = [203, 234, 239, 64, 193, 113]
often = [token for token in range(model.config.vocab_size) if (ids == token).sum() >= 3]
word_gates = torch.stack([gates[ids == token].mean(0) for token in often])  # (N, F): words, units

# %%
for unit in shown_units:
    best = word_gates[:, unit].topk(7).indices.tolist()
    print(f"unit {unit:>3} opens furthest at", *(tokenizer.decode([often[i]]).strip() for i in best))

# %% [markdown] slide="subslide"
# We count for all units of the layer: how many of StoryWorld's classes of words (names, colours, ...) open a unit at least half as far as its best word does? Half is our choice, so we try a stricter limit, too.

# %% slide="skip"
class_of = {word: name for name, members in CLASSES.items() for word in members}
often_words = [tokenizer.decode([token]).strip() for token in often]
classes = [class_of.get(word, word) for word in often_words]  # a word in none of them is a class of its own


def classes_that_open(limit: float) -> torch.Tensor:
    """For each unit, how many classes of words open it further than this part of its largest gate, (F)."""
    n_classes = []
    for of_unit in word_gates.T:
        wide = (of_unit > limit * of_unit.max()).tolist()
        n_classes.append(len({name for name, is_wide in zip(classes, wide, strict=True) if is_wide}))
    return torch.tensor(n_classes)


# %% evidence="most-units-are-mixed"
half, strict = classes_that_open(0.5), classes_that_open(0.9)
print(f"above 0.5 of its largest gate: the median of {len(half)} units is {half.median()} classes")
print(f"above 0.9 of its largest gate: {strict.median()}")
print(f"units with a single class above 0.5: {(half == 1).sum()}")
far_open = word_gates.amax(0) > 5  # (F)
print(f"units whose largest gate is above 5: {far_open.sum()}")
print(f"of these, with a single class above 0.5: {(half[far_open] == 1).sum()}")
assert 20 < (half == 1).sum() < 100 and half.median() >= 3 and strict.median() == 1
assert half[203] == half[234] == 1 and (half[far_open] == 1).sum() > far_open.sum() / 2

# %% [markdown]
# If a unit counts as open at half of its largest gate, units 203 and 234 open at one class, but most units open at several: they are mixed, or *polysemantic*. [[most-units-are-mixed]] Most of these never open far, however: of the units that open above 5, more than half have one class. [[most-units-are-mixed]] With the limit 0.9 most have one class, so the answer depends on the limit. One reason that has been proposed for mixed units is **superposition**: a model stores more features than it has units ([Elhage et al. 2022](https://arxiv.org/abs/2209.10652)).

# %%
for layer in range(3):
    of_layer = layers.silu(caught.outputs[f"blocks.{layer}.ffn.gate_proj"])  # (20, T, F)
    print(f"layer {layer}: the largest gate at any position is {of_layer.max():.1f}")

# %% [markdown]
# In the first two layers no unit opens as far as those that we looked at. What their units do is harder to read, because later layers still change it.

# %% [markdown] slide="subslide"
# Unit 239 opens at *friendly* as well as at *met*. What do these words have in common? A guess: a name comes next. But names also come next where a person is mentioned again, so we measure both.

# %% slide="skip"
name_ids = torch.tensor([tokenizer.encode(" " + name)[0] for name in CLASSES["name"]])
is_name = torch.isin(following, name_ids)
said_before = (following[:, :, None] == ids[:, None, :-1]).tril().any(-1)  # (B, T - 1)
where = {"a new name": is_name & ~said_before, "a name again": is_name & said_before, "another word": ~is_name}

# %% evidence="a-new-name"
opens_239 = {what: gates[:, :-1, 239][mask].mean() for what, mask in where.items()}
for what, opening in opens_239.items():
    print(f"where {what:<12} comes next, unit 239 opens {fixed(opening, 1):>4} on average")
assert opens_239["a new name"] > 5 > 1 > opens_239["a name again"]

# %% [markdown]
# The unit opens where a *new* name comes next. [[a-new-name]] Is it needed to say that a name comes next?

# %% slide="subslide" evidence="names-without-239"
new_name = where["a new name"]
for what, reader in {"as trained": model, "without unit 239": without_units([239])}.items():
    with torch.no_grad():
        any_name = reader(ids[:, :-1]).softmax(-1)[..., name_ids].sum(-1)[new_name].mean()
    on_names = losses(reader)[new_name].mean()
    print(f"{what:<17} probability of a name {any_name:.3f}, loss on the name {on_names:.2f} nats")
print(f"any of {len(name_ids)} names with the same probability: {math.log(len(name_ids)):.2f} nats")
assert any_name > 0.99 and on_names > math.log(len(name_ids)) + 0.05

# %% [markdown]
# No. Without it the model is as certain that a name comes next, but it no longer gives all names the same probability. [[names-without-239]] When a unit opens does not yet show what it is for.

# %% [markdown] slide="subslide"
# ### Does this model use its gates?
# We let the gates of all three layers no longer react to the word, by holding each at its average. And we hold the up route instead, or both. A *hook* is a function that PyTorch calls after a module, and what it returns replaces the result of the module.


# %% slide="skip"
def following_rule(rule):
    """A copy of the shipped model whose feed-forwards compute rule(ffn, x)."""
    changed = copy.deepcopy(model)
    for block in changed.blocks:
        block.ffn.register_forward_hook(lambda ffn, inputs, output: rule(ffn, inputs[0]))
    return changed


# %%
def held(routes: str):
    def rule(ffn, x):
        gate, up = layers.silu(ffn.gate_proj(x)), ffn.up_proj(x)  # (B, T, F)
        gate = gate.mean((0, 1)) if "gate" in routes else gate
        up = up.mean((0, 1)) if "up" in routes else up
        return ffn.down_proj((gate * up).expand(*x.shape[:2], -1))

    return following_rule(rule)


# %% evidence="gates-held"
tried = {"as trained": model, "no feed-forward": readers["no feed-forward"]}
tried |= {f"{routes} held": held(routes) for routes in ("gate", "up", "gate and up")}
loss_of = {name: losses(reader).mean().item() for name, reader in tried.items()}
for name, value in loss_of.items():
    print(f"{name:<17} {value:.2f} nats per token")
whole = loss_of["no feed-forward"] - loss_of["as trained"]
assert loss_of["gate held"] - loss_of["as trained"] > 0.7 * whole
assert loss_of["up held"] > loss_of["no feed-forward"]

# %% [markdown]
# With its gates held, this model is hardly better than without feed-forwards. [[gates-held]] So it seems to use its gates. But with the up route held it is even worse than with no feed-forward at all, probably because the layers that follow read vectors that they never met in training. Part of the harm of the held gates may have the same reason. Nor does the test show that a model *trained* without gates would be worse. Lesson 14 trains one.

# %% [markdown] tags=["note"]
# **Say.** Three wrong feed-forwards with the right shapes. Nothing raises an error, and one of them is hardly worse.
#
# **Draw.** The two routes of section 4 again. Cross out the silu, move it to the lower route, replace the product by a sum.
#
# **Ask.** After the numbers: "Trained from the start with silu on the other route, how well would this model do?" (As well: the two matrices only exchange their names.)
#
# **Usual answers.**
# - *ReLU harms most, because it is another function* (from the room): Where do the two differ? Which units change from open to shut?
# - *All three destroy the model* (from the room): Ask which units are open under each rule.
#
# **Cut if short.** All of it; give the prediction as homework.

# %% [markdown] slide="slide" plan=80
# ## 7. Break it: wrong routes
# The shipped model, with the weights that it has, under three other rules:

# %%
rules = {
    "ReLU on gate": lambda ffn, x: ffn.down_proj(torch.relu(ffn.gate_proj(x)) * ffn.up_proj(x)),
    "SiLU on up": lambda ffn, x: ffn.down_proj(ffn.gate_proj(x) * layers.silu(ffn.up_proj(x))),
    "gate added": lambda ffn, x: ffn.down_proj(layers.silu(ffn.gate_proj(x)) + ffn.up_proj(x)),
}
broken = {name: losses(following_rule(rule)).mean().item() for name, rule in rules.items()}

# %% tags=["source-hidden"]
predict(
    "Order them: which rule harms the model most, which least?",
    key=lambda: sorted(broken, key=broken.get, reverse=True),
    ranking=["SiLU on up", "gate added", "ReLU on gate"],
    because="In a sum no unit is ever shut. With SiLU on the other route the wrong units are shut. ReLU opens and shuts the same units as SiLU.",
)

# %%
print(f"  as trained: {loss_of['as trained']:.2f} nats per token")
for name, value in broken.items():
    print(f"{name:>12}: {value:.2f}")

# %% [markdown]
# All three have the right shapes. With ReLU instead of SiLU the loss hardly rises here. *SiLU on up* is even the same architecture with two names exchanged: trained like this from the start it would do as well, and it fails only with weights that were trained the other way. It is a common mistake to call $W_3$ the gate when you load weights: look for the SiLU.

# %% [markdown] tags=["note"]
# **Say.** How many units should there be, and what do they cost? In three models at their full length the feed-forward does more work than attention.
#
# **Draw.** Two matrices of C by 4C, and next to them three narrower ones with the same area.
#
# **Ask.** The prediction. Then: "When do the scores overtake the feed-forward?" Let the class set 2CT equal to 8CC.
#
# **Usual answers.**
# - *The scores, because they grow with the square of the length* (`scores`): For one token they grow with the length. Compare T with 4C.
# - *The output map, because it has 50,257 rows* (`output map`): It comes once, the others come in each of 12 layers.
# - *Attention, because it is the famous part* (`attention's matrices`): Four matrices of C by C against two of C by 4C.
#
# **Cut if short.** The first half, on the width. Keep the prediction and the picture.

# %% [markdown] slide="slide" plan=80
# ## 8. How wide, and how much work?
# The classic feed-forward has two matrices and $F = 4C$. SwiGLU has three. To have as many parameters it must be narrower: $2 \cdot C \cdot 4C = 3 \cdot C \cdot F$, so
#
# $$F = \tfrac{8}{3}\, C$$
#
# The result is often rounded to a multiple of 64, which suits GPUs. GPT-2 has the classic form, Llama the gated one. The library derives $F$ in the config:

# %% rows=["S0-31", "S1-17"] evidence="as-many"
for ffn, multiple in (("gelu", 64), ("swiglu", 1), ("swiglu", 64)):
    config = ModelConfig(d_model=512, ffn=ffn, d_ff_multiple_of=multiple)
    n_parameters = sum(p.numel() for p in feed_forward(config).parameters())
    assert n_parameters == FFNS[ffn][0].matrices * 512 * config.d_ff
    print(f"{ffn:>6}, multiple of {multiple:>2}: F = {config.d_ff}, {n_parameters:,} parameters")

# %% [markdown] slide="subslide"
# ### Where the work is
# Does attention do most of the work? We count the multiplications for one token. A matrix of $a \times b$ takes $a \cdot b$. Each key takes $D$ for its score and $D$ for its part in the weighted sum, in each head, and we count all keys of a text of full length.

# %% [markdown]
# Four parts: *attention's matrices* (query, key, value, output), the *scores* with the weighted sums, the *feed-forward*, and the *output map* from $C$ features to $V$ words.

# %% slide="skip"
from tinylm_lib import preset
from tinylm_lib.cost import forward_flops


# %% slide="subslide"
def multiplications(config: ModelConfig) -> dict[str, int]:
    C, D, F, L = config.d_model, config.d_head, config.d_ff, config.n_layers
    H, G, T = config.n_heads, config.n_kv_heads, config.max_seq_len
    n_matrices = FFNS[config.ffn][0].matrices  # 3 with a gate, otherwise 2
    return {
        "attention's matrices": L * (2 * C * H * D + 2 * C * G * D),
        "scores": L * 2 * H * D * T,
        "feed-forward": L * n_matrices * C * F,
        "output map": C * config.vocab_size,
    }


# %% slide="skip" evidence="most-multiplications"
models = {"shipped": model.config, "GPT-2 small": preset("gpt2", "small"), "Llama 3 8B": preset("llama", "3-8b")}
work = {name: multiplications(config) for name, config in models.items()}
for name, config in models.items():
    length = config.max_seq_len  # and the library counts additions, too: as many again
    assert 2 * length * sum(work[name].values()) == forward_flops(config, 1, length)
    assert work[name]["feed-forward"] > work[name]["attention's matrices"] + work[name]["scores"]

# %% tags=["source-hidden"]
predict(
    "GPT-2 small with texts of 1024 tokens, its longest: which part multiplies most?",
    key=lambda: max(work["GPT-2 small"], key=work["GPT-2 small"].get),
    choices={
        "attention's matrices": "Four matrices of C by C in each layer. The feed-forward has two of C by 4C.",
        "scores": "They grow with the length, but at this length others are ahead.",
        "feed-forward": "",
        "output map": "It has 50,257 rows, but it comes only once.",
    },
    because="Two matrices of C by 4C are twice as much as attention's four of C by C.",
)

# %% tags=["source-hidden"] slide="subslide"
parts = list(work["shipped"])
hues = [figures.AXIS_COLORS[letter].light for letter in "DSFV"]
amounts = torch.tensor([list(each.values()) for each in work.values()]).double()
amounts = amounts / amounts.sum(-1, keepdim=True)
starts = amounts.cumsum(-1) - amounts
percent = [[f"{amount:.0%}" for amount in column] for column in amounts.T.tolist()]
named = [f"{name},\n{config.max_seq_len:,} tokens" for name, config in models.items()]
fig, ax = plt.subplots(figsize=(10.4, 5.2), layout="constrained")
for i, (part, hue) in enumerate(zip(parts, hues, strict=True)):
    bars = ax.barh(named, amounts[:, i], 0.65, starts[:, i], color=hue, edgecolor="white", label=part)
    ax.bar_label(bars, percent[i], label_type="center", color="white", weight="bold")
ax.set(title="Where three models multiply", xlabel="fraction of the multiplications", ylabel="model and length")
ax.invert_yaxis()
ax.yaxis.label.set_visible(False)
ax.grid(visible=False)
fig.legend(loc="outside lower center", ncols=2, frameon=False)
alt = "Stacked bars for three models: the feed-forward is the largest part of each."
caption = "Each model at its full length. Only the scores grow with the length."
figures.display(fig, alt=alt, caption=caption, table={"model": list(models), **dict(zip(parts, percent, strict=True))})

# %% [markdown]
# In all three the feed-forward does more than the two parts of attention together. [[most-multiplications]] But only the scores grow with the length. When do they overtake it?

# %% evidence="scores-overtake"
small_work, small_width = work["GPT-2 small"], models["GPT-2 small"].d_model
even = small_work["feed-forward"] / (small_work["scores"] / models["GPT-2 small"].max_seq_len)
assert even == 4 * small_width  # 2 * C * T = 8 * C * C
print(f"GPT-2 small: as much for the scores as for the feed-forward at {even:,.0f} tokens")

# %% [markdown]
# To have more units without more work for each token, many large models have several feed-forwards in each layer, and each position uses only a few of them: a **mixture of experts** ([Shazeer et al. 2017](https://arxiv.org/abs/1701.06538)).

# %% [markdown] tags=["note"]
# **Say.** Here is what you need when you load weights or write your own layer: the exact GELU and its approximation, and three mistakes that raise no error.
#
# **Draw.** The bell curve with the part left of x shaded, and next to it erf, which counts the part between -z and z of a narrower bell.
#
# **Ask.** "The values of the formula are right at every x. How would you notice that it cannot be trained?"
#
# **Usual answers.**
# - *x inside erf as it is* (`no root of 2`): erf belongs to variance 1/2. Which x of ours is its z?
# - *erf as the gate* (`erf alone`): erf runs from -1 to 1, a probability from 0 to 1.
# - *1 + erf* (`not halved`): That runs from 0 to 2.
# - *the form with tanh* (`tanh`): It is close, but not equal.
# - *An error: a matrix without rows* (`an error: a matrix without rows`): An axis may have size 0. What is a sum of no products?
#
# **Cut if short.** The exercise; students who need GELU do it at home.

# %% [markdown] slide="slide" plan=110
# ## 9. For engineers
# ### GELU, exact and approximate
# The gate of **GELU** is $\Phi(x)$, the probability that a draw from a standard normal distribution (mean 0, variance 1) is below $x$ ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)). One can count it:

# %%
draws = torch.randn(200_000, generator=torch.Generator().manual_seed(8))
for value in (-2.0, -1.0, 0.0, 1.0, 2.0):
    below = (draws < value).float().mean().item()
    print(f"x {value:2.0f}: below it {below:.2f}, x times gate {fixed(value * below, 2):>5}")

# %% [markdown] slide="subslide"
# To compute it there is the *error function*, `torch.erf(z)`. For a positive $z$ it is the probability that a draw of variance **1/2** is between $-z$ and $z$, and `erf(-z)` is `-erf(z)`.


# %% tags=["exercise"] name="gelu" minutes=8 difficulty=2
def gelu(x):
    """x (...), any shape: x times the probability that a draw
    from a standard normal distribution is below x.

    Exact, no approximation, each number by itself.
    Returns (...) in the dtype of x. The caller's x is not changed.
    Values and gradients are finite from -1e6 to 1e30.
    """
    # SOLUTION
    below = (1 + torch.erf(x / math.sqrt(2))) / 2
    return x * below
    # END


# %% tags=["check"]
if check("gelu", gelu).passed:
    keep("gelu", gelu)

# %%
hint("gelu")

# %% [markdown] tags=["solution"]
# erf belongs to a narrower distribution, whose standard deviation is the root of 1/2, so x is divided by the root of 2. erf runs from -1 to 1 and a probability from 0 to 1, so add 1 and halve. Common mistakes: no root of 2;
# erf itself as the gate, which is negative below 0; the form with tanh, which is close and not equal.

# %% slide="skip"
show(layers.gelu)

# %% [markdown] slide="subslide"
# GPT-2 has another form, which replaces erf by tanh:
#
# $$\text{gelu}_{\tanh}(x) = \tfrac{1}{2}\, x \left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\, x^3)\right)\right)$$

# %%
by_hand = x_line / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x_line + 0.044715 * x_line**3)))
torch.testing.assert_close(layers.gelu_tanh(x_line), by_hand)
print(f"it differs from the exact form by at most {(by_hand - layers.gelu(x_line)).abs().max():.2e}")

# %% [markdown]
# The difference is small, but these are two functions. With the weights of GPT-2 use the GELU of GPT-2.

# %% [markdown] slide="subslide"
# ### Three mistakes without an error
# SiLU with its sigmoid written as a formula has the right values everywhere. And its gradients?

# %% rows=["S1-9"]
for value in (-20.0, -89.0):
    point = torch.tensor(value, requires_grad=True)
    results = {"formula": point / (1 + torch.exp(-point)), "library": layers.silu(point)}
    for name, result in results.items():
        (slope,) = torch.autograd.grad(result, point)
        print(f"x {value:.0f}, {name}: value {result.item():.1g}, gradient {slope.item():.1g}")

# %% [markdown]
# The exponential of 89 is inf in fp32 (lesson 03). Forward, $x / \infty$ is 0, and nobody notices. Backward, this 0 is multiplied by the infinite exponential: the gradient is NaN, and one NaN can spoil all weights. `torch.sigmoid` has no such edge.

# %% [markdown] slide="subslide"
# **Dropout** sets numbers to 0 at random in training. It may be at the end of the feed-forward, and again in the block, on the result of the feed-forward. If each sets 10 % to 0, how many are 0 in the end?

# %% rows=["S2-5"]
_ = torch.manual_seed(8)
classic = feed_forward(ModelConfig(d_model=512, ffn="gelu", ffn_bias=True, ffn_dropout=0.1))
dropped = classic(torch.randn(400, 512))  # (400, 512)
for name, result in (("once", dropped), ("twice", torch.nn.Dropout(0.1)(dropped))):
    print(f"dropped {name}: {(result == 0).float().mean():.0%}")

# %% [markdown]
# 0.9 times 0.9 stays, so 19 % are 0 where the config says 10 %. The library has a switch for each of the two, and its presets use at most one.

# %% [markdown] slide="subslide"
# A common way to round the width, to the nearest multiple of 64:


# %% slide="skip"
from tinylm_lib.config import derived_d_ff


# %%
def nearest_64(d_model: int) -> int:
    return (int(8 / 3 * d_model) + 31) // 64 * 64


for d_model in (512, 128, 16, 8):
    width = derived_d_ff(d_model, 8 / 3, 64)
    print(f"C {d_model:>3}: this rule {nearest_64(d_model):>4}, the library {width:>4}")

# %% slide="skip"
no_units = nearest_64(8)
tiny = torch.randn(7, 8)
w_gate, w_up = torch.randn(no_units, 8), torch.randn(no_units, 8)
w_down = torch.randn(8, no_units)
nothing = (layers.silu(tiny @ w_gate.T) * (tiny @ w_up.T)) @ w_down.T  # (7, 8)

# %% tags=["source-hidden"]
predict(
    "A model with C = 8 is built by this rule, so F = 0. What happens when its feed-forward runs?",
    key=lambda: "zeros, of the right shape" if not nothing.any() else "something else",
    choices={
        "an error: a matrix without rows": "An axis may have size 0, and the product of (7, 0) and (0, 8) is (7, 8).",
        "zeros, of the right shape": "",
        "the input, unchanged": "Nothing copies the input.",
    },
    because="Each result is a sum of no products, which is 0, and PyTorch raises no error.",
)

# %% evidence="width-0"
assert nothing.shape == (7, 8) and not nothing.any()
print("shape", tuple(nothing.shape), "largest number", nothing.abs().max().item())

# %% [markdown]
# Such a model runs, and could be trained, without a feed-forward. The library's rule never goes below one multiple, and a config refuses `d_ff=0`. [[width-0]]

# %% [markdown] tags=["note"]
# **Say.** Attention fetches, and the feed-forward works on what was fetched, with units that are rules. Say only the points whose sections you taught.
#
# **Draw.** Once more the sentence with two blanks, *if ..., then ...*, and fill in the unit that opens after *In the*.
#
# **Ask.** At the door: "Why is one linear map not enough for this unit?"
#
# **Usual answers.**
# - *Because it is too small* (from the room): Two large linear maps in a row are still one linear map.
# - *Because the gates are learned* (from the room): A linear map is learned, too. What can it not express?
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - Without attention the shipped model predicts hardly any word that has to be fetched. Without its feed-forwards it still repeats objects but hardly predicts a pronoun. [[without-feed-forwards]] The feed-forward computes each position separately. [[each-position-alone]]
# - One unit of the shipped model opens far only where two facts are both true. [[both-facts]] Linear maps cannot test that, and two in a row are one linear map [[one-map]], so training does not help. With a bend it works. [[bend-learns]] One unit with ReLU is enough. [[relu]]
# - Units that ReLU shuts at every input get no gradient, and SiLU and GELU units still learn. [[dead-units]]
# - SwiGLU multiplies a gate route by an up route. [[two-routes]]
# - One unit of the shipped model raises two words after *In the*, and without it exactly these have a higher loss. [[unit-34]] Most units of its last layer can be removed alone with hardly any rise of the mean loss, but not all together. [[units-alone]]
# - If half of its largest gate counts as open, most units of its last layer open at several classes of words. [[most-units-are-mixed]] One of them opens where a new name comes next [[a-new-name]], but the model does not need it to know that a name comes next. [[names-without-239]] With all gates held at their averages the model loses most of what its feed-forwards add. [[gates-held]]
# - With the inner width of the formula in section 8, SwiGLU has about as many parameters as the classic form. [[as-many]] In three models at their full length the feed-forwards need more multiplications than attention does. [[most-multiplications]] In GPT-2 small the scores alone need as many when a text is four times as long as the width. [[scores-overtake]]
# - For engineers: if rounding makes the inner width 0, a feed-forward without biases returns zeros without an error. [[width-0]]
#
# Next, lesson 09: attention and feed-forward in one block, and blocks in a row.

# %% [markdown] slide="skip"
# ## Sources
# - The classic feed-forward: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), section 3.3.
# - GELU and SiLU: Hendrycks and Gimpel 2016, [*Gaussian Error Linear Units (GELUs)*](https://arxiv.org/abs/1606.08415), section 2.
# - SwiGLU and its width: Shazeer 2020, [*GLU Variants Improve Transformer*](https://arxiv.org/abs/2002.05202). Before it: Dauphin et al. 2017, [*Language Modeling with Gated Convolutional Networks*](https://arxiv.org/abs/1612.08083).
# - What such networks can express: Leshno et al. 1993, [*Multilayer Feedforward Networks With a Nonpolynomial Activation Function Can Approximate Any Function*](https://doi.org/10.1016/S0893-6080%2805%2980131-5). Mixture of experts: Shazeer et al. 2017, [*Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer*](https://arxiv.org/abs/1701.06538).
# - Superposition: Elhage et al. 2022, [*Toy Models of Superposition*](https://arxiv.org/abs/2209.10652).
# - A memory of pairs: Geva et al. 2021, [*Transformer Feed-Forward Layers Are Key-Value Memories*](https://arxiv.org/abs/2012.14913). What a column raises: Geva et al. 2022, [*Transformer Feed-Forward Layers Build Predictions by Promoting Concepts in the Vocabulary Space*](https://arxiv.org/abs/2203.14680).
# - SwiGLU in Llama: Touvron et al. 2023, [*LLaMA: Open and Efficient Foundation Language Models*](https://arxiv.org/abs/2302.13971), section 2.2.
