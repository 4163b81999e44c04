#include <torch/csrc/utils/pybind.h>

#include "csrc_py/bindings.h"
#include "dispatch/config.h"
#include "dispatch/device/generator.h"
#include "dispatch/device/pool.h"
#include "dispatch/device/process.h"
#include "dispatch/exec/executor.h"
#include "dispatch/window/recorder.h"

namespace py = pybind11;

namespace torch_shark {

void init_device(py::module_& m) {
  m.def("synchronize", [] { Recorder::instance().synchronize(); });
  m.def("flush_optimizer", [] { Recorder::instance().flush(FlushReason::optimizer); });
  m.def("flush_graph", [] { Recorder::instance().flush(FlushReason::graph); });
  m.def(
      "stop", [] { Executor::instance().stop(); },
      "Run what is queued and end the executor's thread.");
  m.def("in_forked_child", &in_forked_child);
  m.def("default_generator", [] { return default_generator(); });

  m.def("set_policy", [](const std::string& name) {
    config().policy = name == "iree" ? Policy::iree : Policy::native;
  });
  m.def("set_native_threads", [](int count) { config().native_threads = count; });
  m.def("set_debug", [](int level) { config().debug = level; });
  m.def("set_window_limits", [](size_t operators, size_t bytes) {
    config().window_operators = operators;
    config().pending_bytes = bytes;
  });

  m.def("memory_stats", [] {
    const CpuPoolStats stats = cpu_pool().stats();
    py::dict result;
    result["allocated"] = stats.live;
    result["peak_allocated"] = stats.peak_live;
    result["reserved"] = stats.reserved;
    result["peak_reserved"] = stats.peak_reserved;
    return result;
  });
  m.def("reset_peak_memory_stats", [] { cpu_pool().reset_peak_stats(); });
  m.def("empty_cache", [] {
    Recorder::instance().synchronize();
    cpu_pool().empty_cache();
  });
}

}  // namespace torch_shark
