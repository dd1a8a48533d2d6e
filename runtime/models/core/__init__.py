"""Parts of models: options, the text that ours read, and layers that are whole or cut into shards.

It does not know which layers which model has. `precision` says how one can be trained.
Then `options`, `parameters`, `tokens`, `layers`, `attention`, `layered_block` and `slices` of
sequences; `chains` says which blocks of a placement share the transformer layers.
"""
