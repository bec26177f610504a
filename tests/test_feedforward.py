"""Feed-forwards against the formula written out, with nothing trivial in it."""

import pytest
import torch
import torch.nn.functional as F
from support.models import normal, scramble, tiny
from torch import Tensor, nn

from tinylm_lib import ModelConfig
from tinylm_lib.feedforward import FFNS, MLP, GatedMLP, feed_forward
from tinylm_lib.layers import unchanged
from tinylm_lib.model import BLOCKS

pytestmark = pytest.mark.usefixtures("one_thread")

GATED = {"swiglu": F.silu, "geglu": F.gelu}
UNGATED = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu}


def expected(config: ModelConfig, module: nn.Module, x: Tensor) -> Tensor:
    weights = dict(module.named_parameters())

    def project(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}_proj.weight"].T + weights.get(f"{name}_proj.bias", 0)

    if config.ffn in GATED:
        return project("down", GATED[config.ffn](project("gate", x)) * project("up", x))
    return project("down", UNGATED[config.ffn](project("up", x)))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 3, 5)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("ffn", FFNS)
def test_feed_forward_is_its_formula(ffn: str, bias: bool, leading: tuple[int, ...]) -> None:
    config = tiny("modern", ffn=ffn, ffn_bias=bias)
    module, x = scramble(feed_forward(config).double(), 1.0, 3), normal(*leading, 20, dtype=torch.float64)
    torch.testing.assert_close(module(x), expected(config, module, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [MLP, GatedMLP])
def test_dropout_acts_once_at_the_end_and_only_in_training(kind: type) -> None:
    config = tiny("modern", ffn="relu" if kind is MLP else "swiglu", ffn_bias=True, ffn_dropout=0.25, d_model=400)
    module, x = scramble(feed_forward(config).double().eval(), 1.0, 3), normal(50, 400, dtype=torch.float64)
    calm = module(x)
    torch.manual_seed(1)
    shaken = module.train()(x)
    kept = shaken != 0
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(shaken[kept], calm[kept] / 0.75)


@pytest.mark.parametrize("block", BLOCKS)
def test_family_dropouts_do_not_pile_up_in_a_block(block: str) -> None:
    config = tiny("gpt", block=block, residual_dropout=0.1)
    built = BLOCKS[block](config)
    assert built.ffn.dropout is unchanged, "the block already drops what the feed-forward adds"
    assert built.dropout.p == 0.1
