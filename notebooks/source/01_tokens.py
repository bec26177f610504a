# %% [markdown] slide="slide"
# # 01 Tokens
# **How does a text become numbers, and how well can the next one be guessed at best?**
#
# *Needs* 00. *Builds* the two steps of `bpe.py`: find the most common pair, merge it. *Runs* in about 15 s on two cores. *Teaches* in about 41 minutes, plus 20 of exercises.

# %%
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import torch

from tinylm_lib import storyworld
from tinylm_lib.classroom import check, figures, find_exercise, hint, keep, predict, show, token_view
from tinylm_lib.layers import Embedding
from tinylm_lib.text import TOKENIZERS, ByteTokenizer, CharTokenizer, WordTokenizer
from tinylm_lib.text import learn_merges, merge, pre_tokens, train_bpe

_ = torch.manual_seed(1)

# %% [markdown] slide="slide"
# ## 1. What is a token?
# A model computes with numbers. So a text is cut into pieces, the **tokens**, and each different piece gets a number, its **id**. How
# should we cut? Three plain ways, on one story.

# %%
text = storyworld.corpus(2000, seed=0)
story = storyworld.story(torch.Generator().manual_seed(1)).text
print(story)

# %%
for tokenizer in (TOKENIZERS[kind].from_text(text) for kind in ("bytes", "chars", "words")):
    ids = tokenizer.encode(story)
    assert tokenizer.decode(ids) == story
    first = [tokenizer.decode([i]) for i in ids[:6]]
    print(f"{tokenizer.kind:<6} {len(ids):>4} tokens, ids below {tokenizer.vocab_size:>3}: {ids[:6]} is {first}")

# %% [markdown]
# Each way gives the story back, letter by letter. With words it is a fifth as long, and a model needs fewer steps to read it. Notice that the blank
# belongs to the word after it: `' foggy'`. So the tokens joined are the text again, and nobody has to remember where blanks were.
#
# Now some words that StoryWorld does not know: an animal, a name, and a kite, in Chinese and as a picture.

# %%
for word in ("zebra", "Zoë", "风筝", "🪁"):
    ids = ByteTokenizer().encode(word)
    assert ByteTokenizer().decode(ids) == word
    print(f"{word}: characters {len(word)}, bytes {len(ids)}: {ids}")

# %%
for tokenizer in (CharTokenizer.from_text(text), WordTokenizer(text)):
    try:
        tokenizer.encode("One 风筝")
    except ValueError as error:
        print(f"{tokenizer.kind}: {error}\n")

# %% [markdown]
# A list of words, or of characters, ends somewhere. (Do you see boxes above? Then your fonts lack a character too; its bytes are there.) Bytes never refuse: UTF-8 writes every character of every script as one to four of 256
# bytes. But a sequence of bytes is long. Section 2 finds a way between.
#
# First, what is an id good for? It is the number of a **row** in a table of vectors, and the row is what the model reads.

# %% evidence="table-row" rows=["S1-4"]
V, C = 345, 4
embed = Embedding(V, C)
ids = torch.tensor([3, 10, 2, 6, 4])  # (T)
vectors = embed(ids)  # (T) -> (T, C)
assert vectors.shape == (5, C) and torch.equal(vectors[1], embed.weight[10])
row = ", ".join(f"{x:.2f}" for x in vectors[1].tolist())
print(f"the table is {tuple(embed.weight.shape)}; id 10 stands for its row 10: {row}")

# %% [markdown]
# The id itself says nothing: 10 is not more than 3. At the start the rows are random, so no word is like another yet. They are parameters, and are
# learned together with all the others. (A table of shape $(V, C)$ has the vectors as rows. You will find texts that say columns.)

# %% [markdown] tags=["note"]
# Ask why not simply words: names, typing errors, other languages, code. Ask why not simply bytes: attention costs grow with the length.
# To cut for a short class: the embedding cell; lesson 02 takes it up again.

