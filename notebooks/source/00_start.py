# %% [markdown] slide="slide"
# # 00 Start
# **Can a program learn to write by doing nothing but guess what comes next?**
#
# *Needs* Python and what a logarithm is. *Builds* nothing yet: today you see the whole thing work, then you take it apart. *Runs* in about 20 s on
# two cores. *Teaches* in about 54 minutes, plus 10 of exercises.
#
# In this series you build a language model, every part of it, until you can read each line of a small library called `tinylm_lib` and say
# why it is there. In JupyterLab you run a cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>, and nothing can break: that notebook is your own copy.

# %%
import copy
import math
from collections import Counter

import torch

from tinylm_lib import TrainConfig, TransformerLM, evaluate, generate, next_token_probs, preset, storyworld, train
from tinylm_lib.classroom import diagnose, hint, predict
from tinylm_lib.classroom import attention_view, capture, doctor, figures, progress, trace_model
from tinylm_lib.data import RandomWindows, every_document, every_window
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import gaps
from tinylm_lib.training import build_optimizer

_ = torch.manual_seed(0)

# %% [markdown] slide="slide"
# ## 1. Is this machine ready?
# The doctor checks the usual problems. A number between ⟨angle brackets⟩ was measured on the machine
# that ran this page; yours will differ.

# %%
print(doctor.report(doctor.checkup()))

# %% [markdown]
# Every line should say *ok*. If a line says *fix*, the arrow below it shows how. In a terminal, `python -m tinylm_lib doctor`
# tells you the same.

# %% [markdown] tags=["note"]
# Let everyone run the doctor before you go on: a broken installation found now costs a minute, in section 4 it costs the lesson.
# Common finds: a Python from the system instead of the project's, and a laptop in power-saving mode (slow matrix product).

# %% [markdown] slide="slide"
# ## 2. Watch one write
# A trained model ships with the library. It has read stories from a small made-up world, *StoryWorld*, and learned from them alone. Lesson 01 says what StoryWorld is.

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model, shipped.tokenizer
print(f"read {shipped.extra['n_stories']:,} stories, knows {tokenizer.vocab_size} words and marks")
print(f"made of {sum(p.numel() for p in model.parameters()):,} numbers, its parameters")

# %% [markdown]
# To the model a word or a mark is a number, its *id*. Whatever a model reads one at a time is a *token*; here that is a word, a mark or a line end.
# In StoryWorld each story is one line, so a line end means that a new story begins. Every text for this model therefore begins with a line end, as in its training.

# %%
ids = tokenizer.encode("\nOne foggy afternoon, careful Carlos")
print(ids)
print([tokenizer.decode([i]) for i in ids])

# %% [markdown]
# Give the model a beginning, and it continues the story until the next line end.


# %%
def write(model: TransformerLM, beginning: str, temperature: float = 1.0, seed: int = 11) -> str:
    ids = torch.tensor([tokenizer.encode("\n" + beginning)])
    source = torch.Generator().manual_seed(seed)
    stop = tokenizer.encode("\n")
    out = generate(model, ids, 120, temperature=temperature, stop_ids=stop, generator=source)
    return tokenizer.decode(out[0].tolist()).strip()


# %% rows=["S0-1"]
written = write(model, "One foggy afternoon, careful Carlos")
print(written)

# %% [markdown]
# All of it is written by one thing alone: a guess at the next word, again and again, like the completion on a phone that never stops. Now read it
# slowly, like a proofreader. Does *he* mean the right person? Are the colours kept? Who has what, after each gift? It goes wrong, and not only once: find the first impossible sentence.

# %% tags=["source-hidden"]
at = storyworld.parse(written).error_at
sentences = {
    "There he met Jamal, a teacher with a green coat.": "He may: a story may bring anybody, with anything in hand.",
    "Soon Jamal handed the blue ring to Carlos.": "",
    "Afterwards they left Oakhill for Fairview.": "They may: Oakhill is where Carlos had cycled to.",
    "The green coat was easy to see.": "It may: Jamal came with a green coat.",
}
predict(
    "Which sentence is impossible?",
    key=lambda: next(s for s in sentences if 0 <= at - written.index(s) < len(s)),
    because="The ring was with Carlos, and Jamal had only a coat: nobody can give away what another one has.",
    choices=sentences,
)

# %% [markdown]
# StoryWorld has rules, so a program can find the first word that no story could have there:

# %%
before, after = storyworld.words(written[:at]), storyworld.words(written[at:])
print(f"...{''.join(before[-10:])} >>>{after[0]} <<<{''.join(after[1:8])}...")

# %% [markdown]
# Carlos brought the blue ring, and Jamal was there with a green coat. Only the coat was his to give: nobody can give away what another one has. (The last sentence slips in the same way: by then the ring is with Carlos.) Grammar, names, colours and the story's course are right. Keeping track of *who has what* is
# harder, and section 4 measures how hard.
#
# What does the same model write before it has learned anything?

