"""What `experiments.prices` writes: tables, and figures like those of the dissertation's chapter 6.

- `disturbances`: what restarts and preemptions leave of a reduction
- `tables`: CSV files and a table for people
- `drawings`: the figures
"""
