"""Placements built from others.

- `replicas`: copies of devices, of which each micro-batch takes one at each stage
- `stages`: a placement of copies as the stages that they are copies of, and back
"""