# %% [markdown] slide="slide"
# ## 2. Growing tokens
# Start from bytes, so that no text is refused. Then make the sequence shorter: take the **two neighbours that occur most often** and give the pair
# a new id. Do it again, and again. This is *byte-pair encoding*, BPE. (Ours starts from bytes, as GPT-2's does; the BPE of Sennrich et al. 2016 starts from characters, and characters that it has not seen are unknown to it.)
#
# By hand, on a very short text:

# %%
byte_ids = list(b"a hat, that hat")
print(byte_ids)
print([chr(i) for i in byte_ids])

# %% [markdown]
# How often does `h` stand directly before `a`? We walk along and look at each pair of neighbours.

# %%
n = sum(pair == (ord("h"), ord("a")) for pair in pairwise(byte_ids))
print(f"h, a: {n} times, among {len(byte_ids) - 1} pairs of neighbours")

# %%
# the solutions, so that the lesson runs to its end before you have written yours
reference = {name: find_exercise(name).reference for name in ("most_common_pair", "bpe_merge_step")}

# %% [markdown]
# `a t` occurs as often: a tie. A tokenizer that breaks ties by chance, or by the order of a dictionary, gives two people two *vocabularies*, two lists of tokens with their ids. So every
# implementation needs a fixed rule for ties. Ours is: **of equally frequent pairs the greater one**, compared like words in a dictionary, first by the first id, then by the second.

# %% tags=["source-hidden"]
predict(
    "`h a` and `a t` both occur three times. Which pair wins?",
    key=lambda: "".join(map(chr, reference["most_common_pair"](byte_ids))),
    because="`h` is 104 and `a` is 97: the first ids differ, so they decide.",
    choices={
        "ha": "",
        "at": "Its second id is the greater one, but the first ids are compared first.",
        "both at once": "They overlap in `hat`: once `ha` is one token, `a t` is gone.",
    },
)  # fmt: skip

# %% [markdown]
# Now the general form, for any list of ids.


# %% tags=["exercise"] name="most_common_pair" minutes=10 difficulty=2
def most_common_pair(ids):
    """ids: a list of at least 2 int. Returns the pair (first, second) of neighbours that occurs most often.

    Of equally frequent pairs: the greater one. Overlapping pairs count, too: 5 5 5 holds the pair 5 5 twice.
    """
    # SOLUTION
    counts = Counter(pairwise(ids))
    return max(counts, key=lambda pair: (counts[pair], pair))
    # END


# %% tags=["check"] evidence="most-common"
_ = check("most_common_pair", most_common_pair)
hint("most_common_pair")

# %%
_ = keep("most_common_pair", most_common_pair)

# %% [markdown] tags=["solution"]
# `pairwise` walks along the neighbours, `Counter` counts them. The key of `max` is a tuple: the count first, and for equal counts the pair itself, which
# Python compares as we want. `counts.most_common(1)` is the usual slip: among equals it returns the one met first. Another is
# `zip(ids[::2], ids[1::2])`, which sees only every second pair.

# %% [markdown]
# Now merge. At one place it is a matter of slices: what comes before, the new id, what comes after the two.
# The new id is 256, the first number that is no byte.

# %%
i = byte_ids.index(ord("h"))
once = [*byte_ids[:i], 256, *byte_ids[i + 2 :]]
print(once)
assert len(once) == len(byte_ids) - 1

# %% [markdown]
# All places at once, please, from left to right, and no id may be used twice: in 5 5 5 the first two become one, and the third stays.
# The pair comes as a tuple, and in Python a list never equals a tuple: `[5, 5] == (5, 5)` is `False`.


# %% tags=["exercise"] name="bpe_merge_step" minutes=10 difficulty=2
def bpe_merge_step(ids, pair, new_id):
    """Returns a new list: ids with new_id in place of every occurrence of pair, from left to right.

    ids: a list of int, which stays as it is. pair: a tuple of two int. Occurrences that overlap: the left one is merged.
    """
    # SOLUTION
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == tuple(pair):
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged
    # END


