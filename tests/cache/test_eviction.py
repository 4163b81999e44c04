"""The bound on the size, the order of eviction, and several processes at once."""

import os
import subprocess
import sys
import time

import pytest

from torch_shark.cache import CacheKey, DiskCache
from torch_shark.cache.eviction import ORPHAN_SECONDS, evict
from torch_shark.cache.store import ENTRY_SUFFIX, TEMPORARY_SUFFIX

PAYLOAD = b"x" * 1000


def key(number):
    return CacheKey.of([("number", f"{number:03}")])


def entry_bytes(folder):
    return sum(path.stat().st_size for path in folder.glob("*" + ENTRY_SUFFIX))


@pytest.fixture
def one_entry(tmp_path):
    """Size in bytes of an entry's file with PAYLOAD."""
    cache = DiskCache(tmp_path / "measure", 1 << 20)
    cache.put(key(0), PAYLOAD)
    return entry_bytes(cache.folder)


def test_the_least_recently_used_goes_first(tmp_path, one_entry):
    cache = DiskCache(tmp_path / "cache", 3 * one_entry)
    for number in range(3):
        cache.put(key(number), PAYLOAD)
    assert cache.counters.evicted == 0
    assert cache.get(key(0)) == PAYLOAD
    cache.put(key(3), PAYLOAD)
    assert cache.counters.evicted == 1
    assert [cache.get(key(number)) is not None for number in range(4)] == [True, False, True, True]
    cache.put(key(4), PAYLOAD)
    assert [cache.get(key(number)) is not None for number in range(5)] == [
        *(False, False),
        *(True, True, True),
    ]


def test_a_payload_above_the_bound_drives_nothing_out(tmp_path, one_entry):
    cache = DiskCache(tmp_path / "cache", 2 * one_entry)
    cache.put(key(0), PAYLOAD)
    cache.put(key(1), b"x" * (2 * one_entry + 1))
    assert cache.get(key(1)) is None
    assert cache.get(key(0)) == PAYLOAD


def test_rewriting_an_entry_makes_it_recent(tmp_path, one_entry):
    cache = DiskCache(tmp_path / "cache", 2 * one_entry)
    for number in (0, 1, 0, 2):
        cache.put(key(number), PAYLOAD)
    assert [cache.get(key(number)) is not None for number in range(3)] == [True, False, True]


def test_only_old_temporary_files_are_removed(tmp_path):
    now = time.time()
    for name, age in (("young", ORPHAN_SECONDS - 60), ("old", ORPHAN_SECONDS + 60)):
        path = tmp_path / (name + TEMPORARY_SUFFIX)
        path.write_bytes(PAYLOAD)
        os.utime(path, (now - age, now - age))
    assert evict(tmp_path, 0) == 0
    assert [path.stem for path in tmp_path.iterdir()] == ["young"]


def test_other_peoples_files_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    evict(tmp_path, 0)
    assert (tmp_path / "notes.txt").exists()


def test_a_missing_folder_has_nothing_to_evict(tmp_path):
    assert evict(tmp_path / "absent", 0) == 0


WORKER = """
import random, sys
from torch_shark.cache import CacheKey, DiskCache
folder, seed, bound = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cache = DiskCache(folder, bound)
choose = random.Random(seed)
for _ in range(400):
    number = choose.randrange(20)
    key = CacheKey.of([("number", str(number))])
    expected = bytes([number]) * (200 + 50 * number)
    found = cache.get(key)
    assert found is None or found == expected, number
    if found is None:
        cache.put(key, expected)
counters = cache.counters
assert counters.removed_corrupt == 0, counters
print(counters.hits, counters.writes, counters.evicted)
"""


def test_processes_share_a_folder(tmp_path):
    bound = 8000
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(seed), str(bound)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    results = [worker.communicate(timeout=120) for worker in workers]
    assert [
        (worker.returncode, err) for worker, (_, err) in zip(workers, results, strict=True)
    ] == [(0, "")] * len(workers)
    hits, writes, evicted = (
        sum(column) for column in zip(*(map(int, out.split()) for out, _ in results), strict=True)
    )
    assert hits > 0
    assert evicted > 0
    left = list(tmp_path.iterdir())
    assert {path.suffix for path in left} == {ENTRY_SUFFIX}
    assert len(left) <= writes - evicted
    assert entry_bytes(tmp_path) <= bound
