# %% [markdown] deck="How does a model learn?"
# # 11 Training
# **How does a model learn?**
#
# *Needs* lessons 03, 09 and 10. *Builds* `random_windows` in `data/windows.py`, by hand AdamW's rule, and the loop of `train` in `training/loop.py`. *Runs* in about 50 s on two cores.
# *Teaches* in about 45 minutes, plus 24 of exercises.

# %% [markdown] tags=["note"]
# The lesson has one idea: a training loop is ten lines, and the loss alone does not show whether they are right. Sections 1 to 3 make the parts, section 4 puts them together and watches what the model becomes, section 5 chooses the rate, section 6 trains for real, section 7 breaks the loop. The exercises are homework, or a second hour. If you have only ten minutes, show the picture of section 4 and the one of section 7. The long cells (sections 4, 6 and 7) take about ten seconds each: run them before the class.

# %% [markdown] tags=["note"]
# **Say.** A text needs no labels: at every position the next token is the right answer. Let the class find out what the dark words have in common before you say it.
#
# **Usual answers.**
# - *It knows the phrase now, so near 0* (`near 0, it knows the phrase`): Weights do not change while a model reads. Everything it knows of this story is in the story.
# - *As high as the first time* (`about 3, as the first time`): That would be a model without an opinion. This one is sure that the quotation is repeated.
# - *The targets are the words themselves* (`not shifted`): then copying would be enough.
# - *Shift the rows* (`over the batch`): a row is a text; its tokens are along axis 1.
#
# **Cut if short.** The comparison of one pass with ten.
#
# **Tried.** 60 other stories, 1,083 words that an earlier word determines: a mean loss of 0.08 nats, all other words 0.81. In 25 other stories the exact loss, that of chance alone, and the model's: 0.00 and 0.02 (1,712 words), 0.92 and 0.93 (331), 2.76 and 2.77 (503). Another first quotation in 20 other stories: the mean loss of the four words at the end rises from 0.00 to between 8.1 and 13.0 nats in 20 of 20.

# %% [markdown]
# ## 1. What must the model predict?
# A text has no labels. Where do the right answers come from? From the text itself: at each position the right answer, the **target**, is the next token. Here are two models of one architecture that read the same story: one with random weights, one trained on other stories. The darker a word, the higher its loss: minus the logarithm of the probability that the word got (lesson 03), in nats.

# %%
import torch

from tinylm_classroom import predict
from tinylm_classroom import training_figures as figures
from tinylm_lib import TransformerLM, next_token_loss, storyworld
from tinylm_lib.pretrained import load_pretrained

shipped = load_pretrained("storyworld")
tokenizer, trained = shipped.tokenizer, shipped.model.eval()
story = storyworld.story(torch.Generator().manual_seed(11))
_ = torch.manual_seed(11)

# %% tags=["source-hidden"] deck="After training only those words are dark that nothing determines"
untrained = TransformerLM(trained.config).eval()
figures.shaded(story, {"before training": untrained, "after training": trained}, tokenizer)


# %%
def word_losses(model, text):
    """The loss of each word of a text, in nats."""
    ids = torch.tensor([tokenizer.encode("\n" + text)])  # (1, T + 1)
    with torch.no_grad():
        log_probs = model(ids[:, :-1]).log_softmax(-1)  # (1, T, V)
    return -log_probs.gather(-1, ids[:, 1:, None])[0, :, 0]  # (T)


# %%
quotation = "Busy trees listen indoors"
said_first = "Quiet birds sleep outside"  # try "Busy trees listen indoors"
other_story = story.text.replace(quotation, said_first, 1)
at_the_end = storyworld.words(story.text).index(" thought") + 3
changed = word_losses(trained, other_story)[at_the_end : at_the_end + 4]

# %% tags=["source-hidden"] deck="Another quotation comes first. What is the loss of the old one at the end?"
predict(
    "Now David first whispers *Quiet birds sleep outside*. At the end Ivan still thinks *Busy trees listen indoors*. What is the trained model's mean loss on these four words?",
    key=lambda: "above 8 nats" if changed.mean() > 8 else "near 0, it knows the phrase",
    choices={
        "near 0, it knows the phrase": "The weights do not change while the model reads. What did it read in this story?",
        "about 3, as the first time": "That is the loss of a guess among some words. Is the model guessing here?",
        "above 8 nats": "",
    },
    because="The model is sure that the first quotation comes again, and sure and wrong has a higher loss than a guess.",
)

# %% deck="Sure and wrong has a higher loss than a guess"
same = word_losses(trained, story.text)
first_time = storyworld.words(story.text).index("Busy")
print(f"the first time: {same[first_time : first_time + 4].mean():.1f} nats a word")
print(f"repeated at the end: {same[at_the_end : at_the_end + 4].mean():.1f}")
print(f"at the end, after *{said_first}*: {changed.mean():.0f}")

# %% tags=["source-hidden"] evidence="story-shaded" tried="held-out"
# Checked in 20 other stories: low where an earlier word determines the word, high elsewhere.
from tinylm_classroom import losses_by_kind

SEEDS = range(1000, 1020)
low, high = losses_by_kind(trained, tokenizer, SEEDS)
assert low < 0.3 and high > 0.6

