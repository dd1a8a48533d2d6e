"""Costs of blocks by clock, measured or modelled.

In the order in which to read:

- `operating_point`: the cost of a block at one clock, and its file form
- `profile`: the cost of each block at each clock
- `mode_costs`: the cost of blocks in their modes
- `length_rules`: time and memory of blocks by the length of a sequence, as polynomials
"""
