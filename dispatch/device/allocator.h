#pragma once

#include <c10/core/Allocator.h>

namespace torch_shark {

// The allocator registered for the shark device. Its blocks are arena addresses over storages whose
// memory comes later; the statistics it reports are the native pool's.
c10::Allocator* device_allocator();

}  // namespace torch_shark
