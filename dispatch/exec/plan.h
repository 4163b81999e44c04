#pragma once

#include <c10/core/Scalar.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <variant>
#include <vector>

#include "dispatch/exec/choice.h"
#include "dispatch/window/hash.h"
#include "dispatch/window/window.h"

namespace torch_shark {

// Thrown where a run failed after it may have begun to write.
struct RunFailed final : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A loaded executable. Implemented by csrc_py over the IREE runtime.
class Executable {
 public:
  virtual ~Executable() = default;
  // Begins to read `inputs` and to write all of each of `outputs`, once all runs that began before
  // are over. The result waits for this run and for those; the buffers have to live until then.
  // Both are called in the executor's exclusive section and throw `RunFailed` where something may
  // have been written, else nothing has been.
  virtual std::function<void()> start(std::span<const c10::intrusive_ptr<NativeBuffer>> inputs,
                                      std::span<const c10::intrusive_ptr<NativeBuffer>> outputs,
                                      std::span<const c10::Scalar> scalars) = 0;
};

// Where a value that changes between runs of one plan stands in the window.
struct ScalarSlot {
  uint32_t entry;
  uint32_t argument;
  std::optional<uint32_t> item;  // of a list argument
};

// Replays one operator.
struct NativeStep {
  uint32_t entry;
};

// A tensor over a storage.
struct Place {
  uint32_t storage;  // by number
  Geometry geometry;
  int64_t offset;  // elements, from where the storage's piece begins
};

// Every integer of a tensor must lie in [low, high) or equal `ignored`: IREE itself does not check
// indices.
struct IndexCheck {
  Place index;
  int64_t low;
  int64_t high;
  std::optional<int64_t> ignored;
};

// One way to run a region: an executable over whole storages, named by their numbers. A result that
// is not written in place comes in a fresh buffer, which is then swapped into the storage.
struct Candidate {
  std::shared_ptr<Executable> executable;
  std::vector<uint32_t> inputs;
  std::vector<bool> in_place;  // for each output: the executable reads and overwrites its memory
};

// Runs several operators together. Where an index is out of range, or `choice` finds that
// faster, its operators are replayed instead.
struct RegionStep {
  std::vector<Candidate> candidates;  // at least one
  std::shared_ptr<Choice> choice;  // of native replay (0) and the candidates (from 1); or nullptr
  std::vector<IndexCheck> checks;
  std::vector<uint32_t> entries;
  std::vector<uint32_t> outputs;
  std::vector<Place> parts;  // where the results that follow the outputs are copied to
  std::vector<ScalarSlot> scalars;
  std::string digest;  // names the region
};

// The steps of a window, in an order that keeps every dependency. Entries in no step need not run.
struct Plan {
  std::vector<std::variant<NativeStep, RegionStep>> steps;
};

// What a window's signature stands for: its plans, the narrow one first.
struct Ways {
  std::vector<std::shared_ptr<const Plan>> plans;  // at least one
  // Of native replay of the whole window (0) and the plans (from 1), once their regions have made
  // their own; nullptr if nothing is compiled, or there is nothing to choose.
  std::shared_ptr<Choice> choice;
};

// Which operators a plan's regions may hold: those of a wide one, matrix products and what goes
// with them too.
enum class Width { narrow, wide };

// Thrown by the Python side where the program is interrupted in it. The program hears of that when
// the call that waits returns; the operators run natively meanwhile.
struct Interrupted final : std::exception {
  const char* what() const noexcept override { return "[shark] interrupted"; }
};

// Makes plans. Implemented by csrc_py over torch_shark.compiler.
class Compiler {
 public:
  virtual ~Compiler() = default;
  // Makes a plan while the caller waits.
  virtual std::shared_ptr<const Plan> plan(const Window& window) = 0;
  // Begins to make a plan; it is handed to `install_plan` when it is there, if ever.
  virtual void request(const Window& window, const Hash128& key, Width width) = 0;
};

// 128-bit name of a window: operators, arguments, storages by number, geometry, which storages were
// born in it and which are alive after it. Values that plans take as inputs are left out: host
// scalars, and doubles of operators whose lowering lifts them.
Hash128 signature(const Window& window);

// What windows that differ in sizes only have in common.
uint64_t family(const Window& window);

}  // namespace torch_shark
