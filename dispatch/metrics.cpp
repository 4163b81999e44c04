#include "dispatch/metrics.h"

#include "dispatch/ops/op_info.h"

namespace torch_shark {

Metrics& metrics() {
  static Metrics instance;
  return instance;
}

void reset_metrics() {
  Metrics& m = metrics();
  for (auto* counter : {&m.recorded, &m.windows, &m.regions, &m.region_operators, &m.inline_windows,
                        &m.running_nanoseconds}) {
    counter->store(0);
  }
  for (auto& counter : m.flushes) {
    counter.store(0);
  }
  for_each_op_info([](OpInfo& op) { op.native_steps.store(0); });
}

}  // namespace torch_shark
