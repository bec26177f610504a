"""The others: nanoGPT and minbpe from a path, Hugging Face's models with our weights."""

import contextlib
import importlib
import importlib.util
import io
import os
import sys
import types
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from tinylm_lib import ModelConfig, TransformerLM, preset
from tinylm_lib.pretrained import save_hf

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network


def _there(path: str, needed: str, option: str) -> Path:
    if not (Path(path) / needed).is_file():
        raise FileNotFoundError(f"{path} has no {needed}; {option} takes the root of a checkout")
    return Path(path)


def load_nanogpt(path: str) -> types.ModuleType:
    """Import model.py of a checkout of nanoGPT, under a name of its own.

    Raises FileNotFoundError where there is none.
    """
    spec = importlib.util.spec_from_file_location(
        "_nanogpt", _there(path, "model.py", "--nanogpt") / "model.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_minbpe(path: str) -> types.ModuleType:
    """Import minbpe/regex.py of a checkout of minbpe, without the parts that need other packages.

    Raises FileNotFoundError where there is none.
    """
    package = types.ModuleType("_minbpe")
    package.__path__ = [str(_there(path, "minbpe/regex.py", "--minbpe") / "minbpe")]
    sys.modules["_minbpe"] = package
    return importlib.import_module("_minbpe.regex")


def gpt2_style(**sizes: Any) -> ModelConfig:
    """The ModelConfig whose function is nanoGPT's: GPT-2 with the exact GELU, without dropout."""
    dropouts = dict.fromkeys(("embedding_dropout", "attention_dropout", "residual_dropout"), 0.0)
    return preset("gpt2", **{"ffn": "gelu", **dropouts, **sizes})


def nanogpt_model(
    path: str, config: ModelConfig, bias: bool = True, dropout: float = 0.0
) -> nn.Module:
    """nanoGPT's model of our sizes, with its own initial weights."""
    module = load_nanogpt(path)
    with contextlib.redirect_stdout(io.StringIO()):
        return module.GPT(
            module.GPTConfig(
                config.max_seq_len,
                config.vocab_size,
                config.n_layers,
                config.n_heads,
                config.d_model,
                dropout,
                bias,
            )
        )


def nanogpt_optimizer(
    model: nn.Module, lr: float, beta2: float, device: str = "cpu"
) -> torch.optim.Optimizer:
    """The optimizer that nanoGPT builds, with its default weight decay of 0.1."""
    with contextlib.redirect_stdout(io.StringIO()):
        return model.configure_optimizers(0.1, lr, (0.9, beta2), device)


def nanogpt_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor
) -> Tensor:
    """One update as nanoGPT's train.py makes it, clipped at 1. Returns the loss ()."""
    loss = model(x, y)[1]
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def nanogpt_twin(path: str, ours: TransformerLM) -> nn.Module:
    """nanoGPT's model with the weights of ours."""
    theirs = nanogpt_model(path, ours.config)
    # GPT-2 keeps these transposed, nanoGPT does not
    square = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    weights = {
        name: w.t() if name.endswith(square) else w
        for name, w in hugging_face_twin(ours).state_dict().items()
    }
    theirs.load_state_dict(weights)
    return theirs


class AllLogits(nn.Module):
    """nanoGPT's model as a function from ids (B, T) to all logits (B, T, V)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T). Returns (B, T, V)."""
        return self.model(ids, ids)[0]


def hugging_face_twin(ours: TransformerLM) -> nn.Module:
    """The model of Hugging Face with the weights of ours, in evaluation mode."""
    from transformers import AutoModelForCausalLM

    with TemporaryDirectory() as folder:
        theirs = AutoModelForCausalLM.from_pretrained(
            save_hf(ours, folder), attn_implementation="sdpa"
        ).eval()
    theirs.generation_config.eos_token_id = theirs.generation_config.bos_token_id = None
    theirs.generation_config.pad_token_id = 0
    return theirs


def hugging_face_generate(theirs: nn.Module, prompt: Tensor, n_tokens: int) -> Tensor:
    """Sample at temperature 1 from the whole distribution, with the cache.

    Returns (B, T + n_tokens).
    """
    ids = theirs.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=n_tokens,
        do_sample=True,
        top_k=0,
        top_p=1.0,
    )
    if ids.shape[1] != prompt.shape[1] + n_tokens:
        raise ValueError(
            f"Hugging Face's generate stopped after {ids.shape[1] - prompt.shape[1]} tokens"
        )
    return ids
