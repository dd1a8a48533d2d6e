"""Costs of the blocks of a placement on this machine: ``schedsearch profile``.

- `options`, and `task`, which does it
"""
