# %% [markdown] slide="slide"
# # 12 Sampling
# **How does a list of probabilities become a text?**
#
# *Needs* lessons 03, 10 and 11. *Builds* the rules of `probabilities.py` and the beam search of `beams.py`. *Runs* in about 30 s on two cores.
# *Teaches* in about 60 minutes, plus 40 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a model gives probabilities, and how to write with them is a choice of its own. What you gain in correct texts you usually pay for with variety, and StoryWorld can measure both.
# It has one picture, the tree of section 1. Every rule of the lesson changes this tree: temperature and cuts change the heights of its boxes, greedy decoding follows its upper edge, beam search keeps a few of its branches.
# Sections 1 to 4 and section 7 are the core, with one exercise. Sections 5 and 6 are about search. Section 8 goes further: tests of a sampler, repetition, the details of `generate`.
# Before the class: run all cells once (about half a minute), and try the control in section 2.

# %% slide="skip"
import torch
from matplotlib import pyplot as plt

from tinylm_lib import next_token_probs, storyworld
from tinylm_classroom import figures, predict
from tinylm_lib.pretrained import load_pretrained

plt.style.use(figures.STYLE)
_ = torch.set_grad_enabled(False)  # nothing is trained here


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# %% [markdown] tags=["note"]
# **Say.** The model never writes a word. It gives probabilities, and everything else is our decision. Today we look at these decisions, and at what each of them costs.
#
# **Draw.** A line from 0 to 1, cut into three pieces, and a dart above it. Then cut each piece again below the line: this is the tree.
#
# **Ask.** Before the tree: "Who has the silver basket, and who has the gray lamp? Which gifts are possible?" (Noah has the basket, Kira the lamp. Each can give away only what he or she has.)
#
# **Usual answers.**
# - *Take the likeliest word every time* (from the room): this is greedy decoding. It would write the same story every time; follow the upper edge of the tree.
# - *The model has learned the language, so nearly nothing is wrong* (`nearly nothing`): nearly every word is right, but one word out of several can spoil the sentence. Point at the pairs of boxes.
# - *Most of it is wrong* (`most of it`): everything in the upper half is possible, because in a trade both things change hands.
#
# **Cut if short.** The dart with three words; begin with the tree.

# %% [markdown] slide="slide"
# ## 1. Which word?
# A trained model reads a text and gives each word of its vocabulary a score. Which word do we write? Here is the beginning of a story, and what the shipped model expects next:

# %% slide="skip"
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
line_end = tokenizer.encode("\n")


# %% slide="skip"
def logits_after(text: str) -> torch.Tensor:
    return model(torch.tensor([tokenizer.encode("\n" + text)]))[0, -1]


# %% rows=["S2-11"]
whole_story = storyworld.story(seeded(12)).text
opening = whole_story[: whole_story.index('."') + 2]
logits = logits_after(opening + " Then")  # (V)
probs = logits.exp() / logits.exp().sum()  # (V)
torch.testing.assert_close(probs, next_token_probs(logits[None])[0])
reader = storyworld.Reader()
for word in storyworld.words(opening + " Then"):
    reader.read(word)
print(opening, "Then ...")
for token in logits.topk(5).indices.tolist():
    word, exact_p = tokenizer.decode([token]), reader.next_word_probs().get(tokenizer.decode([token]), 0)
    print(f"{word:>8}: logit {logits[token]:5.1f}, probability {probs[token]:.4f}, exact {exact_p:.4f}")

# %% [markdown] slide="subslide"
# The scores are **logits**, which can be any numbers. Softmax turns them into a **probability distribution** (lesson 03). Three words are likely here: *they* (trade), *Kira* (gives) and *Noah* (gives).
#
# - **Greedy decoding** takes the most probable word. Here it always writes *they*, so it never writes about a gift after *Then*.
# - **Sampling** draws a word, each with its probability. Lay the probabilities side by side on a line from 0 to 1 and throw a dart:

# %%
named = [" they", " Kira", " Noah"]
chosen = [tokenizer.ids[word] for word in named]
ends = probs[chosen].cumsum(0)  # where the piece of each word ends
print("the pieces end at", [round(end, 3) for end in ends.tolist()])
print("a dart at 0.8 draws", named[int((ends < 0.8).sum())])
darts = torch.searchsorted(ends, torch.rand(1000, generator=seeded(12)))  # (1000)
print("1000 darts:", {word: int((darts == i).sum()) for i, word in enumerate([*named, " others"])})

# %% [markdown] slide="subslide"
# ### The tree of all texts
# Divide each piece again, by the probabilities of the word that comes next, and continue like this. The result is a tree of everything that the model can write. The height of a box is the probability of its whole text. (A full stop counts as a word, and boxes too small to see are not drawn.)


# %%
def grow(text: str, n_words: int, **rules) -> list[list[tuple[str, float, float]]]:
    """For each word: the texts so far, where the piece of each begins, and how long it is."""
    levels = [[(text, 0.0, 1.0)]]
    # ESSENTIAL
    for _ in range(n_words):
        longer = []
        for text, begin, length in levels[-1]:
            next_probs = next_token_probs(logits_after(text)[None], **rules)[0]  # (V)
            for token in next_probs.argsort(descending=True).tolist():
                piece = length * next_probs[token].item()
                if piece < 0.002:  # too small to see
                    break
                longer.append((text + tokenizer.decode([token]), begin, piece))
                begin += piece
        levels.append(longer)
    # END
    return levels[1:]


# %% [markdown] slide="say"
# Not every text in the tree is possible. In this story Noah has the basket and Kira has the lamp, so Kira cannot give the basket away. StoryWorld's `Reader` knows the exact probability of every next word, so it can tell which texts are possible.


# %% slide="skip"
def can_happen(text: str) -> bool:
    """Whether StoryWorld allows this beginning of a story."""
    reader = storyworld.Reader()
    return all(reader.read(word) > 0 for word in storyworld.words(text))


# %% slide="skip"
tree = grow(opening, 7)
right_part = sum(length for text, _, length in tree[-1] if can_happen(text))
wrong_part = sum(length for text, _, length in tree[-1] if not can_happen(text))

# %% tags=["source-hidden"]
predict(
    "The model writes seven more words. How much of the probability falls on texts that are impossible, because somebody gives away what the other one has?",
    key=lambda: "about a quarter" if 0.2 < wrong_part < 0.3 else "something else",
    choices={
        "nearly nothing": "The model knows that somebody gives something away. Does it know who has what?",
        "about a quarter": "",
        "most of it": "The texts with a trade are all possible, and they have half of the probability.",
    },
    because="When somebody gives something away, the model gives the thing of the other person nearly the same probability.",
)


# %% tags=["source-hidden"] slide="skip"
def draw_tree(levels, title: str, caption: str, dart: float = -1) -> None:
    fig, ax = plt.subplots(figsize=(11.4, 6.4), layout="constrained")
    for column, level in enumerate(levels, start=1):
        for text, begin, length in level:
            fine = can_happen(text)
            color, ink = ("#cfe2f7", figures.INK) if fine else (figures.SERIES[1], "white")
            ax.bar(column, length, 0.97, begin, color=color, edgecolor="white", linewidth=1.5)
            if length > 0.045:
                label = "" if fine else "✗ "
                label += storyworld.words(text)[-1].strip()
                ax.text(column, begin + length / 2, label, size=17, color=ink, ha="center", va="center")
    ax.set_title(title, size=20)
    ax.set_xlabel("words after the beginning", size=18)
    ax.set_ylabel("probability, added up", size=18)
    ax.tick_params(labelsize=17)
    ax.set(xlim=(0.5, len(levels) + 0.5), ylim=(1, 0))
    ax.grid(visible=False)
    ax.axhline(dart, color=figures.INK, linewidth=1.4, linestyle="--")
    right = [sum(length for text, _, length in level if can_happen(text)) for level in levels]
    wrong = [sum(length for text, _, length in level if not can_happen(text)) for level in levels]
    alt = (
        "Columns of boxes, one for each word. Blue boxes are possible texts, orange boxes with a cross impossible ones."
    )
    table = {"words": list(range(1, len(levels) + 1)), "possible": right, "impossible": wrong}
    figures.display(fig, alt=alt, caption=caption, table=table, digits=2)


# %% tags=["source-hidden", "signature"] slide="subslide"
draw_tree(
    tree,
    "Everything that may come next",
    "Blue texts are possible, orange ones with a cross are not. Greedy decoding follows the upper edge. A dart at any height draws a whole text: follow the dashed line.",
    dart=0.735,
)

# %% slide="subslide" evidence="tree"
for height in (0.1, 0.735, 0.85):
    [text] = [text for text, begin, length in tree[-1] if begin <= height < begin + length]
    print(
        f"a dart at {height:<5} writes{text.removeprefix(opening)} ({'possible' if can_happen(text) else 'impossible'})"
    )
