#include "csrc_py/gil.h"

#include "csrc_py/bindings.h"
#include "dispatch/exec/blocking.h"

namespace torch_shark {
namespace {

// Of a thread that is not of Python's making.
class ThreadState {
 public:
  ThreadState() {
    if (PyGILState_GetThisThreadState() == nullptr) {
      gil_ = PyGILState_Ensure();
      state_ = PyEval_SaveThread();
    }
  }
  ~ThreadState() {
    if (state_ != nullptr && Py_IsInitialized()) {
      PyEval_RestoreThread(state_);
      PyGILState_Release(gil_);
    }
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

 private:
  PyThreadState* state_ = nullptr;
  PyGILState_STATE gil_{};
};

void* release_if_held() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

void acquire(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

}  // namespace

GilScope::ThreadStateIsKept::ThreadStateIsKept() { thread_local const ThreadState state; }

std::shared_ptr<PyObject> keep(pybind11::object object) {
  return {object.release().ptr(), [](PyObject* kept) {
            if (Py_IsInitialized()) {
              const GilScope gil;
              Py_DECREF(kept);
            }
          }};
}

void install_gil_hooks() { set_blocking_hooks({&release_if_held, &acquire}); }

}  // namespace torch_shark
