"""The namespace torch.shark, tensor methods, generators, streams, events and memory."""

import time

import pytest
import torch

pytestmark = pytest.mark.usefixtures("native")
shark = torch.device("shark")


def test_there_is_one_device_and_it_is_current():
    assert torch.shark.is_available()
    assert torch.shark.is_initialized()
    assert torch.shark.device_count() == 1
    assert torch.shark.current_device() == 0
    assert torch.accelerator.current_accelerator() == shark
    torch.shark.set_device(0)
    torch.shark.set_device("shark:0")
    with torch.shark.device(0), torch.shark.device("shark"), torch.shark.device(None):
        assert torch.shark.current_device() == 0


@pytest.mark.parametrize("bad", [1, "shark:1", torch.device("shark", 3)])
def test_device_that_is_not_there_is_refused(bad):
    with pytest.raises(RuntimeError, match="expected a device index below 1"):
        torch.shark.set_device(bad)
    with pytest.raises(RuntimeError, match="expected a device index below 1"):
        torch.shark.synchronize(bad)


def test_tensor_on_a_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match="device index below 1"):
        torch.zeros(1, device="shark:1")


def test_device_of_another_type_is_refused():
    with pytest.raises(ValueError, match="Expected a shark device, but got: cpu"):
        torch.shark.device("cpu")


def test_names_and_properties():
    properties = torch.shark.get_device_properties()
    assert properties.name == torch.shark.get_device_name("shark:0")
    assert properties.target == "cpu"
    assert properties.total_memory > 1 << 28
    assert properties.multi_processor_count == torch.get_num_threads()


def test_everything_named_is_there():
    assert all(hasattr(torch.shark, name) for name in torch.shark.__all__)


def test_tensor_and_module_methods():
    x = torch.arange(3.0)
    y = x.shark()
    assert (y.is_shark, x.is_shark) == (True, False)
    assert y.device == torch.device("shark:0")
    assert y.shark() is y
    assert y.get_device() == 0
    assert str(y.device) == "shark:0"
    layer = torch.nn.Linear(2, 2).shark()
    assert layer.weight.is_shark
    assert torch.equal(y.cpu(), x)


def test_storage_methods():
    y = torch.arange(3.0).shark()
    storage = y.untyped_storage()
    assert storage.is_shark
    assert (storage.device, storage.nbytes()) == (torch.device("shark:0"), 12)
    assert storage.cpu().tolist() == torch.arange(3.0).untyped_storage().tolist()
    moved = torch.arange(3.0).untyped_storage().shark()
    assert moved.is_shark
    assert moved.nbytes() == 12
    assert y.data_ptr() == storage.data_ptr() != 0
    assert y[1:].data_ptr() == y.data_ptr() + 4
    assert torch.zeros(0, device="shark").data_ptr() == 0


def test_storage_grows_and_keeps_what_it_held():
    y = torch.arange(3.0, device="shark") + 1
    y.untyped_storage().resize_(20)
    assert y.untyped_storage().nbytes() == 20
    assert y.tolist() == [1.0, 2.0, 3.0]
    y.resize_(5)
    assert y[:3].tolist() == [1.0, 2.0, 3.0]


def test_default_device_and_factories():
    with shark:
        made = torch.zeros(2)
    assert made.is_shark
    for same in (torch.zeros_like(made), made.new_ones(1), torch.full((1,), 2, device=shark)):
        assert same.device == made.device


def test_address_space_is_not_memory():
    x = torch.ones(2, device="shark")
    with pytest.raises(TypeError, match="can't convert shark:0 device type tensor to numpy"):
        x.numpy()


@pytest.mark.parametrize("seed_by", [torch.manual_seed, torch.shark.manual_seed,
                                     torch.shark.manual_seed_all])  # fmt: skip
def test_seeds_repeat_the_cpus_numbers(seed_by):
    seed_by(7)
    ours = torch.rand(4, device="shark"), torch.randn(20, device="shark")
    assert torch.shark.initial_seed() == 7
    torch.manual_seed(7)
    assert torch.equal(ours[0].cpu(), torch.rand(4))
    assert torch.equal(ours[1].cpu(), torch.randn(20))


def test_random_state_is_taken_and_restored():
    torch.shark.manual_seed(1)
    torch.rand(3, device="shark")
    state = torch.shark.get_rng_state()
    assert (state.device.type, state.dtype) == ("cpu", torch.uint8)
    first = torch.rand(3, device="shark").cpu()
    torch.shark.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="shark").cpu(), first)
    torch.shark.set_rng_state_all([state])
    assert torch.equal(torch.rand(3, device="shark").cpu(), first)
    assert torch.equal(torch.shark.get_rng_state_all()[0], torch.shark.get_rng_state())


