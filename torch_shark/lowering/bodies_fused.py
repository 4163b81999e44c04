"""The fused optimizers."""

from __future__ import annotations

from typing import Any

import torch

from torch_shark.lowering import bodies_pointwise as pointwise
from torch_shark.lowering.bodies import body, in_float32

Tensor = torch.Tensor
TensorList = list[Tensor]


@body("_fused_adam", "_fused_adam.tensor_lr")
def fused_adam(*args: Any) -> tuple[TensorList, ...]:
    """Return what one step of Adam changes."""
    return _adam(False, *args)


@body("_fused_adamw", "_fused_adamw.tensor_lr")
def fused_adamw(*args: Any) -> tuple[TensorList, ...]:
    """Return what one step of AdamW changes."""
    return _adam(True, *args)


def _adam(
    decoupled: bool,
    params: TensorList,
    grads: TensorList,
    means: TensorList,
    squares: TensorList,
    max_squares: TensorList,
    steps: list[Tensor],
    lr: Any,
    beta1: Any,
    beta2: Any,
    weight_decay: Any,
    eps: Any,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
) -> tuple[TensorList, ...]:
    """Adam (Kingma and Ba, algorithm 1) and AdamW, as ATen's native/cpu/FusedAdamKernel.cpp.

    What is made of numbers alone is made in double: 1 - 0.999 has few digits left in float.

    Returns the arguments that change, in their order; gradients do only if they are unscaled.
    """
    lr = lr.to(torch.float64)
    results: tuple[TensorList, ...] = ([], [], [], [], [])
    for i, (param, grad, mean, square, step) in enumerate(
        zip(params, grads, means, squares, steps, strict=True)
    ):
        if grad_scale is not None:
            grad = in_float32(torch.div, grad, grad_scale)
        unscaled = grad
        if maximize:
            grad = -grad
        new_param = param
        if decoupled:
            smaller = in_float32(torch.mul, param, 1 - lr * weight_decay)
            new_param = _unless_zero(weight_decay, param, smaller)
        else:
            grad = _unless_zero(weight_decay, grad, pointwise.add(grad, param, weight_decay))
        new_mean = in_float32(lambda m, g, new: m + (g - m) * new, mean, grad, 1 - beta1)
        new_square = in_float32(
            lambda v, g, old, new: v * old + new * g * g, square, grad, beta2, 1 - beta2
        )
        largest = pointwise.maximum(max_squares[i], new_square) if amsgrad else new_square
        turns = step.to(torch.float64)
        rate = lr / (1 - torch.pow(beta1, turns))
        scale = (1 - torch.pow(beta2, turns)).sqrt()
        new_param = in_float32(
            lambda p, m, v, rate, scale, small: p - rate * m / (v.sqrt() / scale + small),
            *[new_param, new_mean, largest],
            *[rate, scale, eps],
        )
        results[0].append(_unless(found_inf, param, new_param))
        if grad_scale is not None:
            results[1].append(_unless(found_inf, grads[i], unscaled))
        results[2].append(_unless(found_inf, mean, new_mean))
        results[3].append(_unless(found_inf, square, new_square))
        if amsgrad:
            results[4].append(_unless(found_inf, max_squares[i], largest))
    return results


@body("_fused_sgd", "_fused_sgd.tensor_lr")
def fused_sgd(
    params: TensorList,
    grads: TensorList,
    buffers: TensorList,
    weight_decay: Any,
    momentum: Any,
    lr: Any,
    dampening: Any,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
) -> tuple[TensorList, ...]:
    """SGD with momentum, as ATen's native/cpu/FusedSGDKernel.cpp."""
    results: tuple[TensorList, ...] = ([], [], [])
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        if grad_scale is not None:
            grad = in_float32(torch.div, grad, grad_scale)
        unscaled = grad
        step = -grad if maximize else grad
        step = _unless_zero(weight_decay, step, pointwise.add(step, param, weight_decay))
        if buffers:
            before = buffers[i]
            buffer = (
                step if is_first_step else pointwise.add(before * momentum, step, 1 - dampening)
            )
            step = pointwise.add(step, buffer, momentum) if nesterov else buffer
            results[2].append(_unless(found_inf, before, buffer))
        results[0].append(_unless(found_inf, param, pointwise.sub(param, step, lr)))
        if grad_scale is not None:
            results[1].append(_unless(found_inf, grads[i], unscaled))
    return results


def _unless(found_inf: Tensor | None, before: Tensor, after: Tensor) -> Tensor:
    return after if found_inf is None else torch.where(found_inf == 1, before, after)


def _unless_zero(weight_decay: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """ATen leaves a decay of zero out, which would else make NaN of an infinite parameter."""
    return torch.where(weight_decay == 0, before, after)
