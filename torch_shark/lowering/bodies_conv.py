"""Gradients of convolutions."""

from __future__ import annotations

import torch

from torch_shark.lowering.bodies import body

Tensor = torch.Tensor


@body("convolution_backward")
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of a convolution; those of a transposed one by the convolution that it transposes.

    The transposed one gives the gradient, by its input, of that convolution. So its own gradient by
    the input is the convolution, and by the weight the convolution's with the tensors exchanged.
    """
    backward = torch.ops.aten.convolution_backward
    shape = (stride, padding, dilation, False, [0] * len(stride), groups)
    if not transposed:
        gradients: tuple[Tensor | None, ...] = backward(
            grad_output, input, weight, bias_sizes, *shape, output_mask
        )
        return gradients
    by_input, by_weight, by_bias = output_mask
    only_weight = [False, True, False]
    return (
        torch.ops.aten.convolution(grad_output, weight, None, *shape) if by_input else None,
        backward(input, grad_output, weight, None, *shape, only_weight)[1] if by_weight else None,
        grad_output.sum([d for d in range(grad_output.dim()) if d != 1]) if by_bias else None,
    )
