"""What the tests of autocast share."""

from collections.abc import Iterator

import pytest
import torch

from torch_shark import config


@pytest.fixture
def compiled() -> Iterator[None]:
    """Run a test under the policy that compiles, counting from zero."""
    with config.scope(policy="iree"):
        torch.shark.reset_metrics()
        yield
        torch.shark.synchronize()
