#include <pybind11/stl.h>

#include "csrc_py/bindings.h"
#include "dispatch/ops/op_info.h"
#include "dispatch/ops/register.h"

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
  m.def(
      "lifted_arguments",
      [](const std::string& name) {
        std::vector<size_t> result;
        const OpInfo& op = find_op_info(name);
        for (size_t i = 0; i < op.args.size(); ++i) {
          if (op.args[i].lifted) {
            result.push_back(i);
          }
        }
        return result;
      },
      "The positions of an operator's arguments whose floats are inputs of plans.");
  m.def("record_always", &record_always, py::arg("name"),
        "Have an operator recorded, also one that PyTorch would take apart.");
}

}  // namespace torch_shark
