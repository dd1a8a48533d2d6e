"""Bounds that no schedule can beat: on period, span, makespan and memory, each with its proof.

Knows nothing of the search. In the order in which to read:

- `timeline`: the time of a schedule, whole or without the blocks that devices share.
- `what_fits`: how many micro-batches of each size a device's memory holds at once.
- `device_states`: what a device can hold without getting stuck; or, with too many states, what fits.
- `memory_occupancy`: the period by Little's law.
- `mode_choice`: the period where blocks have modes, by time and memory over all mixes of them.
- `conflicts`: the period by what cannot run at once, as each two share some device.
- `load_and_path`: the period by load, the span by the critical path.
- `sequences`: the makespan by what runs one after the other on a device, and on two in a row.
- `ends`: how long a device must be idle at both ends, under its memory; the device span.
- `makespan`: the makespan of some micro-batches.
- `memory_need`: the memory of one micro-batch.
"""