# %% tags=["check"]
_ = check("bpe_merge_step", bpe_merge_step)
hint("bpe_merge_step")

# %%
_ = keep("bpe_merge_step", bpe_merge_step)

# %% [markdown] tags=["solution"]
# Two cases at each place: the pair begins here, and we go on by two, or it does not, and we copy one id. At the last id the slice has only one
# element, so it equals no pair and the id is copied. The usual slips: `range(len(ids) - 1)` loses the last id, `for` cannot skip what a merge
# has used, and `ids.remove` changes the caller's list.

# %% [markdown]
# **The library's version** does the same with the bytes themselves in place of ids: `learn_merges` finds the pairs, `merge` joins them. `learn_merges`
# counts anew only where something has changed, and so is fast on long texts; it is told how often each text occurs, ours once: the 1 below. `merge`, shown below, is
# your second exercise. We compare the first merge, of single bytes: the library, the solution of the exercises, and your functions as soon as they are written.


# %%
def first_merge(find_pair: Callable, merge_pair: Callable) -> list[bytes]:
    """The pieces of the short text after its first merge."""
    pair = find_pair(byte_ids)
    ids_after = merge_pair(byte_ids, pair, 256)
    return [bytes(pair) if i == 256 else bytes([i]) for i in ids_after]


# %%
(first_pair,) = learn_merges({"a hat, that hat": 1}, n_merges=1)
library = merge([bytes([i]) for i in byte_ids], first_pair)
print("the library:", library)
assert first_merge(reference["most_common_pair"], reference["bpe_merge_step"]) == library
try:
    print("yours agrees:", first_merge(most_common_pair, bpe_merge_step) == library)
except NotImplementedError:
    print("yours is still to be written")

# %%
show(merge)

# %% [markdown]
# (From the second merge on they may differ where there is a tie: the library compares the bytes of the tokens, not their ids, because ids depend on
# who came first and bytes do not.)
#
# Watch it grow:

# %%
tokens = [bytes([i]) for i in byte_ids]
for a, b in learn_merges({"a hat, that hat": 1}, n_merges=4):
    tokens = merge(tokens, (a, b))
    print(f"{(a + b).decode()!r:>7} is new: {'|'.join(token.decode() for token in tokens)}")

# %% [markdown] tags=["note"]
# Half of the lesson with both exercises. In a short class solve most_common_pair together and leave bpe_merge_step as homework: everything after it
# uses the library's version. Common wrong answers: `Counter.most_common` for ties, a `for` loop that merges 5 5 5 twice.

# %% [markdown] slide="slide"
# ## 3. Where merges stop
# One of the steps above has joined a blank to the word after it. On a longer text this goes on, and nothing stops it at the end of a word. Let us
# look at the first merges of the stories, cut nowhere:

# %%
sample = text[:20_000]
crossing = [(a + b).decode() for a, b in learn_merges({sample: 1}, n_merges=30)]
print(crossing)

# %% [markdown]
# `'e '` is the end of a word and a blank, `' the '` a word with both its blanks, `'. '` a mark and the blank of the next word. Such tokens join the end of a word with the word after it, so one word occurs in many
# tokens that have nothing in common. So the text is first cut into **pre-tokens**, and no merge crosses a cut. The pattern is the one of GPT-2 (Radford et al. 2019). A pre-token is
#
# - an ending such as *'s* or *'ll*,
# - or a run of letters, of digits or of marks, with the one blank before it,
# - or a run of blanks or line ends that is left over, such as the line end between two stories.

# %% evidence="within-words"
print(pre_tokens("Mia's kite flew 300 feet... 风筝!"))
inside = [(a + b).decode() for a, b in learn_merges(Counter(pre_tokens(sample)), n_merges=30)]
print(inside)
assert any(" " in token[1:] for token in crossing)
assert not any(" " in token[1:] for token in inside)

