"""Measured training jobs in their own orders, in better ones, and assigned anew: ``schedsearch replay``.

- `options`, and `task`, which replays, prints and writes the tables
"""
