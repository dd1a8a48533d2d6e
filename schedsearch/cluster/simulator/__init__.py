"""Jobs on a cluster over time, in rounds, as Gavel's simulator runs them (dissertation, Sec. 5.5 and 5.7).

In the order in which to read:

- `options`: options of a simulation
- `outcome`: the outcome of a simulation, and the figures that follow
- `simulation`: the jobs of a trace, checked as they arrive, one round after another
"""
