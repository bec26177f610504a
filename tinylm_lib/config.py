"""What a model is and how it is trained: two frozen, JSON-able records. Imports no torch."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args

_R = TypeVar("_R", bound="Record")

# The tables of choices. The file that defines the classes of a table fills it, so that a name is
# written only there, and a config knows the names without torch.
NORMS: dict[str, Any] = {}  # layers
LAYOUTS: dict[str, Any] = {}  # positions
POSITIONS: dict[str, tuple[Any, Any]] = {}  # positions
FFNS: dict[str, tuple[Any, Any]] = {}  # feedforward
BLOCKS: dict[str, Any] = {}  # model
INITS: dict[str, Any] = {}  # model
RULES: dict[str, Any] = {}  # training/optim
SCHEDULES: dict[str, Any] = {}  # training/optim
PRECISIONS: dict[str, Any] = {}  # training/loop
IGNORED = -100  # a target that does not count


def choice(default: str | None, table: Mapping[str, Any], help: str) -> Any:
    """A dataclass field whose value is a name in a table."""
    return field(default=default, metadata={"choices": table, "help": help})


def option(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field with a help text and, for numbers, the smallest and largest value."""
    return field(default=default, metadata={"help": help, "low": low, "high": high})


def check_record(record: Any) -> None:
    """Raise ValueError for the first wrong type, unknown name or number out of its range."""
    for f in fields(record):
        value = getattr(record, f.name)
        meta = f.metadata
        kinds = field_types(f)
        if value is None and (f.default is None or type(None) in kinds):
            continue
        fits = isinstance(value, kinds) or (float in kinds and type(value) is int)
        is_number = not isinstance(value, bool) or bool in kinds
        if not fits or not is_number or value in (math.inf, -math.inf):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{f.name} must be a finite {wanted}, got {value!r}")
        if "choices" in meta and value not in meta["choices"]:
            names = ", ".join(meta["choices"])
            raise ValueError(f"{f.name} {value!r} is unknown; choose one of {names}")
        low = meta.get("low")
        high = meta.get("high")
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ValueError(f"{f.name} must be {bounds}, got {value}")


def field_types(f: dataclasses.Field) -> tuple[type, ...]:
    """The types that a field allows: (int, NoneType) for `int | None`."""
    return get_args(f.type) or (f.type,)


