"""Which parts make keys the same and which make them different."""

import pytest

from torch_shark.cache import CacheKey
from torch_shark.cache.key import SHOWN_TEXT

PARTS = [("region", "func.func @main()"), ("target", "cpu"), ("iree", "3.12.0")]


def test_equal_parts_make_equal_keys():
    first, second = CacheKey.of(PARTS), CacheKey.of(list(PARTS))
    assert first == second
    assert first.digest == second.digest


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([*PARTS[:2], ("iree", "3.13.0")], id="text"),
        pytest.param([*PARTS[:2], ("torch", "3.12.0")], id="name"),
        pytest.param(PARTS[::-1], id="order"),
        pytest.param(PARTS[:2], id="fewer"),
        pytest.param([*PARTS, ("flags", "")], id="empty part"),
        pytest.param([("regionfunc", ".func @main()"), *PARTS[1:]], id="border of name and text"),
        pytest.param([("region", "func.func @main()target"), ("", "cpu"), PARTS[2]], id="border"),
    ],
)
def test_any_difference_makes_another_key(parts):
    assert CacheKey.of(parts) != CacheKey.of(PARTS)
    assert CacheKey.of(parts).digest != CacheKey.of(PARTS).digest


def test_names_occur_once():
    with pytest.raises(ValueError, match="different names"):
        CacheKey.of([("flags", "a"), ("flags", "b")])


def test_long_texts_differ_by_their_ends():
    long = "x" * (SHOWN_TEXT + 1)
    keys = [CacheKey.of([("region", long + end)]) for end in "ab"]
    assert keys[0].digest != keys[1].digest
    assert keys[0].parts[0].text is None
    assert keys[0].differences(keys[1]) == [
        f"region #{keys[1].parts[0].hash[:12]} -> #{keys[0].parts[0].hash[:12]}"
    ]


def test_differences_name_the_parts():
    key = CacheKey.of([("target", "cpu"), ("iree", "3.13.0"), ("flags", "")])
    entry = CacheKey.of([("iree", "3.12.0"), ("target", "cpu"), ("driver", "local-task")])
    assert key.differences(entry) == [
        "iree 3.12.0 -> 3.13.0",
        "flags absent -> (empty)",
        "driver local-task -> absent",
    ]
    assert key.differences(key) == []


def test_order_alone_is_named_as_the_difference():
    assert CacheKey.of(PARTS).differences(CacheKey.of(PARTS[::-1])) == ["order of parts"]