print(f"possible {right_part:.2f}, impossible {wrong_part:.2f}, too small to see {1 - right_part - wrong_part:.2f}")
assert 0.2 < wrong_part < 0.3 and right_part + wrong_part > 0.98

# %% [markdown]
# Is this story an exception? Here are all gifts in the trees of this story and of two others:

# %% evidence="gifts"
for seed in (12, 13, 14):
    other_story = storyworld.story(seeded(seed)).text
    other_opening = other_story[: other_story.index('."') + 2]
    texts = [(text, length) for text, _, length in grow(other_opening, 7)[-1] if "traded" not in text]
    wrong_gifts = sum(length for text, length in texts if not can_happen(text))
    part = wrong_gifts / sum(length for _, length in texts)
    print(f"story {seed}: {part:.2f} of the probability of gifts is on impossible ones")
    assert 0.4 < part < 0.6

# %% [markdown] slide="subslide"
# A gift of the wrong thing is about as probable as a gift of the right one, as if the model threw a coin. [[gifts]] So these words are not rare slips. They are mix-ups about *who has what*, and the model finds them likely. [[tree]] Keep this in mind when we cut off rare words.

# %% [markdown] slide="say"
# In practice one draws a new number for each word instead of one for the whole text. Both give every text the same probability.

# %% [markdown] tags=["note"]
# **Say.** A temperature changes all probabilities, a cut removes some of them. Both change the heights of the boxes; the words and their order come from the model.
#
# **Draw.** Four bars, 0.5, 0.3, 0.15 and 0.05. Cross out what each rule cuts, and redraw the others so that they sum to 1.
#
# **Ask.** At the control, before you move the temperature to 0.1: "What will be left of the tree?" (One branch: the upper edge.) Then to 2: "And now?"
#
# **Usual answers.**
# - *One word stays at top-p 0.6* (`1`, `cuts the crossing one`): 0.5 does not reach 0.6 yet; the word that crosses p stays.
# - *The sum is compared with p instead of the sum before the token* (`cuts the crossing one`): then a best token of 0.95 would be cut at 0.9, and nothing would be left.
# - *The mask of the sorted row is used for the unsorted one* (`mask in sorted order`): bring it back with `scatter`.
# - *Keep everything that is at least the k-th value* (`ties kept`): with equal tokens this keeps too many.
# - *Divide the probabilities by the temperature* (`divided behind`): they no longer sum to 1. The logits are divided, before softmax.
# - *Top-p 0.9 is always better than top-k 5* (from the room): measure it; the table at the end of the section does.
#
# **Cut if short.** The cell on the order of the rules, then the last table; say its result.

# %% [markdown] slide="slide"
# ## 2. One dial and three cuts
# Greedy decoding always gives the same text, and sampling sometimes draws a word that fits nothing. Each such word is rare, but there are hundreds of them. Four rules are common:
#
# - **Temperature** divides the logits before softmax (lesson 03). Below 1 the likely words gain, above 1 the rare ones do. By definition, temperature 0 is greedy decoding.
# - **Top-k** keeps the k most probable words.
# - **Top-p** (or *nucleus sampling*) goes down from the most probable word and adds up the probabilities until the sum reaches p. The word that reaches p stays.
# - **Min-p** keeps every word that has at least min-p times the probability of the most probable one.

# %% [markdown] slide="say"
# A cut word has probability 0, and the others are divided by their sum, so that they sum to 1 again.

# %% slide="skip"
from tinylm_classroom import check, control, hint, keep, sampling_view


# %% slide="skip"
def tree_at(temperature: float = 2.0, min_p: float = 0.0) -> None:
    levels = grow(opening, 7, temperature=temperature, min_p=min_p)
    caption = "Where nothing is drawn are many words, each too improbable to see."
    draw_tree(levels, f"Temperature {temperature:g}, min-p {min_p:g}", caption)


# %% slide="subslide"
control(tree_at, temperature=(0.1, 2.0, 0.1), min_p=(0.0, 0.5, 0.05), frames=10)

# %% evidence="tree-cut"
for rules in ({"temperature": 0.1}, {"temperature": 2}, {"temperature": 2, "min_p": 0.1}):
    last = grow(opening, 7, **rules)[-1]
    wrong_now = sum(length for text, _, length in last if not can_happen(text))
    print(f"{rules}: {len(last)} texts to see, impossible {wrong_now:.2f}")
    assert wrong_now < 0.01 if rules["temperature"] < 1 else wrong_now > 0.15

# %% [markdown]
# A low temperature leaves one branch, the greedy one. (This one happens to be possible.) A high one adds many words that fit nothing. Min-p removes these, but it keeps the likely mix-ups. [[tree-cut]] (Without min-p, nearly half of the probability is on texts too small to see, so do not compare the last two lines.) By hand, for four words:

# %% slide="subslide"
four = torch.tensor([0.5, 0.3, 0.15, 0.05])
kept = four * torch.tensor([1, 1, 0, 0])
print("top-k 2:       ", (kept / kept.sum()).tolist())
print("sums for top-p:", [round(total, 2) for total in four.cumsum(0).tolist()])
print("min-p 0.2 keeps words of at least", 0.2 * four[0].item())

# %% tags=["source-hidden"]
predict(
    "How many of the four words stay with top-p 0.6?",
    key=lambda: int((next_token_probs(four.log()[None], top_p=0.6) > 0).sum()),
    number="words",
    within=0,
    feedback={
        1: "The best one alone has 0.5, and that does not reach 0.6 yet. The word that crosses stays.",
        3: "The first two words have 0.8 already.",
    },
    because="0.5 does not reach 0.6. With the second word the sum is 0.8: that word crosses, and stays.",
)

# %% [markdown] slide="subslide"
# ### Your turn
# Three short functions. The tokens are on the last axis, and each row is a distribution of its own. Do not change what you are given. `x.scatter(-1, ids, values)` is the reverse of lesson 03's `gather`: it returns a copy of x with the values written at the positions `ids` of the last axis.


# %% tags=["exercise"] name="apply_temperature" minutes=6 difficulty=1 plan=80
def apply_temperature(logits, temperature):
    """logits (..., V), tokens on the last axis. temperature: above 0 (0, greedy decoding, is not tried).

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
# Divide first, then apply softmax, which subtracts the maximum by itself. Common mistakes: to multiply; to divide the probabilities, which then no longer sum to 1; to apply softmax a second time.


# %% tags=["exercise"] name="top_k_probs" minutes=8 difficulty=2 plan=80
def top_k_probs(probs, k):
    """probs (..., V) in any order, k from 1 to V. Returns (..., V), 0 for the tokens that are cut.

    In each row exactly the k most probable tokens stay; which ones of equal tokens is up to you.
    What stays keeps its position and its proportions, and sums to 1.
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
# `topk` returns values and their positions; `scatter` writes the values back there, into zeros. A comparison with the k-th value is shorter, but where tokens are equal it keeps too many with `>=` and too few with `>`.


