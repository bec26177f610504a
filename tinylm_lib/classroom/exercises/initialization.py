"""Lesson 10: the first weights."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import layers
from .base import Exercise, Fault, Probe


def init_weights(module: nn.Module, std: float, on: frozenset[str] = frozenset()) -> None:
    """Fills all linear maps and embeddings inside a module, itself included, and makes the mistakes that are `on`."""
    if "a copy" in on:
        module = copy.deepcopy(module)
    with torch.no_grad():
        for part in _reached(module, on):
            if "replaced" in on and isinstance(part, nn.Linear | nn.Embedding):
                part.weight = nn.Parameter(part.weight.clone())
            if isinstance(part, nn.Linear):
                if "maps kept" not in on:
                    _fill(part.weight, std, on)
                if part.bias is not None or "always a bias" in on:
                    _fill_bias(part.bias, std, on)
            elif isinstance(part, nn.Embedding) and "embeddings kept" not in on:
                _fill(part.weight, 1.0 if "wide embeddings" in on else std, on)
            elif isinstance(part, nn.LayerNorm | nn.RMSNorm):
                _spoil_norm(part, std, on)


def _reached(module: nn.Module, on: frozenset[str]) -> Iterable[nn.Module]:
    if "itself only" in on:
        return [module]
    if "one level" in on:
        return module.children()
    return list(module.modules())[1:] if "not itself" in on else module.modules()


def _fill(weight: Tensor, std: float, on: frozenset[str]) -> None:
    """N(0, std^2), each number by itself."""
    spread = 0.02 if "fixed std" in on else 1.0 if "std unused" in on else std
    spread = spread**2 if "squared" in on else spread**0.5 if "root" in on else spread
    if "by width" in on:
        spread = spread / weight.shape[1] ** 0.5
    if "added" in on:
        weight.add_(spread * torch.randn_like(weight))
    elif "std for the mean" in on:
        weight.normal_(std, 1.0)
    elif "uniform" in on:
        weight.uniform_(-spread, spread)
    elif "uniform of that spread" in on:
        weight.uniform_(-spread * 3**0.5, spread * 3**0.5)
    elif "xavier" in on:
        nn.init.xavier_uniform_(weight)
    elif "orthogonal" in on:
        nn.init.orthogonal_(weight)
    elif "scaled" in on:
        weight.mul_(spread)
    elif "xavier, normal" in on:
        nn.init.xavier_normal_(weight)
    elif "kaiming, uniform" in on:
        nn.init.kaiming_uniform_(weight)
    elif "positive" in on:
        weight.normal_(0.0, spread).abs_()
    elif "from 0" in on:
        weight.uniform_(0.0, spread)
    elif "kaiming" in on:
        nn.init.kaiming_normal_(weight, nonlinearity="relu")
    elif "truncated" in on or "cut at one" in on:
        end = spread if "cut at one" in on else 2 * spread
        nn.init.trunc_normal_(weight, std=spread, a=-end, b=end)
    elif "all the same" in on or "zeros" in on:
        weight.fill_(0.0 if "zeros" in on else spread)
    elif "one row" in on:
        weight.copy_(spread * torch.randn(weight.shape[1]))
    else:
        seeded = torch.Generator().manual_seed(0) if "one draw" in on else None
        weight.normal_(0.0, spread, generator=seeded)


def _fill_bias(bias: Tensor, std: float, on: frozenset[str]) -> None:
    if "vectors one" in on:
        bias.fill_(1.0)
    elif "all drawn" in on or "biases drawn" in on:
        bias.normal_(0.0, std)
    elif "biases of std" in on:
        bias.fill_(std)
    elif "biases kept" not in on:
        bias.zero_()


def _spoil_norm(norm: nn.Module, std: float, on: frozenset[str]) -> None:
    """A norm keeps its ones and zeros; only mistakes touch it."""
    if "gains drawn" in on or "all drawn" in on:
        norm.weight.normal_(0.0, std)
    if "gains about one" in on:
        norm.weight.normal_(1.0, std)
    if "gains of std" in on:
        norm.weight.fill_(std)
    if "gains zero" in on:
        norm.weight.zero_()
    if getattr(norm, "bias", None) is not None:
        if "all drawn" in on or "offsets drawn" in on:
            norm.bias.normal_(0.0, std)
        if "vectors one" in on:
            norm.bias.fill_(1.0)


# Each is torch's and the library's own at once, so that it does not matter by which name a learner looks for it.
class Linear(layers.Linear, nn.Linear):
    """A linear map whose weights are all 0.7 and whose biases are all 0.3."""

    def __init__(self, n_in: int, n_out: int, bias: bool = True):
        nn.Module.__init__(self)
        self.in_features, self.out_features = n_in, n_out
        self.weight = nn.Parameter(torch.full((n_out, n_in), 0.7))
        self.bias = nn.Parameter(torch.full((n_out,), 0.3)) if bias else None


class Embedding(layers.Embedding, nn.Embedding):
    """An embedding that holds 0.7 throughout."""

    def __init__(self, n_rows: int, width: int):
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim, self.padding_idx = n_rows, width, None
        self.weight = nn.Parameter(torch.full((n_rows, width), 0.7))


class RMSNorm(layers.RMSNorm, nn.RMSNorm):
    """As the library's."""

    def __init__(self, width: int):
        nn.Module.__init__(self)
        self.eps, self.normalized_shape = 1e-5, (width,)
        self.weight = nn.Parameter(torch.ones(width))


