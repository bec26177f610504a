"""Lesson 04: right variants of its exercises, mistakes, and the library's own."""

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib import layers


def rms_of_torch(x, weight, eps):
    wide = torch.promote_types(x.dtype, torch.float32)
    return F.rms_norm(x.to(wide), x.shape[-1:], weight.to(wide), eps).to(x.dtype)


def rms_by_rsqrt(x, weight, eps):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
    return (h * weight.float()).type_as(x)


def rms_cast_before_the_gain(x, weight, eps):
    h = x.to(torch.float32)
    h = h / torch.sqrt((h * h).mean(dim=-1, keepdim=True) + eps)
    return h.to(x.dtype) * weight.to(x.dtype)


def rms_by_length(x, weight, eps):
    h = x.double()
    length = torch.linalg.vector_norm(h, dim=-1, keepdim=True) ** 2 / x.shape[-1]
    return ((length + eps) ** -0.5 * h * weight).to(x.dtype)


def layer_of_torch(x, weight, bias, eps):
    wide = torch.promote_types(x.dtype, torch.float32)
    return F.layer_norm(x.to(wide), x.shape[-1:], weight.to(wide), bias.to(wide), eps).to(x.dtype)


def layer_by_var(x, weight, bias, eps):
    h = x.float()
    h = (h - h.mean(-1, keepdim=True)) * torch.rsqrt(h.var(-1, keepdim=True, unbiased=False) + eps)
    return (h * weight + bias).to(x.dtype)


def layer_by_two_means(x, weight, bias, eps):
    h = x.double()
    mean = h.mean(-1, keepdim=True)
    variance = (h * h).mean(-1, keepdim=True) - mean * mean
    return ((h - mean) / (variance.clamp(min=0) + eps).sqrt() * weight + bias).to(x.dtype)


def layer_by_std(x, weight, bias, eps):
    h = x.to(torch.float64)
    h = h - h.mean(-1, True)
    return torch.addcmul(bias.double(), h / (h.pow(2).mean(-1, True) + eps).pow(0.5), weight.double()).to(x)


def _with(kind, x, eps, **parameters):
    """The library's layer with these parameters."""
    layer = kind(x.shape[-1], eps=eps)
    return torch.func.functional_call(layer, parameters, (x,))


def _rms(x, weight, eps, dims=-1):
    z = x.float()
    return (z / torch.sqrt((z * z).mean(dims, keepdim=True) + eps) * weight).to(x.dtype)


def _layer(x, weight, bias, eps, dims=-1, unbiased=False):
    z = x.float()
    z = z - z.mean(dims, keepdim=True)
    return (z / torch.sqrt(z.var(dims, keepdim=True, unbiased=unbiased) + eps) * weight + bias).to(x.dtype)


def layer_in_half(x, weight, bias, eps):
    z = x - x.mean(-1, keepdim=True)
    return z / torch.sqrt((z * z).mean(-1, keepdim=True) + eps) * weight.to(x.dtype) + bias.to(x.dtype)


def layer_with_two_means(x, weight, bias, eps):
    z = x.float()
    mean = z.mean(-1, keepdim=True)
    spread = torch.mean(z**2, -1, keepdim=True) - mean**2
    return ((z - mean) * torch.rsqrt(spread + eps) * weight + bias).to(x.dtype)


def layer_with_frozen_statistics(x, weight, bias, eps):
    z = x.float()
    mean = z.mean(-1, keepdim=True).detach()
    spread = z.var(-1, keepdim=True, unbiased=False).detach()
    return ((z - mean) / (spread + eps).sqrt() * weight + bias).to(x.dtype)


def centred(x):
    return x.float() - x.float().mean(-1, keepdim=True)


def variance(x):
    return x.float().var(-1, keepdim=True, unbiased=False)


def mean_square(x):
    return x.float().pow(2).mean(-1, keepdim=True)


RIGHT = {
    "rms_norm": named(rms_of_torch, rms_by_rsqrt, rms_cast_before_the_gain, rms_by_length),
    "layer_norm": named(layer_of_torch, layer_by_var, layer_by_two_means, layer_by_std),
}  # fmt: skip
WRONG = {
    "rms_norm": named(
        without_eps=lambda x, weight, eps: _rms(x, weight, 0.0),
        own_eps=lambda x, weight, eps: _rms(x, weight, 1e-6),
        of_positions_too=lambda x, weight, eps: _rms(x, weight, eps, (-2, -1)),
        in_half=lambda x, weight, eps: x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight.to(x.dtype),
        stays_fp32=lambda x, weight, eps: _rms(x.float(), weight.float(), eps),
        one_plus_weight=lambda x, weight, eps: _rms(x, 1 + weight, eps),
        axis_one=lambda x, weight, eps: _rms(x, weight, eps, 1),
        eps_outside=lambda x, weight, eps: (x.float() / (mean_square(x).sqrt() + eps) * weight).to(x.dtype),
        centred=lambda x, weight, eps: _rms(centred(x), weight, eps).to(x.dtype),
        summed=lambda x, weight, eps: (x.float() / (x.shape[-1] * mean_square(x) + eps).sqrt() * weight).to(x.dtype),
        no_root=lambda x, weight, eps: (x.float() / (mean_square(x) + eps) * weight).to(x.dtype),
        plain=lambda x, weight, eps: x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) * weight,
        by_std=lambda x, weight, eps: (x.float() / (x.float().std(-1, keepdim=True) + eps) * weight).to(x.dtype),
        by_var=lambda x, weight, eps: (x.float() / (variance(x) + eps).sqrt() * weight).to(x.dtype),
        of_sizes=lambda x, weight, eps: (x.float() / (x.float().abs().mean(-1, True) + eps) * weight).to(x.dtype),
    ),
    "layer_norm": named(
        layer_in_half, layer_with_two_means, layer_with_frozen_statistics,
        sample_variance=lambda x, weight, bias, eps: _layer(x, weight, bias, eps, unbiased=True),
        without_bias=lambda x, weight, bias, eps: _layer(x, weight, 0.0, eps),
        over_positions_too=lambda x, weight, bias, eps: _layer(x, weight, bias, eps, (-2, -1)),
        over_the_batch=lambda x, weight, bias, eps: _layer(x, weight, bias, eps, 0),
        stays_fp32=lambda x, weight, bias, eps:
            F.layer_norm(x.float(), weight.shape, weight.float(), bias.float(), eps),
        eps_outside=lambda x, weight, bias, eps: (centred(x) / (variance(x).sqrt() + eps) * weight + bias).to(x.dtype),
        annotated=lambda x, weight, bias, eps:
            (centred(x) / (x.float().std(-1, keepdim=True) + eps) * weight + bias).to(x.dtype),
        not_centred=lambda x, weight, bias, eps: (x.float() / (variance(x) + eps).sqrt() * weight + bias).to(x.dtype),
        bias_first=lambda x, weight, bias, eps: ((centred(x) / (variance(x) + eps).sqrt() + bias) * weight).to(x.dtype),
        by_the_variance=lambda x, weight, bias, eps: (centred(x) / (variance(x) + eps) * weight + bias).to(x.dtype),
        rms_of_the_raw=lambda x, weight, bias, eps:
            (centred(x) / (mean_square(x) + eps).sqrt() * weight + bias).to(x.dtype),
    ),
}  # fmt: skip
LIBRARY = {
    "rms_norm": lambda x, weight, eps: _with(layers.RMSNorm, x, eps, weight=weight),
    "layer_norm": lambda x, weight, bias, eps: _with(layers.LayerNorm, x, eps, weight=weight, bias=bias),
}
