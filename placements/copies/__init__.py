"""Copies of devices, of which each micro-batch takes one at each stage.

- `replicas`: a pipeline with copies of its devices, and such a placement as the stages of which they are
"""
