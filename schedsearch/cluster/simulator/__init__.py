"""Jobs on a cluster over time, in rounds, as Gavel's simulator runs them (dissertation, Sec. 5.5 and 5.7).

In the order in which to read:

- `options`: how a simulation is run
- `outcome`: what it found, and the numbers that follow
- `failures`: GPUs that fail and come back
- `job_table`: jobs as they arrive, and how far each one is
- `engine`: one round after another
- `simulation`: all of it, by one function; the state of an interrupted one
"""
