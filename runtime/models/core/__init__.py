"""What every model is made of: options, the text it reads, and layers that are whole or cut into shards.

It does not know which layers which model has. `torch_optimizers` and `precision` say how one can be trained.
Then `options`, `compiling`, `tokens`, `layers` and `attention`; `chains` and `layer_counts` say which blocks
of a placement share the transformer layers.
"""
