# %% [markdown] slide="slide"
# # 00 Start
# **Can a program learn to write by doing nothing but guess what comes next?**
#
# *Needs* Python, and what a logarithm is. *Builds* your first writer: a loop around a language model. *Runs* in about 25 s on two cores.
# *Teaches* in about 60 minutes, plus 10 of exercises.
#
# In this series you build a language model, every part of it, until you can read each line of a small library, `tinylm_lib`, and say why it is there. You can read this page as it is, or run it in JupyterLab, where <kbd>Shift</kbd>+<kbd>Enter</kbd> runs a cell. Then you work on a copy of your own, so you cannot break anything.

# %% [markdown] tags=["note"]
# The lesson has one idea: a language model is a guess at the next word, and everything that it writes comes from making that guess again and again. Sections 1 to 5 are the core, with one exercise. Section 6 breaks the model, section 7 looks inside, and section 8 shows how to find out what a part of a model does.
# The lesson presumes nothing of the later ones: if somebody asks how the model computes its guess, the answer is "that is the rest of the series".
# Before the class: let everyone run section 1 to its end. A broken installation found there costs a minute, later it costs the lesson. Common causes are a Python from the system instead of the project's, and a laptop in power-saving mode (slow matrix product).

# %% slide="skip"
import torch
from matplotlib import pyplot as plt

from tinylm_lib import TransformerLM, generate, next_token_probs, storyworld
from tinylm_classroom import doctor, figures, predict, show_text, watch
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)

# %% [markdown] tags=["note"]
# **Say.** Nothing about the program yet, only: "It has read stories, and now it writes one." Read the story aloud, slowly, and let the class find the mistake. Then show the picture and be silent for half a minute.
#
# **Draw.** The first sentence of the story on the board, with *He*. Replace *Carlos* by *Mia* and ask which later word has to change. That is one thread of the picture.
#
# **Ask.** After the picture: "Nobody gave the program a rule about names, places or sayings. Where can it have learned them?" Collect the answers; section 5 shows it happen.
#
# **Usual answers.**
# - *The sentence with the green coat* (`There he met Jamal, a teacher with a green coat`): Anybody may come with anything. The mistake is about something that we know already.
# - *It has learned its stories by heart* (from the room): That is the right doubt. Section 2 tests it.
# - *Random parameters give random letters* (`letters in no order`): They would, if the tokens were letters. Here a token is a word.
# - *It cannot know grammar, so somebody has built it in* (`correct sentences without sense`): The untrained model is the same program, and it has no grammar at all.
#
# **Cut if short.** The report of the doctor; let the students run it themselves.

# %% [markdown] slide="slide"
# ## 1. A program writes
# A **language model** is a program that continues a text. A small one comes with the library. It has read short stories from a made-up world, *StoryWorld*, and nothing else. Press **Write** and watch it, or type a beginning of your own.

# %% slide="subslide"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
watch(model, tokenizer)

# %% [markdown] slide="skip"
# Before each word the model gives every word that it knows a **probability**: how likely it thinks the word is to come next. The bars show the largest ones. A random number then decides which word is written. We know the program that makes the stories of StoryWorld, so we also know the exact probabilities: a mark on each bar. Compare the bars with the marks. Where is the model right, and where is it not?

# %% slide="skip"
print(f"read {shipped.extra['n_stories']:,} stories, knows {tokenizer.vocab_size} words and marks")
print(f"made of {sum(p.numel() for p in model.parameters()):,} numbers, its parameters")

# %% [markdown]
# We give it the first words of a new story, and it continues, word by word, until the story ends.


# %% slide="skip"
def write(writer: TransformerLM, beginning: str, seed: int = 11) -> str:
    """A story that begins like this. In StoryWorld each story is one line, so a line end begins and ends it."""
    ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (B, T)
    line_end = tokenizer.encode("\n")
    chance = torch.Generator().manual_seed(seed)
    out = generate(writer, ids, 120, stop_ids=line_end, generator=chance)
    return tokenizer.decode(out[0].tolist()).strip()


# %% rows=["S0-1"]
written = write(model, "One foggy afternoon, careful Carlos")
show_text(written)

# %% [markdown]
# The program does one thing only: it guesses which word comes next, again and again, like the completion on a phone that never stops. And yet this reads like a story.
#
# Now read it again, slowly, like a proofreader. Does *he* always mean the right person? Do things keep their colours? Who has what? There is a mistake in it. Find the first impossible sentence.

# %% tags=["source-hidden"]
at = storyworld.parse(written).error_at
sentences = {
    "There he met Jamal, a teacher with a green coat": "This is possible: anybody may come, with anything in hand.",
    "Soon Jamal handed the blue ring to Carlos": "",
    "Afterwards they left Oakhill for Fairview": "This is possible: Carlos had cycled to Oakhill.",
    "The green coat was easy to see": "This is possible: Jamal came with a green coat.",
}
predict(
    "Which sentence is impossible?",
    key=lambda: next(s for s in sentences if 0 <= at - written.index(s) < len(s)),
    because="Carlos had brought the blue ring, and Jamal only had a coat. Nobody can give away what somebody else has.",
    choices=sentences,
)

# %% [markdown]
# StoryWorld has rules, so another program can find the first word that is impossible there:

# %%
before, after = storyworld.words(written[:at]), storyworld.words(written[at:])
print(f"...{''.join(before[-10:])} >>>{after[0]} <<<{''.join(after[1:8])}...")

# %% [markdown] slide="subslide"
# ### What did it remember?
# Only Jamal's coat was his to give. (The last sentence repeats the slip: the ring is not with Jamal.) Nearly everything else is right: *Carlos* stays Carlos, *He* is the right pronoun, and the saying comes back word for word. Does the program really use the earlier words, or are we reading too much into it?
#
# An experiment can tell. We **change one word** of the story to others of its kind, for example *Carlos* to *Mia*, and measure how much less the program then expects each of the later words.

# %% tags=["source-hidden"] slide="skip"
said = storyworld.words("\n" + written)
written_ids = torch.tensor(tokenizer.encode("\n" + written))  # (T)
kinds = {"people": ["name", "trait", "job"], "places": ["place"], "things": ["thing", "colour"]}
kinds["the saying"] = ["saying1", "saying2", "saying3", "saying4"]
kinds["anything else"] = ["weather", "day", "go", "carry", "say", "feeling"]


def others_like(word: str) -> tuple[str, list[str]]:
    """The kind of a word, and some other words of that kind that are not in the story."""
    blank = " " if word.startswith(" ") else ""
    for kind, names in kinds.items():
        for name in names:
            if word.strip() in storyworld.CLASSES[name]:
                others = [blank + other for other in storyworld.CLASSES[name]]
                return kind, [other for other in others if other not in said][::4]
    return "", []


# %% tags=["source-hidden"] slide="skip"
@torch.no_grad()
def expected(texts: torch.Tensor) -> torch.Tensor:
    """How likely each word of the story is after the words before it in other texts. texts (N, T). Returns (N, T - 1)."""
    probs = next_token_probs(model(texts))  # (N, T, V)
    T = len(written_ids)
    return probs[:, torch.arange(T - 1), written_ids[1:]]  # (N, T - 1)


# %% [markdown] slide="say"
# Two helpers are folded here: `others_like` finds the kind of a word and other words of that kind, and `expected` computes how likely the later words of the story are after a change.

# %%
as_written = expected(written_ids[None])[0]  # (T - 1)
lost = {}
for position, word in enumerate(said):
    _, others = others_like(word)
    if others:
        changed = written_ids.repeat(len(others), 1)  # (N, T)
        changed[:, position] = torch.tensor([tokenizer.ids[other] for other in others])
        lost[position] = as_written - expected(changed).mean(0)  # (T - 1)

# %% tags=["source-hidden"] slide="skip"
threads = [
    (source, target, others_like(said[source])[0], drop)
    for source, drops in lost.items()
    for target, drop in enumerate(drops.tolist(), start=1)
    if drop > 0.4
]


# %% tags=["source-hidden"] slide="skip"
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke


# %% tags=["source-hidden"] slide="skip"
def set_lines(words: list[str], width: int) -> list[tuple[int, int]]:
    """Where each word begins: its column and its line. A mark stays on the line of its word."""
    places, column, line = [(0, 0)], -1, 0
    for i, word in enumerate(words[1:], start=1):
        marks = [len(mark) for mark in words[i + 1 : i + 3] if mark in {".", ",", '"', ' "'}]
        column += word.startswith(" ")
        if column + len(word.strip()) + sum(marks) > width:
            column, line = 0, line + 1
        places.append((max(column, 0), line))
        column = max(column, 0) + len(word.strip())
    return places


def draw_word(ax: plt.Axes, word: str, place: tuple[int, int], ground: str | None, is_source: bool) -> None:
    column, line = place
    if ground:
        corner, size = (column - 0.15, line - 0.26), (len(word) + 0.3, 0.52)
        ax.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0,rounding_size=0.12", fc=ground, zorder=3))
    style = {"family": "monospace", "size": 18.5, "ha": "center", "va": "center_baseline", "zorder": 4}
    style["color"] = "white" if ground else figures.INK if is_source else figures.QUIET
    style["weight"] = "bold" if ground or is_source else "normal"
    style["path_effects"] = [] if ground else [withStroke(linewidth=4, foreground="white")]
    for i, letter in enumerate(word):
        ax.text(column + i + 0.5, line, letter, **style)


# %% tags=["source-hidden"] slide="skip"
def draw_thread(ax: plt.Axes, source: int, target: int, drop: float, color: str) -> None:
    """A curve from below one word to another, thicker where more probability is lost."""
    (x1, y1), (x2, y2) = ((places[i][0] + len(said[i].strip()) / 2, places[i][1]) for i in (source, target))
    same_line = y1 == y2
    y1, y2 = y1 + 0.27, y2 + 0.27 if same_line else y2 - 0.27
    bend = 0.3 if same_line else max(0.3, (y2 - y1) / 2)
    curve = [(x1, y1), (x1, y1 + bend), (x2, y2 + bend if same_line else y2 - bend), (x2, y2)]
    path = Path(curve, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    ax.add_patch(PathPatch(path, fc="none", ec=color, lw=1 + 6 * drop, alpha=0.8, capstyle="round", zorder=2))


# %% tags=["signature", "source-hidden"] slide="subslide"
places, slip = set_lines(said, 66), len(before) + 1
colors = dict(zip(kinds, figures.SERIES, strict=True))
sources, targets = ({thread[end] for thread in threads} for end in (0, 1))
fig, ax = plt.subplots(figsize=(11.4, 6.4), layout="constrained")
for i, word in enumerate(said[1:], start=1):
    ground = "#c2261d" if i == slip else figures.INK if i in targets else None
    draw_word(ax, word.strip(), places[i], ground, i in sources)
for source, target, kind, drop in threads:
    draw_thread(ax, source, target, drop, colors[kind])
for kind in list(kinds)[:4]:
    ax.plot([], [], color=colors[kind], linestyle="-", linewidth=6, label=kind)
ax.plot([], [], "s", color="#c2261d", markersize=17, label="impossible")
fig.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=18, handlelength=1.6)
ax.set(xlim=(-0.8, 67), ylim=(places[-1][1] + 0.7, -0.5), xticks=[], yticks=[], ylabel=" ")
ax.set_title("A program wrote this. What did it remember?", size=24)
ax.set_xlabel("a thread: change the first word, and the later one is no longer expected", size=18)
figures.unframed(ax)
ax.grid(visible=False)
figures.display(
    fig,
    alt="The story, with coloured threads from words to later words that depend on them: from the name Carlos to each later Carlos and to He, from Oakhill to Oakhill, from ring to ring, and four parallel threads between the two sayings. The impossible word blue is red.",
    caption="Each thread is an experiment: we change the word at its beginning, and the word at its end loses at least 40 percentage points of its probability. The red word is the first impossible one.",
    table={"changed": [said[s].strip() for s, *_ in threads], "later word": [said[t].strip() for _, t, *_ in threads], "lost": [d for *_, d in threads]},
    digits=2,
)  # fmt: skip

# %% [markdown] slide="say"
# Follow a thread from its beginning to its end. The four parallel threads are the saying. Nobody has programmed them: the model has no line of code about names, places or sayings.

# %% [markdown] slide="subslide"
# Could *any* change upset the program, so that the threads mean nothing? Here are words on which no later word depends:

# %% evidence="threads"
for word in (" foggy", " afternoon", " cycled", " brought", " whispered", " thankful"):
    most = lost[said.index(word)].max().item()
    print(f"change {word.strip():<10} no later word loses more than {most:.2f}")
    assert most < 0.2
assert {" Carlos", " Oakhill", " ring", "Bright", " mice"} <= {said[source] for source in sources}

# %% [markdown]
# So a change as such does no harm. A thread shows that the program *uses* the earlier word to expect the later one. [[threads]]

# %% [markdown] slide="subslide"
# ### The program, or what it has learned?
# What does the same model write before it has read anything?

# %% slide="skip"
_ = torch.manual_seed(0)
untrained = TransformerLM(model.config).eval()
nonsense = write(untrained, "One foggy afternoon, careful Carlos", seed=37)

# %% tags=["source-hidden"]
knows_all = all(word in tokenizer.ids for word in storyworld.words(nonsense))
predict(
    "The same program, with random numbers for its parameters. What does it write?",
    key=lambda: (
        "correct sentences without sense"
        if storyworld.log_prob(nonsense) > -float("inf")
        else ["letters in no order", "real words in no order"][knows_all]
    ),
    because="It cannot misspell, because it chooses among whole words. Which of them comes next is what it has to learn.",
    choices={
        "letters in no order": "It would, if it chose among letters. This one chooses among whole words.",
        "real words in no order": "",
        "correct sentences without sense": "The order of words has to be learned, too: nobody has built grammar in.",
        "the same word again and again": "Random parameters prefer some words a little, but none by far, so each draw is likely to bring another word.",
    },
)

# %%
print(nonsense[:300])

# %% [markdown]
# The program is the same, and so is its size. The whole difference between the two texts is in the values of the parameters, and they were learned by guessing the next word. This lesson is about that guess. The rest of the series builds the program that makes it.

# %% [markdown] slide="subslide"
# ### Is your machine ready?
# If you run this lesson, look at this report. Every line should say *ok*; if a line says *fix*, the arrow below it shows how. A number between ⟨angle brackets⟩ was measured on the machine that ran this page, and yours will differ.

# %%
print(doctor.report(doctor.checkup()))

# %% [markdown] tags=["note"]
# **Say.** A guess is not a word. It is a probability for every word that the model knows, and all of them together are a distribution. Say both words often today; the whole series uses them.
#
# **Draw.** An axis with a few words and a bar above each. The bars sum to 1, and none is 0. Write *One foggy afternoon, careful Carlos ...* above it and let the room draw the bars after *He had a*.
#
# **Ask.** At the control: "Before I move on by one word: how many high bars will there be?" Move word by word through the first two sentences, and then to the last position.
#
# **Usual answers.**
# - *All of it should go to one colour* (`100`): Then the model is right once in twelve times. The best guess is not the most likely word; it is the right probabilities.
# - *Pink or not pink, so one half* (`50`): There are two cases, but they are not equally likely.
# - *Impossible words have the probability 0* (from the room): Look at the smallest one. A model of this kind never gives exactly 0.
#
# **Cut if short.** The table of new beginnings; say only its last line.

# %% [markdown] slide="slide"
# ## 2. One guess
# To the model each word is a number, its **id**. What it reads one at a time is called a **token**: here that is a word, a mark or a line end.

# %%
ids = tokenizer.encode("\nOne foggy afternoon, careful Carlos")
print(ids)
print([tokenizer.decode([i]) for i in ids])

# %% [markdown]
# Every text for this model begins with a line end, because each story of its training did.
#
# A guess is not one word. It is a **probability for every token** that the model knows. All of them together are called a **distribution**.