# %% tags=["exercise"] name="top_p_probs" minutes=10 difficulty=3
def top_p_probs(probs, p):
    """probs (..., V) in any order, p above 0 and at most 1. Returns (..., V), 0 for the tokens that are cut.

    In each row the most probable tokens stay, up to and including the one with which their sum reaches p; which ones
    of equal tokens is up to you. What stays keeps its position and its proportions, and sums to 1. With p = 1 all stay.
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
# A token stays if the sum *before* it is below p, so the best one always stays, and so does the one that crosses p. With the sum *including* it, a best token of 0.95 would be cut at p = 0.9, and nothing would be left. The mask belongs to the sorted row, so bring it back with `scatter` before you use it.

# %% [markdown] slide="subslide"
# ### In which order?
# `next_token_probs` applies temperature, top-k, top-p and min-p in this order, each to the result of the one before. Other libraries use other orders. Does the order matter?

# %% slide="skip"
step = next_token_probs(logits[None], temperature=1.5)  # (1, V)
for one_rule in ({"top_k": 8}, {"top_p": 0.95}, {"min_p": 0.1}):
    step = next_token_probs(step.log(), **one_rule)
torch.testing.assert_close(step, next_token_probs(logits[None], temperature=1.5, top_k=8, top_p=0.95, min_p=0.1))

# %% evidence="one-order"
heat_then_cut = next_token_probs(four.log()[None], temperature=2, top_p=0.8)
cut = next_token_probs(four.log()[None], top_p=0.8)
cut_then_heat = next_token_probs(cut.log(), temperature=2)
n_first, n_second = int((heat_then_cut > 0).sum()), int((cut_then_heat > 0).sum())
print(f"temperature 2, then top-p 0.8, keeps {n_first} of the four words; the other order keeps {n_second}")
assert (n_first, n_second) == (3, 2)

# %% [markdown] slide="say"
# It does. [[one-order]] So settings that work well with one library may work differently with another.

# %% slide="skip"
sampling_view(model, tokenizer, "\n" + opening + " Then", temperature=2.0, min_p=0.1, seed=12)

# %% [markdown] slide="skip"
# In this view all four rules have a slider. Set min-p to 0 and see which words come in; then find another cut that removes them.

# %% [markdown] slide="subslide"
# ### Which cut?
# It depends on the position. After *Then* three words are possible. After *brave* each of 40 names is, and all are equally probable. How many words does each cut keep?

# %%
wide = logits_after("One rainy day, brave")  # (V)
cuts = {"no cut": {}, "top-k 5": {"top_k": 5}, "top-p 0.9": {"top_p": 0.9}, "min-p 0.1": {"min_p": 0.1}}
for name, cut_rules in cuts.items():
    n_then = int((next_token_probs(logits[None], **cut_rules) > 0).sum())
    n_brave = int((next_token_probs(wide[None], **cut_rules) > 0).sum())
    print(f"{name:<10} after Then {n_then:>3}, after brave {n_brave:>3}")

# %% [markdown]
# Top-k keeps too many words at one position and too few at the other. Top-p and min-p adapt to the distribution, but top-p loses a tenth of the names.

# %% [markdown] slide="subslide"
# Which cut is best on average? We compare the model with StoryWorld at every word of 20 stories: how much probability falls on impossible words (*wrong*), and how much of the exact probability is on words that the cut forbids (*lost*)?


# %% slide="skip"
def exact_rows(text: str) -> torch.Tensor:
    """The exact probability of each next word, at each word of a story, (T, V)."""
    reader = storyworld.Reader()
    rows = []
    for word in storyworld.words(text):
        row = torch.zeros(tokenizer.vocab_size)
        for candidate, p in reader.next_word_probs().items():
            row[tokenizer.ids[candidate]] = p
        rows.append(row)
        reader.read(word)
    return torch.stack(rows)


# %% slide="skip"
source = seeded(12)
stories = [storyworld.story(source).text + "\n" for _ in range(20)]
exact = torch.cat([exact_rows(text) for text in stories])  # (N, V)
read = [tokenizer.encode("\n" + text)[:-1] for text in stories]  # nothing is predicted after the last token
scores = torch.cat([model(torch.tensor([ids]))[0] for ids in read])  # (N, V)
assert scores.shape == exact.shape


# %%
def judge(**rules) -> tuple[float, float]:
    """The mean probability per word that is wrong, and that is lost."""
    drawn_from = next_token_probs(scores, **rules)  # (N, V)
    wrong = drawn_from[exact == 0].sum() / len(exact)
    lost = exact[drawn_from == 0].sum() / len(exact)
    return wrong.item(), lost.item()


# %%
wrong_at = {}
for name, cut_rules in cuts.items():
    for t in (1, 2):
        wrong_at[name, t], lost = judge(temperature=t, **cut_rules)
        print(f"{name:<10} temperature {t}: {wrong_at[name, t]:5.1%} wrong, {lost:3.0%} lost")

# %% slide="skip" evidence="cuts-judged"
assert min(wrong_at[name, 1] for name in cuts) > 0.85 * wrong_at["no cut", 1]
assert max(wrong_at[name, 2] for name in cuts if name != "no cut") < 0.5 * wrong_at["no cut", 2]
assert wrong_at["min-p 0.1", 2] < 1.1 * wrong_at["no cut", 1]

# %% [markdown] slide="subslide"
# At temperature 1 no cut helps much, because most of the wrong probability is on likely words, like the orange boxes of the tree. At temperature 2, the rare words have much more probability together, and every cut removes most of it. Here min-p brings the wrong words back to about what they were at 1, and loses next to nothing. [[cuts-judged]] With another model or another text another cut may be best, so measure.

# %% [markdown] tags=["note"]
# **Say.** One word is drawn. For a text we append it and ask again. From here on the model reads its own words, mistakes included.
#
# **Draw.** A loop: text, model, distribution, dart, one more word, and back to the text. Next to it lesson 11's picture: one pass, all positions at once.
#
# **Ask.** Before the prediction: "One word in a hundred is wrong. Is that a good model?" Let the class multiply.
#
# **Usual answers.**
# - *1 or 2 of 100 stories* (`1 or 2`): this is per word. One wrong word makes the whole story impossible, and a story has many words.
# - *The wrong words are strange words* (from the room): the second cell looks. Nearly all of them have been said in the story before.
# - *The number in n is the length of the output* (from the room): it is the most; a text ends earlier at a stop token.
#
# **Cut if short.** The stop token; say that a line end stops a story.

# %% [markdown] slide="slide"
# ## 3. From words to a text
# To write a text, append the new word and ask again. Follow the shapes through one step, for a batch of two texts:

# %% slide="skip"
from tinylm_lib import generate
from tinylm_classroom import trace
from tinylm_lib.probabilities import sample


# %%
def append_word(model, ids, generator, **rules):
    logits = model(ids)  # (B, T) -> (B, T, V)
    last = logits[:, -1]  # (B, T, V) -> (B, V)
    probs = next_token_probs(last, **rules)  # (B, V)
    new = sample(probs, generator)  # (B, V) -> (B)
    return torch.cat((ids, new[:, None]), dim=1)  # (B, T + 1)


# %% slide="subslide"
start = torch.tensor([tokenizer.encode("\nOne sunny")] * 2)  # (2, T)
trace(append_word, model, start, seeded(12), sizes={"B": 2, "T": 3, "V": tokenizer.vocab_size})


# %% slide="subslide"
def write(model, ids, n, generator=None, **rules):
    for _ in range(n):
        ids = append_word(model, ids, generator, **rules)
    return ids


# %% rows=["S4-39"] evidence="same-seed"
from tinylm_classroom import show_text

written = write(model, start, 12, seeded(12))
assert torch.equal(written, generate(model, start, 12, generator=seeded(12)))
show_text([tokenizer.decode(row) for row in written.tolist()])

# %% [markdown] slide="subslide"
# The library's `generate` writes the same two texts with the same seed. [[same-seed]] Writing differs from training (lesson 11) in four ways:
#
# 1. Training scores *every* position of a finished text in one pass. Writing needs a pass for each word. (Lesson 13 makes these passes short.)
# 2. In training the model always reads true words. When it writes, it reads **its own** words, mistakes included.
# 3. In training nothing is drawn: the loss uses the probability of the true word. In writing, a rule chooses the word.
# 4. In training the length of each text is known. In writing, a text ends at a **stop token** or at a limit.

# %% [markdown] slide="subslide"
# Here the stop token is the line end. In a batch one text ends before another and is filled up with `pad_id`. So `generate` returns (B, T + n), where n is *at most* the number that you ask for. [[stops]]

# %% rows=["S4-38", "S4-41"] evidence="stops"
three = torch.tensor([tokenizer.encode("\nOne sunny")] * 3)  # (3, T)
rules = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}
out = generate(model, three, 120, stop_ids=line_end, pad_id=line_end[0], generator=seeded(12), **rules)
ended = [row.index(line_end[0], 1) for row in out.tolist()]
print(f"asked for up to {three.shape[1] + 120}, got {tuple(out.shape)}; the texts end at {ended}")
assert out.shape[1] == max(ended) + 1

# %% [markdown] slide="subslide"
# ### How many stories are right?
# We draw whole stories, and let StoryWorld say which ones are impossible.


# %%
def write_stories(n: int, seed: int, starts=None, **rules) -> list[str]:
    if starts is None:
        starts = torch.tensor([line_end] * n)  # (n, 1)
    out = generate(model, starts, 128 - starts.shape[1], stop_ids=line_end, generator=seeded(seed), **rules)
    return [tokenizer.decode(row).strip().split("\n")[0] for row in out.tolist()]


def n_impossible(texts: list[str]) -> int:
    return sum(storyworld.parse(text).error_at is not None for text in texts)


# %% slide="skip"
at_one = {seed: write_stories(64, seed) for seed in (12, 13)}
per_word = wrong_at["no cut", 1]  # from section 2
n_words = len(exact) / len(stories)
impossible_part = n_impossible(at_one[12] + at_one[13]) / 128

# %% tags=["source-hidden"]
predict(
    f"In section 2, {100 * per_word:.1f} % of the probability of a word was wrong. A story has about {n_words:.0f} words. How many of 100 drawn stories are impossible?",
    key=lambda: "most of them" if impossible_part > 0.7 else "about a quarter",
    choices={
        "1 or 2": "That is how often one word is wrong. A story is impossible if any of its words is.",
        "about a quarter": "Estimate it: how probable is it that all words of a story are right?",
        "most of them": "",
    },
    because="All words must be right, and the probability of that is a product of many factors a little below 1.",
)

# %% evidence="wrong-stories"
print(f"estimate: {1 - (1 - per_word) ** n_words:.0%} impossible, if the words were independent")
for seed, texts in at_one.items():
    print(f"seed {seed}: {n_impossible(texts)} of {len(texts)} stories are impossible")
    assert n_impossible(texts) > 0.7 * len(texts)

# %% [markdown] slide="subslide"
# A small error per word is a large error per text. [[wrong-stories]] Which words are wrong? Strange ones, which a cut would remove? Or mix-ups, as in section 1? We look at the first impossible word of each story. Had the story said this word before? And for comparison: how probable was it that the *right* word there is one that had been said? The Reader of lesson 00 knows it exactly.


# %%
def said_before(text: str) -> bool:
    """Whether the first impossible word of a story occurs earlier in it."""
    before = storyworld.words(text[: storyworld.parse(text).error_at])
    return storyworld.words(text)[len(before)] in before


# %%
broken = [text for text in at_one[12] + at_one[13] if n_impossible([text])]
part_said = sum(map(said_before, broken)) / len(broken)
print(f"{part_said:.0%} of the first impossible words had been said before, as in:")
for text in broken[:3]:
    error_at = storyworld.parse(text).error_at
    print(f"   ...{text[max(0, error_at - 32) : error_at]} [{storyworld.words(text[error_at:])[0].strip()}]")


# %% slide="skip"
def right_said_before(text: str) -> float:
    """At the first impossible word: the exact probability of all words that occur earlier in the story."""
    before = storyworld.words(text[: storyworld.parse(text).error_at])
    reader = storyworld.Reader()
    for word in before:
        reader.read(word)
    return sum(p for word, p in reader.next_word_probs().items() if word in before)


# %% evidence="said-before"
part_right = sum(map(right_said_before, broken)) / len(broken)
print(f"of the exact probability at these positions {part_right:.0%} was on words that had been said before")
assert part_said > 0.8 and abs(part_said - part_right) < 0.15

# %% [markdown]
# Nearly all of the first wrong words repeat a word of the story, and so would nearly all right words at these positions. So the wrong words are not strange ones: the model writes a word of the story where another one belongs. [[said-before]]

# %% [markdown] tags=["note"]
# **Say.** Now the question that every user of a language model meets: should I turn the temperature down? We measure what it gives and what it takes.
#
# **Draw.** Two axes, variety to the right, impossible stories upwards. Mark the corner where one wants to be: at the bottom, on the right. Leave it empty until the last cell.
#
# **Ask.** "How would you get into that corner?" Collect proposals (a better model, a filter, rules); the last cell tries one.
#
# **Usual answers.**
# - *At a low temperature nearly nothing is wrong* (`nearly none`): this would be so if the wrong words were rare ones. Look at the tree again.
# - *The temperature does not matter at all* (`nearly as many`): at 0.5 we see no clear effect; at 0.1 we do.
# - *Min-p makes the stories correct* (from the room): at temperature 1 it cannot, because the wrong words are too probable.
#
# **Cut if short.** The openings and greedy decoding.

# %% [markdown] slide="slide"
# ## 4. Correct or varied?
# A lower temperature draws fewer unlikely words, and cuts remove them. What do they do to whole stories, and what to their **variety**? To measure variety we take eight stories at a time and count how many of their runs of four words are different.


# %% slide="skip"
def variety(text: str) -> float:
    """How many of the runs of four words are different, from 0 to 1."""
    said = storyworld.words(text)
    runs = [tuple(said[i : i + 4]) for i in range(len(said) - 3)]
    return len(set(runs)) / len(runs)


# %% slide="skip"
def in_eights(texts: list[str]) -> float:
    groups = [texts[i : i + 8] for i in range(0, len(texts), 8)]
    return sum(variety("\n".join(group)) for group in groups) / len(groups)


# %%
drawn = {"temperature 1": at_one[12], "temperature 1, again": at_one[13]}
for t in (0.1, 0.5, 2):
    drawn[f"temperature {t}"] = write_stories(64, seed=12, temperature=t)
drawn["temperature 0.1, again"] = write_stories(64, seed=13, temperature=0.1)
drawn["min-p 0.1"] = write_stories(64, seed=12, min_p=0.1)
source = seeded(12)
drawn["true stories"] = [storyworld.story(source).text for _ in range(64)]

# %% tags=["source-hidden"]
cold_part = n_impossible(drawn["temperature 0.1"]) / 64
predict(
    "At temperature 1 most of the stories are impossible. And at temperature 0.1?",
    key=lambda: "about half" if 0.4 < cold_part < 0.66 else "nearly none",
    choices={
        "nearly none": "That would be so if the wrong words were unlikely ones. Look at the tree of section 1 again.",
        "about half": "",
        "nearly as many": "There are clearly fewer than at temperature 1.",
    },
    because="A low temperature makes unlikely words rare, but many of the wrong words are likely ones.",
)

# %%
wrong_part_of = {name: n_impossible(texts) / 64 for name, texts in drawn.items()}
varied = {name: in_eights(texts) for name, texts in drawn.items()}
for name in sorted(drawn):
    print(f"{name:<22} {wrong_part_of[name]:4.0%} impossible, {varied[name]:.0%} of the runs are different")

# %% slide="skip" evidence="temperature-trades"
for again in ("", ", again"):
    assert wrong_part_of[f"temperature 0.1{again}"] + 0.1 < wrong_part_of[f"temperature 1{again}"]
    assert varied[f"temperature 0.1{again}"] < varied[f"temperature 1{again}"] < varied["temperature 2"]
assert wrong_part_of["true stories"] == 0 and wrong_part_of["temperature 2"] > 0.95
assert abs(wrong_part_of["min-p 0.1"] - wrong_part_of["temperature 1"]) < 0.1

# %% [markdown] slide="subslide"
# This is the **quality-diversity trade-off** ([Caccia et al. 2020](https://arxiv.org/abs/1811.02549)): at 0.1 fewer stories are impossible, and they vary less. At 2 they vary more than true stories, and hardly any is possible. Between 0.5 and 1 these few stories show no clear difference. (For other languages people or other models estimate the quality; here we can count.) Min-p 0.1 at temperature 1 changes hardly anything either, because it removes only unlikely words. [[temperature-trades]]

# %% [markdown] slide="subslide"
# ### An intervention: forbid what is impossible
# None of these settings gives stories that are as correct and as varied as true ones. We can force them to be correct. **Constrained decoding** removes every word that breaks a rule *before* the draw. The rules here are those of the `Reader`; in practice they are, for example, the grammar of JSON ([Willard and Louf 2023](https://arxiv.org/abs/2307.09702)).

# %% slide="skip"
from tinylm_lib.sampling import Context


# %% slide="subslide"
def constrained_stories(n: int, seed: int) -> list[str]:
    source = seeded(seed)
    readers = [storyworld.Reader() for _ in range(n)]
    context = Context(model, torch.tensor([line_end] * n), room=128)  # reads on with a cache (lesson 13)
    new = None
    columns = []
    # ESSENTIAL
    for _ in range(127):
        last = context.advance(new)  # (n, V)
        allowed = torch.zeros_like(last, dtype=torch.bool)
        for row, reader in zip(allowed, readers, strict=True):
            row[[tokenizer.ids[word] for word in reader.next_word_probs()]] = True
        next_probs = next_token_probs(last.masked_fill(~allowed, -torch.inf))
        new = sample(next_probs, source)  # (n)
        for token, reader in zip(new.tolist(), readers, strict=True):
            reader.read(tokenizer.decode([token]))
        columns.append(new)
    # END
    ids = torch.stack(columns, dim=1)  # (n, T)
    return [tokenizer.decode(row).split("\n")[0] for row in ids.tolist()]


# %% evidence="constrained"
drawn["constrained"] = constrained_stories(64, seed=12)
wrong_part_of["constrained"] = n_impossible(drawn["constrained"]) / 64
varied["constrained"] = in_eights(drawn["constrained"])
for name in ("temperature 1", "constrained", "true stories"):
    print(f"{name:<14} {wrong_part_of[name]:4.0%} impossible, {varied[name]:.0%} of the runs are different")
assert wrong_part_of["constrained"] == 0
assert abs(varied["constrained"] - varied["true stories"]) < 0.02

# %% tags=["source-hidden"] slide="subslide"
shown = ["temperature 0.1", "temperature 0.5", "temperature 1", "temperature 2", "constrained", "true stories"]
xs = [varied[name] for name in shown]
ys = [wrong_part_of[name] for name in shown]
places = [(12, -6, "left"), (-12, 0, "right"), (12, -8, "left"), (-14, -6, "right"), (-14, 0, "right"), (14, 0, "left")]
fig, ax = plt.subplots(figsize=(10.4, 5.6), layout="constrained")
ax.plot(xs[:4], ys[:4], marker="o", markersize=12, linewidth=1.5)
ax.plot(xs[4:], ys[4:], marker="D", markersize=12, color=figures.SERIES[2], linestyle="")
for name, x, y, (right, up, side) in zip(shown, xs, ys, places, strict=True):
    ax.annotate(name, (x, y), (right, up), textcoords="offset points", ha=side, size=17)
ax.set(title="Correct or varied?", xlabel="different runs of four words", ylabel="impossible stories")
ax.set(xlim=(0.8, 0.94), ylim=(-0.08, 1.08))
figures.display(
    fig,
    alt="Impossible stories over variety. Variety rises from temperature 0.1 to 2; impossible stories rise too, but not from 0.5 to 1. True stories and constrained ones are as varied as at temperature 1, with no impossible story.",
    caption="One wants to be at the bottom, on the right. The temperature moves along the blue line; the constraint leaves it.",
    table={"stories": shown, "different runs": xs, "impossible": ys},
    digits=2,
)

# %% [markdown] slide="subslide"
# No constrained story breaks a rule, and they vary like true ones. [[constrained]] So variety does not require mistakes. But the rules came from outside the model, and they only forbid: among the words that remain, the probabilities are still the model's.

# %% [markdown] slide="subslide"
# ### Is greedy decoding the safest?
# Temperature 0.1 gave fewer impossible stories than 1. Is 0 better still? Greedy decoding from an empty text writes one story 64 times, so we give it the first five words of 64 true stories, twice with different ones:

# %% evidence="greedy-openings"
for seed in (2, 3):
    source = seeded(seed)
    first_words = [tokenizer.encode("\n" + storyworld.story(source).text)[:6] for _ in range(64)]
    for t in (0, 0.1):
        texts = write_stories(64, seed, starts=torch.tensor(first_words), temperature=t)
        counted = n_impossible(texts)
        print(f"openings {seed}, temperature {t:<3}: {counted} impossible, {in_eights(texts):.0%} different runs")
        assert counted > 45 if t == 0 else counted < 45

# %% [markdown] slide="subslide"
# It is not: greedy decoding varies least *and* breaks more stories than temperature 0.1. [[greedy-openings]] These numbers do not show why.

# %% [markdown] tags=["note"]
# **Say.** Greedy decoding looks one word ahead. Beam search looks further, with a few candidates at a time.
#
# **Draw.** The tree of *red* and *old* with its six ends. Cross out what a search with two beams drops.
#
# **Ask.** After the eight beams: "What would you change to get eight different stories?" (Sample; or punish beams that are alike.)
#
# **Usual answers.**
# - *About 50 %* (`about 50 %`): they are more alike than that, because most of them grew from one beam.
# - *Each beam continues with its own best word* (`one token each`): two continuations of one beam may beat both of another, so rank all of them together.
# - *Multiply the probabilities* (`underflows`): after some hundred words the product is 0 in the computer. Add logarithms.
# - *Append the token to the list* (`one list for all`): then beams that share the list change, too.
#
# **Cut if short.** Long against short: say that sums favour short texts and that one divides by the length.

# %% [markdown] slide="slide" plan=80
# ## 5. Looking ahead: beam search
# Greedy decoding takes the best next word. Does that lead to the most probable *text*? By hand, for two words:

# %%
first = {"red": 0.6, "old": 0.4}
second = {"red": {"kite": 0.4, "hat": 0.3, "cup": 0.3}, "old": {"kite": 0.9, "hat": 0.05, "cup": 0.05}}
for a, p in first.items():
    for b, q in second[a].items():
        print(f"{a} {b}: {p * q:.2f}", end="   ")

# %% [markdown]
# Greedy decoding begins with *red* and ends at 0.24. *Old kite* has 0.36: a worse beginning with a better end. **Beam search** keeps several beginnings, the *beams*. At each step every beam grows by every word, and only the best few of all the results continue. Probabilities of long texts become tiny, so it adds their logarithms.

# %% [markdown] slide="subslide"
# ### Your turn
# With one beam, your search is greedy decoding. With as many beams as there are texts, it finds the most probable one.


# %% tags=["exercise"] name="beam_search" minutes=16 difficulty=3 plan=110
def beam_search(log_probs_fn, start, n_beams, n_steps):
    """start: a list of ints, the tokens to begin with. n_steps: how many tokens to add.

    log_probs_fn(tokens) takes the list of all tokens so far and returns a tensor (V), the natural log of the
    probability of each next token. No text ends early, and lengths are not normalized.
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
# The search starts with one beam, of log probability 0, because the start is given. All continuations are ranked *together*, because two of one beam may beat both of another. Common mistakes: `tokens.append`, which changes a list that other beams hold; to look at the last token only; a product of probabilities, which becomes 0 in a long text.

