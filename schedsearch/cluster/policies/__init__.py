"""From a demand to an allocation: Gavel's policies and others (dissertation, Sec. 5.4 and 6.4).

In the order in which to read:

- `policy`: what a policy is
- `program`: the linear program that they share
- `fairness`: max-min fairness
- `water_filling`: max-min fairness whose other jobs are raised too
- `hierarchical`: fairness between entities, fairness or first in first out inside
- `cost`: least cost, least cost with deadlines, least makespan within a budget
- `allox`: least average completion time by matching
- `gandiva`: sharing of GPUs by trial
"""
