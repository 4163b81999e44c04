"""``python -m torch_shark`` prints the table of knobs, as README.md shows it."""

from torch_shark.config import knob_table

print(knob_table())
