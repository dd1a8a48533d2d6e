"""Rows of tables of runs: the fields of a run, and the forms in which others publish runs.

- `run`: a run with its model, GPUs, layout, software and measurements
- `table_forms`: columns, units and constants of others' tables
"""
