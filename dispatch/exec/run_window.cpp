#include "dispatch/exec/run_window.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <sstream>
#include <unordered_set>

#include "dispatch/config.h"
#include "dispatch/device/native_device.h"
#include "dispatch/device/pool.h"
#include "dispatch/exec/check_indices.h"
#include "dispatch/exec/failures.h"
#include "dispatch/exec/overlaps.h"
#include "dispatch/exec/plan.h"
#include "dispatch/exec/profile.h"
#include "dispatch/exec/replay.h"
#include "dispatch/metrics.h"

namespace torch_shark {
namespace {

// Memory that came from elsewhere may lie where executables cannot read it.
c10::intrusive_ptr<NativeBuffer> aligned(const c10::intrusive_ptr<NativeBuffer>& buffer) {
  const c10::Storage& memory = buffer->storage;
  if (reinterpret_cast<uintptr_t>(memory.data()) % CpuPool::kAlignment == 0) {
    return buffer;
  }
  auto copy = c10::make_intrusive<NativeBuffer>(allocate_native(memory.nbytes()));
  std::memcpy(copy->storage.mutable_data(), memory.data(), memory.nbytes());
  return copy;
}

// A region's result becomes the memory of its storage, unless someone else uses the old memory too.
void give(DeviceStorage& storage, c10::intrusive_ptr<NativeBuffer> result) {
  if (storage.buffer && storage.buffer->storage.use_count() > 1) {
    std::memcpy(storage.buffer->storage.mutable_data(), result->storage.data(), storage.nbytes);
  } else {
    storage.buffer = std::move(result);
  }
}

class WindowRun {
 public:
  explicit WindowRun(Window& window) : window_(window), origins_(window) {}

  std::exception_ptr run() {
    std::shared_ptr<const Plan> plan = choose_plan();
    if (plan) {
      for (const auto& step : plan->steps) {
        std::visit([this](const auto& each) { run_step(each); }, step);
      }
    } else {
      for (Entry& entry : window_.entries) {
        run_native(entry);
      }
    }
    return error_;
  }

 private:
  std::shared_ptr<const Plan> choose_plan() {
    if (config().policy.load(std::memory_order_relaxed) != Policy::iree ||
        window_.entries.empty() || has_overlaps(window_)) {
      return nullptr;
    }
    const StepSpan span(StepSpan::Kind::host, 0, [] { return "shark::plan"; });
    try {
      return find_plan(window_);
    } catch (const Interrupted&) {
      return nullptr;
    } catch (const std::exception& e) {
      // A window that cannot be planned still has its native replay.
      TORCH_WARN("[shark] planning a window of ", window_.entries.size(),
                 " operators failed; it runs natively: ", e.what());
      return nullptr;
    }
  }

  void run_step(const NativeStep& step) { run_native(window_.entries[step.entry]); }

  void run_native(Entry& entry) {
    if (Failure failure = failure_of_operands(entry)) {
      refuse(entry, failure);
    } else {
      const StepSpan span(StepSpan::Kind::device, origins_.of(entry),
                          [&] { return entry.op->name; });
      if (attempt(entry, [&] { replay(entry); })) {
        succeed(entry);
      }
    }
    entry.release();
  }

  void run_step(const CheckStep& step) {
    Entry& entry = window_.entries[step.entry];
    if (!failure_of_operands(entry)) {
      const bool good = attempt(entry, [&] {
        const Geometry& geometry = step.geometry;
        check_indices(native_tensor(storage(step.storage).native().storage, geometry.sizes,
                                    geometry.strides, step.offset, geometry.dtype),
                      step.low, step.high, step.ignored);
      });
      if (!good) {
        refused_.insert(step.entry);
      }
    }
  }

  void run_step(const RegionStep& step) {
    const bool whole = std::none_of(step.entries.begin(), step.entries.end(), [this](uint32_t i) {
      return refused_.contains(i) || failure_of_operands(window_.entries[i]);
    });
    if (!whole || !run_region(step)) {
      // Part of the region can still have values: find out which, one operator at a time.
      for (uint32_t i : step.entries) {
        if (refused_.contains(i)) {
          window_.entries[i].release();
        } else {
          run_native(window_.entries[i]);
        }
      }
      return;
    }
    metrics().regions.fetch_add(1, std::memory_order_relaxed);
    metrics().region_operators.fetch_add(step.entries.size(), std::memory_order_relaxed);
    for (uint32_t i : step.entries) {
      succeed(window_.entries[i]);
      window_.entries[i].release();
    }
  }

