"""Rates of a machine by shape: ``schedsearch profile_rates``.

- `options`, and `task`, which does it
"""
