"""Lesson 11: right variants of its exercises, and the library's own."""

import math

import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

from catalogue import named
from tinylm_lib.data import windows as data
from tinylm_lib.training import optim


def pairs_by_narrow(ids):
    n = ids.size(1) - 1
    return ids.narrow(1, 0, n).contiguous(), ids.narrow(1, 1, n).contiguous()


def pairs_by_loops(ids):
    rows = ids.tolist()
    return torch.tensor([row[:-1] for row in rows]), torch.tensor([row[1:] for row in rows])


def windows_by_slices(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - seq_len, (batch_size,), generator=generator)
    x = torch.stack([tokens[i : i + seq_len] for i in starts])
    return x, torch.stack([tokens[i + 1 : i + 1 + seq_len] for i in starts])


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


def rate_by_parts(step, peak, floor, warmup_steps, total_steps):
    if step <= warmup_steps:
        return peak * (step / warmup_steps)
    if step > total_steps:
        return floor
    ratio = (step - warmup_steps) / (total_steps - warmup_steps)
    return floor + 0.5 * (peak - floor) * (1.0 + math.cos(math.pi * ratio))


def rate_clamped(step, peak, floor, warmup_steps, total_steps):
    done = min(1.0, max(0.0, (step - warmup_steps) / (total_steps - warmup_steps)))
    share = math.cos(math.pi * done / 2) ** 2
    return min(1.0, step / warmup_steps) * (peak * share + floor * (1 - share))


def rate_as_a_tensor(step, peak, floor, warmup_steps, total_steps):
    done = torch.tensor((step - warmup_steps) / (total_steps - warmup_steps)).clamp(0, 1)
    fall = torch.lerp(torch.tensor(floor), torch.tensor(peak), (1 + torch.cos(torch.pi * done)) / 2)
    return torch.where(torch.tensor(step < warmup_steps), torch.tensor(peak * step / warmup_steps), fall)


def rate_of_torch(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return step * peak / warmup_steps
    if step >= total_steps:
        return float(floor)
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=peak)
    schedule = CosineAnnealingLR(optimizer, total_steps - warmup_steps, eta_min=floor)
    schedule.base_lrs = [peak]
    schedule.last_epoch = step - warmup_steps
    return schedule._get_closed_form_lr()[0]


def clip_by_stack(grads, max_norm):
    norm = torch.stack([torch.linalg.vector_norm(g) for g in grads]).norm()
    return [g * (max_norm / (norm + 1e-6)).clamp(max=1.0) for g in grads]


def clip_by_item(grads, max_norm):
    norm = math.sqrt(sum((g**2).sum().item() for g in grads))
    if norm <= max_norm:
        return grads
    return [g.mul(max_norm / norm) for g in grads]


def clip_one_long_vector(grads, max_norm):
    long = torch.cat([g.reshape(-1) for g in grads])
    long = long * min(1.0, max_norm / (long.norm().item() + 1e-12))
    return [part.view_as(g) for part, g in zip(long.split([g.numel() for g in grads]), grads, strict=True)]


def clip_of_torch(grads, max_norm):
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    for p, g in zip(parameters, grads, strict=True):
        p.grad = g.clone()
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    return tuple(p.grad for p in parameters)


def _windows(tokens, starts, seq_len, shift=1):
    x = torch.stack([tokens[i : i + seq_len] for i in starts.tolist()])
    return x, torch.stack([tokens[i + shift : i + shift + seq_len] for i in starts.tolist()])


def windows_one_start(tokens, batch_size, seq_len, generator):
    start = torch.randint(len(tokens) - seq_len, (1,), generator=generator)
    return _windows(tokens, start.expand(batch_size), seq_len)


def windows_same_twice(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - seq_len, (batch_size,), generator=generator)
    return _windows(tokens, starts, seq_len, shift=0)


def windows_next_chunk(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - 2 * seq_len + 1, (batch_size,), generator=generator)
    return _windows(tokens, starts, seq_len, shift=seq_len)


def windows_swapped(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - seq_len, (batch_size,), generator=generator)
    return _windows(tokens, starts, seq_len)[::-1]


def windows_of_scattered_tokens(tokens, batch_size, seq_len, generator):
    places = torch.randint(len(tokens) - 1, (batch_size, seq_len), generator=generator)
    return tokens[places], tokens[places + 1]


def windows_seeded_again(tokens, batch_size, seq_len, generator):
    generator.manual_seed(0)
    return _windows(tokens, torch.randint(len(tokens) - seq_len, (batch_size,), generator=generator), seq_len)


