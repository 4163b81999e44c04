#pragma once

#include <memory>
#include <string>

#include "dispatch/window/window.h"

namespace torch_shark {

// What has no value because an operator failed. All of it belongs to whoever runs windows.
//
// A failed operator's results have no value until something overwrites them whole. What it writes
// in place, or to `out`, keeps its content; until the error is raised, nothing is computed from
// that, so that a training step without gradients changes no parameter.
using Failure = std::shared_ptr<const std::string>;

// Why an operand that the entry reads has no value; nullptr if all have one.
Failure failure_of_operands(const Entry& entry);

// The entry does not run, or failed. Returns whether something that it writes keeps its content.
bool fail(const Entry& entry, const Failure& failure);

// The entry has run: what it overwrote whole has a value.
void succeed(const Entry& entry);

// The failure's error is to be raised at the next sync.
void await_raise(const Failure& failure);
bool awaits_raise(const Failure& failure);

// The error of all failures so far is raised now.
void forget_failed_writes();

// Raises the error of using what has no value.
[[noreturn]] void raise_without_value(const Failure& failure);
// The same if the storage has none.
void check_readable(const DeviceStorage& storage);

}  // namespace torch_shark
