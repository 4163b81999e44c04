#pragma once

#include "dispatch/window/window.h"

namespace torch_shark {

// Whether two storages of the window lie over the same memory, in part or whole, as they do where
// the program shares memory both ways or imports it twice. A plan takes storages for unrelated.
// For the executor's exclusive section.
bool has_overlaps(const Window& window);

}  // namespace torch_shark
