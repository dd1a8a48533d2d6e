"""Makers of placements: how layers are shared among GPUs, decided by a planner, as blocks on devices.

- `parallel_plan`: what any planner decides; `partition`: layers divided into stages
- `piece_placement`: pieces of a plan as blocks
- `galvatron_file`, `galvatron`: Galvatron's plans as files, and as placements
- `galvatron_2022`: Galvatron's search as it was published, to reproduce its tables
- `pipedream`: planners of PipeDream and PipeDream-2BW, from profiles of layers
- `stage_search`: strategies of the layers of a stage, and layers divided into stages
- `hybrid`: plans of a model on a cluster, searched
"""
