#pragma once

#include <string_view>

namespace torch_shark {

// What is special about an operator. An operator that is not in the table has the defaults.
struct OpPolicy {
  enum class Dispatch {
    record,     // the boxed recorder
    sync,       // runs natively at once: its result depends on data, or is not a tensor
    custom,     // a kernel of its own in dispatch/ops (factories, copies, resizing, views)
    decompose,  // left to PyTorch's decomposition into other operators
  };

  std::string_view name;
  Dispatch dispatch = Dispatch::record;
  // Names, separated by spaces, of arguments written although the schema does not say so.
  std::string_view also_writes = {};
  // Doubles among the arguments decide the result's shape, so they are part of the oracle's key.
  bool shape_from_doubles = false;
  // Operands with dimensions may live on the CPU (indices); they are copied to the device.
  bool cpu_operands = false;
  // Boolean indices decide the result's size by how many of them are set; other indices do not.
  bool size_from_masks = false;
  // What `dispatch` says holds where the native device is the CPU; elsewhere the operator records.
  bool only_on_cpu = false;
  // Integer arguments are mere values (a seed) and no part of a window's signature.
  bool value_ints = false;
  const char* why = "";
};

// The one table of such facts. Operators are named as "aten::add.Tensor"; a name that ends in '*'
// speaks for all operators that begin so and have no row of their own.
const OpPolicy& op_policy(std::string_view name);

// Whether an operator's doubles are inputs of plans: lowering takes them as such, so that other
// values need no other executable. So it is for the in-place form of each ("aten::add_.Tensor").
bool lifts_doubles(std::string_view name);

}  // namespace torch_shark
