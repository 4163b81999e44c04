// Several threads record, view, write, read, wait, seed and run backward at once (dispatch/,
// native).
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dispatch/config.h"
#include "dispatch/device/hooks.h"
#include "dispatch/device/native_memory.h"
#include "dispatch/device/pool.h"
#include "dispatch/device/storage.h"
#include "dispatch/exec/executor.h"
#include "dispatch/exec/plans.h"
#include "dispatch/ops/register.h"
#include "dispatch/window/recorder.h"
#include "tests/cpp/check.h"

namespace torch_shark {
namespace {

constexpr int kThreads = 4;
const c10::Device kDevice(kShark, 0);

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back(body, number);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

bool same(const at::Tensor& actual, const at::Tensor& expected) {
  return at::equal(actual.cpu(), expected.cpu());
}

// Views, writes through them, copies in both directions, resizing: what one thread's tensors go
// through, on either device.
at::Tensor computed(c10::Device device, int number, int turns) {
  at::Tensor host = at::arange(24, at::kFloat).reshape({4, 6}) + number;
  at::Tensor x = host.to(device);
  at::Tensor sum = at::zeros({6, 4}, at::TensorOptions(device));
  for (int i = 0; i < turns; ++i) {
    at::Tensor y = x * 0.5 + i;
    y.select(0, i % 4).mul_(2);
    y.t().narrow(0, 1, 3).copy_(host.t().narrow(0, i % 3, 3));
    y.index_put_({at::tensor({i % 4}, at::kLong).to(device)}, at::full({}, 1.5).to(device));
    sum.add_(y.t());
    at::Tensor grown = at::empty({2}, at::TensorOptions(device)).fill_(i);
    grown.resize_({4 + i % 3}).slice(0, 2).zero_();
    sum.select(0, i % 6).add_(grown.slice(0, 0, 4));
    at::Tensor shared = at::empty({0}, at::TensorOptions(device));
    shared.set_(sum.storage(), 4, {4}, {1});
    shared.sub_(1);
    if (i % 5 == number % 5) {
      sum.select(0, 0).add_(y.select(0, 0).select(0, 0).item<float>());
    }
    if (i % 7 == 0) {
      Recorder::instance().flush(FlushReason::optimizer);
    }
  }
  return sum.cpu();
}

void each_thread_gets_its_own_values() {
  in_threads([](int number) {
    CHECK_TRUE(same(computed(kDevice, number, 40), computed(c10::kCPU, number, 40)));
  });
}

// One storage that all threads name in their operators, each writing to a row of its own.
void rows_of_one_tensor_are_written_side_by_side() {
  at::Tensor base = at::zeros({kThreads, 8}, at::TensorOptions(kDevice));
  const at::Tensor weight = at::arange(8, at::kFloat).to(kDevice);
  in_threads([&](int number) {
    for (int i = 0; i < 100; ++i) {
      at::Tensor row = base[number];
      row.add_(weight, 1 + number);
      if (i % 10 == number) {
        CHECK_TRUE(row.select(0, 1).item<float>() == static_cast<float>((i + 1) * (1 + number)));
      }
    }
  });
  for (int number = 0; number < kThreads; ++number) {
    CHECK_TRUE(same(base[number], weight * (100.0 * (1 + number))));
  }
}

// Each thread makes what the next one reads and lets go of.
void tensors_move_from_thread_to_thread() {
  struct Box {
    std::mutex mutex;
    std::vector<at::Tensor> tensors;
  };
  std::vector<Box> boxes(kThreads);
  std::atomic<int> read{0};
  in_threads([&](int number) {
    Box& mine = boxes[number];
    Box& next = boxes[(number + 1) % kThreads];
    for (int i = 0; i < 150; ++i) {
      at::Tensor made = at::full({1 + i % 50}, i, at::TensorOptions(kDevice)) + 1;
      {
        std::lock_guard<std::mutex> lock(next.mutex);
        next.tensors.push_back(made);
        next.tensors.push_back(made.slice(0, 0, 1));
      }
      made.reset();
      std::vector<at::Tensor> taken;
      {
        std::lock_guard<std::mutex> lock(mine.mutex);
        taken.swap(mine.tensors);
      }
      for (const at::Tensor& each : taken) {
        read += i % 9 == 0 && each.sum().item<float>() > 0;
      }
    }
  });
  CHECK_TRUE(read > 0);
}

// Autograd's thread of the device records for all callers.
void backward_runs_for_several_callers() {
  const at::Tensor host = at::arange(12, at::kFloat).reshape({3, 4}) / 7;
  const auto gradient = [&](c10::Device device, int number) {
    at::Tensor x = host.to(device).detach().requires_grad_();
    at::Tensor y = x.t().matmul(x).tanh() * (number + 1);
    return torch::autograd::grad({y.sum()}, {x})[0].cpu();
  };
  in_threads([&](int number) {
    const at::Tensor expected = gradient(c10::kCPU, number);
    for (int i = 0; i < 20; ++i) {
      CHECK_TRUE(at::equal(gradient(kDevice, number), expected));
    }
  });
}

// A generator of one's own gives one's own numbers; the default one is shared.
void generators_are_used_side_by_side() {
  const auto drawn = [](c10::Device device, const at::Generator& generator) {
    at::Tensor x = at::empty({8}, at::TensorOptions(device));
    return x.uniform_(0, 1, generator).cpu();
  };
  in_threads([&](int number) {
    at::Generator mine =
        at::globalContext().getAcceleratorHooksInterface(kShark).getNewGenerator(0);
    at::Generator judge = at::globalContext().defaultGenerator(c10::kCPU).clone();
    for (int i = 0; i < 20; ++i) {
      mine.set_current_seed(100 * number + i);
      judge.set_current_seed(100 * number + i);
      CHECK_TRUE(at::equal(drawn(kDevice, mine), drawn(c10::kCPU, judge)));
      at::manual_seed(i);
      at::rand({4}, at::TensorOptions(kDevice));
      mine.get_state();
    }
  });
}

// An error of one thread's operator is raised once, whoever waits, and the others go on.
void an_error_is_raised_once() {
  const at::Tensor table = at::arange(8, at::kFloat).reshape({4, 2}).to(kDevice);
  for (int64_t i : {0, 1}) {
    at::embedding(table, at::tensor({i}).to(kDevice)).cpu();
  }
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> errors{0};
    const at::Tensor bad = at::embedding(table, at::tensor({int64_t{9}}).to(kDevice));
    in_threads([&](int number) {
      for (int i = 0; i < 5; ++i) {
        try {
          CHECK_TRUE(same(table + number, at::arange(8, at::kFloat).reshape({4, 2}) + number));
        } catch (const c10::IndexError&) {
          ++errors;
        }
      }
    });
    CHECK_EQUAL(errors.load(), 1);
  }
}

// Statistics, events and settings that one thread asks for while the others compute.
void others_ask_while_work_goes_on() {
  std::atomic<bool> done{false};
  std::thread asker([&] {
    const c10::impl::VirtualGuardImpl guard(kShark);
    while (!done) {
      void* event = nullptr;
      guard.record(&event, guard.getStream(kDevice), 0, c10::EventFlag::BACKEND_DEFAULT);
      guard.queryEvent(event);
      guard.synchronizeEvent(event);
      guard.destroyEvent(event, 0);
      guard.queryStream(guard.getStream(kDevice));
      cpu_pool().stats();
      config().pending_bytes = config().pending_bytes == 1024 ? size_t{1} << 30 : 1024;
      cpu_pool().empty_cache();
    }
  });
  each_thread_gets_its_own_values();
  done = true;
  asker.join();
  config().pending_bytes = size_t{1} << 30;
}

// Plans every operator as a native step: plans are made, remembered and replaced by all threads.
class PlainCompiler final : public Compiler {
 public:
  std::shared_ptr<const Plan> plan(const Window& window) override {
    auto plan = std::make_shared<Plan>();
    for (uint32_t i = 0; i < window.entries.size(); ++i) {
      plan->steps.emplace_back(NativeStep{i});
    }
    return plan;
  }
  void request(const Window& window, const Hash128& key, Width width) override {
    install_plan(key, plan(window), std::make_shared<Choice>(width == Width::narrow ? 2 : 3));
  }
};

void windows_are_planned_for_all() {
  set_compiler(std::make_shared<PlainCompiler>());
  for (const Policy policy : {Policy::iree, Policy::automatic}) {
    config().policy = policy;
    each_thread_gets_its_own_values();
    rows_of_one_tensor_are_written_side_by_side();
    an_error_is_raised_once();
  }
  config().policy = Policy::native;
  set_compiler(nullptr);
}

// The executor's thread ends and starts anew under threads that record.
void the_executor_is_stopped_and_starts_again() {
  in_threads([](int number) {
    for (int i = 0; i < 10; ++i) {
      CHECK_TRUE(same(computed(kDevice, number, 5), computed(c10::kCPU, number, 5)));
      if (number == 0) {
        Executor::instance().stop();
      }
    }
  });
}

}  // namespace
}  // namespace torch_shark

int main() {
  using namespace torch_shark;
  install_native_memory();
  register_hooks();
  register_operators();
  config().window_operators = 16;  // windows end while others record
  each_thread_gets_its_own_values();
  rows_of_one_tensor_are_written_side_by_side();
  tensors_move_from_thread_to_thread();
  backward_runs_for_several_callers();
  generators_are_used_side_by_side();
  an_error_is_raised_once();
  others_ask_while_work_goes_on();
  windows_are_planned_for_all();
  the_executor_is_stopped_and_starts_again();
  Executor::instance().stop();
  return 0;
}