class LayerNorm(layers.LayerNorm, nn.LayerNorm):
    """As the library's."""

    def __init__(self, width: int):
        nn.Module.__init__(self)
        self.eps, self.normalized_shape = 1e-5, (width,)
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))


class Residual(nn.Module):
    """Two norms, a map, and something inside: what a block looks like from outside."""

    def __init__(self, width: int, inside: nn.Module):
        super().__init__()
        self.attn_norm, self.ffn_norm = RMSNorm(width), LayerNorm(width)
        self.up_proj, self.inside = Linear(width, 2 * width), inside


def _sequence(**parts: nn.Module) -> nn.Module:
    module = nn.Sequential()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


def _filled(arguments: tuple, _: Any) -> dict[str, Any]:
    """What the parameters look like: one number where all are equal, the spread in std and the shape of the others."""
    module, std = arguments
    found: dict[str, Any] = {}
    for name, p in module.named_parameters():
        t = p.detach().double()
        if (t == t.flatten()[0]).all():
            found[name] = round(t.flatten()[0].item(), 4)
        elif t.ndim < 2:
            found[name] = f"drawn about {abs(round(t.mean().item()))}"
        else:
            ratio = t.std().item() / std
            found[f"spread of {name} / std"] = 1.0 if abs(ratio - 1) < 0.05 else ratio
            found[f"{name} is"] = _shape(t)
    return found


def _shape(t: Tensor) -> str:
    some = t.flatten()[:2000]
    if some.unique().numel() < some.numel() / 2:
        return "repeated"
    if abs(t.mean()) > 0.1 * t.std():
        return "off centre"
    far = ((t - t.mean()).abs() > 2.5 * t.std()).double().mean()  # 1.24 % of a normal distribution
    return "normal" if 0.007 < far < 0.018 else "not normal"


def _drawn_apart(arguments: tuple, _: Any) -> dict[str, Any]:
    """Whether all matrices of a module differ, all parameters still learn, and maps keep their shapes."""
    matrices = [p for p in arguments[0].parameters() if p.ndim == 2]
    apart = all(not torch.equal(a, b) for i, a in enumerate(matrices) for b in matrices[:i] if a.shape == b.shape)
    maps = [part for part in arguments[0].modules() if isinstance(part, nn.Linear)]
    shapes = all(tuple(part.weight.shape) == (part.out_features, part.in_features) for part in maps)
    learn = all(p.requires_grad for p in arguments[0].parameters())
    return {"each matrix is drawn again": apart, "all learn": learn, "shapes stay": shapes}


def _tied(n_rows: int, width: int) -> nn.Module:
    module = _sequence(embed=Embedding(n_rows, width), head=Linear(width, n_rows, bias=False))
    module.head.weight = module.embed.weight
    return module


def _still_tied(arguments: tuple, _: Any) -> dict[str, Any]:
    module = arguments[0]
    return {"head and embedding are one tensor": module.head.weight is module.embed.weight}


