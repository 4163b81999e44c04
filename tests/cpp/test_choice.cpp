// How a choice between ways is made of their times.

#include <map>

#include "dispatch/exec/choice.h"
#include "tests/cpp/check.h"

namespace torch_shark {
namespace {

using Duration = Choice::Duration;

// Takes turns until the choice is made; how many that took. `times` gives each way's, in turn.
size_t turns_until_decided(Choice& choice, const std::vector<std::vector<double>>& times) {
  std::map<size_t, size_t> taken;
  size_t turns = 0;
  while (!choice.is_decided()) {
    const size_t way = choice.next();
    const std::vector<double>& of_way = times[way];
    choice.add(way, Duration(of_way[taken[way]++ % of_way.size()]));
    ++turns;
  }
  return turns;
}

void the_faster_is_kept() {
  Choice choice(2);
  std::vector<Duration> told;
  choice.on_decided = [&](size_t, const std::vector<Duration>& least) { told = least; };
  turns_until_decided(choice, {{100}, {80}});
  CHECK_TRUE(choice.next() == 1);
  CHECK_TRUE(told.size() == 2 && told[0] == Duration(100) && told[1] == Duration(80));
}

void a_small_gain_is_none() {
  Choice choice(3);
  turns_until_decided(choice, {{100}, {99}, {98}});
  CHECK_TRUE(choice.next() == 0);
}

void the_first_turn_of_a_way_does_not_count() {
  Choice choice(2);
  turns_until_decided(choice, {{100}, {900, 50}});
  CHECK_TRUE(choice.next() == 1);
}

void one_disturbed_turn_does_not_decide() {
  Choice choice(2);
  turns_until_decided(choice, {{100}, {90, 240, 90, 90}});
  CHECK_TRUE(choice.next() == 1);
}

void what_is_clearly_slower_is_dropped_early() {
  Choice near(2), far(2);
  CHECK_TRUE(turns_until_decided(far, {{100}, {1000}}) < turns_until_decided(near, {{100}, {105}}));
  CHECK_TRUE(far.next() == 0);
}

void a_way_that_does_not_work_is_left() {
  Choice choice(2);
  turns_until_decided(choice, {{100}, {50}});
  CHECK_TRUE(choice.next() == 1);
  choice.drop(1);
  CHECK_TRUE(choice.is_decided());
  CHECK_TRUE(choice.next() == 0);
}

}  // namespace
}  // namespace torch_shark

int main() {
  using namespace torch_shark;
  the_faster_is_kept();
  a_small_gain_is_none();
  the_first_turn_of_a_way_does_not_count();
  one_disturbed_turn_does_not_decide();
  what_is_clearly_slower_is_dropped_early();
  a_way_that_does_not_work_is_left();
  return 0;
}
