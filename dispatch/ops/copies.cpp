// Copies to, from and within the device, and the read of one value.

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "dispatch/device/native_device.h"
#include "dispatch/exec/failures.h"
#include "dispatch/exec/replay.h"
#include "dispatch/ops/read.h"
#include "dispatch/ops/resize.h"
#include "dispatch/window/bounds.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

bool on_shark(const at::Tensor& tensor) { return tensor.device().type() == kShark; }

at::Tensor native_over(const at::Tensor& tensor) {
  DeviceStorage& storage = device_storage(tensor);
  check_readable(storage);
  check_bounds(tensor, storage);
  at::Tensor native = native_tensor(storage.native().storage, tensor.sizes(), tensor.strides(),
                                    tensor.storage_offset(), tensor.scalar_type());
  native._set_conj(tensor.is_conj());
  native._set_neg(tensor.is_neg());
  return native;
}

// The tensor is all of a storage to which nothing was ever recorded: memory can still be given to
// it on this thread.
bool is_untouched(const at::Tensor& tensor) {
  const DeviceStorage& storage = device_storage(tensor);
  return storage.window_serial == 0 && storage.state == StorageState::unwritten &&
         tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == storage.nbytes;
}

// Gives an untouched tensor its content. `non_blocking` as of Tensor.copy_.
void fill_untouched(const at::Tensor& tensor, const at::Tensor& host, bool non_blocking) {
  DeviceStorage& storage = device_storage(tensor);
  at::Tensor native = native_over(tensor);
  {
    ReplayScope scope;
    native.copy_(host, non_blocking);
  }
  storage.state = StorageState::written;
}

// From a tensor of the CPU, or of the native device. The program may change it as soon as the copy
// returns, so its content is taken now.
void copy_from_native(const at::Tensor& self, const at::Tensor& host, bool non_blocking) {
  if (is_untouched(self)) {
    fill_untouched(self, host, non_blocking);
    return;
  }
  const at::DimVector strides = host.is_non_overlapping_and_dense()
                                    ? at::DimVector(host.strides())
                                    : c10::contiguous_strides(host.sizes());
  at::Tensor snapshot = make_device_tensor(host.sizes(), strides, host.scalar_type());
  fill_untouched(snapshot, host, non_blocking);
  Recorder::instance().count_host_bytes(snapshot.nbytes());
  self.copy_(snapshot);
}

// The checks that the native copy would make, now, at the user's line.
void check_copy(const at::Tensor& self, const at::Tensor& src) {
  at::TensorIteratorConfig()
      .set_check_mem_overlap(true)
      .add_output(self)
      .add_const_input(src)
      .resize_outputs(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .build();
}

void copy_within(const at::Tensor& self, const at::Tensor& src) {
  static OpInfo& op = find_op_info("aten::copy_");
  const c10::IValue args[]{self, src, false};
  Recorder::instance().record(op, args, {});
}

// Then there is nothing to copy, nor anything to check.
bool is_same_data(const at::Tensor& self, const at::Tensor& src) {
  return self.is_alias_of(src) && self.storage_offset() == src.storage_offset() &&
         self.sizes() == src.sizes() && self.strides() == src.strides() &&
         self.scalar_type() == src.scalar_type() && self.is_conj() == src.is_conj() &&
         self.is_neg() == src.is_neg();
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.defined(), "self is undefined");
  TORCH_CHECK(src.defined(), "src is undefined");
  if (is_same_data(self, src)) {
    return self;
  }
  TORCH_CHECK(!self._is_zerotensor(),
              "ZeroTensors are immutable. Please materialize the tensor "
              "using `.clone()`, if you want a mutable zero tensor.");
  if (src._is_zerotensor()) {
    return self.zero_();
  }
  if (!on_shark(src)) {
    TORCH_CHECK(src.is_cpu() || src.device() == native_device(),
                "[shark] expected a copy from the CPU or the shark "
                "device, got a source on ",
                src.device());
    check_copy(self, src);
    copy_from_native(self, src, non_blocking);
  } else if (!on_shark(self)) {
    const at::Tensor native = read_native(src);
    const NativeStreamScope stream;
    self.copy_(native, non_blocking);
  } else {
    check_copy(self, src);
    copy_within(self, src);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor target = dst;
  return copy_(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::Tensor target = dst.resize_(self.sizes());
  return copy_(target, self, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const at::Tensor native = read_native(self);
  const NativeStreamScope stream;
  return at::_local_scalar_dense(native);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

}  // namespace

at::Tensor read_native(const at::Tensor& tensor) {
  Recorder::instance().synchronize();
  return native_over(tensor);
}

}  // namespace torch_shark
