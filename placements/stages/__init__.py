"""A model as users write it: a chain of stages in ms and MiB, cut into other pieces, on devices.

- `stage_chain`: such a chain, and its placements
- `layout_stages`: a layout of measured layers as such a chain
- `stage_file`: its file form, plain data, or columns
"""
