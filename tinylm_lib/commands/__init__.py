"""The commands that train, write, measure and encode: each file has one, with its flags."""

from .eval import add_eval
from .sample import add_sample
from .tokens import add_tokens
from .train import add_train

COMMANDS = (add_train, add_sample, add_eval, add_tokens)
