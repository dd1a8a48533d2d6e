"""Plans that a real job can run: clocks that repeat, a cap on power.

In the order in which to read:

- `folding`: a periodic schedule of any length as a graph of constant size.
- `periodic`: plans whose clocks repeat with the repetend.
- `power_cap`: the shortest iteration under a limit on average power.
- `power_shape`: power over time, and the plan of least energy under limits on its peak, ramps and swing.
- `robust`: a plan that keeps its deadline with a confidence although times vary.
"""
