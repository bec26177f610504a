"""Flags made from the config records: each field is one."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ..config import Record, field_types

SPELLED = {"source": "from"}  # fields whose flag is a word that Python keeps for itself


def add_flags(group: Any, record: type[Record], tuning: Mapping[str, str]) -> None:
    """Add one flag per field. A flag that is not used leaves no trace: defaults stay in the record.

    tuning: what the help adds about defaults that are others with --from.
    """
    for f in fields(record):
        kind = field_types(f)[0]
        if issubclass(kind, Record):
            continue
        optional = f.default is None or type(None) in field_types(f)
        read = _or_none(kind) if optional and kind in (int, float) else kind
        how: dict[str, Any] = {"type": read, "metavar": kind.__name__.upper()}
        if kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
        elif "choices" in f.metadata:
            how = {"choices": f.metadata["choices"]}
        unset = "none" if kind is str and "choices" not in f.metadata else "derived"
        default = unset if f.default is None else f.default
        other = tuning.get(f.name, "")
        help_text = f"{f.metadata['help']} (default {default}{other})".replace("%", "%%")
        flag = f"--{SPELLED.get(f.name, f.name).replace('_', '-')}"
        group.add_argument(flag, dest=f.name, default=argparse.SUPPRESS, help=help_text, **how)


def given(arguments: argparse.Namespace, record: type[Record]) -> dict[str, Any]:
    """The fields of a record that the user set."""
    names = {f.name for f in fields(record)}
    return {name: value for name, value in vars(arguments).items() if name in names}


def _or_none(kind: type) -> Callable[[str], Any]:
    """Read a number, or "none" as None."""

    def number(text: str) -> Any:
        return None if text == "none" else kind(text)

    number.__name__ = f"{kind.__name__} or none"  # argparse names it in its errors
    return number
