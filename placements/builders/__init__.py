"""Placements made of other placements, by a rule for each of their blocks.

- `slices`: each micro-batch's sequence cut into slices with causal attention
"""
