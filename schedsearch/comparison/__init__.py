"""Schedules of one model side by side.

In the order in which to read:

- `rows`: the table, and its file form
- `course`: hand-made and searched schedules on their shapes, one after the other
- `unequal`: the same of micro-batches that differ
- `compare`: the question and its answer
"""
