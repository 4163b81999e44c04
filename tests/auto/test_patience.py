"""Nothing is compiled before the program has run for a while; what is on disk is loaded at once."""

from __future__ import annotations

import time
from concurrent.futures import Future

import torch

from torch_shark.lowering.artifact import Answer
from torch_shark.lowering.region import Region
from torch_shark.patience import Patience
from torch_shark.targets import get_target
from torch_shark.workers import Request


def requests(count: int) -> list[Request]:
    region = Region((), (), (), (), (), ())
    return [Request(region, (get_target("cpu"),)) for _ in range(count)]


def test_requests_are_held_back_and_then_go_on() -> None:
    submitted: list[Request] = []
    answer = Answer((), lasting=True)

    def submit(request: Request) -> Future[Answer]:
        submitted.append(request)
        future: Future[Answer] = Future()
        future.set_result(answer)
        return future

    patience = Patience(0.2, submit)
    first, second, third = requests(3)
    began = time.monotonic()
    futures = [patience.submit(first), patience.submit(second)]
    assert not submitted
    assert [future.result(10) for future in futures] == [answer, answer]
    assert time.monotonic() - began >= 0.2
    assert submitted == [first, second]
    assert patience.submit(third).done()


def test_the_default_dtype_is_that_of_the_request() -> None:
    submitted: list[Request] = []
    done: Future[Answer] = Future()
    patience = Patience(0.05, lambda request: (submitted.append(request), done)[1])
    torch.set_default_dtype(torch.float64)
    try:
        (request,) = requests(1)
        held = patience.submit(request)
    finally:
        torch.set_default_dtype(torch.float32)
    done.set_result(Answer((), lasting=True))
    held.result(10)
    assert submitted[0].default_dtype == torch.float64