# %%
def guess(beginning: str) -> torch.Tensor:
    token_ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (B, T)
    with torch.no_grad():
        scores = model(token_ids)  # (B, T, V)
    return next_token_probs(scores[:, -1])[0]  # (V)


# %% evidence="distribution" rows=["S0-2"]
beginning = "One foggy afternoon, careful Carlos came to Hillcrest."
first_guess = guess(beginning)  # (V)
for i in first_guess.topk(3).indices.tolist():
    print(f"{first_guess[i]:7.2%} {tokenizer.decode([i])!r}")
for start in (beginning, "One", "One sunny morning, shy Mia"):
    assert guess(start).shape == (345,)
    assert torch.isclose(guess(start).sum(), torch.tensor(1.0))
    assert guess(start).min() > 0

# %% [markdown]
# The 345 probabilities sum to 1, and none of them is exactly 0, however absurd the word. [[distribution]] Here *He* gets nearly everything, because a boy's name came before.

# %% [markdown] slide="subslide"
# Now the story continues with *He had a*, and a colour must follow. StoryWorld is a program, too, and it knows exactly how likely each next word is:


# %%
def exact_probs(beginning: str) -> dict[str, float]:
    """The words that StoryWorld can write next, each with its probability."""
    reader = storyworld.Reader()
    for word in storyworld.words(beginning):
        reader.read(word)
    return reader.next_word_probs()


# %%
exact = exact_probs(beginning + " He had a")

# %% tags=["source-hidden"]
predict(
    f"`He had a`, and then? StoryWorld draws one of its colours ({', '.join(map(str.strip, exact))}), all equally likely. "
    "What is the right probability of `pink`, in percent?",
    key=lambda: 100 * exact[" pink"],
    number="%",
    within=0.5,
    because="All twelve colours are equally likely. A model that gives more to one of them must give less to another.",
    feedback={
        100: "If you are sure of pink, you are right once in twelve times, and completely wrong eleven times.",
        50: "Pink or not pink are two cases, but they are not equally likely.",
    },
)

# %% [markdown]
# How close does the model come? Let us look at all twelve colours, after this beginning and after two others.

# %% slide="skip"
three_starts = (
    beginning + " He had a",
    "One sunny morning, shy Mia walked to Ashford. She brought a",
    "One cold evening, brave Tom hurried to Seaview. He held a",
)

# %% evidence="colours"
for start in three_starts:
    probs = guess(start)  # (V)
    twelve = [probs[tokenizer.ids[word]].item() for word in exact]
    print(f"all twelve {sum(twelve):.2%}, the lowest {min(twelve):.1%}, the highest {max(twelve):.1%}")
    assert sum(twelve) > 0.999
    assert 0.07 < min(twelve) < max(twelve) < 0.1

# %% [markdown]
# Nobody gave the model the list of colours, nor the rule that all are equally likely. It has learned both: the twelve colours together get nearly all of the probability, and each of them gets between 7.6 and 9.1 percent after these beginnings, where 8.3 is exact. [[colours]]

# %% [markdown] slide="subslide"
# ### Watch it guess
# Walk through the story of section 1, word by word. The bars are the model's guess, the black marks are the exact probabilities. Then look at the last position, directly before the slip.


# %%
def next_word(n_words=13):
    # ESSENTIAL
    text = "".join(said[1 : n_words + 1])
    model_probs, true_probs = guess(text), exact_probs(text)
    top = model_probs.topk(12).indices.tolist()
    names = [tokenizer.decode([i]).strip() or "line end" for i in top]
    values = [model_probs[i].item() for i in top]
    marks = [true_probs.get(tokenizer.decode([i]), 0.0) for i in top]
    fig, ax = plt.subplots(figsize=(9.6, 5.6), layout="constrained")
    ax.barh(names, values)
    ax.plot(marks, names, "|", color="black", markersize=22, markeredgewidth=5)
    # END
    ax.set(xlim=(0, max(0.1, *values, *marks) * 1.05), ylabel="next word")
    ax.set_xlabel("probability   (bars: the model, black marks: exact)", size=18)
    ax.set_title("... " + "".join(said[max(1, n_words - 5) : n_words + 1]).strip() + " ___", size=20)
    ax.tick_params(labelsize=17)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    alt = "A bar for each of the twelve words that the model finds most likely, with the exact probability as a mark."
    caption = "Bars: the model. Black marks: exact. How many words can come next?"
    figures.display(fig, alt=alt, caption=caption, table={"word": names, "model": values, "exact": marks}, digits=2)


# %% slide="skip"
from tinylm_classroom import control

# %%
control(next_word, n_words=(1, slip - 1))

# %% evidence="slip"
before_slip = guess(written[:at].rstrip())  # (V)
print("before the slip:", {word: f"{before_slip[tokenizer.ids[word]]:.2f}" for word in (" blue", " green")})
print("exact:", exact_probs(written[:at].rstrip()))
assert 0.4 < before_slip[tokenizer.ids[" green"]] < before_slip[tokenizer.ids[" blue"]] < 0.6

# %% [markdown]
# This explains the slip of section 1. Only *green* was possible, but to the model *blue* and *green* were about equally likely: it remembers both colours, but not who has which thing. [[slip]] Section 4 shows that this is not an accident.

# %% [markdown] slide="subslide"
# ### From a guess to a text
# To write, the program draws one word at random with these probabilities, appends it to the text, and guesses again. That loop is all of `write`.
#
# Could we do without a model, and simply count which word followed in the stories that we have? For a short beginning we could. But a long beginning is always new:

# %% slide="skip"
import math

many_stories = [storyworld.words(line) for line in storyworld.corpus(3500, seed=3).splitlines()]
old_stories, new_stories = many_stories[:3000], many_stories[3000:]


def seen_before(length: int, n_stories: int) -> float:
    """For how many of the new stories a story among the first n old ones begins with the same words, as a fraction."""
    known = {tuple(story[:length]) for story in old_stories[:n_stories]}
    found = [tuple(story[:length]) in known for story in new_stories]
    return sum(found) / len(found)


# %% evidence="counting"
print("how many of 500 new beginnings were seen before")
for length in (2, 4, 5, 6, 8, 12):
    few, many = seen_before(length, 500), seen_before(length, 3000)
    print(f"the first {length:>2} words: {few:4.0%} in 500 stories, {many:4.0%} in 3,000")
lists = [storyworld.CLASSES[name] for name in ("weather", "day", "trait", "name", "go", "place")]
n_first = math.prod(len(words) for words in lists)
print(f"possible first sentences: {n_first:,}, stories that the model has read: {shipped.extra['n_stories']:,}")
assert seen_before(2, 500) == 1 and seen_before(8, 3000) < 0.02
assert n_first > 50 * shipped.extra["n_stories"]

# %% [markdown]
# After eight words there is hardly anything left to count, even with six times as many stories. (Counting after the last word alone is always possible; section 4 shows how little that knows.) Of the millions of possible first sentences the model has read at most 100,000. [[counting]] So for nearly every story there is nothing to look up: the model has to notice that a new sentence is *like* old ones. How a program can do that is the subject of this series.

# %% [markdown] tags=["note"]
# **Say.** You now know all that a writer needs: a guess, and a way to choose a word from it. Write the simplest writer of all, which always takes the most likely word.
#
# **Draw.** A box *model* with an arrow to a list of scores, an arrow to one word, and an arrow from the word back to the beginning of the box. The exercise is this loop.
#
# **Ask.** Before the exercise: "What do you get if you run it twice? And what if you change the first word?"
#
# **Usual answers.**
# - *The scores of the first position* (`first position`): They belong to the second word. The last position is the one that guesses the next.
# - *Only the new word goes into the next round* (`sees the last token alone`): The model has no memory of its own here. It needs the whole text each time.
# - *All words are guessed in one go* (`never reads on`): The second new word depends on the first new one.
# - *The lowest score* (`least likely`): High scores mean likely words.
#
# **Cut if short.** The example of a check; the students see their own.

