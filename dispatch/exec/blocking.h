#pragma once

namespace torch_shark {

// Around every wait, and every window run on a thread that waits for it: gives up the GIL if this
// thread holds it, since what is waited for may need it. `dispatch/` knows no Python, so csrc_py
// installs the two functions; without them nothing is released.
struct BlockingHooks {
  void* (*release)() = nullptr;  // returns what `acquire` needs, or nullptr
  void (*acquire)(void*) = nullptr;
};

void set_blocking_hooks(BlockingHooks hooks);

class BlockingScope {
 public:
  BlockingScope();
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

 private:
  void* released_;
};

}  // namespace torch_shark
