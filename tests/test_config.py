"""Configs: derived sizes, every refusal with its field, its value and what to do, and JSON."""

import dataclasses
import json
import math
import re
from typing import Any

import pytest

from tinylm_lib import ModelConfig, TrainConfig
from tinylm_lib.config import RopeScaling, derived_d_ff, field_types
from tinylm_lib.feedforward import FFNS
from tinylm_lib.layers import NORMS
from tinylm_lib.model import BLOCKS, INITS
from tinylm_lib.positions import LAYOUTS, POSITIONS
from tinylm_lib.training.loop import PRECISIONS
from tinylm_lib.training.optim import RULES, SCHEDULES

RECORDS = (ModelConfig, TrainConfig, RopeScaling)


def of_kind(record: type, kind: type) -> list[str]:
    return [f.name for f in dataclasses.fields(record) if field_types(f)[0] is kind]


INTS, FLOATS, BOOLS, NAMES = ({record: of_kind(record, kind) for record in RECORDS} for kind in (int, float, bool, str))
NOT_AN_INT = [True, False, 4.0, 2.5, math.nan, math.inf, "4", [4], 4j]
NOT_A_FLOAT = [True, math.nan, math.inf, -math.inf, "0.1", [0.1]]
NOT_A_BOOL = [0, 1, 1.0, "yes", None]
NOT_A_NAME = [None, 1, True, "", "unknown", "RMS"]
WRONG = [
    (record, field, values)
    for fields, values in ((INTS, NOT_AN_INT), (FLOATS, NOT_A_FLOAT), (BOOLS, NOT_A_BOOL), (NAMES, NOT_A_NAME))
    for record in RECORDS
    for field in fields[record]
]


def test_the_records_have_so_many_numbers_switches_and_names() -> None:
    kinds = [[len(fields[record]) for fields in (INTS, FLOATS, BOOLS, NAMES)] for record in RECORDS]
    assert kinds == [[9, 7, 6, 6], [6, 9, 1, 3], [1, 3, 0, 0]]


@pytest.mark.parametrize(("record", "field", "values"), WRONG, ids=[f"{r.__name__}.{field}" for r, field, _ in WRONG])
def test_a_value_of_the_wrong_kind_is_refused_by_field_and_value(record: type, field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^{field} ") as caught:
            record(**{field: value})
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("record", "field", "value", "bound"),
    [
        *((ModelConfig, field, value, "at least 1") for field in INTS[ModelConfig] for value in (0, -3)),
        *((ModelConfig, f, v, "from 0.0 to 1.0") for f in FLOATS[ModelConfig] if "dropout" in f for v in (-0.1, 1.1)),
        *((ModelConfig, field, -1e-9, "at least 0.0") for field in ("norm_eps", "init_std")),
        (ModelConfig, "rope_base", 0.5, "at least 1.0"),
        *((TrainConfig, field, 0, "at least 1") for field in ("total_steps", "batch_size", "seq_len", "micro_steps")),
        (TrainConfig, "warmup_steps", -1, "at least 0"),
        *((TrainConfig, "seed", value, "from 0 to 9223372036854775807") for value in (-1, 2**63)),
        *((TrainConfig, f, v, "to 1000000.0") for f in ("matrix_lr", "embedding_lr") for v in (-1.0, 2e6)),
        *((TrainConfig, "weight_decay", v, "to 1000000.0") for v in (-1.0, 2e6)),
        (TrainConfig, "adam_eps", -1.0, "at least 0.0"),
        *((TrainConfig, "floor", value, "from 0.0 to 1.0") for value in (-0.1, 1.1)),
        (TrainConfig, "clip_norm", -1.0, "at least 0.0"),
        *((TrainConfig, field, value, "0.0") for field in ("momentum", "beta1", "beta2") for value in (-0.1, 1.0, 1.5)),
        (RopeScaling, "factor", 0.5, "at least 1.0"),
        (RopeScaling, "low_freq_factor", -1.0, "at least 0.0"),
        (RopeScaling, "original_max_seq_len", 0, "at least 1"),
    ],
)  # fmt: skip
def test_a_number_out_of_range_is_refused_with_the_range(record: type, field: str, value: float, bound: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field} .*{bound}.*got {value}"):
        record(**{field: value})


