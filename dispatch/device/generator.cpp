#include "dispatch/device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/library.h>

#include <atomic>

#include "dispatch/device/native_device.h"
#include "dispatch/device/storage.h"
#include "dispatch/ops/op_info.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

// Seeding is a recorded operator like any other, so that it takes its place in program order
// without a sync.
void seed_native(std::optional<at::Generator> generator, int64_t seed) {
  std::lock_guard<std::mutex> lock(generator->mutex());
  generator->set_current_seed(static_cast<uint64_t>(seed));
}

TORCH_LIBRARY(shark, m) { m.def("seed_(Generator? generator, int seed) -> ()"); }
TORCH_LIBRARY_IMPL(shark, CPU, m) { m.impl("seed_", TORCH_FN(seed_native)); }
TORCH_LIBRARY_IMPL(shark, CUDA, m) { m.impl("seed_", TORCH_FN(seed_native)); }

class SharkGenerator final : public c10::GeneratorImpl {
 public:
  explicit SharkGenerator(at::Generator native)
      : c10::GeneratorImpl(c10::Device(kShark, 0), c10::DispatchKeySet(kSharkKey)),
        native_(std::move(native)),
        seed_(native_.current_seed()) {}

  const at::Generator& native() const { return native_; }

  void set_current_seed(uint64_t seed) override {
    static OpInfo& op = find_op_info("shark::seed_");
    seed_ = seed;
    torch::jit::Stack args{native_, static_cast<int64_t>(seed)};
    Recorder::instance().record(op, args, {});
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    const uint64_t seed = c10::detail::getNonDeterministicRandom();
    set_current_seed(seed);
    return seed;
  }
  // The CPU's generator has no offset; pickling a generator asks for it and sets it again.
  void set_offset(uint64_t offset) override {
    if (native_.device().is_cpu()) {
      TORCH_CHECK(offset == 0, "[shark] expected offset 0: the generator has none, got ", offset);
    } else {
      settled().unsafeGetGeneratorImpl()->set_offset(offset);
    }
  }
  uint64_t get_offset() const override {
    return native_.device().is_cpu() ? 0 : settled().unsafeGetGeneratorImpl()->get_offset();
  }
  void set_state(const c10::TensorImpl& state) override {
    settled().unsafeGetGeneratorImpl()->set_state(state);
    seed_ = native_.current_seed();
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return settled().unsafeGetGeneratorImpl()->get_state();
  }

 private:
  // The native generator after all recorded random operators have drawn from it.
  at::Generator settled() const {
    Recorder::instance().synchronize();
    return native_;
  }
  SharkGenerator* clone_impl() const override { return new SharkGenerator(settled().clone()); }

  at::Generator native_;
  std::atomic<uint64_t> seed_;
};

}  // namespace

at::Generator new_generator() {
  return at::make_generator<SharkGenerator>(
      native_is_cpu() ? at::detail::createCPUGenerator()
                      : at::globalContext()
                            .getAcceleratorHooksInterface(native_device().type())
                            .getNewGenerator(native_device().index()));
}

// A GPU's kernels for dropout and attention take no generator: they draw from its default one, so
// that is ours too. The CPU's default generator is the program's own.
const at::Generator& default_generator() {
  static const at::Generator generator =
      native_is_cpu() ? new_generator()
                      : at::make_generator<SharkGenerator>(
                            at::globalContext().defaultGenerator(native_device()));
  return generator;
}

at::Generator native_generator(const std::optional<at::Generator>& generator) {
  const bool given = generator.has_value() && generator->defined();
  const at::Generator& source = given ? *generator : default_generator();
  TORCH_CHECK(source.device().type() == kShark,
              "Expected a 'shark' device type for generator but found '", source.device().type(),
              "'");
  return static_cast<const SharkGenerator*>(source.unsafeGetGeneratorImpl())->native();
}

}  // namespace torch_shark
