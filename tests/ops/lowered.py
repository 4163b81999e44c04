"""What the compiled samples showed: for each recorded operator, compiled or why not.

`lowered.json` holds it, the tests hold it to what they see, and docs/operators.md is made of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from compiled import AT_ONCE, COMPILED

from torch_shark import _C

FILE = Path(__file__).parent / "lowered.json"
TABLE = Path(__file__).parents[2] / "docs" / "operators.md"

COLUMNS = ("float32", "int64", "bool", "bfloat16", "float16", "gradient")
# The tests' own: random numbers begin anew, and the joined arguments are copied.
_OF_THE_TESTS = ("shark::seed_",)
_NOT_LOWERED = "IREE has no lowering for it"
_EMPTY = "it reads an empty tensor"

# Operator, column, what became of it.
Seen = dict[str, dict[str, list[str]]]
# What a group of cases, of one column, showed of each operator.
Part = tuple[str, Mapping[str, Iterable[str]]]


def merged(parts: Iterable[Part]) -> Seen:
    """One table of what was seen of operators in several groups of cases, each of one column."""
    found: Seen = {}
    for column, seen in parts:
        for name, outcomes in seen.items():
            if name not in _OF_THE_TESTS:
                cell = found.setdefault(name, {}).setdefault(column, [])
                cell[:] = sorted({*cell, *map(_in_short, outcomes)})
    return {name: found[name] for name in sorted(found)}


def _in_short(outcome: str) -> str:
    """The compiler's words name values of one module; that it refused is what lasts."""
    if outcome.startswith("[shark]"):
        return _NOT_LOWERED
    return re.sub(r"gives \(.*\) by \(.*\)", "gives its geometry", outcome)


def read() -> tuple[str, Seen]:
    """PyTorch's version, and what was seen with it."""
    data = json.loads(FILE.read_text())
    return data["torch"], data["seen"]


def parts() -> list[Part]:
    """What was seen, as groups of cases show it."""
    return [(column, {name: row[column]}) for name, row in read()[1].items() for column in row]


def unknown(now: Seen) -> list[str]:
    """What is seen now and was not before. Another version of PyTorch has other samples."""
    version, before = read()
    if version != _version():
        return []
    return [
        f"{name} in {column}: {outcome}"
        for name, row in now.items()
        for column, outcomes in row.items()
        for outcome in outcomes
        if outcome not in before.get(name, {}).get(column, [])
    ]


def write(seen: Seen) -> None:
    """Keep what was seen, an operator a line, and make the table of it."""
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in seen.items()]
    head = f'{{"torch": {json.dumps(_version())}, "seen": {{\n'
    FILE.write_text(head + ",\n".join(lines) + "\n}}\n")
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(_version(), seen))


def _version() -> str:
    return torch.__version__.partition("+")[0]


_INTRODUCTION = """\
# Operators

Every operator of PyTorch runs on the device: what is not compiled runs natively. This page says
what was seen under the policy `iree` for samples of PyTorch {}'s own operator tests (OpInfo),
edge values included: which recorded operators were compiled, in which dtypes, and why the others
were not. Gradients are in float32. `torch.shark.explain()` says it of a program.

All results were the CPU's within the tolerances of `torch.testing`, or else as near to the exact
value as the CPU's: sums are added up in another order.

Compiled regions take numbers nearer to zero than 1.2e-38 (denormal float32) for zero, as
`torch.set_flush_denormal(True)` would.

The tests compare this page with what they see; `make operators` makes it anew.
"""


def table(version: str, seen: Seen) -> str:
    """The page docs/operators.md: what was seen with a version of PyTorch."""
    rows = {name: (row, set().union(*row.values())) for name, row in seen.items()}
    compiled = {name for name, (_, outcomes) in rows.items() if COMPILED in outcomes}
    at_once = {name for name, (_, outcomes) in rows.items() if outcomes == {AT_ONCE}}
    native = rows.keys() - compiled - at_once
    lines = [
        _INTRODUCTION.format(version),
        f"## Compiled ({len(compiled)})\n",
        "`+` all samples that are not empty, `±` some of them, `-` none; a blank: not seen.\n",
        f"| operator | {' | '.join(COLUMNS)} | native where |",
        "|---|" + "---|" * (len(COLUMNS) + 1),
    ]
    for name in sorted(compiled):
        row, outcomes = rows[name]
        cells = " | ".join(_cell(set(row.get(column, ()))) for column in COLUMNS)
        reasons = "; ".join(sorted(outcomes - {COMPILED, AT_ONCE, _EMPTY}))
        lines.append(f"| `{_plain(name)}` | {cells} | {reasons} |")
    lines += [f"\n## Native ({len(native)})\n", "| operator | seen in | why |", "|---|---|---|"]
    for name in sorted(native):
        row, outcomes = rows[name]
        columns = ", ".join(column for column in COLUMNS if column in row)
        reasons = "; ".join(sorted(outcomes - {AT_ONCE, _EMPTY} or {_EMPTY}))
        lines.append(f"| `{_plain(name)}` | {columns} | {reasons} |")
    lines += [f"\n## At once, never recorded ({len(at_once)})\n", "| operator | why |", "|---|---|"]
    for name in sorted(at_once):
        why = _C.op_policy(name)["why"] or "what comes out is known only when it has run"
        lines.append(f"| `{_plain(name)}` | {why} |")
    return "\n".join(lines) + "\n"


def _cell(outcomes: set[str]) -> str:
    if not outcomes:
        return ""
    if COMPILED not in outcomes:
        return "-"
    return "+" if outcomes <= {COMPILED, AT_ONCE, _EMPTY} else "±"


def _plain(name: str) -> str:
    return name.removeprefix("aten::")
