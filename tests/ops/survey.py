"""Run compiled cases and tell: `PYTHONPATH=. python tests/ops/survey.py [GROUP...]`.

What was wrong in a group of cases is told in a line of JSON on standard output. Groups run in a
worker process: a compiler that crashes, hangs or eats the memory costs one group, which counts as
wrong. What the named groups show is added to `lowered.json`; without names all groups are run and
the file is made anew. The exit code says whether all values were right.
"""

from __future__ import annotations

import json
import resource
import sys
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import lowered
import torch
from compiled import differences, groups

SECONDS = 600
BYTES = 8 << 30

_GROUPS = {group.name: group for group in groups()}

Outcome = tuple[list[str], dict[str, set[str]]]


def survey(names: list[str], parts: list[lowered.Part]) -> bool:
    """Run groups, tell of each and write what all showed, after `parts`; whether all were right."""
    right = True
    pool = _worker()
    for name in names:
        try:
            wrong, seen = pool.submit(_run, name).result(SECONDS)
        except Exception as error:  # the worker is gone, or is to go
            wrong, seen = [type(error).__name__], {}
            for process in list(pool._processes.values()):
                process.kill()
            pool.shutdown()
            pool = _worker()
        print(json.dumps([name, wrong]), flush=True)
        right &= not wrong
        parts.append((_GROUPS[name].column, seen))
        lowered.write(lowered.merged(parts))
    pool.shutdown()
    return right


def _worker() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), _limit)


def _limit() -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    torch.set_num_threads(1)


def _run(name: str) -> Outcome:
    seen: dict[str, set[str]] = {}
    try:
        return differences(_GROUPS[name].cases, seen), seen
    except Exception:
        return [traceback.format_exc()], seen


if __name__ == "__main__":
    named = sys.argv[1:]
    known = lowered.parts() if named else []
    sys.exit(not survey(named or list(_GROUPS), known))
