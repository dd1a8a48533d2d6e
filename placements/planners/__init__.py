"""Makers of placements: how layers are shared among GPUs, decided by a planner, as blocks on devices.

- `division`: layers divided into stages
- `pipedream`: planners of PipeDream and PipeDream-2BW, from profiles of layers
- `stage_search`: strategies for the layers of a stage, from tables of costs
- `hybrid`: plans of a model on a cluster, searched
"""
