# %% [markdown] slide="slide" minutes=1
# # 01 Tokens
# **How does a text become numbers, and how well can the next one be guessed at best?**
#
# *Needs* 00. *Builds* the two steps of `bpe.py`: find the most common pair, merge it. *Runs* in about 15 s on two cores. *Teaches* in 33 minutes, plus 20 of exercises.

# %%
import math
from collections import Counter
from itertools import pairwise

import torch

from tinylm_lib import storyworld
from tinylm_lib.bpe import learn_merges, merge, train_bpe
from tinylm_lib.classroom import check, figures, hint, keep, predict, show, token_view
from tinylm_lib.classroom.exercises import find
from tinylm_lib.layers import Embedding
from tinylm_lib.pieces import pre_tokens
from tinylm_lib.tokenizer import TOKENIZERS, ByteTokenizer, CharTokenizer, WordTokenizer

_ = torch.manual_seed(1)

# %% [markdown] slide="slide" minutes=6
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

# %% rows=["S1-4"]
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

# %% [markdown] slide="slide" minutes=7
# ## 2. Growing tokens
# Start from bytes, so that no text is refused. Then make the sequence shorter: take the **two neighbours that occur most often** and give the pair
# a new id. Do it again, and again. This is *byte-pair encoding*, BPE.
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
reference = {name: find(name).reference for name in ("most_common_pair", "bpe_merge_step")}

# %% [markdown]
# `a t` occurs as often: a tie. A tokenizer that breaks ties by chance, or by the order of a dictionary, gives two people two *vocabularies*, two lists of tokens with their ids. So the rule
# belongs to the algorithm: **of equally frequent pairs the greater one**, compared like words in a dictionary, first by the first id, then by the second.

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


# %% tags=["check"]
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
# your second exercise. On the first merge, of single bytes, all agree:

# %%
pair = reference["most_common_pair"](byte_ids)
merged = reference["bpe_merge_step"](byte_ids, pair, 256)
theirs = learn_merges({"a hat, that hat": 1}, n_merges=1)
assert theirs == [tuple(bytes([i]) for i in pair)]
assert [b"ha" if i == 256 else bytes([i]) for i in merged] == merge([bytes([i]) for i in byte_ids], theirs[0])
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

# %% [markdown] slide="slide" minutes=7
# ## 3. Where merges stop
# One of the steps above has joined a blank to the word after it. On a longer text this goes on, and nothing stops it at the end of a word. Let us
# look at the first merges of the stories, cut nowhere:

# %%
sample = text[:20_000]
crossing = [(a + b).decode() for a, b in learn_merges({sample: 1}, n_merges=30)]
print(crossing)

# %% [markdown]
# `'e '` is the end of a word and a blank, `' the '` a word with both its blanks, `'. '` a mark and the blank of the next word. Soon *the kite* would be a token, *the kite.* another, and so on for every phrase. The ids would be
# spent on accidents. So the text is first cut into **pre-tokens**, and no merge crosses a cut. The pattern is the one of GPT-2 (Radford et al. 2019). A pre-token is
#
# - an ending such as *'s* or *'ll*,
# - or a run of letters, of digits or of marks, with the one blank before it,
# - or a run of blanks or line ends that is left over, such as the line end between two stories.

# %%
print(pre_tokens("Mia's kite flew 300 feet... 风筝!"))
inside = [(a + b).decode() for a, b in learn_merges(Counter(pre_tokens(sample)), n_merges=30)]
print(inside)
assert any(" " in token[1:] for token in crossing) and not any(" " in token[1:] for token in inside)

# %% [markdown]
# Now a blank stands only in front. The counts of pre-tokens are all that is needed: `learn_merges` gets each different word once, with how often it
# occurs, which is why learning from a large text takes seconds. `train_bpe(text, n)` does all of this; n is the number of ids in total, the bytes
# among them, so 256 means no merge at all.

# %%
n_tokens = {n: len(train_bpe(text, n).encode(story)) for n in (256, 300, 400, 600, 1000)}
for n, tokens in n_tokens.items():
    print(f"{n:>5} ids: our story takes {tokens} tokens")

# %%
bpe = train_bpe(text, 600, special_tokens=["<|end|>"])
for word in (" the", " umbrella", " umbrellas", " Zoë", " 风筝"):
    ids = bpe.encode(word)
    assert bpe.decode(ids) == word
    print(word, "->", [bpe.vocab[i] for i in ids])

# %% [markdown]
# A frequent word is one token. A rarer one is cut into pieces, an unknown one too, and whatever it has never seen ends in single bytes. To encode, the merges are
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
# Short, frequent tokens come first, most words late. What no story holds (*é*, the face) stays in single bytes; the lists of characters and of words refuse it.

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
    "A tokenizer that was not told of `<|end|>` meets it in a text. What does it do?",
    key=lambda: ["cuts it into pieces", "takes it as one token"][len(plain.encode("<|end|>")) == 1],
    because="For it these are seven characters like all others, and a text has ids whatever is in it.",
    choices={
        "refuses it": "Bytes never refuse. `CharTokenizer` would have refused.",
        "cuts it into pieces": "",
        "takes it as one token": "Only a merge or the list of special tokens could make one token of it, and no story holds it.",
    },
)  # fmt: skip

# %%
print([plain.vocab[i] for i in plain.encode("<|end|>")])

