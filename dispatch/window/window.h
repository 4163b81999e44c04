#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <span>
#include <vector>

#include "dispatch/device/event.h"
#include "dispatch/device/storage.h"
#include "dispatch/ops/op_info.h"
#include "dispatch/window/pieces.h"

namespace torch_shark {

// Memory for the entries of one window, given back as a whole. Entries are built in place: moving
// them costs more than recording them.
class Bump {
 public:
  template <typename T>
  std::span<T> make(size_t count) {
    if (count == 0) {
      return {};
    }
    T* first = static_cast<T*>(allocate(count * sizeof(T)));
    std::uninitialized_value_construct_n(first, count);
    return {first, count};
  }

 private:
  static constexpr size_t kFirstChunk = size_t{2} << 10;
  static constexpr size_t kLargestChunk = size_t{64} << 10;
  void* allocate(size_t nbytes);

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t used_ = 0;
  size_t size_ = 0;
};

// One operand or result of a recorded operator.
struct TensorRef {
  c10::intrusive_ptr<DeviceStorage> storage;  // null for a host operand or an absent one
  at::Tensor host;                            // a 0-d CPU operand; else undefined
  std::span<int64_t> dims;                    // sizes, then strides
  int64_t offset = 0;                         // elements
  uint32_t number = 0;                        // of the storage in its window, by first use
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool conj = false;
  bool neg = false;

  c10::IntArrayRef sizes() const { return {dims.data(), dims.size() / 2}; }
  c10::IntArrayRef strides() const { return {dims.data() + dims.size() / 2, dims.size() / 2}; }
};

// One recorded operator.
struct Entry {
  OpInfo* op = nullptr;
  // Arguments in schema order; a tensor is None here and a tensor list its length (None if absent).
  std::span<c10::IValue> args;
  std::span<TensorRef> operands;  // the tensors of `args`, lists flattened
  std::span<TensorRef> results;   // fresh results only, lists flattened

  // The operands that argument `index` stands for: one, those of a list, or none.
  std::span<TensorRef> operands_of(size_t index) const;

  // Lets go of all storages and arguments; the entry is done.
  void release();
};

// Makes the entry of a call. `args` in schema order; `results` are the fresh ones, lists flattened.
// Storages get no numbers yet.
void build_entry(Entry& entry, Bump& bump, OpInfo& op, std::span<const c10::IValue> args,
                 std::span<const at::Tensor> results);

// A reference to the first `nbytes` bytes of a storage.
void reference_bytes(TensorRef& ref, Bump& bump, c10::intrusive_ptr<DeviceStorage> storage,
                     size_t nbytes);

// Operators recorded since the last flush, in order, and what the signature needs to know.
struct Window {
  struct StorageUse {
    DeviceStorage* storage;  // kept alive by the entries
    bool born;               // held nothing before this window
    bool alive;              // someone can still read it afterwards (set at the flush)
  };

  ~Window();

  Bump bump;
  std::vector<Entry> entries;
  std::vector<StorageUse> storages;               // by TensorRef::number
  std::vector<Piece> pieces;                      // likewise, once a plan is looked for
  std::vector<std::shared_ptr<EventMark>> marks;  // stamped when the window has run
};

}  // namespace torch_shark