# %% [markdown] slide="slide"
# ## 3. Your turn: write a writer
# An exercise is a function with a missing body. Fill it in, run its cell, and then run the **check** below it. Until you try, the check says *not attempted yet*, and the lesson still runs to its end, so you can always come back.

# %% slide="skip"
from tinylm_classroom import check, hint, keep

# %% [markdown]
# In section 1 the words were drawn at random. The simplest writer does without chance: it always takes the token with the **highest score**. What you need:
#
# - `ids` is a **tensor**, an array of numbers with one or more axes (lesson 02). Its **shape** lists the lengths of its axes: a tensor of shape (1, T) is a table with one row and T columns. `ids[:, -1]` is its last column.
# - `model(ids)` takes ids of shape (1, T), one text of T tokens, and returns scores of shape (1, T, V): for each position a row with a score for each of V tokens. The row of the *last* position belongs to the next token.
# - `scores.argmax(-1)` gives the index of the highest number along the last axis, and `keepdim=True` keeps that axis with size 1.
# - `torch.cat((a, b), dim=1)` appends b to a. Both must have two axes: `scores[:, -1:]` keeps the axis of positions, `scores[:, -1]` drops it.


# %% tags=["exercise"] name="continue_greedily" minutes=10 difficulty=2
def continue_greedily(model, ids, n):
    """ids (1, T). Returns (1, T + n): ids, and n more, each the most likely next one.

    model(ids) returns scores (1, T, V). n is 0 or more. ids itself must not change.
    """
    # SOLUTION
    for _ in range(n):
        scores = model(ids)  # (1, T, V)
        next_id = scores[:, -1].argmax(-1, keepdim=True)  # (1, 1)
        ids = torch.cat((ids, next_id), dim=1)  # (1, T + 1)
    return ids
    # END


# %% tags=["check"] evidence="greedy"
if check("continue_greedily", continue_greedily).passed:
    keep("continue_greedily", continue_greedily)

# %% [markdown] slide="subslide"
# A check does not only say *wrong*. It says which mistake it looks like. If you are stuck, `hint` gives you hints, the smallest first. `keep` saves a function that has passed in the folder `work/parts`, and later lessons build their models with your parts.

# %%
hint("continue_greedily")

# %% [markdown] tags=["solution"]
# Three lines in a loop: score, take the highest at the *last* position, append. Common mistakes: `scores[:, 0]`, which asks the first position again and again; giving the model only the new token, although it has no memory of the text; and forgetting `keepdim=True`, which leaves the shape (1,), so that `torch.cat` raises an error.
# The library does the same thing, but it keeps what it has computed for the earlier positions instead of computing it again (lesson 13).

# %% [markdown] slide="subslide"
# ### The library's version
# `generate` with a temperature of 0 does the same. (The *temperature* says how much chance there is. At 1, as in section 1, the probabilities are used as they are; lesson 03 explains it.)

# %% slide="skip"
# Until you have solved the exercise, this cell uses its solution.
from tinylm_classroom import find_exercise

start_ids = torch.tensor([tokenizer.encode("\nOne foggy day,")])  # (B, T)
try:
    with torch.no_grad():
        greedy_ids = continue_greedily(model, start_ids, 30)
except NotImplementedError:
    with torch.no_grad():
        greedy_ids = find_exercise("continue_greedily").reference(model, start_ids, 30)

# %% evidence="greedy-library"
show_text(tokenizer.decode(greedy_ids[0].tolist()))
assert torch.equal(greedy_ids, generate(model, start_ids, 30, temperature=0))
print("the same as generate(..., temperature=0)")

# %% [markdown]
# Without chance the program writes the same story each time. [[greedy]] [[greedy-library]] So a model alone does not determine a text. The rule that chooses a word from the guess is a second decision, and it is yours.

# %% [markdown] tags=["note"]
# **Say.** If a guess is a list of probabilities, when is it a good guess? We score it with one number, the loss. And because StoryWorld is a program, we know the lowest loss that is possible, which nobody knows for English.
#
# **Draw.** The curve of -ln p for p from 0 to 1. Mark p = 1, p = 1/2 and p = 1/12. Left of it the curve rises without end: to be sure and wrong is expensive.
#
# **Ask.** Before the table of readers: "Somebody knows only how often each word occurs. Somebody else also knows the word before. Who guesses better, and how much?"
#
# **Usual answers.**
# - *1, because that is the maximum* (`1.0`): A probability has a maximum, a loss has none.
# - *The logarithm to base 2* (`8.43`): Then the unit is the bit. Nats use the natural logarithm.
# - *A loss of 0 is possible if the model is good enough* (from the room): Nobody can know which colour will be drawn.
#
# **Cut if short.** The table of the kinds of words; the picture of section 1 has shown it for one story.

# %% [markdown] slide="slide"
# ## 4. How good is a guess?
# We score a guess by the probability $p$ that it gave to the word that really came. The **loss** of this word is $-\ln p$, in a unit called *nats*. Its full name is *negative log-likelihood*. A guess that is sure and right has a loss of 0. One that is sure and wrong has a high loss.

# %%
for p in (1.0, 0.5, 1 / 12, 0.001):
    print(f"probability {p:.3f}: loss {-math.log(p) + 0.0:.2f} nats")

# %% slide="skip"
V = tokenizer.vocab_size

# %% tags=["source-hidden"]
predict(
    f"A model that knows nothing gives each of the {V} tokens the same probability. What is its loss for each word?",
    key=lambda: math.log(V),
    number="nats",
    within=0.05,
    because=f"Each token gets 1/{V}, and -ln(1/{V}) = ln {V}.",
    feedback={
        1.0: "That would be a probability of 1/e, more than a third. A loss has no maximum.",
        math.log2(V): "In bits, yes: that is the logarithm to base 2. Nats use the natural logarithm.",
    },
)

# %% [markdown] slide="subslide"
# We measure the mean loss on 100 stories that the model has not read.

# %% slide="skip"
from tinylm_lib import evaluate
from tinylm_lib.data import every_document

stories = storyworld.corpus(100, seed=7)
fresh_ids = torch.tensor(tokenizer.encode(stories))
line_end = tokenizer.encode("\n")[0]


# %%
def mean_loss(reader: TransformerLM) -> float:
    return evaluate(reader, every_document(fresh_ids, line_end, 32)).nats_per_token


# %%
shipped_loss, untrained_loss = mean_loss(model), mean_loss(untrained)
print(f"knows nothing: {math.log(V):.2f} nats per token")
print(f"untrained:     {untrained_loss:.1f}")
print(f"shipped:       {shipped_loss:.2f}")

# %% [markdown]
# The untrained model is even slightly worse than one that knows nothing, because its random parameters prefer some words, and mostly the wrong ones. But is the loss of the shipped model *good*?

# %% [markdown] slide="subslide"
# Three other readers help to judge it. The first knows only how common each word is (the *unigram* frequencies). The second also knows the one word before (the *bigram* frequencies). The third knows everything that can be known. For English nobody knows the loss of the third one, but for StoryWorld it is a number: the *entropy* of its stories, here called **the floor**.

# %%
readers = storyworld.entropies(tokenizer, n_stories=2000)
levels = {
    "knows nothing": math.log(V),
    "how common": readers.unigram,
    "one word back": readers.bigram,
    "the floor": readers.floor,
}
for name, nats in levels.items():
    print(f"{name:<14} {nats:.2f} nats, like a fair choice among {math.exp(nats):5.1f} words")

# %% [markdown]
# The last column makes a loss easier to imagine: $e$ to the power of the loss is the number of equally likely words that would have the same loss. It is called the **perplexity**.

# %% [markdown] slide="subslide"
# Over all stories no model can be below the floor, because the rest is pure chance, such as which colour is drawn. But our 100 stories may be easier or harder than most. So we also compute the exact reader's loss on the *same* stories.

# %% evidence="paired"
exact_loss = -storyworld.log_prob(stories) / len(fresh_ids)
print(f"the same 100 stories: exact {exact_loss:.3f}, shipped {shipped_loss:.3f} nats per token")
print(f"perplexity: exact {math.exp(exact_loss):.2f}, shipped {math.exp(shipped_loss):.2f}")
print(f"the model is above the exact reader by {shipped_loss - exact_loss:.3f} nats")
assert 0.01 < shipped_loss - exact_loss < 0.03

