"""User's modules: their duties, and where the modules of blocks come from.

`sources` is the interface of all sources of modules; `user_file` is a Python file that makes a module for
each block; `given` are modules that a script of the user's own gives, of this process's blocks alone.
`reading` picks a block's data; `packing` hands several tensors
over as one; `seeds` are those of random numbers; `tracing` finds the forms of tensors between blocks and
tries data-parallel ones; `cut` cuts a module into blocks.
"""
