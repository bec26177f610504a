"""tools/mutations.py: every mutation is somewhere, in any package or tool, and the kept result says what caught it."""

import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutations() -> ModuleType:
    """The tool, which reads all files of the product."""
    import mutations

    return mutations


def test_every_mutation_has_its_one_place_and_tests_to_catch_it(mutations: ModuleType) -> None:
    rows = mutations.read_mutations()
    assert [row for row in rows if not mutations.asked(row)] == []
    named = {row["test"].partition("::")[0] for row in rows} - {""}
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_it_sees_every_package_and_the_tools(mutations: ModuleType) -> None:
    assert {"tinylm_lib", "tinylm_lib.model", "run_tests", "other_blas", "benchmarks.measure"} <= set(mutations.FILES)
    assert len(mutations.FILES) == len(set(mutations.FILES.values()))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {path.relative_to(ROOT).parts[0] for path in mutations.FILES.values()} - {"tools"}


def test_a_row_that_names_a_test_runs_it_though_it_is_slow(mutations: ModuleType) -> None:
    row = next(row for row in mutations.read_mutations() if not row["test"])
    assert {marks for _, marks in mutations.asked(row)} == {mutations.QUICK}
    assert mutations.asked({**row, "test": "tests/test_model.py::test_a"}) == [("tests/test_model.py::test_a", "")]


def test_the_kept_result_is_read_again_without_what_is_another_mutation_now(mutations: ModuleType, tmp_path) -> None:
    rows = mutations.read_mutations()
    results = {row["number"]: {**row, "module": "m", "caught": "tests/test_a.py::test_b"} for row in rows[:3]}
    path = tmp_path / "caught.json"
    mutations.write_results(path, results)
    assert len(path.read_text("utf-8").splitlines()) == 3 + 2, "one line for each"
    found = mutations.read_results(path)
    assert [one["caught"] for one in found.values()] == 3 * ["tests/test_a.py::test_b"]
    assert found[2]["old"] == rows[1]["old"]
    stored = json.loads(path.read_text("utf-8"))
    stored[1]["definition"] = "gone"
    path.write_text(json.dumps(stored), "utf-8")
    assert set(mutations.read_results(path)) == {1, 3}
