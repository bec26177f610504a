# %% [markdown] slide="slide"
# # 12 Sampling
# **How does a list of probabilities become a text?**
#
# *Needs* lessons 03, 10 and 11. *Builds* the rules of `probabilities.py` and the beam search of `sampling.py`. *Runs* in about 35 s on two cores.
# *Teaches* in about 53 minutes, plus 40 of exercises.

# %%
import math
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import torch

from tinylm_lib import TransformerLM, generate, next_token_loss, next_token_probs, preset, sampling, storyworld, stream
from tinylm_lib.classroom import check, figures, hint, keep, predict, sampling_view, show
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.probabilities import sample
from tinylm_lib.storyworld import CLASSES, DIFFERENT, Scene, options, words

_ = torch.manual_seed(12)
_ = torch.set_grad_enabled(False)  # nothing is trained here


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# %% [markdown] slide="slide"
# ## 1. Which of them?
# A trained model reads a text and gives each word of its vocabulary a score. Which one do we write? Here is the beginning of a story, and what the shipped model thinks of its next word:

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
line_end = tokenizer.encode("\n")
told = storyworld.story(seeded(12)).text
begun = told[: told.index('."') + 2] + " Then"
print(begun)


# %% rows=["S2-11"]
def scores_after(text: str) -> torch.Tensor:
    return model(torch.tensor([tokenizer.encode("\n" + text)]))[0, -1]


logits = scores_after(begun)  # (V)
probs = logits.exp() / logits.exp().sum()  # (V)
torch.testing.assert_close(probs, next_token_probs(logits[None])[0])
for token in logits.topk(5).indices.tolist():
    print(f"{tokenizer.decode([token]):>8}: logit {logits[token]:5.1f}, probability {probs[token]:.4f}")

# %% [markdown]
# The scores are **logits**: any size, any sign. Softmax makes probabilities of them (lesson 03): none below 0, and they sum to 1. A story may go on in three ways here: they trade, Kira gives, or Noah does.
#
# The first answer is to take the largest. That is **greedy** decoding, and it writes *they* here every time: no story of ours would ever hold a gift at this place. The second is to **sample**: draw a word, each as often as its probability says. By hand: lay the probabilities side by side on a line from 0 to 1, and throw a dart.

