#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torch_shark {

// native: never compile. iree: compile all that can be compiled, and wait for it. automatic:
// compile in the background, and keep what is faster.
enum class Policy { native, iree, automatic };

// What dispatch/ reads of torch_shark.config; csrc_py keeps it up to date.
struct Config {
  std::atomic<Policy> policy{Policy::native};
  // Names the policy and what else the planner reads: windows under other settings have other
  // plans.
  std::atomic<uint64_t> settings{0};
  std::atomic<int> debug{0};
  // Each operator has run when the call returns, so that its error is raised there.
  std::atomic<bool> blocking{false};
  // Each region runs natively too, and an error tells where the values are others.
  std::atomic<bool> verify{false};
  // What torch.set_num_threads was told; 0 if nothing. OpenMP keeps it per thread, and operators
  // run on the executor's and on autograd's threads too.
  std::atomic<int> native_threads{0};
  // A window ends at the first repeat of its content after so many operators ...
  std::atomic<size_t> window_operators{4096};
  // ... or after results of so many bytes, or so many bytes copied from the host.
  std::atomic<size_t> pending_bytes{size_t{1} << 30};
  std::atomic<size_t> pending_host_bytes{size_t{128} << 20};
};

Config& config();

}  // namespace torch_shark
