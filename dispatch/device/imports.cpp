#include "dispatch/device/imports.h"

#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "dispatch/device/process.h"

namespace torch_shark {
namespace {

constexpr size_t kMostImports = 4096;

using Import = std::shared_ptr<void>;

struct Kept {
  size_t nbytes;
  Import import;
};

struct Imports {
  std::mutex mutex;
  std::map<const void*, Kept> kept;  // by address
  std::vector<Import> forgotten;
};

Imports& imports() {
  static auto* const instance = new Imports();  // leaked: see Recorder::instance
  return *instance;
}

// Expects the mutex to be held.
void forget(Imports& all, std::map<const void*, Kept>::iterator first,
            std::map<const void*, Kept>::iterator last) {
  for (auto each = first; each != last; ++each) {
    all.forgotten.push_back(std::move(each->second.import));
  }
  all.kept.erase(first, last);
}

}  // namespace

void keep_import(const void* address, size_t nbytes, Import import) {
  if (in_forked_child()) {
    return;
  }
  Imports& all = imports();
  {
    const std::lock_guard lock(all.mutex);
    if (all.kept.size() >= kMostImports) {
      forget(all, all.kept.begin(), all.kept.end());
    }
    Kept& kept = all.kept[address];
    kept.nbytes = nbytes;
    kept.import.swap(import);  // what was there is dropped without the lock
  }
  drop_forgotten_imports();
}

Import take_import(const void* address, size_t nbytes) {
  if (in_forked_child()) {
    return nullptr;
  }
  Imports& all = imports();
  Import import;
  const std::lock_guard lock(all.mutex);
  const auto found = all.kept.find(address);
  if (found != all.kept.end() && found->second.nbytes == nbytes) {
    import = std::move(found->second.import);
    all.kept.erase(found);
  }
  return import;
}

void forget_imports(const void* begin, const void* end) {
  if (in_forked_child()) {
    return;
  }
  Imports& all = imports();
  const std::lock_guard lock(all.mutex);
  forget(all, all.kept.lower_bound(begin), all.kept.lower_bound(end));
}

void drop_forgotten_imports() {
  if (in_forked_child()) {
    return;
  }
  Imports& all = imports();
  std::vector<Import> dropped;
  const std::lock_guard lock(all.mutex);
  dropped.swap(all.forgotten);
}

}  // namespace torch_shark
