"""Lesson 00: right variants of its exercise, mistakes, and the library's own."""

import torch

from catalogue import named
from catalogue.sampling import Scripted
from tinylm_lib import sampling


def greedy_by_slices(model, ids, n):
    for _ in range(n):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=-1)
    return ids


@torch.no_grad()
def greedy_by_lists(model, ids, n):
    tokens = ids[0].tolist()
    for _ in range(n):
        row = model(torch.tensor([tokens]))[0, -1].tolist()
        tokens.append(row.index(max(row)))
    return torch.tensor([tokens])


def greedy_in_one_tensor(model, ids, n):
    T = ids.shape[1]
    whole = torch.zeros(1, T + n, dtype=ids.dtype)
    whole[:, :T] = ids
    for t in range(T, T + n):
        whole[0, t] = model(whole[:, :t])[0, -1].argmax()
    return whole


def greedy_by_recursion(model, ids, n):
    if n == 0:
        return ids
    probs = model(ids).softmax(-1)[:, -1]
    return greedy_by_recursion(model, torch.hstack((ids, probs.max(-1, keepdim=True).indices)), n - 1)


def writer(choose, read=lambda ids, start: ids):
    """A loop whose choice from the scores, or whose reading, is wrong."""

    def wrong(model, ids, n):
        start = ids
        for _ in range(n):
            ids = torch.cat((ids, choose(model(read(ids, start)))), dim=1)
        return ids

    return wrong


def last(scores):
    return scores[:, -1].argmax(-1, keepdim=True)


def greedy_return_in_the_loop(model, ids, n):
    for _ in range(n):
        ids = torch.cat((ids, last(model(ids))), dim=1)
        return ids
    return ids


def greedy_all_at_once(model, ids, n):
    return torch.cat((ids, last(model(ids)).expand(1, n)), dim=1)


def greedy_keepdim_forgotten(model, ids, n):
    for _ in range(n):
        ids = torch.cat((ids, model(ids)[:, -1].argmax(-1)), dim=1)
    return ids


def new_ones(model, ids, n):
    """The new ids, each (1, 1)."""
    start = ids.shape[1]
    whole = greedy_by_slices(model, ids, n)
    return [whole[:, t : t + 1] for t in range(start, start + n)]


def greedy_last_n(model, ids, n):
    return greedy_by_slices(model, ids, n)[:, -n:]  # of n = 0 these are all


def greedy_next_alone(model, ids, n):
    for _ in range(n):
        new = last(model(ids))
        ids = torch.cat((ids, new), dim=1)
    return new


def greedy_in_place(model, ids, n):
    for _ in range(n):
        new = last(model(ids))
        ids[:, -1] = new[:, 0]
        ids = torch.cat((ids, new), dim=1)
    return ids


def greedy_of_the_library(model, ids, n):
    scripted = Scripted(lambda tokens: model(torch.tensor([tokens]))[0, -1], ids.shape[1] + n)
    return sampling.generate(scripted, ids, n, temperature=0)


RIGHT = {
    "continue_greedily": named(greedy_by_slices, greedy_by_lists, greedy_in_one_tensor, greedy_by_recursion),
}
WRONG = {
    "continue_greedily": named(
        greedy_return_in_the_loop, greedy_all_at_once, greedy_keepdim_forgotten, greedy_in_place,
        greedy_last_n, greedy_next_alone,
        greedy_best_n=lambda model, ids, n: torch.cat((ids, model(ids)[:, -1].topk(n).indices), dim=1),
        greedy_ranked_once=lambda model, ids, n:
            torch.cat((ids, model(ids)[:, -1].argsort(-1, descending=True)[:, :n]), dim=1),
        greedy_last_n_positions=lambda model, ids, n: torch.cat((ids, model(ids)[:, -n:].argmax(-1)), dim=1),
        greedy_at_the_first_position=writer(lambda scores: scores[:, :1].argmax(-1)),
        greedy_over_all=writer(lambda scores: scores.amax(1).argmax(-1, keepdim=True)),
        greedy_of_two=writer(last, lambda ids, start: ids[:, -2:]),
        greedy_without_memory=writer(last, lambda ids, start: ids[:, -1:]),
        greedy_lowest=writer(lambda scores: (-scores[:, -1]).argmax(-1, keepdim=True)),
        greedy_one_short=lambda model, ids, n: writer(last)(model, ids, max(0, n - 1)),
        greedy_without_the_start=lambda model, ids, n: writer(last)(model, ids, n)[:, ids.shape[1] :],
        greedy_new_joined=lambda model, ids, n: torch.cat(new_ones(model, ids, n), dim=1),
        greedy_new_stacked=lambda model, ids, n: torch.stack([new[0] for new in new_ones(model, ids, n)], dim=1),
        greedy_new_as_numbers=lambda model, ids, n: torch.tensor([[new.item() for new in new_ones(model, ids, n)]]),
        greedy_new_flat=lambda model, ids, n: torch.tensor([new.item() for new in new_ones(model, ids, n)]),
        greedy_flat=lambda model, ids, n: writer(last)(model, ids, n)[0],
    ),
}  # fmt: skip
LIBRARY = {"continue_greedily": greedy_of_the_library}
