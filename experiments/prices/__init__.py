"""What a job saves by moving among spot prices: ``schedsearch prices``.

- `options`; `disturbances`: what restarts and preemptions leave of a reduction
- `tables`: CSV files and a table for people
- `drawings`: figures like those of the dissertation's chapter 6
- `task`: all of it
"""