# %% tags=["source-hidden"]
pieces = {word: probs[tokenizer.ids[f" {word}"]].item() for word in ("they", "Kira", "Noah")}
begins = [0.0, *torch.tensor(list(pieces.values())).cumsum(0).tolist()]
with figures.axes("A dart draws a word", "probability, added up", "words", (9.6, 3.2)) as (figure, ax):
    for word, begin, hue in zip(pieces, begins[:3], figures.SERIES[:3], strict=True):
        ax.barh(0, pieces[word], 0.8, begin, color=hue, edgecolor="white", linewidth=2)
        ax.text(begin + pieces[word] / 2, 0, word, ha="center", va="center", color="white", weight="bold")
    ax.barh(0, 1 - begins[3], 0.8, begins[3], color=figures.QUIET)
    figures.arrow(ax, (0.8, 1.15), (0.8, 0.42), width=3)
    ax.text(0.785, 0.95, "a dart at 0.8", ha="right", va="center")
    ax.annotate("others", (0.9975, 0.42), (0.9975, 0.95), color=figures.QUIET, ha="right", va="center")
    ax.set(xlim=(0, 1), ylim=(-0.5, 1.2), xticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.yaxis.set_visible(False)
figures.display(
    figure,
    alt="A bar from 0 to 1, cut into they, Kira, Noah and a thin rest. An arrow comes down at 0.8, on Kira.",
    caption="Each word owns a piece as long as its probability. The dart at 0.8 falls on Kira's.",
    table={"word": [*pieces, "others"], "from": begins, "to": [*begins[1:], 1.0]},
)

# %%
named = [" they", " Kira", " Noah"]
chosen = [tokenizer.ids[word] for word in named]
ends = probs[chosen].cumsum(0)  # where each piece ends
darts = torch.searchsorted(ends, torch.rand(1000, generator=seeded(12)))
print("1000 darts:", {word.strip(): int((darts == i).sum()) for i, word in enumerate([*named, " others"])})

# %% [markdown]
# The library's `sample` draws one word for each row of a batch, by other arithmetic. Section 3 tests that it comes to the same.

# %% [markdown] tags=["note"]
# Ask: what would a story look like in which every word is the likeliest one? Section 5 shows it. The common wrong answer: the best story. (Section 6 shows that a search finds what the model overrates.) With less time, cut the judging of the cuts in section 2 and the table model in section 5.

# %% [markdown] slide="slide"
# ## 2. One dial and three cuts
# Greedy is dull, and a draw may hit a word that fits nothing: the *others* above are words like *Victor*, whom nobody has met. Each is rare, but there are hundreds of them. What can be done?
#
# - **Temperature** divides the logits before softmax. Below 1 the likely words gain, above 1 the rare ones do (lesson 03). Temperature 0 means greedy.
# - **Top-k** keeps the k most probable words.
# - **Top-p** goes down from the most probable word and adds up, until the sum reaches p. The word that crosses p stays.
# - **Min-p** keeps each word with at least min-p times the probability of the best one.
#
# A cut word has probability 0, and the others are divided by their sum, so that they sum to 1 again. By hand, for four words:

# %%
four = torch.tensor([0.5, 0.3, 0.15, 0.05])
kept = four * torch.tensor([1, 1, 0, 0])
print("top-k 2:  ", kept / kept.sum())
print("sums for top-p:", four.cumsum(0), " limit of min-p 0.2:", 0.2 * four[0])

# %% tags=["source-hidden"]
predict(
    "How many of the four words stay with top-p 0.6?",
    key=lambda: int((next_token_probs(four.log()[None], top_p=0.6) > 0).sum()),
    number="words",
    within=0,
    feedback={
        1: "The best alone has 0.5, and that does not reach 0.6 yet. The word that crosses stays.",
        3: "Two words have 0.8 already.",
    },
    because="0.5 does not reach 0.6. With the second word it is 0.8: that one crosses, and stays.",
)

# %% [markdown]
# `next_token_probs` has all four, in this order, each applied to what the last one left. Other libraries use other orders. The order matters: here a cut before the temperature leaves fewer of the four words than a cut after it.

# %% evidence="one-order"
step = next_token_probs(logits[None], temperature=1.5)  # (1, V)
for rule in ({"top_k": 8}, {"top_p": 0.95}, {"min_p": 0.1}):
    step = next_token_probs(step.log(), **rule)
together = next_token_probs(logits[None], temperature=1.5, top_k=8, top_p=0.95, min_p=0.1)
torch.testing.assert_close(step, together)
print("One after the other or all at once, it is the same, and three words are left:")
print({word.strip(): round(p, 3) for word, p in zip(named, together[0, chosen].tolist(), strict=True)})
heat_then_cut = next_token_probs(four.log()[None], temperature=2, top_p=0.8)
cut_then_heat = next_token_probs(next_token_probs(four.log()[None], top_p=0.8).log(), temperature=2)
assert ((heat_then_cut > 0).sum(), (cut_then_heat > 0).sum()) == (3, 2)
print("of the four words, temperature 2 and then top-p 0.8 leave 3, the other order leaves 2")

# %% [markdown]
# Move the sliders. Make it hot first, and see who comes in; then find a cut that throws them out again.

# %%
sampling_view(model, tokenizer, "\n" + begun, seed=12)

# %% [markdown]
# ### Which cut?
# That depends on the place. After *Then* three words are possible, and after *brave* each of 40 names, all equally likely. How many words stay?

# %%
wide = scores_after("One rainy day, brave")  # (V)
cuts = {"no cut": {}, "top-k 5": {"top_k": 5}, "top-p 0.9": {"top_p": 0.9}, "min-p 0.1": {"min_p": 0.1}}
for name, cut in cuts.items():
    then, brave = ((next_token_probs(x[None], **cut) > 0).sum().item() for x in (logits, wide))
    print(f"{name:<10} after Then {then:>3}, after brave {brave:>3}")

# %% [markdown]
# Top-k keeps too many here and too few there. The other two follow what the model knows, and top-p loses a tenth of the names.
# Which is best in the long run? StoryWorld knows which words are possible at every place of a story, and how probable each is. We count how much of the drawing falls on impossible words (*wrong*), and how often the rule forbids the word that a true story would have said (*lost*).


# %%
def possible(text: str) -> torch.Tensor:
    """The exact probability of each next word, at each word of a story."""
    reader, rows = storyworld.Reader(), []
    for word in words(text):
        rows.append(torch.zeros(len(logits)))
        for candidate, p in reader.next_word_probs().items():
            rows[-1][tokenizer.ids[candidate]] = p
        reader.read(word)
    return torch.stack(rows)


# %% evidence="cuts-judged"
source = seeded(12)
stories = [storyworld.story(source).text + "\n" for _ in range(20)]
exact = torch.cat([possible(text) for text in stories])
read = [tokenizer.encode("\n" + text)[:-1] for text in stories]  # behind the last token no word is to be drawn
scores = torch.cat([model(torch.tensor([ids]))[0] for ids in read])
assert scores.shape == exact.shape
wrong = {}
for name, cut in cuts.items():
    shown = []
    for t in (1, 2):
        drawn_from = next_token_probs(scores, temperature=t, **cut)
        wrong[name, t] = (drawn_from[exact == 0].sum() / len(exact)).item()
        lost = exact[drawn_from == 0].sum() / len(exact)
        shown.append(f"temperature {t}: {wrong[name, t]:.1%} wrong, {lost:3.0%} lost")
    print(f"{name:<10}", "; ".join(shown))
assert min(wrong[name, 1] for name in cuts) > 0.85 * wrong["no cut", 1]
assert max(wrong[name, 2] for name in cuts if name != "no cut") < 0.5 * wrong["no cut", 2]
assert wrong["min-p 0.1", 2] < 1.1 * wrong["no cut", 1]

# %% [markdown]
# At temperature 1 a cut helps little. Most of what is wrong there falls on words that are at least a tenth as probable as the best one, because min-p keeps it: a likely word takes the position of another, and no cut sees that. What a cut removes is the tail, and a high temperature makes the tail large. At 2, min-p brings the wrong words back to what they were at 1, and loses next to nothing. With another model or another text another cut may win, so measure.

# %% [markdown] slide="slide"
# ## 3. Is it drawn right?
# A sampler with a mistake still writes texts, and they look fine. How would you notice? Not by reading one. **Count**, and compare with the probabilities.


# %% tags=["source-hidden"]
expected = 10_000 * probs[chosen[1]].item()
predict(
    f"We draw 10,000 words and expect {expected:,.0f} times Kira. How far off will the count be, typically?",
    key=lambda: f"about {round(expected**0.5, -1):.0f}",
    choices={
        "not at all": "Chance does not keep books.",
        "about 40": "",
        "about 400": "That would be a quarter of them. Chance evens out more than that.",
    },
    because="A count of n wavers by about the root of n, or less.",
)


# %%
def kinds(probs: torch.Tensor) -> torch.Tensor:
    """The shares of they, Kira, Noah and all others, (4)."""
    three = probs[chosen]  # (3)
    return torch.cat((three, 1 - three.sum(0, keepdim=True)))


def distance(shares: torch.Tensor, n: int, seed: int) -> torch.Tensor:
    """How far n draws from `shares` are off what we expect, in roots of the expected count."""
    counted = torch.bincount(sample(shares.expand(n, -1), seeded(seed)), minlength=4)
    hoped = n * kinds(probs)  # (4)
    return (counted - hoped) / hoped.sqrt()


# %%
right, cold = kinds(probs), kinds(next_token_probs(logits[None], temperature=0.9)[0])
for name, shares in (("right", right), ("cold", cold)):
    print(f"{name:<6} off by", [f"{roots:.1f}" for roots in distance(shares, 10_000, seed=12).tolist()])

# %% [markdown]
# The second line comes from a temperature of 0.9 that somebody forgot in the code. Each distance is given in **roots of the expected count**. Where all is right, it is seldom beyond 3. So let us raise an alarm beyond 3, and try 20 seeds:


# %% evidence="counted"
def alarms(shares: torch.Tensor, n: int) -> int:
    return sum(int(distance(shares, n, seed).abs().max() > 3) for seed in range(20))


for n in (100, 1000, 10_000, 100_000):
    print(f"{n:>7,} draws, alarms: {alarms(right, n):>2} where all is right, {alarms(cold, n):>2} at 0.9")
    assert alarms(right, n) <= 2
assert alarms(cold, 10_000) > 15

# %% [markdown]
# What is right stays near what is expected, and what is wrong moves away from it: the more draws, the smaller the mistakes that are found. A single alarm proves nothing: draw again with another seed. Two things need no statistics: a cut word must never be drawn, and at temperature 0 all draws are equal.

# %%
only_three = next_token_probs(logits[None], top_k=3)
drawn_words = sample(only_three.expand(10_000, -1), seeded(12))
assert set(drawn_words.tolist()) == set(chosen)
assert len(sample(next_token_probs(logits[None], temperature=0).expand(1000, -1)).unique()) == 1

# %% [markdown] slide="slide"
# ## 4. From words to a text
# A word is drawn. How does a text come of it? Append it, and ask again.


# %%
def write(model, ids: torch.Tensor, n: int, generator=None, **options) -> torch.Tensor:
    for _ in range(n):
        probs = next_token_probs(model(ids)[:, -1], **options)
        new = sample(probs, generator)
        ids = torch.cat((ids, new[:, None]), dim=1)
    return ids


# %% rows=["S4-39"] evidence="same-seed"
start = torch.tensor([tokenizer.encode("\nOne sunny")])  # (1, T)
written = write(model, start, 12, seeded(12))
assert torch.equal(written, generate(model, start, 12, generator=seeded(12)))
print(tokenizer.decode(written[0].tolist()).strip())

# %% [markdown]
# Training looks different (lesson 11):
# 1. There, one pass scores *every* place of a finished text. Here, each word needs a pass of its own. (Lesson 13 makes these passes short.)
# 2. There, the model always reads the true words. Here it reads **its own**, mistakes included.
# 3. There, nothing is drawn: the loss takes the probability of what came. Here a rule chooses.
# 4. There, the length of each text is known beforehand. Here a text ends at a stop token or at a limit.
#
# ### When does it stop?
# At a **stop token**; here that is the line end. In a batch one text ends before the other, and is filled up with `pad_id`. So `generate` returns (B, T + n), where n is *at most* what you asked for.

# %% rows=["S4-38", "S4-41"] evidence="stops"
ids = torch.tensor([tokenizer.encode("\nOne sunny")] * 3)
rules = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}
out = generate(model, ids, 120, stop_ids=line_end, pad_id=line_end[0], generator=seeded(12), **rules)
ended = [row.index(line_end[0], 1) for row in out.tolist()]
print(f"asked for up to {ids.shape[1] + 120}, got {tuple(out.shape)}; the texts end at {ended}")
assert out.shape[1] == max(ended) + 1 and torch.equal(out[:, : ids.shape[1]], ids)

