#pragma once

namespace torch_shark {

// Whether `data` lies in memory that `pin_memory()` allocated for this device.
bool is_pinned(const void* data);

}  // namespace torch_shark
