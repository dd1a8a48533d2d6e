"""Each micro-batch's sequence cut into slices, which go through the pipeline one after the other.

- `slices`: the slices of any chain of stages, with causal attention, and those of a GPT by its layers' costs
"""