# %% [markdown]
# A published course note writes the greedy loop down in four lines, and calls it deterministic. It is, once the model is in `eval()` mode: in training mode dropout, where the model has it, drops other features at each call.

# %% rows=["S4-40"] evidence="dropout-off"
toy = TransformerLM(preset("tiny_transformer", "tiny", max_seq_len=16))
ids = torch.randint(500, (1, 8))
for mode in (True, False):
    toy.train(mode)
    texts = {str(write(toy, ids, 8, temperature=0)) for _ in range(4)}
    assert (len(texts) == 1) == (not mode)
    print(f"training mode {mode}: do 4 runs agree? {len(texts) == 1}")

# %% [markdown]
# The library's `generate` sets evaluation mode itself, and gives the mode back. And the model's limit? There our loop fails, and its words are lost. `generate` *slides*: it reads the last 16 tokens only, and forgets what was before. Or it stops there, or refuses before it begins:

# %% evidence="context-limit"
for overflow in ("slide", "stop"):
    out = generate(toy, ids, 20, overflow=overflow)
    assert out.shape[1] == (16 if overflow == "stop" else ids.shape[1] + 20)
    print(f"{overflow}: asked for {ids.shape[1]} + 20 tokens, got {out.shape[1]}")
for name, run in {
    "error": lambda: generate(toy, ids, 20, overflow="error"),
    "our loop": lambda: write(toy, ids, 20),
}.items():
    try:
        run()
    except ValueError as error:
        print(f"{name}: {error}")

# %% [markdown]
# ### While it writes
# Nobody wants to wait for the last word. `stream` takes the same options and yields each word as soon as it is there:

# %%
for new in stream(model, start, 24, generator=seeded(3)):
    print(tokenizer.decode(new.tolist()), end="")

# %% [markdown]
# ### The same again?
# A `torch.Generator` with a **seed** draws the same numbers each time: `write` and `generate` above, both with seed 12, wrote the same text. `torch.manual_seed` would do so, too, but for everything in the program: the dropout and the shuffling of whoever runs next.

# %% tags=["source-hidden"]
batches = [generate(model, start.repeat(n, 1), 8, generator=seeded(12)) for n in (1, 2)]
predict(
    "One seed, two runs: a batch of one text, and a batch of two with the same beginning. Is the first text the same in both?",
    key=lambda: "yes" if torch.equal(batches[0][0], batches[1][0]) else "no",
    choices={"yes": "The numbers are the same. But who gets the second one?", "no": ""},
    because="All texts of a batch draw from one source by turns.",
)

