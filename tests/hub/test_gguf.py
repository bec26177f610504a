"""Models in GGUF: the weights, logits and tokens of the model that was converted, and a clear no to everything else."""

import json
import os
import random
import re
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import gguf
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from support.gguf_files import metadata_of, neighbours, tensors_of, tokenizer_metadata, write
from support.hub import BEGIN, END, trained
from support.models import rounding, scramble
from tokenizers import normalizers, pre_tokenizers
from torch import Tensor, nn
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tinylm_lib.__main__ import main
from tinylm_lib.config import RopeScaling
from tinylm_lib.data.token_file import open_tokens
from tinylm_lib.hub.gguf import KINDS, _packed, load_gguf_tokenizer
from tinylm_lib.hub.gguf_header import read_header
from tinylm_lib.pretrained import load_hf, load_hf_tokenizer, load_model, save_hf
from tinylm_lib.quantization import quantize_model

pytestmark = pytest.mark.usefixtures("one_thread")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

IDS = torch.randint(300, (2, 29), generator=torch.Generator().manual_seed(2))
N_PRODUCTS = 13  # one behind the other: six in each of two blocks, and the head
# Pairwise different, as far as rows of 32 allow; H * D differs from C.
SIZES = {
    "vocab_size": 300, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 41, "rms_norm_eps": 3e-3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 77_777.0},
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64}
GPT2_SIZES = {
    "vocab_size": 300, "n_embd": 96, "n_inner": 160, "n_layer": 2, "n_head": 3, "n_positions": 41,
    "layer_norm_epsilon": 3e-3, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, wide": ("llama", WIDE),
    "qwen2": ("qwen2", {}),
    "qwen3, tied": ("qwen3", {"tie_word_embeddings": True}),
    "gpt2": ("gpt2", {}),
    "gpt2, untied": ("gpt2", {"tie_word_embeddings": False}),
}
ODD = [
    "One day, Mia's kite flew.", "", " ", "  two  spaces \n\n a line\r\n\t", "1234567 3.14 ½ ²", "I'LL we've 'S",
    "naïve é e\u0301", "你好，世界 नमस्ते Привет", "😀👩\u200d👧 ok", f"{BEGIN}a{END} b {END}", "x" * 50,
    "==>--!!?? a_b", "\u00a0\u2003end\u200b",
]  # fmt: skip


@cache
def hugging(name: str) -> nn.Module:
    architecture, changes = MODELS[name]
    values = {**(GPT2_SIZES if architecture == "gpt2" else SIZES), **changes}
    config = transformers.AutoConfig.for_model(architecture, **values, attn_implementation="eager")
    return scramble(transformers.AutoModelForCausalLM.from_config(config).eval(), 0.1, seed=5)


def written(path: Path, name: str = "llama", kind: str = "F32", **changes: Any) -> Path:
    """A GGUF file of a model; changes of its metadata by key, where `own` stands for the architecture."""
    model, architecture = hugging(name), MODELS[name][0]
    values = {**metadata_of(model, architecture), **tokenizer_metadata(), **changes}
    values = {key.replace("own.", f"{architecture}."): value for key, value in values.items()}
    architecture = values.pop("general.architecture", architecture)
    return write(path, architecture, values, tensors_of(model, MODELS[name][0], kind))


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        found = model(IDS)
    return getattr(found, "logits", found)


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(torch.equal(x[n], y[n]) and x[n].dtype == y[n].dtype for n in x)


