"""Attention, normalisation, losses, reductions and copies of views."""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_shark.lowering.bodies import body
from torch_shark.lowering.operators import find_operator

Tensor = torch.Tensor


@body("addbmm")
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Return beta * self + alpha * (the sum of the products batch1[i] @ batch2[i])."""
    rows = batch1.transpose(0, 1).flatten(1)
    return torch.addmm(self, rows, batch2.flatten(0, 1), beta=beta, alpha=alpha)


@body("addmv")
def addmv(self: Tensor, mat: Tensor, vec: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Return beta * self + alpha * mat @ vec."""
    columns = self.expand(mat.shape[0]).unsqueeze(1)
    return torch.addmm(columns, mat, vec.unsqueeze(1), beta=beta, alpha=alpha).squeeze(1)


@body("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax attention over [B, H, L, E]; returns the output and logsumexp [B, H, L] in float32.

    A row in which every key is masked gives zeros for both, as the CPU kernel does.
    """
    compute = torch.promote_types(query.dtype, torch.float32)
    scores = attention_scores(query.to(compute), key.to(compute), is_causal, attn_mask, scale)
    peak = scores.amax(-1, keepdim=True)
    peak = torch.where(peak == -math.inf, 0.0, peak)
    weights = torch.exp(scores - peak)
    total = weights.sum(-1, keepdim=True)
    total = torch.where(total == 0, 1.0, total)
    output = torch.matmul(weights, value.to(compute)) / total
    logsumexp = (peak + torch.log(total)).squeeze(-1)
    return output.to(query.dtype), logsumexp


@body("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of softmax attention, its weights made anew from the saved logsumexp.

    Of a softmax with weights w and their gradient g, a score's gradient is w * (g - sum(w * g));
    the sum is that of the output times its own gradient.
    """
    compute = torch.promote_types(query.dtype, torch.float32)
    q, k, v, given = (x.to(compute) for x in (query, key, value, grad_out))
    scores = attention_scores(q, k, is_causal, attn_mask, scale)
    weights = torch.exp(scores - logsumexp.to(compute).unsqueeze(-1))
    share = (given * out.to(compute)).sum(-1, keepdim=True)
    grad_scores = weights * (torch.matmul(given, v.transpose(-1, -2)) - share)
    grad_scores = grad_scores * _attention_scale(query, scale)
    return (
        torch.matmul(grad_scores, k).to(query.dtype),
        torch.matmul(grad_scores.transpose(-1, -2), q).to(key.dtype),
        torch.matmul(weights.transpose(-1, -2), given).to(value.dtype),
    )


def _attention_scale(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale


def attention_scores(
    query: Tensor, key: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Return what softmax is taken of: minus infinity where a query may not see a key."""
    scores = torch.matmul(query, key.transpose(-1, -2)) * _attention_scale(query, scale)
    if mask is not None:
        scores = (
            torch.where(mask, scores, -math.inf)
            if mask.dtype == torch.bool
            else scores + mask.to(scores.dtype)
        )
    return torch.where(is_not_later(query, key), scores, -math.inf) if is_causal else scores


def is_not_later(query: Tensor, key: Tensor) -> Tensor:
    """Return which keys each query may see where none sees a later one, [L, S]."""
    rows = torch.arange(query.shape[-2]).unsqueeze(1)
    return torch.arange(key.shape[-2]) <= rows


@body("native_batch_norm")
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Batch norm over [N, C, ...]; in training also returns the new running statistics."""
    dims = [d for d in range(input.dim()) if d != 1]
    shape = [1, input.shape[1]] + [1] * (input.dim() - 2)
    compute = torch.promote_types(input.dtype, torch.float32)
    x = input.to(compute)
    updated: list[Tensor] = []
    if training:
        count = input.numel() // input.shape[1]
        mean = x.mean(dims)
        variance = ((x - mean.reshape(shape)) ** 2).mean(dims)
        invstd = torch.rsqrt(variance + eps)
        saved = [mean, invstd]
        if running_mean is not None and running_var is not None:
            unbiased = variance * (count / max(count - 1, 1))
            updated = [
                (new * momentum + old * (1 - momentum)).to(old.dtype)
                for old, new in ((running_mean, mean), (running_var, unbiased))
            ]
    else:
        assert running_mean is not None
        assert running_var is not None
        mean = running_mean.to(compute)
        invstd = torch.rsqrt(running_var.to(compute) + eps)
        saved = [input.new_zeros(0), input.new_zeros(0)]
    # As one product and one sum, as native/cpu/batch_norm_kernel.cpp does.
    scale = invstd if weight is None else invstd * weight.to(compute)
    shift = -mean * scale if bias is None else bias.to(compute) - mean * scale
    output = x * scale.reshape(shape) + shift.reshape(shape)
    return (output.to(input.dtype), *saved, *updated)


@body("max_pool2d_with_indices_backward")
def max_pool2d_backward(
    grad: Tensor,
    self: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """The gradient of a max pool whose windows tile its input.

    Every element of a window is compared with the window's index: a scatter would need the
    indices of all elements on IREE's stack.
    """
    height, width = self.shape[-2:]
    down, right = kernel_size[0], kernel_size[-1]
    rows = torch.arange(grad.shape[-2] * down).reshape(-1, down, 1, 1)
    columns = torch.arange(grad.shape[-1] * right).reshape(-1, right)
    chosen = indices.unsqueeze(-1).unsqueeze(-3) == rows * width + columns
    spread = torch.where(chosen, grad.unsqueeze(-1).unsqueeze(-3), 0.0)
    spread = spread.flatten(-4, -3).flatten(-2, -1)
    rest = [0, width - spread.shape[-1], 0, height - spread.shape[-2]]
    return torch.constant_pad_nd(spread, rest)


@body("nll_loss_forward")
def nll_loss_forward(
    scores: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Negative log likelihood of [N, C] or [C]; returns the loss and the total weight."""
    picked, weights = _class_weights(scores, target, weight, ignore_index)
    losses = -picked * weights
    total = weights.sum()
    if reduction == 1:
        return losses.sum() / total, total
    if reduction == 2:
        return losses.sum(), total
    return losses, total if scores.dim() == 1 else torch.zeros_like(total)


@body("nll_loss_backward")
def nll_loss_backward(
    grad: Tensor,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """The gradient of `nll_loss_forward` with respect to the scores."""
    _, weights = _class_weights(scores, target, weight, ignore_index)
    share = -weights * (grad / total_weight if reduction == 1 else grad)
    classes = torch.arange(scores.shape[-1])
    return torch.where(classes == target.unsqueeze(-1), share.unsqueeze(-1), 0.0).to(scores.dtype)


def _class_weights(
    scores: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Each row's score of its target, and its weight, which is 0 where the target is ignored."""
    safe = torch.clamp(target, 0, scores.shape[-1] - 1)
    picked = torch.gather(scores, -1, safe.unsqueeze(-1)).squeeze(-1)
    weights = (
        torch.ones_like(picked)
        if weight is None
        else torch.index_select(weight, 0, safe.reshape(-1)).reshape(safe.shape)
    )
    kept = target != ignore_index
    zero = torch.zeros_like(picked)
    return torch.where(kept, picked, zero), torch.where(kept, weights, zero)


@body("embedding_dense_backward")
def embedding_dense_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Sums each row of the gradient into the row of its index; `padding_idx` gets none."""
    rows = indices.reshape(-1)
    values = grad.reshape(rows.shape[0], grad.shape[-1])
    compute = torch.promote_types(grad.dtype, torch.float32)
    values = torch.where((rows == padding_idx).unsqueeze(1), 0.0, values.to(compute))
    total = torch.zeros((num_weights, grad.shape[-1]), dtype=compute)
    return total.index_put([rows], values, accumulate=True).to(grad.dtype)


@body("clone")
def clone(self: Tensor, memory_format: Any = None) -> Tensor:
    """Return self: a value in a graph has no memory to copy."""
    return self


@body("alias_copy", "detach_copy", "lift_fresh_copy", "lift_fresh")
def alias_copy(self: Tensor) -> Tensor:
    """Return self: a value in a graph has no memory to copy."""
    return self


def _register_view_copy(name: str) -> None:
    packet, _, overload = name.partition(".")
    view = find_operator("aten::" + name)
    assert view is not None
    suffix = f".{overload}" if overload else ""

    @body(f"{packet}_copy{suffix}")
    def view_copy(*args: Any) -> Any:
        return view(*args)


for _name in [
    "view",
    "expand",
    "permute",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "unsqueeze",
    "select.int",
    "slice.Tensor",
    "t",
    "transpose.int",
    "diagonal",
    "unbind.int",
    "split.Tensor",
    "split_with_sizes",
    "unfold",
]:
    _register_view_copy(_name)
