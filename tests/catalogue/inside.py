"""Lesson 16: right variants of its exercises, and mistakes."""

import torch
import torch.nn.functional as F

from catalogue import named


def patch_by_where(stream, other, at):
    here = torch.arange(stream.shape[1]) == at[:, None]
    return torch.where(here.unsqueeze(-1), other, stream)


def patch_by_loop(stream, other, at):
    rows = []
    for i in range(stream.size(0)):
        p = int(at[i])
        rows.append(torch.cat([stream[i, :p], other[i, p : p + 1], stream[i, p + 1 :]]))
    return torch.stack(rows)


def patch_by_scatter(stream, other, at):
    index = at[:, None, None].expand(-1, 1, stream.shape[2])
    return stream.scatter(1, index, other.gather(1, index))


def patch_by_one_hot(stream, other, at):
    m = F.one_hot(at, stream.shape[1])[..., None].to(stream.dtype)
    return stream * (1 - m) + other * m


def patch_by_tolist(stream, other, at):
    out = stream.clone()
    for i, p in enumerate(at.tolist()):
        out[i, p] = other[i, p]
    return out


def patch_from_a_detached_run(stream, other, at):
    out = stream.clone()
    out[range(len(at)), at] = other.detach()[range(len(at)), at]
    return out


@torch.no_grad()
def patch_without_grad(stream, other, at):
    flat = stream.clone().view(-1, stream.shape[-1])
    rows = at + torch.arange(len(at)) * stream.shape[1]
    flat[rows] = other.view(-1, stream.shape[-1])[rows]
    return flat.view(stream.shape)


def patch_texts_at(stream, other, at):
    out = stream.clone()
    out[at] = other[at]
    return out


def patch_no_copy(stream, other, at):
    stream[torch.arange(len(at)), at] = other[torch.arange(len(at)), at]
    return stream


def patch_all_pairs(stream, other, at):
    out = stream.clone()
    out[:, at] = other[:, at]
    return out


def patch_wrong_way(stream, other, at):
    out = other.clone()
    out[torch.arange(len(at)), at] = stream[torch.arange(len(at)), at]
    return out


def patch_suffix(stream, other, at):
    out = stream.clone()
    for i, p in enumerate(at.tolist()):
        out[i, p:] = other[i, p:]
    return out


def patch_features(stream, other, at):
    out = stream.clone()
    for i, p in enumerate(at.tolist()):
        out[i, :, p % stream.shape[2]] = other[i, :, p % stream.shape[2]]
    return out


def patch_first_at(stream, other, at):
    out = stream.clone()
    out[:, at[0]] = other[:, at[0]]
    return out


def patch_adds(stream, other, at):
    out = stream.clone()
    i = torch.arange(len(at))
    out[i, at] = out[i, at] + other[i, at]
    return out


def patch_lost(stream, other, at):
    out = stream.clone()
    out[torch.arange(len(at))][:, at] = 0
    return out


def patch_zero(stream, other, at):
    out = stream.clone()
    out[torch.arange(len(at)), at] = 0.0
    return out


def probe_by_autograd(w, b, x, y, lr):
    with torch.enable_grad():
        w2, b2 = w.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
        loss = F.binary_cross_entropy_with_logits(x @ w2 + b2, y)
        gw, gb = torch.autograd.grad(loss, (w2, b2))
    return w - lr * gw, b - lr * gb


def probe_by_exp(w, b, x, y, lr):
    s = (x * w).sum(1) + b
    p = torch.where(s >= 0, 1 / (1 + (-s.abs()).exp()), (-s.abs()).exp() / (1 + (-s.abs()).exp()))
    return w - lr * ((p - y)[:, None] * x).mean(0), b - lr * (p - y).mean()


def probe_by_loop(w, b, x, y, lr):
    gw, gb = torch.zeros_like(w), torch.zeros_like(b)
    for row, label in zip(x, y, strict=True):
        e = torch.sigmoid(row @ w + b) - label
        gw = gw + e * row / len(x)
        gb = gb + e / len(x)
    return w - lr * gw, b - lr * gb


def probe_by_einsum(w, b, x, y, lr):
    e = (torch.sigmoid(torch.mv(x, w) + b) - y) / x.shape[0]
    return torch.add(w, torch.einsum("n,nc->c", e, x), alpha=-lr), b - lr * e.sum()


