# %% [markdown] deck="How does a list of probabilities become a text?"
# # 12 Sampling
# **How does a list of probabilities become a text?**
#
# *Needs* lessons 03, 10 and 11. *Builds* the rules of `probabilities.py` and the beam search of `beams.py`. *Runs* in about 30 s on two cores.
# *Teaches* in about 45 minutes, plus 34 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a model gives probabilities, and how to write with them is a decision of its own. Its picture is the tree of section 1, and every rule changes this tree: the temperature and the cuts change the heights of its boxes, greedy decoding follows its upper edge, beam search keeps a few of its branches.
# The best part is section 4: a low temperature makes stories possible more often, and not because the model makes fewer mistakes. Leave at least ten minutes for it.

# %% [markdown] tags=["note"]
# **Say.** The model never writes a word. It gives probabilities, and everything else is our decision. Today we look at these decisions, and at what each of them costs. (Noah has the basket, Kira the lamp. Each can give away only what he or she has.)
#
# **Usual answers.**
# - *Take the most probable word every time* (from the room): This is greedy decoding, the upper edge of the tree. It writes the same story every time.
# - *The model has learned the language, so nearly nothing is wrong* (`nearly nothing`): Nearly every word is right, but one wrong word spoils the sentence.
# - *Most of it is wrong* (`most of it`): A trade is always possible, because both things change hands, and a trade has half of the probability.
#
# **Cut if short.** The code of the dart; the control shows it.
#
# **Tried.** Three sets of 24 new stories: of the probability of gifts, 0.49 to 0.53, 0.49 to 0.52 and 0.48 to 0.51 are on impossible ones, so 72 of 72 are near one half. A second gift after a trade: 0.49 to 0.51 in 12 new stories; after a gift, where one person has both: 0.000 in 12 of 12. A quarter is this tree: in 16 others, 0.22 to 0.37 of the whole is impossible, because a trade has 0.26 to 0.55.

# %% [markdown]
# ## 1. Throw a dart
# A trained model gives each word of its vocabulary a probability to come next. Which one do we write? Here is the beginning of a story:
#
# > One rainy day, brave Noah strolled to Northgate. He carried a silver basket. There he met Kira, a sailor with a gray lamp. Noah sang to Kira, "Bright boats fall softly."
#
# The picture shows everything that the shipped model may write in the next six words.

# %%
import torch

from tinylm_classroom import control, decoding, predict
from tinylm_classroom import decoding_figures as figures
from tinylm_lib import next_token_probs, storyworld
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
opening = decoding.opening_of(storyworld.story(torch.Generator().manual_seed(12)).text)
tree = decoding.all_texts(model, tokenizer, opening, 6)


# %% tags=["source-hidden"] deck="A dart draws a text from the tree of all texts"
def throw(dart=0.1):
    figures.texts(tree, "Everything that the model may write next", dart=dart)


control(throw, dart=(0.1, 0.95, 0.05), frames=18)

# %% [markdown]
# Each column is one more word, and the height of a box is the probability of its whole text. The piece of *Then* is divided among *they*, *Kira* and *Noah*, each by its probability after *Then*, and so on. (Boxes too small to see are not drawn.)
#
# To write, throw a **dart** at the tree. It hits each text as often as its box is high: this is **sampling**. **Greedy decoding** takes the most probable word each time, so it follows the upper edge. **Your task:** throw the dart at 0.85, then read the beginning again. Can this story happen?

#
# (No: Kira has the lamp, so she cannot hand over the basket.) The dart in code, for the word after *Then*: lay the probabilities side by side on a line from 0 to 1, and find the word in whose piece the dart lands.

# %%
_ = torch.set_grad_enabled(False)  # nothing is trained here


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def logits_after(text):
    return model(torch.tensor([tokenizer.encode("\n" + text)]))[0, -1]  # (V)


# %% rows=["S2-11"] deck="A dart on the line from 0 to 1 draws a word"
logits = logits_after(opening + " Then")  # (V)
probs = logits.softmax(-1)  # (V)
assert probs.allclose(next_token_probs(logits[None])[0])
best = probs.argsort(descending=True)  # (V)
dart = 0.8  # try 0.1 and 0.9
# ESSENTIAL
ends = probs[best].cumsum(0)  # (V), where the piece of each word ends
for i, end in zip(best[:3], ends, strict=False):
    says = f"logit {logits[i]:.1f}, probability {probs[i]:.4f}"
    print(f"{tokenizer.decode([i])}: {says}, its piece ends at {end:.3f}")
print("the dart draws", tokenizer.decode([best[torch.searchsorted(ends, dart)]]))
# END

