#include "dispatch/exec/plans.h"

#include <list>
#include <mutex>
#include <unordered_map>

namespace torch_shark {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxWindows = 4096;

// When a compiler is worth its while: the time that a window has taken natively, all turns
// together.
constexpr auto kWorthCompiling = 500us;
// Plans for windows that differ in sizes only; further sizes stay native. The planner bounds what
// it compiles of them.
constexpr uint32_t kMaxSizes = 64;

// What is known of a signature.
struct Known {
  Hash128 key;
  std::shared_ptr<const Plan> plan;
  std::chrono::nanoseconds native_time{0};  // of all turns without a plan
  bool requested = false;
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

  std::shared_ptr<const Plan> find(const Hash128& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    Known* known = look_up(key);
    return known == nullptr ? nullptr : known->plan;
  }

  void install(const Hash128& key, std::shared_ptr<const Plan> plan) {
    std::list<Known> dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    entry(key, dropped).plan.swap(plan);
  }

  void note_native_run(const Hash128& key, std::chrono::nanoseconds duration) {
    std::list<Known> dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    entry(key, dropped).native_time += duration;
  }

  // Whether a plan is to be requested now; true only once.
  bool is_due(const Hash128& key, const Window& window) {
    std::lock_guard<std::mutex> lock(mutex_);
    Known* known = look_up(key);
    if (known == nullptr || known->requested || known->native_time < kWorthCompiling) {
      return false;
    }
    known->requested = true;
    return families_[family(window)]++ < kMaxSizes;
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
    recent_.push_front({.key = key, .plan = nullptr});
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
  std::shared_ptr<const Plan> plan = plans.find(key);
  if (!plan) {
    plan = compiler->plan(window);
    plans.install(key, plan);
  }
  return plan;
}

Tried look_for_plan(const Window& window) {
  Plans& plans = Plans::instance();
  const std::shared_ptr<Compiler> compiler = plans.compiler();
  if (!compiler) {
    return {};
  }
  Tried tried{.key = signature(window), .plan = nullptr};
  tried.plan = plans.find(tried.key);
  if (!tried.plan && plans.is_due(tried.key, window)) {
    compiler->request(window, tried.key);
  }
  return tried;
}

void note_native_run(const Hash128& key, std::chrono::nanoseconds duration) {
  Plans::instance().note_native_run(key, duration);
}

void install_plan(const Hash128& key, std::shared_ptr<const Plan> plan) {
  Plans::instance().install(key, std::move(plan));
}

}  // namespace torch_shark
