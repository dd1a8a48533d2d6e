"""Strategies by name: what finds repetends of shorter periods, and what refutes periods.

A strategy looks at the state of the search and yields findings, of which the search makes the next state.
In the order in which to read:

- `strategy`: what every strategy is, and when it runs.
- `beginnings`: repetends of schedules made by hand, of greedy ones, and of simulated ones.
- `orders`: other orders of the blocks: device by device, by annealing, by patterns, in neighbourhoods.
- `bisection`: one objective made least for one number of micro-batches, question by question.
- `infeasible`: why there is no schedule.
- `queries`: questions about all blocks at once, and the bound of the state-space search.
- `registry`: all of them by name, and which of them a search uses.
"""