# %% tags=["source-hidden"] deck="How much of the probability is on impossible texts?"
wrong_part = sum(length for text, _, length in tree[-1] if not decoding.can_happen(text))
predict(
    "In how much of the tree does somebody give away what the other one has?",
    key=lambda: "in about a quarter" if 0.2 < wrong_part < 0.3 else "something else",
    choices={
        "in nearly nothing": "The model knows that somebody gives something away. Does it know who has what?",
        "in about a quarter": "",
        "in most of it": "A trade is always possible, and trades have half of the probability.",
    },
    because="Half of the probability is on gifts, and half of the gifts are of the other person's thing.",
)

# %% tags=["source-hidden", "signature"] deck="A quarter of the probability is on impossible stories"
figures.texts(tree, "A quarter of the probability is on impossible texts", possible=decoding.can_happen)

# %% [markdown]
# Is this story an exception? We take 24 others, with other people and things:

# %% tags=["source-hidden"] deck="24 stories: a wrong gift is as probable as a right one"
SEED = 12
gifts = decoding.wrong_gifts(model, tokenizer, 24, SEED)
figures.gifts(gifts)

# %% tags=["source-hidden"] evidence="gifts" tried="held-out"
# Checked: a quarter of this tree is impossible, and half of the gifts of every story, but none after a right gift.
ends = [text.removesuffix(" Afterwards") for text in decoding.with_events("a gift", 6, SEED)]
after = [decoding.all_texts(model, tokenizer, text, 7)[-1] for text in ends]
assert max(sum(p for text, _, p in texts if not decoding.can_happen(text)) for texts in after) < 0.05
assert 0.2 < wrong_part < 0.3 and sum(row[2] for row in tree[-1]) > 0.98 and 0.42 < min(gifts) <= max(gifts) < 0.6

# %% [markdown]
# Its gifts are not an exception: one of the wrong thing is about as probable as one of the right thing, as if the model threw a coin. After a gift one person has both, and then no wrong gift is probable: the model knows who was given something. It mixes up *which thing is whose*. [[gifts]] So these words are not rare slips: the model finds them probable. Keep this in mind when we cut off improbable words.

# %% [markdown] tags=["note"]
# **Say.** A temperature changes all probabilities, a cut sets some of them to 0. Both change the heights of the boxes; the words and their order come from the model.
#
# **Usual answers.**
# - *One word stays at top-p 0.6* (`1`, `cuts the crossing one`): 0.5 does not reach 0.6 yet. The word that crosses p stays.
# - *The sum is compared with p instead of the sum before the token* (`cuts the crossing one`): Then a best token of 0.95 would be cut at 0.9, and nothing would be left.
# - *The mask of the sorted row is used for the unsorted one* (`mask in sorted order`): Bring it back with `scatter`.
# - *Keep everything that is at least the k-th value* (`ties kept`): With equal tokens this keeps too many.
# - *Top-p 0.9 is always better than top-k 5* (from the room): Measure it. It loses fewer words, but this is a matter of k and p: top-k 50 loses none.
#
# **Cut if short.** The view.
#
# **Tried.** Four sets of 20 stories, about 2,080 words each. At temperature 1: 1.3 % wrong without a cut (1.25 to 1.35), 1.2 % with each of the cuts, so they remove 5 to 9 % of it. At temperature 2: 6.7 %, with top-k 1.8, top-p 2.8 to 2.9, min-p 1.2 to 1.3. Lost at temperature 1: top-k 12 %, top-p 1.5 %, min-p 0.0 %. Other settings at temperature 2 (20 new stories): top-k 20, 40, 50 leave 3.1, 4.0, 4.3 %, top-p 0.95 and 0.99 4.4 and 6.2, min-p 0.01 and 0.05 2.5 and 1.3. Whole stories at 2 (128 each): with top-p 0.9 127 are impossible, with top-k 5 117, with min-p 0.1 102; at 1: 78, 86 and 72 %.

# %% [markdown] deck="Three cuts: top-k, top-p, min-p"
# ## 2. One dial and three cuts
# Greedy decoding always writes the same text, and sampling sometimes draws a word that fits nothing: each such word is rare, but there are hundreds of them. Four rules are common:
#
# - **Temperature** divides the logits before softmax (lesson 03). Below 1 the probable words gain, above 1 the rare ones do. Temperature 0 is greedy decoding.
# - **Top-k** keeps the k most probable words.
# - **Top-p** (*nucleus sampling*) goes down from the most probable word and adds up the probabilities until the sum reaches p. The word that reaches p stays.
# - **Min-p** keeps every word that has at least min-p times the probability of the most probable one.
#
# A cut word has probability 0, and the others are divided by their sum, so that they sum to 1 again.

# %% tags=["source-hidden"] deck="How many words does top-p 0.6 keep?"
from tinylm_classroom import check, hint, keep, sampling_view

