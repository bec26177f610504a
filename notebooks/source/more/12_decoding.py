# %% [markdown]
# # 12 Decoding
# **Is the most probable text the one that we want?**
#
# *Needs* lesson 12. *Runs* in about 25 s on two cores.

# %%
import math

import torch

from tinylm_classroom import decoding, decoding_figures as figures, predict
from tinylm_lib import beam_search, generate, next_token_loss, next_token_probs, storyworld
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.probabilities import sample

_ = torch.set_grad_enabled(False)  # nothing is trained here
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer
line_end = tokenizer.encode("\n")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# %% [markdown]
# ## 1. Long against short
# Each word multiplies by less than 1, so longer texts are less probable, and a search for the largest product prefers texts that end early. **Length normalization** compares the sum of the logarithms divided by a power of the number of words (after [Wu et al. 2016](https://arxiv.org/abs/1609.08144)). With power 0 nothing is divided, and with 1 it is the mean per word. The shipped model, with 8 beams, from the beginning of a story to the line end:

# %%
by_power = {}
for power in (0, 1, 2):
    by_power[power] = beam_search(model, torch.tensor(line_end), 127, 8, length_penalty=power, stop_ids=line_end)
    tokens, log_prob = by_power[power][0]
    n = len(tokens) - 1
    print(f"power {power}: {n} tokens, {log_prob:.1f} nats in all, {log_prob / n:.2f} per token")

# %% [markdown]
# Power 1 chooses a slightly longer text that is less probable as a whole. Power 2 rewards length itself: its text runs to the limit of 127 tokens. (Stories here have similar lengths, so 0 and 1 differ little.)

# %% [markdown]
# ## 2. Does a wider search find better stories?
# Eight beams were our choice. To judge the scores of other widths we need the log probability of the most probable story of all. StoryWorld can compute it, because it knows every way that a story can go:

# %%
ceiling = decoding.highest_log_prob()
true_stories = decoding.true_stories(1000, seed=12)
true = torch.tensor([storyworld.log_prob(text) for text in true_stories])  # (1000)
assert true.max() < ceiling + 1e-3
print(f"the most probable story: {ceiling:.1f} nats; 1000 true stories: {true.mean():.1f} on average")

# %%
found = {}
for n_beams in (1, 2, 4, 8, 16, 32):
    found[n_beams] = beam_search(model, torch.tensor(line_end), 127, n_beams, stop_ids=line_end)
top_scores = {n: max(log_prob for _, log_prob in beams) for n, beams in found.items()}
stories = {n: [tokenizer.decode(tokens).strip() for tokens, _ in beams] for n, beams in found.items()}

