"""Lesson 11: right variants of its exercises, and the library's own."""

import math

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR

from tinylm_lib.data import windows as data
from tinylm_lib.training import optim


def pairs_by_narrow(ids):
    n = ids.size(1) - 1
    return ids.narrow(1, 0, n).contiguous(), ids.narrow(1, 1, n).contiguous()


def pairs_by_loops(ids):
    rows = ids.tolist()
    return torch.tensor([row[:-1] for row in rows]), torch.tensor([row[1:] for row in rows])


def pairs_by_roll(ids):
    return [ids[..., :-1].clone(), ids.roll(-1, dims=-1)[..., :-1]]


def pairs_by_windows(ids):
    return ids.unfold(1, 2, 1).unbind(-1)


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


RIGHT = {
    "next_token_pairs": [pairs_by_narrow, pairs_by_loops, pairs_by_roll, pairs_by_windows],
    "random_windows": [
        windows_by_slices, windows_by_index, windows_by_unfold, windows_by_permutations, windows_by_fractions,
    ],
    "adamw_step": [adamw_by_the_book, adamw_by_lerp, adamw_with_one_rate, adamw_in_double, adamw_of_torch],
    "warmup_cosine": [rate_by_parts, rate_clamped, rate_as_a_tensor, rate_of_torch],
    "clip_gradients": [clip_by_stack, clip_by_item, clip_one_long_vector, clip_of_torch],
}  # fmt: skip
LIBRARY = {
    "random_windows": data.random_windows,
    "adamw_step": adamw_of_the_library,
    "warmup_cosine": optim.warmup_cosine,
    "clip_gradients": clip_of_torch,
}
