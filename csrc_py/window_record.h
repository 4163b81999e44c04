#pragma once

#include <pybind11/pybind11.h>

#include "dispatch/window/window.h"

namespace torch_shark {

// A window as a torch_shark.record.WindowRecord. Needs the GIL.
pybind11::object to_record(const Window& window);

}  // namespace torch_shark
