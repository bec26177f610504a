# %% [markdown] deck="How does a text become numbers, and does it matter how we cut it?"
# # 01 Tokens
# **How does a text become numbers, and does it matter how we cut it?**
#
# *Needs* lesson 00. *Builds* the three steps of `text/bpe.py`: find the most common pair, merge it, encode a new text. *Runs* in about 20 s on two cores.
# *Teaches* in about 45 minutes, plus 28 of exercises.

# %% [markdown] tags=["note"]
# **Say.** How many r are in *strawberry*? Everybody sees three. Now look at the same word with the eyes of a model: eight numbers, no letters. Take the vote before you show the letters.
#
# **Usual answers.**
# - *Three, it is the same word* (`three`): Where in this row of numbers is the third? Show it.
# - *Eight, one in each token* (`eight`): Each number is another token. Only 114 is r.
# - *The id says how important a token is* (from the room): It is only a number, and any other numbering would do as well.
# - *Then train on all languages* (`3`): That helps, if the vocabulary is large enough. Every language then competes for the same ids.
#
# **Cut if short.** The numbers; show their picture.
#
# **Tried.** 12 sets of 2,000 stories: two ids of r in *strawberry* and no id in common in 12 of 12, also with 300, 400 and 1,000 ids. *Good morning* takes 3 or 5 tokens (9 with 300 ids, 6 with 400), Thai 39 and Greek 16 in all. Ten sets of random numbers: with 300 ids 25 to 44 % of all numbers from 1,000 to 9,999 are not cut where the next one is, with 400 ids 19 to 30 %, with 500 ids 13 to 29 %. For some of these sets the ten numbers of the picture look alike, but the next ten do not.

# %% [markdown]
# ## 1. What a model reads
# How many r are in *strawberry*? You see three. But a model does not read letters. It reads these numbers:

# %% tags=["source-hidden"] deck="What a model reads when we write strawberry"
from tinylm_classroom import cutting, predict
from tinylm_classroom import token_figures as figures

figures.reads(cutting.of_stories(0), "strawberry")

# %% tags=["source-hidden"] deck="The letter r has the number 114. How many r does the model see?"
predict(
    "The letter r has the number 114. How many r does a model see that reads *strawberry* in this way?",
    key=lambda: {2: "two", 3: "three"}[cutting.of_stories(0).encode("strawberry").count(ord("r"))],
    choices={
        "two": "",
        "three": "There are three in the word. But look for 114.",
        "eight": "There are eight numbers, and each is a piece of the word. Only one of the numbers means r.",
    },
    because="114 is there twice. The third r is inside of a longer piece, and the number of that piece does not show it.",
)

# %% tags=["source-hidden"] deck="Two r have an id, the third is inside of er"
figures.reads(cutting.of_stories(0), "strawberry", "r")

# %% tags=["source-hidden"] evidence="spelling" tried="seeds"
# Checked: with every seed one r is hidden, and four spellings of one word have no id in common.
SEEDS = range(3)
for seed in SEEDS:
    learned_here = cutting.of_stories(seed)
    assert learned_here.encode("strawberry").count(ord("r")) == 2
    spelled = [learned_here.encode(word) for word in ("the", " the", " The", "THE")]
    assert len({i for ids in spelled for i in ids}) == sum(map(len, spelled))

# %% [markdown]
# A **tokenizer** cuts a text into pieces, the tokens, and each different token has a number, its id. All tokens together are the **vocabulary**. An id says nothing about the letters in its token: a model can only learn by heart what is in it. [[spelling]]
#
# Spelling is not the only surprise:

# %% deck="One word, four spellings, no id in common"
from tinylm_lib import storyworld
from tinylm_lib.text import train_bpe

text = storyworld.corpus(2000, seed=0)
bpe = train_bpe(text, 600)  # 600 ids
# ESSENTIAL
words = ("the", " the", " The", "THE")  # try ("fan", " fan", " Fan", "FAN")
for word in words:
    print(bpe.encode(word), [bpe.decode([i]) for i in bpe.encode(word)])
# END

# %% [markdown]
# The four spellings of *the* have no id in common: for the model they are different words. Notice the space: it belongs to the token of the word after it.
#
# Numbers fare no better. Here is a tokenizer that has learned from 3,000 random numbers:

