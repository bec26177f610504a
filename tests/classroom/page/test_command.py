"""The command `page`, as a user runs it."""

from pathlib import Path

import pytest

from tinylm_lib.__main__ import main


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """A function that runs the command in an empty folder, and returns its status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(["page", *arguments])
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return run


def test_a_shipped_model_becomes_a_page(run):
    status, said, wrong = run("storyworld", "--title", "A & B", "--beginning", "One", "--trained-on", "many a story")
    assert (status, wrong) == (0, "")
    assert said.startswith("my_model.html (1.") and said.endswith(" MB); open it in a browser\n")
    page = Path("my_model.html").read_text("utf-8")
    assert "<title>A &amp; B</title>" in page and '"beginnings": ["One"' in page
    assert "<dt>Trained on</dt><dd>many a story</dd>" in page


def test_the_file_can_be_chosen(run):
    assert run("storyworld", "--to", "other.html")[0] == 0
    assert [path.name for path in Path().iterdir()] == ["other.html"]


@pytest.mark.parametrize("arguments", [
    (("nothing",), "tinylm: 'nothing' is not a model"),
    (("storyworld", "--to", "no/x.html"), "tinylm: the folder no does not exist; create it, or choose another path"),
    (("storyworld", "--beginning", "xyz"), "tinylm: beginning 'xyz' cannot be read; choose another one"),
    (("storyworld", "--title", ""), "tinylm: title must be a text of at least one letter, got ''"),
    ((), "the following arguments are required: SOURCE"),
    (("storyworld", "--tilte", "x"), "unrecognized arguments: --tilte x"),
])  # fmt: skip
def test_a_mistake_is_one_line_and_nothing_is_written(arguments, run):
    status, said, wrong = run(*arguments[0])
    assert (status, said) == (2, "")
    assert arguments[1] in wrong.splitlines()[-1]
    assert not [*Path().iterdir()]


def test_help_names_the_flags(run):
    status, said, _ = run("--help")
    assert status == 0 and all(flag in said for flag in ("SOURCE", "--to", "--title", "--beginning", "--trained-on"))
