"""Placements made of other placements, by a rule for each of their blocks.

- `slices`: each micro-batch's sequence cut into slices with causal attention
- `gpt_slices`: the same of a GPT, with the times and the memory of its cost model
"""
