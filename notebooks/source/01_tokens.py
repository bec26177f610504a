# %% [markdown] slide="slide"
# # 01 Tokens
# **How does a text become numbers, and how well can the next one be predicted at best?**
#
# *Needs* lesson 00. *Builds* the three steps of `text/bpe.py`: find the most common pair, merge it, encode a new text. *Runs* in about 15 s on two cores.
# *Teaches* in about 53 minutes, plus 28 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a text can be cut into tokens in many ways. For a reader who knows every probability the cut makes no difference, but for a reader who knows less it does.
# Sections 1 to 5 are the core, with one exercise. Sections 6 and 7 test the idea, and section 8 is about real tokenizers.
# Before the class: run section 2 and try its control, so that you have seen tokens grow.

# %% slide="skip"
import math
from collections.abc import Callable
from functools import cache

import torch
from matplotlib import pyplot as plt

from tinylm_lib import storyworld
from tinylm_classroom import figures, predict, show_text
from tinylm_lib.text import train_bpe

plt.style.use(figures.STYLE)
_ = torch.manual_seed(1)

# %% [markdown] tags=["note"]
# **Say.** Cover this sentence and guess it letter by letter. You are often wrong at the beginning of a word and hardly ever at its end. Today we find out how a text is cut into tokens, and what the cut changes.
#
# **Draw.** The first four words of the story on the board, covered by a sheet of paper. Uncover one letter at a time and count how often the room is right.
#
# **Ask.** The prediction. Then, at the picture: "Why is the sum at the right the same in each row?" Do not answer; section 5 does.
#
# **Usual answers.**
# - *Letters, because each is so easy to predict* (`lowest for characters`): Most of them have no loss at all, but there are many, and the first ones of a word are hard.
# - *Words, because there are fewer of them* (`lowest for words`): There are fewest of them, but the loss of each is higher.
# - *Words are best, because nobody thinks in letters* (from the room): What about names, typing errors, program code and other languages?
# - *Bytes are best, because nothing is unknown* (from the room): How many steps does a model need for one sentence then?
# - *The id says how important the word is* (from the room): It is only the number of a row, and any other numbering would do as well.
#
# **Cut if short.** The embedding; lesson 02 takes it up again.

# %% [markdown] slide="slide"
# ## 1. What is a token?
# Cover a sentence with your hand and uncover it letter by letter. Where do you guess wrong? Shannon asked people to do this, because he wanted to measure how predictable English is ([Shannon 1951](https://doi.org/10.1002/j.1538-7305.1951.tb01366.x)).

# %% slide="skip"
text = storyworld.corpus(2000, seed=0)
story = storyworld.story(torch.Generator().manual_seed(1)).text
show_text(story)

# %% [markdown] slide="say"
# StoryWorld is a program of ours that draws stories at random. We know its probabilities, so we can compute the **loss** of each word or character, $-\ln p$ (lesson 00), for a *reader* who knows them too. A reader is anything that predicts what comes next: a person, a table or a model.
#
# The next cells cut the beginning of this story in three ways: into words, into characters, and into *BPE tokens*, which are between the two (section 2). You need not read the code yet, because section 5 explains it.


# %% slide="skip"
def losses_in_word(word: str, probs: dict[str, float], cut: Callable) -> list[float]:
    """-ln p of each piece of a word. probs: the words that are possible here. cut: a function from a word to its pieces."""
    pieces_read = cut(word)
    losses = []
    for n in range(1, len(pieces_read) + 1):
        fitting = {w: p for w, p in probs.items() if cut(w)[:n] == pieces_read[:n]}
        losses.append(-math.log(sum(fitting.values()) / sum(probs.values())))
        probs = fitting
    return losses


def losses_in_story(text: str, cut: Callable) -> list[float]:
    """-ln p of each piece of a story, its line end included."""
    exact_reader = storyworld.Reader()
    losses = []
    for word in storyworld.words(text + "\n"):
        losses += losses_in_word(word, exact_reader.next_word_probs(), cut)
        exact_reader.read(word)
    return losses


# %% slide="skip"
bpe_400 = train_bpe(text, 400)
ways = {"words": lambda word: [word], "BPE 400": cache(bpe_400.encode), "characters": list}
shown = storyworld.words("One foggy afternoon, careful Carlos came")


def cut_with_losses(way: str) -> tuple[list[str], list[float]]:
    """The pieces of the first words of the story, and the loss of each."""
    decode = bpe_400.decode if way == "BPE 400" else "".join
    pieces = [decode([piece]) for word in shown for piece in ways[way](word)]
    return pieces, [abs(loss) for loss in losses_in_story(story, ways[way])[: len(pieces)]]


beginnings = {way: cut_with_losses(way) for way in ways}
sums = {way: round(sum(losses), 4) for way, (_, losses) in beginnings.items()}

# %% tags=["source-hidden"]
predict(
    f"A reader who knows every probability reads `{''.join(shown)}` three times: in words, in BPE tokens and in characters. For which cut is the sum of the losses the lowest?",
    key=lambda: f"lowest for {min(sums, key=sums.get)}" if len(set(sums.values())) > 1 else "the same for all",
    because="The text was drawn before it was cut, and a cut does not change how probable it is. Section 5 shows how the loss of a word is divided among its characters.",
    choices={
        "lowest for characters": "Most characters have no loss at all, but there are many of them, and the first ones of a word are hard to predict.",
        "lowest for words": "There are fewest words, but the loss of each is higher.",
        "the same for all": "",
    },
)  # fmt: skip


# %% slide="skip"
def draw_pieces(ax: plt.Axes, row: int, pieces: list[str], losses: list[float]) -> None:
    begin = 0
    for piece, loss in zip(pieces, losses, strict=True):
        ground = figures.HEAT(min(1.0, loss / 4))
        ax.add_patch(plt.Rectangle((begin + 0.06, row - 0.32), len(piece) - 0.12, 0.64, fc=ground, ec=figures.QUIET))
        style = {"color": figures.ink_on(ground), "ha": "center", "va": "center_baseline"}
        for i, letter in enumerate(piece):
            ax.text(begin + i + 0.5, row, letter, family="monospace", size=21, **style)
        begin += len(piece)
    ax.text(begin + 0.8, row, f"{sum(losses):.2f} nats", va="center_baseline", size=21, weight="bold")


# %% tags=["signature", "source-hidden"] slide="subslide"
fig, ax = plt.subplots(figsize=(11.4, 4.3), layout="constrained")
for row, (pieces, losses) in enumerate(beginnings.values()):
    draw_pieces(ax, row, pieces, losses)
n_letters = sum(map(len, shown))
ax.set(xlim=(0, n_letters + 10), ylim=(2.6, -0.6), xticks=[], ylabel="cut into")
ax.set_title("Cut it as you like: the loss is the same", size=24)
ax.set_xlabel("darker: harder to predict", size=19)
ax.set_yticks(range(3), [f"{way}\n{len(pieces)} tokens" for way, (pieces, _) in beginnings.items()], size=18)
ax.grid(visible=False)
figures.unframed(ax)
figures.display(
    fig,
    alt="The beginning of a story three times, cut into words, into BPE tokens and into characters. Darker pieces are harder to predict: the whole word, or its first letters. The sum at the right is the same.",
    caption="One text, three cuts. In the last row the first characters of a word have all of its loss, and the others are certain. The sums are equal.",
    table={"cut": list(ways), "tokens": [len(p) for p, _ in beginnings.values()], "nats": [f"{sum(x):.4f}" for _, x in beginnings.values()]},
)  # fmt: skip

