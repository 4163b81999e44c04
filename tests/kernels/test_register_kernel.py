"""Operators whose body is MLIR, in eager code, under torch.compile and in bundles."""

import pytest
import torch
from torch import Tensor
from torch.library import Library, custom_op, register_autograd, register_fake

from torch_shark.kernels import KernelError

# x * gate * sigmoid(gate) * scale, in the linalg dialect, with a function of its own.
SWIGLU = """
#map = affine_map<(i, j) -> (i, j)>
func.func private @silu(%x: f32) -> f32 {
  %one = arith.constant 1.0 : f32
  %negated = arith.negf %x : f32
  %exp = math.exp %negated : f32
  %sum = arith.addf %exp, %one : f32
  %quotient = arith.divf %x, %sum : f32
  return %quotient : f32
}
func.func @swiglu(%x: tensor<?x?xf32>, %gate: tensor<?x?xf32>, %scale: f64) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
  %columns = tensor.dim %x, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%rows, %columns) : tensor<?x?xf32>
  %factor = arith.truncf %scale : f64 to f32
  %result = linalg.generic {
      indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%x, %gate : tensor<?x?xf32>, tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) {
  ^bb0(%a: f32, %g: f32, %unused: f32):
    %activated = func.call @silu(%g) : (f32) -> f32
    %product = arith.mulf %a, %activated : f32
    %scaled = arith.mulf %product, %factor : f32
    linalg.yield %scaled : f32
  } -> tensor<?x?xf32>
  return %result : tensor<?x?xf32>
}
"""

# The same in the torch dialect.
TORCH_SWIGLU = """
module {
  func.func @swiglu(%x: !torch.vtensor<[?,?],f32>, %gate: !torch.vtensor<[?,?],f32>,
                    %scale: !torch.float) -> !torch.vtensor<[?,?],f32> {
    %s = torch.aten.sigmoid %gate : !torch.vtensor<[?,?],f32> -> !torch.vtensor<[?,?],f32>
    %a = torch.aten.mul.Tensor %gate, %s
        : !torch.vtensor<[?,?],f32>, !torch.vtensor<[?,?],f32> -> !torch.vtensor<[?,?],f32>
    %p = torch.aten.mul.Tensor %x, %a
        : !torch.vtensor<[?,?],f32>, !torch.vtensor<[?,?],f32> -> !torch.vtensor<[?,?],f32>
    %r = torch.aten.mul.Scalar %p, %scale
        : !torch.vtensor<[?,?],f32>, !torch.float -> !torch.vtensor<[?,?],f32>
    return %r : !torch.vtensor<[?,?],f32>
  }
}
"""

SCHEMA = "(Tensor x, Tensor gate, *, float scale=1.0) -> Tensor"


def reference(x: Tensor, gate: Tensor, scale: float = 1.0) -> Tensor:
    return x * torch.nn.functional.silu(gate) * scale


def define(name: str, mlir: str) -> None:
    """An operator that is defined by its body alone."""
    torch.shark.register_kernel(f"shark_kernels::{name}{SCHEMA}", mlir)
    register_fake(f"shark_kernels::{name}", lambda x, gate, scale=1.0: torch.empty_like(x))


define("linalg", SWIGLU)
define("torchs", TORCH_SWIGLU)


@custom_op("shark_kernels::with_cpu", mutates_args=(), device_types="cpu")
def with_cpu(x: Tensor, gate: Tensor, scale: float) -> Tensor:
    return reference(x, gate, scale)


@custom_op("shark_kernels::everywhere", mutates_args=())
def everywhere(x: Tensor, gate: Tensor, scale: float) -> Tensor:
    return reference(x, gate, scale)


with_cpu.register_fake(lambda x, gate, scale: torch.empty_like(x))
everywhere.register_fake(lambda x, gate, scale: torch.empty_like(x))
torch.shark.register_kernel("shark_kernels::with_cpu", SWIGLU)
torch.shark.register_kernel("shark_kernels::everywhere", TORCH_SWIGLU)

ops = torch.ops.shark_kernels
NAMES = ("linalg", "torchs", "with_cpu", "everywhere")


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 5, 7, generator=generator).unbind()


@pytest.mark.parametrize("name", NAMES)
def test_is_compiled_with_its_neighbours(name, policy):
    operator = getattr(ops, name)
    x, gate = inputs()
    expected = reference(x + 1, gate, 0.5).exp()
    x, gate = x.to("shark"), gate.to("shark")
    operator(x, gate, scale=0.5)  # with new metadata, a call runs at once
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    actual = operator(x + 1, gate, scale=0.5).exp()
    torch.testing.assert_close(actual.cpu(), expected)
    counts = torch.shark.metrics()
    native = 1 if policy == "native" else 0
    assert counts.native_steps.get(f"shark_kernels::{name}", 0) == native
    assert counts.regions == 1 - native


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_the_cpu(name):
    x, gate = inputs()
    torch.testing.assert_close(getattr(ops, name)(x, gate, scale=3.0), reference(x, gate, 3.0))


