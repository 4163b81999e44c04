#include "dispatch/window/recorder.h"

#include <algorithm>

#include "dispatch/config.h"
#include "dispatch/device/process.h"
#include "dispatch/exec/executor.h"
#include "dispatch/exec/profile.h"
#include "dispatch/window/hash.h"

namespace torch_shark {
namespace {

constexpr size_t kOperandsOfAnOperator = 16;

// Identifies an operator and the shapes it works on, for the content-defined cut.
uint64_t fingerprint(const Entry& entry) {
  uint64_t hash = entry.op->id;
  for (const auto refs : {entry.operands, entry.results}) {
    if (!refs.empty()) {
      for (int64_t dim : refs.front().dims) {
        hash = hash * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(dim);
      }
    }
  }
  return Hash128::mix(hash);
}

// A storage that has failed stays so: an operator may write it in part, or read it first.
void mark_written(std::span<TensorRef> refs) {
  for (TensorRef& ref : refs) {
    if (ref.storage) {
      StorageState unwritten = StorageState::unwritten;
      ref.storage->state.compare_exchange_strong(unwritten, StorageState::written,
                                                 std::memory_order_relaxed);
    }
  }
}

}  // namespace

Recorder& Recorder::instance() {
  // Leaked: tensors may be used until the very end of the process.
  static auto* recorder = new Recorder();
  return *recorder;
}

Recorder::Recorder() : executor_(Executor::instance()), window_(std::make_unique<Window>()) {}

void Recorder::name_storage(TensorRef& ref) {
  if (!ref.storage) {
    return;
  }
  DeviceStorage& storage = *ref.storage;
  if (storage.window_serial != serial_) {
    storage.window_serial = serial_;
    storage.window_number = static_cast<uint32_t>(window_->storages.size());
    const bool born = storage.state.load(std::memory_order_relaxed) == StorageState::unwritten;
    window_->storages.push_back({&storage, born, true});
  }
  ref.number = storage.window_number;
}

void Recorder::append(Entry& entry) {
  for (TensorRef& ref : entry.operands) {
    name_storage(ref);
  }
  if (entry.op->writes) {
    for (size_t i = 0; i < entry.op->args.size(); ++i) {
      if (entry.op->args[i].written) {
        mark_written(entry.operands_of(i));
      }
    }
  }
  for (TensorRef& ref : entry.results) {
    name_storage(ref);
    pending_bytes_ += ref.storage ? ref.storage->nbytes : 0;
  }
  mark_written(entry.results);
  metrics().recorded.fetch_add(1, std::memory_order_relaxed);
  if (profiling()) {
    note_recorded(*window_);
  }
  due_ = is_due(entry);
}

void Recorder::record(OpInfo& op, std::span<const c10::IValue> args,
                      std::span<const at::Tensor> results) {
  check_process();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cut_if_due();
    Entry& entry = window_->entries.emplace_back();
    try {
      build_entry(entry, window_->bump, op, args, results);
    } catch (...) {
      entry.release();
      window_->entries.pop_back();
      throw;
    }
    append(entry);
  }
  if (config().blocking.load(std::memory_order_relaxed)) {
    synchronize();
  } else {
    executor_.throttle();
  }
}

void Recorder::record_bytes(c10::intrusive_ptr<DeviceStorage> to,
                            c10::intrusive_ptr<DeviceStorage> from, size_t nbytes) {
  static OpInfo& op = find_op_info("aten::copy_");
  check_process();
  std::lock_guard<std::mutex> lock(mutex_);
  cut_if_due();
  Entry& entry = window_->entries.emplace_back();
  entry.op = &op;
  entry.args = window_->bump.make<c10::IValue>(op.args.size());
  entry.args[2] = false;  // non_blocking
  entry.operands = window_->bump.make<TensorRef>(2);
  reference_bytes(entry.operands[0], window_->bump, std::move(to), nbytes);
  reference_bytes(entry.operands[1], window_->bump, std::move(from), nbytes);
  append(entry);
}

void Recorder::count_host_bytes(size_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  pending_host_bytes_ += nbytes;
}

bool Recorder::is_due(const Entry& entry) {
  const Config& limits = config();
  // Handing over many tensors takes about as long as so many operators.
  operands_ += entry.operands.size() + entry.results.size();
  const size_t operators = std::max(window_->entries.size(), operands_ / kOperandsOfAnOperator);
  const bool too_many = operators >= limits.window_operators;
  const bool reached = too_many || pending_bytes_ >= limits.pending_bytes ||
                       pending_host_bytes_ >= limits.pending_host_bytes;
  const bool exceeded = operators >= 2 * limits.window_operators ||
                        pending_bytes_ >= 2 * limits.pending_bytes ||
                        pending_host_bytes_ >= 2 * limits.pending_host_bytes;
  return cut_.add(fingerprint(entry), reached, exceeded);
}

// By the time of the next operator the program has let go of what it does not need: in `x = x + 1`
// the old `x` goes only when the new one is there.
void Recorder::cut_if_due() {
  if (due_) {
    const bool too_many = pending_bytes_ < config().pending_bytes &&
                          pending_host_bytes_ < config().pending_host_bytes;
    submit(too_many ? FlushReason::operators : FlushReason::memory, /*wake=*/true);
  }
}

void Recorder::submit(FlushReason reason, bool wake) {
  if (window_->entries.empty() && window_->marks.empty()) {
    return;
  }
  if (!window_->entries.empty()) {
    metrics().windows.fetch_add(1, std::memory_order_relaxed);
    metrics().flushes[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
  for (Window::StorageUse& use : window_->storages) {
    use.alive = use.storage->referenced.load(std::memory_order_relaxed);
  }
  executor_.enqueue(std::move(window_), wake);
  window_ = std::make_unique<Window>();
  ++serial_;
  cut_.restart();
  due_ = false;
  operands_ = 0;
  pending_bytes_ = 0;
  pending_host_bytes_ = 0;
}

void Recorder::flush(FlushReason reason) {
  if (in_forked_child()) {  // training on the CPU, it comes here after each step
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  submit(reason, /*wake=*/true);
}

void Recorder::synchronize(FlushReason reason) {
  check_process();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    submit(reason, /*wake=*/false);
  }
  executor_.drain();
}

void Recorder::run_exclusive(FlushReason reason, const std::function<void()>& work) {
  check_process();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    submit(reason, /*wake=*/false);
  }
  executor_.run_exclusive(work);
}

bool Recorder::query() {
  check_process();
  flush(FlushReason::event);
  return executor_.idle();
}

void Recorder::mark(std::shared_ptr<EventMark> mark) {
  check_process();
  std::lock_guard<std::mutex> lock(mutex_);
  window_->marks.push_back(std::move(mark));
  submit(FlushReason::event, /*wake=*/true);
}

}  // namespace torch_shark
