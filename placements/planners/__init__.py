"""Makers of placements: how layers are shared among GPUs, decided by a planner, as blocks on devices.

- `division`: layers divided into stages
- `pipedream`: planners of PipeDream and PipeDream-2BW, from profiles of layers
- `stage_solver`: strategies for the layers of a stage, from tables of costs; `bmw`: Galvatron-BMW's own
  search inside a stage and its division into stages, to compare with
- `hybrid`: plans of a model on a cluster, searched
"""
