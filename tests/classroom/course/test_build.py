"""The build of the notebooks: what the grammar refuses, what the two copies hold, what stale means."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tinylm_classroom.course import build
from tinylm_classroom.course.lesson.read import read_lesson
from tinylm_classroom.course.lesson.rules import check_rules
from tinylm_classroom.course.lesson.transform import to_notebook
from tinylm_classroom.folders import NOTEBOOKS

LESSON = '''# %% [markdown] deck="Half"
# # 05 Halves
# *Needs* nothing. *Runs* in about 2 s on two cores. *Teaches* in about 2 minutes, plus 4 of exercises.

# %% [markdown] deck="One half"
# ## 1. Halving

# %% tags=["source-hidden"]
print("a plain cell")

# %% [markdown] tags=["note"]
# Let the class vote first.

# %% tags=["exercise"] name="half" minutes=4 difficulty=1
def half(x):
    """Half of x."""
    # SOLUTION
    two = 2
    return x / two
    # END

# %% tags=["check"]
try:
    print("solved" if half(3) == 1.5 else "wrong")
except NotImplementedError:
    print("half: not attempted yet")

# %% [markdown] tags=["solution"]
# Dividing by 2 is enough.

# %%
print("a long cell")
'''


def write(folder: Path, text: str = LESSON, name: str = "05_halves.py") -> Path:
    path = folder / "notebooks" / "source" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def notebook(folder: Path, role: str, text: str = LESSON) -> nbformat.NotebookNode:
    return to_notebook(read_lesson(write(folder, text)), role)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A folder with one lesson, built."""
    folder = tmp_path_factory.mktemp("course")
    build.build_notebooks(write(folder), folder / "notebooks")
    return folder