def test_views_and_transposed_operands(policy):
    x, gate = (value.to("shark") for value in inputs())
    for _ in range(2):
        torch.shark.reset_metrics()
        actual = ops.linalg(x.t()[1:], gate.t()[:6] * 2).cpu()
    x, gate = inputs()
    torch.testing.assert_close(actual, reference(x.t()[1:], gate.t()[:6] * 2))
    assert torch.shark.metrics().regions == (1 if policy == "iree" else 0)


def test_two_kernels_in_one_region(policy):
    x, gate = (value.to("shark") for value in inputs())
    for _ in range(2):
        once = ops.linalg(x, gate, scale=2.0)
        twice = ops.torchs(once, gate) + ops.linalg(once, gate)
        torch.shark.synchronize()
    x, gate = inputs()
    expected = 2 * reference(reference(x, gate, 2.0), gate)
    torch.testing.assert_close(twice.cpu(), expected)


def test_other_operands_take_the_kernel_that_is_there(policy):
    x, gate = (value.double() for value in inputs())
    for _ in range(2):
        actual = ops.with_cpu(x.to("shark"), gate.to("shark"), 2.0)
    torch.testing.assert_close(actual.cpu(), reference(x, gate, 2.0))
    assert torch.shark.metrics().native_steps["shark_kernels::with_cpu"] >= 1


def test_other_operands_without_one_are_an_error(native):
    x, gate = (value.double() for value in inputs())
    with pytest.raises(KernelError, match=r"takes tensor<\?x\?xf32>, not tensor<5x7xf64>"):
        ops.linalg(x, gate)
    with pytest.raises(KernelError, match="not tensor<5xf32>"):
        ops.linalg(torch.ones(5).to("shark"), torch.ones(5).to("shark"))
    assert (torch.ones(2, device="shark") + 1).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("device", ["cpu", "shark"])
@pytest.mark.parametrize("name", NAMES)
def test_under_torch_compile(name, device, policy):
    operator = getattr(ops, name)

    def program(x, gate):
        return operator(x + 1, gate, scale=0.5).exp()

    x, gate = inputs()
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="shark", fullgraph=True)
    for _ in range(2):
        actual = compiled(x.to(device), gate.to(device))
    assert actual.device.type == device
    torch.testing.assert_close(actual.cpu(), reference(x + 1, gate, 0.5).exp())
    torch._dynamo.reset()


