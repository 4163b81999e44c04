#pragma once

#include <optional>
#include <string>

#include "dispatch/device/storage.h"

namespace torch_shark {

// What is wrong with a compiled result, or nothing: how far it is from what native replay left in
// the storage. Integers and bools have to be equal; floats may differ by their dtype's tolerance,
// taken of the largest that is finite, and are equal where they are not.
std::optional<std::string> difference(DeviceStorage& storage, const NativeBuffer& compiled);

}  // namespace torch_shark