# %% [markdown] slide="subslide"
# ### Long against short
# Each word multiplies by less than 1, so longer texts are less probable, and a search for the largest product prefers texts that end early. Two texts, each word of both with 0.6:

# %% slide="skip"
import math

import tinylm_lib

# %%
for n in (2, 6):
    print(f"{n} words: {0.6**n:.2f}, log probability {n * math.log(0.6):.2f}, divided by {n}: {math.log(0.6):.2f}")

# %% [markdown]
# **Length normalization** compares the sum divided by a power of the number of words (after [Wu et al. 2016](https://arxiv.org/abs/1609.08144)). With power 0 nothing is divided, and with 1 it is the mean per word. The shipped model, with 8 beams, from the beginning of a story to the line end:

# %%
by_power = {}
for power in (0, 1, 2):
    by_power[power] = tinylm_lib.beam_search(
        model, torch.tensor(line_end), 127, 8, length_penalty=power, stop_ids=line_end
    )
    tokens, log_prob = by_power[power][0]
    n = len(tokens) - 1
    print(f"power {power}: the best has {n} tokens, {log_prob:.1f} nats in all, {log_prob / n:.2f} per token")

# %% [markdown]
# Power 1 chooses a slightly longer text that is less probable as a whole. Power 2 rewards length itself: its text runs to the limit of 127 tokens. (Stories here have similar lengths, so 0 and 1 differ little.)

