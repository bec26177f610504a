"""Lesson 11: right variants of its exercises, mistakes, and the library's own."""

import math

import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

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


def cosine_lasts_total_steps(step, peak, floor, warmup_steps, total_steps):
    if warmup_steps <= step < total_steps:
        return cosine((step - warmup_steps) / total_steps, peak, floor)
    return right_rate(step, peak, floor, warmup_steps, total_steps)


def _norm(grads):
    return torch.sqrt(sum((g**2).sum() for g in grads))


def clip_in_place(grads, max_norm):
    total = _norm(grads)
    if total > max_norm:
        for g in grads:
            g.mul_(max_norm / (total + 1e-6))
    return grads


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


def cosine(done, peak, floor):
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * done))


def falls(fall):
    """A right warm-up, and behind it a fall: of the part that is done, the peak and the floor."""

    def schedule(step, peak, floor, warmup, total):
        if step < warmup:
            return peak * step / warmup
        return fall(min(1.0, (step - warmup) / (total - warmup)), peak, floor)

    return schedule


right_rate = falls(cosine)


def clips_by(measure):
    """Clips by something else than the norm."""
    return lambda grads, max_norm: [g * min(1.0, max_norm / measure(grads)) for g in grads]


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
    "warmup_cosine": named(rate_clamped, rate_as_a_tensor, rate_of_torch, rate_by_parts=right_rate),
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
    "warmup_cosine": named(
        cosine_lasts_total_steps,
        to_zero=falls(lambda done, peak, floor: cosine(done, peak, 0.0) if done < 1 else floor),
        floor_on_top=falls(lambda done, peak, floor: floor + cosine(done, peak, 0.0)),
        cut_off_at_the_floor=falls(lambda done, peak, floor: max(floor, cosine(done, peak, 0.0))),
        straight_line=falls(lambda done, peak, floor: peak + (floor - peak) * done),
        quarter=falls(lambda done, peak, floor: floor + (peak - floor) * math.cos(math.pi / 2 * done)),
        floor_is_a_share=falls(lambda done, peak, floor: cosine(done, peak, floor * peak)),
        one_ahead=lambda step, *rest: right_rate(step + (step < rest[2]), *rest),
        zero_after_the_end=lambda step, *rest: right_rate(step, *rest) * (step <= rest[3]),
        starts_at_zero=lambda step, peak, floor, warmup, total:
            right_rate(step - (step <= warmup), peak, floor, warmup, total),
        comes_back=lambda step, peak, floor, warmup, total:
            peak * step / warmup if step < warmup else cosine((step - warmup) / (total - warmup), peak, floor),
        from_the_first_step=lambda step, peak, floor, warmup, total:
            peak * step / warmup if step < warmup else cosine(min(1.0, step / total), peak, floor),
    ),
    "clip_gradients": named(
        clip_in_place,
        each_tensor=lambda grads, max_norm: [g * min(1.0, max_norm / (float(g.norm()) + 1e-6)) for g in grads],
        each_number=lambda grads, max_norm: [g.clamp(-max_norm, max_norm) for g in grads],
        always=lambda grads, max_norm: [g * (max_norm / _norm(grads)) for g in grads],
        returns_the_norm=lambda grads, max_norm: _norm(grads),
        sum_of_norms=clips_by(lambda grads: sum(g.norm() for g in grads)),
        squared_norm=clips_by(lambda grads: _norm(grads) ** 2),
        largest_number=clips_by(lambda grads: max(g.abs().max() for g in grads)),
        absolute_sum=clips_by(lambda grads: sum(g.abs().sum() for g in grads)),
        mean_of_norms=clips_by(lambda grads: sum(g.norm() for g in grads) / len(grads)),
        all_but_the_last=clips_by(lambda grads: _norm(grads[:-1] or grads)),
        upside_down=lambda grads, max_norm: [g * max(1.0, _norm(grads) / max_norm) for g in grads],
        to_length_one=lambda grads, max_norm: [g / (_norm(grads) if _norm(grads) > max_norm else 1) for g in grads],
    ),
}  # fmt: skip
LIBRARY = {
    "random_windows": random_windows,
    "adamw_step": adamw_of_the_library,
    "warmup_cosine": optim.warmup_cosine,
    "clip_gradients": clip_of_torch,
}
