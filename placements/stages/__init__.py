"""A model as people write it: a chain of stages in ms and MiB, cut into other pieces, on devices.

- `stage_chain`: such a chain, and its placements
- `stage_file`: its file form, plain data, or columns
"""
