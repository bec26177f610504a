"""The sentence that looks back: its words stay where they are, and what is drawn over them is what was computed."""

import re
from typing import Any

import pytest
import torch

from tinylm_classroom.pictures import looking, matching
from tinylm_lib.pretrained import load_pretrained

TEXT = " Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
WORDS = TEXT.replace(".", " .").split()
KEYS = torch.tensor([{"fan": [2.0, 0.0], "book": [0.0, 2.0]}.get(word, [0.0, 0.0]) for word in WORDS])
QUERIES = torch.tensor([{"pink": [2.0, 0.0], "gray": [0.0, 2.0]}.get(word, [0.0, 0.0]) for word in WORDS])
VALUES = torch.eye(3)[torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0])]


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(looking, matching)


def grown(step: str, shown: list[Any], **more: Any) -> tuple[list[Any], dict[str, Any]]:
    given = {"keys": KEYS, "queries": QUERIES, "values": VALUES, **more}
    looking.grow(step, WORDS, **({"weights": more["weights"]} if step == "arcs" else given))
    figure, facts = shown[-1]
    return list(figure.axes[0].texts), facts


@pytest.mark.parametrize("step", looking.STEPS)
def test_each_step_has_its_words_at_the_same_places_in_large_type(step: str, shown: list[Any]) -> None:
    texts, facts = grown(step, shown, weights=[0.0] * 4 + [0.8] + [0.0] * 11) if step == "arcs" else grown(step, shown)
    sentence = [text for text in texts if text.get_position()[1] == looking.WORDS]
    assert [text.get_text() for text in sentence] == WORDS
    assert [text.get_position()[0] for text in sentence] == looking.line_of(WORDS).middles
    assert min(text.get_fontsize() for text in texts) >= looking.SMALL
    assert shown[-1][0].get_size_inches().tolist() == [looking.WIDTH, looking.HEIGHT]
    assert facts["alt"].startswith(looking.STEPS[step])


def test_the_columns_follow_each_other_and_the_line_fits() -> None:
    line = looking.line_of(WORDS)
    assert [right for _, right in line.edges[:-1]] == [left for left, _ in line.edges[1:]]
    assert line.after + 90 < looking.WIDTH * looking.PIXEL


def test_the_rows_are_scores_then_masked_then_weights(shown: list[Any]) -> None:
    _, facts = grown("matrix", shown)
    assert facts["table"]["number"][3] == 4 and facts["table"]["largest for"][3] == "fan (word 5)"
    texts, facts = grown("mask", shown)
    assert facts["table"]["number"][3] == 0 and "−∞" in [text.get_text() for text in texts]
    texts, facts = grown("softmax", shown)
    assert facts["table"]["number"][:4] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert facts["table"]["number"][-1] == pytest.approx(54.598 / 69.598, abs=1e-3)
    assert [text.get_text() for text in texts].count("0.78") == 1


def test_what_comes_back_is_the_sum_of_the_values_by_weight(shown: list[Any]) -> None:
    texts, _ = grown("values", shown)
    result = looking.softmax(QUERIES[-1] @ KEYS.T, dim=-1) @ VALUES
    printed = [text.get_text() for text in texts if re.match(r"(person|fan|book) \d", text.get_text())]
    assert [float(text.split()[1]) for text in printed] == pytest.approx(result.tolist(), abs=0.006)


def test_an_unknown_step_is_refused() -> None:
    with pytest.raises(ValueError, match="the steps are arcs, keys"):
        looking.grow("heads", WORDS)


def test_every_look_above_a_tenth_is_drawn_also_at_the_wrong_colour(shown: list[Any]) -> None:
    model = load_pretrained("storyworld")
    exchanged = TEXT.replace("pink fan", "gray fan").replace("gray book", "pink book")
    looking.looks(model.model.eval(), model.tokenizer, TEXT, exchanged, title="Two looks", earlier=True)
    figure, facts = shown[-1]
    table = facts["table"]
    assert table["query"] == ["pink, layer 2", "fan, layer 1", "book, layer 1"] * 2
    assert "gray 0.28" in table["looks above 0.1"][-1] and "pink 0.21" in table["looks above 0.1"][-1]
    n_looks = sum(len(told.split(", ")) for told in table["looks above 0.1"])
    assert n_looks == sum(len(ax.lines) for ax in figure.axes)
    assert [ax.texts[16].get_text() for ax in figure.axes] == ["fan", "book"]


def test_the_matrices_have_their_sizes_and_the_runs_their_dots(shown: list[Any]) -> None:
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 6)
    weights = (q @ k.mT).softmax(-1)
    matching.shapes(q, k, weights, v, weights @ v)
    assert shown[-1][1]["table"]["shape"] == [(3, 4), (4, 5), (3, 5), (5, 6), (3, 6)]
    runs = {"a": {0.1: [0.2, 0.4], 1.0: [0.5, 0.6]}, "b": {0.1: [1.0, 1.0], 1.0: [0.9, 1.0]}}
    matching.found(runs, title="B learns", chance=0.1, x="rate")
    figure, facts = shown[-1]
    assert sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == "None") == 8
    assert facts["table"]["weights found"] == ["0.2 to 0.4", "0.5 to 0.6", "1.0 to 1.0", "0.9 to 1.0"]
    matching.scores(torch.zeros(3, 3), 5 * torch.eye(3), ["x", "y", "z"], title="It finds its own")
    assert shown[-1][1]["table"]["mean score on the diagonal"] == ["0", "5"]
