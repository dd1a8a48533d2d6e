"""Measured iterations of a training job, simulated in their own orders and in better ones.

In the order in which to read:

- `trace`: the operations of all iterations, from a trace and the job's degrees
- `pipeline`: the job as a placement, with messages and the speed of each replica
- `replay`: each iteration in its own order, in the best order, and with its micro-batches assigned anew
"""
