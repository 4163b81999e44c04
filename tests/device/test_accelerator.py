"""torch.accelerator, generators, streams, events and memory statistics: the generic APIs."""

import pickle

import pytest
import torch

pytestmark = pytest.mark.usefixtures("native")
SHARK = torch.device("shark", 0)


def test_every_function_of_the_accelerator_module():
    module = torch.accelerator
    assert module.is_available()
    assert module.device_count() == 1
    assert module.current_accelerator() == torch.device("shark")
    assert module.current_accelerator(check_available=True) == torch.device("shark")
    assert module.current_device_index() == 0
    module.set_device_index(0)
    module.set_device_index("shark:0")
    module.synchronize()
    module.synchronize("shark:0")
    with module.device_index(0), module.device_index(None):
        assert module.current_device_index() == 0
    stream = torch.Stream()
    before = module.current_stream()
    module.set_stream(stream)
    assert module.current_stream() == module.current_stream("shark:0") == stream
    module.set_stream(before)
    capability = module.get_device_capability()
    assert {torch.float32, torch.bfloat16, torch.int64} <= capability["supported_dtypes"]
    free, total = module.get_memory_info()
    assert 0 < free <= total
    module.empty_cache()
    module.empty_host_cache()
    with pytest.raises(RuntimeError, match="device index"):
        module.set_device_index(1)


def test_memory_of_the_accelerator_module():
    module = torch.accelerator
    module.reset_peak_memory_stats()
    module.reset_accumulated_memory_stats()
    before = module.memory_allocated()
    x = torch.zeros(1 << 20, device="shark")
    module.synchronize()
    assert module.memory_allocated() - before == 4 << 20
    assert module.max_memory_allocated() >= module.memory_allocated()
    assert module.max_memory_reserved() >= module.memory_reserved() >= module.memory_allocated()
    stats = module.memory_stats()
    assert stats["allocated_bytes.all.current"] == module.memory_allocated()
    del x


@pytest.mark.parametrize("device", [None, "shark", "shark:0", SHARK, 0])
def test_device_module(device):
    assert torch.get_device_module(None if device == 0 else device) is torch.shark
    assert torch.shark.mem_get_info(device)[1] > 1 << 28


def test_statistics_have_cudas_names():
    x = torch.zeros(1 << 18, device="shark")
    stats = torch.shark.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.shark.memory_allocated() >= x.nbytes
    assert stats["allocated_bytes.all.peak"] == torch.shark.max_memory_allocated()
    assert stats["reserved_bytes.all.current"] == torch.shark.memory_reserved()
    assert stats["allocation.all.allocated"] > 0
    nested = torch.shark.memory_stats_as_nested_dict()
    assert nested["reserved_bytes"]["all"]["peak"] == torch.shark.max_memory_reserved()
    torch.shark.reset_accumulated_memory_stats()


def test_summary_is_for_people():
    torch.shark.empty_cache()
    torch.shark.reset_peak_memory_stats()
    x = torch.zeros(3 << 18, device="shark")
    lines = torch.shark.memory_summary().splitlines()
    assert lines[0].split() == ["shark", "memory,", "MiB", "current", "peak"]
    name, current, peak = lines[1].split()
    assert name == "allocated"
    assert float(peak) >= float(current) >= x.nbytes / 2**20
    assert [line.split()[0] for line in lines[1:]] == ["allocated", "reserved"]


def test_small_functions():
    torch.shark.init()
    assert torch.shark.is_bf16_supported()
    assert not torch.shark.is_current_stream_capturing()
    x = torch.ones(1, device="shark")
    for other in (x, x.untyped_storage(), torch.ones(1)):
        with torch.shark.device_of(other):
            assert torch.shark.current_device() == 0
    with torch.shark.stream(None) as nothing:
        assert nothing is None


def test_generators_by_device():
    assert torch.Generator("shark").device == SHARK
    assert torch.Generator(SHARK).device == SHARK
    with pytest.raises(RuntimeError, match="expected a device index below 1, got 3"):
        torch.Generator("shark:3")
    generator = torch.Generator("shark").manual_seed(2)
    assert generator.initial_seed() == 2
    assert generator.seed() == generator.initial_seed() != 2
    again = pickle.loads(pickle.dumps(generator))
    assert again.initial_seed() == generator.initial_seed()
    generator.set_offset(0)
    assert generator.get_offset() == 0
    with pytest.raises(RuntimeError, match="expected offset 0"):
        generator.set_offset(4)


def test_streams_of_the_generic_class():
    stream, urgent = torch.Stream("shark"), torch.Stream("shark", priority=-1)
    assert stream.device == SHARK
    assert stream != urgent
    assert len({stream, urgent}) == 2
    assert torch.shark.Stream(priority=-1) != urgent
    with urgent:
        assert torch.accelerator.current_stream() == urgent
        event = urgent.record_event()
    stream.wait_event(event)
    stream.wait_stream(urgent)
    event.wait()
    event.wait(stream)
    event.synchronize()
    assert event.query()
    assert stream.query()
    stream.synchronize()


def test_events_of_the_generic_class():
    start, end = (torch.Event("shark", enable_timing=True) for _ in range(2))
    assert start.device == torch.device("shark")
    start.record()
    x = torch.ones(64, 64, device="shark")
    for _ in range(3):
        x = x @ x
    end.record(torch.accelerator.current_stream())
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.shark.Event(enable_timing=True, blocking=True, interprocess=False).query()
    reused = torch.Event("shark")
    for _ in range(2):
        reused.record()
        reused.synchronize()
        assert reused.query()


def test_default_device():
    torch.set_default_device("shark")
    try:
        assert torch.get_default_device() == SHARK
        made = [
            torch.zeros(2), torch.tensor([1.0]), torch.randn(2), torch.randperm(3),
            torch.arange(3), torch.linspace(0, 1, 3), torch.eye(2), torch.full((2,), 1),
            torch.as_tensor([1]), torch.nn.Linear(2, 2).weight, torch.ones(2).numpy(force=True),
        ]  # fmt: skip
    finally:
        torch.set_default_device(None)
    assert all(x.is_shark for x in made[:-1])
    assert torch.zeros(2).device.type == "cpu"
    with torch.device("shark"):
        module = torch.nn.LSTM(2, 3)
        with torch.device("cpu"):
            assert torch.zeros(1).device.type == "cpu"
        assert torch.zeros(1).is_shark
        assert torch.zeros(1, device="cpu").device.type == "cpu"
    assert {p.device for p in module.parameters()} == {SHARK}