# %% [markdown]
# In these tokens there is a blank only at the beginning, and no token goes beyond the end of a word. [[within-words]] `learn_merges` works on counts: it gets each different pre-token once, with how often it
# occurs, which is why learning from a large text takes seconds. `train_bpe(text, n)` does all of this; n is the number of ids in total, the bytes
# among them, so 256 means no merge at all.

# %%
n_tokens = {n: len(train_bpe(text, n).encode(story)) for n in (256, 300, 400, 600, 1000)}
for n, tokens in n_tokens.items():
    print(f"{n:>5} ids: our story takes {tokens} tokens")

# %% evidence="any-text"
bpe = train_bpe(text, 600, special_tokens=["<|end|>"])
for word in (" the", " umbrella", " umbrellas", " Zoë", " 风筝"):
    ids = bpe.encode(word)
    assert bpe.decode(ids) == word
    print(word, "->", [bpe.vocab[i] for i in ids])
for seed in range(3):
    numbers = torch.randint(32, 0xD800, (50,), generator=torch.Generator().manual_seed(seed)).tolist()
    strange = "".join(map(chr, numbers))  # characters of many scripts
    assert bpe.decode(bpe.encode(strange)) == strange

# %% [markdown]
# A frequent word is one token. A rarer one is cut into pieces, an unknown one too, and whatever it has never seen ends in single bytes. So it has ids for every text: in the last lines the cell also encodes three texts of
# random characters from many scripts, and decodes them without a loss. [[any-text]] To encode, the merges are
# applied in the order in which they were learned. Step by step, for one word:

# %%
tokens = [bytes([byte]) for byte in b" umbrella"]
for a, b in bpe.merges:
    if (a, b) in pairwise(tokens):
        tokens = merge(tokens, (a, b))
        print(f"{(a + b).decode()!r:>5} joined: {'|'.join(token.decode() for token in tokens)}")
assert tokens == [bpe.vocab[i] for i in bpe.encode(" umbrella")]

# %% [markdown]
# Try it on a whole passage: move the slider from no merge to all of them. Then take the other text, and cut it in each of the four ways.

# %%
texts = {"a story": story[: story.index(" Carlos sang")], "other signs": "Noé met Mia in a café. 🙂"}
token_view(texts, [*(TOKENIZERS[kind].from_text(text) for kind in ("bytes", "chars", "words")), bpe])

# %% [markdown]
# Short tokens come first, and long ones later, as the numbers below show. What no story holds (*é*, the face) stays in single bytes; the lists of characters and of words refuse it.

# %%
quarter = len(bpe.merges) // 4
for q in range(4):
    lengths = [len(a + b) for a, b in bpe.merges[q * quarter : (q + 1) * quarter]]
    print(f"quarter {q + 1} of the merges: {sum(lengths) / quarter:.1f} bytes in a new token on average")

# %% [markdown]
# One token is different: `<|end|>` is **special**. It is not made by merges and never cut. It marks, for example, where a text ends.

# %%
ids = bpe.encode("The end.<|end|>")
print([bpe.vocab[i] for i in ids])
assert ids[-1] == bpe.special_ids["<|end|>"] == bpe.vocab_size - 1

# %%
plain = train_bpe(text, 600)

# %% tags=["source-hidden"]
predict(
    "A tokenizer that does not know `<|end|>` as special meets it in a text. What becomes of it?",
    key=lambda: ["cut into pieces", "taken as one token"][len(plain.encode("<|end|>")) == 1],
    because="For it these are seven characters like all others, and a text has ids whatever is in it.",
    choices={
        "refused": "Bytes never refuse. `CharTokenizer` would have refused.",
        "cut into pieces": "",
        "taken as one token": "Only a merge or the list of special tokens could make one token of it, and no story holds it.",
    },
)  # fmt: skip

# %%
print([plain.vocab[i] for i in plain.encode("<|end|>")])

# %% [markdown] slide="slide"
# ## 4. What is StoryWorld?
# The text of this series is made by a program that throws dice: somebody comes to a place with a thing and meets somebody with another thing, things are
# given away or traded, and at the end of the story some of it is told again. Every sentence, name and colour is drawn with a probability that we know.
# So we know how likely each next word is, **exactly**.

