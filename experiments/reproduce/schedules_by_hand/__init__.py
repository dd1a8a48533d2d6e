"""All schedules by hand beside searched ones, by placement and memory.

- `bubbles`: the table; `items`: it as an item
"""
