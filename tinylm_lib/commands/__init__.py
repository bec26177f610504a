"""The commands of python -m tinylm_lib that train, write and measure: each file has the flags of one and its work."""

from .eval import add_eval
from .sample import add_sample
from .train import add_train

COMMANDS = (add_train, add_sample, add_eval)
