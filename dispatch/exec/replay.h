#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "dispatch/device/native_device.h"
#include "dispatch/device/native_memory.h"
#include "dispatch/window/window.h"

namespace torch_shark {

// The state of a thread while it replays operators natively: below autograd, autocast and Python
// modes whatever the thread was doing, with memory from the pool.
class ReplayScope {
 public:
  ReplayScope();

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::NoGradGuard no_grad_;
  PoolScope pool_;
  NativeStreamScope stream_;
};

// A native tensor over the memory of `ref`, which is allocated if there is none yet.
at::Tensor bind(const TensorRef& ref);

// The arguments of the call as native tensors over the storages' memory. In-place stays in place
// and aliasing stays aliasing, so there is nothing to translate.
torch::jit::Stack bind_arguments(const Entry& entry);

// Calls the operator on the native device; replaces the bound arguments on `stack` by its results.
void call_native(const Entry& entry, torch::jit::Stack& stack);

// Binds and calls, then gives the fresh results to their storages.
void replay(const Entry& entry);

}  // namespace torch_shark
