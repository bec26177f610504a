# %% [markdown] deck="Can a program learn to write by doing nothing but guess what comes next?"
# # 00 Start
# **Can a program learn to write by doing nothing but guess what comes next?**
#
# *Needs* Python, and what a logarithm is. *Builds* your first writer: a loop around a language model. *Runs* in about 25 s on two cores.
# *Teaches* in about 45 minutes, plus 10 of exercises.
#
# In this series you build a language model, every part of it, until you can read each line of a small library, `tinylm_lib`, and say why it is there. First we watch one at work. In JupyterLab <kbd>Shift</kbd>+<kbd>Enter</kbd> runs a cell, also a folded one (a gray line with three dots), and goes on to the next. You work on a copy of your own, so you cannot break anything. When you come back another day, click where you were, then *Run > Run All Above Selected Cell*.

# %% [markdown] tags=["note"]
# **Say.** Nothing about the program yet, only: "It has read stories, and now it writes one." Let somebody type a beginning. Then read the printed story aloud, slowly, and let the class find the mistake.
#
# **Usual answers.**
# - *The sentence with the green coat* (`There he met Jamal, a teacher with a green coat`): Anybody may come with anything. The mistake is about something that we know already.
# - *It has learned its stories by heart* (from the room): That is the right doubt. Section 5 tests it: somebody who remembers stories and counts is worse.
#
# **Cut if short.** Nothing. A broken installation found here costs a minute, later it costs the lesson: let everyone run this section before the class.
#
# **Tried.** The printed story has the literal seed 11. How common such a mistake is, section 5 measures.

# %% [markdown]
# ## 1. It writes
# A **language model** is a program that continues a text. This one has read short stories from a made-up world, *StoryWorld*, and nothing else. Press **Write** and watch it. Then type a beginning of your own, such as *One sunny morning, shy Mia*.

# %% deck="Press Write, or type a beginning of your own"
from tinylm_classroom import watch
from tinylm_lib.pretrained import load_pretrained

# ESSENTIAL
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
watch(model, tokenizer)
# END

# %% [markdown]
# Before each word the model gives every word that it knows a **probability**: how likely it thinks the word is to come next. The bars show the largest ones, and a random number decides which word is written. Another program makes the stories of StoryWorld, so we also know the exact probabilities: a mark on each bar. Where is the model right, and where is it not?
#
# Now it continues a text that we give it, word by word, until the story ends.

# %% rows=["S0-1"] deck="One sentence of this story is impossible"
import torch

from tinylm_classroom import predict, show_text
from tinylm_classroom import start_figures as figures
from tinylm_lib import TransformerLM, generate, storyworld


def write(writer: TransformerLM, beginning: str, seed: int = 11) -> str:
    """A story that begins like this. A line end begins and ends each story."""
    ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (1, T)
    chance = torch.Generator().manual_seed(seed)
    out = generate(writer, ids, 120, stop_ids=tokenizer.encode("\n"), generator=chance)
    return tokenizer.decode(out[0].tolist()).strip()


# ESSENTIAL
written = write(model, "One foggy afternoon, careful Carlos")
show_text(written)
# END

# %% [markdown]
# It only guesses which word comes next, like the completion on a phone that never stops. And yet this reads like a story. Read it again, like a proofreader: who has what?

# %% tags=["source-hidden"] deck="Read like a proofreader"
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

# %% [markdown] tags=["note"]
# **Say.** A thread is an experiment. We change one word, run the model again, and see which later words it no longer expects. Nobody programmed the threads.
#
# **Ask.** After the picture: "Nobody gave the program a rule about names, places or sayings. Where can it have learned them?"
#
# **Usual answers.**
# - *Every later word depends on the name* (from the room): Look for words without a thread. Most words depend on no name at all.
# - *It cannot know grammar, so somebody has built it in* (from the room): Section 6 starts the same program with random numbers, and there is no grammar.
#
# **Cut if short.** The task at the end (it is head 2 of layer 2); students do it at home.
#
# **Tried.** 60 stories of StoryWorld that the model did not write: a thread ends at 284 of 285 names, 101 of 101 places, 181 of 181 things, 148 of 148 words of sayings. 332 changes of words like *foggy* or *cycled*: none has a thread. Pronouns: 92 of 120, because half of the other names keep the pronoun, so the loss is near the limit. Task with *Noah*: in two other first sentences the silent head gives *She* 0.97 and 0.85; for other boys it often does not suffice (23 of 60), for girls it changes nothing (60 of 60).

