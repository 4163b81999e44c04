#include <torch/csrc/utils/pybind.h>

#include "csrc_py/bindings.h"
#include "dispatch/config.h"
#include "dispatch/device/generator.h"
#include "dispatch/device/native_device.h"
#include "dispatch/device/process.h"
#include "dispatch/device/stream.h"
#include "dispatch/exec/executor.h"
#include "dispatch/ops/register.h"
#include "dispatch/ops/share.h"
#include "dispatch/window/recorder.h"

namespace py = pybind11;

namespace torch_shark {

void init_device(py::module_& m) {
  m.def(
      "register_operators",
      [](const std::string& native) {
        choose_native_device(c10::Device(native).type());
        register_operators();
      },
      "Have operators recorded for a native device; to be called once.");
  m.def("settle", [] { Recorder::instance().synchronize(); }, "Run all that is recorded.");
  m.def("synchronize", &synchronize_device, "Run all that is recorded, and wait for its end.");
  m.def("flush_optimizer", [] { Recorder::instance().flush(FlushReason::optimizer); });
  m.def("flush_graph", [] { Recorder::instance().flush(FlushReason::graph); });
  m.def(
      "stop", [] { Executor::instance().stop(); },
      "Run what is queued and end the executor's thread.");
  m.def("in_forked_child", &in_forked_child);
  m.def("default_generator", [] { return default_generator(); });

  m.def("set_policy", [](const std::string& name) {
    config().policy = name == "iree"   ? Policy::iree
                      : name == "auto" ? Policy::automatic
                                       : Policy::native;
  });
  m.def("set_settings", [](uint64_t number) { config().settings = number; });
  m.def("set_native_threads", [](int count) { config().native_threads = count; });
  m.def("set_debug", [](int level) { config().debug = level; });
  m.def("set_verify", [](bool verify) { config().verify = verify; });
  m.def("set_blocking", [](bool blocking) { config().blocking = blocking; });
  m.def("set_window_limits", [](size_t operators, size_t bytes) {
    config().window_operators = operators;
    config().pending_bytes = bytes;
  });

  m.def("lend_to_native", &lend_to_native, "A CPU tensor over the memory of a shark tensor.");
  m.def("borrow_from_native", &borrow_from_native,
        "A shark tensor over the memory of a CPU tensor.");
}

}  // namespace torch_shark
