"""The exercises: every fault caught and named, no right variant rejected, mistakes of others counted."""

import importlib
import pkgutil

import catalogue
import pytest
from other_blas import other_blas

from tinylm_classroom import exercises
from tinylm_classroom.checks.calling import observe_one, same
from tinylm_classroom.checks.check import hint
from tinylm_classroom.checks.verdict import diagnose
from tinylm_classroom.folders import lessons

FILES = [importlib.import_module(f"catalogue.{m.name}") for m in pkgutil.iter_modules(catalogue.__path__)]
RIGHT, WRONG, LIBRARY, SAME = (
    {key: value for file in FILES for key, value in getattr(file, table, {}).items()}
    for table in ("RIGHT", "WRONG", "LIBRARY", "SAME")
)
# Mistakes that the check catches and has no name for.
UNNAMED = {
    "causal_mask-mask_band", "attention-attention_global_max", "attention-cosine", "attention-by_heads",
    "attention-hard", "linear-only_one_row", "linear-numpy", "linear-abs", "embedding-one_short",
    "tied_logits-with_a_bias", "rotate-added",
    "top_p_probs-topp_gathered_back", "beam_search-beam_never_pruned_together",
    "patch-patch_features",
    "lora_linear-lora_viewed_not_turned",
}  # fmt: skip


def faulty(name: str, *faults: str):
    reference = exercises.find_exercise(name).reference
    return lambda *arguments: reference(*arguments, on=frozenset(faults))


@pytest.fixture(autouse=True)
def few_threads(one_thread):
    """The probes are tiny."""


@pytest.mark.parametrize("name", exercises.names())
def test_an_exercise_is_whole(name):
    exercise = exercises.find_exercise(name)
    assert len(exercise.faults) >= 3, "name at least 3 mistakes in its .toml"
    assert len(RIGHT.get(name, ())) >= 3, "give at least 3 right variants in RIGHT of its file in tests/catalogue"
    assert 2 <= len(exercise.hints) <= 5, "give 2 to 5 hints"
    assert exercise.lesson in lessons()
    assert all(len(text) > 10 for fault in exercise.faults.values() for text in fault)
    assert diagnose(name, faulty(name)).passed
    outcomes = [observe_one(exercise.reference, probe) for probe in exercise.probes]
    raised = [outcome.value for outcome in outcomes if outcome.error]
    assert {value.kind for value in raised} <= {"IndexError"}, raised  # what embedding refuses


@pytest.mark.parametrize("name", exercises.names())
def test_faults_are_named_right_variants_pass_and_other_mistakes_are_described(name, record):
    """One item an exercise: what fails is a table of all verdicts that are not as they should be."""
    bad = []
    for fault in exercises.find_exercise(name).faults:
        found = diagnose(name, faulty(name, fault))
        named = found.mistake in {fault, *SAME.get((name, fault), ())}
        record(name, "faults", caught=not found.passed, named=named)
        if found.passed or not named:
            bad.append(("fault", fault, found))
    for key, variant in RIGHT[name].items():
        found = diagnose(name, variant)
        record(name, "variants", passed=found.passed)
        if not found.passed:
            bad.append(("right", key, found))
    for key, mistake in WRONG.get(name, {}).items():
        found = diagnose(name, mistake)
        record(name, "unknown", caught=not found.passed, named=found.mistake is not None)
        if found.passed or len(found.message) <= 30:
            bad.append(("mistake", key, found))
        elif (found.mistake is None) != (f"{name}-{key}" in UNNAMED):
            fix = "take it out of UNNAMED" if found.mistake else "name it, or put it into UNNAMED"
            bad.append((f"{fix}: mistake", key, found))
    assert not bad, "\n".join(f"{kind} {key!r}: {found}" for kind, key, found in bad)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_right_variant_passes_on_every_processor(seed):
    """The reference rounds as this one does, the variant as another one."""
    assert all(diagnose(name, faulty(name)).passed for name in RIGHT)  # from here on the reference's results are kept
    with other_blas(seed):
        found = {(name, key): diagnose(name, f) for name, fs in RIGHT.items() for key, f in fs.items()}
    assert {which: d.message for which, d in found.items() if not d.passed} == {}


def test_a_fault_that_explains_most_of_what_is_wrong_is_named():
    found = diagnose("attention", WRONG["attention"]["softmax_queries"])
    assert found.mistake == "over queries" and "but it does not explain everything" in found.message
    assert "It looks like" not in found.message


@pytest.mark.parametrize(("variant", "mistake"), [
    ("greedy_new_joined", "new ones only"), ("greedy_new_stacked", "new ones only"),
    ("greedy_new_as_numbers", "new ones only"), ("greedy_last_n", "new ones only"),
    ("greedy_next_alone", "last one only"), ("greedy_new_flat", "new ones only + one axis"),
])  # fmt: skip
def test_a_mistake_keeps_its_name_where_an_edge_case_alone_is_different(variant, mistake):
    assert diagnose("continue_greedily", WRONG["continue_greedily"][variant]).mistake == mistake


@pytest.mark.parametrize("name", LIBRARY)
def test_the_reference_is_the_library_s(name):
    exercise = exercises.find_exercise(name)
    for probe in exercise.probes:
        mine, theirs = (observe_one(f, probe).value for f in (exercise.reference, LIBRARY[name]))
        assert same(mine, theirs, probe.tolerance), probe.holds


@pytest.mark.parametrize("name", exercises.names())
def test_hints_unfold_one_by_one_and_hold_no_code_of_the_answer(name):
    card, hints = hint(name), exercises.find_exercise(name).hints
    assert card.html.count("<details>") == len(hints) and "return " not in " ".join(hints)
