"""One batch of micro-batches that differ in time and memory: the order of micro-batches and of blocks.

In the order in which to read:

- `micro_batches`: the table of times and memory of blocks by micro-batch, as modes of a placement
- `replica_work`: the micro-batches on several replicas, and schedules of them
- `replica_bound`: a bound on all assignments to replicas
- `starts`: schedules made by hand, with micro-batches in orders by their work and packed on replicas
- `sequencing`: annealing of sequences of micro-batches on replicas, compiled
- `sequence_tables`: arrays for that, and sequences as schedules
- `block_orders`: blocks of one replica that change places, by annealing and by a solver
- `unequal_search`: the least makespan, of one pipeline or several replicas, with a bound
"""
