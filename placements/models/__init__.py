"""Costs of models: operations, bytes and activation sizes of their layers, and placements made of them.

- `layers`: layers by shape, and precisions; `operators`: their operators and kept tensors
- `transformer`, `mamba`: layers by shape; `end_layers`: vocabularies, projections, layers of the user's, and
  layers known by measurements, not by shape
- `chain`: a model as runs of them; `zoo`: models by name; `training_figures`: MFU, J per token ...
- `machine`: measured rates of a machine
- `memory`: memory tensor by tensor, by training framework
- `parallel`: how GPUs share a layer; `costing`: the cost of a layer on each GPU
- `piece_placement`: pieces by their costs; `memory_levers`: recomputation and offload as modes
"""
