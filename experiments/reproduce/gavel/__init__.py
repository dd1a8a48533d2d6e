"""Gavel's evaluation in simulation: chapter 5 of Narayanan's dissertation (2021), Sec. 5.7.

- `options`: what the items are given, and Gavel's data
- `spread`: a factor over several seeds
- `ideal`: jobs that get what is computed for them exactly
- `estimated`: a policy that knows pairs by estimates
- `study`: ways to schedule the same jobs beside each other, as an item
- `physical`: the traces of the cluster that Gavel ran on
- `policies`: LAS, finish times, makespan, first in first out, priorities
- `cost`: cost policies and deadlines
- `hierarchical`: fairness between entities
- `rounds`: the length of rounds
- `sharing`: space sharing, with estimates too, and Gandiva's
- `items`: all of them
"""
