"""Lower bounds on period, span, makespan and memory of every schedule, each with its proof, and a check.

A bound on the period is data that proves it: anybody computes its value from them. Knows nothing of the
search. In the order in which to read:

- `bound`: a bound on the period, its value, and what it relies on.
- `timeline`: the time of a schedule, whole or without the blocks that devices share.
- `device_states`: the memory that a device can hold without a deadlock, or at least within its capacity.
- `memory_occupancy`: the period by Little's law.
- `mode_choice`: the period where blocks have modes, by time and memory over all mixes of them.
- `load_and_path`: the period by load, and by all of these; the span by the critical path.
- `sequences`: the makespan by what runs one after the other on a device, and on two in a row.
- `ends`: how long a device must be idle at both ends, under its memory; the device span.
- `makespan`: the makespan of some micro-batches.
- `memory_need`: the memory of one micro-batch.
- `check`: certificates, and programs that show again what they rely on.
"""
