#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "dispatch/metrics.h"
#include "dispatch/window/cut.h"
#include "dispatch/window/window.h"

namespace torch_shark {

class Executor;

// The device's window under construction.
//
// Locking: `mutex_` guards the window, the cut and the storages' window_* fields, and is held while
// a finished window is put into the executor's queue, which keeps program order among threads. It
// is never held while anything runs, waits, or could take the GIL.
class Recorder {
 public:
  static Recorder& instance();

  // Appends an operator. `args` in schema order; `results` are its fresh results, lists flattened.
  void record(OpInfo& op, std::span<const c10::IValue> args, std::span<const at::Tensor> results);

  // Appends a copy of the first `nbytes` bytes of one storage to another.
  void record_bytes(c10::intrusive_ptr<DeviceStorage> to, c10::intrusive_ptr<DeviceStorage> from,
                    size_t nbytes);

  // Counts bytes of host memory that recorded operators hold on to.
  void count_host_bytes(size_t nbytes);

  // Ends the window and sends it off; returns at once.
  void flush(FlushReason reason);
  // flush, then waits until all work is done; rethrows the first error of recorded operators.
  void synchronize(FlushReason reason = FlushReason::sync);
  // synchronize(), then runs `work` on this thread while nothing else can run.
  void run_exclusive(FlushReason reason, const std::function<void()>& work);
  // Whether all work recorded so far has been run; sends it off if it was not.
  bool query();
  void mark(std::shared_ptr<EventMark> mark);

 private:
  Recorder();

  void append(Entry& entry);
  void name_storage(TensorRef& ref);
  void submit(FlushReason reason, bool wake);
  void cut_if_due();
  bool is_due(const Entry& entry);

  Executor& executor_;
  std::mutex mutex_;
  std::unique_ptr<Window> window_;
  uint64_t serial_ = 1;
  ContentCut cut_;
  bool due_ = false;     // the window ends before the next operator
  size_t operands_ = 0;  // of all operators of the window
  size_t pending_bytes_ = 0;
  size_t pending_host_bytes_ = 0;
};

}  // namespace torch_shark