# %%
told = storyworld.story(torch.Generator().manual_seed(1))
pieces = storyworld.words(told.text + "\n")
reader, ps = storyworld.Reader(), []
for word in pieces:
    ps.append(reader.read(word))
for word, p in list(zip(pieces, ps, strict=True))[:8]:
    print(f"{word:>10}  1 in {1 / p:<3.0f} costs {-math.log(p) + 0.0:.2f} nats")

# %% [markdown]
# *One* is certain, every story begins with it. Then the weather is drawn among 14 words: $-\ln (1/14) = 2.64$ nats. The comma costs nothing. How
# likely is the whole story? The **chain rule** multiplies: the first word, times the second given the first, times the third given those two, to the end.
#
# $$P(w_1, \dots, w_n) = \prod_t P(w_t \mid w_1, \dots, w_{t-1})$$
#
# Under the logarithm a product is a sum.

# %% evidence="chain-rule" rows=["S4-25"]
costs = [-math.log(p) for p in ps]
print(f"the costs of {len(costs)} words add up to {sum(costs):.2f} nats; -told.log_prob is {-told.log_prob:.2f}")
assert math.isclose(sum(costs), -told.log_prob) and math.isclose(math.prod(ps), math.exp(told.log_prob))

# %% [markdown]
# Every story ends in a line end, which tells the model that the next one begins. The first word has nothing before it, so a model gets a line end there, too:
# without one, $P(w_1)$ would be guessed by nobody. And mind the shift: the guess for word $t$ is made at word $t - 1$.

# %%
first = [(word.strip(), cost) for word, cost in zip(pieces, costs, strict=True)][:34]
with figures.axes("Where a story can surprise", "word", "-ln p (nats)", size=(11, 4.6)) as (figure, ax):
    ax.bar(range(len(first)), [cost for _, cost in first], color=figures.SERIES[0])
    ax.set_xticks(range(len(first)), [word for word, _ in first], rotation=60, ha="right", size=12)
    ax.grid(axis="x", visible=False)
figures.display(
    figure,
    alt="Bar chart of the cost of the first words of a story: tall for names, things and colours, lower for a choice of verbs, zero for most others.",
    caption="In these words new things have the highest loss: a name, a place, a colour. "
    "A choice among a few verbs has a lower one, and a word that is the only one possible has none.",
    table={"word": [word for word, _ in first], "nats": [f"{max(cost, 0):.3f}" for _, cost in first]},
)

# %% [markdown]
# Most of the cost is in a few words, and much of the rest is certain for a reader who understands. That is what a model has to learn. Even a colour depends
# on the story: *gray* costs a little less than *pink*, because pink is taken and eleven colours are left.
#
# > **Why logarithms?** Because products vanish. Twenty stories are enough:

# %%
stories = [storyworld.story(torch.Generator().manual_seed(seed)) for seed in range(20)]
print("product:", math.prod(math.exp(s.log_prob) for s in stories))
print(f"sum of logarithms: {sum(s.log_prob for s in stories):.1f}")

# %% [markdown] slide="slide"
# ## 5. How predictable is it?
# Section 4 gave the loss of each *word*. Now the same reader, who knows everything that can be known, reads the same story *letter by letter*. It has to predict about five times as many tokens. Is the loss of
# the whole story higher, lower, or the same?
#
# Take the second word. After *One* there are 14 possible words for the weather, and all of them begin with a blank, so the blank is certain. Then comes *f*. Only two of the words fit, *foggy* and *frosty*, so its
# probability is 2/14. After the *o* one word is left, and the rest is certain. In general: **keep the words that still fit what has been read; the loss of a piece is minus the logarithm of
# the fraction of probability that remains.**


