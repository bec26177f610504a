"""Two functions have one text whatever their names, comments, annotations and layout are, and no others have."""

import pytest

from tinylm_classroom.course.grading.similar import alike, normal_form

FIRST = '''
def scale(x, n: int = 3):
    """x (N)."""
    total = 0  # the sum
    for i in range(n):
        total = total + torch.add(x, i, alpha=2)
    return total
'''
SAME = {
    "itself": FIRST,
    "other names": FIRST.replace("total", "acc").replace("x", "value").replace("i ", "step ").replace(" i,", " step,"),
    "no docstring, no comment": FIRST.replace('"""x (N)."""', "").replace("  # the sum", ""),
    "annotations": FIRST.replace("(x, n: int = 3):", "(x: Tensor, n=3) -> Tensor:").replace(
        "total = 0", "total: int = 0"
    ),
    "layout": FIRST.replace("torch.add(x, i, alpha=2)", "(torch.add(\n            x, i,\n            alpha=2))"),
    "another name of the function": FIRST.replace("scale", "my_scale"),
    "an import": "import torch\n" + FIRST,
}
OTHER = {
    "another number": FIRST.replace("= 3", "= 4"),
    "another function of torch": FIRST.replace("torch.add", "torch.sub"),
    "another keyword": FIRST.replace("alpha", "beta"),
    "names exchanged": FIRST.replace("(x, i,", "(i, x,"),
    "a default": FIRST.replace("n: int = 3", "n: int"),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_what_has_one_text(text):
    assert normal_form(text) == normal_form(FIRST) != ""


@pytest.mark.parametrize("text", OTHER.values(), ids=OTHER)
def test_what_has_another_text(text):
    assert normal_form(text) not in ("", normal_form(FIRST))


@pytest.mark.parametrize("text", [
    "def f(x):\n    '''x'''\n    raise NotImplementedError", "def f(x: return", "", "f = " + "(" * 5000,
    "x = '\0'",
])  # fmt: skip
def test_a_stub_and_what_is_not_python_are_like_nothing(text):
    assert normal_form(text) == ""


def test_students_are_grouped_by_what_they_share_and_short_functions_alone_are_not_listed():
    short = "def f(x):\n    return x + 1"
    texts = {(who, "attention"): FIRST for who in ("ann", "bob")} | {("eve", "attention"): OTHER["a default"]}
    texts |= {(who, "causal_mask"): short for who in ("ann", "bob")}
    texts |= {(who, "linear"): short for who in ("cem", "dan")}
    assert [tuple(group) for group in alike(texts)] == [(("ann", "bob"), {"attention": 5, "causal_mask": 2})]
    assert alike({}) == []


def test_what_has_more_lines_in_common_comes_first():
    longer = FIRST + "\n\ndef help(x):\n    return x\n"
    texts = {("ann", "a"): FIRST, ("bob", "a"): FIRST, ("cem", "a"): longer, ("dan", "a"): longer}
    assert [group.students for group in alike(texts)] == [("cem", "dan"), ("ann", "bob")]
