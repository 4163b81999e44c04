"""torch.profiler: what the device ran, by operator and region, linked to who recorded it."""

import itertools
import json

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def program():
    x = torch.ones(64, 64, device="shark")
    for _ in range(3):
        x = torch.relu(x @ x) * 1e-3
    return x.cpu()


def device_events(profiler):
    return [event for event in profiler.events() if event.device_type == DeviceType.PrivateUse1]


@pytest.fixture
def profiled(policy):
    """A profile of a program whose operators and regions are known already."""
    for _ in range(3):
        program()
    torch.shark.reset_metrics()
    with profile(activities=BOTH) as profiler:
        program()
    return profiler


def test_what_ran_is_listed_by_name(profiled, policy):
    names = [event.name for event in device_events(profiled)]
    if policy == "native":
        assert names.count("aten::mm") == names.count("aten::relu") == 3
    else:
        regions = [name for name in names if name.startswith("shark::region(")]
        assert len(regions) == torch.shark.metrics().regions > 0
        assert any("aten::mm" in name for name in regions)
        assert "aten::mm" not in names
    assert all(event.time_range.elapsed_us() > 0 for event in device_events(profiled))


def test_table_has_the_time_of_the_device(profiled, policy):
    averages = {(each.key, each.device_type): each for each in profiled.key_averages()}
    recorded = averages["aten::mm", DeviceType.CPU]
    assert recorded.count == 3
    if policy == "native":
        ran = averages["aten::mm", DeviceType.PrivateUse1]
        assert ran.count == 3
        assert ran.self_device_time_total > 0
        # The time of what it recorded counts as an operator's own.
        assert recorded.self_device_time_total == pytest.approx(ran.self_device_time_total)
        matmul = averages["aten::matmul", DeviceType.CPU]
        assert matmul.device_time_total >= recorded.self_device_time_total
    assert "SHARK" in profiled.key_averages().table().upper()


def test_steps_run_one_after_the_other(profiled):
    spans = sorted((e.time_range.start, e.time_range.end) for e in device_events(profiled))
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_trace_for_chrome(profiled, tmp_path):
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == len(device_events(profiled)) > 0


def test_compiling_is_seen(policy):
    size = 7 if policy == "iree" else 8
    x = torch.ones(size, 3, device="shark")
    with profile(activities=BOTH) as profiler:
        (x.sin() * 2).cpu()
    plans = [event for event in profiler.events() if event.name == "shark::plan"]
    assert bool(plans) == (policy == "iree")


def test_host_alone(native):
    program()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        program()
    assert device_events(profiler) == []
    assert any(event.name == "aten::mm" for event in profiler.events())


def test_device_alone(native):
    program()
    with profile(activities=[ProfilerActivity.PrivateUse1]) as profiler:
        program()
    assert [event.name for event in device_events(profiler)].count("aten::mm") == 3


def test_backward_is_linked(native):
    weight = torch.ones(8, 8, device="shark", requires_grad=True)

    def step():
        with record_function("forward"):
            loss = (weight @ weight).sum()
        loss.backward()
        torch.shark.synchronize()

    step()
    with profile(activities=BOTH) as profiler:
        step()
    averages = {(each.key, each.device_type): each for each in profiler.key_averages()}
    assert averages["MmBackward0", DeviceType.CPU].device_time_total > 0
    assert averages["forward", DeviceType.CPU].device_time_total > 0
    assert averages["aten::mm", DeviceType.PrivateUse1].count == 3


def test_steps_of_a_schedule(native):
    program()
    seen = []

    def ready(profiler):
        seen.append([event.name for event in device_events(profiler)].count("aten::mm"))

    plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(activities=BOTH, schedule=plan, on_trace_ready=ready) as profiler:
        for _ in range(5):
            program()
            profiler.step()
    assert seen == [6]


def test_nothing_is_kept_without_a_profiler(native):
    program()
    with profile(activities=BOTH) as profiler:
        pass
    assert device_events(profiler) == []


def test_legacy_profiler_has_the_hosts_times(native, capfd):
    program()
    with torch.autograd.profiler.profile(use_device="shark") as profiler:
        program()
    assert any(each.key == "aten::mm" for each in profiler.key_averages())
    assert "Exception in RecordFunction" not in capfd.readouterr().err


def test_shapes_stacks_and_memory_are_accepted(native):
    program()
    with profile(
        activities=BOTH, record_shapes=True, with_stack=True, profile_memory=True, with_flops=True
    ) as profiler:
        program()
    held = {
        each.key: each.device_memory_usage
        for each in profiler.key_averages()
        if each.device_type == DeviceType.CPU
    }
    assert held["aten::ones"] == 64 * 64 * 4
    assert held["aten::mm"] == 3 * 64 * 64 * 4
    shapes = {str(each.input_shapes) for each in profiler.key_averages(group_by_input_shape=True)}
    assert "[[64, 64], [64, 64]]" in shapes
