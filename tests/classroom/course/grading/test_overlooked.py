"""What a student wrote where it does not count is found, and said with its place and the reason."""

import pytest

from tinylm_classroom.course.grading.notebook import SubmittedCell
from tinylm_classroom.course.grading.overlooked import overlooked

RIGHT = "def scale_up(x, n):\n    return n * x"
COMMENTED = "\n".join(f"# {line}" for line in RIGHT.split("\n"))
FOUND = {
    "written to a file": ("code", f"%%writefile my.py\n{RIGHT}", "it begins with `%%writefile my.py`"),
    "another kernel": ("code", f"\n%%script python3\n{RIGHT}", "it begins with `%%script python3`"),
    "markdown": ("markdown", f"My answer:\n\n    {RIGHT}", "it is a markdown cell"),
    "raw": ("raw", RIGHT, "it is a raw cell"),
    "commented out": ("code", COMMENTED, "is commented out"),
    "commented out twice": ("code", COMMENTED.replace("# ", "    ## "), "is commented out"),
    "a method": ("code", "class Mine:\n    def scale_up(self, x, n): return x", "inside the class `Mine`"),
    "in a function": ("code", "def all():\n    def scale_up(x, n): return x", "inside the function `all`"),
    "in a string": ("code", f'"""\n{RIGHT}\n"""', "inside a string"),
    "from a file": ("code", "!ls\nfrom my import scale_up", "imports `scale_up` from `my` instead"),
    "from a package": ("code", "from torch.x import y as scale_up", "imports `scale_up` from `torch.x` instead"),
    "in capitals": ("code", "def Scale_Up(x, n): return x", "defines `Scale_Up`, but the exercise is called"),
    "without underscores": ("code", "def scaleup(x, n): return x", "defines `scaleup`, but the exercise is called"),
}


@pytest.mark.parametrize(("kind", "text", "says"), FOUND.values(), ids=FOUND)
def test_the_place_and_the_reason_are_said(kind, text, says):
    found = overlooked(
        "scale_up",
        [SubmittedCell("code", "import torch"), SubmittedCell(kind, text), SubmittedCell("markdown", "scale_up")],
    )
    assert found.problem.startswith("cell 2 of the notebook ") and says in found.problem and found.body == text
    assert overlooked("scale_up", [SubmittedCell(kind, text)], given=[text]) is None, (
        "a lesson's own cell is no attempt"
    )


@pytest.mark.parametrize("text", [
    "scale_up(3, 4)", "# scale_up is hard", "from tinylm_lib import scale_up", "x = 'scale_up('",
    "def scale_up_2(x): x", "class ScaleUp: pass", "scale_up = 3",
])  # fmt: skip
def test_what_only_uses_the_name_is_no_attempt(text):
    assert overlooked("scale_up", [SubmittedCell("code", text), SubmittedCell("markdown", "`scale_up`")]) is None


def test_a_definition_comes_before_its_import():
    cells = [SubmittedCell("code", f"%%writefile my.py\n{RIGHT}"), SubmittedCell("code", "from my import scale_up")]
    assert "%%writefile" in overlooked("scale_up", cells).problem
