"""Lesson 19: six runs with seeds of their own, one of them healthy."""

from tinylm_classroom import ill_runs
from tinylm_classroom.clinic.parts import HEALTHY


def test_one_of_six_runs_has_no_fault_and_each_has_a_seed_of_its_own():
    six = ill_runs.six(3)
    assert [*six] == [*"ABCDEF"] and [who.seed for who, _ in six.values()] == [3, 4, 5, 6, 7, 8]
    assert [letter for letter, (who, _) in six.items() if not who._faults] == ["C"]
    assert all(who.name == name for letter, (who, name) in six.items() if letter != "C")
    assert [*HEALTHY] == ill_runs.PARTS
    healthy = six["C"][0]
    assert healthy.number("matrices that change") == healthy.healthy_number("matrices that change") >= 8
