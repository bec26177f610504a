"""Lesson 17: right variants of its exercises, and mistakes."""

import torch
from torch.nn.functional import logsigmoid, softplus

from catalogue import named
from tinylm_lib import rewards as library


def weighted(picked):
    """A loss of what is written: minus some mean of log-probability times advantage."""
    return lambda log_probs, advantages, mask: -picked(log_probs, advantages.detach()[:, None], mask)


def gradient_by_selection(log_probs, advantages, mask):
    of_each_token = advantages.detach().unsqueeze(1).expand_as(log_probs)
    return -(log_probs[mask] * of_each_token[mask]).mean()


def gradient_by_einsum(log_probs, advantages, mask):
    return -torch.einsum("bt,b,bt->", log_probs, advantages.detach(), mask.to(log_probs.dtype)) / mask.sum()


def gradient_by_loops(log_probs, advantages, mask):
    total, n = 0.0, 0
    for row, advantage, written in zip(log_probs, advantages.tolist(), mask.tolist(), strict=True):
        for log_prob, is_written in zip(row, written, strict=True):
            if is_written:
                total, n = total - advantage * log_prob, n + 1
    return total / n


def gradient_without_grad(log_probs, advantages, mask):
    with torch.no_grad():
        weights = advantages[:, None] * mask / mask.sum()
    return (-weights * log_probs).sum()


def gradient_with_a_live_reward(log_probs, advantages, mask):
    return -(log_probs * advantages[:, None])[mask].mean()


def gradient_by_probabilities(log_probs, advantages, mask):
    return -(log_probs.exp() * advantages.detach()[:, None])[mask].mean()


def gradient_frozen(log_probs, advantages, mask):
    return -(log_probs.detach() * advantages[:, None])[mask].mean()


def gradient_of_the_mean(log_probs, advantages, mask):
    return -log_probs[mask].mean() * advantages.detach().mean()


def gradient_of_the_good(log_probs, advantages, mask):
    return -(log_probs * advantages.detach().clamp(min=0)[:, None])[mask].mean()


def gradient_of_whole_texts(log_probs, advantages, mask):
    return -(advantages.detach() * (log_probs * mask).sum(1)).mean()


def gradient_text_by_text(log_probs, advantages, mask):
    return -(advantages.detach() * (log_probs * mask).sum(1) / mask.sum(1)).mean()


def gradient_in_a_list(log_probs, advantages, mask):
    parts = [-(row[written] * a).mean() for row, written, a in zip(log_probs, mask, advantages.tolist(), strict=True)]
    return sum(parts) / len(parts)


def gradient_centred_again(log_probs, advantages, mask):
    centred = advantages.detach() - advantages.detach().mean()
    return -(log_probs * centred[:, None])[mask].mean()


def gradient_of_a_ratio(log_probs, advantages, mask):
    """PPO's first step: the right gradient, another value."""
    return -((log_probs - log_probs.detach()).exp() * advantages.detach()[:, None])[mask].mean()


def gradient_normalised(log_probs, advantages, mask):
    scaled = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).detach()
    return -(log_probs * scaled[:, None])[mask].mean()


def gradient_by_weights(log_probs, advantages, mask):
    return -(log_probs * mask * advantages.data.unsqueeze(-1)).sum() / (mask.sum() + 1e-8)


def kl_by_selection(log_probs, reference, mask):
    ratio = (reference - log_probs)[mask]
    return (ratio.exp() - ratio - 1).mean()


def kl_by_expm1(log_probs, reference, mask):
    d = log_probs - reference
    return ((torch.expm1(-d) + d) * mask).sum() / mask.sum()


def kl_by_where(log_probs, reference, mask):
    q_over_p = torch.exp(reference) / torch.exp(log_probs)
    each = q_over_p - q_over_p.log() - 1
    return each.where(mask, 0).sum() / mask.count_nonzero()


def kl_by_rows(log_probs, reference, mask):
    rows = [
        (r[m] - p[m]).exp().sum() - (r[m] - p[m]).sum() - m.sum()
        for p, r, m in zip(log_probs, reference, mask, strict=True)
    ]
    return sum(rows) / mask.sum()


def kl_frozen(log_probs, reference, mask):
    ratio = reference.detach() - log_probs
    return (ratio.exp() - ratio - 1)[mask].mean()


