# %% [markdown] slide="slide"
# # 16 Inside
# **What has a model learned, and how would we know?**
#
# *Needs* lessons 05, 07 and 10. *Builds* four instruments: `logit_lens`, `patch`, `probe_step` and `ablate_head`. *Runs* in about 30 s on two cores.
# *Teaches* in about 51 minutes, plus 24 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a picture of the inside of a model is a hypothesis, and an intervention tests it. One question runs through all sections: who has the kite? The model names the owner in about four of five cases, and the class finds out why.
# Sections 1 to 4 are the core, with three short exercises. Section 5 steers the model, section 6 is about heads, section 7 says what such stories can claim.
# Before the class: run all cells once, and try the control of section 1.

# %% slide="skip"
import torch
from matplotlib import pyplot as plt

from tinylm_lib import storyworld
from tinylm_classroom import capture, figures, predict
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)
_ = torch.set_grad_enabled(False)  # nothing is trained here by autograd


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# %% [markdown] tags=["note"]
# **Say.** The model names the owner in four cases of five. That number hides a rule, and the rule is not the one that we would have liked it to learn. Find the rule first by asking, from outside, before you open the model.
#
# **Draw.** Two people, two things. An arrow for a gift. Then two crossing arrows for a trade. Who has the kite after each?
#
# **Ask.** After the picture of dots: "Which rule gives exactly these dots? Find two." Collect them; the next cell separates them. At the two maps: "In which cells do they disagree?"
#
# **Usual answers.**
# - *It is a little unsure everywhere* (`about four fifths, whatever has happened`): Look at the four groups of dots. Is any of them at four fifths?
# - *Trades are hard* (`right after gifts, unsure after trades`): Then a gift after a trade would be hard, too, and two gifts would be easy.
# - *It knows when one person has everything* (from the room): Good. Which text would tell this from a rule that only copies a name?
# - *Somebody has both things, so the trade gives both* (`the one who gave`): That is what happened. Is it what the model looks at?
#
# **Cut if short.** The control.

# %% [markdown] slide="slide"
# ## 1. Right in four cases of five
# Lesson 00 found the model's weakest point: the words that say who *has* a thing. Some of them are colours (*the* red *kite*) or traits. We count the names: how often is the model right about an owner?

# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
generator = seeded(16)
stories = [storyworld.story(generator) for _ in range(100)]


# %% slide="skip"
def ids_of(texts: list[str]) -> torch.Tensor:
    return torch.tensor([tokenizer.encode("\n" + text) for text in texts])  # (B, T)


# %% slide="skip"
def right_owners(story: storyworld.Story) -> torch.Tensor:
    """For each name of an owner in the story: is it the model's first choice?"""
    ids = ids_of([story.text])  # (1, T)
    right = model(ids)[0, :-1].argmax(-1) == ids[0, 1:]  # (T - 1)
    told = zip(storyworld.words(story.text), story.kinds, strict=True)
    return right[[kind == "owner" and word.strip() in storyworld.CLASSES["name"] for word, kind in told]]


# %%
named = torch.cat([right_owners(story) for story in stories]).float()
print(f"the model's first choice is right for {named.mean():.0%} of {len(named)} names of owners")

# %% [markdown]
# In four cases of five. By the rules of StoryWorld the exact probability of each of these names is 1, so a perfect reader is always right. Is the model a little unsure everywhere, or sure here and lost there? An average cannot tell. So we write stories that differ in one thing: what happens to the kite.

# %% slide="skip"
BEGINNING = (
    "One {weather} {day}, {trait} {A} {go} to {place1}. {She} {carry} a {colour1} {thing1}."
    " There {she} met {B}, a {job} with a {colour2} {thing2}."
    ' {A} {say} to {B}, "{saying1} {saying2} {saying3} {saying4}."'
)
EVENTS = {
    "A gives": " Then {A} gave {B} the {colour1} {thing1}.",
    "B gives": " Then {B} gave {A} the {colour2} {thing2}.",
    "A gives on": " Then {A} gave {B} the {colour2} {thing2}.",
    "B gives on": " Then {B} gave {A} the {colour1} {thing1}.",
    "trade": " Then they traded their things.",
}
QUESTION = " Afterwards they left {place1} for {place2}. By then the {colour%d} {thing%d} belonged to"


# %% slide="skip"
def cast(n: int, seed: int, names: tuple[str, str] = ("Mia", "Carlos")) -> list[dict[str, str]]:
    """The words of n stories about two people, drawn at random; in every second story the other one comes first."""
    generator, drawn = seeded(seed), []
    for i in range(n):
        said = dict(zip("AB", names[:: 1 - 2 * (i % 2)], strict=True))
        for kind, words in storyworld.CLASSES.items():
            order = torch.randperm(len(words), generator=generator)
            said |= {kind: words[order[0]], f"{kind}1": words[order[0]], f"{kind}2": words[order[1]]}
        said["She"] = "She" if said["A"] in storyworld.CLASSES["name"][:20] else "He"
        drawn.append({**said, "she": said["She"].lower()})
    return drawn


def texts_of(events: list[str], people: list[dict[str, str]], thing: int = 1) -> list[str]:
    """Each story up to the question who has thing 1 or 2."""
    whole = BEGINNING + "".join(EVENTS[event] for event in events) + QUESTION % (thing, thing)
    return [whole.format(**said) for said in people]


# %% slide="skip"
def exact_owner(text: str) -> str:
    """The one name that can come next, by StoryWorld's exact reader."""
    reader = storyworld.Reader()
    for word in storyworld.words(text):
        assert reader.read(word) > 0, f"{word!r} is impossible here"
    ((name, p),) = reader.next_word_probs().items()
    assert p > 0.999
    return name.strip()


# %%
people = cast(10, seed=1)
print(texts_of(["A gives"], people)[0], "...", exact_owner(texts_of(["A gives"], people)[0]))

# %%
GROUPS = {
    "one gift": [["A gives"], ["B gives"]],
    "a trade": [["trade"]],
    "a trade, then a gift": [["trade", "A gives on"], ["trade", "B gives on"]],
    "a gift, then a gift": [["A gives", "B gives"], ["A gives", "B gives on"], ["B gives", "A gives on"]],
}


# %% slide="skip"
def tokens_of(names: list[str]) -> torch.Tensor:
    return torch.tensor([tokenizer.encode(f" {name}")[0] for name in names])[:, None]  # (B, 1)


# %%
def probs_of(names: list[str], texts: list[str]) -> torch.Tensor:
    """The model's probability of each text's name as the next word."""
    return model(ids_of(texts))[:, -1].softmax(-1).gather(-1, tokens_of(names))[:, 0]  # (B)


# %% slide="skip"
right = {}
for group, histories in GROUPS.items():
    texts = [text for events in histories for thing in (1, 2) for text in texts_of(events, people, thing)]
    right[group] = probs_of([exact_owner(text) for text in texts], texts)  # (texts)
sure = [p.min().item() > 0.9 for p in right.values()]

# %% tags=["source-hidden"]
predict(
    "We sort the stories by what has happened: one gift, a trade, a trade and a gift, two gifts. How probable is the right owner for the model?",
    key=lambda: "sure and right after some, near one half after others" if {*sure} == {True, False} else "?",
    choices={
        "about four fifths, whatever has happened": "Then every group of dots would be near 0.8.",
        "right after gifts, unsure after trades": "Then one more gift could not help after a trade, and two gifts would be easy.",
        "sure and right after some, near one half after others": "",
    },
    because="After one gift, with or without a trade before it, the model is sure and right; in all other cases it gives each person about one half.",
)

# %% tags=["source-hidden"] evidence="sure-or-lost"
fig, ax = plt.subplots(figsize=(10.4, 3.9), layout="constrained")
for row, values in enumerate(right.values()):
    height = row + (torch.rand(len(values), generator=seeded(row)) - 0.5) * 0.5
    ax.plot(values, height, "o", markersize=6, alpha=0.45, markeredgewidth=0)
ax.axvline(0.5, color=figures.QUIET, linestyle=":", linewidth=1.5)
ax.set_yticks(range(len(right)), list(right))
ax.set(title="Who has the thing? Each dot is a story", xlabel="the model's probability of the right name", ylabel="")
ax.set(xlim=(-0.02, 1.02), ylabel="what has happened")
ax.invert_yaxis()
figures.display(
    fig,
    alt="Four rows of dots. After one gift, and after a trade and a gift, all dots are at 1. After a trade and after two gifts they are spread around one half.",
    caption="After one gift the model is sure and right. After a trade, or after two gifts, each person has about one half.",
    table={"what has happened": list(right), "stories": [len(v) for v in right.values()], "mean": [v.mean().item() for v in right.values()], "lowest": [v.min().item() for v in right.values()]},
    digits=2,
)  # fmt: skip
assert sure == [True, False, True, False]
assert all(abs(right[group].mean() - 0.5) < 0.05 for group in ("a trade", "a gift, then a gift"))

# %% [markdown]
# Not one group is at four fifths. [[sure-or-lost]] Where the model is sure, one person has *both* things; where it is lost, each has one. "About one half" is not a fair coin, so let us look at the numbers:

# %% evidence="ignores-the-thing"
for events in (["trade"], ["A gives", "B gives"]):
    second = [probs_of([said["B"] for said in people], texts_of(events, people, thing)) for thing in (1, 2)]
    yes, no = (p.mean() for p in second)
    print(f"{' and '.join(events):<19} the second person has {yes:.2f} if it is theirs, {no:.2f} if not")
    assert all(0.35 < p.mean() < 0.5 for p in second) and abs(second[0] - second[1]).max() < 0.1

