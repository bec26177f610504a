"""Claims name the experiment that could refute them, and what the shipped model reads begins as in training."""

import ast
import re
from pathlib import Path

import pytest

from tinylm_lib.classroom.course import claims
from tinylm_lib.classroom.course.source import read_lesson, to_notebook

SOURCES = sorted((Path(__file__).parents[3] / "notebooks" / "source").glob("*.py"))
LESSON = """# %% [markdown]
# # 05 Halves
# *Needs* nothing. *Runs* in about 2 s on two cores. *Teaches* in 5 minutes.

# %% [markdown] minutes=5
# ## 1. Halving & more
# The root is for small numbers. [[halving]]

# %% evidence="halving"
assert 3 / 2 == 1.5

# %% [markdown]
# ## What you have now
# - Half of three is more than one. [[halving]]
# - Three has a half,
#   too. [[halving]]
#
# ## Sources
# - None.
"""


def lesson(folder: Path, text: str = LESSON):
    path = folder / "05_halves.py"
    path.write_text(text, encoding="utf-8")
    return read_lesson(path)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_claim_names_its_evidence(path):
    assert claims.without_evidence(read_lesson(path).cells) == []


def test_a_mark_becomes_a_link_to_another_section_and_nothing_in_its_own(tmp_path):
    for role in ("student", "solution"):
        cells = to_notebook(lesson(tmp_path), role).cells
        assert cells[1].source.endswith("small numbers.")
        link = "([section 1](#1.-Halving-&-more))"
        assert f"- Half of three is more than one. {link}\n- Three has a half,\n  too. {link}\n" in cells[3].source


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("numbers. [[halving]]", "numbers. [[thirds]]", "5: [[thirds]] names no evidence; there is halving"),
        ("[[halving]]", "", "9: no claim names the evidence 'halving'"),
        ("assert 3 / 2 == 1.5", "print(3 / 2)", "9: the evidence 'halving' must be able to fail: add an assert"),
        ("assert 3", '%% evidence="halving"\nassert 3', "give the evidence a name of its own"),
        ('evidence="halving"', 'evidence="halving" tags=["solution"]', "must be able to fail"),
    ],
)
def test_evidence_that_could_refute_nothing_is_refused(tmp_path, old, new, message):
    text = LESSON.replace(old, new.replace("%%", "assert 1\n\n# %%"))
    with pytest.raises(ValueError, match=re.escape(message)):
        lesson(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("small numbers. [[halving]]", "small numbers."),
        ("more than one. [[halving]]", "more than one."),
        ("small numbers. [[halving]]", "small numbers. [[halving]]\n#\n# It generalizes."),
        ("small numbers. [[halving]]", "small numbers. [[halving]]\n#\n# The root can be left out."),
        ("small numbers. [[halving]]", "small numbers. [[halving]]\n#\n# No root is needed."),
    ],
)
def test_a_claim_without_evidence_is_listed(tmp_path, old, new):
    assert claims.without_evidence(lesson(tmp_path).cells) == []
    assert len(claims.without_evidence(lesson(tmp_path, LESSON.replace(old, new)).cells)) == 1


# texts for the shipped model


def unbegun(text: str) -> list[str]:
    """The texts that a lesson gives to the shipped model without the line end before a story.

    A text is encoded into a row of a batch, `torch.tensor([tokenizer.encode(...)])`, or handed over after the model and
    its tokenizer. An index behind the encoding looks up one word, which is not a text.
    """
    tree = ast.parse(text)
    if "load_pretrained" not in text:
        return []
    texts = {argument for call in _calls(tree) for argument in _texts(call)}
    values = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return sorted(ast.unparse(node) for node in texts if not _begun(node, values))


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _texts(call: ast.Call) -> list[ast.expr]:
    names = [ast.unparse(argument) for argument in call.args[:2]]
    if names == ["model", "tokenizer"] and len(call.args) > 2 and ast.unparse(call.func).endswith("_view"):
        return [call.args[2]]
    if ast.unparse(call.func) != "torch.tensor" or not isinstance(call.args[0], ast.List | ast.ListComp):
        return []
    looked_up = [
        node.value
        for node in ast.walk(call)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    ]
    encoded = [inner for inner in _calls(call) if ast.unparse(inner.func) in ("tokenizer.encode", "encode")]
    return [inner.args[0] for inner in encoded if inner not in looked_up]


def _begun(node: ast.expr, values: dict[str, ast.expr]) -> bool:
    if isinstance(node, ast.Name) and node.id in values:
        node = values[node.id]
    while isinstance(node, ast.BinOp):
        node = node.left
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return isinstance(node, ast.Constant) and str(node.value).startswith("\n")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_text_for_the_shipped_model_begins_with_a_line_end(path):
    assert unbegun(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("code", "n"),
    [
        (r'torch.tensor([tokenizer.encode("\nOne")])', 0),
        (r'torch.tensor([tokenizer.encode("\n" + text)[:80] for text in texts])', 0),
        (r'torch.tensor([tokenizer.encode(f"\n{day}")])', 0),
        ('told = "\\nOne"\ntorch.tensor([tokenizer.encode(told)])', 0),
        ('torch.tensor([tokenizer.encode(f" {word}")[0] for word in words])', 0),
        (r'attention_view(model, tokenizer, "\nOne")', 0),
        ('torch.tensor([tokenizer.encode("One")])', 1),
        ("torch.tensor([tokenizer.encode(text)[:80] for text in texts])", 1),
        ('told = "One"\ntorch.tensor([tokenizer.encode(told)])', 1),
        ('torch.tensor([tokenizer.encode(f"{day}")])', 1),
        ('attention_view(model, tokenizer, "One")', 1),
        ('rope_view(model, tokenizer, " One", layer=1)', 1),
    ],
)
def test_the_search_finds_a_text_without_its_line_end(code, n):
    assert len(unbegun(f"load_pretrained()\n{code}")) == n