# %% deck="Numbers are cut by frequency, not by value"
SEED = 1
of_numbers = train_bpe(cutting.numbers(SEED, 3000), 300)
# ESSENTIAL
first = 4710  # try 1990
figures.numbers(of_numbers, first)
# END

# %% [markdown]
# Neighbours are cut in different ways, so digits with the same place value are in different tokens. [[frequency]] That makes arithmetic harder, and some tokenizers cut numbers into single digits or groups of three instead ([Singh and Strouse 2024](https://arxiv.org/abs/2402.14903)). And other scripts?

# %% tags=["source-hidden"] deck="Good morning in Thai: how many tokens are that?"
n_english = len(bpe.encode(cutting.GREETINGS["English"]))
predict(
    f"For the tokenizer of our English stories *Good morning* is {n_english} tokens. In Thai it has 13 characters: สวัสดีตอนเช้า. How many tokens?",
    key=lambda: str(len(bpe.encode(cutting.GREETINGS["Thai"]))),
    choices={
        f"{n_english}": "That would be fair. But tokens are learned from a text, and this text was English.",
        "13": "One for each character would need a token for each of them.",
        "39": "",
    },
    because="It has seen no Thai, so it falls back to bytes, and each of these characters has three of them.",
)

# %% tags=["source-hidden"] deck="Other scripts take more tokens"
figures.scripts(cutting.GREETINGS, bpe)

# %% tags=["source-hidden"] evidence="frequency" tried="seeds"
# Checked: a fifth of all numbers are not cut where the next is cut; English takes fewest tokens.
for seed in SEEDS:
    cuts = cutting.sizes_of_numbers(seed)  # of 1,000 to 9,999
    assert sum(map(list.__ne__, cuts[:-1], cuts[1:])) > 0.2 * len(cuts)
    lengths = [len(cutting.of_stories(seed).encode(each)) for each in cutting.GREETINGS.values()]
    assert lengths[0] < min(lengths[1:])

# %% [markdown]
# Scripts that the tokenizer has not learned from take more tokens for the same words. [[frequency]] Published tokenizers take up to 15 times as many in some languages, so their users pay more, and less text fits into the context ([Petrov et al. 2023](https://arxiv.org/abs/2305.15425)).

# %% [markdown] tags=["note"]
# **Say.** Why cut in this strange way at all? Look at the simple ways first: words, characters, bytes. Each has one fault, and the fault of bytes is the only one that can be repaired.
#
# **Usual answers.**
# - *Words, because nobody thinks in letters* (from the room): What about names, typing errors, program code and other languages?
# - *Bytes, because nothing is unknown* (from the room): How many steps does a model need for one sentence then?
#
# **Cut if short.** Nothing: the next section rests on it.
#
# **Tried.** Exact: a table row is a table row. The three tokenizers give each story back, letter by letter.

# %% [markdown]
# ## 2. Three simple cuts
# A text can be cut into words, into characters, or into the **bytes** in which a computer stores it:

# %% deck="Three tokenizers: short sequences or small vocabularies"
import torch

from tinylm_classroom import show_text
from tinylm_lib.text import TOKENIZERS

story = storyworld.story(torch.Generator().manual_seed(1)).text
simple = [TOKENIZERS[kind].from_text(text) for kind in ("words", "chars", "bytes")]
show_text(story)
# ESSENTIAL
for tokenizer in simple:
    ids = tokenizer.encode(story)
    print(f"{tokenizer.kind}: {len(ids)} tokens, {tokenizer.vocab_size} ids")
    # END
    assert tokenizer.decode(ids) == story

# %% [markdown]
# In words the story is shortest, so a model needs the fewest steps. But now take a word that is in no story:

# %% deck="Only bytes can encode every text"
word = "风筝"  # try "zebra", "Zoë" and "🪁"
# ESSENTIAL
for tokenizer in simple:
    try:
        print(f"{tokenizer.kind}: {tokenizer.encode(word)}")
    except ValueError as error:
        print(f"{tokenizer.kind}: {error}")
# END