# %%
def losses_in_word(word: str, probs: dict[str, float], cut: Callable) -> list[float]:
    """-ln p of each piece of a word. probs: the words that are possible here. cut: a function from a word to its pieces."""
    pieces_read = cut(word)
    losses = []
    for n in range(1, len(pieces_read) + 1):
        fitting = {w: p for w, p in probs.items() if cut(w)[:n] == pieces_read[:n]}
        losses.append(-math.log(sum(fitting.values()) / sum(probs.values())))
        probs = fitting
    return losses


# %%
after_one = storyworld.Reader()
after_one.read("One")
weather = after_one.next_word_probs()
foggy = losses_in_word(" foggy", weather, list)
for character, loss in zip(" foggy", foggy, strict=True):
    print(f"{character!r} has a loss of {abs(loss):.2f} nats")
print(f"all together {sum(foggy):.2f}; ln {len(weather)} is {math.log(len(weather)):.2f}")

# %% [markdown]
# For this word the characters together have the loss of the word. Now whole stories, in words, in pieces of BPE with 400 ids (each word cut by itself), and in characters.


# %%
def losses_in_story(text: str, cut: Callable) -> list[float]:
    """-ln p of each piece of a story, its line end included."""
    exact_reader = storyworld.Reader()
    losses = []
    for word in storyworld.words(text + "\n"):
        losses += losses_in_word(word, exact_reader.next_word_probs(), cut)
        exact_reader.read(word)
    return losses


# %%
bpe_400 = train_bpe(text, 400)
ways = {"words": lambda word: [word], "BPE 400": cache(bpe_400.encode), "characters": list}
totals = {way: round(sum(losses_in_story(told.text, cut)), 4) for way, cut in ways.items()}

# %% tags=["source-hidden"]
predict(
    "This reader knows every probability. For which pieces is its loss on the whole story the lowest?",
    key=lambda: f"lowest for {min(totals, key=totals.get)}" if len(set(totals.values())) > 1 else "the same for all",
    because="A story is drawn before it is cut, and cutting it does not change its probability. What a word loses, its pieces lose together.",
    choices={
        "lowest for characters": "Most characters have no loss at all, but there are many of them. Add them up for *foggy*.",
        "lowest for words": "There are fewest words in a story, but the loss of each is higher. Add up the characters of *foggy*.",
        "the same for all": "",
    },
)

# %% [markdown]
# Each piece gets its loss from the probabilities at its own position. We cut eight stories in the three ways, and compare the sums with each other and with `log_prob`, which StoryWorld computed when it drew the story
# and which does not depend on any cut.

# %% evidence="same-loss"
for seed in range(8):
    drawn = storyworld.story(torch.Generator().manual_seed(seed))
    for way, cut in ways.items():
        losses = losses_in_story(drawn.text, cut)
        assert math.isclose(sum(losses), -drawn.log_prob, rel_tol=1e-9)
        if drawn.text == told.text:
            each = sum(losses) / len(losses)
            print(f"{len(losses):>3} {way:<10} have a loss of {sum(losses):.4f} nats, {each:.3f} each")
print(f"-log_prob of this story is {-told.log_prob:.4f}")

# %% [markdown]
# **The loss of a story does not depend on how it is cut**, for this reader. [[same-loss]] That is the chain rule once more, now within words. The chain rule cannot fail, but our function could: if one possible word were the beginning of another, then after its last letter two words would
# still fit, and the function would miss the loss of the blank that decides between them. In these stories that never happens, and the sums agree.
#
# Which characters have a loss, then? Each pale box is a word, as high as its loss; each bar is a character.

# %%
n_shown = len("One foggy afternoon, careful Carlos came to Hillcrest. He had a pink fan.")
letters = [abs(loss) for loss in losses_in_story(told.text, list)]
middles = [i + 0.5 for i in range(n_shown)]
with figures.axes("A few letters carry the surprise", "character", "-ln p (nats)", size=(11.5, 4.6)) as (figure, ax):
    begin = 0
    for word, cost in zip(pieces, costs, strict=True):
        if begin < n_shown:
            name = "the word" if begin == 0 else None
            ax.bar(begin, cost, len(word), align="edge", color=figures.SERIES[1], alpha=0.25, label=name)
        begin += len(word)
    ax.bar(middles, letters[:n_shown], 0.8, color=figures.SERIES[0], label="its characters")
    ax.set_xticks(middles, told.text[:n_shown], size=13, family="monospace")
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="x", visible=False)
    ax.set_xlim(0, n_shown)
    ax.legend(loc="upper left", frameon=False)
