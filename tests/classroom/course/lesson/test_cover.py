"""What answers a prediction: the next code, directly after it or after one text, and nothing else."""

from nbformat import NotebookNode, v4

from tinylm_classroom.course.lesson.cover import cover, is_covered
from tinylm_classroom.views.predict import predict


def question() -> NotebookNode:
    said = {"number": "of it", "because": "It is.", "feedback": {1: "No."}}
    bundle = predict("Half of 4?", key=lambda: 2, within=0, **said)._repr_mimebundle_()[0]
    return v4.new_code_cell("ask()", outputs=[v4.new_output("display_data", bundle)])


def code(printed: str = "2", **metadata) -> NotebookNode:
    outputs = [v4.new_output("stream", name="stdout", text=printed)] if printed else []
    return v4.new_code_cell("print(2)", outputs=outputs, metadata=metadata)


def covered(*cells: NotebookNode) -> list[bool]:
    """Of each cell whether it is covered."""
    notebook = v4.new_notebook(cells=list(cells))
    cover(notebook)
    return [is_covered(cell) for cell in notebook.cells]


def test_the_next_code_is_covered_also_after_one_text():
    assert covered(code(), question(), code(), code()) == [False, False, True, False]
    assert covered(question(), v4.new_markdown_cell("Look."), code(), code()) == [False, False, True, False]


def test_a_folded_cell_stays_folded():
    answer = code(jupyter={"source_hidden": True})
    assert covered(question(), answer) == [False, True]
    assert answer.metadata["jupyter"] == {"source_hidden": True, "outputs_hidden": True}


def test_nothing_else_is_covered():
    two = [v4.new_markdown_cell("Look."), v4.new_markdown_cell("And look.")]
    assert not any(covered(question(), *two, code()) + covered(question(), question()) + covered(question()))
    assert not any(covered(question(), code(printed=""), code()))
