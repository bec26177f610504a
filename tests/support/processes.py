"""What one of several processes does in the tests of distributed training: torchrun runs this file in each of them.

python -m torch.distributed.run --nproc-per-node N tests/support/processes.py FOLDER TASK DEVICE
"""

import json
import os
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from support.models import MODELS, some_ids, tiny

from tinylm_lib import TrainConfig, TransformerLM, evaluate, train
from tinylm_lib.config import IGNORED
from tinylm_lib.data.windows import RandomWindows, every_window
from tinylm_lib.presets import FAMILIES
from tinylm_lib.training import checkpoint
from tinylm_lib.training.distributed import Alone, join, own_random_stream
from tinylm_lib.training.optim import build_optimizer

RECIPE = {
    "total_steps": 4, "batch_size": 8, "seq_len": 20, "micro_steps": 2, "warmup_steps": 1, "weight_decay": 0.1,
    "precision": "fp32",
}  # fmt: skip
TOKENS = some_ids(1, 3000)[0]
LONG: dict[str, dict[str, Any]] = {"recomputed": {"recompute": True}, "bf16": {"precision": "bf16"}, "plain": {}}


class MaskedWindows(RandomWindows):
    """Windows of which each has another number of targets that count, some none."""

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = super().__next__()
        counted = torch.arange(y.shape[1], device=y.device) < x[:, :1] % y.shape[1]
        return x, y.where(counted, IGNORED)


class Training:
    """A model of one of MODELS with all that trains it."""

    def __init__(self, team: Alone, name: str, recipe: dict[str, Any] | None = None, **changes: Any):
        self.team, self.recipe = team, TrainConfig(**{**RECIPE, **(recipe or {})})
        torch.manual_seed(0)
        self.model = TransformerLM(tiny(name, **changes)).to(team.device)
        own_random_stream(team, 0)
        self.model.recompute = self.recipe.recompute
        self.wrapped = team.wrap(self.model)
        self.optimizer = build_optimizer(self.model, self.recipe)
        self.batches = MaskedWindows(TOKENS, 8, 20, 3, team.device, rank=team.rank, n_ranks=team.size)

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.model, self.optimizer, self.batches

    def run(self, first_step: int = 1, last_step: int = 4) -> list[list[float]]:
        """Train up to an update. Returns [loss, gradient norm] of each."""
        steps = train(self.wrapped, self.optimizer, self.batches, self.recipe, first_step, self.team)
        return [[s.loss.item(), s.grad_norm.item()] for s in islice(steps, last_step + 1 - first_step)]


def curves(team: Alone, folder: Path, names: list[str], recipes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The losses and gradient norms of models under some recipes; the weights that each ends with go to the folder."""
    found = {}
    for name in names:
        for what, recipe in recipes.items():
            training = Training(team, name, recipe)
            found[f"{name}, {what}"] = training.run()
            e = evaluate(training.model, every_window(TOKENS[:500], 4, 30), 500, team)
            found[f"{name}, {what}, evaluated"] = [e.nats_per_token, e.bits_per_byte, e.n_tokens]
        place = folder / f"{type(team).__name__}-{name.replace(' ', '_')}"
        checkpoint.save(place, *training.parts, step=4, team=team)
    return found


def resumed(team: Alone, folder: Path) -> dict[str, Any]:
    """With dropout: the second half of a training, uninterrupted and after a save and a load; and what was drawn."""
    name, place = "gpt", folder / f"half-{type(team).__name__}"
    whole = Training(team, name, residual_dropout=0.2)
    whole.run(last_step=2)
    checkpoint.save(place, *whole.parts, step=2, team=team)
    losses = [whole.run(3)]
    noise = []
    for _ in range(2):
        half = Training(team, name, residual_dropout=0.2)
        checkpoint.load(place).restore(*half.parts, team)
        noise.append([x.tolist() for x in team.gather(torch.rand(3))])
    checkpoint.load(place).restore(*half.parts, team)
    return {"noise": noise, "losses": [*losses, half.run(3)]}


def exchanges(team: Alone, folder: Path) -> int:
    """How often gradients are exchanged in 4 updates of 2 backward passes each."""
    training, count = Training(team, "modern", n_layers=1), []
    if hasattr(training.wrapped, "register_comm_hook"):

        def average(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            count.append(1)
            done = dist.all_reduce(bucket.buffer() / team.size, async_op=True).get_future()
            return done.then(lambda future: future.value()[0])

        training.wrapped.register_comm_hook(None, average)

    def counted(original: Any, *arguments: Any, **options: Any) -> Any:
        count.append(1)
        return original(*arguments, **options)

    for name in {"reduce_scatter_single", "reduce_scatter_tensor"} & set(vars(dist)):  # torch 2.13 and 2.11
        setattr(dist, name, partial(counted, getattr(dist, name)))
    training.run()
    return len(count)


def measured(team: Alone, folder: Path, task: str) -> dict[str, Any]:
    """The curves of a task, "short" or "long"."""
    names, recipes = (list(MODELS), LONG) if task == "long" else (list(FAMILIES), {"plain": {}})
    return curves(team, folder, ["modern"], {"bf16": LONG["bf16"]}) | curves(team, folder, names, recipes)


def main(folder: Path, task: str, device: str) -> None:
    torch.set_num_threads(1)
    for strategy in ("ddp", "fsdp"):
        with join(strategy, torch.device(device)) as team:
            found: dict[str, Any] = {"curves": measured(team, folder, task)}
            if task == "long":
                found |= {"resumed": resumed(team, folder), "exchanges": exchanges(team, folder)}
            if team.first:
                (folder / f"{strategy}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    os.environ["TORCH_LOGS"] = "-all"
    main(Path(sys.argv[1]), *sys.argv[2:])
