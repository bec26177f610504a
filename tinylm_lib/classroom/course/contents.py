"""The table of lessons in the README, made from the first lines of their sources."""

import re
from pathlib import Path

from .cells import TITLE

TABLE = re.compile(r"(?<=\| lesson \| question \|\n\|---\|---\|\n)(?:\|.*\n)*")


def with_table(readme: str, sources: list[Path]) -> str:
    """A README with the table of these lessons in it; without a table it stays as it is."""
    return TABLE.sub("".join(map(_row, sources)).replace("\\", r"\\"), readme)


def _row(source: Path) -> str:
    first, *_ = re.split(r"(?m)^# %%.*\n", source.read_text(encoding="utf-8"))[1:] or [""]
    title = TITLE.match(re.sub(r"(?m)^# ?", "", first))
    question = " ".join(title["question"].split()) if title else ""
    return f"| [{source.stem.replace('_', ' ')}](notebooks/{source.stem}.ipynb) | {question} |\n"
