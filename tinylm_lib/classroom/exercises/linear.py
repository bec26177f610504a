"""Lesson 02: a linear map is dot products, an embedding is a row that is looked up."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


def linear(x: Tensor, weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """One dot product of x (..., in) with each row of weight (out, in): (..., out), and the mistakes that are `on`."""
    if "weight first" in on:
        return weight @ x
    if "result transposed" in on:
        return weight @ (x.mT if x.ndim > 1 else x)
    if "first axis of x" in on:
        return torch.einsum("i...,oi->...o", x, weight)
    if "first vector alone" in on:
        x = x.reshape(-1, x.shape[-1])[0]
    if "x cut" in on:
        x = x.detach()
    if "weight cut" in on:
        weight = weight.detach()
    if "fp32" in on:
        x, weight = x.float(), weight.float()
    if "unit rows" in on:
        weight = F.normalize(weight, dim=-1)
    if "first input left out" in on:
        x, weight = x[..., 1:], weight[:, 1:]
    if "last input left out" in on:
        x, weight = x[..., :-1], weight[:, :-1]
    if "one output" in on:
        return x @ weight[0]
    if "not summed" in on:
        return x[..., None, :] * weight
    if "in place" in on:
        weight.t_()
        return x @ weight
    columns = weight if "not transposed" in on else weight.mT
    if "reshaped" in on:
        columns = weight.reshape(weight.shape[::-1])
    out = x @ columns
    for name, change in AFTERWARDS.items():
        if name in on:
            out = change(out, x)
    return out


AFTERWARDS = {
    "mean": lambda out, x: out / x.shape[-1],
    "scaled": lambda out, x: out / math.sqrt(x.shape[-1]),
    "bias": lambda out, x: out + 1,
    "relu": lambda out, x: out.relu(),
    "softmax": lambda out, x: out.softmax(-1),
    "last output 0": lambda out, x: torch.cat([out[..., :-1], 0 * out[..., -1:]], -1),
    "flattened": lambda out, x: out.reshape(-1, out.shape[-1]),
    "axes of 1 lost": lambda out, x: out.squeeze(),
    "positions summed": lambda out, x: out.reshape(-1, out.shape[-1]).sum(0),
    "x added": lambda out, x: out + x if out.shape == x.shape else out,
}


def embedding(ids: Tensor, weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows of weight (V, C) that ids (...) name: (..., C), and the mistakes that are `on`."""
    n = len(weight)
    places, inside = _places(ids, n, on), (ids >= 0) & (ids < n)
    if ((places < 0) | (places >= n)).any():
        if "AssertionError" in on:
            raise AssertionError("an id is out of range")
        if "ValueError" in on:
            raise ValueError("an id is out of range")
        if "RuntimeError" in on:
            raise RuntimeError("Class values must be smaller than num_classes.")
        raise IndexError("an id is out of range")
    if "unit rows" in on:
        weight = F.normalize(weight, dim=-1)
    if "table changed" in on:
        with torch.no_grad():
            weight[ids] /= weight[ids].norm(dim=-1, keepdim=True)
    if "table cut" in on:
        weight = weight.detach()
    if "fp32" in on:
        weight = weight.float()
    is_padded = "padding" in on or "padding not learnt" in on
    out = F.embedding(
        places, weight.mT if "columns" in on else weight, padding_idx=0 if is_padded else None,
        scale_grad_by_freq="by frequency" in on,
    )  # fmt: skip
    if "zeros outside" in on:
        out = out * inside[..., None]
    if "padding" in on:
        out = out * (ids != 0)[..., None]
    for name, change in LOOKED_UP.items():
        if name in on:
            out = change(out)
    return out


def _places(ids: Tensor, n: int, on: frozenset[str]) -> Tensor:
    """Which rows are looked up."""
    if "from the end" in on:
        ids = torch.where((ids < 0) & (ids >= -n), ids + n, ids)
    if "clamped" in on or "zeros outside" in on:
        ids = ids.clamp(0, n - 1)
    if "negative is 0" in on:
        ids = ids.clamp(min=0)
    if "modulo" in on:
        ids = ids % n
    if "one too many" in on:
        ids = ids + 1
    if "one too few" in on:
        ids = torch.where(ids == 0, n, ids) - 1
    if "by position" in on and ids.ndim:
        ids = torch.arange(ids.shape[-1]).expand(ids.shape)
    if "sorted" in on and ids.ndim:
        ids = ids.sort(-1).values
    if "each id once" in on:
        ids = ids.unique()
    return ids


