"""Lesson 10: the first weights."""

import copy
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from tinylm_lib import layers

from .base import Exercise, Probe, chosen, texts


def init_weights(module: nn.Module, std: float, on: frozenset[str] = frozenset()) -> None:
    """Fills all linear maps and embeddings inside a module, itself included, and makes the mistakes
    that are `on`.
    """
    if "a copy" in on:
        module = copy.deepcopy(module)
    reached = {
        "itself only": lambda: [module],
        "one level": module.children,
        "not itself": lambda: list(module.modules())[1:],
        "exact kinds": lambda: [
            part for part in module.modules() if type(part) in (nn.Linear, nn.Embedding)
        ],
    }
    with torch.no_grad():
        for part in chosen(on, module.modules(), reached):
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


def _fill(weight: Tensor, std: float, on: frozenset[str]) -> None:
    """N(0, std^2), each number by itself."""
    spreads = {
        "fixed std": lambda: 0.02,
        "std unused": lambda: 1.0,
        "squared": lambda: std**2,
        "root": lambda: std**0.5,
        "by width": lambda: std / weight.shape[1] ** 0.5,
    }
    spread = chosen(on, std, spreads)
    others = {
        "added": lambda: weight.add_(spread * torch.randn_like(weight)),
        "std for the mean": lambda: weight.normal_(std, 1.0),
        "uniform": lambda: weight.uniform_(-spread, spread),
        "uniform of that spread": lambda: weight.uniform_(-spread * 3**0.5, spread * 3**0.5),
        "xavier": lambda: nn.init.xavier_uniform_(weight),
        "xavier, normal": lambda: nn.init.xavier_normal_(weight),
        "kaiming": lambda: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
        "kaiming, uniform": lambda: nn.init.kaiming_uniform_(weight),
        "orthogonal": lambda: nn.init.orthogonal_(weight),
        "scaled": lambda: weight.mul_(spread),
        "positive": lambda: weight.normal_(0.0, spread).abs_(),
        "from 0": lambda: weight.uniform_(0.0, spread),
        "truncated": lambda: nn.init.trunc_normal_(weight, std=spread, a=-2 * spread, b=2 * spread),
        "cut at one": lambda: nn.init.trunc_normal_(weight, std=spread, a=-spread, b=spread),
        "all the same": lambda: weight.fill_(spread),
        "zeros": weight.zero_,
        "one row": lambda: weight.copy_(spread * torch.randn(weight.shape[1])),
        "one draw": lambda: weight.normal_(0.0, spread, generator=torch.Generator().manual_seed(0)),
    }
    if chosen(on, None, others) is None:
        weight.normal_(0.0, spread)


def _fill_bias(bias: Tensor, std: float, on: frozenset[str]) -> None:
    others = {
        "vectors one": lambda: bias.fill_(1.0),
        "all drawn": lambda: bias.normal_(0.0, std),
        "biases drawn": lambda: bias.normal_(0.0, std),
        "biases of std": lambda: bias.fill_(std),
        "biases kept": lambda: bias,
    }
    if chosen(on, None, others) is None:
        bias.zero_()


def _spoil_norm(norm: nn.Module, std: float, on: frozenset[str]) -> None:
    """A norm keeps its ones and zeros; only mistakes touch it."""
    gains = {
        "gains drawn": lambda: norm.weight.normal_(0.0, std),
        "all drawn": lambda: norm.weight.normal_(0.0, std),
        "gains about one": lambda: norm.weight.normal_(1.0, std),
        "gains of std": lambda: norm.weight.fill_(std),
        "gains zero": lambda: norm.weight.zero_(),
    }
    offsets = {
        "all drawn": lambda: norm.bias.normal_(0.0, std),
        "offsets drawn": lambda: norm.bias.normal_(0.0, std),
        "vectors one": lambda: norm.bias.fill_(1.0),
    }
    chosen(on, None, gains)
    if getattr(norm, "bias", None) is not None:
        chosen(on, None, offsets)


# Each is torch's and the library's own at once, so that it does not matter by which name a learner
# looks for it.
class Linear(layers.Linear, nn.Linear):
    """A linear map whose weights are all 0.7 and whose biases are all 0.3."""

    def __init__(self, n_in: int, n_out: int, bias: bool = True):
        nn.Module.__init__(self)
        self.in_features = n_in
        self.out_features = n_out
        self.weight = nn.Parameter(torch.full((n_out, n_in), 0.7))
        self.bias = nn.Parameter(torch.full((n_out,), 0.3)) if bias else None


