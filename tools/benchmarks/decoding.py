"""Reading and writing: forward passes, decoding compared with Hugging Face and nanoGPT, the cache,
long contexts.
"""

import copy
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tinylm_lib import KVCache, TransformerLM, generate, preset, stream
from tinylm_lib.cost import kv_cache_bytes

from .measure import Bar, Row, Settings, alternate, compare, ratio, threads
from .peers import gpt2_style, hugging_face_generate, hugging_face_twin, nanogpt_twin

SMALL = {"vocab_size": 256, "d_model": 128, "n_layers": 4, "n_heads": 4, "max_seq_len": 512}
FULL_SIZE = {"init": "normal", "max_seq_len": 1024}  # 124M with the preset's own sizes


def model_of(config: Any, seed: int = 1) -> TransformerLM:
    """A model in evaluation mode."""
    torch.manual_seed(seed)
    return TransformerLM(config).eval()


def forward(s: Settings) -> Iterator[Row]:
    """A forward pass at equal weights, batch 1, T 256: small compared with HF Llama, 124M compared
    with HF GPT-2.
    """
    small = preset("llama", **SMALL)
    large = gpt2_style(ffn="gelu_tanh", **FULL_SIZE)
    yield forward_with(
        "HF Llama", "4 layers, d 128", model_of(small), Bar("≤", 0.9), s.rounds(20), 10
    )
    yield forward_with("HF GPT-2", "124M", model_of(large), Bar("≤", 1.02), s.rounds(16), 1)


def forward_with(
    peer: str, size: str, ours: TransformerLM, bar: Bar, rounds: int, times: int
) -> Row:
    """One row of `forward`."""
    theirs = hugging_face_twin(ours)
    ids = torch.randint(ours.config.vocab_size, (1, 256))
    with torch.no_grad():
        difference = (ours(ids) - theirs(ids).logits).abs().max().item()
        seconds = alternate(
            {"ours": lambda: ours(ids), peer: lambda: theirs(ids)}, rounds, times=times
        )
    return compare(
        f"forward pass, {size}, batch 1, T 256",
        seconds,
        peer,
        bar,
        f"logits differ by {difference:.0e}",
    )


def writing(s: Settings) -> Iterator[Row]:
    """256 new tokens with the cache, batch 1 and 16, compared with HF generate and nanoGPT's
    generate.
    """
    llama = model_of(preset("llama", **SMALL))
    gpt2 = model_of(gpt2_style(**SMALL))
    hf = hugging_face_twin(llama)
    nano = nanogpt_twin(s.nanogpt, gpt2).eval() if s.nanogpt else None
    for batch_size in (1, 16):
        with_hf = {
            "ours": lambda prompt: generate(llama, prompt, 256),
            "HF Llama": lambda prompt: hugging_face_generate(hf, prompt, 256),
        }
        for n in (1, 2):
            with threads(n) as said:
                more = f", {said}"
                yield writing_with(
                    "HF Llama", "Llama style", with_hf, batch_size, s.rounds(7), more, limit=0.5
                )
        if not s.quick:
            yield writing_compiled(llama, with_hf["HF Llama"], batch_size, s.rounds(5))
        with_nano: dict[str, Callable] = {"ours": lambda prompt: generate(gpt2, prompt, 256)}
        if nano:
            with_nano["nanoGPT"] = lambda prompt: nano.generate(prompt, 256)
        rounds = s.rounds(5)
        if batch_size > 1:
            rounds = 1 if s.quick else 3
        yield writing_with(
            "nanoGPT", "GPT-2 style", with_nano, batch_size, rounds, "; it keeps no cache"
        )


def writing_with(
    peer: str,
    style: str,
    works: dict[str, Callable[[Tensor], Tensor]],
    batch_size: int,
    rounds: int,
    more: str,
    limit: float = 0.25,
) -> Row:
    """One row of `writing`. limit: of the ratio."""
    prompt = torch.randint(256, (batch_size, 16))
    seconds = alternate(
        {name: partial(work, prompt) for name, work in works.items()},
        rounds,
        warm_up=min(1, rounds - 1),
    )
    what = f"256 new tokens, 4 layers, d 128, {style}, batch {batch_size}"
    return compare(what, seconds, peer, Bar("≤", limit), f"equal weights, sampled{more}")


def prefill(s: Settings) -> Iterator[Row]:
    """Reading a prompt of 1,000 tokens and drawing one, with a vocabulary of 32,000, compared with
    HF generate.
    """
    ours = model_of(preset("llama", **{**SMALL, "vocab_size": 32_000, "max_seq_len": 1024}))
    hf = hugging_face_twin(ours)
    prompt = torch.randint(32_000, (1, 1000))
    works = {
        "ours": lambda: generate(ours, prompt, 1),
        "HF Llama": lambda: hugging_face_generate(hf, prompt, 1),
    }
    for n in (1, 2):
        with threads(n) as said:
            seconds = alternate(works, s.rounds(7), times=3)
        note = f"equal weights, vocabulary 32,000, {said}"
        yield compare(
            "a prompt of 1,000 tokens, 4 layers, d 128, batch 1",
            seconds,
            "HF Llama",
            Bar("≤", 1.0),
            note,
        )


