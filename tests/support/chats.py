"""Chat templates in Jinja, written here after those that are published, and folders of small models that have one."""

import json
from pathlib import Path

import pytest
import tokenizers
import torch
from support.hub import trained

from tinylm_lib import ModelConfig, TransformerLM
from tinylm_lib.pretrained import save_hf
from tinylm_lib.text import published
from tinylm_lib.text.chat import TOKENIZER_CONFIG
from tinylm_lib.text.hugging_face import HubTokenizer

BOS, EOS = "<s>", "</s>"
TOKENS = [
    BOS,
    EOS,
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "[INST]",
    "[/INST]",
]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content | trim ~ '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
ORDER = (
    "{% for m in turns %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}"
    "{{ raise_exception('order') }}{% endif %}{% endfor %}"
)
MISTRAL = (
    "{% set turns = messages %}" + ORDER + "{{ bos_token }}{% for m in turns %}{% if m.role == 'user' %}"
    "{{ '[INST] ' ~ m.content ~ ' [/INST]' }}{% else %}{{ m.content ~ eos_token }}{% endif %}{% endfor %}"
)
LLAMA2 = (
    "{% set turns = messages if messages[0].role != 'system' else messages[1:] %}" + ORDER + "{% for m in turns %}"
    "{% set text = m.content %}{% if loop.first and messages[0].role == 'system' %}"
    "{% set text = '<<SYS>>\\n' ~ messages[0].content ~ '\\n<</SYS>>\\n\\n' ~ text %}{% endif %}"
    "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ text | trim ~ ' [/INST]' }}"
    "{% else %}{{ ' ' ~ text | trim ~ ' ' ~ eos_token }}{% endif %}{% endfor %}"
)
QWEN3 = (
    "{% set n = namespace(last=messages | length - 1) %}{% for m in messages %}{% if m.role == 'user' and not "
    "(m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}"
    "{% set n.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% set text = m.content %}"
    "{% set thought = '' %}{% if m.role == 'assistant' %}{% if '</think>' in text %}"
    "{% set thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].strip('\\n') %}"
    "{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{% if loop.index0 > n.last and (loop.last or thought) %}"
    "{% set text = '<think>\\n' ~ thought ~ '\\n</think>\\n\\n' ~ text.lstrip('\\n') %}{% endif %}{% endif %}"
    "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ text ~ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def told(system: str) -> str:
    """ChatML whose system says something, where the first turn is another's."""
    first = "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\n" + system + "<|im_end|>\\n' }}{% endif %}"
    return first + CHATML


def dated(today: str) -> str:
    """Llama 3 whose system says a date, an expression in Jinja."""
    system = "{% set own = messages[0].content | trim if messages[0].role == 'system' else '' %}"
    dates = "'Cutting Knowledge Date: December 2023\\nToday Date: ' ~ " + today + " ~ '\\n\\n' ~ own ~ '<|eot_id|>'"
    head = "{{ bos_token ~ '<|start_header_id|>system<|end_header_id|>\\n\\n' ~ " + dates + " }}"
    rest = LLAMA3.removeprefix("{{ bos_token }}").replace(
        "for m in messages", "for m in (messages[1:] if messages[0].role == 'system' else messages)"
    )
    return system + head + rest


ZEPHYR = (
    "{% for m in messages %}\n{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ eos_token }}\n{% endfor %}\n"
    "{% if add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
)
JINJA = {
    "chatml": CHATML,
    "chatml_bos": "{{ bos_token }}" + CHATML,
    "smollm2": told("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    "qwen1.5": told("You are a helpful assistant"),
    "qwen2": told("You are a helpful assistant."),
    "qwen2.5": told("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    "qwen3": QWEN3,
    "zephyr": ZEPHYR,
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "llama3.1": dated("'26 Jul 2024'"),
    "llama3.2": dated("strftime_now('%d %b %Y')"),
    "mistral0.1": MISTRAL.replace("~ eos_token", "~ eos_token ~ ' '"),
    "mistral0.2": MISTRAL,
}


def with_tokens() -> tokenizers.Tokenizer:
    """The small tokenizer with the special tokens of all templates."""
    tokenizer = tokenizers.Tokenizer.from_str(trained().to_str())
    tokenizer.add_special_tokens(TOKENS)
    return tokenizer


def chatting(name: str, monkeypatch: pytest.MonkeyPatch) -> HubTokenizer:
    """The tokenizer of a folder whose template is the one of this name, as if that were published."""
    monkeypatch.setitem(published.PUBLISHED, published.digest(JINJA[name]), name)
    config = {"bos_token": BOS, "eos_token": {"content": EOS, "special": True}, "chat_template": JINJA[name]}
    return HubTokenizer(with_tokens().to_str(), kept={"files": {TOKENIZER_CONFIG: json.dumps(config)}})


def save_chat_model(
    folder: Path | str, name: str, monkeypatch: pytest.MonkeyPatch, seed: int = 5, **sizes: int
) -> Path:
    """Saves a model with random weights that has a chat template, in the form of Hugging Face."""
    torch.manual_seed(seed)
    tokenizer = chatting(name, monkeypatch)
    given = {"max_seq_len": 256, "d_model": 24, "n_layers": 1, "n_heads": 3, **sizes}
    config = ModelConfig(vocab_size=tokenizer.vocab_size, init="normal", **given)
    return save_hf(TransformerLM(config), folder, tokenizer=tokenizer)