# %% [markdown]
# The shipped model is very close to the best possible loss. [[paired]]

# %% [markdown] slide="subslide"
# Was the slip of section 1 bad luck, or is something hard for the model? In new stories we look at each word that the earlier words determine, and count how often the model's first choice is right. We do this for three groups of 30 stories, to see how much the answer depends on the stories.

# %% slide="skip"
from tinylm_lib.storyworld import gaps

groups = []
for g in range(3):
    group = [storyworld.story(torch.Generator().manual_seed(50 * g + n)) for n in range(30)]
    groups.append(gaps(model, tokenizer, group))

# %% evidence="owner"
for kind in ("pronoun", "name", "place", "quotation", "colour", "owner"):
    print(f"{kind:<10} right in", *(f"{found[kind].right:4.0%} of {found[kind].n_words:>3}" for found in groups))
for found in groups:
    assert min(found[kind].right for kind in ("pronoun", "name", "place", "quotation")) > 0.98
    assert max(found["colour"].right, found["owner"].right) < 0.9

# %% [markdown]
# It was not bad luck. The model repeats names, places and sayings almost without a mistake, but it is much worse in two cases: which *colour* a thing has, and who the *owner* of a thing is. [[owner]] A likely reason: to copy a word, it is enough to find it. Here a reader has to know which of two words belongs to a thing, and gifts can change the owner. A pure guess between two would be right in half of the cases.

# %% [markdown] tags=["note"]
# **Say.** Until now the model was finished. Now a smaller one learns while we watch, in a few seconds. Start the cell of the training first, and then ask the question.
#
# **Draw.** One step: eight pieces of text, a guess for each word, the loss, and an arrow that moves every parameter a little in the direction that lowers the loss. Lesson 11 builds this.
#
# **Ask.** Read the first text aloud, then the second: "What has it learned between them? What not yet?" The usual order is: common words, pairs of words, whole sentences, names that stay the same.
#
# **Usual answers.**
# - *Below the floor, if it trains long enough* (`below the floor`): No model gets there, except by luck on a few stories.
# - *It cannot pass the reader of one word back so soon* (`above one word back`): Pairs of words are quickly learned. Look where the curve crosses the line.
# - *It has seen these stories before* (from the room): The loss in the last line is measured on stories that it has not read.
#
# **Cut if short.** Nothing; this is what they will remember.

# %% [markdown] slide="slide"
# ## 5. Watch one learn
# Where did the model learn all this? A smaller one now learns before your eyes. In each step, also called an *update*, it reads eight pieces of text, guesses every next word, and each of its parameters is moved a little in the direction that would have made the guesses better. Lesson 11 builds this; here we only watch.

# %% slide="skip"
from tinylm_lib import TrainConfig, preset, train
from tinylm_lib.data import RandomWindows
from tinylm_lib.training import build_optimizer

recipe = TrainConfig(total_steps=90, batch_size=8, seq_len=128, matrix_lr=5e-3, precision="fp32")
read = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(1500, seed=0)))
starts = (read == line_end).nonzero()[:, 0]

# %%
_ = torch.manual_seed(0)
small = TransformerLM(preset("modern", vocab_size=V, d_model=64, n_layers=2, n_heads=4))
batches = RandomWindows(read, recipe.batch_size, recipe.seq_len, recipe.seed, starts=starts)
optimizer = build_optimizer(small, recipe)
texts, losses = {0: write(small, "One foggy afternoon, careful Carlos")}, []
for step in train(small, optimizer, batches, recipe):
    losses.append(step.loss.item())
    if len(losses) in (10, 30, 90):
        texts[len(losses)] = write(small, "One foggy afternoon, careful Carlos")

# %% tags=["nbval-ignore-output"]
show_text({f"after {n_steps} steps": f"{text[36:240]} ..." for n_steps, text in texts.items()})

# %% [markdown]
# (Your texts may differ, because small differences between processors add up in a training.) First come words that often follow each other, then whole sentences. What is still missing after 90 steps is memory: in this text names appear from nowhere.

# %% slide="skip"
small_loss = mean_loss(small)

# %% tags=["source-hidden"]
ranges = ["above one word back", "between one word back and the floor", "below the floor"]
predict(
    f"{recipe.total_steps} steps are done. What is the loss of the small model on new stories?",
    key=lambda: ranges[sum(small_loss < level for level in (readers.bigram, exact_loss))],
    because="It already predicts better than a reader of pairs of words. The rest takes longer: the shipped model was trained for thousands of steps.",
    choices={
        "above one word back": "Pairs of words are quickly learned. Look at the first steps of the curve.",
        "between one word back and the floor": "",
        "below the floor": "No model gets there, except by luck on a few stories: the floor is the loss of a reader who knows everything.",
    },
)

# %% slide="skip"
steps = list(range(1, len(losses) + 1))
smooth = []
for i in range(len(losses)):
    half = min(i, 2)
    near = losses[i - half : i + half + 1]
    smooth.append(sum(near) / len(near))

