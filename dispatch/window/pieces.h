#pragma once

#include <cstddef>
#include <vector>

#include "dispatch/device/storage.h"

namespace torch_shark {

struct TensorRef;
struct Window;

// The part of a storage that a window is planned over, in bytes, as if it were a storage itself.
struct Piece {
  size_t offset;
  size_t nbytes;
  Geometry base;
};

// The piece of each of the window's storages, by number: all of it, unless the window only reads
// one dense piece of it. Then one plan serves for all such pieces, wherever they lie: batches that
// are cut out of one large tensor, rows of a table.
std::vector<Piece> find_pieces(const Window& window);

// Where a reference of the window begins in its storage's piece, in elements.
int64_t offset_in_piece(const Window& window, const TensorRef& ref);

}  // namespace torch_shark