four = torch.tensor([0.5, 0.3, 0.15, 0.05])  # (4)
predict(
    "Four words have the probabilities 0.5, 0.3, 0.15 and 0.05. How many of them does top-p 0.6 keep?",
    key=lambda: int((next_token_probs(four.log()[None], top_p=0.6) > 0).sum()),
    number="words",
    within=0,
    feedback={
        1: "The best one alone has 0.5, and that does not reach 0.6 yet. The word that crosses stays.",
        3: "The first two words have 0.8 already.",
    },
    because="0.5 does not reach 0.6. With the second word the sum is 0.8: that word crosses, and stays.",
)

# %% tags=["source-hidden"] deck="The dial moves all probabilities, a cut sets some to 0"
figures.rules(four)

# %% [markdown]
# And the tree? **Your task:** go to temperature 0.1 and say what is left. Then go back to 2, where a good part of the tree is too small to see, and raise min-p. Do the impossible texts go away?


# %% tags=["source-hidden"] deck="Task: does min-p remove the impossible texts?"
def tree_at(temperature=2.0, min_p=0.0):
    levels = decoding.all_texts(model, tokenizer, opening, 6, temperature=temperature, min_p=min_p)
    title = f"Temperature {temperature:g}, min-p {min_p:g}"
    figures.texts(levels, title, possible=decoding.can_happen)


control(tree_at, temperature=[2.0, 1.0, 0.5, 0.1], min_p=[0.0, 0.1, 0.5], frames=12)

# %% [markdown]
# ### Your turn: two cuts
# The tokens are on the last axis, and each row is a distribution of its own. Do not change what you are given. `x.scatter(-1, ids, values)` is the reverse of lesson 03's `gather`: it returns a copy of x with the values written at the positions `ids` of the last axis.


# %% tags=["exercise"] name="top_k_probs" minutes=8 difficulty=2 deck="Your turn: top-k"
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

# %% slide="skip"
hint("top_k_probs")

# %% [markdown] tags=["solution"]
# `topk` returns values and their positions; `scatter` writes the values back there, into zeros. A comparison with the k-th value is shorter, but where tokens are equal it keeps too many with `>=` and too few with `>`.


# %% tags=["exercise"] name="top_p_probs" minutes=10 difficulty=3 deck="Your turn: top-p"
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

# %% slide="skip"
hint("top_p_probs")

# %% [markdown] tags=["solution"]
# A token stays if the sum *before* it is below p, so the best one always stays, and so does the one that crosses p. With the sum *including* it, a best token of 0.95 would be cut at p = 0.9, and nothing would be left. The mask belongs to the sorted row, so bring it back with `scatter` before you use it.

# %% [markdown]
# ### Break it: cut to zero
# You can also cut *logits*, before softmax. Then write $-\infty$, because e to the $-\infty$ is 0. A common mistake is to write 0 there, too. We keep the best five names after *brave*:

# %% deck="Cut logits to 0 instead of minus infinity, and the cut words win"
wide = logits_after("One rainy day, brave")  # (V)
best_five = wide >= wide.topk(5).values[-1]  # (V)
cut_to = 0.0  # try -100.0
# ESSENTIAL
for value in (-torch.inf, cut_to):
    five = wide.where(best_five, value).softmax(-1)[best_five].sum()
    print(f"cut logits set to {value:4}: the five names have {five:.2f}")
# END

# %% tags=["source-hidden"] evidence="cut-to-zero" tried="held-out"
# Checked after other beginnings: with 0 a word that is cut can be drawn, with minus infinity never.
for beginning in ("One", "One sunny", opening, opening + " Then", "One warm evening, kind Mia ran to"):
    row = logits_after(beginning)  # (V)
    out = row < row.topk(5).values[-1]
    assert row.masked_fill(out, -torch.inf).softmax(-1)[out].sum() == 0 < row.masked_fill(out, 0).softmax(-1)[out].sum()

# %% [markdown]
# No error is raised, and the five names lose most of the probability: each cut word counts with e to the 0, which is 1, and there are hundreds of them. [[cut-to-zero]] Count draws to find such a mistake: a word that is cut must never be drawn.
#
# ### Which cut?
# **Your task:** in this view the temperature is 2. Set min-p to 0: which words come in? Find a top-p that removes them.

# %% tags=["source-hidden"] deck="Task: set min-p to 0. Which other cut removes what comes in?"
sampling_view(model, tokenizer, "\n" + opening + " Then", temperature=2.0, min_p=0.1, seed=12)

# %% [markdown]
# After *Then* three words are possible, and top-k 5 keeps two that are not; after *brave* each of forty names is, and it keeps five. Top-p and min-p adapt to the distribution. What do they do on average? At every word of 20 stories we compare the model with StoryWorld: how much probability is on impossible words (*wrong*), and how much of the exact probability is on words that the cut forbids (*lost*)?

