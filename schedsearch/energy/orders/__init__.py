"""Order and clocks together: of several schedules, the one of least energy.

In the order in which to read:

- `joint`: what no order can beat; the best order and modes of a small schedule.
- `joint_model`: its program's variables.
- `ordering`: the choice among schedules, and swaps of neighbours.
"""