# %% tags=["source-hidden"]
predict(
    "We search with 1, 2, 4, 8, 16 and 32 beams. What becomes of the stories?",
    key=lambda: (
        "scores rise, many stay impossible"
        if top_scores[32] > top_scores[1] and decoding.n_impossible(stories[32]) > 8
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
for n_beams, texts in stories.items():
    counted = f"{decoding.n_impossible(texts):>2} of {len(texts):>2} impossible"
    print(f"{n_beams:>2} beams: highest score {top_scores[n_beams]:.1f}, {counted}")

# %% tags=["source-hidden"] evidence="wider-beams"
# Checked: every search finds a score above the most probable story, and wide ones find higher scores.
assert min(top_scores.values()) > ceiling + 0.5
assert max(top_scores[1], top_scores[2]) + 0.3 < min(top_scores[n] for n in (4, 8, 16, 32))
assert decoding.n_impossible(stories[16] + stories[32]) > 24

# %% [markdown]
# Wider searches find higher scores, though not at every doubling, and the stories do not become correct. *Every* highest score, even with one beam, lies above that of the most probable story. [[wider-beams]] In StoryWorld no text has such a probability, so such a score is an error of the model and not a success of the search ([Stahlberg and Byrne 2019](https://arxiv.org/abs/1908.10090) separate *model errors* from *search errors*). How does the model score true stories, and how the possible ones among the beams?


# %%
def model_log_prob(text):
    ids = torch.tensor([tokenizer.encode("\n" + text + "\n")])  # (B, T + 1)
    return -next_token_loss(model(ids[:, :-1]), ids[:, 1:]).item() * (ids.shape[1] - 1)


def overrated(texts):
    """The model's log probability minus the exact one, in nats, on average over possible stories."""
    possible = [text for text in texts if not decoding.n_impossible([text])]
    return sum(model_log_prob(text) - storyworld.log_prob(text) for text in possible) / len(possible)


all_beams = [text for texts in stories.values() for text in texts]
of_true, of_beams = overrated(true_stories[:64]), overrated(all_beams)
print(f"model minus exact: {of_true:+.1f} nats for true stories, {of_beams:+.1f} for possible beams")

# %%
for beginning in ("One sunny morning, bold Victor", "One rainy day, brave Noah", "One warm evening, kind Mia"):
    prompt = torch.tensor(tokenizer.encode("\n" + beginning))  # (T)
    search = beam_search(model, prompt, 127 - len(prompt), 16, stop_ids=line_end)
    whole = [tokenizer.decode(tokens).strip() for tokens, _ in search]
    print(f"{beginning}: {decoding.n_impossible(whole)} of 16 impossible, possible ones {overrated(whole):+.1f}")
    assert overrated(whole) > 1

# %% tags=["source-hidden"] evidence="overrated" tried="held-out"
# Checked: true stories are underrated on average, also of other seeds, and beams are overrated.
for seed in (13, 14):
    assert overrated(decoding.true_stories(64, seed)) < -1
assert of_true < -1 and of_beams > 1

# %% [markdown]
# The model underrates true stories on average. (Over very many stories it must: the mean difference is then minus the KL divergence.) But it overrates the beams, even the possible ones, because a search picks the highest of many scores, and these tend to have an upward error: *a search seeks out the model's errors*. [[overrated]]

# %% [markdown]
# ## 3. The most probable is not typical
# There is a second reason why the most probable text is not what people write. Throw a bent coin 1000 times; it lands on heads with probability 0.6. The most probable single sequence is *all heads*. How probable are the sequences that are drawn?

# %%
p_heads, throws = 0.6, 1000
SEED = 12
n_heads = (torch.rand(1000, throws, generator=seeded(SEED)) < p_heads).sum(1)  # (1000)
drawn = n_heads * math.log(p_heads) + (throws - n_heads) * math.log(1 - p_heads)  # (1000)
all_heads = throws * math.log(p_heads)
print(f"all heads: {all_heads:.0f} nats; drawn: {drawn.mean():.0f} on average, {drawn.max():.0f} at most")

# %% tags=["source-hidden", "signature"]
figures.typical(drawn.tolist(), all_heads, "The most probable sequence is never drawn")

# %% tags=["source-hidden"] evidence="bent-coin" tried="seeds"
# Checked: with three seeds all drawn sequences lie far below all heads, around the expected value.
middle = throws * (p_heads * math.log(p_heads) + (1 - p_heads) * math.log(1 - p_heads))
for seed in (1, 2, 3):
    heads = (torch.rand(1000, throws, generator=seeded(seed)) < p_heads).sum(1)  # (1000)
    others = heads * math.log(p_heads) + (throws - heads) * math.log(1 - p_heads)  # (1000)
    assert others.max() < all_heads - 100 and abs(others.mean() - middle) < 1

# %% [markdown]
# *All heads* is more probable than any sequence that was drawn, and yet nobody sees it, because it is a single sequence and there are so many of the others. These form the **typical set**: their log probability is near the average ([Shannon 1948](https://doi.org/10.1002/j.1538-7305.1948.tb01338.x)). [[bent-coin]] Do stories behave like this?

# %%
first_beam = storyworld.log_prob(stories[8][0])
at_least = (true >= first_beam - 0.01).float().mean()
print(f"the first of 8 beams: {first_beam:.1f} nats exactly; {at_least:.0%} of true stories have as much")

# %% [markdown]
# Only weakly. Most choices in StoryWorld are among equals, so some true stories are as probable as the result of the search. In long texts with uneven choices the gap grows with the length, as with the coin, and what people write is indeed not the text that a language model finds most probable ([Holtzman et al. 2020](https://arxiv.org/abs/1904.09751)).

# %% [markdown]
# ## 4. Is it drawn right?
# A sampler with a mistake still writes texts, and they look fine. To find the mistake, **count** many draws and compare with the probabilities. Somebody left a temperature of 0.9 in the code:

# %%
opening = '\nOne rainy day, brave Noah strolled to Northgate. He carried a silver basket. There he met Kira, a sailor with a gray lamp. Noah sang to Kira, "Bright boats fall softly." Then'
logits = model(torch.tensor([tokenizer.encode(opening)]))[0, -1]  # (V)
named = torch.tensor([tokenizer.ids[word] for word in (" they", " Kira", " Noah")])  # (3)


def four_parts(probs):
    """The probabilities of they, Kira, Noah and all others, (4)."""
    return torch.cat((probs[named], 1 - probs[named].sum(0, keepdim=True)))


def alarms(drawn_with, n):
    """In how many of 20 runs a count of n draws is off by more than 3 roots of what we expect."""
    hoped = n * four_parts(logits.softmax(-1))  # (4)
    counts = [torch.bincount(sample(drawn_with.expand(n, -1), seeded(seed)), minlength=4) for seed in range(20)]
    return int((((torch.stack(counts) - hoped) / hoped.sqrt()).abs() > 3).any(-1).sum())


# %% evidence="counted" tried="seeds"
right, cold = (four_parts(next_token_probs(logits[None], t)[0]) for t in (1, 0.9))
for n in (100, 1000, 10_000, 100_000):
    print(f"{n:>7,} draws, alarms in 20 runs: {alarms(right, n):>2} where all is right, {alarms(cold, n):>2} at 0.9")
assert alarms(right, 10_000) <= 2 and alarms(cold, 10_000) > 15

# %% [markdown]
# The alarm is a distance above 3 **roots of the expected count**, which is about 3 standard deviations for a rare word (and more for a frequent one). The more draws, the smaller the mistakes that are found. [[counted]]
#
# Another way to draw is the **Gumbel-max trick**, without any softmax: add random noise to the logits, $-\ln(-\ln u)$ with $u$ uniform from 0 to 1, and take the largest. Is that the same distribution? Count:

# %% evidence="gumbel" tried="seeds"
for seed in (12, 13, 14):
    u = torch.rand(100_000, 3, generator=seeded(seed), dtype=torch.float64)  # (N, 3)
    winners = (logits[named] - (-u.log()).log()).argmax(-1)  # (N)
    by_gumbel = torch.bincount(winners, minlength=3) / len(winners)  # (3)
    print("Gumbel-max", [f"{x:.3f}" for x in by_gumbel.tolist()])
    torch.testing.assert_close(by_gumbel, logits[named].softmax(-1), atol=0.008, rtol=0)
print("softmax   ", [f"{x:.3f}" for x in logits[named].softmax(-1).tolist()])

# %% [markdown]
# It agrees with softmax. [[gumbel]] (JAX's `random.categorical` draws like this.)

# %% [markdown]
# ## 5. Writing beyond the limits
# Greedy decoding is deterministic only in evaluation mode: in training mode, dropout (where the model has it) removes other features at each call. `generate` sets evaluation mode itself. And a model reads at most so many tokens; what comes then is your decision:

# %% rows=["S4-40"] evidence="limits" tried="exact"
from tinylm_lib import TransformerLM, preset

torch.manual_seed(12)
toy = TransformerLM(preset("tiny_transformer", "tiny", max_seq_len=16)).train()
ids = torch.randint(500, (1, 8))  # (B, T)
rereads = [toy(ids)[0, -1].argmax().item() for _ in range(20)]
print(f"training mode: {len(set(rereads))} different next words in 20 readings of one text")
assert len(set(rereads)) > 1
assert generate(toy, ids, 8, temperature=0).equal(generate(toy, ids, 8, temperature=0))
for overflow, length in (("slide", 28), ("stop", 16)):
    out = generate(toy, ids, 20, overflow=overflow)  # (B, T)
    print(f"{overflow}: asked for 8 + 20 tokens, got {out.shape[1]}")
    assert out.shape[1] == length

# %% [markdown]
# By default `generate` *slides*: it reads the last 16 tokens only and forgets what was before. Or it stops; with `overflow="error"` it refuses before it begins. [[limits]]

# %% [markdown]
# ## What you have now
# - A search finds the texts that the model rates highest, and these scores are above that of every possible story: errors of the model. [[wider-beams]]
# - The model underrates true stories and overrates the beams. [[overrated]]
# - With uneven choices, drawn sequences lie far below the most probable one. [[bent-coin]]
# - Count draws to test a sampler [[counted]], and draw with Gumbel noise if you like. [[gumbel]]
# - Training mode and the context limit change what is written. [[limits]]

# %% [markdown]
# ## Sources
# - Length normalization: Wu et al. 2016, [*Google's Neural Machine Translation System*](https://arxiv.org/abs/1609.08144), section 7.
# - Model errors and search errors: Stahlberg and Byrne 2019, [*On NMT Search Errors and Model Errors: Cat Got Your Tongue?*](https://arxiv.org/abs/1908.10090).
# - Typical texts: Shannon 1948, *A Mathematical Theory of Communication*, section 7; Holtzman et al. 2020, [*The Curious Case of Neural Text Degeneration*](https://arxiv.org/abs/1904.09751).
# - Gumbel-max: Maddison, Tarlow and Minka 2014, [*A\* Sampling*](https://arxiv.org/abs/1411.0030), section 2.