def kl_without_grad(log_probs, reference, mask):
    with torch.no_grad():
        frozen = reference.clone()
    d = frozen.sub(log_probs).masked_select(mask)
    return d.expm1().sub(d).sum() / d.numel()


def kl_with_a_safe_range(log_probs, reference, mask):
    d = (reference - log_probs).clamp(-20, 20)
    return ((d.exp() - d - 1) * mask).sum() / mask.sum()


def kl_clamped(log_probs, reference, mask):
    d = (reference - log_probs).clamp(-1, 1)
    return (d.exp() - d - 1)[mask].mean()


def kl_model_frozen(log_probs, reference, mask):
    d = reference - log_probs.detach()
    return (d.exp() - d - 1)[mask].mean()


def kl_plain(log_probs, reference, mask):
    return (log_probs - reference)[mask].mean()


def kl_with_probabilities(log_probs, reference, mask):
    return (log_probs.exp() * (log_probs - reference))[mask].mean()


def kl_the_other_way(log_probs, reference, mask):
    d = (log_probs - reference)[mask]
    return (d.exp() - d - 1).mean()


def kl_half_square(log_probs, reference, mask):
    return (0.5 * (log_probs - reference) ** 2)[mask].mean()


def kl_plus_d(log_probs, reference, mask):
    d = (reference - log_probs)[mask]
    return (d.exp() + d - 1).mean()


def kl_per_text(log_probs, reference, mask):
    d = reference - log_probs
    return (((d.exp() - d - 1) * mask).sum(1) / mask.sum(1)).mean()


def kl_ratio_only(log_probs, reference, mask):
    return (reference - log_probs)[mask].exp().mean()


def kl_everything(log_probs, reference, mask):
    d = reference - log_probs
    return (d.exp() - d - 1).mean()


def dpo_by_softplus(chosen, rejected, reference_chosen, reference_rejected, beta):
    margin = (chosen - rejected) - (reference_chosen - reference_rejected)
    return softplus(-beta * margin).mean()


def dpo_by_cross_entropy(chosen, rejected, reference_chosen, reference_rejected, beta):
    two = beta * torch.stack([chosen - reference_chosen, rejected - reference_rejected], dim=1)
    return -two.log_softmax(1)[:, 0].mean()


def dpo_by_logsumexp(chosen, rejected, reference_chosen, reference_rejected, beta):
    good, bad = beta * (chosen - reference_chosen), beta * (rejected - reference_rejected)
    return (torch.logaddexp(good, bad) - good).sum() / len(good)


def dpo_one_by_one(chosen, rejected, reference_chosen, reference_rejected, beta):
    margins = chosen - reference_chosen - rejected + reference_rejected
    return -sum(logsigmoid(beta * margin) for margin in margins) / len(margins)


def dpo_frozen(chosen, rejected, reference_chosen, reference_rejected, beta):
    margin = chosen - rejected - (reference_chosen - reference_rejected).detach()
    return -logsigmoid(beta * margin).mean()


def dpo_without_grad(chosen, rejected, reference_chosen, reference_rejected, beta):
    with torch.no_grad():
        by_reference = reference_chosen - reference_rejected
    return softplus(beta * (by_reference - (chosen - rejected))).mean()


def dpo_clamped(chosen, rejected, reference_chosen, reference_rejected, beta):
    margin = ((chosen - rejected) - (reference_chosen - reference_rejected)).clamp(-20, 20)
    return -logsigmoid(beta * margin).mean()


def dpo_small_added(chosen, rejected, reference_chosen, reference_rejected, beta):
    margin = (chosen - rejected) - (reference_chosen - reference_rejected)
    return -(torch.sigmoid(beta * margin) + 1e-8).log().mean()


