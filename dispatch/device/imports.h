// What the IREE runtime made of pooled memory, kept while nobody uses that memory, so that a loop
// whose results come and go imports nothing anew.
//
// Lifetime and locking: an import is kept from the end of the NativeBuffer that has it until
// another over the same bytes takes it, or the pool gives the memory back; then it is dropped as
// soon as somebody comes by who holds no lock, for to drop it may take the GIL. Its addresses stay
// the pool's until then. All functions are thread-safe; a forked child keeps and finds nothing.
#pragma once

#include <cstddef>
#include <memory>

namespace torch_shark {

void keep_import(const void* address, size_t nbytes, std::shared_ptr<void> import);
// nullptr if none is kept for just these bytes.
std::shared_ptr<void> take_import(const void* address, size_t nbytes);

// Called by the pool before it gives memory back; drops nothing yet.
void forget_imports(const void* begin, const void* end);
void drop_forgotten_imports();

}  // namespace torch_shark