LOOKED_UP = {
    "scaled": lambda out: out * math.sqrt(out.shape[-1]),
    "positions summed": lambda out: out.sum(-2) if out.ndim > 1 else out,
    "positions averaged": lambda out: out.mean(-2) if out.ndim > 1 else out,
    "flattened": lambda out: out.reshape(-1, out.shape[-1]),
    "joined": lambda out: out.flatten(-2) if out.ndim > 1 else out,
    "axes of 1 lost": lambda out: out.squeeze(),
    "transposed": lambda out: out.mT if out.ndim > 1 else out,
}


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


def _eighths(g: Generator, *shape: int) -> Tensor:
    """Numbers of which bf16 loses nothing, neither in a product nor in a sum of a few."""
    return torch.randint(-4, 5, shape, generator=g) / 4


def _ids(g: Generator, *shape: int, below: int = 7) -> Tensor:
    return torch.randint(below, shape, generator=g)


LINEAR = Exercise(
    name="linear",
    lesson="02",
    reference=linear,
    probes=(
        Probe(
            "one dot product with each row of the weight: of 1 2 with 3 4 and with 5 6",
            lambda g: (torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])),
        ),
        Probe("two inputs, three outputs", lambda g: (torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0], [5.0, 6.0], [7.0, -8.0]]))),
        Probe("inputs of 0 give outputs of 0: there is no bias", lambda g: (torch.zeros(3), _x(g, 2, 3))),
        Probe("each vector of x is mapped by itself", lambda g: (_x(g, 3, 3), _x(g, 3, 3))),
        Probe("each vector of x is mapped by itself", lambda g: (_x(g, 4, 5), _x(g, 3, 5))),
        Probe("any leading dimensions", lambda g: (_x(g, 2, 4, 5), _x(g, 3, 5))),
        Probe("any leading dimensions", lambda g: (_x(g, 2, 3, 4, 5), _x(g, 7, 5))),
        Probe("a dimension of size 1 stays", lambda g: (_x(g, 1, 4, 1), _x(g, 3, 1))),
        Probe("a dimension of size 1 stays", lambda g: (_x(g, 2, 1, 5), _x(g, 1, 5))),
        Probe("any strides", lambda g: (_x(g, 5, 4, 2).transpose(0, 2), _x(g, 5, 3).mT)),
        Probe("gradients reach x and weight", lambda g: (_x(g, 2, 4, 5), _x(g, 3, 5)), gradients=True),
        Probe("fp64 in, fp64 out", lambda g: (_x(g, 4, 5).double(), _x(g, 3, 5).double())),
        Probe("bf16 in, bf16 out", lambda g: (_eighths(g, 2, 4, 5).bfloat16(), _eighths(g, 3, 5).bfloat16())),
    ),
    faults={
        "not transposed": Fault("the weight is used with the shape (in, out)", "It is (out, in): one row per output. Which axis of the weight must meet the last axis of x? A square weight hides the question."),
        "weight first": Fault("the weight comes before x in the product", "`weight @ x` is right for a single vector. With leading dimensions, the sum must be over the last axis of x, so x comes first."),
        "result transposed": Fault("the outputs are where the positions belong", "The last axis of the result is (out), so x comes first in the product."),
        "reshaped": Fault("the weight is reshaped instead of transposed", "Both give the shape (in, out), but `reshape` and `view` keep the order of the numbers and only cut it into other rows."),
        "first axis of x": Fault("the first axis of x is summed over", "The features are the last axis of x, whatever comes before."),
        "first vector alone": Fault("only the first vector of x is mapped", "Every vector of x is mapped, each by itself."),
        "positions summed": Fault("the results of all vectors are added up", "Each vector keeps its own result: only the last axis is summed over."),
        "not summed": Fault("the products are not added up", "A dot product ends with a sum over the inputs."),
        "mean": Fault("the products are averaged", "A dot product is the sum of the products, not their mean."),
        "scaled": Fault("the result is divided by the root of the number of inputs", "That belongs to the initial weights (and to attention), not to the map."),
        "bias": Fault("1 is added to every output", "This map has no bias: 0 becomes 0."),
        "x added": Fault("x itself is added", "That is a residual connection. Return the result of the map alone."),
        "relu": Fault("negative outputs are cut off", "A linear map has no activation."),
        "softmax": Fault("the outputs are turned into probabilities", "A linear map has no activation."),
        "last output 0": Fault("the last output is left at 0", "Each row of the weight gives one output: where does your loop end?"),
        "first input left out": Fault("the first input is left out", "All inputs take part: where does your loop begin?"),
        "last input left out": Fault("the last input is left out", "All inputs take part: where does your loop end?"),
        "one output": Fault("only the first row of the weight is used", "Each of its rows gives one output."),
        "unit rows": Fault("the rows of the weight are normalized", "Use the rows as they are."),
        "flattened": Fault("the leading dimensions are flattened into one, or one is added", "(..., in) becomes (..., out): all axes before the last one stay, and a single vector gives a single vector."),
        "axes of 1 lost": Fault("axes of size 1 are squeezed away", "A batch of one is a batch. Look for `squeeze`."),
        "x cut": Fault("no gradient reaches x", "Then the layers before this one could not learn: use no `detach`, `.data` or `no_grad` here."),
        "weight cut": Fault("no gradient reaches the weight", "Then the weight could not learn: use no `detach`, `.data` or `no_grad` here."),
        "in place": Fault("the caller's weight is transposed in place", "A method whose name ends in `_` writes into its tensor, so the next call gets a changed weight."),
        "fp32": Fault("the result is always fp32", "The result should have the dtype of the inputs, also for bf16 and fp64."),
    },
    hints=(
        "Each output is the dot product of x with one row of the weight.",
        "A matrix product sums over the last axis of its left side and the last but one of its right side: what must happen to a weight of shape (out, in)?",
        "`@` keeps any leading dimensions of x, as long as x is on the left.",
    ),
)  # fmt: skip
EMBEDDING = Exercise(
    name="embedding",
    lesson="02",
    reference=embedding,
    probes=(
        Probe("ids 2 and 0 name row 2 and row 0", lambda g: (torch.tensor([2, 0]), torch.tensor([[0.1, 0.2, 0.3], [1.1, 1.2, 1.3], [2.1, 2.2, 2.3]]))),
        Probe("an id gives the same row at every position", lambda g: (torch.tensor([1, 3, 1, 0]), _x(g, 4, 2))),
        Probe("the first row and the last row have ids, too", lambda g: (torch.tensor([6, 0, 6, 3]), _x(g, 7, 3))),
        Probe("any leading dimensions", lambda g: (_ids(g, 2, 4), _x(g, 7, 5))),
        Probe("any leading dimensions", lambda g: (_ids(g, 2, 3, 4), _x(g, 7, 5))),
        Probe("any leading dimensions: a single id, too", lambda g: (torch.tensor(4), _x(g, 7, 5))),
        Probe("a dimension of size 1 stays", lambda g: (_ids(g, 1, 3), _x(g, 7, 1))),
        Probe("any strides", lambda g: (_ids(g, 4, 2).mT, _x(g, 5, 7).mT)),
        Probe("gradients reach the table: a row that is looked up twice gets both", lambda g: (torch.tensor([[2, 0, 2], [4, 2, 0]]), _x(g, 6, 3)), gradients=True),
        Probe("the dtype is the table's", lambda g: (_ids(g, 2, 4), _x(g, 7, 5).double())),
        Probe("the dtype is the table's", lambda g: (_ids(g, 2, 4), _x(g, 7, 5).bfloat16())),
        Probe("a negative id is an IndexError, not a row counted from the end", lambda g: (torch.tensor([2, -1, 0]), _x(g, 7, 5))),
        Probe("an id of V or more is an IndexError", lambda g: (torch.tensor([2, 7, 0]), _x(g, 7, 5))),
        Probe("ids far outside are an IndexError", lambda g: (torch.tensor([[1, -100]]), _x(g, 7, 5))),
        Probe("ids far outside are an IndexError", lambda g: (torch.tensor([[50_000], [1]]), _x(g, 7, 5))),
    ),
    faults={
        "columns": Fault("columns are looked up", "One row per id: the table is (V, C), and its first axis is the vocabulary."),
        "one too many": Fault("the row after the right one is taken", "Ids count from 0, so id 0 is the first row."),
        "one too few": Fault("the row before the right one is taken", "Ids count from 0, so id 0 is the first row, and no `- 1` is needed."),
        "by position": Fault("rows are looked up by position", "The position of a token does not matter here: its id determines the row."),
        "sorted": Fault("the ids are sorted", "The rows must be in the order of the ids."),
        "each id once": Fault("every id is looked up once", "An id that occurs twice gives its row twice: (...) becomes (..., C)."),
        "scaled": Fault("the rows are multiplied by the root of C", "Some models do that afterwards; the embedding is the row itself."),
        "unit rows": Fault("the rows are normalized", "The embedding is the row itself."),
        "positions summed": Fault("the rows of a sequence are added up", "Every id keeps its own vector: (...) becomes (..., C)."),
        "positions averaged": Fault("the rows of a sequence are averaged", "Every id keeps its own vector: (...) becomes (..., C)."),
        "flattened": Fault("the leading dimensions are flattened into one, or one is added", "(...) becomes (..., C): the shape of the ids stays, and C comes after it."),
        "joined": Fault("the rows of a sequence are joined to one long vector", "(...) becomes (..., C): the shape of the ids stays, and C comes after it."),
        "axes of 1 lost": Fault("axes of size 1 are squeezed away", "A batch of one is a batch. Look for `squeeze`."),
        "transposed": Fault("the last two axes of the result are swapped", "C is the last axis."),
        "padding": Fault("id 0 is taken for padding", "Token 0 is a token like any other, so its row is used."),
        "padding not learnt": Fault("row 0 gets no gradient", "Token 0 is a token like any other; look for `padding_idx`."),
        "by frequency": Fault("the gradient of a row is divided by how often it was looked up", "Each occurrence adds its own gradient; look for `scale_grad_by_freq`."),
        "table cut": Fault("no gradient reaches the table", "Then the table could not learn: use no `detach`, `.data`, `no_grad` or `tolist` on the way."),
        "table changed": Fault("the caller's table is changed", "A look-up only reads. Look for `max_norm` or an assignment."),
        "fp32": Fault("the result is always fp32", "The result has the dtype of the table."),
        "from the end": Fault("a negative id counts from the end of the table", "This is how Python indexes, so -1, which marks padding in many programs, becomes the last token and no error is raised. Raise an IndexError."),
        "clamped": Fault("an id out of range is moved to the nearest row", "Then nobody notices a mistake in the data. Raise an IndexError."),
        "negative is 0": Fault("a negative id becomes 0", "Then nobody notices a mistake in the data. Raise an IndexError."),
        "modulo": Fault("an id out of range is taken modulo V", "Then nobody notices a mistake in the data. Raise an IndexError."),
        "zeros outside": Fault("an id out of range gives a vector of zeros", "Then nobody notices a mistake in the data. Raise an IndexError."),
        "ValueError": Fault("an id out of range raises a ValueError", "It should be an IndexError, as for a list, because that is the error that the caller expects."),
        "AssertionError": Fault("an id out of range fails an `assert`", "`assert` is for mistakes in your own code, and `python -O` leaves it out. Raise an IndexError."),
        "RuntimeError": Fault("an id out of range raises a RuntimeError", "It should be an IndexError. (`one_hot` raises its own error, so check the ids before you call it.)"),
    },
    hints=(
        "A tensor can be indexed with a tensor of integers: what shape comes out?",
        "You can also use a product: a row of zeros with a single 1, times the table, is one of its rows.",
        "Indexing accepts -1 without an error. Compare the ids with 0 and with V first, and raise an IndexError.",
    ),
)  # fmt: skip

EXERCISES = (LINEAR, EMBEDDING)
