"""The glossary of the site: the field's terms, each with the paragraph of a lesson that defines it
in bold.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from .cells import Page, lesson_link, words_of

GLOSSARY = "glossary.html"
INTRODUCTION = (
    "Each term is explained by the paragraph of the lesson that introduces it. Some terms have two "
    "meanings and are listed twice."
)

FILTER = (  # glossary.js shows it, which does what it says
    '<p class="filter" hidden><input type="search" aria-label="Filter the terms" '
    'placeholder="Filter the terms"> <span class="quiet" role="status"></span></p>'
)

# The terms that each lesson defines. One in two lessons has two meanings, or two sides.
TERMS = {
    "00": (
        "language model, probability, token, distribution, loss, perplexity, causal, "
        "autoregressive, decoder-only"
    ),
    "01": (
        "tokenizer, vocabulary, byte-pair encoding, pre-token, special token, chain rule, floor"
    ),
    "02": (
        "vector, principal component, cosine, tensor, shape, dtype, broadcasting, feature, weight, "
        "dot product, linear map, matrix product, transpose, bias, gradient, chain rule, "
        "backpropagation, learning rate, embedding, one-hot, standard deviation, variance, "
        "generalizing"
    ),
    "03": (
        "score, logit, softmax, sigmoid, temperature, nat, negative log-likelihood, "
        "log-sum-exp, cross-entropy, padding, bigram, smoothing, entropy, KL divergence"
    ),
    "04": "root mean square, norm, L2 norm, gain, RMSNorm, BatchNorm, explode, vanish",
    "05": (
        "attention, query, key, value, attention weight, self-attention, cross-attention, "
        "saturated, causal mask, circuit, induction head"
    ),
    "06": (
        "learned position, sinusoidal position, rotary position embedding, frequency, base, "
        "offset, wavelength, layout, sliding window, position interpolation, YaRN, ALiBi"
    ),
    "07": (
        "head, multi-head attention, output projection, grouped-query attention, ablation, "
        "backup head, copy suppression"
    ),
    "08": (
        "feed-forward, unit, activation, activation function, ReLU, SiLU, GELU, gate, SwiGLU, "
        "dead unit, superposition, mixture of experts, dropout"
    ),
    "09": "block, residual connection, residual stream, pre-norm, post-norm, rank collapse",
    "10": "head, logit lens, config, tied, activation, activation patching",
    "11": (
        "target, validation, leak, overfitting, early stopping, momentum, Adam, AdamW, predictor"
    ),
    "12": (
        "greedy decoding, sampling, top-k, top-p, min-p, stop token, beam search, "
        "constrained decoding, quality-diversity trade-off"
    ),
    "13": "KV cache, prefill, decoding, speculative decoding",
    "14": (
        "FLOP, arithmetic intensity, peak, bandwidth, memory-bound, compute-bound, roofline, "
        "cache, GPU, MFU, profiler, overhead, online softmax, FlashAttention, kernel, "
        "quantization"
    ),
    "15": "scaling law, irreducible, data-parallel, all-reduce, shard, IsoFLOP",
    "16": "shortcut, probe, control task, sparse autoencoder",
    "17": (
        "supervised fine-tuning, log-derivative trick, policy gradient, baseline, advantage, "
        "reward hacking, penalty, RLHF, reward model, DPO"
    ),
    "18": "LoRA",
    "19": "overfit one batch, bisection",
}
BLOCK = re.compile(
    r'<h\d id="(?P<anchor>.*?)">(?P<heading>.*?)</h\d>|'
    r"<(?P<tag>p|li)>(?P<text>.*?)</(?P=tag)>"
    r'(?:\s*(?:<p>)?(?P<formula><div class="math">.*?</div>))?',
    re.S,
)
BOLD = re.compile(r"<strong>(.*?)</strong>", re.S)
# The end of a paragraph that leads to what follows it in the lesson, a cell or a list.
LEADS_ON = re.compile(r"(?<=[.?!])\s+[^.?!<]*:$")


class Mention(NamedTuple):
    """A term in bold: its paragraph as HTML, the lesson, and the section with its anchor there."""

    term: str
    text: str
    page: Page
    anchor: str
    heading: str


def definitions(lessons: Mapping[Page, str]) -> list[tuple[Mention, list[Mention]]]:
    """The definition of each term, in alphabetical order, and the first mention of it in each other
    lesson.

    lessons: the HTML of each page. A term that its lesson does not have in bold is left out.
    """
    mentions: list[Mention] = []
    for page, content in lessons.items():
        mentions += _mentions(page, content)
    found = []
    for page in lessons:
        for term in filter(None, TERMS.get(page.number, "").split(", ")):
            spelled = [
                m._replace(term=term)
                for m in mentions
                if m.term in (term.lower(), f"{term.lower()}s")
            ]
            first = {m.page: m for m in reversed(spelled)}
            if defined := first.pop(page, None):
                found.append((defined, sorted(first.values(), key=lambda m: m.page.number)))
    return sorted(found, key=lambda pair: pair[0].term.lower())


def glossary_content(found: Sequence[tuple[Mention, Sequence[Mention]]]) -> str:
    """The content of the glossary's page, by letter."""
    groups = groupby(found, lambda pair: pair[0].term[0].upper())
    shown = (
        f'<h2 id="{letter}">{letter}</h2>{"".join(map(_entry, group))}' for letter, group in groups
    )
    return f"<h1>Glossary</h1><p>{INTRODUCTION}</p>{FILTER}{''.join(shown)}"


def term_anchor(mention: Mention) -> str:
    """The anchor of a definition on the glossary's page."""
    return f"{re.sub('[^a-z0-9]+', '-', mention.term.lower())}-{mention.page.number}"


def _mentions(page: Page, content: str) -> Iterator[Mention]:
    place = ("", "")
    for block in BLOCK.finditer(content):
        if block["anchor"]:
            place = (block["anchor"], words_of(block["heading"]))
        formula = block["formula"] or ""
        text = (
            f"<p>{block['text'] if formula else LEADS_ON.sub('', block['text'] or '')}</p>{formula}"
        )
        for term in BOLD.findall(block["text"] or ""):
            yield Mention(words_of(term).lower(), text, page, *place)


def _entry(pair: tuple[Mention, Sequence[Mention]]) -> str:
    defined, others = pair
    text = BOLD.sub(
        lambda bold: bold[0] if bold[1].lower().startswith(defined.term.lower()) else bold[1],
        defined.text,
    )
    text = text.replace('href="#', f'href="{defined.page.file}#')
    where = f"{lesson_link(defined.page, defined.anchor)}, {escape(defined.heading)}"
    links = ", ".join(lesson_link(other.page, other.anchor) for other in others)
    also = f". Also in {links}" if others else ""
    return (
        f'<h3 id="{term_anchor(defined)}">{escape(defined.term)}</h3>{text}'
        f'<p class="quiet">{where}{also}</p>'
    )