# %% deck="At temperature 1 no cut helps much, at 2 a narrow one does"
cuts = {"no cut": {}, "min-p 0.1": {"min_p": 0.1}}
cuts |= {f"top-k {k}": {"top_k": k} for k in (5, 50)}
cuts |= {f"top-p {p}": {"top_p": p} for p in (0.9, 0.95)}
scores, exact = decoding.judged(model, tokenizer, 20, SEED)  # (N, V) each


def judge(cut, temperature):
    """The mean probability per word that is wrong, and that is lost."""
    drawn_from = next_token_probs(scores, temperature, **cut)  # (N, V)
    wrong = drawn_from[exact == 0].sum() / len(exact)
    lost = exact[drawn_from == 0].sum() / len(exact)
    return wrong.item(), lost.item()


# ESSENTIAL
for name, cut in cuts.items():
    (wrong, lost), (hot, _) = judge(cut, 1), judge(cut, 2)
    print(f"{name:<10} {wrong:.1%} wrong, {lost:5.1%} lost; at 2: {hot:.1%} wrong")
# END

# %% tags=["source-hidden"] evidence="cuts-judged" tried="held-out"
# Checked: at temperature 1 each cut leaves most of what is wrong; at 2 a narrow one leaves less than half.
for cut, most in zip(list(cuts.values())[1:], (0.5, 0.5, 0.75, 0.5, 0.75), strict=True):
    assert judge(cut, 1)[0] > 0.85 * judge({}, 1)[0] and judge(cut, 2)[0] < most * judge({}, 2)[0]


# %% [markdown]
# At temperature 1 no cut helps much, because most of the wrong words are probable ones. At temperature 2 the rare words together have much more probability, and a narrow cut removes most of it; the usual top-k 50 and top-p 0.95 leave about two thirds. [[cuts-judged]] Only with min-p are there no more of them at 2 than at 1. Top-k 5 loses words that are right.

# %% [markdown] tags=["note"]
# **Say.** One word is drawn. For a text we append it and ask again. From here on the model reads its own words, mistakes included.
#
# **Usual answers.**
# - *1 or 2 of 100 stories* (`1 or 2`): This is per word. One wrong word makes the whole story impossible, and a story has about a hundred words.
# - *The wrong words are strange words* (from the room): The last cell looks. Nearly all of them have been said in the story before.
#
# **Cut if short.** The stop token; say that a line end stops a story.
#
# **Tried.** Seeds 12, 13 and 14, 64 stories each: 48, 55 and 53 are impossible, and 90, 95 and 98 % of the first impossible words had been said before; of the exact probability there, 94, 85 and 89 % is on such words. With 384 stories and six other seeds, 83 % are impossible. The wrong part is in few words (2 % of them have 90 % of it); with each word's own probability, 60 stories give 82 %.

# %% [markdown]
# ## 3. From a word to a text
# To write a text, append the new word and ask again. Here are the shapes of one step, for a batch of two texts:

# %%
from tinylm_classroom import show_text, trace
from tinylm_lib import generate
from tinylm_lib.probabilities import sample


def append_word(model, ids, generator, **rules):
    last = model(ids)[:, -1]  # (B, T) -> (B, T, V) -> (B, V)
    probs = next_token_probs(last, **rules)  # (B, V)
    new = sample(probs, generator)  # (B, V) -> (B)
    return torch.cat((ids, new[:, None]), dim=1)  # (B, T + 1)


start = torch.tensor([tokenizer.encode("\nOne sunny")] * 2)  # (B, T)
sizes = {"B": 2, "T": 3, "V": tokenizer.vocab_size}
trace(append_word, model, start, seeded(12), sizes=sizes)


# %% rows=["S4-39"]
def write(ids, n, seed, **rules):
    generator = seeded(seed)
    for _ in range(n):
        ids = append_word(model, ids, generator, **rules)
    return ids


seed = 12  # try 13 and 14
written = write(start, 12, seed)  # (B, T + 12)
assert written.equal(generate(model, start, 12, generator=seeded(seed)))
# ESSENTIAL
show_text([tokenizer.decode(row) for row in written.tolist()])
# END

# %% [markdown]
# The library's `generate` writes the same texts with the same seed. Writing differs from training (lesson 11) in three ways:
#
# 1. Training scores *all* positions of a text in one pass. Writing needs a pass for each word.
# 2. In training the model reads true words. When it writes, it reads **its own** words, mistakes included.
# 3. A training text has a known length. A written one ends at a **stop token**, here the line end, or at a limit. In a batch, a text that ends earlier is filled up, and a shorter prompt too, on its left.