# %% [markdown]
# ## 2. What did it remember?
# Nearly everything else is right: *Carlos* stays Carlos, and the saying comes back word for word. Does the program use the earlier words? An experiment can tell. We **change one word**, for example *Carlos* in the first line to *Mia* and to other names, and measure how probable the model then finds each later word.

# %% deck="Change a word: which later words depend on it?"
from tinylm_classroom import find_threads, share_of_threads

# ESSENTIAL
found = find_threads(model, tokenizer, written)
figures.threads(written, found, ["people"], title="A name is used again")
# END

# %% tags=["source-hidden"] slide="subslide" deck="Names, places and things are used again"
figures.threads(written, found, ["people", "places", "things"], title="So are places and things")

# %% tags=["signature", "source-hidden"] slide="subslide" deck="A saying is remembered word by word"
slip = len(storyworld.words(written[:at]))
figures.threads(written, found, title="A program wrote this. What did it remember?", impossible=slip)

# %% tags=["source-hidden"] evidence="threads" tried="held-out"
# Checked: in other stories threads end at names, places, things and sayings, and at other words none but at *day*.
SEED = 0
share, others = share_of_threads(model, tokenizer, 3, SEED)
assert share > 0.95 and others <= {"day"}
assert {"Carlos", "Oakhill", "ring", "Bright", "mice"} <= {storyworld.words(written)[t.source].strip() for t in found}

# %% [markdown]
# Could any change upset the program? Take a word on which nothing depends, such as *foggy*.

# %%
word = "foggy"  # try "ring", "Carlos" and "Oakhill"
figures.threads(written, found, title=f"What depends on {word}?", word=word)

# %% [markdown]
# A change alone does no harm. A thread shows that the program *uses* the earlier word. [[threads]]
#
# You can change more than words. Inside the model, twelve small parts called **heads** look back at earlier words (layers and heads count from 0). Now it is sure of *He*. **Your task:** make it say *She* in two ways. First exchange the name. Then take that back and silence one head of layer 2. Which one?

# %% deck="Make it say She: exchange a word, or silence one head of layer 2"
from tinylm_classroom import what_if

what_if(model, tokenizer, "\nOne foggy afternoon, careful Noah came to Hillcrest.")

# %% [markdown] tags=["note"]
# **Say.** A guess is not a word. It is a probability for every word that the model knows, and all of them together are a distribution. Say both words often; the whole series uses them.
#
# **Usual answers.**
# - *All of it should go to one colour* (`100`): Then the model is right once in twelve times. The best guess is not the most likely word; it is the right probabilities.
# - *Pink or not pink, so one half* (`50`): There are two cases, but they are not equally likely.
# - *Now it says green, of course* (`mostly green`): That is what the exact reader does. Look at the bars.
#
# **Cut if short.** The list of ids.
#
# **Tried.** Giver: 1,000 other stories (other names, places, things): with the right giver the own colour gets 0.4995, the other one 0.4995 (standard error 0.0009, n = 2,000). Later gifts, and endings after one trade alone, it knows: 1.000 of 598 and 0.999 of 411. Exchanging the giver moves a colour by 0.0011 on average, and by 0.0000 (0.00005) towards the right one. *He had a*: the twelve colours after two other beginnings have 7.6 to 9.1 percent each.

# %% [markdown]
# ## 3. One guess
# To the model each word is a number, its **id**. What it reads one at a time is called a **token**: here that is a word, a mark or a line end. A guess is a **probability for every token** that it knows. All of them together are called a **distribution**. StoryWorld knows the exact probabilities.


# %%
from tinylm_lib import next_token_probs


