"""What docs/kernels.md shows is what happens."""

import re
from pathlib import Path

import torch

DOCS = Path(__file__).parents[2] / "docs" / "kernels.md"


def test_the_example_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    exec(program, {})
    x = torch.linspace(-3, 9, 6).view(2, 3) * 2
    assert capsys.readouterr().out == f"{torch.nn.functional.relu6(x).tolist()}\n"
