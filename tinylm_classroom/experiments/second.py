"""A second model, for the question whether another one learns the same: as the shipped one, with
another random start, other batches and fewer updates, in 8 bits.
"""

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from tinylm_lib.model import TransformerLM
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.quantization import quantize_int8

FILE = Path(__file__).with_name("second.safetensors")


def second_model() -> TransformerLM:
    """The second model in evaluation mode. It has the sizes and the tokenizer of the shipped one.

    `python tools/second.py` has trained it.
    """
    stored = load_file(FILE)
    weights: dict[str, Tensor] = {}
    for name, values in stored.items():
        if name.endswith(".scale"):
            continue
        scale = stored.get(f"{name}.scale")
        weights[name] = values if scale is None else values.float() * scale[:, None]
    model = TransformerLM(load_pretrained("storyworld").model.config)
    model.load_state_dict(weights)
    return model.eval()


def write_second(model: TransformerLM) -> None:
    """Write a model as the second one, each matrix in 8 bits with a scale for each row."""
    stored: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        if weight.ndim == 2:
            stored[name], stored[f"{name}.scale"] = quantize_int8(weight)
        else:
            stored[name] = weight.float()
    save_file(stored, FILE)
