"""Gavel's evaluation in simulation: chapter 5 of Narayanan's dissertation (2021), Sec. 5.7.

- `options`: options of the items, and Gavel's data
- `study`: policies that schedule the same jobs beside each other, as an item
- `policies`: the physical cluster's traces; LAS, finish times, makespan, FIFO, costs and space sharing
- `hierarchical`: fairness between entities
"""