# %% [markdown]
# The person who came second is a little less likely, and the owner makes no difference. [[ignores-the-thing]] So the model may have learned **who has everything**. A simpler rule fits all dots as well: **copy the name of the one who received a gift**, and if there is no such name, or two, give each person one half.

# %% [markdown] slide="subslide"
# ### Two rules, one experiment
# The rules agree on every story of StoryWorld, so no story can separate them. An impossible one can. A gift, *then* a trade: Mia gives Carlos the kite, he has both, they trade. Now Mia has everything, but Carlos received the gift. (The story makes no sense, but it tells us which rule the model follows.)

# %% slide="skip"
after_trade = probs_of([said["B"] for said in people], texts_of(["A gives", "trade"], people))  # (B)
no_such_gift = probs_of([said["B"] for said in people], texts_of(["A gives on"], people))  # (B)

# %% tags=["source-hidden"]
predict(
    "Mia gave Carlos her kite, then they traded their things. Whom does the model name?",
    key=lambda: "the one who received the gift" if after_trade.min() > 0.9 else "something else",
    choices={
        "the one who received the gift": "",
        "the one who gave": "That is who has everything after the trade. The trade does not change the model's answer.",
        "each with about one half": "So it would be if the trade made the model give up, as it does without a gift.",
    },
    because="The model copies the receiver of the gift and takes no notice of the trade after it.",
)

# %% evidence="copies-receiver"
print(f"a gift, then a trade: the receiver has {after_trade.mean():.2f}")
print(f"A gives what she never had: the receiver has {no_such_gift.mean():.2f}")
other_thing = probs_of([said["B"] for said in people], texts_of(["A gives"], people, thing=2))
print(f"one gift, and the question is about the other thing: the receiver has {other_thing.mean():.2f}")
assert min(after_trade.min(), no_such_gift.min(), other_thing.min()) > 0.95

# %% [markdown]
# The model names the receiver, whatever the trade does, whatever was given and whatever the question asks. [[copies-receiver]] So *who has everything* is refuted: the model has found a **shortcut**, which is right in all stories with exactly one gift. A score of four in five did not show that, and neither did the dots.

# %% slide="skip"
from tinylm_classroom import control


# %% slide="skip"
def who(first="A gives", then="nothing", thing=1):
    events = [event for event in (first, then) if event != "nothing"]
    texts = texts_of(events, people[:6], thing)
    for role in "AB":
        print(f"{role}: {probs_of([said[role] for said in people[:6]], texts).mean():.2f}")


# %% slide="skip"
control(who, first=[*EVENTS], then=["nothing", *EVENTS], thing=[1, 2])

# %% [markdown] slide="subslide"
# ### What is inside?
# Does the model *know* more than it says? And how does the receiver's name get to the end of the text? Here is the whole lesson in one picture. Two texts differ in the gift: A gives, or B gives. The upper map asks at each position, after each block: can we **read** there who has the things? The lower map exchanges this one vector for that of the other text: does the model **use** it?

# %% slide="skip"
PARTS = ("embed", "blocks.0", "blocks.1", "blocks.2")
DEPTHS = ("embedding", "after block 0", "after block 1", "after block 2")


def streams_of(texts: list[str]) -> torch.Tensor:
    """The residual stream at the embedding and after each block, (4, B, T, C)."""
    outputs = capture(model, ids_of(texts)).outputs
    return torch.stack([outputs[part] for part in PARTS])


# %% slide="skip"
def read_next(stream: torch.Tensor, depth: int) -> torch.Tensor:
    """The model's probabilities of the next word, (B, V), if it continues from this stream (B, T, C)."""
    for block in model.blocks[depth:]:
        stream = block(stream, torch.arange(stream.shape[1]))  # (B, T, C)
    return model.lm_head(model.final_norm(stream[:, -1])).softmax(-1)  # (B, V)


# %% slide="skip"
GIFT = (["A gives"], ["B gives"])
casts = {"train": cast(80, seed=2), "test": cast(40, seed=3)}
streams = {part: torch.cat([streams_of(texts_of(events, some)) for events in GIFT], 1) for part, some in casts.items()}
receivers = {part: [said[role] for role in "BA" for said in some] for part, some in casts.items()}
is_mia = {part: torch.tensor([name == "Mia" for name in names]).float() for part, names in receivers.items()}  # (B)

# %% slide="skip"
first = ids_of(texts_of(GIFT[0], people))[0].tolist().index(tokenizer.encode(" Then")[0])
assert first == 41 and streams["train"].shape == (4, 160, 63, 128)

# %% slide="skip"
shown = [*range(first, 63)]  # from "Then" on; everything before is the same in both texts
columns = ["Then", "(giver)", "gave", "(receiver)", "the", "(colour)", "(thing)", ".", "Afterwards", "they", "left"]
columns += ["(place)", "for", "(place)", ".", "By", "then", "the", "(colour)", "(thing)", "belonged", "to"]
assert len(columns) == len(shown)


