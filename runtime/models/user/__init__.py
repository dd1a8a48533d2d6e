"""A model of the user's own, of which a Python file makes a module for each block.

`user` runs the modules, and says what the file must define; `user_file` reads it; `calling` calls
a module; `packing` hands several
tensors over as one; `user_shares` tries whether a module can be data parallel; `cut` cuts one into blocks.
"""
