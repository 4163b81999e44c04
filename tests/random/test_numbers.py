"""For the same seed, the CPU's numbers, bit for bit: operators, initialisers, generators."""

from typing import Any

import pytest
import torch
from torch.nn import functional, init

natively = pytest.mark.parametrize("policy", ["native"], indirect=True)
pytestmark = [
    natively,
    # Initialisers warn of tensors without elements, and jit is deprecated, on every device.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def empty(d: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=d)


FILLS = {
    "uniform_": lambda x, **g: x.uniform_(-2, 3, **g),
    "normal_": lambda x, **g: x.normal_(1, 2, **g),
    "exponential_": lambda x, **g: x.exponential_(0.5, **g),
    "cauchy_": lambda x, **g: x.cauchy_(1, 2, **g),
    "log_normal_": lambda x, **g: x.log_normal_(0.1, 0.5, **g),
    "geometric_": lambda x, **g: x.geometric_(0.3, **g),
    "bernoulli_": lambda x, **g: x.bernoulli_(0.3, **g),
    "bernoulli_ of a tensor": lambda x, **g: x.bernoulli_(
        torch.linspace(0, 1, x.numel()).reshape(x.shape).to(x.device), **g
    ),
    "random_": lambda x, **g: x.random_(**g),
    "random_ to": lambda x, **g: x.random_(50, **g),
    "random_ from to": lambda x, **g: x.random_(-3, 50, **g),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_fills(run_both, fill):
    def program(d):
        results = []
        for dtype in FLOATS:
            for shape in ((7, 5), (40, 3), ()):
                results.append(fill(empty(d, *shape, dtype=dtype)))
            results.append(fill(empty(d, 6, 8, dtype=dtype).t()[::2]))
        return results

    run_both(program, compiled=False)


DRAWS = {
    "rand": lambda d, **g: torch.rand(3, 20, device=d, **g),
    "randn": lambda d, **g: torch.randn(3, 20, device=d, **g),
    "randn complex": lambda d, **g: torch.randn(5, dtype=torch.complex64, device=d, **g),
    "randint": lambda d, **g: torch.randint(-5, 9, (30,), device=d, **g),
    "randint int8": lambda d, **g: torch.randint(9, (30,), dtype=torch.int8, device=d, **g),
    "randperm": lambda d, **g: torch.randperm(50, device=d, **g),
    "normal": lambda d, **g: torch.normal(torch.arange(5.0).to(d), 2.0, **g),
    "normal of stds": lambda d, **g: torch.normal(0.5, torch.arange(1.0, 5.0).to(d), **g),
    "normal of both": lambda d, **g: torch.normal(empty(d, 4), torch.ones(4).to(d), **g),
    "normal of a size": lambda d, **g: torch.normal(0.0, 1.0, (4, 5), device=d, **g),
    "bernoulli": lambda d, **g: torch.bernoulli(torch.linspace(0, 1, 20).to(d), **g),
    "binomial": lambda d, **g: torch.binomial(
        torch.full((6,), 9.0).to(d), torch.full((6,), 0.4).to(d), **g
    ),
    "poisson": lambda d, **g: torch.poisson(torch.linspace(0, 9, 20).to(d), **g),
    "multinomial": lambda d, **g: torch.multinomial(torch.arange(1.0, 9.0).to(d), 4, **g),
    "multinomial again": lambda d, **g: torch.multinomial(
        torch.arange(1.0, 9.0).to(d), 40, replacement=True, **g
    ),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws(run_both, draw):
    run_both(lambda d: [draw(d), draw(d)], compiled=False)


WITHOUT_GENERATOR = {
    "rand_like": lambda d: torch.rand_like(empty(d, 4, 6).t()),
    "randn_like": lambda d: torch.randn_like(empty(d, 4, 6).t()),
    "randint_like": lambda d: torch.randint_like(empty(d, 4, 6), 3, 9),
    "rrelu": lambda d: functional.rrelu(torch.linspace(-1, 1, 20).to(d), training=True),
    "dropout1d": lambda d: functional.dropout1d(torch.ones(3, 4, 5).to(d), 0.4),
    "dropout3d": lambda d: functional.dropout3d(torch.ones(2, 3, 2, 2, 2).to(d), 0.4),
    "feature_alpha_dropout": lambda d: functional.feature_alpha_dropout(
        torch.ones(2, 3, 4).to(d), 0.4, training=True
    ),
    "dropout in place": lambda d: functional.dropout(torch.ones(20).to(d), 0.4, inplace=True),
    "gumbel_softmax": lambda d: functional.gumbel_softmax(torch.ones(4, 5).to(d), hard=True),
    "fractional_max_pool2d": lambda d: functional.fractional_max_pool2d(
        torch.arange(64.0).reshape(1, 1, 8, 8).to(d), 2, output_size=3
    ),
    "attention": lambda d: functional.scaled_dot_product_attention(
        *(torch.linspace(0, 1, 32).reshape(1, 2, 4, 4).to(d) for _ in range(3)), dropout_p=0.5
    ),
    "native_dropout": lambda d: torch.native_dropout(torch.ones(4, 5).to(d), 0.4, True),
    "rand out": lambda d: torch.rand(3, 4, out=empty(d, 3, 4)),
    "randn out": lambda d: torch.randn(3, 4, out=empty(d, 3, 4)),
    "randint out": lambda d: torch.randint(9, (3, 4), out=empty(d, 3, 4)),
    "randint from out": lambda d: torch.randint(2, 9, (3, 4), out=empty(d, 3, 4)),
    "randperm out": lambda d: torch.randperm(9, out=empty(d, 9, dtype=torch.int64)),
    "lstm": lambda d: torch.nn.LSTM(3, 4, 2, dropout=0.5, device=d)(torch.ones(5, 2, 3).to(d))[0],
    "gru": lambda d: torch.nn.GRU(3, 4, 2, dropout=0.5, device=d)(torch.ones(5, 2, 3).to(d))[0],
    "svd_lowrank": lambda d: torch.svd_lowrank(torch.linspace(0, 1, 30).reshape(6, 5).to(d), 2),
    "Normal": lambda d: torch.distributions.Normal(empty(d, 4), 2.0).sample((3,)),
    "Dirichlet": lambda d: torch.distributions.Dirichlet(torch.ones(4).to(d)).sample((3,)),
    "Gamma": lambda d: torch.distributions.Gamma(torch.ones(4).to(d), 2.0).rsample(),
    "Beta": lambda d: torch.distributions.Beta(torch.ones(4).to(d), torch.ones(4).to(d)).sample(),
    "Categorical": lambda d: torch.distributions.Categorical(torch.ones(4).to(d)).sample((9,)),
    "Poisson": lambda d: torch.distributions.Poisson(torch.ones(4).to(d) * 5).sample(),
    "StudentT": lambda d: torch.distributions.StudentT(torch.ones(4).to(d) * 5).rsample(),
    "VonMises": lambda d: torch.distributions.VonMises(empty(d, 4), torch.ones(4).to(d)).sample(),
}


@pytest.mark.parametrize("draw", WITHOUT_GENERATOR.values(), ids=WITHOUT_GENERATOR)
def test_draws_of_the_default_generator(run_both, draw):
    run_both(lambda d: [draw(d), draw(d), torch.rand(2, device=d)], compiled=False)


# Not sparse_, which chooses rows on the CPU for tensors of every device.
INITIALISERS: dict[str, Any] = {
    "uniform_": init.uniform_,
    "normal_": init.normal_,
    "trunc_normal_": init.trunc_normal_,
    "xavier_uniform_": init.xavier_uniform_,
    "xavier_normal_": init.xavier_normal_,
    "kaiming_uniform_": init.kaiming_uniform_,
    "kaiming_normal_": init.kaiming_normal_,
    "orthogonal_": init.orthogonal_,
    "dirac_": lambda x, **g: init.dirac_(x.unsqueeze(-1).expand(6, 5, 3).clone()),
    "eye_": lambda x, **g: init.eye_(x),
}


@pytest.mark.parametrize("initialise", INITIALISERS.values(), ids=INITIALISERS)
def test_initialisers(run_both, initialise):
    def program(d):
        generator = torch.Generator(d).manual_seed(7)
        return initialise(empty(d, 6, 5)), initialise(empty(d, 6, 5), generator=generator)

    run_both(program, compiled=False)


def test_modules_made_on_the_device_begin_as_on_the_cpu(run_both):
    def program(d):
        with torch.device(d):
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3)
            made = [layer, torch.nn.LSTM(4, 5), torch.nn.Conv2d(3, 4, 3), torch.nn.Embedding(5, 6)]
        return [dict(module.state_dict()) for module in made]

    run_both(program, compiled=False)


@pytest.mark.parametrize("draw", [*FILLS.values(), *DRAWS.values()], ids=[*FILLS, *DRAWS])
def test_a_generator_of_ones_own(run_both, draw):
    def program(d):
        generator = torch.Generator(d)
        generator.manual_seed(11)
        where = empty(d, 4, 5) if draw in FILLS.values() else d
        first = draw(where, generator=generator).clone()
        state = generator.get_state()
        second = draw(where, generator=generator).clone()
        generator.set_state(state)
        assert torch.equal(draw(where, generator=generator), second)
        return first, second, torch.rand(3, device=d)  # the default one has not moved

    run_both(program, compiled=False)


@pytest.mark.parametrize("draw", [*FILLS.values(), *DRAWS.values()], ids=[*FILLS, *DRAWS])
def test_a_generator_of_another_device_is_refused(policy, draw):
    """As for CUDA: the message names both devices."""

    def drawn(d, generator):
        return draw(empty(d, 4, 5) if draw in FILLS.values() else d, generator=generator)

    message = "Expected a 'shark' device type for generator but found 'cpu'"
    with pytest.raises(RuntimeError, match=message):
        drawn("shark", torch.Generator("cpu"))
    with pytest.raises(RuntimeError, match="cpu"):
        drawn("cpu", torch.Generator("shark"))