class Gated(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.up, self.gate = torch.nn.Linear(7, 4), torch.nn.Linear(7, 4)
        self.operator = getattr(ops, name)

    def forward(self, x: Tensor) -> Tensor:
        return self.operator(self.up(x), self.gate(x), scale=0.5)


@pytest.mark.parametrize("name", NAMES)
def test_in_a_bundle(name, tmp_path):
    torch.manual_seed(0)
    model = Gated(name).eval()
    rows = torch.export.Dim("rows", min=2, max=64)
    torch.shark.export(
        model, (torch.randn(3, 7),), tmp_path / "bundle", dynamic_shapes={"x": {0: rows}}
    )
    program = torch.shark.load(tmp_path / "bundle")
    for count in (3, 5):
        x = torch.randn(count, 7)
        with torch.no_grad():
            expected = reference(model.up(x), model.gate(x), 0.5)
        torch.testing.assert_close(program(x), expected)


def test_gradients_that_its_author_gives(policy):
    def backward(ctx, grad):
        x, gate = ctx.saved_tensors
        sigmoid = gate.sigmoid()
        return grad * gate * sigmoid, grad * x * sigmoid * (1 + gate * (1 - sigmoid))

    name = f"trained_{policy}"
    define(name, SWIGLU)
    register_autograd(
        f"shark_kernels::{name}",
        backward,
        setup_context=lambda ctx, inputs, keyword_only_inputs, output: ctx.save_for_backward(
            *inputs
        ),
    )
    leaves = [value.requires_grad_() for value in inputs()]
    reference(*leaves).sum().backward()
    ours = [value.detach().to("shark").requires_grad_() for value in leaves]
    getattr(ops, name)(*ours).sum().backward()
    for own, leaf in zip(ours, leaves, strict=True):
        torch.testing.assert_close(own.grad.cpu(), leaf.grad)


def test_a_second_kernel_takes_the_place_of_the_first(policy):
    define("changed", SWIGLU)
    x, gate = (value.to("shark") for value in inputs())
    for _ in range(2):
        first = ops.changed(x, gate).cpu()
    torch.shark.register_kernel("shark_kernels::changed", SWIGLU.replace("divf", "mulf"))
    second = ops.changed(x, gate).cpu()
    x, gate = inputs()
    torch.testing.assert_close(first, reference(x, gate))
    torch.testing.assert_close(second, x * gate * (1 + torch.exp(-gate)))
    torch.testing.assert_close(ops.changed(x, gate), second)


TWO_RESULTS = """
func.func @parts(%x: tensor<4xi64>, %by: i64, %swapped: i1) -> (tensor<4xi64>, tensor<4xi1>) {
  %empty = tensor.empty() : tensor<4xi64>
  %tests = tensor.empty() : tensor<4xi1>
  %a, %b = linalg.generic {
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}
      ins(%x : tensor<4xi64>) outs(%empty, %tests : tensor<4xi64>, tensor<4xi1>) {
  ^bb0(%in: i64, %out: i64, %test: i1):
    %sum = arith.addi %in, %by : i64
    %less = arith.cmpi slt, %in, %by : i64
    %either = arith.xori %less, %swapped : i1
    linalg.yield %sum, %either : i64, i1
  } -> (tensor<4xi64>, tensor<4xi1>)
  return %a, %b : tensor<4xi64>, tensor<4xi1>
}
"""


def test_integers_bools_and_several_results(policy):
    torch.shark.register_kernel(
        "shark_kernels::parts(Tensor x, int by, bool swapped=False) -> (Tensor, Tensor)",
        TWO_RESULTS,
    )
    x = torch.arange(4).to("shark")
    for _ in range(2):
        sums, less = ops.parts(x, 2)
        others, more = ops.parts(x, 1, True)
        assert sums.tolist() == [2, 3, 4, 5]
        assert less.tolist() == [True, True, False, False]
        assert others.tolist() == [1, 2, 3, 4]
        assert more.tolist() == [False, True, True, True]


def broken(line: str, by: str) -> str:
    assert SWIGLU.count(line) == 1
    return SWIGLU.replace(line, by)


WRONG_MLIR = [
    (broken("%a, %activated : f32", "%a, %missing : f32"), r"line 23: use of undeclared SSA value"),
    (broken("arith.truncf %scale", "arith.cut %scale"), r"line 17: .*arith.cut"),
    (broken("arith.truncf %scale : f64 to f32", "arith.truncf %gate : f64 to f32"), "line 17: "),
    (broken("-> tensor<?x?xf32> {\n  %c0", "-> f32 {\n  %c0"), "line 27: "),
    (SWIGLU.replace("f32", "f32x"), "line 3: "),
    ("this is no MLIR", "line 1: "),
    ("", "expected one public func.func, got none"),
    (SWIGLU.replace("private ", ""), "expected one public func.func, got silu, swiglu"),
    (broken(", %scale: f64)", ")").replace("%scale : f64", "%c : f64"), "line 17: "),
    ("func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }", "for gate"),
    (SWIGLU.replace("f64", "f16").replace("truncf", "extf"), "scale is a float, which is f64 or"),
]


@pytest.mark.parametrize(("mlir", "said"), WRONG_MLIR, ids=range(len(WRONG_MLIR)))
def test_wrong_mlir_names_the_operator_and_the_line(mlir, said):
    with pytest.raises(KernelError, match=f"(?s)shark_kernels::linalg can't have this.*{said}"):
        torch.shark.register_kernel("shark_kernels::linalg", mlir)
    x, gate = inputs()
    torch.testing.assert_close(ops.linalg(x, gate), reference(x, gate))  # it keeps what it had


def test_mlir_that_iree_refuses_names_the_operator_and_the_line(policy):
    mlir = SWIGLU.replace("math.exp %negated : f32", "func.call @nowhere(%negated) : (f32) -> f32")
    mlir += "func.func private @nowhere(%x: f32) -> f32\n"
    define("refused", mlir)
    x, gate = (value.to("shark") for value in inputs())
    said = r"shark_kernels::refused can't have this kernel: (?s:.*)shark_kernels::refused:6:10: "
    with pytest.raises(KernelError, match=said):
        ops.refused(x, gate)
    assert (x + 1).shape == (5, 7)


library = Library("shark_kernels", "FRAGMENT")
library.define("in_place(Tensor(a!) x) -> Tensor(a!)")
library.define("view(Tensor(a) x) -> Tensor(a)")
library.define("listed(Tensor[] x) -> Tensor")
library.define("lists(Tensor x) -> Tensor[]")
library.define("composite(Tensor x) -> Tensor")
library.impl("composite", lambda x: x + 1, "CompositeImplicitAutograd")
library.define("ours(Tensor x) -> Tensor")
library.impl("ours", lambda x: x + 1, "PrivateUse1")

IDENTITY = "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
WRONG_OPERATORS = [
    ("shark_kernels::nowhere", "there is no such operator"),
    ("nowhere", "there is no such operator"),
    ("aten::exp", "have bodies already"),
    ("nowhere(Tensor x) -> Tensor", "expected a name with a namespace"),
    ("shark_kernels::bad(Tenser x) -> Tensor", "PyTorch does not take its schema"),
    ("shark_kernels::in_place", "x is written or aliased"),
    ("shark_kernels::view", "x is written or aliased"),
    ("shark_kernels::listed", "x is a Tensor"),
    ("shark_kernels::lists", "expected tensors for results"),
    ("shark_kernels::composite", "it is composite"),
    ("shark_kernels::ours", "a kernel for the device already"),
]


@pytest.mark.parametrize(("operator", "said"), WRONG_OPERATORS)
def test_operators_that_can_have_none(operator, said):
    with pytest.raises(KernelError, match=said):
        torch.shark.register_kernel(operator, IDENTITY)
