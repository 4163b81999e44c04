#pragma once

namespace torch_shark {

// The executor's thread does not survive fork(), so a child process must not use the device.
// `arm_fork_check` marks this process as having used it; afterwards a forked child gets an error.
void arm_fork_check();
bool in_forked_child();

// Raises if this process was forked from one that had used the device.
void check_process();

}  // namespace torch_shark
