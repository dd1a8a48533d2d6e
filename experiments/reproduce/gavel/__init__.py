"""Gavel's evaluation in simulation: chapter 5 of Narayanan's dissertation (2021), Sec. 5.7.

- `options`: what the items are given, and Gavel's data
- `spread`: a factor over several seeds
- `ideal`: jobs that get what is computed for them exactly
- `study`: ways to schedule the same jobs beside each other, as an item
- `physical`: the traces of the cluster that Gavel ran on
- `policies`: ways beside each other: LAS, finish times, makespan, costs, rounds, space sharing
- `hierarchical`: fairness between entities
- `items`: all of them
"""