# %% [markdown] slide="say"
# The sum of the losses is the same in each row, although the first row has 7 tokens and the last one 40. This lesson asks what the cut changes and what it does not change.

# %% [markdown] slide="subslide"
# ### From text to ids
# A model computes with numbers. So a **tokenizer** cuts the text into pieces, the **tokens**, and gives each different piece a number, its **id**. All tokens with their ids are the **vocabulary**. Here are three simple tokenizers:

# %% slide="skip"
from tinylm_classroom import trace
from tinylm_lib.layers import Embedding
from tinylm_lib.text import TOKENIZERS, ByteTokenizer, CharTokenizer, WordTokenizer

# %%
for tokenizer in (TOKENIZERS[kind].from_text(text) for kind in ("bytes", "chars", "words")):
    ids = tokenizer.encode(story)
    assert tokenizer.decode(ids) == story
    first = [tokenizer.decode([i]) for i in ids[:4]]
    print(f"{tokenizer.kind:<6} {len(ids):>4} tokens, ids below {tokenizer.vocab_size:>3}: {ids[:4]} is {first}")

# %% [markdown]
# Each tokenizer gives back the same story, letter by letter. In words it is a fifth as long, so a model needs fewer steps to read it. Notice that a space belongs to the word after it, as in `' foggy'`. So the tokens only have to be joined, and they are the text again.

# %% [markdown] slide="subslide"
# Now some words that StoryWorld does not know: an animal, a name, and a kite, in Chinese and as a picture.

# %%
for word in ("zebra", "Zoë", "风筝", "🪁"):
    ids = ByteTokenizer().encode(word)
    assert ByteTokenizer().decode(ids) == word
    print(f"{word}: characters {len(word)}, bytes {len(ids)}: {ids}")

# %% slide="skip"
for tokenizer in (CharTokenizer.from_text(text), WordTokenizer(text)):
    try:
        tokenizer.encode("One 风筝")
    except ValueError as error:
        print(f"{tokenizer.kind}: {error}\n")

# %% [markdown]
# A list of words or of characters is finite, and a text that contains anything else cannot be encoded. Bytes can encode every text, because UTF-8 writes each character of each script as one to four bytes, and a byte has only 256 values. But a sequence of bytes is long. Section 2 finds a way in between.

# %% [markdown] slide="say"
# If you see empty boxes above, your fonts lack a character too, but its bytes are there.

# %% [markdown] slide="subslide"
# What is an id good for? It is the number of a **row** in a table of vectors, the **embedding**, and the model reads that row. The comments give shapes: $T$ tokens, and $C$ numbers in each vector.

# %% evidence="table-row" rows=["S1-4"]
V, C = 345, 4
embed = Embedding(V, C)
row_ids = torch.tensor([3, 10, 2, 6, 4])  # (T)
vectors = embed(row_ids)  # (T) -> (T, C)
assert vectors.shape == (5, C) and torch.equal(vectors[1], embed.weight[10])
row_10 = ", ".join(f"{x:.2f}" for x in vectors[1].tolist())
print(f"the table is {tuple(embed.weight.shape)}; id 10 selects its row 10: {row_10}")

# %% [markdown] slide="subslide"
# `trace` runs a function and writes the shape of each result next to its line:

# %%
trace(embed, row_ids, sizes={"T": 5, "V": V, "C": C})

# %% [markdown] slide="say"
# The id itself means nothing: 10 is not more than 3. At the start the rows are random, so no word is similar to another yet. The rows are parameters, and the model learns them together with all its other parameters. (A table of shape $(V, C)$ has the vectors as rows. Some texts transpose it and speak of columns.)

# %% [markdown] tags=["note"]
# **Say.** We want short sequences and no unknown words. So we start from bytes and join the two neighbours that occur most often, again and again. That is byte-pair encoding, and nearly all language models use it or a relative of it.
#
# **Draw.** The text `a hat, that hat` with a box around each letter. Join `h` and `a` everywhere, then `ha` and `t`, and let the room say what comes next.
#
# **Ask.** Before the exercise: "Two pairs are equally frequent. Does it matter which one we take?" It does, if two people are to get the same ids.
#
# **Usual answers.**
# - *`at`, because t comes after h in the alphabet* (`at`): Its second id is the greater one, but the first ids are compared first.
# - *Both at once* (`both at once`): They overlap in `hat`. Once `ha` is one token, the pair `a t` is gone.
# - *`Counter.most_common(1)` gives the answer* (`first met`): Among equals it returns the pair that it met first. Our rule is another one.
# - *Every second pair* (`every second`): `zip(ids[::2], ids[1::2])` misses half of the neighbours.
# - *A loop that merges 5 5 5 twice* (`used twice`): What the first merge used is gone.
# - *The last id is lost* (`end lost`): `range(len(ids) - 1)` ends too early.
#
# **Cut if short.** The control; show one of its pictures.

# %% [markdown] slide="slide"
# ## 2. Growing tokens
# Start from bytes, so that every text can be encoded. Then make the sequence shorter: take the **two neighbours that occur most often**, and give the pair a new id. Do it again, and again. This is **byte-pair encoding**, BPE ([Gage 1994](http://www.pennelynn.com/Documents/CUJ/HTM/94HTML/19940045.HTM), [Sennrich et al. 2016](https://arxiv.org/abs/1508.07909)).

# %% [markdown] slide="say"
# Ours starts from bytes, as in GPT-2. The BPE of Sennrich et al. starts from characters, and a character that it has not seen is unknown to it.

# %% [markdown] slide="subslide"
# By hand, on a very short text. How often does `h` come directly before `a`?

# %% slide="skip"
from collections import Counter
from itertools import pairwise

from tinylm_classroom import check, control, find_exercise, hint, keep, show
from tinylm_lib.text import learn_merges, merge

# %%
byte_ids = list(b"a hat, that hat")
print(byte_ids)
print([chr(i) for i in byte_ids])
n = sum(pair == (ord("h"), ord("a")) for pair in pairwise(byte_ids))
print(f"h, a: {n} times, among {len(byte_ids) - 1} pairs of neighbours")

# %% [markdown]
# The pair `a t` occurs as often, so there is a tie. If a program breaks ties at random, two people get two vocabularies from the same text. So every implementation needs a fixed rule, and ours is: **of equally frequent pairs, take the greater one**. Pairs are compared by their first ids, and if these are equal, by their second ids.

# %% slide="skip"
# The lesson also runs before you have solved the exercises: until then it uses these solutions.
reference = {name: find_exercise(name).reference for name in ("most_common_pair", "bpe_merge_step", "bpe_encode")}

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

# %% [markdown] slide="say"
# Now write the general form, for any list of ids.


# %% tags=["exercise"] name="most_common_pair" minutes=10 difficulty=2
def most_common_pair(ids):
    """Returns the pair (first, second) of neighbours that occurs most often.

    ids: a list of at least 2 int. Of equally frequent pairs: the greater one.
    Overlapping pairs count, too: 5 5 5 contains the pair 5 5 twice.
    """
    # SOLUTION
    counts = Counter(pairwise(ids))
    return max(counts, key=lambda pair: (counts[pair], pair))
    # END


# %% tags=["check"] evidence="most-common"
if check("most_common_pair", most_common_pair).passed:
    keep("most_common_pair", most_common_pair)

# %%
hint("most_common_pair")

