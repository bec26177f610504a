"""A watched run of rewards: curves, marked texts, buttons and failures, with updates made up and with real ones."""

import asyncio
import copy
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from support.views import Numbers, ask, shipped, stored, table_rows
from torch import Tensor

from tinylm_classroom.display.figures import DARK_NOTEBOOK
from tinylm_classroom.views import run as runs
from tinylm_classroom.views.base import View
from tinylm_classroom.views.rewards import first_error, rewards_view
from tinylm_lib import TransformerLM, preset, storyworld
from tinylm_lib.rewards import Rollouts, Update, reinforce

pytestmark = pytest.mark.usefixtures("one_thread")
STORY = storyworld.story(torch.Generator().manual_seed(3)).text


def written(texts: list[str], n_given: int = 9) -> Rollouts:
    """Texts as a model may have written them after their first words, padded at both ends."""
    encoded = [shipped().tokenizer.encode("\n" + text) for text in texts]
    longest = max(map(len, encoded))
    ids = torch.tensor([[0, 0, *row, *[0] * (longest - len(row))] for row in encoded])
    mask = torch.tensor([[n < len(row) - n_given for n in range(longest - n_given)] for row in encoded])
    return Rollouts(ids, torch.full((len(texts),), 2), mask, torch.zeros(mask.shape))


def made_up(rewards: list[list[float]], texts: list[str] | None = None, **wrong: Tensor) -> Iterator[Update]:
    """Updates with these rewards of a single prompt; the distance grows."""
    for i, row in enumerate(rewards, start=1):
        some = Rollouts(*[torch.ones(1, 2).long()] * 2, torch.ones(1, 1) > 0, torch.zeros(1, 1))
        kinds = {"kl": torch.tensor(0.01 * i), "entropy": torch.tensor(1 / i), "loss": torch.tensor(0.1)}
        kept = written(texts) if texts else Rollouts(torch.ones(len(row), 3).long(), torch.zeros(len(row)).long(),
                                                     torch.ones(len(row), 1) > 0, some.log_probs)  # fmt: skip
        yield Update(
            i, torch.tensor([row]), grad_norm=torch.tensor(0.2), rollouts=kept, **{**kinds, **(wrong if i == 3 else {})}
        )


@pytest.fixture
def shown(monkeypatch) -> list[View]:
    """The views that were displayed."""
    views = []
    handle = type("Handle", (), {"update": lambda self, view: None})()
    monkeypatch.setattr(runs, "display", lambda view, **options: views.append(view) or handle)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return views


def watch(updates: Iterable[Update], tokenizer: Any = None, **options: Any) -> None:
    asyncio.run(rewards_view(updates, tokenizer or Numbers(), **options))


def no_error(text: str) -> None:
    return None


def test_the_curves_are_those_of_the_run(shown):
    watch(list(made_up([[0.0, i / 40] for i in range(40)])), find_error=no_error)
    data = shown[0].data
    assert data["steps"] == list(range(1, 41)) and data["state"] == "finished" and data["total"] == 40
    assert data["reward"] == pytest.approx([i / 80 for i in range(40)], abs=1e-5)
    assert data["kl"] == pytest.approx([0.01 * i for i in range(1, 41)], rel=1e-4)
    assert data["smooth"][19] == pytest.approx(19 / 80, rel=1e-4) and not shown[0].live  # a straight line stays one
    assert [step for step, _ in data["samples"]] == [1, 9, 17, 24, 32, 40]


@pytest.mark.parametrize(("change", "wrong"), [
    (lambda text: text + "\n", ""),
    (lambda text: text, ""),
    (lambda text: text.rsplit(" ", 1)[0], " (it ends here)"),
    (lambda text: text.rsplit(" ", 1)[0] + " kite.\n", " kite"),
    (lambda text: " ".join(text.split(" ")[:15]) + "\n", " ↵"),
])  # fmt: skip
def test_the_first_impossible_word_is_marked_and_the_beginning_is_told_apart(shown, change, wrong):
    text = change(STORY)
    watch(list(made_up([[0.0]], [text])), shipped().tokenizer)
    ((step, ((worth, given, possible, mistake, after),)),) = shown[0].data["samples"]
    assert (step, worth, mistake) == (1, 0.0, wrong)
    assert storyworld.words("\n" + given) == storyworld.words("\n" + text)[:9]
    end = "" if wrong == " (it ends here)" else wrong
    assert given + possible + end + after == text.replace("\n", " ↵")
    at = first_error(text)
    assert at == (None if not wrong else len(given + possible))


def test_the_first_answers_to_the_first_prompts_are_kept(shown):
    torch.manual_seed(0)
    model = TransformerLM(preset("modern", vocab_size=50, d_model=16, n_layers=1, n_heads=2, max_seq_len=32))
    start = copy.deepcopy(model)
    prompts, optimizer = [[1], [2, 3], [4], [5]], torch.optim.SGD(model.parameters(), 0.1)
    options = {"n_each": 3, "max_new_tokens": 4, "stop_ids": [0]}
    updates = list(reinforce(model, start, itertools.repeat(prompts, 3), len, optimizer, **options))
    watch(iter(updates), total_steps=3, find_error=no_error)
    for (step, texts), update in zip(shown[0].data["samples"], updates, strict=True):
        assert step == update.step
        for i, (worth, given, possible, *_) in enumerate(texts):
            ids = update.rollouts.texts()[3 * i]
            assert given == Numbers().decode(prompts[i]) and given + possible == Numbers().decode(ids)
            assert worth == len(ids)
        assert len(texts) == 3


