"""Schedules of one model side by side: ``schedsearch compare``.

- `options`, `report`, and `task`, which does it
"""
