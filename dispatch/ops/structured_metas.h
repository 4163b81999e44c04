// The shape functions of PyTorch's structured operators, as boxed kernels.
//
// A structured meta computes sizes, strides and dtype of an operator's result without running it
// and without Python. Called functionally it returns tensors of device `meta`; called in-place or
// `out=` it checks the given outputs (and resizes an `out`) and returns them.
//
// The table is generated at build time from the installed torch: generate_structured_metas.py.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

namespace torch_shark {

// The structured meta of an operator such as "aten::add.Tensor", "aten::add_.Tensor" or
// "aten::add.out"; nullptr if the operator is not structured. The kernel takes a stack in schema
// order (SymInt arguments may be ints or SymInts) and lives as long as the process. Thread-safe. A
// map look-up: call it once per operator, at registration.
const c10::KernelFunction* find_structured_meta(const c10::OperatorName& name);

}  // namespace torch_shark
