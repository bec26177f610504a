"""Mistakes written without sight of the catalogue, for lessons 03, 04 and 10 to 12: what share is caught, and named?"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from tinylm_lib import layers
from tinylm_lib.cost import count_parameters


# 03 softmax
def softmax_plain(x, dim):
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


def softmax_largest_of_all(x, dim):
    e = torch.exp(x - x.max())
    return e / e.sum(dim, keepdim=True)


def softmax_sum_of_all(x, dim):
    e = torch.exp(x - x.max(dim, keepdim=True).values)
    return e / e.sum()


def softmax_always_last(x, dim):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def softmax_clamped(x, dim):
    e = torch.exp(x.clamp(-80, 80))
    return e / e.sum(dim, keepdim=True)


def softmax_minus_mean(x, dim):
    e = torch.exp(x - x.mean(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def softmax_minus_largest_size(x, dim):
    e = torch.exp(x - x.abs().amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def softmax_sum_without_keepdim(x, dim):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim)


def softmax_log(x, dim):
    z = x - x.amax(dim, keepdim=True)
    return z - z.exp().sum(dim, keepdim=True).log()


def softmax_powers_of_two(x, dim):
    e = 2 ** (x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def softmax_repaired_nan(x, dim):
    e = torch.exp(x)
    return torch.nan_to_num(e / e.sum(dim, keepdim=True))


def softmax_in_place(x, dim):
    x -= x.max(dim, keepdim=True).values
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


def _picked(logits, targets):
    logp = logits.log_softmax(-1)
    return -logp.gather(-1, targets.clamp(min=0)[..., None])[..., 0]


def cross_over_all_positions(logits, targets):
    return (_picked(logits, targets) * (targets != -100)).mean()


def cross_ignored_as_token_zero(logits, targets):
    return _picked(logits, targets).mean()


def cross_in_bits(logits, targets):
    return _picked(logits, targets)[targets != -100].mean() / math.log(2)


def cross_summed(logits, targets):
    return _picked(logits, targets)[targets != -100].sum()


def cross_log_of_softmax(logits, targets):
    p = logits.softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -torch.log(p[targets != -100]).mean()


def cross_log_of_softmax_and_a_bit(logits, targets):
    p = logits.softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -torch.log(p[targets != -100] + 1e-9).mean()


def cross_softmax_twice(logits, targets):
    return F.cross_entropy(logits.softmax(-1).flatten(0, 1), targets.flatten(), ignore_index=-100)


def cross_without_minus(logits, targets):
    return -_picked(logits, targets)[targets != -100].mean()


def cross_mean_of_rows(logits, targets):
    kept = (targets != -100).float()
    return ((_picked(logits, targets) * kept).sum(-1) / kept.sum(-1).clamp(min=1)).mean()


def cross_shifts_again(logits, targets):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=-100)


def cross_reshaped_for_torch(logits, targets):
    B, T, V = logits.shape
    return F.cross_entropy(logits.reshape(B, V, T), targets)


def cross_ignores_zero(logits, targets):
    return _picked(logits, targets)[targets > 0].mean()


# 04 normalization
def _rms(x, weight, eps, dims=-1):
    z = x.float()
    return (z / torch.sqrt((z * z).mean(dims, keepdim=True) + eps) * weight).to(x.dtype)


def rms_eps_outside(x, weight, eps):
    z = x.float()
    return (z / (z.pow(2).mean(-1, keepdim=True).sqrt() + eps) * weight).to(x.dtype)


def rms_without_eps(x, weight, eps):
    return _rms(x, weight, 0.0)


def rms_own_eps(x, weight, eps):
    return _rms(x, weight, 1e-6)


def rms_of_positions_too(x, weight, eps):
    return _rms(x, weight, eps, (-2, -1))


def rms_centred(x, weight, eps):
    z = x.float()
    return _rms(z - z.mean(-1, keepdim=True), weight, eps).to(x.dtype)


def rms_summed(x, weight, eps):
    z = x.float()
    return (z * torch.rsqrt((z * z).sum(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rms_in_half(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight.to(x.dtype)


def rms_stays_fp32(x, weight, eps):
    return _rms(x.float(), weight.float(), eps)


def rms_one_plus_weight(x, weight, eps):
    return _rms(x, 1 + weight, eps)


def rms_no_root(x, weight, eps):
    z = x.float()
    return (z / (z.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rms_of_sizes(x, weight, eps):
    z = x.float()
    return (z / (z.abs().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rms_axis_one(x, weight, eps):
    return _rms(x, weight, eps, 1)


def _layer(x, weight, bias, eps, dims=-1, unbiased=False):
    z = x.float()
    z = z - z.mean(dims, keepdim=True)
    return (z / torch.sqrt(z.var(dims, keepdim=True, unbiased=unbiased) + eps) * weight + bias).to(x.dtype)


def layer_sample_variance(x, weight, bias, eps):
    return _layer(x, weight, bias, eps, unbiased=True)


def layer_eps_outside(x, weight, bias, eps):
    z = x.float()
    std = z.var(-1, keepdim=True, unbiased=False).sqrt()
    return ((z - z.mean(-1, keepdim=True)) / (std + eps) * weight + bias).to(x.dtype)


def layer_annotated(x, weight, bias, eps):
    z = x.float()
    return (weight * (z - z.mean(-1, keepdim=True)) / (z.std(-1, keepdim=True) + eps) + bias).to(x.dtype)


def layer_not_centred(x, weight, bias, eps):
    z = x.float()
    return (z / torch.sqrt(z.var(-1, keepdim=True, unbiased=False) + eps) * weight + bias).to(x.dtype)


def layer_without_bias(x, weight, bias, eps):
    return _layer(x, weight, 0.0, eps)


def layer_bias_first(x, weight, bias, eps):
    z = x.float()
    z = (z - z.mean(-1, keepdim=True)) / torch.sqrt(z.var(-1, keepdim=True, unbiased=False) + eps)
    return ((z + bias) * weight).to(x.dtype)


def layer_over_positions_too(x, weight, bias, eps):
    return _layer(x, weight, bias, eps, (-2, -1))


def layer_over_the_batch(x, weight, bias, eps):
    return _layer(x, weight, bias, eps, 0)


def layer_in_half(x, weight, bias, eps):
    z = x - x.mean(-1, keepdim=True)
    return z / torch.sqrt((z * z).mean(-1, keepdim=True) + eps) * weight.to(x.dtype) + bias.to(x.dtype)


def layer_stays_fp32(x, weight, bias, eps):
    return F.layer_norm(x.float(), weight.shape, weight.float(), bias.float(), eps)


def layer_by_the_variance(x, weight, bias, eps):
    z = x.float()
    z = (z - z.mean(-1, keepdim=True)) / (z.var(-1, keepdim=True, unbiased=False) + eps)
    return (z * weight + bias).to(x.dtype)


def layer_rms_of_the_raw(x, weight, bias, eps):
    z = x.float()
    root = torch.sqrt(z.pow(2).mean(-1, keepdim=True) + eps)
    return ((z - z.mean(-1, keepdim=True)) / root * weight + bias).to(x.dtype)


# 10 the whole model
def counted_head_though_tied(config):
    c = count_parameters(config)
    return c.total - c.head + config.vocab_size * config.d_model


def counted_never_a_head(config):
    c = count_parameters(config)
    return c.total - c.head


def counted_all_heads_for_keys(config):
    missing = config.n_heads - config.n_kv_heads
    return count_parameters(config).total + config.n_layers * 2 * config.d_model * missing * config.d_head


def counted_no_final_norm(config):
    c = count_parameters(config)
    return c.total - c.final_norm


def counted_gate_forgotten(config):
    c = count_parameters(config)
    gated = config.ffn in ("swiglu", "geglu")
    return c.total - gated * config.n_layers * config.d_model * config.d_ff


def counted_no_biases(config):
    fields = {**config.to_dict(), "qkv_bias": False, "o_bias": False, "ffn_bias": False}
    return count_parameters(type(config).from_dict(fields)).total


def counted_four_times_width(config):
    fields = {**config.to_dict(), "d_ff": 4 * config.d_model}
    return count_parameters(type(config).from_dict(fields)).total


def counted_one_block(config):
    c = count_parameters(config)
    return c.total - c.blocks + c.block


def counted_no_positions(config):
    c = count_parameters(config)
    return c.total - c.position


def counted_sinusoids_as_learned(config):
    c = count_parameters(config)
    table = config.max_seq_len * config.d_model if config.position != "none" else 0
    return c.total - c.position + table


def counted_norms_as_one_vector(config):
    c = count_parameters(config)
    if config.norm == "rms":
        return c.total
    return c.total - (c.final_norm + config.n_layers * c.norms) // 2


def counted_one_norm_a_block(config):
    c = count_parameters(config)
    return c.total - config.n_layers * c.norms // 2


def tied_not_transposed(x, embedding_weight):
    return x @ embedding_weight


def tied_reshaped(x, embedding_weight):
    V, C = embedding_weight.shape
    return x @ embedding_weight.reshape(C, V)


def tied_softmax(x, embedding_weight):
    return (x @ embedding_weight.T).softmax(-1)


def tied_divided(x, embedding_weight):
    return x @ embedding_weight.T / math.sqrt(x.shape[-1])


def tied_multiplied(x, embedding_weight):
    return math.sqrt(x.shape[-1]) * x @ embedding_weight.T


def tied_cosine(x, embedding_weight):
    return x @ F.normalize(embedding_weight, dim=-1).T


def tied_last_position(x, embedding_weight):
    return x[:, -1] @ embedding_weight.T


def tied_ids(x, embedding_weight):
    return (x @ embedding_weight.T).argmax(-1)


def tied_fresh_head(x, embedding_weight):
    head = nn.Linear(embedding_weight.shape[1], embedding_weight.shape[0], bias=False)
    return head(x)


def tied_copied_head(x, embedding_weight):
    head = nn.Linear(embedding_weight.shape[1], embedding_weight.shape[0], bias=False)
    head.weight = nn.Parameter(embedding_weight.detach().clone())
    return head(x)


def tied_with_a_bias(x, embedding_weight):
    return x @ embedding_weight.T + embedding_weight.mean(-1)


def tied_distance(x, embedding_weight):
    return -torch.cdist(x, embedding_weight)


def _init(module, fill):
    """Biases to zero, norms untouched, `fill` for everything else."""
    for name, p in module.named_parameters():
        if p.ndim > 1:
            fill(p)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def init_everything(module, std):
    for p in module.parameters():
        nn.init.normal_(p, mean=0.0, std=std)


def init_variance(module, std):
    _init(module, lambda p: nn.init.normal_(p, std=std**2))


def init_std_as_mean(module, std):
    _init(module, lambda p: nn.init.normal_(p, std))


def init_uniform(module, std):
    _init(module, lambda p: nn.init.uniform_(p, -std, std))


def init_no_embeddings(module, std):
    for m in module.modules():
        if isinstance(m, nn.Linear | layers.Linear):
            nn.init.normal_(m.weight, std=std)
            if m.bias is not None:
                nn.init.zeros_(m.bias)


def init_only_children(module, std):
    for m in module.children():
        if isinstance(m, nn.Linear | layers.Linear | nn.Embedding | layers.Embedding):
            nn.init.normal_(m.weight, std=std)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)


@torch.no_grad()
def init_added(module, std):
    _init(module, lambda p: p.add_(std * torch.randn_like(p)))


def init_zeroed_vectors(module, std):
    for p in module.parameters():
        if p.ndim > 1:
            nn.init.normal_(p, std=std)
        else:
            nn.init.zeros_(p)


def init_xavier(module, std):
    _init(module, nn.init.xavier_normal_)


def init_own_std(module, std):
    _init(module, lambda p: nn.init.normal_(p, std=0.02))


def init_same_draw_each_time(module, std):
    def fill(p):
        torch.manual_seed(0)
        nn.init.normal_(p, std=std)

    _init(module, fill)


def init_copy(module, std):
    new = copy.deepcopy(module)
    _init(new, lambda p: nn.init.normal_(p, std=std))
    return new


# 11 training
def pairs_not_shifted(ids):
    return ids[:, :-1], ids[:, :-1]


def pairs_swapped(ids):
    return ids[:, 1:], ids[:, :-1]


def pairs_two_later(ids):
    return ids[:, :-2], ids[:, 2:]


def pairs_full_inputs(ids):
    return ids, ids[:, 1:]


def pairs_along_the_batch(ids):
    return ids[:-1], ids[1:]


def pairs_rolled(ids):
    return ids, ids.roll(-1, 1)


def pairs_rolled_and_cut(ids):
    return ids[:, 1:], ids.roll(-1, 1)[:, 1:]


def pairs_last_target_only(ids):
    return ids[:, :-1], ids[:, -1]


def pairs_filled_up(ids):
    return ids, F.pad(ids[:, 1:], (0, 1), value=-100)


def pairs_not_overlapping(ids):
    return ids[:, 0:-1:2], ids[:, 1::2]


def pairs_flat(ids):
    return ids[:, :-1].flatten(), ids[:, 1:].flatten()


def pairs_as_floats(ids):
    return ids[:, :-1].float(), ids[:, 1:].float()


def _windows(tokens, starts, seq_len, shift=1):
    x = torch.stack([tokens[i : i + seq_len] for i in starts.tolist()])
    return x, torch.stack([tokens[i + shift : i + shift + seq_len] for i in starts.tolist()])


def windows_one_start(tokens, batch_size, seq_len, generator):
    start = torch.randint(len(tokens) - seq_len, (1,), generator=generator)
    return _windows(tokens, start.expand(batch_size), seq_len)


def windows_without_generator(tokens, batch_size, seq_len, generator):
    return _windows(tokens, torch.randint(len(tokens) - seq_len, (batch_size,)), seq_len)


def windows_last_start_missing(tokens, batch_size, seq_len, generator):
    return _windows(tokens, torch.randint(len(tokens) - seq_len - 1, (batch_size,), generator=generator), seq_len)


def windows_one_start_too_many(tokens, batch_size, seq_len, generator):
    return _windows(tokens, torch.randint(len(tokens) - seq_len + 1, (batch_size,), generator=generator), seq_len)


def windows_same_twice(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - seq_len, (batch_size,), generator=generator)
    return _windows(tokens, starts, seq_len, shift=0)


def windows_next_chunk(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - 2 * seq_len + 1, (batch_size,), generator=generator)
    return _windows(tokens, starts, seq_len, shift=seq_len)


def windows_swapped(tokens, batch_size, seq_len, generator):
    starts = torch.randint(len(tokens) - seq_len, (batch_size,), generator=generator)
    return _windows(tokens, starts, seq_len)[::-1]


def windows_from_the_front(tokens, batch_size, seq_len, generator):
    return _windows(tokens, torch.arange(batch_size) % (len(tokens) - seq_len), seq_len)


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


def clip_each_tensor(grads, max_norm):
    return [g * min(1.0, max_norm / (float(g.norm()) + 1e-6)) for g in grads]


def clip_each_number(grads, max_norm):
    return [g.clamp(-max_norm, max_norm) for g in grads]


def clip_always(grads, max_norm):
    return [g * (max_norm / _norm(grads)) for g in grads]


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


def clip_returns_the_norm(grads, max_norm):
    return _norm(grads)


def clip_mean_of_norms(grads, max_norm):
    total = sum(g.norm() for g in grads) / len(grads)
    return [g * max_norm / total for g in grads] if total > max_norm else list(grads)


# 12 sampling
def temperature_times(logits, temperature):
    return (logits * temperature).softmax(-1)


def temperature_after(logits, temperature):
    return logits.softmax(-1) / temperature


def temperature_after_renormalised(logits, temperature):
    probs = logits.softmax(-1) / temperature
    return probs / probs.sum(-1, keepdim=True)


def temperature_logits_only(logits, temperature):
    return logits / temperature


def temperature_power(logits, temperature):
    return logits.softmax(-1) ** (1 / temperature)


def temperature_logs(logits, temperature):
    return (logits / temperature).log_softmax(-1)


def temperature_first_axis(logits, temperature):
    return (logits / temperature).softmax(0)


def temperature_softmax_of_probabilities(logits, temperature):
    return (logits.softmax(-1) / temperature).softmax(-1)


def temperature_only_above_one(logits, temperature):
    return (logits / max(temperature, 1.0)).softmax(-1)


def temperature_added(logits, temperature):
    return (logits + temperature).softmax(-1)


def temperature_in_place(logits, temperature):
    logits /= temperature
    return logits.softmax(-1)


def temperature_sigmoids(logits, temperature):
    gates = torch.sigmoid(logits / temperature)
    return gates / gates.sum(-1, keepdim=True)


def topk_threshold(probs, k):
    kept = probs.where(probs >= probs.topk(k, -1).values[..., -1:], 0.0)
    return kept / kept.sum(-1, keepdim=True)


def topk_above_the_next(probs, k):
    ranked = probs.sort(-1, descending=True).values
    kept = probs.where(probs > ranked[..., min(k, probs.shape[-1] - 1), None], 0.0)
    return kept / kept.sum(-1, keepdim=True)


def topk_not_renormalised(probs, k):
    values, ids = probs.topk(k, -1)
    return torch.zeros_like(probs).scatter(-1, ids, values)


def topk_short_rows(probs, k):
    values = probs.topk(k, -1).values
    return values / values.sum(-1, keepdim=True)


def topk_softmax_of_kept(probs, k):
    values, ids = probs.topk(k, -1)
    return torch.zeros_like(probs).scatter(-1, ids, values.softmax(-1))


def topk_softmax_of_zeros_too(probs, k):
    values, ids = probs.topk(k, -1)
    return torch.zeros_like(probs).scatter(-1, ids, values).softmax(-1)


def topk_smallest(probs, k):
    values, ids = probs.topk(k, -1, largest=False)
    return torch.zeros_like(probs).scatter(-1, ids, values / values.sum(-1, keepdim=True))


def topk_one_more(probs, k):
    values, ids = probs.topk(min(k + 1, probs.shape[-1]), -1)
    return torch.zeros_like(probs).scatter(-1, ids, values / values.sum(-1, keepdim=True))


def topk_sum_of_the_batch(probs, k):
    values, ids = probs.topk(k, -1)
    kept = torch.zeros_like(probs).scatter(-1, ids, values)
    return kept / kept.sum()


def topk_ranked(probs, k):
    ranked = probs.sort(-1, descending=True).values
    ranked[..., k:] = 0
    return ranked / ranked.sum(-1, keepdim=True)


def topk_equal_shares(probs, k):
    return torch.zeros_like(probs).scatter(-1, probs.topk(k, -1).indices, 1 / k)


def topk_in_place(probs, k):
    probs[probs < probs.topk(k, -1).values[..., -1:]] = 0
    return probs / probs.sum(-1, keepdim=True)


def _nucleus(probs, keep, order, ranked):
    kept = ranked * keep
    return torch.zeros_like(probs).scatter(-1, order, kept / kept.sum(-1, keepdim=True))


def topp_drops_the_crossing(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    return _nucleus(probs, ranked.cumsum(-1) <= p, order, ranked)


def topp_drops_the_crossing_but_one(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    keep = ranked.cumsum(-1) <= p
    keep[..., 0] = True
    return _nucleus(probs, keep, order, ranked)


def topp_one_more(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    before = F.pad((ranked.cumsum(-1) - ranked)[..., :-1], (1, 0))
    return _nucleus(probs, before < p, order, ranked)


def topp_not_renormalised(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    return torch.zeros_like(probs).scatter(-1, order, ranked * (ranked.cumsum(-1) - ranked < p))


def topp_ranked(probs, p):
    ranked = probs.sort(-1, descending=True).values
    kept = ranked * (ranked.cumsum(-1) - ranked < p)
    return kept / kept.sum(-1, keepdim=True)


def topp_ascending(probs, p):
    ranked, order = probs.sort(-1)
    return _nucleus(probs, ranked.cumsum(-1) - ranked < p, order, ranked)


def topp_not_sorted(probs, p):
    kept = probs * (probs.cumsum(-1) - probs < p)
    return kept / kept.sum(-1, keepdim=True)


def topp_single_threshold(probs, p):
    kept = probs.where(probs >= 1 - p, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def topp_share_of_the_largest(probs, p):
    kept = probs.where(probs >= p * probs.amax(-1, keepdim=True), 0.0)
    return kept / kept.sum(-1, keepdim=True)


def topp_mask_in_rank_order(probs, p):
    ranked = probs.sort(-1, descending=True).values
    kept = probs * (ranked.cumsum(-1) - ranked < p)
    return kept / kept.sum(-1, keepdim=True)


def topp_gathered_back(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    kept = ranked * (ranked.cumsum(-1) - ranked < p)
    return (kept / kept.sum(-1, keepdim=True)).gather(-1, order)


def topp_the_other_share(probs, p):
    ranked, order = probs.sort(-1, descending=True)
    return _nucleus(probs, ranked.cumsum(-1) - ranked < 1 - p, order, ranked)


def _grown(log_probs_fn, beams):
    return [([*tokens, t], score + lp) for tokens, score in beams for t, lp in enumerate(log_probs_fn(tokens).tolist())]


def _best(beams, n):
    return sorted(beams, key=lambda beam: -beam[1])[:n]


def _beams(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        beams = _best(_grown(log_probs_fn, beams), n_beams)
    return beams


def beam_greedy(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        beams = _best(_grown(log_probs_fn, beams), 1)
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


def beam_length_normalised(log_probs_fn, start, n_beams, n_steps):
    return [(tokens, score / n_steps) for tokens, score in _beams(log_probs_fn, start, n_beams, n_steps)]


def beam_worst_first(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0)]
    for _ in range(n_steps):
        beams = sorted(_grown(log_probs_fn, beams), key=lambda beam: beam[1])[-n_beams:]
    return beams


def beam_copies_of_the_start(log_probs_fn, start, n_beams, n_steps):
    beams = [(list(start), 0.0) for _ in range(n_beams)]
    for _ in range(n_steps):
        beams = _best(_grown(log_probs_fn, beams), n_beams)
    return beams


def beam_sees_the_last_token(log_probs_fn, start, n_beams, n_steps):
    return _beams(lambda tokens: log_probs_fn(tokens[-1:]), start, n_beams, n_steps)


def beam_one_step_short(log_probs_fn, start, n_beams, n_steps):
    return _beams(log_probs_fn, start, n_beams, n_steps - 1)


def beam_greedy_after_the_first(log_probs_fn, start, n_beams, n_steps):
    beams = _best(_grown(log_probs_fn, [(list(start), 0.0)]), n_beams)
    for _ in range(n_steps - 1):
        beams = [_best(_grown(log_probs_fn, [beam]), 1)[0] for beam in beams]
    return _best(beams, n_beams)


def beam_adds_probabilities(log_probs_fn, start, n_beams, n_steps):
    return _beams(lambda tokens: log_probs_fn(tokens).exp(), start, n_beams, n_steps)


def beam_only_the_best(log_probs_fn, start, n_beams, n_steps):
    return _beams(log_probs_fn, start, n_beams, n_steps)[0]


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


def _all(prefix):
    return [f for name, f in globals().items() if name.startswith(prefix) and callable(f)]


WRONG = {
    "softmax": _all("softmax_"),
    "cross_entropy": _all("cross_"),
    "rms_norm": _all("rms_"),
    "layer_norm": _all("layer_"),
    "count_parameters": _all("counted_"),
    "tied_logits": _all("tied_"),
    "init_weights": _all("init_"),
    "next_token_pairs": _all("pairs_"),
    "random_windows": _all("windows_"),
    "adamw_step": _all("adamw_"),
    "warmup_cosine": _all("cosine_"),
    "clip_gradients": _all("clip_"),
    "apply_temperature": _all("temperature_"),
    "top_k_probs": _all("topk_"),
    "top_p_probs": _all("topp_"),
    "beam_search": _all("beam_"),
}
