#pragma once

#include <ATen/core/Tensor.h>

namespace torch_shark {

// Gives a storage another size. Bytes that both sizes have keep their content, in program order
// with what is recorded; the storage's address changes.
void resize_storage(c10::StorageImpl& storage, size_t nbytes);

// Makes a shark tensor what an operator that ran at once made of its native counterpart: geometry,
// and memory of another size.
void adopt_resized(const at::Tensor& tensor, const at::Tensor& native);

}  // namespace torch_shark
