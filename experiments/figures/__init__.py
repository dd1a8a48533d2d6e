"""Commands that draw figures of Tessel's paper: many searches, rows as CSV, curves as PNG and SVG.

- `options`: those of the three commands
- `pool`: searches in several processes, rows as they come
- `cases`, `sweep`: the bubble rate of one placement, and of many in a figure
- `bubble_by_in_flight`, `bubble_by_memory`, `time_by_transfer`: a command each
"""
