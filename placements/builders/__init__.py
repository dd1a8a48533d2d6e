"""Placements built from others.

- `replicas`: copies of devices, of which each micro-batch takes one at each stage
"""