def test_unseeded_generators_differ():
    torch.shark.seed()
    one = torch.shark.initial_seed()
    torch.shark.seed_all()
    assert torch.shark.initial_seed() != one


def test_fork_rng_leaves_the_state():
    torch.shark.manual_seed(3)
    before = torch.shark.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="shark"):
        torch.rand(3, device="shark")
    assert torch.equal(torch.shark.get_rng_state(), before)


def test_generator_of_ones_own():
    one = torch.Generator("shark").manual_seed(11)
    state = one.get_state()
    first = torch.rand(3, device="shark", generator=one)
    one.set_state(state)
    assert torch.equal(torch.rand(3, device="shark", generator=one), first)
    cpu = torch.Generator().manual_seed(11)
    assert torch.equal(first.cpu(), torch.rand(3, generator=cpu))
    twin = one.clone_state()
    assert torch.equal(
        torch.rand(3, device="shark", generator=one), torch.rand(3, device="shark", generator=twin)
    )
    with pytest.raises(RuntimeError, match="Expected a 'shark' device type for generator"):
        torch.rand(3, device="shark", generator=cpu)


def test_streams_are_made_switched_and_waited_for():
    default = torch.shark.default_stream()
    assert torch.shark.current_stream() == default
    one = torch.shark.Stream()
    assert one.device == torch.device("shark:0")
    with torch.shark.stream(one):
        assert torch.shark.current_stream() == one
        x = torch.ones(3, device="shark") + 1
    assert torch.shark.current_stream() == default
    default.wait_stream(one)
    one.synchronize()
    assert one.query()
    x.record_stream(one)
    assert x.tolist() == [2.0] * 3
    torch.shark.set_stream(one)
    assert torch.shark.current_stream() == one
    torch.shark.set_stream(default)


def test_event_marks_its_place_in_the_queue():
    event = torch.shark.Event()
    assert event.query()  # never recorded
    x = torch.ones(256, 256, device="shark")
    for _ in range(20):
        x = x @ x * 1e-3
    event.record()
    event.synchronize()
    assert event.query()
    torch.shark.reset_metrics()
    event.synchronize()
    x.sum()
    assert event.query()
    assert torch.shark.metrics().windows == 0  # a later operator does not unmark it
    torch.shark.Stream().wait_event(event)
    torch.shark.synchronize()


def test_events_measure_milliseconds():
    start, end = torch.shark.Event(enable_timing=True), torch.shark.Event(enable_timing=True)
    with pytest.raises(ValueError, match="Both events must be recorded"):
        start.elapsed_time(end)
    x = torch.ones(512, 512, device="shark")
    torch.shark.synchronize()
    began = time.perf_counter()
    start.record()
    for _ in range(10):
        x = x @ x * 1e-3
    end.record()
    end.synchronize()
    total = (time.perf_counter() - began) * 1e3
    assert 0 < start.elapsed_time(end) <= total


def test_memory_is_counted_and_given_back():
    torch.shark.empty_cache()
    before = torch.shark.memory_allocated()
    x = torch.empty(1 << 20, device="shark").fill_(1)
    assert torch.shark.memory_allocated() - before == 4 << 20
    assert torch.shark.memory_reserved() >= torch.shark.memory_allocated()
    del x
    assert torch.shark.memory_allocated() == before
    assert torch.shark.max_memory_allocated() - before >= 4 << 20
    reserved = torch.shark.memory_reserved()
    torch.shark.empty_cache()
    assert torch.shark.memory_reserved() <= reserved - (4 << 20)
    torch.shark.reset_peak_memory_stats()
    assert torch.shark.max_memory_allocated() == before
    assert torch.shark.max_memory_reserved() == torch.shark.memory_reserved()
    assert torch.accelerator.memory_allocated() == before


def test_temporaries_are_freed_inside_the_window():
    x = torch.ones(1 << 18, device="shark")
    torch.shark.synchronize()
    torch.shark.reset_peak_memory_stats()
    before = torch.shark.memory_allocated()
    for _ in range(20):
        x = x + 1
    torch.shark.synchronize()
    assert torch.shark.max_memory_allocated() - before <= 3 << 20


def test_accelerator_module_drives_the_device():
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 1
    torch.accelerator.set_device_index(0)
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
