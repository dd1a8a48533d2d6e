"""A model of the user's own, of which a Python file makes a module for each block.

`user` runs the modules, and says what the file must define; `user_file` reads it; `given` are modules that a
script of the user's own gives instead, of this process's blocks alone; `calling` calls a module; `packing`
hands several tensors over as one; `user_shares` tries whether a module can be data parallel; `cut` cuts one into blocks.
"""
