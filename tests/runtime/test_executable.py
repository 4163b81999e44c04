"""Values of every element type, the calling convention, and errors of loading and calling."""

import threading
from dataclasses import replace

import pytest
import torch

from torch_shark.errors import ExecutableLoadError
from torch_shark.lowering.interface import BufferType, RegionInterface
from torch_shark.runtime import Executable, ExecutableRunError

# name: torch dtype, torch dialect type, type of the output, its code in torch, IREE types.
TYPES = {
    "f32": (torch.float32, "f32", "f32", None, "FLOAT_32", "FLOAT_32"),
    "f64": (torch.float64, "f64", "f64", None, "FLOAT_64", "FLOAT_64"),
    "f16": (torch.float16, "f16", "f16", None, "FLOAT_16", "FLOAT_16"),
    "bf16": (torch.bfloat16, "bf16", "bf16", None, "BFLOAT_16", "BFLOAT_16"),
    "i64": (torch.int64, "si64", "f64", 7, "SINT_64", "FLOAT_64"),
    "i32": (torch.int32, "si32", "f32", 6, "SINT_32", "FLOAT_32"),
}
SHAPE = (3, 5)


def multiply(name):
    """MLIR of a function o = a * b; integers are written as floats of their width, bit for bit."""
    _, inner, outer, code, _, _ = TYPES[name]
    value, written = f"!torch.vtensor<[3,5],{inner}>", f"!torch.vtensor<[3,5],{outer}>"
    cast = (
        f"""%code = torch.constant.int {code}
  %w = torch.aten.view.dtype %r, %code : {value}, !torch.int -> {written}"""
        if code is not None
        else ""
    )
    return f"""
func.func @{name}(%a: {value}, %b: {value}, %o: !torch.tensor<[3,5],{outer}>) {{
  %r = torch.aten.mul.Tensor %a, %b : {value}, {value} -> {value}
  {cast}
  torch.overwrite.tensor.contents %{"w" if cast else "r"} overwrites %o
    : {written}, !torch.tensor<[3,5],{outer}>
  return
}}"""


BOOL = """
func.func @bool(%a: !torch.vtensor<[3,5],i1>, %b: !torch.vtensor<[3,5],i1>,
                %o: !torch.tensor<[3,5],i1>) {
  %r = torch.aten.logical_xor %a, %b
    : !torch.vtensor<[3,5],i1>, !torch.vtensor<[3,5],i1> -> !torch.vtensor<[3,5],i1>
  torch.overwrite.tensor.contents %r overwrites %o
    : !torch.vtensor<[3,5],i1>, !torch.tensor<[3,5],i1>
  return
}"""

# o = a * f[0] + f[1] and p = 2 * i, where f and i are the packed scalars.
SCALARS = """
func.func @scalars(%a: !torch.vtensor<[4],f64>, %f: !torch.vtensor<[2],f64>,
                   %i: !torch.vtensor<[2],si64>, %o: !torch.tensor<[4],f64>,
                   %p: !torch.tensor<[2],f64>) {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %f64 = torch.constant.int 7
  %f0 = torch.aten.select.int %f, %zero, %zero
    : !torch.vtensor<[2],f64>, !torch.int, !torch.int -> !torch.vtensor<[],f64>
  %f1 = torch.aten.select.int %f, %zero, %one
    : !torch.vtensor<[2],f64>, !torch.int, !torch.int -> !torch.vtensor<[],f64>
  %m = torch.aten.mul.Tensor %a, %f0
    : !torch.vtensor<[4],f64>, !torch.vtensor<[],f64> -> !torch.vtensor<[4],f64>
  %r = torch.aten.add.Tensor %m, %f1, %one
    : !torch.vtensor<[4],f64>, !torch.vtensor<[],f64>, !torch.int -> !torch.vtensor<[4],f64>
  %s = torch.aten.add.Tensor %i, %i, %one
    : !torch.vtensor<[2],si64>, !torch.vtensor<[2],si64>, !torch.int -> !torch.vtensor<[2],si64>
  %w = torch.aten.view.dtype %s, %f64
    : !torch.vtensor<[2],si64>, !torch.int -> !torch.vtensor<[2],f64>
  torch.overwrite.tensor.contents %r overwrites %o
    : !torch.vtensor<[4],f64>, !torch.tensor<[4],f64>
  torch.overwrite.tensor.contents %w overwrites %p
    : !torch.vtensor<[2],f64>, !torch.tensor<[2],f64>
  return
}"""

