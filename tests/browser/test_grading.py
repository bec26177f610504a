"""The grader's pages in a browser: nothing is lost in a narrow window, axe finds no barrier, and nothing is loaded."""

import pytest
from support.browser import assert_fits, findings

from tinylm_classroom.course.grading.marks import VERDICTS, Mark
from tinylm_classroom.course.grading.pages import Pages
from tinylm_classroom.course.grading.report import write_report
from tinylm_classroom.course.grading.sections import find_sections
from tinylm_classroom.course.grading.similar import Alike

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EXERCISES = {"05": ["causal_mask", "attention"], "11": ["next_token_pairs", "random_windows", "adamw_step"]}
LONG = "a_student_whose_name_is_long_and_has_no_blank_in_it_" + "x" * 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A report about students with every verdict, an unreadable notebook, no notebook, and an attempt to delete."""
    marks = [
        Mark(
            who, lesson, exercise, verdict, "unscaled" * (verdict == "mistake"), f"`{exercise}({'1, ' * 60})` is said."
        )
        for n, who in enumerate(("ann", "bob", "<img src=x onerror=alert(1)>", LONG))
        for lesson, names in EXERCISES.items()
        for exercise, verdict in zip(names, (VERDICTS * 2)[n:], strict=False)
    ]
    marks += [
        Mark("dora", "05", name, "could not be run", "", "dora_05_attention.ipynb: it is empty")
        for name in EXERCISES["05"]
    ]
    marks.append(Mark("hans", "", "", "could not be run", "", "no notebook: found report.pdf"))
    marks.append(Mark("emil", "05", "attention", "right", "", "It is.", f"tried to delete `/{'home/' * 30}`"))
    texts = {(who, "attention"): "def attention(q, k, v, mask=None):\n    return q" for who in ("ann", LONG)}
    pages = Pages(marks, find_sections(), [Alike(("ann", LONG), {"attention": 5})], texts, "https://example.org/site")
    return write_report(tmp_path_factory.mktemp("report"), pages).parent


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1280])
def test_the_pages_fit_and_have_no_barrier(folder, open_exported, width, scheme):
    for path in [folder / "class.html", *(folder / "students").iterdir()]:
        page = open_exported(path.as_uri(), viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.locator("details").evaluate_all("parts => parts.forEach(part => { part.open = true })")
        assert findings(page) == []
        assert_fits(page, "h1, h2, h3, .mark, .bar")
        assert page.locator("img, script").count() == 0
