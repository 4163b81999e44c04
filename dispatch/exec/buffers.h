// The memory that compiled regions read and write.
#pragma once

#include <ATen/core/Tensor.h>

#include "dispatch/device/storage.h"
#include "dispatch/exec/plan.h"
#include "dispatch/window/pieces.h"

namespace torch_shark {

using Buffer = c10::intrusive_ptr<NativeBuffer>;

Buffer fresh(size_t nbytes);
// For a result that is to be copied to its place.
Buffer fresh_for(const Place& part);

// Whether executables can read a piece of a storage where it is. Memory that came from elsewhere
// may lie where they cannot, and so may a piece.
bool is_readable(DeviceStorage& storage, const Piece& piece);
// What a storage holds, or a piece of it, where executables can read it.
Buffer content(DeviceStorage& storage, const Piece& piece);
// A copy of what a storage holds. One that is new holds zeros from now on, as it does for regions,
// so that what no operator writes is equal in both.
Buffer copy_of(DeviceStorage& storage);

// A region's result becomes the memory of its storage, unless someone else uses the old memory too.
void give(DeviceStorage& storage, Buffer result);

// The elements of memory that holds a dtype.
at::Tensor flat(const c10::Storage& memory, c10::ScalarType dtype);
// A result that is to be copied to its place.
at::Tensor elements(const Place& part, const NativeBuffer& result);

}  // namespace torch_shark