# %%
for written in batches:
    print(f"batch of {len(written)}:", " / ".join(tokenizer.decode(row).strip() for row in written.tolist()))

# %% [markdown]
# A seed repeats a *run*, with the same model, options and batch, and not a text.

# %% [markdown] slide="slide"
# ## 5. Why does it repeat itself?
# Take the simplest model of all: a table of which word follows which (lesson 00). Let it write greedily.

# %%
follows = defaultdict(Counter)
for a, b in pairwise(tokenizer.encode(storyworld.corpus(2000, seed=12))):
    follows[a][b] += 1
path = tokenizer.encode("\nOne")
for _ in range(30):
    path.append(follows[path[-1]].most_common(1)[0][0])
print(tokenizer.decode(path).strip())

# %% [markdown]
# It must. Each word decides the next, and sooner or later a word comes a second time; from there on all comes again. A model that looks back further is caught only by a longer repeat. But asked nearly alike, it answers nearly alike. After a line end the shipped model begins a new story, as in training, and what it told before counts for little. (And what is more than 128 tokens back it cannot even see.) We let it write on, story after story, and count how many runs of four words are new:


# %%
def variety(text: str) -> float:
    said = words(text)
    runs = [tuple(said[i : i + 4]) for i in range(len(said) - 3)]
    return len(set(runs)) / len(runs)


# %% evidence="greedy-repeats"
print(f"the model reads the last {model.config.max_seq_len} tokens")
new_part = {}
for temperature in (0, 1):
    out = generate(model, torch.tensor([line_end]), 300, temperature=temperature, generator=seeded(12))
    text = tokenizer.decode(out[0].tolist()).strip()
    new_part[temperature] = variety(text)
    print(f"temperature {temperature}: {new_part[temperature]:.0%} of the runs are new. Openings:")
    for line in text.split("\n")[:3]:
        print("   ", line[:66])
assert new_part[0] < 0.85 < new_part[1]

# %% [markdown]
# Over several stories, greedy decoding reuses many phrases of its earlier stories, and drawing reuses fewer. (Even when we draw, some runs come back, because a story names its people and things more than once.)
#
# The usual remedy in greedy writing is a **repetition penalty**: divide the logit of each word that was said already by 1.2, say (Keskar et al. 2019; a logit below 0 is multiplied, or it would rise), or subtract something from it. But either gift of section 1 begins with a name that was said already:

# %%
said = torch.tensor(tokenizer.encode(begun)).unique()
for penalty in (1, 1.2):
    lower = torch.where(logits[said] > 0, logits[said] / penalty, logits[said] * penalty)
    punished = logits.index_copy(0, said, lower).softmax(-1)
    print(f"penalty {penalty}: Kira or Noah goes on with {punished[chosen[1:]].sum():.2f}")

# %% [markdown] slide="slide"
# ## 6. Looking ahead: beam search
# Greedy takes the best next word. Does that lead to the most probable *text*? By hand, two words:

# %%
first = {"red": 0.6, "old": 0.4}
second = {"red": {"kite": 0.4, "hat": 0.3, "cup": 0.3}, "old": {"kite": 0.9, "hat": 0.05, "cup": 0.05}}
for a, p in first.items():
    for b, q in second[a].items():
        print(f"{a} {b}: {p * q:.2f}", end="   ")

# %% [markdown]
# Greedy begins with *red* and ends at 0.24. *Old kite* has 0.36: a worse beginning with a better end. **Beam search** keeps several beginnings, the *beams*. At each step every beam grows by every word, and the best few of all that grew go on. It multiplies the work by the number of beams. And since probabilities of long texts become tiny, it adds their logarithms.
#
# ### Long against short
# Each word multiplies by less than 1. So the longer a text becomes, the less probable it is, and a search for the largest product likes texts that end early. Two texts, each word of both with 0.6:

# %%
for n in (2, 6):
    print(f"{n} words: {0.6**n:.2f}, log probability {n * math.log(0.6):.2f}, divided by {n}: {math.log(0.6):.2f}")

# %% [markdown]
# The remedy is **length normalization**: compare the sum divided by the number of words, or by a power of it (after Wu et al. 2016). With power 0 nothing is divided, with 1 it is the mean per word. The shipped model, 8 beams, from the beginning of a story to the line end:

# %%
found = {}
for power in (0, 1, 2):
    found[power] = sampling.beam_search(model, torch.tensor(line_end), 127, 8, length_penalty=power, stop_ids=line_end)
    tokens, log_prob = found[power][0]
    n = len(tokens) - 1
    print(f"power {power}: the best has {n} tokens, {log_prob:.1f} in all, {log_prob / n:.2f} a token")
end = " ".join(tokenizer.decode(found[2][0][0]).split()[-23:])
print(f"with power 2 it ends:\n    ... {end}")

# %% [markdown]
# From 0 to 1 the best becomes a little longer, and less probable as a whole. Power 2 rewards length itself: that text runs on to the limit of 127 tokens, worse per token, and stumbles about at its end. (All stories here are of much the same length, so 0 and 1 differ little.)
#
# ### Is it a good story?


# %%
def drawn_stories(n: int, seed: int, starts=None, **rules) -> list[str]:
    starts = torch.tensor([line_end] * n) if starts is None else starts  # (n, T)
    out = generate(model, starts, 128 - starts.shape[1], stop_ids=line_end, generator=seeded(seed), **rules)
    return [tokenizer.decode(row).strip().split("\n")[0] for row in out.tolist()]


# %%
beams = [tokenizer.decode(tokens).strip() for tokens, _ in found[1]]
print(beams[0])
drawn = drawn_stories(8, seed=12)
new_runs = {"drawn": variety("\n".join(drawn)), "beams": variety("\n".join(beams))}

