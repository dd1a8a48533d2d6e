"""Repetends of shorter periods where the question about all blocks at once is too large for a solver.

In the order in which to read:

- `line_of_devices`: a V-shape or a loop of chunks as devices of which each waits for its neighbours.
- `device_orders`: orders of one device's blocks, and the repetend of those of all devices.
- `next_device`: orders of one device built block by block from those of the device before.
- `ring_closing`: whether such orders can still come back to the first device's.
- `device_beam`: a beam search over them for the shortest period.
- `shifted_model`: one pattern for a few neighbouring devices, shifted to the others, as a question to CP-SAT.
- `shifted_patterns`: the shortest period that such a pattern has.
- `segments`: the parts of a repetend that are ordered anew while the rest keeps its order.
- `segment_model`: that as one question to CP-SAT.
- `shorten_period`: large-neighbourhood search over such parts.
"""
