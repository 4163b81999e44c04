"""Compile workers: regions are lowered and compiled in processes of their own."""

from torch_shark.workers.job import Answer, Request
from torch_shark.workers.pool import Pool
from torch_shark.workers.slot import Counters

__all__ = ["Answer", "Counters", "Pool", "Request"]
