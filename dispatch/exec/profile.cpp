#include "dispatch/exec/profile.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "dispatch/window/recorder.h"

// Kineto's plugin interface for devices came with torch 2.12. Without it a profile has the host's
// events only.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#define USE_KINETO
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#define TORCH_SHARK_KINETO
#endif

namespace torch_shark {

std::atomic<bool> profile::running{false};

namespace {

struct Span {
  StepSpan::Kind kind;
  int32_t origin;
  int64_t start;
  int64_t end;
  std::string name;
};

// What has been seen since the profiler started.
struct Log {
  std::mutex mutex;
  std::vector<Span> spans;
  std::unordered_map<const Window*, std::vector<int32_t>> origins;

  static Log& instance() {
    static auto* log = new Log();  // leaked: the executor may write it until the end
    return *log;
  }
};

// The operators that this thread is inside of, by the profiler's ids.
thread_local std::vector<int32_t> inside;

}  // namespace

int32_t current_origin() { return inside.empty() ? 0 : inside.back(); }

void note_recorded(const Window& window) {
  Log& log = Log::instance();
  std::lock_guard<std::mutex> lock(log.mutex);
  std::vector<int32_t>& ids = log.origins[&window];
  ids.resize(window.entries.size());
  ids.back() = current_origin();
}

WindowOrigins::WindowOrigins(const Window& window) : first_(window.entries.data()) {
  if (profiling()) {
    Log& log = Log::instance();
    std::lock_guard<std::mutex> lock(log.mutex);
    if (const auto found = log.origins.find(&window); found != log.origins.end()) {
      ids_ = std::move(found->second);
      log.origins.erase(found);
    }
  }
}

int32_t WindowOrigins::of(const Entry& entry) const {
  const size_t index = &entry - first_;
  return index < ids_.size() ? ids_[index] : 0;
}

void StepSpan::begin(Kind kind, int32_t origin, std::string name) {
  kind_ = kind;
  origin_ = origin;
  name_ = std::move(name);
  start_ = c10::getTime();
}

void StepSpan::end() {
  const int64_t now = c10::getTime();
  Log& log = Log::instance();
  std::lock_guard<std::mutex> lock(log.mutex);
  log.spans.push_back({kind_, origin_, start_, now, std::move(name_)});
}

namespace {

#ifdef TORCH_SHARK_KINETO

using libkineto::ActivityType;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    Log& log = Log::instance();
    std::lock_guard<std::mutex> lock(log.mutex);
    log.spans.clear();
    log.origins.clear();
    inside.clear();
    profile::running = true;
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    profile::running = false;
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(libkineto::ActivityLogger& logger,
                    libkineto::getLinkedActivityCallback linked_activity, int64_t start,
                    int64_t end) override {
    Log& log = Log::instance();
    std::lock_guard<std::mutex> lock(log.mutex);
    buffer_->span = libkineto::TraceSpan(start, end, "shark");
    for (Span& span : log.spans) {
      if (span.start >= start && span.end <= end) {
        buffer_->emplace_activity(buffer_->span,
                                  span.kind == StepSpan::Kind::device
                                      ? ActivityType::CONCURRENT_KERNEL
                                      : ActivityType::PRIVATEUSE1_RUNTIME,
                                  span.name);
        auto& activity = libkineto::CpuTraceBuffer::toRef(buffer_->activities.back());
        activity.startTime = span.start;
        activity.endTime = span.end;
        activity.id = span.origin;
        activity.linked = span.origin == 0 ? nullptr : linked_activity(span.origin);
        if (activity.linked != nullptr) {
          activity.flow.id = span.origin;
          activity.flow.type = libkineto::kLinkAsyncCpuGpu;
        }
        activity.log(logger);
      }
    }
    log.spans.clear();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(
        libkineto::DeviceInfo{0, libkineto::kExceedMaxPid, "shark", "shark:0"});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {libkineto::ResourceInfo{0, 0, 0, "steps"}};
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::exchange(buffer_, nullptr);
  }

  void pushCorrelationId(uint64_t id) override { inside.push_back(static_cast<int32_t>(id)); }
  void popCorrelationId() override {
    if (!inside.empty()) {
      inside.pop_back();
    }
  }

 private:
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
      std::make_unique<libkineto::CpuTraceBuffer>();
};

class SharkProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "shark";
    return name;
  }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types{ActivityType::CONCURRENT_KERNEL,
                                              ActivityType::PRIVATEUSE1_RUNTIME};
    return types;
  }
  // A profile of the host alone asks for the runtime's calls, but for no kernels.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& /*config*/) override {
    return types.contains(ActivityType::CONCURRENT_KERNEL) ? std::make_unique<Session>() : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t /*start*/, int64_t /*duration*/, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(SharkProfiler);

#endif

// What torch.autograd.profiler.profile(use_device="shark") calls around each operator. An operator
// is only recorded there and runs later, so it has no time of its own on the device to give.
struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device != nullptr) {
      *device = 0;
    }
    *event = std::make_shared<int>();
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* /*start*/,
                const torch::profiler::impl::ProfilerVoidEventStub* /*end*/) const override {
    return 0;
  }
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> visit) const override { visit(0); }
  void synchronize() const override { Recorder::instance().synchronize(); }
};

[[maybe_unused]] const bool stubs_registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs());
  return true;
}();

}  // namespace
}  // namespace torch_shark