# %% [markdown]
# A list of words or of characters is finite, and a text that contains anything else cannot be encoded. Bytes can encode every text: UTF-8 writes each character of each script as one to four bytes, and a byte has only 256 values. But a sequence of bytes is long. Section 3 finds a way in between.
#
# ### An id selects a row
# What does a model do with an id? It is the number of a **row** in a table of vectors, the **embedding**. The comments give shapes: $T$ tokens, $V$ ids, and $C$ numbers in each vector.

# %% evidence="table-row" rows=["S1-4"] tried="exact" deck="An id is the number of a row"
from tinylm_classroom import trace
from tinylm_lib.layers import Embedding

V, C = 345, 4
# ESSENTIAL
embed = Embedding(V, C)  # a table (V, C) of random numbers
row_ids = torch.tensor([3, 10, 2, 6, 4])  # (T)
# END
assert torch.equal(embed(row_ids)[1], embed.weight[10])
# ESSENTIAL
trace(embed, row_ids, sizes={"T": 5, "V": V, "C": C})
# END

# %% [markdown]
# The id itself means nothing: 10 is not more than 3. At the start the rows are random, so no word is similar to another. The model learns its rows together with all its other parameters. [[table-row]] (A table of shape $(V, C)$ has the vectors as rows. Some texts transpose it and speak of columns.)

# %% [markdown] tags=["note"]
# **Say.** We want short sequences and no unknown words. So we start from bytes and join the two neighbours that occur most often, again and again. That is byte-pair encoding, and nearly all language models use it or a relative of it.
#
# **Usual answers.**
# - *`at`, because t comes after h in the alphabet* (`at`): Its second id is the greater one, but the first ids are compared first.
# - *Both at once* (`both at once`): They overlap in `hat`. Once `ha` is one token, the pair `a t` is gone.
# - *`Counter.most_common(1)` gives the answer* (`first met`): Among equals it returns the pair that it met first. Our rule is another one.
# - *Every second pair* (`every second`): `zip(ids[::2], ids[1::2])` misses half of the neighbours.
# - *A loop that merges 5 5 5 twice* (`used twice`): What the first merge used is gone.
# - *The last id is lost* (`end lost`): `range(len(ids) - 1)` ends too early.
#
# **Cut if short.** The library's version.
#
# **Tried.** Exact arithmetic on a text that fits on the board. Forty merges and 150 of the first story, a chessboard and emoji are lines to change.

# %% [markdown]
# ## 3. Growing tokens
# Start from bytes, so that every text can be encoded. Then make the sequence shorter: take the **two neighbours that occur most often**, and give the pair a new id. Do it again, and again. This is **byte-pair encoding**, BPE ([Gage 1994](http://www.pennelynn.com/Documents/CUJ/HTM/94HTML/19940045.HTM), [Sennrich et al. 2016](https://arxiv.org/abs/1508.07909)). By hand, on a very short text:

# %%
from collections import Counter
from itertools import pairwise

from tinylm_classroom import check, hint, keep, yours
from tinylm_lib.text import learn_merges, merge, pre_tokens

byte_ids = list(b"a hat, that hat")
pairs = Counter(pairwise(byte_ids))
print(byte_ids)
print([(bytes(pair).decode(), n) for pair, n in pairs.most_common(4)])

# %% [markdown]
# `h a` and `a t` occur equally often. If a program breaks ties at random, two people get two vocabularies from the same text. So every implementation needs a fixed rule, and ours is: **of equally frequent pairs, take the greater one**. Pairs are compared by their first ids, and if these are equal, by their second ids.

# %% tags=["source-hidden"] deck="h a and a t both occur three times. Which pair wins?"
predict(
    "`h a` and `a t` both occur three times. The greater pair wins. Which one?",
    key=lambda: bytes(max(pairs, key=lambda pair: (pairs[pair], pair))).decode(),
    because="`h` is 104 and `a` is 97: the first ids differ, so they decide.",
    choices={
        "ha": "",
        "at": "Its second id is the greater one, but the first ids are compared first.",
        "both at once": "They overlap in `hat`: once `ha` is one token, `a t` is gone.",
    },
)

# %% [markdown]
# ### Your turn
# Now the general form, for any list of ids:


# %% tags=["exercise"] name="most_common_pair" minutes=10 difficulty=2 deck="Your turn: the most common pair"
def most_common_pair(ids):
    """Returns the pair (first, second) of neighbours that occurs most often.

    ids: a list of at least 2 int. Of equally frequent pairs: the greater one.
    Overlapping pairs count, too: 5 5 5 contains the pair 5 5 twice.
    """
    # SOLUTION
    counts = Counter(pairwise(ids))
    return max(counts, key=lambda pair: (counts[pair], pair))
    # END