# %%
_ = torch.manual_seed(0)
untrained = TransformerLM(model.config)
nonsense = write(untrained, "One foggy afternoon, careful Carlos", seed=37)

# %% tags=["source-hidden"]
knows_all = all(word in tokenizer.ids for word in storyworld.words(nonsense))
predict(
    "The same architecture, with random numbers for parameters. What does it write?",
    key=lambda: (
        "correct sentences without sense"
        if storyworld.log_prob(nonsense) > -math.inf
        else ["letters in no order", "real words in no order"][knows_all]
    ),
    because="It cannot misspell: its tokens are whole words, and only which of them comes next is left to it.",
    choices={
        "letters in no order": "It would, if its tokens were letters. Here a token is a word.",
        "real words in no order": "",
        "correct sentences without sense": "Word order has to be learned too: nobody has built grammar in.",
        "the same word again and again": "Random parameters prefer some words a little, none by far: each draw is likely to bring another word.",
    },
)

# %%
print(nonsense[:300])

# %% [markdown]
# Same parts, same size, same program. All that lies between the two texts is in the values of those parameters, and they came from
# guessing. This lesson follows the guess; the rest of the series builds what makes it.

# %% [markdown] slide="slide"
# ## 3. One guess
# A guess is not one word. It is a **probability for every word** that the model knows. All of them together are called a *distribution*.


# %%
def guess(beginning: str) -> torch.Tensor:
    ids = torch.tensor([tokenizer.encode("\n" + beginning)])  # (1, T)
    with torch.no_grad():
        scores = model(ids)  # (1, T, V)
    return next_token_probs(scores[:, -1])[0]  # (V)


# %% evidence="distribution" rows=["S0-2"]
beginning = "One foggy afternoon, careful Carlos came to Hillcrest."
probs = guess(beginning)  # (V)
for i in probs.topk(3).indices.tolist():
    print(f"{probs[i]:7.2%} {tokenizer.decode([i])!r}")
for start in (beginning, "One", "One sunny morning, shy Mia"):
    assert guess(start).shape == (345,)
    assert torch.isclose(guess(start).sum(), torch.tensor(1.0))
    assert guess(start).min() > 0

# %% [markdown]
# All 345 probabilities sum to 1, and none is exactly 0, however absurd the word. Here nearly everything goes to one word, because a boy's name came
# before. Now the sentence goes on: *He had a*, and a colour must follow. The model cannot know which.


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
    f"`He had a`, and then? StoryWorld draws one of its colours ({', '.join(map(str.strip, exact))}), each equally likely. "
    "What is the best probability to give to `pink`, in percent?",
    key=lambda: 100 * exact[" pink"],
    number="%",
    within=0.5,
    because="All twelve colours are equally likely, and a model that gives one of them more must give another one less.",
    feedback={
        100: "Sure of pink? That is right once in twelve times, and costs dearly the other eleven.",
        50: "Pink or not pink are two cases, but not equally likely ones.",
    },
)

# %%
probs = guess(beginning + " He had a")  # (V)
for word in sorted(exact, key=lambda word: -probs[tokenizer.ids[word]])[:4]:
    print(f"{word:>8}: the model {probs[tokenizer.ids[word]]:.1%}, the best possible {exact[word]:.1%}")

# %% [markdown]
# These are only the four highest of twelve. Here are all of them, for this beginning and for two others.

# %% evidence="colours"
others = (
    "One sunny morning, shy Mia walked to Ashford. She brought a",
    "One cold evening, brave Tom hurried to Seaview. He held a",
)
for start in (beginning + " He had a", *others):
    probs = guess(start)  # (V)
    twelve = [probs[tokenizer.ids[word]].item() for word in exact]
    print(f"all twelve {sum(twelve):.2%}, the lowest {min(twelve):.1%}, the highest {max(twelve):.1%}")
    assert sum(twelve) > 0.999
    assert 0.07 < min(twelve) < max(twelve) < 0.1

# %% [markdown]
# Nobody gave the model the list of colours, nor the rule that all are equally likely. For the first thing in a story it has learned both well: the twelve colours together get nearly all of the
# probability, and each of them gets between 7.6 and 9.1 percent, where 8.3 is exact. [[colours]]
#
# This is also how probabilities become a word. To write, we draw one word with these probabilities, put it behind the text, and guess again.
# A *temperature* of 1 uses the probabilities as they are; temperature 0 always takes the largest.
#
# Could we not simply count which word followed, in all the stories there are? For a short beginning, yes. A long one is new.

