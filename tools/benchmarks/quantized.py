"""Weights in 8 bits: what they cost in nats, and what they save in bytes and in time per token."""

import copy
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from tinylm_lib import (
    ByteTokenizer,
    KVCache,
    TrainConfig,
    TransformerLM,
    build_optimizer,
    evaluate,
    generate,
    load_corpus,
    load_pretrained,
    preset,
    split,
    storyworld,
    train,
)
from tinylm_lib.data import RandomWindows, every_document, every_window
from tinylm_lib.quantization import has_int8_product, quantize_model

from .decoding import FULL_SIZE, model_of
from .measure import Bar, Row, Settings, alternate, compare
from .peers import gpt2_style, hugging_face_generate, hugging_face_twin

N_STORIES = 400
PYDOC_STEPS = 900
BATCH = 16  # rows that torch's own product takes
LOST = Bar("≤", 0.01, "ours")


def int8(s: Settings) -> Iterator[Row]:
    """124M in 8 bits and in bf16, per token compared with HF's fp32, bytes, and the loss that it
    adds.
    """
    model = model_of(gpt2_style(ffn="gelu_tanh", **FULL_SIZE))
    hf = hugging_face_twin(model)
    small = quantize_model(model)
    half = copy.deepcopy(model).bfloat16()
    prompt = torch.randint(50_257, (1, 16))
    n = 16
    ours = {"int8": small, "bf16": half}
    writers: dict[str, Callable[[int], object]] = {
        name: lambda n, model=model: generate(model, prompt, n) for name, model in ours.items()
    }
    writers["HF fp32"] = lambda n: hugging_face_generate(hf, prompt, n)
    works = {}
    for name, write in writers.items():
        works[f"{name}, 1"] = partial(write, 1)
        works[f"{name}, {n + 1}"] = partial(write, n + 1)
    seconds = alternate(works, s.rounds(10))
    per_token = {
        name: [
            (a - b) / n
            for a, b in zip(seconds[f"{name}, {n + 1}"], seconds[f"{name}, 1"], strict=True)
        ]
        for name in writers
    }
    bar = Bar("≤", 0.6, holds="torch's product with int8 vectorised", here=has_int8_product())
    for name, judged in (("int8", bar), ("bf16", None)):
        values = {"ours": per_token[name], "HF fp32": per_token["HF fp32"]}
        yield compare(
            f"decode, 124M, batch 1, per token, {name}",
            values,
            "HF fp32",
            judged,
            "equal weights, sampled",
        )
        sizes = {"ours": [n_bytes(ours[name])], "HF fp32": [n_bytes(model)]}
        yield compare(f"weights, 124M, {name}", sizes, "HF fp32", unit="bytes")
    found = load_pretrained("storyworld")
    text = storyworld.corpus(N_STORIES // 4 if s.quick else N_STORIES, seed=1_000_000)
    ids = torch.tensor(found.tokenizer.encode("\n" + text))
    windows = list(every_document(ids, found.tokenizer.encode("\n")[0], BATCH))
    yield from lost("StoryWorld, the shipped model", found.model.eval(), windows)


def int8_pydoc(s: Settings) -> Iterator[Row]:
    """The nats that a model of `pydoc` loses in 8 bits, after 900 updates of the recipe; three
    minutes.
    """
    tokenizer = ByteTokenizer()
    training, validation = split(torch.tensor(tokenizer.encode(load_corpus("pydoc"))), 0.05)
    recipe = TrainConfig(total_steps=PYDOC_STEPS)
    model = TransformerLM(
        preset("modern", vocab_size=tokenizer.vocab_size, max_seq_len=recipe.seq_len)
    )
    batches = RandomWindows(training, recipe.batch_size, recipe.seq_len, recipe.seed)
    for _ in train(model, build_optimizer(model, recipe), batches, recipe):
        pass
    windows = list(every_window(validation, BATCH, recipe.seq_len))
    yield from lost("pydoc", model.eval(), windows)


def lost(text: str, model: TransformerLM, windows: list[tuple[Tensor, Tensor]]) -> Iterator[Row]:
    """The nats that 8 bits cost on windows of ids and targets, each (B, T): read at once, and as in
    writing.
    """
    small = quantize_model(model)
    row = f"nats per token lost in int8, {text}"
    for how, how_said in (
        (lambda m: m, "read at once"),
        (OneByOne, "read one by one, with the cache"),
    ):
        full, rounded = (evaluate(how(m), windows).nats_per_token for m in (model, small))
        note = f"{full:.4f} in fp32; {n_bytes(small) / n_bytes(model):.2f} of the bytes; {how_said}"
        yield Row(row, rounded - full, "nats", bar=LOST, note=note)


class OneByOne(nn.Module):
    """A model that reads one token of each row after the other, through its cache, as it does when
    it writes.
    """

    def __init__(self, model: TransformerLM):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T). Returns logits (B, T, V)."""
        cache = KVCache(self.model.config, *ids.shape)
        return torch.cat([self.model(token, cache) for token in ids.split(1, dim=1)], dim=1)


def n_bytes(model: nn.Module) -> int:
    """Bytes of all weights."""
    return sum(t.nbytes for t in model.state_dict().values())


ROWS = {"int8": int8, "int8-pydoc": int8_pydoc}