# %% tags=["source-hidden"]
predict(
    f"In eight drawn stories {new_runs['drawn']:.0%} of all runs of four words are new. And in the eight best beams of one search?",
    key=lambda: f"about {round(100 * new_runs['beams'] / 5) * 5} %",
    choices={
        "about 90 %": "So it is where each story is drawn for itself.",
        "about 50 %": "They are more alike than that: most of them grew from one beam.",
        "about 15 %": "",
    },
    because="Beams that differ early seldom live long; those at the end are one story with small changes. Eight equal stories would still have an eighth.",
)

# %% evidence="beams-alike"
for name, part in new_runs.items():
    print(f"{name:<11} {part:.0%} of the runs are new")
assert new_runs["beams"] < 0.25 < 0.75 < new_runs["drawn"]

# %% [markdown]
# The eight beams are nearly one story: that is what *dull* means in numbers. Are they at least correct? StoryWorld knows which stories are possible:


# %% evidence="both-break-rules"
def impossible(texts: list[str]) -> int:
    return sum(storyworld.log_prob(text) == -math.inf for text in texts)


print(f"impossible: {impossible(beams)} of {len(beams)} beams, {impossible(drawn)} of {len(drawn)} drawn stories")
assert 0 < impossible(beams) < impossible(drawn)

# %%
per_word, n_words = wrong["no cut", 1], len(exact) / len(stories)  # both from section 2
print(f"{per_word:.1%} wrong a word, {n_words:.0f} words: {1 - (1 - per_word) ** n_words:.0%} of the stories are wrong")
for t in (0.1, 0.5, 1):
    wrong_on_true = (next_token_probs(scores, temperature=t)[exact == 0].sum() / len(exact)).item()
    assert 0.8 < wrong_on_true / per_word < 1.2
    print(f"temperature {t}, after the words of true stories: about {wrong_on_true:.0%} wrong a word")

# %% [markdown]
# Both sets break the rules of StoryWorld. [[both-break-rules]] The impossible beams give the drum to Noah, who has just traded it away; but more of the drawn stories are impossible than of the beams. One wrong word makes a story impossible, and a story has many words. (The estimate treats the words as independent, so it is rough.)
#
# ### Correct or varied?
# A lower temperature draws fewer unlikely words. But after the words of true stories, the probability of wrong words was nearly the same at temperatures 0.1, 0.5 and 1. So what does the temperature do to whole stories, and to their variety? We draw 64 stories at each temperature, and count the new runs in groups of eight, so that the beams can be compared. Greedy decoding (temperature 0) would write one story 64 times, so we also let the model continue the first five words of 64 true stories, at temperatures 0, 0.1 and 1:


# %%
def in_eights(texts: list[str]) -> float:
    groups = [texts[i : i + 8] for i in range(0, len(texts), 8)]
    return sum(variety("\n".join(group)) for group in groups) / len(groups)


# %%
temperatures = (0.1, 0.5, 1, 2)
by_heat = {t: drawn_stories(64, seed=12, temperature=t) for t in temperatures}
source = seeded(12)
sets = {f"temperature {t}": by_heat[t] for t in temperatures}
others = seeded(2)
openings = torch.tensor([tokenizer.encode("\n" + storyworld.story(others).text)[:6] for _ in range(64)])  # (64, 6)
for t in (0, 0.1, 1):
    sets[f"openings, {t}"] = drawn_stories(64, seed=2, starts=openings, temperature=t)
sets |= {"8 beams": beams, "true stories": [storyworld.story(source).text for _ in range(64)]}

# %% tags=["source-hidden"]
predict(
    "At temperature 1, most of the drawn stories are impossible. And at temperature 0.1?",
    key=lambda: "about half" if 0.4 < impossible(by_heat[0.1]) / 64 < 0.65 else "nearly none",
    choices={
        "nearly none": "So it would be if the wrong words were unlikely ones. Section 2 found that most are likely.",
        "about half": "",
        "still most of them": "There are fewer than at temperature 1: only a little more than half.",
    },
    because="A low temperature makes unlikely words rare, but most of the wrong words are likely ones (section 2).",
)

# %% evidence="temperature-trades"
broken = {name: impossible(texts) / len(texts) for name, texts in sets.items()}
varied = {name: in_eights(texts) for name, texts in sets.items()}
for name in sets:
    print(f"{name:<16} {broken[name]:4.0%} impossible, {varied[name]:.0%} of the runs are new")
assert broken["true stories"] == 0
assert broken["temperature 0.1"] < broken["temperature 1"] < broken["temperature 2"]
assert varied["8 beams"] < varied["temperature 0.1"] < varied["temperature 1"] < varied["temperature 2"]
assert broken["openings, 0.1"] + 0.05 < min(broken["openings, 0"], broken["openings, 1"])
assert varied["openings, 0"] < varied["openings, 0.1"] < varied["openings, 1"]

# %% [markdown]
# This is the **quality-diversity trade-off** (Caccia et al. 2020). For other languages people must judge the quality; in StoryWorld we can count the impossible stories exactly. At temperature 1 the stories vary as much as true ones, but most are impossible. At 0.1 about half are still impossible. At 2 the stories vary more than true ones, and none of them is possible. None of these settings has both, as the true stories do. [[temperature-trades]]
#
# But lower is not always better. From the 64 openings, greedy decoding varies least, and *more* of its stories are impossible than at 0.1. [[temperature-trades]] Is that luck? We recorded the same with six sets of openings, and with three seeds for each where words are drawn:

# %%
RECORDED = {0: (52, 57), 0.1: (33, 42), 1: (47, 55)}  # fewest and most impossible stories among 64
for t, (fewest, most) in RECORDED.items():
    print(f"temperature {t:<4}{fewest} to {most} of 64 stories are impossible")

# %% [markdown]
# The ranges of 0.1 and 0 do not even touch, and greedy decoding is about as bad as temperature 1. These measurements do not show why.
#
# ### Does a wider search find better stories?
# Eight beams were our choice. The search can be narrower or wider. To judge its scores we need the log probability of the most probable story of all, which StoryWorld knows, too:


