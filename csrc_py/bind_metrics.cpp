#include "csrc_py/bindings.h"
#include "dispatch/metrics.h"
#include "dispatch/ops/op_info.h"

namespace py = pybind11;

namespace torch_shark {

void init_metrics(py::module_& m) {
  m.def("metrics", [] {
    const Metrics& counters = metrics();
    py::dict flushes;
    for (size_t i = 0; i < kFlushReasonNames.size(); ++i) {
      flushes[kFlushReasonNames[i]] = counters.flushes[i].load();
    }
    py::dict native_steps;
    for_each_op_info([&](const OpInfo& op) {
      if (const uint64_t count = op.native_steps.load()) {
        native_steps[op.name.c_str()] = count;
      }
    });
    py::dict result;
    result["recorded"] = counters.recorded.load();
    result["windows"] = counters.windows.load();
    result["inline_windows"] = counters.inline_windows.load();
    result["flushes"] = flushes;
    result["native_steps"] = native_steps;
    result["regions"] = counters.regions.load();
    result["region_operators"] = counters.region_operators.load();
    result["running_seconds"] = static_cast<double>(counters.running_nanoseconds.load()) * 1e-9;
    return result;
  });
  m.def("reset_metrics", &reset_metrics);
}

}  // namespace torch_shark
