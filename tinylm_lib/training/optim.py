"""The optimizers, and the schedule that they share. Notebooks 11 and 14."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ..config import RULES, SCHEDULES, TrainConfig
from ..layers import pick
from ..model import TransformerLM
from ..quantization import refuse_quantized
from .distributed import on_whole_matrices


def warmup_cosine(
    step: int, peak: float, floor: float, warmup_steps: int, total_steps: int
) -> float:
    """The learning rate of update `step`, counted from 1: linear up to peak, half a cosine down to
    floor, then floor.

    Source: Loshchilov and Hutter 2016, equation 5, with a linear warm-up in front.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2


def warmup_linear(
    step: int, peak: float, floor: float, warmup_steps: int, total_steps: int
) -> float:
    """As `warmup_cosine`, but down in a straight line."""
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return floor + (peak - floor) * (1 - done)


SCHEDULES |= {"linear": warmup_linear, "cosine": warmup_cosine}

# One (a, b, c) per iteration of `orthogonalise`: the first is the best for singular values of 0.001
# to 1, each other for what those before leave. Divided by 1.01, 1.01^3 and 1.01^5, so that rounding
# does not lead out of there.
POLAR_EXPRESS = [(8.3865, -24.3696, 17.7251), (4.1414, -3.0173, 0.5524), (3.9226, -2.8672, 0.5357)]


def orthogonalise(x: Tensor) -> Tensor:
    """Bring the singular values of each matrix towards 1 and keep its singular vectors. A zero
    matrix stays zero.

    An iteration turns every singular value s into a s + b s^3 + c s^5, with nothing but products.
    Three of them bring all values of at least 0.001 of the matrix's norm to 0.13 .. 1.87; more
    would come nearer and train no better. x (N, R, K). Returns (N, R, K) in the dtype of x.
    Source: Jordan et al. 2024, "Muon" (the iteration); Amsel et al. 2025, "The Polar Express",
    algorithm 1 (a, b, c).
    """
    if x.shape[1] > x.shape[2]:
        return orthogonalise(x.mT).mT  # the products below are smaller for R <= K
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value exceeds the norm
    for a, b, c in POLAR_EXPRESS:
        gram = x @ x.mT  # (N, R, K) -> (N, R, R)
        inner = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # b gram + c gram gram
        x = torch.baddbmm(x, inner, x, beta=a)  # a x + inner x
    return x


class MuonAdamW(torch.optim.Optimizer):
    """Two rules in one optimizer; each group names its rule: "muon" for matrices, "adamw" for all
    else.
    """

    def __init__(
        self, groups: list[dict[str, Any]], betas: tuple[float, float], eps: float, momentum: float
    ):
        for group in groups:
            pick(RULES, group["rule"], "rule")
        # "fused" is for torch: it restores the step counts of such a group on the device of the
        # parameters.
        super().__init__(groups, {"betas": betas, "eps": eps, "momentum": momentum, "fused": True})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if parameters := [p for p in group["params"] if p.grad is not None]:
                RULES[group["rule"]](parameters, self.state, group)
        return loss


def muon_update(parameters: list[Tensor], state: dict[Tensor, Any], group: dict[str, Any]) -> None:
    """Move matrices (R, K) along their orthogonalised momentum, those of equal shape in one batch;
    they decay first.

    Under autocast the products of `orthogonalise` have its dtype, otherwise that of the gradients.
    Source: Jordan et al. 2024, "Muon"; Liu et al. 2025, "Muon is Scalable", equation 4: the factor
    that makes the root mean square of a step 0.2 lr for every shape, about that of AdamW.
    """
    for p in parameters:
        if not state[p]:
            state[p]["momentum"] = torch.zeros_like(p)
    for shape in dict.fromkeys(p.shape for p in parameters):
        members = [p for p in parameters if p.shape == shape]
        momenta = [state[p]["momentum"] for p in members]
        gradients = torch.stack([p.grad for p in members])  # (N, R, K)
        torch._foreach_lerp_(momenta, gradients.unbind(), 1 - group["momentum"])
        # Nesterov: where the next gradient will lead
        ahead = gradients.lerp_(torch.stack(momenta), group["momentum"])
        # here, so that processes exchange half the bytes, too
        if torch.is_autocast_enabled(ahead.device.type):
            ahead = ahead.to(torch.get_autocast_dtype(ahead.device.type))
        directions = on_whole_matrices(orthogonalise, ahead)
        torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(
            members, directions.unbind(), alpha=-group["lr"] * 0.2 * math.sqrt(max(shape))
        )


def adamw_update(parameters: list[Tensor], state: dict[Tensor, Any], group: dict[str, Any]) -> None:
    """Move each tensor (...) by AdamW. Source: Loshchilov and Hutter 2017, algorithm 2."""
    for p in parameters:
        if not state[p]:
            step = torch.zeros((), dtype=torch.float32, device=p.device)
            state[p].update(step=step, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
    means, squares, steps = (
        [state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq", "step")
    )
    beta1, beta2 = group["betas"]
    adamw(
        parameters, [p.grad for p in parameters], means, squares, [], steps, fused=group["fused"],
        amsgrad=False,
        beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"],
        eps=group["eps"], maximize=False,
    )  # fmt: skip


RULES |= {"muon": muon_update, "adamw": adamw_update}


def build_optimizer(model: TransformerLM, recipe: TrainConfig) -> MuonAdamW:
    """The optimizer that the recipe names for the matrices of the blocks, AdamW for everything
    else.

    Vectors (gains, biases) do not decay. Frozen parameters are left out. Raises ValueError for a
    model in which nothing is trained: frozen, or with weights in 8 bits, see `add_lora`.
    """
    inside = {id(p) for p in model.blocks.parameters() if p.ndim >= 2}
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        refuse_quantized(model, "build_optimizer")
        raise ValueError(
            "all parameters are frozen; set requires_grad_(True) on those to train, or call "
            "add_lora"
        )
    matrices = [p for p in parameters if id(p) in inside]
    tables = [p for p in parameters if id(p) not in inside and p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    groups = [
        {
            "params": matrices,
            "rule": recipe.optimizer,
            "lr": recipe.matrix_lr,
            "weight_decay": recipe.weight_decay,
        },
        {
            "params": tables,
            "rule": "adamw",
            "lr": recipe.embedding_lr,
            "weight_decay": recipe.weight_decay,
        },
        {"params": vectors, "rule": "adamw", "lr": recipe.embedding_lr, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return MuonAdamW(
        groups, betas=(recipe.beta1, recipe.beta2), eps=recipe.adam_eps, momentum=recipe.momentum
    )
