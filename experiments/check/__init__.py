"""Each claim of a schedule file, checked without the search: ``schedsearch check``.

- `options`, and `task`, which does it
"""
