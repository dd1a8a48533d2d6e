"""Measures, a file for each group of cases: a function takes a case's arguments and returns named figures.

Figures whose names end in ``_s`` or ``_us``, or begin with ``cpu`` or ``wall``, are measured times and their
ratios. They differ from machine to machine, as memory that ends in ``_mib`` does; the others do not.

- `search`: schedules that the search finds
- `frontier`: plans of clocks
- `peers`: ours beside every peer
- `size`: CPU time and memory of each step by devices and micro-batches
"""