# %% [markdown]
# Before training every word is a surprise. After training the dark words are those that the story picks at random; a low loss means that *this text* determines the word, or the form of its sentences does. [[story-shaded]]
#
# ### Your turn: the targets
# The targets are the inputs **shifted by one**.


# %% tags=["exercise"] name="next_token_pairs" minutes=3 difficulty=1 deck="Your turn: the targets"
def next_token_pairs(ids):
    """ids (B, T), whole numbers, each row a text of its own.
    At each position of the inputs the target is the token that follows it
    in the same row. Returns inputs and targets, both (B, T - 1).
    """
    # SOLUTION
    return ids[:, :-1], ids[:, 1:]
    # END


# %% tags=["check"]
from tinylm_classroom import check, hint, keep, yours

if check("next_token_pairs", next_token_pairs).passed:
    keep("next_token_pairs", next_token_pairs)

# %% slide="skip"
hint("next_token_pairs")

# %% [markdown] tags=["solution"]
# Two slices along the second axis: all but the last token, all but the first. Common mistakes: to slice the batch axis (`ids[1:]`); to use `roll`, which makes the first token the target of the last; to use the same slice twice.

# %% [markdown]
# Must the model run once for each target? The causal mask (lesson 05) lets each position see only its own past, so one pass should be enough:

# %% rows=["S4-21", "S4-24", "S2-13"] evidence="one-pass" tried="exact" deck="One pass gives a prediction at every position"
ids = torch.tensor([tokenizer.encode("\n" + story.text)])  # (1, T + 1)
inputs, targets = yours("next_token_pairs", next_token_pairs)(ids)  # (1, T) each
with torch.no_grad():
    # ESSENTIAL
    at_once = trained(inputs)[0]  # (T, V)
    alone = [trained(inputs[:, : t + 1])[0, -1] for t in range(10)]
    torch.testing.assert_close(at_once[:10], torch.stack(alone), atol=1e-4, rtol=1e-4)
    # END
loss = next_token_loss(at_once[None], targets)
print(f"{inputs.shape[1]} predictions in one pass, mean loss {loss:.2f} nats per token")

# %% [markdown]
# In training, one pass checks all predictions at once. [[one-pass]] (BERT sees both sides, so it must hide the words that it predicts: [Devlin et al. 2019](https://arxiv.org/abs/1810.04805).) The loss of a text is their mean.

# %% [markdown] tags=["note"]
# **Say.** Hold out text before anything else happens. A batch is drawn at random, and its targets come with it.
#
# **Usual answers.**
# - *90 % leak* (`90`): right for one window, but each token is in 33 of them.
# - *One start more* (`one too far`): the last target must be inside the text, too.
# - *One start fewer* (`a start missing`): `randint` never draws its upper end, so the upper end must be the number of starts.
# - *Starts at multiples of seq_len* (`whole blocks`): then a token always has the same position in its window.
# - *Draw x, then draw y* (`other windows`): the targets belong to the inputs, so draw once.
#
# **Cut if short.** The trace.
#
# **Tried.** Ten other shuffles for each length: of windows of 5 tokens 99.97 % of the held-out tokens were trained on, of 9 tokens 99.99 %, of 33 tokens 99.999 %. Held-out stories: none, by construction.

# %% [markdown]
# ## 2. Batches, and text that is held out
# First we hold out some text for **validation**. The model never trains on it.

# %%
from tinylm_lib.data import split

stories = storyworld.corpus(4000, seed=0).splitlines(keepends=True)
training, held_out = split(stories, validation_share=0.1)
train_ids = torch.tensor(tokenizer.encode("\n" + "".join(training)))  # (N)
new_ids = torch.tensor(tokenizer.encode("".join(held_out)))
print(f"{len(train_ids):,} tokens to train on, {len(held_out)} stories held out")

# %% [markdown]
# A batch consists of **windows** of T = 32 tokens, plus one for the last target. Windows may start anywhere, so they overlap. Why not take all windows and hold out a tenth of those, at random?

# %%
T = 32


