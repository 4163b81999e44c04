#include "dispatch/exec/choice.h"

#include <algorithm>

namespace torch_shark {

size_t Choice::next() const {
  if (decided_) {
    return *decided_;
  }
  size_t chosen = 0;
  for (size_t way = 0; way < ways_.size(); ++way) {
    if (!ways_[way].dropped && (ways_[chosen].dropped || ways_[way].turns < ways_[chosen].turns)) {
      chosen = way;
    }
  }
  return chosen;
}

void Choice::add(size_t way, Duration duration) {
  if (decided_) {
    return;
  }
  Way& timed = ways_[way];
  if (timed.turns++ > 0) {
    timed.least = std::min(timed.least, duration);
  }
  decide();
}

void Choice::drop(size_t way) {
  ways_[way].dropped = true;
  decided_.reset();
  decide();
}

void Choice::decide() {
  Duration fastest = Duration::max();
  for (const Way& way : ways_) {
    if (!way.dropped) {
      fastest = std::min(fastest, way.least);
    }
  }
  size_t left = 0;
  bool timed = true;
  for (Way& way : ways_) {
    // The more turns, the less a difference can be chance.
    const auto kept = static_cast<double>(way.turns) - 1;
    way.dropped |= kept > 0 && way.least > fastest * (1 + kClear / (kept * kept));
    if (!way.dropped) {
      ++left;
      timed &= way.turns >= kTurns;
    }
  }
  if (left > 1 && !timed) {
    return;
  }
  size_t best = ways_.size();
  for (size_t way = 0; way < ways_.size(); ++way) {
    if (ways_[way].dropped) {
      continue;
    }
    const double gain = best == 0 ? 1 - kMargin : 1;
    if (best == ways_.size() || ways_[way].least < gain * ways_[best].least) {
      best = way;
    }
  }
  if (best == ways_.size()) {
    best = 0;  // nothing else works
  }
  decided_ = best;
  if (on_decided) {
    std::vector<Duration> least;
    for (const Way& way : ways_) {
      least.push_back(way.least);
    }
    on_decided(best, least);
  }
}

}  // namespace torch_shark
