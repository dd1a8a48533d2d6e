"""Strategies by name: what finds repetends of shorter periods, and what refutes periods.

A strategy looks at the state of the search and yields findings, of which the search makes the next state.
In the order in which to read:

- `strategy`: what every strategy is, and when it runs.
- `beginnings`: repetends of schedules made by hand, and of greedy ones.
- `bisection`: one objective made least for one number of micro-batches, question by question.
- `queries`: questions about all blocks at once, and the bound of the state-space search.
- `critical_swaps`: steps from one order to the next, compiled.
- `annealing`: the best order that such steps lead to.
- `mode_choices`: modes first, and the orders of what is left by the strategies above.
- `registry`: all of them by name, and which of them a search uses.
"""