def leaked(seed):
    """The fraction of tokens in held-out windows that are in a training window, too."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randperm(4000 - T, generator=generator)
    windows = starts[:, None] + torch.arange(T + 1)  # (windows, T + 1)
    tenth = len(windows) // 10
    return torch.isin(windows[:tenth], windows[tenth:]).float().mean().item()


# %% tags=["source-hidden"] deck="A tenth of all windows is held out. How many of their tokens are trained on?"
predict(
    "A tenth of all windows is held out at random. How many % of the tokens in these windows are in a training window, too?",
    key=lambda: 100 * leaked(1),
    number="%",
    within=1,
    feedback={90: "That is the probability for one window. Each token is in many."},
    because="A token is in 33 windows, and all of them would have to be held out.",
)

# %% deck="Windows held out at random were trained on"
print(f"{leaked(seed=1):.0%} of the held-out tokens were trained on")

# %% tags=["source-hidden"] evidence="shuffled-windows" tried="seeds"
# Checked for other shuffles; the held-out stories share no window with the others.
SEEDS = range(5)
assert min(leaked(seed) for seed in SEEDS) > 0.999 and not set(held_out) & set(training)

# %% [markdown]
# That is a **leak**. A model that memorizes its training text (**overfitting**) shows it only on text that was really held out, so hold out whole stories, as we did. [[shuffled-windows]] (**Early stopping** keeps the weights with the lowest validation loss; *More*: [11 Runs](more/11_runs.ipynb).)
#
# ### Your turn: windows
# A batch is B windows. They start **anywhere** that leaves room for seq_len tokens and one more, the last target.


# %% tags=["exercise"] name="random_windows" minutes=9 difficulty=2 deck="Your turn: windows"
def random_windows(tokens, batch_size, seq_len, generator):
    """tokens (N,), whole numbers.

    Returns x and y, both (batch_size, seq_len), whole numbers. Each row of
    x is a piece of the text, and the row of y the same piece one token later.
    Each row draws its own start: any that leaves room for all of x and y,
    all equally likely. All randomness comes from the given `generator`,
    which is used as it is and not seeded again.
    """
    # SOLUTION
    starts = torch.randint(len(tokens) - seq_len, (batch_size, 1), generator=generator)
    windows = tokens[starts + torch.arange(seq_len + 1)]
    return windows[:, :-1], windows[:, 1:]
    # END


# %% tags=["check"]
if check("random_windows", random_windows).passed:
    keep("random_windows", random_windows)

# %% slide="skip"
hint("random_windows")

# %% [markdown] tags=["solution"]
# The starts run from 0 to N - seq_len - 1, and `randint` leaves out its upper end: N - seq_len. A column of starts plus a row of offsets is a table of positions. Common mistakes: one start too few or too many; x and y drawn separately; starts at multiples of seq_len only.

# %% [markdown]
# Follow one batch from ids to a loss, and back to the gradient of one matrix (**backpropagation**, lesson 02):

# %% slide="skip"
from tinylm_classroom import trace
from tinylm_lib import preset

draw_windows = yours("random_windows", random_windows)


def windows(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield draw_windows(train_ids, 16, T, generator)  # (16, T) each


def fresh(seed, d_model=48):
    """A small model with random weights."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": d_model}
    return TransformerLM(preset("modern", **sizes))


# %%
def one_batch(model, x, y):
    logits = model(x)  # (B, T) -> (B, T, V)
    losses = -logits.log_softmax(-1).gather(-1, y[..., None])  # (B, T, 1)
    loss = losses.mean()  # ()
    loss.backward()
    return model.lm_head.weight.grad  # (V, C)


trace(one_batch, fresh(1), *next(windows(5)), sizes={"B": 16, "T": T, "C": 48})

# %% [markdown] tags=["note"]
# **Say.** The gradient gives a direction, the optimizer decides how far to go. Adam divides the size of the gradient away, so ask at once: what do small gradients still mean? Let them try 0.07: the narrow direction limits the rate for all.
#
# **Usual answers.**
# - *By 10* (`by 10`): m is 100 times as large, but so is the root of v.
# - *By 5* (`by 5`): that is the plain step, lr times g.
# - *The decay is added to the gradient* (`coupled`): then it is divided by the root of v, too. That is Adam with L2, and its difference from AdamW is the W.
# - *The corrected means are returned* (`corrected moments kept`): the running means continue uncorrected.
# - *eps inside the root* (`eps inside`): the root of 1e-8 is 1e-4, so gradients below that would hardly move anything.
# - *The first step is tiny* (`no correction`): both means start at 0; divide by 1 - beta to the power of the step.
#
# **Cut if short.** The four gradients.
#
# **Tried.** The valley: plain steps diverge from 2/30 = 0.067 on, exactly. Gradients that agree: sizes from 1e-6 to 1e6 move a weight by 1.0 in 100 steps of 0.01. Below that eps counts: 1e-7 moves it by 0.91, 1e-8 by 0.50, 1e-9 by 0.09. With noise of size 1 around 0.1, 200 seeds: in the mean 0.09, with a standard deviation of 0.11, and the same without m (beta1 = 0); with noise of size 0.1, 0.3 and 3: 0.70, 0.31, 0.04.

# %% [markdown]
# ## 3. One step
# The **gradient** contains, for each parameter, how fast the loss changes with it. A plain step is `w - lr * g` (lesson 02), with `lr` the **learning rate**. Here is a loss with only two weights: a valley that is 30 times steeper in one direction than in the other.

# %%
from tinylm_classroom import descend

SGD, Adam = torch.optim.SGD, torch.optim.Adam
plain_rate = 0.06  # try 0.07 and 0.03
ways = {
    f"plain, {plain_rate}": descend(lambda weights: SGD(weights, plain_rate)),
    "momentum": descend(lambda weights: SGD(weights, 0.02, momentum=0.8)),
    "Adam": descend(lambda weights: Adam(weights, 0.3, betas=(0.8, 0.95))),
}

# %% tags=["source-hidden"] deck="Plain steps jump across the valley, and then creep along it"
figures.valley(ways)

# %% [markdown]
# **Momentum** steps along a fading sum of gradients: what points from side to side cancels, what points along the valley adds up. **Adam** also divides by the usual size of the gradient, separately for each weight, so steep and flat directions move at about the same pace ([Kingma and Ba 2015](https://arxiv.org/abs/1412.6980)). It keeps two running means, called *moments*: m of the gradient, v of its square. Both start at 0, so at first they are too small. After $t$ steps the start still has the weight $\beta^t$, so divide by $1 - \beta^t$. The first step of one weight:

