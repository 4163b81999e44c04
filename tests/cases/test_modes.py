"""Planning is not touched by the state of the thread that waits for it."""

import torch


def test_windows_are_planned_inside_a_default_device(policy):
    with torch.device("shark"):
        x = torch.arange(12.0).reshape(3, 4)
        y = torch.nn.functional.gelu(x).clamp(min=0.5).sum()
        assert y.device.type == "shark"
        value = y.cpu()
    expected = torch.nn.functional.gelu(torch.arange(12.0)).clamp(min=0.5).sum()
    torch.testing.assert_close(value, expected)


def test_windows_are_planned_inside_a_dispatch_mode(policy):
    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    x = torch.ones(5).to("shark")
    with Seen():
        value = (torch.tanh(x) * 3 + 1).cpu()
    torch.testing.assert_close(value, torch.tanh(torch.ones(5)) * 3 + 1)
    assert names == ["aten::tanh", "aten::mul.Tensor", "aten::add.Tensor", "aten::_to_copy"]
