"""What a machine reaches by shape: ``schedsearch profile_rates``.

- `options`, and `task`, which does it
"""
