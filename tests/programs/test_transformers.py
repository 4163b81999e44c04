"""transformers' models: trained, and asked, as users do."""

from functools import partial

import pytest
from following import slow_when_compiled
from transformer_programs import (
    generate_gpt2,
    generate_t5,
    train_bert,
    train_gpt2,
    train_resnet,
    train_t5,
    train_vit,
)

TRAINING = slice(2, 4)  # the second step finds that Adam's scalars change
DROPOUT = {"aten::bernoulli_.float"}


def test_bert_is_trained_and_asked(follow):
    # A padding mask is asked whether it masks anything: a window ends there.
    steps = follow(train_bert, TRAINING, windows=2, native=DROPOUT | {"aten::arange.start_out"})
    assert steps[-1].windows == 2


@slow_when_compiled
def test_gpt2_is_trained(follow):
    follow(
        train_gpt2,
        TRAINING,
        windows=1,
        native=DROPOUT | {"aten::arange.start_out", "aten::cat"},
    )


@slow_when_compiled
def test_t5_is_trained(follow):
    follow(
        train_t5,
        TRAINING,
        windows=3,
        native=DROPOUT | {"aten::arange.start_out", "aten::cat"},
    )


@slow_when_compiled
def test_vit_is_trained(follow):
    follow(train_vit, TRAINING, windows=1, native=set())


@slow_when_compiled
def test_resnet_is_trained_and_asked(follow):
    follow(train_resnet, TRAINING, windows=1, native={"aten::max_pool2d_with_indices_backward"})


GENERATION = slice(1, 2)  # the second text has the lengths of the first
TEXT = {"aten::arange.start_out", "aten::isin.Tensor_Tensor"}  # positions; is it an end token


def test_gpt2_writes_into_a_static_cache(follow):
    program = partial(
        generate_gpt2, max_new_tokens=4, cache_implementation="static", disable_compile=True
    )
    follow(program, GENERATION, windows=9, native=TEXT)


@slow_when_compiled
@pytest.mark.parametrize(
    ("how", "native"),
    [
        ({"do_sample": False}, set()),
        (
            {"do_sample": True, "top_k": 20, "top_p": 0.9},
            {"aten::topk", "aten::sort", "aten::multinomial"},
        ),
    ],
    ids=["greedy", "sampled"],
)
def test_gpt2_writes_into_a_growing_cache(follow, how, native):
    program = partial(generate_gpt2, max_new_tokens=4, **how)
    follow(program, GENERATION, windows=9, native=native | TEXT | {"aten::cat"})


@slow_when_compiled
@pytest.mark.parametrize(
    ("beams", "windows", "native"),
    [(1, 12, set()), (2, 13, {"aten::remainder.Scalar", "aten::topk", "aten::floor_divide"})],
)
def test_t5_translates(follow, beams, windows, native):
    program = partial(generate_t5, max_new_tokens=4, num_beams=beams, do_sample=False)
    follow(program, GENERATION, windows, native | TEXT | {"aten::cat"})
