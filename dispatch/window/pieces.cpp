#include "dispatch/window/pieces.h"

#include <algorithm>

#include "dispatch/window/window.h"

namespace torch_shark {
namespace {

size_t count(const TensorRef& ref) {
  size_t result = 1;
  for (const int64_t size : ref.sizes()) {
    result *= size;
  }
  return result;
}

// Whether it names each element of its range once.
bool is_dense(const TensorRef& ref) {
  c10::SmallVector<std::pair<int64_t, int64_t>, 5> dims;  // strides and sizes
  for (size_t i = 0; i < ref.sizes().size(); ++i) {
    if (ref.sizes()[i] != 1) {
      dims.emplace_back(ref.strides()[i], ref.sizes()[i]);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

bool are_of_one_piece(const TensorRef& one, const TensorRef& other) {
  return one.offset == other.offset && one.dtype == other.dtype && count(one) == count(other);
}

// What is known of a storage on the way through the window.
struct Reading {
  const TensorRef* first = nullptr;
  bool in_one_piece = true;
};

std::vector<Reading> read(const Window& window) {
  std::vector<Reading> readings(window.storages.size());
  for (const Entry& entry : window.entries) {
    for (size_t i = 0; entry.op->writes && i < entry.op->args.size(); ++i) {
      if (entry.op->args[i].written) {
        for (const TensorRef& ref : entry.operands_of(i)) {
          if (ref.storage) {
            readings[ref.number].in_one_piece = false;
          }
        }
      }
    }
    for (const TensorRef& ref : entry.operands) {
      if (!ref.storage || !readings[ref.number].in_one_piece) {
        continue;
      }
      Reading& reading = readings[ref.number];
      reading.first = reading.first == nullptr ? &ref : reading.first;
      reading.in_one_piece = are_of_one_piece(*reading.first, ref) && is_dense(ref);
    }
  }
  return readings;
}

}  // namespace

std::vector<Piece> find_pieces(const Window& window) {
  const std::vector<Reading> readings = read(window);
  std::vector<Piece> pieces;
  pieces.reserve(window.storages.size());
  for (size_t i = 0; i < window.storages.size(); ++i) {
    const Window::StorageUse& use = window.storages[i];
    const TensorRef* ref = readings[i].first;
    Piece& piece = pieces.emplace_back(Piece{0, use.storage->nbytes, use.storage->base});
    if (use.born || ref == nullptr || !readings[i].in_one_piece || ref->dtype != piece.base.dtype) {
      continue;
    }
    const size_t itemsize = c10::elementSize(ref->dtype);
    const size_t nbytes = count(*ref) * itemsize;
    if (nbytes != 0 && nbytes < piece.nbytes) {
      piece = {ref->offset * itemsize,
               nbytes,
               {at::DimVector(ref->sizes()), at::DimVector(ref->strides()), ref->dtype}};
    }
  }
  return pieces;
}

int64_t offset_in_piece(const Window& window, const TensorRef& ref) {
  const size_t skipped = window.pieces[ref.number].offset / c10::elementSize(ref.dtype);
  return ref.offset - static_cast<int64_t>(skipped);
}

}  // namespace torch_shark
