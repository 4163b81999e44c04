#include "dispatch/exec/run_window.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "dispatch/config.h"
#include "dispatch/device/native_device.h"
#include "dispatch/exec/buffers.h"
#include "dispatch/exec/failures.h"
#include "dispatch/exec/indices.h"
#include "dispatch/exec/overlaps.h"
#include "dispatch/exec/plans.h"
#include "dispatch/exec/profile.h"
#include "dispatch/exec/replay.h"
#include "dispatch/exec/verify.h"
#include "dispatch/metrics.h"

namespace torch_shark {
namespace {

// Ways of a region: native replay, then its candidates. Ways of a window: native replay, then its
// plans.
constexpr size_t kNative = 0;
constexpr size_t kFirstCandidate = 1;
constexpr size_t kFirstPlan = 1;

// Results in fresh memory that may wait for the end of the runs that make them.
constexpr size_t kMostFreshBytes = size_t{32} << 20;

// Regions that have begun and are not waited for yet.
struct InFlight {
  std::vector<const RegionStep*> steps;
  std::vector<Buffer> buffers;  // all that they read and write
  // By the number of a storage that they read or write: the buffer that is to become its memory, or
  // nullptr where it is only read.
  std::unordered_map<uint32_t, Buffer> storages;
  std::vector<std::pair<const Place*, Buffer>> parts;
  size_t fresh_bytes = 0;
  bool in_place = false;  // whether any of them overwrites what a replay would read
  std::function<void()> wait;
};

class WindowRun {
 public:
  explicit WindowRun(Window& window) : window_(window), origins_(window) {}

