#pragma once

#include <chrono>
#include <memory>

#include "dispatch/exec/plan.h"

namespace torch_shark {

// Installs or, with nullptr, removes the compiler. Forgets all plans.
void set_compiler(std::shared_ptr<Compiler> compiler);

// The plan for a window under the policy iree: from memory, or made while the caller waits; nullptr
// without a compiler.
std::shared_ptr<const Plan> find_plan(const Window& window);

// A window under the policy auto.
struct Tried {
  Hash128 key;
  std::shared_ptr<const Plan> plan;  // nullptr while there is none: the window runs natively
};

// The plan for a window if there is one. If not, one is requested as soon as the window has come
// often enough, and has taken enough time, for a compiler to be worth its while.
Tried look_for_plan(const Window& window);

// How long a window without a plan took to run.
void note_native_run(const Hash128& key, std::chrono::nanoseconds duration);

// Makes a plan that was requested the one of its signature.
void install_plan(const Hash128& key, std::shared_ptr<const Plan> plan);

}  // namespace torch_shark