def writing_compiled(
    model: TransformerLM, theirs: Callable[[Tensor], Tensor], batch_size: int, rounds: int
) -> Row:
    """The same with `model.compile()`, compared with their eager code; the first call compiles and
    is told apart.
    """
    quick = copy.deepcopy(model)
    quick.compile()
    start = time.perf_counter()
    generate(quick, torch.randint(256, (batch_size, 16)), 256)
    more = f"; ours compiled, first call {time.perf_counter() - start:.0f} s"
    works = {"ours": lambda prompt: generate(quick, prompt, 256), "HF Llama": theirs}
    return writing_with(
        "HF Llama", "Llama style, compiled", works, batch_size, rounds, more, limit=0.5
    )


def decode(s: Settings) -> Iterator[Row]:
    """Decoding at 124M, batch 1, per token, compared with the time to read the weights once; also
    for HF GPT-2.
    """
    ours = model_of(gpt2_style(ffn="gelu_tanh", **FULL_SIZE))
    hf = hugging_face_twin(ours)
    prompt = torch.randint(50_257, (1, 16))
    n = 16
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: generate(ours, prompt, n + 1),
        "ours, 1": lambda: generate(ours, prompt, 1),
        "one read": lambda: read_all(ours),
        "one product": lambda: multiply_all(ours),
        "HF": lambda: hugging_face_generate(hf, prompt, n + 1),
        "HF, 1": lambda: hugging_face_generate(hf, prompt, 1),
    }
    seconds = alternate(works, s.rounds(10))
    per_token = {
        name: [(a - b) / n for a, b in zip(seconds[name], seconds[f"{name}, 1"], strict=True)]
        for name in ("ours", "HF")
    }
    size = sum(p.numel() * p.element_size() for p in ours.parameters())
    for peer, how, limit in (
        ("one read", "the sum of all weights", 1.1),
        ("one product", "F.linear of every matrix with a vector", 1.05),
    ):
        values = {"ours": per_token["ours"], peer: seconds[peer]}
        hf_ratio = ratio(per_token["HF"], seconds[peer])
        note = f"{how}: {size / median(seconds[peer]) / 1e9:.1f} GB/s; HF is at {hf_ratio}"
        yield compare("decode, 124M, batch 1, per token", values, peer, Bar("≤", limit), note)
    yield compare(
        "decode, 124M, batch 1, per token", per_token, "HF", Bar("≤", 1.0), "equal weights, sampled"
    )


@torch.no_grad()
def read_all(model: nn.Module) -> None:
    """Read every weight once, as fast as memory allows."""
    for p in model.parameters():
        p.sum()


@torch.no_grad()
def multiply_all(model: nn.Module) -> None:
    """Multiply every matrix with one vector, as torch's own linear map does."""
    for p in model.parameters():
        if p.ndim == 2:
            F.linear(torch.ones(1, p.shape[1]), p)


def cache(s: Settings) -> Iterator[Row]:
    """Bytes of the cache and the closed formula."""
    for name, config in (
        ("modern", preset("modern")),
        ("llama 3.2-1b", preset("llama", "3.2-1b", n_layers=2)),
    ):
        real = KVCache(config, 4, 128)
        n_bytes = sum(t.numel() * t.element_size() for t in [*real.keys, *real.values])
        values = {"ours": [n_bytes], "formula": [kv_cache_bytes(config, 4, 128)]}
        yield compare(
            f"cache of 4 x 128 positions, {name}", values, "formula", Bar("=", 1.0), unit="bytes"
        )


def context_growth(s: Settings) -> Iterator[Row]:
    """The time to decode one token as the context grows: at most linear is a ratio of at most 2
    when it doubles.
    """
    model = model_of(preset("modern", n_layers=4, max_seq_len=4200))
    seconds: dict[int, list[float]] = {}
    for length in (512, 2048, 4096):
        tokens = stream(model, torch.randint(256, (1, length)), 64)
        seconds[length] = alternate(
            {"token": lambda tokens=tokens: next(tokens)}, s.rounds(56), warm_up=4
        )["token"]
    for short, long in itertools.pairwise(seconds):
        values = {"ours": seconds[long], f"at {short}": seconds[short]}
        bar = Bar("≤", long / short)
        yield compare(
            f"decode per token at a context of {long}",
            values,
            f"at {short}",
            bar,
            "modern, batch 1",
        )


ROWS = {
    "forward": forward,
    "prefill": prefill,
    "generate": writing,
    "decode": decode,
    "cache": cache,
    "growth-context": context_growth,
}
