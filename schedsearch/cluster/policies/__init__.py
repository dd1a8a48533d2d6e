"""From a demand to an allocation: Gavel's policies and others (dissertation, Sec. 5.4 and 6.4).

In the order in which to read:

- `policy`: the interface of policies, and the forms of most: plain, agnostic of types, with space sharing
- `program`: the linear program that they share
- `fairness`: max-min fairness and the isolated split
- `water_filling`: max-min fairness whose other jobs are raised too; fairness between entities
- `single_level`: makespan, finish-time fairness, largest total throughput, first in first out, shortest first
- `spending`: least cost or energy, with deadlines and within budgets
- `allox`: least average completion time by matching
- `gandiva`: sharing of GPUs by trial
- `registry`: policies by name
"""