# %% [markdown] slide="slide" minutes=6
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

# %% rows=["S4-25"]
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
figures.show(
    figure,
    alt="Bar chart of the cost of the first words of a story: tall for names, things and colours, lower for a choice of verbs, zero for most others.",
    caption="New things cost most: a name, a place, a colour. A choice among a few ways to go on (which verb, who acts) costs "
    "less, and what only one word can fill is free.",
    table={"word": [word for word, _ in first], "nats": [round(cost, 2) + 0.0 for _, cost in first]},
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

# %% [markdown] slide="slide" minutes=4
# ## 5. How predictable is it?
# Four readers guess each next token. One knows nothing but the number of tokens: $\ln V$. One knows how common each is (*unigram*), one also the token before
# (*bigram*), and one everything that can be known (the *floor*). We let them read in words, in BPE with 400 ids, and in
# characters.

# %%
n_bytes = len(text.encode("utf-8")) / 2000
per_token, n_tokens = {}, {}
cuts = {"words": WordTokenizer(text), "bpe": train_bpe(text, 400), "chars": CharTokenizer.from_text(text)}
for kind, tokenizer in cuts.items():
    readers = storyworld.entropies(tokenizer, n_stories=2000)
    per_token[kind] = {"ln V": math.log(tokenizer.vocab_size), **readers._asdict()}
    n_tokens[kind] = len(tokenizer.encode(text)) / 2000
    values = "  ".join(f"{name} {nats:.2f}" for name, nats in per_token[kind].items())
    print(f"{kind:<6}V {tokenizer.vocab_size}, {n_tokens[kind]:.0f} tokens a story; nats per token: {values}")

# %%
per_story = {kind: {name: nats * n_tokens[kind] for name, nats in levels.items()} for kind, levels in per_token.items()}

# %% tags=["source-hidden"]
least = min(nats["floor"] for nats in per_story.values())
predict(
    "Per token the floor is lowest for characters. With which tokens does a whole story cost least, for the reader who knows everything?",
    key=lambda: ["one of them", "all cost the same"][max(s["floor"] for s in per_story.values()) - least < 1e-6],
    because="The story is drawn before it is cut: its probability does not depend on the scissors.",
    choices={
        "chars": "Each costs little, but a story has many of them. Multiply.",
        "words": "A story has fewest of them, but each costs more. Multiply.",
        "all cost the same": "",
    },
)  # fmt: skip

# %%
for kind, levels in per_story.items():
    print(f"{kind:<6} nats per story: {'  '.join(f'{name} {nats:.0f}' for name, nats in levels.items())}")
    print(f"       per byte:       {'  '.join(f'{name} {nats / n_bytes:.2f}' for name, nats in levels.items())}")
assert all(math.isclose(levels["floor"], storyworld.entropy_per_story()) for levels in per_story.values())

# %%
per_byte = {name: [story[name] / n_bytes for story in per_story.values()] for name in per_token["words"]}
with figures.axes("Longer pieces, better simple guesses", "nats per byte", "tokens") as (figure, ax):
    for (name, values), marker in zip(per_byte.items(), "os^D", strict=True):
        ax.plot(values, range(3), marker, markersize=13, label=name)
    ax.set(ylim=(-0.5, 2.5), xlim=(0, None))
    ax.set_yticks(range(3), list(per_story))
    ax.legend(loc="lower right", frameon=False)
figures.show(
    figure,
    alt="For words, BPE and characters: ln V, unigram, bigram and floor in nats per byte. The floors coincide; all else lies higher for BPE, and highest for characters.",
    caption="The floor is the same for all. The longer the pieces, the nearer to it come the simple readers.",
    table={"tokens": list(per_story), **per_byte},
)

# %% [markdown]
# Two things to remember. **Losses per token can be compared only for the same tokens**: to compare across tokenizers, divide by bytes. And good tokens do part
# of the work: whoever knows one *word* back knows more than whoever knows one *letter* back. What is left between the bigram and the floor is the model's
# share, and the subject of this series.

# %% [markdown] slide="slide" minutes=2
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

# %%
print(one_by_one, "but all at once:", bpe.decode(ids))
print("cut off in the middle:", bpe.decode(ids[:4]))
print("bytes that never were a text:", ByteTokenizer().decode([72, 105, 255]))
assert bpe.decode(ids) == "风筝"

# %% [markdown]
# Nothing is lost in the ids, only in what we made of them. Inside, `decode` joins all bytes first and reads them once, with
# `errors="replace"`: what is no character becomes �, and nothing raises. Whoever shows a text as it grows must wait until a character is complete.
#
# ## What you have now
# - A token is a piece of text with a number; the number is a row of a table.
# - BPE begins with bytes, so it has ids for every text, and merges the most common neighbours, within words; of equals the greater pair.
# - The cost of a text is the sum of $-\ln p$ over its tokens, because its probability is the product.
# - StoryWorld's floor is known, the same for every way of cutting; per token, numbers of different tokenizers cannot be compared.
# - You can break a text in the middle of a character, and it survives.
#
# ## Sources
# Byte pairs as compression: Gage 1994, *A New Algorithm for Data Compression*. For language models: Sennrich et al. 2016, *Neural Machine Translation of Rare
# Words with Subword Units*, section 3.2. Bytes and the pattern: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.2. Entropy and
# guessing: Shannon 1948, *A Mathematical Theory of Communication*.
