"""A search for the orders of devices in a line or a ring, from each device to the next, under tight memory.

In the order in which to read:

- `line_of_devices`: a placement as a line of devices, and what weighs on memory.
- `device_orders`: orders of one device's blocks in a period, and the repetend of those of all devices.
- `next_device`: orders of the next device, compiled.
- `ring_closing`: what must come back to the first device of a ring, compiled.
- `device_beam`: the beam search over the devices, for several periods and numbers of micro-batches.
- `strategy`: all of it as a strategy of the search.
"""
