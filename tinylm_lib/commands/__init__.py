"""The commands of python -m tinylm_lib that train, write and measure: each file has the flags of one and its work."""

from . import eval, sample, train

COMMANDS = (train, sample, eval)