# %% [markdown] slide="subslide"
# ### Are eight beams eight stories?

# %% slide="skip"
beams = [tokenizer.decode(tokens).strip() for tokens, _ in by_power[1]]
new_runs = {"drawn": variety("\n".join(at_one[12][:8])), "beams": variety("\n".join(beams))}

# %% tags=["source-hidden"]
predict(
    f"In eight drawn stories {new_runs['drawn']:.0%} of all runs of four words are different. And in the eight best beams of one search?",
    key=lambda: f"about {round(100 * new_runs['beams'] / 5) * 5} %",
    choices={
        "about 90 %": "That would be so if each story were drawn by itself.",
        "about 50 %": "They are more alike than that, because most of them grew from one beam.",
        "about 15 %": "",
    },
    because="Beams that differ early seldom survive, so those at the end are one story with small changes. Eight equal stories would still have an eighth.",
)

# %% evidence="beams-alike"
for name, part in new_runs.items():
    print(f"{name:<6} {part:.0%} of the runs are different")
print(f"impossible: {n_impossible(beams)} of the {len(beams)} beams")
print("the best beam:", beams[0])
assert new_runs["beams"] < 0.25 < 0.75 < new_runs["drawn"]

# %% [markdown]
# The eight beams are nearly one story. [[beams-alike]] So beam search is a poor way to get several different texts.

# %% [markdown] tags=["note"]
# **Say.** A search that works perfectly finds the text that the model rates highest. Is this the text that we want? Two reasons why not: the model is wrong somewhere, and the most probable text is not typical.
#
# **Draw.** A curve of true probabilities with a flat maximum, and over it the model's curve, a little wrong everywhere. The highest point of the second curve is at an error.
#
# **Ask.** How can a score be higher than that of the most probable story of all? (Only if the model is wrong about it.)
#
# **Usual answers.**
# - *A wider search finds better stories* (`scores rise, and most are possible`): it finds higher scores, and the score is what the model believes.
# - *The scores stay the same* (`scores stay the same`): a wider search compares more texts.
# - *All heads is impossible* (from the room): it is the most probable of all sequences, but there is only one of it.
#
# **Cut if short.** The three other openings.

# %% [markdown] slide="slide" plan=80
# ## 6. Does a wider search find better stories?
# Eight beams were our choice. To judge the scores of other widths we need the log probability of the most probable story of all, and StoryWorld knows it:

# %% slide="skip"
from functools import cache

from tinylm_lib import next_token_loss
from tinylm_lib.storyworld import CLASSES, DIFFERENT, Scene, options


# %% tags=["source-hidden"] slide="skip"
@cache
def highest(scene: Scene) -> float:
    """The log probability of the most probable way from a scene to the end of the story."""
    ways = []
    for way in options(scene):
        new_slots = [slot for slot in way.slots if slot.new]
        picked = sum(math.log(len(CLASSES[slot.new]) - (slot.role in DIFFERENT)) for slot in new_slots)
        rest = highest(way.then) if way.then.name != "opening" else 0.0
        ways.append(math.log(way.p) - picked + rest)
    return max(ways)


# %%
ceiling = highest(Scene())
source = seeded(12)
true = torch.tensor([storyworld.story(source).log_prob for _ in range(1000)])
assert true.max() < ceiling + 1e-3
print(f"the most probable story: {ceiling:.1f} nats; 1000 true stories: {true.mean():.1f} nats on average")

# %% slide="skip"
widths = {}
for n_beams in (1, 2, 4, 16, 32):
    widths[n_beams] = tinylm_lib.beam_search(model, torch.tensor(line_end), 127, n_beams, stop_ids=line_end)
widths = dict(sorted({**widths, 8: by_power[1]}.items()))  # the search of section 5
top_scores = {n_beams: max(log_prob for _, log_prob in found) for n_beams, found in widths.items()}
stories_found = {n: [tokenizer.decode(tokens).strip() for tokens, _ in found] for n, found in widths.items()}

# %% tags=["source-hidden"]
predict(
    "We search with 1, 2, 4, 8, 16 and 32 beams. What becomes of the stories?",
    key=lambda: (
        "scores rise, many stay impossible"
        if top_scores[32] > top_scores[1] and n_impossible(stories_found[32]) > 8
        else "scores rise, and most are possible"
    ),
    choices={
        "scores rise, and most are possible": "The score is what the model believes, and the model makes mistakes.",
        "scores rise, many stay impossible": "",
        "scores stay the same": "A wider search compares more texts, so it usually finds one with a higher score.",
    },
    because="The search maximizes the model's score, and a score above that of every possible story is an error of the model.",
)

# %%
for n_beams, texts in stories_found.items():
    best_one = "impossible" if n_impossible(texts[:1]) else "possible"  # the first beam: best per token
    counted = f"{n_impossible(texts):>2} of {len(texts):>2} impossible, the best per token is {best_one}"
    print(f"{n_beams:>2} beams: highest score {top_scores[n_beams]:.1f}, {counted}")

# %% slide="skip" evidence="wider-beams"
assert min(top_scores.values()) > ceiling + 0.5
assert max(top_scores[1], top_scores[2]) + 0.3 < min(top_scores[n] for n in (4, 8, 16, 32))
assert n_impossible(stories_found[16] + stories_found[32]) > 24

# %% [markdown] slide="subslide"
# Wider searches find higher scores than one or two beams do, though not at every doubling, and the stories do not become correct. *Every* highest score, even with one beam, lies above -65.3, the log probability of the most probable story. [[wider-beams]] In StoryWorld no text has such a probability, so such a score is an error of the model and not a success of the search ([Stahlberg and Byrne 2019](https://arxiv.org/abs/1908.10090) separate *model errors* from *search errors*). How does the model score true stories?


# %% slide="skip"
def model_log_prob(text: str) -> float:
    ids = torch.tensor([tokenizer.encode("\n" + text + "\n")])  # (1, T)
    return -next_token_loss(model(ids[:, :-1]), ids[:, 1:]).item() * (ids.shape[1] - 1)


def overrated(texts: list[str]) -> float:
    """How far the model's log probability lies above the exact one, in nats, on average over possible stories."""
    return sum(model_log_prob(text) - storyworld.log_prob(text) for text in texts) / len(texts)


# %%
all_beams = [text for texts in stories_found.values() for text in texts]
possible_beams = [text for text in all_beams if not n_impossible([text])]
of_true = overrated(drawn["true stories"])
of_beams = overrated(possible_beams)
print(f"model minus exact: {of_true:+.1f} nats for true stories, {of_beams:+.1f} nats for possible beams")

# %% evidence="overrated"
assert of_true < -1 and of_beams > 1
for beginning in ("One sunny morning, bold Victor", "One rainy day, brave Noah", "One warm evening, kind Mia"):
    prompt = torch.tensor(tokenizer.encode("\n" + beginning))  # (T)
    search = tinylm_lib.beam_search(model, prompt, 127 - len(prompt), 16, stop_ids=line_end)
    whole = [tokenizer.decode(tokens).strip() for tokens, _ in search]
    most = max(map(model_log_prob, whole))
    gap = overrated([text for text in whole if not n_impossible([text])])
    assert gap > 1 and most > ceiling + 0.5 and n_impossible(whole) > 2 and not n_impossible(whole[:1])
    print(
        f"{beginning}: highest score {most:.1f}, {n_impossible(whole)} of {len(whole)} impossible, possible ones {gap:+.1f}"
    )

# %% [markdown]
# The model underrates true stories on average. (Over very many stories it must: the mean difference is then minus the KL divergence.) But it overrates the beams, even the possible ones, because a search picks the highest of many scores, and these tend to have an upward error: *search seeks out the model's errors*. The three other openings agree. There the best beam per token is a possible story, so a wide search does not always end badly. [[overrated]]

# %% [markdown] slide="subslide"
# ### The most probable is not typical
# There is a second reason why the most probable text is not what people write. Throw a bent coin 1000 times; it lands on heads with probability 0.6. The most probable single sequence is *all heads*. How probable are the sequences that really come?

# %% evidence="bent-coin"
p_heads, throws = 0.6, 1000
n_heads = (torch.rand(1000, throws, generator=seeded(12)) < p_heads).sum(1)  # (1000), in each of 1000 sequences
sequences = n_heads * math.log(p_heads) + (throws - n_heads) * math.log(1 - p_heads)  # (1000), log probabilities
all_heads = throws * math.log(p_heads)
middle = throws * (p_heads * math.log(p_heads) + (1 - p_heads) * math.log(1 - p_heads))
print(f"all heads: {all_heads:.0f} nats; typical: {middle:.0f}; the highest of 1000 sequences: {sequences.max():.0f}")
assert sequences.max() < all_heads - 100 and abs(sequences.mean() - middle) < 1

# %% tags=["source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(10.4, 4.8), layout="constrained")
heights, edges, _ = ax.hist(sequences.tolist(), bins=20, color=figures.SERIES[0])
ax.axvline(all_heads, color=figures.SERIES[1], linewidth=3, linestyle="-")
ax.text(all_heads - 3, heights.max() * 0.9, "all heads", color=figures.SERIES[1], ha="right", size=18)
ax.text(middle + 25, heights.max() * 0.5, "what comes", color=figures.SERIES[0], size=18)
ax.set(title="The most probable is not typical", xlabel="log probability (nats)", ylabel="of 1000 sequences")
figures.display(
    fig,
    alt="Histogram of the log probabilities of 1000 sequences of 1000 throws, all near -673, and far to the right a line at -511: all heads.",
    caption=f"All heads is more probable than any sequence that came, by a factor of e to the {all_heads - sequences.max():.0f} or more. Yet nobody sees it, because it is a single sequence and there are so many typical ones.",
    table={"from": edges[:-1:4].tolist(), "sequences": heights.reshape(5, 4).sum(1).astype(int).tolist()},
)

# %% [markdown] slide="subslide"
# The sequences that come form the **typical set**: their log probability is near the average ([Shannon 1948](https://doi.org/10.1002/j.1538-7305.1948.tb01338.x)). [[bent-coin]] Do stories behave like this?

# %%
first_beam = storyworld.log_prob(beams[0])
at_least = (true >= first_beam - 0.01).float().mean()
print(
    f"the first of the 8 beams has exactly {first_beam:.1f} nats; {at_least:.0%} of 1000 true stories are as probable"
)

# %% [markdown]
# Only weakly. Most choices in StoryWorld are among equals, so some true stories are as probable as the result of the search. In long texts with uneven choices the gap grows with the length, as with the coin, and what people write is indeed not the text that a language model finds most probable ([Holtzman et al. 2020](https://arxiv.org/abs/1904.09751)).

# %% [markdown] slide="say"
# So which rule should you use? In translation, few answers are good, and search is common (Wu et al. 2016). Where many answers are good, sampling is usual (Holtzman et al. 2020). Choose the temperature and the cuts by a measurement like that of section 4.

