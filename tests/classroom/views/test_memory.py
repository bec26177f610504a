"""Parameters and memory: the areas sum to the model, and the bytes are those of the closed formulas."""

import pytest
from support.models import MODELS, tiny
from support.views import table_rows

from tinylm_classroom.views.memory import GROUPS, MOST_MODELS, PUBLISHED, memory_view, parameter_parts
from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, kv_cache_bytes, training_bytes
from tinylm_lib.presets import SIZES

CONFIGS = [pytest.param(preset(family, size), id=f"{family} {size}") for family in SIZES for size in SIZES[family]]
CONFIGS += [pytest.param(tiny(name), id=name) for name in MODELS]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_areas_are_the_parameters_of_the_formula_part_by_part(config):
    parts, count = parameter_parts(config), count_parameters(config)
    sums = {group: sum(parts.get(group, {}).values()) for group in GROUPS}
    gains = 2 * config.d_head * config.n_layers * config.qk_norm
    assert sums["embedding"] == count.embedding + count.position
    assert sums["attention"] == count.attention * config.n_layers - gains
    assert sums["feed-forward"] == count.ffn * config.n_layers
    assert sums["norms"] == count.norms * config.n_layers + count.final_norm + gains
    assert sums["head"] == count.head and sum(sums.values()) == count.total


def test_keys_and_values_shrink_with_the_groups():
    attention = parameter_parts(preset("llama", "3-8b"))["attention"]
    assert attention["q_proj"] == attention["o_proj"] == 4 * attention["k_proj"] == 4 * attention["v_proj"]


def test_the_view_stores_what_the_closed_forms_need():
    data = memory_view({"mine": tiny("modern")}).data
    assert [model["name"] for model in data["models"]] == ["mine", *(" ".join(known) for known in PUBLISHED)]
    for model, config in zip(data["models"], [tiny("modern"), *(preset(*known) for known in PUBLISHED)], strict=True):
        assert 16 * model["total"] == training_bytes(config) and model["longest"] == config.max_seq_len
        cache = 2 * model["layers"] * 3 * model["kv_heads"] * 100 * model["d_head"] * 2
        assert cache == kv_cache_bytes(config, 3, 100, 2)


def test_words_and_table_tell_the_numbers():
    view = memory_view()
    assert "llama 3-8b: 8,030,261,248 parameters, 70 % of them in the feed-forward, 17 % in attention" in repr(view)
    assert "Training llama 3-8b takes 128 GB before the first text" in repr(view)
    assert "8,192 tokens takes 1.07 GB in bf16" in repr(view)
    rows = table_rows(view.html)
    small = count_parameters(preset("gpt2", "small"))
    assert rows[2][:2] == ["gpt2 small", f"{small.total:,}"] and rows[2][-1] == f"{16 * small.total / 1e9:.3f}"
    assert [int(cell.replace(",", "")) for cell in rows[2][2:-1]] == [
        small.embedding + small.position, 12 * small.attention, 12 * small.ffn, 12 * small.norms + small.final_norm, 0
    ]  # fmt: skip


def test_what_cannot_be_shown_is_refused_with_a_fix():
    with pytest.raises(TypeError, match="'mine' is a str: give its ModelConfig"):
        memory_view({"mine": "gpt2"})
    many = {str(i): tiny("gpt2") for i in range(MOST_MODELS - len(PUBLISHED) + 1)}
    with pytest.raises(ValueError, match="the view holds 4 models of your own, not 5"):
        memory_view(many)