# %% rows=["S4-38", "S4-41"]
line_end = tokenizer.encode("\n")
rules = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}
stop = {"stop_ids": line_end, "pad_id": line_end[0]}
out = generate(model, start, 120, generator=seeded(12), **rules, **stop)  # (B, T + n)
ends_at = [row.index(line_end[0], 1) for row in out.tolist()]
print(f"3 tokens and up to 120 new ones: {tuple(out.shape)}, line ends at {ends_at}")
drawn = decoding.finished(model, tokenizer, [""] * 64, SEED)  # 64 whole stories
n_wrong = decoding.n_impossible(drawn)

# %% [markdown]
# ### How many stories are right?
# In lesson 00 about four of five stories were impossible. Does a small error per word explain that? We draw 64.

# %% tags=["source-hidden"] deck="1.3 % of a word's probability is wrong. How many of 100 stories are impossible?"
n_words, per_word = len(exact) / 20, judge({}, 1)[0]
predict(
    f"In section 2, {100 * per_word:.1f} % of the probability of a word was wrong. A story has about {n_words:.0f} words. If each word is wrong that often, how many of 100 stories are impossible?",
    key=lambda: "most of them" if (1 - per_word) ** n_words < 0.4 else "about a quarter",
    choices={
        "1 or 2": "That is how often one word is wrong. A story is impossible if any of its words is.",
        "about a quarter": "Estimate it: how probable is it that all words of a story are right?",
        "most of them": "",
    },
    because="All words must be right, and the probability of that is a product of many factors a little below 1.",
)

# %% deck="A small error per word is a large error per story"
# ESSENTIAL
print(f"{1 - (1 - per_word) ** n_words:.0%} if every word had the same {per_word:.1%}")
print(f"{n_wrong} of {len(drawn)} stories are impossible")
# END
said, _ = decoding.said_before(drawn)
print(f"{said:.0%} of the first impossible words had been said before, as here:")
show_text([text for text in map(decoding.marked, drawn) if "[" in text][:1])

# %% tags=["source-hidden"] evidence="wrong-stories" tried="seeds"
# Checked with three seeds: most stories are impossible, and the first wrong word was said before.
SEEDS = (SEED, SEED + 1, SEED + 2)
for seed in SEEDS:
    texts = decoding.finished(model, tokenizer, [""] * 64, seed)
    part_said, part_right = decoding.said_before(texts)
    assert decoding.n_impossible(texts) > 0.62 * 64 and part_said > 0.8 and abs(part_said - part_right) < 0.25

# %% [markdown]
# A small error per word is a large error per text. The first wrong words are not strange ones: nearly all repeat a word of the story, where another word of the story belongs. [[wrong-stories]]

# %% [markdown] tags=["note"]
# **Say.** Every user of a language model meets this question: should I turn the temperature down? We measure what it gives and what it takes, and then ask why. Let the class collect reasons before the second picture.
#
# **Usual answers.**
# - *At a low temperature nearly nothing is wrong* (`nearly none`): This would be so if the wrong words were rare ones.
# - *The temperature does not matter* (`nearly as many`): There are clearly fewer, and the bars of the picture say how sure this is.
# - *It is more careful, so it makes fewer mistakes* (from the room): Give it the same events and count again.
# - *Greedy decoding must be the safest* (from the room): It writes nearly one story; with longer beginnings it is as safe as 0.1.
#
# **Cut if short.** The code of the constraint; keep its result.
#
# **Tried.** 384 stories at each temperature, six seeds (standard error 1.9 to 2.5 points): 57, 64, 70, 78 and 83 % impossible at 0.1, 0.3, 0.5, 0.7 and 1; variety 0.813 to 0.879, standard error 0.002. Stories with a trade and no gift: 98, 71, 41, 27 and 19 %. The same events, 768 beginnings of true stories (1.8 points): after a trade 55, 52, 52, 53 and 56 %, after a gift 68, 67, 65, 65 and 64 %. Top-p 0.9 at temperature 1: 76 %, min-p 0.1: 80 %. Colder still (192 new stories each): 55, 52, 59 and 74 % at 0.2, 0.1, 0.05 and 0.02, so below 0.1 nothing is gained. Per word of true stories, 1.22, 1.22 and 1.27 % are wrong at 0.1, 0.5 and 1. Greedy decoding, four sets of 64 beginnings of five words: 56, 52, 55 and 57 impossible. With true beginnings (20 words, 27 words, a trade, a gift; 640 stories): 395 impossible at 0, 388 at 0.1.

# %% [markdown]
# ## 4. Cold or warm?
# A lower temperature draws fewer improbable words. What does this do to whole stories, and what to their **variety**? For variety, take eight stories and count how many of their runs of four words are different (**distinct 4-grams**). 64 stories are not enough to see small differences, so a tool has written 384 at each temperature, and we draw 64 again.

