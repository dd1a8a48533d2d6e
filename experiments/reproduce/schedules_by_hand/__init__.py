"""All schedules by hand beside searched ones, by placement and memory.

- `bubbles`: the table, as an item
"""
