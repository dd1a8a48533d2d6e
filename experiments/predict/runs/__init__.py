"""Rows of tables of runs: what a run is, and the forms in which others publish runs.

- `run`: a run with its model, GPUs, layout, software and measurements
- `table_forms`: columns, units and constants of others' tables
"""
