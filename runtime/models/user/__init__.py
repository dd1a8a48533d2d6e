"""What a user's module may do, and where the modules of blocks come from.

`sources` says what any source of modules offers; `user_file` is a Python file that makes a module for each
block; `given` are modules that a script of the user's own gives, of this process's blocks alone. `calling`
calls a module with given tensors; `reading` picks what a block reads of its data; `packing` hands several
tensors over as one; `late_values` builds modules without memory and makes the values of some, from the
`seeds` of random numbers; `tracing` finds what blocks hand over, `shapes` of micro-batches that differ;
`user_shares` tries whether a module can be data parallel; `capture` makes a graph of a module that takes
tensors by name, and `cut` cuts one into blocks.
"""