# %% deck="Adam: the mean gradient, divided by its usual size"
g = 0.5  # try 50.0
lr, beta1, beta2 = 0.1, 0.9, 0.999
m, v = (1 - beta1) * g, (1 - beta2) * g**2
m_hat, v_hat = m / (1 - beta1), v / (1 - beta2)
print(f"m {m:.3g}, v {v:.3g}; the weight moves by {lr * m_hat / v_hat**0.5:.2g}")

# %% tags=["source-hidden"] deck="The gradient is 50 instead of 0.5. How far does the first step go?"
predict(
    "With lr 0.1 and a gradient of 0.5 the first step moves the weight by 0.1. How far does it move with a gradient of 50?",
    key=lambda: "by 0.1" if abs(lr * 50 / (50**2) ** 0.5 - 0.1) < 1e-9 else "by 10",
    choices={
        "by 0.1": "",
        "by 5": "That is lr times g, the plain way.",
        "by 10": "m is divided by the root of v, and both have grown.",
    },
    because="m is 100 times as large, and so is the root of v: at step 1 only the sign of the gradient counts.",
)

# %% [markdown]
# The W in **AdamW** is *weight decay*: each weight also shrinks by a fraction of itself, and this has no part in m and v ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1711.05101); here as in PyTorch, where the rate multiplies the decay, too).
#
# ### Your turn: AdamW
# With $t$ the step, counted from 1, $\lambda$ the decay, and on the right the $w$ that came in:
#
# $$m \leftarrow \beta_1 m + (1-\beta_1)\,g \qquad v \leftarrow \beta_2 v + (1-\beta_2)\,g^2$$
#
# $$w \leftarrow w - \text{lr}\,\lambda\,w - \text{lr}\,\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}$$


