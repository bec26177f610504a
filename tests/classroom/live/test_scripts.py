"""The scripts of a live model as one text: inline, without imports, and every name meant once."""

import re

import pytest

from tinylm_classroom.live import scripts
from tinylm_classroom.live.scripts import LEARNING_SCRIPTS, LIVE_SCRIPTS, engine_script, learning_script

TOP_LEVEL = r"^(?:async )?(?:const|let|var|function\*?|class) (\w+)"


def names(text: str) -> list[str]:
    """What a script declares outside of all functions."""
    return re.findall(TOP_LEVEL, text, re.M)


def texts() -> dict[str, str]:
    folder = scripts.Path(scripts.__file__).parent
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.js")}


def test_every_script_is_joined_and_offers_only_what_it_declares():
    assert {*LIVE_SCRIPTS, *LEARNING_SCRIPTS} == {*texts()}
    for name, offered in [*LIVE_SCRIPTS.items(), *LEARNING_SCRIPTS.items()]:
        assert {*offered} <= {*names(texts()[name])}


def test_no_name_is_declared_twice():
    found = [name for text in texts().values() for name in names(text)]
    assert len(found) == len(set(found)) > 10, sorted(name for name in found if found.count(name) > 1)


@pytest.mark.parametrize("name", sorted({*LIVE_SCRIPTS, *LEARNING_SCRIPTS}))
def test_a_script_imports_nothing_fetches_nothing_and_writes_no_html(name):
    forbidden = r"^\s*(import|export)\b|\bimport\(|https?:|</script|<!--|fetch\(|XMLHttp|innerHTML|\beval\(|document\."
    assert not re.search(forbidden, texts()[name], re.M)
    assert re.search(forbidden, "x.innerHTML = y") and re.search(forbidden, "export { x }")


def test_all_is_one_small_function_that_a_worker_can_be_made_of():
    text = engine_script()
    assert text.startswith("function engine() {\n") and len(text.encode()) < 60_000
    assert all(texts()[name] in text for name in LIVE_SCRIPTS)
    assert text.endswith("}\nglobalThis.tinylm = engine();\n")


def test_what_learns_is_a_function_of_its_own_and_the_learner_has_at_most_450_lines():
    text = learning_script()
    assert text.startswith("function learning() {\n") and len(text.encode()) < 60_000
    assert all(texts()[name] in text for name in LEARNING_SCRIPTS)
    assert text.endswith("}\nglobalThis.tinylmLearning = learning();\n")
    assert len(texts()["learner"].splitlines()) <= 450
