"""The cost of a layer on each GPU of a group that shares the layer.

- `options`: reached shares of data sheets, and overlapped work
- `layer_share`: one GPU's share of a layer and of a micro-batch: how long it computes and exchanges
- `layer_costs`: time and memory of a layer under a strategy, by part, and between layers
"""