class Embedding(layers.Embedding, nn.Embedding):
    """An embedding that holds 0.7 throughout."""

    def __init__(self, n_rows: int, width: int):
        nn.Module.__init__(self)
        self.num_embeddings = n_rows
        self.embedding_dim = width
        self.padding_idx = None
        self.weight = nn.Parameter(torch.full((n_rows, width), 0.7))


class RMSNorm(layers.RMSNorm, nn.RMSNorm):
    """As the library's."""

    def __init__(self, width: int):
        nn.Module.__init__(self)
        self.eps = 1e-5
        self.normalized_shape = (width,)
        self.weight = nn.Parameter(torch.ones(width))


class LayerNorm(layers.LayerNorm, nn.LayerNorm):
    """As the library's."""

    def __init__(self, width: int):
        nn.Module.__init__(self)
        self.eps = 1e-5
        self.normalized_shape = (width,)
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))


class Residual(nn.Module):
    """Two norms, a map, and something inside: what a block looks like from outside."""

    def __init__(self, width: int, inside: nn.Module):
        super().__init__()
        self.attn_norm = RMSNorm(width)
        self.ffn_norm = LayerNorm(width)
        self.up_proj = Linear(width, 2 * width)
        self.inside = inside


def _sequence(**parts: nn.Module) -> nn.Module:
    module = nn.Sequential()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


def _filled(arguments: tuple, _: Any) -> dict[str, Any]:
    """What the parameters look like: one number where all are equal, the spread in std and the
    shape of the others.
    """
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
    """Whether all matrices of a module differ, all parameters still learn, and maps keep their
    shapes.
    """
    matrices = [p for p in arguments[0].parameters() if p.ndim == 2]
    pairs = combinations(matrices, 2)
    apart = all(not torch.equal(a, b) for a, b in pairs if a.shape == b.shape)
    maps = [part for part in arguments[0].modules() if isinstance(part, nn.Linear)]
    shapes = all(tuple(part.weight.shape) == (part.out_features, part.in_features) for part in maps)
    learn = all(p.requires_grad for p in arguments[0].parameters())
    return {"each matrix is drawn again": apart, "all learn": learn, "shapes stay": shapes}


def _tied(n_rows: int, width: int) -> nn.Module:
    module = _sequence(embed=Embedding(n_rows, width), head=Linear(width, n_rows, bias=False))
    module.head.weight = module.embed.weight
    return module


def _alike(n_in: int, n_out: int) -> nn.Module:
    """A map of torch's own kind, all ones, next to one of a subclass."""
    module = _sequence(plain=nn.Linear(n_in, n_out), map=Linear(n_in, n_out))
    nn.init.ones_(module.plain.weight)
    return module


def _filled_alike(arguments: tuple, _: Any) -> dict[str, Any]:
    """Whether the map of a subclass is filled; a learner may also have looked for the library's
    kind of maps alone.
    """
    plain, other = ((part.weight != part.weight[0, 0]).any().item() for part in arguments[0])
    return {
        "a subclass of nn.Linear is filled": other,
        "only nn.Linear itself is filled": plain and not other,
    }


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
            "the weights of a map are normal, with the given std",
            lambda g: (_sequence(map=Linear(120, 90)), 0.02),
            sees=_filled,
        ),
        Probe(
            "std may be any number", lambda g: (_sequence(map=Linear(90, 120)), 0.5), sees=_filled
        ),
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
            lambda g: (
                _sequence(embed=Embedding(110, 100), head=Linear(100, 110, bias=False)),
                0.02,
            ),
            sees=_filled,
        ),
        Probe(
            "everything is reached, however deep it is",
            lambda g: (
                _sequence(block=Residual(80, _sequence(deep=_sequence(map=Linear(80, 130))))),
                0.1,
            ),
            sees=_filled,
        ),
        Probe(
            "the module itself may be a map or an embedding",
            lambda g: (Linear(120, 90), 0.02),
            sees=_filled,
        ),
        Probe(
            "the module itself may be a map or an embedding",
            lambda g: (Embedding(150, 80), 0.2),
            sees=_filled,
        ),
        Probe(
            "every matrix is drawn separately",
            lambda g: (
                nn.ModuleList([Residual(20, Linear(20, 40)), Residual(20, Linear(20, 40))]),
                0.02,
            ),
            sees=_drawn_apart,
        ),
        Probe(
            "a subclass of nn.Linear is filled, too",
            lambda g: (_alike(20, 30), 0.02),
            sees=_filled_alike,
        ),
        Probe("a tied head stays tied", lambda g: (_tied(90, 60), 0.02), sees=_still_tied),
    ),
    **texts("init_weights"),
)

EXERCISES = (INIT_WEIGHTS,)
