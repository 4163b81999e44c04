#include "dispatch/exec/run_window.h"

#include <ATen/Parallel.h>

#include <chrono>

#include "dispatch/config.h"
#include "dispatch/device/native_device.h"
#include "dispatch/exec/check_indices.h"
#include "dispatch/exec/plan.h"
#include "dispatch/exec/replay.h"
#include "dispatch/metrics.h"

namespace torch_shark {
namespace {

using Failure = std::shared_ptr<const std::string>;

class WindowRun {
 public:
  explicit WindowRun(Window& window) : window_(window) {}

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
        window_.entries.empty()) {
      return nullptr;
    }
    try {
      return find_plan(window_);
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
      fail(entry, failure);
    } else {
      attempt(entry, [&] { replay(entry); });
    }
    entry.release();
  }

  void run_step(const CheckStep& step) {
    Entry& entry = window_.entries[step.entry];
    if (!failure_of_operands(entry)) {
      attempt(entry, [&] {
        const Geometry& geometry = step.geometry;
        check_indices(native_tensor(storage(step.storage).native().storage, geometry.sizes,
                                    geometry.strides, step.offset, geometry.dtype),
                      step.low, step.high, step.ignored);
      });
    }
  }

  void run_step(const RegionStep& step) {
    Failure failure;
    for (uint32_t i : step.entries) {
      if ((failure = failure_of_operands(window_.entries[i]))) {
        break;
      }
    }
    if (failure) {
      // Part of the region can still have values: find out which, one operator at a time.
      for (uint32_t i : step.entries) {
        run_native(window_.entries[i]);
      }
      return;
    }
    std::vector<c10::intrusive_ptr<NativeBuffer>> inputs;
    for (uint32_t number : step.inputs) {
      storage(number).native();
      inputs.push_back(storage(number).buffer);
    }
    std::vector<c10::intrusive_ptr<NativeBuffer>> outputs;
    for (uint32_t number : step.outputs) {
      outputs.push_back(c10::make_intrusive<NativeBuffer>(allocate_native(storage(number).nbytes)));
    }
    std::vector<c10::Scalar> scalars;
    for (const ScalarSlot& slot : step.scalars) {
      scalars.push_back(scalar_at(slot));
    }
    step.executable->run(inputs, outputs, scalars);
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      storage(step.outputs[i]).buffer = std::move(outputs[i]);
    }
    metrics().regions.fetch_add(1, std::memory_order_relaxed);
    metrics().region_operators.fetch_add(step.entries.size(), std::memory_order_relaxed);
    for (uint32_t i : step.entries) {
      window_.entries[i].release();
    }
  }

  DeviceStorage& storage(uint32_t number) { return *window_.storages[number].storage; }

  c10::Scalar scalar_at(const ScalarSlot& slot) const {
    const Entry& entry = window_.entries[slot.entry];
    if (const auto refs = entry.operands_of(slot.argument); !refs.empty()) {
      return refs[slot.item.value_or(0)].host.item();
    }
    const c10::IValue& value = entry.args[slot.argument];
    return slot.item ? value.toListRef()[*slot.item].toScalar() : value.toScalar();
  }

  template <typename Work>
  void attempt(Entry& entry, Work work) {
    try {
      try {
        work();
      } catch (c10::Error& error) {
        error.add_context(c10::str("[shark] raised by ", entry.op->name, ", recorded earlier"));
        throw;
      }
    } catch (const std::exception& error) {
      if (!error_) {
        error_ = std::current_exception();
      }
      const auto* described = dynamic_cast<const c10::Error*>(&error);
      fail(entry, std::make_shared<const std::string>(
                      c10::str(entry.op->name, " failed: ",
                               described ? described->what_without_backtrace() : error.what())));
    }
  }

  static Failure failure_of_operands(const Entry& entry) {
    for (const TensorRef& ref : entry.operands) {
      if (ref.storage && ref.storage->state.load(std::memory_order_acquire) == StorageState::failed) {
        return ref.storage->failure;
      }
    }
    return nullptr;
  }

  // Results have no value. An argument written in place keeps the one that it had: a step that
  // failed costs no parameters.
  static void fail(Entry& entry, const Failure& failure) {
    for (const TensorRef& ref : entry.results) {
      if (ref.storage) {
        ref.storage->fail(failure);
      }
    }
    for (size_t i = 0; i < entry.op->args.size(); ++i) {
      if (!entry.op->args[i].written) {
        continue;
      }
      for (const TensorRef& ref : entry.operands_of(i)) {
        if (ref.storage && !ref.storage->buffer) {
          ref.storage->fail(failure);
        }
      }
    }
  }

  Window& window_;
  std::exception_ptr error_;
};

}  // namespace

std::exception_ptr run_window(Window& window) {
  const auto start = std::chrono::steady_clock::now();
  if (window.native_threads != at::get_num_threads()) {
    at::set_num_threads(window.native_threads);  // OpenMP's setting is per thread
  }
  std::exception_ptr error;
  {
    ReplayScope scope;
    error = WindowRun(window).run();
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

void check_readable(const DeviceStorage& storage) {
  TORCH_CHECK(storage.state.load(std::memory_order_acquire) != StorageState::failed,
              "[shark] expected a tensor with a value, but ", *storage.failure);
}

}  // namespace torch_shark