@torch.no_grad()
def probe_without_grad(w, b, x, y, lr):
    p = 0.5 * (1 + torch.tanh((F.linear(x, w[None], b[None])[:, 0]) / 2))
    slopes = torch.cat([x, torch.ones(len(x), 1)], 1) * (p - y).unsqueeze(1)
    step = lr * slopes.sum(0) / y.numel()
    return [w - step[:-1], b - step[-1]]


def _probe(w, b, x, y, lr, p=torch.sigmoid, n=None, sign=-1, target=None):
    e = p(x @ w + b) - (y if target is None else target(y))
    n = n or len(x)
    return w + sign * lr * x.T @ e / n, b + sign * lr * e.sum() / n


def probe_sum(w, b, x, y, lr):
    return _probe(w, b, x, y, lr, n=1)


def probe_ascent(w, b, x, y, lr):
    return _probe(w, b, x, y, lr, sign=1)


def probe_linear(w, b, x, y, lr):
    return _probe(w, b, x, y, lr, p=lambda s: s)


def probe_signed(w, b, x, y, lr):
    return _probe(w, b, x, y, lr, target=lambda y: 2 * y - 1)


def probe_hard(w, b, x, y, lr):
    return _probe(w, b, x, y, lr, p=lambda s: (s > 0).to(s.dtype))


def probe_no_bias(w, b, x, y, lr):
    return _probe(w, b, x, y, lr)[0], b


def probe_gradients(w, b, x, y, lr):
    e = torch.sigmoid(x @ w + b) - y
    return x.T @ e / len(x), e.mean()


def probe_mse(w, b, x, y, lr):
    p = torch.sigmoid(x @ w + b)
    e = 2 * (p - y) * p * (1 - p)
    return w - lr * x.T @ e / len(x), b - lr * e.mean()


def probe_half_mse(w, b, x, y, lr):
    p = torch.sigmoid(x @ w + b)
    e = (p - y) * p * (1 - p)
    return w - lr * x.T @ e / len(x), b - lr * e.mean()


def probe_in_a_loop(w, b, x, y, lr, n=1):
    for i in range(len(x)):
        e = torch.sigmoid((w * x[i]).sum() + b) - y[i]
        w = w - lr * e * x[i] / n
        b = b - lr * e / n
    return w, b


def probe_in_a_loop_of_n(w, b, x, y, lr):
    return probe_in_a_loop(w, b, x, y, lr, len(x))


def probe_exp_over_exp(w, b, x, y, lr):
    return _probe(w, b, x, y, lr, p=lambda s: s.exp() / (1 + s.exp()))


def probe_inplace(w, b, x, y, lr):
    e = torch.sigmoid(x @ w + b) - y
    w -= lr * x.T @ e / len(x)
    b -= lr * e.mean()
    return w, b


def probe_swapped(w, b, x, y, lr):
    return _probe(w, b, x, y, lr)[::-1]


RIGHT = {
    "patch": named(
        patch_by_where, patch_by_loop, patch_by_scatter, patch_by_one_hot, patch_by_tolist,
        patch_from_a_detached_run, patch_without_grad,
    ),
    "probe_step": named(
        probe_by_autograd, probe_by_exp, probe_by_loop, probe_by_einsum, probe_without_grad,
    ),
}  # fmt: skip
WRONG = {
    "patch": named(
        patch_no_copy, patch_all_pairs, patch_wrong_way, patch_suffix, patch_features, patch_first_at, patch_adds,
        patch_lost, patch_zero, patch_texts_at,
        patch_returns_vectors=lambda stream, other, at: other[torch.arange(len(at)), at],
        patch_everything=lambda stream, other, at: other.clone(),
    ),
    "probe_step": named(
        probe_sum, probe_ascent, probe_linear, probe_signed, probe_hard, probe_no_bias, probe_gradients, probe_mse,
        probe_inplace, probe_swapped, probe_half_mse, probe_in_a_loop, probe_in_a_loop_of_n, probe_exp_over_exp,
        probe_no_rate=lambda w, b, x, y, lr: _probe(w, b, x, y, 1.0),
    ),
}  # fmt: skip
