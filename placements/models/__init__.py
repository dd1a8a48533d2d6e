"""Costs of models: operations, bytes and activation sizes of their layers, and placements made of them.

- `layers`: what a layer is, and precisions; `operators`: what it does and keeps
- `transformer`, `mamba`: layers by shape; `end_layers`: vocabularies, projections, layers of the user's
- `profiled_layer`: layers that are known by what was measured of them
- `chain`: a model as runs of them; `zoo`: models by name
- `rates`: how fast a GPU is taken to do such work; `machine`: how fast one was measured to do it
- `memory`: memory tensor by tensor, by training framework
- `parallel`: how GPUs share a layer; `costing`: what a layer costs each GPU
- `piece_placement`: pieces that cost so much as blocks; `memory_levers`: recomputation and offload as modes
"""
