"""Copies of devices, of which each micro-batch takes one at each stage.

- `replicas`: a pipeline with copies of its devices, and the stages of a placement of copies
"""
