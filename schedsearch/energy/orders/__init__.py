"""Order and clocks together: of several schedules, the one of least energy.

In the order in which to read:

- `any_order`: what no order and no modes can beat.
- `joint`: the best order, modes and clocks of a small schedule.
- `joint_model`: its program's variables.
- `ordering`: the choice among schedules, swaps of neighbours, and both at several deadlines.
"""