def guess(text: str) -> dict[str, float]:
    """How probable each token is as the next one of a story."""
    ids = torch.tensor([tokenizer.encode("\n" + text)])  # (1, T)
    with torch.no_grad():
        scores = model(ids)  # (1, T, V)
    probs = next_token_probs(scores[:, -1])[0]  # (V)
    return {tokenizer.decode([i]): p for i, p in enumerate(probs.tolist())}


def exact_guess(text: str) -> dict[str, float]:
    """The words that StoryWorld can write next, each with its probability."""
    reader = storyworld.Reader()
    for word in storyworld.words(text):
        reader.read(word)
    return reader.next_word_probs()


opening = "One foggy afternoon, careful Carlos came to Hillcrest. He had a"

# %% tags=["source-hidden"] deck="He had a pink ... How probable is pink?"
exact = exact_guess(opening)
predict(
    f"`He had a`, and then? It is one of these colours ({', '.join(map(str.strip, exact))}), all equally likely. "
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

# %% rows=["S0-2"] tags=["source-hidden"] deck="It knows twelve colours, all equally likely"
figures.guesses({"... He had a ___": (guess(opening), exact)}, title="Twelve colours, nearly equally likely")

# %%
text = opening  # try "One", "One sunny morning, shy Mia"
probs = guess(text)
least = min(probs, key=probs.get)
print(f"{len(probs)} probabilities, their sum is {sum(probs.values()):.4f}")
print(f"the smallest one: {probs[least]:.0e} for {least!r}")

# %% tags=["source-hidden"] evidence="distribution" tried="exact"
# Checked: the probabilities sum to 1, none is 0, and the twelve colours share nearly all of it.
for start in (opening, "One sunny morning, shy Mia walked to Ashford. She brought a"):
    probs = guess(start)
    twelve = [probs[colour] for colour in exact]
    assert abs(sum(probs.values()) - 1) < 1e-4 and min(probs.values()) > 0
    assert sum(twelve) > 0.999 and 0.07 < min(twelve) < max(twelve) < 0.1

# %% [markdown]
# They sum to 1, and none is exactly 0, however absurd the word. [[distribution]]
#
# Back to the impossible word. *Soon Jamal handed the* can only continue with *green*, because Jamal has the green coat. If we write *Carlos* instead of *Jamal*, only *blue* is possible.

# %% tags=["source-hidden"] deck="Jamal gives: the model is undecided. And if Carlos gives?"
story_until = written[:at].rstrip().removesuffix("Soon Jamal handed the")
givers = {name: f"{story_until}Soon {name} handed the" for name in ("Jamal", "Carlos")}
blue = {name: guess(text)[" blue"] for name, text in givers.items()}
predict(
    f"After *Soon Jamal handed the* the model gives *blue* {blue['Jamal']:.2f} and *green* nearly all the rest. Now *Carlos* is the giver. What does it expect?",
    key=lambda: "the same as before" if abs(blue["Carlos"] - blue["Jamal"]) < 0.02 else "mostly blue",
    because="It remembers both colours, but here not who has which thing, so the giver makes no difference.",
    choices={
        "the same as before": "",
        "mostly blue": "That would be right: only Carlos has a blue thing. But the model would have to know who has what.",
        "mostly green": "Then it would know who has what, and the giver would get the other one's thing.",
    },
)

# %% tags=["source-hidden"] deck="Exchange the giver, and the model says the same"
panels = {f"... Soon {name} handed the ___": (guess(text), exact_guess(text)) for name, text in givers.items()}
figures.guesses(panels, title="Exchange the giver, and the model says the same", most=3)

# %% tags=["source-hidden"] evidence="giver" tried="held-out"
# Checked: other stories.
from tinylm_classroom import exchanged_givers

SEED = 1
pairs = exchanged_givers(model, tokenizer, 50, SEED)
assert max(abs(one - other) for one, other in pairs) < 0.02
assert 0.45 < sum(one for one, _ in pairs) / 50 < 0.55

# %% [markdown]
# So the model knows that *blue* or *green* must come, and not whose thing is which. [[giver]] The slip was not bad luck.

# %% [markdown] tags=["note"]
# **Say.** You now know all that a writer needs: a guess, and a way to choose a word from it. Write the simplest writer, which always takes the most likely word.
#
# **Usual answers.**
# - *The scores of the first position* (`first position`): They belong to the second word. The last position is the one that guesses the next.
# - *Only the new word goes into the next round* (`sees the last token alone`): The model has no memory of its own here. It needs the whole text each time.
# - *All words are guessed in one go* (`never reads on`): The second new word depends on the first new one.
# - *The lowest score* (`least likely`): High scores mean likely words.
#
# **Cut if short.** The experiment on later words; lesson 05 builds the rule.
#
# **Tried.** The loop is equal to `generate(..., temperature=0)` token by token, for every beginning that we tried. A changed word and earlier guesses: exact up to rounding (below 1e-3), three stories, three positions.

# %% [markdown]
# ## 4. Your turn: write a writer
# In section 1 the words were drawn at random. The simplest writer does without chance: it always takes the most probable token. It is the one with the **highest score**. What goes in, and what comes out? One colour is one length.

# %% deck="Ids go in, a row of scores comes out for each position"
from tinylm_classroom import check, hint, keep, trace

opening_ids = torch.tensor([tokenizer.encode("\n" + opening)])  # (1, T)


def scores_of_the_next(model, ids):
    scores = model(ids)  # (1, T, V)
    return scores[:, -1]  # (1, V)


# ESSENTIAL
trace(scores_of_the_next, model, opening_ids, sizes={"V": tokenizer.vocab_size})
# END

# %% [markdown]
# What you need:
#
# - `ids` is a **tensor**, an array of numbers (lesson 02). Its **shape** (1, T) means: one row with T columns.
# - `model(ids)` takes ids of shape (1, T), one text of T tokens, and returns scores (1, T, V). The row of the *last* position belongs to the next token.
# - `scores.argmax(-1)` gives the index of the highest number along the last axis, and `keepdim=True` keeps that axis with size 1.
# - `torch.cat((a, b), dim=1)` appends b to a. Both must have two axes: `scores[:, -1:]` keeps the axis of positions, `scores[:, -1]` drops it.
#
# Until you try, the check says *not attempted yet*, and the lesson still runs to its end. A check does not only say *wrong*: it says which mistake it looks like. `hint` gives you hints, and `keep` saves what has passed for later lessons.


# %% tags=["exercise"] name="continue_greedily" minutes=10 difficulty=2 deck="Score, take the highest, append: your first writer"
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


# %% tags=["check"]
if check("continue_greedily", continue_greedily).passed:
    keep("continue_greedily", continue_greedily)

# %%
hint("continue_greedily")

# %% [markdown] tags=["solution"]
# Three lines in a loop: score, take the highest at the *last* position, append. Common mistakes: `scores[:, 0]`, which asks the first position again and again; giving the model only the new token, although it has no memory of the text; and forgetting `keepdim=True`, which leaves the shape (1,), so that `torch.cat` raises an error.
# The library does the same thing, but it keeps what it has computed for the earlier positions instead of computing it again (lesson 13).

# %% evidence="greedy-library" tried="exact"
from tinylm_classroom import yours

start_ids = torch.tensor([tokenizer.encode("\nOne foggy day,")])  # (1, T)
writer = yours("continue_greedily", continue_greedily)  # until it passes: the solution
mine = writer(model, start_ids, 110)
library = generate(model, start_ids, 110, temperature=0)  # temperature 0: no chance
assert torch.equal(mine, library)
by = "your function" if writer is continue_greedily else "the solution"
show_text({f"by {by}": tokenizer.decode(mine[0].tolist()).strip().split("\n")[0]})

# %% [markdown]
# Without chance it writes the same story each time. So a model alone does not determine a text: how to choose a word from the guess is a second decision, and it is yours. [[greedy-library]]
#
# A guess may use its own token and those before it, **but never a later one**. Does our model keep this rule? Change a word and see which guesses change.

# %% rows=["S2-1"] evidence="causal" tried="exact" deck="Causal: a guess never depends on a later word"
position = 6  # try 1, 10
replaced = opening_ids.clone()
replaced[0, position] = tokenizer.ids[" Mia"]
with torch.no_grad():
    difference = (model(opening_ids) - model(replaced)).abs().amax(-1)[0]  # (T)
row, changes = opening_ids[0], difference > 1e-3  # (T), (T)
# ESSENTIAL
print("another word instead of", tokenizer.decode([int(row[position])]))
print("the same guess after:", tokenizer.decode(row[~changes].tolist()).strip())
print("another guess after:", tokenizer.decode(row[changes].tolist()))
# END
assert difference[:position].max() < 1e-3 < difference[position]

# %% [markdown]
# A model whose guesses never depend on later tokens is called **causal**. [[causal]] Two more terms: a model is **autoregressive** if it writes one token at a time after all the tokens before it, and a Transformer, the kind of model that we build, is **decoder-only** if all its layers are causal. Ours is both, as GPT-2 and Llama are.

# %% [markdown] tags=["note"]
# **Say.** When is a list of probabilities a good guess? We score it with one number, the loss. StoryWorld is a program, so we know the lowest loss that is possible, which nobody knows for English.
#
# **Usual answers.**
# - *The more words, the better* (`seven: the more the better`): Long pieces of text are new, so there is nothing to count.
# - *A model near the floor makes hardly any mistake* (`about 2`): The loss is a mean over all words, and most words are easy.
#
# **Cut if short.** The loss of some probabilities.
#
# **Tried.** With modified Kneser-Ney instead, four words back are best for 2,000, 20,000 and 100,000 stories (1.55, 1.40, 1.36), and the small model of section 6 is still below the second. Counting (Witten-Bell, 500 new stories, standard error 0.003 to 0.006): 2,000 stories, three seeds: best with three words back, 1.61 to 1.62; 20,000, three seeds: best with four, 1.43, five 1.50; 100,000: best with four, 1.37. Loss above the exact reader: 20 sets of 100 stories, 0.0196 (standard error 0.0002). Impossible stories: 31 of 40 with the seeds 0 to 39; 1,904 of 2,400 with four beginnings and two seeds each: 79 % (standard error 0.8), between 75 % and 82 %. Three chances: 400 stories, 3.0 such words a story, first choice right in 63 %.

# %% [markdown]
# ## 5. How good is a guess?
# We score a guess by the probability $p$ that it gave to the word that really came. The **loss** of this word is $-\ln p$, in *nats*. To be sure and right has a loss of 0; to be sure and wrong has a high one.

# %% deck="The loss of a word is −ln p"
import math

probabilities = [1.0, 0.5, 0.001]  # try [0.083]
for p in probabilities:
    print(f"probability {p:<5}  loss {math.log(1 / p):.2f} nats")

# %% [markdown]
# The mean loss of the exact reader, who knows everything that can be known, is **the floor**: the rest is pure chance. For English nobody knows it. How near is our model?

# %% evidence="paired" tried="seeds" deck="0.02 nats above the best possible loss"
from tinylm_lib import evaluate
from tinylm_lib.data import every_document

SEED = 7
line_end = tokenizer.ids["\n"]
stories = storyworld.corpus(100, seed=SEED)
story_ids = torch.tensor(tokenizer.encode(stories))  # (N)
# ESSENTIAL
exact_loss = -storyworld.log_prob(stories) / len(story_ids)
shipped_loss = evaluate(model, every_document(story_ids, line_end, 32)).nats_per_token
# END
above = shipped_loss - exact_loss
print(f"nats a token: exact {exact_loss:.3f}, model {shipped_loss:.3f}")
print(f"perplexity: {math.exp(exact_loss):.2f}, {math.exp(shipped_loss):.2f}")
assert 0.01 < above < 0.03

# %% [markdown]
# ($e$ to the power of the loss is the **perplexity**: a fair choice among so many words has the same loss.) The model is very close to the best possible loss. [[paired]]
#
# Do we need a model for that? We could simply **count** which word followed the last $k$ words in the stories that we have. Where these $k$ words are new, we count after the last $k - 1$ words, and so on.

# %%
from tinylm_classroom import counting_losses, first_impossible, recorded_counting

SEED = 0
read = torch.tensor(tokenizer.encode(storyworld.corpus(2000, seed=SEED)))
counted = counting_losses(read, story_ids, line_end).mean(1).tolist()
print("counted in 2,000 stories")
print("words back:", ", ".join(f"{k}: {loss:.2f}" for k, loss in enumerate(counted)))

# %% tags=["source-hidden"]
runs = recorded_counting()
twenty = torch.tensor(runs[20_000]).mean(0).tolist()
options = ["one: what is seen more often is surer", "about four", "seven: the more the better"]
predict(
    "With 2,000 stories three words back are best. And with ten times as many, 20,000?",
    key=lambda: options[(twenty.index(min(twenty)) + 1) // 3],
    choices={
        options[0]: "One word says too little: after *the*, 44 different words can come.",
        options[1]: "",
        options[2]: "Seven words in a row are new one time in three, and most of the others are rare.",
    },
    because="More words say more, but they were seen less often. Ten times as many stories let it look one word further back.",
)

# %% tags=["source-hidden"] deck="Counting helps only a few words back"
figures.counting(runs, {"the model": shipped_loss, "the floor": exact_loss})

# %% [markdown]
# Counting ends where beginnings get long, because they are new or rare. [[counting]] The model of section 1 is far below all of that. It now writes 100 stories that begin like the one in section 1.

# %% tags=["source-hidden"] evidence="counting" tried="seeds"
# Checked: the run above is near the recorded ones, and the best number of words hardly grows.
best = {n: {losses.index(min(losses)) for losses in each} for n, each in runs.items()}
assert best == {2000: {3}, 20_000: {4}, 100_000: {4}}
assert max(abs(a - b) for a, b in zip(counted, runs[2000][0], strict=True)) < 0.05

# %% tags=["source-hidden"]
SEED = 0
where = first_impossible(model, tokenizer, "One foggy afternoon, careful Carlos", 100, SEED)
n_wrong = sum(at is not None for _, at in where)

# %% tags=["source-hidden"] deck="It is 0.02 above the floor. How many of its stories are impossible?"
predict(
    "How many of these 100 stories of the model contain an impossible word?",
    key=lambda: "about 80" if n_wrong > 60 else "about 20" if n_wrong > 10 else "about 2",
    choices={
        "about 2": "A loss is a mean over all words, and a story has about a hundred.",
        "about 20": "Even that is too few. One wrong word is enough for an impossible story.",
        "about 80": "",
    },
    because="Most words are easy, but about three times in a story the model has to know who or what has something, and mostly it guesses.",
)

# %% tags=["source-hidden"] deck="Four of five stories contain an impossible word"
figures.impossible(where)

# %% tags=["source-hidden"] evidence="impossible" tried="seeds"
# Checked: each number is in its range.
assert 65 < n_wrong < 92
assert sum(at < 40 for _, at in where if at is not None) < 0.14 * n_wrong

# %%
SEED = 3
chance = torch.Generator().manual_seed(SEED)
hundred_new = [storyworld.story(chance) for _ in range(100)]
gaps = storyworld.gaps(model, tokenizer, hundred_new)
hard = [gaps["owner"], gaps["colour"]]  # they depend on who or what has something
per_story = sum(kind.n_words for kind in hard) / 100
right = sum(kind.right * kind.n_words for kind in hard) / (100 * per_story)
print(f"{per_story:.1f} such words in a story, its first choice is right: {right:.2f}")
print(f"three of them right: {right:.2f} ** 3 = {right**3:.2f}")
print(f"stories with an impossible word: {n_wrong} of {len(where)}")

# %% [markdown]
# So the loss is nearly perfect, and four of five stories are wrong. [[impossible]] The loss is a mean over all words, and the hard ones are rare: about three in a story. But a story needs all of them to be right, and a word that is drawn is right less often than the first choice.

# %% [markdown] tags=["note"]
# **Say.** Until now the model was finished. Now a smaller one learns while we watch, in a few seconds. If you have the notebook at hand, start its training. Read the five texts aloud. The usual order is: common words, pairs of words, whole sentences, names that stay the same.
#
# **Usual answers.**
# - *Below the floor, if it trains long enough* (from the room): No model gets there, except by luck on a few stories.
# - *It cannot pass the reader of one word back so soon* (`worse than one word back`): Pairs of words are quickly learned. Look where the curve crosses the line.
# - *Counting in 20,000 stories cannot be beaten so soon* (`between one word back and counting`): Counting has to see the same words; the model notices that words are alike.
#
# **Cut if short.** Nothing; this is what they will remember.
#
# **Tried.** Ten seeds: 1.34 to 1.36 after 90 steps; at the rate 0.002 1.37 to 1.41 and at 0.01 1.32 to 1.35 (three seeds each): all below 1.43, counting in 20,000 stories. Counting in 100,000 stories has 1.37: about as good as the small model after 90 steps. Longer: 180 steps 1.24, 300 steps 1.04, 600 steps 0.86.

# %% [markdown]
# ## 6. Watch one learn
# A smaller model now learns before your eyes. It starts with random numbers as its **parameters**. In each step it reads eight pieces of text, guesses every next word, and moves each parameter a little in the direction that would have made the guesses better. Lesson 11 builds this; here we only watch.

# %%
from tinylm_lib import TrainConfig, preset, train
from tinylm_lib.data import RandomWindows
from tinylm_lib.training import build_optimizer

SEED = 0
sizes = {"total_steps": 90, "batch_size": 8, "seq_len": 128}
recipe = TrainConfig(**sizes, matrix_lr=5e-3, precision="fp32", seed=SEED)
read = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(1500, seed=SEED)))
starts = (read == line_end).nonzero()[:, 0]
batches = RandomWindows(read, 8, 128, recipe.seed, starts=starts)
_ = torch.manual_seed(SEED)
V = tokenizer.vocab_size
small = TransformerLM(preset("modern", vocab_size=V, d_model=64, n_layers=2, n_heads=4))
optimizer = build_optimizer(small, recipe)
beginning = "One foggy afternoon, careful Carlos"
losses, texts = [], {0: write(small, beginning)}
for step in train(small, optimizer, batches, recipe):
    losses.append(step.loss.item())
    if len(losses) in (3, 10, 30, 90):
        texts[len(losses)] = write(small, beginning)
