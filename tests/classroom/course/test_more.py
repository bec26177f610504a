"""What goes further than a lesson: built without a deck, and next to its lesson on site, README and in the lab."""

from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tinylm_classroom.course import build, lab, site
from tinylm_classroom.course.contents import with_tables
from tinylm_classroom.course.grading.notebook import UnreadableError, read_notebook
from tinylm_classroom.course.lesson.more import check_more
from tinylm_classroom.course.lesson.read import read_lesson
from tinylm_classroom.folders import NOTEBOOKS, lessons, more

SERVING = """# %% [markdown]
# # 13 Serving
# **How does one model answer many readers?**
#
# *Needs* lesson 13. *Runs* in about 2 s on two cores.

# %% [markdown]
# ## 1. Many
# Two readers wait.

# %% evidence="many"
readers = 2
assert readers == 2
print(readers)

# %% [markdown]
# ## What you have now
# - Two readers wait. [[many]]
"""
LESSON = """# %% [markdown]
# # 13 Cache
# **What is kept?**
#
# *Needs* nothing. *Builds* nothing. *Runs* in about 2 s on two cores. *Teaches* in about 1 minute.
"""
README = "9 lessons · x.\n\n| lesson | question |\n|---|---|\n\nMore.\n"
MOST = 12


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A folder with a lesson that is not executed, and what goes further than it, built."""
    notebooks = tmp_path_factory.mktemp("course") / "notebooks"
    source = notebooks / "source" / "more" / "13_serving.py"
    source.parent.mkdir(parents=True)
    source.write_text(SERVING)
    (notebooks / "source" / "13_cache.py").write_text(LESSON)
    (notebooks.parent / "README.md").write_text(README)
    lesson = v4.new_notebook(
        cells=[v4.new_markdown_cell(LESSON.partition("# # ")[2].join(["# ", ""]).replace("\n# ", "\n"))]
    )
    nbformat.write(lesson, notebooks / "13_cache.ipynb")
    (said,) = build.build_notebooks(source, notebooks)
    assert said.startswith("notebooks/more/13_serving.ipynb: ")
    return notebooks


def test_it_is_built_once_without_a_deck_and_is_no_lesson(course):
    built = nbformat.read(course / "more" / "13_serving.ipynb", as_version=4)
    assert built.cells[3].outputs[0].text == "2\n" and built.metadata.tinylm.lesson == "more/13_serving"
    assert not any("slideshow" in cell.metadata for cell in built.cells) and not (course / "solutions").exists()
    assert lessons(course) == {"13": "cache"} and more(course) == ["13_serving"]


def test_a_stale_or_left_over_one_is_found_and_its_number_builds_it(course, monkeypatch, capsys):
    source = course / "source" / "more" / "13_serving.py"
    old = [line for line in build.stale(course) if "more/" in line]
    assert old == []
    source.write_text(SERVING.replace("wait", "read"))
    left = course / "more" / "14_gone.ipynb"
    left.write_text("{}")
    assert [line for line in build.stale(course) if "more/" in line] == [
        "notebooks/more/13_serving.ipynb is older than its source; run make notebooks",
        "notebooks/more/14_gone.ipynb has no source; delete it",
    ]
    assert build.main(["--check"], course) == 1 and "13_serving.ipynb is older" in capsys.readouterr().err
    left.unlink()
    source.write_text(SERVING)
    made = []
    monkeypatch.setattr(build, "build_notebooks", lambda source, _: made.append(source.stem) or [])
    assert build.main(["13"], course) == 0 and made == ["13_cache", "13_serving"]


@pytest.mark.parametrize(
    ("there", "here", "says"),
    [
        ('%% evidence="many"', '%% deck="Many" evidence="many"', "11: remove deck: only a lesson has"),
        ("[markdown]\n# ## 1.", '[markdown] tags=["note"]\n# ## 1.', "7: remove note"),
        ("assert readers == 2\n", "", "11: the evidence 'many' must be able to fail"),
        ("*Runs* in about 2 s on two cores.", "", "1: say in the title cell how long the lesson runs"),
        ("# %% [markdown]\n# ## What", "# %%\n1\n\n" * 90 + "# %% [markdown]\n# ## What", "1: leave something out"),
    ],
)  # fmt: skip
def test_what_it_may_not_have_is_refused(tmp_path, there, here, says):
    path = tmp_path / "more" / "13_serving.py"
    path.parent.mkdir()
    path.write_text(SERVING.replace(there, here))
    with pytest.raises(ValueError, match=f"more/13_serving.py:{says}"):
        check_more(read_lesson(path))


def test_readme_and_lab_have_it_next_to_its_lesson(course, tmp_path, monkeypatch, capsys):
    table = with_tables(README, [course / "source" / "13_cache.py"])
    row = "| [13 cache](notebooks/13_cache.ipynb) | What is kept? More: [serving](notebooks/more/13_serving.ipynb) |\n"
    assert row in table and "1 lessons" in table
    monkeypatch.setattr(lab, "NOTEBOOKS", course)
    assert lab.main(["--work", str(tmp_path / "mine"), "--prepare"]) == 0
    assert (tmp_path / "mine" / "more" / "13_serving.ipynb").exists() and capsys.readouterr().out == ""
    assert lab.find_lesson(course, "13") == "13_cache.ipynb"


def test_the_site_has_its_page_and_leads_there_from_the_lesson_and_the_map(course, tmp_path):
    written = [path.name for path in site.export(course, tmp_path)]
    assert written[:2] == ["13_cache.html", "13_serving.html"]
    link = 'More: <a href="13_serving.html">Serving</a></p>'
    pages = {name: (tmp_path / name).read_text() for name in ("13_cache.html", "index.html", "13_serving.html")}
    assert link in pages["13_cache.html"] and link in pages["index.html"]
    assert (
        '<a class="before" href="13_cache.html">' in pages["13_serving.html"]
        and "Two readers wait." in pages["index.html"]
    )
    assert link not in pages["13_serving.html"] and pages["index.html"].count('class="builds"') == 1


def test_nobody_takes_it_for_a_submission(course):
    path = course / "more" / "13_serving.ipynb"
    with pytest.raises(UnreadableError):
        read_notebook(path, path.read_bytes())


def test_there_are_not_too_many():
    names = more(NOTEBOOKS)
    assert len(names) <= MOST and {name[:2] for name in names} <= lessons().keys()