def dpo_beta_on_one_side(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -logsigmoid(beta * (chosen - reference_chosen) - (rejected - reference_rejected)).mean()


def dpo_model_frozen(chosen, rejected, reference_chosen, reference_rejected, beta):
    margin = (chosen - rejected).detach() - (reference_chosen - reference_rejected)
    return -logsigmoid(beta * margin).mean()


def dpo_naive(chosen, rejected, reference_chosen, reference_rejected, beta):
    margin = (chosen - rejected) - (reference_chosen - reference_rejected)
    return -torch.log(torch.sigmoid(beta * margin)).mean()


def dpo_without_reference(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -logsigmoid(beta * (chosen - rejected)).mean()


def dpo_beta_in_front(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -beta * logsigmoid((chosen - reference_chosen) - (rejected - reference_rejected)).mean()


def dpo_swapped(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -logsigmoid(beta * ((rejected - reference_rejected) - (chosen - reference_chosen))).mean()


def dpo_crossed(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -logsigmoid(beta * ((chosen - reference_rejected) - (rejected - reference_chosen))).mean()


def dpo_no_log(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -torch.sigmoid(beta * ((chosen - rejected) - (reference_chosen - reference_rejected))).mean()


def dpo_of_the_mean(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -logsigmoid(beta * ((chosen - rejected) - (reference_chosen - reference_rejected)).mean())


def dpo_each(chosen, rejected, reference_chosen, reference_rejected, beta):
    return -logsigmoid(beta * ((chosen - rejected) - (reference_chosen - reference_rejected)))


RIGHT = {
    "policy_gradient_loss": named(
        gradient_by_selection, gradient_by_einsum, gradient_by_loops, gradient_without_grad,
        gradient_by_weights,
    ),
    "kl_penalty": named(
        kl_by_selection, kl_by_expm1, kl_by_where, kl_by_rows, kl_frozen, kl_without_grad, kl_with_a_safe_range,
    ),
    "dpo_loss": named(
        dpo_by_softplus, dpo_by_cross_entropy, dpo_by_logsumexp, dpo_one_by_one, dpo_frozen, dpo_without_grad,
    ),
}  # fmt: skip
WRONG = {
    "policy_gradient_loss": named(
        gradient_with_a_live_reward, gradient_by_probabilities, gradient_frozen, gradient_of_the_mean,
        gradient_of_the_good, gradient_of_whole_texts, gradient_text_by_text, gradient_in_a_list,
        gradient_centred_again, gradient_of_a_ratio, gradient_normalised,
        gradient_plus=lambda log_probs, advantages, mask: (log_probs * advantages.detach()[:, None])[mask].mean(),
        gradient_everywhere=weighted(lambda log_probs, a, mask: (log_probs * a).mean()),
        gradient_zeros_counted=weighted(lambda log_probs, a, mask: (log_probs * a * mask).mean()),
        gradient_summed=weighted(lambda log_probs, a, mask: (log_probs * a)[mask].sum()),
        gradient_without_reward=weighted(lambda log_probs, a, mask: log_probs[mask].mean()),
        gradient_of_the_prompt=weighted(lambda log_probs, a, mask: (log_probs * a)[~mask].mean()),
        gradient_unreduced=weighted(lambda log_probs, a, mask: log_probs * a * mask),
    ),
    "kl_penalty": named(
        kl_plain, kl_with_probabilities, kl_the_other_way, kl_half_square, kl_plus_d, kl_per_text, kl_ratio_only,
        kl_everything, kl_clamped, kl_model_frozen,
        kl_no_one=lambda p, r, mask: ((r - p).exp() - (r - p))[mask].mean(),
        kl_summed=lambda p, r, mask: ((r - p).exp() - (r - p) - 1)[mask].sum(),
        kl_absolute=lambda p, r, mask: (p - r).abs()[mask].mean(),
        kl_negative=lambda p, r, mask: -((r - p).exp() - (r - p) - 1)[mask].mean(),
    ),
    "dpo_loss": named(
        dpo_naive, dpo_without_reference, dpo_beta_in_front, dpo_swapped, dpo_crossed, dpo_no_log, dpo_of_the_mean,
        dpo_each, dpo_clamped, dpo_small_added, dpo_beta_on_one_side, dpo_model_frozen,
        dpo_plus=lambda c, r, rc, rr, beta: logsigmoid(beta * ((c - r) - (rc - rr))).mean(),
        dpo_added=lambda c, r, rc, rr, beta: -logsigmoid(beta * ((c - r) + (rc - rr))).mean(),
        dpo_divided=lambda c, r, rc, rr, beta: -logsigmoid(((c - r) - (rc - rr)) / beta).mean(),
        dpo_summed=lambda c, r, rc, rr, beta: -logsigmoid(beta * ((c - r) - (rc - rr))).sum(),
        dpo_hinge=lambda c, r, rc, rr, beta: (1 - beta * ((c - r) - (rc - rr))).clamp(min=0).mean(),
    ),
}  # fmt: skip
LIBRARY = {
    "kl_penalty": library.kl_penalty,
    "dpo_loss": library.dpo_loss,
}