# %% tags=["exercise"] name="adamw_step" minutes=12 difficulty=3 deck="Your turn: AdamW"
def adamw_step(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    """param, grad, m, v (...) of one shape and dtype; step counts from 1.

    The decay is a fraction of the param that came in. eps is added to the
    root, not inside it. m and v are returned without the correction. The
    arguments stay as they are. Returns the new param, m and v.
    """
    # SOLUTION
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    size = (v / (1 - beta2**step)).sqrt() + eps
    param = param - lr * weight_decay * param - lr * m / (1 - beta1**step) / size
    return param, m, v
    # END


# %% tags=["check"]
if check("adamw_step", adamw_step).passed:
    keep("adamw_step", adamw_step)

# %% slide="skip"
hint("adamw_step")

# %% [markdown] tags=["solution"]
# Two running means, one correction each, one line for the weight. Common mistakes: to return the corrected means; eps inside the root; beta1 and beta2 exchanged, which never shows at the first step; the decay in the gradient.

# %% [markdown]
# If Adam divides the size of a gradient away, do small gradients still matter? A weight makes 100 steps of at most about 0.01:

# %% rows=["S2-16"]
update = yours("adamw_step", adamw_step)


def moved(gradients):
    """How far AdamW moves a weight in 100 steps with a rate of 0.01."""
    weight, m, v = torch.zeros(3, 1)
    for step, g in enumerate(gradients, start=1):
        weight, m, v = update(weight, g[None], m, v, step, 0.01, 0.9, 0.95, 1e-8, 0.0)
    return -weight.item()


spread = 1.0  # try 0.1 and 10.0
noise = spread * torch.randn(100, generator=torch.Generator().manual_seed(2))  # (100)
print(f"always 1: {moved(torch.ones(100)):.2f}")
print(f"always 0.000001: {moved(torch.full((100,), 1e-6)):.2f}")
print(f"0.1 with noise of size {spread}: {moved(0.1 + noise):.2f}")

# %% tags=["source-hidden"] evidence="small-gradients" tried="seeds"
# Checked: with other noise a weight moves about a tenth as far in the mean.
SEEDS = range(20)
noisy = [moved(0.1 + torch.randn(100, generator=torch.Generator().manual_seed(100 + seed))) for seed in SEEDS]
assert moved(torch.full((100,), 1e-6)) > 0.98 and abs(sum(noisy) / len(noisy)) < 0.2

# %% [markdown]
# A gradient of a millionth moves the weight as far as a gradient of 1 (down to eps, which keeps a gradient of 0 harmless): what counts is whether the gradients **agree**. Noise cancels from step to step, while v keeps its full size. [[small-gradients]]

# %% [markdown] tags=["note"]
# **Say.** This is the whole of training in ten lines. Read them aloud, and let the class say what each of them does before you do. Then watch what the model becomes. The slide was made from the solutions; in a class that left the exercises out, the loop uses the library's functions.
#
# **Draw.** A circle of four words with arrows: windows, loss, gradients, update.
#
# **Usual answers.**
# - *Still random* (`nothing`): its loss is already below that of a model that knows nothing.
# - *It has found pairs* (`the token before`): for that it must tell the tokens apart, and the first steps have made them alike.
# - *Is this a law?* (from the room): No. Try 0.001.
#
# **Cut if short.** The run with the other rate.
#
# **Tried.** Eight seeds of weights and windows at 0.01: in all of them frequencies, from an update between 2 and 5 to one between 19 and 28, then the token before, then the whole story from update 100 to 160 on. Three seeds at 0.03: the same, a little earlier. At 0.003 one of three runs passes through frequencies, at 0.001 none of three. The mean cosine of the vectors after two updates: 0.93 to 0.99 at 0.03, 0.59 to 0.92 at 0.01 (six seeds), 0.39 to 0.72 at 0.003, 0.19 to 0.40 at 0.001 (five seeds). With embeddings 10 times as large at the start (two seeds, 0.01): 0.22 and 0.25, and frequencies last 2 or 3 updates, not 15 to 19. All rules of the story as a fifth predictor are never nearest within 200 updates: the windows have 32 tokens. With the KL divergence from the predictors instead: frequencies are nearest at some updates between 3 and 16 in three of three runs, with a smaller margin. A run with Muon skips the stage.

# %% [markdown]
# ## 4. The loop
# You have every part. One round of the loop is one update: draw windows, compute the loss, its gradients, and a step for every tensor of weights.

# %% deck="The whole of training: windows, loss, gradients, update"
from tinylm_lib.training.loop import Step


def training_loop(model, batches, rate, updates):
    """Trains the model; yields number, loss and gradient norm of each update."""
    weights = list(model.parameters())
    m = [torch.zeros_like(weight) for weight in weights]
    v = [torch.zeros_like(weight) for weight in weights]
    # ESSENTIAL
    for step in range(1, updates + 1):
        x, y = next(batches)  # (B, T) each
        loss = next_token_loss(model(x), y)  # ()
        gradients = torch.autograd.grad(loss, weights)
        step_weights(weights, gradients, m, v, step, rate)
        # END
        norm = torch.nn.utils.get_total_norm(gradients)
        yield Step(step, loss.detach(), norm, 1.0)


@torch.no_grad()
def step_weights(weights, gradients, m, v, step, rate):
    for i, g in enumerate(gradients):
        now = (weights[i], g, m[i], v[i])
        new, m[i], v[i] = update(*now, step, rate, 0.9, 0.95, 1e-8, 0.0)
        weights[i].copy_(new)


# %% [markdown]
# What does the model become on the way? We compare its predictions with four **predictors**: one that knows nothing (all tokens equally likely), one that knows the frequencies of tokens, one that knows which token was before, and one that knows which three were, counted in the training text. The distance is the fraction of the probability that would have to move to other tokens.

# %%
from tinylm_classroom import Predictors

source = torch.Generator().manual_seed(6)
test_stories = [storyworld.story(source) for _ in range(40)]
predictors = Predictors(tokenizer, train_ids, test_stories)

# %%
SEEDS = (1, 2, 3)
runs = {}
for seed in SEEDS:
    model = fresh(seed)
    steps = training_loop(model, windows(seed), 0.01, 200)
    runs[seed] = predictors.follow(model, steps)

# %% tags=["source-hidden"] deck="After eight updates: which predictor does the model resemble most?"
predict(
    "Eight updates, with random windows and a rate of 0.01. Which predictor does the model resemble most?",
    key=lambda: min((found := runs[SEEDS[0]].distances[8]), key=found.get),
    choices={
        "nothing": "Its loss has already fallen below that of a model that knows nothing.",
        "frequencies": "",
        "the token before": "For that it must learn something about each token. What is simpler?",
        "the last three tokens": "That takes many more updates.",
    },
    because="The first large steps make all positions alike, and the best single prediction for all of them is the frequencies.",
)

# %% tags=["signature", "source-hidden"] rows=["S2-15"] deck="Frequencies first, then the token before, then the last three"
levels = storyworld.entropies(tokenizer, n_stories=2000)
figures.stages(runs, levels, tokenizer.vocab_size)

# %% tags=["source-hidden"] evidence="stages" tried="seeds"
# Checked with every seed: one predictor after the other; with a rate of 0.001 no frequencies.
from tinylm_classroom import bands, constant_rate

for run in runs.values():
    order = [name for name, start, end in bands(run) if end - start >= 4]
    assert order[-3:] == ["frequencies", "the token before", "the last three tokens"]
for seed in SEEDS:
    model = fresh(seed)
    small_steps = predictors.follow(model, training_loop(model, windows(seed), 0.001, 30))
    assert "frequencies" not in {name for name, *_ in bands(small_steps)}
    assert small_steps.alike[2] + 0.2 < runs[seed].alike[2]

# %% tags=["source-hidden"] evidence="same-loop" tried="seeds"
# Checked with other weights and windows: the library's loop has the same losses.
for seed in SEEDS:
    mine = training_loop(fresh(10 + seed), windows(seed), 0.01, 10)
    its = constant_rate(fresh(10 + seed), windows(seed), 10, 0.01)
    assert all(abs(a.loss - b.loss) < 0.02 for a, b in zip(mine, its, strict=True))

# %% [markdown]
# None of this needs the rest of the story: who owns what is learned later (section 6). The dotted lines are the losses of the first three predictors and the **floor**: on new stories no model can stay below it, because the remaining uncertainty is pure chance.
#
# Is this order a law? Try another rate. We also print how alike the vectors are that the head reads at different positions (their mean cosine, after two updates):

# %%
other_rate = 0.03  # try 0.001
model = fresh(1)
other = predictors.follow(model, training_loop(model, windows(1), other_rate, 60))
print([f"{name} from update {start}" for name, start, _ in bands(other)])
alike = {0.01: runs[SEEDS[0]].alike[2], other_rate: other.alike[2]}
print({at: f"{cosine:.1f}" for at, cosine in alike.items()})

# %% [markdown]
# With a rate of 0.01 the first updates write nearly the same into every vector, which drowns the small embeddings (0.02). As long as the model can hardly tell its positions apart, it predicts nearly the same everywhere, and the best such prediction is the frequencies. With 0.001 the vectors stay different, and the model never resembles frequencies. [[stages]] The library's `train` is the same loop, and with AdamW its losses are the same. [[same-loop]] (Its default, as in lesson 00, is another rule for the matrices, Muon: see *More*: [11 Runs](more/11_runs.ipynb).)

# %% [markdown] tags=["note"]
# **Say.** The learning rate is the one number that you will search for in every training run of your life. The search is simple: a few short runs, a constant factor apart. Let the class draw the curve with a finger before you show it.
#
# **Usual answers.**
# - *It stays behind* (`about 0.8`): after 60 updates the difference is one of speed, and a slow run has time now.
# - *Half of it* (`about 0.4`): the faster run has hardly anything left to gain with its steps.
#
# **Cut if short.** The line to change.
#
# **Tried.** Three seeds of weights and windows, seven rates. After 60 updates 0.01 is the lowest in three of three, 0.03 second. After 300 updates 0.001 to 0.03 lie within 0.06 of each other in each seed, and 0.003 is the lowest in three of three. So the best rate falls when the run becomes longer. One seed after 1,500 updates: 1.34, 1.37, 1.36, 1.38 at 0.001, 0.003, 0.01, 0.03; a plateau, on which places and owners are still 2 to 25 % right.

# %% [markdown]
# ## 5. Which learning rate?
# Where did the rate of 0.01 come from? From a search: the same short run, once for each rate.

# %%
from tinylm_classroom import learned, recorded_training

rate = 0.03  # try 0.1, 0.001 and 0.0001
losses = [step.loss.item() for step in training_loop(fresh(1), windows(1), rate, 60)]
print(f"rate {rate}: the loss ends at", learned(sum(losses[-10:]) / 10, 0, 9))

# %% tags=["source-hidden"] deck="After 60 updates the loss is a U over the rate. And after 300?"
recorded = recorded_training()
predict(
    "Over the learning rate, the loss after 60 updates is a U: it is lowest at 0.01, and at 0.001 it is 0.8 nats higher. How much higher is it at 0.001 after 300 updates?",
    key=lambda: "less than 0.1" if max(recorded["rates"][300][0.001]) < 1.55 else "about 0.8",
    choices={
        "less than 0.1": "",
        "about 0.4": "It has five times as many updates. What can it still gain, and what can the other?",
        "about 0.8": "Does the slower run never catch up?",
    },
    because="After 60 updates small steps have not led far enough yet. After 300 they have.",
)

# %% tags=["source-hidden"] deck="The best rate matters after 60 updates, less after 300"
figures.rates(recorded["rates"])

# %% tags=["source-hidden"] evidence="rate-valley" tried="seeds"
# Checked: a U after 60 updates with each seed, flat after 300; our run is the recorded one.
short_runs, long_runs = (zip(*recorded["rates"][n].values(), strict=True) for n in (60, 300))
for short, long in zip(short_runs, long_runs, strict=True):
    assert short.index(min(short)) == 4 and short[2] > short[4] + 0.5 and short[6] > short[4] + 0.2
    assert max(long[2:6]) - min(long[2:6]) < 0.12 and long[0] > long[4] + 0.8
assert rate != 0.03 or abs(sum(losses[-10:]) / 10 - recorded["rates"][60][0.03][0]) < 0.15

# %% [markdown]
# After 60 updates the curve is a **U**: with too small a rate the loss falls slowly, too large a rate is too large for the last steps. After 300 updates all rates from 0.001 to 0.03 end close together. [[rate-valley]] So search in factors of 3, and search again when the model, the batch or the length of the run changes.

# %% [markdown] tags=["note"]
# **Say.** Two habits of people whose training runs work: overfit one batch before any long run, and look at what the model gets right, not only at the loss. Start the real run now; it takes about twenty seconds.
#
# **Usual answers.**
# - *Skills grow as slowly as the loss* (from the room): the loss is a mean over all words; a single skill does not have to follow it.
# - *The model that has places first is the better one* (from the room): at the end all three have them.
#
# **Cut if short.** The picture of skills.
#
# **Tried.** One batch (a seed of its own, 60 updates): nothing wrong 0.008, not shifted 0.002, shifted twice 0.008, another text's targets 0.008, no causal mask 0.001; found: softmax 5.6, never cleared 3.2, a rate of 1.0 9.3. A model of width 8 cannot overfit the batch (1.12) and still learns. Skills: six seeds of weights; pronouns first in six of six (30 % right at update 20 or 40), places before traits in three, after them in three; owners before places in six, but traits before owners in one. Places rise from 10 to 90 % in 80 to 140 updates. Owners stop at 0.50 to 0.55; 0.91 of the guesses were said before in the story. Of the traits 28 are jobs (*At last our ...*) and 15 traits (*Everybody knew how ...*); after 400 updates, seeds 1 and 2, 0.68 and 1.00 of the jobs are right, and 0.13 and 0.07 of the others.

# %% [markdown]
# ## 6. The real run
# Before any long run, **overfit one batch** ([Karpathy 2019](https://karpathy.github.io/2019/04/25/recipe/)). If the model cannot memorize it, look for the mistake before you pay for a long run. Does this test find wrong targets, too?

# %% rows=["S4-56"] evidence="one-batch" tried="seeds" deck="One batch, overfitted: the steps work, the targets may be wrong"
import itertools

SEEDS = (1, 2, 3)
for seed in SEEDS:
    x, y = next(windows(seed))
    # ESSENTIAL
    for name, targets in {"right targets": y, "another text's": y.roll(1, 0)}.items():
        same_batch = itertools.repeat((x, targets))
        *_, last = training_loop(fresh(seed), same_batch, 0.01, 60)
        # END
        print(f"{name}: {learned(last.loss.item(), 0, 1)}, floor {levels.floor:.2f}")
        assert last.loss < levels.floor / 2

# %% [markdown]
# Both go far below the floor: the batch is memorized, so gradients and steps work. Wrong targets pass, too. [[one-batch]]
#
# Now the language, with your loop: width 128, a rate of 0.002, and batches of 8 whole stories, each read once. **Your task:** move the slider and find the update at which the samples become stories.

# %% slide="skip"
from tinylm_classroom import skills_on_the_way, training_view
from tinylm_lib.data import every_document

# %% rows=["S4-58"] deck="Task: at which update do the samples become stories?"
model, right = fresh(1, d_model=128), {}
line_end = tokenizer.ids["\n"]
# ESSENTIAL
whole_stories = every_document(train_ids, line_end, batch_size=8)
steps = training_loop(model, whole_stories, 0.002, 400)
noted = skills_on_the_way(steps, model, tokenizer, test_stories, right)
await training_view(noted, model, tokenizer, total_steps=400, levels=levels)
# END

# %% [markdown]
# The curve is smooth. Does each skill grow smoothly, too? We noted which words are right, sorted by what must be looked up: a *pronoun*, a *place*, a person's *trait* or job, the *owner* of a thing, a *quotation*.

# %% tags=["source-hidden"] deck="Skills arrive at different times, and two in either order"
figures.skills([right, *recorded["skills"][1:]])

# %% tags=["source-hidden"] evidence="skills-in-time" tried="seeds"
# Checked: pronouns come first, places and traits in either order, quotations not at all.
from tinylm_classroom import arrival

for each in (right, *recorded["skills"]):
    assert each[100]["pronoun"] > 0.4 > 0.2 > each[100]["place"] and each[400]["place"] > 0.9
    assert each[400]["quotation"] < 0.4
    assert arrival(each, "pronoun") < min(arrival(each, kind) for kind in ("owner", "place", "trait"))
orders = [arrival(each, "place") < arrival(each, "trait") for each in recorded["skills"]]
assert True in orders and False in orders

# %% [markdown]
# The loss is a mean over words whose skills arrive at different times. Pronouns come first, places and traits in either order; quotations are still unsolved at the end. Owners stop at a half, a guess between names or colours of this story. Of the traits it learns the jobs (after *our*), not those after *how*. [[skills-in-time]]

# %% [markdown] tags=["note"]
# **Say.** A broken training run seldom raises an error: it has a loss, and the loss falls. The class places each mistake between the floor and ln V with a hand.
#
# **Usual answers.**
# - *The one that can see the answer* (`no causal mask`): it must first find the answer in what it reads, and in 60 updates it has only begun to. Trained longer, its loss falls far below the floor.
# - *The double shift* (`shifted twice`): two words ahead is harder to predict than one, not easier.
# - *The extra softmax* (`softmax in the model`): its probabilities pass through a second softmax, which makes them nearly equal, so the loss cannot fall far.
#
# **Cut if short.** The line to change.
#
# **Tried.** Three seeds of weights and windows, see the dots; one more at other rates and lengths. No causal mask: after 300 updates 0.12 in training and 0.13 on new stories, below the floor; with a rate of 0.001 after 60 updates 3.93, above nothing wrong (2.80). Another text's targets: 5.04 to 5.05 everywhere. Softmax: 5.57 to 5.73. Never cleared: 3.65 to 4.56, and 5.80 after 300. Shifted twice after 300: 1.66 in training, 10.8 on new stories.

# %% [markdown]
# ## 7. Break it: what does a mistake look like?
# A broken training run seldom raises an error, and its loss may even fall. Each of these is one wrong line in the loop:
#
# | mistake | the line |
# |---|---|
# | not shifted | `next_token_loss(model(x), x)` |
# | shifted twice | `next_token_loss(model(x)[:, :-1], y[:, 1:])` |
# | another text's targets | `next_token_loss(model(x), y.roll(1, 0))` |
# | no causal mask | `attend(q, k, v)` instead of `attend(q, k, v, causal=True)` |
# | softmax in the model | `next_token_loss(model(x).softmax(-1), y)` |
# | gradients never cleared | `loss.backward()` without `optimizer.zero_grad()` |
# | rate 1.0 | `lr=1.0` instead of `lr=0.01` |

# %% tags=["source-hidden"] deck="Which mistake has the lowest training loss after 60 updates?"
predict(
    "60 updates with each mistake. Which one has the lowest training loss?",
    key=lambda: min(recorded["mistakes"], key=lambda how: recorded["mistakes"][how][0]["last"]),
    choices={
        "no causal mask": "It has to find the answer in what it reads; in 60 updates it only began.",
        "not shifted": "",
        "shifted twice": "Two words ahead is harder to predict than one.",
        "softmax in the model": "The softmax of probabilities is nearly flat: its loss cannot fall far.",
    },
    because="The answer is the token just read: it only has to be copied.",
)

# %% tags=["source-hidden"] deck="Two of seven mistakes have a healthy training loss"
figures.mistakes(recorded["mistakes"], levels, tokenizer.vocab_size)

# %%
from tinylm_classroom import broken_run, watch_learning

watch_learning()  # in your browser: break one yourself

# %% tags=["source-hidden"] evidence="mistakes" tried="seeds"
# Checked in every run: what the text below says of each mistake; our run is the recorded one.
runs = [(how, run) for how, each in recorded["mistakes"].items() for run in each]
runs.append(("no causal mask", broken_run("no causal mask", tokenizer, train_ids, new_ids)))
for name, run in runs:
    last, new = run["last"], run["new"]
    assert {
        "not shifted": last < 0.3 and new > 7, "shifted twice": 1.8 < last < 3 and new > 6,
        "another text's targets": abs(last - levels.unigram) < 0.2, "no causal mask": last < 2.3 > new,
        "softmax in the model": last > 5.5, "nothing wrong": last < 2.3 and abs(new - last) < 0.4,
    }.get(name, last > 3.5)  # fmt: skip

# %% [markdown]
# - **Not shifted.** Far below the floor on text that is read for the first time: impossible without a mistake or a leak. The model repeats what it read last.
# - **Shifted twice.** It looks like a healthy run. New stories with the right targets give it away, and the samples, which leave words out.
# - **Another text's targets.** The input does not help, so the loss stops at the level of frequencies.
# - **No causal mask.** The loss looks healthy on new stories, too, because the future can be read there. Only what it writes gives it away (in a longer run also a loss below the floor).
# - **Softmax in the model.** The loss hardly moves from $\ln V$. **Gradients never cleared** and a **rate of 1.0**: far above the run with nothing wrong.
#
# So know $\ln V$ and the floor, compare with new text, and **read what the model writes**. [[mistakes]]

# %% [markdown] tags=["note"]
# **Say.** Hold text out, draw windows, compute the loss and its gradients, update, and read what the model writes.
#
# **Ask.** At the door: "Name one mistake that the loss curve alone does not show, and say how you would find it."
#
# **Usual answers.**
# - *A mistake would raise an error* (from the room): none of the seven did.
# - *The loss falls, so it is learning the right thing* (from the room): without the causal mask it falls, too.
#
# **Cut if short.** The list; students read it.
#
# **Tried.** Each sentence rests on a checked cell; how it was tried is in the note of its section.

# %% [markdown] deck="Windows, loss, gradients, update, and read what it writes"
# ## What you have now
# - A trained model has a low loss where the text determines the next word. [[story-shaded]]
# - The targets are the inputs shifted by one; one pass checks all of them. [[one-pass]]
# - Windows held out at random were trained on: hold out whole stories. [[shuffled-windows]]
# - Adam divides the size of a gradient away, so gradients that agree move a weight far, even tiny ones (down to eps). [[small-gradients]]
# - A training loop of your own, with the losses of the library's. [[same-loop]]
# - With a rate of 0.01 our model resembles frequencies first, then the token before, then the last three tokens. [[stages]]
# - The best rate matters after 60 updates; after 300 all from 0.001 to 0.03 are about equal. [[rate-valley]]
# - One batch, overfitted, shows that the steps work; not that the targets are right. [[one-batch]]
# - Skills arrive at different times, while the loss falls smoothly. [[skills-in-time]]
# - No mistake of seven raised an error; two of them have a healthy training loss. [[mistakes]]
#
# *More*: [11 Runs](more/11_runs.ipynb), what long runs need. Next, lesson 12: how does a model write?

# %% [markdown]
# ## Sources
# - How to train, and how to find mistakes: Karpathy 2019, [*A Recipe for Training Neural Networks*](https://karpathy.github.io/2019/04/25/recipe/).
# - Adam: Kingma and Ba 2015, [*Adam: A Method for Stochastic Optimization*](https://arxiv.org/abs/1412.6980), algorithm 1. AdamW: Loshchilov and Hutter 2017, [*Decoupled Weight Decay Regularization*](https://arxiv.org/abs/1711.05101), algorithm 2.
# - Stages of learning: Chang and Bergen 2022, [*Word Acquisition in Neural Language Models*](https://arxiv.org/abs/2110.02406).
# - BERT: Devlin et al. 2019, [*BERT: Pre-training of Deep Bidirectional Transformers*](https://arxiv.org/abs/1810.04805), section 3.1.