@dataclass(frozen=True)
class Record:
    """What the frozen records share: a plain dict in and out."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls: type[_R], values: dict[str, Any]) -> _R:
        """Build the record from `to_dict`'s result.

        Raises ValueError for a field that this version does not know.
        """
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            names = ", ".join(sorted(known))
            raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}; it has {names}")
        return cls(**values)


@dataclass(frozen=True)
class RopeScaling(Record):
    """Llama 3's stretch of the slow rotary frequencies, for longer contexts than trained at first.

    Source: Grattafiori et al. 2024, "The Llama 3 Herd of Models", and the released configuration.
    """

    factor: float = option(8.0, "slow frequencies are divided by this", low=1.0)
    low_freq_factor: float = option(
        1.0, "wavelengths above original_max_seq_len / this are stretched fully", low=0.0
    )
    high_freq_factor: float = option(
        4.0, "wavelengths below original_max_seq_len / this are kept", low=0.0
    )
    original_max_seq_len: int = option(8192, "positions that the first training used", low=1)

    def __post_init__(self) -> None:
        check_record(self)
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor must exceed low_freq_factor, got {self.high_freq_factor} and "
                f"{self.low_freq_factor}"
            )


@dataclass(frozen=True)
class ModelConfig(Record):
    """Every choice and size of one model.

    vocab_size: V, number of token ids. max_seq_len: longest sequence that it sees, in tokens.
    d_model: C, width of the residual stream. n_layers: number of blocks.
    n_heads, n_kv_heads: H query heads and G key-value heads, default as many. d_head: D, width of
    one head, default d_model / n_heads.
    d_ff: F, inner width of the feed-forward; default the multiple of d_ff_multiple_of nearest to
    its ratio times d_model.

    block: where the norms are, `pre_norm` or `post_norm`. norm: `rms` or `layer`, with
    norm_eps added inside the root.
    position: how the model knows word order; with `rotary`, rope_layout says which coordinates are
    a pair, rope_base is the base of the frequencies, and rope_scaling stretches the slow ones.
    ffn: which feed-forward, such as `swiglu`.
    qkv_bias, o_bias, ffn_bias: which linear maps have biases. qk_norm: normalise each query and key
    head before the rotation.
    tie_embeddings: the embedding matrix is the output head, too. scale_embeddings: multiply
    embeddings by sqrt(d_model).

    init: the rule of the initial weights; init_std: the standard deviation of embeddings, and with
    `normal` and `gpt2` of all matrices.
    embedding_dropout, attention_dropout, ffn_dropout, residual_dropout: the probability to drop
    a number of the embedded input, of the attention weights, at the end of the feed-forward, of
    what a block adds to the stream.

    Sizes left at None are derived, so that a built config has none left.
    Raises ValueError, which names the field and the value and says what to do, for sizes that
    cannot work and for unknown names.
    """

    vocab_size: int = option(256, "V, number of token ids", low=1)
    max_seq_len: int = option(128, "longest sequence the model can see, in tokens", low=1)
    d_model: int = option(128, "C, width of the residual stream", low=1)
    n_layers: int = option(4, "number of blocks", low=1)
    n_heads: int = option(4, "H, number of query heads", low=1)
    n_kv_heads: int = option(None, "G, number of key-value heads; default n_heads", low=1)
    d_head: int = option(None, "D, width of one head; default d_model / n_heads", low=1)
    d_ff: int = option(None, "F, inner width of the ffn; default from its ratio", low=1)
    d_ff_multiple_of: int = option(64, "a derived d_ff is rounded to a multiple of this", low=1)

    block: str = choice("pre_norm", BLOCKS, "where the norms are")
    norm: str = choice("rms", NORMS, "which norm")
    norm_eps: float = option(1e-5, "added to the mean square inside the root", low=0.0)
    position: str = choice("rotary", POSITIONS, "how the model knows word order")
    rope_layout: str = choice("halves", LAYOUTS, "which coordinates rotary pairs up")
    rope_base: float = option(10_000.0, "base of the rotary frequencies", low=1.0)
    rope_scaling: RopeScaling | None = option(  # noqa: RUF009
        None, "Llama 3's stretch of slow frequencies"
    )
    ffn: str = choice("swiglu", FFNS, "which feed-forward")
    qkv_bias: bool = option(False, "biases on the query, key and value projections")
    o_bias: bool = option(False, "a bias on the attention's output projection")
    ffn_bias: bool = option(False, "biases in the feed-forward")
    qk_norm: bool = option(False, "normalise each query and key head before the rotation")
    tie_embeddings: bool = option(True, "use the embedding matrix as the output head")
    scale_embeddings: bool = option(False, "multiply embeddings by sqrt(d_model)")

    init: str = choice("zero_residual", INITS, "initial weights")
    init_std: float = option(
        0.02, "standard deviation of embeddings; with normal and gpt2 of all matrices", low=0.0
    )
    embedding_dropout: float = option(0.0, "dropout on the embedded input", low=0.0, high=1.0)
    attention_dropout: float = option(0.0, "dropout on the attention weights", low=0.0, high=1.0)
    ffn_dropout: float = option(
        0.0, "dropout at the end of the feed-forward, before the block's own", low=0.0, high=1.0
    )
    residual_dropout: float = option(
        0.0, "dropout on what a block adds to the residual stream", low=0.0, high=1.0
    )

    def __post_init__(self) -> None:
        if isinstance(self.rope_scaling, dict):
            object.__setattr__(self, "rope_scaling", RopeScaling.from_dict(self.rope_scaling))
        check_record(self)
        if self.d_head is None:
            if self.d_model % self.n_heads:
                raise ValueError(
                    f"d_model {self.d_model} is not divisible by n_heads {self.n_heads}; "
                    f"choose n_heads from {_divisors(self.d_model)} or give d_head"
                )
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if self.n_kv_heads is None:
            object.__setattr__(self, "n_kv_heads", self.n_heads)
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads {self.n_kv_heads} does not divide n_heads {self.n_heads}; "
                f"choose from {_divisors(self.n_heads)}"
            )
        for name, part in zip(("d_model", "d_head"), POSITIONS[self.position], strict=True):
            if getattr(self, name) % part.multiple:
                raise ValueError(
                    f"{name} {getattr(self, name)} is odd, but position {self.position!r} works on "
                    f"pairs of coordinates; choose an even {name} (d_head is d_model / n_heads "
                    "unless it is given)"
                )
        if self.d_ff is None:
            part, _ = FFNS[self.ffn]
            d_ff = derived_d_ff(self.d_model, part.ratio, self.d_ff_multiple_of)
            object.__setattr__(self, "d_ff", d_ff)


def derived_d_ff(d_model: int, ratio: float, multiple_of: int) -> int:
    """The multiple of `multiple_of` nearest to int(ratio * d_model), ties down, and never 0.

    Source: Shazeer 2020, "GLU Variants", section 2: a ratio of 8/3 makes a gated feed-forward as
    large as a 4x one.
    """
    nearest = (int(ratio * d_model) + (multiple_of - 1) // 2) // multiple_of
    return max(1, nearest) * multiple_of


@dataclass(frozen=True)
class TrainConfig(Record):
    """How a model is trained: batches, optimizer, schedule and precision.

    total_steps: updates in the whole run. batch_size: sequences of seq_len tokens per backward
    pass, of all processes together. micro_steps: backward passes per update.
    optimizer: of the blocks' matrices, with the peak learning rate matrix_lr; everything else gets
    AdamW with embedding_lr.
    schedule: how the rates fall after warmup_steps updates of linear warm-up, to the fraction floor
    of their peaks.
    weight_decay: of everything but gains and biases. momentum: Muon's. beta1, beta2, adam_eps:
    AdamW's decay of its two moments, and its guard against division by zero.
    clip_norm: largest global gradient norm; None never clips. recompute: compute activations again
    in the backward pass instead of keeping them.
    precision: of products; `auto` is bf16 where there are instructions for it.
    seed: of the initial weights and of the batches.

    Raises ValueError, which names the field and the value.
    """

    total_steps: int = option(1550, "updates in the whole run", low=1)
    batch_size: int = option(8, "sequences per backward pass, of all processes together", low=1)
    seq_len: int = option(128, "tokens per sequence", low=1)
    micro_steps: int = option(1, "backward passes per update", low=1)
    optimizer: str = choice("muon", RULES, "optimizer of the blocks' matrices; AdamW for all else")
    matrix_lr: float = option(4e-3, "peak learning rate of the blocks' matrices", low=0.0, high=1e6)
    embedding_lr: float = option(
        3e-2, "peak learning rate of embeddings, head, gains and all else", low=0.0, high=1e6
    )
    schedule: str = choice("linear", SCHEDULES, "how the learning rates fall after the warm-up")
    floor: float = option(0.0, "fraction of the peak rates left at the end", low=0.0, high=1.0)
    warmup_steps: int = option(0, "updates of linear warm-up", low=0)
    weight_decay: float = option(0.0, "decay of everything but gains and biases", low=0.0, high=1e6)
    momentum: float = option(0.9, "Muon's momentum", low=0.0, high=0.99999)
    beta1: float = option(0.9, "AdamW's decay of the first moment", low=0.0, high=0.99999)
    beta2: float = option(0.95, "AdamW's decay of the second moment", low=0.0, high=0.99999)
    adam_eps: float = option(1e-8, "AdamW's guard against division by zero", low=0.0)
    clip_norm: float | None = option(1.0, "largest global gradient norm; none never clips", low=0.0)
    recompute: bool = option(
        False, "compute a block's activations again in the backward pass instead of keeping them"
    )
    precision: str = choice(
        "auto",
        PRECISIONS,
        "of products; auto: bf16 where there are instructions; tf32: on NVIDIA GPUs, fp32 "
        "elsewhere",
    )
    seed: int = option(1, "seed of the initial weights and of the batches", low=0, high=2**63 - 1)

    def __post_init__(self) -> None:
        check_record(self)
        if self.warmup_steps > self.total_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} exceeds total_steps {self.total_steps}; lower it"
            )


def _divisors(number: int) -> str:
    """The first divisors, none above 4096: nobody has more heads."""
    divisors = [str(n) for n in range(1, min(number, 4096) + 1) if number % n == 0]
    if len(divisors) > 12:
        divisors[12:] = ["..."]
    return ", ".join(divisors)