# %%
told = [storyworld.words(line) for line in storyworld.corpus(3500, seed=3).splitlines()]
print("how many of 500 new beginnings have been seen before")
for length in (2, 4, 5, 6, 8, 12):
    begins = ["".join(line[:length]) for line in told]
    few, many = (sum(b in set_of for b in begins[3000:]) / 500 for set_of in (set(begins[:500]), set(begins[:3000])))
    print(f"the first {length:>2} words: {few:4.0%} in 500 stories, {many:4.0%} in 3,000")

# %% [markdown]
# In 500 stories almost nothing is left to count after six words. With six times as many stories the wall comes hardly one word later, and it comes. And yet you have
# no trouble to go on. Something has to notice that a new sentence is
# *like* an old one. That something is what we build.
#
# One rule keeps the guess honest, in training and in writing: a guess may use **this word and the ones before it, never a later one**. Let us see whether the model keeps it: we
# change the last word and look at which guesses change.

# %% rows=["S2-1"]
a, b = (torch.tensor([tokenizer.encode(f"\nOne foggy afternoon, careful {name}")]) for name in ("Carlos", "Mia"))
with torch.no_grad():
    same = torch.isclose(model(a), model(b), atol=1e-4).all(-1)[0]  # (T)
for i, unchanged in zip(a[0].tolist(), same.tolist(), strict=True):
    print(f"the guess after {tokenizer.decode([i])!r:<12} is {'the same' if unchanged else 'another one'}")
assert same[:-1].all() and not same[-1]

# %% [markdown]
# Only the guess made *at* the changed word differs. One pair of names is not much evidence, so we change one word in the middle of three other stories, at an early, a middle and a late position.

# %% evidence="causal"
for line in storyworld.corpus(3, seed=11).splitlines():
    read_ids = torch.tensor([tokenizer.encode("\n" + line)])  # (1, T)
    for t in (5, 30, 70):
        changed = read_ids.clone()
        changed[0, t] = (read_ids[0, t] + 1) % tokenizer.vocab_size
        with torch.no_grad():
            difference = (model(read_ids) - model(changed)).abs().amax(-1)[0]  # (T)
        assert difference[:t].max() < 1e-3
        assert difference[t] > 0.1 and difference[t + 1 :].max() > 0.1
print("3 stories, 3 positions each: no guess before the changed word differs, and some behind it do")

# %% [markdown]
# A model like this is called **causal**. [[causal]] Two more terms are often confused. A model is **autoregressive** if it predicts one token at a time from all the tokens
# before it. A Transformer is **decoder-only** if it consists of such causal layers alone. Ours is both, and so are GPT-2 and Llama, which differ from ours in size, and in parts that lessons 04 to 08 name.
# T5 is only the first: it also writes one token at a time, but a second stack of layers, the *encoder*, reads its input without a causal rule (Raffel et al. 2020).

# %% [markdown] tags=["note"]
# The colours are the heart of this section: the best guess is not the most likely word, it is the right probabilities. Ask who gave 100 %.
# To cut for a short class: the counting of beginnings. Keep the causal rule, lesson 05 rests on it.
# Ask whether a translation model with an encoder is autoregressive. Many say no, because they take the word for *decoder-only*; T5 is the counterexample.

# %% [markdown] slide="slide"
# ## 4. How good is a guess?
# We score a guess by how surprised the model is. If it gave the word that really came the probability $p$, its *loss* for this word is $-\ln p$, counted in *nats*. We also say that the word *costs* so many nats.

# %%
for p in (1.0, 0.5, 1 / 12, 0.001):
    print(f"probability {p:.3f} costs {-math.log(p) + 0.0:.2f} nats")

# %%
V = tokenizer.vocab_size

# %% tags=["source-hidden"]
predict(
    f"A model that knows nothing gives each of the {V} words the same probability. What does a word cost it?",
    key=lambda: math.log(V),
    number="nats",
    within=0.05,
    because=f"Each gets 1/{V}, and -ln(1/{V}) = ln {V}.",
    feedback={
        1.0: "That would be a probability of 1/e, more than a third.",
        math.log2(V): "In bits, yes: the logarithm to base 2. Nats use the natural logarithm.",
    },
)

# %% [markdown]
# We measure what a word costs on stories that neither model has read.

# %%
stories = storyworld.corpus(100, seed=7)
fresh_ids = torch.tensor(tokenizer.encode(stories))
line_end = tokenizer.encode("\n")[0]


def cost(model: TransformerLM) -> float:
    return evaluate(model, every_document(fresh_ids, line_end, 32)).nats_per_token


# %%
shipped_cost = cost(model)
print(f"knows nothing: {math.log(V):.2f} nats per word")
print(f"untrained:     {cost(untrained):.1f}")
print(f"shipped:       {shipped_cost:.2f}")

