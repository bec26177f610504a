"""Lesson 11: right variants of its exercises, mistakes, and the library's own."""

import math

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib.data.windows import random_windows
from tinylm_lib.training import optim


def pairs_by_narrow(ids):
    n = ids.size(1) - 1
    return ids.narrow(1, 0, n).contiguous(), ids.narrow(1, 1, n).contiguous()


def pairs_by_loops(ids):
    rows = ids.tolist()
    return torch.tensor([row[:-1] for row in rows]), torch.tensor([row[1:] for row in rows])


def windows_by_index(tokens, batch_size, seq_len, generator):
    starts = torch.randint(0, tokens.numel() - seq_len, (batch_size, 1), generator=generator)
    places = starts + torch.arange(seq_len)
    return [tokens[places], tokens[places + 1]]


def windows_by_unfold(tokens, batch_size, seq_len, generator):
    windows = tokens.unfold(0, seq_len + 1, 1)
    chosen = windows[torch.randint(len(windows), (batch_size,), generator=generator)]
    return chosen[:, :-1], chosen[:, 1:]


def windows_by_permutations(tokens, batch_size, seq_len, generator):
    starts = [torch.randperm(len(tokens) - seq_len, generator=generator)[0] for _ in range(batch_size)]
    both = torch.stack([tokens[i : i + seq_len + 1] for i in starts])
    return both[:, :-1].clone(), both[:, 1:].clone()


def windows_by_fractions(tokens, batch_size, seq_len, generator):
    n = len(tokens) - seq_len
    x, y = [], []
    for _ in range(batch_size):
        start = int(torch.rand((), generator=generator).item() * n)
        x.append(tokens[start : start + seq_len].tolist())
        y.append(tokens[start + 1 : start + seq_len + 1].tolist())
    return torch.tensor(x), torch.tensor(y)


