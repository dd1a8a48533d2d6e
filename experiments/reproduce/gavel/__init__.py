"""Gavel's evaluation in simulation: chapter 5 of Narayanan's dissertation (2021), Sec. 5.7.

- `study`: policies that schedule the same jobs beside each other; the items are in ``studies.yaml``
- `hierarchical`: fairness between entities
"""
