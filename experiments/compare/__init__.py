"""Schedules of one model side by side: ``schedsearch compare``.

- `options`, `report`, and `task`, which does it
- `model`: what is compared, from a file of stages or layers
"""
