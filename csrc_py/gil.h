#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace torch_shark {

// Holds the GIL. A thread that is not of Python's making keeps its Python state from the first of
// them until it ends: one for each would be mapped and unmapped every time.
class GilScope {
  struct ThreadStateIsKept {
    ThreadStateIsKept();
  };
  ThreadStateIsKept kept_;  // before the GIL is taken
  pybind11::gil_scoped_acquire gil_;
};

// Keeps a Python object for code that knows no Python: dropped with the GIL, from any thread, and
// left alone once the interpreter is gone.
std::shared_ptr<PyObject> keep(pybind11::object object);

}  // namespace torch_shark
