"""Jobs on a cluster over time, in rounds, as Gavel's simulator runs them (dissertation, Sec. 5.5 and 5.7).

In the order in which to read:

- `options`: how a simulation is run
- `outcome`: what it found, and the numbers that follow
- `arrivals`: the jobs of a trace one by one
- `failures`: GPUs that fail and come back
- `job_table`: how far each job is
- `running`: what one round brings
- `history`: what is kept while it runs
- `engine`: one round after another
- `resume`: the state of an interrupted simulation
- `simulation`: all of it, by one function
"""
