"""What a layer costs each GPU of a group that shares it.

- `options`: shares of data sheets that are reached, and what runs at the same time
- `overlap`: exchanges that run beside products
- `layer_share`: one GPU's share of a layer and of a micro-batch, its products and exchanges
- `states`: weights, gradients and optimizer states, and their exchanges
- `layer_times`: the time of a layer's passes by part
- `layer_costs`: time and memory of a layer under a strategy
- `transitions`: time between layers that are shared differently
- `model_error`: how far modelled times are from measured ones
"""
