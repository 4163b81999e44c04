#pragma once

#include <exception>

#include "dispatch/window/window.h"

namespace torch_shark {

// Runs all of a window, by its plan under the iree policy, else by native replay, and releases each
// entry when it is done. An operator that raises fails the storages that it would have written, and
// so, in turn, whatever reads them; the rest goes on. Returns the first error, naming its operator.
std::exception_ptr run_window(Window& window);

}  // namespace torch_shark
