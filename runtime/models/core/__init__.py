"""What every model is made of: options, the text it reads, and layers that are whole or cut into shards.

It does not know which layers which model has. `options`, `tokens`, `layers` and `attention`, then `chains`
and `layer_counts`, which say which blocks of a placement share the transformer layers.
"""
