"""A model as people write it: a chain of stages in ms and MiB, cut into other pieces, on devices.

- `stage_chain`: such a chain, and its placements
- `memory_levers`: recomputation and offload as modes of its blocks
- `stage_file`: its file form, plain data, or columns
"""
