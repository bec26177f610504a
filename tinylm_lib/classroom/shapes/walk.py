"""The walk through a model: every step from ids to logits with its shape, parameters and FLOPs, as they run."""

import dataclasses
import math
import operator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...attention import Attention
from ...config import ModelConfig
from ...feedforward import MLP, GatedMLP
from ...layers import Linear
from ...model import TransformerLM
from .capture import capture
from .comments import config_sizes
from .model_trace import UNCHANGING

BLOCK = "blocks.0."


@dataclass(frozen=True)
class Step:
    """One step: a module of the model by its name, or an operation between modules.

    axes, weight: what it returns and its matrix or gain, in letters, products as `H*D`; `{t}` in `says` is a token and
    `{fact}` something about it, `unread` where there is no text. parameters, flops: for one text, all inside included.
    depth: 0 in the model, 1 in a block, 2 in a sublayer. on_stream: what it returns is the stream itself.
    """

    name: str
    title: str
    axes: str
    says: str
    unread: str = ""
    weight: str = ""
    depth: int = 0
    parameters: int = 0
    flops: int = 0
    times: int = 1
    on_stream: bool = False

    def shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape of what it returns, in numbers."""
        return sized(self.axes, sizes)


def sized(axes: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """Axes such as `B T H*D` in numbers; sizes: of each letter."""
    return tuple(math.prod(sizes.get(a) or int(a) for a in axis.split("*")) for axis in axes.split())


# What each step is called, what it returns, what happens to one token there, and its weight; {C} and so on are sizes.
KNOWN = {
    step.name: step
    for step in (
        Step("ids", "token ids", "B T", "{t} is token {fact}: its letters are gone, a number is left.", "a number"),
        Step(
            "embed", "embedding", "B T C",
            "{t} becomes a vector of {C} numbers: {fact} of the table.", "one row", "V C",
        ),
        Step("scaled", "× √C", "B T C", "{t}: all its numbers are multiplied by √C, the root of {C}."),
        Step("position", "+ position", "B T C", "{t} gets the vector of its place added: order counts from here on."),
        Step(
            "block", "block", "B T C",
            "{t} passes through the blocks: each adds to its vector, none changes its shape.",
        ),
        Step(
            "attn_norm", "norm", "B T C",
            "{t}: a copy of its vector is brought to one size, for attention to read.", weight="C",
        ),
        Step("attention", "attention", "B T C", "{t} looks back and fetches from the words before it what fits."),
        Step(
            "q_proj", "queries", "B T H*D",
            "{t} asks: its query has {D} numbers in each of {H} heads.", weight="H*D C",
        ),
        Step(
            "k_proj", "keys", "B T G*D",
            "{t} can be found: its key has {D} numbers in each of {G} heads.", weight="G*D C",
        ),
        Step(
            "v_proj", "values", "B T G*D",
            "{t} has something to give: its value, which others take along.", weight="G*D C",
        ),
        Step(
            "split", "split into heads", "B H T D",
            "{t}: nothing is computed, its query is only cut into {H} heads.",
        ),
        Step(
            "q_norm", "norm of queries", "B H T D",
            "{t}: its query is brought to one size in each head.", weight="D",
        ),
        Step("k_norm", "norm of keys", "B G T D", "{t}: its key is brought to one size in each head.", weight="D"),
        Step(
            "rotation.q", "rotate queries", "B H T D",
            "{t}: its query is turned by angles that belong to place {fact}.", "its own",
        ),
        Step(
            "rotation.k", "rotate keys", "B G T D",
            "{t}: its key is turned by angles that belong to place {fact}.", "its own",
        ),
        Step("scores", "scores q · k ÷ √D", "B H T S", "{t} compares its query with the key of every word."),
        Step("masked", "mask", "B H T S", "{t} may not look at {fact}.", "what comes later"),
        Step("weights", "softmax", "B H T S", "{t} makes shares of one whole. {fact}", "Every row sums to 1."),
        Step("mixed", "mix the values", "B H T D", "{t} takes the values in these shares: one sum in each head."),
        Step(
            "merged", "heads side by side", "B T H*D",
            "{t}: nothing is computed, its {H} heads stand side by side again.",
        ),
        Step(
            "o_proj", "output", "B T C",
            "{t}: what its heads brought becomes one vector, as wide as the stream.", weight="C H*D",
        ),
        Step("attention_added", "add to the stream", "B T C", "{t}: what attention fetched is added to its vector."),
        Step(
            "ffn_norm", "norm", "B T C",
            "{t}: a copy of its vector is brought to one size, for the feed-forward to read.", weight="C",
        ),
        Step("ffn", "feed-forward", "B T C", "{t} is worked on alone, without a look at other words."),
        Step(
            "gate_proj", "gate", "B T F",
            "{t}: {F} numbers say how far each of the next {F} may pass.", weight="F C",
        ),
        Step("activated", "activation", "B T F", "{t}: what is clearly negative goes to 0, what is positive passes."),
        Step("up_proj", "up", "B T F", "{t}: its {C} numbers become {F}.", weight="F C"),
        Step("gated", "gate × up", "B T F", "{t}: each of its {F} numbers is multiplied by its gate."),
        Step("down_proj", "down", "B T C", "{t}: its {F} numbers become {C} again.", weight="C F"),
        Step("ffn_added", "add to the stream", "B T C", "{t}: what the feed-forward made is added to its vector."),
        Step(
            "final_norm", "final norm", "B T C",
            "{t}: its vector, grown on the way, is brought to one size.", weight="C",
        ),
        Step(
            "head", "head: logits", "B T V",
            "{t}: a score for each of {V} tokens. {fact}", "The highest is the best guess.", "V C",
        ),
    )
}  # fmt: skip
ON_THE_STREAM = "{t}: its vector itself, after the addition, is brought to one size."
TIED = " The table of the embedding is used again."
# What happens inside a sublayer, by its class, and where the additions stand.
INSIDE = {
    Attention: (
        "q_proj", "k_proj", "v_proj", "split", "q_norm", "k_norm", "rotation.q", "rotation.k", "scores", "masked",
        "weights", "mixed", "merged", "o_proj",
    ),
    GatedMLP: ("gate_proj", "activated", "up_proj", "gated", "down_proj"),
    MLP: ("up_proj", "activated", "down_proj"),
}  # fmt: skip
PRODUCTS = ("scores", "mixed")


def walk(config: ModelConfig, seq_len: int) -> list[Step]:
    """All steps of one text of seq_len tokens; those of one block, and of what is inside it, once.

    The model is built and run on the meta device, so that what exists and in which order is its own word.
    """
    with torch.device("meta"):
        model = TransformerLM(dataclasses.replace(config, n_layers=1))
        order = list(capture(model, torch.zeros(1, 1, dtype=torch.long)).outputs)
    steps = [_step("ids", None, seq_len), _step("embed", model.embed, seq_len, on_stream=True)]
    if config.scale_embeddings:
        steps.append(_step("scaled", None, seq_len, on_stream=True))
    if not _unchanged(model.position):
        weight = " ".join(str(n) for p in model.position.parameters() for n in p.shape[:1])
        steps.append(_step("position", model.position, seq_len, on_stream=True, weight=f"{weight} C" if weight else ""))
    steps += _block_steps(model.blocks[0], order, seq_len, config.n_layers)
    if not _unchanged(model.final_norm):
        steps.append(_step("final_norm", model.final_norm, seq_len))
    table = model.embed.weight if model.lm_head is None else model.lm_head.weight
    says = KNOWN["head"].says + (TIED if model.lm_head is None else "")
    own = 0 if model.lm_head is None else table.numel()
    head = {"parameters": own, "flops": 2 * seq_len * table.numel(), "weight": "V C" if own else "", "says": says}
    return [*steps, _step("head", None, seq_len, **head)]


def values(model: TransformerLM, ids: Tensor, layer: int = 0) -> dict[str, Tensor]:
    """What each step of `walk` returns for ids (B, T), by its name; `block` returns what leaves the last block.

    Raises AssertionError unless the additions end in what the block itself returned.
    """
    caught = capture(model, ids)
    own, inside, block = f"blocks.{layer}.", f"blocks.{layer}.attention.", model.blocks[layer]
    stages, ffn = caught.attention(layer), block.ffn
    found = {
        name.removeprefix(inside).removeprefix(f"{own}ffn.").removeprefix(own): x for name, x in caught.outputs.items()
    }
    gates = found["gate_proj" if isinstance(ffn, GatedMLP) else "up_proj"]
    found |= {name: getattr(stages, name) for name in ("masked", "weights", "mixed")}
    found |= {
        "ids": ids,
        "scores": stages.scaled,
        "split": block.attention.split(found["q_proj"]),
        "head": caught.logits,
    }
    found |= {"merged": caught.inputs[f"{inside}o_proj"], "gated": caught.inputs[f"{own}ffn.down_proj"]}
    found |= {"activated": ffn.activation(gates), "scaled": found["embed"] * model.embed_scale}
    found["block"] = caught.outputs[f"blocks.{len(model.blocks) - 1}"]
    stream = caught.inputs[own[:-1]]
    for sublayer, norm in (("attention", "attn_norm"), ("ffn", "ffn_norm")):
        stream = found[f"{sublayer}_added"] = stream + found[sublayer]
        stream = stream if block.final_norm else found[norm]
    torch.testing.assert_close(stream, caught.outputs[own[:-1]])
    return found


def sizes_of(config: ModelConfig, seq_len: int) -> dict[str, int]:
    """The size of each letter for one text of seq_len tokens."""
    return {"B": 1, "T": seq_len, "S": seq_len, **config_sizes(config)}


def _block_steps(block: nn.Module, order: list[str], seq_len: int, n_layers: int) -> list[Step]:
    names = [name.removeprefix(BLOCK) for name in order if name.startswith(BLOCK)]
    steps = []
    for name in names:
        if "." in name or _unchanged(part := block.get_submodule(name)):
            continue
        inside = INSIDE.get(type(part))
        if inside is None:
            said = {} if block.final_norm else {"says": ON_THE_STREAM, "on_stream": True}
            steps.append(_step(name, part, seq_len, depth=1, **said))
            continue
        below = [_inside(part, each, seq_len) for each in inside if _is_there(part, each)]
        counts = {"flops": sum(step.flops for step in below)}
        steps += [_step(name, part, seq_len, depth=1, **counts), *below]
        steps.append(_step(f"{name}_added", None, seq_len, depth=1, on_stream=True))
    top = [step for step in steps if step.depth == 1]
    counts = {name: sum(map(operator.attrgetter(name), top)) for name in ("parameters", "flops")}
    whole = _step("block", None, seq_len, on_stream=True, **counts)
    return [dataclasses.replace(step, times=n_layers) for step in [whole, *steps]]


def _inside(part: nn.Module, name: str, seq_len: int) -> Step:
    module = dict(part.named_children()).get(name)
    product = isinstance(part, Attention) and name in PRODUCTS
    more = {"flops": 2 * part.o_proj.weight.shape[1] * seq_len**2} if product else {}
    return _step(name, module, seq_len, depth=2, **more)


def _is_there(part: nn.Module, name: str) -> bool:
    module = dict(part.named_children()).get(name.split(".")[0])
    return module is None or not _unchanged(module)


def _step(name: str, module: nn.Module | None, seq_len: int, **more: object) -> Step:
    modules = [] if module is None else list(module.modules())
    counts = {
        "parameters": sum(p.numel() for each in modules[:1] for p in each.parameters()),
        "flops": 2 * seq_len * sum(each.weight.numel() for each in modules if isinstance(each, Linear)),
    }
    return dataclasses.replace(KNOWN[name], **{**counts, **more})


def _unchanged(module: nn.Module) -> bool:
    return type(module).__name__ in UNCHANGING
