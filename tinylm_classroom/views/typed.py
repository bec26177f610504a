"""A text that a reader types into a view: what it needs before it, and what to do about an unknown
word in it.
"""

from collections.abc import Sequence
from typing import Any

from tinylm_lib.storyworld.lookback import told_by
from tinylm_lib.text.base import UnknownTokenError
from tinylm_lib.text.cutting import words

_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
# characters of an unknown word that are shown, words that are offered instead
_LONGEST = 20
_SOME = 3


def typed_text(tokenizer: Any, text: str, lead: str) -> str:
    """A typed text with what the model needs before it: a line end before a story, otherwise what
    the view began with.

    lead: what the view began with. If the tokenizer knows the first word only after a line end, or
    after a line end and a blank, these are added.
    Raises: ValueError for an empty text.
    """
    text = text.strip()
    if not text:
        raise ValueError("the text is empty: type a text")
    leads = [*(["\n"] if told_by(text) else []), lead, "\n", "\n "]
    return (
        next((each for each in leads if _is_known(tokenizer, each + words(text)[0])), lead) + text
    )


def spelled(tokenizer: Any, spellings: Sequence[str]) -> list[list[int]]:
    """The ids of each of a word's spellings that the tokenizer knows.

    Raises: ValueError, what the tokenizer says of the last one, if it knows none.
    """
    known = []
    for spelling in spellings:
        try:
            known.append(list(tokenizer.encode(spelling)))
        except ValueError as e:
            unknown = e
    if not known:
        raise unknown
    return known


def _is_known(tokenizer: Any, text: str) -> bool:
    try:
        tokenizer.encode(text)
    except ValueError:
        return False
    return True


def for_readers(error: Exception, who: str = "The model") -> str:
    """What an error says to a reader, who cannot build a tokenizer: of an unknown word, what to
    write instead.

    who: what knows only some words.
    """
    if not isinstance(error, UnknownTokenError):
        return str(error)
    token = error.token
    known = error.known
    bare = token.strip(" ")
    name = f"“{_shown(bare or token)}”"
    if f" {token}" in known:
        return f"{who} knows {name} only after a blank."
    if error.what == "word" and bare in known:
        where = (
            ": at the beginning of a text or after a quotation mark"
            if any(map(str.isalpha, bare))
            else ""
        )
        return f"{who} knows {name} only without a blank before it{where}."
    instead = _instead(error)
    fix = (
        f"Try {', '.join(instead[:-1])} or {instead[-1]}."
        if instead[1:]
        else f"Try {''.join(instead)}."
    )
    says = f"{who} knows only {len(known):,} {error.what}s, and not {name}."
    return f"{says} {fix if instead else 'Leave it out.'}"


def _shown(token: str) -> str:
    """A word of which every character can be seen, shortened."""
    seen = [
        _SIGNS.get(c) or (c if c.isprintable() else f"U+{ord(c):04X}") for c in token[:_LONGEST]
    ]
    return "".join(seen) + ("…" if len(token) > _LONGEST else "")


def _instead(error: UnknownTokenError) -> list[str]:
    """Known words in quotes: the same in other letters, those that begin like it, or some that are
    common in a text.
    """
    token = error.token.strip(" ").lower()
    same = [word.strip(" ") for word in error.known if word.strip(" ").lower() == token]
    usual = [
        word[1:]
        for word in error.known
        if word[0] == " " and len(word) > 4 and word[1:].isalpha() and word.islower()
    ]
    spread = (
        [usual[i * len(usual) // (_SOME + 1)] for i in range(1, _SOME + 1)]
        if len(usual) >= _SOME
        else []
    )
    return [f"“{word}”" for word in (same[:1] or error.alike[:_SOME] or spread)]
