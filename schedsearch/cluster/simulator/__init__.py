"""Jobs on a cluster over time, in rounds, as Gavel's simulator runs them (dissertation, Sec. 5.5 and 5.7).

In the order in which to read:

- `options`: how a simulation is run
- `outcome`: what it found, and the numbers that follow
- `arrivals`: the jobs of a trace, each checked as it arrives
- `simulation`: one round after another
"""