# %% tags=["check"]
if check("most_common_pair", most_common_pair).passed:
    keep("most_common_pair", most_common_pair)

# %%
hint("most_common_pair")

# %% [markdown] tags=["solution"]
# `pairwise` walks along the neighbours, and `Counter` counts them. The key of `max` is a tuple: the count first, and for equal counts the pair itself, which
# Python compares as we want. Common mistakes: `counts.most_common(1)`, which returns the first of equals that it met, and
# `zip(ids[::2], ids[1::2])`, which sees only every second pair.

# %% [markdown]
# Then merge: from left to right, each occurrence of the pair becomes one new id, and no id is used twice. In 5 5 5 the first two become one, and the third stays. One trap of Python: a list never equals a tuple, so `[5, 5] == (5, 5)` is `False`.


# %% tags=["exercise"] name="bpe_merge_step" minutes=10 difficulty=2 deck="Your turn: merge a pair"
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

# %% [markdown]
# ### The training loop
# Count, merge, repeat. The new ids begin at 256, the first number that is not a byte.

# %%
find_pair = yours("most_common_pair", most_common_pair)  # or the solution
merge_pair = yours("bpe_merge_step", bpe_merge_step)


def learn(ids: list[int], n_merges: int) -> tuple[list[int], dict[int, bytes]]:
    """Returns the merged ids, and the bytes of each id."""
    vocab = {i: bytes([i]) for i in range(256)}
    for new_id in range(256, 256 + n_merges):
        if len(ids) < 2:
            break
        pair = find_pair(ids)
        ids = merge_pair(ids, pair, new_id)
        vocab[new_id] = vocab[pair[0]] + vocab[pair[1]]
    return ids, vocab


# %% tags=["source-hidden"] deck="Each merge makes one new token"
figures.growing(byte_ids, learn, 4)

# %% tags=["source-hidden"] evidence="merges" tried="exact"
# Checked: the first merge is the library's, of the greater of two pairs that are equally frequent.
(pair,) = learn_merges({"a hat, that hat": 1}, n_merges=1)
ids, vocab = learn(byte_ids, 1)
assert pair == (b"h", b"a") and vocab[256] == b"ha" and ids.count(256) == 3

# %% deck="Tokens grow: first letters join, then words"
n_merges = 40  # try 150 and 5
passage = story  # try "#.#.#.#.#.#.#.#.#.#." and "🙂🙃🙂🙂🙂🙃🙂🙂"
ids, vocab = learn(list(passage.encode()), n_merges)
print("|".join(vocab[i].decode(errors="replace") for i in ids[:60]))
print(f"{len(passage.encode())} bytes, {len(ids)} tokens")

# %% [markdown]
# In the emoji the first merges (try 5) join bytes of one character, so a token may be a *part* of a character; section 7 comes back to that.

# %% [markdown] tags=["note"]
# **Say.** Nothing in the algorithm knows what a word is. So a merge may join the end of one word with the beginning of the next, unless we forbid it. We look at what we lose and what we gain if we do.
#
# **Usual answers.**
# - *The longest token that fits is taken* (`longest match`): Other tokenizers do that. Here the merges are applied in the order in which they were learned.
# - *One walk along the text is enough* (from the room): A later merge needs what an earlier one has made, so each merge has its own walk.
# - *Count again, in the new text* (`most frequent`): Counting belongs to learning. A tokenizer must cut a word in the same way in every text.
#
# **Cut if short.** The view; show its picture.
#
# **Tried.** Ten sets of stories with 50, 150 and 300 merges: the cuts made the text longer in 30 of 30, by 2 to 7 % for the stories learned from, and also for new ones. Without the cuts *the* is in 2, in 4 to 7, and in 10 to 14 tokens, with them always in one. 200 texts of random characters: all came back.

# %% [markdown]
# ## 4. Where merges stop
# On a longer text nothing stops the merges at the end of a word. So the text is usually cut into **pre-tokens** first, by a rule such as that of GPT-2, and no merge crosses a cut. Here are some of the tokens that are learned with the cuts, and without them:

