"""Lesson 12: right variants of its exercises, and the library's own."""

import heapq

import torch
import torch.nn.functional as F
from torch import nn

from tinylm_lib import ModelConfig, sampling
from tinylm_lib.probabilities import next_token_probs


def temperature_of_torch(logits, temperature):
    return F.softmax(logits / temperature, dim=-1)


def temperature_by_logsumexp(logits, temperature):
    scores = logits.div(temperature)
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def temperature_maximum_first(logits, temperature):
    powers = torch.exp((logits - logits.amax(-1, keepdim=True)) / temperature)
    return powers / powers.sum(-1, keepdim=True)


def temperature_by_powers(logits, temperature):
    log_probs = logits.double().log_softmax(-1)
    return ((1 / temperature) * log_probs).softmax(-1).to(logits.dtype)


@torch.no_grad()
def temperature_row_by_row(logits, temperature):
    if logits.ndim > 1:
        return torch.stack([temperature_row_by_row(row, temperature) for row in logits])
    return torch.softmax(logits / temperature, 0)


def top_k_by_scatter(probs, k):
    values, ids = probs.topk(k, dim=-1)
    return torch.zeros_like(probs).scatter_(-1, ids, values / values.sum(-1, keepdim=True))


def top_k_by_ranks(probs, k):
    ranks = probs.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    kept = probs * (ranks < k)
    return F.normalize(kept, p=1, dim=-1)


def top_k_by_lists(probs, k):
    if probs.ndim > 1:
        return torch.stack([top_k_by_lists(row, k) for row in probs])
    row = probs.tolist()
    best = heapq.nlargest(k, range(len(row)), key=row.__getitem__)
    total = sum(row[i] for i in best)
    return torch.tensor([p / total if i in best else 0.0 for i, p in enumerate(row)])


def top_k_by_logits(probs, k):
    ids = probs.sort(dim=-1, descending=True).indices[..., k:]
    return probs.log().scatter(-1, ids, float("-inf")).softmax(-1)


def top_p_by_scatter(probs, p):
    ranked, ids = probs.sort(dim=-1, descending=True)
    before = ranked.cumsum(-1) - ranked
    ranked = ranked.masked_fill(before >= p, 0.0)
    return torch.zeros_like(probs).scatter(-1, ids, ranked / ranked.sum(-1, keepdim=True))


def top_p_shifted(probs, p):
    ranked, ids = torch.sort(probs, descending=True)
    remove = ranked.cumsum(-1) >= p
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    kept = probs.masked_fill(remove.scatter(-1, ids, remove), 0)
    return kept / kept.sum(-1, keepdim=True)


def top_p_by_lists(probs, p):
    if probs.ndim > 1:
        return torch.stack([top_p_by_lists(row, p) for row in probs])
    kept, total = torch.zeros_like(probs), 0.0
    for i in probs.argsort(descending=True).tolist():
        kept[i] = probs[i]
        total += probs[i].item()
        if total >= p:
            break
    return kept / kept.sum()


def top_p_by_counting(probs, p):
    ranked = probs.sort(-1, descending=True).values
    n = (ranked.cumsum(-1) < p).sum(-1, keepdim=True) + 1
    kept = probs.where(probs.argsort(-1, descending=True).argsort(-1) < n, 0.0)
    return (kept.double() / kept.double().sum(-1, keepdim=True)).to(probs.dtype)


def beams_by_lists(log_probs_fn, start, n_beams, n_steps):
    beams = [(0.0, list(start))]
    for _ in range(n_steps):
        grown = [(s + lp.item(), [*t, i]) for s, t in beams for i, lp in enumerate(log_probs_fn(t))]
        beams = heapq.nlargest(n_beams, grown)
    return [(tokens, score) for score, tokens in beams]


def beams_in_one_tensor(log_probs_fn, start, n_beams, n_steps):
    tokens, scores = torch.tensor([list(start)]), torch.zeros(1)
    for _ in range(n_steps):
        grown = scores[:, None] + torch.stack([log_probs_fn(row.tolist()) for row in tokens])
        scores, flat = grown.flatten().topk(min(n_beams, grown.numel()))
        parents, new = flat // grown.shape[1], flat % grown.shape[1]
        tokens = torch.cat((tokens[parents], new[:, None]), 1)
    return list(zip(tokens.tolist(), scores.tolist(), strict=True))


def beams_best_of_each(log_probs_fn, start, n_beams, n_steps):
    beams = [(tuple(start), torch.zeros(()))]
    for _ in range(n_steps):
        grown = []
        for tokens, score in beams:
            log_probs = log_probs_fn(list(tokens))
            best = log_probs.topk(min(n_beams, len(log_probs)))
            grown += [((*tokens, i), score + lp) for lp, i in zip(best.values, best.indices.tolist(), strict=True)]
        beams = sorted(grown, key=lambda beam: beam[1].item(), reverse=True)[:n_beams]
    return beams


def beams_without_start(log_probs_fn, start, n_beams, n_steps):
    found = beams_by_lists(log_probs_fn, start, n_beams, n_steps)
    return tuple([tokens[len(start) :], torch.tensor(score)] for tokens, score in found)


class Scripted(nn.Module):
    """A model that says what a function says, and keeps what it has read in the cache."""

    def __init__(self, log_probs_fn, n_tokens):
        super().__init__()
        self.log_probs_fn = log_probs_fn
        vocab_size = len(log_probs_fn([0]))
        self.config = ModelConfig(
            vocab_size=vocab_size, max_seq_len=n_tokens, d_model=2, n_layers=1, n_heads=1, d_head=2
        )
        self.embed = nn.Embedding(vocab_size, 2)

    def forward(self, ids, cache):
        keys = ids[:, None, :, None].float().expand(-1, 1, -1, 2)
        read = cache.extend(0, keys, keys)[0][:, 0, :, 0].long()
        cache.length += ids.shape[1]
        return torch.stack([self.log_probs_fn(row) for row in read.tolist()])[:, None]


def beams_of_the_library(log_probs_fn, start, n_beams, n_steps):
    model = Scripted(log_probs_fn, len(start) + n_steps)
    return sampling.beam_search(model, torch.tensor(start), n_steps, n_beams)


RIGHT = {
    "apply_temperature": [
        temperature_of_torch, temperature_by_logsumexp, temperature_maximum_first, temperature_by_powers,
        temperature_row_by_row,
    ],
    "top_k_probs": [top_k_by_scatter, top_k_by_ranks, top_k_by_lists, top_k_by_logits],
    "top_p_probs": [top_p_by_scatter, top_p_shifted, top_p_by_lists, top_p_by_counting],
    "beam_search": [beams_by_lists, beams_in_one_tensor, beams_best_of_each, beams_without_start],
}  # fmt: skip
LIBRARY = {
    "apply_temperature": next_token_probs,
    "top_k_probs": lambda probs, k: next_token_probs(probs.log(), top_k=k),
    "top_p_probs": lambda probs, p: next_token_probs(probs.log(), top_p=p),
    "beam_search": beams_of_the_library,
}
