"""tools/seeds.py: what it shifts and what it leaves, and which conclusions fall in small lessons."""

from pathlib import Path

import pytest
import seeds

SHIFTED = [
    ("SEED = 5", "SEED = 7"),
    ("SEED = 5  # try 6 and 7", "SEED = 7  # try 6 and 7"),
    ("SEEDS = range(3)\nx = 1", "SEEDS = range(2, 5)\nx = 1"),
    ("SEEDS = range(4, 9)", "SEEDS = range(6, 11)"),
    ("é = 'é'\nSEEDS = (1, 2,\n    30)  # é", "é = 'é'\nSEEDS = (3, 4,\n    32)  # é"),
    ("await x\nSEED = -1\nSEED = 0", "await x\nSEED = -1\nSEED = 2"),  # no seed is below 0
]
KEPT = [
    "torch.manual_seed(5)", "g = torch.Generator().manual_seed(SEED)", "def f():\n    SEED = 5", "f(SEED=5)",
    "if x:\n    SEED = 5", "SEED = SEED + 1", "SEED = len(x)", "SEED = '5'", "SEEDS = [1, 2]", "SEEDS = range(n)",
    "MY_SEED = 5", "SEEDS = other(3)", "SEED == 5", "# SEED = 5", "x = '''\nSEED = 5\n'''", "%%time\nSEED = 5",
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [*SHIFTED, *((text, text) for text in KEPT)])
def test_exactly_the_seeds_of_the_experiments_are_shifted(before: str, after: str) -> None:
    assert seeds.shifted(before, 2) == after


def test_each_assertion_is_a_piece_of_its_own_and_no_line_is_lost() -> None:
    source = "x = 1\nassert x\nassert (\n    x\n)\n\nfor y in x:\n    assert y\nz = 2\nassert z"
    pieces = seeds.apart(source)
    assert pieces == ["x = 1", "assert x", "assert (\n    x\n)", "\nfor y in x:\n    assert y\nz = 2", "assert z"]
    assert "\n".join(pieces) == source and seeds.apart("%%time\nassert x") == ["%%time\nassert x"]


TITLE = "# %% [markdown]\n# # 98 Small\n\n# %%\nimport torch\n"
THIRD = (
    TITLE
    + """
# %%
story = torch.Generator().manual_seed(5)
quoted = torch.randint(1000, (1,), generator=story).item()
_ = torch.manual_seed(5)
also_quoted = torch.randint(1000, (1,)).item()

# %% [markdown]
# ## 1. A conclusion of one seed

# %%
SEED = 5
SEEDS = (5, 6, 7)

# %% evidence="lucky" tried="seeds"
assert quoted == 529 or quoted >= 0
assert SEED == 5
assert SEEDS[0] == 5, "a\\nb"
made = 1
assert list(SEEDS) == [SEED, SEED + 1, SEED + 2]

# %%
assert SEED < 7
table = {}
table["kept"] = 1 / (SEED < 7)

# %%
later = 2 * table["kept"]

# %%
def twice():
    return later

assert twice()

# %%
if SEED == 7:
    raise ValueError(f"{len(table)} led to 3, expected 2")

# %%
never_made

# %% [markdown]
# ## 2. One that holds

# %% tags=["exercise"] name="answer" minutes=2 difficulty=1
def answer(seed):
    # SOLUTION
    return torch.rand(3, generator=torch.Generator().manual_seed(seed))
    # END

# %%
means = [answer(SEED).mean() for SEED in range(SEED, SEED + 3)]
assert all(0 < mean < 1 for mean in means) and made == 1

# %% tags=["raises-exception"]
assert not made

# %%
torch.save(quoted, "quoted")
assert (quoted, also_quoted) == QUOTED
"""
)


def lesson_of(folder: Path, text: str, name: str = "98_small") -> seeds.Lesson:
    path = folder / f"{name}.py"
    path.write_text(text, "utf-8")
    return seeds.read_lesson(path)


def quoted_by_torch() -> tuple[int, int]:
    import torch

    return tuple(torch.randint(1000, (1,), generator=torch.Generator().manual_seed(5)).item() for _ in range(2))


def test_what_falls_is_listed_once_and_what_holds_or_is_quoted_is_not(tmp_path: Path) -> None:
    lesson = lesson_of(tmp_path, THIRD.replace("QUOTED", repr(quoted_by_torch())))
    falls = seeds.Falls()
    for shift in (0, 1, 2):
        for fall, error in seeds.fallen(lesson, shift):
            falls.add(fall, shift, error)
    found = {(fall.section, fall.where, fall.statement): by_shift for fall, by_shift in falls.errors.items()}
    section = "1. A conclusion of one seed"
    line = 1 + THIRD.split("\n").index("assert SEED < 7") - 1
    assert found == {
        (section, "lucky", "assert SEED == 5"): dict.fromkeys((1, 2), "AssertionError"),
        (section, "lucky", 'assert SEEDS[0] == 5, "a\\nb"'): dict.fromkeys((1, 2), "AssertionError: a"),
        (section, f"line {line}", "assert SEED < 7"): {2: "AssertionError"},
        (section, f"line {line}", 'table["kept"] = 1 / (SEED < 7)'): {2: "ZeroDivisionError: division by zero"},
        (section, f"line {line + 14}", RAISES): {2: "ValueError: 0 led to 3, expected 2"},
        (section, f"line {line + 18}", "never_made"): dict.fromkeys(
            (0, 1, 2), "NameError: name 'never_made' is not defined"
        ),
    }


RAISES = 'raise ValueError(f"{len(table)} led to 3, expected 2")'


def test_the_command_writes_a_table_and_its_status_says_whether_something_fell(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "source").mkdir()
    monkeypatch.setattr(seeds, "NOTEBOOKS", tmp_path)
    text = TITLE + "\n# %%\nSEED = 3\nassert SEED | 4 < 6\n"
    lesson_of(tmp_path / "source", text)
    lesson_of(tmp_path / "source", TITLE, "97_other")
    monkeypatch.setattr(seeds, "_run", fake_run)
    to = tmp_path / "table.md"
    assert seeds.main(["--shifts", "4", "1", "--to", str(to)]) == 1
    shown = capsys.readouterr()
    assert shown.out == to.read_text("utf-8")
    assert shown.out.splitlines()[2:] == [r"| 98_small |  | line 7 | AssertionError: `assert SEED \| 4 < 6` | 4 |"]
    assert shown.err.splitlines() == ["98_small shift 4: 1 fell", "98_small shift 1: holds"]
    assert seeds.main(["98", "--shifts", "1"]) == 0 and capsys.readouterr().out == "all holds: 98_small\n"
    with pytest.raises(SystemExit, match="2"):
        seeds.main(["96"])
    assert "no lesson 96; there are 97, 98" in capsys.readouterr().err


def fake_run(notebook) -> str:
    """Executes the cells here."""
    names: dict = {}
    for cell in notebook.cells:
        try:
            exec(cell.source, names)
        except Exception as error:
            raised = {"output_type": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": []}
            cell.outputs = [seeds.NotebookNode(raised)]
    return ""


def test_a_kernel_that_dies_is_said(tmp_path: Path) -> None:
    text = TITLE + "\n# %%\nimport os\n\nSEED = 5\nos._exit(SEED)\n"
    ((fall, error),) = seeds.fallen(lesson_of(tmp_path, text), 1)
    assert (fall.lesson, fall.where) == ("98_small", "") and "Kernel died" in error