# %% deck="Without cuts, tokens reach into the next word"
print(pre_tokens("Mia's kite flew 300 feet... 风筝!"))
sample = text[:20_000]
# ESSENTIAL
within_words = learn_merges(Counter(pre_tokens(sample)), n_merges=150)
print([(a + b).decode() for a, b in within_words[35:50]])
uncut = learn_merges({sample: 1}, n_merges=150)
print([(a + b).decode() for a, b in uncut[35:50]])
# END

# %% deck="The cuts make the text longer, but a word is one token"
print("with the cuts:", cutting.n_tokens(pre_tokens(sample), within_words), "tokens")
print("the word the is in", cutting.with_the(within_words))
print("without cuts: ", cutting.n_tokens([sample], uncut), "tokens")
print("the word the is in", cutting.with_the(uncut))

# %% tags=["source-hidden"] evidence="within-words" tried="seeds"
# Checked: with every seed, and on new stories, cuts make a text longer and keep *the* in one token.
for seed in SEEDS:
    both = cutting.price_of_cuts(seed)
    assert all(uncut < within for uncut, within in both.n_tokens)
    assert not any(b" " in (a + b)[1:] for a, b in both.within_words)
    assert cutting.with_the(both.within_words) == [" the"] and len(cutting.with_the(both.uncut)) > 2

# %% [markdown]
# So the cuts cost some tokens. But now a frequent word after a space is always the same token; without the cuts *the* is in several tokens, and their ids do not show the model that they contain the same word. [[within-words]]
#
# ### Encoding a new text
# A new text is encoded by the same merges, **in the order in which they were learned**. With the first two merges of section 3, `h a` and `ha t`, the new word *what* becomes `w` and `hat`. Write it; you may use the library's `merge(tokens, pair)`, which joins two neighbours everywhere, as your second exercise does.


# %% tags=["exercise"] name="bpe_encode" minutes=8 difficulty=2 deck="Your turn: encode a new text"
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

# %%
encode = yours("bpe_encode", bpe_encode)
print(merge([b"h", b"a", b"t"], (b"h", b"a")))
word = " umbrella"  # try " umbrellas", " the" and "🪁"
print(encode([bytes([b]) for b in word.encode()], bpe.merges))

# %% [markdown]
# A frequent word is one token, a rare word is cut into pieces, and characters that the text did not contain become single bytes. So BPE has ids for every text. [[any-text]]

# %% deck="One text, four cuts, and the merges one by one"
from tinylm_classroom import token_view

passages = {"strawberry": "One strawberry, two strawberries.", "a story": story[:180]}
passages["other signs"] = "Noé met Mia in a café. 🙂"
token_view(passages, [*simple, bpe])

# %% [markdown]
# **Your task:** move the slider to the merge that hides the third r of *strawberry*. It is one of the first six. Then choose *other signs*, and cut them in each of the four ways.

# %% tags=["source-hidden"] evidence="any-text" tried="seeds"
# Checked: random texts of many scripts come back, and encode is the library's.
SEEDS = range(10)
for seed in SEEDS:
    strange = cutting.strange(seed)  # characters of many scripts
    assert bpe.decode(bpe.encode(strange)) == strange
    word = [bytes([b]) for b in pre_tokens(strange)[0].encode()]
    assert encode(word, bpe.merges) == [bpe.vocab[i] for i in bpe.encode(b"".join(word).decode())]

# %% [markdown]
# One kind of token is not learned: a **special token**, such as `<|end|>`, gets an id of its own and marks, for example, where a text ends. A program should not accept it in what users type.

# %% [markdown] tags=["note"]
# **Say.** Now the second half of the question: does the cut change how well a text can be predicted? Take a reader who knows every probability, let it read in words, in tokens, in letters, and add up. The chain rule gives the answer in one line.
#
# **Draw.** The 14 kinds of weather as a list. Cross out those that do not begin with f, then those that do not begin with fo.
#
# **Usual answers.**
# - *Letters, because each is so easy to predict* (`lowest for characters`): Most of them have no loss at all, but there are many, and the first ones of a word are hard.
# - *Words, because there are fewer of them* (`lowest for words`): There are fewest of them, but the loss of each is higher.
# - *Then the tokenizer does not matter at all* (from the room): For this reader it does not. Section 6 asks readers who know less.
#
# **Cut if short.** Nothing: this is the answer to the lesson's question.
#
# **Tried.** Exact: the losses of five stories agree in nine digits in each cut. In these stories at least 85 of 100 characters are certain.

