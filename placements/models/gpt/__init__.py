"""Placements of a GPT, by its shape and the data sheet of a GPU.

In the order in which to read:

- `gpt_config`: a GPT and its micro-batch, with parameters and bytes
- `checkpoints`: how many inputs of layers a stage keeps, where its layers are computed again
- `workload`: the costs of its layers and its vocabulary on GPUs that share them
- `gpt_placement`: its placements, as M-shape and V-shape
"""
