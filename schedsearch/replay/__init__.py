"""Measured iterations of a training job: their time by cause, and their time in better orders.

In the order in which to read:

- `clocks`: clocks of ranks aligned by messages
- `job`: the iterations of a trace, and the blocks of each replica in them
- `pipeline`: the job as a placement, with usual delays and the speed of each replica
- `causes`: the parts of an iteration, by what causes them
- `replay`: each iteration in its own order, in better orders, and with its micro-batches assigned anew
"""
