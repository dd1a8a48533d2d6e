"""Rows of tables of runs: what a run is, its model, and the forms in which others publish runs.

- `run`: a run with its model, GPUs, layout, software and measurements
- `models`: the model of a run, by its name or by the sizes of its row
- `table_forms`: columns, units and constants of others' tables
"""
