#include "dispatch/exec/blocking.h"

namespace torch_shark {
namespace {

BlockingHooks installed;

}  // namespace

void set_blocking_hooks(BlockingHooks hooks) { installed = hooks; }

BlockingScope::BlockingScope()
    : released_(installed.release == nullptr ? nullptr : installed.release()) {}

BlockingScope::~BlockingScope() {
  if (released_ != nullptr) {
    installed.acquire(released_);
  }
}

}  // namespace torch_shark
