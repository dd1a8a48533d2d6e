"""From models to a cluster over months: ``schedsearch cluster_study``.

- `options`, and `task`, which does it
"""
