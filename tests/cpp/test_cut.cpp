// Where windows are cut (dispatch/window/cut.h).
#include <cstdint>
#include <vector>

#include "dispatch/window/cut.h"
#include "dispatch/window/hash.h"
#include "tests/cpp/check.h"

namespace torch_shark {
namespace {

constexpr size_t kLimit = 100;

// The lengths of the windows into which a program's operators are cut.
std::vector<size_t> window_lengths(const std::vector<uint64_t>& operators) {
  ContentCut cut;
  std::vector<size_t> lengths;
  size_t length = 0;
  for (uint64_t op : operators) {
    ++length;
    if (cut.add(Hash128::mix(op), length >= kLimit, length >= 2 * kLimit)) {
      lengths.push_back(length);
      length = 0;
      cut.restart();
    }
  }
  return lengths;
}

std::vector<uint64_t> loop(size_t period, size_t count, size_t prologue) {
  std::vector<uint64_t> operators;
  for (size_t i = 0; i < prologue; ++i) {
    operators.push_back(1000000 + i);
  }
  for (size_t i = 0; i < count; ++i) {
    operators.push_back(i % period);
  }
  return operators;
}

void a_loop_gives_equal_windows_of_whole_turns() {
  for (size_t period : {1, 2, 7, 13, 60}) {
    const auto lengths = window_lengths(loop(period, 5000, 0));
    CHECK_TRUE(lengths.size() > 10);
    for (size_t i = 2; i < lengths.size(); ++i) {
      CHECK_EQUAL(lengths[i], lengths[2]);
      CHECK_EQUAL(lengths[i] % period, size_t{0});
      CHECK_TRUE(lengths[i] >= kLimit && lengths[i] < kLimit + period);
    }
  }
}

// Windows begin at the same operator of the loop, whatever came before it.
void the_place_does_not_depend_on_where_the_loop_began() {
  const size_t period = 13;
  std::vector<size_t> phases;
  for (size_t prologue : {0, 1, 5, 50, 99}) {
    const auto lengths = window_lengths(loop(period, 5000, prologue));
    size_t end = 0;
    for (size_t length : lengths) {
      end += length;
    }
    phases.push_back((end - prologue) % period);
  }
  for (size_t phase : phases) {
    CHECK_EQUAL(phase, phases.front());
  }
}

void a_program_without_repetition_is_cut_at_twice_the_limit_at_the_latest() {
  std::vector<uint64_t> operators;
  for (uint64_t i = 0; i < 2000; ++i) {
    operators.push_back(i);
  }
  for (size_t length : window_lengths(operators)) {
    CHECK_TRUE(length >= kLimit && length <= 2 * kLimit);
  }
}

}  // namespace
}  // namespace torch_shark

int main() {
  torch_shark::a_loop_gives_equal_windows_of_whole_turns();
  torch_shark::the_place_does_not_depend_on_where_the_loop_began();
  torch_shark::a_program_without_repetition_is_cut_at_twice_the_limit_at_the_latest();
  return 0;
}
