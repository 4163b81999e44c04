#include "csrc_py/window_record.h"

#include <pybind11/complex.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace torch_shark {
namespace {

// The classes of torch_shark.record, looked up once.
struct RecordTypes {
  py::object tensor_ref, host_scalar, entry, storage_info, window_record;

  static const RecordTypes& get() {
    // Leaked: destroying Python objects after the interpreter would crash.
    static const auto* types = [] {
      py::module_ m = py::module_::import("torch_shark.record");
      return new RecordTypes{m.attr("TensorRef"), m.attr("HostScalar"), m.attr("Entry"),
                             m.attr("StorageInfo"), m.attr("WindowRecord")};
    }();
    return *types;
  }
};

py::object to_dtype(c10::ScalarType type) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
}

py::tuple to_tuple(c10::IntArrayRef values) {
  py::tuple result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    result[i] = values[i];
  }
  return result;
}

py::object to_number(const c10::Scalar& value) {
  if (value.isBoolean()) {
    return py::bool_(value.toBool());
  }
  if (value.isIntegral(/*includeBool=*/false)) {
    return py::int_(value.toLong());
  }
  if (value.isComplex()) {
    return py::cast(std::complex<double>(value.toComplexDouble()));
  }
  return py::float_(value.toDouble());
}

py::object to_operand(const Window& window, const TensorRef& ref) {
  const RecordTypes& types = RecordTypes::get();
  if (ref.storage) {
    return types.tensor_ref(ref.number, to_dtype(ref.dtype), to_tuple(ref.sizes()),
                            to_tuple(ref.strides()), offset_in_piece(window, ref), ref.conj,
                            ref.neg);
  }
  if (!ref.host.defined()) {
    return py::none();
  }
  return types.host_scalar(to_number(ref.host.item()), to_dtype(ref.host.scalar_type()),
                           ref.host.unsafeGetTensorImpl()->is_wrapped_number());
}

py::object to_value(const c10::IValue& value) {
  if (value.isNone()) {
    return py::none();
  }
  if (value.isDouble()) {
    return py::float_(value.toDouble());
  }
  if (value.isInt()) {
    return py::int_(value.toInt());
  }
  if (value.isBool()) {
    return py::bool_(value.toBool());
  }
  if (value.isComplexDouble()) {
    return py::cast(std::complex<double>(value.toComplexDouble()));
  }
  if (value.isString()) {
    return py::str(value.toStringRef());
  }
  if (value.isGenerator()) {
    return py::str("generator");
  }
  if (value.isDevice()) {
    return py::str(value.toDevice().str());
  }
  TORCH_CHECK(value.isList(), "[shark] expected an argument that a record can hold, got ",
              value.tagKind());
  const auto elements = value.toListRef();
  py::list list(elements.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    list[i] = to_value(elements[i]);
  }
  return list;
}

py::object to_argument(const Window& window, const Entry& entry, size_t index) {
  const auto refs = entry.operands_of(index);
  if (entry.op->args[index].kind == ArgKind::tensor) {
    return to_operand(window, refs.front());
  }
  if (entry.op->args[index].kind == ArgKind::tensor_list && !entry.args[index].isNone()) {
    py::list list(refs.size());
    for (size_t i = 0; i < refs.size(); ++i) {
      list[i] = to_operand(window, refs[i]);
    }
    return list;
  }
  return to_value(entry.args[index]);
}

py::object to_entry(const Window& window, const Entry& entry) {
  py::tuple args(entry.args.size());
  for (size_t i = 0; i < entry.args.size(); ++i) {
    args[i] = to_argument(window, entry, i);
  }
  py::tuple outputs(entry.results.size());
  for (size_t i = 0; i < entry.results.size(); ++i) {
    outputs[i] = to_operand(window, entry.results[i]);
  }
  return RecordTypes::get().entry(entry.op->name, args, outputs);
}

}  // namespace

py::object to_record(const Window& window) {
  py::tuple entries(window.entries.size());
  for (size_t i = 0; i < window.entries.size(); ++i) {
    entries[i] = to_entry(window, window.entries[i]);
  }
  const RecordTypes& types = RecordTypes::get();
  py::tuple storages(window.storages.size());
  for (size_t i = 0; i < window.storages.size(); ++i) {
    const Window::StorageUse& use = window.storages[i];
    const Geometry& base = window.pieces[i].base;
    storages[i] =
        types.storage_info(window.pieces[i].nbytes, to_dtype(base.dtype), to_tuple(base.sizes),
                           to_tuple(base.strides), use.born, use.alive);
  }
  return types.window_record(entries, storages);
}

}  // namespace torch_shark