# %% [markdown]
# This untrained model is even a little worse than knowing nothing: random parameters have random opinions, and wrong opinions cost. But is the cost of the
# shipped one *good*? Three more levels tell. What does a word cost whoever knows only **how common** each word is? Whoever
# knows also the **one word before**? And whoever knows **everything that can be known**? For ordinary text nobody can say the last one. StoryWorld's
# probabilities are known, so here it is a number.

# %%
readers = storyworld.entropies(tokenizer, n_stories=2000)
levels = {
    "knows nothing": math.log(V),
    "how common": readers.unigram,
    "one word back": readers.bigram,
    "the floor": readers.floor,
}
for name, nats in levels.items():
    print(f"{name:<14} {nats:.2f} nats per word")

# %% [markdown]
# Over all stories, no model can have a mean loss below the floor, because the rest is pure chance, such as which colour is drawn. But the floor is a mean over all stories,
# and our 100 stories may happen to be easier or harder than most. For a fair comparison we need the exact loss of the same 100 stories.

# %% evidence="paired"
exact_cost = -storyworld.log_prob(stories) / len(fresh_ids)
print(f"the same stories: exact {exact_cost:.3f}, shipped {shipped_cost:.3f} nats per word")
print(f"the model is above the exact reader by {shipped_cost - exact_cost:.3f}")
assert 0.01 < shipped_cost - exact_cost < 0.03

# %% [markdown]
# The shipped model is very close to the best possible loss. [[paired]] Where does it lose the rest? At every word we can compare its distribution with the exact one, and
# add up the differences (each is a *Kullback-Leibler divergence*, also in nats) for each kind of word. To be sure that the answer does not depend on a few stories, we do this for three groups of them.

# %%
groups = []
for g in range(3):
    group = [storyworld.story(torch.Generator().manual_seed(50 * g + n)) for n in range(30)]
    groups.append(gaps(model, tokenizer, group))
for kind in ("pronoun", "name", "place", "quotation", "colour", "owner"):
    print(f"{kind:<10} the first choice is right in", *(f"{found[kind].right:4.0%}" for found in groups))


# %%
def part_of_loss(found: dict, kind: str) -> float:
    """The nats lost above the exact loss on words of one kind, as a part of all that is lost."""
    return found[kind].nats * found[kind].n_words / (found["all"].nats * found["all"].n_words)


# %% evidence="owner"
for kind in ("owner", "colour", "other"):
    print(f"{kind:<10} part of what is lost", *(f"{part_of_loss(found, kind):4.0%}" for found in groups))
for found in groups:
    assert part_of_loss(found, "owner") > 0.5
    assert sum(part_of_loss(found, kind) for kind in ("owner", "colour", "other")) > 0.97
    assert min(found[kind].right for kind in ("pronoun", "name", "place", "quotation")) > 0.98

# %% [markdown]
# More than half of what the model loses, it loses on the *owner* words, which depend on who has what, as in the mistake of section 2. [[owner]] It copies names, pronouns, places and quotations almost without a mistake.
# Some of the rest it loses on colours that it has to recall, and some on the words called *other*, which the story so far does not determine.
#
# Now let a smaller one learn before your eyes. Again and again: read 8 stories, guess every next word, and move each parameter a little in
# the direction that would have made the guesses better. Lesson 11 builds this loop; here we only watch.

# %%
recipe = TrainConfig(total_steps=90, batch_size=8, seq_len=128, matrix_lr=5e-3, precision="fp32")
read = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(1500, seed=0)))
starts = (read == line_end).nonzero()[:, 0]
batches = RandomWindows(read, recipe.batch_size, recipe.seq_len, recipe.seed, starts=starts)

# %%
_ = torch.manual_seed(0)
small = TransformerLM(preset("modern", vocab_size=V, d_model=64, n_layers=2, n_heads=4))
optimizer = build_optimizer(small, recipe)
losses = [step.loss.item() for step in train(small, optimizer, batches, recipe)]

# %%
small_cost = cost(small)

# %% tags=["source-hidden"]
places = ["above one word back", "between one word back and the floor", "below the floor"]
predict(
    f"{recipe.total_steps} steps are done. Where does the small model stand now?",
    key=lambda: places[sum(small_cost < level for level in (readers.bigram, exact_cost))],
    because="It predicts better than a reader of pairs of words by now, and the rest takes longer: the shipped model trained for thousands of steps.",
    choices={
        "above one word back": "It sees the whole story so far, and pairs of words are quickly learned: look at the first steps.",
        "between one word back and the floor": "",
        "below the floor": "No model gets there, except by luck on a few stories: the floor is the loss of a reader who knows everything.",
    },
)

# %%
smooth = [sum(losses[i : i + 10]) / 10 for i in range(10, recipe.total_steps, 10)]
steps = [*range(1, 11), *range(20, recipe.total_steps + 1, 10)]
figures.loss_curve(
    {"small model": (steps, losses[:10] + smooth)},
    levels,
    caption="The first ten steps are drawn singly, then the mean of each ten. Within a few dozen steps it passes the reader "
    "who looks one word back. The way to the floor is longer.",
    title="It learns to guess",
    unit="nats per word",
)

