# %% [markdown]
# # 18 Chat
# **How does a model that completes texts become one that answers?**
#
# *Needs* lessons 01, 11 and 18. *Runs* in about 40 s on two cores.

# %%
import json
import re
from dataclasses import replace

import torch

from tinylm_lib import TransformerLM, generate, load_model, storyworld

# %%
shipped, words_only = load_model("storyworld")  # the model, and its tokenizer of words

# %% [markdown]
# ## 1. It completes
# We give the shipped model the beginning of a story about two people and two things, in which something changes hands.

# %%
from tinylm_classroom import owners, predict, show_text


# %%
def beginning(seed):
    """A story up to the exchange, and {thing: (a text to complete with its owner, the owner)}."""
    text = storyworld.story(torch.Generator().manual_seed(seed)).text
    start = text[: text.index(" Afterwards they")]
    place = re.search(r" to (\w+)", start)[1]
    found = {}
    for colour, thing in re.findall(r" a (\w+) (\w+)\.", start):
        told = f" Afterwards they shared some tea in {place}. By then the {colour} {thing} belonged to"
        found[thing] = (start + told, owners.exact_owner(start + told).strip())
    return start, found


# %%
start, things = beginning(10_006)
ids = torch.tensor([words_only.encode("\n" + start)])
more = generate(shipped, ids, 12, temperature=0)[0, ids.shape[1] :]
show_text({"the beginning": start, "what the model writes": words_only.decode(more.tolist())})

# %% [markdown]
# It tells what happens next. It cannot be asked *Who has the bottle?*, because its vocabulary has no question mark. But does it *know* who has what? We let it complete a sentence of StoryWorld, *By then the ... belonged to*, in 100 stories that we use for nothing else, for the second thing of each. StoryWorld's exact reader knows the right name.

# %%
held_out = [beginning(seed) for seed in range(10_000, 10_100)]

# %% evidence="knows" tried="held-out"
knows = 0
for _, things in held_out:
    text, owner = list(things.values())[1]
    with torch.no_grad():
        logits = shipped(torch.tensor([words_only.encode("\n" + text)]), last_only=True)  # (1, 1, V)
    knows += words_only.decode([logits[0, -1].argmax().item()]).strip() == owner
print(f"completed with the right name: {knows} of 100")
assert 58 < knows < 90

# %% [markdown]
# It is right more often than a coin, which would choose one of the two people. [[knows]] This knowledge is in the model. What it lacks is the form of an answer.

# %% [markdown]
# ## 2. A template is a text
# A **chat template** writes a dialogue as *one* text, with **special tokens** (lesson 01) where a turn begins and ends, and the name of the speaker's role. This one is ChatML, which Qwen and SmolLM2 use:

# %%
question = "Who has the bottle?"
by_hand = f"<|im_start|>system\n{start}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
print(by_hand)

# %% [markdown]
# The text ends with the head of the answer, so *to complete it is to answer*. Our tokenizer needs ids for the two special tokens and for eight words:

# %%
from tinylm_lib.text import TEMPLATES, WordTokenizer

MARKS = ["<|im_start|>", "<|im_end|>"]
NEW = [*MARKS, "system", "user", "assistant", "Who", " has", "?", "The", " is"]


# %%
class ChatWords(WordTokenizer):
    def encode(self, text):
        ids = []
        for part in re.split(r"(<\|im_start\|>|<\|im_end\|>)", text):
            ids += [self.ids[part]] if part in MARKS else super().encode(part)
        return ids


# %%
tokenizer = ChatWords.from_dict({"words": words_only.words + NEW})
tokenizer.template = TEMPLATES["chatml"]

# %% evidence="template" tried="exact"
asked = [("system", start), ("user", question)]
print("the same ids:", tokenizer.chat(asked) == tokenizer.encode(by_hand))
typed = tokenizer.chat([("user", "Who<|im_end|>")])
print("end marks if a user types one:", typed.count(tokenizer.ids["<|im_end|>"]))
assert tokenizer.chat(asked) == tokenizer.encode(by_hand)
assert typed.count(tokenizer.ids["<|im_end|>"]) == 2

# %% [markdown]
# `tokenizer.chat` gives the ids of the text that we wrote by hand. And a mark that a user types becomes the same id as a real one: that turn ends early. So servers remove such texts from what strangers type. [[template]]
#
# The model needs a row for each new id, in the embedding and in the head. We draw them with the mean and the spread of the old rows:


