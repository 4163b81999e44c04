"""The bench suite: real programs on the shark device, on the CPU, and as others compile them.

``python -m torch_shark.bench`` runs it; README.md of this folder says what is measured and how.
"""
