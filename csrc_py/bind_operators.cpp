#include "csrc_py/bindings.h"
#include "dispatch/ops/op_info.h"

namespace py = pybind11;

namespace torch_shark {

void init_operators(py::module_& m) {
  m.def(
      "op_policy",
      [](const std::string& name) {
        const OpPolicy& row = op_policy(name);
        static constexpr const char* kDispatch[]{"record", "sync", "custom", "decompose"};
        py::dict result;
        result["dispatch"] = kDispatch[static_cast<size_t>(row.dispatch)];
        result["also_writes"] = std::string(row.also_writes);
        result["why"] = row.why;
        return result;
      },
      "What is special about an operator.");
}

}  // namespace torch_shark