# %%
def grown(seed):
    """The shipped model with rows for the new ids."""
    _ = torch.manual_seed(seed)
    larger = TransformerLM(replace(shipped.config, vocab_size=tokenizer.vocab_size))
    state = shipped.state_dict()
    for name in ("embed.weight", "lm_head.weight"):
        old = state[name]  # (V, C)
        rows = old.mean(0) + old.std(0) * torch.randn(len(NEW), old.shape[1])
        state[name] = torch.cat((old, rows))
    larger.load_state_dict(state)
    return larger.eval()


# %%
ids = torch.tensor([tokenizer.chat(asked)])
written = generate(grown(0), ids, 12, temperature=0)[0, ids.shape[1] :]
show_text({"it should answer, and writes": tokenizer.decode(written.tolist())})

# %% [markdown]
# ## 3. Only the answers count
# Each dialogue for the training asks for both things of a story. The model should learn to write answers, and neither stories nor questions. So the targets are -100 ("does not count", lesson 11) everywhere except in the answers and at the marks that end them.


# %%
def dialogue_of(seed):
    start, things = beginning(seed)
    turns = [("system", start)]
    for thing, (_, owner) in list(things.items())[:: (-1) ** seed]:
        turns += [("user", f"Who has the {thing}?"), ("assistant", f"The {thing} is with {owner}.")]
    return turns


# %%
from tinylm_lib.data.dialogues import encode_dialogue

dialogues = [dialogue_of(seed) for seed in range(300)]
encoded = [encode_dialogue(tokenizer, turns) for turns in dialogues]  # ids, and which of them count

# %% tags=["signature", "source-hidden"]
from tinylm_classroom import figures

shown_ids, shown_counts = encoded[0]
pieces = [tokenizer.decode([i]).strip(" ").replace("\n", "⏎") for i in shown_ids]
figures.shaded_words(
    pieces,
    {"dark: the targets that count": [float(counts) for counts in shown_counts]},
    title="Of a dialogue, only what the model should write counts",
    caption="One dialogue as tokens; ⏎ is a line end. On light ground the target is -100: the model reads these tokens, but its guesses of them cost nothing.",
    limit=1.6,
)

# %% evidence="targets" tried="exact"
n_answers = sum(sum(counts) for _, counts in encoded)
print(f"targets that count: {n_answers / sum(len(ids) for ids, _ in encoded):.0%}")
for turns, (ids, counts) in zip(dialogues, encoded, strict=True):
    learnt = tokenizer.decode([i for i, counted in zip(ids, counts, strict=True) if counted])
    assert learnt == "".join(text + "<|im_end|>" for role, text in turns if role == "assistant")

# %% [markdown]
# What counts is each answer and its end mark, and that is a small part of the tokens. [[targets]]
#
# ### Your turn
# Below is a first attempt to write the targets without the library. It forgets something. Run the test, and then change one line so that nothing is missing.

# %%
HEAD = tokenizer.encode("<|im_start|>assistant\n")  # three ids, after which an answer begins
END = tokenizer.ids["<|im_end|>"]


# %%
def targets_of(ids):
    """ids of a dialogue, a list. Returns as many targets: -100 or the id itself."""
    targets, is_answer = [], False
    for i, token in enumerate(ids):
        if token == END:  # try: move these two lines, so that nothing is missing
            is_answer = False
        targets.append(token if is_answer else -100)
        if ids[max(0, i - 2) : i + 1] == HEAD:
            is_answer = True
    return targets


# %%
missing, too_many = [], []
for ids, counts in encoded:
    for i, counted, target in zip(ids, counts, targets_of(ids), strict=True):
        if counted != (target == i):
            (missing if counted else too_many).append(tokenizer.decode([i]))
print("missing:", set(missing) or "nothing", "- too many:", set(too_many) or "nothing")


# %% tags=["source-hidden"]
# A solution: an end mark is appended first, and then it ends the answer.
def all_targets(ids):
    targets, is_answer = [], False
    for i, token in enumerate(ids):
        targets.append(token if is_answer else -100)
        if token == END:
            is_answer = False
        if ids[max(0, i - 2) : i + 1] == HEAD:
            is_answer = True
    return targets


assert all(all_targets(ids) == [i if c else -100 for i, c in zip(ids, cs, strict=True)] for ids, cs in encoded)

# %% [markdown]
# ## 4. Fine-tune
# Training is that of lesson 11: whole dialogues, cut into inputs and targets that are one position ahead, shorter ones filled up with -100. All weights train, because the new rows must.

# %%
from torch.nn.utils.rnn import pad_sequence

from tinylm_lib import TrainConfig, build_optimizer, train


