#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace torch_shark {

// Keeps a Python object for code that knows no Python: dropped with the GIL, from any thread, and
// left alone once the interpreter is gone.
std::shared_ptr<PyObject> keep(pybind11::object object);

}  // namespace torch_shark