EMPTY = """
func.func @empty(%a: !torch.vtensor<[0,5],f32>, %b: !torch.vtensor<[4],f32>,
                 %o: !torch.tensor<[0,5],f32>, %p: !torch.tensor<[4],f32>) {
  %one = torch.constant.int 1
  %r = torch.aten.add.Tensor %a, %a, %one
    : !torch.vtensor<[0,5],f32>, !torch.vtensor<[0,5],f32>, !torch.int -> !torch.vtensor<[0,5],f32>
  %s = torch.aten.add.Tensor %b, %b, %one
    : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
  torch.overwrite.tensor.contents %r overwrites %o
    : !torch.vtensor<[0,5],f32>, !torch.tensor<[0,5],f32>
  torch.overwrite.tensor.contents %s overwrites %p
    : !torch.vtensor<[4],f32>, !torch.tensor<[4],f32>
  return
}"""


@pytest.fixture(scope="module")
def vmfb(compile_mlir):
    return compile_mlir(*map(multiply, TYPES), BOOL, SCALARS, EMPTY)


@pytest.fixture
def load(vmfb):
    loaded = []

    def load(function, inputs, outputs, scalars=()):
        interface = RegionInterface(
            tuple(BufferType(*one) for one in inputs),
            tuple(BufferType(*one) for one in outputs),
            scalars,
            function=f"module.{function}",
        )
        loaded.append(Executable(vmfb, interface))
        return loaded[-1]

    yield load
    for executable in loaded:
        executable.close()


@pytest.mark.parametrize("name", TYPES)
def test_values(name, load, buffer):
    dtype, _, _, _, read, written = TYPES[name]
    executable = load(name, [(SHAPE, read), (SHAPE, read)], [(SHAPE, written)])
    # Large values: an f64 computed as f32 and an i64 as i32 would show.
    a = (torch.arange(15) * 7 - 50).to(dtype).reshape(SHAPE) / (1 if name[0] == "i" else 3)
    b = torch.full(SHAPE, {"i64": 2**40 + 1, "i32": 2**20 + 1}.get(name, 1.1))
    a, b = a.to(dtype), b.to(dtype)
    out = torch.zeros(SHAPE, dtype=dtype)
    executable([buffer(a), buffer(b)], [buffer(out)])
    assert torch.equal(out, a * b)


def test_bools(load, buffer):
    executable = load("bool", [(SHAPE, "BOOL_8")] * 2, [(SHAPE, "BOOL_8")])
    a, b = torch.arange(15).reshape(SHAPE) % 2 == 0, torch.arange(15).reshape(SHAPE) % 3 == 0
    out = torch.zeros(SHAPE, dtype=torch.bool)
    executable([buffer(a), buffer(b)], [buffer(out)])
    assert torch.equal(out, a ^ b)


def test_scalars_are_passed_anew_at_each_call(load, buffer):
    executable = load(
        "scalars",
        [((4,), "FLOAT_64")],
        [((4,), "FLOAT_64"), ((2,), "FLOAT_64")],
        ("i64", "f64", "i64", "f64"),
    )
    a = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    for scalars in ([5, 0.1, True, 7], [2**61, -1e300, -3, 0.25]):
        out, integers = torch.zeros_like(a), torch.zeros(2, dtype=torch.int64)
        executable([buffer(a)], [buffer(out), buffer(integers)], scalars)
        torch.testing.assert_close(out, a * scalars[1] + scalars[3], rtol=1e-15, atol=0)
        assert integers.tolist() == [2 * scalars[0], 2 * scalars[2]]


