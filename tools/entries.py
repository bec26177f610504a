"""How the tools write what they have recorded: entries of a TOML file."""

import json
from collections.abc import Callable
from typing import Any


def entry(name: str, facts: dict[str, Any], number: Callable[[float], str]) -> str:
    """An entry of the table of this name. number: how a float is written, in lists, too."""
    lines = [f"{key} = {value(fact, number)}" for key, fact in facts.items()]
    return f"\n[[{name}]]\n" + "\n".join(lines) + "\n"


def value(fact: Any, number: Callable[[float], str]) -> str:
    """A fact as TOML has it."""
    if isinstance(fact, list):
        return f"[{', '.join(value(each, number) for each in fact)}]"
    return number(fact) if isinstance(fact, float) else json.dumps(fact)
