"""Lesson 15: right variants of its exercises, and mistakes."""

import math

import torch

from catalogue import named


def optimal(parameters):
    """The parameters of a rule, and their tokens."""
    return lambda flops, ratio: (parameters(flops, ratio), ratio * parameters(flops, ratio))


def reduced(shares):
    """The sum of what each process has, times its share."""

    def reduce(gradients, n_targets):
        parts = shares(n_targets)
        return [sum(g * part for g, part in zip(gs, parts, strict=True)) for gs in zip(*gradients, strict=True)]

    return reduce


def optimal_tokens_first(flops, tokens_per_parameter):
    tokens = (flops * tokens_per_parameter / 6) ** 0.5
    return [tokens / tokens_per_parameter, tokens]


def optimal_by_logarithms(flops, tokens_per_parameter):
    n = math.exp((math.log(flops) - math.log(6) - math.log(tokens_per_parameter)) / 2)
    return n, flops / 6 / n


def optimal_in_tensors(flops, tokens_per_parameter):
    parameters = torch.tensor(flops / 6 / tokens_per_parameter, dtype=torch.float64).sqrt().item()
    return parameters, parameters * tokens_per_parameter


def reduce_by_loops(gradients, n_targets):
    total, reduced = sum(n_targets), []
    for i in range(len(gradients[0])):
        summed = torch.zeros_like(gradients[0][i])
        for of_one, n in zip(gradients, n_targets, strict=True):
            summed = summed + n * of_one[i]
        reduced.append(summed / total)
    return reduced


def reduce_by_einsum(gradients, n_targets):
    reduced = []
    for of_all in zip(*gradients, strict=True):
        stacked = torch.stack(of_all)
        shares = torch.tensor(n_targets, dtype=stacked.dtype) / sum(n_targets)
        reduced.append(torch.einsum("r,r...->...", shares, stacked))
    return tuple(reduced)


def reduce_one_long_vector(gradients, n_targets):
    long = torch.stack([torch.cat([g.reshape(-1) for g in of_one]) for of_one in gradients])
    shares = torch.as_tensor(n_targets).to(long.dtype)
    mean = (shares / shares.sum()) @ long
    parts = mean.split([g.numel() for g in gradients[0]])
    return [part.view_as(g) for part, g in zip(parts, gradients[0], strict=True)]


def reduce_without_the_idle(gradients, n_targets):
    busy = [(of_one, n) for of_one, n in zip(gradients, n_targets, strict=True) if n > 0]
    total = sum(n for _, n in busy)
    return [sum(of_one[i] * n for of_one, n in busy) / total for i in range(len(gradients[0]))]


def product_of_two_roots(flops, tokens_per_parameter):
    parameters = (flops / 6) ** 0.5 * tokens_per_parameter**0.5
    return parameters, flops / 6 / parameters


def reduce_in_place(gradients, n_targets):
    total, reduced = sum(n_targets), gradients[0]
    for i, g in enumerate(reduced):
        g.mul_(n_targets[0] / total)
        for of_one, n in zip(gradients[1:], n_targets[1:], strict=True):
            g += of_one[i] * n / total
    return reduced


def reduce_in_fp32(gradients, n_targets):
    shares = torch.tensor(n_targets, dtype=torch.float32) / sum(n_targets)
    return [
        torch.stack(gs).float().mul(shares.view(-1, *[1] * gs[0].ndim)).sum(0) for gs in zip(*gradients, strict=True)
    ]


def reduce_each_process(gradients, n_targets):
    total = sum(n_targets)
    return [sum(g.sum() * n / total for g in of_one) for of_one, n in zip(gradients, n_targets, strict=True)]


RIGHT = {
    "compute_optimal": named(
        optimal_tokens_first, optimal_by_logarithms, optimal_in_tensors,
        optimal_by_the_root=optimal(lambda flops, ratio: math.sqrt(flops / (6 * ratio))),
    ),
    "all_reduce_mean": named(
        reduce_by_loops, reduce_by_einsum, reduce_one_long_vector, reduce_without_the_idle,
        reduce_by_zip=reduced(lambda n_targets: [n / sum(n_targets) for n in n_targets]),
    ),
}  # fmt: skip
WRONG = {
    "compute_optimal": named(
        product_of_two_roots,
        whole_parameters=optimal(lambda flops, ratio: (flops // (6 * ratio)) ** 0.5 // 1),
        ratio_added=optimal(lambda flops, ratio: (flops / (6 + ratio)) ** 0.5),
        six_on_top=optimal(lambda flops, ratio: (6 * flops / ratio) ** 0.5),
        parameters_alone=lambda flops, tokens_per_parameter: (flops / (6 * tokens_per_parameter)) ** 0.5,
    ),
    "all_reduce_mean": named(
        reduce_in_place, reduce_in_fp32,
        reduce_each_process,
        reduce_whole_shares=reduced(lambda n_targets: [n // sum(n_targets) for n in n_targets]),
        reduce_one_process_short=reduced(lambda n_targets: [n / sum(n_targets) for n in n_targets[:-1]] + [0]),
        reduce_by_the_busy=reduced(lambda n_targets: [n / sum(k > 0 for k in n_targets) for n in n_targets]),
    ),
}  # fmt: skip