def test_watching_changes_nothing_and_a_list_gives_the_same_view(shown):
    def trained(is_watched: bool) -> tuple[list[Tensor], list[Update]]:
        torch.manual_seed(3)
        model = TransformerLM(preset("modern", vocab_size=50, d_model=16, n_layers=1, n_heads=2, max_seq_len=32))
        options = {"n_each": 4, "max_new_tokens": 5, "stop_ids": [0]}
        optimizer, seen = torch.optim.AdamW(model.parameters(), 1e-2), []
        updates = reinforce(model, copy.deepcopy(model), itertools.repeat([[1], [2, 3]], 6), sum, optimizer, **options)
        kept = (seen.append(update) or update for update in updates)
        watch(kept, total_steps=6, find_error=no_error) if is_watched else list(kept)
        return [p.detach().clone() for p in model.parameters()], seen

    (plain, _), (watched, seen) = trained(False), trained(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    watch(seen, find_error=no_error)
    first, second = shown
    assert (first.html, first.text, first.data) == (second.html, second.text, second.data)


def test_words_table_and_size(shown):
    watch(list(made_up([[0.1 * (i % 3), 1.0] for i in range(300)], [f"{STORY}\n"] * 2)), shipped().tokenizer)
    (view,) = shown
    assert re.fullmatch(
        r"A run that learns from rewards\. In 300 of 300 updates the mean reward went from ⟨0\.53⟩ to ⟨0\.55⟩, and the "
        r"model moved ⟨3\.0 nats per token⟩ away from its start\.", repr(view)
    )  # fmt: skip
    rows = table_rows(view.html)
    assert [row[0] for row in rows[1:]] == ["1", "44", "86", "129", "172", "215", "257", "300"]
    assert rows[2][2:] == ["⟨0.44⟩"] and all(cell[0] + cell[-1] == "⟨⟩" for row in rows[1:] for cell in row[1:])
    assert len(json.dumps(stored(view), allow_nan=False)) <= 60_000
    assert not re.search(r"<(style|script|svg)\b|https?:", view.html.replace(DARK_NOTEBOOK, ""))


def test_a_reward_that_is_expected_is_held_against_its_range(shown):
    updates = list(made_up([[0.5, 0.7]] * 10))
    watch(updates, find_error=no_error, expected={5: (0.5, 0.7), 10: (0.55, 0.65)})
    assert "⟨0.60⟩ (expected 0.5 to 0.7)" in shown[0].html
    with pytest.raises(ValueError, match=r"training led to 0\.6, expected 0\.7 to 0\.9"):
        watch(updates, find_error=no_error, expected={10: (0.7, 0.9)})
    with pytest.raises(ValueError, match=r"expected names update 11, but update 10 was the last"):
        watch(updates, find_error=no_error, expected={11: (0.7, 0.9)})


@pytest.mark.parametrize("wrong", [{"loss": torch.tensor(math.nan)}, {"kl": torch.tensor(math.inf)}])
def test_what_is_not_finite_ends_the_run_and_the_curves_stay(shown, wrong):
    with pytest.raises(ValueError, match=r"update 3 has loss .* and distance .*: lower the learning rate"):
        watch(made_up([[1.0, 2.0]] * 5, **wrong), total_steps=5, find_error=no_error)
    assert shown[0].data["reward"] == [1.5, 1.5] and shown[0].data["state"] == "failed"
    assert "lower the learning rate" in shown[0].html


def test_the_buttons_pause_resume_and_stop(shown, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
    stood_still = []

    def clicked() -> Iterator[Update]:
        for update in made_up([[1.0, 0.0]] * 9):
            if update.step == 3:
                ask(shown[0], do="pause")
                asyncio.get_running_loop().call_later(0.2, resume)
            if update.step == 6:
                ask(shown[0], do="stop")
            yield update

    def resume() -> None:
        stood_still.append((shown[0].data["state"], shown[0].data["step"]))
        ask(shown[0], do="resume")

    watch(clicked(), total_steps=9, find_error=no_error)
    assert stood_still == [("paused", 3)]
    assert shown[0].data["state"] == "stopped" and shown[0].data["steps"] == [1, 2, 3, 4, 5, 6]
    assert shown[0].data["samples"][-1][0] == 6 and "In 6 of 9 updates" in shown[0].html


@pytest.mark.parametrize(("updates", "options", "message"), [
    (iter(()), {}, "total_steps is missing: say how many updates will come"),
    ([], {}, "total_steps must be at least 1, got 0"),
    (iter(()), {"total_steps": 0}, "total_steps must be at least 1, got 0"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_before_the_first_update(shown, updates, options, message):
    with pytest.raises(ValueError, match=message):
        watch(updates, **options)
    assert shown == []


def test_a_run_without_an_update_is_shown_too(shown):
    watch(iter(()), total_steps=4)
    assert "No update of 4 was made." in shown[0].html
