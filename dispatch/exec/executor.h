#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "dispatch/window/window.h"

namespace torch_shark {

// Runs windows in program order, one at a time: on its own thread, or on a thread that waits for
// a small window while nothing else runs.
//
// Locking: `mutex_` guards the queue, its counts, `running_`, `error_` and `thread_`. It is never
// held while a window runs. Whoever sets `running_` owns the exclusive section: the storages'
// buffers and the plans belong to it until it clears the flag. Recorder::mutex_ may be held when
// `mutex_` is taken, never the other way round.
class Executor {
 public:
  static Executor& instance();

  // Takes a window; `wake` starts the thread on it, without it the caller is about to drain().
  void enqueue(std::unique_ptr<Window> window, bool wake);

  // Returns when everything queued so far has run; rethrows the first error since the last drain().
  void drain();

  // drain(), then runs `work` while nothing else can run.
  void run_exclusive(const std::function<void()>& work);

  bool idle() const;

  // Waits while too much is queued, so that a program that never syncs keeps its memory.
  void throttle();

  // Runs what is queued so far and ends the thread; the next window starts it again.
  void stop();

 private:
  Executor() = default;

  void wait_for_turn(std::unique_lock<std::mutex>& lock);
  void begin_turn();
  void finish_turn(std::unique_lock<std::mutex>& lock);
  std::exception_ptr take_error();
  void run_front(std::unique_lock<std::mutex>& lock);
  void run_thread();
  void linger(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<std::unique_ptr<Window>> queue_;
  uint64_t enqueued_ = 0;  // windows, since the process began
  uint64_t finished_ = 0;
  std::atomic<size_t> queued_{0};
  bool running_ = false;
  std::thread::id runner_;  // while `running_`
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace torch_shark
