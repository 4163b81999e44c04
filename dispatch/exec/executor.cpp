#include "dispatch/exec/executor.h"

#include <c10/util/thread_name.h>

#include <chrono>
#include <utility>

#include "dispatch/device/native_device.h"
#include "dispatch/device/process.h"
#include "dispatch/exec/blocking.h"
#include "dispatch/exec/failures.h"
#include "dispatch/exec/run_window.h"
#include "dispatch/metrics.h"

namespace torch_shark {
namespace {

// Handing a window to the thread costs about as much as replaying so many operators.
constexpr size_t kInlineOperators = 64;
constexpr size_t kMaxQueuedWindows = 16;
constexpr auto kLinger = std::chrono::microseconds(200);

}  // namespace

Executor& Executor::instance() {
  static auto* executor = new Executor();  // leaked: see Recorder::instance
  return *executor;
}

void Executor::enqueue(std::unique_ptr<Window> window, bool wake) {
  arm_fork_check();
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(window));
  ++enqueued_;
  queued_.store(queue_.size(), std::memory_order_relaxed);
  if (wake || queue_.back()->entries.size() > kInlineOperators) {
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run_thread(); });
    }
    work_.notify_one();
  }
}

void Executor::run_front(std::unique_lock<std::mutex>& lock) {
  std::unique_ptr<Window> window = std::move(queue_.front());
  queue_.pop_front();
  queued_.store(queue_.size(), std::memory_order_relaxed);
  begin_turn();
  lock.unlock();
  std::exception_ptr error = run_window(*window);
  window.reset();
  lock.lock();
  if (error && !error_) {
    error_ = std::move(error);
  }
  ++finished_;
  finish_turn(lock);
}

void Executor::begin_turn() {
  running_ = true;
  runner_ = std::this_thread::get_id();
}

void Executor::finish_turn(std::unique_lock<std::mutex>& /*held*/) {
  running_ = false;
  done_.notify_all();
  if (!queue_.empty()) {
    work_.notify_one();
  }
}

// What others enqueue meanwhile is not waited for: a thread that never rests would hold up all.
void Executor::wait_for_turn(std::unique_lock<std::mutex>& lock) {
  TORCH_CHECK(
      !running_ || runner_ != std::this_thread::get_id(),
      "[shark] expected an operator's native kernel to use native tensors, but it waits for "
      "the shark device, which waits for it");
  const uint64_t last = enqueued_;
  while (running_ || finished_ < last) {
    if (!running_ && (queue_.front()->entries.size() <= kInlineOperators || !thread_.joinable())) {
      metrics().inline_windows.fetch_add(1, std::memory_order_relaxed);
      run_front(lock);
    } else {
      done_.wait(lock);
    }
  }
}

// The caller is about to raise it; nothing runs.
std::exception_ptr Executor::take_error() {
  if (error_) {
    forget_failed_writes();
  }
  return std::exchange(error_, nullptr);
}

void Executor::drain() {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  std::exception_ptr error;
  {
    BlockingScope blocking;
    lock.lock();
    wait_for_turn(lock);
    error = take_error();
    lock.unlock();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void Executor::run_exclusive(const std::function<void()>& work) {
  std::exception_ptr error;
  {
    BlockingScope blocking;
    std::unique_lock<std::mutex> lock(mutex_);
    wait_for_turn(lock);
    error = take_error();
    if (!error) {
      begin_turn();
      lock.unlock();
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      finish_turn(lock);
    }
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

bool Executor::idle() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !running_ && queue_.empty();
}

void Executor::throttle() {
  if (queued_.load(std::memory_order_relaxed) <= kMaxQueuedWindows) {
    return;
  }
  BlockingScope blocking;
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return queue_.size() <= kMaxQueuedWindows; });
}

void Executor::stop() {
  if (in_forked_child()) {
    return;
  }
  BlockingScope blocking;
  std::unique_lock<std::mutex> lock(mutex_);
  wait_for_turn(lock);
  if (thread_.joinable()) {
    std::thread ending = std::move(thread_);
    work_.notify_all();
    lock.unlock();
    ending.join();
  }
}

// Over a GPU windows are small and come every few hundred microseconds: falling asleep and being
// woken would cost as much as a window. On the CPU a thread that spins takes a core from kernels.
void Executor::linger(std::unique_lock<std::mutex>& lock) {
  if (native_is_cpu()) {
    return;
  }
  lock.unlock();
  const auto end = std::chrono::steady_clock::now() + kLinger;
  while (queued_.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < end) {
  }
  lock.lock();
}

void Executor::run_thread() {
  c10::setThreadName("shark_executor");
  std::unique_lock<std::mutex> lock(mutex_);
  // Another thread may have taken its place by the time that it learns that it was dismissed.
  const auto dismissed = [this] { return thread_.get_id() != std::this_thread::get_id(); };
  while (true) {
    linger(lock);
    work_.wait(lock, [&] { return dismissed() || (!running_ && !queue_.empty()); });
    if (dismissed()) {
      return;
    }
    run_front(lock);
  }
}

}  // namespace torch_shark