figures.display(
    figure,
    alt="Bars over the characters of the first two sentences, in pale boxes for the words. In each new word the first letter or the first few letters have a loss; all other characters have none.",
    caption="The first letters of a new word carry its loss. As soon as only one word fits, the rest of it has no loss.",
    table={"character": [repr(c) for c in told.text[:n_shown]], "nats": [f"{x:.3f}" for x in letters[:n_shown]]},
)

# %% evidence="few-letters"
for seed in range(3):
    losses = losses_in_story(storyworld.story(torch.Generator().manual_seed(seed)).text, list)
    certain = sum(loss < 1e-9 for loss in losses)
    print(f"story {seed}: {certain} of {len(losses)} characters are certain, {certain / len(losses):.0%}")
    assert certain > 0.85 * len(losses)

# %% [markdown]
# About nine characters in ten are certain for a reader who knows everything. [[few-letters]] This reader does not exist for ordinary text. Does the cut matter for readers who know *less*? We take three of them: one knows only the number of tokens ($\ln V$), one knows how
# common each token is (*unigram*), and one knows also the token before (*bigram*). They read 2,000 stories in words, in BPE with 600 and with 400 ids, and in characters. The *floor* is now easy: the mean loss of a story, divided
# by its number of tokens.

# %%
n_stories = 2000
n_bytes = len(text.encode("utf-8")) / n_stories
per_token = {}
n_tokens_of = {}
cuts = {"words": WordTokenizer(text), "BPE 600": plain, "BPE 400": bpe_400, "chars": CharTokenizer.from_text(text)}
for kind, tokenizer in cuts.items():
    readers = storyworld.entropies(tokenizer, n_stories=n_stories)
    per_token[kind] = {"ln V": math.log(tokenizer.vocab_size), **readers._asdict()}
    n_tokens_of[kind] = len(tokenizer.encode(text)) / n_stories
    values = "  ".join(f"{name} {nats:.2f}" for name, nats in per_token[kind].items())
    print(f"{kind:<7} {n_tokens_of[kind]:.0f} tokens a story; nats per token: {values}")

# %% evidence="simple-readers"
per_story = {}
for kind, levels in per_token.items():
    per_story[kind] = {name: nats * n_tokens_of[kind] for name, nats in levels.items()}
    print(f"{kind:<7} nats per story: {'  '.join(f'{name} {nats:.0f}' for name, nats in per_story[kind].items())}")
    bytewise = {name: nats / n_bytes for name, nats in per_story[kind].items()}
    print(f"        nats per byte:  {'  '.join(f'{name} {nats:.2f}' for name, nats in bytewise.items())}")
for reader_name in ("unigram", "bigram"):
    ordered = [levels[reader_name] for levels in per_story.values()]
    assert all(longer < 0.9 * shorter for longer, shorter in pairwise(ordered))

# %%
per_byte = {name: [levels[name] / n_bytes for levels in per_story.values()] for name in per_token["words"]}
with figures.axes("Longer pieces, better simple guesses", "nats per byte", "tokens") as (figure, ax):
    for (name, values), marker in zip(per_byte.items(), "os^D", strict=True):
        ax.plot(values, range(len(per_story)), marker, markersize=13, label=name)
    ax.set(ylim=(-0.5, len(per_story) - 0.5), xlim=(0, None))
    ax.set_yticks(range(len(per_story)), list(per_story))
    ax.legend(loc="lower right", frameon=False)