# %% tags=["source-hidden"] deck="At temperature 1, 83 % of the stories are impossible. And at 0.1?"
dial = decoding.recorded("all", "temperature")[:5]
predict(
    f"At temperature 1, {dial[-1].part:.0%} of 384 stories are impossible. And at temperature 0.1?",
    key=lambda: "about half" if 0.45 < dial[0].part < 0.65 else "nearly none",
    choices={
        "nearly none": "That would be so if the wrong words were improbable ones. Look at the tree of section 1 again.",
        "about half": "",
        "nearly as many": "A low temperature does change something: there are clearly fewer.",
    },
    because="A low temperature makes improbable words rare, but most of the wrong words are probable ones.",
)

# %%
temperature = 0.1  # try 0.5 and 1.0
own = decoding.finished(model, tokenizer, [""] * 64, SEED, temperature=temperature)
own_variety = decoding.in_eights(own).mean()
print(f"{decoding.n_impossible(own)} of 64 impossible, variety {own_variety:.0%}")

# %% tags=["source-hidden"] deck="Colder: more often possible, and more alike"
(true,) = decoding.recorded("all", "true")
figures.trade_off(dial, {"true stories": true}, "Colder: more often possible, and more alike")

# %% tags=["source-hidden"] evidence="trade-off" tried="seeds"
# Checked: both rise from each temperature to the next but one; our own 64 agree with the record.
for colder, warmer in zip(dial, dial[2:], strict=False):
    assert colder.part + 2 * (colder.part_error + warmer.part_error) < warmer.part
    assert colder.variety + 2 * (colder.error + warmer.error) < warmer.variety
again = decoding.finished(model, tokenizer, [""] * 64, SEED, temperature=0.1)
assert abs(decoding.n_impossible(again) / 64 - dial[0].part) < 0.25 and decoding.in_eights(again).mean() < 0.85

# %% [markdown]
# This is the **quality-diversity trade-off** ([Caccia et al. 2020](https://arxiv.org/abs/1811.02549)): from 1 down to 0.1, more stories are possible, and they are more alike (81 % of the runs differ, not 88 %). [[trade-off]] No temperature is as varied *and* as correct as true stories.
#
# ### Why are cold stories possible more often?
# Does a cold model mix up less? The record says what the stories are about:

# %% deck="Cold stories are nearly all about a trade"
for run in dial:
    says = f"{run.part:.0%} impossible, {run.trades / run.n:.0%} with only a trade"
    print(f"temperature {run.value}: {says}")
events = ("a gift", "a trade")
given = {what: decoding.recorded(what, "temperature") for what in events}

# %% [markdown]
# *Then they traded their things* is the most probable sentence, because a gift can be told in many ways. So we let true stories begin, up to the end of their events, and the model continues at each temperature. Now all have the *same events*:

# %% tags=["source-hidden"] deck="With the same events, cold stories go wrong as often"
figures.same_events({"all stories": dial, "after a gift": given["a gift"], "after a trade": given["a trade"]})

# %% tags=["source-hidden"] evidence="same-events" tried="held-out"
# Checked: with the same events the temperatures are within 5 points, and per word of true stories within 0.2.
scores, exact = decoding.judged(model, tokenizer, 100, SEED)  # with 20 stories chance alone is 0.1 points
assert abs(judge({}, 0.1)[0] - judge({}, 1)[0]) < 0.002
for parts in ([run.part for run in runs] for runs in given.values()):
    assert max(parts) - min(parts) < 0.05 < 0.2 < dial[-1].part - dial[0].part
print("variety after a trade, from 0.1 to 1:", *(f"{run.variety:.0%}" for run in given["a trade"]))
assert dial[0].trades > 0.9 * dial[0].n > 0.3 * dial[0].n > dial[-1].trades

# %% [markdown]
# With the same events, a cold model goes wrong as often as a warm one. But these gifts were right. When the model writes, half of its gifts are already wrong (section 1), and no trade is. A low temperature does not know better who has what: it chooses the stories in which that matters less. [[same-events]] This also makes them alike: after a trade, variety is low at each temperature.
#
# ### Forbid what is impossible
# **Constrained decoding** removes every word that breaks a rule *before* the draw. Here the rules are StoryWorld's; in practice they are, for example, the grammar of JSON ([Willard and Louf 2023](https://arxiv.org/abs/2307.09702)). One step:


# %% deck="A constraint: the wrong thing is cut before the draw"
def allowed_only(text):
    """The probabilities after a text, with everything impossible cut."""
    reader = storyworld.Reader()
    for word in storyworld.words(text):
        reader.read(word)
    may = [tokenizer.ids[word] for word in reader.next_word_probs()]
    # ESSENTIAL
    cut = torch.full((tokenizer.vocab_size,), -torch.inf)  # (V)
    cut[may] = logits_after(text)[may]
    return cut.softmax(-1)  # (V)
    # END