def windows_split_of_seq_len(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - seq_len + 1, (batch_size,), generator=generator)
    window = torch.stack([tokens[i : i + seq_len] for i in starts.tolist()])
    return window[:, :-1], window[:, 1:]


def windows_round_the_end(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens), (batch_size, 1), generator=generator)
    places = (starts + torch.arange(seq_len + 1)) % len(tokens)
    return tokens[places[:, :-1]], tokens[places[:, 1:]]


def _moments(grad, m, v, beta1, beta2):
    return beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2


def _adamw(param, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return param - lr * weight_decay * param - lr * m_hat / (v_hat.sqrt() + eps), m, v


def adamw_decay_in_the_gradient(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad + weight_decay * param, m, v, beta1, beta2)
    return _adamw(param, m, v, step, lr, beta1, beta2, eps, 0.0)


def adamw_uncorrected(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    return param - lr * m / (v.sqrt() + eps) - lr * weight_decay * param, m, v


def adamw_corrects_the_first_only(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    return param - lr * m / (1 - beta1**step) / (v.sqrt() + eps) - lr * weight_decay * param, m, v


def adamw_eps_inside(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return param - lr * m_hat / torch.sqrt(v_hat + eps) - lr * weight_decay * param, m, v


def adamw_step_from_zero(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    return _adamw(param, m, v, step + 1, lr, beta1, beta2, eps, weight_decay)


def adamw_decay_without_lr(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    return _adamw(param, m, v, step, lr, beta1, beta2, eps, weight_decay / lr)


def adamw_betas_swapped(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta2, beta1)
    return _adamw(param, m, v, step, lr, beta2, beta1, eps, weight_decay)


def adamw_no_root(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return param - lr * m_hat / (v_hat + eps) - lr * weight_decay * param, m, v


def adamw_plain_momentum(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = beta1 * m + grad, beta2 * v + (1 - beta2) * grad**2
    return _adamw(param, m, v, step, lr, beta1, beta2, eps, weight_decay)


def adamw_keeps_corrected(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    m, v = m / (1 - beta1**step), v / (1 - beta2**step)
    return param - lr * m / (v.sqrt() + eps) - lr * weight_decay * param, m, v


def adamw_grows(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m, v = _moments(grad, m, v, beta1, beta2)
    return _adamw(param, m, v, step, lr, beta1, beta2, eps, -weight_decay)


def adamw_moments_in_place(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay):
    m.mul_(beta1).add_(grad, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return _adamw(param, m, v, step, lr, beta1, beta2, eps, weight_decay)


def _cosine(done, peak, floor):
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * done))


def cosine_starts_at_zero(step, peak, floor, warmup_steps, total_steps):
    if step <= warmup_steps:
        return peak * (step - 1) / warmup_steps
    return floor if step >= total_steps else _cosine((step - warmup_steps) / (total_steps - warmup_steps), peak, floor)


def cosine_one_ahead(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return floor if step >= total_steps else _cosine((step - warmup_steps) / (total_steps - warmup_steps), peak, floor)


def cosine_comes_back(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    return _cosine((step - warmup_steps) / (total_steps - warmup_steps), peak, floor)


def cosine_from_the_first_step(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    return floor if step >= total_steps else _cosine(step / total_steps, peak, floor)


def cosine_lasts_total_steps(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    return floor if step >= total_steps else _cosine((step - warmup_steps) / total_steps, peak, floor)


def cosine_to_zero(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    return floor if step >= total_steps else _cosine((step - warmup_steps) / (total_steps - warmup_steps), peak, 0.0)


def cosine_floor_on_top(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    return floor + _cosine((step - warmup_steps) / (total_steps - warmup_steps), peak, 0.0)


def cosine_cut_off_at_the_floor(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    return max(floor, _cosine((step - warmup_steps) / (total_steps - warmup_steps), peak, 0.0))


def cosine_straight_line(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    done = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
    return peak + (floor - peak) * done


def cosine_quarter(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    done = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
    return floor + (peak - floor) * math.cos(math.pi / 2 * done)


def cosine_floor_is_a_share(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    done = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
    return _cosine(done, peak, floor * peak)


def cosine_zero_after_the_end(step, peak, floor, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step > total_steps:
        return 0.0
    return _cosine((step - warmup_steps) / (total_steps - warmup_steps), peak, floor)


def _norm(grads):
    return torch.sqrt(sum((g**2).sum() for g in grads))


def clip_sum_of_norms(grads, max_norm):
    total = sum(g.norm() for g in grads)
    return [g * max_norm / total for g in grads] if total > max_norm else list(grads)


def clip_squared_norm(grads, max_norm):
    total = sum((g**2).sum() for g in grads)
    return [g * max_norm / total for g in grads] if total > max_norm else list(grads)


def clip_largest_number(grads, max_norm):
    total = max(g.abs().max() for g in grads)
    return [g * max_norm / total for g in grads] if total > max_norm else list(grads)


def clip_absolute_sum(grads, max_norm):
    total = sum(g.abs().sum() for g in grads)
    return [g * max_norm / total for g in grads] if total > max_norm else list(grads)


def clip_upside_down(grads, max_norm):
    total = _norm(grads)
    return [g * total / max_norm for g in grads] if total > max_norm else list(grads)


def clip_to_length_one(grads, max_norm):
    total = _norm(grads)
    return [g / total for g in grads] if total > max_norm else list(grads)


def clip_in_place(grads, max_norm):
    total = _norm(grads)
    if total > max_norm:
        for g in grads:
            g.mul_(max_norm / (total + 1e-6))
    return grads


def clip_mean_of_norms(grads, max_norm):
    total = sum(g.norm() for g in grads) / len(grads)
    return [g * max_norm / total for g in grads] if total > max_norm else list(grads)


RIGHT = {
    "next_token_pairs": named(
        pairs_by_narrow, pairs_by_loops,
        pairs_by_roll=lambda ids: [ids[..., :-1].clone(), ids.roll(-1, dims=-1)[..., :-1]],
        pairs_by_windows=lambda ids: ids.unfold(1, 2, 1).unbind(-1),
    ),
    "random_windows": named(
        windows_by_slices, windows_by_index, windows_by_unfold, windows_by_permutations, windows_by_fractions,
    ),
    "adamw_step": named(adamw_by_the_book, adamw_by_lerp, adamw_with_one_rate, adamw_in_double, adamw_of_torch),
    "warmup_cosine": named(rate_by_parts, rate_clamped, rate_as_a_tensor, rate_of_torch),
    "clip_gradients": named(clip_by_stack, clip_by_item, clip_one_long_vector, clip_of_torch),
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
        windows_one_start, windows_same_twice, windows_next_chunk, windows_swapped, windows_of_scattered_tokens,
        windows_seeded_again, windows_split_of_seq_len, windows_round_the_end,
        without_generator=lambda tokens, batch_size, seq_len, generator:
            _windows(tokens, torch.randint(len(tokens) - seq_len, (batch_size,)), seq_len),
        last_start_missing=lambda tokens, batch_size, seq_len, generator:
            _windows(tokens, torch.randint(len(tokens) - seq_len - 1, (batch_size,), generator=generator), seq_len),
        one_start_too_many=lambda tokens, batch_size, seq_len, generator:
            _windows(tokens, torch.randint(len(tokens) - seq_len + 1, (batch_size,), generator=generator), seq_len),
        from_the_front=lambda tokens, batch_size, seq_len, generator:
            _windows(tokens, torch.arange(batch_size) % (len(tokens) - seq_len), seq_len),
    ),
    "adamw_step": named(
        adamw_decay_in_the_gradient, adamw_uncorrected, adamw_corrects_the_first_only, adamw_eps_inside,
        adamw_step_from_zero, adamw_decay_without_lr, adamw_betas_swapped, adamw_no_root, adamw_plain_momentum,
        adamw_keeps_corrected, adamw_grows, adamw_moments_in_place,
    ),
    "warmup_cosine": named(
        cosine_starts_at_zero, cosine_one_ahead, cosine_comes_back, cosine_from_the_first_step,
        cosine_lasts_total_steps, cosine_to_zero, cosine_floor_on_top, cosine_cut_off_at_the_floor,
        cosine_straight_line, cosine_quarter, cosine_floor_is_a_share, cosine_zero_after_the_end,
    ),
    "clip_gradients": named(
        clip_sum_of_norms, clip_squared_norm, clip_largest_number, clip_absolute_sum, clip_upside_down,
        clip_to_length_one, clip_in_place, clip_mean_of_norms,
        each_tensor=lambda grads, max_norm: [g * min(1.0, max_norm / (float(g.norm()) + 1e-6)) for g in grads],
        each_number=lambda grads, max_norm: [g.clamp(-max_norm, max_norm) for g in grads],
        always=lambda grads, max_norm: [g * (max_norm / _norm(grads)) for g in grads],
        returns_the_norm=lambda grads, max_norm: _norm(grads),
    ),
}  # fmt: skip
LIBRARY = {
    "random_windows": data.random_windows,
    "adamw_step": adamw_of_the_library,
    "warmup_cosine": optim.warmup_cosine,
    "clip_gradients": clip_of_torch,
}
