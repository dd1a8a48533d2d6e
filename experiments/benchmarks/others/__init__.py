"""Peers: packages that are installed beside ours, and programs of our own making from papers.

- `lowtime_plans`: the solver of Perseus's authors, on our graph
- `cvxpy_programs`: Gavel's programs in cvxpy, in a process of their own
- `recurrence`: PipeDream's dynamic programme as it is printed
- `torch_schedules`: the schedules that torch ships
- `torch_runtime`: torch's own runtime beside ours
"""