  std::exception_ptr run() {
    const Policy policy = config().policy.load(std::memory_order_relaxed);
    if (policy == Policy::native || window_.entries.empty() || has_overlaps(window_)) {
      run_natively();
      return error_;
    }
    window_.pieces = find_pieces(window_);
    if (policy == Policy::iree) {
      const std::shared_ptr<const Plan> plan = made([this] { return find_plan(window_); });
      plan ? run_steps(*plan) : run_natively();
    } else {
      run_the_fastest(made([this] { return look_for_plans(window_); }));
    }
    return error_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // What the compiler's side makes; nothing where it fails.
  template <typename Make>
  static auto made(Make make) -> decltype(make()) {
    const StepSpan span(StepSpan::Kind::host, 0, [] { return "shark::plan"; });
    try {
      return make();
    } catch (const Interrupted&) {
    } catch (const std::exception& e) {
      // A window that cannot be planned still has its native replay.
      TORCH_WARN("[shark] planning a window failed; it runs natively: ", e.what());
    }
    return {};
  }

  void run_the_fastest(const Tried& tried) {
    const auto start = Clock::now();
    if (!tried.ways) {
      run_natively();
      note_run(tried.key, Clock::now() - start);
      return;
    }
    const auto& [plans, choice] = *tried.ways;
    const std::optional<size_t> given = given_way(*tried.ways);
    const size_t way = given ? *given : choice->next();
    way == kNative ? run_natively() : run_steps(*plans[way - kFirstPlan]);
    const auto duration = Clock::now() - start;
    if (!given && !error_) {
      choice->add(way, duration);
    }
    note_run(tried.key, duration);
  }

  // The way of a window that is not chosen: a plan whose regions still choose, or the only one.
  static std::optional<size_t> given_way(const Ways& ways) {
    const auto& plans = ways.plans;
    if (!ways.choice || config().verify.load(std::memory_order_relaxed)) {
      return kFirstPlan + plans.size() - 1;
    }
    const auto found = std::find_if(plans.begin(), plans.end(),
                                    [](const auto& plan) { return !is_settled(*plan); });
    return found == plans.end() ? std::nullopt
                                : std::optional(kFirstPlan + (found - plans.begin()));
  }

  static bool is_settled(const Plan& plan) {
    return std::all_of(plan.steps.begin(), plan.steps.end(), [](const auto& step) {
      const auto* region = std::get_if<RegionStep>(&step);
      return region == nullptr || region->choice == nullptr || region->choice->is_decided();
    });
  }

  void run_steps(const Plan& plan) {
    try {
      for (const auto& step : plan.steps) {
        std::visit([this](const auto& each) { run_step(each); }, step);
      }
    } catch (...) {  // no memory, say: what has begun is as it would be without that
      finish();
      throw;
    }
    finish();
  }

  void run_natively() {
    for (Entry& entry : window_.entries) {
      run_native(entry);
    }
  }

  void run_step(const NativeStep& step) { run_native(window_.entries[step.entry]); }

  void run_native(Entry& entry) {
    finish_if(is_in_flight(entry.operands) || is_in_flight(entry.results));
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

  void run_step(const RegionStep& step) {
    if (config().verify.load(std::memory_order_relaxed)) {
      run_both_ways(step);
      return;
    }
    const bool timed = step.choice && !step.choice->is_decided();
    finish_if(timed);
    const auto start = Clock::now();
    const size_t way = step.choice ? step.choice->next() : kFirstCandidate;
    const bool whole = has_operands(step);
    if (way == kNative || !whole || !in_range(step)) {
      replay_region(step);
    } else {
      const bool works =
          start_region(step, step.candidates[way - kFirstCandidate]) && (!timed || finish());
      if (!works && step.choice) {
        step.choice->drop(way);
        return;
      }
    }
    if (timed && whole && !error_) {
      step.choice->add(way, Clock::now() - start);
    }
  }

  // Part of a region can have values where the whole has none.
  void replay_region(const RegionStep& step) {
    for (uint32_t i : step.entries) {
      run_native(window_.entries[i]);
    }
  }

  bool has_operands(const RegionStep& step) const {
    return std::none_of(step.entries.begin(), step.entries.end(),
                        [this](uint32_t i) { return failure_of_operands(window_.entries[i]); });
  }

  // If not, the native kernels say in their own words what is wrong.
  bool in_range(const RegionStep& step) {
    return std::all_of(step.checks.begin(), step.checks.end(), [this](const IndexCheck& check) {
      finish_if(in_flight_.storages.contains(check.index.storage));
      return are_in_range(at(check.index), check.low, check.high, check.ignored);
    });
  }

  at::Tensor at(const Place& place) const {
    const auto& [sizes, strides, dtype] = place.geometry;
    const size_t begin = window_.pieces[place.storage].offset / c10::elementSize(dtype);
    return native_tensor(storage(place.storage).native().storage, sizes, strides,
                         begin + place.offset, dtype);
  }

  // Returns whether it works; if not, it has been replayed or its operators have failed.
  bool start_region(const RegionStep& step, const Candidate& candidate) {
    const StepSpan span(StepSpan::Kind::device, 0, [&] { return region_name(step); });
    std::vector<Buffer> outputs;
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const uint32_t number = step.outputs[i];
      outputs.push_back(candidate.in_place[i] ? current(number) : fresh(storage(number).nbytes));
    }
    for (const Place& part : step.parts) {
      outputs.push_back(fresh_for(part));
    }
    const auto& in_place = candidate.in_place;
    const bool overwrites = std::find(in_place.begin(), in_place.end(), true) != in_place.end();
    try {
      start(step, candidate, outputs);
    } catch (const std::exception& error) {
      finish();
      if (overwrites && dynamic_cast<const RunFailed*>(&error) != nullptr) {
        fail_region(step, std::current_exception());  // what a replay would read is gone
      } else {
        if (dynamic_cast<const Interrupted*>(&error) == nullptr) {
          warn_of(step, error);
        }
        replay_region(step);
      }
      return false;
    }
    in_flight_.steps.push_back(&step);
    in_flight_.in_place |= overwrites;
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      in_flight_.fresh_bytes += in_place[i] ? 0 : outputs[i]->storage.nbytes();
      in_flight_.storages.insert_or_assign(step.outputs[i], outputs[i]);
    }
    for (size_t i = 0; i < step.parts.size(); ++i) {
      in_flight_.parts.emplace_back(&step.parts[i], outputs[step.outputs.size() + i]);
    }
    // While profiling, others would take the time that it runs for their own.
    const bool now = profiling() || !step.parts.empty();
    return now || in_flight_.fresh_bytes > kMostFreshBytes ? finish() : true;
  }

  void start(const RegionStep& step, const Candidate& candidate,
             const std::vector<Buffer>& outputs) {
    std::vector<Buffer> inputs;
    for (uint32_t number : candidate.inputs) {
      inputs.push_back(current(number));
    }
    std::vector<c10::Scalar> scalars;
    for (const ScalarSlot& slot : step.scalars) {
      scalars.push_back(scalar_at(slot));
    }
    in_flight_.wait = candidate.executable->start(inputs, outputs, scalars);
    for (uint32_t number : candidate.inputs) {
      in_flight_.storages.try_emplace(number);
    }
    std::vector<Buffer>& held = in_flight_.buffers;
    held.insert(held.end(), inputs.begin(), inputs.end());
    held.insert(held.end(), outputs.begin(), outputs.end());
  }

