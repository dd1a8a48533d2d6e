"""What the blocks of a placement cost on this machine: ``schedsearch profile``; what it reaches by shape.

- `options`, and `task`, which does it
- `rates_task`: shares of the GPU's peak by shape: ``schedsearch profile_rates``
"""
