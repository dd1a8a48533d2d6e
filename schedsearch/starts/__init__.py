"""Repetends and schedules that are found without a solver.

In the order in which to read:

- `serial`: one block after another.
- `event_simulation`: idle devices run the ready block that a rule prefers.
- `turns`: micro-batches by turns, the gaps filled with weight halves, as zero bubble's automatic schedules.
- `steady_state`: the repetend in the middle of a schedule.
- `greedy_repetends`: one micro-batch's blocks, each at the first tick free in every period.
"""
