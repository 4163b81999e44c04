"""Attention as a softmax between two products.

In regions its weights are exponents, and their sum divides what the second product gives. Kernels
that give both exponents and sums take minutes to compile for Vulkan, or do not.
"""

from __future__ import annotations

import math

import torch

from torch_shark.lowering.bodies_nn import attention_scores, is_not_later

Tensor = torch.Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax attention over [B, H, L, E]; returns the output and logsumexp [B, H, L] in float32.

    A row in which every key is masked gives zeros, as the CPU's kernel does.
    """
    compute = torch.promote_types(query.dtype, torch.float32)
    scores = attention_scores(query.to(compute), key.to(compute), is_causal, attn_mask, scale)
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:
        seen = attn_mask if attn_mask.dtype == torch.bool else attn_mask != -math.inf
        if is_causal:
            seen = seen & is_not_later(query, key)
        weights = torch.where(seen.any(-1, keepdim=True), weights, 0.0)
    output = torch.matmul(weights, value.to(compute))
    return output.to(query.dtype), torch.logsumexp(scores, -1)
