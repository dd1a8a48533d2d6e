"""Each micro-batch's sequence cut into slices, which go through the pipeline one after the other.

- `slices`: the slices of any chain of stages, with causal attention
- `gpt_slices`: those of a GPT, with the times and the memory of its layers
"""