INIT_WEIGHTS = Exercise(
    name="init_weights",
    lesson="10",
    order=1,
    reference=init_weights,
    probes=(
        Probe(
            "the weights of a map are normal with the given std",
            lambda g: (_sequence(map=Linear(120, 90)), 0.02),
            sees=_filled,
        ),
        Probe("any std", lambda g: (_sequence(map=Linear(90, 120)), 0.5), sees=_filled),
        Probe(
            "an embedding is filled in the same way",
            lambda g: (_sequence(embed=Embedding(150, 80)), 0.05),
            sees=_filled,
        ),
        Probe(
            "norms keep their ones and zeros",
            lambda g: (_sequence(attn_norm=RMSNorm(60), ffn_norm=LayerNorm(80)), 0.1),
            sees=_filled,
        ),
        Probe(
            "a map without a bias is filled, too",
            lambda g: (_sequence(embed=Embedding(110, 100), head=Linear(100, 110, bias=False)), 0.02),
            sees=_filled,
        ),
        Probe(
            "everything is reached, however deep it is",
            lambda g: (_sequence(block=Residual(80, _sequence(deep=_sequence(map=Linear(80, 130))))), 0.1),
            sees=_filled,
        ),
        Probe("all is reached, the module itself included", lambda g: (Linear(120, 90), 0.02), sees=_filled),
        Probe("all is reached, the module itself included", lambda g: (Embedding(150, 80), 0.2), sees=_filled),
        Probe(
            "every matrix is drawn separately",
            lambda g: (nn.ModuleList([Residual(20, Linear(20, 40)), Residual(20, Linear(20, 40))]), 0.02),
            sees=_drawn_apart,
        ),
        Probe("what is tied stays tied", lambda g: (_tied(90, 60), 0.02), sees=_still_tied),
    ),
    faults={
        "a copy": Fault("a copy is filled", "The caller keeps the old weights: fill the module that was given."),
        "replaced": Fault(
            "the tensors are replaced with new ones",
            "A module that shares a tensor keeps the old one, so a tied head is no longer tied. Fill the tensor that is there.",
        ),
        "itself only": Fault(
            "only the module itself is filled",
            "It contains other modules, and these contain others: how do you visit all of them?",
        ),
        "one level": Fault(
            "only the direct children are visited", "There are maps further inside, in modules of modules."
        ),
        "not itself": Fault("the module itself is left out", "It may be a linear map or an embedding."),
        "maps kept": Fault("linear maps are left as they were", "Their weights should be drawn."),
        "embeddings kept": Fault(
            "embeddings are left as they were",
            "PyTorch draws them with a std of 1, which is far too wide for a tied head.",
        ),
        "wide embeddings": Fault(
            "embeddings get a std of 1", "If the head is tied, this makes the first loss enormous."
        ),
        "biases kept": Fault("the biases are left as they were", "They start at zero."),
        "biases drawn": Fault("the biases are drawn", "They start at zero."),
        "biases of std": Fault("the biases become std", "They start at zero."),
        "always a bias": Fault(
            "everything is expected to have a bias",
            "A map without one has `bias` None, and an embedding has no `bias` at all.",
        ),
        "all drawn": Fault(
            "every parameter is drawn",
            "With gains near 0 the logits are nearly equal: the first loss looks perfect, and gradients vanish.",
        ),
        "gains drawn": Fault(
            "the gains of norms are drawn",
            "Gains near 0 silence the stream: the first loss looks perfect, and gradients vanish.",
        ),
        "gains about one": Fault("noise is added to the gains of norms", "They keep their ones."),
        "gains of std": Fault("the gains of norms become std", "They keep their ones."),
        "gains zero": Fault("the gains of norms become zero", "Then nothing passes. Not every vector is a bias."),
        "offsets drawn": Fault("the offsets of norms are drawn", "They keep their zeros."),
        "vectors one": Fault("all vectors become one", "Gains are one; biases and offsets are zero."),
        "fixed std": Fault("the std is always 0.02", "Use the std of the caller."),
        "std unused": Fault("the std is always 1", "Use the std of the caller."),
        "squared": Fault(
            "std is squared", "PyTorch's `normal_` takes the standard deviation itself, not the variance."
        ),
        "root": Fault("the root of std is taken", "std is the standard deviation already."),
        "std for the mean": Fault(
            "std is given as the mean", "Look at the order of the arguments: the mean comes first, and is 0."
        ),
        "by width": Fault("the std is divided by the root of the width", "The given std is meant for every matrix."),
        "uniform": Fault(
            "the weights are uniform from -std to std",
            "Draw them from a normal distribution; these are narrower as well.",
        ),
        "uniform of that spread": Fault("the weights are uniform", "Draw them from a normal distribution."),
        "xavier": Fault(
            "the spread is Xavier's", "It comes from the sizes of the matrix; here the caller gives the std."
        ),
        "orthogonal": Fault("the rows are orthogonal", "Each number is drawn by itself."),
        "scaled": Fault("the old weights are multiplied by std", "They are drawn again."),
        "kaiming": Fault(
            "the spread is Kaiming's", "It comes from the sizes of the matrix; here the caller gives the std."
        ),
        "cut at one": Fault("the distribution is cut at one std", "What is left is narrower by nearly a half."),
        "positive": Fault("all weights are positive", "Their mean is 0: half of them are negative."),
        "from 0": Fault("the weights are uniform from 0 to std", "Draw them from a normal distribution with mean 0."),
        "xavier, normal": Fault(
            "the spread is Xavier's", "It comes from the sizes of the matrix; here the caller gives the std."
        ),
        "kaiming, uniform": Fault(
            "the weights are PyTorch's usual ones", "Draw them from a normal distribution with the given std."
        ),
        "truncated": Fault("the distribution is cut at two std", "What is left is narrower by an eighth."),
        "added": Fault("noise is added to what was there", "The new weights replace the old ones."),
        "all the same": Fault("all weights are equal", "Then all features learn the same forever."),
        "zeros": Fault("all weights are zero", "Then nothing distinguishes the features, and they learn the same."),
        "one row": Fault("all rows are equal", "Then all outputs of a map are the same: draw each number."),
        "one draw": Fault(
            "the generator is seeded again for each matrix",
            "Then matrices start with the same numbers. Continue with the same generator.",
        ),
    },
    hints=(
        "`modules()` visits a module and everything inside it. Which kinds of modules need new weights?",
        "The functions of `nn.init` write in place and switch gradients off while they do. A tensor's own `normal_` and `zero_` need `with torch.no_grad():` around them.",
        "A norm also has a `weight`. Choose by the kind of the module, not by the name of the parameter.",
    ),
)

EXERCISES = (INIT_WEIGHTS,)
