"""Measures, a file for each group of cases: a function takes a case's arguments and returns named figures.

Figures whose names end in ``_s`` or ``_us``, or begin with ``cpu`` or ``wall``, are measured times and their
ratios. They differ from machine to machine; the others do not.

- `search`, `modes`, `unequal`, `layouts`: what the search finds
- `frontier`: plans of clocks
- `planners`, `cluster`: plans of models, and of jobs
- `peers`: ours beside every peer
- `runtime`, `server`: what runs
"""
