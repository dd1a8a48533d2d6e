"""Plans whose clocks change no more often than a device can change them; such that repeat, too.

In the order in which to read:

- `limits`: how often and how fast a device changes its clock.
- `model`: what clocks do under these limits.
- `annealing`: simulated annealing of the clocks of stretches.
- `bound`: what no such plan can beat.
- `planning`: all of these in turn.
"""