# %% [markdown] tags=["solution"]
# `pairwise` walks along the neighbours, and `Counter` counts them. The key of `max` is a tuple: the count first, and for equal counts the pair itself, which
# Python compares as we want. Common mistakes: `counts.most_common(1)`, which returns the first of equals that it met, and
# `zip(ids[::2], ids[1::2])`, which sees only every second pair.

# %% [markdown] slide="subslide"
# Now merge. One occurrence takes two slices: what comes before the pair, then the new id, then what comes after the pair. The new id is 256, the first number that is not a byte.

# %%
i = byte_ids.index(ord("h"))
once = [*byte_ids[:i], 256, *byte_ids[i + 2 :]]
print(once)
assert len(once) == len(byte_ids) - 1

# %% [markdown]
# Your function merges all occurrences, from left to right, and uses no id twice: in 5 5 5 the first two become one, and the third stays. One trap of Python: a list never equals a tuple, so `[5, 5] == (5, 5)` is `False`.


# %% tags=["exercise"] name="bpe_merge_step" minutes=10 difficulty=2 plan=80
def bpe_merge_step(ids, pair, new_id):
    """Returns a new list: ids with new_id for each occurrence of pair.

    ids: a list of int, which stays as it is. pair: a tuple of two int.
    From left to right: if occurrences overlap, the left one is merged.
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
if check("bpe_merge_step", bpe_merge_step).passed:
    keep("bpe_merge_step", bpe_merge_step)

# %%
hint("bpe_merge_step")

# %% [markdown] tags=["solution"]
# There are two cases at each position. If the pair begins here, we write the new id and move on by two; otherwise we copy one id. At the last id the slice has only one
# element, so it equals no pair and the id is copied. Common mistakes: `range(len(ids) - 1)` loses the last id, a `for` loop cannot skip what a merge
# has used, and deleting from `ids` changes the caller's list.

# %% [markdown] slide="subslide"
# ### The training loop
# With your two functions a BPE tokenizer can learn its vocabulary: count, merge, repeat.


# %%
def learn(ids: list[int], n_merges: int, find_pair: Callable, merge_pair: Callable) -> tuple[list[int], dict]:
    """Returns the merged ids, and the bytes of each id."""
    # ESSENTIAL
    vocab = {i: bytes([i]) for i in range(256)}
    for new_id in range(256, 256 + n_merges):
        if len(ids) < 2:
            break
        pair = find_pair(ids)
        ids = merge_pair(ids, pair, new_id)
        vocab[new_id] = vocab[pair[0]] + vocab[pair[1]]
    # END
    return ids, vocab


# %% slide="skip"
try:
    learn([1, 2, 3], 1, most_common_pair, bpe_merge_step)
    steps = (most_common_pair, bpe_merge_step)
    print("with your two functions:")
except NotImplementedError:
    steps = (reference["most_common_pair"], reference["bpe_merge_step"])
    print("with the solutions, until both of your functions are written:")

# %%
for n_merges in range(5):
    short_ids, vocab = learn(byte_ids, n_merges, *steps)
    print(f"{n_merges} merges: {'|'.join(vocab[i].decode() for i in short_ids)}")

# %% [markdown] slide="subslide"
# Watch tokens grow on longer texts. `control` runs `grow` again at each choice.

# %% slide="skip"
passages = {"a story": story[:240], "a chessboard": "#.#.#.#.\n.#.#.#.#\n" * 4, "emoji": "🙂🙃🙂🙂🙃🙂 " * 4}


# %%
def grow(n_merges=20, passage="a story"):
    ids, vocab = learn(list(passages[passage].encode()), n_merges, *steps)
    print("|".join(vocab[i].decode(errors="replace") for i in ids))  # replace: see section 7
    print(f"{len(ids)} tokens; the last new ones: {[vocab[i] for i in list(vocab)[256:][-3:]]}")


# %%
control(grow, n_merges=(0, 60), passage=list(passages))

# %% [markdown] slide="say"
# On the chessboard a token can double in length with each merge. In the emoji the first merges join bytes of one character, so a token may be a *part* of a character; section 7 comes back to that.

# %% [markdown] slide="subslide"
# ### The library's version
# `merge` is your second exercise, with bytes instead of ids. `learn_merges` learns the pairs from a dictionary of texts, each with the number of times that it occurs. Here one text occurs once.

# %% slide="fragment"
show(merge)

# %%
(first_pair,) = learn_merges({"a hat, that hat": 1}, n_merges=1)
library = merge([bytes([i]) for i in byte_ids], first_pair)
ours, vocab = learn(byte_ids, 1, *steps)
print("the library: ", library)
print("the loop above:", [vocab[i] for i in ours])
assert [vocab[i] for i in ours] == library

# %% [markdown] slide="say"
# From the second merge on the two may differ at a tie. The library compares the bytes of the tokens and not their ids, because ids depend on which pair was merged first and bytes do not. The library also avoids work: after each merge it counts again only in the texts that contain the pair.

# %% [markdown] tags=["note"]
# **Say.** Nothing in the algorithm knows what a word is. So a merge may join the end of one word with the beginning of the next, unless we forbid it. We look at what we lose and what we gain if we do.
#
# **Draw.** `in the end` with a cut before each space. Show which merges are still allowed.
#
# **Ask.** Before the table: "Which vocabulary makes a text shorter, the one with cuts or the one without?" Then: "So why does everybody cut?"
#
# **Usual answers.**
# - *The longest token that fits is taken* (`longest match`): That is WordPiece. Here the merges are applied in the order in which they were learned.
# - *One walk along the text is enough* (from the room): A later merge needs what an earlier one has made, so each merge has its own walk.
# - *Count again, in the new text* (`most frequent`): Counting belongs to learning. A tokenizer must cut a word in the same way in every text.
# - *It must be an error* (`an error is raised`): A byte-level BPE has ids for every text.
#
# **Cut if short.** The view; show its picture. The special token.

# %% [markdown] slide="slide"
# ## 3. Where merges stop
# On a longer text nothing stops the merges at the end of a word. Here are the first tokens that BPE learns if the stories are cut nowhere:

# %% slide="skip"
from tinylm_classroom import token_view
from tinylm_lib.text import pre_tokens
from tinylm_lib.text.cutting import PRE_TOKEN

# %%
sample = text[:20_000]
crossing = learn_merges({sample: 1}, n_merges=150)
print([(a + b).decode() for a, b in crossing][:30])

# %% [markdown]
# `'e '` is the end of a word and a space, and `' the '` is a word with both of its spaces. So the text is usually cut into **pre-tokens** first, and no merge crosses a cut.

# %% [markdown] slide="subslide"
# The cuts are made by a regular expression. Ours is that of GPT-2 ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), section 2.2, and the released encoder). Its lines are alternatives, tried from the top, and `\x20?` means that a space may come first:

# %%
print(PRE_TOKEN.pattern.replace("\n      ", "\n"))

# %% evidence="within-words" slide="subslide"
print(pre_tokens("Mia's kite flew 300 feet... 风筝!"))
inside = learn_merges(Counter(pre_tokens(sample)), n_merges=150)
print([(a + b).decode() for a, b in inside][:30])
assert any(b" " in (a + b)[1:] for a, b in crossing)
assert not any(b" " in (a + b)[1:] for a, b in inside)

# %% [markdown]
# Now a space occurs only at the beginning of a token, and no token goes beyond the end of a word. [[within-words]]

# %% [markdown] slide="subslide"
# Is that better? We compare the two vocabularies on the same text: its length in tokens, and the tokens that contain the whole word *the*.

# %% tags=["source-hidden"] evidence="cut-price"
lengths, with_the = {}, {}
for name, pieces, merges in (("cut nowhere", [sample], crossing), ("pre-tokens", pre_tokens(sample), inside)):
    counts = Counter(pieces)
    tokens = [[bytes([b]) for b in piece.encode()] for piece in counts]
    for pair in merges:
        tokens = [merge(piece, pair) for piece in tokens]
    lengths[name] = sum(len(piece) * times for piece, times in zip(tokens, counts.values(), strict=True))
    with_the[name] = [(a + b).decode() for a, b in merges if b"the" in (a + b).split()]
    print(f"{name:<12} pieces {len(pieces):,}, different ones {len(counts)}, tokens {lengths[name]:,}")
    print(f"{'':<12} with the word the: {with_the[name]}")
assert lengths["cut nowhere"] < lengths["pre-tokens"]
assert len(with_the["cut nowhere"]) > len(with_the["pre-tokens"]) == 1

# %% [markdown]
# The cuts have a disadvantage: with the same number of merges the text is slightly longer. But now *the* after a space is always the *same* token. Without the cuts it is in several tokens, such as `'ok the '`, and their ids do not show the model that they contain the same word. [[cut-price]]

# %% [markdown] slide="say"
# Pre-tokens also save work: pairs are counted only in the different pieces. `train_bpe(text, n)` does all of this; n is the number of ids in total, including the 256 bytes, so 256 means that nothing is merged.

# %% [markdown] slide="subslide"
# ### Encoding a new text
# A new text is encoded by the same merges, **in the order in which they were learned**. We apply the first two merges of section 2 by hand to a word that was not in the text:

# %%
tokens = [bytes([b]) for b in b"what"]
tokens = merge(tokens, (b"h", b"a"))
print(tokens)
tokens = merge(tokens, (b"ha", b"t"))
print(tokens)

# %% [markdown]
# Write the general form. You may use the library's `merge`.


# %% tags=["exercise"] name="bpe_encode" minutes=8 difficulty=2 plan=80
def bpe_encode(tokens, merges):
    """Returns a new list: the tokens after each merge in turn has joined
    all its occurrences, from left to right.

    tokens: a list of bytes, the single bytes of a text; it stays as it is.
    merges: a list of pairs of bytes, in the order in which they were learned.
    [b"h", b"a", b"t"] and [(b"h", b"a"), (b"x", b"y")]: [b"ha", b"t"].
    """
    # SOLUTION
    for pair in merges:
        tokens = merge(tokens, pair)
    return tokens
    # END


# %% tags=["check"]
if check("bpe_encode", bpe_encode).passed:
    keep("bpe_encode", bpe_encode)

# %%
hint("bpe_encode")

# %% [markdown] tags=["solution"]
# One loop over the merges. Each works on what the merges before it have made, and `merge` returns a new list, so the caller's list stays as it is. For a long list of merges this is slow, because most of them do not occur in a
# given word. The library looks instead for the known pair that was learned first, joins it, and looks again: the result is the same. Common mistakes: to start again from the single bytes in each round, and to stop at the first merge that does not occur.

# %% [markdown] slide="subslide"
# Here is a tokenizer of the library with 600 ids. The last id belongs to the mark `<|end|>`, which is explained below.

# %%
bpe = train_bpe(text, 600, special_tokens=["<|end|>"])
for word in (" the", " umbrella", " umbrellas", " Zoë", " 风筝"):
    ids = bpe.encode(word)
    assert bpe.decode(ids) == word
    single_bytes = [bytes([b]) for b in word.encode()]
    assert [bpe.vocab[i] for i in ids] == reference["bpe_encode"](single_bytes, bpe.merges)
    print(word, "->", [bpe.vocab[i] for i in ids])

# %% evidence="any-text" slide="skip"
for seed in range(3):
    numbers = torch.randint(32, 0xD800, (50,), generator=torch.Generator().manual_seed(seed)).tolist()
    strange = "".join(map(chr, numbers))  # characters of many scripts
    assert bpe.decode(bpe.encode(strange)) == strange
print("three texts of random characters come back as they were")

# %% [markdown]
# A frequent word is one token. A rare or unknown word is cut into pieces, and characters that the text did not contain become single bytes. So BPE has ids for every text, even for random characters from many scripts, and decoding gives the same text again. [[any-text]]

# %% [markdown] slide="subslide"
# Try it on a whole passage: move the slider from no merge to all of them. Then choose the other text, and cut it in each of the four ways.

# %%
texts = {"a story": story[: story.index(" Carlos sang")], "other signs": "Noé met Mia in a café. 🙂"}
token_view(texts, [*(TOKENIZERS[kind].from_text(text) for kind in ("bytes", "chars", "words")), bpe])

# %% [markdown] slide="say"
# Short tokens are learned first and long ones later. Characters that no story contains (*é*, the face) stay in single bytes, and the tokenizers of characters and of words raise an error for them.
#
# One token is different: `<|end|>` is a **special token**. It is not made by merges, and it is never cut. It marks, for example, where a text ends. A program should not accept special tokens in the text that users type, because otherwise a user could end the text.

# %% slide="skip"
ids = bpe.encode("The end.<|end|>")
print([bpe.vocab[i] for i in ids])
assert ids[-1] == bpe.special_ids["<|end|>"] == bpe.vocab_size - 1
plain = train_bpe(text, 600)

# %% tags=["source-hidden"] slide="skip"
predict(
    "A tokenizer has not been given `<|end|>` as a special token. A text contains it. What happens?",
    key=lambda: ["it is cut into pieces", "it is one token"][len(plain.encode("<|end|>")) == 1],
    because="For this tokenizer these are seven characters like all others, and it has ids for every text.",
    choices={
        "an error is raised": "A byte-level BPE has ids for every text. `CharTokenizer` would have raised an error.",
        "it is cut into pieces": "",
        "it is one token": "Only merges or the list of special tokens could make it one token, and no story contains it.",
    },
)  # fmt: skip

# %% slide="skip"
print([plain.vocab[i] for i in plain.encode("<|end|>")])

# %% [markdown] tags=["note"]
# **Say.** The text of this course is written by a program that throws dice. We know every probability, so we know the best loss that any model can have. The chain rule is the tool for the whole course: the probability of a text is a product, and its loss is a sum.
#
# **Draw.** The first words of the story in a row, with the probability above and the loss below each. Multiply above, add below.
#
# **Ask.** "*pink* and *gray* are both colours of things. Why is the loss of *gray* a little lower?" Because pink is taken, and eleven colours are left.
#
# **Usual answers.**
# - *The comma has a loss as well* (from the room): After *afternoon* only a comma can follow, so its probability is 1.
# - *The first word has no probability* (from the room): Every story begins with *One*, and a model gets a line end before it, so it can predict that word too.
#
# **Cut if short.** The product that vanishes.

# %% [markdown] slide="slide"
# ## 4. What is StoryWorld?
# In each story somebody comes to a place with a thing and meets somebody with another thing. Things are given away or traded, and later some of this is mentioned again. The program draws every sentence, name and colour with a probability that we know. So we know the probability of each next word **exactly**.

# %%
one_story = storyworld.story(torch.Generator().manual_seed(1))
story_words = storyworld.words(one_story.text + "\n")
exact = storyworld.Reader()
ps = [exact.read(word) for word in story_words]
for word, p in list(zip(story_words, ps, strict=True))[:8]:
    print(f"{word:>10}  1 in {1 / p:<3.0f} loss {-math.log(p) + 0.0:.2f} nats")

# %% [markdown]
# *One* is certain, because every story begins with it. Then the weather is drawn among 14 words: $-\ln (1/14) = 2.64$ nats. The comma has no loss.

# %% [markdown] slide="subslide"
# How probable is the whole story? The **chain rule** multiplies probabilities: that of the first word, times that of the second given the first, times that of the third given those two, and so on. The logarithm turns this product into a sum.
#
# $$P(w_1, \dots, w_n) = \prod_t P(w_t \mid w_1, \dots, w_{t-1})$$
# $$-\ln P = \sum_t -\ln P(w_t \mid w_1, \dots, w_{t-1})$$

# %% evidence="chain-rule" rows=["S4-25"]
word_losses = [-math.log(p) for p in ps]
print(f"the losses of {len(ps)} words add up to {sum(word_losses):.2f} nats")
print(f"-one_story.log_prob is {-one_story.log_prob:.2f}")
assert math.isclose(sum(word_losses), -one_story.log_prob) and math.isclose(math.prod(ps), math.exp(one_story.log_prob))

# %% [markdown]
# This sum is the **negative log-likelihood** of the story. [[chain-rule]] Why logarithms? A product of many probabilities is soon smaller than the smallest positive number that a computer can store. Twenty stories are enough:

# %%
stories = [storyworld.story(torch.Generator().manual_seed(seed)) for seed in range(20)]
print("product:", math.prod(math.exp(s.log_prob) for s in stories))
print(f"sum of logarithms: {sum(s.log_prob for s in stories):.1f}")

# %% [markdown] slide="say"
# Every story ends in a line end, so a model can learn that the next story begins there. The first word has nothing before it, so a model gets a line end there, too: without one, nothing would predict $w_1$. And notice the shift: the model predicts word $t$ when it has read word $t - 1$.

# %% [markdown] slide="say"
# How close does a trained model come? The shipped model of lesson 00 reads the same story, after a line end. (`softmax` turns its scores into probabilities; lesson 03 explains it.)

# %% slide="skip"
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
story_ids = torch.tensor([shipped.tokenizer.encode("\n" + one_story.text + "\n")])  # (B, T)

# %% slide="skip"
with torch.no_grad():
    predicted = shipped.model(story_ids[:, :-1]).softmax(-1)[0]  # (T, V)
given = predicted[torch.arange(len(story_words)), story_ids[0, 1:]]  # (T)
model_losses = (-given.log()).tolist()

# %% tags=["source-hidden"] evidence="model-close"
figures.shaded_words(
    [word.strip() for word in story_words[:-1]],
    {"The reader who knows every probability": [abs(x) for x in word_losses[:-1]], "The shipped model": model_losses[:-1]},
    title="How close does a trained model come?", limit=4,
    caption="Darker words have a higher loss: names, things and colours when they are new. What is mentioned again has nearly none, for both readers.",
)  # fmt: skip
far_off = [word for word, a, b in zip(story_words, word_losses, model_losses, strict=True) if abs(a - b) > 0.5]
print(
    f"exact {sum(word_losses):.1f} nats, model {sum(model_losses):.1f}; words that differ by more than 0.5: {far_off}"
)
assert sum(model_losses) > sum(word_losses) and far_off == [" gray"]

# %% [markdown]
# Most of the loss is in a few words, and most of the others are certain for a reader who understands the story. On this story the model's loss is close to the exact one, word by word, with one exception. The story mentions the book's colour, *gray*, a second time, and only the exact reader is sure of it. [[model-close]]

# %% [markdown] tags=["note"]
# **Say.** In the first picture the three sums were equal. Now we find out why: the same reader reads letter by letter, and we look at one word until the losses of its letters add up.
#
# **Draw.** The 14 kinds of weather as a list. Cross out those that do not begin with f, then those that do not begin with fo. Write the fraction that is left after each letter.
#
# **Ask.** "What does *frosty* lose, and at which letter?" At the *r* instead of the *o*.
#
# **Usual answers.**
# - *About half of the letters are certain* (`about 250`): Look at *foggy*: two letters have a loss, and four characters have none.
# - *The picture showed only seven words* (from the room): That is why we cut eight whole stories.
# - *Then the tokenizer does not matter at all* (from the room): For this reader it does not. Section 6 asks readers who know less.
#
# **Cut if short.** The bars over the characters; the first picture of the lesson shows the same.

# %% [markdown] slide="slide"
# ## 5. How predictable is it?
# In the first picture the three sums were equal, although a reader of letters has to predict about five times as many tokens. Why?
#
# Take the second word. All 14 words for the weather begin with a space, so the space is certain. Then comes *f*. Only *foggy* and *frosty* fit, so its probability is 2/14. After the *o* one word is left, and the rest is certain.

# %%
after_one = storyworld.Reader()
after_one.read("One")
weather = after_one.next_word_probs()
print(f"{len(weather)} words:", *weather)

# %% [markdown] slide="subslide"
# In general: **keep the words that still fit what has been read. The loss of a piece is minus the logarithm of the fraction of probability that remains.**

# %%
still = weather
for letters in (" ", " f", " fo", " fog"):
    fitting = {word: p for word, p in still.items() if word.startswith(letters)}
    remains = sum(fitting.values()) / sum(still.values())
    print(f"{letters!r:<7} {len(fitting):>2} words fit, loss {abs(math.log(remains)):.2f} nats")
    still = fitting

# %% [markdown] slide="say"
# `losses_in_word` of section 1 has the same lines, for pieces of any cut.

# %%
foggy = losses_in_word(" foggy", weather, list)
for character, loss in zip(" foggy", foggy, strict=True):
    print(f"{character!r} has a loss of {abs(loss):.2f} nats")
print(f"all together {sum(foggy):.2f}; ln {len(weather)} is {math.log(len(weather)):.2f}")
assert math.isclose(foggy[1], -math.log(2 / 14)) and math.isclose(sum(foggy), math.log(14))

# %% [markdown] slide="subslide"
# Is that so in whole stories, too? We cut eight of them in the three ways. We compare the sums with each other and with `log_prob`, which StoryWorld computed when it drew the story, before any cut.

# %% tags=["source-hidden"] evidence="same-loss"
for seed in range(8):
    drawn = storyworld.story(torch.Generator().manual_seed(seed))
    for way, cut in ways.items():
        losses = losses_in_story(drawn.text, cut)
        assert math.isclose(sum(losses), -drawn.log_prob, rel_tol=1e-9)
        if drawn.text == one_story.text:
            each = sum(losses) / len(losses)
            print(f"{len(losses):>3} {way:<10} have a loss of {sum(losses):.4f} nats, {each:.3f} each")
print(f"-log_prob of this story is {-one_story.log_prob:.4f}")

# %% [markdown]
# **The loss of a story does not depend on how it is cut**, for this reader. [[same-loss]] That is the chain rule again, now within words.

# %% [markdown] slide="say"
# The chain rule cannot fail, but our function could. If one possible word were the beginning of another, two words would still fit after its last letter, and the function would miss the loss of the space that decides between them. The sums agree, so this does not happen in these stories.

# %% slide="skip"
every_letter = losses_in_story(one_story.text, list)
n_certain = sum(loss < 1e-9 for loss in every_letter)

# %% tags=["source-hidden"] slide="subslide"
predict(
    f"This story has {len(every_letter)} characters. How many of them are certain for the reader who knows every probability?",
    key=lambda: next(text for limit, text in ((100, "about 50"), (350, "about 250"), (492, "about 440")) if n_certain <= limit),
    because="Most words are certain as a whole, and in the others the first letters decide.",
    choices={
        "about 50": "About 50 characters are uncertain: the first ones of some words.",
        "about 250": "Look at `foggy`: two letters have a loss, and its other four characters have none. And many words have no loss at all.",
        "about 440": "",
    },
)  # fmt: skip

# %% [markdown] slide="subslide"
# Which characters have a loss? Each pale box is a word, as high as its loss, and each bar is a character.

# %% slide="skip"
shown_words = storyworld.words("One foggy afternoon, careful Carlos came to Hillcrest.")
shown_letters = list("".join(shown_words))
letter_losses = [abs(loss) for loss in every_letter[: len(shown_letters)]]

# %% tags=["source-hidden"]
fig, ax = plt.subplots(figsize=(11.4, 4.6), layout="constrained")
begin = 0
for word, loss in zip(shown_words, word_losses, strict=False):
    ax.bar(begin, loss, len(word), align="edge", color=figures.SERIES[1], alpha=0.25, label="" if begin else "the word")
    begin += len(word)
middles = [i + 0.5 for i in range(begin)]
ax.bar(middles, letter_losses, 0.8, color=figures.SERIES[0], label="its characters")
ax.set_xticks(middles, shown_letters, size=19, family="monospace")
ax.tick_params(axis="x", length=0)
ax.grid(axis="x", visible=False)
ax.set(title="A few letters have nearly all the loss", xlabel="character", ylabel="-ln p (nats)", xlim=(0, begin))
ax.legend(loc="upper left", frameon=False)
figures.display(
    fig,
    alt="Bars over the characters of the first sentence, in pale boxes for the words. In each new word the first letter or the first few letters have a loss; all other characters have none.",
    caption="The first letters of a new word carry its loss. As soon as only one word fits, the rest of it has no loss.",
    table={"character": [repr(c) for c in shown_letters], "nats": [f"{x:.3f}" for x in letter_losses]},
)

# %% tags=["source-hidden"] evidence="few-letters"
for seed in range(3):
    losses = losses_in_story(storyworld.story(torch.Generator().manual_seed(seed)).text, list)
    certain = sum(loss < 1e-9 for loss in losses)
    print(f"story {seed}: {certain} of {len(losses)} characters are certain, {certain / len(losses):.0%}")
    assert certain > 0.85 * len(losses)

# %% [markdown]
# About nine characters in ten are certain for a reader who knows every probability. [[few-letters]]

# %% [markdown] tags=["note"]
# **Say.** Nobody knows every probability of ordinary text. So we ask readers who know less: one who only knows how common each token is, and one who sees the token before. For them the cut matters, and we find out why.
#
# **Draw.** The same sentence twice, in letters and in words, with a window of one token that moves along. Write below it how much text the window contains.
#
# **Ask.** The prediction. Then: "About how many letters must a reader see to be as good as a reader who sees one word?"
#
# **Usual answers.**
# - *It has to predict more often, so it loses more* (`more`): Add up the letters of *foggy*. The losses of the letters of a word are the loss of the word.
# - *Letters are easier* (`less`): Each one is, but a word has several.
# - *Longer tokens are simply better* (from the room): With the same text in view the reader of letters is as good.
#
# **Cut if short.** The picture; keep the table and the prediction.

# %% [markdown] slide="slide" plan=80
# ## 6. Readers who know less
# Here are three readers who know less. The first knows only the size of the vocabulary ($\ln V$), the second knows how common each token is (**unigram**), and the third also knows the token before (**bigram**). The **floor** is the mean loss of the reader who knows every probability.

# %% slide="skip"
n_stories = 2000
n_bytes = len(text.encode("utf-8")) / n_stories
cuts = {"words": WordTokenizer(text), "BPE 600": plain, "BPE 400": bpe_400, "chars": CharTokenizer.from_text(text)}
n_tokens_of = {kind: len(tokenizer.encode(text)) / n_stories for kind, tokenizer in cuts.items()}
per_token = {}
for kind, tokenizer in cuts.items():
    per_token[kind] = {"ln V": math.log(tokenizer.vocab_size)}
    per_token[kind] |= storyworld.entropies(tokenizer, n_stories=n_stories)._asdict()

# %% tags=["source-hidden"]
print("nats per token:")
for kind, levels in per_token.items():
    values = "  ".join(f"{name} {nats:.2f}" for name, nats in levels.items())
    print(f"{kind:<8} {n_tokens_of[kind]:.0f} tokens a story:  {values}")

# %% [markdown]
# **Losses per token can be compared only for the same tokens**: the same floor is a different number in each row. To compare across tokenizers, take the loss of a whole story, or divide it by the bytes.

# %% tags=["source-hidden"] evidence="simple-readers" slide="subslide"
print("nats per story:")
per_story = {}
for kind, levels in per_token.items():
    per_story[kind] = {name: nats * n_tokens_of[kind] for name, nats in levels.items()}
    print(f"{kind:<8} {'  '.join(f'{name} {nats:.0f}' for name, nats in per_story[kind].items())}")
for reader_name in ("unigram", "bigram"):
    ordered = [levels[reader_name] for levels in per_story.values()]
    assert all(longer < 0.9 * shorter for longer, shorter in pairwise(ordered))

# %% tags=["source-hidden"] slide="subslide"
per_byte = {name: [levels[name] / n_bytes for levels in per_story.values()] for name in per_token["words"]}
fig, ax = plt.subplots(figsize=(9.6, 4.8), layout="constrained")
for (name, values), marker in zip(per_byte.items(), "os^D", strict=True):
    ax.plot(values, range(len(cuts)), marker, markersize=14, label=name)
ax.set(title="Longer pieces, better simple predictions", xlabel="nats per byte", ylabel="tokens")
ax.set(ylim=(-0.5, len(cuts) - 0.5), xlim=(0, None))
ax.set_yticks(range(len(cuts)), list(cuts))
ax.legend(loc="lower right", frameon=False)
figures.display(
    fig,
    alt="For words, BPE with 600 and 400 ids, and characters: ln V, unigram, bigram and floor in nats per byte. The floor is one vertical line; everything else is higher for shorter pieces, and highest for characters.",
    caption="The floor is the same for all. With longer pieces the simple readers are nearer to it.",
    table={"tokens": list(cuts), **per_byte},
)

# %% [markdown]
# With longer tokens the simple readers have a lower loss. [[simple-readers]] Why? One explanation is that long tokens are better in themselves. Another explanation is that a reader of long tokens simply *sees more text*. To decide, we let a reader of letters see the same text as the reader of words: the whole word before, and the letters of the new word that it has read.


# %% slide="skip"
def entropy(counts: Counter) -> float:
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values())


def letters_back(k: int) -> float:
    """Nats per story for a reader who knows the k letters before, by counting in the same stories."""
    with_next = Counter(text[i : i + k + 1] for i in range(len(text) - k))
    before = Counter(text[i : i + k] for i in range(len(text) - k))
    return (entropy(with_next) - entropy(before)) * len(text) / n_stories


# %% slide="skip"
def one_word_back() -> float:
    """Nats per story for a reader of letters who knows the word before, and the letters of this word so far."""
    seen, with_next = Counter(), Counter()
    for before, word in pairwise(storyworld.words(text)):
        for i, letter in enumerate(word + "|"):  # the mark says that the word ends here
            seen[before, word[:i]] += 1
            with_next[before, word[:i], letter] += 1
    return (entropy(with_next) - entropy(seen)) * seen.total() / n_stories


# %% slide="skip"
one_word = per_story["words"]["bigram"]
in_letters = one_word_back()
by_letters = {k: letters_back(k) for k in (1, 2, 3, 4, 5, 6)}

# %% tags=["source-hidden"] slide="subslide"
predict(
    f"The reader of words knows one word back and has a loss of {one_word:.0f} nats on a story. The reader of letters sees the same text. What is its loss?",
    key=lambda: "the same" if math.isclose(in_letters, one_word, rel_tol=0.001) else ["less", "more"][in_letters > one_word],
    choices={
        "more": "It has more to predict. But add up the letters of `foggy`: together they have the loss of the word.",
        "the same": "",
        "less": "Each letter is easier to predict than a word, but a word has several letters.",
    },
    because="Both see the same text, so this is the chain rule again: the letters of a word together have its loss.",
)  # fmt: skip

# %% tags=["source-hidden"] evidence="letters-back"
print(f"one word back, in words:    {one_word:.0f} nats per story")
print(f"one word back, in letters:  {in_letters:.0f}")
for k, nats in by_letters.items():
    print(f"{k} letter{'s' * (k > 1)} back: {nats:.0f}")
print(f"a word has {n_bytes / n_tokens_of['words']:.1f} letters on average, with its space")
assert math.isclose(in_letters, one_word, rel_tol=0.001)
assert by_letters[3] > 1.2 * one_word and 0.9 < by_letters[5] / one_word < 1.1

# %% [markdown]
# With the same text in view, the reader of letters is as good as the reader of words. So the second explanation is right for these readers: a longer token helps them because it puts more text into one step. [[letters-back]] Without the word, about five letters back are worth as much as one word. A Transformer sees the whole story, so this table does not say how much the tokens matter for it.

# %% [markdown] slide="say"
# (These readers are tested on the stories in which they counted, so with many letters back they remember whole passages, and their loss is too low. Therefore we say *about* five.)

# %% [markdown] tags=["note"]
# **Say.** A program that shows what a model writes gets one token at a time. A token may be a part of a character. What happens on the screen?
#
# **Draw.** 风 as three boxes, one for each byte, and a line under the three.
#
# **Ask.** The prediction. Then: "What must a program do that shows a text while it is written?" Wait until a character is complete.
#
# **Usual answers.**
# - *Python raises an error* (`an error`): Strict decoding would. A model may write any bytes, so the library replaces what cannot be read.
# - *The characters are lost* (from the room): The ids are complete. Only our way of decoding them one by one was wrong.
#
# **Cut if short.** All of it; the students can read it alone.

# %% [markdown] slide="slide" plan=80
# ## 7. Break it
# A program shows the text of a model while the model writes it, token by token. The text is Chinese, and a token can be a single byte.

# %% slide="skip"
kite_ids = bpe.encode("风筝")
one_by_one = "".join(bpe.decode([i]) for i in kite_ids)

# %% tags=["source-hidden"]
predict(
    "We decode each token by itself and join the pieces. What do we see?",
    key=lambda: "风筝" if one_by_one == "风筝" else ["an error", "six times the sign �"][one_by_one == "�" * 6],
    because="Each character has three bytes, and one of the three alone is not a character. It is replaced by the sign for bytes that cannot be read.",
    choices={
        "风筝": "Only if each token were a whole character.",
        "six times the sign �": "",
        "an error": "Strict decoding would raise one. A model may write any bytes, so `decode` replaces invalid ones.",
    },
)  # fmt: skip

# %% evidence="broken-character"
print(one_by_one, "but all at once:", bpe.decode(kite_ids))
print("cut off in the middle:", bpe.decode(kite_ids[:4]))
print("bytes that are not a text:", ByteTokenizer().decode([72, 105, 255]))
for whole in ("风筝", "🪁", "Zoë"):
    pieces_of_it = [bpe.decode([i]) for i in bpe.encode(whole)]
    assert bpe.decode(bpe.encode(whole)) == whole
    assert "".join(pieces_of_it) != whole

# %% [markdown]
# The ids have lost nothing. The mistake was to decode them one by one. [[broken-character]] `decode` joins all bytes first and then reads them once, with `errors="replace"`: invalid bytes become �, and no error is raised. When you stream text, wait until a character is complete before you show it.

# %% [markdown] tags=["note"]
# **Say.** Many strange mistakes of large models begin in the tokenizer. A model sees ids, not letters; numbers are cut by frequency, not by value; and some scripts need several times as many tokens as English.
#
# **Draw.** Three boxes with three different ids: *the*, *The*, and *the* with a space before it.
#
# **Ask.** "Why is it hard for a model to count the letters of a word?"
#
# **Usual answers.**
# - *It cannot count* (from the room): Perhaps, but it also cannot see the letters. It has to learn by heart which letters an id has.
# - *Train the tokenizer on all languages* (from the room): That helps, if the vocabulary is large enough. Every language then competes for the same ids.
#
# **Cut if short.** All of it; the students can read it alone.

# %% [markdown] slide="slide" plan=110
# ## 8. For engineers
# ### Real vocabularies
# The tokenizers of large models are byte-level BPE like ours, or close relatives, with more merges and other rules for the cuts:
#
# - GPT-2 has 50,257 ids: 256 bytes, 50,000 merges and one special token ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)).
# - Llama 2 has 32,000 ids and makes every digit a token of its own ([Touvron et al. 2023](https://arxiv.org/abs/2307.09288), section 2.2).
# - Llama 3 has 128,000 ids, 28,000 of them for languages other than English ([Grattafiori et al. 2024](https://arxiv.org/abs/2407.21783), section 3.2).
#
# Two relatives of BPE choose their tokens differently. **WordPiece** (BERT) also merges pairs, but as usually described it divides the count of a pair by the counts of its two parts, so two rare parts that always occur together come first. **Unigram** (T5; [Kudo 2018](https://arxiv.org/abs/1804.10959)) works the other way round: it begins with many tokens and again and again removes those without which the loss of the text rises least.
#
# A larger vocabulary makes texts shorter, but each id needs a row of the embedding, and rare rows are seldom trained. In our stories:

# %%
for n in (256, 300, 400, 600, 1000):
    print(f"{n:>5} ids: our story takes {len(train_bpe(text, n).encode(story))} tokens")

# %% [markdown] slide="subslide"
# ### Spelling
# The model sees ids, not letters. Here is one word without a space, after a space, with a capital letter, and in capitals:

# %% evidence="spelling"
ids_of = {word: bpe.encode(word) for word in ("the", " the", " The", "THE")}
for word, ids in ids_of.items():
    print(f"{word!r:<6} {ids!s:<12} {[bpe.vocab[i] for i in ids]}")
assert len({i for ids in ids_of.values() for i in ids}) == sum(map(len, ids_of.values()))

# %% [markdown]
# The four have no id in common. [[spelling]] Nothing in these numbers says that they are the same word, or which letters they have. A model has to learn that from examples.

# %% [markdown] slide="subslide"
# A prompt that ends in a space is a common mistake for the same reason:

# %%
for prompt in ("a warm afternoon", "a warm "):
    print(f"{prompt!r:<18} {[bpe.vocab[i] for i in bpe.encode(prompt)]}")

# %% tags=["source-hidden"] evidence="last-space"
all_ids = bpe.encode(text)
alone = bpe.encode("a warm ")[-1]
after_alone = sorted({bpe.vocab[after] for before, after in pairwise(all_ids) if before == alone})
print(f"{text.count(' '):,} spaces in all stories; {all_ids.count(alone):,} are tokens of their own,")
print("each before one of", *after_alone)
assert bpe.vocab[alone] == b" " and not any(piece.startswith(b"a") for piece in after_alone)

# %% [markdown]
# In the training text a space before a word is nearly always a part of the word's token. At the end of the prompt it is a token of its own, and *afternoon* never follows such a token, so a model that has learned from this text has no reason to predict it. [[last-space]]

# %% [markdown] slide="subslide"
# ### Numbers
# Merges follow frequency, so numbers that differ by 1 can be cut in different ways. We train a tokenizer with 300 ids on random numbers:

# %% evidence="numbers"
draw = torch.Generator().manual_seed(1)
some_numbers = " ".join(str(n) for n in torch.randint(10_000, (3000,), generator=draw).tolist())
of_numbers = train_bpe(some_numbers, 300)
cut_in = {}
for number in range(4710, 4720):
    cut_in[number] = "|".join(of_numbers.vocab[i].decode() for i in of_numbers.encode(f" {number}"))
print(list(cut_in.values()))
assert len({tuple(map(len, cut.split("|"))) for cut in cut_in.values()}) > 1

# %% [markdown]
# Neighbours have pieces of different lengths, so digits with the same place value are in different tokens. [[numbers]] Some tokenizers therefore cut numbers into single digits or groups of three, and it matters whether the groups are counted from the left or from the right ([Singh and Strouse 2024](https://arxiv.org/abs/2402.14903)).

# %% [markdown] slide="subslide"
# ### Other scripts
# *Good morning* in six languages, with a tokenizer that has learned from English stories:

# %% tags=["source-hidden"] evidence="scripts"
greetings = {
    "English": "Good morning", "Greek": "Καλημέρα", "Russian": "Доброе утро", "Hindi": "सुप्रभात",
    "Thai": "สวัสดีตอนเช้า", "Chinese": "早上好",
}  # fmt: skip
lengths_in = {language: len(bpe.encode(greeting)) for language, greeting in greetings.items()}
for language, greeting in greetings.items():
    print(
        f"{language:<8} {len(greeting):>2} characters, {len(greeting.encode()):>2} bytes, {lengths_in[language]:>2} tokens"
    )
assert all(n > lengths_in["English"] for language, n in lengths_in.items() if language != "English")

# %% [markdown]
# All other languages need more tokens here. [[scripts]] The same holds for published tokenizers: the same sentence takes up to 15 times as many tokens in some languages as in others, so a user pays more and fits less text into the context ([Petrov et al. 2023](https://arxiv.org/abs/2305.15425)).

# %% [markdown] slide="subslide"
# ### One text, many cuts
# The tokenizer always cuts a word in the same way. But many other sequences of tokens decode to the same text:


# %% evidence="many-cuts"
def n_cuts(word: bytes, vocab: set[bytes]) -> int:
    """In how many ways a word can be put together from the tokens of a vocabulary."""
    ways_to = [1] + [0] * len(word)
    for end in range(1, len(word) + 1):
        ways_to[end] = sum(ways_to[start] for start in range(end) if word[start:end] in vocab)
    return ways_to[-1]


for word in (" the", " umbrella", " afternoon"):
    print(f"{word}: {n_cuts(word.encode(), set(bpe.vocab.values()))} ways")
    assert n_cuts(word.encode(), set(bpe.vocab.values())) > 1

# %% [markdown]
# There are many. [[many-cuts]] The softmax of a trained model gives each of them a probability above 0, so the loss of the usual cut is slightly higher than the loss of the *text*, which would have to add up all cuts ([Cao and Rimell 2021](https://arxiv.org/abs/2109.02550)). Our exact reader gave probability to one cut only, and therefore its sums were equal.

# %% [markdown] tags=["note"]
# **Say.** A text becomes numbers by a cut, and the cut is a choice. The first four points are from sections 1 to 5; say of the others only those whose section you taught.
#
# **Draw.** The first picture of the lesson once more, without the numbers at the right. Let the room fill them in.
#
# **Ask.** At the door: "Two models have losses of 0.7 and 1.1 nats per token. Which one is better?" Nobody can know without the tokens.
#
# **Usual answers.**
# - *The one with 0.7* (from the room): Its tokens may be letters. Divide both by the bytes first.
# - *The one with the larger vocabulary* (from the room): The exact reader had the same loss with every vocabulary.
#
# **Cut if short.** The list; students read it. Keep the question.

# %% [markdown] slide="slide"
# ## What you have now
# - A token is a unit of the vocabulary, such as a word or some bytes. Its id selects a row of the embedding. [[table-row]]
# - BPE starts from single bytes, so it has ids for every text. [[any-text]] It merges the most common pair of neighbours. Ties need a fixed rule; here the greater pair wins. [[most-common]] No merge crosses the boundary of a pre-token [[within-words]], so a frequent word after a space is always the same token, in a text that is slightly longer. [[cut-price]]
# - The probability of a sequence of tokens is the product of their probabilities, each given those before it. So its loss is the sum of $-\ln p$. [[chain-rule]]
# - A reader who knows the exact probabilities has the same loss on a story in words, in BPE tokens and in characters [[same-loss]], and for this reader most characters are certain. [[few-letters]]
# - The simple readers have a lower loss with longer tokens [[simple-readers]], because they see more text: with the same text in view a reader of letters is as good as a reader of words. [[letters-back]] Losses per token can be compared only for the same tokens.
# - A token can be a part of a character, so the bytes of the tokens must be joined before they are decoded. [[broken-character]]
#
# Next, lesson 02: the linear map, which reads the rows of the embedding.

# %% [markdown]
# ## Sources
# - Byte pairs as compression: Gage 1994, [*A New Algorithm for Data Compression*](http://www.pennelynn.com/Documents/CUJ/HTM/94HTML/19940045.HTM).
# - BPE for language: Sennrich et al. 2016, [*Neural Machine Translation of Rare Words with Subword Units*](https://arxiv.org/abs/1508.07909), section 3.2.
# - Bytes and the pattern: Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), section 2.2, and the released encoder of GPT-2.
# - Entropy: Shannon 1948, *A Mathematical Theory of Communication*. Guessing letters: Shannon 1951, [*Prediction and Entropy of Printed English*](https://doi.org/10.1002/j.1538-7305.1951.tb01366.x).
# - Vocabularies: Touvron et al. 2023, [*Llama 2: Open Foundation and Fine-Tuned Chat Models*](https://arxiv.org/abs/2307.09288), section 2.2; Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), section 3.2.
# - Numbers: Singh and Strouse 2024, [*Tokenization counts: the impact of tokenization on arithmetic in frontier LLMs*](https://arxiv.org/abs/2402.14903).
# - Scripts: Petrov et al. 2023, [*Language Model Tokenizers Introduce Unfairness Between Languages*](https://arxiv.org/abs/2305.15425).
# - Many cuts: Cao and Rimell 2021, [*You should evaluate your language model on marginal likelihood over tokenisations*](https://arxiv.org/abs/2109.02550).