def test_buffers_of_no_bytes(load, buffer):
    executable = load(
        "empty",
        [((0, 5), "FLOAT_32"), ((4,), "FLOAT_32")],
        [((0, 5), "FLOAT_32"), ((4,), "FLOAT_32")],
    )
    nothing, a, out = torch.zeros(0, 5), torch.ones(4), torch.zeros(4)
    assert nothing.data_ptr() == 0
    executable([buffer(nothing), buffer(a)], [buffer(nothing), buffer(out)])
    assert out.tolist() == [2.0] * 4


def test_a_buffer_may_be_larger_than_its_view(double, buffer):
    a, out = torch.arange(20.0), torch.full((20,), -1.0)
    double([buffer(a)], [buffer(out)])
    assert out.tolist() == [*(2.0 * i for i in range(16)), *[-1.0] * 4]


def test_the_number_of_arguments_is_checked(double, buffer):
    a, out = buffer(torch.ones(16)), buffer(torch.zeros(16))
    with pytest.raises(ValueError, match="zip"):
        double([a, a], [out])
    with pytest.raises(ValueError, match="zip"):
        double([a], [])
    with pytest.raises(ValueError, match="expected 0 scalars, got 1"):
        double([a], [out], [1.0])
    assert out.tensor.tolist() == [0.0] * 16


def test_the_types_of_the_interface_are_checked_by_the_executable(
    double_vmfb, double_interface, buffer
):
    wrong = replace(double_interface, inputs=(BufferType((8,), "FLOAT_64"),))
    executable = Executable(double_vmfb, wrong)
    with pytest.raises(ExecutableRunError, match=r"module\.main") as raised:
        executable([buffer(torch.ones(16))], [buffer(torch.zeros(16))])
    assert "INVALID_ARGUMENT" in str(raised.value)


@pytest.mark.parametrize("length", [0, 10, 4000])
def test_bytes_that_are_no_executable(double_vmfb, double_interface, length):
    with pytest.raises(ExecutableLoadError, match="from the cache's file"):
        Executable(double_vmfb[:length], double_interface, origin="the cache's file")


def test_a_function_that_is_not_there(double_vmfb, double_interface):
    for name in ("module.other", "other.main"):
        with pytest.raises(ExecutableLoadError, match=rf"expected function {name}, got .*\.main"):
            Executable(double_vmfb, replace(double_interface, function=name))


def test_too_many_bindings_are_an_error_of_loading(compile_mlir):
    vector = "!torch.vtensor<[16],f32>"
    arguments = ", ".join(f"%a{i}: {vector}" for i in range(33))
    sums = "\n".join(
        f"%s{i} = torch.aten.add.Tensor %{'a0' if i == 1 else f's{i - 1}'}, %a{i}, %one "
        f": {vector}, {vector}, !torch.int -> {vector}"
        for i in range(1, 33)
    )
    vmfb = compile_mlir(
        f"""func.func @main({arguments}, %o: !torch.tensor<[16],f32>) {{
  %one = torch.constant.int 1
  {sums}
  torch.overwrite.tensor.contents %s32 overwrites %o : {vector}, !torch.tensor<[16],f32>
  return
}}"""
    )
    one = BufferType((16,), "FLOAT_32")
    with pytest.raises(ExecutableLoadError, match="binding count 34 > 32"):
        Executable(vmfb, RegionInterface((one,) * 33, (one,)))


def test_threads_take_turns(double, buffer):
    wrong = []

    def work(seed):
        a = torch.full((16,), float(seed))
        for _ in range(300):
            out = torch.zeros(16)
            double([buffer(a)], [buffer(out)])
            if out.tolist() != [2.0 * seed] * 16:
                wrong.append((seed, out))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_closed_executable_is_not_called(double, buffer):
    double.close()
    double.close()
    with pytest.raises(RuntimeError, match="closed"):
        double([buffer(torch.ones(16))], [buffer(torch.zeros(16))])
