"""The causes that a diagnosis chooses from, the same for all patients, and the signs that each must
have.
"""

from typing import NamedTuple

from .measurements import LIMIT, N_BEFORE
from .records import Sign


class Cause(NamedTuple):
    """What may be wrong, in words, and what would then be measured: a sign that does not hold
    contradicts it.

    proof: the measurement that only this cause explains, where not each of its signs is one.
    """

    text: str
    signs: tuple[Sign, ...]
    proof: str = ""

    @property
    def evidence(self) -> tuple[str, ...]:
        """What can be named as evidence for it: no measurement that a healthy run or another cause
        would show as well.
        """
        if self.proof:
            return (self.proof,)
        return tuple(sign.measure for sign in self.signs if sign not in KINDS)


TRAINED = Sign("updates of training", low=1)
REWARDED = Sign("updates with a reward", low=1)
RESUMED = Sign("times it is resumed", low=1)
PADDED = Sign("texts with padding that it reads", low=1)
PROCESSES = Sign("processes", low=2)
KINDS = (TRAINED, REWARDED, RESUMED, PADDED, PROCESSES)
BEHIND = f"after {N_BEFORE} others"

CAUSES = {
    # training: weights, gradients, updates
    "weights start at 0": Cause(
        "all weights start at 0",
        (
            TRAINED,
            Sign("gradient norm at the start", high=1e-6),
            Sign("matrices that change", high=0),
        ),
        "gradient norm at the start",
    ),
    "learning rate 0": Cause(
        "the learning rate is 0", (TRAINED, Sign("largest learning rate", high=0))
    ),
    "gradients erased": Cause(
        "the gradients are set to 0 between backward and update",
        (
            TRAINED,
            Sign("gradient norm at the start", low=1e-3),
            Sign("matrices that change", high=0),
        ),
    ),
    "learning rate too high": Cause(
        "the learning rate is too high", (TRAINED, Sign("largest loss minus the first", low=0.5))
    ),
    "gradient cut off": Cause(
        "the way back to a matrix is cut off, as by detach",
        (TRAINED, Sign("matrices without a gradient", low=1), Sign("matrices that change", low=1)),
    ),
    "not given to the optimizer": Cause(
        "the optimizer was not given a matrix",
        (
            TRAINED,
            Sign("matrices that never change although they have a gradient", low=1, high=7),
            Sign("matrices that change", low=1),
        ),
        "matrices that never change although they have a gradient",
    ),
    "logits too large": Cause(
        "the logits grow until the exponential overflows", (TRAINED, Sign("largest logit", low=88))
    ),
    # training: what is predicted from what
    "no mask": Cause(
        "there is no causal mask", (Sign("keys that the first of 8 queries sees", low=8),)
    ),
    "mask shifted": Cause(
        "the causal mask is shifted by one: a query sees the next token, too",
        (Sign("keys that the first of 8 queries sees", low=2, high=2),),
    ),
    "mask too narrow": Cause(
        "the causal mask hides a query's own position",
        (Sign("keys that the last of 8 queries sees", high=7),),
    ),
    "targets not shifted": Cause(
        "the targets are the inputs themselves",
        (TRAINED, Sign("targets that are their own input", low=0.9)),
    ),
    "new texts leaked": Cause(
        "the new texts are among the training texts",
        (TRAINED, Sign("new texts that are in the training texts", low=1)),
    ),
    # training: the loss
    "softmax twice": Cause(
        "the loss is given probabilities, and applies a second softmax",
        (Sign("loss of certain, right predictions", low=1),),
    ),
    "loss summed": Cause(
        "the losses are added up instead of averaged",
        (Sign("loss of equal logits, divided by ln V", low=2),),
    ),
    "nothing counts": Cause(
        "in one update no target counts, and the mean divides 0 by 0",
        (
            TRAINED,
            Sign("fewest targets that count in an update", high=0),
            Sign("first update with NaN", low=1),
            Sign("losses of no targets that are NaN", low=1),
        ),
        "losses of no targets that are NaN",
    ),
    # training: what goes on around the updates
    "optimizer not saved": Cause(
        "the checkpoint lacks the optimizer's running means",
        (RESUMED, Sign("difference of the optimizer's means after loading", low=0.5)),
    ),
    "generator not saved": Cause(
        "the checkpoint lacks the state of the random generator",
        (RESUMED, Sign("batches that differ after resuming", low=1)),
    ),
    "step not saved": Cause(
        "the checkpoint lacks the number of the update",
        (RESUMED, Sign("learning rates that differ after resuming", low=1)),
    ),
    "weights not saved": Cause(
        "the checkpoint lacks some weights",
        (RESUMED, Sign("difference of the weights after loading", low=1e-3)),
    ),
    "hooks stay": Cause(
        "a hook is added at each update and never removed",
        (TRAINED, Sign("hooks on the block at the end", low=10)),
    ),
    "graphs kept": Cause(
        "the losses are kept together with their graphs",
        (TRAINED, Sign("losses that keep their graph", low=1)),
    ),
    "batch grows": Cause(
        "the batch grows with each update",
        (TRAINED, Sign("tokens in the last batch, divided by the first", low=1.5)),
    ),
    "same texts": Cause(
        "all processes read the same part of the texts",
        (PROCESSES, Sign("texts that no process reads", low=1)),
    ),
    "gradients not averaged": Cause(
        "the processes do not average their gradients",
        (PROCESSES, Sign("difference between the weights of the processes", low=1e-3)),
    ),
    # writing
    "position restarts": Cause(
        "a token that is read through the cache gets a position that starts at 0 again",
        (Sign(f"position of a token {BEHIND}", high=N_BEFORE - 1),),
    ),
    "cache hidden": Cause(
        "the mask hides keys in the cache from a new token",
        (Sign(f"keys that a token {BEHIND} sees", high=N_BEFORE),),
    ),
    "dropout on": Cause(
        "dropout is still on when it writes",
        (Sign("modules that drop something when it writes", low=1),),
    ),
    "wrong end of the window": Cause(
        "of a long text it reads the first tokens instead of the last",
        (
            Sign("number of the newest token that it reads of 200", high=199),
            Sign("tokens that it reads of 200", low=1),
        ),
        "number of the newest token that it reads of 200",
    ),
    "positions never trained": Cause(
        "it reads more tokens than in training, at positions that it has never seen",
        (Sign("tokens that it reads of 200", low=LIMIT + 1),),
    ),
    "padding is read": Cause(
        "the logits of the last column are used, which is padding",
        (
            PADDED,
            Sign("error at the last real token, with padding on the right", high=0.01),
            Sign("difference between what it reads and the last real token", low=0.5),
        ),
        "difference between what it reads and the last real token",
    ),
    "padding is seen": Cause(
        "real tokens attend to the padding",
        (PADDED, Sign("error at the last real token, with padding on the right", low=0.1)),
    ),
    "padding is counted": Cause(
        "padding on the left moves the positions of the real tokens",
        (PADDED, Sign("error with padding on the left", low=0.1)),
    ),
    # rewards
    "nothing holds it": Cause(
        "nothing holds the model at the one that it began with",
        (
            REWARDED,
            Sign("gain of reward", low=0.2),
            Sign("log-probability of its texts for the model at the beginning", high=-6),
        ),
        "log-probability of its texts for the model at the beginning",
    ),
    "reward turned": Cause(
        "the sign of the reward is turned: worse texts become more likely",
        (REWARDED, Sign("gain of reward", high=0)),
    ),
    "advantages not centred": Cause(
        "the mean reward is not subtracted", (REWARDED, Sign("mean advantage", low=0.1))
    ),
}