  // Returns whether it ran. If not, nothing has changed: its results come in fresh buffers.
  bool run_region(const RegionStep& step) {
    const StepSpan span(StepSpan::Kind::device, 0, [&] { return region_name(step); });
    std::vector<c10::intrusive_ptr<NativeBuffer>> inputs;
    for (uint32_t number : step.inputs) {
      storage(number).native();
      inputs.push_back(aligned(storage(number).buffer));
    }
    std::vector<c10::intrusive_ptr<NativeBuffer>> outputs;
    for (uint32_t number : step.outputs) {
      outputs.push_back(c10::make_intrusive<NativeBuffer>(allocate_native(storage(number).nbytes)));
    }
    std::vector<c10::Scalar> scalars;
    for (const ScalarSlot& slot : step.scalars) {
      scalars.push_back(scalar_at(slot));
    }
    try {
      step.executable->run(inputs, outputs, scalars);
    } catch (const Interrupted&) {
      return false;
    } catch (const std::exception& error) {
      TORCH_WARN("[shark] a compiled region of ", step.entries.size(),
                 " operators failed and is replayed natively: ", error.what());
      return false;
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      give(storage(step.outputs[i]), std::move(outputs[i]));
    }
    return true;
  }

  DeviceStorage& storage(uint32_t number) { return *window_.storages[number].storage; }

  // Its operators, so far as they fit into a line.
  std::string region_name(const RegionStep& step) const {
    constexpr size_t kNamed = 3;
    std::string name = "shark::region(";
    for (size_t i = 0; i < std::min(kNamed, step.entries.size()); ++i) {
      name += (i == 0 ? "" : ", ") + window_.entries[step.entries[i]].op->name;
    }
    return name + (step.entries.size() > kNamed
                       ? c10::str(", and ", step.entries.size() - kNamed, " more)")
                       : ")");
  }

  c10::Scalar scalar_at(const ScalarSlot& slot) const {
    const Entry& entry = window_.entries[slot.entry];
    if (const auto refs = entry.operands_of(slot.argument); !refs.empty()) {
      return refs[slot.item.value_or(0)].host.item();
    }
    const c10::IValue& value = entry.args[slot.argument];
    return slot.item ? value.toListRef()[*slot.item].toScalar() : value.toScalar();
  }

  static std::string origin(const Entry& entry) {
    const bool here = config().blocking.load(std::memory_order_relaxed);
    return c10::str("[shark] raised by ", entry.op->name,
                    here ? "" : ", recorded earlier; TORCH_SHARK_BLOCKING=1 raises it at its line");
  }

  // Whether the work was done; if not, the entry has failed.
  template <typename Work>
  bool attempt(Entry& entry, Work work) {
    try {
      try {
        work();
      } catch (c10::Error& error) {
        error.add_context(origin(entry));
        throw;
      }
      return true;
    } catch (const std::exception& error) {
      if (!error_) {
        error_ = std::current_exception();
      }
      const auto* described = dynamic_cast<const c10::Error*>(&error);
      const auto failure = std::make_shared<const std::string>(
          c10::str(entry.op->name,
                   " failed: ", described ? described->what_without_backtrace() : error.what()));
      await_raise(failure);
      fail(entry, failure);
      return false;
    }
  }

  // After its error has been raised the program may go on as if nothing had happened. What keeps
  // its content then must not pass for what should have been written: that is raised too.
  void refuse(Entry& entry, const Failure& failure) {
    if (fail(entry, failure) && !awaits_raise(failure)) {
      await_raise(failure);
      try {
        raise_without_value(failure);
      } catch (...) {
        error_ = error_ ? error_ : std::current_exception();
      }
    }
  }

  Window& window_;
  WindowOrigins origins_;
  std::unordered_set<uint32_t> refused_;  // entries with an index out of range
  std::exception_ptr error_;
};

// What TORCH_SHARK_DEBUG shows; printed before the window runs, so that a crash shows its window.
void describe(const Window& window, int debug) {
  std::ostringstream text;
  text << "[shark] window of " << window.entries.size() << " operators over "
       << window.storages.size() << " storages\n";
  for (const Entry& entry : window.entries) {
    if (debug < 3) {
      break;
    }
    text << "[shark]   " << entry.op->name;
    for (const auto refs : {entry.operands, entry.results}) {
      for (const TensorRef& ref : refs) {
        text << (ref.storage ? c10::str(" %", ref.number, ref.sizes()) : std::string(" host"));
      }
      text << (refs.data() == entry.operands.data() ? " ->" : "");
    }
    text << "\n";
  }
  std::cerr << text.str() << std::flush;
}

}  // namespace

std::exception_ptr run_window(Window& window) {
  if (const int debug = config().debug.load(std::memory_order_relaxed); debug >= 2) {
    describe(window, debug);
  }
  const auto start = std::chrono::steady_clock::now();
  std::exception_ptr error;
  {
    ReplayScope scope;
    try {
      error = WindowRun(window).run();
    } catch (...) {  // no memory for a region's results, say
      error = std::current_exception();
    }
    // Entries that are in no step of a plan were never needed; let go of what they hold.
    for (Entry& entry : window.entries) {
      entry.release();
    }
  }
  const auto end = std::chrono::steady_clock::now();
  metrics().running_nanoseconds.fetch_add(
      std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count(),
      std::memory_order_relaxed);
  for (const auto& mark : window.marks) {
    mark->when = end;
    mark->passed.store(true, std::memory_order_release);
  }
  return error;
}

}  // namespace torch_shark