# %% [markdown] tags=["note"]
# **Say.** One small mistake, which raises no error. Watch what it does to the probabilities.
#
# **Draw.** The curve of e to the x, with a point at 0 (height 1) and one far to the left (height nearly 0).
#
# **Ask.** Which logit gives a probability of exactly 0? (Only minus infinity does.)
#
# **Usual answers.**
# - *The five keep everything* (`about 100 %`): a logit of 0 is not a probability of 0, because e to the 0 is 1.
# - *The five have nothing* (`about 0 %`): their logits are well above 0.
#
# **Cut if short.** Only the prediction and its answer.

# %% [markdown] slide="slide"
# ## 7. Break it: cut to zero
# A cut sets probabilities to 0. If you cut *logits* instead, you must write $-\infty$, because e to the $-\infty$ is 0. A common mistake is to write 0 there, too. We keep the best five of the names after *brave*:

# %%
wide_logits = logits_after("One rainy day, brave")  # (V)
best_five = wide_logits >= wide_logits.topk(5).values[-1]
cut_right = wide_logits.where(best_five, -torch.inf).softmax(-1)
cut_wrong = wide_logits.where(best_five, 0.0).softmax(-1)
print("five logits:", [f"{x:.1f}" for x in wide_logits[best_five].tolist()], f"and {(~best_five).sum()} that are cut")

# %% tags=["source-hidden"]
predict(
    "With 0 for the cut logits, how much probability do the five names have together?",
    key=lambda: f"about {5 * round(20 * cut_wrong[best_five].sum().item())} %",
    choices={
        "about 0 %": "Their logits are well above 0, and each counts with e to its logit.",
        "about 35 %": "",
        "about 100 %": "That would be so with minus infinity. A logit of 0 is not a probability of 0, because e to the 0 is 1.",
    },
    because="Each of the 340 cut words counts with e to the 0, which is 1, and each of the five with e to the 3.6, about 37.",
)

# %% evidence="cut-to-zero"
for name, cut_probs in (("-inf", cut_right), ("0", cut_wrong)):
    print(f"cut logits set to {name:>4}: the five names have {cut_probs[best_five].sum():.2f}")
print(f"before any cut they have {wide_logits.softmax(-1)[best_five].sum():.2f}")
assert cut_right[best_five].sum() > 0.999 and cut_wrong[best_five].sum() < 0.5

# %% [markdown]
# Without any error message, the words that should be impossible have most of the probability. [[cut-to-zero]] A count of draws finds such a mistake at once, because a word that is cut must never be drawn.

# %% [markdown] tags=["note"]
# **Say.** Three things that you need when you write a sampler or use one: a test, a remedy against repetition with its side effect, and what `generate` does at its limits. Choose.
#
# **Draw.** The expected counts as four bars, each with a whisker of one root of its height.
#
# **Ask.** "A sampler forgets the temperature. Its texts look fine. How would you notice?" (Count.)
#
# **Usual answers.**
# - *Not at all* (`not at all`): chance does not keep accounts; two runs of 10,000 differ.
# - *About 400* (`about 400`): chance evens out more than that; the root of the expected count is a good guess.
# - *The same seed gives the same text* (`yes`): it repeats a run, with the same batch.
# - *A repetition penalty only removes repetition* (from the room): it also punishes names that must come back.
#
# **Cut if short.** Everything after the test of the sampler.

# %% [markdown] slide="slide" plan=110
# ## 8. For engineers
# ### Is it drawn right?
# A sampler with a mistake still writes texts, and they look fine. To find the mistake, **count** many draws and compare with the probabilities.

# %% tags=["source-hidden"]
expected = 10_000 * probs[chosen[1]].item()
predict(
    f"We draw 10,000 words after Then and expect Kira {expected:,.0f} times. How far off will the count typically be?",
    key=lambda: f"about {round(expected**0.5, -1):.0f}",
    choices={
        "not at all": "Chance does not keep accounts.",
        "about 40": "",
        "about 400": "That would be a quarter of them. Chance evens out more than that.",
    },
    because="The standard deviation of a count is at most the root of the count that we expect.",
)


# %% slide="skip"
def four_parts(distribution: torch.Tensor) -> torch.Tensor:
    """The probabilities of they, Kira, Noah and all others, (4)."""
    three_words = distribution[chosen]  # (3)
    return torch.cat((three_words, 1 - three_words.sum(0, keepdim=True)))


# %%
def distances(drawn_with: torch.Tensor, n: int, seed: int) -> torch.Tensor:
    """How far n draws are from the counts that the model's distribution predicts, in roots of these counts."""
    counts = torch.bincount(sample(drawn_with.expand(n, -1), seeded(seed)), minlength=4)  # (4)
    hoped = n * four_parts(probs)  # (4)
    return (counts - hoped) / hoped.sqrt()


def n_alarms(drawn_with: torch.Tensor, n: int) -> int:
    return sum(int(distances(drawn_with, n, seed).abs().max() > 3) for seed in range(20))


# %% evidence="counted"
as_it_should_be = four_parts(probs)
too_cold = four_parts(next_token_probs(logits[None], temperature=0.9)[0])
for n in (100, 1000, 10_000, 100_000):
    fine, wrong = n_alarms(as_it_should_be, n), n_alarms(too_cold, n)
    print(f"{n:>7,} draws, alarms in 20 runs: {fine:>2} where all is right, {wrong:>2} at temperature 0.9")
    assert fine <= 2
assert n_alarms(too_cold, 10_000) > 15

# %% [markdown] slide="subslide"
# Somebody left a temperature of 0.9 in the code. The alarm is a distance above 3 **roots of the expected count**, which is about 3 standard deviations for a rare word (and more for a frequent one). The more draws, the smaller the mistakes that are found. [[counted]] Two tests need no statistics: a word that is cut must never be drawn, and at temperature 0 all draws are equal.

# %%
only_three = next_token_probs(logits[None], top_k=3)
drawn_words = sample(only_three.expand(10_000, -1), seeded(12))
assert set(drawn_words.tolist()) == set(chosen)
assert len(sample(next_token_probs(logits[None], temperature=0).expand(1000, -1)).unique()) == 1

# %% [markdown] slide="subslide"
# ### Another way to draw
# The **Gumbel-max trick** draws without any softmax: add random noise to the logits, $-\ln(-\ln u)$ with $u$ uniform from 0 to 1, and take the largest. Is that the same distribution? Count:

# %% evidence="gumbel"
u = torch.rand(100_000, len(chosen), generator=seeded(12), dtype=torch.float64)  # (N, 3)
noise = -(-u.log()).log()
winners = (logits[chosen] + noise).argmax(-1)  # (N)
by_gumbel = torch.bincount(winners, minlength=3) / len(winners)  # (3)
by_softmax = logits[chosen].softmax(-1)  # (3)
print("Gumbel-max", [f"{x:.3f}" for x in by_gumbel.tolist()], "softmax", [f"{x:.3f}" for x in by_softmax.tolist()])
torch.testing.assert_close(by_gumbel, by_softmax, atol=0.006, rtol=0)

# %% [markdown]
# It agrees with softmax. [[gumbel]] (JAX's `random.categorical` draws like this.)

# %% [markdown] slide="subslide"
# ### Why does it repeat itself?
# Take a table of which word follows which (lesson 03) and let it write greedily:

# %% slide="skip"
from collections import Counter, defaultdict
from itertools import pairwise

# %%
follows = defaultdict(Counter)
for a, b in pairwise(tokenizer.encode(storyworld.corpus(2000, seed=12))):
    follows[a][b] += 1
chain = tokenizer.encode("\nOne")
for _ in range(30):
    chain.append(follows[chain[-1]].most_common(1)[0][0])
show_text(tokenizer.decode(chain))

# %% [markdown]
# It must repeat itself: each word determines the next one, so when a word comes a second time, everything after it comes again. A model with a longer memory needs a longer repeat to be caught. We let ours write story after story:

# %% slide="subslide" evidence="greedy-repeats"
print(f"the model reads the last {model.config.max_seq_len} tokens")
new_part = {}
for t in (0, 1):
    out = generate(model, torch.tensor([line_end]), 240, temperature=t, generator=seeded(12))
    text = tokenizer.decode(out[0].tolist()).strip()
    new_part[t] = variety(text)
    print(f"temperature {t}: {new_part[t]:.0%} of the runs are different. Openings:")
    for line in text.split("\n")[:2]:
        print("   ", line[:66])
assert new_part[0] < 0.85 < new_part[1]

# %% [markdown]
# In these 240 tokens, greedy decoding repeats more than sampling does. [[greedy-repeats]] A common fix is a **repetition penalty**: divide the logit of each word that has been said by 1.2, say ([Keskar et al. 2019](https://arxiv.org/abs/1909.05858)). A negative logit would rise, so common implementations multiply it. But stories must repeat names:

