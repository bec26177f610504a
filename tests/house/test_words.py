"""Words that sound translated or private, and the plain ones to write instead, in everything that readers see."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = {
    r"\bwhoever\b": "anyone who, if you",
    r"\banew\b": "again",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"(?<!\bthere )\b(?:is|are|was|were) no (?!longer|more|less|worse|different|one\b|\w+er\b)\w+": "is not a",
    r"\bput(?:s|ting)? away\b": "hold out, held-out",
    r"\basked for is\b": "expected",
    r"\bone published (?:note|text|page)\b": "a common mistake is, or a citation",
    r"\bever so\b": "slightly, very",
    r"\bin place of\b": "instead of",
    r"\bstands? (?:in|at|beside)\b": "is in, is stored in, is at, is next to",
    r"\bshares (?:that )?(?:sum|add up)\b|\bshares? of (?:one|the) whole\b": "probabilities, weights",
}
# Where such a word is right: the file, the words around it, and why.
ALLOWED: dict[tuple[str, str], str] = {}


def texts_of_python(text: str) -> Iterator[tuple[int, str]]:
    """The comments, those of neighbouring lines as one, and the strings of a source, each with its line."""
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    for _, block in groupby(enumerate(tokens), lambda pair: pair[1].start[0] - pair[0]):
        lines = [token for _, token in block]
        yield lines[0].start[0], " ".join(token.string.lstrip("# ") for token in lines)
    tree = ast.parse(text)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def findings(name: str, text: str) -> list[str]:
    """Each word to replace: where it is, its surroundings and what to write."""
    pieces = texts_of_python(text) if name.endswith(".py") else enumerate(text.split("\n\n"), 1)
    bad = []
    for at, piece in pieces:
        plain = " ".join(piece.split())
        for pattern, instead in WORDS.items():
            for hit in re.finditer(pattern, plain, re.I):
                around = plain[max(0, hit.start() - 40) : hit.end() + 40]
                if not any(name == file and words in around for file, words in ALLOWED):
                    where = "line" if name.endswith(".py") else "paragraph"
                    bad.append(f"{name}, {where} {at}: ...{around}...: write {instead}")
    return bad


def read_by_people() -> dict[str, str]:
    """The files whose texts somebody reads, by name."""
    files = (p for package in ("tinylm_lib", "tinylm_classroom") for p in (ROOT / package).rglob("*"))
    library = (p for p in files if p.suffix in {".py", ".js", ".html"})
    pages = (ROOT / name for name in ("README.md", "ENGINEERS.md", "CONTRIBUTING.md", "INSTRUCTORS.md"))
    paths = [p for p in library if "reveal" not in p.parts]  # which others have written
    paths += [*(ROOT / "notebooks/source").rglob("*.py"), *pages]
    return {p.relative_to(ROOT).as_posix(): p.read_text("utf-8") for p in sorted(paths)}


def test_no_text_has_a_word_that_has_a_plain_one() -> None:
    assert [line for name, text in read_by_people().items() for line in findings(name, text)] == []


def test_each_allowed_place_is_there() -> None:
    texts = {file: " ".join((ROOT / file).read_text("utf-8").split()) for file, _ in ALLOWED}
    assert [(file, words) for file, words in ALLOWED if words not in texts[file]] == []


@pytest.mark.parametrize(("text", "n"), [
    ("# Whoever reads it", 1), ("# It is counted anew.", 1), ("# what to mend", 1), ("# It is no byte.", 1),
    ("# There is no byte, it is no longer there, and no larger.", 0), ("# They are no\n# ids.", 1),
    ("# Put away the last lines.", 1), ("x = 'The value asked ' 'for is 3.'", 1), ("# One published note says so", 1),
    ("# ever so little", 1), ("# 8 in place of 32", 1), ("x = f'{y} stands in {z}.'", 1),
    ("# It stands for a word.", 0),
    ("# shares that sum to 1", 1), ("# They share a part of the whole.", 0), ("anew = mend = 3", 0),
    ('def f():\n    """It is no id."""', 1), ("# It was changed in place; of this", 0),
])  # fmt: skip
def test_the_search_finds_each_word(text: str, n: int) -> None:
    assert len(findings("planted.py", text)) == n
