"""Makers of placements: how layers are shared among GPUs, decided by a planner, as blocks on devices.

- `parallel_plan`: what any planner decides; `partition`: layers divided into stages
- `stage_search`: strategies for the layers of a stage, and layers for stages, from tables of costs
- `galvatron_file`, `galvatron`: Galvatron's plans as files, and as placements
"""