  // What a storage, or the piece of it that the window reads, holds once all in flight is done.
  Buffer current(uint32_t number) {
    const auto found = in_flight_.storages.find(number);
    if (found != in_flight_.storages.end() && found->second) {
      return found->second;
    }
    DeviceStorage& source = storage(number);
    const Piece& piece = window_.pieces[number];
    finish_if(found != in_flight_.storages.end() && !is_readable(source, piece));
    return content(source, piece);
  }

  bool is_in_flight(std::span<const TensorRef> refs) const {
    return std::any_of(refs.begin(), refs.end(), [this](const TensorRef& ref) {
      return ref.storage && in_flight_.storages.contains(ref.number);
    });
  }

  void finish_if(bool needed) {
    if (needed) {
      finish();
    }
  }

  // Waits for what is in flight and gives its results to their storages. Returns whether all of it
  // worked; if not, it has been replayed or its operators have failed.
  bool finish() {
    if (!in_flight_.wait) {
      return true;
    }
    const InFlight done = std::exchange(in_flight_, {});
    try {
      done.wait();
    } catch (const std::exception& error) {
      for (const RegionStep* step : done.steps) {
        if (done.in_place) {
          fail_region(*step, std::current_exception());
        } else {
          warn_of(*step, error);
          replay_region(*step);
        }
      }
      return false;
    }
    for (const auto& [number, buffer] : done.storages) {
      if (buffer) {
        give(storage(number), buffer);
      }
    }
    for (const auto& [part, buffer] : done.parts) {
      at(*part).copy_(elements(*part, *buffer));
    }
    for (const RegionStep* step : done.steps) {
      count_run(*step);
      for (uint32_t i : step->entries) {
        succeed(window_.entries[i]);
        window_.entries[i].release();
      }
    }
    return true;
  }

  static void count_run(const RegionStep& step) {
    metrics().regions.fetch_add(1, std::memory_order_relaxed);
    metrics().region_operators.fetch_add(step.entries.size(), std::memory_order_relaxed);
  }

  static void warn_of(const RegionStep& step, const std::exception& error) {
    TORCH_WARN("[shark] a compiled region of ", step.entries.size(),
               " operators failed and is replayed natively: ", error.what());
  }

  // What TORCH_SHARK_VERIFY asks for. Values are native replay's.
  void run_both_ways(const RegionStep& step) {
    if (!has_operands(step) || !in_range(step)) {
      replay_region(step);
      return;
    }
    std::vector<std::vector<Buffer>> results;
    for (const Candidate& candidate : step.candidates) {
      std::vector<Buffer>& outputs = results.emplace_back();
      for (uint32_t number : step.outputs) {
        outputs.push_back(copy_of(storage(number)));
      }
      for (const Place& part : step.parts) {
        outputs.push_back(fresh_for(part));
      }
      try {
        start(step, candidate, outputs);
        std::exchange(in_flight_, {}).wait();
        count_run(step);
      } catch (const std::exception& error) {
        warn_of(step, error);
        results.pop_back();
      }
    }
    const std::string name = c10::str("region ", step.digest, ", ", region_name(step));
    replay_region(step);
    for (const std::vector<Buffer>& outputs : results) {
      size_t i = 0;
      for (const uint32_t number : step.outputs) {
        DeviceStorage& native = storage(number);
        const at::Tensor values = flat(native.native().storage, native.base.dtype);
        const at::Tensor others = flat(outputs[i++]->storage, native.base.dtype);
        compare(values, others.slice(0, 0, values.numel()), native.base.sizes, name);
      }
      for (const Place& part : step.parts) {
        compare(at(part), elements(part, *outputs[i++]), part.geometry.sizes, name);
      }
    }
  }

  void compare(const at::Tensor& native, const at::Tensor& compiled, c10::IntArrayRef sizes,
               const std::string& name) {
    const auto wrong = error_ ? std::nullopt : difference(native, compiled);
    if (wrong) {
      error_ = std::make_exception_ptr(
          c10::Error({__func__, __FILE__, __LINE__},
                     c10::str("[shark] ", name, ", gives other values compiled than natively. ",
                              native.scalar_type(), " ", sizes, ": ", *wrong)));
    }
  }

  void fail_region(const RegionStep& step, const std::exception_ptr& error) {
    for (uint32_t i : step.entries) {
      attempt(window_.entries[i], [&] { std::rethrow_exception(error); });
      window_.entries[i].release();
    }
  }

  DeviceStorage& storage(uint32_t number) const { return *window_.storages[number].storage; }

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
  InFlight in_flight_;
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
    mark->stamp();
  }
  return error;
}

}  // namespace torch_shark