@pytest.mark.parametrize(("name", "kind"), [
    *((name, "F32") for name in MODELS), ("qwen3, tied", "BF16"), ("gpt2", "Q8_0"), ("qwen2", "Q4_0"),
    *(("llama", kind) for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")),
    *(("llama, wide", kind) for kind in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")),
])  # fmt: skip
def test_weights_and_logits_are_those_of_transformers(name: str, kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", name, kind)
    ours, _ = load_model(path)
    theirs = transformers.AutoModelForCausalLM.from_config(hugging(name).config).eval()
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=theirs)["tensors"]
    missing = theirs.load_state_dict(read, strict=False).missing_keys
    assert missing == (["lm_head.weight"] if theirs.config.tie_word_embeddings else [])
    theirs.save_pretrained(tmp_path / "folder")
    assert same_weights(ours, load_hf(tmp_path / "folder"))
    assert ours.config == load_hf(tmp_path / "folder").config and not ours.training
    expected = logits(theirs)
    assert expected.std() > 0.1
    assert (logits(ours) - expected).abs().max() <= rounding(expected, N_PRODUCTS)
    if kind == "F32":
        assert (logits(ours) - logits(hugging(name))).abs().max() <= rounding(expected, N_PRODUCTS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("F32", "F16", "BF16", "Q5_0", "Q5_1")])
def test_each_kind_of_storage_is_unpacked_as_transformers_does(kind: str, tmp_path: Path) -> None:
    theirs = pytest.importorskip("transformers.integrations.gguf.dequant", reason="an older transformers")
    path = written(tmp_path / "model.gguf", "llama, wide", kind)
    packed = tensors_of(hugging("llama, wide"), "llama", kind)["blk.1.ffn_down.weight"]
    expected = theirs.dequantize(torch.from_numpy(packed[0]).flatten(), int(packed[1])).view(256, 512)
    actual = load_model(path)[0].state_dict()["blocks.1.ffn.down_proj.weight"]
    assert expected.std() > 1e-3
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)


def test_five_bits_are_unpacked_by_hand(tmp_path: Path) -> None:
    for kind, low in (("Q5_0", None), ("Q5_1", -3.0)):
        block = np.zeros((1, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]), np.uint8)
        halves = [0.5] if low is None else [0.5, low]
        block[0, : 2 * len(halves)] = np.array(halves, np.float16).view(np.uint8)
        block[0, 2 * len(halves)] = 1  # the fifth bit of the first number
        block[0, 2 * len(halves) + 4] = 0x73  # four bits of numbers 0 and 16
        values = {"a": (np.tile(block, (2, 1)), gguf.GGMLQuantizationType[kind])}
        header = read_header(write(tmp_path / f"{kind}.gguf", "llama", {}, values))
        unpacked = _packed("a", header.tensors["a"], header).read()
        first, later = (0.5 * (q - 16) if low is None else 0.5 * q + low for q in (16 + 3, 7))
        assert unpacked.shape == (2, 32) and unpacked[1, 0] == first and unpacked[1, 16] == later


def test_the_header_is_what_the_package_reads(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", "qwen2", "Q4_0", **{
        "x.list": [1.5, -2.5], "x.flag": True, "x.none": ["", "é"], "general.alignment": 64,
    })  # fmt: skip
    theirs, ours = gguf.GGUFReader(path), read_header(path)
    fields = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    plain = {key: v.tolist() if isinstance(v, np.ndarray) else v for key, v in ours.metadata.items()}
    assert plain == fields and len(plain["tokenizer.ggml.tokens"]) == 300
    places = {t.name: (tuple(reversed(t.shape.tolist())), int(t.tensor_type), t.data_offset) for t in theirs.tensors}
    assert {name: tuple(t) for name, t in ours.tensors.items()} == places


def test_a_head_that_is_the_embedding_again_is_tied(tmp_path: Path) -> None:
    model = hugging("gpt2")
    tensors = tensors_of(model, "gpt2", "Q8_0")
    tensors["output.weight"] = tensors["token_embd.weight"]
    path = write(tmp_path / "a.gguf", "gpt2", metadata_of(model, "gpt2") | tokenizer_metadata(), tensors)
    assert load_model(path)[0].lm_head is None


def factors(change: float = 1.0) -> Tensor:
    """What Llama 3's stretch by 8 divides the frequencies by, from the published formula."""
    speeds = 77_777.0 ** (-torch.arange(0, 32, 2) / 32)
    lengths = 2 * torch.pi / speeds
    smooth = (8192 / lengths - 1) / 3
    between = 1 / ((1 - smooth) / 8 + smooth)
    return torch.where(lengths < 2048, 1.0, torch.where(lengths > 8192, 8.0, between)) * change


