"""The table of patients: what each does, which of its parts is ill and how, and what must be true
when it is well.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tinylm_lib.config import IGNORED

from .measurements import LIMIT, V
from .parts import HEALTHY
from .records import CaseFile, Sign
from .run import Plan


def _all_zero(model: Any) -> None:
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)


def _one_ahead(n_queries: int, n_keys: int) -> Tensor:
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries + 1)


def _of_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    return HEALTHY["loss"](logits.softmax(-1), targets)


def _divided_by_the_counted(logits: Tensor, targets: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]  # (B, T)
    counted = targets != IGNORED
    return -(log_probs * counted).sum() / counted.sum()


def _some_projections(model: Any) -> list:
    wanted = ("embed", "norm", "q_proj", "k_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return [p for name, p in model.named_parameters() if any(word in name for word in wanted)]


def _without_means(model: Any, optimizer: Any, generator: Any, step: int) -> dict:
    return {"model": model.state_dict(), "generator": generator.get_state(), "step": step}


def _hook_stays(block: Any, forward: Callable) -> tuple[Tensor, float]:
    sizes: list[float] = []
    block.register_forward_hook(
        lambda _, __, output: sizes.append(output.square().mean().sqrt().item())
    )
    return forward(), sizes[-1]


def _from_zero(start: int, n: int) -> Tensor:
    return torch.arange(n)


def _first_tokens(ids: Tensor, limit: int) -> Tensor:
    return ids[:, :limit]


def _last_column(logits: Tensor, real: Tensor) -> Tensor:
    return logits[:, -1]


def _same_half(texts: Tensor, rank: int, n_processes: int) -> Tensor:
    return texts[: len(texts) // n_processes]


ALL_TRAINED = (Sign("matrices that change", low=8), Sign("matrices without a gradient", high=0))
ONE_TOO_FEW = Sign("matrices that change", high=7)
AS_ONE_LOSS = (
    Sign("loss of certain, right predictions", low=-0.01, high=0.01),
    Sign(
        "loss of equal logits, divided by ln V",
        low=0.99,
        high=1.01,
        why="The mean must divide by the targets that count only.",
    ),
)

NOTHING_HIDDEN = Sign(
    "losses of NaN that look like numbers",
    high=0,
    why=(
        "This loss is finite even if all logits are NaN: it also hides a model that explodes. "
        "Say what the mean of no targets should be, and let every other NaN be seen."
    ),
)

PATIENTS = (
    CaseFile(
        "stuck",
        (
            "Mia's first model. It has trained all night, and she has already bought a faster "
            "computer."
        ),
        '"The loss stays where it began, however long I train."',
        (
            "loss at the start",
            "loss at the end",
        ),
        "10",
        Plan(updates=120),
        "initial_weights",
        _all_zero,
        "weights start at 0",
        (Sign("loss at the end", low=math.log(V) - 0.01, high=math.log(V) + 0.01),),
        (Sign("loss at the end", high=3.0), *ALL_TRAINED),
        (
            "How large are the gradients at the first update?",
            "A gradient of exactly 0 everywhere: what makes every product on the way back 0?",
            "Which part decides what the matrices contain before the first update? See lesson 10.",
        ),
    ),
    CaseFile(
        "floor",
        (
            "Omar has read that one must overfit a single batch first, so he did. He has tried "
            "four optimizers."
        ),
        (
            '"I train on a single batch, again and again. Its loss should go to 0, but it stops '
            'far above."'
        ),
        (
            "loss at the start",
            "loss at the end",
        ),
        "03",
        Plan(updates=150, one_batch=True),
        "loss",
        _of_probabilities,
        "softmax twice",
        (Sign("loss at the end", low=math.log(math.e + V - 1) - 1, high=5.2),),
        (Sign("loss at the end", low=0, high=0.3), *AS_ONE_LOSS),
        (
            "Which number does the loss give to predictions that are certain and right?",
            (
                "Compare where it stops with ln(e + V - 1) - 1. When is the largest probability "
                "only e times the others'?"
            ),
            "The loss of lesson 03 takes logits. What does it do with them first?",
        ),
    ),
    CaseFile(
        "too good",
        (
            "Greta's model is better than every model in the world. She has booked a flight to a "
            "conference."
        ),
        (
            '"After a few seconds of training the loss on new texts is below the floor. Nobody '
            'has ever done that!"'
        ),
        (
            "loss on new texts",
            "floor of new texts",
        ),
        "05",
        Plan(updates=350),
        "mask",
        _one_ahead,
        "mask shifted",
        (Sign("loss on new texts", high=0.55), Sign("floor of new texts", low=0.6)),
        (
            Sign("keys that the first of 8 queries sees", low=1, high=1),
            Sign("keys that the last of 8 queries sees", low=8, high=8),
            Sign("keys that a token after 10 others sees", low=11, high=11),
            Sign("largest difference of logits, cache against full", high=1e-3),
            Sign("loss at the end", low=0.7, high=2.5),
        ),
        (
            "A loss below the floor is not a success: something in the input says what comes next.",
            "Look at the attention. Which key does a query look at that it must not see?",
            "The first query may see one key. How many does it see here?",
        ),
    ),
    CaseFile(
        "nonsense",
        (
            "Kofi downloaded it, and reads its test results aloud to everyone. Then he asked it "
            "for a story."
        ),
        '"When it reads a text at once, its loss is low. When it writes, it writes nonsense."',
        ("loss of a text that it reads at once",),
        "13",
        Plan(),
        "positions",
        _from_zero,
        "position restarts",
        (
            Sign("loss of a text that it reads at once", high=1.5),
            Sign("loss of a text that it reads token by token", low=3),
        ),
        (
            Sign("largest difference of logits, cache against full", high=1e-2),
            Sign("loss of a text that it reads token by token", high=1.5),
        ),
        (
            "Reading at once is right, so the weights are right. What is different when one token "
            "comes at a time?",
            "At which token does the cache begin to differ from one pass?",
            "Which position does a token get that has ten others before it in the cache?",
        ),
    ),
    CaseFile(
        "left behind",
        "Yuki is here for a check-up. Nothing hurts. Her insurance pays for it.",
        '"The loss falls as it should. Is everything all right?"',
        (
            "loss at the start",
            "loss at the end",
        ),
        "11",
        Plan(updates=120),
        "trained",
        _some_projections,
        "not given to the optimizer",
        (ONE_TOO_FEW, Sign("loss at the end", high=5.0)),
        (Sign("loss at the end", high=3.0), *ALL_TRAINED),
        (
            "The loss says nothing here. Look at each matrix.",
            (
                "Has the matrix that never changes a gradient? Both answers are possible, and they "
                "have different causes."
            ),
            (
                "The gradient is there, but somebody has to use it: which parameters does the "
                "optimizer hold?"
            ),
        ),
    ),
    CaseFile(
        "slower",
        (
            "Ben watches his model closely, a little more closely with every update. He has "
            "cleaned the fan."
        ),
        '"It learns well, but my profiler counts more calls with every update."',
        ("loss at the end",),
        "16",
        Plan(updates=100),
        "watch",
        _hook_stays,
        "hooks stay",
        (Sign("hooks on the block at the end", low=100),),
        (
            Sign("hooks on the block at the end", high=0),
            Sign("error of the watched size", high=1e-4),
            Sign("loss at the end", high=3.0),
        ),
        (
            "The losses are right. So something is done more and more often, or on more and more "
            "numbers.",
            "Count what a run holds: tokens in a batch, graphs, hooks.",
            (
                "What is added at each update must be removed again, also when the forward pass "
                "fails. See lesson 16."
            ),
        ),
    ),
    CaseFile(
        "until 128",
        "Elsa lets her model read whole novels. She has asked for shorter novels.",
        f'"It predicts well for {LIMIT} tokens. In longer texts it suddenly has no idea."',
        (
            f"loss up to {LIMIT} tokens",
            f"loss beyond {LIMIT} tokens",
        ),
        "13",
        Plan(),
        "window",
        _first_tokens,
        "wrong end of the window",
        (Sign(f"loss up to {LIMIT} tokens", high=1.5), Sign(f"loss beyond {LIMIT} tokens", low=3)),
        (
            Sign(f"loss beyond {LIMIT} tokens", high=1.5),
            Sign("tokens that it reads of 200", low=LIMIT, high=LIMIT),
            Sign("number of the newest token that it reads of 200", low=200, high=200),
        ),
        (
            "Look along a text: where does the loss jump?",
            "The model can read 128 tokens. Which of 200 does it read?",
            (
                "To predict the next token it needs the newest ones. Try the slice with numbers 1 "
                "to 5 and a limit of 3."
            ),
        ),
    ),
    CaseFile(
        "NaN",
        (
            "Noah teaches his model to answer questions: only the answers count. He has lowered "
            "the learning rate three times."
        ),
        '"All is well for 299 updates. At update 300 the loss is NaN, and it stays so."',
        ("first update with NaN",),
        "11",
        Plan(updates=310, answers=True),
        "loss",
        _divided_by_the_counted,
        "nothing counts",
        (
            Sign("first update with NaN", low=300, high=300),
            Sign("updates with NaN", low=11, high=11),
        ),
        (
            Sign("first update with NaN", high=0),
            Sign("loss at the end", high=2.5),
            *AS_ONE_LOSS,
            NOTHING_HIDDEN,
        ),
        (
            "Are losses and gradients growing before update 300? If not, it is not an explosion.",
            "What is special about this update? Count its targets, and try the loss on them.",
            (
                "The mean of no numbers is 0 divided by 0. What should the loss be where nothing "
                "counts?"
            ),
        ),
    ),
    CaseFile(
        "padded",
        "Kira serves two customers at once, one with a long text and one with a short one.",
        (
            '"With padding on the left both get the right answer. With padding on the right '
            'somebody complains."'
        ),
        (
            "error with padding on the left",
            "error with padding on the right",
        ),
        "13",
        Plan(padded=True),
        "last_logits",
        _last_column,
        "padding is read",
        (
            Sign("error with padding on the left", high=0.01),
            Sign("error with padding on the right", low=0.5),
        ),
        (
            Sign("error with padding on the left", high=0.01),
            Sign("error with padding on the right", high=0.01),
        ),
        (
            "Are the logits wrong everywhere, or only where they are read?",
            "With padding on the right the last column is not the last token.",
            (
                "The last real token of each row: find its index from `real`, for padding on "
                "either side."
            ),
        ),
    ),
    CaseFile(
        "two processes",
        "Carlos has hired a second process. He pays both.",
        '"Two processes share 16 texts, and together they learn less than one process alone."',
        ("loss on all its texts",),
        "15",
        Plan(updates=80, texts=16, processes=2),
        "shard",
        _same_half,
        "same texts",
        (Sign("loss on all its texts", low=1.5),),
        (Sign("loss on all its texts", high=0.6), Sign("texts that no process reads", high=0)),
        (
            "Are the weights of both processes equal? Then the gradients are averaged.",
            "Which texts does each process read? Count those that nobody reads.",
            "With rank 0 and rank 1 of 2, all texts together should be read, and none twice.",
        ),
    ),
    CaseFile(
        "resumed",
        "Ivan's computer had to restart at half time. He swears that he saved everything.",
        (
            '"I continue from the checkpoint, with the same batches, and the losses are not those '
            'of the run that was not interrupted."'
        ),
        ("largest difference of the loss after resuming",),
        "11 (more: runs)",
        Plan(updates=120, resume=True),
        "saved",
        _without_means,
        "optimizer not saved",
        (Sign("largest difference of the loss after resuming", low=0.02),),
        (
            Sign("largest difference of the loss after resuming", high=1e-4),
            Sign("batches that differ after resuming", high=0),
            Sign("learning rates that differ after resuming", high=0),
        ),
        (
            "After loading, compare one after the other: weights, batches, learning rates, the "
            "optimizer.",
            "AdamW remembers something of each gradient. Where is it kept?",
            "The checkpoint needs four things. Which of them is missing here?",
        ),
    ),
    CaseFile(
        "rewarded",
        "Ada pays her model for long words. It is getting rich.",
        '"The reward climbs and climbs. Why does nobody want to read it?"',
        ("gain of reward",),
        "17",
        Plan(rewards=25),
        "beta",
        0.0,
        "nothing holds it",
        (
            Sign("gain of reward", low=0.3),
            Sign("log-probability of its texts for the model at the beginning", high=-6),
        ),
        (
            Sign(
                "log-probability of its texts for the model at the beginning",
                low=-6,
                why="Its texts are still very unlikely for the model that it began with.",
            ),
            Sign(
                "gain of reward in new texts",
                low=0.1,
                why="It is held so tightly that it learns nothing. The reward has to rise, too.",
            ),
        ),
        (
            "Read its texts. What do they have in common?",
            "How probable are its texts for the model that it began with?",
            "Lesson 17 has a penalty for this. How strong is it here, and when is it too strong?",
        ),
    ),
)
