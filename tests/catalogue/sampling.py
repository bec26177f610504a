"""Lesson 12: right variants of its exercises, mistakes, and the library's own."""

import heapq
import math

import torch
import torch.nn.functional as F
from torch import nn

from catalogue import named
from tinylm_lib import ModelConfig, beam_search
from tinylm_lib.probabilities import next_token_probs


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


def beams_asking_for_the_size_first(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        grown = []
        for tokens, score in beams:
            best = log_probs_fn(tokens).topk(min(n_beams, log_probs_fn(tokens).numel()))
            values, ids = best.values.tolist(), best.indices.tolist()
            grown += [([*tokens, i], score + value) for value, i in zip(values, ids, strict=True)]
        beams = _best(grown, n_beams)
    return beams


def beams_asking_for_each_token(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        grown = []
        for tokens, score in beams:
            for i in range(len(log_probs_fn(tokens))):
                grown.append(([*tokens, i], score + log_probs_fn(tokens)[i].item()))
        beams = _best(grown, n_beams)
    return beams


def beams_without_start(log_probs_fn, start, n_beams, n_steps):
    found = _beams(log_probs_fn, start, n_beams, n_steps)
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

    def forward(self, ids, cache, padding, last_only):
        keys = ids[:, None, :, None].float().expand(-1, 1, -1, 2)
        read = cache.extend(0, keys, keys)[0][:, 0, :, 0].long()
        cache.length += ids.shape[1]
        return torch.stack([self.log_probs_fn(row) for row in read.tolist()])[:, None]


def beams_of_the_library(log_probs_fn, start, n_beams, n_steps):
    model = Scripted(log_probs_fn, len(start) + n_steps)
    return beam_search(model, torch.tensor(start), n_steps, n_beams)


def topk_in_place(probs, k):
    probs[probs < probs.topk(k, -1).values[..., -1:]] = 0
    return probs / probs.sum(-1, keepdim=True)


def topp_not_renormalised(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    return torch.zeros_like(probs).scatter(-1, order, ranked * (ranked.cumsum(-1) - ranked < p))


def topp_ranked(probs, p):
    ranked = probs.sort(-1, descending=True).values
    kept = ranked * (ranked.cumsum(-1) - ranked < p)
    return kept / kept.sum(-1, keepdim=True)


def topp_gathered_back(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    kept = ranked * (ranked.cumsum(-1) - ranked < p)
    return (kept / kept.sum(-1, keepdim=True)).gather(-1, order)


def _grown(log_probs_fn, beams):
    return [([*tokens, t], score + lp) for tokens, score in beams for t, lp in enumerate(log_probs_fn(tokens).tolist())]


def _best(beams, n):
    return sorted(beams, key=lambda beam: -beam[1])[:n]


def _beams(log_probs_fn, start, n_beams, n_steps, best=_best, n_copies=1):
    beams = [(list(start), 0.0)] * n_copies
    for _ in range(n_steps):
        beams = best(_grown(log_probs_fn, beams), n_beams)
    return beams


def beam_never_pruned_together(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        beams = [new for beam in beams for new in _best(_grown(log_probs_fn, [beam]), n_beams)]
    return _best(beams, len(beams))


def beam_last_step_scores(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        beams = _best(_grown(log_probs_fn, [(tokens, 0.0) for tokens, _ in beams]), n_beams)
    return beams


def beam_greedy_after_the_first(log_probs_fn, start, n_beams, n_steps):
    beams = _best(_grown(log_probs_fn, [(list(start), 0.0)]), n_beams)
    for _ in range(n_steps - 1):
        beams = [_best(_grown(log_probs_fn, [beam]), 1)[0] for beam in beams]
    return _best(beams, n_beams)


def beam_shared_list(log_probs_fn, start, n_beams, n_steps):
    beams = [(start, 0.0)]
    for _ in range(n_steps):
        grown = []
        for tokens, score in beams:
            values, ids = log_probs_fn(tokens).topk(n_beams)
            for lp, t in zip(values.tolist(), ids.tolist(), strict=True):
                tokens.append(t)
                grown.append((tokens, score + lp))
        beams = _best(grown, n_beams)
    return beams


def beams_that_share_what_they_append(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        grown = []
        for tokens, score in beams:
            best = log_probs_fn(tokens).topk(min(n_beams, len(log_probs_fn(tokens))))
            for lp, t in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                tokens.append(t)
                grown.append((tokens, score + lp))
        beams = _best(grown, n_beams)
    return beams


def beams_all_of_the_last_step(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        beams = _best(_grown(log_probs_fn, _best(beams, n_beams)), 1_000_000)
    return beams


def beams_that_stop_at(stop):
    def search(log_probs_fn, start, n_beams, n_steps):
        beams = [(list(start), 0.0)]
        for _ in range(n_steps):
            ended = [beam for beam in beams if len(beam[0]) > len(start) and beam[0][-1] == stop]
            beams = _best([*ended, *_grown(log_probs_fn, [beam for beam in beams if beam not in ended])], n_beams)
        return beams

    return search


def beams_that_ask_before_they_drop(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0, log_probs_fn(start))]
    for step in range(n_steps):
        grown = []
        for tokens, score, log_probs in beams:
            for t, lp in enumerate(log_probs.tolist()):
                longer = [*tokens, t]
                grown.append((longer, score + lp, log_probs_fn(longer) if step + 1 < n_steps else None))
        beams = _best(grown, n_beams)
    return [(tokens, score) for tokens, score, _ in beams]


def placed(probs, values, ids):
    """Values at their ids, and zeros everywhere else."""
    return torch.zeros_like(probs).scatter(-1, ids, values)


def normalised(kept):
    return kept / kept.sum(-1, keepdim=True)


def nucleus(keep, descending=True):
    """Keeps the wrong ones of the ranked probabilities."""

    def wrong(probs, p):
        ranked, ids = probs.sort(-1, descending=descending)
        return normalised(placed(probs, ranked * keep(ranked, p), ids))

    return wrong


def top_p_by_argmax(probs, p):
    ranked, ids = probs.sort(-1, descending=True)
    last = (ranked.cumsum(-1) >= p).int().argmax(-1, keepdim=True)
    return normalised(placed(probs, ranked * (torch.arange(probs.shape[-1]) <= last), ids))


def top_k_of_all_rows(probs, k):
    return normalised(probs * (probs >= probs.flatten().topk(k).values[-1]))


def up_to(probs, p):
    """Whether the probabilities in front of each stay below p."""
    return probs.cumsum(-1) - probs < p


RIGHT = {
    "top_k_probs": named(
        top_k_by_ranks, top_k_by_lists, top_k_by_logits,
        top_k_by_scatter=lambda probs, k: normalised(placed(probs, *probs.topk(k, -1))),
    ),
    "top_p_probs": named(top_p_shifted, top_p_by_lists, top_p_by_counting, top_p_by_scatter=nucleus(up_to)),
    "beam_search": named(
        beams_in_one_tensor, beams_best_of_each, beams_without_start, beams_asking_for_the_size_first,
        beams_asking_for_each_token, beams_that_ask_before_they_drop, beams_by_lists=_beams,
    ),
}  # fmt: skip
WRONG = {
    "top_k_probs": named(
        topk_in_place, top_k_of_all_rows,
        topk_above_the_next=lambda probs, k:
            normalised(probs * (probs > probs.sort(-1).values.flip(-1)[..., min(k, probs.shape[-1] - 1), None])),
        topk_softmax_of_kept=lambda probs, k:
            placed(probs, probs.topk(k, -1).values.softmax(-1), probs.topk(k, -1).indices),
        topk_smallest=lambda probs, k: normalised(placed(probs, *probs.topk(k, -1, largest=False))),
        topk_sum_of_the_batch=lambda probs, k: placed(probs, *probs.topk(k, -1)) / probs.topk(k, -1).values.sum(),
        equal_shares=lambda probs, k: torch.zeros_like(probs).scatter(-1, probs.topk(k, -1).indices, 1 / k),
        threshold=lambda probs, k: normalised(probs.where(probs >= probs.topk(k, -1).values[..., -1:], 0.0)),
        not_renormalised=lambda probs, k: placed(probs, *probs.topk(k, -1)),
        short_rows=lambda probs, k: normalised(probs.topk(k, -1).values),
        softmax_of_zeros_too=lambda probs, k: placed(probs, *probs.topk(k, -1)).softmax(-1),
        one_more=lambda probs, k: normalised(placed(probs, *probs.topk(min(k + 1, probs.shape[-1]), -1))),
        ranked=lambda probs, k:
            normalised(probs.sort(-1, descending=True).values * (torch.arange(probs.shape[-1]) < k)),
    ),
    "top_p_probs": named(
        topp_not_renormalised, topp_ranked, topp_gathered_back, top_p_by_argmax,
        first_one_subtracted=nucleus(lambda ranked, p: ranked.cumsum(-1) - ranked[..., :1] < p),
        each_alone=lambda probs, p: normalised(probs * (probs >= p)),
        each_alone_or_the_best=lambda probs, p: normalised(probs * ((probs >= p) | (probs == probs.amax(-1, True)))),
        each_alone_or_nothing=lambda probs, p: F.normalize(probs * (probs >= p), p=1, dim=-1),
        drops_the_crossing=nucleus(lambda ranked, p: ranked.cumsum(-1) <= p),
        drops_the_crossing_but_one=nucleus(lambda ranked, p: F.pad(ranked.cumsum(-1)[..., 1:] <= p, (1, 0), value=1)),
        one_more=nucleus(lambda ranked, p: F.pad((ranked.cumsum(-1) - ranked)[..., :-1], (1, 0)) < p),
        ascending=nucleus(up_to, descending=False),
        the_other_share=nucleus(lambda ranked, p: up_to(ranked, 1 - p)),
        not_sorted=lambda probs, p: normalised(probs * up_to(probs, p)),
        single_threshold=lambda probs, p: normalised(probs.where(probs >= 1 - p, 0.0)),
        share_of_the_largest=lambda probs, p: normalised(probs.where(probs >= p * probs.amax(-1, keepdim=True), 0.0)),
        mask_in_rank_order=lambda probs, p: normalised(probs * up_to(probs.sort(-1, descending=True).values, p)),
    ),
    "beam_search": named(
        beam_never_pruned_together, beam_last_step_scores, beam_greedy_after_the_first, beam_shared_list,
        beams_that_share_what_they_append, beams_all_of_the_last_step,
        beam_ends_at_0=beams_that_stop_at(0),
        length_normalised=lambda log_probs_fn, start, n_beams, n_steps:
            [(tokens, score / n_steps) for tokens, score in _beams(log_probs_fn, start, n_beams, n_steps)],
        sees_the_last_token=lambda log_probs_fn, start, n_beams, n_steps:
            _beams(lambda tokens: log_probs_fn(tokens[-1:]), start, n_beams, n_steps),
        one_step_short=lambda log_probs_fn, start, n_beams, n_steps: _beams(log_probs_fn, start, n_beams, n_steps - 1),
        adds_probabilities=lambda log_probs_fn, start, n_beams, n_steps:
            _beams(lambda tokens: log_probs_fn(tokens).exp(), start, n_beams, n_steps),
        only_the_best=lambda log_probs_fn, start, n_beams, n_steps: _beams(log_probs_fn, start, n_beams, n_steps)[0],
        greedy=lambda log_probs_fn, start, n_beams, n_steps: _beams(log_probs_fn, start, 1, n_steps),
        worst_first=lambda *arguments:
            _beams(*arguments, best=lambda beams, n: sorted(beams, key=lambda beam: beam[1])[-n:]),
        product_of_floats=lambda *arguments:
            [(tokens, torch.tensor(math.exp(score)).log()) for tokens, score in _beams(*arguments)],
        copies_of_the_start=lambda *arguments: _beams(*arguments, n_copies=arguments[2]),
    ),
}  # fmt: skip
LIBRARY = {
    "top_k_probs": lambda probs, k: next_token_probs(probs.log(), top_k=k),
    "top_p_probs": lambda probs, p: next_token_probs(probs.log(), top_p=p),
    "beam_search": beams_of_the_library,
}