def with_factors(path: Path, values: Tensor) -> Path:
    model = hugging("llama")
    tensors = tensors_of(model, "llama", "F32")
    tensors["rope_freqs.weight"] = (values.numpy().astype(np.float32), gguf.GGMLQuantizationType.F32)
    return write(path, "llama", metadata_of(model, "llama") | tokenizer_metadata(), tensors)


def test_the_stretch_of_llama_3_is_found_in_its_factors(tmp_path: Path) -> None:
    assert len(factors().unique()) > 2, "kept, blended and divided"
    assert load_model(with_factors(tmp_path / "a.gguf", factors()))[0].config.rope_scaling == RopeScaling(8.0)
    for wrong in (factors() ** 0.9, factors()[:-1], factors().flip(0)):
        with pytest.raises(ValueError, match=r"b.gguf: rope_freqs.weight stretches frequencies in another way"):
            load_model(with_factors(tmp_path / "b.gguf", wrong))


@pytest.mark.parametrize("kind", ["F32", "Q4_1"])
def test_matrices_go_into_8_bits_as_those_of_the_whole_model(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", "llama", kind)
    assert same_weights(load_model(path, "int8")[0], quantize_model(load_model(path)[0], "int8"))


def test_it_goes_on_into_a_folder_with_its_tokens_and_template(tmp_path: Path) -> None:
    model, tokenizer = load_model(written(tmp_path / "model.gguf"))
    save_hf(model, tmp_path / "folder", tokenizer=tokenizer)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder", attn_implementation="eager")
    assert (logits(theirs) - logits(model)).abs().max() <= rounding(logits(model), N_PRODUCTS)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert words.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "Hi"
    assert words.encode(ODD[0]) == tokenizer.encode(ODD[0]) and (words.bos_token, words.eos_token) == ("<|begin|>", END)
    assert load_hf_tokenizer(tmp_path / "folder").ending == [1]


# Source: the tokenizer.json of GPT-2, SmolLM2, Llama 3 and Qwen2, through the classes of the package.
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
PRES = ("gpt-2", "smollm", "llama-bpe", "qwen2")


def cutting(pre: str) -> pre_tokenizers.PreTokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre in ("gpt-2", "smollm"))
    first = {
        "gpt-2": [], "smollm": [pre_tokenizers.Digits(individual_digits=True)],
        "llama-bpe": [pre_tokenizers.Split(tokenizers.Regex(LLAMA_3), "isolated")],
        "qwen2": [pre_tokenizers.Split(tokenizers.Regex(LLAMA_3.replace("{1,3}", "")), "isolated")],
    }[pre]  # fmt: skip
    return pre_tokenizers.Sequence([*first, plain])


@pytest.mark.parametrize("pre", PRES)
def test_texts_have_the_ids_of_the_published_pre_tokenizer(pre: str, tmp_path: Path) -> None:
    tokenizer = load_gguf_tokenizer(write(tmp_path / "t.gguf", "gemma9", tokenizer_metadata(pre), {}))
    expected = tokenizers.Tokenizer.from_str(trained().to_str())
    expected.pre_tokenizer = cutting(pre)
    if pre == "qwen2":
        expected.normalizer = normalizers.NFC()
    for text in ODD:
        assert tokenizer.encode(text) == expected.encode(text, add_special_tokens=False).ids, text
        if pre != "qwen2":
            assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.ending == [1] and tokenizer.vocab_size == 300 and tokenizer.beginning == []


def test_cuts_differ_between_the_pre_tokenizers_on_these_texts() -> None:
    cuts = {str([cutting(pre).pre_tokenize_str(text) for text in ODD]) for pre in PRES}
    assert len(cuts) == 4


def token_lists(**more: int) -> dict[str, Any]:
    """The metadata of a tokenizer with more tokens, without merges, of a kind each."""
    values = tokenizer_metadata()
    values["tokenizer.ggml.tokens"] = [*values["tokenizer.ggml.tokens"], *more]
    values["tokenizer.ggml.token_type"] = [*values["tokenizer.ggml.token_type"], *more.values()]
    return values


