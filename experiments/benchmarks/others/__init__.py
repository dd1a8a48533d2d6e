"""Peers: packages that are installed beside ours.

- `lowtime_plans`: the solver of Perseus's authors, on our graph
- `torch_schedules`: the schedules that torch ships
- `torch_runtime`: torch's own runtime beside ours
"""