n_read = 90 * 8 * 128 * 100 / len(story_ids)  # story_ids: 100 stories
print(f"read: as much as {n_read:.0f} stories")

# %% tags=["nbval-ignore-output"] deck="What it writes at five stages"
# ESSENTIAL
for_each = {n: " ".join(text[36:100].split()[:9]) for n, text in texts.items()}
show_text({f"after {n} steps": f"... {part} ..." for n, part in for_each.items()})
# END

# %% [markdown]
# (Your texts may differ a little.) Before the first step it writes words in no order; then come words that often follow each other, then whole sentences. What is missing after 90 steps is memory: names appear from nowhere.
#
# Another one learns in your browser: press **Start learning**, and let it read on.

# %%
from tinylm_classroom import watch_learning

watch_learning()

# %% tags=["source-hidden"] deck="90 steps: is it better than counting in 20,000 stories?"
small_loss = evaluate(small, every_document(story_ids, line_end, 32)).nats_per_token
names = ("knows nothing", "no word back", "one word back", "counting", "the floor")
levels = dict(zip(names, (math.log(tokenizer.vocab_size), *twenty[:2], min(twenty), exact_loss), strict=True))
ranges = ["worse than one word back", "between one word back and counting", "better than counting"]
predict(
    f"Counting in 20,000 stories has a loss of {min(twenty):.2f} on new ones. And the small model, after {n_read:.0f} stories?",
    key=lambda: ranges[sum(small_loss < levels[name] for name in ("one word back", "counting"))],
    because="Words that are used alike become alike in it, so what it learns about one helps with the others.",
    choices={
        ranges[0]: "Pairs of words are quickly learned. Look at the first steps of the curve.",
        ranges[1]: "Counting has to see the same words again. The model notices that names are alike.",
        ranges[2]: "",
    },
)