# %% [markdown]
# ## 5. Does the cut change the loss?
# We know all probabilities of StoryWorld, so we can compute the loss of each word, $-\ln p$ (lesson 00), for a *reader* who knows them, too. The second word of every story is the weather, one of 14 words, such as *foggy*, *frosty* and *sunny*.

#
# How does this reader read letters? It **keeps the words that still fit what it has read. The loss of a letter, or of any piece, is $-\ln$ of the fraction of the probability that remains.** Two of the 14 begin with *f*, so after *f* one seventh remains, and the next letter decides between two.


# %%
import math


def losses_in_word(word, probs, cut):
    """-ln p of each piece of a word. probs: of the words here. cut: word -> pieces."""
    pieces = cut(word)
    losses = []
    for n in range(1, len(pieces) + 1):
        # ESSENTIAL
        fitting = {w: p for w, p in probs.items() if cut(w)[:n] == pieces[:n]}
        losses.append(-math.log(sum(fitting.values()) / sum(probs.values())))
        probs = fitting
        # END
    return losses


# %% deck="Only the first letters of a word have a loss"
reader = storyworld.Reader()
reader.read("One")
weather = reader.next_word_probs()  # of 14 words
word = " foggy"  # try " frosty" and " sunny"
# ESSENTIAL
losses = losses_in_word(word, weather, list)
print({word[:n]: abs(round(loss, 2)) for n, loss in enumerate(losses, 1)})
print(f"together {sum(losses):.2f}; the whole word {-math.log(weather[word]):.2f}")
# END

# %% [markdown]
# The fractions multiply to the probability of the word, so the losses add up to the loss of the word. The same holds for the words of a story. This is the **chain rule**: the probability of a text is the product of the probabilities of its pieces, each given all pieces before it, and its loss is the sum of their losses.
#
# $$P(w_1, \dots, w_n) = \prod_t P(w_t \mid w_1, \dots, w_{t-1}), \qquad -\ln P = \sum_t -\ln P(w_t \mid w_1, \dots, w_{t-1})$$


# %% rows=["S4-25"]
def losses_in_story(story, cut):
    """-ln p of each piece of a story, its line end included."""
    reader, losses = storyworld.Reader(), []
    for word in storyworld.words(story + "\n"):
        losses += losses_in_word(word, reader.next_word_probs(), cut)
        reader.read(word)
    return losses


by_words = losses_in_story(story, lambda word: [word])
assert math.isclose(sum(by_words), -storyworld.log_prob(story))

# %% tags=["source-hidden"] deck="Words, BPE tokens or letters: for which cut is the loss the lowest?"
beginnings = cutting.beginnings(story, losses_in_story)
predict(
    "The reader reads the first seven words of our story three times: in words, in BPE tokens and in characters. For which cut is the sum of the losses the lowest?",
    key=lambda: "the same for all" if cutting.same_sums(beginnings) else "not the same",
    because="The text was drawn before it was cut, and a cut does not change how probable it is.",
    choices={
        "lowest for characters": "Most characters have no loss at all, but there are many of them, and the first ones of a word are hard to predict.",
        "lowest for words": "There are fewest words, but the loss of each is higher.",
        "the same for all": "",
    },
)

# %% tags=["signature", "source-hidden"] deck="Cut it as you like: the loss is the same"
figures.same_sum(beginnings)

# %% tags=["source-hidden"] evidence="same-loss" tried="exact"
# Checked: the loss of a whole story is the same in each cut, and 85 of 100 letters are certain.
SEEDS = range(5)
for seed in SEEDS:
    drawn = storyworld.story(torch.Generator().manual_seed(seed))
    for cut in cutting.ways().values():
        losses = losses_in_story(drawn.text, cut)
        assert math.isclose(sum(losses), -drawn.log_prob, rel_tol=1e-9)
    assert sum(loss < 1e-9 for loss in losses) > 0.85 * len(losses)  # of the characters

