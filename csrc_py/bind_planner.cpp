// The compiler and the IREE runtime, as dispatch/ sees them, over torch_shark.plan.

#include <pybind11/stl.h>
#ifdef __linux__
#include <sched.h>
#endif
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc_py/bindings.h"
#include "csrc_py/gil.h"
#include "csrc_py/window_record.h"
#include "dispatch/device/imports.h"
#include "dispatch/exec/plans.h"

namespace py = pybind11;

namespace torch_shark {
namespace {

// What an Executable's Python side sees of a NativeBuffer. The place `imported` lives and dies with
// the memory, which may come from the pool with one.
class PyBuffer {
 public:
  explicit PyBuffer(c10::intrusive_ptr<NativeBuffer> buffer) : buffer_(std::move(buffer)) {}

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(buffer_->storage.mutable_data()); }
  size_t nbytes() const { return buffer_->storage.nbytes(); }
  py::object imported() const {
    if (!buffer_->imported) {
      buffer_->imported = take_import(buffer_->storage.data(), nbytes());
    }
    auto* object = static_cast<PyObject*>(buffer_->imported.get());
    return object == nullptr ? py::none() : py::reinterpret_borrow<py::object>(object);
  }
  void set_imported(py::object object) {
    buffer_->imported = object.is_none() ? nullptr : keep(std::move(object));
  }

 private:
  c10::intrusive_ptr<NativeBuffer> buffer_;
};

py::list to_buffers(std::span<const c10::intrusive_ptr<NativeBuffer>> buffers) {
  py::list result(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    result[i] = PyBuffer(buffers[i]);
  }
  return result;
}

py::object to_number(const c10::Scalar& value) {
  if (value.isFloatingPoint()) {
    return py::float_(value.toDouble());
  }
  return value.isBoolean() ? py::object(py::bool_(value.toBool()))
                           : py::object(py::int_(value.toLong()));
}

// Called by the interpreter on the main thread.
int raise_pending(void* exception) {
  const auto raised = py::reinterpret_steal<py::object>(static_cast<PyObject*>(exception));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  return -1;
}

// KeyboardInterrupt and SystemExit, which a signal's handler raises on the main thread, are not
// about the code that they stop. They go on once the interpreter has the main thread again.
[[noreturn]] void interrupt(const py::error_already_set& error) {
  if (Py_AddPendingCall(&raise_pending, error.value().inc_ref().ptr()) != 0) {
    error.value().dec_ref();
    PyErr_SetInterrupt();  // too many calls pend: a Ctrl-C gets through always
  }
  throw Interrupted();
}

// Runs Python and turns its exceptions into ones that need no GIL to be copied or dropped.
template <typename Call>
auto with_python(Call call) {
  const GilScope gil;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) {
      interrupt(error);
    }
    throw std::runtime_error(error.what());
  }
}

// Around a wait for IREE. One of its workers wakes the waiting thread first and tidies up then,
// and the thread spins until that is done. Where it takes the worker's core for that, it spins for
// a whole slice of the scheduler's, 3 or 4 ms. A thread under SCHED_BATCH takes no core when it
// wakes.
class WakesGently {
 public:
#ifdef __linux__
  WakesGently() : usual_(sched_getscheduler(0) == SCHED_OTHER) { set(SCHED_BATCH); }
  ~WakesGently() { set(SCHED_OTHER); }
  WakesGently(const WakesGently&) = delete;
  WakesGently& operator=(const WakesGently&) = delete;

 private:
  void set(int policy) const {
    if (usual_) {
      const sched_param none = {};
      sched_setscheduler(0, policy, &none);
    }
  }

  bool usual_;  // else it is somebody's choice
#endif
};

class PyExecutable final : public Executable {
 public:
  explicit PyExecutable(py::object executable) : executable_(keep(std::move(executable))) {}

  std::function<void()> start(std::span<const c10::intrusive_ptr<NativeBuffer>> inputs,
                              std::span<const c10::intrusive_ptr<NativeBuffer>> outputs,
                              std::span<const c10::Scalar> scalars) override {
    return with_python([&]() -> std::function<void()> {
      py::list values(scalars.size());
      for (size_t i = 0; i < scalars.size(); ++i) {
        values[i] = to_number(scalars[i]);
      }
      const py::handle executable(executable_.get());
      py::tuple prepared;
      try {
        prepared = executable.attr("prepare")(to_buffers(inputs), to_buffers(outputs), values);
      } catch (const py::error_already_set&) {
        executable.attr("restart")();
        throw;
      }
      call(prepared[0], prepared[1]);
      return [self = *this, wait = keep(prepared[2])] {
        with_python([&] {
          const WakesGently gently;
          self.call(py::reinterpret_borrow<py::object>(wait.get()), py::tuple());
        });
      };
    });
  }

 private:
  // Straight to a function, which is one of C: no handler of a signal raises in between.
  void call(const py::object& function, const py::object& arguments) const {
    const auto result =
        py::reinterpret_steal<py::object>(PyObject_Call(function.ptr(), arguments.ptr(), nullptr));
    if (!result) {
      const RunFailed failed(py::error_already_set().what());
      py::handle(executable_.get()).attr("restart")();
      throw failed;
    }
  }

  std::shared_ptr<PyObject> executable_;
};

template <typename T>
std::optional<T> to_optional(const py::handle& value) {
  return value.is_none() ? std::nullopt : std::optional(value.cast<T>());
}