begun = " Then Kira gave Noah the"  # try " Then Noah gave Kira the"
free, allowed = logits_after(opening + begun).softmax(-1), allowed_only(opening + begun)
for color in (" silver", " gray"):
    i = tokenizer.ids[color]
    print(f"{begun}{color}: {free[i]:.2f}, with the constraint {allowed[i]:.2f}")
(constrained,) = decoding.recorded("all", "constrained")
for run in (constrained, true):
    print(f"{run.rule}: {run.impossible} of 384 impossible, variety {run.variety:.0%}")

# %% tags=["source-hidden"] evidence="constrained" tried="seeds"
# Checked: no constrained story is impossible, recorded (six seeds) and drawn here; variety is that of true ones.
assert constrained.impossible == decoding.n_impossible(decoding.allowed_stories(model, tokenizer, 24, SEED)) == 0
assert abs(constrained.variety - true.variety) < 4 * (constrained.error + true.error)

# %% [markdown]
# No constrained story breaks a rule, and they vary like true ones. [[constrained]] So variety does not require mistakes. But the rules came from outside the model.
#
# ### Is greedy decoding the safest?
# If 0.1 is safer than 1, is 0 the safest? Alone, greedy decoding writes one story again and again, so we give it the first words of true stories, and count. Three of its stories are shown, with the sentence of the first impossible word:

# %% deck="Three greedy stories: what do you notice?"
n_shown = 3  # try 12
SEEDS = (2, 3)
counts = {}
for n, t in ((5, 0), (5, 0.1), (27, 0), (27, 0.1)):
    # ESSENTIAL
    texts = decoding.from_words(model, tokenizer, n, 64, SEEDS, temperature=t)
    # END
    if not counts:
        show_text([decoding.excerpt(text) for text in texts[:n_shown]])
    wrong = counts[n, t] = decoding.n_impossible(texts)
    n_things = len({decoding.first_thing(text) for text in texts})
    print(f"{n} words, at {t}: {n_things} things, {wrong} of 128 impossible")

# %% tags=["source-hidden"] evidence="greedy-repeats" tried="held-out"
# Checked: after five words 0 has more impossible stories than 0.1, after 27 it is within 18 of 128.
assert counts[5, 0] > counts[5, 0.1] + 18 and abs(counts[27, 0] - counts[27, 0.1]) < 18

# %% [markdown]
# From five words greedy decoding writes nearly one story, with the same baker, hat and box, so a few mistakes are counted many times. After 27 words, which name both things, 0 is about as safe as 0.1. [[greedy-repeats]]

# %% [markdown] tags=["note"]
# **Say.** Greedy decoding looks one word ahead. Beam search looks further, with a few candidates at a time. Cross out with the class what a search with two beams drops.
#
# **Usual answers.**
# - *About 50 %* (`about 50 %`): They are more alike than that, because most of them grew from one beam.
# - *Each beam continues with its own best word* (`one token each`): Two continuations of one beam may beat both of another, so rank all of them together.
# - *Multiply the probabilities* (`underflows`): After some hundred words the product is 0 in the computer. Add logarithms.
# - *Append the token to the list* (`one list for all`): Then beams that share the list change, too.
#
# **Cut if short.** The exercise is homework; show the tree and the eight beams.
#
# **Tried.** Eight beams from an empty text and from three beginnings: 15, 19, 15 and 15 % of the runs are different, where eight drawn stories with the same beginning have 75 to 89 %.

# %% [markdown]
# ## 5. Looking ahead: beam search
# Greedy decoding takes the best next word. Does that lead to the most probable *text*? A tree of two words:

# %% tags=["source-hidden"] deck="A worse beginning with a better end"
first = {" red": 0.6, " old": 0.4}
second = {" red": {" kite": 0.4, " hat": 0.3, " cup": 0.3}, " old": {" kite": 0.9, " hat": 0.06, " cup": 0.04}}
figures.texts(decoding.two_words(first, second), "A worse beginning with a better end", framed=[" old", " old kite"])

# %% [markdown]
# Greedy decoding begins with *red* and ends at 0.24. *Old kite* has 0.36: a worse beginning with a better end. **Beam search** keeps several beginnings, the *beams*. At each step every beam grows by every word, and only the best few of all the results continue. Probabilities of long texts become tiny, so it adds their logarithms.
#
# ### Your turn: beam search
# With one beam, your search is greedy decoding. With as many beams as there are texts, it finds the most probable one.


# %% tags=["exercise"] name="beam_search" minutes=16 difficulty=3 deck="Your turn: beam search"
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

# %% slide="skip"
hint("beam_search")

# %% [markdown] tags=["solution"]
# The search starts with one beam, of log probability 0, because the start is given. All continuations are ranked *together*, because two of one beam may beat both of another. Common mistakes: `tokens.append`, which changes a list that other beams hold; to look at the last token only; a product of probabilities, which becomes 0 in a long text.

