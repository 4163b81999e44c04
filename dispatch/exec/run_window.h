#pragma once

#include <exception>

#include "dispatch/window/window.h"

namespace torch_shark {

// Runs all of a window, by its plan under the iree policy, else by native replay, and releases each
// entry when it is done. An operator that raises fails the storages that it would have written, and
// so, in turn, whatever reads them; the rest goes on. Returns the first error, naming its operator.
std::exception_ptr run_window(Window& window);

// The error that run_window returned is raised now. Until then nothing is computed from a storage
// that kept an older content because a write to it failed: a training step without gradients then
// changes no parameter. Call it while no window runs.
void forget_stale_storages();

// Raises if the storage's content was never computed because its operator failed.
void check_readable(const DeviceStorage& storage);

}  // namespace torch_shark
