#include "dispatch/device/stream.h"

#include <ATen/SequenceNumber.h>

#include <atomic>

#include "dispatch/device/storage.h"

namespace torch_shark {
namespace {

thread_local c10::StreamId current = 0;

c10::Stream stream_of(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kShark, 0), id);
}

// Autograd adds gradients up in the order in which nodes were made, which it tells by numbers that
// each thread counts for itself. The CPU's backward runs in the thread that called it; that of a
// device has its own thread, so the nodes of a second backward would be numbered anew, and sums
// would round otherwise than on the CPU. PyTorch asks for the stream whenever it makes a node, and
// sets it before it runs one: then this thread's count is brought up to the highest of all.
void order_with_other_threads() {
  static std::atomic<uint64_t> highest{0};
  const uint64_t mine = at::sequence_number::peek();
  uint64_t seen = highest.load(std::memory_order_relaxed);
  while (seen < mine && !highest.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) {
  }
  for (uint64_t behind = mine; behind < seen; ++behind) {
    at::sequence_number::get_and_increment();
  }
}

}  // namespace

c10::Stream current_stream() {
  order_with_other_threads();
  return stream_of(current);
}

c10::Stream exchange_stream(c10::Stream stream) {
  order_with_other_threads();
  return stream_of(std::exchange(current, stream.id()));
}

c10::Stream new_stream() {
  static std::atomic<c10::StreamId> next{1};
  return stream_of(next.fetch_add(1));
}

}  // namespace torch_shark
