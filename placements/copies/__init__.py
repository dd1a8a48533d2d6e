"""Copies of devices, of which each micro-batch takes one at each stage.

- `replicas`: a pipeline with copies of its devices
- `stages`: such a placement as the stages that they are copies of, and back
"""
