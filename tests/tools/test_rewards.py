"""The tool of lesson 17: what it writes can be read back, and one part leaves the others as they are."""

import sys
from pathlib import Path
from typing import Any

import pytest
import rewards
from entries import value

from tinylm_classroom.experiments import judging

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_the_file_has_what_the_tool_measures() -> None:
    data = tomllib.loads(rewards.DATA.read_text("utf-8"))
    assert list(data) == list(rewards.PARTS)
    found = judging.recorded_rewards()
    wanted = {(added, baseline, beta, n): len(seeds) for added, baseline, beta, n, seeds in rewards.SETTINGS}
    assert {setting: len(runs) for setting, runs in found.runs.items()} == wanted
    assert {anchor: len(runs) for anchor, runs in found.pairs.items()} == dict.fromkeys(rewards.ANCHORS, 3)
    steps = {tuple(look.step for look in looks) for runs in found.pairs.values() for looks in runs}
    assert steps == {judging.PAIR_LOOKS}
    portraits = [found.start, *(portrait for runs in found.runs.values() for _, portrait in runs)]
    assert {sum(each.n for each in portrait.kinds.values()) for portrait in portraits} == {768}


def test_one_part_is_made_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, value: Any):
        return lambda: iter([{"seed": 0, "name": name, "value": value}])

    file = tmp_path / "found.toml"
    monkeypatch.setattr(rewards, "PARTS", {"start": made("a", [[1, 2], [3, 4]]), "runs": made("b", 1 / 3)})
    monkeypatch.setattr(sys, "argv", ["rewards.py", "--to", str(file)])
    rewards.main()
    monkeypatch.setattr(rewards, "PARTS", {"start": made("c", 0.0), "runs": made("d", True)})
    monkeypatch.setattr(sys, "argv", ["rewards.py", "--only", "runs", "--to", str(file)])
    rewards.main()
    data = tomllib.loads(file.read_text("utf-8"))
    assert data["start"] == [{"seed": 0, "name": "a", "value": [[1, 2], [3, 4]]}]
    assert data["runs"] == [{"seed": 0, "name": "d", "value": True}]


def test_a_number_is_written_with_five_digits() -> None:
    assert value([0.123456, 2.0, 3, True], rewards._number) == "[0.12346, 2.0, 3, true]"
