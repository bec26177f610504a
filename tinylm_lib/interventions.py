"""Change single parts of a model while it reads, to see what the rest makes of it.

Hooks do this: no weight is changed, and after the `with` block the model is what it was before.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig
from .layers import at_least_fp32, cast, evaluation_mode
from .model import TransformerLM
from .positions import Positions
from .quantization import refuse_quantized

PARTS = ("attention", "ffn")
# Of each down_proj: the ids that its units write now, by unit.
_WRITTEN: WeakKeyDictionary[nn.Module, dict[int, int]] = WeakKeyDictionary()


@contextmanager
def intervene(
    model: TransformerLM,
    *,
    silence: Iterable[tuple[int, int]] = (),
    means: Mapping[tuple[int, int], Tensor] | tuple[()] = (),
    forbid: Iterable[tuple[int, int | None, int, int]] = (),
    stop: Iterable[tuple[int, str]] = (),
    write: Iterable[tuple[int, int, int]] = (),
) -> Iterator[TransformerLM]:
    """Change parts of a model inside a `with` block; layers, heads, units and positions from 0.

    silence: (layer, head): the head's mixture of values, its D inputs of o_proj, is 0.
    means: {(layer, head): rows (S, D)}: at position t the head's mixture is row t, such as that of
    `mean_heads`.
    forbid: (layer, head, query, key), with head None for all heads: at position query the head may
    not look at position key, so its other attention weights grow. With no key left it mixes 0.
    stop: (layer, "attention" or "ffn"): that part of the block adds 0 to the stream.
    write: (layer, unit, id): the unit's column of down_proj is the row of that token in the output
    head.
    Positions are those in the text, also through a cache and with padding. Gradients flow. Blocks
    may be nested; where two of them replace the same thing, the inner one counts.
    A copy that is made inside, by copy.deepcopy, keeps the changes.
    Yields the model itself.
    Raises TypeError or ValueError for what the model does not have and for a head or a unit that is
    replaced twice; in the block, ValueError for a position that has no row of means.
    """
    _check_model(model, "intervene")
    mixtures = _mixtures(model.config, silence, means)
    looks = _looks(model.config, forbid)
    units = _units(model.config, write)
    stopped = _changes("stop", stop, layer=range(model.config.n_layers), part=PARTS)
    with ExitStack() as hooks:
        for layer, block in enumerate(model.blocks):
            own_mixtures = {head: rows for (i, head), rows in mixtures.items() if i == layer}
            own_looks = [look for i, *look in looks if i == layer]
            _Heads(own_mixtures, own_looks, model.config.n_heads).enter(block.attention, hooks)
        for layer, unit, token in units:
            hooks.enter_context(_writing(model, layer, unit, token))
        for layer, part in stopped:
            module = model.blocks[layer].get_submodule(part)
            hooks.enter_context(module.register_forward_hook(_nothing))
        yield model


def mean_heads(model: TransformerLM, ids: Tensor) -> Tensor:
    """What each head mixes at each position, the mean over texts of one length. Dropout is off.

    ids (B, T). Returns (L, H, T, D), in fp32 at least.
    Raises TypeError or ValueError for a model or ids that cannot be read.
    """
    _check_model(model, "mean_heads")
    found = []

    def keep(module: nn.Module, args: Any) -> None:
        mean = at_least_fp32(args[0]).mean(0)  # (B, T, H*D) -> (T, H*D)
        found.append(mean.unflatten(-1, (model.config.n_heads, -1)))

    with ExitStack() as hooks:
        for block in model.blocks:
            hooks.enter_context(block.attention.o_proj.register_forward_pre_hook(keep))
        hooks.enter_context(evaluation_mode(model))
        model(ids, last_only=True)
    return torch.stack(found).transpose(1, 2)  # (L, T, H, D) -> (L, H, T, D)


class _Heads:
    """The changed heads of one layer: what they mix (None: 0), and where they may not look."""

    def __init__(self, mixtures: dict[int, Tensor | None], looks: list[list[Any]], n_heads: int):
        self.mixtures = mixtures
        self.n_heads = n_heads
        self.at = torch.empty(0)  # the positions of a pass, which o_proj is not given
        full = []
        for head, query, key in looks:
            heads = range(n_heads) if head is None else [head]
            full += [(one, query, key) for one in heads]
        self.looks = torch.tensor(full, dtype=torch.long, device="cpu").view(-1, 3)

    def enter(self, attention: nn.Module, hooks: ExitStack) -> None:
        """Change a layer, where there is anything to change, until the hooks are removed."""
        if self.mixtures or len(self.looks):
            hooks.enter_context(attention.register_forward_pre_hook(self.look, with_kwargs=True))
        if self.mixtures:
            o_proj = attention.get_submodule("o_proj")
            hooks.enter_context(o_proj.register_forward_pre_hook(self.mix))

    def look(self, module: nn.Module, args: Any, options: Any) -> tuple[Any, Any]:
        """Before the attention: keep the positions, and mask the looks that are forbidden."""
        x, positions, extend = _named(*args, **options)
        if not isinstance(positions, Positions):
            positions = Positions(positions)
        self.at = positions.at
        if len(self.looks):
            T = x.shape[1]
            S = T if extend is None else int(self.at.max()) + 1
            mask = positions.mask  # for padding, or of an outer block
            allowed = self._allowed(T, S if mask is None else mask.shape[-1])
            positions = positions._replace(mask=allowed if mask is None else mask & allowed)
        return (x, positions, extend), {}

    def _allowed(self, T: int, S: int) -> Tensor:
        """Where the heads may look: (1, H, T, S), or (B, H, T, S) where positions differ."""
        lasts = self.at[..., -1].view(-1).tolist()
        mask = torch.ones(len(lasts), self.n_heads, T, S, dtype=torch.bool, device="cpu")
        head, query, key = self.looks.unbind(-1)
        for i, last in enumerate(lasts):
            first = S - 1 - last  # where position 0 is among the keys: padding is before it
            row = query + first - (S - T)
            column = key + first
            here = (row >= 0) & (row < T) & (column >= 0)
            mask[i, head[here], row[here], column[here]] = False
        return mask.to(self.at.device)

    def mix(self, module: nn.Module, args: Any) -> tuple[Tensor]:
        """Before o_proj: what the heads mix, and what they would have mixed is dropped."""
        (y,) = args
        heads = list(y.chunk(self.n_heads, -1))
        for head, rows in self.mixtures.items():
            heads[head] = torch.zeros_like(heads[head])
            if rows is not None:
                last = int(self.at.max())
                if last >= len(rows):
                    why = f"the means of head {head} have {len(rows)} rows, too few for position"
                    raise ValueError(f"{why} {last}; take the means over longer texts")
                heads[head] = heads[head] + F.embedding(self.at, rows.to(y))
        return (torch.cat(heads, -1),)


def _named(x: Tensor, positions: Any, extend: Any = None) -> tuple[Tensor, Any, Any]:
    """What `Attention.forward` is given, however it is passed. x (B, T, C)."""
    return x, positions, extend


def _nothing(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


@contextmanager
def _writing(model: TransformerLM, layer: int, unit: int, token: int) -> Iterator[None]:
    """Let a unit write the row of a token instead of its column, or of what it writes already."""
    down_proj = model.blocks[layer].ffn.down_proj
    head = model.embed if model.lm_head is None else model.lm_head
    outer = _WRITTEN.get(down_proj, {})

    def add(module: Any, args: Any, output: Tensor) -> Tensor:
        column = module.weight[:, unit] if unit not in outer else head.weight[outer[unit]]
        change = args[0][..., unit, None] * (head.weight[token] - column)
        return output + cast(change, output.dtype)

    _WRITTEN[down_proj] = {**outer, unit: token}
    try:
        with down_proj.register_forward_hook(add):
            yield
    finally:
        _WRITTEN[down_proj] = outer


def _check_model(model: Any, what: str) -> None:
    if not isinstance(model, TransformerLM):
        got = type(model).__name__
        raise TypeError(f"{what} takes a TransformerLM, got {got}; take the model out of a wrapper")
    refuse_quantized(model, what)
    if any(module._compiled_call_impl is not None for module in model.modules()):
        raise ValueError(f"{what} needs hooks, which a compiled model ignores; use one that is not")
    if model.recompute:
        why = "blocks that are computed again lose their hooks; set model.recompute = False"
        raise ValueError(f"{what} takes no model with recompute, because {why}")


def _changes(what: str, given: Any, **parts: Collection[Any]) -> list[tuple[Any, ...]]:
    """The changes of one kind as tuples. parts: the known values of each entry, by name."""
    found = []
    for change in given if isinstance(given, Iterable) else [given]:
        if not isinstance(change, tuple | list) or len(change) != len(parts):
            form = f"({', '.join(parts)})"
            raise TypeError(f"{what} takes a list of {form}, got {change!r} in it; use [{form}]")
        for (name, known), value in zip(parts.items(), change, strict=True):
            is_plain = isinstance(value, Integral | str | None) and not isinstance(value, bool)
            if not is_plain or value not in known:
                fix = f"0..{len(known) - 1}" if isinstance(known, range) else known
                raise ValueError(f"{name} {value!r} in {what} is unknown; use one of {fix}")
        found.append(tuple(change))
    return found


def _mixtures(config: ModelConfig, silence: Any, means: Any) -> dict[Any, Tensor | None]:
    """What heads mix instead, by (layer, head); None: 0."""
    parts = {"layer": range(config.n_layers), "head": range(config.n_heads)}
    if means and not isinstance(means, Mapping):
        form = "{(layer, head): rows}"
        raise TypeError(f"means takes a dict, got {type(means).__name__}; use {form}")
    rows_of = dict(means)
    silent = _changes("silence", silence, **parts)
    _check_once("head", [*set(silent), *_changes("means", rows_of, **parts)])
    for head, rows in rows_of.items():
        if not isinstance(rows, Tensor):
            got = type(rows).__name__
            raise TypeError(f"means of {head} must be a tensor, got {got}; use mean_heads")
        if rows.ndim != 2 or rows.shape[-1] != config.d_head or not rows.is_floating_point():
            got = f"{tuple(rows.shape)} of {rows.dtype}"
            wanted = f"(S, {config.d_head}) of numbers with a fraction"
            raise ValueError(f"means of {head} must be {wanted}, got {got}; use mean_heads")
    return {**dict.fromkeys(silent), **rows_of}


def _looks(config: ModelConfig, forbid: Any) -> list[tuple[Any, ...]]:
    heads = (*range(config.n_heads), None)
    at = range(config.max_seq_len)
    layers = range(config.n_layers)
    looks = _changes("forbid", forbid, layer=layers, head=heads, query=at, key=at)
    for *_, query, key in looks:
        if key > query:
            why = f"key {key} in forbid is after its query {query}, which cannot see it anyway"
            raise ValueError(f"{why}; use a key in 0..{query}")
    return looks


def _units(config: ModelConfig, write: Any) -> list[tuple[Any, ...]]:
    layers = range(config.n_layers)
    ids = range(config.vocab_size)
    units = _changes("write", write, layer=layers, unit=range(config.d_ff), id=ids)
    _check_once("unit", [(layer, unit) for layer, unit, _ in units])
    return units


def _check_once(what: str, changed: list[tuple[Any, ...]]) -> None:
    for one, times in Counter(changed).items():
        if times > 1:
            raise ValueError(f"{what} {one} (layer, {what}) is replaced {times} times; keep one")