# %% tags=["source-hidden"]
@cache
def highest(scene: Scene) -> float:
    """The log probability of the most probable way from a scene to the end of the story."""
    ways = []
    for way in options(scene):
        new = [slot for slot in way.slots if slot.new]
        drawn_words = sum(math.log(len(CLASSES[slot.new]) - (slot.role in DIFFERENT)) for slot in new)
        rest = highest(way.then) if way.then.name != "opening" else 0.0
        ways.append(math.log(way.p) - drawn_words + rest)
    return max(ways)


ceiling = highest(Scene())
source = seeded(12)
true = torch.tensor([storyworld.story(source).log_prob for _ in range(1000)])
assert true.max() < ceiling + 1e-3
print(f"the most probable story has log probability {ceiling:.1f}; 1000 true stories have {true.mean():.1f} on average")

# %%
widths = {}
for n_beams in (1, 2, 4, 8, 16, 32):
    widths[n_beams] = sampling.beam_search(model, torch.tensor(line_end), 127, n_beams, stop_ids=line_end)
top_scores = {n_beams: max(log_prob for _, log_prob in kept) for n_beams, kept in widths.items()}
stories_found = {n: [tokenizer.decode(tokens).strip() for tokens, _ in kept] for n, kept in widths.items()}

# %% tags=["source-hidden"]
predict(
    "We search with 1, 2, 4, 8, 16 and 32 beams. What becomes of the stories?",
    key=lambda: (
        "scores rise, many stay impossible"
        if top_scores[32] > top_scores[1] and impossible(stories_found[32]) > 8
        else "scores rise, and most are possible"
    ),
    choices={
        "scores rise, and most are possible": "The score is what the model believes, and the model makes mistakes.",
        "scores rise, many stay impossible": "",
        "scores stay the same": "A wider search compares more texts, so it usually finds one with a higher score.",
    },
    because="The search maximizes the model's score, and a score above that of every true story is a mistake of the model.",
)

# %% evidence="wider-beams"
for n_beams, texts in stories_found.items():
    best_one = "impossible" if impossible(texts[:1]) else "possible"  # the first beam: best per token
    counted = f"{impossible(texts):>2} of {len(texts):>2} impossible, the best per token is {best_one}"
    print(f"{n_beams:>2} beams: highest score {top_scores[n_beams]:.1f}, {counted}")
assert min(top_scores.values()) > ceiling + 0.5
assert max(top_scores[1], top_scores[2]) + 0.3 < min(top_scores[n] for n in (4, 8, 16, 32))
assert impossible(stories_found[16] + stories_found[32]) > 24

# %% [markdown]
# Eight was a lucky width: only there is the best beam (per token) a possible story. With 4 beams or more the search finds higher scores than a single beam does, though not at every doubling, and the stories do not become correct. And *every* highest score, even with one beam, lies above -65.3, the log probability of the most probable story of all. No true story can have such a probability, so such a score is an error of the model, not a success of the search (Stahlberg and Byrne 2019 separate the two: *model errors* and *search errors*). How does the model usually score true stories?


# %%
def model_log_prob(text: str) -> float:
    ids = torch.tensor([tokenizer.encode("\n" + text + "\n")])  # (1, T)
    return -next_token_loss(model(ids[:, :-1]), ids[:, 1:]).item() * (ids.shape[1] - 1)


def overrated(texts: list[str]) -> float:
    """How far the model's log probability lies above the exact one, in nats, on average over possible stories."""
    return sum(model_log_prob(text) - storyworld.log_prob(text) for text in texts) / len(texts)


# %% evidence="overrated"
possible_beams = [text for texts in stories_found.values() for text in texts if not impossible([text])]
of_true, of_beams = overrated(sets["true stories"]), overrated(possible_beams)
print(f"model minus exact: {of_true:+.1f} nats for true stories, {of_beams:+.1f} nats for possible beams")
assert of_true < -1 and of_beams > 1
for opening in ("One sunny morning, bold Victor", "One rainy day, brave Noah", "One warm evening, kind Mia"):
    prompt = torch.tensor(tokenizer.encode("\n" + opening))  # (T)
    search = sampling.beam_search(model, prompt, 127 - len(prompt), 16, stop_ids=line_end)
    whole = [tokenizer.decode(tokens).strip() for tokens, _ in search]
    most = max(map(model_log_prob, whole))
    assert most > ceiling + 0.5 and impossible(whole) > 2 and not impossible(whole[:1])
    print(
        f"{opening}: highest score {most:.1f}, {impossible(whole)} of {len(whole)} impossible, not the best per token"
    )

# %% [markdown]
# On true stories the mean difference must be negative for any model that is not exact: it is minus the KL divergence, so only its size is a finding. On the beams it is positive, even on the possible ones, because the search selects high scores. Search picks the highest of many scores, and these tend to be the ones with an upward error: *search seeks out the model's errors*. With three other openings, too, the highest score of 16 beams is higher than any story can have, and several beams are impossible. But the best beam per token is a possible story there, so a wide search does not always end badly. (This is one model and one small language.)
#
# ### The most probable is not typical
# There is a second reason why the most probable text is not what people write. Throw a bent coin 1000 times; it falls heads with probability 0.6. The most probable single sequence is *all heads*. How probable are the sequences that really come?

# %% evidence="bent-coin"
p_heads, throws = 0.6, 1000
n_heads = (torch.rand(1000, throws, generator=seeded(12)) < p_heads).sum(1)  # (1000), in each of 1000 sequences
sequences = n_heads * math.log(p_heads) + (throws - n_heads) * math.log(1 - p_heads)  # (1000), log probabilities
all_heads = throws * math.log(p_heads)
middle = throws * (p_heads * math.log(p_heads) + (1 - p_heads) * math.log(1 - p_heads))
deviation = math.sqrt(throws * p_heads * (1 - p_heads)) * math.log(p_heads / (1 - p_heads))
print(f"all heads: {all_heads:.0f} nats; typical: {middle:.0f}, with a standard deviation of {deviation:.0f}")
assert sequences.max() < all_heads - 100 and abs(sequences.mean() - middle) < 1