def test_added_tokens_are_whole_and_whole_words_need_no_merges_in_llama_3(tmp_path: Path) -> None:
    values = token_lists(**{"<think>": 4, "<|user|>": 3, "<pad>": 5, "\u0120zebras": 1})
    for pre, has_word in (("gpt-2", False), ("llama-bpe", True)):
        path = write(tmp_path / f"{pre}.gguf", "llama", {**values, "tokenizer.ggml.pre": pre}, {})
        tokenizer = load_gguf_tokenizer(path)
        ids = tokenizer.encode("a<think><|user|><pad> zebras")
        assert ids[1:3] == [300, 301] and 302 not in ids
        assert (ids[-1] == 303) == has_word
        special = {token["content"]: token["special"] for token in json.loads(tokenizer.text)["added_tokens"]}
        assert special == {BEGIN: True, END: True, "<think>": False, "<|user|>": True}


def test_beginnings_and_endings_are_those_of_the_file(tmp_path: Path) -> None:
    key = "tokenizer.ggml."
    for pre, says, expected in (
        ("llama-bpe", None, [0]),
        ("llama-bpe", False, []),
        ("qwen2", True, [0]),
        ("qwen2", None, []),
    ):
        changes = {f"{key}add_bos_token": says, f"{key}eot_token_id": 7, f"{key}eom_token_id": 1}
        path = write(tmp_path / "t.gguf", "llama", {**tokenizer_metadata(pre), **changes}, {})
        tokenizer = load_gguf_tokenizer(path)
        assert tokenizer.beginning == expected and tokenizer.ending == [1, 7]
        assert BEGIN not in tokenizer.decode(tokenizer.encode("a"))


