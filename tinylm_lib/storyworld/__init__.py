"""StoryWorld: a language of short stories whose exact entropy is known. Notebook 03."""

from ..text.cutting import words
from .gaps import gaps
from .lookback import share_told, told_by
from .scenes import Scene, options
from .sentences import CLASSES, DIFFERENT
from .stories import (
    Entropies,
    Reader,
    Story,
    corpus,
    entropies,
    entropy_per_story,
    log_prob,
    parse,
    story,
    totals,
)

__all__ = [
    "CLASSES",
    "DIFFERENT",
    "Entropies",
    "Reader",
    "Scene",
    "Story",
    "corpus",
    "entropies",
    "entropy_per_story",
    "gaps",
    "log_prob",
    "options",
    "parse",
    "share_told",
    "story",
    "told_by",
    "totals",
    "words",
]
