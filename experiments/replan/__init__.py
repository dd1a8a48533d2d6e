"""Ways to go on when a device is lost or slow: ``schedsearch replan``.

- `options`, and `task`, which tries the ways, prints and writes them
"""
