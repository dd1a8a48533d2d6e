"""How the layers of each model are cut into the blocks of a placement; no tensors are here.

`synthetic` is for any graph of blocks, `gpt` for chains, `mt5` for an encoder and a decoder, `flava` for two
branches and a join.
"""
