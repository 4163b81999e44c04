#include "csrc_py/bindings.h"
#include "dispatch/device/hooks.h"
#include "dispatch/device/native_memory.h"
#include "dispatch/ops/register.h"

PYBIND11_MODULE(_C, m) {
  using namespace torch_shark;
  install_native_memory();
  register_hooks();
  install_gil_hooks();
  init_benchmark(m);
  init_device(m);
  init_metrics(m);
  init_operators(m);
  init_planner(m);
}
