"""Low-rank adaptation: frozen matrices, each with a small trained update next to it.

Notebook 18.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from .files import explained, whole_file
from .inputs import unwrapped
from .layers import Linear, at_least_fp32, cast
from .quantization import Int8Weight


class LoRA(nn.Module):
    """A frozen `Linear` W and a trained update of rank r: y = W x + (alpha / r) B A x.

    lora_a (r, in) starts as N(0, 1 / in), lora_b (out, r) at 0, so that nothing changes at first.
    Both are in fp32 at least. alpha: default r, so that the factor is 1.
    Raises ValueError for a rank outside 1..min(in, out) and an alpha that is not above 0.
    Source: Hu et al. 2021, "LoRA", section 4.1.
    """

    original: Tensor | None

    def __init__(self, linear: Linear, rank: int, alpha: float | None = None):
        super().__init__()
        n_out, n_in = linear.weight.shape
        if not isinstance(rank, int) or not 1 <= rank <= min(n_in, n_out):
            raise ValueError(
                f"rank must be 1 to {min(n_in, n_out)} for a matrix ({n_out}, {n_in}), got {rank!r}"
            )
        self.rank = rank
        self.alpha = float(rank if alpha is None else alpha)
        if not 0 < self.alpha < math.inf:
            raise ValueError(
                f"alpha must be above 0, got {alpha!r}; alpha / rank is the factor of the update"
            )
        self.linear = linear.requires_grad_(False)
        device = linear.weight.device
        dtype = torch.promote_types(linear.weight.dtype, torch.float32)
        self.lora_a = nn.Parameter(
            torch.randn(rank, n_in, device=device, dtype=dtype) / math.sqrt(n_in)
        )
        self.lora_b = nn.Parameter(torch.zeros(n_out, rank, device=device, dtype=dtype))
        # the frozen weight, while the update is merged
        self.register_buffer("original", None, persistent=False)

    @property
    def scale(self) -> float:
        """alpha / rank, the factor of the update."""
        return self.alpha / self.rank

    @property
    def update(self) -> Tensor:
        """(alpha / rank) B A, what is added to the weight: (out, in)."""
        return self.scale * (self.lora_b @ self.lora_a)  # (N, R) @ (R, M) -> (N, M)

    @property
    def weight(self) -> Tensor:
        """The weight together with its update, (out, in), in the dtype of the weight."""
        frozen = self.linear.weight
        if self.original is not None:
            return frozen
        full = frozen.dequantized() if isinstance(frozen, Int8Weight) else frozen
        return cast(at_least_fp32(full) + self.update, full.dtype)

    @property
    def bias(self) -> Tensor | None:
        """The frozen bias (out,), if there is one."""
        return self.linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in). Returns (..., out) in the dtype that the frozen map gives it."""
        y: Tensor = self.linear(x)  # (..., M) -> (..., N)
        if self.original is not None:
            return y
        down = F.linear(cast(x, self.lora_a.dtype), self.lora_a)  # (..., M) -> (..., R)
        return y + cast(self.scale * F.linear(down, self.lora_b), y.dtype)  # (..., R) -> (..., N)

    @torch.no_grad()
    def merge(self) -> None:
        """Add the update to the weight, so that only one product is left. The weight before is
        kept.

        Raises ValueError where it is merged already, in training mode, and for a weight in 8 bits.
        """
        if self.original is not None:
            raise ValueError("the update is merged already; added twice it would count twice")
        if self.training:
            raise ValueError(
                "an update cannot be merged in training mode; train it to the end, then use "
                "model.eval()"
            )
        if isinstance(self.linear.weight, Int8Weight):
            raise ValueError(
                "weights in 8 bits cannot take an update; merge it into the model in full, then "
                "quantize"
            )
        merged = self.weight
        self.original = self.linear.weight.clone()
        self.linear.weight.copy_(merged)

    @torch.no_grad()
    def unmerge(self) -> None:
        """Put the weight back that was there before `merge`, bit for bit.

        Raises ValueError where nothing is merged.
        """
        if self.original is None:
            raise ValueError("the update is not merged, so there is nothing to take out")
        self.linear.weight.copy_(self.original)
        self.original = None

    def train(self, mode: bool = True) -> "LoRA":
        """As usual, but an update that is merged cannot be trained: raises ValueError."""
        if mode and self.original is not None:
            raise ValueError("a merged update cannot be trained; use unmerge_lora(model) first")
        return super().train(mode)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        merged = "" if self.original is None else ", merged"
        return f"rank={self.rank}, alpha={self.alpha:g}{merged}"


