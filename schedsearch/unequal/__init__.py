"""One batch of micro-batches that differ in time and memory: their order, and that of all blocks.

In the order in which to read:

- `micro_batches`: the table of what blocks take and hold in each micro-batch, as modes of a placement
- `starts`: schedules made by hand, with micro-batches in orders by their work
- `unequal_search`: the least makespan, with a bound
- `replica_work`: the micro-batches on several replicas
- `sequencing`: annealing of sequences of micro-batches on replicas, compiled
- `sequence_tables`: arrays for that, and sequences as schedules
- `replica_bound`: what no assignment to replicas beats
- `replicas`: the best assignment, and the order of each replica
"""
