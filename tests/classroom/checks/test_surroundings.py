"""A check says what in its notebook misleads it: replaced functions of torch, and values that a function uses."""

import math

import pytest
import torch

from tinylm_classroom.checks.check import check
from tinylm_classroom.checks.surroundings import never_ran, ready_made, replaced_in_torch, values_used
from tinylm_classroom.checks.verdict import diagnose

pytestmark = pytest.mark.usefixtures("one_thread")
d_k, table = 256, torch.zeros(2, 3)


def divides_by_the_notebooks(q, k, v, mask=None):
    return (q @ k.mT / math.sqrt(d_k)).softmax(-1) @ v


def zeros(q, k, v, mask=None):
    return torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)


def test_a_number_of_the_notebook_is_named_below_the_mistake():
    said = diagnose("attention", divides_by_the_notebooks).message
    assert said.endswith("also uses `d_k`, which is 256 in this notebook. Should it come from the arguments?")
    assert values_used(lambda x: x + table + d_k) == {"table": table, "d_k": 256}
    assert values_used(lambda d_k: d_k.table + math.pi) == {} == values_used(len)


def test_a_right_function_hears_nothing_of_it():
    def right(q, k, v, mask=None):
        assert d_k == 256
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1) @ v

    found = diagnose("attention", right)
    assert found.passed and "also uses" not in found.message


@pytest.mark.parametrize("place, name", [(torch, "allclose"), (torch, "softmax"), (torch.nn.functional, "softmax")])
def test_nothing_is_right_where_a_function_of_torch_was_replaced(place, name, monkeypatch):
    assert replaced_in_torch() == []
    monkeypatch.setattr(place, name, lambda *args, **options: True)
    found = diagnose("attention", zeros)
    assert not found.passed and found.mistake == "torch was changed"
    assert f"`{place.__name__}.{name}` is not PyTorch's own" in found.message


def softmax(x, dim):
    return x.softmax(dim)


def own_softmax(x, dim):
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def by_the_library(q, k, v, mask=None):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def halves(x, dim):
    return own_softmax(x, dim)


def test_a_part_that_does_the_whole_step_is_named_and_right(capsys):
    assert ready_made("softmax", softmax) == "softmax"
    assert ready_made("attention", by_the_library) == "scaled_dot_product_attention"
    assert ready_made("softmax", own_softmax) is ready_made("softmax", halves) is ready_made("softmax", len) is None
    assert ready_made("attention", softmax) is None  # a softmax is a step of it
    assert check("softmax", softmax).passed
    assert "softmax does this whole step," in capsys.readouterr().out


SHELL = ["def softmax(x, dim):\n    return 0", "print(1)", "def softmax(x, dim):\n    return x.exp( / 2"]


@pytest.mark.parametrize(("cells", "said"), [(SHELL, "line 2"), (SHELL[:2], ""), ([*SHELL, SHELL[0]], ""), (None, "")])
def test_a_cell_that_did_not_parse_is_named(cells, said):
    names = {"In": cells}
    exec("def softmax(x, dim):\n    return 0", names)
    assert said in never_ran(names["softmax"]) and bool(said) == bool(never_ran(names["softmax"]))
    assert never_ran(len) == ""


def test_a_first_attempt_that_did_not_parse_gets_one_card(capsys):
    names = {"In": ["def softmax(x, dim):\n    raise NotImplementedError", SHELL[2]]}
    exec(names["In"][0], names)
    check("softmax", names["softmax"])
    said = capsys.readouterr().out
    assert "syntax error in its line 2" in said and "not attempted" not in said
