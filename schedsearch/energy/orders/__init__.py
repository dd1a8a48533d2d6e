"""Order and clocks together: of several schedules, the one of least energy.

- `any_order`: what no order and no modes can beat.
- `ordering`: the choice among schedules, and swaps of neighbours.
"""
