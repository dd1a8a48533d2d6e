"""Passes: each reduces a special form of a problem to a plainer one, and lifts the answer back.

A pass takes a problem and returns a plainer one with the function that lifts its answer, or None if the
problem does not have its form. After all passes, a device runs one block at a time, and a block always takes
equally long. In the order in which to read:

- `passed`: the plainer problem, and the way back from its answer.
- `lowered`: a placement with its modes chosen and a device for each stream, and back.
- `slow_streams`: streams that slow each other down, searched at their worst.
- `border`: the passes in their order, and streams, each of which becomes a device.
- `begin_with`: a schedule to begin with, on the placement that is searched.
"""