# %% tags=["source-hidden"] deck="In 90 steps it does better than counting"
figures.learning(losses, levels)

# %% tags=["source-hidden"] evidence="learns" tried="seeds"
# Checked: each number is in its range.
from tinylm_classroom import learned

print(f"the small model on new stories: {learned(small_loss, 1.2, 1.41)} nats per token")
assert exact_loss < shipped_loss < small_loss < levels["counting"] < levels["one word back"]

# %% [markdown]
# A small model learned in 90 steps what counting cannot find in many times as many stories. [[learns]] The whole difference between random words and a story is in the values of the parameters. The rest of the series builds that program.

# %% [markdown] tags=["note"]
# **Say.** Each lesson asks one question, answers it at a size that you can check by hand, and lets you write the general form. Then it shows that the library's version is equal to yours.
#
# **Usual answers.**
# - *Attention* (from the room): It is lesson 05, and it needs the four before it.
# - *Do I need a large computer?* (from the room): No. Everything runs on two cores without a network.
#
# **Cut if short.** The map; students see it when they open their copy.
#
# **Tried.** Nothing is concluded here.

# %% [markdown]
# ## How the series works
# Lessons 01 to 04 build the small parts, 05 to 10 the model, 11 to 15 what makes it learn and write fast, and 16 to 20 look inside, repair it, and end with a model of your own. Lesson 10 assembles the parts, and later lessons import what you have built. You work on copies in the folder `work/`: nothing that you have changed is ever overwritten. Numbers in ⟨ ⟩ depend on the machine, so yours may differ. Below are a report on your machine (if a line says *fix*, its arrow shows how) and your map:

# %% tags=["source-hidden"] rows=["S0-3", "S1-1", "S4-1"]
from tinylm_classroom import doctor, progress

print(doctor.report(doctor.checkup()))
progress()

# %% [markdown] tags=["note"]
# **Say.** A program that does nothing but guess the next word can write a story, remember a saying, and still not know who has the ring. Show the picture of section 2 once more. At the door, "what does the loss measure, and what does it not show?"
#
# **Usual answers.**
# - *How good the text is* (from the room): It measures how much probability the model gave to the words that came. Four of five stories are impossible.
# - *How the model works* (from the room): For that we had to change a word and measure again.
#
# **Cut if short.** The list; students read it.
#
# **Tried.** Each bullet leads to the section that says how.

# %% [markdown] deck="What you have now"
# ## What you have now
# - A language model is a function from a text to a probability for every possible next token. The probabilities sum to 1. [[distribution]]
# - To write, a program chooses a token by these probabilities, appends it to the text, and asks the model again. [[greedy-library]]
# - The shipped model uses earlier names, places, things and sayings: change one, and it expects other words. [[threads]]
# - At the first gift it does not know whose thing is which: exchange the giver, and it expects the same. [[giver]]
# - The loss of a word is $-\ln p$. The shipped model is 0.02 nats above the lowest possible mean loss. [[paired]]
# - And yet about four of five of its stories contain an impossible word. [[impossible]]
# - Counted in this way, a few words back are best, and fifty times as many stories move that by one word. [[counting]]
# - A small model learned in 90 steps to predict better than counting in 20,000 stories. [[learns]]
# - The model is causal: no prediction depends on a later token. [[causal]]
#
# Next, lesson 01: how a text becomes numbers.

# %% [markdown]
# ## Sources
# - The text: StoryWorld, in `tinylm_lib/storyworld/stories.py`.
# - People who guess letters, as a measure of a language: Shannon 1951, [*Prediction and Entropy of Printed English*](https://doi.org/10.1002/j.1538-7305.1951.tb01366.x).
# - Counting with fewer words where more are new: Witten and Bell 1991, [*The Zero-Frequency Problem*](https://doi.org/10.1109/18.87000).
# - The model: Vaswani et al. 2017, [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762), with the changes that lessons 04 to 09 explain.
# - Decoder-only models that write: Radford et al. 2019, [*Language Models are Unsupervised Multitask Learners*](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf).