# %% [markdown]
# To feel what so many nats are: $e$ to the cost is the number of words among which a fair choice would cost as much.

# %%
print(f"steps 11 to 20: {smooth[0]:.1f} nats per word on average")
print(f"the small one on new stories: {small_cost:.1f} nats per word")
print(
    f"as unsure as a fair choice among {math.exp(small_cost):.1f} words, the shipped one {math.exp(shipped_cost):.1f}"
)
assert exact_cost < shipped_cost < small_cost < readers.bigram

# %% [markdown]
# If the loss of the model is below a line, its predictions are better on average than those of that reader. The loss alone does not show
# *what* it uses: for that we have to look inside, or to change something and measure again, as in the next section.

# %% [markdown] tags=["note"]
# While it trains, ask the room: which of the lines will it pass, and when? The shipped model trained for some minutes; how that went stands in
# `tinylm_lib/weights/storyworld/log.txt`. To cut for a short class: the table of the kinds of words.

# %% [markdown] slide="slide"
# ## 5. Where does it look?
# The model was sure that *He* must follow *…came to Hillcrest.* Only one word in that sentence determines it, the name. Does the model look there?
#
# Inside there are *heads*, which look back at earlier words, each in its own way. Here is one of them, in the last of three layers (they count from 0). Each row is a word
# that asks; read how it spreads its attention. In a running notebook or in the exported page you can pick a row with the mouse or the arrow keys;
# elsewhere you see a picture of the last one.

# %%
attention_view(model, tokenizer, "\nOne foggy afternoon, careful Carlos came to Hillcrest.", layer=2, head=2)

# %% [markdown]
# In the last row, where *He* is predicted, nearly all of the attention goes to *Carlos*. Nobody programmed the head to look for names. Other heads look elsewhere:
# switch the head and see (live or in the page only). There, the buttons from `q · k` to `mix` show step by step how such a row is computed. Lessons 03 and 05 explain these steps, and
# lesson 07 builds the heads.
#
# It is tempting to conclude that the model writes *He* because this head looks at *Carlos*. But the row shows only where the head looks, and not whether the prediction depends on it. To find out, we have to
# change something. First the name: we put all names of StoryWorld into three sentences, and ask for the probability of the right pronoun.

# %%
frames = [
    ("One foggy afternoon, careful", " came to Hillcrest."),
    ("One sunny morning, shy", " walked to Ashford."),
    ("One cold evening, brave", " hurried to Seaview."),
]
names = list(exact_probs(frames[0][0]))
openings = [first + name + rest for first, rest in frames for name in names]
opening_ids = torch.tensor([tokenizer.encode("\n" + opening) for opening in openings])  # (N, T)
pronouns = [next(iter(exact_probs(opening))) for opening in openings]
print(f"{len(openings)} sentences: {openings[0]}{pronouns[0]} ... {openings[-1]}{pronouns[-1]} ...")


# %%
def pronoun_probs(model: TransformerLM) -> tuple[torch.Tensor, torch.Tensor]:
    """For each sentence the probability of its right pronoun, and of either pronoun."""
    with torch.no_grad():
        probs = next_token_probs(model(opening_ids)[:, -1])  # (N, V)
    right_ids = torch.tensor([tokenizer.ids[pronoun] for pronoun in pronouns])  # (N)
    right = probs.gather(1, right_ids[:, None])[:, 0]  # (N)
    either = probs[:, tokenizer.ids[" He"]] + probs[:, tokenizer.ids[" She"]]  # (N)
    return right, either


# %%
whole, _ = pronoun_probs(model)
print(f"the right pronoun: {whole.mean():.2f} on average, {whole.min():.2f} at least")
assert whole.min() > 0.99

# %% [markdown]
# The name alone decides, and the model gets it right for every name. Now the head. What all heads of a layer have found goes through one matrix, `o_proj`, and each head has its own columns there. If we set
# the columns of one head to 0, the head is silenced: whatever it finds, nothing of it reaches the rest of the model. To remove a part and measure what changes is called an **ablation** (for heads: Michel et al. 2019).


# %%
def without_head(layer: int, head: int) -> TransformerLM:
    """A copy of the model in which one head is silenced."""
    silenced = copy.deepcopy(model)
    D = model.config.d_head
    with torch.no_grad():
        silenced.blocks[layer].attention.o_proj.weight[:, head * D : (head + 1) * D] = 0  # (C, D)
    return silenced


# %%
left, _ = pronoun_probs(without_head(2, 2))

