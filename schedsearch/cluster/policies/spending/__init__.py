"""Policies about money and energy: how little of it jobs can be done with.

In the order in which to read:

- `cost`: least cost, least cost with deadlines, least makespan within a budget
- `energy`: least energy or cost with SLOs and fair shares
"""