# %% tags=["source-hidden"]
fig, ax = plt.subplots(figsize=(10.6, 5.6), layout="constrained")
ax.plot(steps, losses, "-", color=figures.QUIET, linewidth=1.2)
ax.plot(steps, smooth, "-", color=figures.SERIES[0], linewidth=4)
for name, level in levels.items():
    ax.axhline(level, color=figures.QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
    ax.text(95, level, f"{name} {level:.2f}", va="center", size=18)
    passed = [(n, loss) for n, loss in zip(steps, smooth, strict=True) if loss < level][:1]
    ax.plot(*zip(*passed, strict=True) if passed else ([], []), "o", color=figures.SERIES[1], markersize=13)
ax.set(xscale="log", xlim=(0.9, 90), ylim=(0, 6.6))
ax.set_xticks([1, 2, 5, 10, 20, 50, 90], [1, 2, 5, 10, 20, 50, 90])
ax.minorticks_off()
ax.tick_params(labelsize=17)
ax.set_title("It learns to guess", size=24)
ax.set_xlabel("step, on a logarithmic scale", size=19)
ax.set_ylabel("loss in nats per token", size=19)
shown = [0, 4, 9, 19, 39, 59, 89]
figures.display(
    fig,
    alt="The loss of the small model falls from near 6 nats to less than 1.5 in 90 steps. It crosses the lines of the readers who know how common words are and one word back, and stays above the floor.",
    caption="Each dot marks the first step below a dotted line, the level of a reader who knows less. The way to the floor is longer. (Grey: single steps; blue: mean of five.)",
    table={"step": [steps[i] for i in shown], "loss, mean of five": [smooth[i] for i in shown]},
    digits=2,
)

# %% evidence="learns"
from tinylm_classroom import learned

print(f"the small model on new stories: {learned(small_loss, 1.2, 1.6)} nats per token")
print(f"perplexity: {learned(math.exp(small_loss), 3, 5)}, one word back {math.exp(readers.bigram):.1f}")
assert exact_loss < shipped_loss < small_loss < readers.bigram

# %% [markdown]
# In 90 steps the small model has become better than the reader who knows one word back. [[learns]] So it must use more than the last word. *What* it uses, the loss alone does not show. For that we have to change something and measure again, as in section 1.

# %% [markdown] tags=["note"]
# **Say.** A model is good where it was trained. What does it do elsewhere, and does it notice?
#
# **Draw.** The word *probability* with two arrows: "how sure the model is" and "how likely it is right". In the training world both are nearly the same.
#
# **Ask.** Before the prediction: "If you have no idea, what should you say?" A model that knew that it does not know would have the loss of knowing nothing.
#
# **Usual answers.**
# - *The same as on stories* (`about the same as on stories`): It relies on what came before, and that is misleading now.
# - *As high as if it knew nothing* (`about the same as knowing nothing`): Only if it noticed. It remains sure.
#
# **Cut if short.** The unknown word.

# %% [markdown] slide="slide" plan=80
# ## 6. Break it
# The model is excellent on stories. Now we give it the same words **in random order**. A model that knows nothing has a loss of $\ln V$, whatever comes.

# %% slide="skip"
from tinylm_lib.data import every_window

orders = [torch.randperm(len(fresh_ids), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
shuffled_losses = [evaluate(model, every_window(fresh_ids[order], 32, 127)).nats_per_token for order in orders]
shuffled = sum(shuffled_losses) / 3

# %% tags=["source-hidden"]
answers = {
    "about the same as on stories": "It relies on what came before, and that is misleading now.",
    "about the same as knowing nothing": "Only if it knew that it does not know. It remains sure.",
    "far higher than knowing nothing": "",
}
predict(
    "What is the shipped model's loss on the shuffled words?",
    key=lambda: list(answers)[(shuffled > 2) + (shuffled > 1.5 * math.log(V))],
    because="It is sure of its guesses, and a guess that is sure and wrong has the highest loss: hardly any probability is left for the word that really came.",
    choices=answers,
)


# %%
def first_choice(batches_read) -> float:
    """The probability of the most likely next token, on average."""
    found = []
    for x, y in batches_read:
        with torch.no_grad():
            tops = model(x).softmax(-1).amax(-1)  # (B, T)
        found.append(tops[y >= 0])
    return torch.cat(found).mean().item()


# %% evidence="shuffled"
three = ", ".join(f"{x:.0f}" for x in shuffled_losses)
print(f"loss: stories {shipped_loss:.1f}, shuffled in three ways {three}, knowing nothing {math.log(V):.1f} nats")
sure = first_choice(every_document(fresh_ids, line_end, 32))
still_sure = first_choice(every_window(fresh_ids[orders[0]], 32, 127))
print(f"its first choice has a probability of {sure:.2f} on stories, {still_sure:.2f} on shuffled words, on average")
assert min(shuffled_losses) > 2 * math.log(V) and still_sure > 0.8 * sure

# %% [markdown]
# On this text from outside its world the model is still sure of its first choice, but its loss is far above that of knowing nothing. [[shuffled]] So outside its world a probability says how sure the model is, and not whether it is right. You may have met something similar in a large model, when it stated something wrong with great confidence.

# %% [markdown] slide="subslide"
# And a word that it has never seen? It has no id, so the text cannot even be encoded:

# %%
try:
    write(model, "My dog Rex barked")
except ValueError as error:
    print(error)
for kind in ("name", "place", "thing", "colour"):
    print(f"{kind}s it knows: {', '.join(storyworld.CLASSES[kind][:6])} ...")

# %% [markdown]
# With these words you can write beginnings of your own and let the model continue them. Lesson 01 shows how a model can be made to read any text.

# %% [markdown] tags=["note"]
# **Say.** This is the whole machine on one page. Nobody has to understand the parts today; each has its lesson. Point at the top, where ids go in, and at the bottom, where scores come out.
#
# **Draw.** A stack of three boxes with one line through all of them. Each box adds something to the line, and nothing on the line is removed.
#
# **Ask.** Before the causal experiment: "If I change the last word, which guesses may change?" Before the table: "What could (1, 11, 128) mean?"
#
# **Usual answers.**
# - *Most parameters are in the attention* (`in the attention`): Attention is famous, but the feed-forward part is larger.
# - *In a norm, because it is everywhere* (`in a norm`): It has one number for each feature and no matrix.
# - *A model that translates is decoder-only* (from the room): Not if it has an encoder. T5 writes one token at a time, and still it has one.
#
# **Cut if short.** All of it. Lessons 02 to 10 build what is on this page.

# %% [markdown] slide="slide" plan=80
# ## 7. Look inside
# ### It never looks ahead
# Whatever is inside, one rule keeps the guess honest, in training and in writing: a guess may use **this token and those before it, but never a later one**. Does the model keep this rule? We change the last word and look at which guesses change.

# %% rows=["S2-1"]
a, b = (torch.tensor([tokenizer.encode(f"\nOne foggy afternoon, careful {name}")]) for name in ("Carlos", "Mia"))
with torch.no_grad():
    same = torch.isclose(model(a), model(b), atol=1e-4).all(-1)[0]  # (T)
for i, unchanged in zip(a[0].tolist(), same.tolist(), strict=True):
    print(f"the guess after {tokenizer.decode([i])!r:<12} is {'the same' if unchanged else 'another one'}")
assert same[:-1].all() and not same[-1]

# %% [markdown]
# Only the guess *after* the changed word is another one. One pair of names is not much evidence, so we change one word in three other stories, at an early, a middle and a late position.

# %% evidence="causal"
for line in storyworld.corpus(3, seed=11).splitlines():
    line_ids = torch.tensor([tokenizer.encode("\n" + line)])  # (B, T)
    for t in (5, 30, 70):
        replaced = line_ids.clone()
        replaced[0, t] = (line_ids[0, t] + 1) % tokenizer.vocab_size
        with torch.no_grad():
            difference = (model(line_ids) - model(replaced)).abs().amax(-1)[0]  # (T)
        assert difference[:t].max() < 1e-3
        assert difference[t] > 0.1 and difference[t + 1 :].max() > 0.1
print("3 stories, 3 positions each: no guess before the changed word differs, and some after it do")

# %% [markdown]
# A model whose guess never depends on what comes later is called **causal**. [[causal]]

# %% [markdown] slide="say"
# Two more terms are often confused. A model is **autoregressive** if it predicts one token at a time from all the tokens before it. A Transformer, the kind of model that we build, is **decoder-only** if all its layers are causal. Ours is both, and so are GPT-2 and Llama. T5 is only the first: it also writes one token at a time, but a second stack of layers, the *encoder*, reads its input without the causal rule (Raffel et al. 2020).

# %% [markdown] slide="subslide"
# ### The whole model on one page
# The model is a stack of three **blocks**. In each block there is an *attention*, which looks back at earlier words, and a *feed-forward* part, which works on each word by itself. Two *norms* bring their inputs to one size.

# %% slide="skip"
from tinylm_classroom import trace_model

block = model.blocks[0]

# %% tags=["source-hidden"]
parts = {"in the attention": "attention", "in the feed-forward (ffn)": "ffn", "in a norm": "attn_norm"}
predict(
    "Where are most of a block's parameters?",
    key=lambda: max(parts, key=lambda part: sum(p.numel() for p in block.get_submodule(parts[part]).parameters())),
    because="The feed-forward part makes each vector wider, works on it, and makes it narrow again, with three matrices.",
    choices={
        "in the attention": "Attention is famous, but it has fewer: four square matrices.",
        "in the feed-forward (ffn)": "",
        "in a norm": "A norm has one number for each feature of the vector, and no matrix.",
    },
)

# %%
for name in ("attn_norm", "attention", "ffn_norm", "ffn"):
    n = sum(p.numel() for p in block.get_submodule(name).parameters())
    print(f"{name:<10} {n:>7,}  {n / sum(p.numel() for p in block.parameters()):4.0%} of a block")

# %% [markdown] slide="subslide"
# Now everything between the ids and the scores, for two pieces of eleven tokens. Each part has the shape of what it really returned. One colour is one axis, here and in every lesson. *FLOPs* are floating-point operations: the multiplications and additions that a part needs.

# %%
two = fresh_ids[:22].view(2, 11)  # (B, T)
assert model(two).shape == (2, 11, 345)
trace_model(model, two, blocks=0)

# %% [markdown] slide="say"
# The same, with the first block opened:

# %% slide="skip" rows=["S1-1"]
trace_model(model, two, blocks=1)

# %% [markdown]
# Look at the shapes only. Nearly everything is $(B, T, C)$: a vector, that is a list of numbers, of width $C$ for every text and every position. Ids go in at the top and become vectors. Each block adds to them what it has found. At the end the vectors become $V$ scores for each position, and the scores become probabilities (lesson 03).

# %% [markdown] tags=["note"]
# **Say.** We have seen *that* the model uses the name when it writes *He*. How does it get there? A picture gives us an idea, and an experiment tells us whether the idea is right.
#
# **Draw.** Two sentences, one with Carlos and one with Mia, and one wire of each that is exchanged.
#
# **Ask.** Before the ablation: "What would you change to find out whether the model needs this head?" After it: "What does a 0 mean to the layers above?"
#
# **Usual answers.**
# - *Nothing is left without the head that looks at the name* (`below 0.1`): That would be so if the name could reach the last position only through this head.
# - *About one half, because there are two pronouns* (`between 0.1 and 0.6`): That would be a model that has lost the name completely.
# - *The head of the first layer decides the pronoun* (from the room): Without it no pronoun is expected at all. The exchange shows that it carries nothing about the name.
#
# **Cut if short.** All of it; lesson 07 removes heads, and lesson 10 exchanges whole vectors.

# %% [markdown] slide="slide" plan=110
# ## 8. For engineers
# ### A picture is a clue
# After *…came to Hillcrest.* the model is sure that *He* must follow. Inside it there are **heads**, four in each of the three blocks (also called *layers*; layers and heads are counted from 0), which look back at earlier words, each in its own way. How a head divides its attention among the words is a list of probabilities, and it can be drawn.

# %% slide="skip"
import copy

from tinylm_classroom import capture

clue_ids = torch.tensor([tokenizer.encode("\nOne foggy afternoon, careful Carlos came to Hillcrest.")])  # (B, T)
looks = capture(model, clue_ids)
last_rows = torch.cat([looks.attention(layer).weights[0, :, -1] for layer in range(3)])  # (12, T)
head_names = [f"layer {layer}, head {head}" for layer in range(3) for head in range(4)]

# %% tags=["source-hidden"] slide="subslide"
clue_words = [tokenizer.decode([i]).strip() or "line end" for i in clue_ids[0].tolist()]
fig, ax = plt.subplots(figsize=(10.6, 6.2), layout="constrained")
ax.imshow(last_rows, cmap=figures.HEAT, vmin=0, vmax=1, aspect="auto")
ax.set_xticks(range(len(clue_words)), clue_words, rotation=30, ha="right", rotation_mode="anchor", size=18)
ax.set_yticks(range(12), head_names, size=17)
ax.set_title("Where each head looks, just before He", size=24)
ax.set_xlabel("earlier word", size=18)
ax.set_ylabel("head", size=18)
figures.unframed(ax)
ax.grid(visible=False)
figures.display(
    fig,
    alt="Twelve rows, one for each head, and eleven columns, one for each word of the sentence. Head 2 of layer 2 is dark at Carlos, head 2 of layer 0 is dark at One.",
    caption="Darker: more attention. Which head would you suspect of finding the name?",
    table={"head": head_names, **{f"{i} {word}": last_rows[:, i].tolist() for i, word in enumerate(clue_words)}},
    digits=1,
)

# %% [markdown]
# Two heads of the last layer look at *Carlos*, and head 2 gives him nearly all of its attention. Nobody has programmed it to look for names. It is tempting to conclude that the model writes *He* because of this head. But the picture shows only where a head looks, and not whether the prediction depends on it.

# %% [markdown] slide="subslide"
# To find out, we have to change something. We put all names of StoryWorld into three sentences, and ask for the probability of the right pronoun.

# %% slide="skip"
frames = [
    ("One foggy afternoon, careful", " came to Hillcrest."),
    ("One sunny morning, shy", " walked to Ashford."),
    ("One cold evening, brave", " hurried to Seaview."),
]
all_names = list(exact_probs(frames[0][0]))
openings = [first + name + rest for first, rest in frames for name in all_names]
opening_ids = torch.tensor([tokenizer.encode("\n" + opening) for opening in openings])  # (N, T)
pronouns = [next(iter(exact_probs(opening))) for opening in openings]
she = torch.tensor([pronoun == " She" for pronoun in pronouns])  # (N)


# %%
def pronoun_probs(reader: TransformerLM) -> tuple[torch.Tensor, torch.Tensor]:
    """For each sentence the probability of its right pronoun, and of either pronoun."""
    with torch.no_grad():
        probs = next_token_probs(reader(opening_ids)[:, -1])  # (N, V)
    is_she, is_he = probs[:, tokenizer.ids[" She"]], probs[:, tokenizer.ids[" He"]]  # (N)
    return torch.where(she, is_she, is_he), is_she + is_he


# %%
intact, _ = pronoun_probs(model)
print(f"{len(openings)} sentences: {openings[0]}{pronouns[0]} ... {openings[-1]}{pronouns[-1]} ...")
print(f"the right pronoun: {intact.mean():.2f} on average, {intact.min():.2f} at least")
assert intact.min() > 0.99

# %% [markdown] slide="subslide"
# ### Silence a head
# What the heads of a layer have found goes through one matrix, `o_proj`, in which each head has its own columns. If we set the columns of one head to 0, nothing of it reaches the rest of the model. To remove a part and measure what changes is called an **ablation** (for heads: Michel et al. 2019).


# %%
def without_head(layer: int, head: int) -> TransformerLM:
    """A copy of the model in which one head is silenced."""
    silenced = copy.deepcopy(model)
    D = model.config.d_head
    with torch.no_grad():
        silenced.blocks[layer].attention.o_proj.weight[:, head * D : (head + 1) * D] = 0  # (C, D)
    return silenced


# %% slide="skip"
left, _ = pronoun_probs(without_head(2, 2))

# %% tags=["source-hidden"]
kept_ranges = ["below 0.1", "between 0.1 and 0.6", "above 0.6"]
predict(
    "We silence the head that looks most at the name (layer 2, head 2). The right pronoun had a probability of 1.00. What is left of it, on average?",
    key=lambda: kept_ranges[sum(left.mean().item() > bound for bound in (0.1, 0.6))],
    because="With this head silent every girl still gets `She`, and many boys get `He`.",
    choices={
        "below 0.1": "That would be so if the name could reach the last position only through this head.",
        "between 0.1 and 0.6": "A model that knew only that a pronoun must come, but not which, would have about one half.",
        "above 0.6": "",
    },
)

# %%
print("the probability of the right pronoun without one head, on average")
for layer in range(model.config.n_layers):
    means = [pronoun_probs(without_head(layer, head))[0].mean().item() for head in range(model.config.n_heads)]
    print(f"layer {layer}:", "  ".join(f"head {head} {mean:.2f}" for head, mean in enumerate(means)))
    assert all(mean > 0.98 for head, mean in enumerate(means) if (layer, head) not in ((2, 2), (0, 2)))

# %% [markdown] slide="subslide"
# Silencing any one of ten heads changes almost nothing here, and head 3 of layer 2, which looks at the name as well, is one of them. Head 2 of layer 2 matters a little, and a head in the *first* layer seems to matter far more. Where do these two look, and what is left without them?

# %% evidence="heads-silenced"
caught = capture(model, opening_ids)
for layer, head in ((2, 2), (0, 2)):
    row = caught.attention(layer).weights[:, head, -1].mean(0)  # (T)
    print(f"layer {layer}, head {head} looks at the name {row[6]:.0%}, at the first word {row[1]:.0%}")
    right, either = pronoun_probs(without_head(layer, head))
    print(f"  silenced: She {right[she].mean():.2f}, He {right[~she].mean():.2f}, either {either.mean():.2f}")
    by_frame = right.view(3, 40).mean(-1)  # the mean of each of the three sentences
    if layer == 2:
        assert row[6] > 0.9 and by_frame.min() > 0.6 and either.mean() > 0.98
    else:
        assert row[1] > 0.9 and row[6] < 0.1 and by_frame.max() < 0.1 and either.mean() < 0.1

# %% [markdown]
# Without head 2 of layer 2 a pronoun still follows, and most of the pronouns are right. Without the head in the first layer the model no longer expects any pronoun, although this head looks at *One*, the first word of every story. [[heads-silenced]]

# %% [markdown] slide="subslide"
# ### Exchange what a head says
# Does that head in the first layer find out something about the name? Be careful: the later layers have never met a 0 there. A milder change is an **exchange**, also called *activation patching* (Vig et al. 2020): in every sentence the head gets the output that it has in another one. If a head carries what is known about the name, the pronoun follows the *other* sentence.


# %%
def exchanged_head(layer: int, head: int, other: torch.Tensor) -> TransformerLM:
    """A copy of the model in which sentence i gets the output of one head from sentence other[i]. other (N)."""
    patched = copy.deepcopy(model)
    D = model.config.d_head

    def exchange(_, inputs):
        outputs = inputs[0].clone()  # (N, T, C)
        outputs[..., head * D : (head + 1) * D] = inputs[0][other, :, head * D : (head + 1) * D]
        return (outputs,)

    patched.blocks[layer].attention.o_proj.register_forward_pre_hook(exchange)
    return patched


# %% slide="skip"
other_pronoun = torch.arange(120).roll(60)  # another of the three sentences, and a name with the other pronoun
same_name = torch.arange(120).roll(40)  # another of the three sentences, and the same name
assert (she[other_pronoun] != she).all() and (she[same_name] == she).all()

# %% evidence="heads-exchanged"
for what, other in (("a name with the other pronoun", other_pronoun), ("the same name", same_name)):
    print(f"the right pronoun, if one head has its output from another sentence with {what}")
    for layer in range(model.config.n_layers):
        exchanged = [pronoun_probs(exchanged_head(layer, head, other))[0] for head in range(model.config.n_heads)]
        print(f"layer {layer}:", "  ".join(f"head {head} {x.mean():.2f}" for head, x in enumerate(exchanged)))
        for head, x in enumerate(exchanged):
            follows = what != "the same name" and (layer, head) == (2, 2)
            assert x.mean() < 0.05 if follows else x.mean() > 0.98
assert pronoun_probs(exchanged_head(2, 2, other_pronoun))[1].min() > 0.98  # the other pronoun replaces it

# %% [markdown]
# Now the two heads change roles. If head 2 of layer 2 gets its output from a sentence with a name of the other pronoun, *He* becomes *She*, and *She* becomes *He*. With the same name in another sentence nothing changes. So this head brings to the last position which pronoun the name takes. While it works, exchanging any other head changes nothing. Exchanging the output of the head in the first layer changes nothing here, as can be expected of a head that looks at *One* in every sentence. The later layers seem to rely on its being there, and the 0 took it away. [[heads-exchanged]]

# %% [markdown] slide="say"
# A picture of attention is a clue, not a proof (Jain and Wallace 2019). Here two heads look at the name, and tests of one head at a time show a use for only one of them. Whether head 3 is a reserve for head 2, such tests cannot show. An experiment answers only its own question, too: *can the model do without this output?* and *what does this output carry?* have different answers.

# %% [markdown] slide="subslide"
# ### Where is the rest of the loss?
# In section 4 the model was slightly above the exact reader. At every word we can compare its distribution with the exact one, and add up the differences for each kind of word. (Each is a *Kullback-Leibler divergence*, in nats.)


# %%
def part_of_loss(found: dict, kind: str) -> float:
    """The nats lost above the exact loss on words of one kind, as a fraction of all that is lost."""
    return found[kind].nats * found[kind].n_words / (found["all"].nats * found["all"].n_words)


# %% evidence="owner-loss"
for kind in ("owner", "colour", "other"):
    print(f"{kind:<10} part of what is lost", *(f"{part_of_loss(found, kind):4.0%}" for found in groups))
for found in groups:
    assert part_of_loss(found, "owner") > 0.5
    assert sum(part_of_loss(found, kind) for kind in ("owner", "colour", "other")) > 0.97

# %% [markdown]
# More than half of what the model loses, it loses on the *owner* words, as in the slip of section 1. [[owner-loss]] Some of the rest it loses on colours that it has to recall, and some on the words called *other*, which the earlier words do not determine.

# %% [markdown] tags=["note"]
# **Say.** Each lesson asks one question, answers it at a size that you can check by hand, and lets you write the general form. Then it shows that the library's version is equal to yours.
#
# **Draw.** The threads of section 1 once more, and below them the list of lessons: each of them explains a piece of how a thread comes about.
#
# **Ask.** "Which lesson are you most curious about?"
#
# **Usual answers.**
# - *Attention* (from the room): It is lesson 05, and it needs the four before it.
# - *Do I need a large computer?* (from the room): No. Everything runs on two cores without a network.
#
# **Cut if short.** The map; students see it when they open their copy.

# %% [markdown] slide="slide"
# ## How the series works
# | lesson | you build |
# |---|---|
# | 01 tokens, 02 linear, 03 softmax, 04 normalization | the small parts |
# | 05 attention, 06 positions, 07 heads, 08 feedforward, 09 block, 10 model | the model, piece by piece |
# | 11 training, 12 sampling, 13 cache, 14 speed, 15 scale | what makes it learn, write, and do both fast |
# | 16 inside, 17 rewards, 18 pretrained, 19 clinic, 20 yours | what it knows, what it can be taught, published models, faults, and a model of your own |
#
# Later lessons import what you have built. You work on copies in the folder `work/`: nothing that you have changed is ever overwritten, and when a lesson has been improved, the new one is put next to yours. This is your map:

# %% slide="skip"
from tinylm_classroom import progress

# %% rows=["S0-3", "S4-1"]
progress()

# %% [markdown] tags=["note"]
# **Say.** A program that does nothing but guess the next word can write a story, remember a saying, and still not know who has the ring. The last three points are from sections 6, 7 and 8; leave out those that you did not teach.
#
# **Draw.** Nothing. Show the picture of section 1 once more.
#
# **Ask.** At the door: "What does the loss measure, and what does it not show?"
#
# **Usual answers.**
# - *How good the text is* (from the room): It measures how much probability the model gave to the words that came.
# - *How the model works* (from the room): For that we had to change a word and measure again.
#
# **Cut if short.** The list; students read it.

# %% [markdown] slide="slide"
# ## What you have now
# - A language model is a function from a text to a probability for every possible next token. The probabilities sum to 1. [[distribution]]
# - To write, a program chooses a token by these probabilities, appends it to the text, and asks the model again. [[greedy-library]]
# - To find out what a program uses, change something and measure again. The shipped model uses earlier names, places and sayings, and it repeats them almost without a mistake. [[threads]] It is much worse at what belongs to what. [[owner]]
# - The loss of a word is $-\ln p$, where $p$ is the probability that the model gave to the word that came. In StoryWorld the lowest possible mean loss is known, and the shipped model is close to it. [[paired]]
# - A small model learned in a few steps to predict better than the best reader who knows only the word before. [[learns]]
# - On the words of stories in random order the shipped model is still sure of its first choice, and its loss is far above $\ln V$. [[shuffled]]
# - The model is causal: a prediction depends on earlier tokens and not on later ones. [[causal]]
# - For engineers: an attention map shows where a head looks. To silence a head and to exchange its output answer two different questions. [[heads-silenced]] [[heads-exchanged]]
#
# Next, lesson 01: how a text becomes numbers.

# %% [markdown]
# ## Sources
# - The text: StoryWorld, in `tinylm_lib/storyworld/stories.py`.
# - People who guess letters, as a measure of a language: Shannon 1951, [*Prediction and Entropy of Printed English*](https://doi.org/10.1002/j.1538-7305.1951.tb01366.x).
# - The model: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), with the changes that lessons 04 to 09 explain.
# - Decoder-only models that write: Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf). T5, with an encoder and a decoder: Raffel et al. 2020, [*Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*](https://arxiv.org/abs/1910.10683).
# - Heads removed: Michel et al. 2019, [*Are Sixteen Heads Really Better than One?*](https://arxiv.org/abs/1905.10650) Outputs exchanged: Vig et al. 2020, [*Investigating Gender Bias in Language Models Using Causal Mediation Analysis*](https://arxiv.org/abs/2004.12265).
# - What a map of attention does not show: Jain and Wallace 2019, [*Attention is not Explanation*](https://arxiv.org/abs/1902.10186).
