"""Inputs of measures, made from the arguments of a case.

- `made_placements`: shapes, with modes and with streams
- `random_placements`: two hundred from seeds
- `layers`: layers measured on an H100
- `batches`: micro-batches that differ
- `clock_tasks`: schedules with profiles of their blocks
- `loads`: jobs that come and go on a cluster
"""