# %% [markdown]
# The text was drawn before it was cut, so **its loss does not depend on the cut**. [[same-loss]] A loss *per token* does: it is the same sum, divided by 7 or by 40. So losses per token can be compared only for the same tokens. To compare models with different tokenizers, take the loss of a whole text, or divide it by the bytes.

# %% [markdown] tags=["note"]
# **Say.** Nobody knows every probability of ordinary text. So we ask readers who only count: one sees the last token, another the last letters. For them the cut matters, and the picture shows why.
#
# **Usual answers.**
# - *One letter for one word* (`about 1`): One letter says little about what follows. Look at the left end of the curve.
# - *All of them, because letters are useless* (`about 20`): How many letters has a word?
# - *Longer tokens are simply better* (from the room): With the same text in view, up to one word, the reader of letters is as good. (Further back words are better than letters.)
#
# **Cut if short.** Nothing: the section is short.
#
# **Tried.** Ten seeds, 2,000 stories read, 300 others to test: 1 to 6 letters 1,118, 676, 372, 260, 219 and 201 nats, one word 224, with standard deviations of 3.4 to 0.6 from seed to seed. Five letters have a loss 2 to 3 % below that of one word in 10 of 10. With 500 stories read 236 and 239, with 5,000 216 and 221; with only 200 the word is better than six letters (263 and 266), because long rows of letters are too rare to be counted. The shipped model on 300 new stories: 2.51 words off by more than 0.5 nats (standard error 0.06), at most one in 47 of 300; 0.12 by more than 1 nat. (The first 40 seeds: 2.2, one or none in 11.)

# %% [markdown]
# ## 6. Readers who know less
# No model knows every probability. Take readers who only count what came next in 2,000 stories, and test them on new stories. One knows the last *word*, others the last 1, 2, 3 ... *letters*, or the last *token* of a BPE with 400 or 600 ids.

# %% tags=["source-hidden"] deck="One word back, or some letters back: how many are as good?"
SEEDS = (0, 1, 2)
found = cutting.by_text_seen(tuple(SEEDS))
predict(
    f"The reader who knows the last word has a loss of {found.one_word.mean():.0f} nats on a story. How many letters must the other reader know to be about as good?",
    key=lambda: f"about {found.as_good}",
    choices={
        "about 1": "One letter says little about what follows.",
        "about 5": "",
        "about 20": "That is several words. How many letters has one?",
    },
    because="A word has about five letters with its space, and what counts is how much text is in view.",
)

# %% tags=["source-hidden"] deck="What counts is how much text is in view"
figures.by_text_seen(*found)

# %% tags=["source-hidden"] evidence="letters-back" tried="held-out"
# Checked: on new stories, with every seed, five letters are about as good as one word.
assert found.as_good == 5 and ((found.letters[4] / found.one_word - 1).abs() < 0.05).all()
assert (found.letters[:-1] > found.letters[1:]).all() and found.near_the_curve

# %% [markdown]
# Five letters are about as good as one word, and a token of two or three letters is as good as so many letters, or a little better. [[letters-back]] So longer tokens help these readers because they put more text into one step. A Transformer sees the whole story, whatever its tokens are; for it, longer tokens mean fewer steps.
#
# The dotted line is the **floor**, the loss of the reader who knows every probability. No reader can be below it on average, and no cut moves it; lesson 03 computes it. The shipped model is close: on a story it differs from that reader by more than half a nat at only two or three words on average. [[few-words]]

# %% tags=["source-hidden"] evidence="few-words" tried="held-out"
# Checked: on new stories the shipped model is off by more than 0.5 nats at 2 to 3 words a story.
off = sum(map(cutting.words_off, range(100))) / 100
assert 2 < off < 3

# %% [markdown] tags=["note"]
# **Say.** A program that shows what a model writes gets one token at a time. A token may be a part of a character. What happens on the screen?
#
# **Usual answers.**
# - *Python raises an error* (`an error`): Strict decoding would. A model may write any bytes, so the library replaces what cannot be read.
# - *The characters are lost* (from the room): The ids are complete. Only our way of decoding them one by one was wrong.
#
# **Cut if short.** All of it; the students can read it alone.
#
# **Tried.** Exact: five texts outside the stories.

# %% [markdown]
# ## 7. Break it
# A program shows the text of a model while the model writes it, token by token. The text is 风筝, the Chinese word for kite.

