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
  std::shared_ptr<const Ways> ways;  // nullptr while there is no plan: the window runs natively
};

// The plans for a window if there are some. Each is requested as soon as the window has taken
// enough time for a compiler to be worth its while.
Tried look_for_plans(const Window& window);

// How long a window took to run.
void note_run(const Hash128& key, std::chrono::nanoseconds duration);

// Adds a plan that was requested to those of its signature, with the choice that then holds. One
// that comes when the plans before it are forgotten is forgotten too.
void install_plan(const Hash128& key, std::shared_ptr<const Plan> plan,
                  std::shared_ptr<Choice> choice);

}  // namespace torch_shark
