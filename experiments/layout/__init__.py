"""The best layout of a model's layers for 1F1B and interleaved 1F1B: ``schedsearch layout``.

- `options`, and `task`, which finds, prints and writes the layouts
"""