# %%
def batches(which, seed):
    """Endless batches of 8. which(id, counts): whether an id is a target."""
    rows = []
    for ids, counts in encoded:
        x = torch.tensor(ids)
        counted = torch.tensor([which(i, c) for i, c in zip(ids, counts, strict=True)])
        rows.append((x[:-1], torch.where(counted, x, -100)[1:]))
    generator = torch.Generator().manual_seed(seed)
    while True:
        xs, ys = zip(*(rows[i] for i in torch.randint(len(rows), (8,), generator=generator)), strict=True)
        yield pad_sequence(xs, batch_first=True), pad_sequence(ys, batch_first=True, padding_value=-100)


# %%
def fine_tuned(which, seed, updates=40):
    recipe = TrainConfig(
        total_steps=updates, optimizer="adamw", matrix_lr=6e-3, embedding_lr=3e-2, precision="fp32"
    )  # fmt: skip
    lm = grown(seed)
    for _ in train(lm, build_optimizer(lm, recipe), batches(which, seed), recipe):
        pass
    return lm.eval()


# %%
from tinylm_lib import pad_left


def answers_of(lm):
    """What it answers when it is asked for the second thing of each held-out story."""
    asked = []
    for start, things in held_out:
        asked.append(tokenizer.chat([("system", start), ("user", f"Who has the {list(things)[1]}?")]))
    ids, padding = pad_left(asked)  # (B, T), (B)
    written = generate(lm, ids, 9, temperature=0, padding=padding)[:, ids.shape[1] :]  # (B, 9)
    return [tokenizer.decode(row) for row in written.tolist()]


# %%
def n_right(answers):
    right = 0
    for answer, (_, things) in zip(answers, held_out, strict=True):
        thing, (_, owner) = list(things.items())[1]
        right += answer.startswith(f"The {thing} is with {owner}.<|im_end|>")
    return right


# %%
SEEDS = range(5)
before = [n_right(answers_of(grown(seed))) for seed in SEEDS]
chats = [fine_tuned(lambda i, counts: counts, seed) for seed in SEEDS]
answers = [answers_of(lm) for lm in chats]
after = [n_right(each) for each in answers]

# %%
from tinylm_classroom import learned

print("right before:", *before)
print("right after: ", *(learned(n, 20, 100) for n in after))
print("the first:    ⟨" + answers[0][0].replace("<|im_end|>", "<|im_end|>⟩ ⟨", 1) + "⟩")

# %% tags=["source-hidden"] evidence="answers" tried="seeds"
# Checked: no model answers before, and after 40 updates about as many are right as it completed.
ended = [sum("<|im_end|>" in answer for answer in each) for each in answers]
assert max(before) == 0 and min(ended) > 90
assert abs(sum(after) / len(after) - knows) < 20 and sum(after) / len(after) > 52

# %% [markdown]
# Forty updates are enough: the model answers in the form that it was shown, and ends. It is right about as often as it could complete the sentence in section 1. So the fine-tuning taught the form of an answer, and hardly anything about who has what. [[answers]] (Zhou et al. 2023 claim the same of large models: what they know is learned before, and fine-tuning teaches in which form to give it.)
#
# ### If everything counts

# %%
all_count = [fine_tuned(lambda i, counts: True, seed) for seed in SEEDS]
after_all = [n_right(answers_of(lm)) for lm in all_count]

# %% tags=["source-hidden"]
predict(
    "The same training again, but all tokens are targets: stories, questions and answers. How good is the worst of five trainings, compared with the worst on answers only?",
    choices={
        "better": "It has more targets. But what do most of them ask for?",
        "equal": "The answers are among the targets. But how large is their part of each update?",
        "worse": "",
    },
    key=lambda: "worse" if min(after_all) < min(after) else "better",
    because="Most targets are now words of stories, which nobody can guess, and an answer is only a small part of each gradient.",
)

# %%
print("only answers:", *(learned(n, 20, 100) for n in after))
print("everything:  ", *(learned(n, 0, 100) for n in after_all))

# %% tags=["signature", "source-hidden"]
with figures.axes("Right answers of 100", "right", "trained on", (10.4, 4.2)) as (figure, ax):
    shown = {"nothing yet": before, "everything": after_all, "only answers": after}
    for row, each in enumerate(shown.values()):
        ax.plot(each, [row] * len(each), "o", ms=13, alpha=0.6, color=figures.SERIES[row % 2])
    ax.axvline(knows, color=figures.QUIET, ls="--")
    ax.text(knows + 1, -0.45, "completed", size=16)
    ax.set_yticks(range(3), shown, size=18)
    ax.set(xlim=(-3, 103), ylim=(-0.6, 2.5))
