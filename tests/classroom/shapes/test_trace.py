"""Traces: the real shape of every line, letters that are right, rounds, lies, and errors of shape that get a reason."""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from IPython.core.interactiveshell import InteractiveShell
from support.models import MODELS, some_ids, tiny
from torch import Tensor, nn
from traitlets.config import Config

from tinylm_classroom.shapes.comments import Report
from tinylm_classroom.shapes.instrument import woven
from tinylm_classroom.shapes.letters import axis_names
from tinylm_classroom.shapes.model_trace import trace_model
from tinylm_classroom.shapes.trace import explain_shapes, trace
from tinylm_lib import TransformerLM
from tinylm_lib.attention import Attention
from tinylm_lib.cost import forward_flops
from tinylm_lib.layers import Embedding, Linear, softmax

pytestmark = pytest.mark.usefixtures("one_thread")


def lines_of(card: Any) -> dict[str, str]:
    """The margin of each line of a trace by its code."""
    rows = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in str(card).split("\n\n")[1].splitlines())
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows}


# Functions as students write them. Each is traced as it is here.


def scores(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """q (B, T, D), k (B, S, D)."""
    s = q @ k.transpose(-2, -1)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    w = torch.softmax(s, dim=-1)  # (B, T, S)
    return w, s.sum()


def grows(ids):
    for i in range(2, 7):
        last = ids[:, -1:]
        ids = torch.cat((ids, last), dim=1)  # (B, T + 1)
        print(i, end="")
    return ids


def many_values(x):
    n = len(x)
    pair = (x, x.T)
    rows = [row * 2 for row in x]
    shape = x.shape
    name, share, nothing = "abc", 0.1234, None
    array = np.ones((3, 5))
    x += 1
    y = (
        x.T  # the columns
        .unsqueeze(1)
    )  # fmt: skip
    return {"all": (n, pair, rows, shape, name, share, nothing, array, y)}


def lies(x):
    y = x.T  # (B, T)
    return y


def raises(x):
    y = x * 2
    raise KeyError("mine", y)


def test_every_line_has_its_real_shape_and_the_letters_of_the_docstring() -> None:
    card = trace(scores, torch.ones(2, 3, 4), torch.ones(2, 5, 4))
    margins = lines_of(card)
    assert margins["s = q @ k.transpose(-2, -1)"] == "(B, T, S) = (2, 3, 5)"
    assert margins["w = torch.softmax(s, dim=-1)"] == "✓ (B, T, S) = (2, 3, 5)", "a true comment becomes a mark"
    assert margins["s = s.masked_fill(~mask, -math.inf)"] == "", "it did not run"
    assert "q (B, T, D) = (2, 3, 4)" in str(card) and "D = 4 width of a head" in str(card)


def test_a_docstring_that_errs_names_nothing() -> None:
    def double(q: Tensor, k: Tensor) -> Tensor:
        """q (B, N), k (N, B)."""
        return q * 2 + k

    assert lines_of(trace(double, torch.ones(2, 3), torch.ones(1, 3)))["return q * 2 + k"] == "(2, 3)"
    assert lines_of(trace(double, torch.ones(3, 3), torch.ones(3, 3)))["return q * 2 + k"] == "(B, N) = (3, 3)"


def test_rounds_that_differ_are_distinguished_and_rounds_alike_are_counted() -> None:
    margins, text = lines_of(trace(grows, torch.ones(1, 2))), str(trace(grows, torch.ones(1, 2)))
    assert margins["last = ids[:, -1:]"] == "(1, 1) × 5"
    assert margins["for i in range(2, 7):"] == "", "a counter is not news"
    assert margins["ids = torch.cat((ids, last), dim=1)"] == "✓ round 1: (B, T + 1) = (1, 3)"
    assert "round 5, the last: (B, T + 1) = (1, 7)" in text and "round 3" not in text


def test_what_is_not_a_tensor_is_left_out_and_numbers_are_shown() -> None:
    text = str(trace(many_values, torch.ones(3, 2), sizes={"T": 3, "C": 2}))
    margins = lines_of(text)
    assert margins["n = len(x)"] == "3"
    assert margins["pair = (x, x.T)"] == "(T, C) = (3, 2)" and "(C, T) = (2, 3)" in margins
    assert margins["rows = [row * 2 for row in x]"] == "3 × (C) = (2)"
    assert margins["shape = x.shape"] == "(T, C) = (3, 2)"
    assert margins['name, share, nothing = "abc", 0.1234, None'] == ""
    assert margins["array = np.ones((3, 5))"] == "(T, 5) = (3, 5)"
    assert margins["x += 1"] == "(T, C) = (3, 2)"
    assert re.search(r"x\.T  # the columns +\(C, T\) = \(2, 3\)", text)
    assert margins[".unsqueeze(1)"] == "(C, 1, T) = (2, 1, 3)", "a link of a chain"
    assert margins['return {"all": (n, pair, rows, shape, name, share, nothing, array, y)}'] == ""


def test_a_lambda_a_method_a_partial_and_a_closure_are_traced() -> None:
    weight = torch.ones(4, 3)
    bent = lambda x: x @ weight  # noqa: E731
    assert "(2, 3)" in str(trace(bent, torch.ones(2, 4)))

    class Doubling(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return self.__twice(y)

        def __twice(self, y: Tensor) -> Tensor:
            return y * 2

    layer = Doubling(4, 3)
    for what in (layer, layer.forward):
        assert lines_of(trace(what, torch.ones(2, 4)))["y = super().forward(x)"] == "(2, 3)"
    product = partial(lambda x, w: x @ w, torch.ones(2, 4))
    assert "(2, 3)" in str(trace(product, weight)) and "does not fit" not in str(trace(product, weight))
    with pytest.raises(ValueError, match="several functions alike"):
        trace((lambda x: x, lambda x: x + 1)[1], weight)


def test_a_module_of_the_library_is_traced_with_its_place_and_lesson() -> None:
    config = tiny("llama")
    attention = TransformerLM(config).blocks[0].attention
    card = trace(attention, torch.ones(2, 5, config.d_model), torch.arange(5))
    assert str(card).startswith("Attention.forward · tinylm_lib/attention.py · notebooks 05 and 07\n")
    margins = lines_of(card)
    assert margins["k = self.k_norm(self.split(self.k_proj(x)))"] == "✓ (B, G, T, D) = (2, 3, 5, 8)"
    assert margins["return self.o_proj(self.mix(q, k, v, mask))"] == "✓ (B, T, C) = (2, 5, 20)"
    assert isinstance(attention, Attention) and attention.forward.__func__ is Attention.forward, "nothing is patched"
    assert "(5, 1) = " not in str(trace(softmax, torch.ones(5, 7), dim=-1, sizes={"T": 5, "V": 7}))
    assert "(T, 1)" not in str(trace(softmax, torch.ones(5, 7), dim=-1, sizes=config)), "the config names no 5"


def test_details_tell_dtype_and_device() -> None:
    assert "(2, 3) bfloat16 cpu" in str(trace(lies, torch.ones(3, 2, dtype=torch.bfloat16), details=True))
    assert "bfloat16" not in str(trace(lies, torch.ones(3, 2, dtype=torch.bfloat16)))


def test_what_cannot_be_traced_is_refused_with_a_reason() -> None:
    with pytest.raises(TypeError, match="not this builtin_function_or_method"):
        trace(torch.matmul, torch.ones(2))
    with pytest.raises(TypeError, match="not this class"):
        trace(Linear, 2, 3)
    with pytest.raises(TypeError, match="missing a required argument: 'k'"):
        trace(scores, torch.ones(2))


def test_an_error_of_the_students_own_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine") as caught:
        trace(raises, torch.ones(2))
    assert caught.traceback[-1].lineno + 1 == raises.__code__.co_firstlineno + 2
    with pytest.raises(RuntimeError, match="same dtype"):  # the shapes fit
        trace(lambda x: x @ torch.ones(2, dtype=torch.float64), torch.ones(2))


def test_the_function_itself_stays_as_it_is() -> None:
    before = scores.__code__, scores.__kwdefaults__, dict(scores.__globals__)
    trace(scores, torch.ones(2, 3, 4), torch.ones(2, 5, 4))
    assert (scores.__code__, scores.__kwdefaults__, dict(scores.__globals__)) == before


def test_gradients_flow_through_a_traced_function_as_before() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    woven(many_lines, Report(on_line=lambda *line: None))(x).backward()
    assert torch.equal(x.grad, torch.full((2, 3), 2.0))


def test_the_default_of_a_keyword_is_kept() -> None:
    def halved(x: Tensor, *, by: float = 2.0) -> Tensor:
        return x / by

    assert torch.equal(woven(halved, Report(on_line=lambda *line: None))(X), X / 2)


def many_lines(x):
    try:
        x @ x
    except RuntimeError:
        y = x * 2
    match len(y):
        case 2:
            total = sum(part.sum() for part in y)
    return total if f"{total:.1f}" else None


# ---- shapes that do not fit

T, S, C, D = 16, 12, 64, 20
X, W = torch.ones(T, C), torch.ones(D, C)
SIZES = {"T": T, "S": S, "C": C, "D": D, "B": 2, "H": 4}
WRONG: dict[str, tuple[Callable[..., Any], tuple, str, str]] = {
    "a product": (lambda x, w: x @ w, (X, W), "of the left, C = 64, must equal the first axis of the right, D = 20",
        "w.T"),
    "a product undone": (lambda x, w: x @ w.T, (X, W.T), "must equal the first", "`w` would fit"),
    "a product the other way round": (lambda x, w: torch.matmul(x, w), (W, torch.ones(T, D)), "C = 64, must equal",
        "`w @ x`"),
    "a vector": (lambda x, v: x @ v, (X, torch.ones(T)), "the only axis of the right, T = 16", "x.T"),
    "heads": (lambda q, k: q @ k.transpose(-2, -1), (torch.ones(2, 4, T, D), torch.ones(2, T, 4, D)),
        "H = 4 meets T = 16", "k.transpose(1, 2).transpose(-2, -1)"),
    "linear": (lambda x, w: F.linear(x, w), (X, W.T), "(out, in), D = 20", "w.T"),
    "heads not merged": (lambda x, w: F.linear(x, w), (torch.ones(2, 4, T, D), torch.ones(7, 80)),
        "(out, in), H*D = 80", "transpose(1, 2).flatten(2)"),
    "a bias": (lambda x, b: F.linear(x, W, b), (X, torch.ones(3)), "The bias needs one number per output, D = 20", ""),
    "a sum": (lambda x, y: x + y, (X, torch.ones(T)), "C = 64 meets T = 16", "y[..., None]"),
    "positions that differ": (lambda x, y: x * y, (torch.ones(T, C), torch.ones(S, C)), "T = 16 meets S = 12", ""),
    "an axis in the middle": (lambda x, y: x - y, (torch.ones(2, T, C), torch.ones(2, C)), "T = 16 meets B = 2",
        "unsqueeze(1)"),
    "a comparison": (lambda x, y: x < y, (X, X.T), "C = 64 meets T = 16", "y.T"),
    "one too few": (lambda x, y: x / y, (X, X[1:]), "T = 16 meets 15", "differ by one"),
    "an augmented sum": (lambda x: augmented(x), (torch.ones(T, C),), "C = 64 meets T = 16", ""),
    "one too many": (lambda x, y: x / y, (X[1:], X), "15 meets T = 16", "differ by one"),
    "a sum in place": (lambda x, y: x.clone().add_(y), (X, torch.ones(T)), "C = 64 meets T = 16", ""),
    "behind an axis of size 1": (lambda x, y: x + y, (X, torch.ones(S, 1)), "T = 16 meets S = 12", ""),
    "a mask": (lambda x, m: x.masked_fill(m, 0), (X, torch.ones(T, S) > 0), "C = 64 meets S = 12", ""),
    "cat": (lambda x, y: torch.cat((x, y)), (X, torch.ones(T, S)),
        "axis 0 lets only that axis differ; axis 1 is C = 64 against S = 12", "dim=1"),
    "cat along the last axis": (lambda x, y: torch.cat((x, y), dim=-1), (X, torch.ones(S, C)),
        "axis 1 lets only that axis differ; axis 0 is T = 16 against S = 12", "dim=0"),
    "cat of another number of axes": (lambda x, y: torch.cat([x, y], dim=1), (X, torch.ones(T)), "same number of axes",
        "keepdim=True"),
    "stack": (lambda x, y: torch.stack((x, y)), (X, torch.ones(S, C)), "needs equal shapes", "dim=0"),
    "view": (lambda x: x.view(T, 4, 15), (X,), "but T * C = 1024 does not equal 16 * 4 * 15 = 960",
        "With 16 instead of 15"),
    "a link of a chain": (lambda x: chained(x), (X,), "C * T = 1024 does not equal 3 * 5 = 15", ""),
    "view with a rest": (lambda x: x.reshape(3, -1), (X,), "1024 is not a multiple of 3", ""),
    "view of a transpose": (lambda x: x.T.view(-1), (X,), "a transpose only relabels", ".reshape"),
    "unflatten": (lambda x: x.unflatten(-1, (5, 13)), (X,), "T * C = 1024", ""),
    "expand": (lambda x: x.expand(T, 3), (X,), "C = 64 should become 3", ""),
    "an id that is not a row": (lambda i, w: F.embedding(i, w), (torch.tensor([1, 20]), W), "Row 20 is looked up",
        "larger vocabulary"),
    "a negative id": (lambda i, w: F.embedding(i, w), (torch.tensor([-1]), W), "Row -1", "from the end"),
    "ids that are not integers": (lambda i, w: F.embedding(i, w), (torch.ones(3), W), "float32", "i.long()"),
    "an index": (lambda x: x[T], (X,), "Axis 0 has the indices 0 to 15", ""),
    "an index among several": (lambda x: x[1:, C], (X,), "Axis 1 has the indices 0 to 63, not 64.", ""),
    "an index of nothing": (lambda x: x[0], (torch.ones(0, C),), "Axis 0 is empty", ""),
    "nothing in another shape": (lambda x: x.view(0, 5), (X,), "1024 does not equal 0 * 5 = 0", ""),
    "a mask that selects": (lambda x, m: x[m], (X, torch.ones(S) > 0), "T = 16", ""),
    "classes on the last axis": (lambda x, y: F.cross_entropy(x, y), (torch.ones(2, T, C), torch.ones(2, T).long()),
        "finds T = 16 there", "x.flatten(0, -2)"),
    "one target too few": (lambda x, y: F.cross_entropy(x, y), (X, torch.ones(T - 1).long()), "one target",
        "differ by one"),
    "a target, not a class": (lambda x, y: F.cross_entropy(x, y), (X, torch.full((T,), 64)), "A target is 64", ""),
    "a target, not a class, next to ignored ones": (lambda x, y: F.cross_entropy(x, y),
        (X, torch.tensor([-100, 64] * (T // 2))), "A target is 64", ""),
    "an axis that is not there": (lambda x: x.sum(2), (X,), "2 axes: 0, 1, or from the end -2, -1. There is no axis 2",
        ""),
    "einsum": (lambda x, w: torch.einsum("tc,dt->td", x, w), (X, W), "`t` is 16 in `x` and 64 in `w`", ""),
    "queries and keys": (lambda q, k: F.scaled_dot_product_attention(q, k, k), (X, torch.ones(S, D)),
        "C = 64 meets D = 20", ""),
    "keys and values": (lambda q, v: F.scaled_dot_product_attention(q, q, v), (X, torch.ones(S, C)),
        "T = 16 meets S = 12", ""),
    "keywords in another order": (lambda x, w: F.linear(weight=w, input=x), (X, W.T), "(out, in), D = 20", "w.T"),
    "a shape taken apart": (lambda x: apart(x), (X,), "2 axes, but another number of names", ""),
    "inside a module": (lambda layer, x: layer(x) * 2, (Linear(C, D), W.T), "last axis of the input, D = 20",
        "x.T would fit"),
    "the way into a module": (lambda layer, x: layer(x), (Linear(C, D), W.T),
        "Inside Linear.forward: return F.linear(x, self.weight, self.bias)", "x.T"),
    "inside a module of torch": (lambda layer, x: layer(x), (nn.Sequential(nn.Linear(C, D)), X.T), "T = 16", "input.T"),
    "inside an embedding": (lambda layer, i: layer(i), (Embedding(5, 3), torch.tensor(5)), "Row 5", ""),
    "inside a comprehension": (lambda x: [row @ X for row in x], (torch.ones(2, C),), "C = 64, must equal", "X.T"),
    "unpacked arguments": (lambda *both: torch.matmul(*both), (X, W), "C = 64, must equal", "both[1].T"),
    "unpacked keywords": (lambda x, more: torch.matmul(x, **more), (X, {"other": W}), "C = 64", "more['other'].T"),
    "after an inner function has returned": (lambda x: after(lambda y: y * 2, x), (X,), "C = 64, must equal", "x.T"),
}  # fmt: skip


def augmented(x):
    for _ in range(2):
        x += torch.ones(x.shape[0])
    return x


def chained(x):
    return (
        x.T  # the columns
        .view(3, 5)
    )  # fmt: skip


def after(inner, x):
    return inner(x) @ x


def apart(x):
    batch, length, width = x.shape
    return batch, length, width


@pytest.mark.parametrize(("function", "args", "fact", "guess"), WRONG.values(), ids=WRONG)
def test_a_shape_that_does_not_fit_is_explained(function: Any, args: tuple, fact: str, guess: str) -> None:
    card = trace(function, *args, sizes=SIZES)
    source, told = re.split("These shapes do not fit:|An index is out of range:|There is no such axis:", str(card))
    html = card._repr_html_()
    assert fact.replace("`", "") in told
    assert guess.replace("`", "") in told
    assert "does not fit" in source and "torch says" in told
    assert "<script" not in html and "<style" not in html and "<svg" not in html


def test_an_index_out_of_range_is_not_called_a_shape() -> None:
    for name in ("an index", "an id that is not a row", "a target, not a class"):
        function, args, *_ = WRONG[name]
        assert "An index is out of range:" in str(trace(function, *args, sizes=SIZES)), name
    assert "There is no such axis:" in str(trace(lambda x: x.sum(2), X))
    with pytest.raises(IndexError, match="Dimension out of range"):  # a number has no axes to speak of
        trace(lambda x: x.sum(2), torch.ones(()))


def test_the_guess_is_right() -> None:
    assert (X @ W.T).shape == (T, D) and (X + torch.ones(T)[..., None]).shape == X.shape
    q, k = torch.ones(2, 4, T, D), torch.ones(2, T, 4, D)
    assert (q @ k.transpose(1, 2).transpose(-2, -1)).shape == (2, 4, T, T)


def test_the_axes_that_disagree_are_marked() -> None:
    text = str(trace(WRONG["a product"][0], X, W, sizes=SIZES))
    assert re.search(r"x  \(T, C\) = \(16, 64\)  <- axis 1\n +w  \(D, C\) = \(20, 64\)  <- axis 0", text)
    html = trace(WRONG["a product"][0], X, W, sizes=SIZES)._repr_html_()
    assert html.count("border-top:6px") == html.count("border-left:6px solid #b3400b") == 1


def test_a_box_keeps_its_proportions_within_limits() -> None:
    html = trace(lambda x, w: x @ w, torch.ones(2, 1000), torch.ones(500, 3))._repr_html_()
    sides = re.findall(r"width:(\d+)px;height:(\d+)px", html)
    assert sides == [("150", "30"), ("30", "75")]


def test_an_error_can_be_explained_afterwards(capsys: pytest.CaptureFixture) -> None:
    def loud(x: Tensor) -> Tensor:
        print("not twice")
        return helper(x) + 1

    def helper(x: Tensor) -> Tensor:
        return x @ x

    with pytest.raises(RuntimeError) as caught:
        loud(X)
    capsys.readouterr()
    card = explain_shapes(loud, (X,), caught.value)
    assert "must equal the first axis" in str(card) and "Inside helper: return x @ x" in str(card)
    assert capsys.readouterr().out == ""


def test_what_is_not_about_shapes_has_no_explanation() -> None:
    assert explain_shapes(raises, (X,), KeyError("mine")) is None
    assert explain_shapes(scores, (X, X), RuntimeError("other")) is None, "it does not raise on these"
    assert explain_shapes(torch.matmul, (X, X), RuntimeError()) is None, "it has no source"
    assert explain_shapes(trace, (), RuntimeError()) is None, "it raises something else now"
    assert explain_shapes(lambda: torch.ones(2).view("a"), (), RuntimeError()) is None
    assert explain_shapes(WRONG["a product"][0], (X, W), RuntimeError()) is not None


def test_a_caught_error_is_not_mistaken_for_the_next() -> None:
    def recovers(x: Tensor) -> Tensor:
        try:
            x @ x
        except RuntimeError:
            raise ValueError("mine") from None

    def goes_on(x: Tensor, error: ValueError) -> None:
        with suppress(RuntimeError):
            x @ x
        raise error

    with pytest.raises(ValueError, match="mine"):
        trace(recovers, X)
    with pytest.raises(ValueError, match="mine"):
        trace(goes_on, X, ValueError("mine"))


def test_a_name_of_torch_on_another_function_misleads_nobody() -> None:
    def linear(x: Tensor, weight: Tensor) -> Tensor:
        raise RuntimeError("my own")

    with pytest.raises(RuntimeError, match="my own"):
        trace(lambda x: linear(x, x), X)


# ---- letters


def test_letters_are_given_once_and_never_for_nothing() -> None:
    letters = {"T": 3, "C": 6, "H": 2, "D": 3, "B": 6}
    assert axis_names((6, 3, 6), letters) == ("B", "T", "C")
    assert axis_names((2, 3, 3), {"H": 2, "T": 3}) == ("H", "T", "T")
    assert axis_names((6, 6), {"B": 6}) == ("B", "6"), "a batch is met once"
    assert axis_names((1, 3), {"B": 1, "T": 3}) == ("1", "T")
    assert axis_names((12,), {"G": 3, "D": 4}) == ("G*D",)
    assert axis_names((5, 2, 4), {"T": 2}, ("...", "T", "T + 2")) == ("5", "T", "T + 2")


def test_letters_of_one_size_are_owned_up_to() -> None:
    assert "Here T = C = 4:" in str(trace(lambda x: x + 1, torch.ones(4, 4), sizes={"T": 4, "C": 4}))


def test_a_function_of_a_cell_can_be_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    shell.run_cell("import torch\ndef f(x):\n    y = x * 2\n    return y @ y.T")
    margins = lines_of(trace(shell.user_ns["f"], torch.ones(2, 3), sizes={"T": 2, "C": 3}))
    assert margins == {
        "def f(x):": "x (T, C) = (2, 3)",
        "y = x * 2": "(T, C) = (2, 3)",
        "return y @ y.T": "(T, T) = (2, 2)",
    }


# ---- a whole model


@pytest.mark.parametrize("name", MODELS)
def test_the_work_of_the_parts_is_what_the_formula_says(name: str) -> None:
    config = tiny(name)
    rows = trace_model(TransformerLM(config), some_ids(2, 9)).rows
    assert sum(row.flops for row in rows if row.depth == 0) == forward_flops(config, 2, 9)
    per_token = {row.name: row.flops / (2 * 2 * 9) for row in rows}
    assert per_token["q_proj"] == config.d_model * config.n_heads * config.d_head
    assert per_token["down_proj"] == config.d_model * config.d_ff
    assert per_token["logits"] == config.d_model * config.vocab_size
    attention = 2 * config.d_model * (config.n_heads + config.n_kv_heads) * config.d_head
    assert per_token["attention"] == attention + 2 * 9 * config.n_heads * config.d_head


def test_a_model_lists_real_shapes_and_all_parameters() -> None:
    config = tiny("llama")
    model = TransformerLM(config)
    card = trace_model(model, some_ids(2, 9))
    rows = {row.name: row for row in card.rows}
    assert rows["k_proj"].shape == (2, 9, config.n_kv_heads * config.d_head)
    assert rows["k_proj"].names == ("B", "T", "G*D")
    assert rows["gate_proj"].names == ("B", "T", "F")
    assert rows["rotation"].names == ("B", "H", "T", "D")
    assert rows["logits"].shape == (2, 9, config.vocab_size)
    assert sum(row.parameters for row in card.rows if row.depth == 0) == sum(p.numel() for p in model.parameters())
    assert "blocks.1" in rows and sum(row.name == "q_proj" for row in card.rows) == 1
    assert sum(row.name == "q_proj" for row in trace_model(model, some_ids(2, 9), blocks=2).rows) == 2
    html = card._repr_html_()
    assert "<script" not in html and "<style" not in html, "an untrusted notebook strips them"
    assert html.count("<tr") == len(card.rows) + 1
    assert str(card) == str(trace_model(model, some_ids(2, 9))), "nbval compares it"


@pytest.mark.parametrize("details", [False, True])
def test_a_trace_is_the_same_twice(details: bool) -> None:
    cards = [trace(grows, torch.ones(1, 2), details=details) for _ in range(2)]
    assert str(cards[0]) == str(cards[1]) and cards[0]._repr_html_() == cards[1]._repr_html_()