KEY = "tokenizer.ggml."
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"general.architecture": "gemma2"}, "general.architecture 'gemma2' cannot be read; give"),
    "no architecture": ({"general.architecture": None}, "general.architecture None cannot be read"),
    "an adapter": ({"general.type": "adapter"}, "general.type is 'adapter'; give the file of a whole model"),
    "experts": ({"own.expert_count": 8}, "llama.expert_count is 8, and only 0 can be computed here"),
    "yarn": ({"own.rope.scaling.type": "yarn"}, "llama.rope.scaling.type is 'yarn', and only 'none'"),
    "a window": ({"own.attention.sliding_window": 9}, "llama.attention.sliding_window is 9, and what it changes is"),
    "no layers said": ({"own.block_count": None}, "llama.block_count is missing; take another file"),
    "no base": ({"own.rope.freq_base": None}, "llama.rope.freq_base is missing"),
    "no layers": ({"own.block_count": 0}, "llama.block_count must be one positive number, got 0"),
    "a billion layers": ({"own.block_count": 10**9}, "1000000000 layers cannot be in 21 tensors"),
    "heads by layer": ({"own.attention.head_count_kv": [2, 3]}, "kv must be one positive number, got [2, 3]"),
    "a text": ({"own.context_length": "long"}, "llama.context_length must be one positive number, got 'long'"),
    "part of a head": ({"own.rope.dimension_count": 16}, "all of a head is rotated; got llama.attention.key_length 32"),
    "three heads of keys": ({"own.attention.head_count_kv": 3}, "blk.0.attn_k.weight is (64, 96) in the files"),
    "heads that do not divide": ({"own.attention.head_count_kv": 4}, "n_kv_heads"),
    "one layer more": ({"own.block_count": 3}, "blk.2.attn_k.weight is missing in the files, and the model of"),
    "one layer less": ({"own.block_count": 1}, "blk.1.attn_k.weight is (64, 96) in the files"),
    "another vocabulary": ({"own.vocab_size": 301}, "output.weight is (300, 96) in the files"),
    "no tokenizer": ({f"{KEY}model": None}, "tokenizer.ggml.model is missing, so it holds no tokenizer; take"),
    "sentencepiece": ({f"{KEY}model": "llama"}, "tokenizer.ggml.model is 'llama', and only 'gpt2', byte-level BPE"),
    "another cut": ({f"{KEY}pre": "default"}, "tokenizer.ggml.pre is 'default', and only gpt-2, smollm, llama-bpe"),
    "no cut": ({f"{KEY}pre": None}, "tokenizer.ggml.pre is None"),
    "no tokens": ({f"{KEY}tokens": None}, "tokenizer.ggml.tokens is missing"),
    "no merges": ({f"{KEY}merges": None}, "tokenizer.ggml.merges is missing"),
    "no kinds of tokens": ({f"{KEY}token_type": None}, "tokenizer.ggml.token_type is missing"),
    "few kinds of tokens": ({f"{KEY}token_type": [1, 1]}, "tokenizer.ggml.token_type has 2 values for 300 tokens"),
    "a token twice": ({f"{KEY}tokens": ["a", "b", "a"], f"{KEY}token_type": [1, 1, 1]}, "tokens has 'a' twice"),
    "tokens that are numbers": ({f"{KEY}tokens": [1, 2], f"{KEY}token_type": [1, 1]}, "ggml.tokens must be texts"),
    "merges of nothing": ({f"{KEY}merges": ["q q z"]}, "describes no tokenizer"),
    "no beginning": ({f"{KEY}add_bos_token": True, f"{KEY}bos_token_id": None}, "ggml.bos_token_id is missing"),
    "an ending outside": ({f"{KEY}eos_token_id": 300}, "eos_token_id is 300, and there are 300 tokens"),
    "a space before": ({f"{KEY}add_space_prefix": True}, "add_space_prefix is True, and no space is put"),
    "a part": ({"split.count": 3}, "is one of the 3 parts of a model; join them with llama-gguf-split --merge"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_we_cannot_compute_is_refused_by_name(what: str, tmp_path: Path) -> None:
    changes, said = REFUSED[what]
    path = written(tmp_path / "model.gguf", **changes)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{re.escape(said)}"):
        load_model(path)


def patched(path: Path, name: str, back: int, value: bytes) -> Path:
    """The file with other bytes so many after the first place where a name ends."""
    content = bytearray(path.read_bytes())
    at = content.index(name.encode()) + len(name) + back
    content[at : at + len(value)] = value
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("kind", "says"), [(20, "IQ4_NL"), (99, "number 99"), (26, "I32")])
def test_a_kind_of_storage_that_is_not_read_is_named(kind: int, says: str, tmp_path: Path) -> None:
    path = patched(written(tmp_path / "model.gguf"), "blk.1.ffn_up.weight", 4 + 16, struct.pack("<I", kind))
    with pytest.raises(ValueError, match=rf"blk.1.ffn_up.weight is stored as {says}, and only F32, .* are read"):
        load_model(path)


WRONG_TENSORS: dict[str, tuple[Callable, str]] = {
    "missing": (lambda t: {n: x for n, x in t.items() if "1.ffn_up" not in n}, "blk.1.ffn_up.weight is missing"),
    "surplus": (lambda t: {**t, "blk.0.attn_q_norm.weight": t["output_norm.weight"]}, "attn_q_norm.weight is (96,)"),
    "turned": (lambda t: {**t, "output.weight": (t["output.weight"][0].T.copy(), None)}, "output.weight is (96, 300)"),
    "nothing": (lambda t: {}, "2 layers cannot be in 0 tensors"),
}


@pytest.mark.parametrize("what", WRONG_TENSORS)
def test_the_first_tensor_that_does_not_fit_is_named(what: str, tmp_path: Path) -> None:
    change, said = WRONG_TENSORS[what]
    model = hugging("llama")
    values = metadata_of(model, "llama") | tokenizer_metadata()
    path = write(tmp_path / "model.gguf", "llama", values, change(tensors_of(model, "llama", "F32")))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: .*{re.escape(said)}"):
        load_model(path)


