"""Lesson 04: right variants of its exercises, and the library's own."""

import torch
import torch.nn.functional as F

from tinylm_lib import layers


def rms_of_torch(x, weight, eps):
    return F.rms_norm(
        x.float() if x.dtype != torch.float64 else x,
        x.shape[-1:],
        weight.to(torch.promote_types(weight.dtype, torch.float32)),
        eps,
    ).to(x.dtype)


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


RIGHT = {
    "rms_norm": [rms_of_torch, rms_by_rsqrt, rms_cast_before_the_gain, rms_by_length],
    "layer_norm": [layer_of_torch, layer_by_var, layer_by_two_means, layer_by_std],
}
LIBRARY = {
    "rms_norm": lambda x, weight, eps: _with(layers.RMSNorm, x, eps, weight=weight),
    "layer_norm": lambda x, weight, bias, eps: _with(layers.LayerNorm, x, eps, weight=weight, bias=bias),
}


def _with(kind, x, eps, **parameters):
    """The library's layer with these parameters."""
    layer = kind(x.shape[-1], eps=eps)
    return torch.func.functional_call(layer, parameters, (x,))
