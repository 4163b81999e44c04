#include "dispatch/exec/overlaps.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace torch_shark {

bool has_overlaps(const Window& window) {
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  for (const Window::StorageUse& use : window.storages) {
    const auto& buffer = use.storage->buffer;
    // Memory that someone else uses too is counted twice at least, lent or borrowed.
    if (buffer && buffer->storage.use_count() > 1 && buffer->storage.nbytes() > 0) {
      const auto* first = static_cast<const std::byte*>(buffer->storage.data());
      ranges.emplace_back(first, first + buffer->storage.nbytes());
    }
  }
  std::sort(ranges.begin(), ranges.end());
  return std::adjacent_find(ranges.begin(), ranges.end(), [](const auto& one, const auto& next) {
           return next.first < one.second;
         }) != ranges.end();
}

}  // namespace torch_shark
