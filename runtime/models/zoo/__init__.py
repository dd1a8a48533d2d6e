"""The modules of each model that comes with the project, cut into the blocks of a placement.

`synthetic` is for any graph of blocks, `gpt` for chains, `moe` for chains of layers with experts, `mt5` for
an encoder and a decoder, `flava` for two branches and a join.
"""
