"""Special forms of a problem, made plain before a search begins, and answers made theirs again.

Each pass takes a problem and returns a plainer one with what lifts its answer, or nothing where the problem
has not its form. Behind them devices run one block at a time, each as long as it always takes. In the order
in which to read:

- `passed`: what a pass returns.
- `lowered`: a placement with its modes chosen and a device for each stream, and back.
- `slow_streams`: streams that slow each other down, searched at their worst.
- `border`: the passes in their order, and streams, each of which becomes a device.
- `begin_with`: a schedule to begin with, on the placement that is searched.
"""