# %% [markdown]
# ### Are eight beams eight stories?
# The library's search, with the shipped model, from the beginning of a story to its line end:

# %%
import tinylm_lib

begin = torch.tensor(line_end)  # (T)
found = tinylm_lib.beam_search(model, begin, 127, n_beams=8, stop_ids=line_end)
beams = [tokenizer.decode(tokens).strip() for tokens, _ in found]

# %% tags=["source-hidden"] deck="How many of the runs in eight beams are different?"
predict(
    f"In eight drawn stories {decoding.variety(drawn[:8]):.0%} of all runs of four words are different. And in the eight best beams of one search?",
    key=lambda: f"about {round(100 * decoding.variety(beams) / 5) * 5} %",
    choices={
        "about 15 %": "",
        "about 50 %": "They are more alike than that, because most of them grew from one beam.",
        "about 90 %": "That would be so if each story were drawn by itself.",
    },
    because="Beams that differ early seldom survive, so those at the end are one story with small changes. Eight equal stories would still have an eighth.",
)

# %% deck="Eight beams are one story"
letters = 120  # try 400
# ESSENTIAL
show_text([f"… {beam[-letters:]}" for beam in beams[:5]])
# END

# %% tags=["source-hidden"] evidence="beams-alike" tried="held-out"
print(f"{decoding.variety(beams):.0%} of the runs are different")
# Checked: also after three beginnings the beams are much more alike than drawn stories.
for beginning in ("", "One sunny morning, bold Victor", "One rainy day, brave Noah", "One warm evening, kind Mia"):
    ids = torch.tensor(tokenizer.encode("\n" + beginning))  # (T)
    search = tinylm_lib.beam_search(model, ids, 127 - len(ids), 8, stop_ids=line_end)
    alike = decoding.variety([tokenizer.decode(tokens).strip() for tokens, _ in search])
    assert alike < 0.3 < 0.6 < decoding.variety(decoding.finished(model, tokenizer, [beginning] * 8, SEED))

# %% [markdown]
# Eight beams are one story with small changes, so beam search is a poor way to get several texts. [[beams-alike]] It is common in translation, where few answers are good; where many are, one samples. What a wider search finds, and why the most probable text is not a typical one: *More*: [12 Decoding](more/12_decoding.ipynb).

# %% [markdown] tags=["note"]
# **Say.** A model gives a distribution. How you write with it is your decision, and you can measure what it costs.
#
# **Ask.** At the door: "Your model writes correct but boring texts. What do you try, and what do you measure?" (A higher temperature with min-p; the errors and the variety of whole texts, over several seeds.)
#
# **Usual answers.**
# - *A lower temperature makes a text correct* (from the room): It makes improbable words rare, and chooses easier events. Probable mistakes stay.
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="The model gives probabilities; how to write with them is your decision"
# ## What you have now
# - All texts that a model can write are a tree, and a dart draws one. While each person has one thing, a gift of the wrong one is as probable as of the right one. [[gifts]]
# - A narrow cut removes improbable words, so it helps at a high temperature; no cut helps much against probable mistakes. [[cuts-judged]]
# - A small error per word is a large error per text. [[wrong-stories]]
# - From temperature 1 down to 0.1, more stories are possible and they are more alike. [[trade-off]]
# - Both have one cause: cold stories are nearly all about a trade. With the same events they go wrong as often. [[same-events]]
# - At temperature 1, constrained decoding removes all impossible stories and keeps the variety. [[constrained]]
# - Greedy decoding from a short beginning repeats a few stories. [[greedy-repeats]]
# - Beam search looks further ahead than greedy decoding, but its best beams are nearly one text. [[beams-alike]]
# - A cut sets a logit to minus infinity, never to 0. [[cut-to-zero]]
#
# Next, lesson 13: writing a word without reading the whole text again.

# %% [markdown]
# ## Sources
# - Top-k: Fan, Lewis and Dauphin 2018, [*Hierarchical Neural Story Generation*](https://arxiv.org/abs/1805.04833).
# - Top-p: Holtzman et al. 2020, [*The Curious Case of Neural Text Degeneration*](https://arxiv.org/abs/1904.09751), section 3.1.
# - Min-p: Nguyen et al. 2024, [*Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs*](https://arxiv.org/abs/2407.01082).
# - Constrained decoding: Willard and Louf 2023, [*Efficient Guided Generation for Large Language Models*](https://arxiv.org/abs/2307.09702).
# - Quality and diversity over temperatures: Caccia et al. 2020, [*Language GANs Falling Short*](https://arxiv.org/abs/1811.02549).
# - Beam search and its lengths: Wu et al. 2016, [*Google's Neural Machine Translation System*](https://arxiv.org/abs/1609.08144), section 7.