# %% tags=["source-hidden"]
with figures.axes("The most probable is not typical", "log probability (nats)", "of 1000 sequences") as (figure, ax):
    heights, edges, _ = ax.hist(sequences.tolist(), bins=20, color=figures.SERIES[0])
    ax.axvline(all_heads, color=figures.SERIES[1], linewidth=3)
    ax.text(all_heads - 3, heights.max() * 0.9, "all heads", color=figures.SERIES[1], ha="right")
    ax.text(middle + 25, heights.max() * 0.5, "what comes", color=figures.SERIES[0])
figures.display(
    figure,
    alt="Histogram of the log probabilities of 1000 sequences of 1000 throws, all near -673, and far to the right a line at -511: all heads.",
    caption=f"All heads is more probable than any sequence that came, by a factor of e to the {all_heads - sequences.max():.0f} or more. Yet nobody sees it: it is a single sequence, and the typical ones are so many.",
    table={"from": edges[:-1:4].tolist(), "sequences": heights.reshape(5, 4).sum(1).astype(int).tolist()},
)

# %%
first_beam = storyworld.log_prob(beams[0])
at_least = (true >= first_beam - 0.01).float().mean()
print(f"the first of the 8 beams has exactly {first_beam:.1f}; {at_least:.0%} of 1000 true stories are as probable")

# %% [markdown]
# What comes is the **typical set** (Shannon 1948): sequences near the average log probability. Stories show it weakly. Most choices in StoryWorld are among equals, so the gap is 4 nats of 69, and some true stories are as probable as the search's answer. In a long text with uneven choices the gap grows with the length, as with the coin, and text that people write is indeed not the most probable text (Holtzman et al. 2020).
#
# So what should you use? In translation the source text leaves fewer good answers than a story has, and systems commonly search (Wu et al. 2016). Where many answers are good, sampling is usual (Holtzman et al. 2020); choose the temperature and the cuts by a measurement like the one above.

# %% [markdown] tags=["note"]
# Ask before the widths: does a wider search find better stories? The usual wrong answer is yes, because the search *is* better: it finds higher scores. Ask then how a score can be higher than that of the most probable story. StoryWorld's 40 names are equally likely: which one a beam takes is decided by a tiny difference in the model, and yet it is the same at each run. The coin must be bent: with a fair one all sequences are equally probable. The impossible beams of the search with eight are one story with small changes: one fact, not three.

# %% [markdown] slide="slide"
# ## 7. Your turn
# Four short functions. In the first three the tokens lie on the last axis, V of them, and each row is a text of its own. Leave what you are given unchanged.


# %% tags=["exercise"] name="apply_temperature" minutes=6 difficulty=1
def apply_temperature(logits, temperature):
    """logits (..., V), tokens on the last axis. temperature: above 0 (0, greedy, is not asked for and not tried).

    Returns (..., V), probabilities. Large logits and low temperatures must not overflow.
    """
    # SOLUTION
    return (logits / temperature).softmax(-1)
    # END


# %% tags=["check"]
if check("apply_temperature", apply_temperature).passed:
    keep("apply_temperature", apply_temperature)

# %%
hint("apply_temperature")

# %% [markdown] tags=["solution"]
# Divide first, then softmax, which takes the maximum off by itself. The usual slips: multiply; or divide the probabilities, which then no longer sum to 1, or go through softmax a second time.


# %% tags=["exercise"] name="top_k_probs" minutes=8 difficulty=2
def top_k_probs(probs, k):
    """probs (..., V) in any order, k from 1 to V. Returns (..., V), 0 for the tokens that are cut.

    In each row exactly the k most probable tokens stay; which ones of equals is open.
    What is kept keeps its place and its proportions, and sums to 1.
    """
    # SOLUTION
    best, ids = probs.topk(k, dim=-1)
    kept = torch.zeros_like(probs).scatter(-1, ids, best)
    return kept / kept.sum(-1, keepdim=True)
    # END


# %% tags=["check"]
if check("top_k_probs", top_k_probs).passed:
    keep("top_k_probs", top_k_probs)

# %%
hint("top_k_probs")

# %% [markdown] tags=["solution"]
# `topk` returns values and where they stood; `scatter` puts them back there, into zeros. A comparison with the k-th value is shorter, but where tokens are equal it keeps too many with `>=` and too few with `>`.


# %% tags=["exercise"] name="top_p_probs" minutes=10 difficulty=3
def top_p_probs(probs, p):
    """probs (..., V) in any order, p above 0 and at most 1. Returns (..., V), 0 for the tokens that are cut.

    In each row the most probable tokens stay, up to and including the one with which their sum reaches p; which ones of
    equals is open. What is kept keeps its place and its proportions, and sums to 1.
    """
    # SOLUTION
    ranked, order = probs.sort(dim=-1, descending=True)
    before = ranked.cumsum(-1) - ranked
    ranked = ranked.where(before < p, 0.0)
    kept = torch.zeros_like(probs).scatter(-1, order, ranked)
    return kept / kept.sum(-1, keepdim=True)
    # END


# %% tags=["check"]
if check("top_p_probs", top_p_probs).passed:
    keep("top_p_probs", top_p_probs)

# %%
hint("top_p_probs")

# %% [markdown] tags=["solution"]
# A token stays while the sum *before* it is below p: so the best one always stays, and the one that crosses p, too. With the sum *up to* it, a best token of 0.95 would be cut at p = 0.9, and nothing be left. The mask belongs to the sorted row: bring it back with `scatter` before you use it.


