"""The steps of a model from ids to logits, as they run: their shapes, parameters and FLOPs."""

import dataclasses
import math
import re
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tinylm_lib.attention import Attention
from tinylm_lib.config import ModelConfig
from tinylm_lib.feedforward import MLP, GatedMLP
from tinylm_lib.layers import Linear
from tinylm_lib.model import TransformerLM

from .capture import capture
from .comments import Letters, config_sizes
from .model_trace import UNCHANGING


@dataclass(frozen=True)
class ModelStep:
    """One step: a module of the model by its name, or an operation between modules.

    axes, weight: what it returns and its matrix or gain, in letters, products as `H*D`.
    parameters, flops: for one text, all inside included. depth: 0 in the model, 1 in a block, 2 in
    a sublayer.
    """

    name: str
    axes: str
    weight: str
    depth: int = 0
    parameters: int = 0
    flops: int = 0
    times: int = 1

    def shape(self, sizes: Letters) -> tuple[int, ...]:
        """The shape of what it returns, in numbers."""
        return sized(self.axes, sizes)


def sized(axes: str, sizes: Letters) -> tuple[int, ...]:
    """Axes such as `B T H*D` in numbers; sizes: of each letter."""
    return tuple(
        math.prod(sizes.get(a) or int(a) for a in axis.split("*")) for axis in axes.split()
    )


# What each step returns, and its weight.
_KNOWN = (
    ("ids", "B T", ""),
    ("embed", "B T C", "V C"),
    ("scaled", "B T C", ""),
    ("position", "B T C", ""),
    ("block", "B T C", ""),
    ("attn_norm", "B T C", "C"),
    ("attention", "B T C", ""),
    ("q_proj", "B T H*D", "H*D C"),
    ("k_proj", "B T G*D", "G*D C"),
    ("v_proj", "B T G*D", "G*D C"),
    ("split", "B H T D", ""),
    ("q_norm", "B H T D", "D"),
    ("k_norm", "B G T D", "D"),
    ("rotation.q", "B H T D", ""),
    ("rotation.k", "B G T D", ""),
    ("scores", "B H T S", ""),
    ("masked", "B H T S", ""),
    ("weights", "B H T S", ""),
    ("mixed", "B H T D", ""),
    ("merged", "B T H*D", ""),
    ("o_proj", "B T C", "C H*D"),
    ("attention_added", "B T C", ""),
    ("ffn_norm", "B T C", "C"),
    ("ffn", "B T C", ""),
    ("gate_proj", "B T F", "F C"),
    ("activated", "B T F", ""),
    ("up_proj", "B T F", "F C"),
    ("gated", "B T F", ""),
    ("down_proj", "B T C", "C F"),
    ("ffn_added", "B T C", ""),
    ("final_norm", "B T C", "C"),
    ("head", "B T V", "V C"),
)
_STEPS = {step[0]: ModelStep(*step) for step in _KNOWN}
# What happens inside a sublayer, by its class, and where the additions are.
_INSIDE = {
    Attention: (
        "q_proj", "k_proj", "v_proj", "split", "q_norm", "k_norm", "rotation.q", "rotation.k",
        "scores", "masked",
        "weights", "mixed", "merged", "o_proj",
    ),
    GatedMLP: ("gate_proj", "activated", "up_proj", "gated", "down_proj"),
    MLP: ("up_proj", "activated", "down_proj"),
}  # fmt: skip
_NO_MODULE = nn.Module()


def model_steps(config: ModelConfig, seq_len: int) -> list[ModelStep]:
    """All steps of one text of seq_len tokens; those of one block, and of what is inside it, once.

    The model is built and run on the meta device, so that the model itself shows which steps exist,
    and their order.
    """
    with torch.device("meta"):
        model = TransformerLM(dataclasses.replace(config, n_layers=1))
        order = list(capture(model, torch.zeros(1, 1, dtype=torch.long)).outputs)
    step = partial(_step, seq_len)
    steps = [step("ids"), step("embed", model.embed)]
    if config.scale_embeddings:
        steps.append(step("scaled"))
    if not _unchanged(model.position):
        rows = " ".join(f"{p.shape[0]} C" for p in model.position.parameters())
        steps.append(step("position", model.position, weight=rows))
    steps += _block_steps(
        model.blocks[0],
        [name.partition("blocks.0.")[2] for name in order],
        seq_len,
        config.n_layers,
    )
    if not _unchanged(model.final_norm):
        steps.append(step("final_norm", model.final_norm))
    flops = 2 * seq_len * model.embed.weight.numel()
    if model.lm_head is None:
        return [*steps, step("head", flops=flops, weight="")]
    return [*steps, step("head", model.lm_head, flops=flops)]