def adamw_by_the_book(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    return param - lr * (m_hat / (torch.sqrt(v_hat) + eps) + weight_decay * param), m, v


def adamw_by_lerp(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = m.lerp(grad, 1 - beta1), v.mul(beta2).addcmul(grad, grad, value=1 - beta2)
    root = v.sqrt() / math.sqrt(1 - beta2**step) + eps
    return [(param * (1 - lr * weight_decay)).addcdiv(m, root, value=-lr / (1 - beta1**step)), m, v]


def adamw_with_one_rate(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad
    rate = lr * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    return param - lr * weight_decay * param - rate * m / (v**0.5 + eps), m, v


def adamw_in_double(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    kept = [t.clone().double() for t in (param, grad, m, v)]
    moved = adamw_by_the_book(*kept, step, lr, beta1, beta2, eps, weight_decay)
    return tuple(t.to(param.dtype) for t in moved)


def adamw_of_torch(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    p = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.AdamW([p], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)
    optimizer.state[p] = {"step": torch.tensor(step - 1.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
    p.grad = grad.clone()
    optimizer.step()
    return p, optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]


def adamw_of_the_library(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    p = param.clone()
    p.grad = grad.clone()
    state = {p: {"step": torch.tensor(step - 1.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}}
    optim.adamw_update(
        [p], state, {"betas": (beta1, beta2), "eps": eps, "lr": lr, "weight_decay": weight_decay, "fused": True}
    )
    return p, state[p]["exp_avg"], state[p]["exp_avg_sq"]


def _windows(tokens, starts, seq_len, shift=1):
    x = torch.stack([tokens[i : i + seq_len] for i in starts.tolist()])
    return x, torch.stack([tokens[i + shift : i + shift + seq_len] for i in starts.tolist()])


def windows_one_start(tokens, batch_size, seq_len, generator):
    start = torch.randint(len(tokens) - seq_len, (1,), generator=generator)
    return _windows(tokens, start.expand(batch_size), seq_len)


def windows_of_scattered_tokens(tokens, batch_size, seq_len, generator):
    places = torch.randint(len(tokens) - 1, (batch_size, seq_len), generator=generator)
    return tokens[places], tokens[places + 1]


def windows_split_of_seq_len(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - seq_len + 1, (batch_size,), generator=generator)
    window = torch.stack([tokens[i : i + seq_len] for i in starts.tolist()])
    return window[:, :-1], window[:, 1:]


def windows_round_the_end(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens), (batch_size, 1), generator=generator)
    places = (starts + torch.arange(seq_len + 1)) % len(tokens)
    return tokens[places[:, :-1]], tokens[places[:, 1:]]


def windows_rounded(tokens, batch_size, seq_len, generator):
    starts = (torch.rand(batch_size, generator=generator) * (len(tokens) - seq_len - 1)).round().long()
    return _windows(tokens, starts, seq_len)


def _adamw(param, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return param - lr * weight_decay * param - lr * m_hat / (v_hat.sqrt() + eps), m, v


def adamw_plain_momentum(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = beta1 * m + grad, beta2 * v + (1 - beta2) * grad**2
    return _adamw(param, m, v, step, lr, beta1, beta2, eps, weight_decay)


def adamw_keeps_corrected(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
    m, v = m / (1 - beta1**step), v / (1 - beta2**step)
    return param - lr * m / (v.sqrt() + eps) - lr * weight_decay * param, m, v


def adamw_moments_in_place(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m.mul_(beta1).add_(grad, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return _adamw(param, m, v, step, lr, beta1, beta2, eps, weight_decay)


def drawn(tokens, batch_size, seq_len, generator, more=0, shift=1):
    """Right windows, but for the number of starts and the distance of the targets."""
    starts = torch.randint(len(tokens) - seq_len + more, (batch_size,), generator=generator)
    return _windows(tokens, starts, seq_len, shift)


def steps_along(direction):
    """AdamW in a wrong direction: of both moments as they are, both corrected, and eps."""

    def wrong(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
        moved = direction(m, v, m / (1 - beta1**step), v / (1 - beta2**step), eps)
        return param - lr * moved - lr * weight_decay * param, m, v

    return wrong


RIGHT = {
    "next_token_pairs": named(
        pairs_by_narrow, pairs_by_loops,
        pairs_by_roll=lambda ids: [ids[..., :-1].clone(), ids.roll(-1, dims=-1)[..., :-1]],
        pairs_by_windows=lambda ids: ids.unfold(1, 2, 1).unbind(-1),
    ),
    "random_windows": named(
        windows_by_index, windows_by_unfold, windows_by_permutations, windows_by_fractions,
        windows_by_slices=drawn,
    ),
    "adamw_step": named(adamw_by_the_book, adamw_by_lerp, adamw_with_one_rate, adamw_in_double, adamw_of_torch),
}  # fmt: skip
WRONG = {
    "next_token_pairs": named(
        not_shifted=lambda ids: (ids[:, :-1], ids[:, :-1]),
        swapped=lambda ids: (ids[:, 1:], ids[:, :-1]),
        two_later=lambda ids: (ids[:, :-2], ids[:, 2:]),
        full_inputs=lambda ids: (ids, ids[:, 1:]),
        along_the_batch=lambda ids: (ids[:-1], ids[1:]),
        rolled=lambda ids: (ids, ids.roll(-1, 1)),
        rolled_and_cut=lambda ids: (ids[:, 1:], ids.roll(-1, 1)[:, 1:]),
        last_target_only=lambda ids: (ids[:, :-1], ids[:, -1]),
        filled_up=lambda ids: (ids, F.pad(ids[:, 1:], (0, 1), value=-100)),
        not_overlapping=lambda ids: (ids[:, 0:-1:2], ids[:, 1::2]),
        flat=lambda ids: (ids[:, :-1].flatten(), ids[:, 1:].flatten()),
        as_floats=lambda ids: (ids[:, :-1].float(), ids[:, 1:].float()),
    ),
    "random_windows": named(
        windows_one_start, windows_of_scattered_tokens, windows_split_of_seq_len, windows_round_the_end,
        from_the_front=lambda tokens, batch_size, seq_len, generator:
            _windows(tokens, torch.arange(batch_size) % (len(tokens) - seq_len), seq_len),
        same_twice=lambda *arguments: drawn(*arguments, shift=0),
        swapped=lambda *arguments: drawn(*arguments)[::-1],
        last_start_missing=lambda *arguments: drawn(*arguments, more=-1),
        one_start_too_many=lambda *arguments: drawn(*arguments, more=1),
        next_chunk=lambda tokens, n, seq_len, generator: drawn(tokens, n, seq_len, generator, 1 - seq_len, seq_len),
        without_generator=lambda tokens, n, seq_len, generator: drawn(tokens, n, seq_len, None),
        ends_half_as_often=windows_rounded,
        seeded_again=lambda tokens, n, seq_len, generator: drawn(tokens, n, seq_len, generator.manual_seed(0)),
    ),
    "adamw_step": named(
        adamw_plain_momentum, adamw_keeps_corrected, adamw_moments_in_place,
        decay_in_the_gradient=lambda p, grad, *rest: adamw_by_the_book(p, grad + rest[-1] * p, *rest[:-1], 0.0),
        step_from_zero=lambda p, grad, m, v, step, *rest: adamw_by_the_book(p, grad, m, v, step + 1, *rest),
        decay_without_lr=lambda *rest: adamw_by_the_book(*rest[:-1], rest[-1] / rest[5]),
        betas_swapped=lambda *rest: adamw_by_the_book(*rest[:6], rest[7], rest[6], *rest[8:]),
        grows=lambda *rest: adamw_by_the_book(*rest[:-1], -rest[-1]),
        uncorrected=steps_along(lambda m, v, m_hat, v_hat, eps: m / (v.sqrt() + eps)),
        corrects_the_first_only=steps_along(lambda m, v, m_hat, v_hat, eps: m_hat / (v.sqrt() + eps)),
        eps_inside=steps_along(lambda m, v, m_hat, v_hat, eps: m_hat / (v_hat + eps).sqrt()),
        corrected_after_the_root=steps_along(
            lambda m, v, m_hat, v_hat, eps: m_hat / (v_hat / (v.sqrt() + 1e-30) + eps)
        ),
        no_root=steps_along(lambda m, v, m_hat, v_hat, eps: m_hat / (v_hat + eps)),
    ),
}  # fmt: skip
LIBRARY = {
    "random_windows": random_windows,
    "adamw_step": adamw_of_the_library,
}