# %% evidence="penalty"
gift_part = {}
for penalty in (1, 1.2):
    said_ids = torch.tensor(tokenizer.encode(opening + " Then")).unique()
    old = logits[said_ids]
    lower = torch.where(old > 0, old / penalty, old * penalty)
    punished = logits.index_copy(0, said_ids, lower).softmax(-1)
    gift_part[penalty] = punished[chosen[1:]].sum().item()
    print(f"penalty {penalty}: Kira or Noah comes next with probability {gift_part[penalty]:.2f}")
assert gift_part[1.2] < gift_part[1] / 2

# %% [markdown]
# Both gifts begin with a name that has been said, so the penalty makes them much less likely, although nothing about them is repetitive. [[penalty]]

# %% [markdown] slide="subslide"
# ### Evaluation mode
# Greedy decoding is often called deterministic. On one machine, for the same batch, it is, once the model is in `eval()` mode: in training mode, dropout (where the model has it) removes other features at each call.

# %% slide="skip"
from tinylm_lib import TransformerLM, preset

torch.manual_seed(12)
toy = TransformerLM(preset("tiny_transformer", "tiny", max_seq_len=16))
toy_ids = torch.randint(500, (1, 8))  # (1, 8)

# %% rows=["S4-40"] evidence="dropout-off"
for mode in (True, False):
    toy.train(mode)
    outputs = {str(write(toy, toy_ids, 8, temperature=0)) for _ in range(4)}
    assert (len(outputs) == 1) == (not mode)
    print(f"training mode {mode}: do 4 runs agree? {len(outputs) == 1}")

# %% [markdown]
# The library's `generate` sets evaluation mode itself and restores the old mode afterwards. [[dropout-off]]

# %% [markdown] slide="subslide"
# ### The context limit
# This toy model reads at most 16 tokens. Our own loop fails there, and its words are lost. `generate` has three choices:

# %% evidence="context-limit"
for overflow in ("slide", "stop"):
    out = generate(toy, toy_ids, 20, overflow=overflow)
    assert out.shape[1] == (16 if overflow == "stop" else toy_ids.shape[1] + 20)
    print(f"{overflow}: asked for {toy_ids.shape[1]} + 20 tokens, got {out.shape[1]}")
for name, run in {
    "error": lambda: generate(toy, toy_ids, 20, overflow="error"),
    "our loop": lambda: write(toy, toy_ids, 20),
}.items():
    try:
        run()
    except ValueError as error:
        print(f"{name}: {error}")

# %% [markdown]
# By default it *slides*: it reads the last 16 tokens only and forgets what was before. Or it stops, or it refuses before it begins. [[context-limit]]

# %% [markdown] slide="subslide"
# ### Streams and seeds
# `stream` takes the same options as `generate` and yields each word as soon as it is drawn:

# %% slide="skip"
from tinylm_lib import stream

# %%
for new_ids in stream(model, start[:1], 24, generator=seeded(3)):
    print(tokenizer.decode(new_ids.tolist()), end="")

# %% [markdown] slide="say"
# A `torch.Generator` with a **seed** draws the same numbers each time. `torch.manual_seed` does so, too, but for everything in the program, so dropout and shuffling elsewhere change the numbers that you get.

# %% tags=["source-hidden"]
batches = [generate(model, start[:1].repeat(n, 1), 8, generator=seeded(12)) for n in (1, 2)]
predict(
    "One seed, two runs: a batch of one text, and a batch of two with the same beginning. Is the first text the same in both?",
    key=lambda: "yes" if torch.equal(batches[0][0], batches[1][0]) else "no",
    choices={"yes": "The numbers are the same. But who gets the second one?", "no": ""},
    because="All texts of a batch draw from one generator by turns.",
)

# %% evidence="seed-of-a-run"
for batch in batches:
    show_text({f"batch of {len(batch)}": "\n".join(tokenizer.decode(row).strip() for row in batch.tolist())})
assert not torch.equal(batches[0][0], batches[1][0])

# %% [markdown]
# A seed repeats a *run*, with the same model, options, batch and machine, but not a text. [[seed-of-a-run]]

# %% [markdown] slide="subslide"
# ### The library's version
# One function has all four rules. (`TINIEST` keeps `warmth` away from 0 and infinity; `values_at_hand` says whether numbers can be looked at without waiting for a GPU.) In `_beams`, all beams are one batch, and a cache remembers what was read (lesson 13).

# %% slide="skip"
from tinylm_classroom import show

torch.testing.assert_close(next_token_probs(logits[None], 0.7)[0], (logits / 0.7).softmax(-1))
show(next_token_probs, sample, tinylm_lib.beams._beams)

# %% [markdown] slide="skip"
# `sample` throws the dart of section 1 for every row at once: `cumsum` lays the probabilities side by side, and `searchsorted` finds the word in whose piece the dart lands. It computes in fp64, because in a large vocabulary the rounding of fp32 would change how often rare words come.

# %% [markdown] tags=["note"]
# **Say.** A model gives a distribution. How you write with it is your choice, and you can measure what the choice costs.
#
# **Draw.** The tree once more. Let the class show on it what each rule does: temperature, a cut, greedy decoding, two beams, a constraint.
#
# **Ask.** Your model writes correct but boring texts. What do you try, and what do you measure? (A higher temperature with min-p; the errors and the variety of whole texts, over several seeds.)
#
# **Usual answers.**
# - *A lower temperature makes a text correct*: it makes unlikely words rare; likely mistakes stay.
# - *A wider search is always better*: it finds higher scores, and these can be errors of the model.
#
# **Cut if short.** Read the first sentence of each point. With the shortest plan pass over what belongs to sections 5, 6 and 8.

# %% [markdown] slide="slide"
# ## What you have now
# - All texts that a model can write are a tree, and the height of a box is the probability of its text. Greedy decoding follows its upper edge; sampling draws a text as often as its box is high. This model gives much probability to impossible texts, [[tree]] because it mixes up who has what. [[gifts]]
# - Temperature, top-k, top-p and min-p change the distribution that we draw from, and their order matters. [[one-order]] A cut removes unlikely words, so it helps most at a high temperature and hardly helps against likely mistakes. [[cuts-judged]]
# - A small error per word is a large error per text. [[wrong-stories]] Most of the first impossible words had been said in the story before. [[said-before]]
# - Temperature 0.1 gave fewer impossible stories and less variety than 1, but greedy decoding was not the safest. [[temperature-trades]] [[greedy-openings]] Constrained decoding removed all impossible stories and kept the variety. [[constrained]]
# - A cut sets a logit to minus infinity, never to 0. [[cut-to-zero]]
# - Beam search finds texts that the model rates highly, and its best beams are nearly the same text. [[beams-alike]] Every highest score was above that of the most probable story, so it was an error of the model. [[wider-beams]] [[overrated]] With uneven choices, long drawn sequences lie far below the most probable one. [[bent-coin]]
# - For engineers: count draws to test a sampler [[counted]], draw with Gumbel noise [[gumbel]], and know what a penalty [[penalty]], training mode [[dropout-off]], the context limit [[context-limit]] and a batch [[seed-of-a-run]] do to a text.
#
# Next, lesson 13: writing a word without reading the whole text again.

# %% [markdown] slide="skip"
# ## Sources
# - Top-k: Fan, Lewis and Dauphin 2018, [*Hierarchical Neural Story Generation*](https://arxiv.org/abs/1805.04833).
# - Top-p: Holtzman et al. 2020, [*The Curious Case of Neural Text Degeneration*](https://arxiv.org/abs/1904.09751), section 3.1, and the whole paper on why the most probable text is dull.
# - Min-p: Nguyen et al. 2024, [*Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs*](https://arxiv.org/abs/2407.01082).
# - Constrained decoding: Willard and Louf 2023, [*Efficient Guided Generation for Large Language Models*](https://arxiv.org/abs/2307.09702).
# - Repetition penalty: Keskar et al. 2019, [*CTRL: A Conditional Transformer Language Model for Controllable Generation*](https://arxiv.org/abs/1909.05858), section 4.1.
# - Quality and diversity over temperatures: Caccia et al. 2020, [*Language GANs Falling Short*](https://arxiv.org/abs/1811.02549).
# - Model errors and search errors: Stahlberg and Byrne 2019, [*On NMT Search Errors and Model Errors: Cat Got Your Tongue?*](https://arxiv.org/abs/1908.10090).
# - Gumbel-max: Maddison, Tarlow and Minka 2014, [*A\* Sampling*](https://arxiv.org/abs/1411.0030), section 2.
# - Typical texts: Shannon 1948, *A Mathematical Theory of Communication*, section 7.
# - Length normalization: Wu et al. 2016, [*Google's Neural Machine Translation System*](https://arxiv.org/abs/1609.08144), section 7.
