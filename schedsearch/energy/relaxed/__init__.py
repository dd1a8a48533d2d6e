"""The relaxed problem: blocks that may take any time between two clocks.

In the order in which to read:

- `relaxation`: the whole relaxed frontier by minimum cuts, exact and quick; one clock for each block.
- `highs`: linear programs and what their solver says.
- `timing_program`: the relaxed problem as such a program, for clock groups, periods and limits on power.
- `exponential`: the curve that Perseus fits to the modes of a block.
"""
