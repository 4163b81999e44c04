#include "csrc_py/gil.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "csrc_py/bindings.h"
#include "dispatch/exec/blocking.h"

namespace torch_shark {
namespace {

void* release_if_held() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

std::atomic<bool> parking{false};
std::atomic<int> returning{0};  // threads on their way to the GIL
std::thread::id last_thread;    // set before `parking`

void acquire(void* state) {
  ++returning;
  if (parking && std::this_thread::get_id() != last_thread) {
    --returning;
    while (true) {
      pause();
    }
  }
  PyEval_RestoreThread(static_cast<PyThreadState*>(state));
  --returning;
}

}  // namespace

void park_other_threads() {
  last_thread = std::this_thread::get_id();
  parking = true;
  const pybind11::gil_scoped_release released;
  while (returning > 0) {
    std::this_thread::yield();
  }
}

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
