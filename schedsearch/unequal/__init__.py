"""One batch of micro-batches that differ in time and memory: their order, and that of all blocks.

In the order in which to read:

- `micro_batches`: the table of what blocks take and hold in each micro-batch, as modes of a placement
- `starts`: schedules made by hand, with micro-batches in orders by their work
- `unequal_search`: the least makespan, with a bound
"""