figures.display(
    figure,
    alt="For words, BPE with 600 and 400 ids, and characters: ln V, unigram, bigram and floor in nats per byte. The floor is one vertical line; everything else is higher for shorter pieces, and highest for characters.",
    caption="The floor is the same for all. With longer pieces the simple readers are nearer to it.",
    table={"tokens": list(per_story), **per_byte},
)

# %% [markdown]
# Two things to remember. First, **losses per token can be compared only for the same tokens**: the same floor is a different number of nats per token in each row. To compare across tokenizers, divide by bytes. Second, longer tokens
# do part of the work. A reader who knows one *word* back has a lower loss than a reader who knows one *letter* back. [[simple-readers]] A trained model uses more context than that, and this table does not say how much the tokens matter for it.

# %% [markdown] tags=["note"]
# Let the class do *foggy* by hand, and *frosty* after it: *r* instead of *o*. Ask what *gray* and *green* would lose at which letter. Before the table, ask for the sum over a whole story. The usual wrong answer is *characters, because each is so easy to predict*; the next one is
# *words, because there are fewer of them*. Then ask why the simple readers do depend on the cut: they forget, and a longer token makes them forget less. In a short class skip the simple readers.

# %% [markdown] slide="slide"
# ## 6. Break it
# A program shows what a model writes, token by token, as it comes. The text is Chinese, and a token can be a single byte.

# %%
ids = bpe.encode("风筝")
one_by_one = "".join(bpe.decode([i]) for i in ids)

# %% tags=["source-hidden"]
predict(
    "We decode each token by itself and join the pieces. What do we see?",
    key=lambda: "风筝" if one_by_one == "风筝" else ["an error", "six times the sign �"][one_by_one == "�" * 6],
    because="Each character is three bytes, and one of three is no character: it is replaced by the sign for what cannot be read.",
    choices={
        "风筝": "Only if each token were a whole character.",
        "six times the sign �": "",
        "an error": "Python raises one unless told otherwise. A model may write any bytes, so `decode` replaces.",
    },
)

# %% evidence="broken-character"
print(one_by_one, "but all at once:", bpe.decode(ids))
print("cut off in the middle:", bpe.decode(ids[:4]))
print("bytes that never were a text:", ByteTokenizer().decode([72, 105, 255]))
for whole in ("风筝", "🪁", "Zoë"):
    pieces_of_it = [bpe.decode([i]) for i in bpe.encode(whole)]
    assert bpe.decode(bpe.encode(whole)) == whole
    assert "".join(pieces_of_it) != whole

# %% [markdown]
# Nothing is lost in the ids, only in what we made of them. Inside, `decode` joins all bytes first and reads them once, with
# `errors="replace"`: what is no character becomes �, and nothing raises. Whoever shows a text as it grows must wait until a character is complete.
#
# ## What you have now
# - A token is a unit of the vocabulary, such as a word or some bytes. Its id selects a row of the embedding table. [[table-row]]
# - Byte-level BPE starts from the single bytes, so it has ids for every text. [[any-text]]
# - BPE merges the most common pair of neighbours. Ties need a fixed rule; here the greater pair wins. [[most-common]] No merge crosses the boundary of a pre-token. [[within-words]]
# - The probability of a sequence of tokens is the product of their probabilities, each given those before it. So its loss is the sum of $-\ln p$. [[chain-rule]] [[same-loss]]
# - A reader who knows the exact probabilities has the same loss on a story in words, in BPE tokens and in characters. [[same-loss]]
# - In our table the simple readers have a lower loss per byte with longer tokens, which are words or pieces within words. Losses per token can be compared only for the same tokens. [[simple-readers]]
# - A token can be a part of a character. The ids lose nothing, but the bytes of the tokens must be joined before they are decoded. [[broken-character]]
#
# ## Sources
# Byte pairs as compression: Gage 1994, *A New Algorithm for Data Compression*. For language models: Sennrich et al. 2016, *Neural Machine Translation of Rare
# Words with Subword Units*, section 3.2. Bytes and the pattern: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.2. Entropy and
# guessing: Shannon 1948, *A Mathematical Theory of Communication*.
