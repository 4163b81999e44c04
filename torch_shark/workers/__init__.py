"""Compile workers: regions are lowered and compiled in processes of their own."""

from torch_shark.workers.job import Request
from torch_shark.workers.pool import Pool
from torch_shark.workers.slot import Counters

__all__ = ["Counters", "Pool", "Request"]
