"""The best layout of measured layers for 1F1B and interleaved 1F1B, with a bound on every layout.

- `defaults`: how hard the search tries
- `order_graph`: the orders of such a schedule, timed for many layouts at once; longest paths as bounds
- `layout_model`: no layout is faster than this: all bounds at once, by CP-SAT
- `layout_search`: the best layout, by neighbours and bounds in turn
- `layouts`: the best layouts of a model, for each number of chunks
"""
