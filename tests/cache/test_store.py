"""Entries come back as they were written, or not at all."""

import errno
import io
import logging
import os

import pytest

from torch_shark.cache import CacheKey, Counters, DiskCache
from torch_shark.cache.store import _CHECKSUM_BYTES, _PREFIX, ENTRY_SUFFIX

KEY = CacheKey.of([("region", "add"), ("iree", "3.13.0")])
OTHER = CacheKey.of([("region", "mul"), ("iree", "3.13.0")])
PAYLOAD = bytes(range(256)) * 5


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "deep" / "cache", 1 << 20)


def entry(cache, key=KEY):
    return cache.folder / (key.digest + ENTRY_SUFFIX)


@pytest.mark.parametrize("payload", [PAYLOAD, b"", b"\0"], ids=["some", "empty", "zero"])
def test_round_trip(cache, payload):
    assert cache.get(KEY) is None
    cache.put(KEY, payload)
    assert cache.get(KEY) == payload
    assert cache.get(OTHER) is None
    assert cache.counters == Counters(hits=1, misses=2, writes=1)
    assert [path.name for path in cache.folder.iterdir()] == [entry(cache).name]


def test_put_replaces(cache):
    cache.put(KEY, b"old")
    cache.put(KEY, b"new and longer")
    assert cache.get(KEY) == b"new and longer"


def test_another_process_reads_it(cache):
    cache.put(KEY, PAYLOAD)
    assert DiskCache(cache.folder, 1 << 20).get(KEY) == PAYLOAD


def lengths(whole):
    record = whole - len(PAYLOAD)
    return {
        0: "nothing",
        1: "part of the magic",
        8: "the magic alone",
        _PREFIX.size - 1: "almost the prefix",
        _PREFIX.size: "the prefix alone",
        _PREFIX.size + _CHECKSUM_BYTES - 1: "almost the checksum",
        _PREFIX.size + _CHECKSUM_BYTES: "no record",
        record - 1: "almost the record",
        record: "no payload",
        record + 1: "one byte of payload",
        whole - 1: "all but one byte",
        whole + 1: "one byte more",
    }


def test_every_truncation_is_a_miss_and_is_removed(cache):
    cache.put(KEY, PAYLOAD)
    data = entry(cache).read_bytes()
    for removed, (length, what) in enumerate(lengths(len(data)).items(), start=1):
        entry(cache).write_bytes((data + b"\0")[:length])
        assert cache.get(KEY) is None, what
        assert not entry(cache).exists(), what
        assert cache.counters.removed_corrupt == removed, what
    entry(cache).write_bytes(data)
    assert cache.get(KEY) == PAYLOAD


def test_every_flipped_byte_is_a_miss_and_is_removed(cache):
    cache.put(KEY, PAYLOAD[:16])
    data = entry(cache).read_bytes()
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 0x10
        entry(cache).write_bytes(altered)
        assert cache.get(KEY) is None, place
        assert not entry(cache).exists(), place
    assert cache.counters == Counters(misses=len(data), writes=1, removed_corrupt=len(data))


def test_an_entry_under_anothers_name_is_a_miss(cache):
    cache.put(OTHER, PAYLOAD)
    entry(cache, OTHER).rename(entry(cache))
    assert cache.get(KEY) is None
    assert cache.counters.removed_corrupt == 1


def test_a_folder_in_place_of_an_entry_is_a_miss(cache):
    entry(cache).mkdir(parents=True)
    assert cache.get(KEY) is None


@pytest.mark.parametrize("kind", ["file", "below a file", "proc", "nul"])
def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path, caplog, kind):
    (tmp_path / "file").write_text("in the way")
    folder = {
        "file": tmp_path / "file",
        "below a file": tmp_path / "file" / "cache",
        "proc": "/proc/torch_shark",
        "nul": tmp_path / "a\0b",
    }[kind]
    cache = DiskCache(folder, 1 << 20)
    with caplog.at_level(logging.WARNING, logger="torch_shark.cache"):
        for _ in range(3):
            cache.put(KEY, PAYLOAD)
            assert cache.get(KEY) is None
    (record,) = caplog.records
    assert str(folder) in record.getMessage()
    assert "TORCH_SHARK_CACHE_DIR" in record.getMessage()
    assert cache.counters == Counters(misses=3)
    assert cache.explain_miss(KEY) == f"the cache folder {folder} holds no entries"


class FullDisk(io.FileIO):
    """A file on a disk that is full after one kilobyte."""

    def write(self, data):
        super().write(bytes(data)[:1024])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_nothing_behind(cache, monkeypatch, caplog):
    cache.put(OTHER, PAYLOAD)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "torch_shark.cache"):
        patch.setattr(os, "fdopen", lambda descriptor, mode: FullDisk(descriptor, mode))
        cache.put(KEY, PAYLOAD)
        cache.put(OTHER, b"lost")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text
    assert list(cache.folder.iterdir()) == [entry(cache, OTHER)]
    assert cache.get(OTHER) == PAYLOAD
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD


def test_a_read_error_is_a_miss(cache, monkeypatch):
    cache.put(KEY, PAYLOAD)

    def fail(*args, **kwargs):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", fail)
        assert cache.get(KEY) is None
    assert cache.get(KEY) == PAYLOAD


def test_a_miss_is_explained_by_the_nearest_entry(cache):
    assert cache.explain_miss(KEY) == f"the cache folder {cache.folder} holds no entries"
    cache.put(CacheKey.of([("region", "conv"), ("iree", "3.13.0")]), PAYLOAD)
    assert cache.explain_miss(KEY) == "the cache has no entry of this region"
    cache.put(CacheKey.of([("region", "add"), ("iree", "3.12.0")]), PAYLOAD)
    cache.put(CacheKey.of([("region", "div"), ("iree", "3.10.0")]), PAYLOAD)
    (cache.folder / ("0" * 64 + ENTRY_SUFFIX)).write_bytes(b"rubbish")
    assert cache.explain_miss(KEY) == "differs from the nearest entry in: iree 3.12.0 -> 3.13.0"
    cache.put(KEY, PAYLOAD)
    assert cache.explain_miss(KEY) == "the cache holds this entry"


def test_equally_near_entries_are_decided_by_the_last_use(cache):
    entries = [CacheKey.of([("region", "add"), ("iree", v)]) for v in ("3.11.0", "3.12.0")]
    for key in entries:
        cache.put(key, PAYLOAD)
    assert cache.explain_miss(KEY).endswith("iree 3.12.0 -> 3.13.0")
    cache.get(entries[0])
    assert cache.explain_miss(KEY).endswith("iree 3.11.0 -> 3.13.0")
