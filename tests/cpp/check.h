// Checks for the plain C++ test programs: a failed one prints where and what, and the program ends.
#pragma once

#include <cstdlib>
#include <iostream>

#define CHECK_TRUE(condition)                                                 \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #condition << "\n"; \
      std::abort();                                                           \
    }                                                                         \
  } while (false)

#define CHECK_EQUAL(left, right)                                                                \
  do {                                                                                          \
    const auto left_value = (left);                                                             \
    const auto right_value = (right);                                                           \
    if (!(left_value == right_value)) {                                                         \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #left << " == " << #right << ", got " \
                << left_value << " and " << right_value << "\n";                                \
      std::abort();                                                                             \
    }                                                                                           \
  } while (false)
