"""What earlier runs have found counts for the same submission, course and limits, and for nothing else."""

import pytest

from tinylm_classroom.course.grading import results as file
from tinylm_classroom.course.grading.launch import Limits
from tinylm_classroom.course.grading.marks import Mark
from tinylm_classroom.course.grading.results import Results, digest_of_grader
from tinylm_classroom.course.grading.submissions import Submission

ANN = Submission("ann", "05", digest="1")
MARKS = [Mark("ann", "05", "attention", "mistake", "unscaled", "It looks so.")]


@pytest.fixture
def path(tmp_path):
    """A file with the marks of one submission."""
    path = tmp_path / "new" / "results.jsonl"
    Results(path, Limits()).add(ANN, MARKS)
    return path


def test_marks_are_kept_and_lines_are_added(path):
    bob = Submission("bob", "05", digest="1")
    Results(path, Limits()).add(bob, [])
    found = Results(path, Limits())
    assert found.of(ANN) == MARKS and found.of(bob) == [] and path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("other", [
    Submission("bob", "05", digest="1"), Submission("ann", "06", digest="1"), Submission("ann", "05", digest="2"),
])  # fmt: skip
def test_another_submission_has_none(path, other):
    assert Results(path, Limits()).of(other) is None


def test_other_limits_or_another_course_have_none(path, monkeypatch):
    assert Results(path, Limits(seconds=99)).of(ANN) is None
    monkeypatch.setattr(file, "digest_of_grader", lambda library: "newer")
    assert Results(path, Limits()).of(ANN) is None


def test_the_digest_is_of_all_code_and_of_the_version_of_pytorch(tmp_path, monkeypatch):
    def digest() -> str:
        digest_of_grader.cache_clear()
        return digest_of_grader((tmp_path,))

    (tmp_path / "checks").mkdir()
    seen = {digest()}
    for text in ("TOLERANCE = 1", "TOLERANCE = 2"):
        (tmp_path / "checks" / "check.py").write_text(text)
        seen.add(digest())
    assert len(seen) == 3 and digest() in seen
    monkeypatch.setattr(file.torch, "__version__", "99")
    assert digest() not in seen
    digest_of_grader.cache_clear()


def test_the_checks_and_the_library_they_compare_with_are_in_the_digest():
    names = {path.relative_to(package).as_posix() for package in file.CODE for path in package.rglob("*.py")}
    assert names >= {"layers.py", "checks/verdict.py", "exercises/attention.py"}


@pytest.mark.parametrize("line", [b"{", b"[]\n", b'{"key": "x"}\n', b'{"key": "x", "marks": [{"no": 1}]}\n'])
def test_a_line_that_is_not_whole_is_not_there(path, line):
    whole = path.read_bytes()
    path.write_bytes(whole + line)
    assert list(Results(path).marks) == list(Results(path).marks)[:1]
    Results(path, Limits()).add(Submission("bob", "05"), [])
    assert len(Results(path).marks) == 2
