#include "csrc_py/gil.h"

#include "csrc_py/bindings.h"
#include "dispatch/exec/blocking.h"

namespace torch_shark {
namespace {

void* release_if_held() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

void acquire(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

}  // namespace

std::shared_ptr<PyObject> keep(pybind11::object object) {
  return {object.release().ptr(), [](PyObject* kept) {
            if (Py_IsInitialized()) {
              pybind11::gil_scoped_acquire gil;
              Py_DECREF(kept);
            }
          }};
}

void install_gil_hooks() { set_blocking_hooks({&release_if_held, &acquire}); }

}  // namespace torch_shark
