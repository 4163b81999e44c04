#include "dispatch/device/process.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

namespace torch_shark {
namespace {

std::atomic<bool> forked_child{false};

}  // namespace

void arm_fork_check() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
  });
}

bool in_forked_child() { return forked_child.load(std::memory_order_relaxed); }

void check_process() {
  TORCH_CHECK(!in_forked_child(),
              "Cannot re-initialize shark in forked subprocess. To use shark with multiprocessing, "
              "you must use the 'spawn' start method");
}

}  // namespace torch_shark