IMPOSSIBLE = [
    (ModelConfig, {"d_model": 50, "n_heads": 4}, "d_model 50 .*n_heads 4; choose n_heads from 1, 2, 5, 10, .*d_head"),
    (ModelConfig, {"n_heads": 6, "d_model": 48, "n_kv_heads": 4}, "n_kv_heads 4 .*n_heads 6; choose from 1, 2, 3, 6"),
    (ModelConfig, {"n_heads": 2, "d_model": 48, "n_kv_heads": 4}, "n_kv_heads 4 .*n_heads 2; choose from 1, 2"),
    (ModelConfig, {"d_model": 12, "n_heads": 4}, "d_head 3 is odd, .*rotary.*choose an even d_head"),
    (ModelConfig, {"d_head": 7}, "d_head 7 is odd, .*even"),
    (ModelConfig, {"position": "sinusoidal", "d_model": 33, "n_heads": 3}, "d_model 33 .*sinusoidal.*even"),
    (ModelConfig, {"rope_scaling": "llama3"}, "rope_scaling .*RopeScaling.*'llama3'"),
    (ModelConfig, {"rope_scaling": {"factor": 0.5}}, "factor .*at least 1.0.*0.5"),
    (ModelConfig, {"rope_scaling": {"type": "linear"}}, "RopeScaling has no field type; it has factor"),
    (TrainConfig, {"warmup_steps": 700, "total_steps": 600}, "warmup_steps 700 .*total_steps 600"),
    (TrainConfig, {"optimizer": "sgd"}, "optimizer 'sgd' .*muon, adamw"),
    (TrainConfig, {"schedule": "steps"}, "schedule 'steps' .*linear, cosine"),
    (TrainConfig, {"precision": "fp8"}, "precision 'fp8' .*fp32, tf32, bf16"),
    (RopeScaling, {"low_freq_factor": 4}, "high_freq_factor .*low_freq_factor, got 4.0 and 4"),
]


@pytest.mark.parametrize(("record", "changes", "says"), IMPOSSIBLE)
def test_values_that_contradict_each_other_are_refused_with_a_fix(
    record: type, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        record(**changes)


@pytest.mark.parametrize("n_heads", [1, 3, 6])
def test_an_odd_head_is_fine_where_nothing_is_rotated(n_heads: int) -> None:
    assert ModelConfig(position="learned", d_model=18, n_heads=n_heads).d_head == 18 // n_heads


def test_whole_numbers_are_welcome_where_fractions_are() -> None:
    assert ModelConfig(rope_base=500_000, attention_dropout=0, norm_eps=0).rope_base == 500_000
    assert TrainConfig(clip_norm=1, floor=1).clip_norm == 1
    assert TrainConfig(clip_norm=None).clip_norm is None


def test_a_nested_record_survives_json() -> None:
    config = ModelConfig(rope_scaling=RopeScaling(factor=32, low_freq_factor=0.5, original_max_seq_len=77))
    again = ModelConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.rope_scaling == RopeScaling(32.0, 0.5, 4.0, 77)
    assert type(again.rope_scaling) is RopeScaling
    assert None not in again.to_dict().values(), "all sizes are derived"
    training = TrainConfig(clip_norm=None, seed=3)
    assert TrainConfig.from_dict(json.loads(json.dumps(training.to_dict()))) == training


@pytest.mark.parametrize("record", RECORDS)
def test_an_unknown_field_is_refused_with_all_known_ones(record: Any) -> None:
    with pytest.raises(ValueError, match=f"{record.__name__} has no field speed, width; it has") as caught:
        record.from_dict({"width": 1, "speed": 2})
    assert all(f.name in str(caught.value) for f in dataclasses.fields(record))


def test_a_config_cannot_be_changed_and_can_be_a_key() -> None:
    config = ModelConfig(rope_scaling=RopeScaling())
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 3
    assert {config: 1}[ModelConfig(rope_scaling=RopeScaling())] == 1


def test_sizes_that_are_given_are_kept_and_others_derived() -> None:
    config = ModelConfig(d_model=48, n_heads=6)
    assert (config.n_kv_heads, config.d_head, config.d_ff) == (6, 8, 128)
    config = ModelConfig(d_model=50, n_heads=6, n_kv_heads=2, d_head=10, d_ff=7)
    assert (config.n_kv_heads, config.d_head, config.d_ff) == (2, 10, 7)


@pytest.mark.parametrize("multiple", [1, 3, 32, 64])
@pytest.mark.parametrize("ratio", [8 / 3, 4])
def test_derived_d_ff_is_the_nearest_multiple(ratio: float, multiple: int) -> None:
    for d in range(1, 500):
        target = int(ratio * d)
        nearest = min(range(multiple, target + 2 * multiple, multiple), key=lambda m: (abs(m - target), m))
        assert derived_d_ff(d, ratio, multiple) == nearest


@pytest.mark.parametrize(
    ("field", "table"),
    [("norm", NORMS), ("position", POSITIONS), ("ffn", FFNS), ("block", BLOCKS), ("init", INITS),
     ("rope_layout", LAYOUTS), ("optimizer", RULES), ("schedule", SCHEDULES), ("precision", PRECISIONS)],
)  # fmt: skip
def test_a_record_offers_what_the_table_of_classes_holds_and_nothing_else(
    field: str, table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = next(record for record in (ModelConfig, TrainConfig) if field in record.__dataclass_fields__)
    assert len(table) >= 2
    with pytest.raises(ValueError, match=f"{field} 'mish' is unknown; choose one of {', '.join(table)}$"):
        record(**{field: "mish"})
    monkeypatch.setitem(table, "mish", next(iter(table.values())))  # all that a new class needs
    assert getattr(record(**{field: "mish"}), field) == "mish"


@pytest.mark.parametrize("record", [ModelConfig, TrainConfig])
def test_an_editor_shows_what_each_field_means(record: type) -> None:
    assert [f.name for f in dataclasses.fields(record) if not re.search(rf"\b{f.name}\b", record.__doc__)] == []