std::vector<uint32_t> to_numbers(const py::handle& sequence) {
  std::vector<uint32_t> result;
  for (py::handle each : sequence) {
    result.push_back(each.cast<uint32_t>());
  }
  return result;
}

at::DimVector to_dims(const py::handle& sequence) {
  at::DimVector result;
  for (py::handle each : sequence) {
    result.push_back(each.cast<int64_t>());
  }
  return result;
}

Place to_place(const py::handle& ref) {
  const auto* dtype = reinterpret_cast<THPDtype*>(py::object(ref.attr("dtype")).ptr());
  return {
      .storage = ref.attr("storage").cast<uint32_t>(),
      .geometry = {to_dims(ref.attr("sizes")), to_dims(ref.attr("strides")), dtype->scalar_type},
      .offset = ref.attr("offset").cast<int64_t>(),
  };
}

IndexCheck to_check(const py::handle& step) {
  return {
      .index = to_place(step.attr("ref")),
      .low = step.attr("low").cast<int64_t>(),
      .high = step.attr("high").cast<int64_t>(),
      .ignored = to_optional<int64_t>(step.attr("ignored")),
  };
}

RegionStep to_region(const py::handle& step) {
  RegionStep region{
      .candidates = {},
      .choice = step.attr("choice").cast<std::shared_ptr<Choice>>(),
      .checks = {},
      .entries = to_numbers(step.attr("entries")),
      .outputs = to_numbers(step.attr("outputs")),
      .parts = {},
      .scalars = {},
      .digest = step.attr("digest").cast<std::string>(),
  };
  for (py::handle candidate : step.attr("candidates")) {
    region.candidates.push_back({
        .executable = std::make_shared<PyExecutable>(py::object(candidate.attr("executable"))),
        .inputs = to_numbers(candidate.attr("inputs")),
        .in_place = candidate.attr("in_place").cast<std::vector<bool>>(),
    });
  }
  for (py::handle check : step.attr("checks")) {
    region.checks.push_back(to_check(check));
  }
  for (py::handle part : step.attr("parts")) {
    region.parts.push_back(to_place(part));
  }
  for (py::handle slot : step.attr("scalars")) {
    region.scalars.push_back({slot.attr("entry").cast<uint32_t>(),
                              slot.attr("arg").cast<uint32_t>(),
                              to_optional<uint32_t>(slot.attr("item"))});
  }
  return region;
}

std::shared_ptr<const Plan> to_plan(const py::handle& steps) {
  const py::module_ m = py::module_::import("torch_shark.plan");
  auto plan = std::make_shared<Plan>();
  for (py::handle step : steps) {
    if (py::isinstance(step, m.attr("NativeStep"))) {
      plan->steps.emplace_back(NativeStep{step.attr("entry").cast<uint32_t>()});
    } else {
      plan->steps.emplace_back(to_region(step));
    }
  }
  return plan;
}

// A choice that tells a Python function, or nobody, what was decided, and the microseconds of each
// way.
std::shared_ptr<Choice> make_choice(size_t ways, py::object on_decided) {
  auto choice = std::make_shared<Choice>(ways);
  if (on_decided.is_none()) {
    return choice;
  }
  choice->on_decided = [callable = keep(std::move(on_decided))](
                           size_t way, const std::vector<Choice::Duration>& least) {
    std::vector<double> microseconds;
    for (const Choice::Duration& duration : least) {
      microseconds.push_back(duration.count());
    }
    with_python([&] { py::handle(callable.get())(way, microseconds); });
  };
  return choice;
}

class PyCompiler final : public Compiler {
 public:
  PyCompiler(py::object plan, py::object request)
      : plan_(keep(std::move(plan))), request_(keep(std::move(request))) {}

  std::shared_ptr<const Plan> plan(const Window& window) override {
    return with_python([&] { return to_plan(py::handle(plan_.get())(to_record(window))); });
  }

  void request(const Window& window, const Hash128& key, Width width) override {
    const bool wide = width == Width::wide;
    with_python([&] { py::handle(request_.get())(to_record(window), key, wide); });
  }

 private:
  std::shared_ptr<PyObject> plan_;
  std::shared_ptr<PyObject> request_;
};

}  // namespace

void init_planner(py::module_& m) {
  py::class_<PyBuffer>(m, "NativeBuffer")
      .def_property_readonly("address", &PyBuffer::address)
      .def_property_readonly("nbytes", &PyBuffer::nbytes)
      .def_property("imported", &PyBuffer::imported, &PyBuffer::set_imported);
  py::class_<Hash128>(m, "Signature");
  py::class_<Choice, std::shared_ptr<Choice>>(m, "Choice")
      .def(py::init(&make_choice), py::arg("ways"), py::arg("on_decided") = py::none());
  m.def(
      "set_planner",
      [](const py::object& plan, const py::object& request) {
        set_compiler(std::make_shared<PyCompiler>(plan, request));
      },
      py::arg("plan"), py::arg("request"),
      "Install the functions that make the steps of a WindowRecord, and that begin to make them "
      "for a Signature, narrow or wide.");
  m.def(
      "install_plan",
      [](const Hash128& signature, const py::object& steps, std::shared_ptr<Choice> choice) {
        install_plan(signature, to_plan(steps), std::move(choice));
      },
      py::arg("signature"), py::arg("steps"), py::arg("choice"));
  m.def("remove_planner", [] { set_compiler(nullptr); });
}

}  // namespace torch_shark