def _block_steps(
    block: nn.Module, order: list[str], seq_len: int, n_layers: int
) -> list[ModelStep]:
    step = partial(_step, seq_len, depth=1)
    steps = []
    for name, part in [
        (name, block.get_submodule(name)) for name in order if name and "." not in name
    ]:
        if type(part) in _INSIDE:
            below = _steps_inside(part, seq_len)
            steps += [step(name, part, flops=sum(each.flops for each in below)), *below]
            steps.append(step(f"{name}_added"))
        elif not _unchanged(part):
            steps.append(step(name, part))
    top = [each for each in steps if each.depth == 1]
    counts = {name: sum(getattr(each, name) for each in top) for name in ("parameters", "flops")}
    whole = step("block", depth=0, **counts)
    return [dataclasses.replace(each, times=n_layers) for each in [whole, *steps]]


def _steps_inside(part: nn.Module, seq_len: int) -> list[ModelStep]:
    modules = dict(part.named_children())
    steps = []
    for name in _INSIDE[type(part)]:
        module = modules.get(name.partition(".")[0], _NO_MODULE)
        product = isinstance(part, Attention) and name in ("scores", "mixed")
        more = {"flops": 2 * part.o_proj.weight.shape[1] * seq_len**2} if product else {}
        steps += [] if _unchanged(module) else [_step(seq_len, name, module, depth=2, **more)]
    return steps


def _step(seq_len: int, name: str, module: nn.Module = _NO_MODULE, **more: object) -> ModelStep:
    flops = (
        2
        * seq_len
        * sum(each.weight.numel() for each in module.modules() if isinstance(each, Linear))
    )
    counts = {"parameters": sum(p.numel() for p in module.parameters()), "flops": flops}
    return dataclasses.replace(_STEPS[name], **{**counts, **more})


def _unchanged(module: nn.Module) -> bool:
    return type(module).__name__ in UNCHANGING


def sizes_of(config: ModelConfig, seq_len: int) -> dict[str, int]:
    """The size of each letter for one text of seq_len tokens."""
    return {"B": 1, "T": seq_len, "S": seq_len, **config_sizes(config)}


def values(model: TransformerLM, ids: Tensor, layer: int = 0) -> dict[str, Tensor]:
    """What each step of `model_steps` returns for ids (B, T), by its name; `block`: what leaves the
    last block.

    Raises AssertionError unless the additions end in what the block itself returned.
    """
    caught = capture(model, ids)
    own = f"blocks.{layer}"
    block = model.blocks[layer]
    stages = caught.attention(layer)
    inside = re.compile(rf"{own}\.((attention|ffn)\.(?=.))?")
    found = {inside.sub("", name): x for name, x in caught.outputs.items()}
    gates = found["gate_proj" if isinstance(block.ffn, GatedMLP) else "up_proj"]
    found |= {name: getattr(stages, name) for name in ("masked", "weights", "mixed")}
    found |= {"ids": ids, "scores": stages.scaled, "split": block.attention.split(found["q_proj"])}
    found |= {
        "merged": caught.inputs[f"{own}.attention.o_proj"],
        "gated": caught.inputs[f"{own}.ffn.down_proj"],
    }
    found |= {
        "activated": block.ffn.activation(gates),
        "scaled": found["embed"] * model.embed_scale,
    }
    found |= {"block": caught.outputs[f"blocks.{len(model.blocks) - 1}"], "head": caught.logits}
    stream = caught.inputs[own]
    for sublayer, norm in (("attention", "attn_norm"), ("ffn", "ffn_norm")):
        stream = found[f"{sublayer}_added"] = stream + found[sublayer]
        stream = stream if block.final_norm else found[norm]
    torch.testing.assert_close(stream, caught.outputs[own])
    return found