def lora_layers(model: nn.Module) -> dict[str, LoRA]:
    """The maps of a model that have an update, by name, such as blocks.0.attention.q_proj."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoRA)}


def add_lora(
    model: nn.Module,
    rank: int,
    names: Sequence[str] = ("q_proj", "v_proj"),
    alpha: float | None = None,
) -> list[str]:
    """Give an update to maps of every block, and freeze everything else; the logits stay as they
    are.

    names: the last part of their names, of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and
    down_proj.
    The maps may be in 8 bits: gradients then pass through them to what is before.
    Returns the full names.
    Raises ValueError, before anything is changed, for a name that the blocks do not have, for a
    wrong rank or alpha, and for a model that has updates already.
    Source: Hu et al. 2021, section 4.2 (queries and values); Dettmers et al. 2023, "QLoRA" (over
    rounded weights).
    """
    if lora_layers(model):
        raise ValueError("the model has LoRA updates already; use remove_lora(model) first")
    prefix = "blocks."
    there = {
        n: m for n, m in model.named_modules() if n.startswith(prefix) and isinstance(m, Linear)
    }
    known = list(dict.fromkeys(_last(name) for name in there))
    if (
        isinstance(names, str)
        or not names
        or (wrong := [name for name in names if name not in known])
    ):
        refused = repr(names) if isinstance(names, str) or not names else repr(wrong[0])
        raise ValueError(
            f"names must be a list of {', '.join(known)}, the maps inside the blocks; got {refused}"
        )
    added = {
        name: LoRA(linear, rank, alpha) for name, linear in there.items() if _last(name) in names
    }
    model.requires_grad_(False)
    for name, lora in added.items():
        lora.requires_grad_(True).linear.requires_grad_(False)
        lora.training = lora.linear.training
        _put(model, name, lora)
    for module in model.modules():
        if isinstance(module, Int8Weight):
            module.passes_gradients = True
    return list(added)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def merge_lora(model: nn.Module) -> None:
    """Merge every update into its weight, so that writing costs no more than before; `unmerge_lora`
    takes them out.

    Raises ValueError as `LoRA.merge`, at the first map that cannot be merged.
    """
    for lora in _some_lora(model).values():
        lora.merge()


def unmerge_lora(model: nn.Module) -> None:
    """Undo `merge_lora`: every weight is, bit for bit, what it was."""
    for lora in _some_lora(model).values():
        lora.unmerge()


def remove_lora(model: nn.Module) -> None:
    """Leave plain maps: without their updates, or with them for good where they are merged.

    Nothing is frozen then, except in a model whose weights are in 8 bits.
    """
    for name, lora in _some_lora(model).items():
        _put(model, name, lora.linear)
    small = [module for module in model.modules() if isinstance(module, Int8Weight)]
    for module in small:
        module.passes_gradients = False
    model.requires_grad_(not small)


def refuse_lora(model: nn.Module, what: str) -> None:
    """Raise ValueError for a model with updates. what: the function that needs plain maps."""
    if lora_layers(model):
        raise ValueError(
            f"{what} needs plain weights, and this model has LoRA updates; use merge_lora(model) "
            "and remove_lora(model), or save the updates alone with save_lora"
        )


def _some_lora(model: nn.Module) -> dict[str, LoRA]:
    layers = lora_layers(model)
    if not layers:
        raise ValueError(
            "the model has no LoRA updates; use add_lora(model, rank) or load_lora(model, path) "
            "first"
        )
    return layers


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """The trained tensors alone, lora_a (r, in) and lora_b (out, r) of each map, by their full
    names.

    Raises ValueError for a model without updates.
    """
    layers = _some_lora(model)
    state = {}
    for name, lora in layers.items():
        state |= {f"{name}.{kind}": getattr(lora, kind).detach() for kind in _PARTS}
    return state


_PARTS = ("lora_a", "lora_b")


def save_lora(model: nn.Module, path: str | Path) -> Path:
    """Write the updates alone, without the model, to a safetensors file. Returns its path.

    Raises ValueError for a model without updates, OSError, naming the file and what to do, where it
    cannot be written.
    """
    model = unwrapped(model)
    tensors = {name: t.cpu().contiguous() for name, t in lora_state(model).items()}
    one = next(iter(lora_layers(model).values()))
    about = {"format": "pt", "rank": str(one.rank), "alpha": str(one.alpha)}
    with explained("the update", Path(path)), whole_file(Path(path)) as file:
        file.write(save(tensors, about))
    return Path(path)


def load_lora(model: nn.Module, path: str | Path) -> list[str]:
    """Give a model the updates of a file of `save_lora`; a model that has updates gets these values
    for its own.

    Returns the full names of the maps.
    Raises FileNotFoundError for no file, ValueError, naming the tensor, where the updates do not
    fit the model, for another alpha, for updates that are merged, and for a damaged file; the model
    stays as it was.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist; give one that save_lora wrote")
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        rank = int(about["rank"])
        alpha = float(about["alpha"])
    except (SafetensorError, KeyError, ValueError) as e:
        raise ValueError(
            f"{path} is not a file of save_lora, or it is damaged ({e}); save it again"
        ) from None
    fresh = not lora_layers(model)
    if fresh:
        names = dict.fromkeys(_last(name.rpartition(".")[0]) for name in tensors)
        add_lora(model, rank, list(names), alpha)
    try:
        _fill(model, tensors, alpha, path)
    except ValueError:
        if fresh:
            remove_lora(model)
        raise
    return list(lora_layers(model))


@torch.no_grad()
def _fill(model: nn.Module, tensors: dict[str, Tensor], alpha: float, path: str | Path) -> None:
    own = lora_state(model)
    layers = lora_layers(model)
    for name in sorted(own.keys() | tensors.keys()):
        here, there = (tuple(t[name].shape) if name in t else "missing" for t in (own, tensors))
        if here != there:
            raise ValueError(
                f"{path}: {name} is {there} in the file and {here} in the model; use the same "
                "add_lora"
            )
    for name, lora in layers.items():
        if lora.alpha != alpha or lora.original is not None:
            wrong = "is merged; use unmerge_lora(model) first" if lora.original is not None else (
                f"has alpha {lora.alpha:g}, and the file {alpha:g}; use the same add_lora"
            )  # fmt: skip
            raise ValueError(f"{path}: {name} {wrong}")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)
