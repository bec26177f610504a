"""The pages say each mark with its section, run nothing that a student wrote, and load nothing."""

import re

import pytest

from tinylm_classroom.course.grading.marks import VERDICTS, Mark
from tinylm_classroom.course.grading.pages import LOOKS, Pages, headline
from tinylm_classroom.course.grading.sections import Section
from tinylm_classroom.course.grading.similar import Alike

EVIL = "<script>alert(1)</script>\"'&"
SECTION = Section("05 Attention", "4. No looking ahead", "05_attention.html#part-5")


def mark(
    student: str, verdict: str = "mistake", mistake: str = "unscaled", says: str = "It looks `so`. There."
) -> Mark:
    return Mark(student, "05", "attention", verdict, mistake if verdict == "mistake" else "", says)


def pages(*marks: Mark, **more) -> Pages:
    return Pages(marks, {("05", "attention"): SECTION}, **more)


def test_every_verdict_has_a_look():
    assert tuple(LOOKS) == VERDICTS


def test_a_student_reads_the_mistake_what_the_check_says_and_where_the_lesson_answers():
    shown = pages(mark("ann"), mark("bob", "right", says="attention: right. It holds.")).of_student("ann")
    assert re.search("✗ It looks <code[^>]*>so</code>.</span></h3><p>There.</p>", shown) and "unscaled" not in shown
    assert "05 Attention, section 4. No looking ahead" in shown
    assert "bob" not in shown and "1 wrong" in shown and "<a href" not in shown
    linked = pages(mark("ann"), site="https://x.org/a/").of_student("ann")
    assert '<a href="https://x.org/a/05_attention.html#part-5">05 Attention, section 4. No looking ahead</a>' in linked
    right = pages(mark("bob", "right", says="attention: right. It holds.")).of_student("bob")
    assert "<p>It holds.</p>" in right and "section" not in right


def test_the_class_page_counts_and_names_the_commonest_mistakes_first():
    marks = [
        mark("ann"),
        mark("bob"),
        mark("cem", mistake="causal"),
        mark("dan", "not attempted"),
        mark("eve", "right"),
    ]
    marks += [
        mark("fay", mistake="raises an error", says="raises A"),
        mark("gil", mistake="raises an error", says="raises B"),
    ]
    shown = pages(*marks).of_class()
    assert re.search(r"</code>.</span><code>attention</code><span class=\"n\">2 students", shown)
    assert shown.index("2 students") < shown.index("1 mistake made by one student each") < shown.rindex("✗ It looks")
    assert "raises A" in shown and "raises B" in shown, "what the catalogue does not explain is quoted for each"
    assert "✗ The function raises an error." in shown, "a headline for both"
    row = re.search(r"<tr><td>05</td><td><code>attention</code></td><td>.*?</td>(.*?)</tr>", shown)[1]
    assert re.findall(r"<td>(\d*)</td>", row) == ["1", "5", "1", ""]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_what_a_student_wrote_is_text(verdict):
    evil = Mark(EVIL, "05", "attention", verdict, EVIL if verdict == "mistake" else "", f"{EVIL} `{EVIL}`")
    other = Mark("ann", "05", "attention", verdict, evil.mistake, evil.says)
    group = Alike((EVIL, "ann"), {"attention": 9})
    made = pages(evil, other, groups=[group], texts={(EVIL, "attention"): EVIL, ("ann", "attention"): "</pre>" + EVIL})
    for shown in (made.of_student(EVIL), made.of_class()):
        assert "<script" not in shown and "</pre>&lt;" not in shown and "&lt;script&gt;" in shown
        assert not re.search(r"(?:src|href)=[\"'](?!data:,|students/)", shown), "a page loads nothing"


def test_one_text_is_listed_side_by_side():
    texts = {("ann", "attention"): "def attention(q): ...", ("bob", "attention"): "def attention(x): ..."}
    shown = pages(mark("ann"), mark("bob"), groups=[Alike(("ann", "bob"), {"attention": 5})], texts=texts).of_class()
    assert "<code>attention</code> (5 lines)" in shown and all(f"<pre>{text}</pre>" in shown for text in texts.values())
    assert "There are none." in pages(mark("ann")).of_class()


def test_pages_of_nothing_known_are_pages_too():
    stopped = Mark("ann", "", "", "could not be run", "", "a.ipynb: it is empty")
    for shown in (Pages([stopped]).of_student("ann"), Pages([stopped]).of_class()):
        assert "a.ipynb: it is empty" in shown


@pytest.mark.parametrize(("says", "expected"), [
    ("It looks so. And why.", ("It looks so.", "And why.")), ("It is 0.5 of it. `A`", ("It is 0.5 of it.", "`A`")),
    ("`f(x. Y)` is 1! No", ("`f(x. Y)` is 1!", "No")), ("Only this.", ("Only this.", "")),
    ("x" * 150 + ". No", ("The result is not right.", "x" * 150 + ". No")),
    ("none", ("The result is not right.", "none")),
])  # fmt: skip
def test_a_headline_is_the_first_sentence(says, expected):
    assert headline(mark("ann", "not right", says=says)) == expected


def test_a_student_finds_the_code_that_was_graded():
    shown = pages(mark("ann"), texts={("ann", "attention"): "def attention(): <b>"}).of_student("ann")
    assert "<details open><summary>Your code</summary><pre>def attention(): &lt;b&gt;</pre>" in shown
    assert "Your code" not in pages(mark("bob"), texts={("ann", "attention"): "x"}).of_student("bob")


def test_what_was_handed_in_and_could_not_be_read_is_not_an_empty_cell():
    broken = [Mark("dora", "05", name, "could not be run", "", "it is empty") for name in ("causal_mask", "attention")]
    nothing = Mark("hans", "", "", "could not be run", "", "no notebook: the folder is empty")
    unknown = Mark("ida", "", "", "could not be run", "", "x.ipynb: it is empty")
    ida = Mark("ida", "05", "attention", "right")
    shown = pages(*broken, nothing, unknown, ida).of_class()
    rows = {row.count("stop"): row for row in re.findall(r'<tr><th scope="row">.*?</tr>', shown)}
    assert "dora" in rows[2] and "ida" in rows[1] and rows[0].count("<td") == 2
    assert 'colspan="2">no notebook: the folder is empty</td><td>0</td>' in rows[0]
    assert '<th scope="col"></th>' not in shown
    student = pages(*broken).of_student("dora")
    assert student.count("It is empty.") == 1 and "causal_mask</code> <code>attention" in student


def test_an_attempt_to_touch_files_is_marked_for_the_teacher_alone():
    touching = Mark("emil", "05", "attention", "right", "", "attention: right. Yes.", "tried to delete `/home`")
    made = pages(touching, mark("ann"))
    assert "⚑" in made.of_class() and "tried to delete <code" in made.of_class()
    assert "tried to" not in made.of_student("emil") and "⚑" not in pages(mark("ann")).of_class()
