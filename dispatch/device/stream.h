#pragma once

#include <c10/core/Stream.h>

namespace torch_shark {

// Streams are names only: all of them feed the device's one in-order queue, which satisfies every
// ordering that a program can ask for. Ids are handed out so that streams compare as expected.
c10::Stream current_stream();
c10::Stream exchange_stream(c10::Stream stream);
c10::Stream new_stream();

// Waits until all work is done; rethrows the first error of recorded operators.
void synchronize_device();

}  // namespace torch_shark
