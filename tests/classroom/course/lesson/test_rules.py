"""Claims name the experiment that could refute them, and what the shipped model reads begins as in training."""

import ast
import re
from pathlib import Path

import pytest

from tinylm_classroom.course.lesson.read import read_lesson
from tinylm_classroom.course.lesson.rules import check_rules, without_evidence
from tinylm_classroom.course.lesson.transform import to_notebook
from tinylm_classroom.folders import NOTEBOOKS

LESSON = """# %% [markdown]
# # 05 Halves
# *Needs* nothing. *Runs* in about 2 s on two cores. *Teaches* in about 3 minutes.

# %% [markdown]
# ## 1. Halving & more
# The root is for small numbers. [[halving]]

# %% evidence="halving" tried="exact"
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
    read = read_lesson(path)
    check_rules(read)
    return read


def test_a_mark_becomes_a_link_to_another_section_and_nothing_in_its_own(tmp_path):
    for role in ("student", "solution"):
        cells = [
            cell for cell in to_notebook(lesson(tmp_path), role).cells if "note" not in cell.metadata.get("tags", ())
        ]
        assert cells[1].source.endswith("small numbers.")
        link = "([section 1](#1.-Halving-&-more))"
        assert f"- Half of three is more than one. {link}\n- Three has a half,\n  too. {link}\n" in cells[3].source


def test_marks_in_a_row_name_each_section_once(tmp_path):
    text = LESSON.replace("assert 3 / 2 == 1.5", 'assert 3 / 2 == 1.5\n\n# %% evidence="more"\nassert 3 / 2 > 1')
    text = text.replace("#\n# ## Sources", "#\n# Both hold. [[halving]] [[more]]\n#\n# ## Sources")
    sources = [cell.source for cell in to_notebook(lesson(tmp_path, text), "student").cells]
    assert any("Both hold. ([section 1](#1.-Halving-&-more))\n" in source for source in sources)


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


CLAIMS = ("small numbers.", "It generalizes.", "The root can be left out.", "No root is needed.")


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_without_evidence_is_listed(tmp_path, claim):
    text = LESSON.replace(f"{claim} [[halving]]", claim)
    if text == LESSON:
        text = text.replace("small numbers. [[halving]]", f"small numbers. [[halving]]\n#\n# {claim}")
    assert without_evidence(lesson(tmp_path).cells) == []
    assert len(without_evidence(lesson(tmp_path, text).cells)) == 1


def unbegun(text: str) -> list[str]:
    """The texts that a lesson gives to the shipped model without the line end before a story.

    A text is encoded into a row of a batch, `torch.tensor([tokenizer.encode(...)])`, or handed over after the model and
    its tokenizer. An index behind the encoding looks up one word, which is not a text.
    """
    nodes = list(ast.walk(ast.parse(text))) if "load_pretrained" in text else []
    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    values = {ast.unparse(target): node.value for node in assigned for target in node.targets}
    texts = {argument for node in nodes if isinstance(node, ast.Call) for argument in _texts(node)}
    return sorted(ast.unparse(node) for node in texts if not _begun(node, values))


def _texts(call: ast.Call) -> list[ast.expr]:
    name, arguments = ast.unparse(call.func), [ast.unparse(argument) for argument in call.args]
    if arguments[:2] == ["model", "tokenizer"] and name.endswith("_view"):
        return call.args[2:3]
    if name != "torch.tensor" or not isinstance(call.args[0], ast.List | ast.ListComp):
        return []
    inside = list(ast.walk(call))
    words = [node.value for node in inside if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)]
    encoded = [node for node in inside if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("encode")]
    return [node.args[0] for node in encoded if node not in words]


def _begun(node: ast.expr, values: dict[str, ast.expr]) -> bool:
    node = values.get(ast.unparse(node), node)
    while isinstance(node, ast.BinOp):
        node = node.left
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return isinstance(node, ast.Constant) and str(node.value).startswith("\n")


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("source/*.py")), ids=lambda path: path.stem)
def test_each_claim_of_a_lesson_names_its_evidence_and_each_text_for_the_shipped_model_begins_with_a_line_end(path):
    assert without_evidence(read_lesson(path).cells) == []
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
