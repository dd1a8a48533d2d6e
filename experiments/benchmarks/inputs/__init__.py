"""Inputs of measures, made from the arguments of a case.

- `made_placements`: shapes, with modes and with streams
- `random_placements`: two hundred from seeds
- `shops`: published shops
- `clock_tasks`: schedules with profiles of their blocks
"""
