"""Tokens as people read them."""


def readable(token: str) -> str:
    """A token as it stands in a cell: without the blanks around it, and with a sign for what cannot be seen."""
    return token.strip(" ").replace("\n", "↵").replace("\t", "⇥") or "␣"


def named(token: str) -> str:
    """A readable token as it stands in a sentence: signs in quotes."""
    return token if any(map(str.isalnum, token)) else f"“{token}”"
