"""Cutting a run of entries where it repeats itself."""

import itertools

import pytest

from torch_shark.lowering.repeats import cut_repeats


def pieces_of(kinds, crossing=None, most=256):
    pieces = cut_repeats(kinds, crossing or [1] * len(kinds), most)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == len(kinds)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    assert all(0 < end - begin <= most for begin, end in pieces)
    return [tuple(kinds[begin:end]) for begin, end in pieces]


@pytest.mark.parametrize("period", [8, 13, 55])
def test_layers_between_a_head_and_a_tail_are_one_piece_each(period):
    layer = list(range(100, 100 + period))
    kinds = [1, 2, 3] + layer * 6 + [4, 5]
    pieces = pieces_of(kinds)
    assert len(set(pieces)) <= 3
    assert max(pieces.count(piece) for piece in pieces) >= 5


def test_the_cut_is_where_the_fewest_values_cross():
    layer = list(range(12))
    crossing = ([5] * 4 + [1] + [5] * 7) * 6
    pieces = pieces_of(layer * 6, crossing)
    assert pieces.count((4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3)) == 5


def test_two_repetitions_are_both_cut():
    forward, backward = list(range(20)), list(range(50, 80))
    pieces = pieces_of([99] + forward * 5 + [98] + backward * 5 + [97])
    assert pieces.count(tuple(forward)) >= 4
    assert pieces.count(tuple(backward)) >= 4


def test_a_loop_of_one_entry_makes_large_equal_pieces():
    assert [len(piece) for piece in pieces_of([7] * 1000)] == [256, 256, 256, 232]


def test_what_does_not_repeat_is_cut_by_size_only():
    assert [len(piece) for piece in pieces_of(list(range(600)))] == [256, 256, 88]
    assert len(pieces_of([1, 2, 1, 2, 1, 2])) == 1