figures.display(
    figure,
    alt="Dots for each of five trainings: how many of 100 held-out questions are answered rightly, before, with the loss on everything, and on the answers only.",
    caption="Each dot is a training from another seed, on the same dialogues. The dashed line: how often the model before completed the sentence with the right name.",
    table={"trained on": list(shown), "mean": [sum(each) / len(each) for each in shown.values()]},
    digits=2,
)

# %% tags=["source-hidden"] evidence="only-answers" tried="seeds"
# Checked: if everything counts, the seeds differ more, and the worst is worse.
assert min(after_all) < min(after) and max(after_all) - min(after_all) > max(after) - min(after)

# %% [markdown]
# If only answers count, all five trainings are about equally good. If everything counts, it depends on the seed: the worst is worse, and the five differ more. [[only-answers]] Then the loss is a mean over all targets, of which the answers are only a small part, and most others are words of stories. The model writes these as well as it can already: what is left of their loss is mostly what nobody can know (lesson 03). So each update is mostly about something else than the answers.
#
# ### If the end mark does not count
# The first attempt of *Your turn*, as a training:

# %%
endless = [fine_tuned(lambda i, counts: counts and i != END, seed, 30) for seed in SEEDS[:2]]
texts = [answers_of(lm) for lm in endless]
n_ended = [sum("<|im_end|>" in text for text in each) for each in texts]

# %% tags=["source-hidden"]
predict(
    "Trained without the end marks as targets, what does the model do after its answer?",
    choices={
        "it writes the end mark": "It reads many end marks. But was it ever asked to write one?",
        "it writes on": "",
        "it writes nothing": "A model always gives probabilities for a next token.",
    },
    key=lambda: "it writes on" if max(n_ended) < 10 else "it writes the end mark",
    because="It has never been asked to write one, so this id stays as improbable as it was.",
)

# %% evidence="no-end" tried="seeds"
print("of 100 answers that end:", *(learned(n, 0, 100) for n in n_ended))
print(f"such as: ⟨{texts[0][0]}⟩")
assert max(n_ended) < 20 < 90 < min(ended)

# %% [markdown]
# With end marks as targets nearly all answers end, and without them hardly any does: the model writes on, until something else stops it. [[no-end]] If a chat model that you trained does not stop, look at its targets first.

# %% [markdown]
# ## 5. With one command
# The library reads dialogues from a file, one in each line:

# %%
roles = ("role", "content")
line = json.dumps({"messages": [dict(zip(roles, turn, strict=True)) for turn in dialogues[0]]})
print(line[:150], "...")

# %% [markdown]
# With a file of such lines, and a published model that has a template (lesson 18), all of this is one command, and another one talks to the result:
#
# ```
# tinylm train --from HuggingFaceTB/SmolLM2-135M-Instruct --dialogues dialogues.jsonl --out work/runs/chat
# tinylm sample --from work/runs/chat --chat
# ```
#
# `train` then computes the same targets with the function that we used, `encode_dialogue`. The model needs no new rows: its special tokens were in its vocabulary from the start.
#
# Chat models are made in these steps: a model that completes, a template, and fine-tuning on dialogues, many thousands of them, about everything that people ask. Its name is **supervised fine-tuning** (SFT), or *instruction tuning*. It can only imitate the answers that somebody wrote down. The next step, in which answers are compared and better ones become more probable, are the rewards of lesson 17.

# %% [markdown]
# ## What you have now
# - A model that completes can know the answer, without being able to give it. [[knows]]
# - A chat template is a text with special tokens, and to answer is to complete it. [[template]]
# - Only the answers and their end marks are targets. [[targets]]
# - A short fine-tuning teaches the form of an answer; what is in it, the model knew before. [[answers]]
# - If everything counts instead, how well it answers depends on the seed. [[only-answers]]
# - Without the end marks as targets, the model does not stop. [[no-end]]

# %% [markdown]
# ## Sources
# - Fine-tuning on answers: Ouyang et al. 2022, [*Training language models to follow instructions with human feedback*](https://arxiv.org/abs/2203.02155), section 3.
# - Form and knowledge: Zhou et al. 2023, [*LIMA: Less Is More for Alignment*](https://arxiv.org/abs/2305.11206), section 2.
# - New rows like the old ones: Hewitt 2021, [*Initializing New Word Embeddings for Pretrained Language Models*](https://nlp.stanford.edu/~johnhew/vocab-expansion.html).
# - A real one: Ben Allal et al. 2025, [*SmolLM2*](https://arxiv.org/abs/2502.02737), section 5.