def test_a_file_that_ends_early_is_cut_short_wherever_it_ends(tmp_path: Path) -> None:
    whole = written(tmp_path / "model.gguf", kind="Q4_0").read_bytes()
    path = tmp_path / "short.gguf"
    for n in (1, 3, 5, 8, 23, 24, 31, 100, 999, 5000, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match=r"short.gguf.*(ends after|cut short|not a GGUF file).*download it again"):
            load_model(path)


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_opens_or_is_refused_in_time(seed: int, tmp_path: Path) -> None:
    whole, rng, path = written(tmp_path / "a.gguf", kind="Q4_0").read_bytes(), random.Random(seed), tmp_path / "b.gguf"
    refused = 0
    for _ in range(40):
        at = rng.randrange(15_000)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
        try:
            load_model(path)
        except ValueError as e:
            assert str(path) in str(e)
            refused += 1
    assert refused


def test_a_list_longer_than_the_file_is_named_at_once(tmp_path: Path) -> None:
    for name, at in (("tokenizer.ggml.token_type", 8), ("tokenizer.ggml.merges", 8)):
        path = patched(written(tmp_path / "model.gguf"), name, at, struct.pack("<Q", 1 << 60))
        with pytest.raises(ValueError, match=r"is damaged \(it ends after \d+ bytes, inside its header\)"):
            load_model(path)


@pytest.mark.parametrize(("content", "says"), [
    (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 of GGUF, and only 2 and 3 are read; take a newer file"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648 of GGUF"), (b"", "is empty; download it again"),
    (b"PK\x03\x04", "is a zip archive"), (b"words", "is not a GGUF file; download it again"),
    (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77), "a value is of the unknown kind 77"),
    (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "a list has values of kind 9"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * struct.pack("<Q1sIB", 1, b"k", 0, 5), "k is there twice"),
])  # fmt: skip
def test_what_is_not_a_sound_file_of_this_format_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{re.escape(says)}"):
        load_model(path)


def test_a_scale_that_is_not_finite_is_named_with_its_tensor(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", kind="Q8_0")
    begin, content = read_header(path).tensors["blk.1.attn_k.weight"].begin, bytearray(path.read_bytes())
    content[begin : begin + 2] = np.float16(np.inf).tobytes()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model.gguf: blk.1.attn_k.weight: not all of its numbers are finite; down"):
        load_model(path)


def test_an_alignment_of_nothing_is_named(tmp_path: Path) -> None:
    path = patched(
        written(tmp_path / "a.gguf", **{"general.alignment": 32}), "general.alignment", 4, struct.pack("<I", 0)
    )
    with pytest.raises(ValueError, match=r"is damaged \(general.alignment is 0\)"):
        load_model(path)


def test_a_model_in_gguf_is_named_wherever_another_form_is_expected(tmp_path: Path) -> None:
    path = written(tmp_path / "small.gguf")
    with pytest.raises(ValueError, match=r"holds a model in GGUF; open its file small.gguf with load_model"):
        load_model(tmp_path)
    for load in (load_hf, load_hf_tokenizer):
        with pytest.raises(ValueError, match=r"small.gguf is a GGUF file; open it with load_model"):
            load(path)
    path.rename(tmp_path / "small.bin")
    assert load_model(tmp_path / "small.bin")[0].config.n_layers == 2, "known by its content, not by its name"


@pytest.mark.parametrize("name", ["gguf", "tokenizers"])
def test_a_missing_package_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=rf"the package {name} is not installed; pip install 'tinylm-lib\["):
        load_model(path)


def test_the_commands_take_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "model.gguf", "gpt2", "Q8_0")
    options = ["--prompt", "One day", "--temperature", "0", "--max-new-tokens", "5"]
    assert main(["sample", "--from", str(path), *options]) == 0
    assert capsys.readouterr().out.startswith("One day")
    (tmp_path / "text.txt").write_text("One day Mia flew a kite.", encoding="utf-8")
    out = tmp_path / "text.tokens"
    assert main(["tokens", str(tmp_path / "text.txt"), "--out", str(out), "--tokenizer", str(path)]) == 0
    assert open_tokens(out).tokenizer.text == load_gguf_tokenizer(path).text


def test_the_writer_of_these_tests_moves_rows_as_the_papers_pairs_say() -> None:
    rows = np.arange(16).reshape(16, 1)  # two heads of 8: pairs 0 and 4, 1 and 5, ...
    assert neighbours(rows, 2)[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