# %% tags=["source-hidden"]
ranges = ["below 0.1", "between 0.1 and 0.6", "above 0.6"]
predict(
    "We silence the head that looks at the name (layer 2, head 2). The right pronoun had a probability of 1.00. What is left of it, on average?",
    key=lambda: ranges[sum(left.mean().item() > bound for bound in (0.1, 0.6))],
    because="With this head silent every girl still gets *She*, and many boys get *He*. Setting an output to 0 shows what the model does without it, not what the output carries: we come back to this.",
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

# %% [markdown]
# Silencing any one of ten heads changes almost nothing here. The head that we looked at matters a little, and a head in the *first* layer seems to matter far more. Let us look closely at these two: where they look in the last row, and what
# is left when they are silenced.

# %% evidence="heads-silenced"
caught = capture(model, opening_ids)
she = torch.tensor([pronoun == " She" for pronoun in pronouns])  # (N)
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
# Without the head that looks at the name, a pronoun still follows, and most of the pronouns are right. Without the head in the first layer the model no longer expects any pronoun, although this head looks at *One*, the first word of every story. [[heads-silenced]]
# Does that head find out something about the name? Be careful: 0 is a value that the later layers have never met. A milder change is an **exchange**: in every sentence the head gets the output that it has in another of the 120 sentences.
# If a head carries what is known of the name, the pronoun follows the *other* sentence.


# %%
def exchanged_head(layer: int, head: int, other: torch.Tensor) -> TransformerLM:
    """A copy of the model in which sentence i gets the output of one head from sentence other[i]. other (N)."""
    changed = copy.deepcopy(model)
    D = model.config.d_head

    def exchange(_, inputs):
        heads = inputs[0].clone()  # (N, T, C)
        heads[..., head * D : (head + 1) * D] = inputs[0][other, :, head * D : (head + 1) * D]
        return (heads,)

    changed.blocks[layer].attention.o_proj.register_forward_pre_hook(exchange)
    return changed


# %%
other_sex = torch.arange(120).roll(60)  # another of the three sentences, and a name that takes the other pronoun
same_name = torch.arange(120).roll(40)  # another of the three sentences, and the same name
assert (she[other_sex] != she).all() and (she[same_name] == she).all()

# %% evidence="heads-exchanged"
for what, other in (("a name of the other sex", other_sex), ("the same name", same_name)):
    print(f"the right pronoun, if one head has its output from another sentence with {what}")
    for layer in range(model.config.n_layers):
        exchanged = [pronoun_probs(exchanged_head(layer, head, other))[0] for head in range(model.config.n_heads)]
        print(f"layer {layer}:", "  ".join(f"head {head} {x.mean():.2f}" for head, x in enumerate(exchanged)))
        for head, x in enumerate(exchanged):
            follows = what != "the same name" and (layer, head) == (2, 2)
            assert x.mean() < 0.05 if follows else x.mean() > 0.98

# %% [markdown]
# Now the two heads change roles. If head 2 of layer 2 gets its output from a sentence with a name of the other sex, *He* becomes *She* and *She* becomes *He*. With the same name in another sentence nothing changes. So this head brings to the last position which pronoun the name takes, and
# no other head does that alone. The head in the first layer can be exchanged freely: its output tells nothing of the name or of the sentence. The later layers only rely on that output being there, and 0 took it away. [[heads-exchanged]]
#
# **A row of attention is a clue, not a proof** (Jain and Wallace 2019). Here the clue was right, and it took an experiment to know that. An experiment answers only its own question, too: *can the model do without this output?* and *what does this output carry?* have different answers.
# Such an exchange is called *activation patching* (Vig et al. 2020). Lesson 07 removes heads, and lesson 10 exchanges whole vectors.

# %% [markdown] tags=["note"]
# Ask before the ablation: *what would you change to find out whether the model needs this head?* The usual wrong answer to the prediction is *below 0.1*. After the ablation the usual wrong conclusion is that the first-layer head decides the pronoun; ask what 0 means to the layers above.
# Draw on the board: two sentences, Carlos and Mia, and one wire of each that is swapped. To cut for a short class: the first table, and only report the two heads.

# %% [markdown] slide="slide"
# ## 6. The whole model on one page
# The model is a stack of three *blocks*, the layers of section 5. In each are an *attention*, which looks back, a *feed-forward* part, which works on
# each word by itself, and two *norms*, which bring the input of each part to one size (inside the attention you will see two small ones more).

# %%
block = model.blocks[0]

# %% tags=["source-hidden"]
parts = {"in the attention": "attention", "in the feed-forward (ffn)": "ffn", "in a norm": "attn_norm"}
predict(
    "Where are most of a block's parameters?",
    key=lambda: max(parts, key=lambda part: sum(p.numel() for p in block.get_submodule(parts[part]).parameters())),
    because="The column of parameters in the next table says so: the feed-forward part widens each vector, works on it, and narrows it again, with three matrices.",
    choices={
        "in the attention": "Attention is famous, and still it has fewer: four square matrices.",
        "in the feed-forward (ffn)": "",
        "in a norm": "A norm has one number for each place of the vector, no matrix.",
    },
)

# %% [markdown]
# Now everything between the ids and the scores, each part with the shape of what it really returned for two pieces of eleven words. *FLOPs* are
# floating-point operations, the multiplications and additions that a part takes. One colour is one axis, here and in every lesson.

# %% rows=["S1-1"]
two = fresh_ids[:22].view(2, 11)
assert model(two).shape == (2, 11, 345)
trace_model(model, two)

# %% [markdown]
# Look at the shapes only. Nearly everything is $(B, T, C)$: for every text and every position one vector, a list of numbers, of width $C$.
# Ids go in at the top and become vectors. Each block adds to them what it has found, one block after the other, and what was there stays. At the end they
# become $V$ scores, and lesson 03 turns scores into probabilities. Each kind of part has its lesson.

# %%
kinds = ("attn_norm", "attention", "ffn_norm", "ffn")
count = {name: sum(p.numel() for p in block.get_submodule(name).parameters()) for name in kinds}
for name, n in sorted(count.items(), key=lambda item: -item[1]):
    print(f"{name:<10} {n:>7,}  {n / sum(count.values()):4.0%} of a block")

# %% [markdown] slide="slide"
# ## 7. Your turn
# An exercise is a function with a missing body. Fill it in, run its cell, then run the **check** below it. A check does not only say *wrong*. It
# says which mistake it looks like. Here is one: lesson 01 asks which two *neighbours* occur most often in a list, and somebody in a hurry has counted the
# numbers.


# %%
def in_a_hurry(ids):
    return tuple(number for number, _ in Counter(ids).most_common(2))


print(diagnose("most_common_pair", in_a_hurry).message)

# %% [markdown]
# Stuck? `hint("name")` shows hints to unfold, the smallest first.

# %%
hint("most_common_pair")

# %% [markdown]
# And a function that has passed may be **kept**: `keep("name", name)` writes it to `work/parts`, and later models are built with your part in
# place. Until you try, the check says *not attempted yet* and the lesson still runs to its end, so you can always come back.
#
# **The most likely word, again and again.** In section 2 words were drawn at random. Write the simplest writer of all: it always takes the
# word with the highest score. `model(ids)` takes ids of shape (1, T) and returns scores (1, T, V); the row for the *last* position
# belongs to the next word. `scores.argmax(-1)` finds the highest, `torch.cat((a, b), dim=1)` puts b behind a.
# Both must have two axes: `scores[:, -1:]` keeps the axis of positions, `scores[:, -1]` drops it.
#
# <details><summary>A hint</summary>A loop of n rounds. In each round ask the model about all the ids that you have by now, those that you added among them.
# Which line makes them one longer?</details>


# %% tags=["exercise"] name="continue_greedily" minutes=10 difficulty=2
def continue_greedily(model, ids, n):
    """ids (1, T). Returns (1, T + n): the ids and n more, each the most likely next one."""
    # SOLUTION
    for _ in range(n):
        scores = model(ids)  # (1, T, V)
        next_id = scores[:, -1].argmax(-1, keepdim=True)  # (1, 1)
        ids = torch.cat((ids, next_id), dim=1)  # (1, T + 1)
    return ids
    # END


# %% tags=["check"] evidence="greedy"
prompt = torch.tensor([tokenizer.encode("\nOne foggy day,")])
try:
    mine = continue_greedily(model, prompt, 30)
except NotImplementedError:
    print("continue_greedily: not attempted yet")
else:
    assert mine is not None, "your function gives nothing back: is there a return at the end?"
    assert mine.shape == (1, 35), f"30 words behind 5 make (1, 35), yours is {tuple(mine.shape)}"
    assert torch.equal(mine[:, :5], prompt), "the beginning must stay as it was"
    wanted = generate(model, prompt, 30, temperature=0)
    wrong = (mine != wanted).nonzero()
    first = wrong[0, 1].item() - 4 if len(wrong) else 0
    why = {
        1: "give the model all of ids, not the last one alone, and take the scores of the last position",
        2: "did the model see your first new word? Ask it again after each word",
    }
    assert first == 0, f"word {first} differs: {why.get(first, 'does the model see all the words so far?')}"
    print("continue_greedily: right, word by word the same as the library's generate(..., temperature=0)")

# %% [markdown] tags=["solution"]
# Three lines in a loop: score, take the highest at the *last* position, append. The two usual slips are `scores[:, 0]` (the first
# position: the text then never changes its mind) and forgetting `keepdim=True`, which leaves a shape of (1,) that `torch.cat` refuses.
# The library does the same thing, only it remembers the earlier positions instead of computing them again (lesson 13). The greedy story is always
# the same one: chance is part of writing, and lesson 12 is about how much of it.

# %% [markdown] slide="slide"
# ## 8. Break it
# The model is excellent on stories. Now we hand it the same words in random order. Knowing nothing costs ln V, whatever comes.

# %%
orders = [torch.randperm(len(fresh_ids), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
shuffled_costs = [evaluate(model, every_window(fresh_ids[order], 32, 127)).nats_per_token for order in orders]
shuffled = sum(shuffled_costs) / 3

# %% tags=["source-hidden"]
answers = {
    "about what stories cost": "It relies on what came before, and that is now misleading.",
    "about what knowing nothing costs": "Only if it knew that it does not know. It goes on being sure.",
    "far more than knowing nothing": "",
}
predict(
    "What does a word of the shuffled text cost the shipped model?",
    key=lambda: list(answers)[(shuffled > 2) + (shuffled > 1.5 * math.log(V))],
    because="It is sure of its guesses, and a guess that is sure and wrong has the highest loss: the probability left for the word that really came is tiny.",
    choices=answers,
)


# %%
def first_choice(batches) -> float:
    """The probability of the most likely next token, on average."""
    with torch.no_grad():
        tops = [model(x).softmax(-1).amax(-1)[y >= 0] for x, y in batches]  # (n) each
    return torch.cat(tops).mean().item()


# %% evidence="shuffled"
three = ", ".join(f"{x:.0f}" for x in shuffled_costs)
print(f"stories {shipped_cost:.1f}, shuffled in three ways {three}, knowing nothing {math.log(V):.1f} nats a word")
sure = first_choice(every_document(fresh_ids, line_end, 32))
still_sure = first_choice(every_window(fresh_ids[orders[0]], 32, 127))
print(f"its first choice gets {sure:.2f} on stories, {still_sure:.2f} on shuffled words, on average")
assert min(shuffled_costs) > 2 * math.log(V) and still_sure > 0.8 * sure

# %% [markdown]
# The model has learned the world that it was trained in. On this text from outside that world it is still sure of its first choice, and mostly wrong. So a single probability does not warn us: it says how sure the model is, not whether it is right. [[shuffled]]

# %% [markdown] slide="slide"
# ## How the series works
# | lesson | you build |
# |---|---|
# | 01 tokens, 02 linear, 03 softmax, 04 normalization | the small parts |
# | 05 attention, 06 positions, 07 heads, 08 feedforward, 09 block, 10 model | the model of section 6, row by row |
# | 11 training, 12 sampling, 13 cache, 14 speed, 15 scale | what makes it learn, write, and do both fast |
#
# Each lesson asks one question, answers it at a size that you can check by hand, lets you write the general form, and then shows that the
# library's version is equal to yours. Later lessons import it. You work on copies in the folder `work/`: nothing you have changed is ever overwritten,
# and when a lesson has been improved, the new one is put beside yours. This is your map:

# %% rows=["S0-3", "S4-1"]
progress()

# %% [markdown]
# ## What you have now
# - A language model is a function from a text to a probability for every possible next token. The probabilities sum to 1. [[distribution]]
# - The loss of a word is $-\ln p$, where $p$ is the probability that the model gave to the word that came. In StoryWorld the lowest possible mean loss is known, and the shipped model is close to it. [[paired]]
# - The shipped model copies names and quotations almost without a mistake. More than half of what it loses above the floor, it loses on words that depend on who has what. [[owner]]
# - The model is causal: a prediction depends on earlier tokens and not on later ones. [[causal]]
# - To write, a program chooses a token by the model's probabilities, appends it to the text, and asks the model again. [[greedy]]
# - An attention map shows where a head looks. To learn what a head contributes, change its output: set it to 0, or exchange it with that of another sentence. The two answer different questions. [[heads-silenced]] [[heads-exchanged]]
# - On the words of stories in random order, the shipped model is still sure of its first choice, and its loss is far above $\ln V$. [[shuffled]]
#
# ## Sources
# The text: StoryWorld, in `tinylm_lib/storyworld/stories.py`. Guessing letters as a measure of a language: Shannon 1951, *Prediction and Entropy of Printed English*.
# The model: Vaswani et al. 2017, *Attention Is All You Need*, with the changes that lessons 04 to 08 explain. Decoder-only models that write: Radford
# et al. 2019, *Language Models are Unsupervised Multitask Learners*. T5, with an encoder and a decoder: Raffel et al. 2020, *Exploring the Limits of Transfer Learning with a Unified
# Text-to-Text Transformer*. Heads removed: Michel et al. 2019, *Are Sixteen Heads Really Better than One?* Outputs exchanged: Vig et al. 2020, *Investigating Gender Bias in Language Models Using Causal Mediation Analysis*. What a map of attention does not show: Jain and Wallace 2019, *Attention is not Explanation*.
