"""A text that a reader types into a view, with the line end or the blank that it needs before it."""

from typing import Any

from ...storyworld.lookback import told_by
from ...text.cutting import words


def typed_text(tokenizer: Any, text: str, lead: str) -> str:
    """A typed text with what the model needs before it: a line end before a story, otherwise what the view began with.

    lead: what the view began with. If the tokenizer knows the first word only after a line end, or after a line end
    and a blank, these are added.
    Raises: ValueError for an empty text.
    """
    text = text.strip()
    if not text:
        raise ValueError("the text is empty: type a text")
    leads = [*(["\n"] if told_by(text) else []), lead, "\n", "\n "]
    return next((each for each in leads if _is_known(tokenizer, each + words(text)[0])), lead) + text


def _is_known(tokenizer: Any, text: str) -> bool:
    try:
        tokenizer.encode(text)
    except ValueError:
        return False
    return True