REFUSED = {
    "unknown tag": ('tags=["check"]', 'tags=["chekc"]', "22: unknown tag 'chekc' for a code cell; known tags:"),
    "tag of another kind": ('tags=["note"]', 'tags=["check"]', "11: unknown tag 'check' for a markdown cell"),
    "unknown key": ('deck="One half"', 'slides="x"', "5: unknown 'slides' in the cell header; known"),
    "text in the header": ('# %% tags=["check"]', '# %% here tags=["check"]', "22: unknown 'title' in the cell header"),
    "minutes as text": ("minutes=4", 'minutes="4"', "14: minutes must be of type int, not '4'"),
    "slide of no kind": ('deck="One half"', 'slide="big"', "5: slide must be one of"),
    "raw cell": ('[markdown] tags=["note"]', "[raw]", "11: make it a code or a markdown cell, not raw"),
    "no end": ("    # END\n", "", "14: close each `# SOLUTION` with an `# END`"),
    "end first": ("    # SOLUTION\n", "    # END\n    # SOLUTION\n", "14: close each `# SOLUTION`"),
    "empty solution": ("    two = 2\n    return x / two\n", "", "14: put the solution of the exercise between"),
    "no solution": ("    # SOLUTION\n    two = 2\n    return x / two\n    # END\n", "", "14: put the solution"),
    "solution elsewhere": ('print("a long cell")', "# SOLUTION\nx = 1\n# END", "31: remove `# SOLUTION` and `# END`"),
    "exercise without name": ('name="half" ', "", "14: an exercise needs all three"),
    "exercise without minutes": (" minutes=4", "", "14: an exercise needs all three"),
    "exercise without difficulty": (" difficulty=1", "", "14: an exercise needs all three"),
    "difficulty 6": ("difficulty=1", "difficulty=6", "14: difficulty goes from 1 to 5"),
    "another name": ('name="half"', 'name="third"', "14: define third in the exercise"),
    "name elsewhere": ('tags=["check"]', 'tags=["check"] name="half"', "22: only an exercise has a name"),
    "minutes on code": ('tags=["check"]', 'tags=["check"] minutes=1', "22: minutes belong to an exercise; those"),
    "minutes of a section": ('One half"', 'One half" minutes=5', "5: minutes belong to an exercise; those of a"),
    "essential without end": ('print("a long cell")', "# ESSENTIAL\nx = 1", "31: between `# ESSENTIAL`"),
    "too much is essential": ('print("a long cell")', "# ESSENTIAL\n" + "x = 1\n" * 13 + "# END", "31: betw"),
    "exercise without check": (' tags=["check"]', "", '14: add a cell with tags=["check"]'),
    "check first": ('tags=["source-hidden"]', 'tags=["check"]', "8: put the check after its exercise"),
    "title": ("# # 05 Halves", "# # 5 Halves", "1: begin with a markdown cell whose first line is `# 05 Halves`"),
    "sum of minutes": ("in about 2 m", "in about 6 m", "1: say in the title cell `*Teaches* in about 2 min"),
    "no running time": ("about 2 s", "a moment", "1: say in the title cell how long the lesson runs"),
    "text before the cells": ("# %% [markdown] de", "import os\n# %% [markdown] de", "1: begin with a `# %%` header"),
    "header in a string": ('"a plain cell"', '"""\n# %% no\n"""', "1: begin with a `# %%` header"),
    "long cell": ('print("a long cell")', "x = 1\n" * 26, "31: split the cell: it has 26 lines"),
    "semicolon": ('"a plain cell")', '"a plain cell");', "9: remove the `;`"),
    "semicolon before a comment": ('"a plain cell")', '"a plain cell");  # why', "9: remove the `;`"),
    "magic": ('print("a plain cell")', "%config InlineBackend.figure_format = 'svg'", "9: write plain Python"),
    "clear_output": ('print("a plain cell")', "\nclear_output()", "10: nbval cannot compare clear_output"),
    "display_id": ('print("a plain cell")', "display(x, display_id='x')", "9: nbval cannot compare display updates"),
    "tqdm": ('print("a plain cell")', "from tqdm import tqdm", "9: a bare tqdm prints its speed"),
    "svg": ('print("a plain cell")', "set_matplotlib_formats('png')", "9: an untrusted notebook shows no SVG"),
    "spoiler": ('print("a plain cell")', "show(layers.Half)", "8: show(half) gives an exercise away"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_outside_the_grammar_is_refused_by_file_line_and_fix(tmp_path, old, new, message):
    assert old in LESSON
    with pytest.raises(ValueError, match=re.escape(f"05_halves.py:{message}")):
        check_rules(read_lesson(write(tmp_path, LESSON.replace(old, new, 1))))


@pytest.mark.parametrize("name", ["halves.py", "5_halves.py", "05_Halves.py", "05-halves.py"])
def test_a_file_name_must_fit(tmp_path, name):
    with pytest.raises(ValueError, match=r"rename it to NN_topic\.py"):
        read_lesson(write(tmp_path, name=name))


def test_rules_for_all_cells_and_all_problems_are_reported_at_once(tmp_path):
    long = LESSON.replace('print("a plain cell")', "x = 1\n" * 20).replace('print("a long cell")', "x = 1\n" * 20)
    long = long.replace("    two = 2\n", "    two = 2\n" * 10)
    exercise = LESSON[LESSON.index('# %% tags=["exercise"]') : LESSON.index('# %% [markdown] tags=["solution"]')]
    two = LESSON.replace('"a plain cell")', '"a plain cell");').replace("about 2 s", "a moment")
    twice = f"{LESSON}\n{exercise}".replace("plus 4", "plus 8")
    for text, message in ((long, "the median is 1"), (twice, "'half' is taken"), (two, r"^[^\n]+\n[^\n]+$")):
        with pytest.raises(ValueError, match=message):
            check_rules(read_lesson(write(tmp_path, text)))


def test_a_broken_title_a_semicolon_inside_and_a_source_after_its_exercise_may_stand(tmp_path):
    text = LESSON.replace("*Runs* in about 2 s on two cores. *Teaches* in", "*Runs* in\n# about 2 s. *Teaches* in\n#")
    text = text.replace("\n# about 2 minutes", "\n# about 3 minutes")
    text = text.replace('print("a plain cell")', 'style = "a: b;"\nx = 1; y = """\n;\n"""')
    check_rules(read_lesson(write(tmp_path, text.replace('print("a long cell")', "show(layers.Half)"))))


def test_the_student_gets_a_stub_for_each_block_and_the_solution_copy_everything_without_the_markers(tmp_path):
    student, solution = notebook(tmp_path, "student"), notebook(tmp_path, "solution")
    assert not re.search("x / two|SOLUTION|Dividing|vote", nbformat.writes(student))
    headline = "# Exercise half: difficulty 1 of 5, about 4 minutes\n"
    assert student.cells[3].source == f'{headline}def half(x):\n    """Half of x."""\n    raise NotImplementedError'
    assert solution.cells[5].source.endswith('"""Half of x."""\n    two = 2\n    return x / two')
    assert "Dividing" in nbformat.writes(solution) and "SOLUTION" not in nbformat.writes(solution)
    body = "    # SOLUTION\n    two = 2\n    return x / two\n    # END\n"
    text = LESSON.replace(body, f"    if x:\n        # SOLUTION\n        return x\n        # END\n{body}")
    stub = notebook(tmp_path, "student", text).cells[3].source
    assert stub.endswith("    if x:\n        raise NotImplementedError\n    raise NotImplementedError")


def test_a_cell_has_the_same_id_in_both_copies_and_marks_become_metadata(tmp_path):
    student, solution = (notebook(tmp_path, role).cells for role in ("student", "solution"))
    ids = {cell.id: cell.cell_type for cell in solution}
    assert [cell.id for cell in student] == ["05-000", "05-001", "05-002", "05-004", "05-005", "05-007"]
    assert all(ids[cell.id] == cell.cell_type for cell in student)
    assert student[1].metadata == {"tinylm": {"deck": "One half"}}
    assert student[2].metadata.pop("cellView") == "form"
    assert student[2].metadata == {"tags": ["source-hidden"], "jupyter": {"source_hidden": True}}
    assert student[3].metadata["tinylm"] == {"name": "half", "minutes": 4, "difficulty": 1}
    assert solution[4].metadata == {"tags": ["note"], "slideshow": {"slide_type": "notes"}}


def test_the_answer_to_a_prediction_stands_nowhere_above_its_question(tmp_path):
    question = 'half = 3\npredict(\n    "How many are two halves of \\\\n é?",\n    key=lambda: 2 * half,\n)'
    made = notebook(tmp_path, "student", LESSON.replace('print("a plain cell")', question)).cells[2].source
    assert made.startswith("half = 3\n#") and "key" not in made and "halves" not in made
    asked = {}
    exec(made, {"predict": lambda text, key: asked.update({text: key()})})
    assert asked == {"How many are two halves of \\n é?": 6}
    again = 'print(predict("a", key=len))'  # no question ends the cell
    assert again in notebook(tmp_path, "student", LESSON.replace('print("a plain cell")', again)).cells[2].source


def test_nbgrader_finds_the_answer_and_the_check_that_earns_its_points_in_the_students_copy(tmp_path):
    text = LESSON.replace('print("solved', 'check("half", half)\n    print("solved')
    facts = [cell.metadata.get("nbgrader") for cell in notebook(tmp_path, "student", text).cells]
    kind = {"schema_version": 3, "task": False}
    answer = {**kind, "grade_id": "half", "solution": True, "grade": False, "locked": False}
    graded = {**kind, "grade_id": "check-half", "solution": False, "grade": True, "locked": True, "points": 1}
    assert [fact for fact in facts if fact] == [answer, graded]
    assert "nbgrader" not in nbformat.writes(notebook(tmp_path, "solution", text))
    assert nbformat.writes(notebook(tmp_path, "student")).count("nbgrader") == 1, "a cell without check() never fails"


def test_the_unsolved_copy_runs_to_its_end_and_the_solved_one_passes(course):
    outputs = {}
    for role, path in (("student", "05_halves.ipynb"), ("solution", "solutions/05_halves.ipynb")):
        built = nbformat.read(course / "notebooks" / path, as_version=4)
        nbformat.validate(built)
        outputs[role] = "".join(out.text for cell in built.cells for out in cell.get("outputs", ()))
        assert all(cell.execution_count for cell in built.cells if cell.cell_type == "code")
        assert "execution" not in nbformat.writes(built).replace("execution_count", "")
        assert "version" not in built.metadata.language_info and "widgets" not in built.metadata
    assert "not attempted yet" in outputs["student"] and "a long cell" in outputs["student"]
    assert "solved" in outputs["solution"]


def test_fresh_notebooks_are_neither_stale_nor_built_again_and_an_unknown_number_is_refused(course, capsys):
    assert build.stale(course / "notebooks") == []
    assert build.main([], course / "notebooks") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["limit", "05"] and shown[-1] == "up to date: 05_halves"
    assert build.main(["--check"], course / "notebooks") == 0
    assert build.main(["07"], course / "notebooks") == 1
    assert capsys.readouterr().err == "no lesson 07; there are 05\n"


def test_the_committed_notebooks_are_fresh():
    assert build.stale() == []


def edit(path, old, new):
    path.write_text(path.read_text().replace(old, new))


STALE = [
    ("source/05_halves.py", lambda p: edit(p, "half(3)", "half(3.0)"), "05_halves.ipynb is older than its source"),
    ("05_halves.ipynb", lambda p: edit(p, "## 1. Halving", "## 1. Thirds"), "05_halves.ipynb was edited by hand"),
    ("solutions/05_halves.ipynb", lambda p: edit(p, r"solved\n", "no"), "solutions/05_halves.ipynb was edited by hand"),
    ("05_halves.ipynb", Path.unlink, "05_halves.ipynb is missing"),
    ("05_halves.ipynb", lambda p: p.write_text("{"), "05_halves.ipynb was not made by the build"),
    ("05_halves.ipynb", lambda p: nbformat.write(v4.new_notebook(), p), "05_halves.ipynb was not made by the build"),
    ("06_old.ipynb", lambda p: p.write_text("{}"), "06_old.ipynb has no source; delete it"),
]


@pytest.mark.parametrize(("file", "spoil", "line"), STALE)
def test_check_names_the_stale_notebook_the_reason_and_the_fix(course, tmp_path, capsys, file, spoil, line):
    notebooks = shutil.copytree(course / "notebooks", tmp_path / "notebooks")
    spoil(notebooks / file)
    assert build.main(["--check"], notebooks) == 1
    assert f"notebooks/{line}{'' if 'delete' in line else '; run make notebooks'}\n" in capsys.readouterr().err


def test_with_another_repository_the_links_are_written_anew_and_nothing_runs(course, tmp_path, monkeypatch, capsys):
    notebooks = shutil.copytree(course / "notebooks", tmp_path / "notebooks")
    before = nbformat.read(notebooks / "05_halves.ipynb", as_version=4)
    monkeypatch.setattr("tinylm_classroom.course.lesson.links.REPOSITORY", "anna/course")
    monkeypatch.setattr(build, "execute", None)
    assert [line.partition(" names ")[2] for line in build.stale(notebooks)] == [
        "another repository; run make notebooks"
    ] * 2
    assert build.main([], notebooks) == 0 and build.stale(notebooks) == []
    after = nbformat.read(notebooks / "05_halves.ipynb", as_version=4)
    assert after.cells[2:] == before.cells[2:] and "anna/course" in after.cells[0].source


def test_a_change_of_the_build_makes_all_stale(course, monkeypatch):
    monkeypatch.setattr("tinylm_classroom.course.lesson.write.BUILDER", (Path(__file__),))
    assert [line.partition(" is ")[2] for line in build.stale(course / "notebooks")] == [
        "older than the code of the build; run make notebooks"
    ] * 2


FAILING = {
    "an error": ("1 / 0", "ZeroDivisionError"),
    "a file left behind": ("_ = open('x.txt', 'w').close()", r"leaves \['x.txt'\] in its folder"),
    "a warning": ("import warnings\nwarnings.warn('old')", "a cell writes to stderr"),
    "a bare picture": (
        "from matplotlib import pyplot\n_ = pyplot.plot([1, 2])",
        "nothing compares a bare picture: use figures.display",
    ),
}


@pytest.mark.parametrize(("code", "message"), FAILING.values(), ids=FAILING)
def test_what_cannot_be_compared_later_is_not_built(tmp_path, code, message):
    source = write(tmp_path, LESSON.replace('print("a plain cell")', code))
    with pytest.raises(ValueError, match=message):
        build.build_notebooks(source, tmp_path / "notebooks")


def test_a_cell_that_must_raise_is_built_only_if_it_does(tmp_path):
    text = LESSON.replace('tags=["source-hidden"]', 'tags=["raises-exception"]')
    with pytest.raises(ValueError, match="does not raise any more"):
        build.build_notebooks(write(tmp_path, text), tmp_path / "notebooks")
    source = write(tmp_path, text.replace('print("a plain cell")', "1 / 0"))
    build.build_notebooks(source, tmp_path / "notebooks")
    built = nbformat.read(tmp_path / "notebooks" / "05_halves.ipynb", as_version=4)
    assert built.cells[3].outputs[0].traceback == ["ZeroDivisionError: division by zero"]


def test_a_student_copy_far_over_its_time_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "STUDENT_SECONDS", 0)
    with pytest.raises(ValueError, match="WARNING: over 0 s; make it shorter"):
        build.build_notebooks(write(tmp_path), tmp_path / "notebooks")


FIGURE = """from tinylm_classroom.display.figures import loss_curve
loss_curve({"left": ([0, 1], [8.0, 4.0])}, {"nothing": 0.1}, caption="It falls.")
print({"a", "b"} == {"b", "a"})"""


@pytest.mark.slow
def test_two_builds_give_the_same_bytes(tmp_path):
    built = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        source = write(folder, LESSON.replace('print("a plain cell")', FIGURE))
        build.build_notebooks(source, folder / "notebooks")
        built.append([path.read_bytes() for path in sorted((folder / "notebooks").rglob("*.ipynb"))])
    assert b"data:image/png;base64" in built[0][0]
    assert built[0] == built[1]


def said(path: Path) -> str:
    built = nbformat.read(path, as_version=4)
    outputs = [out for cell in built.cells for out in cell.get("outputs", ())]
    return "\n".join(out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in outputs)


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("source/*.py")), ids=lambda path: path.stem)
def test_unsolved_its_exercises_are_not_attempted_and_solved_they_are_right(path):
    exercises = [cell.meta["name"] for cell in read_lesson(path).cells if "exercise" in cell.tags]
    student, solution = (said(NOTEBOOKS / folder / f"{path.stem}.ipynb") for folder in (".", "solutions"))
    patients = [name.removeprefix("treat_").replace("_", " ") for name in exercises if name.startswith("treat_")]
    others = [name for name in exercises if not name.startswith("treat_")]
    assert re.findall(r"^(\w+): not attempted yet", student, re.M) == others
    assert re.findall(r"^(\w+): right", solution, re.M) == others
    assert re.findall(r"^patient \d+: ([\w ]+): not attempted yet", student.lower(), re.M) == patients
    assert re.findall(r"^patient \d+: ([\w ]+): fix\nit is well", solution.lower(), re.M) == patients
    assert "not attempted yet" not in solution and "not right yet" not in student + solution