# %% tags=["exercise"] name="beam_search" minutes=16 difficulty=3
def beam_search(log_probs_fn, start, n_beams, n_steps):
    """start: a list of ints, the tokens to begin with. n_steps: how many tokens to add.

    log_probs_fn(tokens) takes the list of all tokens so far and returns a tensor (V), the natural log of the
    probability of each next token. Nothing ends a text early, and lengths are not normalized.
    Returns the n_beams best as a list of pairs (tokens, log_prob), best first. tokens: the ints, with the start or
    without it. log_prob: the natural log of the probability of what was added, a float or a tensor ().
    """
    # SOLUTION
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        grown = []
        for tokens, total in beams:
            for token, log_prob in enumerate(log_probs_fn(tokens).tolist()):
                grown.append(([*tokens, token], total + log_prob))
        beams = sorted(grown, key=lambda beam: beam[1], reverse=True)[:n_beams]
    return beams
    # END


# %% tags=["check"]
if check("beam_search", beam_search).passed:
    keep("beam_search", beam_search)

# %%
hint("beam_search")

# %% [markdown] tags=["solution"]
# The search starts with one beam, of log probability 0: the start is given. All that grew is ranked *together*, for two children of one beam may beat both of another. The usual slips: `tokens.append`, which changes a list that other beams hold; a look at the last token only; and a product of probabilities, which is 0 after some hundred words.

# %% [markdown] slide="subslide"
# ### The library's version
# One function for dial and cuts, as in section 2. (`TINIEST` keeps `warmth` off 0 and infinity; `values_at_hand`: can numbers be looked at without waiting for a GPU?) In `_beams`, the loop of the search, all beams are one batch, and a cache remembers what was read (lesson 13).

# %%
torch.testing.assert_close(next_token_probs(logits[None], 0.7)[0], (logits / 0.7).softmax(-1))
show(next_token_probs, sample, sampling._beams)

# %% [markdown]
# `sample` throws the dart of section 2 for every row at once: `cumsum` lays the probabilities side by side, and `searchsorted` finds the word in whose stretch the dart lies. It computes in fp64, because in a large vocabulary the rounding of fp32 would change how often the rare words come.

# %% [markdown] slide="slide"
# ## 8. Break it: cut to zero
# On probabilities a cut writes 0. On logits it must write $-\infty$, since e to $-\infty$ is 0. Somebody writes 0 there, too. We keep the best five of the names after *brave*:

# %%
best_five = wide >= wide.topk(5).values[-1]
cut_right, cut_wrong = (wide.where(best_five, low).softmax(-1) for low in (-torch.inf, 0.0))
print("five logits:", [f"{x:.1f}" for x in wide[best_five].tolist()], f"and {(~best_five).sum()} that are cut")

# %% tags=["source-hidden"]
predict(
    "With 0 for the cut logits, how much probability do the five names have together?",
    key=lambda: f"about {5 * round(20 * cut_wrong[best_five].sum().item())} %",
    choices={
        "about 0 %": "Their logits are well above 0, and e to a logit counts.",
        "about 35 %": "",
        "about 100 %": "So it would be with minus infinity. A logit of 0 is no probability of 0: e to the 0 is 1.",
    },
    because="Each of the 340 cut words counts as e to the 0, which is 1; each of the five as e to the 3.6, about 37.",
)

# %%
print(f"the five: {cut_right[best_five].sum():.2f} with -inf, {cut_wrong[best_five].sum():.2f} with 0")
print(f"the five before any cut: {wide.softmax(-1)[best_five].sum():.2f}")

# %% [markdown]
# No error, and what should be cut to nothing has most of the probability.

# %% [markdown]
# ## What you have now
# - Greedy decoding takes the most probable token. Over several stories it repeated itself more than drawing did. [[greedy-repeats]] Temperature, top-k, top-p and min-p change the distribution that we draw from. Our library applies them in this order, and another order can keep other tokens. [[one-order]]
# - A cut removes the tail of the distribution, so it helps most at a high temperature. It does not help against a wrong word that the model finds likely. [[cuts-judged]]
# - To test a sampler, count many draws and compare the counts with the expected ones, in units of the root of the expected count. [[counted]] Such a test finds only the mistakes that change what it counts, so count in several contexts, and test rare tokens, too.
# - A text ends at a stop token, after a given number of tokens or, if you choose so, at the context limit. [[stops]] [[context-limit]] Write in evaluation mode, because dropout, where the model has it, can change even greedy texts. [[dropout-off]] With a seeded generator of your own a run can be repeated. [[same-seed]]
# - Beam search finds texts that the model rates highly, and its best beams are nearly the same text. [[beams-alike]] Wider searches found higher scores than one or two beams, though not at every doubling. Every highest score, even with one beam, was above that of the most probable story, so it was an error of the model. [[wider-beams]] [[overrated]]
# - From an empty text, lower temperatures gave fewer impossible stories and less variety. But from given openings, greedy decoding varied least, and more of its stories were impossible than at a low temperature. [[temperature-trades]] With uneven choices, long drawn sequences lie far below the most probable one. [[bent-coin]]
#
# Next, lesson 13: writing a word without reading the whole text again.

# %% [markdown]
# ## Sources
# - Top-k: Fan, Lewis and Dauphin 2018, *Hierarchical Neural Story Generation*.
# - Top-p: Holtzman et al. 2020, *The Curious Case of Neural Text Degeneration*, section 3.1, and the whole paper on why the most probable text is dull.
# - Min-p: Nguyen et al. 2024, *Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs*.
# - Repetition penalty: Keskar et al. 2019, *CTRL: A Conditional Transformer Language Model for Controllable Generation*, section 4.1.
# - Quality and diversity over temperatures: Caccia et al. 2020, *Language GANs Falling Short*.
# - Model errors and search errors: Stahlberg and Byrne 2019, *On NMT Search Errors and Model Errors: Cat Got Your Tongue?*
# - Typical texts: Shannon 1948, *A Mathematical Theory of Communication*, section 7.
# - Length normalization: Wu et al. 2016, *Google's Neural Machine Translation System*, section 7.