# %% slide="skip"
def read_linearly(x: torch.Tensor, targets: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """What a linear reader, fitted to vectors x (B, C) and their targets (B, K), says of new ones, (N, K)."""
    x, targets, new = x.double(), targets.double(), new.double()
    middle, size = x.mean(0), x.std()
    z = (x - middle) / size  # (B, C)
    w = torch.linalg.solve(z.T @ z + torch.eye(128), z.T @ (targets - targets.mean(0)))  # ridge regression
    return (new - middle) / size @ w + targets.mean(0)


# %% tags=["source-hidden"] slide="skip"
def readable(depth: int, at: int) -> float:
    """How often a linear reader, fitted to 160 texts, tells from this vector of 80 others who received the gift."""
    x, new = (streams[part][depth, :, at] for part in ("train", "test"))
    says = read_linearly(x, is_mia["train"][:, None], new)[:, 0]  # (B)
    return ((says > 0.5) == is_mia["test"].bool()).double().mean().item()


def used(depth: int, at: int) -> float:
    """The mean probability of the other name, if the vector at this position comes from the other text."""
    stream, other = two_runs[0][depth].clone(), two_runs[1][depth]  # (B, T, C)
    stream[:, at] = other[:, at]
    return read_next(stream, depth).gather(-1, others)[:, 0].mean().item()


two_runs = [streams_of(texts_of(events, people[:8])) for events in GIFT]
others = tokens_of([said["A"] for said in people[:8]])  # (B, 1)
read_map = torch.tensor([[readable(depth, at) for at in shown] for depth in range(4)])  # (4, 22)
used_map = torch.tensor([[used(depth, at) for at in shown] for depth in range(4)])  # (4, 22)

# %% tags=["signature", "source-hidden"] evidence="readable-not-used"
fig, both = plt.subplots(2, 1, figsize=(11.6, 5.2), layout="constrained")
MAPS = {"Where it can be read": ((read_map - 0.5) * 2, read_map), "Where it is used": (used_map, used_map)}
for ax, (title, (shades, values)) in zip(both, MAPS.items(), strict=True):
    figures.cells(ax, values, shades.clamp(0, 1), DEPTHS, [1] * 4)
    ax.set(title=title, ylabel="depth")
    ax.set_xticks(range(22), columns if ax is both[1] else [""] * 22, rotation=50, ha="right", rotation_mode="anchor")
    ax.grid(visible=False)
fig.supxlabel("position", x=0.57, size="medium")
alt = "Two maps of depth by position. Above, who received the gift can be read at the names, and after block 1 also at the full stop, at they and at the last word. Below, only the receiver's name and, later, the last word have an effect."
caption = "Above: how often a linear reader is right, white is chance, one half. Below: the probability of the other name after an exchange of this one vector."
rows = {f"{title}, {depth}": v[i].tolist() for title, (_, v) in MAPS.items() for i, depth in enumerate(DEPTHS)}
figures.display(fig, alt=alt, caption=caption, table={"position": columns, **rows}, digits=2)
full_stop, they, receiver, last = 7, 9, 3, 21
assert read_map[2, [full_stop, they, last]].min() > 0.9
assert used_map[:2, receiver].min() > 0.9 and used_map[3, last] > 0.9
quiet = used_map.clone()
quiet[:, [receiver, last]] = 0
assert quiet.max() < 0.05

# %% [markdown]
# Look at the full stop of the gift. After block 1 a reader can tell from this one vector who received the gift. The picture suggests that the model has written its answer there, to use it later. But an exchange of this vector changes nothing: the model takes the name from its own position and from nowhere else. [[readable-not-used]] **What can be read is not what is used.** Now we build both maps, and more, with instruments of our own.

# %% [markdown] tags=["note"]
# **Say.** The first instrument only looks. The final norm and the head can read the stream at any depth. Lesson 10 did it at one full stop; we do it for all words, and compare with the exact distribution.
#
# **Draw.** The line of the stream with three taps, each with a small head.
#
# **Ask.** "Which kind of word do you expect to be settled first, and which last?" After the picture: "At which depth could the model stop for a pronoun?"
#
# **Usual answers.**
# - *The same for all kinds* (from the room): Look at the curves after block 1.
# - *Before block 2 it knows nothing* (from the room): The head was trained on the stream after block 2. A bad reading may be a bad reader.
# - *The stream without the norm* (`no norm`): What does the model's own head read?
#
# **Cut if short.** The table of one story.

# %% [markdown] slide="slide"
# ## 2. What would each layer say?
# The **logit lens** lets the final norm and the LM head read the stream early ([nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens)). In lesson 10 the library's modules did it at one position. Write it for every vector of the stream, from the numbers themselves.


# %% tags=["exercise"] name="logit_lens" minutes=5 difficulty=2
def logit_lens(stream, gain, head_weight, eps):
    """stream (..., C): vectors of the residual stream, at any depth, of any texts and positions.

    gain (C), eps: of the final norm, an RMSNorm. head_weight (V, C): of the LM head, a row for each token.
    Returns (..., V), the probabilities of the next token that the LM head would give here.
    """
    # SOLUTION
    size = (stream.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    logits = (stream / size * gain) @ head_weight.T
    return logits.softmax(-1)
    # END


# %% slide="skip"
from tinylm_classroom import check, hint, keep, trace

# %% tags=["check"]
if check("logit_lens", logit_lens).passed:
    keep("logit_lens", logit_lens)

# %%
hint("logit_lens")

# %% [markdown] tags=["solution"]
# RMSNorm (lesson 04), the head (lesson 10), softmax (lesson 03). Each axis in front passes through, so all depths can be read at once. Common mistakes: no norm, or a norm without its gain; the softmax runs over the positions.

# %% slide="skip"
from tinylm_classroom import fixed, learned, yours

reader = yours("logit_lens", logit_lens)  # the solution, until yours passes


# %%
def in_steps(stream):
    normed = model.final_norm(stream)
    logits = model.lm_head(normed)
    return logits.softmax(-1)


# %% slide="skip"
def lens(stream: torch.Tensor) -> torch.Tensor:
    return reader(stream, model.final_norm.weight, model.lm_head.weight, model.config.norm_eps)


# %% slide="subslide" evidence="same-reading"
some = streams["test"][:, :2]  # (4, B, T, C)
torch.testing.assert_close(lens(some), in_steps(some))
trace(in_steps, some, sizes={"C": 128, "V": 345, "T": 63, "B": 2})

# %% [markdown]
# One call reads all depths, texts and positions, and equals the model's own modules. [[same-reading]] At the last word of one story:

# %%
one = lens(streams_of(texts_of(["A gives"], people[:1])))[:, 0, -1]  # (4, V)
for depth, probs in zip(DEPTHS, one, strict=True):
    best = probs.topk(3)
    print(f"{depth:<14}", "  ".join(f"{tokenizer.decode([t]).strip()} {p:.2f}" for p, t in zip(*map(torch.Tensor.tolist, best), strict=True)))  # fmt: skip
print("exact          ", exact_owner(texts_of(["A gives"], people[:1])[0]), "1.00")

# %% [markdown] slide="subslide"
# That is one word of one story. StoryWorld gives the exact distribution of *every* word, so we can measure how far each reading is from it, as a Kullback-Leibler divergence (lesson 03), and sort the words by what determines them:


# %% slide="skip"
def exact_probs(text: str) -> torch.Tensor:
    """StoryWorld's distribution of each word of the story, (T, V)."""
    reader, rows = storyworld.Reader(), []
    for word in storyworld.words(text):
        row = torch.zeros(345)
        for possible, p in reader.next_word_probs().items():
            row[tokenizer.encode(possible)[0]] = p
        rows.append(row)
        reader.read(word)
    return torch.stack(rows)


# %% slide="skip"
distances: dict[str, list[torch.Tensor]] = {}
for story in stories[:12]:
    p = exact_probs(story.text)  # (T, V)
    q = lens(streams_of([story.text])[:, 0, :-1])  # (4, T, V)
    kl = (p * (p.clamp_min(1e-30).log() - q.clamp_min(1e-30).log())).sum(-1)  # (4, T)
    for kind, column in zip(story.kinds, kl.T, strict=True):
        distances.setdefault(kind or "other", []).append(column)
by_kind = {kind: torch.stack(columns).mean(0) for kind, columns in distances.items()}  # (4) each

# %% tags=["source-hidden"] evidence="depth-of-kinds"
chosen = ["owner", "colour", "name", "pronoun", "object", "place"]
fig, ax = plt.subplots(figsize=(9.6, 4.6), layout="constrained")
for i, kind in enumerate(chosen):
    ax.plot(range(4), by_kind[kind], marker="o", label=kind, color=f"C{i % 5}", linestyle="-" if i < 5 else "--")
ax.set_xticks(range(4), DEPTHS)
ax.set(title="How far from the exact distribution?", xlabel="the head reads the stream", ylabel="nats")
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
figures.display(
    fig,
    alt="Lines of the distance from the exact distribution over the depth, one for each kind of word. Owner and colour fall mostly in block 1. Object and place stay high until block 2. All but owner and colour end at 0.",
    caption="The lens reads objects and places only after block 2. That block adds little for owners and colours, which stop short of 0.",
    table={"read": list(DEPTHS), **{kind: [fixed(nats, 2) for nats in by_kind[kind]] for kind in chosen}},
)
assert all(by_kind[kind][3] < 0.02 for kind in chosen[2:]) and min(by_kind[kind][3] for kind in chosen[:2]) > 0.2
assert min(by_kind["place"][2], by_kind["object"][2]) > 2 and max(by_kind[kind][2] for kind in chosen[:2]) < 1.2

# %% [markdown]
# For objects and places the lens finds nothing until block 2. After block 1, owners and colours are already almost as close to the exact distribution as they ever get. [[depth-of-kinds]] Is nothing there before, or is the lens a poor reader? The LM head was trained to read the stream after block 2 only. So we fit a linear reader of our own to 400 stories, at two positions whose next word is the place and the object:

# %% slide="skip"
NEXT = {"place": 10, "thing": 18}  # after "left", and after the colour in the question


def before(some: list[dict[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The streams at the positions of NEXT, (4, B, 2, C), and the token (B, 2) after each."""
    at, texts = [first + n for n in NEXT.values()], texts_of(["A gives"], some)
    parts = [streams_of(texts[i : i + 100])[:, :, at] for i in range(0, len(texts), 100)]
    return torch.cat(parts, 1), ids_of(texts)[:, [i + 1 for i in at]]


(known, known_next), (fresh, fresh_next) = before(cast(400, seed=31)), before(cast(200, seed=32))

# %% evidence="lens-misses"
for i, kind in enumerate(NEXT):
    targets = torch.nn.functional.one_hot(known_next[:, i], 345)  # (B, V)
    for name, depth in (("embedding", 0), ("after block 1", 2)):
        says = lens(fresh[depth, :, i]), read_linearly(known[depth, :, i], targets, fresh[depth, :, i])  # (B, V) each
        by_lens, by_probe = ((p.argmax(-1) == fresh_next[:, i]).double().mean().item() for p in says)
        print(f"{kind:<7}{name:<15}lens {learned(by_lens, 0, 0.2)}, probe {learned(by_probe, 0, 0.8)}, ", end="")
        print(f"a guess {1 / len(storyworld.CLASSES[kind]):.2f}")
        assert by_lens < 0.2 and (by_probe > 0.35) == (depth == 2)

# %% [markdown]
# After block 1 the lens is right about as often as a guess, but our reader, a *probe*, is right in more than half of new texts. At the embedding, which holds only the word before, it is not. [[lens-misses]] **What the lens does not show can still be there.** The *tuned lens* is a trained reader of this kind ([Belrose et al. 2023](https://arxiv.org/abs/2303.08112)).

# %% [markdown] tags=["note"]
# **Say.** Looking is over. Now we exchange one vector between two runs and let the model continue. If the answer changes, this vector carries the difference and the model uses it.
#
# **Draw.** Two rows of dots, one for each text, three depths high. An arrow takes one dot from the lower to the upper row. Everything to the right of it and above it is computed again.
#
# **Ask.** "The vector at the full stop carries the answer, but exchanging it does nothing. Give two explanations." (It is not used; or it is stored twice, and one copy is enough.) The next cell separates them.
#
# **Usual answers.**
# - *It is stored in many places, so one exchange is not enough* (`almost certain`): A good rival. Then all of them together must have an effect.
# - *All texts get the position of the first* (`position of the first text`): `at` has an entry for each text.
# - *The later vectors must be exchanged as well* (`from there on`): They are computed from this one. That is the point of letting the model continue.
#
# **Cut if short.** The other wording. If there is time, open the grid at the end of the section in the notebook and let the class choose cells.

# %% [markdown] slide="slide"
# ## 3. Where is it used?
# **Activation patching** runs the model on one text, puts in a vector from the run on another text, and lets it continue ([Vig et al. 2020](https://arxiv.org/abs/2004.12265); [Meng et al. 2022](https://arxiv.org/abs/2202.05262) call it causal tracing). In a batch every text can have its own position.


# %% tags=["exercise"] name="patch" minutes=5 difficulty=2
def patch(stream, other, at):
    """stream, other (B, T, C): the same depth of two runs. at (B): a position for each text, 0 to T - 1.

    Returns a new tensor (B, T, C): stream, but text i has the vector of `other` at position at[i].
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

# %%
hint("patch")

# %% [markdown] tags=["solution"]
# A copy, and two index tensors that go hand in hand. Common mistakes: `patched[:, at]`, which changes every text at the positions of all texts; no copy, so that the second exchange finds the traces of the first.

# %% [markdown] slide="subslide"
# The lower map of section 1 is one line for each cell. We take the two rows of it that matter:

# %% slide="skip"
put = yours("patch", patch)


# %%
def effect(runs: list[torch.Tensor], names: torch.Tensor, depth: int, at: torch.Tensor) -> torch.Tensor:
    """The probability of the other name, if each text has one vector of the other run."""
    return read_next(put(runs[0][depth], runs[1][depth], at), depth).gather(-1, names)[:, 0]  # (B)


# %% evidence="patched-by-hand"
for name, at in {"receiver": receiver, "full stop": full_stop, "last word": last}.items():
    column = [effect(two_runs, others, depth, torch.full((8,), first + at)).mean() for depth in range(4)]
    print(f"{name:<10}", "  ".join(f"{depth}: {value:.2f}" for depth, value in zip(DEPTHS, column, strict=True)))
    torch.testing.assert_close(torch.stack(column), used_map[:, at], atol=1e-4, rtol=0)

# %% [markdown]
# Your function gives the same numbers as the map. [[patched-by-hand]] The name waits at its own position until block 1, and blocks 1 and 2 fetch it to the last word. But is it *not used* at the full stop, or is it stored at so many positions that one exchange is not enough? So we exchange **all** positions from the full stop up to *belonged* at once:


# %% slide="skip"
def many(depth: int, positions: list[int]) -> float:
    """The probability of the other name, if all these positions come from the other text."""
    stream = two_runs[0][depth].clone()  # (B, T, C)
    stream[:, positions] = two_runs[1][depth][:, positions]
    return read_next(stream, depth).gather(-1, others).mean().item()


# %% slide="skip"
between = [first + at for at in range(full_stop, last)]
together = many(2, between)

# %% tags=["source-hidden"]
predict(
    "After block 1 all 14 vectors between the gift and the last word come from the other text. How probable is the other name?",
    key=lambda: "almost 0" if together < 0.05 else "about one half" if together < 0.8 else "almost certain",
    choices={
        "almost 0": "",
        "about one half": "So it would be if the model weighed these copies against the name itself.",
        "almost certain": "So it would be if these positions stored the answer for the last word.",
    },
    because="The model reads the name where it was said; what can be read in between is not used for this word.",
)

# %% evidence="not-redundant"
for depth in (1, 2):
    print(f"{DEPTHS[depth]}: all positions in between {many(depth, between):.2f}, ", end="")
    print(f"the receiver alone {many(depth, [first + receiver]):.2f}, ", end="")
    print(f"receiver and last word {many(depth, [first + receiver, first + last]):.2f}")
    assert many(depth, between) < 0.05 and many(depth, [first + receiver, first + last]) > 0.95

# %% [markdown]
# All of them together do nothing, and the receiver with the last word does everything. [[not-redundant]] So the rival is refuted, for this word: later words could still use the full stop, because we have tested one question only. Does it depend on the two people, or on the word *gave*? We mix two wordings, in which the receiver is at different positions, with two other names:

# %% slide="skip"
WORDINGS = (
    " Then {A} gave {B} the {colour1} {thing1}. Afterwards they shared some {food} in {place1}.",
    " Soon {A} handed the {colour1} {thing1} to {B}. Afterwards they left {place1} for {place2}.",
)
ASKED = " By then the {colour1} {thing1} belonged to"


# %% slide="skip"
def wordings_of(people: list[dict[str, str]]) -> list[str]:
    return [(BEGINNING + WORDINGS[i // 2 % 2] + ASKED).format(**said) for i, said in enumerate(people)]


# %% evidence="other-wording"
for pair in (("Ben", "Omar"), ("Elsa", "Yuki"), ("Kofi", "Greta")):
    some = cast(16, seed=4, names=pair)
    exchanged = [{**said, "A": said["B"], "B": said["A"], "She": said["She"], "she": said["she"]} for said in some]
    ids = ids_of(wordings_of(some))
    where = torch.where(torch.arange(16) // 2 % 2 == 0, first + receiver, first + receiver + 4)  # (B)
    assert all(tokenizer.decode([t]).strip() == said["B"] for t, said in zip(ids[range(16), where], some, strict=True))
    runs = [streams_of(wordings_of(some)), streams_of(wordings_of(exchanged))]
    moved = effect(runs, tokens_of([said["A"] for said in some]), 1, where)
    print(f"{' and '.join(pair):<16} the receiver exchanged after block 0: {moved.mean():.2f}")
    assert moved.mean() > 0.9

# %% [markdown]
# The same. [[other-wording]] Now look for yourself, at another word: the thing after its colour, which lesson 05 took apart by forbidding looks. Follow the dark cells upwards: from the colours to the thing, and from there to the last word. In JupyterLab you can choose a cell with the mouse, switch from the stream to what attention or feed-forward add, and type texts of your own.

# %% slide="skip"
from tinylm_classroom import patch_view

pink_fan = "\n Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
pink_book = "\n Carlos had a gray fan. Jamal had a pink book. Jamal took the pink"

# %% slide="skip"
patch_view(model, tokenizer, pink_fan, pink_book, ("fan", "book"))

# %% [markdown] slide="skip"
# Now without the other text: find one single look whose removal makes the model say *book*. (Choose *a look*; the fan is at position 5.)

# %% slide="skip"
from tinylm_classroom import what_if

# %% slide="skip"
what_if(model, tokenizer, pink_fan)

# %% [markdown] tags=["note"]
# **Say.** The upper map needs a reader, and a reader has to learn. It is called a probe, and it is one neuron. Then the most important question about any probe: does the model know it, or has the probe learned it?
#
# **Draw.** Points of two colours in a plane and a line between them. Next to it the same points with colours by a thrown coin.
#
# **Ask.** Before the control: "A probe is right in nearly all new texts. Does the model know what the probe says?" After the last table: "Which row is our control, and which row is the reason?"
#
# **Usual answers.**
# - *Yes, because the texts are new* (from the room): Are the *words* new as well? Look at what the labels are attached to.
# - *It knows, but does not say it* (`it knows who has the thing`): Look at the numbers of the probe. Chance is one half.
# - *The probe is too weak* (from the room): A good rival. It reads who came first without trouble, and section 7 tries a stronger one.
# - *The mean is forgotten* (`sum`): With 160 examples the step is 160 times too long.
#
# **Cut if short.** The table of losses.

# %% [markdown] slide="slide"
# ## 4. Does it know more than it says?
# The logit lens reads with the model's own head. A **probe** is a reader that we train, for any question that we like: here a logistic regression, one neuron with weights w and bias b, on activations of the frozen model. With the score $s = w \cdot x + b$ its probability for label 1 is $p = \sigma(s)$, and the derivative of the loss with respect to the score is $p - y$, as in lesson 03. Write one step of gradient descent.


# %% tags=["exercise"] name="probe_step" minutes=7 difficulty=3
def probe_step(w, b, x, y, lr):
    """w (C), b (): the probe. x (N, C): activations. y (N): labels, 0.0 or 1.0. lr: the learning rate.

    The loss is the binary cross-entropy: -log of the probability that the probe gives to the label, averaged over the
    examples. Write its gradients by hand. Returns the new w (C) and the new b () after one step; the old ones stay as they are.
    Scores may be large.
    """
    # SOLUTION
    error = (x @ w + b).sigmoid() - y
    return w - lr * (x.T @ error) / len(y), b - lr * error.mean()
    # END


# %% tags=["check"]
if check("probe_step", probe_step).passed:
    keep("probe_step", probe_step)

# %%
hint("probe_step")

# %% [markdown] tags=["solution"]
# Scores (N), errors (N), then each weight moves by its feature times the error, averaged. Common mistakes: the sum instead of the mean; the step uphill; w and b changed in place.

# %% slide="skip"
step = yours("probe_step", probe_step)
train_y, test_y = is_mia["train"], is_mia["test"]


# %% slide="skip"
def vectors(depth: int, at: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The streams of both sets of texts at one position, centred and scaled as the training texts demand."""
    x = streams["train"][depth, :, first + at]  # (160, C)
    return tuple((streams[part][depth, :, first + at] - x.mean(0)) / x.std() for part in ("train", "test"))


# %%
def trained(x: torch.Tensor, y: torch.Tensor, n_steps: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    w, b = torch.zeros(x.shape[1]), torch.tensor(0.0)
    for _ in range(n_steps):
        w, b = step(w, b, x, y, 0.3)
    return w, b


# %% slide="skip"
def accuracy(probe: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> float:
    return ((x @ probe[0] + probe[1] > 0) == y.bool()).double().mean().item()


# %% slide="subslide"
x, new_x = vectors(2, full_stop)
for n_steps in (1, 10, 100, 300):
    probe = trained(x, train_y, n_steps)
    scores = [accuracy(probe, x, train_y), accuracy(probe, new_x, test_y)]
    print(f"{n_steps:>3} steps: right {learned(scores[0], 0.6, 1)}, in new texts {learned(scores[1], 0.6, 1)}")

# %% [markdown] slide="subslide"
# ### A control
# A probe has weights of its own, so it can learn things that the model has never computed. To notice this, give it a task that *cannot* be in the model: throw a coin for each of the 30 things, *kite* 1, *ring* 0, and let the probe read the coin. This is a **control task** ([Hewitt and Liang 2019](https://arxiv.org/abs/1909.03368)). One table of coins may be lucky, so we throw five.


# %% slide="skip"
def coins(seed: int) -> dict[str, torch.Tensor]:
    """A coin for each of the 30 things, as labels (B) of both sets of texts."""
    coin = torch.randint(2, (30,), generator=seeded(seed)).float()
    number = storyworld.CLASSES["thing"].index
    return {part: coin[[number(said["thing1"]) for said in some] * 2] for part, some in casts.items()}


# %%
thing, scores = 19, {}
for name, at in {"the thing in the question": thing, "the last word": last}.items():
    x, new_x = vectors(2, at)
    for task, tables in {"who received": [is_mia], "a coin for each thing": [coins(seed) for seed in range(5)]}.items():
        scores[name, task] = [accuracy(trained(x, y["train"]), new_x, y["test"]) for y in tables]
means = {key: sum(values) / len(values) for key, values in scores.items()}

# %% tags=["source-hidden"]
coin_at_thing = means["the thing in the question", "a coin for each thing"]
predict(
    "A probe at the thing of the question learns the coins in 160 texts. How often is it right in 80 new texts?",
    key=lambda: "about half" if coin_at_thing < 0.65 else "about 90 % or more" if coin_at_thing > 0.82 else "?",
    choices={
        "about half": "That would be so if the coin were thrown for each text. It belongs to the word, and the probe has seen the words.",
        "about 90 % or more": "",
    },
    because="The texts are new, but the words are not: the probe has learned a table of words, which the model never had.",
)

# %% evidence="control-task"
for name in ("the thing in the question", "the last word"):
    task, control_task = (means[name, task] for task in ("who received", "a coin for each thing"))
    print(f"{name:<26}who received {learned(task, 0.4, 1)}, coins {learned(control_task, 0.4, 1)}, ", end="")
    print(f"selectivity {learned(task - control_task, -0.5, 0.7)}")
    assert (task - control_task > 0.25) == (name == "the last word")
every = scores["the last word", "a coin for each thing"]
print(f"single tables at the last word: {learned(min(every), 0.3, 0.6)} to {learned(max(every), 0.5, 0.85)}")

# %% [markdown]
# At the thing the probe reads coins that the model has never seen, better than who received the gift. A high accuracy there would prove nothing. At the last word it reads the coins hardly better than chance, and the receiver always. [[control-task]] Hewitt and Liang call the accuracy of the task minus that of the control task **selectivity**. Their control gives the coins to the word at the probed position, as in our first row.

# %% [markdown] slide="subslide"
# ### The stories where it is lost
# Now the question of this section. After a trade, or two gifts, the model gives each person about one half. Is the right owner in its stream all the same? We train probes on such stories, at the last word. For comparison each probe also learns who came *first* in the story, and *whose thing*, the first or the second person's, the question is about.

# %% slide="skip"
LOST = [(events, thing) for events in (["trade"], ["A gives", "B gives"]) for thing in (1, 2)]


def lost_set(some: list[dict[str, str]]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The streams at the last word, (4, B, C), and three labels (B) for each text: is it Mia, or the first one's?"""
    texts = [texts_of(events, some, thing) for events, thing in LOST]
    ends = torch.cat([streams_of(group)[:, :, -1] for group in texts], 1)  # (4, B, C)
    owners = torch.tensor([float(exact_owner(text) == "Mia") for group in texts for text in group])
    firsts = torch.tensor([float(said["A"] == "Mia") for said in some] * len(LOST))
    things = torch.tensor([float(thing == 1) for _, thing in LOST for _ in some])
    return ends, {"who has it": owners, "who came first": firsts, "whose thing": things}


lost = {"train": lost_set(casts["train"][:40]), "test": lost_set(casts["test"][:20])}

# %% slide="skip"
middle, size = lost["train"][0].mean(1, keepdim=True), lost["train"][0].std((1, 2), keepdim=True)
ends, new_ends = ((lost[part][0] - middle) / size for part in ("train", "test"))  # (4, B, C)
labels, new_labels = (lost[part][1] for part in ("train", "test"))

# %%
knows = {
    question: [accuracy(trained(ends[i], y), new_ends[i], new_labels[question]) for i in range(4)]
    for question, y in labels.items()
}

# %% tags=["source-hidden"]
predict(
    "After a trade, or two gifts: what does a probe at the last word find?",
    key=lambda: "only who came first" if max(knows["who has it"]) < 0.65 < max(knows["who came first"]) else "?",
    choices={
        "it knows who has the thing": "Then the model would know more than it says. Compare with chance, one half.",
        "only who came first": "",
        "neither": "The probe is not blind: who came first can be read from the same vectors.",
    },
    because="Nothing in these vectors tells a linear reader who has the thing, although they do tell who came first.",
)

# %% evidence="knows-no-more"
for question, row in knows.items():
    print(f"{question:<15}", "  ".join(f"{d}: {learned(v, 0.35, 1)}" for d, v in zip(DEPTHS, row, strict=True)))
assert max(knows["who has it"] + knows["whose thing"]) < 0.65 and max(knows["who came first"]) > 0.9
assert torch.equal(labels["who has it"], (labels["who came first"] != labels["whose thing"]).float())

# %% [markdown]
# The model does not know more than it says, as far as a linear reader at the last word can tell. The same reader finds who came first, so it is not blind. And there is a reason: in these stories the owner is the *exclusive or* of who came first and whose thing it is, and the second cannot be read here either. [[knows-no-more]]
#
# Board games are a famous case of the opposite: a network trained on Othello moves alone holds the whole board. Probes with a hidden layer found it ([Li et al. 2023](https://arxiv.org/abs/2210.13382)), and linear ones do, too, if they ask for *mine* and *theirs* instead of black and white ([Nanda, Lee and Wattenberg 2023](https://arxiv.org/abs/2309.00941)). Ours holds the receiver's name instead of the state of the world.

# %% [markdown] tags=["note"]
# **Say.** A probe gives a direction. If the model uses it, a push along it must change what the model writes. And a push along any other direction must not.
#
# **Draw.** A line, two clouds on it, and an arrow that moves a point from one cloud to the other.
#
# **Ask.** "A push by the distance of the two clouds makes a Mia text look like a Carlos text. Will the answer change?" Then show the picture.
#
# **Usual answers.**
# - *Yes, because the probe now says Carlos* (from the room): The probe does. Who else still reads the name?
#
# **Cut if short.** The random directions.

# %% [markdown] slide="slide" plan=80
# ## 5. A direction that changes what it writes
# The weights of a probe are a direction in the stream. Is it one that the *model* uses? We push the vector at the last word along it, after block 1, and let the model continue. A push of 1 is the distance between the means of the two kinds of texts.

# %% slide="skip"
x, _ = vectors(2, last)
direction = trained(x, train_y)[0]
direction = direction / direction.norm()  # (C)
raw = streams["train"][2, :, first + last]  # (160, C)
distance = ((raw[train_y == 1].mean(0) - raw[train_y == 0].mean(0)) @ direction).item()
mia = tokenizer.encode(" Mia")[0]


# %%
def pushed(stream: torch.Tensor, at: int, towards: torch.Tensor, strength: float) -> float:
    """The mean probability of Mia, if the vectors (B, C) at one position are pushed after block 1."""
    stream = stream.clone()  # (B, T, C)
    stream[:, at] += strength * distance * towards
    return read_next(stream, 2)[:, mia].mean().item()


# %% slide="skip"
strengths = [-2, -1, -0.5, 0, 0.5, 1, 2]
test_runs = streams["test"][2]  # (80, T, C)
groups = {
    "after a trade": streams_of(texts_of(["trade"], casts["test"][:16]))[2],
    "Mia received": test_runs[test_y == 1][:16],
    "Carlos received": test_runs[test_y == 0][:16],
}
curves = {name: [pushed(run, -1, direction, s) for s in strengths] for name, run in groups.items()}

# %% slide="skip"
noise = torch.nn.functional.normalize(torch.randn(20, 128, generator=seeded(8)), dim=-1)  # (20, C)
at_random = torch.tensor([[pushed(groups["after a trade"], -1, way, s) for s in strengths] for way in noise])
changes = (at_random - at_random[:, 3:4]).abs().max(0).values  # the largest of 20, for each strength

# %% tags=["source-hidden"] evidence="steered"
fig, ax = plt.subplots(figsize=(9.6, 4.4), layout="constrained")
ax.plot(strengths, at_random.T, color=figures.QUIET, linestyle="-", linewidth=1, alpha=0.6)
for name, curve in curves.items():
    ax.plot(strengths, curve, marker="o", label=name)
ax.plot([], [], color=figures.QUIET, linestyle="-", linewidth=1, label="trade, 20 random directions")
ax.set(
    title="A push at the last word",
    xlabel="strength of the push, in distances of the means",
    ylabel="probability of Mia",
)
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
figures.display(
    fig,
    alt="Curves of the probability of Mia over the strength of a push. After a trade it goes from 0 to 1 with a small push; where somebody received a gift a push of 1 is not enough, but one of 2 is. Twenty thin lines of random directions fan out slowly.",
    caption="Where the model is lost, a small push decides. Where it has copied a name, a push of 1 is not enough, but one of 2 is.",
    table={"strength": strengths, **curves, "random: largest change": changes.tolist()},
    digits=2,
)  # fmt: skip
assert curves["after a trade"][2] < 0.25 and curves["after a trade"][4] > 0.75
assert curves["Mia received"][1] > 0.7 and curves["Mia received"][0] < 0.2 and curves["Carlos received"][-1] > 0.8
assert changes[[2, 4]].max() < 0.3 and changes[[0, 6]].max() > changes[[2, 4]].max() + 0.1

# %%
by_probe = min(abs(curves["after a trade"][i] - curves["after a trade"][3]) for i in (2, 4))
print(
    f"half the distance: the probe's direction changes the probability by {learned(by_probe, 0.2, 0.5)} or more, ",
    end="",
)
print(f"a random one by {learned(changes[[2, 4]].max().item(), 0, 0.3)} or less")

# %% [markdown]
# The direction works: where the model is lost, half the distance decides what it writes, and none of 20 random directions of the same length changes much. [[steered]] At four times this length single random directions change as much, so a large push proves little: compare equal lengths. But where somebody received a gift, a push of 1 hardly changes the answer, although the vector now looks like one of the other kind. Block 2 reads the name once more, at its own position. So the probe found *a* direction that the model uses, and not the whole of what it uses.

# %% evidence="steered-elsewhere"
for at, where in ((first + full_stop, "the full stop of the gift"), (first + last, "the last word")):
    x = streams["train"][2, :, at]
    towards = x[train_y == 1].mean(0) - x[train_y == 0].mean(0)  # (C)
    runs = groups["Carlos received"].clone()
    runs[:, at] += 2 * towards
    print(f"two distances of the means at {where}: Mia {read_next(runs, 2)[:, mia].mean():.2f}")
    assert (read_next(runs, 2)[:, mia].mean() > 0.8) == (at == first + last)

# %% [markdown]
# At the full stop, where a probe is as good as at the last word, the same push does nothing. [[steered-elsewhere]] A probe shows what can be read, and only a change, such as a push or an exchange, shows what is used ([Belinkov 2022](https://arxiv.org/abs/2102.12452) reviews this debate).

# %% [markdown] tags=["note"]
# **Say.** Until now we know where the name is. Which parts move it? The logits are a sum, so every head has a part of it that we can read off. And then the parts turn out not to be what they seem.
#
# **Draw.** A sum with sixteen terms. Cross one out. Does the sum fall by this term?
#
# **Ask.** Before the dots: "Head 3 of layer 1 adds to the lead, on average. What do we lose without it?" At the exchange: "What would you have to move, to make the model name the giver?"
#
# **Usual answers.**
# - *As much as it adds* (`what it adds in this story`): Only if no later part reads what it has written.
# - *Nothing: the others repair it* (`nothing`): That is what the mean suggests. Look at the dots.
# - *The name itself* (from the room): Try less: what distinguishes the two names in the text?
# - *The head is set to 0* (`zero`): Lesson 07 has shown why the mean is milder.
#
# **Cut if short.** The exercise; the class sees its solution.

# %% [markdown] slide="slide" plan=80
# ## 6. Which heads?
# The stream is a sum (lesson 09): the embedding, twelve heads, three feed-forwards. The LM head is linear, and the final norm divides everything by one number. So a difference of two logits is a sum, too, with one term for each part. To read the terms off is called **direct logit attribution** ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)).

# %% slide="skip"
every_name = storyworld.CLASSES["name"]
pairs = [(every_name[i], every_name[(i + 13) % 40]) for i in range(0, 40, 4)]  # ten pairs of names
crowd = [said for i, pair in enumerate(pairs) for said in cast(2, seed=60 + i, names=pair)]
gift_ids = ids_of(texts_of(["A gives"], crowd))  # (20, T)

# %% slide="skip"
names = {role: torch.tensor([tokenizer.encode(f" {said[role]}")[0] for said in crowd]) for role in "AB"}
lead_rows = model.lm_head.weight[names["B"]] - model.lm_head.weight[names["A"]]  # (B, C): receiver minus giver
ALL_HEADS = [(layer, head) for layer in range(3) for head in range(4)]


# %%
def difference(logits: torch.Tensor) -> torch.Tensor:
    """The receiver's logit minus the giver's, after the last word, (B)."""
    end = logits[:, -1]
    return (end.gather(-1, names["B"][:, None]) - end.gather(-1, names["A"][:, None]))[:, 0]


# %%
def direct_parts(caught) -> dict:
    """The term of each part of the model in that difference, (B) each."""
    last_stream = caught.outputs["blocks.2"][:, -1]  # (B, C)
    size = (last_stream.pow(2).mean(-1, keepdim=True) + model.config.norm_eps).sqrt()
    added = {"embedding": caught.outputs["embed"][:, -1]}
    for layer, block in enumerate(model.blocks):
        added[layer, "ffn"] = caught.outputs[f"blocks.{layer}.ffn"][:, -1]
        mixed = caught.inputs[f"blocks.{layer}.attention.o_proj"][:, -1].unflatten(-1, (4, -1))  # (B, H, D)
        columns = block.attention.o_proj.weight.unflatten(1, (4, -1))  # (C, H, D)
        added |= {(layer, h): mixed[:, h] @ columns[:, h].T for h in range(4)}  # (B, C) each
    return {part: (x / size * model.final_norm.weight * lead_rows).sum(-1) for part, x in added.items()}


# %% evidence="direct-sum"
caught = capture(model, gift_ids)
direct = direct_parts(caught)
torch.testing.assert_close(sum(direct.values()), difference(caught.logits), atol=1e-3, rtol=1e-3)
print(f"receiver minus giver: {difference(caught.logits).mean():.1f}")
for part, x in sorted(direct.items(), key=lambda item: -item[1].mean())[:5]:
    print(f"  layer {part[0]}, head {part[1]}: {x.mean():.1f}")

# %% [markdown]
# The terms add up to the difference exactly. [[direct-sum]] (Layers and heads are counted from 0: layer 2 is block 2, the last one.) Five heads make nearly all of it. But is a head's term what we lose without the head? Lessons 00 and 07 removed heads by setting a part to 0. The **mean ablation** of lesson 07 is milder: it replaces what a head says with its average, so that the head says the same everywhere.


# %% tags=["exercise"] name="ablate_head" minutes=7 difficulty=2 plan=80
def ablate_head(mixed, head, n_heads):
    """mixed (B, T, H*D): what the attention heads of a layer found, side by side. head: which one, from 0.

    Mean ablation: returns a new tensor, like `mixed`, in which each of this head's D features has one value everywhere,
    its mean over all texts and positions. The other heads are unchanged.
    """
    # SOLUTION
    D = mixed.shape[-1] // n_heads
    own = slice(head * D, (head + 1) * D)
    ablated = mixed.clone()
    ablated[..., own] = mixed[..., own].mean((0, 1))
    return ablated
    # END


# %% tags=["check"]
if check("ablate_head", ablate_head).passed:
    keep("ablate_head", ablate_head)

# %%
hint("ablate_head")

# %% [markdown] tags=["solution"]
# A head is a block of neighbouring columns (lesson 07), and the mean runs over the two axes in front. Common mistakes: zeros; a mean for each position, which still knows the position; n_heads used as the size of a head.

# %% slide="skip"
ablate = yours("ablate_head", ablate_head)


def with_heads(layer: int, change, ids: torch.Tensor = gift_ids):
    """Everything inside the model while it reads, if `change` is made to what the heads of a layer found."""
    mixing = model.blocks[layer].attention.o_proj
    hook = mixing.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]),))
    try:
        return capture(model, ids)
    finally:
        hook.remove()


def without(layer: int, head: int, ids: torch.Tensor = gift_ids):
    return with_heads(layer, lambda mixed: ablate(mixed, head, 4), ids)


# %% slide="skip"
ablated = {part: without(*part) for part in ALL_HEADS}
loss = {part: difference(caught.logits) - difference(run.logits) for part, run in ablated.items()}  # (B) each
adds = direct[1, 3]  # (B)


# %% slide="skip"
def line(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """Slope and height of the straight line through the dots, by least squares."""
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).pow(2).sum()
    return slope.item(), (y.mean() - slope * x.mean()).item()


# %% tags=["source-hidden"]
slope, height = line(adds, loss[1, 3])
predict(
    f"Head 3 of layer 1 adds {adds.mean():.1f} to the receiver's lead on average, in single stories {adds.min():.1f} to {adds.max():.1f}. How much of the lead is lost without it?",
    key=lambda: "what it adds, minus a constant" if 0.7 < slope < 1.2 and height < -0.7 else "?",
    choices={
        "what it adds in this story": "That would be so if nothing behind it read what it has written.",
        "nothing": "So it would be if later parts repaired whatever is missing.",
        "what it adds, minus a constant": "",
    },
    because="The loss follows the term of each story, but without this head later parts add more, by about the same amount in all stories.",
)

# %% tags=["source-hidden"] evidence="direct-is-not-total"
fig, ax = plt.subplots(figsize=(9.6, 5), layout="constrained")
for part, marker in {(2, 1): "o", (1, 3): "s", (0, 1): "^"}.items():
    ax.plot(direct[part], loss[part], marker, markersize=8, alpha=0.75, label=f"head {part[1]} of layer {part[0]}")
ax.axline((0, 0), slope=1, color=figures.QUIET, linestyle="--", linewidth=1.5, label="lost = added")
ax.set(title="Each dot is a story", xlabel="what the head adds directly (logits)", ylabel="lost without it (logits)")
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
table = {"layer.head": [f"{layer}.{head}" for layer, head in ALL_HEADS]}
for name, values in {"adds": direct, "lost": loss}.items():
    table |= {
        f"{name}, {of}": [getattr(values[part], of)().item() for part in ALL_HEADS] for of in ("min", "mean", "max")
    }
figures.display(
    fig,
    alt="Dots of three heads: what is lost over what is added. Those of head 1 of layer 2 are at the dashed line where both are equal. Those of head 3 of layer 1 go from minus 6 to 8 along a line about 1.5 below it. Those of head 1 of layer 0 are all at 0 added, and 2 to 5 lost.",
    caption="What is lost is not what is added: head 3 of layer 1 is below the dashed line in each story, head 1 of layer 0 far above it.",
    table=table,
    digits=2,
)  # fmt: skip
assert 0.8 < slope < 1.1 and -2.2 < height < -0.8 and (adds > loss[1, 3]).all()
assert torch.corrcoef(torch.stack([adds, loss[1, 3]]))[0, 1] > 0.9
assert direct[0, 1].abs().max() < 0.5 and loss[0, 1].min() > 1 and torch.corrcoef(adds.view(-1, 2).T)[0, 1] < -0.7
assert (direct[2, 1] - loss[2, 1]).abs().mean() < 1 < direct[2, 1].mean()

# %%
reversed_names = torch.corrcoef(adds.view(-1, 2).T)[0, 1]
print(f"head 3 of layer 1: lost = {slope:.2f} * added - {-height:.2f}, on average {loss[1, 3].mean():.1f}")
print(f"what it adds if giver and receiver change places: correlation {reversed_names:.2f}")

# %% [markdown]
# Without head 1 of layer 2 about as much is lost as it adds, because only a feed-forward and the final norm come after. Head 1 of layer 0 adds nothing in any story, but without it much of the lead is gone. Head 3 of layer 1 is the instructive one. Its two means, 0.7 added and -0.8 lost, look as if the model did not need it. The dots show more: it favours some *names*, so its sign changes if giver and receiver change places. What is lost follows what it adds, but is about 1.5 smaller. [[direct-is-not-total]] Who adds the difference?

# %% evidence="others-take-over"
instead = direct_parts(ablated[1, 3])
change = {part: instead[part] - direct[part] for part in direct if part != (1, 3)}  # (B) each
for part, more in sorted(change.items(), key=lambda item: -item[1].mean())[:3]:
    print(f"without head 3 of layer 1, layer {part[0]} {part[1]} adds {more.mean():.1f} more")
others_add = sum(change.values())
for favoured, where in {"receiver": adds > 0, "giver": adds < 0}.items():
    print(f"all others, where the head favoured the {favoured}: {others_add[where].mean():.1f} more")
    assert others_add[where].mean() > 0.7

# %% [markdown]
# Later parts add more when it is missing, whether it had favoured the right name or the wrong one. [[others-take-over]] So this is not a repair of what is missing. McGrath et al. saw parts that take over in large models and called it the **hydra effect** ([McGrath et al. 2023](https://arxiv.org/abs/2307.15771)). Lesson 07 found such pairs by removing two heads; here we see the compensation itself.

# %% [markdown] slide="skip"
# One more doubt: does it depend on what we put there? A mean for each *position* is milder still:


# %% slide="skip" evidence="one-mean"
def by_position(head: int):
    """Mean ablation with a mean for each position, over the texts only."""
    return lambda mixed: torch.cat([ablate(column[:, None], head, 4) for column in mixed.unbind(1)], 1)


for layer, head in ((1, 3), (0, 1)):
    run = with_heads(layer, by_position(head))
    lost_here, milder = loss[layer, head].mean(), (difference(caught.logits) - difference(run.logits)).mean()
    print(f"head {head} of layer {layer}: lost {lost_here:.1f}, with a mean for each position {milder:.1f}")
    assert abs(milder - lost_here) > (0.3 if layer else 2)

# %% [markdown] slide="skip"
# Then others take over less, and without head 1 of layer 0 nothing is lost: in our texts the receiver is always at the same position, so a mean for this position still marks it. [[one-mean]] A sentence about an ablation has to say what was put in.

# %% [markdown] slide="subslide"
# ### One head marks the name
# Now a head that adds nothing itself: head 1 of layer 0. (Head 3 of this layer has the same two means.) Where does it look, when it is at the two names?

# %%
weights = caught.attention(0).weights[:, 1]  # (B, T, S)
for at, where in ((1, "giver"), (3, "receiver")):
    mean = weights[:, first + at].mean(0)  # (S)
    best = int(mean.argmax())
    print(f"at the {where:<9} it gives {mean[best]:.2f} to {tokenizer.decode([gift_ids[0, best].item()]).strip()!r}")
print(f"at all positions  it gives {weights.diagonal(-1, 1, 2).mean():.2f} to the word before")

# %% [markdown]
# At the receiver it looks one word back, to *gave*. It is not a **previous-token head**, because elsewhere it hardly looks there. A hypothesis: it **marks** the name after *gave*, and the later heads fetch the marked name. A picture suggests it; what could refute it? If the mark decides, then we can exchange the two marks, and nothing else, and the model has to name the giver.


# %% slide="skip"
def with_exchange(layer: int, heads: list[int], ids: torch.Tensor, at: list[int]):
    """Everything inside the model, if the outputs of these heads at two positions are exchanged."""

    def exchange(mixed: torch.Tensor) -> torch.Tensor:
        found = mixed.unflatten(-1, (4, -1)).clone()  # (B, T, H, D)
        for head in heads:
            found[:, at, head] = found[:, at[::-1], head]
        return found.flatten(-2)

    return with_heads(layer, exchange, ids)


def prob_of(role: str, run) -> float:
    """The mean probability of the giver, A, or the receiver, B."""
    return run.logits[:, -1].softmax(-1).gather(-1, names[role][:, None]).mean().item()


# %% evidence="marks"
gave_at = [first + 1, first + 3]  # giver, receiver
for layer in range(2):
    row = [prob_of("A", with_exchange(layer, [head], gift_ids, gave_at)) for head in range(4)]
    print(f"layer {layer}: the giver has", "  ".join(f"{value:.2f}" for value in row))
    assert all(value > 0.9 if (layer, head) == (0, 1) else value < 0.1 for head, value in enumerate(row))

# %% [markdown]
# Exchanged between two positions, the output of one head turns the answer around, and no other head of the first two layers does that. [[marks]] If later heads fetch the marked name, they must now look at the giver. Do they, from the last word?

# %% evidence="heads-follow"
run = with_exchange(0, [1], gift_ids, gave_at)
for layer, head in ((1, 0), (1, 1), (1, 3), (2, 1), (2, 3)):
    looks = [each.attention(layer).weights[:, head, -1][:, gave_at].mean(0).tolist() for each in (caught, run)]
    print(f"layer {layer}, head {head}: at the receiver {looks[0][1]:.2f} -> {looks[1][1]:.2f}, ", end="")
    print(f"at the giver {looks[0][0]:.2f} -> {looks[1][0]:.2f}")
    assert looks[1][1] < 0.6 * looks[0][1] and looks[1][0] > looks[0][0] + 0.1

# %% [markdown]
# All five do. [[heads-follow]] These are the heads that make nearly all of the lead. Is this *the* mark? Two tests can refute it: the other wording of StoryWorld, *handed ... to*, and an ablation.

# %% slide="skip"
from functools import reduce


def without_all(heads: list[int], ids: torch.Tensor):
    """Everything inside the model, if these heads of layer 0 are ablated."""
    return with_heads(0, lambda mixed: reduce(lambda kept, head: ablate(kept, head, 4), heads, mixed), ids)


# %% evidence="other-marks"
handed_ids = ids_of([(BEGINNING + WORDINGS[1] + ASKED).format(**said) for said in crowd])
for wording, ids, at in (("gave", gift_ids, gave_at), ("handed", handed_ids, [first + 1, first + 7])):
    turned = [prob_of("A", with_exchange(0, heads, ids, at)) for heads in ([1], [1, 2])]
    kept = [prob_of("B", without_all(heads, ids)) for heads in ([1], [0, 1, 2])]
    print(f"{wording}, exchanged: giver {turned[0]:.2f} by head 1, {turned[1]:.2f} by heads 1 and 2")
    print(f"{wording}, ablated: receiver {kept[0]:.2f} without head 1, {kept[1]:.2f} without heads 0, 1 and 2")
    assert (turned[0] > 0.9 if wording == "gave" else turned[0] < 0.4) and turned[1] > 0.9
    assert kept[0] > 0.9 and kept[1] < kept[0] - 0.05

# %% [markdown]
# Both do refute it. With *handed ... to* the exchange of head 1 hardly moves the answer; it takes a second head as well, such as head 2. And without head 1 the receiver keeps nearly all of the probability in both wordings; it loses some if heads 0 and 2 are ablated, too. [[other-marks]] (That does not show that these two mark the name: exchange head 3 for head 2 in the code, and it loses even more.) What we may say: **in stories with *gave*, a wrong mark of head 1 is enough to turn the answer around, because later heads look where it points.** It is not the only mark.

# %% [markdown] tags=["note"]
# **Say.** What may we say now, and what not? Each sentence needs the experiment that could have refuted it.
#
# **Draw.** Two columns: *we saw* and *we changed*.
#
# **Ask.** "Somebody reports that a large model has a truth neuron, found by a probe. Which three questions do you ask?" (A control task? An intervention? Other texts?)
#
# **Usual answers.**
# - *Is the accuracy high?* (from the room): Compared with what?
#
# **Cut if short.** The stronger probe.

# %% [markdown] slide="slide" plan=110
# ## 7. Break it: what such stories can claim
# Each finding of this lesson had a rival. Here are some more ways to fool yourself, one cell each.
#
# **Too few texts.** With 80 texts and 128 features a probe can learn any labels, given enough steps. We throw a coin for each *text*:

# %% evidence="memorized"
x, _ = vectors(2, full_stop)
any_label = torch.randint(2, (160,), generator=seeded(9)).float()
probe = trained(x[:80], any_label[:80], n_steps=3000)
seen, unseen = accuracy(probe, x[:80], any_label[:80]), accuracy(probe, x[80:], any_label[80:])
print(f"coins for 80 texts: right {learned(seen, 0.8, 1)}, in 80 others {learned(unseen, 0.3, 0.7)}")
assert seen > 0.85 and unseen < 0.65

# %% [markdown]
# Always test a probe on texts that it has not seen. [[memorized]]
#
# **Too weak a reader.** An *exclusive or* is not linear, so the owner could be there in a form that only a probe with a hidden layer can read. If such a probe finds nothing, is it able to? We need a **positive control**: we write the missing label, *whose thing*, into the vectors ourselves, along a random direction and as strongly as who came first is written there.


# %% slide="skip"
def hidden_probe(x: torch.Tensor, y: torch.Tensor, n_steps: int = 150) -> torch.nn.Module:
    torch.manual_seed(16)
    with torch.enable_grad():
        net = torch.nn.Sequential(torch.nn.Linear(128, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3)
        for _ in range(n_steps):
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y).backward()
            optimizer.step()
    return net


# %% slide="skip"
strength = (ends[2][labels["who came first"] == 1].mean(0) - ends[2][labels["who came first"] == 0].mean(0)).norm()
way = torch.nn.functional.normalize(torch.randn(128, generator=seeded(5)), dim=0)  # (C)
x, new_x = ends[2], new_ends[2]
written, new_written = (
    v + strength * (y["whose thing"][:, None] - 0.5) * way for v, y in ((x, labels), (new_x, new_labels))
)


# %% slide="skip"
def both_probes(x: torch.Tensor, new_x: torch.Tensor, question: str) -> list[float]:
    """How often a linear probe, and one with a hidden layer, is right in new texts."""
    y, new_y = labels[question], new_labels[question]
    hidden = ((hidden_probe(x, y)(new_x)[:, 0] > 0) == new_y.bool()).double().mean().item()
    return [accuracy(trained(x, y), new_x, new_y), hidden]


# %% evidence="hidden-layer"
found = {question: both_probes(x, new_x, question) for question in labels}
found["who has it, label written in"] = both_probes(written, new_written, "who has it")
for question, (linear, hidden) in found.items():
    print(f"{question:<29} linear {learned(linear, 0.3, 1)}, hidden layer {learned(hidden, 0.3, 1)}")
linear, hidden = found["who has it, label written in"]
assert max(found["who has it"] + found["whose thing"]) < 0.7 and min(found["who came first"]) > 0.9
assert linear < 0.7 and hidden > 0.9

# %% [markdown]
# The hidden layer finds no more in the model's own vectors, but as soon as both labels are there it learns their exclusive or, which the linear probe cannot. [[hidden-layer]] So the probe is able to, and the model lacks the second label at this position. A probe that reads all positions could compute the owner by itself, and then its success would say nothing about the model. This is why the question is never *can it be read?* but *can it be read easily, and is it used?*
#
# **Too wide a claim.** Does the model copy the name after *gave* in any text? We leave out the story around it:

# %% evidence="short-texts"
for opening in ("One day", " Then"):
    short = [f"{opening} {giver} gave {taker} the red kite. By then the kite belonged to" for giver, taker in pairs]
    in_short = probs_of([taker for _, taker in pairs], short)  # (10)
    print(f"without a story around it, after {opening.strip()}: the receiver has {in_short.mean():.2f}")
    assert (in_short.mean() < 0.7) if opening == "One day" else (in_short.mean() > 0.85)

# %% [markdown]
# In a short text that begins with *One day*, it does not. One might conclude that it needs a whole story, but that would be wrong: if the same text begins with *Then*, as a gift in StoryWorld may, the receiver is named again. [[short-texts]] So the rule depends on how the sentence begins. What we have found holds for the wordings that we have tried, and our sentences must not claim more.
#
# **One model.** All this is about one model, trained once. Another seed may put the mark into another head, or find another shortcut. That induction heads exist is known because they were found in many models ([Olsson et al. 2022](https://arxiv.org/abs/2209.11895)); ours has none (lesson 05).
#
# | we saw | it suggested | we changed | it turned out |
# |---|---|---|---|
# | sure after one gift | it knows who has everything | a trade after the gift | it copies the receiver |
# | the receiver can be read at the full stop | stored there for later use | exchanged the vector | not used for this word |
# | head 3 of layer 1: 0.7 added on average, -0.8 lost | the model can do without it | a dot for each story | it favours names, and others add 1.5 |
# | head 1 of layer 0 marks the name after *gave* | it is the mark | said *handed*, ablated it | other heads mark, too |
# | a probe reads coins at the thing | the model knows them | asked for coins nobody told it | the probe had learned a table |

# %% [markdown] tags=["note"]
# **Say.** Four instruments, one attitude. Say only the points whose sections you taught.
#
# **Draw.** The way of the name: mark, fetch, say.
#
# **Ask.** At the door: "How would you train a model that does track the owner, and how would you notice that it does?"
#
# **Usual answers.**
# - *Make it larger* (from the room): Perhaps. Which experiment of today would tell you?
# - *Look whether the loss falls* (from the room): The score rose to four fifths by a shortcut.
#
# **Cut if short.** The list; students read it.

# %% [markdown] slide="slide"
# ## What you have now
# - A score can hide a rule: the model is sure and right about an owner where one gift was made, and gives each person about one half elsewhere. [[sure-or-lost]] It copies the receiver of the gift, and does not track who has what. [[copies-receiver]]
# - The logit lens reads the stream early with the model's own head. [[same-reading]] It finds objects and places only after the last block [[depth-of-kinds]], but what it does not find can still be there for a trained reader. [[lens-misses]]
# - What can be read is not what is used: the receiver is readable at the full stop, but only its own position and the last word have an effect [[readable-not-used]], even if all positions in between are exchanged together. [[not-redundant]] The effect of the receiver's own position was found in two wordings and three other pairs of names. [[other-wording]]
# - A probe needs new texts [[memorized]] and a control task. [[control-task]] In the stories in which the model is lost, no probe found the owner at the last word, because one of the two labels that determine the owner cannot be read there. [[knows-no-more]] [[hidden-layer]]
# - A push along the direction of a probe changes what the model writes, more than random ones of the same length [[steered]], but not everywhere where the probe is right. [[steered-elsewhere]]
# - What a head adds directly is not what is lost without it [[direct-is-not-total]], because later parts react. [[others-take-over]] The mean over stories can hide both. One head of the first layer marks the receiver: exchange its marks in a sentence with *gave*, and later heads look at the giver and the model names it. [[marks]] [[heads-follow]] It is not the only mark. [[other-marks]] Whether the receiver is named at all depends on how the sentence begins. [[short-texts]]
#
# Next, lesson 17: can a model be taught what we *want*?

# %% [markdown] slide="skip"
# ## Sources
# - The logit lens: nostalgebraist 2020, [*interpreting GPT: the logit lens*](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens). With trained readers: Belrose et al. 2023, [*Eliciting Latent Predictions from Transformers with the Tuned Lens*](https://arxiv.org/abs/2303.08112).
# - The stream as a sum, and direct effects on the logits: Elhage et al. 2021, [*A Mathematical Framework for Transformer Circuits*](https://transformer-circuits.pub/2021/framework/index.html). Induction heads: Olsson et al. 2022, [*In-context Learning and Induction Heads*](https://arxiv.org/abs/2209.11895).
# - Exchanging activations: Vig et al. 2020, [*Investigating Gender Bias in Language Models Using Causal Mediation Analysis*](https://arxiv.org/abs/2004.12265); Meng et al. 2022, [*Locating and Editing Factual Associations in GPT*](https://arxiv.org/abs/2202.05262).
# - Probes and their controls: Hewitt and Liang 2019, [*Designing and Interpreting Probes with Control Tasks*](https://arxiv.org/abs/1909.03368); Belinkov 2022, [*Probing Classifiers: Promises, Shortcomings, and Advances*](https://arxiv.org/abs/2102.12452).
# - A world inside a model: Li et al. 2023, [*Emergent World Representations: Exploring a Sequence Model Trained on a Synthetic Task*](https://arxiv.org/abs/2210.13382); Nanda, Lee and Wattenberg 2023, [*Emergent Linear Representations in World Models of Self-Supervised Sequence Models*](https://arxiv.org/abs/2309.00941).
# - Other parts take over: McGrath et al. 2023, [*The Hydra Effect: Emergent Self-repair in Language Model Computations*](https://arxiv.org/abs/2307.15771).
# - Is attention an explanation? Jain and Wallace 2019, [*Attention is not Explanation*](https://arxiv.org/abs/1902.10186).
