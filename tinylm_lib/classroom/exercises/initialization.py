"""Lesson 10: the first weights."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import layers
from .base import Exercise, Probe, texts


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
    **texts("init_weights"),
)

EXERCISES = (INIT_WEIGHTS,)
