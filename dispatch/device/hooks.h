#pragma once

namespace torch_shark {

// Registers the PrivateUse1 hooks under the name "shark". Called once, when the module loads.
void register_hooks();

}  // namespace torch_shark
