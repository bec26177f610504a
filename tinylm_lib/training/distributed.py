"""Training in many processes, started by torchrun: alone, with a copy of the model each, or with a
shard each.

The three strategies answer the same questions, so that what trains does not ask which one it is.
Notebook 15.
"""

import gc
import os
import random
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..layers import pick
from .tensors import Entry, list_files, read_tensors, write_tensors

# What gloo, NCCL and torch's store say when another process is gone.
LOST = re.compile(
    r"gloo|nccl|TCPStore|store|connection|broken pipe|timed? "
    r"?out|peer",
    re.IGNORECASE,
)
TIMEOUT = timedelta(minutes=10)  # without a word from a process that neither works nor ends


class Alone:
    """One process with the whole model."""

    rank = 0
    size = 1

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = torch.device(device)

    @classmethod
    @contextmanager
    def join(cls, device: torch.device) -> Iterator["Alone"]:
        """Be one of the processes that torchrun started, until the end of the block."""
        if (n := int(os.environ.get("WORLD_SIZE", 1))) > 1:
            raise ValueError(
                f"torchrun started {n} processes, and strategy none is for one; give ddp or fsdp"
            )
        yield cls(device)

    @property
    def first(self) -> bool:
        """Whether it is this process that shows and writes."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """What to train instead of the model; an optimizer is built afterwards, on the model's
        parameters.
        """
        return model

    def sync(self, wrapped: nn.Module, on: bool) -> None:
        """Let the next backward pass exchange gradients, or not: the last of an update does."""

    def clip(self, parameters: list[nn.Parameter], limit: float) -> Tensor:
        """Clip the gradients to a global norm. Returns () the norm before."""
        return nn.utils.clip_grad_norm_(parameters, limit)

    def sum(self, x: Tensor) -> Tensor:
        """Add up x (...) over the processes. Returns (...)."""
        return x

    def mean(self, x: Tensor) -> Tensor:
        """The mean of x (...) over the processes. Returns (...)."""
        return self.sum(x) / self.size

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any of the processes."""
        return flag

    def gather(self, x: Tensor) -> list[Tensor]:
        """The x (...) of every process, in the order of their ranks."""
        return [x]

    def wait(self) -> None:
        """Wait until all processes are here."""

    def part(
        self, batches: Iterable[tuple[Tensor, Tensor]], ignored: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of batches of ids and targets, each (B, T); every process gets as
        many.

        ignored: the target that does not count, for those that fill up the last round.
        """
        return iter(batches)

    def write(self, folder: Path, role: str, tensors: dict[str, Tensor]) -> Entry:
        """Write tensors (...) into a folder, under a name made of their content.

        Returns what finds them again.
        """
        return write_tensors(folder, role, tensors)


class Replicas(Alone):
    """Each process has a copy of the model and its own part of every batch; gradients are averaged
    (torch's DDP).
    """

    def __init__(self, device: torch.device | str = "cpu"):
        super().__init__(device)
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    @classmethod
    @contextmanager
    def join(cls, device: torch.device) -> Iterator["Alone"]:
        """Be one of the processes that torchrun started, until the end of the block.

        Raises ValueError where there is no torchrun or no device, ConnectionError where another
        process is lost.
        """
        if "LOCAL_RANK" not in os.environ:
            raise ValueError(
                "start it with torchrun --nproc-per-node 2 -m tinylm_lib train, or choose "
                "--strategy none"
            )
        own = own_device(device, int(os.environ["LOCAL_RANK"]))
        # Where a process is lost, torchrun ends the others with SIGTERM: this gives them time to
        # say what happened.
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        backend = "cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo"
        store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
        # torchrun's store outlives a block, with its group's addresses
        block = (store.add("joined", 1) - 1) // size
        store = dist.PrefixStore(f"block {block}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        try:
            yield cls(own)
            signal.signal(signal.SIGTERM, before)
        except RuntimeError as e:
            if not LOST.search(str(e)):
                raise
            traceback.clear_frames(e.__traceback__)
            raise ConnectionError(
                f"process {dist.get_rank()} of {dist.get_world_size()} lost another one "
                f"({_brief(e)}); the last checkpoint is kept: continue with torchrun ... train "
                "--resume, and --out if you gave it"
            ) from None
        except BaseException as e:
            traceback.clear_frames(e.__traceback__)
            raise
        finally:
            gc.collect()  # a wrapped model that outlives its process group makes gloo abort
            dist.destroy_process_group()

    def wrap(self, model: nn.Module) -> nn.Module:
        """What to train instead of the model; an optimizer is built afterwards, on the model's
        parameters.
        """
        # torch 2.13 has another name for it, which 2.11 does not know
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
            return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)

    def sync(self, wrapped: nn.Module, on: bool) -> None:
        """Let the next backward pass exchange gradients, or not: the last of an update does."""
        wrapped.require_backward_grad_sync = on

    def sum(self, x: Tensor) -> Tensor:
        """Add up x (...) over the processes. Returns (...)."""
        x = x.clone()
        dist.all_reduce(x)
        return x

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any of the processes."""
        return bool(self.sum(torch.tensor(int(flag), device=self.device)))

    def gather(self, x: Tensor) -> list[Tensor]:
        """The x (...) of every process, in the order of their ranks."""
        gathered = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(gathered, x)
        return gathered

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.any(False)

    def part(
        self, batches: Iterable[tuple[Tensor, Tensor]], ignored: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of batches of ids and targets, each (B, T); every process gets as
        many.

        ignored: the target that does not count, for those that fill up the last round.
        """
        batches = iter(batches)
        while some := list(islice(batches, self.size)):
            x, y = some[0]
            yield some[self.rank] if self.rank < len(some) else (x, torch.full_like(y, ignored))

    def write(self, folder: Path, role: str, tensors: dict[str, Tensor]) -> Entry:
        """Write tensors (...) into a folder, under a name made of their content.

        Returns what finds them again.
        """
        return write_tensors(folder, role, tensors) if self.first else {}


class Shards(Replicas):
    """Each process keeps a shard of every parameter, gradient and optimizer state (torch's FSDP2).

    A block's parameters are whole only while it computes. Source: Zhao et al. 2023, "PyTorch FSDP".
    """

    def wrap(self, model: nn.Module) -> nn.Module:
        """What to train instead of the model; an optimizer is built afterwards, on the model's
        parameters.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def sync(self, wrapped: nn.Module, on: bool) -> None:
        """Let the next backward pass exchange gradients, or not: the last of an update does."""
        wrapped.set_requires_gradient_sync(on)

    def clip(self, parameters: list[nn.Parameter], limit: float) -> Tensor:
        """Clip the gradients to a global norm. Returns () the norm before."""
        return super().clip(parameters, limit).full_tensor()

    def write(self, folder: Path, role: str, tensors: dict[str, Tensor]) -> Entry:
        """Write tensors (...) into a folder, under a name made of their content.

        Returns what finds them again.
        """
        import torch.distributed.checkpoint as dcp

        partial = folder / f"{role}.partial"
        writer = dcp.HuggingFaceStorageWriter(str(partial), save_distributed=True)
        try:
            dcp.save(tensors, storage_writer=writer)
        except dcp.CheckpointException as e:
            raise next(error for error, _ in e.failures.values()) from None
        return list_files(folder, role) if self.first else {}


STRATEGIES = {"none": Alone, "ddp": Replicas, "fsdp": Shards}
ALONE = Alone()


def join(strategy: str, device: torch.device) -> AbstractContextManager[Alone]:
    """Be one of the processes that train together, until the end of the block: STRATEGIES names the
    ways.

    Raises ValueError for a strategy that does not fit how this process was started.
    """
    return pick(STRATEGIES, strategy, "strategy").join(device)


def own_device(device: torch.device, local_rank: int) -> torch.device:
    """The device of a process: cuda means one GPU each.

    Raises ValueError where there are too few of them, or a device cannot exchange gradients.
    """
    if device.type == "cuda":
        if device.index is not None or local_rank >= torch.cuda.device_count():
            raise ValueError(
                f"each process needs its own GPU, this machine has {torch.cuda.device_count()}, "
                f"and this is process {local_rank} of it; start at most as many, with --device cuda"
            )
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    elif device.type != "cpu":
        raise ValueError(
            f"processes cannot exchange gradients on {device.type}; choose --device cpu"
        )
    return device


def read_whole_tensors(folder: Path, entry: Entry) -> dict[str, Tensor]:
    """Read what a strategy's `write` wrote, in any number of processes, as whole tensors (...) on
    the CPU.
    """
    if "files" not in entry:
        return read_tensors(folder, entry)
    import torch.distributed.checkpoint as dcp

    reader = dcp.HuggingFaceStorageReader(str(folder / entry["name"]))
    sizes = reader.read_metadata().state_dict_metadata
    tensors = {name: torch.empty(m.size, dtype=m.properties.dtype) for name, m in sizes.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def cut_like(whole: Tensor, like: Tensor) -> Tensor:
    """The part of a tensor (...) that this process has of `like` (...): a shard if that is one,
    otherwise all.
    """
    if not hasattr(like, "device_mesh") or hasattr(whole, "device_mesh"):  # not one, or cut before
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(
        whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


def on_whole_matrices(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of a batch of matrices x (N, R, K) that has to see each of them whole. Returns (N,
    R, K).

    Where they lie in shards, each process gets whole ones, a part of the batch.
    """
    if not hasattr(x, "device_mesh"):
        return function(x)
    from torch.distributed.tensor import DTensor, Shard

    mine = x.redistribute(placements=[Shard(0)])
    done = function(mine.to_local())
    back = DTensor.from_local(
        done, x.device_mesh, mine.placements, shape=x.shape, stride=x.stride()
    )
    return back.redistribute(placements=x.placements)


def own_random_stream(team: Alone, seed: int) -> None:
    """Let the processes draw different random numbers from here on, such as for dropout, except the
    first.
    """
    if not team.first:
        torch.manual_seed(random.Random(f"{seed} {team.rank}").getrandbits(32))


def random_states(team: Alone) -> dict[str, Tensor]:
    """The states (N,) of torch's random generators of every process, by name; `set_random_state`
    takes them.
    """
    states = {"rng": torch.get_rng_state()}
    if team.device.type == "cuda":
        states["rng_cuda"] = torch.cuda.get_rng_state(team.device)
    gathered = {}
    for name, state in states.items():
        for rank, each in enumerate(team.gather(state)):
            gathered[_name_of(name, rank)] = each
    return gathered


def set_random_state(states: dict[str, Tensor], team: Alone) -> None:
    """Put back this process's states (N,) of `random_states`; without one, a process keeps what it
    has.
    """
    if (state := states.get(_name_of("rng", team.rank))) is not None:
        torch.set_rng_state(state)
    if (
        state := states.get(_name_of("rng_cuda", team.rank))
    ) is not None and team.device.type == "cuda":
        torch.cuda.set_rng_state(state, team.device)


def _name_of(generator: str, rank: int) -> str:
    return f"{generator}/{rank}" if rank else generator


def _brief(error: Exception) -> str:
    """What happened, without the line in gloo's source and its advice."""
    return re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", str(error).splitlines()[0]).split(". ")[0]
