"""A model of the user's own, of which a Python file makes a module for each block.

`user` runs the modules, and says what the file must define; `sources` says where they come from, `user_file`
reads the file, and `reading` picks what a block reads of its data; `late_values` builds modules without
memory and makes the values of some, from the `seeds` of random numbers; `calling` calls a module; `tracing`
finds what blocks hand over; `packing` hands several tensors over as one; `user_shares` tries whether a module
can be data parallel; `given` are modules that a script of the user's own gives, of this process's blocks
alone; `capture` makes a graph of a module that takes tensors by name, and `cut` cuts one into blocks.
"""
