#include "dispatch/exec/plans.h"

#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace torch_shark {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxWindows = 4096;

// When a compiler is worth its while: the time that a window has taken, all turns together. A wide
// plan takes far longer to compile, and gains on some machines only: it is made when the window has
// run for about as long as that would take.
constexpr auto kWorthCompiling = 500us;
constexpr auto kWorthWidening = 1s;
constexpr auto kWorthWideningEachOperator = 10ms;
// Plans for windows that differ in sizes only; further sizes stay native. The planner bounds what
// it compiles of them.
constexpr uint32_t kMaxSizes = 64;

// What is known of a signature.
struct Known {
  Hash128 key;
  std::shared_ptr<const Ways> ways;
  std::chrono::nanoseconds time{0};  // of all turns
  bool requested = false;
  bool wide_requested = false;
};

// By signature, the least recently used dropped first.
class Plans {
 public:
  static Plans& instance() {
    static auto* plans = new Plans();
    return *plans;
  }

  std::shared_ptr<Compiler> compiler() {
    std::lock_guard<std::mutex> lock(mutex_);
    return compiler_;
  }

  void set_compiler(std::shared_ptr<Compiler> compiler) {
    std::list<Known> dropped;  // plans own Python objects: let go of them without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    compiler_.swap(compiler);
    by_key_.clear();
    families_.clear();
    dropped.swap(recent_);
  }

  std::shared_ptr<const Ways> find(const Hash128& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    Known* known = look_up(key);
    return known == nullptr ? nullptr : known->ways;
  }

  void install(const Hash128& key, std::shared_ptr<const Plan> plan,
               std::shared_ptr<Choice> choice) {
    std::list<Known> dropped;
    std::shared_ptr<const Ways> replaced;
    auto ways = std::make_shared<Ways>();
    std::lock_guard<std::mutex> lock(mutex_);
    Known& known = entry(key, dropped);
    if (known.ways) {
      ways->plans = known.ways->plans;
    }
    ways->plans.push_back(std::move(plan));
    if (choice && choice->ways() != 1 + ways->plans.size()) {
      return;
    }
    ways->choice = std::move(choice);
    replaced = std::exchange(known.ways, std::move(ways));
  }

  void note_run(const Hash128& key, std::chrono::nanoseconds duration) {
    std::list<Known> dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    entry(key, dropped).time += duration;
  }

  // The plan that is to be requested now, if any; each only once.
  std::optional<Width> due(const Hash128& key, const Window& window) {
    std::lock_guard<std::mutex> lock(mutex_);
    Known* known = look_up(key);
    if (known == nullptr) {
      return std::nullopt;
    }
    if (!known->requested && known->time >= kWorthCompiling) {
      known->requested = true;
      return families_[family(window)]++ < kMaxSizes ? std::optional(Width::narrow) : std::nullopt;
    }
    const auto worth = kWorthWidening + window.entries.size() * kWorthWideningEachOperator;
    if (known->ways && !known->wide_requested && known->time >= worth) {
      known->wide_requested = true;
      return Width::wide;
    }
    return std::nullopt;
  }

 private:
  Known* look_up(const Hash128& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) {
      return nullptr;
    }
    recent_.splice(recent_.begin(), recent_, found->second);
    return &recent_.front();
  }

  Known& entry(const Hash128& key, std::list<Known>& dropped) {
    if (Known* known = look_up(key)) {
      return *known;
    }
    if (recent_.size() >= kMaxWindows) {
      by_key_.erase(recent_.back().key);
      dropped.splice(dropped.begin(), recent_, std::prev(recent_.end()));
    }
    recent_.push_front({.key = key, .ways = nullptr});
    by_key_[key] = recent_.begin();
    return recent_.front();
  }

  std::mutex mutex_;
  std::shared_ptr<Compiler> compiler_;
  std::list<Known> recent_;
  std::unordered_map<Hash128, std::list<Known>::iterator> by_key_;
  std::unordered_map<uint64_t, uint32_t> families_;
};

}  // namespace

void set_compiler(std::shared_ptr<Compiler> compiler) {
  Plans::instance().set_compiler(std::move(compiler));
}

std::shared_ptr<const Plan> find_plan(const Window& window) {
  Plans& plans = Plans::instance();
  const std::shared_ptr<Compiler> compiler = plans.compiler();
  if (!compiler) {
    return nullptr;
  }
  const Hash128 key = signature(window);
  if (const std::shared_ptr<const Ways> ways = plans.find(key)) {
    return ways->plans.front();
  }
  std::shared_ptr<const Plan> plan = compiler->plan(window);
  plans.install(key, plan, nullptr);
  return plan;
}

Tried look_for_plans(const Window& window) {
  Plans& plans = Plans::instance();
  const std::shared_ptr<Compiler> compiler = plans.compiler();
  if (!compiler) {
    return {};
  }
  Tried tried{.key = signature(window), .ways = nullptr};
  tried.ways = plans.find(tried.key);
  if (const auto width = plans.due(tried.key, window)) {
    compiler->request(window, tried.key, *width);
  }
  return tried;
}

void note_run(const Hash128& key, std::chrono::nanoseconds duration) {
  Plans::instance().note_run(key, duration);
}

void install_plan(const Hash128& key, std::shared_ptr<const Plan> plan,
                  std::shared_ptr<Choice> choice) {
  Plans::instance().install(key, std::move(plan), std::move(choice));
}

}  // namespace torch_shark
