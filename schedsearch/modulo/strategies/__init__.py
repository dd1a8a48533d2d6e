"""Strategies by name: what finds repetends of shorter periods, besides asking a solver about all blocks.

A strategy looks at the search and yields repetends; it changes nothing of the search. In the order in which
to read:

- `strategy`: what every strategy is, what it may look at, and what each one brought.
- `beginnings`: repetends of schedules made by hand, of greedy ones, and of simulated ones.
- `orders`: other orders of the blocks: device by device, by annealing, by patterns, in neighbourhoods.
- `registry`: all of them by name, and which of them a search uses.
"""