# %% tags=["source-hidden"] deck="We decode token by token. What do we see of 风筝?"
predict(
    "We decode each token by itself and join the pieces. What do we see?",
    key=lambda: {"�": "six times the sign �"}["".join({bpe.decode([i]) for i in bpe.encode("风筝")})],
    because="Each character has three bytes, and one of the three alone is not a character.",
    choices={
        "风筝": "Only if each token were a whole character.",
        "six times the sign �": "",
        "an error": "Strict decoding would raise one. A model may write any bytes, so `decode` replaces invalid ones.",
    },
)

# %% deck="Join the bytes first, then decode"
ids = bpe.encode("风筝")
print("one by one: ", "".join(bpe.decode([i]) for i in ids))
print("all at once:", bpe.decode(ids))
n_arrived = 4  # try 3 and 6
print("so far:     ", bpe.decode(ids[:n_arrived]))

# %% tags=["source-hidden"] evidence="broken-character" tried="exact"
# Checked: characters outside the stories break one by one, and come back all at once.
for whole in ("风筝", "🪁", "Zoë", "é", "สวัสดี"):
    assert bpe.decode(bpe.encode(whole)) == whole
    assert "".join(bpe.decode([i]) for i in bpe.encode(whole)) != whole

# %% [markdown]
# The ids have lost nothing. The mistake was to decode them one by one. [[broken-character]] `decode` joins all bytes first and reads them once; invalid bytes become �. When you stream text, wait until a character is complete before you show it.
#
# Real tokenizers are like ours, with more merges: GPT-2 has 50,257 ids, 256 bytes, 50,000 merges and one special token ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)).

# %% [markdown] tags=["note"]
# **Say.** A text becomes numbers by a cut, and the cut is a choice. It changes what the model sees and how many steps it needs, and it does not change how probable the text is. Show the picture of the three sums once more.
#
# **Ask.** At the door: "Two models have losses of 0.7 and 1.1 nats per token. Which one is better?" Nobody can know without the tokens.
#
# **Usual answers.**
# - *The one with 0.7* (from the room): Its tokens may be letters. Divide both by the bytes first.
# - *The one with the larger vocabulary* (from the room): The exact reader had the same loss with every vocabulary.
#
# **Cut if short.** The list; students read it. Keep the question.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="The cut changes what a model sees, not how probable the text is"
# ## What you have now
# - A model reads ids, and an id does not show the letters of its token. [[spelling]]
# - Tokens follow the frequency in the text they were learned from: numbers are not cut by value, and with ours other scripts take more tokens. [[frequency]]
# - An id selects a row of the embedding. [[table-row]]
# - BPE merges the most common pair of neighbours, again and again; of equally frequent pairs ours takes the greater. [[merges]]
# - Pre-tokens make a text longer, but a frequent word is always the same token. [[within-words]]
# - BPE starts from bytes, so it has ids for every text. [[any-text]]
# - The loss of a text is a sum that does not depend on the cut, for a reader who knows every probability. [[same-loss]]
# - For readers who count, up to one word back, what matters is how much text is in view: five letters are about as good as one word. [[letters-back]]
# - A token can be a part of a character, so join the bytes before you decode them. [[broken-character]]
#
# Next, lesson 02: the linear map, which reads the rows of the embedding.

# %% [markdown]
# ## Sources
# - Byte pairs as compression: Gage 1994, [*A New Algorithm for Data Compression*](http://www.pennelynn.com/Documents/CUJ/HTM/94HTML/19940045.HTM).
# - BPE for language: Sennrich et al. 2016, [*Neural Machine Translation of Rare Words with Subword Units*](https://arxiv.org/abs/1508.07909), section 3.2.
# - Bytes and the pre-tokens: Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), section 2.2, and the released encoder of GPT-2.
# - Readers who back off to less text: Witten and Bell 1991, *The Zero-Frequency Problem*, method C.
# - Numbers: Singh and Strouse 2024, [*Tokenization counts: the impact of tokenization on arithmetic in frontier LLMs*](https://arxiv.org/abs/2402.14903).
# - Scripts: Petrov et al. 2023, [*Language Model Tokenizers Introduce Unfairness Between Languages*](https://arxiv.org/abs/2305.15425).
