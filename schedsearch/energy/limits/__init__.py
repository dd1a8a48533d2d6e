"""Plans that a real job can run: they keep limits on power or clock changes beside a deadline.

In the order in which to read:

- `power_cap`: the shortest iteration under a limit on the average power of the job.
- `switching`: how often and how fast devices change clocks, as one problem.
- `annealing`: simulation of clocks under these limits, and their simulated annealing, compiled.
- `switched`: plans whose clocks change seldom, and their lower bound.
- `folding`: a periodic schedule of any length as a graph of constant size.
- `periodic`: plans whose clocks repeat with the repetend, also under switching limits.
"""
