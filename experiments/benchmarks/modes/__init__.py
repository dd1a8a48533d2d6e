"""Modes and streams decided by the search, beside how people decide by hand, with equal memory.

- `placements`: stages that recompute or offload, and layers of experts with all-to-alls on their own stream.
- `measuring`: what a search reaches, and the best schedule made by hand beside it.
- `cases`: what must be reached.
"""
