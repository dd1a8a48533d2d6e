"""Order and clocks together: of several schedules, the one of least energy.

- `any_order`: a lower bound for every order and all modes.
- `ordering`: the choice among schedules, and swaps of neighbours.
"""
