// Times calls of operators from C++, so that benchmarks see the dispatcher and not Python.

#include <torch/csrc/jit/python/pybind_utils.h>

#include <ctime>

#include "csrc_py/bindings.h"
#include "dispatch/ops/op_info.h"

namespace py = pybind11;

namespace torch_shark {
namespace {

struct Call {
  c10::OperatorHandle op;
  torch::jit::Stack args;
};

std::vector<Call> to_calls(const py::list& calls) {
  std::vector<Call> result;
  for (py::handle item : calls) {
    const auto [name, args, kwargs] = item.cast<std::tuple<std::string, py::tuple, py::dict>>();
    const c10::OperatorHandle& op = find_op_info(name).handle;
    torch::jit::Stack stack = torch::jit::createStackForSchema(
        op.schema(), torch::jit::tuple_slice(args), kwargs, std::nullopt);
    result.push_back({op, std::move(stack)});
  }
  return result;
}

// Processor time of this thread: what others run meanwhile does not count.
double thread_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double nanoseconds_per_round(const py::list& calls, int64_t rounds) {
  const std::vector<Call> prepared = to_calls(calls);
  py::gil_scoped_release no_gil;
  at::NoGradGuard no_grad;
  const double start = thread_nanoseconds();
  for (int64_t i = 0; i < rounds; ++i) {
    for (const Call& call : prepared) {
      torch::jit::Stack stack(call.args);
      call.op.callBoxed(stack);
    }
  }
  return (thread_nanoseconds() - start) / static_cast<double>(rounds);
}

}  // namespace

void init_benchmark(py::module_& m) {
  m.def("nanoseconds_per_round", &nanoseconds_per_round, py::arg("calls"), py::arg("rounds"),
        "Processor time of this thread for a round of (operator name, args, kwargs) calls, "
        "results dropped; nothing is waited for.");
}

}  // namespace torch_shark
